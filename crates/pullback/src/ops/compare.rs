//! Comparison and selection.

use crate::apply::apply;
use crate::ops::Operand;
use crate::ops::operand::pair;
use crate::rule::{Adds, Grad, LinearRule, OperandSet};
use crate::{DType, Op, Tensor, kinks};
use pullback_ir::Compare;

pub(crate) fn select_row() -> Grad {
    Grad::Linear(LinearRule {
        wrt: OperandSet::Of(&[1, 2]),
        uses: OperandSet::Of(&[0]),
        adds: Adds::Separately,
        formula: "`dy` where the operand was taken, 0 elsewhere",
        transpose: |f, i, dy| {
            let zero = dy.zeros_like_splat();
            match i {
                1 => apply(Op::Select, &[f.x(0), dy, &zero]),
                _ => apply(Op::Select, &[f.x(0), &zero, dy]),
            }
        },
    })
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            #[must_use]
            pub fn $name(&self, other: impl Operand) -> Tensor {
                self.compare(Compare::$op, other)
            }
        )*}
    };
}

comparisons! {
    /// Whether elements are equal, as `bool`; NaN equals nothing.
    ///
    /// Derivative: none (a `bool`).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, f64::NAN, 3.0]);
    /// assert_eq!(x.eq(&x).to_vec::<bool>(), [true, false, true]);
    /// assert_eq!(x.eq(3.0).to_vec::<bool>(), [false, false, true]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "equal")]
    eq Eq;
    /// Whether elements differ, as `bool`.
    ///
    /// Derivative: none (a `bool`).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1, 2, 3]).ne(2).to_vec::<bool>(), [true, false, true]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "not_equal")]
    ne Ne;
    /// Whether elements are less than those of `other`, as `bool`.
    ///
    /// Derivative: none (a `bool`).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1, 2, 3]).lt(2).to_vec::<bool>(), [true, false, false]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "less")]
    lt Lt;
    /// Whether elements are less than or equal to those of `other`, as `bool`.
    ///
    /// Derivative: none (a `bool`).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1, 2, 3]).le(2).to_vec::<bool>(), [true, true, false]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "less_equal")]
    le Le;
    /// Whether elements are greater than those of `other`, as `bool`.
    ///
    /// Derivative: none (a `bool`).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1, 2, 3]).gt(2).to_vec::<bool>(), [false, false, true]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "greater")]
    gt Gt;
    /// Whether elements are greater than or equal to those of `other`, as `bool`.
    ///
    /// Derivative: none (a `bool`).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1, 2, 3]).ge(2).to_vec::<bool>(), [false, true, true]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "greater_equal")]
    ge Ge;
}

impl Tensor {
    #[track_caller]
    fn compare(&self, f: Compare, other: impl Operand) -> Tensor {
        let other = other.matching(self);
        let (a, b) = pair(f.name(), self, &other, None);
        apply(Op::Compare(f), &[&a, &b])
    }

    /// `a` where this condition is true, `b` elsewhere; all three broadcast.
    ///
    /// Derivative: for `a`, `dy` where the condition is true; for `b`, where it is false; 0
    /// elsewhere.
    /// PyTorch's name: `where`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([-1.0, 2.0]);
    /// assert_eq!(x.gt(0.0).select(&x, 0.0).to_vec::<f64>(), [0.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "where")]
    #[track_caller]
    #[must_use]
    pub fn select(&self, a: impl Operand, b: impl Operand) -> Tensor {
        // A scalar adopts the other branch's dtype: find a tensor among the two first.
        let probe = b.matching(self);
        let a = a.matching(&probe);
        let b = b.matching(&a);
        self.choose(&a, &b)
    }

    /// This tensor where the condition is true, `other` elsewhere: [`Tensor::select`] in the order
    /// of PyTorch's method `where`, which is a keyword in Rust.
    ///
    /// Derivative: `dy` where the condition is true; for `other`, where it is false; 0 elsewhere.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([-1.0, 2.0]);
    /// assert_eq!(x.r#where(&x.gt(0.0), 0.0).to_vec::<f64>(), [0.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    #[inline]
    pub fn r#where(&self, condition: &Tensor, other: impl Operand) -> Tensor {
        condition.select(self, other)
    }

    #[track_caller]
    fn choose(&self, a: &Tensor, b: &Tensor) -> Tensor {
        let (a, b) = pair("select", a, b, None);
        let (condition, a2) = pair_shapes(self, &a);
        let (_, b2) = pair_shapes(self, &b);
        apply(Op::Select, &[&condition, &a2, &b2])
    }

    /// The scalar `a` where this condition is true, `b` elsewhere: for formulas with a tensor `b`.
    #[track_caller]
    pub(crate) fn select_or(&self, a: f64, b: Tensor) -> Tensor {
        let a = Operand::matching(&a, &b).into_owned();
        self.choose(&a, &b)
    }

    /// Whether each element is NaN.
    ///
    /// Derivative: none (a `bool`).
    /// PyTorch's name: `isnan`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, f64::NAN, f64::INFINITY]);
    /// assert_eq!(x.is_nan().to_vec::<bool>(), [false, true, false]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[doc(alias = "isnan")]
    #[track_caller]
    #[must_use]
    pub fn is_nan(&self) -> Tensor {
        self.ne(self)
    }

    /// Whether each element is infinite.
    ///
    /// Derivative: none (a `bool`).
    /// PyTorch's name: `isinf`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, f64::NAN, f64::NEG_INFINITY]);
    /// assert_eq!(x.is_inf().to_vec::<bool>(), [false, false, true]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[doc(alias = "isinf")]
    #[track_caller]
    #[must_use]
    pub fn is_inf(&self) -> Tensor {
        match self.dtype().is_float() {
            true => kinks::uncounted_part(|| self.abs()).eq(f64::INFINITY),
            false => self.ne(self),
        }
    }

    /// Whether each element is neither infinite nor NaN.
    ///
    /// Derivative: none (a `bool`).
    /// PyTorch's name: `isfinite`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, f64::NAN, f64::INFINITY]);
    /// assert_eq!(x.is_finite().to_vec::<bool>(), [true, false, false]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[doc(alias = "isfinite")]
    #[track_caller]
    #[must_use]
    pub fn is_finite(&self) -> Tensor {
        match self.dtype().is_float() {
            true => kinks::uncounted_part(|| self.abs()).lt(f64::INFINITY),
            false => self.eq(self),
        }
    }

    /// This tensor with `value` where `mask` is true.
    ///
    /// Derivative: `dy` where the mask is false, 0 elsewhere; for the value, the sum of the rest.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1, 2, 3]);
    /// assert_eq!(x.masked_fill(&x.gt(1), 0).to_vec::<i32>(), [1, 0, 0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Operand) -> Tensor {
        let value = value.matching(self).cast(self.dtype());
        mask.choose(&value, self)
    }
}

/// Both in one shape.
#[track_caller]
fn pair_shapes(condition: &Tensor, x: &Tensor) -> (Tensor, Tensor) {
    let at = crate::mode::user_line(pullback_ir::Line::caller());
    let shape = pullback_ir::infer::args::broadcast("select", condition.spec(), x.spec());
    let shape = crate::fail::or_raise(shape.map_err(|e| e.at(at)));
    let condition = match condition.dtype() {
        DType::Bool => condition.clone(),
        _ => condition.ne(0),
    };
    (condition.expand_to(&shape), x.expand_to(&shape))
}
