//! A checkpointed function inside the body of a loop, of `vmap` or of `cond`.
//!
//! Such a body becomes part of a program that is differentiated where it is replayed, so what is
//! dropped must be part of the program: one equation that holds the function as a program of its
//! own. It keeps its operands and nothing else, and its rule computes the function again. Compiling
//! inlines the program.

use super::replay::after_cotangent;
use crate::apply::apply_all;
use crate::custom::{OperandRole, Rule, RuleHandle};
use crate::rule::{Derivatives, RuleContext, Tensors, Val};
use crate::trace::{self, TraceKind, evaluate};
use crate::{Spec, Tensor, Tree, fail, jvp, mode, vjp};
use pullback_ir::{Custom, Line, Op, Program, Work};
use smallvec::SmallVec;
use std::sync::Arc;

/// Calls the function as one equation of the body that is being traced.
pub(super) fn call<Y: Tree>(f: impl FnOnce(&[Tensor]) -> Y, arguments: &[Tensor], at: Line) -> Y {
    let specs: Vec<Spec> = arguments.iter().map(|x| x.spec().clone()).collect();
    let traced = trace::record(TraceKind::Body("checkpoint"), None, &specs, at, |arguments| {
        let y = f(arguments);
        let outputs = y.leaves();
        (y, outputs)
    });
    let (y, recorded) = fail::or_raise(traced);
    let body = recorded.program.renumbered();
    let rule: Box<dyn Rule> = Box::new(CheckpointRule(body.clone()));
    let custom = Custom::new("checkpoint", Work::Body(body), Arc::new(RuleHandle(rule)));
    let operands: Vec<&Tensor> =
        arguments.iter().chain(recorded.captures.iter().map(|c| &c.tensor)).collect();
    let made = mode::with_line(at, || apply_all(Op::Custom(Arc::new(custom)), &operands));
    y.with_leaves(&made)
}

/// The derivative of a program, from its operands.
struct CheckpointRule(Program);

impl CheckpointRule {
    fn floats(&self, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
        let is_float = |i: &usize| self.0.spec(self.0.inputs[*i]).dtype.is_float();
        (0..self.0.inputs.len()).filter(|&i| wanted(i)).filter(is_float).collect()
    }

    /// Results as a function of some of the operands.
    fn of<'a>(
        &'a self,
        operands: &'a [Tensor],
        places: &'a [usize],
    ) -> impl Fn(&Vec<Tensor>) -> Vec<Tensor> + 'a {
        move |point| {
            let mut all = operands.to_vec();
            places.iter().zip(point).for_each(|(&i, x)| all[i] = x.clone());
            evaluate(&self.0, &all)
        }
    }
}

impl Rule for CheckpointRule {
    fn keeps(&self, val: Val) -> bool {
        matches!(val, Val::In(_))
    }

    /// Captures of the function are arguments like the others.
    fn role(&self, _: usize) -> OperandRole {
        OperandRole::Argument
    }

    fn vjp(&self, ctx: &RuleContext, dys: &Derivatives) -> Derivatives {
        let count = self.0.inputs.len();
        let mut gradients: Derivatives = SmallVec::from_elem(None, count);
        let Some(token) = dys.iter().flatten().next() else { return gradients };
        let operands: Vec<Tensor> =
            (0..count).map(|i| after_cotangent(ctx.x(i), Some(token))).collect();
        let places = self.floats(|i| ctx.needs(i));
        let point: Vec<Tensor> = places.iter().map(|&i| operands[i].clone()).collect();
        let all = self.of(&operands, &places);
        let given: Vec<usize> = (0..dys.len()).filter(|&k| dys[k].is_some()).collect();
        let outputs = |point: &Vec<Tensor>| {
            let ys = all(point);
            given.iter().map(|&k| ys[k].clone()).collect::<Vec<Tensor>>()
        };
        let (_, pullback) = vjp(outputs, &point);
        let found = pullback(&dys.iter().flatten().cloned().collect());
        places.iter().zip(found).for_each(|(&i, g)| gradients[i] = Some(g));
        gradients
    }

    fn jvp(&self, ctx: &RuleContext, tangents: &Derivatives) -> Tensors {
        let operands: Vec<Tensor> = (0..self.0.inputs.len()).map(|i| ctx.x(i).clone()).collect();
        let places = self.floats(|i| tangents[i].is_some());
        let point: Vec<Tensor> = places.iter().map(|&i| operands[i].clone()).collect();
        let along: Vec<Tensor> = places.iter().filter_map(|&i| tangents[i].clone()).collect();
        let (_, moved) = jvp(self.of(&operands, &places), &point, &along);
        moved.into_iter().collect()
    }
}
