//! Which op runs in which dtype.

use crate::Op;
use pullback_ir::{Binary, Cumulation, Fused, Reduction, Unary};

/// What autocast does with the operands of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `f32` becomes the low dtype.
    Low,
    /// The low dtypes become `f32`.
    F32,
    /// Operands stay as they are; where two dtypes meet, the wider one is taken, as always.
    Promote,
}

/// The row of an op. Products, convolutions and attention gain most from a low dtype and accumulate in `f32` anyway. What sums, or goes
/// beyond the range or the precision of 16 bits on the way, is in `f32`. What chooses, moves or bounds its operands stays as it is, as do the
/// `vjp` ops: they are met in backward, whose dtypes are those of forward.
#[rustfmt::skip]
pub(super) fn policy(op: &Op) -> Policy {
    use Policy::{F32, Low, Promote};
    match op {
        Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } => Promote,
        Op::Unary(f)           => unary(*f),
        Op::UnaryVjp(_)        => Promote,
        Op::Binary(f)          => binary(*f),
        Op::Compare(_) | Op::Select | Op::Cast(_) | Op::Copy | Op::To(_) => Promote,
        Op::View(_) | Op::Put(_) | Op::Pad(_) | Op::Cat(_) => Promote,
        Op::Gather(_) | Op::Scatter(..) => Promote,
        Op::Reduce(kind, _)    => match kind {
            Reduction::Sum | Reduction::Prod => F32,
            Reduction::Max | Reduction::Min  => Promote,
        },
        Op::ArgReduce(..) | Op::Sort { .. } | Op::Ranks { .. } => Promote,
        Op::Cumulate { kind, .. } => match kind {
            Cumulation::Sum | Cumulation::Prod | Cumulation::LogSumExp => F32,
            Cumulation::Max | Cumulation::Min => Promote,
        },
        Op::Dot | Op::Conv(_)  => Low,
        Op::Pool(_)            => Promote,
        Op::Linalg(_)          => F32,
        Op::Fft(_)             => F32,
        Op::Fused(f)           => fused(*f),
        Op::Region(_) | Op::DotRegion(_) => Promote,
        Op::Flow(_)            => Promote,
        Op::After              => Promote,
        // What is inside a custom op was cast where it was traced.
        Op::Custom(_)          => Promote,
    }
}

#[rustfmt::skip]
fn unary(f: Unary) -> Policy {
    use Unary::*;
    match f {
        Neg | Abs | Sign | Floor | Ceil | Round | Trunc | Not | Sqrt | Sin | Cos | Atan | Tanh | Erf
        | Sigmoid | Relu | Gelu | GeluTanh | Silu | Stop => Policy::Promote,
        Square | Rsqrt | Recip | Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Tan | Asin | Acos
        | Sinh | Cosh | Asinh | Acosh | Atanh | Erfc | Erfcx | Erfinv | LogNdtr | Ndtri | Lgamma
        | Digamma | I0 | I0e | I1 | I1e => Policy::F32,
    }
}

#[rustfmt::skip]
fn binary(f: Binary) -> Policy {
    use Binary::*;
    match f {
        Pow | Zeta | Gammainc | Gammaincc => Policy::F32,
        Add | Sub | Mul | Div | Remainder | Fmod | FloorDiv | Atan2 | Copysign | Maximum | Minimum
        | And | Or | Xor => Policy::Promote,
    }
}

#[rustfmt::skip]
fn fused(f: Fused) -> Policy {
    match f {
        Fused::Attention(_) => Policy::Low,
        Fused::Softmax(_) | Fused::LogSoftmax(_) | Fused::LogSumExp(_) | Fused::LayerNorm(_)
        | Fused::BatchNorm(_) | Fused::CrossEntropy => Policy::F32,
        Fused::SoftmaxVjp(_) | Fused::LogSoftmaxVjp(_) | Fused::LayerNormVjp(_) | Fused::BatchNormVjp(_)
        | Fused::CrossEntropyVjp | Fused::AttentionVjp(_) => Policy::Promote,
        Fused::Sgd(_) | Fused::Adam(_) => Policy::Promote,
    }
}

/// The table: the name of every op, and what [`autocast`](crate::autocast) does with its operands.
///
/// ```
/// use pullback::{Policy, autocast_policy};
/// let of = |name: &str| autocast_policy().into_iter().find(|row| row.0 == name).unwrap().1;
/// assert_eq!((of("dot"), of("softmax"), of("relu")), (Policy::Low, Policy::F32, Policy::Promote));
/// ```
pub fn autocast_policy() -> Vec<(&'static str, Policy)> {
    let mut rows: Vec<(&'static str, Policy)> = Vec::new();
    for op in Op::forms() {
        let unfused = matches!(op, Op::UnaryVjp(f) if f.fused_vjp().is_none());
        if !unfused && !rows.iter().any(|row| row.0 == op.name()) {
            rows.push((op.name(), policy(&op)));
        }
    }
    rows
}
