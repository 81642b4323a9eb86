//! Reorders equations to reduce peak memory.
//!
//! Greedy list scheduling: of the equations whose operands are computed, the one that frees most
//! (the last reads it does, minus its results) comes next; of several, the first in the original
//! order. What replaces an input waits for ops that may fail, and a collective for those before it.
//! Where a target runs casts that follow one another as one kernel ([`Target::joins_casts`]), those
//! of inputs come first, and those that steps of optimisers read come right before these, if that
//! takes no more memory. Views, literals and counters need no memory, but a view keeps its base
//! alive. So does `after`.
//!
//! Guarantees: deterministic; every equation stays, and stays after those it reads; [`peak_bytes`]
//! is not higher than before (an order that would raise it is discarded). Programs inside control
//! flow are reordered too. Variables are renumbered in order.

use super::Target;
use super::rebuild::with_programs;
use crate::{Equation, Op, Program, Transfer, Var};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Reorders equations to reduce peak memory.
///
/// ```
/// use pullback_ir::{Program, pass::{peak_bytes, schedule}};
/// let text = "program (a: f32[99]) {
///   let b: f32[99] = exp a
///   let c: f32[99] = sin a
///   let d: f32[] = sum{[0]} b
///   let e: f32[] = sum{[0]} c
///   return d, e
/// }";
/// let program: Program = text.parse().unwrap();
/// let ordered = schedule(&program);
/// assert_eq!(ordered.equations.iter().map(|e| e.op.name()).collect::<Vec<_>>(), ["exp", "sum", "sin", "sum"]);
/// assert!(peak_bytes(&ordered) < peak_bytes(&program));
/// ```
#[must_use]
pub fn schedule(program: &Program) -> Program {
    schedule_on(program, Target::default())
}

/// [`schedule`] for a machine.
#[must_use]
pub fn schedule_on(program: &Program, target: Target) -> Program {
    let order = greedy(program, target);
    let inside = |e: &Equation| {
        let op = with_programs(&e.op, |inside| schedule_on(inside, target));
        Equation { op, ..e.clone() }
    };
    let ordered: Vec<Equation> = order.iter().map(|&i| inside(&program.equations[i])).collect();
    let mut ordered = Program { equations: ordered, ..program.clone() };
    if peak_bytes(&ordered) >= peak_bytes(program) {
        ordered.equations = program.equations.iter().map(inside).collect();
    }
    match target.joins_casts {
        true => casts_together(ordered).renumbered(),
        false => ordered.renumbered(),
    }
}

/// With the casts of inputs first, and the casts that updates alone read right before the first
/// update, if that raises no peak. Otherwise of the casts of inputs only those whose results are in
/// memory at the peak anyway.
fn casts_together(program: Program) -> Program {
    let peak = peak(&program);
    let (roots, _) = memory(&program);
    let mut last = vec![0; program.specs.len()];
    let mut is_read_otherwise = vec![false; program.specs.len()];
    program.outputs.iter().for_each(|v| is_read_otherwise[v.index()] = true);
    let updates = |e: &Equation| matches!(e.op, Op::Fused(of) if of.updates());
    for (i, e) in program.equations.iter().enumerate() {
        for v in &e.inputs {
            last[roots[v.index()].index()] = i;
            is_read_otherwise[v.index()] |= !updates(e);
        }
    }
    let all = program.equations.len();
    let first_update = program.equations.iter().position(updates).unwrap_or(all);
    // The groups, in order: casts of inputs, what is before the updates, casts for them, the rest.
    let group = |i: usize, e: &Equation, all_inputs: bool| {
        let is_cast = matches!(e.op, Op::Cast(_));
        let stays = || all_inputs || (i <= peak.at && last[e.outputs[0].index()] >= peak.at);
        match () {
            () if is_cast && program.inputs.contains(&e.inputs[0]) && stays() => 0,
            () if i >= first_update => 3,
            () if is_cast && !is_read_otherwise[e.outputs[0].index()] => 2,
            () => 1,
        }
    };
    let grouped = |all_inputs: bool| {
        let mut order: Vec<(usize, &Equation)> = program.equations.iter().enumerate().collect();
        order.sort_by_key(|(i, e)| group(*i, e, all_inputs));
        let equations = order.into_iter().map(|(_, e)| e.clone()).collect();
        Program { equations, ..program.clone() }
    };
    let fits = |moved: &Program| peak_bytes(moved) <= peak.bytes;
    [true, false].map(grouped).into_iter().find(fits).unwrap_or(program)
}

/// The most bytes that variables other than inputs take at a time, if each is freed after its last
/// use and shares its memory with none but its views.
pub fn peak_bytes(program: &Program) -> usize {
    peak(program).bytes
}

/// The most bytes at a time, and the first equation at which there are so many.
struct Peak {
    bytes: usize,
    at: usize,
}

fn peak(program: &Program) -> Peak {
    let (roots, bytes) = memory(program);
    let mut left = reads(program, &roots);
    let (mut now, mut most) = (0, Peak { bytes: 0, at: 0 });
    for (at, e) in program.equations.iter().enumerate() {
        now += e.outputs.iter().map(|v| bytes[v.index()]).sum::<usize>();
        if now > most.bytes {
            most = Peak { bytes: now, at };
        }
        e.inputs.iter().for_each(|v| left[roots[v.index()].index()] -= 1);
        for v in distinct_roots(e.inputs.iter().chain(&e.outputs), &roots) {
            if left[v.index()] == 0 {
                now -= bytes[v.index()];
            }
        }
    }
    most
}

/// The variable whose memory each one refers to, and the bytes of that memory: zero for inputs,
/// views, and values in registers.
fn memory(program: &Program) -> (Vec<Var>, Vec<usize>) {
    let mut roots: Vec<Var> = (0..program.specs.len() as u32).map(Var).collect();
    let mut bytes = vec![0; program.specs.len()];
    for e in &program.equations {
        match e.op {
            Op::View(_) | Op::After | Op::Wait => {
                roots[e.outputs[0].index()] = roots[e.inputs[0].index()]
            }
            Op::Transfer(step) if !step.starts() => {
                roots[e.outputs[0].index()] = roots[e.inputs[0].index()]
            }
            Op::Literal { .. } | Op::Iota { .. } | Op::Transfer(Transfer::Offload) => {}
            _ => e.outputs.iter().for_each(|v| bytes[v.index()] = program.spec(*v).bytes()),
        }
    }
    (roots, bytes)
}

/// How often the memory of each root is read; outputs are read at the end.
fn reads(program: &Program, roots: &[Var]) -> Vec<usize> {
    let mut left = vec![0; program.specs.len()];
    let read = program.equations.iter().flat_map(|e| &e.inputs).chain(&program.outputs);
    read.for_each(|v| left[roots[v.index()].index()] += 1);
    left
}

fn distinct_roots<'a>(vars: impl Iterator<Item = &'a Var>, roots: &[Var]) -> SmallVec<[Var; 6]> {
    let mut found: SmallVec<[Var; 6]> = vars.map(|v| roots[v.index()]).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// What replaces an input is computed after all that may fail, where it can be: it can then be
/// written in place. Calls `edge` with what comes first and what comes after it.
pub(super) fn writers_after_failures(
    program: &Program,
    target: Target,
    made: &[Option<usize>],
    edge: &mut impl FnMut(usize, usize),
) {
    let (roots, _) = memory(program);
    let writers: Vec<usize> = (program.updates.iter())
        .filter_map(|u| made[roots[program.outputs[u.0].index()].index()])
        .collect();
    let mut needs_writer = vec![false; program.specs.len()];
    // What comes after a collective that needs a writer needs it too.
    let mut ordered_needs_writer = false;
    for (i, e) in program.equations.iter().enumerate() {
        let ordered = e.op.is_ordered();
        let reads = e.inputs.iter().any(|v| needs_writer[v.index()]);
        if writers.contains(&i) || reads || (ordered && ordered_needs_writer) {
            e.outputs.iter().for_each(|v| needs_writer[v.index()] = true);
            ordered_needs_writer |= ordered;
        }
    }
    let may_fail =
        |e: &Equation| target.may_fail(&e.op) && !e.outputs.iter().any(|v| needs_writer[v.index()]);
    for (i, _) in program.equations.iter().enumerate().filter(|(_, e)| may_fail(e)) {
        writers.iter().for_each(|&w| edge(i, w));
    }
}

fn greedy(program: &Program, target: Target) -> Vec<usize> {
    let (roots, bytes) = memory(program);
    let made = program.definitions();
    // Readers of each variable's definition, and of each root's memory.
    let mut after: Vec<Vec<u32>> = vec![Vec::new(); program.equations.len()];
    let mut readers: Vec<Vec<u32>> = vec![Vec::new(); program.specs.len()];
    let mut waits = vec![0usize; program.equations.len()];
    for (i, e) in program.equations.iter().enumerate() {
        let mut before: SmallVec<[usize; 6]> =
            e.inputs.iter().filter_map(|v| made[v.index()]).collect();
        before.sort_unstable();
        before.dedup();
        waits[i] = before.len();
        before.iter().for_each(|&m| after[m].push(i as u32));
        for root in distinct_roots(e.inputs.iter(), &roots) {
            readers[root.index()].push(i as u32);
        }
    }
    let mut edge = |from: usize, to: usize| {
        after[from].push(to as u32);
        waits[to] += 1;
    };
    writers_after_failures(program, target, &made, &mut edge);
    let is_ordered = |&i: &usize| program.equations[i].op.is_ordered();
    let ordered: Vec<usize> = (0..program.equations.len()).filter(is_ordered).collect();
    ordered.windows(2).for_each(|pair| edge(pair[0], pair[1]));
    // A root is freed by its last reader, unless the program returns it.
    let mut readers_left: Vec<usize> = readers.iter().map(Vec::len).collect();
    program.outputs.iter().for_each(|v| readers_left[roots[v.index()].index()] += 1);
    let score = |i: usize, readers_left: &[usize]| {
        let e = &program.equations[i];
        let makes: usize = e.outputs.iter().map(|v| bytes[v.index()]).sum();
        let last = |root: &Var| readers_left[root.index()] == 1;
        let freed = distinct_roots(e.inputs.iter(), &roots).into_iter().filter(last);
        let frees: usize = freed.map(|root| bytes[root.index()]).sum();
        frees as i64 - makes as i64
    };
    let mut done = vec![false; program.equations.len()];
    let mut heap: BinaryHeap<(i64, Reverse<usize>)> = (0..program.equations.len())
        .filter(|&i| waits[i] == 0)
        .map(|i| (score(i, &readers_left), Reverse(i)))
        .collect();
    let mut order = Vec::with_capacity(program.equations.len());
    while let Some((_, Reverse(i))) = heap.pop() {
        if std::mem::replace(&mut done[i], true) {
            continue;
        }
        order.push(i);
        let read = distinct_roots(program.equations[i].inputs.iter(), &roots);
        read.iter().for_each(|root| readers_left[root.index()] -= 1);
        for &next in &after[i] {
            waits[next as usize] -= 1;
            if waits[next as usize] == 0 {
                heap.push((score(next as usize, &readers_left), Reverse(next as usize)));
            }
        }
        // The last reader of a root frees it now: its old position in the heap is too low.
        for root in read.iter().filter(|root| readers_left[root.index()] == 1) {
            let last = readers[root.index()].iter().map(|&r| r as usize).find(|&r| !done[r]);
            if let Some(last) = last.filter(|&r| waits[r] == 0) {
                heap.push((score(last, &readers_left), Reverse(last)));
            }
        }
    }
    order
}
