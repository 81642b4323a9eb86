//! The rule of a custom op, as differentiation sees it.

use super::rule_check::PendingCheck;
use crate::apply::OperandState;
use crate::read_only::ReadOnly;
use crate::rule::{Derivatives, RuleContext, Tensors, Val};
use crate::tape::History;
use crate::{Error, Result, Spec, Tensor, fail, mode, vjp};
use pullback_ir::{Custom, ErrorKind};
use std::cell::Cell;
use std::sync::Arc;

/// How a custom op differentiates: a row that is an object.
pub(crate) trait Rule: Send + Sync {
    /// Whether the tape must keep a value.
    fn keeps(&self, val: Val) -> bool;

    /// What an operand is to the function.
    fn role(&self, operand: usize) -> OperandRole;

    /// Reverse mode, as [`crate::rule::Grad::vjp`].
    fn vjp(&self, ctx: &RuleContext, dys: &Derivatives) -> Derivatives;

    /// Forward mode, as [`crate::rule::Grad::jvp`].
    fn jvp(&self, ctx: &RuleContext, tangents: &Derivatives) -> Tensors;

    /// The pending check of this rule, if it has one.
    fn pending(&self) -> Option<&PendingCheck> {
        None
    }

    /// Whether the kernel accepts leading axes of examples.
    fn takes_leading_axes(&self) -> bool {
        false
    }
}

/// What an operand of a custom op is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandRole {
    /// An argument of the function, which the rule is for.
    Argument,
    /// A captured tensor that no derivative of the function needs to pass to.
    Constant,
    /// A captured tensor on which the results depend: the rule says nothing about it.
    Captured,
}

/// A rule, as an op carries it.
pub(crate) struct RuleHandle(pub Box<dyn Rule>);

/// The rule of a custom op.
pub(crate) fn handle(custom: &Custom) -> Arc<RuleHandle> {
    match custom.rule().clone().downcast::<RuleHandle>() {
        Ok(handle) => handle,
        Err(_) => fail::raise(Error::new(
            ErrorKind::Program,
            custom.name(),
            "its rule was not made by this library",
        )),
    }
}

impl RuleHandle {
    pub fn rule(&self) -> &dyn Rule {
        &*self.0
    }

    pub fn reaches(&self, operand: usize) -> bool {
        self.0.role(operand) == OperandRole::Argument
    }

    /// A captured tensor may not be differentiated: the rule would cut its gradient off.
    pub fn refuse_captured(
        &self,
        name: &'static str,
        inputs: &[&Tensor],
        operands: &[OperandState],
    ) -> Result<()> {
        if CAPTURES_CUT.get() {
            return Ok(());
        }
        for (i, (x, operand)) in inputs.iter().zip(operands).enumerate() {
            let tracked = operand.history.is_tracked() && mode::is_grad_enabled();
            let differentiated = x.dtype().is_float() && (tracked || !operand.tangents.is_empty());
            if differentiated && self.0.role(i) == OperandRole::Captured {
                return Err(captured(name, x.spec()));
            }
        }
        Ok(())
    }
}

thread_local! {
    static CAPTURES_CUT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, in which captures of custom functions count as constants: `control::check_captured`
/// has checked that none of them is differentiated.
pub(crate) fn with_captures_cut<R>(f: impl FnOnce() -> R) -> R {
    mode::with(&CAPTURES_CUT, true, f)
}

/// Whether one of this many operands was captured.
pub(crate) fn captures(custom: &Custom, operands: usize) -> bool {
    let handle = handle(custom);
    (0..operands).any(|i| handle.0.role(i) == OperandRole::Captured)
}

/// Refuses a custom op one of whose captured operands is differentiated.
pub(crate) fn check_captured(
    custom: &Custom,
    operands: &[&Spec],
    differentiated: impl Fn(usize) -> bool,
) -> Result<()> {
    if CAPTURES_CUT.get() {
        return Ok(());
    }
    let handle = handle(custom);
    let cut = |i: &usize| differentiated(*i) && handle.0.role(*i) == OperandRole::Captured;
    match (0..operands.len()).find(cut) {
        Some(i) => Err(captured(custom.name(), operands[i])),
        None => Ok(()),
    }
}

/// The error of a function that depends on something that is differentiated and not its argument.
pub(crate) fn captured(name: &'static str, spec: &Spec) -> Error {
    let message = format!(
        "its function depends on a tensor, {spec}, that is being differentiated and is not among its arguments: the gradient would be cut off"
    );
    Error::gradient(name, message)
        .hint("pass it as an argument, or detach it if it is meant to be a constant")
}

/// What a rule gives for these values. It may have captured a tensor that is being differentiated,
/// and where backward does not record, that would go unnoticed: so it records here, with values
/// without history, and a result with history depends on a capture.
pub(super) fn uncut(
    name: &'static str,
    values: &[Tensor],
    rule: impl FnOnce(&[Tensor]) -> Vec<Tensor>,
) -> Vec<Tensor> {
    if mode::is_grad_enabled() || mode::in_no_grad() {
        let _held = ReadOnly::of(values);
        return rule(values);
    }
    let values: Vec<Tensor> = values.iter().map(bare).collect();
    let _held = ReadOnly::of(&values);
    let given = mode::set_recording(true, || rule(&values));
    if let Some(g) = given.iter().find(|g| g.dtype().is_float() && g.is_tracked()) {
        let message = format!(
            "its rule depends on a tensor that is being differentiated and is not among its arguments: the derivative of its gradient, {}, would be cut off",
            g.spec()
        );
        fail::raise(
            Error::gradient(name, message)
                .hint("pass it as an argument and keep it as a residual, or detach it if it is meant to be a constant"),
        );
    }
    given
}

/// A value without a history, and with tangents that have none: an unrecorded pass does not need
/// theirs, and an inner derivative would be recorded for them.
fn bare(x: &Tensor) -> Tensor {
    let tangents = x.lock().tangents.clone();
    x.alias(History::None, tangents.iter().map(|(level, t)| (*level, bare(t))).collect())
}

/// The transpose of a linear map, applied: the pullback of the map at zero.
pub(super) fn transposed(
    from: &[Spec],
    linear: impl Fn(&[Tensor]) -> Vec<Tensor>,
    cotangents: &[Tensor],
) -> Vec<Tensor> {
    let zeros: Vec<Tensor> = from.iter().map(Tensor::zeros_of).collect();
    let (_, pullback) = vjp(|x: &Vec<Tensor>| linear(x), &zeros);
    pullback(&cotangents.to_vec())
}

/// What a rule gave, which must have the shapes of what it is for. The dtype of floats follows:
/// inside `autocast` the results may have another dtype than the arguments.
pub(super) fn checked<'a>(
    name: &'static str,
    rule: &str,
    what: &str,
    given: Vec<Tensor>,
    wanted: impl ExactSizeIterator<Item = &'a Spec>,
) -> Vec<Tensor> {
    if given.len() != wanted.len() {
        let message =
            format!("its {rule} gave {} tensors for {} {what}s", given.len(), wanted.len());
        fail::raise(Error::gradient(name, message));
    }
    let fitting = |(i, (given, wanted)): (usize, (Tensor, &Spec))| {
        let floats = given.dtype().is_float() && given.shape() == &wanted.shape[..];
        if wanted.dtype.is_float() && !floats {
            let message =
                format!("its {rule} gave {} for {what} {i}, which is {wanted}", given.spec());
            fail::raise(Error::gradient(name, message));
        }
        if floats && wanted.dtype.is_float() { given.cast(wanted.dtype) } else { given }
    };
    given.into_iter().zip(wanted).enumerate().map(fitting).collect()
}

/// A tangent or cotangent for each spec: zeros where there is none.
pub(super) fn filled<'a>(
    some: &[Option<Tensor>],
    specs: impl Iterator<Item = &'a Spec>,
) -> Vec<Tensor> {
    let fill = |(some, spec): (&Option<Tensor>, &Spec)| {
        some.clone().unwrap_or_else(|| Tensor::zeros_of(spec))
    };
    some.iter().zip(specs).map(fill).collect()
}

/// The places of floats.
pub(super) fn floats<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Vec<usize> {
    specs.into_iter().enumerate().filter(|(_, s)| s.dtype.is_float()).map(|(i, _)| i).collect()
}
