//! Making tensors: from Rust values, and by formula.
//!
//! What is made without an operand is on the default device; from a tensor, on its device
//! (`create/new_like.rs`).

mod new_like;

pub(crate) use new_like::number_on_device_of;

use crate::apply::apply;
use crate::backend::{Asked, HostElement, Memory};
use crate::{
    DType, Device, Error, Scalar, Shape, Spec, Tensor, default_device, default_dtype, fail, mode,
    trace,
};
use half::{bf16, f16};
use pullback_ir::{Few, Line, Op};

/// What can be given as a shape: `[2, 3]`, `&[usize]`, `Vec<usize>`, a single length, `[]` for one
/// number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a shape",
    label = "not a shape",
    note = "a shape is a list of integers, such as `[2, 3]`, `&[usize]` or `Vec<usize>`, or one length"
)]
pub trait IntoShape {
    /// The lengths; `-1` where the caller allows it.
    ///
    /// ```
    /// use pullback::IntoShape;
    /// assert_eq!(IntoShape::lengths([2, -1]).to_vec(), [2, -1]);
    /// assert_eq!(IntoShape::lengths(5).to_vec(), [5]);
    /// ```
    ///
    /// # Panics
    /// Never.
    fn lengths(self) -> Few<isize>;
}

/// The nearest number that an axis or a length can be: `usize::MAX` is out of range, not -1.
pub(crate) fn saturated(n: i128) -> isize {
    n.clamp(isize::MIN as i128, isize::MAX as i128) as isize
}

/// What can be given as axes: `1`, `-1`, `[0, 1]`, `&[isize]`, `Vec<isize>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name axes",
    label = "not axes",
    note = "axes are one integer, such as `1` or `-1`, or a list of them, such as `[0, 1]`"
)]
pub trait IntoAxes {
    /// The axes; negative ones count from the end.
    ///
    /// ```
    /// use pullback::IntoAxes;
    /// assert_eq!(IntoAxes::list([0, -1]), [0, -1]);
    /// assert_eq!(IntoAxes::list(1), [1]);
    /// ```
    ///
    /// # Panics
    /// Never.
    fn list(self) -> Vec<isize>;
}

macro_rules! lists {
    ($([$($generic:tt)*] $list:ty)*) => {$(
        impl<$($generic)*> IntoShape for $list {
            fn lengths(self) -> Few<isize> {
                self.iter().map(|&n| saturated(n as i128)).collect()
            }
        }
        impl<$($generic)*> IntoAxes for $list {
            fn list(self) -> Vec<isize> {
                self.iter().map(|&n| saturated(n as i128)).collect()
            }
        }
    )*};
}

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl IntoShape for $int {
            fn lengths(self) -> Few<isize> {
                Few::from_elem(saturated(self as i128), 1)
            }
        }
        impl IntoAxes for $int {
            fn list(self) -> Vec<isize> {
                vec![saturated(self as i128)]
            }
        }
        impl Integer for $int {
            fn nearest_i64(self) -> i64 {
                (self as i128).clamp(i64::MIN as i128, i64::MAX as i128) as i64
            }
        }
        lists!([] &[$int] [] Vec<$int>);
    )*};
}

integers!(usize isize i32 i64);

// Arrays of every length hold `usize`, and all but empty ones the others: so `[]` is known to hold
// `usize`, and the literals of `[2, 3]` are `i32`, as everywhere.
lists!([const N: usize] [usize; N]);

macro_rules! arrays {
    ($($n:literal)*) => {$(
        lists!([] [isize; $n]);
        lists!([] [i32; $n]);
        lists!([] [i64; $n]);
    )*};
}

arrays!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);

/// Borrowed: `&[2, 3]`, `&list`.
impl<T: IntoShape + Clone> IntoShape for &T {
    fn lengths(self) -> Few<isize> {
        self.clone().lengths()
    }
}

/// Borrowed: `&[0, 1]`, `&list`.
impl<T: IntoAxes + Clone> IntoAxes for &T {
    fn list(self) -> Vec<isize> {
        self.clone().list()
    }
}

/// An integer type: `usize`, `isize`, `i32` or `i64`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an integer type",
    label = "not `usize`, `isize`, `i32` or `i64`",
    note = "a range of floats is `Tensor::arange_by(start, end, step)` or `Tensor::linspace(start, end, count)`"
)]
pub trait Integer: Copy {
    /// Its value, or the nearest that an `i64` can hold.
    ///
    /// ```
    /// use pullback::Integer;
    /// assert_eq!((5usize.nearest_i64(), usize::MAX.nearest_i64()), (5, i64::MAX));
    /// ```
    ///
    /// # Panics
    /// Never.
    fn nearest_i64(self) -> i64;
}

impl IntoShape for () {
    fn lengths(self) -> Few<isize> {
        Few::new()
    }
}

/// Refuses values that do not fill a tensor.
fn check_count(values: usize, spec: &Spec, at: Line) {
    if values != spec.len() {
        let message = format!("{values} values do not fill {spec}, which has {}", spec.len());
        fail::raise(Error::shape("from_vec", message).at(at));
    }
}

/// A shape without `-1`.
#[track_caller]
pub(crate) fn known_shape(op: &'static str, shape: impl IntoShape) -> Shape {
    let lengths = shape.lengths();
    let size = lengths.iter().try_fold(1isize, |p, &n| p.checked_mul(n.max(1)));
    if lengths.iter().any(|&n| n < 0) || size.is_none_or(|n| n > isize::MAX / 8) {
        let error = Error::argument(op, format!("{:?} is not a shape", &lengths[..]));
        fail::raise(error.at(mode::user_line(Line::caller())));
    }
    lengths.iter().map(|&n| n as usize).collect()
}

impl Tensor {
    /// A tensor of this shape from its elements in row-major order.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2]);
    /// assert_eq!(x.spec().to_string(), "f32[2,2]");
    /// ```
    ///
    /// # Panics
    /// If the number of elements is not that of the shape.
    #[track_caller]
    #[must_use]
    pub fn from_vec<T: HostElement>(values: impl AsRef<[T]>, shape: impl IntoShape) -> Tensor {
        let values = values.as_ref();
        let at = mode::user_line(Line::caller());
        let spec = Spec::on(default_device(), T::DTYPE, known_shape("from_vec", shape));
        check_count(values.len(), &spec, at);
        if let ([value], true) = (values, trace::active()) {
            // One number is part of a program's text.
            return Tensor::splat(value.scalar(), spec);
        }
        let memory = Memory::upload(values, spec.device, Asked::by("from_vec", at));
        let memory = fail::or_raise(memory.map_err(|e| e.at(at)));
        let made = Tensor::dense(spec, memory);
        trace::note_constant(&made);
        made
    }

    /// One value seen at every index: one element of memory, so not to be written in place.
    #[track_caller]
    pub(crate) fn splat(value: Scalar, spec: Spec) -> Tensor {
        // A literal holds the value as its dtype can: 0.5 as an integer is 0.
        let value = match (value, spec.dtype.is_float(), spec.dtype == DType::Bool) {
            (value, true, _) => Scalar::from(value.as_f64()),
            (value, _, true) => Scalar::from(value.as_f64() != 0.0),
            (value, _, _) => Scalar::from(value.as_i64()),
        };
        let one = value.as_f64() == 1.0;
        let made = apply(Op::literal(value, spec), &[]);
        if one {
            made.0.storage.note_ones();
        }
        made
    }

    /// Zeros of a spec, one element of memory.
    #[track_caller]
    pub(crate) fn zeros_of(spec: &Spec) -> Tensor {
        Tensor::splat(Scalar::Int(0), spec.clone())
    }

    /// One value at every index of a tensor that does not say where it is: on the default device.
    #[track_caller]
    fn splat_here(value: Scalar, shape: Shape, dtype: DType) -> Tensor {
        Tensor::splat(value, Spec::on(default_device(), dtype, shape))
    }

    #[track_caller]
    pub(crate) fn zeros_like_splat(&self) -> Tensor {
        Tensor::splat(Scalar::Int(0), self.spec().clone())
    }

    #[track_caller]
    pub(crate) fn ones_like_splat(&self) -> Tensor {
        Tensor::splat(Scalar::Int(1), self.spec().clone())
    }

    /// A tensor filled with one value, whose Rust type is the dtype.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::full([2], 0.5f32).to_vec::<f32>(), [0.5, 0.5]);
    /// ```
    ///
    /// # Panics
    /// If a length is negative, or the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn full<T: HostElement>(shape: impl IntoShape, value: T) -> Tensor {
        Tensor::splat_here(value.scalar(), known_shape("full", shape), T::DTYPE).deep_clone()
    }

    /// Zeros of the [default dtype](crate::default_dtype), `f32` unless said otherwise.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([2]).to_vec::<f32>(), [0.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If a length is negative, or the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn zeros(shape: impl IntoShape) -> Tensor {
        Tensor::zeros_with(shape, default_dtype())
    }

    /// Zeros of a dtype.
    ///
    /// ```
    /// use pullback::{DType, Tensor};
    /// assert_eq!(Tensor::zeros_with([2], DType::I64).to_vec::<i64>(), [0, 0]);
    /// ```
    ///
    /// # Panics
    /// If a length is negative, or the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn zeros_with(shape: impl IntoShape, dtype: DType) -> Tensor {
        Tensor::splat_here(Scalar::Int(0), known_shape("zeros", shape), dtype).deep_clone()
    }

    /// Ones of the [default dtype](crate::default_dtype), `f32` unless said otherwise.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::ones([2]).to_vec::<f32>(), [1.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If a length is negative, or the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn ones(shape: impl IntoShape) -> Tensor {
        Tensor::ones_with(shape, default_dtype())
    }

    /// Ones of a dtype.
    ///
    /// ```
    /// use pullback::{DType, Tensor};
    /// assert_eq!(Tensor::ones_with([2], DType::F64).to_vec::<f64>(), [1.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If a length is negative, or the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn ones_with(shape: impl IntoShape, dtype: DType) -> Tensor {
        Tensor::splat_here(Scalar::Int(1), known_shape("ones", shape), dtype).deep_clone()
    }

    /// Zeros of the same shape, dtype and device.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 2.0]).zeros_like().to_vec::<f64>(), [0.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn zeros_like(&self) -> Tensor {
        self.zeros_like_splat().deep_clone()
    }

    /// Ones of the same shape, dtype and device.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([3, 4]).ones_like().to_vec::<i32>(), [1, 1]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn ones_like(&self) -> Tensor {
        self.ones_like_splat().deep_clone()
    }

    /// A tensor of the same shape, dtype and device, filled with one value.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 2.0]).full_like(0.5).to_vec::<f64>(), [0.5, 0.5]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype. The value is converted as by [`Tensor::cast`].
    #[track_caller]
    #[must_use]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Tensor {
        Tensor::splat(value.into(), self.spec().clone()).deep_clone()
    }

    /// 0, 1, …, n − 1 on a device.
    #[track_caller]
    pub(crate) fn iota_on(device: Device, n: usize, dtype: DType) -> Tensor {
        apply(Op::Iota { len: n, dtype, device }, &[])
    }

    /// The integers from `start` up to, not including, `end`, as `i64`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::arange(2, 5).to_vec::<i64>(), [2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn arange(start: impl Integer, end: impl Integer) -> Tensor {
        let (start, end) = (start.nearest_i64(), end.nearest_i64());
        let count = known_shape("arange", end.saturating_sub(start).max(0))[0];
        let counted = Tensor::iota_on(default_device(), count, DType::I64);
        if start == 0 { counted } else { counted + start }
    }

    /// `start`, `start + step`, … up to, not including, `end`; the dtype follows the Rust type.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::arange_by(1.0, 2.0, 0.25).to_vec::<f64>(), [1.0, 1.25, 1.5, 1.75]);
    /// ```
    ///
    /// # Panics
    /// If the step is zero, or the count is not finite.
    #[doc(alias = "arange")]
    #[track_caller]
    #[must_use]
    pub fn arange_by<T: HostElement>(start: T, end: T, step: T) -> Tensor {
        let [a, b, s] = [start, end, step].map(HostElement::scalar);
        let Some(count) = steps_between(a, b, s).filter(|_| T::DTYPE != DType::Bool) else {
            let [a, b, s] = [a, b, s].map(Scalar::as_f64);
            let error =
                Error::argument("arange", format!("there is no range from {a} to {b} by {s}"));
            fail::raise(error.at(mode::user_line(Line::caller())));
        };
        let len = known_shape("arange", count)[0];
        let steps = Tensor::iota_on(default_device(), len, T::DTYPE);
        steps * step.scalar() + start.scalar()
    }

    /// `count` values from `start` to `end`, both included, evenly spaced; the dtype follows the
    /// Rust type.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::linspace(0.0, 1.0, 5).to_vec::<f64>(), [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn linspace<T: HostElement>(start: T, end: T, count: usize) -> Tensor {
        let (a, b) = (start.scalar().as_f64(), end.scalar().as_f64());
        let count = known_shape("linspace", count)[0];
        let gaps = count.saturating_sub(1).max(1) as f64;
        let i = Tensor::iota_on(default_device(), count, DType::F64);
        // From both ends, so that the last value is exactly `end`.
        let low = &i * ((b - a) / gaps) + a;
        let high = (i.clone() - gaps) * ((b - a) / gaps) + b;
        i.lt(gaps / 2.0).select(&low, &high).cast(T::DTYPE)
    }

    /// The identity matrix, of the [default dtype](crate::default_dtype).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::eye(2).to_vec::<f32>(), [1.0, 0.0, 0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn eye(n: usize) -> Tensor {
        Tensor::eye_with(n, n, default_dtype())
    }

    /// Ones on the diagonal of a matrix of zeros.
    ///
    /// ```
    /// use pullback::{DType, Tensor};
    /// let x = Tensor::eye_with(2, 3, DType::I64);
    /// assert_eq!(x.to_vec::<i64>(), [1, 0, 0, 0, 1, 0]);
    /// ```
    ///
    /// # Panics
    /// If the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn eye_with(rows: usize, columns: usize, dtype: DType) -> Tensor {
        known_shape("eye", [rows, columns]);
        let count = |n: usize| Tensor::iota_on(default_device(), n, DType::I64);
        let (down, across) = (count(rows), count(columns));
        down.unsqueeze(1).eq(across).cast(dtype)
    }
}

/// How many steps lie in `a..b`, counted exactly where they are integers; none if the step has the
/// wrong sign.
fn steps_between(a: Scalar, b: Scalar, step: Scalar) -> Option<usize> {
    if let (Scalar::Int(a), Scalar::Int(b), Scalar::Int(step)) = (a, b, step) {
        let (way, step) = (i128::from(b) - i128::from(a), i128::from(step));
        if step == 0 {
            return None;
        }
        let (way, step) = if step < 0 { (-way, -step) } else { (way, step) };
        return usize::try_from((way.max(0) + step - 1) / step).ok();
    }
    let count = ((b.as_f64() - a.as_f64()) / step.as_f64()).ceil();
    count.is_finite().then_some(count.max(0.0) as usize)
}

/// Scalars, vectors, slices and nested arrays. Data keeps its type: `Tensor::from([1.0])` is `f64`,
/// as a plain number is in Rust, and `Tensor::from([1.0f32])` is `f32`; nothing is rounded on the
/// way. What is made without data ([`Tensor::zeros`], layers) has the [default
/// dtype](crate::default_dtype), `f32`. The two add up in `f64`, but a product, a layer or a loss
/// refuses them: `cast` one.
///
/// ```
/// # use pullback::{DType, Tensor};
/// let x = Tensor::from([[1.0, 2.0]]);
/// assert_eq!(x.dtype(), DType::F64);
/// assert_eq!(x.cast(DType::F32).matmul(&Tensor::ones([2, 1])).item::<f32>(), 3.0);
/// ```
macro_rules! from_values {
    ($($type:ty)*) => {$(
        impl From<$type> for Tensor {
            #[track_caller]
            fn from(value: $type) -> Tensor {
                Tensor::from_vec([value], ())
            }
        }
        impl From<Vec<$type>> for Tensor {
            #[track_caller]
            fn from(values: Vec<$type>) -> Tensor {
                let n = values.len();
                Tensor::from_vec(values, [n])
            }
        }
        impl From<&[$type]> for Tensor {
            #[track_caller]
            fn from(values: &[$type]) -> Tensor {
                Tensor::from_vec(values, [values.len()])
            }
        }
        impl From<Vec<Vec<$type>>> for Tensor {
            /// Rows of one length.
            #[track_caller]
            fn from(rows: Vec<Vec<$type>>) -> Tensor {
                let columns = rows.first().map_or(0, Vec::len);
                if let Some(i) = rows.iter().position(|row| row.len() != columns) {
                    let n = rows[i].len();
                    let message = format!("row 0 has {columns} elements, but row {i} has {n}");
                    let error = Error::shape("from", message);
                    fail::raise(error.at(mode::user_line(Line::caller())));
                }
                Tensor::from_vec(rows.concat(), [rows.len(), columns])
            }
        }
        impl<const N: usize> From<Vec<[$type; N]>> for Tensor {
            #[track_caller]
            fn from(rows: Vec<[$type; N]>) -> Tensor {
                Tensor::from(&rows[..])
            }
        }
        impl<const N: usize> From<&[[$type; N]]> for Tensor {
            #[track_caller]
            fn from(rows: &[[$type; N]]) -> Tensor {
                Tensor::from_vec(rows.as_flattened(), [rows.len(), N])
            }
        }
        impl<const N: usize> From<[$type; N]> for Tensor {
            #[track_caller]
            fn from(values: [$type; N]) -> Tensor {
                Tensor::from_vec(values, [N])
            }
        }
        impl<const M: usize, const N: usize> From<[[$type; N]; M]> for Tensor {
            #[track_caller]
            fn from(values: [[$type; N]; M]) -> Tensor {
                Tensor::from_vec(values.as_flattened(), [M, N])
            }
        }
        impl<const L: usize, const M: usize, const N: usize> From<[[[$type; N]; M]; L]> for Tensor {
            #[track_caller]
            fn from(values: [[[$type; N]; M]; L]) -> Tensor {
                Tensor::from_vec(values.as_flattened().as_flattened(), [L, M, N])
            }
        }
    )*};
}

from_values!(f64 f32 bf16 f16 i64 i32 u8 bool);

impl From<&Tensor> for Tensor {
    #[track_caller]
    fn from(tensor: &Tensor) -> Tensor {
        tensor.clone()
    }
}
