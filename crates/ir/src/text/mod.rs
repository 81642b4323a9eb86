//! Prints and parses ops, views and specs.
//!
//! A text is a name, then attributes in braces where there are any:
//!
//! ```text
//! tanh    vjp.tanh    cast{f32}    slice{[0:5:1, 2:3:2]}    literal{0.5: f32[2,3]}    sum{[0,1]}
//! ```
//!
//! `names` has the name of each op (those of functions and fused ops are in their rows), `print`
//! writes attributes, `parse` reads them, and `fused` does both for fused ops. A name is written
//! down once: the parser looks it up among [`Op::forms`](crate::Op::forms), and then matches on the
//! op it found. What is printed parses back to an equal op, bit for bit.
//!
//! Programs and regions have separate files: `program` prints programs and `read_program` reads
//! them, `region` does both for regions. `json` and `graphviz` write programs for other tools.

mod cursor;
mod fused;
mod graphviz;
mod json;
mod names;
mod parse;
mod print;
mod program;
mod read_program;
mod region;

pub use cursor::ParseOpError;
