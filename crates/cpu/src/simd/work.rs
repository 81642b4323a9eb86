//! One trampoline for kernels that are more than a loop over elements.
//!
//! Its variants are methods that [`SimdTask`] provides and not generic functions: the compiler puts
//! a generic function into the codegen unit of the module that defines it, and a provided method
//! into that of the type it is for. As functions, all kernels of the crate were one unit, compiled
//! on one core while the others waited.

#[cfg(target_arch = "x86_64")]
use super::FusedMultiplyAdd;
use super::{Baseline, Isa, by_level, level};

/// A piece of work that is compiled for each instruction set.
pub(crate) trait SimdTask: Sized {
    /// Does the work; must be `#[inline(always)]`, as must be all that it calls in loops.
    fn run<I: Isa>(self);

    /// The variant for what the target always has.
    fn baseline(self) {
        self.run::<Baseline>();
    }

    /// # Safety
    /// The processor has these features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(self) {
        self.run::<FusedMultiplyAdd>();
    }

    /// # Safety
    /// The processor has these features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn avx512(self) {
        self.run::<FusedMultiplyAdd>();
    }
}

/// Runs the variant for this machine.
#[inline]
pub(crate) fn vectorised<W: SimdTask>(work: W) {
    by_level!(
        level(),
        // SAFETY: the level was detected.
        avx512: unsafe { work.avx512() },
        // SAFETY: the level was detected.
        avx2: unsafe { work.avx2() },
        baseline: work.baseline(),
    )
}
