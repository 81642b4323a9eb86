//! Steps on a few elements, joined into straight-line code.
//!
//! A kernel call costs some tens of nanoseconds before it computes anything: negligible for a
//! thousand elements, but nearly all of the time when a loop runs ten thousand iterations over two
//! numbers. So consecutive steps whose tensors have a handful of elements each become one piece of
//! native code, element by element: no kernel is called, no shape is read, and what one step passes
//! to the next stays in a register.
//!
//! Every result is still stored at its planned address, so that later steps can read it. The
//! formulas are those of fused regions, with the same bits, and sums are taken in the order of the
//! kernel for short rows.

use super::code::{Action, KernelCall, StepOperand, StepResult};
use crate::reduce::extreme_of_none;
use crate::region::native::straight::{ScalarId, Straight, StraightBuilder};
use pullback_ir::{
    Binary, DType, Error, Inst, Layout, Op, Reduction, Region, Result, Scalar, Shape,
};
use std::ops::Range;

/// Most elements of a tensor.
pub(super) const ELEMENTS: usize = 8;

/// Bytes from a base address that code can address, minus the size of an operand.
const FAR: usize = 1 << 30;

/// Most items of a piece: it is code that runs once per iteration.
const LENGTH: usize = 4096;

/// A part of a list of steps.
pub(super) enum Segment {
    /// Steps that run one by one.
    Steps(Range<usize>),
    /// Steps joined into one piece of code.
    Straight(Straight, Range<usize>),
}

/// The same steps, joined where they can be; and the most scratch that a piece needs, at base
/// number `scratch`. `None` if nothing was joined.
pub(super) fn join(steps: &[KernelCall], scratch: usize) -> Result<Option<(Vec<Segment>, usize)>> {
    let mut parts: Vec<Segment> = Vec::new();
    let (mut open, mut scratch_bytes, mut joined): (Option<StraightBuilder>, usize, bool) =
        (None, 0, false);
    let mut start = 0;
    let mut close =
        |open: &mut Option<StraightBuilder>, parts: &mut Vec<Segment>, steps| -> Result<()> {
            if let Some(builder) = open.take().filter(|builder| builder.len() > 0) {
                let straight = builder.finish(scratch)?;
                scratch_bytes = scratch_bytes.max(straight.scratch);
                joined = true;
                parts.push(Segment::Straight(straight, steps));
            }
            Ok(())
        };
    for (n, step) in steps.iter().enumerate() {
        if open.as_ref().is_some_and(|builder| builder.len() > LENGTH) {
            close(&mut open, &mut parts, start..n)?;
        }
        let builder = match &mut open {
            Some(builder) => builder,
            None => match StraightBuilder::new() {
                Some(builder) => {
                    start = n;
                    open.insert(builder)
                }
                None => return Ok(None),
            },
        };
        if fits(step, builder) {
            write(step, builder)?;
            continue;
        }
        close(&mut open, &mut parts, start..n)?;
        match parts.last_mut() {
            Some(Segment::Steps(range)) => range.end = n + 1,
            _ => parts.push(Segment::Steps(n..n + 1)),
        }
    }
    close(&mut open, &mut parts, start..steps.len())?;
    Ok(joined.then_some((parts, scratch_bytes)))
}

/// The dtype that elements are copied as: only their size matters.
fn carrier(dtype: DType) -> Option<DType> {
    match dtype {
        DType::F64 => Some(DType::F64),
        DType::I64 => Some(DType::I64),
        DType::F32 | DType::I32 => Some(DType::F32),
        DType::Bool => Some(DType::Bool),
        DType::BF16 | DType::F16 | DType::U8 => None,
    }
}

/// Whether all elements of an operand, seen through a layout, can be addressed by code: not before
/// the base either, as those of a flipped operand passed to a body may be.
fn is_near(x: &StepOperand, layout: &Layout) -> bool {
    (0..layout.shape.iter().product()).all(|i| {
        let byte = offset(layout, i).checked_mul(x.dtype.size() as isize);
        let byte = byte.and_then(|byte| byte.checked_add_unsigned(x.start));
        byte.is_some_and(|byte| (0..FAR as isize).contains(&byte))
    })
}

fn few(shape: &[usize]) -> bool {
    shape.iter().product::<usize>() <= ELEMENTS
}

/// Whether a step can be joined.
fn fits(step: &KernelCall, builder: &StraightBuilder) -> bool {
    let is_region = matches!(step.action, Action::Region(..));
    let small = (is_region || step.sources.iter().all(|x| few(&x.shape)))
        && step.sinks.iter().all(|y| few(&y.shape));
    // Code can address this far from a pointer.
    let near = || {
        (is_region || step.sources.iter().all(|x| is_near(x, &x.layout())))
            && step.sinks.iter().all(|y| y.start < FAR)
    };
    if !(small && near()) {
        return false;
    }
    let moves = || step.sinks.iter().all(|y| carrier(y.dtype).is_some());
    match &step.action {
        Action::Region(_, Some(region)) => region_fits(region, step, builder),
        Action::Kernel(Op::Put(views)) => {
            let whole = Layout::dense(step.sinks[0].shape.clone());
            let window = |layout: Layout, view| layout.view(view);
            moves() && views.iter().try_fold(whole, window).is_some()
        }
        Action::Copies | Action::Kernel(Op::Copy | Op::Cat(_)) => moves(),
        Action::Kernel(Op::Reduce(kind, axes)) => {
            let (from, to) = (step.sources[0].dtype, step.sinks[0].dtype);
            // Contiguous rows; other kernels add in another order.
            let x = &step.sources[0];
            let (kept, rank) = (x.shape.len() - axes.len(), x.shape.len());
            let last = axes.iter().all(|&a| a >= kept) && x.layout().is_dense() && rank > 0;
            last && from == to && StraightBuilder::holds(to) && folds(*kind, to, builder)
        }
        Action::Kernel(op) if op.is_pointwise() => {
            let from: Vec<DType> = step.sources.iter().map(|x| x.dtype).collect();
            let same = step.sources.iter().all(|x| x.shape == step.sinks[0].shape);
            same && builder.can(op, &from, step.sinks[0].dtype)
        }
        Action::Kernel(_)
        | Action::Region(..)
        | Action::AfterDot(..)
        | Action::AddProduct
        | Action::Start(..)
        | Action::Wait(_)
        | Action::Flow(_) => false,
    }
}

fn region_fits(region: &Region, step: &KernelCall, builder: &StraightBuilder) -> bool {
    let Ok(values) = region.values() else { return false };
    if !few(&region.shape) {
        return false;
    }
    region.body.iter().zip(&values).all(|(inst, value)| {
        StraightBuilder::holds(value.dtype)
            && match inst {
                Inst::Load(k) => is_near(&step.sources[*k], &region.inputs[*k].layout),
                Inst::Literal(..) | Inst::Index(..) => true,
                Inst::Point(op, of) => {
                    let from: Vec<DType> = of.iter().map(|&v| values[v].dtype).collect();
                    builder.can(op, &from, value.dtype)
                }
                Inst::Reduce(kind, v) => {
                    values[*v].dtype == value.dtype && folds(*kind, value.dtype, builder)
                }
                Inst::Random(..) => false,
            }
    })
}

fn write(step: &KernelCall, builder: &mut StraightBuilder) -> Result<()> {
    match &step.action {
        Action::Region(_, Some(region)) => write_region(region, step, builder),
        Action::Kernel(Op::Put(views)) => {
            let to = &step.sinks[0];
            let whole = Layout::dense(to.shape.clone());
            let window = |layout: Layout, view| layout.view(view);
            let Some(part) = views.iter().try_fold(whole.clone(), window) else {
                return Err(Error::argument("put", "a window has no layout"));
            };
            // The piece may be in the memory of the result already, where the base is about to be
            // written.
            let [base, piece] = [0, 1].map(|k| elements(&step.sources[k], builder));
            store_all(&base, to, &whole, builder);
            store_all(&piece, to, &part, builder);
            Ok(())
        }
        Action::Kernel(Op::Copy) | Action::Copies => {
            // In order: none of them writes what another reads.
            for (x, y) in step.sources.iter().zip(&step.sinks) {
                let moved = elements(x, builder);
                store_all(&moved, y, &Layout::dense(x.shape.clone()), builder);
            }
            Ok(())
        }
        Action::Kernel(Op::Cat(axis)) => {
            let to = &step.sinks[0];
            let whole = Layout::dense(to.shape.clone());
            // Pieces may be in the memory of the result already.
            let pieces: Vec<Vec<ScalarId>> =
                step.sources.iter().map(|x| elements(x, builder)).collect();
            let mut before = 0;
            for (x, piece) in step.sources.iter().zip(&pieces) {
                let (shape, strides) = (x.shape.clone(), whole.strides.clone());
                let offset = before * whole.strides[*axis] as usize;
                store_all(piece, to, &Layout { shape, strides, offset }, builder);
                before += x.shape[*axis];
            }
            Ok(())
        }
        Action::Kernel(Op::Reduce(kind, axes)) => {
            let (x, to) = (&step.sources[0], &step.sinks[0]);
            let mut groups: Vec<Vec<ScalarId>> = vec![Vec::new(); to.shape.iter().product()];
            for i in 0..x.shape.iter().product() {
                let element = builder.load(x.base, x.byte(i), x.dtype);
                groups[without(&x.shape, axes, i)].push(element);
            }
            for (i, group) in groups.iter().enumerate() {
                let value = fold(*kind, group, to.dtype, builder)?;
                builder.store(value, to.base, to.start + i * to.dtype.size());
            }
            Ok(())
        }
        Action::Kernel(op) => {
            let to = &step.sinks[0];
            for i in 0..to.shape.iter().product() {
                let of = step.sources.iter().map(|x| builder.load(x.base, x.byte(i), x.dtype));
                let of: Vec<ScalarId> = of.collect();
                let value = builder.point(op, &of, to.dtype)?;
                builder.store(value, to.base, to.start + i * to.dtype.size());
            }
            Ok(())
        }
        Action::Region(..) | Action::AfterDot(..) | Action::AddProduct | Action::Flow(_) => Ok(()),
        Action::Start(..) | Action::Wait(_) => Ok(()),
    }
}

/// The elements of an operand, to be copied.
fn elements(from: &StepOperand, builder: &mut StraightBuilder) -> Vec<ScalarId> {
    let Some(as_what) = carrier(from.dtype) else { return Vec::new() };
    let count = from.shape.iter().product();
    (0..count).map(|i| builder.load(from.base, from.byte(i), as_what)).collect()
}

/// Writes elements through a layout of the target.
fn store_all(values: &[ScalarId], to: &StepResult, layout: &Layout, builder: &mut StraightBuilder) {
    let size = to.dtype.size() as isize;
    for (i, &value) in values.iter().enumerate() {
        builder.store(value, to.base, (to.start as isize + offset(layout, i) * size) as usize);
    }
}

/// The offset of the element with a row-major index: it may be before the first, along a flipped
/// axis.
fn offset(layout: &Layout, mut i: usize) -> isize {
    let mut at = layout.offset as isize;
    for (&n, &stride) in layout.shape.iter().zip(&layout.strides).rev() {
        at += (i % n) as isize * stride;
        i /= n;
    }
    at
}

fn write_region(region: &Region, step: &KernelCall, builder: &mut StraightBuilder) -> Result<()> {
    let values = region.values()?;
    let (rows, width) = (region.rows(), region.row_len());
    // For each instruction, the elements in order, or one for each row.
    let mut made: Vec<Vec<ScalarId>> = Vec::with_capacity(region.body.len());
    for (inst, value) in region.body.iter().zip(&values) {
        let count = if value.row { rows } else { rows * width };
        let of_all = match inst {
            Inst::Load(k) => {
                let (x, load) = (&step.sources[*k], &region.inputs[*k]);
                let size = load.spec.dtype.size() as isize;
                let at = |i| (x.start as isize + offset(&load.layout, i) * size) as usize;
                (0..count).map(|i| builder.load(x.base, at(i), load.spec.dtype)).collect()
            }
            Inst::Literal(number, dtype) => vec![builder.number(*number, *dtype); count],
            Inst::Index(axis, dtype) => {
                let repeat: usize = region.shape[axis + 1..].iter().product();
                let index = |i: usize| Scalar::Int((i / repeat % region.shape[*axis]) as i64);
                (0..count).map(|i| builder.number(index(i), *dtype)).collect()
            }
            Inst::Point(op, of) => {
                let mut all = Vec::with_capacity(count);
                for i in 0..count {
                    let element = |&v: &usize| match (values[v].row, value.row) {
                        (true, false) => made[v][i / width],
                        (true, true) | (false, _) => made[v][i],
                    };
                    let of: Vec<ScalarId> = of.iter().map(element).collect();
                    all.push(builder.point(op, &of, value.dtype)?);
                }
                all
            }
            Inst::Reduce(kind, v) => {
                let mut all = Vec::with_capacity(rows);
                for row in 0..rows {
                    let elements = made[*v][row * width..(row + 1) * width].to_vec();
                    all.push(fold(*kind, &elements, value.dtype, builder)?);
                }
                all
            }
            Inst::Random(..) => Vec::new(),
        };
        made.push(of_all);
    }
    // Nothing is stored before all is read: a result may have the memory of an operand.
    for (to, &v) in step.sinks.iter().zip(&region.outputs) {
        for (i, &value) in made[v].iter().enumerate() {
            builder.store(value, to.base, to.start + i * to.dtype.size());
        }
    }
    Ok(())
}

/// The row-major index of an element when some axes are left out.
fn without(shape: &[usize], axes: &[usize], mut i: usize) -> usize {
    let (mut at, mut step) = (0, 1);
    for (axis, &n) in shape.iter().enumerate().rev() {
        if !axes.contains(&axis) {
            at += (i % n) * step;
            step *= n;
        }
        i /= n;
    }
    at
}

/// Whether there is native code for the reduction.
fn folds(kind: Reduction, dtype: DType, builder: &StraightBuilder) -> bool {
    builder.can(&Op::Binary(joins(kind, dtype).0), &[dtype, dtype], dtype)
}

/// The op that joins two elements of a reduction, and its neutral element.
fn joins(kind: Reduction, dtype: DType) -> (Binary, Option<Scalar>) {
    let truth = dtype == DType::Bool;
    match kind {
        Reduction::Sum => (Binary::Add, Some(Scalar::Int(0))),
        Reduction::Prod => (Binary::Mul, Some(Scalar::Int(1))),
        Reduction::Max if truth => (Binary::Or, None),
        Reduction::Min if truth => (Binary::And, None),
        Reduction::Max => (Binary::Maximum, None),
        Reduction::Min => (Binary::Minimum, None),
    }
}

fn fold(
    kind: Reduction,
    elements: &[ScalarId],
    dtype: DType,
    builder: &mut StraightBuilder,
) -> Result<ScalarId> {
    let (op, start) = joins(kind, dtype);
    // In the order of the kernel for short rows: four sums, then those pairwise.
    let mut lanes: [Option<ScalarId>; 4] = [None; 4];
    for (i, &x) in elements.iter().enumerate() {
        let lane = lanes[i % 4].or_else(|| Some(builder.number(start?, dtype)));
        lanes[i % 4] = Some(match lane {
            Some(sum) => builder.point(&Op::Binary(op), &[sum, x], dtype)?,
            None => x,
        });
    }
    let mut both = |a: Option<ScalarId>, b: Option<ScalarId>| -> Result<Option<ScalarId>> {
        Ok(match (a, b) {
            (Some(a), Some(b)) => Some(builder.point(&Op::Binary(op), &[a, b], dtype)?),
            (a, b) => a.or(b),
        })
    };
    let [a, b, c, d] = lanes;
    let (low, high) = (both(a, b)?, both(c, d)?);
    // Of no elements: the neutral element, or for booleans, any is false and all is true. Other
    // extremes of no elements are rejected by `infer`.
    let none = start.or_else(|| extreme_of_none(kind, dtype));
    match (both(low, high)?, none) {
        (Some(all), _) => Ok(all),
        (None, Some(none)) => Ok(builder.number(none, dtype)),
        (None, None) => Err(Error::argument("reduce", "there are no elements to choose from")),
    }
}

impl StepOperand {
    /// The byte offset of the element with this index.
    fn byte(&self, i: usize) -> usize {
        (self.start as isize + offset(&self.layout(), i) * self.dtype.size() as isize) as usize
    }

    /// The layout of its elements, relative to its first.
    fn layout(&self) -> Layout {
        let shape: Shape = self.shape.clone();
        Layout { shape, strides: self.strides.clone(), offset: 0 }
    }
}
