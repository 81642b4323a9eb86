//! The two sweeps, as the library computes them.
//!
//! Reverse: one backward pass, with a hook on every step that notes the adjoint that passes. Each
//! step by itself, at the values it had, gives its local derivatives (its Jacobian) and what it
//! contributes to the adjoints of its operands (its pullback of its own adjoint). The contributions
//! to a value must add up to its adjoint, and the adjoints of the variables must be what `vjp`
//! gives; that is checked here, each time.

use crate::error::{Answer, ExplorerError};
use crate::expression::{Graph, GraphStep, ValueRef};
use pullback::{Backward, Tensor, catch, jacobian, jvp, vjp};
use std::sync::{Arc, Mutex, PoisonError};

/// What one backward pass did.
pub struct BackwardSweep {
    /// The values of the steps.
    pub values: Vec<Tensor>,
    /// Whether a gradient can flow through each.
    pub tracked: Vec<bool>,
    /// The value of the whole.
    pub result: Tensor,
    /// The gradient that flowed into the result.
    pub cotangent: Tensor,
    /// The adjoints of the steps.
    pub adjoints: Vec<Tensor>,
    /// The adjoints of the variables: the gradient.
    pub gradient: Vec<Tensor>,
    /// For each step, what it did to each of its operands that is not a constant.
    pub edges: Vec<Vec<Edge>>,
}

/// A step and one of its operands.
pub struct Edge {
    /// The operand.
    pub operand: ValueRef,
    /// The derivative of the step by it.
    pub local: LocalDerivative,
    /// What the step added to the operand's adjoint.
    pub contribution: Tensor,
}

/// A local derivative.
pub enum LocalDerivative {
    /// As it is: a number, or a tensor of the step's shape followed by the operand's.
    Whole(Tensor),
    /// Element by element: the Jacobian is diagonal.
    Diagonal(Tensor),
    /// Too large to be shown; its shape.
    Large(Vec<usize>),
    /// The step is piecewise constant, or cuts the gradient.
    Zero,
}

/// The tangents of one forward pass.
pub struct TangentPass {
    /// The variable.
    pub input: usize,
    /// Which of its elements; empty for a plain number.
    pub element: Vec<usize>,
    /// The tangents of the steps.
    pub steps: Vec<Tensor>,
    /// The tangent of the result.
    pub result: Tensor,
}

/// Jacobians up to this size are computed and shown.
const SHOWN: usize = 144;

impl BackwardSweep {
    /// Runs the expression forward and backward.
    ///
    /// # Errors
    /// If there is no derivative, or the pieces do not add up.
    pub fn new(graph: &Graph, cotangent: &Tensor) -> Answer<BackwardSweep> {
        let inputs: Vec<Tensor> =
            graph.arguments().iter().map(|x| x.detach().requires_grad()).collect();
        let values = catch(|| graph.run(&inputs))?;
        let result = graph.pick(graph.result, &inputs, &values);
        let adjoints = adjoints(&values, &result, cotangent)?;
        let gradient =
            inputs.iter().map(|x| x.grad().unwrap_or_else(|| x.detach().zeros_like())).collect();
        let sweep = BackwardSweep {
            tracked: values.iter().map(Tensor::is_tracked).collect(),
            edges: catch(|| edges(graph, &inputs, &values, &adjoints))?,
            result: result.detach(),
            cotangent: cotangent.clone(),
            values: values.iter().map(Tensor::detach).collect(),
            adjoints,
            gradient,
        };
        sweep.check(graph)?;
        Ok(sweep)
    }

    fn check(&self, graph: &Graph) -> Answer {
        let inputs = graph.arguments();
        let again = catch(|| vjp(|x: &Vec<Tensor>| graph.value(x), &inputs).1(&self.cotangent))?;
        for ((name, _), (a, b)) in graph.inputs.iter().zip(self.gradient.iter().zip(&again)) {
            same(a, b, &format!("the gradient by {name}"))?;
        }
        let places = (0..self.values.len())
            .map(ValueRef::GraphStep)
            .chain((0..inputs.len()).map(ValueRef::Input));
        for (place, adjoint) in places.zip(self.adjoints.iter().chain(&self.gradient)) {
            let parts = self.contributions(graph, place);
            if let Some(sum) = parts.into_iter().reduce(|a, b| a + b) {
                same(&sum, adjoint, &format!("the adjoint of {}", graph.name(place, 5)))?;
            }
        }
        Ok(())
    }

    /// What was added to the adjoint of a value, the cotangent of the result included.
    fn contributions(&self, graph: &Graph, of: ValueRef) -> Vec<Tensor> {
        let root = (graph.result == of).then(|| self.cotangent.clone());
        let edges = self.edges.iter().flatten().filter(|edge| edge.operand == of);
        root.into_iter().chain(edges.map(|edge| edge.contribution.clone())).collect()
    }
}

/// The gradients that pass the steps on the way back; those of the variables are left in the
/// leaves.
fn adjoints(values: &[Tensor], result: &Tensor, cotangent: &Tensor) -> Answer<Vec<Tensor>> {
    let seen: Arc<Mutex<Vec<Option<Tensor>>>> = Arc::new(Mutex::new(vec![None; values.len()]));
    for (k, value) in values.iter().enumerate().filter(|(_, value)| value.is_tracked()) {
        let seen = seen.clone();
        value.register_hook(move |dy| {
            seen.lock().unwrap_or_else(PoisonError::into_inner)[k] = Some(dy.clone());
            None
        });
    }
    if result.is_tracked() {
        Backward::of(result).cotangent(cotangent).run()?;
    }
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let pairs = seen.into_iter().zip(values);
    Ok(pairs
        .map(|(seen, value)| match seen {
            Some(adjoint) => adjoint,
            // Piecewise constant: no gradient arrives, but the cotangent of the result is known.
            None if value.is_same(result) => cotangent.clone(),
            None => value.detach().zeros_like(),
        })
        .collect())
}

/// A step by itself, at the values that its operands have.
pub struct IsolatedStep<'a> {
    step: &'a GraphStep,
    /// The operands that a gradient flows to, each once.
    pub real: Vec<ValueRef>,
    /// Their values.
    pub at: Vec<Tensor>,
    /// The values of all operands.
    fixed: Vec<Tensor>,
}

impl<'a> IsolatedStep<'a> {
    /// The step of this number, for tracked inputs and the values of all steps.
    pub fn new(
        graph: &'a Graph,
        k: usize,
        inputs: &[Tensor],
        values: &[Tensor],
    ) -> IsolatedStep<'a> {
        let step = &graph.steps[k];
        let fixed = |r: &ValueRef| graph.pick(*r, inputs, values).detach();
        // Booleans, and what is piecewise constant, are constants to the tape: nothing flows to
        // them.
        let followed = |r: &ValueRef| graph.pick(*r, inputs, values).is_tracked();
        let real: Vec<ValueRef> = step.variables().into_iter().filter(followed).collect();
        let at = real.iter().map(fixed).collect();
        IsolatedStep { step, real, at, fixed: step.operands.iter().map(fixed).collect() }
    }

    /// Its value where these are the values of the operands in [`IsolatedStep::real`].
    pub fn call(&self, x: &[Tensor]) -> Tensor {
        let operand = |(r, fixed): (&ValueRef, &Tensor)| match self.real.iter().position(|k| k == r)
        {
            Some(i) => x[i].clone(),
            None => fixed.clone(),
        };
        let operands: Vec<Tensor> =
            self.step.operands.iter().zip(&self.fixed).map(operand).collect();
        self.step.apply(&operands)
    }
}

/// What each step did to its operands.
fn edges(
    graph: &Graph,
    inputs: &[Tensor],
    values: &[Tensor],
    adjoints: &[Tensor],
) -> Vec<Vec<Edge>> {
    let mut out = Vec::new();
    for k in 0..graph.steps.len() {
        let alone = IsolatedStep::new(graph, k, inputs, values);
        let zero = |(r, x): (ValueRef, &Tensor)| Edge {
            operand: r,
            local: LocalDerivative::Zero,
            contribution: x.zeros_like(),
        };
        if !values[k].is_tracked() || alone.at.is_empty() {
            // Nothing flows through it; its operands are listed with zeros.
            out.push(alone.real.iter().copied().zip(&alone.at).map(zero).collect());
            continue;
        }
        let call = |x: &Vec<Tensor>| alone.call(x);
        let parts = vjp(call, &alone.at).1(&adjoints[k]);
        let at = &alone.at;
        let small = at.iter().map(Tensor::len).max().unwrap_or(0) * values[k].len() <= SHOWN;
        let locals: Vec<LocalDerivative> = match small {
            true => jacobian(call)(at).into_iter().zip(at).map(|(j, x)| local(j, x)).collect(),
            false => at
                .iter()
                .map(|x| LocalDerivative::Large([values[k].shape(), x.shape()].concat()))
                .collect(),
        };
        let edge = |((operand, local), contribution)| Edge { operand, local, contribution };
        out.push(alone.real.iter().copied().zip(locals).zip(parts).map(edge).collect());
    }
    out
}

/// A Jacobian, as its diagonal if that is all there is.
fn local(jacobian: Tensor, x: &Tensor) -> LocalDerivative {
    let n = x.len();
    if x.rank() == 0 || jacobian.len() != n * n || jacobian.rank() != 2 * x.rank() {
        return LocalDerivative::Whole(jacobian);
    }
    let values = jacobian.to_f64_vec();
    let off = values.iter().enumerate().filter(|(i, _)| i / n != i % n);
    match off.into_iter().all(|(_, &v)| v == 0.0) && n > 1 {
        true => LocalDerivative::Diagonal(jacobian.reshape([n, n]).diagonal().reshape(x.shape())),
        false => LocalDerivative::Whole(jacobian),
    }
}

/// One forward pass: the tangents of all steps and of the result along a direction. A variable
/// without a direction is a constant: a tangent of 0 times a slope that is infinite would be NaN.
///
/// # Errors
/// If an op has no forward rule there.
pub fn along(graph: &Graph, direction: &[Option<Tensor>]) -> Answer<(Vec<Tensor>, Tensor)> {
    let inputs = graph.arguments();
    let moving: Vec<usize> = (0..inputs.len()).filter(|&i| direction[i].is_some()).collect();
    let at: Vec<Tensor> = moving.iter().map(|&i| inputs[i].clone()).collect();
    let tangents: Vec<Tensor> = moving.iter().filter_map(|&i| direction[i].clone()).collect();
    let all = |x: &Vec<Tensor>| {
        let mut values = inputs.clone();
        moving.iter().zip(x).for_each(|(&i, x)| values[i] = x.clone());
        let steps = graph.run(&values);
        let result = graph.pick(graph.result, &values, &steps);
        // Booleans have no tangents.
        let real = |x: &Tensor| {
            if x.dtype().is_float() { x.clone() } else { x.cast(pullback::DType::F64) }
        };
        (steps.iter().map(real).collect::<Vec<_>>(), result)
    };
    Ok(catch(|| jvp(all, &at, &tangents).1)?)
}

/// One pass for each element of each variable.
///
/// # Errors
/// If an op has no forward rule there, or the tangents contradict the reverse sweep.
pub fn forward(graph: &Graph, sweep: &BackwardSweep) -> Answer<Vec<TangentPass>> {
    let inputs = graph.arguments();
    let mut passes = Vec::new();
    for (input, x) in inputs.iter().enumerate() {
        for flat in 0..x.len() {
            let mut basis = vec![0.0; x.len()];
            basis[flat] = 1.0;
            let mut direction = vec![None; inputs.len()];
            direction[input] = Some(Tensor::from_vec(basis, x.shape()));
            let (steps, result) = along(graph, &direction)?;
            let along = (&result * &sweep.cotangent).sum();
            // The other elements of this one still have tangents of 0, so NaN here says nothing
            // about reverse mode.
            if !along.item::<f64>().is_nan() {
                let reverse = Tensor::from(sweep.gradient[input].to_f64_vec()[flat]);
                same(&along, &reverse, &format!("forward mode by {}", graph.inputs[input].0))?;
            }
            passes.push(TangentPass { input, element: unravelled(flat, x.shape()), steps, result });
        }
    }
    Ok(passes)
}

/// The index of an element from its number.
fn unravelled(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, &n) in shape.iter().enumerate().rev() {
        index[i] = flat % n;
        flat /= n;
    }
    index
}

/// Two ways to the same numbers: sums in another order may differ in the last digits, not more.
fn same(a: &Tensor, b: &Tensor, what: &str) -> Answer {
    let near = |x: f64, y: f64| {
        x == y
            || (x.is_nan() && y.is_nan())
            || (x - y).abs() <= 1e-9 * x.abs().max(y.abs()).max(1.0)
    };
    let (x, y) = (a.to_f64_vec(), b.to_f64_vec());
    match x.iter().zip(&y).find(|(x, y)| !near(**x, **y)) {
        Some((x, y)) => Err(ExplorerError::engine(format!(
            "{what} is {x} one way and {y} the other: please report this"
        ))),
        None => Ok(()),
    }
}
