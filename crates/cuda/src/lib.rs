//! The backend for NVIDIA GPUs: memory, kernels and programs behind
//! [`DeviceBackend`](pullback_ir::DeviceBackend).
//!
//! ```text
//!  backend.rs   what the engine calls
//!  gpu.rs       a device: context, stream, launches, copies, faults of kernels
//!  pool.rs      its memory, cached over a few large segments
//!  compile.rs   CUDA C to machine code, kept in memory and on disk
//!  text.rs      a list of instructions (of a region, or of one op) as CUDA C
//!  loops.rs     from operands with layouts to such a kernel and its launch
//!  ops.rs       every op: as a loop, a kernel of kernels/, a product, or through the host
//!  attention.rs attention: by cuDNN, or by products and loops
//!  window.rs    convolutions (by cuDNN, or as products) and pooling
//!  dnn.rs       plans of cuDNN; dnn_graph.rs its vocabulary, dnn_attention.rs and dnn_conv.rs the
//!               graphs of attention and convolutions
//!  product.rs   matrix products, by cuBLASLt
//!  program.rs   planned programs, step by step on base addresses
//!  host.rs      ops that have no kernel yet: on the CPU, with one warning
//! ```
//!
//! Nothing of CUDA is needed to build it: libraries are opened at run time (`pullback-cuda-sys`).
//! All work of a device is in the order of one stream, and calls return before it has run.
//!
//! **Bits.** Kernels are deterministic: the order of every sum depends on shapes alone. Pointwise
//! instructions round as on the CPU (no fused multiply-add across instructions); functions such as
//! `exp` are CUDA's, whose last bit may differ from the CPU's. Random numbers are the CPU's.

mod attention;
mod backend;
mod compile;
mod dnn;
mod dnn_attention;
mod dnn_conv;
mod dnn_graph;
#[cfg(test)]
mod dnn_tests;
mod fused;
mod gpu;
mod host;
mod lines;
mod loops;
mod ops;
mod pool;
mod product;
mod program;
#[cfg(test)]
mod tests;
mod text;
mod window;

pub use backend::open;
pub use gpu::{Description, describe, report};
