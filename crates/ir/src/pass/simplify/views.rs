//! Rules about views.

use super::{Context, Rewritten};
use crate::{Layout, Op, Shape, Span, Var, Vars, View};
use smallvec::SmallVec;

pub(super) fn view_of_all(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::View(view) = op else { return None };
    shows_all(view, &context.new.spec(of[0]).shape).then(|| Rewritten::Value(of[0]))
}

/// Whether a view of this shape is the identity.
pub(super) fn shows_all(view: &View, shape: &Shape) -> bool {
    match view {
        View::Reshape(to) | View::Broadcast(to) => to == shape,
        View::Permute(order) => order.iter().enumerate().all(|(i, &j)| i == j),
        View::Slice(spans) => spans
            .iter()
            .zip(shape)
            .all(|(span, &n)| (span.start, span.len) == (0, n) && (span.step == 1 || n == 1)),
        View::Flip(axes) => axes.iter().all(|&i| shape[i] <= 1),
        View::Diagonal { .. } | View::Unfold { .. } => false,
    }
}

pub(super) fn view_view(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::View(outer) = op else { return None };
    let (Op::View(inner), source) = context.made_by(of[0])? else { return None };
    let view = match (inner, outer) {
        (View::Reshape(_), View::Reshape(_)) | (View::Broadcast(_), View::Broadcast(_)) => {
            outer.clone()
        }
        (View::Permute(first), View::Permute(second)) => {
            View::Permute(second.iter().map(|&i| first[i]).collect())
        }
        (View::Slice(first), View::Slice(second)) => {
            let shape = &context.new.spec(source[0]).shape;
            let axes = 0..first.len().max(second.len());
            View::Slice(
                axes.map(|i| both(first.get(i), second.get(i), shape[i])).collect::<Option<_>>()?,
            )
        }
        (View::Flip(first), View::Flip(second)) => {
            // An axis listed twice in one flip is a special case: leave it.
            let twice = |axes: &[usize]| (1..axes.len()).any(|i| axes[..i].contains(&axes[i]));
            if twice(first) || twice(second) {
                return None;
            }
            let once = first.iter().filter(|i| !second.contains(i));
            View::Flip(once.chain(second.iter().filter(|i| !first.contains(i))).copied().collect())
        }
        _ => return None,
    };
    Some(Rewritten::Op(Op::View(view), Vars::from_slice(source)))
}

/// A span of a span; a missing one takes all.
fn both(first: Option<&Span>, second: Option<&Span>, n: usize) -> Option<Span> {
    let all = |n| Span { start: 0, len: n, step: 1 };
    let first = first.copied().unwrap_or_else(|| all(n));
    let second = second.copied().unwrap_or_else(|| all(first.len));
    if second.len == 0 {
        return Some(Span { start: 0, len: 0, step: 1 });
    }
    let start = first.start.checked_add(second.start.checked_mul(first.step)?)?;
    // With one element the step is unused, and may be any number.
    let step = if second.len > 1 { first.step.checked_mul(second.step)? } else { 1 };
    Some(Span { start, len: second.len, step })
}

/// Most views that are looked through.
const LONGEST: usize = 16;

pub(super) fn views_undo(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::View(last) = op else { return None };
    let mut views: SmallVec<[&View; 6]> = SmallVec::from_slice(&[last]);
    let mut root = of[0];
    while let Some((Op::View(view), source)) = context.made_by(root) {
        views.push(view);
        root = source[0];
        if views.len() > LONGEST {
            return None;
        }
    }
    if views.len() < 2 {
        return None;
    }
    let spec = context.new.spec(root);
    let dense = Layout::dense(spec.shape.clone());
    let layout = views.iter().rev().try_fold(dense, |layout, view| layout.view(view))?;
    let all = layout.offset == 0 && layout.len() == spec.len() && layout.is_dense();
    all.then(|| Rewritten::Op(Op::View(View::Reshape(layout.shape)), Vars::from_slice(&[root])))
}

pub(super) fn view_is_reshape(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::View(_) = op else { return None };
    let shape = &context.new.spec(of[0]).shape;
    let to: Shape = match op {
        Op::View(View::Permute(order)) => {
            let moved: SmallVec<[usize; 6]> =
                order.iter().copied().filter(|&i| shape[i] != 1).collect();
            if !moved.is_sorted() {
                return None;
            }
            order.iter().map(|&i| shape[i]).collect()
        }
        Op::View(View::Broadcast(to)) => {
            let long = |shape: &Shape| {
                shape.iter().copied().filter(|&n| n != 1).collect::<SmallVec<[usize; 6]>>()
            };
            if long(shape) != long(to) {
                return None;
            }
            to.clone()
        }
        _ => return None,
    };
    Some(Rewritten::Op(Op::View(View::Reshape(to)), Vars::from_slice(of)))
}

/// A pointwise op whose operands are all the same broadcast or permute of values of one shape, or
/// literals.
pub(super) fn view_later(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    if !op.is_pointwise() || *op == Op::Copy {
        return None;
    }
    let mut common: Option<(Shape, View)> = None;
    for &v in of {
        match context.made_by(v) {
            Some((Op::View(view @ (View::Broadcast(_) | View::Permute(_))), source)) => {
                let from = &context.new.spec(source[0]).shape;
                match &common {
                    None => common = Some((from.clone(), view.clone())),
                    Some((shape, known)) if (shape, known) == (from, view) => {}
                    Some(_) => return None,
                }
            }
            Some((Op::Literal { .. }, _)) => {}
            Some(_) | None => return None,
        }
    }
    let (from, view) = common?;
    // An empty broadcast has fewer elements than its source.
    if context.new.spec(of[0]).len() < from.iter().product() {
        return None;
    }
    let mut sources = Vars::new();
    for &v in of {
        let made = context.made_by(v).map(|(op, of)| (op.clone(), of.first().copied()));
        sources.push(match made {
            Some((Op::Literal { value, dtype, device, .. }, _)) => {
                let literal = Op::Literal { value, shape: from.clone(), dtype, device };
                context.new.emit(literal, &[], context.at)?
            }
            Some((_, Some(source))) => source,
            Some((_, None)) | None => return None,
        });
    }
    let result = context.emit(op.clone(), sources)?;
    Some(Rewritten::Op(Op::View(view), Vars::from_slice(&[result])))
}
