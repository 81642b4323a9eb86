//! Two threads, one that writes and one that reads ahead, and what they share with those who pack and unpack.
//!
//! A value is numbered when it is packed. Its copy waits in memory for the writer; once written, the copy may stay as long as nobody wants
//! its room, so the newest values, which backward wants first, are often still there. When backward takes value n, the reader is told to fetch
//! the values below n that are on disk alone. All of it together, copies that wait, copies that stay and values read ahead, is `held` and never
//! more than the bound: who packs waits for the writer, and the reader takes only the room that is left.
//!
//! Nobody waits in a circle. The threads wait for nothing but work. Who packs waits only while something is being written. Who drops a
//! value waits only for the file operation that goes on with that value, and cuts a write short. The threads never hold the last handle to
//! anything that would wait for them.

use super::OffloadStats;
use super::file::{Create, OnFile, Unwritten};
use crate::memory::piece::{Memo, Piece};
use crate::storage::Storage;
use crate::tape::saved::Window;
use crate::{Error, ErrorKind, Result, SavedValue, Tensor};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

/// The threads and what they work on; when it is dropped they have ended.
pub(super) struct Engine {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    pub memo: Memo<Ticket>,
}

struct Shared {
    dir: PathBuf,
    create: Create,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    options: Options,
    next: u64,
    entries: BTreeMap<u64, Entry>,
    to_write: VecDeque<u64>,
    to_read: VecDeque<u64>,
    /// Values that are on disk and in memory too: what makes room.
    spare: BTreeSet<u64>,
    /// How many values are to be written or being written.
    unwritten: usize,
    /// Bytes in memory, or promised to a copy or to the reader.
    held: usize,
    /// Bytes on disk, or on their way there.
    claimed: u64,
    /// Why a value could not be written, until somebody is told.
    failure: Option<Error>,
    closing: bool,
    stats: OffloadStats,
}

#[derive(Clone, Copy)]
pub(super) struct Options {
    pub min_bytes: usize,
    pub buffer_bytes: usize,
    pub max_bytes: u64,
    pub prefetch: usize,
}

struct Entry {
    bytes: usize,
    memory: Option<Window>,
    file: Option<Arc<OnFile>>,
    step: Step,
    /// It is in memory because it was read ahead.
    ahead: bool,
    cancelled: Arc<AtomicBool>,
    /// The memory that was saved, which somebody else may still hold.
    original: (Weak<Storage>, u64),
    /// The memory that was given out last.
    given: Option<(Weak<Storage>, u64)>,
    /// Who saved it, for errors.
    saver: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Idle,
    ToWrite,
    Writing,
    ToRead,
    Reading,
}

/// A value in the care of an engine. Dropped, its memory is free and its file is gone.
pub(super) struct Ticket {
    engine: Arc<Engine>,
    number: u64,
}

impl Engine {
    pub fn start(dir: PathBuf, create: Create, options: Options) -> std::io::Result<Arc<Engine>> {
        let state = State {
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
        let shared = Arc::new(Shared { dir, create, state, changed });
        let mut engine = Engine { shared, threads: Vec::new(), memo: Memo::new() };
        let jobs: [(&str, fn(&Shared)); 2] =
            [("pullback-offload-write", Shared::write), ("pullback-offload-read", Shared::read)];
        for (name, job) in jobs {
            let shared = engine.shared.clone();
            let thread = std::thread::Builder::new().name(name.to_string());
            // Should the second not start, dropping the engine ends the first.
            engine.threads.push(thread.spawn(move || job(&shared))?);
        }
        Ok(Arc::new(engine))
    }

    pub fn options(&self) -> Options {
        self.shared.lock().options
    }

    pub fn set(&self, change: impl FnOnce(&mut Options)) {
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

    /// Tells that an earlier value could not be written.
    pub fn check(&self) -> Result<()> {
        self.shared.lock().failure.take().map_or(Ok(()), Err)
    }

    pub fn note_shared(&self) {
        self.shared.lock().stats.shared += 1;
    }

    /// Takes a value into care.
    pub fn take(self: &Arc<Engine>, piece: &Piece, value: &SavedValue<'_>) -> Result<Ticket> {
        let bytes = piece.bytes();
        let claim = Claim::new(&self.shared, bytes as u64, value)?;
        let original = (Arc::downgrade(piece.storage()), piece.version());
        let saver =
            format!("{} saved by `{}` at {}", value.tensor().spec(), value.name(), value.at());
        let mut entry = Entry {
            bytes,
            memory: None,
            file: None,
            step: Step::Idle,
            ahead: false,
            cancelled: Arc::default(),
            original,
            given: None,
            saver,
        };
        if let Some(room) = Room::make(&self.shared, bytes)? {
            // The memory may be written to, or must be free, before the writer gets there: so it works from a copy.
            let copy = piece.window().deep_clone();
            entry.memory = Some(Window::of(&copy));
            entry.step = Step::ToWrite;
            room.used();
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
        if entry.step == Step::ToWrite {
            state.to_write.push_back(number);
            state.unwritten += 1;
        }
        state.entries.insert(number, entry);
        drop(state);
        self.shared.changed.notify_all();
        Ok(Ticket { engine: self.clone(), number })
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

impl Ticket {
    /// The memory that was saved, if it is there and as it was.
    pub fn original(&self) -> Option<Arc<Storage>> {
        let shared = &self.engine.shared;
        let mut state = shared.lock();
        let storage = upgrade(&state.entries.get(&self.number)?.original)?;
        state.stats.still_there += 1;
        shared.read_before(&mut state, self.number);
        Some(storage)
    }

    /// The elements, dense.
    pub fn fetch(&self) -> Result<Arc<Storage>> {
        let shared = &self.engine.shared;
        let mut state = shared.lock();
        let storage = loop {
            let State { entries, spare, held, stats, .. } = &mut *state;
            let Some(entry) = entries.get_mut(&self.number) else {
                return Err(Error::gradient("offload", "a value was given up"));
            };
            if let Some(storage) = entry.given.as_ref().and_then(upgrade) {
                stats.still_there += 1;
                break storage;
            }
            if let Some(x) = entry.memory.as_ref().map(Window::tensor) {
                if entry.file.is_some() {
                    // Whoever asked has it now; if it is asked for again, the disk has it too.
                    entry.memory = None;
                    spare.remove(&self.number);
                    *held -= entry.bytes;
                    stats.prefetch_hits += u64::from(entry.ahead && x.is_some());
                    stats.memory_hits += u64::from(!entry.ahead && x.is_some());
                    entry.ahead = false;
                    let Some(x) = x else { continue };
                    break entry.give(&x);
                }
                let message = "a value that was given to somebody before it was written to disk was overwritten";
                let Some(x) = x else {
                    return Err(Error::new(ErrorKind::InPlace, "offload", message));
                };
                stats.memory_hits += 1;
                break entry.give(&x);
            }
            match entry.step {
                Step::Reading => {
                    state = shared.wait(state);
                    continue;
                }
                Step::ToRead => {
                    entry.step = Step::Idle;
                    *held -= entry.bytes;
                }
                Step::Idle | Step::ToWrite | Step::Writing => {}
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

impl Drop for Ticket {
    fn drop(&mut self) {
        let shared = &self.engine.shared;
        let mut state = shared.lock();
        while let Some(entry) = state.entries.get(&self.number)
            && matches!(entry.step, Step::Writing | Step::Reading)
        {
            entry.cancelled.store(true, Ordering::Relaxed);
            state = shared.wait(state);
        }
        let Some(entry) = state.entries.remove(&self.number) else { return };
        state.spare.remove(&self.number);
        if entry.memory.is_some() || entry.step == Step::ToRead {
            state.held -= entry.bytes;
        }
        if entry.step == Step::ToWrite {
            state.unwritten -= 1;
        }
        if entry.step == Step::ToWrite || entry.file.is_some() {
            state.claimed -= entry.bytes as u64;
        }
        drop(state);
        shared.changed.notify_all();
        // The file goes with it, while nobody is kept waiting.
        drop(entry);
    }
}

impl Entry {
    fn give(&mut self, x: &Tensor) -> Arc<Storage> {
        self.given = Some((Arc::downgrade(&x.0.storage), x.version()));
        x.0.storage.clone()
    }
}

/// Memory that is still there and as it was.
fn upgrade((storage, version): &(Weak<Storage>, u64)) -> Option<Arc<Storage>> {
    storage.upgrade().filter(|s| s.version() == *version)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn write_one(
        &self,
        x: &Tensor,
        cancelled: &AtomicBool,
    ) -> std::result::Result<OnFile, Unwritten> {
        let write = || OnFile::write(&self.dir, self.create, x, cancelled);
        let panicked = |_| Err(Unwritten::Failed(self.dir.clone(), std::io::Error::other("panic")));
        catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(panicked)
    }

    fn unwritten(&self, why: Unwritten, saver: &str) -> Error {
        let message = match why {
            Unwritten::Cancelled => format!("{saver} was given up"),
            Unwritten::Failed(path, error) => {
                format!("{saver} could not be written to {}: {error}", path.display())
            }
        };
        Error::new(ErrorKind::Memory, "offload", message)
            .detail("what was saved before is intact, and backward through it works")
            .hint("make room on the disk, offload to another directory, or run without")
    }

    /// The life of the writer.
    fn write(&self) {
        let mut state = self.lock();
        while !state.closing {
            let Some(number) = state.to_write.pop_front() else {
                state = self.wait(state);
                continue;
            };
            let Some(entry) = state.entries.get_mut(&number) else { continue };
            let Some(window) = entry.memory.clone() else { continue };
            entry.step = Step::Writing;
            let (cancelled, bytes) = (entry.cancelled.clone(), entry.bytes);
            drop(state);
            let overwritten = || {
                let error = std::io::Error::other("it was overwritten first");
                Err(Unwritten::Failed(self.dir.clone(), error))
            };
            let mut written =
                window.tensor().map_or_else(overwritten, |x| self.write_one(&x, &cancelled));
            if written.is_ok() && window.tensor().is_none() {
                written = overwritten();
            }
            drop(window);
            state = self.lock();
            state.unwritten -= 1;
            let State { entries, stats, spare, claimed, failure, .. } = &mut *state;
            if let Some(entry) = entries.get_mut(&number) {
                entry.step = Step::Idle;
                match written {
                    Ok(file) => {
                        entry.file = Some(Arc::new(file));
                        spare.insert(number);
                        stats.written_bytes += bytes as u64;
                    }
                    // Its copy stays, so that the tape stays whole.
                    Err(why) => {
                        *claimed -= bytes as u64;
                        if let Unwritten::Failed(..) = &why {
                            stats.failed_writes += 1;
                            let error = self.unwritten(why, &entry.saver);
                            failure.get_or_insert(error);
                        }
                    }
                }
            }
            self.changed.notify_all();
        }
    }

    /// The life of the reader.
    fn read(&self) {
        let mut state = self.lock();
        while !state.closing {
            let Some(number) = state.to_read.pop_front() else {
                state = self.wait(state);
                continue;
            };
            let Some(entry) = state.entries.get_mut(&number) else { continue };
            let Some(file) = entry.file.clone().filter(|_| entry.step == Step::ToRead) else {
                continue;
            };
            entry.step = Step::Reading;
            drop(state);
            let read = catch_unwind(AssertUnwindSafe(|| file.read())).ok().and_then(Result::ok);
            drop(file);
            state = self.lock();
            let State { entries, stats, spare, held, .. } = &mut *state;
            if let Some(entry) = entries.get_mut(&number) {
                entry.step = Step::Idle;
                match read {
                    Some(x) => {
                        entry.memory = Some(Window::of(&x));
                        entry.ahead = true;
                        spare.insert(number);
                        stats.read_bytes += entry.bytes as u64;
                    }
                    // Who asks for it will read it, and be told why that fails.
                    None => *held -= entry.bytes,
                }
            }
            self.changed.notify_all();
        }
    }

    /// Asks for what was packed before a value, as far as there is room: backward will want it next.
    fn read_before(&self, state: &mut State, number: u64) {
        let Options { buffer_bytes, prefetch, .. } = state.options;
        let mut room = buffer_bytes.saturating_sub(state.held);
        let mut ahead = 0;
        for (&n, entry) in state.entries.range_mut(..number).rev() {
            if ahead == prefetch {
                break;
            }
            let coming = matches!(entry.step, Step::ToRead | Step::Reading);
            if entry.ahead || coming {
                ahead += 1;
                continue;
            }
            let there = entry.memory.is_some() || upgrade(&entry.original).is_some();
            if there || entry.file.is_none() {
                continue;
            }
            if entry.bytes > room {
                break;
            }
            room -= entry.bytes;
            state.held += entry.bytes;
            entry.step = Step::ToRead;
            state.to_read.push_back(n);
            ahead += 1;
        }
        state.stats.peak_held_bytes = state.stats.peak_held_bytes.max(state.held as u64);
        self.changed.notify_all();
    }
}

/// Room in memory for a copy, until it is used.
struct Room<'a>(Option<&'a Shared>, usize);

impl Room<'_> {
    /// Room for a value, as soon as there is; `None` where there will be none.
    fn make(shared: &Shared, bytes: usize) -> Result<Option<Room<'_>>> {
        let mut state = shared.lock();
        let mut waited = false;
        loop {
            if let Some(error) = state.failure.take() {
                return Err(error);
            }
            let bound = state.options.buffer_bytes;
            if bytes > bound {
                return Ok(None);
            }
            if state.held + bytes <= bound {
                state.held += bytes;
                state.stats.peak_held_bytes = state.stats.peak_held_bytes.max(state.held as u64);
                state.stats.waits += u64::from(waited);
                return Ok(Some(Room(Some(shared), bytes)));
            }
            // What backward will want last goes first.
            if let Some(number) = state.spare.pop_first() {
                let State { entries, held, .. } = &mut *state;
                if let Some(entry) = entries.get_mut(&number) {
                    entry.memory = None;
                    entry.ahead = false;
                    *held -= entry.bytes;
                }
                continue;
            }
            if state.unwritten == 0 {
                return Ok(None);
            }
            waited = true;
            state = shared.wait(state);
        }
    }

    fn used(mut self) {
        self.0 = None;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.lock().held -= self.1;
            shared.changed.notify_all();
        }
    }
}

/// A share of what may be on disk, until it is used.
struct Claim<'a>(Option<&'a Shared>, u64);

impl Claim<'_> {
    fn new<'a>(shared: &'a Shared, bytes: u64, value: &SavedValue<'_>) -> Result<Claim<'a>> {
        let mut state = shared.lock();
        let max = state.options.max_bytes;
        if state.claimed.saturating_add(bytes) > max {
            let message = format!(
                "{bytes} bytes more would be above the {max} that may be in {}, where {} are",
                shared.dir.display(),
                state.claimed
            );
            let error = Error::new(ErrorKind::Memory, "offload", message);
            return Err(error
                .on([value.tensor().spec()])
                .detail(format!("wanted by `{}`", value.name()))
                .detail("what was saved before is intact, and backward through it works")
                .hint("allow more with max_bytes(..), or keep small values with min_bytes(..)"));
        }
        state.claimed += bytes;
        Ok(Claim(Some(shared), bytes))
    }

    fn used(mut self) {
        self.0 = None;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.lock().claimed -= self.1;
        }
    }
}
