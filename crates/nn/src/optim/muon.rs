//! Momentum whose steps are made orthogonal.
//!
//! The momentum M of a weight matrix is replaced by a matrix near the orthogonal one nearest to it
//! (U·Vᵀ of its singular value decomposition), so that all directions move about equally far. Five
//! steps of a Newton–Schulz iteration do this with products alone: X ← a·X + (b·A + c·A²)·X with A
//! = X·Xᵀ, from X = M/‖M‖. The coefficients make small singular values grow fast; they end between
//! 0.7 and 1.2, which is sufficient.
//!
//! That needs no precision, so PyTorch rounds to `bf16` after every product, and so does this by
//! default: products and sums are those of `f32`, and what PyTorch stores in `bf16` is rounded to
//! it. Of large matrices two such iterations agree to about 1%, not more: a sum in another order
//! rounds to another neighbour. `precise` iterates in the dtype of the computation.

use super::{Bounds, OptionRow, Update, UpdateRule};
use pullback::{DType, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

/// Muon: `torch.optim.Muon`, with its meanings and defaults. For matrices alone: give embeddings,
/// biases and gains to AdamW, in a list of both.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{AdamW, Muon, Optimizer, UpdateRule};
///
/// let (weight, bias) = (Tensor::ones([2, 2]).requires_grad(), Tensor::ones([2]).requires_grad());
/// let both: Vec<Box<dyn Optimizer>> = vec![
///     Box::new(Muon { lr: 0.02, ..Muon::default() }.over([weight.clone()])?),
///     Box::new(AdamW::default().over([bias.clone()])?),
/// ];
/// (weight.square().sum() + bias.square().sum()).backward()?;
/// both.step()?;
/// assert_eq!(both.named_state()[0].0, "0.0.lr");
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Muon {
    /// The learning rate.
    pub lr: f64,
    /// Decoupled weight decay: `lr` times this times the parameter is subtracted from it.
    pub weight_decay: f64,
    /// The momentum factor.
    pub momentum: f64,
    /// Nesterov momentum.
    pub nesterov: bool,
    /// The a, b and c of the iteration.
    pub ns_coefficients: (f64, f64, f64),
    /// The least norm that is divided by.
    pub eps: f64,
    /// The number of iterations.
    pub ns_steps: u32,
    /// How the learning rate depends on the shape.
    pub adjust_lr_fn: AdjustLr,
    /// Iterates in `f32`, or `f64` for parameters in `f64`, instead of `bf16`.
    pub precise: bool,
}

/// How Muon's learning rate depends on the shape of a matrix with `a` rows and `b` columns.
///
/// ```
/// use pullback_nn::optim::{AdjustLr, Muon};
/// // With a learning rate that suits AdamW.
/// let muon = Muon { lr: 3e-4, adjust_lr_fn: AdjustLr::MatchRmsAdamw, ..Muon::default() };
/// assert_ne!(muon.adjust_lr_fn, AdjustLr::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdjustLr {
    /// Times √max(1, a/b).
    #[default]
    Original,
    /// Times 0.2·√max(a, b), so that updates are as large as AdamW's, and its learning rates can be
    /// used.
    MatchRmsAdamw,
    /// Times √(a/b).
    SpectralUnclamped,
}

impl AdjustLr {
    fn factor(self, shape: &[usize]) -> f64 {
        let (a, b) = (shape[0] as f64, shape[1] as f64);
        match self {
            AdjustLr::Original => (a / b).max(1.0).sqrt(),
            AdjustLr::MatchRmsAdamw => 0.2 * a.max(b).sqrt(),
            AdjustLr::SpectralUnclamped => (a / b).sqrt(),
        }
    }
}

impl Default for Muon {
    fn default() -> Muon {
        Muon {
            lr: 1e-3,
            weight_decay: 0.1,
            momentum: 0.95,
            nesterov: true,
            ns_coefficients: (3.4445, -4.7750, 2.0315),
            eps: 1e-7,
            ns_steps: 5,
            adjust_lr_fn: AdjustLr::Original,
            precise: false,
        }
    }
}

impl UpdateRule for Muon {
    const NAME: &'static str = "Muon";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        let (a, b, c) = self.ns_coefficients;
        vec![
            ("weight_decay", self.weight_decay, Bounds::NotNegative),
            ("momentum", self.momentum, Bounds::UpToOne),
            ("eps", self.eps, Bounds::NotNegative),
            ("ns_coefficients.0", a, Bounds::Anywhere),
            ("ns_coefficients.1", b, Bounds::Anywhere),
            ("ns_coefficients.2", c, Bounds::Anywhere),
        ]
    }

    fn accepts(&self, x: &Tensor) -> Result<()> {
        if x.rank() != 2 || x.is_empty() {
            let message = format!("optimises matrices, not {}", x.spec());
            return Err(Error::argument(Muon::NAME, message)
                .hint("give other parameters to AdamW, in a list of both"));
        }
        if self.ns_steps >= 100 {
            let message = format!("`ns_steps` must be below 100, not {}", self.ns_steps);
            return Err(Error::argument(Muon::NAME, message));
        }
        Ok(())
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        vec![("momentum_buffer", x.zeros_like())]
    }

    fn step(&self, at: &Update) {
        let g = at.gradient(false, 0.0);
        let buffer = at.mean(0, self.momentum, &g);
        let by = if self.nesterov { g.lerp(&buffer, self.momentum) } else { buffer };
        let lr = at.lr * self.adjust_lr_fn.factor(at.x.shape());
        let by = self.orthogonal(&by).cast(by.dtype()) * at.number(&lr);
        at.set(&(at.decayed(self.weight_decay) - by));
    }
}

impl Muon {
    /// Something near the orthogonal matrix nearest to this one.
    fn orthogonal(&self, m: &Tensor) -> Tensor {
        // Products in f32, rounded to bf16 where PyTorch's are.
        let round = |x: Tensor| match self.precise {
            true => x,
            false => x.cast(DType::BF16).cast(DType::F32),
        };
        let (a, b, c) = self.ns_coefficients;
        let tall = m.shape()[0] > m.shape()[1];
        // The shorter side first: the products X·Xᵀ are smaller.
        let mut x = round(if tall { m.t() } else { m.clone() });
        x = round(&x / round(x.norm()).clamp_min(self.eps));
        for _ in 0..self.ns_steps {
            let gram = round(x.matmul(&x.t()));
            let by = round(&gram * b + gram.matmul(&gram) * c);
            x = round(&x * a + by.matmul(&x));
        }
        if tall { x.t() } else { x }
    }
}
