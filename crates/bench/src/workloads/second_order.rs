//! Second derivatives: times a vector, by both nestings of the modes, and in full.

use super::abs_sum;
use super::mlp::{batch, loss, mlp};
use crate::compiled;
use crate::data::{Init, tensor};
use crate::measure::{Measurement, measure};
use pullback::{Backward, Tensor, Tree};
use pullback_nn::models::Mlp;

pub fn hvp() -> Vec<Measurement> {
    let (mlp, (x, y)) = (mlp().map(&mut Tensor::detach), batch());
    let mut init = Init::new();
    let v = mlp.map(&mut |p| init.next(p.shape(), 1));
    let forward = compiled::step(|| pullback::hvp(|mlp: &Mlp| loss(mlp, &x, &y), &mlp, &v));
    let forward_row = measure(|| drop(forward())).with("check", abs_sum(&forward().leaves()));

    let tracked = mlp.map(&mut |p| p.deep_clone().requires_grad());
    let (leaves, v) = (tracked.leaves(), v.leaves());
    let (leaves, v): (Vec<&Tensor>, Vec<&Tensor>) = (leaves.iter().collect(), v.iter().collect());
    let reverse = compiled::step(|| {
        let loss = loss(&tracked, &x, &y);
        let first = Backward::of(&loss)
            .create_graph()
            .wrt(&leaves)
            .expect("the loss depends on every parameter");
        let first: Vec<&Tensor> = first.iter().collect();
        Backward::of_all(&first)
            .cotangents(&v)
            .wrt(&leaves)
            .expect("the gradient depends on every parameter")
    });
    let reverse_row = measure(|| drop(reverse())).with("check", abs_sum(&reverse()));
    vec![forward_row.named("_fwd_over_rev"), reverse_row.named("_rev_over_rev")]
}

pub fn hessian() -> Vec<Measurement> {
    let x = tensor(&[200], 1);
    let full = pullback::hessian(rosenbrock);
    let step = compiled::step(|| full(&x));
    let row = measure(|| drop(step()));
    vec![row.with("check", abs_sum(&[step()]))]
}

fn rosenbrock(x: &Tensor) -> Tensor {
    let (left, right) = (x.at(..-1), x.at(1..));
    (100.0 * (right - left.square()).square() + (1.0 - &left).square()).sum()
}
