//! Evaluating a program with tensors: each equation goes through `apply`, so it is run, traced,
//! taped, whatever goes on outside.

use crate::apply::apply_all;
use crate::{Tensor, autocast, kinks, mode};
use pullback_ir::{Line, Op, Program, Var};

/// The results of a program for these inputs.
pub(crate) fn evaluate(program: &Program, inputs: &[Tensor]) -> Vec<Tensor> {
    evaluate_with(program, inputs, |op, operands| {
        apply_all(op.clone(), &operands.iter().collect::<Vec<_>>()).into_vec()
    })
}

/// The results of a program on values of any kind, given what an op makes of them.
pub(crate) fn evaluate_with<V: Clone>(
    program: &Program,
    inputs: &[V],
    apply: impl Fn(&Op, &[V]) -> Vec<V>,
) -> Vec<V> {
    let mut values: Vec<Option<V>> = vec![None; program.specs.len()];
    let mut left = program.uses();
    for (v, x) in program.inputs.iter().zip(inputs) {
        values[v.index()] = Some(x.clone());
    }
    let get = |values: &[Option<V>], v: Var| match &values[v.index()] {
        Some(x) => x.clone(),
        None => unreachable!("a verified program defines {v} before its use"),
    };
    for e in &program.equations {
        let operands: Vec<V> = e.inputs.iter().map(|&v| get(&values, v)).collect();
        // The program has the dtypes and the conventions that were settled when it was traced.
        let run = || on_line_of(e.at, || apply(&e.op, &operands));
        let made = autocast::off(|| kinks::off(run));
        for (v, y) in e.outputs.iter().zip(made) {
            values[v.index()] = Some(y);
        }
        // What nothing reads any more is let go.
        for v in &e.inputs {
            left[v.index()] -= 1;
            if left[v.index()] == 0 {
                values[v.index()] = None;
            }
        }
    }
    program.outputs.iter().map(|&v| get(&values, v)).collect()
}

/// Runs `f` for the line that an equation came from, where it is known.
fn on_line_of<R>(at: Option<Line>, f: impl FnOnce() -> R) -> R {
    match at {
        Some(at) => mode::with_line(at, f),
        None => f(),
    }
}
