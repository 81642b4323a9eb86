//! Counts of values: `bincount` and histograms.

use crate::backend::{elements, with_host_bytes};
use crate::create::known_shape;
use crate::ops::one_pass::is_value_alone;
use crate::{DType, Error, ErrorKind, HostElement, Tensor, trace};
use std::cmp::Ordering;

/// The maximum number of bins: their edges are listed.
const MOST_BINS: usize = 1 << 24;

impl Tensor {
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
        if let Some(counts) = self.counted(bins, &low, &high) {
            return counts.cast(self.real_dtype());
        }
        let x = self.detach().cast(DType::F64).reshape([self.len()]);
        let inside = x.ge(&low).logical_and(x.le(&high));
        let bin = (inside.select(&x, &low) - &low) * bins as f64 / (&high - &low);
        let bin = bin.cast(DType::I64).clamp_max(bins as i64 - 1);
        let counts = bin.new_zeros_with([bins], DType::I64);
        let counts = counts.scatter_add(0, &bin, &inside.cast(DType::I64));
        counts.cast(self.real_dtype())
    }

    /// The counts of [`Tensor::histc`] by a loop, where the elements are on the host.
    #[track_caller]
    fn counted(&self, bins: usize, low: &Tensor, high: &Tensor) -> Option<Tensor> {
        fn of<T: HostElement + Into<f64>>(
            x: &Tensor,
            bins: usize,
            bounds: [f64; 2],
        ) -> Option<Vec<i64>> {
            let [low, high] = bounds;
            let count = |x: &[T]| {
                let mut counts = vec![0; bins];
                for x in x.iter().map(|&x| x.into()).filter(|x| (low..=high).contains(x)) {
                    let bin = ((x - low) * bins as f64 / (high - low)) as usize;
                    counts[bin.min(bins - 1)] += 1;
                }
                counts
            };
            with_host_bytes(x, |bytes| elements::<T>(T::DTYPE, bytes).map(count))?
        }
        let x = self.detach();
        if !is_value_alone(&x) || !x.is_contiguous() || !trace::on_host(low) {
            return None;
        }
        let bounds = [low, high].map(|x| x.item::<f64>());
        let counts = match x.dtype() {
            DType::F32 => of::<f32>(&x, bins, bounds),
            DType::F64 => of::<f64>(&x, bins, bounds),
            _ => None,
        }?;
        Some(x.new_from_vec(counts, [bins]))
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
