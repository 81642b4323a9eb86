//! The gradient of each example's loss, stacked: `vmap` over `grad`.

use super::abs_sum;
use super::mlp::{Mlp, batch};
use crate::compiled;
use crate::measure::{Row, measure};
use pullback::{Tensor, grad, vmap};

const EXAMPLES: usize = 64;

pub fn grads() -> Vec<Row> {
    let (mlp, (x, y)) = (Mlp::new(), batch());
    let data = (x.narrow(0, 0, EXAMPLES), y.narrow(0, 0, EXAMPLES));
    let one = |(x, y): &(Tensor, Tensor)| {
        grad(|mlp: &Mlp| mlp.loss(&x.unsqueeze(0), &y.unsqueeze(0)))(&mlp)
    };
    let all = compiled::step(|| pullback::Tree::leaves(&vmap(one, 0, 0)(&data)));
    let row = measure(|| drop(all()));
    vec![row.with("check", abs_sum(&all()))]
}
