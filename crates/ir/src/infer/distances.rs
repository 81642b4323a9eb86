//! Distances between rows, and their vjp.

use super::{Specs, wrong_arity};
use crate::{Error, Fused, Result, Spec};
use smallvec::smallvec;

/// The distances.
pub(super) fn distances(within: bool, inputs: &[&Spec]) -> Result<Specs> {
    let op = Fused::Distances { within }.name();
    let count = if within { 1 } else { 2 };
    if inputs.len() != count {
        return Err(wrong_arity(op, inputs.len(), count));
    }
    Ok(smallvec![result(op, inputs)?])
}

/// The cotangents of the operands.
pub(super) fn distances_vjp(within: bool, inputs: &[&Spec]) -> Result<Specs> {
    let op = Fused::DistancesVjp { within }.name();
    let count = if within { 1 } else { 2 };
    if inputs.len() != count + 2 {
        return Err(wrong_arity(op, inputs.len(), count + 2));
    }
    let (operands, rest) = inputs.split_at(count);
    let forward = result(op, operands)?;
    if *rest[0] != forward || *rest[1] != forward {
        let message =
            format!("takes distances {forward} and a cotangent, not {} and {}", rest[0], rest[1]);
        return Err(Error::shape(op, message).on(inputs.iter().copied()));
    }
    Ok(operands.iter().map(|&x| x.clone()).collect())
}

/// Of the rows of one operand, or of two.
fn result(op: &'static str, inputs: &[&Spec]) -> Result<Spec> {
    let (x, y) = (inputs[0], inputs[inputs.len() - 1]);
    if !x.dtype.is_float() || x.dtype != y.dtype {
        return Err(
            Error::dtype(op, "takes operands of one float dtype").on(inputs.iter().copied())
        );
    }
    let rank = x.shape.len();
    let fits = rank >= 2
        && y.shape.len() == rank
        && x.shape[..rank - 2] == y.shape[..rank - 2]
        && x.shape[rank - 1] == y.shape[rank - 1];
    if !fits {
        let message = format!("takes rows of one length, [.., n, d] and [.., m, d]: {x} and {y}");
        return Err(Error::shape(op, message).on(inputs.iter().copied()));
    }
    let mut shape = x.shape.clone();
    let n = shape[rank - 2];
    if inputs.len() == 1 {
        // One of two successive numbers is even.
        let (a, b) = if n.is_multiple_of(2) { (n / 2, n.saturating_sub(1)) } else { (n, n / 2) };
        shape.remove(rank - 1);
        shape[rank - 2] = a.saturating_mul(b);
    } else {
        shape[rank - 1] = y.shape[rank - 2];
    }
    Ok(x.with_shape(shape))
}
