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
    ///
    /// # Panics
    /// If the operand does not broadcast to this tensor, or the write would make a gradient wrong
    /// (a leaf that requires gradients, say, outside `no_grad`).
    add_(other) => Op::Binary(Binary::Add);
    /// Subtracts in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]);
    /// x.sub_(1.0);
    /// assert_eq!(x.to_vec::<f64>(), [0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the operand does not broadcast to this tensor, or the write would make a gradient wrong
    /// (a leaf that requires gradients, say, outside `no_grad`).
    sub_(other) => Op::Binary(Binary::Sub);
    /// Multiplies in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]);
    /// x.mul_(&Tensor::from([3.0, 4.0]));
    /// assert_eq!(x.to_vec::<f64>(), [3.0, 8.0]);
    /// ```
    ///
    /// # Panics
    /// If the operand does not broadcast to this tensor, or the write would make a gradient wrong
    /// (a leaf that requires gradients, say, outside `no_grad`).
    mul_(other) => Op::Binary(Binary::Mul);
    /// Divides in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]);
    /// x.div_(4.0);
    /// assert_eq!(x.to_vec::<f64>(), [0.25, 0.5]);
    /// ```
    ///
    /// # Panics
    /// If the operand does not broadcast to this tensor, or the write would make a gradient wrong
    /// (a leaf that requires gradients, say, outside `no_grad`).
    div_(other) => Op::Binary(Binary::Div);
    /// The element-wise maximum, in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([-1.0, 2.0]);
    /// x.maximum_(0.0);
    /// assert_eq!(x.to_vec::<f64>(), [0.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the operand does not broadcast to this tensor, or the write would make a gradient wrong
    /// (a leaf that requires gradients, say, outside `no_grad`).
    maximum_(other) => Op::Binary(Binary::Maximum);
    /// The element-wise minimum, in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([-1.0, 2.0]);
    /// x.minimum_(0.0);
    /// assert_eq!(x.to_vec::<f64>(), [-1.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If the operand does not broadcast to this tensor, or the write would make a gradient wrong
    /// (a leaf that requires gradients, say, outside `no_grad`).
    minimum_(other) => Op::Binary(Binary::Minimum);
    /// Overwrites with the values of another tensor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::zeros([2, 2]);
    /// x.select_at(0, 1).copy_(&Tensor::from([5.0f32, 6.0]));
    /// assert_eq!(x.to_vec::<f32>(), [0.0, 0.0, 5.0, 6.0]);
    /// ```
    ///
    /// # Panics
    /// If the operand does not broadcast to this tensor, or the write would make a gradient wrong
    /// (a leaf that requires gradients, say, outside `no_grad`).
    copy_(source) => Op::Copy;
    /// `exp` in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([0.0, f64::NEG_INFINITY]);
    /// x.exp_();
    /// assert_eq!(x.to_vec::<f64>(), [1.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If the write would make a gradient wrong (of a leaf that requires gradients, say, outside
    /// `no_grad`).
    exp_() => Op::Unary(Unary::Exp);
    /// `tanh` in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([0.0, 100.0]);
    /// x.tanh_();
    /// assert_eq!(x.to_vec::<f64>(), [0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the write would make a gradient wrong (of a leaf that requires gradients, say, outside
    /// `no_grad`).
    tanh_() => Op::Unary(Unary::Tanh);
    /// `sigmoid` in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([0.0, 100.0]);
    /// x.sigmoid_();
    /// assert_eq!(x.to_vec::<f64>(), [0.5, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the write would make a gradient wrong (of a leaf that requires gradients, say, outside
    /// `no_grad`).
    sigmoid_() => Op::Unary(Unary::Sigmoid);
    /// `relu` in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([-2.0, 3.0]);
    /// x.relu_();
    /// assert_eq!(x.to_vec::<f64>(), [0.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the write would make a gradient wrong (of a leaf that requires gradients, say, outside
    /// `no_grad`).
    relu_() => Op::Unary(Unary::Relu);
    /// `sqrt` in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([4.0, 9.0]);
    /// x.sqrt_();
    /// assert_eq!(x.to_vec::<f64>(), [2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the write would make a gradient wrong (of a leaf that requires gradients, say, outside
    /// `no_grad`).
    sqrt_() => Op::Unary(Unary::Sqrt);
    /// `neg` in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, -2.0]);
    /// x.neg_();
    /// assert_eq!(x.to_vec::<f64>(), [-1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the write would make a gradient wrong (of a leaf that requires gradients, say, outside
    /// `no_grad`).
    neg_() => Op::Unary(Unary::Neg);
}

impl Tensor {
    /// Overwrites every element with one value.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]);
    /// x.fill_(7.0);
    /// assert_eq!(x.to_vec::<f64>(), [7.0, 7.0]);
    /// ```
    ///
    /// # Panics
    /// If the write would make a gradient wrong (of a leaf that requires gradients, say, outside
    /// `no_grad`).
    #[track_caller]
    pub fn fill_(&self, value: impl Into<Scalar>) -> Tensor {
        let value = self.new_splat(value.into(), &[], self.dtype());
        fail::or_raise(self.in_place("fill_", Op::Copy, &[&value], Line::caller()));
        self.clone()
    }

    /// Overwrites every element with zero.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]);
    /// x.zero_();
    /// assert_eq!(x.to_vec::<f64>(), [0.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If the write would make a gradient wrong (of a leaf that requires gradients, say, outside
    /// `no_grad`).
    #[track_caller]
    pub fn zero_(&self) -> Tensor {
        let value = self.new_splat(Scalar::Int(0), &[], self.dtype());
        fail::or_raise(self.in_place("zero_", Op::Copy, &[&value], Line::caller()));
        self.clone()
    }
}
