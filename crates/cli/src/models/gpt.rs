//! A small GPT: blocks of causal attention over embedded characters.

use super::{Size, TextModel};
use pullback::{Tensor, Tree, no_grad};
use pullback_nn::{
    AttentionMasks, Dropout, Embedding, Layer, Linear, TransformerConfig, TransformerEncoder,
};

/// Characters and their positions, blocks with norms before each part, and a score for each next
/// character.
#[derive(Tree)]
pub struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    dropout: Dropout,
    blocks: TransformerEncoder,
    head: Linear,
}

impl Gpt {
    /// A network for this many tokens.
    pub fn new(tokens: usize, size: &Size) -> Gpt {
        let config = TransformerConfig::new(size.width, size.heads)
            .dim_feedforward(4 * size.width)
            .dropout(size.dropout)
            .gelu()
            .norm_first()
            .final_norm();
        let model = Gpt {
            tokens: Embedding::new(tokens, size.width),
            positions: Embedding::new(size.context, size.width),
            dropout: Dropout::new(size.dropout),
            blocks: config.encoder(size.layers),
            head: Linear::new(size.width, tokens),
        };
        // GPT-2's: what is added up along the blocks starts small.
        no_grad(|| {
            [&model.tokens, &model.positions].into_iter().for_each(|e| drop(e.weight.mul_(0.02)))
        });
        model
    }
}

impl TextModel for Gpt {
    fn scores(&self, tokens: &Tensor) -> Tensor {
        let length = tokens.shape().last().copied().unwrap_or(0);
        let places = Tensor::arange(0, length as i64);
        let x = self.tokens.forward(tokens) + self.positions.forward(&places);
        let x =
            self.blocks.forward_masked(&self.dropout.forward(&x), AttentionMasks::new().causal());
        self.head.forward(&x)
    }
}
