//! `pullback train`: what it learns, what it leaves, and how it resumes.

mod run;

use run::{Ran, command, ran, run};
use std::fs;
use std::path::{Path, PathBuf};

/// Runs `pullback train` with a folder for the run.
fn train(folder: &Path, words: &[&str]) -> Ran {
    let folder = folder.to_str().expect("a plain path");
    run(&[&["train"], words, &["--out", folder]].concat())
}

/// The newest checkpoint's weights.
fn weights(run: &Path) -> Vec<u8> {
    let mut all: Vec<PathBuf> = fs::read_dir(run.join("checkpoints"))
        .expect("checkpoints")
        .map(|e| e.expect("an entry").path())
        .collect();
    all.sort();
    fs::read(all.last().expect("a checkpoint").join("model.safetensors")).expect("weights")
}

fn accuracy(ran: &Ran) -> f64 {
    let line = ran
        .out
        .lines()
        .find(|line| line.starts_with("test accuracy "))
        .unwrap_or_else(|| panic!("{}{}", ran.out, ran.err));
    let number = line["test accuracy ".len()..].split('%').next().expect("a number");
    number.parse().expect("a number")
}

#[test]
fn digits_are_learnt_out_of_the_box() {
    let place = tempfile::tempdir().expect("a folder");
    for model in ["mlp", "cnn"] {
        let folder = place.path().join(model);
        let ran = train(&folder, &["--model", model]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(accuracy(&ran) >= 97.0, "{}", ran.out);
        for name in [
            "config.toml",
            "log.csv",
            "log.jsonl",
            "tensorboard",
            "plots/loss.svg",
            "plots/loss.png",
            "checkpoints",
        ] {
            assert!(folder.join(name).exists(), "{model} leaves no {name}: {}", ran.out);
        }
    }
}

#[test]
fn without_a_folder_runs_are_numbered() {
    let place = tempfile::tempdir().expect("a folder");
    for _ in 0..2 {
        let output = command(&["train", "--quick", "--model", "mlp"])
            .current_dir(place.path())
            .output()
            .expect("runs");
        assert_eq!(ran(output).code, 0);
    }
    assert!(place.path().join("runs/digits-mlp-1/config.toml").is_file());
    assert!(place.path().join("runs/digits-mlp-2/config.toml").is_file());
}

#[test]
fn the_same_options_give_the_same_weights() {
    let place = tempfile::tempdir().expect("a folder");
    let at = |name: &str| place.path().join(name);
    let words = ["--model", "mlp", "--steps", "40", "--width", "32", "--seed", "3"];
    assert_eq!(train(&at("a"), &[&words[..], &["--threads", "1"]].concat()).code, 0);
    assert_eq!(train(&at("b"), &[&words[..], &["--threads", "2"]].concat()).code, 0);
    assert_eq!(weights(&at("a")), weights(&at("b")), "any number of threads");
    let config = at("a").join("config.toml");
    assert_eq!(train(&at("c"), &[config.to_str().expect("a path")]).code, 0);
    assert_eq!(weights(&at("a")), weights(&at("c")), "from its own config.toml");
    assert_eq!(
        train(&at("d"), &["--model", "mlp", "--steps", "40", "--width", "32", "--seed", "4"]).code,
        0
    );
    assert!(weights(&at("a")) != weights(&at("d")), "another seed");
}

/// Ctrl-C somewhere in the middle, then `--resume`: the same weights as without.
#[cfg(unix)]
#[test]
fn an_interrupted_run_goes_on_to_the_same_bits() {
    use std::process::{Command, Stdio};
    let place = tempfile::tempdir().expect("a folder");
    let (whole, parts) = (place.path().join("whole"), place.path().join("parts"));
    let words = ["--model", "mlp", "--steps", "600", "--width", "48"];
    assert_eq!(train(&whole, &words).code, 0);

    let out = parts.to_str().expect("a path");
    let child = command(&[&["train"], &words[..], &["--out", out]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // It is in the middle once the log has some lines.
    let lines = || fs::read_to_string(parts.join("log.jsonl")).map_or(0, |log| log.lines().count());
    for _ in 0..6000 {
        if lines() > 20 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let killed =
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let stopped = ran(child.wait_with_output().expect("ends"));
    assert_eq!(stopped.code, 130, "{}{}", stopped.out, stopped.err);
    let said = stopped.err.lines().last().unwrap_or_default().to_string();
    assert!(
        said.starts_with("pullback: interrupted after step ")
            && said.contains(&format!("`pullback train --resume {out}`")),
        "{said}"
    );
    assert!(weights(&whole) != weights(&parts), "it was interrupted before the end");

    let resumed = run(&["train", "--resume", out]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(resumed.out.contains("600 steps"), "{}", resumed.out);
    assert!(weights(&whole) == weights(&parts), "resuming changes no bit");
    let log = fs::read_to_string(parts.join("log.jsonl")).expect("a log");
    let steps: Vec<u64> = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?["step"].as_u64())
        .collect();
    assert!(
        steps.windows(2).all(|pair| pair[0] < pair[1]) && steps.last() == Some(&600),
        "no step twice"
    );
}

#[test]
fn runs_are_not_overwritten() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    let quick = ["--model", "mlp", "--steps", "5"];
    assert_eq!(train(&folder, &quick).code, 0);
    let again = train(&folder, &quick);
    assert_eq!(again.code, 1);
    assert!(
        again.err.contains("contains a run already") && again.err.contains("--force"),
        "{}",
        again.err
    );
    fs::write(folder.join("notes.md"), "mine").expect("written");
    assert_eq!(train(&folder, &[&quick[..], &["--force", "--seed", "9"]].concat()).code, 0);
    assert!(folder.join("notes.md").is_file(), "what is not of a run stays");
    let other = place.path().join("other");
    fs::create_dir(&other).expect("made");
    fs::write(other.join("thesis.tex"), "years of work").expect("written");
    let refused = train(&other, &[&quick[..], &["--force"]].concat());
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains("is not a run folder") && other.join("thesis.tex").is_file(),
        "{}",
        refused.err
    );
    let changed = run(&["train", "--resume", folder.to_str().expect("a path"), "--width", "7"]);
    assert_eq!(changed.code, 2);
    assert!(changed.err.contains("--width cannot change when a run is resumed"), "{}", changed.err);
}

#[test]
fn text_is_learnt_and_written() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("words.txt");
    fs::write(&file, "the quick brown fox jumps over the lazy dog. ".repeat(60)).expect("written");
    let file = file.to_str().expect("a path");
    for model in ["gpt", "lstm"] {
        let folder = place.path().join(model);
        let words = [
            file,
            "--model",
            model,
            "--steps",
            "120",
            "--width",
            "32",
            "--num-layers",
            "1",
            "--context",
            "16",
            "--dropout",
            "0",
        ];
        let more = ["--prompt", "the quick ", "--sample", "40", "--temperature", "0"];
        let ran = train(&folder, &[&words[..], &more[..]].concat());
        assert_eq!(ran.code, 0, "{model}: {}", ran.err);
        let written = fs::read_to_string(folder.join("sample.txt")).expect("a text");
        assert!(
            written.starts_with("the quick brown") && written.len() == 50,
            "{model}: {written:?}"
        );
        assert!(ran.out.contains("bits a token") && ran.out.contains(&written), "{}", ran.out);
    }
    assert_refused_texts_leave_nothing(place.path());
    let folder = place.path().join("odd");
    let odd = train(&folder, &[file, "--steps", "5", "--prompt", "Ω"]);
    assert_eq!(odd.code, 2);
    assert!(
        odd.err.contains("--prompt") && odd.err.contains("not in the vocabulary"),
        "{}",
        odd.err
    );
    assert!(!folder.exists(), "a prompt that cannot be written leaves nothing");
    let short = place.path().join("short.txt");
    fs::write(&short, "a").expect("written");
    let short = train(&place.path().join("s"), &[short.to_str().expect("a path"), "--steps", "5"]);
    assert_eq!(short.code, 1);
    assert!(
        short.err.starts_with("pullback: ") && short.err.contains("less than a window"),
        "{}",
        short.err
    );
}

/// What cannot be trained leaves no folder that would pass for a run.
fn assert_refused_texts_leave_nothing(place: &Path) {
    #[rustfmt::skip]
    let cases: [(&[u8], &str); 3] = [
        (b"",             " is empty: there is no text to train on"),
        (b"a few words",  "the text has 11 tokens, which is less than a window of --context 64"),
        (b"caf\xe9 noir", "the byte at offset 3 is not UTF-8 text"),
    ];
    for (bytes, sentence) in cases {
        let (file, folder) = (place.join("refused.txt"), place.join("refused"));
        fs::write(&file, bytes).expect("written");
        let ran = train(&folder, &[file.to_str().expect("a path"), "--quick"]);
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(ran.err.starts_with("pullback: ") && ran.err.contains(sentence), "{}", ran.err);
        assert!(!folder.exists(), "{sentence}");
    }
}

/// What is wrong with each checkpoint is reported, down to the tensor; and a run is not shortened.
#[test]
fn what_cannot_be_resumed_is_said() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    let words = ["--model", "mlp", "--steps", "8", "--width", "16"];
    assert_eq!(train(&folder, &words).code, 0);
    let resume = |more: &[&str]| {
        run(&[&["train", "--resume", folder.to_str().expect("a path")], more].concat())
    };
    let config = || fs::read_to_string(folder.join("config.toml")).expect("a config");
    let before = config();
    let shorter = resume(&["--steps", "3"]);
    assert_eq!(shorter.code, 2, "{}", shorter.out);
    assert!(
        shorter.err.contains("has taken 8 steps already, and is to end at 3"),
        "{}",
        shorter.err
    );
    assert_eq!(config(), before, "what is refused changes nothing");

    // Another width: which tensors do not fit.
    fs::write(folder.join("config.toml"), before.replace("width = 16", "width = 20"))
        .expect("written");
    let other = resume(&[]);
    assert_eq!(other.code, 1, "{}", other.out);
    assert!(
        other.err.contains("does not fit the model") && other.err.contains("layers.0.weight"),
        "{}",
        other.err
    );
    assert!(!other.err.contains(".rs:"), "no lines of this program: {}", other.err);
    fs::write(folder.join("config.toml"), &before).expect("written");

    // A bit of every file of weights.
    for entry in fs::read_dir(folder.join("checkpoints")).expect("checkpoints") {
        let path = entry.expect("an entry").path().join("model.safetensors");
        let mut bytes = fs::read(&path).expect("weights");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, bytes).expect("written");
    }
    let corrupt = resume(&[]);
    assert_eq!(corrupt.code, 1, "{}", corrupt.out);
    let named = corrupt.err.matches("model.safetensors").count();
    assert!(corrupt.err.contains("can be used") && named >= 3, "{}", corrupt.err);
}

/// Ctrl-C while text is written ends the writing, not the process at the next one.
#[cfg(unix)]
#[test]
fn writing_is_interrupted_too() {
    use std::process::{Command, Stdio};
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    let out = folder.to_str().expect("a path");
    let words = [
        "train",
        "text",
        "--steps",
        "2",
        "--width",
        "16",
        "--num-layers",
        "1",
        "--sample",
        "100000000",
    ];
    let mut child = command(&[&words[..], &["--out", out]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // The plots are the last that training leaves.
    for _ in 0..6000 {
        if folder.join("plots/loss.png").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(child.try_wait().expect("runs").is_none(), "it writes");
    let killed =
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let stopped = ran(child.wait_with_output().expect("ends"));
    assert_eq!(stopped.code, 130, "{}", stopped.err);
    assert!(stopped.err.contains("interrupted"), "{}", stopped.err);
}

#[test]
fn the_embedded_text_runs() {
    let place = tempfile::tempdir().expect("a folder");
    let ran = train(
        &place.path().join("run"),
        &["text", "--quick", "--width", "32", "--num-layers", "1"],
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("20 steps"), "{}", ran.out);
}

#[test]
fn other_precisions_optimisers_and_schedules() {
    let place = tempfile::tempdir().expect("a folder");
    #[rustfmt::skip]
    let cases: [&[&str]; 10] = [
        &["--precision", "f64"], &["--precision", "bf16"], &["--precision", "f16"], &["--optimizer", "muon"], &["--optimizer", "sgd"], &["--optimizer", "lion"],
        &["--schedule", "constant"], &["--schedule", "one-cycle"], &["--schedule", "linear", "--warmup", "5"], &["--no-jit"],
    ];
    for (i, words) in cases.iter().enumerate() {
        let folder = place.path().join(i.to_string());
        let ran = train(&folder, &[&["--model", "mlp", "--epochs", "3"], *words].concat());
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.err);
        assert!(accuracy(&ran) > 50.0, "{words:?}: {}", ran.out);
    }
}

#[test]
fn sixteen_bits_keep_weights_in_f32_and_go_on_with_their_scale() {
    let place = tempfile::tempdir().expect("a folder");
    let (whole, parts) = (place.path().join("whole"), place.path().join("parts"));
    let lost = place.path().join("lost.json");
    // So large a scale that the first steps are skipped.
    let words =
        ["--model", "cnn", "--precision", "f16", "--loss-scale", "1e12", "--schedule", "constant"];
    let at_once = train(
        &whole,
        &[&words[..], &["--steps", "60", "--precision-report", lost.to_str().expect("a path")]]
            .concat(),
    );
    assert_eq!(at_once.code, 0, "{}", at_once.err);
    assert!(at_once.out.contains("parameters in f32, products in f16"), "{}", at_once.out);
    // The op and the line, and how many more there were.
    for text in [
        "note: step 1: gradients were not finite with a loss scale of 999999995904: the step was skipped, and the next has 499999997952",
        "first: ",
        " made an infinity in f16[",
        "at crates/cli/src/",
        "more steps were skipped because gradients were not finite",
        "lost.json says what f16 loses with a loss scale of",
    ] {
        assert!(at_once.out.contains(text), "no `{text}` in {}", at_once.out);
    }
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&lost).expect("a report")).expect("JSON");
    assert_eq!(report["dtype"], "f16");
    assert!(report["layers"].as_array().is_some_and(|layers| layers.len() > 4), "{report}");
    // Interrupted in the middle of backing off: the scale is in the checkpoint.
    assert_eq!(train(&parts, &[&words[..], &["--steps", "5"]].concat()).code, 0);
    let resumed = run(&["train", "--resume", parts.to_str().expect("a path"), "--steps", "60"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(weights(&whole) == weights(&parts), "resuming changes no bit");
    let scales = |folder: &Path| -> Vec<f64> {
        let log = fs::read_to_string(folder.join("log.jsonl")).expect("a log");
        let scale =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["scale"].as_f64();
        log.lines().filter_map(scale).collect()
    };
    assert_eq!(scales(&whole), scales(&parts));
    assert!(scales(&whole)[59] < 1e10);
    // Weights in the file are f32.
    let file = weights(&whole);
    let length = u64::from_le_bytes(file[..8].try_into().expect("eight bytes")) as usize;
    let header = String::from_utf8_lossy(&file[8..8 + length]);
    assert!(header.contains("\"F32\"") && !header.contains("F16\""), "{header}");
}

#[test]
fn what_makes_no_sense_is_said() {
    let place = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = place.path().join(name);
        fs::write(&path, text).expect("written");
        path.to_str().expect("a path").to_string()
    };
    let (near, kind, broken) = (
        file("near.toml", "modle = \"mlp\"\n"),
        file("kind.toml", "width = \"wide\"\n"),
        file("broken.toml", "\nwidth = = 3\n"),
    );
    let task = file("task.toml", "task = \"chess\"\n");
    let both = file("both.toml", "task = \"digits\"\ntext = \"book.txt\"\n");
    #[rustfmt::skip]
    let cases: [(&[&str], &str); 28] = [
        (&["--precision", "f8"],              "invalid value 'f8' for '--precision <PRECISION>'"),
        (&["--loss-scale", "8"],              "--loss-scale has no effect without --precision f16"),
        (&["--precision", "bf16", "--loss-scale", "8"], "--loss-scale has no effect without --precision f16"),
        (&["--precision", "f16", "--loss-scale", "0"],  "--loss-scale is 0, and must be above 0 and a number of f32"),
        (&["--precision", "f16", "--loss-scale", "1e60"], "and must be above 0 and a number of f32"),
        (&["--precision-report", "lost.txt"], "--precision-report has no effect without --precision bf16 or f16"),
        (&["digts"],                          "`digts` is neither a task nor a file; did you mean `digits`?"),
        (&["--model", "gpt"],                 "the model `gpt` is not for digits: use mlp or cnn"),
        (&["text", "--model", "cnn"],         "the model `cnn` is not for text: use gpt, gpt2 or lstm"),
        (&["--device", "cuda:63"],            "device cuda:63 is not available; available: cpu"),
        (&["--device", "abacus"],             "there is no device `abacus`"),
        (&["--optimizer", "adma"],            "there is no optimiser `adma`; there are adadelta"),
        (&["--batch-size", "0"],              "--batch-size is 0, and must be at least 1"),
        (&["--steps", "0"],                   "--steps is 0, and must be at least 1"),
        (&["--lr", "0"],                    "--lr is 0, and must be above 0"),
        (&["--dropout", "1"],                 "--dropout is 1, and must be at least 0 and below 1"),
        (&["text", "--width", "30"],          "the width 30 cannot be shared by 4 heads"),
        (&["--steps", "5", "--epochs", "5"],  "both steps and epochs are given"),
        (&[&near],                            "there is no option `modle`; did you mean `model`?"),
        (&[&kind],                            "`width` is \"wide\": invalid type: string \"wide\", expected a non-negative integer"),
        (&["--lr", "-1"],                   "--lr is -1, and must be above 0"),
        (&["--steps", "-5"],                  "invalid value '-5' for '--steps <N>'"),
        (&["--prompt", "To be"],              "`prompt` has no effect on the model `cnn`"),
        (&["--num-heads", "4"],                   "`num-heads` has no effect on the model `cnn`"),
        (&["text", "--model", "lstm", "--num-heads", "4"], "`num-heads` has no effect on the model `lstm`"),
        (&[&both],                            "`text` has no effect on the model `cnn`"),
        (&[&broken],                          "is not TOML: line 2"),
        (&[&task],                            "there is no task `chess`"),
    ];
    for (words, sentence) in cases {
        let folder = place.path().join("never");
        let ran = train(&folder, words);
        assert_eq!(ran.code, 2, "{words:?}: {}{}", ran.out, ran.err);
        assert!(
            ran.err.starts_with("pullback: ") && ran.err.contains(sentence),
            "{words:?}: {}",
            ran.err
        );
        assert!(!folder.exists(), "{words:?} leaves nothing");
    }
}

#[test]
fn a_report_on_memory_is_written_and_changes_nothing() {
    let place = tempfile::tempdir().expect("a folder");
    let few = ["--model", "mlp", "--steps", "3"];
    for (jit, first) in
        [("--jit", "memory of a step, predicted"), ("--no-jit", "memory of a step, measured")]
    {
        let (plain, logged) =
            (place.path().join(format!("plain{jit}")), place.path().join(format!("logged{jit}")));
        let file = place.path().join(format!("memory{jit}.txt"));
        let words = [&few[..], &[jit]].concat();
        assert_eq!(train(&plain, &words).code, 0);
        let ran = train(
            &logged,
            &[&words[..], &["--memory-report", file.to_str().expect("a plain path")]].concat(),
        );
        assert_eq!(ran.code, 0, "{}", ran.err);
        let text = fs::read_to_string(&file).expect("a report");
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("layers.0") && text.contains("models/classifier.rs:"), "{text}");
        assert_eq!(weights(&plain), weights(&logged));
    }
    let folder = place.path().join("none");
    let ran = train(&folder, &["--memory-report", "memory.png"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("memory.png ends neither in .txt, .json nor .svg"), "{}", ran.err);
    assert!(!folder.exists());
}

/// Workers that are processes: the same bits for 1, 2 and 4 of them with logical workers, one set
/// of files, and another number of workers that resumes.
#[cfg(unix)]
#[test]
fn workers_train_together() {
    let place = tempfile::tempdir().expect("a folder");
    let at = |name: &str| place.path().join(name);
    let words = ["digits", "--epochs", "1", "--threads", "1", "--logical-workers", "4"];
    assert_eq!(train(&at("1"), &words).code, 0);
    for workers in ["2", "4"] {
        let ran = train(&at(workers), &[&words[..], &["--workers", workers]].concat());
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        assert!(ran.out.contains("[0] test accuracy "), "{}", ran.out);
        assert!(!ran.out.contains("[1]"), "worker 0 alone prints: {}", ran.out);
        assert_eq!(weights(&at(workers)), weights(&at("1")), "{workers} workers");
        let rows = fs::read_to_string(at(workers).join("log.jsonl")).expect("a log");
        assert_eq!(rows.lines().count(), 22, "worker 0 alone writes");
    }
    let folder = at("4");
    let folder = folder.to_str().expect("a plain path");
    let ran = run(&["train", "--resume", folder, "--workers", "2", "--epochs", "2"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let words = ["digits", "--epochs", "1", "--threads", "1", "--logical-workers", "4"];
    assert_eq!(train(&at("again"), &words).code, 0);
    let alone = at("again");
    let ran = run(&["train", "--resume", alone.to_str().expect("a path"), "--epochs", "2"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(weights(&at("4")), weights(&alone), "resumed with another number of workers");
}

/// The same command goes on where it was, as a batch script is run again as it is.
#[test]
fn a_job_that_slurm_queues_again_goes_on() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    let words = ["digits", "--model", "mlp", "--width", "8", "--steps"];
    assert_eq!(train(&folder, &[&words[..], &["4"]].concat()).code, 0);
    let out = folder.to_str().expect("a plain path");
    let again = [&["train"], &words[..], &["8", "--out", out]].concat();
    let ran = ran(command(&again).env("SLURM_RESTART_COUNT", "1").output().expect("a start"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let log = fs::read_to_string(folder.join("log.jsonl")).expect("a log");
    let step = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["step"].as_u64();
    assert!(log.lines().filter_map(step).eq(1..=8), "{log}");
}

#[test]
fn numbers_of_workers_that_do_not_fit_are_refused() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    let ran = train(&folder, &["digits", "--quick", "--logical-workers", "6"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("--logical-workers 6: it must be a power of two"), "{}", ran.err);
    let ran = train(&folder, &["digits", "--quick", "--workers", "0"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(!folder.exists());
}
