//! Making tensors on the device of another: methods make all their constants this way.

use crate::create::known_shape;
use crate::mode::Restore;
use crate::{DType, Device, HostElement, Integer, IntoShape, Scalar, Shape, Spec, Tensor, mode};

impl Tensor {
    /// Zeros of another shape, in the dtype and on the device of this tensor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]);
    /// assert_eq!(x.new_zeros([2, 3]).spec().to_string(), "f64[2,3]");
    /// ```
    ///
    /// # Panics
    /// If a length is negative, or the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn new_zeros(&self, shape: impl IntoShape) -> Tensor {
        self.new_zeros_with(shape, self.dtype())
    }

    /// Ones of another shape, in the dtype and on the device of this tensor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0f32, 2.0]);
    /// assert_eq!(x.new_ones(2).to_vec::<f32>(), [1.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If a length is negative, or the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn new_ones(&self, shape: impl IntoShape) -> Tensor {
        self.new_ones_with(shape, self.dtype())
    }

    /// A tensor filled with one value, in the dtype and on the device of this tensor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1, 2]);
    /// assert_eq!(x.new_full([3], 7).to_vec::<i32>(), [7, 7, 7]);
    /// ```
    ///
    /// # Panics
    /// If a length is negative, or the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn new_full(&self, shape: impl IntoShape, value: impl Into<Scalar>) -> Tensor {
        let shape = known_shape("new_full", shape);
        self.new_splat(value.into(), &shape, self.dtype()).deep_clone()
    }

    /// Values as [`Tensor::from`] takes them, on the device of this tensor. Their Rust type is the
    /// dtype.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0f32, 2.0]);
    /// let index = x.new_tensor([1i64, 0]);
    /// assert_eq!(x.index_select(0, &index).to_vec::<f32>(), [2.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// Where [`Tensor::from`] does.
    #[track_caller]
    #[must_use]
    pub fn new_tensor(&self, values: impl Into<Tensor>) -> Tensor {
        let _here = here(self);
        values.into()
    }

    /// The integers from `start` up to, not including, `end`, as `i64`, on the device of this
    /// tensor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0f32, 2.0]);
    /// assert_eq!(x.new_arange(2, 5).to_vec::<i64>(), [2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn new_arange(&self, start: impl Integer, end: impl Integer) -> Tensor {
        let _here = here(self);
        Tensor::arange(start, end)
    }

    /// [`Tensor::new_zeros`] in a dtype.
    ///
    /// ```
    /// use pullback::{DType, Tensor};
    /// let x = Tensor::from([1.0, 2.0]);
    /// assert_eq!(x.new_zeros_with([3], DType::I64).to_vec::<i64>(), [0, 0, 0]);
    /// ```
    ///
    /// # Panics
    /// If a length is negative, or the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn new_zeros_with(&self, shape: impl IntoShape, dtype: DType) -> Tensor {
        self.new_splat(Scalar::Int(0), &known_shape("new_zeros", shape), dtype).deep_clone()
    }

    /// [`Tensor::new_ones`] in a dtype.
    ///
    /// ```
    /// use pullback::{DType, Tensor};
    /// let x = Tensor::from([1.0, 2.0]);
    /// assert_eq!(x.new_ones_with([2], DType::Bool).to_vec::<bool>(), [true, true]);
    /// ```
    ///
    /// # Panics
    /// If a length is negative, or the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn new_ones_with(&self, shape: impl IntoShape, dtype: DType) -> Tensor {
        self.new_splat(Scalar::Int(1), &known_shape("new_ones", shape), dtype).deep_clone()
    }

    /// One value everywhere, in the dtype of its Rust type.
    #[track_caller]
    pub(crate) fn new_full_of<T: HostElement>(&self, shape: impl IntoShape, value: T) -> Tensor {
        let _here = here(self);
        Tensor::full(shape, value)
    }

    /// [`Tensor::from_vec`] on the device of this tensor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]);
    /// let y = x.new_from_vec([1i64, 2, 3, 4], [2, 2]);
    /// assert_eq!(y.spec().to_string(), "i64[2,2]");
    /// ```
    ///
    /// # Panics
    /// If the number of elements is not that of the shape.
    #[track_caller]
    #[must_use]
    pub fn new_from_vec<T: HostElement>(
        &self,
        values: impl AsRef<[T]>,
        shape: impl IntoShape,
    ) -> Tensor {
        let _here = here(self);
        Tensor::from_vec(values, shape)
    }

    /// One value seen at every index: one element of memory, so not to be written in place.
    #[track_caller]
    pub(crate) fn new_splat(&self, value: Scalar, shape: &[usize], dtype: DType) -> Tensor {
        Tensor::splat(value, Spec::on(self.device(), dtype, Shape::from_slice(shape)))
    }

    /// 0, 1, …, n − 1 as `i64`.
    #[track_caller]
    pub(crate) fn new_iota(&self, n: usize) -> Tensor {
        Tensor::iota_on(self.device(), n, DType::I64)
    }

    /// Ones on the diagonal of a matrix of zeros.
    #[track_caller]
    pub(crate) fn new_eye(&self, rows: usize, columns: usize, dtype: DType) -> Tensor {
        let _here = here(self);
        Tensor::eye_with(rows, columns, dtype)
    }
}

/// A number on the device of the first of these tensors, or on the default device.
#[track_caller]
pub(crate) fn number_on_device_of<T: HostElement>(all: &[Tensor], value: T) -> Tensor {
    let _here = all.first().map(here);
    Tensor::from_vec([value], ())
}

/// Until this is dropped, what is made without an operand is made on the device of a tensor. Unlike
/// a scope it calls no closure, so that the caller's line is kept.
fn here(x: &Tensor) -> Restore<Option<Device>> {
    Restore::set(&mode::DEFAULT_DEVICE, Some(x.device()))
}
