//! The description of this backend for passes.

use crate::buffer::ALIGN;
use pullback_ir::DType;
use pullback_ir::pass::{Epilogue, Limits, Remat, Target};

/// The CPU, as described to passes.
pub const TARGET: Target = Target {
    // A cache line, and the widest vector.
    align: ALIGN,
    regions: Limits {
        instructions: 192,
        inputs: 32,
        small: 6,
        few: 64,
        // Such a row is distributed over threads.
        long: 65536,
        // Sums over the rows are kernels of their own, which read what is in cache.
        columns: 0,
        column_row: [0, 0],
        biased_products: false,
    },
    norms: false,
    recompute: Remat { near: 16, worth: 4096 },
    // A region runs on pieces of a product while they are in cache.
    epilogue: Epilogue::Regions,
    // Narrow floats are excluded: they are rounded once, after the whole sum.
    adds_products: &[DType::F32, DType::F64],
    channels_last: &[],
    stores_twice: false,
    // By the group's own thread.
    overlap: true,
    // Kernels write dense results.
    strided_results: false,
    joins_casts: false,
    // A kernel that finds no memory panics.
    scratch: false,
    host: None,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_texts_of_passes_are_those_of_this_target() {
        assert_eq!(TARGET, Target::default());
    }
}
