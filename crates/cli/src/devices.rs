//! `pullback devices`: what this machine has to compute on.

use crate::failure::CliResult;
use crate::output::StandardOutput;
use clap::Args;

/// What `pullback devices` takes.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    pullback devices\n  \
    PULLBACK_CUDA_LIBRARIES=/opt/cuda/lib64 pullback devices")]
pub struct DevicesArgs {}

/// Prints a line for each device, and one for each library of CUDA: where it is, or where it was
/// looked for.
///
/// # Errors
/// If it cannot be written.
pub fn run(_: &DevicesArgs, out: &mut StandardOutput) -> CliResult {
    for line in pullback::backend::device_report() {
        out.line(&line)?;
    }
    Ok(())
}
