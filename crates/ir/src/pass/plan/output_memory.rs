//! The memory of outputs is reused for other slots until they are written.

use super::Base;
use super::pack::{Interval, Shelf};
use super::slots::Planner;

/// Most outputs that are tried for one slot, the largest first: a program may have thousands.
const TRIED: usize = 64;

impl Planner<'_> {
    /// The memory of an output is free until its slot begins: slots that end before may use it.
    pub fn borrow(&mut self) {
        let (end, target) = (self.program.equations.len() + 1, self.target);
        let bytes = |k: usize| self.program.spec(self.program.outputs[k]).bytes();
        let mut lenders: Vec<usize> =
            (0..self.program.outputs.len()).filter(|&k| self.is_own(k)).collect();
        lenders.sort_by_key(|&k| std::cmp::Reverse(bytes(k)));
        let mut lenders: Vec<(usize, usize, Shelf)> =
            lenders.into_iter().map(|k| (k, bytes(k), Shelf::default())).collect();
        let mut starts = vec![end; self.program.outputs.len()];
        for slot in self.slots.iter().rev() {
            if let Base::Output(k) = slot.base {
                starts[k] = slot.start;
            }
        }
        for (k, bytes, shelf) in &mut lenders {
            let start = starts[*k];
            shelf.put(Interval { bytes: target.padded(*bytes), start, end }, 0);
        }
        let mut order: Vec<usize> = (0..self.slots.len())
            .filter(|&s| self.slots[s].base == Base::Arena && self.slots[s].bytes > 0)
            .collect();
        order.sort_by_key(|&s| (std::cmp::Reverse(self.slots[s].bytes), self.slots[s].start));
        for s in order {
            let slot = &mut self.slots[s];
            let block =
                Interval { bytes: target.padded(slot.bytes), start: slot.start, end: slot.end };
            let long = lenders.partition_point(|lender| lender.1 >= slot.bytes).min(TRIED);
            for (k, bytes, shelf) in &mut lenders[..long] {
                let offset = shelf.spot(&block);
                if offset.saturating_add(slot.bytes) <= *bytes {
                    shelf.put(block, offset);
                    (slot.base, slot.offset) = (Base::Output(*k), offset);
                    break;
                }
            }
        }
    }
}
