//! Training on text, and writing some.

use super::folder;
use super::job::{ExampleCost, TrainJob};
use super::sample::{Generation, write};
use super::summary;
use crate::failure::{CliResult, Failure, INTERRUPTED};
use crate::models::{self, BlockGpt, BlockGpt2, BlockNetwork, LstmModel, ModelKind, TextModel};
use crate::output::StandardOutput;
use pullback::{DType, Result, Tensor, no_grad};
use pullback_nn::Module;
use pullback_nn::data::{ByteTokens, CharTokens, DataLoader, TextWindows, Tokens, read_text, text};
use pullback_nn::models::{GptConfig, SamplingOptions};
use pullback_nn::train::{Every, Mean, Metrics};
use std::path::Path;

/// Above this many different characters a text is read as bytes.
const MOST_CHARACTERS: usize = 256;
/// Batches that an evaluation takes at most.
const MOST_BATCHES: usize = 20;

/// Trains on a file, or on the embedded sonnets, and writes a text.
///
/// # Errors
/// If the file or the prompt cannot be used, or as [`TrainJob::train`].
pub fn run(job: &TrainJob, file: Option<&Path>, out: &mut StandardOutput) -> CliResult {
    let text = match file {
        Some(path) => read_text(path)?,
        None => text().to_string(),
    };
    if text.is_empty() {
        let path = file.unwrap_or(Path::new("the text")).display();
        return Err(Failure::failed(format!("{path} is empty: there is no text to train on")));
    }
    let characters = CharTokens::of(&text);
    let tokens: Box<dyn Tokens> = match characters.size() > MOST_CHARACTERS {
        true => Box::new(ByteTokens),
        false => Box::new(characters),
    };
    // Before anything is trained: can the prompt be written?
    if let Err(error) = tokens.encode(job.settings.prompt.as_deref().unwrap_or_default()) {
        return Err(Failure::usage(format!("--prompt: {}", error.message())));
    }
    let kinds = job.settings.vocabulary.unwrap_or(tokens.size());
    if kinds < tokens.size() {
        return Err(Failure::usage(format!(
            "--vocab-size is {kinds}, and the text has {} kinds of tokens: give at least as many",
            tokens.size()
        )));
    }
    let (size, dtype) = (&job.settings.size, job.settings.dtype);
    let (text, tokens) = (&*text, &*tokens);
    match job.settings.model {
        ModelKind::Lstm => {
            train(job, text, tokens, LstmModel::new(kinds, size).to_dtype(dtype), out)
        }
        ModelKind::Gpt2 => {
            let model = BlockGpt2::new(&GptConfig {
                vocabulary: kinds,
                length: size.context,
                width: size.width,
                heads: size.heads,
                layers: size.layers,
                dropout: size.dropout,
            });
            train(job, text, tokens, model.to_dtype(dtype), out)
        }
        _ => train(job, text, tokens, BlockGpt::new(kinds, size).to_dtype(dtype), out),
    }
}

fn train<M: TextModel + BlockNetwork>(
    job: &TrainJob,
    text: &str,
    tokens: &dyn Tokens,
    model: M,
    out: &mut StandardOutput,
) -> CliResult {
    let settings = job.settings;
    let context = settings.size.context;
    let all = tokens.encode(text)?;
    if all.len() <= context {
        return Err(Failure::failed(format!(
            "the text has {} tokens, which is less than a window of --context {context} and the token that follows: give more text or a smaller --context",
            all.len()
        )));
    }
    // The last tenth is for testing, if it has a window.
    let kept = all.len() - all.len() / 10;
    let (learnt, tested) = match all.len() - kept > context {
        true => (&all[..kept], &all[kept..]),
        false => (&all[..], &all[..]),
    };
    let windows = TextWindows::new(learnt.to_vec(), context)?;
    let batch = settings.batch_size.min(pullback_nn::data::Dataset::len(&windows));
    let batches = DataLoader::new(windows)
        .batch_size(batch)
        .drop_last(true)
        .shuffle(settings.seed)
        .workers(job.group);
    let test = DataLoader::new(TextWindows::new(tested.to_vec(), context)?.stride(context))
        .batch_size(batch);
    let test: Vec<(Tensor, Tensor)> = test.iter().take(MOST_BATCHES).collect::<Result<_>>()?;
    let known = match settings.vocabulary {
        Some(known) if known != tokens.size() => format!(" (in a vocabulary of {known})"),
        _ => String::new(),
    };
    let about = format!(
        "{} tokens of {} kinds{known}, {} for testing",
        all.len(),
        tokens.size(),
        all.len() - kept
    );
    job.begin(model.parameter_count(), &about, &batches, out)?;
    let model = &job.spread(model)?;
    let evaluate = |model: &M| -> Result<Metrics> {
        let mut mean = Mean::new();
        for (x, y) in &test {
            let loss = no_grad(|| models::loss(&model.scores(x), y));
            mean.add(loss.cast(DType::F64).item::<f64>(), y.len() as f64);
        }
        Ok(Metrics::from(mean.value()))
    };
    let steps = match settings.until {
        super::settings::RunLength::Steps(n) => Every::Steps((n / 5).max(1)),
        super::settings::RunLength::Epochs(_) => Every::Epochs(1),
    };
    let example = ExampleCost {
        tokens: Some(context as u64),
        operations: model.operations_per_token().map(|n| n * context as f64),
    };
    let scores = |x: &Tensor| model.scores(x);
    let outcome = job.train(model, scores, (&batches, batch), example, (steps, evaluate))?;
    let loss = outcome.metrics.get("val_loss").unwrap_or(f64::NAN);
    out.heading(&format!(
        "test loss {loss:.4}, {:.2} bits a token",
        loss / std::f64::consts::LN_2
    ))?;
    // Workers that have a part of the network each write together.
    if settings.sample > 0 && (job.is_writer() || job.sharding.is_some()) {
        let prompt = settings.prompt.clone().unwrap_or_else(|| "\n".into());
        let prompt = if tokens.encode(&prompt).is_ok() { prompt } else { String::new() };
        let written = write(
            model,
            tokens,
            &Generation {
                prompt: &prompt,
                length: settings.sample,
                sampling: SamplingOptions {
                    temperature: settings.temperature,
                    top_k: settings.top_k,
                    seed: settings.seed,
                },
                context,
            },
            || job.is_to_stop(),
        )?;
        if job.is_to_stop()? {
            let again = job.folder.display();
            let message = format!(
                "interrupted while it wrote; the training is done: `pullback train --resume {again}` writes again"
            );
            return Err(Failure { code: INTERRUPTED, message });
        }
        let shown =
            format!("{}{written}", if settings.prompt.is_some() { prompt.as_str() } else { "" });
        if job.is_writer() {
            let path = job.folder.join(folder::SAMPLE);
            std::fs::write(&path, &shown).map_err(|e| {
                Failure::failed(format!("{} cannot be written: {e}", path.display()))
            })?;
        }
        out.line("")?;
        out.line(&shown)?;
        out.line("")?;
    }
    summary::end(job, &outcome, out)
}
