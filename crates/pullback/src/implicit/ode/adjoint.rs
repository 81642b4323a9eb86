//! The rule of [`ode`](super::ode): the adjoint equation, as an `ode`.

use super::{Ode, VectorField, steps};
use crate::implicit::flat::DependenceCheck;
use crate::{Tensor, cat, custom_vjp, kinks, mode, scan_reverse, stack, trace, vjp};
use pullback_ir::Line;
use std::sync::Arc;

/// The solution at the times, with the derivative by the adjoint equation. If the field is the
/// user's own, its captures have not been checked.
#[track_caller]
pub(super) fn solve(
    options: Ode,
    field: VectorField,
    theta: &[Tensor],
    y0: &Tensor,
    times: &Tensor,
    (own, at): (bool, Line),
) -> Tensor {
    if y0.is_empty() {
        return times.unsqueeze(1) * y0.unsqueeze(0);
    }
    type AdjointArgument = (Vec<Tensor>, Tensor, Tensor);
    let (inside, at_times) = (field.clone(), field.clone());
    let forward = move |(theta, y0, times): &AdjointArgument| {
        let watch = DependenceCheck::new("ode", at);
        let watched =
            |theta: &[Tensor], t: &Tensor, y: &Tensor| watch.call(y, |y| inside(theta, t, y));
        let run = || match own {
            true => steps::solve(&options, &watched, theta, y0, times, at),
            false => steps::solve(&options, &*inside, theta, y0, times, at),
        };
        let ys = mode::set_recording(false, run);
        (ys.clone(), (theta.clone(), times.clone(), ys))
    };
    let backward = move |(theta, times, ys): &AdjointArgument, dys: &Tensor| {
        if trace::knows(dys) && !dys.is_finite().all().item::<bool>() {
            // A gradient that overflowed stays visible, and is no error here.
            let nan = |x: &Tensor| {
                if x.dtype().is_float() { x.zeros_like() + f64::NAN } else { x.clone() }
            };
            return (theta.iter().map(nan).collect(), nan(&dys.select_at(0, 0)), nan(times));
        }
        // In units of the largest cotangent.
        let size = dys.detach().abs().max();
        let unit = size.gt(0.0).select(&size, 1.0);
        let (theta, y0, times) = pull(options, &field, theta, times, ys, &(dys / &unit), at);
        let back =
            |x: &Tensor| if x.dtype().is_float() { x * unit.cast(x.dtype()) } else { x.clone() };
        (theta.iter().map(back).collect(), back(&y0), back(&times))
    };
    let argument = (theta.to_vec(), y0.clone(), times.clone());
    let ys = custom_vjp("ode", forward, backward).trusted().call(&argument);
    if own {
        let slope = |i: usize| {
            let i = i as isize;
            at_times(theta, &times.select_at(0, i), &ys.select_at(0, i))
        };
        kinks::only_counted(|| (0..times.len()).map(slope).collect::<Vec<_>>());
    }
    ys
}

/// The cotangents of θ, y0 and the times.
fn pull(
    options: Ode,
    field: &VectorField,
    theta: &[Tensor],
    times: &Tensor,
    ys: &Tensor,
    dys: &Tensor,
    at: Line,
) -> (Vec<Tensor>, Tensor, Tensor) {
    let (steps, n) = (times.len() - 1, ys.shape()[1]);
    let layout = Arc::new(FloatLeaves::of(theta));
    let start = |x: &Tensor| x.select_at(0, 0);
    if steps == 0 {
        let zeros = theta.iter().map(Tensor::zeros_like).collect();
        return (zeros, start(dys), times.zeros_like());
    }
    let augmented = augmented(field, &layout, n);
    let to_earlier =
        |(a, sum): &(Tensor, Tensor), (y, dy, here, before): &(Tensor, Tensor, Tensor, Tensor)| {
            let a = a + dy;
            // y at a time moves with it, by its slope.
            let moved = dy.dot(&field(theta, here, y));
            let state = cat(&[y, &a, sum], 0);
            let span = stack(&[here, before], 0);
            let end = solve(options, augmented.clone(), theta, &state, &span, (false, at))
                .select_at(0, 1);
            ((end.narrow(0, n as isize, n), end.narrow(0, 2 * n as isize, layout.size)), moved)
        };
    let later = |x: &Tensor| x.narrow(0, 1, steps);
    let rows = (later(ys), later(dys), later(times), times.narrow(0, 0, steps));
    let zeros = |n: usize| ys.new_zeros([n]);
    let ((a, sum), moved) = scan_reverse(to_earlier, &(zeros(n), zeros(layout.size)), &rows);
    let first = -a.dot(&field(theta, &start(times), &start(ys)));
    (layout.split(&sum, theta), a + start(dys), cat(&[&first.reshape([1]), &moved], 0))
}

/// The field of (y, a, θ̄).
fn augmented(field: &VectorField, layout: &Arc<FloatLeaves>, n: usize) -> VectorField {
    let (field, layout) = (field.clone(), layout.clone());
    Arc::new(move |theta: &[Tensor], t: &Tensor, z: &Tensor| {
        let (y, a) = (z.narrow(0, 0, n), z.narrow(0, n as isize, n));
        let f = |(theta, y): &(Vec<Tensor>, Tensor)| field(theta, t, y);
        let (slope, pullback) = vjp(f, &(theta.to_vec(), y));
        let (theta, y) = pullback(&-a);
        cat(&[&slope, &y, &layout.join(&theta, z)], 0)
    })
}

/// The layout of the floats among the parameters in a vector.
struct FloatLeaves {
    size: usize,
}

impl FloatLeaves {
    fn of(theta: &[Tensor]) -> FloatLeaves {
        FloatLeaves { size: theta.iter().filter(|x| x.dtype().is_float()).map(Tensor::len).sum() }
    }

    fn join(&self, theta: &[Tensor], like: &Tensor) -> Tensor {
        let floats = theta.iter().filter(|x| x.dtype().is_float());
        let rows: Vec<Tensor> = floats.map(|x| x.reshape([x.len()]).cast(like.dtype())).collect();
        match rows.is_empty() {
            true => like.new_zeros([0]),
            false => cat(&rows.iter().collect::<Vec<_>>(), 0),
        }
    }

    fn split(&self, v: &Tensor, theta: &[Tensor]) -> Vec<Tensor> {
        let mut start = 0;
        let part = |x: &Tensor| match x.dtype().is_float() {
            true => {
                start += x.len();
                v.narrow(0, (start - x.len()) as isize, x.len()).reshape(x.shape()).cast(x.dtype())
            }
            false => x.zeros_like(),
        };
        theta.iter().map(part).collect()
    }
}
