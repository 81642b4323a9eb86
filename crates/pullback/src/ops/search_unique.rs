//! Searching, distinct elements, and indices of elements. The results are indices, or gathers by
//! them.

use crate::backend::{elements, with_host_bytes};
use crate::ops::one_pass::is_value_alone;
use crate::ops::selection::positions;
use crate::{DType, Error, HostElement, Tensor, cat, no_grad, stack};
use std::hint::select_unpredictable;

/// How many of the elements that `before` holds for come first. Without branches that depend on
/// values, which would be guessed wrong.
fn count_before<T: Copy>(sorted: &[T], before: impl Fn(T) -> bool) -> usize {
    let (mut low, mut left) = (0, sorted.len());
    while left > 1 {
        let half = left / 2;
        low = select_unpredictable(before(sorted[low + half - 1]), low + half, low);
        left -= half;
    }
    low + usize::from(left == 1 && before(sorted[low]))
}

/// [`Tensor::searchsorted`] by a loop, where only values count and they are on the host.
#[track_caller]
fn searched(sorted: &Tensor, values: &Tensor, one_line: bool, right: bool) -> Option<Tensor> {
    #[allow(clippy::neg_cmp_op_on_partial_ord)] // of NaN neither holds
    fn of<T: HostElement + PartialOrd + Copy>(
        sorted: &Tensor,
        values: &Tensor,
        one_line: bool,
        right: bool,
    ) -> Option<Vec<i64>> {
        let (n, k) = (*sorted.shape().last()?, values.shape().last().copied().unwrap_or(1));
        let find = |line: &[T], x: T| match right {
            true => count_before(line, |found| !(found > x)) as i64,
            false => count_before(line, |found| !(found >= x)) as i64,
        };
        let sorted = sorted.to_vec::<T>();
        let values = no_grad(|| values.contiguous());
        let all = |x: &[T]| match (n, one_line) {
            (0, _) => vec![0; x.len()],
            (_, true) => x.iter().map(|&x| find(&sorted, x)).collect(),
            (_, false) => {
                let pairs = sorted.chunks_exact(n).zip(x.chunks_exact(k.max(1)));
                pairs.flat_map(|(line, x)| x.iter().map(move |&x| find(line, x))).collect()
            }
        };
        with_host_bytes(&values, |bytes| elements::<T>(T::DTYPE, bytes).map(all))?
    }
    if !is_value_alone(sorted) || !is_value_alone(values) {
        return None;
    }
    let found = match sorted.dtype() {
        DType::F64 => of::<f64>(sorted, values, one_line, right),
        DType::F32 => of::<f32>(sorted, values, one_line, right),
        DType::I64 => of::<i64>(sorted, values, one_line, right),
        DType::I32 => of::<i32>(sorted, values, one_line, right),
        DType::U8 => of::<u8>(sorted, values, one_line, right),
        DType::BF16 | DType::F16 | DType::Bool => None,
    }?;
    Some(values.new_from_vec(found, values.shape()))
}

/// The distinct elements (or slices) of a tensor.
#[derive(Clone, Debug)]
pub struct Unique {
    /// Each of them once.
    pub values: Tensor,
    /// For each element of the tensor (or slice of the axis), its number among the values.
    pub inverse: Tensor,
    /// How often each value occurs.
    pub counts: Tensor,
}

/// [`Tensor::unique`] of integers whose range is not much longer than their list: they are
/// counted, not sorted.
#[track_caller]
fn counted(x: &Tensor) -> Option<Unique> {
    fn of<T: HostElement + Copy + Into<i64>>(x: &Tensor) -> Option<Unique> {
        let x = &no_grad(|| x.contiguous());
        let count = |all: &[T]| {
            let wide = |&v: &T| -> i64 { v.into() };
            let (low, high) = (all.iter().map(wide).min()?, all.iter().map(wide).max()?);
            let range = usize::try_from(high.checked_sub(low)?).ok()?.checked_add(1)?;
            if range / 4 > all.len() {
                return None;
            }
            let at = |v: &T| (wide(v) - low) as usize;
            let (mut counts, mut first) = (vec![0i64; range], vec![all[0]; range]);
            for v in all {
                counts[at(v)] += 1;
                first[at(v)] = *v;
            }
            let mut values = Vec::new();
            let mut found = Vec::new();
            let mut number = vec![0i64; range];
            for (k, &n) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
                number[k] = values.len() as i64;
                values.push(first[k]);
                found.push(n);
            }
            Some((values, found, all.iter().map(|v| number[at(v)]).collect::<Vec<i64>>()))
        };
        let all = with_host_bytes(x, |bytes| elements::<T>(T::DTYPE, bytes).map(count));
        let (values, counts, inverse) = all???;
        let n = values.len();
        Some(Unique {
            values: x.new_from_vec(values, [n]),
            inverse: x.new_from_vec(inverse, x.shape()),
            counts: x.new_from_vec(counts, [n]),
        })
    }
    if !is_value_alone(x) {
        return None;
    }
    match x.dtype() {
        DType::I64 => of::<i64>(x),
        DType::I32 => of::<i32>(x),
        DType::U8 => of::<u8>(x),
        DType::F64 | DType::F32 | DType::BF16 | DType::F16 | DType::Bool => None,
    }
}

impl Tensor {
    /// Where each of `values` belongs in this sorted sequence: the number of elements before it;
    /// with `right`, after those that equal it. The sequence is the last axis; it is one for all
    /// values, or has one for each line of them.
    ///
    /// Derivative: none (an index).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let sorted = Tensor::from([1.0, 3.0, 5.0]);
    /// let values = Tensor::from([3.0, 4.0]);
    /// assert_eq!(sorted.searchsorted(&values, false).to_vec::<i64>(), [1, 2]);
    /// assert_eq!(sorted.searchsorted(&values, true).to_vec::<i64>(), [2, 2]);
    /// ```
    ///
    /// # Panics
    /// If the sequence is 0-d, or differs from the values in an axis before the last.
    #[track_caller]
    #[must_use]
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Tensor {
        let (Some((&n, lines)), wanted) = (self.shape().split_last(), values.shape()) else {
            let error = Error::shape("searchsorted", "a 0-d tensor is not a sequence");
            return self.checked(Err(error.on([self.spec(), values.spec()])));
        };
        let alike = wanted.len() == self.rank() && &wanted[..lines.len()] == lines;
        if !lines.is_empty() && !alike {
            let message =
                format!("{} and {} differ in an axis before the last", self.spec(), values.spec());
            let error = Error::shape("searchsorted", message);
            return self.checked(Err(error.on([self.spec(), values.spec()])));
        }
        let dtype = match (self.dtype(), values.dtype()) {
            (DType::Bool, DType::Bool) => DType::U8,
            (a, b) if a == b => a,
            (a, b) if a.is_float() || b.is_float() => DType::F64,
            _ => DType::I64,
        };
        let (sorted, x) = (self.detach().cast(dtype), values.detach().cast(dtype));
        if let Some(found) = searched(&sorted, &x, lines.is_empty(), right) {
            return found;
        }
        let x = if lines.is_empty() { x.reshape([x.len()]) } else { x };
        // A binary search for all values at once: the answer lies between low and high.
        let mut low = x.new_zeros_with(x.shape(), DType::I64);
        let mut high = low.full_like(n as i64);
        for _ in 0..(n + 1).next_power_of_two().ilog2() {
            let open = low.lt(&high);
            let middle = (&low + &high).floor_div(2);
            let found = sorted.gather(-1, &middle.clamp_max(n as i64 - 1));
            // NaN is neither greater nor equal: it sorts last.
            let after = if right { found.gt(&x) } else { found.ge(&x) };
            high = open.logical_and(&after).select(&middle, &high);
            low = open.logical_and(after.logical_not()).select(&middle + 1, &low);
        }
        low.reshape(wanted)
    }

    /// The number of the bin that each element falls into, between sorted `boundaries`:
    /// [`Tensor::searchsorted`] the other way round.
    ///
    /// Derivative: none (an index).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let edges = Tensor::from([0.0, 10.0]);
    /// assert_eq!(Tensor::from([-5.0, 5.0, 10.0]).bucketize(&edges, false).to_vec::<i64>(), [0, 1, 1]);
    /// ```
    ///
    /// # Panics
    /// If the boundaries are not a vector.
    #[doc(alias = "digitize")]
    #[track_caller]
    #[must_use]
    pub fn bucketize(&self, boundaries: &Tensor, right: bool) -> Tensor {
        if boundaries.rank() != 1 {
            let message = format!("boundaries must be a vector, not {}", boundaries.spec());
            return self.checked(Err(Error::shape("bucketize", message).on([boundaries.spec()])));
        }
        boundaries.searchsorted(self, right)
    }

    /// Whether each element is one of those of `other`.
    ///
    /// Derivative: none (a `bool`).
    /// PyTorch's name: `isin`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([1, 2, 3]).is_in(&Tensor::from([3, 1]));
    /// assert_eq!(y.to_vec::<bool>(), [true, false, true]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[doc(alias = "isin")]
    #[track_caller]
    #[must_use]
    pub fn is_in(&self, other: &Tensor) -> Tensor {
        if other.is_empty() {
            return self.new_zeros_with(self.shape(), DType::Bool);
        }
        let dtype = self.dtype().promote(other.dtype());
        let dtype = if dtype == DType::Bool { DType::U8 } else { dtype };
        let (x, other) = (self.detach().cast(dtype), other.detach().cast(dtype));
        let sorted = other.reshape([other.len()]).sort(0, false).0;
        let place = sorted.searchsorted(&x, false).clamp_max(other.len() as i64 - 1);
        sorted.take(&place).eq(&x)
    }

    /// The distinct elements in ascending order. Each NaN is its own.
    ///
    /// Derivative: for the values, `dy` to one element that equals each.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let u = Tensor::from([3, 1, 3]).unique();
    /// assert_eq!(u.values.to_vec::<i32>(), [1, 3]);
    /// assert_eq!(u.inverse.to_vec::<i64>(), [1, 0, 1]);
    /// assert_eq!(u.counts.to_vec::<i64>(), [1, 2]);
    /// ```
    ///
    /// # Panics
    /// While a function is traced (`jit`, `vmap`): the shape depends on the values.
    #[track_caller]
    #[must_use]
    pub fn unique(&self /* along an axis: unique_over(axis) */) -> Unique {
        if let Some(found) = counted(self) {
            return found;
        }
        let flat = self.reshape([self.len()]);
        let order = flat.detach().sort(0, false).1;
        let found = flat.grouped(0, &order);
        Unique { inverse: found.inverse.reshape(self.shape()), ..found }
    }

    /// The distinct slices of an axis, in ascending (lexicographic) order.
    ///
    /// Derivative: for the values, `dy` to one slice that equals each.
    /// PyTorch's name: `unique`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let u = Tensor::from([[3, 1], [0, 2], [3, 1]]).unique_over(0);
    /// assert_eq!(u.values.to_vec::<i32>(), [0, 2, 3, 1]);
    /// assert_eq!(u.inverse.to_vec::<i64>(), [1, 0, 1]);
    /// assert_eq!(u.counts.to_vec::<i64>(), [1, 2]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range; while a function is traced (`jit`, `vmap`), for the shape
    /// depends on the values.
    #[doc(alias = "unique")]
    #[track_caller]
    #[must_use]
    pub fn unique_over(&self, axis: isize) -> Unique {
        let n = self.length("unique", axis);
        let rows = self.detach().move_axis(axis, 0).reshape([n, self.len() / n.max(1)]);
        // Stable sorts from the last column to the first: the first decides.
        let mut order = self.new_iota(n);
        for k in (0..rows.shape()[1]).rev() {
            let keys = rows.select_at(1, k as isize).index_select(0, &order);
            order = order.index_select(0, &keys.sort(0, false).1);
        }
        self.grouped(axis, &order)
    }

    /// The elements (in row-major order) without those that equal the one before.
    ///
    /// Derivative: for the values, `dy` to the first element of each run.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let u = Tensor::from([3, 3, 1, 3]).unique_consecutive();
    /// assert_eq!(u.values.to_vec::<i32>(), [3, 1, 3]);
    /// assert_eq!(u.counts.to_vec::<i64>(), [2, 1, 1]);
    /// ```
    ///
    /// # Panics
    /// While a function is traced (`jit`, `vmap`): the shape depends on the values.
    #[track_caller]
    #[must_use]
    pub fn unique_consecutive(&self, /* along an axis: unique_consecutive_over(axis) */) -> Unique {
        let flat = self.reshape([self.len()]);
        let found = flat.grouped(0, &self.new_iota(self.len()));
        Unique { inverse: found.inverse.reshape(self.shape()), ..found }
    }

    /// The slices of an axis without those that equal the one before.
    ///
    /// Derivative: for the values, `dy` to the first slice of each run.
    /// PyTorch's name: `unique_consecutive`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let u = Tensor::from([[3, 1], [3, 1], [0, 2]]).unique_consecutive_over(0);
    /// assert_eq!(u.values.to_vec::<i32>(), [3, 1, 0, 2]);
    /// assert_eq!(u.inverse.to_vec::<i64>(), [0, 0, 1]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range; while a function is traced (`jit`, `vmap`), for the shape
    /// depends on the values.
    #[doc(alias = "unique_consecutive")]
    #[track_caller]
    #[must_use]
    pub fn unique_consecutive_over(&self, axis: isize) -> Unique {
        let n = self.length("unique_consecutive", axis);
        self.grouped(axis, &self.new_iota(n))
    }

    /// Runs of equal slices of an axis, taken in this order.
    #[track_caller]
    fn grouped(&self, axis: isize, order: &Tensor) -> Unique {
        let n = order.len();
        if n == 0 {
            let none = self.new_zeros_with([0], DType::I64);
            return Unique { values: self.deep_clone(), inverse: none.clone(), counts: none };
        }
        let sorted = self.index_select(axis, order);
        let rows = sorted.detach().move_axis(axis, 0).reshape([n, self.len() / n]);
        let differ = rows.narrow(0, 1, n - 1).ne(rows.narrow(0, 0, n - 1));
        let differ = if self.len() == n { differ.reshape([n - 1]) } else { differ.any_over(1) };
        let first = self.new_tensor([true]);
        let starts = cat(&[&first, &differ], 0);
        let number = starts.cast(DType::I64).cumsum(0) - 1;
        let inverse = self.new_zeros_with([n], DType::I64).scatter(0, order, &number);
        Unique {
            values: sorted.index_select(axis, &positions(&starts)),
            inverse,
            counts: number.bincount(None, 0),
        }
    }

    /// The indices of the elements that are not zero, one per row, in row-major order. The number
    /// of rows depends on the values.
    ///
    /// Derivative: none (an index).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([[0, 5], [7, 0]]).nonzero();
    /// assert_eq!(y.to_vec::<i64>(), [0, 1, 1, 0]);
    /// ```
    ///
    /// # Panics
    /// While a function is traced (`jit`, `vmap`): the shape depends on the values.
    #[doc(alias = "argwhere")]
    #[track_caller]
    #[must_use]
    pub fn nonzero(&self) -> Tensor {
        let flat = positions(self);
        let columns = flat.unravel_index(self.shape());
        match columns.is_empty() {
            true => self.new_zeros_with([flat.len(), 0], DType::I64),
            false => stack(&columns.iter().collect::<Vec<_>>(), 1),
        }
    }

    /// Indices into a flattened tensor of this shape, as one index for each of its axes.
    ///
    /// Derivative: none (an index).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let at = Tensor::from([5i64]).unravel_index(&[2, 3]);
    /// assert_eq!((at[0].to_vec::<i64>(), at[1].to_vec::<i64>()), (vec![1], vec![2]));
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype. An index beyond the end is wrapped around.
    #[track_caller]
    #[must_use]
    pub fn unravel_index(&self, shape: &[usize]) -> Vec<Tensor> {
        let mut flat = self.detach().cast(DType::I64);
        let mut columns = Vec::with_capacity(shape.len());
        for &n in shape.iter().rev() {
            let n = n.max(1) as i64;
            let above = flat.floor_div(n);
            columns.push(flat - &above * n);
            flat = above;
        }
        columns.reverse();
        columns
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Tensor, jit};

    /// Integers that are counted and those that are sorted, as a far one is among them.
    #[test]
    fn counted_elements_are_those_that_are_sorted() {
        let near: Vec<i64> = (0..500).map(|i| (i * 37 + i / 7) % 61 - 30).collect();
        let far: Vec<i64> = near.iter().copied().chain([i64::MAX, i64::MIN]).collect();
        let (a, b) = (Tensor::from(&near[..]).reshape([50, 10]), Tensor::from(&far[..]));
        let (a, b) = (a.unique(), b.unique());
        let (values, counts) = (b.values.to_vec::<i64>(), b.counts.to_vec::<i64>());
        let n = values.len() - 2;
        assert_eq!(a.values.to_vec::<i64>(), values[1..=n]);
        assert_eq!(a.counts.to_vec::<i64>(), counts[1..=n]);
        let inverse: Vec<i64> = b.inverse.to_vec::<i64>()[..500].iter().map(|k| k - 1).collect();
        assert_eq!((a.inverse.shape(), a.inverse.to_vec::<i64>()), (&[50, 10][..], inverse));
        let bytes = Tensor::from(vec![7u8, 255, 7, 0]).unique();
        assert_eq!(bytes.values.to_vec::<u8>(), [0, 7, 255]);
        assert_eq!(bytes.inverse.to_vec::<i64>(), [1, 2, 1, 0]);
    }

    /// The loop, the composite that a trace takes, and counting agree, with ties and at both ends.
    #[test]
    #[allow(clippy::neg_cmp_op_on_partial_ord)] // of NaN neither holds
    fn searches_agree_with_counting() {
        for n in [0usize, 1, 2, 7, 8, 64, 100] {
            let sorted: Vec<f32> = (0..n).map(|i| (i / 2) as f32).collect();
            let values: Vec<f32> =
                (0..60).map(|i| i as f32 * 0.5 - 2.0).chain([f32::NAN]).collect();
            for right in [false, true] {
                let before = |x: f32| match right {
                    true => sorted.iter().filter(|&&s| !(s > x)).count() as i64,
                    false => sorted.iter().filter(|&&s| !(s >= x)).count() as i64,
                };
                let wanted: Vec<i64> = values.iter().map(|&x| before(x)).collect();
                let line = Tensor::from_vec(&sorted[..], [n]);
                let x = Tensor::from_vec(&values[..], [values.len()]);
                assert_eq!(line.searchsorted(&x, right).to_vec::<i64>(), wanted, "{n} {right}");
                let pair = (line.clone(), x.clone());
                let traced = jit(move |(s, x): &(Tensor, Tensor)| s.searchsorted(x, right));
                assert_eq!(traced.of(&pair).to_vec::<i64>(), wanted, "{n} {right}, traced");
                let whole = (line.cast(DType::I64), x.nan_to_num(0.0, 0.0, 0.0).cast(DType::I64));
                let integers = whole.0.searchsorted(&whole.1, right);
                let wanted: Vec<i64> =
                    whole.1.to_vec::<i64>().iter().map(|&x| before(x as f32)).collect();
                assert_eq!(integers.to_vec::<i64>(), wanted, "{n} {right}, integers");
            }
        }
        let lines = Tensor::from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        let found = lines.searchsorted(&Tensor::from([[2.5, 9.0], [2.5, 5.0]]), false);
        assert_eq!(found.to_vec::<i64>(), [2, 3, 0, 1]);
    }
}
