//! Connectionist temporal classification, and its vjp.

use super::{Specs, check_index};
use crate::{Error, Fused, Result, Spec};
use smallvec::smallvec;

/// The losses.
pub(super) fn ctc(blank: usize, inputs: [&Spec; 4]) -> Result<Specs> {
    Ok(smallvec![losses(Fused::Ctc { blank }.name(), blank, inputs)?])
}

/// The cotangent of the log-probabilities.
pub(super) fn ctc_vjp(blank: usize, inputs: [&Spec; 5]) -> Result<Specs> {
    let op = Fused::CtcVjp { blank }.name();
    let [x, labels, times, counts, dy] = inputs;
    let losses = losses(op, blank, [x, labels, times, counts])?;
    if *dy != losses {
        let message = format!("the losses {losses} have no cotangent {dy}");
        return Err(Error::shape(op, message).on(inputs));
    }
    Ok(smallvec![x.clone()])
}

fn losses(op: &'static str, blank: usize, inputs: [&Spec; 4]) -> Result<Spec> {
    let [x, labels, times, counts] = inputs;
    if !x.dtype.is_float() {
        return Err(Error::dtype(op, format!("takes floats, not {x}")).on(inputs));
    }
    for index in [labels, times, counts] {
        check_index(op, index)?;
    }
    let fits = x.shape.len() == 3
        && labels.shape.len() == 2
        && labels.shape[0] == x.shape[1]
        && [times, counts].iter().all(|lengths| lengths.shape[..] == x.shape[1..2]);
    if !fits {
        let message =
            format!("takes [t, n, c], [n, most], [n] and [n]: {x}, {labels}, {times}, {counts}");
        return Err(Error::shape(op, message).on(inputs));
    }
    if blank >= x.shape[2] {
        let message = format!("the blank {blank} is not one of the {} classes", x.shape[2]);
        return Err(Error::argument(op, message).on(inputs));
    }
    Ok(times.with_dtype(x.dtype.compute()))
}
