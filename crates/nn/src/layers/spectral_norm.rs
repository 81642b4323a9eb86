//! Spectral normalisation of a weight.

use super::parametrised::{Bare, under};
use crate::refuse::{demand, unrecorded};
use crate::{Layer, module_scope};
use pullback::{Flag, Path, Tensor, Tree, default_dtype, next_key_on};

/// Spectral normalisation: a layer whose `weight` is W/σ, where σ = uᵀ·W·v estimates the largest
/// singular value of W as a matrix. u and v are buffers: each forward pass in training takes a step
/// of power iteration with them, and evaluation leaves them as they are. PyTorch's
/// `nn.utils.parametrizations.spectral_norm`, with its names: `parametrizations.weight.original` is
/// W, `parametrizations.weight.0._u` and `…0._v` are the vectors. Input and output shapes are those
/// of the layer.
///
/// ```
/// use pullback::{Tensor, linalg};
/// use pullback_nn::{Layer, Linear, Module, SpectralNorm};
/// let layer = SpectralNorm::new(Linear::new(8, 4)).n_power_iterations(5);
/// layer.forward(&Tensor::zeros([1, 8]));
/// layer.eval();
/// let largest = linalg::svdvals(&layer.weight().detach()).max();
/// assert!((largest.item::<f32>() - 1.0).abs() < 0.05);
/// ```
#[derive(Clone)]
pub struct SpectralNorm<L> {
    inner: Bare<L>,
    /// The weight before it is divided.
    pub original: Tensor,
    /// The left vector; none for a weight that is a vector, which is divided by its length.
    pub u: Option<Tensor>,
    /// The right vector.
    pub v: Option<Tensor>,
    axis: usize,
    iterations: usize,
    eps: f64,
    /// Whether forward passes continue the power iteration.
    pub training: Flag,
}

/// How many steps of power iteration the vectors begin with.
const FIRST: usize = 15;

impl<L: Layer> SpectralNorm<L> {
    /// Wraps the layer, with its current weight. The first axis of the weight gives the rows of the
    /// matrix, or the second if the layer is a transposed convolution.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Conv2d, Layer, SpectralNorm};
    /// let layer = SpectralNorm::new(Conv2d::new(3, 8, 3));
    /// assert_eq!(layer.u.as_ref().unwrap().shape(), [8]);
    /// assert_eq!(layer.forward(&Tensor::zeros([1, 3, 5, 5])).shape(), [1, 8, 3, 3]);
    /// ```
    ///
    /// # Panics
    /// If the layer has no `weight` of floats.
    #[track_caller]
    #[must_use]
    pub fn new(layer: L) -> SpectralNorm<L> {
        let (inner, weight) = Bare::new("SpectralNorm", &layer);
        let axis = usize::from(inner.kind().starts_with("ConvTranspose"));
        SpectralNorm {
            inner,
            original: weight.detach().deep_clone().requires_grad(),
            u: None,
            v: None,
            axis,
            iterations: 1,
            eps: 1e-12,
            training: Flag::new(true),
        }
        .initialised()
    }

    /// The axis of the weight that gives the rows of the matrix.
    ///
    /// ```
    /// # use pullback_nn::{Linear, SpectralNorm};
    /// let layer = SpectralNorm::new(Linear::new(8, 4)).dim(1);
    /// assert_eq!(layer.u.unwrap().shape(), [8]);
    /// ```
    ///
    /// # Panics
    /// If the weight has no such axis.
    #[track_caller]
    #[must_use]
    pub fn dim(self, axis: usize) -> SpectralNorm<L> {
        demand(axis < self.original.rank(), "SpectralNorm", || {
            format!("a weight {} has no axis {axis}", self.original.spec())
        });
        SpectralNorm { axis, ..self }.initialised()
    }

    /// The number of power iterations of a forward pass in training; 1 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Linear, SpectralNorm};
    /// let layer = SpectralNorm::new(Linear::new(8, 4)).n_power_iterations(3);
    /// assert_eq!(layer.forward(&Tensor::zeros([2, 8])).shape(), [2, 4]);
    /// ```
    ///
    /// # Panics
    /// If `count` is 0.
    #[track_caller]
    #[must_use]
    pub fn n_power_iterations(self, count: usize) -> SpectralNorm<L> {
        demand(count > 0, "SpectralNorm", || "takes at least one step a call".into());
        SpectralNorm { iterations: count, ..self }
    }

    /// The smallest norm that a vector is divided by; 1e-12 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Linear, SpectralNorm};
    /// let layer = SpectralNorm::new(Linear::new(8, 4)).eps(1e-6);
    /// assert_eq!(layer.forward(&Tensor::zeros([2, 8])).shape(), [2, 4]);
    /// ```
    #[must_use]
    pub fn eps(self, eps: f64) -> SpectralNorm<L> {
        SpectralNorm { eps, ..self }
    }

    /// With vectors after some steps of power iteration.
    #[track_caller]
    fn initialised(self) -> SpectralNorm<L> {
        if self.original.rank() < 2 {
            return self;
        }
        let matrix = self.matrix().detach();
        let draw = |n: usize| next_key_on(matrix.device()).normal([n], default_dtype(), 0.0, 1.0);
        let random = |n: usize| unit(&draw(n).cast(matrix.dtype()), self.eps);
        let (u, v) = (random(matrix.shape()[0]), random(matrix.shape()[1]));
        let initialised = SpectralNorm { u: Some(u), v: Some(v), ..self };
        initialised.iterate(FIRST);
        initialised
    }

    /// The weight as a matrix, with the rows in front.
    #[track_caller]
    fn matrix(&self) -> Tensor {
        let rows = self.original.move_axis(self.axis as isize, 0);
        rows.reshape([rows.shape()[0] as isize, -1])
    }

    /// Steps of power iteration, in place.
    #[track_caller]
    fn iterate(&self, count: usize) {
        let Some((u, v)) = self.u.as_ref().zip(self.v.as_ref()) else { return };
        let matrix = self.matrix();
        unrecorded(|| {
            let matrix = matrix.detach();
            for _ in 0..count {
                u.copy_(unit(&product(&matrix, v), self.eps));
                v.copy_(unit(&product(&matrix.t(), u), self.eps));
            }
        });
    }

    /// The normalised weight, with the current vectors.
    ///
    /// ```
    /// # use pullback_nn::{Linear, Module, SpectralNorm};
    /// let layer = SpectralNorm::new(Linear::new(8, 4));
    /// assert_eq!(layer.weight().shape(), [4, 8]);
    /// ```
    ///
    /// # Panics
    /// Never.
    #[track_caller]
    #[must_use]
    pub fn weight(&self) -> Tensor {
        match self.u.as_ref().zip(self.v.as_ref()) {
            None => unit(&self.original, self.eps),
            // Copies: the next step overwrites the vectors, and backward needs those of this one.
            Some((u, v)) => {
                let (u, v) = (u.deep_clone(), v.deep_clone());
                let sigma = (u * product(&self.matrix(), &v)).sum();
                &self.original / sigma
            }
        }
    }

    /// The layer without this wrapper, with the current normalised weight as its weight.
    ///
    /// ```
    /// # use pullback_nn::{Linear, Module, SpectralNorm};
    /// let layer = SpectralNorm::new(Linear::new(8, 4));
    /// let plain: Linear = layer.remove();
    /// assert_eq!(plain.weight.to_vec::<f32>(), layer.weight().to_vec::<f32>());
    /// ```
    ///
    /// # Panics
    /// Never.
    #[track_caller]
    #[must_use]
    pub fn remove(&self) -> L {
        self.inner.with(&self.weight().detach().deep_clone().requires_grad())
    }
}

#[track_caller]
fn product(matrix: &Tensor, vector: &Tensor) -> Tensor {
    matrix.matmul(&vector.unsqueeze(1)).squeeze_axis(1)
}

/// The vector at length 1, or divided by `eps` where it is shorter than that.
#[track_caller]
fn unit(x: &Tensor, eps: f64) -> Tensor {
    x / x.square().sum().sqrt().clamp_min(eps)
}

impl<L: Layer> Tree for SpectralNorm<L> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        path.kind("SpectralNorm");
        path.note(&(self.axis, self.iterations, self.eps));
        self.inner.visit(path, f);
        under(path, |path| {
            path.scope("original", |path| self.original.visit(path, f));
            path.scope("0", |path| {
                path.buffer("_u", |path| self.u.visit(path, f));
                path.buffer("_v", |path| self.v.visit(path, f));
                path.scope("training", |path| self.training.visit(path, f));
            });
        });
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> SpectralNorm<L> {
        SpectralNorm {
            inner: self.inner.map(f),
            original: f(&self.original),
            u: Tree::map(&self.u, f),
            v: Tree::map(&self.v, f),
            axis: self.axis,
            iterations: self.iterations,
            eps: self.eps,
            training: self.training.map(f),
        }
    }
}

impl<L: Layer> Layer for SpectralNorm<L> {
    /// # Panics
    /// Where the `forward` of the layer does.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        if self.training.get() {
            self.iterate(self.iterations);
        }
        let layer = self.inner.with(&self.weight());
        scope.output(layer.forward(x))
    }
}
