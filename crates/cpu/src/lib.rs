//! CPU kernels: [`run`] takes an op and its operands and returns the results in new buffers.
//!
//! Every kernel is SIMD code chosen once at run time (`simd`), supports any strides through one
//! iterator (`walk`), runs on several threads above a measured size ([`par`]), and computes the
//! same bits for any number of threads. Memory comes from a caching pool ([`buffer`]).
//!
//! This crate holds all the `unsafe` code of the CPU path. The functions here are safe: they take
//! an op that was checked against its operands (`Checked`), and check each layout against its
//! buffer before a kernel gets a pointer.

mod attention;
pub mod buffer;
mod collective;
mod conv;
mod ctc;
mod custom;
mod distances;
mod dot;
mod elem;
mod few;
mod fft;
mod host;
mod index;
pub mod latch;
mod linalg;
mod movement;
mod norm;
mod operand;
pub mod par;
mod pointwise;
mod pool;
pub mod pooled;
mod program;
mod random;
mod ranks;
mod reduce;
mod region;
mod run;
pub mod rw_lock;
mod scan;
pub mod shared_memory;
mod simd;
mod sort;
mod special;
mod target;
mod update;
mod walk;
mod widen;

pub use buffer::Buffer;
pub use dot::{multiply_add_rate, stream};
pub use few::FewFloats;
pub use host::{HostElement, bytes_of, elements, elements_mut};
pub use program::{BoundInput, NativeCode, Prepared, Running};
pub use run::{Buffers, Input, Output, Outputs, ReadOperand, WriteTarget};
pub use run::{compute, is_splat, run, run_into};
pub use simd::instruction_set;
pub use target::TARGET;
