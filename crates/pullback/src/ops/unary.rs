//! Functions of one element. Each has a row and a method in the file of its family; here is what
//! reads the rows.

use crate::apply::apply;
use crate::autocast::Policy;
use crate::kinks::mask::Spots;
use crate::memory::Need;
use crate::rule::{Grad, Tensors};
use crate::{Op, Tensor, kinks};
use pullback_ir::{DType, Unary, unary_rows};

/// What a row says.
trait Row {
    /// What [`autocast`](crate::autocast()) does with the operand.
    const POLICY: Policy;
    /// What the derivative needs of a saved value.
    const NEED: Need;

    /// How the function differentiates.
    fn grad() -> Grad;

    /// Where it has no derivative, and how such elements are found.
    fn kink() -> Option<(kinks::KinkKind, Spots)>;

    /// `dy · f'` from the kept value, where that is not the product with the slope.
    fn stepwise() -> Option<fn(&Tensor, &Tensor) -> Tensor>;
}

/// Rows of functions, in columns.
///
/// In a slope, `x` is the input and `y` the output; what is not named is not saved for backward.
///
/// `policy`: functions whose intermediate values exceed the range or the precision of 16 bits are
/// in `F32`.
///
/// `need`, by the slope; numbers say by how many ε the derivative is off
/// (`memory/compress/need.rs`):
/// - `Exact`, where nothing is saved. Where a pole at ±1 loses the distance of an x near it (log1p,
///   asin, acos, acosh, atanh). exp(y²), off by 2y² (erfinv, ndtri). Differences of saved values,
///   poles, and slopes that grow like exp(x) (sinh to i1e).
/// - `MaxRelative`: powers of what is saved, 1, 2, 3 (square, exp, recip, rsqrt). y + 1, off by 1
///   of y, which is below 1 or below the slope; 1 + y², by 2. 1 − y², off by 2 of 1 as |y| ≤ 1;
///   y·(1 − y), by 1.
/// - `Relative`: quotients, 1.
/// - `Mixed`: powers of 1 + x², 2 and 1 of themselves; the second derivative is below 1 as well, as
///   eight bits need it. Of erf to silu, x times the second derivative, and that itself, are
///   below 1. (log_ndtr grows like −x, and is then off by 1 of itself.)
/// - `Absolute`: off by |x| of 1.
///
/// `vjp`, where what divides must do so one after the other: an intermediate square would overflow
/// in the next derivative before the result does.
macro_rules! rows {
    ($($f:ident $policy:ident $need:ident $kink:tt $grad:expr $(, vjp $vjp:expr)?;)*) => {$(
        pub(super) struct $f;

        impl Row for $f {
            const POLICY: $crate::autocast::Policy = $crate::autocast::Policy::$policy;
            const NEED: $crate::memory::Need = $crate::memory::Need::$need;

            fn grad() -> Grad {
                $grad
            }

            fn kink() -> Option<($crate::kinks::KinkKind, $crate::kinks::mask::Spots)> {
                $crate::kinks::kink!($kink)
            }

            fn stepwise() -> Option<fn(&Tensor, &Tensor) -> Tensor> {
                stepwise!($($vjp)?)
            }
        }
    )*};
}

macro_rules! stepwise {
    () => {
        None
    };
    ($vjp:expr) => {
        Some($vjp)
    };
}

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

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            #[must_use]
            pub fn $name(&self) -> Tensor {
                self.unary(pullback_ir::Unary::$op)
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
                self.unary(pullback_ir::Unary::$op)
            }
        )*}
    };
}

mod activations;
mod algebra;
mod elementary;
mod special;

use {activations::*, algebra::*, elementary::*, special::*};

/// One lookup for each column: a function without a row does not compile.
macro_rules! lookups {
    ($(
        $f:ident $name:ident $value:literal $ints:tt $exact:ident $cost:literal $native:ident
        $native_vjp:ident $domain:tt $peer:tt $kernel:tt $cuda:tt $vjp:tt $cuda_vjp:tt;
    )*) => {
        pub(crate) fn grad(f: Unary) -> Grad {
            match f { $(Unary::$f => $f::grad()),* }
        }

        pub(crate) fn policy(f: Unary) -> Policy {
            match f { $(Unary::$f => $f::POLICY),* }
        }

        pub(crate) fn need(f: Unary) -> Need {
            match f { $(Unary::$f => $f::NEED),* }
        }

        pub(crate) fn kink(f: Unary) -> Option<(kinks::KinkKind, Spots)> {
            match f { $(Unary::$f => $f::kink()),* }
        }

        fn stepwise(f: Unary) -> Option<fn(&Tensor, &Tensor) -> Tensor> {
            match f { $(Unary::$f => $f::stepwise()),* }
        }
    };
}
unary_rows!(lookups);

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
