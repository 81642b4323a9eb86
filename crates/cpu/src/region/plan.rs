//! From a region to passes of steps.
//!
//! # Passes
//!
//! The *level* of a value is the number of reductions on the longest path to it. Everything a
//! reduction of level-0 elements needs is computed in pass 0, tile by tile; at the end of a row (or
//! a few rows), the row values of level 1 are complete, and pass 1 goes over the row again. Softmax
//! is three passes: the maximum; exponentials and their sum; quotients.
//!
//! An element value that a later pass needs is recomputed if that is cheap; otherwise it is kept in
//! a buffer of the length of the row (the exponentials).
//!
//! # Steps
//!
//! A pass is a list of steps over a tile. Values that live between steps are stored in *slots*, of
//! the length of a tile and shared by values that do not live at the same time; operands that are
//! dense or repeated along a run are read without a copy. Cheap arithmetic is grouped into native
//! steps if there is a code generator; everything else is a call of a slice kernel.
//!
//! # Results in the memory of an operand
//!
//! The memory of an operand that is dense in the order of the domain may be given to a result with
//! elements of the same size. So no element of such a result is written before the last read of the
//! same element of such an operand: results are written in the last pass, and inside it not before
//! the last step that reads the operand.

use super::calls::{TileKind, cast_is_nothing, weight};
use super::domain::Domain;
use super::draft::Drafter;
use pullback_ir::{DType, Error, Inst, Op, Random, Reduction, Region, Result, Value};
use smallvec::SmallVec;

/// An address: an entry of the table of pointers, and bytes from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TableRef {
    pub(super) entry: u32,
    pub(super) disp: u32,
}

/// The table's first entries; then come operands, results and kept values.
pub(super) const SCRATCH: u32 = 0;
pub(super) const CONSTANTS: u32 = 1;
pub(super) const ROWS: u32 = 2;
pub(super) const OPERANDS: u32 = 3;

/// Where a step reads or writes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueStorage {
    /// A slot, by number.
    Slot(usize),
    /// Elements in memory.
    Memory(u32),
    /// One element in memory, repeated.
    One(ScalarStorage),
    /// A constant, as long as a tile.
    Constant(usize),
}

/// The storage of a single element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScalarStorage {
    Operand(u32),
    /// A row value, by number.
    Row(usize),
    /// A constant, by the number of its value.
    Constant(usize),
}

/// A step before slots are assigned addresses.
pub(super) enum Draft {
    Gather { input: usize, to: ValueStorage },
    Index { axis: usize, dtype: DType, to: ValueStorage },
    Random { kind: Random, key: usize, dtype: DType, to: ValueStorage },
    Expand { from: ScalarStorage, kind: TileKind, to: ValueStorage },
    Copy { value: usize, from: ValueStorage, to: ValueStorage },
    Call { value: usize, from: SmallVec<[ValueStorage; 3]>, to: ValueStorage },
    Native(NativeGroup),
    Fold { reduce: usize, from: ValueStorage },
    Store { output: usize, from: ValueStorage },
}

/// Values computed by one native loop.
#[derive(Default)]
pub(super) struct NativeGroup {
    /// The values, in order.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) values: Vec<usize>,
    /// Where the values that other steps computed are read.
    pub(super) reads: Vec<(usize, ValueStorage)>,
    /// Which values are written where: slots, kept values and results. `late` ones after every read
    /// of the iteration.
    pub(super) writes: Vec<(usize, ValueStorage, bool)>,
}

/// One pass over the elements.
#[derive(Default)]
pub(super) struct PlannedPass {
    pub(super) steps: Vec<Draft>,
    /// The reductions that are complete after it: numbers in [`RegionPlan::reduces`].
    pub(super) reduces: Vec<usize>,
    /// The row values that are computed after it, in order.
    pub(super) rows: Vec<usize>,
    /// The kind of each slot.
    pub(super) slots: Vec<TileKind>,
}

/// A reduction: its kind, the value it reduces, and the resulting row value.
pub(super) struct Reduce {
    pub(super) kind: Reduction,
    pub(super) of: usize,
    pub(super) value: usize,
}

/// Everything about a region but addresses and code.
pub(super) struct RegionPlan<'a> {
    pub(super) region: &'a Region,
    pub(super) values: Vec<Value>,
    pub(super) domain: Domain,
    pub(super) passes: Vec<PlannedPass>,
    pub(super) reduces: Vec<Reduce>,
    /// Row values that are the same for all rows, in order.
    pub(super) constants: Vec<usize>,
    /// The constants that a step reads as a whole tile.
    pub(super) tiles: Vec<usize>,
    /// The number of each row value that is not a constant.
    pub(super) rows: Vec<Option<usize>>,
    /// Element values kept from pass to pass.
    pub(super) kept: Vec<usize>,
    /// Approximate cost of an element in additions.
    pub(super) weight: usize,
    /// The value that each value is equal to, where an instruction is the identity.
    pub(super) same: Vec<usize>,
    level: Vec<usize>,
    /// The operands whose memory a result may reuse, for results with elements of 1, 2, 4 and 8
    /// bytes.
    pub(super) aliases: [Vec<usize>; 4],
}

/// See [`RegionPlan::aliases`].
fn aliases(region: &Region, domain: &Domain) -> [Vec<usize>; 4] {
    let mut found: [Vec<usize>; 4] = Default::default();
    for (k, load) in region.inputs.iter().enumerate() {
        let like =
            load.layout.is_dense() && load.layout.offset == 0 && load.spec.len() == domain.len();
        if like {
            found[load.spec.dtype.size().ilog2() as usize].push(k);
        }
    }
    found
}

/// Which values become native code.
pub(super) type Native<'a> = &'a dyn Fn(&Op, &[DType], DType) -> bool;

impl<'a> RegionPlan<'a> {
    pub(super) fn new(region: &'a Region, native: Option<Native>) -> Result<RegionPlan<'a>> {
        let values = region.values()?;
        let count = values.len();
        let mut same: Vec<usize> = (0..count).collect();
        for (v, inst) in region.body.iter().enumerate() {
            if let Inst::Point(Op::Cast(_), of) = inst
                && cast_is_nothing(values[of[0]].dtype, values[v].dtype)
            {
                same[v] = same[of[0]];
            }
        }
        let mut live = vec![false; count];
        region.outputs.iter().for_each(|&v| live[same[v]] = true);
        let mut level = vec![0; count];
        for v in (0..count).rev().filter(|&v| same[v] == v) {
            if live[v] {
                operands(&region.body[v]).iter().for_each(|&u| live[same[u]] = true);
            }
        }
        let mut reduces = Vec::new();
        for (v, inst) in region.body.iter().enumerate() {
            level[v] = operands(inst).iter().map(|&u| level[same[u]]).max().unwrap_or(0);
            if let Inst::Reduce(kind, of) = inst
                && live[v]
            {
                level[v] += 1;
                reduces.push(Reduce { kind: *kind, of: same[*of], value: v });
            }
        }
        let mut read = vec![false; region.inputs.len()];
        for (v, inst) in region.body.iter().enumerate() {
            if let Inst::Load(k) = inst {
                read[*k] |= live[v];
            }
            if let Inst::Random(_, key, _) = inst
                && region.inputs[*key].spec.len() != 2
            {
                let message = "a region draws from one key";
                return Err(Error::argument("region", message).on([&region.inputs[*key].spec]));
            }
        }
        let domain = Domain::new(region, &read, !reduces.is_empty());
        let aliases = aliases(region, &domain);
        let is_row = |v: usize| values[v].row && live[v] && same[v] == v;
        let constants = (0..count).filter(|&v| is_row(v) && level[v] == 0).collect();
        let mut rows = vec![None; count];
        for (n, v) in (0..count).filter(|&v| is_row(v) && level[v] > 0).enumerate() {
            rows[v] = Some(n);
        }
        let mut plan = RegionPlan {
            region,
            values,
            domain,
            passes: Vec::new(),
            reduces,
            constants,
            tiles: Vec::new(),
            rows,
            kept: Vec::new(),
            weight: 1,
            same,
            level,
            aliases,
        };
        plan.build_passes(native);
        Ok(plan)
    }

    /// The value that another is equal to.
    pub(super) fn alias_of(&self, v: usize) -> usize {
        self.same[v]
    }

    pub(super) fn kind(&self, v: usize) -> TileKind {
        TileKind::of(self.values[v].dtype)
    }

    /// The table's entry of a result.
    pub(super) fn output_entry(&self, output: usize) -> u32 {
        OPERANDS + (self.region.inputs.len() + output) as u32
    }

    /// The table's entry of a kept value.
    pub(super) fn kept_entry(&self, kept: usize) -> u32 {
        OPERANDS + (self.region.inputs.len() + self.region.outputs.len() + kept) as u32
    }

    /// The number of bytes of a result's elements, as an index into [`RegionPlan::aliases`].
    pub(super) fn size_class(&self, output: usize) -> usize {
        self.values[self.region.outputs[output]].dtype.size().ilog2() as usize
    }

    fn build_passes(&mut self, native: Option<Native>) {
        let region = self.region;
        let elements: Vec<(usize, usize)> = region
            .outputs
            .iter()
            .enumerate()
            .map(|(o, &v)| (o, self.same[v]))
            .filter(|&(_, v)| !self.values[v].row)
            .collect();
        let of_reduces = self.reduces.iter().map(|r| self.level[r.of]);
        let last = elements.iter().map(|&(_, v)| self.level[v]).chain(of_reduces).max();
        let Some(last) = last else { return };
        // When a result is stored: see the head of this file.
        let stores: Vec<(usize, usize, usize)> = elements
            .iter()
            .map(|&(o, v)| {
                let pass =
                    if self.aliases[self.size_class(o)].is_empty() { self.level[v] } else { last };
                (o, v, pass)
            })
            .collect();
        let mut first: Vec<Option<usize>> = vec![None; self.values.len()];
        let mut wanted = Vec::new();
        for p in 0..=last {
            let mut need = vec![false; self.values.len()];
            let reduces: Vec<usize> =
                (0..self.reduces.len()).filter(|&r| self.level[self.reduces[r].of] == p).collect();
            reduces.iter().for_each(|&r| need[self.reduces[r].of] = true);
            let stores: Vec<(usize, usize)> =
                stores.iter().filter(|s| s.2 == p).map(|s| (s.0, s.1)).collect();
            stores.iter().for_each(|s| need[s.1] = true);
            let (mut compute, mut again) = (Vec::new(), Vec::new());
            for v in (0..self.values.len()).rev().filter(|&v| !self.values[v].row) {
                if !need[v] {
                    continue;
                }
                if first[v].is_some_and(|q| q < p) && self.is_heavy(v) {
                    again.push(v);
                    if !self.kept.contains(&v) {
                        self.kept.push(v);
                    }
                    continue;
                }
                first[v] = first[v].or(Some(p));
                compute.push(v);
                operands(&region.body[v]).iter().for_each(|&u| need[self.same[u]] = true);
            }
            compute.reverse();
            self.weight += compute.iter().map(|&v| self.cost(v)).sum::<usize>();
            wanted.push((compute, again, reduces, stores));
        }
        // What is kept is known only now, and the pass that computes such a value stores it.
        for (p, (compute, again, reduces, stores)) in wanted.into_iter().enumerate() {
            let rows = (0..self.values.len())
                .filter(|&v| self.rows[v].is_some() && self.level[v] == p + 1)
                .collect();
            let drafted = Drafter::new(self, native).draft(&compute, &again, &reduces, &stores);
            self.passes.push(PlannedPass { reduces, rows, ..drafted });
        }
        // Row values are computed by slice kernels, which read constants as tiles.
        for v in (0..self.values.len()).filter(|&v| self.rows[v].is_some()) {
            for &u in operands(&region.body[v]) {
                let u = self.same[u];
                if self.values[u].row && self.rows[u].is_none() && !self.tiles.contains(&u) {
                    self.tiles.push(u);
                }
            }
        }
    }

    fn cost(&self, v: usize) -> usize {
        match &self.region.body[v] {
            Inst::Point(op, _) => weight(op),
            Inst::Random(..) => 8,
            Inst::Load(k) if !self.domain.access[*k].is_direct() => 2,
            Inst::Load(_) | Inst::Literal(..) | Inst::Index(..) | Inst::Reduce(..) => 1,
        }
    }

    /// Whether recomputing a value costs more than keeping it.
    fn is_heavy(&self, v: usize) -> bool {
        !matches!(self.region.body[v], Inst::Load(_)) && self.cost(v) >= 4
    }
}

/// The values an instruction reads.
pub(super) fn operands(inst: &Inst) -> &[usize] {
    match inst {
        Inst::Point(_, of) => of,
        Inst::Reduce(_, of) => std::slice::from_ref(of),
        Inst::Load(_) | Inst::Literal(..) | Inst::Index(..) | Inst::Random(..) => &[],
    }
}
