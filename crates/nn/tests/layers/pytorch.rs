//! Every layer gives PyTorch's numbers from the same weights: output, gradients of input and
//! parameters, running statistics.

use crate::build::{Built, Case};
use crate::seeded;
use pullback::{DType, Tensor, catch, jit, no_grad};
use pullback_nn::Module;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::panic::AssertUnwindSafe;

pub const CASES: &str = include_str!("../data/layers.json");
const NUMBERS: &[u8] = include_bytes!("../data/layers.safetensors");

/// The numbers of `layers.py`: distinct, between −1 and 1, the same bits on both sides.
fn numbers(seed: usize, shape: &[usize]) -> Tensor {
    let one = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f64;
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| (one(i) + 0.5) / 1000.0 - 1.0).collect();
    Tensor::from_vec(values, shape)
}

pub fn inputs(case: &Case, seed: usize) -> Vec<Tensor> {
    let first = numbers(seed, &case.shape);
    if let Some(below) = case.more.get("below").and_then(Value::as_i64) {
        return vec![((first + 1.0) * 1000.0).cast(DType::I64) % below];
    }
    let scale = case.more.get("scale").and_then(Value::as_f64).unwrap_or(1.0);
    let mut xs = vec![first * scale];
    if case.layer == "Bilinear" {
        let mut shape = case.shape.clone();
        *shape.last_mut().unwrap() = case.second_inputs();
        xs.push(numbers(seed + 100, &shape));
    }
    xs
}

/// What PyTorch gave.
struct Expected<'a> {
    tensors: &'a SafeTensors<'a>,
    tolerance: f64,
}

impl Expected<'_> {
    /// Fails unless `actual` is the tensor of this name: to the tolerance times its size, or 1
    /// where it is smaller.
    fn check(&self, what: &str, name: &str, actual: &Tensor) {
        let expected = self.tensors.tensor(name).unwrap_or_else(|_| panic!("{what}: no {name}"));
        assert_eq!(expected.shape(), actual.shape(), "{what}: the shape of {name}");
        let chunks = expected.data().chunks_exact(8).map(|b| b.try_into().unwrap());
        if expected.dtype() == Dtype::I64 {
            let expected: Vec<i64> = chunks.map(i64::from_le_bytes).collect();
            assert_eq!(actual.to_vec::<i64>(), expected, "{what}: {name}");
            return;
        }
        assert_eq!(actual.dtype(), DType::F64, "{what}: {name}");
        for (i, (e, a)) in chunks.map(f64::from_le_bytes).zip(actual.to_vec::<f64>()).enumerate() {
            let far = (e - a).abs() > self.tolerance * e.abs().max(1.0) || e.is_nan() != a.is_nan();
            assert!(!far, "{what}: {name}[{i}] is {a}, not {e}");
        }
    }
}

/// PyTorch's name of a tensor: without the places in `Built` and `Sequential`.
fn plain(name: &str) -> &str {
    name.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
}

fn check(tensors: &SafeTensors, number: usize, case: &Case, compiled: bool) {
    let tolerance = case.more.get("tolerance").and_then(Value::as_f64).unwrap_or(1e-9);
    let expected = Expected { tensors, tolerance };
    let what = format!("case {number}, {}", case.layer);
    let built: Built = case.build();
    let named = |list: Vec<(String, Tensor)>| -> Vec<(String, Tensor)> {
        list.into_iter().map(|(name, x)| (plain(&name).to_string(), x)).collect()
    };
    let (parameters, buffers) = (named(built.named_parameters()), named(built.named_buffers()));
    let state = named(built.named_state());
    let shapes: Vec<_> = state.iter().map(|(n, x)| (n.clone(), x.shape().to_vec())).collect();
    assert_eq!(shapes, case.state, "{what}: names and shapes");
    no_grad(|| {
        for (i, (_, p)) in parameters.iter().enumerate() {
            p.copy_(numbers(10 + i, p.shape()) * 0.5);
        }
    });
    if case.more.get("mode").is_some_and(|mode| mode == "eval") {
        built.eval();
        let floats = buffers.iter().filter(|(_, b)| b.dtype().is_float());
        no_grad(|| {
            for (i, (_, b)) in floats.enumerate() {
                b.copy_(numbers(20 + i, b.shape()) + 1.5);
            }
        });
    }
    // One step: the output and the gradients of the inputs; those of the parameters stay with them.
    let step = jit(|xs: &Vec<Tensor>| {
        built.zero_grad();
        let float = |x: &Tensor| x.dtype().is_float();
        let leaf = |x: &Tensor| if float(x) { x.detach().requires_grad() } else { x.clone() };
        let xs: Vec<Tensor> = xs.iter().map(leaf).collect();
        let y = built.forward(&xs);
        y.backward_with(&numbers(5, y.shape()))?;
        let slopes = xs.iter().filter(|x| float(x)).map(|x| x.grad().unwrap()).collect();
        Ok((y.detach(), slopes))
    });
    let batches = case.more.get("batches").and_then(Value::as_u64).unwrap_or(1) as usize;
    let run = |batch: usize| -> (Tensor, Vec<Tensor>) {
        let xs = inputs(case, 1 + batch);
        if compiled { step.of(&xs) } else { step.eager(&xs) }
    };
    let (y, slopes) = (0..batches).map(run).last().unwrap();
    expected.check(&what, &format!("{number}.y"), &y);
    for (i, slope) in slopes.iter().enumerate() {
        expected.check(&what, &format!("{number}.dx{i}"), slope);
    }
    for (name, p) in &parameters {
        expected.check(&what, &format!("{number}.d.{name}"), &p.grad().unwrap());
    }
    for (name, b) in &buffers {
        expected.check(&what, &format!("{number}.after.{name}"), b);
    }
    let explained = step.explain();
    assert_eq!(explained.specialisations.len(), usize::from(compiled), "{what}");
    assert_eq!(explained.uncompiled.0, 0, "{what}: {:?}", explained.uncompiled.1);
}

/// Runs the cases that `wanted` accepts and lists all that fail.
fn check_all(compiled: bool, wanted: impl Fn(&Case) -> bool) {
    let tensors = SafeTensors::deserialize(NUMBERS).unwrap();
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    assert!(cases.len() > 120, "{} cases", cases.len());
    let mut failed = Vec::new();
    for (number, case) in cases.iter().map(Case::new).enumerate().filter(|(_, case)| wanted(case)) {
        let run = || catch(|| check(&tensors, number, &case, compiled)).map_err(|e| e.to_string());
        match std::panic::catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => failed.push(format!("case {number}, {}: {error}", case.layer)),
            Err(panic) => failed.push(match panic.downcast::<String>() {
                Ok(text) => *text,
                Err(_) => format!("case {number}, {}: panicked", case.layer),
            }),
        }
    }
    assert!(failed.is_empty(), "{} of {} cases:\n{}", failed.len(), cases.len(), failed.join("\n"));
}

#[test]
fn every_layer_gives_pytorchs_numbers() {
    let _alone = seeded(0);
    check_all(false, |_| true);
}

#[test]
fn so_does_every_layer_compiled() {
    let _alone = seeded(0);
    // Bags look at the row numbers.
    check_all(true, |case| case.layer != "EmbeddingBag");
}
