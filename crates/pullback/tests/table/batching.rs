//! Every op over many examples at once, against a loop over the examples: the values, the
//! gradients, and examples of which there are none.

use super::samples::Sample;
use super::{Failures, all_samples, at_least, bits, is_full};
use pullback::table::batched;
use pullback::{Backward, DType, Op, Program, Spec, Tensor, catch, stack, trace, try_apply};
use pullback_ir::{Combine, Fused, Linalg, Pooling, Reduction};

/// How many examples there are.
const LANES: usize = 3;

/// Example `j` of an operand: other values, as valid as those of the sample.
fn example(op: &Op, x: &Tensor, j: usize) -> Tensor {
    let draws = |f: &Fused| matches!(f, Fused::Attention(_) | Fused::AttentionVjp(_));
    let draws = matches!(op, Op::Random { .. }) || matches!(op, Op::Fused(f) if draws(f));
    let whole = x.dtype() == DType::I64 && (draws || x.rank() == 0);
    if whole {
        // A key, or the number of a step.
        return x + j as i64;
    }
    if matches!(op, Op::Linalg(_)) || x.rank() == 0 {
        // A matrix stays definite and its pivots stay what they are.
        return if x.dtype().is_float() { x * (1.0 - 0.1 * j as f64) } else { x.clone() };
    }
    // The same values in other places: in the domain of the function, and in the range of indices.
    x.reshape([-1]).roll(j as isize, 0).reshape(x.shape())
}

/// Sets of operands that are batched: each alone, and all.
fn choices(operands: usize) -> Vec<Vec<bool>> {
    let mut out: Vec<Vec<bool>> =
        (0..operands).map(|i| (0..operands).map(|j| i == j).collect()).collect();
    if operands > 1 {
        out.push(vec![true; operands]);
    }
    if operands > 2 {
        // All but one: what is shared beside several that are not.
        out.extend((0..operands).map(|i| (0..operands).map(|j| i != j).collect()));
    }
    out
}

/// A sample over many examples: the operands of each, and those of all.
struct Many {
    each: Vec<Vec<Tensor>>,
    all: Vec<(Tensor, bool)>,
}

fn many(sample: &Sample, chosen: &[bool], n: usize) -> Many {
    let lane = |j: usize| {
        let one = |(x, &c): (&Tensor, &bool)| match c {
            true => example(&sample.op, x, j),
            false => x.clone(),
        };
        sample.inputs.iter().zip(chosen).map(one).collect::<Vec<_>>()
    };
    let each: Vec<Vec<Tensor>> = (0..n).map(lane).collect();
    let join = |i: usize| match chosen[i] {
        true => (stack(&each.iter().map(|x| &x[i]).collect::<Vec<_>>(), 0), true),
        false => (sample.inputs[i].clone(), false),
    };
    let all = (0..chosen.len()).map(join).collect();
    Many { each, all }
}

/// Whether each element comes about in the same way whatever is beside it. Otherwise sums are taken
/// in blocks that depend on the shape of all, or by another formula.
fn exact(op: &Op, chosen: &[bool]) -> bool {
    match op {
        Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } => true,
        Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) => true,
        Op::Select | Op::Cast(_) | Op::View(_) | Op::Copy | Op::To(_) | Op::After => true,
        Op::Put(_) | Op::Pad(_) | Op::Cat(_) | Op::Gather(_) => true,
        Op::Scatter(_, combine) => !matches!(combine, Combine::Add | Combine::Mul),
        Op::Reduce(kind, _) => matches!(kind, Reduction::Max | Reduction::Min),
        Op::ArgReduce(..) | Op::Sort { .. } | Op::Ranks { .. } => true,
        Op::Cumulate { .. } => true,
        Op::Dot | Op::Conv(_) => false,
        Op::Pool(pool) => match &pool.kind {
            Pooling::Sum | Pooling::Spread(_) | Pooling::ArgMax => true,
            Pooling::Take | Pooling::Give(_) => true,
        },
        Op::Linalg(f) => !matches!(f, Linalg::TriangularSolve { .. } | Linalg::LuSolve { .. }),
        Op::Fft(_) => true,
        Op::Fused(f) => match f {
            Fused::Softmax(_) | Fused::LogSoftmax(_) | Fused::LogSumExp(_) => true,
            Fused::SoftmaxVjp(_) | Fused::LogSoftmaxVjp(_) => true,
            // One weight and one bias are the kernel's.
            Fused::LayerNorm(_) => !chosen[1] && !chosen[2],
            Fused::LayerNormVjp(_) => false,
            Fused::BatchNorm(_) | Fused::BatchNormVjp(_) => false,
            Fused::CrossEntropy => true,
            // All by the kernel, unless only `dy` is batched.
            Fused::CrossEntropyVjp => chosen[0] || chosen[1],
            Fused::Attention(_) | Fused::AttentionVjp(_) => false,
            Fused::Distances { .. } | Fused::DistancesVjp { .. } => true,
            Fused::Ctc { .. } | Fused::CtcVjp { .. } => true,
            // At one step and rate, all by the kernel.
            Fused::Sgd(how) => {
                !chosen.iter().rev().take(1 + usize::from(how.remembers())).any(|&c| c)
            }
            Fused::Adam(_) => !chosen.iter().rev().take(2).any(|&c| c),
        },
        Op::Collective(_) => false,
        // Of these there are no samples.
        Op::Region(_) | Op::DotRegion(_) | Op::Flow(_) | Op::Custom(_) => false,
        Op::Wait | Op::Transfer(_) => false,
    }
}

/// How far apart two ways to compute a value may be: as far as two kernels that are each within 16
/// units of the compute type, relative to the largest value, of the exact result (as `kernels.rs`
/// asks of them), and a unit of the dtype for a rounding that falls on the other side.
fn tolerance(dtype: DType, value: f64, scale: f64) -> f64 {
    let single = f64::from(f32::EPSILON);
    let (rounding, unit, tiny) = match dtype {
        DType::F64 => (f64::EPSILON, f64::EPSILON, 0.0),
        DType::F32 => (single, single, 0.0),
        DType::BF16 => (1.0 / 128.0, single, 0.0),
        DType::F16 => (1.0 / 1024.0, single, 6e-8),
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => return 0.0,
    };
    rounding * value.abs() + 32.0 * unit * scale.max(1.0) + tiny
}

/// What differs, if anything.
fn difference(given: &Tensor, expected: &Tensor, exact: bool) -> Option<String> {
    if given.spec() != expected.spec() {
        return Some(format!("{} instead of {}", given.spec(), expected.spec()));
    }
    if exact {
        return (bits(given) != bits(expected)).then(|| "other bits".to_string());
    }
    let (a, b) = (given.to_f64_vec(), expected.to_f64_vec());
    let finite = b.iter().filter(|v| v.is_finite());
    // An overflow says nothing about the other elements.
    let scale = finite.map(|v| v.abs()).filter(|v| *v < 1e4).fold(0.0, f64::max);
    let far = |(a, b): &(&f64, &f64)| {
        let alike = a == b || (a.is_nan() && b.is_nan());
        // NaN is far from everything.
        let near = (**a - **b).abs() <= tolerance(given.dtype(), **b, scale);
        !alike && !near
    };
    a.iter().zip(&b).find(far).map(|(a, b)| format!("{a} instead of {b}"))
}

#[test]
fn many_examples_at_once_are_as_each_alone() {
    let mut failures = Failures::new();
    let (mut compared, mut shared) = (0, 0);
    for sample in all_samples() {
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
            let sample = sample.cast(dtype);
            // Not every op takes every float.
            if sample.run().is_err() {
                continue;
            }
            for chosen in choices(sample.inputs.len()) {
                for n in [LANES, 1] {
                    let many = many(&sample, &chosen, n);
                    let given = match catch(|| batched(&sample.op, &many.all, n)) {
                        Ok(given) => given,
                        Err(error) => {
                            failures.note(&sample, format!("{dtype} {chosen:?}: {error}"));
                            continue;
                        }
                    };
                    for (j, inputs) in many.each.iter().enumerate() {
                        let expected =
                            try_apply(sample.op.clone(), &inputs.iter().collect::<Vec<_>>());
                        for (k, (expected, (given, lanes))) in
                            expected.unwrap().iter().zip(&given).enumerate()
                        {
                            let whole = [&[n], expected.shape()].concat();
                            let lane = match lanes {
                                true if given.shape() != whole => {
                                    let what = format!("{chosen:?}: a result {}", given.spec());
                                    failures.note(&sample, what);
                                    continue;
                                }
                                true => given.select_at(0, j as isize),
                                false => given.clone(),
                            };
                            compared += 1;
                            shared += usize::from(!lanes);
                            if let Some(why) =
                                difference(&lane, expected, exact(&sample.op, &chosen))
                            {
                                let place = format!("{dtype} {chosen:?}, example {j} of {n}");
                                failures.note(&sample, format!("{place}, result {k}: {why}"));
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(
        compared > at_least(50_000) && shared > at_least(100),
        "{compared} compared, {shared} shared"
    );
    failures.assert_none();
}

#[test]
fn what_no_example_changes_is_computed_once() {
    for sample in all_samples() {
        let shared: Vec<(Tensor, bool)> =
            sample.inputs.iter().map(|x| (x.clone(), false)).collect();
        let expected = sample.run().unwrap();
        for ((given, lanes), expected) in batched(&sample.op, &shared, LANES).iter().zip(&expected)
        {
            assert!(!lanes && bits(given) == bits(expected), "{}", sample.op);
        }
    }
}

#[test]
fn of_no_examples_there_are_no_results() {
    let mut failures = Failures::new();
    for sample in all_samples() {
        let expected = sample.run().unwrap();
        for chosen in choices(sample.inputs.len()) {
            let none = |(x, &c): (&Tensor, &bool)| match c {
                true => (Tensor::zeros_with([&[0], x.shape()].concat(), x.dtype()), true),
                false => (x.clone(), false),
            };
            let operands: Vec<_> = sample.inputs.iter().zip(&chosen).map(none).collect();
            match catch(|| batched(&sample.op, &operands, 0)) {
                Ok(given) => {
                    for ((given, lanes), expected) in given.iter().zip(&expected) {
                        let shape = match lanes {
                            true => [&[0], expected.shape()].concat(),
                            false => expected.shape().to_vec(),
                        };
                        if given.shape() != shape || given.dtype() != expected.dtype() {
                            failures.note(&sample, format!("{chosen:?}: {}", given.spec()));
                        }
                    }
                }
                Err(error) => failures.note(&sample, format!("{chosen:?}: {error}")),
            }
        }
    }
    failures.assert_none();
}

/// The gradients of `outs` with rising cotangents.
fn gradients(outs: &[Tensor], leaves: &[&Tensor]) -> pullback::Result<Vec<Vec<f64>>> {
    let outs: Vec<&Tensor> =
        outs.iter().filter(|y| y.dtype().is_float() && y.is_tracked()).collect();
    if outs.is_empty() {
        return Ok(Vec::new());
    }
    let ramp = |y: &&Tensor| {
        let values = (0..y.len()).map(|k| 0.5 + (k % 7) as f64 * 0.25).collect::<Vec<f64>>();
        Tensor::from_vec(values, y.shape())
    };
    let cotangents: Vec<Tensor> = outs.iter().map(ramp).collect();
    let backward = Backward::of_all(&outs).cotangents(&cotangents.iter().collect::<Vec<_>>());
    Ok(backward.allow_unused().wrt(leaves)?.iter().map(Tensor::to_f64_vec).collect())
}

/// What `batch` does is differentiated like anything else, with respect to what is batched and what
/// is shared.
#[test]
fn gradients_of_many_examples_are_those_of_a_loop() {
    let mut failures = Failures::new();
    let mut compared = 0;
    for sample in all_samples().into_iter().filter(|s| s.check) {
        for chosen in choices(sample.inputs.len()) {
            let many = many(&sample, &chosen, LANES);
            let leaf = |(x, lanes): &(Tensor, bool)| match x.dtype().is_float() {
                true => (x.detach().requires_grad(), *lanes),
                false => (x.clone(), *lanes),
            };
            let leaves: Vec<(Tensor, bool)> = many.all.iter().map(leaf).collect();
            let floats: Vec<&Tensor> =
                leaves.iter().map(|x| &x.0).filter(|x| x.is_tracked()).collect();
            if floats.is_empty() {
                continue;
            }
            let given = batched(&sample.op, &leaves, LANES);
            let each = |j: usize| {
                let one = |(x, lanes): &(Tensor, bool)| match lanes {
                    true => x.select_at(0, j as isize),
                    false => x.clone(),
                };
                let inputs: Vec<Tensor> = leaves.iter().map(one).collect();
                try_apply(sample.op.clone(), &inputs.iter().collect::<Vec<_>>()).unwrap()
            };
            let lanes: Vec<Vec<Tensor>> = (0..LANES).map(each).collect();
            // What all examples share is counted once.
            let whole = |k: usize| match given[k].1 {
                true => stack(&lanes.iter().map(|y| &y[k]).collect::<Vec<_>>(), 0),
                false => lanes[0][k].clone(),
            };
            let expected: Vec<Tensor> = (0..given.len()).map(whole).collect();
            let given: Vec<Tensor> = given.into_iter().map(|y| y.0).collect();
            let (a, b) = (gradients(&given, &floats), gradients(&expected, &floats));
            let (a, b) = match (a, b) {
                (Ok(a), Ok(b)) => (a, b),
                (a, b) => {
                    failures.note(&sample, format!("{chosen:?}: {:?} and {:?}", a.err(), b.err()));
                    continue;
                }
            };
            compared += a.len();
            // Sums of a few dozen terms in another order.
            let near = |(a, b): (&f64, &f64)| {
                (a - b).abs() <= 1e-11 * b.abs().max(1.0) || a == b || (a.is_nan() && b.is_nan())
            };
            let alike = a.len() == b.len() && a.iter().flatten().zip(b.iter().flatten()).all(near);
            if !alike {
                failures.note(&sample, format!("{chosen:?}: {a:?} instead of {b:?}"));
            }
        }
    }
    assert!(compared > at_least(1_000), "{compared}");
    failures.assert_none();
}

/// The equations of a program, each over many examples: what `vmap` does with a function.
fn evaluate(program: &Program, inputs: &[(Tensor, bool)], n: usize) -> Vec<(Tensor, bool)> {
    let mut values: Vec<Option<(Tensor, bool)>> = vec![None; program.specs.len()];
    for (v, x) in program.inputs.iter().zip(inputs) {
        values[v.index()] = Some(x.clone());
    }
    for e in &program.equations {
        let operands: Vec<_> =
            e.inputs.iter().map(|v| values[v.index()].clone().expect("defined before")).collect();
        for (v, y) in e.outputs.iter().zip(batched(&e.op, &operands, n)) {
            values[v.index()] = Some(y);
        }
    }
    program.outputs.iter().map(|v| values[v.index()].clone().expect("defined")).collect()
}

/// What `batch` does is traced like anything else, and can be batched again: two examples of three
/// examples of each op.
#[test]
fn examples_of_examples_are_as_each_alone() {
    const OUTER: usize = 2;
    let mut failures = Failures::new();
    let mut compared = 0;
    let small = |s: &Sample| s.inputs.iter().all(|x| x.len() < 4000);
    for sample in all_samples().into_iter().filter(small) {
        let all = &choices(sample.inputs.len());
        let pairs = all.iter().enumerate().flat_map(|(i, a)| {
            // On the second device each is inner once and outer once.
            let wanted = move |j: usize| is_full() || i + j + 1 == all.len();
            all.iter().enumerate().filter(move |(j, _)| wanted(*j)).map(move |(_, b)| (a, b))
        });
        for (inner, outer) in pairs {
            // Operand i of inner example j and outer example k.
            let operand = |i: usize, j: usize, k: usize| {
                let number = if inner[i] { j } else { 0 } + if outer[i] { LANES * k } else { 0 };
                example(&sample.op, &sample.inputs[i], number)
            };
            let count = sample.inputs.len();
            let over_inner = |i: usize, k: usize| match inner[i] {
                true => {
                    let each: Vec<Tensor> = (0..LANES).map(|j| operand(i, j, k)).collect();
                    stack(&each.iter().collect::<Vec<_>>(), 0)
                }
                false => operand(i, 0, k),
            };
            let over_outer = |i: usize| match outer[i] {
                true => {
                    let each: Vec<Tensor> = (0..OUTER).map(|k| over_inner(i, k)).collect();
                    (stack(&each.iter().collect::<Vec<_>>(), 0), true)
                }
                false => (over_inner(i, 0), false),
            };
            let specs: Vec<Spec> = (0..count).map(|i| over_inner(i, 0).spec().clone()).collect();
            let mut lanes = Vec::new();
            let program = trace(
                |x: &[Tensor]| {
                    let operands: Vec<_> = x.iter().cloned().zip(inner.iter().copied()).collect();
                    let made = batched(&sample.op, &operands, LANES);
                    lanes = made.iter().map(|y| y.1).collect();
                    made.into_iter().map(|y| y.0).collect::<Vec<Tensor>>()
                },
                &specs,
            )
            .unwrap();
            let given = catch(|| {
                evaluate(&program, &(0..count).map(over_outer).collect::<Vec<_>>(), OUTER)
            });
            let given = match given {
                Ok(given) => given,
                Err(error) => {
                    failures.note(&sample, format!("{inner:?} in {outer:?}: {error}\n{program}"));
                    continue;
                }
            };
            for (j, k) in (0..LANES).flat_map(|j| (0..OUTER).map(move |k| (j, k))) {
                let inputs: Vec<Tensor> = (0..count).map(|i| operand(i, j, k)).collect();
                let expected =
                    try_apply(sample.op.clone(), &inputs.iter().collect::<Vec<_>>()).unwrap();
                for ((expected, (given, outer_lanes)), inner_lanes) in
                    expected.iter().zip(&given).zip(&lanes)
                {
                    let mut lane = given.clone();
                    if *outer_lanes {
                        lane = lane.select_at(0, k as isize);
                    }
                    if *inner_lanes {
                        lane = lane.select_at(0, j as isize);
                    }
                    compared += 1;
                    if let Some(why) = difference(&lane, expected, false) {
                        let place = format!("{inner:?} in {outer:?}, example {j} of {k}");
                        failures.note(&sample, format!("{place}: {why}"));
                    }
                }
            }
        }
    }
    assert!(compared > at_least(50_000), "{compared}");
    failures.assert_none();
}
