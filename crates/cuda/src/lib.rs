//! The backend for NVIDIA GPUs: memory, kernels and programs behind
//! [`DeviceBackend`](pullback_ir::DeviceBackend).
//!
//! ```text
//!  backend.rs   what the engine calls
//!  gpu.rs       a device: context, stream, launches, copies; describe.rs: what is known of it
//!  faults.rs    what kernels reject, and whose error it becomes
//!  pool.rs      its memory, cached over a few large segments
//!  pinned.rs    memory of the host that the device reads and writes by itself
//!  transfer.rs  large copies, and copies beside the queue on streams of their own
//!  cache.rs     what is kept on disk
//!  compile.rs   CUDA C to machine code, kept in memory and on disk
//!  functions.rs functions of an element in CUDA C, and what every kernel starts with
//!  text.rs      a list of instructions (of a region, or of one op) as CUDA C
//!  rows.rs      … with reductions along rows; register_rows.rs: with rows in registers
//!  loops.rs     from operands with layouts to such a kernel and its launch; registers.rs: where
//!               rows fit into registers, with sums over the rows
//!  ops.rs       every op: as a loop, a kernel of kernels/, a product, or through the host
//!  fused.rs     fused ops, as loops; batch_norm.rs: batch norm in two passes
//!  lines.rs     indexing, sorting, scans, cross-entropy, products of integers
//!  cat.rs       joining arrays; transpose.rs: matrices with rows and columns exchanged
//!  update.rs    steps of optimisers, many as one kernel
//!  attention.rs attention: by cuDNN, by flash.rs, or by products and loops
//!  flash.rs     attention that stores no scores, by kernels of our own
//!  window.rs    convolutions (by cuDNN, or as products) and pooling
//!  dnn.rs       plans of cuDNN; dnn_graph.rs its vocabulary, dnn_attention.rs and dnn_conv.rs the
//!               graphs of attention and convolutions
//!  queue.rs     pointwise ops that are queued, to run as one kernel
//!  product.rs   matrix products, by cuBLASLt; product_matrices.rs: operands as it sees them
//!  tuning.rs    the fastest of several algorithms, by measuring
//!  fft.rs       Fourier transforms, by cuFFT
//!  linalg.rs    factorisations and linear systems: small ones here, others by solver.rs
//!  solver.rs    cuSOLVER and cuBLAS
//!  nccl.rs      collectives between GPUs, by NCCL
//!  profile.rs   times of kernels
//!  report.rs    what regions are compiled to, without a device
//!  program.rs   planned programs, step by step on base addresses
//!  lowering.rs  … from equations to steps
//!  flow.rs      … loops and conditionals
//!  dry_run.rs … what steps need, made before they run
//!  graph.rs     … steps as CUDA graphs
//!  staging.rs   … arguments and results at fixed addresses
//!  host_copies.rs … values offloaded to the host; link.rs: the bandwidth to it
//!  launch_notes.rs … how they are launched, in words
//!  custom.rs    kernels of users, in CUDA C; their code for the host
//!  host.rs      ops that have no kernel, or lack a library: on the CPU, with one warning
//!  golden.rs    texts of kernels as files, for tests; random_regions.rs, *_tests.rs: tests, most
//!               of them on a device
//! ```
//!
//! CUDA is not needed to build it: libraries are opened at run time (`pullback-cuda-sys`).
//! All work of a device is in the order of one stream, and calls return before it has run. Values
//! that are offloaded are copied on two further streams, ordered by events.
//!
//! **Bits.** Kernels are deterministic: the order of every sum depends on shapes and layouts alone
//! (products: unless the user gives that up for speed). Pointwise instructions round as on the CPU
//! (no fused multiply-add across instructions); functions such as `exp` are CUDA's, whose last bit
//! may differ from the CPU's. Random numbers are the CPU's.

mod attention;
mod backend;
mod batch_norm;
mod cache;
mod cat;
mod compile;
mod ctc;
mod custom;
mod describe;
#[cfg(test)]
mod device_tests;
mod distances;
mod dnn;
mod dnn_attention;
mod dnn_conv;
mod dnn_graph;
#[cfg(test)]
mod dnn_tests;
mod dry_run;
#[cfg(test)]
mod dry_run_tests;
mod faults;
mod fft;
mod flash;
#[cfg(test)]
mod flash_tests;
mod flow;
mod functions;
mod fused;
#[cfg(test)]
mod golden;
mod gpu;
mod graph;
mod host;
mod host_copies;
#[cfg(test)]
mod image_tests;
mod launch_notes;
mod linalg;
mod lines;
mod link;
mod loops;
mod lowering;
mod nccl;
#[cfg(test)]
mod nccl_tests;
mod ops;
mod pinned;
mod pool;
mod product;
mod product_matrices;
#[cfg(test)]
mod product_tests;
mod profile;
mod program;
mod queue;
#[cfg(test)]
mod random_regions;
#[cfg(test)]
mod region_tests;
mod register_rows;
mod registers;
mod report;
mod rows;
mod solver;
mod staging;
#[cfg(test)]
mod step_tests;
#[cfg(test)]
mod tests;
mod text;
mod transfer;
mod transpose;
mod tuning;
mod update;
mod window;

pub use backend::{TARGET, open};
pub use custom::CudaKernel;
pub use describe::{Description, describe, report};
pub use report::kernels_of;
