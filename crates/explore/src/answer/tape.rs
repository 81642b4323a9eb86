//! The tape of an expression: forward, backward, and with tangents.
//!
//! `sweep.rs` has what the engine did; here it becomes nodes with numbers. The registers of the
//! reverse sweep are added up in the order of the backward pass, by the engine's own addition.

use super::subject::{EvaluatedExpression, limits, object};
use super::value::{number, parsed, value};
use super::versioned;
use crate::error::{Answer, ExplorerError};
use crate::expression::{Graph, ValueRef, functions};
use crate::sweep::{self, BackwardSweep, IsolatedStep, LocalDerivative};
use pullback::{Tensor, catch, jvp};
use serde_json::{Value, json};
use std::sync::OnceLock;

/// An expression that was differentiated, with a number for each of its values.
pub struct Tape {
    /// The expression.
    pub subject: EvaluatedExpression,
    /// What the backward pass did.
    pub sweep: BackwardSweep,
    /// What each node is, by number.
    pub nodes: Vec<ValueRef>,
}

impl Tape {
    /// Runs the expression of a request forward and backward.
    ///
    /// # Errors
    /// If the request is invalid, or there is no derivative.
    pub fn of(body: &Value) -> Answer<Tape> {
        let subject = EvaluatedExpression::of(body)?;
        let result = subject.graph.value(&subject.graph.arguments());
        let cotangent = match body.get("cotangent") {
            None | Some(Value::Null) => result.ones_like(),
            Some(given) => shaped(given, &result, "the cotangent", "cotangent")?,
        };
        Tape::new(subject, &cotangent)
    }

    /// Runs an expression forward and backward.
    ///
    /// # Errors
    /// If there is no derivative.
    pub fn new(subject: EvaluatedExpression, cotangent: &Tensor) -> Answer<Tape> {
        let graph = &subject.graph;
        let sweep = BackwardSweep::new(graph, cotangent)?;
        let mut nodes: Vec<ValueRef> = (0..graph.inputs.len()).map(ValueRef::Input).collect();
        for (k, step) in graph.steps.iter().enumerate() {
            for &r in &step.operands {
                if matches!(r, ValueRef::Constant(_)) && !nodes.contains(&r) {
                    nodes.push(r);
                }
            }
            nodes.push(ValueRef::GraphStep(k));
        }
        if let r @ ValueRef::Constant(_) = graph.result
            && !nodes.contains(&r)
        {
            nodes.push(r);
        }
        Ok(Tape { sweep, nodes, subject })
    }

    /// The expression.
    pub fn graph(&self) -> &Graph {
        &self.subject.graph
    }

    /// The number of a value.
    pub fn id(&self, of: ValueRef) -> usize {
        self.nodes.iter().position(|&r| r == of).unwrap_or(0)
    }

    /// The value of a node.
    pub fn value(&self, of: ValueRef) -> Tensor {
        self.graph().pick(of, &self.graph().arguments(), &self.sweep.values)
    }

    /// The default direction: the first element of the first variable.
    pub fn default_direction(&self) -> Vec<Option<Tensor>> {
        let inputs = &self.graph().inputs;
        let mut direction = vec![None; inputs.len()];
        if let Some((_, x)) = inputs.first() {
            let mut basis = vec![0.0; x.len()];
            basis.iter_mut().take(1).for_each(|first| *first = 1.0);
            direction[0] = Some(Tensor::from_vec(basis, x.shape()));
        }
        direction
    }

    /// The direction of a request.
    fn direction(&self, body: &Value) -> Answer<Vec<Option<Tensor>>> {
        let Some(given) = object(body, "direction")? else { return Ok(self.default_direction()) };
        let mut direction = Vec::new();
        for (name, x) in &self.graph().inputs {
            let field = format!("direction.{name}");
            direction.push(match given.get(name) {
                None | Some(Value::Null) => None,
                Some(tangent) => {
                    let tangent = shaped(tangent, x, "the tangent", &field)?;
                    let moves = tangent.to_f64_vec().iter().any(|&t| t != 0.0);
                    moves.then_some(tangent)
                }
            });
        }
        Ok(direction)
    }
}

/// A value that must have the shape of another.
///
/// # Errors
/// If it has another one.
pub fn shaped(given: &Value, like: &Tensor, what: &str, field: &str) -> Answer<Tensor> {
    let x = parsed(given, limits::ELEMENTS).map_err(|problem| problem.about(field))?;
    match x.shape() == like.shape() {
        true => Ok(x),
        false => {
            let message = format!("{what} is {}, but the value is {}", x.spec(), like.spec());
            Err(ExplorerError::request(message).about(field))
        }
    }
}

/// `POST /api/expression`.
///
/// # Errors
/// If the request is invalid, or there is no derivative.
pub fn answer(body: &Value) -> Answer<Value> {
    let tape = Tape::of(body)?;
    let direction = tape.direction(body)?;
    let graph = tape.graph();
    let uses = uses(&tape);
    let nodes: Vec<Value> = (0..tape.nodes.len()).map(|id| node(&tape, id, uses[id])).collect();
    let parts: Vec<Value> =
        graph.definitions.iter().map(|name| json!({ "path": name, "parent": null })).collect();
    Ok(versioned(json!({
        "expression": graph.source,
        "title": graph.source,
        "source": "expression",
        "variables": variables(&tape),
        "defaulted": tape.subject.defaulted,
        "parts": parts,
        "from": 0,
        "total": nodes.len(),
        "nodes": nodes,
        "result": tape.id(graph.result),
        "sweep": reverse(&tape),
        "forward": forward(&tape, &direction)?,
    })))
}

/// The variables, with a range for a slider.
fn variables(tape: &Tape) -> Vec<Value> {
    let inputs = tape.graph().inputs.iter().enumerate();
    let variable = |(id, (name, x)): (usize, &(String, Tensor))| {
        let largest = x.to_f64_vec().iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let (low, high) = range(if largest.is_finite() { largest } else { 1.0 });
        json!({
            "id": id, "name": name, "value": value(x), "scalar": x.rank() == 0,
            "low": low, "high": high, "step": (high - low) / 400.0,
        })
    };
    inputs.map(variable).collect()
}

/// A range about zero that contains this size with room to move: 4, or a power of two above twice
/// the size.
pub fn range(size: f64) -> (f64, f64) {
    let mut high = 4.0;
    while high < 2.0 * size && high < 1e300 {
        high *= 2.0;
    }
    (-high, high)
}

/// How often each node is an operand.
fn uses(tape: &Tape) -> Vec<usize> {
    let mut uses = vec![0; tape.nodes.len()];
    for step in &tape.graph().steps {
        for &r in &step.operands {
            uses[tape.id(r)] += 1;
        }
    }
    uses
}

fn node(tape: &Tape, id: usize, uses: usize) -> Value {
    let graph = tape.graph();
    let of = tape.nodes[id];
    let name = graph.name(of, super::value::DIGITS);
    let common = |kind: &str, family: &str| {
        json!({
            "id": id, "kind": kind, "name": name, "op": null, "family": family, "formula": name,
            "operands": [], "value": value(&tape.value(of)), "saved": [], "line": null,
            "span": null, "part": null, "uses": uses, "tracked": kind != "constant",
            "primitives": [], "seconds": null,
        })
    };
    match of {
        ValueRef::Input(_) => common("input", "input"),
        ValueRef::Constant(_) => common("constant", "constant"),
        ValueRef::GraphStep(k) => {
            let step = &graph.steps[k];
            let mut node = common("op", "composite");
            let operands: Vec<usize> = step.operands.iter().map(|&r| tape.id(r)).collect();
            let inside = super::primitives::of_step(tape, k);
            node["op"] = json!(step.name());
            node["family"] = json!(inside.family);
            node["formula"] = json!(graph.formula(step, super::value::DIGITS));
            node["operands"] = json!(operands);
            node["span"] = json!([step.span.start, step.span.end]);
            node["part"] = json!(step.part);
            node["tracked"] = json!(tape.sweep.tracked[k]);
            node["saved"] = json!(inside.saved);
            node["primitives"] = json!(inside.primitives);
            node
        }
    }
}

/// A local derivative.
pub fn local(of: &LocalDerivative, formula: Option<&str>) -> Value {
    match of {
        LocalDerivative::Whole(x) => {
            json!({ "kind": "whole", "value": value(x), "formula": formula })
        }
        LocalDerivative::Diagonal(x) => {
            json!({ "kind": "diagonal", "value": value(x), "formula": formula })
        }
        LocalDerivative::Large(shape) => {
            json!({ "kind": "large", "shape": shape, "formula": formula })
        }
        LocalDerivative::Zero => json!({ "kind": "zero", "formula": formula }),
    }
}

/// The derivative of a function as the op table has it.
pub fn derivative(name: &str) -> Option<String> {
    static TABLE: OnceLock<String> = OnceLock::new();
    let table = TABLE.get_or_init(pullback::table::markdown);
    let start = format!("| `{name}` | ");
    let row = table.lines().find_map(|line| line.strip_prefix(&start))?;
    // A bar inside a cell is escaped.
    let row = row.replace("\\|", "\u{1}");
    let cell = row.split(" | ").next()?.replace('`', "").replace('\u{1}', "|");
    Some(cell)
}

/// The reverse sweep.
fn reverse(tape: &Tape) -> Value {
    let (graph, sweep) = (tape.graph(), &tape.sweep);
    let mut registers: Vec<Tensor> =
        tape.nodes.iter().map(|&r| tape.value(r).zeros_like()).collect();
    registers[tape.id(graph.result)] = sweep.cotangent.clone();
    let mut visits = Vec::new();
    for k in (0..graph.steps.len()).rev().filter(|&k| sweep.tracked[k]) {
        let formula = derivative(graph.steps[k].name());
        let mut contributions = Vec::new();
        for edge in &sweep.edges[k] {
            let to = tape.id(edge.operand);
            let operand = graph.steps[k].operands.iter().position(|&r| r == edge.operand);
            let before = registers[to].clone();
            registers[to] = &before + &edge.contribution;
            contributions.push(json!({
                "to": to,
                "operand": operand,
                "upstream": value(&sweep.adjoints[k]),
                "local": local(&edge.local, formula.as_deref()),
                "product": value(&edge.contribution),
                "before": value(&before),
                "after": value(&registers[to]),
            }));
        }
        visits.push(json!({
            "node": tape.id(ValueRef::GraphStep(k)),
            "adjoint": value(&sweep.adjoints[k]),
            "contributions": contributions,
        }));
    }
    let gradient: Vec<Value> = sweep
        .gradient
        .iter()
        .enumerate()
        .map(|(i, g)| json!({ "node": tape.id(ValueRef::Input(i)), "value": value(g) }))
        .collect();
    json!({
        "seed": { "node": tape.id(graph.result), "cotangent": value(&sweep.cotangent) },
        "from": 0, "total": visits.len(), "visits": visits, "gradient": gradient,
    })
}

/// Forward mode along a direction.
fn forward(tape: &Tape, direction: &[Option<Tensor>]) -> Answer<Value> {
    let (graph, sweep) = (tape.graph(), &tape.sweep);
    let inputs: Vec<Tensor> =
        graph.arguments().iter().map(|x| x.detach().requires_grad()).collect();
    let values = catch(|| graph.run(&inputs))?;
    let (steps, result) = sweep::along(graph, direction)?;
    let tangent = |r: ValueRef| match r {
        ValueRef::Input(i) => direction[i].clone(),
        ValueRef::GraphStep(k) => Some(steps[k].clone()),
        ValueRef::Constant(_) => None,
    };
    let mut tangents = Vec::new();
    for (k, along_all) in steps.iter().enumerate() {
        let alone = IsolatedStep::new(graph, k, &inputs, &values);
        let mut terms = Vec::new();
        for (i, edge) in sweep.edges[k].iter().enumerate() {
            let Some(along) = tangent(edge.operand) else { continue };
            let by_this = |x: &Tensor| {
                let mut at = alone.at.clone();
                at[i] = x.clone();
                alone.call(&at)
            };
            let product = catch(|| jvp(by_this, &alone.at[i], &along).1)?;
            terms.push(json!({
                "from": tape.id(edge.operand),
                "tangent": value(&along),
                "local": local(&edge.local, None),
                "product": value(&product),
            }));
        }
        tangents.push(json!({
            "node": tape.id(ValueRef::GraphStep(k)), "tangent": value(along_all), "terms": terms,
        }));
    }
    let forward = (&result * &sweep.cotangent).sum().item::<f64>();
    let pairs = direction.iter().zip(&sweep.gradient);
    let reverse: f64 =
        pairs.filter_map(|(v, g)| v.as_ref().map(|v| (v * g).sum().item::<f64>())).sum();
    let moves: Vec<Value> = direction
        .iter()
        .zip(&graph.inputs)
        .enumerate()
        .map(|(i, (v, (_, x)))| {
            let v = v.clone().unwrap_or_else(|| x.zeros_like());
            json!({ "node": tape.id(ValueRef::Input(i)), "tangent": value(&v) })
        })
        .collect();
    Ok(json!({
        "direction": moves,
        "tangents": tangents,
        "result": value(&result),
        "check": { "forward": number(forward), "reverse": number(reverse) },
        "passes": graph.inputs.iter().map(|(_, x)| x.len()).sum::<usize>(),
    }))
}

/// Names that can be called.
pub fn function_names() -> Vec<&'static str> {
    let mut names = functions::names();
    names.sort_unstable();
    names
}
