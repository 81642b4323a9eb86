//! Times of kernels, by events on the stream: what a profile of a device consists of.
//!
//! A call of the engine, or a step of a program, is one row, with all kernels that it launches and
//! the copies before them. While profiling is off, a call costs one load of a flag.

use crate::dry_run::in_dry_run;
use crate::gpu::{Gpu, LibraryHandle};
use crate::loops::StridedOperand;
use pullback_ir::{KernelTime, Line, Result};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The calls since a profile was started.
#[derive(Default)]
pub(crate) struct Profile {
    on: AtomicBool,
    calls: Mutex<Vec<TimedCall>>,
}

/// A call, between two events.
struct TimedCall {
    call: KernelTime,
    events: [LibraryHandle; 2],
}

/// What a call does, for a profile.
pub(crate) struct CallDescription<'a> {
    pub kernel: &'a str,
    pub inputs: &'a [StridedOperand],
    pub outputs: &'a [StridedOperand],
    pub at: Option<Line>,
}

impl CallDescription<'_> {
    /// The row, without a time.
    pub fn call(&self) -> KernelTime {
        let all = || self.inputs.iter().chain(self.outputs);
        let named = |all: &[StridedOperand]| {
            let shape = |x: &StridedOperand| {
                let axes: Vec<String> = x.shape.iter().map(usize::to_string).collect();
                format!("{}[{}]", x.dtype, axes.join(","))
            };
            all.iter().map(shape).collect::<Vec<_>>().join(" ")
        };
        let operations = match (self.kernel, self.inputs) {
            (name, [a, ..]) if name.starts_with("dot") => {
                let inner = a.shape.last().copied().unwrap_or(1);
                2 * inner * self.outputs.iter().map(StridedOperand::len).sum::<usize>()
            }
            _ => 0,
        };
        KernelTime {
            kernel: self.kernel.to_string(),
            operands: format!("{} -> {}", named(self.inputs), named(self.outputs)),
            milliseconds: 0.0,
            bytes: all().map(StridedOperand::distinct_bytes).sum(),
            operations,
            at: self.at,
        }
    }
}

impl Profile {
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }
}

impl Gpu {
    /// Runs something, with a row in the profile if there is one.
    #[inline]
    pub fn timed(
        &self,
        what: &CallDescription<'_>,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        match self.profile.is_on() && !in_dry_run() {
            false => run(),
            true => self.with_events(what, run),
        }
    }

    #[cold]
    fn with_events(
        &self,
        what: &CallDescription<'_>,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // What waits is not a part of it.
        self.enter();
        let start = self.event()?;
        let done = run();
        let end = self.event()?;
        let timed = TimedCall { call: what.call(), events: [start, end] };
        self.profile.calls.lock().unwrap_or_else(PoisonError::into_inner).push(timed);
        done
    }

    fn event(&self) -> Result<LibraryHandle> {
        let mut event = null_mut();
        // SAFETY: writes one handle; without flags an event keeps its time.
        self.ok("profile", unsafe { (self.driver.cuEventCreate)(&mut event, 0) })?;
        // SAFETY: the event was just made in this context, and the stream lives as long as it.
        self.ok("profile", unsafe { (self.driver.cuEventRecord)(event, self.stream.0) })?;
        Ok(LibraryHandle(event))
    }

    /// Times calls from now on.
    pub fn start_profile(&self) -> Result<()> {
        self.end_profile()?;
        self.profile.on.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The calls since the start, in order, once all have run.
    pub fn end_profile(&self) -> Result<Vec<KernelTime>> {
        self.enter();
        self.profile.on.store(false, Ordering::Relaxed);
        let mut calls = self.profile.calls.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the stream lives as long as the process.
        self.ok("profile", unsafe { (self.driver.cuStreamSynchronize)(self.stream.0) })?;
        let time = |TimedCall { mut call, events: [start, end] }: TimedCall| {
            let mut time = 0.0f32;
            // SAFETY: both events were recorded and have passed, and are used for the last time.
            unsafe {
                if (self.driver.cuEventElapsedTime)(&mut time, start.0, end.0) == 0 {
                    call.milliseconds = f64::from(time);
                }
                (self.driver.cuEventDestroy_v2)(start.0);
                (self.driver.cuEventDestroy_v2)(end.0);
            }
            call
        };
        Ok(calls.drain(..).map(time).collect())
    }
}
