//! Inlines the bodies of custom ops, and of scans of one iteration.
//!
//! A custom op with a body is one equation while the program may be differentiated. A program that
//! is being compiled is not differentiated any more, so the equation is replaced by its body, and
//! the other passes see plain ops. Custom ops with a kernel are unchanged.
//!
//! A scan of one iteration is its body: inlined, its operands and results need no separate memory,
//! and it fuses with the surrounding ops.
//!
//! Guarantees: no custom op with a body and no scan of one iteration is left, at any depth. Results
//! are the same bits. Idempotent.

use super::rebuild::Rebuild;
use crate::{Equation, Flow, Op, Program, Scan, Shape, Structure, View};

/// Inlines the bodies of custom ops, and of scans of one iteration.
#[must_use]
pub fn inline(program: &Program) -> Program {
    if !has_bodies(program) && !has_single_iteration_loops(program) {
        return program.clone();
    }
    let mut new = Rebuild::new(program);
    program.equations.iter().for_each(|e| inline_equation(&mut new, e));
    new.finish()
}

/// Whether there is something to inline.
#[must_use]
pub fn has_bodies(program: &Program) -> bool {
    program.equations.iter().any(|e| match e.op.structure() {
        Some(Structure::Custom(custom)) => custom.body().is_some(),
        Some(Structure::Flow(flow)) => flow.programs().into_iter().any(has_bodies),
        Some(Structure::Region(_) | Structure::DotRegion(_)) | None => false,
    })
}

fn has_single_iteration_loops(program: &Program) -> bool {
    program.equations.iter().any(|e| match &e.op {
        Op::Flow(flow) => {
            single_iteration(&e.op).is_some()
                || flow.programs().into_iter().any(has_single_iteration_loops)
        }
        _ => false,
    })
}

fn single_iteration(op: &Op) -> Option<&Scan> {
    match op {
        Op::Flow(flow) => match &**flow {
            Flow::Scan(scan) if scan.length == 1 => Some(scan),
            Flow::Scan(_) | Flow::Cond { .. } | Flow::While { .. } => None,
        },
        _ => None,
    }
}

fn inline_equation(new: &mut Rebuild, e: &Equation) {
    if let Some(scan) = single_iteration(&e.op)
        && inline_iteration(new, e, scan).is_some()
    {
        return;
    }
    let body = match &e.op {
        Op::Custom(custom) => custom.body(),
        _ => None,
    };
    let Some(body) = body else { return new.keep(e, inline) };
    let given = new.inputs(e);
    let made = new.inlined(body, &given, inline_equation);
    for (&old, made) in e.outputs.iter().zip(made) {
        new.alias(old, made);
    }
}

/// Inlines the only iteration of a scan: sequences are their one row, and what is stacked is one
/// row.
fn inline_iteration(new: &mut Rebuild, e: &Equation, scan: &Scan) -> Option<()> {
    let mut given = new.inputs(e);
    for x in &mut given[scan.shared + scan.carry..] {
        let row = Shape::from_slice(&new.spec(*x).shape[1..]);
        *x = new.emit(Op::View(View::Reshape(row)), &[*x], e.at)?;
    }
    let made = new.inlined(&scan.body, &given, inline_equation);
    for (k, (&old, made)) in e.outputs.iter().zip(made).enumerate() {
        let stacked = View::Reshape(new.old_spec(old).shape.clone());
        let made = match k < scan.carry {
            true => made,
            false => new.emit(Op::View(stacked), &[made], e.at)?,
        };
        new.alias(old, made);
    }
    Some(())
}
