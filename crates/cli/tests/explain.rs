//! `pullback explain` and `pullback bench`: what the compiler makes of models, and the front of the
//! benchmarks.

mod run;

use run::run;
use serde_json::Value;

#[test]
fn models_are_explained() {
    for name in ["mlp", "cnn", "gpt", "lstm"] {
        let ran = run(&["explain", name]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.err);
        for part in [
            "as traced: ",
            "passes\n",
            "  fuse ",
            "what runs: ",
            "kernels: ",
            "at the peak",
            "compiled in: ",
            "models/",
        ] {
            assert!(ran.out.contains(part), "{name} lacks {part}");
        }
        let short = run(&["explain", name, "--summary"]);
        assert!(!short.out.contains("program (") && short.out.contains("kernels: "));
    }
}

/// Without a GPU too.
#[test]
fn kernels_of_a_gpu_are_explained() {
    let ran = run(&["explain", "gpt", "--device", "cuda", "--summary", "--code"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for part in ["kernels of the GPU", "registers", "  norms ", "code of equations "] {
        assert!(ran.out.contains(part), "there is no {part}: {}", ran.out);
    }
    assert!(ran.out.contains("extern \"C\" __global__ void"), "{}", ran.out);
    let ran = run(&["explain", "mlp", "--device", "cuda", "--json"]);
    let found: Value = serde_json::from_str(&ran.out).expect("JSON");
    let kernels = found["device_kernels"].as_array().expect("a list");
    assert!(kernels.iter().any(|kernel| kernel["kernel"] == "region"), "{kernels:?}");
    assert!(kernels.iter().all(|kernel| kernel["bytes"].as_u64() > Some(0)), "{kernels:?}");
    // Without the GPU, nothing is said of memory: the CPU's plan is another.
    let absent = !found["absent_device"].is_null();
    assert_eq!((found["peak_bytes"].is_null(), found["compile_ms"].is_null()), (absent, absent));
}

#[test]
fn figures_are_given_as_json() {
    let ran = run(&["explain", "mlp", "--json"]);
    let found: Value = serde_json::from_str(&ran.out).expect("JSON");
    let passes = found["passes"].as_array().expect("a list");
    let fuse = passes.iter().find(|pass| pass["name"] == "fuse").expect("there is fusion");
    assert!(fuse["after"].as_u64() < fuse["before"].as_u64(), "{fuse}");
    let lines = found["peak_by_line"].as_array().expect("a list");
    let held: u64 = lines.iter().filter_map(|line| line["bytes"].as_u64()).sum();
    let peak = found["peak_bytes"].as_u64().expect("a number");
    assert!(held > 0 && held <= peak + 4096, "{held} of {peak}");
    assert!(
        lines
            .iter()
            .any(|line| line["line"].as_str().is_some_and(|at| at.contains("classifier.rs")))
    );
    assert_eq!(found["stages"][0]["name"], "trace");
    // Nothing in this network is as large as what is listed.
    assert_eq!(found["not_fused"].as_array().map(Vec::len), Some(0));
    let large = run(&["explain", "gpt", "--json"]);
    let large: Value = serde_json::from_str(&large.out).expect("JSON");
    let apart = large["not_fused"].as_array().expect("a list");
    let reason = |line: &Value| line.as_str().is_some_and(|line| line.contains("stay apart: "));
    assert!(!apart.is_empty() && apart.iter().all(reason), "{apart:?}");
    let one = run(&["explain", "mlp", "--json", "--stage", "fuse"]);
    let one: Value = serde_json::from_str(&one.out).expect("JSON");
    assert_eq!(one["stages"].as_array().map(Vec::len), Some(1));
}

#[test]
fn stages_and_graphs_of_expressions() {
    let words = ["explain", "x*y + sin(x*y)", "x=2", "y=3"];
    let traced = run(&[&words[..], &["--stage", "trace"]].concat());
    assert!(
        traced.out.starts_with("program (a: f64[], b: f64[]) {") && traced.out.contains("sin c"),
        "{}",
        traced.out
    );
    let fused = run(&[&words[..], &["--stage", "schedule"]].concat());
    assert_eq!(fused.out.matches("  let ").count(), 1, "one region: {}", fused.out);
    let dot = run(&[&words[..], &["--dot"]].concat());
    assert!(dot.out.starts_with("digraph program {") && dot.out.trim_end().ends_with('}'));
}

#[test]
fn what_is_not_there_is_said() {
    #[rustfmt::skip]
    let cases: [(&[&str], &str); 5] = [
        (&["explain", "gtp"],                      "there is no model `gtp`; did you mean `gpt`?"),
        (&["explain", "mlp", "--stage", "melt"],   "there is no stage `melt`; there are common_subexpressions"),
        (&["explain", "x +", "x=1"],               "expected a number"),
        (&["explain", "mlp", "x=1"],               "`x=1` is given, but the model `mlp` has no variables"),
        (&["bench", "mlp_stpe"],                   "there is no workload `mlp_stpe`; did you mean `mlp_step`?"),
    ];
    for (words, sentence) in cases {
        let ran = run(words);
        assert_eq!(ran.code, 2, "{words:?}");
        assert!(ran.err.contains(sentence), "{words:?}: {}", ran.err);
    }
}

#[test]
fn workloads_are_listed_and_run() {
    let list = run(&["bench", "--list"]);
    assert!(list.out.contains("mlp_step ") && list.out.contains("startup "), "{}", list.out);
    let ran = run(&["bench", "startup", "--json", "--threads", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let row: Value = serde_json::from_str(ran.out.trim()).expect("JSON");
    assert_eq!(row["workload"], "startup");
    assert!(row["ms"].as_f64() > Some(0.0));
}
