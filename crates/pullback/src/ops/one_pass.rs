//! Pointwise composites in one pass over memory.
//!
//! A composite is a formula of other methods, and eagerly each of these is a pass over memory: ten
//! of them for a hard swish, which took 40 times as long as one. So a composite of large tensors
//! is traced once, the passes of `jit` make one region of it, and that is applied like any other
//! op. A region of pointwise ops has the bits of its ops one by one.
//!
//! The derivative of such a region is one again: what its ops pull back, traced and fused the same
//! way. The tape then keeps the operands instead of every value in between. A formula that cuts a
//! derivative off (`detach`) stays as it is. Where a second
//! derivative of several operands, a tangent or a trace comes in, the region is taken apart
//! (`region.rs`).
//!
//! Small tensors, operands of different shapes or with gaps, other devices and everything that
//! observes single ops take the formula as it is.

use crate::apply::apply_all;
use crate::rule::Tensors;
use crate::trace::TraceKind;
use crate::{DType, Device, Spec, Tensor, events, jit, mode, trace};
use pullback_ir::{
    Few, Inst, Layout, Line, Load, Op, Program, Region, Shape, Strides, Unary, Var, element_count,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Fewest elements: below, the ops of a formula take no longer than the call of a region.
const LEAST: usize = 1 << 9;
/// Fewest elements of a pointwise formula that is differentiated: below, finding the region of its
/// derivative takes longer than the ops.
const LEAST_TRACKED: usize = 1 << 14;
/// Most operands of a region whose derivative is a region.
pub(super) const OPERANDS: usize = 5;
/// Templates that are kept: more than programs have composites.
const KEPT: usize = 512;
/// Fewest elements of a row that is reduced: a fold of fewer costs less by itself.
const LEAST_ROW: usize = 16;

/// Regions for tensors of any shape, one after the other: a formula is one, a derivative may be
/// one that reduces rows, one of what it made of them, and one of all elements.
struct FormulaTemplate {
    steps: Vec<TemplateRegion>,
    /// The results: operands are counted first, then what the steps make.
    results: Vec<usize>,
    /// Whether a derivative is cut off, which a region does not know: then it is for values alone.
    cuts: bool,
}

struct TemplateRegion {
    /// Whether its domain has all axes, or those that number the rows.
    whole: bool,
    body: Vec<Inst>,
    outputs: Vec<usize>,
    /// What each load reads, its dtype and its axes.
    loads: Vec<(usize, DType, AxisMask)>,
    /// The region of the last call, as the next one mostly has the same shape.
    last: RefCell<Option<Arc<Region>>>,
}

type Dtypes = SmallVec<[DType; 4]>;

/// Which axes of a domain an operand has, a bit each; along the others it is repeated.
type AxisMask = u8;
/// An operand that has all axes.
const ALL: AxisMask = AxisMask::MAX;
type Masks = SmallVec<[AxisMask; 6]>;

/// Whether a formula is pointwise and of whole operands, so that one template serves all shapes;
/// or the number of axes of its domain, the last of which are the rows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    Points,
    Axes(usize),
}

/// What a template was made from.
#[derive(PartialEq, Eq, Hash)]
enum FormulaKey {
    /// The name of a composite, the numbers in its formula, and the operands.
    Formula(&'static str, SmallVec<[u64; 4]>, Dtypes, Masks, Form),
    /// The instructions of a region, its results, its operands and the gradient of its result, and
    /// which operands want a gradient.
    Pullback(Vec<Inst>, Vec<usize>, Dtypes, Masks, Form, SmallVec<[bool; OPERANDS]>),
}

thread_local! {
    /// Templates by what they were made from; `None` where there is no single region.
    static TEMPLATES: RefCell<FxHashMap<FormulaKey, Option<Rc<FormulaTemplate>>>> = RefCell::default();
}

/// A formula of tensors and of the numbers that are given: in one pass over memory, if that is
/// possible and worthwhile. The formula depends on nothing else.
#[track_caller]
pub(crate) fn one_pass<const N: usize>(
    name: &'static str,
    numbers: &[f64],
    operands: [&Tensor; N],
    formula: impl Fn([&Tensor; N]) -> Tensor,
) -> Tensor {
    let at = mode::user_line(Line::caller());
    let of = |x: &[&Tensor]| formula(std::array::from_fn(|i| x[i]));
    let shape = operands[0].dims();
    let fused = fused(name, numbers, (shape, Form::Points), &operands, &[ALL; N], at, &of);
    fused.unwrap_or_else(|| mode::with_line(at, || of(&operands)))
}

/// [`one_pass`] of operands that broadcast to a shape.
#[track_caller]
pub(crate) fn one_pass_over<const N: usize>(
    name: &'static str,
    numbers: &[f64],
    shape: &[usize],
    operands: [&Tensor; N],
    formula: impl Fn([&Tensor; N]) -> Tensor,
) -> Tensor {
    let at = mode::user_line(Line::caller());
    let of = |x: &[&Tensor]| formula(std::array::from_fn(|i| x[i]));
    let spread = || {
        let (domain, masks) = merged(shape, &operands)?;
        let plain = |x: &&Tensor| x.is_contiguous() && x.device() == Device::Cpu;
        if element_count(shape) < LEAST || is_observed() || !operands.iter().all(plain) {
            return None;
        }
        mode::with_line(at, || {
            let flat: [Tensor; N] = std::array::from_fn(|i| {
                let own = masked(&domain, masks[i]);
                match operands[i].dims() == &own {
                    true => operands[i].clone(),
                    false => operands[i].reshape(&own[..]),
                }
            });
            let form = (&domain, Form::Axes(domain.len()));
            let y = fused(name, numbers, form, &flat.each_ref(), &masks, at, &of)?;
            Some(if y.shape() == shape { y } else { y.reshape(shape) })
        })
    };
    spread().unwrap_or_else(|| mode::with_line(at, || of(&operands)))
}

/// What [`one_pass_of_rows`] gave, or else the formula op by op, at the caller's line: closures do
/// not inherit it.
#[track_caller]
pub(crate) fn or_op_by_op(rows: Option<Tensor>, formula: impl FnOnce() -> Tensor) -> Tensor {
    let at = mode::user_line(Line::caller());
    rows.unwrap_or_else(|| mode::with_line(at, formula))
}

/// A formula of the rows of some tensors, if these axes are the last ones of the first and it is
/// worthwhile: of matrices, whose rows it reduces; the result has one number for each row, or for
/// each element. The others have its shape too, or are one row for all. The length of a row must
/// be among the numbers, if the formula depends on it.
#[track_caller]
pub(crate) fn one_pass_of_rows<const N: usize>(
    name: &'static str,
    numbers: &[f64],
    operands: [&Tensor; N],
    axes: &[isize],
    formula: impl Fn([&Tensor; N]) -> Tensor,
) -> Option<Tensor> {
    let at = mode::user_line(Line::caller());
    let shape = operands[0].dims();
    let is_whole = |x: &&Tensor| x.dims() == shape;
    let kept = shape.len().checked_sub(axes.len())?;
    let is_last =
        |axis: usize| axes.iter().any(|&a| (a - axis as isize) % shape.len() as isize == 0);
    if axes.is_empty()
        || element_count(shape) < LEAST
        || is_observed()
        || !(kept..shape.len()).all(is_last)
        || axes.iter().any(|a| !(-(shape.len() as isize)..shape.len() as isize).contains(a))
        || !operands
            .iter()
            .all(|x| x.is_contiguous() && (is_whole(x) || *x.shape() == shape[kept..]))
    {
        return None;
    }
    let row: usize = shape[kept..].iter().product();
    if row < LEAST_ROW {
        return None;
    }
    let of = |x: &[&Tensor]| formula(std::array::from_fn(|i| x[i]));
    mode::with_line(at, || {
        let domain = Shape::from_slice(&[element_count(shape) / row, row]);
        let masks = operands.map(|x| if is_whole(&x) { ALL } else { 0b10 });
        let flat: [Tensor; N] = std::array::from_fn(|i| {
            let (x, own) = (operands[i], masked(&domain, masks[i]));
            if *x.dims() == own { x.clone() } else { x.reshape(&own[..]) }
        });
        let form = (&domain, Form::Axes(2));
        let y = fused(name, numbers, form, &flat.each_ref(), &masks, at, &of)?;
        let wanted = if y.rank() == 1 { &shape[..kept] } else { &shape[..] };
        Some(if y.shape() == wanted { y } else { y.reshape(wanted) })
    })
}

/// The axes of a broadcast, neighbours of which that all operands treat alike are one, and which of
/// them each operand has. `None` if an operand does not broadcast, or the axes are many.
fn merged(shape: &[usize], operands: &[&Tensor]) -> Option<(Shape, Masks)> {
    let has = |x: &Tensor, axis: usize| {
        let own = (axis + x.rank()).checked_sub(shape.len()).map_or(1, |i| x.shape()[i]);
        (own == shape[axis]).then_some(true).or_else(|| (own == 1).then_some(false))
    };
    let (mut domain, mut masks) = (Shape::new(), Masks::from_elem(0, operands.len()));
    let mut before: Option<SmallVec<[bool; OPERANDS]>> = None;
    for (axis, &n) in shape.iter().enumerate() {
        if n == 1 {
            continue;
        }
        let here = operands.iter().map(|x| has(x, axis)).collect::<Option<SmallVec<_>>>()?;
        if before.as_ref() == Some(&here) {
            let last = domain.len() - 1;
            domain[last] *= n;
            continue;
        }
        if domain.len() == SAMPLES.len() {
            return None;
        }
        for (mask, &has) in masks.iter_mut().zip(&here) {
            *mask |= AxisMask::from(has) << domain.len();
        }
        domain.push(n);
        before = Some(here);
    }
    let all = (1 << domain.len()) - 1;
    masks.iter_mut().filter(|mask| **mask == all).for_each(|mask| *mask = ALL);
    (!domain.is_empty()).then_some((domain, masks))
}

/// A formula of some operands. Not generic, as composites are many: [`one_pass`] without the part
/// that is compiled for each.
type Formula<'a> = &'a dyn Fn(&[&Tensor]) -> Tensor;

fn fused(
    name: &'static str,
    numbers: &[f64],
    (shape, form): (&Shape, Form),
    operands: &[&Tensor],
    masks: &[AxisMask],
    at: Line,
    formula: Formula,
) -> Option<Tensor> {
    if element_count(shape) < LEAST || !are_plain(shape, operands, masks, at) {
        return None;
    }
    let differentiated =
        |x: &&Tensor| x.state(at).is_ok_and(|state| state.is_differentiated(x) || state.cut);
    let differentiated = operands.iter().any(differentiated);
    if differentiated && form == Form::Points && element_count(shape) < LEAST_TRACKED {
        return None;
    }
    let dtypes: Dtypes = operands.iter().map(|x| x.dtype()).collect();
    let numbers = numbers.iter().map(|v| v.to_bits()).collect();
    let key = FormulaKey::Formula(name, numbers, dtypes.clone(), Masks::from_slice(masks), form);
    let template = template(key, &|| {
        let program = traced(form, &dtypes, masks, at, formula)?;
        let cuts = program.equations.iter().any(|e| matches!(e.op, Op::Unary(Unary::Stop)));
        Some(FormulaTemplate { cuts, ..FormulaTemplate::of(&program, form, masks, 1)? })
    })?;
    if template.cuts && differentiated {
        return None;
    }
    mode::with_line(at, || template.apply(shape, operands).pop())
}

/// The shapes that formulas of one to four axes are traced with.
const SAMPLES: [&[usize]; 4] = [&[1 << 14], &[64, 256], &[8, 16, 128], &[4, 8, 4, 128]];

fn sample(form: Form) -> Shape {
    let axes = if let Form::Axes(axes) = form { axes } else { 1 };
    Shape::from_slice(SAMPLES[axes - 1])
}

/// The lengths of the axes that an operand has.
fn masked(shape: &[usize], mask: AxisMask) -> Shape {
    let own = |(axis, &n): (usize, &usize)| (mask == ALL || mask >> axis & 1 == 1).then_some(n);
    shape.iter().enumerate().filter_map(own).collect()
}

/// How an operand is read, which is dense.
fn layout(shape: &Shape, mask: AxisMask) -> Layout {
    if mask == ALL {
        return Layout::dense(shape.clone());
    }
    let (mut strides, mut step): (Strides, isize) = (Few::from_elem(0, shape.len()), 1);
    for axis in (0..shape.len()).rev().filter(|axis| mask >> axis & 1 == 1) {
        strides[axis] = step;
        step *= shape[axis] as isize;
    }
    Layout { shape: shape.clone(), strides, offset: 0 }
}

/// An operand with all axes.
fn whole(x: &Tensor, shape: &[usize], mask: AxisMask) -> Tensor {
    if mask == ALL {
        return x.clone();
    }
    let open = |(axis, &n): (usize, &usize)| if mask >> axis & 1 == 1 { n } else { 1 };
    let open: Shape = shape.iter().enumerate().map(open).collect();
    x.reshape(&open[..]).expand(shape)
}

/// A formula as a program. Traced as a body, where a derivative that is cut off is an equation.
fn traced(
    form: Form,
    dtypes: &[DType],
    masks: &[AxisMask],
    at: Line,
    formula: Formula,
) -> Option<Program> {
    let shape = sample(form);
    let record = || {
        trace::record(TraceKind::Body("composite"), None, &specs(&shape, dtypes, masks), at, |x| {
            let all = x.iter().zip(masks).map(|(x, &mask)| whole(x, &shape, mask));
            let all: SmallVec<[Tensor; 4]> = all.collect();
            let y = formula(&all.iter().collect::<SmallVec<[&Tensor; 4]>>());
            ((), vec![y])
        })
    };
    let program = crate::catch(record).ok()?.ok()?.1.program;
    (program.inputs.len() == dtypes.len()).then_some(program)
}

/// Whether single ops are observed, or recorded as a program.
fn is_observed() -> bool {
    events::mask() != 0 || trace::active()
}

/// Whether tensors can be the operands of a region, and nothing observes single ops.
fn are_plain(shape: &Shape, operands: &[&Tensor], masks: &[AxisMask], at: Line) -> bool {
    let fits = |(x, &mask): (&&Tensor, &AxisMask)| {
        let own = if mask == ALL { x.dims() == shape } else { *x.dims() == masked(shape, mask) };
        own && x.device() == Device::Cpu
            && x.dtype().is_float()
            && x.is_contiguous()
            && x.state(at).is_ok_and(|state| state.tangents.is_empty())
    };
    !is_observed() && operands.iter().zip(masks).all(fits)
}

/// Whether only the value of what is computed from a tensor on the CPU counts: nothing is recorded,
/// traced or observed.
#[track_caller]
pub(crate) fn is_value_alone(x: &Tensor) -> bool {
    let at = mode::user_line(Line::caller());
    !is_observed()
        && x.device() == Device::Cpu
        && x.state(at).is_ok_and(|state| !state.is_differentiated(x) && !state.cut)
}

fn specs(shape: &Shape, dtypes: &[DType], masks: &[AxisMask]) -> Vec<Spec> {
    let one = |(&dtype, &mask): (&DType, &AxisMask)| Spec::cpu(dtype, masked(shape, mask));
    dtypes.iter().zip(masks).map(one).collect()
}

/// The template for a key, made the first time.
fn template(
    key: FormulaKey,
    make: &dyn Fn() -> Option<FormulaTemplate>,
) -> Option<Rc<FormulaTemplate>> {
    if let Some(found) = TEMPLATES.with_borrow(|all| all.get(&key).cloned()) {
        return found;
    }
    let made = make().map(Rc::new);
    TEMPLATES.with_borrow_mut(|all| {
        if all.len() >= KEPT {
            all.clear();
        }
        all.insert(key, made.clone());
    });
    made
}

/// A region over a shape, whose rows are its last axis.
fn region(
    shape: &Shape,
    loads: impl Iterator<Item = (DType, AxisMask)>,
    body: &[Inst],
    outputs: &[usize],
) -> Region {
    let load = |(dtype, mask)| Load {
        spec: Spec::cpu(dtype, masked(shape, mask)),
        layout: layout(shape, mask),
    };
    Region {
        device: Device::Cpu,
        shape: shape.clone(),
        inner: 1,
        inputs: loads.map(load).collect(),
        body: body.to_vec(),
        outputs: outputs.to_vec(),
        columns: Vec::new(),
    }
}

/// The axes that the operands of a region have, if it is one of those that are made here.
fn masks_of(region: &Region) -> Option<Masks> {
    let shape = &region.shape;
    let known = |inst: &Inst| match inst {
        Inst::Load(_) | Inst::Literal(..) | Inst::Point(..) => true,
        Inst::Reduce(..) => region.inner == 1,
        Inst::Index(..) | Inst::Random(..) => false,
    };
    if shape.is_empty() || !region.columns.is_empty() || !region.body.iter().all(known) {
        return None;
    }
    let one = |load: &Load| {
        if load.spec.shape == *shape {
            return (load.layout == Layout::dense(shape.clone())).then_some(ALL);
        }
        let moves = |axis: usize| AxisMask::from(load.layout.strides[axis] != 0) << axis;
        let mask = (0..shape.len().min(SAMPLES.len())).fold(0, |mask, axis| mask | moves(axis));
        let own = load.spec.shape == masked(shape, mask) && load.layout == layout(shape, mask);
        own.then_some(mask)
    };
    region.inputs.iter().map(one).collect()
}

/// Whether the result of a region is one number for each row.
fn is_of_rows(region: &Region) -> bool {
    let mut row: SmallVec<[bool; 16]> = SmallVec::new();
    for inst in &region.body {
        row.push(match inst {
            Inst::Reduce(..) | Inst::Literal(..) => true,
            Inst::Point(_, of) => of.iter().all(|&v| row[v]),
            _ => false,
        });
    }
    row[region.outputs[0]]
}

impl FormulaTemplate {
    /// The regions of a program, if they are all of it, and no more than `most`.
    fn of(
        program: &Program,
        form: Form,
        masks: &[AxisMask],
        most: usize,
    ) -> Option<FormulaTemplate> {
        let program = jit::optimised(program).ok()?;
        let mut known = program.inputs.to_vec();
        let mut steps = Vec::new();
        for equation in program.equations.iter() {
            let Op::Region(region) = &equation.op else { return None };
            if form == Form::Points && region.reduces() {
                return None;
            }
            steps.push(TemplateRegion::of(region, &equation.inputs, &known, form, masks)?);
            known.extend_from_slice(&equation.outputs);
        }
        let place = |var| known.iter().position(|known| known == var);
        let results = program.outputs.iter().map(place).collect::<Option<_>>()?;
        let fits = (1..=most).contains(&steps.len());
        fits.then_some(FormulaTemplate { steps, results, cuts: false })
    }

    fn apply(&self, shape: &Shape, operands: &[&Tensor]) -> Vec<Tensor> {
        let n = operands.len();
        let mut made: SmallVec<[Tensor; 3]> = SmallVec::new();
        for step in &self.steps {
            let read = |&(i, ..): &(usize, DType, AxisMask)| operands.get(i).copied();
            let loads = step.loads.iter().map(|l| read(l).unwrap_or_else(|| &made[l.0 - n]));
            let found = step.apply(shape, &loads.collect::<SmallVec<[&Tensor; 6]>>());
            made.extend(found.into_vec());
        }
        let result =
            |&i: &usize| operands.get(i).map_or_else(|| made[i - n].clone(), |x| (*x).clone());
        self.results.iter().map(result).collect()
    }
}

impl TemplateRegion {
    fn of(
        region: &Region,
        inputs: &[Var],
        known: &[Var],
        form: Form,
        masks: &[AxisMask],
    ) -> Option<TemplateRegion> {
        let sample = sample(form);
        let whole = region.shape == sample;
        if !whole && region.shape[..] != sample[..sample.len() - 1] {
            return None;
        }
        let loads = inputs.iter().zip(&region.inputs).zip(masks_of(region)?);
        let loads = loads.map(|((var, load), mask)| {
            let place = known.iter().position(|known| known == var)?;
            // An operand has the axes that it was given with.
            let fits = !whole || masks.get(place).is_none_or(|&given| given == mask);
            fits.then_some((place, load.spec.dtype, mask))
        });
        let (body, outputs) = (region.body.clone(), region.outputs.clone());
        Some(TemplateRegion {
            whole,
            body,
            outputs,
            loads: loads.collect::<Option<_>>()?,
            last: RefCell::default(),
        })
    }

    fn apply(&self, shape: &Shape, loads: &[&Tensor]) -> Tensors {
        let rows = Shape::from_slice(&shape[..shape.len() - 1]);
        let shape = if self.whole { shape } else { &rows };
        let last = self.last.borrow().clone().filter(|region| region.shape == *shape);
        let region = last.unwrap_or_else(|| {
            let loads = self.loads.iter().map(|&(_, dtype, mask)| (dtype, mask));
            let made = Arc::new(region(shape, loads, &self.body, &self.outputs));
            *self.last.borrow_mut() = Some(made.clone());
            made
        });
        apply_all(Op::Region(region), loads)
    }
}

mod derivative;
#[cfg(test)]
mod tests;

pub(super) use derivative::{has_pullback, pullback, pushforward};
