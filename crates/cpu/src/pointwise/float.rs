//! The elementwise functions on floats.
//!
//! The tables are written once and instantiated for f32 and f64, which share every formula and
//! differ in the functions of [`math32`] and [`math64`]. The [`special`] functions are computed in
//! f64 for both, those of one f32 in vectors.

use super::{map1, map2};
use crate::simd::{Kernel1, Kernel2, Level, math32, math64};
use crate::special::{self, vector};
use pullback_ir::{Binary, Unary, unary_rows};

/// Derivatives times cotangents whose functions have a way for huge arguments.
#[rustfmt::skip]
macro_rules! trig_vjp {
    (sin, $l:ident, $T:ident, $math:ident) => { map2!($l, $T, |x, dy| dy * $math::cos::<I>(x), rare x.abs() > $math::TRIG_MAX, slow dy * x.cos()) };
    (cos, $l:ident, $T:ident, $math:ident) => { map2!($l, $T, |x, dy| -dy * $math::sin::<I>(x), rare x.abs() > $math::TRIG_MAX, slow -dy * x.sin()) };
}

/// The loop that the column `kernel` of a row names.
macro_rules! kernel {
    ((|$x:ident| $value:expr), $name:ident, $l:ident, $T:ident, $math:ident) => {
        map1!($l, $T, |$x| $value)
    };
    (math, $name:ident, $l:ident, $T:ident, $math:ident) => {
        map1!($l, $T, |x| $math::$name::<I>(x))
    };
    (trig, $name:ident, $l:ident, $T:ident, $math:ident) => {
        map1!($l, $T, |x| $math::$name::<I>(x), rare x.abs() > $math::TRIG_MAX, slow x.$name())
    };
    (special, $name:ident, $l:ident, f32, $math:ident) => {
        map1!($l, f32, |x| vector::$name::<I>(f64::from(x)) as f32,
            rare vector::rare::$name(x), slow special::$name(f64::from(x)) as f32)
    };
    (special, $name:ident, $l:ident, $T:ident, $math:ident) => {
        map1!($l, $T, |x| special::$name(f64::from(x)) as $T)
    };
}

/// The loop that the column `vjp` names.
macro_rules! vjp {
    ([], $name:ident, $l:ident, $T:ident, $math:ident) => {
        zero($l)
    };
    ([$kept:ident $cost:literal |$x:ident, $dy:ident| $value:expr], $name:ident, $l:ident, $T:ident, $math:ident) => {
        map2!($l, $T, |$x, $dy| $value)
    };
    ([$kept:ident $cost:literal trig], $name:ident, $l:ident, $T:ident, $math:ident) => {
        trig_vjp!($name, $l, $T, $math)
    };
    ([$kept:ident $cost:literal $f:ident], $name:ident, $l:ident, $T:ident, $math:ident) => {
        map2!($l, $T, |x, dy| $math::$f::<I>(x, dy))
    };
}

/// The tables of functions of one element, from their rows.
macro_rules! of_one {
    ($(
        $f:ident $name:ident $value:literal $ints:tt $exact:ident $cost:literal $native:ident
        $native_vjp:ident $domain:tt $peer:tt $kernel:tt $cuda:tt $vjp:tt $cuda_vjp:tt;
    )*) => {
        of_one!(f32, math32, unary32, vjp32: $($f $name $kernel $vjp;)*);
        of_one!(f64, math64, unary64, vjp64: $($f $name $kernel $vjp;)*);
    };
    (
        $T:ident, $math:ident, $unary:ident, $of_vjp:ident:
        $($f:ident $name:ident $kernel:tt $vjp:tt;)*
    ) => {
        /// The loop of a function of one element.
        pub(crate) fn $unary(op: Unary, l: Level) -> Kernel1<$T, $T> {
            match op { $(Unary::$f => kernel!($kernel, $name, l, $T, $math)),* }
        }

        /// The loop of `dy · f'`, from the saved value: `x` or `y`, as given by
        /// [`Unary::fused_vjp`]. Functions without a fused derivative return zero here.
        pub(crate) fn $of_vjp(op: Unary, l: Level) -> Kernel2<$T, $T, $T> {
            fn zero(l: Level) -> Kernel2<$T, $T, $T> {
                map2!(l, $T, |_x, _dy| 0.0)
            }
            match op { $(Unary::$f => vjp!($vjp, $name, l, $T, $math)),* }
        }
    };
}
unary_rows!(of_one);

/// ζ(s, q), in vectors where it is the derivative of ψ.
macro_rules! zeta {
    (f32, $l:ident) => {
        map2!($l, f32, |a, b| vector::trigamma::<I>(f64::from(b)) as f32,
            rare vector::rare::zeta(a, b), slow special::zeta(f64::from(a), f64::from(b)) as f32)
    };
    ($T:ident, $l:ident) => {
        map2!($l, $T, |a, b| special::zeta(f64::from(a), f64::from(b)) as $T)
    };
}

/// An incomplete gamma function, of the accuracy that the type has.
macro_rules! gamma {
    (f32, $a:ident, $x:ident, $narrow:ident, $wide:ident) => {
        special::$narrow($a, $x)
    };
    (f64, $a:ident, $x:ident, $narrow:ident, $wide:ident) => {
        special::$wide($a, $x)
    };
}

/// The table of functions of two elements, for one type.
macro_rules! tables {
    ($T:ident, $math:ident, $binary:ident) => {
        /// The loop of a function of two elements. `And`, `Or`, `Xor` read non-zero as true.
        #[rustfmt::skip]
        pub(crate) fn $binary(op: Binary, l: Level) -> Kernel2<$T, $T, $T> {
            /// The remainder with the sign of the divisor, from that of C.
            #[inline(always)]
            fn signed_as(b: $T, r: $T) -> $T {
                let moved = if (r < 0.0) != (b < 0.0) { r + b } else { r };
                if r == 0.0 { r.copysign(b) } else { moved }
            }
            /// The quotient rounded down, from the exact remainder, so that it is not rounded up to
            /// an integer.
            #[inline(always)]
            fn floored(a: $T, b: $T, r: $T) -> $T {
                let q = (a - r) / b;
                let q = if r != 0.0 && (r < 0.0) != (b < 0.0) { q - 1.0 } else { q };
                let down = q.floor();
                let q = if q - down > 0.5 { down + 1.0 } else { down };
                let q = if q == 0.0 { (0.0 as $T).copysign(a / b) } else { q };
                if b == 0.0 { a / b } else { q }
            }
            match op {
                Binary::Add       => map2!(l, $T, |a, b| a + b),
                Binary::Sub       => map2!(l, $T, |a, b| a - b),
                Binary::Mul       => map2!(l, $T, |a, b| a * b),
                Binary::Div       => map2!(l, $T, |a, b| a / b),
                Binary::Remainder => map2!(l, $T, |a, b| signed_as(b, $math::fmod::<I>(a, b)),
                    rare $math::fmod_is_rare(a, b), slow signed_as(b, a % b)),
                Binary::Fmod      => map2!(l, $T, |a, b| $math::fmod::<I>(a, b), rare $math::fmod_is_rare(a, b), slow a % b),
                Binary::FloorDiv  => map2!(l, $T, |a, b| floored(a, b, $math::fmod::<I>(a, b)),
                    rare $math::fmod_is_rare(a, b), slow floored(a, b, a % b)),
                Binary::Pow       => map2!(l, $T, |a, b| $math::pow::<I>(a, b)),
                Binary::Atan2     => map2!(l, $T, |a, b| $math::atan2::<I>(a, b)),
                Binary::Copysign  => map2!(l, $T, |a, b| a.copysign(b)),
                Binary::Zeta      => zeta!($T, l),
                Binary::Gammainc  => map2!(l, $T, |a, b| gamma!($T, a, b, gammainc32, gammainc)),
                Binary::Gammaincc => map2!(l, $T, |a, b| gamma!($T, a, b, gammaincc32, gammaincc)),
                Binary::Maximum   => map2!(l, $T, |a, b| if a.is_nan() || a > b { a } else { b }),
                Binary::Minimum   => map2!(l, $T, |a, b| if a.is_nan() || a < b { a } else { b }),
                Binary::And       => map2!(l, $T, |a, b| if a != 0.0 && b != 0.0 { 1.0 } else { 0.0 }),
                Binary::Or        => map2!(l, $T, |a, b| if a != 0.0 || b != 0.0 { 1.0 } else { 0.0 }),
                Binary::Xor       => map2!(l, $T, |a, b| if (a != 0.0) != (b != 0.0) { 1.0 } else { 0.0 }),
                // `infer` rejects floats.
                Binary::ShiftLeft | Binary::ShiftRight | Binary::Gcd => map2!(l, $T, |_a, _b| 0.0),
            }
        }
    };
}

tables!(f32, math32, binary32);
tables!(f64, math64, binary64);
