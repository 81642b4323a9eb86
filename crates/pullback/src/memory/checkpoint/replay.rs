//! The second run of a checkpointed function, which recomputes its values.

use super::frame::{ArgumentTracking, CheckpointFrame, WrittenMemory, hash, with_frames};
use crate::apply::apply;
use crate::backend::Pooled;
use crate::events::{self, REPLAY};
use crate::memory::kept::{KeptValue, SavedView};
use crate::memory::packing::{self, Pack, Packed, SavedValue};
use crate::memory::report::part;
use crate::storage::{LastWrite, Storage};
use crate::tape::History;
use crate::tensor::Frozen;
use crate::transform::levels;
use crate::{Error, Key, Op, Result, Tensor, autocast, fail, kinks, mode, random, sequence, trace};
use pullback_ir::ErrorKind;
use rustc_hash::FxHashSet;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

thread_local! {
    /// Inside a trace, a cotangent of the node that is being visited.
    static COTANGENT: RefCell<Option<Tensor>> = const { RefCell::new(None) };
    /// Calls whose values were recomputed by the active backward passes of this thread.
    static REPLAYED: RefCell<Vec<Weak<CheckpointFrame>>> = const { RefCell::new(Vec::new()) };
    /// Memory that was restored, and how often functions that run for the second time wrote it
    /// since.
    static REPLAYED_WRITES: RefCell<Vec<(usize, u64)>> = const { RefCell::new(Vec::new()) };
    /// How often this thread holds the lock.
    static REPLAY_DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether a checkpointed function runs for the second time.
pub(crate) fn is_replaying() -> bool {
    events::is_on(REPLAY)
}

/// The calls that are run again during a backward pass. Dropping it drops the values that were
/// computed again and were not requested.
pub(crate) struct Replays {
    /// Where the list of replayed calls ended.
    mark: usize,
}

impl Replays {
    pub fn since_now() -> Replays {
        Replays { mark: REPLAYED.with_borrow(Vec::len) }
    }
}

impl Drop for Replays {
    fn drop(&mut self) {
        let ended = REPLAYED.with_borrow_mut(|all| match all.len() > self.mark {
            true => all.split_off(self.mark),
            false => Vec::new(),
        });
        for frame in ended.iter().filter_map(Weak::upgrade) {
            let left: Vec<Option<SavedView>> =
                frame.notes().slots.iter_mut().map(|s| s.value.take()).collect();
            drop(left);
        }
    }
}

/// The value of a slot, computed again if it is not there.
pub(super) fn value(frame: &Arc<CheckpointFrame>, slot: usize) -> Result<Tensor> {
    let there = {
        let mut notes = frame.notes();
        let sealed = notes.sealed;
        let value = &mut notes.slots[slot].value;
        // A derivative inside the function may need it more than once while the function runs.
        if sealed { value.take() } else { value.clone() }
    };
    let view = match there {
        Some(view) => view,
        None => {
            let mut made = replay(frame)?;
            let mine = made[slot].take();
            let mut notes = frame.notes();
            for (slot, value) in notes.slots.iter_mut().zip(made) {
                if !slot.freed && slot.value.is_none() {
                    slot.value = value;
                }
            }
            drop(notes);
            REPLAYED.with_borrow_mut(|all| all.push(Arc::downgrade(frame)));
            mine.ok_or_else(|| differs(frame, "it saved fewer values than the first time"))?
        }
    };
    view.tensor().ok_or_else(|| overwrites(frame, slot, &view))
}

/// The error of a function that writes over what one of its own operations has saved.
fn overwrites(frame: &CheckpointFrame, slot: usize, view: &SavedView) -> Error {
    let (name, at) = {
        let slot = &frame.notes().slots[slot];
        (slot.name.clone(), slot.at)
    };
    let message = format!(
        "backward of `{name}` needs a value that it saved, but the checkpointed function itself overwrote it"
    );
    let saved = format!("saved by     {name:<8} at {at}   (version {})", view.version);
    let error = Error::new(ErrorKind::InPlace, "checkpoint", message).detail(saved);
    view.storage
        .named_writer(error)
        .at(frame.at)
        .hint("use the out-of-place form, or clone the value first")
}

/// Runs the function again and gives what it saves.
fn replay(frame: &Arc<CheckpointFrame>) -> Result<Vec<Option<SavedView>>> {
    let arguments = frame.arguments.iter().enumerate().map(|(i, _)| argument(frame, i));
    let arguments: Vec<Tensor> = arguments.collect::<Result<_>>()?;
    check_unchanged(frame)?;
    let trace = trace::number();
    let second = Arc::new(ReplayPacker { frame: frame.clone(), trace, made: Mutex::default() });
    let keys = frame.notes().keys.clone();
    let draws = random::Draws {
        state: frame.random.as_ref().and_then(|states| states.copied().held()),
        keys: keys
            .iter()
            .map(|key| Key::from_tensor(&after_current_cotangent(key.tensor())))
            .collect(),
        trace,
    };
    let contents = OldContents::put_back(frame);
    let run = || fail::catch(|| (frame.rerun)(&arguments));
    let run = || with_frames(Vec::new(), run);
    let run = || events::with(REPLAY, run);
    let run = || packing::with_packers(vec![second.clone()], run);
    let run = || random::repeating(draws.clone(), run);
    let run = || autocast::with_state(frame.autocast, run);
    // Counted in the first run.
    let run = || kinks::off(|| kinks::with_state(frame.conventions, run));
    let run = || frame.numerics.scope(run);
    let run = || part::back_at(&frame.part, run);
    let run = || levels::with_levels(&frame.levels, || sequence::as_of(frame.moment, run));
    mode::recording_in(frame.no_grad, || mode::with_own_lines(run))?;
    contents.check_no_concurrent_write(frame)?;
    drop(contents);
    let made = std::mem::take(&mut *second.made.lock().unwrap_or_else(PoisonError::into_inner));
    let before = frame.notes().slots.len();
    if made.len() != before {
        let how = format!("it saved {} values, and {before} the first time", made.len());
        return Err(differs(frame, &how));
    }
    Ok(made)
}

/// The value after the cotangent for which a value is unpacked.
fn after_current_cotangent(x: &Tensor) -> Tensor {
    let cotangent = COTANGENT.with_borrow(Clone::clone).filter(trace::is_here);
    mode::set_recording(false, || after_cotangent(x, cotangent.as_ref()))
}

/// An argument of the first run, tracked if it was.
fn argument(frame: &CheckpointFrame, i: usize) -> Result<Tensor> {
    let argument = &frame.arguments[i];
    let x = match &argument.kept {
        KeptValue::Packed(spec, packed) => packing::unpack(&**packed, spec)?,
        KeptValue::Memory(view) => view.tensor().ok_or_else(|| {
            let message = format!(
                "argument {i} of a checkpointed function was overwritten before backward computed it again"
            );
            let error = Error::new(ErrorKind::InPlace, "checkpoint", message);
            view
                .storage
                .named_writer(error.on([&argument.spec]).at(frame.at))
                .hint("write to a deep_clone() of it, or call backward first")
        })?,
    };
    let x = after_current_cotangent(&x).alias(History::None, argument.tangents.clone());
    match argument.tracked {
        ArgumentTracking::Not => {}
        ArgumentTracking::Over => x.become_leaf().end(),
        ArgumentTracking::Yes => drop(x.become_leaf()),
    }
    x.lock().frozen = Frozen::Argument;
    Ok(x)
}

/// The value for the second run. Inside a trace that is another variable, which exists after the
/// cotangent, or common-subexpression elimination would merge the two runs.
pub(super) fn after_cotangent(x: &Tensor, cotangent: Option<&Tensor>) -> Tensor {
    match cotangent.filter(|_| trace::active()) {
        Some(cotangent) => apply(Op::After, &[x, cotangent]),
        None => x.clone(),
    }
}

/// Runs `f`, which unpacks what a node saved, for a cotangent of that node.
pub(crate) fn with_cotangent<R>(cotangent: Option<&Tensor>, f: impl FnOnce() -> R) -> R {
    if !trace::active() {
        return f();
    }
    let outer = COTANGENT.replace(cotangent.cloned());
    let _restore = mode::on_drop(|| COTANGENT.set(outer));
    f()
}

/// The outside state that the function read must be unchanged.
fn check_unchanged(frame: &CheckpointFrame) -> Result<()> {
    let notes = frame.notes();
    // What the function writes itself gets its old contents back.
    let restored: FxHashSet<usize> = notes.written.iter().map(|w| storage_of(&w.tensor)).collect();
    for read in &notes.read {
        let Some(storage) = read.storage.upgrade() else { continue };
        let is_restored = restored.contains(&(Pooled::as_ptr(&storage) as usize));
        if !is_restored && storage.version() != read.version {
            let message = "a tensor that a checkpointed function uses was overwritten before backward computed it again";
            let error =
                Error::new(ErrorKind::InPlace, "checkpoint", message).on([&read.spec]).detail(
                    format!("used                  at {}   (version {})", read.at, read.version),
                );
            return Err(storage.named_writer(error).at(frame.at).hint(
                "call backward before the tensor is written, as before the optimiser's step",
            ));
        }
    }
    match notes.flags.iter().find(|(flag, value)| flag.peek() != *value) {
        Some((_, value)) => {
            let message = format!(
                "a flag that a checkpointed function reads, such as whether a layer is in training, was {value} and is {} now",
                !value
            );
            Err(Error::new(ErrorKind::Gradient, "checkpoint", message)
                .at(frame.at)
                .hint("call backward before train() or eval()"))
        }
        None => Ok(()),
    }
}

fn differs(frame: &CheckpointFrame, how: &str) -> Error {
    let message = format!("a checkpointed function computed something else the second time: {how}");
    Error::new(ErrorKind::Gradient, "checkpoint", message).at(frame.at).hint(
        "its arguments, random keys, flags and the memory that it reads are as they were, so it depends on something else: a counter, a clock, a file, numbers drawn elsewhere",
    )
}

/// The packer of the second run: takes what is saved, in order.
struct ReplayPacker {
    frame: Arc<CheckpointFrame>,
    /// The trace in which the function runs.
    trace: u64,
    made: Mutex<Vec<Option<SavedView>>>,
}

impl Pack for ReplayPacker {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        if self.trace != trace::number() {
            return Ok(None);
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let notes = self.frame.notes();
        let x = value.tensor();
        let Some(first) = notes.slots.get(made.len()) else {
            drop(notes);
            let how = format!("`{}` at {} saved an additional value", value.name(), value.at());
            return Err(differs(&self.frame, &how));
        };
        let (name, at, spec) = (first.name.clone(), first.at, first.spec.clone());
        let (known, wanted) = (first.hash, !first.freed);
        drop(notes);
        if name != value.name() || spec != *x.spec() {
            let how = format!(
                "`{}` saved {} at {}, where `{name}` saved {spec} at {at} the first time",
                value.name(),
                x.spec(),
                value.at()
            );
            return Err(differs(&self.frame, &how));
        }
        if let Some(known) = known
            && trace::knows(x)
            && hash(x) != known
        {
            let what = if value.is_output() { "the result" } else { "an operand" };
            let how = format!("{what} of `{name}` at {at}, {spec}, has other values");
            return Err(differs(&self.frame, &how));
        }
        made.push(wanted.then(|| SavedView::of(x)));
        Ok(None)
    }
}

/// Captured memory that the function writes, as it was when the function began; dropped, as it
/// is now.
struct OldContents {
    all: Vec<CapturedContents>,
    /// The writes that were counted when it began, for a replay around this one.
    counted: Vec<(usize, u64)>,
    /// One such replay at a time: the memory is shared.
    _lock: Option<ReplayLock>,
}

struct CapturedContents {
    tensor: Tensor,
    now: Tensor,
    version: u64,
    writer: Option<LastWrite>,
}

impl OldContents {
    fn put_back(frame: &CheckpointFrame) -> OldContents {
        let written = |w: &WrittenMemory| (w.tensor.clone(), w.old.clone());
        let written: Vec<(Tensor, Tensor)> = frame.notes().written.iter().map(written).collect();
        let _lock = (!written.is_empty()).then(ReplayLock::take);
        with_frames(Vec::new(), || {
            let kept = |(tensor, _): &(Tensor, Tensor)| {
                let storage = &tensor.0.storage;
                let (version, writer) = (storage.version(), storage.writer());
                CapturedContents { tensor: tensor.clone(), now: copied(tensor), version, writer }
            };
            let all: Vec<CapturedContents> = written.iter().map(kept).collect();
            let counted = REPLAYED_WRITES.with_borrow(Clone::clone);
            // What was written first is the oldest, where views of a traced value overlap.
            for (tensor, old) in written.iter().rev() {
                mode::set_recording(false, || tensor.copy_(old));
                REPLAYED_WRITES.with_borrow_mut(|all| all.push((storage_of(tensor), 0)));
            }
            OldContents { all, counted, _lock }
        })
    }

    /// Whether no other write to that memory happened during the replay.
    fn check_no_concurrent_write(&self, frame: &CheckpointFrame) -> Result<()> {
        let count = |storage: usize| {
            REPLAYED_WRITES
                .with_borrow(|all| all.iter().rev().find(|w| w.0 == storage).map(|w| w.1))
        };
        for outside in self.all.iter().filter(|o| trace::knows(&o.tensor)) {
            let storage = &outside.tensor.0.storage;
            let expected = outside.version + 1 + count(storage_of(&outside.tensor)).unwrap_or(0);
            if storage.version() != expected {
                let message = "memory that a checkpointed function writes was written by another thread while the function ran again, and what that wrote is lost";
                let error = Error::new(ErrorKind::InPlace, "checkpoint", message);
                return Err(error.on([outside.tensor.spec()]).at(frame.at).hint(
                    "give each thread its own buffers, or let no forward pass run during a backward pass",
                ));
            }
        }
        Ok(())
    }
}

impl Drop for OldContents {
    fn drop(&mut self) {
        for outside in &self.all {
            let write = || outside.tensor.copy_(&outside.now);
            with_frames(Vec::new(), || mode::set_recording(false, write));
            // Others see no write. A trace keeps counting.
            if trace::knows(&outside.tensor) {
                outside.tensor.0.storage.restore(outside.version, outside.writer);
            }
        }
        REPLAYED_WRITES.set(std::mem::take(&mut self.counted));
    }
}

fn copied(x: &Tensor) -> Tensor {
    mode::set_recording(false, || x.plain().deep_clone())
}

fn storage_of(x: &Tensor) -> usize {
    Pooled::as_ptr(&x.0.storage) as usize
}

/// Counts a write of a function that runs for the second time.
pub(crate) fn note_replayed_write(storage: &Storage) {
    let storage = std::ptr::from_ref(storage) as usize;
    REPLAYED_WRITES.with_borrow_mut(|all| {
        all.iter_mut().filter(|w| w.0 == storage).for_each(|w| w.1 += 1);
    });
}

/// A reentrant lock for restoring memory.
struct ReplayLock(Option<MutexGuard<'static, ()>>);

impl ReplayLock {
    fn take() -> ReplayLock {
        static REPLAY_MUTEX: Mutex<()> = Mutex::new(());
        let mine = REPLAY_DEPTH.get() > 0;
        REPLAY_DEPTH.set(REPLAY_DEPTH.get() + 1);
        let lock = || REPLAY_MUTEX.lock().unwrap_or_else(PoisonError::into_inner);
        ReplayLock((!mine).then(lock))
    }
}

impl Drop for ReplayLock {
    fn drop(&mut self) {
        REPLAY_DEPTH.set(REPLAY_DEPTH.get() - 1);
        drop(self.0.take());
    }
}
