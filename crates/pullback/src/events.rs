//! Events on a thread, and their subscribers.
//!
//! Reports on memory, budgets, checkpoints, the watch for overflow and the counting of kinks
//! subscribe to events of the core. The core does not know them: it emits events here (an op ran,
//! memory was allocated, a value was saved, unpacked, written), and this file lists who subscribes
//! to what.
//!
//! One mask per thread holds the active subscribers, and three states that are asked for as often:
//! the low dtype of autocast, whether a convention at kinks is not the default, and whether what
//! runs had run before. Without a subscriber, an event costs one load and one branch; there are no
//! boxed closures. Two are not behind the mask, as nodes of a checkpointed function may be
//! differentiated long after its scope: a backward pass starts and ends, and a node unpacks what it
//! saved inside a trace.
//!
//! Most events only report. `is_traced_one`, `packing` and `write_wanted` have an answer of their
//! subscriber, which may refuse, and `op_ran` an error if a result is not as it should be. What
//! changes the op itself is no event: `apply.rs` calls autocast and the conventions at kinks, and
//! `inplace.rs` asks whether values are watched, to compute them where they can be checked.

use crate::backend::Pooled;
use crate::leaf::Leaf;
use crate::memory::report::ledger::{self, LifetimeHandle};
use crate::memory::{budget, checkpoint};
use crate::mode::{self, Restore};
use crate::record::call::CompiledPrograms;
use crate::record::recorder::{self, RecordMark};
use crate::rule::Derivatives;
use crate::storage::{Storage, Traced};
use crate::tape::{History, Node};
use crate::{Flag, Key, Result, Tensor, kinks, watch};
use pullback_ir::{Device, Line, Op, Program};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The low dtype of `autocast`, if there is one.
pub(crate) const LOW: u16 = 0b11;
/// Values are checked: `detect_overflow`.
pub(crate) const WATCH: u16 = 0b100;
/// Elements on kinks are counted: `kink_report`, `strict_kinks`.
pub(crate) const COUNT: u16 = 0b1000;
/// A convention is not the default: `with_conventions`.
pub(crate) const CONVENTIONS: u16 = 0b1_0000;
/// Lifetimes of storages are recorded: `memory_report`.
pub(crate) const LEDGER: u16 = 0b10_0000;
/// The ops that made values are recorded: `memory_budget`.
pub(crate) const BUDGET: u16 = 0b100_0000;
/// A checkpointed function runs for the first time.
pub(crate) const CHECKPOINT: u16 = 0b1000_0000;
/// A checkpointed function runs again.
pub(crate) const REPLAY: u16 = 0b1_0000_0000;
/// What runs is recorded: `record`.
pub(crate) const RECORD: u16 = 0b10_0000_0000;
/// What runs had run before: a checkpoint or a budget needs its value again.
pub(crate) const AGAIN: u16 = 0b100_0000_0000;

/// Those that see an op as a whole, before or after it runs.
const OPS: u16 = LOW | WATCH | COUNT | CONVENTIONS | LEDGER | RECORD;

thread_local! {
    static MASK: Cell<u16> = const { Cell::new(0) };
}

/// The bits of the subscribers of this thread.
#[inline]
pub(crate) fn mask() -> u16 {
    MASK.get()
}

#[inline]
pub(crate) fn is_on(bits: u16) -> bool {
    MASK.get() & bits != 0
}

/// Whether ops on this thread are instrumented.
#[inline]
pub(crate) fn is_instrumented() -> bool {
    is_on(OPS)
}

/// Runs `f` with these bits on.
pub(crate) fn with<R>(bits: u16, f: impl FnOnce() -> R) -> R {
    mode::with(&MASK, mask() | bits, f)
}

/// Runs `f` with these bits off.
pub(crate) fn without<R>(bits: u16, f: impl FnOnce() -> R) -> R {
    match mask() & bits {
        0 => f(),
        _ => mode::with(&MASK, mask() & !bits, f),
    }
}

/// Runs `f` with those bits of `bits` on that are in `on`, and the others of `bits` off.
pub(crate) fn replacing<R>(bits: u16, on: u16, f: impl FnOnce() -> R) -> R {
    mode::with(&MASK, mask() & !bits | on, f)
}

/// Runs `f` with only these subscribers, where they are active already. A checkpoint always is.
pub(crate) fn only<R>(bits: u16, f: impl FnOnce() -> R) -> R {
    mode::with(&MASK, mask() & (bits | CHECKPOINT | REPLAY | AGAIN), f)
}

/// Switches bits on or off, for a scope that restores them itself.
pub(crate) fn switch(bits: u16, on: bool) {
    MASK.set(if on { mask() | bits } else { mask() & !bits });
}

/// Runs `f`, which reads values for a subscriber: it emits no events.
pub(crate) fn silently<R>(f: impl FnOnce() -> R) -> R {
    mode::with(&MASK, 0, f)
}

/// What subscribers store with a storage. Nearly always nothing, and then one word that is never
/// locked.
#[derive(Default)]
pub(crate) struct Marks(OnceLock<Box<Mutex<Notes>>>);

/// The notes on a storage.
#[derive(Default)]
pub(crate) struct Notes {
    /// Its lifetimes in memory reports.
    pub lifetimes: Vec<LifetimeHandle>,
    /// Which values of a recording it holds.
    pub recorded: Vec<RecordMark>,
}

impl Marks {
    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.get_or_init(Box::default).lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    #[cold]
    fn note_allocated(&self, bytes: usize, device: Device, traced: Option<&Traced>) {
        self.notes().lifetimes.extend(ledger::allocated(bytes, device, traced));
    }
}

/// Memory was allocated, or a value of a trace begins.
#[inline(always)]
pub(crate) fn memory_allocated(bytes: usize, device: Device, traced: Option<&Traced>) -> Marks {
    let marks = Marks::default();
    if is_on(LEDGER) {
        marks.note_allocated(bytes, device, traced);
    }
    marks
}

/// Values are about to be read.
#[inline]
pub(crate) fn values_read(of: &[&Tensor], at: Line) {
    if is_on(CHECKPOINT) {
        checkpoint::note_reads(of, at);
    }
}

/// A flag was read.
#[inline]
pub(crate) fn flag_read(flag: &Flag, value: bool) {
    if is_on(CHECKPOINT) {
        checkpoint::note_flag_read(flag, value);
    }
}

/// A random key was drawn.
#[inline]
pub(crate) fn key_drawn(key: &Key) {
    if is_on(CHECKPOINT) {
        checkpoint::note_key(key);
    }
}

/// Runs `f`, which reads and writes memory for the library itself: no checkpoint records it.
pub(crate) fn internal<R>(f: impl FnOnce() -> R) -> R {
    match is_on(CHECKPOINT) {
        true => checkpoint::unwatched(f),
        false => f(),
    }
}

/// Whether a value of a trace is known to be 1 everywhere. A trace without memory, which predicts a
/// memory report, has no storages that know it, so the ledger does.
pub(crate) fn is_traced_one(x: &Tensor) -> bool {
    is_on(LEDGER) && ledger::is_one(x)
}

/// An op is about to run.
#[inline]
pub(crate) fn op_starts(op: &Op, inputs: &[&Tensor], at: Line) {
    if is_on(LEDGER) {
        ledger::begins(op, inputs, at);
    }
    if is_on(RECORD) {
        recorder::op_starts(op, at);
    }
}

/// Something that is not an op is about to read or write these tensors.
#[inline]
pub(crate) fn work_starts<'a>(
    name: &'static str,
    on: impl IntoIterator<Item = &'a Tensor>,
    at: Line,
) {
    if is_on(LEDGER) {
        ledger::works(name, on.into_iter(), at);
    }
}

/// The results of an op were computed, and nothing refers to them yet.
#[inline]
pub(crate) fn op_computed(op: &Op, inputs: &[&Tensor], outs: &[Tensor], at: Line) {
    if is_on(BUDGET) {
        budget::note(op, inputs, outs, at);
    }
}

/// An op ran, and its results are on the tape.
pub(crate) fn op_ran(op: &Op, inputs: &[&Tensor], outs: &[Tensor], at: Line) -> Result<()> {
    if is_on(WATCH) {
        watch::check(op, inputs, outs, at);
    }
    if is_on(RECORD) {
        recorder::op_ran(op, inputs, outs, at);
    }
    match is_on(COUNT) {
        true => kinks::check(op, inputs, outs, at),
        false => Ok(()),
    }
}

/// A value is kept for backward, in its own memory.
#[inline]
pub(crate) fn value_saved(storage: &Storage) {
    if is_on(LEDGER) {
        ledger::saves(storage);
    }
}

/// Runs `f`, which packs a value that is kept for backward.
pub(crate) fn packing<R>(storage: &Pooled<Storage>, f: impl FnOnce() -> Option<R>) -> Option<R> {
    match is_on(LEDGER) {
        true => ledger::packing(storage, f),
        false => f(),
    }
}

/// An op is about to get a value back that was packed for it.
#[inline]
pub(crate) fn unpacking(op: &Op, at: Line) {
    if is_on(LEDGER) {
        ledger::unpacks(op, at);
    }
}

/// Runs `f`, which unpacks what a node kept, for a cotangent of that node.
pub(crate) fn unpacking_for<R>(cotangent: Option<&Tensor>, f: impl FnOnce() -> R) -> R {
    checkpoint::with_cotangent(cotangent, f)
}

/// A value that was packed is back.
#[inline]
pub(crate) fn unpacked(x: &Tensor) {
    if is_on(LEDGER) {
        ledger::unpacked(x);
    }
}

/// A write in place to memory of this tensor is requested.
#[inline]
pub(crate) fn write_wanted(
    name: &'static str,
    root: &Tensor,
    tracked: bool,
    at: Line,
) -> Result<()> {
    match is_on(CHECKPOINT) {
        true => checkpoint::note_write(name, root, tracked, at),
        false => Ok(()),
    }
}

/// The memory of a tensor is about to be written in place.
#[inline]
pub(crate) fn writing(x: &Tensor) {
    if is_on(BUDGET) {
        budget::before_write(x);
    }
}

/// Memory was written in place.
#[inline]
pub(crate) fn written(storage: &Storage) {
    if is_on(REPLAY) {
        checkpoint::note_replayed_write(storage);
    }
}

/// A write in place made a new value: so it is in a trace, which has no memory.
#[inline]
pub(crate) fn written_as(new: &Tensor) {
    if is_on(LEDGER) {
        ledger::overwrites(new);
    }
}

/// `new` was made from `old`, which has no other references.
#[inline]
pub(crate) fn replaced(old: &Tensor, new: &Tensor) {
    if is_on(LEDGER) {
        ledger::continues(old, new);
    }
}

/// This is the gradient of a leaf, or becomes a part of it.
#[inline]
pub(crate) fn gradient_of(leaf: &Leaf, x: &Tensor) {
    if is_on(LEDGER) {
        ledger::is_gradient(leaf, x);
    }
}

/// A trace sees the gradient of a leaf that was there `before`, as `seen`, or clears it.
#[inline]
pub(crate) fn gradient_met(leaf: &Leaf, before: Option<&Tensor>, seen: Option<&Tensor>) {
    if is_on(LEDGER) {
        ledger::touches(leaf, before, seen);
    }
}

/// A compiled function borrows an arena.
#[inline]
pub(crate) fn arena_taken(bytes: usize, device: Device, at: Line) {
    if is_on(LEDGER) {
        ledger::takes_arena(bytes, device, at);
    }
}

/// A compiled function is about to run: its programs, and its operands as they are before.
#[inline]
pub(crate) fn call_starts<'a>(
    programs: &CompiledPrograms,
    operands: impl FnOnce() -> Vec<Option<&'a Tensor>>,
    at: Line,
) {
    if is_on(RECORD) {
        recorder::call_starts(programs, &operands(), at);
    }
}

/// It ran. These are results, by the number of the output.
#[inline]
pub(crate) fn call_ran<'a>(traced: &Program, results: impl FnOnce() -> Vec<(usize, &'a Tensor)>) {
    if is_on(RECORD) {
        recorder::call_ran(traced, &results());
    }
}

/// A backward pass runs; when this is dropped, all is as it was before.
pub(crate) struct BackwardPass {
    _recording: Restore<bool>,
    _mask: Restore<u16>,
    _node: Option<watch::AtNode>,
    _ledger: Option<ledger::BackwardScope>,
    _record: Option<recorder::RecordedBackward>,
    /// The last to be dropped: dropping recomputed values may run user code.
    _replays: checkpoint::Replays,
}

/// A backward pass starts; `recorded` where it is put on the tape itself. Dtypes and conventions
/// were decided in the forward pass. What it computes is noted for a budget only if it is recorded:
/// otherwise it will not be needed again.
pub(crate) fn backward_starts(recorded: bool) -> BackwardPass {
    let off = LOW | COUNT | CONVENTIONS | if recorded { 0 } else { BUDGET };
    BackwardPass {
        _replays: checkpoint::Replays::since_now(),
        _ledger: is_on(LEDGER).then(ledger::walk_starts).flatten(),
        _record: is_on(RECORD).then(recorder::backward_starts),
        _node: is_on(WATCH).then(watch::AtNode::remember),
        _mask: Restore::set(&MASK, mask() & !off),
        _recording: mode::recording(recorded),
    }
}

/// The backward pass arrives at a node, whose gradients are complete.
#[inline]
pub(crate) fn backward_of(node: &Node, grads: &Derivatives) {
    if is_on(WATCH) {
        watch::backward_of(&node.op, node.at);
    }
    if is_on(RECORD) {
        recorder::visited(node, grads);
    }
}

/// A backward pass begins at this value.
#[inline]
pub(crate) fn backward_from(root: &History) {
    if is_on(RECORD) {
        recorder::backward_from(root);
    }
}

/// The node that is visited adds this to the gradient of an operand.
#[inline]
pub(crate) fn contributed(node: &Node, operand: usize, dx: &Tensor) {
    if is_on(RECORD) {
        recorder::contributed(node, operand, dx);
    }
}

/// All contributions to the gradient of a leaf have been added up.
#[inline]
pub(crate) fn leaf_complete(leaf: &Leaf, grad: &Tensor) {
    if is_on(RECORD) {
        recorder::leaf_gradient(leaf.seq, grad);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_restore_the_mask_also_where_they_panic() {
        assert_eq!(mask(), 0);
        with(LEDGER | WATCH, || {
            assert!(is_on(LEDGER) && is_instrumented() && !is_on(BUDGET));
            without(WATCH, || assert_eq!(mask(), LEDGER));
            with(REPLAY, || only(WATCH, || assert_eq!(mask(), WATCH | REPLAY)));
            replacing(LOW, 0b01, || assert_eq!(mask(), LEDGER | WATCH | 0b01));
            assert_eq!(mask(), LEDGER | WATCH);
        });
        let panicked = std::panic::catch_unwind(|| with(BUDGET, || panic!("on purpose")));
        assert!(panicked.is_err() && mask() == 0);
    }

    #[test]
    fn a_backward_pass_decides_nothing_anew_and_leaves_all_as_it_was() {
        with(LOW | COUNT | CONVENTIONS | BUDGET | CHECKPOINT, || {
            let before = mask();
            {
                let _pass = backward_starts(false);
                assert!(mask() == CHECKPOINT && !mode::is_grad_enabled());
            }
            {
                let _pass = backward_starts(true);
                assert!(mask() == CHECKPOINT | BUDGET && mode::is_grad_enabled());
            }
            assert!(mask() == before && mode::is_grad_enabled());
        });
    }
}
