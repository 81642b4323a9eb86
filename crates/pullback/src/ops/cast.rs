//! Changing the element type.

use crate::apply::apply;
use crate::{DType, Error, Op, Tensor, autocast, fail, mode};
use pullback_ir::Line;

/// That the floats among these operands have one dtype. Products, layers and losses require it:
/// computing in the wider of two would silently cost twice the memory, and one `f64` would spread
/// through a network of `f32`. Pointwise operations promote. Inside autocast, `f32` and the 16-bit
/// dtypes may be mixed: its table says what is cast.
#[track_caller]
pub(crate) fn one_float<'a, I>(op: &'static str, operands: I)
where
    I: IntoIterator<Item = &'a Tensor>,
    I::IntoIter: Clone,
{
    let operands = operands.into_iter();
    let casting = autocast::state().dtype().is_some();
    let kind = |x: &Tensor| match x.dtype() {
        DType::BF16 | DType::F16 if casting => DType::F32,
        dtype => dtype,
    };
    let mut floats = operands.clone().filter(|x| x.dtype().is_float());
    let Some(first) = floats.next() else { return };
    let Some(other) = floats.find(|x| kind(x) != kind(first)) else { return };
    let message = format!("{} and {} are floats of different dtypes", first.spec(), other.spec());
    let hint = format!(
        "cast one of them, `x.cast(DType::{:?})`, or a whole module with `to_dtype`",
        other.dtype()
    );
    let error = Error::dtype(op, message).on(operands.map(Tensor::spec)).hint(hint);
    fail::raise(error.at(mode::user_line(Line::caller())));
}

impl Tensor {
    /// The nearest values in another dtype; the same tensor if it has it already. Floats become
    /// integers by dropping the fraction, and `bool` by being non-zero.
    ///
    /// A view where the tensor has the dtype already: the tensor itself.
    /// Derivative: `dy` in the old dtype; none between integers.
    /// PyTorch's name: `to`.
    ///
    /// ```
    /// # use pullback::{DType, Tensor};
    /// assert_eq!(Tensor::from([1.7, -1.7]).cast(DType::I64).to_vec::<i64>(), [1, -1]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[doc(alias = "to")]
    #[doc(alias = "astype")]
    #[track_caller]
    #[must_use]
    #[doc(alias = "float")]
    #[doc(alias = "double")]
    #[doc(alias = "long")]
    #[doc(alias = "type")]
    pub fn cast(&self, dtype: DType) -> Tensor {
        match self.dtype() == dtype {
            true => self.clone(),
            false => apply(Op::Cast(dtype), &[self]),
        }
    }

    /// The same values in new, contiguous memory, still part of the graph.
    ///
    /// Derivative: `dy`.
    /// PyTorch's name: `clone`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]);
    /// let y = x.deep_clone();
    /// y.mul_(10.0);
    /// assert_eq!((x.to_vec::<f64>(), y.to_vec::<f64>()), (vec![1.0, 2.0], vec![10.0, 20.0]));
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[doc(alias = "clone")]
    #[track_caller]
    #[must_use]
    pub fn deep_clone(&self) -> Tensor {
        apply(Op::Copy, &[self])
    }

    /// This tensor if it is contiguous (row-major order), otherwise a contiguous copy.
    ///
    /// A view where the tensor is contiguous already: the tensor itself.
    /// Derivative: `dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1, 2], [3, 4]]).t();
    /// let y = x.contiguous();
    /// assert!(!x.is_contiguous() && y.is_contiguous());
    /// assert_eq!(y.to_vec::<i32>(), [1, 3, 2, 4]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn contiguous(&self) -> Tensor {
        match self.is_contiguous() {
            true => self.clone(),
            false => self.deep_clone(),
        }
    }
}
