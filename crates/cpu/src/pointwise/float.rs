//! What each op does to floats.
//!
//! The tables are written once and made for f32 and f64, which share every formula and differ in
//! the functions of [`math32`] and [`math64`]. The [`special`] functions are computed in f64 for both.

use super::{map1, map2};
use crate::simd::{Kernel1, Kernel2, Level, math32, math64};
use crate::special;
use pullback_ir::{Binary, Unary};

/// The tables for one type: functions, derivatives times cotangent, and functions of two elements.
macro_rules! tables {
    ($T:ident, $math:ident, $unary:ident, $vjp:ident, $binary:ident) => {
        /// The loop of a function of one element.
        #[rustfmt::skip]
        pub(crate) fn $unary(op: Unary, l: Level) -> Kernel1<$T, $T> {
            match op {
                Unary::Neg      => map1!(l, $T, |x| -x),
                Unary::Abs      => map1!(l, $T, |x| x.abs()),
                Unary::Sign     => map1!(l, $T, |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x }),
                Unary::Floor    => map1!(l, $T, |x| x.floor()),
                Unary::Ceil     => map1!(l, $T, |x| x.ceil()),
                Unary::Round    => map1!(l, $T, |x| x.round_ties_even()),
                Unary::Trunc    => map1!(l, $T, |x| x.trunc()),
                Unary::Stop     => map1!(l, $T, |x| x),
                Unary::Not      => map1!(l, $T, |x| if x == 0.0 { 1.0 } else { 0.0 }),
                Unary::Square   => map1!(l, $T, |x| x * x),
                Unary::Sqrt     => map1!(l, $T, |x| x.sqrt()),
                Unary::Rsqrt    => map1!(l, $T, |x| 1.0 / x.sqrt()),
                Unary::Recip    => map1!(l, $T, |x| 1.0 / x),
                Unary::Exp      => map1!(l, $T, |x| $math::exp::<I>(x)),
                Unary::Exp2     => map1!(l, $T, |x| $math::exp2::<I>(x)),
                Unary::Expm1    => map1!(l, $T, |x| $math::expm1::<I>(x)),
                Unary::Log      => map1!(l, $T, |x| $math::log::<I>(x)),
                Unary::Log2     => map1!(l, $T, |x| $math::log2::<I>(x)),
                Unary::Log10    => map1!(l, $T, |x| $math::log10::<I>(x)),
                Unary::Log1p    => map1!(l, $T, |x| $math::log1p::<I>(x)),
                Unary::Sin      => map1!(l, $T, |x| $math::sin::<I>(x), rare x.abs() > $math::TRIG_MAX, slow x.sin()),
                Unary::Cos      => map1!(l, $T, |x| $math::cos::<I>(x), rare x.abs() > $math::TRIG_MAX, slow x.cos()),
                Unary::Tan      => map1!(l, $T, |x| $math::tan::<I>(x), rare x.abs() > $math::TRIG_MAX, slow x.tan()),
                Unary::Asin     => map1!(l, $T, |x| $math::asin::<I>(x)),
                Unary::Acos     => map1!(l, $T, |x| $math::acos::<I>(x)),
                Unary::Atan     => map1!(l, $T, |x| $math::atan::<I>(x)),
                Unary::Sinh     => map1!(l, $T, |x| $math::sinh::<I>(x)),
                Unary::Cosh     => map1!(l, $T, |x| $math::cosh::<I>(x)),
                Unary::Tanh     => map1!(l, $T, |x| $math::tanh::<I>(x)),
                Unary::Asinh    => map1!(l, $T, |x| $math::asinh::<I>(x)),
                Unary::Acosh    => map1!(l, $T, |x| $math::acosh::<I>(x)),
                Unary::Atanh    => map1!(l, $T, |x| $math::atanh::<I>(x)),
                Unary::Erf      => map1!(l, $T, |x| $math::erf::<I>(x)),
                Unary::Erfc     => map1!(l, $T, |x| $math::erfc::<I>(x)),
                Unary::Erfcx    => map1!(l, $T, |x| special::erfcx(f64::from(x)) as $T),
                Unary::Erfinv   => map1!(l, $T, |x| special::erfinv(f64::from(x)) as $T),
                Unary::LogNdtr  => map1!(l, $T, |x| special::log_ndtr(f64::from(x)) as $T),
                Unary::Ndtri    => map1!(l, $T, |x| special::ndtri(f64::from(x)) as $T),
                Unary::Lgamma   => map1!(l, $T, |x| special::lgamma(f64::from(x)) as $T),
                Unary::Digamma  => map1!(l, $T, |x| special::digamma(f64::from(x)) as $T),
                Unary::I0       => map1!(l, $T, |x| special::i0(f64::from(x)) as $T),
                Unary::I0e      => map1!(l, $T, |x| special::i0e(f64::from(x)) as $T),
                Unary::I1       => map1!(l, $T, |x| special::i1(f64::from(x)) as $T),
                Unary::I1e      => map1!(l, $T, |x| special::i1e(f64::from(x)) as $T),
                Unary::Sigmoid  => map1!(l, $T, |x| $math::sigmoid::<I>(x)),
                Unary::Relu     => map1!(l, $T, |x| if x <= 0.0 { 0.0 } else { x }),
                Unary::Gelu     => map1!(l, $T, |x| $math::gelu::<I>(x)),
                Unary::GeluTanh => map1!(l, $T, |x| $math::gelu_tanh::<I>(x)),
                Unary::Silu     => map1!(l, $T, |x| $math::silu::<I>(x)),
            }
        }

        /// The loop of `dy · f'`, from the kept value: `x` or `y`, as [`Unary::fused_vjp`] says.
        /// Functions that it does not list have no fused derivative; theirs is zero here.
        #[rustfmt::skip]
        pub(crate) fn $vjp(op: Unary, l: Level) -> Kernel2<$T, $T, $T> {
            match op {
                Unary::Tanh     => map2!(l, $T, |y, dy| dy * (1.0 - y * y)),
                Unary::Sigmoid  => map2!(l, $T, |y, dy| dy * (y * (1.0 - y))),
                Unary::Relu     => map2!(l, $T, |y, dy| if y <= 0.0 { 0.0 } else { dy }),
                Unary::Sqrt     => map2!(l, $T, |y, dy| 0.5 * dy / y),
                Unary::Rsqrt    => map2!(l, $T, |y, dy| -0.5 * dy * (y * y * y)),
                Unary::Recip    => map2!(l, $T, |y, dy| -dy * (y * y)),
                Unary::Gelu     => map2!(l, $T, |x, dy| $math::gelu_vjp::<I>(x, dy)),
                Unary::GeluTanh => map2!(l, $T, |x, dy| $math::gelu_tanh_vjp::<I>(x, dy)),
                Unary::Silu     => map2!(l, $T, |x, dy| $math::silu_vjp::<I>(x, dy)),
                Unary::Sin      => map2!(l, $T, |x, dy| dy * $math::cos::<I>(x), rare x.abs() > $math::TRIG_MAX, slow dy * x.cos()),
                Unary::Cos      => map2!(l, $T, |x, dy| -dy * $math::sin::<I>(x), rare x.abs() > $math::TRIG_MAX, slow -dy * x.sin()),
                Unary::Log      => map2!(l, $T, |x, dy| dy / x),
                Unary::Abs      => map2!(l, $T, |x, dy| if x > 0.0 { dy } else if x < 0.0 { -dy } else { x * dy }),
                Unary::Square   => map2!(l, $T, |x, dy| 2.0 * x * dy),
                Unary::Erf      => map2!(l, $T, |x, dy| $math::erf_vjp::<I>(x, dy)),
                Unary::Neg | Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc | Unary::Not
                | Unary::Exp | Unary::Exp2 | Unary::Expm1 | Unary::Log2 | Unary::Log10 | Unary::Log1p | Unary::Tan
                | Unary::Asin | Unary::Acos | Unary::Atan | Unary::Sinh | Unary::Cosh | Unary::Asinh
                | Unary::Acosh | Unary::Atanh | Unary::Erfc | Unary::Erfcx | Unary::Erfinv | Unary::LogNdtr
                | Unary::Ndtri | Unary::Lgamma | Unary::Digamma | Unary::I0 | Unary::I0e | Unary::I1 | Unary::I1e | Unary::Stop => map2!(l, $T, |_x, _dy| 0.0),
            }
        }

        /// The loop of a function of two elements. `And`, `Or`, `Xor` read non-zero as true.
        #[rustfmt::skip]
        pub(crate) fn $binary(op: Binary, l: Level) -> Kernel2<$T, $T, $T> {
            match op {
                Binary::Add       => map2!(l, $T, |a, b| a + b),
                Binary::Sub       => map2!(l, $T, |a, b| a - b),
                Binary::Mul       => map2!(l, $T, |a, b| a * b),
                Binary::Div       => map2!(l, $T, |a, b| a / b),
                Binary::Remainder => map2!(l, $T, |a, b| {
                    let r = a % b;
                    if r == 0.0 { r.copysign(b) } else if (r < 0.0) != (b < 0.0) { r + b } else { r }
                }),
                Binary::Fmod      => map2!(l, $T, |a, b| a % b),
                Binary::FloorDiv  => map2!(l, $T, |a, b| {
                    // From the exact remainder, so that the quotient is not rounded up to an integer.
                    let r = a % b;
                    let q = (a - r) / b;
                    let q = if r != 0.0 && (r < 0.0) != (b < 0.0) { q - 1.0 } else { q };
                    let down = q.floor();
                    let q = if q - down > 0.5 { down + 1.0 } else { down };
                    if b == 0.0 { a / b } else if q == 0.0 { (0.0 as $T).copysign(a / b) } else { q }
                }),
                Binary::Pow       => map2!(l, $T, |a, b| $math::pow::<I>(a, b)),
                Binary::Atan2     => map2!(l, $T, |a, b| $math::atan2::<I>(a, b)),
                Binary::Copysign  => map2!(l, $T, |a, b| a.copysign(b)),
                Binary::Zeta      => map2!(l, $T, |a, b| special::zeta(f64::from(a), f64::from(b)) as $T),
                Binary::Gammainc  => map2!(l, $T, |a, b| special::gammainc(f64::from(a), f64::from(b)) as $T),
                Binary::Gammaincc => map2!(l, $T, |a, b| special::gammaincc(f64::from(a), f64::from(b)) as $T),
                Binary::Maximum   => map2!(l, $T, |a, b| if a.is_nan() || a > b { a } else { b }),
                Binary::Minimum   => map2!(l, $T, |a, b| if a.is_nan() || a < b { a } else { b }),
                Binary::And       => map2!(l, $T, |a, b| if a != 0.0 && b != 0.0 { 1.0 } else { 0.0 }),
                Binary::Or        => map2!(l, $T, |a, b| if a != 0.0 || b != 0.0 { 1.0 } else { 0.0 }),
                Binary::Xor       => map2!(l, $T, |a, b| if (a != 0.0) != (b != 0.0) { 1.0 } else { 0.0 }),
            }
        }
    };
}

tables!(f32, math32, unary32, vjp32, binary32);
tables!(f64, math64, unary64, vjp64, binary64);
