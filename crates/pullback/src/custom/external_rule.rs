//! A [`CustomOp`] as a kernel, which calls its code, and as a rule, which calls its derivative.

use super::external::{CustomBatching, CustomOp, Derivative};
use super::host::{HostInput, HostOutput};
use super::reverse::specs;
use super::rule::{OperandRole, Rule, checked, filled, floats, transposed, uncut};
use super::rule_check::PendingCheck;
use crate::backend::CudaKernel;
use crate::rule::{Derivatives, RuleContext, Tensors, Val};
use crate::{Device, Error, Result, Spec, Tensor, fail, mode};
use pullback_ir::infer::{Specs, fits_memory};
use pullback_ir::{Bytes, BytesMut, Kernel, Launch, Line};
use std::sync::Arc;

/// The op as a kernel and as a rule.
pub(super) struct ExternalRule(pub Arc<dyn CustomOp>, pub PendingCheck);

impl ExternalRule {
    /// An error of the user's code, under the name of the op.
    fn named(&self, error: Error) -> Error {
        match error.op() == self.0.name() {
            true => error,
            false => Error::new(error.kind(), self.0.name(), "its code failed").because(error),
        }
    }
}

impl Kernel for ExternalRule {
    fn infer(&self, inputs: &[&Spec]) -> Result<Specs> {
        let given: Vec<Spec> = inputs.iter().map(|&s| s.clone()).collect();
        let specs = self.0.specs(&given).map_err(|e| self.named(e))?;
        if specs.is_empty() {
            return Err(Error::shape(self.0.name(), "its shape rule gives no result"));
        }
        if let Some(large) = specs.iter().find(|s| !fits_memory(&s.shape)) {
            let message =
                format!("a result of shape {:?} exceeds the addressable size", large.shape);
            return Err(Error::shape(self.0.name(), message));
        }
        // Its results are where its operands are, whatever its shape rule says.
        let device = inputs.first().map_or(Device::Cpu, |x| x.device);
        Ok(specs.into_iter().map(|spec| Spec { device, ..spec }).collect())
    }

    fn run(&self, inputs: &[Bytes<'_>], outputs: &mut [BytesMut<'_>]) -> Result<()> {
        let given: Vec<HostInput> = inputs.iter().map(|&x| HostInput(x)).collect();
        let mut made: Vec<HostOutput> =
            outputs.iter_mut().map(|y| HostOutput { spec: y.spec, bytes: &mut *y.bytes }).collect();
        self.0.forward(&given, &mut made).map_err(|e| self.named(e))
    }

    fn launches(&self, inputs: &[&Spec], outputs: &[&Spec]) -> Result<Option<Vec<Launch>>> {
        let launches = |kernel: &CudaKernel| kernel.launches(inputs, outputs);
        self.0.cuda().map(launches).transpose().map_err(|e| self.named(e))
    }
}

impl Rule for ExternalRule {
    fn keeps(&self, _: Val) -> bool {
        matches!(self.0.derivative(), Derivative::Vjp | Derivative::Jvp)
    }

    fn role(&self, _: usize) -> OperandRole {
        match self.0.derivative() {
            Derivative::Zero => OperandRole::Constant,
            Derivative::Vjp | Derivative::Jvp | Derivative::Refused(_) => OperandRole::Argument,
        }
    }

    fn vjp(&self, ctx: &RuleContext, dys: &Derivatives) -> Derivatives {
        let (inputs, outputs) = specs(ctx);
        let dys = filled(dys, outputs.iter());
        let given: Vec<Option<Tensor>> = match self.0.derivative() {
            Derivative::Zero => vec![None; inputs.len()],
            Derivative::Refused(why) => self.refuse(why),
            Derivative::Vjp => {
                let (x, y) = values(ctx);
                self.pull(&x, &y, &dys, &inputs).into_iter().map(Some).collect()
            }
            Derivative::Jvp => {
                let (x, y) = values(ctx);
                let (moved, made) = (floats(&inputs), floats(&outputs));
                let from: Vec<Spec> = moved.iter().map(|&i| inputs[i].clone()).collect();
                let found = transposed(
                    &from,
                    |tangents| {
                        let all = placed(tangents, &moved, &inputs);
                        pick(&self.push(&x, &y, &all, &outputs), &made)
                    },
                    &pick(&dys, &made),
                );
                let mut all = vec![None; inputs.len()];
                moved.iter().zip(found).for_each(|(&i, g)| all[i] = Some(g));
                all
            }
        };
        let wants = |i: usize| inputs[i].dtype.is_float() && ctx.needs(i);
        given.into_iter().enumerate().map(|(i, g)| g.filter(|_| wants(i))).collect()
    }

    fn jvp(&self, ctx: &RuleContext, tangents: &Derivatives) -> Tensors {
        let (inputs, outputs) = specs(ctx);
        let tangents = filled(tangents, inputs.iter());
        let (moved, made) = (floats(&inputs), floats(&outputs));
        let mut out: Vec<Tensor> = outputs.iter().map(Tensor::zeros_of).collect();
        let found: Vec<Tensor> = match self.0.derivative() {
            Derivative::Zero => return out.into_iter().collect(),
            Derivative::Refused(why) => self.refuse(why),
            Derivative::Jvp => {
                let (x, y) = values(ctx);
                pick(&self.push(&x, &y, &tangents, &outputs), &made)
            }
            Derivative::Vjp => {
                let (x, y) = values(ctx);
                let from: Vec<Spec> = made.iter().map(|&k| outputs[k].clone()).collect();
                transposed(
                    &from,
                    |dys| {
                        let all = placed(dys, &made, &outputs);
                        pick(&self.pull(&x, &y, &all, &inputs), &moved)
                    },
                    &pick(&tangents, &moved),
                )
            }
        };
        made.iter().zip(found).for_each(|(&k, t)| out[k] = t);
        out.into_iter().collect()
    }

    fn pending(&self) -> Option<&PendingCheck> {
        Some(&self.1)
    }

    fn takes_leading_axes(&self) -> bool {
        self.0.batching() == CustomBatching::LeadingAxes
    }
}

impl ExternalRule {
    fn refuse(&self, why: &'static str) -> ! {
        let message = format!("has no derivative: {why}");
        fail::raise(Error::gradient(self.0.name(), message).at(mode::user_line(Line::caller())))
    }

    fn pull(&self, x: &[Tensor], y: &[Tensor], dys: &[Tensor], wanted: &[Spec]) -> Vec<Tensor> {
        let given = uncut(self.0.name(), &[x, y, dys].concat(), |values| {
            let (x, rest) = values.split_at(x.len());
            let (y, dys) = rest.split_at(y.len());
            self.0.vjp(x, y, dys)
        });
        checked(self.0.name(), "vjp", "operand", given, wanted.iter())
    }

    fn push(&self, x: &[Tensor], y: &[Tensor], t: &[Tensor], wanted: &[Spec]) -> Vec<Tensor> {
        checked(self.0.name(), "jvp", "result", self.0.jvp(x, y, t), wanted.iter())
    }
}

/// Operands and results.
fn values(ctx: &RuleContext) -> (Vec<Tensor>, Vec<Tensor>) {
    let (operands, results) = ctx.counts();
    let x = (0..operands).map(|i| ctx.x(i).clone()).collect();
    (x, (0..results).map(|k| ctx.y(k).clone()).collect())
}

fn pick(all: &[Tensor], places: &[usize]) -> Vec<Tensor> {
    places.iter().map(|&i| all[i].clone()).collect()
}

/// Some tensors at their indices, zeros at the others.
fn placed(some: &[Tensor], places: &[usize], specs: &[Spec]) -> Vec<Tensor> {
    let mut all: Vec<Tensor> = specs.iter().map(Tensor::zeros_of).collect();
    places.iter().zip(some).for_each(|(&i, x)| all[i] = x.clone());
    all
}
