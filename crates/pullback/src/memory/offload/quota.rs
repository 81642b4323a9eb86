//! Limits: memory for copies, which packing may have to wait for, and bytes on disk.

use super::engine::{EngineShared, EngineState};
use crate::{Error, ErrorKind, Result, SavedValue};

/// Memory that is reserved for a copy, until it is used.
pub(super) struct Reservation<'a>(Option<&'a EngineShared>, usize);

impl Reservation<'_> {
    /// Reserves memory for a value, waiting if necessary; `None` where it can never fit.
    pub fn make(shared: &EngineShared, bytes: usize) -> Result<Option<Reservation<'_>>> {
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
                return Ok(Some(Reservation(Some(shared), bytes)));
            }
            // What backward will need last is freed first.
            if let Some(number) = state.spare.pop_first() {
                let EngineState { entries, held, .. } = &mut *state;
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

    pub fn used(mut self) {
        self.0 = None;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.lock().held -= self.1;
            shared.changed.notify_all();
        }
    }
}

/// Disk space that is reserved, until it is used.
pub(super) struct DiskReservation<'a>(Option<&'a EngineShared>, u64);

impl DiskReservation<'_> {
    pub fn new<'a>(
        shared: &'a EngineShared,
        bytes: u64,
        value: &SavedValue<'_>,
    ) -> Result<DiskReservation<'a>> {
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
        Ok(DiskReservation(Some(shared), bytes))
    }

    pub fn used(mut self) {
        self.0 = None;
    }
}

impl Drop for DiskReservation<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.lock().claimed -= self.1;
        }
    }
}
