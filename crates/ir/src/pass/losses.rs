//! Takes the losses of a cross-entropy from the op that computes its gradient.
//!
//! [`CrossEntropyVjp`](Fused::CrossEntropyVjp) needs the log-sum-exp of each row, and so has the
//! losses as a second result. Where a program needs both, the first op is left out, and with it one
//! pass over the logits, which are the largest value of a language model. The gradient, and what it
//! needs, then comes where the losses were.
//!
//! Applied where the cotangent depends neither on the losses nor on a collective behind them, as
//! that of a mean or of a scaled sum does not.
//!
//! Guarantees: the same bits. Idempotent.

use super::rebuild::Rebuild;
use crate::{Equation, Fused, Op, Program};
use rustc_hash::FxHashMap;

/// Takes losses from the op that computes their gradient.
///
/// ```
/// use pullback_ir::{Program, pass::losses};
/// let text = "program (x: f32[8,16], c: i64[8], g: f32[8]) {
///   let l: f32[8] = cross_entropy x c
///   let dx: f32[8,16], y: f32[8] = vjp.cross_entropy x c g
///   return l, dx
/// }";
/// let program: Program = text.parse().unwrap();
/// assert_eq!(losses(&program).equations.len(), 1);
/// ```
#[must_use]
pub fn losses(program: &Program) -> Program {
    let joined = joined(program);
    let mut new = Rebuild::new(program);
    let mut done = vec![false; program.equations.len()];
    for (i, e) in program.equations.iter().enumerate() {
        let Some(before) = joined.get(&i) else {
            if !std::mem::replace(&mut done[i], true) {
                new.keep(e, losses);
            }
            continue;
        };
        for &j in before {
            if !std::mem::replace(&mut done[j], true) {
                new.keep(&program.equations[j], losses);
            }
        }
        let gradient = before.last().map(|&j| &program.equations[j].outputs);
        if let Some([_, found]) = gradient.map(|outputs| &outputs[..]) {
            let found = new.var(*found);
            new.alias(e.outputs[0], found);
        }
    }
    new.finish()
}

/// For each loss that a gradient can give, the equations that take its place: what the gradient
/// needs, and the gradient.
fn joined(program: &Program) -> FxHashMap<usize, Vec<usize>> {
    let mut gradients = FxHashMap::default();
    for (j, e) in program.equations.iter().enumerate() {
        if e.op == Op::Fused(Fused::CrossEntropyVjp) {
            gradients.entry((e.inputs[0], e.inputs[1])).or_insert(j);
        }
    }
    let is_loss = |e: &Equation| e.op == Op::Fused(Fused::CrossEntropy);
    let pair = |(i, e): (usize, &Equation)| {
        let operands = is_loss(e).then(|| (e.inputs[0], e.inputs[1]))?;
        let before = behind(program, i, *gradients.get(&operands)?)?;
        let movable = |&k: &usize| {
            let e = &program.equations[k];
            !e.op.is_ordered() && !is_loss(e)
        };
        before.iter().all(movable).then_some((i, before))
    };
    program.equations.iter().enumerate().filter_map(pair).collect()
}

/// The equations behind equation `i` that equation `j` needs, and `j`, in order; `None` if `i` is
/// one of them.
fn behind(program: &Program, i: usize, j: usize) -> Option<Vec<usize>> {
    let made = program.definitions();
    let mut is_found = vec![false; j + 1];
    let (mut found, mut open) = (vec![j], vec![j]);
    while let Some(k) = open.pop() {
        let needed = program.equations[k].inputs.iter().filter_map(|v| made[v.index()]);
        for k in needed.filter(|&k| k >= i) {
            if k == i {
                return None;
            }
            if !std::mem::replace(&mut is_found[k], true) {
                found.push(k);
                open.push(k);
            }
        }
    }
    found.sort_unstable();
    Some(found)
}
