//! Diagonals, triangles and blocks of matrices.

use crate::{DType, Device, Error, Tensor, cat, default_device, fail, mode, trace};
use pullback_ir::Line;
use pullback_ir::infer::args;

impl Tensor {
    /// Of a vector, the matrix with it on a diagonal; of a matrix, that diagonal.
    ///
    /// Derivative: `dy` at the positions of its elements.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 2.0]).diag(0).to_vec::<f64>(), [1.0, 0.0, 0.0, 2.0]);
    /// assert_eq!(Tensor::from([[1.0, 2.0], [3.0, 4.0]]).diag(1).to_vec::<f64>(), [2.0]);
    /// ```
    ///
    /// # Panics
    /// If the operand is neither a vector nor a matrix.
    #[track_caller]
    #[must_use]
    pub fn diag(&self, offset: isize) -> Tensor {
        match self.rank() {
            1 => self.diag_embed(offset, -2, -1),
            2 => self.diagonal_of(offset, 0, 1).deep_clone(),
            _ => {
                let message = format!("takes a vector or a matrix, not {}", self.spec());
                self.checked(Err(Error::shape("diag", message).on([self.spec()])))
            }
        }
    }

    /// The last axis spread on the diagonal `offset` of two new axes, which become axes `a` and
    /// `b`.
    ///
    /// Derivative: `dy` at the positions of its elements.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1, 2], [3, 4]]);
    /// assert_eq!(x.diag_embed(0, -2, -1).at(1).to_vec::<i32>(), [3, 0, 0, 4]);
    /// ```
    ///
    /// # Panics
    /// If the axes are out of range or the same.
    #[track_caller]
    #[must_use]
    pub fn diag_embed(&self, offset: isize, a: isize, b: isize) -> Tensor {
        let x = if self.rank() == 0 { self.reshape([1]) } else { self.clone() };
        let grown = x.spec().with_shape(crate::Shape::from_elem(1, x.rank() + 1));
        let a = self.checked(args::axis("diag_embed", a, &grown));
        let b = self.checked(args::axis("diag_embed", b, &grown));
        if a == b {
            return self.checked(Err(
                Error::argument("diag_embed", "the two axes are the same").on([self.spec()])
            ));
        }
        let n = x.shape()[x.rank() - 1].saturating_add(offset.unsigned_abs());
        let mut shape = x.shape()[..x.rank() - 1].to_vec();
        shape.extend([n, n]);
        let square = x.new_zeros(&shape[..]).put(|v| v.diagonal_of(offset, -2, -1), &x);
        let mut others = 0..;
        let place = |i: usize| match i {
            i if i == a => x.rank() - 1,
            i if i == b => x.rank(),
            _ => others.next().unwrap_or(0),
        };
        let order: Vec<usize> = (0..=x.rank()).map(place).collect();
        square.permute(order)
    }

    /// The lower triangle: the part of the last two axes on and below a diagonal; zeros elsewhere.
    ///
    /// Derivative: the same part of `dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[1, 2], [3, 4]]).tril(-1).to_vec::<i32>(), [0, 0, 3, 0]);
    /// ```
    ///
    /// # Panics
    /// If there are fewer than two axes.
    #[track_caller]
    #[must_use]
    pub fn tril(&self, offset: isize) -> Tensor {
        self.triangle("tril", |row, column| column.le(&(row + far(offset))))
    }

    /// The upper triangle: the part of the last two axes on and above a diagonal; zeros elsewhere.
    ///
    /// Derivative: the same part of `dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[1.0, 2.0], [3.0, 4.0]]).triu(0).to_vec::<f64>(), [1.0, 2.0, 0.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If there are fewer than two axes.
    #[track_caller]
    #[must_use]
    pub fn triu(&self, offset: isize) -> Tensor {
        self.triangle("triu", |row, column| column.ge(&(row + far(offset))))
    }

    /// The places of a matrix on and below a diagonal, row by row: a row of row numbers above a row
    /// of column numbers.
    ///
    /// Derivative: none (an index).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::tril_indices(2, 2, 0).to_vec::<i64>(), [0, 1, 1, 0, 0, 1]);
    /// ```
    ///
    /// # Panics
    /// If the matrix is larger than memory.
    #[track_caller]
    #[must_use]
    pub fn tril_indices(rows: usize, columns: usize, offset: isize) -> Tensor {
        places(rows, columns, |ones| ones.tril(offset))
    }

    /// The places of a matrix on and above a diagonal, row by row: a row of row numbers above a row
    /// of column numbers.
    ///
    /// Derivative: none (an index).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::triu_indices(2, 2, 1).to_vec::<i64>(), [0, 1]);
    /// ```
    ///
    /// # Panics
    /// If the matrix is larger than memory.
    #[track_caller]
    #[must_use]
    pub fn triu_indices(rows: usize, columns: usize, offset: isize) -> Tensor {
        places(rows, columns, |ones| ones.triu(offset))
    }

    #[track_caller]
    fn triangle(&self, op: &'static str, keep: impl Fn(&Tensor, &Tensor) -> Tensor) -> Tensor {
        if self.rank() < 2 {
            let message = format!("takes matrices, not {}", self.spec());
            return self.checked(Err(Error::shape(op, message).on([self.spec()])));
        }
        let (rows, columns) = (self.shape()[self.rank() - 2], self.shape()[self.rank() - 1]);
        self.only(&keep(&self.new_iota(rows).unsqueeze(1), &self.new_iota(columns)))
    }

    /// The sum of the diagonal of the last two axes.
    ///
    /// Derivative: `dy` on the diagonal.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[1.0, 2.0], [3.0, 4.0]]).trace().item::<f64>(), 5.0);
    /// ```
    ///
    /// # Panics
    /// If there are fewer than two axes.
    #[track_caller]
    #[must_use]
    pub fn trace(&self) -> Tensor {
        self.diagonal().sum_over(-1)
    }

    /// The Kronecker product: every element of one times the whole of the other.
    ///
    /// Derivative: each operand gets `dy` times the other, summed over its blocks.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([[1, 2]]).kron(&Tensor::from([[1, 10]]));
    /// assert_eq!(y.to_vec::<i32>(), [1, 10, 2, 20]);
    /// ```
    ///
    /// # Panics
    /// If the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn kron(&self, other: &Tensor) -> Tensor {
        let rank = self.rank().max(other.rank());
        let wide = |x: &Tensor| [vec![1; rank - x.rank()], x.shape().to_vec()].concat();
        let (a, b) = (wide(self), wide(other));
        let between = |x: &[usize], first: bool| -> Vec<usize> {
            x.iter().flat_map(|&n| if first { [n, 1] } else { [1, n] }).collect()
        };
        let product = self.reshape(between(&a, true)) * other.reshape(between(&b, false));
        product.reshape(a.iter().zip(&b).map(|(m, n)| m * n).collect::<Vec<usize>>())
    }

    /// The cross product along an axis of length 3.
    ///
    /// Derivative: `b × dy` and `dy × a`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (x, y) = (Tensor::from([1.0, 0.0, 0.0]), Tensor::from([0.0, 1.0, 0.0]));
    /// assert_eq!(x.cross(&y, 0).to_vec::<f64>(), [0.0, 0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range or not of length 3, or the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn cross(&self, other: &Tensor, axis: isize) -> Tensor {
        let at = self.axis("cross", axis);
        if self.shape().get(at) != Some(&3) {
            let message = format!("axis {axis} of {} does not have length 3", self.spec());
            return self
                .checked(Err(Error::shape("cross", message).on([self.spec(), other.spec()])));
        }
        let from_end = at as isize - self.rank() as isize;
        let _ = other.axis("cross", from_end);
        let turned = |x: &Tensor, by: isize| x.roll(by, from_end);
        turned(self, -1) * turned(other, -2) - turned(self, -2) * turned(other, -1)
    }
}

/// An offset clamped so that adding a row index cannot overflow.
fn far(offset: isize) -> i64 {
    offset.clamp(-(isize::MAX / 4), isize::MAX / 4) as i64
}

/// The block-diagonal matrix of matrices, zeros elsewhere. Vectors are rows, scalars 1 × 1.
///
/// Derivative: each operand gets the part of `dy` that it is.
///
/// ```
/// use pullback::{Tensor, block_diag};
/// let y = block_diag(&[&Tensor::from([[1.0]]), &Tensor::from([[2.0, 3.0]])]);
/// assert_eq!(y.to_vec::<f64>(), [1.0, 0.0, 0.0, 0.0, 2.0, 3.0]);
/// ```
///
/// # Panics
/// If there is no tensor, or one has more than two axes.
#[track_caller]
#[must_use]
pub fn block_diag(tensors: &[&Tensor]) -> Tensor {
    if let Some(x) = tensors.iter().find(|x| x.rank() > 2) {
        let error = Error::shape("block_diag", format!("takes matrices, not {}", x.spec()));
        fail::raise(error.at(mode::user_line(Line::caller())));
    }
    let matrix = |x: &&Tensor| match x.rank() {
        2 => (*x).clone(),
        _ => x.reshape([1, x.len()]),
    };
    let blocks: Vec<Tensor> = tensors.iter().map(matrix).collect();
    let dtype = blocks.iter().map(Tensor::dtype).reduce(DType::promote).unwrap_or(DType::F32);
    let width: usize = blocks.iter().map(|x| x.shape()[1]).sum();
    let mut left = 0;
    let mut rows = Vec::with_capacity(blocks.len());
    for x in &blocks {
        let right = width - left - x.shape()[1];
        rows.push(x.cast(dtype).pad([(0, 0), (left, right)]));
        left += x.shape()[1];
    }
    cat(&rows.iter().collect::<Vec<_>>(), 0)
}

/// The places of a matrix that a function of ones leaves, known also while tracing.
#[track_caller]
fn places(rows: usize, columns: usize, keep: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    let at = mode::user_line(Line::caller());
    let found = || keep(&Tensor::ones_with([rows, columns], DType::U8)).nonzero().t().contiguous();
    // Found on the host, which need not wait for any device.
    let found = || mode::with(&mode::DEFAULT_DEVICE, Some(Device::Cpu), found);
    trace::computing(|| mode::with_line(at, found).to(default_device()))
}
