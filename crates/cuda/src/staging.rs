//! Arguments and results of a program at fixed addresses, so that its graph serves every call.
//!
//! A graph refers to the addresses for which it was captured. A small argument or result that comes
//! at another address than in the call before (the next batch of a data set, a loss that the caller
//! keeps) is copied from or to memory of the program's own from then on: about a microsecond.
//! Large ones are not; a graph is kept for each of their addresses, which repeat.

use crate::gpu::Gpu;
use pullback_cuda_sys::DevicePtr;
use pullback_ir::Result;
use std::sync::Arc;

/// Bytes up to which a copy costs less than what a graph saves.
const SMALL: usize = 4 << 20;

/// The arguments or the results of a program.
pub(crate) struct Staging {
    gpu: Arc<Gpu>,
    slots: Vec<StagingSlot>,
}

struct StagingSlot {
    /// Bytes, if it may be copied.
    bytes: Option<usize>,
    /// Where it was in the call before; zero before the first.
    last: DevicePtr,
    /// Where the program sees it, once it has moved.
    fixed: Option<DevicePtr>,
}

impl Staging {
    /// For values of so many bytes each; those without bytes stay where they are.
    pub fn new(gpu: &Arc<Gpu>, bytes: impl Iterator<Item = Option<usize>>) -> Staging {
        let small = |bytes: Option<usize>| bytes.filter(|n| (1..=SMALL).contains(n));
        let slot = |bytes| StagingSlot { bytes: small(bytes), last: 0, fixed: None };
        Staging { gpu: gpu.clone(), slots: bytes.map(slot).collect() }
    }

    /// Where the program sees what is at these addresses. `copied` is called with the number of
    /// each value that is elsewhere, and its fixed address.
    fn place(
        &mut self,
        at: &mut [DevicePtr],
        mut copied: impl FnMut(&Gpu, DevicePtr, DevicePtr, usize) -> Result<()>,
    ) -> Result<()> {
        for (slot, at) in self.slots.iter_mut().zip(at) {
            let Some(bytes) = slot.bytes else { continue };
            let moved = slot.last != 0 && slot.last != *at;
            slot.last = *at;
            if moved && slot.fixed.is_none() {
                slot.fixed = Some(self.gpu.alloc(bytes)?);
            }
            if let Some(fixed) = slot.fixed {
                copied(&self.gpu, *at, fixed, bytes)?;
                *at = fixed;
            }
        }
        Ok(())
    }

    /// Copies arguments that have moved to where the program sees them.
    pub fn arguments(&mut self, at: &mut [DevicePtr]) -> Result<()> {
        self.place(at, |gpu, from, fixed, bytes| gpu.copy(from, fixed, bytes))
    }

    /// Where the program writes its results. [`Staging::deliver`] copies them.
    pub fn results(&mut self, at: &mut [DevicePtr]) -> Result<()> {
        self.place(at, |_, _, _, _| Ok(()))
    }

    /// Copies the results of a call to where they were wanted.
    pub fn deliver(&self) -> Result<()> {
        let moved = |slot: &StagingSlot| Some((slot.fixed?, slot.last, slot.bytes?));
        self.slots
            .iter()
            .filter_map(moved)
            .try_for_each(|(from, to, bytes)| self.gpu.copy(from, to, bytes))
    }

    /// How many are copied.
    pub fn copied(&self) -> usize {
        self.slots.iter().filter(|slot| slot.fixed.is_some()).count()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.slots.iter().filter_map(|slot| slot.fixed).for_each(|at| self.gpu.free(at));
    }
}
