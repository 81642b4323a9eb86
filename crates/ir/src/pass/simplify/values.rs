//! Rules about values.

use super::{Context, Rewritten};
use crate::infer::view_shape;
use crate::{Axes, Binary, DType, Op, Reduction, Scalar, Unary, Var, Vars, View};

pub(super) fn mul_one(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Binary(Binary::Mul) = op else { return None };
    if is_one(context.literal(of[1])) {
        return Some(Rewritten::Value(of[0]));
    }
    is_one(context.literal(of[0])).then(|| Rewritten::Value(of[1]))
}

pub(super) fn div_one(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Binary(Binary::Div) = op else { return None };
    is_one(context.literal(of[1])).then(|| Rewritten::Value(of[0]))
}

pub(super) fn add_zero(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Binary(Binary::Add) = op else { return None };
    let float = context.new.spec(of[0]).dtype.is_float();
    let neutral = |value: Option<Scalar>| match value {
        Some(Scalar::Float(v)) => v.0 == 0.0 && v.0.is_sign_negative(),
        Some(Scalar::Int(0)) | Some(Scalar::Bool(false)) => !float,
        Some(Scalar::Int(_) | Scalar::Bool(_)) | None => false,
    };
    if neutral(context.literal(of[1])) {
        return Some(Rewritten::Value(of[0]));
    }
    neutral(context.literal(of[0])).then(|| Rewritten::Value(of[1]))
}

pub(super) fn sub_zero(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Binary(Binary::Sub) = op else { return None };
    let neutral = match context.literal(of[1]) {
        Some(Scalar::Float(v)) => v.0.to_bits() == 0,
        Some(Scalar::Int(0)) | Some(Scalar::Bool(false)) => true,
        Some(Scalar::Int(_) | Scalar::Bool(_)) | None => false,
    };
    neutral.then(|| Rewritten::Value(of[0]))
}

fn is_one(value: Option<Scalar>) -> bool {
    value.is_some_and(|value| match value {
        Scalar::Float(v) => v.0 == 1.0,
        Scalar::Int(v) => v == 1,
        Scalar::Bool(v) => v,
    })
}

pub(super) fn same_twice(_: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    use Binary::{And, Maximum, Minimum, Or};
    let Op::Binary(Maximum | Minimum | And | Or) = op else { return None };
    (of[0] == of[1]).then(|| Rewritten::Value(of[0]))
}

pub(super) fn undone(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Unary(Unary::Neg | Unary::Not) = op else { return None };
    let (inner, source) = context.made_by(of[0])?;
    (inner == op).then(|| Rewritten::Value(source[0]))
}

/// A program that is being compiled is not differentiated any more. A copy, so that results have
/// separate memory where they must.
pub(super) fn stopped(_: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Unary(Unary::Stop) = op else { return None };
    Some(Rewritten::Op(Op::Copy, Vars::from_slice(of)))
}

pub(super) fn done_already(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    use Unary::{Abs, Ceil, Floor, Neg, Relu, Round, Sign, Trunc};
    let Op::Unary(outer) = op else { return None };
    let (Op::Unary(inner), source) = context.made_by(of[0])? else { return None };
    match (outer, inner) {
        (Abs, Neg) => Some(Rewritten::Op(op.clone(), Vars::from_slice(source))),
        (Abs, Abs) | (Relu, Relu) | (Sign, Sign) => Some(Rewritten::Value(of[0])),
        (Floor | Ceil | Round | Trunc, Floor | Ceil | Round | Trunc) => {
            Some(Rewritten::Value(of[0]))
        }
        _ => None,
    }
}

pub(super) fn cast_same(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Cast(dtype) = op else { return None };
    (context.new.spec(of[0]).dtype == *dtype).then(|| Rewritten::Value(of[0]))
}

pub(super) fn cast_chain(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Cast(last) = op else { return None };
    let (Op::Cast(middle), source) = context.made_by(of[0])? else { return None };
    let first = context.new.spec(source[0]).dtype;
    // From integers through floats only if the result is as wide as the operand: floats are cut off
    // at the ends of an integer type, integers wrap.
    let direct = first.is_float() == middle.is_float() || loses_nothing(first, *last);
    (loses_nothing(first, *middle) && direct)
        .then(|| Rewritten::Op(op.clone(), Vars::from_slice(source)))
}

/// Whether every value of one dtype is a value of the other.
fn loses_nothing(from: DType, to: DType) -> bool {
    use DType::{BF16, Bool, F16, F32, F64, I32, I64, U8};
    match from {
        Bool => true,
        U8 => to != Bool,
        I32 => matches!(to, I32 | I64 | F64),
        I64 => to == I64,
        F16 => matches!(to, F16 | F32 | F64),
        BF16 => matches!(to, BF16 | F32 | F64),
        F32 => matches!(to, F32 | F64),
        F64 => to == F64,
    }
}

pub(super) fn select_same(_: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    (*op == Op::Select && of[1] == of[2]).then(|| Rewritten::Value(of[1]))
}

pub(super) fn select_not(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Select = op else { return None };
    let (Op::Unary(Unary::Not), source) = context.made_by(of[0])? else { return None };
    Some(Rewritten::Op(Op::Select, Vars::from_slice(&[source[0], of[2], of[1]])))
}

pub(super) fn copy(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Copy = op else { return None };
    // An output that is an input, another output or a view of either would share its memory.
    let source = of[0];
    let shared = match context.made_by(source) {
        None => true,
        Some((Op::View(_) | Op::After | Op::Wait | Op::Transfer(_), _)) => true,
        Some(_) => context.outputs.get(source.index()).copied().unwrap_or(false),
    };
    (!(context.output && shared)).then(|| Rewritten::Value(source))
}

pub(super) fn put_all(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Put(views) = op else { return None };
    let mut spec = context.new.spec(of[0]).clone();
    for view in views {
        if !super::views::shows_all(view, &spec.shape) {
            return None;
        }
        spec = spec.with_shape(view_shape(view, &spec).ok()?);
    }
    Some(Rewritten::Value(of[1]))
}

pub(super) fn pad_nothing(_: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Pad(paddings) = op else { return None };
    paddings.iter().all(|p| *p == Default::default()).then(|| Rewritten::Value(of[0]))
}

pub(super) fn cat_one(_: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    match (op, of) {
        (Op::Cat(_), [one]) => Some(Rewritten::Value(*one)),
        _ => None,
    }
}

pub(super) fn reduce_one(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Reduce(kind, axes) = op else { return None };
    let spec = context.new.spec(of[0]);
    if axes.iter().any(|&i| spec.shape[i] != 1) {
        return None;
    }
    let kept = (0..spec.shape.len()).filter(|i| !axes.contains(i)).map(|i| spec.shape[i]).collect();
    let (dtype, zero) = (spec.dtype, Op::literal(Scalar::Int(0), spec.clone()));
    let extreme = matches!(kind, Reduction::Max | Reduction::Min);
    let one = match (kind, dtype.is_float()) {
        (Reduction::Sum, true) => {
            let zero = context.new.emit(zero, &[], context.at)?;
            context.emit(Op::Binary(Binary::Add), Vars::from_slice(&[of[0], zero]))?
        }
        (_, false) if !extreme => context.emit(Op::Cast(DType::I64), Vars::from_slice(of))?,
        (Reduction::Prod | Reduction::Max | Reduction::Min, _) | (Reduction::Sum, false) => of[0],
    };
    Some(Rewritten::Op(Op::View(View::Reshape(kept)), Vars::from_slice(&[one])))
}

pub(super) fn zero_summed(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let sums = match op {
        Op::Reduce(Reduction::Sum, _) => true,
        // One product is not added to anything.
        Op::Dot => context.new.spec(of[0]).shape.last().is_some_and(|&inner| inner > 1),
        _ => false,
    };
    if !sums {
        return None;
    }
    let mut terms = Vars::from_slice(of);
    let mut found = false;
    for v in &mut terms {
        if let Some(bare) = without_zero(context, *v) {
            (*v, found) = (bare, true);
        }
    }
    found.then(|| Rewritten::Op(op.clone(), terms))
}

/// A view of `x`, where the value is that view of `x + 0`.
fn without_zero(context: &mut Context, v: Var) -> Option<Var> {
    let (mut v, mut views) = (v, Vec::new());
    let bare = loop {
        match context.made_by(v)? {
            (Op::View(view), of) => {
                views.push(view.clone());
                v = of[0];
            }
            (Op::Binary(Binary::Add), &[x, zero]) if is_zero(context, zero) => break x,
            (Op::Binary(Binary::Add), &[zero, x]) if is_zero(context, zero) => break x,
            _ => return None,
        }
    };
    let seen = |x, view| context.emit(Op::View(view), Vars::from_slice(&[x]));
    views.into_iter().rev().try_fold(bare, seen)
}

/// Whether a value is the positive zero of a float.
fn is_zero(context: &Context, v: Var) -> bool {
    let is_float = context.new.spec(v).dtype.is_float();
    is_float && context.literal(v).is_some_and(super::parts::is_zero)
}

pub(super) fn reduce_reduce(context: &mut Context, op: &Op, of: &[Var]) -> Option<Rewritten> {
    let Op::Reduce(kind @ (Reduction::Max | Reduction::Min), outer) = op else { return None };
    let (Op::Reduce(same, inner), source) = context.made_by(of[0])? else { return None };
    if same != kind {
        return None;
    }
    // The numbers of the outer axes before the inner ones are removed.
    let kept: Axes =
        (0..context.new.spec(source[0]).shape.len()).filter(|i| !inner.contains(i)).collect();
    let mut axes: Axes = inner.iter().copied().chain(outer.iter().map(|&i| kept[i])).collect();
    axes.sort_unstable();
    Some(Rewritten::Op(Op::Reduce(*kind, axes), Vars::from_slice(source)))
}
