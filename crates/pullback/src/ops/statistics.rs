//! Quantiles, covariances, histograms and counts.
//!
//! What depends on order is a sort and a gather by the places it found, so its gradient is theirs.
//! Counts have no gradient except through weights.

use crate::create::known_shape;
use crate::{DType, Error, ErrorKind, Operand, Tensor, cat, kinks, trace};
use std::cmp::Ordering;

/// What a quantile that falls between two elements is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantileInterpolation {
    /// On the line from one to the other.
    #[default]
    Linear,
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
    /// The nearer one; halfway, the one at the even place.
    Nearest,
    /// Their mean.
    Midpoint,
}

/// The maximum number of bins: their edges are listed.
const MOST_BINS: usize = 1 << 24;

impl Tensor {
    /// The `q`-quantiles (0 to 1) of an axis, which disappears; NaN if any element is. A vector of
    /// several `q` becomes the first axis of the result.
    ///
    /// Derivative: `dy` to the one or two elements that the quantile is made of, by their weights.
    ///
    /// ```
    /// use pullback::{QuantileInterpolation, Tensor};
    /// let x = Tensor::from([[4.0, 1.0, 2.0, 3.0]]);
    /// assert_eq!(x.quantile(0.5, 1, QuantileInterpolation::Linear).to_vec::<f64>(), [2.5]);
    /// assert_eq!(x.quantile(&Tensor::from([0.0, 1.0]), 1, QuantileInterpolation::Linear).shape(), [2, 1]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range or empty, or a `q` is not between 0 and 1.
    #[track_caller]
    #[must_use]
    pub fn quantile(&self, q: impl Operand, axis: isize, between: QuantileInterpolation) -> Tensor {
        let q = q.matching(&self.new_zeros_with((), self.real_dtype())).into_owned();
        self.quantile_of("quantile", q, axis, between, false)
    }

    /// [`Tensor::quantile`] of the elements that are not NaN; NaN where all are.
    ///
    /// Derivative: `dy` to the one or two elements that the quantile is made of, by their weights.
    /// PyTorch's name: `nanquantile`.
    ///
    /// ```
    /// use pullback::{QuantileInterpolation, Tensor};
    /// let x = Tensor::from([1.0, f64::NAN, 3.0]);
    /// assert_eq!(x.nan_quantile(0.5, 0, QuantileInterpolation::Linear).item::<f64>(), 2.0);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range or empty, or a `q` is not between 0 and 1.
    #[doc(alias = "nanquantile")]
    #[track_caller]
    #[must_use]
    pub fn nan_quantile(
        &self,
        q: impl Operand,
        axis: isize,
        between: QuantileInterpolation,
    ) -> Tensor {
        let q = q.matching(&self.new_zeros_with((), self.real_dtype())).into_owned();
        self.quantile_of("nan_quantile", q, axis, between, true)
    }

    #[track_caller]
    fn quantile_of(
        &self,
        op: &'static str,
        q: Tensor,
        axis: isize,
        between: QuantileInterpolation,
        without_nan: bool,
    ) -> Tensor {
        let x = if self.rank() == 0 { self.reshape([1]) } else { self.clone() };
        let n = x.length(op, axis);
        let unit = |q: &Tensor| q.ge(0.0).logical_and(q.le(1.0)).all().item::<bool>();
        let inside = !trace::on_host(&q) || unit(&q.detach());
        if q.rank() > 1 || !inside || !q.dtype().is_float() || !x.dtype().is_float() || n == 0 {
            let message = format!(
                "takes floats, an axis with elements, and q from 0 to 1, not {} and {} along axis {axis}",
                self.spec(),
                q.spec()
            );
            return self.checked(Err(Error::argument(op, message).on([self.spec(), q.spec()])));
        }
        let dtype = x.dtype();
        let (x, q) = (x.wide(), q.wide().cast(x.wide().dtype()));
        let sorted = x.move_axis(axis, -1).sort(-1, false).0;
        let last = match without_nan {
            true => {
                let count = sorted.is_nan().logical_not().cast(x.dtype()).sum_keep(-1);
                (count - 1.0).clamp_min(0.0)
            }
            false => x.new_full_of([1], n as f64 - 1.0).cast(x.dtype()),
        };
        let mut rank = q.reshape([q.len()]) * last;
        if !without_nan {
            // NaN sorts last: where there is one, it is every quantile.
            let spoilt = sorted.is_nan().any_keep(-1);
            rank = spoilt.select(n as f64 - 1.0, &rank);
        }
        let rank = match between {
            QuantileInterpolation::Linear | QuantileInterpolation::Midpoint => rank,
            QuantileInterpolation::Lower => rank.floor(),
            QuantileInterpolation::Higher => rank.ceil(),
            QuantileInterpolation::Nearest => rank.round(),
        };
        let lines = sorted.shape()[..sorted.rank() - 1].to_vec();
        let rank = rank.expand([&lines[..], &[q.len()]].concat());
        let at = |place: Tensor| sorted.gather(-1, &place.detach().cast(DType::I64));
        let low = at(rank.floor());
        let y = match between {
            QuantileInterpolation::Lower
            | QuantileInterpolation::Higher
            | QuantileInterpolation::Nearest => low,
            QuantileInterpolation::Linear => {
                low.lerp(&at(rank.ceil()), &rank - rank.floor().detach())
            }
            QuantileInterpolation::Midpoint => low.lerp(&at(rank.ceil()), 0.5),
        };
        let y = match q.rank() {
            0 => y.squeeze_axis(-1),
            _ => y.move_axis(-1, 0),
        };
        let y = y.cast(dtype);
        if self.rank() == 0 { y.reshape(q.shape()) } else { y }
    }

    /// The median of the elements of an axis that are not NaN, and where it is: the lower of two;
    /// NaN where all are.
    ///
    /// Derivative: `dy` to the median's place.
    /// PyTorch's name: `nanmedian`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (value, place) = Tensor::from([f64::NAN, 3.0, 1.0, 2.0]).nan_median(0);
    /// assert_eq!((value.item::<f64>(), place.item::<i64>()), (2.0, 3));
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range or empty.
    #[doc(alias = "nanmedian")]
    #[track_caller]
    #[must_use]
    pub fn nan_median(&self, axis: isize) -> (Tensor, Tensor) {
        if self.rank() == 0 {
            return self.kthvalue(1, axis);
        }
        if self.length("nan_median", axis) == 0 {
            let error = Error::argument("nan_median", "an axis without elements has no median");
            return self.checked(Err(error.on([self.spec()])));
        }
        let places = self.detach().sort(axis, false).1;
        let count = self.is_nan().logical_not().cast(DType::I64).sum_keep(axis);
        let place = places.gather(axis, &(count - 1).clamp_min(0).floor_div(2));
        (self.gather(axis, &place).squeeze_axis(axis), place.squeeze_axis(axis))
    }

    /// The most frequent element of an axis, which disappears, and where it was last: the smallest
    /// among equals.
    ///
    /// Derivative: `dy` to that place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (value, place) = Tensor::from([3, 1, 3, 1, 2]).mode(0);
    /// assert_eq!((value.item::<i32>(), place.item::<i64>()), (1, 3));
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range or empty.
    #[track_caller]
    #[must_use]
    pub fn mode(&self, axis: isize) -> (Tensor, Tensor) {
        if self.rank() == 0 {
            return self.kthvalue(1, axis);
        }
        let n = self.length("mode", axis);
        if n == 0 {
            let error = Error::argument("mode", "an axis without elements has no mode");
            return self.checked(Err(error.on([self.spec()])));
        }
        let (sorted, places) = self.detach().move_axis(axis, -1).sort(-1, false);
        // The place where each run of equal elements starts, and how long it is so far: the end of
        // the first longest one is where that length is first reached.
        let number = self.new_iota(n).expand(sorted.shape());
        let first = sorted.new_ones_with(sorted.narrow(-1, 0, 1).shape(), DType::Bool);
        let starts = sorted.narrow(-1, 1, n - 1).ne(sorted.narrow(-1, 0, n - 1));
        let starts = cat(&[&first, &starts], -1);
        let start = starts.select(&number, 0i64).cummax(-1);
        let found = (number - start).argmax(-1).unsqueeze(-1);
        let place = places.gather(-1, &found).move_axis(-1, axis);
        (self.gather(axis, &place).squeeze_axis(axis), place.squeeze_axis(axis))
    }

    /// The smallest and the largest element over some axes.
    ///
    /// Derivative: of [`Tensor::min_over`] and [`Tensor::max_over`].
    /// PyTorch's name: `aminmax`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (low, high) = Tensor::from([[3, 1], [2, 5]]).min_max(1);
    /// assert_eq!((low.to_vec::<i32>(), high.to_vec::<i32>()), (vec![1, 2], vec![3, 5]));
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range, named twice or empty.
    #[doc(alias = "aminmax")]
    #[track_caller]
    #[must_use]
    pub fn min_max(&self, axes: impl crate::IntoAxes) -> (Tensor, Tensor) {
        let axes = axes.list();
        (self.min_over(axes.clone()), self.max_over(axes))
    }

    /// How many elements over some axes are not zero, in `i64`.
    ///
    /// Derivative: none (an integer).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[3, 0], [2, 5]]).count_nonzero(1).to_vec::<i64>(), [1, 2]);
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range or named twice.
    #[track_caller]
    #[must_use]
    pub fn count_nonzero(&self, axes: impl crate::IntoAxes) -> Tensor {
        self.ne(0).sum_over(axes)
    }

    /// The sum of the elements over some axes that are not NaN.
    ///
    /// Derivative: `dy` where not NaN, 0 elsewhere.
    /// PyTorch's name: `nansum`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, f64::NAN, 4.0]).nan_sum(0).item::<f64>(), 5.0);
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range or named twice.
    #[doc(alias = "nansum")]
    #[track_caller]
    #[must_use]
    pub fn nan_sum(&self, axes: impl crate::IntoAxes) -> Tensor {
        match self.dtype().is_float() {
            true => self.is_nan().select_or(0.0, self.clone()).sum_over(axes),
            false => self.sum_over(axes),
        }
    }

    /// The mean of the elements over some axes that are not NaN; NaN where all are.
    ///
    /// Derivative: `dy` / count where not NaN, 0 elsewhere.
    /// PyTorch's name: `nanmean`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, f64::NAN, 4.0]).nan_mean(0).item::<f64>(), 2.5);
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range or named twice.
    #[doc(alias = "nanmean")]
    #[track_caller]
    #[must_use]
    pub fn nan_mean(&self, axes: impl crate::IntoAxes) -> Tensor {
        let (axes, x) = (axes.list(), self.wide());
        let count = x.is_nan().logical_not().cast(x.dtype()).sum_over(axes.clone());
        (x.nan_sum(axes) / count).cast(self.reduced_dtype())
    }

    /// The covariance matrix of the rows, whose columns are observations:
    /// `(x − m)·W·(x − m)ᵀ / (Σw − correction)`, with the weighted mean m. `counts` (integers) say
    /// how often each observation was made, `weights` how much it counts; with the latter the
    /// divisor is `Σw − correction·Σw·weights/Σw`. A vector is one row.
    ///
    /// Derivative: of its formula.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]);
    /// assert_eq!(x.cov(1.0, None, None).to_vec::<f64>(), [1.0, -1.0, -1.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If there are more than two axes, or not one count or weight for each observation.
    #[track_caller]
    #[must_use]
    pub fn cov(
        &self,
        correction: f64,
        counts: Option<&Tensor>,
        weights: Option<&Tensor>,
    ) -> Tensor {
        let n = self.shape().last().copied().unwrap_or(1);
        let fits = |w: Option<&Tensor>| w.is_none_or(|w| w.rank() <= 1 && w.len() == n);
        if self.rank() > 2 || !fits(counts) || !fits(weights) {
            let message =
                format!("takes [rows, observations] and a weight for each, not {}", self.spec());
            return self.checked(Err(Error::shape("cov", message).on([self.spec()])));
        }
        let x = if self.rank() < 2 { self.reshape([1, self.len()]) } else { self.clone() };
        let x = x.wide();
        let flat = |w: &Tensor| w.reshape([n]);
        let w = match (counts.map(flat), weights.map(flat)) {
            (Some(f), Some(a)) => Some(f * a),
            (Some(w), None) | (None, Some(w)) => Some(w),
            (None, None) => None,
        };
        let (centred, divisor) = match &w {
            None => {
                let divisor = x.new_full_of((), n as f64 - correction).cast(x.dtype());
                (&x - x.mean_keep(1), divisor)
            }
            Some(w) => {
                let sum = w.sum();
                let centred = &x - (&x * w).sum_keep(1) / &sum;
                let spent = match weights {
                    Some(a) if correction != 0.0 => (w * flat(a)).sum() / &sum * correction,
                    _ => x.new_full_of((), correction).cast(x.dtype()),
                };
                (centred, sum - spent)
            }
        };
        let weighted = w.as_ref().map_or_else(|| centred.clone(), |w| &centred * w);
        let y = weighted.product(&centred.t()) / divisor.clamp_min(0.0);
        let y = y.cast(self.reduced_dtype());
        if y.len() == 1 { y.reshape(()) } else { y }
    }

    /// The correlation matrix of the rows: the covariances divided by the standard deviations, held
    /// to [−1, 1].
    ///
    /// Derivative: of its formula.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]]);
    /// assert_eq!(x.corrcoef().to_vec::<f64>(), [1.0, -1.0, -1.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If there are more than two axes.
    #[track_caller]
    #[must_use]
    pub fn corrcoef(&self) -> Tensor {
        let c = self.cov(1.0, None, None);
        if c.rank() == 0 {
            // One, or NaN where nothing varies.
            let own = c.clone();
            return c / own;
        }
        let deviation = c.diagonal().sqrt();
        // Values beyond the bounds are rounding errors: clamping them is no kink.
        let y = c / deviation.unsqueeze(1) / deviation.unsqueeze(0);
        kinks::uncounted_part(|| y.clamp(-1.0, 1.0))
    }

    /// How often each of 0, 1, 2, … occurs in a vector of integers, or the sum of the weights where
    /// it does; at least `min_length` numbers. Traced, where the largest is not known, and on
    /// other devices than the CPU, exactly `min_length` if that is not 0: a larger one is then an
    /// error when the op runs.
    ///
    /// Derivative: for the weights, `dy` at each one's number.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1i64, 3, 1]).bincount(None, 0).to_vec::<i64>(), [0, 2, 0, 1]);
    /// ```
    ///
    /// # Panics
    /// If the tensor is not a vector of integers, the weights have another shape, a number is
    /// negative, or (see above) the number of bins is not known or too small.
    #[track_caller]
    #[must_use]
    pub fn bincount(&self, weights: Option<&Tensor>, min_length: usize) -> Tensor {
        let integers = !self.dtype().is_float() && self.dtype() != DType::Bool;
        if !integers || self.rank() != 1 || weights.is_some_and(|w| w.shape() != self.shape()) {
            let message =
                format!("takes a vector of integers, and a weight for each, not {}", self.spec());
            return self.checked(Err(Error::argument("bincount", message).on([self.spec()])));
        }
        let index = self.detach().cast(DType::I64);
        // With a length nothing need be read, and waited for.
        let known = trace::on_host(&index) || (min_length == 0 && trace::knows(&index));
        if !known && min_length == 0 && !index.is_empty() {
            let message = "the number of bins depends on values, which are not known here";
            let error = Error::new(ErrorKind::Program, "bincount", message).on([self.spec()]);
            return self.checked(Err(error.hint("give min_length: as many bins as there can be")));
        }
        let (low, high) = match index.len() {
            0 => (0, -1),
            _ if !known => (0, -1),
            _ => (index.min().item::<i64>(), index.max().item::<i64>()),
        };
        let length = min_length.max(high.saturating_add(1).max(0) as usize);
        if low < 0 || !pullback_ir::infer::fits_memory(&[length]) {
            let message = match low < 0 {
                true => format!("counts numbers of at least 0, and one is {low}"),
                false => format!("{length} bins are larger than memory"),
            };
            return self.checked(Err(Error::argument("bincount", message).on([self.spec()])));
        }
        let length = known_shape("bincount", [length])[0];
        match weights {
            Some(w) => {
                let w = if w.dtype().is_float() { w.clone() } else { w.cast(DType::F64) };
                w.new_zeros([length]).scatter_add(0, &index, &w)
            }
            None => {
                let ones = index.new_ones_with([index.len()], DType::I64);
                index.new_zeros_with([length], DType::I64).scatter_add(0, &index, &ones)
            }
        }
    }

    /// How many elements fall into each of `bins` bins of equal width from `low` to `high`, which
    /// is inside; others, and NaN, are left out. Without bounds, those of the elements.
    ///
    /// Derivative: none (a count).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([0.0, 0.4, 1.0, 5.0]);
    /// assert_eq!(x.histc(2, Some((0.0, 1.0))).to_vec::<f64>(), [2.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If `bins` is 0, or the bounds are not finite and in order.
    #[track_caller]
    #[must_use]
    pub fn histc(&self, bins: usize, bounds: Option<(f64, f64)>) -> Tensor {
        let (low, high) = self.bin_bounds("histc", bins, bounds);
        let x = self.detach().cast(DType::F64).reshape([self.len()]);
        let inside = x.ge(&low).logical_and(x.le(&high));
        let bin = (inside.select(&x, &low) - &low) * bins as f64 / (&high - &low);
        let bin = bin.cast(DType::I64).clamp_max(bins as i64 - 1);
        let counts = bin.new_zeros_with([bins], DType::I64);
        let counts = counts.scatter_add(0, &bin, &inside.cast(DType::I64));
        counts.cast(self.real_dtype())
    }

    /// Where the first of `bins` bins starts and the last one ends: at the lowest and the highest
    /// element where there are no bounds. Elements that are not finite are refused where they can
    /// be read without waiting for a device; elsewhere such bounds give NaN edges and empty bins.
    #[track_caller]
    fn bin_bounds(
        &self,
        op: &'static str,
        bins: usize,
        bounds: Option<(f64, f64)>,
    ) -> (Tensor, Tensor) {
        let x = self.detach().cast(DType::F64);
        let counts = op == "histc";
        let number = |value: f64| x.new_full_of((), value);
        let (low, high) = match bounds {
            Some((low, high)) => (number(low), number(high)),
            None if x.is_empty() => (number(0.0), number(if counts { 0.0 } else { 1.0 })),
            None => (x.min(), x.max()),
        };
        // As wide as PyTorch makes it.
        let margin = low.eq(&high).select(number(if counts { 1.0 } else { 0.5 }), number(0.0));
        let (low, high) = (low - &margin, high + margin);
        // Of bounds that were given, or of elements on the host.
        let known = match bounds {
            Some((low, high)) if low != high => Some((low, high)),
            Some((low, high)) => Some((low - 0.5, high + 0.5)),
            None if trace::on_host(&low) => Some((low.item::<f64>(), high.item::<f64>())),
            None => None,
        };
        let wrong = |(low, high): (f64, f64)| {
            low.partial_cmp(&high) != Some(Ordering::Less) || !(high - low).is_finite()
        };
        if bins == 0 || known.is_some_and(wrong) {
            let between = known.map_or_else(String::new, |(a, b)| format!(" from {a} to {b}"));
            let message = format!("cannot make {bins} bins{between}");
            return self.checked(Err(Error::argument(op, message).on([self.spec()])));
        }
        if bins > MOST_BINS {
            let message = format!("{bins} bins are more than the {MOST_BINS} that can be listed");
            return self.checked(Err(Error::argument(op, message).on([self.spec()])));
        }
        (low, high)
    }

    /// `bins + 1` numbers at equal distances, from the lowest to the highest element where there
    /// are no bounds.
    #[track_caller]
    pub(super) fn even_edges(
        &self,
        op: &'static str,
        bins: usize,
        bounds: Option<(f64, f64)>,
    ) -> Tensor {
        let (low, high) = self.bin_bounds(op, bins, bounds);
        // From both ends towards the middle, so that neither end is rounded.
        let step = (&high - &low) / bins as f64;
        let i = low.new_iota(bins + 1);
        let (up, down) = (&step * i.cast(DType::F64), &step * (bins as i64 - &i).cast(DType::F64));
        i.le((bins / 2) as i64).select(low + up, high - down).cast(self.real_dtype())
    }

    /// How many elements (or what weight of them) lie between neighbouring edges, each of which
    /// belongs to the bin on its right, except the last. [`Tensor::bin_edges`] makes edges at equal
    /// distances.
    ///
    /// Derivative: for the weights, `dy` at each one's bin.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let edges = Tensor::from([0.0, 1.0, 4.0]);
    /// assert_eq!(Tensor::from([0.5, 1.0, 4.0]).histogram(&edges, None).to_vec::<f64>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the edges are not a vector of at least two, or there is not one weight for each element.
    #[track_caller]
    #[must_use]
    pub fn histogram(&self, edges: &Tensor, weights: Option<&Tensor>) -> Tensor {
        self.reshape([self.len(), 1])
            .histogram_nd(&[edges], weights.map(|w| w.reshape([w.len()])).as_ref())
    }

    /// `bins + 1` edges at equal distances between the bounds, or between the lowest and the
    /// highest element.
    ///
    /// Derivative: none.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 5.0, 2.0]);
    /// assert_eq!(x.bin_edges(2, None).to_vec::<f64>(), [1.0, 3.0, 5.0]);
    /// assert_eq!(x.bin_edges(2, Some((0.0, 1.0))).to_vec::<f64>(), [0.0, 0.5, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If `bins` is 0, or the bounds are not finite and in order.
    #[track_caller]
    #[must_use]
    pub fn bin_edges(&self, bins: usize, bounds: Option<(f64, f64)>) -> Tensor {
        self.even_edges("bin_edges", bins, bounds)
    }

    /// [`Tensor::histogram`] of points: row k of a matrix is one, with a coordinate for each list
    /// of edges.
    ///
    /// Derivative: for the weights, `dy` at each one's bin.
    /// PyTorch's name: `histogramdd`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // Three points in the plane, bins of [0, 1) and [1, 2] in both directions.
    /// let points = Tensor::from([[0.5, 0.5], [0.5, 1.5], [0.2, 1.0]]);
    /// let edges = Tensor::from([0.0, 1.0, 2.0]);
    /// let y = points.histogram_nd(&[&edges, &edges], None);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 0.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If the points are not `[n, d]` for d lists of edges, a list has fewer than two edges, or
    /// there is not one weight for each point.
    #[doc(alias = "histogramdd")]
    #[track_caller]
    #[must_use]
    pub fn histogram_nd(&self, edges: &[&Tensor], weights: Option<&Tensor>) -> Tensor {
        let fits = self.rank() == 2 && self.shape()[1] == edges.len();
        let vectors = edges.iter().all(|e| e.rank() == 1 && e.len() >= 2);
        if !fits || !vectors || weights.is_some_and(|w| w.shape() != &self.shape()[..1]) {
            let message = format!(
                "takes points [n, {}], edges (at least two) and a weight for each point, not {}",
                edges.len(),
                self.spec()
            );
            return self.checked(Err(Error::shape("histogram", message).on([self.spec()])));
        }
        let dtype = weights.map_or(self.real_dtype(), Tensor::real_dtype);
        let shape: Vec<usize> = edges.iter().map(|e| e.len() - 1).collect();
        known_shape("histogram", &shape[..]);
        let n = self.shape()[0];
        let (mut index, mut inside) =
            (self.new_zeros_with([n], DType::I64), self.new_tensor(true).expand([n]));
        for (k, edges) in edges.iter().enumerate() {
            let x = self.detach().select_at(1, k as isize);
            let edges = edges.detach().cast(x.dtype().promote(edges.dtype()));
            let last = edges.select_at(0, -1);
            let bin = edges.searchsorted(&x.contiguous(), true) - 1;
            // The last edge belongs to the last bin.
            let bin = x.eq(&last).select(edges.len() as i64 - 2, &bin);
            inside = inside.logical_and(bin.ge(0)).logical_and(x.le(&last));
            index = index * (edges.len() - 1) + bin;
        }
        let ones = || self.new_ones_with([n], dtype);
        let w = weights.map_or_else(ones, |w| w.cast(dtype));
        let total: usize = shape.iter().product();
        let flat = self.new_zeros_with([total], dtype);
        let counted = inside.select(&w, w.zeros_like());
        flat.scatter_add(0, &inside.select(&index, 0), &counted).reshape(shape)
    }
}
