//! Copies between the host and the device.
//!
//! Large ones go through pinned memory in parts: the device copies one part while threads of the
//! host copy the next. What is offloaded is copied on a stream of its own, and what is restored on
//! another, beside the work of the device. Events order them: a copy begins after what is in the
//! queue, work on its memory waits for it ([`settle`]), and memory that is given back meanwhile is
//! used again after it (`pool.rs`).

use crate::gpu::{Gpu, LibraryHandle};
use crate::pinned::{Event, PinnedBuffer};
use pullback_cpu::par;
use pullback_cuda_sys::{DevicePtr, Ptr};
use pullback_ir::{Error, ErrorKind, HostCopy, Result};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

/// From here on copies go through pinned memory: below, the driver is as fast.
const LARGE: usize = 4 << 20;
/// Bytes of a part.
const PART: usize = 8 << 20;
/// How many parts are in flight at once.
const PARTS: usize = 4;
/// Bytes that one thread copies at a time.
const GRAIN: usize = 1 << 20;

/// The streams of copies beside the queue.
#[derive(Clone, Copy)]
pub(crate) struct Streams {
    pub out: LibraryHandle,
    pub back: LibraryHandle,
}

/// Bytes in pinned memory, once a copy has ended.
struct PinnedCopy {
    memory: PinnedBuffer,
    done: Arc<Event>,
}

/// An address that threads use, each its own part.
struct Raw(*mut u8);
// SAFETY: threads write disjoint parts.
unsafe impl Sync for Raw {}

impl Raw {
    fn at(&self, byte: usize) -> *mut u8 {
        self.0.wrapping_add(byte)
    }
}

/// Copies bytes with the threads of the host.
///
/// # Safety
/// Both addresses are valid for so many bytes, and nothing else uses `to`.
unsafe fn copy_bytes(from: *const u8, to: *mut u8, bytes: usize) {
    let (from, to) = (Raw(from.cast_mut()), Raw(to));
    par::for_each(bytes.div_ceil(GRAIN), |task| {
        let start = task * GRAIN;
        let len = GRAIN.min(bytes - start);
        // SAFETY: inside both, and no other task has this part.
        unsafe { std::ptr::copy_nonoverlapping(from.at(start).cast_const(), to.at(start), len) };
    });
}

impl Gpu {
    pub fn to_device(
        &self,
        from: *const c_void,
        to: DevicePtr,
        n: usize,
        on: LibraryHandle,
    ) -> Result<()> {
        // SAFETY: the callers hold `from` until the copy has ended, or it is pageable memory, which
        // the driver copies to its own before it returns.
        let code = unsafe { (self.driver.cuMemcpyHtoDAsync_v2)(to, from, n, on.0) };
        self.ok("upload", code)
    }

    pub fn to_host(&self, from: DevicePtr, to: Ptr, n: usize, on: LibraryHandle) -> Result<()> {
        // SAFETY: the callers hold `to` until the copy has ended.
        self.ok("download", unsafe { (self.driver.cuMemcpyDtoHAsync_v2)(to, from, n, on.0) })
    }

    /// Copies bytes to the device. They may change when this returns.
    pub fn upload(&self, from: &[u8], to: DevicePtr) -> Result<()> {
        self.refuse_capture("upload")?;
        self.enter();
        if from.is_empty() {
            return Ok(());
        }
        if from.len() < LARGE {
            return self.to_device(from.as_ptr().cast(), to, from.len(), self.stream);
        }
        let mut buffers: VecDeque<PinnedBuffer> = VecDeque::new();
        for (i, part) in from.chunks(PART).enumerate() {
            let buffer = match buffers.pop_front().filter(|_| i >= PARTS) {
                Some(buffer) => buffer,
                None => self.pinned.take(self, PART)?,
            };
            buffer.wait(self)?;
            // SAFETY: a part is not longer than the buffer, whose last copy has ended.
            unsafe { copy_bytes(part.as_ptr(), buffer.at().cast(), part.len()) };
            let at = to + (i * PART) as u64;
            self.to_device(buffer.at().cast_const(), at, part.len(), self.stream)?;
            buffer.used_until(&Event::record(self, self.stream)?);
            buffers.push_back(buffer);
        }
        Ok(())
    }

    /// Waits for the queue and copies bytes to the host.
    pub fn download(&self, from: DevicePtr, to: &mut [u8]) -> Result<()> {
        self.refuse_capture("download")?;
        self.enter();
        if to.len() < LARGE {
            if !to.is_empty() {
                self.to_host(from, to.as_mut_ptr().cast(), to.len(), self.stream)?;
            }
            return self.synchronize();
        }
        let mut under_way: VecDeque<(PinnedBuffer, &mut [u8])> = VecDeque::new();
        for (i, part) in to.chunks_mut(PART).enumerate() {
            let buffer = match under_way.len() {
                PARTS.. => self.finish(&mut under_way)?,
                _ => None,
            };
            let buffer = match buffer {
                Some(buffer) => buffer,
                None => self.pinned.take(self, PART)?,
            };
            let at = from + (i * PART) as u64;
            // After a copy of another stream that still uses the buffer.
            buffer.before(self, self.stream)?;
            self.to_host(at, buffer.at(), part.len(), self.stream)?;
            buffer.used_until(&Event::record(self, self.stream)?);
            under_way.push_back((buffer, part));
        }
        while self.finish(&mut under_way)?.is_some() {}
        self.synchronize()
    }

    /// Waits for the oldest part, and gives its buffer.
    fn finish(
        &self,
        under_way: &mut VecDeque<(PinnedBuffer, &mut [u8])>,
    ) -> Result<Option<PinnedBuffer>> {
        let Some((buffer, part)) = under_way.pop_front() else { return Ok(None) };
        buffer.wait(self)?;
        // SAFETY: the buffer is as long as a part at least, and its copy has ended.
        unsafe { copy_bytes(buffer.at().cast_const().cast(), part.as_mut_ptr(), part.len()) };
        Ok(Some(buffer))
    }

    /// The streams of copies, made at the first call.
    pub fn copy_streams(&self) -> Result<Streams> {
        if let Some(streams) = self.streams.get() {
            return Ok(*streams);
        }
        let made = Streams { out: self.new_stream()?, back: self.new_stream()? };
        Ok(*self.streams.get_or_init(|| made))
    }

    /// Starts to copy a part of a block to the host.
    pub fn offload(&self, block: DevicePtr, start: usize, bytes: usize) -> Result<HostCopy> {
        self.enter();
        let stream = self.copy_streams()?.out;
        let memory = self.pinned.take(self, bytes)?;
        memory.before(self, stream)?;
        Event::record(self, self.stream)?.before(self, stream)?;
        if bytes > 0 {
            self.to_host(block + start as u64, memory.at(), bytes, stream)?;
        }
        let done = Event::record(self, stream)?;
        memory.used_until(&done);
        self.pool().note_copy(block, &done);
        Ok(HostCopy::new(PinnedCopy { memory, done }, bytes))
    }

    /// Starts to copy what was offloaded to the start of a block.
    pub fn restore(&self, copy: &HostCopy, block: DevicePtr) -> Result<()> {
        self.enter();
        let PinnedCopy { memory, done } = copy.get().ok_or_else(foreign)?;
        let stream = self.copy_streams()?.back;
        Event::record(self, self.stream)?.before(self, stream)?;
        done.before(self, stream)?;
        if copy.bytes() > 0 {
            self.to_device(memory.at().cast_const(), block, copy.bytes(), stream)?;
        }
        let back = Event::record(self, stream)?;
        memory.used_until(&back);
        self.pool().note_copy(block, &back);
        Ok(())
    }

    /// What is put into the queue from now on comes after copies from and to a block.
    pub fn wait_for_copies(&self, block: DevicePtr) -> Result<()> {
        self.enter();
        let copies = self.pool().take_copies(block);
        copies.iter().try_for_each(|event| event.before(self, self.stream))
    }

    /// Waits for what was offloaded, and gives its bytes.
    pub fn collect(&self, copy: &HostCopy, to: &mut [u8]) -> Result<()> {
        self.enter();
        let PinnedCopy { memory, done } = copy.get().ok_or_else(foreign)?;
        if to.len() != copy.bytes() {
            return Err(foreign());
        }
        done.wait(self)?;
        if self.has_fault() {
            self.synchronize()?;
        }
        // SAFETY: the buffer is as long at least, and the copy to it has ended.
        unsafe { copy_bytes(memory.at().cast_const().cast(), to.as_mut_ptr(), to.len()) };
        Ok(())
    }
}

#[cold]
fn foreign() -> Error {
    Error::new(ErrorKind::Device, "restore", "the copy is another device's, or of another length")
}
