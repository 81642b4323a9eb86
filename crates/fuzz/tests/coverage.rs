//! What the random programs consist of: every op of the op table, every row of the fuzzer's own,
//! every write and every nesting comes up, and how often is counted.

use pullback::{Group, Op, Program as Traced, Spec, trace};
use pullback_fuzz::ast::{Nest, Stmt};
use pullback_fuzz::generate;
use pullback_fuzz::ops::{FAMILIES, WRITES};
use pullback_fuzz::switches::Switches;
use pullback_fuzz::ways::Way;
use std::collections::{BTreeMap, BTreeSet};

/// How many programs are looked at.
const PROGRAMS: u64 = 1500;
/// In how many of them each op of the table has to be, at least.
const LEAST: usize = 3;

/// Ops of the table that no random program has, and why.
const EXCEPTIONS: &[(&str, &str)] =
    &[("to", "programs run on one device; the tests on a second one move values")];

/// Collectives need other workers: their random programs are in the tests of `pullback`.
fn is_collective(name: &str) -> bool {
    pullback::table::collectives(&Group::alone()).any(|op| op.name() == name)
}

/// The names of all ops in a traced program, those of bodies included.
fn names(program: &Traced, into: &mut BTreeSet<&'static str>) {
    for equation in &program.equations {
        into.insert(equation.op.name());
        match &equation.op {
            Op::Flow(flow) => flow.programs().into_iter().for_each(|body| names(body, into)),
            Op::Custom(custom) => {
                if let Some(body) = custom.body() {
                    names(body, into);
                }
            }
            _ => {}
        }
    }
}

/// The first column of docs/ops.md, as it is generated.
fn table() -> Vec<String> {
    let text = pullback::table::markdown();
    let cell = |line: &str| line.strip_prefix("| `")?.split('`').next().map(str::to_string);
    text.lines().filter_map(cell).collect()
}

#[test]
fn every_op_of_the_table_is_generated() {
    let mut seen: BTreeMap<&'static str, usize> = BTreeMap::new();
    for seed in 0..PROGRAMS {
        let program = generate::program(seed, Switches::default());
        let specs: Vec<Spec> = program.first().iter().map(|x| x.spec().clone()).collect();
        let mut here = BTreeSet::new();
        for way in ["plain", "grad"] {
            let f = Way::of(way).function(&program);
            // What reads values cannot be traced, and what overwrites may be refused.
            if let Ok(traced) = trace(|xs| f(&xs.to_vec()), &specs) {
                names(&traced, &mut here);
            }
        }
        here.into_iter().for_each(|name| *seen.entry(name).or_default() += 1);
    }
    let excepted = |name: &str| EXCEPTIONS.iter().any(|e| e.0 == name) || is_collective(name);
    let count = |name: &str| seen.get(name).copied().unwrap_or(0);
    let table = table();
    let rare: Vec<(&str, usize)> = table
        .iter()
        .map(|name| (name.as_str(), count(name)))
        .filter(|(name, n)| *n < LEAST && !excepted(name))
        .collect();
    assert!(rare.is_empty(), "too rare in {PROGRAMS} programs: {rare:?}");
    for (name, why) in EXCEPTIONS {
        assert!(table.iter().any(|op| op == name), "{name} is no op of the table");
        assert!(count(name) < LEAST, "{name} is generated now, so it is no exception: {why}");
    }
}

#[test]
fn every_row_write_and_nesting_is_generated() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let (mut states, mut dtypes) = (0, BTreeSet::new());
    for seed in 0..PROGRAMS {
        let program = generate::program(seed, Switches::default());
        let mut here = BTreeSet::new();
        program.body.visit(&mut |stmt| {
            here.insert(match stmt {
                Stmt::Call { row, .. } => row.name.to_string(),
                Stmt::Write { row, .. } => row.name.to_string(),
                Stmt::Nest { how, .. } => format!("{how:?}"),
            });
        });
        here.into_iter().for_each(|name| *seen.entry(name).or_default() += 1);
        states += usize::from(!program.state.is_empty() && program.writes());
        dtypes.insert(program.dtype.to_string());
    }
    let rows = FAMILIES.iter().flat_map(|f| f.1).map(|row| row.name.to_string());
    let writes = WRITES.iter().map(|row| row.name.to_string());
    let nests = Nest::ALL.iter().map(|how| format!("{how:?}"));
    let missing: Vec<String> =
        rows.chain(writes).chain(nests).filter(|name| !seen.contains_key(name)).collect();
    assert!(missing.is_empty(), "in none of {PROGRAMS} programs: {missing:?}");
    assert!(states > 20, "only {states} programs write to what they capture");
    assert_eq!(dtypes.into_iter().collect::<Vec<_>>(), ["bf16", "f16", "f32", "f64"]);
}
