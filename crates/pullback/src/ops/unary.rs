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
    smallvec![match stepwise(*f) {
        Some(vjp) => vjp(kept, dy),
        None => dy * slopes[0].of(&[kept]),
    }]
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

unary_methods! {
    /// −x.
    ///
    /// Derivative: `−dy`.
    neg Neg;
    /// |x|; its derivative at 0 is 0.
    ///
    /// Derivative: `sign(x)·dy`.
    abs Abs;
    /// −1, 0 or 1 by the sign of x; NaN stays.
    ///
    /// Derivative: zero (piecewise constant).
    sign Sign;
    /// The largest integer not above x.
    ///
    /// Derivative: zero (piecewise constant).
    floor Floor;
    /// The smallest integer not below x.
    ///
    /// Derivative: zero (piecewise constant).
    ceil Ceil;
    /// The nearest integer, ties to even.
    ///
    /// Derivative: zero (piecewise constant).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([0.5, 1.5, 2.5]).round().to_vec::<f64>(), [0.0, 2.0, 2.0]);
    /// ```
    round Round;
    /// The integer part, towards zero.
    ///
    /// Derivative: zero (piecewise constant).
    trunc Trunc;
    /// Negation: logical on `bool`, bitwise on integers.
    ///
    /// Derivative: none (bits).
    logical_not Not;
    /// x².
    ///
    /// Derivative: `2·x·dy`.
    square Square;
    /// √x; its derivative at 0 is infinite.
    ///
    /// Derivative: `dy/(2·y)`.
    sqrt Sqrt;
    /// 1/√x.
    ///
    /// Derivative: `−½·y³·dy`.
    rsqrt Rsqrt;
    /// 1/x.
    ///
    /// Derivative: `−y²·dy`.
    /// PyTorch's name: `reciprocal`.
    recip Recip;
    /// eˣ.
    ///
    /// Derivative: `y·dy`.
    exp Exp;
    /// 2ˣ.
    ///
    /// Derivative: `ln 2·y·dy`.
    exp2 Exp2;
    /// eˣ − 1, accurate near 0.
    ///
    /// Derivative: `(y + 1)·dy`.
    expm1 Expm1;
    /// The natural logarithm.
    ///
    /// Derivative: `dy/x`.
    log Log;
    /// The logarithm to base 2.
    ///
    /// Derivative: `dy/(x·ln 2)`.
    log2 Log2;
    /// The logarithm to base 10.
    ///
    /// Derivative: `dy/(x·ln 10)`.
    log10 Log10;
    /// ln(1 + x), accurate near 0.
    ///
    /// Derivative: `dy/(1 + x)`.
    log1p Log1p;
    /// Sine.
    ///
    /// Derivative: `cos(x)·dy`.
    sin Sin;
    /// Cosine.
    ///
    /// Derivative: `−sin(x)·dy`.
    cos Cos;
    /// Tangent.
    ///
    /// Derivative: `(1 + y²)·dy`.
    tan Tan;
    /// Arc sine.
    ///
    /// Derivative: `dy/√(1 − x²)`.
    asin Asin;
    /// Arc cosine.
    ///
    /// Derivative: `−dy/√(1 − x²)`.
    acos Acos;
    /// Arc tangent.
    ///
    /// Derivative: `dy/(1 + x²)`.
    atan Atan;
    /// Hyperbolic sine.
    ///
    /// Derivative: `cosh(x)·dy`.
    sinh Sinh;
    /// Hyperbolic cosine.
    ///
    /// Derivative: `sinh(x)·dy`.
    cosh Cosh;
    /// Hyperbolic tangent.
    ///
    /// Derivative: `(1 − y²)·dy`.
    tanh Tanh;
    /// Inverse hyperbolic sine.
    ///
    /// Derivative: `dy/√(1 + x²)`.
    asinh Asinh;
    /// Inverse hyperbolic cosine.
    ///
    /// Derivative: `dy/√(x² − 1)`.
    acosh Acosh;
    /// Inverse hyperbolic tangent.
    ///
    /// Derivative: `dy/(1 − x²)`.
    atanh Atanh;
    /// The error function.
    ///
    /// Derivative: `2/√π·exp(−x²)·dy`.
    erf Erf;
    /// 1 − erf(x), accurate for large x.
    ///
    /// Derivative: `−2/√π·exp(−x²)·dy`.
    erfc Erfc;
    /// e^(x²)·erfc(x): the scaled complementary error function.
    ///
    /// Derivative: 2x·y − 2/√π.
    erfcx Erfcx;
    /// The x with erf(x) = self: ±∞ at ±1, NaN beyond.
    ///
    /// Derivative: ½√π·exp(y²).
    erfinv Erfinv;
    /// log Φ(x), the logarithm of [`Tensor::ndtr`], accurate in both tails.
    ///
    /// Derivative: √(2/π) / erfcx(−x/√2).
    log_ndtr LogNdtr;
    /// The x with Φ(x) = self, the quantile of the standard normal: −∞ at 0, ∞ at 1, NaN outside.
    ///
    /// Derivative: √(2π)·exp(y²/2).
    ndtri Ndtri;
    /// log |Γ(x)|; infinite at 0 and the negative integers.
    ///
    /// Derivative: ψ(x), [`Tensor::digamma`].
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 2.0, 0.0]).lgamma().to_vec::<f64>(), [0.0, 0.0, f64::INFINITY]);
    /// ```
    lgamma Lgamma;
    /// ψ(x) = Γ'(x)/Γ(x); −∞ at 0, NaN at the negative integers.
    ///
    /// Derivative: [`Tensor::polygamma`] of order 1.
    digamma Digamma;
    /// I₀(x), the modified Bessel function of the first kind.
    ///
    /// Derivative: I₁(x).
    i0 I0;
    /// e^(−|x|)·I₀(x).
    ///
    /// Derivative: e^(−|x|)·I₁(x) − sign(x)·y.
    i0e I0e;
    /// I₁(x), the modified Bessel function of the first kind.
    ///
    /// Derivative: I₀(x) − y/x, and ½ at 0.
    i1 I1;
    /// e^(−|x|)·I₁(x).
    ///
    /// Derivative: e^(−|x|)·I₀(x) − sign(x)·y − y/x, and ½ at 0.
    i1e I1e;
    /// 1 / (1 + e⁻ˣ).
    ///
    /// Derivative: `y·(1 − y)·dy`.
    sigmoid Sigmoid;
    /// max(x, 0); its derivative at 0 is 0.
    ///
    /// Derivative: `dy` where x > 0, 0 elsewhere.
    relu Relu;
    /// x·Φ(x), exact.
    ///
    /// Derivative: `(Φ(x) + x·φ(x))·dy`.
    gelu Gelu;
    /// The tanh approximation of gelu.
    ///
    /// Derivative: of its formula.
    /// PyTorch's name: `nn.functional.gelu`.
    gelu_tanh GeluTanh;
    /// x·sigmoid(x).
    ///
    /// Derivative: `s·(1 + x·(1 − s))·dy`, where s = sigmoid(x).
    silu Silu;
}
