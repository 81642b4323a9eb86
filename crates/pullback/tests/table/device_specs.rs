//! Where the results of every op are, without memory there.

use super::{Failures, all_samples, on_host};
use pullback::{Device, ErrorKind, Op, Spec};
use pullback_ir::infer::{infer, infer_one};
use std::sync::Arc;

const GPU: Device = Device::Cuda(0);

/// The op as it would be made on a device.
pub fn on(op: &Op, to: Device) -> Op {
    let mut op = op.clone();
    match &mut op {
        Op::Literal { device, .. } | Op::Iota { device, .. } | Op::To(device) => *device = to,
        Op::Region(region) | Op::DotRegion(region) => {
            let region = Arc::make_mut(region);
            region.device = to;
            region.inputs.iter_mut().for_each(|load| load.spec.device = to);
        }
        Op::Flow(_) | Op::Custom(_) => unreachable!("no form holds programs"),
        _ => {}
    }
    op
}

#[test]
fn results_are_where_operands_are() {
    let mut failures = Failures::new();
    for sample in all_samples() {
        let here: Vec<&Spec> = sample.inputs.iter().map(|x| x.spec()).collect();
        let there: Vec<Spec> = here.iter().map(|spec| spec.with_device(GPU)).collect();
        let there: Vec<&Spec> = there.iter().collect();
        let (wanted, op) = (infer(&sample.op, &here), on(&sample.op, GPU));
        if !op.is_ordered() && op.to_string().parse().as_ref() != Ok(&op) {
            failures.note(&sample, "its text does not read back");
        }
        let (Ok(wanted), Ok(found)) = (wanted, infer(&op, &there)) else {
            failures.note(&sample, "is refused");
            continue;
        };
        let wanted: Vec<Spec> = wanted.iter().map(|spec| spec.with_device(GPU)).collect();
        if found[..] != wanted[..] || infer_one(&op, &there).ok().as_ref() != wanted.first() {
            failures.note(&sample, format!("gives {found:?}"));
        }
    }
    failures.assert_none();
}

#[test]
fn operands_on_two_devices_are_refused() {
    // About specs alone: once is enough.
    if !on_host() {
        return;
    }
    let mut failures = Failures::new();
    for sample in all_samples() {
        // What waits for others does not read them.
        if sample.inputs.len() < 2 || sample.op == Op::After {
            continue;
        }
        for elsewhere in 0..sample.inputs.len() {
            let mut specs: Vec<Spec> = sample.inputs.iter().map(|x| x.spec().clone()).collect();
            specs[elsewhere].device = GPU;
            let specs: Vec<&Spec> = specs.iter().collect();
            for error in [infer(&sample.op, &specs).err(), infer_one(&sample.op, &specs).err()] {
                let Some(error) = error else {
                    failures.note(&sample, format!("takes operand {elsewhere} from cuda:0"));
                    continue;
                };
                let text = error.to_string();
                let named = text.starts_with(&format!("{}: operands are on", sample.op.name()));
                let all = specs.iter().all(|spec| text.contains(&spec.to_string()));
                if error.kind() != ErrorKind::Device || !named || !all || !text.contains(".to(\"") {
                    failures.note(&sample, text);
                }
            }
        }
    }
    failures.assert_none();
}
