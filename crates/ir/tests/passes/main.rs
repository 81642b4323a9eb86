//! Passes: what they make of programs, and that it means the same.

mod after;
mod cases;
mod devices;
mod generate;
mod golden;
mod interpret;
mod meaning;
