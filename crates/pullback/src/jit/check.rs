//! Comparing a compiled function with plain ops.
//!
//! Two questions, in this order. Did a pass change what the program means? Every stage is evaluated
//! op by op on the same inputs and its results compared with those of the program as it was traced.
//! Did a kernel compute something else than its equation says? Each equation of the compiled
//! program is evaluated by plain ops on the very operands that the compiled run gave it.

use super::compile::{Captured, Specialisation, passes};
use super::compiler::compiler_error;
use crate::apply::apply_all;
use crate::backend::INLINE;
use crate::backend::Pooled;
use crate::lock::{self, Claim};
use crate::storage::Storage;
use crate::trace::evaluate;
use crate::{DType, Result, Tensor, custom, fail, mode};
use pullback_ir::{Layout, Line, Op, Program};
use rustc_hash::FxHashSet;

/// How much results may differ, in units in the last place of the largest number of the result,
/// where reductions or products may add in another order. Equations of pointwise work alone must
/// agree bit for bit.
const REORDERED: f64 = 64.0;

impl Specialisation {
    pub fn check(&mut self, arguments: &[Tensor], at: Line) -> Result<()> {
        let inputs = self.copies(arguments)?;
        let plain = |program: &Program| {
            // Only a program for all lengths takes the numbers that come last.
            let inputs = &inputs[..program.inputs.len()];
            fail::catch(|| mode::set_recording(false, || evaluate(program, inputs)))
        };
        let wanted = plain(&self.traced)?;
        if self.filled {
            for (k, (a, b)) in plain(self.executable.program())?.iter().zip(&wanted).enumerate() {
                if let Some(difference) = difference(a, b, false) {
                    let message =
                        format!("the program for all lengths changed output {k} {difference}");
                    return Err(compiler_error(message));
                }
            }
        }
        let budget = self.budget.map(|b| b.budget);
        for stage in &passes(&self.traced, budget, at, Some(true))?.stages {
            for (k, (a, b)) in plain(&stage.program)?.iter().zip(&wanted).enumerate() {
                if let Some(difference) = difference(a, b, false) {
                    return Err(compiler_error(format!(
                        "the pass `{}` changed output {k} {difference}",
                        stage.name
                    )));
                }
            }
        }
        self.check_kernels(&inputs)
    }

    /// Checks the rules of custom functions at the values that they get with these arguments.
    pub fn check_rules(&self, arguments: &[Tensor]) -> Result<()> {
        custom::check_at(&self.traced, || self.copies(arguments))
    }

    /// Copies of everything the program takes, so that nothing outside is written.
    fn copies(&self, arguments: &[Tensor]) -> Result<Vec<Tensor>> {
        let copy = |x: &Tensor| mode::set_recording(false, || x.plain().deep_clone());
        let mut all: Vec<Tensor> = arguments.iter().map(copy).collect();
        let program = self.executable.program();
        for (capture, &v) in self.captures.iter().zip(&program.inputs[arguments.len()..]) {
            let spec = program.spec(v);
            let whole = |storage: &Pooled<Storage>| {
                Tensor::new(spec.clone(), Layout::dense(spec.shape.clone()), storage.clone())
            };
            all.push(match capture {
                Captured::Fixed { storage, .. } => copy(&whole(storage)),
                Captured::Gradient { leaf, .. } => match &*leaf.grad() {
                    Some(g) => copy(g).reshape(&spec.shape[..]),
                    None => {
                        return Err(compiler_error(
                            "a gradient that the function adds to does not exist any more",
                        ));
                    }
                },
            });
        }
        Ok(all)
    }

    fn check_kernels(&mut self, inputs: &[Tensor]) -> Result<()> {
        let program = self.executable.program().clone();
        let mut values: Vec<Option<Tensor>> = vec![None; program.specs.len()];
        for (&v, x) in program.inputs.iter().zip(inputs) {
            values[v.index()] = Some(mode::set_recording(false, || x.deep_clone()));
        }
        let replaced: FxHashSet<usize> = program.updates.iter().map(|u| u.1).collect();
        let written = |i: usize| replaced.contains(&i);
        let mut claims: Vec<Claim> = inputs.iter().map(Claim::read).collect();
        claims.iter_mut().enumerate().for_each(|(i, claim)| claim.written = written(i));
        let mut wrong: Option<String> = None;
        let mut see = |e: usize, k: usize, found: Option<Tensor>| {
            let equation = &program.equations[e];
            let operands: Vec<Tensor> =
                equation.inputs.iter().filter_map(|v| values[v.index()].clone()).collect();
            let made = fail::catch(|| {
                mode::set_recording(false, || {
                    apply_all(equation.op.clone(), &operands.iter().collect::<Vec<_>>())
                })
            });
            let text = || {
                let line = equation.at.map_or(String::new(), |at| format!(" at {at}"));
                format!("equation {e}, `{}`{line}", equation.op.name())
            };
            let difference = match (&made, &found) {
                (Err(error), _) => Some(format!("{} fails by plain ops: {error}", text())),
                // Literals are not computed by kernels.
                (Ok(_), None) => None,
                (Ok(made), Some(found)) => difference(found, &made[k], is_pointwise(&equation.op))
                    .map(|difference| {
                        format!(
                            "result {k} of {} differs from that of plain ops {difference}",
                            text()
                        )
                    }),
            };
            wrong = wrong.take().or(difference);
            let plain = || made.ok().map(|mut made| made.remove(k));
            values[equation.outputs[k].index()] = found.or_else(plain);
        };
        lock::hold::<INLINE, _>(&claims, |bound| self.executable.run_observed(bound, &mut see))?;
        match wrong {
            Some(message) => Err(compiler_error(message)),
            None => Ok(()),
        }
    }
}

/// Whether an equation adds nothing up, so that its result must be that of plain ops bit for bit.
fn is_pointwise(op: &Op) -> bool {
    match op {
        Op::Region(region) => !region.reduces(),
        other => other.is_pointwise(),
    }
}

/// How two results differ, if by more than the bound.
fn difference(a: &Tensor, b: &Tensor, exact: bool) -> Option<String> {
    if a.spec() != b.spec() {
        return Some(format!("from {} to {}", b.spec(), a.spec()));
    }
    let dtype = a.dtype();
    let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
    let unit = match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::BF16 => 1.0 / 128.0,
        DType::F16 => 1.0 / 1024.0,
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => 0.0,
    };
    let largest = b.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    let allowed = if exact { 0.0 } else { REORDERED * unit * largest };
    let same = |x: f64, y: f64| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= allowed;
    let at = a.iter().zip(&b).position(|(&x, &y)| !same(x, y))?;
    Some(format!("at element {at}: {} instead of {}", a[at], b[at]))
}
