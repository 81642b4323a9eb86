//! Cross-entropy of logits against classes, and its gradient, without a matrix of probabilities
//! in between.

use super::lanes::{AlignedScratch, Float, Prefetch, exp_sum, largest, padded, shift, view};
use crate::elem::{Elem, with_elem};
use crate::index::{IndexError, check};
use crate::operand::{Sink, Source};
use crate::par;
use crate::simd::{Isa, SimdTask, vectorised};

/// Elements per task.
const TASK: usize = 1 << 14;

/// From logits `[n, c]` and classes `i64[n]`: `log(sum(exp(row))) − row[class]`, `[n]`.
pub(crate) fn cross_entropy(
    logits: Source<'_>,
    classes: Source<'_>,
    out: Sink<'_>,
) -> Result<(), IndexError> {
    check(classes, logits.shape[1])?;
    with_elem!(float logits.dtype, E => rows::<E>(logits, classes, None, out));
    Ok(())
}

/// From logits, classes and `dy` (`[n]`): `(softmax(row) − onehot(class)) · dy`, `[n, c]`.
pub(crate) fn cross_entropy_vjp(
    logits: Source<'_>,
    classes: Source<'_>,
    dy: Source<'_>,
    out: Sink<'_>,
) -> Result<(), IndexError> {
    check(classes, logits.shape[1])?;
    with_elem!(float logits.dtype, E => rows::<E>(logits, classes, Some(dy), out));
    Ok(())
}

struct LossRows<'a, E> {
    logits: Source<'a>,
    classes: Source<'a>,
    /// The cotangent, for the gradient.
    dy: Option<Source<'a>>,
    out: *mut E,
    from: usize,
    to: usize,
}

fn rows<E: Elem<Compute: Float>>(
    logits: Source<'_>,
    classes: Source<'_>,
    dy: Option<Source<'_>>,
    out: Sink<'_>,
) {
    if out.is_empty() {
        return;
    }
    let (count, c) = (logits.shape[0], logits.shape[1]);
    // A short row has a fixed cost too.
    let each = (TASK / c.max(32)).max(1);
    par::for_each(count.div_ceil(each), |t| {
        let (from, to) = (t * each, count.min((t + 1) * each));
        vectorised(LossRows::<E> { logits, classes, dy, out: { out }.ptr.cast(), from, to });
    });
}

impl<E: Elem<Compute: Float>> SimdTask for LossRows<'_, E> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let LossRows { logits, classes, dy, out, from, to } = self;
        let c = logits.shape[1];
        let infinity = E::Compute::real(f64::NEG_INFINITY);
        let (mut a, mut p) =
            (AlignedScratch::new(padded(c), infinity), AlignedScratch::new(padded(c), infinity));
        let p = p.as_mut();
        for i in from..to {
            let at = i as isize;
            // SAFETY: row `i` is inside all operands, its result is this task's alone, and a sink
            // aliases no source.
            unsafe {
                let row = logits.ptr.cast::<E>().offset(at * logits.strides[0]);
                let a = view(row, logits.strides[1], c, a.as_mut());
                // Checked before: less than `c`.
                let class = *classes.ptr.cast::<i64>().offset(at * classes.strides[0]) as usize;
                let most = largest(a);
                if let Some(dy) = dy {
                    let dy = (*dy.ptr.cast::<E>().offset(at * dy.strides[0])).load();
                    let one = E::Compute::real(1.0);
                    let scale = one / exp_sum::<E::Compute, I>(a, most, p, Prefetch::NONE);
                    let out = out.add(i * c);
                    for (j, &p) in p[..c].iter().enumerate() {
                        out.add(j).write(E::store(p * scale * dy));
                    }
                    out.add(class).write(E::store((p[class] * scale - one) * dy));
                } else {
                    let by = shift(most);
                    let total = exp_sum::<E::Compute, I>(a, by, p, Prefetch::NONE);
                    out.add(i).write(E::store(total.log::<I>() - (a[class] - by)));
                }
            }
        }
    }
}
