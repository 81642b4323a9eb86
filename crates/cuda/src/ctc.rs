//! Launches of `kernels/ctc.cu`: connectionist temporal classification, and its gradient.

use crate::compile::KernelKey;
use crate::functions::PRELUDE;
use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::ops::{DenseOperands, copy};
use crate::text::compute;
use pullback_ir::{DType, Fused, Line, Result, Spec};
use smallvec::{SmallVec, smallvec};

const TEXT: &str = include_str!("kernels/ctc.cu");
/// Threads of a sample.
const BLOCK: usize = 128;

pub(crate) fn text(vjp: bool, dtype: DType) -> String {
    let vjp = if vjp { "#define VJP\n" } else { "" };
    format!("{PRELUDE}{vjp}typedef {} C;\n{TEXT}", compute(dtype))
}

/// The losses, or with a cotangent among the operands that of the log-probabilities.
pub(crate) fn run(
    gpu: &Gpu,
    (of, blank): (Fused, usize),
    x: &[StridedOperand],
    out: &StridedOperand,
    at: Option<Line>,
) -> Result<()> {
    let (t, n, c, most) = (x[0].shape[0], x[0].shape[1], x[0].shape[2], x[1].shape[1]);
    if out.len() == 0 || n == 0 {
        return Ok(());
    }
    let wide = x[0].dtype.compute();
    let mut dense = DenseOperands::new(gpu);
    let mut read =
        |x: &StridedOperand| dense.read(x, if x.dtype.is_float() { wide } else { x.dtype });
    let given = x.iter().map(&mut read).collect::<Result<SmallVec<[_; 5]>>>()?;
    let made = dense.result(out, wide)?;
    let line = 2 * most + 1;
    let lines = gpu.scratch(n * (t + 2) * line * wide.size())?;
    let specs: Vec<Spec> = x.iter().map(|x| Spec::cpu(x.dtype, &x.shape[..])).collect();
    let (call, fault) = gpu.may_fail(of.name(), &specs, at);
    let dy = given.get(4).map_or(0, |dy| dy.at);
    let key = KernelKey::Named("ctc", smallvec![wide], smallvec![u32::from(dy != 0)]);
    let kernel = gpu.kernels.get(gpu, &key, || text(dy != 0, wide))?;
    let mut words: SmallVec<[u64; 16]> = given[..4].iter().map(|x| x.at).collect();
    words.extend([dy, made.at, lines.at, fault]);
    words.extend([t, n, c, most, blank, line].map(|n| n as u64));
    words.push(call);
    gpu.launch(kernel, n, BLOCK, &words)?;
    copy(gpu, &made, out)
}
