//! What a pass changed: the equations of two programs, matched.
//!
//! A pass may rename every variable, so texts say little. First, equations are matched by what they
//! compute: the same op on the same values, down to the inputs. Then what is left, in order: the
//! same op of the same line with results of the same specs is the same equation. Where one of its
//! operands is made by a new equation, that stands in for the one that is gone; where it is another
//! value that was there before, the equation was *rewired*. So a change at the start does not make
//! everything after it new.
//!
//! What is gone was fused (its op is in a region that is new), was a duplicate (another equation
//! computes the same), was unused, or was replaced.

use pullback_ir::{Equation, Inst, Op, Program, Var};
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};

/// What became of an equation of the program before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedAs {
    /// It is in a region, the one with this number.
    Fused(usize),
    /// Another equation computes the same.
    Duplicate,
    /// Nothing used it.
    Unused,
    /// Others took its place.
    Replaced,
}

/// What an equation is, compared with the program before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EquationChange {
    /// It was there.
    Kept,
    /// It was there, on other operands.
    Rewired,
    /// It was not there.
    New,
}

/// What a pass did.
pub struct Changes {
    /// Of each equation after it.
    pub states: Vec<EquationChange>,
    /// For each equation after it, which one before it is the same.
    pub of: Vec<Option<usize>>,
    /// How many equations stand elsewhere among those that were there before.
    pub moved: usize,
    /// Of equations before it, those that are gone.
    pub gone: Vec<(usize, RemovedAs)>,
}

/// What each equation computes, as a number: of its op and what its operands compute.
fn keys(program: &Program) -> Vec<u64> {
    let mut values: HashMap<Var, u64> = HashMap::new();
    for (i, &v) in program.inputs.iter().enumerate() {
        values.insert(v, hash(&("input", i)));
    }
    let key = |e: &Equation| {
        let of = |v: &Var| values.get(v).copied().unwrap_or_default();
        let key = hash(&(e.op.to_string(), e.inputs.iter().map(of).collect::<Vec<u64>>()));
        for (k, &v) in e.outputs.iter().enumerate() {
            values.insert(v, hash(&(key, k)));
        }
        key
    };
    program.equations.iter().map(key).collect()
}

fn hash(x: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    x.hash(&mut hasher);
    hasher.finish()
}

/// The equations of a program by keys, each key with the places where it is, in order.
fn places(keys: impl Iterator<Item = u64>) -> HashMap<u64, VecDeque<usize>> {
    let mut places: HashMap<u64, VecDeque<usize>> = HashMap::new();
    keys.enumerate().for_each(|(i, key)| places.entry(key).or_default().push_back(i));
    places
}

/// Two programs, and which equation of one is which of the other.
struct Matching<'a> {
    before: &'a Program,
    after: &'a Program,
    /// For each equation after, that before.
    of: Vec<Option<usize>>,
    taken: Vec<bool>,
    /// For each value after, that before.
    values: HashMap<Var, Var>,
}

impl Matching<'_> {
    fn pair(&mut self, new: usize, old: usize) {
        self.of[new] = Some(old);
        self.taken[old] = true;
        let (before, after) = (self.before, self.after);
        let outputs = after.equations[new].outputs.iter().zip(&before.equations[old].outputs);
        self.values.extend(outputs.map(|(&new, &old)| (new, old)));
        // What is computed anew, from what has no counterpart, stands in for what was there.
        let inputs = after.equations[new].inputs.iter().zip(&before.equations[old].inputs);
        for (&new, &old) in inputs.filter(|(n, o)| after.spec(**n) == before.spec(**o)) {
            self.values.entry(new).or_insert(old);
        }
    }

    /// Operands of the two that are the same value.
    fn in_common(&self, new: usize, old: usize) -> usize {
        let (new, old) = (&self.after.equations[new], &self.before.equations[old]);
        let same = |(n, o): &(&Var, &Var)| self.values.get(n) == Some(o);
        new.inputs.iter().zip(&old.inputs).filter(same).count()
    }

    fn is_same(&self, new: usize, old: usize) -> bool {
        let inputs = |program: &Program, i: usize| program.equations[i].inputs.len();
        let (n, o) = (inputs(self.after, new), inputs(self.before, old));
        n == o && self.in_common(new, old) == n
    }
}

/// Compares two programs.
pub fn between(before: &Program, after: &Program) -> Changes {
    let (old, new) = (keys(before), keys(after));
    let mut matching = Matching {
        before,
        after,
        of: vec![None; new.len()],
        taken: vec![false; old.len()],
        values: after.inputs.iter().copied().zip(before.inputs.iter().copied()).collect(),
    };
    let mut left = places(old.iter().copied());
    for (i, key) in new.iter().enumerate() {
        if let Some(j) = left.get_mut(key).and_then(VecDeque::pop_front) {
            matching.pair(i, j);
        }
    }
    // What is left looks alike by op, line and specs.
    let looks = |program: &Program, e: &Equation| {
        let specs: Vec<String> = e.outputs.iter().map(|&v| program.spec(v).to_string()).collect();
        let line = e.at.map(|at| at.to_string());
        hash(&(e.op.to_string(), line, specs, e.inputs.len()))
    };
    let alike = places(before.equations.iter().map(|e| looks(before, e)));
    for (i, e) in after.equations.iter().enumerate() {
        if matching.of[i].is_some() {
            continue;
        }
        let candidates = alike.get(&looks(after, e)).into_iter().flatten().copied();
        let free = candidates.filter(|&j| !matching.taken[j]).take(64);
        // The first of those with the most operands in common.
        let best = free.max_by_key(|&j| (matching.in_common(i, j), usize::MAX - j));
        if let Some(j) = best {
            matching.pair(i, j);
        }
    }
    let state = |i: usize| match matching.of[i] {
        None => EquationChange::New,
        // The same key says the same of everything it is computed from.
        Some(j) if new[i] == old[j] || matching.is_same(i, j) => EquationChange::Kept,
        Some(_) => EquationChange::Rewired,
    };
    let states: Vec<EquationChange> = (0..new.len()).map(state).collect();
    let gone = fates(&matching, &states, &old);
    let moved = moved(&matching.of);
    Changes { states, of: matching.of, moved, gone }
}

/// How many of these are out of order: the fewest that, taken out, leave the others in order.
fn moved(of: &[Option<usize>]) -> usize {
    // The least end of an ordered sequence of each length.
    let mut ends: Vec<usize> = Vec::new();
    let known = of.iter().copied().flatten();
    for place in known.clone() {
        match ends.partition_point(|&end| end < place) {
            at if at == ends.len() => ends.push(place),
            at => ends[at] = place,
        }
    }
    known.count() - ends.len()
}

/// Whether an equation is a fused region.
pub fn is_region(e: &Equation) -> bool {
    matches!(e.op, Op::Region(_) | Op::DotRegion(_))
}

/// For each equation that is a region, its number among them.
fn numbers(program: &Program) -> Vec<Option<usize>> {
    let mut next = 0..;
    program.equations.iter().map(|e| if is_region(e) { next.next() } else { None }).collect()
}

/// For each stage, what each of its regions is called: by its number in the last stage, where a
/// later pass may have moved it or made it larger; nothing if it is in none of them.
pub fn regions(programs: &[&Program], changes: &[Changes]) -> Vec<Vec<Option<usize>>> {
    let all: Vec<Vec<Option<usize>>> = programs.iter().map(|program| numbers(program)).collect();
    let count = |stage: &[Option<usize>]| stage.iter().flatten().count();
    let Some(last) = all.last() else { return Vec::new() };
    let mut out = vec![(0..count(last)).map(Some).collect::<Vec<_>>()];
    for (i, change) in changes.iter().enumerate().rev() {
        let (before, after) = (&all[i], &all[i + 1]);
        let mut names = vec![None; count(before)];
        let later = &out[out.len() - 1];
        for (new, old) in change.of.iter().enumerate() {
            if let (Some(old), Some(new)) = (old.and_then(|old| before[old]), after[new]) {
                names[old] = later[new];
            }
        }
        for (old, fate) in &change.gone {
            if let (Some(old), RemovedAs::Fused(into)) = (before[*old], fate) {
                names[old] = later[*into];
            }
        }
        out.push(names);
    }
    out.reverse();
    out
}

/// The names of the ops in a region: of its instructions that compute.
pub fn ops_of(op: &Op) -> Option<Vec<String>> {
    let (Op::Region(region) | Op::DotRegion(region)) = op else { return None };
    let name = |inst: &Inst| match inst {
        Inst::Point(op, _) => Some(op.name().to_string()),
        Inst::Reduce(kind, _) => Some(kind.name().to_string()),
        Inst::Random(kind, ..) => Some(kind.name().to_string()),
        Inst::Load(_) | Inst::Literal(..) | Inst::Index(..) => None,
    };
    let dot = matches!(op, Op::DotRegion(_)).then(|| "dot".to_string());
    Some(dot.into_iter().chain(region.body.iter().filter_map(name)).collect())
}

/// The ops of new regions that no equation before is known to be.
#[derive(Default)]
struct NewRegions {
    /// Of each region, how many there are of each name.
    left: Vec<HashMap<String, usize>>,
    /// Of each name, the regions that have it, in order; some may have been taken since.
    named: HashMap<String, VecDeque<usize>>,
}

impl NewRegions {
    /// Regions that are tried for one that grew.
    const TRIED: usize = 64;

    fn add(&mut self, region: usize, ops: Vec<String>) {
        let mut left = HashMap::new();
        for op in ops {
            self.named.entry(op.clone()).or_default().push_back(region);
            *left.entry(op).or_default() += 1;
        }
        self.left.push(left);
    }

    /// Takes these ops from the first region that has them all.
    fn take(&mut self, ops: &[String]) -> Option<usize> {
        let mut needed: HashMap<&str, usize> = HashMap::new();
        ops.iter().for_each(|op| *needed.entry(op).or_default() += 1);
        let queue = self.named.get_mut(ops.first()?)?;
        let name = &ops[0];
        while queue.front().is_some_and(|&region| self.left[region][name] == 0) {
            queue.pop_front();
        }
        let has = |region: usize, op: &str| self.left[region].get(op).copied().unwrap_or(0);
        let has_all = |region: &usize| needed.iter().all(|(op, n)| has(*region, op) >= *n);
        let found = queue.iter().copied().take(NewRegions::TRIED).find(has_all)?;
        for (op, n) in needed {
            if let Some(left) = self.left[found].get_mut(op) {
                *left -= n;
            }
        }
        Some(found)
    }
}

fn fates(matching: &Matching, states: &[EquationChange], old: &[u64]) -> Vec<(usize, RemovedAs)> {
    let (before, after) = (matching.before, matching.after);
    let mut fused = NewRegions::default();
    let regions = after.equations.iter().zip(states).filter_map(|(e, s)| Some((ops_of(&e.op)?, s)));
    for (region, (ops, state)) in regions.enumerate() {
        let is_new = *state != EquationChange::Kept;
        fused.add(region, if is_new { ops } else { Vec::new() });
    }
    let kept: HashSet<u64> =
        (0..old.len()).filter(|&j| matching.taken[j]).map(|j| old[j]).collect();
    let mut used: HashSet<Var> = before.outputs.iter().copied().collect();
    let mut needed = vec![true; before.equations.len()];
    for (j, e) in before.equations.iter().enumerate().rev() {
        needed[j] = e.outputs.iter().any(|v| used.contains(v));
        if needed[j] {
            used.extend(&e.inputs);
        }
    }
    let mut gone = Vec::new();
    for (j, e) in before.equations.iter().enumerate().filter(|(j, _)| !matching.taken[*j]) {
        // A region that grew takes its ops along.
        let ops = ops_of(&e.op).unwrap_or_else(|| vec![e.op.name().to_string()]);
        let fate = if !needed[j] {
            RemovedAs::Unused
        } else if kept.contains(&old[j]) {
            RemovedAs::Duplicate
        } else if let Some(region) = fused.take(&ops) {
            RemovedAs::Fused(region)
        } else {
            RemovedAs::Replaced
        };
        gone.push((j, fate));
    }
    gone
}
