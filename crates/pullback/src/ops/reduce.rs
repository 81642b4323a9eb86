//! Reductions over one, several or all axes.

use crate::apply::apply;
use crate::ops::one_pass::{one_pass_of_rows, or_op_by_op};
use crate::rule::{ByHand, Derivatives, Grad, RuleContext, Tensors, Val};
use crate::{DType, IntoAxes, Op, Shape, Tensor, kinks};
use pullback_ir::infer::args;
use pullback_ir::{Axes, Extreme, Reduction};
use smallvec::smallvec;

pub(crate) fn row(kind: Reduction) -> Grad {
    match kind {
        Reduction::Sum => super::linear("`dy` at every element", |f, _, dy| spread(f, dy)),
        Reduction::Prod => Grad::Decompose(product),
        Reduction::Max | Reduction::Min => Grad::ByHand(ByHand {
            uses: &[Val::In(0), Val::Out(0)],
            vjp: extreme_vjp,
            jvp: extreme_jvp,
            formula: "`dy` at the extreme element; shared evenly where several are",
        }),
    }
}

fn axes_of(op: &Op) -> &Axes {
    match op {
        Op::Reduce(_, axes) => axes,
        _ => unreachable!("called for Reduce"),
    }
}

/// A result of the reduction, broadcast to the reduced axes.
fn spread(f: &RuleContext, y: &Tensor) -> Tensor {
    let shape: Shape = Shape::from_slice(f.in_shape(0));
    y.reshape(&kept_shape(&shape, axes_of(f.op))[..]).expand_to(&shape)
}

/// The shape with reduced axes of length 1.
fn kept_shape(shape: &[usize], axes: &[usize]) -> Shape {
    shape.iter().enumerate().map(|(i, &n)| if axes.contains(&i) { 1 } else { n }).collect()
}

/// The share of each element in the extreme: ties share evenly.
fn share(f: &RuleContext) -> Tensor {
    let hit = f.x(0).eq(spread(f, f.y(0))).cast(f.x(0).dtype());
    let count = apply(Op::Reduce(Reduction::Sum, axes_of(f.op).clone()), &[&hit]);
    hit / spread(f, &count)
}

fn extreme_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    smallvec![dys[0].as_ref().map(|dy| spread(f, dy) * share(f))]
}

fn extreme_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let sum = |x: Tensor| apply(Op::Reduce(Reduction::Sum, axes_of(f.op).clone()), &[&x]);
    t[0].iter().map(|tx| sum(tx * share(f))).collect()
}

/// A product as a tree: the two halves of an axis multiplied until one element is left. Its
/// gradient needs no division, so zeros are no special case, at any order.
fn product(op: &Op, inputs: &[&Tensor]) -> Tensors {
    let mut x = inputs[0].clone();
    for &axis in axes_of(op).iter() {
        while x.shape()[axis] != 1 {
            let n = x.shape()[axis];
            if n == 0 {
                x = x.pad_with(unit_padding(x.rank(), axis, 1), 1.0);
                continue;
            }
            let half = n.div_ceil(2);
            let low = x.narrow(axis as isize, 0, half);
            let mut high = x.narrow(axis as isize, half as isize, n - half);
            if n - half < half {
                high = high.pad_with(unit_padding(x.rank(), axis, 1), 1.0);
            }
            x = low * high;
        }
    }
    let shape: Shape =
        pullback_ir::other_axes(axes_of(op), x.rank()).iter().map(|&i| x.shape()[i]).collect();
    Tensors::One(x.reshape(&shape[..]))
}

/// Padding of `n` after one axis.
pub(super) fn unit_padding(rank: usize, axis: usize, n: usize) -> Vec<(usize, usize)> {
    (0..rank).map(|i| (0, if i == axis { n } else { 0 })).collect()
}

impl Tensor {
    #[track_caller]
    fn reduce(&self, kind: Reduction, axes: impl IntoAxes) -> Tensor {
        let axes = self.checked(args::axes(kind.name(), &axes.list(), self.spec()));
        apply(Op::Reduce(kind, axes), &[self])
    }

    #[track_caller]
    pub(crate) fn all_axes(&self) -> Vec<isize> {
        (0..self.rank() as isize).collect()
    }

    /// A reduced tensor with the axes back, of length 1.
    #[track_caller]
    pub(super) fn kept(&self, op: &'static str, axes: &[isize], reduced: Tensor) -> Tensor {
        let axes = self.checked(args::axes(op, axes, self.spec()));
        reduced.reshape(&kept_shape(self.shape(), &axes)[..])
    }

    /// How many elements a reduction over these axes takes together.
    #[track_caller]
    pub(crate) fn count(&self, op: &'static str, axes: &[isize]) -> usize {
        let axes = self.checked(args::axes(op, axes, self.spec()));
        axes.iter().map(|&i| self.shape()[i]).product()
    }

    /// The dtype of [`Tensor::real`].
    pub(crate) fn real_dtype(&self) -> DType {
        if self.dtype().is_float() { self.dtype() } else { DType::F32 }
    }

    /// Floats as they are, except the half-precision ones, and anything else in `f32`: the sum
    /// inside a mean or a norm may exceed the range of `f16`.
    #[track_caller]
    pub(crate) fn wide(&self) -> Tensor {
        if self.dtype() == DType::F64 { self.clone() } else { self.cast(DType::F32) }
    }

    /// Floats as they are, anything else in `f32`.
    #[track_caller]
    pub(crate) fn real(&self) -> Tensor {
        if self.dtype().is_float() { self.clone() } else { self.cast(DType::F32) }
    }
}

/// Three methods for each reduction: over all axes, over some, over some with the axes kept. A row
/// begins with all three calls: it is what rustc prints as the definition where `sum(1)` is called.
///
/// `$of`, `$type` and `$rows` are the example of the latter two: a tensor, the Rust type of the
/// results, and the results for each of its rows.
macro_rules! reductions {
    ($($(#[$doc:meta])* $all:ident() $over:ident(axes) $keep:ident(axes) ($of:literal => $type:ident $rows:literal) |$x:ident, $axes:ident| $body:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            #[must_use]
            pub fn $all(&self) -> Tensor {
                self.$over(self.all_axes())
            }

            #[doc = concat!("[`Tensor::", stringify!($all), "`] over some axes (one, or a list), which disappear.")]
            ///
            /// ```
            /// # use pullback::Tensor;
            #[doc = concat!("let x = Tensor::from(", $of, ");")]
            #[doc = concat!("assert_eq!(x.", stringify!($over), "(1).to_vec::<", stringify!($type), ">(), ", $rows, ");")]
            /// ```
            ///
            /// # Panics
            /// If an axis is out of range or named twice; a maximum or minimum also if one is
            /// empty.
            #[track_caller]
            #[must_use]
            pub fn $over(&self, axes: impl IntoAxes) -> Tensor {
                let ($x, $axes) = (self, axes.list());
                $body
            }

            #[doc = concat!("[`Tensor::", stringify!($all), "`] over some axes, which stay with length 1.")]
            ///
            /// ```
            /// # use pullback::Tensor;
            #[doc = concat!("let y = Tensor::from(", $of, ").", stringify!($keep), "(1);")]
            #[doc = concat!("assert_eq!(y.to_vec::<", stringify!($type), ">(), ", $rows, ");")]
            /// assert_eq!(y.shape(), [2, 1]);
            /// ```
            ///
            /// # Panics
            /// If an axis is out of range or named twice; a maximum or minimum also if one is
            /// empty.
            #[track_caller]
            #[must_use]
            pub fn $keep(&self, axes: impl IntoAxes) -> Tensor {
                let axes = axes.list();
                self.kept(stringify!($all), &axes, self.$over(axes.clone()))
            }
        )*}
    };
}

reductions! {
    /// The sum of the elements; of integers and booleans, in `i64`.
    ///
    /// Derivative: `dy`, spread over what was summed.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.sum().item::<f64>(), 10.0);
    /// assert_eq!(x.sum_over(0).to_vec::<f64>(), [4.0, 6.0]);
    /// assert_eq!(x.sum_keep([-1]).shape(), [2, 1]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    sum() sum_over(axes) sum_keep(axes) ("[[1.0, 2.0], [3.0, 4.0]]" => f64 "[3.0, 7.0]") |x, axes| x.reduce(Reduction::Sum, axes);
    /// The mean of the elements.
    ///
    /// Derivative: `dy/n`, spread over what was averaged.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 2.0, 6.0]).mean().item::<f64>(), 3.0);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    mean() mean_over(axes) mean_keep(axes) ("[[1.0, 2.0], [3.0, 4.0]]" => f64 "[1.5, 3.5]") |x, axes| {
        let n = x.count("mean", &axes);
        (x.wide().sum_over(axes) / n as f64).cast(x.reduced_dtype())
    };
    /// The product of the elements. Its gradient is right where some are zero.
    ///
    /// Derivative: `dy` times the product of the others.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([2.0, 3.0, 4.0]).prod().item::<f64>(), 24.0);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    prod() prod_over(axes) prod_keep(axes) ("[[1.0, 2.0], [3.0, 4.0]]" => f64 "[2.0, 12.0]") |x, axes| x.reduce(Reduction::Prod, axes);
    /// The largest element; NaN if any is. Ties share the gradient evenly.
    ///
    /// Derivative: `dy` shared evenly by those that equal it.
    /// PyTorch's name: `amax`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[1, 9], [7, 7]]).max().item::<i32>(), 9);
    /// ```
    ///
    /// # Panics
    /// If there is no element.
    #[doc(alias = "amax")]
    max() max_over(axes) max_keep(axes) ("[[1.0, 2.0], [4.0, 3.0]]" => f64 "[2.0, 4.0]") |x, axes| x.reduce(Reduction::Max, axes);
    /// The smallest element; NaN if any is. Ties share the gradient evenly.
    ///
    /// Derivative: `dy` shared evenly by those that equal it.
    /// PyTorch's name: `amin`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[1, 9], [7, 7]]).min().item::<i32>(), 1);
    /// ```
    ///
    /// # Panics
    /// If there is no element.
    #[doc(alias = "amin")]
    min() min_over(axes) min_keep(axes) ("[[1.0, 2.0], [4.0, 3.0]]" => f64 "[1.0, 3.0]") |x, axes| x.reduce(Reduction::Min, axes);
    /// Whether any element is true (not zero).
    ///
    /// Derivative: none (a `bool`).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert!(Tensor::from([0, 3]).any().item::<bool>());
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    any() any_over(axes) any_keep(axes) ("[[true, false], [false, false]]" => bool "[true, false]") |x, axes| x.ne(0).reduce(Reduction::Max, axes);
    /// Whether all elements are true (not zero).
    ///
    /// Derivative: none (a `bool`).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert!(!Tensor::from([0, 3]).all().item::<bool>());
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    all() all_over(axes) all_keep(axes) ("[[true, true], [true, false]]" => bool "[true, false]") |x, axes| x.ne(0).reduce(Reduction::Min, axes);
    /// The variance, with Bessel's correction (divided by n − 1).
    ///
    /// Derivative: `2·(x − mean)/(n − correction)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 3.0]).var().item::<f64>(), 2.0);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    var() var_over(axes) var_keep(axes) ("[[1.0, 3.0], [4.0, 4.0]]" => f64 "[2.0, 0.0]") |x, axes| x.var_with(axes, 1.0);
    /// The standard deviation, with Bessel's correction; its derivative at 0 is 0.
    ///
    /// Derivative: `(x − mean)/((n − correction)·y)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 3.0]).std().item::<f64>(), 2f64.sqrt());
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    std() std_over(axes) std_keep(axes) ("[[1.0, 3.0], [4.0, 4.0]]" => f64 "[2f64.sqrt(), 0.0]") |x, axes| x.std_with(axes, 1.0);
    /// log(sum(exp(x))), computed without overflow.
    ///
    /// Derivative: `exp(x − y)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[0.0, 0.0]]);
    /// assert_eq!(x.logsumexp_over(1).to_vec::<f64>(), [2.0f64.ln()]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    logsumexp() logsumexp_over(axes) logsumexp_keep(axes) ("[[0.0, 0.0], [1000.0, 0.0]]" => f64 "[2f64.ln(), 1000.0]") |x, axes| x.log_sum_exp(&axes).unaliased_with(&[x]);
    /// The square root of the sum of squares; its derivative at the origin is 0.
    ///
    /// Derivative: `x/y·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([3.0, 4.0]).norm().item::<f64>(), 5.0);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    norm() norm_over(axes) norm_keep(axes) ("[[3.0, 4.0], [0.0, 2.0]]" => f64 "[5.0, 2.0]") |x, axes| {
        let norm = |x: &Tensor, axes: Vec<isize>| {
            let squares = x.wide().square().sum_over(axes);
            squares.root_of_squares("norm", kinks::KinkKind::Norm).cast(x.reduced_dtype())
        };
        let rows = one_pass_of_rows("norm", &[], [x], &axes, |[x]| norm(x, vec![1]));
        or_op_by_op(rows, || norm(x, axes))
    };
}

impl Tensor {
    /// The variance over some axes, divided by `n − correction` (1 is Bessel's, 0 the plain mean).
    ///
    /// Derivative: `2·(x − mean)/(n − correction)·dy`.
    /// PyTorch's name: `var`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 3.0]);
    /// assert_eq!((x.var_with(0, 1.0).item::<f64>(), x.var_with(0, 0.0).item::<f64>()), (2.0, 1.0));
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range or named twice.
    #[doc(alias = "var")]
    #[track_caller]
    #[must_use]
    pub fn var_with(&self, axes: impl IntoAxes, correction: f64) -> Tensor {
        let axes = axes.list();
        let n = self.count("var", &axes) as f64;
        let centred = self.wide().centred(&axes);
        (centred.square().sum_over(axes) / (n - correction).max(0.0)).cast(self.reduced_dtype())
    }

    /// The standard deviation over some axes: the root of [`Tensor::var_with`]; its derivative at 0
    /// is 0.
    ///
    /// Derivative: `(x − mean)/((n − correction)·y)·dy`.
    /// PyTorch's name: `std`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 5.0]).std_with(0, 0.0).item::<f64>(), 2.0);
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range or named twice.
    #[doc(alias = "std")]
    #[track_caller]
    #[must_use]
    pub fn std_with(&self, axes: impl IntoAxes, correction: f64) -> Tensor {
        let variance = self.wide().var_with(axes, correction);
        variance.root_of_squares("std", kinks::KinkKind::Norm).cast(self.reduced_dtype())
    }

    /// The distances from the mean over some axes, which are exactly 0 where all elements are
    /// equal: the mean of equal elements is rounded, and its error is the mean of the distances.
    #[track_caller]
    pub(crate) fn centred(&self, axes: &[isize]) -> Tensor {
        let rough = self - self.mean_keep(axes.to_vec());
        // A constant as far as derivatives go: that mean is 0 for every x. With infinities nothing
        // is corrected.
        let off = rough.detach().mean_keep(axes.to_vec());
        let off = off.is_finite().select(&off, off.zeros_like_splat());
        rough - off
    }

    /// The root of a sum of squares. Where that is 0, its derivative is 0 or that of the chosen
    /// convention.
    #[track_caller]
    pub(crate) fn root_of_squares(&self, op: &'static str, kind: kinks::KinkKind) -> Tensor {
        kinks::at(op, kind, &[self], |x| x[0].eq(0.0));
        if kinks::conventions().is_nan_at_origin(kind) {
            return kinks::uncounted_part(|| self.sqrt());
        }
        let origin = self.eq(0.0);
        // The root of 1 instead of 0 has a finite slope, which the selection then drops.
        origin.select_or(0.0, origin.select_or(1.0, self.clone()).sqrt())
    }

    /// The index of the first largest element along an axis, which disappears.
    ///
    /// Derivative: none (an index).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[1, 9], [7, 7]]).argmax(1).to_vec::<i64>(), [1, 0]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range or empty.
    #[track_caller]
    #[must_use]
    pub fn argmax(&self, axis: isize) -> Tensor {
        self.arg(Extreme::Max, axis)
    }

    /// The index of the first smallest element along an axis, which disappears.
    ///
    /// Derivative: none (an index).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[9, 1], [7, 7]]).argmin(1).to_vec::<i64>(), [1, 0]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range or empty.
    #[track_caller]
    #[must_use]
    pub fn argmin(&self, axis: isize) -> Tensor {
        self.arg(Extreme::Min, axis)
    }

    #[track_caller]
    fn arg(&self, kind: Extreme, axis: isize) -> Tensor {
        let axis = self.axis(kind.name(), axis);
        match self.rank() {
            0 => apply(Op::ArgReduce(kind, 0), &[&self.reshape([1])]).reshape(&[] as &[usize]),
            _ => apply(Op::ArgReduce(kind, axis), &[self]),
        }
    }

    /// The largest elements along an axis and where they are; the gradient goes to that one alone.
    ///
    /// Derivative: `dy` to the elements at those indices.
    /// PyTorch's name: `max`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (values, places) = Tensor::from([[1, 9], [8, 7]]).max_at(1);
    /// assert_eq!((values.to_vec::<i32>(), places.to_vec::<i64>()), (vec![9, 8], vec![1, 0]));
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range or empty.
    #[doc(alias = "max")]
    #[track_caller]
    #[must_use]
    pub fn max_at(&self, axis: isize) -> (Tensor, Tensor) {
        self.extreme_at(axis, self.argmax(axis))
    }

    /// The smallest elements along an axis and where they are; the gradient goes to that one alone.
    ///
    /// Derivative: `dy` to the elements at those indices.
    /// PyTorch's name: `min`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (values, places) = Tensor::from([[1, 9], [8, 7]]).min_at(1);
    /// assert_eq!((values.to_vec::<i32>(), places.to_vec::<i64>()), (vec![1, 7], vec![0, 1]));
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range or empty.
    #[doc(alias = "min")]
    #[track_caller]
    #[must_use]
    pub fn min_at(&self, axis: isize) -> (Tensor, Tensor) {
        self.extreme_at(axis, self.argmin(axis))
    }

    #[track_caller]
    fn extreme_at(&self, axis: isize, index: Tensor) -> (Tensor, Tensor) {
        match self.rank() {
            0 => (self.deep_clone(), index),
            _ => (self.gather(axis, &index.unsqueeze(axis)).squeeze_axis(axis), index),
        }
    }
}
