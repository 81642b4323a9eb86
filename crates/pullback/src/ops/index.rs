//! Gather, scatter and index selection.

use crate::apply::apply;
use crate::backend::{elements, with_host_bytes};
use crate::rule::{
    Adds, ByHand, Derivatives, Grad, LinearRule, OperandSet, RuleContext, Tensors, Val,
};
use crate::{DType, Error, Op, Spec, Tensor, trace};
use pullback_ir::Combine;
use smallvec::smallvec;

/// Linear in `x`; the transpose adds `dy` back to where it came from.
pub(crate) fn gather_row() -> Grad {
    Grad::Linear(LinearRule {
        wrt: OperandSet::Of(&[0]),
        uses: OperandSet::Of(&[1]),
        adds: Adds::Separately,
        transpose: |f, _, dy| {
            let Op::Gather(axis) = *f.op else { unreachable!("called for Gather") };
            apply(Op::Scatter(axis, Combine::Add), &[&Tensor::zeros_of(f.in_spec(0)), f.x(1), dy])
        },
        formula: "`dy` added up where it was taken from (scatter-add)",
    })
}

pub(crate) fn scatter_row(combine: Combine) -> Grad {
    match combine {
        Combine::Add => Grad::Linear(LinearRule {
            wrt: OperandSet::Of(&[0, 2]),
            uses: OperandSet::Of(&[1]),
            adds: Adds::Separately,
            transpose: |f, i, dy| match i {
                0 => dy.clone(),
                _ => apply(Op::Gather(axis_of(f.op)), &[dy, f.x(1)]),
            },
            formula: "`dbase = dy`, `dsource = dy` gathered at the indices",
        }),
        Combine::Set => Grad::Linear(LinearRule {
            wrt: OperandSet::Of(&[0, 2]),
            uses: OperandSet::Of(&[1]),
            adds: Adds::Separately,
            transpose: |f, i, dy| match i {
                0 => apply(f.op.clone(), &[dy, f.x(1), &Tensor::zeros_of(f.in_spec(2))]),
                _ => {
                    let taken = apply(Op::Gather(axis_of(f.op)), &[dy, f.x(1)]);
                    last_writer(f.op, f.in_spec(0), f.x(1)).select(&taken, taken.zeros_like_splat())
                }
            },
            formula: "`dbase = dy` where nothing was written, `dsource = dy` gathered, for the writer that stayed",
        }),
        Combine::Mul => Grad::Decompose(product),
        Combine::Max | Combine::Min => Grad::ByHand(ByHand {
            uses: &[Val::In(0), Val::In(1), Val::In(2), Val::Out(0)],
            vjp: extreme_vjp,
            jvp: extreme_jvp,
            formula: "`dy` shared evenly among the values that equal the result",
        }),
    }
}

fn axis_of(op: &Op) -> usize {
    match op {
        Op::Scatter(axis, _) => *axis,
        _ => unreachable!("called for Scatter"),
    }
}

/// Where an index occurs twice, only the element written last has any influence.
fn last_writer(op: &Op, base: &Spec, index: &Tensor) -> Tensor {
    let order = index.new_iota(index.len()).reshape(index.shape());
    let winners =
        apply(op.clone(), &[&Tensor::zeros_of(&base.with_dtype(DType::I64)), index, &order]);
    apply(Op::Gather(axis_of(op)), &[&winners, index]).eq(&order)
}

/// Ties share: each of the elements that equal the extreme gets an equal part.
fn extreme_shares(f: &RuleContext) -> (Tensor, Tensor) {
    let (axis, y, dtype) = (axis_of(f.op), f.y(0), f.y(0).dtype());
    let base = f.x(0).detach().eq(y).cast(dtype);
    let source = f.x(2).detach().eq(apply(Op::Gather(axis), &[y, f.x(1)])).cast(dtype);
    let count = apply(Op::Scatter(axis, Combine::Add), &[&base, f.x(1), &source]);
    let source = source / apply(Op::Gather(axis), &[&count, f.x(1)]);
    (base / count, source)
}

fn extreme_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let Some(dy) = &dys[0] else { return smallvec![None, None, None] };
    let (base, source) = extreme_shares(f);
    let taken = apply(Op::Gather(axis_of(f.op)), &[dy, f.x(1)]);
    smallvec![Some(dy * base), None, Some(taken * source)]
}

fn extreme_jvp(f: &RuleContext, t: &Derivatives) -> crate::rule::Tensors {
    let (base, source) = extreme_shares(f);
    let tb = t[0].as_ref().map_or_else(|| f.x(0).zeros_like_splat(), |t| t * base);
    let ts = t[2].as_ref().map_or_else(|| f.x(2).zeros_like_splat(), |t| t * source);
    Tensors::One(apply(Op::Scatter(axis_of(f.op), Combine::Add), &[&tb, f.x(1), &ts]))
}

/// Products by doubling. The sources are put in the order of their places; after step k each holds
/// the product of the last 2ᵏ that go to the same place, so the last of each place holds all of
/// them, and the last one written wins. No division, so zeros are no special case, at any order of
/// derivative.
fn product(op: &Op, inputs: &[&Tensor]) -> Tensors {
    let (base, index, source, axis) = (inputs[0], inputs[1], inputs[2], axis_of(op));
    let (at, n) = (axis as isize, index.shape()[axis]);
    let (places, order) = index.sort(at, false);
    let mut y = apply(Op::Gather(axis), &[source, &order]);
    let mut shift = 1;
    while shift < n {
        let before: Vec<(usize, usize)> =
            (0..index.rank()).map(|i| (if i == axis { shift } else { 0 }, 0)).collect();
        let earlier = |x: &Tensor| x.narrow(at, 0, n - shift).pad(&before);
        // What is shifted in at the beginning is a zero with an index out of range.
        let together = earlier(&(&places + 1)).eq(&places + 1);
        y = &y * together.select(earlier(&y), 1.0);
        shift *= 2;
    }
    let ones = base.ones_like_splat();
    Tensors::One(base * apply(Op::Scatter(axis, Combine::Set), &[&ones, &places, &y]))
}

/// Whether dense indices in the memory of the host are seen to be zero or above: one pass over
/// memory that writes nothing, where to replace negative ones takes three.
fn has_no_negative(index: &Tensor) -> bool {
    let signs = |bytes: &[u8]| {
        let list = elements::<i64>(DType::I64, bytes)?;
        Some(list.iter().fold(0, |all, i| all | i))
    };
    with_host_bytes(index, signs).flatten().is_some_and(|all| all >= 0)
}

impl Tensor {
    /// Negative indices counted from the end, for an axis of length `n`.
    #[track_caller]
    fn counted_from_front(&self, n: usize) -> Tensor {
        let index = self.cast(DType::I64);
        if trace::on_host(&index) {
            // A row of indices that is repeated stays one: kernels move whole rows by it.
            let repeated = |&axis: &usize| index.0.layout.strides[axis] == 0 && index.len() > 1;
            let mut row = index.clone();
            for axis in (0..index.rank()).filter(repeated) {
                row = row.narrow(axis as isize, 0, 1);
            }
            if row.len() < index.len() {
                return row.counted_from_front(n).expand(index.shape());
            }
            if index.is_contiguous() && has_no_negative(&index) {
                return index;
            }
        }
        index.lt(0).select(&(&index + n), &index)
    }

    #[track_caller]
    fn index_operand(&self, op: &'static str, index: &Tensor, axis: isize) -> (usize, Tensor) {
        let axis = self.axis(op, axis);
        if index.dtype().is_float() || index.dtype() == DType::Bool {
            let error =
                Error::dtype(op, format!("indices must be integers, not {}", index.dtype()));
            return self.checked(Err(error.on([self.spec(), index.spec()])));
        }
        (axis, index.counted_from_front(self.shape().get(axis).copied().unwrap_or(1)))
    }

    /// `out[i, j] = self[index[i, j], j]` (for axis 0), as PyTorch's `gather`: the result is shaped
    /// as `index`. Negative indices count from the end.
    ///
    /// Derivative: `dy` added at the positions of its elements.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// let y = x.gather(1, &Tensor::from([[0i64, 0], [1, 0]]));
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 1.0, 4.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the indices are not integers, one is out of range, or their shape does not fit.
    #[track_caller]
    #[must_use]
    pub fn gather(&self, axis: isize, index: &Tensor) -> Tensor {
        if self.rank() == 0 {
            let wide = index.reshape([index.len() as isize]);
            return self.reshape([1]).gather(axis, &wide).reshape(index.shape());
        }
        let (axis, index) = self.index_operand("gather", index, axis);
        apply(Op::Gather(axis), &[self, &index])
    }

    /// The slices at these indices of an axis (`index` has one axis), as an embedding does.
    ///
    /// Derivative: `dy` added at the positions of its elements.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let table = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// assert_eq!(table.index_select(0, &Tensor::from([1i64, 1])).to_vec::<f64>(), [3.0, 4.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If the index is not a vector of integers, or one is out of range.
    #[track_caller]
    #[must_use]
    pub fn index_select(&self, axis: isize, index: &Tensor) -> Tensor {
        if self.rank() == 0 {
            return self
                .reshape([1])
                .index_select(0, &index.reshape([-1]))
                .reshape(&[] as &[usize]);
        }
        let (axis, index) = self.index_operand("index_select", index, axis);
        let index = self.index_along("index_select", axis, &index);
        apply(Op::Gather(axis), &[self, &index])
    }

    /// A vector of indices spread over the other axes of this tensor.
    #[track_caller]
    fn index_along(&self, op: &'static str, axis: usize, index: &Tensor) -> Tensor {
        if index.rank() > 1 {
            let error =
                Error::shape(op, format!("the index must be a vector, not {}", index.spec()));
            return self.checked(Err(error.on([self.spec(), index.spec()])));
        }
        let mut shape = vec![1; self.rank()];
        shape[axis] = index.len();
        let mut wide = self.dims().clone();
        wide[axis] = index.len();
        index.reshape(&shape[..]).expand_to(&wide)
    }

    #[track_caller]
    fn scattered(
        &self,
        op: &'static str,
        combine: Combine,
        axis: isize,
        index: &Tensor,
        source: &Tensor,
    ) -> Tensor {
        if self.rank() == 0 {
            let flat = |x: &Tensor| x.reshape([x.len() as isize]);
            let out = self.reshape([1]).scattered(op, combine, axis, &flat(index), &flat(source));
            return out.reshape(&[] as &[usize]);
        }
        let (axis, index) = self.index_operand(op, index, axis);
        // As in PyTorch, the source may be larger than the index; the part it covers is used.
        let mut source = source.cast(self.dtype());
        if source.rank() == index.rank() && source.shape() != index.shape() {
            for (i, &n) in index.shape().iter().enumerate() {
                source = source.narrow(i as isize, 0, n);
            }
        }
        apply(Op::Scatter(axis, combine), &[self, &index, &source])
    }

    /// This tensor with `self[index[i, j], j] = source[i, j]` (for axis 0). Where an index occurs
    /// twice, the last one wins, and only it gets a gradient.
    ///
    /// Derivative: for `self`, `dy` with zeros where something was written; for the source, `dy`
    /// from there, for the last writer.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::zeros([2, 2]).scatter(1, &Tensor::from([[1i64], [0]]), &Tensor::from([[5.0f32], [6.0]]));
    /// assert_eq!(y.to_vec::<f32>(), [0.0, 5.0, 6.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If the indices are not integers, one is out of range, or an axis of the index is longer than
    /// that of the source.
    #[track_caller]
    #[must_use]
    pub fn scatter(&self, axis: isize, index: &Tensor, source: &Tensor) -> Tensor {
        self.scattered("scatter", Combine::Set, axis, index, source)
    }

    /// This tensor with `self[index[i, j], j] += source[i, j]` (for axis 0). Sums are in a fixed
    /// order, whatever the number of threads.
    ///
    /// Derivative: for `self`, `dy`; for the source, `dy` at its indices.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::zeros([2]);
    /// let y = x.scatter_add(0, &Tensor::from([1i64, 1, 0]), &Tensor::from([1.0f32, 2.0, 4.0]));
    /// assert_eq!(y.to_vec::<f32>(), [4.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the indices are not integers, one is out of range, or an axis of the index is longer than
    /// that of the source.
    #[track_caller]
    #[must_use]
    pub fn scatter_add(&self, axis: isize, index: &Tensor, source: &Tensor) -> Tensor {
        self.scattered("scatter_add", Combine::Add, axis, index, source)
    }

    /// This tensor with the products of what is scattered. The gradient is right where elements are
    /// zero.
    ///
    /// Derivative: `dy` times the product of all other factors at the place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([2, 3]).scatter_mul(0, &Tensor::from([0i64, 0]), &Tensor::from([5, 7]));
    /// assert_eq!(y.to_vec::<i32>(), [70, 3]);
    /// ```
    ///
    /// # Panics
    /// If the indices are not integers, one is out of range, or an axis of the index is longer than
    /// that of the source.
    #[track_caller]
    #[must_use]
    pub fn scatter_mul(&self, axis: isize, index: &Tensor, source: &Tensor) -> Tensor {
        self.scattered("scatter_mul", Combine::Mul, axis, index, source)
    }

    /// This tensor with the larger of what is there and what is scattered; ties share the gradient.
    ///
    /// Derivative: `dy` shared evenly among the values that equal the result.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([1, 5]).scatter_max(0, &Tensor::from([0i64, 0, 1]), &Tensor::from([2, 3, 4]));
    /// assert_eq!(y.to_vec::<i32>(), [3, 5]);
    /// ```
    ///
    /// # Panics
    /// If the indices are not integers, one is out of range, or an axis of the index is longer than
    /// that of the source.
    #[track_caller]
    #[must_use]
    pub fn scatter_max(&self, axis: isize, index: &Tensor, source: &Tensor) -> Tensor {
        self.scattered("scatter_max", Combine::Max, axis, index, source)
    }

    /// This tensor with the smaller of what is there and what is scattered; ties share the
    /// gradient.
    ///
    /// Derivative: `dy` shared evenly among the values that equal the result.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([5, 1]).scatter_min(0, &Tensor::from([0i64, 0, 1]), &Tensor::from([4, 3, 2]));
    /// assert_eq!(y.to_vec::<i32>(), [3, 1]);
    /// ```
    ///
    /// # Panics
    /// If the indices are not integers, one is out of range, or an axis of the index is longer than
    /// that of the source.
    #[track_caller]
    #[must_use]
    pub fn scatter_min(&self, axis: isize, index: &Tensor, source: &Tensor) -> Tensor {
        self.scattered("scatter_min", Combine::Min, axis, index, source)
    }

    /// This tensor with slices of `source` added at these indices of an axis.
    ///
    /// Derivative: for `self`, `dy`; for the source, `dy` at its indices.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::zeros([2, 2]).index_add(0, &Tensor::from([1i64, 1]), &Tensor::ones([2, 2]));
    /// assert_eq!(y.to_vec::<f32>(), [0.0, 0.0, 2.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the index is not a vector of integers, one is out of range, or the source does not fit.
    #[track_caller]
    #[must_use]
    pub fn index_add(&self, axis: isize, index: &Tensor, source: &Tensor) -> Tensor {
        self.index_combine("index_add", Combine::Add, axis, index, source)
    }

    /// This tensor with slices of `source` put at these indices of an axis.
    ///
    /// Derivative: for `self`, `dy` with zeros where something was written; for the source, `dy`
    /// from there, for the last writer.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([1, 2, 3]).index_copy(0, &Tensor::from([2i64, 0]), &Tensor::from([8, 9]));
    /// assert_eq!(y.to_vec::<i32>(), [9, 2, 8]);
    /// ```
    ///
    /// # Panics
    /// If the index is not a vector of integers, one is out of range, or the source does not fit.
    #[track_caller]
    #[must_use]
    pub fn index_copy(&self, axis: isize, index: &Tensor, source: &Tensor) -> Tensor {
        self.index_combine("index_copy", Combine::Set, axis, index, source)
    }

    #[track_caller]
    fn index_combine(
        &self,
        op: &'static str,
        combine: Combine,
        axis: isize,
        index: &Tensor,
        source: &Tensor,
    ) -> Tensor {
        if self.rank() == 0 {
            let out = self.reshape([1]).index_combine(
                op,
                combine,
                0,
                &index.reshape([-1]),
                &source.reshape([-1]),
            );
            return out.reshape(&[] as &[usize]);
        }
        let (axis, index) = self.index_operand(op, index, axis);
        let index = self.index_along(op, axis, &index);
        apply(Op::Scatter(axis, combine), &[self, &index, &source.cast(self.dtype())])
    }

    /// This tensor with one value at these indices of an axis.
    ///
    /// Derivative: `dy` with zeros at the indices; for the value, their sum.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([[1, 2], [3, 4]]).index_fill(1, &Tensor::from([0i64]), 7);
    /// assert_eq!(y.to_vec::<i32>(), [7, 2, 7, 4]);
    /// ```
    ///
    /// # Panics
    /// If the index is not a vector of integers, or one is out of range.
    #[track_caller]
    #[must_use]
    pub fn index_fill(&self, axis: isize, index: &Tensor, value: impl crate::Operand) -> Tensor {
        let value = value.matching(self).into_owned();
        let scalar = if value.rank() == 0 { value } else { value.reshape([-1]).select_at(0, 0) };
        let mut shape = self.dims().clone();
        if let Some(n) = shape.get_mut(self.axis("index_fill", axis)) {
            *n = index.len();
        }
        self.index_copy(axis, index, &scalar.expand(&shape[..]))
    }

    /// One-hot encoding: a 1 at each index and 0 elsewhere, along a new last axis of length
    /// `classes`.
    ///
    /// Derivative: none (of integers).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback::DType;
    /// let y = Tensor::from([2i64, 0]).one_hot(3, DType::I64);
    /// assert_eq!(y.to_vec::<i64>(), [0, 0, 1, 1, 0, 0]);
    /// ```
    ///
    /// # Panics
    /// If an index is not in `0..classes`.
    #[track_caller]
    #[must_use]
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Tensor {
        if self.dtype().is_float() || self.dtype() == DType::Bool {
            let message = format!("classes must be integers, not {}", self.dtype());
            return self.checked(Err(Error::dtype("one_hot", message).on([self.spec()])));
        }
        if !trace::on_host(self) {
            // Checked when the program runs: a gather from the list of classes refuses others.
            let index = self.cast(DType::I64).reshape([self.len()]);
            let index = index.lt(0).select(self.new_tensor(classes as i64), &index);
            let index = match classes {
                0 => index,
                _ => self.new_iota(classes).gather(0, &index),
            };
            return index.reshape(self.shape()).one_hot_unchecked(classes, dtype);
        }
        let index = self.detach().cast(DType::I64).to_vec::<i64>();
        if let Some(i) = index.iter().find(|i| !(0..classes as i64).contains(i)) {
            let message = format!("index {i} is not one of the {classes} classes from 0 on");
            return self.checked(Err(Error::argument("one_hot", message).on([self.spec()])));
        }
        if classes == 0 || self.is_empty() {
            return self.one_hot_unchecked(classes, dtype);
        }
        let shape = [self.shape(), &[classes]].concat();
        let (index, zero) = (self.detach().cast(DType::I64).unsqueeze(-1), 0.into());
        let ones = self.new_splat(1.into(), index.shape(), dtype);
        self.new_splat(zero, &shape, dtype).scatter(-1, &index, &ones)
    }

    /// [`Tensor::one_hot`] of indices known to be in range.
    #[track_caller]
    pub(crate) fn one_hot_unchecked(&self, classes: usize, dtype: DType) -> Tensor {
        self.unsqueeze(-1).cast(DType::I64).eq(self.new_iota(classes)).cast(dtype)
    }
}
