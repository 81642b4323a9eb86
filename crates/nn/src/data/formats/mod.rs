//! File formats, one a file.

mod csv;
mod open;

pub use csv::{Csv, Missing, Table};
