//! What is specific to an optimiser: its options, its state per parameter, and its update.
//!
//! Everything else (groups, step counts, learning rates, names of states, checks) is in
//! [`Stepper`], once. A rule is a struct of options with PyTorch's meanings and defaults; its
//! formula is ordinary tensor code that writes in place and never reads a value, so it runs eagerly
//! and compiles with [`jit`](pullback::jit).
//!
//! Scalars (a learning rate, a bias correction, a step count) are computed in `f64`, as PyTorch
//! computes them in Python. Tensors shaped as the parameter are computed in its dtype, or in `f32`
//! where that is a half-precision one; states have the parameter's dtype.

use super::Stepper;
use pullback::{DType, Result, Tensor};

/// An optimiser's options and its formula. Implement it to write an optimiser of your own.
///
/// ```
/// use pullback::{Result, Tensor};
/// use pullback_nn::optim::{Optimizer, OptionRow, UpdateRule, Update, Bounds};
///
/// /// Steps of one length, whatever the gradient is.
/// #[derive(Clone, Debug)]
/// struct SignDescent {
///     lr: f64,
/// }
///
/// impl UpdateRule for SignDescent {
///     const NAME: &'static str = "SignDescent";
///
///     fn lr(&self) -> f64 {
///         self.lr
///     }
///
///     fn step(&self, update: &Update) {
///         let g = update.gradient(false, 0.0);
///         update.set(&(update.value() - g.sign() * update.lr()));
///     }
/// }
///
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = SignDescent { lr: 0.5 }.over([x.clone()])?;
/// x.square().sum().backward()?;
/// opt.step()?;
/// assert_eq!(x.to_vec::<f64>(), [2.5, -3.5]);
/// # Ok::<(), pullback::Error>(())
/// ```
pub trait UpdateRule: Clone {
    /// Its name in errors.
    const NAME: &'static str;

    /// The learning rate that a group starts with.
    fn lr(&self) -> f64;

    /// The other options that are numbers, and their bounds.
    fn options(&self) -> Vec<OptionRow> {
        Vec::new()
    }

    /// Whether these options fit together, and with this parameter.
    ///
    /// # Errors
    /// With a message that names the option or the parameter.
    fn accepts(&self, parameter: &Tensor) -> Result<()> {
        let _ = parameter;
        Ok(())
    }

    /// The initial state for a parameter, with PyTorch's names. Steps write to it in place.
    fn state(&self, parameter: &Tensor) -> Vec<(&'static str, Tensor)> {
        let _ = parameter;
        Vec::new()
    }

    /// The update of one parameter. It is not recorded on the tape.
    fn step(&self, update: &Update);

    /// An optimiser of these parameters. [`Stepper::and`] adds groups with other options.
    ///
    /// # Errors
    /// If there are none, one is listed twice or is not a float or was computed, or an option is
    /// out of its range.
    fn over(self, parameters: impl IntoIterator<Item = Tensor>) -> Result<Stepper<Self>> {
        Stepper::new(self, parameters)
    }
}

/// An option's name, its value and its bounds.
pub type OptionRow = (&'static str, f64, Bounds);

/// The bounds of an option. None contains NaN or an infinity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    /// Zero or above.
    NotNegative,
    /// Above zero.
    Positive,
    /// Zero or above, and below one.
    Fraction,
    /// From zero to one.
    UpToOne,
    /// Zero or below.
    NotPositive,
    /// One or above.
    AtLeastOne,
    /// Any number.
    Anywhere,
}

impl Bounds {
    /// Whether the value is within the bounds.
    pub fn contains(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Bounds::NotNegative => value >= 0.0,
                Bounds::Positive => value > 0.0,
                Bounds::Fraction => (0.0..1.0).contains(&value),
                Bounds::UpToOne => (0.0..=1.0).contains(&value),
                Bounds::NotPositive => value <= 0.0,
                Bounds::AtLeastOne => value >= 1.0,
                Bounds::Anywhere => true,
            }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Bounds::NotNegative => "a number that is not negative",
            Bounds::Positive => "a number above 0",
            Bounds::Fraction => "a number from 0 to below 1",
            Bounds::UpToOne => "a number from 0 to 1",
            Bounds::NotPositive => "a number that is not positive",
            Bounds::AtLeastOne => "a number that is at least 1",
            Bounds::Anywhere => "a finite number",
        }
    }
}

/// One parameter in one step, as an [`UpdateRule`] gets it.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// The parameter.
    pub x: &'a Tensor,
    /// Its gradient.
    pub grad: &'a Tensor,
    /// The learning rate of its group, `f64[]`.
    pub lr: &'a Tensor,
    /// The number of this step for this parameter, `i64[]`: 1 for the first.
    pub step: &'a Tensor,
    /// Its state, in the order of [`UpdateRule::state`].
    pub state: &'a [(&'static str, Tensor)],
}

impl Update<'_> {
    /// The parameter in the dtype of the computation.
    pub fn value(&self) -> Tensor {
        wide(self.x)
    }

    /// Overwrites the parameter.
    pub fn set(&self, value: &Tensor) {
        self.x.copy_(value);
    }

    /// State number `i` in the dtype of the computation.
    pub fn remembered(&self, i: usize) -> Tensor {
        wide(&self.state[i].1)
    }

    /// Overwrites state number `i`.
    pub fn remember(&self, i: usize, value: &Tensor) {
        self.state[i].1.copy_(value);
    }

    /// The gradient, negated to maximise, plus `decay` times the parameter.
    pub fn gradient(&self, maximize: bool, decay: f64) -> Tensor {
        let g = wide(self.grad);
        let g = if maximize { -g } else { g };
        if decay == 0.0 { g } else { g + self.value() * decay }
    }

    /// The parameter after decoupled decay: x − lr·decay·x.
    pub fn decayed(&self, decay: f64) -> Tensor {
        if decay == 0.0 {
            return self.value();
        }
        self.value() * self.number(&(1.0 - self.lr * decay))
    }

    /// The parameter and the gradient, with the decay applied to the parameter if decoupled,
    /// otherwise to the gradient.
    pub fn decay(&self, maximize: bool, decay: f64, decoupled: bool) -> (Tensor, Tensor) {
        match decoupled {
            true => (self.decayed(decay), self.gradient(maximize, 0.0)),
            false => (self.value(), self.gradient(maximize, decay)),
        }
    }

    /// Makes state number `i` the running mean `keep·state + (1 − keep)·value`, and gives it.
    pub fn mean(&self, i: usize, keep: f64, value: &Tensor) -> Tensor {
        let mean = self.remembered(i) * keep + value * (1.0 - keep);
        self.remember(i, &mean);
        mean
    }

    /// The number of this step as `f64[]`.
    pub fn count(&self) -> Tensor {
        self.step.cast(DType::F64)
    }

    /// `1 − betaᵗ`, what a running mean that started at zero is divided by: `f64[]`.
    pub fn unbias(&self, beta: f64) -> Tensor {
        1.0 - self.step.new_tensor(beta).pow(self.count())
    }

    /// The learning rate in the dtype of the computation.
    pub fn lr(&self) -> Tensor {
        self.number(self.lr)
    }

    /// A number computed in `f64`, for formulas.
    pub fn number(&self, x: &Tensor) -> Tensor {
        x.cast(wide_dtype(self.x.dtype()))
    }
}

/// The dtype that steps of parameters of this dtype are computed in.
pub(super) fn wide_dtype(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The tensor in the dtype of the computation.
pub(super) fn wide(x: &Tensor) -> Tensor {
    x.cast(wide_dtype(x.dtype()))
}
