//! Devices: which there are, where new tensors are allocated, and how tensors move between them.

use crate::apply::apply;
use crate::{Device, Error, ErrorKind, Op, Result, Tensor, backend, fail, mode};
use pullback_ir::Line;
use std::sync::atomic::{AtomicU32, Ordering};

/// What can be given as a device: a [`Device`], or its name, `"cpu"` or `"cuda:0"`.
pub trait IntoDevice {
    /// The device it names.
    ///
    /// ```
    /// use pullback::{Device, IntoDevice};
    /// assert_eq!("cpu".into_device()?, Device::Cpu);
    /// assert_eq!(Device::Cuda(1).into_device()?, "cuda:1".into_device()?);
    /// assert!("tpu".into_device().is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If no device has that name.
    fn into_device(self) -> Result<Device>;
}

impl IntoDevice for Device {
    fn into_device(self) -> Result<Device> {
        Ok(self)
    }
}

impl IntoDevice for &Device {
    fn into_device(self) -> Result<Device> {
        Ok(*self)
    }
}

impl IntoDevice for &str {
    fn into_device(self) -> Result<Device> {
        self.parse()
    }
}

impl IntoDevice for String {
    fn into_device(self) -> Result<Device> {
        self.parse()
    }
}

impl IntoDevice for &String {
    fn into_device(self) -> Result<Device> {
        self.parse()
    }
}

/// The device it names, if it is available.
pub(crate) fn found(op: &'static str, device: impl IntoDevice) -> Result<Device> {
    let device = device.into_device()?;
    check(op, device)?;
    Ok(device)
}

/// Checks that a device is available.
pub(crate) fn check(op: &str, device: Device) -> Result<()> {
    if device.is_available() {
        return Ok(());
    }
    Err(missing(op, device))
}

/// The error of a device that is not available.
pub(crate) fn missing(op: &str, device: Device) -> Error {
    let names: Vec<String> = Device::available().iter().map(Device::to_string).collect();
    let message = format!("device {device} is not available; available: {}", names.join(", "));
    let error = Error::new(ErrorKind::Device, op.to_string(), message);
    match device {
        Device::Cuda(n) => match backend::why_missing(n) {
            Some(why) => error.detail(why),
            None => error,
        },
        Device::Cpu => error,
    }
}

/// Runs `f` with another device for what is made without an operand: [`Tensor::zeros`], `from`,
/// `arange`, `rand`, [`Key::new`](crate::Key::new), and so the parameters of layers. Otherwise it
/// is that of [`set_default_device`], or the CPU. What is made from a tensor (`zeros_like`,
/// `x + 2.0`, a mask inside a method) is on the device of that tensor.
///
/// ```
/// use pullback::{Device, Tensor, default_device, with_default_device};
/// let x = with_default_device("cpu", || Tensor::zeros([2, 3]));
/// assert_eq!((x.device(), default_device()), (Device::Cpu, Device::Cpu));
/// ```
///
/// # Panics
/// If the device is not available.
#[track_caller]
pub fn with_default_device<R>(device: impl IntoDevice, f: impl FnOnce() -> R) -> R {
    let at = mode::user_line(Line::caller());
    let device = fail::or_raise(found("with_default_device", device).map_err(|e| e.at(at)));
    mode::with(&mode::DEFAULT_DEVICE, Some(device), f)
}

/// Sets the device of what is made without an operand, in every thread of the process that is not
/// inside [`with_default_device`]. At the start it is the CPU.
///
/// ```
/// use pullback::{Device, Tensor, default_device, set_default_device};
/// set_default_device("cpu");
/// assert_eq!(Tensor::zeros([2, 3]).device(), default_device());
/// ```
///
/// # Panics
/// If the device is not available.
#[track_caller]
pub fn set_default_device(device: impl IntoDevice) {
    let at = mode::user_line(Line::caller());
    let device = fail::or_raise(found("set_default_device", device).map_err(|e| e.at(at)));
    let number = match device {
        Device::Cpu => 0,
        Device::Cuda(n) => u32::from(n) + 1,
    };
    PROCESS_DEFAULT.store(number, Ordering::Relaxed);
}

/// The device of [`set_default_device`]: 0 is the CPU, and `n + 1` is `cuda:n`.
static PROCESS_DEFAULT: AtomicU32 = AtomicU32::new(UNSET);
/// The default has not been read yet.
const UNSET: u32 = u32::MAX;

/// The device of what is made without an operand: that of [`with_default_device`], otherwise that
/// of [`set_default_device`], otherwise that of the environment variable `PULLBACK_DEVICE`
/// (`cuda:0`), otherwise the CPU.
///
/// ```
/// # use pullback::{Tensor, default_device};
/// assert_eq!(Tensor::zeros([2]).device(), default_device());
/// ```
///
/// # Panics
/// At the first call, if `PULLBACK_DEVICE` does not name an available device.
#[doc(alias = "get_default_device")]
pub fn default_device() -> Device {
    let of_process = || match PROCESS_DEFAULT.load(Ordering::Relaxed) {
        0 => Device::Cpu,
        UNSET => from_environment(),
        n => Device::Cuda((n - 1) as u16),
    };
    mode::DEFAULT_DEVICE.get().unwrap_or_else(of_process)
}

#[cold]
#[track_caller]
fn from_environment() -> Device {
    let device = match std::env::var("PULLBACK_DEVICE") {
        Ok(name) if !name.is_empty() => fail::or_raise(found("PULLBACK_DEVICE", name)),
        _ => Device::Cpu,
    };
    set_default_device(device);
    device
}

impl Tensor {
    /// The same values on a device, given as a [`Device`] or by its name; the same tensor if it is
    /// there already.
    ///
    /// A view where the tensor is on the device already: the tensor itself.
    /// Derivative: `dy`, on the old device.
    ///
    /// ```
    /// # use pullback::{Device, Tensor, catch};
    /// let x = Tensor::from([1.0, 2.0]);
    /// assert!(x.to("cpu").is_same(&x) && x.to(Device::Cpu).is_same(&x));
    /// let error = catch(|| x.to("gpu")).unwrap_err();
    /// assert!(error.to_string().starts_with("device: `gpu` is not a device"));
    /// ```
    ///
    /// # Panics
    /// If the device is not available.
    #[track_caller]
    #[must_use]
    pub fn to(&self, device: impl IntoDevice) -> Tensor {
        let at = mode::user_line(Line::caller());
        let device = fail::or_raise(device.into_device().map_err(|e| e.on([self.spec()]).at(at)));
        if device == self.device() {
            return self.clone();
        }
        fail::or_raise(check("to", device).map_err(|e| e.on([self.spec()]).at(at)));
        apply(Op::To(device), &[self])
    }

    /// The same values in host memory; the same tensor if they are there already.
    ///
    /// A view where the tensor is on the CPU already: the tensor itself.
    /// Derivative: `dy`, on the old device.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]);
    /// assert!(x.cpu().is_same(&x));
    /// ```
    ///
    /// # Panics
    /// If copying from the other device fails.
    #[track_caller]
    #[must_use]
    pub fn cpu(&self) -> Tensor {
        self.to(Device::Cpu)
    }
}
