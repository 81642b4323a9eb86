use crate::data::{open, wrong};
use pullback::Result;
use std::io::Read;
use std::path::Path;

/// The embedded text: sonnets of Shakespeare, some 20,000 characters in the public domain.
///
/// ```
/// assert!(pullback_nn::data::text().contains("Shall I compare thee to a summer's day?"));
/// ```
pub fn text() -> &'static str {
    include_str!("../../../data/text.txt")
}

/// Reads a text file; a file whose name ends in `.gz` is decompressed.
///
/// ```
/// use pullback_nn::data::read_text;
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("words.txt");
/// std::fs::write(&path, "né").unwrap();
/// assert_eq!(read_text(&path)?, "né");
/// std::fs::write(&path, [110, 255]).unwrap();
/// assert!(read_text(&path).unwrap_err().to_string().contains("offset 1"));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read or is not UTF-8; the message names the file and the offset.
pub fn read_text(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    open("text", path)?.read_to_end(&mut bytes).map_err(|e| wrong("text", &name, e))?;
    String::from_utf8(bytes).map_err(|e| {
        let offset = e.utf8_error().valid_up_to();
        wrong("text", &name, format!("the byte at offset {offset} is not UTF-8 text"))
    })
}
