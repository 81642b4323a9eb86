//! What passes know of the machine that a program is for.

use super::{Limits, Remat};
use crate::DType;

/// What a backend says of itself, for passes to go by. Plain data: none of it changes what a
/// program means, only how large its regions are, where its memory lies and what is recomputed.
///
/// ```
/// use pullback_ir::pass::{Limits, Target};
/// let wide = Target { align: 256, ..Target::default() };
/// assert_eq!((wide.padded(1), wide.regions), (256, Limits::default()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Slots and scratch in an arena begin at multiples of so many bytes. At least 8, a power of
    /// two.
    pub align: usize,
    /// How large regions may be, and how long rows.
    pub regions: Limits,
    /// Which cheap values are recomputed near their use.
    pub recompute: Remat,
    /// Whether a region can run on pieces of a product before these leave the cache or the
    /// registers: then products and what follows them become one op
    /// ([`epilogue`](super::epilogue)).
    pub epilogue: bool,
    /// The dtypes in which a product of matrices can be added to what is there, instead of written.
    pub adds_products: &'static [DType],
}

impl Default for Target {
    /// A machine with cache lines of 64 bytes, of which nothing else is known.
    fn default() -> Target {
        Target {
            align: 64,
            regions: Limits::default(),
            recompute: Remat::default(),
            epilogue: true,
            adds_products: &[DType::F32, DType::F64],
        }
    }
}

impl Target {
    /// The bytes that a block takes in an arena.
    pub fn padded(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.align).saturating_mul(self.align)
    }
}
