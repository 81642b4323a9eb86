//! The options of transformer layers and stacks, and the part that encoders and decoders share.

use super::dropout::probability;
use super::multi_head_attention::{AttentionConfig, MultiHeadAttention};
use super::rotary::Rotary;
use super::transformer_decoder::TransformerDecoder;
use super::transformer_decoder_layer::TransformerDecoderLayer;
use super::transformer_encoder::TransformerEncoder;
use super::transformer_encoder_layer::TransformerEncoderLayer;
use crate::refuse::try_reserve;
use crate::{Layer, LayerNorm, Linear};
use pullback::{Flag, Path, Tensor, Tree, next_key_on};

/// The options of transformer layers. The defaults are PyTorch's: a feed-forward width of 2048,
/// dropout of 0.1, relu, layer normalisation after each sublayer.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AttentionMasks, Module, TransformerConfig};
/// // A small GPT's blocks.
/// let config = TransformerConfig::new(32, 4).dim_feedforward(64).dropout(0.0).gelu().norm_first();
/// let blocks = config.final_norm().encoder(2);
/// let y = blocks.forward_masked(&Tensor::ones([1, 7, 32]), AttentionMasks::new().causal());
/// assert_eq!(y.shape(), [1, 7, 32]);
/// assert_eq!(blocks.named_parameters()[0].0, "layers.0.self_attn.in_proj_weight");
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct TransformerConfig {
    attention: AttentionConfig,
    kv_heads: Option<usize>,
    rotary: Option<Rotary>,
    width: usize,
    feedforward: usize,
    dropout: f64,
    gelu: bool,
    norm_first: bool,
    eps: f64,
    final_norm: bool,
    bias: bool,
}

impl TransformerConfig {
    /// With `d_model` features and `nhead` heads.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, TransformerConfig};
    /// let layer = TransformerConfig::new(32, 4).encoder_layer();
    /// assert_eq!(layer.linear1.weight.shape(), [2048, 32]);
    /// assert_eq!(layer.forward(&Tensor::ones([1, 7, 32])).shape(), [1, 7, 32]);
    /// ```
    ///
    /// # Panics
    /// Never; the layers that take it check it.
    pub fn new(d_model: usize, nhead: usize) -> TransformerConfig {
        TransformerConfig {
            attention: AttentionConfig::new(d_model, nhead),
            kv_heads: None,
            rotary: None,
            width: d_model,
            feedforward: 2048,
            dropout: 0.1,
            gelu: false,
            norm_first: false,
            eps: 1e-5,
            final_norm: false,
            bias: true,
        }
    }

    /// The number of features between the two linear layers; 2048 by default.
    ///
    /// ```
    /// # use pullback_nn::TransformerConfig;
    /// let layer = TransformerConfig::new(32, 4).dim_feedforward(64).encoder_layer();
    /// assert_eq!(layer.linear1.weight.shape(), [64, 32]);
    /// ```
    pub fn dim_feedforward(self, feedforward: usize) -> TransformerConfig {
        TransformerConfig { feedforward, ..self }
    }

    /// The dropout probability in training, of attention weights, sublayer outputs and inside the
    /// feed-forward network; 0.1 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, TransformerConfig};
    /// let layer = TransformerConfig::new(32, 4).dim_feedforward(64).dropout(0.0).encoder_layer();
    /// let x = Tensor::ones([1, 7, 32]);
    /// assert_eq!(layer.forward(&x).to_vec::<f32>(), layer.forward(&x).to_vec::<f32>());
    /// ```
    pub fn dropout(self, p: f64) -> TransformerConfig {
        TransformerConfig { dropout: p, ..self }
    }

    /// Gelu instead of relu.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, TransformerConfig};
    /// let layer = TransformerConfig::new(32, 4).dim_feedforward(64).gelu().encoder_layer();
    /// assert_eq!(layer.forward(&Tensor::ones([1, 7, 32])).shape(), [1, 7, 32]);
    /// ```
    #[doc(alias = "activation")]
    pub fn gelu(self) -> TransformerConfig {
        TransformerConfig { gelu: true, ..self }
    }

    /// Pre-norm: layer normalisation before each sublayer, instead of after its residual
    /// connection.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, TransformerConfig};
    /// let layer = TransformerConfig::new(32, 4).dim_feedforward(64).norm_first().encoder_layer();
    /// assert_eq!(layer.forward(&Tensor::ones([1, 7, 32])).shape(), [1, 7, 32]);
    /// ```
    pub fn norm_first(self) -> TransformerConfig {
        TransformerConfig { norm_first: true, ..self }
    }

    /// The number that layer normalisation adds to variances; 1e-5 by default.
    ///
    /// ```
    /// # use pullback_nn::TransformerConfig;
    /// let layer = TransformerConfig::new(32, 4).layer_norm_eps(1e-6).encoder_layer();
    /// assert_eq!(layer.norm1.eps, 1e-6);
    /// ```
    pub fn layer_norm_eps(self, eps: f64) -> TransformerConfig {
        TransformerConfig { eps, ..self }
    }

    /// Without biases, in linear layers and in layer normalisation.
    ///
    /// ```
    /// # use pullback_nn::TransformerConfig;
    /// let layer = TransformerConfig::new(32, 4).without_bias().encoder_layer();
    /// assert!(layer.linear1.bias.is_none() && layer.norm1.bias.is_none());
    /// ```
    ///
    /// # Panics
    /// Never.
    #[doc(alias = "bias")]
    pub fn without_bias(self) -> TransformerConfig {
        TransformerConfig { attention: self.attention.without_bias(), bias: false, ..self }
    }

    /// Grouped-query self-attention: see [`AttentionConfig::kv_heads`].
    ///
    /// ```
    /// # use pullback_nn::TransformerConfig;
    /// let layer = TransformerConfig::new(32, 4).kv_heads(2).encoder_layer();
    /// // 32 rows for queries, 2·8 for keys and 2·8 for values.
    /// assert_eq!(layer.self_attn.in_proj_weight.unwrap().shape(), [64, 32]);
    /// ```
    pub fn kv_heads(self, heads: usize) -> TransformerConfig {
        TransformerConfig { kv_heads: Some(heads), ..self }
    }

    /// Applies rotary position embeddings in self-attention.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Rotary, TransformerConfig};
    /// let layer = TransformerConfig::new(32, 4).rotary(Rotary::new(8)).encoder_layer();
    /// assert_eq!(layer.forward(&Tensor::ones([1, 7, 32])).shape(), [1, 7, 32]);
    /// ```
    pub fn rotary(self, rotary: Rotary) -> TransformerConfig {
        TransformerConfig { rotary: Some(rotary), ..self }
    }

    /// Adds layer normalisation after the last layer of a stack.
    ///
    /// ```
    /// # use pullback_nn::TransformerConfig;
    /// let config = TransformerConfig::new(32, 4).dim_feedforward(64);
    /// assert!(config.encoder(2).norm.is_none());
    /// assert!(config.final_norm().encoder(2).norm.is_some());
    /// ```
    pub fn final_norm(self) -> TransformerConfig {
        TransformerConfig { final_norm: true, ..self }
    }

    /// One encoder layer.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, TransformerConfig};
    /// let layer = TransformerConfig::new(32, 4).dim_feedforward(64).encoder_layer();
    /// assert_eq!(layer.forward(&Tensor::ones([1, 7, 32])).shape(), [1, 7, 32]);
    /// ```
    ///
    /// # Panics
    /// If `d_model` is not a multiple of `nhead`, a size is 0, or the dropout is not a probability.
    #[track_caller]
    #[must_use]
    pub fn encoder_layer(self) -> TransformerEncoderLayer {
        TransformerEncoderLayer::build(self)
    }

    /// One decoder layer.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, TransformerConfig};
    /// let layer = TransformerConfig::new(32, 4).dim_feedforward(64).decoder_layer();
    /// let (x, memory) = (Tensor::ones([1, 7, 32]), Tensor::ones([1, 9, 32]));
    /// let y = layer.forward(&x, &memory, AttentionMasks::new().causal(), AttentionMasks::new());
    /// assert_eq!(y.shape(), [1, 7, 32]);
    /// ```
    ///
    /// # Panics
    /// If `d_model` is not a multiple of `nhead`, a size is 0, or the dropout is not a probability.
    #[track_caller]
    #[must_use]
    pub fn decoder_layer(self) -> TransformerDecoderLayer {
        TransformerDecoderLayer::build(self)
    }

    /// A stack of this many encoder layers.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, TransformerConfig};
    /// let encoder = TransformerConfig::new(32, 4).dim_feedforward(64).encoder(2);
    /// assert_eq!(encoder.forward(&Tensor::ones([1, 7, 32])).shape(), [1, 7, 32]);
    /// ```
    ///
    /// # Panics
    /// If `d_model` is not a multiple of `nhead`, a size is 0, or the dropout is not a probability.
    #[track_caller]
    #[must_use]
    pub fn encoder(self, num_layers: usize) -> TransformerEncoder {
        let mut layers = try_reserve("TransformerEncoder", num_layers);
        for _ in 0..num_layers {
            layers.push(self.encoder_layer());
        }
        TransformerEncoder { layers, norm: self.final_norm.then(|| self.norm()) }
    }

    /// A stack of this many decoder layers.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, TransformerConfig};
    /// let decoder = TransformerConfig::new(32, 4).dim_feedforward(64).decoder(2);
    /// let (x, memory) = (Tensor::ones([1, 7, 32]), Tensor::ones([1, 9, 32]));
    /// let y = decoder.forward(&x, &memory, AttentionMasks::new().causal(), AttentionMasks::new());
    /// assert_eq!(y.shape(), [1, 7, 32]);
    /// ```
    ///
    /// # Panics
    /// If `d_model` is not a multiple of `nhead`, a size is 0, or the dropout is not a probability.
    #[track_caller]
    #[must_use]
    pub fn decoder(self, num_layers: usize) -> TransformerDecoder {
        let mut layers = try_reserve("TransformerDecoder", num_layers);
        for _ in 0..num_layers {
            layers.push(self.decoder_layer());
        }
        TransformerDecoder { layers, norm: self.final_norm.then(|| self.norm()) }
    }

    #[track_caller]
    pub(super) fn self_attention(&self) -> MultiHeadAttention {
        let mut config = self.attention.dropout(self.dropout);
        if let Some(heads) = self.kv_heads {
            config = config.kv_heads(heads);
        }
        if let Some(rotary) = self.rotary {
            config = config.rotary(rotary);
        }
        config.build()
    }

    #[track_caller]
    pub(super) fn cross_attention(&self) -> MultiHeadAttention {
        self.attention.dropout(self.dropout).build()
    }

    #[track_caller]
    pub(super) fn linears(&self) -> (Linear, Linear) {
        let first = Linear::new(self.width, self.feedforward);
        let second = Linear::new(self.feedforward, self.width);
        match self.bias {
            true => (first, second),
            false => (first.without_bias(), second.without_bias()),
        }
    }

    #[track_caller]
    pub(super) fn norm(&self) -> LayerNorm {
        let norm = LayerNorm::new([self.width]).eps(self.eps);
        if self.bias { norm } else { norm.without_bias() }
    }

    #[track_caller]
    pub(super) fn sublayers(&self) -> Sublayers {
        let TransformerConfig { gelu, norm_first, .. } = *self;
        let dropout = probability("Transformer", self.dropout);
        Sublayers { dropout, gelu, norm_first, training: Flag::new(true) }
    }
}

/// How the sublayers of a transformer layer are combined. As a tree it has no type.
#[derive(Clone)]
pub(super) struct Sublayers {
    pub dropout: f64,
    pub gelu: bool,
    pub norm_first: bool,
    pub training: Flag,
}

impl Tree for Sublayers {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        path.note(&(self.dropout, self.gelu, self.norm_first));
        self.training.visit(path, f);
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Sublayers {
        Sublayers { training: self.training.map(f), ..*self }
    }
}

impl Sublayers {
    /// While training, some of `x` dropped.
    #[track_caller]
    pub fn drop(&self, x: Tensor) -> Tensor {
        match self.dropout > 0.0 && self.training.get() {
            true => x.dropout(self.dropout, Some(&next_key_on(x.device()))),
            false => x,
        }
    }

    /// The residual connection around a sublayer, in two steps, so that the sublayer is not in a
    /// closure, which would lose the caller's line. This is the first: the input of the sublayer.
    #[track_caller]
    pub fn before(&self, x: &Tensor, norm: &LayerNorm) -> Tensor {
        if self.norm_first { norm.forward(x) } else { x.clone() }
    }

    /// The second: `x` plus the output of the sublayer.
    #[track_caller]
    pub fn after(&self, x: &Tensor, made: Tensor, norm: &LayerNorm) -> Tensor {
        let sum = x + self.drop(made);
        if self.norm_first { sum } else { norm.forward(&sum) }
    }

    /// The feed-forward part.
    #[track_caller]
    pub fn feed_forward(&self, x: &Tensor, linear1: &Linear, linear2: &Linear) -> Tensor {
        let inner = linear1.forward(x);
        let inner = if self.gelu { inner.gelu() } else { inner.relu() };
        linear2.forward(&self.drop(inner))
    }
}
