//! Attention masks.

use crate::refuse::refuse;
use pullback::{DType, Error, Tensor};

/// The masks of attention. As in PyTorch's `nn.MultiheadAttention`, **true means masked out** in
/// masks of `bool`, and masks of floats are added to the scores. A query attends to a key only if
/// no mask here excludes it.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AttentionMasks, MultiHeadAttention};
/// let (attention, x) = (MultiHeadAttention::new(8, 2), Tensor::ones([2, 3, 8]));
/// let padding = Tensor::from([[false, false, false], [false, false, true]]);
/// let masks = AttentionMasks::new().causal().key_padding_mask(&padding);
/// assert_eq!(attention.forward(&x, &x, &x, masks).shape(), [2, 3, 8]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct AttentionMasks<'a> {
    attn_mask: Option<&'a Tensor>,
    key_padding_mask: Option<&'a Tensor>,
    pub(super) causal: bool,
}

impl<'a> AttentionMasks<'a> {
    /// No masks: every query attends to every key.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, MultiHeadAttention};
    /// let (attention, x) = (MultiHeadAttention::new(8, 2), Tensor::ones([2, 3, 8]));
    /// assert_eq!(attention.forward(&x, &x, &x, AttentionMasks::new()).shape(), [2, 3, 8]);
    /// ```
    pub fn new() -> AttentionMasks<'a> {
        AttentionMasks::default()
    }

    /// A mask for pairs of queries and keys: `[queries, keys]`, `[batch · heads, queries, keys]`,
    /// or what broadcasts to `[batch, heads, queries, keys]`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, MultiHeadAttention};
    /// let (attention, x) = (MultiHeadAttention::new(8, 2), Tensor::randn([1, 2, 8]));
    /// // The first query does not attend to the second key: the same as `causal`.
    /// let mask = Tensor::from([[false, true], [false, false]]);
    /// let y = attention.forward(&x, &x, &x, AttentionMasks::new().attn_mask(&mask));
    /// let causal = attention.forward(&x, &x, &x, AttentionMasks::new().causal());
    /// assert!(y.is_close(&causal, 1e-5, 1e-6, false).all().item::<bool>());
    /// ```
    pub fn attn_mask(self, mask: &'a Tensor) -> AttentionMasks<'a> {
        AttentionMasks { attn_mask: Some(mask), ..self }
    }

    /// A mask for keys: `[batch, keys]`, or `[keys]` without a batch.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, MultiHeadAttention};
    /// let (attention, x) = (MultiHeadAttention::new(8, 2), Tensor::ones([2, 3, 8]));
    /// // The second sequence has two tokens and one of padding.
    /// let padding = Tensor::from([[false, false, false], [false, false, true]]);
    /// let masks = AttentionMasks::new().key_padding_mask(&padding);
    /// let (_, weights) = attention.forward_with_weights(&x, &x, &x, masks, true);
    /// assert_eq!(weights.at((1, 0, 2)).item::<f32>(), 0.0);
    /// ```
    pub fn key_padding_mask(self, mask: &'a Tensor) -> AttentionMasks<'a> {
        AttentionMasks { key_padding_mask: Some(mask), ..self }
    }

    /// Query i attends to the keys up to i.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AttentionMasks, MultiHeadAttention};
    /// let (attention, x) = (MultiHeadAttention::new(8, 2), Tensor::ones([1, 3, 8]));
    /// let masks = AttentionMasks::new().causal();
    /// let (_, weights) = attention.forward_with_weights(&x, &x, &x, masks, true);
    /// assert_eq!(weights.at((0, 0)).to_vec::<f32>(), [1.0, 0.0, 0.0]);
    /// ```
    #[doc(alias = "is_causal")]
    pub fn causal(self) -> AttentionMasks<'a> {
        AttentionMasks { causal: true, ..self }
    }

    /// Both masks as one that broadcasts to the scores `[batch, heads, queries, keys]`: of `bool`,
    /// true where a query attends, or of floats.
    #[track_caller]
    pub(super) fn merged(&self, batch: usize, heads: usize, dtype: DType) -> Option<Tensor> {
        let pairs = match self.attn_mask {
            Some(mask) if mask.rank() == 3 => {
                if mask.shape()[0] != batch * heads {
                    let message = format!(
                        "a mask of three axes is [batch · heads, queries, keys], for {batch} · {heads}, not {}",
                        mask.spec()
                    );
                    refuse(Error::shape("attn_mask", message).on([mask.spec()]));
                }
                Some(mask.unflatten(0, [batch, heads]))
            }
            other => other.cloned(),
        };
        let keys = match self.key_padding_mask {
            Some(mask) => {
                if !(mask.rank() == 2 && mask.shape()[0] == batch || mask.rank() == 1 && batch == 1)
                {
                    let message =
                        format!("is [batch, keys], for a batch of {batch}, not {}", mask.spec());
                    refuse(Error::shape("key_padding_mask", message).on([mask.spec()]));
                }
                Some(mask.reshape([batch as isize, 1, 1, -1]))
            }
            None => None,
        };
        let wide = |x: DType| x == DType::F64;
        for mask in pairs.iter().chain(&keys).filter(|x| x.dtype().is_float()) {
            if wide(mask.dtype()) != wide(dtype) {
                let message = format!(
                    "the mask {} must be bool, or f64 if and only if the scores are: they are {dtype}",
                    mask.spec()
                );
                let hint = format!("cast it, `mask.cast(DType::{dtype:?})`, or give one of bool");
                refuse(Error::dtype("attn_mask", message).on([mask.spec()]).hint(hint));
            }
        }
        // Hidden becomes seen.
        let seen = |mask: Tensor| match mask.dtype() {
            DType::Bool => mask.logical_not(),
            _ => mask,
        };
        match (pairs.map(seen), keys.map(seen)) {
            (Some(a), Some(b)) if a.dtype() == DType::Bool && b.dtype() == DType::Bool => {
                Some(a.logical_and(b))
            }
            (Some(a), Some(b)) => Some(added(&a, dtype) + added(&b, dtype)),
            (a, b) => a.or(b),
        }
    }
}

/// A mask as what is added to scores.
#[track_caller]
pub(super) fn added(mask: &Tensor, dtype: DType) -> Tensor {
    match mask.dtype() {
        DType::Bool => {
            let zero = mask.new_zeros_with((), dtype);
            mask.select(zero, f64::NEG_INFINITY)
        }
        _ => mask.cast(dtype),
    }
}
