//! What the kernels compute, against the shape rules, the naive twins, and themselves on other
//! layouts.

use super::naive::{Array, naive};
use super::samples::Sample;
use super::{Failures, all_samples, at_least, bits, on_host};
use pullback::{DType, ErrorKind, Op, Tensor, try_apply};
use pullback_ir::infer::infer;
use pullback_ir::{Padding, Span, View};

/// For every dtype in every operand: the op runs exactly if the shape rule allows it, the results
/// are as inferred, and a refusal is a sentence.
#[test]
fn inferred_specs_are_the_actual_ones() {
    let mut failures = Failures::new();
    for sample in all_samples() {
        let whole = DType::ALL.map(|dtype| sample.cast(dtype).inputs);
        let single = (0..sample.inputs.len()).flat_map(|i| {
            let inputs = &sample.inputs;
            DType::ALL.map(|dtype| {
                let mut inputs = inputs.clone();
                inputs[i] = inputs[i].cast(dtype);
                inputs
            })
        });
        for inputs in whole.into_iter().chain(single) {
            let sample = Sample { op: sample.op.clone(), inputs, check: false };
            let specs: Vec<_> = sample.inputs.iter().map(|x| x.spec()).collect();
            match (infer(&sample.op, &specs), sample.run()) {
                (Ok(inferred), Ok(actual)) => {
                    let actual: Vec<_> = actual.iter().map(|y| y.spec().clone()).collect();
                    if inferred[..] != actual[..] {
                        failures.note(&sample, format!("inferred {inferred:?}, got {actual:?}"));
                    }
                }
                (Err(error), Err(raised)) => {
                    let sentence = error.to_string();
                    let plain =
                        sentence.contains(": ") && sentence.len() > 15 && !sentence.contains("{ ");
                    let kind = matches!(
                        error.kind(),
                        ErrorKind::Shape | ErrorKind::DType | ErrorKind::Argument
                    );
                    if !plain || !kind || raised.kind() != error.kind() {
                        failures.note(&sample, format!("not a sentence: {sentence}"));
                    }
                }
                (inferred, actual) => {
                    failures
                        .note(&sample, format!("inferred {inferred:?}, got {:?}", actual.err()));
                }
            }
        }
    }
    failures.assert_none();
}

/// What an op may add to the usual tolerance.
#[derive(Clone, Copy)]
struct Slack {
    /// How many terms may be folded one after the other, in the compute type.
    terms: f64,
}

/// How far a kernel may be from the naive twin in `f64` on the same (already rounded) operands.
///
/// Kernels compute in `f64` or `f32` and round once to the dtype. So there are two parts: half a
/// unit in the last place of the dtype, relative to the value; and a few units of the compute type,
/// relative to the largest value of the result (sums of a few dozen terms cancel, and functions are
/// good to some ulp). A fold of n terms in sequence adds n half units of the compute type.
fn tolerance(dtype: DType, value: f64, scale: f64, slack: Slack) -> f64 {
    let single = f64::from(f32::EPSILON);
    let (rounding, unit, tiny) = match dtype {
        DType::F64 => (4.0 * f64::EPSILON, f64::EPSILON, 48.0 * f64::EPSILON),
        DType::F32 => (single, single, 0.0),
        // 8 bits of precision: half a unit is 2⁻⁸, and a little for values at the edge of it.
        DType::BF16 => (1.01 / 256.0, single, 0.0),
        // 11 bits of precision; below 2⁻¹⁴ the spacing is 2⁻²⁴.
        DType::F16 => (1.01 / 2048.0, single, 6e-8),
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => return 0.0,
    };
    (rounding + unit * slack.terms / 2.0) * value.abs() + 16.0 * unit * scale.max(1.0) + tiny
}

fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MAX,
        DType::F32 | DType::BF16 => 3.38e38,
        DType::F16 => 65503.0,
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => f64::INFINITY,
    }
}

/// Dense memory is folded over lanes and in blocks.
const DENSE: Slack = Slack { terms: 0.0 };

/// A reduction folds dense memory over 64 lanes, but strided memory one element after the other, in
/// blocks of up to 4096.
fn strided_slack(sample: &Sample) -> Slack {
    let terms = match &sample.op {
        Op::Reduce(_, axes) => {
            axes.iter().map(|&a| sample.inputs[0].shape()[a]).product::<usize>().min(4096)
        }
        Op::Cumulate { axis, .. } => sample.inputs[0].shape()[*axis],
        _ => 0,
    };
    Slack { terms: terms as f64 }
}

/// What differs, if anything.
fn difference(given: &Tensor, expected: &Array, slack: Slack) -> Option<String> {
    if given.shape() != expected.shape || given.dtype() != expected.dtype {
        return Some(format!("{} instead of {}{:?}", given.spec(), expected.dtype, expected.shape));
    }
    let (dtype, values) = (given.dtype(), given.to_f64_vec());
    let finite = expected.values.iter().filter(|v| v.is_finite());
    // An overflow says nothing about the other elements.
    let scale = finite.map(|v| v.abs()).filter(|v| *v < 1e4).fold(0.0, f64::max);
    for (i, (&a, &b)) in values.iter().zip(&expected.values).enumerate() {
        let alike = a == b
            || (a.is_nan() && b.is_nan())
            || (a.is_infinite() && b.abs() > largest(dtype) && (a < 0.0) == (b < 0.0))
            || (a - b).abs() <= tolerance(dtype, b, scale, slack);
        if !alike {
            return Some(format!("element {i}: {a:?} instead of {b:?}"));
        }
    }
    None
}

#[test]
fn kernels_equal_their_naive_twins() {
    // Another device has the bits of the CPU (`devices.rs`): comparing once is enough.
    if !on_host() {
        return;
    }
    let mut failures = Failures::new();
    let mut compared = 0;
    for sample in all_samples() {
        for dtype in DType::FLOATS.into_iter().chain([DType::I64]) {
            let sample = sample.cast(dtype);
            // The shape rules refuse some ops on integers; that is tested above.
            let Ok(given) = sample.run() else { continue };
            let operands: Vec<Array> = sample.inputs.iter().map(Array::of).collect();
            let Some(expected) = naive(&sample.op, &operands) else { continue };
            // Infinity as an integer is so large that arithmetic wraps, which floats do not.
            let huge = |x: &Array| x.values.iter().any(|v| v.abs() > 1e9) && x.dtype == DType::I64;
            if operands.iter().any(huge)
                && !matches!(sample.op, Op::Compare(_) | Op::Sort { .. } | Op::Ranks { .. })
            {
                continue;
            }
            assert_eq!(given.len(), expected.len());
            for (given, expected) in given.iter().zip(&expected) {
                compared += expected.values.len();
                if let Some(difference) = difference(given, expected, DENSE) {
                    failures.note(&sample, difference);
                }
            }
        }
    }
    assert!(compared > 50_000, "{compared}");
    failures.assert_none();
}

/// The same values in other places of memory, and one whose values are repeated by strides of zero.
pub fn layouts(x: &Tensor) -> Vec<(&'static str, Tensor)> {
    let rank = x.rank();
    let backwards: Vec<isize> = (0..rank as isize).rev().collect();
    let all: Vec<isize> = (0..rank as isize).collect();
    let loose: Vec<Padding> =
        (0..rank).map(|i| Padding { before: 1 + i, after: 2, between: 1 }).collect();
    let spans: Vec<Span> =
        (0..rank).map(|i| Span { start: 1 + i, len: x.shape()[i], step: 2 }).collect();
    let wide = try_apply(Op::Pad(loose.into()), &[x]).unwrap().remove(0);
    let sliced = try_apply(Op::View(View::Slice(spans.into())), &[&wide]).unwrap().remove(0);
    let mut out = vec![
        ("permuted", x.permute(backwards.clone()).deep_clone().permute(backwards)),
        ("flipped", x.flip(all.clone()).deep_clone().flip(all)),
        ("sliced", sliced),
    ];
    for axis in (0..rank).filter(|&a| x.shape()[a] > 1) {
        out.push(("broadcast", x.narrow(axis as isize, 0, 1).expand(x.shape())));
    }
    if x.len() > 1 {
        out.push((
            "splat",
            x.reshape([-1]).narrow(0, 0, 1).reshape(vec![1usize; rank]).expand(x.shape()),
        ));
    }
    out
}

/// Ops give the same bits whatever the layout of their operands, except that sums along lines and
/// products of matrices may be blocked in another order.
#[test]
fn layouts_do_not_matter() {
    let mut failures = Failures::new();
    for sample in all_samples() {
        for dtype in DType::FLOATS {
            let sample = sample.cast(dtype);
            // Some ops refuse narrow floats.
            if infer(&sample.op, &sample.inputs.iter().map(Tensor::spec).collect::<Vec<_>>())
                .is_err()
            {
                continue;
            }
            for i in 0..sample.inputs.len() {
                for (name, laid) in layouts(&sample.inputs[i]) {
                    let mut dense = sample.inputs.clone();
                    dense[i] = laid.deep_clone();
                    assert!(dense[i].is_contiguous());
                    let mut inputs = sample.inputs.clone();
                    inputs[i] = laid;
                    let run = |inputs: &[Tensor]| {
                        try_apply(sample.op.clone(), &inputs.iter().collect::<Vec<_>>())
                    };
                    let (expected, given) = (run(&dense).unwrap(), run(&inputs).unwrap());
                    for (a, b) in given.iter().zip(&expected) {
                        let near =
                            || difference(a, &Array::of(b), strided_slack(&sample)).is_none();
                        let alike = bits(a) == bits(b) || (reorders(&sample.op) && near());
                        if !alike {
                            let what = format!(
                                "operand {i} {name}: {:?} instead of {:?}",
                                a.to_f64_vec(),
                                b.to_f64_vec()
                            );
                            failures.note(&sample, what);
                        }
                    }
                }
            }
        }
    }
    failures.assert_none();
}

/// Whether an op adds up floats, in an order that may follow the layout.
pub fn reorders(op: &Op) -> bool {
    match op {
        Op::Reduce(..) | Op::Cumulate { .. } | Op::Dot | Op::Linalg(_) | Op::Fused(_) => true,
        Op::Conv(_) | Op::Pool(_) => true,
        Op::Fft(_) => false,
        Op::Collective(_) => false,
        Op::Region(_)
        | Op::DotRegion(_)
        | Op::Flow(_)
        | Op::Custom(_)
        | Op::Wait
        | Op::Transfer(_) => {
            unreachable!("not among the forms")
        }
        Op::Literal { .. }
        | Op::Iota { .. }
        | Op::Random { .. }
        | Op::Unary(_)
        | Op::UnaryVjp(_) => false,
        Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Cast(_)
        | Op::View(_)
        | Op::Copy
        | Op::To(_)
        | Op::After
        | Op::Put(_) => false,
        Op::Pad(_) | Op::Cat(_) | Op::Gather(_) | Op::Scatter(..) => false,
        Op::ArgReduce(..) | Op::Sort { .. } | Op::Ranks { .. } => false,
    }
}

/// Too few operands, too many, and operands of a strange shape: the op runs exactly if the shape
/// rule allows it, and otherwise says why.
#[test]
fn misfits_are_refused_with_a_sentence() {
    let mut failures = Failures::new();
    let mut refused = 0;
    for sample in all_samples() {
        let inputs = &sample.inputs;
        let mut lists = vec![[&inputs[..], &[Tensor::from(1.0)]].concat()];
        lists.extend((0..inputs.len()).map(|i| [&inputs[..i], &inputs[i + 1..]].concat()));
        for i in 0..inputs.len() {
            for shape in [&[][..], &[0], &[7, 1], &[2, 1, 3, 1, 1, 1, 2]] {
                let mut list = inputs.clone();
                list[i] = Tensor::zeros_with(shape, inputs[i].dtype());
                lists.push(list);
            }
        }
        for inputs in lists {
            let sample = Sample { op: sample.op.clone(), inputs, check: false };
            let specs: Vec<_> = sample.inputs.iter().map(|x| x.spec()).collect();
            match (infer(&sample.op, &specs), sample.run()) {
                (Ok(inferred), Ok(actual))
                    if inferred.iter().eq(actual.iter().map(|y| y.spec())) => {}
                (Err(error), Err(raised))
                    if error.message() == raised.message() && raised.location().is_some() =>
                {
                    refused += 1
                }
                // An index may still point outside: only the values tell.
                (Ok(_), Err(raised))
                    if raised.kind() == ErrorKind::Argument
                        && raised.message().contains("index") =>
                {
                    refused += 1
                }
                (inferred, actual) => {
                    failures.note(&sample, format!("inferred {inferred:?}, got {:?}", actual.err()))
                }
            }
        }
    }
    assert!(refused > at_least(1000), "{refused}");
    failures.assert_none();
}

/// An index outside is an error that names it, and nothing is read or written there.
#[test]
fn indices_outside_are_refused() {
    let mut failures = Failures::new();
    let indexes = |op: &Op| {
        use pullback_ir::Fused::{CrossEntropy, CrossEntropyVjp};
        matches!(op, Op::Gather(_) | Op::Scatter(..) | Op::Fused(CrossEntropy | CrossEntropyVjp))
    };
    for sample in all_samples().into_iter().filter(|s| indexes(&s.op) && !s.inputs[1].is_empty()) {
        for outside in [-1i64, 1_000_000, i64::MIN, i64::MAX] {
            let mut values = sample.inputs[1].to_vec::<i64>();
            *values.last_mut().unwrap() = outside;
            let mut inputs = sample.inputs.clone();
            inputs[1] = Tensor::from_vec(values, inputs[1].shape());
            let sample = Sample { op: sample.op.clone(), inputs, check: false };
            match sample.run() {
                Err(error)
                    if error.kind() == ErrorKind::Argument
                        && error.message().contains(&outside.to_string()) => {}
                other => failures.note(&sample, format!("index {outside} gives {:?}", other.err())),
            }
        }
    }
    failures.assert_none();
}
