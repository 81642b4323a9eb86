//! Fused ops: one row each.

use super::{attention, batch_norm, ctc, distances, norm, update};
use crate::autocast::Policy;
use crate::batch::{self, Batching};
use crate::memory::Need;
use crate::rule::Grad;
use pullback_ir::{Fused, Op};

/// Turns rows into one lookup for each column.
macro_rules! rows {
    ($($f:pat => $policy:ident $need:ident $batch:expr, $grad:expr;)*) => {
        /// How the op differentiates.
        #[allow(unused_variables)]
        pub(crate) fn grad(f: Fused) -> Grad {
            match f { $($f => $grad),* }
        }

        /// What [`autocast`](crate::autocast()) does with its operands.
        #[allow(unused_variables)]
        pub(crate) fn policy(f: Fused) -> Policy {
            match f { $($f => Policy::$policy),* }
        }

        /// What its derivative needs of a saved value.
        #[allow(unused_variables)]
        pub(crate) fn need(f: Fused) -> Need {
            match f { $($f => Need::$need),* }
        }

        /// How it batches.
        #[allow(unused_variables)]
        pub(crate) fn batching(f: Fused) -> Batching {
            use Batching::{ByHand, Leading};
            match f { $($f => $batch),* }
        }
    };
}

fn along(f: Fused) -> Batching {
    Batching::Axes(Op::Fused(f))
}

// Cross-entropy computes in `f32` whatever its logits are, and rounds no loss.
// A `…Vjp` occurs in backward, whose dtypes are those of forward, and is decomposed into simpler
// ops when differentiated, which have their own needs. `need`:
// - `Relative`: y·(dy − Σ y·dy), off by 3 of y·max|dy|. dy − exp(y)·Σ dy, off by |y|·exp(y), which
//   is below ½, of Σ dy.
// - `Exact`: exponentials of differences of saved values (logsumexp, cross entropy, attention);
//   x − mean(x) (layer and batch norm).
#[rustfmt::skip]
rows! {
    //                            policy  need     many examples, derivative
    Fused::Softmax(axis)       => F32     Relative along(Fused::Softmax(axis + 1)), norm::SOFTMAX;
    Fused::SoftmaxVjp(axis)    => Promote Exact    along(Fused::SoftmaxVjp(axis + 1)), Grad::Decompose(norm::softmax_slope);
    Fused::LogSoftmax(axis)    => F32     Relative along(Fused::LogSoftmax(axis + 1)), norm::LOG_SOFTMAX;
    Fused::LogSoftmaxVjp(axis) => Promote Exact    along(Fused::LogSoftmaxVjp(axis + 1)), Grad::Decompose(norm::log_softmax_slope);
    Fused::LogSumExp(axis)     => F32     Exact    along(Fused::LogSumExp(axis + 1)), norm::LOG_SUM_EXP;
    Fused::LayerNorm(_)        => F32     Exact    ByHand(batch::norm::layer_norm), norm::LAYER_NORM;
    Fused::LayerNormVjp(_)     => Promote Exact    ByHand(batch::norm::layer_norm_vjp), Grad::Decompose(norm::layer_norm_slope);
    Fused::BatchNorm(_)        => Promote Exact    ByHand(batch::batch_norm::batch_norm), batch_norm::row();
    Fused::BatchNormVjp(_)     => Promote Exact    ByHand(batch::batch_norm::batch_norm_vjp), batch_norm::vjp_row();
    Fused::CrossEntropy        => Promote Exact    ByHand(batch::norm::cross_entropy), norm::CROSS_ENTROPY;
    Fused::CrossEntropyVjp     => Promote Exact    ByHand(batch::norm::cross_entropy_vjp), Grad::Decompose(norm::cross_entropy_slope);
    Fused::Attention(_)        => Low     Exact    ByHand(batch::attention::attention), attention::row();
    Fused::AttentionVjp(_)     => Promote Exact    Leading, attention::vjp_row();
    Fused::Distances { within } => Promote Exact   Leading, distances::row(within);
    Fused::DistancesVjp { .. } => Promote Exact    Leading, Grad::Decompose(distances::slopes);
    Fused::Ctc { .. }          => Promote Exact    ByHand(batch::ctc::ctc), ctc::row();
    Fused::CtcVjp { .. }       => Promote Exact    ByHand(batch::ctc::ctc_vjp), Grad::Decompose(ctc::slope);
    Fused::Sgd(_)              => Promote Exact    ByHand(batch::update::step), Grad::Decompose(update::sgd);
    Fused::Adam(_)             => Promote Exact    ByHand(batch::update::step), Grad::Decompose(update::adam);
}
