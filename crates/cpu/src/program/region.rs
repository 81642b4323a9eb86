//! The door to regions: compiled once, run many times.

use crate::operand::{Sink, Source};
use crate::run::dispatch;
use crate::{Buffer, pointwise};
use pullback_ir::{
    Axes, DType, Error, ErrorKind, Few, Inst, Layout, Op, Region, Result, Shape, Strides, Value,
    dense_strides,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// A region ready to run on operands that lie dense.
///
/// This one runs the instructions one after the other, each over the whole domain.
pub(super) struct Compiled {
    region: Arc<Region>,
    values: Vec<Value>,
}

impl Compiled {
    pub(super) fn new(region: &Arc<Region>) -> Result<Compiled> {
        Ok(Compiled { region: region.clone(), values: region.values()? })
    }

    /// Fills the sinks. A sink may lie where a source does if the planner's table of sharing says so.
    pub(super) fn run(&self, x: &[Source], out: &[Sink]) -> Result<()> {
        let region = &*self.region;
        let mut made: Vec<Made> = Vec::with_capacity(region.body.len());
        for (inst, value) in region.body.iter().zip(&self.values) {
            let shape = if value.row { region.outer() } else { &region.shape[..] };
            let next = match inst {
                Inst::Load(k) => {
                    let Layout { strides, offset, .. } = &region.inputs[*k].layout;
                    let ptr = x[*k].ptr.wrapping_add(offset * value.dtype.size());
                    Made { ptr, strides: strides.clone(), dtype: value.dtype, memory: None }
                }
                Inst::Literal(number, dtype) => {
                    let op = Op::Literal { value: *number, shape: Shape::new(), dtype: *dtype };
                    let mut one = Made::new(&op, &[], &[], *dtype)?;
                    one.strides = Few::from_elem(0, shape.len());
                    one
                }
                Inst::Index(axis, dtype) => {
                    let len = region.shape[*axis];
                    let op = Op::Iota { len, dtype: *dtype };
                    let mut line = Made::new(&op, &[], &[len], *dtype)?;
                    line.strides = (0..shape.len()).map(|i| isize::from(i == *axis)).collect();
                    line
                }
                Inst::Random(kind, key, dtype) => {
                    let op = Op::Random { kind: *kind, shape: region.shape.clone(), dtype: *dtype };
                    Made::new(&op, &[x[*key]], shape, *dtype)?
                }
                Inst::Point(op, of) => {
                    let operands: SmallVec<[(Strides, usize); 3]> =
                        of.iter().map(|&v| (self.along(&made[v], v, value.row), v)).collect();
                    let sources: SmallVec<[Source; 3]> = operands
                        .iter()
                        .map(|(strides, v)| made[*v].source(shape, strides))
                        .collect();
                    Made::new(op, &sources, shape, value.dtype)?
                }
                Inst::Reduce(kind, v) => {
                    let rank = region.shape.len();
                    let axes: Axes = (rank - region.inner..rank).collect();
                    let source = made[*v].source(&region.shape, &made[*v].strides);
                    Made::new(&Op::Reduce(*kind, axes), &[source], shape, value.dtype)?
                }
            };
            made.push(next);
        }
        // Only now: a sink may lie over a source.
        let mut results: SmallVec<[Made; 2]> = SmallVec::new();
        for (&v, sink) in region.outputs.iter().zip(out) {
            let source = made[v].source(sink.shape, &made[v].strides);
            results.push(Made::new(&Op::Copy, &[source], sink.shape, sink.dtype)?);
        }
        for (result, &sink) in results.iter().zip(out) {
            pointwise::copy(result.source(sink.shape, &result.strides), sink);
        }
        Ok(())
    }

    /// The strides of a value beside element values, or beside row values.
    fn along(&self, made: &Made, v: usize, rows: bool) -> Strides {
        let mut strides = made.strides.clone();
        if self.values[v].row && !rows {
            strides.extend_from_slice(&Strides::from_elem(0, self.region.inner));
        }
        strides
    }
}

/// A value of the region.
struct Made {
    ptr: *const u8,
    strides: Strides,
    dtype: DType,
    /// Holds what `ptr` points at, if it is not an operand.
    #[allow(dead_code)]
    memory: Option<Buffer>,
}

impl Made {
    fn new(op: &Op, x: &[Source], shape: &[usize], dtype: DType) -> Result<Made> {
        let bytes = shape.iter().product::<usize>() * dtype.size();
        let mut memory = Buffer::alloc(bytes).map_err(|_| {
            Error::new(ErrorKind::Memory, "region", format!("{bytes} bytes could not be had"))
        })?;
        let ptr = memory.as_mut_ptr();
        dispatch(op, x, &[Sink { ptr, shape, dtype }])?;
        Ok(Made { ptr, strides: dense_strides(shape), dtype, memory: Some(memory) })
    }

    fn source<'a>(&self, shape: &'a [usize], strides: &'a [isize]) -> Source<'a> {
        Source { ptr: self.ptr, shape, strides, dtype: self.dtype }
    }
}
