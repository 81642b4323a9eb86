//! The single entry point: every tensor method names an [`Op`] and calls this.
//!
//! What happens to `x.matmul(&w)`, in order:
//!
//! ```text
//!  apply ─► operands: what history and tangents does each have?
//!    │
//!    ├─ nothing to differentiate ───────────────► compute
//!    └─ otherwise the row of the op says how:
//!         a decomposition, or a loop that saves more ─► apply those instead
//!         anything else ─► compute ─► record (a tape node, and tangents)
//! ```
//!
//! *Operands.* A write in place, a trace or `no_grad` may change or hide a tensor's history;
//! [`Tensor::state`] returns the current state. Most operands have neither history nor tangents.
//! *Compute.* In a trace the op becomes an equation of a program. Otherwise the backend runs it.
//! *Record* (`tape/record.rs`). The results get a node: the op, the line, the histories of the
//! operands (its edges, which `tape/backward.rs` follows) and the values that the row names.
//! Tangents are pushed at once (`forward.rs`).
//!
//! Autocast, conventions at kinks and observers of ops are not part of this: where any of them is
//! on, one bit selects [`instrumented`], and all other notifications go through `events.rs`.

use crate::rule::{Grad, Tensors};
use crate::tangents::Tangents;
use crate::tape::History;
use crate::tape::record::record;
use crate::{Result, Tensor, autocast, backend, control, events, fail, kinks, mode, ops, trace};
use pullback_ir::infer::{Checked, check};
use pullback_ir::{Line, Op, Spec};
use smallvec::SmallVec;
use std::panic::Location;

/// Applies an op with one result.
#[track_caller]
pub(crate) fn apply(op: Op, inputs: &[&Tensor]) -> Tensor {
    apply_last(op, inputs, History::None)
}

/// [`apply`] where the first operand is not used again: this history was taken out of it.
#[track_caller]
pub(crate) fn apply_last(op: Op, inputs: &[&Tensor], taken: History) -> Tensor {
    match apply_at(&op, inputs, taken, mode::user_line(Location::caller())) {
        Ok(outs) => outs.into_first(),
        Err(error) => fail::raise(error),
    }
}

/// Applies an op and gives all its results.
#[track_caller]
pub(crate) fn apply_all(op: Op, inputs: &[&Tensor]) -> Tensors {
    fail::or_raise(apply_at(&op, inputs, History::None, mode::user_line(Location::caller())))
}

/// Applies an op to operands: what every tensor method calls in the end. The operands must have the
/// shapes and dtypes that the op takes; methods broadcast and promote before they call this.
///
/// ```
/// use pullback::{Op, Tensor, try_apply};
/// let op: Op = "tanh".parse().unwrap();
/// let y = try_apply(op, &[&Tensor::from(0.5)]).unwrap();
/// assert_eq!(y[0].item::<f64>(), 0.5f64.tanh());
/// assert!(try_apply("add".parse().unwrap(), &[&Tensor::from(0.5)]).is_err());
/// ```
///
/// # Errors
/// If the op does not take these operands: their number, shapes, dtypes or devices. Where the
/// backend fails, with its error.
#[track_caller]
pub fn try_apply(op: Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    Ok(apply_at(&op, inputs, History::None, mode::user_line(Location::caller()))?.into_vec())
}

#[inline]
fn apply_at(op: &Op, inputs: &[&Tensor], taken: History, at: Line) -> Result<Tensors> {
    match events::is_instrumented() {
        false => run(op, inputs, taken, at),
        true => instrumented(op, inputs, at),
    }
}

/// An instrumented op: its operands are cast as `autocast` wants, another convention at kinks may
/// apply, and its results are checked.
#[cold]
fn instrumented(op: &Op, inputs: &[&Tensor], at: Line) -> Result<Tensors> {
    let cast = autocast::cast_operands(op, inputs, at);
    let cast: Option<SmallVec<[&Tensor; 4]>> = cast.as_ref().map(|list| list.iter().collect());
    let inputs = cast.as_deref().unwrap_or(inputs);
    events::op_starts(op, inputs, at);
    let outs = match kinks::by_convention(op, inputs, at)? {
        Some(y) => Tensors::One(y),
        None => run(op, inputs, History::None, at)?,
    };
    events::op_ran(op, inputs, &outs, at)?;
    Ok(outs)
}

/// The state of an operand that `apply` needs.
pub(crate) struct OperandState {
    pub history: History,
    pub tangents: Tangents,
    /// `no_grad` has removed tangents.
    pub cut: bool,
}

impl OperandState {
    /// Neither history nor tangents. A constant, which is written where it is wanted.
    pub const NONE: OperandState =
        OperandState { history: History::None, tangents: Tangents::new(), cut: false };

    /// Whether there is anything to record for it.
    fn has_derivative_state(&self) -> bool {
        !matches!(self.history, History::None) || !self.tangents.is_empty() || self.cut
    }

    /// Whether a derivative with respect to `x`, whose state this is, will be needed.
    pub fn is_differentiated(&self, x: &Tensor) -> bool {
        let tracked = self.history.is_tracked() && mode::is_grad_enabled();
        x.dtype().is_float() && (tracked || !self.tangents.is_empty())
    }
}

pub(crate) type Operands = SmallVec<[OperandState; 2]>;

fn run(op: &Op, inputs: &[&Tensor], taken: History, at: Line) -> Result<Tensors> {
    events::values_read(inputs, at);
    // Made where they stay, and set there: a whole state that is pushed is copied at once.
    let mut operands = match inputs.len() {
        n @ 0..=2 => Operands::from_buf_and_len([OperandState::NONE; 2], n),
        n => (0..n).map(|_| OperandState::NONE).collect(),
    };
    if let (Some(first), History::Node(..)) = (operands.first_mut(), &taken) {
        first.history = taken;
    }
    let (mut noted, mut differentiated) = (false, false);
    for (x, operand) in inputs.iter().zip(&mut operands) {
        if !operand.history.is_tracked() {
            x.set_state(at, operand)?;
        }
        if operand.has_derivative_state() {
            noted = true;
            differentiated |= operand.is_differentiated(x);
        }
    }
    if !noted {
        return match trace::active() {
            true => Ok(traced(op, inputs, at)?.1),
            false => computed(op, inputs, at),
        };
    }
    let row = ops::row(op);
    if differentiated && let Some(outs) = decompose_or_prepare(op, &row, inputs, &operands, at)? {
        return Ok(outs);
    }
    if trace::active() {
        let (lifted, mut outs) = traced(op, inputs, at)?;
        let lifted: SmallVec<[&Tensor; 4]> = lifted.iter().collect();
        record(op, &row, &lifted, &mut operands, &mut outs, at);
        return Ok(outs);
    }
    let mut outs = computed(op, inputs, at)?;
    record(op, &row, inputs, &mut operands, &mut outs, at);
    Ok(outs)
}

fn computed(op: &Op, inputs: &[&Tensor], at: Line) -> Result<Tensors> {
    checked(op, inputs, |call| compute(call, inputs, at)).map_err(|e| e.at(at))
}

/// Computes the results of an op in fresh memory.
pub(crate) fn compute(call: &Checked, inputs: &[&Tensor], at: Line) -> Result<Tensors> {
    let op = call.op();
    let outs = backend::compute(call, inputs, at)?;
    events::op_computed(op, inputs, &outs, at);
    Ok(outs)
}

/// Checks an op against its operands, once: backends and traces take [`Checked`] ops.
#[inline]
pub(crate) fn checked<R>(
    op: &Op,
    inputs: &[&Tensor],
    f: impl FnOnce(&Checked<'_>) -> Result<R>,
) -> Result<R> {
    // By reference: what is moved out of a result is copied.
    let run = |call: &Result<Checked>| match call {
        Ok(call) => f(call),
        Err(error) => Err(error.clone()),
    };
    // The common arities without lists.
    match inputs {
        [a] => run(&check(op, &[a.spec()])),
        [a, b] => run(&check(op, &[a.spec(), b.spec()])),
        _ => run(&check(op, &inputs.iter().map(|x| x.spec()).collect::<SmallVec<[&Spec; 6]>>())),
    }
}

/// Records the op in the trace that is active: the operands as the trace sees them, and the
/// results.
fn traced(op: &Op, inputs: &[&Tensor], at: Line) -> Result<(SmallVec<[Tensor; 4]>, Tensors)> {
    let lifted: SmallVec<[Tensor; 4]> = inputs.iter().map(|x| trace::lift(x, at)).collect();
    let emit = |operands: SmallVec<[&Tensor; 4]>| {
        checked(op, &operands, |call| trace::apply_traced(call.clone(), &operands, at))
    };
    let outs = emit(lifted.iter().collect()).map_err(|e| e.at(at))?;
    Ok((lifted, outs))
}

/// What runs instead of an op that is differentiated: a decomposition, or a loop saving residuals.
fn decompose_or_prepare(
    op: &Op,
    row: &Grad,
    inputs: &[&Tensor],
    operands: &Operands,
    at: Line,
) -> Result<Option<Tensors>> {
    match row {
        Grad::Decompose(decompose) => {
            // Checked here, so that a wrong shape is an error of this op and not of its parts.
            checked(op, inputs, |_| Ok(())).map_err(|e| e.at(at))?;
            // The product of a single element is that element, in new memory.
            let own = |outs: Tensors| outs.into_iter().map(|y| y.unaliased_with(inputs)).collect();
            let simpler = || mode::with_line(at, || own(decompose(op, inputs)));
            Ok(Some(autocast::off(|| kinks::decomposed(simpler))))
        }
        Grad::Custom(handle) => {
            handle.refuse_captured(op.name(), inputs, operands).map_err(|e| e.at(at))?;
            Ok(None)
        }
        Grad::Flow(..) => {
            let differentiated = |i: usize| operands[i].is_differentiated(inputs[i]);
            control::check_captured(op, differentiated).map_err(|e| e.at(at))?;
            let prepare = || mode::with_line(at, || control::prepare(op, at));
            let Some(more) = autocast::off(|| kinks::off(prepare)) else { return Ok(None) };
            let mut outs = apply_at(&more.op, &more.operands(inputs), History::None, at)?;
            outs.truncate(more.own);
            Ok(Some(outs))
        }
        Grad::Zero | Grad::Slopes(_) | Grad::Linear(_) | Grad::Bilinear(_) | Grad::ByHand(_) => {
            Ok(None)
        }
    }
}
