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
//!  window.rs    convolutions (as products) and pooling
//!  product.rs   matrix products, by cuBLASLt
//!  fft.rs       Fourier transforms, by cuFFT
//!  linalg.rs    factorisations and linear systems: small ones here, others by solver.rs
//!  solver.rs    cuSOLVER and cuBLAS
//!  program.rs   planned programs, step by step on base addresses
//!  host.rs      ops that have no kernel, or lack a library: on the CPU, with one warning
//! ```
//!
//! Nothing of CUDA is needed to build it: libraries are opened at run time (`pullback-cuda-sys`).
//! All work of a device is in the order of one stream, and calls return before it has run.
//!
//! **Bits.** Kernels are deterministic: the order of every sum depends on shapes alone. Pointwise
//! instructions round as on the CPU (no fused multiply-add across instructions); functions such as
//! `exp` are CUDA's, whose last bit may differ from the CPU's. Random numbers are the CPU's.

mod attention_dropout;
mod backend;
mod compile;
#[cfg(test)]
mod device_tests;
mod fft;
mod fused;
mod gpu;
mod host;
mod linalg;
mod lines;
mod loops;
mod ops;
mod pool;
mod product;
mod program;
mod solver;
#[cfg(test)]
mod tests;
mod text;
mod window;

pub use backend::open;
pub use gpu::{Description, describe, report};
