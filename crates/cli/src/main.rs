//! The `pullback` command.
#![forbid(unsafe_code)]

fn main() {}
