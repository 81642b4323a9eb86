//! The derivative of a region, by regions: what its ops pull back, traced and fused.

use super::*;
use crate::ops::region::one_by_one;
use crate::rule::{Derivatives, RuleContext};

/// Whether the derivative of a region is one: a large one of few operands, made here or alike.
pub(in crate::ops) fn has_pullback(region: &Region) -> bool {
    element_count(&region.shape) >= LEAST
        && (1..=OPERANDS).contains(&region.inputs.len())
        && region.outputs.len() == 1
        && region.device == Device::Cpu
        && (!region.reduces() || region.shape.len() <= SAMPLES.len())
        && masks_of(region).is_some()
}

/// The gradients that are wanted of a region's operands, which are followed by that of its result.
fn gradients(region: &Region, needs: &[bool], x: &[Tensor]) -> Vec<Tensor> {
    let n = needs.len();
    let f = |x: &Vec<Tensor>| one_by_one(region, &x.iter().collect::<Vec<_>>()).into_first();
    let (_, pull) = crate::vjp(f, &x[..n].to_vec());
    let all = pull(&x[n]).into_iter().zip(needs);
    all.filter_map(|(gradient, &wanted)| wanted.then_some(gradient)).collect()
}

/// Whether a gradient can reach an operand: one that is only compared has none.
fn reaches(region: &Region, operand: usize) -> bool {
    let mut reached: Vec<bool> = Vec::with_capacity(region.body.len());
    for inst in &region.body {
        reached.push(match inst {
            Inst::Load(k) => *k == operand,
            Inst::Point(op, of) => {
                let row = crate::ops::row(op);
                of.iter().enumerate().any(|(i, &v)| reached[v] && row.reaches(i))
            }
            Inst::Reduce(_, v) => reached[*v],
            _ => false,
        });
    }
    region.outputs.iter().any(|&v| reached[v])
}

/// The gradients of a region's operands from that of its result.
pub(in crate::ops) fn pullback(ctx: &RuleContext, dys: &Derivatives) -> Derivatives {
    let n = ctx.counts().0;
    let (Op::Region(of), Some(dy)) = (ctx.op, &dys[0]) else {
        return Derivatives::from_elem(None, n);
    };
    // Often one number for all, from the sum of a loss.
    let dy = &dy.contiguous();
    let needs: SmallVec<[bool; OPERANDS]> =
        (0..n).map(|i| ctx.needs(i) && reaches(of, i)).collect();
    if !needs.contains(&true) {
        return Derivatives::from_elem(None, n);
    }
    let all: SmallVec<[&Tensor; 6]> = (0..n).map(|i| ctx.x(i)).chain([dy]).collect();
    let op_by_op = || {
        let all: Vec<Tensor> = all.iter().map(|x| (*x).clone()).collect();
        gradients(of, &needs, &all)
    };
    let mut found = fused_pullback(of, &needs, &all).unwrap_or_else(op_by_op).into_iter();
    needs.iter().map(|&wanted| if wanted { found.next() } else { None }).collect()
}

/// What [`gradients`] computes, by a region: for an operand that is repeated, one for each place,
/// which are then added up.
fn fused_pullback(of: &Region, needs: &[bool], all: &[&Tensor]) -> Option<Vec<Tensor>> {
    let mut masks = masks_of(of)?;
    let shape = &of.shape;
    let row = is_of_rows(of);
    let whole_points = !row && !of.reduces() && masks.iter().all(|&mask| mask == ALL);
    let form = if whole_points { Form::Points } else { Form::Axes(shape.len()) };
    masks.push(if row { (1 << (shape.len() - 1)) - 1 } else { ALL });
    if shape.len() > SAMPLES.len() && form != Form::Points
        || !are_plain(shape, all, &masks, mode::user_line(Line::caller()))
    {
        return None;
    }
    let dtypes: Dtypes = all.iter().map(|x| x.dtype()).collect();
    let (body, outputs) = (of.body.clone(), of.outputs.clone());
    let wanted = SmallVec::from_slice(needs);
    let key = FormulaKey::Pullback(body, outputs, dtypes.clone(), masks.clone(), form, wanted);
    let template = template(key, &|| {
        let small = sample(form);
        let loads = dtypes[..needs.len()].iter().map(|&dtype| (dtype, ALL));
        let dense = region(&small, loads, &of.body, &of.outputs);
        let trace = |x: &[Tensor]| {
            let n = needs.len();
            let wide = |i: usize| if i < n { whole(&x[i], &small, masks[i]) } else { x[i].clone() };
            gradients(&dense, needs, &(0..=n).map(wide).collect::<Vec<_>>())
        };
        let program = trace::trace(trace, &specs(&small, &dtypes, &masks)).ok()?;
        FormulaTemplate::of(&program, form, &masks, 3)
    })?;
    let found = template.apply(shape, all);
    let masks = masks.iter().zip(needs).filter(|(_, wanted)| **wanted).map(|(mask, _)| *mask);
    let summed = |(dx, mask): (Tensor, AxisMask)| {
        let missing = |axis: &usize| mask != ALL && mask >> axis & 1 == 0;
        match mask {
            ALL => dx,
            _ => dx.sum_over((0..shape.len()).filter(missing).collect::<Vec<_>>()),
        }
    };
    Some(found.into_iter().zip(masks).map(summed).collect())
}

/// The tangent of a region's result, op by op.
pub(in crate::ops) fn pushforward(ctx: &RuleContext, tangents: &Derivatives) -> Tensors {
    let Op::Region(of) = ctx.op else { return Tensors::new() };
    let x: Vec<Tensor> = (0..ctx.counts().0).map(|i| ctx.x(i).clone()).collect();
    let zero = |(x, t): (&Tensor, &Option<Tensor>)| t.clone().unwrap_or_else(|| x.zeros_like());
    let dx: Vec<Tensor> = x.iter().zip(tangents).map(zero).collect();
    let f = |x: &Vec<Tensor>| one_by_one(of, &x.iter().collect::<Vec<_>>()).into_first();
    Tensors::One(crate::jvp(f, &x, &dx).1)
}
