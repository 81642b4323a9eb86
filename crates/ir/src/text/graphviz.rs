//! Programs as graphs for Graphviz.

use crate::{Op, Program, Var};
use std::fmt::Write;

impl Program {
    /// The program as a graph in the language of Graphviz: a box for each equation, an arrow for
    /// each variable that is read, with its spec. Programs inside control flow are framed, and
    /// dashed arrows go from their results to the equation that contains them.
    ///
    /// ```
    /// use pullback_ir::Program;
    /// let program: Program = "program (a: f32[2]) { let b: f32[2] = neg a; return b }".parse().unwrap();
    /// let graph = program.to_dot();
    /// assert!(graph.starts_with("digraph program {"));
    /// assert!(graph.contains(r#"p_a -> p_e0 [label="f32[2]"];"#));
    /// ```
    pub fn to_dot(&self) -> String {
        let mut out = String::from("digraph program {\n  node [shape=box, fontname=monospace];\n");
        write_program(self, "p", &mut out);
        out.push_str("}\n");
        out
    }
}

/// Writes nodes whose names start with `prefix`, and returns the nodes that define the results.
fn write_program(program: &Program, prefix: &str, out: &mut String) -> Vec<String> {
    let mut line = |text: std::fmt::Arguments| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "  {text}");
    };
    let mut made: Vec<String> = program.specs.iter().map(|_| String::new()).collect();
    for &v in &program.inputs {
        made[v.index()] = format!("{prefix}_{v}");
        let name = &made[v.index()];
        line(format_args!("{name} [label=\"{v}: {}\", shape=ellipse];", program.spec(v)));
    }
    for (i, e) in program.equations.iter().enumerate() {
        let name = format!("{prefix}_e{i}");
        let names: Vec<String> = e.outputs.iter().map(Var::to_string).collect();
        let text = match &e.op {
            Op::Flow(flow) => flow.name().to_owned(),
            Op::Custom(custom) => format!("custom {}", custom.name()),
            Op::Region(region) | Op::DotRegion(region) => {
                let sums = region.columns.iter().map(|v| format!("sum of v{v} over the rows"));
                let lines = region.body.iter().map(ToString::to_string).chain(sums);
                let lines: Vec<String> = lines.collect();
                format!("{} {:?}\n{}", e.op.name(), &region.shape[..], lines.join("\n"))
            }
            op => op.to_string(),
        };
        let tip =
            e.at.map_or(String::new(), |at| format!(", tooltip=\"{}\"", escaped(&at.to_string())));
        line(format_args!("{name} [label=\"{} = {}\"{tip}];", names.join(", "), escaped(&text)));
        for &v in &e.inputs {
            line(format_args!("{} -> {name} [label=\"{}\"];", made[v.index()], program.spec(v)));
        }
        if let Op::Flow(flow) = &e.op {
            for (inside, nested) in flow.names().iter().zip(flow.programs()) {
                let prefix = format!("{name}_{inside}");
                let mut text = String::new();
                let results = write_program(nested, &prefix, &mut text);
                line(format_args!(
                    "subgraph cluster_{prefix} {{\n  label=\"{inside}\";\n{text}  }}"
                ));
                for result in results {
                    line(format_args!("{result} -> {name} [style=dashed];"));
                }
            }
        }
        e.outputs.iter().for_each(|v| made[v.index()].clone_from(&name));
    }
    if prefix == "p" {
        for (k, &v) in program.outputs.iter().enumerate() {
            let into = program.updates.iter().find(|u| u.0 == k);
            let into = into.map_or(String::new(), |u| format!(" into {}", program.inputs[u.1]));
            line(format_args!("{prefix}_r{k} [label=\"return {v}{into}\", shape=ellipse];"));
            line(format_args!(
                "{} -> {prefix}_r{k} [label=\"{}\"];",
                made[v.index()],
                program.spec(v)
            ));
        }
    }
    program.outputs.iter().map(|v| made[v.index()].clone()).collect()
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\l")
}
