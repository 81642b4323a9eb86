//! Scaled dot-product attention without a stored score matrix, forward and backward.
//!
//! # The idea
//!
//! softmax(Q·Kᵀ)·V needs a whole row of scores before it can weight a single value; but a softmax
//! can be computed online, updated as scores arrive. With m the largest score so far, z = Σ
//! exp(score − m) and o = Σ exp(score − m)·value, a new block of keys with a larger maximum m' only
//! rescales both by exp(m − m'). So a block of queries passes over the keys once, block by block,
//! and only one small block of scores is alive, which stays in L1 or L2:
//!
//! ```text
//! for each head and block of queries:                    a task
//!     for each block of keys (up to the diagonal, if causal):
//!         S = Q·Kᵀ                                       tiles
//!         mask, running maximum, P = exp(S − m), z, dropout   rows
//!         O = O·exp(m_old − m) + P·V                     tiles
//!     out = O / z, lse = m + log z
//! ```
//!
//! Backward recomputes the same scores, block by block, and gets the probabilities directly, as P =
//! exp(S − lse). With dP = dO·Vᵀ and δ = Σ dO·O of a row: dS = P·(dP − δ), and
//!
//! ```text
//! for each head of keys and chunk of its blocks:         a task
//!     for each block of keys in the chunk:
//!         for each head and block of queries that sees it:
//!             S, P, dP, dS as above
//!             dV += Pᵀ·dO,  dK += dSᵀ·Q,  dQ += dS·K     tiles
//! ```
//!
//! Matrices are multiplied by the register tiles of [`crate::dot`], on unpacked operands or, for
//! the two transposes, in panels packed once. Narrow floats are widened when loaded. With a causal
//! mask, tiles of scores above the diagonal are left out, and so are the steps of the other
//! products whose weights are zero.
//!
//! # The same bits for any number of threads
//!
//! A block of queries is computed by one thread, over the blocks of keys in order. In backward, dK
//! and dV of a block are computed by one thread. If there are few heads, the blocks of keys are
//! distributed over chunks whose number depends on shapes alone; each chunk has its own dQ, and
//! these are added in order.
//!
//! # Dropout
//!
//! Whether weight (i, j) is dropped is a function of the random key and of its row-major index: the
//! same numbers that `Random` would give for a tensor of the shape of the scores, drawn a piece of
//! a row at a time. If each part of the batch has its own random key, indices are counted within
//! that part.

mod backward;
mod forward;
#[cfg(test)]
mod tests;

pub(crate) use backward::attention_vjp;
pub(crate) use forward::attention;

use crate::dot::even;
use crate::dot::tile::{Tile, Tiled};
use crate::elem::{Bool, Elem};
use crate::norm::lanes::{ComputeFloat, load};
use crate::operand::Source;
use crate::random;
use crate::simd::Isa;
use pullback_ir::{Attention, DType};
use std::ops::Range;

/// Multiply-adds from which several threads are used.
const ALONE: usize = 1 << 17;

/// The operands that forward and backward share.
#[derive(Clone, Copy)]
struct AttentionOperands<'a> {
    op: Attention,
    q: Source<'a>,
    k: Source<'a>,
    v: Source<'a>,
    mask: Option<Source<'a>>,
    /// One random key, or one for each part of the heads of queries, as many heads as share a key.
    keys: Option<Source<'a>>,
    drawn_together: usize,
    /// Heads of queries in all batches.
    count: usize,
    /// Heads of queries that share a head of keys.
    group: usize,
    /// Queries, keys, and the features of both and of values.
    l: usize,
    s: usize,
    d: usize,
    dv: usize,
}

impl<'a> AttentionOperands<'a> {
    /// The op on its operands; returns the remaining operands too.
    fn new(op: Attention, x: &[Source<'a>]) -> AttentionOperands<'a> {
        let (q, k, v) = (x[0], x[1], x[2]);
        let rank = q.shape.len();
        let [heads, l, d] = [q.shape[rank - 3], q.shape[rank - 2], q.shape[rank - 1]];
        let (s, dv) = (v.shape[rank - 2], v.shape[rank - 1]);
        let count = q.shape[..rank - 2].iter().product();
        let keys = op.drops().then(|| x[3 + usize::from(op.masked)]);
        let parts = keys.map_or(1, |keys| keys.len() / 2);
        AttentionOperands {
            op,
            q,
            k,
            v,
            mask: op.masked.then(|| x[3]),
            keys,
            drawn_together: usize::checked_div(count, parts).unwrap_or(1).max(1),
            count,
            group: heads.checked_div(k.shape[rank - 3]).unwrap_or(1).max(1),
            l,
            s,
            d,
            dv,
        }
    }

    /// Heads of keys in all batches.
    fn kv_count(&self) -> usize {
        self.count / self.group
    }

    /// The head of keys that head `n` of queries attends to.
    fn kv(&self, n: usize) -> usize {
        n / self.group
    }

    /// How many keys the queries before `to` attend to.
    fn reach(&self, to: usize) -> usize {
        if self.op.causal { self.s.min(to) } else { self.s }
    }

    /// How many of the keys from `j0` on some queries attend to, the last of which is `last`.
    fn visible(&self, last: usize, j0: usize, keys: usize) -> usize {
        if self.op.causal { keys.min((last + 1).saturating_sub(j0)) } else { keys }
    }

    /// Whether the work is worth a second thread.
    fn is_small(&self) -> bool {
        let work = self.l.saturating_mul(self.s).saturating_mul(self.d + self.dv);
        work.saturating_mul(self.count) < ALONE
    }

    /// Sets masked scores of query `i` of head `n`, with the keys from `j0` on, to −∞.
    ///
    /// # Safety
    /// The row of scores has at least as many keys as `scores`.
    #[inline(always)]
    unsafe fn hide<E: Elem<Compute: ComputeFloat>>(
        &self,
        n: usize,
        i: usize,
        j0: usize,
        scores: &mut [E::Compute],
    ) {
        let never = E::Compute::real(f64::NEG_INFINITY);
        if self.op.causal && i + 1 < j0 + scores.len() {
            let seen = (i + 1).saturating_sub(j0);
            scores[seen..].fill(never);
        }
        let Some(mask) = &self.mask else { return };
        let rank = mask.shape.len();
        let along = mask.strides[rank - 1];
        let at = begin(mask, n) + i as isize * mask.strides[rank - 2] + j0 as isize * along;
        // SAFETY: the mask is shaped as the scores.
        unsafe {
            if mask.dtype == DType::Bool {
                let from = mask.ptr.cast::<Bool>().offset(at);
                if along == 1 {
                    let from = std::slice::from_raw_parts(from, scores.len());
                    for (x, keep) in scores.iter_mut().zip(from) {
                        *x = if keep.0 == 0 { never } else { *x };
                    }
                } else {
                    for (j, x) in scores.iter_mut().enumerate() {
                        let keep = *from.offset(j as isize * along);
                        *x = if keep.0 == 0 { never } else { *x };
                    }
                }
            } else {
                let from = mask.ptr.cast::<E>().offset(at);
                if along == 1 {
                    let from = std::slice::from_raw_parts(from, scores.len());
                    for (x, add) in scores.iter_mut().zip(from) {
                        *x = *x + add.load();
                    }
                } else {
                    for (j, x) in scores.iter_mut().enumerate() {
                        *x = *x + (*from.offset(j as isize * along)).load();
                    }
                }
            }
        }
    }

    /// What the weights of query `i` of head `n` from key `j0` on are multiplied by under dropout.
    #[inline(always)]
    fn kept<C: ComputeFloat>(
        &self,
        n: usize,
        i: usize,
        j0: usize,
        draws: &mut [f32],
        factors: &mut [C],
    ) {
        let Some(keys) = &self.keys else { return };
        let p = self.op.dropout.0 as f32;
        let (part, n) = (n / self.drawn_together, n % self.drawn_together);
        random::uniforms(random::key_at(keys, part), (n * self.l + i) * self.s + j0, draws);
        let scale = C::real(self.op.keep_scale());
        for (factor, &draw) in factors.iter_mut().zip(&*draws) {
            *factor = if draw >= p { scale } else { C::default() };
        }
    }
}

/// Offset in elements of the `n`-th of a stack of matrices.
#[inline]
fn begin(x: &Source, mut n: usize) -> isize {
    let mut at = 0;
    for axis in (0..x.shape.len() - 2).rev() {
        let len = x.shape[axis].max(1);
        at += (n % len) as isize * x.strides[axis];
        n /= len;
    }
    at
}

/// Copies `m` rows of `n` elements, from row `from` of matrix `index` on, dense, each times
/// `scale`.
///
/// # Safety
/// The rows are in the source, and `to` has space for them.
#[inline(always)]
unsafe fn copy_rows<E: Elem<Compute: ComputeFloat>>(
    x: &Source,
    index: usize,
    from: usize,
    m: usize,
    scale: E::Compute,
    to: *mut E::Compute,
) {
    let rank = x.shape.len();
    let (n, row, col) = (x.shape[rank - 1], x.strides[rank - 2], x.strides[rank - 1]);
    let start = begin(x, index);
    for i in 0..m {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let line = x.ptr.cast::<E>().offset(start + (from + i) as isize * row);
            let to = std::slice::from_raw_parts_mut(to.add(i * n), n);
            load(line, col, to);
            to.iter_mut().for_each(|x| *x = *x * scale);
        }
    }
}

/// The left factor of a product; strides in elements.
#[derive(Clone, Copy)]
struct Left<C> {
    ptr: *const C,
    row: usize,
    step: usize,
}

/// The right factor: adjacent columns; `step` to the next row, `tile` to the next tile of columns.
#[derive(Clone, Copy)]
struct RightFactor<C> {
    ptr: *const C,
    step: usize,
    tile: usize,
    /// Whether the last tile of columns can be read as a whole, too.
    whole: bool,
}

/// Where a product is written: rows `ld` apart, and whether it is added.
#[derive(Clone, Copy)]
struct ProductTarget<C> {
    ptr: *mut C,
    ld: usize,
    add: bool,
}

/// Rows of a tile of a product with this many, so that tiles are of equal height: 8 rows by tiles
/// of 6 are 4 and 4.
fn height<C: Tiled>(m: usize) -> usize {
    even(m, C::kernels().rows, 1).max(1)
}

/// `c (+)= a·b` with `m` rows and `n` columns, tile by tile; of a tile, given by its rows and its
/// first column, those steps that `steps` says. A tile for which it says none is left as it is.
///
/// # Safety
/// All three have that many elements, and nothing else uses those of `c`.
#[inline(always)]
unsafe fn product<C: Tiled>(
    (m, n): (usize, usize),
    a: Left<C>,
    b: RightFactor<C>,
    c: ProductTarget<C>,
    steps: impl Fn(Range<usize>, usize) -> Option<Range<usize>>,
) {
    let kernels = C::kernels();
    let (tall, low) = (height::<C>(m), even(height::<C>(m), kernels.direct.len(), 1));
    for j in (0..n).step_by(kernels.cols) {
        let cols = kernels.cols.min(n - j);
        // Only the lower tiles can leave out columns of B.
        let (height, tiles) = match b.whole || cols == kernels.cols {
            true => (tall, kernels.half),
            false => (low, kernels.direct),
        };
        for from in (0..m).step_by(tall) {
            let rows = from..m.min(from + tall);
            let Some(steps) = steps(rows.clone(), j) else { continue };
            for i in rows.clone().step_by(height) {
                let tile = Tile {
                    k: steps.len(),
                    a: a.ptr.wrapping_add(i * a.row + steps.start * a.step),
                    a_row: a.row as isize,
                    a_step: a.step as isize,
                    b: b.ptr.wrapping_add(j / kernels.cols * b.tile + steps.start * b.step),
                    b_step: b.step as isize,
                    c: c.ptr.wrapping_add(i * c.ld + j),
                    c_row: c.ld as isize,
                    cols,
                    add: c.add,
                };
                // SAFETY: the tile is inside the three matrices, as the caller guarantees.
                unsafe { tiles[height.min(rows.end - i) - 1](&tile) };
            }
        }
    }
}

/// `x = exp(x − shift)` for elements not above the shift.
#[inline(always)]
fn exp_down<C: ComputeFloat, I: Isa>(row: &mut [C], shift: C) {
    for x in row {
        *x = (*x - shift).exp_down::<I>();
    }
}
