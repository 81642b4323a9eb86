//! How a program is launched, in words.

use crate::program::{CodeStep, LaunchGroup, StepAction, StepCode};
use pullback_ir::Flow;
use std::sync::PoisonError;

/// From so many parts on, their graphs are one line.
const MANY: usize = 16;

impl StepCode {
    /// How it is launched, for reports.
    pub fn notes(&self) -> Vec<String> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes = Vec::new();
        let is_copy = |n: usize| {
            matches!(self.steps[n].action, StepAction::CopyStart(..) | StepAction::CopyEnd(..))
        };
        let copies = (0..self.steps.len()).filter(|&n| is_copy(n)).count();
        if copies > 0 {
            notes.push(format!(
                "{copies} steps start and end copies to the host and back, on streams of their \
                 own, between graphs"
            ));
        }
        let others = || parts.iter().filter(|part| !part.steps.clone().all(is_copy));
        match others().count() > MANY && copies > 0 {
            true => notes.push(together(others())),
            false => notes.extend(others().map(|part| self.of_part(part))),
        }
        for step in &self.steps {
            let StepAction::Flow(flow) = &step.action else { continue };
            for (n, code) in flow.codes.iter().enumerate() {
                let name = flow.flow.name();
                notes
                    .extend(code.notes().iter().map(|note| format!("{name}, program {n}: {note}")));
            }
        }
        notes
    }

    fn of_part(&self, part: &LaunchGroup) -> String {
        let steps = part.steps.len();
        match &part.graphs {
            None => {
                let of = |step: &CodeStep| format!("{} {}", step.name(), step.why_alone());
                let all: Vec<String> = self.steps[part.steps.clone()].iter().map(of).collect();
                all.join("; ")
            }
            Some(graphs) => match graphs.nodes() {
                None => format!("{steps} steps, launched one by one so far"),
                Some(nodes) => format!(
                    "{steps} steps as a CUDA graph of {nodes} nodes, captured {} times, launched \
                     {} times",
                    graphs.captured, graphs.replayed
                ),
            },
        }
    }
}

/// The graphs of many parts, and what is in none.
fn together<'a>(parts: impl Iterator<Item = &'a LaunchGroup>) -> String {
    let (mut graphs, mut alone, mut plain) = ([0; 3], 0, 0);
    for part in parts {
        let steps = part.steps.len();
        match &part.graphs {
            None => alone += steps,
            Some(of) if of.nodes().is_none() => plain += steps,
            Some(of) => {
                let all = [1, steps, of.nodes().unwrap_or(0)];
                graphs.iter_mut().zip(all).for_each(|(sum, n)| *sum += n);
            }
        }
    }
    let [count, steps, nodes] = graphs;
    format!(
        "{steps} steps as {count} CUDA graphs of {nodes} nodes together; {plain} launched one by \
         one so far, {alone} by themselves as they cannot be captured"
    )
}

impl CodeStep {
    /// Why it is no part of a CUDA graph, for reports.
    fn why_alone(&self) -> &'static str {
        const CAPTURED: &str = "by itself, as it cannot be captured";
        match &self.action {
            StepAction::Start(..) | StepAction::Wait(_) => {
                "by itself, as the host agrees on it with other workers"
            }
            StepAction::CopyStart(..) | StepAction::CopyEnd(..) => "beside the queue",
            StepAction::Op(_) | StepAction::Region(..) => CAPTURED,
            StepAction::AddProduct | StepAction::WideProduct => CAPTURED,
            StepAction::Flow(flow) => match &*flow.flow {
                Flow::Cond { .. } => {
                    "by itself: the condition is read on the host; conditional nodes of graphs are \
                     not used"
                }
                Flow::While { .. } => {
                    "by itself: the condition is read on the host after each iteration; \
                     conditional nodes of graphs are not used"
                }
                Flow::Scan(_) => {
                    "by itself: it would be unrolled into too many kernels, or what it contains \
                     runs by itself"
                }
            },
        }
    }
}
