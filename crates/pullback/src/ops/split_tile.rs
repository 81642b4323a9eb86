//! Cutting a tensor into pieces, moving several axes at once, and tensors made of all pairs of
//! others.

use crate::checked_alloc::{TENSOR, check_list};
use crate::create::known_shape;
use crate::{Error, ErrorKind, IntoAxes, IntoShape, Tensor, fail, meshgrid, mode, stack, trace};
use pullback_ir::Line;
use pullback_ir::infer::args;

impl Tensor {
    /// `count` pieces of nearly equal length along an axis, as views; the first ones are longer by
    /// one where it does not divide. (PyTorch's `tensor_split` with a number; `hsplit`, `vsplit`
    /// and `dsplit` are axes 1, 0 and 2.)
    ///
    /// Views: what is written into one is written into the tensor.
    /// Derivative: the `dy` of the pieces, concatenated.
    /// PyTorch's name: `tensor_split`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let pieces = Tensor::arange(0, 5).split_into(2, 0);
    /// assert_eq!((pieces[0].to_vec::<i64>(), pieces[1].to_vec::<i64>()), (vec![0, 1, 2], vec![3, 4]));
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, or `count` is 0.
    #[doc(alias = "tensor_split")]
    #[track_caller]
    #[must_use]
    pub fn split_into(&self, count: usize, axis: isize) -> Vec<Tensor> {
        let n = self.length("split_into", axis);
        if count == 0 {
            let error =
                Error::argument("split_into", "cannot split into 0 pieces").on([self.spec()]);
            return self.checked(Err(error));
        }
        // The number of empty pieces is limited.
        if count > n.saturating_add(1 << 20) {
            let message = format!("cannot split an axis of length {n} into {count} pieces");
            return self.checked(Err(Error::argument("split_into", message).on([self.spec()])));
        }
        check_list("split_into", count, TENSOR, &[self.spec()]);
        let sizes: Vec<usize> =
            (0..count).map(|i| n / count + usize::from(i < n % count)).collect();
        self.split_sizes(&sizes, axis)
    }

    /// The pieces between these places of an axis, as views: the first ends before `places[0]`.
    /// Places outside are the ends, negative ones count from the end. (PyTorch's `tensor_split`
    /// with a list.)
    ///
    /// Views: what is written into one is written into the tensor.
    /// Derivative: the `dy` of the pieces, concatenated.
    /// PyTorch's name: `tensor_split`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let pieces = Tensor::arange(0, 5).split_at(&[1, 3], 0);
    /// assert_eq!(pieces[1].to_vec::<i64>(), [1, 2]);
    /// assert_eq!(pieces[2].to_vec::<i64>(), [3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[doc(alias = "tensor_split")]
    #[track_caller]
    #[must_use]
    pub fn split_at(&self, places: &[isize], axis: isize) -> Vec<Tensor> {
        let n = self.length("split_at", axis) as isize;
        let inside = |&i: &isize| (if i < 0 { i.saturating_add(n) } else { i }).clamp(0, n);
        let bounds: Vec<isize> =
            [0].into_iter().chain(places.iter().map(inside)).chain([n]).collect();
        let mut pieces = Vec::with_capacity(bounds.len() - 1);
        for ends in bounds.windows(2) {
            pieces.push(self.narrow(axis, ends[0], (ends[1] - ends[0]).max(0) as usize));
        }
        pieces
    }

    /// The length of an axis, which a 0-d tensor does not have.
    #[track_caller]
    pub(super) fn length(&self, op: &'static str, axis: isize) -> usize {
        match self.shape().get(self.axis(op, axis)) {
            Some(&n) => n,
            None => {
                self.checked(Err(Error::shape(op, "a 0-d tensor has no axis").on([self.spec()])))
            }
        }
    }

    /// At least `rank` axes: a vector becomes a row, a matrix one of depth 1 (new axes in front,
    /// the third at the end).
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` in the old shape.
    /// PyTorch's name: `atleast_1d`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([4]).at_least(2).shape(), [1, 4]);
    /// assert_eq!(Tensor::zeros([4, 5]).at_least(3).shape(), [4, 5, 1]);
    /// ```
    ///
    /// # Panics
    /// If `rank` is more than 3.
    #[doc(alias = "atleast_1d")]
    #[track_caller]
    #[must_use]
    pub fn at_least(&self, rank: usize) -> Tensor {
        if rank > 3 {
            let message = format!("rank must be at most 3, not {rank}");
            return self.checked(Err(Error::argument("at_least", message).on([self.spec()])));
        }
        super::stack_pad::raised(self, rank)
    }

    /// Moves several axes to other positions; the others keep their order. (PyTorch's `movedim`
    /// with lists.)
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` with the axes moved back.
    /// PyTorch's name: `movedim`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3, 4]).move_axes([0, 1], [2, 0]).shape(), [3, 4, 2]);
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range or named twice, or the lists differ in length.
    #[doc(alias = "movedim")]
    #[track_caller]
    #[must_use]
    pub fn move_axes(&self, from: impl IntoAxes, to: impl IntoAxes) -> Tensor {
        let (from, to) = (from.list(), to.list());
        let known = |list: &[isize]| args::axes("move_axes", list, self.spec());
        let (sorted_from, sorted_to) = (self.checked(known(&from)), self.checked(known(&to)));
        if from.len() != to.len() || sorted_from.len() != from.len() || sorted_to.len() != to.len()
        {
            let message = format!(
                "cannot move axes {from:?} to {to:?}: both lists must be equally long and name no \
                 axis twice"
            );
            return self.checked(Err(Error::argument("move_axes", message).on([self.spec()])));
        }
        if self.rank() == 0 {
            return self.clone();
        }
        let front = |i: &isize| i.rem_euclid(self.rank() as isize) as usize;
        let (from, to): (Vec<usize>, Vec<usize>) =
            (from.iter().map(front).collect(), to.iter().map(front).collect());
        let mut rest = (0..self.rank()).filter(|i| !from.contains(i));
        let place = |i: usize| match to.iter().position(|&t| t == i) {
            Some(k) => from[k],
            None => rest.next().unwrap_or(0),
        };
        self.permute((0..self.rank()).map(place).collect::<Vec<usize>>())
    }

    /// Removes those of these axes that have length 1.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` in the old shape.
    /// PyTorch's name: `squeeze`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::zeros([1, 3, 1, 1]);
    /// assert_eq!(x.squeeze_axes([0, 1, 3]).shape(), [3, 1]);
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range or named twice.
    #[doc(alias = "squeeze")]
    #[track_caller]
    #[must_use]
    pub fn squeeze_axes(&self, axes: impl IntoAxes) -> Tensor {
        if self.rank() == 0 {
            return self.clone();
        }
        let axes = self.checked(args::axes("squeeze_axes", &axes.list(), self.spec()));
        let stays = |i: &usize| !(axes.contains(i) && self.shape()[*i] == 1);
        let shape: Vec<usize> = (0..self.rank()).filter(stays).map(|i| self.shape()[i]).collect();
        self.reshape(&shape[..])
    }

    /// Rotated by `quarters` quarter turns in the plane of axes `a` and `b`, from `a` towards `b`.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` rotated back.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1, 2], [3, 4]]);
    /// assert_eq!(x.rot90(1, 0, 1).to_vec::<i32>(), [2, 4, 1, 3]);
    /// ```
    ///
    /// # Panics
    /// If the axes are out of range or the same.
    #[track_caller]
    #[must_use]
    pub fn rot90(&self, quarters: isize, a: isize, b: isize) -> Tensor {
        if self.rank() < 2 || self.axis("rot90", a) == self.axis("rot90", b) {
            let message =
                format!("the axes must be two different ones, not {a} and {b} of {}", self.spec());
            return self.checked(Err(Error::argument("rot90", message).on([self.spec()])));
        }
        match quarters.rem_euclid(4) {
            0 => self.clone(),
            1 => self.flip(b).transpose(a, b),
            2 => self.flip([a, b]),
            _ => self.flip(a).transpose(a, b),
        }
    }

    /// [`Tensor::repeat`] where `times` may name the last axes only.
    ///
    /// Derivative: of its formula.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[1, 2]]).tile([2]).to_vec::<i32>(), [1, 2, 1, 2]);
    /// ```
    ///
    /// # Panics
    /// If the result is larger than memory.
    #[track_caller]
    #[must_use]
    pub fn tile(&self, times: impl AsRef<[usize]>) -> Tensor {
        let times = times.as_ref();
        let missing = self.rank().saturating_sub(times.len());
        self.repeat([&vec![1; missing][..], times].concat())
    }

    /// Slice `i` of an axis `times[i]` times in a row; one number applies to all. (PyTorch's
    /// `repeat_interleave` with a tensor.)
    ///
    /// Derivative: each slice gets the sum of `dy` over its copies.
    /// PyTorch's name: `repeat_interleave`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([5, 6, 7]);
    /// assert_eq!(x.repeat_by(&Tensor::from([2i64, 0, 1]), 0).to_vec::<i32>(), [5, 5, 7]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, there is not one integer for each of its slices (or one for
    /// all), or one is negative; while a function is traced, for the shape depends on the values.
    #[doc(alias = "repeat_interleave")]
    #[track_caller]
    #[must_use]
    pub fn repeat_by(&self, times: &Tensor, axis: isize) -> Tensor {
        let n = self.length("repeat_by", axis);
        let whole = !times.dtype().is_float() && times.dtype() != crate::DType::Bool;
        if !whole || times.rank() > 1 || !(times.len() == n || times.len() == 1) {
            let message = format!("takes one number, or {n} of them, not {}", times.spec());
            return self.checked(Err(
                Error::argument("repeat_by", message).on([self.spec(), times.spec()])
            ));
        }
        if trace::check_readable(times, "repeat_by").is_err() {
            let message = "the length of the result depends on values, which are not known here";
            let error = Error::new(ErrorKind::Program, "repeat_by", message).on([times.spec()]);
            let hint = "where the length is known, use index_select with \
                times.cumsum(0).searchsorted(times.new_arange(0, length), true)";
            return self.checked(Err(error.hint(hint)));
        }
        let mut counts = times.detach().cast(crate::DType::I64).to_vec::<i64>();
        if counts.len() != n {
            counts = vec![counts[0]; n];
        }
        if let Some(count) = counts.iter().find(|&&count| count < 0) {
            let message = format!("the number of copies must not be negative, not {count}");
            return self.checked(Err(Error::argument("repeat_by", message).on([times.spec()])));
        }
        let total = counts.iter().fold(0usize, |sum, &k| sum.saturating_add(k as usize));
        check_list("repeat_by", total, size_of::<i64>(), &[self.spec(), times.spec()]);
        let index: Vec<i64> = (0..).zip(counts).flat_map(|(i, k)| (0..k).map(move |_| i)).collect();
        self.index_select(axis, &self.new_tensor(index))
    }

    /// Summed over the axes that a broadcast from `shape` would repeat: the transpose of
    /// [`Tensor::expand`].
    ///
    /// Derivative: `dy` expanded.
    /// PyTorch's name: `sum_to_size`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.sum_to_shape([2]).to_vec::<f64>(), [4.0, 6.0]);
    /// assert_eq!(x.sum_to_shape([2, 1]).to_vec::<f64>(), [3.0, 7.0]);
    /// ```
    ///
    /// # Panics
    /// If the shape does not broadcast to that of the tensor.
    #[doc(alias = "sum_to_size")]
    #[track_caller]
    #[must_use]
    pub fn sum_to_shape(&self, shape: impl IntoShape) -> Tensor {
        let shape = known_shape("sum_to_shape", shape);
        let back = self.spec().with_shape(shape.clone());
        let whole = args::broadcast("sum_to_shape", &back, self.spec());
        if whole.ok().as_ref() != Some(self.dims()) {
            let message = format!("{:?} does not broadcast to {}", &shape[..], self.spec());
            return self.checked(Err(Error::shape("sum_to_shape", message).on([self.spec()])));
        }
        self.sum_to(&shape).unaliased_with(&[self])
    }

    /// All selections of `count` of a vector's elements, in order, one per row.
    ///
    /// Derivative: each element gets the sum of `dy` where it occurs.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let pairs = Tensor::from([1, 2, 3]).combinations(2, false);
    /// assert_eq!(pairs.to_vec::<i32>(), [1, 2, 1, 3, 2, 3]);
    /// ```
    ///
    /// # Panics
    /// If the operand is not a vector.
    #[track_caller]
    #[must_use]
    pub fn combinations(&self, count: usize, with_replacement: bool) -> Tensor {
        if self.rank() != 1 {
            let message = format!("takes a vector, not {}", self.spec());
            return self.checked(Err(Error::shape("combinations", message).on([self.spec()])));
        }
        let n = self.len();
        let rows = match count {
            0 => 0,
            _ => selections(n, count, with_replacement),
        };
        check_list("combinations", rows.saturating_mul(count), size_of::<i64>(), &[self.spec()]);
        let mut index: Vec<i64> = Vec::with_capacity(rows * count);
        let step = i64::from(!with_replacement);
        let mut row: Vec<i64> = (0..count.min(n) as i64).map(|i| i * step).collect();
        row.resize(if rows == 0 { 0 } else { count }, 0);
        for _ in 0..rows {
            index.extend(&row);
            // The last position that can advance does, and those after it follow.
            let most = |k: usize| n as i64 - 1 - (count - 1 - k) as i64 * step;
            if let Some(k) = (0..count).rev().find(|&k| row[k] < most(k)) {
                let first = row[k] + 1;
                row.iter_mut().skip(k).zip(0..).for_each(|(i, j)| *i = first + j * step);
            }
        }
        let shape = [rows, count];
        self.take(&self.new_from_vec(index, shape))
    }
}

/// How many selections of `count` of `n` elements there are; the largest number where there are
/// more.
fn selections(n: usize, count: usize, with_replacement: bool) -> usize {
    let from = match with_replacement {
        true if n == 0 => return 0,
        true => n.saturating_add(count - 1),
        false => n,
    };
    let Some(rest) = from.checked_sub(count) else { return 0 };
    // Each product of `i` neighbouring numbers is a multiple of `i!`, so nothing is lost on the
    // way.
    let mut found = 1u128;
    for i in 1..=count.min(rest) as u128 {
        found = found * (from as u128 - i + 1) / i;
        if found > usize::MAX as u128 {
            return usize::MAX;
        }
    }
    found as usize
}

/// Every choice of one element from each vector, one per row: the grid they span, as a list.
///
/// Derivative: each element gets the sum of `dy` where it occurs.
///
/// ```
/// use pullback::{Tensor, cartesian_prod};
/// let y = cartesian_prod(&[&Tensor::from([1, 2]), &Tensor::from([3, 4])]);
/// assert_eq!(y.to_vec::<i32>(), [1, 3, 1, 4, 2, 3, 2, 4]);
/// ```
///
/// # Panics
/// If there is no tensor, or one is not a vector.
#[track_caller]
#[must_use]
pub fn cartesian_prod(vectors: &[&Tensor]) -> Tensor {
    let at = mode::user_line(Line::caller());
    if let Some(x) = vectors.iter().find(|x| x.rank() != 1) {
        let error = Error::shape("cartesian_prod", format!("takes vectors, not {}", x.spec()));
        fail::raise(error.at(at));
    }
    if let [one] = vectors {
        return one.deep_clone();
    }
    if vectors.is_empty() {
        fail::raise(Error::argument("cartesian_prod", "needs at least one vector").at(at));
    }
    let mut columns = Vec::with_capacity(vectors.len());
    for x in meshgrid(vectors) {
        columns.push(x.reshape([x.len()]));
    }
    stack(&columns.iter().collect::<Vec<_>>(), 1)
}

/// Broadcasts tensors to their common shape.
///
/// Views: each shares the memory of its tensor.
/// Derivative: `dy` summed over what was repeated.
///
/// ```
/// use pullback::{Tensor, broadcast_tensors};
/// let both = broadcast_tensors(&[&Tensor::zeros([3, 1]), &Tensor::zeros([4])]);
/// assert_eq!((both[0].shape(), both[1].shape()), (&[3, 4][..], &[3, 4][..]));
/// ```
///
/// # Panics
/// If the shapes do not broadcast.
#[track_caller]
#[must_use]
pub fn broadcast_tensors(tensors: &[&Tensor]) -> Vec<Tensor> {
    let at = mode::user_line(Line::caller());
    let Some(first) = tensors.first() else { return Vec::new() };
    let mut spec = first.spec().clone();
    for x in &tensors[1..] {
        let shape = args::broadcast("broadcast_tensors", &spec, x.spec());
        spec = spec.with_shape(fail::or_raise(shape.map_err(|e| e.at(at))));
    }
    let mut wide = Vec::with_capacity(tensors.len());
    for x in tensors {
        wide.push(x.expand_to(&spec.shape));
    }
    wide
}
