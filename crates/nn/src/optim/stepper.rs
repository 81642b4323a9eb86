//! Applies an update rule to groups of parameters: learning rates, step counts and states.

use super::{Bounds, Optimizer, OptionRow, Update, UpdateRule};
use crate::refuse::called;
use pullback::{Error, IntoDevice, Result, Tensor, autocast_off, catch, no_grad};
use std::collections::{HashSet, VecDeque};

/// An optimiser: a [`UpdateRule`] over groups of parameters, each with options of its own.
///
/// Each parameter has its own step count, as in PyTorch: a step in which it has no gradient is not
/// counted. All state is allocated at the start, so a compiled step never sees a new tensor.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, UpdateRule, Sgd};
///
/// let (weight, bias) = (Tensor::ones([2, 2]).requires_grad(), Tensor::ones([2]).requires_grad());
/// let plain = Sgd { lr: 0.1, ..Sgd::default() };
/// let decayed = Sgd { weight_decay: 0.5, ..plain };
/// let opt = decayed.over([weight.clone()])?.and([bias.clone()], plain)?;
///
/// (weight.sum() + bias.sum()).backward()?;
/// opt.step()?;
/// assert_eq!(weight.to_vec::<f32>(), [0.85; 4]);
/// assert_eq!(bias.to_vec::<f32>(), [0.9; 2]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stepper<R> {
    groups: Vec<ParamGroup<R>>,
}

#[derive(Clone, Debug)]
struct ParamGroup<R> {
    rule: R,
    lr: Tensor,
    members: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Member {
    x: Tensor,
    step: Tensor,
    state: Vec<(&'static str, Tensor)>,
}

impl<R: UpdateRule> Stepper<R> {
    /// An optimiser with one group. [`UpdateRule::over`] is the same.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, Stepper};
    /// let x = Tensor::from(1.0).requires_grad();
    /// let opt = Stepper::new(Sgd { lr: 0.1, ..Sgd::default() }, [x])?;
    /// assert_eq!(opt.lrs()[0].item::<f64>(), 0.1);
    /// assert!(Stepper::new(Sgd { lr: -0.1, ..Sgd::default() }, [Tensor::from(1.0)]).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no parameters; one is listed twice, is not of floats or is not a leaf; or an
    /// option is out of its range.
    pub fn new(rule: R, parameters: impl IntoIterator<Item = Tensor>) -> Result<Stepper<R>> {
        Stepper { groups: Vec::new() }.and(parameters, rule)
    }

    /// Adds a group of parameters with its own options.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// let (x, y) = (Tensor::from(1.0).requires_grad(), Tensor::from(1.0).requires_grad());
    /// let sgd = Sgd { lr: 0.1, ..Sgd::default() };
    /// let opt = sgd.over([x])?.and([y], Sgd { lr: 0.01, ..sgd })?;
    /// assert_eq!(opt.groups().len(), 2);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Stepper::new`], also if a parameter is in another group already.
    #[doc(alias = "add_param_group")]
    pub fn and(
        mut self,
        parameters: impl IntoIterator<Item = Tensor>,
        rule: R,
    ) -> Result<Stepper<R>> {
        let mut options = vec![("lr", rule.lr(), Bounds::NotNegative)];
        options.extend(rule.options());
        check_options(R::NAME, &options)?;
        let mut members: Vec<Member> = Vec::new();
        let known = self.groups.iter().flat_map(|group| &group.members);
        let mut known: HashSet<usize> = known.map(|member| member.x.id()).collect();
        for x in parameters {
            check_parameter(R::NAME, &x, &mut known)?;
            rule.accepts(&x)?;
            let state = rule.state(&x.detach());
            members.push(Member { step: x.new_tensor(0i64), x, state });
        }
        let Some(first) = members.first() else {
            return Err(Error::argument(R::NAME, "there are no parameters to optimise"));
        };
        self.groups.push(ParamGroup { lr: first.x.new_tensor(rule.lr()), rule, members });
        Ok(self)
    }

    /// An optimiser of a model that was moved to a device
    /// ([`Module::to_device`](crate::Module::to_device) makes a copy), with copies of this one's
    /// state and learning rates there. `parameters` are those of the moved model, in the order of
    /// all groups.
    ///
    /// ```
    /// use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
    /// use pullback_nn::{Layer, Linear, Module};
    /// # use pullback::Tensor;
    /// let model = Linear::new(2, 1);
    /// let opt = AdamW::default().over(model.parameters())?;
    /// // … some steps; then both move.
    /// let model = model.to_device("cpu");
    /// let opt = opt.to_device("cpu", model.parameters())?;
    /// model.forward(&Tensor::ones([4, 2])).mean().backward()?;
    /// opt.step()?; // steps the parameters of the moved model
    /// assert!(opt.to_device("cpu", Linear::new(3, 1).parameters()).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such device, or the parameters are not as many, of the shapes and dtypes of
    /// those that it has now, on the device and leaves: the error names the first that is not.
    #[doc(alias = "optimizer_to")]
    pub fn to_device(
        &self,
        device: impl IntoDevice,
        parameters: impl IntoIterator<Item = Tensor>,
    ) -> Result<Stepper<R>> {
        let device = device.into_device()?;
        let old: Vec<&Member> = self.groups.iter().flat_map(|group| &group.members).collect();
        let mut new: VecDeque<Tensor> = parameters.into_iter().collect();
        let refused = |message: String| Err(Error::argument(R::NAME, message));
        if new.len() != old.len() {
            let (given, had) = (new.len(), old.len());
            return refused(format!("{given} parameters of the moved model, but it has {had}"));
        }
        let mut known = HashSet::new();
        for (i, (x, old)) in new.iter().zip(&old).enumerate() {
            check_parameter(R::NAME, x, &mut known)?;
            let wanted = old.x.spec().with_device(device);
            if *x.spec() != wanted || x.is_leaf() != old.x.is_leaf() {
                let leaf = if x.is_leaf() == old.x.is_leaf() { "" } else { ", not trained" };
                return refused(format!(
                    "parameter {i} of the moved model is {}{leaf}, but must be {wanted}",
                    x.spec()
                ));
            }
        }
        let to = |x: &Tensor| catch(|| no_grad(|| x.detach().to(device).deep_clone()));
        let mut groups = Vec::new();
        for group in &self.groups {
            let mut members = Vec::new();
            for (member, x) in group.members.iter().zip(new.drain(..group.members.len())) {
                let each = |(name, x): &(&'static str, Tensor)| Ok((*name, to(x)?));
                let state = member.state.iter().map(each).collect::<Result<_>>()?;
                members.push(Member { x, step: to(&member.step)?, state });
            }
            groups.push(ParamGroup { rule: group.rule.clone(), lr: to(&group.lr)?, members });
        }
        Ok(Stepper { groups })
    }

    /// The options of each group, as they were given.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// let opt = Sgd { lr: 0.1, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// assert_eq!(opt.rules().next().unwrap().lr, 0.1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn rules(&self) -> impl Iterator<Item = &R> {
        self.groups.iter().map(|group| &group.rule)
    }
}

/// Checks that the options of an optimiser are within their bounds.
pub(super) fn check_options(optimizer: &'static str, rows: &[OptionRow]) -> Result<()> {
    match rows.iter().find(|(_, value, within)| !within.contains(*value)) {
        None => Ok(()),
        Some((name, value, within)) => {
            let message = format!("`{name}` must be {}, not {value}", within.words());
            Err(Error::argument(optimizer, message))
        }
    }
}

/// Checks that a tensor can be a parameter of an optimiser that has the `known` ones.
pub(super) fn check_parameter(
    optimizer: &'static str,
    x: &Tensor,
    known: &mut HashSet<usize>,
) -> Result<()> {
    let refused = |message: String| Error::argument(optimizer, message).on([x.spec()]);
    if !known.insert(x.id()) {
        return Err(refused(format!("the parameter {} is listed twice", x.spec()))
            .hint("`Module::parameters` lists tied parameters once"));
    }
    if !x.dtype().is_float() {
        return Err(refused(format!("optimises floats, not {}", x.spec())));
    }
    if x.shape().iter().zip(x.strides()).any(|(&length, &stride)| length > 1 && stride == 0) {
        return Err(refused(format!("the parameter {} shows an element several times", x.spec()))
            .hint("`deep_clone` gives each its own memory"));
    }
    if x.is_tracked() && !x.is_leaf() {
        return Err(refused(format!("the parameter {} was computed from others", x.spec()))
            .hint("optimise the leaves that it was computed from"));
    }
    Ok(())
}

impl<R: UpdateRule> Optimizer for Stepper<R> {
    fn step(&self) -> Result<()> {
        let _line = called();
        // Updates keep the dtypes they are written in, also inside autocast.
        catch(|| no_grad(|| autocast_off(|| self.groups.iter().for_each(ParamGroup::step))))
    }

    fn groups(&self) -> Vec<Vec<Tensor>> {
        let members =
            |group: &ParamGroup<R>| group.members.iter().map(|member| member.x.clone()).collect();
        self.groups.iter().map(members).collect()
    }

    fn lrs(&self) -> Vec<Tensor> {
        self.groups.iter().map(|group| group.lr.clone()).collect()
    }

    fn named_state(&self) -> Vec<(String, Tensor)> {
        let mut out = Vec::new();
        for (g, group) in self.groups.iter().enumerate() {
            out.push((format!("{g}.lr"), group.lr.clone()));
            for (i, member) in group.members.iter().enumerate() {
                out.push((format!("{g}.{i}.step"), member.step.clone()));
                let named = |(name, x): &(&str, Tensor)| (format!("{g}.{i}.{name}"), x.clone());
                out.extend(member.state.iter().map(named));
            }
        }
        out
    }
}

impl<R: UpdateRule> ParamGroup<R> {
    fn step(&self) {
        let due = || self.members.iter().filter_map(|m| Some((m, m.x.grad()?)));
        // All counts before all steps: a device runs each of the two as one kernel.
        due().for_each(|(member, _)| drop(member.step.add_(1)));
        for (Member { x, step, state }, grad) in due() {
            self.rule.step(&Update { x, grad: &grad, lr: &self.lr, step, state });
        }
    }
}
