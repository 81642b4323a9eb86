//! The elementwise functions on integers and booleans, in i64.
//!
//! Arithmetic wraps. Division and remainder by zero give zero. A negative power is zero, except of
//! 1 and −1. Functions that only floats have are rejected by `infer`; here they return zero.

use super::{map1, map2};
use crate::simd::{Kernel1, Kernel2, Level};
use pullback_ir::{Binary, DType, Ints, Unary, binary_rows};

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

/// The loop of a function of two integers.
#[rustfmt::skip]
macro_rules! whole {
    (add, $l:ident) => { map2!($l, i64, |a, b| a.wrapping_add(b)) };
    (sub, $l:ident) => { map2!($l, i64, |a, b| a.wrapping_sub(b)) };
    (mul, $l:ident) => { map2!($l, i64, |a, b| a.wrapping_mul(b)) };
    (div, $l:ident) => { map2!($l, i64, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }) };
    (fmod, $l:ident) => { map2!($l, i64, |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }) };
    (remainder, $l:ident) => { map2!($l, i64, |a, b| if b == 0 { 0 } else {
        let r = a.wrapping_rem(b);
        if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
    }) };
    (floor_div, $l:ident) => { map2!($l, i64, |a, b| if b == 0 { 0 } else {
        let (q, r) = (a.wrapping_div(b), a.wrapping_rem(b));
        if r != 0 && (r < 0) != (b < 0) { q - 1 } else { q }
    }) };
    (pow, $l:ident) => { map2!($l, i64, |a, b| power(a, b)) };
    (maximum, $l:ident) => { map2!($l, i64, |a, b| a.max(b)) };
    (minimum, $l:ident) => { map2!($l, i64, |a, b| a.min(b)) };
    (and, $l:ident) => { map2!($l, i64, |a, b| a & b) };
    (or, $l:ident) => { map2!($l, i64, |a, b| a | b) };
    (xor, $l:ident) => { map2!($l, i64, |a, b| a ^ b) };
    // In i64, whose low bits are the result of a narrower type too.
    (shift_left, $l:ident) => { map2!($l, i64, |a, b| if b as u64 > 63 { 0 } else { a << (b & 63) }) };
    (shift_right, $l:ident) => { map2!($l, i64, |a, b| a >> (if b as u64 > 63 { 63 } else { b })) };
    (gcd, $l:ident) => { map2!($l, i64, |a, b| divisor(a, b)) };
}

/// The loop, or zeros for functions of floats alone.
macro_rules! kernel {
    (floats, $name:ident, $l:ident) => {
        map2!($l, i64, |_a, _b| 0)
    };
    ($takes:ident, $name:ident, $l:ident) => {
        whole!($name, $l)
    };
}

macro_rules! of_two {
    ($(
        $f:ident $name:ident $value:literal $takes:ident $exact:ident $cost:literal $native:ident
        $cuda:tt;
    )*) => {
        /// The loop of a function of two elements.
        pub(crate) fn binary(op: Binary, l: Level) -> Kernel2<i64, i64, i64> {
            match op { $(Binary::$f => kernel!($takes, $name, l)),* }
        }
    };
}
binary_rows!(of_two);

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
