//! The public functions and types of a crate, read from its sources with their documentation.
//!
//! A function is a `pub fn`, a method of a `pub trait`, or a row of a macro that makes one (`tanh
//! Tanh;` below its doc lines): such a macro has `$(#[$doc])*` before its `pub fn`, and what else
//! it documents there counts for every row. So with types.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A public function or type.
#[derive(Default)]
pub struct Item {
    /// Its name; for a method, `Type::name`.
    pub name: String,
    /// File and line.
    pub place: String,
    /// The lines of its documentation, without `///`.
    pub doc: Vec<String>,
    /// The text between the braces of a function; `None` for a type, a method that a trait
    /// requires, and a row of a macro.
    pub body: Option<String>,
    /// The type that a function returns.
    pub result: String,
    pub is_type: bool,
    /// `forward` of a layer or a loss, whose example is that of the type.
    pub is_forward: bool,
}

impl Item {
    /// Whether the documentation has an example that `cargo test` runs (and not only compiles).
    pub fn has_example(&self) -> bool {
        let runs = ["", "rust", "should_panic", "standalone_crate"];
        self.fences().any(|tag| runs.contains(&tag))
    }

    /// What follows the opening ``` of each block of code.
    fn fences(&self) -> impl Iterator<Item = &str> {
        self.doc.iter().filter_map(|line| line.strip_prefix("```")).step_by(2)
    }

    /// Whether the documentation says when the function panics or returns an error.
    pub fn says_how_it_fails(&self) -> bool {
        self.doc.iter().any(|line| line == "# Panics" || line == "# Errors")
    }

    /// Whether the body shows that the function cannot fail: it reads and sets fields, and calls
    /// nothing but [`HARMLESS`] functions and constructors of enums and tuples. No index, no
    /// arithmetic, no `?`.
    pub fn cannot_fail(&self) -> bool {
        let Some(body) = &self.body else { return false };
        let code = without_texts(body);
        let risky = [" + ", " - ", " * ", " / ", " % ", "+=", "-=", "*=", "/=", "?", ">("];
        if risky.iter().any(|sign| code.contains(sign)) {
            return false;
        }
        let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '!');
        for (at, c) in code.char_indices().filter(|(_, c)| matches!(c, '(' | '[')) {
            let before = &code[..at];
            let name = &before[before.trim_end_matches(word).len()..];
            let indexed = c == '[' && (before.ends_with([')', ']']) || !name.is_empty());
            if indexed && name != "vec!" {
                return false;
            }
            let last = name.rsplit("::").next().unwrap_or_default();
            let constructor = last.starts_with(char::is_uppercase) || last == "default";
            let harmless = || HARMLESS.split_whitespace().any(|known| known == name);
            if c == '(' && !(name.is_empty() || constructor || harmless()) {
                return false;
            }
        }
        true
    }

    /// Whether it returns a `Result`, or its own body panics.
    pub fn fails_visibly(&self) -> bool {
        let code = without_texts(self.body.as_deref().unwrap_or_default());
        let calls = ["panic!(", "raise(", ".unwrap()", ".expect(", "assert!(", "assert_eq!("];
        self.result.contains("Result<") || calls.iter().any(|call| code.contains(call))
    }
}

/// Functions that cannot fail whatever they are called with, and macros.
const HARMLESS: &str = "Arc::new Box::new Flag::new Mutex::new Pooled::as_ptr Pooled::ptr_eq \
    String::new Vec::new as_ref clone copied find get into is_dense is_empty iter json! last len \
    lengths map map_or max per_axis push to_string to_vec unwrap_or version";

/// Code without what its strings and comments say.
fn without_texts(code: &str) -> String {
    let mut out = String::new();
    for line in code.lines() {
        let line = line.split("// ").next().unwrap_or_default();
        let parts = line.split('"').enumerate();
        out.extend(parts.filter(|(k, _)| k % 2 == 0).map(|(_, part)| part));
        out.push('\n');
    }
    out
}

/// The public functions and types of the crate in this folder (`nn`).
pub fn public(package: &str) -> Vec<Item> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(package).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let texts: Vec<(PathBuf, String)> = files
        .into_iter()
        .map(|file| {
            let text = std::fs::read_to_string(&file).expect("a source file");
            // Unit tests stand at the end.
            let text = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default().to_string();
            (file.strip_prefix(&root).expect("a file below the root").to_path_buf(), text)
        })
        .collect();
    let exported = exported(&texts);
    let macros: BTreeMap<String, RowMacro> =
        texts.iter().flat_map(|(_, text)| row_macros(text)).collect();
    let mut items = Vec::new();
    for (file, text) in &texts {
        read(package, file, text, &macros, &exported, &mut items);
    }
    items
}

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

/// What a crate exports.
struct Exported {
    /// The names that a `pub use` lists.
    names: BTreeSet<String>,
    /// The modules that are public, or have a `pub use` of everything: all that is `pub` in them
    /// is exported.
    modules: BTreeSet<String>,
}

impl Exported {
    /// Whether all that is `pub` in this file is exported.
    fn has(&self, file: &Path) -> bool {
        file.iter().fold(true, |outer, part| {
            let part = part.to_string_lossy();
            let module = part.trim_end_matches(".rs");
            let here = matches!(module, "lib" | "mod") || self.modules.contains(module);
            here && (outer || self.names.contains(module))
        })
    }
}

fn exported(texts: &[(PathBuf, String)]) -> Exported {
    let mut out = Exported { names: BTreeSet::new(), modules: BTreeSet::new() };
    for (_, text) in texts {
        let mut before = "";
        for line in text.lines() {
            let module = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(';'));
            let module = module.filter(|_| before != "#[doc(hidden)]");
            let all = line.strip_prefix("pub use ").and_then(|rest| rest.strip_suffix("::*;"));
            out.modules.extend(module.or(all).map(str::to_string));
            before = line;
        }
    }
    // From the outside in, as a module can be public by a `pub use` further out.
    let mut texts: Vec<_> = texts.iter().collect();
    texts.sort_by_key(|(file, _)| (file.iter().count(), file != Path::new("lib.rs")));
    for (file, text) in &texts {
        if !out.has(file) {
            continue;
        }
        for list in text.split("\npub use ").skip(1) {
            let list = list.split(';').next().unwrap_or_default();
            let words = list.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            out.names.extend(words.map(str::to_string));
        }
    }
    // `pub type Conv2d = Convolution<2>;`
    for alias in texts.iter().flat_map(|(_, text)| text.split("\npub type ").skip(1)) {
        let mut words = alias.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        if words.next().is_some_and(|name| out.names.contains(name)) {
            let target = words.find(|word| !word.is_empty()).unwrap_or_default();
            out.names.insert(target.to_string());
        }
    }
    out
}

/// A macro whose rows are documented functions or types.
struct RowMacro {
    /// What the macro itself adds to their documentation.
    doc: Vec<String>,
    is_type: bool,
}

fn row_macros(text: &str) -> Vec<(String, RowMacro)> {
    let mut found = Vec::new();
    for definition in text.split("\nmacro_rules! ").skip(1) {
        let Some((name, rest)) = definition.split_once(" {") else { continue };
        let rest = rest.split("\n}").next().unwrap_or_default();
        let Some((_, after)) = rest.split_once("$(#[$doc])*\n") else { continue };
        let head = |line: &&str| {
            let line = line.trim();
            line.starts_with("///") || line.starts_with("#[")
        };
        let lines: Vec<&str> = after.lines().collect();
        let own = lines.iter().take_while(|line| head(line)).count();
        let made = lines.get(own).map_or("", |line| line.trim());
        let is_type = made.starts_with("pub struct $");
        if is_type || made.starts_with("pub fn $") {
            let doc = lines[..own].iter().filter_map(|line| line.trim().strip_prefix("///"));
            let doc = doc.map(|d| d.trim().to_string()).collect();
            found.push((name.to_string(), RowMacro { doc, is_type }));
        }
    }
    found
}

/// What the lines of a file are part of.
#[derive(Default)]
struct Block {
    /// The type of an `impl`, or the trait.
    owner: String,
    is_trait: bool,
    /// An `impl` of a trait: its methods are documented there, unless they are `forward` of a layer
    /// or a loss, which says when this one fails.
    of_trait: bool,
    has_forward: bool,
}

fn read(
    package: &str,
    file: &Path,
    text: &str,
    macros: &BTreeMap<String, RowMacro>,
    exported: &Exported,
    items: &mut Vec<Item>,
) {
    let lines: Vec<&str> = text.lines().collect();
    let in_public_module = exported.has(file);
    // `$name`: the rows of a macro are public types.
    let is_public = |name: &str| {
        in_public_module || name == "Tensor" || name == "$name" || exported.names.contains(name)
    };
    let (mut block, mut rows, mut doc) = (Block::default(), None, Vec::new());
    let (mut takes_rows, mut hidden) = (false, false);
    for (number, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        if let Some(words) = code.strip_prefix("///") {
            doc.push(words.trim().to_string());
            continue;
        }
        if code.starts_with("#[") || code == "$(#[$doc])*" || code.starts_with("$(#[doc") {
            hidden |= code == "#[doc(hidden)]";
            takes_rows |= code == "$(#[$doc])*";
            // An example that a macro writes with `concat!` has its fences in `///` lines.
            continue;
        }
        if code.starts_with("//") {
            continue;
        }
        if let Some(found) = block_of(line) {
            block = found;
        }
        if let Some(called) = line.strip_suffix("! {").and_then(|name| macros.get(name)) {
            rows = Some(called);
        } else if *line == "}" {
            (rows, block) = (None, Block::default());
        }
        let place = format!("crates/{package}/src/{}:{}", file.display(), number + 1);
        let item = |name: String, doc: Vec<String>, (result, body), is_type| Item {
            name,
            place: place.clone(),
            doc,
            body,
            result,
            is_type,
            is_forward: block.has_forward,
        };
        let is_method = line.len() > code.len();
        let function = match code.strip_prefix("pub ").or(block.is_trait.then_some(code)) {
            Some(rest) if !block.of_trait => name_of_function(rest),
            _ if block.has_forward => name_of_function(code).filter(|name| *name == "forward"),
            _ => None,
        };
        if let Some(name) = function {
            let public = match is_method {
                true => !block.owner.is_empty() && is_public(&block.owner),
                false => is_public(name),
            };
            if public && !hidden && !takes_rows {
                let name = if is_method { format!("{}::{name}", block.owner) } else { name.into() };
                items.push(item(name, doc.clone(), parts(&lines[number..]), false));
            }
        } else if let Some(name) = name_of_type(code).filter(|name| is_public(name) && !hidden) {
            items.push(item(name.to_string(), doc.clone(), Default::default(), true));
        } else if let Some(row) = rows.filter(|_| !doc.is_empty() && line.len() == code.len() + 4) {
            let name = code.split(['(', ' ']).next().unwrap_or_default();
            let name = if row.is_type { name.to_string() } else { format!("Tensor::{name}") };
            let all = doc.iter().chain(&row.doc).cloned().collect();
            items.push(item(name, all, Default::default(), row.is_type));
        }
        if !code.is_empty() {
            doc.clear();
            (takes_rows, hidden) = (false, false);
        }
    }
}

/// The block that a line at the margin of a file, or of a macro, begins.
fn block_of(line: &str) -> Option<Block> {
    let code = line.trim_start();
    if let Some(rest) = code.strip_prefix("pub trait ") {
        let owner = rest.split(['<', ':', ' ', '{']).next()?.to_string();
        return Some(Block { owner, is_trait: true, ..Block::default() });
    }
    if code.starts_with("macro_rules! ") {
        return Some(Block { owner: "$name".to_string(), ..Block::default() });
    }
    let rest = code.strip_prefix("impl")?;
    if !rest.starts_with(['<', ' ']) {
        return None;
    }
    // The parameters of the block: up to the bracket that closes the first.
    let mut depth = 0;
    let end = rest.char_indices().find(|&(i, c)| {
        depth += i32::from(c == '<');
        depth -= i32::from(c == '>' && !rest[..i].ends_with('-'));
        depth == 0
    });
    let rest = &rest[end.map_or(0, |(i, c)| i + c.len_utf8())..];
    let of_trait = rest.contains(" for ");
    let head = rest.trim_start();
    let has_forward = head.starts_with("Layer for ") || head.starts_with("Loss for ");
    let owner = rest.split(" for ").last()?.trim();
    let owner = owner.split(['<', ' ', '{']).next()?.to_string();
    Some(Block { owner, is_trait: false, of_trait, has_forward })
}

fn name_of_function(code: &str) -> Option<&str> {
    let code = code.strip_prefix("const ").unwrap_or(code);
    let code = code.strip_prefix("unsafe ").unwrap_or(code).strip_prefix("fn ")?;
    code.split(['(', '<']).next()
}

fn name_of_type(code: &str) -> Option<&str> {
    let rest = code.strip_prefix("pub ")?;
    let rest = ["struct ", "enum ", "trait "].iter().find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(['<', '(', ' ', ';', ':', '{']).next().filter(|name| !name.starts_with('$'))
}

/// The result and the body of the function that begins here; no body if it has none.
fn parts(lines: &[&str]) -> (String, Option<String>) {
    let end = format!("{}}}", &lines[0][..lines[0].len() - lines[0].trim_start().len()]);
    let mut text = String::new();
    for line in lines {
        text.push_str(line);
        text.push('\n');
        let declared = line.ends_with(';') && !text.contains("{\n");
        if *line == end || declared || (line.ends_with('}') && std::ptr::eq(line, &lines[0])) {
            break;
        }
    }
    let (head, body) = match text.split_once(" {") {
        Some((head, body)) => (head, Some(body.trim_end().trim_end_matches('}').to_string())),
        None => (text.as_str(), None),
    };
    let head = head.split("where\n").next().unwrap_or_default();
    let result = head.rsplit_once(") -> ").map_or("", |(_, result)| result);
    (result.trim().to_string(), body)
}
