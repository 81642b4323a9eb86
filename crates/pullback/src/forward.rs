//! Forward mode: tangents are pushed along with the values, as an op is applied.

use crate::apply::{OperandState, Operands};
use crate::rule::{Derivatives, Grad, RuleContext, Slope, Tensors, Val};
use crate::tangents::Tangents;
use crate::tape::{History, Node};
use crate::transform::levels;
use crate::{Spec, Tensor, apply, autocast, kinks, mode};
use pullback_ir::{Line, Op};
use smallvec::SmallVec;

/// Gives the results of an op their tangents, for the user's line and in the dtypes that the op
/// has.
pub(crate) fn push(
    op: &Op,
    row: &Grad,
    inputs: &[&Tensor],
    operands: &Operands,
    outs: &[Tensor],
    at: Line,
) {
    let push = || mode::with_line(at, || push_tangents(op, row, inputs, operands, outs));
    autocast::off(|| kinks::off(push));
}

/// Levels go from the outermost in: at each, operands and results carry the tangents of the levels
/// outside it, so a tangent is itself differentiated by those.
fn push_tangents(
    op: &Op,
    row: &Grad,
    inputs: &[&Tensor],
    operands: &[OperandState],
    outs: &[Tensor],
) {
    let mut present: SmallVec<[u64; 2]> =
        operands.iter().flat_map(|o| o.tangents.iter().map(|t| t.0)).collect();
    present.sort_unstable();
    present.dedup();

    let in_specs: SmallVec<[Spec; 2]> = inputs.iter().map(|x| x.spec().clone()).collect();
    let out_specs: SmallVec<[Spec; 1]> = outs.iter().map(|y| y.spec().clone()).collect();
    for &level in &present {
        let mut ctx =
            RuleContext::new(op, &in_specs, &out_specs, SmallVec::from_elem(true, inputs.len()));
        for (i, (x, o)) in inputs.iter().zip(operands).enumerate() {
            let outer = o.tangents.iter().filter(|t| t.0 < level).cloned().collect();
            ctx.set(Val::In(i), x.alias(o.history.clone(), outer));
        }
        for (k, y) in outs.iter().enumerate() {
            let (history, tangents) = {
                let state = y.lock();
                (state.history.clone(), state.tangents.clone())
            };
            ctx.set(Val::Out(k), y.alias(history, tangents));
        }
        let at_level =
            |o: &OperandState| o.tangents.iter().find(|t| t.0 == level).map(|t| t.1.clone());
        let tangents: Derivatives = operands.iter().map(at_level).collect();
        if let Some(found) = row.jvp(&ctx, &tangents) {
            for (y, t) in outs.iter().zip(found).filter(|(y, _)| y.dtype().is_float()) {
                y.lock().tangents.extend(t.map(|t| (level, t)));
            }
        }
    }
    for y in outs {
        let (history, tangents) = {
            let state = y.lock();
            (state.history.clone(), state.tangents.clone())
        };
        if let History::Node(node, k) = history {
            node.attach_tangents(k as usize, &tangents);
            levels::remember(&node, &present);
        }
    }
}

impl Grad {
    /// From the tangents of the operands to those of the outputs that have one; `None` where no
    /// tangent arrives. `ctx` holds every operand and output.
    pub fn jvp(&self, ctx: &RuleContext, tangents: &Derivatives) -> Option<Derivatives> {
        let arrives = |i: usize| self.reaches(i) && tangents[i].is_some();
        if !(0..tangents.len()).any(arrives) {
            return None;
        }
        let one = |t: Option<Tensor>| t.map(|t| SmallVec::from_elem(Some(t), 1));
        let all = |ts: Tensors| Some(ts.into_iter().map(Some).collect());
        let sum = |terms: &mut dyn Iterator<Item = Tensor>| terms.reduce(|a, b| a + b);
        match self {
            Grad::Zero | Grad::Decompose(_) => None,
            Grad::Slopes(slopes) => {
                let term = |(i, s): (usize, &Slope)| Some(s.times(ctx, tangents[i].as_ref()?));
                one(sum(&mut slopes.iter().enumerate().filter_map(term)))
            }
            Grad::Linear(linear) => {
                let operand = |i: usize| match (&tangents[i], linear.wrt.has(i)) {
                    (_, false) => ctx.x(i).clone(),
                    (Some(t), true) => t.clone(),
                    (None, true) => ctx.x(i).zeros_like_splat(),
                };
                let operands: SmallVec<[Tensor; 4]> = (0..tangents.len()).map(operand).collect();
                all(apply::apply_all(
                    ctx.op.clone(),
                    &operands.iter().collect::<SmallVec<[_; 4]>>(),
                ))
            }
            Grad::Bilinear(_) => {
                let op = |a: &Tensor, b: &Tensor| apply::apply(ctx.op.clone(), &[a, b]);
                let left = tangents[0].as_ref().map(|t| op(t, ctx.x(1)));
                let right = tangents[1].as_ref().map(|t| op(ctx.x(0), t));
                one(sum(&mut left.into_iter().chain(right)))
            }
            Grad::ByHand(hand) => all((hand.jvp)(ctx, tangents)),
            Grad::Flow(_, jvp, _) => Some(jvp(ctx, tangents)),
            Grad::Custom(custom) => all(custom.rule().jvp(ctx, tangents)),
        }
    }
}

impl Node {
    /// Gives the tangents that an output got to the saved copies of it.
    pub fn attach_tangents(&self, output: usize, tangents: &[(u64, Tensor)]) {
        if let Some(values) = &mut *self.saved() {
            for value in values.iter_mut().filter(|v| v.is_output(output)) {
                value.tangents = tangents.iter().cloned().collect();
            }
        }
    }

    /// Drops the saved tangents of a level that has ended.
    pub fn forget_tangents(&self, level: u64) {
        let mut gone = Tangents::new();
        for value in self.saved().iter_mut().flatten() {
            let (old, kept) =
                std::mem::take(&mut value.tangents).into_iter().partition(|t| t.0 == level);
            value.tangents = kept;
            gone.extend::<Tangents>(old);
        }
        // Dropped after the lock is released: it may refer to this node.
        drop(gone);
    }
}
