//! Sentences about derivatives and traces say what happened, and where.

use pullback::{
    DType, Spec, Tensor, catch, checkpoint, grad, jit, no_grad, trace, value_and_grad, vmap,
};

/// The text of an error, which must hold every part and this file's name.
#[track_caller]
fn says(error: &pullback::Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts.iter().chain(&["tests/errors_derivatives.rs:"]) {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

#[track_caller]
fn fails<R>(f: impl FnOnce() -> R, parts: &[&str]) {
    let Err(error) = catch(f) else { panic!("did not fail: {parts:?}") };
    says(&error, parts);
}

#[test]
fn integers_have_no_gradient() {
    let error = Tensor::from(3i64).backward().unwrap_err();
    says(&error, &["backward", "i64[] has no gradient: only floats have one"]);
    assert!(!error.to_string().contains("not a scalar"), "{error}");
    let x = Tensor::from([1.0, 2.0]).requires_grad();
    says(&x.argmax(0).backward().unwrap_err(), &["i64[] has no gradient"]);
    says(&x.backward().unwrap_err(), &["f64[2] is not a scalar, so backward needs a cotangent"]);
    let count = |x: &Tensor| x.argmax(0);
    fails(|| grad(count)(&x.detach()), &["one float, not i64[]", "only floats have gradients"]);
    let many = |x: &Tensor| x * 2.0;
    fails(|| value_and_grad(many)(&x.detach()), &["one float, not f64[2]", "reduce the result"]);
}

#[test]
fn gradients_that_are_set() {
    let x = Tensor::from([1.0, 2.0]).requires_grad();
    fails(
        || x.set_grad(Some(Tensor::from(1.0))),
        &["the gradient is f64[], but the leaf is f64[2]"],
    );
    let y = &x * 2.0;
    fails(|| drop(y.on_grad_ready(|_| {})), &["result of an operation", "mul", "register_hook"]);
    fails(|| drop(x.detach().on_grad_ready(|_| {})), &["does not require grad"]);
}

#[test]
fn values_that_are_read_in_a_trace() {
    let outside = Tensor::from([1.0, 2.0]);
    let read = |_: &[Tensor]| Tensor::from(outside.to_vec::<f64>()[0]);
    let error = trace(read, &[Spec::cpu(DType::F64, [])]).unwrap_err();
    says(&error, &["a value is read while a function is traced", "frozen into the program"]);
    let each = vmap(|x: &Tensor| x * outside.to_vec::<f64>()[0], 0, 0);
    fails(|| each(&outside), &["a value is read inside vmap"]);
    let known = jit(|x: &Tensor| x * x.sum().item::<f64>());
    says(&known.call(&outside).unwrap_err(), &["is not known: it is being traced", "made by sum"]);
}

#[test]
fn gradients_that_are_changed_in_a_body() {
    let w = Tensor::from(2.0).requires_grad();
    let each = vmap(
        |x: &Tensor| {
            w.zero_grad();
            x * 2.0
        },
        0,
        0,
    );
    fails(|| each(&Tensor::from([1.0])), &["gradient of a captured tensor", "inside vmap"]);
}

#[test]
fn a_checkpointed_function_that_overwrites_what_it_saved() {
    let x = Tensor::from([1.0, 2.0]).requires_grad();
    let f = |x: &Tensor| {
        let h = x * 2.0;
        let y = h.square();
        no_grad(|| h.detach().fill_(0.0));
        y
    };
    let y = checkpoint(f, &x).sum();
    let error = y.backward().unwrap_err();
    says(
        &error,
        &[
            "backward of `square`",
            "the checkpointed function itself overwrote it",
            "saved by",
            "fill",
        ],
    );
    let text = error.to_string();
    assert!(!text.contains("clock"), "{text}");
    let line = |word: &str| text.lines().find(|l| l.contains(word)).unwrap_or_default().to_string();
    assert!(line("saved by").contains("errors_derivatives.rs"), "{text}");
    assert!(line("overwritten ").contains("errors_derivatives.rs"), "{text}");
}
