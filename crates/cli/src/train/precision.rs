//! Training in 16 bits: products in `bf16` or `f16`, weights and sums in `f32`, and in `f16` a loss
//! that is scaled.

use super::settings::Settings;
use crate::failure::{CliResult, Failure};
use pullback::{DType, Group, Result, Tensor};
use pullback_nn::Module;
use pullback_nn::optim::Optimizer;
use pullback_nn::precision::{GradScaler, GradScalerOptions, PrecisionReport};
use pullback_nn::train::Trainer;
use std::path::Path;

/// The precision of a run.
pub struct Mixed {
    low: Option<DType>,
    scaler: Option<GradScaler>,
}

impl Mixed {
    /// By the settings. Where gradients are spread over workers, these decide together.
    ///
    /// # Errors
    /// If the scale is none.
    pub fn new(settings: &Settings, spread: Option<&Group>) -> Result<Mixed> {
        let scaling = |initial: f64| {
            GradScaler::new(GradScalerOptions {
                init_scale: initial,
                ..GradScalerOptions::default()
            })
        };
        let scaler = settings.loss_scale.map(scaling).transpose()?;
        let scaler = scaler.map(|scaler| match spread {
            Some(group) => scaler.workers(group),
            None => scaler,
        });
        Ok(Mixed { low: settings.low, scaler })
    }

    /// The loss that backward runs from.
    pub fn scaled(&self, loss: &Tensor) -> Tensor {
        match &self.scaler {
            None => loss.clone(),
            Some(scaler) => scaler.scale(loss),
        }
    }

    /// The optimiser's step, after backward.
    ///
    /// # Errors
    /// Of the step.
    pub fn update(&self, optimizer: &impl Optimizer) -> Result<()> {
        match &self.scaler {
            None => optimizer.step(),
            Some(scaler) => {
                scaler.step(optimizer)?;
                scaler.update()
            }
        }
    }

    /// Sets the precision and the scaler of the training loop.
    pub fn applied<'a, M: Module>(&'a self, trainer: Trainer<'a, M>) -> Trainer<'a, M> {
        let trainer = match self.low {
            Some(low) => trainer.precision(low),
            None => trainer,
        };
        match &self.scaler {
            Some(scaler) => trainer.scaler(scaler),
            None => trainer,
        }
    }
}

/// Writes what the low dtype loses of each gradient, and returns a summary.
///
/// # Errors
/// If the loss cannot be differentiated, or the file not be written.
pub fn report<M: Module>(
    path: &Path,
    model: &M,
    mixed: &Mixed,
    loss: impl Fn(&M) -> Result<Tensor>,
) -> CliResult<String> {
    let low = mixed.low.unwrap_or(DType::BF16);
    let scale = mixed.scaler.as_ref().map_or(Ok(1.0), GradScaler::current)?;
    let report = PrecisionReport::new(model, low, scale, loss)?;
    let text = match path.extension().is_some_and(|e| e == "json") {
        true => report.to_json()?,
        false => report.to_string(),
    };
    std::fs::write(path, text + "\n")
        .map_err(|e| Failure::failed(format!("{} cannot be written: {e}", path.display())))?;
    let suggested = match report.suggested {
        Some(suggested) => format!("it suggests {suggested}"),
        None => "no scale helps, as gradients are not finite with any".to_string(),
    };
    Ok(format!(
        "{} says what {low} loses with a loss scale of {scale}; {suggested}",
        path.display()
    ))
}
