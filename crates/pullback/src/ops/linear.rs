//! Products with an added term, and contractions over chosen axes.

use crate::ops::cast::one_float;
use crate::ops::one_pass::{is_value_alone, one_pass_over};
use crate::{Error, Tensor, autocast, einsum};

impl Tensor {
    /// self · beta, where a `beta` of 0 drops even what is not finite.
    #[track_caller]
    fn scaled(&self, beta: f64) -> Tensor {
        match beta {
            0.0 => self.zeros_like_splat(),
            1.0 => self.clone(),
            _ => self * beta,
        }
    }

    /// beta · self + alpha · a·b, for matrices.
    ///
    /// Derivative: `beta·dy`, `alpha·dy·bᵀ` and `alpha·aᵀ·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let a = Tensor::from([[1.0, 2.0]]);
    /// assert_eq!(Tensor::from([[3.0]]).addmm(&a, &a.t(), 2.0, 1.0).to_vec::<f64>(), [11.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or float dtypes are mixed.
    #[track_caller]
    #[must_use]
    pub fn addmm(&self, a: &Tensor, b: &Tensor, beta: f64, alpha: f64) -> Tensor {
        one_float("addmm", [self, a, b]);
        self.scaled(beta) + a.matmul(b).scaled(alpha)
    }

    /// beta · self + alpha · matrix·vector.
    ///
    /// Derivative: `beta·dy`, `alpha·dy ⊗ vector` and `alpha·matrixᵀ·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (m, v) = (Tensor::from([[1.0, 2.0], [3.0, 4.0]]), Tensor::from([1.0, 1.0]));
    /// assert_eq!(v.addmv(&m, &v, 10.0, 1.0).to_vec::<f64>(), [13.0, 17.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or float dtypes are mixed.
    #[track_caller]
    #[must_use]
    pub fn addmv(&self, matrix: &Tensor, vector: &Tensor, beta: f64, alpha: f64) -> Tensor {
        one_float("addmv", [self, matrix, vector]);
        self.scaled(beta) + matrix.matmul(vector).scaled(alpha)
    }

    /// beta · self + alpha · a ⊗ b, for vectors a and b.
    ///
    /// Derivative: `beta·dy`, `alpha·dy·b` and `alpha·dyᵀ·a`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (a, b) = (Tensor::from([1.0, 2.0]), Tensor::from([3.0, 4.0]));
    /// let y = Tensor::from([[1.0, 1.0], [1.0, 1.0]]).addr(&a, &b, 1.0, 10.0);
    /// assert_eq!(y.to_vec::<f64>(), [31.0, 41.0, 61.0, 81.0]);
    /// ```
    ///
    /// # Panics
    /// If `a` or `b` is not a vector, or the shapes do not fit.
    #[track_caller]
    #[must_use]
    pub fn addr(&self, a: &Tensor, b: &Tensor, beta: f64, alpha: f64) -> Tensor {
        if a.rank() != 1 || b.rank() != 1 {
            // An error of `outer`.
            return a.outer(b);
        }
        let (column, row) = (a.unsqueeze(1), b.unsqueeze(0));
        let product = [a.len(), b.len()];
        let whole = pullback_ir::broadcast_shapes(self.shape(), &product);
        let whole = whole.unwrap_or_else(|| self.dims().clone());
        // The gradients of operands that are spread would be summed from whole matrices.
        if ![self, a, b].into_iter().all(is_value_alone) {
            return self.scaled(beta) + a.outer(b).scaled(alpha);
        }
        one_pass_over("addr", &[beta, alpha], &whole, [self, &column, &row], |[x, a, b]| {
            x.scaled(beta) + (a * b).scaled(alpha)
        })
    }

    /// beta · self + alpha · a·b, for stacks of matrices.
    ///
    /// Derivative: `beta·dy`, `alpha·dy·bᵀ` and `alpha·aᵀ·dy`, matrix by matrix.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (a, b) = (Tensor::ones([2, 1, 3]), Tensor::ones([2, 3, 1]));
    /// let y = Tensor::ones([2, 1, 1]).baddbmm(&a, &b, 1.0, 2.0);
    /// assert_eq!(y.to_vec::<f32>(), [7.0, 7.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or float dtypes are mixed.
    #[track_caller]
    #[must_use]
    pub fn baddbmm(&self, a: &Tensor, b: &Tensor, beta: f64, alpha: f64) -> Tensor {
        one_float("baddbmm", [self, a, b]);
        self.scaled(beta) + a.matmul(b).scaled(alpha)
    }

    /// beta · self + alpha · Σ a·b, summed over stacks of matrices.
    ///
    /// Derivative: `beta·dy`, `alpha·dy·bᵀ` and `alpha·aᵀ·dy`, matrix by matrix.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (a, b) = (Tensor::ones([2, 1, 3]), Tensor::ones([2, 3, 1]));
    /// let y = Tensor::ones([1, 1]).addbmm(&a, &b, 1.0, 1.0);
    /// assert_eq!(y.to_vec::<f32>(), [7.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or float dtypes are mixed.
    #[track_caller]
    #[must_use]
    pub fn addbmm(&self, a: &Tensor, b: &Tensor, beta: f64, alpha: f64) -> Tensor {
        one_float("addbmm", [self, a, b]);
        self.scaled(beta) + a.matmul(b).sum_over(0).scaled(alpha)
    }

    /// The sum of products over the last axes of both; a 0-d operand multiplies.
    ///
    /// Derivative: `dy·b` and `dy·a`, spread over what was summed.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (a, b) = (Tensor::from([[1.0, 2.0], [3.0, 4.0]]), Tensor::from([1.0, 10.0]));
    /// assert_eq!(a.inner(&b).to_vec::<f64>(), [21.0, 43.0]);
    /// ```
    ///
    /// # Panics
    /// If the last axes differ in length, or float dtypes are mixed.
    #[track_caller]
    #[must_use]
    pub fn inner(&self, other: &Tensor) -> Tensor {
        one_float("inner", [self, other]);
        match self.rank() == 0 || other.rank() == 0 {
            true => self * other,
            false => self.tensordot(other, &[-1], &[-1]),
        }
    }

    /// The sum of products along one axis, the others broadcast.
    ///
    /// Derivative: `dy·b` and `dy·a`, spread over what was summed.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1, 2], [3, 4]]);
    /// assert_eq!(x.vecdot(&x, 1).to_vec::<i64>(), [5, 25]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast, the axis is out of range, or float dtypes are mixed.
    #[track_caller]
    #[must_use]
    pub fn vecdot(&self, other: &Tensor, axis: isize) -> Tensor {
        one_float("vecdot", [self, other]);
        (self * other).sum_over(axis)
    }

    /// Axes that are there, in the order given: a 0-d tensor has none.
    #[track_caller]
    fn own_axes(&self, op: &'static str, axes: &[isize]) -> Vec<usize> {
        let mut list = Vec::with_capacity(axes.len());
        for &axis in axes {
            let i = self.axis(op, axis);
            if i >= self.rank() || list.contains(&i) {
                let message = match i >= self.rank() {
                    true => format!("{} has no axis {axis}", self.spec()),
                    false => format!("axis {axis} is named twice for {}", self.spec()),
                };
                return self.checked(Err(Error::argument(op, message).on([self.spec()])));
            }
            list.push(i);
        }
        list
    }

    /// The sum of products over pairs of axes; the other axes of `self` come first, then those of
    /// `other`.
    ///
    /// Derivative: the product of `dy` with the other operand, over its remaining axes.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (a, b) = (Tensor::ones([2, 3, 4]), Tensor::ones([4, 3, 5]));
    /// assert_eq!(a.tensordot(&b, &[1, 2], &[1, 0]).shape(), [2, 5]);
    /// ```
    ///
    /// # Panics
    /// If the lists differ in length, or paired axes do (unless one has length 1).
    #[track_caller]
    #[must_use]
    pub fn tensordot(&self, other: &Tensor, axes: &[isize], with: &[isize]) -> Tensor {
        one_float("tensordot", [self, other]);
        let (a, b) = (self.own_axes("tensordot", axes), other.own_axes("tensordot", with));
        let lengths = |x: &Tensor, axes: &[usize]| -> Vec<usize> {
            axes.iter().map(|&i| x.shape()[i]).collect()
        };
        // An axis of length 1 may be paired with any: it multiplies the sum over the other.
        let thin = |x: &Tensor, axes: &[usize], y: &Tensor, with: &[usize]| {
            let paired =
                axes.iter().zip(with).filter(|(i, j)| x.shape()[**i] != 1 && y.shape()[**j] == 1);
            paired.fold(x.clone(), |x, (&i, _)| x.sum_keep(i as isize))
        };
        let (left, right) = (thin(self, &a, other, &b), thin(other, &b, self, &a));
        let (la, lb) = (lengths(&left, &a), lengths(&right, &b));
        if la != lb {
            let message = format!(
                "axes {axes:?} of {} and {with:?} of {} differ in length",
                self.spec(),
                other.spec()
            );
            return self
                .checked(Err(Error::shape("tensordot", message).on([self.spec(), other.spec()])));
        }
        let rest = |x: &Tensor, axes: &[usize]| -> Vec<usize> {
            (0..x.rank()).filter(|i| !axes.contains(i)).collect()
        };
        let (ra, rb) = (rest(self, &a), rest(other, &b));
        let (sa, sb) = (lengths(self, &ra), lengths(other, &rb));
        let inner: usize = la.iter().product();
        let left = left.permute([&ra[..], &a[..]].concat()).reshape([sa.iter().product(), inner]);
        let right = right.permute([&b[..], &rb[..]].concat()).reshape([inner, sb.iter().product()]);
        left.matmul(&right).reshape([sa, sb].concat())
    }

    /// The linear layer self · weightᵀ + bias, with weights `[out, in]` (or a vector `[in]`). All
    /// floats have one dtype.
    ///
    /// Derivative: `dy·weight`, `dyᵀ·self`, and the sum of `dy` for the bias.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (x, w) = (Tensor::from([[1.0, 2.0]]), Tensor::from([[3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]));
    /// assert_eq!(x.linear(&w, None).to_vec::<f64>(), [11.0, 17.0, 23.0]);
    /// ```
    ///
    /// # Panics
    /// If the features of input and weight differ, the bias does not fit, or float dtypes are
    /// mixed.
    #[track_caller]
    #[must_use]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        one_float("linear", [self, weight].into_iter().chain(bias));
        // The weight is cast before it is transposed: so the cast can be cached.
        let low = autocast::lowered([self, weight]);
        let [x, weight] = low.as_ref().map_or([self, weight], |[x, w]| [x, w]);
        let y = x.matmul(&weight.t());
        match bias {
            Some(b) => &y + autocast::cast_bias(b, &y),
            None => y,
        }
    }

    /// Σᵢⱼ selfᵢ · weightₖᵢⱼ · otherⱼ + biasₖ over the last axes.
    ///
    /// Derivative: of its formula, linear in each operand.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (x, y) = (Tensor::from([[1.0, 2.0]]), Tensor::from([[3.0, 4.0]]));
    /// // One result: the weight is [1, 2, 2].
    /// let weight = Tensor::from([[[1.0, 0.0], [0.0, 1.0]]]);
    /// assert_eq!(x.bilinear(&y, &weight, None).to_vec::<f64>(), [11.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or float dtypes are mixed.
    #[track_caller]
    #[must_use]
    pub fn bilinear(&self, other: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        one_float("bilinear", [self, other, weight].into_iter().chain(bias));
        let y = einsum("...i,kij,...j->...k", &[self, weight, other]);
        match bias {
            Some(b) => &y + autocast::cast_bias(b, &y),
            None => y,
        }
    }
}
