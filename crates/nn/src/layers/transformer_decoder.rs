//! A stack of decoder layers.

use super::attention_masks::AttentionMasks;
use super::key_value_cache::KeyValueCache;
use super::transformer_decoder_layer::TransformerDecoderLayer;
use super::transformer_encoder::check_count;
use crate::{Layer, LayerNorm, ModuleScope, module_scope};
use pullback::{Tensor, Tree};

/// Decoder layers one after the other, PyTorch's `nn.TransformerDecoder`: see
/// [`TransformerConfig::decoder`](crate::TransformerConfig::decoder).
#[derive(Clone, Tree)]
pub struct TransformerDecoder {
    /// The layers.
    pub layers: Vec<TransformerDecoderLayer>,
    /// The norm after the last, if there is one.
    pub norm: Option<LayerNorm>,
}

impl TransformerDecoder {
    /// The output for `[batch, positions, features]` and the encoder's output
    /// `[batch, others, features]`, with masks for both attentions.
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn forward(
        &self,
        x: &Tensor,
        memory: &Tensor,
        masks: AttentionMasks,
        memory_masks: AttentionMasks,
    ) -> Tensor {
        let scope = module_scope(self);
        let mut x = x.clone();
        for layer in &self.layers {
            x = layer.forward(&x, memory, masks, memory_masks);
        }
        self.finish(&scope, x)
    }

    /// The output for the next positions: see [`TransformerDecoderLayer::decode`]. There is a cache
    /// for each layer.
    ///
    /// # Panics
    /// If shapes or dtypes do not fit, or a cache is full.
    #[track_caller]
    #[must_use]
    pub fn decode(
        &self,
        x: &Tensor,
        memory: &Tensor,
        caches: &[KeyValueCache],
        memory_masks: AttentionMasks,
    ) -> Tensor {
        let scope = module_scope(self);
        check_count("TransformerDecoder", self.layers.len(), caches);
        let mut x = x.clone();
        for (layer, cache) in self.layers.iter().zip(caches) {
            x = layer.decode(&x, memory, cache, memory_masks);
        }
        self.finish(&scope, x).detach()
    }

    /// Empty caches for [`TransformerDecoder::decode`].
    #[must_use]
    pub fn caches(&self, batch: usize, capacity: usize) -> Vec<KeyValueCache> {
        self.layers.iter().map(|layer| layer.self_attn.cache(batch, capacity)).collect()
    }

    #[track_caller]
    fn finish(&self, scope: &ModuleScope<Self>, x: Tensor) -> Tensor {
        let y = match &self.norm {
            Some(norm) => norm.forward(&x),
            None => x,
        };
        scope.output(y)
    }
}
