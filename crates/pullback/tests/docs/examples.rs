//! Every method of `Tensor`, and every public function of layers, losses, optimisers and schedules,
//! has an example in its documentation, which `cargo test` runs.

use std::path::{Path, PathBuf};

/// A public function or type in the sources.
struct Item {
    name: String,
    place: String,
    /// The head of the `impl` block that it is in.
    block: String,
    has_example: bool,
}

/// Types that are not exported; and what is called by the crate alone.
const INTERNAL: &[&str] = &["Bare<L>", "Sublayers", "LearningRates", "LineSearch"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|e| e == "rs") => found.push(path),
            false => {}
        }
    }
}

/// The name of a public function that a line declares.
fn function(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = rest.strip_prefix("const ").unwrap_or(rest).strip_prefix("fn ")?;
    // A name that a macro gives has its documentation in the rows of the macro.
    rest.split(['(', '<']).next().filter(|name| !name.starts_with('$'))
}

fn items(folder: &str) -> Vec<Item> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    sources(&root.join(folder), &mut files);
    let mut items = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file");
        let (mut block, mut example) = (String::new(), false);
        for (number, line) in text.lines().enumerate() {
            let code = line.trim_start();
            if code == "#[cfg(test)]" {
                break;
            }
            if code.starts_with("impl") && code.len() == line.len() {
                block = code.to_string();
            }
            if code.starts_with("///") || code.starts_with("#[doc") {
                example |= code.contains("```");
                continue;
            }
            if let Some(name) = function(code) {
                items.push(Item {
                    name: name.to_string(),
                    place: format!(
                        "{folder}, {}:{}",
                        file.file_name().unwrap().display(),
                        number + 1
                    ),
                    block: block.clone(),
                    has_example: example,
                });
            }
            // Attributes stand between a comment and what it is about.
            if !code.starts_with("#[") && !code.is_empty() {
                example = false;
            }
        }
    }
    items
}

fn missing(items: &[Item]) -> Vec<String> {
    let internal = |item: &&Item| !INTERNAL.iter().any(|name| item.block.contains(name));
    let without = items.iter().filter(internal).filter(|item| !item.has_example);
    without.map(|item| format!("{} ({})", item.name, item.place)).collect()
}

#[test]
fn every_method_of_a_tensor_has_an_example() {
    let mut all = items("pullback/src");
    all.retain(|item| item.block.starts_with("impl Tensor"));
    assert!(all.len() > 300, "only {} methods are found", all.len());
    assert!(all.iter().any(|item| item.name == "matmul" && item.has_example));
    let missing = missing(&all);
    assert!(
        missing.is_empty(),
        "{} methods have no example:\n{}",
        missing.len(),
        missing.join("\n")
    );
}

#[test]
fn layers_losses_optimisers_and_schedules_have_examples() {
    let mut missing_all = Vec::new();
    for (folder, at_least) in [("layers", 150), ("losses", 40), ("optim", 25), ("schedule", 10)] {
        let all = items(&format!("nn/src/{folder}"));
        assert!(all.len() > at_least, "only {} functions in {folder}", all.len());
        missing_all.extend(missing(&all));
    }
    let count = missing_all.len();
    assert!(
        missing_all.is_empty(),
        "{count} functions have no example:\n{}",
        missing_all.join("\n")
    );
}
