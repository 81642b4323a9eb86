//! Quantiles, covariances, histograms and counts.
//!
//! What depends on order is a sort and a gather by the places it found, so its gradient is theirs.
//! Counts have no gradient except through weights.

use crate::ops::one_pass::{is_value_alone, one_pass_of_rows, or_op_by_op};
use crate::{DType, Error, Operand, Tensor, cat, kinks, trace};

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
        let axes = axes.list();
        if !self.dtype().is_float() {
            return self.sum_over(axes);
        }
        let sum =
            |x: &Tensor, axes: Vec<isize>| x.is_nan().select_or(0.0, x.clone()).sum_over(axes);
        let rows = one_pass_of_rows("nan_sum", &[], [self], &axes, |[x]| sum(x, vec![1]));
        or_op_by_op(rows, || sum(self, axes))
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
        let axes = axes.list();
        let mean = |x: &Tensor, axes: Vec<isize>| {
            let (dtype, x) = (x.reduced_dtype(), x.wide());
            let count = x.is_nan().logical_not().cast(x.dtype()).sum_over(axes.clone());
            (x.nan_sum(axes) / count).cast(dtype)
        };
        let rows = match is_value_alone(self) {
            true => one_pass_of_rows("nan_mean", &[], [self], &axes, |[x]| mean(x, vec![1])),
            // Its derivative is no region.
            false => None,
        };
        or_op_by_op(rows, || mean(self, axes))
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
}
