//! The findings as text.

use super::Findings;
use crate::output::{StandardOutput, columns};
use pullback_explore::expression::ValueRef;
use pullback_explore::number::{SignificantDigits, bytes, plain, tensor};
use pullback_explore::sweep::{Edge, LocalDerivative};
use std::io;

/// A local derivative on one line.
pub fn shown(local: &LocalDerivative, digits: SignificantDigits) -> String {
    match local {
        LocalDerivative::Whole(x) => tensor(x, digits),
        LocalDerivative::Diagonal(x) => format!("diag {}", tensor(x, digits)),
        LocalDerivative::Large(shape) => format!("a Jacobian of shape {shape:?}"),
        LocalDerivative::Zero => "0".into(),
    }
}

/// The name with a bar: the adjoint.
fn bar(name: &str) -> String {
    marked(name, '\u{304}')
}

/// The name with a dot: the tangent.
fn dotted(name: &str) -> String {
    marked(name, '\u{307}')
}

fn marked(name: &str, mark: char) -> String {
    let mut letters = name.chars();
    letters.next().into_iter().chain([mark]).chain(letters).collect()
}

/// Prints everything that was found.
///
/// # Errors
/// If the output is closed.
pub fn print(found: &Findings, out: &mut StandardOutput) -> io::Result<()> {
    let (graph, digits) = (&found.graph, found.digits);
    let values: Vec<String> =
        graph.inputs.iter().map(|(name, x)| format!("{name} = {}", tensor(x, digits))).collect();
    let heading = out.bold(&graph.source);
    out.line(format!("{heading}  at {}", values.join(", ")))?;
    tape(found, out)?;
    if found.mode.reverse() {
        reverse(found, out)?;
    }
    forward(found, out)?;
    out.line("")?;
    match &found.jacobian {
        Some(blocks) => {
            out.heading("jacobian")?;
            let name = graph.name(graph.result, digits);
            for ((by, _), block) in graph.inputs.iter().zip(blocks) {
                out.line(format!("  ∂{name}/∂{by} = {}", tensor(block, digits)))?;
            }
        }
        None => {
            out.heading("gradient")?;
            let rows = graph.inputs.iter().zip(&found.sweep.gradient);
            let rows: Vec<Vec<String>> = rows
                .map(|((name, _), g)| {
                    vec![format!("  ∂/∂{name}"), format!("= {}", tensor(g, digits))]
                })
                .collect();
            columns(&rows, &[]).iter().try_for_each(|line| out.line(line))?;
        }
    }
    if let Some(blocks) = &found.hessian {
        out.line("")?;
        out.heading("hessian")?;
        for ((a, _), row) in graph.inputs.iter().zip(blocks) {
            for ((b, _), block) in graph.inputs.iter().zip(row) {
                out.line(format!("  ∂²/∂{a}∂{b} = {}", tensor(block, digits)))?;
            }
        }
    }
    cost(found, out)
}

fn tape(found: &Findings, out: &mut StandardOutput) -> io::Result<()> {
    let (graph, sweep, digits) = (&found.graph, &found.sweep, found.digits);
    out.line("")?;
    out.heading("forward: the tape, with local derivatives")?;
    let rows: Vec<Vec<String>> = graph
        .steps
        .iter()
        .enumerate()
        .map(|(k, step)| {
            let name = graph.step_name(k);
            let local = |edge: &Edge| {
                format!(
                    "∂{name}/∂{} = {}",
                    graph.name(edge.operand, digits),
                    shown(&edge.local, digits)
                )
            };
            let locals: Vec<String> = sweep.edges[k].iter().map(local).collect();
            vec![
                format!("  {name} = {}", graph.formula(step, digits)),
                format!("= {}", tensor(&sweep.values[k], digits)),
                locals.join(", "),
            ]
        })
        .collect();
    columns(&rows, &[]).iter().try_for_each(|line| out.line(line))?;
    let name = graph.name(graph.result, digits);
    out.line(format!("  the result is {name} = {}", tensor(&sweep.result, digits)))
}

fn reverse(found: &Findings, out: &mut StandardOutput) -> io::Result<()> {
    let (graph, sweep, digits) = (&found.graph, &found.sweep, found.digits);
    out.line("")?;
    out.heading("reverse: adjoints, from the result back to the variables")?;
    let root = bar(&graph.name(graph.result, digits));
    let given = match (sweep.result.rank(), &found.jacobian) {
        (0, _) => "",
        (_, None) => "  (the cotangent)",
        (_, Some(_)) => "  (ones: what follows is the sum over the rows of the Jacobian)",
    };
    out.line(format!("  {root} = {}{given}", tensor(&sweep.cotangent, digits)))?;
    // How many contributions each value still waits for: with the last one its adjoint is whole.
    let mut waiting = std::collections::HashMap::<ValueRef, usize>::new();
    sweep.edges.iter().flatten().for_each(|edge| *waiting.entry(edge.operand).or_default() += 1);
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (k, edges) in sweep.edges.iter().enumerate().rev() {
        let own = graph.step_name(k);
        for edge in edges {
            let name = graph.name(edge.operand, digits);
            let left = waiting.entry(edge.operand).or_default();
            *left = left.saturating_sub(1);
            let adjoint = match edge.operand {
                ValueRef::GraphStep(j) => &sweep.adjoints[j],
                ValueRef::Input(i) => &sweep.gradient[i],
                ValueRef::Constant(_) => continue,
            };
            let whole = match *left {
                0 => format!("→ {} = {}", bar(&name), tensor(adjoint, digits)),
                _ => String::new(),
            };
            let scalar = matches!(&edge.local, LocalDerivative::Whole(x) if x.rank() == 0);
            let numbers = match &edge.local {
                LocalDerivative::Whole(x) if scalar => {
                    let (a, b) = (tensor(&sweep.adjoints[k], digits), tensor(x, digits));
                    let b = if b.starts_with('-') { format!("({b})") } else { b };
                    format!("= {a}·{b} = {}", tensor(&edge.contribution, digits))
                }
                _ => format!("= {}", tensor(&edge.contribution, digits)),
            };
            rows.push(vec![
                format!("  {} += {}·∂{own}/∂{name}", bar(&name), bar(&own)),
                numbers,
                whole,
            ]);
        }
    }
    columns(&rows, &[]).iter().try_for_each(|line| out.line(line))
}

fn forward(found: &Findings, out: &mut StandardOutput) -> io::Result<()> {
    let (graph, digits) = (&found.graph, found.digits);
    for pass in found.tangents.iter().flatten() {
        let (name, value) = &graph.inputs[pass.input];
        let index: Vec<String> = pass.element.iter().map(ToString::to_string).collect();
        let index =
            if value.rank() == 0 { String::new() } else { format!("[{}]", index.join(", ")) };
        out.line("")?;
        out.heading(&format!("forward: tangents, from {}{index} = 1 on", dotted(name)))?;
        let rows: Vec<Vec<String>> = graph
            .steps
            .iter()
            .enumerate()
            .map(|(k, step)| {
                let own = graph.step_name(k);
                let terms: Vec<String> = step
                    .variables()
                    .iter()
                    .map(|&r| {
                        let name = graph.name(r, digits);
                        format!("∂{own}/∂{name}·{}", dotted(&name))
                    })
                    .collect();
                let tangent = format!("= {}", tensor(&pass.steps[k], digits));
                vec![format!("  {} = {}", dotted(&own), terms.join(" + ")), tangent]
            })
            .collect();
        columns(&rows, &[]).iter().try_for_each(|line| out.line(line))?;
        let result = graph.name(graph.result, digits);
        out.line(format!("  ∂{result}/∂{name}{index} = {}", tensor(&pass.result, digits)))?;
    }
    Ok(())
}

fn cost(found: &Findings, out: &mut StandardOutput) -> io::Result<()> {
    let Some(costs) = &found.cost else { return Ok(()) };
    out.line("")?;
    out.heading("cost")?;
    let head = ["", "passes", "ops", "multiplications", "memory kept"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for c in costs {
        let kept = if c.name == "reverse" { bytes(c.kept) } else { "0 B".into() };
        rows.push(vec![
            format!("  {}", c.name),
            c.passes.to_string(),
            plain(c.ops as f64, 9),
            plain(c.multiplications as f64, 9),
            kept,
        ]);
    }
    columns(&rows, &[1, 2, 3, 4]).iter().try_for_each(|line| out.line(line))?;
    let plural = |n: usize, one: &str| {
        if n == 1 { format!("the {one}") } else { format!("each of the {n} {one}s") }
    };
    let inputs: usize = found.graph.inputs.iter().map(|(_, x)| x.len()).sum();
    let reverse = match (found.sweep.result.rank(), &found.jacobian) {
        (0, _) => "the result".into(),
        (_, None) => "the cotangent".into(),
        (_, Some(_)) => plural(found.sweep.result.len(), "result"),
    };
    out.line(format!(
        "  forward mode needs a pass for {}, reverse mode one for {reverse}",
        plural(inputs, "input")
    ))
}
