//! The training loop and what it reports.
//!
//! [`Trainer`] takes a step function and does what goes on around it; [`Callback`]s look on: a
//! [`ProgressBar`], logs ([`CsvLog`], [`JsonLog`], [`TensorBoard`]), and plots of the learning
//! curves ([`plots`]).

mod batches;
mod callback;
mod early_stop;
mod every;
mod expected;
mod logs;
mod measure;
mod metrics;
mod outcome;
mod overflows;
pub mod plots;
mod progress;
mod run;
mod scheduled;
mod tensorboard;
mod throughput;
mod trainer;

pub use batches::Batches;
pub use callback::{Callback, Flow, Now};
pub use early_stop::EarlyStop;
pub use every::Every;
pub use logs::{CsvLog, JsonLog, Row, read_log};
pub use measure::{Accuracy, Confusion, Mean};
pub use metrics::Metrics;
pub use outcome::{Ended, Outcome};
pub use progress::ProgressBar;
pub use scheduled::{Scheduled, Watching};
pub use tensorboard::{EventWriter, TensorBoard};
pub use trainer::Trainer;
