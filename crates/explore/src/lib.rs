//! The tape explorer: what a gradient is made of, shown.
//!
//! Everything a page shows is an answer in JSON, and `SCHEMA.md` beside this crate is the list of
//! them. The answers come from the engine: an expression is run on the library's own tape
//! (`sweep.rs`), a recording was written by it, costs and memory are measured, programs are what
//! the compiler made. The page formats and draws; it computes no derivative.
//!
//! ```text
//!  expression ─┐
//!  recording  ─┼─► Explorer ─► answers ─┬─► server  (GET /, POST /api/…; 127.0.0.1)
//!  run folder ─┘                        └─► page    (one file with the answers in it)
//! ```
#![forbid(unsafe_code)]

pub mod answer;
pub mod assets;
pub mod count;
mod error;
mod explorer;
pub mod expression;
pub mod number;
mod page;
pub mod server;
pub mod sweep;

#[cfg(test)]
#[path = "../../cli/src/random_text.rs"]
mod random_text;

pub use error::{Answer, ExplorerError, ExplorerErrorKind};
pub use explorer::{CompileModel, Explorer, Subject};
pub use page::written;

/// The version of the schema.
pub const SCHEMA: u32 = 1;
