//! Optimisers by name, with options from a file.

use super::{Optimizer, Stepper, TABLE, UpdateRule};
use pullback::{Error, Result, Tensor};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Groups of parameters, each with its options.
type ParamGroups = Vec<(Vec<Tensor>, Value)>;

/// A row of the table of optimisers.
pub(super) struct OptimizerRow {
    pub name: &'static str,
    pub make: fn(ParamGroups) -> Result<Box<dyn Optimizer>>,
    pub lr: fn(f64) -> f64,
}

/// The names that [`named`] knows.
///
/// ```
/// use pullback_nn::optim;
/// assert!(optim::names().any(|name| name == "adamw"));
/// ```
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|entry| entry.name)
}

/// A learning rate with which the optimiser of this name makes updates of about the size that AdamW
/// makes with `lr` on the same network. A rule of thumb for programs that let the user choose the
/// optimiser alone. `None` if there is no such optimiser.
///
/// ```
/// # use pullback_nn::optim::lr_like_adamw;
/// assert_eq!(lr_like_adamw("adam", 1e-3), Some(1e-3));
/// // SGD takes a larger one.
/// assert!((lr_like_adamw("sgd", 1e-3).unwrap() - 0.05).abs() < 1e-12);
/// assert_eq!(lr_like_adamw("unknown", 1e-3), None);
/// ```
pub fn lr_like_adamw(name: &str, lr: f64) -> Option<f64> {
    TABLE.iter().find(|entry| entry.name == name).map(|entry| (entry.lr)(lr))
}

/// The optimiser of this name over groups of parameters, each with its options by PyTorch's names;
/// options that are left out have their defaults. For programs that read the name from a file.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, named};
/// use serde_json::json;
///
/// let x = Tensor::from(3.0).requires_grad();
/// let opt = named("adamw", vec![(vec![x.clone()], json!({ "lr": 0.1, "betas": [0.8, 0.9] }))])?;
/// x.square().backward()?;
/// opt.step()?;
/// let error = named("adamw", vec![(vec![x], json!({ "rate": 0.1 }))]).err().unwrap();
/// assert!(error.to_string().contains("unknown field `rate`, expected one of `lr`"));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If there is no such optimiser or option, or as [`UpdateRule::over`].
pub fn named(name: &str, groups: ParamGroups) -> Result<Box<dyn Optimizer>> {
    match TABLE.iter().find(|entry| entry.name == name) {
        Some(entry) => (entry.make)(groups),
        None => {
            let known: Vec<_> = names().collect();
            let message = format!("there is no `{name}`; there are {}", known.join(", "));
            Err(Error::argument("optimizer", message))
        }
    }
}

pub(super) fn make<R: UpdateRule + DeserializeOwned + 'static>(
    groups: ParamGroups,
) -> Result<Box<dyn Optimizer>> {
    let mut made: Option<Stepper<R>> = None;
    for (parameters, options) in groups {
        let rule: R = serde_json::from_value(options)
            .map_err(|e| Error::argument(R::NAME, format!("options: {e}")))?;
        made = Some(match made {
            None => rule.over(parameters)?,
            Some(stepper) => stepper.and(parameters, rule)?,
        });
    }
    let made = made.ok_or_else(|| Error::argument(R::NAME, "there are no groups to optimise"))?;
    Ok(Box::new(made))
}
