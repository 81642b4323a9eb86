//! A stack of encoder layers.

use super::attention_masks::AttentionMasks;
use super::key_value_cache::KeyValueCache;
use super::transformer_encoder_layer::TransformerEncoderLayer;
use crate::refuse::refuse;
use crate::{Layer, LayerNorm, ModuleScope, module_scope};
use pullback::{Error, Tensor, Tree};

/// A stack of encoder layers, PyTorch's `nn.TransformerEncoder`: made by
/// [`TransformerConfig::encoder`](crate::TransformerConfig::encoder).
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, TransformerConfig};
/// let encoder = TransformerConfig::new(8, 2).dim_feedforward(16).final_norm().encoder(2);
/// assert_eq!(encoder.forward(&Tensor::ones([3, 5, 8])).shape(), [3, 5, 8]);
/// ```
#[derive(Clone, Tree)]
pub struct TransformerEncoder {
    /// The layers.
    pub layers: Vec<TransformerEncoderLayer>,
    /// The layer normalisation after the last layer, if there is one.
    pub norm: Option<LayerNorm>,
}

impl TransformerEncoder {
    /// The output for `[batch, positions, features]`, of the same shape, with masks.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, TransformerConfig};
    /// let encoder = TransformerConfig::new(8, 2).dim_feedforward(16).encoder(2);
    /// let y = encoder.forward_masked(&Tensor::ones([3, 5, 8]), AttentionMasks::new().causal());
    /// assert_eq!(y.shape(), [3, 5, 8]);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn forward_masked(&self, x: &Tensor, masks: AttentionMasks) -> Tensor {
        let scope = module_scope(self);
        let mut x = x.clone();
        for layer in &self.layers {
            x = layer.forward_masked(&x, masks);
        }
        self.finish(&scope, x)
    }

    /// The output for the next positions: see [`TransformerEncoderLayer::decode`]. Takes one cache
    /// for each layer.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Module, TransformerConfig};
    /// let blocks = TransformerConfig::new(8, 2).dim_feedforward(16).encoder(2);
    /// blocks.eval();
    /// let caches = blocks.caches(1, 16);
    /// assert_eq!(blocks.decode(&Tensor::ones([1, 4, 8]), &caches).shape(), [1, 4, 8]);
    /// assert_eq!(blocks.decode(&Tensor::ones([1, 1, 8]), &caches).shape(), [1, 1, 8]);
    /// assert_eq!(caches[0].position.item::<i64>(), 5);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit, there is not one cache for each layer, or a cache is full.
    #[track_caller]
    #[must_use]
    pub fn decode(&self, x: &Tensor, caches: &[KeyValueCache]) -> Tensor {
        let scope = module_scope(self);
        check_count("TransformerEncoder", self.layers.len(), caches);
        let mut x = x.clone();
        for (layer, cache) in self.layers.iter().zip(caches) {
            x = layer.decode(&x, cache);
        }
        self.finish(&scope, x).detach()
    }

    /// Empty caches for [`TransformerEncoder::decode`], one for each layer.
    ///
    /// ```
    /// # use pullback_nn::TransformerConfig;
    /// let blocks = TransformerConfig::new(8, 2).dim_feedforward(16).encoder(3);
    /// assert_eq!(blocks.caches(1, 16).len(), 3);
    /// ```
    ///
    /// # Panics
    /// If the memory cannot be allocated.
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

impl Layer for TransformerEncoder {
    /// # Panics
    /// If `x` is not `[batch, positions, d_model]` or `[positions, d_model]`, or float dtypes are
    /// mixed.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.forward_masked(x, AttentionMasks::new())
    }
}

/// That there is a cache for each layer.
#[track_caller]
pub(super) fn check_count(name: &'static str, layers: usize, caches: &[KeyValueCache]) {
    if layers != caches.len() {
        let message = format!("{layers} layers take one cache each, not {}", caches.len());
        refuse(Error::argument(name, message));
    }
}
