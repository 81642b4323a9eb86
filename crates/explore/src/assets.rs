//! The files of the page, as built by `web/build.mjs`. They are part of the program; compressed
//! once, at the start.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::borrow::Cow;
use std::io::Write as _;

/// The page.
pub const HTML: &str = include_str!("../web/dist/index.html");
/// Its style.
pub const STYLE: &str = include_str!("../web/dist/app.css");
/// Its script.
pub const SCRIPT: &str = include_str!("../web/dist/app.js");

/// A file of the page.
pub struct Asset {
    /// Its path.
    pub path: &'static str,
    /// Its type.
    pub kind: &'static str,
    /// Its bytes.
    pub plain: Cow<'static, [u8]>,
    /// Its bytes, compressed.
    pub gzip: Vec<u8>,
}

/// All files of the page; `html` is the page with the answers that it begins with.
pub fn all(html: String) -> Vec<Asset> {
    let files = [
        ("/", "text/html; charset=utf-8", Cow::Owned(html.into_bytes())),
        ("/app.css", "text/css; charset=utf-8", Cow::Borrowed(STYLE.as_bytes())),
        ("/app.js", "text/javascript; charset=utf-8", Cow::Borrowed(SCRIPT.as_bytes())),
    ];
    let asset = |(path, kind, plain): (&'static str, &'static str, Cow<'static, [u8]>)| Asset {
        path,
        kind,
        gzip: compressed(&plain),
        plain,
    };
    files.map(asset).into()
}

/// These bytes, compressed.
pub fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}
