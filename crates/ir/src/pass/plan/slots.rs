//! From a program to its plan: roots of views, lifetimes, slots, locations.
//!
//! Time starts at 0, when the inputs exist; equation `e` runs at time `e + 1`, and the outputs are
//! read at the end.

use super::super::Target;
use super::compose::compose;
use super::overwrite::Large;
use super::pack::{Interval, most_alive, pack};
use super::share::{piece, product_result};
use super::{
    Base, CONSTANT, Live, Location, Move, Plan, ProductLocation, ScratchRole, ScratchSlot,
};
use crate::{Flow, Inst, Layout, Op, Program, Region, ResultMemory, Transfer, Var};
use rustc_hash::FxHashMap;

/// Variables that use the same memory one after the other.
pub(super) struct Slot {
    pub base: Base,
    /// The first byte, if it is not set by the packer.
    pub offset: usize,
    pub bytes: usize,
    /// When it begins, and which result of the equation begins it.
    pub start: usize,
    pub result: usize,
    /// The time of the last use of its last variable.
    pub end: usize,
    /// The time of the last equation that checked whether it is free.
    pub checked: usize,
    /// Each variable in it and the time of its definition.
    pub members: Vec<(usize, Var)>,
}

const NONE: usize = usize::MAX;

/// Plans a top-level program, whose outputs are aligned as the arena is.
pub(super) fn plan(
    program: &Program,
    updates: &[(usize, usize)],
    inputs: &[Layout],
    target: Target,
) -> Plan {
    let mut planner = Planner::new(program, updates, inputs, target);
    planner.last_fallible =
        program.equations.iter().rposition(|e| target.may_fail(&e.op)).map_or(0, |e| e + 1);
    planner.fill_slots();
    planner.borrow();
    planner.finish(true)
}

/// Plans a program inside another one.
fn plan_inner(
    program: &Program,
    updates: &[(usize, usize)],
    inputs: &[Layout],
    target: Target,
) -> Plan {
    let mut planner = Planner::new(program, updates, inputs, target);
    planner.fill_slots();
    planner.finish(false)
}

pub(super) struct Planner<'a> {
    pub program: &'a Program,
    pub target: Target,
    /// By output: the inputs that it replaces.
    replaces: Vec<Vec<usize>>,
    /// By variable: whether it is an input that is replaced.
    replaced: Vec<bool>,
    /// The root of each variable: itself, or the base of a view.
    pub roots: Vec<Var>,
    /// Its layout in the memory of the root.
    pub layouts: Vec<Layout>,
    /// By root: the time when it is read last.
    last: Vec<usize>,
    /// By root: its final destinations, if it can be computed there.
    wanted: Vec<Vec<Base>>,
    pub slots: Vec<Slot>,
    /// By root.
    slot_of: Vec<usize>,
    /// By root: its offset in bytes from the start of its slot.
    shifts: Vec<usize>,
    /// By equation, those with many operands or results.
    pub large: FxHashMap<usize, Large>,
    constants: usize,
    /// The time of the last equation that may fail. Inputs are not written before it has run, so
    /// that a failed call changes nothing.
    last_fallible: usize,
    inner: Vec<Vec<Plan>>,
    pub products: Vec<Option<ProductLocation>>,
    loads: Vec<Vec<(usize, Layout)>>,
    scratch: Vec<Vec<(ScratchRole, usize)>>,
}

impl<'a> Planner<'a> {
    pub fn new(
        program: &'a Program,
        updates: &'a [(usize, usize)],
        inputs: &[Layout],
        target: Target,
    ) -> Planner<'a> {
        let count = program.equations.len();
        let dense = |v: usize| Layout::dense(program.specs[v].shape.clone());
        let mut replaces = vec![Vec::new(); program.outputs.len()];
        let mut replaced = vec![false; program.specs.len()];
        for &(k, i) in updates {
            replaces[k].push(i);
            replaced[program.inputs[i].index()] = true;
        }
        let mut planner = Planner {
            program,
            target,
            replaces,
            replaced,
            roots: (0..program.specs.len() as u32).map(Var).collect(),
            layouts: (0..program.specs.len()).map(dense).collect(),
            last: vec![0; program.specs.len()],
            wanted: vec![Vec::new(); program.specs.len()],
            slots: Vec::new(),
            slot_of: vec![NONE; program.specs.len()],
            shifts: vec![0; program.specs.len()],
            large: FxHashMap::default(),
            constants: 0,
            last_fallible: 0,
            inner: vec![Vec::new(); count],
            products: vec![None; count],
            loads: vec![Vec::new(); count],
            scratch: vec![Vec::new(); count],
        };
        for (&v, layout) in program.inputs.iter().zip(inputs) {
            planner.layouts[v.index()] = layout.clone();
        }
        planner.find_roots();
        planner.find_ends();
        for (i, &v) in program.inputs.iter().enumerate() {
            let (bytes, end) = (program.spec(v).bytes(), planner.last[v.index()]);
            planner.open(v, Base::Input(i), bytes, (0, NONE), end);
        }
        planner
    }

    /// The last read of each root, and its destinations.
    fn find_ends(&mut self) {
        let count = self.program.equations.len();
        for (e, equation) in self.program.equations.iter().enumerate() {
            // A view counts as a read, so that its base is alive at least when it is defined.
            for v in equation.inputs.iter().chain(&equation.outputs) {
                self.last[self.roots[v.index()].index()] = e + 1;
            }
        }
        for (k, &v) in self.program.outputs.iter().enumerate() {
            let root = self.roots[v.index()];
            self.last[root.index()] = count + 1;
            if self.is_whole(v) {
                let wanted: Vec<Base> = self.destinations(k).collect();
                self.wanted[root.index()].extend(wanted);
            }
        }
    }

    /// The destinations of output `k`.
    fn destinations(&self, k: usize) -> impl Iterator<Item = Base> + use<'_> {
        let replaced = self.replaces[k].iter().map(|&i| Base::Input(i));
        replaced.chain(self.is_own(k).then_some(Base::Output(k)))
    }

    /// Whether an output replaces no input.
    pub fn is_own(&self, k: usize) -> bool {
        self.replaces[k].is_empty()
    }

    /// Whether an equation only refers to the memory of its operand.
    fn is_alias(&self, e: usize) -> bool {
        let equation = &self.program.equations[e];
        let refers = equation.op.memory() == ResultMemory::Operand;
        refers && equation.outputs.iter().any(|v| self.roots[v.index()] != *v)
    }

    /// Whether a variable is all of its root's memory, in order.
    pub fn is_whole(&self, v: Var) -> bool {
        let layout = &self.layouts[v.index()];
        let root = self.program.spec(self.roots[v.index()]);
        layout.is_dense()
            && (layout.offset == 0 || layout.is_empty())
            && layout.len() == root.len()
            && self.layouts[self.roots[v.index()].index()].is_dense()
    }

    pub fn slot(&self, v: Var) -> usize {
        self.slot_of[self.roots[v.index()].index()]
    }

    fn open(&mut self, v: Var, base: Base, bytes: usize, begun: (usize, usize), end: usize) {
        self.slot_of[v.index()] = self.slots.len();
        let (start, result) = begun;
        let members = vec![(start, v)];
        self.slots.push(Slot { base, offset: 0, bytes, start, result, end, checked: 0, members });
    }

    pub fn has_slot(&self, root: Var) -> bool {
        self.slot_of[root.index()] != NONE
    }

    /// Opens the slot of a result in the arena, before it is made.
    pub fn begin(&mut self, root: Var, begun: (usize, usize)) {
        let (bytes, end) = (self.program.spec(root).bytes(), self.last[root.index()]);
        self.open(root, Base::Arena, bytes, begun, end);
    }

    fn fill_slots(&mut self) {
        for e in 0..self.program.equations.len() {
            let equation = &self.program.equations[e];
            if self.is_alias(e) {
                continue;
            }
            if let Op::Literal { .. } = equation.op {
                let at = equation.outputs[0];
                self.open(at, Base::Constants, CONSTANT, (e + 1, 0), self.last[at.index()]);
                self.constants += CONSTANT;
                continue;
            }
            if equation.op == Op::Transfer(Transfer::Offload) {
                let v = equation.outputs[0];
                let (bytes, end) = (self.program.spec(v).bytes(), self.last[v.index()]);
                self.open(v, Base::Host, bytes, (e + 1, 0), end);
                continue;
            }
            self.look_at(e);
            let mut free = self.used_up(e);
            for result in 0..equation.outputs.len() {
                if !self.begun(e, result) {
                    self.assign_slot(e, result, &mut free);
                }
            }
            match &equation.op {
                Op::Region(region) => self.load(e, region, 0),
                Op::DotRegion(region) => {
                    let specs = self.program.specs_of(&equation.outputs);
                    let product = match product_result(region, &specs) {
                        Some(result) => ProductLocation::InResult(result),
                        None => ProductLocation::Separate,
                    };
                    if product == ProductLocation::Separate {
                        let bytes = region.inputs[0].spec.bytes();
                        self.scratch[e].push((ScratchRole::Product, bytes));
                    }
                    self.products[e] = Some(product);
                    self.load(e, region, 2);
                }
                Op::Flow(flow) => self.plan_inside(e, flow),
                _ => {}
            }
        }
    }

    /// Finds memory for a result: over an operand, in its destination, or in the arena. `free` are
    /// the slots that the equation reads for the last time and no other of its results has reused.
    fn assign_slot(&mut self, e: usize, result: usize, free: &mut Vec<usize>) {
        let v = self.program.equations[e].outputs[result];
        let (bytes, end) = (self.program.spec(v).bytes(), self.last[v.index()]);
        if let Some((root, by)) = self.piece_of(e) {
            return self.grow(e, root, by);
        }
        let mut wanted = self.wanted[v.index()].clone();
        // Replacing an input saves a copy; the memory of a new output is available anyway.
        wanted.sort_by_key(|base| !matches!(base, Base::Input(_)));
        let over = free.iter().position(|&slot| self.may_overwrite(e, result, slot));
        let over = over.map(|at| (at, free[at]));
        let begun = over.map(|(_, slot)| (self.slots[slot].start, self.slots[slot].result));
        let there = |begun: (usize, usize)| {
            wanted.iter().copied().find(|&base| self.is_free(base, begun.0, begun.1))
        };
        let (alone, together) = (there((e + 1, result)), begun.and_then(there));
        match over {
            // Not if it costs a copy at the end.
            Some((at, slot)) if together.is_some() || alone.is_none() => {
                self.slots[slot].base = together.unwrap_or(Base::Arena);
                self.slots[slot].end = end;
                self.slots[slot].members.push((e + 1, v));
                self.slot_of[v.index()] = slot;
                free.remove(at);
            }
            _ => {
                self.open(v, alone.unwrap_or(Base::Arena), bytes, (e + 1, result), end);
            }
        }
    }

    /// The value, read for the last time by this equation, that can stay in place as a piece of the
    /// result, and the offset of the result from it in bytes.
    fn piece_of(&self, e: usize) -> Option<(Var, isize)> {
        let equation = &self.program.equations[e];
        let [v] = equation.outputs[..] else { return None };
        let spec = self.program.spec(v);
        if !self.wanted[v.index()].is_empty() {
            return None;
        }
        let shapes: Vec<_> = equation.inputs.iter().map(|x| &self.program.spec(*x).shape).collect();
        equation.inputs.iter().enumerate().find_map(|(k, &x)| {
            let at = piece(&equation.op, k, &shapes, &spec.shape)?;
            let (root, lies) = (self.roots[x.index()], &self.layouts[x.index()]);
            let slot = self.slot(x);
            let free = self.slots[slot].base == Base::Arena && self.slots[slot].end == e + 1;
            let alone = || equation.inputs.iter().filter(|&&y| self.slot(y) == slot).count() == 1;
            // Not if it is a small part of either.
            let most = 2 * lies.len() >= spec.len().max(self.program.spec(root).len());
            let kept = lies.is_dense() && !lies.is_empty() && self.base_is_plain(e);
            let by = (lies.offset as isize - at as isize) * spec.dtype.size() as isize;
            (free && most && kept && alone()).then_some((root, by))
        })
    }

    /// Whether the base of a piece is dense or one number, so that it can be copied around the
    /// piece.
    fn base_is_plain(&self, e: usize) -> bool {
        let equation = &self.program.equations[e];
        let Op::Put(_) = equation.op else { return true };
        let base = &self.layouts[equation.inputs[0].index()];
        base.is_dense() || base.strides.iter().all(|&s| s == 0)
    }

    /// Places the result of an equation this many bytes after a value, in its slot.
    fn grow(&mut self, e: usize, root: Var, by: isize) {
        let v = self.program.equations[e].outputs[0];
        let slot = &mut self.slots[self.slot_of[root.index()]];
        let begins = self.shifts[root.index()] as isize + by;
        // A result that would start before the slot shifts everything in it.
        let front = (-begins).max(0) as usize;
        slot.members.iter().for_each(|m| self.shifts[m.1.index()] += front);
        self.shifts[v.index()] = (begins + front as isize) as usize;
        let ends = self.shifts[v.index()].saturating_add(self.program.spec(v).bytes());
        slot.bytes = slot.bytes.saturating_add(front).max(ends);
        slot.end = self.last[v.index()];
        slot.members.push((e + 1, v));
        self.slot_of[v.index()] = self.slot_of[root.index()];
    }

    /// Whether a slot that begins with that result can stay in this memory to the end.
    fn is_free(&self, base: Base, start: usize, result: usize) -> bool {
        match base {
            Base::Output(_) => true,
            // The slots of inputs come first, in order.
            Base::Input(i) => {
                let end = self.slots[i].end;
                start > self.last_fallible && end < start
                    || start > self.last_fallible
                        && end == start
                        && self.may_overwrite(start - 1, result, i)
            }
            Base::Arena | Base::Constants | Base::Host => false,
        }
    }

    /// Operands of regions must be dense, or have a layout that composes with the region's.
    fn load(&mut self, e: usize, region: &Region, first: usize) {
        for (k, &x) in self.program.equations[e].inputs.iter().enumerate().skip(first) {
            let lies = &self.layouts[x.index()];
            if lies.is_dense() {
                continue;
            }
            let number = if first == 0 { k } else { k - 1 };
            let is_key = |inst: &Inst| matches!(inst, Inst::Random(_, key, _) if *key == number);
            let composed = match region.body.iter().any(is_key) {
                true => None,
                false => compose(&region.inputs[number].layout, lies),
            };
            match composed {
                Some(layout) => self.loads[e].push((k, layout)),
                None => self.scratch[e].push((ScratchRole::Dense(k), self.program.spec(x).bytes())),
            }
        }
    }

    fn plan_inside(&mut self, e: usize, flow: &Flow) {
        let (equation, target) = (&self.program.equations[e], self.target);
        let lies = |&v: &Var| Layout { offset: 0, ..self.layouts[v.index()].clone() };
        let dense = |&v: &Var| Layout::dense(self.program.spec(v).shape.clone());
        let carried = |shared: usize, state: usize| -> Vec<(usize, usize)> {
            (0..state).map(|c| (c, shared + c)).collect()
        };
        let inner = match flow {
            Flow::Cond { yes, no } => {
                let given: Vec<Layout> = equation.inputs[1..].iter().map(lies).collect();
                vec![plan_inner(yes, &[], &given, target), plan_inner(no, &[], &given, target)]
            }
            Flow::While { test, body, shared } => {
                let (fixed, state) = equation.inputs.split_at(*shared);
                let given: Vec<Layout> =
                    fixed.iter().map(lies).chain(state.iter().map(dense)).collect();
                self.scratch[e].push((ScratchRole::Test, 1));
                let updates = carried(*shared, state.len());
                vec![
                    plan_inner(test, &[], &given, target),
                    plan_inner(body, &updates, &given, target),
                ]
            }
            Flow::Scan(scan) => {
                let (fixed, rest) = equation.inputs.split_at(scan.shared);
                let (carry, sequences) = rest.split_at(scan.carry);
                let row = |v: &Var| {
                    let Layout { mut shape, mut strides, .. } = lies(v);
                    shape.remove(0);
                    strides.remove(0);
                    Layout { shape, strides, offset: 0 }
                };
                let given: Vec<Layout> = (fixed.iter().map(lies))
                    .chain(carry.iter().map(dense))
                    .chain(sequences.iter().map(row))
                    .collect();
                vec![plan_inner(&scan.body, &carried(scan.shared, scan.carry), &given, target)]
            }
        };
        let bytes = inner.iter().map(|plan| plan.arena).max().unwrap_or(0);
        self.scratch[e].push((ScratchRole::Inner, bytes));
        self.inner[e] = inner;
    }

    /// The copies at the end, without temporaries.
    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (k, &var) in self.program.outputs.iter().enumerate() {
            for to in self.destinations(k) {
                let slot = &self.slots[self.slot(var)];
                // A slot that only borrowed the memory of an output has ended by now.
                let there = slot.base == to && slot.end > self.program.equations.len();
                let there = there && self.is_whole(var);
                if !there {
                    moves.push(Move { var, to, via: None });
                }
            }
        }
        moves.sort_by_key(|m| matches!(m.to, Base::Input(_)));
        moves
    }

    /// Whether a copy reads an input that another one overwrites.
    fn must_wait(&self, m: &Move) -> bool {
        matches!(m.to, Base::Input(_)) && self.replaced[self.roots[m.var.index()].index()]
    }

    /// The line of the equation that runs at a time.
    fn made_at(&self, time: usize) -> Option<crate::Line> {
        let equation = time.checked_sub(1).and_then(|e| self.program.equations.get(e));
        equation.and_then(|equation| equation.at)
    }

    /// Everything in the arena, in a fixed order (slots, scratch, temporaries), with what it is.
    fn arena_blocks(&self, moves: &[Move]) -> (Vec<Interval>, Vec<Live>) {
        let count = self.program.equations.len();
        let mut blocks: Vec<Interval> = Vec::new();
        let mut names: Vec<Live> = Vec::new();
        for slot in self.slots.iter().filter(|slot| slot.base == Base::Arena) {
            let bytes = self.target.padded(slot.bytes);
            blocks.push(Interval { bytes, start: slot.start, end: slot.end });
            let (time, var) = slot.members[0];
            names.push(Live { var, bytes, at: self.made_at(time), scratch: false });
        }
        for (e, list) in self.scratch.iter().enumerate() {
            for &(_, bytes) in list {
                let outputs = &self.program.equations[e].outputs;
                let (bytes, var) =
                    (self.target.padded(bytes), outputs.first().copied().unwrap_or(Var(0)));
                blocks.push(Interval { bytes, start: e + 1, end: e + 1 });
                names.push(Live { var, bytes, at: self.made_at(e + 1), scratch: true });
            }
        }
        for m in moves {
            if self.must_wait(m) {
                let bytes = self.target.padded(self.program.spec(m.var).bytes());
                blocks.push(Interval { bytes, start: count + 1, end: count + 1 });
                names.push(Live { var: m.var, bytes, at: None, scratch: true });
            }
        }
        (blocks, names)
    }

    /// Where each variable is; `starts` are those of the slots.
    fn locations(&mut self, starts: &[usize]) -> Vec<Location> {
        let location = |v: usize| {
            let layout =
                std::mem::replace(&mut self.layouts[v], Layout::dense(crate::Shape::new()));
            let root = self.roots[v].index();
            match self.slot_of[root] {
                NONE => Location { base: Base::Arena, start: 0, layout },
                slot => Location {
                    base: self.slots[slot].base,
                    start: starts[slot] + self.shifts[root],
                    layout,
                },
            }
        };
        (0..self.program.specs.len()).map(location).collect()
    }

    /// Packs the arena. The outputs of a program inside another one are memory of that one, and not
    /// counted here.
    fn finish(mut self, alone: bool) -> Plan {
        let count = self.program.equations.len();
        let mut moves = self.moves();
        let (blocks, names) = self.arena_blocks(&moves);
        let (offsets, arena) = pack(&blocks);
        let peak_at = most_alive(&blocks).0;
        let mut next = offsets.iter().copied();
        let mut take = || next.next().unwrap_or(0);
        let (away, host) = self.pack_host();
        let mut away = away.into_iter();

        let mut constant = 0;
        let mut starts = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            starts.push(match slot.base {
                Base::Arena => take(),
                Base::Host => away.next().unwrap_or(0),
                Base::Constants => {
                    constant += CONSTANT;
                    constant - CONSTANT
                }
                Base::Input(_) | Base::Output(_) => slot.offset,
            });
        }
        let mut scratch = vec![Vec::new(); count];
        for (out, list) in scratch.iter_mut().zip(&self.scratch) {
            out.extend(list.iter().map(|&(role, bytes)| ScratchSlot {
                role,
                start: take(),
                bytes,
            }));
        }
        for m in &mut moves {
            if self.must_wait(m) {
                m.via = Some(take());
            }
        }

        // Which variable of a slot is alive at the peak, and what the programs of that equation
        // use.
        let mut in_arena = self.slots.iter().filter(|slot| slot.base == Base::Arena);
        let mut live: Vec<Live> = Vec::new();
        for (block, mut name) in blocks.iter().zip(names) {
            let slot = in_arena.next();
            if block.bytes == 0 || block.start > peak_at || block.end < peak_at {
                continue;
            }
            let now = slot.and_then(|s| s.members.iter().rev().find(|m| m.0 <= peak_at));
            if let Some(&(time, var)) = now {
                (name.var, name.at) = (var, self.made_at(time));
            }
            let inner = self.inner.get(peak_at.max(1) - 1).filter(|_| name.scratch);
            let largest = inner.and_then(|plans| plans.iter().max_by_key(|plan| plan.arena));
            match largest.filter(|plan| plan.arena == block.bytes) {
                Some(plan) => live.extend(&plan.live),
                None => live.push(name),
            }
        }
        let mut outputs = 0usize;
        let defined = self.program.definitions();
        for (k, &var) in self.program.outputs.iter().enumerate() {
            if alone && self.is_own(k) {
                let bytes = self.program.spec(var).bytes();
                let at = defined[var.index()].and_then(|e| self.made_at(e + 1));
                live.push(Live { var, bytes, at, scratch: false });
                outputs = outputs.saturating_add(bytes);
            }
        }
        live.sort_by_key(|l| std::cmp::Reverse(l.bytes));

        let locations = self.locations(&starts);
        debug_assert!(arena.is_multiple_of(self.target.align));
        self.add_products();
        Plan {
            locations,
            scratch,
            inner: self.inner,
            products: self.products,
            loads: self.loads,
            moves,
            arena,
            constants: self.constants,
            host,
            outputs,
            peak_at: peak_at.max(1) - 1,
            live,
        }
    }
}
