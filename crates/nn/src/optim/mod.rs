//! Optimisers, one a file.

mod optimizer;

pub use optimizer::Optimizer;
