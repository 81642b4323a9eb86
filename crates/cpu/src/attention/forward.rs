//! Forward: one pass over the keys for each block of queries.

use super::{
    AttentionOperands, Left, ProductTarget, RightFactor, begin, copy_rows, exp_down, height,
    product,
};
use crate::dot::pack::{Matrix, Packing};
use crate::dot::scratch;
use crate::dot::tile::Tiled;
use crate::elem::{Elem, with_elem};
use crate::norm::lanes::{ComputeFloat, larger, largest, padded, sum};
use crate::operand::{Sink, Source};
use crate::par::{self, Shared};
use crate::simd::{Isa, SimdTask, vectorised};
use crate::widen::wide_floats;
use pullback_ir::Attention;
use std::ops::Range;

/// Queries in a task, and keys whose scores are alive at a time: 48 KiB of scores, 24 in f32.
const QUERIES: usize = 48;
const KEYS: usize = 256;

/// The weighted values of each query, and the log-sum-exp of its scores.
pub(crate) fn attention(op: Attention, x: &[Source], out: Sink, lse: Sink) {
    wide_floats("attention", x, &[out, lse], |x, out| {
        let (y, lse) = (out[0], out[1]);
        with_elem!(wide y.dtype, E => run::<E, _>(AttentionOperands::new(op, x), y, lse));
    });
}

/// Values as rows of the compute type.
#[derive(Clone, Copy)]
struct ValueRows<C> {
    ptr: Shared<C>,
    /// Whether they are those of `v`; otherwise copied, one head after the other.
    in_place: bool,
    row: usize,
}

fn run<E: Elem<Compute = C>, C: ComputeFloat + Tiled>(
    job: AttentionOperands,
    out: Sink,
    lse: Sink,
) {
    if lse.is_empty() {
        // No queries: do not pack the keys, which may be many. (Without values, there still are
        // scores.)
        return;
    }
    let cols = C::kernels().cols;
    let (s, d, dv) = (job.s, job.d, job.dv);
    // Keys as panels of columns of Kᵀ.
    let stride = s.next_multiple_of(cols).saturating_mul(d);
    let (_keys, keys) = scratch::<C>(stride.saturating_mul(job.kv_count()));
    let rank = job.k.shape.len();
    let packing = |n: usize| Packing::<E> {
        b: Matrix::of(&job.k, begin(&job.k, n)).transposed(),
        count: s,
        k: d,
        width: cols,
        stride: d * cols,
        dst: Shared(keys.at(n * stride)),
    };
    let in_place = job.v.strides[rank - 1] == 1 && job.v.strides[rank - 2] >= 0;
    let (_values, values) = scratch::<C>(if in_place { 0 } else { job.v.len() });
    let values = if in_place {
        let ptr = Shared({ job }.v.ptr.cast_mut().cast::<C>());
        ValueRows { ptr, in_place, row: job.v.strides[rank - 2] as usize }
    } else {
        ValueRows { ptr: values, in_place, row: dv }
    };
    let tasks = if job.kv_count() == 0 { 0 } else { packing(0).tasks() };
    spread(job.is_small(), job.kv_count() * (tasks + 1), |task| {
        let (n, part) = (task / (tasks + 1), task % (tasks + 1));
        if part < tasks {
            packing(n).run(part);
        } else if !in_place {
            // SAFETY: every head of values has its part of the copy.
            unsafe {
                copy_rows::<E>(&job.v, n, 0, s, C::real(1.0), values.ptr.at(n * s * dv));
            }
        }
    });
    let blocks = job.l.div_ceil(QUERIES);
    spread(job.is_small(), job.count * blocks, |task| {
        // The last queries first: with a causal mask they attend to the most keys and take the
        // longest.
        let (n, block) = (task % job.count, blocks - 1 - task / job.count);
        let from = block * QUERIES;
        vectorised(QueryBlock::<E> {
            job: &job,
            n,
            from,
            to: job.l.min(from + QUERIES),
            keys: keys.at(job.kv(n) * stride),
            values,
            out,
            lse,
        });
    });
}

/// Calls `f` for each task, on this thread alone if there is little work.
pub(super) fn spread(alone: bool, tasks: usize, f: impl Fn(usize) + Sync) {
    if alone { (0..tasks).for_each(f) } else { par::for_each(tasks, f) }
}

/// A block of queries of one head.
struct QueryBlock<'a, E: Elem> {
    job: &'a AttentionOperands<'a>,
    n: usize,
    from: usize,
    to: usize,
    /// The panels of this head.
    keys: *const E::Compute,
    values: ValueRows<E::Compute>,
    out: Sink<'a>,
    lse: Sink<'a>,
}

impl<E: Elem<Compute = C>, C: ComputeFloat + Tiled> SimdTask for QueryBlock<'_, E> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let QueryBlock { job, n, from, to, keys, values, .. } = self;
        let (m, d, dv) = (to - from, job.d, job.dv);
        let cols = C::kernels().cols;
        let (wide, tall) = (padded(KEYS.min(job.s)), height::<C>(m));
        let (_memory, memory) = scratch::<C>(m * (d + wide + dv) + wide);
        let (q, scores) = (memory.at(0), memory.at(m * d));
        let (sums, factors) = (memory.at(m * (d + wide)), memory.at(m * (d + wide + dv)));
        let mut draws = [0f32; KEYS];
        let never = C::real(f64::NEG_INFINITY);
        let (mut most, mut total) = ([never; QUERIES], [C::default(); QUERIES]);
        let kv = job.kv(n);
        let v = match values.in_place {
            true => values.ptr.at(0).wrapping_offset(begin(&job.v, kv)),
            false => values.ptr.at(kv * job.s * dv),
        };
        // SAFETY: the block of queries, and the blocks of keys and values, are inside their
        // tensors; the pieces of scratch are disjoint, and are filled before they are read.
        unsafe {
            copy_rows::<E>(&job.q, n, from, m, C::real(job.op.scale.0), q);
            for i in 0..m * dv {
                *sums.add(i) = C::default();
            }
            let reach = job.reach(to);
            for j0 in (0..reach).step_by(KEYS) {
                let keys_here = KEYS.min(reach - j0);
                let a = Left { ptr: q.cast_const(), row: d, step: 1 };
                let b =
                    RightFactor { ptr: keys.add(j0 * d), step: cols, tile: cols * d, whole: true };
                let c = ProductTarget { ptr: scores, ld: wide, add: false };
                // What the queries of a tile see of these keys: its last query sees most.
                let seen = |end: usize| job.visible(from + end - 1, j0, keys_here);
                let scored = |rows: Range<usize>, j: usize| (j < seen(rows.end)).then_some(0..d);
                product((m, keys_here), a, b, c, scored);
                for i in 0..m {
                    let keys_here = seen(m.min((i / tall + 1) * tall));
                    if keys_here == 0 {
                        continue;
                    }
                    let row =
                        std::slice::from_raw_parts_mut(scores.add(i * wide), padded(keys_here));
                    row[keys_here..].fill(never);
                    job.hide::<E>(n, from + i, j0, &mut row[..keys_here]);
                    let before = most[i];
                    most[i] = larger(largest(row), before);
                    // A row with no visible key so far has weights 0, not NaN.
                    let shift = if most[i] == never { C::default() } else { most[i] };
                    exp_down::<C, I>(row, shift);
                    let fade = if before == most[i] {
                        C::real(1.0)
                    } else {
                        (before - shift).exp_down::<I>()
                    };
                    total[i] = total[i].fma::<I>(fade, sum(row));
                    if before != most[i] {
                        let sums = std::slice::from_raw_parts_mut(sums.add(i * dv), dv);
                        sums.iter_mut().for_each(|x| *x = *x * fade);
                    }
                    if job.op.drops() {
                        let factors = std::slice::from_raw_parts_mut(factors, keys_here);
                        for x in factors.iter_mut() {
                            *x = C::default();
                        }
                        job.kept(n, from + i, j0, &mut draws[..keys_here], factors);
                        for (x, &factor) in row.iter_mut().zip(&*factors) {
                            *x = *x * factor;
                        }
                    }
                }
                let a = Left { ptr: scores.cast_const(), row: wide, step: 1 };
                let b = RightFactor {
                    ptr: v.add(j0 * values.row).cast_const(),
                    step: values.row,
                    tile: cols,
                    whole: false,
                };
                let c = ProductTarget { ptr: sums, ld: dv, add: true };
                let weighted = |rows: Range<usize>, _| match seen(rows.end) {
                    0 => None,
                    keys => Some(0..keys),
                };
                product((m, dv), a, b, c, weighted);
            }
            let (out, lse) = (self.out.ptr.cast::<E>(), self.lse.ptr.cast::<C>());
            for i in 0..m {
                let at = n * job.l + from + i;
                let none = most[i] == never && total[i] == C::default();
                let scale = if none { C::default() } else { C::real(1.0) / total[i] };
                *lse.add(at) = if none { never } else { most[i] + total[i].log::<I>() };
                let sums = std::slice::from_raw_parts(sums.add(i * dv), dv);
                for (c, &x) in sums.iter().enumerate() {
                    out.add(at * dv + c).write(E::store(x * scale));
                }
            }
        }
    }
}
