//! The conversation: a message in, an answer out, whatever the message.
//!
//! What is not a message of the protocol is answered too, with `success: false` and a sentence, under its `id` if it has one and `null`
//! otherwise: an eval waits for a line, and a tool that is silent or gone tells it nothing.

use crate::evals;
use crate::job::Runs;
use serde_json::{Map, Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The answer to a line; none to an empty one.
pub(crate) fn answer(line: &[u8], number: usize) -> Option<Value> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let refuse = |message: String| json!({ "id": null, "success": false, "error": message });
    Some(match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(message)) => reply(&message),
        Ok(other) => refuse(format!("line {number} is {}, not an object", kind_of(&other))),
        Err(error) => refuse(format!("line {number} is no JSON: {error}")),
    })
}

fn reply(message: &Map<String, Value>) -> Value {
    let mut answer = Map::new();
    answer.insert("id".into(), message.get("id").cloned().unwrap_or(Value::Null));
    let done = match text(message, "kind") {
        Ok("start") => {
            answer.insert("tool".into(), json!("pullback"));
            let config = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "threads": pullback::threads(),
            });
            answer.insert("config".into(), config);
            return Value::Object(answer);
        }
        Ok("define") => define(message).map(|()| Map::new()),
        Ok("evaluate") => evaluate(message),
        // Any other kind is only acknowledged.
        Ok(_) => return Value::Object(answer),
        Err(error) => Err(error),
    };
    answer.insert("success".into(), json!(done.is_ok()));
    match done {
        Ok(fields) => answer.extend(fields),
        Err(error) => {
            answer.insert("error".into(), json!(error));
        }
    }
    Value::Object(answer)
}

fn define(message: &Map<String, Value>) -> Result<(), String> {
    evals::module(text(message, "module")?).map(|_| ())
}

fn evaluate(message: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    let (module, name) = (text(message, "module")?, text(message, "function")?);
    let function = evals::module(module)?.function(name)?;
    let input = message.get("input").ok_or("the message has no \"input\"")?;
    let run = || {
        let runs = Runs::of(input)?;
        function(input)?.measure(runs)
    };
    let (output, timings) = guarded(run).map_err(|error| format!("{module}::{name}: {error}"))?;
    let fields = [("output", output), ("timings", timings)];
    Ok(fields.map(|(key, value)| (key.to_string(), value)).into_iter().collect())
}

/// Runs what may fail with an error of a tensor operation, or with a panic that nobody expected: both become sentences.
fn guarded<R>(run: impl FnOnce() -> Result<R, String>) -> Result<R, String> {
    match catch_unwind(AssertUnwindSafe(|| pullback::catch(run))) {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(text), _) => text.to_string(),
            (None, Some(text)) => text.clone(),
            (None, None) => "the function panicked".to_string(),
        }),
    }
}

/// Panics are answered, and not printed as well.
pub(crate) fn quiet() {
    std::panic::set_hook(Box::new(|_| {}));
}

fn text<'a>(message: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    match message.get(key) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!("{key:?} is {}, not a string", kind_of(other))),
        None => Err(format!("the message has no {key:?}")),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
