//! Random initialisations of given parameters.

use super::{demand, write};
use crate::refuse::refuse;
use pullback::{Device, Error, Tensor, next_key_on, with_default_device};
use std::f64::consts::SQRT_2;

/// Draws from the uniform distribution over `[low, high)`.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::init;
/// let x = Tensor::zeros([1000]);
/// init::uniform_(&x, -1.0, 3.0);
/// assert!(x.to_vec::<f32>().iter().all(|x| (-1.0..3.0).contains(x)));
/// assert!((x.mean().item::<f32>() - 1.0).abs() < 0.2);
/// ```
///
/// # Panics
/// If the tensor is not of floats, or the bounds are not finite and in order.
#[track_caller]
pub fn uniform_(tensor: &Tensor, low: f64, high: f64) {
    let key = next_key_on(tensor.device());
    write(tensor, || key.uniform(tensor.shape(), tensor.dtype(), low, high));
}

/// Draws from the normal distribution of this mean and standard deviation.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::init;
/// let x = Tensor::zeros([10_000]);
/// init::normal_(&x, 5.0, 0.1);
/// assert!((x.mean().item::<f32>() - 5.0).abs() < 0.01);
/// assert!((x.std().item::<f32>() - 0.1).abs() < 0.01);
/// ```
///
/// # Panics
/// If the tensor is not of floats, or `std` is negative or NaN.
#[track_caller]
pub fn normal_(tensor: &Tensor, mean: f64, std: f64) {
    let key = next_key_on(tensor.device());
    write(tensor, || key.normal(tensor.shape(), tensor.dtype(), mean, std));
}

/// Draws from the normal distribution of this mean and standard deviation, truncated to `[low,
/// high]`.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::init;
/// let x = Tensor::zeros([1000]);
/// init::trunc_normal_(&x, 0.0, 1.0, -2.0, 2.0);
/// assert!(x.to_vec::<f32>().iter().all(|x| x.abs() <= 2.0));
/// ```
///
/// # Panics
/// If `low` is not below `high`.
#[track_caller]
pub fn trunc_normal_(tensor: &Tensor, mean: f64, std: f64, low: f64, high: f64) {
    if low >= high || low.is_nan() || high.is_nan() {
        let message = format!("`low` must be below `high`, not {low} and {high}");
        refuse(Error::argument("trunc_normal_", message));
    }
    let key = next_key_on(tensor.device());
    // The inverse of the distribution's integral, of even draws between its values at the bounds.
    // In f64: where the tails are cut far out, f32 would have few values there.
    let erf = |x: f64| with_default_device(Device::Cpu, || Tensor::from(x).erf().item::<f64>());
    let at = |x: f64| erf((x - mean) / std / SQRT_2);
    let (from, to) = (at(low), at(high));
    write(tensor, || {
        let even = key.uniform(tensor.shape(), pullback::DType::F64, from, to);
        let drawn = even.erfinv() * (std * SQRT_2) + mean;
        drawn.clamp(low, high).cast(tensor.dtype())
    });
}

/// A matrix of normal draws of mean 0, of which a fraction `sparsity` (rounded up) in each column
/// is 0.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::init;
/// let x = Tensor::zeros([10, 5]);
/// init::sparse_(&x, 0.3, 0.01);
/// // 3 of 10 elements of each column.
/// assert_eq!(x.eq(0.0).sum_over(0).to_vec::<i64>(), [3; 5]);
/// ```
///
/// # Panics
/// If the tensor is not a matrix of floats, or `sparsity` is not between 0 and 1.
#[track_caller]
pub fn sparse_(tensor: &Tensor, sparsity: f64, std: f64) {
    demand(tensor.rank() == 2, "sparse_", tensor, "takes a matrix");
    if !(0.0..=1.0).contains(&sparsity) {
        let message = format!("the fraction must be between 0 and 1, not {sparsity}");
        refuse(Error::argument("sparse_", message));
    }
    let (values, order) = next_key_on(tensor.device()).split();
    let zeros = (sparsity * tensor.shape()[0] as f64).ceil();
    write(tensor, || {
        let drawn = values.normal(tensor.shape(), tensor.dtype(), 0.0, std);
        // The ranks of even draws in each column are a random order of its rows.
        let even = order.uniform(tensor.shape(), pullback::DType::F64, 0.0, 1.0);
        let ranks = even.argsort(0, false).argsort(0, false);
        drawn.masked_fill(&ranks.lt(zeros), 0.0)
    });
}
