//! Pinned memory of the host, which the device reads and writes by itself: cached by size, as the
//! system takes half a millisecond for a megabyte of it.

use crate::gpu::{Gpu, LibraryHandle, OUT_OF_MEMORY, is_lost};
use pullback_cuda_sys::{Driver, Ptr};
use pullback_ir::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A point in the work of a stream.
pub(crate) struct Event {
    handle: LibraryHandle,
    driver: &'static Driver,
}

impl Event {
    /// One that is past.
    pub fn new(gpu: &Gpu) -> Result<Event> {
        let mut handle = null_mut();
        // SAFETY: writes one handle. Without times, which would make it slower.
        gpu.ok("event", unsafe { (gpu.driver.cuEventCreate)(&mut handle, 2) })?;
        Ok(Event { handle: LibraryHandle(handle), driver: gpu.driver })
    }

    /// After what is in a stream now.
    pub fn record(gpu: &Gpu, stream: LibraryHandle) -> Result<Arc<Event>> {
        let event = Event::new(gpu)?;
        event.record_again(gpu, stream)?;
        Ok(Arc::new(event))
    }

    /// From now on, after what is in a stream now. What waits for it already waits for what it was.
    pub fn record_again(&self, gpu: &Gpu, stream: LibraryHandle) -> Result<()> {
        // SAFETY: both handles are those of this context.
        gpu.ok("event", unsafe { (self.driver.cuEventRecord)(self.handle.0, stream.0) })
    }

    /// What is put into a stream from now on comes after it.
    pub fn before(&self, gpu: &Gpu, stream: LibraryHandle) -> Result<()> {
        // SAFETY: both handles are those of this context.
        let code = unsafe { (self.driver.cuStreamWaitEvent)(stream.0, self.handle.0, 0) };
        gpu.ok("event", code)
    }

    /// Whether it is past; also if the context is lost, as then nothing is in flight.
    pub fn is_past(&self) -> bool {
        // SAFETY: the handle lives as long as this.
        let code = unsafe { (self.driver.cuEventQuery)(self.handle.0) };
        code == 0 || is_lost(code)
    }

    /// Waits for it.
    pub fn wait(&self, gpu: &Gpu) -> Result<()> {
        // SAFETY: the handle lives as long as this.
        gpu.ok("event", unsafe { (self.driver.cuEventSynchronize)(self.handle.0) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nothing else has the handle. The driver keeps what is in flight.
        unsafe { (self.driver.cuEventDestroy_v2)(self.handle.0) };
    }
}

/// The pinned memory of a device.
pub(crate) struct Pinned {
    driver: &'static Driver,
    idle: Mutex<IdleBuffers>,
}

/// A buffer, and the last copy that uses it.
type IdleBuffer = (LibraryHandle, Option<Arc<Event>>);

#[derive(Default)]
struct IdleBuffers {
    /// Free buffers by size.
    free: BTreeMap<usize, Vec<IdleBuffer>>,
    /// Bytes of all buffers, free or not.
    bytes: usize,
}

/// Pinned memory, given back to its pool when it is dropped.
pub(crate) struct PinnedBuffer {
    at: LibraryHandle,
    bytes: usize,
    pool: Arc<Pinned>,
    /// The last copy from or to it.
    last: Mutex<Option<Arc<Event>>>,
}

/// Sizes in steps of an eighth, and not below a page.
fn size_class(bytes: usize) -> Option<usize> {
    let step = bytes.checked_next_power_of_two()? / 8;
    bytes.checked_next_multiple_of(step.max(4096))
}

impl Pinned {
    pub fn new(driver: &'static Driver) -> Pinned {
        Pinned { driver, idle: Mutex::default() }
    }

    fn idle(&self) -> MutexGuard<'_, IdleBuffers> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.idle().bytes as u64
    }

    /// A buffer of at least so many bytes, which a copy may still use.
    pub fn take(self: &Arc<Pinned>, gpu: &Gpu, bytes: usize) -> Result<PinnedBuffer> {
        let size = size_class(bytes.max(1)).ok_or_else(|| none_left(gpu, bytes, 0))?;
        let mut idle = self.idle();
        let free = idle.free.entry(size).or_default();
        let done = |(_, last): &IdleBuffer| last.as_ref().is_none_or(|event| event.is_past());
        // Rather one that a copy still uses than another one: a host that is ahead of the device
        // would pin more and more.
        let (at, last) = match free.iter().position(done) {
            Some(i) => (free.remove(i).0, None),
            None if !free.is_empty() => free.remove(0),
            None => (self.alloc(gpu, &mut idle, size, bytes)?, None),
        };
        Ok(PinnedBuffer { at, bytes: size, pool: self.clone(), last: Mutex::new(last) })
    }

    fn alloc(
        &self,
        gpu: &Gpu,
        idle: &mut IdleBuffers,
        size: usize,
        asked: usize,
    ) -> Result<LibraryHandle> {
        let mut at: Ptr = null_mut();
        // SAFETY: writes one address. Portable: any context may copy from and to it.
        let mut get = || unsafe { (self.driver.cuMemHostAlloc)(&mut at, size, 1) };
        match get() {
            0 => {}
            OUT_OF_MEMORY => {
                self.give_back(idle);
                match get() {
                    0 => {}
                    OUT_OF_MEMORY => return Err(none_left(gpu, asked, idle.bytes)),
                    code => return Err(gpu.failed("pin", code)),
                }
            }
            code => return Err(gpu.failed("pin", code)),
        }
        idle.bytes += size;
        Ok(LibraryHandle(at))
    }

    /// Gives free buffers back to the system.
    pub fn trim(&self) {
        self.give_back(&mut self.idle());
    }

    fn give_back(&self, idle: &mut IdleBuffers) {
        for (size, buffers) in std::mem::take(&mut idle.free) {
            for (at, _) in buffers {
                idle.bytes -= size;
                // SAFETY: nothing has the address any more; the driver waits for copies.
                unsafe { (self.driver.cuMemFreeHost)(at.0) };
            }
        }
    }
}

#[cold]
fn none_left(gpu: &Gpu, bytes: usize, held: usize) -> Error {
    let message = format!(
        "the host has no {bytes} bytes of pinned memory for copies of cuda:{} beside the {held} \
         that it has already",
        gpu.number,
    );
    Error::new(ErrorKind::Memory, "pin", message)
}

impl PinnedBuffer {
    pub fn at(&self) -> Ptr {
        self.at.0
    }

    /// Notes a copy, which is the last.
    pub fn used_until(&self, event: &Arc<Event>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(event.clone());
    }

    /// What is put into a stream from now on comes after the last copy.
    pub fn before(&self, gpu: &Gpu, stream: LibraryHandle) -> Result<()> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.map_or(Ok(()), |event| event.before(gpu, stream))
    }

    /// Waits for the last copy.
    pub fn wait(&self, gpu: &Gpu) -> Result<()> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.map_or(Ok(()), |event| event.wait(gpu))
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.pool.idle().free.entry(self.bytes).or_default().push((self.at, last));
    }
}
