//! Attention with dropout of weights, of products and loops.
//!
//! Whether weight (i, j) is dropped follows from the random key and its index in the scores, as on
//! the CPU: the numbers are those that `Random` gives for a tensor of that shape, for each part of
//! the batch that has its own key.

use crate::attention::{grouped, grouped_rows, heads, masked, summed, transposed};
use crate::fused::Body;
use crate::gpu::{Gpu, Scratch};
use crate::lines::random_keys;
use crate::loops::Operand;
use crate::product::dot;
use pullback_ir::{
    Attention, Binary, Compare, DType, Op, Random, Reduction, Result, Unary, element_count,
};

/// One number for each score, drawn by the keys of the op.
fn draws<'a>(
    gpu: &'a Gpu,
    how: Attention,
    x: &[Operand],
    scores: &[usize],
) -> Result<(Operand, Scratch<'a>)> {
    let memory = gpu.scratch(element_count(scores) * DType::F32.size())?;
    let drawn = Operand::dense(memory.at, DType::F32, scores);
    random_keys(gpu, Random::Uniform, &x[3 + usize::from(how.masked)], &drawn)?;
    Ok((drawn, memory))
}

/// What a weight is multiplied by: zero, or a factor that keeps the mean.
fn factor(body: &mut Body, how: Attention, drawn: Operand, wide: DType, like: usize) -> usize {
    let drawn = body.load(drawn);
    let least = body.number(how.dropout.0, drawn);
    let kept = body.point(Op::Compare(Compare::Ge), &[drawn, least], DType::Bool);
    let (scale, zero) = (body.number(how.keep_scale(), like), body.number(0.0, like));
    body.point(Op::Select, &[kept, scale, zero], wide)
}

pub(crate) fn forward(gpu: &Gpu, how: Attention, x: &[Operand], out: &[Operand]) -> Result<()> {
    let of = heads(how, x);
    let rank = of.scores.len();
    let dtype = x[0].dtype;
    let count = element_count(&of.scores);
    // Scores in the compute type, weights in that of the values.
    let wide = dtype.compute();
    let memory = [gpu.scratch(count * wide.size())?, gpu.scratch(count * dtype.size())?];
    let scores = Operand::dense(memory[0].at, wide, &of.scores);
    let weights = Operand::dense(memory[1].at, dtype, &of.scores);
    let (drawn, _held) = draws(gpu, how, x, &of.scores)?;
    dot(gpu, &of.q, &transposed(&of.k), &scores, false)?;
    let mut body = Body::default();
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
    let weight = body.binary(Binary::Div, exp, divisor);
    let factor = factor(&mut body, how, drawn, wide, weight);
    let kept = body.binary(Binary::Mul, weight, factor);
    let log = body.unary(Unary::Log, sum);
    let lse = body.binary(Binary::Add, shift, log);
    body.store(kept, weights.clone());
    let groups = x[1].shape[x[1].shape.len() - 3];
    body.store(lse, grouped_rows(&out[1], groups));
    body.run(gpu, &of.scores, 1)?;
    dot(gpu, &weights, &of.v, &grouped(&out[0], groups), false)
}

pub(crate) fn backward(gpu: &Gpu, how: Attention, x: &[Operand], out: &[Operand]) -> Result<()> {
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
    let part = |k: usize, dtype: DType| Operand::dense(memory[k].at, dtype, &of.scores);
    let (scores, products) = (part(0, wide), part(1, wide));
    let (weights, slopes) = (part(2, dtype), part(3, dtype));
    let (drawn, _held) = draws(gpu, how, x, &of.scores)?;
    dot(gpu, &of.q, &transposed(&of.k), &scores, false)?;
    dot(gpu, &dy, &transposed(&of.v), &products, false)?;
    // δ = Σ dy·y of a query.
    let rows = element_count(&of.scores[..rank - 1]);
    let sums = gpu.scratch(rows.max(1) * wide.size())?;
    let delta = Operand::dense(sums.at, wide, &of.scores[..rank - 1]);
    let mut body = Body::default();
    let (a, b) = (body.load(y.clone()), body.load(dy.clone()));
    let product = body.binary(Binary::Mul, a, b);
    let sum = body.reduce(Reduction::Sum, product);
    body.store(sum, delta.clone());
    body.run(gpu, &y.shape, 1)?;
    let keys = of.scores[rank - 1];
    let mut body = Body::default();
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
    // ds = weight·(factor·(dy·vᵀ) − δ); the values were weighted with weight·factor.
    let factor = factor(&mut body, how, drawn, wide, weight);
    let slope = body.load(products);
    let slope = body.binary(Binary::Mul, slope, factor);
    let delta = body.load(delta.repeated(rank - 1, keys));
    let rest = body.binary(Binary::Sub, slope, delta);
    let ds = body.binary(Binary::Mul, weight, rest);
    let ds = body.scaled(ds, how.scale.0);
    let kept = body.binary(Binary::Mul, weight, factor);
    body.store(kept, weights.clone());
    body.store(ds, slopes.clone());
    body.run(gpu, &of.scores, 0)?;
    // dq = ds·k; dk = dsᵀ·q and dv = weightsᵀ·dy, summed over the queries of a group.
    dot(gpu, &slopes, &of.k, &grouped(&out[0], groups), false)?;
    summed(gpu, [&transposed(&slopes), &of.q], &out[1])?;
    summed(gpu, [&transposed(&weights), &dy], &out[2])
}
