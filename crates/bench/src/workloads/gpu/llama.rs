//! Llama 3.2 1B: 16 layers, d 2048, 32 heads, 8 for keys and values, hidden 8192, vocabulary
//! 128,256, one table for the embedding and the logits. Trained on 4 × 2048 tokens.

use super::training::train;
use crate::measure::{Measurement, Protocol, rounded};
use crate::quick;
use pullback::{DType, Key, Tensor, Tree, autocast, cross_entropy, manual_seed};
use pullback_nn::init::normal_;
use pullback_nn::optim::AdamW;
use pullback_nn::{
    AttentionConfig, AttentionMasks, Embedding, Layer, Linear, Module, MultiHeadAttention, RmsNorm,
    Rotary,
};

struct LlamaSizes {
    vocabulary: usize,
    layers: usize,
    width: usize,
    heads: usize,
    kv_heads: usize,
    hidden: usize,
    length: usize,
    batch: usize,
}

const FULL: LlamaSizes = LlamaSizes {
    vocabulary: 128_256,
    layers: 16,
    width: 2048,
    heads: 32,
    kv_heads: 8,
    hidden: 8192,
    length: 2048,
    batch: 4,
};

const SMALL: LlamaSizes = LlamaSizes {
    vocabulary: 128,
    layers: 2,
    width: 32,
    heads: 4,
    kv_heads: 2,
    hidden: 64,
    length: 16,
    batch: 2,
};

#[derive(Clone, Tree)]
struct Block {
    norm1: RmsNorm,
    attention: MultiHeadAttention,
    norm2: RmsNorm,
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(sizes: &LlamaSizes) -> Block {
        let LlamaSizes { width, heads, kv_heads, hidden, .. } = *sizes;
        let rotary = Rotary::new(width / heads).base(500_000.0);
        let attention = AttentionConfig::new(width, heads).kv_heads(kv_heads).rotary(rotary);
        Block {
            norm1: RmsNorm::new([width]).eps(1e-5),
            attention: attention.without_bias().build(),
            norm2: RmsNorm::new([width]).eps(1e-5),
            gate: Linear::new(width, hidden).without_bias(),
            up: Linear::new(width, hidden).without_bias(),
            down: Linear::new(hidden, width).without_bias(),
        }
    }
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Tensor {
        let h = self.norm1.forward(x);
        let x = x + self.attention.forward(&h, &h, &h, AttentionMasks::new().causal());
        let h = self.norm2.forward(&x);
        let hidden = self.gate.forward(&h).silu() * self.up.forward(&h);
        x + self.down.forward(&hidden)
    }
}

#[derive(Clone, Tree)]
struct Llama {
    /// Also the weight of the logits.
    token: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
}

impl Llama {
    fn new(sizes: &LlamaSizes) -> Llama {
        let llama = Llama {
            token: Embedding::new(sizes.vocabulary, sizes.width),
            blocks: (0..sizes.layers).map(|_| Block::new(sizes)).collect(),
            norm: RmsNorm::new([sizes.width]).eps(1e-5),
        };
        for weight in llama.parameters().iter().filter(|x| x.rank() > 1) {
            normal_(weight, 0.0, 0.02);
        }
        llama
    }

    fn loss(&self, ids: &Tensor, next: &Tensor) -> Tensor {
        let x = self.blocks.iter().fold(self.token.forward(ids), |x, block| block.forward(&x));
        let logits = self.norm.forward(&x).linear(&self.token.weight, None);
        cross_entropy(&logits.flatten(0, 1), &next.flatten(0, -1))
    }
}

pub fn step() -> Vec<Measurement> {
    manual_seed(0);
    let sizes = quick::size(FULL, SMALL);
    let llama = Llama::new(&sizes);
    let draw =
        |seed: u64| Key::new(seed).randint([sizes.batch, sizes.length], 0, sizes.vocabulary as i64);
    let (x, y) = (draw(1), draw(2));
    let rule = AdamW { lr: quick::size(3e-4, 1e-2), ..AdamW::default() };
    let trained = train(&llama, rule, &Protocol::counted(3, 10), || {
        autocast(DType::BF16, || llama.loss(&x, &y))
    });
    let row = trained.learned(sizes.vocabulary);
    let rate = rounded((sizes.batch * sizes.length) as f64 / row.ms() * 1e3, 0);
    let row = row.with("tokens_per_s", rate);
    vec![row.with("batch", sizes.batch as f64).with("ctx", sizes.length as f64)]
}
