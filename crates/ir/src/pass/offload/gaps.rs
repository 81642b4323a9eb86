//! What is in memory when, and for how long nobody uses it.

use super::super::Target;
use super::super::plan::memory_of;
use crate::{Op, Program, ResultMemory, Transfer, Var};

/// A value that nothing uses between two equations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) value: Var,
    pub(super) bytes: usize,
    /// The equation that makes or reads it before the gap.
    pub(super) from: usize,
    /// The one that reads it next.
    pub(super) to: usize,
}

/// The memory of an ordered program.
pub(super) struct MemoryUse {
    /// By variable: in whose memory it is.
    pub(super) roots: Vec<Var>,
    /// By root: the equation that makes it, and those that read it, in order.
    pub(super) used: Vec<Vec<usize>>,
    /// By equation: bytes of the values that are there while it runs. Inputs, outputs and constants
    /// are there anyway, and not counted.
    pub(super) there: Vec<usize>,
    /// By root: whether it may be moved.
    movable: Vec<bool>,
    bytes: Vec<usize>,
}

impl MemoryUse {
    pub(super) fn of(program: &Program, target: Target) -> MemoryUse {
        let (roots, layouts) = memory_of(program, target);
        let count = program.specs.len();
        let (mut own, mut fixed) = (vec![false; count], vec![false; count]);
        let mut used: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (i, e) in program.equations.iter().enumerate() {
            let refers = |v: &Var| e.op.memory() == ResultMemory::Operand && roots[v.index()] != *v;
            let is_alias = e.outputs.iter().all(refers);
            // Something beside the equations uses its memory up to here.
            let ends = matches!(e.op, Op::Wait | Op::Transfer(_));
            for v in &e.outputs {
                let root = roots[v.index()].index();
                if is_alias {
                    fixed[root] |= ends;
                    continue;
                }
                // One inside another that is made later is a part of it.
                let is_alone = root == v.index() && layouts[root].is_dense_in_some_order();
                fixed[root] |= !is_alone || ends || e.op.is_ordered();
                let on_host = e.op == Op::Transfer(Transfer::Offload);
                own[root] |= e.op.memory() != ResultMemory::Constant && !on_host;
                used[root].push(i);
            }
            let read = match (is_alias, ends) {
                (true, true) => &e.inputs[1..],
                (true, false) => &[],
                (false, _) => &e.inputs[..],
            };
            for v in read {
                let uses = &mut used[roots[v.index()].index()];
                if uses.last() != Some(&i) {
                    uses.push(i);
                }
            }
        }
        for v in program.inputs.iter().chain(&program.outputs) {
            let root = roots[v.index()].index();
            own[root] = false;
        }
        let bytes: Vec<usize> =
            (0..count).map(|v| target.padded(program.specs[v].bytes())).collect();
        let movable = own.iter().zip(fixed).map(|(&own, fixed)| own && !fixed).collect();
        let mut change = vec![0isize; program.equations.len() + 1];
        for v in (0..count).filter(|&v| own[v]) {
            if let (Some(&first), Some(&last)) = (used[v].first(), used[v].last()) {
                change[first] += bytes[v] as isize;
                change[last + 1] -= bytes[v] as isize;
            }
        }
        let mut now = 0;
        let sum = |by: isize| {
            now += by;
            now.max(0) as usize
        };
        let there = change[..program.equations.len()].iter().copied().map(sum).collect();
        MemoryUse { roots, used, there, movable, bytes }
    }

    /// The most bytes that are there at a time.
    pub(super) fn most(&self) -> usize {
        self.there.iter().copied().max().unwrap_or(0)
    }

    /// The longest gap of each value of at least so many bytes.
    pub(super) fn gaps(&self, starts: &[u64], least: usize) -> Vec<Gap> {
        let of = |v: usize| {
            let pairs = self.used[v].windows(2).filter(|pair| pair[1] > pair[0] + 1);
            let (from, to) = pairs
                .map(|pair| (pair[0], pair[1]))
                .max_by_key(|&(from, to)| (starts[to] - starts[from + 1], to - from))?;
            Some(Gap { value: Var(v as u32), bytes: self.bytes[v], from, to })
        };
        let large = |v: &usize| self.movable[*v] && self.bytes[*v] >= least.max(1);
        (0..self.movable.len()).filter(large).filter_map(of).collect()
    }
}
