//! f32 and f64, as the factorisations need them.

use crate::dot::tile::{Base32, Base64, Tiled, Vector};
use crate::elem::Elem;
use crate::simd::Float;
use std::ops::{AddAssign, Div, DivAssign, MulAssign, SubAssign};

/// f32 or f64.
pub(super) trait Real:
    Float
    + Elem<Compute = Self>
    + Tiled
    + Div<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
{
    /// The vectors of each instruction set.
    type Base: Vector<T = Self>;
    #[cfg(target_arch = "x86_64")]
    type V256: Vector<T = Self>;
    #[cfg(target_arch = "x86_64")]
    type V512: Vector<T = Self>;

    const ZERO: Self;
    const ONE: Self;
    const NAN: Self;
    /// The distance from 1 to the next number.
    const EPS: Self;
    /// The smallest normal number.
    const TINY: Self;
    /// Squares and their sums are exact enough from this size on.
    const LOW: Self;
    /// Sums of squares are finite up to this size.
    const HIGH: Self;

    fn finite(self) -> bool;
    /// √(a² + b²), for any a and b.
    fn with(self, other: Self) -> Self;
    fn size(self) -> Self;
    fn root(self) -> Self;
    /// The size of self with the sign of `other`.
    fn signed(self, other: Self) -> Self;
    /// The power of two that takes `self`, which is positive and finite, close to 1 (a subnormal
    /// number not quite).
    fn to_one(self) -> Self;

    fn larger(self, other: Self) -> Self {
        if self > other { self } else { other }
    }

    /// √(a² + b²), without a call where the squares are neither tiny nor huge.
    #[inline]
    fn length(self, other: Self) -> Self {
        let square = self * self + other * other;
        if square > Self::LOW * Self::LOW && square < Self::HIGH * Self::HIGH {
            square.root()
        } else {
            self.with(other)
        }
    }
}

macro_rules! real {
    ($t:ty, $base:ident, $v256:ident, $v512:ident, $low:expr, $high:expr) => {
        impl Real for $t {
            type Base = $base;
            #[cfg(target_arch = "x86_64")]
            type V256 = std::arch::x86_64::$v256;
            #[cfg(target_arch = "x86_64")]
            type V512 = std::arch::x86_64::$v512;

            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const NAN: $t = <$t>::NAN;
            const EPS: $t = <$t>::EPSILON;
            const TINY: $t = <$t>::MIN_POSITIVE;
            const LOW: $t = $low;
            const HIGH: $t = $high;

            fn finite(self) -> bool {
                self.is_finite()
            }
            fn with(self, other: $t) -> $t {
                self.hypot(other)
            }
            #[inline(always)]
            fn size(self) -> $t {
                self.abs()
            }
            #[inline(always)]
            fn root(self) -> $t {
                self.sqrt()
            }
            #[inline(always)]
            fn signed(self, other: $t) -> $t {
                self.copysign(other)
            }
            fn to_one(self) -> $t {
                let most = (<$t>::MAX_EXP - 2) as $t;
                (-self.log2().round()).clamp(-most, most).exp2()
            }
        }
    };
}
real!(f32, Base32, __m256, __m512, 1e-15, 1e15);
real!(f64, Base64, __m256d, __m512d, 1e-140, 1e140);
