//! Operands of products as cuBLASLt sees them: matrices with a leading dimension, and one step that
//! goes from one to the next.

use crate::gpu::{DeviceScratch, Gpu};
use crate::loops::StridedOperand;
use crate::ops::copy;
use pullback_cuda_sys::DevicePtr;
use pullback_ir::{DType, Result};
use std::ffi::c_int;

/// The code of a dtype, and those in which sums and factors are.
pub(crate) fn codes(dtype: DType, tf32: bool) -> Option<(c_int, c_int, c_int)> {
    match dtype {
        DType::F32 if tf32 => Some((0, 77, 0)),
        DType::F32 => Some((0, 68, 0)),
        DType::F64 => Some((1, 70, 1)),
        DType::F16 => Some((2, 68, 0)),
        DType::BF16 => Some((14, 68, 0)),
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => None,
    }
}

/// A matrix as the library sees it: whether it is exchanged, and its leading dimension.
pub(crate) fn matrix_layout(
    rows: usize,
    columns: usize,
    strides: [isize; 2],
) -> Option<(bool, usize)> {
    let [r, c] = strides;
    let fits =
        |step: isize, least: usize| usize::try_from(step).ok().filter(|&s| s >= least.max(1));
    if c == 1 || columns == 1 {
        let leading = if rows == 1 { Some(columns.max(1)) } else { fits(r, columns) };
        if let Some(leading) = leading {
            return Some((false, leading));
        }
    }
    if r == 1 || rows == 1 {
        let leading = if columns == 1 { Some(rows.max(1)) } else { fits(c, rows) };
        return leading.map(|leading| (true, leading));
    }
    None
}

/// One step that goes over all batch axes, from the innermost on: none if they are not evenly
/// spaced.
pub(crate) fn step(batch: &[usize], strides: &[isize]) -> Option<isize> {
    let mut found: Option<(isize, isize)> = None;
    for (&n, &s) in batch.iter().zip(strides).rev() {
        found = match found {
            _ if n == 1 => found,
            None => Some((s, s * n as isize)),
            Some((first, next)) if s == next => Some((first, s * n as isize)),
            Some(_) => return None,
        };
    }
    Some(found.map_or(0, |(first, _)| first)).filter(|&first| first >= 0)
}

/// The matrices of an operand, where they are or copied to be dense.
pub(crate) struct StridedMatrices<'a> {
    pub at: DevicePtr,
    pub turned: bool,
    pub leading: usize,
    pub step: isize,
    _held: Option<DeviceScratch<'a>>,
}

impl<'a> StridedMatrices<'a> {
    pub fn of(gpu: &'a Gpu, x: &StridedOperand) -> Result<StridedMatrices<'a>> {
        let (batch, matrix) = x.shape.split_at(x.shape.len() - 2);
        let (over, inside) = x.strides.split_at(batch.len());
        let [rows, columns] = [matrix[0], matrix[1]];
        let layout = matrix_layout(rows, columns, [inside[0], inside[1]]).zip(step(batch, over));
        if let Some(((turned, leading), step)) = layout {
            return Ok(StridedMatrices { at: x.at, turned, leading, step, _held: None });
        }
        let memory = gpu.scratch(x.bytes())?;
        let at = memory.at;
        copy(gpu, x, &StridedOperand::dense(at, x.dtype, &x.shape))?;
        let step = (rows * columns) as isize;
        Ok(StridedMatrices { at, turned: false, leading: columns, step, _held: Some(memory) })
    }
}
