//! The element types, and their promotion.

use std::fmt;
use std::str::FromStr;

/// The type of a tensor's elements.
///
/// Storage types widen to a compute type inside kernels ([`DType::compute`]), so a narrow type
/// costs a load and a store, not a separate kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE double precision.
    F64,
    /// IEEE single precision, the default for training.
    F32,
    /// Brain float: the exponent of f32 with 8 bits of precision.
    BF16,
    /// IEEE half precision: 11 bits of precision, largest value 65504.
    F16,
    /// 64-bit signed integer, the type of indices.
    I64,
    /// 32-bit signed integer.
    I32,
    /// Unsigned byte.
    U8,
    /// A boolean, stored as one byte, 0 or 1.
    Bool,
}

impl DType {
    /// Every element type, widest first.
    pub const ALL: [DType; 8] = {
        use DType::*;
        [F64, F32, BF16, F16, I64, I32, U8, Bool]
    };

    /// The element types that carry gradients.
    pub const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::BF16, DType::F16];

    /// Bytes per element.
    ///
    /// ```
    /// # use pullback_ir::DType;
    /// assert_eq!((DType::F64.size(), DType::BF16.size(), DType::Bool.size()), (8, 2, 1));
    /// ```
    #[doc(alias = "itemsize")]
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::BF16 | DType::F16 => 2,
            DType::U8 | DType::Bool => 1,
        }
    }

    /// Whether this is a floating-point type, the only kind that has derivatives.
    ///
    /// ```
    /// # use pullback_ir::DType;
    /// assert!(DType::BF16.is_float() && !DType::I32.is_float());
    /// ```
    #[doc(alias = "is_floating_point")]
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::BF16 | DType::F16)
    }

    /// Whether this is an integer type (`Bool` is not).
    ///
    /// ```
    /// # use pullback_ir::DType;
    /// assert!(DType::U8.is_int() && !DType::Bool.is_int() && !DType::F32.is_int());
    /// ```
    pub const fn is_int(self) -> bool {
        matches!(self, DType::I64 | DType::I32 | DType::U8)
    }

    /// The type in which kernels compute on this storage type.
    ///
    /// ```
    /// # use pullback_ir::DType;
    /// assert_eq!((DType::BF16.compute(), DType::U8.compute()), (DType::F32, DType::I64));
    /// ```
    pub const fn compute(self) -> DType {
        match self {
            DType::F64 => DType::F64,
            DType::F32 | DType::BF16 | DType::F16 => DType::F32,
            DType::I64 | DType::I32 | DType::U8 | DType::Bool => DType::I64,
        }
    }

    /// The smallest type that holds the values of both: the dtype a binary operation computes in.
    ///
    /// Floats take precedence over integers, integers over booleans; `bf16` with `f16` gives `f32`.
    ///
    /// ```
    /// # use pullback_ir::DType;
    /// assert_eq!(DType::F32.promote(DType::I64), DType::F32);
    /// assert_eq!(DType::I32.promote(DType::Bool), DType::I32);
    /// assert_eq!(DType::BF16.promote(DType::F16), DType::F32);
    /// ```
    #[doc(alias = "promote_types")]
    pub fn promote(self, other: DType) -> DType {
        use DType::*;
        match (self, other) {
            (a, b) if a == b => a,
            (BF16, F16) | (F16, BF16) => F32,
            // `ALL` lists the types in order of precedence.
            (a, b) => a.min(b),
        }
    }

    /// The name used in specs and error messages: `f32`.
    ///
    /// ```
    /// # use pullback_ir::DType;
    /// assert_eq!(DType::F32.name(), "f32");
    /// assert_eq!("f32".parse(), Ok(DType::F32));
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::BF16 => "bf16",
            DType::F16 => "f16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<DType, String> {
        let found = DType::ALL.into_iter().find(|d| d.name() == text);
        found.ok_or_else(|| {
            let known: Vec<_> = DType::ALL.iter().map(|d| d.name()).collect();
            format!("unknown dtype `{text}`; known are {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_commutative_and_keeps_the_wider() {
        for a in DType::ALL {
            for b in DType::ALL {
                assert_eq!(a.promote(b), b.promote(a));
                assert_eq!(a.promote(b).is_float(), a.is_float() || b.is_float());
            }
        }
        assert_eq!(DType::BF16.promote(DType::F16), DType::F32);
        assert_eq!(DType::I64.promote(DType::F16), DType::F16);
        assert_eq!(DType::U8.promote(DType::Bool), DType::U8);
    }

    #[test]
    fn names_parse_back() {
        for d in DType::ALL {
            assert_eq!(d.name().parse::<DType>(), Ok(d));
        }
        assert!("float".parse::<DType>().is_err_and(|e| e.contains("f64, f32")));
    }
}
