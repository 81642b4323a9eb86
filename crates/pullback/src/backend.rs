//! Where ops run: on the memory of their operands, by the kernels of its device.

use crate::rule::Outs;
use crate::storage::Storage;
use crate::{Error, Result, Tensor, custom, device, lock};
use pullback_cpu::Output;
use pullback_ir::infer::infer_one;
use pullback_ir::pass::Target;
use pullback_ir::{Device, Layout, Op, View};
use smallvec::smallvec;
use std::sync::Arc;

/// The devices that there are, the CPU first.
pub(crate) fn devices() -> Vec<Device> {
    vec![Device::Cpu]
}

/// What passes are told of a device; of several, of the CPU.
pub(crate) fn target(device: Option<Device>) -> Target {
    match device {
        None | Some(Device::Cpu | Device::Cuda(_)) => pullback_cpu::TARGET,
    }
}

/// Memory is made where the operands are, by all ops but these.
fn check_device(op: &Op) -> Result<()> {
    match op {
        Op::Literal { device, .. } | Op::Iota { device, .. } | Op::To(device) => {
            device::check(op.name(), *device)
        }
        _ => Ok(()),
    }
}

/// A tensor that stands for a variable of a program has no memory to run on.
fn check_memory(op: &Op, inputs: &[&Tensor]) -> Result<()> {
    check_device(op)?;
    match inputs.iter().find_map(|x| x.0.storage.as_traced()) {
        Some(traced) => Err(traced.escaped(op.name())),
        None => Ok(()),
    }
}

/// Computes the results, and nothing else.
pub(crate) fn compute(op: &Op, inputs: &[&Tensor]) -> Result<Outs> {
    match op.results() {
        1 => Ok(smallvec![run(op, inputs)?]),
        _ => run_all(op, inputs),
    }
}

pub(crate) fn run_all(op: &Op, inputs: &[&Tensor]) -> Result<Outs> {
    check_memory(op, inputs)?;
    match custom::body(op) {
        Some(body) => Ok(custom::run_body(body, inputs)),
        None => {
            let outs = lock::read(inputs, |inputs| pullback_cpu::run_all(op, inputs))?;
            Ok(outs.into_iter().map(from_output).collect())
        }
    }
}

/// Computes the value.
pub(crate) fn run(op: &Op, inputs: &[&Tensor]) -> Result<Tensor> {
    check_memory(op, inputs)?;
    match op {
        Op::View(view) => run_view(op, view, inputs),
        _ => match custom::body(op) {
            Some(body) => Ok(custom::run_body(body, inputs).swap_remove(0)),
            None => lock::read(inputs, |inputs| pullback_cpu::run(op, inputs)).map(from_output),
        },
    }
}

fn from_output(output: Output) -> Tensor {
    let shape = output.spec.shape.clone();
    let layout = if output.splat { Layout::splat(shape) } else { Layout::dense(shape) };
    Tensor::new(output.spec, layout, Arc::new(Storage::new(output.buffer)))
}

/// A view is arithmetic on the layout, except a reshape of elements that are not evenly spaced.
fn run_view(op: &Op, view: &View, inputs: &[&Tensor]) -> Result<Tensor> {
    let &[x] = inputs else {
        return Err(Error::argument(op.name(), format!("takes 1 operands, not {}", inputs.len())));
    };
    let spec = infer_one(op, &[x.spec()])?;
    if let Some(layout) = x.0.layout.view(view) {
        let parent = Some(Box::new((x.clone(), view.clone())));
        return Ok(Tensor::with_parent(spec, layout, x.0.storage.clone(), parent));
    }
    let buffer = lock::read(&[x], |inputs| pullback_cpu::run(&Op::Copy, inputs))?.buffer;
    Ok(Tensor::new(spec.clone(), Layout::dense(spec.shape), Arc::new(Storage::new(buffer))))
}
