//! Register allocation.
//!
//! The body of a loop is straight-line code, so the best choice is known: when no register is free,
//! the value whose next use is furthest away is evicted (Belady). Values that are in memory anyway
//! (operands, slots, constants) are reloaded at their next use; others are spilled first. Constants
//! and row values are the same in every iteration, so as many of them as there are spare registers
//! stay in one for the whole loop.

use super::micro::{Body, Item, Lane, ValueOrigin};
use crate::region::plan::TableRef;

/// An instruction with registers.
#[derive(Clone, Copy, Debug)]
pub(super) enum RegisterOp {
    /// Loads a value that is in memory.
    Fetch {
        value: usize,
        to: u8,
    },
    /// Computes a value from registers.
    Do {
        value: usize,
        to: u8,
        from: [u8; 3],
    },
    /// Spills a value.
    Save {
        value: usize,
        from: u8,
        place: usize,
    },
    Restore {
        value: usize,
        to: u8,
        place: usize,
    },
    /// Writes a result.
    Put {
        value: usize,
        from: u8,
        to: TableRef,
    },
}

/// A body with registers.
pub(super) struct Assigned {
    /// Instructions that run once, before the loop.
    pub(super) before: Vec<RegisterOp>,
    pub(super) acts: Vec<RegisterOp>,
    /// Most values that are spilled at the same time.
    pub(super) places: usize,
}

/// The registers of a machine: how many for values, and for masks if these are separate.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    pub(super) vectors: u8,
    pub(super) masks: Option<(u8, u8)>,
}

const NEVER: usize = usize::MAX;

struct Allocator<'a> {
    body: &'a Body,
    registers: Registers,
    /// For each value its uses, in order, and how many of them are past.
    uses: Vec<Vec<usize>>,
    past: Vec<usize>,
    /// The register of each value, and the value in each register: vectors, then masks.
    of: Vec<Option<u8>>,
    held: [Vec<Option<usize>>; 2],
    pinned: Vec<bool>,
    place: Vec<Option<usize>>,
    free_places: Vec<usize>,
    places: usize,
    acts: Vec<RegisterOp>,
}

/// Assigns every value a register when it needs one.
pub(super) fn assign(body: &Body, registers: Registers, repeats: bool) -> Assigned {
    let mut uses: Vec<Vec<usize>> = vec![Vec::new(); body.values.len()];
    for (n, item) in body.items.iter().enumerate() {
        for_each_use(body, item, |v| uses[v].push(n));
    }
    let masks = registers.masks.map_or(0, |(_, count)| count);
    let mut all = Allocator {
        body,
        registers,
        past: vec![0; body.values.len()],
        of: vec![None; body.values.len()],
        held: [vec![None; registers.vectors.into()], vec![None; masks.into()]],
        pinned: vec![false; body.values.len()],
        place: vec![None; body.values.len()],
        free_places: Vec::new(),
        places: 0,
        acts: Vec::new(),
        uses,
    };
    if repeats {
        all.pin();
    }
    let before = std::mem::take(&mut all.acts);
    for (n, item) in body.items.iter().enumerate() {
        all.item(n, item);
    }
    Assigned { before, acts: all.acts, places: all.places }
}

fn for_each_use(body: &Body, item: &Item, mut f: impl FnMut(usize)) {
    match *item {
        Item::Make(v) => {
            if let ValueOrigin::Computed(_, of, count) = body.values[v].from {
                of[..count].iter().for_each(|&u| f(u));
            }
        }
        Item::Put(v, _) => f(v),
    }
}

impl Allocator<'_> {
    /// Which file of registers a value belongs to.
    fn file(&self, v: usize) -> usize {
        usize::from(self.body.values[v].lane == Lane::Mask && self.registers.masks.is_some())
    }

    fn next_use(&self, v: usize) -> usize {
        self.uses[v].get(self.past[v]).copied().unwrap_or(NEVER)
    }

    /// Keeps loop-invariant values in spare registers.
    fn pin(&mut self) {
        let body = self.body;
        let same =
            |v: usize| matches!(body.values[v].from, ValueOrigin::One(_) | ValueOrigin::Number(_));
        // The most values that live at once: computed ones from their definition, others from their
        // first use.
        let mut ends = vec![0isize; body.items.len() + 1];
        let mut start: Vec<Option<usize>> = self.uses.iter().map(|u| u.first().copied()).collect();
        for (n, item) in body.items.iter().enumerate() {
            if let Item::Make(v) = *item {
                start[v] = Some(n);
            }
        }
        for v in (0..body.values.len()).filter(|&v| !same(v) && self.file(v) == 0) {
            if let (Some(start), Some(&last)) = (start[v], self.uses[v].last()) {
                ends[start] += 1;
                ends[last + 1] -= 1;
            }
        }
        let (mut now, mut most) = (0, 0);
        for end in ends {
            now += end;
            most = most.max(now);
        }
        let spare = (isize::from(self.registers.vectors) - most - 3).max(0) as usize;
        let mut wanted: Vec<usize> =
            (0..body.values.len()).filter(|&v| same(v) && self.file(v) == 0).collect();
        wanted.retain(|&v| !self.uses[v].is_empty());
        wanted.sort_by_key(|&v| std::cmp::Reverse(self.uses[v].len()));
        for (n, &v) in wanted.iter().take(spare).enumerate() {
            let to = self.registers.vectors - 1 - n as u8;
            self.held[0][usize::from(to)] = Some(v);
            self.of[v] = Some(to);
            self.pinned[v] = true;
            self.acts.push(RegisterOp::Fetch { value: v, to });
        }
    }

    fn item(&mut self, n: usize, item: &Item) {
        match *item {
            Item::Make(v) => {
                let ValueOrigin::Computed(_, of, count) = self.body.values[v].from else { return };
                let mut from = [0; 3];
                if !self.uses[v].is_empty() {
                    for i in 0..count {
                        from[i] = self.load_into_register(of[i], &of[..count]);
                    }
                }
                for &u in &of[..count] {
                    self.used(u, n);
                }
                if self.uses[v].is_empty() {
                    return;
                }
                // Preferably the register of an operand that is not used again: some instructions
                // overwrite one.
                let file = self.file(v);
                let over = (0..count).rev().find(|&i| {
                    let (in_file, at) = self.spot(of[i], from[i]);
                    in_file == file && self.held[file][at].is_none()
                });
                let to = over.map_or_else(|| self.take(file, &[]), |i| from[i]);
                self.hold(v, to);
                self.acts.push(RegisterOp::Do { value: v, to, from });
            }
            Item::Put(v, to) => {
                let from = self.load_into_register(v, &[v]);
                self.acts.push(RegisterOp::Put { value: v, from, to });
                self.used(v, n);
            }
        }
    }

    /// Loads a value into a register, without evicting those of `with`.
    fn load_into_register(&mut self, v: usize, with: &[usize]) -> u8 {
        if let Some(there) = self.of[v] {
            return there;
        }
        let file = self.file(v);
        let to = self.take(file, with);
        self.hold(v, to);
        self.acts.push(match self.place[v] {
            Some(place) => RegisterOp::Restore { value: v, to, place },
            None => RegisterOp::Fetch { value: v, to },
        });
        to
    }

    fn hold(&mut self, v: usize, register: u8) {
        let (file, at) = self.spot(v, register);
        self.held[file][at] = Some(v);
        self.of[v] = Some(register);
    }

    fn spot(&self, v: usize, register: u8) -> (usize, usize) {
        let file = self.file(v);
        let first = if file == 1 { self.registers.masks.map_or(0, |m| m.0) } else { 0 };
        (file, usize::from(register - first))
    }

    /// Returns a free register, evicting a value if necessary.
    fn take(&mut self, file: usize, with: &[usize]) -> u8 {
        let first = if file == 1 { self.registers.masks.map_or(0, |m| m.0) } else { 0 };
        let (mut best, mut farthest) = (0, 0);
        for (at, held) in self.held[file].iter().enumerate() {
            match held {
                None => return first + at as u8,
                Some(v) if self.pinned[*v] || with.contains(v) => {}
                Some(v) => {
                    let next = self.next_use(*v).saturating_add(1);
                    if next > farthest {
                        (best, farthest) = (at, next);
                    }
                }
            }
        }
        if let Some(v) = self.held[file][best].take() {
            self.of[v] = None;
            let computed = matches!(self.body.values[v].from, ValueOrigin::Computed(..));
            if computed && self.place[v].is_none() && self.next_use(v) != NEVER {
                let place = self.free_places.pop().unwrap_or_else(|| {
                    self.places += 1;
                    self.places - 1
                });
                self.place[v] = Some(place);
                self.acts.push(RegisterOp::Save { value: v, from: first + best as u8, place });
            }
        }
        first + best as u8
    }

    /// Counts the uses of a value up to an item; one that is not used again frees its register.
    fn used(&mut self, v: usize, n: usize) {
        while self.next_use(v) <= n {
            self.past[v] += 1;
        }
        if self.next_use(v) == NEVER && !self.pinned[v] {
            if let Some(register) = self.of[v].take() {
                let (file, at) = self.spot(v, register);
                self.held[file][at] = None;
            }
            if let Some(place) = self.place[v].take() {
                self.free_places.push(place);
            }
        }
    }
}
