use pullback::{Error, Result};

/// A way to write text as numbers from 0 to [`Tokens::size`], and back.
pub trait Tokens: Send + Sync {
    /// How many tokens there are: the length of a model's last axis.
    fn size(&self) -> usize;

    /// The tokens of a text.
    ///
    /// # Errors
    /// If something in the text has no token.
    fn encode(&self, text: &str) -> Result<Vec<i64>>;

    /// The text of tokens.
    ///
    /// # Errors
    /// If a number is no token.
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
