//! Every op: as a loop, as a kernel of `kernels/`, as a product, or through the host.

use crate::gpu::{DeviceScratch, Gpu};
use crate::loops::{Loop, StridedOperand};
use crate::queue::bits;
use crate::{cat, custom, fft, fused, host, linalg, lines, product, transpose, window};
use pullback_ir::{
    Binary, DType, Error, Inst, Layout, Line, Op, Padding, Reduction, Result, Shape, Value, View,
};
use smallvec::{SmallVec, smallvec};

/// Runs an op on memory that fits it. Results are dense, except that of a copy.
pub(crate) fn run(
    gpu: &Gpu,
    op: &Op,
    x: &[StridedOperand],
    out: &[StridedOperand],
    at: Option<Line>,
) -> Result<()> {
    // Kernels over lines take so many axes that cannot be merged; those of a dense copy can.
    if x.iter().any(|x| x.shape.len() > lines::AXES && !x.is_dense()) && !op.is_pointwise() {
        let (mut held, mut dense) = (Vec::new(), Vec::new());
        for x in x {
            let memory = gpu.scratch(x.bytes())?;
            let to = StridedOperand::dense(memory.at, x.dtype, &x.shape);
            copy(gpu, x, &to)?;
            held.push(memory);
            dense.push(to);
        }
        return run(gpu, op, &dense, out, at);
    }
    match op {
        Op::Literal { value, dtype, .. } => {
            // One element for all, or as many as the memory is dense for. The number is a parameter
            // of the kernel, which serves all numbers.
            let bits = bits(*value, *dtype);
            if out[0].strides.iter().all(|&s| s == 0) {
                gpu.enter();
                return gpu.write_number(out[0].at, bits, dtype.size());
            }
            let none = SmallVec::<[isize; 4]>::from_elem(0, out[0].shape.len());
            let number = StridedOperand::new(bits, *dtype, &out[0].shape, &none);
            let outputs = [(0, out[0].clone())];
            let values = [Value { dtype: *dtype, row: false }];
            let (shape, inputs) = (&out[0].shape, std::slice::from_ref(&number));
            let body = &[Inst::Load(0)];
            let (values, outputs) = (&values, &outputs);
            Loop { shape, inner: 0, body, values, inputs, outputs, immediate: 1 }.run(gpu)
        }
        Op::Iota { dtype, .. } => {
            let body = [Inst::Index(0, *dtype)];
            let values = [Value { dtype: *dtype, row: false }];
            elements(gpu, &body, &values, x, &[(0, out[0].clone())])
        }
        Op::Random { kind, .. } => lines::random_keys(gpu, *kind, &x[0], &out[0]),
        Op::Unary(_)
        | Op::UnaryVjp(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Cast(_) => point(gpu, op, x, &out[0], 0),
        Op::Copy | Op::After | Op::Wait | Op::To(_) => copy(gpu, &x[0], &out[0]),
        // As an op by itself: in programs, `host_copies.rs` makes these copies.
        Op::Transfer(_) => copy(gpu, &x[0], &out[0]),
        // Only where the elements are not evenly spaced: their order stays.
        Op::View(_) => {
            copy(gpu, &x[0], &StridedOperand::dense(out[0].at, out[0].dtype, &x[0].shape))
        }
        Op::Put(views) => put_views(gpu, views, &x[0], &x[1], &out[0]),
        Op::Pad(padding) => pad(gpu, padding, &x[0], &out[0]),
        Op::Cat(axis) => cat(gpu, *axis, x, &out[0]),
        Op::Gather(axis) => lines::gather(gpu, *axis, [&x[0], &x[1], &out[0]], at),
        Op::Scatter(axis, how) => {
            // Narrow floats are combined in their compute type and rounded once.
            let wide = x[0].dtype.compute();
            let narrow = matches!(x[0].dtype, DType::BF16 | DType::F16);
            if !narrow {
                copy(gpu, &x[0], &out[0])?;
                return lines::scatter(gpu, (*axis, *how), [&out[0], &x[1], &x[2]], at);
            }
            let memory = [x[0].len(), x[2].len()].map(|n| gpu.scratch(n * wide.size()));
            let [base, source] = memory;
            let (base, source) = (base?, source?);
            let sums = StridedOperand::dense(base.at, wide, &x[0].shape);
            let added = StridedOperand::dense(source.at, wide, &x[2].shape);
            copy(gpu, &x[0], &sums)?;
            copy(gpu, &x[2], &added)?;
            lines::scatter(gpu, (*axis, *how), [&sums, &x[1], &added], at)?;
            copy(gpu, &sums, &out[0])
        }
        Op::Reduce(kind, axes) => reduce(gpu, *kind, axes, &x[0], &out[0]),
        Op::ArgReduce(kind, axis) => lines::arg_reduce(gpu, *kind, *axis, &x[0], &out[0]),
        Op::Cumulate { kind, axis, reverse } => {
            lines::cumulate(gpu, (*kind, *axis, *reverse), &x[0], &out[0])
        }
        Op::Sort { axis, descending } => {
            let all = (0, x[0].shape.get(*axis).copied().unwrap_or(1));
            lines::sort(gpu, (*axis, *descending), all, &x[0], [&out[0], &out[1]])
        }
        Op::Ranks { axis, descending, from, count } => {
            let some = (*from, *count);
            lines::sort(gpu, (*axis, *descending), some, &x[0], [&out[0], &out[1]])
        }
        Op::Dot if x[0].shape.last() == Some(&1) && out[0].dtype == x[0].dtype => {
            outer_product(gpu, &x[0], &x[1], &out[0])
        }
        Op::Dot if product::has(out[0].dtype) => product::dot(gpu, &x[0], &x[1], &out[0], false),
        Op::Dot => lines::integer_dot(gpu, &x[0], &x[1], &out[0]),
        Op::Fused(of) => fused::run(gpu, *of, x, out, at),
        Op::Conv(of) if window::has(of.windows.len(), out[0].dtype) => {
            window::conv(gpu, of, &x[0], &x[1], &out[0].permuted(&of.order()))
        }
        Op::Pool(of) if of.frames.len() <= window::AXES => window::pool(gpu, of, x, &out[0]),
        Op::Linalg(f) => {
            linalg::run(gpu, *f, x, out, at).map_err(|error| gpu.explained("linalg", error))
        }
        Op::Fft(f) => match gpu.transforms() {
            Ok(transforms) => fft::run(gpu, transforms, *f, &x[0], &out[0])
                .map_err(|error| gpu.explained("fft", error)),
            Err(_) => host::run(gpu, op, x, out, at),
        },
        Op::Conv(_) | Op::Pool(_) => host::run(gpu, op, x, out, at),
        // One worker has what all have; and what `nccl.rs` does not make, the host does.
        Op::Collective(of) if of.group.communicator().size() == 1 && x.len() == out.len() => {
            x.iter().zip(out).try_for_each(|(x, out)| copy(gpu, x, out))
        }
        Op::Collective(_) => host::run_quietly(gpu, op, x, out, at),
        Op::Custom(of) => custom::run(gpu, (op, of), x, out, at),
        Op::Region(_) | Op::DotRegion(_) | Op::Flow(_) => {
            Err(Error::argument(op.name(), "runs only as part of a program on this device"))
        }
    }
}

/// A loop without reductions over the shape of its first result.
fn elements(
    gpu: &Gpu,
    body: &[Inst],
    values: &[Value],
    inputs: &[StridedOperand],
    outputs: &[(usize, StridedOperand)],
) -> Result<()> {
    let shape = outputs[0].1.shape.clone();
    Loop { shape: &shape, inner: 0, body, values, inputs, outputs, immediate: 0 }.run(gpu)
}

/// Products of a column and a row, as the weight gradient of one example is. Nothing is summed, so
/// what counts is the memory that is written, and a loop writes it faster than the library.
fn outer_product(
    gpu: &Gpu,
    a: &StridedOperand,
    b: &StridedOperand,
    out: &StridedOperand,
) -> Result<()> {
    let along = |x: &StridedOperand, axis: usize| {
        let mut strides = x.strides.clone();
        strides[axis] = 0;
        x.as_strided(&out.shape, &strides)
    };
    let rank = out.shape.len();
    let factors = [along(a, rank - 1), along(b, rank - 2)];
    point(gpu, &Op::Binary(Binary::Mul), &factors, out, 0)
}

/// A pointwise op; inputs whose bit of `immediate` is set are numbers by value.
pub(crate) fn point(
    gpu: &Gpu,
    op: &Op,
    x: &[StridedOperand],
    out: &StridedOperand,
    immediate: u64,
) -> Result<()> {
    let mut body: SmallVec<[Inst; 4]> = (0..x.len()).map(Inst::Load).collect();
    body.push(Inst::Point(op.clone(), (0..x.len()).collect()));
    let mut values: SmallVec<[Value; 4]> =
        x.iter().map(|x| Value { dtype: x.dtype, row: false }).collect();
    values.push(Value { dtype: out.dtype, row: false });
    let outputs = [(x.len(), out.clone())];
    let (shape, body, values) = (&out.shape, &body, &values);
    Loop { shape, inner: 0, body, values, inputs: x, outputs: &outputs, immediate }.run(gpu)
}

/// Memory for a kernel that takes dense operands and results of certain dtypes: their own where it
/// is such, otherwise copies, which live as long as this.
pub(crate) struct DenseOperands<'a> {
    gpu: &'a Gpu,
    held: SmallVec<[DeviceScratch<'a>; 8]>,
}

impl<'a> DenseOperands<'a> {
    pub(crate) fn new(gpu: &'a Gpu) -> DenseOperands<'a> {
        DenseOperands { gpu, held: SmallVec::new() }
    }

    /// An operand, dense in this dtype.
    pub(crate) fn read(&mut self, x: &StridedOperand, dtype: DType) -> Result<StridedOperand> {
        let to = self.result(x, dtype)?;
        copy(self.gpu, x, &to)?;
        Ok(to)
    }

    /// Where to write a result, which [`copy`] then takes to its place.
    pub(crate) fn result(&mut self, y: &StridedOperand, dtype: DType) -> Result<StridedOperand> {
        if y.dtype == dtype && y.is_dense() {
            return Ok(y.clone());
        }
        let memory = self.gpu.scratch(y.len().max(1) * dtype.size())?;
        let made = StridedOperand::dense(memory.at, dtype, &y.shape);
        self.held.push(memory);
        Ok(made)
    }
}

/// Copies elements, converted if the dtypes differ. Nothing is done if they are there already.
pub(crate) fn copy(gpu: &Gpu, from: &StridedOperand, to: &StridedOperand) -> Result<()> {
    let same = from.dtype == to.dtype;
    if same && from.at == to.at && from.strides == to.strides {
        return Ok(());
    }
    if same && from.is_dense() && to.is_dense() {
        return gpu.copy(from.at, to.at, to.bytes());
    }
    if !same {
        return point(gpu, &Op::Cast(to.dtype), std::slice::from_ref(from), to, 0);
    }
    if let Some(sizes) = transpose::matrices(from, to) {
        return transpose::transpose(gpu, from.dtype, from.at, to.at, sizes);
    }
    let values = [Value { dtype: from.dtype, row: false }];
    elements(gpu, &[Inst::Load(0)], &values, std::slice::from_ref(from), &[(0, to.clone())])
}

/// The operand itself, or a dense copy if it shares memory with a result that is about to be
/// written.
fn unaliased<'a>(
    gpu: &'a Gpu,
    x: &StridedOperand,
    out: &StridedOperand,
) -> Result<(StridedOperand, Option<crate::gpu::DeviceScratch<'a>>)> {
    let end = out.at + out.bytes() as u64;
    if x.len() == 0 || !(out.at..end).contains(&x.at) {
        return Ok((x.clone(), None));
    }
    let memory = gpu.scratch(x.bytes())?;
    let moved = StridedOperand::dense(memory.at, x.dtype, &x.shape);
    copy(gpu, x, &moved)?;
    Ok((moved, Some(memory)))
}

/// The part of a dense result that is seen through a layout.
fn part(out: &StridedOperand, layout: &Layout) -> StridedOperand {
    out.from(layout.offset as isize).as_strided(&layout.shape, &layout.strides)
}

fn put_views(
    gpu: &Gpu,
    views: &[View],
    base: &StridedOperand,
    piece: &StridedOperand,
    out: &StridedOperand,
) -> Result<()> {
    let whole = Layout::dense(Shape::from_slice(&out.shape));
    let window = |layout: Layout, view| layout.view(view);
    let Some(layout) = views.iter().try_fold(whole, window) else {
        return Err(Error::argument("put", "a window has no layout"));
    };
    let in_place = base.at == out.at && base.is_dense();
    let (piece, _held) = match in_place {
        true => (piece.clone(), None),
        false => unaliased(gpu, piece, out)?,
    };
    copy(gpu, base, out)?;
    copy(gpu, &piece, &part(out, &layout))
}

fn pad(gpu: &Gpu, padding: &[Padding], x: &StridedOperand, out: &StridedOperand) -> Result<()> {
    let (x, _held) = unaliased(gpu, x, out)?;
    gpu.fill(out.at, 0, out.bytes())?;
    let dense = pullback_ir::dense_strides(&out.shape);
    let mut strides: SmallVec<[isize; 4]> = SmallVec::from_slice(&dense);
    let mut offset = 0;
    for (stride, p) in strides.iter_mut().zip(padding) {
        offset += p.before as isize * *stride;
        *stride *= p.between as isize + 1;
    }
    copy(gpu, &x, &out.from(offset).as_strided(&x.shape, &strides))
}

fn cat(gpu: &Gpu, axis: usize, x: &[StridedOperand], out: &StridedOperand) -> Result<()> {
    if cat::cat(gpu, axis, x, out)? {
        return Ok(());
    }
    let dense = pullback_ir::dense_strides(&out.shape);
    let mut before = 0;
    for piece in x {
        let to = out.from(before as isize * dense[axis]).as_strided(&piece.shape, &dense);
        copy(gpu, piece, &to)?;
        before += piece.shape[axis];
    }
    Ok(())
}

/// The sum over the first axes of many rows, such as the gradient of a bias: rows are read by
/// vectors. `false`, and nothing done, for others.
fn sum_of_rows(
    gpu: &Gpu,
    axes: &[usize],
    x: &StridedOperand,
    out: &StridedOperand,
) -> Result<bool> {
    let rows = pullback_ir::element_count(&x.shape[..axes.len()]);
    let leading = axes.iter().copied().eq(0..axes.len()) && axes.len() < x.shape.len();
    if !leading || !x.dtype.is_float() || rows < 256 || x.len() < 1 << 16 {
        return Ok(false);
    }
    let wide = x.dtype.compute();
    let body = [Inst::Load(0), Inst::Point(Op::Cast(wide), smallvec![0])];
    let values = [x.dtype, wide].map(|dtype| Value { dtype, row: false });
    // Several short rows as one, that keeps a warp busy.
    let width = x.len() / rows;
    let fits = |&n: &usize| x.is_dense() && rows.is_multiple_of(n) && n * width <= 1024;
    let times = [32, 16, 8, 4, 2].into_iter().find(fits).unwrap_or(1);
    let wider = StridedOperand::dense(x.at, x.dtype, &[rows / times, times * width]);
    let x = if times == 1 { x } else { &wider };
    let of = Loop {
        shape: &x.shape,
        inner: if times == 1 { x.shape.len() - axes.len() } else { 1 },
        body: &body,
        values: &values,
        inputs: std::slice::from_ref(x),
        outputs: &[],
        immediate: 0,
    };
    of.run_with_columns(gpu, &[(1, out.clone())], times)
}

pub(crate) fn reduce(
    gpu: &Gpu,
    kind: Reduction,
    axes: &[usize],
    x: &StridedOperand,
    out: &StridedOperand,
) -> Result<()> {
    let rank = x.shape.len();
    if kind == Reduction::Sum && sum_of_rows(gpu, axes, x, out)? {
        return Ok(());
    }
    let order: Vec<usize> =
        (0..rank).filter(|d| !axes.contains(d)).chain(axes.iter().copied()).collect();
    let seen = x.permuted(&order);
    let body = [Inst::Load(0), Inst::Reduce(kind, 0)];
    let values = [Value { dtype: x.dtype, row: false }, Value { dtype: out.dtype, row: true }];
    let shape = seen.shape.clone();
    let outputs: SmallVec<[(usize, StridedOperand); 1]> = smallvec![(1, out.clone())];
    let of = Loop {
        shape: &shape,
        inner: axes.len(),
        body: &body,
        values: &values,
        inputs: &[seen],
        outputs: &outputs,
        immediate: 0,
    };
    of.run(gpu)
}
