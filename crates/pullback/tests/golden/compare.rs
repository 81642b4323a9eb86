//! The checks of one case: output, vjp, jvp and second order, each against the reference.

use crate::calls;
use crate::reading::Case;
use pullback::{DType, Tensor, grad, jvp, vjp};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// The one relative tolerance.
const RELATIVE: f64 = 1e-9;
/// Beside it, for values that are differences of larger ones.
const ABSOLUTE: f64 = 1e-12;

/// Operators whose reference is itself less exact, and why.
#[rustfmt::skip]
const LOOSER: &[(&str, f64, &str)] = &[
    ("nn.functional.hardsigmoid", 1e-7, "the reference multiplies by 1/6 in single precision in its backward"),
    ("nn.functional.celu", 1e-7, "the reference holds 1/alpha in single precision in its backward"),
    ("nn.functional.binary_cross_entropy", 1e-8, "the reference adds 1e-12 to denominators in its double backward"),
];

fn tolerance(name: &str) -> f64 {
    LOOSER.iter().find(|row| row.0 == name).map_or(RELATIVE, |row| row.1)
}

/// How the checks of a case, or of an operator, went.
#[derive(Default)]
pub struct Tally {
    pub passed: usize,
    pub missing: usize,
    /// What failed, in sentences.
    pub failures: Vec<String>,
}

impl Tally {
    pub fn total(&self) -> usize {
        self.passed + self.missing + self.failures.len()
    }

    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.missing += other.missing;
        self.failures.extend(other.failures);
    }
}

/// What a check found.
enum Verdict {
    Same,
    Missing,
    Different(String),
}

/// Runs the checks that a case asks for.
pub fn check(name: &str, case: &Case) -> Tally {
    if case.unknown.is_some() {
        return Tally { missing: case.checks(), ..Tally::default() };
    }
    let missing = Cell::new(false);
    let call = |values: &[Tensor]| match calls::call(name, &case.args(values)) {
        Some(outs) => outs,
        None => {
            missing.set(true);
            panic!("not mapped")
        }
    };
    let near = tolerance(name);
    type Run<'a> = Box<dyn Fn() -> Result<(), String> + 'a>;
    let mut checks: Vec<(&str, Run<'_>)> = vec![("out", Box::new(|| outputs(case, &call, near)))];
    if case.vjp {
        checks.push(("vjp", Box::new(|| reverse(case, &call, near))));
    }
    if case.jvp {
        checks.push(("jvp", Box::new(|| forward(case, &call, near))));
    }
    if case.gg {
        checks.push(("second order", Box::new(|| second(case, &call, near))));
    }
    let mut tally = Tally::default();
    for (kind, run) in checks {
        missing.set(false);
        let verdict = match quietly(&run) {
            _ if missing.get() => Verdict::Missing,
            Ok(Ok(())) => Verdict::Same,
            Ok(Err(why)) | Err(why) => Verdict::Different(why),
        };
        match verdict {
            Verdict::Same => tally.passed += 1,
            Verdict::Missing => tally.missing += 1,
            Verdict::Different(why) => tally.failures.push(format!("{kind}: {why}")),
        }
    }
    tally
}

type Call<'a> = &'a dyn Fn(&[Tensor]) -> Vec<Tensor>;

fn outputs(case: &Case, call: Call, near: f64) -> Result<(), String> {
    let found = call(&point(case));
    if found.len() != case.outputs.len() {
        return Err(format!("{} outputs instead of {}", found.len(), case.outputs.len()));
    }
    for (k, (y, wanted)) in found.iter().zip(&case.outputs).enumerate() {
        if (y.shape(), y.dtype()) != (&wanted.shape[..], wanted.dtype) {
            return Err(format!(
                "output {k} is {}, not {}{:?}",
                y.spec(),
                wanted.dtype,
                wanted.shape
            ));
        }
        let expected = case.tensor("out", k).ok_or("the reference has no such output")?;
        same(&format!("output {k}"), y, Some(expected), near)?;
    }
    Ok(())
}

fn reverse(case: &Case, call: Call, near: f64) -> Result<(), String> {
    let (_, pullback) = vjp(|x: &Vec<Tensor>| differentiable(case, call(x)), &point(case));
    let grads = pullback(&cotangents(case));
    each(case, "grad", &grads, near)
}

fn forward(case: &Case, call: Call, near: f64) -> Result<(), String> {
    let (_, tangents) =
        jvp(|x: &Vec<Tensor>| differentiable(case, call(x)), &point(case), &directions(case));
    for (t, k) in tangents.iter().zip(kept(case)) {
        same(&format!("jvp.{k}"), t, case.tensor("jvp", k), near)?;
    }
    Ok(())
}

/// The gradient of Σ ⟨grad.J, tan.J⟩: a gradient of the vjp.
fn second(case: &Case, call: Call, near: f64) -> Result<(), String> {
    let (cotangents, directions) = (cotangents(case), directions(case));
    let inner = |x: &Vec<Tensor>| {
        let (_, pullback) = vjp(|x: &Vec<Tensor>| differentiable(case, call(x)), x);
        let terms = pullback(&cotangents)
            .iter()
            .zip(&directions)
            .map(|(g, t)| (g * t).sum())
            .reduce(|a, b| a + b);
        terms.unwrap_or_else(|| Tensor::from(0.0))
    };
    each(case, "gg", &grad(inner)(&point(case)), near)
}

fn point(case: &Case) -> Vec<Tensor> {
    case.wrt.iter().map(|j| case.inputs[j].clone()).collect()
}

fn directions(case: &Case) -> Vec<Tensor> {
    let direction =
        |&j: &usize| case.tensor("tan", j).cloned().unwrap_or_else(|| case.inputs[&j].zeros_like());
    case.wrt.iter().map(direction).collect()
}

/// The numbers of the outputs that are differentiated.
fn kept(case: &Case) -> impl Iterator<Item = usize> {
    case.outputs.iter().enumerate().filter(|(_, o)| o.diff).map(|(k, _)| k)
}

fn differentiable(case: &Case, outs: Vec<Tensor>) -> Vec<Tensor> {
    kept(case).map(|k| outs[k].clone()).collect()
}

fn cotangents(case: &Case) -> Vec<Tensor> {
    let zero = |k: usize| Tensor::zeros_with(&case.outputs[k].shape[..], case.outputs[k].dtype);
    kept(case).map(|k| case.tensor("cot", k).cloned().unwrap_or_else(|| zero(k))).collect()
}

fn each(case: &Case, kind: &str, found: &[Tensor], near: f64) -> Result<(), String> {
    case.wrt
        .iter()
        .zip(found)
        .try_for_each(|(&j, x)| same(&format!("{kind}.{j}"), x, case.tensor(kind, j), near))
}

/// Compares with the reference; none is zero. NaN equals NaN.
fn same(what: &str, found: &Tensor, expected: Option<&Tensor>, near: f64) -> Result<(), String> {
    let zero;
    let expected = match expected {
        Some(x) => x,
        None => {
            zero = found.zeros_like();
            &zero
        }
    };
    if found.shape() != expected.shape() || found.dtype() != expected.dtype() {
        return Err(format!("{what} is {}, not {}", found.spec(), expected.spec()));
    }
    if !found.dtype().is_float() {
        let list = |x: &Tensor| x.cast(DType::I64).to_vec::<i64>();
        return match list(found) == list(expected) {
            true => Ok(()),
            false => Err(format!("{what} is {:.60?}, not {:.60?}", list(found), list(expected))),
        };
    }
    let list = |x: &Tensor| x.cast(DType::F64).to_vec::<f64>();
    for (i, (a, b)) in list(found).into_iter().zip(list(expected)).enumerate() {
        let close = a == b
            || (a.is_nan() && b.is_nan())
            || (a - b).abs() <= near * b.abs().max(a.abs()) + ABSOLUTE;
        // An infinity is near nothing but itself.
        if !close || (a != b && (a.is_infinite() || b.is_infinite())) {
            return Err(format!("{what}, element {i} of {}: {a:e} instead of {b:e}", found.spec()));
        }
    }
    Ok(())
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs with panics turned into sentences, and not printed.
pub fn quietly<R>(f: impl Fn() -> R) -> Result<R, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| pullback::catch(&f)));
    QUIET.set(false);
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(format!("{error}").replace('\n', " ")),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()));
            Err(format!("a panic: {}", text.unwrap_or_else(|| "of an unknown kind".into())))
        }
    }
}
