//! A search through programs, and what it found as text.

use crate::ast::Program;
use crate::check::{Checker, Failure, Tally};
use crate::generate;
use crate::ops::OpRow;
use crate::print;
use crate::rng::Rng;
use crate::shrink::shrink;
use crate::switches::Switches;
use crate::ways::Way;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// What to search.
pub struct Options {
    /// The first program; the next has the next number.
    pub seed: u64,
    /// How many programs at most.
    pub programs: u64,
    /// How long at most.
    pub time: Option<Duration>,
    /// How many failures at most.
    pub failures: usize,
    /// One way alone.
    pub only: Option<Way>,
    /// Whether programs are printed as they come.
    pub print: bool,
    /// Whether failures are printed as they come.
    pub verbose: bool,
    /// Whether failures are shrunk.
    pub shrink: bool,
    /// What programs may contain.
    pub switches: Switches,
    /// A row that every program has.
    pub inject: Option<&'static OpRow>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 1,
            programs: 100,
            time: None,
            failures: 10,
            only: None,
            print: false,
            verbose: false,
            shrink: true,
            switches: Switches::default(),
            inject: None,
        }
    }
}

/// What a search found.
#[derive(Default)]
pub struct SearchReport {
    /// A text for each failure.
    pub failures: Vec<String>,
    /// The shrunk programs.
    pub programs: Vec<(Program, Failure)>,
    /// What was compared.
    pub tally: Tally,
}

impl SearchReport {
    /// In one line (and one for each documented refusal).
    pub fn summary(&self) -> String {
        let t = &self.tally;
        let mut text = format!(
            "{} programs, {} comparisons, {} failures; {} pairs both refused, {} unstable, {} without clear differences; {} budgets, {} of which made something be computed again",
            t.programs,
            t.compared,
            self.failures.len(),
            t.both_refused,
            t.unstable,
            t.unclear,
            t.budgets,
            t.tight
        );
        for (why, n) in &t.documented {
            let _ = write!(text, "\n  {n} times: {why}");
        }
        text
    }
}

/// Goes through the programs of consecutive seeds.
pub fn search(options: &Options) -> SearchReport {
    let begun = Instant::now();
    let mut found = SearchReport::default();
    for n in 0..options.programs {
        let late = options.time.is_some_and(|time| begun.elapsed() > time);
        if late || found.failures.len() >= options.failures {
            break;
        }
        one(options, options.seed.wrapping_add(n), &mut found);
    }
    found
}

fn one(options: &Options, seed: u64, found: &mut SearchReport) {
    let program = match options.inject {
        None => generate::program(seed, options.switches),
        Some(row) => generate::program_with(seed, options.switches, row),
    };
    if options.print {
        println!("// seed {seed}\n{}", print::text(&program));
    }
    let mut rng = Rng::new(seed ^ 0xa5a5_5a5a);
    let mut checker = Checker::new(&program);
    checker.print = options.print;
    let failure = checker.all(&mut rng, options.switches, options.only.as_ref());
    found.tally.add(&checker.tally);
    let Some(failure) = failure else { return };
    let (small, last) = match options.shrink {
        true => shrink(&program, &failure),
        false => (program.clone(), failure.clone()),
    };
    let mut text = format!("── seed {seed}: {}: {:?}\n", last.pair, last.kind);
    let _ = writeln!(text, "   got    {}\n   wanted {}", last.got, last.expected);
    if last.pair != failure.pair {
        let _ = writeln!(text, "   found with {}", failure.pair);
    }
    let careful = if options.switches == Switches::off() { " --careful" } else { "" };
    let _ = writeln!(
        text,
        "   again: cargo run --release -p pullback-fuzz -- --seed {seed} --programs 1{careful}"
    );
    text.push_str(&print::text(&small));
    if options.verbose {
        println!("{text}");
    }
    found.failures.push(text);
    found.programs.push((small, last));
}
