//! A chain of pointwise operations over more values than any cache holds, and the cost of a node of
//! the tape.

use super::super::{backward, grad};
use super::{compared, difference};
use crate::measure::{Measurement, Protocol, rounded};
use crate::{compiled, quick};
use pullback::{DType, Tensor, manual_seed};

/// How many values the check compares.
const COMPARED: usize = 1000;

pub fn chain() -> Vec<Measurement> {
    manual_seed(0);
    let n = quick::size(1 << 26, 1 << 12);
    let leaves = [(); 4].map(|()| Tensor::randn([n]).requires_grad());
    let value = |[x, a, b, c]: &[Tensor; 4]| ((x * a + b).gelu() * c.sigmoid()).sum();
    let row = Protocol::counted(5, 20).measure(compiled::step(|| {
        leaves.iter().for_each(Tensor::zero_grad);
        backward(&value(&leaves));
    }));
    let exact = leaves
        .each_ref()
        .map(|x| x.detach().narrow(0, 0, COMPARED).cast(DType::F64).requires_grad());
    backward(&value(&exact));
    let pairs = leaves.iter().zip(&exact);
    let wrong: Vec<f64> =
        pairs.map(|(x, y)| difference(&grad(x).narrow(0, 0, COMPARED), &grad(y))).collect();
    // At least: read four, then read four and write four, of four bytes each.
    let rate = rounded(12.0 * 4.0 * n as f64 / row.ms() / 1e6, 0);
    vec![compared(row, &wrong, 1e-5).with("gb_per_s_of_floor", rate)]
}

pub fn tape() -> Vec<Measurement> {
    if compiled::on() {
        eprintln!("tape_overhead_1000: measures the eager tape, so there is nothing to compile");
        return Vec::new();
    }
    let links = 1000;
    let (a, b) = (Tensor::full([8], 0.999f32), Tensor::full([8], 0.001f32));
    let x = Tensor::ones([8]).requires_grad();
    let row = Protocol::counted(2, 5).measure(|| {
        x.zero_grad();
        backward(&(0..links).fold(x.clone(), |y, _| y * &a + &b).sum());
    });
    let want = Tensor::full([8], 0.999f64.powi(links));
    let per_op = rounded(row.ms() * 1e3 / f64::from(2 * links), 2);
    vec![compared(row, &[difference(&grad(&x), &want)], 1e-4).with("us_per_op", per_op)]
}
