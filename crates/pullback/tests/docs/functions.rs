//! The public functions of `src/ops`, read from the sources: what `docs/functions.md` is made of,
//! and what the test of the documentation looks at.
//!
//! A function is a `pub fn`, or a row of a macro that makes one (`tanh Tanh;` below its doc lines).
//! A macro that is called with a flat list of names (`poolings!(1, "[n, c, l]", max_pool1d …)`) is
//! expanded. Methods of builders count where they give a tensor.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// One public function.
pub struct Function {
    /// As a user writes it: `losses::mse`, `CrossEntropy::of`, or just the name.
    pub name: String,
    /// Its file, for messages.
    pub place: String,
    /// The first sentence of its doc.
    pub says: String,
    /// What its doc says of the derivative, if it does.
    pub derivative: Option<String>,
    /// What its doc says about sharing the memory of an operand, if it does.
    pub view: Option<String>,
    /// PyTorch's name, where the doc gives one.
    pub elsewhere: Option<String>,
}

impl Function {
    /// Whether its result always shares the memory of an operand, sometimes, or never.
    pub fn shares(&self) -> Shares {
        match self.view.as_deref() {
            None => Shares::Never,
            Some(text) if text.starts_with("where") => Shares::Sometimes,
            Some(_) => Shares::Always,
        }
    }
}

/// Whether a result shares the memory of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    Always,
    Sometimes,
    Never,
}

/// A file of functions.
pub struct Family {
    /// The first sentence of the file.
    pub title: String,
    pub functions: Vec<Function>,
}

/// All families, by file.
pub fn families() -> Vec<Family> {
    // Of the crate, or of its tests: both packages read this file.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().map(|dir| dir.join("src/ops")).find(|ops| ops.is_dir());
    let root = root.expect("the sources of the crate");
    let mut files = Vec::new();
    sources(&root, &mut files);
    files.sort();
    let public: Vec<String> = std::fs::read_to_string(root.join("mod.rs"))
        .expect("ops/mod.rs is there")
        .lines()
        .filter_map(|l| Some(l.strip_prefix("pub mod ")?.strip_suffix(';')?.to_string()))
        .collect();
    let family = |path: &PathBuf| {
        let inside = path.strip_prefix(&root).expect("a file below the root");
        let top = inside.iter().next().and_then(|s| s.to_str()).unwrap_or_default();
        let module = top.trim_end_matches(".rs");
        // A public module, or a private one that a public one re-exports.
        let exports = |m: &str| {
            let text = std::fs::read_to_string(root.join(format!("{m}.rs")));
            text.is_ok_and(|text| text.contains(&format!("pub use super::{module}::")))
        };
        let home = public.iter().find(|m| *m == module || exports(m));
        let prefix = home.map(|m| format!("{m}::"));
        let text = std::fs::read_to_string(path).expect("a source file can be read");
        read(&inside.display().to_string(), &expanded(&text), &prefix.unwrap_or_default())
    };
    // The table of ops documents itself.
    files.iter().filter(|p| !p.ends_with("table.rs")).map(family).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder of ops is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The source followed by what its macros over flat lists make.
fn expanded(text: &str) -> String {
    let mut out = text.to_string();
    for definition in text.split("\nmacro_rules! ").skip(1) {
        let Some((name, rest)) = definition.split_once(" {") else { continue };
        let Some((pattern, rest)) = rest.split_once(" => {") else { continue };
        let Some((body, _)) = rest.split_once("\n    };\n") else { continue };
        if pattern.contains("$(") {
            continue;
        }
        let names: Vec<&str> =
            pattern.split('$').skip(1).filter_map(|p| Some(p.split_once(':')?.0)).collect();
        for call in text.split(&format!("\n{name}!(")).skip(1) {
            let values = tokens(call.split_once(");").map_or(call, |(list, _)| list));
            let line = |line: &str| match line.trim().strip_prefix("#[doc = concat!(") {
                Some(parts) => format!("/// {}", joined(&filled(parts, &names, &values))),
                None => filled(line, &names, &values),
            };
            let body: Vec<String> = body.lines().map(line).collect();
            // As it would stand in a file of its own.
            out.push_str(
                &body.join("\n").replace("\n        impl", "\nimpl").replace("\n        }", "\n}"),
            );
            out.push('\n');
        }
    }
    out
}

/// Names, numbers and quoted texts of a list.
fn tokens(list: &str) -> Vec<String> {
    let (mut found, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in list.chars().chain([' ']) {
        let ends = if quoted { c == '"' } else { !(c.is_alphanumeric() || c == '_') };
        if !ends {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            found.push(std::mem::take(&mut word));
        }
        quoted = c == '"' && !quoted;
    }
    found
}

/// A line of a macro with its parameters replaced. Texts come in quotes again, as `concat!` wants
/// them.
fn filled(line: &str, names: &[&str], values: &[String]) -> String {
    let mut out = String::new();
    for (k, piece) in line.split('$').enumerate() {
        if k == 0 {
            out.push_str(piece);
            continue;
        }
        let end = piece.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(piece.len());
        let value = names.iter().position(|n| *n == &piece[..end]).and_then(|i| values.get(i));
        match value {
            Some(text) if text.contains(' ') || text.starts_with('[') => {
                out.push_str(&format!("\"{text}\""));
            }
            Some(word) => out.push_str(word),
            None => out.push_str(&format!("${}", &piece[..end])),
        }
        out.push_str(&piece[end..]);
    }
    out
}

/// The text that `concat!` makes of quoted texts and `stringify!(name)`.
fn joined(parts: &str) -> String {
    let mut out = String::new();
    for (k, piece) in parts.split('"').enumerate() {
        match piece.split_once("stringify!(") {
            _ if k % 2 == 1 => out.push_str(piece),
            Some((_, name)) => out.push_str(name.split(')').next().unwrap_or_default()),
            None => {}
        }
    }
    out
}

fn read(file: &str, text: &str, prefix: &str) -> Family {
    let head: Vec<&str> =
        text.lines().map_while(|l| l.strip_prefix("//!")).map(str::trim).collect();
    let (mut functions, mut doc, mut owner) = (Vec::new(), Vec::new(), String::new());
    let lines: Vec<&str> = text.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        let code = line.trim();
        if let Some(words) = code.strip_prefix("///") {
            doc.push(words.trim().to_string());
            continue;
        }
        // Attributes stand between a doc and its function, also over several lines.
        if code.starts_with("#[") || (!doc.is_empty() && matches!(code, ")]" | "]")) {
            continue;
        }
        if let Some(rest) = line.strip_prefix("impl") {
            let rest = rest.split_once('>').filter(|_| rest.starts_with('<')).map_or(rest, |p| p.1);
            owner = rest.split(['{', '<']).next().unwrap_or_default().trim().to_string();
        } else if *line == "}" {
            owner.clear();
        }
        let name = match code.strip_prefix("pub fn ") {
            Some(rest) => rest.split(['(', '<']).next().filter(|name| !name.starts_with('$')),
            None => row(code).filter(|_| !doc.is_empty()),
        };
        let doc = std::mem::take(&mut doc);
        let Some(name) = name else { continue };
        let builder = !owner.is_empty() && owner != "Tensor";
        if builder && !gives_tensor(&lines[i..]) {
            continue;
        }
        let name = match (builder, code.contains("&self") || owner == "Tensor") {
            (true, _) => format!("{owner}::{name}"),
            (false, true) => name.to_string(),
            (false, false) => format!("{prefix}{name}"),
        };
        functions.push(Function {
            name,
            place: format!("src/ops/{file}"),
            says: sentence(&paragraph(&doc)),
            derivative: part(&doc, "Derivative:"),
            view: part(&doc, "A view").or_else(|| part(&doc, "Views:")),
            elsewhere: part(&doc, "PyTorch's name:")
                .map(|s| s.trim_end_matches('.').trim_matches('`').to_string()),
        });
    }
    Family { title: sentence(&paragraph(&head)), functions }
}

/// The name that a row of a macro makes: `tanh Tanh;`, `sum() sum_over(axes) …`.
fn row(code: &str) -> Option<&str> {
    let (name, rest) = code.split_once(' ')?;
    let name = name.strip_suffix("()").unwrap_or(name);
    let plain =
        |s: &str| s.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    const WORDS: &[&str] = &[
        "fn", "pub", "let", "use", "mod", "impl", "const", "struct", "enum", "type", "trait",
        "match", "static",
    ];
    let starts = rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '|');
    (plain(name) && starts && !WORDS.contains(&name)).then_some(name)
}

/// Whether the signature that starts here gives a tensor.
fn gives_tensor(lines: &[&str]) -> bool {
    let mut signature = String::new();
    for line in lines {
        signature.push_str(line);
        if line.trim_end().ends_with(['{', ';']) {
            break;
        }
    }
    signature.split_once("->").is_some_and(|(_, result)| result.contains("Tensor"))
}

/// The lines up to the first empty one, in one.
fn paragraph<S: AsRef<str>>(lines: &[S]) -> String {
    let text = lines.iter().map(AsRef::as_ref);
    text.take_while(|l| !l.is_empty()).collect::<Vec<&str>>().join(" ")
}

fn sentence(text: &str) -> String {
    text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.').to_string()
}

/// The part of a doc that begins with these words, up to the next part or an empty line.
fn part(doc: &[String], words: &str) -> Option<String> {
    let start = doc.iter().position(|l| l.starts_with(words))?;
    let rest: Vec<&String> = doc[start + 1..]
        .iter()
        .take_while(|l| {
            !l.is_empty() && !l.starts_with("PyTorch's name:") && !l.starts_with("Derivative:")
        })
        .collect();
    let first = doc[start][words.len()..].trim().to_string();
    Some(rest.into_iter().fold(first, |text, line| format!("{text} {line}")))
}

/// `docs/functions.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# The functions\n\n\
         Generated from the documentation in `crates/pullback/src/ops`; a test keeps it fresh\n\
         (`cargo run -p pullback --example ops > docs/ops.md` writes both). Methods of `Tensor` are listed by name alone;\n\
         a reduction `sum` is also `sum_over` some axes and `sum_keep`. In formulas `dy` is the gradient of the result `y`.\n\
         What is named differently in PyTorch has its name there in the last column. A view shares the memory of what it was\n\
         taken from; nothing else does.\n",
    );
    for family in families().iter().filter(|f| !f.functions.is_empty()) {
        let _ = write!(
            text,
            "\n## {}\n\n| function | what it computes | derivative | in PyTorch |\n|---|---|---|---|\n",
            cell(&family.title)
        );
        for f in &family.functions {
            let derivative = f.derivative.as_deref().unwrap_or_default().trim_end_matches('.');
            let view = match f.shares() {
                Shares::Always => "; a view",
                Shares::Sometimes => "; sometimes a view",
                Shares::Never => "",
            };
            let elsewhere = f.elsewhere.as_ref().map_or(String::new(), |s| format!("`{s}`"));
            let _ = writeln!(
                text,
                "| `{}` | {}{view} | {} | {elsewhere} |",
                f.name,
                cell(&f.says),
                cell(derivative)
            );
        }
    }
    text
}

/// Text that fits a cell: no bars, no links of the documentation.
fn cell(text: &str) -> String {
    text.replace("[`Tensor::", "`").replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}
