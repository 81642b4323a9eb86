//! Attention and its vjp.

use super::{Specs, fits_memory, wrong_arity};
use crate::{Attention, DType, Error, Fused, Result, Spec};
use smallvec::smallvec;

/// The weighted values, and the log-sum-exp of the scores.
pub(super) fn attention(a: Attention, inputs: &[&Spec]) -> Result<Specs> {
    let op = Fused::Attention(a).name();
    if inputs.len() != a.operands() {
        return Err(wrong_arity(op, inputs.len(), a.operands()));
    }
    results(op, a, inputs)
}

/// `dq`, `dk` and `dv`.
pub(super) fn attention_vjp(a: Attention, inputs: &[&Spec]) -> Result<Specs> {
    let op = Fused::AttentionVjp(a).name();
    if inputs.len() != a.operands() + 3 {
        return Err(wrong_arity(op, inputs.len(), a.operands() + 3));
    }
    let (inputs, rest) = inputs.split_at(a.operands());
    let forward = results(op, a, inputs)?;
    let (out, lse) = (&forward[0], &forward[1]);
    let narrow = lse.with_dtype(out.dtype);
    if rest[0] != out || rest[2] != out || (rest[1] != lse && *rest[1] != narrow) {
        let message = format!(
            "takes the results {out} and {lse} and a cotangent {out}, not {}, {} and {}",
            rest[0], rest[1], rest[2]
        );
        return Err(Error::shape(op, message).on(rest.iter().copied()));
    }
    Ok(inputs[..3].iter().map(|&x| x.clone()).collect())
}

fn results(op: &'static str, a: Attention, inputs: &[&Spec]) -> Result<Specs> {
    let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
    let shape_error = |why: String| Err(Error::shape(op, why).on(inputs.iter().copied()));
    if !q.dtype.is_float() || k.dtype != q.dtype || v.dtype != q.dtype {
        let message = format!("takes operands of one float dtype, not {q}, {k} and {v}");
        return Err(Error::dtype(op, message).on([q, k, v]));
    }
    let rank = q.shape.len();
    if rank < 3 || k.shape.len() != rank || v.shape.len() != rank {
        return shape_error(format!("takes [.., heads, positions, features]: {q}, {k}, {v}"));
    }
    let (heads, groups) = (q.shape[rank - 3], k.shape[rank - 3]);
    if k.shape[..rank - 1] != v.shape[..rank - 1] {
        return shape_error(format!("keys {k} and values {v} differ before their last axis"));
    }
    if q.shape[..rank - 3] != k.shape[..rank - 3] || q.shape[rank - 1] != k.shape[rank - 1] {
        return shape_error(format!("queries {q} and keys {k} differ in batches or features"));
    }
    if heads != groups && (groups == 0 || heads == 0 || heads % groups != 0) {
        return shape_error(format!("the {heads} heads of {q} do not share the {groups} of {k}"));
    }
    let p = a.dropout.0;
    if !(0.0..=1.0).contains(&p) {
        return Err(Error::argument(op, format!("the dropout probability {p} is not in [0, 1]")));
    }
    let mut scores = q.shape.clone();
    scores[rank - 1] = k.shape[rank - 2];
    if a.masked {
        let mask = inputs[3];
        if mask.dtype != DType::Bool && mask.dtype != q.dtype {
            let message = format!("the mask is bool or {}, not {}", q.dtype, mask.dtype);
            return Err(Error::dtype(op, message).on([q, mask]));
        }
        if mask.shape != scores {
            return shape_error(format!(
                "the mask {mask} must have the shape of the scores, {scores:?}"
            ));
        }
    }
    if a.drops() {
        let key = inputs[a.operands() - 1];
        let fits = match &key.shape[..] {
            [parts @ .., 2] => q.shape[..rank - 3].starts_with(parts),
            _ => false,
        };
        if key.dtype != DType::I64 || !fits {
            let message = format!(
                "the key must be i64[2], or have one for each of the first batches of {q}, not {key}"
            );
            return Err(Error::shape(op, message).on([key, q]));
        }
    }
    let mut out = q.shape.clone();
    out[rank - 1] = v.shape[rank - 1];
    // The scores are never stored, but their elements are numbered.
    if !fits_memory(&out) || !fits_memory(&scores) {
        return shape_error(format!("scores of shape {scores:?} exceed the addressable size"));
    }
    let mut lse = q.shape.clone();
    lse.remove(rank - 1);
    Ok(smallvec![q.with_shape(out), Spec::on(q.device, q.dtype.compute(), lse)])
}
