//! Collectives: memory of operands and results as bytes for an engine.
//!
//! An eager op, and one inside a program that is not compiled, is a call that returns when its
//! result is complete ([`call`]). A compiled program starts it ([`HostFlight::start`]), computes on
//! and waits for it later; the memory is then used by the group's own thread meanwhile. The plan
//! keeps that memory for operand and result until the wait, and [`WaitGuard`] waits before the
//! memory of a run can go away, however the run ends.

use crate::operand::{Sink, Source};
use crate::{Buffer, pointwise};
use pullback_ir::{
    CollectiveCall, CollectiveOp, Communicator, Fresh, Result, Shape, Spec, Started,
};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Runs a collective with dense operands, and returns when its result is complete.
pub(crate) fn call(op: &CollectiveOp, x: &[Source], out: Sink) -> Result<()> {
    let bytes = ByteRanges::new(x, out);
    // SAFETY: operand and result are dense, overlap nowhere and are not used elsewhere until this
    // returns.
    op.group.run(op.collective.name(), |group, sequence| unsafe { bytes.call(op, group, sequence) })
}

/// A collective of a program between its start and its wait.
#[derive(Default)]
pub(crate) struct HostFlight(Mutex<Option<Started>>);

impl HostFlight {
    fn started(&self) -> MutexGuard<'_, Option<Started>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the collective.
    ///
    /// # Safety
    /// The memory of operand and result is there, and neither the result is used nor the operand
    /// written by anyone else, until [`HostFlight::wait`] or [`WaitGuard`] has waited for this.
    pub(crate) unsafe fn start(
        &self,
        op: &Arc<CollectiveOp>,
        x: &[Source],
        out: Sink,
    ) -> Result<()> {
        let (mut bytes, mut held) = (ByteRanges::new(x, out), None);
        if let Some(x) = x.first().filter(|x| !x.is_dense()) {
            let size = x.len() * x.dtype.size();
            let mut copy = crate::run::allocate(op.collective.name(), size)?;
            pointwise::copy(*x, Sink { ptr: copy.as_mut_ptr(), shape: x.shape, dtype: x.dtype });
            bytes.input.0 = copy.as_ptr();
            held = Some(copy);
        }
        let shared = op.clone();
        let run = move |group: &dyn Communicator, sequence: u64| {
            let _held: Option<Buffer> = held;
            // SAFETY: operand and result are dense; the rest is as the caller promises.
            unsafe { bytes.call(&shared, group, sequence) }
        };
        *self.started() = Some(op.group.start(op.collective.name(), run));
        Ok(())
    }

    /// Waits for the collective.
    pub(crate) fn wait(&self) -> Result<()> {
        let started = self.started().take();
        started.map_or(Ok(()), |started| started.wait())
    }
}

/// Waits, when it is dropped, for all that were started and not waited for. Their results stay:
/// who waits for one later gets its error.
pub(crate) struct WaitGuard<'a>(pub(crate) &'a [Arc<HostFlight>]);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        for flight in self.0 {
            if let Some(started) = &*flight.started() {
                let _ = started.wait();
            }
        }
    }
}

/// The memory of one call.
struct ByteRanges {
    spec: Spec,
    input: (*const u8, usize),
    output: (*mut u8, usize),
}

// SAFETY: dereferenced only by `call`, whose caller promises that the memory is there and that
// nothing else writes it.
unsafe impl Send for ByteRanges {}

impl ByteRanges {
    fn new(x: &[Source], out: Sink) -> ByteRanges {
        let spec = |dtype, shape: &[usize]| Spec::cpu(dtype, Shape::from_slice(shape));
        // A barrier has no operand: what is compared is its empty result.
        let given = x.first().map_or(spec(out.dtype, out.shape), |x| spec(x.dtype, x.shape));
        let input = x.first().map_or((std::ptr::null(), 0), |x| (x.ptr, given.bytes()));
        let output = (out.ptr, spec(out.dtype, out.shape).bytes());
        ByteRanges { spec: given, input, output }
    }

    /// # Safety
    /// The memory is there, the operand is written, the two do not overlap, and nothing else uses
    /// the result, or writes the operand, until this returns.
    unsafe fn call(
        &self,
        op: &CollectiveOp,
        group: &dyn Communicator,
        sequence: u64,
    ) -> Result<()> {
        let input: &[u8] = match self.input.1 {
            0 => &[],
            // SAFETY: as the caller promises.
            n => unsafe { std::slice::from_raw_parts(self.input.0, n) },
        };
        let output: &mut [MaybeUninit<u8>] = match self.output.1 {
            0 => &mut [],
            // SAFETY: as the caller promises; it may hold anything, which is not read.
            n => unsafe {
                std::slice::from_raw_parts_mut(self.output.0.cast::<MaybeUninit<u8>>(), n)
            },
        };
        let mut output = Fresh::new(output);
        let (collective, operand, line) = (&op.collective, &self.spec, op.line);
        let call = CollectiveCall { collective, operand, sequence, line };
        group.run_fresh(&call, input, &mut output)?;
        // Whoever uses the result reads all of it.
        output.check(collective.name())
    }
}
