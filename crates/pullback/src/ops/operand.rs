//! The right operand of a binary method: a tensor, or a Rust scalar that adopts the tensor's dtype.

use crate::apply::{apply, apply_last};
use crate::{DType, Error, Scalar, Tensor, fail, mode};
use half::{bf16, f16};
use pullback_ir::infer::args;
use pullback_ir::{Binary, Line, Op, Shape, Takes, View};
use std::borrow::Cow;

/// A tensor, or a Rust scalar that adopts the dtype of the tensor.
///
/// In operators a scalar of any of these types may be on the right: `&x * 2.0f32`. On the left it
/// is an `f64` or an `i64`, so that literals (`2.0 * &x`, `1 - &x`) need no suffix: Rust infers the
/// type of a literal only where one type fits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an operand of a tensor operation",
    label = "neither a tensor nor a number",
    note = "operands are `Tensor`, `&Tensor` and numbers: f64, f32, bf16, f16, i64, i32, u8, usize, bool, `Scalar`",
    note = "an array or a vector becomes a tensor by `Tensor::from`"
)]
pub trait Operand {
    /// The operand with `other`: a scalar gets its dtype and shape.
    ///
    /// ```
    /// use pullback::{Operand, Tensor};
    /// let x = Tensor::from([1.0f32, 2.0]);
    /// assert_eq!(0.5.matching(&x).to_vec::<f32>(), [0.5, 0.5]);
    /// ```
    ///
    /// # Panics
    /// If an integer does not fit the integer dtype of `other`.
    #[track_caller]
    fn matching(&self, other: &Tensor) -> Cow<'_, Tensor>;

    /// Whether some element may be NaN: unknown for a tensor, known for a scalar.
    #[doc(hidden)]
    fn may_be_nan(&self) -> bool {
        true
    }

    /// Whether it is a number, not a tensor.
    #[doc(hidden)]
    fn is_number(&self) -> bool {
        true
    }

    /// The value, if it is a number.
    #[doc(hidden)]
    fn number(&self) -> Option<f64> {
        None
    }
}

impl Operand for Tensor {
    fn matching(&self, _: &Tensor) -> Cow<'_, Tensor> {
        Cow::Borrowed(self)
    }

    fn may_be_nan(&self) -> bool {
        self.dtype().is_float()
    }

    fn is_number(&self) -> bool {
        false
    }
}

impl<T: Operand + ?Sized> Operand for &T {
    fn matching(&self, other: &Tensor) -> Cow<'_, Tensor> {
        (**self).matching(other)
    }

    fn may_be_nan(&self) -> bool {
        (**self).may_be_nan()
    }

    fn is_number(&self) -> bool {
        (**self).is_number()
    }

    fn number(&self) -> Option<f64> {
        (**self).number()
    }
}

macro_rules! scalar_operands {
    ($($type:ty)*) => {$(
        impl Operand for $type {
            fn matching(&self, other: &Tensor) -> Cow<'_, Tensor> {
                Cow::Owned(other.scalar_like(crate::HostElement::scalar(*self)))
            }

            fn may_be_nan(&self) -> bool {
                crate::HostElement::scalar(*self).as_f64().is_nan()
            }

            fn number(&self) -> Option<f64> {
                Some(crate::HostElement::scalar(*self).as_f64())
            }
        }
    )*};
}

scalar_operands!(f64 f32 bf16 f16 i64 i32 u8 bool);

impl Operand for usize {
    fn matching(&self, other: &Tensor) -> Cow<'_, Tensor> {
        let value = i64::try_from(*self).map_or(Scalar::from(*self as f64), Scalar::from);
        if matches!(value, Scalar::Float(_)) && !other.dtype().is_float() {
            other.does_not_fit(self, DType::I64);
        }
        Cow::Owned(other.scalar_like(value))
    }

    fn may_be_nan(&self) -> bool {
        false
    }
}

impl Operand for Scalar {
    fn matching(&self, other: &Tensor) -> Cow<'_, Tensor> {
        Cow::Owned(other.scalar_like(*self))
    }

    fn may_be_nan(&self) -> bool {
        self.as_f64().is_nan()
    }

    fn number(&self) -> Option<f64> {
        Some(self.as_f64())
    }
}

impl Tensor {
    /// A scalar in the dtype and shape of this tensor.
    #[track_caller]
    fn scalar_like(&self, value: Scalar) -> Tensor {
        let dtype = value.adopt(self.dtype());
        if let Scalar::Int(v) = value {
            let fits = match dtype {
                DType::U8 => u8::try_from(v).is_ok(),
                DType::I32 => i32::try_from(v).is_ok(),
                _ => true,
            };
            if !fits {
                self.does_not_fit(&v, dtype);
            }
        }
        Tensor::splat(value, self.spec().with_dtype(dtype))
    }

    #[track_caller]
    fn does_not_fit(&self, value: &dyn std::fmt::Display, dtype: DType) -> ! {
        let error = Error::argument("scalar", format!("{value} does not fit {dtype}"))
            .on([self.spec()])
            .hint("cast the tensor first");
        fail::raise(error.at(mode::user_line(Line::caller())))
    }

    /// Applies a binary op after promotion and broadcasting.
    #[track_caller]
    pub(crate) fn binary(&self, f: Binary, other: impl Operand) -> Tensor {
        let other = other.matching(self);
        if self.spec() == other.spec() && accepts(f, self.dtype()) {
            return apply(Op::Binary(f), &[self, &other]);
        }
        let (a, b) = pair(f.name(), self, &other, Some(f));
        apply(Op::Binary(f), &[&a, &b])
    }

    /// [`Tensor::binary`] of a tensor that is not used again.
    #[track_caller]
    fn into_binary(mut self, f: Binary, other: impl Operand) -> Tensor {
        let other = other.matching(&self);
        if self.spec() == other.spec() && accepts(f, self.dtype()) {
            let history = self.take_history();
            return apply_last(Op::Binary(f), &[&self, &other], history);
        }
        self.binary(f, &*other)
    }

    /// This tensor cast and expanded to `spec`, for writing over something of that spec.
    pub(crate) fn try_cast_and_expand(
        &self,
        op: &'static str,
        spec: &crate::Spec,
        at: Line,
    ) -> crate::Result<Tensor> {
        let fits = pullback_ir::broadcast_shapes(self.shape(), &spec.shape);
        if fits.as_ref() != Some(&spec.shape) {
            let message = format!("{} does not broadcast to {spec}", self.spec());
            return Err(crate::Error::shape(op, message).on([self.spec(), spec]).at(at));
        }
        Ok(mode::with_line(at, || self.cast(spec.dtype).expand_to(&spec.shape)))
    }

    /// Broadcast to a shape known to fit; the same handle if it has it already.
    #[track_caller]
    pub(crate) fn expand_to(&self, shape: &Shape) -> Tensor {
        if self.dims() == shape {
            return self.clone();
        }
        apply(Op::View(View::Broadcast(shape.clone())), &[self])
    }
}

/// Both operands in one dtype and one shape.
#[track_caller]
pub(crate) fn pair(
    op: &'static str,
    a: &Tensor,
    b: &Tensor,
    f: Option<Binary>,
) -> (Tensor, Tensor) {
    let dtype = a.dtype().promote(b.dtype());
    let dtype = match f {
        Some(f) if !accepts(f, dtype) => numeric(f, dtype),
        _ => dtype,
    };
    let at = mode::user_line(Line::caller());
    let shape = fail::or_raise(args::broadcast(op, a.spec(), b.spec()).map_err(|e| e.at(at)));
    (a.cast(dtype).expand_to(&shape), b.cast(dtype).expand_to(&shape))
}

/// Whether the op takes the dtype as it is.
fn accepts(f: Binary, dtype: DType) -> bool {
    match f.takes() {
        Takes::Floats => dtype.is_float(),
        Takes::Numbers => dtype != DType::Bool,
        Takes::Bits | Takes::Integers => true,
    }
}

/// What integers and booleans become where the op does not take them: true division of integers is
/// in `f32`, arithmetic on booleans in `i64`.
fn numeric(f: Binary, dtype: DType) -> DType {
    match f.takes() {
        Takes::Floats => DType::F32,
        Takes::Numbers => DType::I64,
        Takes::Bits | Takes::Integers => dtype,
    }
}

/// `a + b` and so on, for owned and borrowed tensors and scalars in any order.
macro_rules! operators {
    ($($trait:ident $method:ident $assign:ident $assign_method:ident $op:ident;)*) => {$(
        impl<T: Operand> std::ops::$trait<T> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: T) -> Tensor {
                self.binary(Binary::$op, other)
            }
        }
        impl<T: Operand> std::ops::$trait<T> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: T) -> Tensor {
                self.into_binary(Binary::$op, other)
            }
        }
        /// Gives the variable a new tensor; clones of the old one keep their values. (The methods
        /// whose names end in `_` write to the memory.)
        impl<T: Operand> std::ops::$assign<T> for Tensor {
            #[track_caller]
            fn $assign_method(&mut self, other: T) {
                *self = (&*self).binary(Binary::$op, other);
            }
        }
        // One float and one integer type, so that the compiler knows what `2.0` is in
        // `(2.0 - x).sqrt()`.
        scalar_first!($trait $method $op: f64 i64);
    )*};
}

macro_rules! scalar_first {
    ($trait:ident $method:ident $op:ident: $($scalar:ty)*) => {$(
        impl std::ops::$trait<&Tensor> for $scalar {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor {
                self.matching(other).binary(Binary::$op, other)
            }
        }
        impl std::ops::$trait<Tensor> for $scalar {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                self.matching(&other).binary(Binary::$op, &other)
            }
        }
    )*};
}

operators! {
    Add add AddAssign add_assign Add;
    Sub sub SubAssign sub_assign Sub;
    Mul mul MulAssign mul_assign Mul;
    Div div DivAssign div_assign Div;
    Rem rem RemAssign rem_assign Remainder;
}

impl std::ops::Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::neg(self)
    }
}

impl std::ops::Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::neg(&self)
    }
}
