//! Results in the memory of operands that are no longer needed: which slots an equation frees, and
//! whether a result may reuse one.

use super::Base;
use super::share::{RegionFacts, Sharing, sharing_by};
use super::slots::Planner;
use crate::Op;
use rustc_hash::FxHashMap;

/// Up to this many operands and results are searched linearly.
const MAX_LINEAR_SEARCH: usize = 8;

/// An index for an equation with many operands or results.
pub(super) struct Large {
    /// The operands that are in a slot.
    operands: FxHashMap<usize, Vec<usize>>,
    facts: Option<RegionFacts>,
}

impl Planner<'_> {
    /// Builds the index of an equation with many operands or results, so that it is not searched
    /// linearly for each of them.
    pub fn look_at(&mut self, e: usize) {
        let equation = &self.program.equations[e];
        if equation.inputs.len() <= MAX_LINEAR_SEARCH && equation.outputs.len() <= MAX_LINEAR_SEARCH
        {
            return;
        }
        let mut operands: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (k, &x) in equation.inputs.iter().enumerate() {
            operands.entry(self.slot(x)).or_default().push(k);
        }
        let facts = match &equation.op {
            Op::Region(region) => Some(RegionFacts::of(region)),
            _ => None,
        };
        self.large.insert(e, Large { operands, facts });
    }

    /// The slots in the arena that an equation reads for the last time, in the order of its
    /// operands.
    pub fn used_up(&mut self, e: usize) -> Vec<usize> {
        let mut found = Vec::new();
        for &x in &self.program.equations[e].inputs {
            let slot = self.slot(x);
            let is_new = self.slots[slot].base == Base::Arena
                && self.slots[slot].end == e + 1
                && self.slots[slot].checked != e + 1;
            if is_new {
                self.slots[slot].checked = e + 1;
                found.push(slot);
            }
        }
        found
    }

    /// Whether a result may be written over the memory of a slot that the equation may also read.
    pub fn may_overwrite(&self, e: usize, result: usize, slot: usize) -> bool {
        let equation = &self.program.equations[e];
        let spec = self.program.spec(equation.outputs[result]);
        // Sizes first.
        if self.slots[slot].bytes != spec.bytes() {
            return false;
        }
        let large = self.large.get(&e);
        let facts = large.and_then(|large| large.facts.as_ref());
        let fits = |k: usize, alone: bool| {
            let x = equation.inputs[k];
            let shares = match sharing_by(&equation.op, self.target, facts, result, k) {
                Sharing::Never => false,
                Sharing::InStep => true,
                Sharing::Alone => alone,
            };
            shares && self.is_whole(x) && self.program.spec(x).dtype == spec.dtype
        };
        if let Some(large) = large {
            let there = large.operands.get(&slot).map_or(&[][..], |there| there);
            return there.iter().all(|&k| fits(k, there.len() == 1));
        }
        let there =
            || (0..equation.inputs.len()).filter(|&k| self.slot(equation.inputs[k]) == slot);
        let alone = there().count() == 1;
        there().all(|k| fits(k, alone))
    }
}
