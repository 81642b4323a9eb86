//! Storage types and the compute types that kernels widen them to.
//!
//! A narrow type costs a load and a store, not a separate kernel: bf16 and f16 compute in f32,
//! every integer type and bool in i64. Integer arithmetic wraps; computing in i64 and truncating to
//! i32 or u8 gives the same bits as wrapping arithmetic in the narrow type.
//!
//! The conversions are free of branches, like all functions in loops over tiles (see
//! [`crate::simd`]).

use half::{bf16, f16};
use pullback_ir::{DType, Scalar};

/// A type in which kernels compute: f64, f32 or i64.
pub(crate) trait Compute: Elem<Compute = Self> + PartialOrd {}

impl Compute for f64 {}
impl Compute for f32 {}
impl Compute for i64 {}

/// A type of elements in memory.
pub(crate) trait Elem: Copy + Default + Send + Sync + 'static {
    /// The type kernels compute in.
    type Compute: Compute;
    /// The dtype of the element type.
    const DTYPE: DType;
    /// The value in the compute type, exactly.
    fn load(self) -> Self::Compute;
    /// The nearest value (floats), the low bits (integers), whether non-zero (bool).
    fn store(wide: Self::Compute) -> Self;
    /// The nearest value of this type.
    fn of(scalar: Scalar) -> Self;
}

/// A `bool` in memory: one byte, 0 or 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct Bool(pub(crate) u8);

impl Elem for f64 {
    type Compute = f64;
    const DTYPE: DType = DType::F64;
    #[inline(always)]
    fn load(self) -> f64 {
        self
    }
    #[inline(always)]
    fn store(wide: f64) -> f64 {
        wide
    }
    fn of(scalar: Scalar) -> f64 {
        scalar.as_f64()
    }
}

impl Elem for f32 {
    type Compute = f32;
    const DTYPE: DType = DType::F32;
    #[inline(always)]
    fn load(self) -> f32 {
        self
    }
    #[inline(always)]
    fn store(wide: f32) -> f32 {
        wide
    }
    fn of(scalar: Scalar) -> f32 {
        scalar.as_f64() as f32
    }
}

impl Elem for bf16 {
    type Compute = f32;
    const DTYPE: DType = DType::BF16;
    #[inline(always)]
    fn load(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn store(wide: f32) -> bf16 {
        let bits = wide.to_bits();
        // Half of the last place, less one bit where the kept part is even: ties to even.
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let nan = (bits >> 16) | 0x40;
        bf16::from_bits(if wide.is_nan() { nan } else { rounded } as u16)
    }
    fn of(scalar: Scalar) -> bf16 {
        bf16::from_f64(scalar.as_f64())
    }
}

impl Elem for f16 {
    type Compute = f32;
    const DTYPE: DType = DType::F16;
    #[inline(always)]
    fn load(self) -> f32 {
        let h = u32::from(self.to_bits());
        let magnitude = (h & 0x7fff) << 13;
        // Multiplying by 2^112 moves the exponent and makes subnormals normal.
        let finite = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits();
        let special = magnitude | 0x7f80_0000;
        let bits = if magnitude >= 0x0f80_0000 { special } else { finite };
        f32::from_bits(bits | ((h & 0x8000) << 16))
    }
    #[inline(always)]
    fn store(wide: f32) -> f16 {
        let bits = wide.to_bits();
        let sign = (bits >> 16) & 0x8000;
        let a = bits & 0x7fff_ffff;
        // Normal results: move the exponent, round to nearest, ties to even.
        let normal = a.wrapping_add(0xc800_0fff_u32.wrapping_add((a >> 13) & 1)) >> 13;
        // Subnormal results: adding 0.5 lets the hardware round at the right place.
        let tiny = (f32::from_bits(a) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
        let special = if a > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
        let magnitude = if a < 0x3880_0000 { tiny } else { normal };
        // 65520 and above round to infinity.
        let magnitude = if a >= 0x477f_f000 { special } else { magnitude };
        f16::from_bits((sign | magnitude) as u16)
    }
    fn of(scalar: Scalar) -> f16 {
        f16::from_f64(scalar.as_f64())
    }
}

impl Elem for i64 {
    type Compute = i64;
    const DTYPE: DType = DType::I64;
    #[inline(always)]
    fn load(self) -> i64 {
        self
    }
    #[inline(always)]
    fn store(wide: i64) -> i64 {
        wide
    }
    fn of(scalar: Scalar) -> i64 {
        scalar.as_i64()
    }
}

impl Elem for i32 {
    type Compute = i64;
    const DTYPE: DType = DType::I32;
    #[inline(always)]
    fn load(self) -> i64 {
        i64::from(self)
    }
    #[inline(always)]
    fn store(wide: i64) -> i32 {
        wide as i32
    }
    fn of(scalar: Scalar) -> i32 {
        scalar.as_i64().clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
    }
}

impl Elem for u8 {
    type Compute = i64;
    const DTYPE: DType = DType::U8;
    #[inline(always)]
    fn load(self) -> i64 {
        i64::from(self)
    }
    #[inline(always)]
    fn store(wide: i64) -> u8 {
        wide as u8
    }
    fn of(scalar: Scalar) -> u8 {
        scalar.as_i64().clamp(0, 255) as u8
    }
}

impl Elem for Bool {
    type Compute = i64;
    const DTYPE: DType = DType::Bool;
    #[inline(always)]
    fn load(self) -> i64 {
        i64::from(self.0)
    }
    #[inline(always)]
    fn store(wide: i64) -> Bool {
        Bool(u8::from(wide != 0))
    }
    fn of(scalar: Scalar) -> Bool {
        Bool(u8::from(scalar.as_f64() != 0.0))
    }
}

/// Runs an expression with a type alias bound to the storage type of a dtype:
/// `with_elem!(dtype, T => size_of::<T>())` expands to `match dtype { DType::F64 => { type T = f64;
/// size_of::<T>() } DType::F32 => … }`.
///
/// `with_elem!(float dtype, …)` and `with_elem!(int dtype, …)` do so for the dtypes that compute in
/// floats or in i64, where `infer` accepts no others; `with_elem!(compute dtype, …)` for the
/// compute types alone, and `with_elem!(wide dtype, …)` for those of floats.
macro_rules! with_elem {
    (compute $dtype:expr, $T:ident => $body:expr) => {
        with_elem!(@ $dtype, $T => $body, F64 f64, F32 f32, I64 i64;
            other => unreachable!("a compute type, not {other}"))
    };
    (wide $dtype:expr, $T:ident => $body:expr) => {
        with_elem!(@ $dtype, $T => $body, F64 f64, F32 f32;
            other => unreachable!("a compute type of floats, not {other}"))
    };
    (float $dtype:expr, $T:ident => $body:expr) => {
        with_elem!(@ $dtype, $T => $body,
            F64 f64, F32 f32, BF16 ::half::bf16, F16 ::half::f16;
            other => unreachable!("`infer` accepts only floats, not {other}"))
    };
    (int $dtype:expr, $T:ident => $body:expr) => {
        with_elem!(@ $dtype, $T => $body,
            I64 i64, I32 i32, U8 u8, Bool $crate::elem::Bool;
            other => unreachable!("`infer` accepts only integers and bool, not {other}"))
    };
    (@ $dtype:expr, $T:ident => $body:expr, $($variant:ident $t:ty),*; $($other:ident => $no:expr)?) => {
        match $dtype {
            $(::pullback_ir::DType::$variant => {
                type $T = $t;
                $body
            })*
            $($other => $no,)?
        }
    };
    ($dtype:expr, $T:ident => $body:expr) => {
        with_elem!(@ $dtype, $T => $body,
            F64 f64, F32 f32, BF16 ::half::bf16, F16 ::half::f16,
            I64 i64, I32 i32, U8 u8, Bool $crate::elem::Bool;)
    };
}
pub(crate) use with_elem;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_types_convert_as_the_standard_says() {
        for bits in 0..=u16::MAX {
            let (h, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert!(h.load().to_bits() == h.to_f32().to_bits() || h.is_nan() && h.load().is_nan());
            assert!(b.load().to_bits() == b.to_f32().to_bits() || b.is_nan() && b.load().is_nan());
        }
        for bits in
            (0..=u32::MAX).step_by(4099).chain((0..=u16::MAX).map(|b| u32::from(b) << 16 | 0x8000))
        {
            let x = f32::from_bits(bits);
            let (h, b) = (f16::store(x), bf16::store(x));
            if x.is_nan() {
                assert!(h.is_nan() && b.is_nan());
            } else {
                assert_eq!(h.to_bits(), f16::from_f32(x).to_bits(), "{x:e}");
                assert_eq!(b.to_bits(), bf16::from_f32(x).to_bits(), "{x:e}");
            }
        }
        for near in
            [65503.9f32, 65504.0, 65519.9, 65520.0, 65536.0, 6.1e-5, 5.96e-8, 2.98e-8, 2.99e-8]
        {
            assert_eq!(f16::store(near).to_bits(), f16::from_f32(near).to_bits(), "{near:e}");
            assert_eq!(f16::store(-near).to_bits(), f16::from_f32(-near).to_bits(), "{near:e}");
        }
    }

    #[test]
    fn dispatch_reaches_every_dtype() {
        for d in DType::ALL {
            assert_eq!(with_elem!(d, T => <T as Elem>::DTYPE), d);
            assert_eq!(with_elem!(d, T => size_of::<T>()), d.size());
            assert_eq!(with_elem!(d, T => <<T as Elem>::Compute as Elem>::DTYPE), d.compute());
        }
    }
}
