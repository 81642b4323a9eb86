//! Every number in a program that the length of an axis may decide: sizes, strides, offsets, and
//! the values of literals.
//!
//! Numbers of axes, dtypes, the constants of ops (the ε of a normalisation) and which variable is
//! read are not among them: they are the skeleton, which programs of one template share.

use crate::window::{Frame, Pooling, Role, Window};
use crate::{
    Collective, Few, Fft, Flow, Inst, Layout, Linalg, Op, Padding, Program, Region, Scalar, Span,
    View,
};
use std::sync::Arc;

/// A mutable reference to a number.
pub(super) enum NumberMut<'a> {
    Size(&'a mut usize),
    Signed(&'a mut isize),
    Value(&'a mut Scalar),
}

type NumberVisitor<'a> = &'a mut dyn FnMut(NumberMut<'_>);

/// Calls `f` with every number, always in the same order.
pub(super) fn visit(program: &mut Program, f: NumberVisitor) {
    for spec in &mut program.specs {
        sizes(&mut spec.shape, f);
    }
    for equation in &mut program.equations {
        visit_op(&mut equation.op, f);
    }
}

fn sizes(all: &mut Few<usize>, f: NumberVisitor) {
    all.iter_mut().for_each(|n| f(NumberMut::Size(n)));
}

fn visit_op(op: &mut Op, f: NumberVisitor) {
    match op {
        Op::Literal { value, shape, dtype: _, device: _ } => {
            f(NumberMut::Value(value));
            sizes(shape, f);
        }
        Op::Iota { len, dtype: _, device: _ } => f(NumberMut::Size(len)),
        Op::Random { shape, kind: _, dtype: _ } => sizes(shape, f),
        Op::View(view) => visit_view(view, f),
        Op::Put(views) => views.iter_mut().for_each(|view| visit_view(view, f)),
        Op::Pad(paddings) => {
            for Padding { before, after, between } in paddings {
                [before, after, between].into_iter().for_each(|n| f(NumberMut::Size(n)));
            }
        }
        Op::Ranks { from, count, axis: _, descending: _ } => {
            f(NumberMut::Size(from));
            f(NumberMut::Size(count));
        }
        Op::Conv(conv) => {
            conv.windows.iter_mut().for_each(|window| visit_window(window, f));
            match &mut conv.role {
                Role::Input(shape) => sizes(shape, f),
                Role::Forward | Role::Filter => {}
            }
        }
        Op::Pool(pool) => {
            for frame in &mut pool.frames {
                match frame {
                    Frame::Sliding(window) => visit_window(window, f),
                    Frame::Even(count) => f(NumberMut::Size(count)),
                }
            }
            match &mut pool.kind {
                Pooling::Spread(shape) | Pooling::Give(shape) => sizes(shape, f),
                Pooling::Sum | Pooling::ArgMax | Pooling::Take => {}
            }
        }
        Op::Linalg(Linalg::Permutation(n)) => f(NumberMut::Size(n)),
        Op::Fft(Fft::Hermitian { len, axis: _ }) => f(NumberMut::Size(len)),
        Op::Region(region) | Op::DotRegion(region) => visit_region(Arc::make_mut(region), f),
        Op::Flow(flow) => match Arc::make_mut(flow) {
            Flow::Cond { yes, no } => {
                visit(yes, f);
                visit(no, f);
            }
            Flow::While { test, body, shared: _ } => {
                visit(test, f);
                visit(body, f);
            }
            Flow::Scan(scan) => {
                f(NumberMut::Size(&mut scan.length));
                visit(&mut scan.body, f);
            }
        },
        Op::Linalg(
            Linalg::Cholesky
            | Linalg::TriangularSolve { .. }
            | Linalg::Lu
            | Linalg::LuSolve { .. }
            | Linalg::Qr { .. }
            | Linalg::Eigh
            | Linalg::Spectrum { .. }
            | Linalg::Svd { .. },
        )
        | Op::Fft(Fft::Complex { .. } | Fft::Real(_)) => {}
        Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => {}
        Op::To(_)
        | Op::Cast(_)
        | Op::Copy
        | Op::After
        | Op::Wait
        | Op::Transfer(_)
        | Op::Cat(_)
        | Op::Gather(_)
        | Op::Scatter(..) => {}
        Op::Reduce(..) | Op::ArgReduce(..) | Op::Cumulate { .. } | Op::Sort { .. } | Op::Dot => {}
        // Kernels and bodies are compared as a whole; bodies are inlined before templates are
        // fitted.
        Op::Fused(_) | Op::Custom(_) => {}
        Op::Collective(of) => match &mut Arc::make_mut(of).collective {
            Collective::Recv { spec, .. } => sizes(&mut spec.shape, f),
            Collective::AllReduce(_) | Collective::AllGather | Collective::ReduceScatter => {}
            Collective::Broadcast { .. } | Collective::AllToAll | Collective::Send { .. } => {}
            Collective::Barrier => {}
        },
    }
}

fn visit_view(view: &mut View, f: NumberVisitor) {
    match view {
        View::Reshape(shape) | View::Broadcast(shape) => sizes(shape, f),
        View::Slice(spans) => {
            for Span { start, len, step } in spans {
                [start, len, step].into_iter().for_each(|n| f(NumberMut::Size(n)));
            }
        }
        View::Diagonal { offset, a: _, b: _ } => f(NumberMut::Signed(offset)),
        View::Unfold { size, step, axis: _ } => {
            f(NumberMut::Size(size));
            f(NumberMut::Size(step));
        }
        View::Permute(_) | View::Flip(_) => {}
    }
}

fn visit_window(window: &mut Window, f: NumberVisitor) {
    let Window { size, stride, dilation, before, after } = window;
    [size, stride, dilation].into_iter().for_each(|n| f(NumberMut::Size(n)));
    [before, after].into_iter().for_each(|n| f(NumberMut::Signed(n)));
}

fn visit_region(region: &mut Region, f: NumberVisitor) {
    sizes(&mut region.shape, f);
    for load in &mut region.inputs {
        sizes(&mut load.spec.shape, f);
        let Layout { shape, strides, offset } = &mut load.layout;
        sizes(shape, f);
        strides.iter_mut().for_each(|n| f(NumberMut::Signed(n)));
        f(NumberMut::Size(offset));
    }
    for inst in &mut region.body {
        match inst {
            Inst::Literal(value, _) => f(NumberMut::Value(value)),
            Inst::Point(op, _) => visit_op(op, f),
            Inst::Load(_) | Inst::Index(..) | Inst::Random(..) | Inst::Reduce(..) => {}
        }
    }
}
