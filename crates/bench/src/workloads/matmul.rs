//! Products of square matrices.

use super::{abs_sum, backward, grad};
use crate::compiled;
use crate::data::tensor;
use crate::measure::{Measurement, Protocol, measure, rounded};

pub fn square() -> Vec<Measurement> {
    let mut rows = Vec::new();
    for n in [256, 512, 1024, 2048] {
        let (a, b) = (tensor(&[n, n], 1), tensor(&[n, n], 2));
        let product = compiled::step(|| a.matmul(&b));
        let row = Protocol { budget: 1.0, ..Protocol::default() }.measure(|| drop(product()));
        rows.push(with_rate(row, 2.0, n).named(format!("_{n}")));
    }
    let n = 1024;
    let (a, b) = (tensor(&[n, n], 1).requires_grad(), tensor(&[n, n], 2).requires_grad());
    let g = tensor(&[n, n], 3);
    let row = measure(compiled::step(|| {
        a.zero_grad();
        b.zero_grad();
        backward(&(a.matmul(&b) * &g).sum());
    }));
    rows.push(
        with_rate(row, 6.0, n).with("check", abs_sum(&[grad(&a)])).named(format!("_{n}_fwdbwd")),
    );
    rows
}

/// The row with its rate, at `flops` operations per element of an n·n·n cube.
fn with_rate(row: Measurement, flops: f64, n: usize) -> Measurement {
    let lr = flops * (n as f64).powi(3) / row.ms() / 1e6;
    row.with("gflops", rounded(lr, 1))
}
