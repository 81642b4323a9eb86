//! Launches of `kernels/distances.cu`: distances of all pairs of rows, and their gradient.

use crate::compile::KernelKey;
use crate::functions::PRELUDE;
use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::ops::{DenseOperands, copy};
use crate::text::compute;
use pullback_ir::{DType, Result, element_count};
use smallvec::{SmallVec, smallvec};

const TEXT: &str = include_str!("kernels/distances.cu");
const BLOCK: usize = 256;

pub(crate) fn text(forward: bool, within: bool, dtype: DType) -> String {
    let forward = if forward { "#define FORWARD\n" } else { "" };
    let within = if within { "#define WITHIN\n" } else { "" };
    format!("{PRELUDE}{forward}{within}typedef {} C;\n{TEXT}", compute(dtype))
}

/// The distances.
pub(crate) fn forward(
    gpu: &Gpu,
    within: bool,
    x: &[StridedOperand],
    out: &StridedOperand,
) -> Result<()> {
    run(gpu, (true, within), x, &[], std::slice::from_ref(out))
}

/// From the operands, the distances and the cotangent: the cotangents of the operands.
pub(crate) fn backward(
    gpu: &Gpu,
    within: bool,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<()> {
    let (x, given) = x.split_at(out.len());
    run(gpu, (false, within), x, given, out)
}

fn run(
    gpu: &Gpu,
    (forward, within): (bool, bool),
    x: &[StridedOperand],
    given: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<()> {
    let dtype = x[0].dtype.compute();
    let mut dense = DenseOperands::new(gpu);
    let mut read = |x: &StridedOperand| dense.read(x, dtype);
    let operands = x.iter().map(&mut read).collect::<Result<SmallVec<[_; 2]>>>()?;
    let given = given.iter().map(&mut read).collect::<Result<SmallVec<[_; 2]>>>()?;
    let (first, second) = (&operands[0], &operands[operands.len() - 1]);
    let rank = first.shape.len();
    let (n, m, d) = (first.shape[rank - 2], second.shape[rank - 2], first.shape[rank - 1]);
    let count = element_count(&first.shape[..rank - 2]);
    let at = |of: &SmallVec<[StridedOperand; 2]>, k: usize| of.get(k).map_or(0, |x| x.at);
    let key = KernelKey::Named(
        "distances",
        smallvec![dtype],
        smallvec![u32::from(forward), u32::from(within)],
    );
    for (k, to) in out.iter().enumerate().filter(|(_, to)| to.len() > 0) {
        let made = dense.result(to, dtype)?;
        let kernel = gpu.kernels.get(gpu, &key, || text(forward, within, dtype))?;
        let mut words: SmallVec<[u64; 10]> =
            smallvec![first.at, second.at, at(&given, 0), at(&given, 1), made.at];
        words.extend([count, n, m, d, usize::from(k == 0)].map(|n| n as u64));
        gpu.launch(kernel, made.len().div_ceil(BLOCK), BLOCK, &words)?;
        copy(gpu, &made, to)?;
    }
    Ok(())
}
