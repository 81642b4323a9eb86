//! Fused ops: as loops, and what has kernels of its own elsewhere.
//!
//! Loops compute in the compute type and round once, at the store, as the CPU's kernels do.

use crate::gpu::Gpu;
use crate::loops::{Loop, StridedOperand};
use crate::update::OptimizerKind;
use crate::{attention, batch_norm, ctc, distances, lines, update};
use pullback_ir::{
    Binary, Compare, DType, Fused, Inst, Line, Op, Real, Reduction, Result, Scalar, Unary, Value,
    element_count,
};
use smallvec::SmallVec;

/// A body that is written instruction by instruction.
#[derive(Default)]
pub(crate) struct RegionBody {
    insts: Vec<Inst>,
    pub values: Vec<Value>,
    pub inputs: Vec<StridedOperand>,
    outputs: Vec<(usize, StridedOperand)>,
}

impl RegionBody {
    pub fn push(&mut self, inst: Inst, dtype: DType, row: bool) -> usize {
        self.insts.push(inst);
        self.values.push(Value { dtype, row });
        self.insts.len() - 1
    }

    /// An operand, in its compute type.
    pub fn load(&mut self, x: StridedOperand) -> usize {
        let dtype = x.dtype;
        self.inputs.push(x);
        let loaded = self.push(Inst::Load(self.inputs.len() - 1), dtype, false);
        self.cast(loaded, dtype.compute())
    }

    pub fn cast(&mut self, v: usize, dtype: DType) -> usize {
        match self.values[v].dtype == dtype {
            true => v,
            false => self.point(Op::Cast(dtype), &[v], dtype),
        }
    }

    pub fn point(&mut self, op: Op, of: &[usize], dtype: DType) -> usize {
        let row = of.iter().all(|&v| self.values[v].row);
        self.push(Inst::Point(op, SmallVec::from_slice(of)), dtype, row)
    }

    pub fn unary(&mut self, f: Unary, x: usize) -> usize {
        self.point(Op::Unary(f), &[x], self.values[x].dtype)
    }

    pub fn binary(&mut self, f: Binary, a: usize, b: usize) -> usize {
        self.point(Op::Binary(f), &[a, b], self.values[a].dtype)
    }

    pub fn number(&mut self, value: f64, like: usize) -> usize {
        let dtype = self.values[like].dtype;
        self.push(Inst::Literal(Scalar::from(value), dtype), dtype, true)
    }

    pub fn scaled(&mut self, x: usize, by: f64) -> usize {
        let by = self.number(by, x);
        self.binary(Binary::Mul, x, by)
    }

    pub fn reduce(&mut self, kind: Reduction, x: usize) -> usize {
        self.push(Inst::Reduce(kind, x), self.values[x].dtype, true)
    }

    /// A result, rounded to the dtype of the operand.
    pub fn store(&mut self, v: usize, to: StridedOperand) {
        let v = self.cast(v, to.dtype);
        self.outputs.push((v, to));
    }

    pub fn run(&self, gpu: &Gpu, shape: &[usize], inner: usize) -> Result<()> {
        self.over(shape, inner).run(gpu)
    }

    fn over<'a>(&'a self, shape: &'a [usize], inner: usize) -> Loop<'a> {
        Loop {
            shape,
            inner,
            body: &self.insts,
            values: &self.values,
            inputs: &self.inputs,
            outputs: &self.outputs,
            immediate: 0,
        }
    }
}

/// The axes in order, with one moved to the end.
pub(crate) fn last(rank: usize, axis: usize) -> Vec<usize> {
    (0..rank).filter(|&d| d != axis).chain([axis]).collect()
}

pub(crate) fn run(
    gpu: &Gpu,
    fused: Fused,
    x: &[StridedOperand],
    out: &[StridedOperand],
    at: Option<Line>,
) -> Result<()> {
    match fused {
        Fused::Softmax(axis) => along(gpu, SoftmaxKind::Softmax, axis, x, &out[0]),
        Fused::SoftmaxVjp(axis) => along(gpu, SoftmaxKind::SoftmaxVjp, axis, x, &out[0]),
        Fused::LogSoftmax(axis) => along(gpu, SoftmaxKind::LogSoftmax, axis, x, &out[0]),
        Fused::LogSoftmaxVjp(axis) => along(gpu, SoftmaxKind::LogSoftmaxVjp, axis, x, &out[0]),
        Fused::LogSumExp(axis) => along(gpu, SoftmaxKind::LogSumExp, axis, x, &out[0]),
        Fused::LayerNorm(eps) => layer_norm(gpu, eps, x, &out[0]),
        Fused::LayerNormVjp(eps) => layer_norm_vjp(gpu, eps, x, out),
        Fused::BatchNorm(eps) => batch_norm(gpu, eps, x, out),
        Fused::BatchNormVjp(eps) => batch_norm_vjp(gpu, eps, x, out),
        Fused::CrossEntropy => {
            lines::cross_entropy(gpu, &Op::Fused(fused), [&x[0], &x[1]], None, &out[0], at)
        }
        Fused::CrossEntropyVjp => {
            let gradient = Some([&x[2], &out[0]]);
            lines::cross_entropy(gpu, &Op::Fused(fused), [&x[0], &x[1]], gradient, &out[1], at)
        }
        Fused::Attention(how) => attention::attention(gpu, how, x, out),
        Fused::AttentionVjp(how) => attention::attention_vjp(gpu, how, x, out),
        Fused::Distances { within } => distances::forward(gpu, within, x, &out[0]),
        Fused::DistancesVjp { within } => distances::backward(gpu, within, x, out),
        Fused::Ctc { blank } | Fused::CtcVjp { blank } => {
            ctc::run(gpu, (fused, blank), x, &out[0], at)
        }
        Fused::Sgd(how) => update::run(gpu, OptimizerKind::Sgd(how), x, out),
        Fused::Adam(how) => update::run(gpu, OptimizerKind::Adam(how), x, out),
    }
}

/// Softmax and its relatives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SoftmaxKind {
    Softmax,
    SoftmaxVjp,
    LogSoftmax,
    LogSoftmaxVjp,
    LogSumExp,
}

/// Softmax and its relatives, along an axis.
fn along(
    gpu: &Gpu,
    what: SoftmaxKind,
    axis: usize,
    x: &[StridedOperand],
    out: &StridedOperand,
) -> Result<()> {
    let order = last(x[0].shape.len(), axis);
    let shape: Vec<usize> = order.iter().map(|&d| x[0].shape[d]).collect();
    let mut body = RegionBody::default();
    let of: Vec<usize> = x.iter().map(|x| body.load(x.permuted(&order))).collect();
    let is_sum = what == SoftmaxKind::LogSumExp;
    let to = if is_sum { out.clone() } else { out.permuted(&order) };
    let value = match what {
        SoftmaxKind::SoftmaxVjp => {
            let product = body.binary(Binary::Mul, of[0], of[1]);
            let sum = body.reduce(Reduction::Sum, product);
            let rest = body.binary(Binary::Sub, of[1], sum);
            body.binary(Binary::Mul, of[0], rest)
        }
        SoftmaxKind::LogSoftmaxVjp => {
            let sum = body.reduce(Reduction::Sum, of[1]);
            let y = body.unary(Unary::Exp, of[0]);
            let product = body.binary(Binary::Mul, y, sum);
            body.binary(Binary::Sub, of[1], product)
        }
        SoftmaxKind::Softmax | SoftmaxKind::LogSoftmax | SoftmaxKind::LogSumExp => {
            let most = body.reduce(Reduction::Max, of[0]);
            let most = match is_sum {
                false => most,
                // An infinite maximum is not subtracted: the sum is then 0 or infinite.
                true => {
                    let size = body.unary(Unary::Abs, most);
                    let (bound, zero) = (body.number(f64::INFINITY, most), body.number(0.0, most));
                    let finite = body.point(Op::Compare(Compare::Lt), &[size, bound], DType::Bool);
                    let dtype = body.values[most].dtype;
                    body.point(Op::Select, &[finite, most, zero], dtype)
                }
            };
            let shifted = body.binary(Binary::Sub, of[0], most);
            let exp = body.unary(Unary::Exp, shifted);
            let sum = body.reduce(Reduction::Sum, exp);
            match what == SoftmaxKind::Softmax {
                true => {
                    // The sum is 1 or more: one division for the row.
                    let by = body.unary(Unary::Recip, sum);
                    body.binary(Binary::Mul, exp, by)
                }
                false => {
                    let log = body.unary(Unary::Log, sum);
                    match is_sum {
                        true => body.binary(Binary::Add, most, log),
                        false => body.binary(Binary::Sub, shifted, log),
                    }
                }
            }
        }
    };
    body.store(value, to);
    body.run(gpu, &shape, 1)
}

/// An operand over the last axes, repeated over those before.
fn under(x: &StridedOperand, shape: &[usize]) -> StridedOperand {
    let mut out = x.clone();
    for (d, &n) in shape[..shape.len() - x.shape.len()].iter().enumerate() {
        out = out.repeated(d, n);
    }
    out
}

/// Mean, variance, and the reciprocal of the standard deviation, of rows of `n`.
fn moments(body: &mut RegionBody, x: usize, n: usize, eps: Real) -> (usize, usize, usize) {
    let sum = body.reduce(Reduction::Sum, x);
    let mean = body.scaled(sum, 1.0 / n as f64);
    let off = body.binary(Binary::Sub, x, mean);
    let square = body.unary(Unary::Square, off);
    let sum = body.reduce(Reduction::Sum, square);
    let variance = body.scaled(sum, 1.0 / n as f64);
    (mean, variance, deviation(body, variance, eps))
}

/// 1/√(variance + eps).
fn deviation(body: &mut RegionBody, variance: usize, eps: Real) -> usize {
    let eps = body.number(eps.0, variance);
    let sum = body.binary(Binary::Add, variance, eps);
    body.unary(Unary::Rsqrt, sum)
}

fn layer_norm(gpu: &Gpu, eps: Real, x: &[StridedOperand], out: &StridedOperand) -> Result<()> {
    let shape = x[0].shape.to_vec();
    let inner = x[1].shape.len();
    let n = element_count(&shape[shape.len() - inner..]);
    let mut body = RegionBody::default();
    let value = body.load(x[0].clone());
    let (w, b) = (body.load(under(&x[1], &shape)), body.load(under(&x[2], &shape)));
    let (mean, _, by) = moments(&mut body, value, n, eps);
    let off = body.binary(Binary::Sub, value, mean);
    let normal = body.binary(Binary::Mul, off, by);
    let scaled = body.binary(Binary::Mul, normal, w);
    let y = body.binary(Binary::Add, scaled, b);
    body.store(y, out.clone());
    body.run(gpu, &shape, inner)
}

fn layer_norm_vjp(
    gpu: &Gpu,
    eps: Real,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<()> {
    let shape = x[0].shape.to_vec();
    let inner = x[1].shape.len();
    let outer = shape.len() - inner;
    let (rows, n) = (element_count(&shape[..outer]), element_count(&shape[outer..]));
    let mut body = RegionBody::default();
    let (value, w) = (body.load(x[0].clone()), body.load(under(&x[1], &shape)));
    let dy = body.load(x[2].clone());
    let (mean, _, by) = moments(&mut body, value, n, eps);
    let off = body.binary(Binary::Sub, value, mean);
    let normal = body.binary(Binary::Mul, off, by);
    let g = body.binary(Binary::Mul, dy, w);
    let sum = body.reduce(Reduction::Sum, g);
    let a = body.scaled(sum, 1.0 / n as f64);
    let product = body.binary(Binary::Mul, g, normal);
    let sum = body.reduce(Reduction::Sum, product);
    let b = body.scaled(sum, 1.0 / n as f64);
    let along = body.binary(Binary::Mul, normal, b);
    let rest = body.binary(Binary::Sub, g, a);
    let rest = body.binary(Binary::Sub, rest, along);
    let dx = body.binary(Binary::Mul, rest, by);
    body.store(dx, out[0].clone());
    // The gradients of weight and bias are sums over the rows: in the same pass, if a row fits into
    // registers.
    let dw = body.binary(Binary::Mul, dy, normal);
    if body.over(&shape, inner).run_with_columns(
        gpu,
        &[(dw, out[1].clone()), (dy, out[2].clone())],
        1,
    )? {
        return Ok(());
    }
    let wide = x[0].dtype.compute();
    let memory = gpu.scratch(2 * rows.max(1) * wide.size())?;
    let part = |k: usize| {
        StridedOperand::dense(memory.at + (k * rows * wide.size()) as u64, wide, &shape[..outer])
    };
    body.store(mean, part(0));
    body.store(by, part(1));
    body.run(gpu, &shape, inner)?;
    let order: Vec<usize> = (outer..shape.len()).chain(0..outer).collect();
    let across: Vec<usize> = order.iter().map(|&d| shape[d]).collect();
    let repeated = |x: StridedOperand| {
        let mut x = x;
        for (d, &n) in across[..inner].iter().enumerate() {
            x = x.repeated(d, n);
        }
        x
    };
    let mut body = RegionBody::default();
    let (value, dy) = (body.load(x[0].permuted(&order)), body.load(x[2].permuted(&order)));
    let (mean, by) = (body.load(repeated(part(0))), body.load(repeated(part(1))));
    let off = body.binary(Binary::Sub, value, mean);
    let normal = body.binary(Binary::Mul, off, by);
    let product = body.binary(Binary::Mul, dy, normal);
    let dw = body.reduce(Reduction::Sum, product);
    let db = body.reduce(Reduction::Sum, dy);
    body.store(dw, out[1].clone());
    body.store(db, out[2].clone());
    body.run(gpu, &across, outer)
}

/// The channels first, and an operand of one number for each repeated over the rest.
fn channels(x: &StridedOperand) -> (Vec<usize>, Vec<usize>) {
    let order: Vec<usize> = [1].into_iter().chain((0..x.shape.len()).filter(|&d| d != 1)).collect();
    let shape = order.iter().map(|&d| x.shape[d]).collect();
    (order, shape)
}

fn over(x: &StridedOperand, shape: &[usize]) -> StridedOperand {
    let mut out = x.clone();
    for (d, &n) in shape.iter().enumerate().skip(1) {
        out = out.repeated(d, n);
    }
    out
}

fn batch_norm(gpu: &Gpu, eps: Real, x: &[StridedOperand], out: &[StridedOperand]) -> Result<()> {
    if batch_norm::forward(gpu, eps, x, out)? {
        return Ok(());
    }
    let (order, shape) = channels(&x[0]);
    let n = element_count(&shape[1..]);
    let mut body = RegionBody::default();
    let value = body.load(x[0].permuted(&order));
    let (w, b) = (body.load(over(&x[1], &shape)), body.load(over(&x[2], &shape)));
    let (mean, variance, by) = moments(&mut body, value, n, eps);
    let off = body.binary(Binary::Sub, value, mean);
    let normal = body.binary(Binary::Mul, off, by);
    let scaled = body.binary(Binary::Mul, normal, w);
    let y = body.binary(Binary::Add, scaled, b);
    body.store(y, out[0].permuted(&order));
    body.store(mean, out[1].clone());
    body.store(variance, out[2].clone());
    body.run(gpu, &shape, shape.len() - 1)
}

fn batch_norm_vjp(
    gpu: &Gpu,
    eps: Real,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<()> {
    if batch_norm::backward(gpu, eps, x, out)? {
        return Ok(());
    }
    let (order, shape) = channels(&x[0]);
    let n = element_count(&shape[1..]) as f64;
    let mut body = RegionBody::default();
    let value = body.load(x[0].permuted(&order));
    let w = body.load(over(&x[1], &shape));
    let (mean, variance) = (body.load(over(&x[2], &shape)), body.load(over(&x[3], &shape)));
    let dy = body.load(x[4].permuted(&order));
    let by = deviation(&mut body, variance, eps);
    let off = body.binary(Binary::Sub, value, mean);
    let normal = body.binary(Binary::Mul, off, by);
    let db = body.reduce(Reduction::Sum, dy);
    let product = body.binary(Binary::Mul, dy, normal);
    let dw = body.reduce(Reduction::Sum, product);
    let (mean_dy, mean_product) = (body.scaled(db, 1.0 / n), body.scaled(dw, 1.0 / n));
    let along = body.binary(Binary::Mul, normal, mean_product);
    let rest = body.binary(Binary::Sub, dy, mean_dy);
    let rest = body.binary(Binary::Sub, rest, along);
    let scale = body.binary(Binary::Mul, w, by);
    let dx = body.binary(Binary::Mul, rest, scale);
    body.store(dx, out[0].permuted(&order));
    body.store(dw, out[1].clone());
    body.store(db, out[2].clone());
    body.run(gpu, &shape, shape.len() - 1)
}
