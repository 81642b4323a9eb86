//! Who holds the memory of a device: every block, with the op and the line that asked for it. Read
//! when there is no memory left, and by reports.

use super::attach::AttachedDevice;
use crate::memory::report::amount;
use crate::{Error, Result};
use pullback_ir::{ErrorKind, Line, PoolStats};
use rustc_hash::FxHashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many lines an error names.
const SHOWN: usize = 8;

/// What asks for memory: an op, and the user's line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub op: &'static str,
    pub at: Option<Line>,
}

impl Asked {
    pub fn by(op: &'static str, at: Line) -> Asked {
        Asked { op, at: Some(at) }
    }
}

/// The blocks of a device that are in use.
#[derive(Default)]
pub(crate) struct Holders(Mutex<HolderSlots>);

#[derive(Default)]
struct HolderSlots {
    /// Bytes and maker; those of a free slot are of no use.
    all: Vec<(usize, Option<Asked>)>,
    free: Vec<usize>,
    live: u64,
    /// The most that `live` was since [`Holders::mark`].
    peak: u64,
}

impl Holders {
    fn slots(&self) -> MutexGuard<'_, HolderSlots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a block, and gives its slot.
    pub fn enter(&self, bytes: usize, by: Asked) -> usize {
        let mut slots = self.slots();
        slots.live += bytes as u64;
        slots.peak = slots.peak.max(slots.live);
        match slots.free.pop() {
            Some(slot) => {
                slots.all[slot] = (bytes, Some(by));
                slot
            }
            None => {
                slots.all.push((bytes, Some(by)));
                slots.all.len() - 1
            }
        }
    }

    /// The block of this slot is given back.
    pub fn leave(&self, slot: usize) {
        let mut slots = self.slots();
        let (bytes, _) = std::mem::take(&mut slots.all[slot]);
        slots.live -= bytes as u64;
        slots.free.push(slot);
    }

    /// Bytes in use now.
    pub fn live(&self) -> u64 {
        self.slots().live
    }

    /// Begins to measure the peak, and gives the bytes in use now.
    pub fn mark(&self) -> u64 {
        let mut slots = self.slots();
        slots.peak = slots.live;
        slots.live
    }

    /// The most that was in use since [`Holders::mark`].
    pub fn peak(&self) -> u64 {
        self.slots().peak
    }

    /// Runs `f`, and gives by how much the bytes in use rose meanwhile. A measurement around it is
    /// not disturbed.
    pub fn rise<R>(&self, f: impl FnOnce() -> R) -> (R, u64) {
        let (outer, before) = {
            let mut slots = self.slots();
            let live = slots.live;
            (std::mem::replace(&mut slots.peak, live), live)
        };
        let made = f();
        let mut slots = self.slots();
        let rise = slots.peak - before;
        slots.peak = slots.peak.max(outer);
        (made, rise)
    }

    /// Bytes, number of blocks and maker, by op and line, the largest first.
    fn by_line(&self) -> Vec<(usize, usize, Asked)> {
        let mut lines: FxHashMap<Asked, (usize, usize)> = FxHashMap::default();
        for &(bytes, by) in &self.slots().all {
            if let Some(by) = by {
                let line = lines.entry(by).or_default();
                *line = (line.0 + bytes, line.1 + 1);
            }
        }
        let mut all: Vec<_> = lines.into_iter().map(|(by, (bytes, n))| (bytes, n, by)).collect();
        all.sort_by_key(|&(bytes, _, by)| (std::cmp::Reverse(bytes), by.op));
        all
    }
}

impl AttachedDevice {
    /// Runs `f`, which takes memory of the device for an op. If there is none left, everything that
    /// is only cached is given back and, if `f` may run twice, it runs once more.
    pub fn with_memory<R>(
        &self,
        by: Asked,
        repeats: bool,
        mut f: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        let error = match f() {
            Err(error) if error.kind() == ErrorKind::Memory => error,
            done => return done,
        };
        self.release();
        match repeats.then(f) {
            Some(Err(again)) if again.kind() == ErrorKind::Memory => {
                Err(self.exhausted(&again, by))
            }
            Some(done) => done,
            None => Err(self.exhausted(&error, by)),
        }
    }

    /// The error of a device without memory, with the lines that hold it.
    #[cold]
    fn exhausted(&self, error: &Error, by: Asked) -> Error {
        let mut named = Error::new(ErrorKind::Memory, by.op, error.message());
        let lines = self.holders.by_line();
        let PoolStats { live_bytes, cached_bytes, .. } = self.backend.statistics();
        let (live, cached) = (amount(live_bytes), amount(cached_bytes));
        named = named.detail(format!("{} holds {live}, and caches {cached}:", self.device));
        for (bytes, count, by) in lines.iter().take(SHOWN) {
            let (bytes, what) = (amount(*bytes as u64), format!("{} ×{count}", by.op));
            let at = by.at.map_or("no line".to_string(), |at| at.to_string());
            named = named.detail(format!("{bytes:>11}  {what:<24} {at}"));
        }
        if let Some(rest) = lines.get(SHOWN..).filter(|rest| !rest.is_empty()) {
            let bytes = amount(rest.iter().map(|line| line.0 as u64).sum());
            named = named.detail(format!("{bytes:>11}  on {} further lines", rest.len()));
        }
        named = match by.at.or(error.location()) {
            Some(at) => named.at(at),
            None => named,
        };
        named
            .hint("smaller batches, `checkpoint`, `memory_budget` and `Offload::to_host` take less")
    }
}
