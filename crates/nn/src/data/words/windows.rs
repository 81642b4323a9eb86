use crate::data::Dataset;
use crate::data::dataset::check_index;
use pullback::{Error, Result, Tensor};

/// Windows of a text for predicting the next token: item `i` is the `block` tokens from position
/// `i` on, and the targets, the same window one token later.
///
/// ```
/// use pullback_nn::data::{Dataset, TextWindows};
/// let windows = TextWindows::new(vec![5, 6, 7, 8, 9], 3)?;
/// assert_eq!(windows.len(), 2);
/// let (x, y) = windows.get(1)?;
/// assert_eq!(x.to_vec::<i64>(), [6, 7, 8]);
/// assert_eq!(y.to_vec::<i64>(), [7, 8, 9]);
/// # Ok::<(), pullback::Error>(())
/// ```
pub struct TextWindows {
    tokens: Tensor,
    block: usize,
    stride: usize,
}

impl TextWindows {
    /// All windows of `block` tokens that have a next token.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, TextWindows};
    /// assert_eq!(TextWindows::new(vec![5, 6, 7, 8, 9], 2)?.len(), 3);
    /// assert!(TextWindows::new(vec![5, 6], 2).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `block` is 0, or there are not more than `block` tokens.
    pub fn new(tokens: impl Into<Vec<i64>>, block: usize) -> Result<TextWindows> {
        let tokens = tokens.into();
        if block == 0 || tokens.len() <= block {
            let n = tokens.len();
            let message =
                format!("{n} tokens are too few for a window of {block} and the token after it");
            return Err(Error::argument("TextWindows", message));
        }
        Ok(TextWindows { tokens: Tensor::from(tokens), block, stride: 1 })
    }

    /// A window every `stride` tokens (at least 1); 1 by default. With the length of the block,
    /// each token is predicted once.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, TextWindows};
    /// let windows = TextWindows::new(vec![5, 6, 7, 8, 9], 2)?.stride(2);
    /// assert_eq!((windows.len(), windows.get(1)?.0.to_vec::<i64>()), (2, vec![7, 8]));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn stride(self, stride: usize) -> TextWindows {
        TextWindows { stride: stride.max(1), ..self }
    }
}

impl Dataset for TextWindows {
    type Item = (Tensor, Tensor);

    fn len(&self) -> usize {
        (self.tokens.len() - self.block).div_ceil(self.stride)
    }

    fn get(&self, index: usize) -> Result<(Tensor, Tensor)> {
        check_index(index, self.len())?;
        let start = (index * self.stride) as isize;
        let from = |start| self.tokens.narrow(0, start, self.block);
        Ok((from(start), from(start + 1)))
    }
}
