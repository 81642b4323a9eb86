//! Constant folding.
//!
//! A constant is a literal: one number at every index. Pointwise ops of constants are constants;
//! their value is computed by a callback, which has the kernels (this crate computes nothing); if
//! it returns `None`, the op stays. Views of constants are constants, and so are their max and min,
//! zero padding of zeros, and copies. A select or a `cond` with a constant condition becomes the
//! branch taken, and in the programs inside control flow constant operands become literals.
//!
//! Guarantees: the same bits as the ops, if the callback returns those. Idempotent. Unused literals
//! are left to `dead_code`.

use super::rebuild::Rebuild;
use crate::{DType, Equation, Flow, Line, Op, Program, Reduction, Scalar, Var, Vars};
use std::sync::Arc;

/// An operand of an op that is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// The number in the literal: not rounded to the dtype yet.
    pub value: Scalar,
    /// The dtype of the literal.
    pub dtype: DType,
}

/// The result of a pointwise op on constants; `None` if not known.
pub type Evaluate<'a> = &'a dyn Fn(&Op, &[Constant]) -> Option<Scalar>;

/// Constant folding.
///
/// ```
/// use pullback_ir::{Program, Unary, Op, pass::fold};
/// let text = "program () { let a: f32[] = literal{2.0: f32[]}; let b: f32[] = square a; let c: f32[3] = broadcast{[3]} b; return c }";
/// let program: Program = text.parse().unwrap();
/// let folded = fold(&program, &|op, of| (*op == Op::Unary(Unary::Square)).then(|| of[0].value.as_f64().powi(2).into()));
/// assert_eq!(folded.equations[2].op.to_string(), "literal{4.0: f32[3]}");
/// ```
#[must_use]
pub fn fold(program: &Program, evaluate: Evaluate<'_>) -> Program {
    let mut new = Rebuild::new(program);
    for e in &program.equations {
        fold_equation(&mut new, e, evaluate);
    }
    new.finish()
}

fn fold_equation(new: &mut Rebuild, e: &Equation, evaluate: Evaluate) {
    let inputs = new.inputs(e);
    let constants: Option<Vec<Constant>> = inputs.iter().map(|&v| constant(new, v)).collect();
    let first = constants.as_ref().and_then(|all| all.first());
    let value = match &e.op {
        Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) | Op::Cast(_) => {
            constants.as_ref().and_then(|all| evaluate(&e.op, all))
        }
        Op::View(_) | Op::Copy | Op::To(_) => first.map(|c| c.value),
        Op::Reduce(Reduction::Max | Reduction::Min, axes) => {
            let shape = &new.spec(inputs[0]).shape;
            let some = axes.iter().all(|&i| shape[i] > 0);
            first.filter(|_| some).map(|c| c.value)
        }
        Op::Pad(_) => first.map(|c| c.value).filter(|&value| is_plain_zero(value)),
        Op::Cat(_) | Op::Put(_) => {
            let all = constants.as_ref().filter(|all| all.iter().all(|c| *c == all[0]));
            all.and_then(|all| all.first()).map(|c| c.value)
        }
        Op::Iota { len: 1, .. } => Some(Scalar::Int(0)),
        Op::Select => {
            if let Some(condition) = constant(new, inputs[0]) {
                let taken = if condition.value.as_i64() != 0 { inputs[1] } else { inputs[2] };
                return new.alias(e.outputs[0], taken);
            }
            None
        }
        Op::Flow(flow) => return fold_flow(new, e, flow, inputs, evaluate),
        // What waits must not be folded.
        Op::After | Op::Wait | Op::Transfer(_) => None,
        Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } | Op::Reduce(..) => None,
        Op::Gather(_) | Op::Scatter(..) | Op::ArgReduce(..) | Op::Cumulate { .. } => None,
        Op::Sort { .. } | Op::Ranks { .. } | Op::Dot | Op::Conv(_) | Op::Pool(_) => None,
        Op::Linalg(_) | Op::Fft(_) | Op::Fused(_) | Op::Region(_) | Op::DotRegion(_) => None,
        Op::Custom(_) | Op::Collective(_) => None,
    };
    match value {
        Some(value) => {
            let spec = new.old_spec(e.outputs[0]);
            let op = Op::literal(value, spec.clone());
            new.keep_as(e, op, Vars::new());
        }
        None => new.keep_as(e, e.op.clone(), inputs),
    }
}

/// The constant value of a new variable.
fn constant(new: &Rebuild, v: Var) -> Option<Constant> {
    match new.made_by(v)?.op {
        Op::Literal { value, dtype, .. } => Some(Constant { value, dtype }),
        _ => None,
    }
}

/// +0 in any dtype: what `pad` puts.
fn is_plain_zero(value: Scalar) -> bool {
    match value {
        Scalar::Float(v) => v.0.to_bits() == 0,
        Scalar::Int(v) => v == 0,
        Scalar::Bool(v) => !v,
    }
}

fn fold_flow(new: &mut Rebuild, e: &Equation, flow: &Flow, inputs: Vars, evaluate: Evaluate) {
    if let Flow::Cond { yes, no } = flow
        && let Some(condition) = constant(new, inputs[0])
    {
        let taken = if condition.value.as_i64() != 0 { yes } else { no };
        return inline(new, e, taken, &inputs[1..], evaluate);
    }
    // The operands of the programs inside that are the same in every iteration.
    let (before, same) = match flow {
        Flow::Cond { .. } => (1, inputs.len() - 1),
        Flow::While { shared, .. } => (0, *shared),
        Flow::Scan(scan) => (0, scan.shared),
    };
    let known: Vec<Option<Constant>> =
        inputs[before..before + same].iter().map(|&v| constant(new, v)).collect();
    let flow = flow.map_programs(&mut |program| fold(&with_literals(program, &known), evaluate));
    new.keep_as(e, Op::Flow(Arc::new(flow)), inputs);
}

/// The program with these inputs replaced by literals where they are read. The inputs stay.
fn with_literals(program: &Program, known: &[Option<Constant>]) -> Program {
    if known.iter().all(Option::is_none) {
        return program.clone();
    }
    let mut out = program.clone();
    let mut to: Vec<Var> = (0..program.specs.len() as u32).map(Var).collect();
    let mut literals = Vec::new();
    let uses = program.uses();
    for (&v, known) in program.inputs.iter().zip(known) {
        let Some(Constant { value, .. }) = *known else { continue };
        if uses[v.index()] == 0 {
            continue;
        }
        let spec = program.spec(v).clone();
        let op = Op::literal(value, spec.clone());
        to[v.index()] = out.fresh(spec);
        let outputs = Vars::from_slice(&[to[v.index()]]);
        literals.push(Equation { op, inputs: Vars::new(), outputs, at: None });
    }
    for e in &mut out.equations {
        e.inputs.iter_mut().for_each(|v| *v = to[v.index()]);
    }
    out.outputs.iter_mut().for_each(|v| *v = to[v.index()]);
    out.equations.splice(0..0, literals);
    out
}

/// Inlines a program instead of the equation that contains it.
fn inline(new: &mut Rebuild, e: &Equation, program: &Program, given: &[Var], evaluate: Evaluate) {
    let results = new.inlined(program, given, |new, equation| {
        let at: Option<Line> = equation.at.or(e.at);
        fold_equation(new, &Equation { at, ..equation.clone() }, evaluate);
    });
    for (&old, result) in e.outputs.iter().zip(results) {
        new.alias(old, result);
    }
}
