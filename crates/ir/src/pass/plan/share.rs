//! The table of which results may be written over which operands.

use super::super::Target;
use super::slots::Planner;
use super::{Base, ProductLocation};
use crate::{Binary, Flow, Inst, Layout, Op, Region, Shape, Spec, dense_strides};
use rustc_hash::FxHashSet;

/// How a result may reuse the memory of an operand that is not read afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// It may not.
    Never,
    /// Element `i` of the result is written after element `i` of the operand was read, so other
    /// operands may be in the same memory if they are read elementwise too.
    InStep,
    /// It may if no other operand is in that memory.
    Alone,
}

/// Whether result number `result` may be written over operand number `operand`, both dense and of
/// as many elements of one dtype.
///
/// Kernels of backends must support what this table allows.
pub fn sharing(op: &Op, target: Target, result: usize, operand: usize) -> Sharing {
    sharing_by(op, target, None, result, operand)
}

/// [`sharing`], with facts about a region that are computed once.
pub(super) fn sharing_by(
    op: &Op,
    target: Target,
    facts: Option<&RegionFacts>,
    result: usize,
    operand: usize,
) -> Sharing {
    let if_it = |holds: bool, sharing: Sharing| if holds { sharing } else { Sharing::Never };
    match op {
        // The base is in place already; only the part is written.
        Op::Put(_) | Op::Scatter(..) => if_it(operand == 0, Sharing::Alone),
        Op::Fused(f) if f.replaces() => if_it((result, operand) == (0, 0), Sharing::Alone),
        Op::Fused(f) => if_it(f.updates() && operand == result, Sharing::InStep),
        Op::Region(region) => {
            // A sum over the rows is written when all of them have been read, but by other blocks.
            let value = region.outputs.get(result);
            let last = |facts: &RegionFacts| value.is_some_and(|&v| facts.last[v]);
            let over = in_step(region, operand)
                && match facts {
                    Some(facts) => last(facts) && !facts.keys.contains(&operand),
                    None => last(&RegionFacts::of(region)) && !is_key(region, operand),
                };
            if_it(over, Sharing::Alone)
        }
        Op::DotRegion(region) => {
            let adds = operand >= 2 && added(region, target) == Some(operand - 1);
            if_it(adds, Sharing::Alone)
        }
        Op::Flow(flow) => match &**flow {
            Flow::Cond { .. } => Sharing::Never,
            Flow::While { shared, .. } => if_it(operand == shared + result, Sharing::Alone),
            Flow::Scan(scan) => {
                let carried = result < scan.carry && operand == scan.shared + result;
                if_it(carried, Sharing::Alone)
            }
        },
        Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } => Sharing::Never,
        Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) => Sharing::InStep,
        Op::Select | Op::Cast(_) | Op::Copy => Sharing::InStep,
        Op::To(_) => Sharing::Never,
        Op::View(_) | Op::After | Op::Pad(_) | Op::Cat(_) | Op::Gather(_) => Sharing::Never,
        Op::Reduce(..) | Op::ArgReduce(..) | Op::Cumulate { .. } => Sharing::Never,
        Op::Sort { .. } | Op::Ranks { .. } | Op::Dot | Op::Conv(_) | Op::Pool(_) => Sharing::Never,
        Op::Linalg(_) | Op::Fft(_) | Op::Custom(_) => Sharing::Never,
        Op::Collective(_) | Op::Wait | Op::Transfer(_) => Sharing::Never,
    }
}

/// The element of the dense result at which an operand that is copied into it starts, if it is
/// contiguous there: then it need not be copied if it is computed there. `shapes` are those of the
/// operands, `shape` that of the result.
///
/// Kernels of backends must not overwrite a piece that is in place already.
pub fn piece(op: &Op, operand: usize, shapes: &[&Shape], shape: &Shape) -> Option<usize> {
    let (at, lies) = match op {
        Op::Cat(axis) => {
            let row: usize = shape[axis + 1..].iter().product();
            let before: usize = shapes[..operand].iter().map(|s| s[*axis]).sum();
            (before * row, shape[..*axis].iter().all(|&n| n == 1))
        }
        Op::Pad(padding) => {
            let mut strides = dense_strides(shape);
            let mut at = 0;
            for (stride, p) in strides.iter_mut().zip(padding) {
                at += p.before * *stride as usize;
                *stride *= p.between as isize + 1;
            }
            (at, Layout { shape: shapes[0].clone(), strides, offset: at }.is_dense())
        }
        Op::Put(views) if operand == 1 => {
            let whole = Layout::dense(shape.clone());
            let part = views.iter().try_fold(whole, |part, view| part.view(view))?;
            (part.offset, part.is_dense())
        }
        _ => return None,
    };
    lies.then_some(at)
}

/// Facts about a region.
pub(super) struct RegionFacts {
    /// The operands that are keys of random numbers.
    keys: FxHashSet<usize>,
    /// By value: whether it is an element value of the last pass, so that no later pass reads a row
    /// after it was written there. (A kernel makes one pass over a row for each level of
    /// reductions, and one more.)
    last: Vec<bool>,
}

impl RegionFacts {
    pub(super) fn of(region: &Region) -> RegionFacts {
        let mut values: Vec<(usize, bool)> = Vec::with_capacity(region.body.len());
        let mut keys = FxHashSet::default();
        for inst in &region.body {
            values.push(match inst {
                Inst::Random(_, key, _) => {
                    keys.insert(*key);
                    (0, false)
                }
                Inst::Load(_) | Inst::Index(..) => (0, false),
                Inst::Literal(..) => (0, true),
                Inst::Point(_, of) => (
                    of.iter().map(|&v| values[v].0).max().unwrap_or(0),
                    of.iter().all(|&v| values[v].1),
                ),
                Inst::Reduce(_, v) => (values[*v].0 + 1, true),
            });
        }
        let most = values.iter().map(|v| v.0).max().unwrap_or(0);
        let last = values.iter().map(|&(level, row)| !row && level == most).collect();
        RegionFacts { keys, last }
    }
}

fn is_key(region: &Region, operand: usize) -> bool {
    region.body.iter().any(|inst| matches!(inst, Inst::Random(_, key, _) if *key == operand))
}

/// Whether the operand is loaded at the index that is written.
fn in_step(region: &Region, operand: usize) -> bool {
    let load = &region.inputs[operand];
    load.layout.is_dense()
        && load.layout.offset == 0
        && load.layout.shape == region.shape
        && load.spec.len() == load.layout.len()
}

/// The operand of a region after a product that is added to it, if the region does that and nothing
/// else, for a product to which the target can add: a matrix, in one of its dtypes.
pub fn added(region: &Region, target: Target) -> Option<usize> {
    let product = &region.inputs.first()?.spec;
    let &[m, n] = &product.shape[..] else { return None };
    if !target.adds_products.contains(&product.dtype) {
        return None;
    }
    let [load_a, load_b, Inst::Point(Op::Binary(Binary::Add), of)] = &region.body[..] else {
        return None;
    };
    let (Inst::Load(a), Inst::Load(b)) = (load_a, load_b) else { return None };
    let other = match (a, b) {
        (0, other) | (other, 0) if *other != 0 => *other,
        _ => return None,
    };
    let only = region.outputs == [2] && region.columns.is_empty();
    let sums = matches!(of[..], [0, 1] | [1, 0]) && only;
    (m > 1 && n > 1 && sums && in_step(region, 0) && in_step(region, other)).then_some(other)
}

/// The result in whose memory the product of a region can be computed, to be replaced there part by
/// part.
pub(super) fn product_result(region: &Region, results: &[&Spec]) -> Option<usize> {
    let product = &region.inputs.first()?.spec;
    let fits = |spec: &Spec| spec.dtype == product.dtype && spec.len() == product.len();
    if !in_step(region, 0) || is_key(region, 0) || region.reduces() {
        return None;
    }
    let last = RegionFacts::of(region).last;
    (0..region.outputs.len()).find(|&j| fits(results[j]) && last[region.outputs[j]])
}

impl Planner<'_> {
    /// A product whose result reuses the memory of the operand added to it is accumulated there:
    /// known only now, since a slot may have been placed in the memory of an input long after it
    /// began.
    pub fn add_products(&mut self) {
        for e in 0..self.program.equations.len() {
            let equation = &self.program.equations[e];
            let Op::DotRegion(region) = &equation.op else { continue };
            let Some(operand) = added(region, self.target).map(|k| k + 1) else { continue };
            let result = &self.slots[self.slot(equation.outputs[0])];
            let (slot, other) =
                (self.slot(equation.outputs[0]), self.slot(equation.inputs[operand]));
            let same = slot == other
                || result.base == self.slots[other].base && matches!(result.base, Base::Input(_));
            if same {
                self.products[e] = Some(ProductLocation::Added(operand));
            }
        }
    }
}
