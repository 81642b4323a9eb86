//! `pullback ops`: the operations with their derivatives.
//!
//! Primitives come from the op table itself, functions from `docs/functions.md`, kinks from
//! `docs/conventions.md`; both files are kept fresh by tests, and are part of this program.

use crate::failure::{CliResult, Failure};
use crate::output::StandardOutput;
use clap::Args;
use pullback_explore::expression::{did_you_mean, near};
use serde_json::json;

const FUNCTIONS: &str = include_str!("../../../docs/functions.md");
const CONVENTIONS: &str = include_str!("../../../docs/conventions.md");

/// What `pullback ops` takes.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  pullback ops                 everything, one line each
  pullback ops tanh            one operation: what it computes, its derivative, kinks
  pullback ops --filter norm   those whose name, formula or derivative has `norm` in it
  pullback ops --primitives    the op table alone: what everything else is made of
  pullback ops --json          for programs")]
pub struct OpsArgs {
    /// One operation, in full
    name: Option<String>,
    /// Only those with this text in their name, formula or derivative
    #[arg(long, value_name = "TEXT", conflicts_with = "name")]
    filter: Option<String>,
    /// Only the primitives: the rows of the op table
    #[arg(long)]
    primitives: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// An operation.
#[derive(Debug, Clone, PartialEq)]
struct OpRow {
    name: String,
    /// A row of the op table, rather than a function made of such.
    primitive: bool,
    /// Where it belongs.
    group: String,
    computes: String,
    derivative: String,
    /// What the tape keeps for a primitive.
    kept: String,
    /// Its name in PyTorch, where it is another.
    torch: String,
    /// Derivatives at special places.
    kinks: Vec<(String, String)>,
}

/// Lists operations.
///
/// # Errors
/// If there is none of the name.
pub fn run(arguments: &OpsArgs, out: &mut StandardOutput) -> CliResult {
    let mut all = entries();
    if arguments.primitives {
        all.retain(|entry| entry.primitive);
    }
    if let Some(text) = &arguments.filter {
        let text = text.to_lowercase();
        let has = |field: &String| field.to_lowercase().contains(&text);
        all.retain(|e| [&e.name, &e.computes, &e.derivative, &e.torch].into_iter().any(has));
    }
    if let Some(name) = &arguments.name {
        let bare = |entry: &OpRow| {
            entry.name.rsplit("::").next() == Some(name)
                || entry.torch.rsplit('.').next() == Some(name)
        };
        let (exact, other): (Vec<OpRow>, Vec<OpRow>) =
            all.into_iter().partition(|e| e.name == *name);
        let alike: Vec<OpRow> = other.iter().filter(|e| bare(e)).cloned().collect();
        if exact.is_empty() && alike.is_empty() {
            let near = did_you_mean(&near(name, other.iter().map(|e| e.name.as_str())));
            return Err(Failure::failed(format!("there is no operation `{name}`{near}")));
        }
        all = if exact.is_empty() { alike } else { exact };
    }
    if arguments.json {
        let list: Vec<_> = all.iter().map(OpRow::to_json).collect();
        let text =
            serde_json::to_string_pretty(&list).map_err(|e| Failure::failed(e.to_string()))?;
        return Ok(out.line(text)?);
    }
    if all.is_empty() {
        return Err(Failure::failed("no operation fits the filter"));
    }
    match arguments.name {
        Some(_) => all.iter().try_for_each(|entry| full(entry, out)),
        None => list(&all, out),
    }
}

fn full(entry: &OpRow, out: &mut StandardOutput) -> CliResult {
    out.heading(&entry.name)?;
    let kind = if entry.primitive { "a row of the op table" } else { &entry.group };
    out.line(format!("  {}", out.faint(kind)))?;
    let fields = [
        ("computes", &entry.computes),
        ("derivative", &entry.derivative),
        ("kept for backward", &entry.kept),
        ("in PyTorch", &entry.torch),
    ];
    for (title, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
        out.line(format!("  {title}: {text}"))?;
    }
    for (place, value) in &entry.kinks {
        out.line(format!(
            "  at {}: {value}",
            if place.is_empty() { "special places" } else { place }
        ))?;
    }
    Ok(())
}

fn list(all: &[OpRow], out: &mut StandardOutput) -> CliResult {
    let mut group = "";
    for entry in all {
        if entry.group != group {
            if !group.is_empty() {
                out.line("")?;
            }
            group = &entry.group;
            out.heading(group)?;
        }
        let kink = if entry.kinks.is_empty() { "" } else { "  (kinks: see its own page)" };
        let computes =
            if entry.computes.is_empty() { String::new() } else { format!("{}; ", entry.computes) };
        out.line(format!(
            "  {:<20} {computes}derivative {}{}",
            entry.name,
            entry.derivative,
            out.faint(kink)
        ))?;
    }
    Ok(())
}

impl OpRow {
    fn to_json(&self) -> serde_json::Value {
        let kinks: Vec<_> =
            self.kinks.iter().map(|(at, value)| json!({ "at": at, "derivative": value })).collect();
        json!({
            "name": self.name, "primitive": self.primitive, "group": self.group, "computes": self.computes,
            "derivative": self.derivative, "kept": self.kept, "pytorch": self.torch, "kinks": kinks,
        })
    }
}

/// All operations: the op table first.
fn entries() -> Vec<OpRow> {
    let kinks = kinks();
    let kinks_of = |name: &str| -> Vec<(String, String)> {
        // `max_pool…` matches all names with this prefix.
        let meant = |n: &String| {
            n == name
                || n.strip_suffix('…')
                    .is_some_and(|start| !start.is_empty() && name.starts_with(start))
        };
        let mine = kinks.iter().filter(|(names, ..)| names.iter().any(meant));
        mine.map(|(_, at, value)| (at.clone(), value.clone())).collect()
    };
    let mut all = Vec::new();
    for cells in rows(&pullback::table::markdown()).filter_map(|line| line.row) {
        let [name, derivative, kept, ..] = &cells[..] else { continue };
        all.push(OpRow {
            name: name.clone(),
            primitive: true,
            group: "The op table".into(),
            computes: String::new(),
            derivative: derivative.clone(),
            kept: kept.clone(),
            torch: String::new(),
            kinks: kinks_of(name),
        });
    }
    let mut group = String::new();
    for line in rows(FUNCTIONS) {
        if let Some(title) = line.heading {
            group = title;
        }
        let Some([name, computes, derivative, torch]) = line.row.as_deref() else { continue };
        // A primitive with a method of its own is one operation, with the formula from its
        // documentation.
        if let Some(known) = all.iter_mut().find(|e| e.name == *name) {
            known.computes.clone_from(computes);
            known.torch.clone_from(torch);
            continue;
        }
        all.push(OpRow {
            name: name.clone(),
            primitive: false,
            group: group.clone(),
            computes: computes.clone(),
            derivative: derivative.clone(),
            kept: String::new(),
            torch: torch.clone(),
            kinks: kinks_of(name),
        });
    }
    all
}

/// The table of kinks: names, where, what.
fn kinks() -> Vec<(Vec<String>, String, String)> {
    let start = CONVENTIONS.find("## Values at kinks").unwrap_or(CONVENTIONS.len());
    let section = CONVENTIONS[start..].split("\n## ").next().unwrap_or_default();
    let table = rows(section).filter_map(|line| line.row).filter_map(|cells| {
        let [names, at, value] = <[String; 3]>::try_from(cells).ok()?;
        // `pow(a, b)` by a, `max`, `min` over axes, `max_pool…`
        let words =
            names.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '…').map(String::from);
        let by = names.split_once(") by ").map(|(_, by)| format!("{at}, by {by}"));
        Some((words.collect(), by.unwrap_or(at), value))
    });
    table.collect()
}

/// A line of a Markdown file, as far as it matters here.
struct DocLine {
    heading: Option<String>,
    row: Option<Vec<String>>,
}

/// The headings and the rows of tables, cells without quotes; heads and rules of tables are left
/// out.
fn rows(text: &str) -> impl Iterator<Item = DocLine> {
    let mut lines = text.lines().peekable();
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            if let Some(title) = line.strip_prefix("## ") {
                return Some(DocLine { heading: Some(title.replace('`', "")), row: None });
            }
            let head = lines.peek().is_some_and(|next| next.starts_with("|---"));
            if !line.starts_with("| ") || head {
                continue;
            }
            // `\|` is a bar that is meant.
            let inner =
                line.trim().trim_start_matches('|').trim_end_matches('|').replace("\\|", "\u{1}");
            let clean = |cell: &str| cell.trim().replace('`', "").replace('\u{1}', "|");
            return Some(DocLine {
                heading: None,
                row: Some(inner.split('|').map(clean).collect()),
            });
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_and_primitive_is_listed() {
        let all = entries();
        let find =
            |name: &str| all.iter().find(|e| e.name == name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(find("tanh").derivative, "1.0 - y.square()");
        assert!(find("tanh").primitive && !find("elu").primitive);
        assert_eq!(find("softsign").computes, "x / (1 + |x|)");
        assert_eq!(find("relu").kinks, [("0".to_string(), "0".to_string())]);
        assert!(find("pow").kinks.iter().any(|(at, _)| at.ends_with("by a")));
        assert!(find("max_pool2d").kinks[0].1.starts_with("to the first one"));
        let rows = FUNCTIONS.lines().filter(|l| l.starts_with("| `")).count();
        assert!(all.len() >= rows, "{} of {rows}", all.len());
        assert!(all.iter().all(|e| !e.name.is_empty() && !e.derivative.is_empty()));
    }
}
