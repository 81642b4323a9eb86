//! Control flow on many examples.
//!
//! Bodies are batched as programs: traced again, each value with the rows it has. Whether a carried
//! value has a row for each example is found by iterating to a fixed point. Where examples disagree
//! on a condition, both branches are computed and each example takes its own; a loop iterates until
//! the last example is done, and finished examples keep their values.

use super::{BatchedValue, BatchedValues};
use crate::control::{TracedProgram, apply_flow, body, share_constants, traced};
use crate::transform::evaluate_batched;
use crate::{DType, Op, Spec, Tensor, control, mode};
use pullback_ir::{Flow, Line, Program, Scan, Shape};

pub(super) fn flow(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let Op::Flow(flow) = op else { unreachable!("the row of control flow") };
    let at = mode::user_line(Line::caller());
    match &**flow {
        Flow::Cond { yes, no } => cond(yes, no, examples, n, at),
        Flow::While { test, body, shared } => while_loop(test, body, *shared, examples, n, at),
        Flow::Scan(s) => scan(s, examples, n, at),
    }
}

/// A program on many examples.
pub(crate) struct BatchedProgram {
    pub traced: TracedProgram,
    /// Which outputs have a row for each example.
    pub outputs: Vec<bool>,
}

fn batched_spec(spec: &Spec, batched: bool, n: usize) -> Spec {
    if !batched {
        return spec.clone();
    }
    let shape: Vec<usize> = std::iter::once(n).chain(spec.shape.iter().copied()).collect();
    spec.with_shape(Shape::from_slice(&shape))
}

/// Batches a program; `forced` outputs get rows also where all examples share the value.
pub(crate) fn batch_program(
    program: &Program,
    name: &'static str,
    inputs: &[bool],
    forced: &[bool],
    n: usize,
    at: Line,
) -> BatchedProgram {
    let specs: Vec<Spec> = (program.inputs.iter().zip(inputs))
        .map(|(&v, &batched)| batched_spec(program.spec(v), batched, n))
        .collect();
    let mut outputs = Vec::new();
    let (_, recorded) = body(name, &specs, at, |args| {
        let examples: Vec<BatchedValue> = (args.iter().zip(inputs))
            .map(|(x, &batched)| BatchedValue { value: x.clone(), batched })
            .collect();
        let made = evaluate_batched(program, &examples, n);
        let mut results = Vec::new();
        for (k, example) in made.iter().enumerate() {
            let rows = example.batched || forced.get(k).copied().unwrap_or(false);
            outputs.push(rows);
            results.push(if rows { example.spread(n) } else { example.value.clone() });
        }
        results
    });
    BatchedProgram { traced: traced(recorded), outputs }
}

fn flags(examples: &[BatchedValue]) -> Vec<bool> {
    examples.iter().map(|x| x.batched).collect()
}

/// A test of each example, to choose between tensors of this rank.
fn mask_of_rank(test: &Tensor, rank: usize, n: usize) -> Tensor {
    let mut shape = vec![1; rank];
    shape[0] = n;
    test.reshape(&shape[..])
}

/// The operands with each example that is not `meant` replaced by the first that is: no index is
/// out of range and no slope infinite because of an example that takes the other branch. No
/// gradient flows into the copies.
fn safe(operands: &[BatchedValue], meant: &Tensor, n: usize) -> Vec<BatchedValue> {
    let first = meant.cast(DType::I64).argmax(0).reshape([1]);
    let replace = |x: &BatchedValue| match x.batched {
        false => x.clone(),
        true => {
            let copy = x.value.detach().index_select(0, &first);
            let copy = copy.expand(x.value.shape());
            BatchedValue::batched(mask_of_rank(meant, x.value.rank(), n).select(&x.value, copy))
        }
    };
    operands.iter().map(replace).collect()
}

fn cond(
    yes: &Program,
    no: &Program,
    examples: &[BatchedValue],
    n: usize,
    at: Line,
) -> BatchedValues {
    let (test, operands) = (&examples[0], &examples[1..]);
    let given = flags(operands);
    if test.batched {
        // Each branch is computed if an example takes it, on the examples that take it; the others
        // are replaced by copies of those.
        let branch = |program: &Program, takes: &Tensor| -> Vec<Tensor> {
            let given: Vec<Tensor> =
                safe(operands, takes, n).into_iter().map(|x| x.value).collect();
            let run = |given: &Vec<Tensor>| -> Vec<Tensor> {
                let examples = given.iter().zip(operands);
                let examples: Vec<BatchedValue> = examples
                    .map(|(x, old)| BatchedValue { value: x.clone(), batched: old.batched })
                    .collect();
                evaluate_batched(program, &examples, n).iter().map(|y| y.spread(n)).collect()
            };
            let none = |_: &Vec<Tensor>| -> Vec<Tensor> {
                let spec = |&v| batched_spec(program.spec(v), true, n);
                program.outputs.iter().map(|v| Tensor::zeros_of(&spec(v))).collect()
            };
            mode::with_line(at, || control::cond(&takes.any(), run, none, &given))
        };
        let (a, b) = (branch(yes, &test.value), branch(no, &test.value.logical_not()));
        let choose = |(a, b): (Tensor, Tensor)| {
            BatchedValue::batched(mask_of_rank(&test.value, a.rank(), n).select(&a, &b))
        };
        return a.into_iter().zip(b).map(choose).collect();
    }
    let mut a = batch_program(yes, "cond", &given, &[], n, at);
    let mut b = batch_program(no, "cond", &given, &a.outputs, n, at);
    if a.outputs != b.outputs {
        a = batch_program(yes, "cond", &given, &b.outputs, n, at);
        b = batch_program(no, "cond", &given, &a.outputs, n, at);
    }
    share_constants(&mut a.traced, &mut b.traced);
    let all: Vec<&Tensor> = examples.iter().map(|x| &x.value).chain(&a.traced.constants).collect();
    let made = apply_flow(Flow::Cond { yes: a.traced.program, no: b.traced.program }, &all, at);
    made.into_iter()
        .zip(a.outputs)
        .map(|(value, batched)| BatchedValue { value, batched })
        .collect()
}

fn while_loop(
    test: &Program,
    step: &Program,
    shared: usize,
    examples: &[BatchedValue],
    n: usize,
    at: Line,
) -> BatchedValues {
    let mut given = flags(examples);
    loop {
        let continuing = batch_program(test, "while_loop", &given, &[], n, at).outputs[0];
        let mut next = batch_program(step, "while_loop", &given, &given[shared..], n, at).outputs;
        // Where examples stop at different iterations, every value of the state has rows.
        next.iter_mut().for_each(|rows| *rows |= continuing);
        if next == given[shared..] {
            break;
        }
        given.splice(shared.., next);
    }
    let state = |args: &[Tensor]| -> Vec<BatchedValue> {
        args.iter()
            .zip(&given)
            .map(|(x, &batched)| BatchedValue { value: x.clone(), batched })
            .collect()
    };
    let operands: Vec<Tensor> = (examples.iter().zip(&given))
        .map(|(x, &rows)| if rows { x.spread(n) } else { x.value.clone() })
        .collect();
    let specs: Vec<Spec> = operands.iter().map(|x| x.spec().clone()).collect();
    let continues = |examples: &[BatchedValue]| evaluate_batched(test, examples, n).swap_remove(0);
    let (_, tested) = body("while_loop", &specs, at, |args| {
        let test = continues(&state(args));
        if test.batched { test.value.any() } else { test.value }
    });
    let (_, iterated) = body("while_loop", &specs, at, |args| {
        let examples = state(args);
        let test = continues(&examples);
        // Finished examples are replaced by copies of an active one.
        let going = match test.batched {
            true => safe(&examples, &test.value, n),
            false => examples.clone(),
        };
        let made = evaluate_batched(step, &going, n);
        let old = &examples[shared..];
        let choose = |(new, old): (BatchedValue, &BatchedValue)| match (test.batched, old.batched) {
            (true, _) => {
                mask_of_rank(&test.value, old.value.rank(), n).select(new.spread(n), &old.value)
            }
            (false, true) => new.spread(n),
            (false, false) => new.value,
        };
        made.into_iter().zip(old).map(choose).collect::<Vec<Tensor>>()
    });
    // Constants of both bodies, then the shared operands, then the state.
    let (mut test, mut iteration) = (traced(tested), traced(iterated));
    share_constants(&mut test, &mut iteration);
    let constants = test.constants;
    for program in [&mut test.program, &mut iteration.program] {
        program.inputs.rotate_right(constants.len());
    }
    let all: Vec<&Tensor> = constants.iter().chain(&operands).collect();
    let flow = Flow::While {
        test: test.program.renumbered(),
        body: iteration.program.renumbered(),
        shared: constants.len() + shared,
    };
    let made = apply_flow(flow, &all, at);
    made.into_iter()
        .zip(&given[shared..])
        .map(|(value, &batched)| BatchedValue { value, batched })
        .collect()
}

fn scan(scan: &Scan, examples: &[BatchedValue], n: usize, at: Line) -> BatchedValues {
    let (fixed, carried) = (scan.shared, scan.shared + scan.carry);
    let mut given = flags(examples);
    let iteration = loop {
        let iteration = batch_program(&scan.body, "scan", &given, &given[fixed..carried], n, at);
        if iteration.outputs[..scan.carry] == given[fixed..carried] {
            break iteration;
        }
        given.splice(fixed..carried, iteration.outputs[..scan.carry].iter().copied());
    };
    // Rows of sequences come first, examples second.
    let swapped = |x: &Tensor| {
        let order: Vec<isize> = [1, 0].into_iter().chain(2..x.rank() as isize).collect();
        x.permute(&order[..])
    };
    let operand = |(i, example): (usize, &BatchedValue)| match (given[i], i >= carried) {
        (true, true) => swapped(&example.spread(n)),
        (true, false) => example.spread(n),
        (false, _) => example.value.clone(),
    };
    let operands: Vec<Tensor> = examples.iter().enumerate().map(operand).collect();
    let TracedProgram { program: mut body, constants } = iteration.traced;
    body.inputs.rotate_right(constants.len());
    let shared = scan.shared + constants.len();
    let all: Vec<&Tensor> = constants.iter().chain(&operands).collect();
    // A value saved for an inner derivative is an ordinary result for an outer one.
    let flow = Flow::Scan(Scan { body: body.renumbered(), shared, kept: 0, ..scan.clone() });
    let made = apply_flow(flow, &all, at);
    let example =
        |(k, (value, &batched)): (usize, (Tensor, &bool))| match batched && k >= scan.carry {
            true => BatchedValue::batched(swapped(&value)),
            false => BatchedValue { value, batched },
        };
    made.into_iter().zip(&iteration.outputs).enumerate().map(example).collect()
}
