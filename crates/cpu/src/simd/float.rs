//! f32 and f64 in loops that are written once for both.

use super::Isa;
use std::ops::{Add, Mul, Neg, Sub};

/// f32 or f64.
pub(crate) trait Float:
    Copy
    + Default
    + Send
    + Sync
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// Rounded to this type.
    fn of_f64(x: f64) -> Self;
    /// `self · b + c`, rounded once where the hardware can.
    fn fma<I: Isa>(self, b: Self, c: Self) -> Self;
}

macro_rules! float {
    ($t:ty, $fma:ident) => {
        impl Float for $t {
            #[inline(always)]
            fn of_f64(x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn fma<I: Isa>(self, b: $t, c: $t) -> $t {
                I::$fma(self, b, c)
            }
        }
    };
}
float!(f32, fma32);
float!(f64, fma64);
