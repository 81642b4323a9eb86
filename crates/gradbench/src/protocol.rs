//! The protocol: every message, valid or not, gets one answer.
//!
//! What is not a message of the protocol is answered too, with `success: false` and an error
//! message, under its `id` if it has one and `null` otherwise: an eval waits for a line.

use crate::evals;
use crate::job::{Measured, Runs};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An answer, as JSON has it.
#[derive(Serialize, Default)]
pub(crate) struct Answer {
    id: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    success: Option<bool>,
    #[serde(flatten)]
    measured: Option<Measured>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The answer to a line; none to an empty one.
pub(crate) fn answer(line: &[u8], number: usize) -> Option<Answer> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let message = match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(message)) => Ok(message),
        Ok(other) => Err(format!("line {number} is {}, not an object", kind_of(&other))),
        Err(error) => Err(format!("line {number} is not JSON: {error}")),
    };
    Some(match message {
        Ok(message) => reply(&message),
        Err(error) => Answer { success: Some(false), error: Some(error), ..Answer::default() },
    })
}

fn reply(message: &Map<String, Value>) -> Answer {
    let id = message.get("id").cloned().unwrap_or(Value::Null);
    let answer = Answer { id, ..Answer::default() };
    let done = match text(message, "kind") {
        Ok("start") => {
            let version = env!("CARGO_PKG_VERSION");
            let config = json!({ "version": version, "threads": pullback::threads() });
            return Answer { tool: Some("pullback"), config: Some(config), ..answer };
        }
        Ok("define") => define(message).map(|()| None),
        Ok("evaluate") => evaluate(message).map(Some),
        // Any other kind is only acknowledged.
        Ok(_) => return answer,
        Err(error) => Err(error),
    };
    match done {
        Ok(measured) => Answer { success: Some(true), measured, ..answer },
        Err(error) => Answer { success: Some(false), error: Some(error), ..answer },
    }
}

fn define(message: &Map<String, Value>) -> Result<(), String> {
    evals::module(text(message, "module")?).map(|_| ())
}

fn evaluate(message: &Map<String, Value>) -> Result<Measured, String> {
    let (module, name) = (text(message, "module")?, text(message, "function")?);
    let function = evals::module(module)?.function(name)?;
    let input = message.get("input").ok_or("the message has no \"input\"")?;
    let run = || {
        let runs = Runs::of(input)?;
        function(input)?.measure(&runs)
    };
    guarded(run).map_err(|error| format!("{module}::{name}: {error}"))
}

/// Runs what may fail with an error of a tensor operation, or with a panic: both become error
/// messages.
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
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
