//! Initialisations: bounds, moments and structure, with a fixed seed.

use crate::seeded;
use pullback::{DType, Tensor, manual_seed};
use pullback_nn::init::*;
use pullback_nn::*;

/// Mean, standard deviation, smallest and largest.
fn moments(x: &Tensor) -> [f64; 4] {
    let v = x.to_f64_vec();
    let n = v.len() as f64;
    let mean = v.iter().sum::<f64>() / n;
    let variance = v.iter().map(|a| (a - mean).powi(2)).sum::<f64>() / n;
    let [low, high] = [f64::min, f64::max].map(|f| v.iter().copied().reduce(f).unwrap());
    [mean, variance.sqrt(), low, high]
}

/// Draws for a weight `[200, 50, 2, 2]`: 40 000 numbers with fan-in 200 and fan-out 800.
fn drawn(f: impl FnOnce(&Tensor)) -> [f64; 4] {
    manual_seed(11);
    let x = Tensor::zeros([200, 50, 2, 2]).requires_grad();
    f(&x);
    assert!(x.is_leaf());
    moments(&x)
}

/// Spread evenly between ± `bound`: never outside, nearly up to it, with the right spread. 40 000
/// draws know a standard deviation to half a percent.
#[track_caller]
fn even([mean, std, low, high]: [f64; 4], bound: f64) {
    let spread = bound / 3f64.sqrt();
    assert!(low >= -bound && high <= bound && high > 0.999 * bound && low < -0.999 * bound);
    assert!(mean.abs() < 0.02 * bound && (std / spread - 1.0).abs() < 0.02, "{mean} {std}");
}

#[track_caller]
fn normal([mean, std, low, high]: [f64; 4], expected: f64) {
    assert!(mean.abs() < 0.02 * expected && (std / expected - 1.0).abs() < 0.02, "{mean} {std}");
    assert!(low < -3.5 * expected && high > 3.5 * expected, "{low} {high}");
}

#[test]
fn distributions() {
    let _alone = seeded(0);
    even(drawn(|x| uniform_(x, -0.3, 0.3)), 0.3);
    normal(drawn(|x| normal_(x, 0.0, 0.4)), 0.4);
    let [mean, ..] = drawn(|x| normal_(x, 3.0, 0.4));
    assert!((mean - 3.0).abs() < 0.01);
    even(drawn(|x| xavier_uniform_(x, 1.0)), (6.0 / 1000f64).sqrt());
    even(drawn(|x| xavier_uniform_(x, 2.0)), 2.0 * (6.0 / 1000f64).sqrt());
    normal(drawn(|x| xavier_normal_(x, 1.0)), (2.0 / 1000f64).sqrt());
    even(drawn(|x| kaiming_uniform_(x, Fan::In, Nonlinearity::Relu)), (6.0 / 200f64).sqrt());
    even(drawn(|x| kaiming_uniform_(x, Fan::Out, Nonlinearity::Linear)), (3.0 / 800f64).sqrt());
    normal(drawn(|x| kaiming_normal_(x, Fan::Out, Nonlinearity::Relu)), (2.0 / 800f64).sqrt());
    normal(drawn(|x| kaiming_normal_(x, Fan::In, Nonlinearity::Selu)), 0.75 / 200f64.sqrt());
    let leaky = Nonlinearity::LeakyRelu(5f64.sqrt());
    even(drawn(|x| kaiming_uniform_(x, Fan::In, leaky)), 1.0 / 200f64.sqrt());
}

#[test]
fn truncated_normal() {
    let _alone = seeded(0);
    // A standard normal between −1 and 1: its standard deviation is √(1 − 2φ(1)/(2Φ(1) − 1)).
    let [mean, std, low, high] = drawn(|x| trunc_normal_(x, 0.0, 1.0, -1.0, 1.0));
    assert!(low >= -1.0 && high <= 1.0 && low < -0.999 && high > 0.999);
    assert!(mean.abs() < 0.01 && (std - 0.5396).abs() < 0.005, "{mean} {std}");
    // Far out, on one side: close to 2, and never below it.
    let [mean, _, low, _] = drawn(|x| trunc_normal_(x, 0.0, 1.0, 2.0, f64::INFINITY));
    assert!(low >= 2.0 && (mean - 2.3732).abs() < 0.01, "{low} {mean}");
}

#[test]
fn orthogonal() {
    let _alone = seeded(5);
    for (shape, gain) in [(vec![6, 4], 1.0), (vec![4, 6], 2.0), (vec![3, 2, 5], 1.0)] {
        let x = Tensor::zeros_with(shape, DType::F64);
        orthogonal_(&x, gain);
        let q = x.reshape([x.shape()[0], x.len() / x.shape()[0]]);
        let q = if q.shape()[0] < q.shape()[1] { q.t() } else { q };
        let difference = q.t().matmul(&q) / (gain * gain) - Tensor::eye(q.shape()[1]);
        assert!(difference.abs().max().item::<f64>() < 1e-12);
    }
}

#[test]
fn sparse_and_known() {
    let _alone = seeded(6);
    let x = Tensor::zeros([10, 4]);
    sparse_(&x, 0.25, 0.01);
    // A quarter of ten rows, rounded up.
    assert_eq!(x.eq(0.0).cast(DType::I64).sum_over(0).to_vec::<i64>(), [3; 4]);
    let x = Tensor::zeros([2, 3]);
    eye_(&x);
    assert_eq!(x.to_vec::<f32>(), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    constant_(&x, 2.5);
    assert_eq!(x.to_vec::<f32>(), [2.5; 6]);
    ones_(&x);
    assert_eq!(x.to_vec::<f32>(), [1.0; 6]);
    zeros_(&x);
    assert_eq!(x.to_vec::<f32>(), [0.0; 6]);
    // Two groups of two outputs, each with three inputs of its own: the first two of them.
    let x = Tensor::ones([4, 3, 3]);
    dirac_(&x, 2);
    let middle = x.select_at(2, 1).to_vec::<f32>();
    assert_eq!(middle, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(x.sum().item::<f32>(), 4.0);
}

/// What the layers start with: PyTorch's bounds.
#[test]
fn defaults_of_layers() {
    let _alone = seeded(7);
    let linear = Linear::new(100, 400);
    even(moments(&linear.weight), 0.1);
    let [_, _, low, high] = moments(linear.bias.as_ref().unwrap());
    assert!(low >= -0.1 && high <= 0.1 && high > 0.09);
    even(moments(&Conv2d::new(40, 100, 5).groups(2).weight), 1.0 / 500f64.sqrt());
    // PyTorch takes axis 1 of a transposed kernel for the inputs.
    even(moments(&ConvTranspose2d::new(40, 100, 5).weight), 1.0 / 2500f64.sqrt());
    even(moments(&Bilinear::new(64, 30, 20).weight), 0.125);
    normal(moments(&Embedding::new(200, 200).weight), 1.0);
    let padded = Embedding::new(5, 3).padding_idx(2);
    assert_eq!(padded.weight.select_at(0, 2).to_vec::<f32>(), [0.0; 3]);
    assert!(padded.weight.select_at(0, 1).ne(0.0).all().item::<bool>());
    let norm = BatchNorm1d::new(3);
    assert_eq!(moments(norm.weight.as_ref().unwrap()), [1.0, 0.0, 1.0, 1.0]);
    assert_eq!(moments(norm.running_var.as_ref().unwrap()), [1.0, 0.0, 1.0, 1.0]);
    assert_eq!(moments(norm.bias.as_ref().unwrap()), [0.0; 4]);
}
