//! How an op differentiates: the vocabulary of the rows in `ops/`, and what follows from a row.
//!
//! A row says only what is particular to its op. Derived here, once, for all: the reverse rule
//! (`vjp`), the forward rule (`jvp`), what the tape keeps, and which operands need nothing.
//! Accumulation, zeros, need and dtype checks never appear in a row.
//!
//! Bodies of rows are ordinary tensor code. So a rule that runs while recording is on is recorded
//! like anything else: double backward needs no second implementation.

pub(crate) use crate::rule_context::{A, B, RuleContext, Val, X, Y};
pub(crate) use crate::rule_context::{DerivativeFn, Derivatives};
pub(crate) use crate::slope::{Slope, chain, slopes};
pub(crate) use crate::tensors::Tensors;

use crate::custom::RuleHandle;
use crate::{Op, Spec, Tensor};
use std::sync::Arc;

/// How y = f(x…) differentiates.
pub(crate) enum Grad {
    /// Piecewise constant: the gradient is zero by definition, not by omission.
    Zero,
    /// Pointwise: the slope with respect to each operand.
    Slopes(&'static [Slope]),
    /// Linear in some operands, jointly; the transpose maps `dy` to the gradient of operand `i`.
    Linear(LinearRule),
    /// Linear in each of two operands; the transpose may use the other one.
    Bilinear(BilinearRule),
    /// Anything else.
    ByHand(ByHand),
    /// Control flow: keeps its operands, which costs nothing inside a program.
    /// Both modes, and whether backward reads results: what a scan kept.
    Flow(DerivativeFn, DerivativeFn, bool),
    /// A decomposition into simpler ops: used instead of the op wherever a derivative is needed.
    Decompose(fn(&Op, &[&Tensor]) -> Tensors),
    /// Defined by the user.
    Custom(Arc<RuleHandle>),
}

pub(crate) struct LinearRule {
    /// The operands it is linear in; the others are kept if the transpose uses them.
    pub wrt: OperandSet,
    /// The other operands that the transpose uses.
    pub uses: OperandSet,
    pub transpose: fn(&RuleContext, usize, &Tensor) -> Tensor,
    pub adds: Adds,
    /// The gradient as a formula, for the documentation.
    pub formula: &'static str,
}

pub(crate) struct BilinearRule {
    pub transpose: fn(&RuleContext, usize, &Tensor) -> Tensor,
    pub adds: Adds,
    /// The gradients as formulas, for the documentation.
    pub formula: &'static str,
}

pub(crate) struct ByHand {
    pub uses: &'static [Val],
    pub vjp: DerivativeFn,
    pub jvp: fn(&RuleContext, &Derivatives) -> Tensors,
    /// The gradients as formulas, for the documentation.
    pub formula: &'static str,
}

/// How several contributions to one gradient become their sum, where there is a better way than to
/// compute each and add it.
#[derive(Clone, Copy)]
pub(crate) enum Adds {
    /// There is none.
    Separately,
    /// The gradient of an operand, for this `dy`, can be added to a sum that is there already, in
    /// place; `false` where it cannot, and nothing was done.
    Into(AddInto),
    /// The gradient of a cast of a leaf is passed on to the leaf immediately, if that is wider, and
    /// is accumulated there: `(spec of the leaf, dy)`. Such a node saves nothing, and several
    /// graphs may share it.
    AtLeaf(fn(&Spec, &Tensor) -> Tensor),
}

/// Adds the gradient of operand `i` for `dy` to a sum: `(ctx, i, dy, sum)`.
pub(crate) type AddInto = fn(&RuleContext, usize, &Tensor, &Tensor) -> bool;

/// A set of operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperandSet {
    All,
    Of(&'static [usize]),
}

impl OperandSet {
    pub fn has(self, i: usize) -> bool {
        match self {
            OperandSet::All => true,
            OperandSet::Of(list) => list.contains(&i),
        }
    }
}

impl Grad {
    /// Whether the op can pass a gradient to operand `i`.
    pub fn reaches(&self, i: usize) -> bool {
        match self {
            Grad::Zero => false,
            Grad::Slopes(slopes) => i < slopes.len(),
            Grad::Linear(linear) => linear.wrt.has(i),
            Grad::Bilinear(_) => i < 2,
            Grad::ByHand(_) | Grad::Flow(..) | Grad::Decompose(_) => true,
            Grad::Custom(custom) => custom.reaches(i),
        }
    }

    /// Whether the tape must keep a value, given which operands are tracked.
    pub fn keeps(&self, val: Val, tracked: &[bool]) -> bool {
        let wanted = |i: usize| tracked.get(i).copied().unwrap_or(false);
        match self {
            Grad::Zero | Grad::Decompose(_) => false,
            Grad::Slopes(slopes) => {
                slopes.iter().enumerate().any(|(i, s)| wanted(i) && s.uses.contains(&val))
            }
            Grad::Linear(linear) => {
                matches!(val, Val::In(i) if !linear.wrt.has(i) && linear.uses.has(i))
            }
            Grad::Bilinear(_) => matches!(val, Val::In(i) if i < 2 && wanted(1 - i)),
            Grad::ByHand(hand) => hand.uses.contains(&val),
            Grad::Flow(_, _, results) => *results || matches!(val, Val::In(_)),
            Grad::Custom(custom) => custom.rule().keeps(val),
        }
    }

    /// How contributions to the gradients of its operands are added up.
    pub fn adds(&self) -> Adds {
        match self {
            Grad::Linear(linear) => linear.adds,
            Grad::Bilinear(two) => two.adds,
            Grad::Zero
            | Grad::Slopes(_)
            | Grad::ByHand(_)
            | Grad::Flow(..)
            | Grad::Decompose(_)
            | Grad::Custom(_) => Adds::Separately,
        }
    }

    /// Reverse mode: from the gradients of the outputs to those of the operands, which are added to
    /// `out`: a list that is returned is copied just after it was written.
    pub fn vjp(&self, ctx: &RuleContext, dys: &Derivatives, out: &mut Derivatives) {
        let n = ctx.counts().0;
        let mut each = |f: &dyn Fn(usize, &Tensor) -> Tensor| {
            for i in 0..n {
                out.push(dys[0].as_ref().filter(|_| ctx.needs(i)).map(|dy| f(i, dy)));
            }
        };
        match self {
            Grad::Zero | Grad::Decompose(_) => out.resize(n, None),
            Grad::Slopes(slopes) => each(&|i, dy| slopes[i].times(ctx, dy)),
            Grad::Linear(linear) => each(&|i, dy| (linear.transpose)(ctx, i, dy)),
            Grad::Bilinear(two) => each(&|i, dy| (two.transpose)(ctx, i, dy)),
            Grad::ByHand(hand) => *out = (hand.vjp)(ctx, dys),
            Grad::Flow(vjp, ..) => *out = vjp(ctx, dys),
            Grad::Custom(custom) => *out = custom.rule().vjp(ctx, dys),
        }
    }
}
