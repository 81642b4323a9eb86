//! Padding and concatenation.

use crate::apply::apply;
use crate::checked_alloc::{TENSOR, check_list};
use crate::create::known_shape;
use crate::ops::Operand;
use crate::rule::Grad;
use crate::{Error, Op, Tensor, fail, mode};
use pullback_ir::infer::args;
use pullback_ir::{Line, Padding, Span, View};
use smallvec::SmallVec;

/// The transpose of padding is slicing.
pub(crate) fn pad_row() -> Grad {
    super::linear("the part of `dy` that is not padding", |f, _, dy| {
        let Op::Pad(padding) = f.op else { unreachable!("called for Pad") };
        let span =
            |(p, &n): (&Padding, &usize)| Span { start: p.before, len: n, step: p.between + 1 };
        dy.apply_view(View::Slice(padding.iter().zip(f.in_shape(0)).map(span).collect()))
    })
}

/// The transpose of concatenation is splitting.
pub(crate) fn cat_row() -> Grad {
    super::linear("`dy` cut up again", |f, i, dy| {
        let Op::Cat(axis) = *f.op else { unreachable!("called for Cat") };
        dy.span(axis, Span { start: f.start(i, axis), len: f.in_shape(i)[axis], step: 1 })
    })
}

impl Tensor {
    /// Pads with zeros: `(before, after)` for each axis.
    ///
    /// Derivative: `dy` without its borders.
    /// PyTorch's name: `nn.functional.pad`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 2.0]).pad([(1, 2)]).to_vec::<f64>(), [0.0, 1.0, 2.0, 0.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If the padding does not name each axis.
    #[track_caller]
    #[must_use]
    pub fn pad(&self, padding: impl AsRef<[(usize, usize)]>) -> Tensor {
        let padding = padding.as_ref();
        let one = |&(before, after): &(usize, usize)| Padding { before, after, between: 0 };
        let grown = |(&n, p): (&usize, &(usize, usize))| n.saturating_add(p.0).saturating_add(p.1);
        known_shape("pad", self.shape().iter().zip(padding).map(grown).collect::<Vec<usize>>());
        apply(Op::Pad(padding.iter().map(one).collect()), &[self])
    }

    /// Pads with a value: `(before, after)` for each axis.
    ///
    /// Derivative: `dy` without its borders.
    /// PyTorch's name: `nn.functional.pad`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1, 2]).pad_with([(1, 2)], 9).to_vec::<i32>(), [9, 1, 2, 9, 9]);
    /// ```
    ///
    /// # Panics
    /// If the padding does not name each axis.
    #[doc(alias = "pad")]
    #[track_caller]
    #[must_use]
    pub fn pad_with(&self, padding: impl AsRef<[(usize, usize)]>, value: impl Operand) -> Tensor {
        let padding = padding.as_ref();
        if value.is_number() && padding.len() == self.rank() {
            let grown =
                |(&n, p): (&usize, &(usize, usize))| n.saturating_add(p.0).saturating_add(p.1);
            let grown: Vec<usize> = self.shape().iter().zip(padding).map(grown).collect();
            let grown = known_shape("pad", grown);
            let whole = self.new_splat(0.into(), &grown, self.dtype());
            let value = value.matching(&whole);
            let dtype = self.dtype().promote(value.dtype());
            let inside = |y: &Tensor| {
                let axes = self.shape().iter().zip(padding).enumerate();
                axes.fold(y.clone(), |y, (axis, (&n, p))| y.narrow(axis as isize, p.0 as isize, n))
            };
            return value.cast(dtype).expand(&grown[..]).put(inside, &self.cast(dtype));
        }
        let padded = self.pad(padding);
        let inside = self.new_splat(true.into(), self.shape(), crate::DType::Bool).pad(padding);
        let value = value.matching(&padded).into_owned();
        inside.select(&padded, &value)
    }

    /// Splits an axis into pieces of at most `size`, as views.
    ///
    /// Views: what is written into one is written into the tensor.
    /// Derivative: the `dy` of the pieces, concatenated.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let pieces = Tensor::arange(0, 5).split(2, 0);
    /// assert_eq!(pieces.iter().map(Tensor::len).collect::<Vec<_>>(), [2, 2, 1]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, or `size` is 0.
    #[track_caller]
    #[must_use]
    pub fn split(&self, size: usize, axis: isize) -> Vec<Tensor> {
        let at = self.axis("split", axis);
        let n = self.shape().get(at).copied().unwrap_or(1);
        if size == 0 && n > 0 {
            let error = Error::argument("split", "the size of a piece must be at least 1")
                .on([self.spec()]);
            return self.checked(Err(error));
        }
        let whole = n.checked_div(size).unwrap_or(0);
        check_list("split", whole, TENSOR, &[self.spec()]);
        let mut sizes = vec![size; whole];
        if n == 0 || n % size != 0 {
            sizes.push(n - sizes.len() * size);
        }
        self.split_sizes(&sizes, axis)
    }

    /// Splits an axis into pieces of these sizes, as views.
    ///
    /// Views: what is written into one is written into the tensor.
    /// Derivative: the `dy` of the pieces, concatenated.
    /// PyTorch's name: `split_with_sizes`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let pieces = Tensor::arange(0, 5).split_sizes(&[1, 4], 0);
    /// assert_eq!(pieces[1].to_vec::<i64>(), [1, 2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, or the sizes do not add up to its length.
    #[doc(alias = "split_with_sizes")]
    #[track_caller]
    #[must_use]
    pub fn split_sizes(&self, sizes: &[usize], axis: isize) -> Vec<Tensor> {
        let axis = self.axis("split", axis);
        let n = self.shape().get(axis).copied().unwrap_or(1);
        if sizes.iter().fold(0usize, |sum, &n| sum.saturating_add(n)) != n {
            let message =
                format!("{sizes:?} do not add up to the {n} of axis {axis} of {}", self.spec());
            return self.checked(Err(Error::shape("split", message).on([self.spec()])));
        }
        let mut start = 0;
        let mut pieces = Vec::with_capacity(sizes.len());
        for &len in sizes {
            pieces.push(self.span(axis, Span { start, len, step: 1 }));
            start += len;
        }
        pieces
    }

    /// Splits an axis into at most `count` pieces of nearly equal size, as views.
    ///
    /// Views: what is written into one is written into the tensor.
    /// Derivative: the `dy` of the pieces, concatenated.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // At most that many: pieces of ⌈5/4⌉ = 2 make three.
    /// assert_eq!(Tensor::arange(0, 5).chunk(4, 0).len(), 3);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, or `count` is 0.
    #[track_caller]
    #[must_use]
    pub fn chunk(&self, count: usize, axis: isize) -> Vec<Tensor> {
        let at = self.axis("chunk", axis);
        let n = self.shape().get(at).copied().unwrap_or(1);
        if count == 0 {
            return self.checked(Err(
                Error::argument("chunk", "cannot split into 0 pieces").on([self.spec()])
            ));
        }
        self.split(n.div_ceil(count).max(1), axis)
    }

    /// Splits an axis into its slices, views without that axis.
    ///
    /// Views: what is written into one is written into the tensor.
    /// Derivative: the `dy` of the pieces, concatenated.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let rows = Tensor::from([[1, 2], [3, 4]]).unbind(0);
    /// assert_eq!(rows[1].to_vec::<i32>(), [3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[doc(alias = "unstack")]
    #[track_caller]
    #[must_use]
    pub fn unbind(&self, axis: isize) -> Vec<Tensor> {
        let at = self.axis("unbind", axis);
        let n = self.shape().get(at).copied().unwrap_or(0);
        check_list("unbind", n, TENSOR, &[self.spec()]);
        let mut parts = Vec::with_capacity(n);
        for i in 0..n {
            parts.push(self.select_at(axis, i as isize));
        }
        parts
    }

    /// Repeats the tensor, `times` for each axis (new axes in front).
    ///
    /// Derivative: each element gets the sum of `dy` over its copies.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1, 2]).repeat([2, 2]).to_vec::<i32>(), [1, 2, 1, 2, 1, 2, 1, 2]);
    /// ```
    ///
    /// # Panics
    /// If `times` names fewer axes than there are.
    #[track_caller]
    #[must_use]
    pub fn repeat(&self, times: impl AsRef<[usize]>) -> Tensor {
        let times = times.as_ref();
        if times.len() < self.rank() {
            let message = format!(
                "{times:?} must have a number for each of the {} axes of {}",
                self.rank(),
                self.spec()
            );
            return self.checked(Err(Error::shape("repeat", message).on([self.spec()])));
        }
        let new = times.len() - self.rank();
        let (mut split, mut wide, mut merged) = (Vec::new(), Vec::new(), Vec::new());
        for (i, &r) in times.iter().enumerate() {
            let n = if i < new { 1 } else { self.shape()[i - new] };
            split.extend([1, n]);
            wide.extend([r, n]);
            merged.push(n.saturating_mul(r));
        }
        let merged = known_shape("repeat", merged);
        self.reshape(&split[..]).expand(&wide[..]).reshape(&merged[..]).unaliased_with(&[self])
    }

    /// Rolls the elements along an axis: those that leave at one end come in at the other.
    ///
    /// Derivative: `dy` rolled back.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::arange(0, 4).roll(1, 0).to_vec::<i64>(), [3, 0, 1, 2]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn roll(&self, shift: isize, axis: isize) -> Tensor {
        let at = self.axis("roll", axis);
        let n = self.shape().get(at).copied().unwrap_or(1);
        if n < 2 || shift.rem_euclid(n as isize) == 0 {
            return self.deep_clone();
        }
        let k = n - shift.rem_euclid(n as isize) as usize;
        let (head, tail) =
            (Span { start: 0, len: k, step: 1 }, Span { start: k, len: n - k, step: 1 });
        cat(&[&self.span(at, tail), &self.span(at, head)], axis)
    }
}

/// Concatenates tensors along an axis. Dtypes are promoted to a common one.
///
/// Derivative: each operand gets the part of `dy` that it is.
///
/// ```
/// use pullback::{Tensor, cat};
/// let x = Tensor::from([[1.0, 2.0]]);
/// assert_eq!(cat(&[&x, &x], 0).shape(), [2, 2]);
/// ```
///
/// # Panics
/// If there is no tensor, the axis is out of range, or the other axes differ in length.
#[doc(alias = "concatenate")]
#[doc(alias = "concat")]
#[track_caller]
#[must_use]
pub fn cat(tensors: &[&Tensor], axis: isize) -> Tensor {
    let at = mode::user_line(Line::caller());
    let Some(first) = tensors.first() else {
        fail::raise(Error::argument("cat", "needs at least one tensor").at(at));
    };
    let axis = fail::or_raise(args::axis("cat", axis, first.spec()).map_err(|e| e.at(at)));
    let dtype = tensors.iter().fold(first.dtype(), |d, x| d.promote(x.dtype()));
    let mut parts: SmallVec<[Tensor; 4]> = SmallVec::new();
    for x in tensors {
        parts.push(x.cast(dtype));
    }
    apply(Op::Cat(axis), &parts.iter().collect::<SmallVec<[_; 4]>>())
}

/// Stacks tensors of one shape along a new axis.
///
/// Derivative: each operand gets its slice of `dy`.
///
/// ```
/// use pullback::{Tensor, stack};
/// let x = Tensor::from([1.0, 2.0]);
/// assert_eq!(stack(&[&x, &x, &x], 1).shape(), [2, 3]);
/// ```
///
/// # Panics
/// If there is no tensor, the axis is out of range, or the shapes differ.
#[track_caller]
#[must_use]
pub fn stack(tensors: &[&Tensor], axis: isize) -> Tensor {
    let mut parts: SmallVec<[Tensor; 4]> = SmallVec::new();
    for x in tensors {
        parts.push(x.unsqueeze(axis));
    }
    let axis = match (tensors.first(), axis) {
        (Some(x), axis) if axis < 0 => axis + x.rank() as isize + 1,
        (_, axis) => axis,
    };
    cat(&parts.iter().collect::<SmallVec<[_; 4]>>(), axis)
}
