//! Specs: everything about a tensor except its values.

use crate::{DType, Device, Shape, element_count};
use std::fmt;

/// Shape, element type and device of a tensor. Prints as `f32[32,784]` on the CPU, and with its
/// device elsewhere: `f32[32,784]@cuda:0`. Both parse back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Length of each axis; empty for a scalar.
    pub shape: Shape,
    /// Type of the elements.
    pub dtype: DType,
    /// The device of the elements.
    pub device: Device,
}

impl Spec {
    /// A spec on a device.
    ///
    /// ```
    /// # use pullback_ir::{DType, Device, Spec};
    /// let spec = Spec::on(Device::Cuda(0), DType::F32, [2, 3]);
    /// assert_eq!(spec.to_string(), "f32[2,3]@cuda:0");
    /// assert_eq!(spec.to_string().parse(), Ok(spec));
    /// ```
    #[inline]
    pub fn on(device: Device, dtype: DType, shape: impl Into<Shape>) -> Spec {
        Spec { shape: shape.into(), dtype, device }
    }

    /// A spec in host memory.
    ///
    /// ```
    /// # use pullback_ir::{DType, Spec};
    /// assert_eq!(Spec::cpu(DType::F32, [2, 3]).to_string(), "f32[2,3]");
    /// ```
    #[inline]
    pub fn cpu(dtype: DType, shape: impl Into<Shape>) -> Spec {
        Spec::on(Device::Cpu, dtype, shape)
    }

    /// Number of elements.
    ///
    /// ```
    /// # use pullback_ir::{DType, Spec};
    /// assert_eq!(Spec::cpu(DType::F32, [2, 3]).len(), 6);
    /// assert_eq!(Spec::cpu(DType::F32, []).len(), 1); // a scalar
    /// ```
    #[inline]
    pub fn len(&self) -> usize {
        element_count(&self.shape)
    }

    /// Whether there are no elements (an axis of length zero).
    ///
    /// ```
    /// # use pullback_ir::{DType, Spec};
    /// assert!(Spec::cpu(DType::F32, [2, 0]).is_empty());
    /// ```
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the elements take when stored densely.
    ///
    /// ```
    /// # use pullback_ir::{DType, Spec};
    /// assert_eq!(Spec::cpu(DType::F32, [2, 3]).bytes(), 24);
    /// ```
    #[inline]
    pub fn bytes(&self) -> usize {
        self.len().saturating_mul(self.dtype.size())
    }

    /// The same with another shape.
    ///
    /// ```
    /// # use pullback_ir::{DType, Spec};
    /// assert_eq!(Spec::cpu(DType::F32, [2, 3]).with_shape([6]).to_string(), "f32[6]");
    /// ```
    pub fn with_shape(&self, shape: impl Into<Shape>) -> Spec {
        Spec { shape: shape.into(), ..*self }
    }

    /// The same with another element type.
    ///
    /// ```
    /// # use pullback_ir::{DType, Spec};
    /// assert_eq!(Spec::cpu(DType::F32, [2]).with_dtype(DType::I64).to_string(), "i64[2]");
    /// ```
    pub fn with_dtype(&self, dtype: DType) -> Spec {
        Spec { dtype, ..self.clone() }
    }

    /// The same on another device.
    ///
    /// ```
    /// # use pullback_ir::{DType, Device, Spec};
    /// let spec = Spec::cpu(DType::F32, [2]).with_device(Device::Cuda(0));
    /// assert_eq!(spec.to_string(), "f32[2]@cuda:0");
    /// ```
    pub fn with_device(&self, device: Device) -> Spec {
        Spec { device, ..self.clone() }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, n) in self.shape.iter().enumerate() {
            write!(f, "{}{n}", if i > 0 { "," } else { "" })?;
        }
        f.write_str("]")?;
        DeviceSuffix(self.device).fmt(f)
    }
}

/// The suffix of a device: nothing for the CPU, otherwise `@cuda:0`.
pub(crate) struct DeviceSuffix(pub(crate) Device);

impl fmt::Display for DeviceSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Device::Cpu => Ok(()),
            device @ Device::Cuda(_) => write!(f, "@{device}"),
        }
    }
}
