//! Ops that have no kernel, or whose library is missing, and code of users' for the CPU: there,
//! with a warning for each op.

use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::ops::copy;
use pullback_cpu::{Buffer, Input};
use pullback_ir::infer::check;
use pullback_ir::{Device, Error, Layout, Line, Op, Result, Shape, Spec};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Runs an op on the host: operands are downloaded, results uploaded.
pub(crate) fn run(
    gpu: &Gpu,
    op: &Op,
    inputs: &[StridedOperand],
    outputs: &[StridedOperand],
    at: Option<Line>,
) -> Result<()> {
    gpu.refuse_capture("host")?;
    warn(gpu, op, at);
    run_quietly(gpu, op, inputs, outputs, at)
}

/// As [`run`], for ops that are meant to run there: without a warning.
pub(crate) fn run_quietly(
    gpu: &Gpu,
    op: &Op,
    inputs: &[StridedOperand],
    outputs: &[StridedOperand],
    at: Option<Line>,
) -> Result<()> {
    let mut memory = Vec::new();
    for x in inputs {
        let dense = gpu.scratch(x.bytes())?;
        let seen = StridedOperand::dense(dense.at, x.dtype, &x.shape);
        copy(gpu, x, &seen)?;
        memory.push(Buffer::filled(x.dtype, x.bytes(), |to| gpu.download(dense.at, to))?);
    }
    let spec = |x: &StridedOperand| Spec::on(Device::Cpu, x.dtype, Shape::from_slice(&x.shape));
    let specs: Vec<Spec> = inputs.iter().map(spec).collect();
    let refs: Vec<&Spec> = specs.iter().collect();
    let layouts: Vec<Layout> = specs.iter().map(|s| Layout::dense(s.shape.clone())).collect();
    let operands: Vec<Input<'_>> = memory
        .iter()
        .zip(&layouts)
        .zip(&specs)
        .map(|((buffer, layout), spec)| Input { buffer, layout, spec })
        .collect();
    let located = |error: Error| match at {
        Some(at) => error.at(at),
        None => error,
    };
    let made = check(op, &refs).and_then(|call| pullback_cpu::run(call, &operands));
    for (made, to) in made.map_err(located)?.into_iter().zip(outputs) {
        let Some(bytes) = made.buffer.slice(0, to.bytes()) else {
            return Err(Error::argument(op.name(), "a result is shorter than its memory"));
        };
        match to.is_dense() {
            true => gpu.upload(bytes, to.at)?,
            false => {
                let dense = gpu.scratch(to.bytes())?;
                gpu.upload(bytes, dense.at)?;
                copy(gpu, &StridedOperand::dense(dense.at, to.dtype, &to.shape), to)?;
            }
        }
    }
    Ok(())
}

/// Says once for each op that it runs on the host.
fn warn(gpu: &Gpu, op: &Op, at: Option<Line>) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let name = op.name().to_string();
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone()) {
        let place = at.map_or(String::new(), |at| format!(" (first at {at})"));
        let hint = match op {
            Op::Custom(_) => "; `CustomOp::cuda` would give it one",
            _ => "",
        };
        eprintln!(
            "pullback: `{name}` has no kernel on cuda:{} and runs on the CPU, with copies{place}{hint}",
            gpu.number
        );
    }
}
