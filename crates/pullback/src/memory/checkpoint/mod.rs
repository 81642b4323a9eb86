//! Checkpointing: a function whose values are recomputed in backward instead of saved.
//!
//! The function runs once and is recorded as usual: its nodes are on the tape, with their edges,
//! lines and hooks. Only what they save is dropped when the function has returned (`frame.rs`).
//! When backward first needs one of the dropped values, the function runs again on its kept
//! arguments (`replay.rs`), and what it saves the second time, in the same order, is what the nodes
//! of the first run get. The second run's own nodes are discarded. So whatever works on the tape
//! works here: hooks inside the function, several results, gradients of intermediate values, double
//! backward (a value that comes back gets its history from the node's own edge).
//!
//! The second run must compute the same. State that may have changed is restored or refused:
//!
//! - Random numbers: it draws the keys of the first run, and the state of the generator does not
//!   change.
//! - Captured memory that the function writes (running statistics): it sees the old contents,
//!   and the current contents are restored afterwards. So nothing is written twice.
//! - Captured memory that was written elsewhere since, a flag that has changed, an argument
//!   that was overwritten: an error.
//! - Anything else (clocks, counters of the user's) is detected where the function saves other
//!   values: by their ops and shapes always, and by a hash of each in debug builds or where
//!   [`Checkpoint::verify`] requests it.
//!
//! Inside a trace the second run is recorded too, on arguments that come after the cotangent
//! ([`Op::After`](pullback_ir::Op::After)): so that they are not merged, and the second run stays
//! late. Bodies of loops, of `vmap` and of `cond` hold a checkpointed function as one equation
//! (`body.rs`).
//!
//! Derivatives nest with checkpoints in any order. What a derivative inside the function saves is
//! counted like the rest, in both runs; what a trace inside it records is not, as nothing of that
//! is wanted after the function. The second run may come late: levels of forward mode and arguments
//! of transforms that have ended since are restored for it. And it may be requested inside a body
//! that began later: then it happens outside that body, where the nodes are.
//!
//! Checkpoints nest: the arguments of an inner one are saved through the packer of the outer one,
//! which drops and recomputes them.

mod body;
mod frame;
mod replay;

pub(crate) use frame::{is_watching, note_flag_read, note_key, note_reads, note_write, unwatched};
pub(crate) use replay::{Replays, is_replaying, note_replayed_write, with_cotangent};

use crate::read_only::ReadOnly;
use crate::tensor::Frozen;
use crate::unaliased::Since;
use crate::{Tensor, Tree, kinks, mode, shared, trace};
use frame::CheckpointFrame;
use pullback_ir::Line;
use std::sync::Arc;

/// Activation checkpointing: computes `f(x)` without saving the intermediate values for backward;
/// `f` runs again in the backward pass.
///
/// Costs one more run of `f` and saves the memory of all it does, except its arguments. `f` may
/// capture parameters (a clone of a [`Tensor`] is the same tensor); they get their gradients as
/// usual. Random numbers repeat.
///
/// ```
/// use pullback::{Tensor, checkpoint};
/// let (x, w) = (Tensor::from([0.5, 1.0]).requires_grad(), Tensor::from(3.0).requires_grad());
/// let f = { let w = w.clone(); move |x: &Tensor| (x * &w).sin().exp() };
/// let plain = f(&x).sum();
/// plain.backward()?;
/// let expected = (x.grad().unwrap().to_vec::<f64>(), w.grad().unwrap().item::<f64>());
/// x.zero_grad();
/// w.zero_grad();
/// checkpoint(f, &x).sum().backward()?;
/// assert_eq!((x.grad().unwrap().to_vec::<f64>(), w.grad().unwrap().item::<f64>()), expected);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// `f` runs again after this call has returned, so it owns what it captures. A model that is only
/// borrowed is given to [`checkpoint_with`].
///
/// # Panics
/// Where an operation of `f` fails, or `f` writes in place to a captured tracked tensor.
/// Backward gives an error where the second run differs from the first.
#[doc(alias = "remat")]
#[track_caller]
pub fn checkpoint<T, Y, F>(f: F, x: &T) -> Y
where
    T: Tree + Send + Sync + 'static,
    Y: Tree,
    F: Fn(&T) -> Y + Send + Sync + 'static,
{
    Checkpoint::new().call(f, x)
}

/// `f(model, x)` as [`checkpoint`] does it, with a model that is borrowed: backward keeps its
/// tensors, not the model itself. They get their gradients as usual, and buffers that `f` writes
/// are written once.
///
/// ```
/// use pullback::{Tensor, Tree, checkpoint_with};
///
/// #[derive(Tree)]
/// struct Scale {
///     weight: Tensor,
/// }
///
/// let model = Scale { weight: Tensor::from(3.0).requires_grad() };
/// let x = Tensor::from([0.5, 1.0]).requires_grad();
/// checkpoint_with(&model, |model, x| (x * &model.weight).sin(), &x).sum().backward()?;
/// assert!(model.weight.grad().is_some() && x.grad().is_some());
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Panics
/// See [`checkpoint`].
#[track_caller]
pub fn checkpoint_with<M, T, Y, F>(model: &M, f: F, x: &T) -> Y
where
    M: Tree + Send + Sync + 'static,
    T: Tree + Send + Sync + 'static,
    Y: Tree,
    F: Fn(&M, &T) -> Y + Send + Sync + 'static,
{
    Checkpoint::new().call_with(model, f, x)
}

/// [`checkpoint`] with options.
///
/// ```
/// use pullback::{Checkpoint, Tensor};
/// let x = Tensor::from(2.0).requires_grad();
/// let y = Checkpoint::new().verify(true).call(|x: &Tensor| x.exp().sin(), &x);
/// y.backward()?;
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    verify: bool,
}

impl Default for Checkpoint {
    fn default() -> Checkpoint {
        Checkpoint::new()
    }
}

impl Checkpoint {
    /// The defaults, as [`checkpoint`] uses them.
    ///
    /// ```
    /// use pullback::{Checkpoint, Tensor};
    /// let x = Tensor::from(2.0).requires_grad();
    /// Checkpoint::new().call(|x: &Tensor| x.powi(3), &x).backward()?;
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 12.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Checkpoint {
        Checkpoint { verify: cfg!(debug_assertions) }
    }

    /// Whether the values of the second run are compared with those of the first, by a hash; unless
    /// set, in debug builds. (What is traced has no values.) Backward is an error where they
    /// differ.
    ///
    /// ```
    /// use pullback::{Checkpoint, Tensor};
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// let x = Tensor::from(2.0).requires_grad();
    /// let calls = AtomicU32::new(0);
    /// let impure = move |x: &Tensor| (x * f64::from(calls.fetch_add(1, Ordering::Relaxed))).exp();
    /// let y = Checkpoint::new().verify(true).call(impure, &x);
    /// assert!(y.backward().is_err()); // the second run computes something else
    /// ```
    #[must_use]
    pub fn verify(mut self, verify: bool) -> Checkpoint {
        self.verify = verify;
        self
    }

    /// `f(x)`, which runs again in the backward pass: see [`checkpoint`].
    ///
    /// ```
    /// use pullback::{Checkpoint, Tensor};
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// let y = Checkpoint::new().call(|x: &Tensor| x.square().sum(), &x);
    /// y.backward()?;
    /// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [2.0, 4.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// See [`checkpoint`].
    #[track_caller]
    pub fn call<T, Y, F>(self, f: F, x: &T) -> Y
    where
        T: Tree + Send + Sync + 'static,
        Y: Tree,
        F: Fn(&T) -> Y + Send + Sync + 'static,
    {
        self.call_at(f, x, mode::user_line(Line::caller()))
    }

    /// `f(model, x)`: see [`checkpoint_with`].
    ///
    /// ```
    /// use pullback::{Checkpoint, Tensor};
    /// let (w, x) = (Tensor::from(3.0).requires_grad(), Tensor::from([1.0, 2.0]));
    /// let product = |w: &Tensor, x: &Tensor| (x * w).sum();
    /// Checkpoint::new().call_with(&w, product, &x).backward()?;
    /// assert_eq!(w.grad().unwrap().item::<f64>(), 3.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// See [`checkpoint`].
    #[track_caller]
    pub fn call_with<M, T, Y, F>(self, model: &M, f: F, x: &T) -> Y
    where
        M: Tree + Send + Sync + 'static,
        T: Tree + Send + Sync + 'static,
        Y: Tree,
        F: Fn(&M, &T) -> Y + Send + Sync + 'static,
    {
        let at = mode::user_line(Line::caller());
        let model = shared(model);
        self.call_at(move |x: &T| f(&model, x), x, at)
    }

    fn call_at<T, Y, F>(self, f: F, x: &T, at: Line) -> Y
    where
        T: Tree + Send + Sync + 'static,
        Y: Tree,
        F: Fn(&T) -> Y + Send + Sync + 'static,
    {
        let start = Since::now();
        if !mode::is_grad_enabled() && !trace::in_body() {
            let held = ReadOnly::of(&x.leaves());
            let y = f(x);
            drop(held);
            return mode::with_line(at, || start.own(y));
        }
        let leaves = x.leaves();
        if trace::in_body() {
            // Where kinks are counted, as it is: inside of an equation their values would not be
            // known.
            if kinks::is_collecting() {
                let held = ReadOnly::of(&leaves);
                let y = f(x);
                drop(held);
                return mode::with_line(at, || start.own(y));
            }
            return body::call(|arguments| f(&x.with_leaves(arguments)), &leaves, at);
        }
        let template = mode::with_line(at, || x.map(&mut |x| Tensor::zeros_of(x.spec())));
        let f = Arc::new(f);
        let again = {
            let f = f.clone();
            move |leaves: &[Tensor]| drop(f(&template.with_leaves(leaves)))
        };
        let frame = CheckpointFrame::open(&leaves, Box::new(again), self.verify, at);
        let arguments = frozen(&leaves, at);
        let y = frame.run(|| f(&x.with_leaves(&arguments)));
        frame.seal();
        mode::with_line(at, || start.own(y))
    }
}

/// The arguments as the function sees them: not to be written to.
fn frozen(leaves: &[Tensor], at: Line) -> Vec<Tensor> {
    let freeze = |x: &Tensor| {
        let state = crate::fail::or_raise(x.state(at));
        let x = x.alias(state.history, state.tangents);
        x.lock().frozen = Frozen::Argument;
        x
    };
    leaves.iter().map(freeze).collect()
}

/// Applies functions in sequence, in checkpointed segments: the values between segments are kept,
/// those inside are recomputed in backward. Without a number there are about √n segments, so
/// that what is kept and what is computed at a time both grow as √n. The last segment is not
/// checkpointed: backward needs its values at once.
///
/// ```
/// use pullback::{Tensor, checkpoint_sequential};
/// let layers = vec![|x: &Tensor| x.tanh() * 1.1; 16];
/// let x = Tensor::from([0.3, 0.4]).requires_grad();
/// checkpoint_sequential(&layers, None, &x).sum().backward()?;
/// let expected = x.grad().unwrap().to_vec::<f64>();
/// x.zero_grad();
/// layers.iter().fold(x.clone(), |x, layer| layer(&x)).sum().backward()?;
/// assert_eq!(x.grad().unwrap().to_vec::<f64>(), expected);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// Functions of different types are put behind an [`Arc`] each, called by one closure:
///
/// ```
/// use pullback::{Tensor, checkpoint_sequential};
/// use std::sync::Arc;
/// let w = Tensor::from(3.0).requires_grad();
/// let scale = { let w = w.clone(); move |x: &Tensor| x * &w };
/// let layers: Vec<Arc<dyn Fn(&Tensor) -> Tensor + Send + Sync>> = vec![Arc::new(scale), Arc::new(Tensor::tanh), Arc::new(|x| x.exp() * 0.5)];
/// let layers: Vec<_> = layers.into_iter().map(|f| move |x: &Tensor| f(x)).collect();
/// checkpoint_sequential(&layers, Some(2), &Tensor::from([0.3, 0.4])).sum().backward()?;
/// assert!(w.grad().is_some());
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Panics
/// If there are to be no segments at all, or as [`checkpoint`].
#[track_caller]
pub fn checkpoint_sequential<T, F>(layers: &[F], segments: Option<usize>, x: &T) -> T
where
    T: Tree + Send + Sync + 'static,
    F: Fn(&T) -> T + Clone + Send + Sync + 'static,
{
    let at = mode::user_line(Line::caller());
    let count = segments.unwrap_or_else(|| (layers.len() as f64).sqrt().round().max(1.0) as usize);
    if count == 0 {
        let message = "there must be at least one segment";
        crate::raise(crate::Error::argument("checkpoint_sequential", message).at(at));
    }
    let count = count.min(layers.len().max(1));
    let mut x = x.with_leaves(&x.leaves());
    for k in 0..count {
        // As even as can be.
        let (from, to) = (k * layers.len() / count, (k + 1) * layers.len() / count);
        let segment: Vec<F> = layers[from..to].to_vec();
        let run = move |x: &T| {
            let copy = x.with_leaves(&x.leaves());
            segment.iter().fold(copy, |x, layer| layer(&x))
        };
        x = match k + 1 == count {
            true => {
                let _held = ReadOnly::of(&x.leaves());
                run(&x)
            }
            false => Checkpoint::new().call_at(run, &x, at),
        };
    }
    x
}
