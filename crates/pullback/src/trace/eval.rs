//! Evaluating a program with tensors: each equation goes through `apply`, so it is run, traced, taped, whatever goes on outside.

use crate::apply::apply_all;
use crate::{Tensor, mode};
use pullback_ir::{Place, Program};

/// The results of a program for these inputs.
pub(crate) fn evaluate(program: &Program, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut values: Vec<Option<Tensor>> = vec![None; program.specs.len()];
    let mut left = program.uses();
    for (&v, x) in program.inputs.iter().zip(inputs) {
        values[v.index()] = Some(x.clone());
    }
    let get = |values: &[Option<Tensor>], v: pullback_ir::Var| match &values[v.index()] {
        Some(x) => x.clone(),
        None => unreachable!("a verified program defines {v} before its use"),
    };
    for e in &program.equations {
        let operands: Vec<Tensor> = e.inputs.iter().map(|&v| get(&values, v)).collect();
        let refs: Vec<&Tensor> = operands.iter().collect();
        let made = speaking(e.at, || apply_all(e.op.clone(), &refs));
        for (&v, y) in e.outputs.iter().zip(made) {
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
pub(crate) fn speaking<R>(at: Option<Place>, f: impl FnOnce() -> R) -> R {
    match at.and_then(|at| at.location()) {
        Some(at) => mode::speaking_for(at, f),
        None => f(),
    }
}
