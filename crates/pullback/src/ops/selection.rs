//! Picking elements: by flat index, by mask, by rank.

use crate::backend::{elements, with_host_bytes};
use crate::ops::one_pass::is_value_alone;
use crate::{DType, Error, Tensor};

impl Tensor {
    /// The elements at these indices of the flattened tensor, shaped as `index`.
    ///
    /// Derivative: `dy` added at the positions of its elements.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.take(&Tensor::from([3i64, 0])).to_vec::<f64>(), [4.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the indices are not integers, or one is out of range.
    #[track_caller]
    #[must_use]
    pub fn take(&self, index: &Tensor) -> Tensor {
        self.reshape([self.len()]).gather(0, &index.reshape([index.len()])).reshape(index.shape())
    }

    /// [`Tensor::gather`] after both are broadcast on the other axes.
    ///
    /// Derivative: `dy` added at the positions of its elements.
    /// PyTorch's name: `take_along_dim`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[3, 1, 2]]);
    /// let order = x.argsort(1, false);
    /// assert_eq!(x.take_along(&order, 1).to_vec::<i32>(), [1, 2, 3]);
    /// ```
    ///
    /// # Panics
    /// If the indices are not integers, one is out of range, or the shapes do not fit.
    #[doc(alias = "take_along_dim")]
    #[doc(alias = "take_along_axis")]
    #[track_caller]
    #[must_use]
    pub fn take_along(&self, index: &Tensor, axis: isize) -> Tensor {
        let at = self.axis("take_along", axis);
        if self.rank() != index.rank() {
            let message = format!(
                "{} and the index {} differ in their number of axes",
                self.spec(),
                index.spec()
            );
            return self
                .checked(Err(Error::shape("take_along", message).on([self.spec(), index.spec()])));
        }
        let wide = |x: &Tensor, other: &Tensor| {
            let length = |i: usize| {
                if i != at && x.shape()[i] == 1 { other.shape()[i] } else { x.shape()[i] }
            };
            x.expand((0..x.rank()).map(length).collect::<Vec<usize>>())
        };
        wide(self, index).gather(axis, &wide(index, self))
    }

    /// The elements where `mask` is true, as a vector; both broadcast. The length depends on the
    /// values.
    ///
    /// Derivative: `dy` added at the positions of its elements.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1, 2], [3, 4]]);
    /// assert_eq!(x.masked_select(&x.gt(2)).to_vec::<i32>(), [3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast; while a function is traced (`jit`, `vmap`), for the shape
    /// depends on the values.
    #[track_caller]
    #[must_use]
    pub fn masked_select(&self, mask: &Tensor) -> Tensor {
        let both = self.checked(pullback_ir::infer::args::broadcast(
            "masked_select",
            self.spec(),
            mask.spec(),
        ));
        let (x, mask) = (self.expand_to(&both), mask.ne(0).expand_to(&both));
        x.reshape([x.len()]).gather(0, &positions(&mask))
    }

    /// The `k` largest (or smallest) elements of an axis in order, and where they are.
    ///
    /// Derivative: `dy` to the elements at those indices.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (values, places) = Tensor::from([3.0, 1.0, 2.0]).topk(2, 0, true);
    /// assert_eq!((values.to_vec::<f64>(), places.to_vec::<i64>()), (vec![3.0, 2.0], vec![0, 2]));
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, or shorter than `k`.
    #[doc(alias = "top_k")]
    #[track_caller]
    #[must_use]
    pub fn topk(&self, k: usize, axis: isize, largest: bool) -> (Tensor, Tensor) {
        let n = self.shape().get(self.axis("topk", axis)).copied();
        if k > n.unwrap_or(1) || (n.is_none() && k == 0) {
            let n = n.unwrap_or(1);
            let message = format!("cannot take {k} of the {n} of axis {axis} of {}", self.spec());
            return self.checked(Err(Error::argument("topk", message).on([self.spec()])));
        }
        match self.rank() {
            0 => self.sort(axis, largest),
            _ => self.ranks("topk", self.axis("topk", axis), largest, 0, k),
        }
    }

    /// The `k`-th smallest element of an axis, counted from 1, which disappears, and where it is.
    ///
    /// Derivative: `dy` to the elements at those indices.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // Counted from 1.
    /// let (value, place) = Tensor::from([30, 10, 20]).kthvalue(2, 0);
    /// assert_eq!((value.item::<i32>(), place.item::<i64>()), (20, 2));
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, or `k` is not in 1 to its length.
    #[track_caller]
    #[must_use]
    pub fn kthvalue(&self, k: usize, axis: isize) -> (Tensor, Tensor) {
        if k == 0 {
            let error =
                Error::argument("kthvalue", "k is counted from 1: the smallest element is k = 1");
            return self.checked(Err(error.on([self.spec()])));
        }
        let n = self.shape().get(self.axis("kthvalue", axis)).copied().unwrap_or(1);
        if k > n {
            let message =
                format!("k must be in 1..={n} for axis {axis} of {}, not {k}", self.spec());
            return self.checked(Err(Error::argument("kthvalue", message).on([self.spec()])));
        }
        if self.rank() == 0 {
            return self.sort(axis, false);
        }
        let (values, places) = self.ranks("kthvalue", self.axis("kthvalue", axis), false, k - 1, 1);
        (values.squeeze_axis(axis), places.squeeze_axis(axis))
    }

    /// The median of an axis, which disappears, and where it is: the lower of two; NaN if any is.
    ///
    /// Derivative: `dy` to the elements at those indices.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (value, place) = Tensor::from([4, 1, 3, 2]).median(0);
    /// assert_eq!((value.item::<i32>(), place.item::<i64>()), (2, 3));
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range or empty.
    #[track_caller]
    #[must_use]
    pub fn median(&self, axis: isize) -> (Tensor, Tensor) {
        if self.rank() == 0 {
            return self.kthvalue(1, axis);
        }
        let at = self.axis("median", axis);
        let n = self.shape()[at];
        let (values, middle) = self.ranks("median", at, false, n.saturating_sub(1) / 2, 1);
        if !self.dtype().is_float() {
            return (values.squeeze_axis(axis), middle.squeeze_axis(axis));
        }
        // NaN sorts last; where there is one, it is the median. It is found as the largest element.
        let largest = self.detach().argmax(axis).unsqueeze(axis);
        let broken = self.detach().gather(axis, &largest).is_nan();
        let place = broken.select(largest, &middle);
        (self.gather(axis, &place).squeeze_axis(axis), place.squeeze_axis(axis))
    }
}

/// The flat indices of the true elements, in order.
#[track_caller]
pub(super) fn positions(mask: &Tensor) -> Tensor {
    let flags = mask.detach().ne(0).to_vec::<bool>();
    // Every index is written, and the next one over it unless it counts: no branch, which a
    // processor could not predict.
    let mut found = vec![0; flags.len() + 1];
    let mut n = 0;
    for (i, &hit) in flags.iter().enumerate() {
        found[n] = i as i64;
        n += usize::from(hit);
    }
    found.truncate(n);
    mask.new_from_vec(found, [n])
}

/// The number of each true element of a mask among them, from 0 on, and 0 for the others; `None`
/// where values are not on the host, or observed.
#[track_caller]
pub(super) fn numbered(mask: &Tensor) -> Option<Tensor> {
    let mask = mask.detach();
    if !is_value_alone(&mask) || !mask.is_contiguous() {
        return None;
    }
    let count = |mask: &[bool]| {
        let (mut next, mut found) = (0, Vec::with_capacity(mask.len()));
        for &hit in mask {
            found.push(if hit { next } else { 0 });
            next += i64::from(hit);
        }
        found
    };
    let found = with_host_bytes(&mask, |x| elements::<bool>(DType::Bool, x).map(count))??;
    Some(mask.new_from_vec(found, mask.shape()))
}
