//! An active trace: which variable each tensor is, and what was noted about captured tensors.

use super::{
    ACTIVE, Capture, Effect, FinishedTrace, StorageVar, TensorSnapshot, Trace, TraceKind, TraceLog,
    lift,
};
use crate::backend::Pooled;
use crate::storage::{LastWrite, Storage, Traced};
use crate::tape::History;
use crate::tensor::Frozen;
use crate::{Error, Flag, Result, Tensor, mode};
use pullback_ir::infer::Checked;
use pullback_ir::{ErrorKind, Layout, Line, Op, Program, Shape, Spec, Unary, Var, View};

impl TraceLog {
    /// Notes that `y` has the values of `x`.
    pub(super) fn follow(&mut self, y: &Tensor, x: &Tensor) {
        self.followed += 1;
        // Now and then, so that it costs nothing for each.
        if self.followed > 64 + 2 * self.followers.len() {
            self.followed = 0;
            self.followers.retain(|_, all| {
                all.retain(|(y, _)| y.strong_count() > 0);
                !all.is_empty()
            });
        }
        let key = Pooled::as_ptr(&x.0.storage) as usize;
        let follower = (Pooled::downgrade(&y.0.storage), x.clone());
        self.followers.entry(key).or_default().push(follower);
    }
}

impl Trace {
    pub(super) fn is_body(&self) -> bool {
        matches!(self.kind, TraceKind::Body(_))
    }

    /// Whether a `no_grad` was entered inside this trace and is active.
    pub(super) fn is_cut(&self) -> bool {
        mode::cut() >= self.first_level
    }

    /// Whether a value follows from a float that may be differentiated outside: an argument, or a
    /// capture that is not a plain constant.
    pub(super) fn depends_on_floats(&self, x: &Tensor, at: Line) -> Result<bool> {
        let (var, _) = self.root_of(x, "in-place", at)?;
        let log = &mut *self.log.borrow_mut();
        log.floats.follow(&log.program, &log.captures);
        Ok(log.floats.depends[var.index()])
    }

    /// Whether a tensor's storage was made in this trace.
    pub(super) fn owns(&self, x: &Tensor) -> bool {
        x.0.storage.as_traced().is_some_and(|traced| traced.trace == self.id)
    }

    /// Whether this is a constant that was made while tracing.
    pub(super) fn made(&self, x: &Tensor) -> bool {
        self.log.borrow().constants.contains(&(Pooled::as_ptr(&x.0.storage) as usize))
    }

    pub(super) fn argument(&self, spec: &Spec, at: Line) -> Tensor {
        let var = self.log.borrow_mut().program.input(spec.clone());
        let argument = self.tensor(var, "an argument", at);
        // A program takes its arguments by value: a write to one would be lost.
        argument.lock().frozen = Frozen::Argument;
        argument
    }

    /// The tensor that a variable is.
    pub(super) fn tensor(&self, var: Var, op: &'static str, at: Line) -> Tensor {
        let mut log = self.log.borrow_mut();
        let spec = log.program.spec(var).clone();
        let storage = Storage::traced(Traced { trace: self.id, spec: spec.clone(), op, at });
        let key = Pooled::as_ptr(&storage) as usize;
        let root = StorageVar {
            storage: Pooled::downgrade(&storage),
            spec: spec.clone(),
            var,
            capture: None,
            lifted: false,
            written: false,
            before: (0, None),
        };
        log.roots.insert(key, root);
        Tensor::new(spec.clone(), Layout::dense(spec.shape), storage)
    }

    /// A captured tensor, inside a body.
    pub(super) fn lift(&self, x: &Tensor, at: Line) -> Result<Tensor> {
        self.check_reachable(x, "capture", at)?;
        let key = Pooled::as_ptr(&x.0) as usize;
        if let Some((_, lifted)) = self.log.borrow().lifted.get(&key) {
            return Ok(lifted.clone());
        }
        let lifted = self.capture(Capture::of(x), x.spec().clone(), at);
        let mut log = self.log.borrow_mut();
        if let Some(root) = log.roots.get_mut(&(Pooled::as_ptr(&lifted.0.storage) as usize)) {
            root.lifted = true;
        }
        log.lifted.insert(key, (x.clone(), lifted.clone()));
        Ok(lifted)
    }

    /// The variable that represents a captured tensor, if it was used.
    pub(super) fn lifted(&self, x: &Tensor) -> Option<Tensor> {
        let key = Pooled::as_ptr(&x.0) as usize;
        self.log.borrow().lifted.get(&key).map(|(_, lifted)| lifted.clone())
    }

    /// Whether the memory is that of a captured tensor: a view of one is made of its variable.
    fn is_lifted(&self, x: &Tensor) -> bool {
        let key = Pooled::as_ptr(&x.0.storage) as usize;
        self.log.borrow().roots.get(&key).is_some_and(|root| root.lifted)
    }

    pub(super) fn capture(&self, capture: Capture, spec: Spec, at: Line) -> Tensor {
        let var = {
            let mut log = self.log.borrow_mut();
            log.captures.push(capture);
            log.program.input(spec)
        };
        self.tensor(var, "a capture", at)
    }

    /// A tensor of another trace must belong to an enclosing one.
    pub(super) fn check_reachable(&self, x: &Tensor, op: &str, at: Line) -> Result<()> {
        match x.0.storage.as_traced() {
            Some(traced) if !ACTIVE.with_borrow(|all| all.iter().any(|t| t.id == traced.trace)) => {
                Err(traced.escaped(op).at(at))
            }
            _ => Ok(()),
        }
    }

    /// A value with a derivative of zero.
    pub(super) fn stop(&self, x: &Tensor, at: Line) -> Result<Tensor> {
        let var = self.stop_var(x, at)?;
        Ok(self.tensor(var, Op::Unary(Unary::Stop).name(), at))
    }

    fn stop_var(&self, x: &Tensor, at: Line) -> Result<Var> {
        let op = Op::Unary(Unary::Stop);
        let var = self.var_of(x, op.name(), at)?;
        let made = self.log.borrow_mut().program.push(op, &[var], Some(at));
        Ok(made.map_err(|e| e.at(at))?[0])
    }

    /// Updates values that were detached from this storage after a write to it: outside of bodies
    /// they share its memory.
    fn renew_followers(&self, written: &Pooled<Storage>, writer: LastWrite) -> Result<()> {
        let mut left = vec![written.clone()];
        while let Some(source) = left.pop() {
            let key = Pooled::as_ptr(&source) as usize;
            let all: Vec<(Pooled<Storage>, Tensor)> = {
                let mut log = self.log.borrow_mut();
                let Some(all) = log.followers.get_mut(&key) else { continue };
                all.retain(|(y, _)| y.strong_count() > 0);
                all.iter().filter_map(|(y, x)| Some((y.upgrade()?, x.clone()))).collect()
            };
            for (y, x) in all {
                let var = self.stop_var(&x, writer.at)?;
                let key = Pooled::as_ptr(&y) as usize;
                if let Some(root) = self.log.borrow_mut().roots.get_mut(&key) {
                    root.var = var;
                }
                y.bump(writer);
                left.push(y);
            }
        }
        Ok(())
    }

    /// The variable that a tensor is.
    pub fn var_of(&self, x: &Tensor, op: &str, at: Line) -> Result<Var> {
        let lifted;
        let x = match self.is_body() && !self.owns(x) {
            true => {
                lifted = self.lift(x, at)?;
                &lifted
            }
            false => x,
        };
        let inner = &*x.0;
        let key = (Pooled::as_ptr(&inner.storage) as usize, inner.layout.clone());
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
                let made = self.log.borrow_mut().program.push(Op::View(view), &[var], Some(at));
                var = made.map_err(|e| e.at(at))?[0];
            }
        }
        self.log.borrow_mut().windows.insert(key, (version, var));
        Ok(var)
    }

    /// The variable and spec of the whole storage of a tensor.
    pub(super) fn root_of(&self, x: &Tensor, op: &str, at: Line) -> Result<(Var, Spec)> {
        let storage = &x.0.storage;
        let key = Pooled::as_ptr(storage) as usize;
        if let Some(root) = self.log.borrow().roots.get(&key) {
            return Ok((root.var, root.spec.clone()));
        }
        self.check_reachable(x, op, at)?;
        let spec = whole_of(x);
        let mut log = self.log.borrow_mut();
        let var = log.program.input(spec.clone());
        let tensor = Tensor::new(spec.clone(), Layout::dense(spec.shape.clone()), storage.clone());
        log.captures.push(Capture { handle: Some(x.clone()), ..Capture::of(&tensor) });
        let root = StorageVar {
            storage: Pooled::downgrade(storage),
            spec: spec.clone(),
            var,
            capture: Some(log.captures.len() - 1),
            lifted: false,
            written: false,
            before: (storage.version(), storage.writer()),
        };
        log.roots.insert(key, root);
        Ok((var, spec))
    }

    pub(super) fn view(&self, call: Checked, view: &View, x: &Tensor, at: Line) -> Result<Tensor> {
        let (op, x, spec) = (call.op(), &lift(x, at), call.results()[0].clone());
        let Some(layout) = x.0.layout.view(view) else {
            let var = self.var_of(x, op.name(), at)?;
            let made = self.log.borrow_mut().program.push_checked(call, &[var], Some(at));
            return Ok(self.tensor(made[0], op.name(), at));
        };
        if self.owns(x) {
            // Recorded now, under the user's line; windows on what is captured are recorded
            // where they are used.
            let var = self.var_of(x, op.name(), at)?;
            let key = (Pooled::as_ptr(&x.0.storage) as usize, layout.clone());
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
                let made = log.program.push_checked(call, &[var], Some(at));
                log.windows.insert(key, (version, made[0]));
            }
        }
        if !self.owns(x) && !self.is_body() {
            // It is captured here, so that it is known by the tensor itself and not by a window
            // made inside.
            self.root_of(x, op.name(), at)?;
        }
        let parent = Some(Box::new((x.clone(), view.clone())));
        Ok(Tensor::with_parent(spec, layout, x.0.storage.clone(), parent))
    }

    pub(super) fn write(&self, target: &Tensor, new: &Tensor, writer: LastWrite) -> Result<u64> {
        if let TraceKind::Body(name) = self.kind
            && (!self.owns(target) || self.is_lifted(target))
        {
            let message = format!("a captured tensor is written in place inside {name}");
            return Err(Error::new(ErrorKind::InPlace, writer.op, message)
                .on([target.spec()])
                .at(writer.at)
                .hint("return the new value, and write it outside; give a module that updates buffers as an argument, or call eval() on it"));
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
                log.program.push(op, inputs, Some(writer.at)).map_err(|e| e.at(writer.at))?[0]
            }
        };
        let key = Pooled::as_ptr(&target.0.storage) as usize;
        let version = target.0.storage.bump(writer);
        if let Some(root) = log.roots.get_mut(&key) {
            (root.var, root.written) = (var, true);
        }
        log.windows.insert((key, target.0.layout.clone()), (version, value));
        drop(log);
        self.renew_followers(&target.0.storage, writer)?;
        Ok(version)
    }

    /// Remembers what a captured tensor is like before it is changed.
    pub fn note(&self, x: &Tensor) {
        // Its address is not reused, as it is kept.
        if self.owns(x) || !self.log.borrow_mut().noted.insert(Pooled::as_ptr(&x.0) as usize) {
            return;
        }
        let before = {
            let state = x.lock();
            TensorSnapshot {
                history: state.history.clone(),
                tangents: state.tangents.clone(),
                version: state.version,
            }
        };
        self.log.borrow_mut().handles.push((x.clone(), before));
    }

    /// Whether the storage of a tensor of this trace was written to.
    fn is_written(&self, x: &Tensor) -> bool {
        let key = Pooled::as_ptr(&x.0.storage) as usize;
        self.log.borrow().roots.get(&key).is_some_and(|root| root.written)
    }

    pub(super) fn put_back(&self) {
        let log = std::mem::take(&mut *self.log.borrow_mut());
        for (x, before) in log.handles {
            x.replace_state(Some(before.history), Some(before.tangents), Some(before.version));
        }
        for root in log.roots.values().filter(|r| r.capture.is_some() && r.written) {
            // What was captured is held by its capture.
            if let Some(storage) = root.storage.upgrade() {
                storage.restore(root.before.0, root.before.1);
            }
        }
        for touched in log.leaves {
            *touched.leaf.grad() = touched.before;
        }
    }

    pub(super) fn note_flag_read(&self, flag: &Flag, value: bool) {
        let log = &mut *self.log.borrow_mut();
        if log.noted.insert(flag.number()) {
            log.flags.push((flag.clone(), value));
        }
    }

    pub(super) fn finish(&self, outputs: &[Tensor], at: Line) -> Result<FinishedTrace> {
        let mut results = Vec::new();
        for y in outputs {
            results.push(self.var_of(y, "return", at)?);
        }
        let touched = std::mem::take(&mut self.log.borrow_mut().leaves);
        let mut effects = Vec::new();
        for touched in touched {
            let now = touched.leaf.grad().clone();
            let effect = match (&touched.before, now) {
                (_, Some(now)) if touched.input.as_ref().is_some_and(|x| x.is_same(&now)) => {
                    match self.is_written(&now) {
                        true => {
                            results.push(self.var_of(&now, "grad", at)?);
                            Effect::Write(results.len() - 1)
                        }
                        false => Effect::Nothing,
                    }
                }
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
        let mut written: Vec<&StorageVar> =
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
        Ok(FinishedTrace {
            program: std::mem::take(&mut log.program),
            results: outputs.len(),
            captures: std::mem::take(&mut log.captures),
            leaves: effects,
            flags: std::mem::take(&mut log.flags),
            checks_values: log.checks_values,
            tracked_state: log.handles.iter().any(|(x, _)| can_be_differentiated(x)),
        })
    }
}

/// Which variables follow from floats that may be differentiated outside, as far as the program was
/// analysed: it only grows, so a write does not analyse all of it again.
#[derive(Default)]
pub(super) struct Floats {
    depends: Vec<bool>,
    /// How many inputs and equations were analysed.
    inputs: usize,
    equations: usize,
}

impl Floats {
    fn follow(&mut self, program: &Program, captures: &[Capture]) {
        self.depends.resize(program.specs.len(), false);
        let is_float = |v: Var| program.spec(v).dtype.is_float();
        let arguments = program.inputs.len() - captures.len();
        for (i, &v) in program.inputs.iter().enumerate().skip(self.inputs) {
            let constant = i.checked_sub(arguments).is_some_and(|i| {
                let outside = &captures[i].tensor;
                outside.0.storage.as_traced().is_none()
                    && !outside.is_tracked()
                    && !outside.carries_tangents()
            });
            self.depends[v.index()] = is_float(v) && !constant;
        }
        for e in &program.equations[self.equations..] {
            let stops = matches!(e.op, Op::Unary(Unary::Stop));
            let any = !stops && e.inputs.iter().any(|v| self.depends[v.index()]);
            e.outputs.iter().for_each(|&v| self.depends[v.index()] = any && is_float(v));
        }
        (self.inputs, self.equations) = (program.inputs.len(), program.equations.len());
    }
}

/// Whether a backward pass could start here: not where the graph was freed by one.
pub(crate) fn can_be_differentiated(y: &Tensor) -> bool {
    match &y.lock().history {
        History::None | History::Cut(_) | History::Leaf(_) => false,
        History::Node(node, _) => !node.is_freed(),
    }
}

/// The whole memory of a tensor's storage, as its root sees it where that is the whole.
fn whole_of(x: &Tensor) -> Spec {
    let len = match x.0.storage.as_traced() {
        Some(traced) => return traced.spec.clone(),
        None => x.0.storage.bytes() / x.dtype().size(),
    };
    let mut root = x.clone();
    while let Some(parent) = root.0.parent.as_ref().map(|p| p.0.clone()) {
        root = parent;
    }
    match root.is_contiguous() && root.0.layout.offset == 0 && root.len() == len {
        true => root.spec().clone(),
        false => x.spec().with_shape(Shape::from_slice(&[len])),
    }
}

/// The chain of views from the whole of a storage to a tensor in it.
fn views_to(x: &Tensor, whole: &Spec) -> Vec<View> {
    let dense = Layout::dense(whole.shape.clone());
    let (mut at, mut views) = (x.clone(), Vec::new());
    while let Some((parent, view)) = at.parent() {
        if at.0.layout == dense {
            break;
        }
        views.push(view);
        at = parent;
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
