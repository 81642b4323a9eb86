//! Values of a device that wait in memory of the host.
//!
//! A copy starts when a value is saved, during the operations that follow, and the device's memory
//! is used again after it. When backward takes value n, copies of the values before it start to
//! come back, as many as fit ([`OffloadOptions`]), so that they are there when their turn comes.
//! Nothing here waits: the device orders copies and work itself.

use super::OffloadStats;
use super::engine::{OffloadOptions, upgrade};
use crate::backend::{Asked, Pooled, WeakPooled, copies};
use crate::memory::piece::{Memo, Piece};
use crate::storage::Storage;
use crate::{Error, ErrorKind, Result, SavedValue, Tensor};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is on the host, and what has come back.
pub(super) struct HostEngine {
    state: Mutex<HostState>,
    pub memo: Memo<HostValue>,
}

struct HostState {
    options: OffloadOptions,
    next: u64,
    entries: BTreeMap<u64, HostEntry>,
    /// Bytes on the device that came back before they were asked for.
    ahead: usize,
    stats: OffloadStats,
}

struct HostEntry {
    away: copies::HostTransfer,
    /// It came back before it was asked for.
    ahead: Option<Tensor>,
    /// The memory that was saved, which may still be referenced elsewhere.
    original: (WeakPooled<Storage>, u64),
    /// The memory that was given out last.
    given: Option<(WeakPooled<Storage>, u64)>,
    by: Asked,
    saver: String,
}

/// A value on the host. Dropping it frees its memory.
pub(super) struct HostValue {
    engine: Arc<HostEngine>,
    number: u64,
}

impl HostEngine {
    pub fn new() -> HostEngine {
        let options = OffloadOptions {
            min_bytes: 1 << 20,
            buffer_bytes: 2 << 30,
            max_bytes: u64::MAX,
            prefetch: 8,
        };
        let stats = OffloadStats::default();
        let state = HostState { options, next: 0, entries: BTreeMap::new(), ahead: 0, stats };
        HostEngine { state: Mutex::new(state), memo: Memo::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HostState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn options(&self) -> OffloadOptions {
        self.lock().options
    }

    pub fn set(&self, change: impl FnOnce(&mut OffloadOptions)) {
        change(&mut self.lock().options);
    }

    pub fn stats(&self) -> OffloadStats {
        let state = self.lock();
        OffloadStats { held_bytes: state.ahead as u64, ..state.stats }
    }

    pub fn note_shared(&self) {
        self.lock().stats.shared += 1;
    }

    /// Takes over a value.
    pub fn take(
        self: &Arc<HostEngine>,
        piece: &Piece,
        value: &SavedValue<'_>,
    ) -> Result<HostValue> {
        let bytes = piece.bytes() as u64;
        let (max, there) = (self.options().max_bytes, self.lock().stats.host_bytes);
        if there.saturating_add(bytes) > max {
            let message = format!(
                "{bytes} bytes more would be above the {max} that may be on the host, where \
                 {there} are"
            );
            let error = Error::new(ErrorKind::Memory, "offload", message);
            return Err(error
                .on([value.tensor().spec()])
                .detail(format!("wanted by `{}`", value.name()))
                .hint("allow more with max_bytes(..), or keep small values with min_bytes(..)"));
        }
        // Without the lock: it may allocate, and wait for the device.
        let away = copies::offload(&piece.dense())?
            .ok_or_else(|| Error::gradient("offload", "the value is on the host already"))?;
        let entry = HostEntry {
            away,
            ahead: None,
            original: (Pooled::downgrade(piece.storage()), piece.version()),
            given: None,
            by: Asked::by(value.op().map_or("checkpoint", |op| op.name()), value.at()),
            saver: format!(
                "{} saved by `{}` at {}",
                value.tensor().spec(),
                value.name(),
                value.at()
            ),
        };
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.stats.written_bytes += bytes;
        state.stats.host_bytes += bytes;
        state.entries.insert(number, entry);
        Ok(HostValue { engine: self.clone(), number })
    }
}

impl HostState {
    /// Starts to copy back what was saved before a value, as far as it fits: backward will need it
    /// next.
    fn restore_before(&mut self, number: u64) {
        let OffloadOptions { buffer_bytes, prefetch, .. } = self.options;
        let mut ahead = 0;
        for (_, entry) in self.entries.range_mut(..number).rev() {
            if ahead == prefetch {
                break;
            }
            if entry.ahead.is_some() {
                ahead += 1;
                continue;
            }
            let there = |memory: &(WeakPooled<Storage>, u64)| upgrade(memory).is_some();
            if there(&entry.original) || entry.given.as_ref().is_some_and(there) {
                continue;
            }
            let bytes = entry.away.bytes();
            if self.ahead + bytes > buffer_bytes {
                break;
            }
            // One for which there is no memory now is restored when it is asked for, or that fails.
            let Ok(back) = entry.away.restore(entry.by) else { break };
            entry.ahead = Some(back);
            self.ahead += bytes;
            self.stats.read_bytes += bytes as u64;
            ahead += 1;
        }
        self.stats.peak_held_bytes = self.stats.peak_held_bytes.max(self.ahead as u64);
    }
}

impl HostValue {
    /// The memory that was saved, if it is still referenced and unchanged.
    pub fn original(&self) -> Option<Pooled<Storage>> {
        let mut state = self.engine.lock();
        let storage = upgrade(&state.entries.get(&self.number)?.original)?;
        state.stats.still_there += 1;
        state.restore_before(self.number);
        Some(storage)
    }

    /// The elements, dense.
    pub fn fetch(&self) -> Result<Pooled<Storage>> {
        let mut state = self.engine.lock();
        let HostState { entries, ahead, stats, .. } = &mut *state;
        let Some(entry) = entries.get_mut(&self.number) else {
            return Err(Error::gradient("offload", "the saved value was already released"));
        };
        let storage = match entry.given.as_ref().and_then(upgrade) {
            Some(storage) => {
                stats.still_there += 1;
                storage
            }
            None => {
                let bytes = entry.away.bytes();
                let x = match entry.ahead.take() {
                    Some(x) => {
                        *ahead -= bytes;
                        stats.prefetch_hits += 1;
                        x
                    }
                    None => {
                        stats.read_bytes += bytes as u64;
                        stats.read_on_demand += 1;
                        entry.away.restore(entry.by)?
                    }
                };
                copies::arrive(&x)?;
                entry.given = Some((Pooled::downgrade(&x.0.storage), x.version()));
                x.0.storage.clone()
            }
        };
        state.restore_before(self.number);
        Ok(storage)
    }

    /// Bytes of the device that it holds now.
    pub fn held(&self) -> usize {
        let state = self.engine.lock();
        let entry = state.entries.get(&self.number);
        entry.map_or(0, |e| e.ahead.as_ref().map_or(0, |_| e.away.bytes()))
    }

    pub fn saver(&self) -> String {
        let state = self.engine.lock();
        state.entries.get(&self.number).map_or_else(String::new, |e| e.saver.clone())
    }
}

impl Drop for HostValue {
    fn drop(&mut self) {
        let mut state = self.engine.lock();
        let Some(entry) = state.entries.remove(&self.number) else { return };
        state.stats.host_bytes -= entry.away.bytes() as u64;
        if entry.ahead.is_some() {
            state.ahead -= entry.away.bytes();
        }
        drop(state);
        // Memory is given back without holding the lock.
        drop(entry);
    }
}
