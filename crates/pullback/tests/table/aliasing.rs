//! Ops write to memory of their own: also where a derivative is wanted, and the op runs as its decomposition.

use super::all_samples;
use pullback::{Op, Tensor, try_apply};

#[test]
fn no_op_but_a_view_gives_an_operands_memory() {
    let mut wrong = Vec::new();
    for sample in all_samples() {
        if matches!(sample.op, Op::View(_)) {
            continue;
        }
        for tracked in [false, true] {
            let operand = |x: &Tensor| match tracked && x.dtype().is_float() {
                true => x.deep_clone().requires_grad().deep_clone(),
                false => x.deep_clone(),
            };
            let inputs: Vec<Tensor> = sample.inputs.iter().map(operand).collect();
            // An op that has no derivative for such operands says so.
            let Ok(ys) = try_apply(sample.op.clone(), &inputs.iter().collect::<Vec<_>>()) else {
                continue;
            };
            if ys.iter().any(|y| inputs.iter().any(|x| x.shares_memory(y))) {
                wrong.push(format!("{}, tracked: {tracked}", sample.op));
            }
        }
    }
    assert!(wrong.is_empty(), "these give an operand's memory:\n{}", wrong.join("\n"));
}
