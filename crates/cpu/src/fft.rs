//! Fourier transforms of lines, on `rustfft` and `realfft`.
//!
//! A line is the elements along the transformed axis. Each line is transformed by one thread; if
//! its elements are not contiguous, a few adjacent lines are gathered together, so that every cache
//! line is read once for all of them. The split of lines into tasks depends on the shape alone.
//!
//! Plans (twiddle factors for a length) cost more than a transform, so they are cached.

use crate::buffer::Buffer;
use crate::operand::{Sink, Source};
use crate::par;
use crate::walk::Walk;
use pullback_ir::{DType, Fft, Shape, Strides, dense_strides};
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::num_complex::Complex;
use rustfft::{FftNum, FftPlanner};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Fewest elements per task.
const TASK: usize = 1 << 13;
/// Lines that are gathered together if elements are not contiguous: at least a cache line of pairs.
const BUNDLE: usize = 16;
/// Capacity of the plan cache; it is cleared when full.
const PLANS: usize = 512;

pub(crate) fn fft(f: Fft, x: Source, out: Sink) {
    match out.dtype {
        DType::F64 => typed::<f64>(f, x, out),
        DType::F32 => typed::<f32>(f, x, out),
        other => unreachable!("`infer` accepts only f32 and f64, not {other}"),
    }
}

fn typed<T: Planned>(f: Fft, x: Source, out: Sink) {
    if out.is_empty() {
        return;
    }
    match f {
        Fft::Complex { axis, inverse } => {
            complex::<T>(&FftLines::of(axis, x, true, out, true), inverse)
        }
        Fft::Real(axis) => real::<T>(&FftLines::of(axis, x, false, out, true)),
        Fft::Hermitian { axis, .. } => hermitian::<T>(&FftLines::of(axis, x, true, out, false)),
    }
}

/// An operand or result along the transformed axis.
#[derive(Clone, Copy)]
struct Side {
    ptr: *mut u8,
    len: usize,
    /// Stride along the line, in elements.
    step: isize,
    /// Stride between the two parts of a pair, in elements.
    pair: isize,
}

// SAFETY: sides are made from operands, which may be shared; tasks write disjoint lines.
unsafe impl Send for Side {}
// SAFETY: as above.
unsafe impl Sync for Side {}

struct FftLines {
    from: Side,
    to: Side,
    /// Where each line starts, in both.
    starts: Walk<2>,
}

impl FftLines {
    /// `pairs`: whether the last axis holds pairs.
    fn of(axis: usize, x: Source, x_pairs: bool, out: Sink, out_pairs: bool) -> FftLines {
        let strides = dense_strides(out.shape);
        let side = |ptr: *mut u8, shape: &[usize], strides: &[isize], pairs: bool| Side {
            ptr,
            len: shape[axis],
            step: strides[axis],
            pair: if pairs { strides[shape.len() - 1] } else { 0 },
        };
        let from = side(x.ptr.cast_mut(), x.shape, x.strides, x_pairs);
        let to = side(out.ptr, out.shape, &strides, out_pairs);
        let rank = x.shape.len() - usize::from(x_pairs);
        let others = || (0..rank).filter(|&i| i != axis);
        let shape: Shape = others().map(|i| x.shape[i]).collect();
        let (a, b): (Strides, Strides) =
            (others().map(|i| x.strides[i]).collect(), others().map(|i| strides[i]).collect());
        FftLines { from, to, starts: Walk::new(&shape, [&a, &b]) }
    }

    /// Calls `f` with the starts of bundles of lines.
    fn for_each(&self, f: impl Fn(&[[isize; 2]]) + Sync) {
        let (count, len) = (self.starts.len(), self.from.len.max(self.to.len));
        let bundle = TASK.div_ceil(len.max(1)).max(BUNDLE).min(count);
        // Long lines are worth a task each, if they are contiguous.
        let together = self.from.step.unsigned_abs() <= 2 && self.to.step.unsigned_abs() <= 2;
        let bundle = if together && len >= TASK { 1 } else { bundle };
        par::for_each(count.div_ceil(bundle), |task| {
            let range = task * bundle..count.min((task + 1) * bundle);
            let mut starts = Vec::with_capacity(range.len());
            range.for_each(|i| starts.push(self.starts.offsets(i)));
            f(&starts);
        });
    }
}

impl Side {
    /// Reads the pairs of a bundle of lines, one line after the other.
    fn read_pairs<T: Planned>(
        self,
        starts: impl Iterator<Item = isize> + Clone,
        to: &mut [Complex<T>],
    ) {
        let from = self.ptr.cast::<T>().cast_const();
        let at = |start: isize, i: usize| {
            let ptr = from.wrapping_offset(start + i as isize * self.step);
            // SAFETY: inside the operand, whose layout was checked.
            unsafe { Complex { re: *ptr, im: *ptr.wrapping_offset(self.pair) } }
        };
        self.visit(starts.enumerate(), |line, start, i| to[line * self.len + i] = at(start, i));
    }

    fn read_reals<T: Planned>(self, starts: impl Iterator<Item = isize> + Clone, to: &mut [T]) {
        let from = self.ptr.cast::<T>().cast_const();
        self.visit(starts.enumerate(), |line, start, i| {
            // SAFETY: inside the operand, whose layout was checked.
            to[line * self.len + i] =
                unsafe { *from.wrapping_offset(start + i as isize * self.step) };
        });
    }

    fn write_pairs<T: Planned>(
        self,
        starts: impl Iterator<Item = isize> + Clone,
        from: &[Complex<T>],
    ) {
        let to = self.ptr.cast::<T>();
        self.visit(starts.enumerate(), |line, start, i| {
            let (ptr, v) =
                (to.wrapping_offset(start + i as isize * self.step), from[line * self.len + i]);
            // SAFETY: inside the sink; the line belongs to this task.
            unsafe {
                *ptr = v.re;
                *ptr.wrapping_offset(1) = v.im;
            }
        });
    }

    fn write_reals<T: Planned>(self, starts: impl Iterator<Item = isize> + Clone, from: &[T]) {
        let to = self.ptr.cast::<T>();
        self.visit(starts.enumerate(), |line, start, i| {
            // SAFETY: inside the sink; the line belongs to this task.
            unsafe {
                *to.wrapping_offset(start + i as isize * self.step) = from[line * self.len + i]
            };
        });
    }

    /// Every element of every line: along lines whose elements are contiguous, across lines
    /// otherwise.
    fn visit(
        self,
        lines: impl Iterator<Item = (usize, isize)> + Clone,
        mut f: impl FnMut(usize, isize, usize),
    ) {
        if self.step.unsigned_abs() <= 2 {
            lines.for_each(|(line, start)| (0..self.len).for_each(|i| f(line, start, i)));
        } else {
            (0..self.len).for_each(|i| lines.clone().for_each(|(line, start)| f(line, start, i)));
        }
    }
}

/// Scratch for a task, not to be read before it is written.
struct Scratch<V> {
    buffer: Buffer,
    len: usize,
    kind: std::marker::PhantomData<V>,
}

impl<V: Copy> Scratch<V> {
    fn of(len: usize) -> Scratch<V> {
        match Buffer::alloc(len * size_of::<V>()) {
            Ok(buffer) => Scratch { buffer, len, kind: std::marker::PhantomData },
            Err(error) => panic!("fft: {error}"),
        }
    }

    fn slice(&mut self) -> &mut [V] {
        // SAFETY: the buffer has space for them and is owned by this; floats have no invalid bits,
        // and are written before they are read.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.as_mut_ptr().cast(), self.len) }
    }
}

fn complex<T: Planned>(lines: &FftLines, inverse: bool) {
    let n = lines.from.len;
    let kind = if inverse { Transform::Inverse } else { Transform::Forward };
    let plan = T::plans(kind, n, |plans| match inverse {
        true => plans.complex.plan_fft_inverse(n),
        false => plans.complex.plan_fft_forward(n),
    });
    let dense = lines.to.step == 2;
    lines.for_each(|starts| {
        let mut scratch = Scratch::<Complex<T>>::of(plan.get_inplace_scratch_len());
        let (from, to) = (starts.iter().map(|s| s[0]), starts.iter().map(|s| s[1]));
        if dense {
            // Lines are contiguous in the result: they are transformed in place.
            for (from, to) in from.zip(to) {
                let ptr = lines.to.ptr.cast::<T>().wrapping_offset(to).cast::<Complex<T>>();
                // SAFETY: a dense line of the sink, which belongs to this task; it is filled first.
                let line = unsafe { std::slice::from_raw_parts_mut(ptr, n) };
                lines.from.read_pairs(std::iter::once(from), line);
                plan.process_with_scratch(line, scratch.slice());
            }
            return;
        }
        let mut bundle = Scratch::<Complex<T>>::of(n * starts.len());
        lines.from.read_pairs(from, bundle.slice());
        plan.process_with_scratch(bundle.slice(), scratch.slice());
        lines.to.write_pairs(to, bundle.slice());
    });
}

fn real<T: Planned>(lines: &FftLines) {
    let (n, half) = (lines.from.len, lines.to.len);
    let plan: Arc<dyn RealToComplex<T>> =
        T::plans(Transform::Real, n, |plans| plans.real.plan_fft_forward(n));
    lines.for_each(|starts| {
        let mut scratch = Scratch::<Complex<T>>::of(plan.get_scratch_len());
        let mut input = Scratch::<T>::of(n * starts.len());
        lines.from.read_reals(starts.iter().map(|s| s[0]), input.slice());
        let dense = lines.to.step == 2;
        let mut bundle = Scratch::<Complex<T>>::of(if dense { 0 } else { half * starts.len() });
        for (i, line) in input.slice().chunks_exact_mut(n).enumerate() {
            let output = if dense {
                let ptr = lines.to.ptr.cast::<T>().wrapping_offset(starts[i][1]);
                // SAFETY: a dense line of the sink, which belongs to this task; the plan fills it.
                unsafe { std::slice::from_raw_parts_mut(ptr.cast::<Complex<T>>(), half) }
            } else {
                &mut bundle.slice()[i * half..(i + 1) * half]
            };
            let done = plan.process_with_scratch(line, output, scratch.slice());
            debug_assert!(done.is_ok(), "the lengths are the plan's");
        }
        if !dense {
            lines.to.write_pairs(starts.iter().map(|s| s[1]), bundle.slice());
        }
    });
}

fn hermitian<T: Planned>(lines: &FftLines) {
    let (half, n) = (lines.from.len, lines.to.len);
    let plan: Arc<dyn ComplexToReal<T>> =
        T::plans(Transform::Hermitian, n, |plans| plans.real.plan_fft_inverse(n));
    lines.for_each(|starts| {
        let mut scratch = Scratch::<Complex<T>>::of(plan.get_scratch_len());
        let mut input = Scratch::<Complex<T>>::of(half * starts.len());
        lines.from.read_pairs(starts.iter().map(|s| s[0]), input.slice());
        let mut bundle = Scratch::<T>::of(n * starts.len());
        for (line, output) in
            input.slice().chunks_exact_mut(half).zip(bundle.slice().chunks_exact_mut(n))
        {
            // What must be real for a real result is treated as real.
            line[0].im = T::zero();
            if n.is_multiple_of(2) {
                line[half - 1].im = T::zero();
            }
            let done = plan.process_with_scratch(line, output, scratch.slice());
            debug_assert!(done.is_ok(), "the lengths are the plan's");
        }
        lines.to.write_reals(starts.iter().map(|s| s[1]), bundle.slice());
    });
}

/// The kind of transform that a plan is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Transform {
    Forward,
    Inverse,
    Real,
    Hermitian,
}

/// The plans of one type.
struct Plans<T: FftNum> {
    complex: FftPlanner<T>,
    real: RealFftPlanner<T>,
    /// The plans in the cache; the planners do not expose theirs.
    made: HashSet<(Transform, usize)>,
}

trait Planned: FftNum {
    fn store() -> &'static Mutex<Option<Plans<Self>>>;

    /// Looks up or makes a plan. The cache is bounded, so that many lengths do not fill the memory.
    fn plans<R>(kind: Transform, n: usize, ask: impl FnOnce(&mut Plans<Self>) -> R) -> R {
        let mut store = Self::store().lock().unwrap_or_else(PoisonError::into_inner);
        let full =
            |made: &HashSet<(Transform, usize)>| made.len() >= PLANS && !made.contains(&(kind, n));
        if store.as_ref().is_some_and(|plans| full(&plans.made)) {
            *store = None;
        }
        let fresh = || Plans {
            complex: FftPlanner::new(),
            real: RealFftPlanner::new(),
            made: HashSet::new(),
        };
        let plans = store.get_or_insert_with(fresh);
        plans.made.insert((kind, n));
        ask(plans)
    }
}

impl Planned for f32 {
    fn store() -> &'static Mutex<Option<Plans<f32>>> {
        static STORE: Mutex<Option<Plans<f32>>> = Mutex::new(None);
        &STORE
    }
}

impl Planned for f64 {
    fn store() -> &'static Mutex<Option<Plans<f64>>> {
        static STORE: Mutex<Option<Plans<f64>>> = Mutex::new(None);
        &STORE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_made_once_however_often_it_is_used() {
        let ask = || f64::plans(Transform::Forward, 24, |plans| plans.complex.plan_fft_forward(24));
        let first = ask();
        assert!((0..2 * PLANS).all(|_| Arc::ptr_eq(&first, &ask())));
    }
}
