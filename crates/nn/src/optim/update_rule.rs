//! What is particular to an optimiser: its options, what it remembers of a parameter, and how it
//! steps.
//!
//! Everything else (groups, counts, rates, names of states, checks) is in [`Stepper`], once. A rule
//! is a struct of options with PyTorch's meanings and defaults; its formula is ordinary tensor code
//! that writes in place and never reads a value, so it runs eagerly and compiles with
//! [`jit`](pullback::jit).
//!
//! What is one number (a rate, a bias correction, a count) is computed in `f64`, as PyTorch
//! computes it in Python. What is shaped as the parameter is computed in its dtype, or in `f32`
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
    /// What errors call it.
    const NAME: &'static str;

    /// The learning rate that a group starts with.
    fn lr(&self) -> f64;

    /// The other options that are numbers, and where they must lie.
    fn options(&self) -> Vec<OptionRow> {
        Vec::new()
    }

    /// What keeps these options from going together, or with this parameter.
    ///
    /// # Errors
    /// With a sentence that names the option or the parameter.
    fn accepts(&self, parameter: &Tensor) -> Result<()> {
        let _ = parameter;
        Ok(())
    }

    /// What is remembered of a parameter, by PyTorch's names, as it is before the first step. Steps
    /// write to it in place.
    fn state(&self, parameter: &Tensor) -> Vec<(&'static str, Tensor)> {
        let _ = parameter;
        Vec::new()
    }

    /// One step of one parameter. Nothing is recorded meanwhile.
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

/// An option's name, its value, and where it must lie.
pub type OptionRow = (&'static str, f64, Bounds);

/// Where an option must lie. None of these contains NaN or an infinity.
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
    /// Whether the value lies there.
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

/// One parameter in one step, as a rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// The parameter.
    pub x: &'a Tensor,
    /// Its gradient.
    pub grad: &'a Tensor,
    /// The rate of its group, `f64[]`.
    pub lr: &'a Tensor,
    /// The number of this step for this parameter, `i64[]`: 1 for the first.
    pub step: &'a Tensor,
    /// What is remembered of it, in the order of [`UpdateRule::state`].
    pub state: &'a [(&'static str, Tensor)],
}

impl Update<'_> {
    /// The parameter in the dtype that steps are computed in.
    pub fn value(&self) -> Tensor {
        wide(self.x)
    }

    /// Overwrites the parameter.
    pub fn set(&self, value: &Tensor) {
        self.x.copy_(value);
    }

    /// State number `i` in the dtype that steps are computed in.
    pub fn remembered(&self, i: usize) -> Tensor {
        wide(&self.state[i].1)
    }

    /// Overwrites state number `i`.
    pub fn remember(&self, i: usize, value: &Tensor) {
        self.state[i].1.copy_(value);
    }

    /// The gradient to descend along: with its sign, and with `decay` of the parameter added.
    pub fn gradient(&self, maximize: bool, decay: f64) -> Tensor {
        let g = wide(self.grad);
        let g = if maximize { -g } else { g };
        if decay == 0.0 { g } else { g + self.value() * decay }
    }

    /// The parameter after decay that is not part of the gradient: x − rate·decay·x.
    pub fn decayed(&self, decay: f64) -> Tensor {
        if decay == 0.0 {
            return self.value();
        }
        self.value() * self.number(&(1.0 - self.lr * decay))
    }

    /// The parameter and the gradient, where decay may be part of the one or the other.
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
        1.0 - Tensor::from(beta).pow(self.count())
    }

    /// The rate, for formulas.
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

/// The tensor in the dtype that steps are computed in.
pub(super) fn wide(x: &Tensor) -> Tensor {
    x.cast(wide_dtype(x.dtype()))
}
