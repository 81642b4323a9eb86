//! `pullback train`: trains a network out of the box.
//!
//! `options.rs` has the options, `settings.rs` their values, `folder.rs` the folder of a run,
//! `job.rs` the loop that all tasks share, and `digits.rs` and `text.rs` the tasks; `sample.rs`
//! writes text with a trained network.

mod digits;
mod folder;
mod job;
mod options;
mod precision;
mod reference;
mod sample;
mod schedule;
mod settings;
mod summary;
mod text;
mod workers;

use crate::failure::{CliResult, Failure};
use crate::output::StandardOutput;
use clap::Args;
use job::TrainJob;
use options::Options;
use pullback_explore::expression::{did_you_mean, near};
use pullback_nn::parallel::FullSharding;
use pullback_nn::train::InterruptGuard;
use std::path::{Path, PathBuf};

/// What `pullback train` takes.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)] // so that they are refused with their name
#[command(after_long_help = "Examples:
  pullback train                        a small convolutional network on handwritten digits: above 97% in seconds
  pullback train digits --model mlp --epochs 20 --optimizer sgd --lr 0.1
  pullback train text                   a small GPT on some sonnets, and then verses of its own
  pullback train book.txt --steps 2000 --size medium --prompt 'It was ' --sample 500
  pullback train book.txt --model gpt2 --device cuda
      GPT-2 124M from random weights on the characters of the book, 300 steps in bf16
  pullback train digits --precision f16 --precision-report lost.txt
  pullback train text --memory-report memory.svg
      a picture of what takes memory during a step, by operation
  pullback train --workers 4            four processes, each with a part of every batch
  pullback train --workers 4 --shard 2  each also with a part of the gradients and of the optimiser's state
  pullback train --workers 4 --shard 3  and of the parameters, which are gathered block by block
  pullback train run.toml               options from a file: `model = \"mlp\"`, `epochs = 20`, ...
  pullback train --resume runs/digits-cnn-1
      resumes after Ctrl-C (or kill -9) with the same results; with --epochs or --steps, for longer

A run leaves a folder (runs/NAME-1, or --out): checkpoints, log.csv, log.jsonl, tensorboard, plots, config.toml.
Ctrl-C and SIGTERM save a checkpoint and exit with 130. The same options and seed give the same weights, to the bit.")]
pub struct TrainArgs {
    /// digits, text, a text file, or FILE.toml with options
    target: Option<String>,
    #[command(flatten)]
    options: Options,
    /// Does not compile the step
    #[arg(long)]
    no_jit: bool,
    /// Resumes the run in this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["target", "out", "force"])]
    resume: Option<PathBuf>,
    /// The folder of the run
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Restarts the run in the folder
    #[arg(long)]
    force: bool,
    /// A run of a few seconds, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Writes the first weights, the batches and the options of a run of gpt2 to this folder, for
    /// the same run in PyTorch (crates/bench/peers/torch_gpt2.py)
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    reference: Option<PathBuf>,
    /// Writes where the memory of a step goes to FILE.txt, FILE.json or FILE.svg
    #[arg(long, value_name = "FILE")]
    memory_report: Option<PathBuf>,
}

/// Trains.
///
/// # Errors
/// If the options are invalid, a file cannot be used, training fails, or it is interrupted.
pub fn run(arguments: &TrainArgs, out: &mut StandardOutput) -> CliResult {
    let mut flags = arguments.options.clone();
    if arguments.no_jit {
        flags.jit = Some(false);
    }
    let (said, resumed) = match &arguments.resume {
        Some(folder) => (resumed(flags, folder)?, true),
        None => (requested_options(arguments.target.as_deref(), flags)?, false),
    };
    if let Some(path) = &arguments.memory_report
        && !["txt", "json", "svg"].iter().any(|end| path.extension().is_some_and(|e| e == *end))
    {
        let shown = path.display();
        let message = format!("--memory-report: {shown} ends neither in .txt, .json nor .svg");
        return Err(Failure::usage(message));
    }
    let Some(group) = workers::joined(said.workers, out)? else { return Ok(()) };
    workers::check_parts(said.logical_workers, &group)?;
    workers::set_device(said.device.as_deref(), &group)?;
    let (options, settings) = settings::resolve(said, arguments.quick)?;
    workers::check_shard(&options, &settings.optimizer)?;
    workers::check_sync_batch_norm(&options, settings.model)?;
    if let Some(folder) = &arguments.reference {
        reference::check(&settings, &group)?;
        reference::make_folder(folder)?;
    }
    let task = options.task.clone().unwrap_or_default();
    let name = format!("{task}-{}", settings.model.name());
    // Workers that are started again go on where they were.
    let again = workers::are_restarted(arguments.out.is_some());
    let folder = match (&arguments.resume, &arguments.out) {
        (Some(folder), _) | (None, Some(folder)) => folder.clone(),
        (None, None) => workers::chosen_by_first(&group, || {
            let before = again.then(|| folder::last_used(&name)).flatten();
            before.unwrap_or_else(|| folder::unused(&name))
        })?,
    };
    let resumed = resumed || (again && folder.join(folder::CONFIG).is_file());
    if let Some(threads) = options.threads {
        pullback::set_threads(threads);
    }
    pullback::manual_seed(settings.seed);
    let interrupts = InterruptGuard::new()?;
    let job = TrainJob {
        settings: &settings,
        options: &options,
        folder: &folder,
        resume: resumed,
        force: arguments.force,
        stop: interrupts.flag(),
        memory_report: arguments.memory_report.as_deref(),
        reference: arguments.reference.as_deref(),
        group: &group,
        sharding: (options.shard == Some(3)).then(|| FullSharding::new(&group)),
    };
    match task.as_str() {
        "text" => text::run(&job, options.text.as_deref(), out),
        _ => digits::run(&job, out),
    }
}

/// The options of a new run: of the command line, then of the file it names.
fn requested_options(target: Option<&str>, flags: Options) -> CliResult<Options> {
    let task = |task: &str, text: Option<PathBuf>| Options {
        task: Some(task.into()),
        text,
        ..Options::default()
    };
    let said = match target {
        None | Some("digits") => flags.or(task("digits", None)),
        Some("text") => flags.or(task("text", None)),
        Some(name) if name.ends_with(".toml") => {
            let mut file = Options::read(Path::new(name))?;
            file.text = file.text.map(whole);
            let named = if file.text.is_some() { "text" } else { "digits" };
            flags.or(file).or(task(named, None))
        }
        Some(name) if Path::new(name).is_file() => flags.or(task("text", Some(whole(name.into())))),
        Some(name) => {
            let near = did_you_mean(&near(name, ["digits", "text"].into_iter()));
            return Err(Failure::usage(format!(
                "`{name}` is neither a task nor a file{near} (there are digits, text, text files and TOML files)"
            )));
        }
    };
    match said.task.as_deref() {
        Some("digits" | "text") => Ok(said),
        other => Err(Failure::usage(format!(
            "there is no task `{}`; there are digits and text",
            other.unwrap_or_default()
        ))),
    }
}

/// The path from the root, so that a run can be resumed from any folder.
fn whole(path: PathBuf) -> PathBuf {
    std::fs::canonicalize(&path).unwrap_or(path)
}

/// The options of a resumed run: as they were, except its length and what does not change the
/// numbers.
fn resumed(flags: Options, folder: &Path) -> CliResult<Options> {
    let stored = folder::read_config(folder)?;
    if let Some(key) = flags.contradiction(&stored) {
        let flag = key.replace('_', "-");
        return Err(Failure::usage(format!(
            "--{flag} cannot change when a run is resumed: {} says what it was",
            folder.join(folder::CONFIG).display()
        )));
    }
    Ok(flags.or(stored))
}
