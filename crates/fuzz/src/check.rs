//! Runs one program in all ways and compares.

use crate::ast::{Nest, Program};
use crate::budget::{self, BudgetCounts};
use crate::compare::{NUMERIC, Outcome, SAME, Value, distance, gap, outcome, tolerance};
use crate::numeric::{self, Numeric};
use crate::ops::{ONE_WAY, SURROGATE};
use crate::refusals;
use crate::rng::Rng;
use crate::slopes;
use crate::switches::Switches;
use crate::ways::{ALWAYS, DIRECTION, LOSS, Way};
use pullback::{DType, Tensor};
use std::collections::HashMap;
use std::fmt;

/// Two ways that differ.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is compared.
    pub pair: Pair,
    /// What is wrong with it.
    pub kind: FailureKind,
    /// What the first gave.
    pub got: String,
    /// What the second gave.
    pub expected: String,
}

/// Two ways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pair {
    /// A way and the plain way to the same numbers.
    Plain(Way),
    /// A derivative and differences.
    Numeric(Way),
    /// Two compositions that are the same mathematically.
    Modes(Way, Way),
    /// Twice the same: the second call, and the inputs as they were.
    Again(Way),
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Pair::Plain(way) => write!(f, "{way} against {}", way.plain()),
            Pair::Numeric(way) => write!(f, "{way} against differences"),
            Pair::Modes(a, b) => write!(f, "{a} against {b}"),
            Pair::Again(way) => write!(f, "{way} against itself"),
        }
    }
}

impl Pair {
    /// The text for `--only`.
    pub fn only(&self) -> String {
        match self {
            Pair::Plain(way) | Pair::Again(way) | Pair::Numeric(way) | Pair::Modes(way, _) => {
                way.to_string()
            }
        }
    }
}

/// The kinds of wrong. A shrunk program has to fail in the same kind.
#[derive(Clone, Debug, PartialEq)]
pub enum FailureKind {
    /// Other numbers; this many times the tolerance.
    Differs(f64),
    /// Other shapes or dtypes.
    Shapes,
    /// Only one of them is refused.
    Refused,
    /// A panic that is no error of the library's.
    Panicked,
    /// An input was written to.
    InputChanged,
}

impl FailureKind {
    fn is_like(&self, other: &FailureKind) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// What a run has seen.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Programs that were run.
    pub programs: usize,
    /// Pairs that were compared.
    pub compared: usize,
    /// Pairs of which both were refused.
    pub both_refused: usize,
    /// Differences that a change of the input in its twelfth digit explains.
    pub unstable: usize,
    /// Derivatives that differences say nothing about.
    pub unclear: usize,
    /// Budgets, and how many of them made values be dropped or computed again.
    pub budgets: usize,
    /// See `budgets`.
    pub tight: usize,
    /// How often each message was the reason of a documented refusal.
    pub documented: HashMap<&'static str, usize>,
}

impl Tally {
    /// Adds another.
    pub fn add(&mut self, other: &Tally) {
        self.programs += other.programs;
        self.compared += other.compared;
        self.both_refused += other.both_refused;
        self.unstable += other.unstable;
        self.unclear += other.unclear;
        self.budgets += other.budgets;
        self.tight += other.tight;
        for (why, n) in &other.documented {
            *self.documented.entry(why).or_default() += n;
        }
    }
}

/// Runs programs and compares.
pub struct Checker<'a> {
    program: &'a Program,
    known: HashMap<Way, Outcome>,
    /// What was seen.
    pub tally: Tally,
    /// Whether pairs are printed as they come.
    pub print: bool,
}

impl<'a> Checker<'a> {
    /// Of a program.
    pub fn new(program: &'a Program) -> Checker<'a> {
        Checker { program, known: HashMap::new(), tally: Tally::default(), print: false }
    }

    /// All pairs of a program, some chosen by `rng`; the first failure.
    pub fn all(
        &mut self,
        rng: &mut Rng,
        switches: Switches,
        only: Option<&Way>,
    ) -> Option<Failure> {
        self.tally.programs += 1;
        let pairs = pairs(rng, only);
        let allowed = |pair: &Pair| {
            let off = |way: &Way| way.is_left_out(self.program, switches);
            !match pair {
                Pair::Plain(way) | Pair::Numeric(way) | Pair::Again(way) => off(way),
                Pair::Modes(a, b) => off(a) || off(b),
            }
        };
        let pairs: Vec<Pair> = pairs.into_iter().filter(allowed).collect();
        budget::take_work();
        let failure = pairs.iter().find_map(|pair| self.pair(pair));
        let BudgetCounts { budgets, tight } = budget::take_work();
        (self.tally.budgets, self.tally.tight) = (budgets, tight);
        failure
    }

    /// One pair.
    pub fn pair(&mut self, pair: &Pair) -> Option<Failure> {
        self.tally.compared += 1;
        if self.print {
            println!("// {pair}");
        }
        match pair {
            Pair::Plain(way) => self.plain(pair, way),
            Pair::Numeric(way) => self.numeric(pair, way),
            Pair::Modes(a, b) => self.modes(pair, a, b),
            Pair::Again(way) => self.again(pair, way),
        }
    }

    fn run(&mut self, way: &Way) -> Outcome {
        if let Some(known) = self.known.get(way) {
            return known.clone();
        }
        let came = run(self.program, way);
        self.known.insert(way.clone(), came.clone());
        came
    }

    fn again(&mut self, pair: &Pair, way: &Way) -> Option<Failure> {
        // What writes to its state gives something else the second time.
        if !self.program.state.is_empty() {
            return None;
        }
        let f = way.function(self.program);
        let xs = way.inputs(self.program);
        let (first, second) = (outcome(|| f(&xs)), outcome(|| f(&xs)));
        let after = outcome(|| xs.clone());
        let before = outcome(|| way.inputs(self.program));
        if let (Outcome::Gave(a), Outcome::Gave(b)) = (&before, &after)
            && distance(a, b, SAME) != Some(0.0)
        {
            return failure(pair, FailureKind::InputChanged, &after, &before);
        }
        self.judge(pair, (way, way), &second, &first, 0.0)
    }

    fn plain(&mut self, pair: &Pair, way: &Way) -> Option<Failure> {
        let wanted = self.run(&way.plain());
        let got = self.run(way);
        if let (Outcome::Gave(values), Outcome::Refused(_)) = (&got, &wanted) {
            // In place, code that is traced may do what the tape has to refuse; then its numbers
            // have to be right all the same.
            if let Some(found) = self.against_differences(pair, self.program, way, values) {
                return Some(found);
            }
        }
        self.judge(pair, (way, &way.plain()), &got, &wanted, tolerance(way.coarsest(self.program)))
    }

    fn numeric(&mut self, pair: &Pair, way: &Way) -> Option<Failure> {
        // A little aside: at exact ties and zeros a derivative is a convention.
        let aside = self.program.nudged();
        match run(&aside, way) {
            Outcome::Gave(values) => self.against_differences(pair, &aside, way, &values),
            Outcome::Refused(_) | Outcome::Panicked(_) => None,
        }
    }

    fn against_differences(
        &mut self,
        pair: &Pair,
        program: &Program,
        way: &Way,
        values: &[Value],
    ) -> Option<Failure> {
        let under = numeric::under(way)?;
        let smooth = way.coarsest(self.program) == DType::F64
            && self.program.state.is_empty()
            && !self.program.has(SURROGATE)
            && !self.program.nests(|n| n == Nest::NoGrad);
        if !smooth {
            return None;
        }
        let claimed = numeric::claimed(way, values);
        let slope = match numeric::slope(program, &under) {
            // What is not finite is 0 · ∞ somewhere, as documented, where a slope is infinite.
            Numeric::Slope(_) if !claimed.is_finite() && slopes::infinite(program, way) => {
                *self.tally.documented.entry(INFINITE).or_default() += 1;
                return None;
            }
            Numeric::Slope(slope) => slope,
            Numeric::Unclear => {
                self.tally.unclear += 1;
                return None;
            }
        };
        let far = (claimed - slope).abs() / (NUMERIC * (1.0 + slope.abs()));
        if far <= 1.0 {
            return None;
        }
        let moved = |xs: &Vec<Tensor>| match outcome(|| way.function(program)(xs)) {
            Outcome::Gave(values) => (numeric::claimed(way, &values) - claimed).abs(),
            Outcome::Refused(_) | Outcome::Panicked(_) => f64::INFINITY,
        };
        let size = (claimed - slope).abs();
        if size.is_finite() && shaken(program, way, 1e-12).iter().any(|xs| moved(xs) * 1e3 >= size)
        {
            self.tally.unstable += 1;
            return None;
        }
        Some(Failure {
            pair: pair.clone(),
            kind: FailureKind::Differs(far),
            got: format!("{claimed:.12} along the direction"),
            expected: format!("{slope:.12} by differences"),
        })
    }

    fn modes(&mut self, pair: &Pair, a: &Way, b: &Way) -> Option<Failure> {
        if self.program.has(ONE_WAY) {
            return None;
        }
        let (mut got, mut wanted) = (self.run(a), self.run(b));
        // Of first order, a gradient and a derivative along a direction have one number in common.
        if a.order() == 1 {
            let states = self.program.state.len();
            let scalar = |came: Outcome, salt| match came {
                Outcome::Gave(values) => Outcome::Gave(vec![Value {
                    dtype: DType::F64,
                    shape: vec![],
                    data: vec![numeric::weighted(&values[..values.len() - states], salt)],
                }]),
                other => other,
            };
            (got, wanted) = (scalar(got, LOSS), scalar(wanted, DIRECTION));
        }
        self.judge(pair, (a, b), &got, &wanted, tolerance(a.coarsest(self.program)))
    }

    fn judge(
        &mut self,
        pair: &Pair,
        (way, other): (&Way, &Way),
        got: &Outcome,
        wanted: &Outcome,
        tolerance: f64,
    ) -> Option<Failure> {
        match (got, wanted) {
            (Outcome::Panicked(_), _) | (_, Outcome::Panicked(_)) => {
                failure(pair, FailureKind::Panicked, got, wanted)
            }
            (Outcome::Refused(_), Outcome::Refused(_)) => {
                self.tally.both_refused += 1;
                None
            }
            (Outcome::Refused(error), _) | (_, Outcome::Refused(error)) => {
                let refused = if matches!(got, Outcome::Refused(_)) { way } else { other };
                let gave = if matches!(got, Outcome::Refused(_)) { other } else { way };
                match refusals::documented(self.program, refused, gave, error) {
                    Some(why) => {
                        *self.tally.documented.entry(why).or_default() += 1;
                        None
                    }
                    None => failure(pair, FailureKind::Refused, got, wanted),
                }
            }
            (Outcome::Gave(a), Outcome::Gave(b)) => {
                let far = match distance(b, a, tolerance.max(1e-300)) {
                    Some(far) if far <= 1.0 => return None,
                    Some(far) => far,
                    None => return failure(pair, FailureKind::Shapes, got, wanted),
                };
                if gap(a, b).is_infinite() && slopes::infinite(self.program, way) {
                    *self.tally.documented.entry(INFINITE).or_default() += 1;
                    return None;
                }
                if tolerance > 0.0 && self.is_unstable(way, gap(a, b), b) {
                    self.tally.unstable += 1;
                    return None;
                }
                failure(pair, FailureKind::Differs(far), got, wanted)
            }
        }
    }

    /// Whether a change of the inputs in the twelfth digit (in `f32`, the fifth) changes the plain
    /// result by as much as the ways differ: ties that rounding decides, and sums of which nothing
    /// is left. What is exact has no such excuse.
    fn is_unstable(&mut self, way: &Way, far: f64, values: &[Value]) -> bool {
        if self.program.is_exact() {
            return false;
        }
        let way = way.plain();
        let (size, factor) = match way.coarsest(self.program) {
            DType::F32 => (2e-6, 30.0),
            DType::BF16 => (8e-3, 10.0),
            DType::F16 => (1e-3, 10.0),
            _ => (1e-12, 1e3),
        };
        shaken(self.program, &way, size).iter().any(|xs| match run_on(self.program, &way, xs) {
            Outcome::Gave(moved) => gap(&moved, values) * factor >= far,
            Outcome::Refused(_) | Outcome::Panicked(_) => true,
        })
    }
}

/// The inputs of a way, each element moved at random by at most `size`; four times.
fn shaken(program: &Program, way: &Way, size: f64) -> Vec<Vec<Tensor>> {
    let once = |seed: u64| {
        let mut rng = Rng::new(seed);
        let mut moved = |x: &Tensor| {
            let noise: Vec<f64> = (0..x.len()).map(|_| rng.between(-size, size)).collect();
            x + Tensor::from_vec(noise, x.shape()).cast(x.dtype())
        };
        way.inputs(program).iter().map(&mut moved).collect()
    };
    (0..4).map(once).collect()
}

/// Runs a program one way, twice where it is compiled (the second call is that of a cached program)
/// or has state.
pub fn run(program: &Program, way: &Way) -> Outcome {
    run_on(program, way, &way.inputs(program))
}

fn run_on(program: &Program, way: &Way, xs: &Vec<Tensor>) -> Outcome {
    let (f, state) = way.instance(program);
    let first = outcome(|| f(xs));
    let twice = way.is_compiled() || !state.is_empty();
    match (&first, twice) {
        // What it gives, and what is in its state then.
        (Outcome::Gave(_), true) => outcome(|| [f(xs), state.clone()].concat()),
        _ => first,
    }
}

fn failure(pair: &Pair, what: FailureKind, got: &Outcome, wanted: &Outcome) -> Option<Failure> {
    Some(Failure {
        pair: pair.clone(),
        kind: what,
        got: got.to_string(),
        expected: wanted.to_string(),
    })
}

impl Failure {
    /// Whether a smaller program fails in the same way.
    pub fn remains(&self, program: &Program) -> bool {
        let mut checker = Checker::new(program);
        checker.pair(&self.pair).is_some_and(|found| {
            let said = |f: &Failure| [sentence(&f.got), sentence(&f.expected)];
            found.kind.is_like(&self.kind)
                && (found.kind != FailureKind::Refused || said(&found) == said(self))
        })
    }
}

/// What a refusal says, without the names and numbers in it.
fn sentence(outcome: &str) -> Option<String> {
    let text = outcome.strip_prefix("refused: ")?;
    let text = text.split_once(": ").map_or(text, |parts| parts.1);
    let words = text.split(' ').filter(|word| !word.contains(['`', '[']));
    Some(words.collect::<Vec<_>>().join(" ").replace(|c: char| c.is_ascii_digit(), ""))
}

/// The pairs of one program.
fn pairs(rng: &mut Rng, only: Option<&Way>) -> Vec<Pair> {
    let of = Way::of;
    if let Some(way) = only {
        let way = way.clone();
        return vec![
            Pair::Again(way.clone()),
            Pair::Plain(way.clone()),
            Pair::Numeric(way),
            Pair::Modes(of("jvp"), of("grad")),
            Pair::Modes(of("grad.jvp"), of("jvp.grad")),
            Pair::Modes(of("pull.grad"), of("jvp.grad")),
        ];
    }
    let mut pairs =
        vec![Pair::Again(Way::default()), Pair::Again(of("jit")), Pair::Numeric(of("grad"))];
    pairs.extend(ALWAYS.iter().map(|text| Pair::Plain(of(text))));
    pairs.push(Pair::Modes(of("jvp"), of("grad")));
    if rng.chance(0.5) {
        pairs.push(Pair::Modes(of("grad.jvp"), of("jvp.grad")));
        pairs.push(Pair::Modes(of("pull.grad"), of("jvp.grad")));
        pairs.push(Pair::Numeric(of("jvp.grad")));
    }
    for _ in 0..4 {
        let way = Way::random(rng);
        pairs.push(Pair::Plain(way));
    }
    pairs
}

/// Why one way may give NaN where another has a number.
const INFINITE: &str =
    "0 · ∞ in a derivative that another way does not compute (docs/conventions.md)";
