//! Rows times a scalar, added up: for groups of so few channels that tiles would be mostly empty,
//! and for windows that are spread much wider than the data.

use super::num::ConvFloat;
use super::{Axis, Problem, Volume, shifted};
use crate::elem::Elem;
use crate::operand::Sink;
use crate::par::{self, Shared};
use crate::simd::{Isa, SimdTask, by_level, level, vectorised};

/// Multiply-adds that are worth a task.
const GRAIN: usize = 1 << 15;

/// The outputs for which a tap is inside the input, and the tap's position for the first of them.
type Reached = (std::ops::Range<usize>, isize);

impl Axis {
    /// The same for each tap.
    fn reached(&self) -> Vec<Reached> {
        // Positions cannot overflow: `infer` and `Axis::bounded` limit them.
        let (w, stride) = (self.window, self.window.stride as isize);
        let one = |t: usize| {
            let shift = (t * w.dilation) as isize - w.before;
            let low = if shift < 0 { (-shift - 1) / stride + 1 } else { 0 };
            let space = self.input as isize - shift;
            let high = if space <= 0 { 0 } else { (space - 1) / stride + 1 };
            let low = (low as usize).min(self.output);
            let high = (high as usize).min(self.output).max(low);
            (low..high, if low < high { shift + low as isize * stride } else { 0 })
        };
        (0..w.size).map(one).collect()
    }

    /// The position of a tap for output `o`, if it is inside the input.
    fn position(&self, o: usize, tap: &Reached) -> Option<usize> {
        tap.0.contains(&o).then(|| tap.1 as usize + (o - tap.0.start) * self.window.stride)
    }

    /// The output that has a tap at position `i`, if there is one.
    fn output_at(&self, i: usize, tap: &Reached) -> Option<usize> {
        let (stride, past) = (self.window.stride, (i as isize).checked_sub(tap.1)?);
        let steps = usize::try_from(past).ok()?;
        let o = tap.0.start + steps / stride;
        (steps.is_multiple_of(stride) && tap.0.contains(&o)).then_some(o)
    }
}

/// Cuts `rows` into tasks of about [`GRAIN`].
pub(super) fn tasks(rows: usize, work: usize, f: impl Fn(std::ops::Range<usize>) + Sync) {
    let each = (GRAIN / (work / rows.max(1)).max(1)).max(1);
    par::for_each(rows.div_ceil(each), |task| f(task * each..rows.min((task + 1) * each)));
}

pub(super) fn forward<S: Elem<Compute = C>, C: ConvFloat>(
    p: &Problem,
    x: Volume<S>,
    w: Volume<S>,
    out: Sink,
) {
    if shifted::fits(p) {
        return shifted::run(p, true, x, w, out);
    }
    let [depth, height, width] = p.axes;
    let [depths, heights, widths] = p.axes.each_ref().map(Axis::reached);
    let out = Shared(out.ptr.cast::<S>());
    let channels = p.groups * p.outer;
    let rows = p.batch * channels * depth.output * height.output;
    tasks(rows, p.work(), |range| {
        let mut sums = vec![C::default(); width.output];
        for row in range {
            let (line, h) = (row / height.output, row % height.output);
            let (line, d) = (line / depth.output, line % depth.output);
            let (image, c) = (line / channels, line % channels);
            let group = c / p.outer;
            sums.fill(C::default());
            for i in 0..p.inner {
                for (td, tap) in depths.iter().enumerate() {
                    let Some(xd) = depth.position(d, tap) else { continue };
                    for (th, tap) in heights.iter().enumerate() {
                        let Some(xh) = height.position(h, tap) else { continue };
                        let line = x.at([image, group * p.inner + i, xd, xh, 0]);
                        for (tw, (range, first)) in widths.iter().enumerate() {
                            // SAFETY: the tap is in the kernel, the positions are in the input.
                            unsafe {
                                let k = (*w.at([c, i, td, th, tw])).load();
                                let from = line.wrapping_offset(first * x.strides[4]);
                                let step =
                                    (width.window.stride as isize).wrapping_mul(x.strides[4]);
                                axpy(k, from, step, &mut sums[range.clone()]);
                            }
                        }
                    }
                }
            }
            for (o, &sum) in sums.iter().enumerate() {
                // SAFETY: this row is this task's.
                unsafe { *out.at(row * width.output + o) = S::store(sum) };
            }
        }
    });
}

/// `y += k · x`
unsafe fn axpy<S: Elem<Compute = C>, C: ConvFloat>(k: C, x: *const S, step: isize, y: &mut [C]) {
    // SAFETY: the caller has as many elements at `x` as `y` has; the machine supports the level.
    unsafe {
        by_level!(
            level(),
            avx512: axpy_avx512(k, x, step, y),
            avx2: axpy_avx2(k, x, step, y),
            baseline: axpy_plain(k, x, step, y),
        )
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn axpy_avx512<S: Elem<Compute = C>, C: ConvFloat>(
    k: C,
    x: *const S,
    step: isize,
    y: &mut [C],
) {
    // SAFETY: passed on.
    unsafe { axpy_plain(k, x, step, y) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn axpy_avx2<S: Elem<Compute = C>, C: ConvFloat>(
    k: C,
    x: *const S,
    step: isize,
    y: &mut [C],
) {
    // SAFETY: passed on.
    unsafe { axpy_plain(k, x, step, y) }
}

#[inline(always)]
unsafe fn axpy_plain<S: Elem<Compute = C>, C: ConvFloat>(
    k: C,
    x: *const S,
    step: isize,
    y: &mut [C],
) {
    // SAFETY: the caller has as many elements at `x` as `y` has.
    unsafe {
        if step == 1 {
            for (i, y) in y.iter_mut().enumerate() {
                *y += k * (*x.add(i)).load();
            }
        } else {
            for (i, y) in y.iter_mut().enumerate() {
                *y += k * (*x.offset(i as isize * step)).load();
            }
        }
    }
}

pub(super) fn input<S: Elem<Compute = C>, C: ConvFloat>(
    p: &Problem,
    y: Volume<S>,
    w: Volume<S>,
    out: Sink,
) {
    if shifted::fits(p) {
        return shifted::run(p, false, y, w, out);
    }
    let [depth, height, width] = p.axes;
    let [depths, heights, widths] = p.axes.each_ref().map(Axis::reached);
    let out = Shared(out.ptr.cast::<S>());
    let channels = p.groups * p.inner;
    let rows = p.batch * channels * depth.input * height.input;
    tasks(rows, p.work(), |range| {
        let mut sums = vec![C::default(); width.input];
        for row in range {
            let (line, h) = (row / height.input, row % height.input);
            let (line, d) = (line / depth.input, line % depth.input);
            let (image, c) = (line / channels, line % channels);
            let (group, i) = (c / p.inner, c % p.inner);
            sums.fill(C::default());
            for o in group * p.outer..(group + 1) * p.outer {
                for (td, tap) in depths.iter().enumerate() {
                    let Some(yd) = depth.output_at(d, tap) else { continue };
                    for (th, tap) in heights.iter().enumerate() {
                        let Some(yh) = height.output_at(h, tap) else { continue };
                        let line = y.at([image, o, yd, yh, 0]);
                        for (tw, (range, first)) in widths.iter().enumerate() {
                            if range.is_empty() {
                                continue;
                            }
                            // SAFETY: the tap is in the kernel, and the outputs and their positions
                            // are in bounds.
                            unsafe {
                                let k = (*w.at([o, i, td, th, tw])).load();
                                let from = line.offset(range.start as isize * y.strides[4]);
                                let sums = &mut sums[*first as usize..];
                                spread(
                                    k,
                                    from,
                                    y.strides[4],
                                    range.len(),
                                    sums,
                                    width.window.stride,
                                );
                            }
                        }
                    }
                }
            }
            for (o, &sum) in sums.iter().enumerate() {
                // SAFETY: this row is this task's.
                unsafe { *out.at(row * width.input + o) = S::store(sum) };
            }
        }
    });
}

/// `x[i·stride] += k · y[i]`
unsafe fn spread<S: Elem<Compute = C>, C: ConvFloat>(
    k: C,
    y: *const S,
    step: isize,
    count: usize,
    x: &mut [C],
    stride: usize,
) {
    // SAFETY: the caller has `count` elements at `y`.
    unsafe {
        if stride == 1 {
            axpy(k, y, step, &mut x[..count]);
        } else {
            for i in 0..count {
                x[i * stride] += k * (*y.offset(i as isize * step)).load();
            }
        }
    }
}

pub(super) fn weight_gradient<S: Elem<Compute = C>, C: ConvFloat>(
    p: &Problem,
    x: Volume<S>,
    y: Volume<S>,
    out: Sink,
) {
    let [depths, heights, widths] = p.axes.each_ref().map(Axis::reached);
    let out = Shared(out.ptr.cast::<S>());
    let taps = p.axes.map(|a| a.window.size);
    let rows = p.groups * p.outer * p.inner * taps[0] * taps[1] * taps[2];
    let reached = [depths, heights, widths];
    tasks(rows, p.work(), |range| {
        vectorised(Correlations { p, x, y, reached: &reached, range, out });
    });
}

/// Some elements of the gradient of the kernel, in row-major order.
struct Correlations<'a, S> {
    p: &'a Problem,
    x: Volume<S>,
    y: Volume<S>,
    reached: &'a [Vec<Reached>; 3],
    range: std::ops::Range<usize>,
    out: Shared<S>,
}

impl<S: Elem<Compute = C>, C: ConvFloat> SimdTask for Correlations<'_, S> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Correlations { p, x, y, reached, range, out } = self;
        let [depth, height, width] = p.axes;
        let taps = p.axes.map(|a| a.window.size);
        for row in range {
            let (line, tw) = (row / taps[2], row % taps[2]);
            let (line, th) = (line / taps[1], line % taps[1]);
            let (line, td) = (line / taps[0], line % taps[0]);
            let (o, i) = (line / p.inner, line % p.inner);
            let (range, first) = &reached[2][tw];
            let mut sums = [C::default(); LANES];
            for image in 0..p.batch {
                for d in 0..depth.output {
                    let Some(xd) = depth.position(d, &reached[0][td]) else { continue };
                    for h in 0..height.output {
                        let Some(xh) = height.position(h, &reached[1][th]) else { continue };
                        let a = x.at([image, o / p.outer * p.inner + i, xd, xh, 0]);
                        let a = a.wrapping_offset(first * x.strides[4]);
                        let b = y.at([image, o, d, h, range.start]);
                        let step = (width.window.stride as isize).wrapping_mul(x.strides[4]);
                        let steps = (step, y.strides[4]);
                        // SAFETY: the outputs of the range and their positions are in bounds.
                        unsafe { inner::<S, C, I>(a, b, steps, range.len(), &mut sums) };
                    }
                }
            }
            let sum = sums.into_iter().fold(C::default(), |a, b| a + b);
            // SAFETY: this element is this task's.
            unsafe { *out.at(row) = S::store(sum) };
        }
    }
}

/// Sums of products, which are independent of each other.
const LANES: usize = 32;

/// Adds products to the sums, in an order that is the same at every level.
///
/// # Safety
/// There are `count` elements on both sides.
#[inline(always)]
unsafe fn inner<S: Elem<Compute = C>, C: ConvFloat, I: Isa>(
    a: *const S,
    b: *const S,
    (step_a, step_b): (isize, isize),
    count: usize,
    sums: &mut [C; LANES],
) {
    let mut done = 0;
    // SAFETY: the caller has `count` elements on both sides.
    unsafe {
        if step_a == 1 && step_b == 1 {
            while done + LANES <= count {
                together::<S, C, I, LANES>(a.add(done), b.add(done), sums);
                done += LANES;
            }
            if done + 16 <= count {
                together::<S, C, I, 16>(a.add(done), b.add(done), sums);
                done += 16;
            }
            if done + 8 <= count {
                together::<S, C, I, 8>(a.add(done), b.add(done), sums);
                done += 8;
            }
            if done + 4 <= count {
                together::<S, C, I, 4>(a.add(done), b.add(done), sums);
                done += 4;
            }
        }
        for i in done..count {
            let (a, b) = (a.offset(i as isize * step_a), b.offset(i as isize * step_b));
            let sum = &mut sums[i % LANES];
            *sum = (*a).load().fma::<I>((*b).load(), *sum);
        }
    }
}

/// Adds the products of `N` adjacent elements to the first sums.
///
/// # Safety
/// There are as many elements on both sides.
#[inline(always)]
unsafe fn together<S: Elem<Compute = C>, C: ConvFloat, I: Isa, const N: usize>(
    a: *const S,
    b: *const S,
    sums: &mut [C; LANES],
) {
    // SAFETY: guaranteed by the caller; by value, so that the compiler need not assume that they
    // overlap.
    let (a, b) = unsafe { (a.cast::<[S; N]>().read(), b.cast::<[S; N]>().read()) };
    for lane in 0..N {
        sums[lane] = a[lane].load().fma::<I>(b[lane].load(), sums[lane]);
    }
}
