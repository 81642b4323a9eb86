//! Reductions of the elements where a mask is true, as PyTorch's `torch.masked`. The mask
//! broadcasts to the tensor.
//!
//! Each fills the other elements with the neutral element (0 for a sum, −∞ for a maximum) and
//! reduces; so they get no gradient, and where a mask is all false, the result is the neutral
//! element.
//!
//! ```
//! use pullback::{Tensor, masked};
//! let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
//! let mask = Tensor::from([[true, false], [true, true]]);
//! assert_eq!(masked::sum(&x, &mask, 1).to_vec::<f64>(), [1.0, 7.0]);
//! assert_eq!(masked::mean(&x, &mask, 0).to_vec::<f64>(), [2.0, 4.0]);
//! ```

use crate::{DType, IntoAxes, Operand, Tensor, kinks};

/// The tensor where the mask is true, `unit` elsewhere.
#[track_caller]
fn filled(x: &Tensor, mask: &Tensor, unit: impl Operand) -> Tensor {
    let unit = unit.matching(x).cast(x.dtype());
    mask.ne(0).select(x, &unit)
}

/// The value below (or above) which the dtype has none.
fn lowest(x: &Tensor) -> crate::Scalar {
    match x.dtype() {
        DType::I32 => i32::MIN.into(),
        DType::I64 => i64::MIN.into(),
        DType::U8 | DType::Bool => 0.into(),
        DType::F64 | DType::F32 | DType::BF16 | DType::F16 => f64::NEG_INFINITY.into(),
    }
}

fn highest(x: &Tensor) -> crate::Scalar {
    match x.dtype() {
        DType::I32 => i32::MAX.into(),
        DType::I64 => i64::MAX.into(),
        DType::U8 => 255.into(),
        DType::Bool => 1.into(),
        DType::F64 | DType::F32 | DType::BF16 | DType::F16 => f64::INFINITY.into(),
    }
}

/// How many elements count, in the tensor's dtype.
#[track_caller]
fn number(x: &Tensor, mask: &Tensor, axes: &[isize]) -> Tensor {
    mask.ne(0).expand(x.shape()).cast(x.dtype()).sum_over(axes.to_vec())
}

/// The sum over some axes.
///
/// Derivative: `dy` where the mask is true, 0 elsewhere.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([1.0, 2.0, 4.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::sum(&x, &mask, 0).item::<f64>(), 5.0);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or an axis is out of range or named twice.
#[track_caller]
#[must_use]
pub fn sum(x: &Tensor, mask: &Tensor, axes: impl IntoAxes) -> Tensor {
    filled(x, mask, 0).sum_over(axes)
}

/// The product over some axes.
///
/// Derivative: of the product where the mask is true, 0 elsewhere.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([3.0, 2.0, 4.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::prod(&x, &mask, 0).item::<f64>(), 12.0);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or an axis is out of range or named twice.
#[track_caller]
#[must_use]
pub fn prod(x: &Tensor, mask: &Tensor, axes: impl IntoAxes) -> Tensor {
    filled(x, mask, 1).prod_over(axes)
}

/// The largest over some axes.
///
/// Derivative: `dy` shared evenly by those that equal it.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([3.0, 9.0, 4.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::max(&x, &mask, 0).item::<f64>(), 4.0);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or an axis is out of range, named twice or empty.
#[track_caller]
#[must_use]
pub fn max(x: &Tensor, mask: &Tensor, axes: impl IntoAxes) -> Tensor {
    filled(x, mask, lowest(x)).max_over(axes)
}

/// The smallest over some axes.
///
/// Derivative: `dy` shared evenly by those that equal it.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([3.0, 1.0, 4.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::min(&x, &mask, 0).item::<f64>(), 3.0);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or an axis is out of range, named twice or empty.
#[track_caller]
#[must_use]
pub fn min(x: &Tensor, mask: &Tensor, axes: impl IntoAxes) -> Tensor {
    filled(x, mask, highest(x)).min_over(axes)
}

/// The index of the first largest along an axis.
///
/// Derivative: none (an index).
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([3.0, 9.0, 4.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::argmax(&x, &mask, 0).item::<i64>(), 2);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or the axis is out of range or empty.
#[track_caller]
#[must_use]
pub fn argmax(x: &Tensor, mask: &Tensor, axis: isize) -> Tensor {
    filled(x, mask, lowest(x)).argmax(axis)
}

/// The index of the first smallest along an axis.
///
/// Derivative: none (an index).
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([3.0, 1.0, 4.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::argmin(&x, &mask, 0).item::<i64>(), 0);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or the axis is out of range or empty.
#[track_caller]
#[must_use]
pub fn argmin(x: &Tensor, mask: &Tensor, axis: isize) -> Tensor {
    filled(x, mask, highest(x)).argmin(axis)
}

/// The mean over some axes; NaN where nothing counts.
///
/// Derivative: `dy` / count where the mask is true, 0 elsewhere.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([3.0, 9.0, 4.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::mean(&x, &mask, 0).item::<f64>(), 3.5);
/// ```
///
/// # Panics
/// If the mask does not broadcast to the tensor, or an axis is out of range or named twice.
#[track_caller]
#[must_use]
pub fn mean(x: &Tensor, mask: &Tensor, axes: impl IntoAxes) -> Tensor {
    let (axes, wide) = (axes.list(), x.wide());
    let count = number(&wide, mask, &axes);
    (sum(&wide, mask, axes) / count).cast(x.reduced_dtype())
}

/// The median along an axis: the lower of two; NaN where nothing counts.
///
/// Derivative: `dy` to the median's place.
///
/// ```
/// use pullback::{Tensor, masked};
/// let x = Tensor::from([3.0, 9.0, 4.0, 5.0]);
/// let mask = Tensor::from([true, false, true, true]);
/// assert_eq!(masked::median(&x, &mask, 0).item::<f64>(), 4.0);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or the axis is out of range or empty.
#[track_caller]
#[must_use]
pub fn median(x: &Tensor, mask: &Tensor, axis: isize) -> Tensor {
    filled(&x.real(), mask, f64::NAN).nan_median(axis).0
}

/// The variance over some axes, divided by `count − correction`.
///
/// Derivative: `2·(x − mean)·dy / (count − correction)` where the mask is true, 0 elsewhere.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([1.0, 9.0, 3.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::var(&x, &mask, 0, 1.0).item::<f64>(), 2.0);
/// assert_eq!(masked::var(&x, &mask, 0, 0.0).item::<f64>(), 1.0);
/// ```
///
/// # Panics
/// If the mask does not broadcast to the tensor, or an axis is out of range or named twice.
#[track_caller]
#[must_use]
pub fn var(x: &Tensor, mask: &Tensor, axes: impl IntoAxes, correction: f64) -> Tensor {
    let (axes, wide) = (axes.list(), x.wide());
    let count = number(&wide, mask, &axes);
    let centre = wide.kept("var", &axes, mean(&wide, mask, axes.clone()));
    let square = (&wide - centre).square();
    (sum(&square, mask, axes) / (count - correction).clamp_min(0.0)).cast(x.reduced_dtype())
}

/// The standard deviation over some axes; its derivative at 0 is 0.
///
/// Derivative: of the root of [`var`].
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([1.0, 9.0, 5.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::std(&x, &mask, 0, 0.0).item::<f64>(), 2.0);
/// ```
///
/// # Panics
/// If the mask does not broadcast to the tensor, or an axis is out of range or named twice.
#[track_caller]
#[must_use]
pub fn std(x: &Tensor, mask: &Tensor, axes: impl IntoAxes, correction: f64) -> Tensor {
    let variance = var(&x.wide(), mask, axes, correction);
    variance.root_of_squares("std", kinks::KinkKind::Norm).cast(x.reduced_dtype())
}

/// The norm of order `p` over some axes.
///
/// Derivative: of [`Tensor::vector_norm`] where the mask is true, 0 elsewhere.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([3.0, 9.0, 4.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::norm(&x, &mask, 2.0, 0).item::<f64>(), 5.0);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or an axis is out of range or named twice.
#[track_caller]
#[must_use]
pub fn norm(x: &Tensor, mask: &Tensor, p: f64, axes: impl IntoAxes) -> Tensor {
    let unit = if p == f64::NEG_INFINITY { f64::INFINITY } else { 0.0 };
    filled(&x.real(), mask, unit).vector_norm(p, axes)
}

/// x divided by its norm of order `p` along an axis, or by `eps` where the norm is smaller; 0 where
/// the mask is false.
///
/// Derivative: of its formula.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([3.0, 9.0, 4.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::normalize(&x, &mask, 2.0, 0, 1e-12).to_vec::<f64>(), [0.6, 0.0, 0.8]);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or the axis is out of range.
#[track_caller]
#[must_use]
pub fn normalize(x: &Tensor, mask: &Tensor, p: f64, axis: isize, eps: f64) -> Tensor {
    let x = x.real();
    // As in `Tensor::normalize`.
    let norm = match p == 2.0 {
        true => kinks::uncounted_part(|| norm(&x, mask, p, axis)),
        false => norm(&x, mask, p, axis),
    };
    let norm = x.kept("normalize", &[axis], norm);
    filled(&x, mask, 0.0) / norm.clamp_min(eps)
}

/// log(sum(exp(x))) over some axes.
///
/// Derivative: `dy·exp(x − y)` where the mask is true, 0 elsewhere.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([0.0, 9.0, 0.0]), Tensor::from([true, false, true]));
/// assert!((masked::logsumexp(&x, &mask, 0).item::<f64>() - 2f64.ln()).abs() < 1e-15);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or an axis is out of range or named twice.
#[track_caller]
#[must_use]
pub fn logsumexp(x: &Tensor, mask: &Tensor, axes: impl IntoAxes) -> Tensor {
    filled(&x.real(), mask, f64::NEG_INFINITY).logsumexp_over(axes)
}

/// log(eᵃ + eᵇ), where an element that does not count is no summand.
///
/// Derivative: `dy·exp(a − y)` and `dy·exp(b − y)` where they count.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (a, b) = (Tensor::from([0.0, 1.0]), Tensor::from([0.0, 9.0]));
/// let y = masked::logaddexp(&a, &Tensor::from([true, true]), &b, &Tensor::from([true, false]));
/// assert_eq!(y.to_vec::<f64>(), [2f64.ln(), 1.0]);
/// ```
///
/// # Panics
/// If the shapes do not broadcast.
#[track_caller]
#[must_use]
pub fn logaddexp(a: &Tensor, a_mask: &Tensor, b: &Tensor, b_mask: &Tensor) -> Tensor {
    let none = f64::NEG_INFINITY;
    filled(&a.real(), a_mask, none).logaddexp(&filled(&b.real(), b_mask, none))
}

/// The softmax along an axis of what counts; 0 elsewhere.
///
/// Derivative: `y·(dy − Σ y·dy)`.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([0.0, 9.0, 0.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::softmax(&x, &mask, 0).to_vec::<f64>(), [0.5, 0.0, 0.5]);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or the axis is out of range.
#[track_caller]
#[must_use]
pub fn softmax(x: &Tensor, mask: &Tensor, axis: isize) -> Tensor {
    filled(&x.real(), mask, f64::NEG_INFINITY).softmax(axis)
}

/// The logarithm of the softmax along an axis of what counts; −∞ elsewhere.
///
/// Derivative: `dy − eʸ·Σ dy` where the mask is true, 0 elsewhere.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([5.0, 9.0]), Tensor::from([true, false]));
/// assert_eq!(masked::log_softmax(&x, &mask, 0).to_vec::<f64>(), [0.0, f64::NEG_INFINITY]);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or the axis is out of range.
#[track_caller]
#[must_use]
pub fn log_softmax(x: &Tensor, mask: &Tensor, axis: isize) -> Tensor {
    filled(&x.real(), mask, f64::NEG_INFINITY).log_softmax(axis)
}

/// The softmax of −x along an axis of what counts; 0 elsewhere.
///
/// Derivative: `−y·(dy − Σ y·dy)`.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([2.0, -9.0, 2.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::softmin(&x, &mask, 0).to_vec::<f64>(), [0.5, 0.0, 0.5]);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or the axis is out of range.
#[track_caller]
#[must_use]
pub fn softmin(x: &Tensor, mask: &Tensor, axis: isize) -> Tensor {
    (-filled(&x.real(), mask, f64::INFINITY)).softmax(axis)
}

/// Cumulative sums along an axis.
///
/// Derivative: the running sum of `dy` from the end, where the mask is true.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([1.0, 9.0, 2.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::cumsum(&x, &mask, 0).to_vec::<f64>(), [1.0, 1.0, 3.0]);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or the axis is out of range.
#[track_caller]
#[must_use]
pub fn cumsum(x: &Tensor, mask: &Tensor, axis: isize) -> Tensor {
    filled(x, mask, 0).cumsum(axis)
}

/// Cumulative products along an axis.
///
/// Derivative: of the products where the mask is true, 0 elsewhere.
///
/// ```
/// use pullback::{Tensor, masked};
/// let (x, mask) = (Tensor::from([2.0, 9.0, 3.0]), Tensor::from([true, false, true]));
/// assert_eq!(masked::cumprod(&x, &mask, 0).to_vec::<f64>(), [2.0, 2.0, 6.0]);
/// ```
///
/// # Panics
/// If the shapes do not broadcast, or the axis is out of range.
#[track_caller]
#[must_use]
pub fn cumprod(x: &Tensor, mask: &Tensor, axis: isize) -> Tensor {
    filled(x, mask, 1).cumprod(axis)
}
