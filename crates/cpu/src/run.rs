//! The entry point of the backend: runs one op on its operands.
//!
//! The safety of all kernels rests on this: the op fits its operands ([`Checked`]), every layout
//! stays inside its buffer (checked here), and sinks are new buffers (or, in place, exactly the
//! operand they replace).

use crate::operand::{Sink, Source};
use crate::{
    Buffer, attention, collective, conv, ctc, custom, distances, dot, fft, index, linalg, movement,
    norm, pointwise, pool, random, ranks, reduce, region::RegionKernel, scan, sort, update,
};
use pullback_ir::infer::Checked;
use pullback_ir::{
    Axes, Error, ErrorKind, Fused, Layout, Op, Reduction, Region, Result, Spec, Write,
    dense_strides, element_count,
};
use smallvec::SmallVec;

/// An operand: a strided view of a buffer.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The memory.
    pub buffer: &'a Buffer,
    /// The layout of the elements in it.
    pub layout: &'a Layout,
    /// Their spec.
    pub spec: &'a Spec,
}

/// A result: dense and row-major, unless `splat`.
pub struct Output {
    /// The memory.
    pub buffer: Buffer,
    /// The spec of its content.
    pub spec: Spec,
    /// One element is stored for all (the result of a literal).
    pub splat: bool,
}

/// The results of an op.
pub type Outputs = SmallVec<[Output; 1]>;

/// The memory of the results of an op.
pub type Buffers = SmallVec<[Buffer; 1]>;

/// Runs an op. Views are not run: they are arithmetic on layouts.
///
/// # Errors
/// If memory cannot be allocated, a layout reaches outside its buffer, or the kernel fails.
pub fn run(call: Checked, inputs: &[Input]) -> Result<Outputs> {
    let mut buffers = Buffers::new();
    compute(&call, inputs, &mut buffers)?;
    let splat = is_splat(call.op());
    let output = |(buffer, spec): (Buffer, &Spec)| Output { buffer, spec: spec.clone(), splat };
    Ok(buffers.into_iter().zip(call.results()).map(output).collect())
}

/// Runs an op like [`run`], and adds only the memory of its results, whose specs the caller has.
///
/// # Errors
/// Those of [`run`].
pub fn compute(call: &Checked, inputs: &[Input], buffers: &mut Buffers) -> Result<()> {
    let specs = call.operands();
    // The common arities without lists: filling one takes longer than a small op.
    match (inputs, specs) {
        ([], []) => run_on(call, &[], buffers),
        ([a], [x]) => {
            check_operand(a, x)?;
            run_on(call, &[start(a)], buffers)
        }
        ([a, b], [x, y]) => {
            check_operand(a, x)?;
            check_operand(b, y)?;
            run_on(call, &[start(a), start(b)], buffers)
        }
        _ if inputs.len() == specs.len() => {
            let sources = inputs.iter().zip(specs).map(|(input, spec)| source(input, spec));
            run_on(call, &sources.collect::<Result<SmallVec<[Source; 4]>>>()?, buffers)
        }
        _ => Err(other_operands(call.op())),
    }
}

#[cold]
fn other_operands(op: &Op) -> Error {
    Error::argument(op.name(), "was checked for other operands")
}

/// Whether one element is stored for all of the result.
pub fn is_splat(op: &Op) -> bool {
    matches!(op, Op::Literal { .. })
}

fn run_on(call: &Checked, sources: &[Source], buffers: &mut Buffers) -> Result<()> {
    let (op, specs) = (call.op(), call.operands());
    let splat = is_splat(op);
    let allocate =
        |spec: &Spec| allocate(op.name(), if splat { spec.dtype.size() } else { spec.bytes() });
    let done = match call.results() {
        [spec] => {
            let mut buffer = allocate(spec)?;
            let done = dispatch(op, sources, &[fresh(&mut buffer, spec, splat)]);
            buffers.push(buffer);
            done
        }
        all => {
            for spec in all {
                buffers.push(allocate(spec)?);
            }
            let sinks =
                buffers.iter_mut().zip(all).map(|(buffer, spec)| fresh(buffer, spec, splat));
            dispatch(op, sources, &sinks.collect::<SmallVec<[Sink; 4]>>())
        }
    };
    done.map_err(|e| e.on(specs.iter().copied()))
}

/// Where a result is written.
#[inline]
fn fresh<'a>(buffer: &mut Buffer, spec: &'a Spec, splat: bool) -> Sink<'a> {
    let shape: &[usize] = if splat { &[] } else { &spec.shape };
    Sink { ptr: buffer.as_mut_ptr(), shape, dtype: spec.dtype }
}

/// Memory that results are written to.
pub struct WriteTarget<'a> {
    /// The memory.
    pub buffer: &'a mut Buffer,
    /// The layout of the elements in it.
    pub layout: &'a Layout,
    /// Their spec.
    pub spec: &'a Spec,
}

/// An operand of an op.
#[derive(Clone, Copy)]
pub enum ReadOperand<'a> {
    /// Separate memory.
    Input(Input<'a>),
    /// The previous content of one of the targets.
    Target(usize),
}

/// Runs an op and writes its results to the targets. Returns `false`, with nothing done, if no
/// kernel does both at once.
///
/// # Errors
/// If the operands or the targets are not as [`Write`] requires.
pub fn run_into(
    call: &Checked,
    write: Write,
    targets: &mut [WriteTarget],
    inputs: &[ReadOperand],
) -> Result<bool> {
    let (op, specs) = (call.op(), call.operands());
    if inputs.len() != specs.len() {
        return Err(other_operands(op));
    }
    // A result fits its target, and a target that is an operand is as the op was checked for.
    let fits = call.results().iter().eq(targets.iter().map(|t| t.spec));
    let same = |(input, spec): (&ReadOperand, &&Spec)| match input {
        ReadOperand::Input(_) => true,
        ReadOperand::Target(i) => targets.get(*i).is_some_and(|t| t.spec == *spec),
    };
    if !fits || !inputs.iter().zip(specs).all(same) {
        return Err(not_in_place(call, targets));
    }
    match (write, &mut targets[..], inputs) {
        (Write::Over, ..) => run_over(call, targets, inputs).map(|()| true),
        (Write::Add, [target], [ReadOperand::Input(a), ReadOperand::Input(b)])
            if *op == Op::Dot =>
        {
            add_product(call, target, a, b)
        }
        (Write::Part, [target], [ReadOperand::Input(value)]) if *op == Op::Copy => {
            copy_into(call, target, value).map(|()| true)
        }
        (Write::Add | Write::Part, ..) => Ok(false),
    }
}

#[cold]
fn not_in_place(call: &Checked, targets: &[WriteTarget]) -> Error {
    let over = targets.iter().map(|t| t.spec.to_string()).collect::<Vec<_>>().join(", ");
    let message = format!("cannot be written in place over {over}");
    Error::argument(call.op().name(), message).on(call.operands().iter().copied())
}

/// Whether the elements fill the memory from their first on, in row-major order.
fn is_dense(target: &WriteTarget) -> bool {
    target.layout.shape == target.spec.shape && target.layout.is_dense()
}

fn run_over(call: &Checked, targets: &mut [WriteTarget], inputs: &[ReadOperand]) -> Result<()> {
    let (op, specs) = (call.op(), call.operands());
    let takes = op.is_pointwise() || matches!(op, Op::Fused(f) if f.updates());
    if !takes || !targets.iter().all(is_dense) {
        return Err(not_in_place(call, targets));
    }
    let mut sinks: SmallVec<[Sink; 4]> = SmallVec::new();
    for target in &mut *targets {
        sinks.push(sink(target)?);
    }
    let mut operands: SmallVec<[Source; 6]> = SmallVec::new();
    for (input, spec) in inputs.iter().zip(specs) {
        operands.push(match input {
            ReadOperand::Input(input) => source(input, spec)?,
            ReadOperand::Target(i) => {
                let (sink, strides) = (sinks[*i], &targets[*i].layout.strides[..]);
                Source { ptr: sink.ptr, shape: sink.shape, strides, dtype: sink.dtype }
            }
        });
    }
    dispatch(op, &operands, &sinks).map_err(|e| e.on(specs.iter().copied()))
}

/// Adds the matrix product of `a` and `b` to a target.
fn add_product(call: &Checked, target: &mut WriteTarget, a: &Input, b: &Input) -> Result<bool> {
    let &[x, y] = call.operands() else { return Ok(false) };
    if !is_dense(target) {
        return Err(Error::argument("dot", "cannot be added in place").on([x, y, target.spec]));
    }
    Ok(dot::dot_add(source(a, x)?, source(b, y)?, sink(target)?))
}

/// Writes a value over the part of a buffer seen through a layout, which must not overlap itself.
fn copy_into(call: &Checked, target: &mut WriteTarget, value: &Input) -> Result<()> {
    let WriteTarget { layout, spec, .. } = target;
    let of = call.operands()[0];
    if layout.shape != spec.shape || layout.overlaps() {
        return Err(Error::argument("copy_", format!("{of} cannot be written over {spec}")));
    }
    let strides = &layout.strides;
    let to = sink(target)?;
    pointwise::copy_to(source(value, of)?, to.ptr, strides);
    Ok(())
}

/// The first element of a target, which is checked.
fn sink<'a>(target: &mut WriteTarget<'a>) -> Result<Sink<'a>> {
    check(target.buffer, target.layout, target.spec)?;
    let (layout, spec) = (target.layout, target.spec);
    let ptr = target.buffer.as_mut_ptr().wrapping_add(layout.offset * spec.dtype.size());
    Ok(Sink { ptr, shape: &spec.shape, dtype: spec.dtype })
}

pub(crate) fn allocate(op: &'static str, bytes: usize) -> Result<Buffer> {
    Buffer::alloc(bytes).map_err(|_| {
        Error::new(ErrorKind::Memory, op, format!("cannot allocate {bytes} bytes for the result"))
    })
}

/// The first element of an operand, which is as the op was checked for.
#[inline]
fn source<'a>(input: &Input<'a>, checked: &Spec) -> Result<Source<'a>> {
    check_operand(input, checked)?;
    Ok(start(input))
}

/// The operand is as the op was checked for, and inside its buffer.
#[inline]
fn check_operand(input: &Input, checked: &Spec) -> Result<()> {
    let spec = input.spec;
    if !std::ptr::eq(spec, checked) && spec != checked {
        return Err(checked_as(spec, checked));
    }
    check(input.buffer, input.layout, spec)
}

#[inline(always)]
fn start<'a>(input: &Input<'a>) -> Source<'a> {
    let Input { buffer, layout, spec } = input;
    let ptr = buffer.as_ptr().wrapping_add(layout.offset * spec.dtype.size());
    Source { ptr, shape: &spec.shape, strides: &layout.strides, dtype: spec.dtype }
}

#[cold]
fn checked_as(spec: &Spec, checked: &Spec) -> Error {
    Error::argument("run", format!("{spec} was checked as {checked}"))
}

/// Every index of the spec's shape, under the layout's strides, is inside the buffer.
#[inline]
fn check(buffer: &Buffer, layout: &Layout, spec: &Spec) -> Result<()> {
    let (shape, strides) = (&spec.shape[..], &layout.strides[..]);
    let (bytes, size) = (buffer.len(), spec.dtype.size());
    if Layout::inside(bytes, layout.offset, shape, strides, size) == Some(true) {
        return Ok(());
    }
    Err(outside(buffer, spec))
}

#[cold]
fn outside(buffer: &Buffer, spec: &Spec) -> Error {
    let message = format!("a layout reaches outside its buffer of {} bytes", buffer.len());
    Error::argument("run", message).on([spec])
}

/// Dense operands: unchanged, or copied.
fn dense<'a>(op: &Op, x: &[Source<'a>]) -> Result<(Vec<Buffer>, SmallVec<[Source<'a>; 6]>)> {
    let mut held = Vec::new();
    let mut made = SmallVec::new();
    for x in x {
        let mut copied = *x;
        if !x.is_dense() {
            let mut buffer = allocate(op.name(), x.len() * x.dtype.size())?;
            pointwise::copy(*x, Sink { ptr: buffer.as_mut_ptr(), shape: x.shape, dtype: x.dtype });
            // A region reads its operands through the layouts that it was compiled with, not
            // through these strides.
            copied.ptr = buffer.as_ptr();
            held.push(buffer);
        }
        made.push(copied);
    }
    Ok((held, made))
}

/// A region with sums over the rows: the values are stored, and added up by the kernel of sums. The
/// CPU's own target asks for none of these, so that other targets can be tested by it.
fn with_columns(of: &Region, x: &[Source<'_>], out: &[Sink]) -> Result<()> {
    let (kernel, domain) =
        (RegionKernel::new(&of.with_columns_stored())?, element_count(&of.shape));
    let (outputs, sums) = out.split_at(of.outputs.len());
    let mut sinks: SmallVec<[Sink; 6]> = SmallVec::from_slice(outputs);
    let mut stored: SmallVec<[Buffer; 2]> = SmallVec::new();
    for sum in sums {
        let mut buffer = allocate("region", domain * sum.dtype.size())?;
        sinks.push(Sink { ptr: buffer.as_mut_ptr(), shape: &of.shape, dtype: sum.dtype });
        stored.push(buffer);
    }
    kernel.run(x, &sinks);
    let (rows, strides) = ((0..of.outer().len()).collect::<Axes>(), dense_strides(&of.shape));
    for (value, sum) in stored.iter().zip(sums) {
        let (ptr, dtype) = (value.as_ptr(), sum.dtype);
        let source = Source { ptr, shape: &of.shape, strides: &strides, dtype };
        reduce::reduce(Reduction::Sum, &rows, source, *sum);
    }
    Ok(())
}

/// Picks the kernel. One arm per op, none for "the rest". Errors name the op; the caller adds the
/// operands.
pub(crate) fn dispatch(op: &Op, x: &[Source], out: &[Sink]) -> Result<()> {
    let y = &out[0];
    match op {
        Op::Literal { value, .. } => pointwise::fill(*value, *y),
        Op::Iota { .. } => random::iota(*y),
        Op::Random { kind, .. } => random::random(*kind, x[0], *y),
        Op::Unary(f) => pointwise::unary(*f, &x[0], y),
        Op::UnaryVjp(f) => pointwise::unary_vjp(*f, &x[0], &x[1], y),
        Op::Binary(f) => pointwise::binary(*f, &x[0], &x[1], y),
        Op::Compare(f) => pointwise::compare(*f, &x[0], &x[1], y),
        Op::Select => pointwise::select(x[0], x[1], x[2], *y),
        Op::Cast(_) => pointwise::cast(x[0], *y),
        Op::Copy | Op::To(_) | Op::After | Op::Wait => pointwise::copy(x[0], *y),
        // The host is where it is: only the steps of a program's way are kept apart.
        Op::Transfer(_) => pointwise::copy(x[0], *y),
        // The only view that runs is a reshape that needs a copy.
        Op::View(_) => pointwise::copy(x[0], Sink { shape: x[0].shape, ..*y }),
        Op::Put(views) => movement::put(views, x[0], x[1], *y),
        Op::Pad(padding) => movement::pad(padding, x[0], *y),
        Op::Cat(axis) => movement::cat(*axis, x, *y),
        Op::Gather(axis) => {
            return index::gather(*axis, x[0], x[1], *y).map_err(|e| e.explain(op));
        }
        Op::Scatter(axis, combine) => {
            return index::scatter(*axis, *combine, x[0], x[1], x[2], *y)
                .map_err(|e| e.explain(op));
        }
        Op::Reduce(kind, axes) => reduce::reduce(*kind, axes, x[0], *y),
        Op::ArgReduce(kind, axis) => reduce::arg_reduce(*kind, *axis, x[0], *y),
        Op::Cumulate { kind, axis, reverse } => scan::cumulate(*kind, *axis, *reverse, x[0], *y),
        Op::Sort { axis, descending } => sort::sort(*axis, *descending, x[0], *y, out[1]),
        Op::Ranks { axis, descending, from, count } => {
            let wanted = ranks::RankRange { descending: *descending, from: *from, count: *count };
            ranks::ranks(*axis, wanted, x[0], *y, out[1]);
        }
        Op::Dot => dot::dot(x[0], x[1], *y),
        Op::Conv(c) => conv::conv(c, x[0], x[1], *y),
        Op::Pool(p) => pool::pool(p, x[0], x.get(1).copied(), *y),
        Op::Linalg(f) => {
            return linalg::linalg(*f, x, out).map_err(|e| e.explain(op));
        }
        Op::Fft(f) => fft::fft(*f, x[0], *y),
        Op::Region(of) => {
            let (_held, x) = dense(op, x)?;
            match of.columns.is_empty() {
                true => RegionKernel::kept(of)?.run(&x, out),
                false => with_columns(of, &x, out)?,
            }
        }
        Op::DotRegion(of) => {
            let (_held, rest) = dense(op, &x[2..])?;
            RegionKernel::new(of)?.run_after_dot(of, x[0], x[1].into(), &rest, out);
        }
        Op::Flow(_) => {
            return Err(Error::argument(op.name(), "has no kernel"));
        }
        Op::Custom(of) => {
            let (_held, x) = dense(op, x)?;
            return custom::call(of, &x, out);
        }
        Op::Collective(of) => {
            let (_held, x) = dense(op, x)?;
            return collective::call(of, &x, *y);
        }
        Op::Fused(f) => match f {
            Fused::Softmax(axis) => norm::softmax(*axis, x[0], *y),
            Fused::SoftmaxVjp(axis) => norm::softmax_vjp(*axis, x[0], x[1], *y),
            Fused::LogSoftmax(axis) => norm::log_softmax(*axis, x[0], *y),
            Fused::LogSoftmaxVjp(axis) => norm::log_softmax_vjp(*axis, x[0], x[1], *y),
            Fused::LogSumExp(axis) => norm::log_sum_exp(*axis, x[0], *y),
            Fused::LayerNorm(eps) => norm::layer_norm(eps.0, x[0], x[1], x[2], *y),
            Fused::LayerNormVjp(eps) => {
                norm::layer_norm_vjp(eps.0, x[0], x[1], x[2], *y, out[1], out[2])
            }
            Fused::Distances { within } => distances::distances(*within, x, *y),
            Fused::DistancesVjp { within } => distances::distances_vjp(*within, x, out),
            Fused::Ctc { blank } => {
                return ctc::ctc(*blank, x, *y).map_err(|e| e.explain(op));
            }
            Fused::CtcVjp { blank } => {
                return ctc::ctc_vjp(*blank, x, *y).map_err(|e| e.explain(op));
            }
            Fused::Sgd(how) => update::sgd(*how, x, out),
            Fused::Adam(how) => update::adam(*how, x, out),
            Fused::BatchNorm(eps) => {
                norm::batch_norm(eps.0, x[0], x[1], x[2], *y, [out[1], out[2]])
            }
            Fused::BatchNormVjp(eps) => {
                norm::batch_norm_vjp(eps.0, [x[0], x[4]], x[1], [x[2], x[3]], *y, [out[1], out[2]])
            }
            Fused::Attention(a) => attention::attention(*a, x, *y, out[1]),
            Fused::AttentionVjp(a) => attention::attention_vjp(*a, x, *y, out[1], out[2]),
            Fused::CrossEntropy => {
                return norm::cross_entropy(x[0], x[1], *y).map_err(|e| e.explain(op));
            }
            Fused::CrossEntropyVjp => {
                return norm::cross_entropy_vjp(x[0], x[1], x[2], *y, out[1])
                    .map_err(|e| e.explain(op));
            }
        },
    }
    Ok(())
}

impl index::IndexError {
    fn explain(self, op: &Op) -> Error {
        let message = format!(
            "index {} (element {} of the indices) is out of range for an axis of length {}",
            self.index, self.position, self.len
        );
        Error::argument(op.name(), message)
    }
}

/// Checks an op and runs it.
#[cfg(test)]
pub(crate) fn run_op(op: &Op, inputs: &[Input]) -> Result<Outputs> {
    let specs: Vec<&Spec> = inputs.iter().map(|x| x.spec).collect();
    run(pullback_ir::infer::check(op, &specs)?, inputs)
}

/// Checks an op and writes its results to the targets.
#[cfg(test)]
pub(crate) fn run_op_into(
    op: &Op,
    write: Write,
    targets: &mut [WriteTarget],
    inputs: &[ReadOperand],
) -> Result<bool> {
    let of_targets: Vec<Spec> = targets.iter().map(|t| t.spec.clone()).collect();
    let spec = |x: &ReadOperand| match x {
        ReadOperand::Input(x) => Ok(x.spec.clone()),
        ReadOperand::Target(i) => {
            of_targets.get(*i).cloned().ok_or_else(|| Error::argument("run", "no such target"))
        }
    };
    let specs = inputs.iter().map(spec).collect::<Result<Vec<Spec>>>()?;
    let specs: Vec<&Spec> = specs.iter().collect();
    run_into(&pullback_ir::infer::check(op, &specs)?, write, targets, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pullback_ir::{Binary, DType, Few, Shape, Unary};

    fn layout(shape: &[usize], strides: &[isize], offset: usize) -> Layout {
        Layout { shape: Shape::from_slice(shape), strides: Few::from_slice(strides), offset }
    }

    #[test]
    fn layouts_that_reach_outside_are_refused() {
        let buffer = Buffer::from_slice(&[1.0f32, 2.0, 3.0, 4.0]).expect("memory");
        let refused = |shape: &[usize], strides: &[isize], offset: usize| {
            let spec = Spec::cpu(DType::F32, shape);
            let layout = layout(shape, strides, offset);
            let input = Input { buffer: &buffer, layout: &layout, spec: &spec };
            run_op(&Op::Unary(Unary::Neg), &[input]).is_err()
        };
        assert!(
            !refused(&[4], &[1], 0) && !refused(&[2, 2], &[-2, 1], 2) && !refused(&[9], &[0], 3)
        );
        assert!(refused(&[5], &[1], 0) && refused(&[4], &[1], 1) && refused(&[2], &[-1], 0));
        assert!(refused(&[3], &[isize::MIN], 0) && refused(&[3], &[isize::MAX], 1));
        assert!(refused(&[4], &[], 0) && refused(&[usize::MAX], &[1], 0));
    }

    #[test]
    fn a_target_in_place_must_be_what_its_spec_says() {
        let mut buffer = Buffer::from_slice(&[1.0f32]).expect("memory");
        let spec = Spec::cpu(DType::F32, [100_000_000].as_slice());
        let small = layout(&[1], &[0], 0);
        let op = Op::Binary(Binary::Add);
        let mut refused = |op: &Op, how, operands: &[ReadOperand]| {
            let target = WriteTarget { buffer: &mut buffer, layout: &small, spec: &spec };
            run_op_into(op, how, &mut [target], operands).is_err()
        };
        assert!(refused(&op, Write::Over, &[ReadOperand::Target(0), ReadOperand::Target(0)]));
        assert!(refused(&op, Write::Over, &[ReadOperand::Target(0), ReadOperand::Target(1)]));
        let value = Buffer::from_slice(&[1.0f32]).expect("memory");
        let input = Input { buffer: &value, layout: &small, spec: &spec };
        assert!(refused(&Op::Copy, Write::Part, &[ReadOperand::Input(input)]));
    }

    #[test]
    fn bytes_that_are_no_truth_values_are_not_read_as_such() {
        let buffer = Buffer::from_slice(&[0u8, 1, 7]).expect("memory");
        assert_eq!(buffer.to_vec::<bool>(DType::Bool, 0, 2), Some(vec![false, true]));
        assert_eq!(buffer.to_vec::<bool>(DType::Bool, 0, 3), None);
        assert_eq!(buffer.to_vec::<u8>(DType::U8, 1, 3), None);
    }
}
