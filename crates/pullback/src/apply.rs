//! The one door: every tensor method names an [`Op`] and comes through here.
//!
//! ```text
//!  infer ─► run ─► tape node, if an operand is tracked ─► push tangents, if an operand carries one
//! ```
//! An op whose row is `Decompose` is replaced by its decomposition when a derivative is wanted, and
//! runs as one fused kernel otherwise.

use crate::memory::report::ledger;
use crate::memory::{budget, checkpoint};
use crate::rule::{Facts, Grad, Maybe, Outs, Val};
use crate::tape::saved::{From, Saved};
use crate::tape::{Cut, CutReason, History, Node};
use crate::tensor::Tangents;
use crate::transform::levels;
use crate::{
    Error, Result, Tensor, autocast, backend, control, fail, kinks, mode, ops, trace, watch,
};
use pullback_ir::infer::{Specs, infer};
use pullback_ir::{Line, Op, Spec};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Applies an op with one result.
#[track_caller]
pub(crate) fn apply(op: Op, inputs: &[&Tensor]) -> Tensor {
    match apply_one(op, inputs, Line::caller()) {
        Ok(y) => y,
        Err(error) => fail::raise(error),
    }
}

/// Applies an op and gives all its results.
#[track_caller]
pub(crate) fn apply_all(op: Op, inputs: &[&Tensor]) -> Outs {
    fail::or_raise(apply_at(op, inputs, Line::caller()))
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
    Ok(apply_at(op, inputs, Line::caller())?.into_vec())
}

/// What `apply` learns of an operand.
#[derive(Default)]
pub(crate) struct Operand {
    pub history: History,
    pub tangents: Tangents,
    /// `no_grad` has taken tangents away.
    pub cut: bool,
}

/// What it learns of all of them.
struct Operands {
    list: SmallVec<[Operand; 2]>,
    /// Some have a history or tangents of any kind.
    noted: bool,
    /// A derivative of the result will be wanted.
    differentiated: bool,
}

impl Operands {
    fn of(inputs: &[&Tensor], at: Line) -> Result<Operands> {
        let mut all = Operands { list: SmallVec::new(), noted: false, differentiated: false };
        if checkpoint::is_watching() {
            checkpoint::note_reads(inputs, at);
        }
        for x in inputs {
            let operand = x.state(at)?;
            let bare = matches!(operand.history, History::None) && operand.tangents.is_empty();
            if !bare || operand.cut {
                all.noted = true;
                let tracked = operand.history.is_tracked() && mode::is_grad_enabled();
                all.differentiated |=
                    x.dtype().is_float() && (tracked || !operand.tangents.is_empty());
            }
            all.list.push(operand);
        }
        Ok(all)
    }
}

/// The way of an op with one result, which nearly all are.
fn apply_one(op: Op, inputs: &[&Tensor], caller: Line) -> Result<Tensor> {
    match mode::extras() {
        0 => run_one(op, inputs, caller, false),
        _ => attended(op, inputs, caller, run_agreed, std::slice::from_ref),
    }
}

/// The op, or what stands for it where another derivative at its kinks was agreed.
fn run_agreed(op: Op, inputs: &[&Tensor], caller: Line, noting: bool) -> Result<Tensor> {
    match kinks::agreed(&op, inputs, mode::user_line(caller))? {
        Some(y) => Ok(y),
        None => run_one(op, inputs, caller, noting),
    }
}

/// An op inside `autocast`, `watch_overflow`, `kink_report`, `with_conventions`, a memory budget or a report on memory: its operands are cast as the
/// table says, it is noted, and its results are looked at.
fn attended<R>(
    op: Op,
    inputs: &[&Tensor],
    caller: Line,
    run: impl FnOnce(Op, &[&Tensor], Line, bool) -> Result<R>,
    results: impl Fn(&R) -> &[Tensor],
) -> Result<R> {
    let at = mode::user_line(caller);
    let cast = autocast::settled(&op, inputs, at);
    let cast: Option<SmallVec<[&Tensor; 4]>> = cast.as_ref().map(|list| list.iter().collect());
    let inputs = cast.as_deref().unwrap_or(inputs);
    if ledger::is_on() {
        ledger::begins(&op, inputs, at);
    }
    if !watch::is_looking() && !kinks::is_counting() {
        return run(op, inputs, caller, budget::is_noting());
    }
    let made = run(op.clone(), inputs, caller, budget::is_noting())?;
    if watch::is_looking() {
        watch::look(&op, inputs, results(&made), at);
    }
    kinks::look(&op, inputs, results(&made), at)?;
    Ok(made)
}

fn run_one(op: Op, inputs: &[&Tensor], caller: Line, noting: bool) -> Result<Tensor> {
    let at = mode::user_line(caller);
    let operands = Operands::of(inputs, at)?;
    if operands.differentiated {
        if let Some(mut outs) = decompose(&op, inputs, &operands, at)? {
            return Ok(outs.swap_remove(0));
        }
        if let Some(mut outs) = prepared(&op, inputs, caller)? {
            return Ok(outs.swap_remove(0));
        }
    }
    if trace::active() {
        let (lifted, outs) = traced(&op, inputs, at)?;
        if operands.noted {
            record(op, &lifted.iter().collect::<SmallVec<[_; 4]>>(), operands.list, &outs, at);
        }
        return outs.into_iter().next().ok_or_else(|| Error::argument("apply", "no result"));
    }
    let y = backend::run(&op, inputs).map_err(|e| e.at(at))?;
    if noting {
        budget::note(&op, inputs, std::slice::from_ref(&y), at);
    }
    if operands.noted {
        record(op, inputs, operands.list, std::slice::from_ref(&y), at);
    }
    Ok(y)
}

fn apply_at(op: Op, inputs: &[&Tensor], caller: Line) -> Result<Outs> {
    if op.results() == 1 {
        return Ok(smallvec![apply_one(op, inputs, caller)?]);
    }
    match mode::extras() {
        0 => run_all(op, inputs, caller, false),
        _ => attended(op, inputs, caller, run_all, |outs| outs),
    }
}

fn run_all(op: Op, inputs: &[&Tensor], caller: Line, noting: bool) -> Result<Outs> {
    let at = mode::user_line(caller);
    let operands = Operands::of(inputs, at)?;
    if operands.differentiated {
        if let Some(outs) = decompose(&op, inputs, &operands, at)? {
            return Ok(outs);
        }
        if let Some(outs) = prepared(&op, inputs, caller)? {
            return Ok(outs);
        }
    }
    if trace::active() {
        let (lifted, outs) = traced(&op, inputs, at)?;
        if operands.noted {
            record(op, &lifted.iter().collect::<SmallVec<[_; 4]>>(), operands.list, &outs, at);
        }
        return Ok(outs);
    }
    let outs = backend::run_all(&op, inputs).map_err(|e| e.at(at))?;
    if noting {
        budget::note(&op, inputs, &outs, at);
    }
    if operands.noted {
        record(op, inputs, operands.list, &outs, at);
    }
    Ok(outs)
}

/// The results of a loop that also keeps what a backward pass will need.
fn prepared(op: &Op, inputs: &[&Tensor], caller: Line) -> Result<Option<Outs>> {
    let at = mode::user_line(caller);
    let prepare = || mode::with_line(at, || control::prepare(op, at));
    let Some(prepared) = autocast::off(|| kinks::settled(prepare)) else { return Ok(None) };
    let (place, constants) = &prepared.constants;
    let (before, after) = inputs.split_at(*place);
    let all: Vec<&Tensor> =
        before.iter().copied().chain(constants).chain(after.iter().copied()).collect();
    let mut outs = apply_at(prepared.op, &all, caller)?;
    outs.truncate(prepared.own);
    Ok(Some(outs))
}

/// The results by way of simpler ops, if the row says so.
fn decompose(op: &Op, inputs: &[&Tensor], operands: &Operands, at: Line) -> Result<Option<Outs>> {
    let decompose = match ops::row(op) {
        Grad::Decompose(decompose) => decompose,
        Grad::Custom(handle) => {
            handle.refuse_captured(op.name(), inputs, &operands.list).map_err(|e| e.at(at))?;
            return Ok(None);
        }
        Grad::Flow(..) => {
            let differentiated = |i: usize| {
                let Operand { history, tangents, .. } = &operands.list[i];
                let tracked = history.is_tracked() && mode::is_grad_enabled();
                inputs[i].dtype().is_float() && (tracked || !tangents.is_empty())
            };
            control::check_captured(op, differentiated).map_err(|e| e.at(at))?;
            return Ok(None);
        }
        _ => return Ok(None),
    };
    // Checked here, so that a wrong shape is an error of this op and not of its parts.
    let specs: SmallVec<[&Spec; 4]> = inputs.iter().map(|x| x.spec()).collect();
    infer(op, &specs).map_err(|e| e.at(at))?;
    // Of a single element a product is that element, but not its memory.
    let own = |outs: Outs| outs.into_iter().map(|y| y.apart_from(inputs)).collect();
    let simpler = || mode::with_line(at, || own(decompose(op, inputs)));
    Ok(Some(autocast::off(|| kinks::decomposed(simpler))))
}

/// Records the op in the trace that goes on. The operands as the trace sees them, and its results.
fn traced(op: &Op, inputs: &[&Tensor], at: Line) -> Result<(SmallVec<[Tensor; 4]>, Outs)> {
    let lifted: SmallVec<[Tensor; 4]> = inputs.iter().map(|x| trace::lift(x, at)).collect();
    let outs = trace::apply_traced(op, &lifted.iter().collect::<SmallVec<[_; 4]>>(), at)?;
    Ok((lifted, outs))
}

/// Puts the results of an op on the tape and gives them their tangents.
fn record(
    op: Op,
    inputs: &[&Tensor],
    mut operands: SmallVec<[Operand; 2]>,
    outs: &[Tensor],
    at: Line,
) {
    let row = ops::row(&op);
    let dual = operands.iter().any(|o| !o.tangents.is_empty());
    let (mut reached, mut tracked, mut any) = (SmallVec::<[bool; 8]>::new(), [false; 4], false);
    for (i, (x, o)) in inputs.iter().zip(&operands).enumerate() {
        let reaches = x.dtype().is_float() && row.reaches(i);
        reached.push(reaches);
        let on = reaches && o.history.is_tracked();
        any |= on;
        // Rows that ask which operands are tracked have at most three.
        if let Some(slot) = tracked.get_mut(i) {
            *slot = on;
        }
    }
    let (mut floats, mut others) = (false, false);
    for y in outs {
        floats |= y.dtype().is_float();
        others |= !y.dtype().is_float();
    }
    if any && floats && mode::is_grad_enabled() {
        let saved = keep(&row, (&op, at), inputs, &operands, outs, &tracked);
        let uniform = op.is_pointwise() && !matches!(op, Op::Cast(_) | Op::Select);
        let in_specs = match uniform {
            true => Box::default(),
            false => inputs.iter().map(|x| x.spec().clone()).collect(),
        };
        let (mut out_specs, mut edges) = (Specs::new(), SmallVec::new());
        for y in outs {
            out_specs.push(y.spec().clone());
        }
        // What the edges take is needed again only where there are tangents or constant results.
        let again = dual || others;
        for (o, &reaches) in operands.iter_mut().zip(&reached) {
            edges.push(match (&mut o.history, reaches) {
                (history, false) if history.is_tracked() => {
                    Cut::between(CutReason::Constant, op.name(), at, [&*history].into_iter())
                }
                (history, _) if again => history.clone(),
                (history, _) => std::mem::take(history),
            });
        }
        let op_again = again.then(|| op.clone());
        let node = Arc::new(Node::new(op, at, edges, in_specs, out_specs, saved));
        for (k, y) in outs.iter().enumerate().filter(|(_, y)| y.dtype().is_float()) {
            y.lock().history = History::Node(node.clone(), k as u32);
        }
        let Some(op) = op_again else { return };
        for y in outs.iter().filter(|y| !y.dtype().is_float()) {
            y.lock().history = constant(CutReason::Constant, &op, at, &operands);
        }
        if dual {
            tangents(&op, &row, inputs, &operands, outs, at);
        }
        return;
    }
    let why = if mode::is_grad_enabled() { CutReason::Constant } else { CutReason::NoGrad };
    let off = |o: &Operand| o.cut || (!mode::is_grad_enabled() && o.history.is_tracked());
    let severed = matches!(op, Op::View(_)) && operands.iter().any(off);
    for y in outs {
        let mut state = y.lock();
        state.history = constant(why, &op, at, &operands);
        state.severed = severed;
    }
    if dual {
        tangents(&op, &row, inputs, &operands, outs, at);
    }
}

/// [`push_tangents`] for the user's line, in the dtypes that are settled.
fn tangents(
    op: &Op,
    row: &Grad,
    inputs: &[&Tensor],
    operands: &[Operand],
    outs: &[Tensor],
    at: Line,
) {
    let push = || mode::with_line(at, || push_tangents(op, row, inputs, operands, outs));
    autocast::off(|| kinks::settled(push));
}

/// The values that the row wants for backward.
fn keep(
    row: &Grad,
    saver: (&Op, Line),
    inputs: &[&Tensor],
    operands: &[Operand],
    outs: &[Tensor],
    tracked: &[bool],
) -> Vec<Saved> {
    let mut saved = Vec::new();
    for (i, x) in inputs.iter().enumerate() {
        if row.keeps(Val::In(i), tracked) {
            let Operand { history, tangents, .. } = &operands[i];
            saved.push(Saved::pack(From::Input(i as u32), x, tangents, saver, history));
        }
    }
    for (k, y) in outs.iter().enumerate() {
        if row.keeps(Val::Out(k), tracked) {
            let none = &History::None;
            saved.push(Saved::pack(From::Output(k as u32), y, &Tangents::new(), saver, none));
        }
    }
    saved
}

fn constant(why: CutReason, op: &Op, at: Line, operands: &[Operand]) -> History {
    Cut::between(why, op.name(), at, operands.iter().map(|o| &o.history))
}

/// Forward mode. Levels go from the outermost in: at each, operands and results carry the tangents
/// of the levels outside it, so a tangent is itself differentiated by those.
fn push_tangents(op: &Op, row: &Grad, inputs: &[&Tensor], operands: &[Operand], outs: &[Tensor]) {
    let mut present: SmallVec<[u64; 2]> =
        operands.iter().flat_map(|o| o.tangents.iter().map(|t| t.0)).collect();
    present.sort_unstable();
    present.dedup();

    let in_specs: SmallVec<[Spec; 2]> = inputs.iter().map(|x| x.spec().clone()).collect();
    let out_specs: SmallVec<[Spec; 1]> = outs.iter().map(|y| y.spec().clone()).collect();
    for &level in &present {
        let mut facts =
            Facts::new(op, &in_specs, &out_specs, SmallVec::from_elem(true, inputs.len()));
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
            node.attach_tangents(k, &tangents);
            levels::remember(&node, &present);
        }
    }
}

/// Records an op whose results are known already: what a custom function has computed.
pub(crate) fn record_done(
    op: Op,
    inputs: &[&Tensor],
    operands: SmallVec<[Operand; 2]>,
    outs: &[Tensor],
    at: Line,
) {
    record(op, inputs, operands, outs, at);
}

/// Records a write in place as an op whose result is `out` (already known): used by `inplace.rs`.
pub(crate) fn record_as(op: Op, inputs: &[&Tensor], out: &Tensor, at: Line) -> Result<()> {
    record(op, inputs, Operands::of(inputs, at)?.list, std::slice::from_ref(out), at);
    Ok(())
}
