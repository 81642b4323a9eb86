//! Chooses the cuts: segments of the part of a program before a moment.
//!
//! Before the moment come the *early* equations, after it the *late* ones. What is computed early
//! and read late is either kept or recomputed. The early part is cut into segments. At a cut, what
//! early equations before it compute and early equations after it read is kept: the *boundary* (the
//! checkpoint). What else late equations read of a segment is recomputed from the boundary before
//! it, when the first of them needs it, and lives until the last of them.
//!
//! Late equations mostly go backwards through the early ones. So when the inside of a segment is
//! recomputed, the boundaries of later segments are no longer needed: alive are the boundaries up
//! to its start and the segment. The sum of those must stay within a limit, for every segment. The
//! last one is needed at once, and is simply kept; so is any other for which that is cheaper. There
//! is a compromise: of a segment, the values are kept that take most work per byte, and the others
//! are recomputed from them one at a time (the result of an activation from its operand).
//!
//! The later a segment, the more boundaries are alive before it, and the shorter it must be: such
//! cuts need fewer bytes than even ones. Choosing them is a shortest path over positions: its
//! length is the recomputed work, its state the bytes of boundaries so far. At each position only
//! Pareto-optimal states are kept.

use super::liveness::{Liveness, is_alias};
use crate::Var;

/// Most positions of cuts that are considered.
const POSITIONS: usize = 144;
/// Resolution of byte counts: the number of buckets.
const BUCKETS: usize = 256;
/// Most states kept at each position.
const STATES: usize = 40;
/// Number of groups of similar rates into which the values of a segment are divided.
const SPLITS: usize = 5;
/// Recomputing a value from more equations than this is not analysed closely.
const DEEP: usize = 64;

/// The early part of a program, ready to be cut.
pub(super) struct Cuts {
    /// The first late equation.
    pub(super) moment: usize,
    /// Possible positions of cuts, as equation numbers: first 0, last the moment.
    positions: Vec<usize>,
    /// By a segment's first and last position: bytes that are computed inside and read early after
    /// it.
    boundary: Vec<usize>,
    /// Bytes that are computed inside, read late, and not a boundary.
    inside: Vec<usize>,
    /// For each rate: bytes of the inside that are recomputed together, as intermediate values of
    /// others.
    together: Vec<Vec<usize>>,
    /// For each rate, from the highest down: of the inside, bytes with this rate or a higher one,
    /// and the work to recompute the others.
    kept: Vec<Vec<usize>>,
    again: Vec<Vec<u64>>,
    /// Work per byte, from the highest down. The first keeps nothing, the last everything.
    rates: Vec<f64>,
    /// By root: the work per byte to recompute it if everything else that is read late is kept.
    rate: Vec<f64>,
    /// By root: the last early equation that reads or defines it.
    last_early: Vec<usize>,
    /// By root: whether late equations read it.
    late: Vec<bool>,
    /// By root: the equation that defines it.
    made: Vec<Option<usize>>,
}

#[derive(Clone, Copy)]
struct CutState {
    bytes: usize,
    again: u64,
    /// The previous position, its state, and the rate from which values of the segment between are
    /// kept.
    from: (usize, usize, usize),
}

impl Cuts {
    /// With several rates, or with the values of a segment all kept or all recomputed.
    pub(super) fn new(liveness: &Liveness, moment: usize, finely: bool) -> Cuts {
        let count = liveness.program.specs.len();
        let (mut last_early, mut late) = (vec![0; count], vec![false; count]);
        for v in 0..count {
            let readers = &liveness.readers[v];
            let early = readers.partition_point(|&e| (e as usize) < moment);
            last_early[v] = match early {
                0 => liveness.made[v].unwrap_or(0),
                n => readers[n - 1] as usize,
            };
            late[v] = early < readers.len();
        }
        let positions = positions(liveness, moment, &last_early, &late);
        let side = positions.len();
        let rate = rates_of(liveness, moment, &late);
        let rates = match finely {
            true => chosen_rates(liveness, moment, &late, &rate),
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
            positions,
            last_early,
            late,
            made: liveness.made.clone(),
        };
        // Whether something after it needs a root, by the number of the cut.
        let mut wanted = vec![0usize; count];
        for number in 0..cuts.rates.len() {
            for k in 1..side {
                cuts.sweep(liveness, k, number, &mut wanted);
            }
        }
        cuts
    }

    /// All segments that end at position `k`, from the shortest to the longest.
    fn sweep(&mut self, liveness: &Liveness, k: usize, number: usize, wanted: &mut [usize]) {
        let (side, end) = (self.positions.len(), self.positions[k]);
        let (mut boundary, mut inside, mut together, mut kept) = (0, 0, 0, 0);
        let (mut again, mut j) = (0, k);
        let mark = number * side + k;
        let crosses = |v: Var, last_early: &[usize]| last_early[v.index()] >= end;
        for e in (0..end).rev() {
            let equation = &liveness.program.equations[e];
            let mut needed = false;
            for v in liveness.makes(e) {
                if crosses(v, &self.last_early) && end < self.moment {
                    boundary += liveness.bytes[v.index()];
                } else if self.late[v.index()] {
                    let bytes = liveness.bytes[v.index()];
                    inside += bytes;
                    if self.rate[v.index()] >= self.rates[number] {
                        kept += bytes;
                    } else {
                        needed = true;
                        together += if wanted[v.index()] == mark { bytes } else { 0 };
                    }
                } else {
                    needed |= wanted[v.index()] == mark;
                }
            }
            if needed && !is_alias(&equation.op) {
                again += liveness.work[e];
                for &v in &equation.inputs {
                    let root = liveness.root(v);
                    if !liveness.free[root.index()] && !crosses(root, &self.last_early) {
                        wanted[root.index()] = mark;
                    }
                }
            }
            while j > 0 && self.positions[j - 1] == e {
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
        self.inside[self.positions.len() - 1]
    }

    /// The smallest satisfiable limit, up to about a hundredth.
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
        state: CutState,
        limit: usize,
        mut each: impl FnMut(usize, CutState),
    ) {
        let (side, end) = (self.positions.len(), self.positions.len() - 1);
        for k in j + 1..side {
            let at = j * side + k;
            for rate in 0..self.rates.len() {
                let bytes = state.bytes + self.boundary[at] + self.kept[rate][at];
                // With nothing kept, the whole segment is alive at once, otherwise the recomputed
                // intermediates; the last segment is always alive.
                let there = match rate {
                    0 if k == end => continue,
                    0 => self.inside[at],
                    _ => self.kept[rate][at] + self.together[rate][at],
                };
                if bytes.max(state.bytes + there) <= limit {
                    let again = state.again + self.again[rate][at];
                    each(k, CutState { bytes, again, from: (j, s, rate) });
                }
            }
        }
    }

    /// Cuts within the limit that use the least memory.
    fn tightest(&self, limit: usize) -> Option<Vec<bool>> {
        let side = self.positions.len();
        let mut states: Vec<Option<CutState>> = vec![None; side];
        states[0] = Some(CutState { bytes: 0, again: 0, from: (0, 0, 0) });
        for j in 0..side {
            let Some(state) = states[j] else { continue };
            self.following((j, 0), state, limit, |k, next| {
                let better = |old: &CutState| (next.bytes, next.again) < (old.bytes, old.again);
                if states[k].as_ref().is_none_or(better) {
                    states[k] = Some(next);
                }
            });
        }
        let states: Vec<Vec<CutState>> =
            states.into_iter().map(|s| s.into_iter().collect()).collect();
        self.path(&states)
    }

    /// The roots to keep for the cuts that cost least of those within the limit.
    pub(super) fn choose(&self, limit: usize) -> Option<Vec<bool>> {
        let side = self.positions.len();
        let mut states: Vec<Vec<CutState>> = vec![Vec::new(); side];
        // At each position, the cheapest of the states with about the same bytes.
        let mut buckets: Vec<Vec<Option<CutState>>> = vec![vec![None; BUCKETS + 1]; side];
        buckets[0][0] = Some(CutState { bytes: 0, again: 0, from: (0, 0, 0) });
        for j in 0..side {
            states[j] = pruned(buckets[j].drain(..).flatten().collect());
            for (s, &state) in states[j].iter().enumerate() {
                self.following((j, s), state, limit, |k, next| {
                    let shelf = &mut buckets[k][next.bytes * BUCKETS / limit.max(1)];
                    let better = |old: &CutState| (next.again, next.bytes) < (old.again, old.bytes);
                    if shelf.as_ref().is_none_or(better) {
                        *shelf = Some(next);
                    }
                });
            }
        }
        self.path(&states).or_else(|| self.tightest(limit))
    }

    /// The path to the cheapest state at the last position.
    fn path(&self, states: &[Vec<CutState>]) -> Option<Vec<bool>> {
        let mut k = self.positions.len() - 1;
        let best = states[k].iter().min_by_key(|state| (state.again, state.bytes))?;
        let (mut segments, mut from) = (Vec::new(), best.from);
        while k > 0 {
            segments.push((self.positions[from.0], self.positions[k], self.rates[from.2]));
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

/// By root that is read late: the work per byte to recompute it from what else is read late.
fn rates_of(liveness: &Liveness, moment: usize, late: &[bool]) -> Vec<f64> {
    let mut rate = vec![0.0; late.len()];
    let (mut seen, mut open) = (vec![usize::MAX; moment], Vec::new());
    for e in 0..moment {
        let roots = || liveness.makes(e).filter(|v| late[v.index()]);
        let bytes: usize = roots().map(|v| liveness.bytes[v.index()]).sum();
        if bytes == 0 {
            continue;
        }
        let (mut work, mut steps) = (0, 0);
        open.push(e);
        while let Some(i) = open.pop() {
            if std::mem::replace(&mut seen[i], e) == e {
                continue;
            }
            (work, steps) = (work + liveness.work[i], steps + 1);
            for &v in &liveness.program.equations[i].inputs {
                let root = liveness.root(v);
                let there = liveness.free[root.index()] || late[root.index()];
                // Far more than it can be worth.
                if let (Some(made), false) = (liveness.made[root.index()], there || steps > DEEP) {
                    open.push(made);
                }
            }
        }
        roots().for_each(|v| rate[v.index()] = work as f64 / bytes as f64);
    }
    rate
}

/// Rates to try, from the highest down: none, some that split the bytes, and all.
fn chosen_rates(liveness: &Liveness, moment: usize, late: &[bool], rate: &[f64]) -> Vec<f64> {
    let mut found: Vec<(f64, usize)> = (0..moment)
        .flat_map(|e| liveness.makes(e))
        .filter(|v| late[v.index()])
        .map(|v| (rate[v.index()], liveness.bytes[v.index()]))
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let total: usize = found.iter().map(|f| f.1).sum();
    let mut rates = vec![f64::INFINITY];
    let mut so_far = 0;
    for (rate, bytes) in found {
        so_far += bytes;
        // Values of nearly the same rate belong together.
        let new = rates.last().is_none_or(|&last| rate < last * 0.97);
        if new && so_far * SPLITS >= total * rates.len() {
            rates.push(rate);
        }
    }
    rates.truncate(SPLITS);
    rates.push(0.0);
    rates
}

/// Positions where few bytes cross; if there are many, one per equal share of the bytes that are
/// read late.
fn positions(
    liveness: &Liveness,
    moment: usize,
    last_early: &[usize],
    late: &[bool],
) -> Vec<usize> {
    let mut change = vec![0isize; moment + 2];
    for (v, &bytes) in liveness.bytes.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
        if let Some(made) = liveness.made[v].filter(|&e| e < moment) {
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
    // After a computation, at a local minimum.
    let low = |c: usize| crossing[c] <= crossing[c - 1] && crossing[c] <= crossing[c + 1];
    let mut found: Vec<usize> =
        (1..moment).filter(|&c| liveness.work[c - 1] > 0 && low(c)).collect();
    if found.len() > POSITIONS {
        let mut so_far = Vec::with_capacity(moment + 1);
        let mut sum = 0u64;
        for e in 0..moment {
            so_far.push(sum);
            let read_late = liveness.makes(e).filter(|v| late[v.index()]);
            sum += 1 + read_late.map(|v| liveness.bytes[v.index()] as u64).sum::<u64>();
        }
        let stretch =
            |c: usize| (so_far[c] as u128 * POSITIONS as u128 / sum.max(1) as u128) as usize;
        let mut best: Vec<Option<usize>> = vec![None; POSITIONS];
        for &c in &found {
            let best = &mut best[stretch(c).min(POSITIONS - 1)];
            if best.is_none_or(|b| crossing[c] < crossing[b]) {
                *best = Some(c);
            }
        }
        found = best.into_iter().flatten().collect();
    }
    let mut positions = vec![0];
    positions.extend(found);
    positions.push(moment);
    positions
}

/// The Pareto-optimal states, in order, and not too many.
fn pruned(mut states: Vec<CutState>) -> Vec<CutState> {
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
