//! What rustc says about mistakes: the advice leads to the right method or attribute.
//!
//! One scratch file with all mistakes is compiled, against the libraries that this test is linked
//! to. Each mistake is a line, with what the error at that line must contain.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

const MISTAKES: &[(&str, &[&str])] = &[
    ("x.sum(1)", &["sum() sum_over(axes) sum_keep(axes)"]),
    ("x.mean(-1)", &["mean() mean_over(axes) mean_keep(axes)"]),
    ("x.squeeze(1)", &["squeeze_axis(axis)"]),
    ("x.unique(0)", &["unique_over(axis)"]),
    ("Tensor::zeros(\"2x3\")", &["`&str` is not a shape", "such as `[2, 3]`"]),
    ("x.sum_over(1.5)", &["does not name axes", "such as `1` or `-1`"]),
    ("Tensor::arange(0.0, 1.0)", &["is not an integer", "Tensor::arange_by(start, end, step)"]),
    ("x.maximum(\"a\")", &["not an operand of a tensor operation", "`Tensor::from`"]),
    ("x.clone() + vec![1.0]", &["not an operand of a tensor operation", "`Tensor::from`"]),
    (
        "Sequential::new().then(|x: &Tensor| x.relu())",
        &["is not a layer", "Lambda::new(|x: &Tensor|"],
    ),
    ("Sequential::new().then(plain)", &["`Plain` is not a layer", "implement `Layer` for it"]),
    (
        "jit(|x: &Tensor| Mutex::new(x.clone()))",
        &["a compiled function cannot return", "`pullback::Result` of one"],
    ),
    (
        "jit(|x: &Tensor| Ok::<Tensor, String>(x.clone()))",
        &["a compiled function cannot return", "`pullback::Result` of one"],
    ),
    ("jit(|x: Tensor| x.sin())", &["one argument, by reference; several are a tuple"]),
    (
        "jit(|(x, y): (Tensor, Tensor)| x + y)",
        &["several are a tuple: |(x, y): &(Tensor, Tensor)|"],
    ),
    ("jit(|x: &Tensor, y: &Tensor| x + y)", &["is expected to take 1 argument"]),
    ("vmap(|x: &Plain| x.weight.clone(), 0, 0)", &["`Plain` is not a tree", "#[derive(Tree)]"]),
    (
        "checkpoint_with(&plain, |m, x| x * &m.weight, &x)",
        &["`Plain` is not a tree", "#[derive(Tree)]"],
    ),
    (
        "#[derive(Tree)] struct Seen { seen: HashSet<u8> }",
        &["`HashSet<u8>` is not a tree", "#[tree(skip)]"],
    ),
    ("#[derive(Tree)] struct Held { cache: Mutex<Tensor> }", &["is not a tree", "#[tree(skip)]"]),
];

/// The newest library of a crate among those that this test was built with.
fn library(name: &str) -> PathBuf {
    let folder = libraries();
    let is_it = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib")
    };
    let age = |path: &PathBuf| {
        path.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(is_it).max_by_key(age).unwrap_or_else(|| panic!("no library {name}"))
}

fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

/// What rustc writes about a program.
fn compiled(source: &Path) -> (bool, String) {
    let extern_of = |name: &str| format!("{name}={}", library(name).display());
    let said = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--out-dir"])
        .arg(source.parent().unwrap())
        .args(["--extern", &extern_of("pullback"), "--extern", &extern_of("pullback_nn"), "-L"])
        .arg(format!("dependency={}", libraries().display()))
        .arg(source)
        // Where the paths in the libraries begin, so that lines of their source are shown.
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."))
        .output()
        .expect("rustc runs");
    (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned())
}

#[test]
fn mistakes_lead_to_what_is_right() {
    let mut text = String::from(
        "#![allow(warnings)]\n\
         use pullback::prelude::*;\n\
         use pullback_nn::prelude::*;\n\
         use std::{collections::HashSet, sync::Mutex};\n\
         struct Plain { weight: Tensor }\n\
         // What is right compiles.\n\
         #[derive(Tree)]\n\
         struct Right { weight: Tensor, #[tree(skip)] seen: HashSet<u8> }\n",
    );
    for (i, (mistake, _)) in MISTAKES.iter().enumerate() {
        match mistake.starts_with('#') {
            true => text.push_str(&format!("{mistake}\n")),
            false => text
                .push_str(&format!("fn mistake{i}(x: Tensor, plain: Plain) {{\n{mistake};\n}}\n")),
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("mistakes.rs");
    std::fs::write(&source, &text).unwrap();
    let (compiles, said) = compiled(&source);
    assert!(!compiles);
    let errors: Vec<&str> = said.split("\nerror").collect();
    for (mistake, wanted) in MISTAKES {
        let about: Vec<&&str> = errors.iter().filter(|error| error.contains(mistake)).collect();
        assert!(!about.is_empty(), "no error about `{mistake}` in:\n{said}");
        for words in *wanted {
            let found = about.iter().any(|error| error.contains(words));
            assert!(found, "`{words}` is not said about `{mistake}`:\n{about:#?}");
        }
    }
    // The others are right.
    assert!(!said.contains("struct Right"), "{said}");
}
