//! The encoder layer: self-attention, then a feed-forward network. With a causal mask, the block
//! of GPTs.

use super::attention_masks::AttentionMasks;
use super::key_value_cache::KeyValueCache;
use super::multi_head_attention::MultiHeadAttention;
use super::transformer::{Sublayers, TransformerConfig};
use crate::{Layer, LayerNorm, Linear, ModuleScope, module_scope};
use pullback::{Tensor, Tree};

/// One layer of an encoder, PyTorch's `nn.TransformerEncoderLayer` with `batch_first=True`.
/// [`TransformerConfig`] has the options.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AttentionMasks, Layer, TransformerConfig};
/// let layer = TransformerConfig::new(8, 2).dim_feedforward(16).encoder_layer();
/// let x = Tensor::ones([3, 5, 8]);
/// assert_eq!(layer.forward(&x).shape(), [3, 5, 8]);
/// assert_eq!(layer.forward_masked(&x, AttentionMasks::new().causal()).shape(), [3, 5, 8]);
/// ```
#[derive(Clone, Tree)]
pub struct TransformerEncoderLayer {
    /// Self-attention.
    pub self_attn: MultiHeadAttention,
    /// The first linear layer of the feed-forward network.
    pub linear1: Linear,
    /// Its second linear layer.
    pub linear2: Linear,
    /// The layer normalisation of self-attention.
    pub norm1: LayerNorm,
    /// The layer normalisation of the feed-forward network.
    pub norm2: LayerNorm,
    sublayers: Sublayers,
}

impl TransformerEncoderLayer {
    #[track_caller]
    pub(super) fn build(config: TransformerConfig) -> TransformerEncoderLayer {
        let self_attn = config.self_attention();
        let (linear1, linear2) = config.linears();
        TransformerEncoderLayer {
            self_attn,
            linear1,
            linear2,
            norm1: config.norm(),
            norm2: config.norm(),
            sublayers: config.sublayers(),
        }
    }

    /// The output for `[batch, positions, features]`, of the same shape, with masks.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, TransformerConfig};
    /// let layer = TransformerConfig::new(8, 2).dim_feedforward(16).encoder_layer();
    /// let y = layer.forward_masked(&Tensor::ones([3, 5, 8]), AttentionMasks::new().causal());
    /// assert_eq!(y.shape(), [3, 5, 8]);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn forward_masked(&self, x: &Tensor, masks: AttentionMasks) -> Tensor {
        let scope = module_scope(self);
        let seen = self.sublayers.before(x, &self.norm1);
        let found = self.self_attn.forward(&seen, &seen, &seen, masks);
        self.rest(&scope, &self.sublayers.after(x, found, &self.norm1))
    }

    /// The output for the next positions, with [`MultiHeadAttention::decode`] as self-attention.
    /// Switch to evaluation first, as dropout is applied here too.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Module, TransformerConfig};
    /// let layer = TransformerConfig::new(8, 2).dim_feedforward(16).encoder_layer();
    /// layer.eval();
    /// let cache = layer.self_attn.cache(1, 16);
    /// assert_eq!(layer.decode(&Tensor::ones([1, 1, 8]), &cache).shape(), [1, 1, 8]);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit, or the cache is full.
    #[track_caller]
    #[must_use]
    pub fn decode(&self, x: &Tensor, cache: &KeyValueCache) -> Tensor {
        let scope = module_scope(self);
        let seen = self.sublayers.before(x, &self.norm1);
        let found = self.self_attn.decode(&seen, cache);
        self.rest(&scope, &self.sublayers.after(x, found, &self.norm1)).detach()
    }

    #[track_caller]
    fn rest(&self, scope: &ModuleScope<Self>, x: &Tensor) -> Tensor {
        let given = self.sublayers.before(x, &self.norm2);
        let made = self.sublayers.feed_forward(&given, &self.linear1, &self.linear2);
        scope.output(self.sublayers.after(x, made, &self.norm2))
    }
}

impl Layer for TransformerEncoderLayer {
    /// # Panics
    /// If `x` is not `[batch, positions, d_model]` or `[positions, d_model]`, or float dtypes are
    /// mixed.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.forward_masked(x, AttentionMasks::new())
    }
}
