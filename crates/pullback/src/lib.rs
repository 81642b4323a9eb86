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
//! # The worked examples of reverse mode
//!
//! ```
//! use pullback::Tensor;
//! let leaf = |v: f64| Tensor::from(v).requires_grad();
//! let grad = |x: &Tensor| x.grad().unwrap().item::<f64>();
//! let near = |a: f64, b: f64| assert!((a - b).abs() < 5e-5, "{a} is not {b}");
//!
//! // z = (x + y)² at (2, 3): 10, 10
//! let (x, y) = (leaf(2.0), leaf(3.0));
//! (&x + &y).square().backward()?;
//! assert_eq!((grad(&x), grad(&y)), (10.0, 10.0));
//!
//! // x² + x at 3: 7
//! let x = leaf(3.0);
//! (x.square() + &x).backward()?;
//! assert_eq!(grad(&x), 7.0);
//!
//! // xy + x + y at (2, 3): 4, 3
//! let (x, y) = (leaf(2.0), leaf(3.0));
//! (&x * &y + &x + &y).backward()?;
//! assert_eq!((grad(&x), grad(&y)), (4.0, 3.0));
//!
//! // x² at [1, 2, 3] with the cotangent [10, 1, 0.1]: [20, 4, 0.6]
//! let x = Tensor::from([1.0, 2.0, 3.0]).requires_grad();
//! x.square().backward_with(&Tensor::from([10.0, 1.0, 0.1]))?;
//! let g = x.grad().unwrap().to_vec::<f64>();
//! near(g[0], 20.0);
//! near(g[1], 4.0);
//! near(g[2], 0.6);
//!
//! // (x₁ + x₂)·x₁ at (3, 4): 21 with 10, 3
//! let (x1, x2) = (leaf(3.0), leaf(4.0));
//! let z = (&x1 + &x2) * &x1;
//! z.backward()?;
//! assert_eq!((z.item::<f64>(), grad(&x1), grad(&x2)), (21.0, 10.0, 3.0));
//!
//! // xy + sin(xy) at (2, 3): 5.7206 with 5.8805, 3.9203
//! let (x, y) = (leaf(2.0), leaf(3.0));
//! let z = &x * &y + (&x * &y).sin();
//! z.backward()?;
//! near(z.item(), 5.7206);
//! near(grad(&x), 5.8805);
//! near(grad(&y), 3.9203);
//! # Ok::<(), pullback::Error>(())
//! ```
//!
//! # Names
//!
//! PyTorch's names for eager mode ([`Tensor::requires_grad`], [`Tensor::backward`], [`no_grad`]),
//! JAX's for transforms ([`grad`], [`vjp`], [`jvp`], [`hessian`]). Both run on one tape, nest
//! freely, and never return a silently wrong gradient: see `docs/conventions.md` for the choices at
//! kinks, and [`check`] to test one.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../../../docs/estimators.md")]
struct Estimators;

// `#[derive(Tree)]` names this crate from outside; inside, it is the same name.
extern crate self as pullback;

mod anomaly;
mod apply;
mod autocast;
#[doc(hidden)]
pub mod backend;
mod backward;
mod batch;
pub mod check;
mod checked_alloc;
mod control;
mod create;
mod custom;
mod cut;
mod device;
mod display;
mod drop_queue;
mod events;
mod fail;
mod flag;
mod forward;
mod grad;
mod group;
mod hooks;
mod implicit;
mod inplace;
mod jit;
mod kinks;
mod leaf;
mod lock;
mod memory;
mod mode;
mod numerics;
mod ops;
pub mod prelude;
mod queue;
mod random;
mod read;
mod read_only;
mod record;
mod rule;
mod rule_context;
mod sequence;
mod slope;
mod storage;
mod tangents;
mod tape;
mod tensor;
mod tensors;
mod trace;
mod transform;
mod tree;
mod unaliased;
mod watch;

pub use apply::try_apply;
pub use autocast::{Policy, autocast, autocast_off, autocast_policy};
pub use backend::CudaKernel;
pub use backend::{
    CpuCopy, DeviceProfile, HostElement, KernelCode, KernelTime, KernelUsage, NativeCode,
    PoolStats, memory_stats_of, profile_device, reset_peak, reset_peak_of, set_cache_limit,
    set_threads, stats as memory_stats, synchronize, threads, trim as trim_memory, with_threads,
};
pub use backward::Backward;
pub use control::{
    cond, fori_loop, scan, scan_compiled, scan_reverse, scan_reverse_compiled, scan_times,
    while_loop, while_loop_bounded,
};
pub use create::{Integer, IntoAxes, IntoShape};
pub use custom::{
    CustomBatching, CustomJvp, CustomOp, CustomVjp, Derivative, External, HostInput, HostOutput,
    UncheckedRule, custom_jvp, custom_op, custom_vjp, unchecked_rules,
};
pub use device::{IntoDevice, default_device, set_default_device, with_default_device};
pub use fail::{catch, raise};
pub use flag::Flag;
#[doc(hidden)]
pub use flag::{is_sharing_flags, sharing_flags};
pub use grad::grad_of;
pub use group::{Group, Pending};
pub use half::{bf16, f16};
pub use hooks::HookHandle;
pub use implicit::{
    FixedPoint, LinearMethod, LinearSolve, Ode, Root, fixed_point, linear_solve, ode, root,
};
pub use jit::{
    BoxedJit, DynamicAxes, DynamicReport, Explanation, Jit, JitOutput, Specialised,
    compiled_stages, device_kernels, jit, kernel_table, native_code, not_fused,
};
pub use kinks::{
    AtBound, AtOrigin, AtTie, AtTies, AtZero, Conventions, Kink, KinkReport, KinkRow, kink_report,
    kink_table, strict_kinks, with_conventions,
};
pub use memory::{
    BudgetUse, Checkpoint, Compress, MemoryBudget, Offload, OffloadStats, Pack, Packed, SavedValue,
    checkpoint, checkpoint_sequential, checkpoint_with, memory_budget, with_packing,
};
pub use memory::{
    DeviceMemory, LineMemory, MemoryBytes, MemoryKind, MemoryPartGuard, MemoryPhase, MemoryReport,
    MemoryReporter, MemorySample, PartMemory, PoolPeak, memory_part, memory_report, predict_memory,
};
pub use mode::{
    CallerLineGuard, default_dtype, detect_anomaly, enable_grad, is_grad_enabled, no_grad,
    user_line, with_caller_lines, with_default_dtype, with_line,
};
pub use numerics::{
    is_deterministic, is_tf32_allowed, set_deterministic, set_tf32, with_deterministic, with_tf32,
};
pub use ops::update;
pub use ops::{
    Attention, BagMode, CrossEntropy, Embedding, EmbeddingBag, GridPaddingMode, GridSampleMode,
    Index, Indices, Interpolate, InterpolateMode, IntoIndex, Operand, PadFill, PadMode, Reduction,
    block_diag, cat, column_stack, cross_entropy, dstack, einsum, hstack, losses, meshgrid, stack,
    table, vstack,
};
pub use ops::{Conv, OutputSizes, Padding, Pool, Sizes};
pub use ops::{
    QuantileInterpolation, ScatterReduction, Spacing, Unique, broadcast_tensors, cartesian_prod,
    masked,
};
pub use ops::{fft, linalg};
pub use pullback_derive::Tree;
pub use pullback_ir::pass::{Apart, BudgetReport, MovedValue, Obstacle, Stage};
pub use pullback_ir::{
    CudaLaunch, DType, Device, Error, ErrorKind, Line, Op, Program, Result, Scalar, Shape, Spec,
};
pub use random::{
    Key, manual_seed, next_key, next_key_on, random_state, random_states, set_random_state,
};
pub use record::{Recorder, record, record_program};
pub use tensor::Tensor;
#[doc(hidden)]
pub use trace::is_tracing;
pub use trace::trace;
pub use transform::{
    BatchAxes, Jacobians, associative_scan, associative_scan_reverse, grad, grad_aux, hessian,
    hessian_tree, hvp, jacfwd, jacobian, jacobian_tree, jacrev, jvp, jvp_aux, linear_transpose,
    linearize, value_and_grad, value_and_grad_aux, vjp, vjp_aux, vmap,
};
/// What a recording holds, and its file: for the explorer.
#[doc(hidden)]
pub mod record_file {
    pub use crate::record::file::{MAX_BYTES, MAX_LIST, MAX_NAME, MAX_NODES, WHOLE};
    pub use crate::record::model::{
        NodeKind, RecordedNode, RecordedOp, Recording, Sampled, SavedNote, Visit,
    };
    pub use crate::record::recorder::family;
    pub use crate::record::stats::Stats;
}
#[doc(hidden)]
pub use tree::shared;
pub use tree::{Borrowed, Path, Tree, TreeStructure, borrowed};
pub use watch::{OverflowSource, detect_overflow};
