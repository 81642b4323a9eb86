//! Files that outlast a process: machine code of kernels, plans of cuDNN, and measured choices.
//!
//! They are in the folder `cuda` of `PULLBACK_CACHE`, or of `pullback` in the user's cache. A file
//! is named by a hash of its key; it holds the whole key, so that a collision is seen, and a hash
//! of its content, so that a damaged file is. It is written beside and renamed, so processes that
//! write the same file see a whole one. A cache that cannot be read or written is none.
//!
//! The folder is tidied now and then by what writes to it: files that a killed process left half
//! written go after an hour, and where all take more than [`MOST`], those that were not used for
//! longest go. Files of other names are left alone.

use rustc_hash::FxHasher;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Bytes that the files may take.
pub(crate) const MOST: u64 = 1 << 30;
/// What is left of them when they took more.
const ENOUGH: u64 = MOST / 4 * 3;
/// Writes of a process from one tidying to the next; the first write is one.
const OFTEN: u64 = 256;
/// A file that is being written is renamed in less.
const ABANDONED: Duration = Duration::from_secs(3600);
/// A use is noted, as the time of the last change, if the last one was longer ago.
const NOTED: Duration = Duration::from_secs(24 * 3600);
/// The ends of the names of files that are kept.
const KINDS: [&str; 5] = ["cubin", "usage", "link", "plan", "product"];

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
    let path = file(folder, kind, key);
    let bytes = std::fs::read(&path).ok()?;
    let (head, rest) = bytes.split_at_checked(24)?;
    let number = |at: usize| Some(u64::from_le_bytes(head[at..at + 8].try_into().ok()?));
    let (text, content) = rest.split_at_checked(usize::try_from(number(0)?).ok()?)?;
    let whole = content.len() as u64 == number(8)? && hash(content) == number(16)?;
    let found = (whole && text == key.as_bytes()).then(|| content.to_vec());
    if found.is_some() {
        note_use(&path);
    }
    found
}

/// A file that is used is not old.
fn note_use(path: &Path) {
    let changed = path.metadata().and_then(|data| data.modified());
    if changed.is_ok_and(|at| age(at) > NOTED)
        && let Ok(file) = std::fs::File::options().append(true).open(path)
    {
        let _ = file.set_modified(SystemTime::now());
    }
}

fn age(at: SystemTime) -> Duration {
    SystemTime::now().duration_since(at).unwrap_or_default()
}

/// Removes what was abandoned, and what was not used for longest until no more than `enough` bytes
/// are left, if there are more than `most`.
fn tidy(folder: &Path, most: u64, enough: u64) {
    let Ok(all) = std::fs::read_dir(folder) else { return };
    let mut kept = Vec::new();
    for entry in all.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Some((number, rest)) = name.to_str().and_then(|name| name.split_once('.')) else {
            continue;
        };
        let ours = number.len() == 16 && number.bytes().all(|b| b.is_ascii_hexdigit());
        let Ok(data) = entry.metadata() else { continue };
        let Ok(changed) = data.modified() else { continue };
        if ours && rest.ends_with(".part") && age(changed) > ABANDONED {
            let _ = std::fs::remove_file(path);
        } else if ours && KINDS.contains(&rest) {
            kept.push((changed, data.len(), path));
        }
    }
    let mut bytes: u64 = kept.iter().map(|file| file.1).sum();
    if bytes <= most {
        return;
    }
    kept.sort();
    for (_, length, path) in kept {
        if bytes <= enough {
            return;
        }
        if std::fs::remove_file(path).is_ok() {
            bytes -= length;
        }
    }
}

/// Keeps bytes under a key.
pub(crate) fn write(folder: &Path, kind: &str, key: &str, content: &[u8]) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    debug_assert!(KINDS.contains(&kind));
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
    if number % OFTEN == 0 {
        tidy(folder, MOST, ENOUGH);
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

    /// What processes keep under a number.
    fn content(n: u32) -> (String, Vec<u8>) {
        let length = 1 + (n as usize * 7919) % 50_000;
        (format!("key {n}"), (0..length).map(|i| (i as u32 * n) as u8).collect())
    }

    const KEYS: u32 = 150;
    const FOLDER: &str = "PULLBACK_CACHE_TEST_FOLDER";

    /// Not a test by itself: what the processes of the next one do.
    #[test]
    fn a_process_of_four() {
        let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
        for round in 0..4 {
            for n in 0..KEYS {
                let (key, content) = content(n);
                let found = read(&folder, "cubin", &key);
                assert!(found.is_none_or(|found| found == content), "round {round}: {key}");
                write(&folder, "cubin", &key, &content);
            }
        }
    }

    #[test]
    fn processes_share_a_folder_and_one_may_be_killed() {
        let folder = std::env::temp_dir().join(format!("pullback-shared-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let this = std::env::current_exe().unwrap();
        let start = || {
            std::process::Command::new(&this)
                .args(["--exact", "cache::tests::a_process_of_four"])
                .env(FOLDER, &folder)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut all: Vec<_> = (0..4).map(|_| start()).collect();
        // In the middle of its writes.
        while std::fs::read_dir(&folder).unwrap().count() < KEYS as usize / 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        all[3].kill().unwrap();
        all[3].wait().unwrap();
        for process in &mut all[..3] {
            assert!(process.wait().unwrap().success());
        }
        for n in 0..KEYS {
            let (key, content) = content(n);
            assert_eq!(read(&folder, "cubin", &key), Some(content), "{key}");
        }
        // What the one may have left goes when it is old, and nothing else does.
        let part = folder.join("0123456789abcdef.1.2.part");
        std::fs::write(&part, "half").unwrap();
        tidy(&folder, MOST, ENOUGH);
        assert!(part.exists());
        let old = SystemTime::now() - 2 * ABANDONED;
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let file = std::fs::File::options().append(true).open(entry.path()).unwrap();
            file.set_modified(old).unwrap();
        }
        tidy(&folder, MOST, ENOUGH);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), KEYS as usize);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let folder = std::env::temp_dir().join(format!("pullback-tidy-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let day = Duration::from_secs(24 * 3600);
        let keys: Vec<String> = (0..10).map(|n| format!("key {n}")).collect();
        // Every kind that is written.
        let kind = |n: usize| ["cubin", "usage", "plan", "product"][n % 4];
        for (n, key) in keys.iter().enumerate() {
            write(&folder, kind(n), key, &[n as u8; 1000]);
            let path = file(&folder, kind(n), key);
            let old = SystemTime::now() - day * (20 - n as u32);
            std::fs::File::options().append(true).open(path).unwrap().set_modified(old).unwrap();
        }
        let foreign = folder.join("notes.txt");
        std::fs::write(&foreign, [0; 9000]).unwrap();
        // The oldest is used again.
        assert!(read(&folder, kind(0), &keys[0]).is_some());
        tidy(&folder, 20_000, 5_000);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 11, "few enough");
        tidy(&folder, 8_000, 4_200);
        let left: Vec<usize> =
            (0..10).filter(|&n| file(&folder, kind(n), &keys[n]).exists()).collect();
        assert_eq!(left, [0, 7, 8, 9]);
        assert!(foreign.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
