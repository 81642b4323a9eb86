//! Comments wrap at 100 columns, in the sources of every crate.

use std::path::{Path, PathBuf};

const COLUMNS: usize = 100;

/// The Rust files below a folder.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files(&path, found),
            false if path.extension().is_some_and(|e| e == "rs") => found.push(path),
            false => {}
        }
    }
}

/// The text of a line that is a comment and nothing else.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text).trim())
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
    let (mut found, mut in_code) = (Vec::new(), false);
    for (i, line) in source.lines().enumerate() {
        let Some(text) = comment(line) else {
            in_code = false;
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

#[test]
fn comments_wrap_at_100_columns() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = here.ancestors().find(|dir| dir.ends_with("crates")).expect("the crates");
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(crates).expect("the crates") {
        let src = entry.expect("a crate").path().join("src");
        if src.is_dir() {
            files(&src, &mut sources);
        }
    }
    assert!(sources.len() > 300, "only {} sources are found", sources.len());
    let mut wrong = Vec::new();
    for path in sources {
        let source = std::fs::read_to_string(&path).expect("a source");
        let name = path.strip_prefix(crates).expect("a file of a crate").display().to_string();
        wrong.extend(too_long(&source).into_iter().map(|line| format!("{name}:{line}")));
    }
    assert!(
        wrong.is_empty(),
        "{} comment lines are longer than {COLUMNS} columns:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn long_comments_are_found_and_what_cannot_be_wrapped_is_not() {
    let words = "word ".repeat(25);
    let long = format!("/// {words}\n    // {words}\n//! {words}\nlet x = 1; // {words}\n");
    assert_eq!(too_long(&long), [1, 2, 3]);
    let table = format!("/// | {words} |\n/// https://{words}\n/// `{words}`.\n");
    assert!(too_long(&table).is_empty());
    let code = format!("/// ```\n/// {words}\n/// ```\n/// {words}\n");
    assert_eq!(too_long(&code), [4]);
    // Columns are characters, not bytes.
    assert!(too_long(&format!("// {}\n", "é".repeat(97))).is_empty());
}
