//! The two threads: one writes what was packed, one prefetches for backward.

use super::engine::{EngineShared, EngineState, OffloadOptions, TransferState, upgrade};
use super::file::{OnFile, Unwritten};
use crate::memory::kept::SavedView;
use crate::{Error, ErrorKind, Result, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

impl EngineShared {
    pub fn write_one(
        &self,
        x: &Tensor,
        cancelled: &AtomicBool,
    ) -> std::result::Result<OnFile, Unwritten> {
        let write = || OnFile::write(&self.dir, self.create, x, cancelled);
        let panicked = |_| Err(Unwritten::Failed(self.dir.clone(), std::io::Error::other("panic")));
        catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(panicked)
    }

    pub fn unwritten(&self, why: Unwritten, saver: &str) -> Error {
        let message = match why {
            Unwritten::Cancelled => format!("{saver} was released before it was written"),
            Unwritten::Failed(path, error) => {
                format!("{saver} could not be written to {}: {error}", path.display())
            }
        };
        Error::new(ErrorKind::Memory, "offload", message)
            .detail("what was saved before is intact, and backward through it works")
            .hint("free disk space, offload to another directory, or run without")
    }

    /// The loop of the writer.
    pub fn write(&self) {
        let mut state = self.lock();
        while !state.closing {
            let Some(number) = state.to_write.pop_front() else {
                state = self.wait(state);
                continue;
            };
            let Some(entry) = state.entries.get_mut(&number) else { continue };
            let Some(window) = entry.memory.clone() else { continue };
            entry.step = TransferState::Writing;
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
            let EngineState { entries, stats, spare, claimed, failure, .. } = &mut *state;
            if let Some(entry) = entries.get_mut(&number) {
                entry.step = TransferState::Idle;
                match written {
                    Ok(file) => {
                        entry.file = Some(Arc::new(file));
                        spare.insert(number);
                        stats.written_bytes += bytes as u64;
                    }
                    // Its copy stays, so that the tape stays valid.
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

    /// The loop of the reader.
    pub fn read(&self) {
        let mut state = self.lock();
        while !state.closing {
            let Some(number) = state.to_read.pop_front() else {
                state = self.wait(state);
                continue;
            };
            let Some(entry) = state.entries.get_mut(&number) else { continue };
            let Some(file) = entry.file.clone().filter(|_| entry.step == TransferState::ToRead)
            else {
                continue;
            };
            entry.step = TransferState::Reading;
            drop(state);
            let read = catch_unwind(AssertUnwindSafe(|| file.read())).ok().and_then(Result::ok);
            drop(file);
            state = self.lock();
            let EngineState { entries, stats, spare, held, .. } = &mut *state;
            if let Some(entry) = entries.get_mut(&number) {
                entry.step = TransferState::Idle;
                match read {
                    Some(x) => {
                        let (here, op, at) = &entry.saved_at;
                        here.register(&x, op, *at);
                        entry.memory = Some(SavedView::of(&x));
                        entry.ahead = true;
                        spare.insert(number);
                        stats.read_bytes += entry.bytes as u64;
                    }
                    // The caller that needs it will read it, and get the error.
                    None => *held -= entry.bytes,
                }
            }
            self.changed.notify_all();
        }
    }

    /// Prefetches what was packed before a value, as far as it fits: backward will need it next.
    pub fn read_before(&self, state: &mut EngineState, number: u64) {
        let OffloadOptions { buffer_bytes, prefetch, .. } = state.options;
        let mut space = buffer_bytes.saturating_sub(state.held);
        let mut ahead = 0;
        for (&n, entry) in state.entries.range_mut(..number).rev() {
            if ahead == prefetch {
                break;
            }
            let coming = matches!(entry.step, TransferState::ToRead | TransferState::Reading);
            if entry.ahead || coming {
                ahead += 1;
                continue;
            }
            let there = entry.memory.is_some() || upgrade(&entry.original).is_some();
            if there || entry.file.is_none() {
                continue;
            }
            if entry.bytes > space {
                break;
            }
            space -= entry.bytes;
            state.held += entry.bytes;
            entry.step = TransferState::ToRead;
            state.to_read.push_back(n);
            ahead += 1;
        }
        state.stats.peak_held_bytes = state.stats.peak_held_bytes.max(state.held as u64);
        self.changed.notify_all();
    }
}
