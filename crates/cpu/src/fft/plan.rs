//! Plans: how a length is factored, and its roots of one.

use super::line::{Chirp, Twist};
use super::passes::{FftPass, LARGEST, Passes, W};
use super::shuffle::LaneShuffle;
use std::sync::{Arc, Mutex, PoisonError};

/// Capacity of each plan cache; it is cleared when full.
pub(super) const PLANS: usize = 256;
/// Shortest line that is transformed alone, its elements in the place of lanes.
const ALONE: usize = 64;
/// Bytes of the longest line that is transformed in one piece: half of a small second-level cache.
const PIECE: usize = 256 << 10;

/// How lines of one length are transformed.
pub(super) struct LinePlan<T> {
    pub(super) n: usize,
    pub(super) way: FftAlgorithm<T>,
}

pub(super) enum FftAlgorithm<T> {
    /// Passes over lanes; from [`ALONE`] on the first radix is 8, so that a line can be lanes too.
    Direct(Passes<T>),
    /// Columns and rows of a matrix.
    Split(Twist<T>),
    /// A convolution with a chirp.
    Chirp(Chirp<T>),
}

/// `exp(-2πi·k/n)`: the angle is reduced to an eighth of the circle first, so that symmetric roots
/// are exactly symmetric.
pub(super) fn root(k: usize, n: usize) -> (f64, f64) {
    let eighths = 8 * (k % n) as u128;
    let (octant, rest) = (eighths / n as u128, eighths % n as u128);
    let rest = if octant % 2 == 1 { n as u128 - rest } else { rest };
    let (s, c) = (std::f64::consts::FRAC_PI_4 * (rest as f64 / n as f64)).sin_cos();
    let (cos, sin) = match octant {
        0 => (c, s),
        1 => (s, c),
        2 => (-s, c),
        3 => (-c, s),
        4 => (-c, -s),
        5 => (-s, -c),
        6 => (s, -c),
        _ => (c, -s),
    };
    (cos, -sin)
}

/// The radices of a length, in order; `None` if a prime factor is too large.
fn radices(n: usize) -> Option<Vec<usize>> {
    let twos = n.trailing_zeros() as usize;
    let mut list = Vec::new();
    // As few passes as possible, and an 8 first.
    let (eights, rest): (usize, &[usize]) = match (twos, twos % 3) {
        (1, _) => (0, &[2]),
        (4, _) => (1, &[2]),
        (_, 0) => (twos / 3, &[]),
        (_, 1) => (twos / 3 - 1, &[4, 4]),
        _ => (twos / 3, &[4]),
    };
    list.resize(eights, 8);
    list.extend_from_slice(rest);
    let mut odd = n >> twos;
    for prime in (3..=LARGEST).step_by(2) {
        while odd.is_multiple_of(prime) {
            list.push(prime);
            odd /= prime;
        }
    }
    if list.is_empty() {
        list.push(1);
    }
    (odd == 1).then_some(list)
}

impl<T: LaneShuffle> Passes<T> {
    fn of(n: usize, radices: &[usize]) -> Passes<T> {
        let (mut list, mut roots) = (Vec::new(), Vec::new());
        let mut rows = n;
        for &radix in radices {
            let order = rows;
            rows /= radix;
            let at = roots.len();
            for p in 0..if rows == 1 { 0 } else { rows } {
                for k in 1..radix {
                    let w = root(p * k, order);
                    roots.extend_from_slice(&[T::of_f64(w.0), T::of_f64(w.1)]);
                }
            }
            let circle = roots.len();
            if !matches!(radix, 2 | 3 | 4 | 5 | 7 | 8) {
                (0..radix).for_each(|k| roots.push(T::of_f64(root(k, radix).0)));
                (0..radix).for_each(|k| roots.push(T::of_f64(-root(k, radix).1)));
            }
            list.push(FftPass { radix, rows, roots: at, circle });
        }
        let mut first = Vec::new();
        if radices[0] == 8 && n >= ALONE {
            for at in 0..14 {
                (0..n / 8).for_each(|p| first.push(roots[14 * p + at]));
            }
        }
        Passes { list, roots, first }
    }
}

impl<T: LaneShuffle> LinePlan<T> {
    pub(super) fn new(n: usize) -> LinePlan<T> {
        let way = match radices(n) {
            None => FftAlgorithm::Chirp(Chirp::of(n, LinePlan::new(padded(2 * n - 1)))),
            Some(list) if n < ALONE || n.is_multiple_of(8) && 2 * n * size_of::<T>() <= PIECE => {
                FftAlgorithm::Direct(Passes::of(n, &list))
            }
            Some(_) => {
                let (a, b) = split(n);
                let passes = |n| Passes::of(n, &radices(n).unwrap_or_default());
                FftAlgorithm::Split(Twist::of([a, b], [passes(a), passes(b)]))
            }
        };
        LinePlan { n, way }
    }

    /// Whether lines can be transformed side by side.
    pub(super) fn side_by_side(&self) -> Option<&Passes<T>> {
        match &self.way {
            FftAlgorithm::Direct(passes) => Some(passes),
            _ => None,
        }
    }

    /// Whether one line can be transformed alone.
    pub(super) fn alone(&self) -> bool {
        self.n >= ALONE
    }
}

/// The best length from `n` on for a convolution: a multiple of 64 with small factors.
fn padded(n: usize) -> usize {
    let up = |factor: usize| factor * n.div_ceil(factor).next_power_of_two();
    [64, 64 * 3, 64 * 5, 64 * 9, 64 * 15].into_iter().map(up).min().unwrap_or(n)
}

/// Two factors near the root, that leave few lanes of blocks unused.
fn split(n: usize) -> (usize, usize) {
    let cost = |a: usize| {
        let b = n / a;
        // Lanes in use, then distance.
        (a * b.next_multiple_of(W) + b * a.next_multiple_of(W)) as f64
            * (1.0 + (a as f64 / b as f64).ln().abs() / 8.0)
    };
    let mut best = (f64::INFINITY, 1);
    for a in (1..).take_while(|a| a * a <= n).filter(|&a| n.is_multiple_of(a)) {
        for a in [a, n / a] {
            if cost(a) < best.0 {
                best = (cost(a), a);
            }
        }
    }
    (best.1, n / best.1)
}

/// A plan for real lines of an even length, and the roots that separate even from odd elements.
pub(super) struct Halves<T> {
    pub(super) plan: LinePlan<T>,
    /// `-i/2 · exp(-2πi·k/n)` for `k` to `n/2`: real parts, then imaginary ones.
    pub(super) roots: Vec<T>,
}

impl<T: LaneShuffle> Halves<T> {
    fn new(n: usize) -> Halves<T> {
        let half = n / 2;
        let mut roots = Vec::with_capacity(2 * half + 2);
        (0..=half).for_each(|k| roots.push(T::of_f64(root(k, n).1 / 2.0)));
        (0..=half).for_each(|k| roots.push(T::of_f64(-root(k, n).0 / 2.0)));
        Halves { plan: LinePlan::new(half), roots }
    }
}

/// Plans by length, sorted.
pub(super) struct PlanCache<P>(Mutex<Vec<(usize, Arc<P>)>>);

impl<P> PlanCache<P> {
    pub(super) const fn new() -> PlanCache<P> {
        PlanCache(Mutex::new(Vec::new()))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Looks up or makes a plan. The cache is bounded, so that many lengths do not fill the memory.
    pub(super) fn get(&self, n: usize, make: fn(usize) -> P) -> Arc<P> {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match plans.binary_search_by_key(&n, |(n, _)| *n) {
            Ok(at) => plans[at].1.clone(),
            Err(at) => {
                let plan = Arc::new(make(n));
                if plans.len() < PLANS {
                    plans.insert(at, (n, plan.clone()));
                } else {
                    plans.clear();
                    plans.push((n, plan.clone()));
                }
                plan
            }
        }
    }
}

/// A type whose plans are cached.
pub(super) trait FftElem: LaneShuffle {
    fn complex() -> &'static PlanCache<LinePlan<Self>>;
    fn halves() -> &'static PlanCache<Halves<Self>>;

    fn plan(n: usize) -> Arc<LinePlan<Self>> {
        Self::complex().get(n, LinePlan::new)
    }

    fn half_plan(n: usize) -> Arc<Halves<Self>> {
        Self::halves().get(n, Halves::new)
    }
}

macro_rules! planned {
    ($t:ty) => {
        impl FftElem for $t {
            fn complex() -> &'static PlanCache<LinePlan<$t>> {
                static PLANS: PlanCache<LinePlan<$t>> = PlanCache::new();
                &PLANS
            }

            fn halves() -> &'static PlanCache<Halves<$t>> {
                static PLANS: PlanCache<Halves<$t>> = PlanCache::new();
                &PLANS
            }
        }
    };
}

planned!(f32);
planned!(f64);
