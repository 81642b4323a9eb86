//! The answers: one file for each view of `SCHEMA.md`.

mod changes;
pub mod cost;
pub mod memory;
pub mod op;
pub mod presets;
mod primitives;
pub mod program;
pub mod recording;
pub mod run;
pub mod start;
pub mod subject;
pub mod tape;
pub mod value;

use crate::SCHEMA;
use serde_json::Value;

/// An answer with its version in front.
pub fn versioned(mut answer: Value) -> Value {
    if let Value::Object(fields) = &mut answer {
        fields.shift_insert(0, "schema".to_string(), SCHEMA.into());
    }
    answer
}
