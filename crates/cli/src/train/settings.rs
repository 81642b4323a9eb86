//! The settings of a run: every option has a valid value.

use super::options::{Options, Precision, Preset, ScheduleKind};
use crate::failure::{CliResult, Failure};
use crate::models::{ModelKind, ModelSize, TRANSFORMERS};
use pullback::{DType, Device, default_device};
use pullback_nn::models::GptConfig;
use pullback_nn::optim;
use pullback_nn::precision::GradScalerOptions;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    pub model: ModelKind,
    pub size: ModelSize,
    /// The size of the vocabulary of a network for text; that of the text if it is not said.
    pub vocabulary: Option<usize>,
    /// How long.
    pub until: RunLength,
    pub batch_size: usize,
    pub optimizer: String,
    pub lr: f64,
    pub weight_decay: Option<f64>,
    pub schedule: ScheduleKind,
    pub warmup: u64,
    /// Of weights and data.
    pub dtype: DType,
    /// Of products, where it is another.
    pub low: Option<DType>,
    /// What the loss is multiplied by at first.
    pub loss_scale: Option<f64>,
    pub seed: u64,
    pub jit: bool,
    /// Whether the model FLOP utilisation is reported.
    pub mfu: bool,
    pub sample: usize,
    pub prompt: Option<String>,
    pub temperature: f64,
    pub top_k: Option<usize>,
}

/// How long a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RunLength {
    Steps(u64),
    Epochs(u64),
}

/// The default settings of a model.
struct Defaults {
    size: ModelSize,
    until: RunLength,
    batch_size: usize,
    lr: f64,
    warmup: u64,
}

/// The weight decay of AdamW for gpt2, if it is not said; others have that of the optimiser.
const GPT2_DECAY: f64 = 0.1;

#[rustfmt::skip]
fn usual(model: ModelKind, quick: bool) -> Defaults {
    let size = |width, layers, heads, context, dropout| ModelSize { width, layers, heads, context, dropout };
    match model {
        ModelKind::Mlp  => Defaults { size: size(128, 2, 1, 1, 0.1),  until: RunLength::Epochs(40), batch_size: 64, lr: 2e-3, warmup: 0 },
        ModelKind::Cnn  => Defaults { size: size(16, 3, 1, 1, 0.2),   until: RunLength::Epochs(15), batch_size: 64, lr: 3e-3, warmup: 0 },
        ModelKind::Gpt  => Defaults { size: size(96, 3, 4, 64, 0.1),  until: RunLength::Steps(600), batch_size: 16, lr: 2e-3, warmup: 30 },
        // Small enough for any machine.
        ModelKind::Gpt2 if quick => Defaults { size: size(64, 2, 2, 64, 0.0), until: RunLength::Steps(20), batch_size: 4, lr: 1e-3, warmup: 2 },
        ModelKind::Gpt2 => Defaults { size: size(768, 12, 12, 1024, 0.0), until: RunLength::Steps(300), batch_size: 16, lr: 3e-4, warmup: 30 },
        ModelKind::Lstm => Defaults { size: size(128, 1, 1, 64, 0.1), until: RunLength::Steps(600), batch_size: 16, lr: 4e-3, warmup: 0 },
    }
}

/// The options with all defaults, and the settings. `quick` makes a run of a few seconds.
///
/// # Errors
/// If a value is invalid, or does not fit another.
pub fn resolve(options: Options, quick: bool) -> CliResult<(Options, Settings)> {
    let text = options.task.as_deref() == Some("text");
    let model = options.model.unwrap_or(if text { ModelKind::Gpt } else { ModelKind::Cnn });
    if model.reads_text() != text {
        let (task, fitting) =
            if text { ("text", "gpt, gpt2 or lstm") } else { ("digits", "mlp or cnn") };
        return Err(Failure::usage(format!(
            "the model `{}` is not for {task}: use {fitting}",
            model.name()
        )));
    }
    fitting(&options, model)?;
    if options.steps.is_some() && options.epochs.is_some() {
        return Err(Failure::usage("both steps and epochs are given: give one"));
    }
    let usual = usual(model, quick);
    let gpt2 = model == ModelKind::Gpt2;
    let size = if gpt2 { sized_gpt2(&options, usual.size) } else { sized(&options, usual.size) };
    if TRANSFORMERS.contains(&model) && !size.width.is_multiple_of(size.heads.max(1)) {
        let message = format!(
            "the width {} cannot be shared by {} heads: make it a multiple",
            size.width, size.heads
        );
        return Err(Failure::usage(message));
    }
    let until = match (options.steps, options.epochs, quick) {
        (Some(steps), ..) => RunLength::Steps(steps),
        (_, Some(epochs), _) => RunLength::Epochs(epochs),
        (None, None, false) => usual.until,
        (None, None, true) if text => RunLength::Steps(20),
        (None, None, true) => RunLength::Epochs(2),
    };
    let optimizer = options.optimizer.clone().unwrap_or_else(|| "adamw".into());
    if !optim::names().any(|name| name == optimizer) {
        let names: Vec<&str> = optim::names().collect();
        return Err(Failure::usage(format!(
            "there is no optimiser `{optimizer}`; there are {}",
            names.join(", ")
        )));
    }
    let on_gpu = default_device() != Device::Cpu;
    let precision = options.precision.unwrap_or(match gpt2 && on_gpu {
        true => Precision::Bf16,
        false => Precision::F32,
    });
    fitting_precision(&options, precision)?;
    let settings = Settings {
        model,
        size,
        vocabulary: options.vocab_size.or(gpt2.then_some(GptConfig::gpt2().vocabulary)),
        until,
        batch_size: options.batch_size.unwrap_or(usual.batch_size),
        lr: match options.lr {
            Some(lr) => lr,
            None => optim::lr_like_adamw(&optimizer, usual.lr).unwrap_or(usual.lr),
        },
        weight_decay: options.weight_decay.or((gpt2 && optimizer == "adamw").then_some(GPT2_DECAY)),
        optimizer,
        schedule: options.schedule.unwrap_or(ScheduleKind::Cosine),
        warmup: options.warmup.unwrap_or(usual.warmup),
        dtype: if precision == Precision::F64 { DType::F64 } else { DType::F32 },
        low: match precision {
            Precision::F32 | Precision::F64 => None,
            Precision::Bf16 => Some(DType::BF16),
            Precision::F16 => Some(DType::F16),
        },
        loss_scale: (precision == Precision::F16)
            .then(|| options.loss_scale.unwrap_or(GradScalerOptions::default().init_scale)),
        seed: options.seed.unwrap_or(0),
        jit: options.jit.unwrap_or(true),
        mfu: options.mfu.unwrap_or(gpt2 && on_gpu),
        sample: options.sample.unwrap_or(if quick { 60 } else { 400 }),
        prompt: options.prompt.clone(),
        temperature: options.temperature.unwrap_or(0.8),
        top_k: options.top_k,
    };
    check(&settings, &options)?;
    Ok((filled(options, &settings, precision), settings))
}

/// Options that would have no effect are refused.
fn fitting(options: &Options, model: ModelKind) -> CliResult {
    let text = model.reads_text();
    let said = [
        ("text", options.text.is_some(), text),
        ("num-heads", options.num_heads.is_some(), TRANSFORMERS.contains(&model)),
        ("context", options.context.is_some(), text),
        ("vocab-size", options.vocab_size.is_some(), text),
        ("mfu", options.mfu.is_some(), model == ModelKind::Gpt2),
        ("sample", options.sample.is_some(), text),
        ("prompt", options.prompt.is_some(), text),
        ("temperature", options.temperature.is_some(), text),
        ("top-k", options.top_k.is_some(), text),
    ];
    match said.into_iter().find(|(_, said, fits)| *said && !fits) {
        Some((name, ..)) => {
            Err(Failure::usage(format!("`{name}` has no effect on the model `{}`", model.name())))
        }
        None => Ok(()),
    }
}

/// Options for 16 bits need 16 bits.
fn fitting_precision(options: &Options, precision: Precision) -> CliResult {
    let low = matches!(precision, Precision::Bf16 | Precision::F16);
    let refused = |name: &str, wanted: &str| {
        Err(Failure::usage(format!("--{name} has no effect without {wanted}")))
    };
    match (options.loss_scale, &options.precision_report) {
        (Some(_), _) if precision != Precision::F16 => refused("loss-scale", "--precision f16"),
        (_, Some(_)) if !low => refused("precision-report", "--precision bf16 or f16"),
        _ => Ok(()),
    }
}

fn sized(options: &Options, usual: ModelSize) -> ModelSize {
    let (factor, more) = match options.size {
        None | Some(Preset::Small) => (1, 0),
        Some(Preset::Medium) => (2, 1),
        Some(Preset::Large) => (4, 3),
    };
    ModelSize {
        width: options.width.unwrap_or(usual.width * factor),
        layers: options.num_layers.unwrap_or(usual.layers + more),
        heads: options.num_heads.unwrap_or(usual.heads),
        context: options.context.unwrap_or(usual.context),
        dropout: options.dropout.unwrap_or(usual.dropout),
    }
}

/// The sizes that GPT-2 was published in.
fn sized_gpt2(options: &Options, usual: ModelSize) -> ModelSize {
    let (width, layers, heads) = match options.size {
        None | Some(Preset::Small) => (usual.width, usual.layers, usual.heads),
        Some(Preset::Medium) => (1024, 24, 16),
        Some(Preset::Large) => (1280, 36, 20),
    };
    sized(&Options { size: None, ..options.clone() }, ModelSize { width, layers, heads, ..usual })
}

fn check(settings: &Settings, options: &Options) -> CliResult {
    let Settings { size, .. } = settings;
    let counts = [
        ("width", size.width),
        ("num-layers", size.layers),
        ("num-heads", size.heads),
        ("context", size.context),
        ("vocab-size", settings.vocabulary.unwrap_or(1)),
        ("batch-size", settings.batch_size),
        ("steps", options.steps.map_or(1, |n| n.min(1 << 20) as usize)),
        ("epochs", options.epochs.map_or(1, |n| n.min(1 << 20) as usize)),
        ("threads", options.threads.unwrap_or(1)),
        ("top-k", settings.top_k.unwrap_or(1)),
    ];
    if let Some((name, _)) = counts.into_iter().find(|(_, n)| *n == 0) {
        return Err(Failure::usage(format!("--{name} is 0, and must be at least 1")));
    }
    // Numbers this large would only fail to allocate later.
    if let Some((name, n)) = counts.into_iter().find(|(_, n)| *n > 1 << 20) {
        return Err(Failure::usage(format!("--{name} is {n}, which is too large")));
    }
    let within = |name: &str, value: f64, fine: bool, words: &str| match fine {
        true => Ok(()),
        false => Err(Failure::usage(format!("--{name} is {value}, and must be {words}"))),
    };
    within("dropout", size.dropout, (0.0..1.0).contains(&size.dropout), "at least 0 and below 1")?;
    within("lr", settings.lr, settings.lr > 0.0 && settings.lr.is_finite(), "above 0")?;
    let scale = settings.loss_scale.unwrap_or(1.0);
    within(
        "loss-scale",
        scale,
        scale > 0.0 && (scale as f32).is_finite(),
        "above 0 and a number of f32",
    )?;
    let decay = settings.weight_decay.unwrap_or(0.0);
    within("weight-decay", decay, decay >= 0.0 && decay.is_finite(), "at least 0")?;
    let heat = settings.temperature;
    within("temperature", heat, heat >= 0.0 && heat.is_finite(), "at least 0")
}

/// The options with all defaults, for `config.toml`.
fn filled(options: Options, settings: &Settings, precision: Precision) -> Options {
    let text = settings.model.reads_text();
    let (steps, epochs) = match settings.until {
        RunLength::Steps(n) => (Some(n), None),
        RunLength::Epochs(n) => (None, Some(n)),
    };
    let usual = Options {
        task: Some("digits".into()),
        text: None,
        model: Some(settings.model),
        // The other options say it.
        size: None,
        width: Some(settings.size.width),
        num_layers: Some(settings.size.layers),
        num_heads: TRANSFORMERS.contains(&settings.model).then_some(settings.size.heads),
        context: text.then_some(settings.size.context),
        vocab_size: settings.vocabulary,
        dropout: Some(settings.size.dropout),
        steps,
        epochs,
        batch_size: Some(settings.batch_size),
        optimizer: Some(settings.optimizer.clone()),
        lr: Some(settings.lr),
        weight_decay: settings.weight_decay,
        schedule: Some(settings.schedule),
        warmup: Some(settings.warmup),
        precision: Some(precision),
        loss_scale: settings.loss_scale,
        precision_report: None,
        seed: Some(settings.seed),
        threads: None,
        workers: None,
        logical_workers: None,
        shard: None,
        sync_batch_norm: None,
        device: Some("cpu".into()),
        jit: Some(settings.jit),
        mfu: None,
        sample: text.then_some(settings.sample),
        prompt: None,
        temperature: text.then_some(settings.temperature),
        top_k: None,
    };
    Options { size: None, ..options.or(usual) }
}
