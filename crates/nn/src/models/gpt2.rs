//! GPT-2, as it was published.

use super::GptConfig;
use crate::init::normal_;
use crate::refuse::{demand, try_reserve};
use crate::{
    AttentionConfig, AttentionMasks, Dropout, Embedding, KeyValueCache, Layer, LayerNorm, Linear,
    Module, MultiHeadAttention, module_scope,
};
use pullback::{Tensor, Tree, cross_entropy, no_grad};

/// GPT-2: pre-norm blocks with the tanh form of gelu, learned positions, one table for the
/// embedding and the logits. [`GptConfig::gpt2`] has the sizes of the smallest.
///
/// Parameters have the names of HuggingFace's model without `transformer.` before them (`wte`,
/// `h.0.ln_1`, `h.0.mlp.c_fc`), except in the attention, which has PyTorch's
/// (`h.0.attn.in_proj_weight`, `h.0.attn.out_proj.weight`). Weights of `c_fc` and `c_proj` are
/// `[out, in]` as those of every [`Linear`], and HuggingFace's are their transposes.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::Module;
/// use pullback_nn::models::{Gpt2, GptConfig};
/// let small = GptConfig { vocabulary: 100, length: 8, width: 8, heads: 2, ..GptConfig::gpt2() };
/// let gpt = Gpt2::new(&small);
/// assert_eq!(gpt.forward(&Tensor::from([[1i64, 2, 3]])).shape(), [1, 3, 100]);
/// assert!(gpt.named_parameters().iter().any(|(name, _)| name == "h.11.mlp.c_proj.weight"));
/// ```
#[derive(Clone, Tree)]
pub struct Gpt2 {
    /// The token embedding, tied to the output projection.
    pub wte: Embedding,
    /// The position embedding.
    pub wpe: Embedding,
    /// The dropout after the embeddings.
    pub drop: Dropout,
    /// The blocks.
    pub h: Vec<Gpt2Block>,
    /// The layer normalisation before the logits.
    pub ln_f: LayerNorm,
}

/// A block of [`Gpt2`]: causal attention, then a feed-forward network, each of a normalised input
/// and added to it.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::Layer;
/// use pullback_nn::models::Gpt2Block;
/// let block = Gpt2Block::new(8, 2, 0.1);
/// assert_eq!(block.forward(&Tensor::zeros([1, 5, 8])).shape(), [1, 5, 8]);
/// ```
#[derive(Clone, Tree)]
pub struct Gpt2Block {
    /// The normalisation before the attention.
    pub ln_1: LayerNorm,
    /// The attention.
    pub attn: MultiHeadAttention,
    /// The normalisation before the feed-forward network.
    pub ln_2: LayerNorm,
    /// The feed-forward network.
    pub mlp: Gpt2Mlp,
    /// The dropout of what both add.
    pub drop: Dropout,
}

/// The feed-forward network of a [`Gpt2Block`], four times as wide inside.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, Linear};
/// use pullback_nn::models::Gpt2Mlp;
/// let mlp = Gpt2Mlp { c_fc: Linear::new(8, 32), c_proj: Linear::new(32, 8) };
/// assert_eq!(mlp.forward(&Tensor::zeros([5, 8])).shape(), [5, 8]);
/// ```
#[derive(Clone, Tree)]
pub struct Gpt2Mlp {
    /// To the inside.
    pub c_fc: Linear,
    /// And back.
    pub c_proj: Linear,
}

impl Layer for Gpt2Mlp {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(self.c_proj.forward(&self.c_fc.forward(x).gelu_tanh()))
    }
}

impl Gpt2Block {
    /// With the initialisation of its layers.
    ///
    /// ```
    /// # use pullback_nn::Module;
    /// # use pullback_nn::models::Gpt2Block;
    /// assert_eq!(Gpt2Block::new(768, 12, 0.0).parameter_count(), 7_087_872);
    /// ```
    ///
    /// # Panics
    /// If a size is 0, `width` is not a multiple of `heads`, or `dropout` is no probability.
    #[track_caller]
    #[must_use]
    pub fn new(width: usize, heads: usize, dropout: f64) -> Gpt2Block {
        Gpt2Block {
            ln_1: LayerNorm::new([width]),
            attn: AttentionConfig::new(width, heads).dropout(dropout).build(),
            ln_2: LayerNorm::new([width]),
            mlp: Gpt2Mlp {
                c_fc: Linear::new(width, 4 * width),
                c_proj: Linear::new(4 * width, width),
            },
            drop: Dropout::new(dropout),
        }
    }

    /// New positions, after those of the cache: without gradients, masks or dropout.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::models::Gpt2Block;
    /// let block = Gpt2Block::new(8, 2, 0.0);
    /// let cache = block.attn.cache(1, 16);
    /// assert_eq!(block.decode(&Tensor::zeros([1, 1, 8]), &cache).shape(), [1, 1, 8]);
    /// assert_eq!(cache.position.item::<i64>(), 1);
    /// ```
    ///
    /// # Panics
    /// If shapes do not fit, or the cache has no room.
    #[track_caller]
    #[must_use]
    pub fn decode(&self, x: &Tensor, cache: &KeyValueCache) -> Tensor {
        let x = x + self.attn.decode(&self.ln_1.forward(x), cache);
        &x + self.mlp.forward(&self.ln_2.forward(&x))
    }
}

impl Layer for Gpt2Block {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = self.ln_1.forward(x);
        let y = self.attn.forward(&y, &y, &y, AttentionMasks::new().causal());
        let x = x + self.drop.forward(&y);
        let y = self.mlp.forward(&self.ln_2.forward(&x));
        scope.output(&x + self.drop.forward(&y))
    }
}

impl Gpt2 {
    /// With GPT-2's initialisation: normal with standard deviation 0.02, divided by √(2·layers) in
    /// the projections whose outputs are added to the residual stream; biases are 0.
    ///
    /// ```
    /// # use pullback_nn::Module;
    /// # use pullback_nn::models::{Gpt2, GptConfig};
    /// let small = GptConfig { vocabulary: 16, width: 8, heads: 2, layers: 1, ..GptConfig::gpt2() };
    /// assert_eq!(Gpt2::new(&small).named_parameters()[0].0, "wte.weight");
    /// ```
    ///
    /// # Panics
    /// If a size is 0, `width` is not a multiple of `heads`, or `dropout` is no probability.
    #[track_caller]
    #[must_use]
    pub fn new(config: &GptConfig) -> Gpt2 {
        let GptConfig { vocabulary, length, width, heads, layers, dropout } = *config;
        let mut h = try_reserve("Gpt2", layers);
        for _ in 0..layers {
            h.push(Gpt2Block::new(width, heads, dropout));
        }
        let gpt = Gpt2 {
            wte: Embedding::new(vocabulary, width),
            wpe: Embedding::new(length, width),
            drop: Dropout::new(dropout),
            h,
            ln_f: LayerNorm::new([width]),
        };
        for (name, x) in gpt.named_parameters() {
            let adds = name.ends_with("out_proj.weight") || name.ends_with("c_proj.weight");
            if x.rank() == 2 {
                normal_(&x, 0.0, if adds { 0.02 / (2.0 * layers as f64).sqrt() } else { 0.02 });
            } else if name.ends_with("bias") {
                no_grad(|| x.zero_());
            }
        }
        gpt
    }

    /// The context length: the longest sequence it takes.
    ///
    /// ```
    /// # use pullback_nn::models::{Gpt2, GptConfig};
    /// let small = GptConfig { vocabulary: 16, width: 8, heads: 2, layers: 1, ..GptConfig::gpt2() };
    /// assert_eq!(Gpt2::new(&small).length(), 1024);
    /// ```
    #[must_use]
    pub fn length(&self) -> usize {
        self.wpe.weight.shape()[0]
    }

    /// The logits of the next token at each position: from `[batch, positions]` to
    /// `[batch, positions, vocabulary]`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::models::{Gpt2, GptConfig};
    /// let small = GptConfig { vocabulary: 16, width: 8, heads: 2, layers: 1, ..GptConfig::gpt2() };
    /// assert_eq!(Gpt2::new(&small).forward(&Tensor::from([[1i64, 2]])).shape(), [1, 2, 16]);
    /// ```
    ///
    /// # Panics
    /// If the tokens are not integers below the vocabulary size, or more than [`Gpt2::length`]; the
    /// message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn forward(&self, ids: &Tensor) -> Tensor {
        let _scope = module_scope(self);
        let positions = ids.shape().last().copied().unwrap_or(0);
        demand(positions <= self.length(), "Gpt2", || {
            format!("reads at most {} positions, not {}", self.length(), ids.spec())
        });
        let x = self.wte.forward(ids) + self.wpe.weight.narrow(0, 0, positions);
        let x = self.drop.forward(&x);
        self.logits(&self.h.iter().fold(x, |x, block| block.forward(&x)))
    }

    /// The language-modelling loss: the mean cross-entropy, in nats, of predicting the tokens
    /// `next`, `[batch, positions]`, from `ids` of the same shape.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::models::{Gpt2, GptConfig};
    /// let small = GptConfig { vocabulary: 16, width: 8, heads: 2, layers: 1, ..GptConfig::gpt2() };
    /// let loss = Gpt2::new(&small).loss(&Tensor::from([[1i64, 2]]), &Tensor::from([[2i64, 3]]));
    /// // An untrained model is about uniform over the 16 tokens.
    /// assert!((loss.item::<f32>() - 16f32.ln()).abs() < 0.5);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn loss(&self, ids: &Tensor, next: &Tensor) -> Tensor {
        cross_entropy(&self.forward(ids).flatten(0, 1), &next.flatten(0, -1))
    }

    /// Caches of keys and values, one for each block, with room for so many positions.
    ///
    /// ```
    /// # use pullback_nn::models::{Gpt2, GptConfig};
    /// let small = GptConfig { vocabulary: 16, width: 8, heads: 2, layers: 1, ..GptConfig::gpt2() };
    /// assert_eq!(Gpt2::new(&small).caches(1, 32)[0].keys.shape(), [1, 2, 32, 4]);
    /// ```
    #[must_use]
    pub fn caches(&self, batch: usize, capacity: usize) -> Vec<KeyValueCache> {
        self.h.iter().map(|block| block.attn.cache(batch, capacity)).collect()
    }

    /// The logits after one more token each, `[batch, 1]`, whose keys and values go to the caches:
    /// without gradients or dropout.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::models::{Gpt2, GptConfig};
    /// let small = GptConfig { vocabulary: 16, width: 8, heads: 2, layers: 1, ..GptConfig::gpt2() };
    /// let gpt = Gpt2::new(&small);
    /// let caches = gpt.caches(1, 32);
    /// let one_by_one = [3i64, 5].map(|id| gpt.decode(&Tensor::from([[id]]), &caches));
    /// let at_once = gpt.forward(&Tensor::from([[3i64, 5]]));
    /// let difference = (one_by_one[1].at((0, 0)) - at_once.at((0, 1))).abs().max();
    /// assert!(difference.item::<f32>() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// If shapes do not fit, or a cache has no room.
    #[track_caller]
    #[must_use]
    pub fn decode(&self, ids: &Tensor, caches: &[KeyValueCache]) -> Tensor {
        demand(caches.len() == self.h.len() && !caches.is_empty(), "Gpt2", || {
            format!("has {} blocks, and there are {} caches", self.h.len(), caches.len())
        });
        let place = caches[0].position.reshape([1, 1]);
        let x = self.wte.forward(ids) + self.wpe.forward(&place);
        let blocks = self.h.iter().zip(caches);
        self.logits(&blocks.fold(x, |x, (block, cache)| block.decode(&x, cache)))
    }

    #[track_caller]
    fn logits(&self, x: &Tensor) -> Tensor {
        self.ln_f.forward(x).linear(&self.wte.weight, None)
    }
}
