//! Backward: for each block of keys, the scores with the queries that attend to it are recomputed.

use super::forward::spread;
use super::{
    AttentionOperands, Left, ProductTarget, RightFactor, begin, copy_rows, height, product,
};
use crate::dot::pack::{Matrix, Packing};
use crate::dot::scratch;
use crate::dot::tile::Tiled;
use crate::elem::{Elem, with_elem};
use crate::movement::zero;
use crate::norm::lanes::{ComputeFloat, padded};
use crate::operand::{Sink, Source};
use crate::par::Shared;
use crate::simd::{Isa, SimdTask, vectorised};
use crate::widen::wide_floats;
use pullback_ir::Attention;
use std::ops::Range;

/// Queries and keys whose scores are alive at a time: two blocks of 32 KiB in f32.
const QUERIES: usize = 64;
const KEYS: usize = 128;
/// Tasks to aim for, if there are enough keys.
const TASKS: usize = 8;

/// The gradients of queries, keys and values, from the operands of the forward op, its two results
/// and the cotangent of the first.
pub(crate) fn attention_vjp(op: Attention, x: &[Source], dq: Sink, dk: Sink, dv: Sink) {
    wide_floats("attention_vjp", x, &[dq, dk, dv], |x, out| {
        with_elem!(wide out[0].dtype, E => run::<E, _>(op, x, out[0], out[1], out[2]));
    });
}

/// The operands of backward that forward does not have.
#[derive(Clone, Copy)]
struct BackwardOperands<'a> {
    out: Source<'a>,
    lse: Source<'a>,
    dout: Source<'a>,
}

fn run<E: Elem<Compute = C>, C: ComputeFloat + Tiled>(
    op: Attention,
    x: &[Source],
    dq: Sink,
    dk: Sink,
    dv: Sink,
) {
    let [out, lse, dout] = [3, 2, 1].map(|i| x[x.len() - i]);
    if dout.is_empty() {
        // No queries or keys: the gradients are zero.
        [dq, dk, dv].into_iter().for_each(zero);
        return;
    }
    let job = AttentionOperands::new(op, x);
    let extra = BackwardOperands { out, lse, dout };
    let kv = job.kv_count();
    let blocks = job.s.div_ceil(KEYS);
    let chunks = TASKS.div_ceil(kv.max(1)).min(blocks).max(1);
    // A single chunk accumulates directly in the result.
    let direct = chunks == 1;
    let len = dq.len();
    let (_memory, partial) = scratch::<C>(if direct { 0 } else { len.saturating_mul(chunks) });
    let sums = if direct { Shared({ dq }.ptr.cast::<C>()) } else { partial };
    let alone = job.is_small();
    spread(alone, kv * chunks, |task| {
        let (n, chunk) = (task / chunks, task % chunks);
        vectorised(Chunk::<E> {
            job: &job,
            extra,
            n,
            chunk,
            chunks,
            dq: Shared(sums.at(chunk * len)),
            dk,
            dv,
        });
    });
    if !direct {
        let each = 1 << 14;
        spread(alone, len.div_ceil(each), |task| {
            let to = { dq }.ptr.cast::<E>();
            for i in task * each..len.min((task + 1) * each) {
                // SAFETY: inside the result and each of its parts, which are filled.
                unsafe {
                    let total = (1..chunks).fold(*sums.at(i), |t, c| t + *sums.at(c * len + i));
                    to.add(i).write(E::store(total));
                }
            }
        });
    }
}

/// Some of the blocks of one head of keys.
struct Chunk<'a, E: Elem> {
    job: &'a AttentionOperands<'a>,
    extra: BackwardOperands<'a>,
    n: usize,
    chunk: usize,
    chunks: usize,
    /// The sums of this chunk, shaped as the queries.
    dq: Shared<E::Compute>,
    dk: Sink<'a>,
    dv: Sink<'a>,
}

impl<E: Elem<Compute = C>, C: ComputeFloat + Tiled> SimdTask for Chunk<'_, E> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Chunk { job, extra, n, chunk, chunks, dq, .. } = self;
        let (l, s, d, dv) = (job.l, job.s, job.d, job.dv);
        let queries = job.group * l;
        let cols = C::kernels().cols;
        let (tall, wide) = (QUERIES.min(l), padded(KEYS.min(s)));
        let panels = wide.next_multiple_of(cols);
        let sizes = [
            queries * d,  // Q, scaled
            queries * dv, // dO
            queries,      // lse
            queries,      // δ
            panels * d,   // panels of Kᵀ
            panels * dv,  // panels of Vᵀ
            wide * d,     // K, scaled
            wide * d,     // dK
            wide * dv,    // dV
            tall * wide,  // S, then P
            tall * wide,  // dP, then dS
            wide,         // factors of dropout
        ];
        // Each piece begins on a cache line.
        let starts: [usize; 13] = {
            let mut at = [0; 13];
            for (i, size) in sizes.iter().enumerate() {
                at[i + 1] = at[i] + size.next_multiple_of(16);
            }
            at
        };
        let (_memory, memory) = scratch::<C>(starts[12]);
        let piece = |i: usize| memory.at(starts[i]);
        let [q, dout, lse, delta, kt, vt] = [0, 1, 2, 3, 4, 5].map(piece);
        let [k, dk, dvs, p, ds, factors] = [6, 7, 8, 9, 10, 11].map(piece);
        let mut draws = [0f32; KEYS];
        let zero = C::default();
        // SAFETY: every block lies inside its tensor; pieces of scratch are disjoint, and filled
        // before they are read; the parts of the results are this task's.
        unsafe {
            for h in 0..job.group {
                let head = n * job.group + h;
                let (q, dout) = (q.add(h * l * d), dout.add(h * l * dv));
                copy_rows::<E>(&job.q, head, 0, l, C::real(job.op.scale.0), q);
                copy_rows::<E>(&extra.dout, head, 0, l, C::real(1.0), dout);
                summaries::<E, I>(&extra, head, l, dv, dout, lse.add(h * l), delta.add(h * l));
                let dq = dq.at(head * l * d);
                (0..l * d).for_each(|i| *dq.add(i) = zero);
            }
            for block in (chunk..s.div_ceil(KEYS)).step_by(chunks) {
                let j0 = block * KEYS;
                let keys = KEYS.min(s - j0);
                pack::<E, C>(&job.k, n, j0, keys, kt);
                pack::<E, C>(&job.v, n, j0, keys, vt);
                copy_rows::<E>(&job.k, n, j0, keys, C::real(job.op.scale.0), k);
                (0..keys * d).for_each(|i| *dk.add(i) = zero);
                (0..keys * dv).for_each(|i| *dvs.add(i) = zero);
                for h in 0..job.group {
                    let head = n * job.group + h;
                    // With a causal mask, queries before the block do not attend to it.
                    let first = if job.op.causal { j0.min(l) / QUERIES * QUERIES } else { 0 };
                    for i0 in (first..l).step_by(QUERIES) {
                        let m = QUERIES.min(l - i0);
                        let at = h * l + i0;
                        let (q, dout) = (q.add(at * d), dout.add(at * dv));
                        // What the queries of a tile see of these keys: its last query sees most.
                        let tall = height::<C>(m);
                        let seen = |end: usize| job.visible(i0 + end - 1, j0, keys);
                        let scored = |k: usize| {
                            move |rows: Range<usize>, j: usize| (j < seen(rows.end)).then_some(0..k)
                        };
                        let a = Left { ptr: q.cast_const(), row: d, step: 1 };
                        let b = RightFactor {
                            ptr: kt.cast_const(),
                            step: cols,
                            tile: cols * d,
                            whole: true,
                        };
                        product(
                            (m, keys),
                            a,
                            b,
                            ProductTarget { ptr: p, ld: wide, add: false },
                            scored(d),
                        );
                        let a = Left { ptr: dout.cast_const(), row: dv, step: 1 };
                        let b = RightFactor {
                            ptr: vt.cast_const(),
                            step: cols,
                            tile: cols * dv,
                            whole: true,
                        };
                        product(
                            (m, keys),
                            a,
                            b,
                            ProductTarget { ptr: ds, ld: wide, add: false },
                            scored(dv),
                        );
                        for i in 0..m {
                            let here = seen(m.min((i / tall + 1) * tall));
                            let p = std::slice::from_raw_parts_mut(p.add(i * wide), keys);
                            let ds = std::slice::from_raw_parts_mut(ds.add(i * wide), keys);
                            // Tiles of keys may read past what the queries see.
                            let edge = here..keys.min(here + C::kernels().rows);
                            p[edge.clone()].fill(zero);
                            ds[edge].fill(zero);
                            let (p, ds) = (&mut p[..here], &mut ds[..here]);
                            job.hide::<E>(head, i0 + i, j0, p);
                            let (lse, delta) = (*lse.add(at + i), *delta.add(at + i));
                            if job.op.drops() {
                                let factors = std::slice::from_raw_parts_mut(factors, here);
                                factors.iter_mut().for_each(|x| *x = zero);
                                job.kept(head, i0 + i, j0, &mut draws[..here], factors);
                                slopes_kept::<C, I>(p, ds, factors, lse, delta);
                            } else {
                                slopes::<C, I>(p, ds, lse, delta);
                            }
                        }
                        // The first query that sees the first key of a tile.
                        let first = |rows: Range<usize>, _| {
                            let from = if job.op.causal {
                                (j0 + rows.start).saturating_sub(i0)
                            } else {
                                0
                            };
                            (from < m).then_some(from..m)
                        };
                        let right = |ptr: *mut C, step| RightFactor {
                            ptr: ptr.cast_const(),
                            step,
                            tile: cols,
                            whole: false,
                        };
                        // Pᵀ and dSᵀ are the same memory with the strides exchanged.
                        let a = Left { ptr: p.cast_const(), row: 1, step: wide };
                        product(
                            (keys, dv),
                            a,
                            right(dout, dv),
                            ProductTarget { ptr: dvs, ld: dv, add: true },
                            first,
                        );
                        let a = Left { ptr: ds.cast_const(), row: 1, step: wide };
                        product(
                            (keys, d),
                            a,
                            right(q, d),
                            ProductTarget { ptr: dk, ld: d, add: true },
                            first,
                        );
                        let a = Left { ptr: ds.cast_const(), row: wide, step: 1 };
                        let dq = dq.at((head * l + i0) * d);
                        let seen = |rows: Range<usize>, _| match seen(rows.end) {
                            0 => None,
                            keys => Some(0..keys),
                        };
                        product(
                            (m, d),
                            a,
                            right(k, d),
                            ProductTarget { ptr: dq, ld: d, add: true },
                            seen,
                        );
                    }
                }
                write::<E>(dk, keys * d, self.dk, (n * s + j0) * d);
                write::<E>(dvs, keys * dv, self.dv, (n * s + j0) * dv);
            }
        }
    }
}

/// The log-sum-exp of each query, and δ = Σ dO·O; if a query attends to no key, a log-sum-exp of 0
/// keeps its weights at exp(−∞) = 0.
///
/// # Safety
/// `dout` has the `l` rows of the head, and the results have space for one element each.
#[inline(always)]
unsafe fn summaries<E: Elem<Compute: ComputeFloat>, I: Isa>(
    extra: &BackwardOperands,
    head: usize,
    l: usize,
    dv: usize,
    dout: *const E::Compute,
    lse: *mut E::Compute,
    delta: *mut E::Compute,
) {
    let (out, rank) = (&extra.out, extra.out.shape.len());
    let (row, col) = (out.strides[rank - 2], out.strides[rank - 1]);
    let start = begin(out, head);
    let never = E::Compute::real(f64::NEG_INFINITY);
    // The log-sum-exp is a stack of vectors.
    let stack = Source {
        shape: &[extra.lse.shape, &[1]].concat(),
        strides: &[extra.lse.strides, &[0]].concat(),
        ..extra.lse
    };
    let (from, step) = (begin(&stack, head), extra.lse.strides[rank - 2]);
    for i in 0..l {
        // SAFETY: inside the operands; their dtypes were checked.
        unsafe {
            let at = from + i as isize * step;
            let value = match extra.lse.dtype == E::DTYPE {
                true => (*extra.lse.ptr.cast::<E>().offset(at)).load(),
                false => *extra.lse.ptr.cast::<E::Compute>().offset(at),
            };
            *lse.add(i) = if value == never { E::Compute::default() } else { value };
            let line = out.ptr.cast::<E>().offset(start + i as isize * row);
            let mut sum = E::Compute::default();
            for c in 0..dv {
                sum = (*line.offset(c as isize * col)).load().fma::<I>(*dout.add(i * dv + c), sum);
            }
            *delta.add(i) = sum;
        }
    }
}

/// Rows of a matrix as panels of columns of its transpose.
///
/// # Safety
/// The rows are in the source, and `to` has space for them in whole panels.
unsafe fn pack<E: Elem<Compute = C>, C: Tiled + ComputeFloat>(
    x: &Source,
    index: usize,
    from: usize,
    count: usize,
    to: *mut C,
) {
    let (k, width) = (x.shape[x.shape.len() - 1], C::kernels().cols);
    let packing = Packing::<E> {
        b: Matrix::of(x, begin(x, index)).at(from, 0).transposed(),
        count,
        k,
        width,
        stride: k * width,
        dst: Shared(to),
    };
    (0..packing.tasks()).for_each(|task| packing.run(task));
}

/// From scores and dP: P and dS.
#[inline(always)]
fn slopes<C: ComputeFloat, I: Isa>(p: &mut [C], ds: &mut [C], lse: C, delta: C) {
    for (p, ds) in p.iter_mut().zip(ds) {
        *p = (*p - lse).exp::<I>();
        *ds = *p * (*ds - delta);
    }
}

/// The same where some weights were dropped and the others scaled.
#[inline(always)]
fn slopes_kept<C: ComputeFloat, I: Isa>(
    p: &mut [C],
    ds: &mut [C],
    factors: &[C],
    lse: C,
    delta: C,
) {
    for ((p, ds), &factor) in p.iter_mut().zip(ds).zip(factors) {
        let weight = (*p - lse).exp::<I>();
        *ds = weight * (ds.fma::<I>(factor, C::default() - delta));
        *p = weight * factor;
    }
}

/// # Safety
/// `from` has `n` elements, and so has the sink from `at` on.
#[inline(always)]
unsafe fn write<E: Elem>(from: *const E::Compute, n: usize, to: Sink, at: usize) {
    let to = to.ptr.cast::<E>();
    for i in 0..n {
        // SAFETY: guaranteed by the caller.
        unsafe { to.add(at + i).write(E::store(*from.add(i))) };
    }
}
