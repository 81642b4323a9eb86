//! Tracing: recording what a function does into a [`Program`], by context.
//!
//! While a trace is active on this thread, `apply` computes nothing. Every op becomes an equation,
//! also ops of concrete tensors, and its result is a tensor whose storage represents a variable.
//! Everything above `apply` runs as usual: the tape, backward, forward mode and in-place writes
//! work on traced tensors because they never read values. So a trace of a function that calls
//! `backward` contains the gradient's computation as well.
//!
//! There are two kinds of trace.
//!
//! - A *whole* one (`trace`, `jit`) captures tensors by reference to their memory: one variable per
//!   storage, whichever views of it are used, so that a write through one is seen through the
//!   others. Leaves stay leaves, and their `.grad()` slots are noted.
//! - A *body* (of `vmap`, `scan`, `cond`, …) becomes part of the computation outside it. A tensor
//!   from outside is *lifted*: inside it is a plain variable without history or tangents, and what
//!   the body is turned into is then applied, outside, to the tensor itself. So derivatives outside
//!   see the whole, and derivatives inside see only what is inside. A body may not write to what is
//!   outside.
//!
//! A value is found by its storage and layout ([`Trace::var_of`]): the root variable of the storage
//! represents all of it, contiguous, and a view of it is a chain of view ops. A write makes a new
//! root variable, and the version of the storage says which windows are old.

mod eval;
mod grad_flags;
mod log;
mod program;

pub(crate) use eval::{evaluate, evaluate_with};
pub(crate) use grad_flags::{check_lifting, marks, may_be_differentiated, note_gradient_read};
pub(crate) use log::can_be_differentiated;
pub use program::trace;

use crate::backend::{Pooled, WeakPooled};
use crate::leaf::Leaf;
use crate::rule::Tensors;
use crate::storage::{LastWrite, Storage};
use crate::tangents::Tangents;
use crate::tape::History;
use crate::tensor::Frozen;
use crate::transform::levels;
use crate::{
    Device, Error, Flag, Key, Result, Tensor, apply, autocast, events, fail, mode, sequence,
};
use pullback_ir::infer::Checked;
use pullback_ir::{ErrorKind, Layout, Line, Op, Program, Shape, Spec, Var};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a trace is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceKind {
    /// A whole function, with its effects.
    Whole,
    /// The body of this construct.
    Body(&'static str),
}

/// An active trace.
pub(crate) struct Trace {
    id: u64,
    pub kind: TraceKind,
    /// Numbers of the tape and of forward mode from which on things were made inside.
    first_node: u64,
    first_level: u64,
    /// Whether it began inside `no_grad`.
    in_no_grad: bool,
    /// The number of examples that the body is for, where each draws its own random numbers.
    examples: Option<usize>,
    /// Why a whole function must not be compiled, once that is known.
    uncompiled: Uncompiled,
    log: RefCell<TraceLog>,
}

/// Why the function that is being traced cannot be compiled although it can be traced. Shared with
/// the caller of the trace, who needs it also where the function fails.
pub(crate) type Uncompiled = Rc<Cell<Option<&'static str>>>;

#[derive(Default)]
struct TraceLog {
    program: Program,
    /// The arguments, by their addresses: they are held while the function runs.
    arguments: Vec<usize>,
    roots: FxHashMap<usize, StorageVar>,
    /// Windows on storages that have a variable, for a version of the storage.
    windows: FxHashMap<(usize, Layout), (u64, Var)>,
    captures: Vec<Capture>,
    /// Values that were cut off others and show what those show, each with the other, by the
    /// storage of that.
    followers: FxHashMap<usize, Vec<(WeakPooled<Storage>, Tensor)>>,
    /// How many of them were added since dropped ones were last removed.
    followed: usize,
    /// What follows from floats outside.
    floats: log::Floats,
    /// Lifted tensors by the address of the original, which is kept so that it stays the only one
    /// there.
    lifted: FxHashMap<usize, (Tensor, Tensor)>,
    /// What was changed about captured tensors, to be restored.
    handles: Vec<(Tensor, TensorSnapshot)>,
    /// The addresses of those tensors and of the flags below.
    noted: FxHashSet<usize>,
    leaves: Vec<Touched>,
    /// The numbers of those leaves.
    touched: FxHashSet<u64>,
    /// The function reads values that are not known here.
    checks_values: bool,
    /// Constants that were made while tracing: their values are known.
    constants: FxHashSet<usize>,
    /// The flags that the function read, with the values it saw first.
    flags: Vec<(Flag, bool)>,
}

/// The variable that represents the whole of a storage.
struct StorageVar {
    /// Weak, so that a value of the trace is dropped when the function drops it; the address is
    /// still not reused.
    storage: WeakPooled<Storage>,
    spec: Spec,
    var: Var,
    /// For captured memory: which capture it is, and whether it was written to.
    capture: Option<usize>,
    /// It represents a captured tensor in a body, where that may not be written to.
    lifted: bool,
    written: bool,
    before: (u64, Option<LastWrite>),
}

struct TensorSnapshot {
    history: History,
    tangents: Tangents,
    version: u64,
}

/// A leaf whose `.grad()` the function read or changed.
pub(crate) struct Touched {
    pub leaf: Arc<Leaf>,
    pub before: Option<Tensor>,
    /// Whether it mattered if there was a gradient.
    pub looked: bool,
    /// The gradient as the function saw it.
    pub input: Option<Tensor>,
}

/// A captured tensor that a trace uses.
pub(crate) struct Capture {
    pub tensor: Tensor,
    /// It has one row for each of the examples that the body is for.
    pub batched: bool,
    /// It is what `.grad()` of this leaf holds.
    pub leaf: Option<Arc<Leaf>>,
    /// The tensor through which its memory was first used.
    pub handle: Option<Tensor>,
}

impl Capture {
    fn of(tensor: &Tensor) -> Capture {
        Capture { tensor: tensor.clone(), batched: false, leaf: None, handle: None }
    }
}

/// What becomes of a leaf's gradient.
pub(crate) enum Effect {
    /// As it was.
    Nothing,
    Clear,
    /// The output of this number.
    Output(usize),
    /// The output of this number, written over the gradient that was there.
    Write(usize),
    /// A captured tensor.
    Other(Tensor),
}

/// A finished trace.
pub(crate) struct FinishedTrace {
    /// Inputs: the arguments, then the captures. Outputs: the results, then gradients, then what is
    /// written over captures.
    pub program: Program,
    /// How many outputs are results.
    pub results: usize,
    pub captures: Vec<Capture>,
    pub leaves: Vec<(Touched, Effect)>,
    /// A captured tensor was left with a history that refers to the function.
    pub tracked_state: bool,
    /// The flags that the function read, and what they were.
    pub flags: Vec<(Flag, bool)>,
    /// The function looks for anomalies itself, which the program does not.
    pub checks_values: bool,
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static ACTIVE: RefCell<Vec<Rc<Trace>>> = const { RefCell::new(Vec::new()) };
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Identifies a tensor while it is alive.
fn address(x: &Tensor) -> usize {
    Pooled::as_ptr(&x.0) as usize
}

/// Whether a function is being traced on this thread: values are not known, and hooks run once, for
/// the program.
#[doc(hidden)]
#[must_use]
pub fn is_tracing() -> bool {
    active()
}

/// Whether operations on this thread are being traced.
pub(crate) fn active() -> bool {
    DEPTH.get() > 0
}

/// The innermost trace.
pub(crate) fn current() -> Option<Rc<Trace>> {
    if !active() {
        return None;
    }
    ACTIVE.with_borrow(|all| all.last().cloned())
}

/// Which trace is the innermost; 0 for none.
pub(crate) fn number() -> u64 {
    current().map_or(0, |trace| trace.id)
}

/// Runs `f` outside the innermost trace, in the one around it or in none.
pub(crate) fn outside<R>(f: impl FnOnce() -> R) -> R {
    leaving(ACTIVE.with_borrow(Vec::len).min(1), f)
}

/// Runs `f`, which computes with values that are known, outside all traces.
pub(crate) fn computing<R>(f: impl FnOnce() -> R) -> R {
    leaving(ACTIVE.with_borrow(Vec::len), f)
}

/// Runs `f` where the node of this number was made: outside the bodies that began since.
pub(crate) fn where_made<R>(number: u64, f: impl FnOnce() -> R) -> R {
    let since = |t: &&Rc<Trace>| t.is_body() && number < t.first_node;
    leaving(ACTIVE.with_borrow(|all| all.iter().rev().take_while(since).count()), f)
}

/// Runs `f` outside this many of the innermost traces.
fn leaving<R>(count: usize, f: impl FnOnce() -> R) -> R {
    if count == 0 {
        return f();
    }
    let mut left = ACTIVE.with_borrow_mut(|all| all.split_off(all.len() - count));
    let _restore = mode::on_drop(move || {
        ACTIVE.with_borrow_mut(|all| all.append(&mut left));
        DEPTH.set(ACTIVE.with_borrow(Vec::len));
    });
    DEPTH.set(ACTIVE.with_borrow(Vec::len));
    f()
}

/// Traces `f` on arguments of these specs.
pub(crate) fn record<R>(
    kind: TraceKind,
    examples: Option<usize>,
    specs: &[Spec],
    at: Line,
    f: impl FnOnce(&[Tensor]) -> (R, Vec<Tensor>),
) -> Result<(R, FinishedTrace)> {
    record_with_reason(&Uncompiled::default(), kind, examples, specs, at, f)
}

/// [`record`] that also reports why the function must not be compiled, if so.
pub(crate) fn record_with_reason<R>(
    uncompiled: &Uncompiled,
    kind: TraceKind,
    examples: Option<usize>,
    specs: &[Spec],
    at: Line,
    f: impl FnOnce(&[Tensor]) -> (R, Vec<Tensor>),
) -> Result<(R, FinishedTrace)> {
    let (recording, arguments) = ActiveTrace::begin(uncompiled, kind, examples, specs, at);
    let (result, outputs) = autocast::with_own_cache(|| f(&arguments));
    Ok((result, recording.finish(&outputs, at)?))
}

/// A trace while it is the innermost active one, until this is dropped.
struct ActiveTrace(Rc<Trace>);

impl ActiveTrace {
    /// Makes a trace active; also returns its arguments.
    fn begin(
        uncompiled: &Uncompiled,
        kind: TraceKind,
        examples: Option<usize>,
        specs: &[Spec],
        at: Line,
    ) -> (ActiveTrace, Vec<Tensor>) {
        let trace = Rc::new(Trace {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            kind,
            first_node: sequence::next_number(),
            first_level: levels::next_number(),
            in_no_grad: mode::in_no_grad(),
            examples,
            uncompiled: uncompiled.clone(),
            log: RefCell::default(),
        });
        let arguments: Vec<Tensor> = specs.iter().map(|spec| trace.argument(spec, at)).collect();
        trace.log.borrow_mut().arguments = arguments.iter().map(address).collect();
        ACTIVE.with_borrow_mut(|all| all.push(trace.clone()));
        DEPTH.set(ACTIVE.with_borrow(Vec::len));
        (ActiveTrace(trace), arguments)
    }

    fn finish(self, outputs: &[Tensor], at: Line) -> Result<FinishedTrace> {
        self.0.finish(outputs, at)
    }
}

impl Drop for ActiveTrace {
    fn drop(&mut self) {
        let ended = ACTIVE.with_borrow_mut(Vec::pop);
        DEPTH.set(ACTIVE.with_borrow(Vec::len));
        // Also where the function panicked: what it changed about captured tensors is restored.
        if let Some(trace) = ended {
            trace.put_back();
        }
    }
}

/// Notes that a flag was read, in every active trace: it decides what all of them record.
pub(crate) fn note_flag_read(flag: &Flag, value: bool) {
    if active() {
        ACTIVE.with_borrow(|all| all.iter().for_each(|trace| trace.note_flag_read(flag, value)));
    }
}

/// Notes that the traced function would check values if they were known: the program does not.
pub(crate) fn note_value_check() {
    ACTIVE.with_borrow(|all| {
        all.iter().for_each(|trace| trace.log.borrow_mut().checks_values = true)
    });
}

/// Records an op and returns tensors that represent its results.
pub(crate) fn apply_traced(call: Checked, inputs: &[&Tensor], at: Line) -> Result<Tensors> {
    let op = call.op();
    let Some(trace) = current() else {
        return Err(Error::new(ErrorKind::Program, op.name(), "no trace is active"));
    };
    // A body is replayed where derivatives pass through all it recorded: what `no_grad` cuts must
    // be cut there too.
    let cut = trace.is_body() && trace.is_cut();
    if let (Op::View(view), [x]) = (op, inputs) {
        let y = trace.view(call, view, x, at)?;
        return Ok(Tensors::One(if cut { stopped(&y, at)? } else { y }));
    }
    let vars = inputs
        .iter()
        .map(|x| trace.var_of(x, op.name(), at))
        .collect::<Result<SmallVec<[Var; 4]>>>()?;
    let made = trace.log.borrow_mut().program.push_checked(call, &vars, Some(at));
    let new = made.iter().map(|&v| trace.tensor(v, op.name(), at));
    match cut {
        false => Ok(new.collect()),
        true => {
            new.map(|y| if y.dtype().is_float() { trace.stop(&y, at) } else { Ok(y) }).collect()
        }
    }
}

/// The tensor without a derivative, inside a body: an equation says so, as the body is
/// differentiated where it is replayed. It is a variable of its own where outside it would share
/// memory: so writing to it is refused, and it follows what is written to the tensor
/// ([`Trace::renew_followers`]).
pub(crate) fn stopped(x: &Tensor, at: Line) -> Result<Tensor> {
    let Some(trace) = current().filter(|_| x.dtype().is_float()) else { return Ok(x.clone()) };
    let y = trace.stop(x, at)?;
    y.lock().frozen = Frozen::Cut;
    if trace.owns(x) {
        trace.log.borrow_mut().follow(&y, x);
    }
    Ok(y)
}

/// A value without other references and without a derivative: as [`stopped`], but it may be written
/// to.
pub(crate) fn constant(x: &Tensor, at: Line) -> Result<Tensor> {
    match current().filter(|_| x.dtype().is_float()) {
        Some(trace) => trace.stop(x, at),
        None => Ok(x.clone()),
    }
}

/// The tensor as the innermost body sees it: from outside, a plain variable.
pub(crate) fn lift(x: &Tensor, at: Line) -> Tensor {
    match current() {
        Some(trace) if trace.is_body() && !trace.owns(x) => fail::or_raise(trace.lift(x, at)),
        _ => x.clone(),
    }
}

/// What represents a captured tensor in the body that is being traced, if it was used there.
pub(crate) fn lifted(x: &Tensor) -> Option<Tensor> {
    let trace = current()?;
    if trace.is_body() && !trace.owns(x) { trace.lifted(x) } else { None }
}

/// What is left of a tensor's history and tangents inside the innermost trace.
pub(crate) fn strip(x: &Tensor, operand: &mut apply::OperandState, at: Line) -> Result<()> {
    let Some(trace) = current() else { return Ok(()) };
    let is_older = |t: &(u64, Tensor)| (mode::cut()..trace.first_level).contains(&t.0);
    let mut older = operand.tangents.iter().any(is_older);
    if older && trace.kind == TraceKind::Whole {
        // Those of a `jvp` that has returned are dropped.
        operand.tangents = levels::alive(&operand.tangents);
        older = operand.tangents.iter().any(is_older);
    }
    match trace.kind {
        TraceKind::Body(_) => {
            operand.tangents.retain(|t| t.0 >= trace.first_level);
            if operand.history.key().is_some_and(|key| key.0 < trace.first_node) {
                operand.history = History::None;
            }
            Ok(())
        }
        TraceKind::Whole if older => {
            let message =
                "a value that forward mode is differentiating outside is used inside a trace";
            Err(Error::new(ErrorKind::Program, "trace", message)
                .on([x.spec()])
                .at(at)
                .hint("pass it as an argument"))
        }
        TraceKind::Whole => Ok(()),
    }
}

/// Notes that the gradient of a leaf is read or changed. An existing gradient becomes an input of
/// the program, so that each call sees the current one.
pub(crate) fn touch(
    leaf: &Arc<Leaf>,
    slot: &mut Option<Tensor>,
    (looked, changed): (bool, bool),
    at: Line,
) {
    let Some(inner) = current() else { return };
    if let (TraceKind::Body(name), true) = (inner.kind, changed && leaf.seq < inner.first_node) {
        let message = format!("the gradient of a captured tensor is changed inside {name}");
        let error = Error::new(ErrorKind::InPlace, "grad", message).at(at);
        fail::raise(error.hint("compute it with grad(..) and return it"));
    }
    let whole = |all: &Vec<Rc<Trace>>| all.iter().rev().find(|t| !t.is_body()).cloned();
    let Some(trace) = ACTIVE.with_borrow(whole) else { return };
    if leaf.seq >= trace.first_node || !trace.log.borrow_mut().touched.insert(leaf.seq) {
        return;
    }
    let before = slot.clone();
    let mut input = None;
    if let (Some(gradient), true) = (&before, looked) {
        let capture = Capture { leaf: Some(leaf.clone()), ..Capture::of(gradient) };
        let made = trace.capture(capture, gradient.spec().clone(), at);
        input = Some(made.clone());
        *slot = Some(made);
    }
    events::gradient_met(leaf, before.as_ref(), input.as_ref());
    trace.log.borrow_mut().leaves.push(Touched { leaf: leaf.clone(), before, looked, input });
}

/// The error of reading a value while a function is traced, unless it is a constant.
pub(crate) fn check_readable(x: &Tensor, op: &'static str) -> Result<()> {
    if let Some(traced) = x.0.storage.as_traced() {
        return Err(match is_here(x) {
            true => traced.unknown(op),
            false => traced.escaped(op),
        });
    }
    let Some(trace) = current() else { return Ok(()) };
    let key = Pooled::as_ptr(&x.0.storage) as usize;
    if ACTIVE.with_borrow(|all| all.iter().any(|t| t.log.borrow().constants.contains(&key))) {
        return Ok(());
    }
    let there = match trace.kind {
        TraceKind::Whole => "while a function is traced".to_string(),
        TraceKind::Body(name) => format!("inside {name}"),
    };
    let message =
        format!("a value is read {there}: its current value would be frozen into the program");
    Err(Error::new(ErrorKind::Program, op, message)
        .on([x.spec()])
        .hint("read it before, and pass what depends on it as a tensor"))
}

/// Whether a value can be read: nothing is being traced.
pub(crate) fn knows(x: &Tensor) -> bool {
    !active() && x.0.storage.as_traced().is_none()
}

/// Whether a value can be read without waiting for a device. Values are checked on the host only if
/// this holds; elsewhere by the op, when it runs.
pub(crate) fn on_host(x: &Tensor) -> bool {
    x.device() == Device::Cpu && knows(x)
}

/// Whether a tensor can be used here: it is memory, or a value of an active trace.
pub(crate) fn is_here(x: &Tensor) -> bool {
    let here = |id: u64| ACTIVE.with_borrow(|all| all.iter().any(|t| t.id == id));
    x.0.storage.as_traced().is_none_or(|traced| here(traced.trace))
}

/// Notes that a tensor was made from values that are known while tracing.
pub(crate) fn note_constant(x: &Tensor) {
    if let Some(trace) = current() {
        let mut log = trace.log.borrow_mut();
        log.constants.insert(Pooled::as_ptr(&x.0.storage) as usize);
        log.noted.insert(Pooled::as_ptr(&x.0) as usize);
        // Kept, so that the address is not reused.
        let (history, tangents) = (History::None, Tangents::new());
        log.handles.push((
            x.clone(),
            TensorSnapshot { history, tangents, version: x.0.storage.version() },
        ));
    }
}

/// A key for the draws of a body, from the generator outside; none outside a body.
pub(crate) fn key_from_outside(device: Device, at: Line) -> Option<Key> {
    let trace = current()?;
    match (trace.kind, trace.examples) {
        (TraceKind::Whole, _) => None,
        (TraceKind::Body(_), Some(examples)) => {
            let draw = || crate::next_key_on(device);
            let keys = outside(|| mode::with_line(at, || draw().split_tensor(examples)));
            let spec = keys.spec().with_shape(Shape::from_slice(&[2]));
            let capture = Capture { batched: true, ..Capture::of(&keys) };
            Some(Key::from_tensor(&trace.capture(capture, spec, at)))
        }
        (TraceKind::Body("cond" | "custom" | "checkpoint" | "vmap"), None) => {
            Some(outside(|| mode::with_line(at, || crate::next_key_on(device))))
        }
        (TraceKind::Body(name), None) => {
            let message = format!(
                "the global generator would give the same key at every iteration of {name}"
            );
            let error = Error::new(ErrorKind::Program, "next_key", message).at(at);
            fail::raise(
                error.hint("split a key outside (Key::split_n) and pass one to each iteration"),
            )
        }
    }
}

/// Writes a value over a tensor, which is a new variable for its storage, and gives the new
/// version.
pub(crate) fn write(target: &Tensor, new: &Tensor, writer: LastWrite) -> Result<u64> {
    let Some(trace) = current() else {
        return Err(Error::new(ErrorKind::Program, writer.op, "no trace is active"));
    };
    trace.write(target, new, writer)
}

/// Whether the body of a construct is being traced.
pub(crate) fn in_body() -> bool {
    current().is_some_and(|trace| trace.is_body())
}

/// The node is older than the trace: backward would leave the trace.
pub(crate) fn is_outside(number: u64) -> bool {
    current().is_some_and(|trace| !trace.is_body() && number < trace.first_node)
}
