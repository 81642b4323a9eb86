//! Every op compiled, alone and among others, against the op run eagerly: values and gradients.

use super::kernels::reorders;
use super::samples::Sample;
use super::{Failures, all_samples, bits};
use pullback::{Backward, DType, Op, Result, Tensor, jit, try_apply};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The results of the op, with pointwise work before and behind that fusion will want to join it with.
fn among_others(op: &Op, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let before: Vec<Tensor> =
        x.iter().map(|x| if x.dtype().is_float() { x * 0.875 } else { x.clone() }).collect();
    let made = try_apply(op.clone(), &before.iter().collect::<Vec<_>>())?;
    Ok(made
        .iter()
        .map(|y| if y.dtype().is_float() { y.tanh() * 0.5 + 0.25 } else { y.clone() })
        .collect())
}

fn alone(op: &Op, x: &[Tensor]) -> Result<Vec<Tensor>> {
    try_apply(op.clone(), &x.iter().collect::<Vec<_>>())
}

/// The gradients of the float operands, from the sum of squares of the float results.
fn gradients(op: &Op, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let tracked: Vec<Tensor> = x
        .iter()
        .map(|x| if x.dtype().is_float() { x.detach().requires_grad() } else { x.clone() })
        .collect();
    let ys = try_apply(op.clone(), &tracked.iter().collect::<Vec<_>>())?;
    let floats = ys.iter().filter(|y| y.dtype().is_float() && y.is_tracked());
    let Some(loss) = floats.map(|y| y.square().sum()).reduce(|a, b| a + b) else {
        return Ok(Vec::new());
    };
    let leaves: Vec<&Tensor> = tracked.iter().filter(|x| x.is_leaf()).collect();
    Backward::of(&loss).allow_unused().wrt(&leaves)
}

/// Bit for bit where nothing is added up in another order, else to within a few units in the last place of the largest number.
fn differ(op: &Op, a: &Tensor, b: &Tensor, exact: bool) -> Option<String> {
    if a.spec() != b.spec() {
        return Some(format!("{} instead of {}", a.spec(), b.spec()));
    }
    if bits(a) == bits(b) {
        return None;
    }
    let unit = match a.dtype() {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::BF16 => 1.0 / 128.0,
        DType::F16 => 1.0 / 1024.0,
        _ => 0.0,
    };
    let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
    let largest = b.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    let allowed = if exact && !reorders(op) { 0.0 } else { 64.0 * unit * largest };
    let same = |x: f64, y: f64| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= allowed;
    a.iter().zip(&b).find(|(x, y)| !same(**x, **y)).map(|(x, y)| format!("{x:e} instead of {y:e}"))
}

type Function = fn(&Op, &[Tensor]) -> Result<Vec<Tensor>>;

fn compare(sample: &Sample, name: &str, f: Function, exact: bool, failures: &mut Failures) {
    let Ok(wanted) = f(&sample.op, &sample.inputs) else { return };
    let compiled = jit(|x: &Vec<Tensor>| f(&sample.op, x));
    let called = catch_unwind(AssertUnwindSafe(|| compiled.call(&sample.inputs)));
    let Ok(called) = called else { return failures.note(sample, format!("{name}: panics")) };
    match called {
        Err(error) => failures.note(sample, format!("{name}: {error}")),
        Ok(found) => {
            for (k, (a, b)) in found.iter().zip(&wanted).enumerate() {
                if let Some(how) = differ(&sample.op, a, b, exact) {
                    failures.note(sample, format!("{name}, result {k}: {how}"));
                }
            }
        }
    }
    if let Err(error) = compiled.check(&sample.inputs) {
        failures.note(sample, format!("{name}, check: {error}"));
    }
}

#[test]
fn compiled_is_eager() {
    let mut failures = Failures::new();
    for sample in all_samples() {
        for dtype in [DType::F64, DType::F32, DType::BF16] {
            let sample = sample.cast(dtype);
            compare(&sample, "alone", alone, true, &mut failures);
            compare(&sample, "among others", among_others, true, &mut failures);
        }
        if sample.check {
            compare(&sample, "gradients", gradients, false, &mut failures);
        }
    }
    failures.assert_none();
}
