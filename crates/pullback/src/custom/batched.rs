//! A custom op on many examples: its body on many, or its kernel once for each, and its rule under
//! `vmap`.

use super::call::{body, plain};
use super::differences::index_of;
use super::reverse::specs;
use super::rule::{OperandRole, Rule, RuleHandle, handle};
use super::rule_check::{DeferredCheck, PendingCheck, sampled};
use crate::apply::apply_all;
use crate::batch::flow::batch_program;
use crate::batch::{BatchedValue, BatchedValues};
use crate::rule::{Derivatives, RuleContext, Tensors, Val};
use crate::transform::BatchAxes;
use crate::{
    Error, ErrorKind, Op, Result, Shape, Spec, Tensor, fail, mode, trace, try_apply, vmap,
};
use pullback_ir::infer::Specs;
use pullback_ir::{Bytes, BytesMut, Custom, Kernel, Launch, Line, Work};
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError};

/// Whether an op must have rows also where all examples share its operands: its rule is not linear,
/// and given the sum of the cotangents of all examples it would not give the sum of their
/// gradients.
pub(crate) fn for_each_example(op: &Op) -> bool {
    let Op::Custom(custom) = op else { return false };
    handle(custom).rule().pending().is_some_and(|pending| pending.nonlinear)
}

/// The row of custom ops in the table of batching.
pub(crate) fn batch(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let Op::Custom(custom) = op else { unreachable!("the row of custom ops") };
    let at = mode::user_line(Line::caller());
    let mut rows: Vec<bool> = examples.iter().map(|x| x.batched).collect();
    let mut values: Vec<Tensor> = examples.iter().map(|x| x.value.clone()).collect();
    let pending = handle(custom).rule().pending().cloned().unwrap_or_default();
    let check = (EndExamples { rows: rows.clone(), n }).check(&pending, &[&values]);
    fail::or_raise(check.map_err(|e| e.at(at)));
    let work = match (custom.work(), body(op)) {
        (_, Some(body)) => {
            // Every result gets rows, so that a cotangent belongs to one example.
            let forced = vec![true; body.outputs.len()];
            let traced = batch_program(body, "custom", &rows, &forced, n, at).traced;
            values.extend(traced.constants);
            Work::Body(traced.program)
        }
        (Work::Kernel { kernel, results }, None) => {
            let (kernel, results) = (kernel.clone(), *results);
            match handle(custom).rule().takes_leading_axes() {
                true => {
                    values = examples.iter().map(|x| x.spread(n)).collect();
                    rows.fill(true);
                    let each =
                        PerExampleKernel { name: custom.name(), kernel, rows: rows.clone(), n };
                    fail::or_raise(each.agrees(&values, results, &pending).map_err(|e| e.at(at)));
                    Work::Kernel { kernel: each.kernel, results }
                }
                false => {
                    let each =
                        PerExampleKernel { name: custom.name(), kernel, rows: rows.clone(), n };
                    Work::Kernel { kernel: Arc::new(each), results }
                }
            }
        }
        (Work::Body(_) | Work::Done(_), None) => {
            fail::raise(Error::argument(custom.name(), "cannot run again").at(at))
        }
    };
    let ends = EndExamples { rows: rows.clone(), n };
    let pending = PendingCheck {
        opened: pending.opened.clone(),
        nonlinear: pending.nonlinear,
        later: pending.later.is_some().then(|| -> Arc<DeferredCheck> {
            Arc::new(move |points| ends.check(&pending, points))
        }),
        ..PendingCheck::default()
    };
    let rule = RuleHandle(Box::new(BatchedRule { one: custom.clone(), rows, n, pending }));
    let op = Op::Custom(Arc::new(Custom::new(custom.name(), work, Arc::new(rule))));
    let made = mode::with_line(at, || apply_all(op, &values.iter().collect::<Vec<_>>()));
    made.into_iter().map(BatchedValue::batched).collect()
}

/// How the first and the last example are taken out.
struct EndExamples {
    rows: Vec<bool>,
    n: usize,
}

impl EndExamples {
    /// Checks the rule at both, where there are examples and values are known.
    fn check(&self, pending: &PendingCheck, points: &[&[Tensor]]) -> Result<()> {
        let known = |values: &&&[Tensor]| self.n > 0 && values.iter().all(trace::knows);
        let ends = if self.n > 1 { vec![0, self.n - 1] } else { vec![0] };
        let mut examples: Vec<Vec<Tensor>> = Vec::new();
        for values in points.iter().filter(known) {
            let example = |&i: &usize| self.example(values, i);
            examples.extend(mode::set_recording(false, || {
                ends.iter().map(example).collect::<Vec<_>>()
            }));
        }
        pending.check(&examples.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    fn example(&self, values: &[Tensor], i: usize) -> Vec<Tensor> {
        let one = |(x, &row): (&Tensor, &bool)| match row {
            true => plain(x).narrow(0, i as isize, 1).reshape(&x.shape()[1..]),
            false => plain(x),
        };
        values.iter().zip(&self.rows).map(one).collect()
    }
}

/// A kernel, once for each example.
struct PerExampleKernel {
    name: &'static str,
    kernel: Arc<dyn Kernel>,
    /// Which operands have a row for each example.
    rows: Vec<bool>,
    n: usize,
}

impl PerExampleKernel {
    /// Whether a kernel that claims to accept leading axes gives the same results as one call per
    /// example: checked once for given specs, at the values of this call where they are known.
    fn agrees(&self, values: &[Tensor], results: usize, pending: &PendingCheck) -> Result<()> {
        let specs: Vec<Spec> = values.iter().map(|x| x.spec().clone()).collect();
        let held = || pending.leading.lock().unwrap_or_else(PoisonError::into_inner);
        if held().contains(&specs) {
            return Ok(());
        }
        let known = values.iter().all(trace::knows);
        let run = |kernel: Arc<dyn Kernel>| {
            // Without a rule: this is never differentiated.
            let custom = Custom::new(self.name, Work::Kernel { kernel, results }, Arc::new(()));
            let run = || {
                let values: Vec<Tensor> = match known {
                    true => values.iter().map(plain).collect(),
                    false => values.iter().enumerate().map(sampled).collect(),
                };
                try_apply(Op::Custom(Arc::new(custom)), &values.iter().collect::<Vec<_>>())
            };
            trace::computing(|| mode::set_recording(false, run))
        };
        let one_by_one =
            PerExampleKernel { kernel: self.kernel.clone(), rows: self.rows.clone(), ..*self };
        let (at_once, wanted) = (run(self.kernel.clone())?, run(Arc::new(one_by_one))?);
        for (k, (given, wanted)) in at_once.iter().zip(&wanted).enumerate() {
            if given.spec() != wanted.spec() {
                let message = format!(
                    "its shape rule does not support leading axes, though its batching says so: with {} examples result {k} is {}, and one by one {}",
                    self.n,
                    given.spec(),
                    wanted.spec()
                );
                return Err(Error::new(ErrorKind::Check, self.name, message));
            }
            let [a, b] = [given, wanted].map(|x| trace::computing(|| x.to_f64_vec()));
            let largest = b.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
            let differs = |(a, b): (&f64, &f64)| {
                !((a - b).abs() <= 1e-5 * largest || a == b || (a.is_nan() && b.is_nan()))
            };
            if let Some(i) = a.iter().zip(&b).position(differs) {
                let index = index_of(i, given.shape());
                let message = format!(
                    "its code does not support leading axes, though its batching says so: with {} examples result {k}, element {index:?}, is {:?}, and one by one {:?}",
                    self.n, a[i], b[i]
                );
                return Err(Error::new(ErrorKind::Check, self.name, message)
                    .hint("compute along the last axes for every index of the leading ones, or use CustomBatching::OneByOne"));
            }
        }
        held().push(specs);
        Ok(())
    }
}

fn example(spec: &Spec) -> Spec {
    spec.with_shape(&spec.shape[1..])
}

impl Kernel for PerExampleKernel {
    fn infer(&self, inputs: &[&Spec]) -> Result<Specs> {
        let mut given = Vec::new();
        for (i, &spec) in inputs.iter().enumerate() {
            given.push(match self.rows.get(i) {
                Some(true) if spec.shape.first() == Some(&self.n) => example(spec),
                Some(false) => spec.clone(),
                Some(true) | None => {
                    let message =
                        format!("operand {i}, {spec}, has no row for each of {} examples", self.n);
                    return Err(Error::shape(self.name, message));
                }
            });
        }
        let made = self.kernel.infer(&given.iter().collect::<Vec<_>>())?;
        let rows = |spec: &Spec| {
            let shape: Shape = std::iter::once(self.n).chain(spec.shape.iter().copied()).collect();
            spec.with_shape(shape)
        };
        Ok(made.iter().map(rows).collect())
    }

    fn run(&self, inputs: &[Bytes<'_>], outputs: &mut [BytesMut<'_>]) -> Result<()> {
        let one =
            |(i, x): (usize, &Bytes)| if self.rows[i] { example(x.spec) } else { x.spec.clone() };
        let in_specs: Vec<Spec> = inputs.iter().enumerate().map(one).collect();
        let out_specs: Vec<Spec> = outputs.iter().map(|y| example(y.spec)).collect();
        for example in 0..self.n {
            let input = |i: usize| -> (usize, usize) {
                let size = in_specs[i].bytes();
                let start = if self.rows[i] { example * size } else { 0 };
                (start, start + size)
            };
            let given: Vec<Bytes> = (inputs.iter().enumerate())
                .map(|(i, x)| {
                    let (from, to) = input(i);
                    Bytes { spec: &in_specs[i], bytes: &x.bytes[from..to] }
                })
                .collect();
            let mut made: Vec<BytesMut> = (outputs.iter_mut().zip(&out_specs))
                .map(|(y, spec)| {
                    let size = spec.bytes();
                    BytesMut { spec, bytes: &mut y.bytes[example * size..(example + 1) * size] }
                })
                .collect();
            self.kernel
                .run(&given, &mut made)
                .map_err(|e| e.detail(format!("for example {example}")))?;
        }
        Ok(())
    }

    /// Those of one example, for each: their operands and results begin at its rows.
    fn launches(&self, inputs: &[&Spec], outputs: &[&Spec]) -> Result<Option<Vec<Launch>>> {
        let one = |(&x, &row): (&&Spec, &bool)| if row { example(x) } else { x.clone() };
        let given: Vec<Spec> = inputs.iter().zip(&self.rows).map(one).collect();
        let made: Vec<Spec> = outputs.iter().map(|y| example(y)).collect();
        let [given, made] = [&given, &made].map(|all| all.iter().collect::<Vec<&Spec>>());
        let Some(launches) = self.kernel.launches(&given, &made)? else { return Ok(None) };
        let moved = |launch: &Launch, i: usize| {
            let mut launch = launch.clone();
            let rows =
                self.rows.iter().zip(&given).map(|(&row, x)| if row { x.bytes() } else { 0 });
            launch.starts[0].iter_mut().zip(rows).for_each(|(start, row)| *start += i * row);
            let rows = made.iter().map(|y| y.bytes());
            launch.starts[1].iter_mut().zip(rows).for_each(|(start, row)| *start += i * row);
            launch
        };
        let examples = (0..self.n).flat_map(|i| launches.iter().map(move |l| (i, l)));
        Ok(Some(examples.map(|(i, launch)| moved(launch, i)).collect()))
    }
}

/// The rule of one example, for many.
struct BatchedRule {
    one: Arc<Custom>,
    /// Which operands have a row for each example; every result has.
    rows: Vec<bool>,
    n: usize,
    pending: PendingCheck,
}

impl BatchedRule {
    fn axis(&self, operand: usize) -> Option<isize> {
        self.rows.get(operand).copied().unwrap_or(false).then_some(0)
    }

    /// The specs of one example.
    fn example_specs(&self, ctx: &RuleContext) -> (Vec<Spec>, Vec<Spec>) {
        let (mut inputs, outputs) = specs(ctx);
        inputs.truncate(self.rows.len());
        let one = |(i, spec): (usize, &Spec)| match self.rows[i] {
            true => example(spec),
            false => spec.clone(),
        };
        (inputs.iter().enumerate().map(one).collect(), outputs.iter().map(example).collect())
    }

    /// Runs the rule of one example under `vmap`: `run` is given the context of one example and the
    /// other values.
    fn mapped(
        &self,
        ctx: &RuleContext,
        keeps: impl Fn(Val) -> bool,
        others: Vec<(Tensor, Option<isize>)>,
        needs: SmallVec<[bool; 4]>,
        run: impl Fn(&RuleContext, &[Tensor]) -> Vec<Tensor>,
    ) -> Vec<Tensor> {
        let (inputs, outputs) = self.example_specs(ctx);
        let (mut values, mut axes, mut vals) = (Vec::new(), Vec::new(), Vec::new());
        for i in (0..inputs.len()).filter(|&i| keeps(Val::In(i))) {
            vals.push(Val::In(i));
            values.push(ctx.x(i).clone());
            axes.push(self.axis(i));
        }
        for k in (0..outputs.len()).filter(|&k| keeps(Val::Out(k))) {
            vals.push(Val::Out(k));
            values.push(ctx.y(k).clone());
            axes.push(Some(0));
        }
        for (value, axis) in others {
            values.push(value);
            axes.push(axis);
        }
        let op = Op::Custom(self.one.clone());
        let one = |values: &Vec<Tensor>| {
            let mut inside = RuleContext::new(&op, &inputs, &outputs, needs.clone());
            let (kept, others) = values.split_at(vals.len());
            vals.iter().zip(kept).for_each(|(&val, x)| inside.set(val, x.clone()));
            run(&inside, others)
        };
        if axes.iter().all(Option::is_none) {
            // Nothing differs between the examples.
            let made = one(&values);
            return made.iter().map(|y| BatchedValue::shared(y.clone()).spread(self.n)).collect();
        }
        vmap(one, BatchAxes::from(axes), 0)(&values)
    }
}

impl Rule for BatchedRule {
    fn keeps(&self, val: Val) -> bool {
        match val {
            Val::In(i) if i >= self.rows.len() => false,
            val => handle(&self.one).rule().keeps(val),
        }
    }

    fn role(&self, operand: usize) -> OperandRole {
        match operand < self.rows.len() {
            true => handle(&self.one).rule().role(operand),
            // Constants that batching added.
            false => OperandRole::Captured,
        }
    }

    fn vjp(&self, ctx: &RuleContext, dys: &Derivatives) -> Derivatives {
        let rule = handle(&self.one);
        let (inputs, _) = self.example_specs(ctx);
        let count = ctx.counts().0;
        let wants = |i: usize| ctx.needs(i) && inputs[i].dtype.is_float();
        let wanted: Vec<usize> = (0..inputs.len()).filter(|&i| wants(i)).collect();
        let mut out: Derivatives = SmallVec::from_elem(None, count);
        if wanted.is_empty() {
            return out;
        }
        let needs = (0..inputs.len()).map(wants).collect();
        let there: Vec<bool> = dys.iter().map(Option::is_some).collect();
        let given = dys.iter().flatten().map(|dy| (dy.clone(), Some(0))).collect();
        let made = self.mapped(
            ctx,
            |val| self.keeps(val),
            given,
            needs,
            |ctx, others| {
                let mut next = others.iter();
                let dys: Derivatives =
                    there.iter().map(|&t| if t { next.next().cloned() } else { None }).collect();
                let found = rule.rule().vjp(ctx, &dys);
                let gradient =
                    |&i: &usize| found[i].clone().unwrap_or_else(|| Tensor::zeros_of(&inputs[i]));
                wanted.iter().map(gradient).collect()
            },
        );
        for (&i, g) in wanted.iter().zip(made) {
            // The gradient of a shared operand is the sum over the examples.
            out[i] = Some(if self.rows[i] { g } else { g.sum_over(0) });
        }
        out
    }

    fn jvp(&self, ctx: &RuleContext, tangents: &Derivatives) -> Tensors {
        let rule = handle(&self.one);
        let (inputs, outputs) = self.example_specs(ctx);
        let there: Vec<bool> = tangents[..inputs.len()].iter().map(Option::is_some).collect();
        let given = (tangents[..inputs.len()].iter().enumerate())
            .filter_map(|(i, t)| Some((t.clone()?, self.axis(i))))
            .collect();
        let needs = SmallVec::from_elem(true, inputs.len());
        let made = self.mapped(
            ctx,
            |_| true,
            given,
            needs,
            |ctx, others| {
                let mut next = others.iter();
                let tangents: Derivatives =
                    there.iter().map(|&t| if t { next.next().cloned() } else { None }).collect();
                rule.rule().jvp(ctx, &tangents).into_vec()
            },
        );
        debug_assert_eq!(made.len(), outputs.len());
        made.into_iter().collect()
    }

    fn pending(&self) -> Option<&PendingCheck> {
        Some(&self.pending)
    }

    fn takes_leading_axes(&self) -> bool {
        handle(&self.one).rule().takes_leading_axes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CudaLaunch, DType};
    use pullback_ir::CudaSource;

    /// A kernel whose launch gets the lengths of its operands.
    struct Lengths;

    impl Kernel for Lengths {
        fn infer(&self, inputs: &[&Spec]) -> Result<Specs> {
            Ok([inputs[0].clone()].into_iter().collect())
        }
        fn run(&self, _: &[Bytes<'_>], _: &mut [BytesMut<'_>]) -> Result<()> {
            Ok(())
        }
        fn launches(&self, inputs: &[&Spec], outputs: &[&Spec]) -> Result<Option<Vec<Launch>>> {
            let numbers = inputs.iter().chain(outputs).map(|x| x.len() as i64).collect();
            let geometry = CudaLaunch { numbers, ..CudaLaunch::over(1) };
            let starts = [vec![0; inputs.len()], vec![0; outputs.len()]];
            Ok(Some(vec![Launch { source: Arc::new(CudaSource::new("k", "")), geometry, starts }]))
        }
    }

    #[test]
    fn each_example_is_a_launch_at_its_rows() {
        let each = PerExampleKernel {
            name: "k",
            kernel: Arc::new(Lengths),
            rows: vec![true, false],
            n: 3,
        };
        let (x, shared) = (Spec::cpu(DType::F32, [3, 5]), Spec::cpu(DType::F64, [7]));
        let y = each.infer(&[&x, &shared]).unwrap();
        let launches = each.launches(&[&x, &shared], &[&y[0]]).unwrap().unwrap();
        let starts: Vec<[Vec<usize>; 2]> = launches.iter().map(|l| l.starts.clone()).collect();
        let wanted = [0, 20, 40].map(|start| [vec![start, 0], vec![start]]);
        assert_eq!(starts, wanted);
        assert!(launches.iter().all(|l| l.geometry.numbers == [5, 7, 5]));
    }
}
