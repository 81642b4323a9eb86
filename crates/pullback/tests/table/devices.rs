//! Every op on a device whose memory is not the host's: the bits of the CPU, values and gradients, eagerly and compiled.

use super::device_second::second;
use super::device_specs::on;
use super::samples::Sample;
use super::{Failures, all_samples, bits, on_host};
use pullback::{Backward, DType, Device, Op, Result, Tensor, catch, jit, try_apply};

/// The sample with everything on the device.
fn elsewhere(sample: &Sample) -> Option<Sample> {
    if matches!(sample.op, Op::To(_)) {
        return None;
    }
    let op = on(&sample.op, second());
    let inputs = sample.inputs.iter().map(|x| turned(x, |x| x.to(second()))).collect();
    Some(Sample { op, inputs, check: sample.check })
}

/// Matrices lie transposed, so that operands have strides of their own.
fn turned(x: &Tensor, dense: impl Fn(&Tensor) -> Tensor) -> Tensor {
    if x.rank() == 2 { dense(&x.t()).t() } else { dense(x) }
}

/// Results, and gradients of the float operands from the sum of squares of the float results.
fn all(op: &Op, x: &[Tensor], differentiate: bool) -> Result<Vec<Tensor>> {
    let leaf = |x: &Tensor| match x.dtype().is_float() && differentiate {
        true => x.detach().requires_grad(),
        false => x.clone(),
    };
    let x: Vec<Tensor> = x.iter().map(leaf).collect();
    let mut made = try_apply(op.clone(), &x.iter().collect::<Vec<_>>())?;
    let floats = made.iter().filter(|y| y.dtype().is_float() && y.is_tracked());
    if let Some(loss) = floats.map(|y| y.square().sum()).reduce(|a, b| a + b) {
        let leaves: Vec<&Tensor> = x.iter().filter(|x| x.is_leaf()).collect();
        made.extend(Backward::of(&loss).allow_unused().wrt(&leaves)?);
    }
    Ok(made.iter().map(Tensor::detach).collect())
}

fn compare(sample: &Sample, there: &Sample, way: &str, failures: &mut Failures) {
    let run = |of: &Sample| {
        let (op, differentiate) = (of.op.clone(), of.check);
        let f = move |x: &Vec<Tensor>| all(&op, x, differentiate);
        let made = catch(|| match way {
            "compiled" => jit(f).call(&of.inputs),
            _ => f(&of.inputs),
        });
        let made = made.and_then(|made| made);
        // Errors of the device arrive when somebody waits.
        made.and_then(|made| {
            let on: Vec<Device> = made.iter().map(Tensor::device).collect();
            catch(|| (on, made.iter().map(bits).collect::<Vec<_>>()))
        })
    };
    match (run(sample), run(there)) {
        (Ok((_, wanted)), Ok((on, found))) => {
            if on.iter().any(|on| *on != second()) {
                failures.note(there, format!("{way}: a result is on {on:?}"));
            }
            if wanted != found {
                failures.note(there, format!("{way}: {found:x?} instead of {wanted:x?}"));
            }
        }
        // What is refused is refused in the same way.
        (Err(a), Err(b)) if a.kind() == b.kind() => {}
        (Err(a), Err(b)) => failures.note(there, format!("{way}: {b} instead of {a}")),
        (Ok(_), Err(error)) => failures.note(there, format!("{way}: {error}")),
        (Err(error), Ok(_)) => failures.note(there, format!("{way}: not refused: {error}")),
    }
}

#[test]
fn another_device_gives_the_bits_of_the_cpu() {
    if !on_host() {
        return;
    }
    let mut failures = Failures::new();
    let mut compared = 0;
    for sample in all_samples() {
        for dtype in [DType::F64, DType::F32, DType::BF16] {
            let mut sample = sample.cast(dtype);
            sample.inputs.iter_mut().for_each(|x| *x = turned(x, Tensor::contiguous));
            let Some(there) = elsewhere(&sample) else { continue };
            compare(&sample, &there, "eager", &mut failures);
            if dtype == DType::F32 {
                compare(&sample, &there, "compiled", &mut failures);
            }
            compared += 1;
        }
    }
    assert!(compared > 500, "{compared}");
    failures.assert_none();
}
