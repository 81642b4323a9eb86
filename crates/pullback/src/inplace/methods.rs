//! The operations in place, by name.

use crate::{Operand, Scalar, Tensor, fail};
use pullback_ir::{Binary, Line, Op, Unary};

/// Operations in place: `x.add_(&y)`. The right operand broadcasts to `x` and is cast to its dtype.
///
/// All of these panic with an error message where the write would make a gradient wrong: see
/// `docs/conventions.md`.
macro_rules! in_place {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),*) => $op:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self $(, $arg: impl Operand)*) -> Tensor {
                $(let $arg = $arg.matching(self);)*
                fail::or_raise(self.in_place(stringify!($name), $op, &[$(&$arg),*], Line::caller()));
                self.clone()
            }
        )*}
    };
}

in_place! {
    /// Adds in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]);
    /// x.add_(1.0).mul_(&Tensor::from([2.0, 3.0]));
    /// assert_eq!(x.to_vec::<f64>(), [4.0, 9.0]);
    /// ```
    add_(other) => Op::Binary(Binary::Add);
    /// Subtracts in place.
    sub_(other) => Op::Binary(Binary::Sub);
    /// Multiplies in place.
    mul_(other) => Op::Binary(Binary::Mul);
    /// Divides in place.
    div_(other) => Op::Binary(Binary::Div);
    /// The larger of each pair, in place.
    maximum_(other) => Op::Binary(Binary::Maximum);
    /// The smaller of each pair, in place.
    minimum_(other) => Op::Binary(Binary::Minimum);
    /// Overwrites with the values of another tensor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::zeros([2, 2]);
    /// x.select_at(0, 1).copy_(&Tensor::from([5.0f32, 6.0]));
    /// assert_eq!(x.to_vec::<f32>(), [0.0, 0.0, 5.0, 6.0]);
    /// ```
    copy_(source) => Op::Copy;
    /// `exp` in place.
    exp_() => Op::Unary(Unary::Exp);
    /// `tanh` in place.
    tanh_() => Op::Unary(Unary::Tanh);
    /// `sigmoid` in place.
    sigmoid_() => Op::Unary(Unary::Sigmoid);
    /// `relu` in place.
    relu_() => Op::Unary(Unary::Relu);
    /// `sqrt` in place.
    sqrt_() => Op::Unary(Unary::Sqrt);
    /// `neg` in place.
    neg_() => Op::Unary(Unary::Neg);
}

impl Tensor {
    /// Overwrites every element with one value.
    #[track_caller]
    pub fn fill_(&self, value: impl Into<Scalar>) -> Tensor {
        let value = self.new_splat(value.into(), &[], self.dtype());
        fail::or_raise(self.in_place("fill_", Op::Copy, &[&value], Line::caller()));
        self.clone()
    }

    /// Overwrites every element with zero.
    #[track_caller]
    pub fn zero_(&self) -> Tensor {
        let value = self.new_splat(Scalar::Int(0), &[], self.dtype());
        fail::or_raise(self.in_place("zero_", Op::Copy, &[&value], Line::caller()));
        self.clone()
    }
}
