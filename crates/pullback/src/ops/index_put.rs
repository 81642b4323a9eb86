//! Reading and writing elements at positions given by index tensors or masks.
//!
//! Index tensors name elements axis by axis, as in NumPy: those of all indexed axes are broadcast
//! together, and the indexed axes are replaced by the axes of that common shape. A mask is
//! equivalent to as many index tensors as it has axes. Everything here is a gather or a scatter
//! along one merged axis.

use crate::backend::{elements, with_host_bytes};
use crate::create::known_shape;
use crate::ops::selection::{numbered, positions};
use crate::{DType, Error, IntoShape, Tensor, broadcast_tensors, no_grad, trace};

/// How [`Tensor::scatter_reduce`] and [`Tensor::index_reduce`] combine the values for one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterReduction {
    /// The sum.
    Sum,
    /// The mean; of integers, rounded down.
    Mean,
    /// The product.
    Prod,
    /// The largest; NaN if any is.
    Max,
    /// The smallest; NaN if any is.
    Min,
}

/// A tensor with its indexed axes moved to the front: what `index_get` and `index_put` share.
struct IndexedRows {
    /// The order of axes that brings the indexed ones to the front.
    order: Vec<usize>,
    /// The lengths of the axes that are not indexed.
    rest: Vec<usize>,
    /// The index into the indexed axes, merged.
    rows: Tensor,
    /// How many elements the indexed axes have together.
    merged: usize,
    /// Where the axes of the index end up in the result.
    at: usize,
}

impl Tensor {
    /// The elements at `indices`, one index tensor (or `None`: all of it) for each of the first
    /// axes, all broadcast together. A mask is equivalent to the indices of its true elements. The
    /// axes of the index take the place of the indexed ones, or come first where those are not
    /// neighbours. (PyTorch's `x[i, :, j]`.)
    ///
    /// Derivative: `dy` added at the positions of its elements.
    /// PyTorch's name: `index`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::arange(0, 6).reshape([2, 3]);
    /// let (rows, columns) = (Tensor::from([1i64, 0]), Tensor::from([-1i64, 0]));
    /// assert_eq!(x.index_get(&[&rows, &columns]).to_vec::<i64>(), [5, 0]);
    /// assert_eq!(x.index_get(&[None, Some(&columns)]).to_vec::<i64>(), [2, 0, 5, 3]);
    /// ```
    ///
    /// # Panics
    /// If there are more indices than axes, they do not broadcast, or one is out of range.
    #[doc(alias = "index")]
    #[track_caller]
    #[must_use]
    pub fn index_get<'a, I: Into<Option<&'a Tensor>> + Copy>(&self, indices: &[I]) -> Tensor {
        let p = self.places("index_get", indices);
        let front = self.permute(&p.order[..]).reshape([&[p.merged][..], &p.rest].concat());
        let taken = front.index_select(0, &p.rows.reshape([p.rows.len()]));
        let y = taken.reshape([p.rows.shape(), &p.rest].concat());
        y.move_axes(indexed(&p, 0), indexed(&p, p.at))
    }

    /// This tensor with `values` at `indices` (as in [`Tensor::index_get`], to whose shape they
    /// broadcast). With `accumulate`, values are added, also where an index occurs twice; without,
    /// the last one wins.
    ///
    /// Derivative: for `self`, `dy` (with zeros at the indices, unless accumulating); for the
    /// values, `dy` at the indices.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let at = Tensor::from([0i64, 0]);
    /// let y = Tensor::from([1.0, 2.0]).index_put(&[&at], &Tensor::from([5.0, 6.0]), true);
    /// assert_eq!(y.to_vec::<f64>(), [12.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If there are more indices than axes, they do not broadcast, one is out of range, or the
    /// values do not fit.
    #[track_caller]
    #[must_use]
    pub fn index_put<'a, I: Into<Option<&'a Tensor>> + Copy>(
        &self,
        indices: &[I],
        values: &Tensor,
        accumulate: bool,
    ) -> Tensor {
        let p = self.places("index_put", indices);
        let lines = [&[p.merged][..], &p.rest].concat();
        let front = self.permute(&p.order[..]);
        let flat = front.reshape(&lines[..]);
        // The shape that `index_get` gives, which the values broadcast to.
        let mut shape = p.rest.clone();
        shape.splice(p.at..p.at, p.rows.shape().iter().copied());
        let values = values.cast(self.dtype()).expand(shape);
        let values = values.move_axes(indexed(&p, p.at), indexed(&p, 0));
        let values = values.reshape([&[p.rows.len()][..], &p.rest].concat());
        let rows = p.rows.reshape([p.rows.len()]);
        let out = match accumulate {
            true => flat.index_add(0, &rows, &values),
            false => flat.index_copy(0, &rows, &values),
        };
        let back: Vec<usize> = pullback_ir::inverse_order(&p.order).to_vec();
        out.reshape(front.shape()).permute(back)
    }

    /// Checks index tensors and merges them into one.
    #[track_caller]
    fn places<'a, I: Into<Option<&'a Tensor>> + Copy>(
        &self,
        op: &'static str,
        indices: &[I],
    ) -> IndexedRows {
        let (mut found, mut axes, mut axis): (Vec<Tensor>, Vec<usize>, usize) = Default::default();
        for &index in indices {
            let Some(index) = index.into() else {
                axis += 1;
                continue;
            };
            let mask = index.dtype() == DType::Bool;
            let covers = if mask { index.rank() } else { 1 };
            if axis + covers > self.rank() {
                let message = format!("more indices than {} has axes", self.spec());
                return self.checked(Err(Error::argument(op, message).on([self.spec()])));
            }
            if index.dtype().is_float() {
                let message = format!("indices must be integers or masks, not {}", index.dtype());
                let error = Error::dtype(op, message).on([self.spec(), index.spec()]);
                return self.checked(Err(error));
            }
            if mask && (covers == 0 || index.shape() != &self.shape()[axis..axis + covers]) {
                let message = format!(
                    "the mask {} does not have the shape of the axes of {} from {axis} on",
                    index.spec(),
                    self.spec()
                );
                let error = Error::shape(op, message).on([self.spec(), index.spec()]);
                return self.checked(Err(error));
            }
            if mask {
                let mut flat = positions(index);
                let first = found.len();
                for &n in index.shape().iter().rev() {
                    found.insert(first, flat.remainder(n.max(1)));
                    flat = flat.floor_div(n.max(1));
                }
            } else {
                found.push(self.within(op, index, axis));
            }
            axes.extend(axis..axis + covers);
            axis += covers;
        }
        if axis > self.rank() {
            let message = format!("more indices than {} has axes", self.spec());
            return self.checked(Err(Error::argument(op, message).on([self.spec()])));
        }
        let common = broadcast_tensors(&found.iter().collect::<Vec<_>>());
        let mut rows = self.new_tensor(0i64);
        for (place, &i) in common.iter().zip(&axes) {
            rows = rows * self.shape()[i] + place;
        }
        let others: Vec<usize> = (0..self.rank()).filter(|i| !axes.contains(i)).collect();
        let together = axes.windows(2).all(|pair| pair[1] == pair[0] + 1);
        IndexedRows {
            at: if together { axes.first().copied().unwrap_or(0) } else { 0 },
            merged: axes.iter().map(|&i| self.shape()[i]).product(),
            rest: others.iter().map(|&i| self.shape()[i]).collect(),
            order: axes.into_iter().chain(others).collect(),
            rows,
        }
    }

    /// An index of one axis, counted from the front. Each is checked on its own axis: the merged
    /// index would take 5 in a row of 3 for the next row.
    #[track_caller]
    fn within(&self, op: &'static str, index: &Tensor, axis: usize) -> Tensor {
        let n = self.shape()[axis];
        let index = index.cast(DType::I64);
        let inside = |i: &i64| (-(n as i64)..n as i64).contains(i);
        if !trace::on_host(&index) {
            // Checked when the program runs: an index far out of range stays out of range when axes
            // are merged.
            let known = index.ge(-(n as i64)).logical_and(index.lt(n as i64));
            let index = known.select(&index, index.new_tensor(1i64 << 40));
            return index.lt(0).select(&index + n as i64, &index);
        }
        let (dense, mut negative) = (no_grad(|| index.detach().contiguous()), true);
        let wrong = |bytes: &[u8]| {
            let list = elements::<i64>(DType::I64, bytes)?;
            negative = list.iter().fold(0, |all, i| all | i) < 0;
            list.iter().copied().find(|i| !inside(i))
        };
        if let Some(i) = with_host_bytes(&dense, wrong).flatten() {
            let message = format!(
                "index {i} is out of range for axis {axis} of {}, which has length {n}",
                self.spec()
            );
            return self.checked(Err(Error::argument(op, message).on([self.spec()])));
        }
        if !negative {
            return index;
        }
        index.lt(0).select(&(&index + n), &index)
    }

    /// This tensor with `source` at these indices of the flattened tensor, added with `accumulate`.
    /// (PyTorch's `put`.)
    ///
    /// Derivative: for `self`, `dy` (with zeros at the indices, unless accumulating); for the
    /// source, `dy` at the indices.
    /// PyTorch's name: `put`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// let y = x.put_flat(&Tensor::from([3i64, 0]), &Tensor::from([8.0, 9.0]), false);
    /// assert_eq!(y.to_vec::<f64>(), [9.0, 2.0, 3.0, 8.0]);
    /// ```
    ///
    /// # Panics
    /// If there is not one integer index for each element of the source, or one is out of range.
    #[doc(alias = "put")]
    #[track_caller]
    #[must_use]
    pub fn put_flat(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Tensor {
        if index.dtype() == DType::Bool || index.len() != source.len() {
            let message = format!(
                "needs one integer index per source element: index {}, source {}",
                index.spec(),
                source.spec()
            );
            let error = Error::argument("put_flat", message).on([index.spec(), source.spec()]);
            return self.checked(Err(error));
        }
        let flat = self.reshape([self.len()]);
        let (index, source) = (index.reshape([index.len()]), source.reshape([source.len()]));
        flat.index_put(&[&index], &source, accumulate).reshape(self.shape())
    }

    /// This tensor with the first elements of `source`, in order, where `mask` is true; the mask
    /// broadcasts.
    ///
    /// Derivative: for `self`, `dy` with zeros where the mask is true; for the source, `dy` from
    /// there.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let mask = Tensor::from([true, false, true]);
    /// let y = Tensor::from([1.0, 2.0, 3.0]).masked_scatter(&mask, &Tensor::from([8.0, 9.0]));
    /// assert_eq!(y.to_vec::<f64>(), [8.0, 2.0, 9.0]);
    /// ```
    ///
    /// # Panics
    /// If the mask does not broadcast, or has more true elements than the source has elements.
    #[track_caller]
    #[must_use]
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Tensor {
        let both = broadcast_tensors(&[self, &mask.ne(0)]);
        let (x, mask) = (&both[0], &both[1]);
        let (mask, x) = (mask.reshape([mask.len()]), x.reshape([x.len()]));
        let known = trace::on_host(&mask);
        let count = if known { mask.detach().cast(DType::I64).sum().item::<i64>() } else { 0 };
        if count > source.len() as i64 {
            let message = format!(
                "{} has fewer elements than the mask has true ones: {count}",
                source.spec()
            );
            let error = Error::argument("masked_scatter", message).on([self.spec(), source.spec()]);
            return self.checked(Err(error));
        }
        // What is taken for each element, in order. One more than there are is refused by `gather`,
        // where the mask is known only when the program runs.
        let (source, first) = match source.is_empty() {
            true => (source.new_zeros([1]), 1),
            false => (source.reshape([source.len()]), 0),
        };
        let index = numbered(&mask).unwrap_or_else(|| {
            let number = mask.cast(DType::I64).cumsum(0) - 1 + first;
            mask.select(&number, 0i64)
        });
        let taken = source.gather(0, &index);
        mask.select(taken.cast(x.dtype()), &x).reshape(both[0].shape())
    }

    /// This tensor with what is scattered to one place combined: `self[index[i, j], j]` becomes the
    /// sum, mean, product, largest or smallest of all `source[i, j]` that go there (for axis 0)
    /// and, with `include_self`, of what was there. Places that nothing goes to keep their element.
    ///
    /// Derivative: of the combination; the largest and smallest share it evenly among ties.
    ///
    /// ```
    /// use pullback::{ScatterReduction, Tensor};
    /// let x = Tensor::from([1.0, 2.0, 3.0]);
    /// let (index, source) = (Tensor::from([0i64, 0, 2]), Tensor::from([4.0, 6.0, 7.0]));
    /// let mean = |include: bool| x.scatter_reduce(0, &index, &source, ScatterReduction::Mean, include);
    /// assert_eq!(mean(false).to_vec::<f64>(), [5.0, 2.0, 7.0]);
    /// assert_eq!(mean(true).to_vec::<f64>(), [11.0 / 3.0, 2.0, 5.0]);
    /// ```
    ///
    /// # Panics
    /// If the indices are not integers, one is out of range, or index and source do not fit.
    #[track_caller]
    #[must_use]
    pub fn scatter_reduce(
        &self,
        axis: isize,
        index: &Tensor,
        source: &Tensor,
        how: ScatterReduction,
        include_self: bool,
    ) -> Tensor {
        // How many elements arrive at each place, where that matters.
        let mut hits = self.clone();
        if !include_self || how == ScatterReduction::Mean {
            let exact = if self.dtype().is_float() { self.dtype() } else { DType::I64 };
            let ones = self.new_ones_with(index.shape(), exact);
            hits = self.new_zeros_with(self.shape(), exact).scatter_add(axis, index, &ones);
        }
        let base = match include_self {
            true => self.clone(),
            // Where something arrives, a base that does not count is the unit of the combination.
            false => self.unit_where(&hits.gt(0), how),
        };
        match how {
            ScatterReduction::Sum => base.scatter_add(axis, index, source),
            ScatterReduction::Prod => base.scatter_mul(axis, index, source),
            ScatterReduction::Max => base.scatter_max(axis, index, source),
            ScatterReduction::Min => base.scatter_min(axis, index, source),
            ScatterReduction::Mean => {
                let count = if include_self { hits + 1 } else { hits.clamp_min(1) };
                let sum = base.scatter_add(axis, index, source);
                match self.dtype().is_float() {
                    true => sum / count,
                    false => sum.floor_div(&count).cast(self.dtype()),
                }
            }
        }
    }

    #[track_caller]
    fn unit_where(&self, hit: &Tensor, how: ScatterReduction) -> Tensor {
        let (lowest, highest) = match self.dtype() {
            DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            DType::U8 => (0, 255),
            DType::Bool => (0, 1),
            _ => (i64::MIN, i64::MAX),
        };
        let float = self.dtype().is_float();
        match how {
            ScatterReduction::Sum | ScatterReduction::Mean => self.masked_fill(hit, 0),
            ScatterReduction::Prod => self.masked_fill(hit, 1),
            ScatterReduction::Max if float => self.masked_fill(hit, f64::NEG_INFINITY),
            ScatterReduction::Min if float => self.masked_fill(hit, f64::INFINITY),
            ScatterReduction::Max => self.masked_fill(hit, lowest),
            ScatterReduction::Min => self.masked_fill(hit, highest),
        }
    }

    /// [`Tensor::scatter_reduce`] of whole slices: slice k of `source` goes to slice `index[k]` of
    /// the axis.
    ///
    /// Derivative: of the combination; the largest and smallest share it evenly among ties.
    ///
    /// ```
    /// use pullback::{ScatterReduction, Tensor};
    /// let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// let source = Tensor::from([[5.0, 1.0], [2.0, 3.0]]);
    /// let y = x.index_reduce(0, &Tensor::from([1i64, 1]), &source, ScatterReduction::Max, true);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 5.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If the index is not a vector of integers, one is out of range, or the source does not fit.
    #[track_caller]
    #[must_use]
    pub fn index_reduce(
        &self,
        axis: isize,
        index: &Tensor,
        source: &Tensor,
        how: ScatterReduction,
        include_self: bool,
    ) -> Tensor {
        if self.rank() == 0 {
            let flat = |x: &Tensor| x.reshape([x.len()]);
            let (x, index, source) = (flat(self), flat(index), flat(source));
            let out = x.index_reduce(axis, &index, &source, how, include_self);
            return out.reshape(());
        }
        let at = self.axis("index_reduce", axis);
        let mut wanted = self.shape().to_vec();
        wanted[at] = index.len();
        if index.rank() > 1 || source.shape() != wanted {
            let message = format!(
                "the source must be {:?} for {} and the index {}, not {}",
                wanted,
                self.spec(),
                index.spec(),
                source.spec()
            );
            let error = Error::shape("index_reduce", message);
            return self.checked(Err(error.on([self.spec(), index.spec(), source.spec()])));
        }
        let mut thin = vec![1; self.rank()];
        thin[at] = index.len();
        let index = index.reshape(thin).expand(wanted);
        self.scatter_reduce(axis, &index, source, how, include_self)
    }

    /// Each run of slices of an axis combined into one: the first `lengths[0]` of them, the next
    /// `lengths[1]`, and so on. They start from `first` where it is given; without it, a run of
    /// none is the unit of the combination (NaN for a mean). Lengths may differ along the axes
    /// before this one: then they have those axes too.
    ///
    /// Derivative: of the combination; the largest and smallest share it evenly among ties.
    ///
    /// ```
    /// use pullback::{ScatterReduction, Tensor};
    /// let x = Tensor::from([1.0, 2.0, 3.0]);
    /// let y = x.segment_reduce(ScatterReduction::Sum, &Tensor::from([2i64, 1]), 0, None);
    /// assert_eq!(y.to_vec::<f64>(), [3.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, or the lengths add up to more than its length.
    #[track_caller]
    #[must_use]
    pub fn segment_reduce(
        &self,
        how: ScatterReduction,
        lengths: &Tensor,
        axis: isize,
        first: Option<f64>,
    ) -> Tensor {
        let at = self.axis("segment_reduce", axis);
        let n = self.length("segment_reduce", axis);
        let mut lines = self.shape()[..at].to_vec();
        let runs = lengths.shape().last().copied().unwrap_or(0);
        lines.push(runs);
        let refused = || {
            let message = format!(
                "takes floats, and lengths that add up to the {n} of axis {at}, not {} and {}",
                self.spec(),
                lengths.spec()
            );
            Err(Error::argument("segment_reduce", message).on([self.spec(), lengths.spec()]))
        };
        let fits = lengths.shape() == lines || lengths.rank() == 1;
        if !self.dtype().is_float() || lengths.dtype().is_float() || !fits || runs == 0 {
            return self.checked(refused());
        }
        let counts = lengths.detach().cast(DType::I64);
        let total = counts.sum_keep(-1);
        // What no run reaches is left out, if there is one list of lengths; several lists cover
        // all.
        let covers = match lengths.rank() {
            1 => total.le(n as i64),
            _ => total.eq(n as i64),
        };
        let each = counts.ge(0).logical_and(counts.le(n as i64));
        let valid = each.min_keep(-1).logical_and(covers);
        if trace::on_host(&valid) && !valid.all().item::<bool>() {
            return self.checked(refused());
        }
        // The run of element i: how many end at i or before. Elsewhere than on the host, where
        // wrong lengths are not known yet, they become an index that scattering refuses.
        let shape = [&counts.shape()[..counts.rank() - 1], &[n]].concat();
        let element = counts.new_iota(n).expand(shape);
        let index = counts.cumsum(-1).searchsorted(&element.contiguous(), true);
        let index = valid.select(index, -1i64);
        let mut thin = if lengths.rank() == 1 { vec![1; at] } else { self.shape()[..at].to_vec() };
        thin.push(n);
        thin.resize(self.rank(), 1);
        let index = index.reshape(thin).expand(self.shape());
        // The last one takes what no run reaches.
        let mut shape = self.shape().to_vec();
        shape[at] = runs + 1;
        let unit = match how {
            ScatterReduction::Sum | ScatterReduction::Mean => 0.0,
            ScatterReduction::Prod => 1.0,
            ScatterReduction::Max => f64::NEG_INFINITY,
            ScatterReduction::Min => f64::INFINITY,
        };
        let base = self.new_full_of(&shape[..], first.unwrap_or(unit)).cast(self.dtype());
        let combined = match how {
            ScatterReduction::Mean => ScatterReduction::Sum,
            other => other,
        };
        let y = base.scatter_reduce(at as isize, &index, self, combined, true);
        let y = y.narrow(at as isize, 0, runs).contiguous();
        if how != ScatterReduction::Mean {
            return y;
        }
        let mut wide = lengths.shape().to_vec();
        while lengths.rank() == 1 && wide.len() <= at {
            wide.insert(0, 1);
        }
        wide.resize(self.rank(), 1);
        let count = lengths.reshape(wide).cast(self.dtype());
        match first {
            Some(_) => y / count.clamp_min(1.0),
            None => y / count,
        }
    }

    /// The elements of the flattened tensor at `offset + Σ iₖ·strides[k]`, in this shape: PyTorch's
    /// `as_strided` of a contiguous tensor. Elements may occur many times.
    ///
    /// Derivative: `dy` added at the positions of its elements.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::arange(0, 6);
    /// assert_eq!(x.as_strided([2, 3], &[2, 1], 0).to_vec::<i64>(), [0, 1, 2, 2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// If strides and shape differ in length, or an element would be out of range.
    #[track_caller]
    #[must_use]
    pub fn as_strided(&self, shape: impl IntoShape, strides: &[usize], offset: usize) -> Tensor {
        let index = self.strided_index("as_strided", shape, strides, offset);
        self.take(&index)
    }

    /// This tensor with `source` at the places that [`Tensor::as_strided`] shows, in the shape of
    /// `source`.
    ///
    /// Derivative: for `self`, `dy` with zeros at the indices; for the source, `dy` from there.
    /// PyTorch's name: `as_strided_scatter`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::zeros([4]).as_strided_put(&Tensor::ones([2]), &[2], 1);
    /// assert_eq!(y.to_vec::<f32>(), [0.0, 1.0, 0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If strides and source differ in their number of axes, or an element would be out of range.
    #[doc(alias = "as_strided_scatter")]
    #[track_caller]
    #[must_use]
    pub fn as_strided_put(&self, source: &Tensor, strides: &[usize], offset: usize) -> Tensor {
        let index = self.strided_index("as_strided_put", source.shape(), strides, offset);
        self.put_flat(&index, source, false)
    }

    #[track_caller]
    fn strided_index(
        &self,
        op: &'static str,
        shape: impl IntoShape,
        strides: &[usize],
        offset: usize,
    ) -> Tensor {
        let shape = known_shape(op, shape);
        let furthest = shape.iter().zip(strides).fold(offset, |sum, (&n, &s)| {
            sum.saturating_add(n.saturating_sub(1).saturating_mul(s))
        });
        let empty = shape.contains(&0);
        if shape.len() != strides.len() || (!empty && furthest >= self.len()) {
            let message = format!(
                "shape {:?} with strides {strides:?} from {offset} on reaches past the {} elements of {}",
                &shape[..],
                self.len(),
                self.spec()
            );
            return self.checked(Err(Error::argument(op, message).on([self.spec()])));
        }
        let mut index = self.new_tensor(offset as i64);
        for (&n, &s) in shape.iter().zip(strides) {
            index = index.unsqueeze(-1) + self.new_iota(n) * s;
        }
        index
    }
}

/// The axes of the index, where they start at `from`.
fn indexed(p: &IndexedRows, from: usize) -> Vec<usize> {
    (from..from + p.rows.rank()).collect()
}
