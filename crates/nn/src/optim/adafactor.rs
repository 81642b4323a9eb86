//! Adafactor: Adam with a factored second moment.

use super::{Bounds, OptionRow, Update, UpdateRule};
use pullback::{DType, Tensor};
use serde::{Deserialize, Serialize};

/// Adafactor: `torch.optim.Adafactor`, with its meanings and defaults.
///
/// Of the squares of a gradient with two axes or more only the means of rows and columns (of the
/// last two axes) are stored, so the state is small. The step size is the parameter's root mean
/// square times the learning rate.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Adafactor, Optimizer, UpdateRule};
/// let x = Tensor::full([4, 8], 2.0).requires_grad();
/// let opt = Adafactor { lr: 0.1, ..Adafactor::default() }.over([x.clone()])?;
/// x.square().sum().backward()?;
/// opt.step()?;
/// // By `lr` times the root mean square of the parameter.
/// assert!((x.at((0, 0)).item::<f64>() - 1.8).abs() < 1e-6);
/// // Twelve numbers of state for 32 parameters.
/// let state: Vec<_> = opt.named_state().into_iter().map(|(name, x)| (name, x.len())).collect();
/// assert!(
///     state.contains(&("0.0.row_var".into(), 4)) && state.contains(&("0.0.col_var".into(), 8))
/// );
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adafactor {
    /// The learning rate; from step 1/lr² on, step sizes fall.
    pub lr: f64,
    /// The running mean square takes the square of step t with the weight t to this power.
    pub beta2_decay: f64,
    /// The least root mean square of a gradient (without a number, the precision of the parameter's
    /// dtype), and of a parameter.
    pub eps: (Option<f64>, f64),
    /// The largest root mean square of an update, before it is scaled by the step size.
    pub d: f64,
    /// Decoupled weight decay: `lr` times this times the parameter is subtracted from it.
    pub weight_decay: f64,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for Adafactor {
    fn default() -> Adafactor {
        let (beta2_decay, eps) = (-0.8, (None, 1e-3));
        Adafactor { lr: 1e-2, beta2_decay, eps, d: 1.0, weight_decay: 0.0, maximize: false }
    }
}

impl UpdateRule for Adafactor {
    const NAME: &'static str = "Adafactor";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        vec![
            ("beta2_decay", self.beta2_decay, Bounds::NotPositive),
            ("eps.0", self.eps.0.unwrap_or(0.0), Bounds::NotNegative),
            ("eps.1", self.eps.1, Bounds::NotNegative),
            ("d", self.d, Bounds::AtLeastOne),
            ("weight_decay", self.weight_decay, Bounds::NotNegative),
        ]
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        let n = x.rank();
        if n < 2 {
            return vec![("variance", x.zeros_like())];
        }
        let without = |axis: usize| {
            let mut shape = x.shape().to_vec();
            shape[axis] = 1;
            x.new_zeros(shape)
        };
        vec![("row_var", without(n - 1)), ("col_var", without(n - 2))]
    }

    fn step(&self, at: &Update) {
        let g = at.gradient(self.maximize, 0.0);
        let least = self.eps.0.unwrap_or(precision(at.x.dtype()));
        let take = at.number(&at.count().powf(self.beta2_decay));
        let mean = |i: usize, value: Tensor| {
            let mean = at.remembered(i).lerp(&value, &take);
            at.remember(i, &mean);
            mean
        };
        let variance = if at.x.rank() < 2 {
            mean(0, g.square())
        } else {
            let rows = mean(0, g.square().mean_keep(-1));
            let columns = mean(1, g.square().mean_keep(-2));
            rows.matmul(&columns) / rows.mean_keep(-2).clamp_min(least)
        };
        let step = g / variance.clamp_min(least * least).sqrt();
        let longest = at.lr.minimum(at.count().sqrt().recip());
        let length = root_mean_square(&at.value()).clamp_min(self.eps.1) * longest;
        let size = length / (root_mean_square(&step) / self.d).clamp_min(1.0);
        at.set(&(at.decayed(self.weight_decay) - step * at.number(&size)));
    }
}

/// As `f64[]`.
fn root_mean_square(x: &Tensor) -> Tensor {
    x.norm().cast(DType::F64) / (x.len().max(1) as f64).sqrt()
}

/// The distance from 1 to the next number.
fn precision(dtype: DType) -> f64 {
    let bits = match dtype {
        DType::F64 => 52,
        DType::F16 => 10,
        DType::BF16 => 7,
        _ => 23,
    };
    0.5f64.powi(bits)
}
