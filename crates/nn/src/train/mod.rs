//! The training loop and what it reports.
//!
//! [`Trainer`] takes a step function and runs the loop around it, with [`Callback`]s: a
//! [`ProgressBar`], logs ([`CsvLog`], [`JsonLog`], [`LayerLog`], [`TensorBoard`]), and plots of the
//! learning curves ([`plots`]).

mod batches;
mod callback;
mod early_stop;
mod every;
mod interrupt;
mod logs;
mod loop_state;
mod measure;
mod metrics;
mod monitored;
mod outcome;
mod overflows;
mod peak;
pub mod plots;
mod progress;
mod run;
mod scheduled;
mod spread;
mod tensorboard;
mod throughput;
mod trainer;
mod workers;

pub use batches::Batches;
pub use callback::{Callback, LoopControl, TrainState};
pub use early_stop::EarlyStop;
pub use every::Every;
pub use interrupt::InterruptGuard;
pub use logs::{CsvLog, JsonLog, LayerLog, LayerNorms, LayerRow, LogRow, read_layers, read_log};
pub use measure::{Accuracy, Confusion, Mean};
pub use metrics::Metrics;
pub use outcome::{Ended, Outcome};
pub use peak::peak_operations;
pub use progress::ProgressBar;
pub use scheduled::{MonitoredPlateau, Scheduled};
pub use tensorboard::{EventWriter, TensorBoard};
pub use trainer::Trainer;
