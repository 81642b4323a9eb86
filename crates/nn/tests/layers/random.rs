//! Layers that draw: what they drop, and that their gradient is of what they dropped.

use crate::seeded;
use pullback::{Tensor, manual_seed};
use pullback_nn::*;

/// The fraction of zeros in what a layer makes of ones.
fn zeros(y: &Tensor) -> f64 {
    y.to_f64_vec().iter().filter(|&&v| v == 0.0).count() as f64 / y.len() as f64
}

#[test]
fn dropout_drops_elements_and_scales_the_rest() {
    let _alone = seeded(1);
    let layer = Dropout::new(0.3);
    let x = Tensor::ones_with([100, 100], pullback::DType::F64).requires_grad();
    let y = layer.forward(&x);
    // Four standard deviations of 10 000 draws.
    assert!((zeros(&y) - 0.3).abs() < 4.0 * (0.3 * 0.7 / 1e4f64).sqrt(), "{}", zeros(&y));
    assert!(y.to_vec::<f64>().iter().all(|&v| v == 0.0 || (v - 1.0 / 0.7).abs() < 1e-12));
    y.sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), y.to_vec::<f64>());
    assert_ne!(layer.forward(&x).to_vec::<f64>(), y.to_vec::<f64>());
}

#[test]
fn channel_dropout_drops_whole_channels() {
    let _alone = seeded(2);
    let x = Tensor::ones([20, 50, 3, 2]);
    let y = Dropout2d::new(0.5).forward(&x);
    assert!((zeros(&y) - 0.5).abs() < 4.0 * (0.25 / 1e3f64).sqrt(), "{}", zeros(&y));
    let sums = y.sum_over([2, 3]).to_vec::<f32>();
    assert!(sums.iter().all(|&s| s == 0.0 || s == 12.0), "{sums:?}");
    let y = Dropout1d::new(0.5).forward(&Tensor::ones([50, 3])).sum_over(1).to_vec::<f32>();
    assert!(y.iter().all(|&s| s == 0.0 || s == 6.0), "{y:?}");
    let y = Dropout3d::new(0.5).forward(&Tensor::ones([4, 50, 2, 2, 2]));
    let y = y.sum_over([2, 3, 4]).to_vec::<f32>();
    assert!(y.iter().all(|&s| s == 0.0 || s == 16.0), "{y:?}");
}

#[test]
fn alpha_dropout_keeps_mean_and_variance() {
    let _alone = seeded(3);
    let y = AlphaDropout::new(0.2).forward(&Tensor::randn([400, 400]));
    let (mean, variance) = (y.mean().item::<f32>(), y.square().mean().item::<f32>());
    assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
}

#[test]
fn rrelu_draws_slopes_between_its_bounds() {
    let _alone = seeded(4);
    let y = RRelu::new(0.1, 0.3).forward(&-Tensor::ones([1000]));
    let slopes: Vec<f64> = y.to_f64_vec().iter().map(|v| -v).collect();
    assert!(slopes.iter().all(|s| (0.1..=0.3).contains(s)));
    let mean = slopes.iter().sum::<f64>() / 1e3;
    assert!((mean - 0.2).abs() < 0.01, "{mean}");
}

#[test]
fn the_same_seed_makes_the_same_network() {
    let _alone = seeded(0);
    let made = |seed| {
        manual_seed(seed);
        let net = (Linear::new(4, 3), Conv2d::new(2, 2, 3), Embedding::new(3, 2));
        net.parameters().iter().flat_map(|p| p.to_vec::<f32>()).collect::<Vec<_>>()
    };
    assert_eq!(made(7), made(7));
    assert_ne!(made(7), made(8));
}
