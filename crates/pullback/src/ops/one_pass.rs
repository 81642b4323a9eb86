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

use super::region::one_by_one;
use crate::apply::apply_all;
use crate::rule::{Derivatives, RuleContext, Tensors};
use crate::trace::TraceKind;
use crate::{DType, Device, Spec, Tensor, events, jit, mode, trace};
use pullback_ir::{Inst, Layout, Line, Load, Op, Program, Region, Shape, Unary, element_count};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Fewest elements: below, the values of a formula stay in a near cache, and finding its region
/// takes as long as its ops.
const LEAST: usize = 1 << 14;
/// Most operands of a region whose derivative is a region.
const OPERANDS: usize = 3;
/// Templates that are kept: more than programs have composites.
const KEPT: usize = 512;

/// A region for tensors of any shape.
struct Template {
    body: Vec<Inst>,
    outputs: Vec<usize>,
    /// The operand of each load, and its dtype.
    loads: Vec<(usize, DType)>,
}

type Dtypes = SmallVec<[DType; 4]>;

/// What a template was made from.
#[derive(PartialEq, Eq, Hash)]
enum FormulaKey {
    /// The name of a composite, the numbers in its formula, and the dtypes.
    Formula(&'static str, SmallVec<[u64; 4]>, Dtypes),
    /// The instructions of a region, its dtypes, and which operands want a gradient.
    Pullback(Vec<Inst>, Dtypes, SmallVec<[bool; 3]>),
}

thread_local! {
    /// Templates by what they were made from; `None` where there is no single region.
    static TEMPLATES: RefCell<FxHashMap<FormulaKey, Option<Rc<Template>>>> = RefCell::default();
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
    fused_or_plain(name, numbers, &operands, at, &of)
}

/// A formula of some operands. Not generic, as composites are many: [`one_pass`] without the part
/// that is compiled for each.
type Formula<'a> = &'a dyn Fn(&[&Tensor]) -> Tensor;

fn fused_or_plain(
    name: &'static str,
    numbers: &[f64],
    operands: &[&Tensor],
    at: Line,
    formula: Formula,
) -> Tensor {
    let plain = || mode::with_line(at, || formula(operands));
    if operands[0].len() < LEAST || !are_plain(operands, at) {
        return plain();
    }
    let dtypes: Dtypes = operands.iter().map(|x| x.dtype()).collect();
    let key =
        FormulaKey::Formula(name, numbers.iter().map(|v| v.to_bits()).collect(), dtypes.clone());
    match template(key, &|| traced(&dtypes, at, formula)) {
        Some(template) => mode::with_line(at, || template.apply(operands).into_first()),
        None => plain(),
    }
}

/// [`one_pass`] of operands that broadcast to a shape. Large ones are spread first: one more pass
/// over memory for each that is smaller, instead of one for each op.
#[track_caller]
pub(crate) fn one_pass_over<const N: usize>(
    name: &'static str,
    numbers: &[f64],
    shape: &[usize],
    operands: [&Tensor; N],
    formula: impl Fn([&Tensor; N]) -> Tensor,
) -> Tensor {
    let at = mode::user_line(Line::caller());
    if shape.iter().product::<usize>() < LEAST || trace::active() || events::mask() != 0 {
        return mode::with_line(at, || formula(operands));
    }
    mode::with_line(at, || {
        let spread = operands.map(|x| x.expand(shape).contiguous());
        one_pass(name, numbers, spread.each_ref(), formula)
    })
}

/// A formula as a program, unless it cuts a derivative off: the program of a region does not know
/// about that. Traced as a body, where what is cut off is an equation.
fn traced(dtypes: &[DType], at: Line, formula: Formula) -> Option<Program> {
    let record = || {
        trace::record(TraceKind::Body("composite"), None, &specs(dtypes), at, |x| {
            let y = formula(&x.iter().collect::<SmallVec<[&Tensor; 4]>>());
            ((), vec![y])
        })
    };
    let program = crate::catch(record).ok()?.ok()?.1.program;
    let cuts = program.equations.iter().any(|e| matches!(e.op, Op::Unary(Unary::Stop)));
    (!cuts && program.inputs.len() == dtypes.len()).then_some(program)
}

/// Whether tensors can be the operands of a region, and nothing observes single ops.
fn are_plain(operands: &[&Tensor], at: Line) -> bool {
    let fits = |x: &&Tensor| {
        x.shape() == operands[0].shape()
            && x.device() == Device::Cpu
            && x.dtype().is_float()
            && x.is_contiguous()
            && x.state(at).is_ok_and(|state| state.tangents.is_empty())
    };
    events::mask() == 0 && !trace::active() && operands.iter().all(fits)
}

/// Whether only the value of what is computed from a tensor on the CPU counts: nothing is recorded,
/// traced or observed.
#[track_caller]
pub(crate) fn is_value_alone(x: &Tensor) -> bool {
    let at = mode::user_line(Line::caller());
    events::mask() == 0
        && !trace::active()
        && x.device() == Device::Cpu
        && x.state(at).is_ok_and(|state| !state.is_differentiated(x) && !state.cut)
}

fn specs(dtypes: &[DType]) -> Vec<Spec> {
    dtypes.iter().map(|&dtype| Spec::cpu(dtype, [LEAST])).collect()
}

/// The template for a key, made from a program the first time.
fn template(key: FormulaKey, program: &dyn Fn() -> Option<Program>) -> Option<Rc<Template>> {
    if let Some(found) = TEMPLATES.with_borrow(|all| all.get(&key).cloned()) {
        return found;
    }
    let made = program().and_then(|program| Template::of(&program)).map(Rc::new);
    TEMPLATES.with_borrow_mut(|all| {
        if all.len() >= KEPT {
            all.clear();
        }
        all.insert(key, made.clone());
    });
    made
}

/// A pointwise region over a shape.
fn region(shape: &Shape, dtypes: &[DType], body: &[Inst], outputs: &[usize]) -> Region {
    let load = |&dtype: &DType| Load {
        spec: Spec::cpu(dtype, shape.clone()),
        layout: Layout::dense(shape.clone()),
    };
    Region {
        device: Device::Cpu,
        shape: shape.clone(),
        inner: 1,
        inputs: dtypes.iter().map(load).collect(),
        body: body.to_vec(),
        outputs: outputs.to_vec(),
        columns: Vec::new(),
    }
}

/// Whether a region is pointwise, with dense operands alone.
fn is_pointwise(region: &Region) -> bool {
    let dense = |load: &Load| load.layout == Layout::dense(region.shape.clone());
    let point = |inst: &Inst| matches!(inst, Inst::Load(_) | Inst::Literal(..) | Inst::Point(..));
    region.columns.is_empty() && region.inputs.iter().all(dense) && region.body.iter().all(point)
}

impl Template {
    /// The one region of a program, if that is all of it.
    fn of(program: &Program) -> Option<Template> {
        let program = jit::optimised(program).ok()?;
        let [equation] = &program.equations[..] else { return None };
        let Op::Region(region) = &equation.op else { return None };
        if equation.outputs[..] != program.outputs[..] || !is_pointwise(region) {
            return None;
        }
        let position = |var| program.inputs.iter().position(|input| *input == var);
        let loads = equation.inputs.iter().zip(&region.inputs);
        let loads = loads.map(|(&var, load)| Some((position(var)?, load.spec.dtype)));
        let (body, outputs) = (region.body.clone(), region.outputs.clone());
        Some(Template { body, outputs, loads: loads.collect::<Option<_>>()? })
    }

    fn apply(&self, operands: &[&Tensor]) -> Tensors {
        let dtypes: Dtypes = self.loads.iter().map(|load| load.1).collect();
        let loaded: SmallVec<[&Tensor; 4]> = self.loads.iter().map(|l| operands[l.0]).collect();
        let region = region(&operands[0].spec().shape, &dtypes, &self.body, &self.outputs);
        apply_all(Op::Region(Arc::new(region)), &loaded)
    }
}

/// Whether the derivative of a region is one: a large pointwise region of few operands.
pub(super) fn has_pullback(region: &Region) -> bool {
    element_count(&region.shape) >= LEAST
        && (1..=OPERANDS).contains(&region.inputs.len())
        && region.outputs.len() == 1
        && region.device == Device::Cpu
        && is_pointwise(region)
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
                let row = super::row(op);
                of.iter().enumerate().any(|(i, &v)| reached[v] && row.reaches(i))
            }
            _ => false,
        });
    }
    region.outputs.iter().any(|&v| reached[v])
}

/// The gradients of a region's operands from that of its result.
pub(super) fn pullback(ctx: &RuleContext, dys: &Derivatives) -> Derivatives {
    let n = ctx.counts().0;
    let (Op::Region(of), Some(dy)) = (ctx.op, &dys[0]) else {
        return Derivatives::from_elem(None, n);
    };
    // Often one number for all, from the sum of a loss.
    let dy = &dy.contiguous();
    let needs: SmallVec<[bool; 3]> = (0..n).map(|i| ctx.needs(i) && reaches(of, i)).collect();
    if !needs.contains(&true) {
        return Derivatives::from_elem(None, n);
    }
    let all: SmallVec<[&Tensor; 4]> = (0..n).map(|i| ctx.x(i)).chain([dy]).collect();
    let dtypes: Dtypes = all.iter().map(|x| x.dtype()).collect();
    let fused = || {
        if !are_plain(&all, mode::user_line(Line::caller())) {
            return None;
        }
        let key = FormulaKey::Pullback(of.body.clone(), dtypes.clone(), needs.clone());
        let small = || region(&[LEAST][..].into(), &dtypes[..n], &of.body, &of.outputs);
        let traced =
            || trace::trace(|x: &[Tensor]| gradients(&small(), &needs, x), &specs(&dtypes));
        Some(template(key, &|| traced().ok())?.apply(&all).into_vec())
    };
    let op_by_op = || {
        let all: Vec<Tensor> = all.iter().map(|x| (*x).clone()).collect();
        gradients(of, &needs, &all)
    };
    let mut found = fused().unwrap_or_else(op_by_op).into_iter();
    needs.iter().map(|&wanted| if wanted { found.next() } else { None }).collect()
}

/// The tangent of a region's result, op by op.
pub(super) fn pushforward(ctx: &RuleContext, tangents: &Derivatives) -> Tensors {
    let Op::Region(of) = ctx.op else { return Tensors::new() };
    let x: Vec<Tensor> = (0..ctx.counts().0).map(|i| ctx.x(i).clone()).collect();
    let zero = |(x, t): (&Tensor, &Option<Tensor>)| t.clone().unwrap_or_else(|| x.zeros_like());
    let dx: Vec<Tensor> = x.iter().zip(tangents).map(zero).collect();
    let f = |x: &Vec<Tensor>| one_by_one(of, &x.iter().collect::<Vec<_>>()).into_first();
    Tensors::One(crate::jvp(f, &x, &dx).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reduction, cat, losses as l, no_grad};

    type Composite = (&'static str, fn(&Tensor, &Tensor) -> Tensor);

    #[rustfmt::skip]
    const COMPOSITES: &[Composite] = &[
        ("leaky_relu", |x, _| x.leaky_relu(0.1)),     ("elu", |x, _| x.elu(0.7)),
        ("celu", |x, _| x.celu(0.7)),                 ("selu", |x, _| x.selu()),
        ("softplus", |x, _| x.softplus(1.5, 2.0)),    ("log_sigmoid", |x, _| x.log_sigmoid()),
        ("mish", |x, _| x.mish()),                    ("softsign", |x, _| x.softsign()),
        ("tanhshrink", |x, _| x.tanhshrink()),        ("softshrink", |x, _| x.softshrink(0.5)),
        ("hardshrink", |x, _| x.hardshrink(0.5)),     ("hardtanh", |x, _| x.hardtanh(-1.0, 2.0)),
        ("relu6", |x, _| x.relu6()),                  ("hardsigmoid", |x, _| x.hardsigmoid()),
        ("hardswish", |x, _| x.hardswish()),          ("threshold", |x, _| x.threshold(0.1, 0.5)),
        ("clamp", |x, _| x.clamp(-1.0, 1.0)),         ("clamp_min", |x, _| x.clamp_min(0.1)),
        ("clamp_max", |x, _| x.clamp_max(0.1)),       ("lerp", |x, y| x.lerp(y, 0.3)),
        ("cube", |x, _| x.powi(3)),                   ("fourth", |x, _| x.powi(4)),
        ("sinc", |x, _| x.sinc()),                    ("ndtr", |x, _| x.ndtr()),
        ("frac", |x, _| x.frac()),                    ("round_to", |x, _| x.round_to(1)),
        ("nan_to_num", |x, _| x.nan_to_num(0.0, 1.0, -1.0)),
        ("logit_within", |x, _| x.logit_within(0.1)), ("xlogy", |x, y| x.xlogy(&y.square())),
        ("addcmul", |x, y| x.addcmul(x, y, 0.5)),     ("addcdiv", |x, y| x.addcdiv(y, x, 0.5)),
        ("fmax", |x, y| x.fmax(y)),                   ("fmin", |x, y| x.fmin(y)),
        ("angle", |x, _| x.angle()),                  ("next_after", |x, y| x.next_after(y)),
        ("hypot", |x, y| x.hypot(y)),                 ("logaddexp", |x, y| x.logaddexp(y)),
        ("logaddexp2", |x, y| x.logaddexp2(y)),       ("mse", |x, y| l::mse(x, y, Reduction::None)),
        ("huber", |x, y| l::huber(x, y, 0.7, Reduction::None)),
        ("smooth_l1", |x, y| l::smooth_l1(x, y, 0.7, Reduction::None)),
        ("gaussian", |x, y| l::gaussian_nll(x, y, &y.square(), false, 0.5, Reduction::None)),
        ("hinge", |x, y| l::hinge_embedding(x, y, 0.7, Reduction::None)),
        ("soft_margin", |x, y| l::soft_margin(x, y, Reduction::None)),
        ("logits", |x, y| l::binary_cross_entropy_with_logits(x, y, None, None, Reduction::None)),
    ];

    fn bits(x: &Tensor) -> Vec<u64> {
        let bits = |v: f64| if v.is_nan() { u64::MAX } else { v.to_bits() };
        x.cast(DType::F64).to_vec::<f64>().into_iter().map(bits).collect()
    }

    /// Value and gradients, of the whole or of parts that are too small for one pass.
    fn computed(f: Composite, x: &Tensor, y: &Tensor, parts: usize) -> [Vec<u64>; 3] {
        let mut found: [Vec<Tensor>; 3] = Default::default();
        let n = x.len() / parts;
        for part in 0..parts {
            let piece = |x: &Tensor| {
                no_grad(|| x.narrow(0, (part * n) as isize, n).deep_clone()).requires_grad()
            };
            let (x, y) = (piece(x), piece(y));
            let z = f.1(&x, &y);
            let dz = z.cos().detach();
            if z.is_tracked() {
                z.backward_with(&dz).unwrap();
            }
            let gradient = |x: &Tensor| x.grad().unwrap_or_else(|| x.detach() * 0.0);
            for (list, one) in found.iter_mut().zip([z.detach(), gradient(&x), gradient(&y)]) {
                list.push(one);
            }
        }
        found.map(|list| bits(&cat(&list.iter().collect::<Vec<_>>(), 0)))
    }

    #[test]
    fn one_pass_has_the_bits_of_the_formula() {
        let n = 2 * LEAST;
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let x = Tensor::linspace(-3.5, 3.5, n).cast(dtype);
            let y = (Tensor::linspace(2.0, -3.0, n) + 0.01).cast(dtype);
            for &f in COMPOSITES {
                let (whole, parts) = (computed(f, &x, &y, 1), computed(f, &x, &y, 4));
                for (what, (a, b)) in ["value", "dx", "dy"].iter().zip(whole.iter().zip(&parts)) {
                    let wrong = a.iter().zip(b).filter(|(a, b)| a != b).count();
                    assert_eq!(wrong, 0, "{} of {dtype}: {what} has other bits", f.0);
                }
            }
        }
    }

    #[test]
    fn composites_become_regions() {
        let x = Tensor::linspace(-3.5, 3.5, LEAST).cast(DType::F32).requires_grad();
        x.hardswish().sum().backward().unwrap();
        let found = TEMPLATES.with_borrow(|all| {
            let of = |key: &FormulaKey| {
                matches!(key, FormulaKey::Formula("hardswish", ..) | FormulaKey::Pullback(..))
            };
            all.iter().filter(|(key, made)| of(key) && made.is_some()).count()
        });
        assert_eq!(found, 2, "the composite and its derivative are one region each");
    }

    #[test]
    fn derivatives_of_every_order_go_through_a_region() {
        let n = LEAST;
        let x = Tensor::linspace(0.5, 1.5, n);
        // The third derivative of Σ x⁴ is 24·x.
        let once = |x: &Tensor| crate::grad(|x: &Tensor| x.powi(4).sum())(x);
        let twice = |x: &Tensor| crate::grad(|x: &Tensor| once(x).sum())(x);
        let third = crate::grad(|x: &Tensor| twice(x).sum())(&x);
        let wrong = (third - &x * 24.0).abs().max().item::<f64>();
        assert!(wrong < 1e-12, "off by {wrong}");
        let (_, tangent) = crate::jvp(|x: &Tensor| x.powi(4), &x, &x.ones_like());
        let wrong = (tangent - x.powi(3) * 4.0).abs().max().item::<f64>();
        assert!(wrong < 1e-12, "off by {wrong}");
    }
}
