//! Norms of any order, and distances.

use crate::ops::one_pass::{is_value_alone, one_pass_of_rows, or_op_by_op};
use crate::{Error, IntoAxes, Tensor, kinks, ops::distances};
use pullback_ir::infer::args;

impl Tensor {
    /// The norm of order `p` over some axes: (Σ|x|ᵖ)^(1/p); the largest |x| for ∞, the smallest for
    /// −∞, the number of non-zeros for 0. Its derivative at the origin is 0.
    ///
    /// Derivative: sign(x)·(|x|/y)^(p−1); the elements that are the extreme share it for ±∞; 0 for
    /// p = 0.
    /// PyTorch's name: `linalg.vector_norm`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([3.0, -4.0]);
    /// assert_eq!(x.vector_norm(1.0, 0).item::<f64>(), 7.0);
    /// assert_eq!(x.vector_norm(f64::INFINITY, 0).item::<f64>(), 4.0);
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range or named twice, or `p` is ±∞ and an axis is empty.
    #[track_caller]
    #[must_use]
    pub fn vector_norm(&self, p: f64, axes: impl IntoAxes) -> Tensor {
        let axes = axes.list();
        if p != 2.0 {
            let of = |[x]: [&Tensor; 1]| x.vector_norm(p, 1);
            if let Some(norm) = one_pass_of_rows("vector_norm", &[p], [self], &axes, of) {
                return norm;
            }
        }
        let (x, dtype) = (self.wide(), self.reduced_dtype());
        if p == f64::INFINITY {
            return x.abs().max_over(axes).cast(dtype);
        }
        if p == f64::NEG_INFINITY {
            return x.abs().min_over(axes).cast(dtype);
        }
        if p == 0.0 {
            return x.ne(0.0).cast(x.dtype()).sum_over(axes).cast(dtype);
        }
        if p == 1.0 {
            return x.abs().sum_over(axes).cast(dtype);
        }
        if p == 2.0 {
            return x.norm_over(axes).cast(dtype);
        }
        // Zeros stay out of the power, whose slope may be infinite there; so does a sum of zero.
        let zero = x.eq(0.0);
        let at_zero = if p < 0.0 { f64::INFINITY } else { 0.0 };
        let powers =
            zero.select_or(at_zero, zero.select_or(1.0, kinks::uncounted_part(|| x.abs())).powf(p));
        let sum = powers.sum_over(axes);
        kinks::at("vector_norm", kinks::KinkKind::OtherNorm, &[&sum], |sum| sum[0].eq(at_zero));
        let origin = sum.eq(at_zero);
        origin.select_or(0.0, origin.select_or(1.0, sum).pow(1.0 / p)).cast(dtype)
    }

    /// [`Tensor::vector_norm`] over axes that stay, with length 1.
    ///
    /// Derivative: as [`Tensor::vector_norm`].
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[3.0, -4.0], [0.0, 2.0]]);
    /// let y = x.vector_norm_keep(2.0, 1);
    /// assert_eq!((y.shape(), y.to_vec::<f64>()), (&[2, 1][..], vec![5.0, 2.0]));
    /// ```
    ///
    /// # Panics
    /// If an axis is out of range or named twice, or `p` is ±∞ and an axis is empty.
    #[track_caller]
    #[must_use]
    pub fn vector_norm_keep(&self, p: f64, axes: impl IntoAxes) -> Tensor {
        let axes = axes.list();
        let norm = self.vector_norm(p, axes.clone());
        self.kept("vector_norm", &axes, norm)
    }

    /// The norm of order `p` of the difference.
    ///
    /// Derivative: as [`Tensor::vector_norm`], of the difference.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 1.0]).dist(&Tensor::from([4.0, 5.0]), 2.0).item::<f64>(), 5.0);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn dist(&self, other: &Tensor, p: f64) -> Tensor {
        let of = |[x, y]: [&Tensor; 2]| (x - y).vector_norm(p, 1);
        let rows = match self.shape() == other.shape() {
            true => one_pass_of_rows("dist", &[p], [self, other], &self.all_axes(), of),
            false => None,
        };
        or_op_by_op(rows, || {
            let difference = self - other;
            let axes = difference.all_axes();
            difference.vector_norm(p, axes)
        })
    }

    /// All distances of order `p` between the rows of two (stacks of) matrices. Euclidean ones
    /// (`p` = 2) are one kernel, which stores no differences.
    ///
    /// Derivative: as [`Tensor::vector_norm`], of each difference; 0 where two rows are equal.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[0.0, 0.0], [3.0, 4.0]]);
    /// assert_eq!(x.cdist(&x, 2.0).to_vec::<f64>(), [0.0, 5.0, 5.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If an operand is 0-d, or the rows differ in length.
    #[track_caller]
    #[must_use]
    pub fn cdist(&self, other: &Tensor, p: f64) -> Tensor {
        if let Some(distances) = distances::between(self, other, p) {
            return distances;
        }
        (self.unsqueeze(-2) - other.unsqueeze(-3)).vector_norm(p, -1)
    }

    /// The distances of order `p` between all pairs of rows of a matrix, as a vector: rows 0 and 1,
    /// 0 and 2, …, 1 and 2, ….
    ///
    /// Derivative: of [`Tensor::vector_norm`] of the differences.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]);
    /// assert_eq!(x.pdist(1.0).to_vec::<f64>(), [7.0, 1.0, 6.0]);
    /// ```
    ///
    /// # Panics
    /// If the operand is not a matrix.
    #[track_caller]
    #[must_use]
    pub fn pdist(&self, p: f64) -> Tensor {
        if self.rank() != 2 {
            let message = format!("takes a matrix, not {}", self.spec());
            return self.checked(Err(Error::shape("pdist", message).on([self.spec()])));
        }
        if let Some(distances) = distances::within(self, p) {
            return distances;
        }
        let [a, b] = distances::pairs(self);
        (a - b).vector_norm(p, -1)
    }

    /// The norm of order `p` of `self − other + eps` over the last axis.
    ///
    /// Derivative: as [`Tensor::vector_norm`], of the difference.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (x, y) = (Tensor::from([[3.0, 4.0], [1.0, 1.0]]), Tensor::from([[0.0, 0.0], [1.0, 2.0]]));
    /// assert_eq!(x.pairwise_distance(&y, 2.0, 0.0).to_vec::<f64>(), [5.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn pairwise_distance(&self, other: &Tensor, p: f64, eps: f64) -> Tensor {
        let distance = |x: &Tensor, y: &Tensor| (x.up() - y.up() + eps).vector_norm(p, -1);
        let of = |[x, y]: [&Tensor; 2]| distance(x, y);
        let rows = match self.shape() == other.shape() {
            true => one_pass_of_rows("pairwise_distance", &[p, eps], [self, other], &[-1], of),
            false => None,
        };
        or_op_by_op(rows, || distance(self, other))
    }

    /// The cosine of the angle along an axis. Norms below `eps` count as `eps` in the value, while
    /// the gradient passes through them.
    ///
    /// Derivative: (b/|b| − y·a/|a|)/|a| by a, and the same of b.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (x, y) = (Tensor::from([[1.0, 0.0]]), Tensor::from([[0.0, 2.0]]));
    /// assert_eq!(x.cosine_similarity(&y, 1, 1e-8).to_vec::<f64>(), [0.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast, or the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn cosine_similarity(&self, other: &Tensor, axis: isize, eps: f64) -> Tensor {
        let floored = |x: &Tensor| {
            let norm = kinks::uncounted_part(|| x.norm_keep(axis));
            let raised = (norm.detach().clamp_min(eps) - norm.detach()).detach();
            norm + raised
        };
        if self.shape() == other.shape() && is_value_alone(self) && is_value_alone(other) {
            let of = |[a, b]: [&Tensor; 2]| {
                let dtype = a.reduced_dtype().promote(b.reduced_dtype());
                let unit = |x: Tensor| &x / x.norm_keep(1).clamp_min(eps);
                (unit(a.wide()) * unit(b.wide())).sum_over(1).cast(dtype)
            };
            let pair = [self, other];
            if let Some(y) = one_pass_of_rows("cosine_similarity", &[eps], pair, &[axis], of) {
                return y;
            }
        }
        // Broadcast first: the axis is counted in the common shape.
        let shape = self.checked(args::broadcast("cosine_similarity", self.spec(), other.spec()));
        let dtype = self.reduced_dtype().promote(other.reduced_dtype());
        let (a, b) = (self.wide().expand_to(&shape), other.wide().expand_to(&shape));
        let _ = a.axis("cosine_similarity", axis);
        (&a / floored(&a) * (&b / floored(&b))).sum_over(axis).cast(dtype)
    }

    /// x divided by its norm of order `p` along an axis, or by `eps` where the norm is smaller.
    ///
    /// Derivative: (dy − u·⟨u, dy⟩)/|x| for p = 2, with u the result; dy/eps where the norm is
    /// below eps.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([[3.0, 4.0]]).normalize(2.0, 1, 1e-12);
    /// assert_eq!(y.to_vec::<f64>(), [0.6, 0.8]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn normalize(&self, p: f64, axis: isize, eps: f64) -> Tensor {
        let unit = |x: &Tensor, axis: isize| {
            let (dtype, x) = (x.reduced_dtype(), x.wide());
            // At the origin eps is used instead of the norm; norms of other orders have kinks
            // elsewhere too.
            let norm = match p == 2.0 {
                true => kinks::uncounted_part(|| x.vector_norm_keep(p, axis)),
                false => x.vector_norm_keep(p, axis),
            };
            (&x / norm.clamp_min(eps)).cast(dtype)
        };
        let rows = one_pass_of_rows("normalize", &[p, eps], [self], &[axis], |[x]| unit(x, 1));
        or_op_by_op(rows, || unit(self, axis))
    }
}
