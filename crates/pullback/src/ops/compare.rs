//! Comparison and selection.

use crate::apply::apply;
use crate::ops::Operand;
use crate::ops::operand::pair;
use crate::rule::{Grad, Linear, Set};
use crate::{DType, Op, Tensor};
use pullback_ir::Compare;

pub(crate) fn select_row() -> Grad {
    Grad::Linear(Linear {
        wrt: Set::Of(&[1, 2]),
        uses: Set::Of(&[0]),
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
    eq Eq;
    /// Where different.
    ne Ne;
    /// Where less.
    lt Lt;
    /// Where less or equal.
    le Le;
    /// Where greater.
    gt Gt;
    /// Where greater or equal.
    ge Ge;
}

impl Tensor {
    #[track_caller]
    fn compare(&self, f: Compare, other: impl Operand) -> Tensor {
        let other = other.beside(self);
        let (a, b) = pair(f.name(), self, &other, None);
        apply(Op::Compare(f), &[&a, &b])
    }

    /// `a` where this condition is true, `b` elsewhere; all three broadcast.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([-1.0, 2.0]);
    /// assert_eq!(x.gt(0.0).select(&x, 0.0).to_vec::<f64>(), [0.0, 2.0]);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn select(&self, a: impl Operand, b: impl Operand) -> Tensor {
        // A scalar adopts the other branch's dtype: find a tensor among the two first.
        let probe = b.beside(self);
        let a = a.beside(&probe);
        let b = b.beside(&a);
        self.choose(&a, &b)
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
        let a = Operand::beside(&a, &b).into_owned();
        self.choose(&a, &b)
    }

    /// Where NaN.
    #[track_caller]
    #[must_use]
    pub fn is_nan(&self) -> Tensor {
        self.ne(self)
    }

    /// Where infinite.
    #[track_caller]
    #[must_use]
    pub fn is_inf(&self) -> Tensor {
        match self.dtype().is_float() {
            true => self.abs().eq(f64::INFINITY),
            false => self.ne(self),
        }
    }

    /// Where neither infinite nor NaN.
    #[track_caller]
    #[must_use]
    pub fn is_finite(&self) -> Tensor {
        match self.dtype().is_float() {
            true => self.abs().lt(f64::INFINITY),
            false => self.eq(self),
        }
    }

    /// Where `mask` is true, `value`.
    #[track_caller]
    #[must_use]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Operand) -> Tensor {
        let value = value.beside(self).cast(self.dtype());
        mask.choose(&value, self)
    }
}

/// Both in one shape.
#[track_caller]
fn pair_shapes(condition: &Tensor, x: &Tensor) -> (Tensor, Tensor) {
    let at = crate::mode::user_line(std::panic::Location::caller());
    let shape = pullback_ir::infer::args::broadcast("select", condition.spec(), x.spec());
    let shape = crate::fail::or_raise(shape.map_err(|e| e.at(at)));
    let condition = match condition.dtype() {
        DType::Bool => condition.clone(),
        _ => condition.ne(0),
    };
    (condition.expand_to(&shape), x.expand_to(&shape))
}
