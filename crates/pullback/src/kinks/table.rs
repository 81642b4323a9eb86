//! Where functions have no derivative, and what is taken there.

use super::conventions::Conventions;
use super::mask::{self, Spots};
use crate::{Op, ops};
use pullback_ir::{Collective, Combination, Combine, Cumulation, Linalg, Pooling, Reduction};

/// A row of the table of `docs/conventions.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KinkRow {
    /// The functions that it is about.
    pub functions: &'static str,
    /// Where they have no derivative.
    pub place: &'static str,
    /// What is taken there.
    pub derivative: String,
}

/// An enum and the list of its variants.
///
/// Expands to `pub(crate) enum KinkKind { Relu, … }` and
/// `impl KinkKind { pub const ALL: &[KinkKind] = &[KinkKind::Relu, …]; }`.
macro_rules! kinds {
    ($($kind:ident)*) => {
        /// The functions that are counted, by where they have no derivative and what is taken
        /// there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum KinkKind {
            $($kind),*
        }

        impl KinkKind {
            pub const ALL: &[KinkKind] = &[$(KinkKind::$kind),*];
        }
    };
}

kinds! {
    Relu Leaky Elu Shrink Abs Jump Clamp Hardtanh Relu6 Pair FirstOfPair Extreme Place Pool Bag Running Scatter Workers Sort
    Sqrt Norm Hypot OtherNorm Pow Modulo Atan2 Copysign Bessel Infinite Quotient Lgamma Spectrum Sample
}

impl KinkKind {
    /// Its row, by these conventions.
    #[rustfmt::skip]
    pub(crate) fn row(self, c: &Conventions) -> KinkRow {
        let (functions, place, derivative) = match self {
            KinkKind::Relu        => ("`relu`",                                      "0",              c.relu_text()),
            KinkKind::Leaky       => ("`leaky_relu`, `prelu`",                       "0",              c.leaky_text()),
            KinkKind::Elu         => ("`elu`, `selu`",                               "0, if alpha is not 1", "alpha, the slope for x < 0".into()),
            KinkKind::Shrink      => ("`softshrink`, `hardshrink`, `threshold`",     "at the threshold", "0".into()),
            KinkKind::Abs         => ("`abs`",                                       "0",              c.abs_text()),
            KinkKind::Jump        => ("`sign`, `floor`, `ceil`, `round`, `trunc`, `floor_div`, `heaviside`", "at a jump", "0, as everywhere".into()),
            KinkKind::Clamp       => ("`clamp`, `clamp_min`, `clamp_max`",           "at a bound",     c.clamp_text()),
            KinkKind::Hardtanh    => ("`hardtanh`",                                  "at a bound",     c.hardtanh_text()),
            KinkKind::Relu6       => ("`relu6`, `hardsigmoid`, `hardswish`",         "at a bound",     c.relu6_text()),
            KinkKind::Pair        => ("`maximum(a, b)`, `minimum(a, b)`",            "a = b",          c.pair_text()),
            KinkKind::FirstOfPair => ("`fmax(a, b)`, `fmin(a, b)`",                  "a = b",          "to the first".into()),
            KinkKind::Extreme     => ("`max`, `min` over axes",                      "ties",           c.ties_text()),
            KinkKind::Place       => ("`argmax`, `argmin`, and with them `max_at`, `min_at`", "ties",  "to the first one, the one whose index is given".into()),
            KinkKind::Pool        => ("`max_pool…`, `adaptive_max_pool…`, `fractional_max_pool…`", "ties", "to the first one; of several NaN to the last".into()),
            KinkKind::Bag         => ("`EmbeddingBag` of `BagMode::Max`",            "ties",           "to the first one".into()),
            KinkKind::Running     => ("`cummax`, `cummin`",                          "ties",           "to the latest one".into()),
            KinkKind::Scatter     => ("`scatter_max`, `scatter_min`",                "ties",           "shared evenly".into()),
            KinkKind::Workers     => ("`all_reduce_max`, `all_reduce_min`",          "ties of workers", "shared evenly".into()),
            KinkKind::Sort        => ("`sort`, `topk`, `kthvalue`, `median`",        "ties",           "stable: by their order".into()),
            KinkKind::Sqrt        => ("`sqrt`",                                      "0",              "∞".into()),
            KinkKind::Norm        => ("`norm`, `std`",                               "origin",         c.norm_text()),
            KinkKind::Hypot       => ("`hypot`",                                     "origin",         c.hypot_text()),
            KinkKind::OtherNorm   => ("`vector_norm` of orders other than 1, 2, ±∞", "origin",         "0".into()),
            KinkKind::Pow         => ("`pow(a, b)`",                                 "a = 0, b < 1",   "b·a^(b−1), infinite, and 0 for b = 0".into()),
            KinkKind::Modulo      => ("`remainder(a, b)`, `fmod(a, b)`",             "at a jump",      "as next to it: 1 by a, by b minus the rounded quotient".into()),
            KinkKind::Atan2       => ("`atan2(a, b)`",                               "a = 0, b ≤ 0",   "NaN at the origin, elsewhere as next to the jump".into()),
            KinkKind::Copysign    => ("`copysign(a, b)`",                            "a = 0 or b = 0", "0 for a = 0; by b 0 everywhere".into()),
            KinkKind::Bessel      => ("`i0e`",                                       "0",              "0, the mean of both sides".into()),
            KinkKind::Infinite    => ("`log…`, `recip`, `rsqrt`, `asin`, `acos`, `acosh`, `atanh`, `erfinv`, `ndtri`, `digamma`", "where it or its slope is infinite", "infinite, or NaN".into()),
            KinkKind::Quotient    => ("`a / b`",                                     "b = 0",          "infinite, or NaN".into()),
            KinkKind::Lgamma      => ("`lgamma`",                                    "0, −1, −2, …",   "value ∞, derivative NaN (−∞ at 0)".into()),
            KinkKind::Spectrum    => ("`eigh`, `svd`: values",                       "equal values",   "`V·diag(dw)·Vᵀ`, `U·diag(ds)·Vᵀ`: no vector is divided by a gap".into()),
            KinkKind::Sample      => ("`grid_sample` by the grid",                   "at the centre of an element", "towards the next one; 0 where it is held at the border, and for `Nearest`".into()),
        };
        KinkRow { functions, place, derivative }
    }
}

/// The table of what is counted, with the derivatives that these conventions take: what
/// `docs/conventions.md` holds for the default ones.
///
/// ```
/// use pullback::{Conventions, kink_table};
/// let row = |c: &Conventions| kink_table(c).into_iter().find(|r| r.functions == "`relu`").unwrap();
/// assert_eq!((row(&Conventions::pullback()).derivative.as_str(), row(&Conventions::pullback().relu(0.5)).derivative.as_str()), ("0", "0.5"));
/// ```
pub fn kink_table(conventions: &Conventions) -> Vec<KinkRow> {
    KinkKind::ALL.iter().map(|kind| kind.row(conventions)).collect()
}

/// The kinks of an op, and how the elements on them are found. `None` for ops that have a
/// derivative everywhere, or none anywhere.
#[rustfmt::skip]
pub(super) fn row(op: &Op) -> Option<(KinkKind, Spots)> {
    match op {
        Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } => None,
        Op::Unary(f)            => ops::unary::kink(*f),
        // They occur in backward passes.
        Op::UnaryVjp(_)         => None,
        Op::Binary(f)           => ops::binary::kink(*f),
        // `bool` results: functions that select by them report their own kinks.
        Op::Compare(_) | Op::Select => None,
        Op::Cast(_) | Op::Copy | Op::To(_) | Op::After | Op::Wait | Op::Transfer(_) => None,
        Op::View(_) | Op::Put(_) | Op::Pad(_) | Op::Cat(_) | Op::Gather(_) => None,
        Op::Scatter(_, combine) => match combine {
            Combine::Max | Combine::Min => Some((KinkKind::Scatter, mask::scattered)),
            Combine::Set | Combine::Add | Combine::Mul => None,
        },
        Op::Reduce(kind, _)     => match kind {
            Reduction::Max | Reduction::Min => Some((KinkKind::Extreme, mask::shared)),
            Reduction::Sum | Reduction::Prod => None,
        },
        Op::ArgReduce(..)       => Some((KinkKind::Place, mask::placed)),
        Op::Cumulate { kind, .. } => match kind {
            Cumulation::Max | Cumulation::Min => Some((KinkKind::Running, mask::running)),
            Cumulation::Sum | Cumulation::Prod | Cumulation::LogSumExp => None,
        },
        Op::Sort { .. }         => Some((KinkKind::Sort, mask::sorted)),
        Op::Ranks { .. }        => Some((KinkKind::Sort, mask::ranked)),
        Op::Dot | Op::Conv(_)   => None,
        Op::Pool(pool)          => match pool.kind {
            Pooling::ArgMax => Some((KinkKind::Pool, mask::pooled)),
            Pooling::Sum | Pooling::Spread(_) | Pooling::Take | Pooling::Give(_) => None,
        },
        Op::Linalg(f)           => match f {
            Linalg::Eigh       => Some((KinkKind::Spectrum, mask::eigenvalues)),
            Linalg::Svd { .. } => Some((KinkKind::Spectrum, mask::singular_values)),
            Linalg::Cholesky | Linalg::TriangularSolve { .. } | Linalg::Lu | Linalg::Permutation(_)
            | Linalg::LuSolve { .. } | Linalg::Qr { .. } => None,
            // Decomposed where it is differentiated.
            Linalg::Spectrum { .. } => None,
        },
        // Smooth, or decomposed where they are differentiated.
        Op::Fft(_) | Op::Fused(_) | Op::Region(_) | Op::DotRegion(_) => None,
        // Branches and iterations are checked op by op; the derivative of a custom op is its
        // user's.
        Op::Flow(_) | Op::Custom(_) => None,
        Op::Collective(of)      => match of.collective {
            Collective::AllReduce(Combination::Max | Combination::Min) => Some((KinkKind::Workers, mask::tied_workers)),
            Collective::AllReduce(Combination::Sum) | Collective::AllGather | Collective::ReduceScatter
            | Collective::Broadcast { .. } | Collective::AllToAll | Collective::Send { .. }
            | Collective::Recv { .. } | Collective::Barrier => None,
        },
    }
}

/// The column of kinks in the rows of functions: `[]`, or a kind and how elements on it are found.
macro_rules! kink {
    ([]) => {
        None
    };
    ([$kind:ident $spots:ident]) => {
        Some(($crate::kinks::KinkKind::$kind, $crate::kinks::mask::$spots))
    };
}
pub(crate) use kink;
