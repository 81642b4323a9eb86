//! `grad`, `value_and_grad`, `vjp` (reverse mode) and `jvp` (forward mode).

use super::levels::Level;
use crate::tape::backward::{Manner, Plan, of_targets, plan};
use crate::tape::{History, Key};
use crate::tensor::Tangents;
use crate::{Error, Op, Scalar, Tensor, Tree, apply, fail, mode};
use std::panic::Location;

/// The gradient of a scalar function.
///
/// ```
/// use pullback::{Tensor, grad};
/// let f = |x: &Tensor| x.powi(3);
/// let x = Tensor::from(2.0);
/// assert_eq!(grad(f)(&x).item::<f64>(), 12.0);
/// assert_eq!(grad(grad(f))(&x).item::<f64>(), 12.0);
/// ```
///
/// The argument may be any [`Tree`]; leaves that are not floats get zeros of their own dtype, and
/// leaves that the function does not use get zeros.
///
/// # Panics
/// When called, if the function gives anything but one float.
#[track_caller]
pub fn grad<T: Tree>(f: impl Fn(&T) -> Tensor) -> impl Fn(&T) -> T {
    let both = value_and_grad(f);
    move |x| both(x).1
}

/// The value and the gradient of a scalar function, in one go.
///
/// ```
/// use pullback::{Tensor, value_and_grad};
/// let f = |(x, y): &(Tensor, Tensor)| (x + y) * x;
/// let (value, (dx, dy)) = value_and_grad(f)(&(Tensor::from(3.0), Tensor::from(4.0)));
/// assert_eq!([value, dx, dy].map(|t| t.item::<f64>()), [21.0, 10.0, 3.0]);
/// ```
///
/// # Panics
/// When called, if the function gives anything but one float.
#[track_caller]
pub fn value_and_grad<T: Tree>(f: impl Fn(&T) -> Tensor) -> impl Fn(&T) -> (Tensor, T) {
    let caller = Location::caller();
    move |x| {
        let at = mode::user_line(caller);
        let frame = Frame::enter(x, at);
        let y = mode::set_recording(true, || f(&frame.inputs));
        if y.len() != 1 || !y.dtype().is_float() {
            let message = format!("the function must give one float, not {}", y.spec());
            let hint = match y.dtype().is_float() {
                true => "reduce the result to a loss (sum, mean), or use vjp or jacobian",
                false => "only floats have gradients: give the float that it was made of",
            };
            fail::raise(Error::gradient("grad", message).at(at).hint(hint));
        }
        let plan = frame.plan(std::slice::from_ref(&y), at);
        let outside = plan.outside;
        let one = Tensor::splat(Scalar::Int(1), y.shape(), y.dtype());
        let record = frame.recorded && outside;
        let grads = frame.pull(
            std::slice::from_ref(&y),
            &[one],
            plan,
            Manner { retain: record, create: record },
            at,
        );
        (frame.value(&y, outside), x.with_leaves(&grads))
    }
}

/// The value of a function and its pullback, which maps a cotangent of the result to one of the
/// argument and can be called any number of times.
///
/// ```
/// use pullback::{Tensor, vjp};
/// let (y, pullback) = vjp(|x: &Tensor| x.square(), &Tensor::from([1.0, 2.0, 3.0]));
/// assert_eq!(y.to_vec::<f64>(), [1.0, 4.0, 9.0]);
/// assert_eq!(pullback(&Tensor::from([1.0, 0.0, 0.0])).to_vec::<f64>(), [2.0, 0.0, 0.0]);
/// assert_eq!(pullback(&Tensor::from([0.0, 1.0, 1.0])).to_vec::<f64>(), [0.0, 4.0, 6.0]);
/// ```
///
/// # Panics
/// The pullback, if the cotangent has other specs than the value.
#[track_caller]
pub fn vjp<T: Tree, Y: Tree, F: FnOnce(&T) -> Y>(
    f: F,
    x: &T,
) -> (Y, impl Fn(&Y) -> T + use<T, Y, F>) {
    let at = mode::user_line(Location::caller());
    let frame = Frame::enter(x, at);
    let y = mode::set_recording(true, || f(&frame.inputs));
    let results = y.leaves();
    let outside = frame.plan(&results, at).outside;
    let value = y.map(&mut |y| frame.value(y, outside));
    let pullback = move |dy: &Y| {
        let cotangents = dy.leaves();
        if cotangents.len() != results.len() {
            let message = format!("{} cotangents for {} results", cotangents.len(), results.len());
            fail::raise(Error::gradient("vjp", message).at(at));
        }
        for (y, dy) in results.iter().zip(&cotangents) {
            if y.spec() != dy.spec() {
                let message =
                    format!("the cotangent is {}, but the value is {}", dy.spec(), y.spec());
                fail::raise(Error::gradient("vjp", message).at(at));
            }
        }
        let create =
            mode::is_grad_enabled() && (outside || cotangents.iter().any(Tensor::is_tracked));
        let plan = frame.plan(&results, at);
        let grads = frame.pull(&results, &cotangents, plan, Manner { retain: true, create }, at);
        frame.inputs.with_leaves(&grads)
    };
    (value, pullback)
}

/// The value of a function and the derivative along a direction: forward mode, in constant memory.
///
/// ```
/// use pullback::{Tensor, jvp};
/// let (y, ty) = jvp(|x: &Tensor| x.sin(), &Tensor::from(0.0), &Tensor::from(2.0));
/// assert_eq!((y.item::<f64>(), ty.item::<f64>()), (0.0, 2.0));
/// ```
///
/// # Panics
/// If the direction has other specs than the argument.
#[track_caller]
pub fn jvp<T: Tree, Y: Tree>(f: impl FnOnce(&T) -> Y, x: &T, tangent: &T) -> (Y, Y) {
    let (value, derivatives) = pushforward(f, x, tangent, mode::user_line(Location::caller()));
    let mut derivatives = derivatives.into_iter();
    let derivative =
        value.map(&mut |y| derivatives.next().flatten().unwrap_or_else(|| zeros_of(y)));
    (value, derivative)
}

/// [`jvp`], with no derivative for what does not depend on the argument.
pub(crate) fn pushforward<T: Tree, Y: Tree>(
    f: impl FnOnce(&T) -> Y,
    x: &T,
    tangent: &T,
    at: &'static Location<'static>,
) -> (Y, Vec<Option<Tensor>>) {
    let directions = tangent.leaves();
    let level = Level::enter();
    let (mut i, mut wrong) = (0, None);
    let dual = x.map(&mut |x| {
        let direction = directions.get(i).cloned();
        i += 1;
        match direction {
            Some(t) if t.spec() == x.spec() && x.dtype().is_float() => {
                let mut state = fail::or_raise(x.state(at));
                state.tangents.push((level.0, t));
                x.argument(state.history, state.tangents)
            }
            Some(t) if t.spec() == x.spec() => x.clone(),
            other => {
                wrong.get_or_insert((x.spec().clone(), other.map(|t| t.spec().clone())));
                x.clone()
            }
        }
    });
    if i != directions.len() {
        let message = format!("the argument has {i} tensors, the direction {}", directions.len());
        fail::raise(Error::gradient("jvp", message).at(at));
    }
    if let Some((x, t)) = wrong {
        let given = t.map_or("missing".to_string(), |t| t.to_string());
        let message = format!("the direction for {x} is {given}");
        fail::raise(Error::gradient("jvp", message).at(at));
    }
    let y = f(&dual);
    // Through `state`, so that a result that was overwritten since has its derivative anew.
    let mut derivatives = Vec::new();
    let value = y.map(&mut |y| {
        let mut state = fail::or_raise(y.state(at));
        let found = state.tangents.iter().position(|t| t.0 == level.0);
        derivatives.push(found.map(|i| state.tangents.remove(i).1));
        y.alias(state.history, state.tangents)
    });
    (value, derivatives)
}

/// Zeros that no transform outside sees.
fn zeros_of(x: &Tensor) -> Tensor {
    mode::set_recording(false, || x.detach().zeros_like())
}

/// One differentiation: the argument with each float a tracked value of its own, which nothing else
/// depends on. Where the original is tracked, the value follows from it by an identity, so that the graph
/// goes on behind it and transforms nest.
struct Frame<T> {
    inputs: T,
    leaves: Vec<Tensor>,
    /// Whether operations were being recorded outside.
    recorded: bool,
}

impl<T: Tree> Frame<T> {
    fn enter(x: &T, at: &'static Location<'static>) -> Frame<T> {
        let recorded = mode::is_grad_enabled();
        let mut leaves = Vec::new();
        let inputs = x.map(&mut |x| {
            let leaf = if x.dtype().is_float() { fresh(x, recorded, at) } else { x.clone() };
            leaves.push(leaf.clone());
            leaf
        });
        Frame { inputs, leaves, recorded }
    }

    fn targets(&self) -> Vec<Key> {
        // A name for what is not tracked (integers): no tracked value has number 0.
        self.leaves.iter().map(|x| x.lock().history.key().unwrap_or((0, 0))).collect()
    }

    fn plan(&self, results: &[Tensor], at: &'static Location<'static>) -> Plan {
        let targets: Vec<Key> = self.targets().into_iter().filter(|k| k.0 != 0).collect();
        let histories: Vec<History> =
            results.iter().map(|y| fail::or_raise(y.own_state(at)).history).collect();
        let mut plan = plan(histories.iter(), &targets);
        // A leaf made by an identity has someone behind it.
        plan.outside |= self.leaves.iter().any(|x| matches!(x.lock().history, History::Node(..)));
        plan
    }

    /// The gradients of the results with respect to the leaves; zeros where there is no path.
    fn pull(
        &self,
        results: &[Tensor],
        cotangents: &[Tensor],
        plan: Plan,
        manner: Manner,
        at: &'static Location<'static>,
    ) -> Vec<Tensor> {
        let targets = self.targets();
        // The results' own histories: seen from inside a `vmap` over the pullback they would be none.
        let root =
            |(y, dy): (&Tensor, &Tensor)| (fail::or_raise(y.own_state(at)).history, dy.clone());
        let roots = results.iter().zip(cotangents).map(root).filter(|r| r.0.is_tracked()).collect();
        let known: Vec<Key> = targets.iter().copied().filter(|k| k.0 != 0).collect();
        let found = fail::or_raise(of_targets(roots, &known, plan, manner).map_err(|e| e.at(at)));
        let mut found = found.into_iter();
        let gradient = |(x, key): (&Tensor, Key)| match key.0 {
            0 => zeros_of(x),
            _ => found.next().flatten().unwrap_or_else(|| zeros_of(x)),
        };
        self.leaves.iter().zip(targets).map(gradient).collect()
    }

    /// A result as the outside sees it: a constant, unless it depends on something out there.
    fn value(&self, y: &Tensor, outside: bool) -> Tensor {
        let (history, tangents) = {
            let state = y.lock();
            (state.history.clone(), state.tangents.clone())
        };
        match history.is_tracked() && !(outside && self.recorded) {
            true => y.alias(History::None, tangents),
            false => y.clone(),
        }
    }
}

impl<T> Drop for Frame<T> {
    fn drop(&mut self) {
        for x in &self.leaves {
            if let History::Leaf(leaf) = &x.lock().history {
                leaf.end();
            }
        }
    }
}

fn fresh(x: &Tensor, recorded: bool, at: &'static Location<'static>) -> Tensor {
    let state = fail::or_raise(x.state(at));
    if !(recorded && state.history.is_tracked()) {
        let leaf = x.argument(History::None, state.tangents);
        leaf.become_leaf();
        return leaf;
    }
    let copy = x.argument(History::None, Tangents::new());
    fail::or_raise(apply::record_as(Op::Copy, &[x], &copy, at));
    copy
}
