//! Random programs, the same ones every time: a fixed seed and a fixed number of them.
//! `cargo run --release -p pullback-fuzz -- --seed 7 --seconds 600` continues for as long as one
//! likes. Then the fuzzer itself: what is wrong on purpose is found, and made small.

use pullback_fuzz::check::{FailureKind, Pair};
use pullback_fuzz::generate;
use pullback_fuzz::ops;
use pullback_fuzz::print;
use pullback_fuzz::report::{Options, SearchReport, search};
use pullback_fuzz::switches::Switches;
use pullback_fuzz::ways::Way;

/// About 30 s of an optimised build on two cores; a number and not a time, so that it never fails
/// by being slow.
const PROGRAMS: u64 = 2000;

#[test]
fn all_ways_agree() {
    let half = |seed: u64| {
        move || search(&Options { seed, programs: PROGRAMS / 2, failures: 3, ..Options::default() })
    };
    let other = std::thread::spawn(half(1_000_000));
    let found = [half(1)(), other.join().expect("a search does not panic")];
    for one in &found {
        println!("{}", one.summary());
        assert!(one.failures.is_empty(), "{}\n{}", one.failures.join("\n"), one.summary());
    }
}

fn injected(name: &str, only: Option<&str>) -> SearchReport {
    let row = ops::row(name).expect("a row of that name");
    let options = Options {
        programs: 40,
        failures: 1,
        only: only.map(Way::of),
        switches: Switches::off(),
        inject: Some(row),
        ..Options::default()
    };
    search(&options)
}

#[test]
fn a_wrong_rule_is_found_and_shrunk() {
    for name in ["wrong_slope", "wrong_tangent"] {
        let found = injected(name, None);
        let (program, failure) = found.programs.first().expect("a failure");
        assert!(matches!(failure.kind, FailureKind::Differs(_)), "{}", found.failures[0]);
        assert!(program.body.count() <= 2, "{}", found.failures[0]);
        assert!(print::text(program).contains(name), "{}", found.failures[0]);
        assert!(found.failures[0].contains("--seed "), "{}", found.failures[0]);
    }
}

#[test]
fn a_refusal_of_one_way_alone_is_found_and_shrunk() {
    let found = injected("reads_a_value", Some("jit"));
    let (program, failure) = found.programs.first().expect("a failure");
    assert_eq!(failure.kind, FailureKind::Refused, "{}", found.failures[0]);
    assert_eq!(failure.pair, Pair::Plain(Way::of("jit")));
    assert_eq!(program.body.count(), 1, "{}", found.failures[0]);
}

#[test]
fn a_panic_is_found_and_shrunk() {
    let found = injected("panics_if_large", None);
    let (program, failure) = found.programs.first().expect("a failure");
    assert_eq!(failure.kind, FailureKind::Panicked, "{}", found.failures[0]);
    assert!(program.body.count() <= 2, "{}", found.failures[0]);
}

#[test]
fn a_seed_is_a_program() {
    for seed in 0..20 {
        let text = || print::text(&generate::program(seed, Switches::default()));
        assert_eq!(text(), text());
    }
    let many: std::collections::HashSet<String> =
        (0..50).map(|seed| print::text(&generate::program(seed, Switches::off()))).collect();
    assert!(many.len() > 45);
}

#[test]
fn ways_print_and_parse_back() {
    let mut rng = pullback_fuzz::rng::Rng::new(3);
    for _ in 0..200 {
        let way = Way::random(&mut rng);
        assert_eq!(way.to_string().parse::<Way>().as_ref(), Ok(&way));
    }
    assert!("jit.frobnicate".parse::<Way>().is_err());
}

/// Every row can be generated: none is refused whatever it is given.
#[test]
fn every_row_runs() {
    let mut unused: Vec<&str> = Vec::new();
    for (_, rows) in ops::FAMILIES {
        for row in *rows {
            let runs = (0..60).any(|seed| {
                let program = generate::program_with(seed, Switches::default(), row);
                print::text(&program).contains(&format!("{}(", row.name))
            });
            if !runs {
                unused.push(row.name);
            }
        }
    }
    assert!(unused.is_empty(), "{unused:?}");
}
