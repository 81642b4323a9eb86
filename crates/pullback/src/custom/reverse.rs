//! [`custom_vjp`]: a function with its pullback.

use super::call::{CustomCall, ResidualRecompute, ResidualSource, call};
use super::memo::Site;
use super::rule::{OperandRole, Rule, checked, filled, floats, transposed, uncut};
use super::rule_check::{PendingCheck, RuleCheck};
use crate::rule::{Derivatives, RuleContext, Tensors, Val};
use crate::trace::{self, evaluate};
use crate::{DType, Spec, Tensor, Tree, autocast, jvp, kinks, mode, random, vjp};
use pullback_ir::Line;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// A function with a pullback of its own: made by [`custom_vjp`].
pub struct CustomVjp<T, Y, R> {
    function: Arc<VjpFunction<T, Y, R>>,
    check: RuleCheck,
}

struct VjpFunction<T, Y, R> {
    name: &'static str,
    forward: Box<ForwardFn<T, Y, R>>,
    backward: Box<BackwardFn<T, Y, R>>,
}

type ForwardFn<T, Y, R> = dyn Fn(&T) -> (Y, R) + Send + Sync;
type BackwardFn<T, Y, R> = dyn Fn(&R, &Y) -> T + Send + Sync;

/// A function whose reverse derivative is given: `forward` gives the result and what `backward`
/// will need, `backward` gives the gradient of the argument from that and the gradient of the
/// result.
///
/// ```
/// use pullback::{Tensor, custom_vjp, grad};
/// // log(1 + exp(x)), whose slope is written so that it cannot overflow.
/// let softplus = custom_vjp(
///     "softplus",
///     |x: &Tensor| (x.exp().log1p(), x.clone()),
///     |x: &Tensor, dy: &Tensor| dy * x.sigmoid(),
/// );
/// let x = Tensor::from(0.5);
/// let slope = grad(move |x: &Tensor| softplus.call(x))(&x).item::<f64>();
/// assert!((slope - 0.6224593312018546).abs() < 1e-15);
/// ```
///
/// All three are [trees](Tree) of tensors. Residuals may hold integers. `backward` is ordinary
/// tensor code and linear in its second argument, so forward mode is its transpose and higher
/// derivatives are its derivatives. The function may be called in eager code, under `jit`, `vmap`,
/// `scan` and `cond`, and inside other such functions.
///
/// At its first use for given specs the rule is compared with numeric derivatives, see
/// [`CustomVjp::call`]. What is differentiated must be an argument: a captured tensor that
/// requires grad is refused.
///
/// # Panics
/// Only when it is called: see [`CustomVjp::call`].
#[track_caller]
#[must_use]
pub fn custom_vjp<T, Y, R, F, B>(name: &'static str, forward: F, backward: B) -> CustomVjp<T, Y, R>
where
    T: Tree + Send + Sync + 'static,
    Y: Tree + Send + Sync + 'static,
    R: Tree + Send + Sync + 'static,
    F: Fn(&T) -> (Y, R) + Send + Sync + 'static,
    B: Fn(&R, &Y) -> T + Send + Sync + 'static,
{
    let check = RuleCheck::new(Site::of::<F, B>(name, Line::caller()));
    let function =
        Arc::new(VjpFunction { name, forward: Box::new(forward), backward: Box::new(backward) });
    CustomVjp { function, check }
}

impl<T, Y, R> CustomVjp<T, Y, R>
where
    T: Tree + Send + Sync + 'static,
    Y: Tree + Send + Sync + 'static,
    R: Tree + Send + Sync + 'static,
{
    /// The function at `x`.
    ///
    /// At the first call with arguments of these specs (and plain values), the rule is checked
    /// there in `f64`: both modes and the second derivative against differences of values, and its
    /// own dtype against `f64`. Inside a trace, where values are not known, it is checked at
    /// [`CustomVjp::at`] or at random numbers between 0.5 and 1.5 (and zeros for integers), and
    /// once more at the values that a compiled function is first called with, or at the first and
    /// the last example of a `vmap`; in the bodies of loops and branches there is only the first
    /// check. Later calls cost nothing more. A rule that captured something is checked for the
    /// first four objects that are made on its line.
    ///
    /// ```
    /// use pullback::{Tensor, catch, custom_vjp};
    /// let square = |slope: f64| {
    ///     let forward = |x: &Tensor| (x.square(), x.clone());
    ///     custom_vjp("square", forward, move |x: &Tensor, dy: &Tensor| dy * x * slope)
    /// };
    /// let x = Tensor::from(3.0).requires_grad();
    /// square(2.0).call(&x).backward()?;
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 6.0);
    /// let error = catch(|| square(3.0).call(&x)).unwrap_err();
    /// assert!(error.to_string().starts_with("square"), "{error}");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the rule is wrong, with the worst entry; if the result depends on a tracked tensor that
    /// is not in `x`.
    #[track_caller]
    pub fn call(&self, x: &T) -> Y {
        let at = mode::user_line(Line::caller());
        let structure = x.structure();
        self.check.pass(&x.leaves(), &structure, at, &|leaves| {
            apply(&self.function, &x.with_leaves(leaves), at, &PendingCheck::default).leaves()
        });
        let pending = || {
            let (function, like) = (self.function.clone(), without_values(x));
            let run = move |leaves: &[Tensor]| {
                apply(&function, &like.with_leaves(leaves), at, &PendingCheck::default).leaves()
            };
            self.check.pending(structure.clone(), at, run)
        };
        apply(&self.function, x, at, &pending)
    }

    /// Without the check, for a rule that is not the derivative and is not meant to be (a
    /// straight-through estimator), or that cannot be checked. The reason is listed by
    /// [`unchecked_rules`](crate::unchecked_rules). Such a rule need not be linear (it may clip),
    /// so under `vmap` it runs once for each example, also where all examples share the argument;
    /// the gradient of that is the sum.
    ///
    /// ```
    /// use pullback::{Tensor, custom_vjp, grad, unchecked_rules};
    /// let round = custom_vjp("round_through", |x: &Tensor| (x.round(), ()), |_: &(), dy: &Tensor| dy.clone())
    ///     .unchecked("rounding has no useful derivative");
    /// assert_eq!(grad(move |x: &Tensor| round.call(x))(&Tensor::from(0.7)).item::<f64>(), 1.0);
    /// assert!(unchecked_rules().iter().any(|r| r.name == "round_through" && r.calls == 1));
    /// ```
    #[track_caller]
    #[must_use]
    pub fn unchecked(mut self, reason: &'static str) -> Self {
        self.check.open(reason, mode::user_line(Line::caller()));
        self
    }

    /// Without the check, and not listed as unchecked: for rules of this library, which its tests
    /// check.
    #[doc(hidden)]
    #[must_use]
    pub fn trusted(mut self) -> Self {
        self.check.trust();
        self
    }

    /// Declares an unchecked rule linear in its second argument. Then examples of a `vmap` that
    /// share the argument may use one call for all.
    pub(crate) fn linear(mut self) -> Self {
        self.check.linear();
        self
    }

    /// An argument at which to check the rule if it is first used inside a trace (`jit`, `vmap`, a
    /// loop), where values are not known.
    ///
    /// ```
    /// use pullback::{Tensor, custom_vjp, jit};
    /// // Only defined above 10, where the random numbers of the check would not be.
    /// let log = custom_vjp(
    ///     "log",
    ///     |x: &Tensor| ((x - 10.0).log(), x - 10.0),
    ///     |x: &Tensor, dy: &Tensor| dy / x,
    /// );
    /// let log = log.at(&Tensor::from(12.0));
    /// let f = jit(move |x: &Tensor| log.call(x));
    /// assert_eq!(f.of(&Tensor::from(11.0)).item::<f64>(), 0.0);
    /// ```
    #[must_use]
    pub fn at(mut self, example: &T) -> Self {
        self.check.example(example.leaves());
        self
    }

    /// How far the derivative may be from the numeric one, relative to it, where the function
    /// computes less exactly than `f64` allows (by iteration, say).
    ///
    /// ```
    /// use pullback::{Tensor, catch, custom_vjp};
    /// let square = || {
    ///     let forward = |x: &Tensor| (x.square(), x.clone());
    ///     custom_vjp("square", forward, |x: &Tensor, dy: &Tensor| dy * x * 2.001) // off by 1/2000
    /// };
    /// assert!(catch(|| square().call(&Tensor::from(3.0))).is_err());
    /// assert_eq!(square().tolerance(1e-2).call(&Tensor::from(3.0)).item::<f64>(), 9.0);
    /// ```
    #[must_use]
    pub fn tolerance(mut self, relative: f64) -> Self {
        self.check.tolerance(relative);
        self
    }
}

fn apply<T, Y, R>(
    function: &Arc<VjpFunction<T, Y, R>>,
    x: &T,
    at: Line,
    pending: &dyn Fn() -> PendingCheck,
) -> Y
where
    T: Tree + Send + Sync + 'static,
    Y: Tree + Send + Sync + 'static,
    R: Tree + Send + Sync + 'static,
{
    let made = std::cell::RefCell::new(None);
    let run = |leaves: &[Tensor]| {
        let (y, r) = (function.forward)(&x.with_leaves(leaves));
        let leaves = (y.leaves(), r.leaves());
        *made.borrow_mut() = Some((y, r));
        leaves
    };
    // Without their tensors: the rule must not keep memory that the tape does not know of.
    let rule = |call: CustomCall| -> Box<dyn Rule> {
        match &*made.borrow() {
            Some((y, r)) => Box::new(Reverse {
                function: function.clone(),
                x: without_values(x),
                y: without_values(y),
                r: without_values(r),
                call,
            }),
            None => unreachable!("the function ran"),
        }
    };
    let ys = call(function.name, &x.leaves(), at, &run, &rule, pending);
    match made.into_inner() {
        Some((y, _)) => y.with_leaves(&ys),
        None => unreachable!("the function ran"),
    }
}

/// The structure, with an empty tensor instead of each.
pub(crate) fn without_values<T: Tree>(x: &T) -> T {
    static NOTHING: OnceLock<Tensor> = OnceLock::new();
    let nothing =
        NOTHING.get_or_init(|| trace::computing(|| Tensor::zeros_of(&Spec::cpu(DType::F32, [0]))));
    x.map(&mut |_| nothing.clone())
}

struct Reverse<T, Y, R> {
    function: Arc<VjpFunction<T, Y, R>>,
    x: T,
    y: Y,
    r: R,
    call: CustomCall,
}

impl<T: Tree, Y: Tree, R: Tree> Reverse<T, Y, R> {
    fn residuals(&self, ctx: &RuleContext) -> R {
        let find = |place: &ResidualSource| match *place {
            ResidualSource::Input(i) => ctx.x(i).clone(),
            ResidualSource::Output(k) => ctx.y(k).clone(),
        };
        self.r.with_leaves(&self.call.residuals.iter().map(find).collect::<Vec<_>>())
    }

    /// The pullback on leaves.
    fn pull(&self, r: &R, dys: &[Tensor], wanted: &[Spec]) -> Vec<Tensor> {
        let kept = r.leaves();
        let given = uncut(self.call.name, &[&kept, dys].concat(), |values| {
            let (kept, dys) = values.split_at(kept.len());
            let run = || {
                (self.function.backward)(&r.with_leaves(kept), &self.y.with_leaves(dys)).leaves()
            };
            kinks::with_state(self.call.conventions, run)
        });
        checked(self.call.name, "backward", "argument", given, wanted.iter())
    }

    /// The values that are kept besides arguments and results, from the operands.
    fn again(&self, operands: &[Tensor]) -> Vec<Tensor> {
        match &self.call.again {
            ResidualRecompute::Body(body) => evaluate(body, operands).split_off(self.call.results),
            ResidualRecompute::Function(keys) => {
                let run = || {
                    let x = self.x.with_leaves(&operands[..self.call.arguments]);
                    let run = || (self.function.forward)(&x).1.leaves();
                    let run = || kinks::with_state(self.call.conventions, run);
                    let leaves = autocast::with_state(self.call.autocast, run);
                    let kept = |p: &ResidualSource| matches!(p, ResidualSource::Output(k) if *k >= self.call.results);
                    let all = leaves.into_iter().zip(&self.call.residuals);
                    all.filter(|(_, place)| kept(place)).map(|(r, _)| r).collect()
                };
                if keys.is_empty() {
                    return run();
                }
                let draws =
                    random::Draws { state: None, keys: keys.clone(), trace: trace::number() };
                random::repeating(draws, run)
            }
        }
    }

    fn keeps_more(&self) -> bool {
        self.call
            .residuals
            .iter()
            .any(|p| matches!(p, ResidualSource::Output(k) if *k >= self.call.results))
    }
}

/// The specs of the operands, those of the results.
pub(super) fn specs(ctx: &RuleContext) -> (Vec<Spec>, Vec<Spec>) {
    let (operands, results) = ctx.counts();
    let inputs = (0..operands).map(|i| ctx.in_spec(i).clone()).collect();
    (inputs, (0..results).map(|k| ctx.out_spec(k).clone()).collect())
}

impl<T, Y, R> Rule for Reverse<T, Y, R>
where
    T: Tree + Send + Sync,
    Y: Tree + Send + Sync,
    R: Tree + Send + Sync,
{
    fn keeps(&self, val: Val) -> bool {
        match val {
            // The derivative of additional residuals is that of the function, which takes all
            // cotangents.
            Val::In(i) => {
                self.keeps_more() || self.call.residuals.contains(&ResidualSource::Input(i))
            }
            Val::Out(k) => self.call.residuals.contains(&ResidualSource::Output(k)),
        }
    }

    fn role(&self, operand: usize) -> OperandRole {
        self.call.role(operand)
    }

    fn pending(&self) -> Option<&PendingCheck> {
        self.call.pending.as_ref()
    }

    fn vjp(&self, ctx: &RuleContext, dys: &Derivatives) -> Derivatives {
        let (inputs, outputs) = specs(ctx);
        let (arguments, results) = (self.call.arguments, self.call.results);
        let mut out: Derivatives = SmallVec::from_elem(None, inputs.len());
        let wants = |i: usize| inputs[i].dtype.is_float() && ctx.needs(i);
        if dys[..results].iter().any(Option::is_some) {
            let dys = filled(&dys[..results], outputs.iter());
            let given = self.pull(&self.residuals(ctx), &dys, &inputs[..arguments]);
            for (i, g) in given.into_iter().enumerate().filter(|(i, _)| wants(*i)) {
                out[i] = Some(g);
            }
        }
        if dys[results..].iter().any(Option::is_some) {
            let operands: Vec<Tensor> = (0..inputs.len()).map(|i| ctx.x(i).clone()).collect();
            let moved: Vec<usize> = floats(&inputs[..arguments]);
            let point: Vec<Tensor> = moved.iter().map(|&i| operands[i].clone()).collect();
            let kept = floats(&outputs[results..]);
            let (_, pullback) = vjp(
                |point: &Vec<Tensor>| {
                    let mut all = operands.clone();
                    moved.iter().zip(point).for_each(|(&i, p)| all[i] = p.clone());
                    let made = self.again(&all);
                    kept.iter().map(|&j| made[j].clone()).collect::<Vec<Tensor>>()
                },
                &point,
            );
            let cotangents = filled(&dys[results..], outputs[results..].iter());
            let given = pullback(&kept.iter().map(|&j| cotangents[j].clone()).collect());
            for (&i, g) in moved.iter().zip(given).filter(|(i, _)| wants(**i)) {
                out[i] = Some(match out[i].take() {
                    Some(sum) => sum + g,
                    None => g,
                });
            }
        }
        out
    }

    fn jvp(&self, ctx: &RuleContext, tangents: &Derivatives) -> Tensors {
        let (inputs, outputs) = specs(ctx);
        let (arguments, results) = (self.call.arguments, self.call.results);
        let tangents = filled(&tangents[..arguments], inputs.iter());
        let (moved, made) = (floats(&inputs[..arguments]), floats(&outputs[..results]));
        let of = |all: &[Tensor], places: &[usize]| -> Vec<Tensor> {
            places.iter().map(|&i| all[i].clone()).collect()
        };
        let residuals = self.residuals(ctx);
        let from: Vec<Spec> = made.iter().map(|&k| outputs[k].clone()).collect();
        let pushed = transposed(
            &from,
            |dys| {
                let mut all = filled(&vec![None; results], outputs.iter());
                made.iter().zip(dys).for_each(|(&k, dy)| all[k] = dy.clone());
                of(&self.pull(&residuals, &all, &inputs[..arguments]), &moved)
            },
            &of(&tangents, &moved),
        );
        let mut out: Vec<Tensor> = outputs.iter().map(Tensor::zeros_of).collect();
        made.iter().zip(pushed).for_each(|(&k, t)| out[k] = t);
        if outputs.len() > results {
            let operands: Vec<Tensor> = (0..inputs.len()).map(|i| ctx.x(i).clone()).collect();
            let run = |point: &Vec<Tensor>| {
                let mut all = operands.clone();
                moved.iter().zip(point).for_each(|(&i, p)| all[i] = p.clone());
                self.again(&all)
            };
            let (_, kept) = jvp(run, &of(&operands, &moved), &of(&tangents, &moved));
            out.truncate(results);
            out.extend(kept);
        }
        out.into_iter().collect()
    }
}
