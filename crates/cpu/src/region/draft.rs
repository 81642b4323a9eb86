//! The steps of one pass: what is computed together, and the storage of its values.

use super::calls::TileKind;
use super::plan::{
    Draft, Native, NativeGroup, OPERANDS, PlannedPass, RegionPlan, ScalarStorage, ValueStorage,
    operands,
};
use pullback_ir::{DType, Inst};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Writes the steps of one pass.
pub(super) struct Drafter<'a, 'b> {
    plan: &'a mut RegionPlan<'b>,
    native: Option<Native<'a>>,
    /// The storage of each element value of this pass.
    at: Vec<Option<ValueStorage>>,
    /// The slot that holds a broadcast value as a whole tile.
    expanded: Vec<Option<usize>>,
    pass: PlannedPass,
}

impl<'a, 'b> Drafter<'a, 'b> {
    pub(super) fn new(plan: &'a mut RegionPlan<'b>, native: Option<Native<'a>>) -> Self {
        let count = plan.values.len();
        let (at, expanded) = (vec![None; count], vec![None; count]);
        Drafter { plan, native, at, expanded, pass: PlannedPass::default() }
    }

    fn slot(&mut self, kind: TileKind) -> usize {
        self.pass.slots.push(kind);
        self.pass.slots.len() - 1
    }

    /// The storage of a value that is kept between passes.
    fn kept(&self, v: usize) -> Option<ValueStorage> {
        let kept = self.plan.kept.iter().position(|&k| k == v)?;
        Some(ValueStorage::Memory(self.plan.kept_entry(kept)))
    }

    fn is_native(&self, v: usize) -> bool {
        let plan = &*self.plan;
        let Inst::Point(op, of) = &plan.region.body[v] else { return false };
        let from: SmallVec<[DType; 3]> = of.iter().map(|&u| plan.values[u].dtype).collect();
        self.native.is_some_and(|native| native(op, &from, plan.values[v].dtype))
    }

    pub(super) fn draft(
        mut self,
        compute: &[usize],
        again: &[usize],
        reduces: &[usize],
        stores: &[(usize, usize)],
    ) -> PlannedPass {
        for &v in again {
            self.at[v] = self.kept(v);
        }
        // What is read without a copy needs no step.
        let mut made = Vec::new();
        for &v in compute {
            match self.plan.region.body[v] {
                Inst::Load(k) if self.plan.domain.access[k].is_direct() => {
                    let entry = OPERANDS + k as u32;
                    let broadcast = self.plan.domain.access[k].is_broadcast();
                    self.at[v] = Some(match broadcast {
                        true => ValueStorage::One(ScalarStorage::Operand(entry)),
                        false => ValueStorage::Memory(entry),
                    });
                }
                _ => made.push(v),
            }
        }
        let pieces = self.schedule(&made);
        let mut piece_of = vec![usize::MAX; self.plan.values.len()];
        for (n, piece) in pieces.iter().enumerate() {
            piece.values.iter().for_each(|&v| piece_of[v] = n);
        }
        // Which values are read after their piece, and the last read of each operand.
        let mut outlives = vec![false; self.plan.values.len()];
        let mut touched = vec![0; self.plan.region.inputs.len()];
        let reader = |v: usize| match self.plan.region.body[v] {
            Inst::Load(k) | Inst::Random(_, k, _) => Some(k),
            Inst::Literal(..) | Inst::Index(..) | Inst::Point(..) | Inst::Reduce(..) => None,
        };
        for &v in &made {
            if let Some(k) = reader(v) {
                touched[k] = touched[k].max(piece_of[v]);
            }
            for &u in operands(&self.plan.region.body[v]) {
                let u = self.plan.same[u];
                outlives[u] |= piece_of[u] != piece_of[v];
                if let Some(k) = reader(u) {
                    touched[k] = touched[k].max(piece_of[v]);
                }
            }
        }
        for v in reduces.iter().map(|&r| self.plan.reduces[r].of).chain(stores.iter().map(|s| s.1))
        {
            if let Some(k) = reader(v) {
                touched[k] = usize::MAX;
            }
        }
        reduces.iter().for_each(|&r| outlives[self.plan.reduces[r].of] = true);
        // Results that are written by the piece that computes them; the others are stored at the
        // end.
        let mut direct: Vec<Vec<(usize, bool)>> = vec![Vec::new(); self.plan.values.len()];
        let mut at_the_end = Vec::new();
        let latest = |of: &Vec<usize>| of.iter().map(|&k| touched[k]).max().unwrap_or(0);
        let latest = self.plan.aliases.each_ref().map(latest);
        for &(o, v) in stores {
            let class = self.plan.size_class(o);
            let aliases = &self.plan.aliases[class];
            let piece = piece_of[v];
            let plain = TileKind::plain(self.plan.values[self.plan.region.outputs[o]].dtype);
            let ok = piece != usize::MAX
                && plain
                && match pieces[piece].native {
                    true => latest[class] <= piece,
                    false => {
                        aliases.is_empty()
                            && self.kept(v).is_none()
                            && matches!(self.plan.region.body[v], Inst::Point(..))
                            && direct[v].is_empty()
                    }
                };
            match ok {
                true => direct[v].push((o, !aliases.is_empty())),
                false => {
                    at_the_end.push((o, v));
                    outlives[v] = true;
                }
            }
        }
        for piece in &pieces {
            match piece.native {
                true => self.group(&piece.values, &outlives, &direct),
                false => piece.values.iter().for_each(|&v| self.single(v, &direct)),
            }
        }
        for &r in reduces {
            let from = self.vector(self.plan.reduces[r].of);
            self.pass.steps.push(Draft::Fold { reduce: r, from });
        }
        // A result that is an unchanged operand is copied before another result may overwrite that
        // operand.
        let mut classes = [false; 4];
        at_the_end.iter().for_each(|s: &(usize, usize)| classes[self.plan.size_class(s.0)] = true);
        let mut written = vec![false; self.plan.region.inputs.len()];
        for (aliases, _) in self.plan.aliases.iter().zip(classes).filter(|(_, found)| *found) {
            aliases.iter().for_each(|&k| written[k] = true);
        }
        let mut moves = Vec::new();
        for (output, v) in at_the_end {
            let mut from = self.vector(v);
            if let Inst::Load(k) = self.plan.region.body[v]
                && matches!(from, ValueStorage::Memory(_))
                && written[k]
                && stores.len() > 1
            {
                let to = ValueStorage::Slot(self.slot(self.plan.kind(v)));
                self.pass.steps.push(Draft::Copy { value: v, from, to });
                from = to;
            }
            moves.push(Draft::Store { output, from });
        }
        self.pass.steps.extend(moves);
        self.pass
    }

    /// Splits the values into pieces that run in sequence: native ones as large as possible,
    /// between single calls.
    fn schedule(&self, made: &[usize]) -> Vec<DraftGroup> {
        if self.native.is_none() {
            return vec![DraftGroup { native: false, values: made.to_vec() }];
        }
        let plan = &*self.plan;
        let mut waits = vec![0usize; plan.values.len()];
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); plan.values.len()];
        let is_made = |v: usize| made.binary_search(&v).is_ok();
        let natives: Vec<bool> = (0..plan.values.len()).map(|v| self.is_native(v)).collect();
        let (mut fast, mut calls) = (BinaryHeap::new(), BinaryHeap::new());
        for &v in made {
            for &u in operands(&plan.region.body[v]) {
                let u = plan.same[u];
                if is_made(u) {
                    waits[v] += 1;
                    readers[u].push(v);
                }
            }
            if waits[v] == 0 {
                if natives[v] { fast.push(Reverse(v)) } else { calls.push(Reverse(v)) }
            }
        }
        let mut pieces = Vec::new();
        while !fast.is_empty() || !calls.is_empty() {
            for native in [true, false] {
                let mut values = Vec::new();
                while let Some(Reverse(v)) = if native { fast.pop() } else { calls.pop() } {
                    values.push(v);
                    for &r in &readers[v] {
                        waits[r] -= 1;
                        if waits[r] == 0 {
                            if natives[r] { fast.push(Reverse(r)) } else { calls.push(Reverse(r)) }
                        }
                    }
                }
                if !values.is_empty() {
                    pieces.push(DraftGroup { native, values });
                }
            }
        }
        pieces
    }

    /// A value as native code reads it: elements, or one for all.
    fn found(&mut self, v: usize) -> ValueStorage {
        if !self.plan.values[v].row {
            return self.at[v].unwrap_or(ValueStorage::Slot(usize::MAX));
        }
        match self.plan.rows[v] {
            None => ValueStorage::One(ScalarStorage::Constant(v)),
            Some(_) if self.plan.domain.many => self.vector(v),
            Some(row) => ValueStorage::One(ScalarStorage::Row(row)),
        }
    }

    /// A value as contiguous elements.
    fn vector(&mut self, v: usize) -> ValueStorage {
        if let Some(slot) = self.expanded[v] {
            return ValueStorage::Slot(slot);
        }
        let from = match (self.plan.values[v].row, self.plan.rows[v]) {
            (true, None) => {
                let tiles = &mut self.plan.tiles;
                let known = tiles.iter().position(|&t| t == v);
                return ValueStorage::Constant(known.unwrap_or_else(|| {
                    tiles.push(v);
                    tiles.len() - 1
                }));
            }
            (true, Some(row)) => ScalarStorage::Row(row),
            (false, _) => match self.found(v) {
                ValueStorage::One(place) => place,
                at => return at,
            },
        };
        let kind = self.plan.kind(v);
        let slot = self.slot(kind);
        self.expanded[v] = Some(slot);
        self.pass.steps.push(Draft::Expand { from, kind, to: ValueStorage::Slot(slot) });
        ValueStorage::Slot(slot)
    }

    /// The step of a value that is not native.
    fn single(&mut self, v: usize, direct: &[Vec<(usize, bool)>]) {
        let region = self.plan.region;
        let out = direct[v].first().map(|d| ValueStorage::Memory(self.plan.output_entry(d.0)));
        let from: SmallVec<[ValueStorage; 3]> = match &region.body[v] {
            Inst::Point(_, of) => of.iter().map(|&u| self.vector(self.plan.alias_of(u))).collect(),
            _ => SmallVec::new(),
        };
        let to = out.or_else(|| self.kept(v));
        let to = to.unwrap_or_else(|| ValueStorage::Slot(self.slot(self.plan.kind(v))));
        self.at[v] = Some(to);
        self.pass.steps.push(match region.body[v] {
            Inst::Load(input) => Draft::Gather { input, to },
            Inst::Index(axis, dtype) => Draft::Index { axis, dtype, to },
            Inst::Random(kind, key, dtype) => Draft::Random { kind, key, dtype, to },
            Inst::Point(..) | Inst::Literal(..) | Inst::Reduce(..) => {
                Draft::Call { value: v, from, to }
            }
        });
    }

    /// The step of values that are native.
    fn group(&mut self, values: &[usize], outlives: &[bool], direct: &[Vec<(usize, bool)>]) {
        let mut group = NativeGroup { values: values.to_vec(), ..NativeGroup::default() };
        let mut seen = vec![false; self.plan.values.len()];
        values.iter().for_each(|&v| seen[v] = true);
        for &v in values {
            let region = self.plan.region;
            for &u in operands(&region.body[v]) {
                let u = self.plan.alias_of(u);
                if !std::mem::replace(&mut seen[u], true) {
                    let at = self.found(u);
                    group.reads.push((u, at));
                }
            }
        }
        for &v in values {
            let kept = self.kept(v);
            if outlives[v] || kept.is_some() {
                let to = kept.unwrap_or_else(|| ValueStorage::Slot(self.slot(self.plan.kind(v))));
                self.at[v] = Some(to);
                group.writes.push((v, to, false));
            }
            for &(output, wait) in &direct[v] {
                group.writes.push((v, ValueStorage::Memory(self.plan.output_entry(output)), wait));
            }
        }
        self.pass.steps.push(Draft::Native(group));
    }
}

/// Values that are computed together.
struct DraftGroup {
    native: bool,
    values: Vec<usize>,
}

/// Assigns each slot a location that it shares with slots not in use at the same time: for each
/// slot, its number among the locations of its kind. Also returns how many locations each kind
/// needs.
pub(super) fn share_slots(pass: &PlannedPass) -> (Vec<usize>, [usize; 4]) {
    let mut last = vec![0; pass.slots.len()];
    for (n, step) in pass.steps.iter().enumerate() {
        each_slot(step, |slot, _| last[slot] = n);
    }
    let mut place = vec![0; pass.slots.len()];
    let mut free: [Vec<usize>; 4] = Default::default();
    let mut used = [0; 4];
    for (n, step) in pass.steps.iter().enumerate() {
        // Results get locations first: a step never writes a location that it reads.
        each_slot(step, |slot, written| {
            if written {
                let kind = pass.slots[slot] as usize;
                place[slot] = free[kind].pop().unwrap_or_else(|| {
                    used[kind] += 1;
                    used[kind] - 1
                });
            }
        });
        let mut done: SmallVec<[usize; 8]> = SmallVec::new();
        each_slot(step, |slot, _| {
            if last[slot] == n && !done.contains(&slot) {
                done.push(slot);
                free[pass.slots[slot] as usize].push(place[slot]);
            }
        });
    }
    (place, used)
}

/// Calls `f` with each slot of a step and whether it is written.
fn each_slot(step: &Draft, mut f: impl FnMut(usize, bool)) {
    let mut see = |at: &ValueStorage, written: bool| {
        if let ValueStorage::Slot(slot) = at {
            f(*slot, written);
        }
    };
    match step {
        Draft::Gather { to, .. }
        | Draft::Index { to, .. }
        | Draft::Random { to, .. }
        | Draft::Expand { to, .. } => see(to, true),
        Draft::Copy { from, to, .. } => {
            see(from, false);
            see(to, true);
        }
        Draft::Call { from, to, .. } => {
            from.iter().for_each(|at| see(at, false));
            see(to, true);
        }
        Draft::Native(group) => {
            group.reads.iter().for_each(|r| see(&r.1, false));
            group.writes.iter().for_each(|w| see(&w.1, true));
        }
        Draft::Fold { from, .. } | Draft::Store { from, .. } => see(from, false),
    }
}
