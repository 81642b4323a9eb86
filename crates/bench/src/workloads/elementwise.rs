//! A chain of pointwise operations over more values than a cache holds.

use super::{backward, grad};
use crate::compiled;
use crate::data::tensor;
use crate::measure::{Measurement, measure};
use pullback::DType;

pub fn chain() -> Vec<Measurement> {
    let inputs = [1, 2, 3, 4].map(|seed| tensor(&[4_194_304], seed).requires_grad());
    let [x, a, b, c] = &inputs;
    let row = measure(compiled::step(|| {
        inputs.iter().for_each(|x| x.zero_grad());
        backward(&((x * a + b).gelu() * c.sigmoid()).sum());
    }));
    let check = inputs.iter().map(|x| grad(x).cast(DType::F64).sum().item::<f64>()).sum();
    vec![row.with("check", check)]
}
