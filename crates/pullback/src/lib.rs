//! **Pullback**: reverse- and forward-mode automatic differentiation for Rust.
//!
//! ```
//! use pullback::Tensor;
//!
//! // z = (x₁ + x₂)·x₁ at (3, 4)
//! let (x1, x2) = (Tensor::from(3.0).requires_grad(), Tensor::from(4.0).requires_grad());
//! let z = (&x1 + &x2) * &x1;
//! z.backward()?;
//! assert_eq!(z.item::<f64>(), 21.0);
//! assert_eq!(x1.grad().unwrap().item::<f64>(), 10.0);
//! assert_eq!(x2.grad().unwrap().item::<f64>(), 3.0);
//! # Ok::<(), pullback::Error>(())
//! ```
//!
//! PyTorch's words for eager things ([`Tensor::requires_grad`], [`Tensor::backward`], [`no_grad`]), JAX's for transforms
//! ([`grad`], [`vjp`], [`jvp`], [`hessian`]). Both run on one tape, nest freely, and never return a
//! silently wrong gradient: see `docs/conventions.md` for the choices at kinks, and [`check`] for the means
//! to test one.
#![forbid(unsafe_code)]

// `#[derive(Tree)]` names this crate from outside; inside, it is the same name.
extern crate self as pullback;

mod apply;
pub mod check;
mod create;
mod display;
mod fail;
mod grad;
mod inplace;
mod lock;
mod mode;
mod ops;
mod random;
mod read;
mod rule;
mod storage;
mod tape;
mod tensor;
mod transform;
mod tree;

pub use apply::try_apply;
pub use create::{IntoAxes, IntoShape};
pub use fail::catch;
pub use grad::{Backward, grad_of};
pub use half::{bf16, f16};
pub use mode::{detect_anomaly, enable_grad, is_grad_enabled, no_grad};
pub use ops::{
    Border, CrossEntropy, Index, Indices, IntoIndex, Operand, Reduction, block_diag, cat, column_stack, cross_entropy,
    dstack, einsum, hstack, losses, meshgrid, stack, table, vstack,
};
pub use pullback_cpu::HostElement;
pub use pullback_cpu::buffer::{PoolStats, reset_peak, set_cache_limit, stats as memory_stats, trim as trim_memory};
pub use pullback_cpu::par::{set_threads, threads, with_threads};
pub use pullback_derive::Tree;
pub use pullback_ir::{DType, Device, Error, ErrorKind, Op, Result, Scalar, Shape, Spec};
pub use random::{Key, manual_seed, next_key};
pub use tape::HookHandle;
pub use tensor::Tensor;
pub use transform::{grad, hessian, hessian_tree, hvp, jacfwd, jacobian, jacrev, jvp, value_and_grad, vjp};
pub use tree::{Path, Tree};
