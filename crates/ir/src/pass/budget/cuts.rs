//! Which cuts: segments of the part of a program before a moment.
//!
//! Before the moment come the *early* equations, after it the *late* ones. What is made early and
//! read late is either kept all the time or made again. The early part is cut into segments. At a
//! cut, what early equations before it make and early equations after it read is kept: the
//! *boundary*. What else late equations read of a segment is made again from the boundary before
//! it, when the first of them needs it, and lives to the last of them.
//!
//! Late equations mostly go backwards through the early ones. So when the inside of a segment is
//! there again, the boundaries of later segments have served: alive are the boundaries up to its
//! beginning and the segment. The sum of those must stay within a limit, for every segment. The
//! last one is needed at once, and is simply kept; so is any other for which that is cheaper.
//! Between the two there is a middle: of a segment those values are kept that would take most work
//! for a byte, and the others are made again from them one at a time (the result of an activation
//! from its operand).
//!
//! With so many boundaries before it the last segment can be short only, the first may be long:
//! cuts that respect this do with fewer bytes than even ones. Choosing them is a shortest path over
//! places: its length is the work that is done again, its state the bytes of boundaries so far. At
//! each place only states remain that are not worse in both.

use super::lives::{Lives, is_alias};
use crate::Var;

/// At most so many places for cuts are looked at.
const PLACES: usize = 144;
/// Numbers of bytes that are told apart.
const SHELVES: usize = 256;
/// At most so many states remain at each.
const STATES: usize = 40;
/// In how many parts of like rates the values of a segment are thought of.
const SPLITS: usize = 5;
/// Making a value again from more equations than this is not looked at closely.
const FAR: usize = 64;

/// The early part of a program, ready to be cut.
pub(super) struct Cuts {
    /// The first late equation.
    pub(super) moment: usize,
    /// Where cuts may be, as numbers of equations: first 0, last the moment.
    places: Vec<usize>,
    /// By a segment's first and last place: bytes that are made inside and read early after it.
    boundary: Vec<usize>,
    /// Bytes that are made inside, read late, and no boundary.
    inside: Vec<usize>,
    /// For each rate: bytes of the inside that are made again on the way to other values that are,
    /// and are then there together.
    together: Vec<Vec<usize>>,
    /// For each rate in turn, from the highest down: of the inside, bytes that take as much work or
    /// more, and work to make the others again.
    kept: Vec<Vec<usize>>,
    again: Vec<Vec<u64>>,
    /// Work for a byte, from the highest down. The first keeps nothing, the last everything.
    rates: Vec<f64>,
    /// By root: the work for a byte to make it again if all that is read late is kept.
    rate: Vec<f64>,
    /// By root: the last early equation that reads it, or makes it.
    last_early: Vec<usize>,
    /// By root: whether late equations read it.
    late: Vec<bool>,
    /// By root: the equation that makes it.
    made: Vec<Option<usize>>,
}

#[derive(Clone, Copy)]
struct State {
    bytes: usize,
    again: u64,
    /// The place before, the state there, and the rate from which on values of the segment between
    /// are kept.
    from: (usize, usize, usize),
}

impl Cuts {
    /// Finely, or with values of a segment kept or made again all together.
    pub(super) fn new(lives: &Lives, moment: usize, finely: bool) -> Cuts {
        let count = lives.program.specs.len();
        let (mut last_early, mut late) = (vec![0; count], vec![false; count]);
        for v in 0..count {
            let readers = &lives.readers[v];
            let early = readers.partition_point(|&e| (e as usize) < moment);
            last_early[v] = match early {
                0 => lives.made[v].unwrap_or(0),
                n => readers[n - 1] as usize,
            };
            late[v] = early < readers.len();
        }
        let places = places(lives, moment, &last_early, &late);
        let side = places.len();
        let rate = rates_of(lives, moment, &late);
        let rates = match finely {
            true => chosen_rates(lives, moment, &late, &rate),
            false => vec![f64::INFINITY, 0.0],
        };
        let mut cuts = Cuts {
            moment,
            boundary: vec![0; side * side],
            inside: vec![0; side * side],
            together: vec![vec![0; side * side]; rates.len()],
            kept: vec![vec![0; side * side]; rates.len()],
            again: vec![vec![0; side * side]; rates.len()],
            rates,
            rate,
            places,
            last_early,
            late,
            made: lives.made.clone(),
        };
        // Whether something after it needs a root again, by the number of the cut that asked.
        let mut wanted = vec![0usize; count];
        for number in 0..cuts.rates.len() {
            for k in 1..side {
                cuts.sweep(lives, k, number, &mut wanted);
            }
        }
        cuts
    }

    /// All segments that end at place `k`, from the shortest to the longest.
    fn sweep(&mut self, lives: &Lives, k: usize, number: usize, wanted: &mut [usize]) {
        let (side, end) = (self.places.len(), self.places[k]);
        let (mut boundary, mut inside, mut together, mut kept) = (0, 0, 0, 0);
        let (mut again, mut j) = (0, k);
        let asked = number * side + k;
        let crosses = |v: Var, last_early: &[usize]| last_early[v.index()] >= end;
        for e in (0..end).rev() {
            let equation = &lives.program.equations[e];
            let mut needed = false;
            for v in lives.makes(e) {
                if crosses(v, &self.last_early) && end < self.moment {
                    boundary += lives.bytes[v.index()];
                } else if self.late[v.index()] {
                    let bytes = lives.bytes[v.index()];
                    inside += bytes;
                    if self.rate[v.index()] >= self.rates[number] {
                        kept += bytes;
                    } else {
                        needed = true;
                        together += if wanted[v.index()] == asked { bytes } else { 0 };
                    }
                } else {
                    needed |= wanted[v.index()] == asked;
                }
            }
            if needed && !is_alias(&equation.op) {
                again += lives.work[e];
                for &v in &equation.inputs {
                    let root = lives.root(v);
                    if !lives.free[root.index()] && !crosses(root, &self.last_early) {
                        wanted[root.index()] = asked;
                    }
                }
            }
            while j > 0 && self.places[j - 1] == e {
                j -= 1;
                let at = j * side + k;
                (self.boundary[at], self.inside[at]) = (boundary, inside);
                self.together[number][at] = together;
                (self.kept[number][at], self.again[number][at]) = (kept, again);
            }
        }
    }

    /// Bytes that live across the moment if all is kept.
    pub(super) fn all(&self) -> usize {
        self.inside[self.places.len() - 1]
    }

    /// The smallest limit that can be met, up to about a hundredth.
    pub(super) fn least(&self) -> usize {
        let (mut low, mut high) = (0, self.all());
        while high - low > high / 128 + 1 {
            let middle = low + (high - low) / 2;
            match self.tightest(middle) {
                Some(_) => high = middle,
                None => low = middle,
            }
        }
        high
    }

    /// The states that follow from one, within the limit.
    fn following(
        &self,
        (j, s): (usize, usize),
        state: State,
        limit: usize,
        mut each: impl FnMut(usize, State),
    ) {
        let (side, end) = (self.places.len(), self.places.len() - 1);
        for k in j + 1..side {
            let at = j * side + k;
            for rate in 0..self.rates.len() {
                let bytes = state.bytes + self.boundary[at] + self.kept[rate][at];
                // With nothing kept all of a segment is there at once, else what is made again on
                // the way; the last is needed at once.
                let there = match rate {
                    0 if k == end => continue,
                    0 => self.inside[at],
                    _ => self.kept[rate][at] + self.together[rate][at],
                };
                if bytes.max(state.bytes + there) <= limit {
                    let again = state.again + self.again[rate][at];
                    each(k, State { bytes, again, from: (j, s, rate) });
                }
            }
        }
    }

    /// Cuts within the limit that leave most of it.
    fn tightest(&self, limit: usize) -> Option<Vec<bool>> {
        let side = self.places.len();
        let mut states: Vec<Option<State>> = vec![None; side];
        states[0] = Some(State { bytes: 0, again: 0, from: (0, 0, 0) });
        for j in 0..side {
            let Some(state) = states[j] else { continue };
            self.following((j, 0), state, limit, |k, next| {
                let better = |old: &State| (next.bytes, next.again) < (old.bytes, old.again);
                if states[k].as_ref().is_none_or(better) {
                    states[k] = Some(next);
                }
            });
        }
        let states: Vec<Vec<State>> = states.into_iter().map(|s| s.into_iter().collect()).collect();
        self.path(&states)
    }

    /// The roots to keep for the cuts that cost least of those within the limit.
    pub(super) fn choose(&self, limit: usize) -> Option<Vec<bool>> {
        let side = self.places.len();
        let mut states: Vec<Vec<State>> = vec![Vec::new(); side];
        // At each place, the cheapest of those that take about as many bytes.
        let mut shelves: Vec<Vec<Option<State>>> = vec![vec![None; SHELVES + 1]; side];
        shelves[0][0] = Some(State { bytes: 0, again: 0, from: (0, 0, 0) });
        for j in 0..side {
            states[j] = pruned(shelves[j].drain(..).flatten().collect());
            for (s, &state) in states[j].iter().enumerate() {
                self.following((j, s), state, limit, |k, next| {
                    let shelf = &mut shelves[k][next.bytes * SHELVES / limit.max(1)];
                    let better = |old: &State| (next.again, next.bytes) < (old.again, old.bytes);
                    if shelf.as_ref().is_none_or(better) {
                        *shelf = Some(next);
                    }
                });
            }
        }
        self.path(&states).or_else(|| self.tightest(limit))
    }

    /// The way to the cheapest state at the last place.
    fn path(&self, states: &[Vec<State>]) -> Option<Vec<bool>> {
        let mut k = self.places.len() - 1;
        let best = states[k].iter().min_by_key(|state| (state.again, state.bytes))?;
        let (mut segments, mut from) = (Vec::new(), best.from);
        while k > 0 {
            segments.push((self.places[from.0], self.places[k], self.rates[from.2]));
            let state = states[from.0][from.1];
            (k, from) = (from.0, state.from);
        }
        Some(self.kept_of(&segments))
    }

    /// The roots to keep for segments of which some are kept.
    fn kept_of(&self, segments: &[(usize, usize, f64)]) -> Vec<bool> {
        let kept = |v: usize| {
            segments.iter().any(|&(from, to, rate)| {
                let made = self.made[v].is_some_and(|e| (from..to).contains(&e));
                let crosses = self.last_early[v] >= to && to < self.moment;
                made && (crosses || (self.late[v] && self.rate[v] >= rate))
            })
        };
        (0..self.late.len()).map(kept).collect()
    }
}

/// By root that is read late: the work for a byte to make it again from what else is read late.
fn rates_of(lives: &Lives, moment: usize, late: &[bool]) -> Vec<f64> {
    let mut rate = vec![0.0; late.len()];
    let (mut seen, mut open) = (vec![usize::MAX; moment], Vec::new());
    for e in 0..moment {
        let roots = || lives.makes(e).filter(|v| late[v.index()]);
        let bytes: usize = roots().map(|v| lives.bytes[v.index()]).sum();
        if bytes == 0 {
            continue;
        }
        let (mut work, mut steps) = (0, 0);
        open.push(e);
        while let Some(i) = open.pop() {
            if std::mem::replace(&mut seen[i], e) == e {
                continue;
            }
            (work, steps) = (work + lives.work[i], steps + 1);
            for &v in &lives.program.equations[i].inputs {
                let root = lives.root(v);
                let there = lives.free[root.index()] || late[root.index()];
                // Far more than it can be worth.
                if let (Some(made), false) = (lives.made[root.index()], there || steps > FAR) {
                    open.push(made);
                }
            }
        }
        roots().for_each(|v| rate[v.index()] = work as f64 / bytes as f64);
    }
    rate
}

/// Rates to try, from the highest down: none, some that split the bytes, and all.
fn chosen_rates(lives: &Lives, moment: usize, late: &[bool], rate: &[f64]) -> Vec<f64> {
    let mut found: Vec<(f64, usize)> = (0..moment)
        .flat_map(|e| lives.makes(e))
        .filter(|v| late[v.index()])
        .map(|v| (rate[v.index()], lives.bytes[v.index()]))
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let total: usize = found.iter().map(|f| f.1).sum();
    let mut rates = vec![f64::INFINITY];
    let mut so_far = 0;
    for (rate, bytes) in found {
        so_far += bytes;
        // Values that take nearly as much belong together.
        let new = rates.last().is_none_or(|&last| rate < last * 0.97);
        if new && so_far * SPLITS >= total * rates.len() {
            rates.push(rate);
        }
    }
    rates.truncate(SPLITS);
    rates.push(0.0);
    rates
}

/// Places where little crosses; where there are many, one in each stretch of as many bytes that are
/// read late.
fn places(lives: &Lives, moment: usize, last_early: &[usize], late: &[bool]) -> Vec<usize> {
    let mut change = vec![0isize; moment + 2];
    for (v, &bytes) in lives.bytes.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
        if let Some(made) = lives.made[v].filter(|&e| e < moment) {
            change[made + 1] += bytes as isize;
            change[last_early[v] + 1] -= bytes as isize;
        }
    }
    let mut now = 0;
    let crossing: Vec<isize> = change[..=moment]
        .iter()
        .map(|by| {
            now += by;
            now
        })
        .collect();
    // After something is done, where nothing is lower on either side.
    let low = |c: usize| crossing[c] <= crossing[c - 1] && crossing[c] <= crossing[c + 1];
    let mut found: Vec<usize> = (1..moment).filter(|&c| lives.work[c - 1] > 0 && low(c)).collect();
    if found.len() > PLACES {
        let mut so_far = Vec::with_capacity(moment + 1);
        let mut sum = 0u64;
        for e in 0..moment {
            so_far.push(sum);
            let read_late = lives.makes(e).filter(|v| late[v.index()]);
            sum += 1 + read_late.map(|v| lives.bytes[v.index()] as u64).sum::<u64>();
        }
        let stretch = |c: usize| (so_far[c] as u128 * PLACES as u128 / sum.max(1) as u128) as usize;
        let mut best: Vec<Option<usize>> = vec![None; PLACES];
        for &c in &found {
            let best = &mut best[stretch(c).min(PLACES - 1)];
            if best.is_none_or(|b| crossing[c] < crossing[b]) {
                *best = Some(c);
            }
        }
        found = best.into_iter().flatten().collect();
    }
    let mut places = vec![0];
    places.extend(found);
    places.push(moment);
    places
}

/// The states that are not worse than another in both, in order, and not too many.
fn pruned(mut states: Vec<State>) -> Vec<State> {
    states.sort_unstable_by_key(|s| (s.bytes, s.again));
    let mut best = u64::MAX;
    states.retain(|s| {
        let better = s.again < best;
        best = best.min(s.again);
        better
    });
    if states.len() > STATES {
        let (count, last) = (states.len(), STATES - 1);
        states = (0..STATES).map(|i| states[i * (count - 1) / last]).collect();
    }
    states
}
