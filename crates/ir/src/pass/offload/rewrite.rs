//! A program with the steps of values that leave and come back.

use super::Trip;
use super::gaps::MemoryUse;
use crate::pass::dead_code;
use crate::{Equation, Op, Program, ResultMemory, Transfer, Var, Vars};
use rustc_hash::FxHashMap;

/// The program with the copies of trips. What is read after a gap is the value that came back, and
/// views of it.
pub(super) fn rewritten(program: &Program, memory: &MemoryUse, trips: &[Trip]) -> Program {
    let mut at: Vec<Vec<(Transfer, usize)>> = vec![Vec::new(); program.equations.len() + 1];
    for (i, trip) in trips.iter().enumerate() {
        at[trip.gap.from + 1].push((Transfer::Offload, i));
        at[trip.left].push((Transfer::Offloaded, i));
        at[trip.returns].push((Transfer::Restore, i));
        at[trip.gap.to].push((Transfer::Restored, i));
    }
    let mut writer = TransferWriter {
        program,
        memory,
        trips,
        trip_of: trips.iter().enumerate().map(|(i, trip)| (trip.gap.value, i)).collect(),
        out: Program { equations: Vec::new(), ..program.clone() },
        copies: vec![[Var(u32::MAX); 4]; trips.len()],
        back: FxHashMap::default(),
        made: program.definitions(),
    };
    for (i, mut steps) in at.into_iter().enumerate() {
        // What leaves goes first, and what comes back needs the memory that it leaves.
        steps.sort_by_key(|&(step, _)| step as usize);
        steps.into_iter().for_each(|(step, trip)| writer.step(step, trip));
        if let Some(e) = program.equations.get(i) {
            writer.equation(i, e);
        }
    }
    // Views in a gap that were made for what comes after it.
    dead_code(&writer.out).renumbered()
}

struct TransferWriter<'a> {
    program: &'a Program,
    memory: &'a MemoryUse,
    trips: &'a [Trip],
    /// The trip of each root that leaves.
    trip_of: FxHashMap<Var, usize>,
    out: Program,
    /// By trip, the results of its steps so far.
    copies: Vec<[Var; 4]>,
    /// What came back, and views of it, by what they are.
    back: FxHashMap<Var, Var>,
    made: Vec<Option<usize>>,
}

impl TransferWriter<'_> {
    fn push(&mut self, op: Op, inputs: Vars, like: Var, e: Option<&Equation>) -> Var {
        let spec = self.program.spec(like).clone();
        let new = self.out.fresh(spec);
        let (outputs, at) = (Vars::from_slice(&[new]), e.and_then(|e| e.at));
        self.out.equations.push(Equation { op, inputs, outputs, at });
        new
    }

    fn step(&mut self, step: Transfer, trip: usize) {
        let value = self.trips[trip].gap.value;
        let [start, host, returns, _] = self.copies[trip];
        let inputs: &[Var] = match step {
            Transfer::Offload => &[value],
            Transfer::Offloaded => &[start, value],
            Transfer::Restore => &[host],
            Transfer::Restored => &[returns, host],
        };
        let e = self.made[value.index()].map(|i| &self.program.equations[i]);
        let made = self.push(Op::Transfer(step), Vars::from_slice(inputs), value, e);
        self.copies[trip][step as usize] = made;
        if step == Transfer::Restored {
            self.back.insert(value, made);
        }
    }

    /// Whether this is the memory of a value that is back by now.
    fn is_back(&self, v: Var, at: usize) -> bool {
        let trip = self.trip_of.get(&self.memory.roots[v.index()]);
        trip.is_some_and(|&trip| self.trips[trip].gap.to <= at)
    }

    /// Whether this is the memory of a value that is away.
    fn is_away(&self, v: Var, at: usize) -> bool {
        let trip = self.trip_of.get(&self.memory.roots[v.index()]);
        trip.is_some_and(|&trip| (self.trips[trip].gap.from..self.trips[trip].gap.to).contains(&at))
    }

    fn equation(&mut self, at: usize, e: &Equation) {
        let mut e = e.clone();
        for k in 0..e.inputs.len() {
            let v = e.inputs[k];
            if self.is_back(v, at) {
                e.inputs[k] = self.returned(v);
            } else if e.op == Op::After && k > 0 && self.is_away(v, at) {
                // It was made before, and need not be kept to say so.
                e.inputs[k] = e.inputs[0];
            }
        }
        self.out.equations.push(e);
    }

    /// What a variable is, of the value that came back.
    fn returned(&mut self, v: Var) -> Var {
        if let Some(&known) = self.back.get(&v) {
            return known;
        }
        // A view of the value, made before it left.
        let Some(made) = self.made[v.index()] else { return v };
        let e = &self.program.equations[made];
        debug_assert!(e.op.memory() == ResultMemory::Operand, "a value that is no other");
        let of = self.returned(e.inputs[0]);
        let new = match &e.op {
            // It comes after everything anyway.
            Op::View(_) => self.push(e.op.clone(), Vars::from_slice(&[of]), v, Some(e)),
            _ => of,
        };
        self.back.insert(v, new);
        new
    }
}
