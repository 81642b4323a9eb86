//! Changing the element type, to the nearest value of the new one.
//!
//! To a narrower float: rounded to nearest, ties to even, once (also from f64 to bf16 and f16). To
//! an integer: truncated towards zero, then clamped to the range of the type; NaN gives zero. To
//! bool: whether it is not zero (NaN is not).

use super::{copy, map1, run1};
use crate::operand::{Sink, Source};
use crate::simd::{Kernel1, Level, level};
use pullback_ir::DType;

/// `out = x` as the dtype of `out`.
pub(crate) fn cast(x: Source, out: Sink) {
    if x.dtype == out.dtype {
        return copy(x, out);
    }
    let l = level();
    match (x.dtype.compute(), out.dtype.compute()) {
        (DType::F32, DType::F32) => run1(map1!(l, f32, |x| x), true, &x, &out),
        (DType::F32, DType::F64) => run1(map1!(l, f32 => f64, |x| f64::from(x)), true, &x, &out),
        (DType::F32, _) => run1(from32(out.dtype, l), true, &x, &out),
        (DType::F64, DType::F32) if out.dtype == DType::F32 => {
            run1(map1!(l, f64 => f32, |x| x as f32), true, &x, &out)
        }
        (DType::F64, DType::F32) => run1(map1!(l, f64 => f32, |x| to_odd(x)), true, &x, &out),
        (DType::F64, DType::F64) => run1(map1!(l, f64, |x| x), true, &x, &out),
        (DType::F64, _) => run1(from64(out.dtype, l), true, &x, &out),
        (_, DType::F32) => run1(map1!(l, i64 => f32, |x| x as f32), true, &x, &out),
        (_, DType::F64) => run1(map1!(l, i64 => f64, |x| x as f64), true, &x, &out),
        (_, _) => run1(from_int(out.dtype, l), true, &x, &out),
    }
}

/// `out = x`, from a compute type to a type that computes in it, as kernels store their results:
/// floats rounded to nearest, the low bits of integers, whether not zero for bool.
pub(crate) fn narrow(x: Source, out: Sink) {
    let l = level();
    match x.dtype {
        DType::F32 => run1(map1!(l, f32, |x| x), true, &x, &out),
        DType::I64 => run1(map1!(l, i64, |x| x), true, &x, &out),
        other => unreachable!("nothing narrower computes in {other}"),
    }
}

/// x as f32, with the last bit set if anything was lost. Rounding that to a narrower type gives
/// what rounding x itself would: no tie appears that was not there.
#[inline(always)]
pub(crate) fn to_odd(x: f64) -> f32 {
    let y = x as f32;
    let back = f64::from(y);
    let bits = y.to_bits();
    // One step towards zero where rounding went away from it.
    let cut = if back.abs() > x.abs() { bits.wrapping_sub(1) } else { bits };
    f32::from_bits(if back == x || x.is_nan() { bits } else { cut | 1 })
}

/// The conversions of one type to the integer types, each clamped to its range.
macro_rules! to_int {
    ($name:ident, $X:ty, $zero:expr) => {
        /// The loop of the conversion to an integer type.
        pub(crate) fn $name(to: DType, l: Level) -> Kernel1<$X, i64> {
            match to {
                DType::I32 => map1!(l, $X => i64, |x| (x as i64).clamp(i64::from(i32::MIN), i64::from(i32::MAX))),
                DType::U8 => map1!(l, $X => i64, |x| (x as i64).clamp(0, 255)),
                DType::Bool => map1!(l, $X => i64, |x| i64::from(x != $zero)),
                _ => map1!(l, $X => i64, |x| x as i64),
            }
        }
    };
}
to_int!(from32, f32, 0.0);
to_int!(from64, f64, 0.0);
to_int!(from_int, i64, 0);
