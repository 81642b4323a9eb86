//! Attention: by cuDNN where it takes the form, else by kernels that store no scores (`flash.rs`),
//! and by products and loops otherwise.
//!
//! The last form stores the scores; it takes masks, dropout, every float dtype and every width of
//! heads. Whether weight (i, j) is dropped follows from the random key and its index in the scores,
//! as on the CPU: the numbers are those that `Random` gives for a tensor of that shape, for each
//! part of the batch that has its own key.

use crate::dnn_attention;
use crate::flash;
use crate::fused::{RegionBody, last};
use crate::gpu::{DeviceScratch, Gpu};
use crate::lines::random_keys;
use crate::loops::StridedOperand;
use crate::ops::copy;
use crate::product::dot;
use pullback_ir::{
    Attention, Binary, Compare, DType, Inst, Op, Random, Reduction, Result, Unary, element_count,
};

/// Runs attention.
pub(crate) fn attention(
    gpu: &Gpu,
    how: Attention,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<()> {
    if dnn_attention::attention(gpu, how, x, out)? {
        return Ok(());
    }
    through_dense(gpu, out, |out| match flash::attention(gpu, how, x, out)? {
        true => Ok(()),
        false => own(gpu, how, x, out),
    })
}

/// Runs the vjp of attention.
pub(crate) fn attention_vjp(
    gpu: &Gpu,
    how: Attention,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<()> {
    if dnn_attention::attention_vjp(gpu, how, x, out)? {
        return Ok(());
    }
    through_dense(gpu, out, |out| match flash::attention_vjp(gpu, how, x, out)? {
        true => Ok(()),
        false => own_vjp(gpu, how, x, out),
    })
}

/// Results of kernels that write dense ones, where the plan wants other strides: copied there.
fn through_dense(
    gpu: &Gpu,
    out: &[StridedOperand],
    run: impl FnOnce(&[StridedOperand]) -> Result<()>,
) -> Result<()> {
    let (mut held, mut dense) = (Vec::new(), Vec::new());
    for y in out {
        dense.push(match y.is_dense() {
            true => y.clone(),
            false => {
                let memory = gpu.scratch(y.bytes())?;
                held.push(memory);
                StridedOperand::dense(held[held.len() - 1].at, y.dtype, &y.shape)
            }
        });
    }
    run(&dense)?;
    dense.iter().zip(out).try_for_each(|(from, to)| copy(gpu, from, to))
}

/// Queries, keys and values with as many heads each: keys and values are repeated, by strides, over
/// the queries of a group.
struct Heads {
    /// Batch axes, heads of keys, queries of a group, then queries × keys.
    scores: Vec<usize>,
    q: StridedOperand,
    k: StridedOperand,
    v: StridedOperand,
    mask: Option<StridedOperand>,
}

/// Splits the axis of heads into groups.
fn grouped(x: &StridedOperand, groups: usize) -> StridedOperand {
    split(x, x.shape.len() - 3, groups)
}

/// The same for an operand with one number for each query.
fn grouped_rows(x: &StridedOperand, groups: usize) -> StridedOperand {
    split(x, x.shape.len() - 2, groups)
}

fn split(x: &StridedOperand, axis: usize, groups: usize) -> StridedOperand {
    let each = x.shape[axis] / groups.max(1);
    let (mut shape, mut strides) = (x.shape.to_vec(), x.strides.to_vec());
    shape[axis] = groups;
    shape.insert(axis + 1, each);
    strides.insert(axis + 1, x.strides[axis]);
    strides[axis] = x.strides[axis] * each as isize;
    x.as_strided(&shape, &strides)
}

fn heads(how: Attention, x: &[StridedOperand]) -> Heads {
    let rank = x[0].shape.len();
    let groups = x[1].shape[rank - 3];
    let q = grouped(&x[0], groups);
    let each = q.shape[rank - 2];
    let (k, v) = (x[1].repeated(rank - 2, each), x[2].repeated(rank - 2, each));
    let mut scores = q.shape.to_vec();
    scores[rank] = k.shape[rank - 1];
    let mask = how.masked.then(|| grouped(&x[3], groups));
    Heads { scores, q, k, v, mask }
}

fn transposed(x: &StridedOperand) -> StridedOperand {
    let n = x.shape.len();
    let order: Vec<usize> = (0..n - 2).chain([n - 1, n - 2]).collect();
    x.permuted(&order)
}

/// Where a query may attend: minus infinity elsewhere, in the body of scores.
fn masked(
    body: &mut RegionBody,
    how: Attention,
    mask: Option<&StridedOperand>,
    score: usize,
    rank: usize,
) -> usize {
    let mut score = score;
    let dtype = body.values[score].dtype;
    let hidden = body.number(f64::NEG_INFINITY, score);
    if let Some(mask) = mask {
        body.inputs.push(mask.clone());
        let loaded = body.push(Inst::Load(body.inputs.len() - 1), mask.dtype, false);
        score = match mask.dtype {
            DType::Bool => body.point(Op::Select, &[loaded, score, hidden], dtype),
            _ => {
                let added = body.cast(loaded, dtype);
                body.binary(Binary::Add, score, added)
            }
        };
    }
    if how.causal {
        let query = body.push(Inst::Index(rank - 2, DType::I64), DType::I64, false);
        let key = body.push(Inst::Index(rank - 1, DType::I64), DType::I64, false);
        let seen = body.point(Op::Compare(Compare::Le), &[key, query], DType::Bool);
        score = body.point(Op::Select, &[seen, score, hidden], dtype);
    }
    score
}

/// One number for each score, drawn by the keys of the op, if it drops weights.
fn draws<'a>(
    gpu: &'a Gpu,
    how: Attention,
    x: &[StridedOperand],
    scores: &[usize],
) -> Result<Option<(StridedOperand, DeviceScratch<'a>)>> {
    if !how.drops() {
        return Ok(None);
    }
    let memory = gpu.scratch(element_count(scores) * DType::F32.size())?;
    let drawn = StridedOperand::dense(memory.at, DType::F32, scores);
    random_keys(gpu, Random::Uniform, &x[3 + usize::from(how.masked)], &drawn)?;
    Ok(Some((drawn, memory)))
}

/// What a weight is multiplied by: zero, or a factor that keeps the mean.
fn factor(body: &mut RegionBody, how: Attention, drawn: StridedOperand, like: usize) -> usize {
    let drawn = body.load(drawn);
    let least = body.number(how.dropout.0, drawn);
    let kept = body.point(Op::Compare(Compare::Ge), &[drawn, least], DType::Bool);
    let (scale, zero) = (body.number(how.keep_scale(), like), body.number(0.0, like));
    let wide = body.values[like].dtype;
    body.point(Op::Select, &[kept, scale, zero], wide)
}

pub(crate) fn own(
    gpu: &Gpu,
    how: Attention,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<()> {
    let of = heads(how, x);
    let rank = of.scores.len();
    let dtype = x[0].dtype;
    let count = element_count(&of.scores);
    // Scores in the compute type, weights in that of the values.
    let wide = dtype.compute();
    let memory = [gpu.scratch(count * wide.size())?, gpu.scratch(count * dtype.size())?];
    let scores = StridedOperand::dense(memory[0].at, wide, &of.scores);
    let weights = StridedOperand::dense(memory[1].at, dtype, &of.scores);
    let drawn = draws(gpu, how, x, &of.scores)?;
    dot(gpu, &of.q, &transposed(&of.k), &scores, false)?;
    let mut body = RegionBody::default();
    let score = body.load(scores);
    let score = body.scaled(score, how.scale.0);
    let score = masked(&mut body, how, of.mask.as_ref(), score, rank);
    let most = body.reduce(Reduction::Max, score);
    // A row that sees nothing has weights of zero.
    let (bound, zero) = (body.number(f64::INFINITY, most), body.number(0.0, most));
    let size = body.unary(Unary::Abs, most);
    let finite = body.point(Op::Compare(Compare::Lt), &[size, bound], DType::Bool);
    let shift = body.point(Op::Select, &[finite, most, zero], wide);
    let off = body.binary(Binary::Sub, score, shift);
    let exp = body.unary(Unary::Exp, off);
    let sum = body.reduce(Reduction::Sum, exp);
    let none = body.point(Op::Compare(Compare::Eq), &[sum, zero], DType::Bool);
    let one = body.number(1.0, sum);
    let divisor = body.point(Op::Select, &[none, one, sum], wide);
    let mut weight = body.binary(Binary::Div, exp, divisor);
    if let Some((drawn, _)) = &drawn {
        let factor = factor(&mut body, how, drawn.clone(), weight);
        weight = body.binary(Binary::Mul, weight, factor);
    }
    let log = body.unary(Unary::Log, sum);
    let lse = body.binary(Binary::Add, shift, log);
    body.store(weight, weights.clone());
    let groups = x[1].shape[x[1].shape.len() - 3];
    body.store(lse, grouped_rows(&out[1], groups));
    body.run(gpu, &of.scores, 1)?;
    dot(gpu, &weights, &of.v, &grouped(&out[0], groups), false)
}

pub(crate) fn own_vjp(
    gpu: &Gpu,
    how: Attention,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<()> {
    let of = heads(how, x);
    let rank = of.scores.len();
    let dtype = x[0].dtype;
    let n = how.operands();
    let groups = x[1].shape[x[1].shape.len() - 3];
    let (y, lse) = (grouped(&x[n], groups), grouped_rows(&x[n + 1], groups));
    let dy = grouped(&x[n + 2], groups);
    let count = element_count(&of.scores);
    let wide = dtype.compute();
    let mut memory = Vec::new();
    for of in [wide, wide, dtype, dtype] {
        memory.push(gpu.scratch(count * of.size())?);
    }
    let part = |k: usize, dtype: DType| StridedOperand::dense(memory[k].at, dtype, &of.scores);
    let (scores, products) = (part(0, wide), part(1, wide));
    let (weights, slopes) = (part(2, dtype), part(3, dtype));
    let drawn = draws(gpu, how, x, &of.scores)?;
    dot(gpu, &of.q, &transposed(&of.k), &scores, false)?;
    dot(gpu, &dy, &transposed(&of.v), &products, false)?;
    // δ = Σ dy·y of a query.
    let rows = element_count(&of.scores[..rank - 1]);
    let sums = gpu.scratch(rows.max(1) * wide.size())?;
    let delta = StridedOperand::dense(sums.at, wide, &of.scores[..rank - 1]);
    let mut body = RegionBody::default();
    let (a, b) = (body.load(y.clone()), body.load(dy.clone()));
    let product = body.binary(Binary::Mul, a, b);
    let sum = body.reduce(Reduction::Sum, product);
    body.store(sum, delta.clone());
    body.run(gpu, &y.shape, 1)?;
    let keys = of.scores[rank - 1];
    let mut body = RegionBody::default();
    let score = body.load(scores);
    let score = body.scaled(score, how.scale.0);
    let score = masked(&mut body, how, of.mask.as_ref(), score, rank);
    let lse = body.load(lse.repeated(rank - 1, keys));
    let off = body.binary(Binary::Sub, score, lse);
    let exp = body.unary(Unary::Exp, off);
    // A query that sees nothing has no weights: minus infinity less itself is no number.
    let hidden = body.number(f64::NEG_INFINITY, score);
    let blind = body.point(Op::Compare(Compare::Eq), &[score, hidden], DType::Bool);
    let zero = body.number(0.0, score);
    let weight = body.point(Op::Select, &[blind, zero, exp], wide);
    let (mut slope, mut kept) = (body.load(products), weight);
    // With dropout ds = weight·(factor·(dy·vᵀ) − δ); the values were weighted with weight·factor.
    if let Some((drawn, _)) = &drawn {
        let factor = factor(&mut body, how, drawn.clone(), weight);
        slope = body.binary(Binary::Mul, slope, factor);
        kept = body.binary(Binary::Mul, weight, factor);
    }
    let delta = body.load(delta.repeated(rank - 1, keys));
    let rest = body.binary(Binary::Sub, slope, delta);
    let ds = body.binary(Binary::Mul, weight, rest);
    let ds = body.scaled(ds, how.scale.0);
    body.store(kept, weights.clone());
    body.store(ds, slopes.clone());
    body.run(gpu, &of.scores, 0)?;
    // dq = ds·k; dk = dsᵀ·q and dv = weightsᵀ·dy, summed over the queries of a group.
    dot(gpu, &slopes, &of.k, &grouped(&out[0], groups), false)?;
    summed(gpu, [&transposed(&slopes), &of.q], &out[1])?;
    summed(gpu, [&transposed(&weights), &dy], &out[2])
}

/// `a·b`, summed over the axis of the queries of a group (the one before the last two).
fn summed(gpu: &Gpu, [a, b]: [&StridedOperand; 2], out: &StridedOperand) -> Result<()> {
    let rank = a.shape.len();
    let axis = rank - 3;
    let mut shape = a.shape.to_vec();
    shape[rank - 1] = b.shape[rank - 1];
    if shape[axis] == 1 {
        let to = out.repeated(axis, 1);
        let to = to.as_strided(&to.shape, &pullback_ir::dense_strides(&to.shape));
        return dot(gpu, a, b, &to, false);
    }
    let memory = gpu.scratch(element_count(&shape) * out.dtype.size())?;
    let all = StridedOperand::dense(memory.at, out.dtype, &shape);
    dot(gpu, a, b, &all, false)?;
    let order = last(rank, axis);
    let mut body = RegionBody::default();
    let value = body.load(all.permuted(&order));
    let sum = body.reduce(Reduction::Sum, value);
    body.store(sum, out.clone());
    let across: Vec<usize> = order.iter().map(|&d| shape[d]).collect();
    body.run(gpu, &across, 1)
}
