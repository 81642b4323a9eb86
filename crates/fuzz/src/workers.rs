//! Programs of several workers, which must agree with the same program on one.
//!
//! Such a program is two random ones with collectives between them. Each worker is a thread and has
//! an example of its own. On one worker everything is computed for each example, and what workers
//! exchange is made of ordinary ops.
//!
//! Every worker is given the inputs of all and takes its own, so that ways (`ways.rs`) draw the
//! same weights and directions everywhere. What they give (a number, its derivative along a
//! direction, gradients) is then the sum of what the workers give, as what is differentiated is the
//! sum of the outputs of all.
//!
//! What may be refused by many workers where one computes it:
//!
//! | refused | because |
//! |---|---|
//! | nothing | collectives run eagerly, traced, compiled, in batches, loops, branches and checkpoints |
//!
//! (What `refusals.rs` lists for programs without workers is left out here: writes, state and the
//! reading of values.)

use crate::ast::{EXAMPLES, Nest, Program};
use crate::compare::{Outcome, SAME, distance, gap, outcome};
use crate::generate;
use crate::interpret::{Func, function, weights};
use crate::ops::{LOW, READS, UNTRACED};
use crate::print;
use crate::rng::Rng;
use crate::switches::Switches;
use crate::ways::{Transform, Way};
use pullback::{DType, Group, Tensor, cat, raise, stack};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// The numbers that workers exchange: can be cut into 2 and into 3 parts.
const LENGTH: usize = 12;
/// How far from its own example a value may take the second program.
const NEAR: f64 = 0.01;
const TIMEOUT: Duration = Duration::from_secs(10);

/// What workers do with their numbers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The sum.
    Sum,
    /// The mean.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// All of them, weighted by where they come from.
    Gather,
    /// A part of the sum, repeated.
    Scatter,
    /// Those of one worker.
    From(usize),
    /// A part for each.
    Swap,
    /// Those of the worker before.
    Shift,
}

/// A program of several workers.
#[derive(Debug)]
pub struct TeamProgram {
    seed: u64,
    workers: usize,
    first: Program,
    second: Program,
    exchanges: Vec<Exchange>,
    /// What workers multiply by after they exchanged: not 1 only to see that it is found.
    slip: f64,
}

/// `[workers, LENGTH]` in a row, each part weighted by its number.
fn by_origin(all: &Tensor, workers: usize) -> Tensor {
    let rows = all.reshape([workers, LENGTH]);
    let each = weights(&rows.narrow(1, 0, 1).detach(), 9);
    (rows * each).sum_over(0)
}

fn repeated(x: &Tensor, length: usize) -> Tensor {
    let times = length.div_ceil(x.len().max(1));
    cat(&vec![x; times], 0).narrow(0, 0, length)
}

/// Part `r` of `n`.
fn part(x: &Tensor, r: usize, n: usize) -> Tensor {
    let each = x.len() / n;
    x.narrow(0, (r * each) as isize, each)
}

impl Exchange {
    /// On one of many workers.
    fn many(self, group: &Group, x: &Tensor) -> Tensor {
        let (rank, size) = (group.rank(), group.size());
        match self {
            Exchange::Sum => x.all_reduce(group),
            Exchange::Mean => x.all_reduce_mean(group),
            Exchange::Max => x.all_reduce_max(group),
            Exchange::Min => x.all_reduce_min(group),
            Exchange::Gather => by_origin(&x.all_gather(group, 0), size),
            Exchange::Scatter => repeated(&x.reduce_scatter(group, 0), LENGTH),
            Exchange::From(root) => x.broadcast_from(group, root % size),
            Exchange::Swap => x.all_to_all(group, 0, 0),
            Exchange::Shift => {
                let sent = x.send(group, (rank + 1) % size);
                sent.recv_after(group, (rank + size - 1) % size, [LENGTH])
            }
        }
    }

    /// On one worker, for all.
    fn one(self, xs: &[Tensor]) -> Vec<Tensor> {
        let size = xs.len();
        let sum = || xs.iter().cloned().reduce(|a, b| a + b).expect("a worker");
        let rows = || stack(&xs.iter().collect::<Vec<_>>(), 0);
        let same = |x: Tensor| vec![x; size];
        let each = |f: &dyn Fn(usize) -> Tensor| (0..size).map(f).collect::<Vec<Tensor>>();
        match self {
            Exchange::Sum => same(sum()),
            Exchange::Mean => same(sum() / size as f64),
            Exchange::Max => same(rows().max_over(0)),
            Exchange::Min => same(rows().min_over(0)),
            Exchange::Gather => same(by_origin(&rows(), size)),
            Exchange::Scatter => {
                let sum = sum();
                each(&|r| repeated(&part(&sum, r, size), LENGTH))
            }
            Exchange::From(root) => same(xs[root % size].clone()),
            Exchange::Swap => each(&|r| {
                let parts: Vec<Tensor> = xs.iter().map(|x| part(x, r, size)).collect();
                cat(&parts.iter().collect::<Vec<_>>(), 0)
            }),
            Exchange::Shift => each(&|r| xs[(r + size - 1) % size].clone()),
        }
    }
}

/// What a program gives, as numbers that workers exchange.
fn numbers(ys: &[Tensor]) -> Tensor {
    let floats = ys.iter().filter(|y| y.dtype().is_float() && !y.is_empty());
    let flat: Vec<Tensor> = floats.map(|y| y.cast(DType::F64).reshape([y.len()]).tanh()).collect();
    match flat.is_empty() {
        true => Tensor::zeros_with([LENGTH], DType::F64),
        false => repeated(&cat(&flat.iter().collect::<Vec<_>>(), 0), LENGTH),
    }
}

impl TeamProgram {
    /// The program of a seed.
    pub fn new(seed: u64) -> TeamProgram {
        let mut rng = Rng::new(seed ^ 0x7465_616d);
        let workers = 2 + rng.below(2);
        let mut segment = || {
            loop {
                let one = generate::program(rng.below(1 << 30) as u64, Switches::off());
                let left_out = one.writes() || one.has(READS) || one.has(UNTRACED) || one.has(LOW);
                if !left_out && one.state.is_empty() && one.dtype == DType::F64 {
                    return one;
                }
            }
        };
        let (first, second) = (segment(), segment());
        let all = [
            Exchange::Sum,
            Exchange::Mean,
            Exchange::Max,
            Exchange::Min,
            Exchange::Gather,
            Exchange::Scatter,
            Exchange::From(rng.below(3)),
            Exchange::Swap,
            Exchange::Shift,
        ];
        let count = 1 + rng.below(3);
        let exchanges = (0..count).map(|_| *rng.pick(&all)).collect();
        TeamProgram { seed, workers, first, second, exchanges, slip: 1.0 }
    }

    /// The same with a mistake in what many workers compute.
    #[must_use]
    pub fn mistaken(self) -> TeamProgram {
        TeamProgram { slip: 1.5, ..self }
    }

    /// What workers exchange in it.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// The inputs of all workers; in a batch, of several examples.
    fn inputs(&self, batched: bool) -> Vec<Tensor> {
        let own = |x: &Tensor| x.narrow(0, 0, self.workers);
        let all: Vec<Tensor> = self.first.stacked().iter().map(own).collect();
        if !batched {
            return all;
        }
        let near = |x: &Tensor, i: usize| x * (1.0 + 0.001 * i as f64);
        let examples = |x: &Tensor| {
            let examples: Vec<Tensor> = (0..EXAMPLES).map(|i| near(x, i)).collect();
            stack(&examples.iter().collect::<Vec<_>>(), 0)
        };
        all.iter().map(examples).collect()
    }

    /// What worker `r` has of the inputs of all.
    fn own(xs: &[Tensor], r: usize) -> Vec<Tensor> {
        xs.iter().map(|x| x.select_at(0, r as isize)).collect()
    }

    /// The second program near its own example, as one number.
    fn end(&self, f: &Func, z: &Tensor) -> Tensor {
        let own = self.second.first();
        let moved = |x: &Tensor| match x.is_empty() {
            true => x.clone(),
            false => x + repeated(&z.tanh(), x.len()).reshape(x.shape()) * NEAR,
        };
        let y = numbers(&f(&own.iter().map(moved).collect()));
        (&y * weights(&y.detach(), 2)).sum()
    }

    /// The function of one of many workers.
    fn many(self: &Arc<TeamProgram>, group: &Group) -> Func {
        let (of, group) = (self.clone(), group.clone());
        let (first, second) = (function(&self.first), function(&self.second));
        Arc::new(move |xs: &Vec<Tensor>| {
            let z = numbers(&first(&TeamProgram::own(xs, group.rank())));
            let z = of.exchanges.iter().fold(z, |z, exchange| exchange.many(&group, &z));
            vec![of.end(&second, &(z * of.slip))]
        })
    }

    /// The same on one worker: the sum of what all give.
    fn one(self: &Arc<TeamProgram>) -> Func {
        let of = self.clone();
        let (first, second) = (function(&self.first), function(&self.second));
        Arc::new(move |xs: &Vec<Tensor>| {
            let start = |r| numbers(&first(&TeamProgram::own(xs, r)));
            let zs: Vec<Tensor> = (0..of.workers).map(start).collect();
            let zs = of.exchanges.iter().fold(zs, |zs, exchange| exchange.one(&zs));
            let ends = zs.iter().map(|z| of.end(&second, z));
            vec![ends.reduce(|a, b| a + b).expect("a worker")]
        })
    }

    /// Runs it in some ways; what fails, in words.
    pub fn failures(self: &Arc<TeamProgram>) -> Vec<String> {
        let mut rng = Rng::new(self.seed ^ 0x7761_7973);
        let mut ways: Vec<Way> = ["plain", "jit", "grad", "jit.grad", "jvp"].map(Way::of).to_vec();
        let random = || Way::random(&mut rng);
        let budgets = [Transform::Budget, Transform::JitBudget, Transform::Dynamic];
        let apart = [Transform::Autocast, Transform::Vmap1, Transform::Loop1];
        let fits =
            |way: &Way| !way.has(&budgets) && !way.has(&apart) && !way.has(&[Transform::Marks]);
        ways.extend(std::iter::repeat_with(random).filter(fits).take(2));
        // Branches in branches are traced anew at each level of a batch, and derivatives of
        // derivatives are long: both take seconds, and are run without workers.
        let order = self.first.order().max(self.second.order());
        let control = [&self.first, &self.second].iter().any(|one| one.nests(Nest::is_control));
        ways.retain(|way| way.order() + order <= 2 && !(control && way.is_batched()));
        ways.iter().filter_map(|way| self.failure(way)).collect()
    }

    fn failure(self: &Arc<TeamProgram>, way: &Way) -> Option<String> {
        let xs = self.inputs(way.is_batched());
        let one = |xs: &[Tensor]| outcome(|| way.plain().of_function(self.one())(&xs.to_vec()));
        let wanted = one(&xs);
        let Outcome::Gave(values) = &wanted else { return None };
        if values.iter().flat_map(|v| &v.data).any(|x| !x.is_finite()) {
            return None;
        }
        let got = outcome(|| {
            let all = pullback_workers::threads_within(TIMEOUT, self.workers, |group| {
                Ok(way.of_function(self.many(&group))(&xs))
            });
            let all = all.unwrap_or_else(|error| raise(error));
            let add = |a: Vec<Tensor>, b: Vec<Tensor>| {
                a.iter().zip(&b).map(|(a, b)| a + b).collect::<Vec<Tensor>>()
            };
            all.into_iter().reduce(add).unwrap_or_default()
        });
        if let Outcome::Gave(got) = &got {
            let far = distance(got, values, SAME);
            if far.is_some_and(|far| far <= 1.0) {
                return None;
            }
            // What a change in the twelfth digit explains is no difference.
            let near: Vec<Tensor> = xs.iter().map(|x| x * (1.0 + 1e-12)).collect();
            let explained = match one(&near) {
                Outcome::Gave(near) => {
                    far.is_some() && gap(got, values) <= 10.0 * gap(&near, values)
                }
                Outcome::Refused(_) | Outcome::Panicked(_) => true,
            };
            if explained {
                return None;
            }
        }
        let mut text = format!(
            "── seed {}, {} workers: {way}\n   got    {got}\n   wanted {wanted}\n   again: cargo run \
             --release -p pullback-fuzz -- --workers --seed {} --programs 1\n",
            self.seed, self.workers, self.seed
        );
        let _ = writeln!(text, "{}", print::text(&self.first));
        let _ = writeln!(text, "then {:?}, then", self.exchanges);
        let _ = writeln!(text, "{}", print::text(&self.second));
        Some(text)
    }
}

/// Runs so many programs from a seed on; the failures, in words.
pub fn search(seed: u64, programs: u64) -> Vec<String> {
    let one = |seed| Arc::new(TeamProgram::new(seed)).failures();
    (seed..seed.saturating_add(programs)).flat_map(one).collect()
}
