//! The results of passes, as texts in `golden/`: the passes, the program before, and the program
//! after.
//!
//! `GOLDEN=write cargo test --workspace --test passes golden` rewrites the texts; read them before
//! committing.

use super::interpret::evaluate;
use pullback_ir::pass::*;
use pullback_ir::{DType, Program};
use std::path::Path;

/// As a GPU has them.
pub(super) const SUMS: Limits = Limits {
    instructions: 192,
    inputs: 32,
    small: 6,
    few: 64,
    long: 65536,
    columns: 4,
    column_row: [8, 8192],
    biased_products: true,
};

/// A device that copies a byte in the time of forty accesses to its memory.
const LINK: HostLink = HostLink { out: 100, back: 100, memory: 4000, narrow: 4000, wide: 4000 };

fn away() -> Target {
    Target { host: Some(LINK), ..Target::default() }
}

fn pass(name: &str) -> Box<dyn Fn(&Program) -> Program> {
    match name {
        "dead_code" => Box::new(dead_code),
        "common_subexpressions" => Box::new(common_subexpressions),
        "fold" => Box::new(|p| fold(p, &evaluate)),
        "simplify" => Box::new(simplify),
        "layout" => Box::new(layout),
        "losses" => Box::new(losses),
        "channels_last" => Box::new(|p| channels_last(p, &[DType::BF16])),
        "remat" => Box::new(remat),
        "fuse" => Box::new(fuse),
        "norms" => Box::new(|p| norms(p, SUMS)),
        "fuse_with_sums" => Box::new(|p| fuse_within(p, SUMS)),
        "epilogue" => Box::new(epilogue),
        "library_epilogue" => Box::new(|p| epilogue_where(p, Epilogue::Library)),
        "stores" => Box::new(stores),
        "schedule" => Box::new(schedule),
        "schedule_with_casts" => {
            Box::new(|p| schedule_on(p, Target { joins_casts: true, ..Target::default() }))
        }
        "offload" => Box::new(|p| {
            let whole = plan::plan(p, away()).peak();
            let moved = offload(p, whole * 5 / 8, away());
            assert!(plan::plan(&moved, away()).peak() <= whole * 5 / 8, "{moved}");
            moved
        }),
        "offload_all" => Box::new(|p| offload(p, 0, away())),
        "standard" => Box::new(|p| {
            Pipeline::standard(Target::default(), evaluate).verified(true).run(p).unwrap()
        }),
        name => panic!("there is no pass `{name}`"),
    }
}

#[test]
fn passes_make_what_is_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("passes/golden");
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let mut wrong = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let (title, rest) = text.split_once('\n').unwrap();
        let (before, after) = rest.split_once("=>\n").unwrap();
        let program: Program = before.parse().unwrap_or_else(|e| panic!("{file:?}: {e}"));
        program.verify_deeply().unwrap_or_else(|e| panic!("{file:?}: {e}"));
        let mut found = program;
        for name in title.trim_start_matches("// ").split(", then ") {
            found = pass(name)(&found);
            found.verify_deeply().unwrap_or_else(|e| panic!("{file:?}: {e}"));
        }
        if found.to_string() == after {
            continue;
        }
        if std::env::var("GOLDEN").is_ok_and(|v| v == "write") {
            std::fs::write(file, format!("{title}\n{before}=>\n{found}")).unwrap();
        }
        wrong.push(format!("{file:?} is now\n{found}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files.len() >= 15, "only {} texts", files.len());
}
