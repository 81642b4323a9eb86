//! `pullback train text --model gpt2`, small: what it reports, what it refuses, how it resumes, and
//! what it leaves for the same run in PyTorch.

mod run;

use run::{Ran, command, ran, run};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A network of two blocks, and a run of 60 steps.
const SMALL: [&str; 16] = [
    "--model",
    "gpt2",
    "--width",
    "16",
    "--num-layers",
    "2",
    "--num-heads",
    "2",
    "--context",
    "16",
    "--batch-size",
    "2",
    "--vocab-size",
    "128",
    "--steps",
    "60",
];

fn train(folder: &Path, words: &[&str]) -> Ran {
    let folder = folder.to_str().expect("a plain path");
    run(&[&["train", "text"], &SMALL[..], words, &["--out", folder]].concat())
}

/// The files of the newest checkpoint: weights, and the state of everything else.
fn checkpoint(run: &Path) -> [Vec<u8>; 2] {
    let entries = fs::read_dir(run.join("checkpoints")).expect("checkpoints");
    let mut all: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    all.sort();
    let newest = all.pop().expect("a checkpoint");
    ["model.safetensors", "state.safetensors"].map(|name| fs::read(newest.join(name)).expect(name))
}

fn log(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("log.jsonl")).expect("a log");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn losses(run: &Path) -> Vec<f64> {
    log(run).iter().map(|line| line["loss"].as_f64().expect("a loss")).collect()
}

#[test]
fn throughput_is_in_the_log_the_progress_and_the_end() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    let ran = train(&folder, &["--mfu", "--sample", "10"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("kinds (in a vocabulary of 128)"), "{}", ran.out);
    let lines = log(&folder);
    assert_eq!(lines.len(), 60);
    let number = |line: &Value, name: &str| line[name].as_f64().expect("a number");
    for line in &lines {
        let rate = number(line, "examples_per_second");
        assert!((number(line, "tokens_per_second") / rate - 16.0).abs() < 1e-9, "{line}");
        // 6 operations for each parameter and 12·L·w·T for attention, of 16 tokens.
        let parameters = (128.0 + 16.0 + 2.0) * 16.0 + 2.0 * (12.0 * 256.0 + 13.0 * 16.0);
        let operations = 16.0 * (6.0 * parameters + 12.0 * 2.0 * 16.0 * 16.0);
        let peak = rate * operations / number(line, "mfu");
        assert!((1e8..1e14).contains(&peak), "{peak}: {line}");
    }
    assert!(number(&lines[59], "loss") < number(&lines[0], "loss"), "it learns");
    for (text, parts) in [
        (&ran.out, &[" tokens a second, ", "% model FLOP utilisation", "TFLOP/s, which"][..]),
        (&ran.err, &["tokens/s ", "mfu "][..]),
    ] {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    // A line of a step fits into 80 columns.
    let line = ran.err.lines().find(|line| line.starts_with("step 6/60")).expect("a line");
    assert!(line.len() < 80 && line.contains("tokens/s"), "{line}");

    // Where it is not asked for, nothing is timed on a CPU.
    let folder = place.path().join("plain");
    assert_eq!(train(&folder, &["--sample", "0"]).code, 0);
    let lines = log(&folder);
    assert!(lines[1]["tokens_per_second"].is_f64() && lines[1]["mfu"].is_null());
}

#[test]
fn settings_that_do_not_fit_are_refused_in_a_sentence() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    #[rustfmt::skip]
    let cases: [(&[&str], &str); 6] = [
        (&["train", "text", "--model", "gpt2", "--vocab-size", "20"], "--vocab-size is 20, and the text has"),
        (&["train", "text", "--model", "gpt2", "--width", "100", "--num-heads", "12"], "the width 100 cannot be shared by 12 heads"),
        (&["train", "text", "--model", "gpt", "--mfu"], "`mfu` has no effect on the model `gpt`"),
        (&["train", "digits", "--model", "gpt2"], "the model `gpt2` is not for digits"),
        (&["train", "text", "--reference", "there"], "--reference: it is written by a run with --model gpt2"),
        (&["train", "text", "--model", "gpt2", "--dropout", "0.1", "--reference", "there"], "a run with --dropout 0"),
    ];
    for (words, sentence) in cases {
        let ran = run(&[words, &["--out", folder.to_str().expect("a path")]].concat());
        assert_eq!(ran.code, 2, "{words:?}: {}", ran.out);
        assert!(ran.err.starts_with("pullback: ") && ran.err.contains(sentence), "{}", ran.err);
        assert!(!folder.exists(), "{words:?}");
    }
}

/// The default of a quick run is small, with the vocabulary of GPT-2.
#[test]
fn a_quick_run_is_small() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    let words = ["train", "text", "--model", "gpt2", "--quick", "--sample", "5", "--out"];
    let ran = run(&[&words[..], &[folder.to_str().expect("a path")]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("(in a vocabulary of 50304)"), "{}", ran.out);
    let config = fs::read_to_string(folder.join("config.toml")).expect("a config");
    for line in ["vocab_size = 50304", "weight_decay = 0.1", "precision = \"f32\""] {
        assert!(config.contains(line), "{config}");
    }
    // Guessing among all tokens at first.
    assert!((losses(&folder)[0] - 50304f64.ln()).abs() < 0.2, "{:?}", losses(&folder));
}

/// Ctrl-C in the middle, with a schedule that goes on, dropout and 16 bits: the same bits as
/// without.
#[cfg(unix)]
#[test]
fn an_interrupted_run_goes_on_to_the_same_bits() {
    use std::process::{Command, Stdio};
    let place = tempfile::tempdir().expect("a folder");
    for (precision, steps) in [("f32", "400"), ("bf16", "200")] {
        let at = |name: &str| place.path().join(format!("{name}-{precision}"));
        let (whole, parts) = (at("whole"), at("parts"));
        let more =
            ["--dropout", "0.1", "--sample", "0", "--precision", precision, "--steps", steps];
        let words: Vec<&str> =
            SMALL.iter().filter(|w| !["--steps", "60"].contains(w)).chain(&more).copied().collect();
        let start = |folder: &Path| {
            let folder = folder.to_str().expect("a path");
            command(&[&["train", "text"], &words[..], &["--out", folder]].concat())
        };
        assert_eq!(ran(start(&whole).output().expect("runs")).code, 0);
        let silent = || (Stdio::piped(), Stdio::piped());
        let (out, err) = silent();
        let child = start(&parts).stdout(out).stderr(err).spawn().expect("starts");
        let lines = || fs::read_to_string(parts.join("log.jsonl")).map_or(0, |l| l.lines().count());
        for _ in 0..6000 {
            if lines() > 20 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
        let stopped = ran(child.wait_with_output().expect("ends"));
        assert_eq!(stopped.code, 130, "{}{}", stopped.out, stopped.err);
        assert!(checkpoint(&whole)[0] != checkpoint(&parts)[0], "it ended before the end");

        let resumed = run(&["train", "--resume", parts.to_str().expect("a path")]);
        assert_eq!(resumed.code, 0, "{}", resumed.err);
        assert!(checkpoint(&whole) == checkpoint(&parts), "{precision}: resuming changes no bit");
        assert_eq!(losses(&whole), losses(&parts), "{precision}");
    }
}

/// Workers that have parts of the parameters train the same network.
#[test]
fn blocks_are_spread_over_workers() {
    let place = tempfile::tempdir().expect("a folder");
    let (alone, spread) = (place.path().join("alone"), place.path().join("spread"));
    assert_eq!(train(&alone, &["--sample", "0"]).code, 0);
    let ran = train(&spread, &["--sample", "0", "--workers", "2", "--shard", "3"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for (a, b) in losses(&alone).iter().zip(losses(&spread)) {
        assert!((a - b).abs() < 1e-3, "{a} and {b}");
    }
}

#[test]
fn a_reference_has_the_first_weights_the_batches_and_the_settings() {
    let place = tempfile::tempdir().expect("a folder");
    let (folder, reference) = (place.path().join("run"), place.path().join("reference"));
    let words = ["--sample", "0", "--seed", "3", "--reference"];
    let ran = train(&folder, &[&words[..], &[reference.to_str().expect("a path")]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let header = |name: &str| -> Value {
        let bytes = fs::read(reference.join(name)).expect(name);
        let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
        serde_json::from_slice(&bytes[8..8 + length]).expect("a header")
    };
    let weights = header("weights.safetensors");
    assert_eq!(weights["h.1.attn.in_proj_weight"]["shape"], serde_json::json!([48, 16]));
    let batches = header("batches.safetensors");
    for name in ["x", "y"] {
        assert_eq!(batches[name]["shape"], serde_json::json!([60, 2, 16]));
        assert_eq!(batches[name]["dtype"], "I32");
    }
    let text = fs::read_to_string(reference.join("settings.json")).expect("settings");
    let settings: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(settings["heads"], 2);
    assert_eq!((&settings["precision"], &settings["schedule"]), (&"f32".into(), &"cosine".into()));
    assert_eq!((&settings["total"], &settings["warmup"]), (&60.into(), &30.into()));
}
