//! The program, started and spoken to over its standard input and output.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub struct Tool {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

// Each test program uses a part of this.
#[allow(dead_code)]
impl Tool {
    pub fn start() -> Tool {
        let mut process = Command::new(env!("CARGO_BIN_EXE_pullback-gradbench"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let input = process.stdin.take().expect("its input is a pipe");
        let output = BufReader::new(process.stdout.take().expect("its output is a pipe"));
        Tool { process, input, output }
    }

    /// Sends a line as it is, and reads the answer.
    pub fn say(&mut self, line: &str) -> Value {
        writeln!(self.input, "{line}").expect("the program listens");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("the program answers");
        serde_json::from_str(&answer).expect("an answer is JSON")
    }

    pub fn ask(&mut self, message: Value) -> Value {
        self.say(&message.to_string())
    }

    fn evaluated(&mut self, module: &str, function: &str, input: Value) -> Value {
        let (kind, id) = ("evaluate", 7);
        let message = json!({ "id": id, "kind": kind, "module": module, "function": function, "input": input });
        let answer = self.ask(message);
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// The output of a function that succeeds.
    pub fn evaluate(&mut self, module: &str, function: &str, input: Value) -> Value {
        let mut answer = self.evaluated(module, function, input);
        assert_eq!(answer["success"], true, "{module}::{function}: {}", answer["error"]);
        answer["output"].take()
    }

    /// The sentence of a function that refuses its input.
    pub fn refusal(&mut self, module: &str, function: &str, input: Value) -> String {
        let answer = self.evaluated(module, function, input);
        assert_eq!(answer["success"], false, "{module}::{function} answered {}", answer["output"]);
        answer["error"].as_str().expect("an error is a sentence").to_string()
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // A test that fails leaves no process behind.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The numbers of an answer, in order, however nested.
#[allow(dead_code)]
pub fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().unwrap_or_else(|| panic!("{other} is no number"))],
    }
}

/// Compares all numbers of an answer with what they should be, relative to the largest of them.
#[allow(dead_code)]
#[track_caller]
pub fn assert_close(found: &Value, expected: &[f64], tolerance: f64) {
    let found = numbers(found);
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-300f64, |m, x| m.max(x.abs()));
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= tolerance * scale, "number {i}: {a}, expected {b}");
    }
}
