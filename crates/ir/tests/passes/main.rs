//! Passes: what they make of programs, and that it means the same.

mod cases;
mod generate;
mod golden;
mod interpret;
mod meaning;
