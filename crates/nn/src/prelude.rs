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
pub use crate::losses::{
    BceLoss, BceWithLogitsLoss, CosineEmbeddingLoss, CrossEntropyLoss, CtcLoss, GaussianNllLoss,
    HingeEmbeddingLoss, HuberLoss, KlDivLoss, L1Loss, Loss, MarginRankingLoss, MseLoss,
    MultiMarginLoss, MultilabelMarginLoss, MultilabelSoftMarginLoss, NllLoss, PoissonNllLoss,
    SmoothL1Loss, SoftMarginLoss, TripletMarginLoss,
};
pub use crate::optim::{
    Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, Asgd, Lion, Muon, NAdam, Optimizer, RAdam,
    RmsProp, Rprop, Sgd, UpdateRule, clip_grad_norm_, clip_grad_value_,
};
pub use crate::schedule::{CosineAnnealingLr, LinearWarmup, OneCycleLr, Scheduler, StepLr};
pub use crate::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AlphaDropout, AvgPool1d, AvgPool2d,
    AvgPool3d, BatchNorm1d, BatchNorm2d, BatchNorm3d, Bilinear, Checkpointed, Conv1d, Conv2d,
    Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Dropout, Dropout1d, Dropout2d,
    Dropout3d, Elu, Embedding, EmbeddingBag, Flatten, Gelu, GroupNorm, Gru, GruCell, Hooked,
    InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, Lambda, Layer, LayerNorm, LeakyRelu, Linear,
    LogSoftmax, Lstm, LstmCell, MaxPool1d, MaxPool2d, MaxPool3d, Module, MultiHeadAttention, PRelu,
    Pad, Relu, Residual, RmsNorm, Rnn, RnnCell, Sequential, Sigmoid, Silu, Softmax, SpectralNorm,
    Tanh, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer,
    Unflatten, Upsample, WeightNorm, checkpoint_sequential, functional_call, module_scope,
};
