use super::{TextWindows, Tokens, read_text};
use crate::data::dataset::check_index;
use crate::data::{Dataset, wrong};
use pullback::{Result, Tensor};
use std::path::Path;

/// A text file as sequences of tokens: item `i` is the `i`-th block of `block_size` tokens,
/// `i64[block_size]`. Tokens after the last full block are left out.
///
/// For pairs of a block and the tokens that follow, see [`TextDataset::windows`].
///
/// ```
/// use pullback_nn::data::{ByteTokens, Dataset, TextDataset};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("words.txt");
/// std::fs::write(&path, "ab cd ef").unwrap();
/// let data = TextDataset::open(&path, &ByteTokens, 3)?;
/// assert_eq!(data.len(), 2);
/// assert_eq!(data.get(1)?.to_vec::<i64>(), [99, 100, 32]);
/// # Ok::<(), pullback::Error>(())
/// ```
pub struct TextDataset {
    tokens: Vec<i64>,
    block_size: usize,
}

impl TextDataset {
    /// Reads and encodes a text file; a file whose name ends in `.gz` is decompressed.
    ///
    /// ```
    /// use pullback_nn::data::{ByteTokens, Dataset, TextDataset};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("words.txt");
    /// std::fs::write(&path, "abcdefg").unwrap();
    /// assert_eq!(TextDataset::open(&path, &ByteTokens, 3)?.len(), 2);
    /// assert!(TextDataset::open(&path, &ByteTokens, 8).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read, is not UTF-8, has a part without a token, or is shorter than a
    /// block, or `block_size` is 0; the message names the file.
    pub fn open(
        path: impl AsRef<Path>,
        tokens: &(impl Tokens + ?Sized),
        block_size: usize,
    ) -> Result<TextDataset> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = read_text(path)?;
        let said = |what: String| wrong("text", &name, what);
        let tokens = tokens.encode(&text).map_err(|why| said("in its text".into()).because(why))?;
        if block_size == 0 || tokens.len() < block_size {
            let n = tokens.len();
            return Err(said(format!("its {n} tokens are fewer than one block of {block_size}")));
        }
        Ok(TextDataset { tokens, block_size })
    }

    /// All tokens of the text.
    ///
    /// ```
    /// use pullback_nn::data::{ByteTokens, TextDataset};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # let path = folder.join("words.txt");
    /// std::fs::write(&path, "abc").unwrap();
    /// assert_eq!(TextDataset::open(&path, &ByteTokens, 2)?.tokens(), [97, 98, 99]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn tokens(&self) -> &[i64] {
        &self.tokens
    }

    /// Pairs for predicting the next token: the blocks, and the tokens that follow each of theirs.
    ///
    /// ```
    /// use pullback_nn::data::{ByteTokens, Dataset, TextDataset};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("words.txt");
    /// std::fs::write(&path, "abcdef").unwrap();
    /// let pairs = TextDataset::open(&path, &ByteTokens, 2)?.windows()?;
    /// let (x, y) = pairs.get(1)?;
    /// assert_eq!((x.to_vec::<i64>(), y.to_vec::<i64>()), (vec![99, 100], vec![100, 101]));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If no token follows the only block.
    pub fn windows(self) -> Result<TextWindows> {
        Ok(TextWindows::new(self.tokens, self.block_size)?.stride(self.block_size))
    }
}

impl Dataset for TextDataset {
    type Item = Tensor;

    fn len(&self) -> usize {
        self.tokens.len() / self.block_size
    }

    fn get(&self, index: usize) -> Result<Tensor> {
        check_index(index, self.len())?;
        Ok(Tensor::from(&self.tokens[index * self.block_size..][..self.block_size]))
    }
}
