//! Derivatives of every op: against numbers, in both modes, to the second order; and that the tape
//! keeps what they need and they need nothing else.

use super::kernels::layouts;
use super::samples::Sample;
use super::{Failures, all_samples, at_least, bits};
use pullback::check::Check;
use pullback::{Backward, ErrorKind, Op, Tensor, catch, no_grad, try_apply};
use pullback_ir::{Binary, Fused, Reduction, Unary};

/// Reverse and forward mode against central differences, and both again for the gradient itself.
#[test]
fn derivatives_equal_difference_quotients_to_the_second_order() {
    let mut failures = Failures::new();
    let mut compared = 0;
    for sample in all_samples().into_iter().filter(|s| s.check) {
        let f = |xs: &Vec<Tensor>| {
            try_apply(sample.op.clone(), &xs.iter().collect::<Vec<_>>()).unwrap()
        };
        // 1e-6: the error of the fourth-order quotient with a step of 1e-3, and 1e-8 that of its
        // rounding.
        let check = Check::new().order(2).tolerance(1e-6, 1e-8);
        match catch(|| check.run(f, &sample.inputs)) {
            Ok(Ok(report)) => compared += report.compared,
            Ok(Err(error)) | Err(error) => failures.note(&sample, error),
        }
    }
    assert!(compared > at_least(5_000), "{compared}");
    failures.assert_none();
}

/// The results of a sample on fresh leaves, and copies of them through which to go backward:
/// overwriting a result leaves its copy alone.
struct Forward {
    leaves: Vec<Tensor>,
    outs: Vec<Tensor>,
    copies: Vec<Tensor>,
    cotangents: Vec<Tensor>,
}

impl Forward {
    fn of(sample: &Sample) -> Forward {
        // By the first operand of these the derivative is refused.
        let refused = |i: usize| {
            use Binary::{Gammainc, Gammaincc, Zeta};
            i == 0 && matches!(sample.op, Op::Binary(Zeta | Gammainc | Gammaincc))
        };
        let leaf = |(i, x): (usize, &Tensor)| match x.dtype().is_float() && !refused(i) {
            true => x.deep_clone().requires_grad(),
            false => x.deep_clone(),
        };
        let leaves: Vec<Tensor> = sample.inputs.iter().enumerate().map(leaf).collect();
        let outs = try_apply(sample.op.clone(), &leaves.iter().collect::<Vec<_>>()).unwrap();
        let floats = outs.iter().filter(|y| y.dtype().is_float() && y.is_tracked());
        let copies: Vec<Tensor> =
            floats.map(|y| try_apply(Op::Copy, &[y]).unwrap().remove(0)).collect();
        let ramp = |y: &Tensor| {
            let values = (0..y.len()).map(|k| 0.5 + k as f64 * 0.25).collect::<Vec<f64>>();
            Tensor::from_vec(values, y.shape()).cast(y.dtype())
        };
        let cotangents = copies.iter().map(ramp).collect();
        Forward { leaves, outs, copies, cotangents }
    }

    fn backward(&self) -> pullback::Result<Vec<Vec<u64>>> {
        let floats: Vec<&Tensor> = self.leaves.iter().filter(|x| x.is_tracked()).collect();
        let grads = Backward::of_all(&self.copies.iter().collect::<Vec<_>>())
            .cotangents(&self.cotangents.iter().collect::<Vec<_>>())
            .allow_unused()
            .wrt(&floats)?;
        Ok(grads.iter().map(bits).collect())
    }
}

/// Overwrites memory with what would show: NaN, or an index that is in range but wrong.
fn poison(x: &Tensor) -> bool {
    let write = || match x.dtype().is_float() {
        true => x.detach().fill_(f64::NAN).version(),
        false => x.detach().fill_(0i64).version(),
    };
    catch(|| no_grad(write)).is_ok()
}

/// Each operand and result is overwritten after the forward pass: backward must then either refuse
/// (the value was kept) or give the very same bits (it was not needed).
#[test]
fn what_is_not_kept_is_not_needed() {
    let mut failures = Failures::new();
    let (mut refused, mut same) = (0, 0);
    for sample in
        all_samples().into_iter().filter(|s| s.inputs.iter().any(|x| x.dtype().is_float()))
    {
        let expected = Forward::of(&sample).backward().unwrap();
        let fresh = Forward::of(&sample);
        if fresh.copies.is_empty() {
            continue;
        }
        for i in 0..fresh.leaves.len() + fresh.outs.len() {
            let forward = Forward::of(&sample);
            let all: Vec<&Tensor> = forward.leaves.iter().chain(&forward.outs).collect();
            // A result of one repeated element cannot be written in place.
            if !poison(all[i]) {
                continue;
            }
            match forward.backward() {
                Ok(given) if given == expected => same += 1,
                Ok(_) => failures.note(
                    &sample,
                    format!("value {i} is not kept, but the gradient depends on it"),
                ),
                Err(error) if error.kind() == ErrorKind::InPlace => refused += 1,
                Err(error) => failures.note(&sample, error),
            }
        }
    }
    assert!(refused > at_least(200) && same > at_least(200), "{refused} refused, {same} the same");
    failures.assert_none();
}

/// What the tape must not keep, by name: the whole point of rows that say what they use.
#[test]
fn the_tape_keeps_no_more_than_it_must() {
    let free = |op: &Op| {
        matches!(
            op,
            Op::Binary(pullback_ir::Binary::Add | pullback_ir::Binary::Sub)
                | Op::Reduce(Reduction::Sum, _)
                | Op::View(_)
                | Op::Copy
                | Op::To(_)
                | Op::After
                | Op::Pad(_)
                | Op::Cat(_)
                | Op::Put(_)
        )
    };
    let of_y = |op: &Op| {
        matches!(
            op,
            Op::Unary(Unary::Exp | Unary::Tanh | Unary::Sigmoid | Unary::Relu | Unary::Sqrt)
                | Op::Fused(Fused::Softmax(_) | Fused::LogSoftmax(_))
                | Op::Sort { .. }
                | Op::Ranks { .. }
        )
    };
    for sample in all_samples().into_iter().filter(|s| free(&s.op) || of_y(&s.op)) {
        let forward = Forward::of(&sample);
        if forward.copies.is_empty() || !forward.leaves.iter().all(poison) {
            continue;
        }
        assert!(forward.backward().is_ok(), "{} keeps an input", sample.op);
    }
}

/// Operands that lie elsewhere in memory, or repeat by strides of zero, have the same gradients.
#[test]
fn layouts_do_not_change_gradients() {
    let mut failures = Failures::new();
    let grads = |sample: &Sample, i: usize, x: Tensor| -> Vec<Vec<f64>> {
        let leaf =
            |x: &Tensor| if x.dtype().is_float() { x.detach().requires_grad() } else { x.clone() };
        let mut leaves: Vec<Tensor> = sample.inputs.iter().map(leaf).collect();
        leaves[i] = leaf(&x);
        let outs = try_apply(sample.op.clone(), &leaves.iter().collect::<Vec<_>>()).unwrap();
        let outs: Vec<&Tensor> =
            outs.iter().filter(|y| y.is_tracked() && y.dtype().is_float()).collect();
        let ones: Vec<Tensor> = outs.iter().map(|y| y.detach().ones_like()).collect();
        let floats: Vec<&Tensor> = leaves.iter().filter(|x| x.dtype().is_float()).collect();
        let backward =
            Backward::of_all(&outs).cotangents(&ones.iter().collect::<Vec<_>>()).allow_unused();
        backward.wrt(&floats).unwrap().iter().map(Tensor::to_f64_vec).collect()
    };
    let floats = |s: &Sample| s.inputs.iter().any(|x| x.dtype().is_float());
    for sample in all_samples().into_iter().filter(|s| s.check && floats(s)) {
        for i in 0..sample.inputs.len() {
            for (name, laid) in layouts(&sample.inputs[i]) {
                let expected = grads(&sample, i, laid.deep_clone());
                let given = grads(&sample, i, laid);
                let near = |(a, b): (&f64, &f64)| {
                    a == b
                        || (a.is_nan() && b.is_nan())
                        || (a - b).abs() <= 1e-12 * b.abs().max(1.0)
                };
                let alike = given.iter().flatten().zip(expected.iter().flatten()).all(near);
                if !alike || given.len() != expected.len() {
                    failures.note(
                        &sample,
                        format!("operand {i} {name}: {given:?} instead of {expected:?}"),
                    );
                }
            }
        }
    }
    failures.assert_none();
}
