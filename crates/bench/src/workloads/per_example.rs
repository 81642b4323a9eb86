//! The gradient of each example's loss, stacked: by a loop over the examples, as there is no `vmap` yet.

use super::abs_sum;
use super::mlp::{Mlp, batch};
use crate::measure::{Row, measure};
use pullback::{Tensor, Tree, grad, stack};

const EXAMPLES: usize = 64;

pub fn grads() -> Vec<Row> {
    let (mlp, (x, y)) = (Mlp::new(), batch());
    let all = || {
        let one = |i: usize| {
            let (x, y) = (x.narrow(0, i as isize, 1), y.narrow(0, i as isize, 1));
            grad(|mlp: &Mlp| mlp.loss(&x, &y))(&mlp).leaves()
        };
        let examples: Vec<Vec<Tensor>> = (0..EXAMPLES).map(one).collect();
        let stacked = |k: usize| stack(&examples.iter().map(|g| &g[k]).collect::<Vec<_>>(), 0);
        (0..mlp.leaves().len()).map(stacked).collect::<Vec<_>>()
    };
    let row = measure(|| drop(all()));
    vec![row.with("check", abs_sum(&all()))]
}
