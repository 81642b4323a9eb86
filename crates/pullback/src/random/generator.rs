//! The global generator, and draws that are repeated.

use super::Key;
use crate::inplace::undo;
use crate::memory::checkpoint;
use crate::{DType, IntoShape, Tensor, mode, trace};
use pullback_ir::{Line, Random};
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

/// The global generator: a seed and how many keys it has given, as a tensor `i64[2]`. A tensor, so that a compiled step draws
/// anew at each call: the count is state that the step reads and writes.
static GENERATOR: Mutex<Option<Tensor>> = Mutex::new(None);

/// What a function drew from the generator, so that it can run again and draw the same.
#[derive(Clone)]
pub(crate) struct Draws {
    /// Where the generator stood when it began; inside a trace that is not known.
    pub state: Option<Tensor>,
    /// The keys it was given, in order. Bodies inside it have keys of their own, made from these.
    pub keys: Vec<Key>,
    /// The trace in which it runs.
    pub trace: u64,
}

thread_local! {
    /// The draws that are being repeated, with how many keys were given again.
    static REPEATED: RefCell<Option<(Draws, usize)>> = const { RefCell::new(None) };
}

/// Runs `f`, which draws what was drawn before; the global generator stays where it is. What a function draws after that comes from the state that is given.
pub(crate) fn repeating<R>(draws: Draws, f: impl FnOnce() -> R) -> R {
    struct Return(Option<(Draws, usize)>);
    impl Drop for Return {
        fn drop(&mut self) {
            REPEATED.set(self.0.take());
        }
    }
    let _return = Return(REPEATED.replace(Some((draws, 0))));
    f()
}

/// The next key of those that are given again.
fn repeated_key() -> Option<Key> {
    REPEATED.with_borrow_mut(|repeated| {
        let (draws, given) = repeated.as_mut().filter(|r| r.0.trace == trace::number())?;
        *given += 1;
        draws.keys.get(*given - 1).cloned()
    })
}

thread_local! {
    /// The keys that functions are given while they run, each with the trace in which it does.
    static NOTED: RefCell<Vec<(u64, Vec<Key>)>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f`, and gives the keys that it was given.
pub(crate) fn noting<R>(f: impl FnOnce() -> R) -> (R, Vec<Key>) {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            NOTED.with_borrow_mut(Vec::pop);
        }
    }
    NOTED.with_borrow_mut(|all| all.push((trace::number(), Vec::new())));
    let _leave = Leave;
    let made = f();
    let keys = NOTED.with_borrow_mut(|all| all.last_mut().map(|last| std::mem::take(&mut last.1)));
    (made, keys.unwrap_or_default())
}

fn note(key: &Key) {
    NOTED.with_borrow_mut(|all| {
        let here = if all.is_empty() { return } else { trace::number() };
        all.iter_mut().filter(|n| n.0 == here).for_each(|n| n.1.push(key.clone()));
    });
}

/// Calls `f` with the generator, one caller at a time.
fn generator<R>(f: impl FnOnce(&Tensor) -> R) -> R {
    // What is being compiled outlives a repetition, and reads the one of the process.
    let repeated = || REPEATED.with_borrow(|r| r.as_ref().and_then(|r| r.0.state.clone()));
    if let Some(state) = (!trace::active()).then(repeated).flatten() {
        return mode::set_recording(false, || f(&state));
    }
    let mut held = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let state = held.get_or_insert_with(|| trace::computing(|| Tensor::from([0i64, 0])));
    // Whole derivatives repeat the keys that they drew and leave the generator where the first pass left it.
    undo::unnoted(|| checkpoint::unwatched(|| mode::set_recording(false, || f(state))))
}

/// Seeds the global generator: what follows is the same in every run. Without this the seed is 0.
///
/// ```
/// use pullback::{Tensor, manual_seed};
/// manual_seed(1);
/// let x = Tensor::randn([4]).to_vec::<f32>();
/// manual_seed(1);
/// assert_eq!(x, Tensor::randn([4]).to_vec::<f32>());
/// ```
#[track_caller]
pub fn manual_seed(seed: u64) {
    let at = mode::user_line(Line::caller());
    mode::with_line(at, || generator(|state| state.copy_(Tensor::from([seed as i64, 0]))));
}

/// Where the global generator stands: its seed and how many keys it has given. [`set_random_state`] goes back there.
///
/// ```
/// use pullback::{Tensor, random_state, set_random_state};
/// let state = random_state();
/// let x = Tensor::randn([4]).to_vec::<f32>();
/// set_random_state(&state);
/// assert_eq!(x, Tensor::randn([4]).to_vec::<f32>());
/// ```
#[track_caller]
#[must_use]
pub fn random_state() -> Tensor {
    let at = mode::user_line(Line::caller());
    mode::with_line(at, || generator(Tensor::deep_clone))
}

/// Puts the global generator where [`random_state`] found it.
///
/// # Panics
/// If the tensor is not `i64[2]`.
#[track_caller]
pub fn set_random_state(state: &Tensor) {
    let key = Key::from_tensor(state);
    let at = mode::user_line(Line::caller());
    mode::with_line(at, || generator(|state| state.copy_(key.tensor())));
}

/// Seed and count of the global generator, whatever is being traced.
pub(crate) fn position() -> [i64; 2] {
    trace::computing(|| {
        let values = generator(|state| state.to_vec::<i64>());
        [values[0], values[1]]
    })
}

/// Keys that were given are this far from the keys that users make of the same seed.
const GIVEN: u64 = 0xD1B5_4A32_D192_ED03;

/// A fresh key from the global generator, a pure function of its seed and of how many it gave before.
///
/// Inside [`jit`](crate::jit) every call draws anew. Inside `vmap` each example gets a key of its own. In the body of a loop the
/// same key would come at every turn, so there it is an error: split a key beforehand and scan over the parts.
///
/// ```
/// # use pullback::next_key;
/// assert_ne!(next_key().tensor().to_vec::<i64>(), next_key().tensor().to_vec::<i64>());
/// ```
#[track_caller]
#[must_use]
pub fn next_key() -> Key {
    let at = mode::user_line(Line::caller());
    let key = repeated_key().unwrap_or_else(|| fresh_key(at));
    checkpoint::note_key(&key);
    note(&key);
    key
}

fn fresh_key(at: Line) -> Key {
    if let Some(key) = trace::key_from_outside(at) {
        return key;
    }
    let given = |state: &Tensor| {
        state.add_(Tensor::from([0i64, 1]));
        Key(state.deep_clone()).stream(GIVEN).draw(Random::Bits, &[2], DType::I64)
    };
    Key(mode::with_line(at, || generator(given)))
}

impl Tensor {
    /// Numbers spread evenly over [0, 1), of the [default dtype](crate::default_dtype), from the global generator.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert!(Tensor::rand([10]).lt(1.0).all().item::<bool>());
    /// ```
    #[track_caller]
    #[must_use]
    pub fn rand(shape: impl IntoShape) -> Tensor {
        Tensor::rand_with(shape, crate::default_dtype())
    }

    /// Normal numbers of mean 0 and variance 1, of the [default dtype](crate::default_dtype), from the global generator.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::randn([2, 3]).shape(), [2, 3]);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn randn(shape: impl IntoShape) -> Tensor {
        Tensor::randn_with(shape, crate::default_dtype())
    }

    /// [`Tensor::rand`] of a float dtype.
    ///
    /// ```
    /// # use pullback::{DType, Tensor};
    /// assert_eq!(Tensor::rand_with([2], DType::BF16).spec().to_string(), "bf16[2]");
    /// ```
    ///
    /// # Panics
    /// If the dtype is not a float.
    #[track_caller]
    #[must_use]
    pub fn rand_with(shape: impl IntoShape, dtype: DType) -> Tensor {
        next_key().uniform(shape, dtype, 0.0, 1.0)
    }

    /// [`Tensor::randn`] of a float dtype.
    ///
    /// ```
    /// # use pullback::{DType, Tensor};
    /// assert_eq!(Tensor::randn_with([2], DType::F64).spec().to_string(), "f64[2]");
    /// ```
    ///
    /// # Panics
    /// If the dtype is not a float.
    #[track_caller]
    #[must_use]
    pub fn randn_with(shape: impl IntoShape, dtype: DType) -> Tensor {
        next_key().normal(shape, dtype, 0.0, 1.0)
    }

    /// 0, 1, …, n − 1 in random order, `i64`, from the global generator.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::randperm(10).sum().item::<i64>(), 45);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn randperm(n: usize) -> Tensor {
        next_key().permutation(n)
    }
}
