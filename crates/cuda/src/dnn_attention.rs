//! Attention by cuDNN: one graph forward, one backward, each of which it runs as one or two fused
//! kernels that store no scores.
//!
//! The graphs follow cuDNN's documentation of the patterns that it recognises. Stats are the
//! log-sum-exp of each query's scaled scores, as our op keeps. Causal masks are ours by
//! construction: query i sees the keys up to i, for any number of keys.

use crate::dnn::{Dnn, DnnForm};
use crate::dnn_graph::code::*;
use crate::dnn_graph::{DnnGraph, DnnResult, DnnTensor, dense, dtype_code};
use crate::fused::{RegionBody, last};
use crate::gpu::{DeviceScratch, Gpu};
use crate::loops::StridedOperand;
use crate::ops::copy;
use pullback_ir::{Attention, DType, Reduction, Result, deterministic, element_count};
use std::ffi::c_int;

/// Bytes of scratch that a backward pass in fixed order may use at once; batches and heads are
/// otherwise taken in parts.
const SCRATCH: usize = 4 << 30;

/// Hidden scores. A finite number: a row of cuDNN's is never without a maximum.
const HIDDEN: f32 = -1e30;

// Numbers of tensors.
const Q: i64 = 1;
const K: i64 = 2;
const V: i64 = 3;
const O: i64 = 4;
const STATS: i64 = 5;
const SCALE: i64 = 6;
const LOW: i64 = 7;
const DO: i64 = 8;
const DQ: i64 = 9;
const DK: i64 = 10;
const DV: i64 = 11;
const DELTA: i64 = 12;
const ONE: i64 = 13;
const TOTAL: i64 = 14;

type FourDims = [i64; 4];

/// Lengths.
#[derive(Clone, Copy)]
struct AttentionSizes {
    batch: i64,
    /// Heads of queries, and of keys.
    heads: i64,
    groups: i64,
    queries: i64,
    keys: i64,
    /// Of a query or key, and of a value.
    width: i64,
    value: i64,
    causal: bool,
    dtype: DType,
}

/// Memory with four axes: batch, heads, queries or keys, elements.
#[derive(Clone, Copy)]
struct StridedHeads {
    at: u64,
    strides: FourDims,
}

fn turned([b, h, s, d]: FourDims) -> FourDims {
    [b, h, d, s]
}

impl AttentionSizes {
    /// `None` where cuDNN is not asked.
    fn of(gpu: &Gpu, dnn: &Dnn, how: Attention, x: &[StridedOperand]) -> Option<AttentionSizes> {
        let rank = x[0].shape.len();
        let axes = |x: &StridedOperand| [x.shape[rank - 3], x.shape[rank - 2], x.shape[rank - 1]];
        let ([heads, queries, width], [groups, keys, _]) = (axes(&x[0]), axes(&x[1]));
        let value = x[2].shape[rank - 1];
        let batch = &x[0].shape[..rank - 3];
        let same = |y: &StridedOperand| y.dtype == x[0].dtype && y.shape[..rank - 3] == *batch;
        let narrow = matches!(x[0].dtype, DType::BF16 | DType::F16);
        let fits = |n: usize| n.is_multiple_of(8) && n <= 256;
        // Wide heads had faults before this version.
        let wide = width == value && dnn.version >= 91400;
        let small = |x: &StridedOperand| x.len() > 0 && i32::try_from(x.len()).is_ok();
        let taken = narrow
            && gpu.kernels.capability >= 80
            && !how.masked
            && !how.drops()
            && fits(width)
            && fits(value)
            && (width.max(value) <= 128 || wide)
            && groups > 0
            && heads.is_multiple_of(groups)
            && x[..3].iter().all(|x| small(x) && same(x));
        taken.then(|| AttentionSizes {
            batch: element_count(batch) as i64,
            heads: heads as i64,
            groups: groups as i64,
            queries: queries as i64,
            keys: keys as i64,
            width: width as i64,
            value: value as i64,
            causal: how.causal,
            dtype: x[0].dtype,
        })
    }

    fn q(&self) -> FourDims {
        [self.batch, self.heads, self.queries, self.width]
    }

    fn k(&self) -> FourDims {
        [self.batch, self.groups, self.keys, self.width]
    }

    fn v(&self) -> FourDims {
        [self.batch, self.groups, self.keys, self.value]
    }

    fn o(&self) -> FourDims {
        [self.batch, self.heads, self.queries, self.value]
    }

    fn scores(&self) -> FourDims {
        [self.batch, self.heads, self.queries, self.keys]
    }

    fn rows(&self) -> FourDims {
        [self.batch, self.heads, self.queries, 1]
    }

    fn form(&self, what: &'static str, strides: &[FourDims], more: bool) -> DnnForm {
        let mut numbers = smallvec::SmallVec::from_slice(&[
            self.batch,
            self.heads,
            self.groups,
            self.queries,
            self.keys,
            self.width,
            self.value,
            i64::from(self.causal),
            i64::from(more),
        ]);
        numbers.extend(strides.iter().flatten().copied());
        DnnForm { what, dtype: self.dtype, numbers }
    }

    /// So many batches and groups of heads that the backward pass in fixed order, which stores
    /// a matrix of slopes, needs little scratch.
    fn part(&self, scratch: usize) -> AttentionSizes {
        let bytes = |batch: i64, groups: i64| {
            let scores = batch * groups * (self.heads / self.groups) * self.queries * self.keys;
            2 * scores as usize
        };
        let mut part = *self;
        // Numbers of rows, four bytes each, begin at multiples of 16 bytes.
        if self.queries % 4 != 0 {
            return part;
        }
        let divisors = |n: i64| (1..=n).rev().filter(move |d| n % d == 0);
        let fits = |batch: &i64| bytes(*batch, self.groups) <= scratch;
        part.batch = divisors(self.batch).find(fits).unwrap_or(1);
        let fits = |groups: &i64| bytes(part.batch, *groups) <= scratch;
        part.groups = divisors(self.groups).find(fits).unwrap_or(1);
        part.heads = part.groups * (self.heads / self.groups);
        part
    }
}

/// The strides of four axes in dense memory.
fn usual(x: &StridedOperand) -> FourDims {
    let [h, s, d] = [3, 2, 1].map(|k| x.shape[x.shape.len() - k]);
    [h * s * d, s * d, d, 1].map(|n| n as i64)
}

/// The strides of four axes, if cuDNN takes them: elements next to each other, the rest in
/// multiples of 16 bytes.
fn strides(x: &StridedOperand) -> Option<FourDims> {
    let rank = x.shape.len();
    let mut out = [0; 4];
    // All batch axes as one.
    let (mut count, mut step) = (1, 0isize);
    for (&n, &s) in x.shape[..rank - 3].iter().zip(&x.strides) {
        match () {
            () if n == 1 => {}
            () if count == 1 || step == s * n as isize => (count, step) = (count * n, s),
            () => return None,
        }
    }
    out[0] = step as i64;
    out[1..].iter_mut().zip(&x.strides[rank - 3..]).for_each(|(to, &s)| *to = s as i64);
    // An axis of length 1 has the stride that it has in dense memory.
    let (usual, lengths) = (usual(x), [&[count], &x.shape[rank - 3..]].concat());
    for (k, _) in lengths.iter().enumerate().filter(|&(_, &n)| n == 1) {
        out[k] = usual[k];
    }
    let fits = out[..3].iter().all(|s| *s > 0 && s % 8 == 0) && out[3] == 1;
    (fits && x.at.is_multiple_of(16)).then_some(out)
}

/// The operand, or a dense copy of it.
fn strided_heads<'a>(
    gpu: &'a Gpu,
    x: &StridedOperand,
    held: &mut Vec<DeviceScratch<'a>>,
) -> Result<StridedHeads> {
    if let Some(strides) = strides(x) {
        return Ok(StridedHeads { at: x.at, strides });
    }
    let memory = gpu.scratch(x.bytes())?;
    let copied = StridedOperand::dense(memory.at, x.dtype, &x.shape);
    copy(gpu, x, &copied)?;
    held.push(memory);
    Ok(StridedHeads { at: copied.at, strides: usual(x) })
}

fn address(of: &f32) -> u64 {
    std::ptr::from_ref(of) as u64
}

/// Every configuration: the graph decides the order of sums.
fn all(_: &[c_int]) -> bool {
    true
}

/// Forward; false, and nothing done, if cuDNN does not take it.
pub(crate) fn attention(
    gpu: &Gpu,
    how: Attention,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<bool> {
    let Some(dnn) = gpu.dnn() else { return Ok(false) };
    let Some(sizes) = AttentionSizes::of(gpu, dnn, how, x) else { return Ok(false) };
    let aligned = out[1].at.is_multiple_of(16) && out[1].is_dense();
    let Some(result) = strides(&out[0]) else { return Ok(false) };
    if out[1].dtype != DType::F32 || !aligned {
        return Ok(false);
    }
    let [q, k, v] = [&x[0], &x[1], &x[2]].map(|x| strides(x).unwrap_or(usual(x)));
    let strides = [q, k, v, result];
    let form = sizes.form("attention", &strides, false);
    let Some(plan) = dnn.plan(gpu, &form, &all, |g| forward(g, &sizes, strides)) else {
        return Ok(false);
    };
    let mut held = Vec::new();
    let mut given = |x: &StridedOperand| strided_heads(gpu, x, &mut held);
    let (q, k, v) = (given(&x[0])?, given(&x[1])?, given(&x[2])?);
    let (scale, low) = (how.scale.0 as f32, HIDDEN);
    let mut at = vec![(Q, q.at), (K, k.at), (V, v.at), (O, out[0].at), (STATS, out[1].at)];
    at.push((SCALE, address(&scale)));
    if sizes.causal {
        at.push((LOW, address(&low)));
    }
    dnn.run(gpu, &form, plan, &at)
}

fn causal(
    g: &mut DnnGraph,
    x: DnnTensor,
    low: Option<DnnTensor>,
    dims: &[i64],
) -> DnnResult<DnnTensor> {
    let Some(low) = low else { return Ok(x) };
    let (query, key) = (g.index(x, 2, dims)?, g.index(x, 3, dims)?);
    let sees = g.inner(dims, BOOLEAN)?;
    g.point(GREATER_OR_EQUAL, (query, Some(key)), sees, BOOLEAN)?;
    g.select(sees, [x, low], dims)
}

fn hidden(g: &mut DnnGraph, s: &AttentionSizes) -> DnnResult<Option<DnnTensor>> {
    s.causal.then(|| g.scalar(LOW)).transpose()
}

fn forward(g: &mut DnnGraph, s: &AttentionSizes, [q, k, v, o]: [FourDims; 4]) -> DnnResult<()> {
    let narrow = dtype_code(s.dtype).ok_or("no such dtype")?;
    let (scores, rows) = (s.scores(), s.rows());
    let q = g.tensor(Q, &s.q(), &q, narrow)?;
    let k = g.tensor(K, &turned(s.k()), &turned(k), narrow)?;
    let (v, o) = (g.tensor(V, &s.v(), &v, narrow)?, g.tensor(O, &s.o(), &o, narrow)?);
    let stats = g.tensor(STATS, &rows, &dense(&rows), FLOAT)?;
    let (scale, low) = (g.scalar(SCALE)?, hidden(g, s)?);
    let x = g.inner(&scores, FLOAT)?;
    g.product(q, k, x)?;
    let x = g.value(MUL, x, Some(scale), &scores)?;
    let x = causal(g, x, low, &scores)?;
    let most = g.inner(&rows, FLOAT)?;
    g.reduce(MAX, x, most)?;
    let x = g.value(SUB, x, Some(most), &scores)?;
    let e = g.value(EXP, x, None, &scores)?;
    let sum = g.inner(&rows, FLOAT)?;
    g.reduce(SUM, e, sum)?;
    let log = g.value(LOG, sum, None, &rows)?;
    g.point(ADD, (most, Some(log)), stats, FLOAT)?;
    let weights = g.inner(&scores, narrow)?;
    g.point(DIV, (e, Some(sum)), weights, FLOAT)?;
    g.product(weights, v, o)
}

/// Backward; false, and nothing done that counts, if cuDNN does not take it.
pub(crate) fn attention_vjp(
    gpu: &Gpu,
    how: Attention,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<bool> {
    vjp_within(gpu, how, x, out, SCRATCH)
}

pub(crate) fn vjp_within(
    gpu: &Gpu,
    how: Attention,
    x: &[StridedOperand],
    out: &[StridedOperand],
    scratch: usize,
) -> Result<bool> {
    let Some(dnn) = gpu.dnn() else { return Ok(false) };
    let Some(whole) = AttentionSizes::of(gpu, dnn, how, x) else { return Ok(false) };
    // On newer chips sums in fixed order came later.
    let ordered = gpu.kernels.capability < 100 || dnn.version >= 91801;
    let [Some(dq), Some(dk), Some(dv)] = [0, 1, 2].map(|k| strides(&out[k])) else {
        return Ok(false);
    };
    if deterministic() && !ordered {
        return Ok(false);
    }
    // Gradients of keys and values for each head of queries, before they are added up.
    let full = |of: FourDims| [of[0], whole.heads, of[2], of[3]];
    let results = [whole.q(), full(whole.k()), full(whole.v())];
    let part = if deterministic() { whole.part(scratch) } else { whole };
    let operands = [&x[0], &x[1], &x[2], &x[3], &x[5]];
    let [q, k, v, o, dy] = operands.map(|x| strides(x).unwrap_or(usual(x)));
    let shared_by = whole.heads != whole.groups;
    let apart = results.map(|dims| four(&dense(&dims)));
    let sums = [dk, dv];
    let [dk, dv] = if shared_by { [apart[1], apart[2]] } else { sums };
    let strides = [q, k, v, o, dy, dq, dk, dv];
    let form = part.form("attention backward", &strides, !deterministic());
    let build = |g: &mut DnnGraph| backward(g, &part, strides, !deterministic());
    let Some(plan) = dnn.plan(gpu, &form, &all, build) else { return Ok(false) };
    let mut held = Vec::new();
    let mut given = |x: &StridedOperand| strided_heads(gpu, x, &mut held);
    let (q, k, v) = (given(&x[0])?, given(&x[1])?, given(&x[2])?);
    let (o, dy) = (given(&x[3])?, given(&x[5])?);
    // The log-sum-exp of queries, dense and in f32.
    let stats = &x[4];
    let aligned = stats.is_dense() && stats.at.is_multiple_of(16);
    let (stats, _held) = match aligned && stats.dtype == DType::F32 {
        true => (stats.at, None),
        false => {
            let memory = gpu.scratch(stats.len() * 4)?;
            copy(gpu, stats, &StridedOperand::dense(memory.at, DType::F32, &stats.shape))?;
            (memory.at, Some(memory))
        }
    };
    let count = |dims: FourDims| dims.iter().product::<i64>() as usize;
    let shared = |dims: FourDims| gpu.scratch(count(dims) * whole.dtype.size());
    let memory = match shared_by {
        true => Some([shared(results[1])?, shared(results[2])?]),
        false => None,
    };
    let to = |k: usize| memory.as_ref().map_or(out[k].at, |memory| memory[k - 1].at);
    let dq = StridedHeads { at: out[0].at, strides: dq };
    let (dk, dv) =
        (StridedHeads { at: to(1), strides: dk }, StridedHeads { at: to(2), strides: dv });
    let total = match deterministic() {
        true => None,
        false => Some(gpu.scratch(count(part.q()) * 4)?),
    };
    let delta = gpu.scratch(count(part.rows()) * 4)?;
    let (scale, low, one) = (how.scale.0 as f32, HIDDEN, 1f32);
    let each = whole.heads / whole.groups;
    for batch in (0..whole.batch).step_by(part.batch as usize) {
        for group in (0..whole.groups).step_by(part.groups as usize) {
            let from = |x: &StridedHeads, head: i64| {
                let elements = batch * x.strides[0] + head * x.strides[1];
                x.at.wrapping_add_signed(elements * whole.dtype.size() as i64)
            };
            let head = group * each;
            let row = (batch * whole.heads + head) * whole.queries;
            let mut at = vec![
                (Q, from(&q, head)),
                (K, from(&k, group)),
                (V, from(&v, group)),
                (O, from(&o, head)),
                (STATS, stats + 4 * row as u64),
                (DO, from(&dy, head)),
                (DQ, from(&dq, head)),
                (DK, from(&dk, head)),
                (DV, from(&dv, head)),
                (DELTA, delta.at),
                (SCALE, address(&scale)),
                (ONE, address(&one)),
            ];
            if whole.causal {
                at.push((LOW, address(&low)));
            }
            if let Some(total) = &total {
                gpu.fill(total.at, 0, count(part.q()) * 4)?;
                at.push((TOTAL, total.at));
            }
            if !dnn.run(gpu, &form, plan, &at)? {
                return Ok(false);
            }
        }
    }
    if let Some([dk, dv]) = &memory {
        groups(gpu, &whole, dk.at, &out[1], sums[0])?;
        groups(gpu, &whole, dv.at, &out[2], sums[1])?;
    }
    Ok(true)
}

fn four(of: &[i64]) -> FourDims {
    [of[0], of[1], of[2], of[3]]
}

/// Adds up the gradients of the heads of queries that share keys.
fn groups(
    gpu: &Gpu,
    s: &AttentionSizes,
    from: u64,
    out: &StridedOperand,
    strides: FourDims,
) -> Result<()> {
    let width = out.shape[out.shape.len() - 1] as i64;
    let shape = [s.batch, s.groups, s.heads / s.groups, s.keys, width].map(|n| n as usize);
    let order = last(5, 2);
    let mut body = RegionBody::default();
    let value = body.load(StridedOperand::dense(from, s.dtype, &shape).permuted(&order));
    let sum = body.reduce(Reduction::Sum, value);
    let to = [shape[0], shape[1], shape[3], shape[4]];
    body.store(sum, StridedOperand::new(out.at, s.dtype, &to, &strides.map(|s| s as isize)));
    let across: Vec<usize> = order.iter().map(|&d| shape[d]).collect();
    body.run(gpu, &across, 1)
}

fn backward(
    g: &mut DnnGraph,
    s: &AttentionSizes,
    strides: [FourDims; 8],
    adds: bool,
) -> DnnResult<()> {
    let narrow = dtype_code(s.dtype).ok_or("no such dtype")?;
    let [qs, ks, vs, os, dos, dqs, dks, dvs] = strides;
    let (scores, rows) = (s.scores(), s.rows());
    let [b, h, t, e] = s.o();
    let q = g.tensor(Q, &s.q(), &qs, narrow)?;
    let k = g.tensor(K, &turned(s.k()), &turned(ks), narrow)?;
    let v = g.tensor(V, &turned(s.v()), &turned(vs), narrow)?;
    let (o, dy) = (g.tensor(O, &s.o(), &os, narrow)?, g.tensor(DO, &s.o(), &dos, narrow)?);
    let stats = g.tensor(STATS, &rows, &dense(&rows), FLOAT)?;
    let delta = g.tensor(DELTA, &rows, &dense(&rows), FLOAT)?;
    let (full_k, full_v) = ([b, h, s.keys, s.width], [b, h, s.keys, e]);
    let dq = g.tensor(DQ, &s.q(), &dqs, narrow)?;
    let (dk, dv) = (g.tensor(DK, &full_k, &dks, narrow)?, g.tensor(DV, &full_v, &dvs, narrow)?);
    let (scale, one, low) = (g.scalar(SCALE)?, g.scalar(ONE)?, hidden(g, s)?);
    // δ = Σ dy·o of a query.
    let x = g.inner_strided(&s.o(), &[h * t * e, t * e, h * e, 1], FLOAT)?;
    g.point(MUL, (dy, Some(o)), x, FLOAT)?;
    let sum = g.inner(&rows, FLOAT)?;
    g.reduce(SUM, x, sum)?;
    g.point(MUL, (sum, Some(one)), delta, FLOAT)?;
    // p = exp(scores − stats), dv = pᵀ·dy.
    let x = g.inner(&scores, FLOAT)?;
    g.product(q, k, x)?;
    let x = g.value(MUL, x, Some(scale), &scores)?;
    let x = g.value(SUB, x, Some(stats), &scores)?;
    let x = causal(g, x, low, &scores)?;
    let p = g.value(EXP, x, None, &scores)?;
    let matrix = s.queries * s.keys;
    let across = [h * matrix, matrix, 1, s.keys];
    let pt = g.inner_strided(&turned(scores), &across, narrow)?;
    g.reshape(p, pt)?;
    g.product(pt, dy, dv)?;
    // ds = p·(dy·vᵀ − δ)·scale, dk = dsᵀ·q, dq = ds·k.
    let x = g.inner(&scores, FLOAT)?;
    g.product(dy, v, x)?;
    let x = g.value(SUB, x, Some(delta), &scores)?;
    let x = g.value(MUL, x, Some(p), &scores)?;
    let ds = g.value(MUL, x, Some(scale), &scores)?;
    let dst = g.inner_strided(&turned(scores), &across, narrow)?;
    g.reshape(ds, dst)?;
    g.product(dst, q, dk)?;
    let plain = g.inner_strided(&s.k(), &ks, narrow)?;
    g.reshape(k, plain)?;
    match adds {
        // Directly: the sums of a query are in one order.
        false => g.product(ds, plain, dq),
        // In parts, which are added in the order in which they are ready.
        true => {
            let total = g.tensor(TOTAL, &s.q(), &dense(&s.q()), FLOAT)?;
            g.product(ds, plain, total)?;
            g.point(IDENTITY, (total, None), dq, FLOAT).map(|_| ())
        }
    }
}
