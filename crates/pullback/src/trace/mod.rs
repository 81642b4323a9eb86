//! Tracing: recording what a function does into a [`Program`], by context.
//!
//! While a trace goes on, on this thread, `apply` computes nothing. Every op becomes an equation, also ops of concrete tensors,
//! and its result is a tensor whose storage stands for a variable. Everything above `apply` runs as ever: the tape, backward, forward
//! mode and in-place writes work on traced tensors because they never look at values. So a trace of a function that calls `backward`
//! holds the gradient's computation as well.
//!
//! There are two kinds of trace.
//!
//! - A *whole* one (`trace`, `jit`) takes tensors it meets by reference to their memory: one variable a storage, whichever views of it
//!   are used, so that a write through one is seen through the others. Leaves stay leaves, and their `.grad()` slots are noted.
//! - A *body* (of `vmap`, `scan`, `cond`, …) becomes part of what goes on outside it. A tensor from outside is *lifted*: inside it is a
//!   plain variable without history or tangents, and what the body is turned into is then applied, outside, to the tensor itself. So
//!   derivatives outside see the whole, and derivatives inside see only what is inside. A body may not write to what is outside.
//!
//! A value is found by its storage and layout ([`Trace::var_of`]): the root variable of the storage stands for its dense whole, and
//! a window on it is a chain of views. A write makes a new root variable, and the version of the storage says which windows are old.

mod eval;
mod program;

pub(crate) use eval::{evaluate, speaking};
pub use program::trace;

use crate::rule::Outs;
use crate::storage::{Storage, Traced, Writer};
use crate::tape::{self, History, Leaf};
use crate::tensor::Tangents;
use crate::transform::levels;
use crate::{Error, Key, Result, Tensor, apply, fail, mode};
use pullback_ir::infer::infer_one;
use pullback_ir::{ErrorKind, Layout, Op, Program, Shape, Spec, Var, View};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a trace is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole function, with its effects.
    Whole,
    /// The body of this construct.
    Body(&'static str),
}

/// A trace that is going on.
pub(crate) struct Trace {
    id: u64,
    pub kind: Kind,
    /// Numbers of the tape and of forward mode from which on things were made inside.
    first_node: u64,
    first_level: u64,
    /// The number of examples that the body stands for, where it stands for several.
    lanes: Option<usize>,
    log: RefCell<Log>,
}

#[derive(Default)]
struct Log {
    program: Program,
    roots: FxHashMap<usize, Root>,
    /// Windows on storages that have a variable, for a version of the storage.
    windows: FxHashMap<(usize, Layout), (u64, Var)>,
    captures: Vec<Capture>,
    /// Lifted tensors by the address of the original, which is kept so that it stays the only one there.
    lifted: FxHashMap<usize, (Tensor, Tensor)>,
    /// What was changed about tensors from outside, to be put back.
    handles: Vec<(Tensor, Before)>,
    leaves: Vec<Touched>,
    /// Constants that were made while tracing: what is read of them is known for good.
    constants: FxHashSet<usize>,
}

/// The variable that stands for the whole of a storage.
struct Root {
    storage: Arc<Storage>,
    spec: Spec,
    var: Var,
    /// For memory from outside: which capture it is, and whether it was written to.
    capture: Option<usize>,
    written: bool,
    before: (u64, Option<Writer>),
}

struct Before {
    history: History,
    tangents: Tangents,
    version: u64,
}

/// A leaf whose `.grad()` the function looked at or changed.
pub(crate) struct Touched {
    pub leaf: Arc<Leaf>,
    pub before: Option<Tensor>,
    /// Whether it mattered if there was a gradient.
    pub looked: bool,
}

/// A tensor from outside that a trace uses.
pub(crate) struct Capture {
    pub tensor: Tensor,
    /// It has one row for each of the examples that the body stands for.
    pub batched: bool,
}

/// What becomes of a leaf's gradient.
pub(crate) enum Effect {
    /// As it was.
    Nothing,
    Clear,
    /// The output of this number.
    Output(usize),
    /// A tensor from outside.
    Other(Tensor),
}

/// A finished trace.
pub(crate) struct Recorded {
    /// Inputs: the arguments, then the captures. Outputs: the results, then what is written over captures, then gradients.
    pub program: Program,
    /// How many outputs are results.
    pub results: usize,
    pub captures: Vec<Capture>,
    pub leaves: Vec<(Touched, Effect)>,
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static GOING_ON: RefCell<Vec<Rc<Trace>>> = const { RefCell::new(Vec::new()) };
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Whether operations on this thread are being traced.
pub(crate) fn active() -> bool {
    DEPTH.get() > 0
}

/// The innermost trace.
pub(crate) fn current() -> Option<Rc<Trace>> {
    if !active() {
        return None;
    }
    GOING_ON.with_borrow(|all| all.last().cloned())
}

/// Runs `f` outside the innermost trace, in the one around it or in none.
pub(crate) fn outside<R>(f: impl FnOnce() -> R) -> R {
    struct Return(Option<Rc<Trace>>);
    impl Drop for Return {
        fn drop(&mut self) {
            GOING_ON.with_borrow_mut(|all| all.extend(self.0.take()));
            DEPTH.set(GOING_ON.with_borrow(Vec::len));
        }
    }
    let left = Return(GOING_ON.with_borrow_mut(Vec::pop));
    DEPTH.set(GOING_ON.with_borrow(Vec::len));
    let result = f();
    drop(left);
    result
}

/// Runs `f`, which computes with values that are known, outside all traces.
pub(crate) fn computing<R>(f: impl FnOnce() -> R) -> R {
    struct Return(Vec<Rc<Trace>>);
    impl Drop for Return {
        fn drop(&mut self) {
            GOING_ON.set(std::mem::take(&mut self.0));
            DEPTH.set(GOING_ON.with_borrow(Vec::len));
        }
    }
    if !active() {
        return f();
    }
    let _return = Return(GOING_ON.take());
    DEPTH.set(0);
    f()
}

/// Traces `f` on arguments of these specs.
pub(crate) fn record<R>(
    kind: Kind,
    lanes: Option<usize>,
    specs: &[Spec],
    at: &'static Location<'static>,
    f: impl FnOnce(&[Tensor]) -> (R, Vec<Tensor>),
) -> Result<(R, Recorded)> {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            let ended = GOING_ON.with_borrow_mut(Vec::pop);
            DEPTH.set(GOING_ON.with_borrow(Vec::len));
            // Also where the function panicked: what it changed about tensors from outside is put back.
            if let Some(trace) = ended {
                trace.put_back();
            }
        }
    }
    let trace = Rc::new(Trace {
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        kind,
        first_node: tape::next_number(),
        first_level: levels::next_number(),
        lanes,
        log: RefCell::default(),
    });
    let arguments: Vec<Tensor> = specs.iter().map(|spec| trace.argument(spec, at)).collect();
    GOING_ON.with_borrow_mut(|all| all.push(trace.clone()));
    DEPTH.set(GOING_ON.with_borrow(Vec::len));
    let leave = Leave;
    let (result, outputs) = f(&arguments);
    let recorded = trace.finish(&outputs, at)?;
    drop(leave);
    Ok((result, recorded))
}

/// Records an op and gives tensors that stand for its results.
pub(crate) fn apply_traced(
    op: &Op,
    inputs: &[&Tensor],
    at: &'static Location<'static>,
) -> Result<Outs> {
    let Some(trace) = current() else {
        return Err(Error::new(ErrorKind::Program, op.name(), "no trace is going on"));
    };
    if let (Op::View(view), [x]) = (op, inputs) {
        return Ok(SmallVec::from_elem(trace.view(op, view, x, at)?, 1));
    }
    let vars = inputs
        .iter()
        .map(|x| trace.var_of(x, op.name(), at))
        .collect::<Result<SmallVec<[Var; 4]>>>()?;
    let made = trace
        .log
        .borrow_mut()
        .program
        .push(op.clone(), &vars, Some(at.into()))
        .map_err(|e| e.at(at))?;
    Ok(made.iter().map(|&v| trace.tensor(v, op.name(), at)).collect())
}

/// The tensor as the innermost body sees it: from outside, a plain variable.
pub(crate) fn lift(x: &Tensor, at: &'static Location<'static>) -> Tensor {
    match current() {
        Some(trace) if trace.is_body() && !trace.owns(x) => fail::or_raise(trace.lift(x, at)),
        _ => x.clone(),
    }
}

/// What is left of a tensor's history and tangents inside the innermost trace.
pub(crate) fn strip(
    x: &Tensor,
    operand: &mut apply::Operand,
    at: &'static Location<'static>,
) -> Result<()> {
    let Some(trace) = current() else { return Ok(()) };
    let older = operand.tangents.iter().any(|t| t.0 < trace.first_level);
    match trace.kind {
        Kind::Body(_) => {
            operand.tangents.retain(|t| t.0 >= trace.first_level);
            if operand.history.key().is_some_and(|key| key.0 < trace.first_node) {
                operand.history = History::None;
            }
            Ok(())
        }
        Kind::Whole if older => {
            let message =
                "a value that forward mode is differentiating outside is used inside a trace";
            Err(Error::new(ErrorKind::Program, "trace", message)
                .on([x.spec()])
                .at(at)
                .hint("pass it as an argument"))
        }
        Kind::Whole => Ok(()),
    }
}

/// Notes that the gradient of a leaf is looked at or changed.
pub(crate) fn touch(leaf: &Arc<Leaf>, slot: &Option<Tensor>, looked: bool) {
    let Some(trace) = current() else { return };
    let mut log = trace.log.borrow_mut();
    match log.leaves.iter_mut().find(|t| Arc::ptr_eq(&t.leaf, leaf)) {
        Some(_) => {}
        None => log.leaves.push(Touched { leaf: leaf.clone(), before: slot.clone(), looked }),
    }
}

/// The error of reading a value while a function is traced, unless it is known for good.
pub(crate) fn check_readable(x: &Tensor, op: &'static str) -> Result<()> {
    if let Some(traced) = x.0.storage.as_traced() {
        return Err(match GOING_ON.with_borrow(|all| all.iter().any(|t| t.id == traced.trace)) {
            true => traced.unknown(op),
            false => traced.escaped(op),
        });
    }
    let Some(trace) = current() else { return Ok(()) };
    let key = Arc::as_ptr(&x.0.storage) as usize;
    if GOING_ON.with_borrow(|all| all.iter().any(|t| t.log.borrow().constants.contains(&key))) {
        return Ok(());
    }
    let what = match trace.kind {
        Kind::Whole => "a function is traced",
        Kind::Body(name) => name,
    };
    let message =
        format!("a value is read inside {what}, where it would be frozen into the program");
    Err(Error::new(ErrorKind::Program, op, message)
        .on([x.spec()])
        .hint("read it before, and pass what depends on it as a tensor"))
}

/// Whether a value can be looked at: nothing is being traced.
pub(crate) fn knows(x: &Tensor) -> bool {
    !active() && x.0.storage.as_traced().is_none()
}

/// Notes that a tensor was made from values that are known while tracing.
pub(crate) fn note_constant(x: &Tensor) {
    if let Some(trace) = current() {
        let mut log = trace.log.borrow_mut();
        log.constants.insert(Arc::as_ptr(&x.0.storage) as usize);
        // Kept, so that the address stays its own.
        let (history, tangents) = (History::None, Tangents::new());
        log.handles.push((x.clone(), Before { history, tangents, version: x.0.storage.version() }));
    }
}

/// A key for what goes on in a body, from the generator outside; none outside a body.
pub(crate) fn key_from_outside(at: &'static Location<'static>) -> Option<Key> {
    let trace = current()?;
    match (trace.kind, trace.lanes) {
        (Kind::Whole, _) => None,
        (Kind::Body(_), Some(lanes)) => {
            let keys = outside(|| mode::speaking_for(at, || crate::next_key().split_tensor(lanes)));
            let spec = Spec::new(keys.dtype(), Shape::from_slice(&[2]));
            Some(Key::from_tensor(&trace.capture(keys, spec, true, at)))
        }
        (Kind::Body("cond"), None) => Some(outside(|| mode::speaking_for(at, crate::next_key))),
        (Kind::Body(name), None) => {
            let message =
                format!("the global generator would give the same key at every turn of {name}");
            let error = Error::new(ErrorKind::Program, "next_key", message).at(at);
            fail::raise(error.hint("split a key outside (Key::split_n) and pass one to each turn"))
        }
    }
}

/// Writes a value over a tensor, which is a new variable for its storage, and gives the new version.
pub(crate) fn write(target: &Tensor, new: &Tensor, writer: Writer) -> Result<u64> {
    let Some(trace) = current() else {
        return Err(Error::new(ErrorKind::Program, writer.op, "no trace is going on"));
    };
    trace.write(target, new, writer)
}

/// The node is older than the trace: backward would leave it.
pub(crate) fn is_outside(number: u64) -> bool {
    current().is_some_and(|trace| !trace.is_body() && number < trace.first_node)
}

impl Trace {
    fn is_body(&self) -> bool {
        matches!(self.kind, Kind::Body(_))
    }

    /// Whether a tensor's storage was made in this trace.
    fn owns(&self, x: &Tensor) -> bool {
        x.0.storage.as_traced().is_some_and(|traced| traced.trace == self.id)
    }

    fn argument(&self, spec: &Spec, at: &'static Location<'static>) -> Tensor {
        let var = self.log.borrow_mut().program.input(spec.clone());
        self.tensor(var, "an argument", at)
    }

    /// The tensor that a variable is.
    fn tensor(&self, var: Var, op: &'static str, at: &'static Location<'static>) -> Tensor {
        let mut log = self.log.borrow_mut();
        let spec = log.program.spec(var).clone();
        let storage =
            Arc::new(Storage::traced(Traced { trace: self.id, spec: spec.clone(), op, at }));
        let key = Arc::as_ptr(&storage) as usize;
        let root = Root {
            storage: storage.clone(),
            spec: spec.clone(),
            var,
            capture: None,
            written: false,
            before: (0, None),
        };
        log.roots.insert(key, root);
        Tensor::new(spec.clone(), Layout::dense(spec.shape), storage)
    }

    /// A tensor from outside, inside a body.
    fn lift(&self, x: &Tensor, at: &'static Location<'static>) -> Result<Tensor> {
        self.check_reachable(x, "capture", at)?;
        let key = Arc::as_ptr(&x.0) as usize;
        if let Some((_, lifted)) = self.log.borrow().lifted.get(&key) {
            return Ok(lifted.clone());
        }
        let lifted = self.capture(x.clone(), x.spec().clone(), false, at);
        self.log.borrow_mut().lifted.insert(key, (x.clone(), lifted.clone()));
        Ok(lifted)
    }

    fn capture(
        &self,
        tensor: Tensor,
        spec: Spec,
        batched: bool,
        at: &'static Location<'static>,
    ) -> Tensor {
        let var = {
            let mut log = self.log.borrow_mut();
            log.captures.push(Capture { tensor, batched });
            log.program.input(spec)
        };
        self.tensor(var, "a capture", at)
    }

    /// A tensor of another trace must be one that is going on around this one.
    fn check_reachable(&self, x: &Tensor, op: &str, at: &'static Location<'static>) -> Result<()> {
        match x.0.storage.as_traced() {
            Some(traced)
                if !GOING_ON.with_borrow(|all| all.iter().any(|t| t.id == traced.trace)) =>
            {
                Err(traced.escaped(op).at(at))
            }
            _ => Ok(()),
        }
    }

    /// The variable that a tensor is.
    pub fn var_of(&self, x: &Tensor, op: &str, at: &'static Location<'static>) -> Result<Var> {
        let lifted;
        let x = match self.is_body() && !self.owns(x) {
            true => {
                lifted = self.lift(x, at)?;
                &lifted
            }
            false => x,
        };
        let inner = &*x.0;
        let key = (Arc::as_ptr(&inner.storage) as usize, inner.layout.clone());
        let version = inner.storage.version();
        if let Some(&(known, var)) = self.log.borrow().windows.get(&key)
            && known == version
        {
            return Ok(var);
        }
        let (root, spec) = self.root_of(x, op, at)?;
        let mut var = root;
        if inner.layout != Layout::dense(spec.shape.clone()) {
            for view in views_to(x, &spec) {
                let made =
                    self.log.borrow_mut().program.push(Op::View(view), &[var], Some(at.into()));
                var = made.map_err(|e| e.at(at))?[0];
            }
        }
        self.log.borrow_mut().windows.insert(key, (version, var));
        Ok(var)
    }

    /// The variable and spec of the whole storage that a tensor lies in.
    fn root_of(&self, x: &Tensor, op: &str, at: &'static Location<'static>) -> Result<(Var, Spec)> {
        let storage = &x.0.storage;
        let key = Arc::as_ptr(storage) as usize;
        if let Some(root) = self.log.borrow().roots.get(&key) {
            return Ok((root.var, root.spec.clone()));
        }
        self.check_reachable(x, op, at)?;
        let spec = whole_of(x);
        let mut log = self.log.borrow_mut();
        let var = log.program.input(spec.clone());
        let tensor = Tensor::new(spec.clone(), Layout::dense(spec.shape.clone()), storage.clone());
        log.captures.push(Capture { tensor, batched: false });
        let root = Root {
            storage: storage.clone(),
            spec: spec.clone(),
            var,
            capture: Some(log.captures.len() - 1),
            written: false,
            before: (storage.version(), storage.writer()),
        };
        log.roots.insert(key, root);
        Ok((var, spec))
    }

    fn view(
        &self,
        op: &Op,
        view: &View,
        x: &Tensor,
        at: &'static Location<'static>,
    ) -> Result<Tensor> {
        let x = &lift(x, at);
        let spec = infer_one(op, &[x.spec()]).map_err(|e| e.at(at))?;
        let Some(layout) = x.0.layout.view(view) else {
            let var = self.var_of(x, op.name(), at)?;
            let made = self.log.borrow_mut().program.push(op.clone(), &[var], Some(at.into()));
            return Ok(self.tensor(made.map_err(|e| e.at(at))?[0], op.name(), at));
        };
        if self.owns(x) {
            // Recorded now, under the user's line; windows on what comes from outside are recorded where they are used.
            let var = self.var_of(x, op.name(), at)?;
            let key = (Arc::as_ptr(&x.0.storage) as usize, layout.clone());
            let version = x.0.storage.version();
            let known = self.log.borrow().windows.get(&key).is_some_and(|w| w.0 == version);
            let whole = self
                .log
                .borrow()
                .roots
                .get(&key.0)
                .is_some_and(|r| layout == Layout::dense(r.spec.shape.clone()));
            if !known && !whole {
                let mut log = self.log.borrow_mut();
                let made =
                    log.program.push(op.clone(), &[var], Some(at.into())).map_err(|e| e.at(at))?;
                log.windows.insert(key, (version, made[0]));
            }
        }
        let parent = Some(Box::new((x.clone(), view.clone())));
        Ok(Tensor::with_parent(spec, layout, x.0.storage.clone(), parent))
    }

    fn write(&self, target: &Tensor, new: &Tensor, writer: Writer) -> Result<u64> {
        if let Kind::Body(name) = self.kind
            && !self.owns(target)
        {
            let message = format!("a tensor from outside is written in place inside {name}");
            return Err(Error::new(ErrorKind::InPlace, writer.op, message)
                .on([target.spec()])
                .at(writer.at)
                .hint("return the new value, and write it outside"));
        }
        let value = self.var_of(new, writer.op, writer.at)?;
        let (old, spec) = self.root_of(target, writer.op, writer.at)?;
        let whole = target.0.layout.is_dense() && target.len() == spec.len();
        let op = match whole {
            true if *target.dims() == spec.shape => None,
            true => Some(Op::View(View::Reshape(spec.shape.clone()))),
            false => Some(Op::Put(views_to(target, &spec))),
        };
        let mut log = self.log.borrow_mut();
        let inputs: &[Var] = if whole { &[value] } else { &[old, value] };
        let var = match op {
            None => value,
            Some(op) => {
                log.program.push(op, inputs, Some(writer.at.into())).map_err(|e| e.at(writer.at))?
                    [0]
            }
        };
        let key = Arc::as_ptr(&target.0.storage) as usize;
        let version = target.0.storage.bump(writer);
        if let Some(root) = log.roots.get_mut(&key) {
            (root.var, root.written) = (var, true);
        }
        log.windows.insert((key, target.0.layout.clone()), (version, value));
        Ok(version)
    }

    /// Remembers what a tensor from outside is like before it is changed.
    pub fn note(&self, x: &Tensor) {
        if self.owns(x) || self.log.borrow().handles.iter().any(|h| h.0.is_same(x)) {
            return;
        }
        let before = {
            let state = x.lock();
            Before {
                history: state.history.clone(),
                tangents: state.tangents.clone(),
                version: state.version,
            }
        };
        self.log.borrow_mut().handles.push((x.clone(), before));
    }

    fn put_back(&self) {
        let log = std::mem::take(&mut *self.log.borrow_mut());
        for (x, before) in log.handles {
            let mut state = x.lock();
            (state.history, state.tangents, state.version) =
                (before.history, before.tangents, before.version);
        }
        for root in log.roots.values().filter(|r| r.capture.is_some() && r.written) {
            root.storage.restore(root.before.0, root.before.1);
        }
        for touched in log.leaves {
            *touched.leaf.grad() = touched.before;
        }
    }

    fn finish(&self, outputs: &[Tensor], at: &'static Location<'static>) -> Result<Recorded> {
        let mut results = Vec::new();
        for y in outputs {
            results.push(self.var_of(y, "return", at)?);
        }
        let touched = std::mem::take(&mut self.log.borrow_mut().leaves);
        let mut effects = Vec::new();
        for touched in touched {
            let now = touched.leaf.grad().clone();
            let effect = match (&touched.before, now) {
                (Some(before), Some(now)) if before.is_same(&now) => Effect::Nothing,
                (None, None) => Effect::Nothing,
                (Some(_), None) => Effect::Clear,
                (_, Some(now)) if self.owns(&now) => {
                    results.push(self.var_of(&now, "grad", at)?);
                    Effect::Output(results.len() - 1)
                }
                (_, Some(now)) => Effect::Other(now),
            };
            *touched.leaf.grad() = touched.before.clone();
            effects.push((touched, effect));
        }
        let mut log = self.log.borrow_mut();
        let log = &mut *log;
        let mut written: Vec<&Root> =
            log.roots.values().filter(|r| r.written && r.capture.is_some()).collect();
        written.sort_by_key(|r| r.capture);
        let arguments = log.program.inputs.len() - log.captures.len();
        for root in written {
            if let Some(capture) = root.capture {
                log.program.updates.push((results.len(), arguments + capture));
                results.push(root.var);
            }
        }
        log.program.outputs = results;
        Ok(Recorded {
            program: std::mem::take(&mut log.program),
            results: outputs.len(),
            captures: std::mem::take(&mut log.captures),
            leaves: effects,
        })
    }
}

/// The whole memory of a tensor's storage, as its root sees it where that is the whole.
fn whole_of(x: &Tensor) -> Spec {
    let len = match x.0.storage.as_traced() {
        Some(traced) => return traced.spec.clone(),
        None => x.0.storage.read().len() / x.dtype().size(),
    };
    let mut root = x.clone();
    while let Some(parent) = root.0.parent.as_ref().map(|p| p.0.clone()) {
        root = parent;
    }
    match root.is_contiguous() && root.0.layout.offset == 0 && root.len() == len {
        true => root.spec().clone(),
        false => Spec::new(x.dtype(), Shape::from_slice(&[len])),
    }
}

/// The views that lead from the whole of a storage to a tensor in it.
fn views_to(x: &Tensor, whole: &Spec) -> Vec<View> {
    let dense = Layout::dense(whole.shape.clone());
    let (mut at, mut views) = (x.clone(), Vec::new());
    while let Some(parent) = at.0.parent.as_ref().map(|p| (p.0.clone(), p.1.clone())) {
        if at.0.layout == dense {
            break;
        }
        views.push(parent.1);
        at = parent.0;
    }
    if at.0.layout == dense {
        views.reverse();
        return views;
    }
    let mut views = Vec::new();
    if whole.shape.len() != 1 {
        views.push(View::Reshape(Shape::from_slice(&[whole.len()])));
    }
    views.extend(x.0.layout.views_of_flat(whole.len()));
    views
}
