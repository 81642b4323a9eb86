//! The cost of a node: long chains of tiny operations.

use super::{backward, grad};
use crate::data::{fill, tensor};
use crate::measure::{Measurement, Protocol, rounded};
use pullback::Tensor;

const LINKS: usize = 10_000;

pub fn overhead() -> Vec<Measurement> {
    let x = tensor(&[8], 1).requires_grad();
    let near_one: Vec<f32> = fill(8, 2, 1e-4).iter().map(|v| 1.0 + v).collect();
    let (a, b) = (Tensor::from(near_one), Tensor::from(fill(8, 3, 1e-4)));
    let chain = || (0..LINKS).fold(x.clone(), |y, _| y * &a + &b).sum();
    let protocol = Protocol { warm_runs: 2, ..Protocol::default() };
    let forward = protocol.measure(|| drop(chain()));
    let row = protocol.measure(|| {
        x.zero_grad();
        backward(&chain());
    });
    let per_node = rounded(row.ms() * 1e6 / (2 * LINKS) as f64, 1);
    let check = f64::from(grad(&x).sum().item::<f32>());
    vec![row.with("fwd_ms", forward.ms()).with("ns_per_node", per_node).with("check", check)]
}
