//! From operands with layouts to a loop kernel and its launch.
//!
//! Axes that are adjacent in every operand are merged first, so that nearly every op is flat or has
//! two axes, and few kernels are made.

use crate::compile::KernelKey;
use crate::gpu::{DeviceScratch, Gpu};
use crate::text::{LoopForm, LoopText, THREADS, levels, text};
use pullback_cuda_sys::DevicePtr;
use pullback_ir::{DType, Inst, Reduction, Result, Strides, Value, element_count};
use smallvec::{SmallVec, smallvec};

/// Memory seen through strides: the address is that of the element at index 0, 0, ….
#[derive(Clone)]
pub(crate) struct StridedOperand {
    pub at: DevicePtr,
    pub dtype: DType,
    pub shape: SmallVec<[usize; 4]>,
    pub strides: SmallVec<[isize; 4]>,
}

impl StridedOperand {
    pub fn dense(at: DevicePtr, dtype: DType, shape: &[usize]) -> StridedOperand {
        let strides = pullback_ir::dense_strides(shape);
        StridedOperand::new(at, dtype, shape, &strides)
    }

    pub fn new(at: DevicePtr, dtype: DType, shape: &[usize], strides: &[isize]) -> StridedOperand {
        let (shape, strides) = (SmallVec::from_slice(shape), SmallVec::from_slice(strides));
        StridedOperand { at, dtype, shape, strides }
    }

    pub fn len(&self) -> usize {
        element_count(&self.shape)
    }

    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.size()
    }

    /// Bytes of the elements that it has in memory: one that is repeated counts once.
    pub fn distinct_bytes(&self) -> usize {
        let axes = self.shape.iter().zip(&self.strides).filter(|(_, stride)| **stride != 0);
        axes.map(|(n, _)| n).product::<usize>() * self.dtype.size()
    }

    pub fn is_dense(&self) -> bool {
        let mut expected = 1;
        for (&n, &s) in self.shape.iter().zip(&self.strides).rev() {
            if n != 1 && s != expected {
                return self.len() == 0;
            }
            expected *= n as isize;
        }
        true
    }

    /// The same memory with other axes.
    pub fn as_strided(&self, shape: &[usize], strides: &[isize]) -> StridedOperand {
        StridedOperand::new(self.at, self.dtype, shape, strides)
    }

    /// From element `offset` on.
    pub fn from(&self, offset: isize) -> StridedOperand {
        let bytes = offset * self.dtype.size() as isize;
        StridedOperand { at: self.at.wrapping_add_signed(bytes as i64), ..self.clone() }
    }

    /// The axes in another order.
    pub fn permuted(&self, order: &[usize]) -> StridedOperand {
        let shape: Vec<usize> = order.iter().map(|&d| self.shape[d]).collect();
        let strides: Vec<isize> = order.iter().map(|&d| self.strides[d]).collect();
        self.as_strided(&shape, &strides)
    }

    /// An axis with one element repeated, at place `axis`.
    pub fn repeated(&self, axis: usize, n: usize) -> StridedOperand {
        let mut out = self.clone();
        out.shape.insert(axis, n);
        out.strides.insert(axis, 0);
        out
    }
}

/// A loop: instructions over a domain. Operands have its shape; results that are row values have
/// that of the axes before the last `inner`.
pub(crate) struct Loop<'a> {
    pub shape: &'a [usize],
    pub inner: usize,
    pub body: &'a [Inst],
    pub values: &'a [Value],
    pub inputs: &'a [StridedOperand],
    pub outputs: &'a [(usize, StridedOperand)],
    /// Bit `k`: the address of input `k` is not one, but the bits of its only element.
    pub immediate: u64,
}

/// Merged axes: the length, and the stride of each operand.
pub(crate) type LoopAxes = SmallVec<[(usize, SmallVec<[isize; 4]>); 4]>;

pub(crate) fn merged(shape: &[usize], strides: &[&[isize]]) -> LoopAxes {
    let mut axes = LoopAxes::new();
    for (d, &n) in shape.iter().enumerate() {
        if n == 1 {
            continue;
        }
        let of: SmallVec<[isize; 4]> =
            strides.iter().map(|s| s.get(d).copied().unwrap_or(0)).collect();
        match axes.last_mut() {
            Some((before, by)) if by.iter().zip(&of).all(|(a, b)| *a == b * n as isize) => {
                (*before, *by) = (*before * n, of);
            }
            _ => axes.push((n, of)),
        }
    }
    axes
}

/// The first is a shift that keeps a group of 32 bits from overflowing in sums with a block.
pub(crate) const NARROW: usize = 1 << 31;

/// A domain as rows.
pub(crate) struct InRows {
    /// The axes that number the rows, merged.
    pub outer: LoopAxes,
    /// Those along a row.
    pub inner: LoopAxes,
    pub rows: usize,
    /// Elements of a row.
    pub width: usize,
}

impl Loop<'_> {
    pub fn in_rows(&self) -> InRows {
        let split_at = self.shape.len() - self.inner;
        let (outer, inner) = self.shape.split_at(split_at);
        let (rows, width) = (element_count(outer), element_count(inner));
        let strides = self.strides();
        let inside: SmallVec<[&[isize]; 6]> =
            strides.iter().map(|s| s.get(split_at..).unwrap_or(&[])).collect();
        InRows { outer: merged(outer, &strides), inner: merged(inner, &inside), rows, width }
    }

    pub fn run(&self, gpu: &Gpu) -> Result<()> {
        match self.body.iter().any(|inst| matches!(inst, Inst::Reduce(..))) {
            true => self.rows(gpu),
            false => self.elements(gpu),
        }
    }

    fn strides(&self) -> SmallVec<[&[isize]; 6]> {
        let inputs = self.inputs.iter().map(|x| &x.strides[..]);
        inputs.chain(self.outputs.iter().map(|(_, y)| &y.strides[..])).collect()
    }

    pub fn addresses(&self) -> SmallVec<[u64; 32]> {
        let mut words: SmallVec<[u64; 32]> = self.inputs.iter().map(|x| x.at).collect();
        words.extend(self.outputs.iter().map(|(_, y)| y.at));
        if words.is_empty() {
            words.push(0);
        }
        words
    }

    /// What indices along axes of the domain need: how often each index is repeated, and how many
    /// there are.
    pub fn indices(&self, words: &mut SmallVec<[u64; 32]>) {
        let axes = || {
            self.body.iter().filter_map(|inst| match inst {
                Inst::Index(axis, _) => Some(*axis),
                _ => None,
            })
        };
        words.extend(axes().map(|axis| element_count(&self.shape[axis + 1..]).max(1) as u64));
        words.extend(axes().map(|axis| self.shape[axis].max(1) as u64));
    }

    pub fn text(&self, form: LoopForm, wide: bool) -> LoopText {
        LoopText {
            body: self.body.iter().cloned().collect(),
            inputs: self.inputs.iter().map(|x| x.dtype).collect(),
            outputs: self.outputs.iter().map(|y| y.0).collect(),
            form,
            immediate: self.immediate,
            wide,
        }
    }

    pub fn launch(
        &self,
        gpu: &Gpu,
        key: LoopText,
        grid: usize,
        block: usize,
        words: &[u64],
    ) -> Result<()> {
        let key = KernelKey::Loop(key);
        let KernelKey::Loop(of) = &key else { return Ok(()) };
        let kernel = gpu.kernels.get(gpu, &key, || text(of, self.values))?;
        gpu.launch(kernel, grid, block, words)
    }

    fn elements(&self, gpu: &Gpu) -> Result<()> {
        let count = element_count(self.shape);
        if count == 0 {
            return Ok(());
        }
        let (key, blocks, words) = self.elements_call(count);
        self.launch(gpu, key, blocks, THREADS, &words)
    }

    /// The kernel of a loop without reductions, its blocks and its parameters.
    pub fn elements_call(&self, count: usize) -> (LoopText, usize, SmallVec<[u64; 32]>) {
        let axes = merged(self.shape, &self.strides());
        let wide = count >= NARROW;
        let mut words = self.addresses();
        words.extend([count as u64, 1, 1, 1]);
        self.indices(&mut words);
        let inputs = self.inputs.len();
        let flat = match &axes[..] {
            [] => true,
            [(_, of)] => {
                of[inputs..].iter().all(|&s| s == 1)
                    && of[..inputs].iter().all(|&s| s == 0 || s == 1)
            }
            _ => false,
        };
        if flat && inputs <= 64 {
            let is_single = |k: usize| axes.first().is_none_or(|(_, of)| of[k] == 0);
            let single = (0..inputs).filter(|&k| is_single(k)).fold(0, |bits, k| bits | 1u64 << k);
            let vector = self.vector(single);
            let blocks = count.div_ceil(vector * THREADS);
            let form = LoopForm::Flat { vector: vector as u32, single };
            return (self.text(form, wide), blocks, words);
        }
        words.extend(axes.iter().map(|(n, _)| *n as u64));
        for k in 0..inputs + self.outputs.len() {
            words.extend(axes.iter().map(|(_, of)| of[k] as u64));
        }
        let (vector, single) = self.last_axis(&axes);
        let form = LoopForm::Strided { rank: axes.len() as u32, vector: vector as u32, single };
        (self.text(form, wide), count.div_ceil(vector * THREADS), words)
    }

    /// Elements that a thread computes at once along the last axis, and which operands are constant
    /// along it.
    fn last_axis(&self, axes: &LoopAxes) -> (usize, u64) {
        let inputs = self.inputs.len();
        let Some((length, last)) = axes.last() else { return (1, 0) };
        if inputs > 64 || last[inputs..].iter().any(|&s| s != 1) {
            return (1, 0);
        }
        if last[..inputs].iter().any(|&s| s != 0 && s != 1) {
            return (1, 0);
        }
        let single = (0..inputs).filter(|&k| last[k] == 0).fold(0, |bits, k| bits | 1u64 << k);
        let vector = self.vector(single);
        let before = &axes[..axes.len() - 1];
        let fits = |k: usize| {
            k < inputs && single >> k & 1 == 1
                || before.iter().all(|(_, of)| of[k] % vector as isize == 0)
        };
        match length % vector == 0 && (0..last.len()).all(fits) {
            true if vector > 1 => (vector, single),
            _ => (1, 0),
        }
    }

    /// Elements that a thread loads at once: 16 bytes of the widest dtype, if all are aligned.
    fn vector(&self, single: u64) -> usize {
        let dense = self.inputs.iter().enumerate().filter(|(k, _)| single >> k & 1 == 0);
        let all = || dense.clone().map(|(_, x)| x).chain(self.outputs.iter().map(|(_, y)| y));
        let widest = all().map(|x| x.dtype.size()).max().unwrap_or(8);
        let vector = 16 / widest;
        let aligned = all().all(|x| x.at.is_multiple_of((x.dtype.size() * vector) as u64));
        if aligned { vector } else { 1 }
    }

    fn rows(&self, gpu: &Gpu) -> Result<()> {
        let of = self.in_rows();
        if of.rows == 0 {
            return Ok(());
        }
        if let Some(held) = self.fits_registers(&of, &[]) {
            return self.run_held(gpu, held, &of, &[]);
        }
        let (form, [parts, part], wide) = self.row_form(&of);
        if parts == 1 {
            return self.run_rows(gpu, &of, [1, part], form, wide);
        }
        // The parts, in the compute type, then their reduction.
        let mut partial: Vec<(usize, DeviceScratch<'_>, StridedOperand)> = Vec::new();
        for (v, _) in self.outputs {
            let dtype = self.values[*v].dtype.compute();
            let memory = gpu.scratch(of.rows * parts * dtype.size())?;
            let seen =
                StridedOperand::new(memory.at, dtype, &[of.rows, parts], &[1, of.rows as isize]);
            partial.push((*v, memory, seen));
        }
        let outputs: Vec<(usize, StridedOperand)> =
            partial.iter().map(|(v, _, seen)| (*v, seen.clone())).collect();
        let first = Loop { outputs: &outputs, ..*self };
        first.run_rows(gpu, &of, [parts, part], form, wide)?;
        for ((v, _, seen), (_, to)) in partial.iter().zip(self.outputs) {
            let Inst::Reduce(kind, _) = self.body[*v] else { continue };
            reduce_parts(gpu, kind, seen, to, of.rows)?;
        }
        Ok(())
    }

    /// The form of rows that are not held in registers, the parts of each and their lengths, and
    /// whether indices need 64 bits.
    pub fn row_form(&self, of: &InRows) -> (LoopForm, [usize; 2], bool) {
        let InRows { outer, inner, rows, width } = of;
        let (rows, width) = (*rows, *width);
        // Threads read neighbours: along the row, or along the rows if these are contiguous.
        let unit = |axes: &LoopAxes| {
            axes.last().is_some_and(|(_, of)| of[..self.inputs.len()].contains(&1))
        };
        let threads = match width {
            0..=4 => 1,
            5.. if !unit(inner) && unit(outer) && rows >= 32 => 1,
            5..=1024 => 32,
            1025..=8192 => 256,
            8193.. => 1024,
        };
        let parts = self.parts(rows, width, threads);
        let part = width.div_ceil(parts).max(1);
        let parts = width.div_ceil(part).max(1);
        let wide = rows * width.max(1) >= NARROW || rows * parts * threads >= NARROW;
        let form = LoopForm::Rows {
            // Axes of length 1 stand for none.
            outer: outer.len().max(1) as u32,
            inner: inner.len().max(1) as u32,
            threads: threads as u32,
            split: parts > 1,
        };
        (form, [parts, part], wide)
    }

    /// Into how many parts rows are split: so many that the device has work, if there are few rows
    /// and all results are reductions of what is loaded.
    fn parts(&self, rows: usize, width: usize, threads: usize) -> usize {
        let reduces = |v: usize| matches!(self.body[v], Inst::Reduce(..));
        let first = levels(self.body);
        let simple = self.outputs.iter().all(|(v, _)| reduces(*v) && first[*v] == 1);
        let groups = rows * threads;
        // Two blocks of 1024 threads for each multiprocessor of a large device, whatever this one
        // has: sums must not depend on it.
        const WANTED: usize = 264 * 1024;
        let least = if threads == 1 { 64 } else { 16 * threads };
        match simple && groups < WANTED && width >= 2 * least {
            true => (WANTED / groups).min(width / least).clamp(1, 1024),
            false => 1,
        }
    }

    pub fn operand(&self, k: usize) -> &StridedOperand {
        match self.inputs.get(k) {
            Some(x) => x,
            None => &self.outputs[k - self.inputs.len()].1,
        }
    }

    fn run_rows(
        &self,
        gpu: &Gpu,
        of: &InRows,
        [parts, part]: [usize; 2],
        form: LoopForm,
        wide: bool,
    ) -> Result<()> {
        let LoopForm::Rows { threads, .. } = form else { return Ok(()) };
        let InRows { outer, inner, rows, width } = of;
        let mut words = self.addresses();
        words.extend([*rows as u64, *width as u64, parts as u64, part as u64]);
        self.indices(&mut words);
        // Axes of length 1 stand for none.
        let none: LoopAxes = smallvec![(1, smallvec![0; self.inputs.len() + self.outputs.len()])];
        let outer = if outer.is_empty() { &none } else { outer };
        let inner = if inner.is_empty() { &none } else { inner };
        words.extend(outer.iter().chain(inner).map(|(n, _)| *n as u64));
        for k in 0..self.inputs.len() + self.outputs.len() {
            words.extend(outer.iter().chain(inner).map(|(_, of)| of[k] as u64));
        }
        let (threads, block) = (threads as usize, threads.max(256) as usize);
        let grid = (rows * parts * threads).div_ceil(block);
        self.launch(gpu, self.text(form, wide), grid, block, &words)
    }
}

/// Reduces the parts of rows, and rounds to the dtype of the result.
fn reduce_parts(
    gpu: &Gpu,
    kind: Reduction,
    from: &StridedOperand,
    to: &StridedOperand,
    rows: usize,
) -> Result<()> {
    let cast = pullback_ir::Op::Cast(to.dtype);
    let body = [Inst::Load(0), Inst::Reduce(kind, 0), Inst::Point(cast, smallvec![1])];
    let values = [
        Value { dtype: from.dtype, row: false },
        Value { dtype: from.dtype, row: true },
        Value { dtype: to.dtype, row: true },
    ];
    let parts = from.shape[1];
    // The rows as one axis: results are dense in their order, or are given axis by axis.
    let (shape, from) = match to.is_dense() {
        true => (vec![rows, parts], from.clone()),
        false => {
            let mut shape = to.shape.to_vec();
            let mut strides: Strides = pullback_ir::dense_strides(&shape);
            shape.push(parts);
            strides.push(rows as isize);
            let seen = from.as_strided(&shape, &strides);
            (shape, seen)
        }
    };
    let to = if to.is_dense() { to.as_strided(&[rows], &[1]) } else { to.clone() };
    let of = Loop {
        shape: &shape,
        inner: 1,
        body: &body,
        values: &values,
        inputs: &[from],
        outputs: &[(2, to)],
        immediate: 0,
    };
    of.rows(gpu)
}
