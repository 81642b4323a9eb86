//! Losses, each with an explicit reduction: one struct a file, as PyTorch's modules are. They hold
//! options; the formulas are those of [`pullback::losses`], which are here too.
//!
//! ```
//! use pullback::{Reduction, Tensor};
//! use pullback_nn::losses::{self, HuberLoss, Loss};
//! let (x, y) = (Tensor::from([0.0, 3.0]), Tensor::from([0.5, 0.0]));
//! let each = HuberLoss::new(Reduction::None).delta(2.0).forward(&x, &y);
//! assert_eq!(each.to_vec::<f64>(), losses::huber(&x, &y, 2.0, Reduction::None).to_vec::<f64>());
//! ```

mod bce;
mod bce_with_logits;
mod cosine_embedding;
mod cross_entropy;
mod ctc;
mod gaussian_nll;
mod hinge_embedding;
mod huber;
mod kl_div;
mod l1;
mod loss;
mod margin_ranking;
mod mse;
mod multi_margin;
mod multilabel_margin;
mod multilabel_soft_margin;
mod nll;
mod poisson_nll;
mod smooth_l1;
mod soft_margin;
mod triplet_margin;

pub use bce::BceLoss;
pub use bce_with_logits::BceWithLogitsLoss;
pub use cosine_embedding::CosineEmbeddingLoss;
pub use cross_entropy::CrossEntropyLoss;
pub use ctc::CtcLoss;
pub use gaussian_nll::GaussianNllLoss;
pub use hinge_embedding::HingeEmbeddingLoss;
pub use huber::HuberLoss;
pub use kl_div::KlDivLoss;
pub use l1::L1Loss;
pub use loss::Loss;
pub use margin_ranking::MarginRankingLoss;
pub use mse::MseLoss;
pub use multi_margin::MultiMarginLoss;
pub use multilabel_margin::MultilabelMarginLoss;
pub use multilabel_soft_margin::MultilabelSoftMarginLoss;
pub use nll::NllLoss;
pub use poisson_nll::PoissonNllLoss;
pub use pullback::losses::{
    Ctc, binary_cross_entropy, binary_cross_entropy_with_logits, cosine_embedding, ctc,
    gaussian_nll, hinge_embedding, huber, kl_div, l1, margin_ranking, mse, multi_margin,
    multilabel_margin, multilabel_soft_margin, nll, poisson_nll, smooth_l1, soft_margin,
    triplet_margin, triplet_margin_with, weighted_by,
};
pub use pullback::{CrossEntropy, Reduction, cross_entropy};
pub use smooth_l1::SmoothL1Loss;
pub use soft_margin::SoftMarginLoss;
pub use triplet_margin::TripletMarginLoss;

macro_rules! defaults {
    ($($loss:ident)*) => {$(
        /// The mean, with PyTorch's default options.
        impl Default for $loss {
            fn default() -> $loss {
                $loss::new(Reduction::Mean)
            }
        }
    )*};
}

defaults! {
    BceLoss BceWithLogitsLoss CosineEmbeddingLoss CrossEntropyLoss CtcLoss GaussianNllLoss
    HingeEmbeddingLoss HuberLoss KlDivLoss L1Loss MarginRankingLoss MseLoss MultiMarginLoss
    MultilabelMarginLoss MultilabelSoftMarginLoss NllLoss PoissonNllLoss SmoothL1Loss SoftMarginLoss
    TripletMarginLoss
}
