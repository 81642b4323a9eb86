//! Which op runs in which dtype.

use crate::{Op, ops};
use pullback_ir::{Cumulation, Reduction};

/// The autocast policy of an op: what is done with its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `f32` becomes the low dtype.
    Low,
    /// The low dtypes become `f32`.
    F32,
    /// Operands stay as they are; two dtypes are promoted to the wider one, as always.
    Promote,
}

/// The row of an op. Products, convolutions and attention gain most from a low dtype and accumulate
/// in `f32` anyway. Ops that sum, or whose intermediate values exceed the range or the precision of
/// 16 bits, run in `f32`. Ops that select, move or clamp their operands keep their dtypes, as do
/// the `vjp` ops: they occur in backward, whose dtypes are those of forward.
#[rustfmt::skip]
pub(super) fn policy(op: &Op) -> Policy {
    use Policy::{F32, Low, Promote};
    match op {
        Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } => Promote,
        Op::Unary(f)           => ops::unary::policy(*f),
        Op::UnaryVjp(_)        => Promote,
        Op::Binary(f)          => ops::binary::policy(*f),
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
        Op::Fused(f)           => ops::fused::policy(*f),
        Op::Region(_) | Op::DotRegion(_) => Promote,
        Op::Flow(_)            => Promote,
        Op::After | Op::Wait   => Promote,
        Op::Transfer(_)        => Promote,
        // All workers must send the same dtype, also where autocast is on at some of them only.
        Op::Collective(_)      => Promote,
        // What is inside a custom op was cast where it was traced.
        Op::Custom(_)          => Promote,
    }
}

/// The autocast policy of every op: its name, and what [`autocast`](crate::autocast) does with its
/// operands.
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
