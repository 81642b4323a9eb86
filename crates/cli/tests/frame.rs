//! The frame: help, version, exit codes, colours, pipes, completions, and the other small commands.

mod run;

use run::{command, ran, run};
use std::process::Stdio;

#[rustfmt::skip]
const COMMANDS: [&str; 9] = [
    "train", "grad", "check", "explain", "bench", "launch", "simulate", "ops", "completions",
];

#[test]
fn help_teaches() {
    let top = run(&["--help"]);
    assert_eq!(top.code, 0);
    for name in COMMANDS {
        assert!(top.out.contains(&format!("\n  {name} ")), "{name} is not in:\n{}", top.out);
        let help = run(&[name, "--help"]);
        assert_eq!((help.code, help.err.as_str()), (0, ""));
        assert!(
            help.out.contains("Examples:\n  pullback "),
            "{name} has no examples:\n{}",
            help.out
        );
    }
    assert!(top.out.contains("Exit codes"));
}

#[test]
fn exit_codes() {
    #[rustfmt::skip]
    let cases: [(&[&str], i32); 14] = [
        (&["--version"], 0),
        (&["grad", "x", "x=1"], 0),
        (&["ops", "tanh"], 0),
        (&["check", "x^2", "x=3"], 0),
        (&["check", "relu(x)", "x=0"], 1),
        (&["ops", "frobnicate"], 1),
        (&["train", "-q"], 2),
        (&["grad", "-x", "x=1"], 0),
        (&[], 2),
        (&["frobnicate"], 2),
        (&["grad"], 2),
        (&["grad", "x", "--frobnicate"], 2),
        (&["grad", "x", "--mode", "sideways"], 2),
        (&["grad", "x +", "x=1"], 2),
    ];
    for (words, code) in cases {
        let ran = run(words);
        assert_eq!(ran.code, code, "{words:?}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        if code != 0 && !words.is_empty() {
            assert!(ran.err.starts_with("pullback: "), "{words:?}: {}", ran.err);
        }
    }
}

#[test]
fn words_that_only_look_like_flags_or_filters() {
    #[rustfmt::skip]
    let cases: [(&[&str], &str); 4] = [
        (&["check", "x", "x=1", "--tolerance", "-1"], "--tolerance is -1, which is not a positive number"),
        (&["grad", "x", "x=1", "--digits", "-5"],     "invalid value '-5' for '--digits <N>'"),
        (&["grad", "-5"],                             "the expression has no variables"),
        (&["ops", "tanh", "--filter", "x"],           "cannot be used with"),
    ];
    for (words, sentence) in cases {
        let ran = run(words);
        assert!(ran.code == 2 && ran.err.contains(sentence), "{words:?}: {}", ran.err);
    }
}

#[test]
fn colours_only_when_asked_for() {
    let coloured = |words: &[&str]| run(words).out.contains('\x1b');
    let base = ["grad", "x^2", "x=3"];
    assert!(!coloured(&base), "not a terminal");
    assert!(coloured(&[&base[..], &["--color", "always"]].concat()));
    assert!(!coloured(&[&base[..], &["--color=never"]].concat()));
    assert!(!coloured(&["grad", "--help"]));
    let output =
        command(&["ops", "tanh", "--color", "auto"]).env("NO_COLOR", "1").output().unwrap();
    assert!(!ran(output).out.contains('\x1b'));
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    for words in [&["ops"][..], &["ops", "--json"], &["completions", "bash"], &["grad", "x", "x=1"]]
    {
        let mut child =
            command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("ends");
        let ran = ran(output);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}");
    }
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run(&["completions", shell]);
        assert_eq!(script.code, 0);
        for name in COMMANDS {
            assert!(script.out.contains(name), "{shell} lacks {name}");
        }
    }
    // Where the shell itself is there, it finds nothing wrong with the script.
    let script = run(&["completions", "bash"]).out;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), script).expect("written");
    if let Ok(status) = std::process::Command::new("bash").arg("-n").arg(file.path()).status() {
        assert!(status.success());
    }
}

#[test]
fn ops_are_listed() {
    let all = run(&["ops"]);
    for line in ["  tanh  ", "  cross_entropy  ", "  layer_norm  ", "The op table", "  softsign  "]
    {
        assert!(all.out.contains(line), "{line}");
    }
    let one = run(&["ops", "relu"]);
    assert!(
        one.out.contains("derivative: y.gt(0.0)") && one.out.contains("at 0: 0"),
        "{}",
        one.out
    );
    let near = run(&["ops", "tahn"]);
    assert!(near.err.contains("did you mean `tan`, `tanh`"), "{}", near.err);
    let list: serde_json::Value = serde_json::from_str(&run(&["ops", "--json"]).out).expect("JSON");
    let list = list.as_array().expect("a list");
    assert!(list.len() > 300, "{}", list.len());
    assert!(list.iter().all(|op| op["name"].is_string() && op["derivative"].is_string()));
    let some = run(&["ops", "--filter", "softmax", "--primitives"]);
    assert!(some.out.lines().skip(1).all(|line| line.contains("softmax")), "{}", some.out);
}

#[test]
fn check_compares_derivatives() {
    let good = run(&["check", "sum(softmax(x)^2) * y", "x=[1, 2, 3]", "y=2"]);
    assert_eq!(good.code, 0, "{}", good.out);
    assert_eq!(good.out.matches("same").count(), 4, "{}", good.out);
    let cut = run(&["check", "stop_gradient(x) * x", "x=3"]);
    assert_eq!(cut.code, 1);
    assert!(cut.out.contains("differs") && cut.err.contains("found differences"), "{}", cut.out);
    // At a kink the function and the convention are named, and no derivative is called wrong.
    let at = |op: &str, place: &str, derivative: &str| {
        format!(
            "`{op}` has no derivative here ({place}); by convention, the derivative is {derivative}"
        )
    };
    let kinks: [(&[&str], String); 3] = [
        (&["abs(x)", "x=0"], at("abs", "0", "0")),
        (&["relu(x)", "x=0"], at("relu", "0", "0")),
        (&["y * maximum(x, 2)", "x=2", "y=3"], at("maximum", "a = b", "")),
    ];
    for (words, kink) in kinks {
        let ran = run(&[&["check"], words].concat());
        assert_eq!(ran.code, 1, "{}", ran.out);
        assert!(ran.out.contains(&format!("kink  {kink}")), "{}", ran.out);
        assert!(!ran.out.contains("differs") && !ran.out.contains("WRONG"), "{}", ran.out);
        assert!(ran.err.contains(&kink) && ran.err.contains("not comparable"), "{}", ran.err);
    }
    let smooth = run(&["check", "abs(x)", "x=2"]);
    assert!(smooth.code == 0 && !smooth.out.contains("kink"), "{}", smooth.out);
    // Steps suit the function and the place; only what is infinite is near infinity.
    for words in
        [["sin(x)", "x=1000"], ["exp(x)", "x=700"], ["log(x)", "x=1e-6"], ["cos(100*x)", "x=3"]]
    {
        let ran = run(&[&["check"], &words[..]].concat());
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.out);
    }
    let pole = run(&["check", "1/x", "x=0"]);
    let named = "`div` has no derivative here (b = 0)";
    assert!(pole.code == 1 && pole.out.contains(named) && !pole.out.contains("same"), "{pole:?}");
    let report: serde_json::Value =
        serde_json::from_str(&run(&["check", "x^3", "x=2", "--json"]).out).expect("JSON");
    assert_eq!(report["derivatives"][0]["reverse"].as_f64(), Some(12.0));
}

#[test]
fn the_installation_is_sound() {
    let ran = run(&["check"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(
        ran.out.lines().count() >= 5 && ran.out.lines().all(|line| line.starts_with("ok  ")),
        "{}",
        ran.out
    );
}
