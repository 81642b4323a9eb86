//! The global generator, and draws that are repeated.

use super::Key;
use crate::inplace::undo;
use crate::{
    DType, Device, IntoDevice, IntoShape, Tensor, default_device, device, events, fail, mode, trace,
};
use pullback_ir::{Line, Random};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

/// The global generators. All give the same keys.
static GENERATORS: Mutex<States> = Mutex::new(States { seed: 0, by_device: Vec::new() });

/// Generators, one for each device that was drawn on. Each is a seed and how many keys it has
/// given, a tensor `i64[2]` there. A tensor, so that a compiled step draws new numbers at each
/// call: the count is state that the step reads and writes. On the device, so that a step has all
/// it needs there.
pub(crate) struct States {
    /// The seed of those to come.
    seed: i64,
    by_device: Vec<Tensor>,
}

impl States {
    /// The one of a device, or a new one.
    fn on(&mut self, device: Device) -> &Tensor {
        let known = self.by_device.iter().position(|state| state.device() == device);
        let i = known.unwrap_or_else(|| {
            let start = || Tensor::from([self.seed, 0]);
            let state = trace::computing(|| mode::with(&mode::DEFAULT_DEVICE, Some(device), start));
            self.by_device.push(state);
            self.by_device.len() - 1
        });
        &self.by_device[i]
    }

    /// Copies of these generators, in the same state.
    pub fn copied(&self) -> States {
        let copies = || self.by_device.iter().map(Tensor::deep_clone).collect();
        States { seed: self.seed, by_device: mode::set_recording(false, copies) }
    }

    /// As what a function is to draw from.
    pub fn held(self) -> Option<Arc<Mutex<States>>> {
        Some(Arc::new(Mutex::new(self)))
    }
}

/// The state of the generators, whatever is being traced.
pub(crate) fn states() -> States {
    trace::computing(|| generators(|states| states.copied()))
}

/// What a function drew from the generator, so that it can run again and draw the same.
#[derive(Clone)]
pub(crate) struct Draws {
    /// The state of the generators when it began; inside a trace that is not known.
    pub state: Option<Arc<Mutex<States>>>,
    /// The keys it was given, in order. Bodies inside it have keys of their own, made from these.
    pub keys: Vec<Key>,
    /// The trace in which it runs.
    pub trace: u64,
}

thread_local! {
    /// The draws that are being repeated, with how many keys were given again.
    static REPEATED: RefCell<Option<(Draws, usize)>> = const { RefCell::new(None) };
}

/// Runs `f`, which draws what was drawn before; the state of the global generator does not change.
/// What a function draws after that comes from the state that is given.
pub(crate) fn repeating<R>(draws: Draws, f: impl FnOnce() -> R) -> R {
    let outer = REPEATED.replace(Some((draws, 0)));
    let _restore = mode::on_drop(|| REPEATED.set(outer));
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
    NOTED.with_borrow_mut(|all| all.push((trace::number(), Vec::new())));
    let _end = mode::on_drop(|| drop(NOTED.with_borrow_mut(Vec::pop)));
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

/// Calls `f` with the generators, one caller at a time.
fn generators<R>(f: impl FnOnce(&mut States) -> R) -> R {
    // What is being compiled outlives the repetition, so it reads the generators of the process.
    let repeated = || REPEATED.with_borrow(|r| r.as_ref().and_then(|r| r.0.state.clone()));
    if let Some(states) = (!trace::active()).then(repeated).flatten() {
        let mut states = states.lock().unwrap_or_else(PoisonError::into_inner);
        return mode::set_recording(false, || f(&mut states));
    }
    let mut states = GENERATORS.lock().unwrap_or_else(PoisonError::into_inner);
    // Whole derivatives repeat the keys that they drew and leave the generator where the first pass
    // left it.
    undo::unnoted(|| events::internal(|| mode::set_recording(false, || f(&mut states))))
}

/// Seeds the global generators: what follows is the same in every run. Without this the seed is 0.
/// There is one for each device, and all give the same keys.
///
/// ```
/// use pullback::{Tensor, manual_seed};
/// manual_seed(1);
/// let x = Tensor::randn([4]).to_vec::<f32>();
/// manual_seed(1);
/// assert_eq!(x, Tensor::randn([4]).to_vec::<f32>());
/// ```
///
/// # Panics
/// Never.
#[track_caller]
pub fn manual_seed(seed: u64) {
    let at = mode::user_line(Line::caller());
    let seeded = |states: &mut States| {
        // The one of the default device is there from now on, so that a compiled step seeds it.
        states.on(default_device());
        states.seed = seed as i64;
        for state in &states.by_device {
            state.copy_(state.new_tensor([seed as i64, 0]));
        }
    };
    mode::with_line(at, || generators(seeded));
}

/// The state of the global generator of the default device: its seed and how many keys it has
/// given. [`set_random_state`] restores it.
///
/// ```
/// use pullback::{Tensor, random_state, set_random_state};
/// let state = random_state();
/// let x = Tensor::randn([4]).to_vec::<f32>();
/// set_random_state(&state);
/// assert_eq!(x, Tensor::randn([4]).to_vec::<f32>());
/// ```
///
/// # Panics
/// Never.
#[doc(alias = "get_rng_state")]
#[track_caller]
#[must_use]
pub fn random_state() -> Tensor {
    let at = mode::user_line(Line::caller());
    mode::with_line(at, || generators(|states| states.on(default_device()).deep_clone()))
}

/// [`random_state`] of every device that was drawn on, the CPU included, each on its device: for
/// checkpoints.
///
/// ```
/// use pullback::{random_states, set_random_state};
/// let states = random_states();
/// states.iter().for_each(set_random_state);
/// ```
///
/// # Panics
/// Never.
#[track_caller]
#[must_use]
pub fn random_states() -> Vec<Tensor> {
    let at = mode::user_line(Line::caller());
    let copied = |states: &mut States| {
        states.on(Device::Cpu);
        states.by_device.iter().map(Tensor::deep_clone).collect()
    };
    mode::with_line(at, || generators(copied))
}

/// Restores the global generator of the state's device to a [`random_state`].
///
/// ```
/// use pullback::{Tensor, random_state, set_random_state};
/// let state = random_state();
/// let x = Tensor::rand([2]).to_vec::<f32>();
/// set_random_state(&state);
/// assert_eq!(Tensor::rand([2]).to_vec::<f32>(), x);
/// ```
///
/// # Panics
/// If the tensor is not `i64[2]`.
#[doc(alias = "set_rng_state")]
#[track_caller]
pub fn set_random_state(state: &Tensor) {
    let key = Key::from_tensor(state);
    let at = mode::user_line(Line::caller());
    let set = |states: &mut States| drop(states.on(state.device()).copy_(key.tensor()));
    mode::with_line(at, || generators(set));
}

/// Keys that were given are this far from the keys that users make of the same seed.
const GIVEN: u64 = 0xD1B5_4A32_D192_ED03;

/// A fresh key from the global generator, a pure function of its seed and of how many it gave
/// before.
///
/// Inside [`jit`](crate::jit) every call draws new numbers. Inside `vmap` each example gets a key
/// of its own. In the body of a loop every iteration would get the same key, so there it is an
/// error: split a key beforehand and scan over the parts.
///
/// ```
/// # use pullback::next_key;
/// assert_ne!(next_key().tensor().to_vec::<i64>(), next_key().tensor().to_vec::<i64>());
/// ```
///
/// # Panics
/// In the traced body of a loop.
#[track_caller]
#[must_use]
pub fn next_key() -> Key {
    next_key_on(default_device())
}

/// [`next_key`] for draws on a device: that of an operand, say.
///
/// ```
/// # use pullback::{Tensor, next_key_on};
/// let x = Tensor::ones([8]);
/// let y = x.dropout(0.5, Some(&next_key_on(x.device())));
/// assert_eq!(y.shape(), [8]);
/// ```
///
/// # Panics
/// If the device is not available.
#[track_caller]
#[must_use]
pub fn next_key_on(device: impl IntoDevice) -> Key {
    let at = mode::user_line(Line::caller());
    let device = fail::or_raise(device::found("next_key", device).map_err(|e| e.at(at)));
    let key = repeated_key().unwrap_or_else(|| fresh_key(device, at));
    events::key_drawn(&key);
    note(&key);
    key
}

fn fresh_key(device: Device, at: Line) -> Key {
    if let Some(key) = trace::key_from_outside(device, at) {
        return key;
    }
    let given = |states: &mut States| {
        let state = states.on(device);
        state.add_(state.new_tensor([0i64, 1]));
        Key(state.deep_clone()).stream(GIVEN).draw(Random::Bits, &[2], DType::I64)
    };
    Key(mode::with_line(at, || generators(given)))
}

impl Tensor {
    /// Uniform numbers in [0, 1), of the [default dtype](crate::default_dtype), from the global
    /// generator.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert!(Tensor::rand([10]).lt(1.0).all().item::<bool>());
    /// ```
    ///
    /// # Panics
    /// If a length is negative; in the traced body of a loop (see [`next_key`]).
    #[track_caller]
    #[must_use]
    pub fn rand(shape: impl IntoShape) -> Tensor {
        Tensor::rand_with(shape, crate::default_dtype())
    }

    /// Normal numbers of mean 0 and variance 1, of the [default dtype](crate::default_dtype), from
    /// the global generator.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::randn([2, 3]).shape(), [2, 3]);
    /// ```
    ///
    /// # Panics
    /// If a length is negative; in the traced body of a loop (see [`next_key`]).
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
    ///
    /// # Panics
    /// In the traced body of a loop (see [`next_key`]).
    #[track_caller]
    #[must_use]
    pub fn randperm(n: usize) -> Tensor {
        next_key().permutation(n)
    }
}
