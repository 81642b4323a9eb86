//! Dead-code elimination: drops what no result needs.
//!
//! Guarantees: an equation stays if and only if one of its results is read by an equation that
//! stays, or is an output of the program, or other workers take part in it. In control flow, unused
//! results are no longer computed where the loop or branch does not need them itself, and operands
//! that no program inside reads are no longer passed. Inputs of the program stay, read or not.
//! Variables are renumbered in order. Idempotent.

use crate::{Equation, Flow, Op, Program, Scan, Var, Vars};
use std::sync::Arc;

/// Dead-code elimination: drops what no result needs.
///
/// ```
/// use pullback_ir::{Program, pass::dead_code};
/// let program: Program = "program (a: f32[]) { let b: f32[] = exp a; let c: f32[] = neg a; return c }".parse().unwrap();
/// assert_eq!(dead_code(&program).to_string(), "program (a: f32[]) {\n  let b: f32[] = neg a\n  return b\n}\n");
/// ```
#[must_use]
pub fn dead_code(program: &Program) -> Program {
    let mut live = vec![false; program.specs.len()];
    program.outputs.iter().for_each(|v| live[v.index()] = true);
    let mut kept: Vec<Equation> = Vec::with_capacity(program.equations.len());
    for e in program.equations.iter().rev() {
        let read = e.outputs.iter().any(|v| live[v.index()]);
        if !read && !e.op.is_ordered() {
            continue;
        }
        let e = match &e.op {
            // What runs only for other workers keeps its results: an equation has at least one.
            Op::Flow(flow) if read => trimmed(e, flow, &live),
            _ => e.clone(),
        };
        e.inputs.iter().for_each(|v| live[v.index()] = true);
        kept.push(e);
    }
    kept.reverse();
    Program { equations: kept, ..program.clone_without_equations() }.renumbered()
}

impl Program {
    fn clone_without_equations(&self) -> Program {
        Program {
            specs: self.specs.clone(),
            inputs: self.inputs.clone(),
            equations: Vec::new(),
            outputs: self.outputs.clone(),
            updates: self.updates.clone(),
        }
    }
}

/// Control flow without unused results and without operands that nothing inside reads.
fn trimmed(e: &Equation, flow: &Flow, live: &[bool]) -> Equation {
    // A state or a carry is read by the next iteration, if anything read outside depends on it; any
    // other result is read only outside.
    let carries = live_carries(e, flow, live);
    let fixed = carries.len();
    let wanted: Vec<bool> = (e.outputs.iter().enumerate())
        .map(|(i, v)| if i < fixed { carries[i] } else { live[v.index()] })
        .collect();
    let (kind, mut number) = (flow, 0);
    let flow = flow.map_programs(&mut |program| {
        let mut program = program.clone();
        // The condition of a loop has its own result.
        if !(matches!(kind, Flow::While { .. }) && number == 0) {
            program.outputs = picked(&program.outputs, &wanted);
        }
        number += 1;
        dead_code(&program)
    });
    // Operands that may be removed: those that are only passed on, and removed carries.
    let (before, first_carry) = match &flow {
        Flow::Cond { .. } => (1, 0),
        Flow::While { shared, .. } => (0, *shared),
        Flow::Scan(scan) => (0, scan.shared),
    };
    let carry = |i: usize| i.checked_sub(first_carry).and_then(|k| carries.get(k)).copied();
    let reads: Vec<Vec<usize>> = flow.programs().iter().map(|program| program.uses()).collect();
    let read = |i: usize| {
        let programs = flow.programs();
        programs.iter().zip(&reads).any(|(program, uses)| uses[program.inputs[i].index()] > 0)
    };
    let count = e.inputs.len() - before;
    let stays: Vec<bool> = (0..count).map(|i| carry(i).unwrap_or_else(|| read(i))).collect();
    let without = |program: &Program| {
        let inputs = picked(&program.inputs, &stays);
        Program { inputs, ..program.clone() }.renumbered()
    };
    let shared_left = |shared: usize| stays[..shared].iter().filter(|&&s| s).count();
    let flow = match flow.map_programs(&mut |program| without(program)) {
        Flow::While { test, body, shared } => {
            Flow::While { test, body, shared: shared_left(shared) }
        }
        // What was saved for a backward pass is an ordinary result by now.
        Flow::Scan(scan) => Flow::Scan(Scan {
            shared: shared_left(scan.shared),
            carry: carries.iter().filter(|&&c| c).count(),
            kept: 0,
            ..scan
        }),
        cond @ Flow::Cond { .. } => cond,
    };
    let mut inputs = Vars::from_slice(&e.inputs[..before]);
    inputs.extend(picked(&e.inputs[before..], &stays));
    let outputs = Vars::from_vec(picked(&e.outputs, &wanted));
    Equation { op: Op::Flow(Arc::new(flow)), inputs, outputs, at: e.at }
}

/// Which carried values are needed: by what is read outside, or by the loop's condition.
fn live_carries(e: &Equation, flow: &Flow, live: &[bool]) -> Vec<bool> {
    let (body, shared, count) = match flow {
        Flow::Cond { .. } => return Vec::new(),
        Flow::While { body, shared, .. } => (body, *shared, body.outputs.len()),
        Flow::Scan(scan) => (&scan.body, scan.shared, scan.carry),
    };
    let mut carries: Vec<bool> = e.outputs[..count].iter().map(|v| live[v.index()]).collect();
    if let Flow::While { test, .. } = flow {
        let read = backward_slice(test, &vec![true; test.outputs.len()]);
        (0..count).for_each(|k| carries[k] |= read[test.inputs[shared + k].index()]);
    }
    loop {
        let wanted: Vec<bool> = (e.outputs.iter().enumerate())
            .map(|(i, v)| if i < count { carries[i] } else { live[v.index()] })
            .collect();
        let read = backward_slice(body, &wanted);
        let more: Vec<bool> =
            (0..count).map(|k| carries[k] || read[body.inputs[shared + k].index()]).collect();
        if more == carries {
            return carries;
        }
        carries = more;
    }
}

/// The variables that the needed outputs depend on, and those that other workers take part in.
fn backward_slice(program: &Program, wanted: &[bool]) -> Vec<bool> {
    let mut live = vec![false; program.specs.len()];
    picked(&program.outputs, wanted).iter().for_each(|v| live[v.index()] = true);
    for e in program.equations.iter().rev() {
        if e.op.is_ordered() || e.outputs.iter().any(|v| live[v.index()]) {
            e.inputs.iter().for_each(|v| live[v.index()] = true);
        }
    }
    live
}

fn picked(vars: &[Var], which: &[bool]) -> Vec<Var> {
    vars.iter().zip(which).filter(|(_, keep)| **keep).map(|(v, _)| *v).collect()
}
