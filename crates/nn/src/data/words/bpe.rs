//! Byte-pair encodings, through the `tokenizers` crate.

use super::Tokens;
use super::tokens::checked;
use crate::data::wrong;
use pullback::{Error, Result};
use std::path::Path;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::tokenizer::Tokenizer;

const FORMAT: &str = "tokenizer";

/// A byte-pair encoding of Hugging Face's `tokenizers`: loaded from a `tokenizer.json`, or a small
/// byte-level one trained here.
///
/// ```
/// use pullback_nn::data::{Bpe, Tokens, text};
/// let bpe = Bpe::train(text(), 500)?;
/// let tokens = bpe.encode("Shall I compare thee to a summer's day?")?;
/// assert!(tokens.len() < 20);
/// assert_eq!(bpe.decode(&tokens)?, "Shall I compare thee to a summer's day?");
/// # Ok::<(), pullback::Error>(())
/// ```
pub struct Bpe {
    tokenizer: Tokenizer,
    size: usize,
}

fn tokenizer_error(what: impl std::fmt::Display) -> Error {
    Error::argument(FORMAT, what.to_string())
}

impl Bpe {
    fn new(tokenizer: Tokenizer) -> Bpe {
        // Ids may have gaps, so their count is not the largest.
        let largest = tokenizer.get_vocab(true).into_values().max();
        Bpe { tokenizer, size: largest.map_or(0, |id| id as usize + 1) }
    }

    /// Loads a `tokenizer.json` of Hugging Face's `tokenizers`.
    ///
    /// ```
    /// use pullback_nn::data::{Bpe, Tokens};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("tokenizer.json");
    /// Bpe::train("to be or not to be", 260)?.save(&path)?;
    /// let bpe = Bpe::load(&path)?;
    /// assert_eq!(bpe.decode(&bpe.encode("to be")?)?, "to be");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read, or is not a tokeniser; the message names the file.
    #[doc(alias = "from_file")]
    pub fn load(path: impl AsRef<Path>) -> Result<Bpe> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|e| wrong(FORMAT, &name, e))?;
        Ok(Bpe::new(Tokenizer::from_bytes(bytes).map_err(|e| wrong(FORMAT, &name, e))?))
    }

    /// Trains a byte-level byte-pair encoding of at most `size` tokens on a text. It can encode
    /// every text.
    ///
    /// ```
    /// use pullback_nn::data::{Bpe, Tokens};
    /// let bpe = Bpe::train("to be or not to be", 260)?;
    /// assert!(bpe.encode("to be")?.len() < 5);
    /// assert!(Bpe::train("to be", 100).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `size` is below 256: each byte is a token.
    pub fn train(text: &str, size: usize) -> Result<Bpe> {
        if size < 256 {
            return Err(tokenizer_error(format!(
                "a vocabulary of {size} tokens is too small: it has one for each of 256 bytes"
            )));
        }
        let bytes = ByteLevel::new(false, true, true);
        let mut tokenizer = Tokenizer::new(BPE::default());
        tokenizer.with_pre_tokenizer(Some(bytes)).with_decoder(Some(bytes));
        let trainer = BpeTrainer::builder()
            .show_progress(false)
            .vocab_size(size)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .build();
        let mut trainer = TrainerWrapper::from(trainer);
        tokenizer.train(&mut trainer, std::iter::once(text)).map_err(tokenizer_error)?;
        Ok(Bpe::new(tokenizer))
    }

    /// Writes a `tokenizer.json` that Hugging Face's `tokenizers` can load.
    ///
    /// ```
    /// use pullback_nn::data::{Bpe, Tokens};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let bpe = Bpe::train("to be or not to be", 260)?;
    /// bpe.save(folder.join("tokenizer.json"))?;
    /// assert_eq!(Bpe::load(folder.join("tokenizer.json"))?.size(), bpe.size());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let tokenizer_error =
            |e: &dyn std::fmt::Display| wrong(FORMAT, &path.display().to_string(), e);
        let text = self.tokenizer.to_string(true).map_err(|e| tokenizer_error(&e))?;
        std::fs::write(path, text).map_err(|e| tokenizer_error(&e))
    }
}

impl Tokens for Bpe {
    fn size(&self) -> usize {
        self.size
    }

    fn encode(&self, text: &str) -> Result<Vec<i64>> {
        let encoding = self.tokenizer.encode_fast(text, false).map_err(tokenizer_error)?;
        Ok(encoding.get_ids().iter().map(|&id| i64::from(id)).collect())
    }

    fn decode(&self, tokens: &[i64]) -> Result<String> {
        let id = |(place, &token): (usize, &i64)| Ok(checked(place, token, self.size)? as u32);
        let ids = tokens.iter().enumerate().map(id).collect::<Result<Vec<u32>>>()?;
        self.tokenizer.decode(&ids, false).map_err(tokenizer_error)
    }
}
