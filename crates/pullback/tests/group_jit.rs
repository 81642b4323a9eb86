//! Compiled functions. Each file is a module; those that need a process of their own are tests of
//! their own.

mod compiled_graphs;
mod compiled_traps;
mod cuda_faults;
mod cuda_kernel;
mod listed;
mod models;
mod packed_weights;
