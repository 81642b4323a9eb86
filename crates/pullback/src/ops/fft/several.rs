//! Transforms over several axes, and over two.

use super::{Norm, Signal, axis_of, complex, floats, hermitian, inverse_half, real, scaled};
#[cfg(doc)]
use super::{fft, hfft, ifft, ihfft, irfft, rfft};
use crate::{Error, Tensor};

#[track_caller]
fn wrong<T>(op: &'static str, x: &Tensor, message: String) -> T {
    x.checked(Err(Error::argument(op, message).on([x.spec()])))
}

/// The axes of a transform over several, and the requested lengths: the last ones if only lengths
/// are given, all if nothing is.
#[track_caller]
pub(super) fn axes_and_lengths(
    op: &'static str,
    x: &Tensor,
    pairs: bool,
    lengths: Option<&[isize]>,
    dims: Option<&[isize]>,
) -> Vec<(usize, Option<usize>)> {
    let rank = x.rank() - usize::from(pairs);
    let axes: Vec<usize> = match (dims, lengths) {
        (Some(dims), _) => {
            // No closure: it would lose the caller's line.
            let mut axes = Vec::with_capacity(dims.len());
            for &d in dims {
                axes.push(axis_of(op, x, d, pairs));
            }
            axes
        }
        (None, Some(s)) if s.len() <= rank => (rank - s.len()..rank).collect(),
        (None, Some(s)) => {
            return wrong(
                op,
                x,
                format!("{} lengths for the {rank} axes of {}", s.len(), x.spec()),
            );
        }
        (None, None) => (0..rank).collect(),
    };
    if lengths.is_some_and(|s| s.len() != axes.len()) {
        return wrong(op, x, format!("{lengths:?} are not as many lengths as axes {dims:?}"));
    }
    if (1..axes.len()).any(|i| axes[..i].contains(&axes[i])) {
        return wrong(op, x, format!("an axis is named twice in {dims:?}"));
    }
    let length = |i: usize| lengths.and_then(|s| usize::try_from(s[i]).ok());
    axes.iter().enumerate().map(|(i, &axis)| (axis, length(i))).collect()
}

#[track_caller]
fn over(
    op: &'static str,
    z: Tensor,
    axes: &[(usize, Option<usize>)],
    norm: Norm,
    inverse: bool,
) -> Tensor {
    let mut scale = 1.0;
    let mut z = floats(op, &z);
    for &(axis, n) in axes {
        let n = n.unwrap_or(z.shape()[axis]);
        z = complex(op, &z, axis, n, inverse);
        scale *= norm.scale(n, inverse);
    }
    scaled(z, scale)
}

#[track_caller]
fn many(
    op: &'static str,
    x: Signal,
    s: Option<&[isize]>,
    dims: Option<&[isize]>,
    norm: Norm,
    inverse: bool,
) -> Tensor {
    let z = x.pairs(op);
    let axes = axes_and_lengths(op, &z, true, s, dims);
    over(op, z, &axes, norm, inverse).unaliased_with(&[x.tensor()])
}

/// [`fft`] over several axes (all, if none are named), with a length for each; a negative one
/// leaves the axis as it is.
///
/// Derivative: linear; dx = the inverse transform of dy, not divided.
///
/// ```
/// use pullback::{Tensor, fft};
/// let x = Tensor::ones([2, 4]);
/// let y = fft::fftn(fft::Real(&x), None, None, fft::Norm::default());
/// assert_eq!(y.shape(), [2, 4, 2]);
/// assert_eq!(y.at((0, 0, 0)).item::<f32>(), 8.0);
/// ```
///
/// # Panics
/// If the dtype is `bf16` or `f16`, pairs do not have a last axis of length 2, or an axis is out of
/// range, named twice or empty.
#[track_caller]
#[must_use]
pub fn fftn<'a>(
    x: impl Into<Signal<'a>>,
    s: Option<&[isize]>,
    dims: Option<&[isize]>,
    norm: Norm,
) -> Tensor {
    many("fftn", x.into(), s, dims, norm, false)
}

/// [`ifft`] over several axes.
///
/// Derivative: linear; dy = the transform of dx, divided.
///
/// ```
/// use pullback::{Tensor, fft};
/// let x = Tensor::arange(0, 16).reshape([2, 4, 2]).cast(pullback::DType::F64);
/// let y = fft::fftn(&x, None, None, fft::Norm::default());
/// let z = fft::ifftn(&y, None, None, fft::Norm::default());
/// assert!((z - x).abs().max().item::<f64>() < 1e-14);
/// ```
///
/// # Panics
/// If the dtype is `bf16` or `f16`, pairs do not have a last axis of length 2, or an axis is out of
/// range, named twice or empty.
#[track_caller]
#[must_use]
pub fn ifftn<'a>(
    x: impl Into<Signal<'a>>,
    s: Option<&[isize]>,
    dims: Option<&[isize]>,
    norm: Norm,
) -> Tensor {
    many("ifftn", x.into(), s, dims, norm, true)
}

/// An axis and how long it is to be, if not as it is.
type Along = (usize, Option<usize>);

/// Splits the last of the axes off.
#[track_caller]
fn last<'a>(op: &'static str, x: &Tensor, axes: &'a [Along]) -> (&'a [Along], Along) {
    match axes.split_last() {
        Some((&last, others)) => (others, last),
        None => x.checked(Err(Error::argument(op, "takes at least one axis").on([x.spec()]))),
    }
}

/// [`rfft`] over the last of several axes, [`fft`] over the others.
///
/// Derivative: linear; that of its parts.
///
/// ```
/// use pullback::{Tensor, fft};
/// let y = fft::rfftn(&Tensor::ones([4, 6]), None, None, fft::Norm::default());
/// assert_eq!(y.shape(), [4, 4, 2]);
/// ```
///
/// # Panics
/// If the dtype is `bf16` or `f16`, or an axis is out of range, named twice or empty.
#[track_caller]
#[must_use]
pub fn rfftn(x: &Tensor, s: Option<&[isize]>, dims: Option<&[isize]>, norm: Norm) -> Tensor {
    let op = "rfftn";
    let axes = axes_and_lengths(op, x, false, s, dims);
    let (others, (axis, n)) = last(op, x, &axes);
    over(op, real(op, x, n, axis as isize, norm), others, norm, false)
}

/// [`irfft`] over the last of several axes, [`ifft`] over the others: the inverse of [`rfftn`].
///
/// Derivative: linear; that of its parts.
///
/// ```
/// use pullback::{Tensor, fft};
/// let x = Tensor::from([[1.0, 2.0], [3.0, 5.0]]);
/// let y = fft::rfftn(&x, None, None, fft::Norm::default());
/// assert_eq!(fft::irfftn(&y, None, None, fft::Norm::default()).to_vec::<f64>(), x.to_vec::<f64>());
/// ```
///
/// # Panics
/// If the dtype is `bf16` or `f16`, pairs do not have a last axis of length 2, or an axis is out of
/// range, named twice or empty.
#[track_caller]
#[must_use]
pub fn irfftn<'a>(
    x: impl Into<Signal<'a>>,
    s: Option<&[isize]>,
    dims: Option<&[isize]>,
    norm: Norm,
) -> Tensor {
    let op = "irfftn";
    let z = x.into().pairs(op);
    let axes = axes_and_lengths(op, &z, true, s, dims);
    let (others, (axis, n)) = last(op, &z, &axes);
    hermitian(op, &over(op, z, others, norm, true), n, axis as isize, norm, true)
}

/// [`hfft`] over the last of several axes, [`fft`] over the others.
///
/// Derivative: linear; that of its parts.
///
/// ```
/// use pullback::{Tensor, fft};
/// let x = Tensor::ones([2, 3]);
/// let y = fft::hfftn(fft::Real(&x), None, None, fft::Norm::default());
/// assert_eq!(y.shape(), [2, 4]);
/// assert_eq!(y.at((0, 0)).item::<f32>(), 8.0);
/// ```
///
/// # Panics
/// If the dtype is `bf16` or `f16`, pairs do not have a last axis of length 2, or an axis is out of
/// range, named twice or empty.
#[track_caller]
#[must_use]
pub fn hfftn<'a>(
    x: impl Into<Signal<'a>>,
    s: Option<&[isize]>,
    dims: Option<&[isize]>,
    norm: Norm,
) -> Tensor {
    let op = "hfftn";
    let z = x.into().pairs(op);
    let axes = axes_and_lengths(op, &z, true, s, dims);
    let (others, (axis, n)) = last(op, &z, &axes);
    hermitian(op, &over(op, z, others, norm, false), n, axis as isize, norm, false)
}

/// [`ihfft`] over the last of several axes, [`ifft`] over the others: the inverse of [`hfftn`].
///
/// Derivative: linear; that of its parts.
///
/// ```
/// use pullback::{Tensor, fft};
/// let y = fft::ihfftn(&Tensor::ones([2, 4]), None, None, fft::Norm::default());
/// assert_eq!(y.shape(), [2, 3, 2]);
/// assert_eq!(y.at((0, 0, 0)).item::<f32>(), 1.0);
/// ```
///
/// # Panics
/// If the dtype is `bf16` or `f16`, or an axis is out of range, named twice or empty.
#[track_caller]
#[must_use]
pub fn ihfftn(x: &Tensor, s: Option<&[isize]>, dims: Option<&[isize]>, norm: Norm) -> Tensor {
    let op = "ihfftn";
    let axes = axes_and_lengths(op, x, false, s, dims);
    let (others, (axis, n)) = last(op, x, &axes);
    over(op, inverse_half(op, x, n, axis as isize, norm), others, norm, true)
}

/// Functions over two axes, the last ones unless others are named: `fft2` is `fftn` over `dims`.
/// Each line of the table becomes a public function.
macro_rules! two {
    ($($(#[$doc:meta])* $name:ident $all:ident $signal:ty;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        #[must_use]
        pub fn $name<'a>(x: $signal, s: Option<[isize; 2]>, dims: [isize; 2], norm: Norm) -> Tensor {
            $all(x, s.as_ref().map(|s| &s[..]), Some(&dims), norm)
        }
    )*};
}

two! {
    /// [`fftn`] over two axes.
    ///
    /// Derivative: that of [`fftn`].
    ///
    /// ```
    /// use pullback::{Tensor, fft};
    /// let x = Tensor::ones([3, 2, 4]);
    /// let y = fft::fft2(fft::Real(&x), None, [-2, -1], fft::Norm::default());
    /// assert_eq!(y.shape(), [3, 2, 4, 2]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bf16` or `f16`, pairs do not have a last axis of length 2, or an axis is
    /// out of range, named twice or empty.
    fft2 fftn impl Into<Signal<'a>>;
    /// [`ifftn`] over two axes.
    ///
    /// Derivative: that of [`ifftn`].
    ///
    /// ```
    /// use pullback::{Tensor, fft};
    /// let x = Tensor::from([[[8.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]);
    /// let y = fft::ifft2(&x, None, [-2, -1], fft::Norm::default());
    /// assert_eq!(y.narrow(-1, 0, 1).to_vec::<f64>(), [2.0; 4]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bf16` or `f16`, pairs do not have a last axis of length 2, or an axis is
    /// out of range, named twice or empty.
    ifft2 ifftn impl Into<Signal<'a>>;
    /// [`rfftn`] over two axes.
    ///
    /// Derivative: that of [`rfftn`].
    ///
    /// ```
    /// use pullback::{Tensor, fft};
    /// let y = fft::rfft2(&Tensor::ones([3, 4, 6]), None, [-2, -1], fft::Norm::default());
    /// assert_eq!(y.shape(), [3, 4, 4, 2]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bf16` or `f16`, or an axis is out of range, named twice or empty.
    rfft2 rfftn &'a Tensor;
    /// [`irfftn`] over two axes.
    ///
    /// Derivative: that of [`irfftn`].
    ///
    /// ```
    /// use pullback::{Tensor, fft};
    /// let y = fft::rfft2(&Tensor::ones([4, 6]), None, [0, 1], fft::Norm::default());
    /// let x = fft::irfft2(&y, None, [0, 1], fft::Norm::default());
    /// assert_eq!(x.shape(), [4, 6]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bf16` or `f16`, pairs do not have a last axis of length 2, or an axis is
    /// out of range, named twice or empty.
    irfft2 irfftn impl Into<Signal<'a>>;
    /// [`hfftn`] over two axes.
    ///
    /// Derivative: that of [`hfftn`].
    ///
    /// ```
    /// use pullback::{Tensor, fft};
    /// let x = Tensor::ones([2, 3]);
    /// let y = fft::hfft2(fft::Real(&x), None, [0, 1], fft::Norm::default());
    /// assert_eq!(y.shape(), [2, 4]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bf16` or `f16`, pairs do not have a last axis of length 2, or an axis is
    /// out of range, named twice or empty.
    hfft2 hfftn impl Into<Signal<'a>>;
    /// [`ihfftn`] over two axes.
    ///
    /// Derivative: that of [`ihfftn`].
    ///
    /// ```
    /// use pullback::{Tensor, fft};
    /// let y = fft::ihfft2(&Tensor::ones([2, 4]), None, [0, 1], fft::Norm::default());
    /// assert_eq!(y.shape(), [2, 3, 2]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bf16` or `f16`, or an axis is out of range, named twice or empty.
    ihfft2 ihfftn &'a Tensor;
}
