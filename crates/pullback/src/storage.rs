//! Shared memory of tensors, and the record of who wrote to it.
//!
//! A storage carries a *version* that every in-place write bumps, with the op and the source line of
//! the last writer. A value saved for backward remembers the version it saw; backward compares.
//! The lock makes in-place writes from one thread safe beside reads from another.

use pullback_cpu::Buffer;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) struct Storage {
    buffer: RwLock<Buffer>,
    version: AtomicU64,
    writer: Mutex<Option<Writer>>,
}

/// Who wrote last.
#[derive(Clone, Copy)]
pub(crate) struct Writer {
    pub op: &'static str,
    pub at: &'static Location<'static>,
}

impl Storage {
    pub fn new(buffer: Buffer) -> Storage {
        Storage {
            buffer: RwLock::new(buffer),
            version: AtomicU64::new(0),
            writer: Mutex::new(None),
        }
    }

    /// A kernel that panicked while it held the lock left no half-written state that a later
    /// reader could misread as something else than numbers, so poisoning is ignored.
    pub fn read(&self) -> RwLockReadGuard<'_, Buffer> {
        self.buffer.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, Buffer> {
        self.buffer.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub fn writer(&self) -> Option<Writer> {
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a write and gives the new version. Called while the write lock is held.
    pub fn bump(&self, writer: Writer) -> u64 {
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
        self.version.fetch_add(1, Ordering::AcqRel) + 1
    }
}
