//! A stack of decoder layers.

use super::attention_masks::AttentionMasks;
use super::key_value_cache::KeyValueCache;
use super::transformer_decoder_layer::TransformerDecoderLayer;
use super::transformer_encoder::check_count;
use crate::{Layer, LayerNorm, ModuleScope, module_scope};
use pullback::{Tensor, Tree};

/// A stack of decoder layers, PyTorch's `nn.TransformerDecoder`: made by
/// [`TransformerConfig::decoder`](crate::TransformerConfig::decoder).
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AttentionMasks, TransformerConfig};
/// let decoder = TransformerConfig::new(8, 2).dim_feedforward(16).final_norm().decoder(2);
/// let (x, memory) = (Tensor::ones([3, 5, 8]), Tensor::ones([3, 9, 8]));
/// let y = decoder.forward(&x, &memory, AttentionMasks::new().causal(), AttentionMasks::new());
/// assert_eq!(y.shape(), [3, 5, 8]);
/// ```
#[derive(Clone, Tree)]
pub struct TransformerDecoder {
    /// The layers.
    pub layers: Vec<TransformerDecoderLayer>,
    /// The layer normalisation after the last layer, if there is one.
    pub norm: Option<LayerNorm>,
}

impl TransformerDecoder {
    /// The output `[batch, positions, features]` for inputs of that shape and the encoder's output,
    /// `[batch, others, features]`, with masks for self-attention and cross-attention.
    ///
    /// ```
    /// # use pullback::{DType, Tensor};
    /// # use pullback_nn::{AttentionMasks, TransformerConfig};
    /// let decoder = TransformerConfig::new(8, 2).dim_feedforward(16).decoder(2);
    /// let (x, memory) = (Tensor::ones([3, 5, 8]), Tensor::ones([3, 9, 8]));
    /// let padding = Tensor::zeros_with([3, 9], DType::Bool);
    /// let memory_masks = AttentionMasks::new().key_padding_mask(&padding);
    /// let y = decoder.forward(&x, &memory, AttentionMasks::new().causal(), memory_masks);
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
        let mut x = x.clone();
        for layer in &self.layers {
            x = layer.forward(&x, memory, masks, memory_masks);
        }
        self.finish(&scope, x)
    }

    /// The output for the next positions: see [`TransformerDecoderLayer::decode`]. Takes one cache
    /// for each layer.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, Module, TransformerConfig};
    /// let decoder = TransformerConfig::new(8, 2).dim_feedforward(16).decoder(2);
    /// decoder.eval();
    /// let (caches, memory) = (decoder.caches(1, 16), Tensor::ones([1, 9, 8]));
    /// let y = decoder.decode(&Tensor::ones([1, 1, 8]), &memory, &caches, AttentionMasks::new());
    /// assert_eq!((y.shape(), caches[0].position.item::<i64>()), (&[1, 1, 8][..], 1));
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit, there is not one cache for each layer, or a cache is full.
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

    /// Empty caches for [`TransformerDecoder::decode`], one for each layer.
    ///
    /// ```
    /// # use pullback_nn::TransformerConfig;
    /// let decoder = TransformerConfig::new(8, 2).dim_feedforward(16).decoder(3);
    /// assert_eq!(decoder.caches(1, 16).len(), 3);
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
