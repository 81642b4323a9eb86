//! The seed of a backward pass is 1, and gradients that are known to be 1 save a multiplication. A
//! sum that began as such a gradient is no longer 1.

use pullback::{Backward, Tensor};

/// Enough elements for the multiplication to be saved.
const N: usize = 5000;

fn leaf() -> Tensor {
    Tensor::from((0..N).map(|i| (i % 7) as f32 / 7.0).collect::<Vec<_>>()).requires_grad()
}

fn is_times_exp(x: &Tensor, factor: f32) {
    let grad = x.grad().unwrap().to_vec::<f32>();
    for (v, g) in x.to_vec::<f32>().into_iter().zip(grad) {
        assert!((g - factor * v.exp()).abs() <= 1e-5 * g.abs(), "{g} at {v}, factor {factor}");
    }
}

#[test]
fn a_sum_that_is_used_twice() {
    let x = leaf();
    let s = x.exp().sum();
    (&s + &s * 3.0).backward().unwrap();
    is_times_exp(&x, 4.0);
}

#[test]
fn one_output_given_twice() {
    let x = leaf();
    let s = x.exp().sum();
    Backward::of_all(&[&s, &s]).run().unwrap();
    is_times_exp(&x, 2.0);
}

#[test]
fn ones_that_were_written_to() {
    let x = leaf();
    let dy = Tensor::ones([N]);
    dy.mul_(5.0);
    x.exp().backward_with(&dy).unwrap();
    is_times_exp(&x, 5.0);
}
