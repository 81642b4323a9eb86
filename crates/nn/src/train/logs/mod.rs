//! Logs as files: a line for each step.
//!
//! When a run is resumed, its log is truncated after the step it resumes from, so that no step is
//! in it twice; an incomplete last line is removed.

mod csv;
mod jsonl;
mod layers;
mod row;

pub use csv::CsvLog;
pub use jsonl::JsonLog;
pub use layers::{LayerLog, LayerNorms, LayerRow, read_layers};
pub use row::{LogRow, read_log};
