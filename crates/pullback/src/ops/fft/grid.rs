//! The frequencies of a spectrum, and where they lie.

use super::Signal;
use super::several::axes_and_lengths;
#[cfg(doc)]
use super::{fft, rfft};
use crate::{DType, Error, Tensor, fail, mode};
use pullback_ir::Line;

#[track_caller]
fn counted(op: &'static str, n: usize, d: f64) {
    if n == 0 || d == 0.0 {
        let error = Error::argument(
            op,
            format!("there are no frequencies of {n} samples at a distance of {d}"),
        );
        fail::raise(error.at(mode::user_line(Line::caller())));
    }
}

/// The frequencies of the coefficients of [`fft`] for n samples a distance d apart: 0, 1, …, −2, −1
/// over n·d, as f32.
///
/// Derivative: none, it has no operand.
///
/// ```
/// use pullback::fft::fftfreq;
/// assert_eq!(fftfreq(4, 0.5).to_vec::<f32>(), [0.0, 0.5, -1.0, -0.5]);
/// ```
///
/// # Panics
/// If `n` or `d` is 0.
#[track_caller]
#[must_use]
pub fn fftfreq(n: usize, d: f64) -> Tensor {
    counted("fftfreq", n, d);
    let k = Tensor::arange(0, n as i64);
    let signed = k.lt(n.div_ceil(2) as i64).select(&k, &k - n as i64);
    (signed.cast(DType::F64) * (1.0 / (n as f64 * d))).cast(DType::F32)
}

/// The frequencies of the coefficients of [`rfft`]: 0, 1, …, n/2 over n·d, as f32.
///
/// Derivative: none, it has no operand.
///
/// ```
/// use pullback::fft::rfftfreq;
/// assert_eq!(rfftfreq(4, 0.5).to_vec::<f32>(), [0.0, 0.5, 1.0]);
/// ```
///
/// # Panics
/// If `n` or `d` is 0.
#[track_caller]
#[must_use]
pub fn rfftfreq(n: usize, d: f64) -> Tensor {
    counted("rfftfreq", n, d);
    (Tensor::arange(0, (n / 2 + 1) as i64).cast(DType::F64) * (1.0 / (n as f64 * d)))
        .cast(DType::F32)
}

#[track_caller]
fn rolled(op: &'static str, x: Signal, dims: Option<&[isize]>, by: fn(usize) -> isize) -> Tensor {
    let (x, pairs) = (x.tensor(), matches!(x, Signal::Pairs(_)));
    let axes = axes_and_lengths(op, x, pairs, None, dims);
    let mut y = x.clone();
    for (axis, _) in axes {
        y = y.roll(by(y.shape()[axis]), axis as isize);
    }
    y.unaliased_with(&[x])
}

/// The zero frequency moved from the front to the middle of some axes (all, if none are named).
///
/// Derivative: linear; [`ifftshift`].
///
/// ```
/// use pullback::{Tensor, fft};
/// let y = fft::fftshift(fft::Real(&Tensor::from([0.0, 1.0, -2.0, -1.0])), None);
/// assert_eq!(y.to_vec::<f64>(), [-2.0, -1.0, 0.0, 1.0]);
/// ```
///
/// # Panics
/// If an axis is out of range.
#[track_caller]
#[must_use]
pub fn fftshift<'a>(x: impl Into<Signal<'a>>, dims: Option<&[isize]>) -> Tensor {
    rolled("fftshift", x.into(), dims, |n| (n / 2) as isize)
}

/// The inverse of [`fftshift`].
///
/// Derivative: linear; [`fftshift`].
///
/// ```
/// use pullback::{Tensor, fft};
/// let y = fft::ifftshift(fft::Real(&Tensor::from([-2.0, -1.0, 0.0, 1.0])), None);
/// assert_eq!(y.to_vec::<f64>(), [0.0, 1.0, -2.0, -1.0]);
/// ```
///
/// # Panics
/// If an axis is out of range.
#[track_caller]
#[must_use]
pub fn ifftshift<'a>(x: impl Into<Signal<'a>>, dims: Option<&[isize]>) -> Tensor {
    rolled("ifftshift", x.into(), dims, |n| n.div_ceil(2) as isize)
}
