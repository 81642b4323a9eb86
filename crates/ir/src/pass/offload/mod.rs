//! Moves values to memory of the host while nothing uses them, so that a program fits into a byte
//! budget.
//!
//! # The idea
//! Backward reads what forward has made long before. Meanwhile such a value can be on the host: the
//! device copies it there beside its other work, gives its memory to other values, and copies it
//! back before it is read ([`Transfer`]). This costs no work, as recomputing does, but the way to
//! the host is narrow ([`HostLink`]), and who needs a value before its copy has ended waits.
//!
//! 1. The pass runs last, on equations in their order. The values that are in memory at each
//!    equation, and the gaps in which nothing uses them, follow from it (`gaps.rs`).
//! 2. Where more is there than a limit, the value goes that is needed last, and so on; first those
//!    that are idle for as long as their copies take ([`Placement::choose`]).
//! 3. A copy to the host starts when its value was used last before the gap. It is waited for when
//!    it has ended by the clock (`time.rs`), or where its memory is needed, if that is earlier. A
//!    copy back starts so that it ends when the value is read, or where there is memory for it, if
//!    that is later ([`Placement::place`]). In each direction copies follow one another.
//! 4. The limit is searched with which the *planned* peak is within the budget. With a limit of
//!    zero all goes that may, and is waited for at once: the least that is possible.
//!
//! What is moved and what is computed again is decided by [`budget`](super::budget), which tries
//! programs that compute more or less again and asks this pass how long they take with what is left
//! on its way.
//!
//! # Guarantees
//! The same bits: values are copied, and equations stay as they are and in their order. A program
//! that fits is not changed, nor is any if the target has no [`Target::host`]. If the budget cannot
//! be met, the result takes the least that is possible, whatever the budget was. Programs inside
//! control flow are not looked at. Deterministic. Variables are renumbered in order.

mod check;
mod gaps;
mod rewrite;
#[cfg(test)]
mod tests;
mod time;

pub use time::{duration, nanoseconds};

use super::plan::{Plan, plan};
use super::{HostLink, Target};
use crate::{Line, Program};
use gaps::{Gap, MemoryUse};
use rewrite::rewritten;
use std::fmt;
use time::{over, starts};

/// How many limits are tried.
const TRIES: usize = 8;
/// Values of less than this part of what is too much stay.
const SMALL: usize = 256;

/// A program whose values wait on the host, and its plan.
#[derive(Clone, Debug)]
pub struct Offloaded {
    /// The program.
    pub program: Program,
    /// Its plan.
    pub plan: Plan,
    /// What was moved, in the order of leaving.
    pub values: Vec<MovedValue>,
    /// How long it takes, in nanoseconds, as an estimate.
    pub time: u64,
    /// How much of that it waits for copies.
    pub waits: u64,
}

/// A value that waits on the host, and why: what its copies take, and what computing it again
/// would, in nanoseconds. Prints as a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedValue {
    /// Its spec, and the op that makes it.
    pub spec: String,
    /// The op that makes it.
    pub op: &'static str,
    /// Its line in the user's program.
    pub at: Option<Line>,
    /// Its bytes.
    pub bytes: usize,
    /// How long it takes to copy it to the host, and back.
    pub copies: [u64; 2],
    /// How long nothing uses it.
    pub idle: u64,
    /// How long it would take to compute it again, with what is not there any more by then.
    pub again: u64,
}

impl fmt::Display for MovedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1000.0;
        let [out, back] = self.copies.map(us);
        write!(f, "{:>12}  {} of `{}`", self.bytes, self.spec, self.op)?;
        if let Some(at) = self.at {
            write!(f, ", {at}")?;
        }
        write!(
            f,
            ": {out:.1} µs out and {back:.1} back, while it is idle for {:.1}; ",
            us(self.idle)
        )?;
        write!(f, "{:.1} to compute it again", us(self.again))
    }
}

/// Moves values to the host, so that a program takes no more than this many bytes. See the head of
/// the file.
///
/// ```
/// use pullback_ir::{Program, pass::{HostLink, Target, offload, plan::plan}};
/// let text = "program (a: f32[1000]) {
///   let b: f32[1000] = cumsum{axis=0,reverse=false} a
///   let c: f32[1000] = cumsum{axis=0,reverse=false} b
///   let d: f32[1000] = cumsum{axis=0,reverse=false} c
///   let e: f32[1000] = cumsum{axis=0,reverse=false} d
///   let f: f32[] = sum{[0]} e
///   let g: f32[] = sum{[0]} b
///   return f, g
/// }";
/// let program: Program = text.parse().unwrap();
/// let link = HostLink { out: 1000, back: 1000, memory: 1000, narrow: 1000, wide: 1000 };
/// let target = Target { host: Some(link), ..Target::default() };
/// let moved = offload(&program, 9000, target);
/// assert!(plan(&program, target).peak() > 12000 && plan(&moved, target).peak() <= 9000);
/// assert!(moved.to_string().contains("offload b"));
/// ```
#[must_use]
pub fn offload(program: &Program, bytes: usize, target: Target) -> Program {
    offloaded(program, bytes, target).program
}

/// [`offload`](offload()), with what it costs.
#[must_use]
pub fn offloaded(program: &Program, bytes: usize, target: Target) -> Offloaded {
    let whole = plan(program, target);
    let unchanged = |time: u64| Offloaded {
        program: program.clone(),
        plan: whole.clone(),
        values: Vec::new(),
        time,
        waits: 0,
    };
    let Some(link) = target.host else { return unchanged(0) };
    let (time, waits) = duration(program, &link);
    if whole.peak() <= bytes {
        return Offloaded { waits, ..unchanged(time) };
    }
    let search = Search { program, target, link, starts: starts(program, &link) };
    let memory = MemoryUse::of(program, target);
    // The least that is possible: all that may go is away whenever nothing uses it.
    let mut best = search.within(&memory, 0);
    if best.plan.peak() > bytes {
        let lower = best.plan.peak() < whole.peak();
        return if lower { best } else { Offloaded { waits, ..unchanged(time) } };
    }
    // The highest limit with which the plan fits, which takes more than is there at a time.
    let most = memory.most();
    let (mut low, mut high) = (0, most);
    let mut limit = most.saturating_sub(whole.peak() - bytes);
    for _ in 0..TRIES {
        let tried = search.within(&memory, limit);
        let peak = tried.plan.peak();
        let next = match peak <= bytes {
            true => {
                low = limit;
                let faster = (tried.time, tried.bytes()) < (best.time, best.bytes());
                best = if faster { tried } else { best };
                low + (high - low) / 2
            }
            false => {
                high = limit;
                limit.saturating_sub(peak - bytes).max(low + (high - low) / 4)
            }
        };
        if high - low <= most / 64 || next == limit {
            break;
        }
        limit = next;
    }
    best
}

impl Offloaded {
    /// Bytes that are moved.
    pub fn bytes(&self) -> usize {
        self.values.iter().map(|value| value.bytes).sum()
    }
}

struct Search<'a> {
    program: &'a Program,
    target: Target,
    link: HostLink,
    /// When each equation begins.
    starts: Vec<u64>,
}

/// A gap, and the equations before which its copies are waited for and started.
#[derive(Clone, Copy, Debug)]
struct Trip {
    gap: Gap,
    /// The memory is free from here on.
    left: usize,
    /// The copy back starts here.
    returns: usize,
}

/// What is on the host when.
struct Placement<'a> {
    memory: &'a MemoryUse,
    starts: &'a [u64],
    link: HostLink,
    limit: usize,
    /// By equation: bytes that are there.
    there: Vec<usize>,
}

impl Search<'_> {
    /// Keeps what is there within a limit, as far as possible.
    fn within(&self, memory: &MemoryUse, limit: usize) -> Offloaded {
        let there = memory.there.clone();
        let (starts, link) = (&self.starts[..], self.link);
        let mut placement = Placement { memory, starts, link, limit, there };
        let gaps = placement.choose();
        let trips = placement.place(&gaps);
        let program = rewritten(self.program, memory, &trips);
        let plan = plan(&program, self.target);
        let (time, waits) = duration(&program, &self.link);
        let values = trips.iter().map(|trip| self.value(memory, &trip.gap)).collect();
        Offloaded { program, plan, values, time, waits }
    }

    fn value(&self, memory: &MemoryUse, gap: &Gap) -> MovedValue {
        let made = memory.used[gap.value.index()][0];
        let e = &self.program.equations[made];
        let spec = self.program.spec(gap.value);
        let bytes = spec.bytes() as u64;
        MovedValue {
            spec: spec.to_string(),
            op: e.op.name(),
            at: e.at,
            bytes: spec.bytes(),
            copies: [over(bytes, self.link.out), over(bytes, self.link.back)],
            idle: self.starts[gap.to] - self.starts[gap.from + 1],
            again: self.again(memory, made, gap.to),
        }
    }

    /// How long it takes to run an equation again at another one, with what it needs and is not
    /// there then.
    fn again(&self, memory: &MemoryUse, made: usize, at: usize) -> u64 {
        /// What takes more equations is not looked at closely.
        const DEEP: usize = 64;
        let definitions = self.program.definitions();
        let (mut seen, mut open, mut time) = (vec![made], vec![made], 0u64);
        while let Some(i) = open.pop() {
            let e = &self.program.equations[i];
            time = time.saturating_add(nanoseconds(self.program, e, &self.link));
            for v in &e.inputs {
                let root = memory.roots[v.index()];
                let is_there = memory.used[root.index()].last().is_some_and(|&last| last >= at);
                let Some(by) = definitions[root.index()].filter(|_| !is_there) else { continue };
                if seen.len() < DEEP && !seen.contains(&by) {
                    seen.push(by);
                    open.push(by);
                }
            }
        }
        time
    }
}

impl Placement<'_> {
    /// The values that go: where too much is there, those that are needed last.
    fn choose(&mut self) -> Vec<Gap> {
        let excess = self.memory.most().saturating_sub(self.limit);
        let mut left = self.memory.gaps(self.starts, excess / SMALL);
        // Copies that hide first, of values that are needed last; of these, the largest.
        let hides = |gap: &Gap| {
            let bytes = gap.bytes as u64;
            let way = over(bytes, self.link.out).saturating_add(over(bytes, self.link.back));
            self.starts[gap.to] - self.starts[gap.from + 1] >= way
        };
        left.sort_by_key(|gap| (hides(gap), gap.to, gap.bytes, gap.value));
        let mut chosen = Vec::new();
        for at in 0..self.there.len() {
            while self.there[at] > self.limit {
                let covers = |gap: &Gap| gap.from < at && at < gap.to;
                let Some(last) = left.iter().rposition(covers) else { break };
                let gap = left.remove(last);
                self.there[gap.from + 1..gap.to].iter_mut().for_each(|sum| *sum -= gap.bytes);
                chosen.push(gap);
            }
        }
        chosen.sort_by_key(|gap| (gap.from, gap.value));
        chosen
    }

    /// When copies are waited for and started, so that they hide behind the computation as far as
    /// there is memory for it.
    fn place(&mut self, gaps: &[Gap]) -> Vec<Trip> {
        let mut trips: Vec<Trip> =
            gaps.iter().map(|&gap| Trip { gap, left: gap.from + 1, returns: gap.to }).collect();
        let mut free = 0;
        for trip in &mut trips {
            let time = over(trip.gap.bytes as u64, self.link.out);
            free = free.max(self.starts[trip.left]).saturating_add(time);
            while trip.left < trip.gap.to
                && self.starts[trip.left] < free
                && self.fits(trip.left, trip.gap.bytes)
            {
                self.there[trip.left] += trip.gap.bytes;
                trip.left += 1;
            }
        }
        // Each comes back when it is needed, or when the next one starts: from the last on.
        let mut order: Vec<usize> = (0..trips.len()).collect();
        order.sort_by_key(|&i| (trips[i].gap.to, i));
        let mut begins = vec![0; trips.len()];
        let mut next = u64::MAX;
        for &i in order.iter().rev() {
            let time = over(trips[i].gap.bytes as u64, self.link.back);
            next = next.min(self.starts[trips[i].gap.to]).saturating_sub(time);
            begins[i] = next;
        }
        // Where there is memory for it: from the first to the last, as none overtakes another.
        let mut first = 0;
        for i in order {
            let trip = &mut trips[i];
            while trip.returns > trip.left.max(first)
                && self.starts[trip.returns] > begins[i]
                && self.fits(trip.returns - 1, trip.gap.bytes)
            {
                trip.returns -= 1;
                self.there[trip.returns] += trip.gap.bytes;
            }
            first = trip.returns;
        }
        trips
    }

    fn fits(&self, at: usize, bytes: usize) -> bool {
        self.there[at].saturating_add(bytes) <= self.limit
    }
}
