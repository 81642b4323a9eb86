//! The block of GPT-2: pre-norm attention and a feed-forward network with the tanh form of gelu.

use pullback::{Tensor, Tree};
use pullback_nn::{AttentionMasks, KeyValueCache, Layer, LayerNorm, Linear, MultiHeadAttention};

#[derive(Clone, Tree)]
pub struct Block {
    ln1: LayerNorm,
    pub attention: MultiHeadAttention,
    ln2: LayerNorm,
    up: Linear,
    down: Linear,
}

impl Block {
    pub fn new(width: usize, heads: usize) -> Block {
        Block {
            ln1: LayerNorm::new([width]),
            attention: MultiHeadAttention::new(width, heads),
            ln2: LayerNorm::new([width]),
            up: Linear::new(width, 4 * width),
            down: Linear::new(4 * width, width),
        }
    }

    /// The next position alone, after those of the cache.
    pub fn decode(&self, x: &Tensor, cache: &KeyValueCache) -> Tensor {
        self.fed_forward(&(x + self.attention.decode(&self.ln1.forward(x), cache)))
    }

    fn fed_forward(&self, x: &Tensor) -> Tensor {
        x + self.down.forward(&self.up.forward(&self.ln2.forward(x)).gelu_tanh())
    }
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Tensor {
        let h = self.ln1.forward(x);
        self.fed_forward(&(x + self.attention.forward(&h, &h, &h, AttentionMasks::new().causal())))
    }
}
