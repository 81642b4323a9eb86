//! Comparing a rule with numeric derivatives.
//!
//! 1. Its reverse derivative is compared with differences of values (`differences.rs`): entry by
//!    entry for leaves of few elements, along random directions for the others, each leaf alone and
//!    all together, and then bisected down to a wrong entry.
//! 2. Its forward derivative is compared with the reverse one: they are transposes, if the rule is
//!    linear as it must be.
//! 3. The derivative of the gradient, through the rule's own code, is compared with differences of
//!    the gradient.
//! 4. The gradient in the dtype of the argument is compared with that in `f64`.
//!
//! All in `f64`, where the function takes it; otherwise in its own dtype, with the wider tolerances
//! of [`DifferenceTolerance`].
//!
//! Where kinks or rounding mask the derivative, the check moves to a nearby point and uses sparse
//! directions, which few kinks are near to. A result that is not finite is ignored. Where no
//! comparison is possible, the outcome is [`CheckOutcome::Inconclusive`].
//!
//! A rule that fits is checked at one more point nearby: at zeros, a common starting value, too
//! many formulas agree. A check there may be inconclusive (the function may not be defined), but a
//! mismatch is an error.
//!
//! A correct rule costs some dozens of runs, however large the argument is. A single wrong entry
//! among n is seen if it is off by more than about √n/10⁵ of what is usual there.

use super::differences::{
    ClaimedDerivative, DifferenceTolerance, FlatArgument, StepScale, Verdict, index_of, verdict,
};
use crate::{DType, Error, ErrorKind, Key, Result, Tensor, fail, jvp, mode, vjp};

/// A function on the leaves of its argument and of its result, differentiated by its rule.
pub(super) type LeavesFn<'a> = dyn Fn(&[Tensor]) -> Vec<Tensor> + 'a;

/// The outcome of a check that finds nothing wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckOutcome {
    Fits,
    /// Inconclusive, for this reason.
    Inconclusive(&'static str),
}

/// Leaves of at most this many elements, together, are checked entry by entry.
const SMALL: usize = 64;
/// The same where there are larger ones too.
const SMALL_AMONG_LARGE: usize = 16;
/// The maximum number of groups of leaves; each group is perturbed alone.
const GROUPS: usize = 8;
/// How many elements a sparse direction moves.
const MOVED_ELEMENTS: usize = 8;
/// How many nearby points the check tries to avoid a kink.
const TRIES: u64 = 4;

/// Compares a rule with numeric derivatives at a point.
pub(super) fn compare(
    name: &'static str,
    relative: Option<f64>,
    x: &[Tensor],
    f: &LeavesFn,
) -> Result<CheckOutcome> {
    let is_narrow = |x: &Tensor| x.dtype().is_float() && x.dtype() != DType::F64;
    let coarse = |dtype: &DType| DifferenceTolerance::of(*dtype).relative;
    let narrow = x.iter().filter(|x| is_narrow(x)).map(Tensor::dtype);
    let narrow = narrow.max_by(|a, b| coarse(a).total_cmp(&coarse(b)));
    let with = |precision: DifferenceTolerance| {
        // A tolerance tighter than a narrow dtype allows is widened to what it allows.
        let least = if precision.rounding < 1e-9 { 0.0 } else { precision.relative };
        let relative = relative.map_or(precision.relative, |r| r.max(least));
        Checker { name, f, precision: DifferenceTolerance { relative, ..precision } }
    };
    let Some(dtype) = narrow else { return with(DifferenceTolerance::F64).run(x) };
    let wide: Vec<Tensor> =
        x.iter().map(|x| if is_narrow(x) { x.cast(DType::F64) } else { x.clone() }).collect();
    match fail::catch(|| takes_f64(f, &wide)) {
        Ok(true) => {
            let said = with(DifferenceTolerance::F64).run(&wide)?;
            with(DifferenceTolerance::of(dtype)).narrow(x, &wide)?;
            Ok(said)
        }
        Ok(false) | Err(_) => with(DifferenceTolerance::of(dtype)).run(x),
    }
}

/// Whether a function computes in `f64` if its argument is `f64`, and its rule too.
fn takes_f64(f: &LeavesFn, x: &[Tensor]) -> bool {
    let x = &x.to_vec();
    let (y, pullback) = vjp(|x: &Vec<Tensor>| f(x), x);
    pullback(&y.iter().map(Tensor::zeros_like).collect());
    y.iter().all(|y| !y.dtype().is_float() || y.dtype() == DType::F64)
}

struct Checker<'a> {
    name: &'static str,
    f: &'a LeavesFn<'a>,
    precision: DifferenceTolerance,
}

/// A derivative to compare: of which order, of what, weighted by what, and the derivative itself.
struct DerivativeUnderTest<'a> {
    order: usize,
    of: &'a LeavesFn<'a>,
    weights: &'a [Tensor],
    derivative: &'a LeavesFn<'a>,
    /// Some results are not finite, and have no weight.
    partial: bool,
}

/// The outcome of directions that find nothing wrong: whether some fit, and whether some hit a
/// kink.
#[derive(Default)]
struct DirectionOutcome {
    fits: bool,
    kinks: bool,
}

impl Checker<'_> {
    fn run(&self, x: &[Tensor]) -> Result<CheckOutcome> {
        let y = (self.f)(x);
        let smooth = y.iter().any(|y| y.dtype().is_float() && !y.is_empty());
        if FlatArgument::of(x).count() == 0 || !smooth {
            return Ok(CheckOutcome::Fits);
        }
        self.repeats(&y, &(self.f)(x))?;
        let finite: Vec<bool> = y.iter().flat_map(values).map(f64::is_finite).collect();
        if !finite.contains(&true) {
            return Ok(CheckOutcome::Inconclusive("its results were not finite at its first use"));
        }
        let partial = finite.contains(&false);
        let cotangents = where_finite(random_like(&y, 1), &y);
        let first = |x: &[Tensor]| -> Vec<Tensor> { (self.f)(x) };
        let reverse = |x: &[Tensor]| -> Vec<Tensor> {
            vjp(|x: &Vec<Tensor>| (self.f)(x), &x.to_vec()).1(&cotangents)
        };
        let claim = DerivativeUnderTest {
            order: 1,
            of: &first,
            weights: &cotangents,
            derivative: &reverse,
            partial,
        };
        let said = self.holds(&claim, x)?;
        self.modes(x, &cotangents, &reverse)?;
        let again = where_finite(random_like(x, 2), &reverse(x));
        let second = |x: &[Tensor]| -> Vec<Tensor> {
            vjp(|x: &Vec<Tensor>| reverse(x), &x.to_vec()).1(&again)
        };
        // A rule that refuses to be differentiated raises the same error for its users.
        if fail::catch(|| second(x)).is_err() {
            return Ok(said);
        }
        let claim = DerivativeUnderTest {
            order: 2,
            of: &reverse,
            weights: &again,
            derivative: &second,
            partial,
        };
        match (said, self.holds(&claim, x)?) {
            (CheckOutcome::Fits, CheckOutcome::Inconclusive(why)) if why.contains("kinks") => {
                Ok(CheckOutcome::Inconclusive(
                    "its second derivative hit kinks at every sampled point",
                ))
            }
            (CheckOutcome::Fits, CheckOutcome::Inconclusive(_)) => Ok(CheckOutcome::Inconclusive(
                "rounding hides its second derivative at every sampled point",
            )),
            (said, _) => Ok(said),
        }
    }

    /// A function gives the same for the same argument.
    fn repeats(&self, once: &[Tensor], twice: &[Tensor]) -> Result<()> {
        for (k, (a, b)) in once.iter().zip(twice).enumerate() {
            let (v, w) = (a.to_f64_vec(), b.to_f64_vec());
            let Some(at) = v.iter().zip(&w).position(|(v, w)| v.to_bits() != w.to_bits()) else {
                continue;
            };
            let (index, v, w) = (index_of(at, a.shape()), v[at], w[at]);
            let message = format!(
                "is not deterministic, so that no rule can be checked: result {k}, element {index:?}, is {v:?} and then {w:?}"
            );
            return Err(Error::new(ErrorKind::Check, self.name, message).hint(
                "draw random numbers from this library's generator, which is restored for each run (not in a compiled function inside it), or use .unchecked(\"why\")",
            ));
        }
        Ok(())
    }

    /// Compares a derivative with differences.
    fn holds(&self, claim: &DerivativeUnderTest, x: &[Tensor]) -> Result<CheckOutcome> {
        let directions =
            |attempt: u64| CheckDirection::all(&FlatArgument::of(x), claim.order, attempt);
        let mut met_kinks = false;
        let mut place = x.to_vec();
        for attempt in 0..=TRIES {
            let found = self.along(claim, &place, directions(attempt))?;
            if found.fits && !found.kinks {
                if attempt == 0 && claim.order == 1 {
                    self.nearby(claim, x)?;
                }
                return Ok(CheckOutcome::Fits);
            }
            met_kinks |= found.kinks;
            place = self.elsewhere(x, attempt);
        }
        Ok(CheckOutcome::Inconclusive(match met_kinks {
            true => "it hit kinks at every sampled point at its first use",
            false => "rounding hides its derivative at every sampled point at its first use",
        }))
    }

    /// Compares a derivative with differences along directions from a point.
    fn along(
        &self,
        claim: &DerivativeUnderTest,
        x: &[Tensor],
        directions: Vec<CheckDirection>,
    ) -> Result<DirectionOutcome> {
        let point = FlatArgument::of(x);
        let terms = |x: &[Tensor]| weighted(&(claim.of)(x), claim.weights);
        let gradient = point.list(&(claim.derivative)(x));
        let at = point.list(x);
        let middle = terms(x);
        let reaches = [StepScale::OfEach, StepScale::Even].map(|r| point.reach(r, self.precision));
        let line = |d: &[f64]| {
            let along = |t: f64| terms(&point.moved(d, t));
            let parts =
                d.iter().zip(&gradient).zip(&at).filter(|((d, g), _)| **d != 0.0 && g.is_finite());
            let input = parts.fold(0.0, |sum: f64, ((_, g), x)| sum.hypot(g * x));
            verdict(
                self.precision,
                &along,
                &middle,
                ClaimedDerivative { value: inner(&gradient, d), input },
            )
        };
        let mut found = DirectionOutcome::default();
        let mut worst: Option<(usize, f64)> = None;
        for place in directions {
            // For single entries the worst is reported; for other directions the first mismatch is
            // enough.
            if worst.is_some() && !matches!(place, CheckDirection::Entry(_)) {
                break;
            }
            let numbers = place.numbers(&point);
            let [first, second] = &reaches;
            let mut kinked = false;
            for reach in if place.is_even() { [second, first] } else { [first, second] } {
                // Where a result is not finite, the gradient of its inputs need not be finite
                // either.
                let moves = |i: usize| !claim.partial || gradient[i].is_finite();
                let part =
                    |(i, (d, by)): (usize, (&f64, &f64))| if moves(i) { d * by } else { 0.0 };
                let d: Vec<f64> = numbers.iter().zip(reach).enumerate().map(part).collect();
                if d.iter().all(|d| *d == 0.0) {
                    continue;
                }
                match line(&d) {
                    Verdict::Fits => {
                        (found.fits, kinked) = (true, false);
                        break;
                    }
                    Verdict::Wrong(expected) => {
                        let here = bisected(d, &gradient, expected, &line);
                        let off = |(i, e): (usize, f64)| distance(e, gradient[i]);
                        if worst.is_none_or(|w| off(here) > off(w)) {
                            worst = Some(here);
                        }
                        break;
                    }
                    Verdict::Kink => kinked = true,
                    Verdict::Hidden => {}
                }
            }
            found.kinks |= kinked;
        }
        let Some((flat, expected)) = worst else { return Ok(found) };
        let what = match claim.order {
            1 => "its rule is not its derivative",
            _ => "its rule is right to first order, but the derivative of the rule is wrong",
        };
        Err(self.wrong(what, &point, flat, expected, gradient[flat]))
    }

    /// Checks a rule that fits at one more point where its function is defined.
    fn nearby(&self, claim: &DerivativeUnderTest, x: &[Tensor]) -> Result<()> {
        let place = self.nearby_point(x);
        let directions = || (0..2).map(|k| CheckDirection::Scattered(usize::MAX, 31 + k)).collect();
        let look =
            || match weighted(&(claim.of)(&place), claim.weights).iter().all(|v| v.is_finite()) {
                true => self.along(claim, &place, directions()).map(|_| ()),
                false => Ok(()),
            };
        // If the function refuses these numbers, its rule is not checked there.
        fail::catch(look).unwrap_or(Ok(()))
    }

    /// A point so near that signs stay, but for zeros, which become positive.
    fn nearby_point(&self, x: &[Tensor]) -> Vec<Tensor> {
        let point = FlatArgument::of(x);
        let by = point.list(&random_like(x, 7));
        let (at, part) = (point.list(x), (20.0 * self.precision.steps[0]).min(0.25));
        let step = |((x, by), reach): ((&f64, &f64), f64)| match *x == 0.0 {
            true => by.abs() * reach,
            false => by * reach,
        };
        let reach = point.reach(StepScale::OfEach, self.precision);
        let d: Vec<f64> = at.iter().zip(&by).zip(reach).map(step).collect();
        point.moved(&d, part)
    }

    /// A point nearby.
    fn elsewhere(&self, x: &[Tensor], attempt: u64) -> Vec<Tensor> {
        let noise = random_like(x, 11 + attempt);
        let reach = 20.0 * self.precision.steps[0];
        let moved = |(x, noise): (&Tensor, &Tensor)| match x.dtype().is_float() {
            true => {
                let wide = x.cast(DType::F64);
                let by = noise.cast(DType::F64) * wide.abs().clamp_min(1.0) * reach;
                (wide + by).cast(x.dtype())
            }
            false => x.clone(),
        };
        x.iter().zip(&noise).map(moved).collect()
    }

    fn wrong(
        &self,
        what: &str,
        at: &FlatArgument,
        flat: usize,
        expected: f64,
        given: f64,
    ) -> Error {
        let (leaf, index) = at.place(flat);
        let message = format!(
            "{what}: argument {leaf}, element {index:?}: expected {expected:?}, given {given:?}"
        );
        Error::new(ErrorKind::Check, self.name, message).hint(
            "the values are from finite differences and from the rule, for random cotangents; if the rule is deliberately not the derivative, use .unchecked(\"why\")",
        )
    }

    /// Compares the two modes: they are transposes of one linear map.
    fn modes(&self, x: &[Tensor], cotangents: &[Tensor], reverse: &LeavesFn) -> Result<()> {
        let x = &x.to_vec();
        let direction = random_like(x, 3);
        let pushed = fail::catch(|| jvp(|x: &Vec<Tensor>| (self.f)(x), x, &direction).1);
        // A rule that refuses one mode raises the same error for its users.
        let Ok(pushed) = pushed else { return Ok(()) };
        let (forward, backward) =
            (weighted(&pushed, cotangents), weighted(&reverse(x), &direction));
        let sum = |terms: &[f64]| terms.iter().sum::<f64>();
        let size = |terms: &[f64]| terms.iter().map(|t| t.abs()).sum::<f64>();
        let scale = size(&forward).max(size(&backward));
        let (forward, backward) = (sum(&forward), sum(&backward));
        let fits = (forward - backward).abs() <= self.precision.relative * scale;
        if fits || !(forward.is_finite() && backward.is_finite()) {
            return Ok(());
        }
        let message = format!(
            "its rule is not a linear map: along one direction reverse mode gives {backward:?}, its transpose {forward:?}"
        );
        Err(Error::new(ErrorKind::Check, self.name, message).hint(
            "a backward must be linear in the cotangents, a jvp in the tangents; detach neither",
        ))
    }

    /// Compares the gradient in a narrow dtype with that in `f64`, which was found right.
    fn narrow(&self, x: &[Tensor], wide: &[Tensor]) -> Result<()> {
        let gradients = |x: &[Tensor], cotangents: &[Tensor]| {
            let (y, pullback) = vjp(|x: &Vec<Tensor>| (self.f)(x), &x.to_vec());
            let fitting = |(c, y): (&Tensor, &Tensor)| c.cast(y.dtype());
            (pullback(&cotangents.iter().zip(&y).map(fitting).collect()), y)
        };
        let y = (self.f)(wide);
        let cotangents = where_finite(random_like(&y, 1), &y);
        let (expected, _) = gradients(wide, &cotangents);
        let Ok((given, results)) = fail::catch(|| gradients(x, &cotangents)) else {
            return Ok(());
        };
        let point = FlatArgument::of(x);
        let (expected, given) = (point.list(&expected), point.list(&given));
        // In 16 bits, and where results are beyond the range, gradients overflow too: loss scaling
        // handles that.
        let overflows = self.precision.steps == DifferenceTolerance::HALF.steps
            || results.iter().flat_map(values).any(|y| !y.is_finite());
        for leaf in point.starts.windows(2).map(|w| w[0]..w[1]) {
            let counts =
                |i: &usize| expected[*i].is_finite() && (!overflows || given[*i].is_finite());
            let norm = |part: &dyn Fn(usize) -> f64| {
                leaf.clone().filter(counts).map(|i| part(i).powi(2)).sum::<f64>().sqrt()
            };
            let off = norm(&|i| distance(expected[i], given[i]));
            let DifferenceTolerance { relative, absolute, .. } = self.precision;
            if off <= absolute + relative * norm(&|i| expected[i]) {
                continue;
            }
            let by = |i: &usize| distance(expected[*i], given[*i]);
            let worst = leaf.filter(counts).max_by(|i, j| by(i).total_cmp(&by(j)));
            if let Some(i) = worst {
                let dtype = x[point.place(i).0].dtype();
                let what = format!("its rule is right in f64, and not in {dtype}");
                return Err(self.wrong(&what, &point, i, expected[i], given[i]));
            }
        }
        Ok(())
    }
}

/// A direction to differentiate along.
enum CheckDirection {
    /// Along one number.
    Entry(usize),
    /// At this many numbers.
    Scattered(usize, u64),
    /// At some of the leaves.
    Leaves(Vec<usize>, u64),
}

impl CheckDirection {
    /// At each entry of small leaves, at groups of the others, at all.
    fn all(at: &FlatArgument, order: usize, attempt: u64) -> Vec<CheckDirection> {
        let count = at.count();
        if attempt > 0 && (count > SMALL || order > 1) {
            return (0..3)
                .map(|k| CheckDirection::Scattered(MOVED_ELEMENTS, 97 * attempt + k))
                .collect();
        }
        let mut all = Vec::new();
        let mut left = if count <= SMALL { SMALL } else { SMALL_AMONG_LARGE };
        let mut large = Vec::new();
        for (k, w) in at.starts.windows(2).enumerate() {
            match order == 1 && w[1] - w[0] <= left {
                true => {
                    left -= w[1] - w[0];
                    all.extend((w[0]..w[1]).map(CheckDirection::Entry));
                }
                false => large.push(k),
            }
        }
        if large.is_empty() {
            return all;
        }
        all.extend((0..3).map(|k| CheckDirection::Scattered(count, k)));
        if at.floats.len() > 1 {
            let groups = large.chunks(large.len().div_ceil(GROUPS)).zip(50..);
            all.extend(groups.map(|(group, seed)| CheckDirection::Leaves(group.to_vec(), seed)));
        }
        all
    }

    /// Whether an even step is tried first: otherwise small numbers would not matter in a direction
    /// of many.
    fn is_even(&self) -> bool {
        match self {
            CheckDirection::Entry(_) => false,
            CheckDirection::Scattered(_, seed) | CheckDirection::Leaves(_, seed) => seed % 2 == 1,
        }
    }

    fn numbers(&self, at: &FlatArgument) -> Vec<f64> {
        let count = at.count();
        match self {
            CheckDirection::Entry(flat) => {
                let mut unit = vec![0.0; count];
                unit[*flat] = 1.0;
                unit
            }
            CheckDirection::Scattered(support, seed) => scattered(count, *support, *seed),
            CheckDirection::Leaves(group, seed) => {
                let mut d = scattered(count, count, *seed);
                for k in (0..at.floats.len()).filter(|k| !group.contains(k)) {
                    d[at.starts[k]..at.starts[k + 1]].fill(0.0);
                }
                d
            }
        }
    }
}

/// Narrows a direction along which the derivative is wrong down to one entry, with the value that
/// is expected there.
fn bisected(
    d: Vec<f64>,
    gradient: &[f64],
    expected: f64,
    line: &dyn Fn(&[f64]) -> Verdict,
) -> (usize, f64) {
    let mut places: Vec<usize> = (0..d.len()).filter(|&i| d[i] != 0.0).collect();
    let mut expected = expected;
    let part = |places: &[usize]| {
        let mut part = vec![0.0; d.len()];
        places.iter().for_each(|&i| part[i] = d[i]);
        part
    };
    while places.len() > 1 {
        let second = places.split_off(places.len() / 2);
        let halves = [places, second];
        let off = |half: &Vec<usize>| match line(&part(half)) {
            Verdict::Wrong(e) => Some((distance(e, inner(gradient, &part(half))), e)),
            Verdict::Fits | Verdict::Kink | Verdict::Hidden => None,
        };
        let found = halves.each_ref().map(off);
        let [first, second] = halves;
        (places, expected) = match found {
            [Some(a), Some(b)] if a.0 >= b.0 => (first, a.1),
            [_, Some(b)] => (second, b.1),
            [Some(a), None] => (first, a.1),
            // Each half fits within its tolerance: any entry of the whole.
            [None, None] => (first, expected),
        };
    }
    let flat = places.first().copied().unwrap_or(0);
    (flat, expected / d[flat])
}

fn distance(a: f64, b: f64) -> f64 {
    match (a - b).abs() {
        d if d.is_nan() => f64::INFINITY,
        d => d,
    }
}

/// The elements of a float; of others none.
fn values(x: &Tensor) -> Vec<f64> {
    if x.dtype().is_float() { x.to_f64_vec() } else { Vec::new() }
}

/// Products of values and weights, over floats. Entries without a weight are ignored, even NaN.
fn weighted(of: &[Tensor], weights: &[Tensor]) -> Vec<f64> {
    let product = |(v, w): (f64, f64)| if w == 0.0 { 0.0 } else { v * w };
    let terms = |(v, w): (&Tensor, &Tensor)| -> Vec<f64> {
        values(v).into_iter().zip(values(w)).map(product).collect()
    };
    of.iter().zip(weights).flat_map(terms).collect()
}

/// Random numbers of magnitude 0.5 to 1.5 and either sign for floats, zeros for
/// others.
fn random_like(like: &[Tensor], seed: u64) -> Vec<Tensor> {
    let keys = Key::new(seed).split_n(like.len().max(1));
    let random = |(x, key): (&Tensor, &Key)| match x.dtype().is_float() {
        true => {
            let number = key.to(x.device()).uniform(x.shape(), DType::F64, -1.0, 1.0);
            (&number + number.ge(0.0).select(0.5, -0.5)).cast(x.dtype())
        }
        false => x.zeros_like(),
    };
    mode::set_recording(false, || like.iter().zip(&keys).map(random).collect())
}

/// The weights, but zeros where values are not finite.
fn where_finite(weights: Vec<Tensor>, values: &[Tensor]) -> Vec<Tensor> {
    let kept = |(w, v): (Tensor, &Tensor)| match v.dtype().is_float() {
        true => v.detach().is_finite().select(&w, w.zeros_like()),
        false => w,
    };
    mode::set_recording(false, || weights.into_iter().zip(values).map(kept).collect())
}

fn inner(a: &[f64], b: &[f64]) -> f64 {
    // An entry that does not move is ignored, even NaN.
    a.iter().zip(b).filter(|(_, b)| **b != 0.0).map(|(a, b)| a * b).sum()
}

/// A direction of numbers between −1 and 1 on this many elements.
fn scattered(count: usize, support: usize, seed: u64) -> Vec<f64> {
    let numbers = Key::new(seed).uniform([count], DType::F64, -1.0, 1.0).to_vec::<f64>();
    if support >= count {
        return numbers;
    }
    let mut d = vec![0.0; count];
    let chosen = Key::new(seed + 1).randint([support], 0, count as i64).to_vec::<i64>();
    chosen.into_iter().for_each(|i| d[i as usize] = numbers[i as usize]);
    d
}
