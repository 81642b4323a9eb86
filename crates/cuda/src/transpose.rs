//! Matrices with rows and columns exchanged, tile by tile.

use crate::compile::KernelKey;
use crate::functions::PRELUDE;
use crate::gpu::Gpu;
use crate::loops::{StridedOperand, merged};
use pullback_ir::{DType, Result};
use smallvec::smallvec;

const TRANSPOSE: &str = include_str!("kernels/transpose.cu");
/// As `TILE` in `kernels/transpose.cu`.
const TILE: usize = 64;
/// Fewer elements are copied by a loop.
const LEAST: usize = 1 << 14;

/// How many matrices, of how many rows and columns, a dense copy of an operand exchanges, one after
/// the other; `None` for other copies.
pub(crate) fn matrices(from: &StridedOperand, to: &StridedOperand) -> Option<[usize; 3]> {
    if from.dtype.size() == 1 || from.len() < LEAST || !to.is_dense() {
        return None;
    }
    let axes = merged(&from.shape, &[&from.strides]);
    let (count, rest) = match &axes[..] {
        [] | [_] => return None,
        [_, _] => (1, &axes[..]),
        [(count, _), rest @ ..] => (*count, rest),
    };
    let [(columns, down), (rows, across)] = rest else { return None };
    let lies = down[0] == 1 && across[0] == *columns as isize;
    let follows = axes.len() == 2 || axes[0].1[0] == (rows * columns) as isize;
    // Of a tile, enough.
    let large = [rows, columns].iter().all(|&&n| n >= 16);
    (lies && follows && large).then_some([count, *rows, *columns])
}

/// Exchanges rows and columns of matrices that lie one after the other.
pub(crate) fn transpose(
    gpu: &Gpu,
    dtype: DType,
    from: u64,
    to: u64,
    [count, rows, columns]: [usize; 3],
) -> Result<()> {
    let size = dtype.size();
    // Two elements at once where every row begins at a multiple of their size.
    let pairs = |at: u64, length: usize| {
        if length.is_multiple_of(2) && at.is_multiple_of(2 * size as u64) { 2 } else { 1 }
    };
    let (load, store) = (pairs(from, columns), pairs(to, rows));
    let key = KernelKey::Named("transpose", smallvec![], smallvec![size as u32, load, store]);
    let kernel = gpu.kernels.get(gpu, &key, || text(size, load, store))?;
    let (down, across) = (rows.div_ceil(TILE), columns.div_ceil(TILE));
    let words = [from, to, rows as u64, columns as u64, down as u64, across as u64];
    gpu.launch(kernel, count * down * across, 256, &words)
}

pub(crate) fn text(size: usize, load: u32, store: u32) -> String {
    let element = match size {
        2 => "u16",
        4 => "u32",
        _ => "u64",
    };
    format!(
        "{PRELUDE}typedef {element} E;\n#define LOAD {load}\n#define STORE {store}\n{TRANSPOSE}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_exchange_rows_and_columns_are_found() {
        let dense = |shape: &[usize]| StridedOperand::dense(0, DType::BF16, shape);
        let found = |from: &StridedOperand| matrices(from, &dense(&from.shape));
        let image = dense(&[8, 32, 20, 10]);
        let last = image.permuted(&[0, 2, 3, 1]);
        assert_eq!(found(&last), Some([8, 32, 200]));
        let back = dense(&[8, 20, 10, 32]).permuted(&[0, 3, 1, 2]);
        assert_eq!(found(&back), Some([8, 200, 32]));
        assert_eq!(found(&dense(&[300, 200]).permuted(&[1, 0])), Some([1, 300, 200]));
        assert_eq!(found(&image), None);
        assert_eq!(found(&image.permuted(&[1, 0, 2, 3])), None);
        assert_eq!(found(&image.permuted(&[0, 1, 3, 2])), None);
        assert_eq!(found(&dense(&[30, 20]).permuted(&[1, 0])), None);
    }
}
