//! Thread-local modes: whether gradients are recorded, which source line errors and tape nodes
//! name, and whether backward checks for NaN.

use crate::tangents::Tangents;
use crate::transform::levels;
use crate::{DType, Device, Error, fail, trace};
use pullback_ir::Line;
use std::cell::Cell;
use std::marker::PhantomData;
use std::thread::LocalKey;

thread_local! {
    static RECORDING: Cell<bool> = const { Cell::new(true) };
    /// The number of the innermost `no_grad`, from the counter of forward mode's levels, or 0: what
    /// was begun before it is cut. The library also switches recording off for itself, which cuts
    /// nothing.
    static NO_GRAD: Cell<u64> = const { Cell::new(0) };
    static ANOMALY: Cell<bool> = const { Cell::new(false) };
    /// The dtype of floats that are made without data.
    pub(crate) static DEFAULT_DTYPE: Cell<DType> = const { Cell::new(DType::F32) };
    /// The device of what is made without an operand, if a scope says one.
    pub(crate) static DEFAULT_DEVICE: Cell<Option<Device>> = const { Cell::new(None) };
    /// The line that ops name instead of their own: see [`with_line`].
    static LINE: Cell<Option<Line>> = const { Cell::new(None) };
    /// The caller of a library of layers, and the files of that library.
    static CLIENT: Cell<Option<(Line, &'static str)>> = const { Cell::new(None) };
}

/// Runs a function when dropped: at the end of a scope, also of one that panics.
pub(crate) struct OnDrop<F: FnOnce()>(Option<F>);

/// Runs `f` when the returned guard is dropped.
pub(crate) fn on_drop<F: FnOnce()>(f: F) -> OnDrop<F> {
    OnDrop(Some(f))
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// Calls `run` with a function that runs `f`, and returns what `f` returned. So `run`, which sets
/// up a scope, is not compiled again for every `f`.
///
/// # Panics
/// If `run` does not call its argument.
pub(crate) fn outlined<R>(f: impl FnOnce() -> R, run: impl FnOnce(&mut dyn FnMut())) -> R {
    let (mut f, mut result) = (Some(f), None);
    run(&mut || result = f.take().map(|f| f()));
    result.expect("the scope runs its function")
}

/// Restores a thread-local to its previous value when dropped.
pub(crate) struct Restore<T: Copy + 'static>(&'static LocalKey<Cell<T>>, T);

impl<T: Copy + 'static> Restore<T> {
    /// Sets it until then.
    pub fn set(key: &'static LocalKey<Cell<T>>, value: T) -> Restore<T> {
        Restore(key, key.replace(value))
    }
}

impl<T: Copy + 'static> Drop for Restore<T> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Sets a thread-local for the duration of a call, also if the call panics.
pub(crate) fn with<T: Copy + 'static, R>(
    key: &'static LocalKey<Cell<T>>,
    value: T,
    f: impl FnOnce() -> R,
) -> R {
    let _restore = Restore::set(key, value);
    f()
}

/// Runs `f` without recording: its results do not require gradients.
///
/// Every derivative that is being taken outside is cut, in reverse and in forward mode, as
/// [`Tensor::stop_gradient`](crate::Tensor::stop_gradient) cuts it: so J·v and Jᵀ·v agree. A
/// derivative that is taken inside (by [`grad`](crate::grad), [`vjp`](crate::vjp),
/// [`jvp`](crate::jvp)) works as usual, and [`enable_grad`] lifts the cut. The same holds compiled,
/// batched and in the bodies of loops. Only operations are cut: a tensor that `f` returns as it
/// came in, or a clone of it, is that tensor.
///
/// ```
/// use pullback::{Tensor, jvp, no_grad};
/// let w = Tensor::from(2.0).requires_grad();
/// let y = no_grad(|| &w * &w);
/// assert!(!y.is_tracked());
/// let held = |r: &Tensor| no_grad(|| r.square()) * r;
/// let (_, along) = jvp(held, &Tensor::from(3.0), &Tensor::from(1.0));
/// assert_eq!(along.item::<f64>(), 9.0); // r², not 3r²
/// ```
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    with(&RECORDING, false, || with(&NO_GRAD, levels::take_number(), f))
}

/// Runs `f` with recording on, also inside [`no_grad`], which cuts nothing while `f` runs.
///
/// ```
/// use pullback::{Tensor, enable_grad, no_grad};
/// let w = Tensor::from(2.0).requires_grad();
/// assert!(no_grad(|| enable_grad(|| &w * &w)).is_tracked());
/// ```
///
/// # Panics
/// In the body of `vmap` or of a traced loop or branch that was itself called inside `no_grad`: a
/// `no_grad` outside the body cannot be lifted from inside.
#[track_caller]
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    trace::check_lifting(user_line(Line::caller()));
    lifted(f)
}

/// Runs `f` with recording on and nothing cut, for the library itself.
pub(crate) fn lifted<R>(f: impl FnOnce() -> R) -> R {
    with(&RECORDING, true, || with(&NO_GRAD, 0, f))
}

/// Runs `f` with another dtype for what is made without data:
/// [`Tensor::zeros`](crate::Tensor::zeros), `ones`, `eye`, `rand`, `randn`, and so the parameters
/// of layers. Otherwise it is `f32`. What is made of values (`Tensor::from`, `from_vec`, `full`,
/// `linspace`) keeps the type of the values.
///
/// ```
/// use pullback::{DType, Tensor, with_default_dtype};
/// let w = with_default_dtype(DType::F64, || Tensor::zeros([2, 3]));
/// assert_eq!((w.dtype(), Tensor::zeros([2, 3]).dtype()), (DType::F64, DType::F32));
/// ```
///
/// # Panics
/// If the dtype is not one of floats.
#[doc(alias = "set_default_dtype")]
#[track_caller]
pub fn with_default_dtype<R>(dtype: DType, f: impl FnOnce() -> R) -> R {
    if !dtype.is_float() {
        let error = Error::dtype("with_default_dtype", format!("{dtype} is not a float dtype"));
        fail::raise(error.at(user_line(Line::caller())));
    }
    with(&DEFAULT_DTYPE, dtype, f)
}

/// The dtype of floats that are made without data: `f32`, or that of [`with_default_dtype`].
///
/// ```
/// use pullback::{DType, default_dtype, with_default_dtype};
/// assert_eq!(default_dtype(), DType::F32);
/// assert_eq!(with_default_dtype(DType::F64, default_dtype), DType::F64);
/// ```
#[doc(alias = "get_default_dtype")]
pub fn default_dtype() -> DType {
    DEFAULT_DTYPE.get()
}

/// Whether the user switched recording off.
pub(crate) fn in_no_grad() -> bool {
    NO_GRAD.get() != 0
}

/// The number of the innermost `no_grad`: levels of forward mode with lower numbers, and traces
/// that began with lower ones, are outside of it.
pub(crate) fn cut() -> u64 {
    NO_GRAD.get()
}

/// Runs `f` with recording on, inside the `no_grad` of this number (none for 0).
pub(crate) fn recording_in<R>(cut: u64, f: impl FnOnce() -> R) -> R {
    with(&RECORDING, true, || with(&NO_GRAD, cut, f))
}

/// Removes the tangents that `no_grad` cuts, and says whether there were any.
pub(crate) fn cut_tangents(tangents: &mut Tangents) -> bool {
    let cut = NO_GRAD.get();
    if !tangents.iter().any(|t| t.0 < cut) {
        return false;
    }
    let before = levels::alive(tangents).len();
    tangents.retain(|t| t.0 >= cut);
    levels::alive(tangents).len() < before
}

/// Switches recording on or off for the library itself: unlike [`no_grad`], this cuts neither
/// forward mode nor what a body records.
pub(crate) fn set_recording<R>(on: bool, f: impl FnOnce() -> R) -> R {
    with(&RECORDING, on, f)
}

/// [`set_recording`] until the returned guard is dropped.
pub(crate) fn recording(on: bool) -> Restore<bool> {
    Restore::set(&RECORDING, on)
}

/// Whether operations on this thread are being recorded: not inside [`no_grad`].
///
/// ```
/// use pullback::{enable_grad, is_grad_enabled, no_grad};
/// assert!(is_grad_enabled());
/// assert!(!no_grad(is_grad_enabled));
/// assert!(no_grad(|| enable_grad(is_grad_enabled)));
/// ```
pub fn is_grad_enabled() -> bool {
    RECORDING.get()
}

/// Runs `f` so that a backward pass inside it stops at the first NaN or infinity it makes, with an
/// error that names the forward op and the line it was written on.
///
/// Calls of [`jit`](crate::jit) run op by op inside `f`, also where `detect_anomaly` is inside the
/// compiled function. What [`vmap`](crate::vmap) does with an example is traced, where values are
/// not known: a backward pass inside it is not checked. On a GPU every gradient that is checked is
/// waited for.
///
/// ```
/// use pullback::{Tensor, detect_anomaly};
/// let x = Tensor::from(0.0).requires_grad();
/// let error = detect_anomaly(|| x.sqrt().backward()).unwrap_err();
/// assert!(error.to_string().contains("backward of `sqrt`"));
/// ```
pub fn detect_anomaly<R>(f: impl FnOnce() -> R) -> R {
    with(&ANOMALY, true, f)
}

pub(crate) fn anomaly() -> bool {
    ANOMALY.get()
}

/// Runs `f` with every op inside it naming `line`, in errors, traces, the tape and reports.
///
/// For what calls this library on behalf of a program that the Rust compiler does not see, such as
/// a binding of another language: it names the line of that program around each call.
///
/// ```
/// use pullback::{Line, Tensor, catch, with_line};
/// let x = Tensor::ones([2, 3]);
/// let line = Line::named("model.py", 12, 0);
/// let error = with_line(line, || catch(|| x.matmul(&x))).unwrap_err();
/// assert!(error.to_string().contains("at model.py:12"));
/// ```
pub fn with_line<R>(line: impl Into<Line>, f: impl FnOnce() -> R) -> R {
    // Inside a decomposition or a backward rule the user's line is the one that called the outer
    // op, not a line of this library.
    with(&LINE, Some(line.into()), f)
}

/// Runs `f` with every op inside it naming its own line, whatever line was set outside.
pub(crate) fn with_own_lines<R>(f: impl FnOnce() -> R) -> R {
    with(&LINE, None, f)
}

/// The line that was set by [`with_line`], for [`with_lines_of`].
pub(crate) fn set_line() -> Option<Line> {
    LINE.get()
}

/// Runs `f` with the line that was set before, where the library sets one around a function of the
/// user's.
pub(crate) fn with_lines_of<R>(outside: Option<Line>, f: impl FnOnce() -> R) -> R {
    with(&LINE, outside, f)
}

/// Declares that a library runs on behalf of its caller at `at`, until the guard is dropped:
/// errors, the tape and reports name that line instead of every line of a file whose path begins
/// with `library`. Lines of other files, such as of functions that the caller handed in, stay.
///
/// `#[track_caller]` ends at closures and at trait objects; a library of layers calls this at its
/// public functions instead. Where the caller is a line of the same library, the line is that of
/// the outermost caller.
///
/// ```
/// use pullback::{Tensor, catch, with_caller_lines};
/// use std::panic::Location;
///
/// #[track_caller]
/// fn product(factors: &[Tensor]) -> Tensor {
///     let _line = with_caller_lines(Location::caller(), file!());
///     factors.iter().cloned().reduce(|a, b| a.matmul(&b)).unwrap()
/// }
///
/// let factors = [Tensor::ones([2, 3]), Tensor::ones([4, 5])];
/// let error = catch(|| product(&factors)).unwrap_err();
/// let line = line!() - 1;
/// assert_eq!(error.location().unwrap().line(), line);
/// ```
pub fn with_caller_lines(at: impl Into<Line>, library: &'static str) -> CallerLineGuard {
    let line = user_line(at);
    CallerLineGuard { before: CLIENT.replace(Some((line, library))), _thread: PhantomData }
}

/// A library runs on behalf of a caller: see [`with_caller_lines`].
#[must_use = "the scope ends when this is dropped"]
pub struct CallerLineGuard {
    before: Option<(Line, &'static str)>,
    /// The guard belongs to this thread.
    _thread: PhantomData<*const ()>,
}

impl Drop for CallerLineGuard {
    fn drop(&mut self) {
        CLIENT.set(self.before);
    }
}

/// The line that errors and reports name for a caller: that line, unless a library runs [on behalf
/// of](with_caller_lines) another there.
///
/// ```
/// use pullback::{with_caller_lines, user_line};
/// use std::panic::Location;
/// let user = Location::caller();
/// let _line = with_caller_lines(user, file!());
/// let library = || Location::caller();
/// assert_eq!(user_line(library()), user);
/// ```
#[inline]
pub fn user_line(caller: impl Into<Line>) -> Line {
    if let Some(at) = LINE.get() {
        return at;
    }
    let caller = caller.into();
    match CLIENT.get() {
        Some((at, library)) if caller.file().starts_with(library) => at,
        _ => caller,
    }
}
