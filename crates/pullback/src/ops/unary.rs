//! Functions of one element. One row each, and the methods that name them.

use crate::apply::apply;
use crate::autocast::Policy;
use crate::kinks::mask::{self, Spots};
use crate::memory::Need;
use crate::ops::linear;
use crate::ops::slopes::{
    bessel_part, erfcx_slope, gelu_tanh_slope, log_ndtr_slope, normal_cdf, normal_pdf,
};
use crate::rule::{A, ByHand, Grad, Tensors, slopes};
use crate::{Op, Tensor, kinks};
use pullback_ir::{DType, Unary};
use smallvec::smallvec;
use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, LN_10, SQRT_2};

/// A slope that is 1 over something: `dy` is divided by it. A product with the reciprocal would
/// have a derivative with the square of that, which overflows long before the quotient does (as in
/// t·ln t, where dy is small when t is).
macro_rules! over {
    ($x:ident => $below:expr) => {
        Grad::ByHand(ByHand {
            formula: concat!("`dy / (", stringify!($below), ")`"),
            uses: &[A],
            vjp: |f, dys| {
                let $x = f.x(0);
                smallvec![dys[0].as_ref().map(|dy| dy / ($below))]
            },
            jvp: |f, t| {
                let $x = f.x(0);
                t[0].iter().map(|t| t / ($below)).collect()
            },
        })
    };
}

/// Turns rows into one lookup for each column.
macro_rules! rows {
    ($($f:ident $policy:ident $need:ident $kink:tt $grad:expr $(, vjp $vjp:expr)?;)*) => {
        /// How the function differentiates.
        pub(crate) fn grad(f: Unary) -> Grad {
            match f { $(Unary::$f => $grad),* }
        }

        /// What [`autocast`](crate::autocast()) does with its operand.
        pub(crate) fn policy(f: Unary) -> Policy {
            match f { $(Unary::$f => Policy::$policy),* }
        }

        /// What its derivative needs of a saved value.
        pub(crate) fn need(f: Unary) -> Need {
            match f { $(Unary::$f => Need::$need),* }
        }

        /// Where it has no derivative, and how such elements are found.
        pub(crate) fn kink(f: Unary) -> Option<(kinks::KinkKind, Spots)> {
            match f { $(Unary::$f => kinks::kink!($kink)),* }
        }

        /// `dy · f'` from the kept value, where that is not the product with the slope.
        fn stepwise(f: Unary) -> Option<fn(&Tensor, &Tensor) -> Tensor> {
            match f { $(Unary::$f => stepwise!($($vjp)?)),* }
        }
    };
}

macro_rules! stepwise {
    () => {
        None
    };
    ($vjp:expr) => {
        Some($vjp)
    };
}

// In a slope, `x` is the input and `y` the output; what is not named is not saved for backward.
//
// `policy`: functions whose intermediate values exceed the range or the precision of 16 bits are in
// `F32`.
//
// `need`, by the slope; numbers say by how many ε the derivative is off
// (`memory/compress/need.rs`):
// - `Exact`, where nothing is saved. Where a pole at ±1 loses the distance of an x near it (log1p,
//   asin, acos, acosh, atanh). exp(y²), off by 2y² (erfinv, ndtri). Differences of saved values,
//   poles, and slopes that grow like exp(x) (sinh to i1e).
// - `MaxRelative`: powers of what is saved, 1, 2, 3 (square, exp, recip, rsqrt). y + 1, off by 1 of
//   y, which is below 1 or below the slope; 1 + y², by 2. 1 − y², off by 2 of 1 as |y| ≤ 1; y·(1 −
//   y), by 1.
// - `Relative`: quotients, 1.
// - `Mixed`: powers of 1 + x², 2 and 1 of themselves; the second derivative is below 1 as well, as
//   eight bits need it. Of erf to silu, x times the second derivative, and that itself, are
//   below 1. (log_ndtr grows like −x, and is then off by 1 of itself.)
// - `Absolute`: off by |x| of 1.
//
// `vjp`, where what divides must do so one after the other: an intermediate square would overflow
// in the next derivative before the result does.
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
    Erf      Promote Mixed       []                                slopes!(X => |x| (-x.square()).exp() * FRAC_2_SQRT_PI);
    Erfc     F32     Mixed       []                                slopes!(X => |x| (-x.square()).exp() * -FRAC_2_SQRT_PI);
    Erfcx    F32     Exact       []                                slopes!(X Y => |x, y| erfcx_slope(x, y));
    Erfinv   F32     Exact       [Infinite one_or_minus_one]       slopes!(Y => |y| y.square().exp() * (1.0 / FRAC_2_SQRT_PI));
    LogNdtr  F32     Mixed       []                                slopes!(X Y => |x, y| log_ndtr_slope(x, y));
    Ndtri    F32     Exact       [Infinite zero_or_one]            slopes!(Y => |y| (y.square() * 0.5).exp() * (2.0 * SQRT_2 / FRAC_2_SQRT_PI));
    Lgamma   F32     Exact       [Lgamma integer_not_above_zero]   slopes!(X => |x| x.digamma());
    Digamma  F32     Exact       [Infinite integer_not_above_zero] slopes!(X => |x| x.polygamma(1));
    I0       F32     Exact       []                                slopes!(X => |x| x.i1());
    I0e      F32     Exact       [Bessel zero]                     slopes!(X Y => |x, y| x.i1e() - x.sign() * y);
    I1       F32     Exact       []                                slopes!(X Y => |x, y| x.i0() - bessel_part(y, x, false));
    I1e      F32     Exact       []                                slopes!(X Y => |x, y| x.i0e() - x.sign() * y - bessel_part(y, x, true));
    Sigmoid  Promote MaxRelative []                                slopes!(Y => |y| y * (1.0 - y));
    Relu     Promote Sign        [Relu zero]                       slopes!(Y => |y| y.gt(0.0).cast(y.dtype()));
    Gelu     Promote Mixed       []                                slopes!(X => |x| normal_cdf(x) + x * normal_pdf(x));
    GeluTanh Promote Mixed       []                                slopes!(X => |x| gelu_tanh_slope(x));
    Silu     Promote Mixed       []                                slopes!(X => |x| silu_slope(x));
    // By promise.
    Stop     Promote Exact       []                                Grad::Zero;
}

fn silu_slope(x: &Tensor) -> Tensor {
    let s = x.sigmoid();
    &s * (x * (1.0 - &s) + 1.0)
}

/// `dy · f'` by simpler ops: what the fused kernel is, where it is differentiated itself.
pub(crate) fn unary_vjp(op: &Op, inputs: &[&Tensor]) -> Tensors {
    let Op::UnaryVjp(f) = op else { unreachable!("called for UnaryVjp") };
    let Grad::Slopes(slopes) = grad(*f) else { unreachable!("a fused vjp belongs to a slope") };
    let (kept, dy) = (inputs[0], inputs[1]);
    Tensors::One(match stepwise(*f) {
        Some(vjp) => vjp(kept, dy),
        None => dy * slopes[0].of(&[kept]),
    })
}

impl Tensor {
    #[track_caller]
    fn unary(&self, f: Unary) -> Tensor {
        // A function of the reals takes integers in f32, as true division does.
        match self.dtype().is_float() || f.takes_ints() {
            true => apply(Op::Unary(f), &[self]),
            false => apply(Op::Unary(f), &[&self.cast(DType::F32)]),
        }
    }
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            #[must_use]
            pub fn $name(&self) -> Tensor {
                self.unary(Unary::$op)
            }
        )*}
    };
}

/// Functions of the reals, which take every dtype.
macro_rules! real_methods {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Panics
            /// For no shape or dtype: integers and `bool` are computed in `f32`.
            #[track_caller]
            #[must_use]
            pub fn $name(&self) -> Tensor {
                self.unary(Unary::$op)
            }
        )*}
    };
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
    /// max(x, 0); its derivative at 0 is 0.
    ///
    /// Derivative: `dy` where x > 0, 0 elsewhere.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-2.0, 3.0]).relu().to_vec::<f64>(), [0.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    relu Relu;
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
    /// The error function.
    ///
    /// Derivative: `2/√π·exp(−x²)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).erf().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.8427007929497149).abs() < 1e-15);
    /// ```
    erf Erf;
    /// 1 − erf(x), accurate for large x.
    ///
    /// Derivative: `−2/√π·exp(−x²)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 10.0]).erfc().to_vec::<f64>();
    /// // 1 − erf(10) rounds to 0.
    /// assert!(y[0] == 1.0 && (y[1] / 2.0884875837625449e-45 - 1.0).abs() < 1e-13);
    /// ```
    erfc Erfc;
    /// e^(x²)·erfc(x): the scaled complementary error function.
    ///
    /// Derivative: 2x·y − 2/√π.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 100.0]).erfcx().to_vec::<f64>();
    /// assert!(y[0] == 1.0 && (y[1] - 0.005641613782989433).abs() < 1e-15);
    /// ```
    erfcx Erfcx;
    /// The x with erf(x) = self: ±∞ at ±1, NaN beyond.
    ///
    /// Derivative: ½√π·exp(y²).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.5, 1.0]).erfinv().to_vec::<f64>();
    /// assert!((y[0] - 0.4769362762044699).abs() < 1e-15 && y[1] == f64::INFINITY);
    /// ```
    erfinv Erfinv;
    /// log Φ(x), the logarithm of [`Tensor::ndtr`], accurate in both tails.
    ///
    /// Derivative: √(2/π) / erfcx(−x/√2).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, -40.0]).log_ndtr().to_vec::<f64>();
    /// // Φ(−40) itself rounds to 0.
    /// assert!((y[0] + 2f64.ln()).abs() < 1e-15 && (y[1] + 804.608442).abs() < 1e-6);
    /// ```
    log_ndtr LogNdtr;
    /// The x with Φ(x) = self, the quantile of the standard normal: −∞ at 0, ∞ at 1, NaN outside.
    ///
    /// Derivative: √(2π)·exp(y²/2).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.5, 0.975]).ndtri().to_vec::<f64>();
    /// assert!(y[0].abs() < 1e-15 && (y[1] - 1.959963984540054).abs() < 1e-14);
    /// ```
    ndtri Ndtri;
    /// log |Γ(x)|; infinite at 0 and the negative integers.
    ///
    /// Derivative: ψ(x), [`Tensor::digamma`].
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 2.0, 0.0]).lgamma().to_vec::<f64>(), [0.0, 0.0, f64::INFINITY]);
    /// ```
    #[doc(alias = "gammaln")]
    lgamma Lgamma;
    /// ψ(x) = Γ'(x)/Γ(x); −∞ at 0, NaN at the negative integers.
    ///
    /// Derivative: [`Tensor::polygamma`] of order 1.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(1.0).digamma().item::<f64>();
    /// assert!((y + 0.5772156649015329).abs() < 1e-15);
    /// ```
    digamma Digamma;
    /// I₀(x), the modified Bessel function of the first kind.
    ///
    /// Derivative: I₁(x).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).i0().to_vec::<f64>();
    /// assert!(y[0] == 1.0 && (y[1] - 1.2660658777520084).abs() < 1e-14);
    /// ```
    i0 I0;
    /// e^(−|x|)·I₀(x).
    ///
    /// Derivative: e^(−|x|)·I₁(x) − sign(x)·y.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // I₀(1000) overflows.
    /// let y = Tensor::from([0.0, 1000.0]).i0e().to_vec::<f64>();
    /// assert!(y[0] == 1.0 && (y[1] - 0.01261724).abs() < 1e-8);
    /// ```
    i0e I0e;
    /// I₁(x), the modified Bessel function of the first kind.
    ///
    /// Derivative: I₀(x) − y/x, and ½ at 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).i1().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.5651591039924851).abs() < 1e-14);
    /// ```
    i1 I1;
    /// e^(−|x|)·I₁(x).
    ///
    /// Derivative: e^(−|x|)·I₀(x) − sign(x)·y − y/x, and ½ at 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // I₁(1000) overflows.
    /// let y = Tensor::from([0.0, 1000.0]).i1e().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.01261093).abs() < 1e-8);
    /// ```
    i1e I1e;
    /// The logistic function 1 / (1 + e⁻ˣ).
    ///
    /// Derivative: `y·(1 − y)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([0.0, 100.0]).sigmoid().to_vec::<f64>(), [0.5, 1.0]);
    /// ```
    #[doc(alias = "expit")]
    sigmoid Sigmoid;
    /// The Gaussian error linear unit x·Φ(x), exact.
    ///
    /// Derivative: `(Φ(x) + x·φ(x))·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).gelu().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.8413447460685429).abs() < 1e-15);
    /// ```
    gelu Gelu;
    /// The Gaussian error linear unit in its tanh approximation.
    ///
    /// Derivative: of its formula.
    /// PyTorch's name: `nn.functional.gelu`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).gelu_tanh().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.8411919906082768).abs() < 1e-15);
    /// ```
    #[doc(alias = "gelu")]
    gelu_tanh GeluTanh;
    /// The sigmoid linear unit (swish) x·sigmoid(x).
    ///
    /// Derivative: `s·(1 + x·(1 − s))·dy`, where s = sigmoid(x).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).silu().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.7310585786300049).abs() < 1e-15);
    /// ```
    #[doc(alias = "swish")]
    silu Silu;
}
