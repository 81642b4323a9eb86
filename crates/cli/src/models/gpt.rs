//! A small GPT: blocks of causal attention over embedded characters.

use super::{BlockNetwork, ModelBlock, ModelSize, TextModel};
use pullback::{Result, Tensor, Tree, no_grad};
use pullback_nn::parallel::FullSharding;
use pullback_nn::{
    AttentionMasks, Dropout, Embedding, Layer, LayerNorm, Linear, TransformerConfig,
    TransformerEncoder, TransformerEncoderLayer, module_scope,
};

/// Characters and their positions, blocks with norms before each part, and a score for each next
/// character.
#[derive(Tree)]
pub struct BlockGpt {
    tokens: ModelBlock<Embedding>,
    positions: ModelBlock<Embedding>,
    dropout: Dropout,
    blocks: GptBlocks,
    head: ModelBlock<Linear>,
}

/// The layers of a [`TransformerEncoder`], each a block.
#[derive(Tree)]
struct GptBlocks {
    layers: Vec<ModelBlock<TransformerEncoderLayer>>,
    norm: Option<ModelBlock<LayerNorm>>,
}

impl GptBlocks {
    fn new(encoder: TransformerEncoder) -> GptBlocks {
        GptBlocks {
            layers: encoder.layers.into_iter().map(ModelBlock::Whole).collect(),
            norm: encoder.norm.map(ModelBlock::Whole),
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

impl BlockGpt {
    /// A network for this many tokens.
    pub fn new(tokens: usize, size: &ModelSize) -> BlockGpt {
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
            ModelBlock::Whole(embedding)
        };
        BlockGpt {
            tokens: embedding(tokens),
            positions: embedding(size.context),
            dropout: Dropout::new(size.dropout),
            blocks: GptBlocks::new(config.encoder(size.layers)),
            head: ModelBlock::Whole(Linear::new(size.width, tokens)),
        }
    }
}

impl BlockNetwork for BlockGpt {
    fn spread(self, sharding: &FullSharding) -> Result<BlockGpt> {
        let (tokens, positions) = (self.tokens.spread(sharding)?, self.positions.spread(sharding)?);
        let layers = self.blocks.layers.spread(sharding)?;
        let norm = self.blocks.norm.map(|norm| norm.spread(sharding)).transpose()?;
        let head = self.head.spread(sharding)?;
        Ok(BlockGpt { tokens, positions, blocks: GptBlocks { layers, norm }, head, ..self })
    }
}

impl TextModel for BlockGpt {
    fn scores(&self, tokens: &Tensor) -> Tensor {
        let length = tokens.shape().last().copied().unwrap_or(0);
        let places = Tensor::arange(0, length as i64);
        let x = self.tokens.forward(tokens) + self.positions.forward(&places);
        let x = self.blocks.forward(&self.dropout.forward(&x));
        self.head.forward(&x)
    }
}
