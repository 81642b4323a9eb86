//! The protocol: the answers to messages, and to invalid ones.

mod common;

use common::Tool;
use serde_json::json;

#[test]
fn a_session_goes_as_the_protocol_says() {
    let mut tool = Tool::start();
    let start = tool.ask(json!({ "id": 0, "kind": "start", "eval": "hello", "config": {} }));
    assert_eq!((&start["id"], &start["tool"]), (&json!(0), &json!("pullback")));
    assert_eq!(start["config"]["threads"], 1);
    assert!(start.get("success").is_none(), "a start is only acknowledged: {start}");
    let define = tool.ask(json!({ "id": 1, "kind": "define", "module": "hello" }));
    assert_eq!(define, json!({ "id": 1, "success": true }));
    assert_eq!(tool.evaluate("hello", "square", json!(3.0)), 9.0);
    assert_eq!(tool.evaluate("hello", "double", json!(-1.5)), -3.0);
    // Whole numbers are numbers.
    assert_eq!(tool.evaluate("hello", "double", json!(2)), 4.0);
    let analysis = tool.ask(json!({ "id": 2, "kind": "analysis", "of": 1, "valid": true }));
    assert_eq!(analysis, json!({ "id": 2 }));
    // Any other kind is acknowledged too.
    assert_eq!(tool.ask(json!({ "id": 3, "kind": "end" })), json!({ "id": 3 }));
}

#[test]
fn all_twelve_modules_are_there() {
    let mut tool = Tool::start();
    let evals = "ba det gmm hello ht kmeans llsq lse lstm ode particle saddle";
    for module in evals.split(' ') {
        let answer = tool.ask(json!({ "id": module, "kind": "define", "module": module }));
        assert_eq!(answer, json!({ "id": module, "success": true }));
    }
}

#[test]
fn what_is_not_there_is_said_to_be_missing() {
    let mut tool = Tool::start();
    let answer = tool.ask(json!({ "id": 4, "kind": "define", "module": "foo" }));
    assert_eq!((&answer["id"], &answer["success"]), (&json!(4), &json!(false)));
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("no module \"foo\"") && error.contains("kmeans"), "{error}");
    assert!(tool.refusal("foo", "bar", json!(1)).contains("no module \"foo\""));
    let error = tool.refusal("hello", "triple", json!(1));
    assert!(error.contains("no function \"triple\"") && error.contains("square"), "{error}");
    assert_eq!(tool.evaluate("hello", "square", json!(2.0)), 4.0);
}

#[test]
fn whatever_comes_is_answered_and_the_next_message_too() {
    let mut tool = Tool::start();
    let refused = |tool: &mut Tool, line: &str, why: &str| {
        let answer = tool.say(line);
        assert_eq!(answer["success"], false, "{line}: {answer}");
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains(why), "{line}: {error}");
        answer["id"].clone()
    };
    for line in
        ["{", "nonsense", "{\"id\": 1, \"kind\": \"define\",}", "\u{1F600}", "{\"id\": 1e999}"]
    {
        assert!(refused(&mut tool, line, "not JSON").is_null());
    }
    assert!(refused(&mut tool, "[1, 2]", "a list, not an object").is_null());
    assert!(refused(&mut tool, "null", "null, not an object").is_null());
    assert!(refused(&mut tool, "{}", "no \"kind\"").is_null());
    assert_eq!(refused(&mut tool, r#"{"id": 5}"#, "no \"kind\""), 5);
    assert_eq!(refused(&mut tool, r#"{"id": 6, "kind": 7}"#, "\"kind\" is a number"), 6);
    assert_eq!(refused(&mut tool, r#"{"id": 7, "kind": "define"}"#, "no \"module\""), 7);
    let line = r#"{"id": 8, "kind": "evaluate", "module": "hello", "function": "square"}"#;
    assert_eq!(refused(&mut tool, line, "no \"input\""), 8);
    let line =
        r#"{"id": 9, "kind": "evaluate", "module": "hello", "function": ["square"], "input": 1}"#;
    assert_eq!(refused(&mut tool, line, "\"function\" is a list"), 9);
    assert_eq!(tool.say("{\"id\": 10, \"kind\": \"analysis\"}\r"), json!({ "id": 10 }));
    let deep = "[".repeat(100_000);
    assert!(refused(&mut tool, &deep, "not JSON").is_null());
    assert_eq!(tool.evaluate("hello", "square", json!(2.0)), 4.0);
}

#[test]
fn wrong_inputs_get_a_sentence() {
    let mut tool = Tool::start();
    for (module, function, input, why) in [
        ("hello", "square", json!("3"), "expected f64"),
        ("hello", "square", json!(null), "expected f64"),
        ("hello", "double", json!([1.0]), "expected f64"),
        ("lse", "gradient", json!({}), "missing field `x`"),
        ("lse", "gradient", json!({ "x": [] }), "no numbers"),
        ("lse", "primal", json!({ "x": [1.0, "a"] }), "expected f64"),
        ("lse", "primal", json!({ "x": [1.0], "min_runs": -1 }), "expected u64"),
        ("lse", "primal", json!({ "x": [1.0], "min_runs": 1.5 }), "expected u64"),
        ("lse", "primal", json!({ "x": [1.0], "min_seconds": "long" }), "string"),
        ("lse", "primal", json!({ "x": [1.0], "min_seconds": -1.0 }), "min_seconds is -1"),
        ("lse", "primal", json!({ "x": [1.0], "min_seconds": 1e308 }), "not from 0 to 3600"),
        ("lse", "primal", json!({ "x": [1.0], "min_runs": u64::MAX }), "10000000 are the most"),
        // Lists would fill the fields by position.
        ("lse", "primal", json!([[1.0, 2.0]]), "not an object"),
        ("saddle", "rr", json!([[1.0, 2.0]]), "not an object"),
        // What JSON has no number for.
        ("hello", "square", json!(1e200), "not finite"),
        // Sizes that overflow.
        ("llsq", "primal", json!({ "x": [1.0], "n": u64::MAX }), "n is 18446744073709551615"),
        ("det", "primal", json!({ "A": [1.0], "ell": 1u64 << 32 }), "A has 1 numbers"),
        ("ode", "gradient", json!({ "x": [0.5, 0.2], "s": 1u64 << 60 }), ""),
        (
            "gmm",
            "objective",
            json!({ "d": u64::MAX, "k": 1, "n": 0, "x": [], "m": 0, "gamma": 1, "alpha": [0], "mu": [[]], "q": [[]], "l": [[]] }),
            "d is",
        ),
        ("particle", "rr", json!({ "v": 0.0 }), "missing field `w`"),
        ("saddle", "ff", json!({ "start": [1.0] }), "length 2"),
        ("saddle", "ff", json!({ "start": [1.0, 2.0, 3.0] }), "invalid length 3"),
    ] {
        let error = tool.refusal(module, function, input.clone());
        assert!(error.contains(why), "{module}::{function} of {input}: {error}");
        assert!(error.starts_with(&format!("{module}::{function}: ")), "{error}");
    }
    assert_eq!(tool.evaluate("hello", "square", json!(2.0)), 4.0);
}

#[test]
fn functions_run_as_often_and_as_long_as_they_are_asked_to() {
    let mut tool = Tool::start();
    let mut timings = |input| {
        let message = json!({
            "id": 1, "kind": "evaluate", "module": "lse", "function": "gradient", "input": input,
        });
        let answer = tool.ask(message);
        let timings = answer["timings"].as_array().unwrap().clone();
        assert_eq!(timings[0]["name"], "prepare");
        let of = |t: &serde_json::Value| {
            assert_eq!(t["name"], "evaluate");
            t["nanoseconds"].as_u64().unwrap()
        };
        timings[1..].iter().map(of).collect::<Vec<u64>>()
    };
    assert_eq!(timings(json!({ "x": [1.0, 2.0] })).len(), 1);
    assert_eq!(timings(json!({ "x": [1.0, 2.0], "min_runs": 0 })).len(), 1);
    assert_eq!(timings(json!({ "x": [1.0, 2.0], "min_runs": 5, "min_seconds": 0 })).len(), 5);
    let long = timings(json!({ "x": [1.0, 2.0], "min_runs": 2, "min_seconds": 0.01 }));
    assert!(long.len() >= 2 && long.iter().sum::<u64>() >= 10_000_000);
    // Stops with the run that reaches the time.
    assert!(long[..long.len() - 1].iter().sum::<u64>() < 10_000_000 || long.len() == 2);
}

/// Bytes that are no text, and a last line without an end.
#[test]
fn bytes_are_answered_too() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut tool = Command::new(env!("CARGO_BIN_EXE_pullback-gradbench"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = tool.stdin.take().unwrap();
    input.write_all(b"\xFF\xFE{}\n\n  \n{\"id\": 1, \"kind\": \"start\"}").unwrap();
    drop(input);
    let output = tool.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("line 1 is not JSON") && lines[1].contains("pullback"), "{text}");
}
