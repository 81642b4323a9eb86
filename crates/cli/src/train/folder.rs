//! The folder of a run.
//!
//! A folder is a run folder from the moment that its `config.toml` has its name. Before that there
//! is at most `config.toml.new`, whole or in part: a start that was interrupted, of which nothing
//! is kept. So at any time a folder is empty, the start of a run that may start again, or a run
//! that can be resumed or restarted.

use super::options::Options;
use crate::failure::{CliResult, Failure};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The files of a run.
pub const CONFIG: &str = "config.toml";
/// The name of `config.toml` while it is written.
const UNFINISHED: &str = "config.toml.new";
pub const CHECKPOINTS: &str = "checkpoints";
pub const CSV: &str = "log.csv";
pub const JSONL: &str = "log.jsonl";
pub const LAYERS: &str = "layers.jsonl";
pub const TENSORBOARD: &str = "tensorboard";
pub const PLOTS: &str = "plots";
pub const SAMPLE: &str = "sample.txt";

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{} cannot be {what}: {error}", path.display()))
}

/// The first folder `runs/NAME-1`, `runs/NAME-2`, … that is not there yet.
pub fn unused(name: &str) -> PathBuf {
    let folder = |n: u32| PathBuf::from(format!("runs/{name}-{n}"));
    (1..).map(folder).find(|path| !path.exists()).unwrap_or_else(|| folder(0))
}

/// The last of the folders that [`unused`] gave, if there is one.
pub fn last_used(name: &str) -> Option<PathBuf> {
    let folder = |n: u32| PathBuf::from(format!("runs/{name}-{n}"));
    (1..).map(folder).take_while(|path| path.exists()).last()
}

/// Whether a start was interrupted here before there was a run.
fn is_interrupted_start(folder: &Path) -> bool {
    !folder.join(CONFIG).is_file() && folder.join(UNFINISHED).is_file()
}

/// Makes the folder of a new run. One that is there and not empty is refused, unless it holds
/// nothing but a start that was interrupted, or it is a run and `force` restarts it.
///
/// # Errors
/// If it is in use, or cannot be made.
pub fn begin(folder: &Path, force: bool) -> CliResult {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.file_name()).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(failed("read", folder, &error)),
    };
    let shown = folder.display();
    let occupied = entries.iter().any(|name| name != UNFINISHED);
    let interrupted = is_interrupted_start(folder);
    let is_run = folder.join(CONFIG).is_file() || interrupted;
    match (occupied, is_run, force) {
        (false, ..) => {}
        (true, true, false) if interrupted => {
            return Err(Failure::failed(format!(
                "{shown} contains an interrupted run, and other files: restart it with --force, or name another --out"
            )));
        }
        (true, true, false) => {
            return Err(Failure::failed(format!(
                "{shown} contains a run already: resume it with `pullback train --resume {shown}`, restart it with --force, or name another --out"
            )));
        }
        (true, false, _) => {
            return Err(Failure::failed(format!(
                "{shown} is not empty and is not a run folder: name another --out"
            )));
        }
        (true, true, true) => clear(folder)?,
    }
    std::fs::create_dir_all(folder).map_err(|e| failed("made", folder, &e))
}

/// Removes the files of a run, and nothing else. Its configuration stays until the next one
/// replaces it: if the process is killed, the folder still contains a run.
fn clear(folder: &Path) -> CliResult {
    for name in [CHECKPOINTS, TENSORBOARD, PLOTS] {
        let path = folder.join(name);
        if path.is_dir() {
            std::fs::remove_dir_all(&path).map_err(|e| failed("removed", &path, &e))?;
        }
    }
    for name in [CSV, JSONL, LAYERS, SAMPLE] {
        let path = folder.join(name);
        if path.is_file() {
            std::fs::remove_file(&path).map_err(|e| failed("removed", &path, &e))?;
        }
    }
    Ok(())
}

/// Writes the configuration.
///
/// # Errors
/// If it cannot be written.
pub fn write_config(folder: &Path, options: &Options) -> CliResult {
    let text = toml::to_string(options).map_err(|e| Failure::failed(e.to_string()))?;
    let head = format!("# `pullback train {}` does the same again.\n", Path::new(CONFIG).display());
    // Written to another name, then renamed: a run that is resumed and killed in between still has
    // one.
    let (path, fresh) = (folder.join(CONFIG), folder.join(UNFINISHED));
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(&fresh)?;
        file.write_all((head + &text).as_bytes())?;
        // On the disk before it has the name.
        file.sync_all()?;
        std::fs::rename(&fresh, &path)
    };
    write().map_err(|e| {
        // Nothing is left of a run that did not begin; a folder with anything else in it stays.
        let _ = std::fs::remove_file(&fresh);
        let _ = std::fs::remove_dir(folder);
        failed("written", &path, &e)
    })
}

/// The configuration of the run in a folder.
///
/// # Errors
/// If there is none.
pub fn read_config(folder: &Path) -> CliResult<Options> {
    let path = folder.join(CONFIG);
    match path.is_file() {
        true => Options::read(&path),
        false if is_interrupted_start(folder) => Err(Failure::usage(format!(
            "the run in {} was interrupted before it began: start it again, with the same options and --out",
            folder.display()
        ))),
        false => Err(Failure::usage(format!(
            "{} is not a run folder: it has no {CONFIG}",
            folder.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn message(outcome: CliResult) -> String {
        outcome.expect_err("it is refused").message
    }

    /// A start killed at any byte of its configuration leaves a folder that a start takes, and a
    /// resume explains.
    #[test]
    fn an_interrupted_start_is_begun_again() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("run");
        let options = Options { task: Some("digits".into()), ..Options::default() };
        begin(&folder, false).expect("made");
        // Killed before the first byte: an empty folder.
        begin(&folder, false).expect("an empty folder is free");
        write_config(&folder, &options).expect("written");
        let whole = fs::read(folder.join(CONFIG)).expect("a configuration");
        assert!(!folder.join(UNFINISHED).exists());
        for bytes in 0..=whole.len() {
            let folder = place.path().join(format!("killed-{bytes}"));
            fs::create_dir(&folder).expect("made");
            fs::write(folder.join(UNFINISHED), &whole[..bytes]).expect("written");
            let explained = read_config(&folder).expect_err("there is no run");
            assert!(explained.message.contains("interrupted before it began"), "{explained:?}");
            begin(&folder, false).expect("it begins again");
            write_config(&folder, &options).expect("written");
            assert_eq!(fs::read(folder.join(CONFIG)).expect("a configuration"), whole);
            assert!(!folder.join(UNFINISHED).exists());
        }
    }

    /// A run that is restarted and killed at any point is still a run, or the start of one.
    #[test]
    fn a_run_begun_anew_stays_a_run() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path();
        let options = Options { task: Some("digits".into()), ..Options::default() };
        write_config(folder, &options).expect("written");
        fs::create_dir(folder.join(CHECKPOINTS)).expect("made");
        fs::write(folder.join(CSV), "step").expect("written");
        fs::write(folder.join("notes.md"), "mine").expect("written");
        assert!(message(begin(folder, false)).contains("contains a run already"));
        begin(folder, true).expect("restarted");
        assert!(!folder.join(CHECKPOINTS).exists() && !folder.join(CSV).exists());
        // Killed here.
        assert!(read_config(folder).is_ok() && folder.join("notes.md").is_file());
        fs::write(folder.join(UNFINISHED), "# half").expect("written");
        assert!(read_config(folder).is_ok());
        begin(folder, true).expect("restarted again");
    }

    /// Foreign files are safe: a start that was interrupted among them is begun again where that is
    /// requested.
    #[test]
    fn other_files_beside_an_interrupted_start() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path();
        fs::write(folder.join("thesis.tex"), "years of work").expect("written");
        assert!(message(begin(folder, true)).contains("is not a run folder"));
        fs::write(folder.join(UNFINISHED), "# half").expect("written");
        assert!(message(begin(folder, false)).contains("an interrupted run, and other files"));
        begin(folder, true).expect("begun again");
        write_config(folder, &Options::default()).expect("written");
        assert!(folder.join("thesis.tex").is_file());
    }

    /// What cannot be written leaves no folder behind.
    #[test]
    fn a_start_that_fails_leaves_nothing() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("run");
        begin(&folder, false).expect("made");
        // A folder of that name is in the way of the file.
        fs::create_dir(folder.join(UNFINISHED)).expect("made");
        assert!(message(write_config(&folder, &Options::default())).contains("cannot be"));
        fs::remove_dir(folder.join(UNFINISHED)).expect("removed");
        begin(&folder, false).expect("free again");
    }
}
