//! A matrix product with a fused region as its epilogue.
//!
//! The product calls back when a part of it is finished, and the region runs over that part while
//! it is in cache ([`dot::dot_then`]). If a result has the size of the product, the product is
//! written into its memory, and overwritten by the result part by part.
//!
//! If the product has no parts, or the region needs whole rows, the region runs when the product is
//! complete.

use super::RegionKernel;
use super::exec::{borrowed, give_back};
use crate::dot::{self, Right};
use crate::operand::{Sink, Source};
use pullback_ir::{Binary, Inst, Op, Region, dense_strides};
use smallvec::SmallVec;

impl RegionKernel {
    /// The product of `a` and `b`, then this kernel, which was made from `region`, with the product
    /// as its first operand and the others after it.
    pub(crate) fn run_after_dot(
        &self,
        region: &Region,
        a: Source,
        b: Right,
        rest: &[Source],
        outputs: &[Sink],
    ) {
        let spec = &region.inputs[0].spec;
        if added(region)
            && let [to] = outputs
            && rest[0].ptr == to.ptr.cast_const()
            && dot::dot_add(a, b, *to)
        {
            return;
        }
        let identity = |k: usize| {
            let load = &region.inputs[k];
            load.layout.shape == load.spec.shape
                && load.layout.is_dense()
                && load.layout.offset == 0
        };
        // A result that may share the product's memory, and is not an operand's memory.
        let host = outputs.iter().find(|out| {
            let free = rest.iter().all(|x| x.ptr != out.ptr.cast_const());
            identity(0)
                && free
                && out.dtype.size() == spec.dtype.size()
                && *out.shape == spec.shape[..]
        });
        let mut held = Vec::new();
        let ptr = match host {
            Some(out) => out.ptr,
            None => {
                held = borrowed(spec.bytes());
                held.as_mut_ptr().cast()
            }
        };
        let strides = dense_strides(&spec.shape);
        let product = Source { ptr, shape: &spec.shape, strides: &strides, dtype: spec.dtype };
        let inputs: SmallVec<[Source; 6]> =
            std::iter::once(product).chain(rest.iter().copied()).collect();
        let sink = Sink { ptr, shape: &spec.shape, dtype: spec.dtype };
        let parts = self.reducing.is_empty()
            && self.fills.is_empty()
            && identity(0)
            && region.shape == spec.shape;
        let width = spec.shape.last().copied().unwrap_or(1);
        let hooked = parts
            && dot::dot_then(a, b, sink, &|rows, columns| {
                self.run_part(&inputs, outputs, rows, columns, width);
            });
        if !hooked {
            if !parts {
                dot::dot(a, b, sink);
            }
            self.run(&inputs, outputs);
        }
        if !held.is_empty() {
            give_back(held);
        }
    }
}

/// Whether a region only adds an operand, of the product's shape and layout, to the product.
fn added(region: &Region) -> bool {
    let [first, second] = &region.inputs[..] else { return false };
    let [Inst::Load(x), Inst::Load(y), Inst::Point(Op::Binary(Binary::Add), of)] = &region.body[..]
    else {
        return false;
    };
    first == second
        && first.layout.shape == first.spec.shape
        && first.layout.is_dense()
        && first.layout.offset == 0
        && x != y
        && of[0] != of[1]
        && of.iter().all(|&v| v < 2)
        && region.outputs == [2]
}
