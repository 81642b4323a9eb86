//! A decoder-only transformer, and sampling from it.

use crate::init::normal_;
use crate::module::in_evaluation;
use crate::refuse::{demand, try_reserve};
use crate::{
    AttentionMasks, Dropout, Embedding, Layer, LayerNorm, Module, TransformerConfig,
    TransformerEncoderLayer, module_scope,
};
use pullback::{
    DType, Device, Error, Key, Result, Tensor, Tree, catch, cross_entropy, no_grad,
    with_default_device,
};
use serde::{Deserialize, Serialize};

/// The sizes of a [`Gpt`] or a [`Gpt2`](super::Gpt2).
///
/// ```
/// use pullback_nn::models::{Gpt, GptConfig};
/// let config = GptConfig { layers: 2, dropout: 0.1, ..GptConfig::default() };
/// assert_eq!((config.vocabulary, config.width, config.heads), (256, 128, 4));
/// let gpt = Gpt::new(&config);
/// assert_eq!(gpt.blocks.len(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GptConfig {
    /// The vocabulary size.
    pub vocabulary: usize,
    /// The context length: the longest sequence it takes.
    pub length: usize,
    /// The number of features.
    pub width: usize,
    /// The number of attention heads.
    pub heads: usize,
    /// The number of transformer blocks.
    pub layers: usize,
    /// The dropout probability.
    pub dropout: f64,
}

impl Default for GptConfig {
    fn default() -> GptConfig {
        GptConfig { vocabulary: 256, length: 64, width: 128, heads: 4, layers: 4, dropout: 0.0 }
    }
}

impl GptConfig {
    /// The sizes of GPT-2 124M, with the vocabulary rounded up from 50257 to a multiple of 128, and
    /// without dropout.
    ///
    /// ```
    /// use pullback_nn::models::GptConfig;
    /// let config = GptConfig::gpt2();
    /// assert_eq!((config.layers, config.width, config.length), (12, 768, 1024));
    /// assert_eq!(config.operations_per_token(), 6.0 * 124_475_904.0 + 12.0 * 12.0 * 768.0 * 1024.0);
    /// ```
    #[must_use]
    pub const fn gpt2() -> GptConfig {
        let (vocabulary, length) = (50304, 1024);
        GptConfig { vocabulary, length, width: 768, heads: 12, layers: 12, dropout: 0.0 }
    }

    /// Floating-point operations of a forward and a backward pass for each token of a full context,
    /// as model FLOP utilisation counts them: six for each parameter, and `12 · layers · width ·
    /// length` for attention, of which a causal mask needs half.
    ///
    /// ```
    /// use pullback_nn::Module;
    /// use pullback_nn::models::{Gpt2, GptConfig};
    /// let small = GptConfig { vocabulary: 16, width: 8, heads: 2, ..GptConfig::gpt2() };
    /// let parameters = Gpt2::new(&small).parameter_count() as f64;
    /// let attention = 12.0 * 12.0 * 8.0 * 1024.0;
    /// assert_eq!(small.operations_per_token(), 6.0 * parameters + attention);
    /// ```
    #[must_use]
    pub fn operations_per_token(&self) -> f64 {
        let [vocabulary, length, width, layers] =
            [self.vocabulary, self.length, self.width, self.layers].map(|n| n as f64);
        let block = 12.0 * width * width + 13.0 * width;
        let parameters = (vocabulary + length + 2.0) * width + layers * block;
        6.0 * parameters + 12.0 * layers * width * length
    }
}

/// A small GPT: pre-norm blocks with exact gelu, learned positions, one table for the embedding and
/// the logits.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::models::{Gpt, GptConfig, SamplingOptions};
/// let gpt = Gpt::new(&GptConfig {
///     vocabulary: 16,
///     length: 8,
///     width: 8,
///     heads: 2,
///     layers: 1,
///     dropout: 0.0,
/// });
/// let ids = Tensor::from([[1i64, 2, 3], [4, 5, 6]]);
/// assert_eq!(gpt.forward(&ids).shape(), [2, 3, 16]);
/// // More tokens than the context length: it continues from the later half.
/// assert_eq!(gpt.generate(&[1, 2, 3], 10, &SamplingOptions::default())?.len(), 13);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Tree)]
pub struct Gpt {
    /// The token embedding, tied to the output projection.
    pub token: Embedding,
    /// The position embedding.
    pub position: Embedding,
    /// The dropout after the embeddings.
    pub dropout: Dropout,
    /// The transformer blocks.
    pub blocks: Vec<TransformerEncoderLayer>,
    /// The layer normalisation before the logits.
    pub norm: LayerNorm,
}

/// How tokens are sampled.
///
/// ```
/// use pullback_nn::models::SamplingOptions;
/// // The most likely token at each position (greedy decoding).
/// let greedy = SamplingOptions { temperature: 0.0, ..SamplingOptions::default() };
/// assert_eq!(greedy.pick(&[0.1, 3.0, 0.2], 0), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingOptions {
    /// The temperature: logits are divided by it; 0 takes the most likely token.
    pub temperature: f64,
    /// The number of most likely tokens to sample from; all if `None`.
    pub top_k: Option<usize>,
    /// The seed of the random numbers.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> SamplingOptions {
        SamplingOptions { temperature: 1.0, top_k: None, seed: 0 }
    }
}

impl SamplingOptions {
    /// Samples the token of number `i` from these logits. The same seed and number give the same
    /// token.
    ///
    /// ```
    /// use pullback_nn::models::SamplingOptions;
    /// let logits = [0.0, 2f64.ln(), 0.0];
    /// assert_eq!(
    ///     SamplingOptions { temperature: 0.0, ..SamplingOptions::default() }.pick(&logits, 7),
    ///     1
    /// );
    /// assert_eq!(
    ///     SamplingOptions { top_k: Some(1), ..SamplingOptions::default() }.pick(&logits, 7),
    ///     1
    /// );
    /// // The second is twice as likely as each of the others.
    /// let seconds =
    ///     (0..1000).filter(|&i| SamplingOptions::default().pick(&logits, i) == 1).count();
    /// assert!((450..550).contains(&seconds), "{seconds}");
    /// ```
    ///
    /// # Panics
    /// If there are no logits.
    #[must_use]
    pub fn pick(&self, logits: &[f64], i: usize) -> i64 {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        if self.temperature == 0.0 {
            return order[0] as i64;
        }
        order.truncate(self.top_k.unwrap_or(usize::MAX).max(1));
        let weight = |token: usize| ((logits[token] - logits[order[0]]) / self.temperature).exp();
        let total: f64 = order.iter().map(|&token| weight(token)).sum();
        let drawn = || Key::new(self.seed).fold_in(i as u64).uniform([1], DType::F64, 0.0, 1.0);
        let uniform = with_default_device(Device::Cpu, || drawn().item::<f64>());
        let mut left = uniform * total;
        for &token in &order {
            left -= weight(token);
            if left <= 0.0 {
                return token as i64;
            }
        }
        order[order.len() - 1] as i64
    }
}

impl Gpt {
    /// With GPT-2's initialisation: normal with standard deviation 0.02, divided by √(2·layers) in
    /// the projections whose outputs are added to the residual stream.
    ///
    /// ```
    /// # use pullback_nn::Module;
    /// # use pullback_nn::models::{Gpt, GptConfig};
    /// let config =
    ///     GptConfig { vocabulary: 16, length: 8, width: 8, heads: 2, layers: 1, dropout: 0.0 };
    /// let gpt = Gpt::new(&config);
    /// assert_eq!(gpt.named_parameters()[0].0, "token.weight");
    /// ```
    ///
    /// # Panics
    /// If a size is 0 or `width` is not a multiple of `heads`.
    #[track_caller]
    #[must_use]
    pub fn new(config: &GptConfig) -> Gpt {
        let GptConfig { vocabulary, length, width, heads, layers, dropout } = *config;
        let block = TransformerConfig::new(width, heads).dim_feedforward(4 * width);
        let block = block.dropout(dropout).gelu().norm_first();
        let mut blocks = try_reserve("Gpt", layers);
        for _ in 0..layers {
            blocks.push(block.encoder_layer());
        }
        let gpt = Gpt {
            token: Embedding::new(vocabulary, width),
            position: Embedding::new(length, width),
            dropout: Dropout::new(dropout),
            blocks,
            norm: LayerNorm::new([width]),
        };
        for (name, x) in gpt.named_parameters() {
            let adds = name.ends_with("out_proj.weight") || name.ends_with("linear2.weight");
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
    /// # use pullback_nn::models::{Gpt, GptConfig};
    /// let gpt = Gpt::new(&GptConfig { length: 8, width: 8, layers: 1, ..GptConfig::default() });
    /// assert_eq!(gpt.length(), 8);
    /// ```
    #[must_use]
    pub fn length(&self) -> usize {
        self.position.weight.shape()[0]
    }

    /// The logits of the next token at each position: from `[batch, positions]` to
    /// `[batch, positions, vocabulary]`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::models::{Gpt, GptConfig};
    /// let gpt = Gpt::new(&GptConfig { length: 8, width: 8, layers: 1, ..GptConfig::default() });
    /// assert_eq!(gpt.forward(&Tensor::from([[72i64, 101, 108]])).shape(), [1, 3, 256]);
    /// ```
    ///
    /// # Panics
    /// If the tokens are not integers below the vocabulary size, or more than [`Gpt::length`]; the
    /// message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn forward(&self, ids: &Tensor) -> Tensor {
        let _scope = module_scope(self);
        let mut x = self.dropout.forward(&self.embedded(ids, 0));
        for block in &self.blocks {
            x = block.forward_masked(&x, AttentionMasks::new().causal());
        }
        self.logits(&x)
    }

    /// The language-modelling loss: the mean cross-entropy, in nats, of predicting the tokens
    /// `next`, `[batch, positions]`, from `ids` of the same shape.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::models::{Gpt, GptConfig};
    /// let gpt = Gpt::new(&GptConfig { length: 8, width: 8, layers: 1, ..GptConfig::default() });
    /// let loss = gpt.loss(&Tensor::from([[1i64, 2, 3]]), &Tensor::from([[2i64, 3, 4]]));
    /// // An untrained model is about uniform over the 256 tokens.
    /// assert!((loss.item::<f32>() - 256f32.ln()).abs() < 0.5);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn loss(&self, ids: &Tensor, next: &Tensor) -> Tensor {
        cross_entropy(&self.forward(ids).flatten(0, 1), &next.flatten(0, -1))
    }

    /// Samples `count` tokens after the prompt, in evaluation mode, and gives the prompt and the
    /// tokens. Keys and values are cached, so each token computes one position; where the context
    /// is full, it continues from its later half.
    ///
    /// ```
    /// # use pullback_nn::models::{Gpt, GptConfig, SamplingOptions};
    /// let gpt = Gpt::new(&GptConfig { length: 8, width: 8, layers: 1, ..GptConfig::default() });
    /// let tokens = gpt.generate(&[72, 101], 3, &SamplingOptions::default())?;
    /// assert_eq!((tokens.len(), &tokens[..2]), (5, &[72, 101][..]));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the prompt is empty or contains a number that is not a token, or the temperature is
    /// negative or not finite.
    pub fn generate(
        &self,
        prompt: &[i64],
        count: usize,
        how: &SamplingOptions,
    ) -> Result<Vec<i64>> {
        if prompt.is_empty() {
            return Err(Error::argument("generate", "needs a prompt of at least one token"));
        }
        if !how.temperature.is_finite() || how.temperature < 0.0 {
            let message =
                format!("the temperature must be a number of at least 0, not {}", how.temperature);
            return Err(Error::argument("generate", message));
        }
        in_evaluation(self, || catch(|| no_grad(|| self.draw(prompt, count, how))))
    }

    fn draw(&self, prompt: &[i64], count: usize, how: &SamplingOptions) -> Vec<i64> {
        let length = self.length();
        let caches: Vec<_> =
            self.blocks.iter().map(|block| block.self_attn.cache(1, length)).collect();
        let (mut all, mut read) = (prompt.to_vec(), 0);
        let mut unread = all[all.len().saturating_sub(length)..].to_vec();
        for i in 0..count {
            if read + unread.len() > length {
                caches.iter().for_each(|cache| cache.reset());
                unread = all[all.len() - length.div_ceil(2)..].to_vec();
                read = 0;
            }
            let ids = self.token.weight.new_from_vec(&unread, [1, unread.len()]);
            let mut x = self.embedded(&ids, read);
            for (block, cache) in self.blocks.iter().zip(&caches) {
                x = block.decode(&x, cache);
            }
            read += unread.len();
            let logits = self.logits(&x.at((0, -1)));
            let token = how.pick(&logits.to_f64_vec(), i);
            all.push(token);
            unread = vec![token];
        }
        all
    }

    /// Tokens with their positions, which begin at `from`.
    #[track_caller]
    fn embedded(&self, ids: &Tensor, from: usize) -> Tensor {
        let positions = ids.shape().last().copied().unwrap_or(0);
        demand(positions <= self.length(), "Gpt", || {
            format!("reads at most {} positions, not {}", self.length(), ids.spec())
        });
        self.token.forward(ids) + self.position.weight.narrow(0, from as isize, positions)
    }

    #[track_caller]
    fn logits(&self, x: &Tensor) -> Tensor {
        self.norm.forward(x).matmul(&self.token.weight.t())
    }
}
