//! What ops carry besides their kind: which comparison, reduction, factorisation, and so on.

/// Comparisons of two elements. Any comparison with NaN is false, except `Ne`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Random {
    /// All 64 bits random (dtype `i64`): new keys come from these.
    Bits,
    /// Uniform in [0, 1).
    Uniform,
    /// Normal with mean 0 and variance 1.
    Normal,
}

/// Zeros put around and between the elements of one axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Padding {
    /// Zeros before the first element.
    pub before: usize,
    /// Zeros after the last element.
    pub after: usize,
    /// Zeros between neighbours.
    pub between: usize,
}

/// How `Scatter` combines a source element with the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// Replaced; if an index occurs twice, the last one (in row-major order) wins.
    Set,
    /// Added, in an order that depends on shapes alone.
    Add,
    /// Multiplied.
    Mul,
    /// The larger one.
    Max,
    /// The smaller one.
    Min,
}

/// What a reduction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum; of integers and booleans, in `i64`.
    Sum,
    /// The product; of integers and booleans, in `i64`.
    Prod,
    /// The largest; NaN if any is. On `bool`: any.
    Max,
    /// The smallest; NaN if any is. On `bool`: all.
    Min,
}

/// Which extreme `ArgReduce` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Extreme {
    Max,
    Min,
}

/// What a cumulative reduction accumulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Cumulation {
    Sum,
    Prod,
    Max,
    Min,
    LogSumExp,
}

/// Factorisations of matrices (the last two axes; those before them are batches), and solutions of
/// linear systems.
///
/// No kernel fails on a value: a missing factor is NaN, or shows as a zero pivot. The functions
/// that report failures check the result and name the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linalg {
    /// The lower L with L·Lᵀ = A, for a symmetric A of which the lower triangle is read. From the
    /// first leading minor on that is not positive, the columns of L are NaN.
    Cholesky,
    /// From a triangular A, of which only that triangle is read, and B: A⁻¹·B.
    TriangularSolve {
        /// The upper triangle, not the lower one.
        upper: bool,
        /// The diagonal is taken as ones, and not read.
        unit: bool,
    },
    /// L and U in one matrix with P·L·U = A, and the pivots `i32`: row i was exchanged with row
    /// `pivot[i] − 1`, in order.
    Lu,
    /// From pivots, the rows (of this many) in the order after the exchanges: `(P·X)ᵀ` gathers by
    /// it.
    Permutation(usize),
    /// From A, its L and U in one matrix, its pivots, and B: A⁻¹·B, or A⁻ᵀ·B. Derivatives are those
    /// with respect to A and B.
    LuSolve {
        /// Solves with Aᵀ.
        transpose: bool,
    },
    /// Q with orthonormal columns and the upper triangular R with Q·R = A.
    Qr {
        /// Q is square, with rows of zeros below R.
        complete: bool,
    },
    /// The eigenvalues, ascending, and the eigenvectors (columns) of a symmetric A of which the
    /// lower triangle is read.
    Eigh,
    /// The eigenvalues of [`Linalg::Eigh`] or the singular values of [`Linalg::Svd`] alone.
    Spectrum {
        /// Singular values.
        singular: bool,
    },
    /// U, the singular values, descending, and Vᵀ with U·diag(s)·Vᵀ = A.
    Svd {
        /// U and V are square.
        full: bool,
    },
}

/// Discrete Fourier transforms along an axis, none of them scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fft {
    /// Σⱼ xⱼ·e^(∓2πijk/n) of pairs.
    Complex {
        /// The axis; the last one holds the pairs and is not counted.
        axis: usize,
        /// With + in the exponent.
        inverse: bool,
    },
    /// The first n/2 + 1 coefficients, as pairs, of n real numbers; the others are their
    /// conjugates.
    Real(usize),
    /// The real numbers whose coefficients are the first len/2 + 1 given as pairs, and their
    /// conjugates.
    Hermitian {
        /// The axis.
        axis: usize,
        /// The length of the result on that axis.
        len: usize,
    },
}

/// Which value of a unary function its derivative is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VjpOperand {
    /// The input.
    X,
    /// The output.
    Y,
}

impl Compare {
    /// Every comparison.
    #[rustfmt::skip]
    pub const ALL: &[Compare] = { use Compare::*; &[Eq, Ne, Lt, Le, Gt, Ge] };
}

impl Random {
    /// Every distribution.
    #[rustfmt::skip]
    pub const ALL: &[Random] = { use Random::*; &[Bits, Uniform, Normal] };
}

impl Combine {
    /// Every way to combine.
    #[rustfmt::skip]
    pub const ALL: &[Combine] = { use Combine::*; &[Set, Add, Mul, Max, Min] };
}

impl Reduction {
    /// Every reduction.
    #[rustfmt::skip]
    pub const ALL: &[Reduction] = { use Reduction::*; &[Sum, Prod, Max, Min] };
}

impl Extreme {
    /// Both extremes.
    #[rustfmt::skip]
    pub const ALL: &[Extreme] = { use Extreme::*; &[Max, Min] };
}

impl Cumulation {
    /// Every cumulative reduction.
    #[rustfmt::skip]
    pub const ALL: &[Cumulation] = { use Cumulation::*; &[Sum, Prod, Max, Min, LogSumExp] };
}

impl Linalg {
    /// How many results the op has.
    ///
    /// ```
    /// # use pullback_ir::Op;
    /// assert_eq!(Op::Dot.results(), 1);
    /// assert_eq!(Op::Sort { axis: 0, descending: false }.results(), 2); // values and indices
    /// ```
    pub const fn results(self) -> usize {
        match self {
            Linalg::Cholesky
            | Linalg::TriangularSolve { .. }
            | Linalg::Permutation(_)
            | Linalg::LuSolve { .. }
            | Linalg::Spectrum { .. } => 1,
            Linalg::Lu | Linalg::Qr { .. } | Linalg::Eigh => 2,
            Linalg::Svd { .. } => 3,
        }
    }

    /// Whether a kernel may fail on its operands' values: an index out of range, or a value that
    /// user code rejects.
    ///
    /// ```
    /// # use pullback_ir::Op;
    /// assert!(Op::Gather(0).may_fail() && !Op::Dot.may_fail());
    /// ```
    pub const fn may_fail(self) -> bool {
        match self {
            Linalg::Permutation(_) | Linalg::LuSolve { .. } => true,
            Linalg::Cholesky | Linalg::TriangularSolve { .. } | Linalg::Lu => false,
            Linalg::Qr { .. } | Linalg::Eigh | Linalg::Spectrum { .. } => false,
            Linalg::Svd { .. } => false,
        }
    }
}

/// A step of a value's way to memory of the host and back, beside what is computed meanwhile
/// ([`offload`](crate::pass::offload())):
///
/// ```text
/// let s: f32[9] = offload x         starts to copy x, whose memory is kept up to …
/// let h: f32[9] = offloaded s x     … here: h is complete
/// let b: f32[9] = restore h         starts to copy back, into memory of its own; h is kept up to …
/// let y: f32[9] = restored b h      … here: y is x
/// ```
///
/// `s` and `h` are in memory of the host, which only these steps read; their specs are those of the
/// value, on its device. Like [`Op::Wait`](crate::Op::Wait), the two that end a copy have the
/// memory of their first operand and cost nothing but the time that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// Starts to copy a value to the host.
    Offload,
    /// The copy on the host (the result of `Offload`), and the value, which need not be there from
    /// here on.
    Offloaded,
    /// Starts to copy a value back.
    Restore,
    /// The value (the result of `Restore`), and its copy on the host, which need not be there from
    /// here on.
    Restored,
}

impl Transfer {
    /// All, in the order of a value's way.
    pub const ALL: [Transfer; 4] =
        [Transfer::Offload, Transfer::Offloaded, Transfer::Restore, Transfer::Restored];

    /// Whether it starts a copy; the others end one.
    pub fn starts(self) -> bool {
        matches!(self, Transfer::Offload | Transfer::Restore)
    }

    /// Whether its result is in memory of the host.
    pub fn is_on_host(self) -> bool {
        matches!(self, Transfer::Offload | Transfer::Offloaded)
    }

    /// What comes before it, if it is not the first.
    pub fn previous(self) -> Option<Transfer> {
        match self {
            Transfer::Offload => None,
            Transfer::Offloaded => Some(Transfer::Offload),
            Transfer::Restore => Some(Transfer::Offloaded),
            Transfer::Restored => Some(Transfer::Restore),
        }
    }

    /// Its name in the text of a program.
    pub fn name(self) -> &'static str {
        match self {
            Transfer::Offload => "offload",
            Transfer::Offloaded => "offloaded",
            Transfer::Restore => "restore",
            Transfer::Restored => "restored",
        }
    }
}
