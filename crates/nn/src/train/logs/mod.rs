//! Logs as files: a line for each step.
//!
//! A log that is opened again, because a run is resumed, loses what comes after the step that the
//! run goes on from, so that no step is in it twice; and a last line that a killed process did not
//! finish.

mod csv;
mod jsonl;
mod row;

pub use csv::CsvLog;
pub use jsonl::JsonLog;
pub use row::{Row, read_log};
