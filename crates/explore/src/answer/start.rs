//! What was opened, and what there is to try.

use super::subject::limits;
use super::{cost, memory, presets, tape, versioned};
use crate::explorer::{Explorer, Subject};
use crate::server::BODY;
use serde_json::{Map, Value, json};

/// An example.
pub struct Example {
    /// Its name in links.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// What is to be seen.
    pub about: &'static str,
    /// The expression.
    pub expression: &'static str,
    /// Values of its variables, as JSON.
    pub values: &'static str,
}

/// The built-in examples.
#[rustfmt::skip]
pub const EXAMPLES: [Example; 8] = [
    Example { id: "default", title: "xy + sin xy", about: "Two inputs, one result, one value used twice: the smallest example with everything in it.",
        expression: "a = x*y; b = sin(a); L = a + b", values: r#"{"x": 2, "y": 3}"# },
    Example { id: "logistic", title: "Logistic regression", about: "One example, two features: the gradient is the error times the features.",
        expression: "z = dot(w, x) + b; p = sigmoid(z); L = -(y*log(p) + (1 - y)*log(1 - p))",
        values: r#"{"w": [0.5, -1], "x": [2, 1], "b": 0.1, "y": 1}"# },
    Example { id: "two-layer", title: "Two-layer network", about: "A hidden layer of three units, a squared error; all eleven parameters get their gradient in one pass.",
        expression: "h = tanh(W1 @ x + b1); y = dot(w2, h) + b2; L = (y - t)^2",
        values: r#"{"W1": [[0.5, -0.3], [0.8, 0.2], [-0.4, 0.9]], "x": [1, -2], "b1": [0.1, 0, -0.1], "w2": [0.7, -0.5, 0.3], "b2": 0.05, "t": 0.5}"# },
    Example { id: "attention", title: "Attention head", about: "Queries, keys and values of three positions: the softmax passes a gradient on from each position to every other.",
        expression: "scores = Q @ transpose(K) / sqrt(2); A = softmax(scores); out = A @ V; L = sum(out * T)",
        values: r#"{"Q": [[1, 0], [0, 1], [1, 1]], "K": [[1, 0.5], [0.2, 1], [-0.5, 0.3]], "V": [[1, 2], [0, -1], [0.5, 0.5]], "T": [[1, 0], [0, 1], [0.5, 0.5]]}"# },
    Example { id: "rnn", title: "RNN over three steps", about: "The same matrices at every step: their gradients are sums over time.",
        expression: "h1 = tanh(W @ h0 + U*x1); h2 = tanh(W @ h1 + U*x2); h3 = tanh(W @ h2 + U*x3); L = sum(h3^2)",
        values: r#"{"W": [[0.6, -0.4], [0.3, 0.8]], "h0": [0, 0.1], "U": [1, -0.5], "x1": 0.5, "x2": -1, "x3": 0.25}"# },
    Example { id: "checkpointed", title: "Checkpointed chain", about: "Eight layers in a row: what is kept, or computed again, is the subject of the memory view.",
        expression: "a = tanh(w*x); b = tanh(w*a); c = tanh(w*b); d = tanh(w*c); f = tanh(w*d); g = tanh(w*f); h = tanh(w*g); L = tanh(w*h)",
        values: r#"{"w": 1.5, "x": 0.5}"# },
    Example { id: "reuse", title: "A value used twice", about: "Where a value flows to two places, its gradients add up.",
        expression: "s = x^2; L = s * (s + x)", values: r#"{"x": 3}"# },
    Example { id: "kink", title: "A kink", about: "relu at 0 has no derivative; a convention gives it one. Move x to either side.",
        expression: "r = relu(x); L = r + 0.5*x", values: r#"{"x": 0}"# },
];

/// The body of the memory view that the page begins with.
pub fn memory_default() -> Value {
    json!({ "layers": 16, "width": 64, "batch": 32, "segment": 4, "budget": 65536 })
}

/// The body of the cost view that the page begins with.
pub fn cost_default() -> Value {
    json!({ "points": cost::DEFAULT })
}

/// The values of an example.
pub fn values_of(example: &Example) -> Map<String, Value> {
    serde_json::from_str(example.values).unwrap_or_default()
}

/// `GET /api/start`.
pub fn answer(explorer: &Explorer, written: bool) -> Value {
    let example = |e: &Example| {
        let mut shown = json!({
            "id": e.id, "title": e.title, "about": e.about, "expression": e.expression,
            "values": values_of(e),
        });
        if e.id == "checkpointed" {
            shown["memory"] = memory_default();
        }
        shown
    };
    let opened = match &explorer.subject {
        Subject::Expression { text, values } => {
            json!({ "kind": "expression", "title": text, "expression": text, "values": values })
        }
        Subject::Recording(opened) => json!({
            "kind": "recording", "title": opened.title, "nodes": opened.nodes(),
            "bytes": opened.bytes, "program": opened.has_program(),
        }),
        Subject::Run(folder) => {
            let name = folder.file_name().map(|name| name.to_string_lossy().to_string());
            json!({ "kind": "run", "title": name.unwrap_or_else(|| "run".into()) })
        }
    };
    versioned(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "written": written,
        "opened": opened,
        "examples": EXAMPLES.iter().map(example).collect::<Vec<_>>(),
        "presets": presets::list(),
        "functions": tape::function_names(),
        "defaults": {
            "cost": cost_default(), "memory": memory_default(), "models": explorer.models.0,
        },
        "limits": {
            "body": BODY, "characters": limits::CHARACTERS, "elements": limits::ELEMENTS,
            "steps": limits::STEPS, "points": cost::POINTS, "n": cost::LARGEST,
            "m": cost::LARGEST, "layers": memory::LAYERS, "width": memory::WIDTH,
            "batch": memory::BATCH,
        },
    }))
}
