//! Recomputes cheap values near their use, instead of keeping them in memory.
//!
//! A value that is read far from its definition stays in memory until then, and a region that
//! computes it must store it. If it is cheap, the reader recomputes it. The rule, for a value and
//! one of its readers:
//!
//! - the reader is a pointwise op or a reduction, so that the value becomes part of its region and
//!   is never stored;
//! - it is far: [`Remat::near`] equations or more away, or beyond an op that cannot be in a region;
//! - the value is one cheap op, or two, of values that are in memory at the reader anyway (inputs,
//!   outputs, and what is read there or later): casts, comparisons, selects, signs and rounding,
//!   `+`, `−`, `·`, extremes and bits; no division and no transcendental function;
//! - what is read for it is not larger than the value itself;
//! - the value has [`Remat::worth`] bytes or more.
//!
//! Guarantees: the same bits, and no operand lives longer than before. Values whose readers all
//! recompute them are left to `dead_code`.

use super::rebuild::with_programs;
use crate::{Equation, Op, Pointwise, Program, ResultMemory, Var, Vars};
use rustc_hash::FxHashMap;

/// Which values are worth recomputing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remat {
    /// Readers closer than this, in equations, read the stored value.
    pub near: usize,
    /// Values of fewer bytes are always kept.
    pub worth: usize,
}

impl Default for Remat {
    /// 16 equations, 4096 bytes.
    fn default() -> Remat {
        Remat { near: 16, worth: 4096 }
    }
}

/// Recomputes cheap values near their use.
///
/// ```
/// use pullback_ir::{Program, pass::remat};
/// let text = "program (a: bf16[64,64], b: f32[64,64]) {
///   let c: f32[64,64] = cast{f32} a
///   let d: f32[64,64] = dot c b
///   let e: f32[64,64] = add d c
///   return e
/// }";
/// let program: Program = text.parse().unwrap();
/// let ops: Vec<&str> = remat(&program).equations.iter().map(|e| e.op.name()).collect();
/// assert_eq!(ops, ["cast", "dot", "cast", "add"]);
/// ```
#[must_use]
pub fn remat(program: &Program) -> Program {
    remat_where(program, Remat::default())
}

/// Recomputes cheap values near their use, where `rule` allows it.
#[must_use]
pub fn remat_where(program: &Program, rule: Remat) -> Program {
    let facts = RematFacts::of(program, rule);
    let mut out = Program { equations: Vec::new(), ..program.clone() };
    for (at, e) in program.equations.iter().enumerate() {
        let mut e = Equation { op: with_programs(&e.op, |p| remat_where(p, rule)), ..e.clone() };
        if joins_a_region(&e.op) {
            let mut again: FxHashMap<Var, Var> = FxHashMap::default();
            for k in 0..e.inputs.len() {
                let v = e.inputs[k];
                if !again.contains_key(&v)
                    && facts.is_far(v, at)
                    && facts.is_profitable(program, v, at)
                {
                    let copy = recompute(program, &facts, &mut out, v, at, &mut again);
                    again.insert(v, copy);
                }
                e.inputs[k] = again.get(&v).copied().unwrap_or(v);
            }
        }
        out.equations.push(e);
    }
    out
}

struct RematFacts {
    rule: Remat,
    made: Vec<Option<usize>>,
    /// The last equation that needs the memory of each variable, views included.
    last: Vec<usize>,
    /// How many ops that cannot be in a region come before each equation.
    barriers: Vec<usize>,
}

impl RematFacts {
    fn of(program: &Program, rule: Remat) -> RematFacts {
        let count = program.equations.len();
        let mut last = vec![0; program.specs.len()];
        program.inputs.iter().chain(&program.outputs).for_each(|v| last[v.index()] = count);
        for (i, e) in program.equations.iter().enumerate().rev() {
            // The base of a view is needed as long as the view.
            let until = match e.op.memory() {
                ResultMemory::Operand => {
                    e.outputs.iter().map(|v| last[v.index()]).max().unwrap_or(i)
                }
                ResultMemory::Own | ResultMemory::Constant => i,
            };
            for (k, v) in e.inputs.iter().enumerate() {
                // What `after` and `wait` wait for is not kept alive by them.
                let waits = matches!(e.op, Op::After | Op::Wait | Op::Transfer(_));
                let until = if waits && k > 0 { i } else { until };
                last[v.index()] = last[v.index()].max(until);
            }
        }
        let mut barriers = Vec::with_capacity(count + 1);
        let mut so_far = 0;
        for e in &program.equations {
            barriers.push(so_far);
            so_far += usize::from(!joins_a_region(&e.op) && !costs_nothing(&e.op));
        }
        RematFacts { rule, made: program.definitions(), last, barriers }
    }

    fn is_far(&self, v: Var, reader: usize) -> bool {
        self.made[v.index()].is_some_and(|made| {
            reader - made >= self.rule.near || self.barriers[reader] > self.barriers[made]
        })
    }

    /// Whether the operand is in memory at the reader in any case.
    fn is_there(&self, program: &Program, v: Var, reader: usize) -> bool {
        let literal = self.made[v.index()].map(|i| &program.equations[i].op);
        literal.is_some_and(costs_nothing_to_repeat) || self.last[v.index()] >= reader
    }

    fn is_profitable(&self, program: &Program, v: Var, reader: usize) -> bool {
        let bytes = program.spec(v).bytes();
        if bytes < self.rule.worth {
            return false;
        }
        let Some(read) = self.read_again(program, v, reader, 2) else { return false };
        read <= bytes
    }

    /// The bytes that are read to recompute `v` by at most this many ops; `None` if not possible.
    fn read_again(&self, program: &Program, v: Var, reader: usize, ops: usize) -> Option<usize> {
        let e = &program.equations[self.made[v.index()]?];
        if ops == 0 || !is_cheap(&e.op) {
            return None;
        }
        let mut read = 0;
        for (k, &input) in e.inputs.iter().enumerate() {
            let made = self.made[input.index()].map(|i| &program.equations[i].op);
            if e.inputs[..k].contains(&input) || made.is_some_and(costs_nothing_to_repeat) {
                continue;
            }
            // `v` itself is read at the reader, so its operands must be in memory for another
            // reason.
            read += match self.is_there(program, input, reader) {
                true => program.spec(input).bytes(),
                false => self.read_again(program, input, reader, ops - 1)?,
            };
        }
        Some(read)
    }
}

fn recompute(
    program: &Program,
    facts: &RematFacts,
    out: &mut Program,
    v: Var,
    reader: usize,
    again: &mut FxHashMap<Var, Var>,
) -> Var {
    let Some(made) = facts.made[v.index()] else { return v };
    let e = &program.equations[made];
    let mut inputs = Vars::new();
    for &input in &e.inputs {
        let there = facts.is_there(program, input, reader);
        inputs.push(match again.get(&input) {
            Some(&known) => known,
            None if there => input,
            None => {
                let copy = recompute(program, facts, out, input, reader, again);
                again.insert(input, copy);
                copy
            }
        });
    }
    let copy = out.fresh(program.spec(v).clone());
    let outputs = Vars::from_slice(&[copy]);
    out.equations.push(Equation { op: e.op.clone(), inputs, outputs, at: e.at });
    copy
}

/// Ops that fusion takes into regions.
fn joins_a_region(op: &Op) -> bool {
    // A copy is meant to be stored.
    op.is_fusible() && *op != Op::Copy
}

fn costs_nothing(op: &Op) -> bool {
    op.memory() != ResultMemory::Own
}

fn costs_nothing_to_repeat(op: &Op) -> bool {
    op.memory() == ResultMemory::Constant
}

/// Whether the op is cheaper than reading its result from memory.
fn is_cheap(op: &Op) -> bool {
    match op.pointwise() {
        Some(Pointwise::Unary(f)) => f.cost() == 1,
        Some(Pointwise::Binary(f)) => f.cost() == 1,
        Some(Pointwise::Compare(_) | Pointwise::Select | Pointwise::Cast(_)) => true,
        // A derivative reads two values; a copy is meant to be stored.
        Some(Pointwise::UnaryVjp(_) | Pointwise::Copy) | None => false,
    }
}
