//! `mpirun -n 2 pullback train`, and again with `--resume`.

#[allow(dead_code)] // nothing here is recorded
mod run;

use run::{Ran, ran};
use std::path::Path;
use std::process::Command;

fn mpirun(workers: usize, words: &[&str]) -> Ran {
    let mut command = Command::new("mpirun");
    command.args(["-n", &workers.to_string(), env!("CARGO_BIN_EXE_pullback")]).args(words);
    ran(command.env("PULLBACK_TIMEOUT", "60").output().expect("mpirun starts"))
}

/// The losses of all steps, which are means over all workers.
fn losses(folder: &Path) -> Vec<f64> {
    let log = std::fs::read_to_string(folder.join("log.csv")).expect("a log");
    let column =
        log.lines().next().and_then(|head| head.split(',').position(|name| name == "loss"));
    let column = column.expect("a column of losses");
    let loss = |line: &str| line.split(',').nth(column).and_then(|cell| cell.parse().ok());
    log.lines().skip(1).map(|line| loss(line).expect("a loss")).collect()
}

#[test]
fn workers_of_mpi_train_and_resume_as_one_process_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let [many, one] = ["many", "one"].map(|name| folder.path().join(name));
    let words = "train digits --model mlp --precision f64 --batch-size 60 --dropout 0";
    let train: Vec<&str> = words.split(' ').collect();
    let place = |path: &Path| path.to_str().expect("a plain path").to_string();
    let (of_many, of_one) = (place(&many), place(&one));
    let ran = mpirun(2, &[&train[..], &["--steps", "6", "--out", &of_many]].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(ran.out.matches("6 steps in").count(), 1, "{}", ran.out);
    let resumed = mpirun(3, &["train", "--resume", &of_many, "--steps", "12"]);
    assert_eq!(resumed.code, 0, "{}{}", resumed.out, resumed.err);
    assert_eq!(resumed.out.matches("12 steps in").count(), 1, "{}", resumed.out);
    // The same in one process: the schedule of the first part is that of 6 steps.
    let alone = |words: &[&str]| assert_eq!(run::run(words).code, 0);
    alone(&[&train[..], &["--steps", "6", "--out", &of_one]].concat());
    alone(&["train", "--resume", &of_one, "--steps", "12"]);
    let (many, one) = (losses(&many), losses(&one));
    assert_eq!((many.len(), one.len()), (12, 12));
    for (a, b) in many.iter().zip(&one) {
        assert!((a - b).abs() < 1e-9 * b, "{many:?} is not {one:?}");
    }
}

/// The number is that of mpirun, and another is refused before anything is made.
#[test]
fn another_number_of_workers_than_mpirun_started_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("run");
    let ran = mpirun(2, &["train", "--workers", "3", "--out", out.to_str().expect("a plain path")]);
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("--workers 3: this is one of 2 workers"), "{}", ran.err);
    assert!(!out.exists());
}
