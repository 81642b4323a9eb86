//! How long equations take on a device, and how long programs whose values wait on the host.

use super::super::{HostLink, op_work};
use crate::{Equation, Flow, Op, Program, ResultMemory, Spec, Transfer, Var};
use rustc_hash::FxHashMap;

/// Assumed iterations of a while loop.
const ITERATIONS: u64 = 16;

/// The nanoseconds that an equation takes by itself, as an estimate: its bytes over the bandwidth
/// of the device's memory, or its operations over the rate of products, whichever is more.
pub fn nanoseconds(program: &Program, e: &Equation, link: &HostLink) -> u64 {
    let all = |p: &Program| {
        p.equations.iter().map(|e| nanoseconds(p, e, link)).fold(0, u64::saturating_add)
    };
    if let Op::Flow(flow) = &e.op {
        return match &**flow {
            Flow::Cond { yes, no } => all(yes).max(all(no)),
            Flow::While { test, body, .. } => {
                ITERATIONS.saturating_mul(all(test).saturating_add(all(body)))
            }
            Flow::Scan(scan) => (scan.length as u64).saturating_mul(all(&scan.body)),
        };
    }
    if e.op.memory() != ResultMemory::Own || matches!(e.op, Op::Transfer(_)) {
        return 0;
    }
    let specs = |vars: &[Var]| vars.iter().map(|&v| program.spec(v)).collect::<Vec<&Spec>>();
    let (inputs, outputs) = (specs(&e.inputs), specs(&e.outputs));
    let all = inputs.iter().chain(&outputs);
    let bytes = all.clone().map(|spec| spec.bytes()).fold(0, usize::saturating_add) as u64;
    let is_narrow = all.clone().any(|spec| spec.dtype.is_float() && spec.dtype.size() == 2);
    let rate = if is_narrow { link.narrow } else { link.wide };
    over(bytes, link.memory).max(over(op_work(&e.op, &inputs, &outputs), rate))
}

/// Nanoseconds, at so many in a microsecond.
pub(super) fn over(amount: u64, rate: u64) -> u64 {
    let time = u128::from(amount) * 1000 / u128::from(rate.max(1));
    u64::try_from(time).unwrap_or(u64::MAX)
}

/// When each equation begins if none waits, and when the last one ends.
pub(super) fn starts(program: &Program, link: &HostLink) -> Vec<u64> {
    let mut now = 0u64;
    let mut starts = vec![0];
    for e in &program.equations {
        now = now.saturating_add(nanoseconds(program, e, link));
        starts.push(now);
    }
    starts
}

/// How long a program takes whose copies run beside the equations, one after the other in each
/// direction; and how much of that it waits for them.
pub fn duration(program: &Program, link: &HostLink) -> (u64, u64) {
    let (mut now, mut waited, mut out, mut back) = (0u64, 0u64, 0u64, 0u64);
    let mut ends: FxHashMap<Var, u64> = FxHashMap::default();
    for e in &program.equations {
        let Op::Transfer(step) = e.op else {
            now = now.saturating_add(nanoseconds(program, e, link));
            continue;
        };
        let bytes = program.spec(e.outputs[0]).bytes() as u64;
        match step {
            Transfer::Offload => {
                out = out.max(now).saturating_add(over(bytes, link.out));
                ends.insert(e.outputs[0], out);
            }
            Transfer::Restore => {
                back = back.max(now).saturating_add(over(bytes, link.back));
                ends.insert(e.outputs[0], back);
            }
            Transfer::Offloaded | Transfer::Restored => {
                let end = ends.get(&e.inputs[0]).copied().unwrap_or(0);
                waited = waited.saturating_add(end.saturating_sub(now));
                now = now.max(end);
            }
        }
    }
    (now, waited)
}
