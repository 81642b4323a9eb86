//! A process that is killed, or whose disk is full, at any write leaves a folder that can be used:
//! begun again, resumed, or begun anew.
#![cfg(unix)]

#[allow(dead_code)] // every run here is a limited one
mod run;

use run::{Ran, ran};
use std::path::Path;
use std::process::Command;

const WORDS: &str = "--model mlp --steps 4 --width 8 --batch-size 16 --no-jit --threads 1";

/// Runs the program under a limit on the size of files, in blocks of 512 bytes. A write past it
/// kills the process, or fails as on a full disk.
fn limited(blocks: usize, killed: bool, words: &str) -> Ran {
    let trap = if killed { "" } else { "trap '' XFSZ; " };
    let program = env!("CARGO_BIN_EXE_pullback");
    let script = format!("ulimit -c 0; ulimit -f {blocks}; {trap}exec {program} {words}");
    ran(Command::new("sh").args(["-c", &script]).output().expect("a shell"))
}

fn at(folder: &Path) -> &str {
    folder.to_str().expect("a plain path")
}

#[test]
fn a_start_that_dies_at_its_first_write_can_be_repeated() {
    let place = tempfile::tempdir().expect("a folder");
    for killed in [true, false] {
        let folder = place.path().join(format!("run-{killed}"));
        let words = format!("train {WORDS} --out {}", at(&folder));
        let died = limited(0, killed, &words);
        assert_ne!(died.code, 0, "{}", died.out);
        assert!(!folder.join("config.toml").exists());
        if killed {
            assert!(folder.join("config.toml.new").exists(), "killed while it was written");
            let resumed = limited(1 << 20, true, &format!("train --resume {}", at(&folder)));
            assert!(resumed.err.contains("interrupted before it began"), "{}", resumed.err);
        } else {
            assert!(died.err.contains("cannot be written"), "{}", died.err);
            assert!(!folder.exists(), "what could not begin leaves nothing");
        }
        let again = limited(1 << 20, true, &words);
        assert_eq!(again.code, 0, "{}", again.err);
        assert!(folder.join("config.toml").is_file() && !folder.join("config.toml.new").exists());
    }
}

#[test]
fn a_run_that_dies_at_a_later_write_goes_on() {
    let place = tempfile::tempdir().expect("a folder");
    // The configuration fits; what comes after it does not: weights of 2.4 KB, and an optimiser's
    // state of twice that.
    for blocks in [4, 6, 8] {
        let folder = place.path().join(format!("run-{blocks}"));
        let words = format!("train {WORDS} --out {}", at(&folder));
        let died = limited(blocks, true, &words);
        assert_ne!(died.code, 0, "{blocks}: {}", died.out);
        assert!(folder.join("config.toml").is_file(), "{blocks}: {}", died.err);
        let resumed = limited(1 << 20, true, &format!("train --resume {}", at(&folder)));
        assert_eq!(resumed.code, 0, "{blocks}: {}", resumed.err);
        assert!(resumed.out.contains("4 steps"), "{}", resumed.out);
        let anew = limited(1 << 20, true, &format!("{words} --force"));
        assert_eq!(anew.code, 0, "{blocks}: {}", anew.err);
    }
}
