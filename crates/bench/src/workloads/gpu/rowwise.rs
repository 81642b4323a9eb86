//! Softmax and layer normalisation of the rows of a matrix in bf16, with their gradients.

use super::super::grad;
use super::{compared, difference};
use crate::measure::{Measurement, Protocol};
use crate::{compiled, quick};
use pullback::{DType, Tensor, manual_seed};

/// How many rows the check compares.
const COMPARED: usize = 4;

pub fn softmax() -> Vec<Measurement> {
    of(&[], |x, _| x.softmax(-1))
}

pub fn layer_norm() -> Vec<Measurement> {
    manual_seed(1);
    let columns = columns();
    let parameters = [(); 2].map(|()| Tensor::randn([columns]).requires_grad());
    of(&parameters, |x, parameters| {
        // In f32, or in f64 for the reference.
        let wide = if x.dtype() == DType::BF16 { x.cast(DType::F32) } else { x.clone() };
        wide.layer_norm(&parameters[0], &parameters[1], 1e-5).cast(x.dtype())
    })
}

fn columns() -> usize {
    quick::size(4096, 64)
}

fn of(parameters: &[Tensor], op: impl Fn(&Tensor, &[Tensor]) -> Tensor) -> Vec<Measurement> {
    manual_seed(0);
    let shape = [quick::size(16384, 32), columns()];
    let x = Tensor::randn_with(shape, DType::BF16).requires_grad();
    let g = Tensor::randn_with(shape, DType::BF16);
    let back = |x: &Tensor, parameters: &[Tensor], g: &Tensor| {
        let cotangent = op(x, parameters).backward_with(g);
        cotangent.expect("the cotangent has the shape of the result");
    };
    let row = Protocol::counted(5, 20).measure(compiled::step(|| {
        parameters.iter().chain([&x]).for_each(Tensor::zero_grad);
        back(&x, parameters, &g);
    }));
    let rows = |x: &Tensor| x.detach().narrow(0, 0, COMPARED).cast(DType::F64);
    let exact = rows(&x).requires_grad();
    let parameters: Vec<Tensor> = parameters.iter().map(|p| p.detach().cast(DType::F64)).collect();
    back(&exact, &parameters, &rows(&g));
    vec![compared(row, &[difference(&grad(&x).narrow(0, 0, COMPARED), &grad(&exact))], 1e-2)]
}
