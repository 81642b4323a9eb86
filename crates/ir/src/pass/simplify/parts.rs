//! A rule that joins adjacent parts: the gradient of `chunk` and of `split`.

use super::{Context, Rewritten};
use crate::{Binary, Op, Scalar, Span, Var, Vars, View};
use smallvec::SmallVec;

/// Most parts of a sum.
const MOST_PARTS: usize = 64;

/// A part, and which span of each axis it takes.
type SpannedPart = (SmallVec<[Span; 2]>, Var);

pub(super) fn parts_side_by_side(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Binary(Binary::Add) = op else { return None };
    let mut parts = summed(context, of)?;
    let shape = context.new.spec(of[0]).shape.clone();
    // All of them are whole on all axes but one, and follow each other there.
    let is_whole = |part: &SpannedPart, axis: usize| match part.0.get(axis) {
        Some(span) => (span.start, span.len) == (0, shape[axis]) && span.step == 1,
        None => true,
    };
    let axis = (0..shape.len()).find(|&i| !is_whole(&parts[0], i))?;
    let mut others = (0..shape.len()).filter(|&i| i != axis);
    if others.any(|i| parts.iter().any(|part| !is_whole(part, i))) {
        return None;
    }
    parts.sort_by_key(|part| part.0.get(axis).map(|span| (span.start, span.len)));
    let mut end = 0;
    for part in &parts {
        let span = part.0.get(axis)?;
        if span.start != end || span.step != 1 {
            return None;
        }
        end += span.len;
    }
    if end != shape[axis] {
        return None;
    }
    // Pointwise ops that make the parts take the sum with 0 along; other parts are joined as they
    // are, which need not copy them.
    let pointwise = |v| context.made_by(v).is_some_and(|(op, _)| op.is_pointwise());
    if !parts.iter().any(|part| pointwise(part.1)) {
        let sources = parts.into_iter().map(|part| part.1).collect();
        let joined = context.emit(Op::Cat(axis), sources)?;
        return Some(Rewritten::Op(Op::Binary(Binary::Add), with_zero(context, joined)?));
    }
    let mut sources = Vars::new();
    for (_, source) in parts {
        let terms = with_zero(context, source)?;
        sources.push(context.emit(Op::Binary(Binary::Add), terms)?);
    }
    Some(Rewritten::Op(Op::Cat(axis), sources))
}

/// A value, and a zero of its spec.
fn with_zero(context: &mut Context, v: Var) -> Option<Vars> {
    let zero = Op::literal(Scalar::Int(0), context.new.spec(v).clone());
    let zero = context.new.emit(zero, &[], context.at)?;
    Some(Vars::from_slice(&[v, zero]))
}

/// The zero-padded parts that a tree of sums consists of, if it consists of nothing else.
fn summed(context: &Context, of: &[Var]) -> Option<Vec<SpannedPart>> {
    let mut parts = Vec::new();
    let mut open = Vec::from(of);
    while let Some(v) = open.pop() {
        match context.made_by(v)? {
            (Op::Binary(Binary::Add), of) => open.extend(of),
            (Op::Put(views), of) => {
                let [View::Slice(spans)] = &views[..] else { return None };
                if !is_zero(context.literal(of[0])?) {
                    return None;
                }
                parts.push((spans.clone(), of[1]));
            }
            _ => return None,
        }
        if parts.len() + open.len() > MOST_PARTS {
            return None;
        }
    }
    Some(parts)
}

/// Zero, and for floats the positive one.
pub(super) fn is_zero(value: Scalar) -> bool {
    match value {
        Scalar::Float(v) => v.0.to_bits() == 0,
        Scalar::Int(v) => v == 0,
        Scalar::Bool(v) => !v,
    }
}
