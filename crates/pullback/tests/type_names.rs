//! One meaning per type name: no two structs, enums, traits, unions or type aliases of the sources
//! have the same name, but for those in a table.

use crate::columns::{files, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Programs that nothing imports: each has names of its own, beside those of all other crates.
const PROGRAMS: [&str; 3] = ["bench", "fuzz", "gradbench"];

/// Names that are defined more than once, and why.
#[rustfmt::skip]
const REPEATED: &[(&str, &str)] = &[
    ("Adam", "the optimiser, and the op that is its step"),
    ("Attention", "the options of the method, and the attributes of the op that it makes"),
    ("Base32", "one for each target: a vector of f32 that every processor has"),
    ("Base64", "one for each target: a vector of f64 that every processor has"),
    ("Checkpoint", "the field has both: recomputation, and the saved state of a training run"),
    ("Conv", "the options of the method, and the attributes of the op that it makes"),
    ("Embedding", "the layer, and the options of the function that it calls"),
    ("EmbeddingBag", "the layer, and the options of the function that it calls"),
    ("Lambda", "PyTorch's transform of this name, and the same as a layer"),
    ("Max", "the larger of two elements, in a reduction and in a scatter"),
    ("Min", "the smaller of two elements, in a reduction and in a scatter"),
    ("NativeLoop", "one for each target: how native code is called"),
    ("Padding", "the option of a convolution, and the attribute of the op that pads"),
    ("PaddingMode", "PyTorch's `padding_mode`, of layers and of transforms of images"),
    ("Pool", "the options of the method, and the attributes of the op that it makes"),
    ("Real", "real, not complex: an attribute of an op, a tensor, and elements of a matrix"),
    ("Reduction", "the op, and PyTorch's `reduction` of a loss"),
    ("Sgd", "the optimiser, and the op that is its step"),
];

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// A line without `pub`, `pub(…)` and `unsafe`.
fn without_visibility(line: &str) -> &str {
    let mut rest = line.trim_start();
    if let Some(public) = rest.strip_prefix("pub") {
        let restricted = public.strip_prefix('(').and_then(|within| within.split_once(") "));
        rest = restricted.map(|(_, rest)| rest).or(public.strip_prefix(' ')).unwrap_or(rest);
    }
    rest.strip_prefix("unsafe ").unwrap_or(rest)
}

/// The name of the type that a line defines, and whether it is an alias.
fn definition(line: &str) -> Option<(&str, bool)> {
    let (keyword, rest) = without_visibility(line).split_once(' ')?;
    if !["struct", "enum", "trait", "union", "type"].contains(&keyword) {
        return None;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let name = &rest[..end];
    let is_name = name.len() > 1 && name.starts_with(|c: char| c.is_uppercase());
    is_name.then_some((name, keyword == "type"))
}

/// Whether an indented alias belongs to the trait or `impl` around it.
fn is_associated(lines: &[&str], at: usize) -> bool {
    let depth = indentation(lines[at]);
    let around = lines[..at].iter().rev().find(|l| !l.trim().is_empty() && indentation(l) < depth);
    around.is_some_and(|line| {
        let start = without_visibility(line);
        ["impl", "trait ", "where", "{"].iter().any(|word| start.starts_with(word))
    })
}

/// The types that a source defines outside of modules of tests, with their lines.
fn definitions(source: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = source.lines().collect();
    let (mut found, mut skipped) = (Vec::new(), None);
    for (i, line) in lines.iter().enumerate() {
        if let Some(depth) = skipped {
            if line.trim() == "}" && indentation(line) == depth {
                skipped = None;
            }
            continue;
        }
        let is_test = i > 0 && lines[i - 1].trim() == "#[cfg(test)]";
        if is_test && line.trim_start().starts_with("mod ") && line.ends_with('{') {
            skipped = Some(indentation(line));
        } else if let Some((name, is_alias)) = definition(line)
            && !(is_alias && indentation(line) > 0 && is_associated(&lines, i))
        {
            found.push((name.to_string(), i + 1));
        }
    }
    found
}

/// The files, or folders, of the modules of a source that are compiled for tests alone.
fn test_modules(path: &Path, source: &str) -> Vec<PathBuf> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
    let beside = path.parent().expect("a folder");
    let folder = match ["mod", "lib", "main"].contains(&stem) {
        true => beside.to_path_buf(),
        false => beside.join(stem),
    };
    let lines: Vec<&str> = source.lines().collect();
    let modules = lines.windows(2).filter(|pair| pair[0].trim() == "#[cfg(test)]");
    let names = modules.filter_map(|pair| {
        without_visibility(pair[1]).strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'))
    });
    names.flat_map(|name| [folder.join(format!("{name}.rs")), folder.join(name)]).collect()
}

#[test]
fn a_type_name_has_one_meaning() {
    let root = root();
    let mut sources = Vec::new();
    for dir in std::fs::read_dir(root.join("crates")).expect("the crates") {
        let source = dir.expect("a crate").path().join("src");
        if source.is_dir() {
            files(&source, "rs", &mut sources);
        }
    }
    sources.sort();
    let texts: Vec<(PathBuf, String)> = sources
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("a text");
            (path, text)
        })
        .collect();
    let tests: Vec<PathBuf> =
        texts.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let mut places: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (path, text) in &texts {
        if tests.iter().any(|test| path.starts_with(test)) {
            continue;
        }
        let name = path.strip_prefix(&root).expect("a file").display().to_string();
        let package = name.split('/').nth(1).expect("a crate");
        let program = if PROGRAMS.contains(&package) { package } else { "" };
        for (defined, line) in definitions(text) {
            let key = (program.to_string(), defined);
            places.entry(key).or_default().push(format!("{name}:{line}"));
        }
    }
    assert!(places.len() > 1000, "only {} names are found", places.len());
    let repeated: BTreeMap<_, _> = places.into_iter().filter(|(_, at)| at.len() > 1).collect();
    let allowed: BTreeSet<&str> = REPEATED.iter().map(|(name, _)| *name).collect();
    let wrong: String = repeated
        .iter()
        .filter(|((_, name), _)| !allowed.contains(name.as_str()))
        .map(|((_, name), at)| format!("\n{name}: {}", at.join(", ")))
        .collect();
    assert!(wrong.is_empty(), "names of several types; give each its own:{wrong}");
    let known: BTreeSet<&str> = repeated.keys().map(|(_, name)| name.as_str()).collect();
    let stale: Vec<_> = allowed.difference(&known).collect();
    assert!(stale.is_empty(), "defined once, so no longer exceptions: {stale:?}");
}

#[test]
fn definitions_are_found_and_associated_types_are_not() {
    let source = "\
struct Unit;
pub(crate) enum Kind<T> {
    A(T),
}
pub unsafe trait Engine {
    type Handle;
}
impl Engine for Unit {
    type Handle = u64;
}
impl<T> Iterator for Kind<T>
where
    T: Copy,
{
    type Item = T;
}
type E = u8;
fn f() {
    type State = u8;
}
#[cfg(test)]
mod tests {
    struct Sample;
}
pub type Last = u8;
";
    let names: Vec<String> = definitions(source).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Unit", "Kind", "Engine", "State", "Last"]);
    let modules = test_modules(Path::new("src/a.rs"), "#[cfg(test)]\nmod samples;\nmod b;\n");
    assert_eq!(modules, [Path::new("src/a/samples.rs"), Path::new("src/a/samples")]);
}
