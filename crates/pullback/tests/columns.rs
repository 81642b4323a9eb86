//! Comments and documents wrap at 100 columns: the sources, tests and examples of every crate, in
//! Rust, CUDA C, TypeScript and Python, and the Markdown files. Files are short enough to be read.

use std::path::{Path, PathBuf};

const COLUMNS: usize = 100;

/// Documents that a program writes, one line for each paragraph.
const GENERATED: [&str; 2] = ["docs/functions.md", "docs/ops.md"];

/// The files below a folder whose names end so; not those of `target`, data and hidden folders.
pub(crate) fn files(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_skipped =
            name.starts_with('.') || ["target", "golden", "node_modules"].contains(&name);
        match path.is_dir() {
            true if is_skipped => {}
            true => files(&path, extension, found),
            false if path.extension().is_some_and(|e| e == extension) => found.push(path),
            false => {}
        }
    }
}

/// The text of a line that is a comment and nothing else, which begins with `mark`.
fn comment<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let text = line.trim_start().strip_prefix(mark)?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text).trim())
}

/// Whether a comment that follows code on its line is what makes it too long. (What is in a string
/// is no comment, nor is an address.)
fn ends_in_long_comment(line: &str, mark: &str) -> bool {
    let found = line.match_indices(mark).find(|&(at, _)| {
        line[..at].ends_with(' ') && line[..at].matches('"').count().is_multiple_of(2)
    });
    found.is_some_and(|(at, _)| !line[at..].contains("noqa")) && line.chars().count() > COLUMNS
}

/// Whether a comment cannot be wrapped: a row of a table, aligned columns, an address, or a single
/// code span.
fn is_unbreakable(text: &str) -> bool {
    let code = text.trim_end_matches(['.', ',', ':', ';']);
    let code = code.strip_prefix('`').and_then(|code| code.strip_suffix('`'));
    let is_table = text.starts_with('|') || text.contains("   ");
    is_table || text.contains("://") || code.is_some_and(|code| !code.contains('`'))
}

/// The numbers of the comment lines that are too long. Code in documentation is not prose.
fn too_long(source: &str) -> Vec<usize> {
    too_long_comments(source, "//")
}

/// The same, of the comments of Python.
fn too_long_python(source: &str) -> Vec<usize> {
    too_long_comments(source, "#")
}

fn too_long_comments(source: &str, mark: &str) -> Vec<usize> {
    let (mut found, mut in_code) = (Vec::new(), false);
    for (i, line) in source.lines().enumerate() {
        let Some(text) = comment(line, mark) else {
            // A line of documentation that a macro makes is inside of it.
            in_code &= line.trim_start().starts_with("#[doc");
            if ends_in_long_comment(line, mark) {
                found.push(i + 1);
            }
            continue;
        };
        if text.starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !is_unbreakable(text) && line.chars().count() > COLUMNS {
            found.push(i + 1);
        }
    }
    found
}

/// The numbers of the lines of prose in a Markdown text that are too long. Tables, headings, code
/// and definitions of links are not prose.
fn too_long_prose(text: &str) -> Vec<usize> {
    let (mut found, mut in_code) = (Vec::new(), false);
    for (i, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            in_code = !in_code;
        }
        let is_prose = !in_code && !start.starts_with(['|', '#', '<']);
        let can_wrap = start.trim_start_matches("- ").contains(' ');
        if is_prose && can_wrap && line.chars().count() > COLUMNS {
            found.push(i + 1);
        }
    }
    found
}

/// The folder of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = here.ancestors().find(|dir| dir.ends_with("crates")).expect("the crates");
    crates.parent().expect("the repository").to_path_buf()
}

/// The lines that `too_long` finds in all files of the repository whose names end so.
fn wrong(extension: &str, at_least: usize, too_long: fn(&str) -> Vec<usize>) -> String {
    let root = root();
    let mut paths = Vec::new();
    files(&root, extension, &mut paths);
    assert!(paths.len() >= at_least, "only {} files are found", paths.len());
    let mut wrong = Vec::new();
    for path in paths {
        let name = path.strip_prefix(&root).expect("a file").display().to_string();
        if !GENERATED.contains(&name.as_str()) {
            let text = std::fs::read_to_string(&path).expect("a text");
            wrong.extend(too_long(&text).into_iter().map(|line| format!("\n{name}:{line}")));
        }
    }
    wrong.concat()
}

#[test]
fn comments_wrap_at_100_columns() {
    let languages = [("rs", 500), ("cu", 10), ("ts", 10), ("tsx", 5)];
    let mut wrong: String = languages.map(|(end, least)| wrong(end, least, too_long)).concat();
    wrong += &self::wrong("py", 5, too_long_python);
    assert!(wrong.is_empty(), "comment lines longer than {COLUMNS} columns:{wrong}");
}

#[test]
fn documents_wrap_at_100_columns() {
    let wrong = wrong("md", 10, too_long_prose);
    assert!(wrong.is_empty(), "lines of prose longer than {COLUMNS} columns:{wrong}");
}

/// The most lines of a source file: 600, of kernels 800.
fn most_lines(name: &str) -> usize {
    let is_kernel = name.starts_with("crates/cpu/") || name.starts_with("crates/cuda/");
    if is_kernel { 800 } else { 600 }
}

#[test]
fn files_are_short() {
    let root = root();
    let mut paths = Vec::new();
    files(&root, "rs", &mut paths);
    let mut wrong = String::new();
    for path in paths {
        let name = path.strip_prefix(&root).expect("a file").display().to_string();
        let lines = std::fs::read_to_string(&path).expect("a text").lines().count();
        if lines > most_lines(&name) {
            wrong += &format!("\n{name}: {lines} lines, at most {}", most_lines(&name));
        }
    }
    assert!(wrong.is_empty(), "files that are too long:{wrong}");
}

/// What completes the heart, as the tour says.
const BESIDE: [&str; 12] = [
    "cut",
    "drop_queue",
    "forward",
    "hooks",
    "leaf",
    "memory/kept",
    "queue",
    "rule_context",
    "sequence",
    "slope",
    "tangents",
    "tensors",
];

/// What the heart uses and is no part of it: other sections of the tour explain these.
const USED: [&str; 14] = [
    "anomaly",
    "autocast",
    "backend",
    "control",
    "custom",
    "events",
    "fail",
    "grad",
    "kinks",
    "mode",
    "ops",
    "trace",
    "transform::levels",
    "transform::reach",
];

/// The modules of the crate that a source names: `crate::mode`, `crate::{Tensor, mode}`.
fn modules(source: &str) -> Vec<String> {
    let code: Vec<&str> =
        source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join(" ");
    let mut found = Vec::new();
    for after in code.split("crate::").skip(1) {
        let list = match after.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default(),
            None => after
                .split(|c: char| !c.is_alphanumeric() && !"_:".contains(c))
                .next()
                .unwrap_or(""),
        };
        found.extend(list.split(',').map(|name| name.trim().to_string()));
    }
    found.retain(|name| name.starts_with(|c: char| c.is_lowercase()));
    found
}

/// `apply`, the vocabulary of rows and the tape are what a newcomer reads first. What completes
/// them is bounded as well, and nothing else does: a file that takes over a part of them is on a
/// list.
#[test]
fn the_heart_is_read_in_ten_minutes() {
    let source = root().join("crates/pullback/src");
    let text = |path: &Path| std::fs::read_to_string(path).expect("a text");
    let lines = |path: &Path| text(path).lines().count();
    let mut heart = Vec::new();
    files(&source.join("tape"), "rs", &mut heart);
    heart.extend([source.join("apply.rs"), source.join("rule.rs")]);
    let (apply, backward) =
        (lines(&heart[heart.len() - 2]), lines(&source.join("tape/backward.rs")));
    let all: usize = heart.iter().map(|path| lines(path)).sum();
    assert!(apply <= 250 && backward <= 300 && all <= 1000, "{apply}, {backward}, {all} lines");
    let file = |name: &str| source.join(format!("{name}.rs"));
    let beside: usize = BESIDE.iter().map(|name| lines(&file(name))).sum();
    assert!(beside <= 1650, "{beside} lines beside the heart");
    let tour = text(&root().join("docs/tour.md"));
    let passage = tour.split_once("About 1,600 more").expect("the number").1;
    let passage = passage.split("\n\n").next().expect("a paragraph");
    for name in BESIDE {
        assert!(passage.contains(&format!("`{name}.rs`")), "the tour does not name {name}.rs");
    }
    for path in &heart {
        for module in modules(&text(path)) {
            let is = |known: &str| {
                let known = known.replace('/', "::");
                module == known || module.starts_with(&format!("{known}::"))
            };
            let inside = ["apply", "rule", "tape"].iter().any(|known| is(known));
            let known = inside || BESIDE.iter().chain(&USED).any(|known| is(known));
            assert!(known, "{} uses {module}, which is on no list", path.display());
        }
    }
}

#[test]
fn long_comments_are_found_and_what_cannot_be_wrapped_is_not() {
    let words = "word ".repeat(25);
    let long = format!("/// {words}\n    // {words}\n//! {words}\nlet x = 1; // {words}\n");
    assert_eq!(too_long(&long), [1, 2, 3, 4]);
    let text = format!("let x = \"// {words}\";\n");
    assert!(too_long(&text).is_empty());
    assert_eq!(too_long_python(&format!("# {words}\nx = 1  # {words}\n")), [1, 2]);
    let table = format!("/// | {words} |\n/// https://{words}\n/// `{words}`.\n");
    assert!(too_long(&table).is_empty());
    let code = format!("/// ```\n/// {words}\n/// ```\n/// {words}\n");
    assert_eq!(too_long(&code), [4]);
    let made = format!("/// ```\n#[doc = \"x\"]\n/// ```\n/// {words}\n");
    assert_eq!(too_long(&made), [4]);
    // Columns are characters, not bytes.
    assert!(too_long(&format!("// {}\n", "é".repeat(97))).is_empty());
}

#[test]
fn long_prose_is_found_and_tables_and_code_are_not() {
    let words = "word ".repeat(25);
    let text = format!("{words}\n- {words}\n| {words} |\n# {words}\n```\n{words}\n```\n{words}\n");
    assert_eq!(too_long_prose(&text), [1, 2, 8]);
}
