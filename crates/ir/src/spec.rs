//! A spec is all that is known of a tensor without looking at its values.

use crate::{DType, Shape, element_count};
use std::fmt;

/// Where a tensor's elements live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// Host memory.
    #[default]
    Cpu,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
        }
    }
}

/// Shape, element type and device of a tensor. Prints as `f32[32,784]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Length of each axis; empty for a scalar.
    pub shape: Shape,
    /// Type of the elements.
    pub dtype: DType,
    /// Where the elements live.
    pub device: Device,
}

impl Spec {
    /// A spec on the CPU.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Spec {
        Spec { shape: shape.into(), dtype, device: Device::Cpu }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        element_count(&self.shape)
    }

    /// Whether there is no element (an axis of length zero).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the elements take when stored densely.
    pub fn bytes(&self) -> usize {
        self.len().saturating_mul(self.dtype.size())
    }

    /// The same with another shape.
    pub fn with_shape(&self, shape: impl Into<Shape>) -> Spec {
        Spec { shape: shape.into(), ..*self }
    }

    /// The same with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Spec {
        Spec { dtype, ..self.clone() }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, n) in self.shape.iter().enumerate() {
            write!(f, "{}{n}", if i > 0 { "," } else { "" })?;
        }
        f.write_str("]")
    }
}
