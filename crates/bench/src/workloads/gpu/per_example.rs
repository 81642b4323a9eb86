//! The gradient of each of 256 examples' losses, stacked: `vmap` over `grad`.

use super::super::mlp::loss;
use super::{compared, difference};
use crate::measure::{Measurement, Protocol};
use crate::{compiled, quick};
use pullback::{Key, Tensor, Tree, grad, manual_seed, vmap};
use pullback_nn::models::Mlp;

pub fn grads() -> Vec<Measurement> {
    manual_seed(0);
    let examples = quick::size(256, 4);
    let widths = quick::size([784, 512, 512, 10], [12, 8, 8, 10]);
    let mlp = Mlp::new(&widths).map(&mut Tensor::detach);
    let data = (Tensor::randn([examples, widths[0]]), Key::new(1).randint([examples], 0, 10));
    let one = |(x, y): &(Tensor, Tensor)| {
        grad(|mlp: &Mlp| loss(mlp, &x.unsqueeze(0), &y.unsqueeze(0)))(&mlp)
    };
    let all = compiled::step(|| vmap(one, 0, 0)(&data).leaves());
    let row = Protocol::counted(10, 50).measure(|| drop(all()));
    // Their means are the gradients of the mean loss.
    let mean = grad(|mlp: &Mlp| loss(mlp, &data.0, &data.1))(&mlp).leaves();
    let pairs = all().into_iter().zip(mean);
    let wrong: Vec<f64> = pairs.map(|(each, mean)| difference(&each.mean_over(0), &mean)).collect();
    vec![compared(row, &wrong, 1e-4)]
}
