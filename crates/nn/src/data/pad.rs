//! Batches of sequences of several lengths.

use super::Collate;
use pullback::{Error, Result, Scalar, Tensor, catch};

/// A collation for sequences `[length, ..]` of several lengths: shorter ones are padded with
/// `value` to the longest of the batch. A batch is the sequences `[batch, longest, ..]` and their
/// lengths, `i64[batch]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::pad_sequences;
///
/// let items = vec![Tensor::from([1i64, 2, 3]), Tensor::from([4i64])];
/// let (batch, lengths) = pad_sequences(-1)(items)?;
/// assert_eq!(batch.to_vec::<i64>(), [1, 2, 3, 4, -1, -1]);
/// assert_eq!(lengths.to_vec::<i64>(), [3, 1]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// The returned function fails if a sequence has no axis, differs from the first in dtype or in the
/// other axes, or its dtype cannot represent `value`.
#[doc(alias = "pad_sequence")]
pub fn pad_sequences(
    value: impl Into<Scalar>,
) -> impl Fn(Vec<Tensor>) -> Result<(Tensor, Tensor)> + Send + Sync + 'static {
    let value = value.into();
    move |items| {
        let mut lengths = Vec::with_capacity(items.len());
        for (i, x) in items.iter().enumerate() {
            let rest = x.shape().get(1..);
            if rest.is_none() || rest != items[0].shape().get(1..) || x.dtype() != items[0].dtype()
            {
                let message = format!(
                    "item {i} of the batch is {}, which padding along the first axis does not make fit to item 0, {}",
                    x.spec(),
                    items[0].spec()
                );
                return Err(Error::shape("pad_sequences", message));
            }
            lengths.push(x.shape()[0] as i64);
        }
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        let padded =
            items.iter().map(|x| fill_up(x, longest, value)).collect::<Result<Vec<_>>>()?;
        Ok((Tensor::collate(padded)?, Tensor::from(lengths)))
    }
}

fn fill_up(x: &Tensor, longest: usize, value: Scalar) -> Result<Tensor> {
    if value.adopt(x.dtype()) != x.dtype() {
        let message = format!("{value} cannot be represented in sequences of {}", x.dtype());
        return Err(Error::dtype("pad_sequences", message));
    }
    if x.shape()[0] == longest {
        return Ok(x.clone());
    }
    let mut padding = vec![(0, 0); x.rank()];
    padding[0].1 = longest - x.shape()[0];
    catch(|| x.pad_with(&padding, value))
}
