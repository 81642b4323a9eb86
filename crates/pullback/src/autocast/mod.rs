//! Mixed precision: inside `autocast` ops that benefit from a 16-bit dtype use one, and ops that
//! need more precision use `f32`.
//!
//! Which op gets what is a table by families (`policy.rs`). `apply` consults it once for each op,
//! before anything else: operands are cast, and then the op is an op like any other. The casts are
//! ordinary ops too, so gradients flow through them and have the dtype of what was cast: weights
//! stay in `f32` (the master weights), and so do their gradients.
//!
//! What follows from that:
//!
//! - Dtypes are decided where an op is first applied. What the library then does for it (a
//!   decomposition, a backward rule, a tangent, the replay of a traced body) runs without autocast,
//!   by [`off`]: it must see the dtypes that were decided there.
//! - Methods that promote their operands to one dtype lower them first ([`lowered`]), or a weight
//!   would be cast up and down again. Methods that bring a weight to the dtype of the input (norms,
//!   losses) raise that first ([`Tensor::up`]), or it would be rounded.
//! - An operation in place keeps the dtype of what it writes to.
//!
//! A weight that several ops use is cast once ([`cast_leaf`]): the casts of leaves are kept until
//! the outermost scope ends. What is kept is found by the tensor, and is valid only for the version
//! of its memory, for whether operations are recorded, and for the trace that it was made in. Each
//! trace has its own cache.

mod policy;

pub use policy::{Policy, autocast_policy};

use crate::backend::Pooled;
use crate::events::{self, LOW};
use crate::leaf::Leaf;
use crate::mode::{self, DEFAULT_DEVICE, DEFAULT_DTYPE};
use crate::tape::History;
use crate::{DType, Device, Error, Op, Tensor, fail, trace};
use pullback_ir::Line;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

/// Runs `f` in mixed precision: matrix products, convolutions and attention in `bf16` or `f16`;
/// sums, softmax, norms, losses, powers and exponentials in `f32`; everything else in the dtype it
/// is given. Tensors of `f64` are left alone. [`autocast_policy`] lists the ops.
///
/// Parameters stay in `f32` and get gradients in `f32`. Call `backward` and the optimiser outside
/// or inside, neither is affected. Calls nest, and [`autocast_off`] makes an exception. `f16` has a
/// small range: scale the loss.
///
/// ```
/// use pullback::{DType, Tensor, autocast};
/// let (x, w) = (Tensor::ones([2, 3]), Tensor::ones([4, 3]).requires_grad());
/// let loss = autocast(DType::BF16, || {
///     let y = x.linear(&w, None);
///     assert_eq!(y.dtype(), DType::BF16);
///     y.square().mean()
/// });
/// assert_eq!(loss.dtype(), DType::F32);
/// loss.backward()?;
/// assert_eq!(w.grad().unwrap().dtype(), DType::F32);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Panics
/// If the dtype is neither `bf16` nor `f16`.
#[track_caller]
pub fn autocast<R>(dtype: DType, f: impl FnOnce() -> R) -> R {
    let low = match dtype {
        DType::BF16 => Low::Bf16,
        DType::F16 => Low::F16,
        _ => {
            let message = format!("computes in bf16 or f16, not in {dtype}");
            let at = mode::user_line(Line::caller());
            fail::raise(Error::argument("autocast", message).at(at));
        }
    };
    let _scope = CacheScope::enter();
    events::replacing(LOW, low as u16, f)
}

/// Runs `f` with [`autocast`] switched off, also inside a scope of it.
///
/// ```
/// use pullback::{DType, Tensor, autocast, autocast_off};
/// let x = Tensor::ones([2, 2]);
/// autocast(DType::F16, || {
///     assert_eq!(x.matmul(&x).dtype(), DType::F16);
///     assert_eq!(autocast_off(|| x.matmul(&x)).dtype(), DType::F32);
/// });
/// ```
pub fn autocast_off<R>(f: impl FnOnce() -> R) -> R {
    off(f)
}

#[derive(Clone, Copy)]
enum Low {
    Bf16 = 0b01,
    F16 = 0b10,
}

/// The dtype state: whether autocast is on and in which dtype, and the default dtype. A
/// specialisation is compiled for it, and a recomputation restores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AutocastState {
    low: u16,
    default: DType,
    device: Device,
}

impl AutocastState {
    pub fn dtype(self) -> Option<DType> {
        match self.low {
            1 => Some(DType::BF16),
            2 => Some(DType::F16),
            _ => None,
        }
    }
}

impl fmt::Display for AutocastState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype() {
            Some(dtype) => write!(f, "inside autocast({dtype})")?,
            None => f.write_str("outside autocast")?,
        }
        match self.default {
            DType::F32 => {}
            dtype => write!(f, " with the default dtype {dtype}")?,
        }
        match self.device {
            Device::Cpu => Ok(()),
            device @ Device::Cuda(_) => write!(f, " with the default device {device}"),
        }
    }
}

/// The state of this thread now.
pub(crate) fn state() -> AutocastState {
    let (default, device) = (mode::default_dtype(), crate::default_device());
    AutocastState { low: events::mask() & LOW, default, device }
}

/// Runs `f` in this state, with an empty cache of casts that is dropped afterwards.
pub(crate) fn with_state<R>(state: AutocastState, f: impl FnOnce() -> R) -> R {
    mode::outlined(f, |f| run_with_state(state, f))
}

fn run_with_state(state: AutocastState, f: &mut dyn FnMut()) {
    let _scope = CacheScope::enter();
    let outer = CACHE.take();
    let _restore = mode::on_drop(|| {
        let inner = CACHE.replace(outer);
        drop(inner);
    });
    let f = || mode::with(&DEFAULT_DEVICE, Some(state.device), f);
    let f = || mode::with(&DEFAULT_DTYPE, state.default, f);
    events::replacing(LOW, state.low, f)
}

/// Runs `f` with the dtypes that its operands have.
pub(crate) fn off<R>(f: impl FnOnce() -> R) -> R {
    events::without(LOW, f)
}

/// Runs `f`, the body of a trace, with a cache of its own.
pub(crate) fn with_own_cache<R>(f: impl FnOnce() -> R) -> R {
    match !events::is_on(LOW) && DEPTH.get() == 0 {
        true => f(),
        false => with_state(state(), f),
    }
}

/// How deep scopes are nested. With the last one the cache is emptied.
struct CacheScope;

impl CacheScope {
    fn enter() -> CacheScope {
        DEPTH.set(DEPTH.get() + 1);
        CacheScope
    }
}

impl Drop for CacheScope {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            // Dropped after the cache is free again.
            let kept = CACHE.take();
            drop(kept);
        }
    }
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static CACHE: RefCell<CastCache> = RefCell::default();
}

/// Casts of leaves, by the address of the leaf's tensor and what else they are valid for.
type CastCache = FxHashMap<(usize, CastScope), CachedCast>;

/// What a cast is valid for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct CastScope {
    dtype: DType,
    recording: bool,
    no_grad: bool,
    trace: u64,
}

struct CachedCast {
    /// Keeps the address from being reused.
    _original: Tensor,
    leaf: Arc<Leaf>,
    version: u64,
    cast: Tensor,
}

/// A tensor in another dtype; of a leaf, the one that was made before if it is still valid.
#[track_caller]
fn cast_leaf(x: &Tensor, dtype: DType) -> Tensor {
    let leaf = match &x.lock().history {
        History::Leaf(leaf) => Some(leaf.clone()),
        History::None | History::Cut(_) | History::Node(..) => None,
    };
    let Some(leaf) = leaf.filter(|_| DEPTH.get() > 0 && !x.carries_tangents()) else {
        return x.cast(dtype);
    };
    let scope = CastScope {
        dtype,
        recording: mode::is_grad_enabled(),
        no_grad: mode::in_no_grad(),
        trace: trace::number(),
    };
    let (key, version) = ((Pooled::as_ptr(&x.0) as usize, scope), x.version());
    let known = CACHE.with_borrow(|cache| {
        let kept = cache.get(&key)?;
        let holds = kept.version == version && Arc::ptr_eq(&kept.leaf, &leaf);
        holds.then(|| kept.cast.clone())
    });
    if let Some(cast) = known {
        return cast;
    }
    let cast = x.cast(dtype);
    let kept = CachedCast { _original: x.clone(), leaf, version, cast: cast.clone() };
    // Dropped after the cache is free again.
    let old = CACHE.with_borrow_mut(|cache| cache.insert(key, kept));
    drop(old);
    cast
}

/// How many casts are kept, for tests.
#[cfg(test)]
fn kept() -> usize {
    CACHE.with_borrow(|cache| cache.len())
}

/// The operands of a product in the low dtype; `None` where they stay as they are: autocast is off,
/// they are low already, or one of them is no float or an `f64`.
#[track_caller]
pub(crate) fn lowered<const N: usize>(operands: [&Tensor; N]) -> Option<[Tensor; N]> {
    let low = state().dtype()?;
    let fits = |x: &&Tensor| x.dtype().is_float() && x.dtype() != DType::F64;
    if !operands.iter().all(fits) || operands.iter().all(|x| x.dtype() == low) {
        return None;
    }
    // A loop, not a closure: a closure would lose the caller's line.
    let mut list = operands.map(Tensor::clone);
    for x in &mut list {
        *x = cast_leaf(x, low);
    }
    Some(list)
}

/// A bias in the dtype of the product that it is added to, so that the sum stays low.
#[track_caller]
pub(crate) fn cast_bias(bias: &Tensor, product: &Tensor) -> Tensor {
    match state().dtype() {
        Some(low) if product.dtype() == low && bias.dtype() == DType::F32 => cast_leaf(bias, low),
        _ => bias.clone(),
    }
}

impl Tensor {
    /// Inside autocast half-precision tensors in `f32`; everything else as it is.
    #[track_caller]
    pub(crate) fn up(&self) -> Tensor {
        match self.is_raised() {
            true => self.cast(DType::F32),
            false => self.clone(),
        }
    }

    /// Whether [`Tensor::up`] casts it.
    pub(crate) fn is_raised(&self) -> bool {
        state().dtype().is_some() && matches!(self.dtype(), DType::BF16 | DType::F16)
    }

    /// The dtype of a sum, a mean or a norm of this tensor.
    pub(crate) fn reduced_dtype(&self) -> DType {
        if self.is_raised() { DType::F32 } else { self.real_dtype() }
    }

    /// A matrix product that is part of a computation that needs `f32`.
    #[track_caller]
    pub(crate) fn product(&self, other: &Tensor) -> Tensor {
        let (a, b) = (self.up(), other.up());
        let at = mode::user_line(Line::caller());
        off(|| mode::with_line(at, || a.matmul(&b)))
    }
}

/// The operands cast as the table requires, where they differ from it.
pub(crate) fn cast_operands(
    op: &Op,
    inputs: &[&Tensor],
    at: Line,
) -> Option<SmallVec<[Tensor; 4]>> {
    let low = state().dtype()?;
    let wanted = |x: &Tensor| -> Option<DType> {
        match (policy::policy(op), x.dtype()) {
            (Policy::Low, DType::F32 | DType::BF16 | DType::F16) => Some(low),
            (Policy::F32, DType::BF16 | DType::F16) => Some(DType::F32),
            _ => None,
        }
        .filter(|&dtype| dtype != x.dtype())
    };
    let wide = |x: &&Tensor| x.dtype() == DType::F64;
    if !inputs.iter().any(|x| wanted(x).is_some()) || inputs.iter().any(wide) {
        return None;
    }
    let cast = |x: &&Tensor| match wanted(x) {
        Some(dtype) => cast_leaf(x, dtype),
        None => (*x).clone(),
    };
    Some(mode::with_line(at, || inputs.iter().map(cast).collect()))
}

#[cfg(test)]
mod tests;
