//! Comparison and selection.

use crate::apply::apply;
use crate::ops::Operand;
use crate::ops::operand::pair;
use crate::rule::{Adds, Grad, Linear, Set};
use crate::{DType, Op, Tensor, kinks};
use pullback_ir::Compare;

pub(crate) fn select_row() -> Grad {
    Grad::Linear(Linear {
        wrt: Set::Of(&[1, 2]),
        uses: Set::Of(&[0]),
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
    /// Where equal. NaN equals nothing.
    ///
    /// Derivative: none (a `bool`).
    eq Eq;
    /// Where different.
    ///
    /// Derivative: none (a `bool`).
    ne Ne;
    /// Where less.
    ///
    /// Derivative: none (a `bool`).
    lt Lt;
    /// Where less or equal.
    ///
    /// Derivative: none (a `bool`).
    le Le;
    /// Where greater.
    ///
    /// Derivative: none (a `bool`).
    gt Gt;
    /// Where greater or equal.
    ///
    /// Derivative: none (a `bool`).
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
    #[track_caller]
    #[must_use]
    #[doc(alias = "where")]
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

    /// Where NaN.
    ///
    /// Derivative: none (a `bool`).
    /// PyTorch's name: `isnan`.
    #[track_caller]
    #[must_use]
    #[doc(alias = "isnan")]
    pub fn is_nan(&self) -> Tensor {
        self.ne(self)
    }

    /// Where infinite.
    ///
    /// Derivative: none (a `bool`).
    /// PyTorch's name: `isinf`.
    #[track_caller]
    #[must_use]
    #[doc(alias = "isinf")]
    pub fn is_inf(&self) -> Tensor {
        match self.dtype().is_float() {
            true => kinks::uncounted_part(|| self.abs()).eq(f64::INFINITY),
            false => self.ne(self),
        }
    }

    /// Where neither infinite nor NaN.
    ///
    /// Derivative: none (a `bool`).
    /// PyTorch's name: `isfinite`.
    #[track_caller]
    #[must_use]
    #[doc(alias = "isfinite")]
    pub fn is_finite(&self) -> Tensor {
        match self.dtype().is_float() {
            true => kinks::uncounted_part(|| self.abs()).lt(f64::INFINITY),
            false => self.eq(self),
        }
    }

    /// Where `mask` is true, `value`.
    ///
    /// Derivative: `dy` where the mask is false, 0 elsewhere; for the value, the sum of the rest.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1, 2, 3]);
    /// assert_eq!(x.masked_fill(&x.gt(1), 0).to_vec::<i32>(), [1, 0, 0]);
    /// ```
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
