//! Finds wrong numbers: random programs, run in many ways that must agree. See the README next to
//! this crate.
#![forbid(unsafe_code)]

pub mod ast;
pub mod budget;
pub mod check;
pub mod compare;
pub mod explorer;
pub mod generate;
pub mod hostile;
pub mod interpret;
pub mod numeric;
pub mod ops;
pub mod print;
pub mod refusals;
pub mod report;
pub mod rng;
pub mod shrink;
pub mod slopes;
pub mod switches;
pub mod ways;
pub mod workers;
