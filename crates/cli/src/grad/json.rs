//! The findings as JSON.

use super::Findings;
use pullback::Tensor;
use pullback_explore::number::to_json;
use pullback_explore::sweep::LocalDerivative;
use serde_json::{Map, Value, json};

/// One object: `expression`, `inputs`, `steps`, `result`, `gradient`, and what else was requested.
pub fn of(found: &Findings) -> Value {
    let (graph, sweep) = (&found.graph, &found.sweep);
    let full = 17;
    let step = |k: usize| {
        let edges = sweep.edges[k].iter().map(|edge| {
            json!({
                "operand": graph.name(edge.operand, full),
                "local": match &edge.local {
                    LocalDerivative::Whole(x) => to_json(x),
                    LocalDerivative::Diagonal(x) => json!({ "diagonal": to_json(x) }),
                    LocalDerivative::Large(shape) => json!({ "shape": shape }),
                    LocalDerivative::Zero => json!(0.0),
                },
                "contribution": to_json(&edge.contribution),
            })
        });
        json!({
            "name": graph.step_name(k),
            "formula": graph.formula(&graph.steps[k], full),
            "value": to_json(&sweep.values[k]),
            "adjoint": to_json(&sweep.adjoints[k]),
            "operands": edges.collect::<Vec<_>>(),
        })
    };
    let by_name = |values: &[Tensor]| -> Value {
        let pairs = graph.inputs.iter().zip(values);
        Value::Object(pairs.map(|((name, _), x)| (name.clone(), to_json(x))).collect::<Map<_, _>>())
    };
    let mut out = json!({
        "expression": graph.source,
        "inputs": by_name(&graph.arguments()),
        "steps": (0..graph.steps.len()).map(step).collect::<Vec<_>>(),
        "result": { "name": graph.name(graph.result, full), "value": to_json(&sweep.result) },
        "cotangent": to_json(&sweep.cotangent),
        "gradient": by_name(&sweep.gradient),
    });
    if let Some(passes) = &found.tangents {
        let pass = |p: &pullback_explore::sweep::TangentPass| {
            json!({
                "input": graph.inputs[p.input].0,
                "element": p.element,
                "steps": p.steps.iter().map(to_json).collect::<Vec<_>>(),
                "result": to_json(&p.result),
            })
        };
        out["forward"] = passes.iter().map(pass).collect();
    }
    if let Some(jacobian) = &found.jacobian {
        out["jacobian"] = by_name(jacobian);
    }
    if let Some(rows) = &found.hessian {
        let named =
            graph.inputs.iter().zip(rows).map(|((name, _), row)| (name.clone(), by_name(row)));
        out["hessian"] = Value::Object(named.collect());
    }
    if let Some(costs) = &found.cost {
        let cost = |c: &pullback_explore::count::Cost| {
            let figures = json!({
                "passes": c.passes, "ops": c.ops, "multiplications": c.multiplications, "kept_bytes": c.kept,
            });
            (c.name.to_string(), figures)
        };
        out["cost"] = Value::Object(costs.iter().map(cost).collect());
    }
    out
}
