//! What the derivative of each op needs of a value that it saves.
//!
//! An approximation is harmless where the derivative cannot make its error larger, at any input,
//! and that is a property of the formula in the op's row. Half precision is off by a part ε of each
//! element; eight bits are off by a part ε of the largest element of a block. A product with the
//! value tolerates both. A quotient by it tolerates only the first, as an element near 0 may have a
//! relative error of 1 in the second. `1 - x²` near 1, `exp(x - y)` at 300, `x - mean(x)`, and
//! comparisons of two saved values tolerate neither. And a slope that is bounded and smooth in x,
//! such as that of gelu, tolerates an error of x that is small relative to 1, even if it is large
//! relative to x.
//!
//! So every op has a line, here or in the rows of `ops/`, and values without such an argument are
//! kept in full precision. The numbers in the comments are of how many ε the derivative is off: of
//! itself, or, for functions whose slope stays below about 1, of 1. None is above [`MAX_ERROR`],
//! which is the bound that the documentation gives.

use crate::{DType, Op, ops};

/// How many ε a derivative is off at most; and so the largest |x| of which a sine is computed from
/// an approximation, for it is off by |x| of them.
pub(super) const MAX_ERROR: f64 = 4.0;

/// What a derivative needs of a saved value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// All of it.
    Exact,
    /// Whether elements are negative, zero or positive.
    Sign,
    /// Each element but for a small part of itself.
    Relative,
    /// Each element but for a small part of the largest.
    MaxRelative,
    /// Each element but for a small part of itself or of 1.
    Mixed,
    /// Each element but for a small part of 1.
    Absolute,
}

/// The magnitudes of the elements of a value, NaN aside.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    /// That of the smallest element that is not 0; infinite if all are.
    pub smallest: f64,
    pub largest: f64,
}

impl Need {
    pub fn of(op: &Op) -> Need {
        match op {
            Op::Unary(f) => ops::unary::need(*f),
            Op::Binary(f) => ops::binary::need(*f),
            Op::Fused(f) => ops::fused::need(*f),
            // Sums of products.
            Op::Dot | Op::Conv(_) => Need::MaxRelative,
            // They save nothing, or indices and booleans.
            Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } => Need::Exact,
            Op::Compare(_) | Op::Select | Op::Cast(_) | Op::View(_) | Op::Copy | Op::To(_) => {
                Need::Exact
            }
            Op::Wait | Op::Transfer(_) => Need::Exact,
            Op::After | Op::Put(_) | Op::Pad(_) | Op::Cat(_) | Op::Gather(_) => Need::Exact,
            Op::ArgReduce(..) | Op::Sort { .. } | Op::Ranks { .. } => Need::Exact,
            Op::Pool(_) | Op::Fft(_) => Need::Exact,
            // Differentiated as simpler ops, which have their own needs.
            Op::UnaryVjp(_) | Op::Region(_) | Op::DotRegion(_) => Need::Exact,
            // An extreme is found again by comparing; sums save nothing, and products are made of
            // `mul`.
            Op::Reduce(..) | Op::Cumulate { .. } | Op::Scatter(..) => Need::Exact,
            // The condition of a matrix, and the code of a user, have no bound.
            Op::Linalg(_) | Op::Flow(_) | Op::Custom(_) => Need::Exact,
            // An extreme over workers is found again by comparing; the others save nothing.
            Op::Collective(_) => Need::Exact,
        }
    }

    /// Whether half precision keeps what is needed. That no element becomes infinite or 0 is known
    /// already.
    pub fn takes_half(self, dtype: DType, range: Range) -> bool {
        // Below this, elements are off by a part of this, not of themselves.
        let normal = if dtype == DType::F16 { 2f64.powi(-14) } else { 2f64.powi(-126) };
        match self {
            Need::Exact => false,
            Need::Sign | Need::Mixed => true,
            Need::Relative => range.smallest >= normal,
            Need::MaxRelative => range.largest >= normal || range.largest == 0.0,
            Need::Absolute => range.largest <= MAX_ERROR,
        }
    }

    /// The largest magnitude in a block of which eight bits keep what is needed; `None` if there is
    /// none.
    pub fn takes_blocks(self) -> Option<f64> {
        match self {
            Need::Exact | Need::Sign | Need::Relative => None,
            Need::MaxRelative => Some(f64::INFINITY),
            Need::Mixed | Need::Absolute => Some(MAX_ERROR),
        }
    }
}
