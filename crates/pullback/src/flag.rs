//! Flags: plain `bool` values that compiled functions depend on.

use crate::{Path, Tensor, Tree, events, mode, trace};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A `bool` that can be changed from outside, such as whether a layer is being trained.
///
/// A `bool` that a compiled function captures is baked into its program. A flag is not: a function
/// that [`jit`](crate::jit) compiled is compiled again where a flag that it read has changed since.
///
/// A clone is the same flag; [`Tree::map`] makes an independent one with the same value.
///
/// ```
/// use pullback::{Flag, Tensor, jit};
/// let doubling = Flag::new(true);
/// let f = jit(|x: &Tensor| if doubling.get() { x * 2.0 } else { x.clone() });
/// let x = Tensor::from(3.0);
/// assert_eq!(f.of(&x).item::<f64>(), 6.0);
/// doubling.set(false);
/// assert_eq!(f.of(&x).item::<f64>(), 3.0);
/// ```
#[derive(Clone)]
pub struct Flag(Arc<AtomicBool>);

impl Flag {
    /// A new flag with this value.
    ///
    /// ```
    /// use pullback::Flag;
    /// let training = Flag::new(true);
    /// assert!(training.get());
    /// ```
    pub fn new(value: bool) -> Flag {
        Flag(Arc::new(AtomicBool::new(value)))
    }

    /// Its value. A function that is being compiled is compiled for this value.
    ///
    /// ```
    /// use pullback::{Flag, Tensor, jit};
    /// let training = Flag::new(true);
    /// let f = jit(|x: &Tensor| if training.get() { x * 2.0 } else { x.clone() });
    /// assert_eq!(f.of(&Tensor::from(3.0)).item::<f64>(), 6.0);
    /// ```
    pub fn get(&self) -> bool {
        let value = self.peek();
        trace::note_flag_read(self, value);
        events::flag_read(self, value);
        value
    }

    /// Changes it, for all its clones. A compiled function that read it is compiled again at its
    /// next call.
    ///
    /// ```
    /// use pullback::Flag;
    /// let training = Flag::new(true);
    /// let same = training.clone();
    /// training.set(false);
    /// assert!(!same.get());
    /// ```
    pub fn set(&self, value: bool) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Its value, without noting that it was read.
    pub(crate) fn peek(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// A number that no other flag has while this one is there.
    pub(crate) fn number(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flag({})", self.peek())
    }
}

impl Tree for Flag {
    fn visit(&self, path: &mut Path, _: &mut dyn FnMut(&Path, &Tensor)) {
        path.note(self);
        path.flag(self);
    }

    /// An independent flag. The copy is made for the value that this one has now, so it counts as
    /// reading it.
    fn map(&self, _: &mut dyn FnMut(&Tensor) -> Tensor) -> Flag {
        if is_sharing_flags() { self.clone() } else { Flag::new(self.get()) }
    }
}

thread_local! {
    /// Whether [`Tree::map`] keeps flags instead of copying them.
    static SHARING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, in which [`Tree::map`] gives a structure with the same flags: what a clone is, for
/// types that are not `Clone`.
#[doc(hidden)]
pub fn sharing_flags<R>(f: impl FnOnce() -> R) -> R {
    let outer = SHARING.replace(true);
    let _restore = mode::on_drop(|| SHARING.set(outer));
    f()
}

/// Whether [`sharing_flags`] is running.
#[doc(hidden)]
pub fn is_sharing_flags() -> bool {
    SHARING.get()
}
