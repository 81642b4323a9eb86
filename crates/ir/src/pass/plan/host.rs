//! Memory of the host, for values that wait there; and where values are, for those who choose them.

use super::super::Target;
use super::Base;
use super::pack::{Interval, pack};
use super::slots::{Planner, Slot};
use crate::{Layout, Program, Var};

/// By variable, in whose memory it is, and how it lies there.
pub(in crate::pass) fn memory_of(program: &Program, target: Target) -> (Vec<Var>, Vec<Layout>) {
    let dense = |&v: &Var| Layout::dense(program.spec(v).shape.clone());
    let inputs: Vec<Layout> = program.inputs.iter().map(dense).collect();
    let planner = Planner::new(program, &program.updates, &inputs, target);
    (planner.roots, planner.layouts)
}

impl Planner<'_> {
    /// Where values lie in memory of the host, in the order of their slots, and how much that is.
    pub fn pack_host(&self) -> (Vec<usize>, usize) {
        let slots = self.slots.iter().filter(|slot| slot.base == Base::Host);
        let block = |slot: &Slot| Interval {
            bytes: self.target.padded(slot.bytes),
            start: slot.start,
            end: slot.end,
        };
        pack(&slots.map(block).collect::<Vec<_>>())
    }
}
