//! The devices other than the host: those that were attached, and GPUs, opened at first use.

use super::holders::{Asked, Holders};
use crate::{Device, Error, Result, device};
use pullback_ir::pass::plan::Planned;
use pullback_ir::{DeviceBackend, KernelCode, MemoryHandle, Program, pass};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};

/// An attached device, with the working memory of its programs.
///
/// Programs run one after the other on the stream of the device, so they share one arena, of the
/// size of the largest. Its address changes when it grows, and after `trim`. Programs that two
/// threads enqueue at the same time have one each.
pub(crate) struct AttachedDevice {
    pub device: Device,
    pub backend: Box<dyn DeviceBackend>,
    pub holders: Holders,
    arena: Mutex<Option<DeviceBlock>>,
}

/// How many devices there may be.
const MAX_DEVICES: usize = 64;

/// `cuda:n` at place `n`. Filled once, so that looking one up takes no lock.
static ATTACHED: [OnceLock<Arc<AttachedDevice>>; MAX_DEVICES] =
    [const { OnceLock::new() }; MAX_DEVICES];

pub(super) fn attached() -> impl Iterator<Item = &'static Arc<AttachedDevice>> {
    ATTACHED.iter().filter_map(OnceLock::get)
}

/// The place of a device that is not the host.
fn place(device: Device) -> Option<&'static OnceLock<Arc<AttachedDevice>>> {
    match device {
        Device::Cpu => None,
        Device::Cuda(n) => ATTACHED.get(n as usize),
    }
}

/// Registers a device, for the lifetime of the process.
///
/// # Errors
/// If it is registered already, is the host, or has a number of 64 or more.
pub fn attach(device: Device, backend: Box<dyn DeviceBackend>) -> Result<()> {
    let refused = |why: &str| Err(Error::argument("attach", format!("{device} {why}")));
    if device == Device::Cpu {
        return refused("is attached already");
    }
    let Some(place) = place(device) else {
        return refused("cannot be attached: device numbers must be below 64");
    };
    match place.set(AttachedDevice::new(device, backend)) {
        Ok(()) => {
            device.register();
            Ok(())
        }
        Err(_) => refused("is attached already"),
    }
}

/// Returns cached memory of all devices but the host.
pub(super) fn trim() {
    attached().for_each(|on| on.release());
}

/// The backend of a device that is not the host. A GPU is opened at the first call.
pub(crate) fn find(device: Device) -> Result<&'static Arc<AttachedDevice>> {
    match place(device).and_then(OnceLock::get) {
        Some(found) => Ok(found),
        None => open(device),
    }
}

#[cold]
fn open(device: Device) -> Result<&'static Arc<AttachedDevice>> {
    let (Device::Cuda(n), Some(place)) = (device, place(device)) else {
        return Err(device::missing("device", device));
    };
    static OPENING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = place.get() {
        return Ok(found);
    }
    let backend =
        pullback_cuda::open(n).map_err(|why| device::missing("device", device).detail(why))?;
    device.register();
    Ok(place.get_or_init(|| AttachedDevice::new(device, backend)))
}

/// Memory of a device, given back when it is dropped.
pub(crate) struct DeviceBlock {
    pub on: Arc<AttachedDevice>,
    pub handle: MemoryHandle,
    pub bytes: usize,
    /// Its place among the holders of the device's memory.
    slot: usize,
    /// Copies from or to it may be in flight on a copy stream.
    copying: AtomicBool,
}

impl DeviceBlock {
    /// # Errors
    /// If there is no memory left, with the lines that hold it.
    pub fn alloc(on: &Arc<AttachedDevice>, bytes: usize, by: Asked) -> Result<DeviceBlock> {
        let handle = on.with_memory(by, true, || on.backend.alloc(bytes))?;
        let slot = on.holders.enter(bytes, by);
        Ok(DeviceBlock { on: on.clone(), handle, bytes, slot, copying: AtomicBool::new(false) })
    }

    /// Notes that a copy on a copy stream has begun.
    pub fn note_copy(&self) {
        self.copying.store(true, Ordering::Release);
    }

    /// What is queued from now on comes after the copies that have begun.
    ///
    /// # Errors
    /// If the device does not take it.
    #[inline]
    pub fn wait_for_copies(&self) -> Result<()> {
        match self.copying.load(Ordering::Acquire) && self.copying.swap(false, Ordering::AcqRel) {
            true => self.on.backend.wait_for_copies(self.handle),
            false => Ok(()),
        }
    }
}

impl Drop for DeviceBlock {
    fn drop(&mut self) {
        self.on.holders.leave(self.slot);
        self.on.backend.free(self.handle);
    }
}

impl AttachedDevice {
    fn new(device: Device, backend: Box<dyn DeviceBackend>) -> Arc<AttachedDevice> {
        let (holders, arena) = (Holders::default(), Mutex::new(None));
        Arc::new(AttachedDevice { device, backend, holders, arena })
    }

    /// Gives back what is only cached: the working memory of programs, unless one is being given to
    /// the device now, and what the device caches itself.
    pub fn release(&self) {
        let idle = match self.arena.try_lock() {
            Ok(mut arena) => arena.take(),
            Err(TryLockError::Poisoned(arena)) => arena.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        };
        drop(idle);
        self.backend.trim();
    }

    /// Bytes of working memory that no program uses now.
    pub fn idle_arena(&self) -> usize {
        let arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        arena.as_ref().map_or(0, |block| block.bytes)
    }

    /// Runs `f` on an arena of at least so many bytes. Nothing is locked meanwhile: a custom op
    /// that runs on the host may run other programs of the device, which then have an arena of
    /// their own.
    pub fn with_arena<R>(
        self: &Arc<AttachedDevice>,
        bytes: usize,
        f: impl FnOnce(MemoryHandle) -> Result<R>,
    ) -> Result<R> {
        let arena = || self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        let held = arena().take();
        let block = match held {
            Some(block) if block.bytes >= bytes => block,
            outgrown => {
                drop(outgrown);
                DeviceBlock::alloc(self, bytes, ARENA)?
            }
        };
        let made = f(block.handle);
        let mut kept = arena();
        if kept.as_ref().is_none_or(|other| other.bytes < block.bytes) {
            *kept = Some(block);
        }
        made
    }
}

/// The working memory of compiled functions.
pub(crate) const ARENA: Asked = Asked { op: "jit", at: None };

/// Why a GPU is not there.
pub(crate) fn why_missing(number: u16) -> Option<String> {
    pullback_cuda::describe(number).err()
}

/// The description of a device for passes; of several, that of the CPU. A GPU need not be there.
pub(crate) fn target(device: Option<Device>) -> pass::Target {
    match device {
        None | Some(Device::Cpu) => pullback_cpu::TARGET,
        Some(other) => find(other).map_or(pullback_cuda::TARGET, |on| on.backend.target()),
    }
}

/// The description of a device for passes that may keep values on the host.
pub(crate) fn target_within_budget(device: Option<Device>) -> pass::Target {
    let link = |device: Device| find(device).ok()?.backend.host_link();
    let host = device.filter(|&device| device != Device::Cpu).and_then(link);
    pass::Target { host, ..target(device) }
}

/// The kernels of a program on a GPU, which need not be there.
pub(crate) fn planned_kernels(program: &Program, device: Device) -> Result<Vec<KernelCode>> {
    /// Of the chip for which code is generated where there is none.
    const CAPABILITY: u32 = 90;
    let of = match device {
        Device::Cuda(n) => pullback_cuda::describe(n).map_or(CAPABILITY, |found| found.capability),
        Device::Cpu => CAPABILITY,
    };
    pullback_cuda::kernels_of(&Planned::new(program, target(Some(device)))?, of)
}
