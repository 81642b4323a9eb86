//! Training on the embedded handwritten digits.

use super::job::{ExampleCost, TrainJob};
use super::summary;
use crate::failure::CliResult;
use crate::models::{self, BlockCnn, BlockMlp, BlockNetwork, ModelKind};
use crate::output::StandardOutput;
use pullback::{Result, Tensor, no_grad};
use pullback_nn::data::{DataLoader, Digits, TensorDataset, digits};
use pullback_nn::train::{Accuracy, Every, Metrics};
use pullback_nn::{Layer, Module};

/// Trains and prints the accuracy.
///
/// # Errors
/// As [`TrainJob::train`].
pub fn run(job: &TrainJob, out: &mut StandardOutput) -> CliResult {
    let data = digits()?;
    let size = &job.settings.size;
    match job.settings.model {
        ModelKind::Mlp => train(job, &data, BlockMlp::new(size).to_dtype(job.settings.dtype), out),
        _ => {
            let cnn = BlockCnn::new(size).to_dtype(job.settings.dtype);
            let cnn = match job.options.sync_batch_norm {
                Some(true) => cnn.synchronised(job.group),
                _ => cnn,
            };
            train(job, &data, cnn, out)
        }
    }
}

fn train<M: Layer + BlockNetwork>(
    job: &TrainJob,
    data: &Digits,
    model: M,
    out: &mut StandardOutput,
) -> CliResult {
    let settings = job.settings;
    let images = data.train.0.cast(settings.dtype);
    let all_examples = settings.batch_size.min(data.train.1.len());
    let batches = DataLoader::new(TensorDataset::new((images, data.train.1.clone()))?)
        .batch_size(all_examples)
        .drop_last(true)
        .shuffle(settings.seed)
        .workers(job.group);
    let (images, labels) = (data.test.0.cast(settings.dtype), data.test.1.clone());
    let about = format!("{} digits, {} for testing", data.train.1.len(), labels.len());
    job.begin(model.parameter_count(), &about, &batches, out)?;
    let model = &job.spread(model)?;
    let evaluate = |model: &M| -> Result<Metrics> {
        let scores = no_grad(|| model.forward(&images));
        let mut accuracy = Accuracy::new();
        accuracy.add(&scores, &labels);
        let loss = models::loss(&scores, &labels);
        Ok(Metrics::from(loss).with("accuracy", accuracy.value()))
    };
    let scores = |x: &Tensor| model.forward(x);
    let often = (Every::Epochs(1), evaluate);
    let outcome =
        job.train(model, scores, (&batches, all_examples), ExampleCost::default(), often)?;
    let accuracy = outcome.metrics.get("val_accuracy").unwrap_or(f64::NAN);
    let right = (accuracy * labels.len() as f64).round();
    out.heading(&format!(
        "test accuracy {:.2}% ({right} of {} digits)",
        100.0 * accuracy,
        labels.len()
    ))?;
    summary::end(job, &outcome, out)
}
