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
    /// Whether norms and softmax over short rows are written out as the ops they consist of, so
    /// that they join regions ([`norms`](super::norms)), instead of being kernels of their own.
    pub norms: bool,
    /// Which cheap values are recomputed near their use.
    pub recompute: Remat,
    /// What can run on pieces of a product before these leave the cache or the registers: then
    /// products and what follows them become one op ([`epilogue`](super::epilogue)).
    pub epilogue: Epilogue,
    /// The dtypes in which a product of matrices can be added to existing memory, instead of
    /// written.
    pub adds_products: &'static [DType],
    /// The dtypes in which images are convolved with the channels last
    /// ([`channels_last`](super::channels_last())).
    pub channels_last: &'static [DType],
    /// Whether a region that stores a value twice is better than a copy
    /// ([`stores`](super::stores())).
    pub stores_twice: bool,
    /// Whether a collective can run while the program computes ([`overlap`](super::overlap)).
    pub overlap: bool,
    /// Whether the kernels of ops with [`Op::strided_results`] write them through strides: then the
    /// plan lays them out as their readers want them.
    pub strided_results: bool,
    /// Whether casts that follow one another are one kernel: then those of inputs come first, where
    /// that takes no more memory ([`schedule`](super::schedule())).
    pub joins_casts: bool,
    /// Whether kernels take memory while a program runs, and so may fail for want of it
    /// ([`Op::takes_scratch`]).
    pub scratch: bool,
    /// How values are copied to memory of the host and back while a program runs
    /// ([`offload`](super::offload())); `None`: not at all.
    pub host: Option<HostLink>,
}

/// The way between a device and memory of its host, and what the device does meanwhile: as
/// measured, in a microsecond each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLink {
    /// Bytes from the device, while others come back.
    pub out: u64,
    /// Bytes to the device, while others leave it.
    pub back: u64,
    /// Bytes of its own memory that it reads and writes.
    pub memory: u64,
    /// Operations of a product in 16 bits.
    pub narrow: u64,
    /// Operations of a product in more bits.
    pub wide: u64,
}

/// What a backend can compute together with a product of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// Nothing.
    Nothing,
    /// What libraries of products offer: the sum with a row that is added to every row, and a
    /// result in the type of the sums ([`LibraryEpilogue`](super::LibraryEpilogue)). Narrow
    /// products are then rounded once, at the end.
    Library,
    /// Any region without reductions.
    Regions,
}

impl Default for Target {
    /// A machine with cache lines of 64 bytes, and otherwise default limits.
    fn default() -> Target {
        Target {
            align: 64,
            regions: Limits::default(),
            norms: false,
            recompute: Remat::default(),
            epilogue: Epilogue::Regions,
            adds_products: &[DType::F32, DType::F64],
            channels_last: &[],
            stores_twice: false,
            overlap: true,
            strided_results: false,
            joins_casts: false,
            scratch: false,
            host: None,
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
