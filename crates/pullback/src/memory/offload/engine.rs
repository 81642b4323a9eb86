//! Offloaded values, and the state that the two threads that write and prefetch (`work.rs`) share
//! with the threads that pack and unpack.
//!
//! A value is numbered when it is packed. Its copy waits in memory for the writer; once written,
//! the copy may stay until its memory is needed, so the newest values, which backward needs first,
//! are often still there. When backward takes value n, the reader prefetches the values below n
//! that are only on disk. All of it together, copies that wait, copies that stay and prefetched
//! values, is `held` and never more than the bound: packing waits for the writer, and the reader
//! uses only what is left.
//!
//! There are no deadlocks. The threads wait only for work. Packing waits only while something is
//! being written. Dropping a value waits only for the active file operation on that value, and
//! cancels a write. The threads never hold the last handle to anything that would wait for them.

use super::OffloadStats;
use super::file::{Create, OnFile};
use super::quota::{DiskReservation, Reservation};
use crate::backend::{Pooled, WeakPooled};
use crate::memory::kept::SavedView;
use crate::memory::piece::{Memo, Piece};
use crate::memory::report::part::{self, Here};
use crate::storage::Storage;
use crate::{Error, ErrorKind, Result, SavedValue, Tensor};
use pullback_ir::Line;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The threads and what they work on; when it is dropped they have ended.
pub(super) struct Engine {
    shared: Arc<EngineShared>,
    threads: Vec<JoinHandle<()>>,
    pub memo: Memo<OffloadedValue>,
}

pub(super) struct EngineShared {
    pub dir: PathBuf,
    pub create: Create,
    state: Mutex<EngineState>,
    pub changed: Condvar,
}

pub(super) struct EngineState {
    pub options: OffloadOptions,
    next: u64,
    pub entries: BTreeMap<u64, OffloadEntry>,
    pub to_write: VecDeque<u64>,
    pub to_read: VecDeque<u64>,
    /// Values that are both on disk and in memory: these can be freed.
    pub spare: BTreeSet<u64>,
    /// How many values are to be written or being written.
    pub unwritten: usize,
    /// Bytes in memory, or promised to a copy or to the reader.
    pub held: usize,
    /// Bytes on disk, or on their way there.
    pub claimed: u64,
    /// Why a value could not be written, until it is reported.
    pub failure: Option<Error>,
    pub closing: bool,
    pub stats: OffloadStats,
}

#[derive(Clone, Copy)]
pub(super) struct OffloadOptions {
    pub min_bytes: usize,
    pub buffer_bytes: usize,
    pub max_bytes: u64,
    pub prefetch: usize,
}

pub(super) struct OffloadEntry {
    pub bytes: usize,
    pub memory: Option<SavedView>,
    pub file: Option<Arc<OnFile>>,
    pub step: TransferState,
    /// It is in memory because it was prefetched.
    pub ahead: bool,
    pub cancelled: Arc<AtomicBool>,
    /// The memory that was saved, which may still be referenced elsewhere.
    pub original: (WeakPooled<Storage>, u64),
    /// The memory that was given out last.
    given: Option<(WeakPooled<Storage>, u64)>,
    /// Who saved it, for errors.
    pub saver: String,
    /// Who saved it, for a report on memory.
    pub saved_at: (Here, &'static str, Line),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferState {
    Idle,
    ToWrite,
    Writing,
    ToRead,
    Reading,
}

/// A value that an engine manages. Dropping it frees its memory and removes its file.
pub(super) struct OffloadedValue {
    engine: Arc<Engine>,
    number: u64,
}

impl Engine {
    pub fn start(
        dir: PathBuf,
        create: Create,
        options: OffloadOptions,
    ) -> std::io::Result<Arc<Engine>> {
        let state = EngineState {
            options,
            next: 0,
            entries: BTreeMap::new(),
            to_write: VecDeque::new(),
            to_read: VecDeque::new(),
            spare: BTreeSet::new(),
            unwritten: 0,
            held: 0,
            claimed: 0,
            failure: None,
            closing: false,
            stats: OffloadStats::default(),
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(EngineShared { dir, create, state, changed });
        let mut engine = Engine { shared, threads: Vec::new(), memo: Memo::new() };
        let mut start = |name: &str, job: fn(&EngineShared)| {
            let shared = engine.shared.clone();
            let thread = std::thread::Builder::new().name(name.to_string());
            engine.threads.push(thread.spawn(move || job(&shared))?);
            std::io::Result::Ok(())
        };
        // Should the second not start, dropping the engine ends the first.
        start("pullback-offload-write", EngineShared::write)?;
        start("pullback-offload-read", EngineShared::read)?;
        Ok(Arc::new(engine))
    }

    pub fn options(&self) -> OffloadOptions {
        self.shared.lock().options
    }

    pub fn set(&self, change: impl FnOnce(&mut OffloadOptions)) {
        change(&mut self.shared.lock().options);
    }

    pub fn stats(&self) -> OffloadStats {
        let state = self.shared.lock();
        let files = state.entries.values().filter_map(|e| e.file.as_ref());
        let (count, disk) = files.fold((0, 0), |(n, sum), f| (n + 1, sum + f.bytes() as u64));
        OffloadStats {
            files: count,
            disk_bytes: disk,
            held_bytes: state.held as u64,
            ..state.stats
        }
    }

    /// Waits until nothing is left to write.
    pub fn flush(&self) -> Result<()> {
        let mut state = self.shared.lock();
        while state.unwritten > 0 {
            state = self.shared.wait(state);
        }
        state.failure.take().map_or(Ok(()), Err)
    }

    /// Reports that an earlier value could not be written.
    pub fn check(&self) -> Result<()> {
        self.shared.lock().failure.take().map_or(Ok(()), Err)
    }

    pub fn note_shared(&self) {
        self.shared.lock().stats.shared += 1;
    }

    /// Takes over a value.
    pub fn take(
        self: &Arc<Engine>,
        piece: &Piece,
        value: &SavedValue<'_>,
    ) -> Result<OffloadedValue> {
        let bytes = piece.bytes();
        let claim = DiskReservation::new(&self.shared, bytes as u64, value)?;
        let original = (Pooled::downgrade(piece.storage()), piece.version());
        let saver =
            format!("{} saved by `{}` at {}", value.tensor().spec(), value.name(), value.at());
        let mut entry = OffloadEntry {
            bytes,
            memory: None,
            file: None,
            step: TransferState::Idle,
            ahead: false,
            cancelled: Arc::default(),
            original,
            given: None,
            saver,
            saved_at: (part::here(), value.op().map_or("checkpoint", |op| op.name()), value.at()),
        };
        if let Some(reservation) = Reservation::make(&self.shared, bytes)? {
            // The memory may be written to, or must be free, before the writer gets there: so it
            // works from a copy.
            let copy = piece.window().deep_clone();
            entry.memory = Some(SavedView::of(&copy));
            entry.step = TransferState::ToWrite;
            reservation.used();
        } else {
            let written = self.shared.write_one(&piece.dense(), &entry.cancelled);
            let file = written.map_err(|e| self.shared.unwritten(e, &entry.saver))?;
            let mut state = self.shared.lock();
            state.stats.written_bytes += bytes as u64;
            state.stats.written_at_once += 1;
            entry.file = Some(Arc::new(file));
        }
        claim.used();
        let mut state = self.shared.lock();
        let number = state.next;
        state.next += 1;
        if entry.step == TransferState::ToWrite {
            state.to_write.push_back(number);
            state.unwritten += 1;
        }
        state.entries.insert(number, entry);
        drop(state);
        self.shared.changed.notify_all();
        Ok(OffloadedValue { engine: self.clone(), number })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // It has no way to panic; if it did, there is nothing left to do.
            let _ = thread.join();
        }
    }
}

impl OffloadedValue {
    /// The memory that was saved, if it is still referenced and unchanged.
    pub fn original(&self) -> Option<Pooled<Storage>> {
        let shared = &self.engine.shared;
        let mut state = shared.lock();
        let storage = upgrade(&state.entries.get(&self.number)?.original)?;
        state.stats.still_there += 1;
        shared.read_before(&mut state, self.number);
        Some(storage)
    }

    /// The elements, dense.
    pub fn fetch(&self) -> Result<Pooled<Storage>> {
        let shared = &self.engine.shared;
        let mut state = shared.lock();
        let storage = loop {
            let EngineState { entries, spare, held, stats, .. } = &mut *state;
            let Some(entry) = entries.get_mut(&self.number) else {
                return Err(Error::gradient("offload", "the saved value was already released"));
            };
            if let Some(storage) = entry.given.as_ref().and_then(upgrade) {
                stats.still_there += 1;
                break storage;
            }
            if let Some(x) = entry.memory.as_ref().map(SavedView::tensor) {
                if entry.file.is_some() {
                    // The caller has it now; if it is requested again, it is also on disk.
                    entry.memory = None;
                    spare.remove(&self.number);
                    *held -= entry.bytes;
                    stats.prefetch_hits += u64::from(entry.ahead && x.is_some());
                    stats.memory_hits += u64::from(!entry.ahead && x.is_some());
                    entry.ahead = false;
                    let Some(x) = x else { continue };
                    break entry.give(&x);
                }
                let message =
                    "a value that was returned before it was written to disk was overwritten";
                let Some(x) = x else {
                    return Err(Error::new(ErrorKind::InPlace, "offload", message));
                };
                stats.memory_hits += 1;
                break entry.give(&x);
            }
            match entry.step {
                TransferState::Reading => {
                    state = shared.wait(state);
                    continue;
                }
                TransferState::ToRead => {
                    entry.step = TransferState::Idle;
                    *held -= entry.bytes;
                }
                TransferState::Idle | TransferState::ToWrite | TransferState::Writing => {}
            }
            let Some(file) = entry.file.clone() else {
                return Err(Error::gradient("offload", "a value was never written"));
            };
            drop(state);
            let x = file.read()?;
            drop(file);
            state = shared.lock();
            state.stats.read_bytes += x.spec().bytes() as u64;
            state.stats.read_on_demand += 1;
            let Some(entry) = state.entries.get_mut(&self.number) else {
                break x.0.storage.clone();
            };
            break entry.give(&x);
        };
        shared.read_before(&mut state, self.number);
        Ok(storage)
    }

    /// Bytes of it that are in memory now.
    pub fn held(&self) -> usize {
        let state = self.engine.shared.lock();
        let entry = state.entries.get(&self.number);
        entry.map_or(0, |e| if e.memory.is_some() { e.bytes } else { 0 })
    }

    pub fn saver(&self) -> String {
        let state = self.engine.shared.lock();
        state.entries.get(&self.number).map_or_else(String::new, |e| e.saver.clone())
    }
}

impl Drop for OffloadedValue {
    fn drop(&mut self) {
        let shared = &self.engine.shared;
        let mut state = shared.lock();
        while let Some(entry) = state.entries.get(&self.number)
            && matches!(entry.step, TransferState::Writing | TransferState::Reading)
        {
            entry.cancelled.store(true, Ordering::Relaxed);
            state = shared.wait(state);
        }
        let Some(entry) = state.entries.remove(&self.number) else { return };
        state.spare.remove(&self.number);
        if entry.memory.is_some() || entry.step == TransferState::ToRead {
            state.held -= entry.bytes;
        }
        if entry.step == TransferState::ToWrite {
            state.unwritten -= 1;
        }
        if entry.step == TransferState::ToWrite || entry.file.is_some() {
            state.claimed -= entry.bytes as u64;
        }
        drop(state);
        shared.changed.notify_all();
        // The file is removed with it, without holding the lock.
        drop(entry);
    }
}

impl OffloadEntry {
    fn give(&mut self, x: &Tensor) -> Pooled<Storage> {
        self.given = Some((Pooled::downgrade(&x.0.storage), x.version()));
        x.0.storage.clone()
    }
}

/// Memory that is still referenced and unchanged.
pub(super) fn upgrade((storage, version): &(WeakPooled<Storage>, u64)) -> Option<Pooled<Storage>> {
    storage.upgrade().filter(|s| s.version() == *version)
}

impl EngineShared {
    pub fn lock(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wait<'a>(&self, state: MutexGuard<'a, EngineState>) -> MutexGuard<'a, EngineState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}
