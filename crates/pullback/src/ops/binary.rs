//! Functions of two elements. One row each, and the methods that name them.

use crate::autocast::Policy;
use crate::kinks::mask::Spots;
use crate::memory::Need;
use crate::ops::{Operand, linear};
use crate::rule::{A, Adds, B, BilinearRule, ByHand, Grad, RuleContext, Tensors, Y, chain, slopes};
use crate::{Error, Op, Tensor, fail, kinks};
use pullback_ir::{Binary, DType};
use smallvec::smallvec;

/// Turns rows into one lookup for each column.
macro_rules! rows {
    ($($f:ident $policy:ident $need:ident $kink:tt $grad:expr;)*) => {
        /// How the function differentiates.
        pub(crate) fn grad(f: Binary) -> Grad {
            match f { $(Binary::$f => $grad),* }
        }

        /// What [`autocast`](crate::autocast()) does with its operands.
        pub(crate) fn policy(f: Binary) -> Policy {
            match f { $(Binary::$f => Policy::$policy),* }
        }

        /// What its derivative needs of a saved value.
        pub(crate) fn need(f: Binary) -> Need {
            match f { $(Binary::$f => Need::$need),* }
        }

        /// Where it has no derivative, and how such elements are found.
        pub(crate) fn kink(f: Binary) -> Option<(kinks::KinkKind, Spots)> {
            match f { $(Binary::$f => kinks::kink!($kink)),* }
        }
    };
}

// The columns are those of `unary.rs`. `need`:
// - `Exact`, where nothing is saved; where a quotient near an integer is rounded to another one
//   (remainder, fmod); where exponents multiply errors (pow to gammaincc); where values are
//   compared.
// - `Relative`: dy/b and −dy/b·y, 1 and 2. b/(a² + b²), where nothing cancels, 3.
rows! {
    //        policy  need        kink                       derivative
    Add       Promote Exact       []                         linear("`dy` for both", |_, _, dy| dy.clone());
    Sub       Promote Exact       []                         linear("`da = dy`, `db = -dy`", |_, i, dy| if i == 0 { dy.clone() } else { -dy });
    Mul       Promote MaxRelative []                         MUL;
    Div       Promote Relative    [Quotient second_zero]     DIV;
    Remainder Promote Exact       [Modulo multiple]          MODULO;
    Fmod      Promote Exact       [Modulo multiple_but_zero] MODULO;
    FloorDiv  Promote Exact       [Jump divides]             Grad::Zero;
    Pow       F32     Exact       [Pow power]                slopes!(A B => |a, b| pow_slope(a, b); A B Y => |a, b, y| pow_exponent_slope(a, b, y));
    Atan2     Promote Relative    [Atan2 cut]                slopes!(A B => |a, b| turning(a, b, b); A B => |a, b| -turning(a, b, a));
    Copysign  Promote Sign        [Copysign either_zero]     slopes!(A Y => |a, y| a.sign() * y.sign());
    Zeta      F32     Exact       []                         slopes!(A => |a| no_closed_form(a, "zeta"); A B => |a, b| -(a * (a + 1.0).zeta(b)));
    Gammainc  F32     Exact       []                         slopes!(A => |a| no_closed_form(a, "gammainc"); A B => |a, b| gamma_density(a, b));
    Gammaincc F32     Exact       []                         slopes!(A => |a| no_closed_form(a, "gammaincc"); A B => |a, b| -gamma_density(a, b));
    Maximum   Promote Exact       [Pair tie]                 slopes!(A B => |a, b| winner(a, b); A B => |a, b| winner(b, a));
    Minimum   Promote Exact       [Pair tie]                 slopes!(A B => |a, b| winner(b, a); A B => |a, b| winner(a, b));
    And       Promote Exact       []                         Grad::Zero;
    Or        Promote Exact       []                         Grad::Zero;
    Xor       Promote Exact       []                         Grad::Zero;
    ShiftLeft  Promote Exact      []                         Grad::Zero;
    ShiftRight Promote Exact      []                         Grad::Zero;
    Gcd       Promote Exact       []                         Grad::Zero;
}

const MUL: Grad = Grad::Bilinear(BilinearRule {
    adds: Adds::Separately,
    transpose: |f, i, dy| chain(dy, f.x(1 - i)),
    formula: "`da = dy * b`, `db = dy * a`",
});

/// y = a / b: divided again rather than multiplied by 1/b, so that nothing is rounded twice. Also y
/// is divided, and not `dy / b` multiplied by it: 1/b² would overflow where a/b² does not (a = 0,
/// or as small as b).
const DIV: Grad = Grad::ByHand(ByHand {
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
        Tensors::One(top / f.x(1))
    },
});

/// y = a − b·q, where q is a/b rounded down for the remainder and towards zero for fmod.
const MODULO: Grad = Grad::ByHand(ByHand {
    formula: "`da = dy`, `db = -dy * q`, q the rounded quotient",
    uses: &[A, B, Y],
    vjp: |f, dys| smallvec![dys[0].clone(), dys[0].as_ref().map(|dy| -(dy * quotient(f)))],
    jvp: |f, t| total(t[0].clone(), t[1].as_ref().map(|tb| -(tb * quotient(f)))),
});

/// The quotient that the value was made with: a/b itself may be rounded up to the next integer, as
/// 1/0.1 is.
fn quotient(f: &RuleContext) -> Tensor {
    let (a, b) = (f.x(0), f.x(1));
    match f.op {
        Op::Binary(Binary::Fmod) => ((a - f.y(0)) / b).round(),
        _ => a.floor_div(b),
    }
}

/// The sum of the tangents that arrived; at least one did.
fn total(a: Option<Tensor>, b: Option<Tensor>) -> Tensors {
    a.into_iter().chain(b).reduce(|a, b| a + b).into_iter().collect()
}

/// part/(a² + b²), in units in which no square is too large or too small.
fn turning(a: &Tensor, b: &Tensor, part: &Tensor) -> Tensor {
    let unit = unit_for_squares(a, b);
    let (a, b) = (a * &unit, b * &unit);
    part * &unit / (a.square() + b.square()) * unit
}

/// A power of two by which both are multiplied before they are squared: 1, but for the very large
/// and the very small. It has no derivative.
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
    // 1 instead of a, so that no derivative of what is selected away is infinite.
    let constant = b.eq(0.0);
    constant.select_or(0.0, b * constant.select_or(1.0, a.clone()).pow(b - 1.0))
}

/// y·ln(a), and 0 where a = 0 and b ≥ 0.
fn pow_exponent_slope(a: &Tensor, b: &Tensor, y: &Tensor) -> Tensor {
    let void = a.eq(0.0).logical_and(b.ge(0.0));
    void.select_or(0.0, y * void.select_or(1.0, a.clone()).log())
}

/// b^(a−1)·e^(−b) / Γ(a).
fn gamma_density(a: &Tensor, b: &Tensor) -> Tensor {
    ((a - 1.0).xlogy(b) - b - a.lgamma()).exp()
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
    ///
    /// # Panics
    /// If the shapes do not broadcast.
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
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "arctan2")]
    atan2 Atan2;
    /// The magnitude of self with the sign of other.
    ///
    /// Derivative: `sign(x)·sign(y)·dy` for self; none for other.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([3.0, -2.0]).copysign(-1.0).to_vec::<f64>(), [-3.0, -2.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    copysign Copysign;
    /// ζ(self, q) = Σₖ (q + k)^(−self), Hurwitz' zeta function: infinite for self = 1 and at q = 0,
    /// −1, …, NaN for self < 1, and for a negative q where self is not an integer.
    ///
    /// Derivative: by q, −self·ζ(self + 1, q); by self it is refused, for it has no closed form.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(2.0).zeta(1.0).item::<f64>();
    /// assert!((y - std::f64::consts::PI.powi(2) / 6.0).abs() < 1e-15);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    zeta Zeta;
    /// P(self, x) = ∫₀ˣ t^(self−1)·e^(−t) dt / Γ(self), the regularised lower incomplete gamma
    /// function; NaN for negative arguments.
    ///
    /// Derivative: by x, x^(self−1)·e^(−x)/Γ(self); by self it is refused, for it has no closed
    /// form.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(1.0).gammainc(2.0).item::<f64>();
    /// // P(1, x) = 1 − e⁻ˣ.
    /// assert!((y - (1.0 - (-2f64).exp())).abs() < 1e-15);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "igamma")]
    gammainc Gammainc;
    /// Q(self, x) = 1 − P(self, x), the regularised upper incomplete gamma function, accurate where
    /// it is small.
    ///
    /// Derivative: by x, −x^(self−1)·e^(−x)/Γ(self); by self it is refused, for it has no closed
    /// form.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(1.0).gammaincc(50.0).item::<f64>();
    /// // Q(1, x) = e⁻ˣ.
    /// assert!((y / (-50f64).exp() - 1.0).abs() < 1e-13);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "igammac")]
    gammaincc Gammaincc;
    /// The larger of each pair; NaN if either is. A tie gives half the gradient to each.
    ///
    /// Derivative: `dy` to the one that it is, half to each in a tie.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 5.0]);
    /// assert_eq!(x.maximum(&Tensor::from([3.0, 4.0])).to_vec::<f64>(), [3.0, 5.0]);
    /// assert_eq!(x.maximum(2.0).to_vec::<f64>(), [2.0, 5.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    maximum Maximum;
    /// The smaller of each pair; NaN if either is. A tie gives half the gradient to each.
    ///
    /// Derivative: `dy` to the one that it is, half to each in a tie.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 5.0]);
    /// assert_eq!(x.minimum(&Tensor::from([3.0, 4.0])).to_vec::<f64>(), [1.0, 4.0]);
    /// assert_eq!(x.minimum(2.0).to_vec::<f64>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
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
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "mod")]
    remainder Remainder;
    /// The remainder with the sign of the dividend.
    ///
    /// Derivative: `dy`, and `−trunc(a/b)·dy` for the divisor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-7, 7]).fmod(3).to_vec::<i32>(), [-1, 1]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
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
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "floor_divide")]
    floor_div FloorDiv;
    /// Element-wise AND: logical on `bool`, bitwise on integers.
    ///
    /// Derivative: none (bits).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([true, true]).logical_and(&Tensor::from([true, false]));
    /// assert_eq!(y.to_vec::<bool>(), [true, false]);
    /// assert_eq!(Tensor::from([6]).logical_and(3).to_vec::<i32>(), [2]);
    /// ```
    ///
    /// # Panics
    /// If an operand is a float, or the shapes do not broadcast.
    #[doc(alias = "bitwise_and")]
    logical_and And;
    /// Element-wise OR: logical on `bool`, bitwise on integers.
    ///
    /// Derivative: none (bits).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([true, false]).logical_or(&Tensor::from([false, false]));
    /// assert_eq!(y.to_vec::<bool>(), [true, false]);
    /// assert_eq!(Tensor::from([6]).logical_or(3).to_vec::<i32>(), [7]);
    /// ```
    ///
    /// # Panics
    /// If an operand is a float, or the shapes do not broadcast.
    #[doc(alias = "bitwise_or")]
    logical_or Or;
    /// Element-wise exclusive OR: logical on `bool`, bitwise on integers.
    ///
    /// Derivative: none (bits).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([true, true]).logical_xor(&Tensor::from([true, false]));
    /// assert_eq!(y.to_vec::<bool>(), [false, true]);
    /// assert_eq!(Tensor::from([6]).logical_xor(3).to_vec::<i32>(), [5]);
    /// ```
    ///
    /// # Panics
    /// If an operand is a float, or the shapes do not broadcast.
    #[doc(alias = "bitwise_xor")]
    logical_xor Xor;
}
