//! Processes that are killed, bytes that flip, disks that are full.

use crate::model::{Model, values};
use pullback::Tensor;
use pullback_nn::state::{Checkpoint, Checkpoints, SavedCheckpoint};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where the child processes save.
const FOLDER: &str = "PULLBACK_TEST_FOLDER";

/// What the child processes run: a test of this binary that only they ask for.
fn child(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(FOLDER, folder);
    command
}

/// A model of a few hundred kilobytes whose values are all its step, so that a mixture of two would
/// be seen.
fn large(step: f32) -> Vec<Tensor> {
    (0..8).map(|_| Tensor::full([100, 100], step)).collect()
}

#[test]
#[ignore = "runs in a process that is killed"]
fn saves_for_ever() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let checkpoints = Checkpoints::new(folder).keep_last(2);
    let first = checkpoints.latest().unwrap().map_or(0, |found| found.checkpoint.record.step);
    for step in first + 1.. {
        checkpoints.save(&Checkpoint::of(&large(step as f32)).at(step, 0)).unwrap();
        println!("saved {step}");
    }
}

/// Dies with the test, also if that fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn whenever_it_is_killed_the_last_good_one_loads() {
    use std::io::{BufRead as _, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let mut before = 0;
    for round in 0..20u64 {
        let mut command = child("disasters::saves_for_ever", folder.path());
        let mut running = Killed(command.stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
        let saved = |line: &String| line.strip_prefix("saved ").and_then(|n| n.parse::<u64>().ok());
        let mut lines = lines.map_while(Result::ok).filter_map(|line| saved(&line));
        let reported = lines.next().unwrap();
        // Somewhere in the next save or two.
        std::thread::sleep(Duration::from_micros(round * 1_377 % 20_000));
        drop(running);
        let reported = lines.last().unwrap_or(reported);
        let found = checkpoints.latest().unwrap().unwrap();
        // Nothing had to be passed over: what has a name is whole. And what was reported was saved
        // is there.
        assert_eq!(found.passed_over, [""; 0]);
        let step = found.checkpoint.record.step;
        assert!(
            step >= reported && reported > before,
            "{step} is saved, {reported} was reported, {before} before"
        );
        let model = large(0.0);
        found.checkpoint.restore_model(&model).unwrap();
        let expected = vec![step as f64; 10_000];
        assert!(values(&model).iter().all(|(_, values)| *values == expected));
        before = step;
    }
    // What the killed ones left is swept up by the next save.
    checkpoints.save(&Checkpoint::of(&large(0.0))).unwrap();
    let hidden = std::fs::read_dir(folder.path()).unwrap().flatten();
    let hidden = hidden.filter(|entry| entry.file_name().to_str().unwrap().starts_with('.'));
    assert_eq!(hidden.count(), 0);
}

#[test]
fn every_flipped_byte_is_noticed_and_the_tensor_named() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let model = Model::filled(1.25);
    let path = checkpoints.save(&Checkpoint::of(&model).at(3, 1).metric("loss", 0.5)).unwrap();
    let mut named = std::collections::BTreeSet::new();
    for file in ["model.safetensors", "state.safetensors", "checkpoint.json"] {
        let place = path.join(file);
        let whole = std::fs::read(&place).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&place, &bytes).unwrap();
            let error = SavedCheckpoint::read(&path).unwrap_err().to_string();
            assert!(error.contains(file), "byte {at} of {file}: {error}");
            let tensor = error.split("tensor `").nth(1).and_then(|rest| rest.split('`').next());
            named.extend(tensor.map(str::to_string));
        }
        for end in [0, 1, 8, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&place, &whole[..end]).unwrap();
            let error = SavedCheckpoint::read(&path).unwrap_err().to_string();
            assert!(error.contains(file), "the first {end} bytes of {file}: {error}");
        }
        std::fs::remove_file(&place).unwrap();
        let error = SavedCheckpoint::read(&path).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains("cannot be read"), "{error}");
        std::fs::write(&place, &whole).unwrap();
    }
    SavedCheckpoint::read(&path).unwrap();
    for name in ["embedding.weight", "head.bias", "norm.bn.running_mean", "norm.mask", "random"] {
        assert!(named.contains(name), "`{name}` was never named, only {named:?}");
    }
}

#[test]
fn the_one_before_is_taken_where_the_newest_is_corrupt() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let save = |step| checkpoints.save(&Checkpoint::of(&Model::filled(1.0)).at(step, 0)).unwrap();
    let paths = [save(10), save(20), save(30)];
    std::fs::write(paths[2].join("checkpoint.json"), "{}").unwrap();
    let weights = paths[1].join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let found = checkpoints.latest().unwrap().unwrap();
    assert_eq!(found.checkpoint.record.step, 10);
    let [newest, middle] = &found.passed_over[..] else { panic!("{:?}", found.passed_over) };
    assert!(newest.contains("00003-step-30/checkpoint.json is corrupt"), "{newest}");
    assert!(middle.contains("is corrupt: tensor `norm.mask` is not as it was written"), "{middle}");
    // If no one is good, that is an error with all the reasons, and not a fresh start.
    std::fs::remove_file(paths[0].join("state.safetensors")).unwrap();
    let error = checkpoints.latest().unwrap_err().to_string();
    assert!(error.contains("no checkpoint in") && error.matches("step-").count() == 3, "{error}");
}

#[test]
fn other_formats_and_versions_are_refused() {
    use sha2::{Digest as _, Sha256};
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let path = checkpoints.save(&Checkpoint::of(&Model::filled(1.0))).unwrap();
    let manifest = path.join("checkpoint.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    // Changed and signed again, as another program would.
    let refused = |from: &str, to: &str| {
        let rest = text.splitn(3, '\n').nth(2).unwrap().replacen(from, to, 1);
        let sum: String = Sha256::digest(&rest).iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(&manifest, format!("{{\n  \"sha256\": \"{sum}\",\n{rest}")).unwrap();
        SavedCheckpoint::read(&path).unwrap_err().to_string()
    };
    let error = refused("\"version\": 1", "\"version\": 7");
    assert!(error.contains("has version 7; this reads versions up to 1"), "{error}");
    assert!(refused("\"version\": 1", "\"version\": 0").contains("has no version"));
    assert!(refused("pullback checkpoint", "cake").contains("is not the manifest of a checkpoint"));
    assert!(refused("\"step\": 0", "\"step\": -1").contains("is not the manifest of a checkpoint"));
    assert!(refused("\"state.safetensors\"", "\"s\"").contains("does not list state.safetensors"));
}

#[test]
#[ignore = "runs in a process that may write little"]
fn saves_too_much() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let checkpoints = Checkpoints::new(folder);
    let error = checkpoints.save(&Checkpoint::of(&large(2.0)).at(2, 0)).unwrap_err();
    println!("refused: {error}");
}

#[cfg(unix)]
#[test]
fn a_full_disk_leaves_the_old_one_and_nothing_of_the_new() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    checkpoints.save(&Checkpoint::of(&large(1.0)).at(1, 0)).unwrap();
    // A process that may write no more than a few blocks to a file, and is reported so instead of
    // being ended.
    let program = child("disasters::saves_too_much", folder.path());
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""]);
    limited.arg(program.get_program()).args(program.get_args()).env(FOLDER, folder.path());
    let output = limited.output().unwrap();
    let reported = String::from_utf8_lossy(&output.stdout).to_string();
    assert!(output.status.success(), "{reported}");
    assert!(
        reported.contains("refused: checkpoint: ") && reported.contains("cannot be written"),
        "{reported}"
    );
    assert!(reported.contains("00002-step-2"), "{reported}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(checkpoints.latest().unwrap().unwrap().checkpoint.record.step, 1);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    let error = Checkpoints::new(&file).save(&Checkpoint::of(&Model::filled(1.0))).unwrap_err();
    assert!(error.to_string().contains("file cannot be made"), "{error}");
    let error = Checkpoints::new(&file).latest().unwrap_err().to_string();
    assert!(error.contains("file cannot be listed"), "{error}");
}
