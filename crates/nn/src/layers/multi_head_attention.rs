//! Multi-head attention, with caches for decoding.

use super::attention_masks::{AttentionMasks, added};
use super::dropout::probability;
use super::key_value_cache::{KeyValueCache, KeyValues};
use super::rotary::Rotary;
use crate::init::xavier_uniform_;
use crate::refuse::refuse;
use crate::{Layer, Linear, ModuleScope, module_scope};
use pullback::{Attention, Error, Flag, Tensor, Tree, next_key_on, with_default_device};

/// The options of a [`MultiHeadAttention`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AttentionConfig, AttentionMasks, Module, Rotary};
/// // Eight heads of queries share two of keys and values, with rotary positions.
/// let attention = AttentionConfig::new(64, 8).kv_heads(2).rotary(Rotary::new(8)).build();
/// let x = Tensor::ones([1, 5, 64]);
/// let y = attention.forward(&x, &x, &x, AttentionMasks::new().causal());
/// assert_eq!(y.shape(), [1, 5, 64]);
/// let names: Vec<String> =
///     attention.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct AttentionConfig {
    embed: usize,
    heads: usize,
    kv_heads: Option<usize>,
    kdim: Option<usize>,
    vdim: Option<usize>,
    bias: bool,
    dropout: f64,
    rotary: Option<Rotary>,
}

impl AttentionConfig {
    /// With inputs and outputs of `embed_dim` features, divided among the heads.
    ///
    /// ```
    /// # use pullback_nn::AttentionConfig;
    /// let attention = AttentionConfig::new(64, 8).build();
    /// assert_eq!(attention.in_proj_weight.unwrap().shape(), [3 * 64, 64]);
    /// ```
    pub fn new(embed_dim: usize, num_heads: usize) -> AttentionConfig {
        AttentionConfig {
            embed: embed_dim,
            heads: num_heads,
            kv_heads: None,
            kdim: None,
            vdim: None,
            bias: true,
            dropout: 0.0,
            rotary: None,
        }
    }

    /// Grouped-query attention: fewer heads of keys and values than of queries, each shared by the
    /// same number of query heads.
    ///
    /// ```
    /// # use pullback_nn::AttentionConfig;
    /// let attention = AttentionConfig::new(64, 8).kv_heads(2).build();
    /// // 64 rows for queries, 2·8 for keys and 2·8 for values.
    /// assert_eq!(attention.in_proj_weight.unwrap().shape(), [96, 64]);
    /// ```
    pub fn kv_heads(self, heads: usize) -> AttentionConfig {
        AttentionConfig { kv_heads: Some(heads), ..self }
    }

    /// The number of features of keys; `embed_dim` by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionConfig, AttentionMasks};
    /// let attention = AttentionConfig::new(8, 2).kdim(5).build();
    /// let (q, k, v) = (Tensor::ones([1, 3, 8]), Tensor::ones([1, 4, 5]), Tensor::ones([1, 4, 8]));
    /// assert_eq!(attention.forward(&q, &k, &v, AttentionMasks::new()).shape(), [1, 3, 8]);
    /// ```
    pub fn kdim(self, features: usize) -> AttentionConfig {
        AttentionConfig { kdim: Some(features), ..self }
    }

    /// The number of features of values; `embed_dim` by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionConfig, AttentionMasks};
    /// let attention = AttentionConfig::new(8, 2).vdim(6).build();
    /// let (q, k, v) = (Tensor::ones([1, 3, 8]), Tensor::ones([1, 4, 8]), Tensor::ones([1, 4, 6]));
    /// assert_eq!(attention.forward(&q, &k, &v, AttentionMasks::new()).shape(), [1, 3, 8]);
    /// ```
    pub fn vdim(self, features: usize) -> AttentionConfig {
        AttentionConfig { vdim: Some(features), ..self }
    }

    /// Without biases.
    ///
    /// ```
    /// # use pullback_nn::AttentionConfig;
    /// let attention = AttentionConfig::new(8, 2).without_bias().build();
    /// assert!(attention.in_proj_bias.is_none() && attention.out_proj.bias.is_none());
    /// ```
    #[doc(alias = "bias")]
    pub fn without_bias(self) -> AttentionConfig {
        AttentionConfig { bias: false, ..self }
    }

    /// The probability with which attention weights are dropped in training; 0 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionConfig, AttentionMasks, Module};
    /// let (attention, x) =
    ///     (AttentionConfig::new(8, 2).dropout(0.1).build(), Tensor::ones([1, 3, 8]));
    /// attention.eval();
    /// assert_eq!(attention.forward(&x, &x, &x, AttentionMasks::new()).shape(), [1, 3, 8]);
    /// ```
    pub fn dropout(self, p: f64) -> AttentionConfig {
        AttentionConfig { dropout: p, ..self }
    }

    /// Applies rotary position embeddings to queries and keys.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionConfig, AttentionMasks, Rotary};
    /// let attention = AttentionConfig::new(64, 8).rotary(Rotary::new(8)).build();
    /// let x = Tensor::ones([1, 5, 64]);
    /// let y = attention.forward(&x, &x, &x, AttentionMasks::new().causal());
    /// assert_eq!(y.shape(), [1, 5, 64]);
    /// ```
    pub fn rotary(self, rotary: Rotary) -> AttentionConfig {
        AttentionConfig { rotary: Some(rotary), ..self }
    }

    /// The layer, with PyTorch's initialisation: Xavier uniform weights for queries, keys and
    /// values, biases of 0.
    ///
    /// ```
    /// # use pullback_nn::AttentionConfig;
    /// let attention = AttentionConfig::new(8, 2).dropout(0.1).build();
    /// assert_eq!(attention.out_proj.weight.shape(), [8, 8]);
    /// ```
    ///
    /// # Panics
    /// If the number of features is not a multiple of the number of heads, the number of query
    /// heads is not a multiple of that of key heads, or the dropout is not a probability.
    #[track_caller]
    #[must_use]
    pub fn build(self) -> MultiHeadAttention {
        let AttentionConfig { embed, heads, bias, dropout, rotary, .. } = self;
        let dropout = probability(NAME, dropout);
        let kv_heads = self.kv_heads.unwrap_or(heads);
        if heads == 0 || embed % heads != 0 {
            let message = format!("{embed} features are not divisible by {heads} heads");
            refuse(Error::argument(NAME, message));
        }
        if kv_heads == 0 || heads % kv_heads != 0 {
            let message = format!("{heads} heads of queries cannot share {kv_heads} of keys");
            refuse(Error::argument(NAME, message));
        }
        let (kdim, vdim) = (self.kdim.unwrap_or(embed), self.vdim.unwrap_or(embed));
        let keys = embed / heads * kv_heads;
        let packed = kdim == embed && vdim == embed;
        let weight = |rows: usize, columns: usize| {
            let weight = Tensor::zeros([rows, columns]).requires_grad();
            xavier_uniform_(&weight, 1.0);
            weight
        };
        let zeros = |n: usize| Tensor::zeros([n]).requires_grad();
        let out_proj = Linear { bias: bias.then(|| zeros(embed)), ..Linear::new(embed, embed) };
        MultiHeadAttention {
            q_proj_weight: (!packed).then(|| weight(embed, embed)),
            k_proj_weight: (!packed).then(|| weight(keys, kdim)),
            v_proj_weight: (!packed).then(|| weight(keys, vdim)),
            in_proj_weight: packed.then(|| weight(embed + 2 * keys, embed)),
            in_proj_bias: bias.then(|| zeros(embed + 2 * keys)),
            out_proj,
            heads,
            kv_heads,
            dropout,
            rotary,
            training: Flag::new(true),
        }
    }
}

const NAME: &str = "MultiHeadAttention";

/// Attention of several heads, PyTorch's `nn.MultiheadAttention` with `batch_first=True`: inputs
/// are `[batch, positions, features]`, or `[positions, features]`. [`AttentionConfig`] has the
/// options.
///
/// The scores are never stored, unless [`MultiHeadAttention::forward_with_weights`] is called for
/// them. A query that sees no key gives zeros (before the last projection), where PyTorch may give
/// NaN.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AttentionMasks, MultiHeadAttention};
/// let (attention, x) = (MultiHeadAttention::new(8, 2), Tensor::randn([2, 3, 8]));
/// let memory = Tensor::randn([2, 5, 8]);
/// // Self-attention and cross-attention.
/// assert_eq!(attention.forward(&x, &x, &x, AttentionMasks::new().causal()).shape(), [2, 3, 8]);
/// assert_eq!(attention.forward(&x, &memory, &memory, AttentionMasks::new()).shape(), [2, 3, 8]);
/// ```
#[derive(Clone, Tree)]
pub struct MultiHeadAttention {
    /// The weights for queries, where keys or values have another number of features.
    pub q_proj_weight: Option<Tensor>,
    /// The weights for keys, in that case.
    pub k_proj_weight: Option<Tensor>,
    /// The weights for values, in that case.
    pub v_proj_weight: Option<Tensor>,
    /// The concatenated weights for queries, keys and values, otherwise.
    pub in_proj_weight: Option<Tensor>,
    /// The biases of queries, keys and values.
    pub in_proj_bias: Option<Tensor>,
    /// The output projection.
    pub out_proj: Linear,
    heads: usize,
    kv_heads: usize,
    dropout: f64,
    rotary: Option<Rotary>,
    training: Flag,
}

/// Queries, keys and values by heads, `[batch, heads, positions, features]`.
struct ByHeads {
    q: Tensor,
    k: Tensor,
    v: Tensor,
}

impl MultiHeadAttention {
    /// With biases, and as many heads of keys and values as of queries; [`AttentionConfig`] has the
    /// options.
    ///
    /// ```
    /// # use pullback_nn::MultiHeadAttention;
    /// let attention = MultiHeadAttention::new(64, 8);
    /// assert_eq!(attention.in_proj_weight.unwrap().shape(), [192, 64]);
    /// ```
    ///
    /// # Panics
    /// If the number of features is not a multiple of the number of heads.
    #[track_caller]
    #[must_use]
    pub fn new(embed_dim: usize, num_heads: usize) -> MultiHeadAttention {
        AttentionConfig::new(embed_dim, num_heads).build()
    }

    /// The attention output: from queries `[batch, queries, embed]`, keys `[batch, keys, kdim]` and
    /// values `[batch, keys, vdim]` to `[batch, queries, embed]`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, MultiHeadAttention};
    /// let attention = MultiHeadAttention::new(8, 2);
    /// let (q, kv) = (Tensor::ones([2, 3, 8]), Tensor::ones([2, 5, 8]));
    /// assert_eq!(attention.forward(&q, &kv, &kv, AttentionMasks::new()).shape(), [2, 3, 8]);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn forward(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        masks: AttentionMasks,
    ) -> Tensor {
        let scope = module_scope(self);
        let x = self.by_heads(query, key, value, 0);
        let mask = masks.merged(x.q.shape()[0], self.heads, x.q.dtype());
        let dropping = self.dropout > 0.0 && self.training.get();
        let random = if dropping { Some(next_key_on(x.q.device())) } else { None };
        let mut how = Attention::new().grouped();
        if masks.causal {
            how = how.causal();
        }
        if let Some(mask) = &mask {
            how = how.mask(mask);
        }
        if let Some(random) = &random {
            how = how.dropout(self.dropout, random);
        }
        self.out(&scope, &x.q.attention(&x.k, &x.v, how), (&x.q, &x.k), query.rank())
    }

    /// [`MultiHeadAttention::forward`], and the attention weights: `[batch, queries, keys]`
    /// averaged over the heads, or `[batch, heads, queries, keys]`. It stores the scores.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, MultiHeadAttention};
    /// let attention = MultiHeadAttention::new(8, 2);
    /// let (q, kv) = (Tensor::ones([2, 3, 8]), Tensor::ones([2, 5, 8]));
    /// let (y, weights) =
    ///     attention.forward_with_weights(&q, &kv, &kv, AttentionMasks::new(), false);
    /// assert_eq!((y.shape(), weights.shape()), (&[2, 3, 8][..], &[2, 2, 3, 5][..]));
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn forward_with_weights(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        masks: AttentionMasks,
        average: bool,
    ) -> (Tensor, Tensor) {
        let scope = module_scope(self);
        let ByHeads { q, k, v } = self.by_heads(query, key, value, 0);
        let dtype = q.dtype();
        let times = self.heads / self.kv_heads;
        let (k, v) = (k.repeat_each(times, 1), v.repeat_each(times, 1));
        let features = q.shape()[3].max(1) as f64;
        let mut scores = q.matmul(&k.t()) * features.powf(-0.5);
        if masks.causal {
            let seen = k
                .new_arange(0, k.shape()[2] as i64)
                .le(q.new_arange(0, q.shape()[2] as i64).unsqueeze(1));
            scores += added(&seen, dtype);
        }
        if let Some(mask) = masks.merged(q.shape()[0], self.heads, dtype) {
            scores += added(&mask, dtype);
        }
        // A query that sees nothing has weights of 0, and passes no gradient.
        let sees = scores.detach().ne(f64::NEG_INFINITY).any_keep(-1);
        let weights = sees.select(sees.select(&scores, 0.0).softmax(-1), 0.0);
        let weights = match self.dropout > 0.0 && self.training.get() {
            true => weights.dropout(self.dropout, Some(&next_key_on(weights.device()))),
            false => weights,
        };
        let y = self.out(&scope, &weights.matmul(&v), (&q, &k), query.rank());
        let weights = if average { weights.mean_over(1) } else { weights };
        (y, if query.rank() == 2 { weights.squeeze_axis(0) } else { weights })
    }

    /// Incremental decoding: causal self-attention of the next positions `x`, `[batch, length,
    /// embed]`, to those in the cache and to themselves; their keys and values are appended to the
    /// cache. A prompt goes in at once, then position by position: together this gives what
    /// [`MultiHeadAttention::forward`] gives for the whole sequence, without dropout and without
    /// gradients.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, MultiHeadAttention};
    /// let (attention, x) = (MultiHeadAttention::new(8, 2), Tensor::randn([1, 4, 8]));
    /// let whole = attention.forward(&x, &x, &x, AttentionMasks::new().causal());
    /// let cache = attention.cache(1, 16);
    /// let _prompt = attention.decode(&x.narrow(1, 0, 3), &cache);
    /// let last = attention.decode(&x.narrow(1, 3, 1), &cache);
    /// assert!(last.is_close(&whole.narrow(1, 3, 1), 1e-4, 1e-5, false).all().item::<bool>());
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit, or the cache is full.
    #[track_caller]
    #[must_use]
    pub fn decode(&self, x: &Tensor, cache: &KeyValueCache) -> Tensor {
        let scope = module_scope(self);
        let x = x.detach();
        let mut new = self.projected(&x, &x, &x);
        if let Some(rotary) = &self.rotary {
            let positions = cache.next_positions(new.q.shape()[2]);
            new.q = rotary.rotate_at(&new.q, &positions);
            new.k = rotary.rotate_at(&new.k, &positions);
        }
        let seen = cache.append(&new.k, &new.v);
        let how = Attention::new().grouped().mask(&seen);
        let y = new.q.detach().attention(&cache.keys, &cache.values, how);
        self.out(&scope, &y, (&new.q, &cache.keys), x.rank()).detach()
    }

    /// [`MultiHeadAttention::decode`] with keys and values that are given and returned instead of
    /// overwritten, and through which gradients pass.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::MultiHeadAttention;
    /// let attention = MultiHeadAttention::new(8, 2);
    /// let (_, past) = attention.extend(&Tensor::ones([1, 3, 8]), None);
    /// let (y, past) = attention.extend(&Tensor::ones([1, 1, 8]), Some(&past));
    /// assert_eq!((y.shape(), past.positions()), (&[1, 1, 8][..], 4));
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn extend(&self, x: &Tensor, past: Option<&KeyValues>) -> (Tensor, KeyValues) {
        let scope = module_scope(self);
        let before = past.map_or(0, KeyValues::positions);
        let ByHeads { q, k, v } = self.by_heads(x, x, x, before);
        let all = match past {
            Some(past) => past.followed_by(&k, &v),
            None => KeyValues { keys: k, values: v },
        };
        let (length, keys) = (q.shape()[2] as i64, all.positions() as i64);
        let here = q.new_arange(before as i64, before as i64 + length).unsqueeze(1);
        let seen = q.new_arange(0, keys).le(here);
        let how = Attention::new().grouped().mask(&seen);
        let y = q.attention(&all.keys, &all.values, how);
        (self.out(&scope, &y, (&q, &all.keys), x.rank()), all)
    }

    /// An empty cache for [`MultiHeadAttention::decode`] with this batch size and number of
    /// positions.
    ///
    /// ```
    /// # use pullback_nn::MultiHeadAttention;
    /// let cache = MultiHeadAttention::new(8, 2).cache(1, 16);
    /// assert_eq!(cache.keys.shape(), [1, 2, 16, 4]);
    /// ```
    ///
    /// # Panics
    /// If the memory cannot be allocated.
    #[must_use]
    pub fn cache(&self, batch: usize, capacity: usize) -> KeyValueCache {
        let weight = &self.out_proj.weight;
        let features = weight.shape()[1] / self.heads;
        with_default_device(weight.device(), || {
            KeyValueCache::new(batch, self.kv_heads, capacity, features, weight.dtype())
        })
    }

    /// Projected, by heads, and rotated from position `offset` on.
    #[track_caller]
    fn by_heads(&self, query: &Tensor, key: &Tensor, value: &Tensor, offset: usize) -> ByHeads {
        let mut x = self.projected(query, key, value);
        if let Some(rotary) = &self.rotary {
            x.q = rotary.rotate(&x.q, offset);
            x.k = rotary.rotate(&x.k, offset);
        }
        x
    }

    #[track_caller]
    fn projected(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> ByHeads {
        let all = [query, key, value];
        let wants = self.widths();
        for (name, (x, want)) in ["queries", "keys", "values"].iter().zip(all.iter().zip(wants)) {
            let fits = (2..=3).contains(&x.rank()) && x.rank() == query.rank();
            if !fits || x.shape()[x.rank() - 1] != want {
                let message = format!(
                    "{name} are [batch, positions, {want}] or [positions, {want}], not {}",
                    x.spec()
                );
                refuse(Error::shape(NAME, message).on(all.map(Tensor::spec)));
            }
        }
        let parts = self.parts();
        let mut made = Vec::with_capacity(3);
        match &self.in_proj_weight {
            // One product for all three, where they are made of one tensor.
            Some(weight) if query.is_same(key) && query.is_same(value) => {
                let y = query.linear(weight, self.in_proj_bias.as_ref());
                made.extend(parts.iter().map(|&(from, rows)| y.narrow(-1, from as isize, rows)));
            }
            packed => {
                let own = [&self.q_proj_weight, &self.k_proj_weight, &self.v_proj_weight];
                for (x, (own, (from, rows))) in all.into_iter().zip(own.into_iter().zip(parts)) {
                    let bias = self.in_proj_bias.as_ref().map(|b| b.narrow(0, from as isize, rows));
                    let packed = packed.as_ref().map(|w| w.narrow(0, from as isize, rows));
                    let Some(weight) = packed.or_else(|| own.clone()) else {
                        refuse(Error::argument(NAME, "some of its weights are missing"))
                    };
                    made.push(x.linear(&weight, bias.as_ref()));
                }
            }
        }
        let heads = [self.heads, self.kv_heads, self.kv_heads];
        let mut split = made.into_iter().zip(heads).map(|(x, heads)| {
            let x = if x.rank() == 2 { x.unsqueeze(0) } else { x };
            let features = x.shape()[2] / heads;
            x.unflatten(-1, [heads, features]).transpose(1, 2)
        });
        match (split.next(), split.next(), split.next()) {
            (Some(q), Some(k), Some(v)) => ByHeads { q, k, v },
            _ => unreachable!("three were made"),
        }
    }

    /// Where the rows of queries, keys and values begin among all, and how many there are.
    fn parts(&self) -> [(usize, usize); 3] {
        let embed = self.out_proj.weight.shape()[1];
        let keys = embed / self.heads * self.kv_heads;
        [(0, embed), (embed, keys), (embed + keys, keys)]
    }

    /// How many features queries, keys and values have.
    fn widths(&self) -> [usize; 3] {
        let embed = self.out_proj.weight.shape()[1];
        let of = |weight: &Option<Tensor>| weight.as_ref().map_or(embed, |w| w.shape()[1]);
        [embed, of(&self.k_proj_weight), of(&self.v_proj_weight)]
    }

    /// The heads side by side, through the last projection.
    #[track_caller]
    fn out(
        &self,
        scope: &ModuleScope<Self>,
        y: &Tensor,
        (q, k): (&Tensor, &Tensor),
        rank: usize,
    ) -> Tensor {
        let [batch, heads, queries, features] = [0, 1, 2, 3].map(|axis| q.shape()[axis]);
        let y = self.out_proj.forward(&y.transpose(1, 2).flatten(2, 3));
        let y = if rank == 2 { y.squeeze_axis(0) } else { y };
        scope.output_with_macs(y, |_| {
            let keys = k.shape()[2];
            let [embed, kdim, vdim] = self.widths();
            let width = |heads: usize| heads * features;
            let projections =
                queries * width(heads) * embed + keys * width(self.kv_heads) * (kdim + vdim);
            batch * (projections + 2 * queries * keys * width(heads))
        })
    }
}
