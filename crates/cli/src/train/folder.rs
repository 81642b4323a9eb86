//! The folder of a run.

use super::options::Options;
use crate::failure::{Failure, Outcome};
use std::path::{Path, PathBuf};

/// What a run leaves behind, by name.
pub const CONFIG: &str = "config.toml";
pub const CHECKPOINTS: &str = "checkpoints";
pub const CSV: &str = "log.csv";
pub const JSONL: &str = "log.jsonl";
pub const TENSORBOARD: &str = "tensorboard";
pub const PLOTS: &str = "plots";
pub const SAMPLE: &str = "sample.txt";

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{} could not be {what}: {error}", path.display()))
}

/// The first folder `runs/NAME-1`, `runs/NAME-2`, … that is not there yet.
pub fn unused(name: &str) -> PathBuf {
    let folder = |n: u32| PathBuf::from(format!("runs/{name}-{n}"));
    (1..).map(folder).find(|path| !path.exists()).unwrap_or_else(|| folder(0))
}

/// Makes the folder of a new run. One that is there and not empty is refused, unless it is a run and `force` says to begin it anew.
///
/// # Errors
/// If it is in use, or cannot be made.
pub fn begin(folder: &Path, force: bool) -> Outcome {
    let occupied = match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(failed("read", folder, &error)),
    };
    let shown = folder.display();
    let is_run = folder.join(CONFIG).is_file();
    match (occupied, is_run, force) {
        (false, ..) => {}
        (true, true, false) => {
            return Err(Failure::failed(format!(
                "{shown} holds a run already: go on with `pullback train --resume {shown}`, begin it anew with --force, or name another --out"
            )));
        }
        (true, false, _) => {
            return Err(Failure::failed(format!(
                "{shown} is not empty and holds no run: name another --out"
            )));
        }
        (true, true, true) => clear(folder)?,
    }
    std::fs::create_dir_all(folder).map_err(|e| failed("made", folder, &e))
}

/// Removes what a run leaves behind, and nothing else.
fn clear(folder: &Path) -> Outcome {
    for name in [CHECKPOINTS, TENSORBOARD, PLOTS] {
        let path = folder.join(name);
        if path.is_dir() {
            std::fs::remove_dir_all(&path).map_err(|e| failed("removed", &path, &e))?;
        }
    }
    for name in [CSV, JSONL, SAMPLE, CONFIG] {
        let path = folder.join(name);
        if path.is_file() {
            std::fs::remove_file(&path).map_err(|e| failed("removed", &path, &e))?;
        }
    }
    Ok(())
}

/// Writes what the run is.
///
/// # Errors
/// If it cannot be written.
pub fn write_config(folder: &Path, options: &Options) -> Outcome {
    let text = toml::to_string(options).map_err(|e| Failure::failed(e.to_string()))?;
    let head = format!("# `pullback train {}` does the same again.\n", Path::new(CONFIG).display());
    // Beside the old one, and then in its place: a run that is resumed and killed just now still has one.
    let (path, fresh) = (folder.join(CONFIG), folder.join("config.toml.new"));
    std::fs::write(&fresh, head + &text)
        .and_then(|()| std::fs::rename(&fresh, &path))
        .map_err(|e| failed("written", &path, &e))
}

/// What the run in a folder is.
///
/// # Errors
/// If there is none.
pub fn read_config(folder: &Path) -> Outcome<Options> {
    let path = folder.join(CONFIG);
    match path.is_file() {
        true => Options::read(&path),
        false => {
            Err(Failure::usage(format!("{} holds no run: it has no {CONFIG}", folder.display())))
        }
    }
}
