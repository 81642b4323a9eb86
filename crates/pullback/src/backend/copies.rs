//! Copies between a device and the host that are not waited for.

use super::attach::{AttachedDevice, DeviceBlock, find};
use super::{Asked, HostCopy, Memory};
use crate::{Device, Result, Spec, Tensor, fail, mode};
use pullback_cpu::Buffer;
use pullback_ir::Line;
use std::sync::Arc;

/// Bytes of a device that are on the host, or on the way there.
pub(crate) struct HostTransfer {
    copy: HostCopy,
    on: Arc<AttachedDevice>,
    /// What they are: dense.
    spec: Spec,
}

/// Starts to copy a dense tensor to the host; `None` if it is there. It may be dropped at once, and
/// a write to it comes after the copy.
pub(crate) fn offload(x: &Tensor) -> Result<Option<HostTransfer>> {
    let (start, spec) = (x.0.layout.offset * x.dtype().size(), x.spec().clone());
    let memory = x.0.storage.read();
    let Memory::Attached(block) = &*memory else { return Ok(None) };
    let copy = block.on.backend.offload(block.handle, start, spec.bytes())?;
    block.note_copy();
    Ok(Some(HostTransfer { copy, on: block.on.clone(), spec }))
}

impl HostTransfer {
    pub fn bytes(&self) -> usize {
        self.copy.bytes()
    }

    /// Starts to copy it back. [`arrive`] comes before the tensor is used.
    pub fn restore(&self, by: Asked) -> Result<Tensor> {
        let block = DeviceBlock::alloc(find(self.spec.device)?, self.bytes(), by)?;
        self.on.backend.restore(&self.copy, block.handle)?;
        block.note_copy();
        Ok(Tensor::dense(self.spec.clone(), block.into()))
    }
}

/// What is queued from now on comes after the copy to this tensor.
pub(crate) fn arrive(x: &Tensor) -> Result<()> {
    x.0.storage.read().wait_for_copies()
}

/// A tensor on its way to the host: see [`Tensor::cpu_later`].
#[must_use = "the tensor is what `wait` gives"]
pub struct CpuCopy(CopyState);

enum CopyState {
    Done(Tensor),
    Started(HostTransfer),
}

impl Tensor {
    /// Starts to copy the values to the host, and does not wait for them: the device copies during
    /// the operations that follow, and [`CpuCopy::wait`] gives the tensor. What is written to this
    /// tensor meanwhile does not change the copy. The result has no history.
    ///
    /// The other way needs no such function: [`Tensor::to`] a device returns when the bytes are in
    /// memory of its own for the copy, and operations that use the result come after it.
    ///
    /// ```
    /// use pullback::Tensor;
    /// let loss = Tensor::from([1.0, 2.0]).sum();
    /// let copy = loss.cpu_later();
    /// let next = &loss * 2.0; // runs while the value is copied
    /// assert_eq!(copy.wait().item::<f64>(), 3.0);
    /// # drop(next);
    /// ```
    ///
    /// # Panics
    /// If there is no memory for the copy.
    #[doc(alias = "non_blocking")]
    #[track_caller]
    pub fn cpu_later(&self) -> CpuCopy {
        let at = mode::user_line(Line::caller());
        let plain = mode::set_recording(false, || self.detach());
        if plain.device() == Device::Cpu {
            return CpuCopy(CopyState::Done(plain.deep_clone()));
        }
        let dense = mode::set_recording(false, || plain.contiguous());
        let started = fail::or_raise(offload(&dense).map_err(|e| e.at(at)));
        CpuCopy(started.map_or(CopyState::Done(plain), CopyState::Started))
    }
}

impl CpuCopy {
    /// Waits for the copy, and not for what was queued after it.
    ///
    /// ```
    /// use pullback::{Device, Tensor};
    /// let y = Tensor::from([1.0, 2.0]).exp().cpu_later().wait();
    /// assert_eq!((y.device(), y.len()), (Device::Cpu, 2));
    /// ```
    ///
    /// # Panics
    /// If an operation has failed on the device since the last wait.
    #[track_caller]
    pub fn wait(self) -> Tensor {
        let at = mode::user_line(Line::caller());
        let located = |e: crate::Error| if e.location().is_some() { e } else { e.at(at) };
        match self.0 {
            CopyState::Done(x) => x,
            CopyState::Started(away) => fail::or_raise(away.collect().map_err(located)),
        }
    }
}

impl HostTransfer {
    fn collect(&self) -> Result<Tensor> {
        let collect = |to: &mut [u8]| self.on.backend.collect(&self.copy, to);
        let buffer = Buffer::filled(self.spec.dtype, self.bytes(), collect)?;
        Ok(Tensor::dense(self.spec.with_device(Device::Cpu), buffer.into()))
    }
}
