//! What holds for a stretch of code on this thread: whether gradients are recorded, whose source
//! line errors and tape nodes name, and whether backward looks for NaN.

use std::cell::Cell;
use std::panic::Location;

thread_local! {
    static RECORDING: Cell<bool> = const { Cell::new(true) };
    /// Whether the user said so: the library also switches recording off for itself, which cuts nothing.
    static NO_GRAD: Cell<bool> = const { Cell::new(false) };
    static ANOMALY: Cell<bool> = const { Cell::new(false) };
    /// What `apply` sees to besides the op itself, in the bits of [`extra`].
    pub(crate) static EXTRAS: Cell<u8> = const { Cell::new(0) };
    static SPEAKER: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// The bits of what `apply` may have to see to. Where all are off, it tests one number and goes on.
pub(crate) mod extra {
    /// The low dtype of `autocast`, if there is one.
    pub const LOW: u8 = 0b11;
    /// Values are looked at: `watch_overflow`.
    pub const WATCH: u8 = 0b100;
    /// Elements on kinks are counted: `kink_report`, `strict_kinks`.
    pub const COUNT: u8 = 0b1000;
    /// A convention is not the default: `with_conventions`.
    pub const AGREED: u8 = 0b1_0000;
    /// A ledger of storages is kept: `memory_report`.
    pub const KEPT: u8 = 0b10_0000;
    /// It is noted how values were made: `memory_budget`.
    pub const NOTING: u8 = 0b100_0000;
}

/// Sets a thread-local for the duration of a call, also if the call panics.
pub(crate) fn with<T: Copy + 'static, R>(
    key: &'static std::thread::LocalKey<Cell<T>>,
    value: T,
    f: impl FnOnce() -> R,
) -> R {
    struct Restore<T: Copy + 'static>(&'static std::thread::LocalKey<Cell<T>>, T);
    impl<T: Copy + 'static> Drop for Restore<T> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _restore = Restore(key, key.replace(value));
    f()
}

/// Runs `f` without recording: its results do not require gradients.
///
/// ```
/// use pullback::{Tensor, no_grad};
/// let w = Tensor::from(2.0).requires_grad();
/// let y = no_grad(|| &w * &w);
/// assert!(!y.is_tracked());
/// ```
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    with(&RECORDING, false, || with(&NO_GRAD, true, f))
}

/// Runs `f` with recording on, also inside [`no_grad`].
///
/// ```
/// use pullback::{Tensor, enable_grad, no_grad};
/// let w = Tensor::from(2.0).requires_grad();
/// assert!(no_grad(|| enable_grad(|| &w * &w)).is_tracked());
/// ```
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    with(&RECORDING, true, || with(&NO_GRAD, false, f))
}

/// Whether the user switched recording off.
pub(crate) fn in_no_grad() -> bool {
    NO_GRAD.get()
}

pub(crate) fn set_recording<R>(on: bool, f: impl FnOnce() -> R) -> R {
    with(&RECORDING, on, f)
}

/// Whether operations on this thread are being recorded.
pub fn is_grad_enabled() -> bool {
    RECORDING.get()
}

/// Runs `f` so that a backward pass inside it stops at the first NaN or infinity it makes, with an
/// error that names the forward op and the line it was written on.
///
/// Calls of [`jit`](crate::jit) go op by op meanwhile, also where `detect_anomaly` stands inside the compiled function. What
/// [`vmap`](crate::vmap) does with an example is traced, where values are not known: a backward pass inside it is not looked at.
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

/// The bits of [`EXTRAS`].
pub(crate) fn extras() -> u8 {
    EXTRAS.get()
}

pub(crate) fn anomaly() -> bool {
    ANOMALY.get()
}

/// Runs `f` with every op inside it speaking for `at`: inside a decomposition or a backward rule the
/// user's line is the one that called the outer op, not a line of this library.
pub(crate) fn speaking_for<R>(at: &'static Location<'static>, f: impl FnOnce() -> R) -> R {
    with(&SPEAKER, Some(at), f)
}

/// Runs `f` with every op inside it naming its own line, whoever is being spoken for outside.
pub(crate) fn speaking_for_itself<R>(f: impl FnOnce() -> R) -> R {
    with(&SPEAKER, None, f)
}

/// The user's line: the caller, unless someone else is being spoken for.
pub(crate) fn user_line(caller: &'static Location<'static>) -> &'static Location<'static> {
    SPEAKER.get().unwrap_or(caller)
}
