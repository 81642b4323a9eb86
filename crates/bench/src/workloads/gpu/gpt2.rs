//! GPT-2 124M: training on 16 × 1024 tokens, and decoding with a cache.

use super::difference;
use super::training::train;
use super::transformer::Block;
use crate::measure::{Measurement, Protocol, rounded};
use crate::{compiled, quick};
use pullback::{DType, Key, Tensor, Tree, autocast, cat, cross_entropy, manual_seed, no_grad};
use pullback_nn::init::normal_;
use pullback_nn::optim::AdamW;
use pullback_nn::{Embedding, KeyValueCache, Layer, LayerNorm, Module};

struct Sizes {
    vocabulary: usize,
    /// Tokens that occur: the vocabulary is rounded up.
    tokens: usize,
    layers: usize,
    width: usize,
    heads: usize,
    length: usize,
    batch: usize,
    cache: usize,
}

const FULL: Sizes = Sizes {
    vocabulary: 50304,
    tokens: 50257,
    layers: 12,
    width: 768,
    heads: 12,
    length: 1024,
    batch: 16,
    cache: 512,
};

const SMALL: Sizes = Sizes {
    vocabulary: 128,
    tokens: 100,
    layers: 2,
    width: 32,
    heads: 2,
    length: 16,
    batch: 2,
    cache: 16,
};

#[derive(Clone, Tree)]
struct Gpt {
    /// Also the weight of the logits.
    token: Embedding,
    position: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
}

impl Gpt {
    fn new(sizes: &Sizes) -> Gpt {
        let gpt = Gpt {
            token: Embedding::new(sizes.vocabulary, sizes.width),
            position: Embedding::new(sizes.length, sizes.width),
            blocks: (0..sizes.layers).map(|_| Block::new(sizes.width, sizes.heads)).collect(),
            norm: LayerNorm::new([sizes.width]),
        };
        for weight in gpt.parameters().iter().filter(|x| x.rank() > 1) {
            normal_(weight, 0.0, 0.02);
        }
        gpt
    }

    fn forward(&self, ids: &Tensor) -> Tensor {
        let length = ids.shape()[1];
        let x = self.token.forward(ids) + self.position.weight.narrow(0, 0, length);
        self.logits(&self.blocks.iter().fold(x, |x, block| block.forward(&x)))
    }

    fn loss(&self, ids: &Tensor, next: &Tensor) -> Tensor {
        cross_entropy(&self.forward(ids).flatten(0, 1), &next.flatten(0, -1))
    }

    /// The logits after one more token each, `[batch, 1]`.
    fn decode(&self, ids: &Tensor, caches: &[KeyValueCache]) -> Tensor {
        let place = caches[0].position.reshape([1, 1]);
        let x = self.token.forward(ids) + self.position.forward(&place);
        let blocks = self.blocks.iter().zip(caches);
        self.logits(&blocks.fold(x, |x, (block, cache)| block.decode(&x, cache)))
    }

    fn logits(&self, x: &Tensor) -> Tensor {
        self.norm.forward(x).linear(&self.token.weight, None)
    }
}

pub fn bf16() -> Vec<Measurement> {
    step(|gpt, x, y| autocast(DType::BF16, || gpt.loss(x, y)))
}

pub fn tf32() -> Vec<Measurement> {
    super::tf32(|| step(|gpt, x, y| super::tf32(|| gpt.loss(x, y))))
}

fn step(loss: fn(&Gpt, &Tensor, &Tensor) -> Tensor) -> Vec<Measurement> {
    manual_seed(0);
    let sizes = quick::size(FULL, SMALL);
    let gpt = Gpt::new(&sizes);
    let draw =
        |seed: u64| Key::new(seed).randint([sizes.batch, sizes.length], 0, sizes.tokens as i64);
    let (x, y) = (draw(1), draw(2));
    let rule = AdamW { lr: quick::size(3e-4, 1e-2), ..AdamW::default() };
    let trained = train(&gpt, rule, &Protocol::counted(5, 15), || loss(&gpt, &x, &y));
    let row = trained.learned(sizes.vocabulary);
    let attention = (12 * sizes.layers * sizes.width * sizes.length) as f64;
    let operations = 6.0 * gpt.parameter_count() as f64 + attention;
    let tokens = (sizes.batch * sizes.length) as f64;
    let rate = rounded(tokens / row.ms() * 1e3, 0);
    let row = super::with_tflops(row.with("tokens_per_s", rate), operations * tokens);
    vec![row.with("batch", sizes.batch as f64).with("ctx", sizes.length as f64)]
}

/// One token after another, greedily, at positions in the middle of a cache of fixed length.
pub fn decode() -> Vec<Measurement> {
    manual_seed(0);
    let sizes = quick::size(FULL, SMALL);
    let gpt = Gpt::new(&sizes).to_dtype(DType::BF16);
    let caches: Vec<KeyValueCache> =
        gpt.blocks.iter().map(|block| block.attention.cache(1, sizes.cache)).collect();
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
