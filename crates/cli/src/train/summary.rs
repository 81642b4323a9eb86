//! What a run prints before and after.

use super::folder;
use super::job::TrainJob;
use crate::failure::CliResult;
use crate::output::StandardOutput;

/// Prints what is trained on what.
///
/// # Errors
/// If the output is closed.
pub fn begin(job: &TrainJob, parameters: usize, data: &str, out: &mut StandardOutput) -> CliResult {
    let settings = job.settings;
    let how = if settings.jit { "compiled" } else { "op by op" };
    out.line(format!(
        "{} with {parameters} parameters in {}{}, {} at {}, {how}, on {} threads",
        settings.model.name(),
        settings.dtype,
        settings.low.map_or(String::new(), |low| format!(", products in {low}")),
        settings.optimizer,
        settings.lr,
        pullback::threads()
    ))?;
    out.line(format!("data: {data}; run: {}", job.folder.display()))?;
    Ok(out.flush()?)
}

/// Prints the result, and where the files are.
///
/// # Errors
/// If the output is closed.
pub fn end(
    job: &TrainJob,
    outcome: &pullback_nn::train::Outcome,
    out: &mut StandardOutput,
) -> CliResult {
    for note in &outcome.notes {
        out.line(format!("note: {note}"))?;
    }
    out.line(format!("{} steps in {:.1} s ({})", outcome.step, outcome.seconds, outcome.ended))?;
    let rate = |name: &str| outcome.throughput.get(name);
    if let Some(tokens) = rate("tokens_per_second") {
        let used = rate("mfu")
            .map_or(String::new(), |mfu| format!(", {:.1}% model FLOP utilisation", 100.0 * mfu));
        out.line(format!("{tokens:.0} tokens a second{used}"))?;
    }
    let rows = [
        (
            folder::CHECKPOINTS,
            match job.options.shard {
                None => "weights and everything for resuming; model.safetensors loads in PyTorch",
                Some(_) => "weights and everything for resuming, a part by each worker",
            },
        ),
        (folder::CSV, "every step"),
        (folder::JSONL, "the same as JSON lines"),
        (folder::LAYERS, "gradients, weights and updates by layer: `pullback explore` shows them"),
        (
            folder::TENSORBOARD,
            match job.sharding {
                None => "the same for TensorBoard, with histograms",
                Some(_) => "the same for TensorBoard",
            },
        ),
        (folder::PLOTS, "learning curves as SVG and PNG"),
        (folder::SAMPLE, "the text above"),
        (folder::CONFIG, "all options: `pullback train FILE.toml` does it again"),
    ];
    out.line(format!("in {}:", job.folder.display()))?;
    for (name, what) in rows.into_iter().filter(|(name, _)| job.folder.join(name).exists()) {
        out.line(format!("  {name:<12} {what}"))?;
    }
    Ok(())
}
