//! How much work an equation is: an estimate that ranks equations, in floating-point operations.
//!
//! Products and convolutions count their multiplications and additions; everything counts the
//! elements that it reads and writes, once each, so that nothing but a view is free. Loops count
//! their iterations; one with an unknown number counts [`ITERATIONS`].

use crate::window::{Frame, Role};
use crate::{Equation, Flow, Fused, Inst, Linalg, Op, Program, Spec, Unary, Var, element_count};

/// Assumed iterations of a while loop.
const ITERATIONS: u64 = 16;
/// Operations of a function like `exp`, for one element.
const FUNCTION: u64 = 8;

/// The work of a program.
pub fn work(program: &Program) -> u64 {
    program.equations.iter().map(|e| work_of(program, e)).fold(0, u64::saturating_add)
}

/// The work of one of its equations.
pub(super) fn work_of(program: &Program, e: &Equation) -> u64 {
    let specs = |list: &[Var]| list.iter().map(|&v| program.spec(v)).collect::<Vec<&Spec>>();
    op_work(&e.op, &specs(&e.inputs), &specs(&e.outputs))
}

/// The work of an op on operands like these, with results like those.
pub fn op_work(op: &Op, inputs: &[&Spec], outputs: &[&Spec]) -> u64 {
    let len = |spec: &&Spec| spec.len() as u64;
    // Sizes may overflow: tensors may exceed the addressable size.
    let sum = |specs: &[&Spec]| specs.iter().map(len).fold(0, u64::saturating_add);
    let product = |list: &[u64]| list.iter().copied().fold(1, u64::saturating_mul);
    let (read, made) = (sum(inputs), sum(outputs));
    let shape = |k: usize| &inputs[k].shape[..];
    let axis = |k: usize, from_end: usize| {
        let shape = shape(k);
        shape.len().checked_sub(from_end).map_or(1, |i| shape[i] as u64)
    };
    let touched = read.saturating_add(made);
    let and = |more: u64| touched.saturating_add(more);
    match op {
        Op::Transfer(_) => 0,
        Op::View(_) | Op::After | Op::Wait | Op::Literal { .. } | Op::Iota { .. } => 0,
        // The epilogue of a product may return any part: it is counted by its operands.
        Op::Dot | Op::DotRegion(_) => and(product(&[2, len(&inputs[0]), axis(1, 1)])),
        Op::Conv(conv) => {
            // Each of its three maps does the multiplications of the forward one.
            let (images, filters) = match conv.role {
                Role::Forward => (made, shape(1)),
                Role::Input(_) => (len(&inputs[0]), shape(1)),
                Role::Filter => {
                    let images = len(&inputs[1]).max(len(&inputs[0]));
                    (images, &outputs[0].shape[..])
                }
            };
            let window = filters.iter().skip(1).map(|&n| n as u64).fold(1, u64::saturating_mul);
            and(product(&[2, images, window]))
        }
        Op::Pool(pool) => {
            let piece = |frame: &Frame| match frame {
                Frame::Sliding(window) => window.size as u64,
                Frame::Even(_) => 1,
            };
            and(pool.frames.iter().map(piece).fold(made, u64::saturating_mul))
        }
        Op::Fused(Fused::Attention(_) | Fused::AttentionVjp(_)) => {
            let keys = shape(1).iter().rev().nth(1).map_or(1, |&n| n as u64);
            let products = if matches!(op, Op::Fused(Fused::Attention(_))) { 4 } else { 10 };
            and(product(&[products, len(&inputs[0]), keys]))
        }
        Op::Fused(Fused::Distances { .. } | Fused::DistancesVjp { .. }) => {
            let forward = matches!(op, Op::Fused(Fused::Distances { .. }));
            let pairs = if forward { made } else { inputs.last().map_or(0, len) };
            and(product(&[if forward { 3 } else { 6 }, pairs, axis(0, 1)]))
        }
        // A few exponentials for each label and time.
        Op::Fused(Fused::Ctc { .. } | Fused::CtcVjp { .. }) => {
            let times = shape(0).first().map_or(1, |&t| t as u64);
            let steps = if inputs.len() == 4 { 8 } else { 24 };
            and(product(&[steps, FUNCTION, times, len(&inputs[1])]))
        }
        Op::Linalg(f) => {
            let side = axis(0, 1).max(axis(0, 2));
            let times = match f {
                Linalg::Permutation(_) => return touched,
                Linalg::Cholesky | Linalg::Lu => 1,
                Linalg::TriangularSolve { .. } | Linalg::LuSolve { .. } | Linalg::Qr { .. } => 2,
                Linalg::Spectrum { .. } => 4,
                Linalg::Eigh | Linalg::Svd { .. } => 20,
            };
            product(&[times, touched, side])
        }
        Op::Fft(_) | Op::Sort { .. } | Op::Ranks { .. } => {
            product(&[touched, u64::from(64 - touched.leading_zeros())])
        }
        Op::Unary(f) => and(product(&[made, function(*f)])),
        Op::UnaryVjp(f) => and(product(&[made, function(*f).max(2)])),
        Op::Fused(_) | Op::Random { .. } => and(product(&[FUNCTION, made])),
        Op::Cumulate { .. } => and(made),
        Op::Region(region) => {
            let each = |inst: &Inst| match inst {
                Inst::Point(Op::Unary(f), _) => 1 + function(*f),
                Inst::Random(..) => FUNCTION,
                Inst::Load(_) | Inst::Literal(..) | Inst::Index(..) => 0,
                Inst::Point(..) | Inst::Reduce(..) => 1,
            };
            let domain = element_count(&region.shape) as u64;
            let sums = region.columns.len() as u64;
            and(product(&[domain, region.body.iter().map(each).sum::<u64>() + sums]))
        }
        // A user kernel has unknown cost, so it is kept rather than recomputed.
        Op::Custom(custom) => custom.body().map_or(product(&[FUNCTION, FUNCTION, touched]), work),
        Op::Flow(flow) => match &**flow {
            Flow::Cond { yes, no } => work(yes).max(work(no)).saturating_add(made),
            Flow::While { test, body, .. } => {
                product(&[ITERATIONS, work(test).saturating_add(work(body))]).saturating_add(made)
            }
            Flow::Scan(scan) => {
                (scan.length as u64).saturating_mul(work(&scan.body)).saturating_add(made)
            }
        },
        Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Cast(_) | Op::Copy => touched,
        Op::To(_) | Op::Put(_) | Op::Pad(_) | Op::Cat(_) | Op::Gather(_) | Op::Scatter(..) => {
            touched
        }
        Op::Reduce(..) | Op::ArgReduce(..) => touched,
        // Never repeated (`Op::is_ordered`); counted as a copy.
        Op::Collective(_) => touched,
    }
}

/// What costs no more than an addition is counted by the elements that it accesses.
fn function(f: Unary) -> u64 {
    if f.cost() > 1 { FUNCTION } else { 0 }
}
