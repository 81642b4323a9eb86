//! Text as numbers.

#[cfg(feature = "tokenizers")]
mod bpe;
mod bytes;
mod chars;
mod dataset;
mod text;
mod tokens;
mod windows;

#[cfg(feature = "tokenizers")]
pub use bpe::Bpe;
pub use bytes::ByteTokens;
pub use chars::CharTokens;
pub use dataset::TextDataset;
pub use text::{read_text, text};
pub use tokens::Tokens;
pub use windows::TextWindows;
