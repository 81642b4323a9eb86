//! What a run says before and after.

use super::folder;
use super::job::Job;
use crate::failure::Outcome;
use crate::output::Output;

/// Says what is trained on what.
///
/// # Errors
/// If nobody reads any more.
pub fn begin(job: &Job, parameters: usize, data: &str, out: &mut Output) -> Outcome {
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

/// Says how it went, and where things are.
///
/// # Errors
/// If nobody reads any more.
pub fn end(job: &Job, outcome: &pullback_nn::train::Outcome, out: &mut Output) -> Outcome {
    for note in &outcome.notes {
        out.line(format!("note: {note}"))?;
    }
    out.line(format!("{} steps in {:.1} s ({})", outcome.step, outcome.seconds, outcome.ended))?;
    let rows = [
        (
            folder::CHECKPOINTS,
            "weights and all that resuming needs; model.safetensors loads in PyTorch",
        ),
        (folder::CSV, "every step"),
        (folder::JSONL, "the same as JSON lines"),
        (folder::TENSORBOARD, "the same for TensorBoard, with histograms"),
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
