//! Shared memory of tensors, and the record of writes to it.
//!
//! A storage carries a *version* that every in-place write bumps, with the op and the source line
//! of the last writer. A value saved for backward remembers the version it saw; backward compares.
//! The lock makes in-place writes from one thread safe with reads from another: work on the memory
//! is ordered on the stream of its device as the lock was taken, and reading it on the host waits
//! (`lock.rs`).
//!
//! While a function is traced, what it makes has no memory: its storage represents a variable of
//! the program that is being recorded (see `trace/`), and is versioned too.

use crate::backend::{Latch, Memory, Pooled, ReadGuard, ReadWriteLock, WriteGuard};
use crate::events::{self, Marks};
use crate::{Error, fail, sequence};
use pullback_ir::{Device, ErrorKind, Line, Spec};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) struct Storage {
    /// Of a value of a trace, which has none, it is empty.
    memory: ReadWriteLock<Memory>,
    traced: Option<Box<Traced>>,
    /// How many bytes of memory there are: of a value of a trace none.
    bytes: usize,
    device: Device,
    /// The number that the tape's next node had when this was made: what is older than a scope has
    /// a smaller one.
    pub created: u64,
    version: AtomicU64,
    /// Known to be all ones, so it need not be read.
    ones: AtomicBool,
    writer: Latch<Option<LastWrite>>,
    /// What subscribers store with it.
    pub marks: Marks,
}

/// A value of a program that is being recorded.
pub(crate) struct Traced {
    /// The trace it belongs to.
    pub trace: u64,
    /// What it is as a whole, dense.
    pub spec: Spec,
    pub op: &'static str,
    pub at: Line,
}

/// Who wrote last.
#[derive(Clone, Copy)]
pub(crate) struct LastWrite {
    pub op: &'static str,
    pub at: Line,
}

impl Storage {
    /// A storage of this memory.
    #[inline(always)]
    pub fn new(memory: Memory) -> Pooled<Storage> {
        Storage::with(memory.bytes(), memory.device(), || memory)
    }

    /// A storage of memory of so many bytes on this device.
    #[inline(always)]
    pub fn with(bytes: usize, device: Device, memory: impl FnOnce() -> Memory) -> Pooled<Storage> {
        let marks = events::memory_allocated(bytes, device, None);
        let mut pooled = Pooled::make(|| Storage::of(None, bytes, device, marks));
        // Set where it stays: memory that is moved with its lock is copied byte by byte. What was
        // there owns nothing, and need not be dropped.
        let Some(new) = Pooled::get_mut(&mut pooled) else { unreachable!("it has one reference") };
        std::mem::forget(std::mem::replace(new.memory.get_mut(), memory()));
        pooled
    }

    pub fn traced(traced: Traced) -> Pooled<Storage> {
        let device = traced.spec.device;
        let marks = events::memory_allocated(0, device, Some(&traced));
        Pooled::make(|| Storage::of(Some(Box::new(traced)), 0, device, marks))
    }

    #[inline(always)]
    fn of(traced: Option<Box<Traced>>, bytes: usize, device: Device, marks: Marks) -> Storage {
        Storage {
            memory: ReadWriteLock::new(Memory::empty()),
            traced,
            bytes,
            device,
            created: sequence::next_number(),
            version: AtomicU64::new(0),
            ones: AtomicBool::new(false),
            writer: Latch::new(None),
            marks,
        }
    }

    /// The traced value that this represents, if it is not memory.
    pub fn as_traced(&self) -> Option<&Traced> {
        self.traced.as_deref()
    }

    /// How many bytes of memory there are, without locking them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it is.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The memory, to be read.
    pub fn read(&self) -> ReadGuard<'_, Memory> {
        self.memory().read()
    }

    /// The memory, to be read by a small op: in less than a microsecond.
    #[inline]
    pub fn read_briefly(&self) -> ReadGuard<'_, Memory> {
        self.memory().read_briefly()
    }

    /// As [`Storage::read`]. Not every write has a version (sums of gradients, which nothing else
    /// sees), but each takes this lock.
    pub fn write(&self) -> WriteGuard<'_, Memory> {
        self.ones.store(false, Ordering::Release);
        let memory = self.memory().write();
        // A failed device reports the error again at the next call.
        let _ = memory.wait_for_copies();
        memory
    }

    #[inline]
    fn memory(&self) -> &ReadWriteLock<Memory> {
        match &self.traced {
            None => &self.memory,
            Some(traced) => fail::raise(traced.unknown("read")),
        }
    }

    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Notes that it was made of ones.
    pub fn note_ones(&self) {
        self.ones.store(true, Ordering::Release);
    }

    /// Whether it was made of ones and not written since.
    pub fn is_ones(&self) -> bool {
        self.ones.load(Ordering::Acquire)
    }

    /// Takes back the notes of writes that only a trace made.
    pub fn restore(&self, version: u64, writer: Option<LastWrite>) {
        self.version.store(version, Ordering::Release);
        *self.writer.lock() = writer;
    }

    pub fn writer(&self) -> Option<LastWrite> {
        *self.writer.lock()
    }

    /// The error with a line about the last write.
    pub fn named_writer(&self, error: Error) -> Error {
        let Some(LastWrite { op, at }) = self.writer() else { return error };
        error.detail(format!("overwritten  {op:<8} at {at}   (version {})", self.version()))
    }

    /// Notes a write and gives the new version. Called while the write lock is held.
    pub fn bump(&self, writer: LastWrite) -> u64 {
        events::written(self);
        *self.writer.lock() = Some(writer);
        self.version.fetch_add(1, Ordering::AcqRel) + 1
    }
}

impl Traced {
    /// The error of reading a value that is not known yet.
    pub fn unknown(&self, op: &'static str) -> Error {
        let message = format!(
            "the value of this {} is not known: it is being traced, not computed",
            self.spec
        );
        Error::new(ErrorKind::Program, op, message)
            .detail(format!("made by {} at {}", self.op, self.at))
            .hint("branch with cond(..) or select(..), loop with while_loop(..), or return the tensor and read it outside")
    }

    /// The error of using a value after its trace.
    pub fn escaped(&self, op: &str) -> Error {
        let message =
            format!("this {} belongs to another trace, or to one that has ended", self.spec);
        Error::new(ErrorKind::Program, op.to_string(), message)
            .detail(format!("made by {} at {}", self.op, self.at))
            .hint("return it from the traced function and use the returned tensor")
    }
}
