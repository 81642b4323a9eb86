//! The description of a backend for passes.

use super::{Limits, Remat};
use crate::{DType, Op};

/// What passes need to know of a backend. Plain data: it does not change the meaning of a program,
/// only the size of regions, the memory layout and what is recomputed.
///
/// ```
/// use pullback_ir::pass::{Limits, Target};
/// let wide = Target { align: 256, ..Target::default() };
/// assert_eq!((wide.padded(1), wide.regions), (256, Limits::default()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Alignment of slots and scratch in an arena, in bytes. At least 8, a power of two.
    pub align: usize,
    /// How large regions may be, and how long rows.
    pub regions: Limits,
    /// Which cheap values are recomputed near their use.
    pub recompute: Remat,
    /// Whether a region can run on pieces of a product before these leave the cache or the
    /// registers: then products and what follows them become one op
    /// ([`epilogue`](super::epilogue)).
    pub epilogue: bool,
    /// The dtypes in which a product of matrices can be added to existing memory, instead of
    /// written.
    pub adds_products: &'static [DType],
    /// Whether a collective can run while the program computes ([`overlap`](super::overlap)).
    pub overlap: bool,
    /// Whether the kernels of ops with [`Op::strided_results`] write them through strides: then the
    /// plan lays them out as their readers want them.
    pub strided_results: bool,
    /// Whether kernels take memory while a program runs, and so may fail for want of it
    /// ([`Op::takes_scratch`]).
    pub scratch: bool,
}

impl Default for Target {
    /// A machine with cache lines of 64 bytes, and otherwise default limits.
    fn default() -> Target {
        Target {
            align: 64,
            regions: Limits::default(),
            recompute: Remat::default(),
            epilogue: true,
            adds_products: &[DType::F32, DType::F64],
            overlap: true,
            strided_results: false,
            scratch: false,
        }
    }
}

impl Target {
    /// Whether a kernel may fail: what replaces an input is written after all of these.
    pub fn may_fail(&self, op: &Op) -> bool {
        op.may_fail() || (self.scratch && op.takes_scratch())
    }

    /// The bytes that a block takes in an arena.
    pub fn padded(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.align).saturating_mul(self.align)
    }
}
