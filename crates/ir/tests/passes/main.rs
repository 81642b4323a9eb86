//! Passes: their results, and that these are equivalent.

mod after;
mod apart;
mod cases;
mod devices;
mod generate;
mod golden;
mod interpret;
mod meaning;
