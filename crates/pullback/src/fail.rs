//! How errors leave formulas: a panic with the error's text, which [`catch`] turns back into an
//! `Err`.

use crate::mode;
use pullback_ir::{Error, Result};
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    static CATCHING: Cell<usize> = const { Cell::new(0) };
}

/// Fails with an error, as tensor operations do: panics with its text, which [`catch`] turns back
/// into an `Err`. For layers and functions of your own, whose callers should not have to write `?`.
///
/// ```
/// use pullback::{Error, Tensor, catch, raise};
/// fn halves(x: &Tensor) -> Vec<Tensor> {
///     if x.shape().last().is_none_or(|n| n % 2 == 1) {
///         raise(Error::shape("halves", "the last axis is not even").on([x.spec()]));
///     }
///     x.chunk(2, -1)
/// }
/// let error = catch(|| halves(&Tensor::zeros([2, 3]))).unwrap_err();
/// assert!(error.to_string().contains("not even"));
/// ```
///
/// # Panics
/// Always.
#[track_caller]
pub fn raise(error: Error) -> ! {
    if CATCHING.get() > 0 {
        panic::resume_unwind(Box::new(error));
    }
    panic!("{error}");
}

/// `Ok` as it is, an error as a panic with its text.
#[track_caller]
pub(crate) fn or_raise<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => raise(error),
    }
}

/// Runs `f`, and returns the error of a tensor operation in it that failed as an `Err`.
///
/// Tensor methods and operators carry no `?`: a wrong shape is a bug in the program, and they panic
/// with an error message. A server that evaluates other people's code needs an `Err` instead. Other
/// panics pass through.
///
/// ```
/// use pullback::{Tensor, catch};
/// let error = catch(|| Tensor::zeros([2, 3]).matmul(&Tensor::zeros([4, 5]))).unwrap_err();
/// assert!(error.to_string().starts_with("matmul: inner dimensions differ: f32[2,3] · f32[4,5] (3 ≠ 4)"));
/// ```
///
/// # Errors
/// That of the tensor operation, or of [`raise`], that ended `f`.
pub fn catch<R>(f: impl FnOnce() -> R) -> Result<R> {
    CATCHING.set(CATCHING.get() + 1);
    let _end = mode::on_drop(|| CATCHING.set(CATCHING.get() - 1));
    // Tensors are shared and locked, and no op leaves one half-changed, so unwinding through them
    // breaks nothing.
    panic::catch_unwind(AssertUnwindSafe(f)).map_err(|payload| match payload.downcast::<Error>() {
        Ok(error) => *error,
        Err(other) => panic::resume_unwind(other),
    })
}
