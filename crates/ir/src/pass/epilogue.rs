//! Joins a matrix product and the region that follows it: the region runs on pieces of the product
//! while they are in cache, and the product itself is never stored.
//!
//! Applied where the product is read once, in order, by a region without reductions or by a
//! pointwise op, over as many elements as the product has. A region over the same elements under
//! another shape gets the product's shape if its other operands allow it.
//!
//! Where only a library's epilogues are wanted ([`LibraryEpilogue`]), other regions stay apart.
//!
//! Guarantees: the same bits, but that a library rounds once. Idempotent. Variables are renumbered
//! in order.

use super::Epilogue;
use super::fuse::reshaped;
use super::rebuild::with_programs;
use crate::{
    Binary, DType, Equation, Inst, Layout, Load, Op, Program, Region, Spec, Var, Vars, View,
};
use std::sync::Arc;

/// Joins products and the regions that follow.
///
/// ```
/// use pullback_ir::{Program, pass::epilogue};
/// let text = "program (a: f32[8,16], b: f32[16,4], c: f32[8,4]) { let d: f32[8,4] = dot a b; let
/// e: f32[8,4] = add d c; return e }"; let program: Program = text.parse().unwrap(); let joined =
/// epilogue(&program); assert_eq!(joined.equations.len(), 1);
/// assert_eq!(joined.equations[0].op.name(), "dot_region");
/// ```
#[must_use]
pub fn epilogue(program: &Program) -> Program {
    epilogue_where(program, Epilogue::Regions)
}

/// An epilogue that libraries of products offer: the sum with a row that is the same for all rows
/// of the product, or a cast to `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibraryEpilogue {
    /// The operand of the region that is the row; the product is operand 0.
    pub bias: Option<usize>,
    /// Whether the result is wider than the operands of the product.
    pub widened: bool,
}

impl LibraryEpilogue {
    /// What a region that follows a product does, if it is this and nothing else.
    ///
    /// ```
    /// use pullback_ir::{Op, Program, pass::{Epilogue, LibraryEpilogue, epilogue_where}};
    /// let text = "program (a: bf16[8,16], b: bf16[16,4]) { let c: bf16[8,4] = dot a b; let d:
    /// f32[8,4] = cast{f32} c; return d }"; let program: Program = text.parse().unwrap(); let
    /// joined = epilogue_where(&program, Epilogue::Library); let Op::DotRegion(region) =
    /// &joined.equations[0].op else { panic!("{joined}") }; let of =
    /// LibraryEpilogue::of(region).unwrap(); assert_eq!((of.bias, of.widened), (None, true));
    /// ```
    #[must_use]
    pub fn of(region: &Region) -> Option<LibraryEpilogue> {
        let (product, [result]) = (&region.inputs.first()?.spec, &region.outputs[..]) else {
            return None;
        };
        let in_f32 = matches!(product.dtype, DType::F32 | DType::BF16 | DType::F16);
        if !in_f32 || product.shape.len() != 2 || region.shape != product.shape {
            return None;
        }
        // The value so far: the product, then with its bias, then widened.
        let (mut of, mut value) = (LibraryEpilogue { bias: None, widened: false }, None);
        let loads_bias = |of: &LibraryEpilogue, v: usize| matches!(region.body[v], Inst::Load(k) if Some(k) == of.bias);
        for (v, inst) in region.body.iter().enumerate() {
            match inst {
                Inst::Load(0) => value = Some(v),
                Inst::Load(k) if is_row(&region.inputs[*k], product) => of.bias = Some(*k),
                Inst::Point(Op::Binary(Binary::Add), with)
                    if !of.widened
                        && value.is_some_and(|value| with.contains(&value))
                        && with.iter().any(|&v| loads_bias(&of, v)) =>
                {
                    value = Some(v);
                }
                // Libraries take a bias in the dtype of the result alone.
                Inst::Point(Op::Cast(DType::F32), with)
                    if of.bias.is_none() && value == with.first().copied() =>
                {
                    (of.widened, value) = (true, Some(v));
                }
                _ => return None,
            }
        }
        let adds = |inst: &Inst| matches!(inst, Inst::Point(Op::Binary(_), _));
        let sums = region.body.iter().filter(|inst| adds(inst)).count();
        let all = value == Some(*result) && sums == region.inputs.len() - 1;
        let widens = !of.widened || product.dtype != DType::F32;
        (all && widens && region.inputs.len() <= 2 && region.body.len() > 1).then_some(of)
    }
}

/// Whether an operand is one row, repeated for all rows of a product, and of its dtype.
fn is_row(load: &Load, product: &Spec) -> bool {
    let dense = load.spec.dtype == product.dtype && load.spec.len() == product.shape[1];
    let row = load.layout.strides[..] == [0, 1] || product.shape[1] == 1;
    dense && row && load.layout.offset == 0
}

/// Joins products and the regions that follow, where a backend computes both together.
#[must_use]
pub fn epilogue_where(program: &Program, which: Epilogue) -> Program {
    let wanted = |region: &Region| match which {
        Epilogue::Nothing => false,
        Epilogue::Library => LibraryEpilogue::of(region).is_some(),
        Epilogue::Regions => true,
    };
    let (uses, made) = (program.uses(), program.definitions());
    let mut out = Program { equations: Vec::new(), ..program.clone() };
    let mut joined = vec![false; program.equations.len()];
    let mut renamed: Vec<(usize, Equation)> = Vec::new();
    for (i, e) in program.equations.iter().enumerate() {
        // The product that defines a variable, if nothing else reads it.
        let product = |v: Var| {
            let dot = made[v.index()].filter(|_| uses[v.index()] == 1)?;
            let spec = program.spec(v);
            let plain = program.equations[dot].op == Op::Dot && spec.dtype.is_float();
            (plain && !spec.is_empty() && !joined[dot]).then_some(dot)
        };
        let Some(region) = as_region(program, e) else { continue };
        let candidates =
            e.inputs.iter().enumerate().filter_map(|(k, &v)| Some((k, v, product(v)?)));
        let fits = |(k, v, dot): (usize, Var, usize)| {
            let load = &region.inputs[k];
            let in_order = load.layout.is_dense() && load.layout.offset == 0;
            let all = region.shape.iter().product::<usize>() == load.spec.len();
            (in_order && all)
                .then(|| reshaped(&region, &program.spec(v).shape))
                .flatten()
                .map(|r| product_first(r, k))
                .filter(wanted)
                .map(|r| (k, dot, r))
        };
        let found = candidates.filter_map(fits).next();
        let Some((k, dot, region)) = found else { continue };
        joined[dot] = true;
        renamed.push((i, with_product(program, e, &program.equations[dot], region, k)));
    }
    let mut renamed = renamed.into_iter().peekable();
    for (i, e) in program.equations.iter().enumerate() {
        if let Some((_, mut e)) = renamed.next_if(|(at, _)| *at == i) {
            let mut views = Vec::new();
            let specs = match &e.op {
                Op::DotRegion(region) => result_specs(region),
                _ => Vec::new(),
            };
            for (v, spec) in e.outputs.iter_mut().zip(specs) {
                // A region that got the product's shape has results of that shape.
                if spec.shape != out.spec(*v).shape {
                    let view = Op::View(View::Reshape(out.spec(*v).shape.clone()));
                    let result = out.fresh(spec);
                    let (inputs, outputs) = (Vars::from_slice(&[result]), Vars::from_slice(&[*v]));
                    views.push(Equation { op: view, inputs, outputs, at: e.at });
                    *v = result;
                }
            }
            out.equations.push(e);
            out.equations.extend(views);
        } else if !joined[i] {
            out.equations.push(Equation {
                op: with_programs(&e.op, |inside| epilogue_where(inside, which)),
                ..e.clone()
            });
        }
    }
    out.renumbered()
}

/// The equation as a region that may follow a product.
fn as_region(program: &Program, e: &Equation) -> Option<Region> {
    match &e.op {
        Op::Region(region) => (!region.reduces()).then(|| Region::clone(region)),
        op if op.is_pointwise() && *op != Op::Copy => {
            let shape = program.spec(e.inputs[0]).shape.clone();
            let load = |&v: &Var| Load {
                spec: program.spec(v).clone(),
                layout: Layout::dense(shape.clone()),
            };
            let mut body: Vec<Inst> = (0..e.inputs.len()).map(Inst::Load).collect();
            body.push(Inst::Point(op.clone(), (0..e.inputs.len()).collect()));
            let inputs = e.inputs.iter().map(load).collect();
            let (device, outputs) = (program.spec(e.inputs[0]).device, vec![body.len() - 1]);
            Some(Region { device, shape, inner: 0, inputs, outputs, body, columns: Vec::new() })
        }
        _ => None,
    }
}

/// The region with its operand number `k` first.
fn product_first(mut region: Region, k: usize) -> Region {
    let to = |i: usize| match i.cmp(&k) {
        std::cmp::Ordering::Less => i + 1,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => i,
    };
    let first = region.inputs.remove(k);
    region.inputs.insert(0, first);
    for inst in &mut region.body {
        match inst {
            Inst::Load(i) | Inst::Random(_, i, _) => *i = to(*i),
            Inst::Literal(..) | Inst::Index(..) | Inst::Point(..) | Inst::Reduce(..) => {}
        }
    }
    region
}

/// The region after its product, which was operand `k` and is the first now.
fn with_product(
    program: &Program,
    e: &Equation,
    dot: &Equation,
    region: Region,
    k: usize,
) -> Equation {
    debug_assert_eq!(region.inputs[0].spec, *program.spec(dot.outputs[0]));
    let mut inputs = dot.inputs.clone();
    inputs.extend(e.inputs.iter().enumerate().filter(|(i, _)| *i != k).map(|(_, &v)| v));
    Equation { op: Op::DotRegion(Arc::new(region)), inputs, outputs: e.outputs.clone(), at: e.at }
}

fn result_specs(region: &Region) -> Vec<Spec> {
    let inputs: Vec<&Spec> = region.inputs.iter().map(|load| &load.spec).collect();
    region.infer(&inputs).map(|specs| specs.into_iter().collect()).unwrap_or_default()
}
