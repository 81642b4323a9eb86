//! Turns literals whose value depends on a length into inputs.

use crate::{Equation, Op, Program, Scalar, Shape, Spec, Vars, View};

/// A literal that became an input.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifted {
    /// Its value.
    pub value: Scalar,
    /// Its spec as an input.
    pub spec: Spec,
}

/// The equations, by number, that are literals of different values in programs with the same
/// equations.
///
/// # Errors
/// If the programs do not have the same equations.
pub fn varying_literals(programs: &[&Program]) -> Result<Vec<usize>, String> {
    let Some((first, others)) = programs.split_first() else { return Ok(Vec::new()) };
    if let Some(other) = others.iter().find(|p| p.equations.len() != first.equations.len()) {
        let (a, b) = (first.equations.len(), other.equations.len());
        return Err(format!("the function does {a} operations at one length and {b} at another"));
    }
    let value = |e: &Equation| match &e.op {
        Op::Literal { value, .. } => Some(*value),
        _ => None,
    };
    let varies = |&e: &usize| {
        let here = value(&first.equations[e]);
        here.is_some() && others.iter().any(|p| value(&p.equations[e]) != here)
    };
    Ok((0..first.equations.len()).filter(varies).collect())
}

/// The program with these literals as inputs after all others, and what they are.
///
/// # Errors
/// If one of the equations is not a literal.
pub fn lift_literals(
    mut program: Program,
    equations: &[usize],
) -> Result<(Program, Vec<Lifted>), String> {
    let mut lifted = Vec::with_capacity(equations.len());
    for &e in equations {
        let Some(Op::Literal { value, shape, dtype, device }) =
            program.equations.get(e).map(|e| &e.op)
        else {
            return Err("an equation is a literal at one length and not at another".to_string());
        };
        let (value, shape) = (*value, shape.clone());
        let spec = Spec::on(*device, *dtype, Shape::new());
        let input = program.input(spec.clone());
        let equation = &mut program.equations[e];
        equation.op = Op::View(View::Broadcast(shape));
        equation.inputs = Vars::from_slice(&[input]);
        lifted.push(Lifted { value, spec });
    }
    Ok((program, lifted))
}
