use super::Tokens;
use super::tokens::checked;
use pullback::Result;

/// A byte-level tokeniser: the tokens of a text are its UTF-8 bytes, so the vocabulary has 256
/// tokens and every text can be encoded.
///
/// ```
/// use pullback_nn::data::{ByteTokens, Tokens};
/// let tokens = ByteTokens.encode("né")?;
/// assert_eq!(tokens, [110, 195, 169]);
/// assert_eq!(ByteTokens.decode(&tokens)?, "né");
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteTokens;

impl Tokens for ByteTokens {
    fn size(&self) -> usize {
        256
    }

    fn encode(&self, text: &str) -> Result<Vec<i64>> {
        Ok(text.bytes().map(i64::from).collect())
    }

    /// A model may stop in the middle of a character: what is no UTF-8 becomes `�`.
    fn decode(&self, tokens: &[i64]) -> Result<String> {
        let byte = |(place, &token): (usize, &i64)| Ok(checked(place, token, 256)? as u8);
        let bytes = tokens.iter().enumerate().map(byte).collect::<Result<Vec<u8>>>()?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
