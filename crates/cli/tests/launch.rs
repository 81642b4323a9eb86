//! `pullback launch` and `pullback simulate`.
#![cfg(unix)]

#[allow(dead_code)] // nothing here is recorded
mod run;

use run::{command, ran, run};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts `sh` as workers.
fn launch(options: &[&str], script: &str) -> run::Ran {
    let words = [&["launch"], options, &["--", "sh", "-c", script]].concat();
    run(&words)
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn workers_get_ranks_and_their_lines_a_prefix() {
    let script =
        "echo out $PULLBACK_RANK of $PULLBACK_WORKERS; echo err $PULLBACK_RANK >&2; printf end";
    let ran = launch(&["-n", "3"], script);
    assert_eq!(ran.code, 0, "{}", ran.err);
    #[rustfmt::skip]
    assert_eq!(sorted(&ran.out), [
        "[0] end", "[0] out 0 of 3", "[1] end", "[1] out 1 of 3", "[2] end", "[2] out 2 of 3",
    ]);
    assert_eq!(sorted(&ran.err), ["[0] err 0", "[1] err 1", "[2] err 2"]);
}

#[test]
fn lines_that_are_written_in_pieces_stay_whole() {
    let script = "i=0; while [ $i -lt 200 ]; do printf aaaa; printf bbbb; printf 'cccc\\n'; i=$((i+1)); done";
    let ran = launch(&["-n", "11"], script);
    assert_eq!((ran.code, ran.out.lines().count()), (0, 11 * 200));
    for line in ran.out.lines() {
        let (prefix, rest) = line.split_at(5);
        assert!(rest == "aaaabbbbcccc" && prefix.starts_with('['), "{line}");
    }
}

#[test]
fn exit_codes_are_passed_on_and_the_others_are_ended() {
    let ran = launch(&["-n", "2"], "exit 7");
    assert_eq!(ran.code, 7, "{}", ran.err);
    assert!(ran.err.contains("failed with exit code 7"), "{}", ran.err);
    // The other one sleeps, with a process of its own that holds the output open.
    let ran = launch(&["-n", "2"], "test $PULLBACK_RANK = 0 && kill -9 $$; sleep 600; echo late");
    assert_eq!((ran.code, ran.out.as_str()), (137, ""), "{}", ran.err);
    assert!(ran.err.contains("launch: worker 0 was killed by SIGKILL"), "{}", ran.err);
}

#[test]
fn signals_are_passed_on() {
    let script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = command(&["launch", "-n", "2", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    for _ in 0..2 {
        line.clear();
        out.read_line(&mut line).expect("a line");
        assert!(line.ends_with("ready\n"), "{line}");
    }
    let killed = Command::new("sh").args(["-c", &format!("kill -TERM {}", child.id())]).status();
    assert!(killed.expect("a shell").success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    assert_eq!(sorted(&rest), ["[0] asked", "[1] asked"]);
    assert_eq!(child.wait().expect("an end").code(), Some(3));
}

/// A training is asked to end: it saves a checkpoint, and goes on with another number of workers.
#[test]
fn a_training_that_is_asked_to_end_saves_a_checkpoint() {
    for signal in ["-INT", "-TERM"] {
        let place = tempfile::tempdir().expect("a folder");
        let out = place.path().join("run");
        let folder = out.to_str().expect("a plain path");
        let program = env!("CARGO_BIN_EXE_pullback");
        let train = "train digits --model mlp --width 8 --steps 1000000 --no-jit --out";
        let words: Vec<&str> = train.split(' ').collect();
        let child =
            command(&[&["launch", "-n", "2", "--", program], &words[..], &[folder]].concat())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the program starts");
        let lines =
            || std::fs::read_to_string(out.join("log.jsonl")).map_or(0, |log| log.lines().count());
        for _ in 0..6000 {
            if lines() > 5 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(killed.expect("kill").success());
        let stopped = ran(child.wait_with_output().expect("an end"));
        assert_eq!(stopped.code, 130, "{signal}: {}", stopped.err);
        assert!(stopped.err.contains("and a checkpoint saved"), "{signal}: {}", stopped.err);
        let saved = std::fs::read_dir(out.join("checkpoints")).expect("checkpoints");
        let step = saved.flatten().filter_map(|entry| {
            entry.file_name().to_str()?.split_once("-step-")?.1.parse::<u64>().ok()
        });
        let steps = (step.max().expect("a checkpoint") + 3).to_string();
        let resumed = run(&["train", "--resume", folder, "--workers", "3", "--steps", &steps]);
        assert_eq!(resumed.code, 0, "{signal}: {}", resumed.err);
        assert!(resumed.out.contains(&format!("{steps} steps in")), "{}", resumed.out);
    }
}

/// A worker of a training is killed: the others end, and fewer go on from the last checkpoint.
#[test]
fn a_training_goes_on_after_a_worker_was_killed() {
    let place = tempfile::tempdir().expect("a folder");
    let out = place.path().join("run");
    let folder = out.to_str().expect("a plain path");
    let program = env!("CARGO_BIN_EXE_pullback");
    let launch = ["launch", "-n", "3", "--restarts", "2", "--min-workers", "2", "--", program];
    let train = "train digits --model mlp --width 8 --steps 2000 --no-jit --out";
    let words: Vec<&str> = train.split(' ').collect();
    let child = command(&[&launch[..], &words[..], &[folder]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let saved = || std::fs::read_dir(out.join("checkpoints")).map_or(0, Iterator::count);
    for _ in 0..6000 {
        if saved() > 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let workers = Command::new("pgrep").args(["-P", &child.id().to_string()]).output();
    let workers = String::from_utf8_lossy(&workers.expect("pgrep").stdout).into_owned();
    let last = workers.lines().last().expect("a worker").to_string();
    assert!(Command::new("kill").args(["-9", &last]).status().expect("kill").success());
    let ended = ran(child.wait_with_output().expect("an end"));
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("was killed by SIGKILL"), "{}", ended.err);
    assert!(
        ended.err.contains("launch: starting 2 workers again (1 of 2 restarts)"),
        "{}",
        ended.err
    );
    assert!(ended.out.contains("2000 steps in"), "{}", ended.out);
    // It went on, and did not begin anew: every step is in the log once.
    let log = std::fs::read_to_string(out.join("log.jsonl")).expect("a log");
    let step = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["step"].as_u64();
    let steps: Vec<u64> = log.lines().filter_map(step).collect();
    assert!(steps.iter().copied().eq(1..=2000), "{} lines", steps.len());
}

/// What is spread over workers trains as one process does, and goes on there.
#[test]
fn a_spread_training_is_that_of_one_process() {
    let place = tempfile::tempdir().expect("a folder");
    let train = |given: &str, folder: &str, more: &str| {
        let folder = place.path().join(folder);
        let same = "--width 8 --precision f64 --dropout 0";
        let words = format!("train {given} {same} --steps 6 {more} --out {}", folder.display());
        let first = run(&words.split_whitespace().collect::<Vec<_>>());
        assert_eq!(first.code, 0, "{}", first.err);
        // By one process, without sharding if there was one.
        let words = format!("train --resume {} --workers 1 --steps 9", folder.display());
        let resumed = run(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(resumed.code, 0, "{}", resumed.err);
        let log = std::fs::read_to_string(folder.join("log.jsonl")).expect("a log");
        let loss =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["loss"].as_f64();
        log.lines().filter_map(loss).collect::<Vec<f64>>()
    };
    let mlp = "digits --model mlp --batch-size 60";
    // Without --sync-batch-norm each worker would normalise by its own examples.
    let cnn = "digits --model cnn --batch-size 60 --sync-batch-norm";
    let gpt = "text --model gpt --num-heads 2 --num-layers 2 --context 16 --sample 8";
    let lstm = "text --model lstm --context 16 --sample 0";
    // A batch of 16 cannot be divided evenly by three.
    let cases = [
        ("mlp", mlp, &["--shard 1", "--shard 2", "--shard 3", "--shard 3 --no-jit"][..]),
        ("cnn", cnn, &["", "--shard 2", "--shard 3", "--shard 3 --no-jit"]),
        ("gpt", gpt, &["--shard 3"]),
        ("lstm", lstm, &["--shard 3"]),
    ];
    for (name, given, ways) in cases {
        let one = train(given, &format!("{name}-one"), "");
        for (i, way) in ways.iter().enumerate() {
            let spread = train(given, &format!("{name}-{i}"), &format!("--workers 3 {way}"));
            assert_eq!((spread.len(), one.len()), (9, 9));
            for (a, b) in spread.iter().zip(&one) {
                assert!((a - b).abs() < 1e-9 * b, "{name} {way}: {spread:?} is not {one:?}");
            }
        }
    }
    let sample = |folder: &str| {
        std::fs::read_to_string(place.path().join(folder).join("sample.txt")).expect("a sample")
    };
    assert_eq!(sample("gpt-0"), sample("gpt-one"));
    let report = ["--shard", "3", "--precision", "bf16", "--precision-report", "lost.txt"];
    let refused: [(&[&str], &str); 6] = [
        (&["--shard", "4"], "there are the stages 1, 2 and 3"),
        (&report, "which no worker has with --shard 3"),
        (&["--shard", "2", "--logical-workers", "4"], "exclude each other"),
        (&["--sync-batch-norm", "--logical-workers", "4"], "exclude each other"),
        (&["--sync-batch-norm", "--model", "mlp"], "mlp has no batch normalisation"),
        (&["--shard", "1", "--optimizer", "muon"], "muon needs whole parameters"),
    ];
    for (words, text) in refused {
        let ran = run(&[&["train", "digits"], words].concat());
        assert!(ran.code == 2 && ran.err.contains(text), "{}", ran.err);
    }
}

/// Another number of workers than was started is a sentence on all of them.
#[test]
fn a_wrong_number_of_workers_is_a_sentence_on_all() {
    let program = env!("CARGO_BIN_EXE_pullback");
    let ran = run(&["launch", "-n", "2", "--", program, "train", "digits", "--workers", "3"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    for rank in 0..2 {
        let line = format!(
            "[{rank}] pullback: --workers 3: this is one of 2 workers that were started together"
        );
        assert!(ran.err.contains(&line), "{}", ran.err);
    }
}

/// Each worker looks for a GPU, and where there is none all say so.
#[test]
fn workers_without_a_gpu_say_so() {
    if pullback::Device::Cuda(0).is_available() {
        println!("skipped: there is a GPU here");
        return;
    }
    let ran = run(&["train", "digits", "--workers", "2", "--device", "cuda"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("gpu_of_worker") && ran.err.contains("there is no GPU"),
        "{}",
        ran.err
    );
}

/// Workers whose shared memory does not fit say so. It takes a small file system of its own.
#[test]
fn shared_memory_that_does_not_fit_is_a_sentence() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().to_str().expect("a plain path");
    let mount = format!("mount -t tmpfs -o size=256k none {folder}");
    let may = Command::new("unshare").args(["-m", "sh", "-c", &mount]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("skipped: a file system cannot be mounted here");
        return;
    }
    let program = env!("CARGO_BIN_EXE_pullback");
    let script = format!(
        "{mount} && PULLBACK_SHARED={folder} exec {program} launch -n 2 -- {program} bench workers"
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output();
    let ran = ran(output.expect("a shell"));
    assert_ne!(ran.code, 0, "{}", ran.out);
    assert!(ran.err.contains("cannot join") && ran.err.contains("No space left"), "{}", ran.err);
}

/// A shell clears the mask of signals by itself, so that it cannot tell whether a worker got one.
#[test]
fn workers_start_with_no_signal_blocked() {
    let ran = command(&["launch", "-n", "1", "--", "grep", "SigBlk", "/proc/self/status"]).output();
    let ran = ran.expect("the program starts");
    let out = String::from_utf8_lossy(&ran.stdout);
    if cfg!(target_os = "linux") {
        assert!(out.trim_end().ends_with("0000000000000000"), "{out}");
    }
}

#[test]
fn the_session_is_removed() {
    let ran = launch(&["-n", "1"], "echo $PULLBACK_SESSION; ls $PULLBACK_SESSION; kill -9 $$");
    let path = ran.out.lines().next().and_then(|line| line.strip_prefix("[0] ")).expect("a path");
    assert!(ran.out.contains("[0] launcher"), "{}", ran.out);
    assert!(!Path::new(path).exists(), "{path}");
}

#[test]
fn a_group_is_started_again_as_often_as_was_asked() {
    let script = "echo $PULLBACK_RESTART of $PULLBACK_WORKERS; test $PULLBACK_RESTART = 2";
    let ran = launch(&["-n", "3", "--restarts", "3", "--min-workers", "2"], script);
    assert_eq!(ran.code, 0, "{}", ran.err);
    #[rustfmt::skip]
    assert_eq!(sorted(&ran.out), [
        "[0] 0 of 3", "[0] 1 of 2", "[0] 2 of 2", "[1] 0 of 3", "[1] 1 of 2", "[1] 2 of 2",
        "[2] 0 of 3",
    ]);
    let ran = launch(&["-n", "1", "--restarts", "1"], script);
    assert_eq!((ran.code, sorted(&ran.out)), (1, vec!["[0] 0 of 1", "[0] 1 of 1"]));
}

#[test]
fn what_cannot_be_started_is_a_sentence() {
    let cases: [(&[&str], i32, &str); 4] = [
        (&["launch", "-n", "2", "--", "no-such-program"], 1, "`no-such-program` cannot be started"),
        (&["launch", "-n", "0", "--", "true"], 2, "0 is not in 1..=1024"),
        (&["launch", "-n", "2", "--min-workers", "3", "--", "true"], 2, "--min-workers 3 is not"),
        (&["launch", "-n", "2"], 2, "COMMAND"),
    ];
    for (words, code, text) in cases {
        let ran = run(words);
        assert_eq!(ran.code, code, "{words:?}: {}", ran.err);
        assert!(ran.err.contains(text), "{words:?}: {}", ran.err);
    }
}

#[cfg(not(feature = "mpi"))]
#[test]
fn a_program_without_mpi_says_so_under_mpirun() {
    let output = command(&["bench", "workers"]).env("OMPI_COMM_WORLD_SIZE", "2").output();
    let ran = ran(output.expect("the program starts"));
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("mpirun started several workers, but this program was built without"));
    assert!(ran.err.contains("feature `mpi`"), "{}", ran.err);
    // As `srun -N 2 -n 2` starts it.
    let mut task = command(&["bench", "workers"]);
    task.envs([("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2")]);
    let ran = ran_of(task.env("SLURM_STEP_NUM_NODES", "2"));
    assert_eq!(ran.code, 1);
    let said = "slurm started workers on several machines, but this program was built without";
    assert!(ran.err.contains(said), "{}", ran.err);
}

fn ran_of(command: &mut Command) -> run::Ran {
    ran(command.output().expect("the program starts"))
}

#[test]
fn an_engine_that_is_not_there_is_a_sentence() {
    for (engine, text) in [
        ("pigeons", "there is no engine `pigeons`; there are `local`, `mpi`"),
        ("local", "the engine `local` needs workers that `pullback launch` has started, or slurm"),
    ] {
        let ran = ran_of(command(&["bench", "workers"]).env("PULLBACK_ENGINE", engine));
        assert!(ran.code == 1 && ran.err.contains(text), "{}", ran.err);
    }
}

#[test]
fn workers_measure_themselves() {
    let ran = run(&["bench", "workers", "--json", "--largest", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for (engine, workers) in [("threads", 2), ("local", 2), ("threads", 4), ("local", 4)] {
        let row = format!("{{\"engine\":\"{engine}\",\"workers\":{workers},\"bytes\":1048576,");
        assert!(ran.out.contains(&row), "{}", ran.out);
    }
}

const SCHEDULE: &str = r#"{"forward": 0.01, "backward": 0.02, "update": 0.002,
    "buckets": [{"bytes": 1000000, "ready": 0.01}, {"bytes": 1000000, "ready": 0.02}]}"#;

#[test]
fn a_schedule_is_simulated() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("step.json");
    std::fs::write(&path, SCHEDULE).expect("a file");
    let path = path.to_str().expect("a plain path");
    // A ring of two: each byte goes once in and once out by half, which is 10 ms for a bucket.
    let words = ["simulate", path, "--workers", "2", "--machine", "1", "--latency", "0"];
    let ran = run(&[&words[..], &["--bandwidth", "0.1"]].concat());
    let ring = ran.out.lines().find(|line| line.contains("ring")).expect("a row");
    let cells: Vec<&str> = ring.split_whitespace().collect();
    assert_eq!(cells, ["2", "ring", "none", "42.00", "10.00", "76.2%"], "{}", ran.out);
    let checked = run(&["simulate", path, "--check", "2"]);
    assert_eq!(checked.code, 0, "{}", checked.err);
    assert!(checked.out.contains("predicted ms"), "{}", checked.out);
    let trained = run(&["simulate", "--train", "2", "--bandwidth", "0.5"]);
    assert_eq!(trained.code, 0, "{}", trained.err);
    assert!(trained.out.lines().nth(1).is_some_and(|row| row.ends_with('%')), "{}", trained.out);
    std::fs::write(path, "{\"forward\": 10}").expect("a file");
    let wrong = run(&["simulate", path]);
    assert!(wrong.code == 1 && wrong.err.contains("is not a schedule: missing field"));
}
