//! Lifetimes of storages: the ledger that a report is made from.

use super::{MemoryKind, MemoryPhase};
use crate::backend::Pooled;
use crate::events::{self, AGAIN, LEDGER as ON, REPLAY};
use crate::leaf::Leaf;
use crate::sequence::take_number;
use crate::storage::{Storage, Traced};
use crate::{Tensor, mode, trace};
use pullback_ir::{Device, Line, Op};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A ledger that lifetime handles refer to.
pub(super) type SharedLedger = Arc<Mutex<Ledger>>;

/// The lifetime of a storage.
pub(super) struct Life {
    pub bytes: u64,
    pub device: Device,
    /// The first and the last moment at which it is alive.
    pub first: usize,
    pub last: usize,
    pub op: &'static str,
    pub at: Option<Line>,
    pub part: Option<usize>,
    /// What it was used for before the step.
    pub known: Option<MemoryKind>,
    pub gradient: bool,
    pub saved: bool,
    /// It has no memory of its own: it represents a gradient that existed before.
    stand_in: bool,
    /// All its elements are 1.
    one: bool,
}

impl Life {
    pub fn new(
        (bytes, device): (usize, Device),
        first: usize,
        op: &'static str,
        at: Option<Line>,
        part: Option<usize>,
    ) -> Life {
        Life {
            bytes: bytes as u64,
            device,
            first,
            last: usize::MAX,
            op,
            at,
            part,
            known: None,
            gradient: false,
            saved: false,
            stand_in: false,
            one: false,
        }
    }

    pub fn kind(&self) -> MemoryKind {
        match self.known {
            Some(kind) => kind,
            None if self.gradient => MemoryKind::Gradients,
            None if self.saved => MemoryKind::Activations,
            None => MemoryKind::Temporaries,
        }
    }

    pub fn is_alive(&self, moment: usize) -> bool {
        self.first <= moment && moment <= self.last
    }
}

/// An op, by number.
pub(super) struct Moment {
    pub op: &'static str,
    pub at: Option<Line>,
    pub phase: MemoryPhase,
    /// It had run before.
    pub again: bool,
}

#[derive(Default)]
pub(super) struct Ledger {
    /// The trace whose values count; 0 where memory does.
    trace: u64,
    /// Memory that is older was there before.
    since: u64,
    pub moments: Vec<Moment>,
    pub lives: Vec<Life>,
    /// The names of parts.
    pub parts: Vec<String>,
    /// The current part.
    pub part: Option<usize>,
    /// The parts of leaves, by their numbers.
    leaves: FxHashMap<u64, usize>,
    /// The op that runs, and whether it has a moment.
    op: Option<(&'static str, Line, bool)>,
    /// Whether it is the literal 1.
    one: bool,
    /// How many backward passes are active, and whether one has ended.
    walks: usize,
    walked: bool,
}

/// A storage's place in a ledger; dropped with the storage, which ends its lifetime. A storage that
/// outlives a report keeps an invalid handle of it until the next report.
pub(crate) struct LifetimeHandle {
    ledger: Weak<Mutex<Ledger>>,
    number: usize,
}

impl Drop for LifetimeHandle {
    fn drop(&mut self) {
        if let Some(ledger) = self.ledger.upgrade() {
            let mut ledger = of(&ledger);
            let now = ledger.now();
            ledger.lives[self.number].last = now;
        }
    }
}

thread_local! {
    static LEDGER: RefCell<Option<SharedLedger>> = const { RefCell::new(None) };
}

pub(super) fn of(ledger: &SharedLedger) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f`; what it makes on this thread is written into the ledger.
pub(super) fn with<R>(ledger: &SharedLedger, f: impl FnOnce() -> R) -> R {
    let outer = LEDGER.replace(Some(ledger.clone()));
    let _restore = mode::on_drop(|| LEDGER.set(outer));
    events::with(ON, f)
}

/// Whether a ledger is kept on this thread.
pub(crate) fn is_on() -> bool {
    events::is_on(ON)
}

/// The ledger that is kept.
pub(super) fn kept() -> Option<SharedLedger> {
    match is_on() {
        true => LEDGER.with_borrow(Clone::clone),
        false => None,
    }
}

impl Ledger {
    /// One in which these tensors are known.
    pub fn new(known: &[(MemoryKind, String, Tensor)], parts: Vec<String>) -> SharedLedger {
        let start = Moment { op: "start", at: None, phase: MemoryPhase::Forward, again: false };
        let (moments, since) = (vec![start], take_number());
        let ledger = Ledger { since, moments, parts, ..Ledger::default() };
        let shared = Arc::new(Mutex::new(ledger));
        for (kind, part, x) in known {
            let part = of(&shared).part_named(part);
            if let Some(leaf) = x.leaf() {
                of(&shared).leaves.entry(leaf.seq).or_insert(part);
                if let Some(gradient) = &*leaf.grad() {
                    register_known(&shared, gradient, MemoryKind::Gradients, Some(part));
                }
            }
            register_known(&shared, x, *kind, Some(part));
        }
        shared
    }

    /// Counts the values of this trace.
    pub fn follow(&mut self, trace: u64) {
        self.trace = trace;
    }

    /// The current moment.
    pub fn now(&self) -> usize {
        self.moments.len() - 1
    }

    pub fn part_named(&mut self, name: &str) -> usize {
        match self.parts.iter().position(|known| known == name) {
            Some(part) => part,
            None => {
                self.parts.push(name.to_string());
                self.parts.len() - 1
            }
        }
    }

    fn push_moment(&mut self, op: &'static str, at: Option<Line>) {
        let phase = self.phase();
        self.moments.push(Moment { op, at, phase, again: events::is_on(REPLAY | AGAIN) });
    }

    pub fn phase(&self) -> MemoryPhase {
        match () {
            () if self.walks > 0 => MemoryPhase::Backward,
            () if self.walked && mode::in_no_grad() => MemoryPhase::Step,
            () => MemoryPhase::Forward,
        }
    }

    /// The step has ended: what is alive now stays.
    pub fn close(&mut self) {
        let phase = self.moments[self.now()].phase;
        self.moments.push(Moment { op: "end", at: None, phase, again: false });
    }

    fn live(&mut self, life: Life) -> usize {
        self.lives.push(life);
        self.lives.len() - 1
    }

    /// What runs, for something that it makes: its name and line, in a moment of its own.
    fn maker(&mut self) -> (&'static str, Option<Line>) {
        let Some((name, line, has_moment)) = self.op else { return ("tensor", None) };
        // A view that had to be copied, or a value that came back.
        if !has_moment {
            self.push_moment(name, Some(line));
            self.op = Some((name, line, true));
        }
        (name, Some(line))
    }
}

/// The lifetime of a storage in this ledger.
fn number(ledger: &SharedLedger, storage: &Storage) -> Option<usize> {
    if storage.marks.is_empty() {
        return None;
    }
    let handles = &storage.marks.notes().lifetimes;
    let mine = |handle: &&LifetimeHandle| std::ptr::eq(handle.ledger.as_ptr(), Arc::as_ptr(ledger));
    handles.iter().find(mine).map(|handle| handle.number)
}

/// Begins the lifetime of a storage.
fn admit(ledger: &SharedLedger, storage: &Storage, life: Life) {
    let handle = LifetimeHandle { ledger: Arc::downgrade(ledger), number: of(ledger).live(life) };
    let handles = &mut storage.marks.notes().lifetimes;
    handles.retain(|old| old.ledger.strong_count() > 0);
    handles.push(handle);
}

/// Memory that was there before the step, or that another thread has made since: then it is there
/// from now on.
fn register_known(ledger: &SharedLedger, x: &Tensor, kind: MemoryKind, part: Option<usize>) {
    let storage: &Storage = &x.0.storage;
    if storage.as_traced().is_some() || number(ledger, &x.0.storage).is_some() {
        return;
    }
    let size = (storage.bytes(), storage.device());
    let first = {
        let state = of(ledger);
        if storage.created > state.since { state.now() } else { 0 }
    };
    admit(ledger, storage, Life { known: Some(kind), ..Life::new(size, first, "", None, part) });
}

/// An operand: where it was there before, it is a parameter, its gradient comes with it, or it is
/// an input.
fn meet_operand(ledger: &SharedLedger, x: &Tensor) {
    if x.0.storage.as_traced().is_some() || number(ledger, &x.0.storage).is_some() {
        return;
    }
    // Not updated: a view of a leaf is not a leaf, but shares its memory.
    let mut root = x.clone();
    while let Some(parent) = root.0.parent.as_ref().map(|parent| parent.0.clone()) {
        root = parent;
    }
    let Some(leaf) = root.leaf() else {
        return register_known(ledger, x, MemoryKind::Inputs, None);
    };
    let part = of(ledger).leaves.get(&leaf.seq).copied();
    register_known(ledger, x, MemoryKind::Parameters, part);
    let gradient = leaf.grad().clone();
    if let Some(gradient) = gradient {
        register_known(ledger, &gradient, MemoryKind::Gradients, part);
    }
}

/// Whether what happens now, in this trace or in none, is what the ledger counts.
fn counts_here(ledger: &SharedLedger) -> bool {
    of(ledger).trace == trace::number()
}

/// An op is about to run.
pub(crate) fn begins(op: &Op, inputs: &[&Tensor], at: Line) {
    let Some(ledger) = kept().filter(counts_here) else { return };
    inputs.iter().for_each(|x| meet_operand(&ledger, x));
    let mut state = of(&ledger);
    let is_view = matches!(op, Op::View(_));
    state.op = Some((op.name(), at, !is_view));
    state.one = matches!(op, Op::Literal { value, .. } if value.as_f64() == 1.0);
    if !is_view {
        state.push_moment(op.name(), Some(at));
    }
}

/// Something that is not an op of its own is about to work over these tensors, in place.
pub(crate) fn works<'a>(name: &'static str, on: impl Iterator<Item = &'a Tensor>, at: Line) {
    let Some(ledger) = kept().filter(counts_here) else { return };
    on.for_each(|x| meet_operand(&ledger, x));
    let mut state = of(&ledger);
    state.op = Some((name, at, true));
    state.push_moment(name, Some(at));
}

/// The arena of a compiled function, which it borrows for the call.
pub(crate) fn takes_arena(bytes: usize, device: Device, at: Line) {
    let Some(ledger) = kept().filter(counts_here) else { return };
    let mut state = of(&ledger);
    let now = state.now();
    let life = Life::new((bytes, device), now, "jit", Some(at), state.part);
    state.live(Life { last: now, ..life });
}

/// A storage is made, of that many bytes or for a value of a trace: its handle, if it counts.
pub(crate) fn allocated(
    bytes: usize,
    device: Device,
    traced: Option<&Traced>,
) -> Option<LifetimeHandle> {
    let ledger = kept()?;
    let mut state = of(&ledger);
    let bytes = match traced {
        None => bytes,
        Some(value) if value.trace != state.trace => return None,
        // A literal is one element, however often it is seen; and a value that waits for another is
        // that value.
        Some(value) if value.op == "literal" => value.spec.dtype.size(),
        Some(value) if value.op == "after" => 0,
        Some(value) => value.spec.bytes(),
    };
    let (mut op, mut at) = state.maker();
    if let Some(value) = traced {
        (op, at) = (value.op, Some(value.at));
    }
    let one = state.one && op == "literal";
    let life = Life { one, ..Life::new((bytes, device), state.now(), op, at, state.part) };
    let number = state.live(life);
    Some(LifetimeHandle { ledger: Arc::downgrade(&ledger), number })
}

/// This memory is kept for backward.
pub(crate) fn saves(storage: &Storage) {
    let Some(ledger) = kept() else { return };
    if let Some(number) = number(&ledger, storage) {
        of(&ledger).lives[number].saved = true;
    }
}

/// Runs `f`, which packs a value that is saved: what it made and did not drop is kept in the
/// value's place. If it holds the value's own memory afterwards, which has one holder more then,
/// that is kept.
pub(crate) fn packing<R>(storage: &Pooled<Storage>, f: impl FnOnce() -> Option<R>) -> Option<R> {
    let Some(ledger) = kept() else { return f() };
    let first = of(&ledger).lives.len();
    let holders = Pooled::strong_count(storage);
    let packed = f();
    if packed.is_some() {
        let mut state = of(&ledger);
        let made = state.lives[first..].iter_mut();
        made.filter(|life| life.last == usize::MAX).for_each(|life| life.saved = true);
        drop(state);
        if Pooled::strong_count(storage) > holders {
            saves(storage);
        }
    }
    packed
}

/// An op is about to have a value back that was packed for it: what is made for that without an op
/// of its own is made by this one.
pub(crate) fn unpacks(op: &Op, at: Line) {
    let Some(ledger) = kept().filter(counts_here) else { return };
    of(&ledger).op = Some((op.name(), at, false));
}

/// This value was packed and is unpacked. Memory that was made in between where no ledger is kept,
/// as by a thread of the packer's, counts from now on.
pub(crate) fn unpacked(x: &Tensor) {
    let Some(ledger) = kept().filter(counts_here) else { return };
    let storage: &Storage = &x.0.storage;
    if storage.as_traced().is_some() || number(&ledger, storage).is_some() {
        return;
    }
    let mut state = of(&ledger);
    // What is older is treated as any other operand.
    if storage.created > state.since {
        let (op, at) = state.maker();
        let (first, part) = (state.now(), state.part);
        drop(state);
        let size = (storage.bytes(), storage.device());
        register(&ledger, storage, Life::new(size, first, op, at, part));
    }
}

/// Memory that is kept for backward has come from where no ledger is kept.
pub(super) fn register(ledger: &SharedLedger, storage: &Storage, life: Life) {
    admit(ledger, storage, Life { saved: true, ..life });
}

/// Whether the active trace is that of a prediction.
pub(crate) fn is_predicting() -> bool {
    trace::active() && kept().is_some_and(|ledger| counts_here(&ledger))
}

/// This is the gradient of a leaf, or becomes a part of it.
pub(crate) fn is_gradient(leaf: &Leaf, x: &Tensor) {
    let Some(ledger) = kept() else { return };
    let Some(number) = number(&ledger, &x.0.storage) else { return };
    let mut state = of(&ledger);
    let part = state.leaves.get(&leaf.seq).copied();
    let life = &mut state.lives[number];
    (life.gradient, life.part) = (true, part);
}

/// In a trace, a write in place makes a new value, which has no memory outside of one.
pub(crate) fn overwrites(new: &Tensor) {
    let Some(ledger) = kept() else { return };
    if let (Some(number), true) =
        (number(&ledger, &new.0.storage), new.0.storage.as_traced().is_some())
    {
        let mut state = of(&ledger);
        state.lives[number].first = state.now() + 1;
    }
}

/// In a trace, `new` was made of `old`, which has no other references: outside of one it would be
/// the same memory.
pub(crate) fn continues(old: &Tensor, new: &Tensor) {
    let Some(ledger) = kept().filter(|_| !mode::is_grad_enabled()) else { return };
    if old.0.storage.as_traced().is_none() || !old.is_contiguous() {
        return;
    }
    let (Some(before), Some(after)) =
        (number(&ledger, &old.0.storage), number(&ledger, &new.0.storage))
    else {
        return;
    };
    let mut state = of(&ledger);
    let stand_in = state.lives[before].stand_in;
    if stand_in || old.is_alone() {
        let first = state.now() + 1;
        let gradient = state.lives[before].gradient;
        let life = &mut state.lives[after];
        (life.first, life.gradient, life.stand_in) = (first, gradient, stand_in);
        if stand_in {
            life.bytes = 0;
        }
    }
}

/// In a trace, the gradient of a leaf that was there before is cleared, or seen as a value of the
/// trace.
pub(crate) fn touches(leaf: &Leaf, before: Option<&Tensor>, seen: Option<&Tensor>) {
    let (Some(ledger), Some(before)) = (kept(), before) else { return };
    let part = of(&ledger).leaves.get(&leaf.seq).copied();
    register_known(&ledger, before, MemoryKind::Gradients, part);
    match seen {
        Some(seen) => {
            if let Some(number) = number(&ledger, &seen.0.storage) {
                let mut state = of(&ledger);
                let life = &mut state.lives[number];
                (life.bytes, life.stand_in, life.gradient) = (0, true, true);
            }
        }
        None => {
            if let Some(number) = number(&ledger, &before.0.storage) {
                let mut state = of(&ledger);
                state.lives[number].last = state.now();
            }
        }
    }
}

/// Whether a value of a trace is known to be 1 everywhere: eager code checks that, and does not
/// multiply by it.
pub(crate) fn is_one(x: &Tensor) -> bool {
    let Some(ledger) = kept() else { return false };
    number(&ledger, &x.0.storage).is_some_and(|number| of(&ledger).lives[number].one)
}

/// An active backward pass.
pub(crate) struct BackwardScope(SharedLedger);

impl Drop for BackwardScope {
    fn drop(&mut self) {
        let mut state = of(&self.0);
        state.walks -= 1;
        state.walked = true;
    }
}

pub(crate) fn walk_starts() -> Option<BackwardScope> {
    let ledger = kept()?;
    of(&ledger).walks += 1;
    Some(BackwardScope(ledger))
}
