//! What users ask of a device as a whole: wait, count its memory, give back what is cached.

use super::attach::{self, find};
use super::{instruction_set, stats, threads};
use crate::{Device, IntoDevice, PoolStats, Result};

/// Waits for all work on a device, and returns the error of an operation that has failed there
/// since the last wait. On the host nothing is left to wait for when an operation returns.
///
/// ```
/// use pullback::{Tensor, default_device, synchronize};
/// let x = Tensor::ones([64, 64]);
/// let start = std::time::Instant::now();
/// let y = x.matmul(&x);
/// synchronize(y.device())?; // the time of the product, and not of putting it into a queue
/// println!("{:?}", start.elapsed());
/// # synchronize("cpu")?;
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// The first operation that failed, with the line of its call; or if the device is not there.
#[doc(alias = "torch.cuda.synchronize")]
#[doc(alias = "block_until_ready")]
pub fn synchronize(device: impl IntoDevice) -> Result<()> {
    match device.into_device()? {
        Device::Cpu => Ok(()),
        other => find(other)?.backend.synchronize(),
    }
}

/// What the memory pool of a device holds and has done. [`memory_stats`](crate::memory_stats) is
/// that of the CPU.
///
/// ```
/// use pullback::{Tensor, memory_stats_of};
/// let x = Tensor::zeros([1000]) + 1.0;
/// assert!(memory_stats_of(x.device())?.live_bytes >= 4000);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the device is not there.
#[doc(alias = "torch.cuda.memory_allocated")]
#[doc(alias = "max_memory_allocated")]
#[doc(alias = "memory_reserved")]
pub fn memory_stats_of(device: impl IntoDevice) -> Result<PoolStats> {
    match device.into_device()? {
        Device::Cpu => Ok(stats()),
        other => Ok(find(other)?.backend.statistics()),
    }
}

/// Makes [`PoolStats::peak_bytes`] of a device the bytes that are in use now.
/// [`reset_peak`](crate::reset_peak) is that of the CPU.
///
/// ```
/// use pullback::{Tensor, memory_stats_of, reset_peak_of};
/// let x = Tensor::zeros([1000]) + 1.0;
/// reset_peak_of(x.device())?;
/// let y = &x * 2.0;
/// let stats = memory_stats_of(x.device())?;
/// assert!(stats.peak_bytes >= 8000);
/// # drop(y);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the device is not there.
#[doc(alias = "reset_peak_memory_stats")]
pub fn reset_peak_of(device: impl IntoDevice) -> Result<()> {
    match device.into_device()? {
        Device::Cpu => pullback_cpu::buffer::reset_peak(),
        other => find(other)?.backend.reset_peak(),
    }
    Ok(())
}

/// Returns cached memory to the system: that of the host and of every other device, with the
/// working memory of compiled functions that do not run at the moment.
///
/// ```
/// use pullback::{Tensor, memory_stats, trim_memory};
/// drop(Tensor::zeros([1 << 16]) + 1.0);
/// let cached = memory_stats().cached_bytes; // kept for the next tensor of that size
/// trim_memory();
/// assert!(memory_stats().cached_bytes < cached);
/// ```
#[doc(alias = "empty_cache")]
pub fn trim() {
    pullback_cpu::buffer::trim();
    attach::trim();
}

/// A line for each device and, if the NVIDIA driver is there, for each library of CUDA: the file
/// that was opened, or where it was looked for.
///
/// ```
/// let lines = pullback::backend::device_report();
/// assert!(lines[0].starts_with("cpu: "));
/// ```
pub fn device_report() -> Vec<String> {
    let set = instruction_set().unwrap_or_else(|error| error.to_string());
    let mut lines = vec![format!("cpu: {} threads, {set}", threads())];
    lines.extend(pullback_cuda::report());
    lines
}

/// Bytes in use on a device.
pub(crate) fn live_bytes_of(device: Device) -> u64 {
    match device {
        Device::Cpu => pullback_cpu::buffer::live_bytes(),
        other => find(other).map_or(0, |on| on.holders.live()),
    }
}

/// Bytes in use on each device.
pub(crate) fn live_by_device() -> Vec<(Device, u64)> {
    let others = attach::attached().map(|on| (on.device, on.holders.live()));
    std::iter::once((Device::Cpu, pullback_cpu::buffer::live_bytes())).chain(others).collect()
}

/// Runs `f`, and measures by how much the bytes in use on a device rise meanwhile, with working
/// memory of programs that it had before, if they take so much of it. `None` while another
/// measurement runs.
pub(crate) fn rise_on<R>(device: Device, arena: usize, f: impl FnOnce() -> R) -> (R, Option<u64>) {
    match (device, find(device)) {
        (Device::Cpu, _) | (_, Err(_)) => pullback_cpu::buffer::rise(f),
        (_, Ok(on)) => {
            let idle = on.idle_arena().min(arena) as u64;
            let (made, rise) = on.holders.rise(f);
            (made, Some(rise + idle))
        }
    }
}

/// Measures the peak of every device but the host, one measurement at a time.
pub(crate) struct DevicePeaks(Vec<(Device, u64)>);

impl DevicePeaks {
    pub fn start() -> DevicePeaks {
        DevicePeaks(attach::attached().map(|on| (on.device, on.holders.mark())).collect())
    }

    /// Of each device, the bytes in use at the start, and the most since. A device that was opened
    /// meanwhile had none.
    pub fn end(&self) -> Vec<(Device, u64, u64)> {
        let before = |device| self.0.iter().find(|known| known.0 == device).map_or(0, |k| k.1);
        let peak = |on: &std::sync::Arc<attach::AttachedDevice>| {
            (on.device, before(on.device), on.holders.peak())
        };
        attach::attached().map(peak).collect()
    }
}
