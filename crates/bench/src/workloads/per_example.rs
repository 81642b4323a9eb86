//! The gradient of each example's loss, stacked: `vmap` over `grad`.

use super::abs_sum;
use super::mlp::{batch, loss, mlp};
use crate::compiled;
use crate::measure::{Measurement, measure};
use pullback::{Tensor, Tree, grad, vmap};
use pullback_nn::models::Mlp;

const EXAMPLES: usize = 64;

pub fn grads() -> Vec<Measurement> {
    let (mlp, (x, y)) = (mlp().map(&mut Tensor::detach), batch());
    let data = (x.narrow(0, 0, EXAMPLES), y.narrow(0, 0, EXAMPLES));
    let one = |(x, y): &(Tensor, Tensor)| {
        grad(|mlp: &Mlp| loss(mlp, &x.unsqueeze(0), &y.unsqueeze(0)))(&mlp)
    };
    let all = compiled::step(|| vmap(one, 0, 0)(&data).leaves());
    let row = measure(|| drop(all()));
    vec![row.with("check", abs_sum(&all()))]
}
