//! Fused operations: softmax, normalisation, cross-entropy.

use super::{Specs, attention, check_axis, check_index, ctc, distances, operands, update};
use crate::{Error, Fused, Real, Result, Spec};
use smallvec::smallvec;

pub(super) fn fused(f: Fused, inputs: &[&Spec]) -> Result<Specs> {
    let op = f.name();
    let one = match f {
        Fused::Softmax(axis) | Fused::LogSoftmax(axis) => {
            let [x] = operands(op, inputs)?;
            check_axis(op, axis, x)?;
            floats(op, inputs)?;
            x.clone()
        }
        Fused::SoftmaxVjp(axis) | Fused::LogSoftmaxVjp(axis) => {
            let [y, dy] = operands(op, inputs)?;
            check_axis(op, axis, y)?;
            floats(op, inputs)?;
            same_shape(op, y, dy)?;
            y.clone()
        }
        Fused::LogSumExp(axis) => {
            let [x] = operands(op, inputs)?;
            check_axis(op, axis, x)?;
            floats(op, inputs)?;
            let mut shape = x.shape.clone();
            shape.remove(axis);
            x.with_shape(shape)
        }
        Fused::LayerNorm(_) => {
            let [x, w, b] = operands(op, inputs)?;
            floats(op, inputs)?;
            same_shape(op, w, b)?;
            trailing(op, x, w)?;
            x.clone()
        }
        Fused::LayerNormVjp(_) => return layer_norm_vjp(operands(op, inputs)?),
        Fused::BatchNorm(_) => return batch_norm(operands(op, inputs)?),
        Fused::BatchNormVjp(_) => return batch_norm_vjp(operands(op, inputs)?),
        Fused::CrossEntropy => {
            let [logits, classes] = operands(op, inputs)?;
            rows(op, logits, classes)?;
            classes.with_dtype(logits.dtype.compute())
        }
        Fused::CrossEntropyVjp => {
            let [logits, classes, dy] = operands(op, inputs)?;
            rows(op, logits, classes)?;
            same_shape(op, classes, dy)?;
            if dy.dtype != logits.dtype.compute() {
                let message = format!("the losses of {logits} have no cotangent {dy}");
                return Err(Error::dtype(op, message).on([logits, dy]));
            }
            return Ok(smallvec![logits.clone(), dy.clone()]);
        }
        Fused::Distances { within } => return distances::distances(within, inputs),
        Fused::DistancesVjp { within } => return distances::distances_vjp(within, inputs),
        Fused::Ctc { blank } => return ctc::ctc(blank, operands(op, inputs)?),
        Fused::CtcVjp { blank } => return ctc::ctc_vjp(blank, operands(op, inputs)?),
        Fused::Sgd(how) => return update::sgd(how, inputs),
        Fused::Adam(how) => return update::adam(how, inputs),
        Fused::Attention(a) => return attention::attention(a, inputs),
        Fused::AttentionVjp(a) => return attention::attention_vjp(a, inputs),
    };
    Ok(smallvec![one])
}

/// `dx`, `dw` and `db`.
pub(super) fn layer_norm_vjp([x, w, dy]: [&Spec; 3]) -> Result<Specs> {
    let op = Fused::LayerNormVjp(Real(0.0)).name();
    floats(op, &[x, w, dy])?;
    trailing(op, x, w)?;
    same_shape(op, x, dy)?;
    Ok(smallvec![x.clone(), w.clone(), w.clone()])
}

/// `y`, and the mean and variance of each channel in the compute type.
pub(super) fn batch_norm([x, w, b]: [&Spec; 3]) -> Result<Specs> {
    let op = Fused::BatchNorm(Real(0.0)).name();
    weights(op, x, &[w, b])?;
    channels(op, x, [w, b])?;
    let each = w.with_dtype(x.dtype.compute());
    Ok(smallvec![x.clone(), each.clone(), each])
}

/// `dx`, `dw` and `db`.
pub(super) fn batch_norm_vjp([x, w, mean, variance, dy]: [&Spec; 5]) -> Result<Specs> {
    let op = Fused::BatchNormVjp(Real(0.0)).name();
    floats(op, &[x, dy])?;
    weights(op, x, &[w])?;
    if mean.dtype != variance.dtype || ![x.dtype, x.dtype.compute()].contains(&mean.dtype) {
        let message = format!("the statistics of {x} cannot be {mean} and {variance}");
        return Err(Error::dtype(op, message).on([x, mean, variance]));
    }
    channels(op, x, [w, mean])?;
    channels(op, x, [mean, variance])?;
    same_shape(op, x, dy)?;
    Ok(smallvec![x.clone(), w.clone(), w.clone()])
}

fn floats(op: &'static str, inputs: &[&Spec]) -> Result<()> {
    let dtype = inputs[0].dtype;
    if dtype.is_float() && inputs.iter().all(|s| s.dtype == dtype) {
        return Ok(());
    }
    Err(Error::dtype(op, "takes operands of one float dtype").on(inputs.iter().copied()))
}

/// Weights of channels have the dtype of `x`, or its compute type.
fn weights(op: &'static str, x: &Spec, of: &[&Spec]) -> Result<()> {
    floats(op, &[x])?;
    let dtype = of[0].dtype;
    let fits = [x.dtype, x.dtype.compute()].contains(&dtype);
    if fits && of.iter().all(|s| s.dtype == dtype) {
        return Ok(());
    }
    let message = format!("the weights of {x} have its dtype, or {}", x.dtype.compute());
    Err(Error::dtype(op, message).on(std::iter::once(x).chain(of.iter().copied())))
}

fn same_shape(op: &'static str, a: &Spec, b: &Spec) -> Result<()> {
    if a.shape == b.shape {
        return Ok(());
    }
    Err(Error::shape(op, format!("shapes differ: {a} and {b}")).on([a, b]))
}

fn trailing(op: &'static str, x: &Spec, w: &Spec) -> Result<()> {
    if !w.shape.is_empty() && x.shape.ends_with(&w.shape) {
        return Ok(());
    }
    Err(Error::shape(op, format!("the weight {w} must have the shape of the last axes of {x}"))
        .on([x, w]))
}

fn channels(op: &'static str, x: &Spec, each: [&Spec; 2]) -> Result<()> {
    if x.shape.len() >= 2 && each.iter().all(|s| s.shape[..] == x.shape[1..2]) {
        return Ok(());
    }
    let [a, b] = each;
    let message = format!("{a} and {b} do not have one element for each channel (axis 1) of {x}");
    Err(Error::shape(op, message).on([x, a, b]))
}

fn rows(op: &'static str, logits: &Spec, classes: &Spec) -> Result<()> {
    check_index(op, classes)?;
    floats(op, &[logits])?;
    if logits.shape.len() == 2 && classes.shape[..] == logits.shape[..1] {
        return Ok(());
    }
    Err(Error::shape(op, format!("needs logits [n, c] and classes [n]: {logits}, {classes}"))
        .on([logits, classes]))
}
