//! What most programs use, besides [`pullback::prelude`]: layers, losses, optimisers, loaders.
//!
//! ```
//! use pullback::prelude::*;
//! use pullback_nn::prelude::*;
//! let model = Sequential::new().then(Embedding::new(10, 4)).then(Linear::new(4, 2));
//! let optimizer = AdamW::default().over(model.parameters())?;
//! let (x, y) = (Tensor::from([1i64, 2, 3]), Tensor::from([0i64, 1, 0]));
//! let loss = CrossEntropyLoss::default().forward(&model.forward(&x), &y);
//! loss.backward()?;
//! optimizer.step()?;
//! # Ok::<(), pullback::Error>(())
//! ```

pub use crate::data::{DataLoader, Dataset, TensorDataset};
pub use crate::layers::*;
pub use crate::losses::{
    BceLoss, BceWithLogitsLoss, CosineEmbeddingLoss, CrossEntropyLoss, CtcLoss, GaussianNllLoss,
    HingeEmbeddingLoss, HuberLoss, KlDivLoss, L1Loss, Loss, MarginRankingLoss, MseLoss,
    MultiMarginLoss, MultilabelMarginLoss, MultilabelSoftMarginLoss, NllLoss, PoissonNllLoss,
    SmoothL1Loss, SoftMarginLoss, TripletMarginLoss,
};
pub use crate::optim::{
    Adam, AdamW, Lion, Muon, Optimizer, RmsProp, Sgd, UpdateRule, clip_grad_norm_, clip_grad_value_,
};
pub use crate::schedule::{CosineAnnealingLr, LinearWarmup, OneCycleLr, Scheduler, StepLr};
pub use crate::{Layer, Module, functional_call, module_scope};
