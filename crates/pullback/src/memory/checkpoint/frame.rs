//! The first run of a checkpointed function: what is recorded of it.

use super::replay;
use crate::backend::with_bytes;
use crate::backend::{Pooled, WeakPooled};
use crate::events::{self, CHECKPOINT};
use crate::memory::kept::{KeptValue, SavedView};
use crate::memory::packing::{self, Pack, Packed, SavedValue};
use crate::memory::report::part;
use crate::random::States;
use crate::sequence::{moment, take_number};
use crate::storage::Storage;
use crate::tangents::Tangents;
use crate::tape::History;
use crate::transform::levels;
use crate::{
    Conventions, Error, Flag, Key, Result, Spec, Tensor, autocast, fail, kinks, mode, random, trace,
};
use pullback_ir::{ErrorKind, Layout, Line, Numerics};
use rustc_hash::{FxHashSet, FxHasher};
use std::cell::RefCell;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Runs the function again on these arguments; its results are discarded.
pub(super) type Rerun = Box<dyn Fn(&[Tensor]) + Send + Sync>;

/// A checkpointed call.
pub(super) struct CheckpointFrame {
    pub at: Line,
    pub rerun: Rerun,
    pub arguments: Vec<Argument>,
    /// Memory that is older than this is captured.
    number: u64,
    /// When the function first ran.
    pub moment: u64,
    /// The levels of forward mode that were being computed.
    pub levels: Vec<u64>,
    /// The trace in which the function runs.
    trace: u64,
    /// The state of the generators when the function began.
    pub random: Option<States>,
    pub autocast: autocast::AutocastState,
    pub conventions: Conventions,
    pub numerics: Numerics,
    /// The `no_grad` that was around it, by its number.
    pub no_grad: u64,
    /// The part of the model that a report on memory knows it by.
    pub part: part::Here,
    pub verify: bool,
    notes: Mutex<FrameNotes>,
}

pub(super) struct Argument {
    pub spec: Spec,
    pub kept: KeptValue,
    pub tracked: ArgumentTracking,
    pub tangents: Tangents,
}

/// How an argument was tracked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgumentTracking {
    Not,
    /// By a leaf whose transform has returned: it is not differentiated any more.
    Over,
    Yes,
}

impl ArgumentTracking {
    fn of(history: &History) -> ArgumentTracking {
        match history {
            History::None | History::Cut(_) => ArgumentTracking::Not,
            History::Leaf(leaf) if leaf.is_over() => ArgumentTracking::Over,
            History::Leaf(_) | History::Node(..) => ArgumentTracking::Yes,
        }
    }
}

#[derive(Default)]
pub(super) struct FrameNotes {
    /// The values that were saved, in order.
    pub slots: Vec<SavedSlot>,
    /// The function has returned.
    pub sealed: bool,
    /// Captured memory that was read.
    pub read: Vec<Read>,
    /// Captured memory that was written.
    pub written: Vec<WrittenMemory>,
    /// The flags that were read.
    pub flags: Vec<(Flag, bool)>,
    /// The addresses of memory and flags in these lists.
    known: FxHashSet<usize>,
    /// The random keys that were drawn, in order.
    pub keys: Vec<Key>,
}

/// A value that a node of the first run saved.
pub(super) struct SavedSlot {
    pub name: String,
    pub at: Line,
    pub spec: Spec,
    pub hash: Option<u64>,
    /// The value: until the function has returned, and between its recomputation and its use.
    pub value: Option<SavedView>,
    /// Its node no longer needs it.
    pub freed: bool,
}

pub(super) struct Read {
    pub storage: WeakPooled<Storage>,
    pub version: u64,
    pub spec: Spec,
    pub at: Line,
}

pub(super) struct WrittenMemory {
    pub tensor: Tensor,
    /// What was there when the function began to write.
    pub old: Tensor,
}

/// What a node holds instead of a saved value.
struct CheckpointedValue {
    frame: Arc<CheckpointFrame>,
    slot: usize,
    /// The value itself, if it is still referenced elsewhere.
    alive: Option<(WeakPooled<Storage>, SavedViewInfo)>,
}

/// A saved view without its memory.
struct SavedViewInfo(Spec, Layout, u64);

impl CheckpointFrame {
    pub fn open(leaves: &[Tensor], rerun: Rerun, verify: bool, at: Line) -> Arc<CheckpointFrame> {
        let keep = |x: &Tensor| {
            let state = fail::or_raise(x.state(at));
            let kept = KeptValue::pack(x, (None, "checkpoint", at), false, &state.history);
            let tracked = ArgumentTracking::of(&state.history);
            Argument { spec: x.spec().clone(), kept, tracked, tangents: state.tangents }
        };
        let random = (!trace::active()).then(|| mode::with_line(at, random::states));
        let arguments = leaves.iter().map(keep).collect();
        // Between what was there before and what the function makes.
        let number = take_number();
        Arc::new(CheckpointFrame {
            at,
            rerun,
            arguments,
            number,
            moment: moment(number),
            levels: levels::all_alive(),
            trace: trace::number(),
            random,
            autocast: autocast::state(),
            conventions: kinks::conventions(),
            numerics: Numerics::now(),
            no_grad: mode::cut(),
            part: part::here(),
            verify,
            notes: Mutex::default(),
        })
    }

    pub fn notes(&self) -> MutexGuard<'_, FrameNotes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the function, noting what it saves, reads and writes.
    pub fn run<R>(self: &Arc<CheckpointFrame>, f: impl FnOnce() -> R) -> R {
        let frames = FRAMES.with_borrow(|all| all.iter().cloned().chain([self.clone()]).collect());
        with_frames(frames, || packing::with_packing(Arc::new(RecordingPacker(self.clone())), f))
    }

    /// The function has returned: its values are dropped.
    pub fn seal(&self) {
        let mut notes = self.notes();
        notes.sealed = true;
        let dropped: Vec<Option<SavedView>> =
            notes.slots.iter_mut().map(|s| s.value.take()).collect();
        drop(notes);
        drop(dropped);
    }

    fn is_captured(&self, storage: &Storage) -> bool {
        storage.created <= self.number
    }

    /// Whether the current op belongs to the function, and not to a trace inside it. Such a trace
    /// ends before the function does: nothing that it saves is needed later.
    fn is_here(&self) -> bool {
        self.trace == trace::number()
    }
}

/// The packer of the first run.
struct RecordingPacker(Arc<CheckpointFrame>);

impl Pack for RecordingPacker {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        let frame = &self.0;
        if !frame.is_here() {
            return Ok(None);
        }
        let x = value.tensor();
        let view = SavedView::of(x);
        let outside = frame.is_captured(&view.storage);
        let mut notes = frame.notes();
        // What is in memory anyway has a slot too, so that both runs count the same.
        notes.slots.push(SavedSlot {
            name: value.name().to_string(),
            at: value.at(),
            spec: x.spec().clone(),
            hash: (frame.verify && !outside && trace::knows(x)).then(|| hash(x)),
            value: (!outside).then(|| view.clone()),
            freed: outside,
        });
        if outside {
            return Ok(None);
        }
        let place = SavedViewInfo(x.spec().clone(), x.0.layout.clone(), view.version);
        let alive = trace::knows(x).then(|| (Pooled::downgrade(&view.storage), place));
        Ok(Some(Arc::new(CheckpointedValue {
            frame: frame.clone(),
            slot: notes.slots.len() - 1,
            alive,
        })))
    }
}

impl Packed for CheckpointedValue {
    fn unpack(&self) -> Result<Tensor> {
        // It may be referenced elsewhere, as the next function keeps the result of this one.
        if let Some((storage, SavedViewInfo(spec, layout, version))) = &self.alive
            && let Some(storage) = storage.upgrade()
            && storage.version() == *version
        {
            return Ok(Tensor::new(spec.clone(), layout.clone(), storage));
        }
        replay::value(&self.frame, self.slot)
    }

    fn bytes(&self) -> usize {
        0
    }
}

impl Drop for CheckpointedValue {
    fn drop(&mut self) {
        let mut notes = self.frame.notes();
        let slot = &mut notes.slots[self.slot];
        slot.freed = true;
        let value = slot.value.take();
        drop(notes);
        drop(value);
    }
}

/// A hash of the bits of a value.
pub(super) fn hash(x: &Tensor) -> u64 {
    let mut hasher = FxHasher::default();
    let dense = unwatched(|| mode::set_recording(false, || x.detach().contiguous()));
    fail::or_raise(with_bytes(&dense, |bytes| hasher.write(bytes)));
    hasher.finish()
}

thread_local! {
    /// The active checkpointed calls, the outermost first.
    static FRAMES: RefCell<Vec<Arc<CheckpointFrame>>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn with_frames<R>(frames: Vec<Arc<CheckpointFrame>>, f: impl FnOnce() -> R) -> R {
    let any = !frames.is_empty();
    let outer = FRAMES.replace(frames);
    let _restore = mode::on_drop(|| {
        events::switch(CHECKPOINT, !outer.is_empty());
        FRAMES.set(outer);
    });
    events::switch(CHECKPOINT, any);
    f()
}

/// Whether a checkpointed function runs for the first time.
pub(crate) fn is_watching() -> bool {
    events::is_on(CHECKPOINT)
}

/// Runs `f` without recording what it reads and writes.
pub(crate) fn unwatched<R>(f: impl FnOnce() -> R) -> R {
    if !is_watching() {
        return f();
    }
    with_frames(Vec::new(), f)
}

/// Notes which captured memory an op reads.
pub(crate) fn note_reads(inputs: &[&Tensor], at: Line) {
    FRAMES.with_borrow(|all| {
        for frame in all {
            for x in inputs.iter().filter(|x| frame.is_captured(&x.0.storage)) {
                let mut notes = frame.notes();
                // The weak reference keeps the address from being reused.
                if notes.known.insert(Pooled::as_ptr(&x.0.storage) as usize) {
                    let storage = Pooled::downgrade(&x.0.storage);
                    let (version, spec) = (x.0.storage.version(), x.spec().clone());
                    notes.read.push(Read { storage, version, spec, at });
                }
            }
        }
    });
}

/// All of the memory of which this is a view: others may be written through other views. A
/// value of a trace is what it is.
fn whole(root: &Tensor) -> Tensor {
    let storage = &root.0.storage;
    if storage.as_traced().is_some() {
        return root.alias(History::None, Tangents::new());
    }
    let len = storage.bytes() / root.dtype().size();
    let spec = root.spec().with_shape([len].as_slice());
    Tensor::new(spec.clone(), Layout::dense(spec.shape), storage.clone())
}

/// Notes that captured memory is about to be written, with what is there.
pub(crate) fn note_write(name: &'static str, root: &Tensor, tracked: bool, at: Line) -> Result<()> {
    let frames = FRAMES.with_borrow(Clone::clone);
    // What a trace inside the function notes has not happened.
    let concerned =
        |frame: &&Arc<CheckpointFrame>| frame.is_here() && frame.is_captured(&root.0.storage);
    for frame in frames.iter().filter(concerned) {
        if tracked {
            let message = "a captured tracked tensor is written in place by a checkpointed function, which will run again";
            return Err(Error::new(ErrorKind::InPlace, name, message)
                .on([root.spec()])
                .at(at)
                .hint("write to a deep_clone() of it, and return that"));
        }
        let tensor = whole(root);
        let known = |w: &WrittenMemory| {
            let (a, b) = (&w.tensor.0, &tensor.0);
            Pooled::ptr_eq(&a.storage, &b.storage) && a.layout == b.layout
        };
        if frame.notes().written.iter().any(known) {
            continue;
        }
        let copy = || mode::set_recording(false, || tensor.plain().deep_clone());
        let old = packing::with_packers(Vec::new(), || unwatched(copy));
        frame.notes().written.push(WrittenMemory { tensor, old });
    }
    Ok(())
}

/// Notes that a flag was read.
pub(crate) fn note_flag_read(flag: &Flag, value: bool) {
    FRAMES.with_borrow(|all| {
        for frame in all {
            let mut notes = frame.notes();
            if notes.known.insert(flag.number()) {
                notes.flags.push((flag.clone(), value));
            }
        }
    });
}

/// Notes that a key was drawn.
pub(crate) fn note_key(key: &Key) {
    FRAMES.with_borrow(|all| {
        all.iter().filter(|f| f.is_here()).for_each(|f| f.notes().keys.push(key.clone()));
    });
}
