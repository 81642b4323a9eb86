//! `CONTRIBUTING.md` lists the source files that an addition touches. Here are examples of things
//! that were added: the files that name them are the files that are listed, and no more than
//! promised.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Something that was added once.
struct Example {
    /// The section that says how.
    section: &'static str,
    /// Only these crates know such things (others may have a thing of that name).
    crates: &'static [&'static str],
    /// Words of which its files have one, outside of comments: `Erf`, `Fused::Softmax`. After `fn`
    /// also parts of names: `fn erf` is `fn erf_vjp` and `fn scaled_erf` too, but not `fn erfc`.
    words: &'static [&'static str],
    /// Files that name it as its callers, like any user of it.
    callers: &'static [&'static str],
    /// Its files, at most.
    most: usize,
}

const KERNELS: &[&str] = &["ir", "cpu", "cuda", "pullback"];
/// Functions are also measured beside PyTorch, and part of random programs.
const FUNCTIONS: &[&str] = &["ir", "cpu", "cuda", "pullback", "bench", "fuzz"];

#[rustfmt::skip]
const EXAMPLES: &[Example] = &[
    // With code of its own for f32, f64 and fused loops, and a fused derivative.
    Example { section: "function of one element", crates: FUNCTIONS, callers: &[], most: 5, words: &["Erf", "fn erf", "u_erf", "\"erf\""] },
    Example { section: "function of one element", crates: FUNCTIONS, callers: &[], most: 5, words: &["Silu", "fn silu", "u_silu", "l_silu", "\"silu\""] },
    // The same, with a derivative that is a formula.
    Example { section: "function of one element", crates: FUNCTIONS, callers: &["crates/pullback/src/inplace/methods.rs"], most: 5, words: &["Tanh", "pub(crate) fn tanh<I", "pub(super) fn tanh(&mut self", "pub(in super::super) fn tanh(w", "u_tanh", "v_tanh", "\"tanh\""] },
    // A formula.
    Example { section: "function of one element", crates: FUNCTIONS, callers: &["crates/ir/src/pass/norms.rs", "crates/cuda/src/fused.rs"], most: 5, words: &["Rsqrt", "fn rsqrt", "(rsqrt", "\"rsqrt\""] },
    // With a kind of its own of what it does to integers.
    Example { section: "function of one element", crates: FUNCTIONS, callers: &["crates/ir/src/pass/norms.rs", "crates/cuda/src/fused.rs"], most: 7, words: &["Unary::Square", "Ints::Square", "Square   square", "Square   F32", "pub(super) fn square(w", "u_square"] },
    // In f64 alone; with a long slope; with long code in CUDA C; with both.
    Example { section: "function of one element", crates: FUNCTIONS, callers: &[], most: 5, words: &["Erfcx", "fn erfcx", "s_erfcx", "\"erfcx\""] },
    Example { section: "function of one element", crates: FUNCTIONS, callers: &[], most: 5, words: &["Digamma", "fn digamma", "s_digamma", "\"digamma\""] },
    Example { section: "function of one element", crates: FUNCTIONS, callers: &[], most: 5, words: &["I1e", "fn i1e", "s_i1e", "\"i1e\""] },
    // With code of its own for f32 and f64, and for integers; native; in f64 alone.
    Example { section: "function of two elements", crates: FUNCTIONS, callers: &[], most: 8, words: &["Fmod", "fn fmod", "(fmod, $l", "b_fmod", "\"fmod\""] },
    Example { section: "function of two elements", crates: FUNCTIONS, callers: &[], most: 8, words: &["Binary::Copysign", "Copysign   copysign", "Copysign  Promote", "copysign(w: &mut", "\"copysign\""] },
    Example { section: "function of two elements", crates: FUNCTIONS, callers: &[], most: 8, words: &["Gammaincc", "fn gammaincc", "s_gammaincc", "\"gammaincc\""] },
    Example { section: "fused kernel", crates: KERNELS, callers: &[], most: 11,
        words: &["Fused::LayerNorm", "Fused::LayerNormVjp", "fn layer_norm", "mod layer_norm"] },
    // With a pass of its own, and lines of a GPU.
    Example { section: "fused kernel", crates: KERNELS, callers: &["crates/pullback/src/ops/loss.rs", "crates/pullback/src/ops/losses.rs"], most: 13,
        words: &["Fused::CrossEntropy", "Fused::CrossEntropyVjp", "fn cross_entropy", "mod cross_entropy"] },
    // With attributes that are a type, which is exported, and a file of its own in each crate.
    Example { section: "fused kernel", crates: KERNELS, callers: &[], most: 14, words: &["Adam", "fn adam"] },
    Example { section: "collective", crates: &["ir", "cpu", "cuda", "pullback", "workers"], callers: &[], most: 11,
        words: &["AllToAll", "fn all_to_all", "\"all_to_all\""] },
    // Backends say whether it is profitable.
    Example { section: "pass", crates: &["ir"], callers: &[], most: 4, words: &["epilogue"] },
    Example { section: "layer", crates: &["nn"], callers: &[], most: 2, words: &["RmsNorm"] },
    Example { section: "optimiser", crates: &["nn", "cli"], callers: &[], most: 2, words: &["Rprop"] },
];

/// Where `CONTRIBUTING.md` is.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().find(|dir| dir.join("CONTRIBUTING.md").is_file());
    found.expect("the tests are inside the repository").to_path_buf()
}

fn is_source(name: &str) -> bool {
    let tests = ["tests.rs", "reference.rs", "golden.rs", "random_regions.rs"];
    let is_test = tests.contains(&name) || name.ends_with("_tests.rs");
    (name.ends_with(".rs") || name.ends_with(".cu")) && !is_test
}

/// The sources below a folder, without tests and what only tests use.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        match path.is_dir() {
            true if !["tests", "golden"].contains(&name) => sources(&path, found),
            false if is_source(name) => {
                found.push(path);
            }
            _ => {}
        }
    }
}

/// Whether a line of code has a word, not as a part of another one.
fn names(line: &str, word: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let part = |c: char| c.is_alphanumeric() || c == '_';
    if let Some(stem) = word.strip_prefix("fn ") {
        let Some((_, rest)) = code.split_once("fn ") else { return false };
        let name = rest.split(|c: char| !part(c)).next().unwrap_or_default();
        return format!("_{name}_").contains(&format!("_{stem}_"));
    }
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(|c| part(c) && word.starts_with(part)) && !after.is_some_and(part)
    })
}

/// The files that name an example.
fn touched(example: &Example) -> BTreeSet<String> {
    let root = root();
    let mut files = Vec::new();
    example
        .crates
        .iter()
        .for_each(|c| sources(&root.join("crates").join(c).join("src"), &mut files));
    let has = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("a source");
        // Unit tests at the end of a file are tests.
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        code.lines().any(|line| example.words.iter().any(|word| names(line, word)))
    };
    let relative = |path: PathBuf| {
        path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned()
    };
    let calls = |file: &String| example.callers.contains(&file.as_str());
    let named: BTreeSet<String> = files.into_iter().filter(has).map(relative).collect();
    assert!(example.callers.iter().all(|file| named.contains(*file)), "no callers any more");
    named.into_iter().filter(|file| !calls(file)).collect()
}

/// The source files that a section lists; one that ends in `/` is a folder.
fn listed(section: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).expect("it is there");
    let heading =
        |title: &str| title.split(" in ten").next().is_some_and(|t| t.trim().ends_with(section));
    let part = text.split("\n## ").find(|part| heading(part.lines().next().unwrap_or_default()));
    let part = part.unwrap_or_else(|| panic!("no section about adding a {section}"));
    let quoted = part.split('`').skip(1).step_by(2);
    let source = |path: &&str| path.starts_with("crates/") && path.contains("/src/");
    let test = |path: &str| path.ends_with("tests.rs") || path.starts_with("crates/fuzz/");
    quoted.filter(source).filter(|path| !test(path)).map(str::to_string).collect()
}

#[test]
fn the_lists_of_places_are_true() {
    let mut wrong = Vec::new();
    for example in EXAMPLES {
        let (files, list) = (touched(example), listed(example.section));
        let on_list = |file: &String| {
            list.iter().any(|path| match path.ends_with('/') {
                true => file.starts_with(path.as_str()),
                false => file == path,
            })
        };
        let what = example.words[0];
        for file in files.iter().filter(|file| !on_list(file)) {
            wrong.push(format!("{what} is named in {file}, which the section does not list"));
        }
        if files.len() > example.most || files.is_empty() {
            let most = example.most;
            wrong.push(format!(
                "{what} is in {} files, promised are {most}: {files:?}",
                files.len()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_place_is_listed_for_nothing() {
    let sections: BTreeSet<&str> = EXAMPLES.iter().map(|e| e.section).collect();
    for section in sections {
        let of = EXAMPLES.iter().filter(|e| e.section == section);
        let files: BTreeSet<String> = of.flat_map(touched).collect();
        for path in listed(section) {
            assert!(root().join(&path).exists(), "{path} is listed and is not there");
            let named = files.iter().any(|file| file.starts_with(path.as_str()));
            assert!(named, "{section}: {path} is listed, and no example is there: {files:?}");
        }
    }
}

/// What a `match` of three kinds of ops or more does not list it may do for all others alike: these
/// are no tables, but a general way and exceptions from it.
#[rustfmt::skip]
const GENERAL: &[(&str, &str)] = &[
    ("crates/cpu/src/program/compiler.rs",       "all other ops are kernels"),
    ("crates/ir/src/pass/layout.rs",             "rewrites of three patterns"),
    ("crates/ir/src/pass/channels_last.rs",      "all others take images as they lie"),
    ("crates/ir/src/pass/plan/roots.rs",         "all others need memory that is theirs"),
    ("crates/ir/src/pass/plan/share.rs",         "only these copy operands into parts of a result"),
    ("crates/ir/src/pass/plan/slots.rs",         "all others have memory of their own, and need no more"),
    ("crates/cuda/src/backend.rs",               "all others run when they are called"),
    ("crates/cuda/src/lowering.rs",              "all others run as they do eagerly"),
    ("crates/ir/src/pass/schedule.rs",           "all others have memory of their own"),
    ("crates/ir/src/text/graphviz.rs",           "all others are drawn by their name"),
    ("crates/pullback/src/kinks/conventions.rs", "the ops whose derivative can be chosen"),
];

/// The text from an opening brace to the one that closes it, without both.
fn block(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[1..at];
        }
    }
    ""
}

/// The matches of a source in which three variants of ops or more are named at the heads of arms
/// and one arm takes all others.
fn open_tables(code: &str) -> Vec<String> {
    const OPS: [&str; 7] = ["Op", "Unary", "Binary", "Fused", "Linalg", "Pointwise", "Cumulation"];
    let mut found = Vec::new();
    for (at, _) in code.match_indices("match ") {
        let Some(open) = code[at..].find('{') else { continue };
        let (head, body) = (&code[at..at + open], block(&code[at + open..]));
        if head.contains(';') || head.contains('\n') {
            continue;
        }
        let depths = body.char_indices().scan(0, |depth, (i, c)| {
            match c {
                '{' | '(' | '[' => *depth += 1,
                '}' | ')' | ']' => *depth -= 1,
                _ => {}
            }
            Some((i, c, *depth))
        });
        let outer: String = depths.filter(|&(_, _, depth)| depth == 0).map(|(_, c, _)| c).collect();
        let arms: Vec<&str> = outer.lines().map(|l| l.trim().trim_start_matches("| ")).collect();
        let variant = |arm: &&str| OPS.iter().any(|op| arm.starts_with(&format!("{op}::")));
        let heads = arms.iter().filter(|arm| variant(arm)).map(|arm| arm.split(" =>").next());
        let words = heads.flat_map(|head| head.unwrap_or_default().split([' ', ',', ')', '}']));
        let named: BTreeSet<&str> = words.filter(variant).collect();
        let all_others = |arm: &&str| {
            let pattern = arm.split(" =>").next().unwrap_or_default();
            arm.contains(" =>")
                && !pattern.is_empty()
                && pattern.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                && !["true", "false"].contains(&pattern)
        };
        if named.len() >= 3 && arms.iter().any(all_others) {
            found.push(format!("{head}: {named:?}"));
        }
    }
    found
}

#[test]
fn tables_over_ops_have_no_arm_for_all_others() {
    let (root, mut files, mut wrong) = (root(), Vec::new(), Vec::new());
    [KERNELS, &["cuda"]]
        .concat()
        .iter()
        .for_each(|c| sources(&root.join("crates").join(c).join("src"), &mut files));
    for path in files {
        let name = path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a source");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code: String = code
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .flat_map(|line| [line, "\n"])
            .collect();
        let open = open_tables(&code);
        let general = GENERAL.iter().any(|(file, _)| *file == name);
        assert!(!general || !open.is_empty(), "{name} has no such match any more: take it off");
        if !general {
            wrong.extend(open.into_iter().map(|table| format!("{name}: {table}")));
        }
    }
    assert!(wrong.is_empty(), "an arm for all other ops in:\n{}", wrong.join("\n"));
}

/// The folder `backend` is where the library meets its backends.
#[test]
fn one_folder_names_backends() {
    let source = root().join("crates/pullback/src");
    let mut files = Vec::new();
    sources(&source, &mut files);
    let (mut inside, mut wrong) = (0, Vec::new());
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a source");
        let named = ["pullback_cpu", "pullback_cuda"].iter().any(|name| text.contains(name));
        match (named, path.starts_with(source.join("backend"))) {
            (true, true) => inside += 1,
            (true, false) => wrong.push(path),
            (false, _) => {}
        }
    }
    assert!(inside > 0 && wrong.is_empty(), "a backend is named in {wrong:?}");
}

/// The passes of `jit` in the order in which they first run, as their sources name them.
fn passes() -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("a source");
    let pipeline = read("crates/ir/src/pass/pipeline.rs");
    let body = |name: &str| {
        let from = pipeline.split_once(&format!("pub fn {name}(")).expect("the function").1;
        let body = from.split("\n    }\n").next().expect("its end");
        let named = body.split(".then").skip(1).filter_map(|call| call.split('"').nth(1));
        named.map(str::to_string).collect::<Vec<String>>()
    };
    assert!(read("crates/pullback/src/jit/compile.rs").contains("name: \"budget\""));
    assert!(read("crates/ir/src/pass/budget/mod.rs").contains(".then(\"offload\""));
    let (before, after) = (body("before_budget"), body("after_budget"));
    let [budget, offload, plan] = ["budget", "offload", "plan"].map(str::to_string);
    let all = [before, vec![budget], after, vec![offload, plan]].concat();
    let mut first = Vec::new();
    all.into_iter().for_each(|name| {
        if !first.contains(&name) {
            first.push(name);
        }
    });
    first
}

#[test]
fn documents_name_the_passes_in_order() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("a document");
    let design = read("DESIGN.md");
    let line = design.lines().find(|line| line.contains("─► inline")).expect("the pipeline");
    let named: Vec<&str> = line.split(['·', '─', '►']).map(str::trim).collect();
    let named: Vec<&str> = named.into_iter().filter(|name| !name.is_empty()).collect();
    assert_eq!(named[1..named.len() - 1], passes(), "DESIGN.md");
    let tour = read("docs/tour.md");
    let list = tour.split_once("## 11. Passes").expect("the section").1;
    let list = list.split("What may fail").next().expect("the end of the list");
    let named: Vec<&str> = list.split('*').skip(1).step_by(2).flat_map(|n| n.split(',')).collect();
    let named: Vec<&str> = named.into_iter().map(str::trim).collect();
    assert_eq!(named, passes(), "docs/tour.md");
}

#[test]
fn an_arm_for_all_others_is_found() {
    let table = "fn f(op: &Op) -> usize {\n    match op {\n        Op::Dot => 1,\n        Op::Sort { .. } => 2,\n        \
                 Op::Cat(_) | Op::Pad(_) => 3,\n        _ => 0,\n    }\n}\n";
    assert_eq!(open_tables(table).len(), 1);
    assert!(open_tables(&table.replace("_ => 0", "Op::Copy => 0")).is_empty());
}
