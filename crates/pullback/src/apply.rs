//! The one door: every tensor method names an [`Op`] and comes through here.
//!
//! ```text
//!  infer ─► run ─► tape node, if an operand is tracked ─► push tangents, if an operand carries one
//! ```
//! An op whose row is `Decompose` is replaced by its decomposition when a derivative is wanted, and
//! runs as one fused kernel otherwise.

use crate::rule::{Facts, Grad, Maybe, Outs, Val};
use crate::storage::Storage;
use crate::tape::saved::{From, Saved};
use crate::tape::{Cut, CutReason, History, Node};
use crate::tensor::Tangents;
use crate::{Result, Tensor, fail, lock, mode, ops};
use pullback_cpu::Output;
use pullback_ir::infer::{Specs, infer};
use pullback_ir::{Layout, Op, Spec, View};
use smallvec::{SmallVec, smallvec};
use std::panic::Location;
use std::sync::Arc;

/// Applies an op with one result.
#[track_caller]
pub(crate) fn apply(op: Op, inputs: &[&Tensor]) -> Tensor {
    match apply_at(op, inputs, Location::caller()) {
        Ok(mut outs) => outs.swap_remove(0),
        Err(error) => fail::raise(error),
    }
}

/// Applies an op and gives all its results.
#[track_caller]
pub(crate) fn apply_all(op: Op, inputs: &[&Tensor]) -> Outs {
    fail::or_raise(apply_at(op, inputs, Location::caller()))
}

/// Applies any op to any operands: what every method comes down to. Operands must have the shapes
/// and dtypes that the op wants; methods broadcast and promote before they get here.
///
/// ```
/// use pullback::{Op, Tensor, try_apply};
/// let op: Op = "tanh".parse().unwrap();
/// let y = try_apply(op, &[&Tensor::from(0.5)]).unwrap();
/// assert_eq!(y[0].item::<f64>(), 0.5f64.tanh());
/// assert!(try_apply("add".parse().unwrap(), &[&Tensor::from(0.5)]).is_err());
/// ```
#[track_caller]
pub fn try_apply(op: Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    Ok(apply_at(op, inputs, Location::caller())?.into_vec())
}

/// What `apply` learns of an operand.
struct Operand {
    history: History,
    tangents: Tangents,
}

fn apply_at(op: Op, inputs: &[&Tensor], caller: &'static Location<'static>) -> Result<Outs> {
    let at = mode::user_line(caller);
    let mut seen = Seen::default();
    for x in inputs {
        x.look(at, &mut seen)?;
    }
    if (seen.tracked && mode::is_grad_enabled()) || seen.dual {
        if let Grad::Decompose(decompose) = ops::row(&op) {
            // Checked here, so that a wrong shape is an error of this op and not of its parts.
            let specs: SmallVec<[&Spec; 4]> = inputs.iter().map(|x| x.spec()).collect();
            infer(&op, &specs).map_err(|e| e.at(at))?;
            return Ok(mode::speaking_for(at, || decompose(&op, inputs)));
        }
    }
    let outs = run(&op, inputs).map_err(|e| e.at(at))?;
    if seen.noted {
        record(op, inputs, operands(inputs, at)?, &outs, at);
    }
    Ok(outs)
}

/// What the operands of an op have between them, seen at a glance.
#[derive(Default)]
pub(crate) struct Seen {
    /// Some have a history or tangents of any kind.
    pub noted: bool,
    /// A float is tracked.
    pub tracked: bool,
    /// A float carries a tangent.
    pub dual: bool,
}

fn operands(inputs: &[&Tensor], at: &'static Location<'static>) -> Result<SmallVec<[Operand; 3]>> {
    let mut operands = SmallVec::new();
    for x in inputs {
        let (history, tangents) = x.state(at)?;
        operands.push(Operand { history, tangents });
    }
    Ok(operands)
}

/// Computes the values.
fn run(op: &Op, inputs: &[&Tensor]) -> Result<Outs> {
    if let Op::View(view) = op {
        return run_view(op, view, inputs);
    }
    let mut outs = Outs::new();
    for output in lock::read(inputs, |inputs| pullback_cpu::run(op, inputs))? {
        outs.push(from_output(output));
    }
    Ok(outs)
}

fn from_output(output: Output) -> Tensor {
    let shape = output.spec.shape.clone();
    let layout = if output.splat { Layout::splat(shape) } else { Layout::dense(shape) };
    Tensor::new(output.spec, layout, Arc::new(Storage::new(output.buffer)))
}

/// A view is arithmetic on the layout, except a reshape of elements that are not evenly spaced.
fn run_view(op: &Op, view: &View, inputs: &[&Tensor]) -> Result<Outs> {
    let specs: SmallVec<[&Spec; 1]> = inputs.iter().map(|x| x.spec()).collect();
    let spec = infer(op, &specs)?.swap_remove(0);
    let x = inputs[0];
    if let Some(layout) = x.0.layout.view(view) {
        let parent = Some(Box::new((x.clone(), view.clone())));
        return Ok(smallvec![Tensor::with_parent(spec, layout, x.0.storage.clone(), parent)]);
    }
    let mut dense = lock::read(&[x], |inputs| pullback_cpu::run(&Op::Copy, inputs))?;
    let buffer = dense.swap_remove(0).buffer;
    Ok(smallvec![Tensor::new(spec.clone(), Layout::dense(spec.shape), Arc::new(Storage::new(buffer)))])
}

/// Puts the results of an op on the tape and gives them their tangents.
fn record(
    op: Op,
    inputs: &[&Tensor],
    mut operands: SmallVec<[Operand; 3]>,
    outs: &Outs,
    at: &'static Location<'static>,
) {
    let row = ops::row(&op);
    let reaches = |i: usize| inputs[i].dtype().is_float() && row.reaches(i);
    // Which of the first operands are tracked: rows that ask have at most three.
    let (mut tracked, mut any) = ([false; 4], false);
    for (i, o) in operands.iter().enumerate() {
        let on = reaches(i) && o.history.is_tracked();
        any |= on;
        if let Some(slot) = tracked.get_mut(i) {
            *slot = on;
        }
    }
    let differentiable = outs.iter().any(|y| y.dtype().is_float());
    if any && differentiable && mode::is_grad_enabled() {
        let mut saved: Vec<Saved> = Vec::new();
        for (i, x) in inputs.iter().enumerate() {
            if row.keeps(Val::In(i), &tracked) {
                saved.push(Saved::pack(From::Input(i as u32), x, &operands[i].tangents));
            }
        }
        for (k, y) in outs.iter().enumerate() {
            if row.keeps(Val::Out(k), &tracked) {
                saved.push(Saved::pack(From::Output(k as u32), y, &Tangents::new()));
            }
        }
        let uniform = op.is_pointwise() && !matches!(op, Op::Cast(_) | Op::Select);
        let in_specs = match uniform {
            true => Box::default(),
            false => inputs.iter().map(|x| x.spec().clone()).collect(),
        };
        let (mut out_specs, mut edges) = (Specs::new(), SmallVec::new());
        for y in outs {
            out_specs.push(y.spec().clone());
        }
        let dual = operands.iter().any(|o| !o.tangents.is_empty());
        let ints = outs.iter().any(|y| !y.dtype().is_float());
        for (i, o) in operands.iter_mut().enumerate() {
            edges.push(match (&mut o.history, reaches(i)) {
                (history @ (History::Leaf(_) | History::Node(..)), false) => {
                    Cut::between(CutReason::Constant, op.name(), at, [&*history].into_iter())
                }
                // Needed again below only where there are tangents or results without derivative.
                (history, _) if dual || ints => history.clone(),
                (history, _) => std::mem::take(history),
            });
        }
        let node = Arc::new(Node::new(op.clone(), at, edges, in_specs, out_specs, saved));
        for (k, y) in outs.iter().enumerate() {
            y.lock().history = match y.dtype().is_float() {
                true => History::Node(node.clone(), k as u32),
                false => constant(CutReason::Constant, &op, at, &operands),
            };
        }
    } else {
        let why = if mode::is_grad_enabled() { CutReason::Constant } else { CutReason::NoGrad };
        for y in outs {
            y.lock().history = constant(why, &op, at, &operands);
        }
    }
    if operands.iter().any(|o| !o.tangents.is_empty()) {
        mode::speaking_for(at, || push_tangents(&op, &row, inputs, &operands, outs));
    }
}

fn constant(why: CutReason, op: &Op, at: &'static Location<'static>, operands: &[Operand]) -> History {
    Cut::between(why, op.name(), at, operands.iter().map(|o| &o.history))
}

/// Forward mode. Levels go from the outermost in: at each, operands and results carry the tangents
/// of the levels outside it, so a tangent is itself differentiated by those.
fn push_tangents(op: &Op, row: &Grad, inputs: &[&Tensor], operands: &[Operand], outs: &Outs) {
    let mut levels: SmallVec<[u64; 2]> =
        operands.iter().flat_map(|o| o.tangents.iter().map(|t| t.0)).collect();
    levels.sort_unstable();
    levels.dedup();
    let in_specs: SmallVec<[Spec; 2]> = inputs.iter().map(|x| x.spec().clone()).collect();
    let out_specs: SmallVec<[Spec; 1]> = outs.iter().map(|y| y.spec().clone()).collect();
    for level in levels {
        let mut facts = Facts::new(op, &in_specs, &out_specs, SmallVec::from_elem(true, inputs.len()));
        for (i, (x, o)) in inputs.iter().zip(operands).enumerate() {
            let outer = o.tangents.iter().filter(|t| t.0 < level).cloned().collect();
            facts.set(Val::In(i), x.alias(o.history.clone(), outer));
        }
        for (k, y) in outs.iter().enumerate() {
            let (history, tangents) = {
                let state = y.lock();
                (state.history.clone(), state.tangents.clone())
            };
            facts.set(Val::Out(k), y.alias(history, tangents));
        }
        let at_level = |o: &Operand| o.tangents.iter().find(|t| t.0 == level).map(|t| t.1.clone());
        let tangents: Maybe = operands.iter().map(at_level).collect();
        if let Some(found) = row.jvp(&facts, &tangents) {
            for (y, t) in outs.iter().zip(found).filter(|(y, _)| y.dtype().is_float()) {
                y.lock().tangents.push((level, t));
            }
        }
    }
    for y in outs {
        let (history, tangents) = {
            let state = y.lock();
            (state.history.clone(), state.tangents.clone())
        };
        if let History::Node(node, k) = history {
            node.attach_tangents(k, &tangents);
        }
    }
}

/// Records a write in place as an op whose result is `out` (already known): used by `inplace.rs`.
pub(crate) fn record_as(op: Op, inputs: &[&Tensor], out: &Tensor, at: &'static Location<'static>) -> Result<()> {
    record(op, inputs, operands(inputs, at)?, &smallvec![out.clone()], at);
    Ok(())
}
