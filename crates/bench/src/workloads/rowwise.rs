//! Operations over the rows of a matrix: weighted and summed, and as a plain vector-Jacobian
//! product.

use super::{abs_sum, backward, grad};
use crate::compiled;
use crate::data::tensor;
use crate::measure::{Measurement, measure};
use pullback::Tensor;

const ROWS: usize = 4096;
const COLUMNS: usize = 1024;

pub fn softmax() -> Vec<Measurement> {
    of(&[], |x| x.softmax(-1))
}

pub fn layer_norm() -> Vec<Measurement> {
    let weight = tensor(&[COLUMNS], 3).requires_grad();
    let bias = tensor(&[COLUMNS], 4).requires_grad();
    of(&[&weight, &bias], |x| x.layer_norm(&weight, &bias, 1e-5))
}

fn of(parameters: &[&Tensor], op: impl Fn(&Tensor) -> Tensor) -> Vec<Measurement> {
    let (x, g) = (tensor(&[ROWS, COLUMNS], 1).requires_grad(), tensor(&[ROWS, COLUMNS], 2));
    let clear = || parameters.iter().copied().chain([&x]).for_each(Tensor::zero_grad);
    let row = measure(compiled::step(|| {
        clear();
        backward(&(op(&x) * &g).sum());
    }));
    let check = abs_sum(&[grad(&x)]);
    let vjp = measure(compiled::step(|| {
        clear();
        op(&x).backward_with(&g).expect("the cotangent has the shape of the result");
    }));
    vec![row.with("check", check), vjp.named("_vjp")]
}
