//! Discrete Fourier transforms.
//!
//! A complex number is a pair (real part, imaginary part) on a last axis of length 2; `dim` does
//! not count that axis. Functions that take complex numbers take pairs as they are and real numbers
//! as [`Real`]. Operands are `f32` or `f64`.
//!
//! `n` is the length of the signal: it is cut, or filled up with zeros. [`Norm`] says which
//! direction is divided by what.
//!
//! ```
//! use pullback::Tensor;
//! use pullback::fft::{Norm, Real, fft, irfft, rfft};
//! let x = Tensor::from([1.0, 2.0, 3.0, 4.0]);
//! let half = rfft(&x, None, -1, Norm::Backward);
//! assert_eq!(half.to_vec::<f64>(), [10.0, 0.0, -2.0, 2.0, -2.0, 0.0]);
//! assert_eq!(fft(Real(&x), None, -1, Norm::Backward).shape(), [4, 2]);
//! assert_eq!(irfft(&half, Some(4), -1, Norm::Backward).to_vec::<f64>(), [1.0, 2.0, 3.0, 4.0]);
//! ```

mod grid;
mod several;

pub use grid::{fftfreq, fftshift, ifftshift, rfftfreq};
pub use several::{
    fft2, fftn, hfft2, hfftn, ifft2, ifftn, ihfft2, ihfftn, irfft2, irfftn, rfft2, rfftn,
};

use crate::apply::apply;
use crate::rule::Grad;
use crate::{DType, Error, Op, Tensor, cat, stack};
use pullback_ir::Fft;
use pullback_ir::infer::args;

/// All three are linear, and each other's transposes up to weights: in the half of a spectrum, a
/// coefficient represents itself and its conjugate, except the first and, of an even length, the
/// last.
#[rustfmt::skip]
pub(crate) fn row(f: Fft) -> Grad {
    match f {
        Fft::Complex { .. } => super::linear("`dx = F⁻¹·dy`, not scaled", |f, _, dy| {
            let &Op::Fft(Fft::Complex { axis, inverse }) = f.op else { unreachable!("called for Complex") };
            apply(Op::Fft(Fft::Complex { axis, inverse: !inverse }), &[dy])
        }),
        Fft::Real(_) => super::linear("the hermitian transform of `dy`, all but the ends halved", |f, i, dy| {
            let &Op::Fft(Fft::Real(axis)) = f.op else { unreachable!("called for Real") };
            let len = f.in_shape(i)[axis];
            let weighted = dy * weights(len, axis, dy, 0.5);
            apply(Op::Fft(Fft::Hermitian { axis, len }), &[&weighted])
        }),
        Fft::Hermitian { .. } => super::linear("the real transform of `dy`, all but the ends doubled", |f, _, dy| {
            let &Op::Fft(Fft::Hermitian { axis, len }) = f.op else { unreachable!("called for Hermitian") };
            let y = apply(Op::Fft(Fft::Real(axis)), &[dy]);
            &y * weights(len, axis, &y, 2.0)
        }),
    }
}

/// 1 at the coefficients that are their own conjugates, `inner` at the others, along an axis of
/// pairs.
fn weights(len: usize, axis: usize, pairs: &Tensor, inner: f64) -> Tensor {
    let half = len / 2 + 1;
    let weight = |k: usize| if k == 0 || 2 * k == len { 1.0 } else { inner };
    let mut shape = vec![1; pairs.rank()];
    shape[axis] = half;
    let list: Vec<f64> = (0..half).map(weight).collect();
    pairs.new_from_vec(list, shape).cast(pairs.dtype())
}

/// What a pair of transforms is divided by, and where: together always by n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Norm {
    /// The inverse by n.
    #[default]
    Backward,
    /// Both by √n.
    Ortho,
    /// The forward transform by n.
    Forward,
}

impl Norm {
    fn scale(self, n: usize, inverse: bool) -> f64 {
        match (self, inverse) {
            (Norm::Backward, false) | (Norm::Forward, true) => 1.0,
            (Norm::Backward, true) | (Norm::Forward, false) => 1.0 / n as f64,
            (Norm::Ortho, _) => 1.0 / (n as f64).sqrt(),
        }
    }
}

/// Real numbers where complex ones are expected.
#[derive(Clone, Copy, Debug)]
pub struct Real<'a>(pub &'a Tensor);

/// A signal: pairs, or real numbers.
#[derive(Clone, Copy, Debug)]
pub enum Signal<'a> {
    /// Complex numbers: pairs on the last axis.
    Pairs(&'a Tensor),
    /// Real numbers.
    Real(&'a Tensor),
}

impl<'a> From<&'a Tensor> for Signal<'a> {
    fn from(x: &'a Tensor) -> Signal<'a> {
        Signal::Pairs(x)
    }
}

impl<'a> From<Real<'a>> for Signal<'a> {
    fn from(Real(x): Real<'a>) -> Signal<'a> {
        Signal::Real(x)
    }
}

impl Signal<'_> {
    /// As pairs.
    #[track_caller]
    fn pairs(self, op: &'static str) -> Tensor {
        match self {
            Signal::Real(x) => stack(&[x, &x.zeros_like_splat()], -1),
            Signal::Pairs(x) => {
                if x.shape().last() != Some(&2) {
                    let message = format!(
                        "takes complex numbers, pairs on a last axis of 2, not {}",
                        x.spec()
                    );
                    let error = Error::shape(op, message).on([x.spec()]);
                    return x.checked(Err(error.hint("real numbers are given as `Real(&x)`")));
                }
                x.clone()
            }
        }
    }

    fn tensor(&self) -> &Tensor {
        match self {
            Signal::Pairs(x) | Signal::Real(x) => x,
        }
    }
}

/// Complex conjugates.
fn conj(z: &Tensor) -> Tensor {
    z * z.new_tensor([1.0, -1.0]).cast(z.dtype())
}

#[track_caller]
fn floats(op: &'static str, x: &Tensor) -> Tensor {
    let x = x.real().up();
    if !matches!(x.dtype(), DType::F32 | DType::F64) {
        let message = format!("takes f32 or f64, not {}", x.spec());
        return x.checked(Err(Error::dtype(op, message).on([x.spec()]).hint("cast to f32 first")));
    }
    x
}

/// The axis that `dim` names, among all but the last `pairs` axes.
#[track_caller]
fn axis_of(op: &'static str, x: &Tensor, dim: isize, pairs: bool) -> usize {
    let spec = x.spec().with_shape(&x.shape()[..x.rank() - usize::from(pairs)]);
    if spec.shape.is_empty() {
        let message = format!("takes at least one axis, not {}", x.spec());
        return x.checked(Err(Error::shape(op, message).on([x.spec()])));
    }
    x.checked(args::axis(op, dim, &spec))
}

/// Cut, or filled up with zeros, to `n` along an axis.
#[track_caller]
fn sized(op: &'static str, x: &Tensor, axis: usize, n: usize) -> Tensor {
    let len = x.shape()[axis];
    if n == 0 {
        let message =
            format!("a signal has at least one value: axis {axis} of {} at length {n}", x.spec());
        return x.checked(Err(Error::argument(op, message).on([x.spec()])));
    }
    match len.cmp(&n) {
        std::cmp::Ordering::Equal => x.clone(),
        std::cmp::Ordering::Greater => x.narrow(axis as isize, 0, n),
        std::cmp::Ordering::Less => {
            let mut padding = vec![(0, 0); x.rank()];
            padding[axis].1 = n - len;
            x.pad(&padding)
        }
    }
}

fn scaled(x: Tensor, by: f64) -> Tensor {
    if by == 1.0 { x } else { x * by }
}

/// One axis of pairs; not scaled.
#[track_caller]
fn complex(op: &'static str, z: &Tensor, axis: usize, n: usize, inverse: bool) -> Tensor {
    let z = sized(op, &floats(op, z), axis, n);
    apply(Op::Fft(Fft::Complex { axis, inverse }), &[&z])
}

#[track_caller]
fn one(
    op: &'static str,
    x: Signal,
    n: Option<usize>,
    dim: isize,
    norm: Norm,
    inverse: bool,
) -> Tensor {
    if let Signal::Real(x) = x {
        let x = floats(op, x);
        let axis = axis_of(op, &x, dim, false);
        let n = n.unwrap_or(x.shape()[axis]);
        let half = half(op, &x, axis, n);
        let half = if inverse { conj(&half) } else { half };
        return scaled(whole(&half, axis, n), norm.scale(n, inverse));
    }
    let z = x.pairs(op);
    let axis = axis_of(op, &z, dim, true);
    let n = n.unwrap_or(z.shape()[axis]);
    scaled(complex(op, &z, axis, n, inverse), norm.scale(n, inverse))
}

/// The first n/2 + 1 coefficients of real numbers; not scaled.
#[track_caller]
fn half(op: &'static str, x: &Tensor, axis: usize, n: usize) -> Tensor {
    apply(Op::Fft(Fft::Real(axis)), &[&sized(op, x, axis, n)])
}

/// All n coefficients from the first n/2 + 1: the others are conjugates, backwards.
fn whole(half: &Tensor, axis: usize, n: usize) -> Tensor {
    let along = axis as isize;
    let rest = n - half.shape()[axis];
    if rest == 0 {
        return half.clone();
    }
    let mirror = conj(&half.narrow(along, 1, rest).flip(along));
    cat(&[half, &mirror], along)
}

/// The discrete Fourier transform along an axis, yₖ = Σⱼ xⱼ·e^(−2πijk/n), as pairs.
///
/// Derivative: linear; dx = the inverse transform of dy, not divided by n.
///
/// ```
/// use pullback::{Tensor, fft};
/// let x = Tensor::from([1.0, 0.0, 0.0, 0.0]);
/// let y = fft::fft(fft::Real(&x), None, -1, fft::Norm::default());
/// // Pairs: the real and the imaginary part of each coefficient.
/// assert_eq!(y.to_vec::<f64>(), [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
/// ```
///
/// # Panics
/// If the dtype is `bf16` or `f16`, pairs do not have a last axis of length 2, or the axis is out
/// of range or empty.
#[track_caller]
#[must_use]
pub fn fft<'a>(x: impl Into<Signal<'a>>, n: Option<usize>, dim: isize, norm: Norm) -> Tensor {
    one("fft", x.into(), n, dim, norm, false)
}

/// The inverse transform along an axis, xⱼ = (1/n)·Σₖ yₖ·e^(2πijk/n), as pairs.
///
/// Derivative: linear; dy = (1/n) · the transform of dx.
///
/// ```
/// use pullback::{Tensor, fft};
/// let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
/// let y = fft::fft(&x, None, -1, fft::Norm::default());
/// assert_eq!(fft::ifft(&y, None, -1, fft::Norm::default()).to_vec::<f64>(), x.to_vec::<f64>());
/// ```
///
/// # Panics
/// If the dtype is `bf16` or `f16`, pairs do not have a last axis of length 2, or the axis is out
/// of range or empty.
#[track_caller]
#[must_use]
pub fn ifft<'a>(x: impl Into<Signal<'a>>, n: Option<usize>, dim: isize, norm: Norm) -> Tensor {
    one("ifft", x.into(), n, dim, norm, true)
}

/// The first n/2 + 1 coefficients of the transform of real numbers, as pairs; the others are their
/// conjugates.
///
/// Derivative: linear; dx = Re Σₖ dyₖ·e^(2πijk/n) over the coefficients given.
///
/// ```
/// use pullback::{Tensor, fft};
/// let y = fft::rfft(&Tensor::from([1.0, 2.0, 3.0, 4.0]), None, -1, fft::Norm::default());
/// assert_eq!(y.to_vec::<f64>(), [10.0, 0.0, -2.0, 2.0, -2.0, 0.0]);
/// ```
///
/// # Panics
/// If the dtype is `bf16` or `f16`, or the axis is out of range or empty.
#[track_caller]
#[must_use]
pub fn rfft(x: &Tensor, n: Option<usize>, dim: isize, norm: Norm) -> Tensor {
    real("rfft", x, n, dim, norm)
}

#[track_caller]
fn real(op: &'static str, x: &Tensor, n: Option<usize>, dim: isize, norm: Norm) -> Tensor {
    let x = floats(op, x);
    let axis = axis_of(op, &x, dim, false);
    let n = n.unwrap_or(x.shape()[axis]);
    scaled(half(op, &x, axis, n), norm.scale(n, false))
}

/// The n real numbers (by default 2·(m − 1)) whose transform starts with these m coefficients: the
/// inverse of [`rfft`]. Imaginary parts of the first and, for an even n, of the last coefficient
/// are ignored.
///
/// Derivative: linear; dy = the transform of dx / n, all but the ends doubled.
///
/// ```
/// use pullback::{Tensor, fft};
/// let y = Tensor::from([[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]);
/// let x = fft::irfft(&y, None, -1, fft::Norm::default());
/// assert_eq!(x.to_vec::<f64>(), [1.0, 2.0, 3.0, 4.0]);
/// ```
///
/// # Panics
/// If the dtype is `bf16` or `f16`, pairs do not have a last axis of length 2, or the axis is out
/// of range or empty.
#[track_caller]
#[must_use]
pub fn irfft<'a>(x: impl Into<Signal<'a>>, n: Option<usize>, dim: isize, norm: Norm) -> Tensor {
    hermitian("irfft", &x.into().pairs("irfft"), n, dim, norm, true)
}

#[track_caller]
fn hermitian(
    op: &'static str,
    z: &Tensor,
    n: Option<usize>,
    dim: isize,
    norm: Norm,
    inverse: bool,
) -> Tensor {
    let z = floats(op, z);
    let axis = axis_of(op, &z, dim, true);
    let n = n.unwrap_or_else(|| 2 * z.shape()[axis].saturating_sub(1));
    if n == 0 {
        let message = format!(
            "the output length must be at least 1, but axis {axis} of {} gives 0",
            z.spec()
        );
        return z.checked(Err(Error::argument(op, message).on([z.spec()])));
    }
    let z = sized(op, &z, axis, n / 2 + 1);
    let z = if inverse { z } else { conj(&z) };
    let y = apply(Op::Fft(Fft::Hermitian { axis, len: n }), &[&z]);
    scaled(y, norm.scale(n, inverse))
}

/// The (real) transform of a signal with conjugate symmetry, given by its first m values; n
/// numbers, by default 2·(m − 1).
///
/// Derivative: linear; that of [`irfft`] of the conjugate, times n.
///
/// ```
/// use pullback::{Tensor, fft};
/// let x = Tensor::from([1.0, 2.0, 3.0]);
/// // The signal 1, 2, 3, 2.
/// let y = fft::hfft(fft::Real(&x), None, -1, fft::Norm::default());
/// assert_eq!(y.to_vec::<f64>(), [8.0, -2.0, 0.0, -2.0]);
/// ```
///
/// # Panics
/// If the dtype is `bf16` or `f16`, pairs do not have a last axis of length 2, or the axis is out
/// of range or empty.
#[track_caller]
#[must_use]
pub fn hfft<'a>(x: impl Into<Signal<'a>>, n: Option<usize>, dim: isize, norm: Norm) -> Tensor {
    hermitian("hfft", &x.into().pairs("hfft"), n, dim, norm, false)
}

/// The first n/2 + 1 values, as pairs, of the signal whose transform is real: the inverse of
/// [`hfft`].
///
/// Derivative: linear; that of the conjugate of [`rfft`], divided by n.
///
/// ```
/// use pullback::{Tensor, fft};
/// let y = Tensor::from([8.0, -2.0, 0.0, -2.0]);
/// let x = fft::ihfft(&y, None, -1, fft::Norm::default());
/// assert_eq!(x.narrow(-1, 0, 1).to_vec::<f64>(), [1.0, 2.0, 3.0]);
/// ```
///
/// # Panics
/// If the dtype is `bf16` or `f16`, or the axis is out of range or empty.
#[track_caller]
#[must_use]
pub fn ihfft(x: &Tensor, n: Option<usize>, dim: isize, norm: Norm) -> Tensor {
    inverse_half("ihfft", x, n, dim, norm)
}

#[track_caller]
fn inverse_half(op: &'static str, x: &Tensor, n: Option<usize>, dim: isize, norm: Norm) -> Tensor {
    let x = floats(op, x);
    let axis = axis_of(op, &x, dim, false);
    let n = n.unwrap_or(x.shape()[axis]);
    scaled(conj(&half(op, &x, axis, n)), norm.scale(n, true))
}
