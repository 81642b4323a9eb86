//! Lists whose length a user's number decides.
//!
//! A tensor that cannot be allocated is an error. A `Vec` that cannot be allocated aborts the
//! process, so its size is checked before.

use crate::{Error, Spec, fail, mode};
use pullback_ir::{ErrorKind, Line};
use std::sync::OnceLock;

/// About what a tensor takes besides its elements.
pub(crate) const TENSOR: usize = 256;

/// Refuses a list of `count` items of `each` bytes that memory cannot hold.
#[track_caller]
pub(crate) fn check_list(op: &'static str, count: usize, each: usize, operands: &[&Spec]) {
    let fits = |bytes: usize| {
        // The system is queried as well: a process may have a lower limit than the machine.
        bytes <= memory() && Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
    };
    if count < 1 << 16 || count.checked_mul(each).is_some_and(fits) {
        return;
    }
    let message = format!("a list of {count} is larger than memory");
    let error = Error::new(ErrorKind::Memory, op, message).on(operands.iter().copied());
    fail::raise(error.at(mode::user_line(Line::caller())));
}

/// The bytes of memory that the machine has, as far as it says.
fn memory() -> usize {
    static MEMORY: OnceLock<usize> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = |line: &str| {
            line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<usize>().ok()
        };
        let kib = text.lines().find_map(total);
        kib.map_or(isize::MAX as usize, |kib| kib.saturating_mul(1024))
    })
}
