//! Exponentials, logarithms, angles and hyperbolic functions.

use super::Row;
use crate::Tensor;
use crate::rule::{A, ByHand, Grad, slopes};
use smallvec::smallvec;
use std::f64::consts::{LN_2, LN_10};

#[rustfmt::skip]
rows! {
    //       policy  need        kink                              derivative
    Exp      F32     MaxRelative []                                slopes!(Y => |y| y.clone());
    Exp2     F32     MaxRelative []                                slopes!(Y => |y| y * LN_2);
    Expm1    F32     MaxRelative []                                slopes!(Y => |y| y + 1.0);
    Log      F32     Relative    [Infinite zero]                   slopes!(X => |x| x.recip()), vjp |x, dy| dy / x;
    Log2     F32     Relative    [Infinite zero]                   over!(x => x * LN_2);
    Log10    F32     Relative    [Infinite zero]                   over!(x => x * LN_10);
    Log1p    F32     Exact       [Infinite minus_one]              over!(x => x + 1.0);
    Sin      Promote Absolute    []                                slopes!(X => |x| x.cos());
    Cos      Promote Absolute    []                                slopes!(X => |x| -x.sin());
    Tan      F32     MaxRelative []                                slopes!(Y => |y| 1.0 + y.square());
    Asin     F32     Exact       [Infinite one_or_minus_one]       slopes!(X => |x| (1.0 - x.square()).rsqrt());
    Acos     F32     Exact       [Infinite one_or_minus_one]       slopes!(X => |x| -(1.0 - x.square()).rsqrt());
    // Not `square`, whose slope 2x is infinite at the largest numbers, and the reciprocal's 0.
    Atan     Promote Mixed       []                                slopes!(X => |x| (1.0 + x * x).recip());
    Sinh     F32     Exact       []                                slopes!(X => |x| x.cosh());
    Cosh     F32     Exact       []                                slopes!(X => |x| x.sinh());
    Tanh     Promote MaxRelative []                                slopes!(Y => |y| 1.0 - y.square());
    Asinh    F32     Mixed       []                                slopes!(X => |x| (1.0 + x.square()).rsqrt());
    Acosh    F32     Exact       [Infinite one]                    slopes!(X => |x| ((x - 1.0) * (x + 1.0)).rsqrt());
    Atanh    F32     Exact       [Infinite one_or_minus_one]       slopes!(X => |x| (1.0 - x.square()).recip());
}

real_methods! {
    /// eˣ.
    ///
    /// Derivative: `y·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).exp().to_vec::<f64>();
    /// assert!(y[0] == 1.0 && (y[1] - std::f64::consts::E).abs() < 1e-15);
    /// ```
    exp Exp;
    /// 2ˣ.
    ///
    /// Derivative: `ln 2·y·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([3.0, -1.0]).exp2().to_vec::<f64>(), [8.0, 0.5]);
    /// ```
    exp2 Exp2;
    /// eˣ − 1, accurate near 0.
    ///
    /// Derivative: `(y + 1)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // exp(1e-20) rounds to 1, so the difference would be 0.
    /// assert_eq!(Tensor::from(1e-20).expm1().item::<f64>(), 1e-20);
    /// ```
    expm1 Expm1;
    /// The natural logarithm.
    ///
    /// Derivative: `dy/x`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([1.0, 10.0]).log().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 10f64.ln()).abs() < 1e-15);
    /// ```
    log Log;
    /// The logarithm to base 2.
    ///
    /// Derivative: `dy/(x·ln 2)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([8.0, 0.5]).log2().to_vec::<f64>(), [3.0, -1.0]);
    /// ```
    log2 Log2;
    /// The logarithm to base 10.
    ///
    /// Derivative: `dy/(x·ln 10)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([100.0, 1.0]).log10().to_vec::<f64>(), [2.0, 0.0]);
    /// ```
    log10 Log10;
    /// ln(1 + x), accurate near 0.
    ///
    /// Derivative: `dy/(1 + x)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // 1 + 1e-20 rounds to 1, whose logarithm would be 0.
    /// assert_eq!(Tensor::from(1e-20).log1p().item::<f64>(), 1e-20);
    /// ```
    log1p Log1p;
    /// Sine.
    ///
    /// Derivative: `cos(x)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, std::f64::consts::FRAC_PI_2]).sin();
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 1.0]);
    /// ```
    sin Sin;
    /// Cosine.
    ///
    /// Derivative: `−sin(x)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, std::f64::consts::PI]).cos();
    /// assert_eq!(y.to_vec::<f64>(), [1.0, -1.0]);
    /// ```
    cos Cos;
    /// Tangent.
    ///
    /// Derivative: `(1 + y²)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(std::f64::consts::FRAC_PI_4).tan().item::<f64>();
    /// assert!((y - 1.0).abs() < 1e-15);
    /// ```
    tan Tan;
    /// Arc sine.
    ///
    /// Derivative: `dy/√(1 − x²)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(1.0).asin().item::<f64>();
    /// assert!((y - std::f64::consts::FRAC_PI_2).abs() < 1e-15);
    /// ```
    #[doc(alias = "arcsin")]
    asin Asin;
    /// Arc cosine.
    ///
    /// Derivative: `−dy/√(1 − x²)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(-1.0).acos().item::<f64>();
    /// assert!((y - std::f64::consts::PI).abs() < 1e-15);
    /// ```
    #[doc(alias = "arccos")]
    acos Acos;
    /// Arc tangent.
    ///
    /// Derivative: `dy/(1 + x²)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(1.0).atan().item::<f64>();
    /// assert!((y - std::f64::consts::FRAC_PI_4).abs() < 1e-15);
    /// ```
    #[doc(alias = "arctan")]
    atan Atan;
    /// Hyperbolic sine.
    ///
    /// Derivative: `cosh(x)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(1.0).sinh().item::<f64>();
    /// assert!((y - 1f64.sinh()).abs() < 1e-15);
    /// ```
    sinh Sinh;
    /// Hyperbolic cosine.
    ///
    /// Derivative: `sinh(x)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).cosh().to_vec::<f64>();
    /// assert!(y[0] == 1.0 && (y[1] - 1f64.cosh()).abs() < 1e-15);
    /// ```
    cosh Cosh;
    /// Hyperbolic tangent.
    ///
    /// Derivative: `(1 − y²)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 100.0]).tanh();
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 1.0]);
    /// ```
    tanh Tanh;
    /// Inverse hyperbolic sine.
    ///
    /// Derivative: `dy/√(1 + x²)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(1f64.sinh()).asinh().item::<f64>();
    /// assert!((y - 1.0).abs() < 1e-15);
    /// ```
    #[doc(alias = "arcsinh")]
    asinh Asinh;
    /// Inverse hyperbolic cosine.
    ///
    /// Derivative: `dy/√(x² − 1)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([1.0, 1f64.cosh()]).acosh().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 1.0).abs() < 1e-15);
    /// ```
    #[doc(alias = "arccosh")]
    acosh Acosh;
    /// Inverse hyperbolic tangent.
    ///
    /// Derivative: `dy/(1 − x²)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.5, 1.0]).atanh().to_vec::<f64>();
    /// assert!((y[0] - 0.5493061443340548).abs() < 1e-15 && y[1] == f64::INFINITY);
    /// ```
    #[doc(alias = "arctanh")]
    atanh Atanh;
}
