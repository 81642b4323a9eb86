//! Slopes: the derivative of a pointwise op with respect to one operand, as a formula.

use crate::apply::apply;
use crate::rule::Val;
use crate::rule_context::RuleContext;
use crate::{Op, Tensor};
use smallvec::SmallVec;

/// One partial derivative, from the values that it names.
pub(crate) struct Slope {
    pub uses: &'static [Val],
    pub slope: fn(&[&Tensor]) -> Tensor,
    /// The formula, for the documentation.
    pub text: &'static str,
}

/// Slopes of a pointwise op, one per operand: `slopes!(Y => |y| 1.0 - y * y)`.
///
/// Expands to
/// `Grad::Slopes(&[Slope { uses: &[Y], slope: |v| { let [y] = v …; 1.0 - y * y }, text: "1.0 - y * y" }])`.
macro_rules! slopes {
    ($($($val:ident)* => |$($v:ident),*| $body:expr);+ $(;)?) => {
        $crate::rule::Grad::Slopes(const {
            const SLOPES: &[$crate::rule::Slope] = &[$($crate::rule::Slope {
            uses: &[$($crate::rule::$val),*],
            slope: |values| {
                let &[$($v),*] = values else { unreachable!("a slope is given what it uses") };
                $body
            },
            text: stringify!($body),
            }),+];
            // `tape/record.rs` tells rows which of the first four operands are tracked.
            assert!(SLOPES.len() <= 4);
            SLOPES
        })
    };
}
pub(crate) use slopes;

impl Slope {
    /// `slope · d`, in one pass where there is a kernel for it.
    pub fn times(&self, ctx: &RuleContext, d: &Tensor) -> Tensor {
        let mut values: SmallVec<[&Tensor; 3]> = SmallVec::new();
        self.uses.iter().for_each(|&v| values.push(ctx.value(v)));
        match ctx.op {
            Op::Unary(f) if f.fused_vjp().is_some() => apply(Op::UnaryVjp(*f), &[values[0], d]),
            _ => chain(d, &(self.slope)(&values)),
        }
    }

    pub fn of(&self, values: &[&Tensor]) -> Tensor {
        (self.slope)(values)
    }
}

/// `d · slope`. The cotangent of a sum is one broadcast value, most often 1: then the product is
/// the slope itself, exactly, and a pass over memory is saved.
pub(crate) fn chain(d: &Tensor, slope: &Tensor) -> Tensor {
    const WORTH_LOOKING: usize = 4096;
    if d.len() >= WORTH_LOOKING && d.spec() == slope.spec() && d.is_constant_one() {
        return slope.clone();
    }
    d * slope
}
