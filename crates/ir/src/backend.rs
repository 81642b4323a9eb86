//! The vocabulary that backends share: how results are written, the kernel calls of a prepared
//! program, and what a pool of memory counts.

use crate::{Line, Spec};

/// How results are written to existing memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Over the targets, which are dense and may be operands: pointwise ops, and updates
    /// ([`Fused::updates`](crate::Fused::updates)), which take their targets first.
    Over,
    /// Added to the target, which is dense: matrix products.
    Add,
    /// Over a part of memory with any layout that does not overlap itself: copies.
    Part,
}

/// One kernel call of a prepared program.
#[derive(Clone, Debug)]
pub struct Step {
    /// The equation that it belongs to; moves at the end come after all of them.
    pub equation: usize,
    /// The kernel.
    pub kernel: String,
    /// The specs of its operands and results.
    pub operands: [Vec<Spec>; 2],
    /// The line of the user's program.
    pub at: Option<Line>,
}

/// Statistics of a device's pool of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Requested bytes of the buffers that exist now.
    pub live_bytes: u64,
    /// Largest value of `live_bytes` since the start, or since the last reset.
    pub peak_bytes: u64,
    /// Bytes cached for reuse, in whole blocks; 0 on a device that caches none.
    pub cached_bytes: u64,
    /// Number of buffers allocated.
    pub allocations: u64,
    /// How many of those reused cached blocks.
    pub reused: u64,
}
