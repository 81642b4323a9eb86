//! Cross-entropy of logits against classes, and its gradient, without a matrix of probabilities
//! in between.

use super::lanes::{AlignedScratch, ComputeFloat, Prefetch, exp_sum, largest, padded, shift, view};
use crate::elem::{Elem, with_elem};
use crate::index::{IndexError, check};
use crate::operand::{Sink, Source};
use crate::par;
use crate::simd::{Isa, SimdTask, vectorised};
use std::marker::PhantomData;

/// Elements per task.
const TASK: usize = 1 << 14;

/// From logits `[n, c]` and classes `i64[n]`: `log(sum(exp(row))) − row[class]`, `[n]`, in the
/// compute type.
pub(crate) fn cross_entropy(
    logits: Source<'_>,
    classes: Source<'_>,
    out: Sink<'_>,
) -> Result<(), IndexError> {
    check(classes, logits.shape[1])?;
    with_elem!(float logits.dtype, E => rows::<E>(logits, classes, None, out));
    Ok(())
}

/// From logits, classes and `dy` (`[n]`, in the compute type): `(softmax(row) − onehot(class)) ·
/// dy`, `[n, c]`, which may be in the memory of the logits, and the losses of [`cross_entropy`].
pub(crate) fn cross_entropy_vjp(
    logits: Source<'_>,
    classes: Source<'_>,
    dy: Source<'_>,
    out: Sink<'_>,
    losses: Sink<'_>,
) -> Result<(), IndexError> {
    check(classes, logits.shape[1])?;
    with_elem!(float logits.dtype, E => rows::<E>(logits, classes, Some((dy, out)), losses));
    Ok(())
}

struct LossRows<'a> {
    logits: Source<'a>,
    classes: Source<'a>,
    /// The cotangent and the result, for the gradient.
    gradient: Option<(Source<'a>, *mut u8)>,
    losses: *mut u8,
    from: usize,
    to: usize,
}

fn rows<E: Elem<Compute: ComputeFloat>>(
    logits: Source<'_>,
    classes: Source<'_>,
    gradient: Option<(Source<'_>, Sink<'_>)>,
    losses: Sink<'_>,
) {
    if losses.is_empty() {
        return;
    }
    let (count, c) = (logits.shape[0], logits.shape[1]);
    // A short row has a fixed cost too.
    let each = (TASK / c.max(32)).max(1);
    par::for_each(count.div_ceil(each), |t| {
        let (from, to) = (t * each, count.min((t + 1) * each));
        let gradient = gradient.map(|(dy, out)| (dy, out.ptr));
        let of = LossRows { logits, classes, gradient, losses: { losses }.ptr, from, to };
        vectorised((of, PhantomData::<E>));
    });
}

impl<E: Elem<Compute: ComputeFloat>> SimdTask for (LossRows<'_>, PhantomData<E>) {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let LossRows { logits, classes, gradient, losses, from, to } = self.0;
        let c = logits.shape[1];
        let infinity = E::Compute::real(f64::NEG_INFINITY);
        let (mut a, mut p) =
            (AlignedScratch::new(padded(c), infinity), AlignedScratch::new(padded(c), infinity));
        let p = p.as_mut();
        for i in from..to {
            let at = i as isize;
            // SAFETY: row `i` is inside all operands, its result is this task's alone, and a sink
            // aliases no source but the same row of logits, which is not read after the first
            // write.
            unsafe {
                let row = logits.ptr.cast::<E>().offset(at * logits.strides[0]);
                let a = view(row, logits.strides[1], c, a.as_mut());
                // Checked before: less than `c`.
                let class = *classes.ptr.cast::<i64>().offset(at * classes.strides[0]) as usize;
                let most = largest(a);
                let by = shift(most);
                let total = exp_sum::<E::Compute, I>(a, by, p, Prefetch::NONE);
                losses.cast::<E::Compute>().add(i).write(total.log::<I>() - (a[class] - by));
                if let Some((dy, out)) = gradient {
                    let dy = *dy.ptr.cast::<E::Compute>().offset(at * dy.strides[0]);
                    let one = E::Compute::real(1.0);
                    // A row whose largest logit is infinite has no gradient.
                    let scale =
                        if most.finite() { one / total } else { E::Compute::real(f64::NAN) };
                    let out = out.cast::<E>().add(i * c);
                    for (j, &p) in p[..c].iter().enumerate() {
                        out.add(j).write(E::store(p * scale * dy));
                    }
                    out.add(class).write(E::store((p[class] * scale - one) * dy));
                }
            }
        }
    }
}
