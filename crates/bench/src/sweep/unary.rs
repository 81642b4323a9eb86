//! The rows of functions of one element, from the rows that define them ([`unary_rows`]): their
//! name, the interval of their operands and PyTorch's function.

use super::Row;
use pullback_ir::unary_rows;

/// The operand of a domain.
macro_rules! operand {
    ([bool]) => {
        "n:bool"
    };
    ([$low:literal $high:literal]) => {
        concat!("n:", $low, "..", $high)
    };
}

/// PyTorch's function of `x`.
macro_rules! torch {
    ($name:ident torch) => {
        concat!("torch.", stringify!($name), "(x)")
    };
    ($name:ident sp) => {
        concat!("sp.", stringify!($name), "(x)")
    };
    ($name:ident F) => {
        concat!("F.", stringify!($name), "(x)")
    };
    ($name:ident $call:literal) => {
        $call
    };
}

/// A row, or none where PyTorch has no such function.
macro_rules! row {
    ($name:ident $domain:tt none) => {
        &[]
    };
    (not $domain:tt $peer:tt) => {
        row!(not $domain $peer as logical_not)
    };
    ($name:ident $domain:tt $peer:tt) => {
        row!($name $domain $peer as $name)
    };
    ($name:ident $domain:tt $peer:tt as $method:ident) => {
        &[Row {
            name: stringify!($method),
            operands: operand!($domain),
            call: |x| x[0].$method(),
            torch: torch!($name $peer),
        }]
    };
}

macro_rules! of_one {
    ($(
        $f:ident $name:ident $value:literal $ints:tt $exact:ident $cost:literal $native:ident
        $native_vjp:ident $domain:tt $peer:tt $kernel:tt $cuda:tt $vjp:tt $cuda_vjp:tt;
    )*) => {
        /// The rows, each in a list of its own.
        pub const ROWS: &[&[Row]] = &[$(row!($name $domain $peer)),*];
    };
}
unary_rows!(of_one);
