//! Batch norm at the speed of memory: statistics of parts of channels, their merge in one order,
//! and a pass over the elements.
//!
//! Channels are lines of images, or, with the channels last, columns of rows. How they are cut into
//! parts depends on the shape alone. Other layouts and small operands are loops (`fused.rs`).

use crate::compile::KernelKey;
use crate::functions::PRELUDE;
use crate::gpu::{DeviceScratch, Gpu};
use crate::loops::StridedOperand;
use crate::ops::copy;
use crate::text::{compute, element};
use pullback_ir::{DType, Real, Result, element_count};
use smallvec::SmallVec;

const TEXT: &str = include_str!("kernels/batch_norm.cu");
const BLOCK: usize = 256;
/// As in `kernels/batch_norm.cu`: vectors that a thread reads at once.
const BATCH: usize = 4;
/// Blocks that sum: as many as keep the memory of a large device busy, whatever this one has, since
/// sums must not depend on it.
const BLOCKS: usize = 528;
/// Fewer elements are one loop.
const LEAST: usize = 1 << 14;

/// How the elements of channels lie, and how they are cut.
struct ChannelSplit {
    last: bool,
    /// Images, channels and elements of a line; or rows, channels and 1.
    n: usize,
    c: usize,
    line: usize,
    vector: usize,
    /// Images or rows of a part, and parts.
    each: usize,
    parts: usize,
    /// Blocks of columns, and vectors of a block side by side.
    across: usize,
    down: usize,
}

impl ChannelSplit {
    fn new(shape: &[usize], last: bool, vector: usize) -> ChannelSplit {
        let (n, c, line) = (shape[0], shape[1], element_count(&shape[2..]));
        let (n, line) = if last { (n * line, 1) } else { (n, line) };
        let vectors = c.div_ceil(vector);
        let down = if last { vectors.next_power_of_two().min(32) } else { 1 };
        let across = if last { vectors.div_ceil(down) } else { c };
        // At least as many rows or images as a block reads at once, or twice.
        let least = match last {
            true => 2 * BATCH * BLOCK / down,
            false => (BATCH * BLOCK * vector).div_ceil(line),
        };
        let wanted = if last { BLOCKS.div_ceil(across) } else { (2 * BLOCKS).div_ceil(across) };
        let each = n.div_ceil(wanted.max(1)).max(least).min(n);
        ChannelSplit { last, n, c, line, vector, each, parts: n.div_ceil(each), across, down }
    }

    fn launch(
        &self,
        gpu: &Gpu,
        name: &'static str,
        dtypes: [DType; 3],
        (eps, blocks): (Real, usize),
        at: &[u64],
    ) -> Result<()> {
        let aligned = self.last || self.line.is_multiple_of(self.vector);
        let wide = self.n * self.c * self.line >= 1 << 31;
        let flags = [self.last, aligned, wide].map(u32::from);
        let mut numbers: SmallVec<[u32; 4]> = SmallVec::from_slice(&flags);
        numbers.push(self.vector as u32);
        let key = KernelKey::Named(name, SmallVec::from_slice(&dtypes), numbers);
        let kernel = gpu.kernels.get(gpu, &key, || text(name, dtypes, flags, self.vector))?;
        let mut words: SmallVec<[u64; 32]> = SmallVec::from_slice(at);
        words.resize(8, 0);
        let sizes = [self.n, self.c, self.line, self.each, self.parts, self.across, self.down];
        words.extend(sizes.map(|n| n as u64));
        words.push(eps.0.to_bits());
        gpu.launch(kernel, blocks, BLOCK, &words)
    }

    /// Blocks that read all elements for sums, that merge parts, and that write all elements.
    fn blocks(&self) -> [usize; 3] {
        let elements = match self.last {
            true => self.across * self.n.div_ceil(2 * BATCH * BLOCK / self.down),
            false => (self.n * self.c * self.line).div_ceil(self.vector * BLOCK),
        };
        [self.across * self.parts, self.c.div_ceil(BLOCK / 32), elements]
    }
}

/// The text of a kernel, for dtypes of elements, weights and given statistics.
pub(crate) fn text(
    name: &str,
    [x, w, m]: [DType; 3],
    [last, aligned, wide]: [u32; 3],
    vector: usize,
) -> String {
    let (e, c, w, m) = (element(x), compute(x), element(w), element(m));
    format!(
        "{PRELUDE}#define {name}\ntypedef {e} E;\ntypedef {c} C;\ntypedef {w} W;\ntypedef {m} M;\n\
         #define LAST {last}\n#define ALIGNED {aligned}\n#define WIDE {wide}\n\
         #define VEC {vector}\n{TEXT}"
    )
}

/// The channels after the spatial axes.
fn moved(x: &StridedOperand) -> StridedOperand {
    let order: SmallVec<[usize; 5]> = [0].into_iter().chain(2..x.shape.len()).chain([1]).collect();
    x.permuted(&order)
}

/// In which order these lie, of which the last is a result: the channels last, or not. `None` for
/// what is left to loops.
fn layout(of: &[&StridedOperand]) -> Option<bool> {
    let x = of[0];
    let fits =
        |x: &StridedOperand, last: bool| if last { moved(x).is_dense() } else { x.is_dense() };
    let result = of[of.len() - 1];
    if x.len() < LEAST {
        return None;
    }
    // Other operands are copied; rows of channels are always last.
    let first = x.shape.len() == 2 || (fits(x, true) && fits(result, true));
    [first, !first].into_iter().find(|&last| fits(result, last))
}

/// Elements that all of these can be read by at once, and the operands where they are dense.
struct VectorAccess<'a> {
    cut: ChannelSplit,
    at: SmallVec<[u64; 4]>,
    _held: Vec<DeviceScratch<'a>>,
}

fn fitting<'a>(gpu: &'a Gpu, of: &[&StridedOperand]) -> Result<Option<VectorAccess<'a>>> {
    let Some(last) = layout(of) else { return Ok(None) };
    let (mut at, mut held) = (SmallVec::new(), Vec::new());
    for x in of {
        let seen = if last { moved(x) } else { (*x).clone() };
        if seen.is_dense() {
            at.push(x.at);
            continue;
        }
        let memory = gpu.scratch(x.bytes())?;
        copy(gpu, &seen, &StridedOperand::dense(memory.at, x.dtype, &seen.shape))?;
        at.push(memory.at);
        held.push(memory);
    }
    let x = of[0];
    let size = x.dtype.size();
    let line = element_count(&x.shape[2..]);
    let fits = |vector: &usize| {
        let bytes = (vector * size) as u64;
        let whole = if last { x.shape[1] } else { line };
        whole.is_multiple_of(*vector) && at.iter().all(|at: &u64| at.is_multiple_of(bytes))
    };
    let vector = [8, 4, 2, 1].into_iter().filter(|v| v * size <= 16).find(fits).unwrap_or(1);
    Ok(Some(VectorAccess { cut: ChannelSplit::new(&x.shape, last, vector), at, _held: held }))
}

/// For a pass over all elements: lines need not be whole vectors.
fn whole(cut: &ChannelSplit, dtype: DType, at: &[u64]) -> ChannelSplit {
    let vector = 16 / dtype.size();
    let bytes = 16;
    let fits = !cut.last
        && (cut.n * cut.c * cut.line).is_multiple_of(vector)
        && at.iter().all(|at| at.is_multiple_of(bytes));
    ChannelSplit { vector: if fits { vector } else { cut.vector }, ..*cut }
}

/// One number for each channel, dense.
fn dense<'a>(gpu: &'a Gpu, x: &StridedOperand, held: &mut Vec<DeviceScratch<'a>>) -> Result<u64> {
    if x.is_dense() {
        return Ok(x.at);
    }
    let memory = gpu.scratch(x.bytes())?;
    copy(gpu, x, &StridedOperand::dense(memory.at, x.dtype, &x.shape))?;
    held.push(memory);
    Ok(held[held.len() - 1].at)
}

/// From x, w, b: y, mean and variance. `false`, and nothing done, where loops do it.
pub(crate) fn forward(
    gpu: &Gpu,
    eps: Real,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<bool> {
    let (x, w, b) = (&x[0], &x[1], &x[2]);
    let Some(VectorAccess { cut, at, _held }) = fitting(gpu, &[x, &out[0]])? else {
        return Ok(false);
    };
    let dtypes = [x.dtype, w.dtype, x.dtype.compute()];
    let [sum, merge, _] = cut.blocks();
    let size = x.dtype.compute().size();
    let partial = gpu.scratch(2 * cut.parts * cut.c * size)?;
    let each = gpu.scratch(3 * cut.c * size)?;
    let mut held = Vec::new();
    let (w, b) = (dense(gpu, w, &mut held)?, dense(gpu, b, &mut held)?);
    cut.launch(gpu, "STATISTICS", dtypes, (eps, sum), &[at[0], partial.at])?;
    let words = [partial.at, w, b, out[1].at, out[2].at, each.at];
    cut.launch(gpu, "MERGE_STATISTICS", dtypes, (eps, merge), &words)?;
    let cut = whole(&cut, x.dtype, &at);
    let [_, _, elements] = cut.blocks();
    cut.launch(gpu, "NORMALISE", dtypes, (eps, elements), &[at[0], at[1], each.at])?;
    Ok(true)
}

/// From x, w, mean, variance, dy: dx, dw, db. `false`, and nothing done, where loops do it.
pub(crate) fn backward(
    gpu: &Gpu,
    eps: Real,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<bool> {
    let [x, w, mean, variance, dy] = x else { return Ok(false) };
    let Some(VectorAccess { cut, at, _held }) = fitting(gpu, &[x, dy, &out[0]])? else {
        return Ok(false);
    };
    let dtypes = [x.dtype, w.dtype, mean.dtype];
    let [sum, merge, _] = cut.blocks();
    let size = x.dtype.compute().size();
    let partial = gpu.scratch(2 * cut.parts * cut.c * size)?;
    let each = gpu.scratch(4 * cut.c * size)?;
    let mut held = Vec::new();
    let mut one = |x: &StridedOperand| dense(gpu, x, &mut held);
    let (w, mean, variance) = (one(w)?, one(mean)?, one(variance)?);
    cut.launch(gpu, "SUMS", dtypes, (eps, sum), &[at[0], at[1], mean, partial.at])?;
    let words = [partial.at, w, mean, variance, out[1].at, out[2].at, each.at];
    cut.launch(gpu, "MERGE_SUMS", dtypes, (eps, merge), &words)?;
    let cut = whole(&cut, x.dtype, &at);
    let [_, _, elements] = cut.blocks();
    cut.launch(gpu, "SLOPES", dtypes, (eps, elements), &[at[0], at[1], at[2], each.at])?;
    Ok(true)
}
