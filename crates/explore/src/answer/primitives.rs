//! What one step of an expression is to the engine: the ops of its tape, and what they keep.

use super::tape::Tape;
use pullback::record_file::Recording;
use pullback::{Recorder, Tensor};
use serde_json::{Value, json};

/// The ops of a step.
pub struct Primitives {
    /// Each op, with its result and what it keeps.
    pub primitives: Vec<Value>,
    /// All that is kept for backward.
    pub saved: Vec<Value>,
    /// The family of the only op, or `composite`.
    pub family: String,
}

/// Runs a step alone, on leaves with the values of its operands, and lists what was recorded.
pub fn of_step(tape: &Tape, k: usize) -> Primitives {
    let step = &tape.graph().steps[k];
    let operands: Vec<Tensor> = step
        .operands
        .iter()
        .map(|&r| {
            let x = tape.value(r).deep_clone();
            let constant = matches!(r, crate::expression::ValueRef::Constant(_));
            if constant || !x.dtype().is_float() { x } else { x.requires_grad() }
        })
        .collect();
    let names = operands.iter().enumerate();
    let recorder = names.fold(Recorder::new(), |all, (i, x)| all.name(i.to_string(), x));
    let recorded = recorder.capture(|| pullback::catch(|| step.apply(&operands)));
    match recorded {
        Ok((Ok(_), recording)) => listed(tape, k, &recording),
        _ => Primitives { primitives: Vec::new(), saved: Vec::new(), family: "composite".into() },
    }
}

fn listed(tape: &Tape, k: usize, recording: &Recording) -> Primitives {
    let step = &tape.graph().steps[k];
    let last = recording.nodes.len().saturating_sub(1);
    // Operands have their places as names.
    let outer = |node: usize| -> Option<usize> {
        let label = recording.nodes[node].label.map(|label| &recording.labels[label as usize]);
        match label.and_then(|label| label.parse::<usize>().ok()) {
            Some(place) => Some(tape.id(step.operands[place])),
            None => (node == last).then(|| tape.id(crate::expression::ValueRef::GraphStep(k))),
        }
    };
    let (mut primitives, mut saved, mut families) = (Vec::new(), Vec::new(), Vec::new());
    for (i, node) in recording.nodes.iter().enumerate() {
        let Some(op) = node.op else { continue };
        let (name, family) = &recording.names[op as usize];
        families.push(family.clone());
        let mut kept = Vec::new();
        for note in &node.saved {
            let what = match note.result {
                true => "result".to_string(),
                false => format!("operand {}", note.index),
            };
            let of = match note.result {
                true => Some(i),
                false => node.operands.get(note.index as usize).map(|&n| n as usize),
            };
            saved.push(json!({
                "what": what, "node": of.and_then(outer), "bytes": note.bytes, "op": name,
            }));
            kept.push(what);
        }
        let bytes: u64 = node.saved.iter().map(|note| note.bytes).sum();
        primitives.push(json!({
            "op": name, "text": recording.ops[op as usize],
            "spec": recording.specs[node.spec as usize].0, "saved": kept, "bytes": bytes,
        }));
    }
    let work = families.iter().filter(|family| *family != "view").collect::<Vec<_>>();
    let family = match &work[..] {
        [one] => (*one).clone(),
        [] => families.first().cloned().unwrap_or_else(|| "composite".into()),
        _ => "composite".into(),
    };
    Primitives { primitives, saved, family }
}
