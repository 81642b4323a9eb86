//! `docs/dictionary.md` is made of `dictionary/rows.txt`, every name of Pullback in it exists, and
//! every public name of `pullback` and `pullback-nn` is in it.
//!
//! A row is `PyTorch | JAX | Pullback | note`, with names separated by commas and `-` for none. Of
//! Pullback's names, `.sum` is a method of `Tensor`, `nn::` stands for `pullback_nn::`, all others
//! are below `pullback::`, and `= a + b` is an expression, which is not looked up.

mod api;

use api::{Api, Member, Origin};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::LazyLock;

const ROWS: &str = include_str!("dictionary/rows.txt");
const WRITE: &str = "PULLBACK_WRITE_DOCS";
const ONLY_HERE: &str = "Only in Pullback";

struct Section {
    title: &'static str,
    rows: Vec<Row>,
}

struct Row {
    torch: Vec<&'static str>,
    jax: Vec<&'static str>,
    here: Vec<&'static str>,
    note: &'static str,
}

fn names(cell: &'static str) -> Vec<&'static str> {
    if cell == "-" { Vec::new() } else { cell.split(", ").collect() }
}

fn sections() -> Vec<Section> {
    let mut found: Vec<Section> = Vec::new();
    for (i, line) in ROWS.lines().enumerate().filter(|(_, l)| !l.is_empty()) {
        if let Some(title) = line.strip_prefix("# ") {
            found.push(Section { title, rows: Vec::new() });
            continue;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [torch, jax, here, note] = cells[..] else {
            panic!("rows.txt:{}: a row has four cells: {line}", i + 1);
        };
        let row = Row { torch: names(torch), jax: names(jax), here: names(here), note };
        found.last_mut().expect("rows.txt begins with a title").rows.push(row);
    }
    found
}

/// The names of Pullback in the table.
fn given() -> BTreeSet<&'static str> {
    sections().iter().flat_map(|s| &s.rows).flat_map(|r| r.here.clone()).collect()
}

fn repository(path: &str) -> PathBuf {
    // From the package of these tests, `crates/nn/tests`.
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..").join(path)
}

static IR: LazyLock<Api> = LazyLock::new(|| api::read(&repository("crates/ir/src")));
static PULLBACK: LazyLock<Api> = LazyLock::new(|| api::read(&repository("crates/pullback/src")));
static NN: LazyLock<Api> = LazyLock::new(|| api::read(&repository("crates/nn/src")));

fn markdown() -> String {
    let mut text = String::from(
        "# PyTorch, JAX, Pullback\n\n\
         Generated from `crates/nn/tests/dictionary/rows.txt` by\n\
         `PULLBACK_WRITE_DOCS=1 cargo test --release --workspace --test group_modules dictionary`.\n\
         Tests check that it is fresh, that every name of Pullback in it exists, and that every public\n\
         name of `pullback` and `pullback-nn` is here.\n\n\
         In the first column `F` is `torch.nn.functional` and `nn` is `torch.nn`; in the second\n\
         `jnp` is `jax.numpy` and `nnx` is `flax.nnx`. In the third `.sum` is a method of `Tensor`,\n\
         `nn::` is the crate `pullback_nn`, and everything else is in the crate `pullback`. A dash\n\
         in the third column means that it is not there; the note says what to do instead.\n\
         [functions.md](functions.md) says what each function computes, and its derivative.\n\n\
         Sections:",
    );
    let sections = sections();
    for section in &sections {
        let letters = section.title.to_lowercase().replace(' ', "-");
        let keep = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_');
        let anchor: String = letters.chars().filter(keep).collect();
        let _ = write!(text, "\n- [{}](#{anchor})", section.title);
    }
    text.push('\n');
    for section in &sections {
        let _ = write!(
            text,
            "\n## {}\n\n| PyTorch | JAX | Pullback | |\n|---|---|---|---|\n",
            section.title
        );
        for row in &section.rows {
            let (torch, jax, here) = (cell(&row.torch), cell(&row.jax), cell(&row.here));
            let _ = writeln!(text, "| {torch} | {jax} | {here} | {} |", row.note);
        }
    }
    text
}

fn cell(names: &[&str]) -> String {
    if names.is_empty() {
        return "–".to_string();
    }
    let code = |name: &&str| format!("`{}`", name.trim_start_matches("= "));
    names.iter().map(code).collect::<Vec<_>>().join(", ")
}

#[test]
fn docs_dictionary_md_is_what_the_table_says() {
    let path = repository("docs/dictionary.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, markdown()).expect("docs/dictionary.md can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == markdown(),
        "docs/dictionary.md is stale; write it anew: {WRITE}=1 cargo test --release --workspace \
         --test group_modules dictionary"
    );
}

/// Where a path is not an item, it is a type and what belongs to it: `Key::split`.
fn exists(name: &str) -> bool {
    let member = |owner: &str, member: &str| {
        [&*PULLBACK, &*NN, &*IR].iter().find_map(|api| api.members.get(owner)?.get(member)).copied()
    };
    if let Some(method) = name.strip_prefix('.') {
        return member("Tensor", method) == Some(Member::Method);
    }
    if let Some(function) = name.strip_prefix("Tensor::") {
        // `From` is a trait of the standard library.
        return function == "from" || member("Tensor", function) == Some(Member::Associated);
    }
    let (items, path) = match name.strip_prefix("nn::") {
        Some(path) => (&NN.items, path),
        None => (&PULLBACK.items, name),
    };
    let item = |path: &str| items.contains_key(path);
    item(path)
        || path.rsplit_once("::").is_some_and(|(owner, last)| {
            let kind = owner.rsplit("::").next().unwrap_or(owner);
            item(owner) && member(kind, last).is_some()
        })
}

#[test]
fn every_name_in_the_dictionary_exists() {
    // A name that is not there is found out: of each kind one.
    for wrong in [".summ", "Tensor::sum", ".zeros", "fft::fftt", "nn::Liner", "Key::spilt"] {
        assert!(!exists(wrong), "{wrong} is said to exist");
    }
    let named: Vec<_> = given().into_iter().filter(|n| !n.starts_with("= ")).collect();
    let wrong: Vec<_> = named.iter().filter(|name| !exists(name)).collect();
    assert!(
        wrong.is_empty(),
        "rows.txt names what is not public in the sources (renamed?): {wrong:#?}"
    );
}

/// The names in the code of a note: `x.name(…)`, `Type::name`, `nn::…`.
fn names_in(note: &str) -> Vec<String> {
    let code = note.split('`').skip(1).step_by(2);
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '.');
    let mut found = Vec::new();
    for word in code.flat_map(|c| c.split(move |c: char| !word(c))) {
        match word.trim_end_matches(':').rsplit_once('.') {
            // A number, or a file.
            Some((_, last)) if last.is_empty() || last.starts_with(|c: char| c.is_numeric()) => {}
            Some((owner, last)) if owner.len() <= 1 => found.push(format!(".{last}")),
            Some(_) => {}
            None if word.starts_with(|c: char| c.is_uppercase()) || word.starts_with("nn::") => {
                found.push(word.to_string());
            }
            None => {}
        }
    }
    found
}

#[test]
fn every_name_in_a_note_exists() {
    assert_eq!(names_in("`x.at(0)`, or `nn::Lambda::new(f)` 1.5"), [".at", "nn::Lambda::new"]);
    // Dtypes after the first, Rust's own names, and an option of PyTorch; of traits; a file.
    let others = [
        "F64",
        "F16",
        "BF16",
        "I64",
        "I32",
        "Bool",
        "Vec",
        "Option",
        "None",
        "True",
        ".AdamW::default",
        ".over",
        ".pt",
    ];
    let types = |name: &str| {
        NN.items.keys().any(|item| item.rsplit("::").next() == Some(name)) || exists(name)
    };
    let module = |name: &str| {
        let path = format!("{}::", name.trim_start_matches("nn::"));
        name.starts_with("nn::") && NN.items.keys().any(|item| item.starts_with(&path))
    };
    let (mut compared, mut wrong) = (0, Vec::new());
    for row in sections().iter().flat_map(|s| &s.rows) {
        for name in names_in(row.note).iter().filter(|n| !others.contains(&n.as_str())) {
            let last = name.rsplit("::").next().unwrap_or(name);
            let owner = name.rsplit("::").nth(1).unwrap_or_default();
            let member = |api: &Api| api.members.get(owner).is_some_and(|m| m.contains_key(last));
            let known = types(name) || module(name) || member(&PULLBACK) || member(&NN);
            if !known {
                wrong.push((name.clone(), row.note));
            }
            compared += 1;
        }
    }
    assert!(wrong.is_empty(), "notes of rows.txt name what is not there: {wrong:#?}");
    assert!(compared > 40, "only {compared} names were compared");
}

#[test]
fn every_public_name_is_in_the_dictionary() {
    let given = given();
    // A member of a type stands for the type as well.
    let there = |name: &String| {
        given.contains(name.as_str())
            || given.iter().any(|g| g.rsplit_once("::").is_some_and(|(owner, _)| owner == name))
    };
    let mut all: Vec<String> = Vec::new();
    for (method, kind) in &PULLBACK.members["Tensor"] {
        let dot = *kind == Member::Method;
        all.push(if dot { format!(".{method}") } else { format!("Tensor::{method}") });
    }
    // What `pullback_nn` exports of `pullback` is one name, and so is what a prelude exports.
    let own = |item: &&String, origin: &Origin| {
        *origin != Origin::Crate("pullback".to_string()) && !item.starts_with("prelude::")
    };
    all.extend(PULLBACK.items.iter().filter(|(i, o)| own(i, o)).map(|(i, _)| i.clone()));
    all.extend(NN.items.iter().filter(|(i, o)| own(i, o)).map(|(i, _)| format!("nn::{i}")));
    // The scan finds what it should: of each kind one.
    for name in [
        ".tanh",
        ".sum_over",
        ".conv2d",
        ".add_",
        ".index_put",
        "Tensor::zeros",
        "grad",
        "jit",
        "checkpoint",
        "fft::rfft2",
        "losses::ctc",
        "check::check_grads",
        "nn::Relu",
        "nn::Linear",
        "nn::Conv2d",
        "nn::losses::MseLoss",
        "nn::optim::AdamW",
        "nn::schedule::StepLr",
        "nn::data::Bpe",
        "nn::data::transforms::RandomHorizontalFlip",
        "nn::init::eye_",
        "nn::train::plots::Chart",
    ] {
        assert!(all.iter().any(|n| n == name), "{name} is not found in the sources");
    }
    assert!(all.len() > 1000, "only {} names are found", all.len());
    let missing: Vec<_> = all.iter().filter(|name| !there(name)).collect();
    assert!(
        missing.is_empty(),
        "public, but not in crates/nn/tests/dictionary/rows.txt; add each with its counterparts, \
         or under `{ONLY_HERE}`: {missing:#?}"
    );
}

#[test]
fn rows_have_a_counterpart_or_are_listed_as_ours() {
    for section in sections() {
        assert!(!section.rows.is_empty(), "{} has no rows", section.title);
        for row in &section.rows {
            let counterpart = !row.torch.is_empty() || !row.jax.is_empty();
            let title = section.title;
            let names = (&row.torch, &row.jax, &row.here);
            assert_eq!(counterpart, title != ONLY_HERE, "{title}: {names:?}");
            // What is not there has a note that says what to do instead.
            assert!(!row.here.is_empty() || !row.note.is_empty(), "{title}: {names:?}");
        }
    }
}

#[test]
fn names_of_pytorch_are_those_of_the_documentation() {
    // The last column of docs/functions.md: PyTorch's name where it is another one.
    let text = std::fs::read_to_string(repository("docs/functions.md")).expect("docs/functions.md");
    let rows: Vec<Row> = sections().into_iter().flat_map(|s| s.rows).collect();
    let mut compared = 0;
    for line in text.lines().filter(|l| l.starts_with("| `") && l.ends_with("` |")) {
        let quoted = |s: &str| s.trim().trim_matches('`').to_string();
        let inner = line.trim_start_matches("| ").trim_end_matches(" |");
        let (Some((name, _)), Some((_, torch))) =
            (inner.split_once(" | "), inner.rsplit_once(" | "))
        else {
            continue;
        };
        let (name, torch) = (quoted(name), quoted(torch));
        let last = torch.rsplit('.').next().unwrap_or(&torch);
        let method = format!(".{name}");
        let fits = rows.iter().any(|row| {
            row.here.iter().any(|h| *h == name || *h == method)
                && (row.torch.iter().any(|t| t.rsplit('.').next() == Some(last))
                    || row.note.contains(&format!("`{last}`")))
        });
        assert!(
            fits,
            "docs/functions.md says that `{name}` is `{torch}` in PyTorch; rows.txt does not"
        );
        compared += 1;
    }
    assert!(compared > 40, "only {compared} names were compared");
}
