//! The memory that the code of a [`CustomOp`](crate::CustomOp) reads and writes.

use crate::backend::{elements, elements_mut};
use crate::{DType, Error, HostElement, Result, Spec};
use pullback_ir::Bytes;

/// An operand of a [`CustomOp`](crate::CustomOp): dense values in host memory.
pub struct HostInput<'a>(pub(super) Bytes<'a>);

/// A result of a [`CustomOp`](crate::CustomOp), to be filled: dense host memory.
pub struct HostOutput<'a> {
    pub(super) spec: &'a Spec,
    pub(super) bytes: &'a mut [u8],
}

fn wrong_type<T: HostElement>(spec: &Spec) -> Error {
    Error::dtype("", format!("the elements of {spec} are not {}", T::DTYPE))
}

impl<'a> HostInput<'a> {
    /// Its spec: shape, dtype and device.
    ///
    /// ```
    /// # use pullback::{Tensor, custom_op};
    #[doc = include_str!("example_code.txt")]
    /// fn forward(inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    ///     assert_eq!(inputs[0].spec().to_string(), "f64[1,3]");
    ///     outputs[0].as_mut_slice::<f64>()?.copy_from_slice(inputs[0].as_slice()?);
    ///     Ok(())
    /// }
    /// let y = custom_op(Code(forward)).one(&[&Tensor::from([[1.0, 2.0, 3.0]])]);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 3.0]);
    /// ```
    pub fn spec(&self) -> &'a Spec {
        self.0.spec
    }

    /// Its shape: the length of each axis.
    ///
    /// ```
    /// # use pullback::{Tensor, custom_op};
    #[doc = include_str!("example_code.txt")]
    /// fn forward(inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    ///     assert_eq!(inputs[0].shape(), [1, 3]);
    ///     outputs[0].as_mut_slice::<f64>()?.copy_from_slice(inputs[0].as_slice()?);
    ///     Ok(())
    /// }
    /// let y = custom_op(Code(forward)).one(&[&Tensor::from([[1.0, 2.0, 3.0]])]);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 3.0]);
    /// ```
    pub fn shape(&self) -> &'a [usize] {
        &self.0.spec.shape
    }

    /// The dtype of its elements.
    ///
    /// ```
    /// # use pullback::{DType, Tensor, custom_op};
    #[doc = include_str!("example_code.txt")]
    /// fn forward(inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    ///     assert_eq!(inputs[0].dtype(), DType::F64);
    ///     outputs[0].as_mut_slice::<f64>()?.copy_from_slice(inputs[0].as_slice()?);
    ///     Ok(())
    /// }
    /// let y = custom_op(Code(forward)).one(&[&Tensor::from([[1.0, 2.0, 3.0]])]);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 3.0]);
    /// ```
    pub fn dtype(&self) -> DType {
        self.0.spec.dtype
    }

    /// The elements, in row-major order.
    ///
    /// ```
    /// # use pullback::{Tensor, custom_op};
    #[doc = include_str!("example_code.txt")]
    /// fn forward(inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    ///     assert!(inputs[0].as_slice::<f32>().is_err()); // they are f64
    ///     let x: &[f64] = inputs[0].as_slice()?;
    ///     outputs[0].as_mut_slice()?.copy_from_slice(x);
    ///     Ok(())
    /// }
    /// let y = custom_op(Code(forward)).one(&[&Tensor::from([[1.0, 2.0, 3.0]])]);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 3.0]);
    /// ```
    ///
    /// # Errors
    /// If they are of another type.
    pub fn as_slice<T: HostElement>(&self) -> Result<&'a [T]> {
        elements(self.0.spec.dtype, self.0.bytes).ok_or_else(|| wrong_type::<T>(self.0.spec))
    }
}

impl HostOutput<'_> {
    /// Its spec: shape, dtype and device.
    ///
    /// ```
    /// # use pullback::{Tensor, custom_op};
    #[doc = include_str!("example_code.txt")]
    /// fn forward(inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    ///     assert_eq!(outputs[0].spec(), inputs[0].spec());
    ///     outputs[0].as_mut_slice::<f64>()?.copy_from_slice(inputs[0].as_slice()?);
    ///     Ok(())
    /// }
    /// let y = custom_op(Code(forward)).one(&[&Tensor::from([[1.0, 2.0, 3.0]])]);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 3.0]);
    /// ```
    pub fn spec(&self) -> &Spec {
        self.spec
    }

    /// Its shape: the length of each axis.
    ///
    /// ```
    /// # use pullback::{Tensor, custom_op};
    #[doc = include_str!("example_code.txt")]
    /// fn forward(inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    ///     assert_eq!(outputs[0].shape(), [1, 3]);
    ///     outputs[0].as_mut_slice::<f64>()?.copy_from_slice(inputs[0].as_slice()?);
    ///     Ok(())
    /// }
    /// let y = custom_op(Code(forward)).one(&[&Tensor::from([[1.0, 2.0, 3.0]])]);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 3.0]);
    /// ```
    pub fn shape(&self) -> &[usize] {
        &self.spec.shape
    }

    /// The dtype of its elements.
    ///
    /// ```
    /// # use pullback::{DType, Tensor, custom_op};
    #[doc = include_str!("example_code.txt")]
    /// fn forward(inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    ///     assert_eq!(outputs[0].dtype(), DType::F64);
    ///     outputs[0].as_mut_slice::<f64>()?.copy_from_slice(inputs[0].as_slice()?);
    ///     Ok(())
    /// }
    /// let y = custom_op(Code(forward)).one(&[&Tensor::from([[1.0, 2.0, 3.0]])]);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 3.0]);
    /// ```
    pub fn dtype(&self) -> DType {
        self.spec.dtype
    }

    /// The elements to be written, in row-major order; zeros at first.
    ///
    /// ```
    /// # use pullback::{Tensor, custom_op};
    #[doc = include_str!("example_code.txt")]
    /// fn forward(inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    ///     let y = outputs[0].as_mut_slice::<f64>()?;
    ///     assert_eq!(y, [0.0, 0.0, 0.0]);
    ///     y.copy_from_slice(inputs[0].as_slice()?);
    ///     Ok(())
    /// }
    /// let y = custom_op(Code(forward)).one(&[&Tensor::from([[1.0, 2.0, 3.0]])]);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 3.0]);
    /// ```
    ///
    /// # Errors
    /// If they are of another type.
    pub fn as_mut_slice<T: HostElement>(&mut self) -> Result<&mut [T]> {
        let spec = self.spec;
        elements_mut(spec.dtype, self.bytes).ok_or_else(|| wrong_type::<T>(spec))
    }
}
