//! Layer normalisation over the trailing axes, and its gradients.
//!
//! Mean and variance are taken in three passes over the row, which is in L1 after the first of
//! them: the sum, the distances from the mean (which correct its rounding error, so that a constant
//! row is exactly 0), and their squares, so nothing cancels. Backward recomputes both from `x`:
//! that is cheaper than reading them back, and the tape saves nothing for them.
//!
//! With `x̂ = (x − mean) · r`, `r = 1/√(variance + eps)` and `g = dy · w`:
//!
//! ```text
//! dx = r · (g − mean(g) − x̂ · mean(g · x̂))      dw = Σ rows dy · x̂      db = Σ rows dy
//! ```

use super::lanes::{
    AlignedScratch, ComputeFloat, LANES, Results, is_streamed, load, padded, share,
};
use super::lanes::{corrected_mean, distances, squares, store, sum, total, view};
use crate::elem::{Elem, with_elem};
use crate::operand::{Sink, Source};
use crate::par::{self, Shared};
use crate::simd::{Isa, SimdTask, vectorised};
use crate::walk::Walk;

/// Blocks of rows with a partial sum each: at most this many, of at least `ROWS` rows.
const BLOCKS: usize = 64;
const ROWS: usize = 16;
/// Columns of the partial sums that one task adds up.
const COLUMNS: usize = 1024;

/// The rows of an operand: their offsets, and the layout of one.
struct RowLayout<E> {
    ptr: *const E,
    starts: Walk<1>,
    row: Walk<1>,
}

// SAFETY: operands are only read (see `Source`).
unsafe impl<E> Sync for RowLayout<E> {}

impl<E: Elem<Compute: ComputeFloat>> RowLayout<E> {
    /// The last `axes` axes make a row.
    fn new(x: Source<'_>, axes: usize) -> RowLayout<E> {
        let split = x.shape.len() - axes;
        let ((outer, inner), (steps, strides)) =
            (x.shape.split_at(split), x.strides.split_at(split));
        RowLayout {
            ptr: x.ptr.cast(),
            starts: Walk::new(outer, [steps]),
            row: Walk::new(inner, [strides]),
        }
    }

    /// Row `i`: in the operand if it can be used without a copy, otherwise in scratch.
    #[inline(always)]
    fn view<'s>(&'s self, i: usize, scratch: &'s mut [E::Compute]) -> &'s [E::Compute] {
        // SAFETY: both walks stay inside the operand, which nothing writes.
        unsafe {
            let start = self.ptr.offset(self.starts.offsets(i)[0]);
            let (row, n) = (self.row.inner(), self.row.len());
            if row.len == n {
                return view(start, row.strides[0], n, scratch);
            }
            // Several runs along the innermost axis of the row.
            for (k, to) in scratch[..n].chunks_exact_mut(row.len).enumerate() {
                load(start.offset(self.row.offsets(k * row.len)[0]), row.strides[0], to);
            }
        }
        scratch
    }

    /// Row `i`, and its mean and `1/√(variance + eps)`. The padding is set to the mean, so that it
    /// is zero once centred.
    #[inline(always)]
    fn centred<'s, I: Isa>(
        &'s self,
        i: usize,
        scratch: &'s mut [E::Compute],
        eps: f64,
    ) -> (&'s [E::Compute], E::Compute, E::Compute) {
        let n = self.row.len();
        let count = E::Compute::real(n as f64);
        scratch[n..].fill(E::Compute::default());
        let a = self.view(i, scratch);
        let (rough, at) = (sum(a) / count, a.as_ptr());
        let mean = corrected_mean(rough, distances(self.seen(at, rough, scratch), rough) / count);
        let a = self.seen(at, mean, scratch);
        let variance = squares::<E::Compute, I>(a, mean) / count;
        (a, mean, E::Compute::real(1.0) / (variance + E::Compute::real(eps)).sqrt())
    }

    /// The row that [`RowLayout::view`] returned at `at`, padded with `pad` where it is in scratch.
    #[inline(always)]
    fn seen<'s>(
        &'s self,
        at: *const E::Compute,
        pad: E::Compute,
        scratch: &'s mut [E::Compute],
    ) -> &'s [E::Compute] {
        let n = self.row.len();
        if at == scratch.as_ptr() {
            scratch[n..].fill(pad);
            return scratch;
        }
        // SAFETY: a row of the operand, which nothing writes.
        unsafe { std::slice::from_raw_parts(at, n) }
    }

    /// The only row of a weight, padded with zeros.
    fn only(&self) -> AlignedScratch<E::Compute> {
        let mut scratch = AlignedScratch::new(padded(self.row.len()), E::Compute::default());
        // SAFETY: a row is inside its operand.
        unsafe {
            let row = self.row.inner();
            for (k, to) in scratch.as_mut()[..self.row.len()].chunks_exact_mut(row.len).enumerate()
            {
                load(self.ptr.offset(self.row.offsets(k * row.len)[0]), row.strides[0], to);
            }
        }
        scratch
    }
}

/// `x` normalised over the trailing axes, which are those of `w` and `b`, then `· w + b`.
pub(crate) fn layer_norm(eps: f64, x: Source<'_>, w: Source<'_>, b: Source<'_>, out: Sink<'_>) {
    with_elem!(float x.dtype, E => forward::<E>(eps, x, w, b, out));
}

struct LayerNormForward<'a, E: Elem> {
    eps: f64,
    x: &'a RowLayout<E>,
    w: &'a [E::Compute],
    b: &'a [E::Compute],
    out: *mut E,
    streamed: bool,
    from: usize,
    to: usize,
}

fn forward<E: Elem<Compute: ComputeFloat>>(
    eps: f64,
    x: Source<'_>,
    w: Source<'_>,
    b: Source<'_>,
    out: Sink<'_>,
) {
    if out.is_empty() {
        return;
    }
    let axes = w.shape.len();
    let x = &RowLayout::<E>::new(x, axes);
    let (mut w, mut b) = (RowLayout::<E>::new(w, axes).only(), RowLayout::<E>::new(b, axes).only());
    let (w, b) = (&*w.as_mut(), &*b.as_mut());
    let count = x.starts.len();
    let (each, streamed) = (share(count, x.row.len()), is_streamed(out, x.row.len()));
    par::for_each(count.div_ceil(each), |t| {
        let (from, to) = (t * each, count.min((t + 1) * each));
        vectorised(LayerNormForward { eps, x, w, b, out: { out }.ptr.cast(), streamed, from, to });
    });
}

impl<E: Elem<Compute: ComputeFloat>> SimdTask for LayerNormForward<'_, E> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let n = self.x.row.len();
        let mut a = AlignedScratch::new(padded(n), E::Compute::default());
        let a = a.as_mut();
        let mut results = Results::new(self.out, n, self.streamed);
        for i in self.from..self.to {
            let (x, mean, r) = self.x.centred::<I>(i, a, self.eps);
            // SAFETY: row `i` of the result is this task's alone.
            unsafe {
                let out = results.start(i);
                for (j, ((&x, &w), &b)) in x[..n].iter().zip(self.w).zip(self.b).enumerate() {
                    out.add(j).write(E::store(((x - mean) * r).fma::<I>(w, b)));
                }
                results.end(i);
            }
        }
    }
}

/// From `x`, `w` and `dy`, the gradients of all three operands.
pub(crate) fn layer_norm_vjp(
    eps: f64,
    x: Source<'_>,
    w: Source<'_>,
    dy: Source<'_>,
    dx: Sink<'_>,
    dw: Sink<'_>,
    db: Sink<'_>,
) {
    with_elem!(float x.dtype, E => backward::<E>(eps, x, w, dy, dx, dw, db));
}

struct LayerNormBackward<'a, E: Elem> {
    eps: f64,
    x: &'a RowLayout<E>,
    w: &'a [E::Compute],
    dy: &'a RowLayout<E>,
    dx: *mut E,
    streamed: bool,
    /// Partial sums of `dw` and `db`, of one block.
    partial: *mut E::Compute,
    from: usize,
    to: usize,
}

fn backward<E: Elem<Compute: ComputeFloat>>(
    eps: f64,
    x: Source<'_>,
    w: Source<'_>,
    dy: Source<'_>,
    dx: Sink<'_>,
    dw: Sink<'_>,
    db: Sink<'_>,
) {
    let axes = w.shape.len();
    let (x, dy) = (&RowLayout::<E>::new(x, axes), &RowLayout::<E>::new(dy, axes));
    let n = x.row.len();
    if n == 0 {
        return;
    }
    let mut w = RowLayout::<E>::new(w, axes).only();
    let w = &*w.as_mut();
    let (count, wide) = (x.starts.len(), w.len());
    let each = count.div_ceil(BLOCKS).max(ROWS);
    let blocks = count.div_ceil(each);
    let mut partials = AlignedScratch::new(blocks * 2 * wide, E::Compute::default());
    let partials = partials.as_mut();
    let shared = Shared(partials.as_mut_ptr());
    let streamed = is_streamed(dx, n);
    par::for_each(blocks, |t| {
        let (from, to) = (t * each, count.min((t + 1) * each));
        let (dx, partial) = ({ dx }.ptr.cast(), shared.at(t * 2 * wide));
        vectorised(LayerNormBackward { eps, x, w, dy, dx, streamed, partial, from, to });
    });
    let partials = &*partials;
    par::for_each(n.div_ceil(COLUMNS), |t| {
        let (from, to) = (t * COLUMNS, n.min((t + 1) * COLUMNS));
        for (out, skip) in [({ dw }.ptr.cast::<E>(), 0), ({ db }.ptr.cast::<E>(), wide)] {
            let mut sums = [E::Compute::default(); COLUMNS];
            let sums = &mut sums[..to - from];
            for block in partials.chunks_exact(2 * wide) {
                for (sum, &v) in sums.iter_mut().zip(&block[skip + from..skip + to]) {
                    *sum = *sum + v;
                }
            }
            // SAFETY: these columns are this task's alone.
            unsafe { store(sums, out.add(from), 1) };
        }
    });
}

impl<E: Elem<Compute: ComputeFloat>> SimdTask for LayerNormBackward<'_, E> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let n = self.x.row.len();
        let wide = self.w.len();
        let count = E::Compute::real(n as f64);
        let mut a = AlignedScratch::new(wide, E::Compute::default());
        let mut g = AlignedScratch::new(wide, E::Compute::default());
        let (a, g) = (a.as_mut(), g.as_mut());
        // SAFETY: the partial sums of this block, which no other task touches.
        let partial = unsafe { std::slice::from_raw_parts_mut(self.partial, 2 * wide) };
        let (dw, db) = partial.split_at_mut(wide);
        let mut results = Results::new(self.dx, n, self.streamed);
        for i in self.from..self.to {
            let (x, mean, r) = self.x.centred::<I>(i, a, self.eps);
            let dy = self.dy.view(i, g);
            let [slope, shift] =
                sums::<E::Compute, I>(x, mean, r, dy, self.w, dw, db).map(|s| s / count);
            // SAFETY: row `i` of the result is this task's alone.
            unsafe {
                let dx = results.start(i);
                for (j, ((&x, &dy), &w)) in x[..n].iter().zip(dy).zip(self.w).enumerate() {
                    let hat = (x - mean) * r;
                    dx.add(j).write(E::store(r * ((dy * w - shift) - hat * slope)));
                }
                results.end(i);
            }
        }
    }
}

/// Adds a row to `dw` and `db`; returns the sums of `dy · w · x̂` and of `dy · w`.
#[inline(always)]
fn sums<C: ComputeFloat, I: Isa>(
    x: &[C],
    mean: C,
    r: C,
    dy: &[C],
    w: &[C],
    dw: &mut [C],
    db: &mut [C],
) -> [C; 2] {
    let (mut slopes, mut shifts) = ([C::default(); LANES], [C::default(); LANES]);
    let operands = x.chunks_exact(LANES).zip(dy.chunks_exact(LANES)).zip(w.chunks_exact(LANES));
    let results = dw.chunks_exact_mut(LANES).zip(db.chunks_exact_mut(LANES));
    for (((x, dy), w), (dw, db)) in operands.zip(results) {
        for j in 0..LANES {
            dw[j] = dy[j].fma::<I>((x[j] - mean) * r, dw[j]);
            db[j] = db[j] + dy[j];
        }
        // In a separate loop from the first two, these sums have shorter dependency chains.
        for j in 0..LANES {
            let g = dy[j] * w[j];
            slopes[j] = g.fma::<I>((x[j] - mean) * r, slopes[j]);
            shifts[j] = shifts[j] + g;
        }
    }
    [total(slopes), total(shifts)]
}
