//! The tape: recording, backward passes, writes in place, and what errors say. Each file is a
//! module; those that need a process of their own are tests of their own.

mod accumulate;
mod anomaly;
mod bad_input;
mod determinism;
mod errors;
mod errors_derivatives;
mod flags;
mod foreign_lines;
mod inplace;
mod lines;
mod properties;
mod sums_of_ones;
mod tape;
mod watch;
