//! The page of `pullback explore` in a real Chromium, driven from Node by
//! `crates/explore/web/tests/run.mjs`. Where there is no Node, no Chromium, or where the modules of
//! the tests are not installed (`npm ci` in `crates/explore/web`), the test says so and passes.

use crate::run::run;
use pullback::{Tensor, cross_entropy, jit, manual_seed};
use pullback_nn::models::{Gpt, GptConfig};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A training step of a small GPT.
fn record_gpt(path: &Path) {
    manual_seed(0);
    let config =
        GptConfig { vocabulary: 11, length: 8, width: 16, heads: 2, layers: 2, dropout: 0.0 };
    let model = Gpt::new(&config);
    let tokens = Tensor::from([[0i64, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 0, 1, 2, 3, 4]]);
    pullback_nn::record(path, &model, || {
        cross_entropy(&model.forward(&tokens).flatten(0, 1), &tokens.flatten(0, 1)).backward()
    })
    .expect("recorded");
}

/// A compiled function, and nothing at all.
fn record_small(compiled: &Path, empty: &Path) {
    let w = Tensor::from([0.5f32, -1.0, 2.0]);
    let f = jit(|x: &Tensor| (x * &w).tanh().sum());
    let x = Tensor::from([1f32, 2.0, 3.0]);
    pullback::record(compiled, || Ok(f.of(&x) * 2.0)).expect("recorded");
    pullback::record(empty, || Ok(())).expect("recorded");
}

#[test]
fn the_page_in_a_browser() {
    let web = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../explore/web");
    if Command::new("node").arg("--version").output().is_err() {
        return eprintln!("skipped: there is no node");
    }
    if !web.join("node_modules/playwright-core").is_dir() {
        return eprintln!("skipped: `npm ci` was not run in crates/explore/web");
    }
    let place = tempfile::tempdir().expect("a folder");
    let (recording, folder) = (place.path().join("gpt.pullback"), place.path().join("run"));
    record_gpt(&recording);
    let [compiled, empty] = ["jit", "empty"].map(|name| place.path().join(name));
    record_small(&compiled, &empty);
    let folder = folder.to_str().expect("a name");
    let trained = run(&["train", "digits", "--model", "mlp", "--steps", "20", "--out", folder]);
    assert_eq!(trained.code, 0, "{}{}", trained.out, trained.err);
    let tested = Command::new("node")
        .args([web.join("tests/run.mjs").as_os_str(), "--quick".as_ref(), "--bin".as_ref()])
        .args([env!("CARGO_BIN_EXE_pullback"), "--run", folder, "--recording"])
        .arg(&recording)
        .args(["--compiled".as_ref(), compiled.as_os_str(), "--empty".as_ref(), empty.as_os_str()])
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&tested.stdout);
    match tested.status.code() {
        Some(2) => eprintln!("{said}"),
        Some(0) => assert!(said.contains(" 0 failed") && !said.contains("\n0 passed"), "{said}"),
        _ => panic!("{said}\n{}", String::from_utf8_lossy(&tested.stderr)),
    }
}
