//! What the compiler does to programs, one pass a file.

pub mod plan;
