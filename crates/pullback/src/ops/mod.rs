//! The operations: for each family the methods that name its ops, and the rows that say how they
//! differentiate. A composite (`rms_norm`, `einsum`, …) is a function of other methods and has no
//! row.

mod activation;
mod attention;
mod batch_group_norm;
mod batch_norm;
pub(crate) mod binary;
mod bits_and_divisors;
mod calculus;
pub(crate) mod cast;
pub(crate) mod collective;
mod compare;
mod conv;
mod ctc;
mod cumulate;
mod distances;
pub(crate) mod dot;
mod dropout;
mod einsum;
mod embedding;
pub(crate) mod fused;
mod histogram;
mod index;
mod index_put;
mod linear;
mod loss;
mod loss_shapes;
mod margin;
mod matrix;
mod movement;
mod norm;
mod norms_distances;
mod one_pass;
mod operand;
mod padding;
mod pool;
mod powers_bounds;
mod reduce;
pub(crate) mod region;
mod resize;
mod sample;
mod search_unique;
mod selection;
mod sizes;
mod slice;
mod soft;
mod special;
mod split_tile;
mod stack_pad;
mod statistics;
mod surrogate;
pub(crate) mod unary;
mod view;

pub mod fft;
pub mod linalg;
pub mod losses;
pub mod masked;
pub mod table;
pub mod update;

pub use attention::Attention;
pub use calculus::Spacing;
pub use conv::{Conv, Padding};
pub use einsum::einsum;
pub use embedding::{BagMode, Embedding, EmbeddingBag};
pub use index_put::ScatterReduction;
pub use loss::{CrossEntropy, Reduction, cross_entropy};
pub use matrix::block_diag;
pub use movement::{cat, stack};
pub use operand::Operand;
pub use padding::PadFill;
pub use pool::{OutputSizes, Pool};
pub use resize::{Interpolate, InterpolateMode};
pub use sample::{GridPaddingMode, GridSampleMode};
pub use search_unique::Unique;
pub use sizes::Sizes;
pub use slice::{Index, Indices, IntoIndex};
pub use split_tile::{broadcast_tensors, cartesian_prod};
pub use stack_pad::{PadMode, column_stack, dstack, hstack, meshgrid, vstack};
pub use statistics::QuantileInterpolation;

use crate::rule::{Adds, Grad, LinearRule, OperandSet, RuleContext};
use crate::{Op, Tensor};

/// The row of an op: how it differentiates.
pub(crate) fn row(op: &Op) -> Grad {
    match op {
        Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } => Grad::Zero,
        Op::Unary(f) => unary::grad(*f),
        Op::UnaryVjp(_) => Grad::Decompose(unary::unary_vjp),
        Op::Binary(f) => binary::grad(*f),
        Op::Compare(_) => Grad::Zero,
        Op::Select => compare::select_row(),
        Op::Cast(_) => {
            let to_leaf = Adds::AtLeaf(|spec, dy| dy.cast(spec.dtype));
            linear_adding("`dy` cast back", |f, i, dy| dy.cast(f.in_spec(i).dtype), to_leaf)
        }
        Op::Copy => linear("`dy`", |_, _, dy| dy.clone()),
        Op::To(_) => linear("`dy` on the old device", |f, i, dy| dy.to(f.in_spec(i).device)),
        Op::After | Op::Wait | Op::Transfer(_) => after_row(),
        Op::View(v) => view::row(v),
        Op::Put(_) => view::put_row(),
        Op::Pad(_) => movement::pad_row(),
        Op::Cat(_) => movement::cat_row(),
        Op::Gather(_) => index::gather_row(),
        Op::Scatter(_, combine) => index::scatter_row(*combine),
        Op::Reduce(kind, _) => reduce::row(*kind),
        Op::ArgReduce(..) => Grad::Zero,
        Op::Cumulate { kind, .. } => cumulate::row(*kind),
        Op::Sort { .. } | Op::Ranks { .. } => cumulate::sort_row(),
        Op::Dot => dot::row(),
        Op::Conv(c) => conv::row(&c.role),
        Op::Pool(p) => pool::row(&p.kind),
        Op::Linalg(f) => linalg::row(*f),
        Op::Fft(f) => fft::row(*f),
        Op::Fused(f) => fused::grad(*f),
        Op::Region(of) => region::row_of(of),
        Op::DotRegion(_) => region::row(),
        Op::Flow(flow) => crate::control::row(flow),
        Op::Custom(custom) => Grad::Custom(crate::custom::handle(custom)),
        Op::Collective(of) => collective::row(&of.collective),
    }
}

/// The operand that is waited for does not affect the value.
fn after_row() -> Grad {
    let transpose = |_: &crate::rule::RuleContext, _, dy: &crate::Tensor| dy.clone();
    let formula = "`dy` for the first operand";
    let (wrt, uses, adds) = (OperandSet::Of(&[0]), OperandSet::Of(&[]), Adds::Separately);
    Grad::Linear(LinearRule { wrt, uses, transpose, adds, formula })
}

/// Linear in all operands.
fn linear(formula: &'static str, transpose: fn(&RuleContext, usize, &Tensor) -> Tensor) -> Grad {
    linear_adding(formula, transpose, Adds::Separately)
}

/// The row of an op that is linear in all operands, and whose gradients are added up by a rule of
/// their own.
fn linear_adding(
    formula: &'static str,
    transpose: fn(&RuleContext, usize, &Tensor) -> Tensor,
    adds: Adds,
) -> Grad {
    Grad::Linear(LinearRule {
        wrt: OperandSet::All,
        uses: OperandSet::Of(&[]),
        transpose,
        adds,
        formula,
    })
}
