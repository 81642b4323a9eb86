//! What kernels reject: an index that is out of range.
//!
//! A kernel that finds one writes it to a slot in memory of the host, with the number of its call,
//! and goes on. The next wait reads the slots, and the call becomes an error with its op and line.
//! Each call has a slot of its own, unless thousands of others come before a wait, so the faults of
//! two threads are two errors. A thread that waits gets an error of its own calls first, and else
//! the oldest: no error is dropped because the thread that caused it does not wait.
//!
//! A kernel also sets a word in memory of the device. While it is set, updates of parameters return
//! without a change: what they would be computed from is of no use.

use crate::gpu::{Gpu, LibraryHandle};
use pullback_cuda_sys::{DevicePtr, Driver, error_text};
use pullback_ir::{Error, ErrorKind, Line, Result, Spec};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

/// How many slots there are.
const SLOTS: usize = 4096;
/// How many calls are remembered: an older one has run long ago.
const CALLS: usize = 1 << 16;

pub(crate) struct Faults {
    /// The slots, in pinned host memory, and one word after them: whether to look at them.
    host: LibraryHandle,
    /// The same memory as kernels see it.
    device: DevicePtr,
    /// The word that updates read.
    pub stop: DevicePtr,
    next: AtomicU32,
    known: Mutex<FaultState>,
}

#[derive(Default)]
struct FaultState {
    /// The newest calls that may fail, in order.
    calls: VecDeque<FallibleCall>,
    /// Those of graphs, which may run at any later time.
    kept: Vec<FallibleCall>,
    /// Errors that were not returned yet.
    errors: Vec<(Option<ThreadId>, Error)>,
}

/// A call whose kernel may reject a value.
struct FallibleCall {
    number: u32,
    op: String,
    operands: Vec<Spec>,
    at: Option<Line>,
    thread: ThreadId,
}

/// As `Fault` in `kernels/threads.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Fault {
    call: u32,
    ready: u32,
    bound: i64,
    high: u64,
    low: u64,
    stop: DevicePtr,
    any: DevicePtr,
}

impl Fault {
    /// What was wrong, as the CPU says it.
    fn message(&self) -> String {
        let index = ((self.high << 32) | (self.low & 0xffff_ffff)) as i64;
        let (position, bound) = (self.high >> 32, self.bound);
        format!(
            "index {index} (element {position} of the indices) is out of range for an axis of \
             length {bound}"
        )
    }
}

impl Faults {
    /// In the current context.
    pub fn new(driver: &Driver) -> std::result::Result<Faults, String> {
        let ok = |code: c_int| if code == 0 { Ok(()) } else { Err(error_text(driver, code)) };
        let (mut host, mut device, mut stop) = (null_mut(), 0, 0);
        let bytes = SLOTS * size_of::<Fault>();
        // SAFETY: each call writes one address.
        unsafe {
            ok((driver.cuMemAlloc_v2)(&mut stop, 4))?;
            ok((driver.cuMemsetD8Async)(stop, 0, 4, null_mut()))?;
            ok((driver.cuStreamSynchronize)(null_mut()))?;
            // Portable, and mapped into the memory of the device.
            ok((driver.cuMemHostAlloc)(&mut host, bytes + 8, 3))?;
            ok((driver.cuMemHostGetDevicePointer_v2)(&mut device, host, 0))?;
        }
        let any = device + bytes as u64;
        for slot in 0..SLOTS {
            let (high, low) = (u64::MAX, u64::MAX);
            let fault = Fault { call: 0, ready: 0, bound: 0, high, low, stop, any };
            // SAFETY: inside the memory above, which no kernel knows yet.
            unsafe { host.cast::<Fault>().add(slot).write(fault) };
        }
        // SAFETY: the eight bytes after the slots.
        unsafe { host.cast::<u8>().add(bytes).cast::<u64>().write(0) };
        let (next, known) = (AtomicU32::new(1), Mutex::default());
        Ok(Faults { host: LibraryHandle(host), device, stop, next, known })
    }

    /// Of no device.
    #[cfg(test)]
    pub fn fake() -> Faults {
        let bytes = vec![0u64; (SLOTS * size_of::<Fault>() + 8) / 8].leak();
        let (next, known) = (AtomicU32::new(1), Mutex::default());
        Faults { host: LibraryHandle(bytes.as_mut_ptr().cast()), device: 0, stop: 256, next, known }
    }

    /// Registers a call: its number, and its slot.
    pub fn register(&self, op: &str, specs: &[Spec], at: Option<Line>) -> (u64, DevicePtr) {
        let number = self.next.fetch_add(1, Ordering::Relaxed).max(1);
        let (op, operands, thread) = (op.to_string(), specs.to_vec(), std::thread::current().id());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.calls.len() >= CALLS {
            known.calls.pop_front();
        }
        known.calls.push_back(FallibleCall { number, op, operands, at, thread });
        let slot = number as usize % SLOTS * size_of::<Fault>();
        (u64::from(number), self.device + slot as u64)
    }

    /// The call that was just registered is a part of a graph.
    pub fn keep(&self, number: u32) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = known.calls.iter().rposition(|call| call.number == number)
            && let Some(call) = known.calls.remove(at)
        {
            known.kept.push(call);
        }
    }

    /// Forgets calls of a graph.
    pub fn forget(&self, numbers: &[u32]) {
        if !numbers.is_empty() {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.kept.retain(|call| !numbers.contains(&call.number));
        }
    }

    /// An error of this thread that is not one of the slots.
    pub fn add(&self, error: Error) {
        let thread = std::thread::current().id();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.errors.push((Some(thread), error));
    }

    /// The word that says whether a slot is filled.
    fn word(&self) -> &AtomicU32 {
        // SAFETY: inside the memory, aligned, and it lives as long as the process. Kernels store to
        // it whole.
        unsafe { &*self.host.0.cast::<u8>().add(SLOTS * size_of::<Fault>()).cast::<AtomicU32>() }
    }

    /// Whether something was rejected and is not reported yet.
    pub fn any(&self) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.word().load(Ordering::Acquire) != 0 || !known.errors.is_empty()
    }

    /// The error of what was rejected, after the stream was waited for: one at a time.
    pub fn take(&self, gpu: &Gpu) -> Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Cleared before the slots are read: a kernel sets it after it has filled its slot.
        if self.word().swap(0, Ordering::AcqRel) != 0 {
            self.read(&mut known);
        }
        if known.errors.is_empty() {
            return Ok(());
        }
        let here = Some(std::thread::current().id());
        let own = known.errors.iter().position(|(thread, _)| *thread == here);
        let (_, error) = known.errors.remove(own.unwrap_or(0));
        if known.errors.is_empty() {
            // Not `fill`, which runs ops that wait: one that fails is noted under this lock. If it
            // fails itself, so does every later call.
            let _ = gpu.write_number(self.stop, 0, 4);
        }
        Err(error)
    }

    /// Moves what is in the slots to the errors, oldest call first.
    fn read(&self, known: &mut FaultState) {
        let mut found = Vec::new();
        for slot in 0..SLOTS {
            // SAFETY: inside the memory, which lives as long as the process.
            let fault = unsafe { self.host.0.cast::<Fault>().add(slot) };
            // SAFETY: as above; what is ready is not written by kernels.
            let content = unsafe { fault.read_volatile() };
            if content.ready == 0 {
                continue;
            }
            found.push(content);
            // SAFETY: as above. A kernel of a later call writes once `call` is zero, so that is the
            // last.
            unsafe {
                (&raw mut (*fault).ready).write_volatile(0);
                (&raw mut (*fault).high).write_volatile(u64::MAX);
                (&raw mut (*fault).low).write_volatile(u64::MAX);
                std::sync::atomic::fence(Ordering::SeqCst);
                (&raw mut (*fault).call).write_volatile(0);
            }
        }
        let age = |number: u32| self.next.load(Ordering::Relaxed).wrapping_sub(number);
        found.sort_by_key(|fault| std::cmp::Reverse(age(fault.call)));
        for fault in found {
            let message = fault.message();
            let is_it = |known: &&FallibleCall| known.number == fault.call;
            let Some(call) = known.calls.iter().rev().chain(&known.kept).find(is_it) else {
                let error = Error::new(ErrorKind::Argument, "device", message);
                known.errors.push((None, error));
                continue;
            };
            let error = Error::new(ErrorKind::Argument, call.op.clone(), message);
            let error = error.on(&call.operands);
            let error = match call.at {
                Some(at) => error.at(at),
                None => error,
            };
            known.errors.push((Some(call.thread), error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Fault;

    #[test]
    fn a_fault_says_what_the_cpu_says() {
        for index in [-1i64, 7, i64::MIN, i64::MAX] {
            let [high, low] = [index as u64 >> 32, index as u64 & 0xffff_ffff];
            let (high, low) = ((3 << 32) | high, (3 << 32) | low);
            let fault = Fault { call: 1, ready: 1, bound: 5, high, low, stop: 0, any: 0 };
            let said = format!(
                "index {index} (element 3 of the indices) is out of range for an axis of length 5"
            );
            assert_eq!(fault.message(), said);
        }
    }
}
