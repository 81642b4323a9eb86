//! Rows in registers: how they are cut into vectors and threads, and their launch, with sums over
//! the rows beside.

use crate::compile::KernelKey;
use crate::functions::PRELUDE;
use crate::gpu::{DeviceScratch, Gpu};
use crate::loops::{InRows, Loop, LoopAxes, NARROW, StridedOperand};
use crate::ops;
use crate::text::{LoopForm, LoopText, RegisterRows, compute, element};
use pullback_cuda_sys::DevicePtr;
use pullback_ir::{DType, Inst, Reduction, Result, element_count};
use smallvec::{SmallVec, smallvec};

/// Multiprocessors of a large device, whatever this one has: sums must not depend on it.
const UNITS: usize = 132;
/// Registers of a multiprocessor, of 4 bytes.
const REGISTERS: usize = 1 << 16;
/// Registers of a thread beside what it holds: addresses, indices, values in flight.
const OWN: usize = 32;
/// Columns that are summed in one pass: `kernels/columns.cu` has as many tables.
pub(crate) const COLUMNS: usize = 4;

/// Registers that a thread needs for one vector of each operand.
#[derive(Clone, Copy, Debug, Default)]
struct RegisterNeed {
    /// Operands that move with the row.
    moving: usize,
    /// Operands that are the same for all rows.
    still: usize,
    /// Sums of columns.
    sums: usize,
}

impl RegisterNeed {
    fn all(self, count: usize, ahead: bool) -> usize {
        count * (self.moving * if ahead { 2 } else { 1 } + self.still + self.sums)
    }
}

/// Threads of a row of so many vectors, the vectors of each, and whether the next row is loaded
/// ahead: for the fewest idle threads, and otherwise near 256 of them.
fn cut(vectors: usize, need: RegisterNeed, ahead: bool) -> Option<(usize, usize, bool)> {
    let fits = |threads: usize, count: usize, ahead: bool| {
        count <= 4 && need.all(count, ahead) <= (REGISTERS / threads - OWN).min(96)
    };
    // A warp takes up to four vectors a thread, since it needs no barrier. Sums of columns leave
    // less room.
    let count = vectors.div_ceil(32);
    if fits(32, count, ahead) && count * need.sums <= 32 {
        return Some((32, count, ahead));
    }
    let best = |ahead: bool| {
        let all = (2..=32).map(|warps| (32 * warps, vectors.div_ceil(32 * warps)));
        let cost = |&(threads, count): &(usize, usize)| {
            let idle = threads * count - vectors;
            let far = (threads as f64 / 256.0).log2().abs();
            let checks = if idle > 0 { 0.25 } else { 0.0 };
            let deep = if count > 2 { 0.5 } else { 0.0 };
            4.0 * idle as f64 / vectors as f64 + 0.5 * far + checks + deep
        };
        let fitting = all.filter(|&(threads, count)| fits(threads, count, ahead));
        let order = |a: &(usize, usize), b: &(usize, usize)| {
            cost(a).total_cmp(&cost(b)).then(a.1.cmp(&b.1)).then(a.0.cmp(&b.0))
        };
        fitting.min_by(order).map(|(threads, count)| (threads, count, ahead))
    };
    best(ahead).or_else(|| if ahead { best(false) } else { None })
}

impl Loop<'_> {
    /// How rows are held in registers, if they are contiguous and short enough. `columns` are
    /// values that are summed over the rows.
    pub fn fits_registers(&self, of: &InRows, columns: &[usize]) -> Option<RegisterRows> {
        let InRows { outer, inner, width, .. } = of;
        let inputs = self.inputs.len();
        let [(_, of)] = &inner[..] else { return None };
        let is_row = |k: usize| self.values[self.outputs[k - inputs].0].row;
        let one = |k: usize| of[k] == 1 || k < inputs && of[k] == 0;
        if inputs > 64 || !(0..of.len()).all(|k| one(k) || k >= inputs && is_row(k)) {
            return None;
        }
        let bits = |which: &dyn Fn(usize) -> bool| {
            (0..inputs).filter(|&k| which(k)).fold(0, |bits, k| bits | 1u64 << k)
        };
        let single = bits(&|k| of[k] == 0);
        let still = bits(&|k| of[k] == 1 && outer.iter().all(|(_, of)| of[k] == 0));
        let is_still = |k: usize| k < inputs && still >> k & 1 == 1;
        let along: SmallVec<[usize; 6]> =
            (0..of.len()).filter(|&k| if k < inputs { of[k] == 1 } else { !is_row(k) }).collect();
        let size = |k: &usize| self.operand(*k).dtype.size();
        // 16 bytes of what is read or written for each row.
        let moving = along.iter().filter(|k| !is_still(**k)).map(size).max();
        let vector = 16 / moving.or_else(|| along.iter().map(size).max())?;
        let aligned = |&k: &usize| {
            let x = self.operand(k);
            let split_at = self.shape.len() - self.inner;
            x.at.is_multiple_of((vector * x.dtype.size()).min(16) as u64)
                && x.strides[..split_at].iter().all(|s| s % vector as isize == 0)
        };
        if *width == 0 || !width.is_multiple_of(vector) || !along.iter().all(aligned) {
            return None;
        }
        let loops = !columns.is_empty();
        let words = |k: &usize| (size(k) * vector).div_ceil(4);
        let read = |kept: bool| along.iter().filter(move |k| loops && is_still(**k) == kept);
        let sum = |v: &usize| vector * self.values[*v].dtype.compute().size() / 4;
        let need = match loops {
            false => RegisterNeed { moving: along.iter().map(words).sum(), still: 0, sums: 0 },
            true => RegisterNeed {
                // What is written is not kept.
                moving: read(false).filter(|k| **k < inputs).map(words).sum(),
                still: read(true).map(words).sum(),
                sums: columns.iter().map(sum).sum(),
            },
        };
        let vectors = width / vector;
        // Where nothing is stored or reduced, four rows are loaded at once instead.
        let reduces = self.body.iter().any(|inst| matches!(inst, Inst::Reduce(..)));
        let only_sums = loops && self.outputs.is_empty() && !reduces;
        let need = RegisterNeed { moving: need.moving * if only_sums { 4 } else { 1 }, ..need };
        let (threads, count, ahead) = cut(vectors, need, loops && !only_sums)?;
        let own = OWN + need.all(count, ahead) + 2 * vector;
        // Groups of a block add their shares in shared memory.
        let share = |groups: usize| {
            let wide = columns.first().map_or(0, |v| self.values[*v].dtype.compute().size());
            groups * threads * count * vector * wide
        };
        let block = match threads {
            32 => [8, 4, 2, 1].into_iter().find(|&n| share(n) <= 40 << 10).unwrap_or(1) * 32,
            _ => threads,
        };
        let resident = match loops {
            true => (REGISTERS / (own * block)).clamp(1, (1024 / block).max(1)),
            false => 0,
        };
        Some(RegisterRows {
            outer: outer.len().max(1) as u32,
            threads: threads as u32,
            vector: vector as u32,
            count: count as u32,
            full: threads * count == vectors,
            single,
            still: if loops { still } else { 0 },
            ahead,
            columns: SmallVec::from_slice(columns),
            block: block as u32,
            resident: resident as u32,
        })
    }

    /// Runs rows that are held in registers. Shares of the sums over the rows are written to
    /// `shares`, one for each block.
    pub fn run_held(
        &self,
        gpu: &Gpu,
        held: RegisterRows,
        of: &InRows,
        shares: &[DevicePtr],
    ) -> Result<()> {
        let none: LoopAxes = smallvec![(1, smallvec![0; self.inputs.len() + self.outputs.len()])];
        let outer = if of.outer.is_empty() { &none } else { &of.outer };
        let (rows, width) = (of.rows, of.width);
        let mut words = self.addresses();
        // Without operands or results there is a word as well.
        words.truncate(self.inputs.len() + self.outputs.len());
        words.extend(shares.iter().copied());
        words.extend([rows as u64, width as u64, 1, width as u64]);
        self.indices(&mut words);
        words.extend(outer.iter().map(|(n, _)| *n as u64));
        for k in 0..self.inputs.len() + self.outputs.len() {
            words.extend(outer.iter().map(|(_, of)| of[k] as u64));
        }
        let block = held.block as usize;
        let (grid, key) = self.held_call(held, rows, width);
        self.launch(gpu, key, grid, block, &words)
    }

    /// The blocks and the kernel of rows that are held in registers.
    pub fn held_call(&self, held: RegisterRows, rows: usize, width: usize) -> (usize, LoopText) {
        let (block, threads) = (held.block as usize, held.threads as usize);
        let grid = match held.columns.is_empty() {
            true => (rows * threads).div_ceil(block),
            false => blocks_of(&held, rows),
        };
        // Beyond the last row, the next of every group is looked at.
        let wide = (rows + grid * (block / threads)) * width >= NARROW || grid * block >= NARROW;
        (grid, self.text(LoopForm::Held(held), wide))
    }

    /// Runs the loop, with sums of values over the rows beside. Where rows do not fit into
    /// registers, these values are stored first.
    pub fn run_region(&self, gpu: &Gpu, columns: &[(usize, StridedOperand)]) -> Result<()> {
        if columns.is_empty() {
            return self.run(gpu);
        }
        if self.run_with_columns(gpu, columns, 1)? {
            return Ok(());
        }
        let mut outputs = self.outputs.to_vec();
        let mut stored: SmallVec<[DeviceScratch<'_>; 4]> = SmallVec::new();
        for (v, _) in columns {
            let dtype = self.values[*v].dtype;
            let memory = gpu.scratch(element_count(self.shape) * dtype.size())?;
            outputs.push((*v, StridedOperand::dense(memory.at, dtype, self.shape)));
            stored.push(memory);
        }
        Loop { outputs: &outputs, ..*self }.run(gpu)?;
        let rows: SmallVec<[usize; 4]> = (0..self.shape.len() - self.inner).collect();
        for ((_, value), (_, to)) in outputs[self.outputs.len()..].iter().zip(columns) {
            ops::reduce(gpu, Reduction::Sum, &rows, value, to)?;
        }
        Ok(())
    }

    /// How rows are held in registers beside the sums of these values over the rows, if they are.
    pub fn held_with_columns(
        &self,
        rows: &InRows,
        columns: &[(usize, StridedOperand)],
    ) -> Option<RegisterRows> {
        // What `sum_tables` takes.
        let of = self.values[columns.first()?.0].dtype.compute();
        let same = |(v, y): &(usize, StridedOperand)| {
            let value = self.values[*v];
            !value.row && value.dtype.compute() == of && y.dtype.compute() == of && y.is_dense()
        };
        if rows.rows == 0 || columns.len() > COLUMNS || !columns.iter().all(same) {
            return None;
        }
        let numbers: SmallVec<[usize; 4]> = columns.iter().map(|(v, _)| *v).collect();
        self.fits_registers(rows, &numbers)
    }

    /// Runs the loop, and sums some of its values over the rows: `columns` are values and where
    /// their sums go, dense over the axes of a row. `false`, and nothing done, if rows do not fit
    /// into registers. If `times` is not 1, a row is so many rows of a result.
    pub fn run_with_columns(
        &self,
        gpu: &Gpu,
        columns: &[(usize, StridedOperand)],
        times: usize,
    ) -> Result<bool> {
        let rows = self.in_rows();
        let Some(held) = self.held_with_columns(&rows, columns) else { return Ok(false) };
        let (of, width) = (self.values[columns[0].0].dtype.compute(), rows.width);
        let blocks = blocks_of(&held, rows.rows);
        let mut shares: SmallVec<[DeviceScratch<'_>; 4]> = SmallVec::new();
        for _ in columns {
            shares.push(gpu.scratch(blocks * width * of.size())?);
        }
        let at: SmallVec<[DevicePtr; 4]> = shares.iter().map(|s| s.at).collect();
        self.run_held(gpu, held, &rows, &at)?;
        sum_tables(gpu, of, &at, columns, (blocks * times, width / times))?;
        Ok(true)
    }
}

/// How many blocks take the rows, if each sums columns: as many as a large device runs at once.
fn blocks_of(held: &RegisterRows, rows: usize) -> usize {
    let groups = (held.block / held.threads) as usize;
    rows.div_ceil(groups).min(UNITS * held.resident as usize)
}

/// Sums tables of rows, all in one launch.
fn sum_tables(
    gpu: &Gpu,
    dtype: DType,
    from: &[DevicePtr],
    to: &[(usize, StridedOperand)],
    (rows, width): (usize, usize),
) -> Result<()> {
    let dtypes: SmallVec<[DType; 4]> =
        [dtype].into_iter().chain(to.iter().map(|(_, to)| to.dtype)).collect();
    let text = || columns_text(&dtypes);
    let kernel =
        gpu.kernels.get(gpu, &KernelKey::Named("columns", dtypes.clone(), smallvec![]), text)?;
    let mut words = [0u64; 2 * COLUMNS + 2];
    for (k, (from, (_, to))) in from.iter().zip(to).enumerate() {
        (words[k], words[COLUMNS + k]) = (*from, to.at);
    }
    (words[2 * COLUMNS], words[2 * COLUMNS + 1]) = (width as u64, rows as u64);
    gpu.launch(kernel, width.div_ceil(32) * from.len(), 1024, &words)
}

/// The sums of tables: their dtype, and those of the results.
pub(crate) fn columns_text(dtypes: &[DType]) -> String {
    let (c, columns) = (compute(dtypes[0]), include_str!("kernels/columns.cu"));
    let mut store = String::new();
    for (k, dtype) in dtypes[1..].iter().enumerate() {
        let e = element(*dtype);
        store += &format!(" if (table == {k}) store((({e}*)p.to[{k}])[at], sum);");
    }
    format!("{PRELUDE}typedef {c} C;\n#define STORE(sum, at){store}\n{columns}")
}
