//! What layers tell whoever watches a forward pass: their type, their output, and how much they multiplied.
//!
//! [`Summary`](crate::Summary) watches to learn the shapes of outputs. Nothing is recorded while nobody does.

use pullback::{Tensor, Tree};
use std::cell::RefCell;

/// A call of a layer.
pub(crate) struct Call {
    /// The type of the layer.
    pub kind: &'static str,
    /// Its first tensor, which tells it from others of its type.
    pub first: Option<Tensor>,
    /// How many tensors it has.
    pub tensors: usize,
    /// The shape of its output.
    pub shape: Vec<usize>,
    /// The bytes of its output.
    pub bytes: usize,
    /// Multiplications that are added up.
    pub products: usize,
}

thread_local! {
    static CALLS: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

/// Runs `f` and lists the calls of layers in it, in the order in which they ended.
pub(crate) fn watched<R>(f: impl FnOnce() -> R) -> (R, Vec<Call>) {
    struct Restore(Option<Vec<Call>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CALLS.set(self.0.take());
        }
    }
    let _restore = Restore(CALLS.replace(Some(Vec::new())));
    let result = f();
    (result, CALLS.take().unwrap_or_default())
}

/// Tells a [`Summary`](crate::Summary) that is being made that `module` gave this output, and gives it back. A module of your own calls it at the end of its
/// `forward` to have its output shape in the table.
///
/// ```
/// use pullback::{Tensor, Tree};
/// use pullback_nn::{Layer, Linear, seen};
///
/// #[derive(Tree)]
/// struct Net {
///     first: Linear,
///     second: Linear,
/// }
///
/// impl Layer for Net {
///     fn forward(&self, x: &Tensor) -> Tensor {
///         seen(self, self.second.forward(&self.first.forward(x).relu()))
///     }
/// }
///
/// let net = Net { first: Linear::new(4, 8), second: Linear::new(8, 2) };
/// assert_eq!(net.forward(&Tensor::zeros([3, 4])).shape(), [3, 2]);
/// ```
pub fn seen(module: &impl Tree, y: Tensor) -> Tensor {
    seen_with(module, y, |_| 0)
}

/// [`seen`], with the number of multiplications that the module did itself and that are added up, those of its parts not counted.
pub fn seen_with(module: &impl Tree, y: Tensor, products: impl FnOnce(&Tensor) -> usize) -> Tensor {
    CALLS.with_borrow_mut(|calls| {
        if let Some(calls) = calls {
            let leaves = module.leaves();
            calls.push(Call {
                kind: module.outline().kinds.first().map_or("", |(_, kind)| kind),
                first: leaves.first().cloned(),
                tensors: leaves.len(),
                shape: y.shape().to_vec(),
                bytes: y.len() * y.dtype().size(),
                products: products(&y),
            });
        }
    });
    y
}
