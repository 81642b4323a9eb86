//! `pullback check`: gradients against numeric derivatives, of an expression or of this
//! installation.

use crate::failure::{CliResult, Failure};
use crate::grad;
use crate::output::{StandardOutput, columns};
use clap::Args;
use pullback::check::Check;
use pullback::{
    DType, Key, Kink, Tensor, catch, hessian_tree, jit, jvp, kink_report, vjp, with_threads,
};
use pullback_explore::expression::{Graph, functions};
use pullback_explore::number::{plain, tensor};
use serde_json::json;

/// What `pullback check` takes.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
#[command(after_long_help = "Examples:
  pullback check
      checks this installation: every pointwise function, threads, the compiler
  pullback check 'x*y + sin(x*y)' x=2 y=3
      numeric, reverse and forward derivatives side by side, and those of second order
  pullback check 'abs(x)' x=0
      at a kink there is no derivative: the convention that is used instead is named

A derivative is compared with a central difference of fourth order; of several steps the one that can be trusted most is taken.
It may be off by --tolerance of its size. Exit code 1 says that something differs.")]
pub struct CheckArgs {
    /// The expression; without one, the installation is checked
    expression: Option<String>,
    /// Values of its variables, such as x=2 or v='[1, 2, 3]'
    #[arg(value_name = "NAME=VALUE")]
    assignments: Vec<String>,
    /// How far a derivative may be off, relative to its size
    #[arg(long, default_value_t = 1e-6, value_name = "T")]
    tolerance: f64,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Checks and prints.
///
/// # Errors
/// If something differs.
pub fn run(arguments: &CheckArgs, out: &mut StandardOutput) -> CliResult {
    if !arguments.tolerance.is_finite() || arguments.tolerance <= 0.0 {
        return Err(Failure::usage(format!(
            "--tolerance is {}, which is not a positive number",
            arguments.tolerance
        )));
    }
    match &arguments.expression {
        Some(expression) => {
            let graph = grad::graph(expression, &arguments.assignments)?;
            expression_check(&graph, arguments, out)
        }
        None => installation(arguments, out),
    }
}

/// What is said of a kink.
fn described(kink: &Kink) -> String {
    let Kink { op, place, convention, .. } = kink;
    format!(
        "`{op}` has no derivative here ({place}); by convention, the derivative is {convention}"
    )
}

/// One line of the report.
struct Finding {
    what: String,
    found: Result<String, String>,
}

/// All derivatives of an expression, three ways.
fn expression_check(graph: &Graph, arguments: &CheckArgs, out: &mut StandardOutput) -> CliResult {
    let inputs = graph.arguments();
    let f = |x: &Vec<Tensor>| graph.value(x);
    if !f(&inputs).dtype().is_float() {
        return Err(Failure::usage("the result is a bool, which has no derivative"));
    }
    // A result with several elements is summed.
    let sum = |x: &Vec<Tensor>| f(x).sum();
    let (reverse, kinks) = kink_report(|| catch(|| vjp(sum, &inputs).1(&Tensor::from(1.0))));
    let (reverse, kinks) = (reverse?, kinks.kinks);
    // At a kink numeric derivatives need not agree, with what is right or with each other.
    let differs = if kinks.is_empty() { "differs" } else { "kink" };
    let mut rows =
        vec![["derivative", "numeric", "reverse", "forward", ""].map(String::from).to_vec()];
    let mut entries = Vec::new();
    let mut wrong = 0;
    for (i, (name, x)) in graph.inputs.iter().enumerate() {
        for flat in 0..x.len() {
            let moved = |by: f64, from: &Tensor| {
                let mut values = from.to_f64_vec();
                values[flat] += by;
                Tensor::from_vec(values, from.shape())
            };
            let at = |by: f64| {
                let mut all = inputs.clone();
                all[i] = moved(by, x);
                sum(&all).item::<f64>()
            };
            let numeric = catch(|| difference(at, x.to_f64_vec()[flat]))?;
            let mut tangent: Vec<Tensor> = inputs.iter().map(Tensor::zeros_like).collect();
            tangent[i] = moved(1.0, &tangent[i]);
            let forward = catch(|| jvp(sum, &inputs, &tangent).1.item::<f64>())?;
            let reverse = reverse[i].to_f64_vec()[flat];
            let same = near(numeric, reverse, arguments.tolerance)
                && near(numeric, forward, arguments.tolerance);
            wrong += usize::from(!same);
            let index = if x.rank() == 0 { String::new() } else { format!("[{flat}]") };
            let verdict = if same { out.good("same") } else { out.bad(differs) };
            let label = format!("∂/∂{name}{index}");
            rows.push(vec![
                label.clone(),
                plain(numeric, 8),
                plain(reverse, 8),
                plain(forward, 8),
                verdict,
            ]);
            entries.push(json!({ "derivative": label, "numeric": numeric, "reverse": reverse, "forward": forward, "same": same }));
        }
    }
    // The scale of the function is not known: a suitable step agrees, and none makes a wrong
    // derivative right.
    let by_step = |step: f64| {
        let check = Check::new().order(2).tolerance(arguments.tolerance.max(1e-5), 1e-6);
        catch(|| check.step(step).run(f, &inputs)).and_then(|report| report)
    };
    let second = by_step(1e-3).or_else(|usual| {
        [1e-5, 1e-7, 1e-9, 1e-11].into_iter().find_map(|s| by_step(s).ok()).ok_or(usual)
    });
    let symmetric = symmetric(graph, &inputs, arguments.tolerance);
    let findings = [
        Finding {
            what: "second order, both modes".into(),
            found: second
                .map(|r| format!("{} derivatives compared", r.compared))
                .map_err(|e| e.message().to_string()),
        },
        Finding { what: "the Hessian is symmetric".into(), found: symmetric },
    ];
    wrong += findings.iter().filter(|f| f.found.is_err()).count();
    if arguments.json {
        let report = json!({
            "expression": graph.source, "derivatives": entries, "wrong": wrong,
            "more": findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
            "kinks": kinks.iter().map(kink_json).collect::<Vec<_>>(),
        });
        print_json(&report, out)?;
    } else {
        columns(&rows, &[1, 2, 3]).iter().try_for_each(|line| out.line(line))?;
        // What is wrong at a kink is the comparison.
        let compared = |f: &&Finding| kinks.is_empty() || f.found.is_ok();
        findings.iter().filter(compared).try_for_each(|f| f.print(out))?;
        kinks.iter().try_for_each(|kink| out.line(format!("kink  {}", described(kink))))?;
    }
    match kinks.first() {
        Some(kink) if wrong > 0 => Err(Failure::failed(format!(
            "not comparable with numeric derivatives: {} (docs/conventions.md)",
            described(kink)
        ))),
        _ => verdict(wrong),
    }
}

fn kink_json(kink: &Kink) -> serde_json::Value {
    let Kink { op, place, convention, elements, .. } = kink;
    json!({ "op": op, "place": place, "derivative": convention, "elements": elements })
}

fn symmetric(graph: &Graph, inputs: &Vec<Tensor>, tolerance: f64) -> Result<String, String> {
    let blocks = catch(|| hessian_tree(|x: &Vec<Tensor>| graph.value(x).sum())(inputs))
        .map_err(|e| e.message().to_string())?;
    for (i, row) in blocks.iter().enumerate() {
        for (j, block) in row.iter().enumerate() {
            let (m, n) = (inputs[i].len(), inputs[j].len());
            let (a, b) = (block.reshape([m, n]), blocks[j][i].reshape([n, m]).t());
            let pairs = a.to_f64_vec().into_iter().zip(b.contiguous().to_f64_vec());
            if let Some((x, y)) = pairs.into_iter().find(|&(x, y)| !near(x, y, tolerance)) {
                return Err(format!("{} and {}", plain(x, 8), plain(y, 8)));
            }
        }
    }
    Ok(match blocks.len() {
        1 => "one block".into(),
        n => format!("{} blocks", n * n),
    })
}

/// Nothing is near infinity but itself.
fn near(a: f64, b: f64, tolerance: f64) -> bool {
    let difference = (a - b).abs();
    a == b || difference.is_finite() && difference <= 1e-8 + tolerance * a.abs().max(b.abs())
}

/// The numeric derivative of a function of the distance from `x`: central differences of fourth
/// order with steps from a hundredth of the larger of `x` and 1 down to a ten-thousandth of the
/// smaller, each a tenth of the last. Large steps have a large truncation error, small ones a large
/// rounding error; where two neighbours agree best, both are small.
fn difference(f: impl Fn(f64) -> f64, x: f64) -> f64 {
    let least = 1e-4 * if x == 0.0 { 1.0 } else { x.abs().min(1.0) };
    let steps = std::iter::successors(Some(1e-2 * x.abs().max(1.0)), |h| Some(h / 10.0));
    let found: Vec<(f64, f64)> = steps
        .take_while(|&h| h >= 0.99 * least)
        .take(40)
        .map(|h| {
            let (near, far) = ((f(h), f(-h)), (f(2.0 * h), f(-2.0 * h)));
            let slope = (8.0 * (near.0 - near.1) - (far.0 - far.1)) / (12.0 * h);
            (slope, f64::EPSILON * near.0.abs().max(near.1.abs()) / h)
        })
        .collect();
    let doubt = |pair: &[(f64, f64)]| (pair[0].0 - pair[1].0).abs() + pair[1].1;
    let best = found
        .windows(2)
        .filter(|pair| doubt(pair).is_finite())
        .min_by(|a, b| doubt(a).total_cmp(&doubt(b)));
    best.map_or(f64::NAN, |pair| pair[1].0)
}

/// A sample check of the whole library.
fn installation(arguments: &CheckArgs, out: &mut StandardOutput) -> CliResult {
    let findings = [
        Finding { what: "processor".into(), found: Ok(processor()) },
        Finding {
            what: "gradients of pointwise functions".into(),
            found: pointwise(arguments.tolerance),
        },
        Finding {
            what: "gradients of reductions and products".into(),
            found: composed(arguments.tolerance),
        },
        Finding { what: "the same bits on any number of threads".into(), found: threads() },
        Finding { what: "compiled as eager".into(), found: compiled() },
    ];
    let wrong = findings.iter().filter(|f| f.found.is_err()).count();
    if arguments.json {
        let list: Vec<_> = findings.iter().map(Finding::to_json).collect();
        print_json(&json!({ "checks": list, "wrong": wrong }), out)?;
    } else {
        findings.iter().try_for_each(|f| f.print(out))?;
    }
    verdict(wrong)
}

fn processor() -> String {
    let set = pullback::backend::instruction_set().unwrap_or_else(|error| error.to_string());
    format!("{set}; {} threads", pullback::threads())
}

/// Places at which functions of the reals are tried; a function is checked where it and its numeric
/// derivative are finite.
const PLACES: [f64; 6] = [-1.7, -0.45, 0.3, 0.62, 1.3, 2.6];

fn pointwise(tolerance: f64) -> Result<String, String> {
    let mut compared = 0;
    let mut functions_checked = 0;
    for function in functions::all() {
        let two = match function.kind {
            // Its derivative is zero by definition.
            functions::FunctionKind::Unary(_) if function.name == "stop_gradient" => continue,
            functions::FunctionKind::Unary(_) => false,
            functions::FunctionKind::Binary(_) => true,
            _ => continue,
        };
        let mut here = 0;
        for (k, &a) in PLACES.iter().enumerate() {
            let b = PLACES[(k + 2) % PLACES.len()] + 0.05;
            let x: Vec<Tensor> =
                if two { vec![a, b] } else { vec![a] }.into_iter().map(Tensor::from).collect();
            let f = |x: &Vec<Tensor>| function.apply(x, &[]);
            let value = catch(|| f(&x)).map_err(|e| format!("{}: {e}", function.name))?;
            // Outside the domain there is nothing to compare, and booleans have no derivative.
            if !value.dtype().is_float() || !value.to_f64_vec()[0].is_finite() {
                continue;
            }
            let check = Check::new().tolerance(tolerance.max(1e-6), 1e-7);
            match catch(|| check.run(f, &x)).and_then(|report| report) {
                Ok(report) => here += report.compared,
                // Two of them refuse one derivative with an error; that is not a wrong gradient.
                Err(e) if e.kind() == pullback::ErrorKind::Gradient => {}
                Err(e) => {
                    return Err(format!("{} at {}: {}", function.name, listed(&x), e.message()));
                }
            }
        }
        compared += here;
        functions_checked += usize::from(here > 0);
    }
    Ok(format!("{functions_checked} functions, {compared} derivatives compared with numeric ones"))
}

fn listed(x: &[Tensor]) -> String {
    x.iter().map(|x| tensor(x, 6)).collect::<Vec<_>>().join(", ")
}

fn composed(tolerance: f64) -> Result<String, String> {
    type CheckRow = (&'static str, fn(&(Tensor, Tensor)) -> Tensor);
    #[rustfmt::skip]
    let rows: [CheckRow; 8] = [
        ("matmul",      |(a, b)| a.matmul(b)),
        ("softmax",     |(a, b)| a.softmax(-1) * b.t()),
        ("log_softmax", |(a, b)| a.log_softmax(0) + b.t()),
        ("logsumexp",   |(a, b)| a.logsumexp_over(1) * b.sum()),
        ("norm",        |(a, b)| a.norm() / b.norm()),
        ("prod",        |(a, b)| a.prod_over(1) + b.mean_over(0)),
        ("cumsum",      |(a, b)| a.cumsum(1) * b.t()),
        ("var",         |(a, b)| a.var() * b.std()),
    ];
    let (ka, kb) = Key::new(5).split();
    let x = (ka.normal([3, 3], DType::F64, 0.0, 1.0), kb.normal([3, 3], DType::F64, 0.0, 1.0));
    let mut compared = 0;
    for (name, f) in rows {
        let check = Check::new().order(2).tolerance(tolerance.max(1e-5), 1e-6);
        let report = catch(|| check.run(f, &x)).and_then(|report| report);
        compared += report.map_err(|e| format!("{name}: {}", e.message()))?.compared;
    }
    Ok(format!("{} formulas, {compared} derivatives to second order", rows.len()))
}

/// A loss with products, reductions and pointwise functions, and its gradients.
fn loss(x: &(Tensor, Tensor)) -> Vec<Tensor> {
    let f = |(a, b): &(Tensor, Tensor)| {
        (a.matmul(b).gelu().softmax(-1) * a.matmul(b)).sum() + a.square().mean()
    };
    let (value, back) = vjp(f, x);
    let (da, db) = back(&value.ones_like());
    vec![value, da, db]
}

fn example() -> (Tensor, Tensor) {
    let (ka, kb) = Key::new(7).split();
    (ka.normal([160, 200], DType::F32, 0.0, 1.0), kb.normal([200, 120], DType::F32, 0.0, 1.0))
}

fn threads() -> Result<String, String> {
    let x = example();
    let bits = |n: usize| -> Vec<u32> {
        let results = with_threads(n, || loss(&x));
        results.iter().flat_map(|t| t.to_vec::<f32>()).map(f32::to_bits).collect()
    };
    let one = catch(|| bits(1)).map_err(|e| e.to_string())?;
    for n in [2, 3, 4] {
        if catch(|| bits(n)).map_err(|e| e.to_string())? != one {
            return Err(format!("{n} threads give other bits than one"));
        }
    }
    Ok("1, 2, 3 and 4 threads agree".into())
}

fn compiled() -> Result<String, String> {
    let f = jit(|x: &(Tensor, Tensor)| loss(x));
    let x = example();
    f.check(&x).map_err(|e| e.message().to_string())?;
    f.call(&x).map_err(|e| e.message().to_string())?;
    let explained = f.explain();
    let kernels: usize = explained.specialisations.iter().flat_map(|s| s.kernels.values()).sum();
    Ok(format!("{kernels} kernels, each compared with plain ops"))
}

impl Finding {
    fn print(&self, out: &mut StandardOutput) -> std::io::Result<()> {
        let (mark, text) = match &self.found {
            Ok(text) => (out.good("ok"), text),
            Err(text) => (out.bad("WRONG"), text),
        };
        out.line(format!("{mark}  {}: {text}", self.what))
    }

    fn to_json(&self) -> serde_json::Value {
        let (Ok(text) | Err(text)) = &self.found;
        json!({ "check": self.what, "ok": self.found.is_ok(), "detail": text })
    }
}

fn print_json(value: &serde_json::Value, out: &mut StandardOutput) -> CliResult {
    let text = serde_json::to_string_pretty(value).map_err(|e| Failure::failed(e.to_string()))?;
    Ok(out.line(text)?)
}

fn verdict(wrong: usize) -> CliResult {
    match wrong {
        0 => Ok(()),
        1 => Err(Failure::failed("one check found a difference")),
        n => Err(Failure::failed(format!("{n} checks found differences"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_derivatives_suit_the_function() {
        type Case = (fn(f64) -> f64, f64, f64);
        #[rustfmt::skip]
        let cases: [Case; 7] = [
            (|x| x * x,           3.0,   6.0),
            (f64::sin,            1e3,   1e3f64.cos()),
            (f64::exp,            700.0, 700f64.exp()),
            (f64::ln,             1e-9,  1e9),
            (|x| (100.0 * x).cos(), 3.0, -100.0 * 300f64.sin()),
            (|x| x * 1e200,       1e100, 1e200),
            (|x| x + 1e6,         0.0,   1.0),
        ];
        for (k, (f, x, wanted)) in cases.into_iter().enumerate() {
            let found = difference(|by| f(x + by), x);
            assert!(near(found, wanted, 1e-6), "case {k}: {found} is not {wanted}");
        }
        assert!(!near(difference(|by| f64::from(by >= 0.0), 0.0), 0.0, 1e-6), "a jump");
        assert!(difference(|_| f64::NAN, 1.0).is_nan());
    }

    #[test]
    fn nothing_is_near_infinity() {
        assert!(!near(1e6, f64::NEG_INFINITY, 1e-6) && near(f64::INFINITY, f64::INFINITY, 1e-6));
    }
}
