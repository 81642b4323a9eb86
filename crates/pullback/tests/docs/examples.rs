//! Every public function has an example in its documentation, which `cargo test` runs, and says
//! when it panics or returns an error.

use super::items::{Item, public};

fn complain(items: &[&Item], what: &str) {
    let names: Vec<String> =
        items.iter().map(|item| format!("{} ({})", item.name, item.place)).collect();
    assert!(items.is_empty(), "{} {what}:\n{}", items.len(), names.join("\n"));
}

/// The items of both crates, after a check that the scan finds what it should.
fn all() -> Vec<Item> {
    let mut items = public("pullback");
    items.extend(public("nn"));
    let functions =
        |part: &str| items.iter().filter(|item| !item.is_type && item.place.contains(part)).count();
    for (part, at_least) in [
        ("pullback/src", 600),
        ("pullback/src/ops", 350),
        ("nn/src/layers", 170),
        ("nn/src/losses", 50),
        ("nn/src/optim", 40),
        ("nn/src/schedule", 14),
        ("nn/src/data", 150),
        ("nn/src/train", 80),
        ("nn/src/distributions", 40),
    ] {
        assert!(functions(part) >= at_least, "only {} functions in {part}", functions(part));
    }
    for name in "Tensor::matmul Tensor::tanh Tensor::sum Tensor::add_ Tensor::eq fft grad \
        Linear::new Relu Linear::forward MseLoss::forward Optimizer::groups Layer::forward"
        .split_whitespace()
    {
        assert!(items.iter().any(|item| item.name == name), "{name} is not found");
    }
    items
}

#[test]
fn every_public_function_has_an_example_that_runs() {
    let items = all();
    let without: Vec<&Item> = items
        .iter()
        .filter(|item| !item.is_type && !item.is_forward && !item.has_example())
        .collect();
    complain(&without, "public functions have no example that runs");
}

/// A layer, loss, optimiser or schedule shows how it is called.
#[test]
fn every_layer_loss_optimiser_and_schedule_has_an_example() {
    let items = all();
    let folders = ["nn/src/layers", "nn/src/losses", "nn/src/optim", "nn/src/schedule"];
    let without: Vec<&Item> = items
        .iter()
        .filter(|item| item.is_type && folders.iter().any(|folder| item.place.contains(folder)))
        .filter(|item| !item.has_example())
        .collect();
    complain(&without, "types have no example that runs");
}

/// Where a function without a section is one that cannot fail.
const COMPLETE: &str = "pullback/src/backward.rs pullback/src/create pullback/src/cut.rs \
    pullback/src/grad.rs pullback/src/inplace pullback/src/ops pullback/src/random \
    pullback/src/read.rs pullback/src/tensor.rs nn/src/distributions nn/src/layers nn/src/losses \
    nn/src/optim nn/src/schedule";

/// A section `# Panics` or `# Errors`. Methods of tensors, layers, losses, optimisers and schedules
/// need one unless their body shows that they cannot fail, as one that sets an option; any other
/// function, if it returns a `Result` or its own body panics.
#[test]
fn every_public_function_says_when_it_fails() {
    let items = all();
    let complete = |item: &Item| {
        item.name.starts_with("Tensor::")
            || COMPLETE.split_whitespace().any(|part| item.place.contains(part))
    };
    let silent: Vec<&Item> = items
        .iter()
        .filter(|item| !item.is_type && !item.says_how_it_fails())
        .filter(|item| item.fails_visibly() || complete(item) && !item.cannot_fail())
        .collect();
    complain(&silent, "public functions do not say when they panic or return an error");
}

#[test]
fn a_body_that_can_fail_is_recognised() {
    let with = |body: &str| Item { body: Some(body.into()), ..Item::default() };
    for body in
        ["Pad { fill: Some(fill), ..self }", "&self.0.spec", "// see f(x)\n Self::default()"]
    {
        assert!(with(body).cannot_fail(), "{body}");
    }
    for body in ["self.shape()[0]", "self.a / self.b", "f(x)", "x.item::<f64>()", "x?", "self.x[i]"]
    {
        assert!(!with(body).cannot_fail(), "{body}");
    }
    assert!(with("x.unwrap()").fails_visibly() && !with("x.len()").fails_visibly());
}
