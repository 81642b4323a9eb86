//! What holds for a stretch of code on this thread: whether gradients are recorded, whose source
//! line errors and tape nodes name, and whether backward looks for NaN.

use crate::tensor::Tangents;
use crate::transform::levels;
use crate::{DType, Device, Error, fail, trace};
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;

thread_local! {
    static RECORDING: Cell<bool> = const { Cell::new(true) };
    /// The number of the innermost `no_grad`, from the counter of forward mode's levels, or 0: what was begun before it is cut. The library
    /// also switches recording off for itself, which cuts nothing.
    static NO_GRAD: Cell<u64> = const { Cell::new(0) };
    static ANOMALY: Cell<bool> = const { Cell::new(false) };
    /// What `apply` sees to besides the op itself, in the bits of [`extra`].
    pub(crate) static EXTRAS: Cell<u8> = const { Cell::new(0) };
    /// The dtype of floats that are made without data.
    pub(crate) static DEFAULT_DTYPE: Cell<DType> = const { Cell::new(DType::F32) };
    /// The device of what is made without an operand.
    pub(crate) static DEFAULT_DEVICE: Cell<Device> = const { Cell::new(Device::Cpu) };
    static SPEAKER: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
    /// The caller of a library of layers, and the files of that library.
    static CLIENT: Cell<Option<(&'static Location<'static>, &'static str)>> = const { Cell::new(None) };
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
/// Every derivative that is being taken outside is cut, in reverse and in forward mode, as [`Tensor::stop_gradient`](crate::Tensor::stop_gradient)
/// cuts it: so J·v and Jᵀ·v agree. A derivative that is taken inside (by [`grad`](crate::grad), [`vjp`](crate::vjp), [`jvp`](crate::jvp)) is as ever,
/// and [`enable_grad`] lifts the cut. The same holds compiled, batched and in the bodies of loops. Only operations are cut: a tensor that `f` returns as
/// it came in, or a clone of it, is that tensor.
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

/// Runs `f` with recording on, also inside [`no_grad`], which cuts nothing meanwhile.
///
/// ```
/// use pullback::{Tensor, enable_grad, no_grad};
/// let w = Tensor::from(2.0).requires_grad();
/// assert!(no_grad(|| enable_grad(|| &w * &w)).is_tracked());
/// ```
///
/// # Panics
/// In the body of `vmap` or of a traced loop or branch that was itself called inside `no_grad`: what goes on outside the body cannot be lifted from inside.
#[track_caller]
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    trace::check_lifting(user_line(Location::caller()));
    lifted(f)
}

/// Runs `f` with recording on and nothing cut, for the library itself.
pub(crate) fn lifted<R>(f: impl FnOnce() -> R) -> R {
    with(&RECORDING, true, || with(&NO_GRAD, 0, f))
}

/// Runs `f` with another dtype for what is made without data: [`Tensor::zeros`](crate::Tensor::zeros), `ones`, `eye`, `rand`, `randn`, and so the
/// parameters of layers. Otherwise it is `f32`. What is made of values (`Tensor::from`, `from_vec`, `full`, `linspace`) keeps the type of the values.
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
        let error = Error::dtype("with_default_dtype", format!("{dtype} is no dtype of floats"));
        fail::raise(error.at(user_line(Location::caller())));
    }
    with(&DEFAULT_DTYPE, dtype, f)
}

/// The dtype of floats that are made without data: `f32`, or that of [`with_default_dtype`].
pub fn default_dtype() -> DType {
    DEFAULT_DTYPE.get()
}

/// Whether the user switched recording off.
pub(crate) fn in_no_grad() -> bool {
    NO_GRAD.get() != 0
}

/// The number of the innermost `no_grad`: levels of forward mode with lower numbers, and traces that began with lower ones, are outside of it.
pub(crate) fn cut() -> u64 {
    NO_GRAD.get()
}

/// Runs `f` with recording on, inside the `no_grad` of this number (none for 0).
pub(crate) fn recording_in<R>(cut: u64, f: impl FnOnce() -> R) -> R {
    with(&RECORDING, true, || with(&NO_GRAD, cut, f))
}

/// Takes away the tangents that `no_grad` does not let pass, and says whether there were any.
pub(crate) fn cut_tangents(tangents: &mut Tangents) -> bool {
    let cut = NO_GRAD.get();
    if !tangents.iter().any(|t| t.0 < cut) {
        return false;
    }
    let before = levels::alive(tangents).len();
    tangents.retain(|t| t.0 >= cut);
    levels::alive(tangents).len() < before
}

/// Switches recording on or off for the library itself: unlike [`no_grad`], this cuts neither forward mode nor what a body records.
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

/// Whoever is being spoken for now, for [`speaking_as`].
pub(crate) fn speaker() -> Option<&'static Location<'static>> {
    SPEAKER.get()
}

/// Runs `f` with the speaker of before, where the library speaks for someone around a function of the user's.
pub(crate) fn speaking_as<R>(
    speaker: Option<&'static Location<'static>>,
    f: impl FnOnce() -> R,
) -> R {
    with(&SPEAKER, speaker, f)
}

/// Says that a library works for its caller at `at`, until what it gives is dropped: errors, the tape and reports name that line in place of every line
/// of a file whose path begins with `library`. Lines of other files, such as of functions that the caller handed in, stay.
///
/// `#[track_caller]` ends at closures and at trait objects; a library of layers says this at its doors instead. Where the caller is a line of the same
/// library, the line is the one that it works for already.
///
/// ```
/// use pullback::{Tensor, catch, on_behalf_of};
/// use std::panic::Location;
///
/// #[track_caller]
/// fn product(factors: &[Tensor]) -> Tensor {
///     let _line = on_behalf_of(Location::caller(), file!());
///     factors.iter().cloned().reduce(|a, b| a.matmul(&b)).unwrap()
/// }
///
/// let factors = [Tensor::ones([2, 3]), Tensor::ones([4, 5])];
/// let error = catch(|| product(&factors)).unwrap_err();
/// let line = line!() - 1;
/// assert_eq!(error.location().unwrap().line(), line);
/// ```
pub fn on_behalf_of(at: &'static Location<'static>, library: &'static str) -> OnBehalf {
    let line = user_line(at);
    OnBehalf { before: CLIENT.replace(Some((line, library))), _thread: PhantomData }
}

/// A library works for a caller: see [`on_behalf_of`].
#[must_use = "the library stops to work for its caller when this is dropped"]
pub struct OnBehalf {
    before: Option<(&'static Location<'static>, &'static str)>,
    /// It is this thread that works for the caller.
    _thread: PhantomData<*const ()>,
}

impl Drop for OnBehalf {
    fn drop(&mut self) {
        CLIENT.set(self.before);
    }
}

/// The line that errors and reports name for a caller: that line, unless a library works [on behalf of](on_behalf_of) another there.
///
/// ```
/// use pullback::{on_behalf_of, user_line};
/// use std::panic::Location;
/// let user = Location::caller();
/// let _line = on_behalf_of(user, file!());
/// let library = || Location::caller();
/// assert_eq!(user_line(library()), user);
/// ```
pub fn user_line(caller: &'static Location<'static>) -> &'static Location<'static> {
    if let Some(at) = SPEAKER.get() {
        return at;
    }
    match CLIENT.get() {
        Some((at, library)) if caller.file().starts_with(library) => at,
        _ => caller,
    }
}
