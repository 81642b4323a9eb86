//! From a plan to a kernel: addresses for slots, constants and row values, and the steps that use
//! them.

use super::calls::{TileKind, call};
use super::domain::{PrefetchedOperand, SHORT};
use super::draft::share_slots;
use super::exec::{TileScratch, enlarged};
use super::plan::{
    CONSTANTS, Draft, Native, ROWS, RegionPlan, SCRATCH, ScalarStorage, TableRef, ValueStorage,
};
use super::steps::{ReductionStep, TileStep, store};
use super::{CodegenMode, Fill, RegionKernel, RowResult, ScratchSizes, TilePass};
use crate::elem::{Elem, with_elem};
use crate::reduce::folder;
use crate::simd::BLOCK;
use pullback_ir::{DType, Error, Inst, Op, Region, Result, Scalar};

/// Bytes of slots that fit in L1, next to operands and results.
const L1_BYTES: usize = 24 << 10;
/// Most elements of a tile.
const TILE: usize = 1024;
/// Additions that are worth a task, and how many a thread does alone.
const TASK: usize = 1 << 17;
const ALONE: usize = 1 << 18;
/// Bytes from which a result is written with streaming stores. (x·a + b over 8M elements then takes
/// 0.74 of the time; a chain that computes for long, 0.99.)
const STREAM: usize = 16 << 20;
/// Bytes of operands from which they are assumed not to be in cache.
const OUT_OF_CACHE: usize = 512 << 10;
/// Elements of a tile when its computation hides the latency of prefetching operands.
const TILE_AHEAD: usize = 512;
/// Bytes of a matrix whose columns are operands, for a tile: the cache lines loaded for the first
/// column are still in cache for the last.
const COLUMNS: usize = 12 << 10;
/// Rows that are so few that each is cut into chunks.
const FEW: usize = 16;

/// The order of slots in scratch, by kind: the widest first.
const KINDS: [TileKind; 4] = [TileKind::F64, TileKind::I64, TileKind::F32, TileKind::Bool];

/// The addresses of all values.
struct Addresses<'a> {
    plan: &'a RegionPlan<'a>,
    tile: usize,
    /// Bytes of a row value.
    row: usize,
    /// The start of a tile for values that are not yet rounded.
    through: u32,
    /// For each value that is a constant, its offset among the constants.
    cells: Vec<u32>,
    /// The starts of the constants that are tiles.
    tiles: Vec<u32>,
}

/// The slots of a pass.
struct Slots {
    disp: Vec<u32>,
}

impl Addresses<'_> {
    fn of(&self, at: ValueStorage, slots: &Slots) -> TableRef {
        match at {
            ValueStorage::Slot(slot) => TableRef { entry: SCRATCH, disp: slots.disp[slot] },
            ValueStorage::Memory(entry) => TableRef { entry, disp: 0 },
            ValueStorage::Constant(tile) => TableRef { entry: CONSTANTS, disp: self.tiles[tile] },
            ValueStorage::One(place) => self.one(place),
        }
    }

    fn one(&self, place: ScalarStorage) -> TableRef {
        match place {
            ScalarStorage::Operand(entry) => TableRef { entry, disp: 0 },
            ScalarStorage::Row(row) => TableRef { entry: ROWS, disp: (row * self.row) as u32 },
            ScalarStorage::Constant(v) => TableRef { entry: CONSTANTS, disp: self.cells[v] },
        }
    }

    fn through(&self) -> TableRef {
        TableRef { entry: SCRATCH, disp: self.through }
    }
}

/// What `Region::infer` checks besides the instructions, which the plan checks.
fn check(region: &Region) -> Result<()> {
    if let Some(load) = region.inputs.iter().find(|x| !x.layout.is_within(x.spec.len())) {
        let message = "a layout reaches outside its operand";
        return Err(Error::argument("region", message).on([&load.spec]));
    }
    if region.outputs.is_empty() || region.outputs.iter().any(|&v| v >= region.body.len()) {
        return Err(Error::argument("region", "has no result, or one that does not exist"));
    }
    if !region.columns.is_empty() {
        return Err(Error::argument("region", "has sums over the rows, which `run` computes"));
    }
    Ok(())
}

/// Bytes of the slots of a pass, for one element.
fn slot_bytes(used: &[usize; 4]) -> usize {
    KINDS.iter().map(|&kind| used[kind as usize] * kind.size()).sum()
}

/// How the elements are cut.
struct Tiling {
    /// Elements of a tile, and the distance between tiles in scratch.
    tile: usize,
    pitch: usize,
    /// Whether rows are cut into chunks.
    chunked: bool,
    /// Rows that are computed together.
    together: usize,
    /// Elements of a task.
    task: usize,
}

impl Tiling {
    /// A tile is as long as slots of `widest` bytes an element fit in L1.
    fn of(plan: &RegionPlan, widest: usize, columns: &[PrefetchedOperand]) -> Tiling {
        let (domain, region) = (&plan.domain, plan.region);
        let mut tile = (L1_BYTES / widest).clamp(64, TILE) & !63;
        if domain.many {
            tile = tile.max(domain.row.next_multiple_of(BLOCK));
        } else if !plan.reduces.is_empty() {
            // A tile is the unit of folding: its size must not depend on how it is computed.
            tile = TILE;
        } else if widest == 8 {
            // No values are stored between steps: long enough to amortise a call.
            tile = 4 * TILE;
        } else if domain.len() > 4 * TILE {
            tile = tile.min(TILE_AHEAD);
        }
        for c in columns {
            let row = c.stride * region.inputs[c.input].spec.dtype.size();
            tile = tile.min((COLUMNS / row).max(64) & !63);
        }
        // The distance between tiles. Native code contains these distances, so they depend on
        // lengths as little as possible. A single element has its own code.
        let stride = if domain.many { tile.max(SHORT) } else { tile };
        tile = tile.min(domain.len().next_multiple_of(BLOCK)).max(BLOCK);
        let pitch = if domain.len() == 1 { tile } else { stride };
        let work = domain.len().saturating_mul(plan.weight);
        let chunked = !plan.reduces.is_empty()
            && !domain.many
            && domain.rows < FEW
            && domain.row > 2 * tile
            && work > ALONE;
        let together = match (domain.many, chunked) {
            (true, _) => (tile / domain.row.max(1)).clamp(1, domain.rows.max(1)),
            (false, true) => domain.rows,
            (false, false) => 1,
        };
        let task = match work > ALONE {
            true => (TASK / plan.weight).max(tile).next_multiple_of(tile),
            false => domain.len().next_multiple_of(tile).max(tile),
        };
        Tiling { tile, pitch, chunked, together, task }
    }
}

/// Spreads the prefetches of operands over the steps of the passes.
fn share_prefetches(passes: &mut [TilePass]) {
    // The first pass of several loads its operands from memory directly, and so does a single
    // loop.
    let first = usize::from(passes.len() > 1);
    let asks = &mut passes[first..];
    let parts = asks.iter().map(|pass| pass.steps.len()).sum::<usize>();
    let mut part = 0;
    for pass in asks.iter_mut().filter(|_| parts > 1) {
        pass.ahead = Some((part, parts));
        part += pass.steps.len();
    }
}

impl RegionKernel {
    /// As [`RegionKernel::new`], with a given [`CodegenMode`].
    pub(crate) fn with(region: &Region, how: CodegenMode) -> Result<RegionKernel> {
        let mut kernel = RegionKernel::build(region, how, false)?;
        let large = |size: &usize| kernel.domain.len() * size >= STREAM;
        let in_order = kernel.reducing.is_empty() && kernel.domain.run >= kernel.domain.row;
        if how != CodegenMode::Slices && in_order && kernel.output_sizes.iter().any(large) {
            kernel.streaming = Some(Box::new(RegionKernel::build(region, how, true)?));
        }
        Ok(kernel)
    }

    fn build(region: &Region, how: CodegenMode, streams: bool) -> Result<RegionKernel> {
        check(region)?;
        #[cfg(target_arch = "x86_64")]
        let target = super::native::NativeTarget::of(how);
        #[cfg(target_arch = "x86_64")]
        let can =
            |op: &Op, from: &[DType], to: DType| super::native::NativeTarget::can(op, from, to);
        #[cfg(target_arch = "x86_64")]
        let native: Option<Native> = target.is_some().then_some(&can);
        #[cfg(not(target_arch = "x86_64"))]
        let native: Option<Native> = {
            let _ = how;
            None
        };
        let plan = RegionPlan::new(region, native)?;
        let domain = &plan.domain;

        let shared: Vec<(Vec<usize>, [usize; 4])> = plan.passes.iter().map(share_slots).collect();
        let widest = shared.iter().map(|s| slot_bytes(&s.1)).max().unwrap_or(0) + 8;
        let columns = if plan.reduces.is_empty() { domain.columns(region) } else { Vec::new() };
        let Tiling { tile, pitch, chunked, together, task } = Tiling::of(&plan, widest, &columns);

        // Addresses.
        let places = |(place, used): &(Vec<usize>, [usize; 4]), kinds: &[TileKind]| {
            let start = |kind: TileKind| {
                let before = KINDS.iter().take_while(|&&k| k != kind);
                before.map(|&k| (used[k as usize] * k.size() * pitch).next_multiple_of(64)).sum()
            };
            let disp = |(slot, &kind): (usize, &TileKind)| {
                let first: usize = start(kind);
                (first + place[slot] * kind.size() * pitch) as u32
            };
            Slots { disp: kinds.iter().enumerate().map(disp).collect() }
        };
        let slots: Vec<Slots> =
            shared.iter().zip(&plan.passes).map(|(s, pass)| places(s, &pass.slots)).collect();
        let through = shared.iter().map(|s| slot_bytes(&s.1) * pitch + 256).max().unwrap_or(0);
        let through = through.next_multiple_of(64);
        let row = 8 * if domain.many { pitch } else { together.next_multiple_of(BLOCK) };
        let row_count = plan.rows.iter().flatten().count();
        let mut cells = vec![0; plan.values.len()];
        plan.constants.iter().enumerate().for_each(|(n, &v)| cells[v] = 8 * n as u32);
        let first = (8 * plan.constants.len()).next_multiple_of(64);
        let tiles = (0..plan.tiles.len()).map(|n| (first + n * 8 * tile) as u32).collect();
        let size = first + plan.tiles.len() * 8 * tile + 64;
        if size.max(through + 8 * pitch).max(row_count * row) > i32::MAX as usize {
            return Err(Error::argument("region", "is too large"));
        }
        let addresses = Addresses { plan: &plan, tile, row, through: through as u32, cells, tiles };
        let constants = addresses.constants(size)?;

        // Steps.
        #[cfg(target_arch = "x86_64")]
        let mut compiler = target.map(|target| {
            let first = plan.output_entry(0);
            let streamed = first..if streams { plan.kept_entry(0) } else { first };
            super::native::NativeCompiler::new(target, domain.len(), through + 8 * pitch, streamed)
        });
        let in_order = |(input, access): (usize, &super::domain::Access)| {
            Some(PrefetchedOperand { input, offset: access.in_order()?, stride: 1 })
        };
        let ahead: Vec<PrefetchedOperand> =
            domain.access.iter().enumerate().filter_map(in_order).chain(columns).collect();
        let far =
            ahead.iter().map(|a| region.inputs[a.input].spec.bytes()).sum::<usize>() > OUT_OF_CACHE;
        let mut passes = Vec::new();
        for (pass, slots) in plan.passes.iter().zip(&slots) {
            let mut steps = Vec::new();
            for draft in &pass.steps {
                steps.push(match draft {
                    #[cfg(target_arch = "x86_64")]
                    Draft::Native(group) => {
                        let compiler = compiler.as_mut().ok_or_else(|| {
                            Error::argument("region", "there is no code generator")
                        })?;
                        compiler.group(&plan, group, &|at| addresses.of(at, slots))?;
                        TileStep::Native(super::steps::not_compiled)
                    }
                    _ => addresses.step(draft, slots)?,
                });
            }
            let rows = pass.rows.iter().filter(|&&v| !matches!(region.body[v], Inst::Reduce(..)));
            let rows = rows.map(|&v| addresses.row_step(v)).collect::<Result<Vec<TileStep>>>()?;
            passes.push(TilePass { ahead: None, steps, reduces: pass.reduces.clone(), rows });
        }
        if far {
            share_prefetches(&mut passes);
        }
        #[cfg(target_arch = "x86_64")]
        let (code, spilled) = match compiler {
            Some(compiler) => compiler.finish(&mut passes)?,
            None => (None, 0),
        };
        #[cfg(not(target_arch = "x86_64"))]
        let spilled = 0;
        let reducing = addresses.reductions();
        let (row_results, fills) = addresses.results();
        let scratch_sizes = ScratchSizes {
            slots: through + 8 * pitch + spilled,
            rows: row_count * row,
            row,
            row_sizes: (0..plan.values.len())
                .filter(|&v| plan.rows[v].is_some())
                .map(|v| plan.kind(v).size())
                .collect(),
            kept: plan.kept.iter().map(|&v| plan.kind(v).size()).collect(),
            table: plan.kept_entry(plan.kept.len()) as usize,
        };
        if scratch_sizes.slots > i32::MAX as usize {
            return Err(Error::argument("region", "is too large"));
        }
        let of_outputs = |&v: &usize| plan.values[v].dtype.size();
        Ok(RegionKernel {
            passes,
            reducing,
            tile,
            together,
            task,
            chunked,
            constants,
            row_results,
            fills,
            scratch_sizes,
            ahead,
            input_sizes: region.inputs.iter().map(|load| load.spec.dtype.size()).collect(),
            output_sizes: region.outputs.iter().map(of_outputs).collect(),
            streams,
            streaming: None,
            domain: plan.domain,
            #[cfg(target_arch = "x86_64")]
            code,
        })
    }
}

impl Addresses<'_> {
    /// The reductions over the rows.
    fn reductions(&self) -> Vec<ReductionStep> {
        let plan = self.plan;
        let one = |r: &super::plan::Reduce| {
            let (from, to) = (plan.values[r.of].dtype, plan.values[r.value].dtype);
            ReductionStep {
                folder: folder(r.kind, from, to),
                size: TileKind::of(from).size(),
                dtype: to,
                to: self.one(ScalarStorage::Row(plan.rows[r.value].unwrap_or(0))),
            }
        };
        plan.reduces.iter().map(one).collect()
    }

    /// Results of one element for each row, and those that are one element.
    fn results(&self) -> (Vec<RowResult>, Vec<Fill>) {
        let plan = self.plan;
        let (mut row_results, mut fills) = (Vec::new(), Vec::new());
        for (output, &v) in plan.region.outputs.iter().enumerate() {
            let (dtype, stands) = (plan.values[v].dtype, plan.alias_of(v));
            if let Some(row) = plan.rows[stands] {
                let from = self.one(ScalarStorage::Row(row));
                row_results.push(RowResult { output, from, kind: TileKind::of(dtype), dtype });
            } else if plan.values[v].row {
                fills.push(Fill { output, from: self.cells[stands] as usize, dtype });
            }
        }
        (row_results, fills)
    }
}

impl Addresses<'_> {
    /// A step that is not native.
    fn step(&self, draft: &Draft, slots: &Slots) -> Result<TileStep> {
        let plan = self.plan;
        let region = plan.region;
        Ok(match draft {
            Draft::Gather { input, to } => TileStep::Gather {
                input: *input,
                dtype: region.inputs[*input].spec.dtype,
                to: self.of(*to, slots),
            },
            Draft::Index { axis, dtype, to } => TileStep::Index {
                len: region.shape[*axis],
                repeat: region.shape[axis + 1..].iter().product(),
                dtype: *dtype,
                to: self.of(*to, slots),
            },
            Draft::Random { kind, key, dtype, to } => TileStep::Random {
                kind: *kind,
                key: *key,
                dtype: *dtype,
                to: self.of(*to, slots),
                through: self.through(),
            },
            Draft::Expand { from, kind, to } => {
                let by_row = plan.domain.many && matches!(from, ScalarStorage::Row(_));
                let row = by_row.then_some(plan.domain.row);
                TileStep::Expand {
                    from: self.one(*from),
                    kind: *kind,
                    row,
                    to: self.of(*to, slots),
                }
            }
            Draft::Copy { value, from, to } => TileStep::Store {
                from: self.of(*from, slots),
                kind: plan.kind(*value),
                dtype: plan.values[*value].dtype,
                to: self.of(*to, slots),
            },
            Draft::Call { value, from, to } => {
                let near = |at: &ValueStorage| {
                    matches!(at, ValueStorage::Slot(_) | ValueStorage::Constant(_))
                };
                let padded = from.iter().chain([to]).all(near);
                let mut refs = [self.of(*to, slots); 3];
                from.iter().zip(&mut refs).for_each(|(at, to)| *to = self.of(*at, slots));
                self.call(*value, refs, self.of(*to, slots), padded)?
            }
            Draft::Fold { reduce, from } => {
                TileStep::Fold { reduce: *reduce, from: self.of(*from, slots) }
            }
            Draft::Store { output, from } => {
                let dtype = plan.values[region.outputs[*output]].dtype;
                let to = TableRef { entry: plan.output_entry(*output), disp: 0 };
                TileStep::Store {
                    from: self.of(*from, slots),
                    kind: TileKind::of(dtype),
                    dtype,
                    to,
                }
            }
            Draft::Native(_) => {
                return Err(Error::argument("region", "there is no code generator"));
            }
        })
    }

    /// The call that computes a value.
    fn call(&self, v: usize, from: [TableRef; 3], to: TableRef, padded: bool) -> Result<TileStep> {
        let Inst::Point(op, of) = &self.plan.region.body[v] else {
            return Err(Error::argument("region", format!("value {v} is not pointwise")));
        };
        let values = &self.plan.values;
        let operand = if matches!(op, Op::Select) { of[1] } else { of[0] };
        let call = call(op, values[operand].dtype, values[v].dtype)?;
        Ok(TileStep::Call { call, from, to, through: self.through(), padded })
    }

    /// The step that computes a row value from others.
    fn row_step(&self, v: usize) -> Result<TileStep> {
        let plan = self.plan;
        let find = |&u: &usize| {
            let u = plan.alias_of(u);
            match plan.rows[u] {
                Some(row) => Ok(self.one(ScalarStorage::Row(row))),
                None => match plan.tiles.iter().position(|&t| t == u) {
                    Some(tile) => Ok(TableRef { entry: CONSTANTS, disp: self.tiles[tile] }),
                    None => Err(Error::argument("region", "a constant has no tile")),
                },
            }
        };
        let to = self.one(ScalarStorage::Row(plan.rows[v].unwrap_or(0)));
        let mut refs = [to; 3];
        for (u, place) in super::plan::operands(&plan.region.body[v]).iter().zip(&mut refs) {
            *place = find(u)?;
        }
        self.call(v, refs, to, true)
    }

    /// Computes the constants: one element of each, and a tile of those that slice kernels read.
    fn constants(&self, size: usize) -> Result<TileScratch> {
        let plan = self.plan;
        let mut buffer = enlarged(Vec::new(), size);
        let base = buffer.as_mut_ptr().cast::<u8>();
        type BlockWords = [u64; BLOCK];
        let (mut y, mut through): (BlockWords, BlockWords) = ([0; BLOCK], [0; BLOCK]);
        for &v in &plan.constants {
            match &plan.region.body[v] {
                Inst::Literal(value, dtype) => literal(*value, *dtype, &mut y),
                inst @ (Inst::Point(..)
                | Inst::Load(_)
                | Inst::Index(..)
                | Inst::Random(..)
                | Inst::Reduce(..)) => {
                    let mut x: [BlockWords; 3] = [[0; BLOCK]; 3];
                    for (u, x) in super::plan::operands(inst).iter().zip(&mut x) {
                        // SAFETY: constants are computed in order, so this one is filled; it has 8
                        // bytes.
                        x[0] = unsafe {
                            let cell = self.cells[plan.alias_of(*u)] as usize;
                            base.add(cell).cast::<u64>().read()
                        };
                    }
                    let nowhere = TableRef { entry: 0, disp: 0 };
                    let step = self.call(v, [nowhere; 3], nowhere, true)?;
                    let TileStep::Call { call, .. } = step else { continue };
                    let from = [0, 1, 2].map(|i| x[i].as_ptr().cast::<u8>());
                    // SAFETY: whole blocks of the widest type.
                    unsafe {
                        match call.round {
                            None => call.run.run(from, y.as_mut_ptr().cast(), BLOCK),
                            Some(round) => {
                                call.run.run(from, through.as_mut_ptr().cast(), BLOCK);
                                let through = through.as_ptr().cast();
                                round.run([through; 3], y.as_mut_ptr().cast(), BLOCK);
                            }
                        }
                    }
                }
            }
            // SAFETY: the cell is inside the buffer.
            unsafe { base.add(self.cells[v] as usize).cast::<u64>().write(y[0]) };
        }
        for (&v, &tile) in plan.tiles.iter().zip(&self.tiles) {
            let size = plan.kind(v).size();
            for i in 0..self.tile {
                // SAFETY: a tile has space for as many elements of the widest type.
                unsafe {
                    let (from, to) = (base.add(self.cells[v] as usize), base.add(tile as usize));
                    std::ptr::copy_nonoverlapping(from, to.add(i * size), size);
                }
            }
        }
        Ok(buffer)
    }
}

/// A number as an element of a tile: rounded to its dtype.
pub(super) fn literal(value: Scalar, dtype: DType, y: &mut [u64; BLOCK]) {
    *y = [0; BLOCK];
    let to = y.as_mut_ptr().cast::<u8>();
    /// # Safety
    /// There is space for one element of the compute type.
    unsafe fn put<S: Elem>(value: Scalar, to: *mut u8) {
        // SAFETY: guaranteed by the caller.
        unsafe { to.cast::<S::Compute>().write(S::of(value).load()) }
    }
    // SAFETY: eight bytes are enough for any type.
    unsafe {
        match dtype {
            DType::Bool => to.write(crate::elem::Bool::of(value).0),
            _ => with_elem!(dtype, T => put::<T>(value, to)),
        }
    }
}

/// Fills `n` elements of a dtype with the number that a cell holds.
///
/// # Safety
/// There is space for `n` elements.
pub(super) unsafe fn fill(cell: *const u8, dtype: DType, to: *mut u8, n: usize) {
    let mut one = 0u64;
    // SAFETY: guaranteed by the caller; a cell has eight bytes.
    unsafe {
        store(cell, TileKind::of(dtype), dtype, (&raw mut one).cast(), 1);
        for i in 0..n {
            let from = (&raw const one).cast::<u8>();
            std::ptr::copy_nonoverlapping(from, to.add(i * dtype.size()), dtype.size());
        }
    }
}
