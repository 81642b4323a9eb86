//! Stacking tensors, and padding with their own elements.

use crate::apply::apply;
use crate::checked_alloc::check_list;
use crate::create::{known_shape, saturated};
use crate::{DType, Error, Tensor, cat, stack};
use pullback_ir::Window;

/// At least this many axes: new ones come first, except the third, which comes last.
pub(super) fn raised(x: &Tensor, rank: usize) -> Tensor {
    match (x.rank(), rank) {
        (0, _) => x.reshape(vec![1usize; rank]),
        (1, 2) => x.unsqueeze(0),
        (1, 3) => x.unsqueeze(0).unsqueeze(-1),
        (2, 3) => x.unsqueeze(-1),
        _ => x.clone(),
    }
}

#[track_caller]
fn joined(tensors: &[&Tensor], rank: usize, axis: impl Fn(&Tensor) -> isize) -> Tensor {
    let parts: Vec<Tensor> = tensors.iter().map(|x| raised(x, rank)).collect();
    let axis = parts.first().map_or(0, axis);
    cat(&parts.iter().collect::<Vec<_>>(), axis)
}

/// Concatenates horizontally: vectors along axis 0, others along axis 1.
///
/// Derivative: each operand gets the part of `dy` that it is.
///
/// ```
/// use pullback::{Tensor, hstack};
/// let x = Tensor::from([1.0, 2.0]);
/// assert_eq!(hstack(&[&x, &x]).shape(), [4]);
/// ```
///
/// # Panics
/// If there is no tensor, or the other axes differ in length.
#[track_caller]
#[must_use]
pub fn hstack(tensors: &[&Tensor]) -> Tensor {
    joined(tensors, 1, |x| if x.rank() == 1 { 0 } else { 1 })
}

/// Concatenates vertically, along axis 0; a vector is a row.
///
/// Derivative: each operand gets the part of `dy` that it is.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback::vstack;
/// let x = Tensor::from([1, 2]);
/// assert_eq!(vstack(&[&x, &x]).shape(), [2, 2]);
/// ```
///
/// # Panics
/// If there is no tensor, or the other axes differ in length.
#[track_caller]
#[must_use]
pub fn vstack(tensors: &[&Tensor]) -> Tensor {
    joined(tensors, 2, |_| 0)
}

/// Concatenates along axis 2 (depth).
///
/// Derivative: each operand gets the part of `dy` that it is.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback::dstack;
/// let x = Tensor::zeros([2, 3]);
/// assert_eq!(dstack(&[&x, &x]).shape(), [2, 3, 2]);
/// ```
///
/// # Panics
/// If there is no tensor, or the other axes differ in length.
#[track_caller]
#[must_use]
pub fn dstack(tensors: &[&Tensor]) -> Tensor {
    joined(tensors, 3, |_| 2)
}

/// Concatenates along axis 1; a vector is a column.
///
/// Derivative: each operand gets the part of `dy` that it is.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback::column_stack;
/// let x = Tensor::from([1, 2]);
/// assert_eq!(column_stack(&[&x, &x]).to_vec::<i32>(), [1, 1, 2, 2]);
/// ```
///
/// # Panics
/// If there is no tensor, or the other axes differ in length.
#[track_caller]
#[must_use]
pub fn column_stack(tensors: &[&Tensor]) -> Tensor {
    let column = |x: &&Tensor| if x.rank() < 2 { x.reshape([x.len(), 1]) } else { (*x).clone() };
    let parts: Vec<Tensor> = tensors.iter().map(column).collect();
    cat(&parts.iter().collect::<Vec<_>>(), 1)
}

/// Coordinate grids of vectors: tensor k varies along axis k.
///
/// Views: each shares the memory of its tensor.
/// Derivative: each vector gets `dy` summed over the axes it was spread along.
///
/// ```
/// use pullback::{Tensor, meshgrid};
/// let grid = meshgrid(&[&Tensor::from([1.0, 2.0]), &Tensor::from([3.0, 4.0, 5.0])]);
/// assert_eq!(grid[1].to_vec::<f64>(), [3.0, 4.0, 5.0, 3.0, 4.0, 5.0]);
/// ```
///
/// # Panics
/// If the grid is larger than memory.
#[track_caller]
#[must_use]
pub fn meshgrid(vectors: &[&Tensor]) -> Vec<Tensor> {
    let shape: Vec<usize> = vectors.iter().map(|x| x.len()).collect();
    let mut grid = Vec::with_capacity(vectors.len());
    for (k, x) in vectors.iter().enumerate() {
        let mut thin = vec![1; shape.len()];
        thin[k] = x.len();
        grid.push(x.reshape(&thin[..]).expand(&shape[..]));
    }
    grid
}

/// Most taps of a window that are moved one by one.
const MAX_TAPS: usize = 64;

/// What [`Tensor::pad_by`] puts around the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadMode {
    /// The elements again in reverse, without the one at the edge: `c b | a b c | b a`.
    Reflect,
    /// The one at the edge, repeated: `a a | a b c | c c`.
    Replicate,
    /// The elements again from the other end: `b c | a b c | a b`.
    Circular,
}

impl Tensor {
    /// Pads with elements of the tensor itself: `(before, after)` for each axis.
    ///
    /// Derivative: dx = the middle of dy, plus the padding added back where it was taken.
    /// PyTorch's name: `nn.functional.pad`.
    ///
    /// ```
    /// use pullback::{PadMode, Tensor};
    /// let x = Tensor::from([1.0, 2.0, 3.0]);
    /// assert_eq!(x.pad_by([(2, 1)], PadMode::Reflect).to_vec::<f64>(), [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the padding does not name each axis, or an axis is too short for it.
    #[doc(alias = "pad")]
    #[track_caller]
    #[must_use]
    pub fn pad_by(&self, padding: impl AsRef<[(usize, usize)]>, border: PadMode) -> Tensor {
        let signed = |n: usize| isize::try_from(n).unwrap_or(isize::MAX);
        let padding = padding.as_ref();
        let padding: Vec<(isize, isize)> =
            padding.iter().map(|&(before, after)| (signed(before), signed(after))).collect();
        self.pad_or_cut(&padding, border)
    }

    /// [`Tensor::pad_by`] where a negative number cuts elements off. What is put on one side is
    /// taken from the whole axis, also from what is cut off on the other.
    ///
    /// Derivative: each element gets the sum of `dy` where it occurs.
    /// PyTorch's name: `nn.functional.pad`.
    ///
    /// ```
    /// use pullback::{PadMode, Tensor};
    /// let x = Tensor::from([1.0, 2.0, 3.0]);
    /// assert_eq!(x.pad_or_cut([(-2, 2)], PadMode::Replicate).to_vec::<f64>(), [3.0, 3.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the padding does not name each axis, an axis is too short for it, or more is cut off than
    /// there is.
    #[doc(alias = "pad")]
    #[track_caller]
    #[must_use]
    pub fn pad_or_cut(&self, padding: impl AsRef<[(isize, isize)]>, border: PadMode) -> Tensor {
        let padding = padding.as_ref();
        if padding.len() != self.rank() {
            let message = format!(
                "{padding:?} must have a pair for each of the {} axes of {}",
                self.rank(),
                self.spec()
            );
            return self.checked(Err(Error::shape("pad_by", message).on([self.spec()])));
        }
        let mut x = self.clone();
        for (axis, &(before, after)) in padding.iter().enumerate().filter(|(_, p)| **p != (0, 0)) {
            let n = self.shape()[axis] as i64;
            let space = match border {
                PadMode::Reflect => n - 1,
                PadMode::Replicate => {
                    if n == 0 {
                        0
                    } else {
                        i64::MAX
                    }
                }
                PadMode::Circular => n,
            };
            let (before, after) = (before as i64, after as i64);
            let fits = before.max(after) <= space && before.max(after) < i64::MAX / 4;
            let left = n.saturating_add(before).saturating_add(after);
            if !fits || left < 0 || !pullback_ir::infer::fits_memory(&[left as usize]) {
                let message = format!(
                    "axis {axis} of {} is too short for {border:?} by {before}, {after}",
                    self.spec()
                );
                return self.checked(Err(Error::shape("pad_by", message).on([self.spec()])));
            }
            if before >= 0 && after >= 0 && n > 0 {
                x = x.bordered(axis as isize, [before as usize, after as usize], border);
                continue;
            }
            let (low, high) = ((-before).max(0), n - (-after).max(0));
            let from = |i: i64| match border {
                PadMode::Reflect => {
                    if i < 0 {
                        -i
                    } else if i >= n {
                        2 * (n - 1) - i
                    } else {
                        i
                    }
                }
                PadMode::Replicate => i.clamp(0, n - 1),
                // Around what is left of the axis.
                PadMode::Circular => low + (i - low).rem_euclid((high - low).max(1)),
            };
            check_list("pad_by", left as usize, size_of::<i64>(), &[self.spec()]);
            let index: Vec<i64> = (-before..n + after).map(from).collect();
            x = x.index_select(axis as isize, &self.new_tensor(index));
        }
        x.unaliased_with(&[self])
    }

    /// This tensor between parts of itself, which fit the border.
    #[track_caller]
    fn bordered(&self, axis: isize, [before, after]: [usize; 2], border: PadMode) -> Tensor {
        let n = self.shape()[axis as usize];
        let part = |first: usize, count: usize| self.narrow(axis, first as isize, count);
        let one = |place: usize, count: usize| {
            let mut shape = self.shape().to_vec();
            shape[axis as usize] = count;
            part(place, 1).expand(shape)
        };
        let (low, high) = match border {
            PadMode::Reflect => {
                let mirrored = |first: usize, count| part(first, count).flip(axis);
                (mirrored(1, before), mirrored(n - 1 - after, after))
            }
            PadMode::Replicate => (one(0, before), one(n - 1, after)),
            PadMode::Circular => (part(n - before, before), part(0, after)),
        };
        let all = [(before, &low), (n, self), (after, &high)].into_iter();
        let parts: Vec<&Tensor> = all.filter(|(n, _)| *n > 0).map(|(_, x)| x).collect();
        cat(&parts, axis)
    }

    /// Repeats each slice of an axis `times` times in a row.
    ///
    /// Derivative: each element gets the sum of `dy` over its copies.
    /// PyTorch's name: `repeat_interleave`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 2.0]).repeat_each(2, 0).to_vec::<f64>(), [1.0, 1.0, 2.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[doc(alias = "repeat_interleave")]
    #[track_caller]
    #[must_use]
    pub fn repeat_each(&self, times: usize, axis: isize) -> Tensor {
        let x = if self.rank() == 0 { self.reshape([1]) } else { self.clone() };
        let at = x.axis("repeat_each", axis);
        let mut wide = x.shape().to_vec();
        wide.insert(at + 1, times);
        let mut merged = x.shape().to_vec();
        merged[at] = merged[at].saturating_mul(times);
        let merged = known_shape("repeat_each", merged);
        x.unsqueeze(at as isize + 1).expand(&wide[..]).reshape(&merged[..]).unaliased_with(&[self])
    }

    /// Differences of neighbours along an axis, `order` times over.
    ///
    /// Derivative: of its formula: for order 1, `dyₖ₋₁ − dyₖ`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1, 4, 9]).diff(1, 0).to_vec::<i32>(), [3, 5]);
    /// ```
    ///
    /// # Panics
    /// If the tensor is 0-d, or the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn diff(&self, order: usize, axis: isize) -> Tensor {
        let at = self.axis("diff", axis);
        let Some(&n) = self.shape().get(at) else {
            return self.checked(Err(Error::shape(
                "diff",
                "takes a tensor with at least one axis",
            )
            .on([self.spec()])));
        };
        let order = order.min(n);
        let found = (0..order).fold(self.clone(), |x, k| {
            let m = n - k;
            if m == 0 {
                return x;
            }
            let (low, high) = (x.narrow(axis, 0, m - 1), x.narrow(axis, 1, m - 1));
            if x.dtype() == DType::Bool { high.logical_xor(&low) } else { high - low }
        });
        found.unaliased_with(&[self])
    }

    /// Patches of an image `[n, c, h, w]` (or `[c, h, w]`) as columns `[n, c·kh·kw, patches]`;
    /// zeros around it.
    ///
    /// Derivative: each pixel gets the sum of `dy` over the patches it is in (`col2im`).
    /// PyTorch's name: `nn.functional.unfold`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::arange(0, 9).reshape([1, 1, 3, 3]);
    /// let patches = x.im2col([2, 2], [1, 1], [0, 0], [1, 1]);
    /// assert_eq!(patches.shape(), [1, 4, 4]);
    /// // The first patch is the first column.
    /// assert_eq!(patches.at((0, .., 0)).to_vec::<i64>(), [0, 1, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the shape is not `[n, c, h, w]` or `[c, h, w]`, or a patch does not fit.
    #[doc(alias = "unfold")]
    #[track_caller]
    #[must_use]
    pub fn im2col(
        &self,
        kernel: [usize; 2],
        dilation: [usize; 2],
        padding: [usize; 2],
        stride: [usize; 2],
    ) -> Tensor {
        if !(3..=4).contains(&self.rank()) {
            let error = Error::shape("im2col", format!("takes [n, c, h, w], not {}", self.spec()));
            return self.checked(Err(error.on([self.spec()])));
        }
        if [kernel, dilation, stride].concat().contains(&0) {
            let error = Error::argument("im2col", "kernel, dilation and stride must be at least 1");
            return self.checked(Err(error.on([self.spec()])));
        }
        if self.rank() == 3 {
            return self.unsqueeze(0).im2col(kernel, dilation, padding, stride).squeeze_axis(0);
        }
        let mut x = self.pad([(0, 0), (0, 0), (padding[0], padding[0]), (padding[1], padding[1])]);
        let padded = x.clone();
        for i in 0..2 {
            // [.., windows, .., taps]: every dilation-th tap of a window.
            x = x.unfold(
                i as isize + 2,
                (kernel[i] - 1).saturating_mul(dilation[i]).saturating_add(1),
                stride[i],
            );
            let taps = crate::Index::Range {
                start: None,
                stop: None,
                step: saturated(dilation[i] as i128),
            };
            x = x.at(&[crate::Index::Ellipsis, taps][..]);
        }
        let (n, c, h, w) = (x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3]);
        let columns = [n, c * kernel[0] * kernel[1], h * w];
        if !padded.is_tracked() || kernel[0] * kernel[1] > MAX_TAPS {
            return x.permute([0, 1, 4, 5, 2, 3]).reshape(columns);
        }
        // The same elements, a slice for each tap: their gradients are added up one slice at a
        // time, not one element.
        let positions = |i: usize, tap: usize, count: usize| {
            let first = tap * dilation[i];
            let last = first + count.saturating_sub(1) * stride[i];
            crate::Index::Range {
                start: Some(first as isize),
                stop: Some(last as isize + 1),
                step: saturated(stride[i] as i128),
            }
        };
        let taps = (0..kernel[0]).flat_map(|i| (0..kernel[1]).map(move |j| (i, j)));
        let slice = |(i, j): (usize, usize)| {
            let (rows, columns) = (positions(0, i, h), positions(1, j, w));
            padded.at(&[crate::Index::Ellipsis, rows, columns][..])
        };
        let slices: Vec<Tensor> = taps.map(slice).collect();
        stack(&slices.iter().collect::<Vec<_>>(), 2).reshape(columns)
    }

    /// Columns `[n, c·kh·kw, patches]` (or `[c·kh·kw, patches]`) as an image `[n, c, h, w]`: each
    /// element is added to where [`Tensor::im2col`] would take it from, of which this is the
    /// transpose.
    ///
    /// Derivative: `dx = dy.im2col(…)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::ones([1, 1, 3, 3]);
    /// let patches = x.im2col([2, 2], [1, 1], [0, 0], [1, 1]);
    /// let counts = patches.col2im([3, 3], [2, 2], [1, 1], [0, 0], [1, 1]);
    /// assert_eq!(counts.to_vec::<f32>(), [1.0, 2.0, 1.0, 2.0, 4.0, 2.0, 1.0, 2.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the shape is not `[n, c·kh·kw, patches]` (or that without the batch) for this image and
    /// kernel.
    #[doc(alias = "fold")]
    #[track_caller]
    #[must_use]
    pub fn col2im(
        &self,
        image: [usize; 2],
        kernel: [usize; 2],
        dilation: [usize; 2],
        padding: [usize; 2],
        stride: [usize; 2],
    ) -> Tensor {
        if !(2..=3).contains(&self.rank()) {
            let error = Error::shape("col2im", format!("takes [n, c, l], not {}", self.spec()));
            return self.checked(Err(error.on([self.spec()])));
        }
        if self.rank() == 2 {
            return self
                .unsqueeze(0)
                .col2im(image, kernel, dilation, padding, stride)
                .squeeze_axis(0);
        }
        let signed = |n: usize| isize::try_from(n).unwrap_or(isize::MAX);
        let window = |i: usize| Window {
            size: kernel[i],
            stride: stride[i],
            dilation: dilation[i],
            before: signed(padding[i]),
            after: signed(padding[i]),
        };
        let counts = [0, 1].map(|i| window(i).count(image[i]));
        let taps = kernel[0].saturating_mul(kernel[1]);
        let [n, rows, patches] = [0, 1, 2].map(|i| self.shape()[i]);
        let fits = match counts {
            [Some(h), Some(w)] => h.checked_mul(w) == Some(patches) && rows.is_multiple_of(taps),
            _ => false,
        };
        let ([Some(h), Some(w)], true) = (counts, fits) else {
            let message = format!(
                "the patches of {kernel:?} (stride {stride:?}, dilation {dilation:?}, padding {padding:?}) \
                 of an image of {image:?} are not those of {}",
                self.spec()
            );
            return self.checked(Err(Error::shape("col2im", message).on([self.spec()])));
        };
        let (c, [kh, kw]) = (rows / taps, kernel);
        if taps <= MAX_TAPS && self.dtype().is_float() && !self.is_empty() {
            // Each tap is an image with gaps and borders.
            let columns = self.reshape([n, rows / taps, taps, h, w]);
            let padded = [0, 1].map(|i| image[i] + 2 * padding[i]);
            let around = |i: usize, tap: usize, count: usize| {
                let before = tap * dilation[i];
                let after = padded[i] - (before + (count - 1) * stride[i] + 1);
                pullback_ir::Padding { before, after, between: stride[i] - 1 }
            };
            let one = |tap: usize| {
                let (rows, columns_of) = (tap / kernel[1], tap % kernel[1]);
                let sides = [around(0, rows, h), around(1, columns_of, w)];
                let none = pullback_ir::Padding::default();
                let padding = [none, none].into_iter().chain(sides).collect();
                apply(pullback_ir::Op::Pad(padding), &[&columns.select_at(2, tap as isize)])
            };
            let whole = (1..taps).fold(one(0), |sum, tap| sum + one(tap));
            return whole.narrow(2, signed(padding[0]), image[0]).narrow(
                3,
                signed(padding[1]),
                image[1],
            );
        }
        // One axis at a time: patches and taps, flattened, are added to their positions on the
        // padded axis.
        let positions = |i: usize, count: usize| {
            let starts = self.new_iota(count) * (signed(stride[i]) as i64);
            let taps = self.new_iota(kernel[i]).unsqueeze(1) * (signed(dilation[i]) as i64);
            (taps + starts).reshape([-1])
        };
        let padded = [0, 1].map(|i| image[i] + 2 * padding[i]);
        let columns = self.reshape([n, c, kh, kw, h, w]);
        let rows = columns.permute([0, 1, 2, 4, 3, 5]).reshape([n, c, kh * h, kw * w]);
        let zeros = |shape: [usize; 4]| self.new_splat(0.into(), &shape, self.dtype());
        let wide = zeros([n, c, kh * h, padded[1]]).index_add(3, &positions(1, w), &rows);
        let whole = zeros([n, c, padded[0], padded[1]]).index_add(2, &positions(0, h), &wide);
        whole.narrow(2, signed(padding[0]), image[0]).narrow(3, signed(padding[1]), image[1])
    }

    /// Rearranges channels `[.., c·r², h, w]` to pixels `[.., c, h·r, w·r]`.
    ///
    /// Derivative: dx = dy, put back in order.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([1, 8, 3, 3]).pixel_shuffle(2).shape(), [1, 2, 6, 6]);
    /// ```
    ///
    /// # Panics
    /// If there are fewer than three axes, or the channels are no multiple of r².
    #[track_caller]
    #[must_use]
    pub fn pixel_shuffle(&self, r: usize) -> Tensor {
        let (lead, [c, h, w]) = self.image("pixel_shuffle");
        let shape = |tail: &[usize]| [lead.as_slice(), tail].concat();
        let k = lead.len() as isize;
        let split = self.reshape(shape(&[c / r.saturating_mul(r).max(1), r, r, h, w]));
        let order: Vec<isize> = (0..k).chain([0, 3, 1, 4, 2].map(|i| i + k)).collect();
        let (c, h, w) = (c / r.saturating_mul(r).max(1), h.saturating_mul(r), w.saturating_mul(r));
        split.permute(order).reshape(shape(&[c, h, w])).unaliased_with(&[self])
    }

    /// Rearranges pixels `[.., c, h·r, w·r]` to channels `[.., c·r², h, w]`.
    ///
    /// Derivative: dx = dy, put back in order.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::arange(0, 4).reshape([1, 2, 2]);
    /// let y = x.pixel_unshuffle(2);
    /// assert_eq!((y.shape(), y.to_vec::<i64>()), (&[4, 1, 1][..], vec![0, 1, 2, 3]));
    /// ```
    ///
    /// # Panics
    /// If there are fewer than three axes, or height and width are no multiples of `r`.
    #[track_caller]
    #[must_use]
    pub fn pixel_unshuffle(&self, r: usize) -> Tensor {
        let (lead, [c, h, w]) = self.image("pixel_unshuffle");
        let shape = |tail: &[usize]| [lead.as_slice(), tail].concat();
        let k = lead.len() as isize;
        let (h, w) = (h / r.max(1), w / r.max(1));
        let split = self.reshape(shape(&[c, h, r, w, r]));
        let order: Vec<isize> = (0..k).chain([0, 2, 4, 1, 3].map(|i| i + k)).collect();
        let channels = c.saturating_mul(r).saturating_mul(r);
        split.permute(order).reshape(shape(&[channels, h, w])).unaliased_with(&[self])
    }

    /// Leading lengths, and the last three.
    #[track_caller]
    fn image(&self, op: &'static str) -> (Vec<usize>, [usize; 3]) {
        match self.shape() {
            [lead @ .., c, h, w] => (lead.to_vec(), [*c, *h, *w]),
            _ => self.checked(Err(Error::shape(
                op,
                format!("takes [.., c, h, w], not {}", self.spec()),
            )
            .on([self.spec()]))),
        }
    }
}
