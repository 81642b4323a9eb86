//! What the same run in another program begins with: `crates/bench/peers/torch_gpt2.py` trains
//! PyTorch's GPT-2 from the same weights on the same batches.

use super::settings::Settings;
use crate::failure::{CliResult, Failure};
use crate::models::ModelKind;
use pullback::{DType, Group, Result, Tensor, stack};
use pullback_nn::Module;
use pullback_nn::data::write_safetensors;
use pullback_nn::optim::AdamW;
use pullback_nn::state::save_weights;
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The batches of a run, as they come.
pub struct Reference {
    folder: PathBuf,
    batches: RefCell<Vec<(Tensor, Tensor)>>,
}

/// Refuses what the other program does not do, or would do with other random numbers.
///
/// # Errors
/// If the run is not one of GPT-2 with AdamW in one process, or has dropout.
pub fn check(settings: &Settings, group: &Group) -> CliResult {
    let wrong = match settings {
        _ if group.size() > 1 => "one worker alone",
        Settings { model, .. } if *model != ModelKind::Gpt2 => "--model gpt2",
        Settings { optimizer, .. } if optimizer != "adamw" => "--optimizer adamw",
        Settings { size, .. } if size.dropout > 0.0 => "--dropout 0",
        Settings { low: Some(DType::F16), .. } => "--precision f32, f64 or bf16",
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("--reference: it is written by a run with {wrong}")))
}

/// Makes the folder: before the run has one, which would be in the way of the next try.
///
/// # Errors
/// If it cannot be made.
pub fn make_folder(folder: &Path) -> CliResult {
    std::fs::create_dir_all(folder)
        .map_err(|e| Failure::failed(format!("{} cannot be made: {e}", folder.display())))
}

impl Reference {
    /// Writes the weights as they are now.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn new(folder: &Path, model: &impl Module) -> CliResult<Reference> {
        save_weights(model, folder.join("weights.safetensors"))?;
        Ok(Reference { folder: folder.to_path_buf(), batches: RefCell::new(Vec::new()) })
    }

    /// Keeps the batch of a step, on the host.
    ///
    /// # Errors
    /// Of the device.
    pub fn keep(&self, (x, y): &(Tensor, Tensor)) -> Result<()> {
        let kept = |x: &Tensor| pullback::catch(|| x.to("cpu").cast(DType::I32));
        self.batches.borrow_mut().push((kept(x)?, kept(y)?));
        Ok(())
    }

    /// Writes the batches, and the settings of a run that was to take so many steps.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(self, settings: &Settings, total: u64) -> CliResult {
        let batches = self.batches.into_inner();
        if batches.is_empty() {
            // Interrupted before the first step: that is what the run ends with.
            return Ok(());
        }
        let all = |of: fn(&(Tensor, Tensor)) -> &Tensor| {
            pullback::catch(|| stack(&batches.iter().map(of).collect::<Vec<_>>(), 0))
        };
        let (x, y) = (all(|(x, _)| x)?, all(|(_, y)| y)?);
        let path = self.folder.join("batches.safetensors");
        write_safetensors(path, &[("x", &x), ("y", &y)], &BTreeMap::new())?;
        let Settings { size, low, dtype, .. } = settings;
        let text = json!({
            "heads": size.heads,
            "precision": low.unwrap_or(*dtype).to_string(),
            "lr": settings.lr,
            "weight_decay": settings.weight_decay.unwrap_or(AdamW::default().weight_decay),
            "schedule": settings.schedule,
            "warmup": settings.warmup,
            "total": total,
        });
        let path = self.folder.join("settings.json");
        std::fs::write(&path, format!("{text:#}\n"))
            .map_err(|e| Failure::failed(format!("{} cannot be written: {e}", path.display())))
    }
}
