//! The tape as a graph for Graphviz: values and adjoints in the nodes, local derivatives on the
//! arrows.

use super::Findings;
use super::text::shown;
use pullback_explore::expression::ValueRef;
use pullback_explore::number::tensor;
use std::fmt::Write as _;

/// A directed graph from the variables to the result.
pub fn of(found: &Findings) -> String {
    let (graph, sweep, digits) = (&found.graph, &found.sweep, found.digits);
    let mut out = String::from(
        "digraph tape {\n  rankdir=LR;\n  node [shape=box, fontname=monospace];\n  edge [fontname=monospace];\n",
    );
    let node = |r: ValueRef| match r {
        ValueRef::Input(i) => format!("x{i}"),
        ValueRef::GraphStep(k) => format!("v{}", k + 1),
        ValueRef::Constant(i) => format!("c{i}"),
    };
    let mut line = |text: String| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "  {text}");
    };
    for (i, (name, x)) in graph.inputs.iter().enumerate() {
        let (value, adjoint) = (tensor(x, digits), tensor(&sweep.gradient[i], digits));
        line(format!(
            "x{i} [shape=ellipse, label=\"{}\\nadjoint {adjoint}\"];",
            escaped(&format!("{name} = {value}"))
        ));
    }
    for (k, step) in graph.steps.iter().enumerate() {
        let formula = format!("{} = {}", graph.step_name(k), graph.formula(step, digits));
        let (value, adjoint) =
            (tensor(&sweep.values[k], digits), tensor(&sweep.adjoints[k], digits));
        line(format!(
            "v{} [label=\"{}\\n= {value}\\nadjoint {adjoint}\"];",
            k + 1,
            escaped(&formula)
        ));
        for edge in &sweep.edges[k] {
            let local = shown(&edge.local, digits);
            line(format!("{} -> v{} [label=\"{}\"];", node(edge.operand), k + 1, escaped(&local)));
        }
    }
    line(format!("result [shape=plaintext, label=\"{}\"];", escaped(&graph.source)));
    line(format!("{} -> result;", node(graph.result)));
    out.push_str("}\n");
    out
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
}
