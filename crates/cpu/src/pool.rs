//! Pooling: pieces of the last axes, each reduced to one value.
//!
//! Where the pieces of an axis lie is worked out once, as a table; what is left is loops over it. Tasks are
//! whole images (the last axes of one index of the axes before them), so that what overlapping pieces add
//! to one element is added in one order, whatever the number of threads.

use crate::dot::{Shared, scratch};
use crate::elem::{Elem, with_elem};
use crate::operand::{Sink, Source};
use crate::par;
use crate::walk::Walk;
use half::{bf16, f16};
use pullback_ir::{DType, Pool, Pooling};

/// Elements that are worth a task.
const GRAIN: usize = 1 << 14;

/// A piece of an axis: its first position, how many, and the distance between them.
type Piece = (usize, usize, usize);

/// Three spatial axes; those that are not there have length 1 and one piece.
struct Frames {
    /// Lengths of the side that is cut into pieces.
    lengths: [usize; 3],
    pieces: [Vec<Piece>; 3],
}

pub(crate) fn pool(pool: &Pool, x: Source, out: Sink) {
    if out.is_empty() {
        return;
    }
    let rank = pool.frames.len();
    let lead = x.shape.len() - rank;
    let whole = match &pool.kind {
        Pooling::Sum | Pooling::ArgMax => &x.shape[lead..],
        Pooling::Spread(lengths) => lengths,
    };
    let mut lengths = [1; 3];
    lengths[3 - rank..].copy_from_slice(whole);
    let mut pieces = [vec![(0, 1, 1)], vec![(0, 1, 1)], vec![(0, 1, 1)]];
    for (i, frame) in pool.frames.iter().enumerate() {
        let count = frame.count(whole[i]).unwrap_or(0);
        pieces[3 - rank + i] = (0..count).map(|o| frame.piece(o, whole[i])).collect();
    }
    let frames = Frames { lengths, pieces };
    let mut strides = [0; 3];
    strides[3 - rank..].copy_from_slice(&x.strides[lead..]);
    let images = Walk::new(&x.shape[..lead], [&x.strides[..lead]]);
    let job = Job { frames, strides, images, x, out };
    match pool.kind {
        Pooling::ArgMax => with_elem!(x.dtype, T => job.argmax::<T>()),
        Pooling::Sum => match x.dtype {
            DType::F64 => job.sum::<f64, f64>(),
            DType::F32 => job.sum::<f32, f32>(),
            DType::BF16 => job.sum::<bf16, f32>(),
            DType::F16 => job.sum::<f16, f32>(),
            DType::I64 | DType::I32 | DType::U8 | DType::Bool => {
                unreachable!("`infer` refuses to add up what is not a float")
            }
        },
        Pooling::Spread(_) => match x.dtype {
            DType::F64 => job.spread::<f64, f64>(),
            DType::F32 => job.spread::<f32, f32>(),
            DType::BF16 => job.spread::<bf16, f32>(),
            DType::F16 => job.spread::<f16, f32>(),
            DType::I64 | DType::I32 | DType::U8 | DType::Bool => {
                unreachable!("`infer` refuses to add up what is not a float")
            }
        },
    }
}

struct Job<'a> {
    frames: Frames,
    strides: [isize; 3],
    images: Walk<1>,
    x: Source<'a>,
    out: Sink<'a>,
}

impl Job<'_> {
    /// Calls `f` for each image with its number and its first element.
    fn each<S>(&self, f: impl Fn(usize, *const S) + Sync) {
        let count = self.images.len();
        let size: usize = self.frames.lengths.iter().product();
        let each = (GRAIN / size.max(1)).max(1);
        let x = Shared(self.x.ptr.cast_mut().cast::<S>());
        par::for_each(count.div_ceil(each), |task| {
            for image in task * each..count.min((task + 1) * each) {
                let [offset] = self.images.offsets(image);
                f(image, x.at(0).wrapping_offset(offset).cast_const());
            }
        });
    }

    /// Calls `f` for each piece of an image, in order, with its number and its pieces of the axes.
    fn pieces(&self, mut f: impl FnMut(usize, [Piece; 3])) {
        let [depth, height, width] = &self.frames.pieces;
        let mut number = 0;
        for &d in depth {
            for &h in height {
                for &w in width {
                    f(number, [d, h, w]);
                    number += 1;
                }
            }
        }
    }

    fn count(&self) -> usize {
        self.frames.pieces.iter().map(Vec::len).product()
    }

    fn sum<S: Elem<Compute = C>, C: Copy + Default + std::ops::AddAssign>(&self) {
        let out = Shared(self.out.ptr.cast::<S>());
        let [sd, sh, sw] = self.strides;
        self.each::<S>(|image, x| {
            self.pieces(|number, [d, h, w]| {
                let mut sum = C::default();
                for i in 0..d.1 {
                    for j in 0..h.1 {
                        let row = (d.0 + i * d.2) as isize * sd + (h.0 + j * h.2) as isize * sh;
                        for k in 0..w.1 {
                            let at = row + (w.0 + k * w.2) as isize * sw;
                            // SAFETY: pieces lie inside their axes.
                            sum += unsafe { (*x.wrapping_offset(at)).load() };
                        }
                    }
                }
                // SAFETY: the results of an image are one task's.
                unsafe { *out.at(image * self.count() + number) = S::store(sum) };
            });
        });
    }

    fn argmax<S: Elem>(&self) {
        let out = Shared(self.out.ptr.cast::<i64>());
        let [sd, sh, sw] = self.strides;
        let [_, height, width] = self.frames.lengths;
        self.each::<S>(|image, x| {
            self.pieces(|number, [d, h, w]| {
                let mut best: Option<(usize, S::Compute)> = None;
                for i in 0..d.1 {
                    for j in 0..h.1 {
                        let (pd, ph) = (d.0 + i * d.2, h.0 + j * h.2);
                        let row = pd as isize * sd + ph as isize * sh;
                        for k in 0..w.1 {
                            let pw = w.0 + k * w.2;
                            // SAFETY: pieces lie inside their axes.
                            let v = unsafe { (*x.wrapping_offset(row + pw as isize * sw)).load() };
                            // Not comparable with itself: NaN. Nothing is larger than a NaN.
                            #[allow(clippy::eq_op)]
                            let wins = v != v || best.is_none_or(|(_, old)| v > old);
                            if wins {
                                best = Some(((pd * height + ph) * width + pw, v));
                            }
                        }
                    }
                }
                // `infer` refuses pieces without an element.
                let index = best.map_or(0, |b| b.0);
                // SAFETY: the results of an image are one task's.
                unsafe { *out.at(image * self.count() + number) = index as i64 };
            });
        });
    }

    fn spread<S: Elem<Compute = C>, C: Copy + Default + std::ops::AddAssign>(&self) {
        let out = Shared(self.out.ptr.cast::<S>());
        let [sd, sh, sw] = self.strides;
        let [_, height, width] = self.frames.lengths;
        let [_, rows, columns] = self.frames.pieces.each_ref().map(Vec::len);
        let size: usize = self.frames.lengths.iter().product();
        self.each::<S>(|image, x| {
            let (_sums, sums) = scratch::<C>(size);
            // SAFETY: pieces lie inside their axes; the scratch and the elements of an image are one task's.
            unsafe {
                (0..size).for_each(|i| *sums.at(i) = C::default());
                self.pieces(|number, [d, h, w]| {
                    let (line, k) = (number / columns, number % columns);
                    let (i, j) = (line / rows, line % rows);
                    let at = i as isize * sd + j as isize * sh + k as isize * sw;
                    let value = (*x.wrapping_offset(at)).load();
                    for i in 0..d.1 {
                        for j in 0..h.1 {
                            let row = ((d.0 + i * d.2) * height + h.0 + j * h.2) * width;
                            (0..w.1).for_each(|k| *sums.at(row + w.0 + k * w.2) += value);
                        }
                    }
                });
                (0..size).for_each(|i| *out.at(image * size + i) = S::store(*sums.at(i)));
            }
        });
    }
}
