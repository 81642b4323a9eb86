//! Attention masks.

use crate::refuse::refuse;
use pullback::{DType, Error, Tensor};

/// The masks of attention. As in PyTorch's `nn.MultiheadAttention`, **true means hidden** in masks
/// of `bool`, and masks of floats are added to the scores. A key is seen only if all that is given
/// here lets it be.
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
    /// Every query sees every key.
    pub fn new() -> AttentionMasks<'a> {
        AttentionMasks::default()
    }

    /// For pairs of queries and keys: `[queries, keys]`, `[batch · heads, queries, keys]`, or what
    /// broadcasts to `[batch, heads, queries, keys]`.
    pub fn attn_mask(self, mask: &'a Tensor) -> AttentionMasks<'a> {
        AttentionMasks { attn_mask: Some(mask), ..self }
    }

    /// For keys: `[batch, keys]`, or `[keys]` without a batch.
    pub fn key_padding_mask(self, mask: &'a Tensor) -> AttentionMasks<'a> {
        AttentionMasks { key_padding_mask: Some(mask), ..self }
    }

    /// Query i sees the keys up to i.
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
                let message = format!("{} masks scores of {dtype}", mask.spec());
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
