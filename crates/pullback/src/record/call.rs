//! Calls of compiled functions in a recording.
//!
//! A compiled function runs as one program, so no op of it is an event. Its call is two: before,
//! when the operands have the values that it reads, and after, when the results are there. The
//! recording then has the equations of the program as it was traced, as a part of their own: ops
//! and lines are the user's, and those that are results have values. What is between was in the
//! arena, in another form (fused), and is not known. The programs are stages of the recording: of
//! the first function that is called, as traced and as it runs.

use super::file::{MAX_LIST, MAX_PROGRAM, WHOLE};
use super::model::{NodeKind, RecordedNode, Sampled};
use super::recorder::{RecorderState, sampled};
use super::stats::Stats;
use crate::Tensor;
use pullback_ir::{Line, Op, Program, Spec, Stopwatch};

/// A compiled function: as it was traced, and as it runs.
pub(crate) struct CompiledPrograms<'a> {
    pub traced: &'a Program,
    pub run: &'a Program,
}

/// A call that has begun.
pub(super) struct PendingCall {
    /// The nodes of the program's inputs.
    operands: Vec<Option<u32>>,
    at: Line,
}

impl RecorderState {
    pub(super) fn call_starts(
        &mut self,
        programs: &CompiledPrograms,
        operands: &[Option<&Tensor>],
        at: Line,
    ) {
        let operands = operands.iter().map(|x| x.and_then(|x| self.operand(x))).collect();
        self.call = Some(PendingCall { operands, at });
        if self.out.stages.is_empty() {
            let named = [("trace", programs.traced), ("compiled", programs.run)];
            let stage = |(name, program): (&str, &Program)| {
                (name.to_string(), program.renumbered().to_string())
            };
            let stages = named.map(stage);
            if stages.iter().all(|(_, text)| text.len() <= MAX_PROGRAM) {
                self.out.stages.extend(stages);
            }
        }
        self.started = Stopwatch::start();
    }

    pub(super) fn call_ran(&mut self, traced: &Program, results: &[(usize, &Tensor)]) {
        let nanos = self.started.elapsed().as_nanos() as u64;
        let Some(PendingCall { operands, at }) = self.call.take() else { return };
        let op = self.named_op("jit", "region");
        if self.is_work() {
            return self.moment_of(op, at, None, nanos);
        }
        self.calls += 1;
        let outer = self.part;
        let path = outer.map(|part| format!("{}.", self.out.parts[part as usize]));
        let path = format!("{}jit call {}", path.unwrap_or_default(), self.calls);
        self.part = self.listed_part(&path).or(outer);
        let mut nodes: Vec<Option<u32>> = vec![None; traced.specs.len()];
        for (v, node) in traced.inputs.iter().zip(operands) {
            nodes[v.index()] = node;
        }
        let mut last = None;
        for e in &traced.equations {
            let from = e.inputs.iter().take(MAX_LIST);
            let from: Vec<u32> = from.filter_map(|v| nodes[v.index()]).collect();
            let (op, line) = (self.op(&e.op), self.line(e.at.unwrap_or(at)));
            for (k, v) in e.outputs.iter().enumerate() {
                let result = results.iter().find(|(k, _)| traced.outputs.get(*k) == Some(v));
                let spec = self.spec(traced.spec(*v));
                nodes[v.index()] = self.push(RecordedNode {
                    kind: NodeKind::Op,
                    op: Some(op),
                    output: k as u32,
                    spec,
                    line: Some(line),
                    part: self.part,
                    label: None,
                    tracked: false,
                    operands: from.clone(),
                    saved: Vec::new(),
                    value: match (result, &e.op) {
                        (Some((_, y)), _) => sampled(y),
                        (None, Op::Literal { value, .. }) => {
                            literal(value.as_f64(), traced.spec(*v))
                        }
                        (None, _) => Sampled::Unknown,
                    },
                    gradient: None,
                    nanos: 0,
                });
                last = nodes[v.index()].or(last);
            }
        }
        for (k, y) in results {
            if let Some(node) = traced.outputs.get(*k).and_then(|v| nodes[v.index()]) {
                self.mark(y, node);
            }
        }
        self.part = outer;
        self.moment_of(op, at, last, nanos);
    }
}

/// A value whose elements are all this number.
fn literal(number: f64, spec: &Spec) -> Sampled {
    let count: usize = spec.shape.iter().product();
    if count <= WHOLE {
        return Sampled::Whole(vec![number; count]);
    }
    let mut stats = Stats::of(&[number]);
    let all = count as u64;
    for n in [&mut stats.count, &mut stats.nan, &mut stats.inf, &mut stats.zero] {
        *n *= all;
    }
    stats.histogram.iter_mut().for_each(|n| *n = n.saturating_mul(count as u32));
    Sampled::Stats(stats)
}
