//! The intermediate representation of the Pullback autodiff system: operations, shapes and
//! programs.
//!
//! Nothing here computes. [`Op`] is plain data, [`Spec`] is the shape, dtype and device of a
//! tensor, [`Layout`] the strides of a view, [`infer::infer`] decides whether an op fits its
//! operands, and [`Error`] is the only error type.
#![forbid(unsafe_code)]

mod backend;
mod collective;
mod custom;
mod device;
mod device_group;
mod dtype;
mod error;
mod few;
mod flow;
mod fresh;
mod group;
pub mod infer;
mod launch;
mod layout;
mod lead_thread;
mod line;
mod numerics;
mod op;
pub mod pass;
mod program;
mod region;
mod scalar;
mod shape;
mod spec;
mod stopwatch;
mod strided;
pub mod template;
mod text;
mod view;
mod window;

pub use backend::{
    Bases, DeviceBackend, DeviceFlight, DeviceOperand, DeviceProgram, HostCopy, KernelCode,
    KernelTime, KernelUsage, MemoryHandle, OpCall, PoolStats, Step, Write,
};
pub use collective::{Alone, Collective, CollectiveCall, Combination, Communicator};
pub use custom::{Bytes, BytesMut, Custom, Kernel, Work};
pub use device::Device;
pub use device_group::DeviceJoin;
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use few::Few;
pub use flow::{Flow, Scan};
pub use fresh::Fresh;
pub use group::{CollectiveOp, GroupHandle, Started};
pub use launch::{CudaLaunch, CudaSource, Launch};
pub use layout::{Layout, diagonal_len};
pub use lead_thread::LeadSum;
pub use line::Line;
pub use numerics::{
    Numerics, deterministic, set_deterministic, set_tf32, tf32_allowed, with_deterministic,
    with_tf32,
};
pub use op::{
    Adam, Attention, Binary, Combine, Compare, Cumulation, Extreme, Family, Fft, Fused, Ints,
    Linalg, Op, Padding, Pointwise, Random, Reduction, ResultMemory, Sgd, Structure, Takes,
    Transfer, Unary, VjpOperand,
};
pub use program::{Equation, Program, Var, Vars};
pub use region::{Inst, Load, Region, Value};
pub use scalar::{Real, Scalar};
pub use shape::{
    Axes, Shape, Strides, broadcast_shapes, dense_strides, element_count, inverse_order,
    normalize_axis, other_axes,
};
pub use spec::Spec;
pub use stopwatch::Stopwatch;
pub use text::ParseOpError;
pub use view::{Span, View};
pub use window::{Conv, Frame, Pool, Pooling, Role, Window};
