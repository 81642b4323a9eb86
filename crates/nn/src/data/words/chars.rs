use super::Tokens;
use super::tokens::checked;
use pullback::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A character-level tokeniser: the vocabulary is the characters of a text, in sorted order.
///
/// ```
/// use pullback_nn::data::{CharTokens, Tokens};
/// let tokens = CharTokens::of("banana");
/// assert_eq!(tokens.size(), 3);
/// assert_eq!(tokens.encode("ban")?, [1, 0, 2]);
/// assert!(tokens.encode("band").unwrap_err().to_string().contains("'d'"));
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct CharTokens {
    chars: Vec<char>,
}

impl CharTokens {
    /// The vocabulary of the characters that occur in a text.
    ///
    /// ```
    /// use pullback_nn::data::{CharTokens, Tokens};
    /// let tokens = CharTokens::of("banana");
    /// assert_eq!((tokens.size(), tokens.encode("nab")?), (3, vec![2, 0, 1]));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn of(text: &str) -> CharTokens {
        CharTokens { chars: text.chars().collect::<BTreeSet<_>>().into_iter().collect() }
    }

    /// The characters in sorted order; the token of a character is its index here.
    ///
    /// ```
    /// use pullback_nn::data::CharTokens;
    /// assert_eq!(CharTokens::of("banana").chars(), ['a', 'b', 'n']);
    /// ```
    pub fn chars(&self) -> &[char] {
        &self.chars
    }
}

/// Saved as the text of its characters.
impl From<String> for CharTokens {
    fn from(text: String) -> CharTokens {
        CharTokens::of(&text)
    }
}

impl From<CharTokens> for String {
    fn from(tokens: CharTokens) -> String {
        tokens.chars.into_iter().collect()
    }
}

impl Tokens for CharTokens {
    fn size(&self) -> usize {
        self.chars.len()
    }

    fn encode(&self, text: &str) -> Result<Vec<i64>> {
        let token = |(place, c): (usize, char)| match self.chars.binary_search(&c) {
            Ok(token) => Ok(token as i64),
            Err(_) => {
                let message =
                    format!("{c:?}, character {place} of the text, is not in the vocabulary");
                Err(Error::argument("encode", message))
            }
        };
        text.chars().enumerate().map(token).collect()
    }

    fn decode(&self, tokens: &[i64]) -> Result<String> {
        let one =
            |(place, &token): (usize, &i64)| Ok(self.chars[checked(place, token, self.size())?]);
        tokens.iter().enumerate().map(one).collect()
    }
}
