//! Optimisers by name, with options from a file.

use super::{
    Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, Asgd, Lion, Muon, NAdam, Optimizer, RAdam,
    RmsProp, Rprop, Rule, Sgd, Stepper,
};
use pullback::{Error, Result, Tensor};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Groups of parameters, each with its options.
type Groups = Vec<(Vec<Tensor>, Value)>;

/// Makes an optimiser.
type Make = fn(Groups) -> Result<Box<dyn Optimizer>>;

#[rustfmt::skip]
const TABLE: [(&str, Make); 14] = [
    ("adadelta",  make::<Adadelta>),
    ("adafactor", make::<Adafactor>),
    ("adagrad",   make::<Adagrad>),
    ("adam",      make::<Adam>),
    ("adamax",    make::<Adamax>),
    ("adamw",     make::<AdamW>),
    ("asgd",      make::<Asgd>),
    ("lion",      make::<Lion>),
    ("muon",      make::<Muon>),
    ("nadam",     make::<NAdam>),
    ("radam",     make::<RAdam>),
    ("rmsprop",   make::<RmsProp>),
    ("rprop",     make::<Rprop>),
    ("sgd",       make::<Sgd>),
];

/// The names that [`named`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}

/// The optimiser of this name over groups of parameters, each with its options by the names of their fields; what is left out is as by
/// default. For programs that read which optimiser to use.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, named};
/// use serde_json::json;
///
/// let x = Tensor::from(3.0).requires_grad();
/// let opt = named("adamw", vec![(vec![x.clone()], json!({ "rate": 0.1, "betas": [0.8, 0.9] }))])?;
/// x.square().backward()?;
/// opt.step()?;
/// let error = named("adamw", vec![(vec![x], json!({ "lr": 0.1 }))]).err().unwrap();
/// assert!(error.to_string().contains("unknown field `lr`, expected one of `rate`"));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If there is no such optimiser or option, or as [`Rule::over`].
pub fn named(name: &str, groups: Groups) -> Result<Box<dyn Optimizer>> {
    match TABLE.iter().find(|(known, _)| *known == name) {
        Some((_, make)) => make(groups),
        None => {
            let known: Vec<_> = names().collect();
            let message = format!("there is no `{name}`; there are {}", known.join(", "));
            Err(Error::argument("optimizer", message))
        }
    }
}

fn make<R: Rule + DeserializeOwned + 'static>(groups: Groups) -> Result<Box<dyn Optimizer>> {
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
