//! Custom ops in programs: checked once their values are known, and listed.

use super::memo::UncheckedRule;
use super::rule::handle;
use super::rule_check::PendingCheck;
use crate::trace::{computing, evaluate};
use crate::{Op, Result, Tensor, fail, mode};
use pullback_ir::{Equation, Program, Structure, pass};

/// Checks the rules of custom ops at the values that they get for these inputs. Only their
/// dependencies are computed. Those inside loops and branches were checked at sampled values, and
/// are skipped here.
///
/// # Errors
/// If a rule is wrong.
pub(crate) fn check_at(
    program: &Program,
    inputs: impl FnOnce() -> Result<Vec<Tensor>>,
) -> Result<()> {
    let waits = |e: &&Equation| pending(&e.op).is_some_and(|pending| pending.later.is_some());
    let waiting: Vec<&Equation> = program.equations.iter().filter(waits).collect();
    // Computing dependencies for a check would make collectives that other workers do not expect:
    // rules in such programs were checked at sampled values only.
    if waiting.is_empty() || program.is_ordered() {
        return Ok(());
    }
    let outputs = waiting.iter().flat_map(|e| e.inputs.iter().copied()).collect();
    let before = Program { outputs, updates: Vec::new(), ..program.clone() };
    let before = pass::dead_code(&before);
    let inputs = inputs()?;
    let run = || computing(|| mode::set_recording(false, || evaluate(&before, &inputs)));
    // An error here occurs in the call itself too, and is reported there.
    let Ok(values) = fail::catch(run) else { return Ok(()) };
    let mut values = &values[..];
    for e in waiting {
        let (operands, rest) = values.split_at(e.inputs.len());
        values = rest;
        pending(&e.op).map_or(Ok(()), |pending| pending.check(&[operands]))?;
    }
    Ok(())
}

/// The pending check of an op.
fn pending(op: &Op) -> Option<PendingCheck> {
    match op {
        Op::Custom(custom) => handle(custom).rule().pending().cloned(),
        _ => None,
    }
}

/// The rules in a program that are used without a check, at any depth.
pub(crate) fn unchecked_in(program: &Program) -> Vec<UncheckedRule> {
    let mut found: Vec<UncheckedRule> = Vec::new();
    for e in &program.equations {
        found.extend(pending(&e.op).and_then(|pending| Some(pending.opened?.rule())));
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
