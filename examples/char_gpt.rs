//! A GPT on characters: attention, tied weights, clipped gradients, and text drawn from the model.
//!
//! `cargo run --release --example char_gpt [FILE]`
//!
//! Trains on the embedded sonnets, or on a text file, then generates text. The whole model is
//! here, made of layers; `pullback_nn::models::Gpt` is one to use, with a cache for keys and
//! values.
//!
//! `cargo run --release --example char_gpt -- --record step.pullback` records one step instead,
//! for `pullback explore step.pullback`.

use pullback::{Error, Result, Tensor, Tree, cross_entropy, jit, manual_seed, next_key, no_grad};
use pullback_nn::data::{CharTokens, DataLoader, TextWindows, Tokens, read_text, text};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule, clip_grad_norm_};
use pullback_nn::schedule::{CosineAnnealingLr, LinearWarmup, Scheduler};
use pullback_nn::{
    AttentionMasks, Embedding, Gelu, Layer, LayerNorm, Linear, Module, MultiHeadAttention, init,
    record,
};

/// Attention to earlier positions, then a feed-forward part per position, both residual.
#[derive(Tree)]
struct Block {
    norm1: LayerNorm,
    attention: MultiHeadAttention,
    norm2: LayerNorm,
    feedforward: (Linear, Gelu, Linear),
}

impl Block {
    fn new(width: usize, heads: usize) -> Block {
        Block {
            norm1: LayerNorm::new([width]),
            attention: MultiHeadAttention::new(width, heads),
            norm2: LayerNorm::new([width]),
            feedforward: (Linear::new(width, 4 * width), Gelu, Linear::new(4 * width, width)),
        }
    }
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Tensor {
        let n = self.norm1.forward(x);
        let x = x + self.attention.forward(&n, &n, &n, AttentionMasks::new().causal());
        &x + self.feedforward.forward(&self.norm2.forward(&x))
    }
}

#[derive(Tree)]
struct Gpt {
    token: Embedding,
    position: Embedding,
    // A vector of layers is a layer: one after the other.
    blocks: Vec<Block>,
    norm: LayerNorm,
}

impl Gpt {
    fn new(vocabulary: usize, length: usize, width: usize, blocks: usize) -> Gpt {
        let gpt = Gpt {
            token: Embedding::new(vocabulary, width),
            position: Embedding::new(length, width),
            blocks: (0..blocks).map(|_| Block::new(width, 4)).collect(),
            norm: LayerNorm::new([width]),
        };
        init::normal_(&gpt.token.weight, 0.0, 0.02);
        init::normal_(&gpt.position.weight, 0.0, 0.02);
        gpt
    }

    /// Logits of the next character at every position: `[batch, n]` to `[batch, n, vocabulary]`.
    fn forward(&self, ids: &Tensor) -> Tensor {
        let positions = self.position.weight.at(..ids.shape()[1]);
        let x = self.blocks.forward(&(self.token.forward(ids) + positions));
        // The table of characters serves twice (tied weights): its gradient is the sum of both
        // uses.
        self.norm.forward(&x).matmul(&self.token.weight.t())
    }

    /// The mean loss of predicting `y` after `x`.
    fn loss(&self, (x, y): &(Tensor, Tensor)) -> Tensor {
        cross_entropy(&self.forward(x).flatten(0, 1), &y.flatten(0, 1))
    }

    /// Draws `count` characters after a prompt.
    fn generate(&self, prompt: &[i64], count: usize, temperature: f64) -> Vec<i64> {
        let length = self.position.weight.shape()[0];
        let mut ids = prompt.to_vec();
        for _ in 0..count {
            let seen = &ids[ids.len().saturating_sub(length)..];
            let logits = no_grad(|| self.forward(&Tensor::from(seen.to_vec()).unsqueeze(0)));
            let chances = (logits.at((0, -1)) / temperature).softmax(-1);
            ids.push(next_key().multinomial(&chances, 1, true).item());
        }
        ids
    }
}

/// What a run gives.
pub struct Figures {
    /// The mean loss of the last steps, in nats per character.
    pub loss: f64,
    /// What guessing by the frequency of characters alone would give.
    pub by_frequency: f64,
    /// Text drawn from the model.
    pub sample: String,
}

/// Trains on the embedded sonnets.
pub fn run(quick: bool) -> Result<Figures> {
    learn(text(), quick)
}

fn learn(text: &str, quick: bool) -> Result<Figures> {
    manual_seed(0);
    let tokens = CharTokens::of(text);
    let ids = tokens.encode(text)?;
    let (length, width, blocks, steps) = if quick { (32, 64, 2, 300) } else { (64, 96, 3, 800) };
    let windows = TextWindows::new(ids.clone(), length)?;
    let loader = DataLoader::new(windows).batch_size(16).shuffle(0).drop_last(true);

    let model = Gpt::new(tokens.size(), length, width, blocks);
    let opt = AdamW { lr: 3e-3, ..AdamW::default() }.over(model.parameters())?;
    let cosine = CosineAnnealingLr { t_max: steps, eta_min: 1e-4 };
    let mut schedule = Scheduler::new(
        &opt,
        LinearWarmup { total_iters: steps / 20, start_factor: 0.0, then: cosine },
    );
    let step = jit(|batch: &(Tensor, Tensor)| {
        opt.zero_grad();
        let loss = model.loss(batch);
        loss.backward()?;
        clip_grad_norm_(&model.parameters(), 1.0)?;
        opt.step()?;
        Ok(loss)
    });

    let mut losses = Vec::new();
    while losses.len() < steps as usize {
        for batch in loader.iter().take(steps as usize - losses.len()) {
            losses.push(f64::from(step.call(&batch?)?.item::<f32>()));
            schedule.step();
        }
    }
    let last = &losses[losses.len() - 20..];

    let share = Tensor::from(ids.clone()).bincount(None, tokens.size()) / ids.len() as f64;
    let sample =
        tokens.decode(&model.generate(&ids[..length / 2], if quick { 100 } else { 400 }, 0.8))?;
    Ok(Figures {
        loss: last.iter().sum::<f64>() / last.len() as f64,
        by_frequency: share.entr().sum().item::<f32>().into(),
        sample,
    })
}

/// Records the first step of training in a file.
pub fn record_step(path: &str) -> Result<()> {
    manual_seed(0);
    let tokens = CharTokens::of(text());
    let windows = TextWindows::new(tokens.encode(text())?, 32)?;
    let mut batches = DataLoader::new(windows).batch_size(16).shuffle(0).iter();
    let batch = batches.next().ok_or_else(|| Error::argument("char_gpt", "no text"))??;
    let model = Gpt::new(tokens.size(), 32, 64, 2);
    let opt = AdamW::default().over(model.parameters())?;
    record(path, &model, || {
        model.loss(&batch).backward()?;
        clip_grad_norm_(&model.parameters(), 1.0)?;
        opt.step()
    })
}

/// Prints the figures and the sample.
pub fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let Figures { loss, by_frequency, sample } = match (words.next(), words.next()) {
        (Some(flag), Some(path)) if flag == "--record" => return record_step(&path),
        (Some(file), _) => learn(&read_text(file)?, false)?,
        (None, _) => run(false)?,
    };
    println!("{loss:.2} nats per character (frequencies alone: {by_frequency:.2})\n\n{sample}");
    Ok(())
}
