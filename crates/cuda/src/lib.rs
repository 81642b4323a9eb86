//! The backend for NVIDIA GPUs: memory, kernels and programs behind
//! [`DeviceBackend`](pullback_ir::DeviceBackend).
//!
//! ```text
//!  backend.rs   what the engine calls
//!  gpu.rs       a device: context, stream, launches, copies
//!  faults.rs    what kernels reject, and whose error it becomes
//!  pool.rs      its memory, cached over a few large segments
//!  pinned.rs    memory of the host that the device reads and writes by itself
//!  transfer.rs  large copies, and copies beside the queue on streams of their own
//!  compile.rs   CUDA C to machine code, kept in memory and on disk
//!  text.rs      a list of instructions (of a region, or of one op) as CUDA C
//!  loops.rs     from operands with layouts to such a kernel and its launch
//!  ops.rs       every op: as a loop, a kernel of kernels/, a product, or through the host
//!  window.rs    convolutions (as products) and pooling
//!  product.rs   matrix products, by cuBLASLt
//!  program.rs   planned programs, step by step on base addresses
//!  host.rs      ops that have no kernel yet: on the CPU, with one warning
//! ```
//!
//! Nothing of CUDA is needed to build it: libraries are opened at run time (`pullback-cuda-sys`).
//! All work of a device is in the order of one stream, and calls return before it has run. Values
//! that are offloaded are copied on two further streams, ordered by events.
//!
//! **Bits.** Kernels are deterministic: the order of every sum depends on shapes alone. Pointwise
//! instructions round as on the CPU (no fused multiply-add across instructions); functions such as
//! `exp` are CUDA's, whose last bit may differ from the CPU's. Random numbers are the CPU's.

mod backend;
mod compile;
mod faults;
mod fused;
mod gpu;
mod host;
mod lines;
mod loops;
mod ops;
mod pinned;
mod pool;
mod product;
mod program;
#[cfg(test)]
mod tests;
mod text;
mod transfer;
mod window;

pub use backend::open;
pub use gpu::{Description, describe, report};
