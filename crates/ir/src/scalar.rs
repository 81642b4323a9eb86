//! Numbers inside ops: comparable and hashable, by their bits.

use crate::DType;
use std::fmt;
use std::hash::{Hash, Hasher};

/// An `f64` that compares and hashes by its bits, so that ops holding one can be map keys.
#[derive(Clone, Copy, Debug)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// One number of any dtype. A Rust scalar becomes one and adopts the dtype of the tensor it is
/// combined with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// From `f64`, `f32`.
    Float(Real),
    /// From any integer type.
    Int(i64),
    /// From `bool`.
    Bool(bool),
}

impl Scalar {
    /// The value as a float.
    ///
    /// ```
    /// # use pullback_ir::Scalar;
    /// assert_eq!((Scalar::from(2.5).as_f64(), Scalar::from(true).as_f64()), (2.5, 1.0));
    /// ```
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Float(v) => v.0,
            Scalar::Int(v) => v as f64,
            Scalar::Bool(v) => f64::from(u8::from(v)),
        }
    }

    /// The value as an integer, truncated towards zero.
    ///
    /// ```
    /// # use pullback_ir::Scalar;
    /// assert_eq!((Scalar::from(-2.5).as_i64(), Scalar::from(7).as_i64()), (-2, 7));
    /// ```
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Float(v) => v.0 as i64,
            Scalar::Int(v) => v,
            Scalar::Bool(v) => i64::from(v),
        }
    }

    /// The result dtype of a tensor of `dtype` with this scalar: that of the tensor, unless a float
    /// is combined with integers (then `f32`) or a number with booleans (then `i64`).
    ///
    /// ```
    /// # use pullback_ir::{DType, Scalar};
    /// assert_eq!(Scalar::from(2.5).adopt(DType::BF16), DType::BF16);
    /// assert_eq!(Scalar::from(2.5).adopt(DType::I64), DType::F32);
    /// assert_eq!(Scalar::from(2).adopt(DType::Bool), DType::I64);
    /// ```
    pub fn adopt(self, dtype: DType) -> DType {
        match self {
            Scalar::Float(_) if !dtype.is_float() => DType::F32,
            Scalar::Int(_) if dtype == DType::Bool => DType::I64,
            _ => dtype,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Float(v) => write!(f, "{:?}", v.0),
            Scalar::Int(v) => write!(f, "{v}"),
            Scalar::Bool(v) => write!(f, "{v}"),
        }
    }
}

impl From<f64> for Scalar {
    fn from(v: f64) -> Scalar {
        Scalar::Float(Real(v))
    }
}

impl From<f32> for Scalar {
    fn from(v: f32) -> Scalar {
        Scalar::Float(Real(f64::from(v)))
    }
}

impl From<bool> for Scalar {
    fn from(v: bool) -> Scalar {
        Scalar::Bool(v)
    }
}

impl From<i64> for Scalar {
    fn from(v: i64) -> Scalar {
        Scalar::Int(v)
    }
}

impl From<i32> for Scalar {
    fn from(v: i32) -> Scalar {
        Scalar::Int(i64::from(v))
    }
}

impl From<u8> for Scalar {
    fn from(v: u8) -> Scalar {
        Scalar::Int(i64::from(v))
    }
}

impl From<usize> for Scalar {
    fn from(v: usize) -> Scalar {
        Scalar::Int(v as i64)
    }
}
