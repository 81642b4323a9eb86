//! Functions of one and two elements.

use crate::apply::apply;
use crate::ops::slopes::{
    bessel_part, erfcx_slope, gamma_density, gelu_tanh_slope, log_ndtr_slope, normal_cdf,
    normal_pdf, silu_slope,
};
use crate::ops::{Operand, linear};
use crate::rule::{A, B, Bilinear, Facts, Grad, Hand, Outs, Y, chain, slopes};
use crate::{Error, Op, Tensor, fail};
use pullback_ir::{Binary, DType, Unary};
use smallvec::smallvec;
use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, LN_10, SQRT_2};

/// A slope that is 1 over something: `dy` is divided by it. A product with the reciprocal would have a derivative with the square of that, which overflows
/// long before the quotient does (as in t·ln t, where dy is small when t is).
macro_rules! over {
    ($x:ident => $below:expr) => {
        Grad::Hand(Hand {
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

/// How each unary function differentiates. In a formula, `x` is the input and `y` the output;
/// what is not named is not kept for backward.
#[rustfmt::skip]
pub(crate) fn unary_row(f: Unary) -> Grad {
    use Unary::*;
    match f {
        Neg      => linear("`-dy`", |_, _, dy| -dy),
        Sign | Floor | Ceil | Round | Trunc | Not => Grad::Zero,
        // By promise.
        Stop     => Grad::Zero,
        Abs      => slopes!(X => |x| x.sign()),
        Square   => slopes!(X => |x| x * 2.0),
        Sqrt     => slopes!(Y => |y| 0.5 / y),
        Rsqrt    => slopes!(Y => |y| y.square() * y * -0.5),
        Recip    => slopes!(Y => |y| -y.square()),
        Exp      => slopes!(Y => |y| y.clone()),
        Exp2     => slopes!(Y => |y| y * LN_2),
        Expm1    => slopes!(Y => |y| y + 1.0),
        Log      => slopes!(X => |x| x.recip()),
        Log2     => over!(x => x * LN_2),
        Log10    => over!(x => x * LN_10),
        Log1p    => over!(x => x + 1.0),
        Sin      => slopes!(X => |x| x.cos()),
        Cos      => slopes!(X => |x| -x.sin()),
        Tan      => slopes!(Y => |y| 1.0 + y.square()),
        Asin     => slopes!(X => |x| (1.0 - x.square()).rsqrt()),
        Acos     => slopes!(X => |x| -(1.0 - x.square()).rsqrt()),
        // Not `square`, whose slope 2x is infinite at the largest numbers, and the reciprocal's 0.
        Atan     => slopes!(X => |x| (1.0 + x * x).recip()),
        Sinh     => slopes!(X => |x| x.cosh()),
        Cosh     => slopes!(X => |x| x.sinh()),
        Tanh     => slopes!(Y => |y| 1.0 - y.square()),
        Asinh    => slopes!(X => |x| (1.0 + x.square()).rsqrt()),
        Acosh    => slopes!(X => |x| ((x - 1.0) * (x + 1.0)).rsqrt()),
        Atanh    => slopes!(X => |x| (1.0 - x.square()).recip()),
        Erf      => slopes!(X => |x| (-x.square()).exp() * FRAC_2_SQRT_PI),
        Erfc     => slopes!(X => |x| (-x.square()).exp() * -FRAC_2_SQRT_PI),
        Erfcx    => slopes!(X Y => |x, y| erfcx_slope(x, y)),
        Erfinv   => slopes!(Y => |y| y.square().exp() * (1.0 / FRAC_2_SQRT_PI)),
        LogNdtr  => slopes!(X Y => |x, y| log_ndtr_slope(x, y)),
        Ndtri    => slopes!(Y => |y| (y.square() * 0.5).exp() * (2.0 * SQRT_2 / FRAC_2_SQRT_PI)),
        Lgamma   => slopes!(X => |x| x.digamma()),
        Digamma  => slopes!(X => |x| x.polygamma(1)),
        I0       => slopes!(X => |x| x.i1()),
        I0e      => slopes!(X Y => |x, y| x.i1e() - x.sign() * y),
        I1       => slopes!(X Y => |x, y| x.i0() - bessel_part(y, x, false)),
        I1e      => slopes!(X Y => |x, y| x.i0e() - x.sign() * y - bessel_part(y, x, true)),
        Sigmoid  => slopes!(Y => |y| y * (1.0 - y)),
        Relu     => slopes!(Y => |y| y.gt(0.0).cast(y.dtype())),
        Gelu     => slopes!(X => |x| normal_cdf(x) + x * normal_pdf(x)),
        GeluTanh => slopes!(X => |x| gelu_tanh_slope(x)),
        Silu     => slopes!(X => |x| silu_slope(x)),
    }
}

/// How each binary function differentiates.
#[rustfmt::skip]
pub(crate) fn binary_row(f: Binary) -> Grad {
    use Binary::*;
    match f {
        Add       => linear("`dy` for both", |_, _, dy| dy.clone()),
        Sub       => linear("`da = dy`, `db = -dy`", |_, i, dy| if i == 0 { dy.clone() } else { -dy }),
        Mul       => Grad::Bilinear(Bilinear {
            transpose: |f, i, dy| chain(dy, f.x(1 - i)),
            formula: "`da = dy * b`, `db = dy * a`",
        }),
        Div       => DIV,
        Remainder | Fmod => MODULO,
        FloorDiv | And | Or | Xor => Grad::Zero,
        Pow       => slopes!(A B => |a, b| pow_slope(a, b); A B Y => |a, b, y| pow_exponent_slope(a, b, y)),
        Atan2     => slopes!(A B => |a, b| turning(a, b, b); A B => |a, b| -turning(a, b, a)),
        Copysign  => slopes!(A Y => |a, y| a.sign() * y.sign()),
        Zeta      => slopes!(A => |a| no_closed_form(a, "zeta"); A B => |a, b| -(a * (a + 1.0).zeta(b))),
        Gammainc  => slopes!(A => |a| no_closed_form(a, "gammainc"); A B => |a, b| gamma_density(a, b)),
        Gammaincc => slopes!(A => |a| no_closed_form(a, "gammaincc"); A B => |a, b| -gamma_density(a, b)),
        Maximum   => slopes!(A B => |a, b| winner(a, b); A B => |a, b| winner(b, a)),
        Minimum   => slopes!(A B => |a, b| winner(b, a); A B => |a, b| winner(a, b)),
    }
}

/// y = a / b: divided again rather than multiplied by 1/b, so that nothing is rounded twice. Also y is divided, and not `dy / b` multiplied by it: 1/b² would
/// overflow where a/b² does not (a = 0, or as small as b).
const DIV: Grad = Grad::Hand(Hand {
    formula: "`da = dy / b`, `db = dy * (y / -b)`",
    uses: &[B, Y],
    vjp: |f, dys| {
        let by = |i: usize| dys[0].as_ref().filter(|_| f.needs(i));
        let db = by(1).map(|dy| dy * (f.y(0) / -f.x(1)));
        smallvec![by(0).map(|dy| dy / f.x(1)), db]
    },
    jvp: |f, t| {
        let moved = t[1].as_ref().map(|tb| f.y(0) * tb);
        let top = match (&t[0], moved) {
            (Some(ta), Some(moved)) => ta - moved,
            (Some(ta), None) => ta.clone(),
            (None, moved) => -moved.unwrap_or_else(|| f.y(0).zeros_like_splat()),
        };
        smallvec![top / f.x(1)]
    },
});

/// y = a − b·q, where q is a/b rounded down for the remainder and towards zero for fmod.
const MODULO: Grad = Grad::Hand(Hand {
    formula: "`da = dy`, `db = -dy * q`, q the rounded quotient",
    uses: &[A, B, Y],
    vjp: |f, dys| smallvec![dys[0].clone(), dys[0].as_ref().map(|dy| -(dy * quotient(f)))],
    jvp: |f, t| total(t[0].clone(), t[1].as_ref().map(|tb| -(tb * quotient(f)))),
});

/// The quotient that the value was made with: a/b itself may be rounded up to the next integer, as 1/0.1 is.
fn quotient(f: &Facts) -> Tensor {
    let (a, b) = (f.x(0), f.x(1));
    match f.op {
        Op::Binary(Binary::Fmod) => ((a - f.y(0)) / b).round(),
        _ => a.floor_div(b),
    }
}

/// The sum of the tangents that arrived; at least one did.
fn total(a: Option<Tensor>, b: Option<Tensor>) -> Outs {
    a.into_iter().chain(b).reduce(|a, b| a + b).into_iter().collect()
}

/// `dy · f'` by simpler ops: what the fused kernel is, where it is differentiated itself. What divides does so one after the other: a square on the way would
/// overflow in the next derivative before the result does.
pub(crate) fn unary_vjp(op: &Op, inputs: &[&Tensor]) -> Outs {
    let Op::UnaryVjp(f) = op else { unreachable!("called for UnaryVjp") };
    let Grad::Slopes(slopes) = unary_row(*f) else {
        unreachable!("a fused vjp belongs to a slope")
    };
    let (kept, dy) = (inputs[0], inputs[1]);
    smallvec![match f {
        Unary::Log => dy / kept,
        Unary::Sqrt => dy * 0.5 / kept,
        Unary::Recip => -(dy * kept) * kept,
        Unary::Rsqrt => dy * kept * kept * kept * -0.5,
        _ => dy * slopes[0].of(&[kept]),
    }]
}

/// part/(a² + b²), in units in which no square is too large or too small.
fn turning(a: &Tensor, b: &Tensor, part: &Tensor) -> Tensor {
    let unit = unit_for_squares(a, b);
    let (a, b) = (a * &unit, b * &unit);
    part * &unit / (a.square() + b.square()) * unit
}

/// A power of two by which both are multiplied before they are squared: 1, but for the very large and the very small. It has no derivative.
#[track_caller]
pub(super) fn unit_for_squares(a: &Tensor, b: &Tensor) -> Tensor {
    let (a, b) = (a.detach(), b.detach());
    let dtype = a.dtype().promote(b.dtype());
    let (bound, up, down) = match dtype {
        DType::F64 => (1e150, 2f64.powi(600), 2f64.powi(-600)),
        _ => (1e18, 2f64.powi(100), 2f64.powi(-70)),
    };
    let beyond = |x: &Tensor, bound: f64| x.gt(bound).logical_or(x.lt(-bound));
    let large = beyond(&a, bound).logical_or(beyond(&b, bound));
    let ordinary = beyond(&a, 1.0 / bound).logical_or(beyond(&b, 1.0 / bound));
    let up = ordinary.new_splat(up.into(), ordinary.shape(), dtype);
    large.select_or(down, ordinary.select_or(1.0, up))
}

/// b·a^(b−1), and 0 where b = 0, also at a = 0.
fn pow_slope(a: &Tensor, b: &Tensor) -> Tensor {
    // 1 in place of a, so that no derivative of what is selected away is infinite.
    let constant = b.eq(0.0);
    constant.select_or(0.0, b * constant.select_or(1.0, a.clone()).pow(b - 1.0))
}

/// y·ln(a), and 0 where a = 0 and b ≥ 0.
fn pow_exponent_slope(a: &Tensor, b: &Tensor, y: &Tensor) -> Tensor {
    let void = a.eq(0.0).logical_and(b.ge(0.0));
    void.select_or(0.0, y * void.select_or(1.0, a.clone()).log())
}

/// The derivative by a parameter: refused.
fn no_closed_form(a: &Tensor, op: &'static str) -> Tensor {
    let message = "its derivative with respect to the first operand has no closed form";
    fail::raise(Error::gradient(op, message).on([a.spec()]).hint("detach that operand"))
}

/// 1 where a is the larger, ½ where they tie, 0 where b is; NaN passes to both.
fn winner(a: &Tensor, b: &Tensor) -> Tensor {
    let strict = b.gt(a).select_or(0.0, a.ones_like_splat());
    a.eq(b).select_or(0.5, strict)
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
    /// e^(x²)·erfc(x): what is left of erfc when its decay is taken away.
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

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            #[must_use]
            pub fn $name(&self, other: impl Operand) -> Tensor {
                self.binary(Binary::$op, other)
            }
        )*}
    };
}

binary_methods! {
    /// self raised to a power.
    ///
    /// Derivative: `b·a^(b−1)·dy` and `aᵇ·ln a·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([2.0, 3.0]).pow(2).to_vec::<f64>(), [4.0, 9.0]);
    /// ```
    pow Pow;
    /// The angle of the point (other, self).
    ///
    /// Derivative: `b/(a² + b²)·dy` for self (a), `−a/(a² + b²)·dy` for other (b).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // self is the ordinate (y), other the abscissa (x).
    /// assert_eq!(Tensor::from(1.0).atan2(0.0).item::<f64>(), std::f64::consts::FRAC_PI_2);
    /// ```
    atan2 Atan2;
    /// The magnitude of self with the sign of other.
    ///
    /// Derivative: `sign(x)·sign(y)·dy` for self; none for other.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([3.0, -2.0]).copysign(-1.0).to_vec::<f64>(), [-3.0, -2.0]);
    /// ```
    copysign Copysign;
    /// ζ(self, q) = Σₖ (q + k)^(−self), Hurwitz' zeta function: infinite for self = 1 and at q = 0, −1, …, NaN for self < 1, and for
    /// a negative q where self is not an integer.
    ///
    /// Derivative: by q, −self·ζ(self + 1, q); by self it is refused, for it has no closed form.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(2.0).zeta(1.0).item::<f64>();
    /// assert!((y - std::f64::consts::PI.powi(2) / 6.0).abs() < 1e-15);
    /// ```
    zeta Zeta;
    /// P(self, x) = ∫₀ˣ t^(self−1)·e^(−t) dt / Γ(self), the regularised lower incomplete gamma function; NaN for negative arguments.
    ///
    /// Derivative: by x, x^(self−1)·e^(−x)/Γ(self); by self it is refused, for it has no closed form.
    gammainc Gammainc;
    /// Q(self, x) = 1 − P(self, x), the regularised upper incomplete gamma function, accurate where it is small.
    ///
    /// Derivative: by x, −x^(self−1)·e^(−x)/Γ(self); by self it is refused, for it has no closed form.
    gammaincc Gammaincc;
    /// The larger of each pair; NaN if either is. A tie gives half the gradient to each.
    ///
    /// Derivative: `dy` to the one that it is, half to each in a tie.
    maximum Maximum;
    /// The smaller of each pair; NaN if either is. A tie gives half the gradient to each.
    ///
    /// Derivative: `dy` to the one that it is, half to each in a tie.
    minimum Minimum;
    /// The remainder with the sign of the divisor (also `%`).
    ///
    /// Derivative: `dy`, and `−⌊a/b⌋·dy` for the divisor.
    /// PyTorch's name: `remainder`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-7, 7]).remainder(3).to_vec::<i32>(), [2, 1]);
    /// ```
    remainder Remainder;
    /// The remainder with the sign of the dividend.
    ///
    /// Derivative: `dy`, and `−trunc(a/b)·dy` for the divisor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-7, 7]).fmod(3).to_vec::<i32>(), [-1, 1]);
    /// ```
    fmod Fmod;
    /// Division rounded towards minus infinity; its derivative is zero.
    ///
    /// Derivative: zero (piecewise constant).
    /// PyTorch's name: `floor_divide`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-7, 7]).floor_div(2).to_vec::<i32>(), [-4, 3]);
    /// ```
    floor_div FloorDiv;
    /// Both: logical on `bool`, bitwise on integers.
    ///
    /// Derivative: none (bits).
    logical_and And;
    /// Either: logical on `bool`, bitwise on integers.
    ///
    /// Derivative: none (bits).
    logical_or Or;
    /// Not the same: logical on `bool`, bitwise on integers.
    ///
    /// Derivative: none (bits).
    logical_xor Xor;
}
