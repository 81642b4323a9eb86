//! The options of a run: as flags, or under the same names in a TOML file.

use crate::failure::{CliResult, Failure};
use crate::models::ModelKind;
use clap::{Args, Command, ValueEnum};
use pullback_explore::expression::{did_you_mean, near};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Other names of options, as flags and in files: earlier ones, and what other programs call them.
const ALIASES: [(&str, &str); 10] = [
    ("rate", "lr"),
    ("learning_rate", "lr"),
    ("warm_up", "warmup"),
    ("warmup_steps", "warmup"),
    ("batch", "batch_size"),
    ("layers", "num_layers"),
    ("heads", "num_heads"),
    ("hidden_size", "width"),
    ("lr_scheduler", "schedule"),
    ("context_length", "context"),
];

/// Options of a run. `None` is an option that was not given.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// `digits` or `text`; on the command line it is the first word
    #[arg(skip)]
    pub task: Option<String>,
    /// The file to learn from; the embedded sonnets if it is not there
    #[arg(skip)]
    pub text: Option<PathBuf>,
    /// The network: mlp or cnn for digits, gpt, gpt2 or lstm for text
    #[arg(long, value_enum)]
    pub model: Option<ModelKind>,
    /// How large the network is (of gpt2: 124M, 355M or 774M); --width and the others change parts
    /// of it
    #[arg(long, value_enum)]
    pub size: Option<Preset>,
    /// Features of hidden layers (of a cnn, channels of the first)
    #[arg(long, value_name = "N", aliases = ["hidden-size"])]
    pub width: Option<usize>,
    /// Hidden layers, or blocks
    #[arg(long, value_name = "N", aliases = ["layers"])]
    pub num_layers: Option<usize>,
    /// Heads of attention
    #[arg(long, value_name = "N", aliases = ["heads"])]
    pub num_heads: Option<usize>,
    /// The context length in characters
    #[arg(long, value_name = "N", aliases = ["context-length"])]
    pub context: Option<usize>,
    /// The size of the vocabulary, which may be more than the tokens that occur: 50304 of gpt2, of
    /// others those of the text. Tokens are the characters of the text, or bytes if there are more
    /// than 256
    #[arg(long, value_name = "N")]
    pub vocab_size: Option<usize>,
    /// The dropout probability
    #[arg(long, value_name = "P")]
    pub dropout: Option<f64>,
    /// How many steps to take
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// The number of epochs
    #[arg(long, value_name = "N")]
    pub epochs: Option<u64>,
    /// The number of examples in a batch
    #[arg(long, value_name = "N", aliases = ["batch"])]
    pub batch_size: Option<usize>,
    /// The optimiser: adamw, adam, sgd, lion, muon and others
    #[arg(long, value_name = "NAME")]
    pub optimizer: Option<String>,
    /// The learning rate
    #[arg(long, value_name = "R", aliases = ["rate", "learning-rate"])]
    pub lr: Option<f64>,
    /// The weight decay
    #[arg(long, value_name = "D")]
    pub weight_decay: Option<f64>,
    /// How the learning rate changes
    #[arg(long, value_enum, aliases = ["lr-scheduler"])]
    pub schedule: Option<ScheduleKind>,
    /// The number of warm-up steps of the learning rate
    #[arg(long, value_name = "N", aliases = ["warm-up", "warmup-steps"])]
    pub warmup: Option<u64>,
    /// The type of the numbers; with bf16 and f16 weights stay in f32. f32 unless it is said, and
    /// bf16 for gpt2 on a GPU
    #[arg(long, value_enum)]
    pub precision: Option<Precision>,
    /// The initial loss scale with --precision f16
    #[arg(long, value_name = "S")]
    pub loss_scale: Option<f64>,
    /// Writes what bf16 or f16 lost of the gradients of each layer in the last step (FILE.json, or
    /// text)
    #[arg(long, value_name = "FILE")]
    pub precision_report: Option<PathBuf>,
    /// The seed of random numbers
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// How many threads compute
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// How many processes train together, each on its part of every batch
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Cuts every batch into so many parts, a power of two: the same weights, to the bit, with 1
    /// worker and with any smaller power of two
    #[arg(long, value_name = "N")]
    pub logical_workers: Option<usize>,
    /// Spreads the optimiser's state over the workers (1), the gradients too (2), or the parameters
    /// as well (3)
    #[arg(long, value_name = "STAGE")]
    pub shard: Option<usize>,
    /// Normalises the batches of all workers as one batch, in a network with batch normalisation
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub sync_batch_norm: Option<bool>,
    /// The device: cpu, cuda, cuda:1, … (see `pullback devices`); with several workers, cuda is a
    /// GPU for each
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Compiles the step (--no-jit does not)
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", overrides_with = "no_jit")]
    pub jit: Option<bool>,
    /// Reports the model FLOP utilisation of gpt2, of what a large product reaches on the device at
    /// the start; on a GPU unless it is said
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub mfu: Option<bool>,
    /// How many characters to generate after training on text
    #[arg(long, value_name = "N")]
    pub sample: Option<usize>,
    /// The start of the generated text
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// The sampling temperature: 0 always takes the most likely character
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,
    /// Samples only among the K most likely characters
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
}

/// A size by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Learns in seconds (but gpt2, which is GPT-2's small)
    Small,
    /// Twice as wide, a layer more (gpt2: 24 layers of width 1024)
    Medium,
    /// Four times as wide, three layers more (gpt2: 36 layers of width 1280)
    Large,
}

/// How a learning rate changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleKind {
    /// Not at all
    Constant,
    /// Down to 0 along a cosine
    Cosine,
    /// Down to 0 along a line
    Linear,
    /// Up and down again, along cosines
    OneCycle,
}

/// The type of the numbers of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single
    F32,
    /// Double
    F64,
    /// Products in 16 bits with the range of single, the rest in single
    Bf16,
    /// Products in 16 bits with more digits and less range, the rest in single; the loss is scaled
    F16,
}

impl Options {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// If it cannot be read, is no TOML, or has an unknown key or an invalid value: naming the line
    /// or the key, and one that is near.
    pub fn read(path: &Path) -> CliResult<Options> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::failed(format!("{shown} cannot be read: {e}")))?;
        let given: toml::Table = toml::from_str(&text)
            .map_err(|e| Failure::usage(format!("{shown} is not TOML: {}", located(&e, &text))))?;
        let mut table = toml::Table::new();
        for (key, value) in given {
            // A key may be written as its flag is.
            let name = key.replace('-', "_");
            let alias = ALIASES.iter().find(|(other, _)| *other == name);
            let name = alias.map_or(name, |(_, now)| (*now).to_string());
            if table.insert(name.clone(), value).is_some() {
                let message = format!("{shown}: `{key}` says a second time what `{name}` is");
                return Err(Failure::usage(message));
            }
        }
        let known = Options::keys();
        if let Some(key) = table.keys().find(|key| !known.contains(key)) {
            let near = did_you_mean(&near(key, known.iter().map(String::as_str)));
            return Err(Failure::usage(format!("{shown}: there is no option `{key}`{near}")));
        }
        for (key, value) in &table {
            let one: toml::Table = std::iter::once((key.clone(), value.clone())).collect();
            if let Err(error) = one.try_into::<Options>() {
                let what = in_words(error.message().trim_end());
                return Err(Failure::usage(format!("{shown}: `{key}` is {value}: {what}")));
            }
        }
        table
            .try_into()
            .map_err(|e: toml::de::Error| Failure::usage(format!("{shown}: {}", e.message())))
    }

    /// The names of all options.
    pub fn keys() -> Vec<String> {
        let flags = Options::augment_args(Command::new("train"));
        let flags = flags.get_arguments().map(|flag| flag.get_id().to_string());
        ["task", "text"].map(String::from).into_iter().chain(flags).collect()
    }

    /// These options, and the others where these are not given.
    #[must_use]
    pub fn or(self, other: Options) -> Options {
        Options {
            task: self.task.or(other.task),
            text: self.text.or(other.text),
            model: self.model.or(other.model),
            size: self.size.or(other.size),
            width: self.width.or(other.width),
            num_layers: self.num_layers.or(other.num_layers),
            num_heads: self.num_heads.or(other.num_heads),
            context: self.context.or(other.context),
            vocab_size: self.vocab_size.or(other.vocab_size),
            dropout: self.dropout.or(other.dropout),
            // Steps and epochs exclude each other.
            epochs: self.epochs.or(other.epochs.filter(|_| self.steps.is_none())),
            steps: self.steps.or(other.steps.filter(|_| self.epochs.is_none())),
            batch_size: self.batch_size.or(other.batch_size),
            optimizer: self.optimizer.or(other.optimizer),
            lr: self.lr.or(other.lr),
            weight_decay: self.weight_decay.or(other.weight_decay),
            schedule: self.schedule.or(other.schedule),
            warmup: self.warmup.or(other.warmup),
            precision: self.precision.or(other.precision),
            loss_scale: self.loss_scale.or(other.loss_scale),
            precision_report: self.precision_report.or(other.precision_report),
            seed: self.seed.or(other.seed),
            threads: self.threads.or(other.threads),
            workers: self.workers.or(other.workers),
            logical_workers: self.logical_workers.or(other.logical_workers),
            shard: self.shard.or(other.shard),
            sync_batch_norm: self.sync_batch_norm.or(other.sync_batch_norm),
            device: self.device.or(other.device),
            jit: self.jit.or(other.jit),
            mfu: self.mfu.or(other.mfu),
            sample: self.sample.or(other.sample),
            prompt: self.prompt.or(other.prompt),
            temperature: self.temperature.or(other.temperature),
            top_k: self.top_k.or(other.top_k),
        }
    }

    /// The first option that is given here and differs there, of those that a resumed run cannot
    /// change.
    pub fn contradiction(&self, other: &Options) -> Option<String> {
        const FREE: [&str; 11] = [
            "steps",
            "epochs",
            "threads",
            "workers",
            "shard",
            "precision_report",
            "mfu",
            "sample",
            "prompt",
            "temperature",
            "top_k",
        ];
        let table = |options: &Options| toml::Table::try_from(options).unwrap_or_default();
        let (mine, theirs) = (table(self), table(other));
        let differs = |(key, value): &(&String, &toml::Value)| {
            !FREE.contains(&key.as_str()) && theirs.get(*key) != Some(*value)
        };
        mine.iter().find(differs).map(|(key, _)| key.clone())
    }
}

/// A message about a value, without the names of Rust's types.
fn in_words(message: &str) -> String {
    let Some((start, kind)) = message.rsplit_once("expected ") else { return message.into() };
    let wanted = match kind {
        "u64" | "usize" => "a non-negative integer",
        "f64" => "a number",
        other => other,
    };
    format!("{start}expected {wanted}")
}

/// What is wrong with a TOML text, and in which line.
fn located(error: &toml::de::Error, text: &str) -> String {
    let line =
        error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    match line {
        Some(line) => format!("line {line}: {}", error.message().trim_end()),
        None => error.message().trim_end().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other names of options are understood in files and as flags, and each is a flag's alias.
    #[test]
    fn other_names_of_options() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let text = "rate = 0.5\nwarm-up = 3\nbatch = 8\nlayers = 2\nheads = 4\n";
        std::fs::write(&path, text).unwrap();
        let read = Options::read(&path).unwrap();
        assert_eq!((read.lr, read.warmup, read.batch_size), (Some(0.5), Some(3), Some(8)));
        assert_eq!((read.num_layers, read.num_heads), (Some(2), Some(4)));
        for twice in ["rate = 0.5\nlr = 0.25\n", "learning-rate = 1\nlearning_rate = 2\n"] {
            std::fs::write(&path, twice).unwrap();
            let refused = Options::read(&path).unwrap_err().message;
            assert!(refused.contains("says a second time what `lr` is"), "{refused}");
        }

        let flags = Options::augment_args(Command::new("train"));
        for (alias, name) in ALIASES {
            let flag = flags.get_arguments().find(|flag| flag.get_id() == name).unwrap();
            let known = flag.get_all_aliases().unwrap_or_default();
            assert!(known.contains(&alias.replace('_', "-").as_str()), "--{alias}: {known:?}");
        }
        let many = flags.get_arguments().flat_map(|flag| flag.get_all_aliases()).flatten().count();
        assert_eq!(many, ALIASES.len(), "an alias of a flag is not in the table");
        for alias in ["--lr", "--rate", "--learning-rate"] {
            let given = flags.clone().get_matches_from(["train", alias, "0.5"]);
            assert_eq!(given.get_one::<f64>("lr"), Some(&0.5), "{alias}");
        }
    }

    /// Any file is options or an error.
    #[test]
    fn no_file_is_too_strange() {
        #[rustfmt::skip]
        const PIECES: [&str; 30] = [
            "steps", "batch_size", "lr", "optimizer", "model", "seed", "width", "=", " = ", "\n", "[", "]", "[[", "{", "}", ",", "\"", "'''", "\"\"\"", "adam",
            "true", "-1", "1e999", "99999999999999999999", "0x", "nan", "é", "#", "2020-01-01", "\\u00",
        ];
        #[rustfmt::skip]
        const VALUES: [&str; 10] =
            ["-1", "0", "99999999999999999999", "1e999", "nan", "\"\"", "[]", "{}", "true", "18446744073709551615"];
        let folder = std::env::temp_dir().join(format!("pullback-options-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("config.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let _ = Options::read(&path);
        };
        crate::random_text::texts(&PIECES, 14, 5_000).iter().for_each(|text| read(text));
        for key in Options::keys() {
            VALUES.iter().for_each(|value| read(&format!("{key} = {value}\n")));
        }
        // As deep as a text may be.
        for piece in ["[", "{a="] {
            read(&format!("steps = {}", piece.repeat(20_000)));
            read(&piece.repeat(20_000));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
