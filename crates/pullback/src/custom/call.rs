//! How a function becomes a node of the tape, or an equation of a program.

use super::rule::{OperandRole, Rule, RuleHandle, captured};
use super::rule_check::PendingCheck;
use crate::apply::{Operands, apply_all};
use crate::rule::{Grad, Tensors};
use crate::tangents::Tangents;
use crate::tape::History;
use crate::tape::record::record;
use crate::trace::{self, TraceKind, evaluate};
use crate::unaliased::Since;
use crate::{Conventions, Key, Spec, Tensor, autocast, fail, kinks, mode, ops, random};
use pullback_ir::{Custom, Line, Op, Program, Var, Work};
use std::sync::Arc;

/// The body of a custom op.
pub(crate) fn body(op: &Op) -> Option<&Program> {
    match op {
        Op::Custom(custom) => custom.body(),
        _ => None,
    }
}

/// The results of a body, as values without history.
pub(crate) fn run_body(body: &Program, inputs: &[&Tensor]) -> Tensors {
    let (start, inputs) = (Since::now(), inputs.iter().map(|x| plain(x)).collect::<Vec<_>>());
    let run = || start.own_all(evaluate(body, &inputs));
    mode::set_recording(false, run).into_iter().collect()
}

/// A tensor as a value, without history or tangents.
pub(super) fn plain(x: &Tensor) -> Tensor {
    x.argument(History::None, Tangents::new())
}

/// A residual: where backward finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResidualSource {
    /// It is an operand.
    Input(usize),
    /// It is a result of the op: one of the function's, or one added for this.
    Output(usize),
}

/// How the residuals other than arguments and results are recomputed, with their history.
pub(super) enum ResidualRecompute {
    /// By the function, which is given the same keys for what it draws.
    Function(Vec<Key>),
    /// By the body, whose last results they are.
    Body(Program),
}

/// What is known of a call, for its rule.
pub(super) struct CustomCall {
    pub name: &'static str,
    /// How many operands are arguments; those after them were captured.
    pub arguments: usize,
    /// How many results are the function's; those after them are kept for backward.
    pub results: usize,
    /// Of each operand that was captured, whether results depend on it.
    pub captured: Vec<bool>,
    /// Of each residual.
    pub residuals: Vec<ResidualSource>,
    pub again: ResidualRecompute,
    /// Those the function ran with: its rule runs with them too.
    pub conventions: Conventions,
    /// The dtype state of the function's call. The dtypes of its rule follow from arguments and
    /// cotangents.
    pub autocast: autocast::AutocastState,
    /// Where it is an equation of a program.
    pub pending: Option<PendingCheck>,
}

impl CustomCall {
    pub fn role(&self, operand: usize) -> OperandRole {
        match operand.checked_sub(self.arguments).map(|i| self.captured.get(i).copied()) {
            None => OperandRole::Argument,
            Some(Some(false)) => OperandRole::Constant,
            Some(Some(true) | None) => OperandRole::Captured,
        }
    }
}

/// A function that gives results and residuals.
type ResidualFn<'a> = dyn Fn(&[Tensor]) -> (Vec<Tensor>, Vec<Tensor>) + 'a;

/// Applies a function that gives results and residuals. `rule` is made once the residuals are
/// classified, `pending` only for an equation of a program.
pub(super) fn call(
    name: &'static str,
    arguments: &[Tensor],
    at: Line,
    function: &ResidualFn,
    rule: &dyn Fn(CustomCall) -> Box<dyn Rule>,
    pending: &dyn Fn() -> PendingCheck,
) -> Vec<Tensor> {
    match trace::active() {
        false => eager(name, arguments, at, function, rule),
        true => traced(name, arguments, at, function, rule, pending()),
    }
}

fn eager(
    name: &'static str,
    arguments: &[Tensor],
    at: Line,
    function: &ResidualFn,
    rule: &dyn Fn(CustomCall) -> Box<dyn Rule>,
) -> Vec<Tensor> {
    let mut states: Operands = arguments.iter().map(|x| fail::or_raise(x.state(at))).collect();
    let noted =
        states.iter().any(|o| !matches!(o.history, History::None) || !o.tangents.is_empty());
    let start = Since::now();
    let inside: Vec<Tensor> = arguments.iter().map(plain).collect();
    // The derivative is the user's: kinks inside are not counted.
    let run = || kinks::uncounted(|| function(&inside));
    let ((ys, residuals), keys) = match noted {
        true => random::noting(run),
        false => (run(), Vec::new()),
    };
    for y in ys.iter().chain(&residuals) {
        if y.is_tracked() || y.carries_tangents() {
            fail::raise(captured(name, y.spec()).at(at));
        }
    }
    // A result that aliases an argument would change with it. Each gets its own tape entry.
    let own = mode::set_recording(false, || start.own_all(ys.clone()));
    let mut outs: Vec<Tensor> =
        own.iter().map(|y| y.alias(History::None, Tangents::new())).collect();
    if !noted {
        return outs;
    }
    let mut places = Vec::new();
    for r in &residuals {
        let input = inside.iter().position(|x| x.is_same(r)).map(ResidualSource::Input);
        let output = || ys.iter().position(|y| y.is_same(r)).map(ResidualSource::Output);
        places.push(input.or_else(output).unwrap_or_else(|| {
            outs.push(r.alias(History::None, Tangents::new()));
            ResidualSource::Output(outs.len() - 1)
        }));
    }
    let call = CustomCall {
        name,
        arguments: arguments.len(),
        results: ys.len(),
        captured: Vec::new(),
        residuals: places,
        again: ResidualRecompute::Function(keys),
        conventions: kinks::conventions(),
        autocast: autocast::state(),
        pending: None,
    };
    let work = Work::Done(outs.len());
    let op = Op::Custom(Arc::new(Custom::new(name, work, Arc::new(RuleHandle(rule(call))))));
    let row = ops::row(&op);
    let inputs: Vec<&Tensor> = arguments.iter().collect();
    record(&op, &row, &inputs, &mut states, &mut outs, at);
    outs.truncate(ys.len());
    outs
}

fn traced(
    name: &'static str,
    arguments: &[Tensor],
    at: Line,
    function: &ResidualFn,
    rule: &dyn Fn(CustomCall) -> Box<dyn Rule>,
    pending: PendingCheck,
) -> Vec<Tensor> {
    let specs: Vec<Spec> = arguments.iter().map(|x| x.spec().clone()).collect();
    let traced = trace::record(TraceKind::Body("custom"), None, &specs, at, |args| {
        let (ys, residuals) = kinks::uncounted(|| function(args));
        (ys.len(), [ys, residuals].concat())
    });
    let (results, recorded) = fail::or_raise(traced);
    let (mut program, captures) = (recorded.program, recorded.captures);
    let residuals = program.outputs.split_off(results);
    let mut places = Vec::new();
    for r in residuals {
        let input = program.inputs.iter().position(|&v| v == r).map(ResidualSource::Input);
        let output = program.outputs.iter().position(|&v| v == r).map(ResidualSource::Output);
        places.push(input.or(output).unwrap_or_else(|| {
            program.outputs.push(r);
            ResidualSource::Output(program.outputs.len() - 1)
        }));
    }
    let body = program.renumbered();
    let captured = (arguments.len()..body.inputs.len()).map(|i| depends(&body, body.inputs[i]));
    let call = CustomCall {
        name,
        arguments: arguments.len(),
        results,
        captured: captured.collect(),
        residuals: places,
        again: ResidualRecompute::Body(body.clone()),
        conventions: kinks::conventions(),
        autocast: autocast::state(),
        pending: Some(PendingCheck { arguments: Some(arguments.len()), ..pending }),
    };
    let handle = Arc::new(RuleHandle(rule(call)));
    let op = Op::Custom(Arc::new(Custom::new(name, Work::Body(body), handle)));
    let operands: Vec<&Tensor> =
        arguments.iter().chain(captures.iter().map(|c| &c.tensor)).collect();
    let mut outs = mode::with_line(at, || apply_all(op, &operands)).into_vec();
    outs.truncate(results);
    outs
}

/// Whether a derivative of some result with respect to an input may be other than zero.
fn depends(program: &Program, input: Var) -> bool {
    let mut moved = vec![false; program.specs.len()];
    moved[input.index()] = program.spec(input).dtype.is_float();
    for e in &program.equations {
        let row = ops::row(&e.op);
        // The result of an inner custom op depends on its captures as on its arguments.
        let reaches = |i: usize| match &row {
            Grad::Custom(handle) => handle.rule().role(i) != OperandRole::Constant,
            row => row.reaches(i),
        };
        if e.inputs.iter().enumerate().any(|(i, v)| moved[v.index()] && reaches(i)) {
            e.outputs.iter().for_each(|v| moved[v.index()] = program.spec(*v).dtype.is_float());
        }
    }
    program.outputs.iter().any(|v| moved[v.index()])
}
