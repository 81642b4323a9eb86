//! What most programs use: `use pullback::prelude::*;`.
//!
//! No name in here is also in `pullback_nn::prelude`, so both can be imported. Names that both
//! crates have are there once: `Embedding`, `EmbeddingBag` and `checkpoint_sequential` are the
//! layers' in `pullback_nn::prelude`; `losses`, `memory_report` and `predict_memory` are in
//! neither.
//! `Error` and `Result` are imported by name, as they would hide those of the standard library.
//!
//! ```
//! use pullback::prelude::*;
//! let x = Tensor::from([1.0, 2.0]);
//! let g = grad(|x: &Tensor| x.square().sum())(&x);
//! assert_eq!(g.to_vec::<f64>(), [2.0, 4.0]);
//! ```

pub use crate::{
    Borrowed, BoxedJit, DType, Device, Flag, Index, IntoAxes, IntoShape, Jit, Key, Operand,
    Reduction, Scalar, Shape, Tensor, Tree, bf16, borrowed, cat, checkpoint, checkpoint_with, cond,
    cross_entropy, detect_anomaly, einsum, f16, fori_loop, grad, hessian, hvp, jacobian, jit, jvp,
    manual_seed, meshgrid, no_grad, scan, stack, value_and_grad, vjp, vmap, while_loop,
};
