//! Event files for TensorBoard.
//!
//! An event file is a row of records (`record.rs`), each an `Event` message of TensorFlow's
//! protocol buffers, of which few fields are used (`message.rs`): a wall time, a step, and a
//! summary with scalars, histograms (`histogram.rs`) or text.

mod callback;
mod histogram;
mod message;
mod record;
mod writer;

pub use callback::TensorBoard;
pub use writer::EventWriter;
