//! How long the kernels of a device took: what `torch.profiler` and `jax.profiler` are asked for
//! most.

use super::{KernelTime, find};
use crate::{Device, Error, IntoDevice, Result};
use std::fmt;

/// The calls that a device ran, with their times.
#[derive(Clone, Debug, Default)]
pub struct DeviceProfile {
    /// In the order in which they ran.
    pub calls: Vec<KernelTime>,
}

/// Runs `f` and times every call of a kernel on a device meanwhile, by events of the device. The
/// times are those of the kernels; a program that the device runs as one graph is run call by call
/// instead. The host, whose kernels run in the calls themselves, has no such profile.
///
/// ```
/// use pullback::{Device, Tensor, profile_device};
/// let device = Device::Cuda(0);
/// if device.is_available() {
///     let x = Tensor::randn([1024, 1024]).to(device);
///     let (y, profile) = profile_device(device, || x.matmul(&x))?;
///     assert_eq!(profile.calls[0].kernel, "dot");
///     println!("{profile}");
/// }
/// # assert!(profile_device("cpu", || ()).is_err());
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the device is not there, has failed, or does not time its kernels.
#[doc(alias = "torch.profiler")]
pub fn profile_device<R>(
    device: impl IntoDevice,
    f: impl FnOnce() -> R,
) -> Result<(R, DeviceProfile)> {
    let device = device.into_device()?;
    if device == Device::Cpu {
        let message = "the CPU runs its kernels in the calls themselves, and does not time them";
        return Err(Error::argument("profile_device", message)
            .hint("`std::time::Instant` before and after a call measures it"));
    }
    let backend = &find(device)?.backend;
    backend.start_profile()?;
    let made = f();
    Ok((made, DeviceProfile { calls: backend.end_profile()? }))
}

impl DeviceProfile {
    /// Milliseconds of all calls together.
    ///
    /// ```
    /// use pullback::{DeviceProfile, KernelTime};
    /// let call = |milliseconds| KernelTime { milliseconds, ..KernelTime::default() };
    /// let profile = DeviceProfile { calls: vec![call(0.25), call(0.5)] };
    /// assert_eq!(profile.milliseconds(), 0.75);
    /// ```
    pub fn milliseconds(&self) -> f64 {
        self.calls.iter().map(|call| call.milliseconds).sum()
    }
}

/// A line for each kernel and each shape, those that took longest first: how often it was called,
/// milliseconds in all, the rate at which its operands and results could have been moved, and that
/// of a product's arithmetic.
impl fmt::Display for DeviceProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<(usize, KernelTime)> = Vec::new();
        for call in &self.calls {
            let same = |row: &&mut (usize, KernelTime)| {
                row.1.kernel == call.kernel && row.1.operands == call.operands
            };
            match rows.iter_mut().find(same) {
                None => rows.push((1, call.clone())),
                Some((count, all)) => {
                    *count += 1;
                    all.milliseconds += call.milliseconds;
                    all.bytes += call.bytes;
                    all.operations += call.operations;
                }
            }
        }
        rows.sort_by(|a, b| b.1.milliseconds.total_cmp(&a.1.milliseconds));
        writeln!(f, "{:>5} {:>9} {:>7} {:>7}  kernel", "calls", "ms", "GB/s", "TFLOP/s")?;
        for (count, row) in &rows {
            let rate = |amount: usize, unit: f64| match row.milliseconds > 0.0 && amount > 0 {
                true => format!("{:.0}", amount as f64 / row.milliseconds / unit),
                false => String::new(),
            };
            let (bytes, operations) = (rate(row.bytes, 1e6), rate(row.operations, 1e9));
            let (ms, kernel, operands) = (row.milliseconds, &row.kernel, &row.operands);
            write!(f, "{count:>5} {ms:>9.4} {bytes:>7} {operations:>7}  {kernel} {operands}")?;
            match row.at {
                Some(at) => writeln!(f, "  at {at}")?,
                None => writeln!(f)?,
            }
        }
        write!(f, "{:>5} {:>9.4} in all", self.calls.len(), self.milliseconds())
    }
}
