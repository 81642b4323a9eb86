//! Views: the same elements at other indices. Nothing moves, except where a reshape of elements
//! that are not evenly spaced has to copy.

use crate::apply::apply;
use crate::create::known_shape;
use crate::rule::{Adds, Grad, RuleContext};
use crate::{Error, IntoAxes, IntoShape, Op, Result, Tensor, fail, mode};
use pullback_ir::infer::args;
use pullback_ir::{Axes, Line, Shape, Span, View, inverse_order};
use smallvec::SmallVec;

/// Every view is linear; the transpose puts `dy` where the elements came from.
pub(crate) fn row(view: &View) -> Grad {
    use super::{linear, linear_adding};
    match view {
        View::Reshape(_) => linear("`dy` in the old shape", |f, _, dy| dy.reshape(f.in_shape(0))),
        View::Permute(_) => linear("`dy` permuted back", |f, _, dy| match f.op {
            Op::View(View::Permute(order)) => dy.apply_view(View::Permute(inverse_order(order))),
            _ => unreachable!("called for Permute"),
        }),
        View::Broadcast(_) => {
            linear("`dy` summed over the new axes", |f, _, dy| dy.sum_to(f.in_shape(0)))
        }
        View::Flip(_) => linear("`dy` flipped", |f, _, dy| apply(f.op.clone(), &[dy])),
        View::Slice(_) | View::Diagonal { .. } => linear_adding(
            "`dy` zero-padded to the operand's shape",
            put_back,
            Adds::Into(add_to_part),
        ),
        View::Unfold { .. } => linear("`dy` of all windows added up in place", fold),
    }
}

/// The transpose of a view that shows no element twice: `dy` zero-padded to the operand's shape.
fn put_back(f: &RuleContext, _: usize, dy: &Tensor) -> Tensor {
    let Op::View(view) = f.op else { unreachable!("called for a view") };
    apply(Op::Put(vec![view.clone()]), &[&Tensor::zeros_of(f.in_spec(0)), dy])
}

/// `dy` added to its part of a gradient that is there already: so all slices of a tensor together
/// cost as much as the tensor.
fn add_to_part(f: &RuleContext, _: usize, dy: &Tensor, sum: &Tensor) -> bool {
    let Op::View(view) = f.op else { unreachable!("called for a view") };
    sum.add_to_part_if_sole(view, dy)
}

/// The transpose of `unfold`: windows added up where they overlap.
fn fold(f: &RuleContext, _: usize, dy: &Tensor) -> Tensor {
    let Op::View(View::Unfold { axis, size, step }) = *f.op else {
        unreachable!("called for Unfold")
    };
    let windows = dy.shape()[axis];
    let starts = dy.new_iota(windows).reshape([windows as isize, 1]) * step;
    let index = (starts + dy.new_iota(size)).reshape([-1]);
    let rows = dy.move_axis(-1, axis as isize + 1).flatten(axis as isize, axis as isize + 1);
    Tensor::zeros_of(f.in_spec(0)).index_add(axis as isize, &index, &rows)
}

/// Linear in the base and in the replacement.
pub(crate) fn put_row() -> Grad {
    super::linear(
        "`dbase = dy` with the part set to zero, `dpart` = the part of `dy`",
        |f, i, dy| {
            let Op::Put(views) = f.op else { unreachable!("called for Put") };
            match i {
                0 => apply(f.op.clone(), &[dy, &Tensor::zeros_of(f.in_spec(1))]),
                _ => views.iter().fold(dy.clone(), |x, v| x.apply_view(v.clone())),
            }
        },
    )
}

/// More elements than any axis has, small enough to be added without overflow.
const MAX_LENGTH: usize = isize::MAX as usize;

impl Tensor {
    #[track_caller]
    pub(crate) fn apply_view(&self, view: View) -> Tensor {
        apply(Op::View(view), &[self])
    }

    /// Unwraps what `args` made of a user's arguments, with the user's line.
    #[track_caller]
    pub(crate) fn checked<T>(&self, result: Result<T>) -> T {
        let at = mode::user_line(Line::caller());
        fail::or_raise(result.map_err(|e| e.at(at)))
    }

    #[track_caller]
    pub(crate) fn axis(&self, op: &'static str, axis: isize) -> usize {
        self.checked(args::axis(op, axis, self.spec()))
    }

    /// The same elements under another shape; one length may be `-1`.
    ///
    /// A view where the elements are evenly spaced; where they are not, a copy.
    /// Derivative: `dy` in the old shape.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::arange(0, 6).reshape([2, -1]);
    /// assert_eq!(x.shape(), [2, 3]);
    /// ```
    ///
    /// # Panics
    /// If the shape does not have as many elements, or more than one length is `-1`.
    #[track_caller]
    #[must_use]
    pub fn reshape(&self, shape: impl IntoShape) -> Tensor {
        let shape = self.checked(args::reshape(&shape.lengths(), self.spec()));
        match *self.dims() == shape {
            true => self.clone(),
            false => self.apply_view(View::Reshape(shape)),
        }
    }

    /// [`Tensor::reshape`] under PyTorch's name. Where PyTorch refuses to make a view, it copies.
    ///
    /// A view where the elements are evenly spaced; where they are not, a copy.
    /// Derivative: `dy` in the old shape.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([2, 6]).view([3, -1]).shape(), [3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the number of elements differs.
    #[track_caller]
    #[must_use]
    #[inline]
    pub fn view(&self, shape: impl IntoShape) -> Tensor {
        self.reshape(shape)
    }

    /// Permutes the axes.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` with the axes back in order.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // Axis k of the result is axis `order[k]` of the tensor.
    /// assert_eq!(Tensor::zeros([2, 3, 4]).permute([2, 0, 1]).shape(), [4, 2, 3]);
    /// ```
    ///
    /// # Panics
    /// If `order` does not name each axis once.
    #[track_caller]
    #[must_use]
    pub fn permute(&self, order: impl IntoAxes) -> Tensor {
        let order = self.checked(args::order("permute", &order.list(), self.spec()));
        self.apply_view(View::Permute(order))
    }

    /// Swaps two axes.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` with the axes back in order.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1, 2, 3], [4, 5, 6]]);
    /// assert_eq!(x.transpose(0, 1).shape(), [3, 2]);
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range.
    #[doc(alias = "swapaxes")]
    #[doc(alias = "swapdims")]
    #[track_caller]
    #[must_use]
    pub fn transpose(&self, a: isize, b: isize) -> Tensor {
        let (a, b) = (self.axis("transpose", a), self.axis("transpose", b));
        if self.rank() == 0 {
            return self.clone();
        }
        let mut order: Axes = (0..self.rank()).collect();
        order.swap(a, b);
        self.apply_view(View::Permute(order))
    }

    /// The matrix transpose: swaps the last two axes.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` with the axes back in order.
    /// PyTorch's name: `mT`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1, 2, 3], [4, 5, 6]]);
    /// assert_eq!(x.t().to_vec::<i32>(), [1, 4, 2, 5, 3, 6]);
    /// assert_eq!(Tensor::zeros([7, 2, 3]).t().shape(), [7, 3, 2]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[doc(alias = "mT")]
    #[doc(alias = "matrix_transpose")]
    #[track_caller]
    #[must_use]
    pub fn t(&self) -> Tensor {
        match self.rank() {
            0 | 1 => self.clone(),
            _ => self.transpose(-1, -2),
        }
    }

    /// Moves one axis to another position; the others keep their order.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` with the axes back in order.
    /// PyTorch's name: `movedim`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3, 4]).move_axis(0, -1).shape(), [3, 4, 2]);
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range.
    #[doc(alias = "movedim")]
    #[doc(alias = "moveaxis")]
    #[track_caller]
    #[must_use]
    pub fn move_axis(&self, from: isize, to: isize) -> Tensor {
        let (from, to) = (self.axis("move_axis", from), self.axis("move_axis", to));
        let mut order: Axes = (0..self.rank()).collect();
        if self.rank() > 0 {
            let axis = order.remove(from);
            order.insert(to, axis);
        }
        self.apply_view(View::Permute(order))
    }

    /// Broadcasts to a shape: repeats along new leading axes and along axes of length 1; `-1` keeps
    /// a length.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` summed over what was repeated.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0], [2.0]]).expand([2, 3]);
    /// assert_eq!(x.to_vec::<f64>(), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the shape has fewer axes, or another length where the tensor's is not 1.
    #[doc(alias = "broadcast_to")]
    #[track_caller]
    #[must_use]
    pub fn expand(&self, shape: impl IntoShape) -> Tensor {
        let lengths = shape.lengths();
        let new = lengths.len().saturating_sub(self.rank());
        let mut shape = Shape::new();
        for (i, &n) in lengths.iter().enumerate() {
            shape.push(match (n, i.checked_sub(new)) {
                (-1, Some(j)) if j < self.rank() => self.shape()[j],
                (0.., _) => n as usize,
                _ => {
                    let message = match n {
                        -1 => format!(
                            "-1 keeps an existing length, but axis {i} does not exist in {}",
                            self.spec()
                        ),
                        _ => format!("{n} is not a length"),
                    };
                    return self.checked(Err(Error::argument("expand", message).on([self.spec()])));
                }
            });
        }
        let shape = known_shape("expand", &shape[..]);
        self.expand_to(&shape)
    }

    /// The transpose of a broadcast: summed over the axes that it repeated.
    #[track_caller]
    pub(crate) fn sum_to(&self, shape: &[usize]) -> Tensor {
        let new = self.rank() - shape.len();
        let repeated = |&i: &usize| i < new || (shape[i - new] == 1 && self.shape()[i] != 1);
        let axes: Axes = (0..self.rank()).filter(repeated).collect();
        let sum = match axes.is_empty() {
            true => self.clone(),
            false => apply(Op::Reduce(pullback_ir::Reduction::Sum, axes), &[self]),
        };
        sum.reshape(shape)
    }

    /// Inserts an axis of length 1.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` in the old shape.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).unsqueeze(-1).shape(), [2, 3, 1]);
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range.
    #[doc(alias = "expand_dims")]
    #[track_caller]
    #[must_use]
    pub fn unsqueeze(&self, axis: isize) -> Tensor {
        // The new axis may come last, so it is counted in the result.
        let grown = self.spec().with_shape(Shape::from_elem(1, self.rank() + 1));
        let axis = self.checked(args::axis("unsqueeze", axis, &grown));
        let mut shape = self.dims().clone();
        shape.insert(axis, 1);
        self.apply_view(View::Reshape(shape))
    }

    /// Removes all axes of length 1.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` in the old shape.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([1, 3, 1, 4]).squeeze().shape(), [3, 4]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn squeeze(&self /* of one axis: squeeze_axis(axis) */) -> Tensor {
        let shape: Shape = self.shape().iter().copied().filter(|&n| n != 1).collect();
        self.reshape(&shape[..])
    }

    /// Removes this axis if it has length 1; unchanged otherwise.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` in the old shape.
    /// PyTorch's name: `squeeze`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::zeros([1, 3, 1]);
    /// assert_eq!((x.squeeze_axis(0).shape(), x.squeeze_axis(1).shape()), (&[3, 1][..], &[1, 3, 1][..]));
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range.
    #[doc(alias = "squeeze")]
    #[track_caller]
    #[must_use]
    pub fn squeeze_axis(&self, axis: isize) -> Tensor {
        let axis = self.axis("squeeze", axis);
        if self.shape().get(axis) != Some(&1) {
            return self.clone();
        }
        let mut shape = self.dims().clone();
        shape.remove(axis);
        self.apply_view(View::Reshape(shape))
    }

    /// Merges the axes from `start` to `end`, inclusive, into one.
    ///
    /// A view where the elements are evenly spaced; where they are not, a copy.
    /// Derivative: `dy` in the old shape.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3, 4, 5]).flatten(1, 2).shape(), [2, 12, 5]);
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn flatten(&self, start: isize, end: isize) -> Tensor {
        let (start, end) = (self.axis("flatten", start), self.axis("flatten", end));
        if self.rank() == 0 {
            return self.reshape([1]);
        }
        let mut shape: Shape = Shape::from_slice(&self.shape()[..start]);
        shape.push(self.shape()[start..=end.max(start)].iter().product());
        shape.extend_from_slice(&self.shape()[end.max(start) + 1..]);
        self.reshape(&shape[..])
    }

    /// Splits one axis into several; one length may be `-1`.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` in the old shape.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::zeros([2, 12]).unflatten(1, [3, -1]).shape(), [2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, or the lengths do not multiply to its length.
    #[track_caller]
    #[must_use]
    pub fn unflatten(&self, axis: isize, lengths: impl IntoShape) -> Tensor {
        let axis = self.axis("unflatten", axis);
        if self.rank() == 0 {
            return self.reshape([1]).unflatten(0, lengths);
        }
        let whole = self.spec().with_shape(Shape::from_slice(&self.shape()[axis..=axis]));
        let parts = self.checked(args::reshape(&lengths.lengths(), &whole));
        let mut shape: Shape = Shape::from_slice(&self.shape()[..axis]);
        shape.extend(parts);
        shape.extend_from_slice(&self.shape()[axis + 1..]);
        self.apply_view(View::Reshape(shape))
    }

    /// Reverses the order of the elements along axes.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` flipped back.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[1, 2], [3, 4]]).flip(1).to_vec::<i32>(), [2, 1, 4, 3]);
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range or named twice.
    #[track_caller]
    #[must_use]
    pub fn flip(&self, axes: impl IntoAxes) -> Tensor {
        let axes = self.checked(args::axes("flip", &axes.list(), self.spec()));
        self.apply_view(View::Flip(axes))
    }

    /// The elements at one index of an axis, which disappears. Negative counts from the end.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` zero-padded to the operand's shape.
    /// PyTorch's name: `select`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[1, 2], [3, 4]]).select_at(1, -1).to_vec::<i32>(), [2, 4]);
    /// ```
    ///
    /// # Panics
    /// If the tensor is 0-d, or axis or index are out of range.
    #[doc(alias = "select")]
    #[track_caller]
    #[must_use]
    pub fn select_at(&self, axis: isize, index: isize) -> Tensor {
        let axis = self.axis("select", axis);
        if self.rank() == 0 {
            let error = Error::argument("select", "a 0-d tensor has no axis to select from");
            return self.checked(Err(error.on([self.spec()])));
        }
        let start = self.checked(args::index("select", index, axis, self.spec()));
        let mut shape = self.dims().clone();
        shape.remove(axis);
        self.span(axis, Span { start, len: 1, step: 1 }).apply_view(View::Reshape(shape))
    }

    /// `length` elements of an axis from `start` on.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` zero-padded to the operand's shape.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // Axis, start, length.
    /// assert_eq!(Tensor::arange(0, 9).narrow(0, 2, 3).to_vec::<i64>(), [2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, or the part reaches beyond it.
    #[track_caller]
    #[must_use]
    pub fn narrow(&self, axis: isize, start: isize, length: usize) -> Tensor {
        let axis = self.axis("narrow", axis);
        let n = self.shape().get(axis).map_or(0, |&n| n as isize);
        let from_front = if start < 0 { start + n } else { start };
        if !(0..=n).contains(&from_front) {
            let message =
                format!("start {start} is out of range for axis {axis} of {}", self.spec());
            return self.checked(Err(Error::argument("narrow", message).on([self.spec()])));
        }
        self.span(axis, Span { start: from_front as usize, len: length.min(MAX_LENGTH), step: 1 })
    }

    #[track_caller]
    pub(crate) fn span(&self, axis: usize, span: Span) -> Tensor {
        let whole = |&n: &usize| Span { start: 0, len: n, step: 1 };
        let mut spans: SmallVec<[Span; 2]> = self.shape().iter().take(axis).map(whole).collect();
        spans.push(span);
        self.apply_view(View::Slice(spans))
    }

    /// The diagonal of the last two axes, as a new last axis.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` at the positions of its elements.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[1, 2], [3, 4]]).diagonal().to_vec::<i32>(), [1, 4]);
    /// ```
    ///
    /// # Panics
    /// If there are fewer than two axes.
    #[track_caller]
    #[must_use]
    pub fn diagonal(&self) -> Tensor {
        self.diagonal_of(0, -2, -1)
    }

    /// The diagonal `offset` above the main one, of axes `a` and `b`, as a new last axis.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: `dy` at the positions of its elements.
    /// PyTorch's name: `diagonal`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1, 2, 3], [4, 5, 6]]);
    /// assert_eq!(x.diagonal_of(1, 0, 1).to_vec::<i32>(), [2, 6]);
    /// assert_eq!(x.diagonal_of(-1, 0, 1).to_vec::<i32>(), [4]);
    /// ```
    ///
    /// # Panics
    /// If the axes are out of range or the same.
    #[doc(alias = "diagonal")]
    #[track_caller]
    #[must_use]
    pub fn diagonal_of(&self, offset: isize, a: isize, b: isize) -> Tensor {
        let (a, b) = (self.axis("diagonal", a), self.axis("diagonal", b));
        self.apply_view(View::Diagonal { offset, a, b })
    }

    /// Windows of `size` along an axis, every `step`, as a new last axis. Windows may overlap;
    /// nothing is copied.
    ///
    /// A view: what is written into it is written into the tensor.
    /// Derivative: each element gets the sum of `dy` over the windows it is in.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::arange(0, 5).unfold(0, 3, 1);
    /// assert_eq!(x.to_vec::<i64>(), [0, 1, 2, 1, 2, 3, 2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range or shorter than `size`, or `step` is 0.
    #[track_caller]
    #[must_use]
    pub fn unfold(&self, axis: isize, size: usize, step: usize) -> Tensor {
        let axis = self.axis("unfold", axis);
        match self.rank() {
            // Its one window is the scalar itself.
            0 => self.reshape([1]).narrow(0, 0, size),
            _ => self.apply_view(View::Unfold { axis, size, step }),
        }
    }

    /// `other` instead of the part of this tensor that `part` shows; this tensor is not changed.
    ///
    /// Derivative: for `self`, `dy` with zeros in the part; for `other`, that part of `dy`.
    /// PyTorch's name: `slice_scatter`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::zeros([3]);
    /// let y = x.put(|v| v.narrow(0, 1, 2), &Tensor::from([5.0f32, 6.0]));
    /// assert_eq!(y.to_vec::<f32>(), [0.0, 5.0, 6.0]);
    /// ```
    ///
    /// # Panics
    /// If `part` is anything but a chain of views, or shows an element twice.
    #[doc(alias = "slice_scatter")]
    #[track_caller]
    #[must_use]
    pub fn put(&self, part: impl FnOnce(&Tensor) -> Tensor, other: &Tensor) -> Tensor {
        // Only the layout matters: inside `no_grad` in a body a view would be a new value.
        let base = self.plain();
        let mut seen = mode::lifted(|| part(&base));
        let spec = seen.spec().clone();
        let mut views = Vec::new();
        while !seen.is_same(&base) {
            let Some(parent) = seen.0.parent.as_ref().map(|p| (p.0.clone(), p.1.clone())) else {
                let error =
                    Error::argument("put", "the part must be a chain of views of the tensor");
                return self.checked(Err(error.on([self.spec()])));
            };
            views.push(parent.1);
            seen = parent.0;
        }
        views.reverse();
        let at = mode::user_line(Line::caller());
        let other = fail::or_raise(other.try_cast_and_expand("put", &spec, at));
        apply(Op::Put(views), &[self, &other])
    }
}
