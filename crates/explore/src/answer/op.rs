//! One op: J·v and Jᵀ·v side by side.

use super::tape::{Tape, derivative, shaped};
use super::value::{number, value};
use super::versioned;
use crate::error::{Answer, ExplorerError};
use crate::expression::ValueRef;
use crate::sweep::{self, IsolatedStep};
use pullback::{Tensor, catch, jacobian, jvp, vjp};
use serde_json::{Value, json};

/// Jacobians up to this many entries are given.
const ENTRIES: usize = 4096;

/// A function of several operands, at a point.
pub struct EvaluationPoint<'a> {
    /// The function.
    pub call: &'a dyn Fn(&[Tensor]) -> Tensor,
    /// The operands.
    pub at: &'a [Tensor],
    /// A direction for each.
    pub tangents: &'a [Tensor],
    /// The cotangent of the result.
    pub cotangent: &'a Tensor,
}

impl EvaluationPoint<'_> {
    /// `jvp`, `cotangent`, `inner`, and for each operand its Jacobian, its part of J·v and Jᵀ·v.
    ///
    /// # Errors
    /// If the engine has no derivative there.
    pub fn products(&self) -> Answer<(Value, Vec<Value>)> {
        let f = |x: &Vec<Tensor>| (self.call)(x);
        let at = self.at.to_vec();
        let (back, whole) = catch(|| {
            let back = vjp(f, &at).1(self.cotangent);
            (back, jvp(f, &at, &self.tangents.to_vec()).1)
        })?;
        let mut operands = Vec::new();
        for (i, x) in at.iter().enumerate() {
            let by_this = |x: &Tensor| {
                let mut all = at.clone();
                all[i] = x.clone();
                (self.call)(&all)
            };
            let (rows, columns) = (self.cotangent.len(), x.len());
            let matrix = match rows * columns <= ENTRIES {
                true => {
                    let flat = catch(|| jacobian(by_this)(x))?.to_f64_vec();
                    let row = |r: &[f64]| r.iter().map(|&v| number(v)).collect::<Vec<_>>();
                    json!(flat.chunks(columns.max(1)).map(row).collect::<Vec<_>>())
                }
                false => Value::Null,
            };
            let part = catch(|| jvp(by_this, x, &self.tangents[i]).1)?;
            operands.push(json!({
                "value": value(x), "tangent": value(&self.tangents[i]),
                "jacobian": { "rows": rows, "columns": columns, "data": matrix },
                "jv": value(&part), "jtv": value(&back[i]),
            }));
        }
        let forward = (&whole * self.cotangent).sum().item::<f64>();
        let pairs = self.tangents.iter().zip(&back);
        let reverse: f64 = pairs.map(|(v, g)| (v * g).sum().item::<f64>()).sum();
        let rest = json!({
            "jvp": value(&whole), "cotangent": value(self.cotangent),
            "inner": { "jvp_with_cotangent": number(forward), "tangent_with_vjp": number(reverse) },
        });
        Ok((rest, operands))
    }
}

/// `POST /api/op`.
///
/// # Errors
/// If the request is invalid, or the engine has no derivative there.
pub fn answer(body: &Value) -> Answer<Value> {
    let tape = Tape::of(&json!({
        "expression": body.get("expression"), "values": body.get("values"),
    }))?;
    let graph = tape.graph();
    let wanted = body.get("node").and_then(Value::as_u64).map(|id| id as usize);
    let Some(&ValueRef::GraphStep(k)) = wanted.and_then(|id| tape.nodes.get(id)) else {
        return Err(ExplorerError::request("`node` must be the number of an op").about("node"));
    };
    let inputs: Vec<Tensor> =
        graph.arguments().iter().map(|x| x.detach().requires_grad()).collect();
    let values = catch(|| graph.run(&inputs))?;
    let alone = IsolatedStep::new(graph, k, &inputs, &values);
    if alone.at.is_empty() || !tape.sweep.tracked[k] {
        return Err(ExplorerError::engine("no gradient flows through this op"));
    }
    let tangents = tangents(&tape, &alone, body)?;
    let cotangent = match body.get("cotangent") {
        None | Some(Value::Null) => or_ones(tape.sweep.adjoints[k].clone()),
        Some(given) => shaped(given, &values[k], "the cotangent", "cotangent")?,
    };
    let call = |x: &[Tensor]| alone.call(x);
    let point =
        EvaluationPoint { call: &call, at: &alone.at, tangents: &tangents, cotangent: &cotangent };
    let (rest, mut operands) = point.products()?;
    for (operand, &r) in operands.iter_mut().zip(&alone.real) {
        operand["node"] = json!(tape.id(r));
        operand["name"] = json!(graph.name(r, super::value::DIGITS));
    }
    let step = &graph.steps[k];
    Ok(versioned(json!({
        "node": wanted,
        "name": graph.step_name(k),
        "op": step.name(),
        "formula": graph.formula(step, super::value::DIGITS),
        "derivative": derivative(step.name()),
        "result": value(&values[k].detach()),
        "operands": operands,
        "jvp": rest["jvp"], "cotangent": rest["cotangent"], "inner": rest["inner"],
    })))
}

/// The directions of a request, or those of the default forward sweep.
fn tangents(tape: &Tape, alone: &IsolatedStep, body: &Value) -> Answer<Vec<Tensor>> {
    let given = match body.get("tangents") {
        None | Some(Value::Null) => None,
        Some(Value::Array(list)) if list.len() == alone.at.len() => Some(list),
        Some(_) => {
            let message = format!("`tangents` must be a list of {}", alone.at.len());
            return Err(ExplorerError::request(message).about("tangents"));
        }
    };
    if let Some(list) = given {
        let each = list.iter().zip(&alone.at);
        return each.map(|(v, x)| shaped(v, x, "the tangent", "tangents")).collect();
    }
    let direction = tape.default_direction();
    let (steps, _) = sweep::along(tape.graph(), &direction)?;
    let of = |(r, x): (&ValueRef, &Tensor)| match *r {
        ValueRef::Input(i) => direction[i].clone().unwrap_or_else(|| x.zeros_like()),
        ValueRef::GraphStep(k) => steps[k].clone(),
        ValueRef::Constant(_) => x.zeros_like(),
    };
    let all: Vec<Tensor> = alone.real.iter().zip(&alone.at).map(of).collect();
    let still = all.iter().all(is_zero);
    Ok(if still { all.iter().map(Tensor::ones_like).collect() } else { all })
}

fn is_zero(x: &Tensor) -> bool {
    x.to_f64_vec().iter().all(|&v| v == 0.0)
}

fn or_ones(x: Tensor) -> Tensor {
    if is_zero(&x) { x.ones_like() } else { x }
}
