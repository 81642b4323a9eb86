//! A function as a layer.

use crate::{Layer, module_scope};
use pullback::{Tensor, Tree};

/// A function as a layer, without parameters of its own. The output has whatever shape the function
/// gives.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Lambda, Layer, Linear, Sequential};
/// let net = Sequential::new().then(Linear::new(4, 2)).then(Lambda::new(|x: &Tensor| x * 2.0));
/// assert_eq!(net.forward(&Tensor::zeros([1, 4])).shape(), [1, 2]);
/// ```
#[derive(Clone, Tree)]
pub struct Lambda<F>(#[tree(skip)] F);

impl<F: Fn(&Tensor) -> Tensor + Clone + Send + Sync> Lambda<F> {
    /// Wraps the function. Tensors that it captures are constants to the module: they are neither
    /// its parameters nor its buffers.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Lambda, Layer};
    /// let double = Lambda::new(|x: &Tensor| x * 2.0);
    /// assert_eq!(double.forward(&Tensor::from([1.0, 2.0])).to_vec::<f64>(), [2.0, 4.0]);
    /// ```
    pub fn new(f: F) -> Lambda<F> {
        Lambda(f)
    }
}

impl<F: Fn(&Tensor) -> Tensor + Clone + Send + Sync> Layer for Lambda<F> {
    /// # Panics
    /// Where the function does.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output((self.0)(x))
    }
}
