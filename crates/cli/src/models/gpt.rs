//! A small GPT: blocks of causal attention over embedded characters.

use super::{Block, Blocks, Size, TextModel};
use pullback::{Result, Tensor, Tree, no_grad};
use pullback_nn::parallel::FullSharding;
use pullback_nn::{
    AttentionMasks, Dropout, Embedding, Layer, LayerNorm, Linear, TransformerConfig,
    TransformerEncoder, TransformerEncoderLayer, module_scope,
};

/// Characters and their positions, blocks with norms before each part, and a score for each next
/// character.
#[derive(Tree)]
pub struct Gpt {
    tokens: Block<Embedding>,
    positions: Block<Embedding>,
    dropout: Dropout,
    blocks: Stack,
    head: Block<Linear>,
}

/// The layers of a [`TransformerEncoder`], each a block.
#[derive(Tree)]
struct Stack {
    layers: Vec<Block<TransformerEncoderLayer>>,
    norm: Option<Block<LayerNorm>>,
}

impl Stack {
    fn new(encoder: TransformerEncoder) -> Stack {
        Stack {
            layers: encoder.layers.into_iter().map(Block::Whole).collect(),
            norm: encoder.norm.map(Block::Whole),
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let causal = AttentionMasks::new().causal();
        let x = self
            .layers
            .iter()
            .fold(x.clone(), |x, layer| layer.call(|layer| layer.forward_masked(&x, causal)));
        scope.output(match &self.norm {
            Some(norm) => norm.forward(&x),
            None => x,
        })
    }
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
        // GPT-2's: what is added up along the blocks starts small.
        let embedding = |rows: usize| {
            let embedding = Embedding::new(rows, size.width);
            no_grad(|| drop(embedding.weight.mul_(0.02)));
            Block::Whole(embedding)
        };
        Gpt {
            tokens: embedding(tokens),
            positions: embedding(size.context),
            dropout: Dropout::new(size.dropout),
            blocks: Stack::new(config.encoder(size.layers)),
            head: Block::Whole(Linear::new(size.width, tokens)),
        }
    }
}

impl Blocks for Gpt {
    fn spread(self, sharding: &FullSharding) -> Result<Gpt> {
        let (tokens, positions) = (self.tokens.spread(sharding)?, self.positions.spread(sharding)?);
        let layers = self.blocks.layers.spread(sharding)?;
        let norm = self.blocks.norm.map(|norm| norm.spread(sharding)).transpose()?;
        let head = self.head.spread(sharding)?;
        Ok(Gpt { tokens, positions, blocks: Stack { layers, norm }, head, ..self })
    }
}

impl TextModel for Gpt {
    fn scores(&self, tokens: &Tensor) -> Tensor {
        let length = tokens.shape().last().copied().unwrap_or(0);
        let places = Tensor::arange(0, length as i64);
        let x = self.tokens.forward(tokens) + self.positions.forward(&places);
        let x = self.blocks.forward(&self.dropout.forward(&x));
        self.head.forward(&x)
    }
}
