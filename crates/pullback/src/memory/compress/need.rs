//! What the derivative of each op needs of a value that it saves.
//!
//! An approximation is harmless where the derivative cannot make its error larger, at any input, and that is a property of the formula in the
//! op's row. Half precision is off by a part ε of each element; eight bits are off by a part ε of the largest element of a block. A product
//! with the value stands both. A quotient by it stands the first only, as an element near 0 may be off by all of itself in the second. What is left of
//! `1 - x²` near 1, of `exp(x - y)` at 300, of `x - mean(x)`, or of a comparison of two saved values stands neither. And a slope that is bounded and
//! smooth in x, such as that of gelu, stands an error of x that is small beside 1, whatever it is beside x.
//!
//! So every op has a line here, and what is not argued for is kept whole. The numbers in the comments are of how many ε the derivative is off: of
//! itself, or, for functions whose slope stays below about 1, of 1. None is above [`NEAR`], which is the bound that the documentation gives.

use crate::{DType, Op};
use pullback_ir::{Binary, Fused, Unary};

/// How many ε a derivative is off at most; and so the largest |x| of which a sine is computed from an approximation, for it is off by |x| of them.
pub(super) const NEAR: f64 = 4.0;

/// What a derivative needs of a saved value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// All of it.
    Whole,
    /// Whether elements are negative, zero or positive.
    Sign,
    /// Each element but for a small part of itself.
    Each,
    /// Each element but for a small part of the largest.
    Largest,
    /// Each element but for a small part of itself or of 1.
    Smooth,
    /// Each element but for a small part of 1.
    Near,
}

/// The magnitudes of the elements of a value, NaN aside.
#[derive(Clone, Copy)]
pub(super) struct Range {
    /// That of the smallest element that is not 0; infinite if all are.
    pub smallest: f64,
    pub largest: f64,
}

impl Need {
    pub fn of(op: &Op) -> Need {
        match op {
            Op::Unary(f) => unary(*f),
            Op::Binary(f) => binary(*f),
            Op::Fused(f) => fused(*f),
            // Sums of products.
            Op::Dot | Op::Conv(_) => Need::Largest,
            // They save nothing, or indices and truth values.
            Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } => Need::Whole,
            Op::Compare(_) | Op::Select | Op::Cast(_) | Op::View(_) | Op::Copy | Op::To(_) => {
                Need::Whole
            }
            Op::After | Op::Put(_) | Op::Pad(_) | Op::Cat(_) | Op::Gather(_) => Need::Whole,
            Op::ArgReduce(..) | Op::Sort { .. } | Op::Ranks { .. } => Need::Whole,
            Op::Pool(_) | Op::Fft(_) => Need::Whole,
            // Differentiated as simpler ops, which are asked for themselves.
            Op::UnaryVjp(_) | Op::Region(_) | Op::DotRegion(_) => Need::Whole,
            // An extreme is found again by comparing; sums save nothing, and products are made of `mul`.
            Op::Reduce(..) | Op::Cumulate { .. } | Op::Scatter(..) => Need::Whole,
            // The condition of a matrix, and the code of a user, have no bound.
            Op::Linalg(_) | Op::Flow(_) | Op::Custom(_) => Need::Whole,
        }
    }

    /// Whether half precision keeps what is needed. That no element becomes infinite or 0 is known already.
    pub fn takes_half(self, dtype: DType, range: Range) -> bool {
        // Below this, elements are off by a part of this, not of themselves.
        let normal = if dtype == DType::F16 { 2f64.powi(-14) } else { 2f64.powi(-126) };
        match self {
            Need::Whole => false,
            Need::Sign | Need::Smooth => true,
            Need::Each => range.smallest >= normal,
            Need::Largest => range.largest >= normal || range.largest == 0.0,
            Need::Near => range.largest <= NEAR,
        }
    }

    /// The largest magnitude in a block of which eight bits keep what is needed; `None` if there is none.
    pub fn takes_blocks(self) -> Option<f64> {
        match self {
            Need::Whole | Need::Sign | Need::Each => None,
            Need::Largest => Some(f64::INFINITY),
            Need::Smooth | Need::Near => Some(NEAR),
        }
    }
}

/// The slopes are in `ops/pointwise.rs`.
fn unary(f: Unary) -> Need {
    use Unary::*;
    match f {
        // Nothing is saved.
        Neg | Sign | Floor | Ceil | Round | Trunc | Not | Stop => Need::Whole,
        Abs | Relu => Need::Sign,
        // Powers of what is saved: 1, 2, 3.
        Square | Exp | Exp2 | Recip | Rsqrt => Need::Largest,
        // y + 1, off by 1 of y, which is below 1 or below the slope; 1 + y², by 2.
        Expm1 | Tan => Need::Largest,
        // 1 − y², off by 2 of 1 as |y| ≤ 1; y·(1 − y), by 1.
        Tanh | Sigmoid => Need::Largest,
        // Quotients: 1.
        Sqrt | Log | Log2 | Log10 => Need::Each,
        // Powers of 1 + x²: 2 and 1 of themselves. The second derivative is below 1 as well, as eight bits need it.
        Atan | Asinh => Need::Smooth,
        // x times the second derivative, and that itself, are below 1. (log_ndtr grows like −x, and is then off by 1 of itself.)
        Erf | Erfc | LogNdtr | Gelu | GeluTanh | Silu => Need::Smooth,
        // Off by |x| of 1.
        Sin | Cos => Need::Near,
        // A pole at 1 or −1, of which an x near it loses the distance.
        Log1p | Asin | Acos | Acosh | Atanh => Need::Whole,
        // exp(y²), off by 2y².
        Erfinv | Ndtri => Need::Whole,
        // Differences of saved values, poles, and slopes that grow like exp(x).
        Sinh | Cosh | Erfcx | Lgamma | Digamma | I0 | I0e | I1 | I1e => Need::Whole,
    }
}

fn binary(f: Binary) -> Need {
    use Binary::*;
    match f {
        // Nothing is saved.
        Add | Sub | FloorDiv | And | Or | Xor => Need::Whole,
        Mul => Need::Largest,
        // dy/b and −dy/b·y: 1 and 2. b/(a² + b²), where nothing cancels: 3.
        Div | Atan2 => Need::Each,
        Copysign => Need::Sign,
        // A quotient near an integer is rounded to another one.
        Remainder | Fmod => Need::Whole,
        // Exponents multiply errors.
        Pow | Zeta | Gammainc | Gammaincc => Need::Whole,
        // They compare.
        Maximum | Minimum => Need::Whole,
    }
}

fn fused(f: Fused) -> Need {
    match f {
        // y·(dy − Σ y·dy): off by 3 of y·max|dy|. dy − exp(y)·Σ dy: off by |y|·exp(y), which is below ½, of Σ dy.
        Fused::Softmax(_) | Fused::LogSoftmax(_) => Need::Each,
        // Exponentials of differences of saved values.
        Fused::LogSumExp(_) | Fused::CrossEntropy | Fused::Attention(_) => Need::Whole,
        // x − mean(x).
        Fused::LayerNorm(_) | Fused::BatchNorm(_) => Need::Whole,
        // Differentiated as simpler ops.
        Fused::SoftmaxVjp(_) | Fused::LogSoftmaxVjp(_) | Fused::LayerNormVjp(_) => Need::Whole,
        Fused::BatchNormVjp(_) | Fused::CrossEntropyVjp | Fused::AttentionVjp(_) => Need::Whole,
        Fused::Sgd(_) | Fused::Adam(_) => Need::Whole,
    }
}
