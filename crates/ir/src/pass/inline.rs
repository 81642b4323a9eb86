//! Puts the bodies of custom ops in their place.
//!
//! A custom op with a body is one equation for as long as someone may differentiate the program. What is compiled is not differentiated any more, so the
//! equation gives way to its body, and the other passes see plain ops. Those whose work is code stay as they are.
//!
//! Promises: no custom op with a body is left, at any depth. Results are the same bits. Idempotent.

use super::rebuild::Rebuild;
use crate::{Equation, Op, Program};

/// Puts the bodies of custom ops in their place.
#[must_use]
pub fn inline(program: &Program) -> Program {
    if !has_bodies(program) {
        return program.clone();
    }
    let mut new = Rebuild::new(program);
    program.equations.iter().for_each(|e| inline_equation(&mut new, e));
    new.finish()
}

/// Whether there is something to put in its place.
#[must_use]
pub fn has_bodies(program: &Program) -> bool {
    program.equations.iter().any(|e| match &e.op {
        Op::Custom(custom) => custom.body().is_some(),
        Op::Flow(flow) => flow.programs().into_iter().any(has_bodies),
        _ => false,
    })
}

fn inline_equation(new: &mut Rebuild, e: &Equation) {
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
