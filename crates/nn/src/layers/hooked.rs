//! A layer with forward hooks.

use crate::{Layer, module_scope};
use pullback::{Flag, Path, Tensor, Tree, is_sharing_flags};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A layer with forward hooks: functions that see, and may replace, its input (before) or its
/// output (after). PyTorch's `register_forward_pre_hook` and `register_forward_hook`. Names,
/// weights and results are those of the layer inside.
///
/// A clone has the same hooks, those that come later too, so one goes into the model and another
/// can be kept. A copy ([`Module::deep_copy`](crate::Module::deep_copy)) begins with them and has
/// its own from then on, as in PyTorch.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Hooked, Layer, Linear, Relu, Sequential};
/// use std::sync::{Arc, Mutex};
///
/// let first = Hooked::new(Linear::new(4, 8));
/// let net = Sequential::new().then(first.clone()).then(Relu);
/// let shapes = Arc::new(Mutex::new(Vec::new()));
/// let list = shapes.clone();
/// let handle = first.register_forward_hook(move |_, _, y| {
///     list.lock().unwrap().push(y.shape().to_vec());
///     None
/// });
/// net.forward(&Tensor::zeros([2, 4]));
/// handle.remove();
/// net.forward(&Tensor::zeros([3, 4]));
/// assert_eq!(*shapes.lock().unwrap(), [[2, 8]]);
/// ```
///
/// Hooks run in the order in which they were registered, each with what the one before it left.
/// What a hook computes is recorded and differentiated like everything else. In a function that is
/// compiled or mapped they run while it is traced, once: they can change what is computed and see
/// shapes, but read no values. Registering or removing one makes compiled functions that ran
/// through the layer be compiled again.
#[derive(Clone)]
pub struct Hooked<L> {
    /// The layer.
    pub inner: L,
    hooks: Arc<Mutex<LayerHooks<L>>>,
}

type BeforeHook<L> = Arc<dyn Fn(&L, &Tensor) -> Option<Tensor> + Send + Sync>;
type AfterHook<L> = Arc<dyn Fn(&L, &Tensor, &Tensor) -> Option<Tensor> + Send + Sync>;

struct LayerHooks<L> {
    before: Vec<(u64, BeforeHook<L>)>,
    after: Vec<(u64, AfterHook<L>)>,
    /// True as long as the hooks are these: functions compiled with them depend on it. Other hooks
    /// have their own flag.
    current: Flag,
}

impl<L> LayerHooks<L> {
    /// A separate list of the same hooks.
    fn copy(&self) -> LayerHooks<L> {
        self.current.get();
        LayerHooks {
            before: self.before.clone(),
            after: self.after.clone(),
            current: Flag::new(true),
        }
    }

    fn changed(&mut self) {
        std::mem::replace(&mut self.current, Flag::new(true)).set(false);
    }
}

/// A handle to a hook of a [`Hooked`] layer. The hook stays registered when the handle is dropped.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Hooked, Layer, Relu};
/// let layer = Hooked::new(Relu);
/// let handle = layer.register_forward_hook(|_, _, y| Some(y * 2.0));
/// assert_eq!(layer.forward(&Tensor::from([3.0])).to_vec::<f64>(), [6.0]);
/// handle.remove();
/// assert_eq!(layer.forward(&Tensor::from([3.0])).to_vec::<f64>(), [3.0]);
/// ```
pub struct ForwardHook {
    remove: Box<dyn FnOnce() + Send>,
}

impl ForwardHook {
    /// Removes the hook from the layer and all its clones. Deep copies made since it was registered
    /// keep theirs.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Hooked, Layer, Relu};
    /// let layer = Hooked::new(Relu);
    /// layer.register_forward_pre_hook(|_, x| Some(-x)).remove();
    /// assert_eq!(layer.forward(&Tensor::from([3.0])).to_vec::<f64>(), [3.0]);
    /// ```
    pub fn remove(self) {
        (self.remove)();
    }
}

impl<L: Layer + 'static> Hooked<L> {
    /// Wraps the layer, without hooks.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Hooked, Layer, Linear};
    /// let layer = Hooked::new(Linear::new(4, 8));
    /// assert_eq!(layer.forward(&Tensor::zeros([2, 4])).shape(), [2, 8]);
    /// ```
    #[must_use]
    pub fn new(inner: L) -> Hooked<L> {
        let hooks = LayerHooks { before: Vec::new(), after: Vec::new(), current: Flag::new(true) };
        Hooked { inner, hooks: Arc::new(Mutex::new(hooks)) }
    }

    /// Calls `hook` with the layer and its input before each forward pass; a tensor that it returns
    /// replaces the input.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Hooked, Layer, Relu};
    /// let layer = Hooked::new(Relu);
    /// layer.register_forward_pre_hook(|_, x| Some(x - 1.0));
    /// assert_eq!(layer.forward(&Tensor::from([0.5, 3.0])).to_vec::<f64>(), [0.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn register_forward_pre_hook(
        &self,
        hook: impl Fn(&L, &Tensor) -> Option<Tensor> + Send + Sync + 'static,
    ) -> ForwardHook {
        self.register(|hooks, id| hooks.before.push((id, Arc::new(hook))))
    }

    /// Calls `hook` with the layer, its input and its output after each forward pass; a tensor that
    /// it returns replaces the output.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Hooked, Layer, Relu};
    /// let layer = Hooked::new(Relu);
    /// layer.register_forward_hook(|_, x, y| Some(x + y));
    /// assert_eq!(layer.forward(&Tensor::from([-1.0, 3.0])).to_vec::<f64>(), [-1.0, 6.0]);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn register_forward_hook(
        &self,
        hook: impl Fn(&L, &Tensor, &Tensor) -> Option<Tensor> + Send + Sync + 'static,
    ) -> ForwardHook {
        self.register(|hooks, id| hooks.after.push((id, Arc::new(hook))))
    }

    fn register(&self, add: impl FnOnce(&mut LayerHooks<L>, u64)) -> ForwardHook {
        // Of all hooks, so that lists of equal numbers are lists of equal hooks.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        {
            let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
            add(&mut hooks, id);
            hooks.changed();
        }
        // Weak, so that a handle keeps no layer alive.
        let hooks = Arc::downgrade(&self.hooks);
        let remove = Box::new(move || {
            let Some(hooks) = hooks.upgrade() else { return };
            let mut hooks = hooks.lock().unwrap_or_else(PoisonError::into_inner);
            hooks.before.retain(|(known, _)| *known != id);
            hooks.after.retain(|(known, _)| *known != id);
            hooks.changed();
        });
        ForwardHook { remove }
    }
}

/// The tree of the layer inside, under the same names. What is mapped has the same hooks, in a list
/// of its own.
impl<L: Tree> Tree for Hooked<L> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        {
            let hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
            let before: Vec<u64> = hooks.before.iter().map(|hook| hook.0).collect();
            let after: Vec<u64> = hooks.after.iter().map(|hook| hook.0).collect();
            path.note(&(before, after));
        }
        self.inner.visit(path, f);
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Hooked<L> {
        if is_sharing_flags() {
            return Hooked { inner: self.inner.map(f), hooks: self.hooks.clone() };
        }
        let hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner).copy();
        Hooked { inner: self.inner.map(f), hooks: Arc::new(Mutex::new(hooks)) }
    }
}

impl<L: Layer + 'static> Layer for Hooked<L> {
    /// # Panics
    /// Where the `forward` of the layer or a hook does.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        // Copied out: a hook may register another.
        let (before, after, current) = {
            let hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
            (hooks.before.clone(), hooks.after.clone(), hooks.current.clone())
        };
        current.get();
        let mut x = x.clone();
        for (_, hook) in &before {
            x = hook(&self.inner, &x).unwrap_or(x);
        }
        let mut y = self.inner.forward(&x);
        for (_, hook) in &after {
            y = hook(&self.inner, &x, &y).unwrap_or(y);
        }
        scope.output(y)
    }
}
