//! The gate: a rule is compared with numbers before it is used.
//!
//! A wrong rule trains the wrong thing, silently. So at the first use for given specs the function is run a few times more, and
//!
//! 1. its reverse derivative is compared with differences of values: entry by entry where the argument is small, along random
//!    directions where it is not, and then bisected for an entry that is wrong;
//! 2. its forward derivative is compared with the reverse one: they are transposes, if the rule is linear as it must be;
//! 3. the derivative of the gradient, through the rule's own code, is compared with differences of the gradient.
//!
//! All in `f64`, where the function takes it; otherwise in its own dtype, with the wider tolerances of [`Precision`].
//!
//! # Kinks
//!
//! At a kink the derivative is a convention, and near one a difference is that of two pieces. A comparison fits if the given value agrees with the central
//! difference or with one of the one-sided ones, for some step of a ladder. If none fits but the two sides differ at the smallest step, the point says nothing: the
//! check moves a little and looks there, along directions of few entries, which few kinks are near to. What is not finite though its
//! differences are, is wrong anyway.

use super::memo::{self, Opened, Site};
use crate::{
    DType, Error, ErrorKind, Key, Result, Spec, Tensor, enable_grad, fail, jvp, mode, random,
    set_random_state, trace, vjp,
};
use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError};

/// A function on the leaves of its argument and of its result, differentiated by its rule.
pub(super) type Function<'a> = dyn Fn(&[Tensor]) -> Vec<Tensor> + 'a;

/// What stands before a custom function.
pub(super) struct Gate {
    site: Site,
    opened: Option<Arc<Opened>>,
    example: Option<Vec<Tensor>>,
    relative: Option<f64>,
    /// A rule of this library, which its tests check.
    trusted: bool,
    /// The specs for which this very object has passed: found without a lookup.
    passed: Mutex<Vec<Vec<Spec>>>,
}

impl Gate {
    pub fn new(site: Site) -> Gate {
        let passed = Mutex::default();
        Gate { site, opened: None, example: None, relative: None, trusted: false, passed }
    }

    pub fn open(&mut self, reason: &'static str, at: &'static Location<'static>) {
        self.opened = Some(memo::opened(self.site.name, at, reason));
    }

    pub fn example(&mut self, leaves: Vec<Tensor>) {
        self.example = Some(leaves);
    }

    pub fn tolerance(&mut self, relative: f64) {
        self.relative = Some(relative);
    }

    pub fn trust(&mut self) {
        self.trusted = true;
    }

    /// Lets a call pass, or raises the error of a wrong rule.
    pub fn pass(&self, x: &[Tensor], at: &'static Location<'static>, f: &Function) {
        if let Some(opened) = &self.opened {
            return opened.count();
        }
        // Where nothing is recorded, no derivative can be asked for.
        let asked = mode::is_grad_enabled() || trace::active();
        if self.trusted || !asked && !x.iter().any(Tensor::carries_tangents) {
            return;
        }
        let held = || self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        if held().iter().any(|specs| specs.iter().eq(x.iter().map(Tensor::spec))) {
            return;
        }
        let specs: Vec<Spec> = x.iter().map(|x| x.spec().clone()).collect();
        if !memo::has_passed(&self.site, &specs) {
            fail::or_raise(self.check(x, f).map_err(|e| e.at(at)));
            memo::note_passed(&self.site, &specs);
        }
        held().push(specs);
    }

    fn check(&self, x: &[Tensor], f: &Function) -> Result<()> {
        let known = x.iter().all(trace::knows);
        trace::computing(|| {
            enable_grad(|| {
                let point: Vec<Tensor> = match (&self.example, known) {
                    (_, true) => x.iter().map(Tensor::detach).collect(),
                    (Some(example), false) => example.iter().map(Tensor::detach).collect(),
                    (None, false) => x.iter().enumerate().map(sampled).collect(),
                };
                let checked = replayed(f, &point, |f| self.compare(&point, f));
                match checked {
                    Err(error) if !known && error.kind() != ErrorKind::Check => {
                        let message = "its rule cannot be checked where it is first used, inside a trace: at sampled values it fails";
                        let error =
                            Error::new(ErrorKind::Check, self.site.name, message).because(error);
                        Err(error.hint("give values with .at(&example), call it once outside, pass traced tensors as arguments, or say .unchecked(\"why\")"))
                    }
                    other => other,
                }
            })
        })
    }

    fn compare(&self, x: &[Tensor], f: &Function) -> Result<()> {
        let is_narrow = |x: &Tensor| x.dtype().is_float() && x.dtype() != DType::F64;
        let narrow = x.iter().filter(|x| is_narrow(x)).map(Tensor::dtype).next();
        let mut check =
            Checker { name: self.site.name, f, precision: Precision::F64, relative: self.relative };
        let Some(dtype) = narrow else { return check.run(x) };
        let wide: Vec<Tensor> =
            x.iter().map(|x| if is_narrow(x) { x.cast(DType::F64) } else { x.clone() }).collect();
        match fail::catch(|| takes_f64(f, &wide)) {
            Ok(true) => check.run(&wide),
            Ok(false) | Err(_) => {
                check.precision = Precision::of(dtype);
                check.run(x)
            }
        }
    }
}

/// Values for an argument of which only the spec is known: positive, so that roots and logarithms exist.
fn sampled((i, x): (usize, &Tensor)) -> Tensor {
    match x.dtype().is_float() {
        true => Key::new(i as u64).uniform(x.shape(), DType::F64, 0.5, 1.5).cast(x.dtype()),
        false => Tensor::zeros_of(x.spec()),
    }
}

/// Calls `check` with the function as if each call were the first: where it draws random numbers, it draws the same ones, and the generator is left where it was.
fn replayed(f: &Function, x: &[Tensor], check: impl FnOnce(&Function) -> Result<()>) -> Result<()> {
    struct Return(Tensor);
    impl Drop for Return {
        fn drop(&mut self) {
            set_random_state(&self.0);
        }
    }
    fail::catch(|| {
        let before = random::position();
        let start = Tensor::from(before);
        let returns = Return(start.clone());
        f(x);
        if random::position() == before {
            // Nothing was drawn, and others may draw meanwhile.
            std::mem::forget(returns);
            return check(f);
        }
        check(&|x| {
            set_random_state(&start);
            f(x)
        })
    })?
}

/// Whether a function computes in `f64` if its argument is `f64`, and its rule too.
fn takes_f64(f: &Function, x: &[Tensor]) -> bool {
    let x = &x.to_vec();
    let (y, pullback) = vjp(|x: &Vec<Tensor>| f(x), x);
    pullback(&y.iter().map(Tensor::zeros_like).collect());
    y.iter().all(|y| !y.dtype().is_float() || y.dtype() == DType::F64)
}

/// How exact differences can be.
#[derive(Clone, Copy)]
struct Precision {
    /// Steps relative to the size of an element, from the largest.
    steps: &'static [f64],
    relative: f64,
    absolute: f64,
    /// The rounding of a value, relative to it.
    rounding: f64,
}

impl Precision {
    const F64: Precision =
        Precision { steps: &[1e-3, 1e-4, 1e-6], relative: 1e-5, absolute: 1e-7, rounding: 1e-15 };
    const F32: Precision =
        Precision { steps: &[1e-2, 3e-3], relative: 2e-2, absolute: 1e-3, rounding: 5e-7 };
    const HALF: Precision =
        Precision { steps: &[0.25, 0.125], relative: 0.2, absolute: 0.1, rounding: 8e-3 };

    fn of(dtype: DType) -> Precision {
        match dtype {
            DType::F32 => Precision::F32,
            DType::BF16 | DType::F16 => Precision::HALF,
            _ => Precision::F64,
        }
    }
}

/// What a comparison says.
enum Verdict {
    Fits,
    /// The value that was expected.
    Wrong(f64),
    /// The function is not smooth here.
    Kink,
}

/// A wrong entry.
struct Entry {
    input: usize,
    index: Vec<usize>,
    expected: f64,
    given: f64,
}

/// A direction: one number for each element of each float.
type Direction = Vec<Vec<f64>>;

struct Checker<'a> {
    name: &'static str,
    f: &'a Function<'a>,
    precision: Precision,
    relative: Option<f64>,
}

/// Arguments of at most so many elements are checked entry by entry.
const SMALL: usize = 64;
/// How many elements a sparse direction moves.
const FEW: usize = 8;
/// How often the check moves away from a kink.
const TRIES: u64 = 4;

impl Checker<'_> {
    fn run(&self, x: &[Tensor]) -> Result<()> {
        let floats: Vec<usize> =
            x.iter().enumerate().filter(|(_, x)| x.dtype().is_float()).map(|(i, _)| i).collect();
        let count: usize = floats.iter().map(|&i| x[i].len()).sum();
        let y = (self.f)(x);
        let smooth = y.iter().any(|y| y.dtype().is_float() && !y.is_empty());
        if count == 0 || !smooth {
            return Ok(());
        }
        let cotangents = random_like(&y, 1);
        let first = |x: &[Tensor]| -> Vec<Tensor> { (self.f)(x) };
        let reverse = |x: &[Tensor]| -> Vec<Tensor> {
            vjp(|x: &Vec<Tensor>| (self.f)(x), &x.to_vec()).1(&cotangents)
        };
        self.order(1, x, &floats, &first, &cotangents, &reverse)?;
        self.modes(x, &cotangents, &reverse)?;
        // A rule whose own code refuses to be differentiated refuses to its users as well.
        let again = random_like(x, 2);
        let second = |x: &[Tensor]| -> Vec<Tensor> {
            vjp(|x: &Vec<Tensor>| reverse(x), &x.to_vec()).1(&again)
        };
        match fail::catch(|| second(x)) {
            Ok(_) => self.order(2, x, &floats, &reverse, &again, &second),
            Err(_) => Ok(()),
        }
    }

    /// Compares a derivative with differences of the function `of`, weighted by `weights`.
    fn order(
        &self,
        order: usize,
        x: &[Tensor],
        floats: &[usize],
        of: &Function,
        weights: &[Tensor],
        derivative: &Function,
    ) -> Result<()> {
        let sizes: Vec<usize> = floats.iter().map(|&i| x[i].len()).collect();
        let count: usize = sizes.iter().sum();
        let value = |x: &[Tensor]| weighted(&of(x), weights);
        let given = |x: &[Tensor]| -> Direction {
            let all = derivative(x);
            floats.iter().map(|&i| all[i].to_f64_vec()).collect()
        };
        let mut point = x.to_vec();
        for attempt in 0..=TRIES {
            let gradient = given(&point);
            let line = |d: &Direction| self.along(&point, floats, d, &value, inner(&gradient, d));
            let mut kinked = false;
            if count <= SMALL && order == 1 {
                let mut worst: Option<Entry> = None;
                for flat in 0..count {
                    match line(&unit(&sizes, flat)) {
                        Verdict::Fits => {}
                        Verdict::Kink => kinked = true,
                        Verdict::Wrong(expected) => {
                            let entry = self.entry(x, floats, &sizes, flat, expected, &gradient);
                            let off = |e: &Entry| distance(e.expected, e.given);
                            if worst.as_ref().is_none_or(|w| off(&entry) > off(w)) {
                                worst = Some(entry);
                            }
                        }
                    }
                }
                if let Some(entry) = worst {
                    return Err(self.wrong(order, &entry));
                }
            } else {
                for k in 0..3 {
                    let support = if attempt == 0 { count } else { FEW };
                    let d = scattered(&sizes, support, 97 * attempt + k);
                    match line(&d) {
                        Verdict::Fits => {}
                        Verdict::Kink => kinked = true,
                        Verdict::Wrong(expected) => {
                            let entry =
                                self.bisected(x, floats, &sizes, d, &gradient, expected, &line);
                            return Err(self.wrong(order, &entry));
                        }
                    }
                }
            }
            if !kinked {
                return Ok(());
            }
            let noise = random_like(x, 11 + attempt);
            for &i in floats {
                // Both ways: the numbers lie around 1.
                let by = (noise[i].cast(DType::F64) - 1.0) * (20.0 * self.precision.steps[0]);
                let size = x[i].cast(DType::F64).abs().clamp_min(1.0);
                point[i] = (x[i].cast(DType::F64) + by * size).cast(x[i].dtype());
            }
        }
        // Kinks wherever it was tried: no difference says anything.
        Ok(())
    }

    /// Compares one number with the differences of a function along a direction.
    fn along(
        &self,
        x: &[Tensor],
        floats: &[usize],
        d: &Direction,
        value: &dyn Fn(&[Tensor]) -> f64,
        given: f64,
    ) -> Verdict {
        let Precision { steps, relative, absolute, rounding } = self.precision;
        let relative = self.relative.unwrap_or(relative);
        let at = |t: f64| {
            let mut moved = x.to_vec();
            for (&i, d) in floats.iter().zip(d) {
                let by =
                    Tensor::from_vec(d.iter().map(|d| d * t).collect::<Vec<f64>>(), x[i].shape());
                moved[i] = (x[i].cast(DType::F64) + by).cast(x[i].dtype());
            }
            value(&moved)
        };
        let middle = value(x);
        let mut verdict = Verdict::Kink;
        for &h in steps {
            let [a, b, c, e] = [-2.0, -1.0, 1.0, 2.0].map(|k| at(k * h));
            let central = (8.0 * (c - b) - (e - a)) / (12.0 * h);
            let right = (4.0 * c - 3.0 * middle - e) / (2.0 * h);
            let left = (3.0 * middle - 4.0 * b + a) / (2.0 * h);
            let largest = [a, b, middle, c, e].iter().fold(0.0f64, |m, v| m.max(v.abs()));
            let near = |expected: f64| {
                let scale = given.abs().max(expected.abs());
                (given - expected).abs()
                    <= absolute + relative * scale + 8.0 * rounding * largest / h
            };
            if near(central) || near(right) || near(left) {
                return Verdict::Fits;
            }
            let differences = [central, right, left];
            let finite = differences.iter().find(|d| d.is_finite());
            verdict = match finite {
                Some(&expected) if !given.is_finite() => Verdict::Wrong(expected),
                Some(_) if differences.iter().all(|d| d.is_finite()) => {
                    // Smooth if the sides agree: to second order in the step only.
                    let scale = right.abs().max(left.abs());
                    let close = absolute + 1e-2 * scale + 16.0 * rounding * largest / h;
                    match (right - left).abs() <= close {
                        true => Verdict::Wrong(central),
                        false => Verdict::Kink,
                    }
                }
                _ => Verdict::Kink,
            };
        }
        verdict
    }

    /// Narrows a direction along which the derivative is wrong down to one entry.
    #[allow(clippy::too_many_arguments)]
    fn bisected(
        &self,
        x: &[Tensor],
        floats: &[usize],
        sizes: &[usize],
        d: Direction,
        gradient: &Direction,
        expected: f64,
        line: &dyn Fn(&Direction) -> Verdict,
    ) -> Entry {
        let mut places: Vec<usize> =
            (0..sizes.iter().sum()).filter(|&f| *at_flat(&d, f) != 0.0).collect();
        let mut expected = expected;
        let part = |places: &[usize]| {
            let mut part: Direction = sizes.iter().map(|&n| vec![0.0; n]).collect();
            places.iter().for_each(|&f| *at_flat_mut(&mut part, f) = *at_flat(&d, f));
            part
        };
        while places.len() > 1 {
            let second = places.split_off(places.len() / 2);
            let halves = [places, second];
            let off = |half: &Vec<usize>| match line(&part(half)) {
                Verdict::Wrong(e) => Some((distance(e, inner(gradient, &part(half))), e)),
                Verdict::Fits | Verdict::Kink => None,
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
        let scale = *at_flat(&d, flat);
        self.entry(x, floats, sizes, flat, expected / scale, gradient)
    }

    fn entry(
        &self,
        x: &[Tensor],
        floats: &[usize],
        sizes: &[usize],
        flat: usize,
        expected: f64,
        gradient: &Direction,
    ) -> Entry {
        let (mut k, mut rest) = (0, flat);
        while rest >= sizes[k] {
            rest -= sizes[k];
            k += 1;
        }
        let mut index = vec![0; x[floats[k]].rank()];
        for (i, &n) in x[floats[k]].shape().iter().enumerate().rev() {
            index[i] = rest % n;
            rest /= n;
        }
        Entry { input: floats[k], index, expected, given: *at_flat(gradient, flat) }
    }

    fn wrong(&self, order: usize, entry: &Entry) -> Error {
        let Entry { input, index, expected, given } = entry;
        let what = match order {
            1 => "its rule is not its derivative",
            _ => "its rule is right to first order, but the derivative of the rule is wrong",
        };
        let message = format!(
            "{what}: argument {input}, element {index:?}: expected {expected:?}, given {given:?}"
        );
        Error::new(ErrorKind::Check, self.name, message).hint(
            "the values are those of differences and of the rule, for random cotangents; if the rule is meant to be another, say .unchecked(\"why\")",
        )
    }

    /// Compares the two modes: they are transposes of one linear map.
    fn modes(&self, x: &[Tensor], cotangents: &[Tensor], reverse: &Function) -> Result<()> {
        let x = &x.to_vec();
        let direction = random_like(x, 3);
        let pushed = fail::catch(|| jvp(|x: &Vec<Tensor>| (self.f)(x), x, &direction).1);
        // A rule that refuses one mode refuses it to its users as well.
        let Ok(pushed) = pushed else { return Ok(()) };
        let (forward, backward) =
            (weighted(&pushed, cotangents), weighted(&reverse(x), &direction));
        let relative = self.relative.unwrap_or(self.precision.relative);
        let size = |a: &[Tensor], b: &[Tensor]| {
            let sizes: Vec<Tensor> =
                a.iter().map(|a| if a.dtype().is_float() { a.abs() } else { a.clone() }).collect();
            weighted(&sizes, b)
        };
        let scale = size(&pushed, cotangents).max(size(&reverse(x), &direction));
        let fits = (forward - backward).abs() <= self.precision.absolute + relative * scale;
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
}

fn distance(a: f64, b: f64) -> f64 {
    match (a - b).abs() {
        d if d.is_nan() => f64::INFINITY,
        d => d,
    }
}

/// Σ of products, over floats.
fn weighted(values: &[Tensor], weights: &[Tensor]) -> f64 {
    let floats = values.iter().zip(weights).filter(|(v, _)| v.dtype().is_float());
    let product = |(v, w): (&Tensor, &Tensor)| -> f64 {
        v.to_f64_vec().iter().zip(w.to_f64_vec()).map(|(v, w)| v * w).sum()
    };
    floats.map(product).sum()
}

/// Random numbers between 0.5 and 1.5 in the place of floats, zeros in that of others.
fn random_like(like: &[Tensor], seed: u64) -> Vec<Tensor> {
    let keys = Key::new(seed).split_n(like.len().max(1));
    let random = |(x, key): (&Tensor, &Key)| match x.dtype().is_float() {
        true => key.uniform(x.shape(), DType::F64, 0.5, 1.5).cast(x.dtype()),
        false => x.zeros_like(),
    };
    mode::set_recording(false, || like.iter().zip(&keys).map(random).collect())
}

fn at_flat(of: &Direction, mut flat: usize) -> &f64 {
    let mut k = 0;
    while flat >= of[k].len() {
        flat -= of[k].len();
        k += 1;
    }
    &of[k][flat]
}

fn at_flat_mut(of: &mut Direction, mut flat: usize) -> &mut f64 {
    let mut k = 0;
    while flat >= of[k].len() {
        flat -= of[k].len();
        k += 1;
    }
    &mut of[k][flat]
}

fn unit(sizes: &[usize], flat: usize) -> Direction {
    let mut d: Direction = sizes.iter().map(|&n| vec![0.0; n]).collect();
    *at_flat_mut(&mut d, flat) = 1.0;
    d
}

fn inner(a: &Direction, b: &Direction) -> f64 {
    // An entry that does not move does not count, whatever it is.
    let pairs = a.iter().zip(b).flat_map(|(a, b)| a.iter().zip(b));
    pairs.filter(|(_, b)| **b != 0.0).map(|(a, b)| a * b).sum()
}

/// A direction of numbers between −1 and 1 on so many elements.
fn scattered(sizes: &[usize], support: usize, seed: u64) -> Direction {
    let count: usize = sizes.iter().sum();
    let numbers = Key::new(seed).uniform([count], DType::F64, -1.0, 1.0).to_vec::<f64>();
    let mut d: Direction = sizes.iter().map(|&n| vec![0.0; n]).collect();
    let chosen: Vec<usize> = match support >= count {
        true => (0..count).collect(),
        false => Key::new(seed + 1)
            .randint([support], 0, count as i64)
            .to_vec::<i64>()
            .into_iter()
            .map(|i| i as usize)
            .collect(),
    };
    chosen.into_iter().for_each(|flat| *at_flat_mut(&mut d, flat) = numbers[flat]);
    d
}
