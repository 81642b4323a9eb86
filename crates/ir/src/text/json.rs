//! Programs as JSON, for tools that are not written in Rust.

use super::print::IntList;
use crate::{Device, Equation, Op, Program, Spec, Var};
use std::fmt::Write;

impl Program {
    /// The program as one JSON object, without blanks.
    ///
    /// | key | value |
    /// |---|---|
    /// | `inputs` | list of variables: `{"name": "a", "dtype": "f32", "shape": [8]}` |
    /// | `equations` | list of equations, in order |
    /// | `outputs` | list of names |
    /// | `updates` | list of `{"output": k, "input": i}`: output number k replaces input number i |
    ///
    /// An equation has `op` (the name), `text` (the op with its attributes, as it prints; of
    /// control flow only the attributes that are not programs), `inputs` (names), `outputs`
    /// (variables), `place` (`null` or `{"file", "line", "column"}`) and `programs`: an object of
    /// the programs inside, by name, each as here; empty for all but control flow.
    ///
    /// ```
    /// use pullback_ir::Program;
    /// let program: Program = "program (a: f32[2]) { let b: f32[2] = neg a /* m.rs:1:2 */; return b into a }".parse().unwrap();
    /// assert_eq!(
    ///     program.to_json(),
    ///     r#"{"inputs":[{"name":"a","dtype":"f32","shape":[2]}],"equations":[{"op":"neg","text":"neg","inputs":["a"],"#.to_owned()
    ///         + r#""outputs":[{"name":"b","dtype":"f32","shape":[2]}],"place":{"file":"m.rs","line":1,"column":2},"programs":{}}],"#
    ///         + r#""outputs":["b"],"updates":[{"output":0,"input":0}]}"#,
    /// );
    /// ```
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        write_program(self, &mut out);
        out
    }
}

fn write_program(program: &Program, out: &mut String) {
    out.push_str("{\"inputs\":");
    list(out, &program.inputs, |out, &v| variable(out, v, program.spec(v)));
    out.push_str(",\"equations\":");
    list(out, &program.equations, |out, e| equation(out, program, e));
    out.push_str(",\"outputs\":");
    list(out, &program.outputs, |out, v| string(out, &v.to_string()));
    out.push_str(",\"updates\":");
    list(out, &program.updates, |out, (output, input)| {
        *out += &format!("{{\"output\":{output},\"input\":{input}}}");
    });
    out.push('}');
}

fn equation(out: &mut String, program: &Program, e: &Equation) {
    out.push_str("{\"op\":");
    string(out, e.op.name());
    out.push_str(",\"text\":");
    match &e.op {
        Op::Flow(flow) => {
            let mut text = format!("{}{{", flow.name());
            // Writing to a string does not fail.
            let _ = flow.write_numbers(&mut text);
            text.push('}');
            string(out, &text);
        }
        Op::Custom(custom) => string(out, &format!("custom{{{}}}", custom.name())),
        op => string(out, &op.to_string()),
    }
    out.push_str(",\"inputs\":");
    list(out, &e.inputs, |out, v| string(out, &v.to_string()));
    out.push_str(",\"outputs\":");
    list(out, &e.outputs, |out, &v| variable(out, v, program.spec(v)));
    out.push_str(",\"place\":");
    match e.at {
        None => out.push_str("null"),
        Some(at) => {
            out.push_str("{\"file\":");
            string(out, at.file());
            *out += &format!(",\"line\":{},\"column\":{}}}", at.line(), at.column());
        }
    }
    out.push_str(",\"programs\":{");
    if let Op::Flow(flow) = &e.op {
        for (i, (name, program)) in flow.names().iter().zip(flow.programs()).enumerate() {
            out.push_str(if i > 0 { "," } else { "" });
            string(out, name);
            out.push(':');
            write_program(program, out);
        }
    }
    if let Op::Custom(custom) = &e.op
        && let Some(body) = custom.body()
    {
        out.push_str("\"body\":");
        write_program(body, out);
    }
    out.push_str("}}");
}

fn variable(out: &mut String, v: Var, spec: &Spec) {
    *out += &format!("{{\"name\":\"{v}\",\"dtype\":\"{}\"", spec.dtype);
    if spec.device != Device::Cpu {
        *out += &format!(",\"device\":\"{}\"", spec.device);
    }
    *out += &format!(",\"shape\":{}}}", IntList(&spec.shape));
}

fn list<T>(out: &mut String, items: &[T], mut item: impl FnMut(&mut String, &T)) {
    out.push('[');
    for (i, value) in items.iter().enumerate() {
        out.push_str(if i > 0 { "," } else { "" });
        item(out, value);
    }
    out.push(']');
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {
                // Writing to a string does not fail. Control characters have codes below 0x10000.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
