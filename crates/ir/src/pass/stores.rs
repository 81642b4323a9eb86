//! Stores what a loop needs in two places twice.
//!
//! The next state of a scan is often one of its results too, and its present state is saved for a
//! backward pass. A value has one place in memory, so each of these is a copy in every iteration.
//! Where a region computes or reads the value, it stores it once more instead.
//!
//! Guarantees: the same bits. Only the bodies of scans change.

use super::rebuild::with_programs;
use crate::{Flow, Inst, Layout, Op, Program, Region, Scan, Var};
use std::sync::Arc;

/// Gives regions in the bodies of scans a result for each place that a value goes to.
///
/// ```
/// use pullback_ir::{Program, pass::stores};
/// let text = "program (h: f32[4], x: f32[9,4]) {
///   let a: f32[4], b: f32[9,4], c: f32[9,4] = scan{length=9,reverse=false,shared=0,carry=1,kept=0,
///     body=(h: f32[4], x: f32[4]) {
///       let y: f32[4] = region{shape=[4],inner=0,inputs=[f32[4], f32[4]],body=[
///         v0 = load 0; v1 = load 1; v2 = add v0 v1],outputs=[v2]} h x
///       return y, y, h
///     }
///   } h x
///   return a, b, c
/// }";
/// let program: Program = text.parse().unwrap();
/// assert!(stores(&program).to_string().contains("outputs=[v2,v2,v0]"));
/// ```
#[must_use]
pub fn stores(program: &Program) -> Program {
    let mut out = program.clone();
    for e in &mut out.equations {
        e.op = match &e.op {
            Op::Flow(flow) => match &**flow {
                Flow::Scan(scan) => {
                    let body = stored_apart(stores(&scan.body), scan);
                    Op::Flow(Arc::new(Flow::Scan(Scan { body, ..scan.clone() })))
                }
                Flow::Cond { .. } | Flow::While { .. } => with_programs(&e.op, stores),
            },
            _ => continue,
        };
    }
    out
}

/// With a variable of its own for each output that a region can store.
fn stored_apart(mut body: Program, scan: &Scan) -> Program {
    for k in 0..body.outputs.len() {
        let v = body.outputs[k];
        let given = body.inputs.contains(&v);
        // State that stays is in its place.
        let stays = k < scan.carry && body.inputs[scan.shared + k] == v;
        if stays || !given && !body.outputs[..k].contains(&v) {
            continue;
        }
        let found = match given {
            true => read_by(&body, v),
            false => made_by(&body, v),
        };
        let Some((e, value)) = found else { continue };
        let new = body.fresh(body.spec(v).clone());
        if let Op::Region(region) = &mut body.equations[e].op {
            Arc::make_mut(region).outputs.push(value);
            body.equations[e].outputs.push(new);
            body.outputs[k] = new;
        }
    }
    body
}

/// The region that computes a variable, and the number of its value.
fn made_by(body: &Program, v: Var) -> Option<(usize, usize)> {
    body.equations.iter().enumerate().find_map(|(e, equation)| {
        let Op::Region(region) = &equation.op else { return None };
        let result = equation.outputs.iter().position(|&y| y == v)?;
        Some((e, region.outputs[result]))
    })
}

/// The last region that reads all of a variable, in order, and the number of its value.
fn read_by(body: &Program, v: Var) -> Option<(usize, usize)> {
    let found = |region: &Region, k: usize| -> Option<usize> {
        let whole = region.inputs[k].layout == Layout::dense(region.shape.clone());
        let same = whole && region.shape == body.spec(v).shape;
        let value = region.body.iter().position(|inst| matches!(inst, Inst::Load(n) if *n == k))?;
        same.then_some(value)
    };
    body.equations.iter().enumerate().rev().find_map(|(e, equation)| {
        let Op::Region(region) = &equation.op else { return None };
        let mut reads = (0..equation.inputs.len()).filter(|&k| equation.inputs[k] == v);
        Some((e, reads.find_map(|k| found(region, k))?))
    })
}
