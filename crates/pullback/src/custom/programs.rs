//! Custom ops in programs: checked where their values are known at last, and listed.

use super::gate::Ticket;
use super::memo::UncheckedRule;
use super::rule::handle;
use crate::trace::{computing, evaluate};
use crate::{Op, Result, Tensor, fail, mode};
use pullback_ir::{Equation, Program, Structure, pass};

/// Checks the rules of custom ops at the values that they meet for these inputs. Only what leads to
/// them is computed. Those inside loops and choices were checked at sampled values, and are not met
/// here.
///
/// # Errors
/// If a rule is wrong.
pub(crate) fn check_at(
    program: &Program,
    inputs: impl FnOnce() -> Result<Vec<Tensor>>,
) -> Result<()> {
    let waits = |e: &&Equation| ticket(&e.op).is_some_and(|ticket| ticket.later.is_some());
    let waiting: Vec<&Equation> = program.equations.iter().filter(waits).collect();
    if waiting.is_empty() {
        return Ok(());
    }
    let outputs = waiting.iter().flat_map(|e| e.inputs.iter().copied()).collect();
    let before = Program { outputs, updates: Vec::new(), ..program.clone() };
    let before = pass::dead_code(&before);
    let inputs = inputs()?;
    let run = || computing(|| mode::set_recording(false, || evaluate(&before, &inputs)));
    // What fails here fails in the call itself, and is told there.
    let Ok(values) = fail::catch(run) else { return Ok(()) };
    let mut values = &values[..];
    for e in waiting {
        let (operands, rest) = values.split_at(e.inputs.len());
        values = rest;
        ticket(&e.op).map_or(Ok(()), |ticket| ticket.check(&[operands]))?;
    }
    Ok(())
}

/// What the gate gave an op.
fn ticket(op: &Op) -> Option<Ticket> {
    match op {
        Op::Custom(custom) => handle(custom).rule().ticket().cloned(),
        _ => None,
    }
}

/// The rules in a program that are used without a check, at any depth.
pub(crate) fn unchecked_in(program: &Program) -> Vec<UncheckedRule> {
    let mut found: Vec<UncheckedRule> = Vec::new();
    for e in &program.equations {
        found.extend(ticket(&e.op).and_then(|ticket| Some(ticket.opened?.rule())));
        let inside = e.op.structure().map_or(Vec::new(), Structure::programs);
        found.extend(inside.into_iter().flat_map(unchecked_in));
    }
    let mut once: Vec<UncheckedRule> = Vec::new();
    found.into_iter().for_each(|rule| {
        if !once.iter().any(|known| (known.name, &known.line) == (rule.name, &rule.line)) {
            once.push(rule);
        }
    });
    once
}
