//! Matrix products.

use crate::apply::apply;
use crate::ops::cast::one_float;
use crate::ops::one_pass::{is_value_alone, one_pass_over};
use crate::rule::{Adds, BilinearRule, Grad, RuleContext};
use crate::{DType, Error, Op, Shape, Tensor, autocast};

/// Y = A·B: dA = dY·Bᵀ, dB = Aᵀ·dY. Transposes are views, never copies.
pub(crate) fn row() -> Grad {
    Grad::Bilinear(BilinearRule {
        transpose: |f, i, dy| {
            let (a, b) = factors(f, i, dy);
            apply(Op::Dot, &[&a, &b])
        },
        // The gradient of a weight that is used at every step of a sequence passes through memory
        // once a step instead of three times.
        adds: Adds::Into(|f, i, dy, sum| {
            let (a, b) = factors(f, i, dy);
            sum.add_product_if_sole(&a, &b)
        }),
        formula: "`da = dy · bᵀ`, `db = aᵀ · dy`",
    })
}

/// The gradient of operand `i` is the product of these.
fn factors(f: &RuleContext, i: usize, dy: &Tensor) -> (Tensor, Tensor) {
    match i {
        0 => (dy.clone(), f.x(1).t()),
        _ => (f.x(0).t(), dy.clone()),
    }
}

impl Tensor {
    /// The matrix product over the last two axes, as NumPy's `@`: leading axes broadcast, a vector
    /// is a row on the left and a column on the right. Two floats must have one dtype; integers are
    /// cast to that of the floats.
    ///
    /// Derivative: `dy·bᵀ` and `aᵀ·dy`, summed over what was broadcast.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let a = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// let b = Tensor::from([[5.0, 6.0], [7.0, 8.0]]);
    /// assert_eq!(a.matmul(&b).to_vec::<f64>(), [19.0, 22.0, 43.0, 50.0]);
    /// ```
    ///
    /// # Panics
    /// If an operand is 0-d, the inner lengths differ, the leading axes do not broadcast, or float
    /// dtypes are mixed.
    #[track_caller]
    #[must_use]
    #[doc(alias = "mm")]
    #[doc(alias = "bmm")]
    #[doc(alias = "mv")]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        if self.rank() == 0 || other.rank() == 0 {
            let message = format!(
                "a 0-d operand has no axis to multiply over: {} · {}",
                self.spec(),
                other.spec()
            );
            return self
                .checked(Err(Error::shape("matmul", message).on([self.spec(), other.spec()])));
        }
        if let Some([a, b]) = autocast::lowered([self, other]) {
            return a.matmul(&b);
        }
        one_float("matmul", [self, other]);
        let dtype = match self.dtype().promote(other.dtype()) {
            DType::Bool => DType::I64,
            dtype => dtype,
        };
        let (a, b) = (self.cast(dtype), other.cast(dtype));
        match (a.rank(), b.rank()) {
            (1, 1) => apply(Op::Dot, &[&a.unsqueeze(0), &b.unsqueeze(1)]).reshape(&[] as &[usize]),
            (1, _) => a.unsqueeze(0).matmul(&b).squeeze_axis(-2),
            (_, 1) => a.matmul(&b.unsqueeze(1)).squeeze_axis(-1),
            (2, 2) => apply(Op::Dot, &[&a, &b]),
            // One matrix for a whole stack: the stack is one tall matrix.
            (_, 2) if a.shape()[a.rank() - 1] == b.shape()[0] => {
                let mut shape: Shape = Shape::from_slice(a.shape());
                shape[a.rank() - 1] = b.shape()[1];
                let rows: usize = a.shape()[..a.rank() - 1].iter().product();
                let flat = a.reshape([rows, a.shape()[a.rank() - 1]]);
                apply(Op::Dot, &[&flat, &b]).reshape(&shape[..])
            }
            _ => stacked(&a, &b),
        }
    }

    /// The dot product of two vectors.
    ///
    /// Derivative: `dy·b` and `dy·a`, spread over what was summed.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 2.0]).dot(&Tensor::from([3.0, 4.0])).item::<f64>(), 11.0);
    /// ```
    ///
    /// # Panics
    /// If an operand is not a vector, the lengths differ, or float dtypes are mixed.
    #[track_caller]
    #[must_use]
    pub fn dot(&self, other: &Tensor) -> Tensor {
        if self.rank() != 1 || other.rank() != 1 {
            let message = format!("takes two vectors, not {} and {}", self.spec(), other.spec());
            return self.checked(Err(Error::shape("dot", message).on([self.spec(), other.spec()])));
        }
        one_float("dot", [self, other]);
        self.matmul(other)
    }

    /// The outer product of two vectors.
    ///
    /// Derivative: `dy·b` and `dyᵀ·a`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1, 2]).outer(&Tensor::from([3, 4])).to_vec::<i32>(), [3, 4, 6, 8]);
    /// ```
    ///
    /// # Panics
    /// If an operand is not a vector.
    #[track_caller]
    #[must_use]
    pub fn outer(&self, other: &Tensor) -> Tensor {
        if self.rank() != 1 || other.rank() != 1 {
            let message = format!("takes two vectors, not {} and {}", self.spec(), other.spec());
            return self
                .checked(Err(Error::shape("outer", message).on([self.spec(), other.spec()])));
        }
        let (column, row) = (self.unsqueeze(1), other.unsqueeze(0));
        // The gradients are products, of which a region knows nothing.
        if self.dtype().is_float() && is_value_alone(self) && is_value_alone(other) {
            let shape = [self.len(), other.len()];
            return one_pass_over("outer", &[], &shape, [&column, &row], |[a, b]| a * b);
        }
        column * row
    }
}

/// Stacks of matrices: the leading axes broadcast.
#[track_caller]
fn stacked(a: &Tensor, b: &Tensor) -> Tensor {
    let lead = |x: &Tensor| x.shape()[..x.rank().saturating_sub(2)].to_vec();
    let (lead_a, lead_b) = (lead(a), lead(b));
    let Some(shape) = pullback_ir::broadcast_shapes(&lead_a, &lead_b) else {
        let message = format!("batch dimensions do not broadcast: {} · {}", a.spec(), b.spec());
        return a.checked(Err(Error::shape("matmul", message).on([a.spec(), b.spec()])));
    };
    let stack = |x: &Tensor| {
        let mut wide = shape.clone();
        wide.extend_from_slice(&x.shape()[x.rank() - 2..]);
        x.expand_to(&wide)
    };
    apply(Op::Dot, &[&stack(a), &stack(b)])
}
