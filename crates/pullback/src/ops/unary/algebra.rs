//! Signs, roundings, squares, roots and reciprocals.

use super::Row;
use crate::Tensor;
use crate::ops::linear;
use crate::rule::{Grad, slopes};

#[rustfmt::skip]
rows! {
    //       policy  need        kink                              derivative
    Neg      Promote Exact       []                                linear("`-dy`", |_, _, dy| -dy);
    Abs      Promote Sign        [Abs zero]                        slopes!(X => |x| x.sign());
    Sign     Promote Exact       [Jump zero]                       Grad::Zero;
    Floor    Promote Exact       [Jump integer]                    Grad::Zero;
    Ceil     Promote Exact       [Jump integer]                    Grad::Zero;
    Round    Promote Exact       [Jump half]                       Grad::Zero;
    Trunc    Promote Exact       [Jump integer_but_zero]           Grad::Zero;
    Not      Promote Exact       []                                Grad::Zero;
    Square   F32     MaxRelative []                                slopes!(X => |x| x * 2.0);
    Sqrt     Promote Relative    [Sqrt zero]                       slopes!(Y => |y| 0.5 / y), vjp |y, dy| dy * 0.5 / y;
    Rsqrt    F32     MaxRelative [Infinite zero]                   slopes!(Y => |y| y.square() * y * -0.5), vjp |y, dy| dy * y * y * y * -0.5;
    Recip    F32     MaxRelative [Infinite zero]                   slopes!(Y => |y| -y.square()), vjp |y, dy| -(dy * y) * y;
    // By promise.
    Stop     Promote Exact       []                                Grad::Zero;
}

unary_methods! {
    /// −x.
    ///
    /// Derivative: `−dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, -2.0]);
    /// assert_eq!(x.neg().to_vec::<f64>(), [-1.0, 2.0]);
    /// assert_eq!((-&x).to_vec::<f64>(), [-1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    #[doc(alias = "negative")]
    neg Neg;
    /// |x|; its derivative at 0 is 0.
    ///
    /// Derivative: `sign(x)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-3.0, 2.0]).abs().to_vec::<f64>(), [3.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    #[doc(alias = "absolute")]
    abs Abs;
    /// −1, 0 or 1 by the sign of x; NaN stays.
    ///
    /// Derivative: zero (piecewise constant).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-3.0, 0.0, 2.0]).sign().to_vec::<f64>(), [-1.0, 0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    sign Sign;
    /// The largest integer not above x.
    ///
    /// Derivative: zero (piecewise constant).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-1.5, 1.5]).floor().to_vec::<f64>(), [-2.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    floor Floor;
    /// The smallest integer not below x.
    ///
    /// Derivative: zero (piecewise constant).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-1.5, 1.5]).ceil().to_vec::<f64>(), [-1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    ceil Ceil;
    /// The nearest integer, ties to even.
    ///
    /// Derivative: zero (piecewise constant).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([0.5, 1.5, 2.5]).round().to_vec::<f64>(), [0.0, 2.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    round Round;
    /// The integer part, towards zero.
    ///
    /// Derivative: zero (piecewise constant).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-1.5, 1.5]).trunc().to_vec::<f64>(), [-1.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    #[doc(alias = "fix")]
    trunc Trunc;
    /// Element-wise NOT: logical on `bool`, bitwise on integers.
    ///
    /// Derivative: none (bits).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([true, false]).logical_not().to_vec::<bool>(), [false, true]);
    /// assert_eq!(Tensor::from([0, 5]).logical_not().to_vec::<i32>(), [-1, -6]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is a float.
    #[doc(alias = "bitwise_not")]
    logical_not Not;
    /// x².
    ///
    /// Derivative: `2·x·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-3.0, 2.0]).square().to_vec::<f64>(), [9.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    square Square;
}

real_methods! {
    /// √x; its derivative at 0 is infinite.
    ///
    /// Derivative: `dy/(2·y)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([4.0, 9.0]).sqrt().to_vec::<f64>(), [2.0, 3.0]);
    /// ```
    sqrt Sqrt;
    /// 1/√x.
    ///
    /// Derivative: `−½·y³·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([4.0, 0.25]).rsqrt().to_vec::<f64>(), [0.5, 2.0]);
    /// ```
    rsqrt Rsqrt;
    /// 1/x.
    ///
    /// Derivative: `−y²·dy`.
    /// PyTorch's name: `reciprocal`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([4.0, 0.5]).recip().to_vec::<f64>(), [0.25, 2.0]);
    /// ```
    #[doc(alias = "reciprocal")]
    recip Recip;
}
