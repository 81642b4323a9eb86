//! Files that outlast a process: machine code of kernels, and measured choices.
//!
//! They are in the folder `cuda` of `PULLBACK_CACHE`, or of `pullback` in the user's cache. A file
//! is named by a hash of its key; it holds the whole key, so that a collision is seen, and a hash
//! of its content, so that a damaged file is. It is written beside and renamed, so processes that
//! write the same file see a whole one. A cache that cannot be read or written is none.

use rustc_hash::FxHasher;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The folder, if there is one.
pub(crate) fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let all = variable("PULLBACK_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|p| p.join("pullback")))
        .or_else(|| variable("HOME").map(|p| p.join(".cache/pullback")))?;
    Some(all.join("cuda"))
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

fn file(folder: &Path, kind: &str, key: &str) -> PathBuf {
    folder.join(format!("{:016x}.{kind}", hash(key.as_bytes())))
}

/// What is kept under a key: after the lengths of both and the hash of the content.
pub(crate) fn read(folder: &Path, kind: &str, key: &str) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file(folder, kind, key)).ok()?;
    let (head, rest) = bytes.split_at_checked(24)?;
    let number = |at: usize| Some(u64::from_le_bytes(head[at..at + 8].try_into().ok()?));
    let (text, content) = rest.split_at_checked(usize::try_from(number(0)?).ok()?)?;
    let whole = content.len() as u64 == number(8)? && hash(content) == number(16)?;
    (whole && text == key.as_bytes()).then(|| content.to_vec())
}

/// Keeps bytes under a key.
pub(crate) fn write(folder: &Path, kind: &str, key: &str, content: &[u8]) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut bytes = Vec::with_capacity(24 + key.len() + content.len());
    for number in [key.len() as u64, content.len() as u64, hash(content)] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(key.as_bytes());
    bytes.extend(content);
    let file = file(folder, kind, key);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let part = file.with_extension(format!("{process}.{number}.part"));
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&part, &bytes))
        .and_then(|()| std::fs::rename(&part, &file));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_unless_it_is_damaged() {
        let folder = std::env::temp_dir().join(format!("pullback-cache-{}", std::process::id()));
        let (key, content) = ("chip and version\nform", (0..64).collect::<Vec<u8>>());
        assert_eq!(read(&folder, "product", key), None);
        write(&folder, "product", key, &content);
        assert_eq!(read(&folder, "product", key), Some(content.clone()));
        assert_eq!(read(&folder, "cubin", key), None);
        assert_eq!(read(&folder, "product", "another key"), None);
        let file = file(&folder, "product", key);
        let whole = std::fs::read(&file).unwrap();
        // A bit that flipped, in each part; a file that is cut; another key of the same name.
        for at in [0, 9, 20, 30, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            std::fs::write(&file, &damaged).unwrap();
            assert_eq!(read(&folder, "product", key), None, "byte {at}");
        }
        for length in [0, 7, 24, 40, whole.len() - 1] {
            std::fs::write(&file, &whole[..length]).unwrap();
            assert_eq!(read(&folder, "product", key), None, "{length} bytes");
        }
        write(&folder, "product", key, &content);
        assert_eq!(read(&folder, "product", key), Some(content.clone()));
        // Many writers: a reader sees a whole file, and no other file stays.
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..50 {
                        write(&folder, "product", key, &content);
                        assert_eq!(read(&folder, "product", key), Some(content.clone()));
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
        // A folder that cannot be made.
        std::fs::write(&folder, "a file").unwrap();
        write(&folder, "product", key, &content);
        assert_eq!(read(&folder, "product", key), None);
        std::fs::remove_file(&folder).unwrap();
    }
}
