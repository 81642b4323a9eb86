//! Random programs of several workers, the same ones every time.

use pullback_fuzz::workers::{Exchange, TeamProgram, search};
use std::sync::Arc;

const PROGRAMS: u64 = 120;

#[test]
fn many_workers_agree_with_one() {
    let failures = search(1, PROGRAMS);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_mistake_of_the_workers_is_found() {
    let found = (1..20).filter(|&seed| {
        let program = Arc::new(TeamProgram::new(seed).mistaken());
        program.failures().iter().any(|text| text.contains(&format!("--seed {seed}")))
    });
    assert!(found.count() > 5);
}

#[test]
fn every_exchange_is_in_some_program() {
    let all: Vec<Exchange> =
        (1..=PROGRAMS).flat_map(|seed| TeamProgram::new(seed).exchanges().to_vec()).collect();
    let some = [
        Exchange::Sum,
        Exchange::Mean,
        Exchange::Max,
        Exchange::Min,
        Exchange::Gather,
        Exchange::Scatter,
        Exchange::From(0),
        Exchange::From(1),
        Exchange::Swap,
        Exchange::Shift,
    ];
    assert!(some.iter().all(|exchange| all.contains(exchange)), "{all:?}");
}
