//! Shape rules of collectives.

use super::{arity, operands};
use crate::{Collective, CollectiveOp, Combination, DType, Device, Error, Result, Spec};

pub(super) fn collective(op: &CollectiveOp, inputs: &[&Spec]) -> Result<Spec> {
    let name = op.collective.name();
    let group = op.group.communicator();
    let (rank, size) = (group.rank(), group.size());
    let worker = |what: &str, number: usize| match number < size {
        true => Ok(()),
        false => {
            let message = format!("there is no worker {number} to {what}: the group has {size}");
            Err(Error::argument(name, message).on(inputs.iter().copied()))
        }
    };
    let other = |what: &str, number: usize| match number == rank {
        false => worker(what, number),
        true => {
            let message = format!("worker {rank} cannot {what} itself");
            Err(Error::argument(name, message).on(inputs.iter().copied()))
        }
    };
    match &op.collective {
        Collective::AllReduce(Combination::Sum | Combination::Max | Combination::Min) => {
            let [x] = operands(name, inputs)?;
            numbers(name, x)?;
            Ok(x.clone())
        }
        Collective::AllGather => {
            let [x] = operands(name, inputs)?;
            let length = first_axis(name, x)?;
            Ok(with_first(x, length.saturating_mul(size)))
        }
        Collective::ReduceScatter => {
            let [x] = operands(name, inputs)?;
            numbers(name, x)?;
            Ok(with_first(x, parts(name, x, size)?))
        }
        Collective::Broadcast { root } => {
            let [x] = operands(name, inputs)?;
            worker("broadcast from", *root)?;
            Ok(x.clone())
        }
        Collective::AllToAll => {
            let [x] = operands(name, inputs)?;
            parts(name, x, size)?;
            Ok(x.clone())
        }
        Collective::Send { to } => {
            let [x] = operands(name, inputs)?;
            other("send to", *to)?;
            Ok(x.with_shape([0].as_slice()))
        }
        Collective::Recv { from, spec } => {
            let [token] = operands(name, inputs)?;
            other("receive from", *from)?;
            if !token.shape.contains(&0) || token.dtype != spec.dtype {
                let message = format!("takes an empty operand of {}, not {token}", spec.dtype);
                return Err(Error::argument(name, message).on([token]));
            }
            Ok(spec.with_device(token.device))
        }
        Collective::Barrier => {
            arity(name, inputs, 0)?;
            Ok(Spec::on(Device::Cpu, DType::U8, [0].as_slice()))
        }
    }
}

/// The first operand of [`Op::Wait`](crate::Op::Wait), if the second is what was sent.
pub(super) fn wait(inputs: &[&Spec]) -> Result<Spec> {
    match inputs {
        [made] | [made, _] => Ok((*made).clone()),
        _ => Err(Error::argument("wait", format!("takes 1 or 2 operands, not {}", inputs.len()))),
    }
}

fn numbers(name: &'static str, x: &Spec) -> Result<()> {
    match x.dtype == DType::Bool {
        false => Ok(()),
        true => Err(Error::dtype(name, "does not combine bool").on([x])),
    }
}

fn first_axis(name: &'static str, x: &Spec) -> Result<usize> {
    let missing = || Error::shape(name, format!("{x} has no axis")).on([x]);
    x.shape.first().copied().ok_or_else(missing)
}

/// The length of one of `size` parts of the first axis.
fn parts(name: &'static str, x: &Spec, size: usize) -> Result<usize> {
    let length = first_axis(name, x)?;
    if length.is_multiple_of(size) {
        return Ok(length / size);
    }
    let message = format!("the {length} of axis 0 of {x} cannot be cut into {size} equal parts");
    Err(Error::shape(name, message).on([x]))
}

fn with_first(x: &Spec, length: usize) -> Spec {
    let mut shape = x.shape.clone();
    shape[0] = length;
    x.with_shape(shape)
}
