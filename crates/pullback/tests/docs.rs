//! The generated documentation is fresh, and every function says what it computes and what its
//! derivative is.

#[path = "docs/examples.rs"]
mod examples;
#[path = "docs/functions.rs"]
mod functions;
#[path = "docs/items.rs"]
mod items;

const HINT: &str = "write it anew: cargo run --release --example ops > docs/ops.md";

fn written(name: &str) -> String {
    let path = format!("{}/../../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("docs/{name}: {e}"))
}

#[test]
fn docs_ops_md_is_what_the_table_says() {
    assert_eq!(written("ops.md"), pullback::table::markdown(), "{HINT}");
}

#[test]
fn docs_functions_md_is_what_the_sources_say() {
    assert!(written("functions.md") == functions::markdown(), "docs/functions.md is stale; {HINT}");
}

#[test]
fn every_function_says_what_it_computes_and_its_derivative() {
    let families = functions::families();
    let all: Vec<_> = families.iter().flat_map(|f| &f.functions).collect();
    // The scan finds what it should: of each kind one that is there.
    for name in
        ["tanh", "sum", "matmul", "cat", "losses::mse", "masked::sum", "conv2d", "CrossEntropy::of"]
    {
        assert!(all.iter().any(|f| f.name == name), "{name} is not found in the sources");
    }
    assert!(all.len() > 300, "only {} functions are found", all.len());
    let silent = |f: &&&functions::Function| f.says.is_empty() || f.derivative.is_none();
    let silent: Vec<String> =
        all.iter().filter(silent).map(|f| format!("{} at {}", f.name, f.place)).collect();
    assert!(
        silent.is_empty(),
        "{} functions have no first sentence or no line `/// Derivative: …`:\n{}",
        silent.len(),
        silent.join("\n")
    );
}
