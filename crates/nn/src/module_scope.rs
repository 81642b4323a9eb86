//! The scope of a module's `forward`: for summaries, memory reports and the lines in errors.
//!
//! Nothing is recorded unless a [`Summary`](crate::Summary) or a memory report is being made.

use crate::memory;
use crate::refuse::called;
use pullback::{CallerLineGuard, MemoryPartGuard, Tensor, Tree};
use std::cell::RefCell;

/// A call of a layer.
pub(crate) struct LayerCall {
    /// The type of the layer.
    pub kind: &'static str,
    /// Its first tensor, which distinguishes it from others of its type.
    pub first: Option<Tensor>,
    /// How many tensors it has.
    pub tensors: usize,
    /// The shape of its output.
    pub shape: Vec<usize>,
    /// The bytes of its output.
    pub bytes: usize,
    /// Its multiply-adds, without those of its parts.
    pub macs: usize,
}

thread_local! {
    static CALLS: RefCell<Option<Vec<LayerCall>>> = const { RefCell::new(None) };
}

/// Runs `f` and lists the calls of layers in it, in the order in which they returned.
pub(crate) fn watched<R>(f: impl FnOnce() -> R) -> (R, Vec<LayerCall>) {
    struct RestoreCalls(Option<Vec<LayerCall>>);
    impl Drop for RestoreCalls {
        fn drop(&mut self) {
            CALLS.set(self.0.take());
        }
    }
    let _restore = RestoreCalls(CALLS.replace(Some(Vec::new())));
    let result = f();
    (result, CALLS.take().unwrap_or_default())
}

/// Opens the scope of a module's `forward`. A module of your own calls it first and passes its
/// output to [`ModuleScope::output`]: then [`Summary`](crate::Summary) lists its output shape,
/// [`memory_report`](crate::memory_report()) lists its allocations under its path, and layers of
/// this crate name the caller's line in errors.
///
/// ```
/// use pullback::{Tensor, Tree};
/// use pullback_nn::{Layer, Linear, module_scope};
///
/// #[derive(Tree)]
/// struct Net {
///     first: Linear,
///     second: Linear,
/// }
///
/// impl Layer for Net {
///     fn forward(&self, x: &Tensor) -> Tensor {
///         let scope = module_scope(self);
///         scope.output(self.second.forward(&self.first.forward(x).relu()))
///     }
/// }
///
/// let net = Net { first: Linear::new(4, 8), second: Linear::new(8, 2) };
/// assert_eq!(net.forward(&Tensor::zeros([3, 4])).shape(), [3, 2]);
/// ```
#[track_caller]
pub fn module_scope<M: Tree>(module: &M) -> ModuleScope<'_, M> {
    ModuleScope { module, _part: memory::enter(module), _line: called() }
}

/// The scope of a module's `forward`, until it is dropped: see [`module_scope()`].
///
/// ```
/// use pullback::{Tensor, Tree};
/// use pullback_nn::{Layer, Linear, module_scope};
/// #[derive(Tree)]
/// struct Double {
///     inner: Linear,
/// }
///
/// impl Layer for Double {
///     fn forward(&self, x: &Tensor) -> Tensor {
///         let scope = module_scope(self);
///         scope.output(self.inner.forward(x) * 2.0)
///     }
/// }
///
/// let summary = Double { inner: Linear::new(4, 2) }.summary_of(&Tensor::zeros([3, 4]));
/// assert!(summary.to_string().contains("Double"));
/// ```
#[must_use = "the scope ends when this is dropped"]
pub struct ModuleScope<'a, M> {
    module: &'a M,
    _part: Option<MemoryPartGuard>,
    /// Lines of this crate are those of its caller.
    _line: CallerLineGuard,
}

impl<M: Tree> ModuleScope<'_, M> {
    /// Records and returns the module's output.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Linear, module_scope};
    /// let layer = Linear::new(4, 2);
    /// let scope = module_scope(&layer);
    /// let y = scope.output(Tensor::zeros([3, 2]));
    /// assert_eq!(y.shape(), [3, 2]);
    /// ```
    pub fn output(&self, y: Tensor) -> Tensor {
        self.output_with_macs(y, |_| 0)
    }

    /// [`ModuleScope::output`], with the number of multiply–adds of the module itself, without
    /// those of its parts.
    ///
    /// ```
    /// # use pullback::{Tensor, Tree};
    /// # use pullback_nn::{Layer, module_scope};
    /// #[derive(Tree)]
    /// struct Scale {
    ///     weight: Tensor,
    /// }
    ///
    /// impl Layer for Scale {
    ///     fn forward(&self, x: &Tensor) -> Tensor {
    ///         let scope = module_scope(self);
    ///         scope.output_with_macs(x * &self.weight, |y| y.len())
    ///     }
    /// }
    ///
    /// let summary = Scale { weight: Tensor::ones([4]) }.summary_of(&Tensor::zeros([3, 4]));
    /// assert_eq!(summary.macs, 12);
    /// ```
    pub fn output_with_macs(&self, y: Tensor, macs: impl FnOnce(&Tensor) -> usize) -> Tensor {
        CALLS.with_borrow_mut(|calls| {
            if let Some(calls) = calls {
                let leaves = self.module.leaves();
                calls.push(LayerCall {
                    kind: self.module.tree_structure().kinds.first().map_or("", |(_, kind)| kind),
                    first: leaves.first().cloned(),
                    tensors: leaves.len(),
                    shape: y.shape().to_vec(),
                    bytes: y.len() * y.dtype().size(),
                    macs: macs(&y),
                });
            }
        });
        y
    }
}
