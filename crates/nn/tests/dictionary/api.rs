//! The public names of a crate, read from its sources: items of public modules, what `pub use`
//! exports, methods of types, variants of enums. Macros that declare items are expanded: their
//! parameters are matched from the left, as long as each is one token.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What is public in a crate.
#[derive(Debug, Default)]
pub struct Api {
    /// Paths below the crate (`grad`, `fft::fft`), without modules, and whether another crate of
    /// those that are read declares it.
    pub items: BTreeMap<String, Origin>,
    /// Methods, associated functions and variants of each type or trait, by its name.
    pub members: BTreeMap<String, BTreeMap<String, Member>>,
}

/// Where an exported name is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Here,
    /// The first segment of its path.
    Crate(String),
}

/// What belongs to a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// Called on a value.
    Method,
    /// Called on the type, or a variant.
    Associated,
}

/// A module as it is written.
#[derive(Debug, Default)]
struct Module {
    public: BTreeSet<String>,
    /// Child modules, and whether they are public.
    children: BTreeMap<String, (bool, Module)>,
    uses: Vec<Vec<String>>,
}

struct Macro {
    /// Names of the parameters and the tokens between them, as far as they are matched.
    pattern: Vec<String>,
    /// Whether the pattern is one row of many, separated by semicolons.
    repeated: bool,
    body: Vec<String>,
}

#[derive(Default)]
struct Reader {
    files: BTreeMap<PathBuf, Rc<Vec<String>>>,
    macros: BTreeMap<String, Macro>,
    members: BTreeMap<String, BTreeMap<String, Member>>,
}

/// Reads a crate from the folder of its sources.
pub fn read(sources: &Path) -> Api {
    let mut reader = Reader::default();
    // Twice: a macro may be called in a file that is read before the one that defines it.
    reader.file(&sources.join("lib.rs"), sources, &[]);
    let root = reader.file(&sources.join("lib.rs"), sources, &[]);
    let mut items = BTreeMap::new();
    export(&root, &root, "", &mut items);
    Api { items, members: reader.members }
}

/// Adds what a module exports to the paths.
fn export(root: &Module, module: &Module, prefix: &str, items: &mut BTreeMap<String, Origin>) {
    for (name, origin) in names(root, module) {
        items.insert(format!("{prefix}{name}"), origin);
    }
    let mut children: BTreeMap<&str, &Module> = BTreeMap::new();
    for (name, (public, child)) in &module.children {
        if *public {
            children.insert(name, child);
        }
    }
    // A public module of a private one, exported by name: `pub use ops::{fft, linalg}`.
    for path in &module.uses {
        let (last, parents) = path.split_last().expect("a path is not empty");
        let child = place(root, parents).and_then(|m| m.children.get(last));
        if let Some((true, child)) = child {
            children.insert(last, child);
        }
    }
    for (name, child) in children {
        export(root, child, &format!("{prefix}{name}::"), items);
    }
}

/// The module of a path that begins with `crate`; nothing for those of other crates.
fn place<'a>(root: &'a Module, path: &[String]) -> Option<&'a Module> {
    let ("crate", rest) = path.split_first().map(|(first, rest)| (first.as_str(), rest))? else {
        return None;
    };
    rest.iter().try_fold(root, |m, segment| m.children.get(segment).map(|(_, child)| child))
}

/// The names that a module exports itself, without those of its child modules.
fn names(root: &Module, module: &Module) -> BTreeMap<String, Origin> {
    let mut found: BTreeMap<_, _> =
        module.public.iter().map(|name| (name.clone(), Origin::Here)).collect();
    for path in &module.uses {
        let (last, parents) = path.split_last().expect("a path is not empty");
        match (place(root, parents), last.as_str()) {
            (Some(m), "*") => found.extend(names(root, m)),
            (Some(m), name) => {
                let declared = names(root, m).remove(name);
                if declared.is_some() || !m.children.contains_key(name) {
                    found.insert(name.to_string(), declared.unwrap_or(Origin::Here));
                }
            }
            (None, "*") => {}
            (None, name) => {
                found.insert(name.to_string(), Origin::Crate(path[0].clone()));
            }
        }
    }
    found
}

impl Reader {
    /// A module from its file; `folder` has those of its children, `at` is its path.
    fn file(&mut self, path: &Path, folder: &Path, at: &[String]) -> Module {
        let read = || {
            let text = std::fs::read_to_string(path);
            Rc::new(tokens(&text.unwrap_or_else(|e| panic!("{}: {e}", path.display()))))
        };
        let tokens = self.files.entry(path.to_path_buf()).or_insert_with(read).clone();
        self.module(&tokens, folder, at)
    }

    fn module(&mut self, tokens: &[String], folder: &Path, at: &[String]) -> Module {
        let mut module = Module::default();
        self.items(tokens, folder, at, &mut module);
        // Paths of this crate from its root.
        for path in &mut module.uses {
            let up = path.iter().take_while(|s| *s == "super").count();
            if up > 0 || module.children.contains_key(&path[0]) {
                let crate_path = ["crate".to_string()];
                let parents = crate_path.iter().chain(&at[..at.len() - up]);
                *path = parents.chain(&path[up..]).cloned().collect();
            }
        }
        module
    }

    fn items(&mut self, tokens: &[String], folder: &Path, at: &[String], module: &mut Module) {
        let mut i = 0;
        while i < tokens.len() {
            // Attributes.
            let mut hidden = false;
            while tokens[i] == "#" && i + 1 < tokens.len() {
                let open = if tokens[i + 1] == "!" { i + 2 } else { i + 1 };
                let end = closing(tokens, open);
                let text = tokens[open + 1..end].concat();
                hidden |= ["doc(hidden)", "cfg(test)", "cfg(doctest)"].contains(&text.as_str());
                i = end + 1;
                if i >= tokens.len() {
                    return;
                }
            }
            let mut public = tokens[i] == "pub";
            if public {
                i += 1;
                if tokens[i] == "(" {
                    public = false;
                    i = closing(tokens, i) + 1;
                }
            }
            public &= !hidden;
            while ["unsafe", "async", "default"].contains(&tokens[i].as_str()) {
                i += 1;
            }
            if tokens[i] == "const" && tokens.get(i + 1).is_some_and(|t| t == "fn") {
                i += 1;
            }
            let end = end_of_item(tokens, i);
            let item = &tokens[i..end];
            match item[0].as_str() {
                "mod" => {
                    let name = &item[1];
                    let (inside, at) =
                        (folder.join(name), [at, std::slice::from_ref(name)].concat());
                    let inner = if item[2] == "{" {
                        self.module(&item[3..item.len() - 1], &inside, &at)
                    } else {
                        self.file(&module_file(folder, name), &inside, &at)
                    };
                    module.children.insert(name.clone(), (public, inner));
                }
                "use" if public => tree(&item[1..item.len() - 1], &[], &mut module.uses),
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" => {
                    if public && !item[1].starts_with('$') {
                        module.public.insert(item[1].clone());
                    }
                    if item[0] == "trait" || item[0] == "enum" {
                        self.members_of(item);
                    }
                }
                "impl" => self.inherent(item),
                "macro_rules" => {
                    let rules = parse_macro(&item[4..item.len() - 1]);
                    self.macros.insert(item[2].clone(), rules);
                }
                name if item.get(1).is_some_and(|t| t == "!") => {
                    for made in self.expanded(name, &item[3..]) {
                        self.items(&made, folder, at, module);
                    }
                }
                _ => {}
            }
            i = end;
        }
    }

    /// Methods of a trait, or variants of an enum.
    fn members_of(&mut self, item: &[String]) {
        let Some(open) = item.iter().position(|t| t == "{") else { return };
        let body = &item[open + 1..closing(item, open)];
        let found = self.members.entry(item[1].clone()).or_default();
        if item[0] == "enum" {
            let (mut i, mut fresh) = (0, true);
            while i < body.len() {
                match body[i].as_str() {
                    "#" => i = closing(body, i + 1),
                    "(" | "{" | "[" => i = closing(body, i),
                    "," => fresh = true,
                    name if fresh => {
                        found.insert(name.to_string(), Member::Associated);
                        fresh = false;
                    }
                    _ => {}
                }
                i += 1;
            }
        } else {
            functions(body, false, found);
        }
    }

    /// Public functions of `impl Type { … }`.
    fn inherent(&mut self, item: &[String]) {
        let Some(open) = item.iter().position(|t| t == "{") else { return };
        let (mut head, mut depth) = (Vec::new(), 0);
        for token in &item[1..open] {
            match token.as_str() {
                "<" => depth += 1,
                ">" => depth -= 1,
                "where" => break,
                _ if depth == 0 => head.push(token.as_str()),
                _ => {}
            }
        }
        let Some(name) = head.last() else { return };
        if head.contains(&"for") || name.starts_with('$') {
            return;
        }
        let mut body = item[open + 1..closing(item, open)].to_vec();
        for at in 0..body.len().saturating_sub(1) {
            if body[at + 1] == "!" && self.macros.contains_key(&body[at]) {
                let made = self.expanded(&body[at].clone(), &[]).concat();
                body.extend(made);
            }
        }
        functions(&body, true, self.members.entry(name.to_string()).or_default());
    }

    /// What a call of a macro with these tokens makes, a list for each row.
    fn expanded(&self, name: &str, call: &[String]) -> Vec<Vec<String>> {
        let Some(rules) = self.macros.get(name) else { return Vec::new() };
        let end = call.iter().rposition(|t| [")", "}", "]"].contains(&t.as_str()));
        let call = &call[..end.unwrap_or(0)];
        let rows: Vec<&[String]> = if rules.repeated { rows(call) } else { vec![call] };
        rows.iter().map(|row| filled(rules, row)).collect()
    }
}

fn module_file(folder: &Path, name: &str) -> PathBuf {
    let flat = folder.join(format!("{name}.rs"));
    if flat.is_file() { flat } else { folder.join(name).join("mod.rs") }
}

/// The functions of a block of `impl` (the public ones) or of a trait (all).
fn functions(body: &[String], only_public: bool, found: &mut BTreeMap<String, Member>) {
    let (mut i, mut public) = (0, false);
    let mut hidden = false;
    while i < body.len() {
        match body[i].as_str() {
            "#" => {
                let end = closing(body, i + 1);
                hidden |= body[i + 2..end].concat() == "doc(hidden)";
                i = end;
            }
            "pub" => {
                public = body[i + 1] != "(";
                if !public {
                    i = closing(body, i + 1);
                }
            }
            "fn" => {
                let end = end_of_item(body, i);
                let open = body[i..end].iter().position(|t| t == "(").unwrap_or(0) + i;
                let first = &body[open..closing(body, open)];
                // `self`, `&self`, `&mut self`, `&'a self`, `mut self`
                let receiver = first.iter().take(5).take_while(|t| *t != ":" && *t != ",");
                let receiver = receiver.into_iter().any(|t| t == "self");
                if (public || !only_public) && !hidden && !body[i + 1].starts_with('$') {
                    let kind = if receiver { Member::Method } else { Member::Associated };
                    found.insert(body[i + 1].clone(), kind);
                }
                (public, hidden) = (false, false);
                i = end - 1;
            }
            "const" | "type" if body.get(i + 1).is_some_and(|t| t != "fn") => {
                if public || !only_public {
                    found.insert(body[i + 1].clone(), Member::Associated);
                }
                (public, hidden) = (false, false);
                i = end_of_item(body, i) - 1;
            }
            _ => {}
        }
        i += 1;
    }
}

/// The paths of a `use` tree. A name given by `as` counts as the last segment.
fn tree(tokens: &[String], prefix: &[String], paths: &mut Vec<Vec<String>>) {
    let (mut path, mut i) = (prefix.to_vec(), 0);
    while i < tokens.len() {
        match tokens[i].as_str() {
            "::" | "self" => {}
            "as" => {
                path.pop();
            }
            "{" => {
                let end = closing(tokens, i);
                let (mut from, mut depth) = (i + 1, 0);
                for at in i + 1..=end {
                    match tokens[at].as_str() {
                        "{" => depth += 1,
                        "}" if depth > 0 => depth -= 1,
                        "," | "}" if depth == 0 => {
                            if from < at {
                                tree(&tokens[from..at], &path, paths);
                            }
                            from = at + 1;
                        }
                        _ => {}
                    }
                }
                return;
            }
            name => path.push(name.to_string()),
        }
        i += 1;
    }
    paths.push(path);
}

/// The index after an item that starts here.
fn end_of_item(tokens: &[String], start: usize) -> usize {
    let mut i = start;
    let braces_end = !["const", "static", "use", "type"].contains(&tokens[start].as_str());
    while i < tokens.len() {
        match tokens[i].as_str() {
            ";" => return i + 1,
            "(" | "[" => i = closing(tokens, i),
            "{" => {
                i = closing(tokens, i);
                if braces_end {
                    return i + 1;
                }
            }
            _ => {}
        }
        i += 1;
    }
    tokens.len()
}

/// The index of the bracket that closes this one.
fn closing(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth -= 1;
                if depth == 0 {
                    return i;
                }
            }
            _ => {}
        }
    }
    panic!("a bracket is not closed: {:?}", &tokens[open..(open + 20).min(tokens.len())])
}

/// The first rule of a macro, and the bodies of all.
fn parse_macro(tokens: &[String]) -> Macro {
    let end = closing(tokens, 0);
    let mut pattern = &tokens[1..end];
    let repeated = pattern.first().is_some_and(|t| t == "$") && pattern[1] == "(" && {
        let close = closing(pattern, 1);
        let many = close + 2 == pattern.len() && pattern[2..close].contains(&"$".to_string());
        let attributes = pattern[2] == "#";
        if many && !attributes {
            pattern = &pattern[2..close];
        }
        many && !attributes
    };
    let mut flat = Vec::new();
    let mut i = 0;
    while i < pattern.len() {
        if pattern[i] == "$" && pattern[i + 1] == "(" {
            // `$(#[$doc:meta])*` matches comments, which are gone; anything else ends the pattern.
            if pattern[i + 2] != "#" {
                break;
            }
            i = closing(pattern, i + 1) + 2;
        } else if pattern[i] == "$" {
            // Only a name or a literal is one token.
            if !["ident", "literal"].contains(&pattern[i + 3].as_str()) {
                break;
            }
            flat.push(format!("${}", pattern[i + 1]));
            i += 4; // $ name : kind
        } else {
            flat.push(pattern[i].clone());
            i += 1;
        }
    }
    let (mut body, mut i) = (Vec::new(), end + 1);
    while i < tokens.len() {
        if tokens[i] == "=>" {
            let close = closing(tokens, i + 1);
            body.extend_from_slice(&tokens[i + 2..close]);
            i = close;
        }
        i += 1;
    }
    Macro { pattern: flat, repeated, body }
}

/// Rows that end in a semicolon.
fn rows(tokens: &[String]) -> Vec<&[String]> {
    let (mut found, mut from, mut i) = (Vec::new(), 0, 0);
    while i < tokens.len() {
        match tokens[i].as_str() {
            "(" | "[" | "{" => i = closing(tokens, i),
            ";" => {
                found.push(&tokens[from..i]);
                from = i + 1;
            }
            _ => {}
        }
        i += 1;
    }
    found
}

/// The body of a macro with the parameters that this row binds; repetitions are kept once.
fn filled(rules: &Macro, row: &[String]) -> Vec<String> {
    // Attributes before it, such as `#[doc(alias = "amax")]`.
    let mut row = row;
    while let [hash, bracket, ..] = row
        && (hash.as_str(), bracket.as_str()) == ("#", "[")
    {
        row = &row[closing(row, 1) + 1..];
    }
    let mut bound: BTreeMap<&str, &String> = BTreeMap::new();
    for (pattern, token) in rules.pattern.iter().zip(row) {
        match pattern.strip_prefix('$') {
            Some(name) => {
                bound.insert(name, token);
            }
            None if pattern == token => {}
            None => break,
        }
    }
    let (mut made, mut i) = (Vec::new(), 0);
    let body = &rules.body;
    let mut closers = Vec::new();
    while i < body.len() {
        if closers.last() == Some(&i) {
            closers.pop();
            i = after_repetition(body, i);
            continue;
        }
        let next = body.get(i + 1).map(String::as_str);
        match (body[i].as_str(), next) {
            ("$", Some("(")) if body[i + 2] == "#" => {
                i = after_repetition(body, closing(body, i + 1));
            }
            ("$", Some("(")) => {
                closers.push(closing(body, i + 1));
                i += 2;
            }
            ("$", Some(name)) => {
                made.push(bound.get(name).map_or(format!("${name}"), |t| (*t).clone()));
                i += 2;
            }
            (token, _) => {
                made.push(token.to_string());
                i += 1;
            }
        }
    }
    made
}

/// The index after `)*`, `),*` or `)?`, from that of the bracket.
fn after_repetition(tokens: &[String], close: usize) -> usize {
    let sign = ["*", "+", "?"].contains(&tokens[close + 1].as_str());
    close + if sign { 2 } else { 3 }
}

/// Words, numbers, quoted texts and signs; comments are left out.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut i) = (Vec::new(), 0);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    while i < chars.len() {
        let (c, next) = (chars[i], chars.get(i + 1).copied().unwrap_or(' '));
        let from = i;
        if c.is_whitespace() {
            i += 1;
            continue;
        } else if c == '/' && next == '/' {
            while i < chars.len() && chars[i] != '\n' {
                i += 1;
            }
            continue;
        } else if c == '/' && next == '*' {
            i += 2;
            while !(chars[i] == '*' && chars[i + 1] == '/') {
                i += 1;
            }
            i += 2;
            continue;
        } else if c == 'r' && (next == '"' || next == '#') && raw(&chars[i + 1..]) {
            let hashes = chars[i + 1..].iter().take_while(|c| **c == '#').count();
            i += hashes + 2;
            let closes = |at: usize| {
                chars[at] == '"' && chars[at + 1..].iter().take(hashes).all(|c| *c == '#')
            };
            while !closes(i) {
                i += 1;
            }
            i += hashes + 1;
        } else if c == '"' {
            i += 1;
            while chars[i] != '"' {
                i += if chars[i] == '\\' { 2 } else { 1 };
            }
            i += 1;
        } else if c == '\'' && (next == '\\' || chars.get(i + 2) == Some(&'\'')) {
            i += if next == '\\' { 3 } else { 2 };
            while chars[i] != '\'' {
                i += 1;
            }
            i += 1;
        } else if c == 'r' && next == '#' && chars.get(i + 2).is_some_and(|c| word(*c)) {
            // A raw identifier: `r#where`.
            i += 2;
            while i < chars.len() && word(chars[i]) {
                i += 1;
            }
        } else if c == '\'' || word(c) {
            i += 1;
            while i < chars.len() && word(chars[i]) {
                i += 1;
            }
        } else {
            let two: String = [c, next].iter().collect();
            i += if ["::", "=>", "->"].contains(&two.as_str()) { 2 } else { 1 };
        }
        found.push(chars[from..i].iter().collect());
    }
    found
}

/// Whether a raw text starts here, after its `r`.
fn raw(rest: &[char]) -> bool {
    rest.iter().find(|c| **c != '#') == Some(&'"')
}
