//! What listens while a program is recorded.
//!
//! *Which value is which.* A value is recognised by its memory and its number on the tape: each
//! storage notes, for the recording that is active, which of its layouts, at which version and
//! under which number (none for a constant), is which node. So a value that is a constant to the
//! tape has a place in the graph too, a write in place makes a new one, and so does a tensor that
//! shares memory but not gradients: `h.detach().requires_grad()` is a leaf, and not `h`. What has
//! no note was there before the recording: an input, or a leaf.
//!
//! *Gradients* arrive by the numbers of the tape, so each tracked value is also known by its number
//! there. What a backward pass computes, and what a checkpoint or a budget computes again, are
//! moments of the recording and no values of it.
//!
//! *Nothing is held.* Values are read, reduced to statistics and forgotten at once, so that what is
//! live in a recording is what is live without one.

use super::call::{CompiledPrograms, PendingCall};
use super::file::{MAX_LIST, MAX_LISTED, MAX_NODES, MAX_PARTS, MAX_SAVED, MAX_VISITS, WHOLE};
use super::model::{NodeKind, RecordedNode, RecordedOp, Recording, Sampled, SavedNote, Visit};
use super::stats::Stats;
use crate::events::{self, AGAIN, RECORD, REPLAY};
use crate::rule::Derivatives;
use crate::rule_context::Val;
use crate::storage::Storage;
use crate::tape::{History, Node, ValueId};
use crate::{Tensor, backend, mode, sequence, trace};
use pullback_ir::{Family, Layout, Line, Op, Program, Spec, Stopwatch, Structure};
use rustc_hash::FxHashMap;
use std::cell::RefCell;

/// That a layout of a storage is a node of a recording.
pub(crate) struct RecordMark {
    recording: u64,
    layout: Layout,
    version: u64,
    /// The number on the tape; none is that of a constant.
    key: Option<ValueId>,
    node: u32,
}

thread_local! {
    static RECORDER: RefCell<Option<RecorderState>> = const { RefCell::new(None) };
}

/// A recording that is being made.
pub(super) struct RecorderState {
    /// Its number: notes of others mean nothing.
    number: u64,
    pub(super) out: Recording,
    ops: FxHashMap<String, u32>,
    specs: FxHashMap<Spec, u32>,
    lines: FxHashMap<String, u32>,
    parts: FxHashMap<String, u32>,
    /// Nodes by their numbers on the tape.
    keys: FxHashMap<ValueId, u32>,
    /// The current part of the model.
    pub(super) part: Option<u32>,
    /// Names of tensors.
    names: Vec<(String, Tensor)>,
    /// Operands of all nodes, and contributions of all visits.
    operands: usize,
    contributions: usize,
    backward: usize,
    /// A compiled function that runs now, and how many ran.
    pub(super) call: Option<PendingCall>,
    pub(super) calls: usize,
    stopwatch: Stopwatch,
    pub(super) started: Stopwatch,
    /// Live bytes of the pool before.
    before: u64,
}

impl RecorderState {
    pub fn new(names: Vec<(String, Tensor)>) -> RecorderState {
        let now = Stopwatch::start();
        RecorderState {
            number: sequence::take_number(),
            out: Recording::default(),
            ops: FxHashMap::default(),
            specs: FxHashMap::default(),
            lines: FxHashMap::default(),
            parts: FxHashMap::default(),
            keys: FxHashMap::default(),
            part: None,
            names,
            operands: 0,
            contributions: 0,
            backward: 0,
            call: None,
            calls: 0,
            stopwatch: now,
            started: now,
            before: backend::stats().live_bytes,
        }
    }

    pub(super) fn op(&mut self, op: &Op) -> u32 {
        self.listed_op(op.to_string(), op.name(), family(op))
    }

    /// What is no op, and is listed as one.
    pub(super) fn named_op(&mut self, name: &str, family: &str) -> u32 {
        self.listed_op(name.to_string(), name, family)
    }

    fn listed_op(&mut self, text: String, name: &str, family: &str) -> u32 {
        if let Some(&known) = self.ops.get(&text) {
            return known;
        }
        let number = self.out.ops.len() as u32;
        // Control flow and custom ops print whole programs; the name says enough.
        let shown = if text.len() > 4096 { name.to_string() } else { text.clone() };
        self.out.ops.push(shown);
        self.out.names.push((name.to_string(), family.to_string()));
        self.ops.insert(text, number);
        number
    }

    pub(super) fn spec(&mut self, spec: &Spec) -> u32 {
        let out = &mut self.out.specs;
        *self.specs.entry(spec.clone()).or_insert_with(|| {
            out.push((spec.to_string(), spec.shape.iter().map(|&n| n as u64).collect()));
            out.len() as u32 - 1
        })
    }

    pub(super) fn line(&mut self, at: Line) -> u32 {
        listed(&mut self.lines, &mut self.out.lines, at.to_string())
    }

    /// The node that this memory is noted to be, under a number on the tape.
    fn noted(&self, x: &Tensor, key: Option<ValueId>) -> Option<u32> {
        let storage: &Storage = &x.0.storage;
        if storage.marks.is_empty() {
            return None;
        }
        let notes = storage.marks.notes();
        let version = storage.version();
        let mine = |mark: &&RecordMark| {
            mark.recording == self.number
                && mark.version == version
                && mark.key == key
                && mark.layout == x.0.layout
        };
        notes.recorded.iter().rev().find(mine).map(|mark| mark.node)
    }

    /// The node of a value, if it has one.
    fn node_id(&self, x: &Tensor) -> Option<u32> {
        let key = x.lock().history.key();
        self.noted(x, key)
    }

    /// The node of a result that was computed as a constant and put on the tape afterwards: so do
    /// checkpoints and custom ops. A leaf begins a graph of its own.
    fn known_untracked(&self, x: &Tensor) -> Option<u32> {
        match x.is_tracked() && x.leaf().is_none() {
            true => self.noted(x, None),
            false => None,
        }
    }

    pub(super) fn mark(&mut self, x: &Tensor, node: u32) {
        let storage: &Storage = &x.0.storage;
        let (recording, version, layout) = (self.number, storage.version(), x.0.layout.clone());
        let key = x.lock().history.key();
        let mut notes = storage.marks.notes();
        // Notes of recordings that are over, and of values that were overwritten.
        notes.recorded.retain(|mark| mark.recording == recording && mark.version == version);
        notes.recorded.push(RecordMark { recording, layout, version, key, node });
        drop(notes);
        self.note_key(x, node);
    }

    fn note_key(&mut self, x: &Tensor, node: u32) {
        if let Some(key) = x.lock().history.key() {
            self.keys.entry(key).or_insert(node);
        }
    }

    pub(super) fn push(&mut self, node: RecordedNode) -> Option<u32> {
        let operands = self.operands + node.operands.len();
        if self.out.nodes.len() >= MAX_NODES || operands > MAX_LISTED {
            self.out.left_out += 1;
            return None;
        }
        self.operands = operands;
        self.out.nodes.push(node);
        Some(self.out.nodes.len() as u32 - 1)
    }

    /// The node of an operand, which becomes one if it is none.
    pub(super) fn operand(&mut self, x: &Tensor) -> Option<u32> {
        if let Some(node) = self.node_id(x) {
            self.note_key(x, node);
            return Some(node);
        }
        if let Some(node) = self.known_untracked(x) {
            self.mark(x, node);
            return Some(node);
        }
        // A view that the tape knows: it was made before the recording, or by a write in place.
        let key = x.lock().history.key();
        if let Some(&node) = key.and_then(|key| self.keys.get(&key)) {
            return Some(node);
        }
        let leaf = x.leaf().is_some();
        let name = self.names.iter().find(|(_, named)| named.is_same(x)).map(|(name, _)| name);
        let label = name.cloned().map(|name| {
            self.out.labels.push(name);
            self.out.labels.len() as u32 - 1
        });
        let part = label.and_then(|label| self.part_of(label));
        let node = RecordedNode {
            kind: if leaf { NodeKind::Parameter } else { NodeKind::Input },
            op: None,
            output: 0,
            spec: self.spec(x.spec()),
            line: None,
            part: part.or(self.part),
            label,
            tracked: key.is_some(),
            operands: Vec::new(),
            saved: Vec::new(),
            value: sampled(x),
            gradient: None,
            nanos: 0,
        };
        let node = self.push(node)?;
        self.mark(x, node);
        Some(node)
    }

    /// The part that a leaf of this name belongs to: `blocks.0.weight` to `blocks.0`.
    fn part_of(&mut self, label: u32) -> Option<u32> {
        let (path, _) = self.out.labels[label as usize].rsplit_once('.')?;
        let path = path.to_string();
        self.listed_part(&path)
    }

    /// The number of a part; of too many parts, nothing.
    pub(super) fn listed_part(&mut self, path: &str) -> Option<u32> {
        if self.out.parts.len() >= MAX_PARTS && !self.parts.contains_key(path) {
            return None;
        }
        Some(listed(&mut self.parts, &mut self.out.parts, path.to_string()))
    }

    /// Whether these are results of a decomposition, which was recorded as what it is made of. Its
    /// last op ran after its operands were there: so a view of a view that is the first tensor's
    /// memory again is no decomposition.
    fn is_made_of_others(&mut self, inputs: &[&Tensor], outs: &[Tensor]) -> bool {
        let node = |x: &&Tensor| self.node_id(x).or_else(|| self.known_untracked(x));
        let newest = inputs.iter().filter_map(node).max();
        let node_of = |y: &Tensor| {
            let before = || self.known_untracked(y).filter(|&node| Some(node) > newest);
            self.node_id(y).or_else(before)
        };
        let Some(nodes) = outs.iter().map(node_of).collect::<Option<Vec<u32>>>() else {
            return false;
        };
        for (y, node) in outs.iter().zip(nodes) {
            if self.node_id(y).is_none() {
                self.mark(y, node);
            }
        }
        true
    }

    fn moment(&mut self, op: &Op, at: Line, node: Option<u32>, nanos: u64) {
        let op = self.op(op);
        self.moment_of(op, at, node, nanos);
    }

    pub(super) fn moment_of(&mut self, op: u32, at: Line, node: Option<u32>, nanos: u64) {
        if self.out.moments.len() >= 32 * MAX_NODES {
            return;
        }
        let bytes = backend::stats().live_bytes.saturating_sub(self.before);
        let start = self.started.since(self.stopwatch).as_nanos() as u64;
        let line = Some(self.line(at));
        let (backward, again) = (self.backward > 0, events::is_on(REPLAY | AGAIN));
        self.out.moments.push(RecordedOp { op, node, line, backward, again, bytes, start, nanos });
    }

    /// Whether what runs is work and no value: what a backward pass does, unless that is itself
    /// differentiated, and what runs again.
    pub(super) fn is_work(&self) -> bool {
        self.backward > 0 && !mode::is_grad_enabled() || events::is_on(REPLAY)
    }

    fn ran(&mut self, op: &Op, inputs: &[&Tensor], outs: &[Tensor], at: Line) {
        let nanos = self.started.elapsed().as_nanos() as u64;
        if self.is_made_of_others(inputs, outs) {
            return;
        }
        // A literal that is used is listed as a constant; backward makes one that is not.
        if let Op::Literal { .. } = op {
            return self.moment(op, at, None, nanos);
        }
        if self.is_work() {
            return self.moment(op, at, None, nanos);
        }
        let first = inputs.iter().take(MAX_LIST);
        let operands: Option<Vec<u32>> = first.map(|x| self.operand(x)).collect();
        let (number, line) = (self.op(op), self.line(at));
        let mut first = None;
        for (k, y) in outs.iter().enumerate() {
            let spec = self.spec(y.spec());
            let node = self.push(RecordedNode {
                kind: NodeKind::Op,
                op: Some(number),
                output: k as u32,
                spec,
                line: Some(line),
                part: self.part,
                label: None,
                tracked: y.is_tracked(),
                operands: operands.clone().unwrap_or_default(),
                saved: if k == 0 { saved(y) } else { Vec::new() },
                value: sampled(y),
                gradient: None,
                nanos: if k == 0 { nanos } else { 0 },
            });
            if let Some(node) = node {
                self.mark(y, node);
                first.get_or_insert(node);
            }
        }
        self.moment(op, at, first, nanos);
    }
}

/// The place of a text in a table.
fn listed(places: &mut FxHashMap<String, u32>, table: &mut Vec<String>, text: String) -> u32 {
    if let Some(&known) = places.get(&text) {
        return known;
    }
    table.push(text.clone());
    places.insert(text, table.len() as u32 - 1);
    table.len() as u32 - 1
}

/// The family of an op, as the explorer names it.
pub fn family(op: &Op) -> &'static str {
    match op.family() {
        Family::Source => "source",
        Family::Pointwise(_) => "pointwise",
        Family::View => "view",
        Family::Movement => "movement",
        Family::Index => "index",
        Family::Reduction => "reduction",
        Family::Window => "window",
        Family::Linear => "linear",
        Family::Fused => "fused",
        Family::Collective => "collective",
        Family::Structure(Structure::Region(_) | Structure::DotRegion(_)) => "region",
        Family::Structure(Structure::Flow(_)) => "flow",
        Family::Structure(Structure::Custom(_)) => "custom",
    }
}

/// What the node of a result keeps.
fn saved(y: &Tensor) -> Vec<SavedNote> {
    let state = y.lock();
    let History::Node(node, _) = &state.history else { return Vec::new() };
    let kept = node.saved();
    let note = |which: Val| match which {
        Val::In(i) => {
            SavedNote { result: false, index: i as u32, bytes: node.in_spec(i).bytes() as u64 }
        }
        Val::Out(k) => {
            SavedNote { result: true, index: k as u32, bytes: node.out_specs[k].bytes() as u64 }
        }
    };
    kept.iter().flatten().map(|saved| note(saved.which())).take(MAX_SAVED).collect()
}

/// The elements of a value, or statistics of them.
pub(super) fn sampled(x: &Tensor) -> Sampled {
    if x.0.storage.as_traced().is_some() {
        return Sampled::Unknown;
    }
    let read = || mode::set_recording(false, || crate::catch(|| x.detach().to_f64_vec()));
    match events::silently(read) {
        Ok(values) if values.len() <= WHOLE => Sampled::Whole(values),
        Ok(values) => Sampled::Stats(Stats::of(&values)),
        Err(_) => Sampled::Unknown,
    }
}

/// Runs `f` with the recording, if there is one on this thread and it is not at work already.
fn with(f: impl FnOnce(&mut RecorderState)) {
    RECORDER.with(|slot| {
        if let Ok(mut slot) = slot.try_borrow_mut()
            && let Some(state) = &mut *slot
        {
            f(state);
        }
    });
}

/// Whether this thread is recording.
pub(crate) fn is_on() -> bool {
    events::is_on(RECORD)
}

/// Runs `f` and records it.
pub(super) fn recording<R>(names: Vec<(String, Tensor)>, f: impl FnOnce() -> R) -> (R, Recording) {
    RECORDER.set(Some(RecorderState::new(names)));
    let _off = mode::on_drop(|| drop(RECORDER.take()));
    let result = events::with(RECORD, f);
    let recorded = RECORDER.take().map(|state| state.out).unwrap_or_default();
    (result, recorded)
}

/// An op is about to run.
pub(crate) fn op_starts(op: &Op, at: Line) {
    with(|state| {
        state.started = Stopwatch::start();
        // A value that a budget dropped is computed again by its op alone.
        if events::is_on(AGAIN) && !events::is_on(REPLAY) {
            state.moment(op, at, None, 0);
        }
    });
}

/// An op ran.
pub(crate) fn op_ran(op: &Op, inputs: &[&Tensor], outs: &[Tensor], at: Line) {
    // Inside a trace nothing is computed.
    if !trace::active() {
        with(|state| state.ran(op, inputs, outs, at));
    }
}

/// A compiled function is about to run.
pub(crate) fn call_starts(programs: &CompiledPrograms, operands: &[Option<&Tensor>], at: Line) {
    if !trace::active() {
        with(|state| state.call_starts(programs, operands, at));
    }
}

/// It ran.
pub(crate) fn call_ran(traced: &Program, results: &[(usize, &Tensor)]) {
    with(|state| state.call_ran(traced, results));
}

/// A backward pass: ends when this is dropped.
pub(crate) struct RecordedBackward(());

/// A backward pass starts.
pub(crate) fn backward_starts() -> RecordedBackward {
    with(|state| state.backward += 1);
    RecordedBackward(())
}

impl Drop for RecordedBackward {
    fn drop(&mut self) {
        with(|state| state.backward = state.backward.saturating_sub(1));
    }
}

/// A backward pass begins here.
pub(crate) fn backward_from(root: &History) {
    with(|state| {
        // The passes of checkpoints are inside another.
        if let (Some(key), true) = (root.key(), state.backward == 1) {
            state.out.result = state.keys.get(&key).copied().or(state.out.result);
        }
    });
}

/// The backward pass visits a node with its complete gradients.
pub(crate) fn visited(node: &Node, grads: &Derivatives) {
    with(|state| {
        let mut first = None;
        for (k, grad) in grads.iter().enumerate() {
            let (Some(grad), Some(&id)) = (grad, state.keys.get(&(node.seq, k as u32))) else {
                continue;
            };
            let adjoint = sampled(grad);
            state.out.nodes[id as usize].gradient = Some(adjoint.clone());
            first.get_or_insert((id, adjoint));
        }
        if let (Some((node, adjoint)), true) = (first, state.out.visits.len() < MAX_VISITS) {
            state.out.visits.push(Visit { node, adjoint, contributions: Vec::new() });
        }
    });
}

/// A node that is being visited adds to the gradient of an operand.
pub(crate) fn contributed(node: &Node, operand: usize, dx: &Tensor) {
    with(|state| {
        let Some(to) = node.inputs[operand].key().and_then(|key| state.keys.get(&key).copied())
        else {
            return;
        };
        let mine = (0..node.out_specs.len() as u32)
            .any(|k| state.keys.get(&(node.seq, k)) == state.out.visits.last().map(|v| &v.node));
        if let (Some(visit), true) = (state.out.visits.last_mut(), mine)
            && visit.contributions.len() < MAX_LIST
            && state.contributions < MAX_LISTED
        {
            state.contributions += 1;
            visit.contributions.push((operand as u32, to, sampled(dx)));
        }
    });
}

/// The gradient of a leaf is complete.
pub(crate) fn leaf_gradient(leaf: u64, grad: &Tensor) {
    with(|state| {
        if let Some(&id) = state.keys.get(&(leaf, 0)) {
            state.out.nodes[id as usize].gradient = Some(sampled(grad));
        }
    });
}

/// Makes this part of the model the current one; the number of the previous one.
pub(crate) fn enter_part(name: &str) -> Option<u32> {
    let mut before = None;
    with(|state| {
        before = state.part;
        state.part = state.listed_part(name);
    });
    before
}

/// Back in the previous part.
pub(crate) fn leave_part(before: Option<u32>) {
    with(|state| state.part = before);
}

/// The current part.
pub(crate) fn part() -> Option<String> {
    let mut name = None;
    with(|state| name = state.part.map(|part| state.out.parts[part as usize].clone()));
    name
}

/// Whether a backward pass is active.
pub(crate) fn in_backward() -> bool {
    let mut on = false;
    with(|state| on = state.backward > 0);
    on
}
