//! Outputs and derivatives against the reference gradients in `golden/`, or in the folder that
//! `PULLBACK_GOLDEN` names. Every file that is there is run: one line per operator, then the
//! totals.
//!
//! `cargo test --release --workspace --test golden -- --nocapture`

#[path = "golden/args.rs"]
mod args;
#[path = "golden/calls/mod.rs"]
mod calls;
#[path = "golden/compare.rs"]
mod compare;
#[path = "golden/reading.rs"]
mod reading;
#[path = "golden/required.rs"]
mod required;

use compare::Tally;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::OnceLock;

/// Every operator of the folder with how it went, or a sentence for a folder or file that cannot be
/// read.
fn run(folder: &Path) -> Result<BTreeMap<String, Tally>, String> {
    let mut results = BTreeMap::new();
    for name in reading::operators(folder)? {
        let mut tally = Tally::default();
        for (i, case) in reading::cases(folder, &name)?.iter().enumerate() {
            let mut one = compare::check(&name, case);
            assert_eq!(one.total(), case.checks(), "every check is counted once");
            one.failures.iter_mut().for_each(|why| *why = format!("case {i}, {why}"));
            tally.add(one);
        }
        results.insert(name, tally);
    }
    Ok(results)
}

fn results() -> &'static BTreeMap<String, Tally> {
    static RESULTS: OnceLock<Result<BTreeMap<String, Tally>, String>> = OnceLock::new();
    let results = RESULTS.get_or_init(|| run(&reading::folder()));
    results.as_ref().unwrap_or_else(|sentence| panic!("{sentence}"))
}

#[test]
fn agrees_with_the_reference() {
    let results = results();
    let (mut passed, mut failed, mut missing) = (0, 0, 0);
    // Printed in one go, after a line break: other tests print at the same time.
    let mut report = String::from("\n");
    for (name, tally) in results {
        let _ = writeln!(report, "{name} {}/{}", tally.passed, tally.total());
        for why in tally.failures.iter().take(3) {
            let _ = writeln!(report, "    {why}");
        }
        passed += tally.passed;
        failed += tally.failures.len();
        missing += tally.missing;
    }
    let total = passed + failed + missing;
    println!(
        "{report}golden: {passed} passed, {failed} failed, {missing} missing of {total} cases"
    );
    assert_eq!(failed, 0, "{failed} checks differ from the reference");
}

/// The cases that `reference/cases.py` lists, keyword by keyword, written by `reference/make.py`
/// with PyTorch.
#[test]
fn agrees_keyword_by_keyword() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference");
    let results = run(&folder).unwrap_or_else(|sentence| panic!("{sentence}"));
    let mut wrong = Vec::new();
    for (name, tally) in &results {
        wrong.extend(tally.failures.iter().map(|why| format!("{name}: {why}")));
        if tally.missing > 0 {
            wrong.push(format!("{name}: {} checks are not mapped", tally.missing));
        }
    }
    let passed: usize = results.values().map(|tally| tally.passed).sum();
    assert!(wrong.is_empty(), "{} of {passed} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(passed > 1000, "{passed}");
}

#[test]
fn has_the_required_operators() {
    let results = results();
    // Another folder may hold less; the one that the project carries holds them all.
    let whole = std::env::var_os("PULLBACK_GOLDEN").is_none();
    let mut wrong = Vec::new();
    for name in required::OPERATORS.iter().flat_map(|(_, names)| names.iter()) {
        match results.get(*name) {
            Some(tally) if tally.missing > 0 => {
                wrong.push(format!("{name} is missing in {} checks", tally.missing))
            }
            None if whole => wrong.push(format!("{name} has no reference file")),
            Some(_) | None => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_cannot_be_read_is_a_sentence() {
    let sentence = |folder: &Path| run(folder).err().unwrap_or_default();
    assert!(sentence(Path::new("no/such/folder")).contains("cannot be read"));
    let folder = std::env::temp_dir().join(format!("pullback-golden-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    assert!(sentence(&folder).contains("no operator"));
    std::fs::write(folder.join("abs.json"), "{\"cases\": [").unwrap();
    assert!(sentence(&folder).contains("abs.json is corrupt"));
    std::fs::write(folder.join("abs.json"), "{\"cases\": []}").unwrap();
    std::fs::write(folder.join("abs.safetensors"), "not tensors").unwrap();
    assert!(sentence(&folder).contains("abs.safetensors is corrupt"));
    std::fs::remove_dir_all(&folder).unwrap();
}
