//! GPT-2 124M: training on 16 × 1024 tokens, and decoding with a cache.

use super::difference;
use super::training::train;
use crate::measure::{Measurement, Protocol, rounded};
use crate::{compiled, quick};
use pullback::{DType, Key, Tensor, autocast, cat, manual_seed, no_grad};
use pullback_nn::Module;
use pullback_nn::models::{Gpt2, GptConfig};
use pullback_nn::optim::AdamW;

struct Sizes {
    model: GptConfig,
    /// Tokens that occur: the vocabulary is rounded up.
    tokens: usize,
    batch: usize,
    cache: usize,
}

const FULL: Sizes = Sizes { model: GptConfig::gpt2(), tokens: 50257, batch: 16, cache: 512 };

const SMALL: Sizes = Sizes {
    model: GptConfig { vocabulary: 128, length: 16, width: 32, heads: 2, layers: 2, dropout: 0.0 },
    tokens: 100,
    batch: 2,
    cache: 16,
};

pub fn bf16() -> Vec<Measurement> {
    step(|gpt, x, y| autocast(DType::BF16, || gpt.loss(x, y)))
}

pub fn tf32() -> Vec<Measurement> {
    super::tf32(|| step(|gpt, x, y| super::tf32(|| gpt.loss(x, y))))
}

fn step(loss: fn(&Gpt2, &Tensor, &Tensor) -> Tensor) -> Vec<Measurement> {
    manual_seed(0);
    let sizes = quick::size(FULL, SMALL);
    let gpt = Gpt2::new(&sizes.model);
    let length = sizes.model.length;
    let draw = |seed: u64| Key::new(seed).randint([sizes.batch, length], 0, sizes.tokens as i64);
    let (x, y) = (draw(1), draw(2));
    let rule = AdamW { lr: quick::size(3e-4, 1e-2), ..AdamW::default() };
    let trained = train(&gpt, rule, &Protocol::counted(5, 15), || loss(&gpt, &x, &y));
    let row = trained.learned(sizes.model.vocabulary);
    let operations = sizes.model.operations_per_token();
    let tokens = (sizes.batch * length) as f64;
    let rate = rounded(tokens / row.ms() * 1e3, 0);
    let row = super::with_tflops(row.with("tokens_per_s", rate), operations * tokens);
    vec![row.with("batch", sizes.batch as f64).with("ctx", length as f64)]
}

/// One token after another, greedily, at positions in the middle of a cache of fixed length.
pub fn decode() -> Vec<Measurement> {
    manual_seed(0);
    let sizes = quick::size(FULL, SMALL);
    let gpt = Gpt2::new(&sizes.model).to_dtype(DType::BF16);
    let caches = gpt.caches(1, sizes.cache);
    let token = Tensor::zeros_with([1, 1], DType::I64);
    let step = compiled::step(|| {
        no_grad(|| {
            let logits = gpt.decode(&token, &caches);
            token.copy_(logits.argmax(-1));
            logits
        })
    });

    // The same tokens at once give the same logits.
    let mut seen = vec![token.deep_clone()];
    let mut logits = step();
    for _ in 0..6 {
        seen.push(token.deep_clone());
        logits = step();
    }
    let seen: Vec<&Tensor> = seen.iter().collect();
    let at_once = no_grad(|| gpt.forward(&cat(&seen, 1)));
    let wrong = difference(&logits.at((0, 0)), &at_once.at((0, -1)));

    for cache in &caches {
        cache.keys.copy_(Tensor::randn_with(cache.keys.shape(), DType::BF16));
        cache.values.copy_(Tensor::randn_with(cache.values.shape(), DType::BF16));
        cache.position.fill_(sizes.cache as i64 / 2);
    }
    let row = Protocol::counted(20, 100).measure(|| drop(step()));
    vec![super::compared(row, &[wrong], 5e-2)]
}
