//! Pieces put next to each other, as one kernel for up to eight.

use crate::compile::KernelKey;
use crate::functions::PRELUDE;
use crate::gpu::Gpu;
use crate::loops::{LoopAxes, StridedOperand, merged};
use pullback_ir::Result;
use smallvec::{SmallVec, smallvec};

const TEXT: &str = include_str!("kernels/cat.cu");
/// As in `kernels/cat.cu`.
const MOST: usize = 8;

/// Elements of a row of a piece, and from one row to the next: what is before the axis is rows,
/// what is from it on is in order.
fn rows(x: &StridedOperand, axis: usize) -> Option<(usize, isize)> {
    let (outer, inner) = (&x.shape[..axis], &x.shape[axis..]);
    let one = |axes: &LoopAxes, otherwise: isize| match axes[..] {
        [] => Some(otherwise),
        [(_, ref strides)] => Some(strides[0]),
        _ => None,
    };
    let width = pullback_ir::element_count(inner);
    let along = one(&merged(inner, &[&x.strides[axis..]]), 1)?;
    let down = one(&merged(outer, &[&x.strides[..axis]]), width as isize)?;
    (along == 1).then_some((width, down))
}

/// Puts pieces into a dense result; `false`, and nothing done, for what copies do.
pub(crate) fn cat(
    gpu: &Gpu,
    axis: usize,
    x: &[StridedOperand],
    out: &StridedOperand,
) -> Result<bool> {
    let pieces: SmallVec<[&StridedOperand; MOST]> = x.iter().filter(|x| x.len() > 0).collect();
    if !(2..=MOST).contains(&pieces.len()) || !out.is_dense() {
        return Ok(false);
    }
    let Some(of) = pieces.iter().map(|x| rows(x, axis)).collect::<Option<SmallVec<[_; MOST]>>>()
    else {
        return Ok(false);
    };
    // The most bytes that all rows, and the steps between them, are a multiple of.
    let size = out.dtype.size();
    let fits = |bytes: usize| {
        let multiple = |n: usize| (n * size).is_multiple_of(bytes);
        let aligned = pieces.iter().all(|x| x.at.is_multiple_of(bytes as u64));
        let whole =
            of.iter().all(|&(width, down)| multiple(width) && multiple(down.unsigned_abs()));
        aligned && whole && out.at.is_multiple_of(bytes as u64)
    };
    let bytes = [16, 8, 4, 2, 1].into_iter().filter(|&b| b >= size).find(|&b| fits(b));
    let Some(bytes) = bytes else { return Ok(false) };
    let vectors = bytes / size;
    let height = pullback_ir::element_count(&out.shape[..axis]);
    let width = out.len() / height / vectors;
    let wide = out.len() / vectors >= 1 << 31;
    let mut words: SmallVec<[u64; 32]> = smallvec![out.at, height as u64, width as u64];
    words.extend((0..MOST).map(|k| pieces.get(k).map_or(0, |x| x.at)));
    let mut begin = 0;
    for k in 0..MOST {
        words.push(if k < of.len() { begin } else { u64::MAX });
        begin += of.get(k).map_or(0, |x| (x.0 / vectors) as u64);
    }
    words.extend((0..MOST).map(|k| of.get(k).map_or(0, |x| x.1 / vectors as isize) as u64));
    let key = KernelKey::Named("cat", smallvec![], smallvec![bytes as u32, u32::from(wide)]);
    let kernel = gpu.kernels.get(gpu, &key, || text(bytes, wide))?;
    gpu.launch(kernel, (height * width).div_ceil(256), 256, &words)?;
    Ok(true)
}

pub(crate) fn text(bytes: usize, wide: bool) -> String {
    let vector = match bytes {
        16 => "uint4",
        8 => "u64",
        4 => "u32",
        2 => "u16",
        _ => "u8",
    };
    let index = if wide { "u64" } else { "u32" };
    format!("{PRELUDE}typedef {vector} V;\ntypedef {index} Ix;\n{TEXT}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pullback_ir::DType;

    #[test]
    fn rows_of_pieces_are_in_order() {
        let dense = |shape: &[usize]| StridedOperand::dense(0, DType::F32, shape);
        assert_eq!(rows(&dense(&[4, 6, 5]), 1), Some((30, 30)));
        assert_eq!(rows(&dense(&[4, 6, 5]), 0), Some((120, 120)));
        assert_eq!(rows(&dense(&[4, 6, 5]).as_strided(&[4, 2, 5], &[30, 5, 1]), 1), Some((10, 30)));
        assert_eq!(rows(&dense(&[6, 4]).permuted(&[1, 0]), 1), None);
        assert_eq!(rows(&dense(&[2, 3, 4]).as_strided(&[2, 3, 2], &[12, 4, 1]), 2), Some((2, 4)));
        assert_eq!(rows(&dense(&[2, 3, 4]).as_strided(&[2, 2, 2], &[12, 4, 1]), 2), None);
    }
}
