//! Devices.

use crate::{Error, ErrorKind};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a tensor's elements live, and where the ops on them run. Prints as `cpu` or `cuda:0`, and
/// parses back; `cuda` alone is the first one.
///
/// ```
/// # use pullback_ir::Device;
/// assert_eq!("cuda:1".parse::<Device>().unwrap(), Device::Cuda(1));
/// assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
/// assert_eq!(Device::Cpu.to_string(), "cpu");
/// let error = "gpu".parse::<Device>().unwrap_err();
/// assert!(error.to_string().contains("`gpu` is not a device"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// Host memory.
    #[default]
    Cpu,
    /// The memory of an NVIDIA GPU, by its number.
    Cuda(u16),
}

/// The registered devices: bit `n` is `cuda:n`.
static REGISTERED: AtomicU64 = AtomicU64::new(0);

impl Device {
    /// The devices that this process can use. The CPU is always available, and first; then the GPUs
    /// that the NVIDIA driver has, if there is one, and devices whose backend was attached.
    ///
    /// ```
    /// # use pullback_ir::Device;
    /// assert_eq!(Device::available()[0], Device::Cpu);
    /// ```
    pub fn available() -> Vec<Device> {
        let others = (0..64).map(Device::Cuda).filter(|device| device.is_available());
        std::iter::once(Device::Cpu).chain(others).collect()
    }

    /// Whether this process can use it.
    ///
    /// ```
    /// # use pullback_ir::Device;
    /// assert!(Device::Cpu.is_available());
    /// ```
    pub fn is_available(self) -> bool {
        match self {
            Device::Cpu => true,
            Device::Cuda(n) => {
                let attached = || REGISTERED.load(Ordering::Acquire) >> n & 1 == 1;
                n < 64 && (attached() || usize::from(n) < pullback_cuda_sys::device_count())
            }
        }
    }

    /// Makes a device available: called once its backend is attached. A device beyond `cuda:63` is
    /// not recorded.
    #[doc(hidden)]
    pub fn register(self) {
        if let Device::Cuda(n @ 0..64) = self {
            REGISTERED.fetch_or(1 << n, Ordering::AcqRel);
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(n) => write!(f, "cuda:{n}"),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Device, Error> {
        let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
            true => digits.parse().ok().map(Device::Cuda),
            false => None,
        };
        let found = match text.split_once(':') {
            None if text == "cpu" => Some(Device::Cpu),
            None if text == "cuda" => Some(Device::Cuda(0)),
            Some(("cuda", digits)) => number(digits),
            None | Some(_) => None,
        };
        found.ok_or_else(|| {
            let message =
                format!("`{text}` is not a device; devices are `cpu`, `cuda`, `cuda:1`, …");
            Error::new(ErrorKind::Device, "device", message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Device;

    #[test]
    fn devices_read_back() {
        for device in [Device::Cpu, Device::Cuda(0), Device::Cuda(7), Device::Cuda(u16::MAX)] {
            assert_eq!(device.to_string().parse::<Device>().ok(), Some(device));
        }
        assert_eq!("cuda".parse::<Device>().ok(), Some(Device::Cuda(0)));
        assert!(Device::Cpu < Device::Cuda(0) && Device::Cuda(0) < Device::Cuda(1));
    }

    #[test]
    fn anything_else_is_refused_with_a_sentence() {
        let wrong = ["", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda:65536"];
        for text in wrong.into_iter().chain(["cuda: 0", "cuda:0 ", "cuda:0:0", "gpu", ":"]) {
            let error = text.parse::<Device>().expect_err(text).to_string();
            let wanted = format!("device: `{text}` is not a device; devices are `cpu`, `cuda`, ");
            assert!(error.starts_with(&wanted), "{error}");
        }
    }
}
