use pullback::{Error, Result};

/// A tokeniser: it encodes text as numbers from 0 to [`Tokens::size`] − 1, and decodes them.
pub trait Tokens: Send + Sync {
    /// The size of the vocabulary: the length of the last axis of a model's output.
    ///
    /// ```
    /// use pullback_nn::data::{ByteTokens, CharTokens, Tokens};
    /// assert_eq!(ByteTokens.size(), 256);
    /// assert_eq!(CharTokens::of("banana").size(), 3);
    /// ```
    #[doc(alias = "vocab_size")]
    fn size(&self) -> usize;

    /// The tokens of a text.
    ///
    /// ```
    /// use pullback_nn::data::{CharTokens, Tokens};
    /// let tokens = CharTokens::of("banana");
    /// assert_eq!(tokens.encode("ban")?, [1, 0, 2]);
    /// assert!(tokens.encode("cab").is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a part of the text has no token.
    fn encode(&self, text: &str) -> Result<Vec<i64>>;

    /// The text of tokens.
    ///
    /// ```
    /// use pullback_nn::data::{CharTokens, Tokens};
    /// let tokens = CharTokens::of("banana");
    /// assert_eq!(tokens.decode(&[1, 0, 2])?, "ban");
    /// assert!(tokens.decode(&[3]).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a number is not a token.
    fn decode(&self, tokens: &[i64]) -> Result<String>;
}

/// A token as a place below `size`, or an error that names it.
pub(super) fn checked(place: usize, token: i64, size: usize) -> Result<usize> {
    usize::try_from(token).ok().filter(|&t| t < size).ok_or_else(|| {
        let message =
            format!("number {place} is {token}, and tokens are from 0 to {}", size.max(1) - 1);
        Error::argument("decode", message)
    })
}
