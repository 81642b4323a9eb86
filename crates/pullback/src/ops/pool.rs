//! Pooling: sums over windows and indices of maxima are the ops; the rest is built from these.

mod drawn;
mod options;

pub use options::{OutputSizes, Pool};

use crate::apply::apply;
use crate::ops::one_pass::{is_value_alone, one_pass};
use crate::ops::sizes::Sizes;
use crate::rule::{Adds, Grad, LinearRule, OperandSet, RuleContext};
use crate::{DType, Error, Op, Result, Shape, Tensor, kinks, mode};
use pullback_ir::{Frame, Line, Pool as PoolOp, Pooling, Window};

/// The transpose of a window sum spreads over the window, that of taking elements gives them back,
/// and vice versa; an index has no derivative.
pub(crate) fn row(kind: &Pooling) -> Grad {
    fn of<'a>(f: &RuleContext<'a>) -> &'a PoolOp {
        let Op::Pool(pool) = f.op else { unreachable!("called for Pool") };
        pool
    }
    fn other(f: &RuleContext, kind: Pooling, operands: &[&Tensor]) -> Tensor {
        apply(Op::Pool(Box::new(PoolOp { kind, frames: of(f).frames.clone() })), operands)
    }
    /// The spatial lengths of the operand.
    fn lengths(f: &RuleContext) -> Shape {
        let lead = f.in_shape(0).len() - of(f).frames.len();
        Shape::from_slice(&f.in_shape(0)[lead..])
    }
    type Transpose = fn(&RuleContext, usize, &Tensor) -> Tensor;
    let by_places = |formula, transpose: Transpose| {
        let (wrt, uses) = (OperandSet::Of(&[0]), OperandSet::Of(&[1]));
        Grad::Linear(LinearRule { wrt, uses, transpose, adds: Adds::Separately, formula })
    };
    match kind {
        Pooling::Sum => super::linear("`dx = pool_spread(dy)`", |f, _, d| {
            other(f, Pooling::Spread(lengths(f)), &[d])
        }),
        Pooling::Spread(_) => {
            super::linear("`dx = pool_sum(dy)`", |f, _, d| other(f, Pooling::Sum, &[d]))
        }
        Pooling::Take => by_places("`dx = pool_give(dy, b)`", |f, _, d| {
            other(f, Pooling::Give(lengths(f)), &[d, f.x(1)])
        }),
        Pooling::Give(_) => {
            by_places("`dx = pool_take(dy, b)`", |f, _, d| other(f, Pooling::Take, &[d, f.x(1)]))
        }
        Pooling::ArgMax => Grad::Zero,
    }
}

/// The most output positions of an axis in adaptive pooling: the length of each window is listed.
const MAX_POSITIONS: usize = 1 << 28;

/// Reciprocal weights would round twice, so sums are divided by these: the product of one divisor
/// for each axis.
#[track_caller]
fn grid(divisors: &[Vec<f64>], sums: &Tensor) -> Tensor {
    let axes = divisors.len();
    let each = divisors.iter().enumerate().map(|(i, list)| {
        let mut shape = vec![1; axes];
        shape[i] = list.len();
        sums.new_from_vec(&list[..], &shape[..]).cast(sums.dtype())
    });
    let product = || each.reduce(|a, b| a * b).unwrap_or_else(|| sums.new_tensor(1.0));
    mode::with_line(mode::user_line(Line::caller()), product)
}

impl Tensor {
    /// The spatial lengths, which are the last axes; a batch axis may be missing before the
    /// channels.
    #[track_caller]
    fn spatial(&self, op: &'static str, axes: usize) -> Vec<usize> {
        if self.rank() == axes + 1 || self.rank() == axes + 2 {
            return self.shape()[self.rank() - axes..].to_vec();
        }
        self.batched(op, axes);
        Vec::new()
    }

    #[track_caller]
    fn pooled(&self, kind: Pooling, frames: Vec<Frame>) -> Tensor {
        apply(Op::Pool(Box::new(PoolOp { kind, frames })), &[self])
    }

    /// The largest elements of pieces, and where they are.
    #[track_caller]
    fn largest(&self, frames: Vec<Frame>) -> (Tensor, Tensor) {
        let places = self.pooled(Pooling::ArgMax, frames.clone());
        let take = PoolOp { kind: Pooling::Take, frames };
        (apply(Op::Pool(Box::new(take)), &[self, &places]), places)
    }

    #[track_caller]
    fn max_pool(&self, op: &'static str, axes: usize, pool: &Pool) -> (Tensor, Tensor) {
        let lengths = self.spatial(op, axes);
        let windows = self.checked(pool.windows(op, &lengths).map_err(|e| e.on([self.spec()])));
        self.largest(windows.into_iter().map(Frame::Sliding).collect())
    }

    /// The largest elements of windows along the last axis that are all of it, side by side, where
    /// only values count: a reduction, which does not look for places.
    #[track_caller]
    fn largest_of_rows(&self, pool: &Pool) -> Option<Tensor> {
        let &n = self.shape().last().filter(|_| (2..=3).contains(&self.rank()))?;
        let [window] = pool.windows("max_pool1d", &[n]).ok()?[..] else { return None };
        let Window { size, stride, dilation, before, after } = window;
        let whole = size == stride && dilation == 1 && before == 0 && after == 0;
        if !whole || n == 0 || n % size != 0 || !self.dtype().is_float() || !is_value_alone(self) {
            return None;
        }
        let rows = [&self.shape()[..self.rank() - 1], &[n / size, size]].concat();
        Some(self.reshape(rows).max_over(-1))
    }

    #[track_caller]
    fn avg_pool(&self, op: &'static str, axes: usize, pool: &Pool) -> Tensor {
        let lengths = self.spatial(op, axes);
        let windows = self.checked(pool.windows(op, &lengths).map_err(|e| e.on([self.spec()])));
        if pool.divisor == Some(0) {
            let error = Error::argument(op, "the divisor must not be 0").on([self.spec()]);
            return self.checked(Err(error));
        }
        if windows.iter().any(|w| w.dilation != 1) {
            let error = Error::argument(op, "takes no dilation").on([self.spec()]);
            return self.checked(Err(error));
        }
        let sums = self
            .real()
            .wide()
            .pooled(Pooling::Sum, windows.iter().copied().map(Frame::Sliding).collect());
        // An empty result may have very long axes, so no list is made for them.
        let mean = match pool.divisor {
            _ if sums.is_empty() => sums,
            Some(divisor) => sums / divisor as f64,
            None => {
                let divisors = pool.divisors(&windows, &lengths);
                let first: f64 = divisors.iter().filter_map(|d| d.first()).product();
                match divisors.iter().all(|list| list.windows(2).all(|d| d[0] == d[1])) {
                    true => sums / first,
                    false => {
                        let divisors = grid(&divisors, &sums);
                        sums / divisors
                    }
                }
            }
        };
        mean.cast(self.real_dtype())
    }

    #[track_caller]
    fn lp_pool(&self, op: &'static str, axes: usize, norm: f64, pool: &Pool) -> Tensor {
        if pool.padding != Sizes::from(0) {
            let error = Error::argument(op, "takes no padding").on([self.spec()]);
            return self.checked(Err(error));
        }
        let size: f64 = match pool.kernel.each(op, "kernel", axes) {
            Ok(sizes) => sizes.iter().map(|&n| n as f64).product(),
            Err(error) => return self.checked(Err(error.on([self.spec()]))),
        };
        let mean = self.powf(norm).avg_pool(op, axes, pool);
        one_pass("lp_pool", &[norm, size], [&mean], |[mean]| {
            // A root of a negative sum is taken as zero.
            let upward = kinks::uncounted_part(|| mean.sign() * mean.abs().relu());
            match norm == 2.0 {
                true => (upward * size).sqrt(),
                false => (upward * size).powf(1.0 / norm),
            }
        })
    }

    #[track_caller]
    fn adaptive_avg_pool(&self, op: &'static str, axes: usize, sizes: OutputSizes) -> Tensor {
        let lengths = self.spatial(op, axes);
        let frames = self.checked(sizes.frames(op, &lengths).map_err(|e| e.on([self.spec()])));
        let one = |(frame, &len): (&Frame, &usize)| {
            let count = frame.count(len).unwrap_or(0);
            (0..count).map(|o| frame.piece(o, len).1 as f64).collect()
        };
        let pieces = frames.iter().zip(&lengths).filter_map(|(f, &n)| f.count(n)).max();
        let empty = self.shape()[..self.rank() - axes].contains(&0);
        if let Some(pieces) = pieces.filter(|&n| n > MAX_POSITIONS && !empty) {
            let message =
                format!("an axis has {pieces} output positions, more than {MAX_POSITIONS}");
            return self.checked(Err(Error::argument(op, message).on([self.spec()])));
        }
        if let Some(pieces) = pieces.filter(|_| !empty) {
            crate::checked_alloc::check_list(op, pieces, size_of::<f64>(), &[self.spec()]);
        }
        let sums = self.real().wide().pooled(Pooling::Sum, frames.clone());
        if sums.is_empty() {
            // Its axes may be very long, so no list is made for them.
            return sums.cast(self.real_dtype());
        }
        let divisors: Vec<Vec<f64>> = frames.iter().zip(&lengths).map(one).collect();
        let divisors = grid(&divisors, &sums);
        (sums / divisors).cast(self.real_dtype())
    }

    #[track_caller]
    fn adaptive_max_pool(
        &self,
        op: &'static str,
        axes: usize,
        sizes: OutputSizes,
    ) -> (Tensor, Tensor) {
        let lengths = self.spatial(op, axes);
        let frames = self.checked(sizes.frames(op, &lengths).map_err(|e| e.on([self.spec()])));
        self.largest(frames)
    }

    #[track_caller]
    fn max_unpool(
        &self,
        op: &'static str,
        axes: usize,
        places: &Tensor,
        pool: &Pool,
        lengths: Option<&[usize]>,
    ) -> Tensor {
        let given = self.spatial(op, axes);
        let parts = || -> Result<Vec<usize>> {
            let kernel = pool.kernel.positive(op, "kernel", axes)?;
            let stride = match &pool.stride {
                Some(stride) => stride.positive(op, "stride", axes)?,
                None => kernel.clone(),
            };
            let padding = pool.padding.each(op, "padding", axes)?;
            if let Some(list) = lengths {
                // The whole shape may be given, of which the last axes count.
                return match list.len() >= axes {
                    true => Ok(list[list.len() - axes..].to_vec()),
                    false => Err(Error::argument(
                        op,
                        format!("takes a length for each of {axes} axes, not {list:?}"),
                    )),
                };
            }
            let one = |i: usize| {
                let reach = (given[i] as i128 - 1) * stride[i] as i128 + kernel[i] as i128;
                usize::try_from(reach - 2 * padding[i] as i128).map_err(|_| {
                    Error::shape(op, format!("an axis of {} would become empty", given[i]))
                })
            };
            (0..axes).map(one).collect()
        };
        if places.shape() != self.shape() {
            let message =
                format!("the indices {} must have the shape of {}", places.spec(), self.spec());
            let error = Error::shape(op, message).on([self.spec(), places.spec()]);
            return self.checked(Err(error));
        }
        let lengths = self.checked(parts().map_err(|e| e.on([self.spec()])));
        let lead = &self.shape()[..self.rank() - axes];
        let size = lengths.iter().fold(1usize, |n, &m| n.saturating_mul(m));
        let count = given.iter().product();
        let flat = crate::create::known_shape(op, [lead, &[size]].concat());
        let empty = self.new_splat(0.into(), &flat, self.dtype());
        let few = [lead, &[count]].concat();
        empty
            .scatter(-1, &places.reshape(&few[..]), &self.reshape(&few[..]))
            .reshape([lead, &lengths].concat())
    }
}

impl Tensor {
    /// The largest element of windows whose distances are drawn at random.
    #[track_caller]
    fn fractional(
        &self,
        op: &'static str,
        axes: usize,
        (kernel, lengths): (Sizes, Sizes),
        samples: &Tensor,
    ) -> (Tensor, Tensor) {
        let (x, alone) = self.batched(op, axes);
        let sizes = || -> Result<(Vec<usize>, Vec<usize>)> {
            let kernel = kernel.positive(op, "kernel", axes)?;
            let lengths = lengths.positive(op, "output length", axes)?;
            for i in 0..axes {
                let n = x.shape()[i + 2];
                if kernel[i] > n || lengths[i] > n - kernel[i] + 1 {
                    let message = format!("{} windows of {} in {n}", lengths[i], kernel[i]);
                    return Err(Error::shape(op, message));
                }
            }
            if samples.shape() != [x.shape()[0], x.shape()[1], axes] {
                let message = format!(
                    "takes samples [n, c, {axes}], not {}, for {}",
                    samples.spec(),
                    self.spec()
                );
                return Err(Error::shape(op, message));
            }
            Ok((kernel, lengths))
        };
        let (kernel, lengths) = self.checked(sizes().map_err(|e| e.on([self.spec()])));
        let (n, c) = (x.shape()[0], x.shape()[1]);
        let shape = [&[n, c], &lengths[..]].concat();
        let pixels: usize = x.shape()[2..].iter().product();
        let flat = x.reshape([n, c, pixels]);
        let finish = |best: Tensor| {
            let (values, places) =
                (flat.gather(2, &best).reshape(&shape[..]), best.reshape(&shape[..]));
            match alone {
                true => (values.squeeze_axis(0), places.squeeze_axis(0)),
                false => (values, places),
            }
        };
        let windows =
            drawn::Windows { spatial: &x.shape()[2..], kernel: &kernel, lengths: &lengths };
        if let Some(best) = windows.largest(&flat, samples) {
            return finish(best);
        }
        // One index for each result and each element of its window: [n, c, results…, elements…].
        let mut places = x.new_iota(1);
        for i in 0..axes {
            let space = (x.shape()[i + 2] - kernel[i]) as f64;
            let last = lengths[i] - 1;
            let mut starts = x.new_full_of([n, c, 1], space as i64);
            if last > 0 {
                let alpha = space / last as f64;
                // As in PyTorch, whose samples for two axes are in the order width, height.
                let sample = if axes == 2 { 1 - i } else { i };
                let u = samples.detach().cast(DType::F64).narrow(2, sample as isize, 1);
                let steps = (x.new_iota(last).cast(DType::F64) + &u) * alpha;
                let drawn = (steps.floor() - (u * alpha).floor()).cast(DType::I64);
                starts = crate::cat(&[&drawn, &starts], 2);
            }
            let mut at = vec![1; 2 + 2 * axes];
            (at[0], at[1], at[2 + i]) = (n, c, lengths[i]);
            let mut tap = vec![1; 2 + 2 * axes];
            tap[2 + axes + i] = kernel[i];
            let positions = starts.reshape(&at[..]) + x.new_iota(kernel[i]).reshape(&tap[..]);
            places = places * (x.shape()[i + 2] as i64) + positions;
        }
        let count: usize = lengths.iter().product();
        let window: usize = kernel.iter().product();
        let places = places.reshape([n, c, count, window]);
        let seen = flat.detach().gather(2, &places.reshape([n, c, count * window]));
        let seen = seen.reshape([n, c, count, window]);
        kinks::at(op, kinks::KinkKind::Pool, &[&flat], |_| {
            seen.eq(seen.max_keep(-1)).cast(DType::I64).sum_over(-1).gt(1)
        });
        let best = seen.argmax(-1).unsqueeze(-1);
        finish(places.gather(-1, &best).reshape([n, c, count]))
    }

    /// The largest elements of windows of `[n, c, h, w]` (or that without the batch) that begin at
    /// random distances, and where they are. `samples`, `[n, c, 2]` in [0, 1) for width and height,
    /// decide: window `o` of `m` begins at ⌊(o + u)·α⌋ − ⌊u·α⌋ with α = (length − kernel) / (m −
    /// 1), and the last one ends with the axis.
    ///
    /// Derivative: `dy` goes to the element that was taken.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::arange(0, 16).reshape([1, 1, 4, 4]);
    /// let (y, places) = x.fractional_max_pool2d(2, 2, &Tensor::zeros([1, 1, 2]));
    /// assert_eq!(y.to_vec::<i64>(), [5, 7, 13, 15]);
    /// assert_eq!(places.to_vec::<i64>(), [5, 7, 13, 15]);
    /// ```
    ///
    /// # Panics
    /// If the shape is not `[n, c, h, w]` or `[c, h, w]`, the windows do not fit, or the samples
    /// are not `[n, c, 2]`.
    #[track_caller]
    #[must_use]
    pub fn fractional_max_pool2d(
        &self,
        kernel: impl Into<Sizes>,
        lengths: impl Into<Sizes>,
        samples: &Tensor,
    ) -> (Tensor, Tensor) {
        self.fractional("fractional_max_pool2d", 2, (kernel.into(), lengths.into()), samples)
    }

    /// As [`Tensor::fractional_max_pool2d`], on `[n, c, d, h, w]` with samples `[n, c, 3]`.
    ///
    /// Derivative: `dy` goes to the element that was taken.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::arange(0, 64).reshape([1, 1, 4, 4, 4]);
    /// let (y, _) = x.fractional_max_pool3d(2, 2, &Tensor::zeros([1, 1, 3]));
    /// assert_eq!(y.to_vec::<i64>(), [21, 23, 29, 31, 53, 55, 61, 63]);
    /// ```
    ///
    /// # Panics
    /// If the shape is not `[n, c, d, h, w]` or `[c, d, h, w]`, the windows do not fit, or the
    /// samples are not `[n, c, 3]`.
    #[track_caller]
    #[must_use]
    pub fn fractional_max_pool3d(
        &self,
        kernel: impl Into<Sizes>,
        lengths: impl Into<Sizes>,
        samples: &Tensor,
    ) -> (Tensor, Tensor) {
        self.fractional("fractional_max_pool3d", 3, (kernel.into(), lengths.into()), samples)
    }
}

/// The methods of a number of axes; in their examples, `$four` is the shape of four
/// elements in a row and `$pair` the window of two of them.
macro_rules! poolings {
    ($axes:literal, $image:literal, $max:ident $max_at:ident $avg:ident $lp:ident $adaptive_avg:ident $adaptive_max:ident $adaptive_max_at:ident $unpool:ident, $four:literal, $pair:literal) => {
        impl Tensor {
            #[doc = concat!("The largest element of each window of `", $image, "` (or that without the batch); NaN if any is.")]
            ///
            /// Derivative: `dy` goes to the element that was taken: the first of equals, the last
            /// NaN.
            ///
            /// ```
            /// use pullback::{Pool, Tensor};
            #[doc = concat!("let x = Tensor::from([1.0, 5.0, 2.0, 4.0]).reshape(", $four, ");")]
            #[doc = concat!("let pool = Pool::new(", $pair, ");")]
            #[doc = concat!("let y = x.", stringify!($max), "(&pool);")]
            /// assert_eq!(y.to_vec::<f64>(), [5.0, 4.0]);
            /// ```
            ///
            /// # Panics
            /// If the tensor has the wrong number of axes, or the windows do not fit it.
            #[track_caller]
            #[must_use]
            pub fn $max(&self, pool: &Pool) -> Tensor {
                if $axes == 1 && let Some(y) = self.largest_of_rows(pool) {
                    return y;
                }
                self.max_pool(stringify!($max), $axes, pool).0
            }

            #[doc = concat!("As [`Tensor::", stringify!($max), "`], and where the elements are, counted over the spatial axes in row-major order (`i64`).")]
            ///
            /// Derivative: `dy` goes to the element that was taken.
            ///
            /// ```
            /// use pullback::{Pool, Tensor};
            #[doc = concat!("let x = Tensor::from([1.0, 5.0, 2.0, 4.0]).reshape(", $four, ");")]
            #[doc = concat!("let pool = Pool::new(", $pair, ");")]
            #[doc = concat!("let (y, places) = x.", stringify!($max_at), "(&pool);")]
            /// assert_eq!(y.to_vec::<f64>(), [5.0, 4.0]);
            /// assert_eq!(places.to_vec::<i64>(), [1, 3]);
            /// ```
            ///
            /// # Panics
            /// If the tensor has the wrong number of axes, or the windows do not fit it.
            #[track_caller]
            #[must_use]
            pub fn $max_at(&self, pool: &Pool) -> (Tensor, Tensor) {
                self.max_pool(stringify!($max), $axes, pool)
            }

            #[doc = concat!("The mean of each window of `", $image, "` (or that without the batch): its sum over the number of its elements.")]
            ///
            /// Derivative: `dx[i] = Σ dy[o] / divisor[o]` over the windows `o` that hold `i`.
            ///
            /// ```
            /// use pullback::{Pool, Tensor};
            #[doc = concat!("let x = Tensor::from([1.0, 5.0, 2.0, 4.0]).reshape(", $four, ");")]
            #[doc = concat!("let pool = Pool::new(", $pair, ");")]
            #[doc = concat!("let y = x.", stringify!($avg), "(&pool);")]
            /// assert_eq!(y.to_vec::<f64>(), [3.0, 3.0]);
            /// ```
            ///
            /// # Panics
            /// If the tensor has the wrong number of axes, the windows do not fit it or have a
            /// dilation, or the divisor is 0.
            #[track_caller]
            #[must_use]
            pub fn $avg(&self, pool: &Pool) -> Tensor {
                self.avg_pool(stringify!($avg), $axes, pool)
            }

            #[doc = concat!("The p-norm of each window of `", $image, "` (or that without the batch): (Σ xᵖ)^(1/p), without absolute values; zero where the sum is negative.")]
            ///
            /// Derivative: of its formula; where a window is all zeros it is NaN for `p` above 1.
            ///
            /// ```
            /// use pullback::{Pool, Tensor};
            #[doc = concat!("let x = Tensor::from([1.0, 5.0, 2.0, 4.0]).reshape(", $four, ");")]
            #[doc = concat!("let pool = Pool::new(", $pair, ");")]
            #[doc = concat!("let y = x.", stringify!($lp), "(1.0, &pool);")]
            /// assert_eq!(y.to_vec::<f64>(), [6.0, 6.0]);
            /// ```
            ///
            /// # Panics
            /// If the tensor has the wrong number of axes, or the windows do not fit it or have a
            /// padding or a dilation.
            #[track_caller]
            #[must_use]
            pub fn $lp(&self, p: f64, pool: &Pool) -> Tensor {
                self.lp_pool(stringify!($lp), $axes, p, pool)
            }

            #[doc = concat!("The means of as many pieces of `", $image, "` (or that without the batch) as the result is to have: piece `o` of `m` along an axis of `n` goes from ⌊o·n/m⌋ up to ⌈(o+1)·n/m⌉.")]
            ///
            /// Derivative: `dx[i] = Σ dy[o] / size[o]` over the pieces `o` that hold `i`.
            ///
            /// ```
            /// use pullback::Tensor;
            #[doc = concat!("let x = Tensor::from([1.0, 5.0, 2.0, 4.0]).reshape(", $four, ");")]
            #[doc = concat!("let y = x.", stringify!($adaptive_avg), "(", $pair, ");")]
            /// assert_eq!(y.to_vec::<f64>(), [3.0, 3.0]);
            /// ```
            ///
            /// # Panics
            /// If the tensor has the wrong number of axes, or there is neither one length nor one
            /// for each axis.
            #[track_caller]
            #[must_use]
            pub fn $adaptive_avg(&self, sizes: impl Into<OutputSizes>) -> Tensor {
                self.adaptive_avg_pool(stringify!($adaptive_avg), $axes, sizes.into())
            }

            #[doc = concat!("The largest element of each of the pieces of [`Tensor::", stringify!($adaptive_avg), "`].")]
            ///
            /// Derivative: `dy` goes to the element that was taken: the first of equals, the last
            /// NaN.
            ///
            /// ```
            /// use pullback::Tensor;
            #[doc = concat!("let x = Tensor::from([1.0, 5.0, 2.0, 4.0]).reshape(", $four, ");")]
            #[doc = concat!("let y = x.", stringify!($adaptive_max), "(", $pair, ");")]
            /// assert_eq!(y.to_vec::<f64>(), [5.0, 4.0]);
            /// ```
            ///
            /// # Panics
            /// If the tensor has the wrong number of axes, or there is neither one length nor one
            /// for each axis.
            #[track_caller]
            #[must_use]
            pub fn $adaptive_max(&self, sizes: impl Into<OutputSizes>) -> Tensor {
                self.adaptive_max_pool(stringify!($adaptive_max), $axes, sizes.into()).0
            }

            #[doc = concat!("As [`Tensor::", stringify!($adaptive_max), "`], and where the elements are, counted over the spatial axes in row-major order (`i64`).")]
            ///
            /// Derivative: `dy` goes to the element that was taken.
            ///
            /// ```
            /// use pullback::Tensor;
            #[doc = concat!("let x = Tensor::from([1.0, 5.0, 2.0, 4.0]).reshape(", $four, ");")]
            #[doc = concat!("let (y, places) = x.", stringify!($adaptive_max_at), "(", $pair, ");")]
            /// assert_eq!(y.to_vec::<f64>(), [5.0, 4.0]);
            /// assert_eq!(places.to_vec::<i64>(), [1, 3]);
            /// ```
            ///
            /// # Panics
            /// If the tensor has the wrong number of axes, or there is neither one length nor one
            /// for each axis.
            #[track_caller]
            #[must_use]
            pub fn $adaptive_max_at(&self, sizes: impl Into<OutputSizes>) -> (Tensor, Tensor) {
                self.adaptive_max_pool(stringify!($adaptive_max), $axes, sizes.into())
            }

            #[doc = concat!("The elements of `", $image, "` (or that without the batch) put back to the places that [`Tensor::", stringify!($max_at), "`] gave, among zeros.")]
            /// The result has the spatial lengths `lengths`, or the least that the windows need.
            ///
            /// Derivative: `dx = dy` at the places; where two elements went to one, for the one
            /// that stayed.
            ///
            /// ```
            /// use pullback::{Pool, Tensor};
            #[doc = concat!("let x = Tensor::from([1.0, 5.0, 2.0, 4.0]).reshape(", $four, ");")]
            #[doc = concat!("let pool = Pool::new(", $pair, ");")]
            #[doc = concat!("let (y, places) = x.", stringify!($max_at), "(&pool);")]
            #[doc = concat!("let z = y.", stringify!($unpool), "(&places, &pool, None);")]
            /// assert_eq!(z.to_vec::<f64>(), [0.0, 5.0, 0.0, 4.0]);
            /// ```
            ///
            /// # Panics
            /// If the tensor has the wrong number of axes, the indices have another shape, or one
            /// is out of range.
            #[track_caller]
            #[must_use]
            pub fn $unpool(&self, places: &Tensor, pool: &Pool, lengths: Option<&[usize]>) -> Tensor {
                self.max_unpool(stringify!($unpool), $axes, places, pool, lengths)
            }
        }
    };
}

poolings!(1, "[n, c, l]", max_pool1d max_pool1d_at avg_pool1d lp_pool1d adaptive_avg_pool1d adaptive_max_pool1d adaptive_max_pool1d_at max_unpool1d, "[1, 4]", "[2]");
poolings!(2, "[n, c, h, w]", max_pool2d max_pool2d_at avg_pool2d lp_pool2d adaptive_avg_pool2d adaptive_max_pool2d adaptive_max_pool2d_at max_unpool2d, "[1, 1, 4]", "[1, 2]");
poolings!(3, "[n, c, d, h, w]", max_pool3d max_pool3d_at avg_pool3d lp_pool3d adaptive_avg_pool3d adaptive_max_pool3d adaptive_max_pool3d_at max_unpool3d, "[1, 1, 1, 4]", "[1, 1, 2]");
