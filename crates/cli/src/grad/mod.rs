//! `pullback grad`: differentiates an expression and shows how.
//!
//! Nothing is differentiated here. `pullback_explore::sweep` runs the expression on the library's
//! tape and queries it for every adjoint, every local derivative and every contribution, and
//! `pullback_explore::count` counts what each mode does; `text.rs`, `json.rs` and `graphviz.rs`
//! print what they found.

mod graphviz;
mod json;
mod text;

use crate::failure::{CliResult, Failure};
use crate::output::StandardOutput;
use clap::{Args, ValueEnum};
use pullback::Tensor;
use pullback_explore::count;
use pullback_explore::expression::{Graph, assignment, constant_value, parse};
use pullback_explore::number::SignificantDigits;
use pullback_explore::sweep::{self, BackwardSweep};

/// What `pullback grad` takes.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
#[command(after_long_help = "Examples:
  pullback grad 'x*y + sin(x*y)' x=2 y=3
      the tape, the reverse sweep and the gradient: 5.8805 and 3.9203
  pullback grad 'sum(softmax(W @ x) * [1, 0])' W='[[1, 2], [3, 4]]' x='[0.5, -1]'
      matrices and vectors
  pullback grad 'x^2' x='[1, 2, 3]' --cotangent '[10, 1, 0.1]'
      a result with several elements needs a cotangent, or --jacobian
  pullback grad 'a = x*y; a + sin(a)' x=2 y=3
      parts may be given names
  pullback grad 'x*y*z' x=1 y=2 z=3 --mode both
      forward mode and reverse mode, and the cost of each
  pullback grad 'log(x) / y' x=2 y=3 --dot | dot -Tsvg > tape.svg
      the tape as a graph

Expressions: numbers, pi, e, inf; + - * / ^ @ and comparisons; [1, 2, 3] and [[1, 2], [3, 4]]; x[0];
every pointwise function of the library (`pullback ops`), and sum, mean, prod, max, min, norm, dot, matmul,
softmax, logsumexp, where and others. An unknown name is answered with those that look like it.")]
pub struct GradArgs {
    /// The expression, such as 'x*y + sin(x*y)'
    pub expression: String,
    /// Values of its variables, such as x=2 or v='[1, 2, 3]'
    #[arg(value_name = "NAME=VALUE")]
    pub assignments: Vec<String>,
    /// The sweep to show, with its cost
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// The gradient that flows into the result, where it has several elements
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub cotangent: Option<String>,
    /// All derivatives of a result with several elements
    #[arg(long, conflicts_with = "cotangent")]
    pub jacobian: bool,
    /// The second derivatives too
    #[arg(long)]
    pub hessian: bool,
    /// Prints JSON
    #[arg(long, conflicts_with = "dot")]
    pub json: bool,
    /// Prints the tape as a graph for Graphviz
    #[arg(long)]
    pub dot: bool,
    /// How many significant digits to print
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=17))]
    pub digits: u8,
}

/// Which way derivatives flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// From each input to the results, one pass per input
    Forward,
    /// From each result to the inputs, one pass per result
    Reverse,
    /// Both, side by side
    Both,
}

impl Mode {
    fn forward(self) -> bool {
        self != Mode::Reverse
    }

    fn reverse(self) -> bool {
        self != Mode::Forward
    }
}

/// Everything there is to print.
pub struct Findings {
    graph: Graph,
    sweep: BackwardSweep,
    /// For each element of each variable, the tangents of all steps and of the result.
    tangents: Option<Vec<sweep::TangentPass>>,
    cost: Option<Vec<count::Cost>>,
    jacobian: Option<Vec<Tensor>>,
    hessian: Option<Vec<Vec<Tensor>>>,
    mode: Mode,
    digits: SignificantDigits,
}

/// Differentiates and prints.
///
/// # Errors
/// If the expression is invalid, or the library finds no derivative.
pub fn run(arguments: &GradArgs, out: &mut StandardOutput) -> CliResult {
    let graph = graph(&arguments.expression, &arguments.assignments)?;
    let findings = find(arguments, graph)?;
    if arguments.json {
        let text = serde_json::to_string_pretty(&json::of(&findings))
            .map_err(|e| Failure::failed(e.to_string()))?;
        return Ok(out.line(text)?);
    }
    match arguments.dot {
        true => Ok(out.line(graphviz::of(&findings).trim_end())?),
        false => Ok(text::print(&findings, out)?),
    }
}

/// The graph of an expression and the values of its variables.
///
/// # Errors
/// With the place in the text.
pub fn graph(expression: &str, assignments: &[String]) -> CliResult<Graph> {
    let mut inputs: Vec<(String, Tensor)> = Vec::new();
    for text in assignments {
        let (name, value) = assignment(text)?;
        if inputs.iter().any(|(known, _)| *known == name) {
            return Err(Failure::usage(format!("`{name}` is given twice")));
        }
        inputs.push((name, value));
    }
    let parsed = parse(expression.trim())?;
    let names: Vec<String> = parsed.names().into_iter().map(String::from).collect();
    let graph = Graph::new(parsed, inputs)?;
    if let Some((unused, _)) = graph.inputs.iter().find(|(name, _)| !names.contains(name)) {
        return Err(Failure::usage(format!(
            "`{unused}` is given, but does not occur in the expression"
        )));
    }
    match graph.inputs.is_empty() {
        true => Err(Failure::usage(
            "the expression has no variables: there is nothing to differentiate by",
        )),
        false => Ok(graph),
    }
}

fn find(arguments: &GradArgs, graph: Graph) -> CliResult<Findings> {
    let inputs = graph.arguments();
    let value = graph.value(&inputs);
    if !value.dtype().is_float() {
        return Err(Failure::usage("the result is a bool, which has no derivative"));
    }
    let cotangent = match &arguments.cotangent {
        Some(text) => Some(constant_value(text)?),
        None => None,
    };
    if let Some(given) = &cotangent
        && given.shape() != value.shape()
    {
        let message =
            format!("the cotangent is {}, but the result is {}", given.spec(), value.spec());
        return Err(Failure::usage(message));
    }
    if value.rank() > 0 && cotangent.is_none() && !arguments.jacobian {
        let ones = vec!["1"; value.len().min(4)].join(", ");
        return Err(Failure::usage(format!(
            "the result has {} elements ({}), and backward needs a scalar or a cotangent\n  \
             hint: give --cotangent (such as '[{ones}]'), use --jacobian, or take sum(…)",
            value.len(),
            value.spec()
        )));
    }
    if arguments.hessian && value.rank() > 0 {
        return Err(Failure::usage(format!(
            "--hessian is for a result of one element, and this is {}",
            value.spec()
        )));
    }
    let mode = arguments.mode.unwrap_or(Mode::Reverse);
    // Of a Jacobian the sweep shows the first row, or what a cotangent of ones would give: all of
    // them summed.
    let cotangent = cotangent.unwrap_or_else(|| value.ones_like());
    let sweep = BackwardSweep::new(&graph, &cotangent)?;
    let tangents = match mode.forward() {
        true => Some(sweep::forward(&graph, &sweep)?),
        false => None,
    };
    let cost = match arguments.mode {
        Some(mode) => Some(count::of(
            &graph,
            (mode.forward(), mode.reverse()),
            if arguments.jacobian { value.len() } else { 1 },
        )?),
        None => None,
    };
    let f = |x: &Vec<Tensor>| graph.value(x);
    let jacobian = match arguments.jacobian {
        true => Some(pullback::catch(|| pullback::jacobian(f)(&inputs))?),
        false => None,
    };
    let hessian = match arguments.hessian {
        true => Some(pullback::catch(|| pullback::hessian_tree(f)(&inputs))?),
        false => None,
    };
    let digits = usize::from(arguments.digits);
    Ok(Findings { sweep, tangents, cost, jacobian, hessian, mode, digits, graph })
}
