//! The elementwise functions on integers and booleans, in i64.
//!
//! Arithmetic wraps. Division and remainder by zero give zero. A negative power is zero, except of
//! 1 and −1. Functions that only floats have are rejected by `infer`; here they return zero.

use super::{map1, map2};
use crate::simd::{Kernel1, Kernel2, Level};
use pullback_ir::{Binary, DType, Ints, Unary};

/// The loop of a function of one element.
#[rustfmt::skip]
pub(crate) fn unary(op: Unary, dtype: DType, l: Level) -> Kernel1<i64, i64> {
    match op.ints() {
        Some(Ints::Same)   => map1!(l, i64, |x| x),
        Some(Ints::Neg)    => map1!(l, i64, |x| x.wrapping_neg()),
        Some(Ints::Abs)    => map1!(l, i64, |x| x.wrapping_abs()),
        Some(Ints::Sign)   => map1!(l, i64, |x| x.signum()),
        Some(Ints::Not) if dtype == DType::Bool => map1!(l, i64, |x| x ^ 1),
        Some(Ints::Not)    => map1!(l, i64, |x| !x),
        Some(Ints::Square) => map1!(l, i64, |x| x.wrapping_mul(x)),
        Some(Ints::Relu)   => map1!(l, i64, |x| x.max(0)),
        None               => map1!(l, i64, |_x| 0),
    }
}

/// The loop of a function of two elements.
#[rustfmt::skip]
pub(crate) fn binary(op: Binary, l: Level) -> Kernel2<i64, i64, i64> {
    match op {
        Binary::Add       => map2!(l, i64, |a, b| a.wrapping_add(b)),
        Binary::Sub       => map2!(l, i64, |a, b| a.wrapping_sub(b)),
        Binary::Mul       => map2!(l, i64, |a, b| a.wrapping_mul(b)),
        Binary::Div       => map2!(l, i64, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
        Binary::Fmod      => map2!(l, i64, |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
        Binary::Remainder => map2!(l, i64, |a, b| if b == 0 { 0 } else {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
        }),
        Binary::FloorDiv  => map2!(l, i64, |a, b| if b == 0 { 0 } else {
            let (q, r) = (a.wrapping_div(b), a.wrapping_rem(b));
            if r != 0 && (r < 0) != (b < 0) { q - 1 } else { q }
        }),
        Binary::Pow       => map2!(l, i64, |a, b| power(a, b)),
        Binary::Maximum   => map2!(l, i64, |a, b| a.max(b)),
        Binary::Minimum   => map2!(l, i64, |a, b| a.min(b)),
        Binary::And       => map2!(l, i64, |a, b| a & b),
        Binary::Or        => map2!(l, i64, |a, b| a | b),
        Binary::Xor       => map2!(l, i64, |a, b| a ^ b),
        // In i64, whose low bits are the result of a narrower type too.
        Binary::ShiftLeft => map2!(l, i64, |a, b| if b as u64 > 63 { 0 } else { a << (b & 63) }),
        Binary::ShiftRight => map2!(l, i64, |a, b| a >> (if b as u64 > 63 { 63 } else { b })),
        Binary::Gcd       => map2!(l, i64, |a, b| divisor(a, b)),
        Binary::Atan2 | Binary::Copysign | Binary::Zeta | Binary::Gammainc | Binary::Gammaincc => map2!(l, i64, |_a, _b| 0),
    }
}

/// a^b, wrapping.
fn power(a: i64, b: i64) -> i64 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 => 1 - 2 * (b & 1),
            _ => 0,
        };
    }
    let (mut result, mut base, mut left) = (1i64, a, b);
    while left > 0 {
        if left & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        left >>= 1;
    }
    result
}

/// The greatest common divisor, by subtraction and shifts: a division takes longer than a few steps
/// of that.
fn divisor(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    if a == 0 || b == 0 {
        return (a | b) as i64;
    }
    let twos = (a | b).trailing_zeros();
    a >>= a.trailing_zeros();
    b >>= b.trailing_zeros();
    // Both are odd, so their difference is even.
    while a != b {
        let (low, difference) = (a.min(b), a.abs_diff(b));
        (a, b) = (low, difference >> difference.trailing_zeros());
    }
    (a << twos) as i64
}
