//! The decoder layer: self-attention, cross-attention, then a feed-forward network.

use super::attention_masks::AttentionMasks;
use super::key_value_cache::KeyValueCache;
use super::multi_head_attention::MultiHeadAttention;
use super::transformer::{Sublayers, TransformerConfig};
use crate::{LayerNorm, Linear, ModuleScope, module_scope};
use pullback::{Tensor, Tree};

/// One layer of a decoder, PyTorch's `nn.TransformerDecoderLayer` with `batch_first=True`.
/// [`TransformerConfig`] has the options.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AttentionMasks, TransformerConfig};
/// let layer = TransformerConfig::new(8, 2).dim_feedforward(16).decoder_layer();
/// let (x, memory) = (Tensor::ones([3, 5, 8]), Tensor::ones([3, 9, 8]));
/// let y = layer.forward(&x, &memory, AttentionMasks::new().causal(), AttentionMasks::new());
/// assert_eq!(y.shape(), [3, 5, 8]);
/// ```
#[derive(Clone, Tree)]
pub struct TransformerDecoderLayer {
    /// Self-attention.
    pub self_attn: MultiHeadAttention,
    /// Cross-attention to the encoder's output.
    pub multihead_attn: MultiHeadAttention,
    /// The first linear layer of the feed-forward network.
    pub linear1: Linear,
    /// Its second linear layer.
    pub linear2: Linear,
    /// The layer normalisation of self-attention.
    pub norm1: LayerNorm,
    /// The layer normalisation of cross-attention.
    pub norm2: LayerNorm,
    /// The layer normalisation of the feed-forward network.
    pub norm3: LayerNorm,
    sublayers: Sublayers,
}

impl TransformerDecoderLayer {
    #[track_caller]
    pub(super) fn build(config: TransformerConfig) -> TransformerDecoderLayer {
        let (self_attn, multihead_attn) = (config.self_attention(), config.cross_attention());
        let (linear1, linear2) = config.linears();
        TransformerDecoderLayer {
            self_attn,
            multihead_attn,
            linear1,
            linear2,
            norm1: config.norm(),
            norm2: config.norm(),
            norm3: config.norm(),
            sublayers: config.sublayers(),
        }
    }

    /// The output `[batch, positions, features]` for inputs of that shape and the encoder's output,
    /// `[batch, others, features]`, with masks for self-attention and cross-attention.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, TransformerConfig};
    /// let layer = TransformerConfig::new(8, 2).dim_feedforward(16).decoder_layer();
    /// let (x, memory) = (Tensor::ones([3, 5, 8]), Tensor::ones([3, 9, 8]));
    /// let y = layer.forward(&x, &memory, AttentionMasks::new().causal(), AttentionMasks::new());
    /// assert_eq!(y.shape(), [3, 5, 8]);
    /// ```
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
        let seen = self.sublayers.before(x, &self.norm1);
        let found = self.self_attn.forward(&seen, &seen, &seen, masks);
        self.rest(&scope, &self.sublayers.after(x, found, &self.norm1), memory, memory_masks)
    }

    /// The output for the next positions, with [`MultiHeadAttention::decode`] as self-attention.
    /// Switch to evaluation first, as dropout is applied here too.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, Module, TransformerConfig};
    /// let layer = TransformerConfig::new(8, 2).dim_feedforward(16).decoder_layer();
    /// layer.eval();
    /// let (cache, memory) = (layer.self_attn.cache(1, 16), Tensor::ones([1, 9, 8]));
    /// let y = layer.decode(&Tensor::ones([1, 1, 8]), &memory, &cache, AttentionMasks::new());
    /// assert_eq!(y.shape(), [1, 1, 8]);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit, or the cache is full.
    #[track_caller]
    #[must_use]
    pub fn decode(
        &self,
        x: &Tensor,
        memory: &Tensor,
        cache: &KeyValueCache,
        memory_masks: AttentionMasks,
    ) -> Tensor {
        let scope = module_scope(self);
        let seen = self.sublayers.before(x, &self.norm1);
        let found = self.self_attn.decode(&seen, cache);
        self.rest(&scope, &self.sublayers.after(x, found, &self.norm1), memory, memory_masks)
            .detach()
    }

    #[track_caller]
    fn rest(
        &self,
        scope: &ModuleScope<Self>,
        x: &Tensor,
        memory: &Tensor,
        masks: AttentionMasks,
    ) -> Tensor {
        let asked = self.sublayers.before(x, &self.norm2);
        let found = self.multihead_attn.forward(&asked, memory, memory, masks);
        let x = self.sublayers.after(x, found, &self.norm2);
        let given = self.sublayers.before(&x, &self.norm3);
        let made = self.sublayers.feed_forward(&given, &self.linear1, &self.linear2);
        scope.output(self.sublayers.after(&x, made, &self.norm3))
    }
}
