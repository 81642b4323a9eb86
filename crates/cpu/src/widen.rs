//! Narrow operands for kernels that are compiled for compute types alone.
//!
//! Kernels that few programs call with bf16, f16, i32, u8 or bool (cumulative reductions, argmax,
//! scatter), or in which two more passes are little work (attention), are not compiled for those:
//! their operands are widened first, and their result is narrowed at the end. It costs two passes
//! over memory, and saves five instances of eight of each kernel, for every instruction set. The
//! result is the one of a kernel that loads and stores the narrow type: it computes in the same
//! type and rounds each result once.

use crate::buffer::Buffer;
use crate::operand::{Sink, Source};
use crate::pointwise;
use pullback_ir::{DType, dense_strides};

/// Whether a dtype is not its own compute type.
pub(crate) fn is_narrow(dtype: DType) -> bool {
    dtype != dtype.compute()
}

/// Calls `f` with `x` in its compute type, dense. `op` is named if there is no memory for it.
pub(crate) fn widened<R>(op: &str, x: Source, f: impl FnOnce(Source) -> R) -> R {
    let dtype = x.dtype.compute();
    let mut wide = alloc(op, x.len(), dtype);
    let ptr = wide.as_mut_ptr();
    pointwise::cast(x, Sink { ptr, shape: x.shape, dtype });
    f(Source { ptr, shape: x.shape, strides: &dense_strides(x.shape), dtype })
}

/// Fills `out` by way of its compute type: `f` fills a wide sink of the same shape. Integers keep
/// their low bits.
pub(crate) fn narrowed(op: &str, out: Sink, f: impl FnOnce(Sink)) {
    let dtype = out.dtype.compute();
    let mut wide = alloc(op, out.len(), dtype);
    let ptr = wide.as_mut_ptr();
    f(Sink { ptr, shape: out.shape, dtype });
    let strides = &dense_strides(out.shape);
    pointwise::narrow(Source { ptr, shape: out.shape, strides, dtype }, out);
}

/// Calls a kernel of floats: operands of bf16 and f16 are widened, and results of those are filled
/// by way of wide ones. What is of another dtype is passed on.
pub(crate) fn wide_floats(
    op: &str,
    x: &[Source],
    out: &[Sink],
    f: impl FnOnce(&[Source], &[Sink]),
) {
    let narrow = |dtype: DType| dtype.is_float() && is_narrow(dtype);
    if !x.iter().any(|x| narrow(x.dtype)) && !out.iter().any(|y| narrow(y.dtype)) {
        return f(x, out);
    }
    let strides: Vec<_> = x.iter().map(|x| dense_strides(x.shape)).collect();
    let mut held: Vec<Buffer> = Vec::new();
    let mut hold = |len: usize, dtype: DType| {
        let at = held.len();
        held.push(alloc(op, len, dtype));
        held[at].as_mut_ptr()
    };
    let mut wide_x = x.to_vec();
    for (x, strides) in wide_x.iter_mut().zip(&strides).filter(|(x, _)| narrow(x.dtype)) {
        let (shape, dtype) = (x.shape, x.dtype.compute());
        let ptr = hold(x.len(), dtype);
        pointwise::cast(*x, Sink { ptr, shape, dtype });
        *x = Source { ptr, shape, strides, dtype };
    }
    let mut wide_out = out.to_vec();
    for y in wide_out.iter_mut().filter(|y| narrow(y.dtype)) {
        let dtype = y.dtype.compute();
        *y = Sink { ptr: hold(y.len(), dtype), shape: y.shape, dtype };
    }
    f(&wide_x, &wide_out);
    for (wide, y) in wide_out.iter().zip(out).filter(|(_, y)| narrow(y.dtype)) {
        let strides = &dense_strides(y.shape);
        let (ptr, shape, dtype) = (wide.ptr.cast_const(), y.shape, wide.dtype);
        pointwise::narrow(Source { ptr, shape, strides, dtype }, *y);
    }
}

fn alloc(op: &str, len: usize, dtype: DType) -> Buffer {
    match Buffer::alloc(len * dtype.size()) {
        Ok(buffer) => buffer,
        Err(error) => panic!("{op}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_their_low_bits() {
        let (x, mut y) = ([300i64, -1, 7], [0u8; 3]);
        let sink = Sink { ptr: y.as_mut_ptr(), shape: &[3], dtype: DType::U8 };
        narrowed("test", sink, |wide| {
            // SAFETY: a sink of three i64.
            unsafe { std::ptr::copy_nonoverlapping(x.as_ptr(), wide.ptr.cast(), 3) };
        });
        assert_eq!(y, [44, 255, 7]);
    }

    #[test]
    fn a_strided_operand_becomes_dense() {
        let x = [1i32, 2, 3, 4];
        let x = Source { ptr: x.as_ptr().cast(), shape: &[2], strides: &[2], dtype: DType::I32 };
        widened("test", x, |wide| {
            assert!(wide.is_dense() && wide.dtype == DType::I64);
            // SAFETY: two i64.
            assert_eq!(unsafe { std::slice::from_raw_parts(wide.ptr.cast::<i64>(), 2) }, [1, 3]);
        });
    }
}
