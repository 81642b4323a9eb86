//! The method of Dormand and Prince: steps of order 5 with an error estimate of order 4, and
//! interpolation inside a step.

use super::Ode;
use crate::implicit::flat::{known, only_if};
use crate::implicit::krylov::spacing;
use crate::{DType, Error, Tensor, Tree, cat, cond, scan, while_loop};
use pullback_ir::Line;

// Times and weights of the stages; the last stage is the first one of the next step.
const TIMES: [f64; 6] = [0.2, 0.3, 0.8, 8.0 / 9.0, 1.0, 1.0];
#[rustfmt::skip]
const STAGES: [&[f64]; 6] = [
    &[1.0 / 5.0],
    &[3.0 / 40.0, 9.0 / 40.0],
    &[44.0 / 45.0, -56.0 / 15.0, 32.0 / 9.0],
    &[19372.0 / 6561.0, -25360.0 / 2187.0, 64448.0 / 6561.0, -212.0 / 729.0],
    &[9017.0 / 3168.0, -355.0 / 33.0, 46732.0 / 5247.0, 49.0 / 176.0, -5103.0 / 18656.0],
    &[35.0 / 384.0, 0.0, 500.0 / 1113.0, 125.0 / 192.0, -2187.0 / 6784.0, 11.0 / 84.0],
];
/// The result of order 5 less that of order 4.
#[rustfmt::skip]
const ERROR: [f64; 7] = [71.0 / 57600.0, 0.0, -71.0 / 16695.0, 71.0 / 1920.0, -17253.0 / 339200.0, 22.0 / 525.0, -1.0 / 40.0];
/// The last term of the interpolation.
#[rustfmt::skip]
const BETWEEN: [f64; 7] = [
    -12715105075.0 / 11282082432.0, 0.0, 87487479700.0 / 32700410799.0, -10690763975.0 / 1880347072.0,
    701980252875.0 / 199316789632.0, -1453857185.0 / 822651844.0, 69997945.0 / 29380423.0,
];

type RightHandSide<'a> = &'a dyn Fn(&Tensor, &Tensor) -> Tensor;

/// Where the integration is, and what is known of the last step.
#[derive(Clone, Tree)]
struct OdeState {
    t: Tensor,
    y: Tensor,
    slope: Tensor,
    /// The length to try next, with its sign.
    h: Tensor,
    tries: Tensor,
    /// Where the last step began, its length, and the polynomial over it.
    from: Tensor,
    length: Tensor,
    terms: Vec<Tensor>,
}

/// Σ of products, without those with 0.
fn weighted(weights: &[f64], values: &[Tensor]) -> Tensor {
    let mut pairs = weights.iter().zip(values).filter(|(w, _)| **w != 0.0).map(|(w, v)| v * *w);
    let first = pairs.next().unwrap_or_else(|| values[0].zeros_like());
    pairs.fold(first, |sum, term| sum + term)
}

/// The solution at the times, one row each.
pub(super) fn solve(
    options: &Ode,
    field: &dyn Fn(&[Tensor], &Tensor, &Tensor) -> Tensor,
    theta: &[Tensor],
    y0: &Tensor,
    times: &Tensor,
    at: Line,
) -> Tensor {
    let f = |t: &Tensor, y: &Tensor| field(theta, t, y);
    let n = times.len();
    let first = y0.unsqueeze(0);
    if n == 1 {
        return first;
    }
    let (start, end) = (times.select_at(0, 0), times.select_at(0, -1));
    let slope = f(&start, y0);
    let init = OdeState {
        h: first_step(options, &y0.detach(), &slope.detach(), &(&end - &start).detach()),
        tries: y0.new_tensor(0i64),
        from: start.clone(),
        length: end.detach() - start.detach(),
        terms: vec![y0.zeros_like(); 5],
        t: start,
        y: y0.clone(),
        slope,
    };
    let to_target = |state: &OdeState, target: &Tensor| {
        let should_continue = |s: &OdeState| {
            let ahead = ((target - &s.t) * s.h.sign()).gt(0.0);
            let least = smallest(&s.t, &end);
            ahead.logical_and(s.h.abs().gt(least)).logical_and(s.tries.lt(options.max_steps))
        };
        let state = while_loop(should_continue, |s| step(options, &f, s, &end), state);
        let y = between(&state, target);
        (state, y)
    };
    let (last, rows) = scan(to_target, &init, &times.narrow(0, 1, n - 1));
    let steps = times.narrow(0, 1, n - 1) - times.narrow(0, 0, n - 1);
    let ordered = (steps * (&end - times.select_at(0, 0)).detach().sign()).gt(0.0).all();
    let there = last.t.eq(&end).logical_and(ordered);
    only_if(&there, cat(&[&first, &rows], 0), || failure(options, &f, &last, &end).at(at))
}

/// Below this a step does not move t any more.
fn smallest(t: &Tensor, end: &Tensor) -> Tensor {
    t.detach().abs().maximum(end.detach().abs()) * (8.0 * spacing(t.dtype()))
}

/// A first length: such that y moves by a hundredth of itself, and a thousandth of the whole where
/// that says nothing.
fn first_step(options: &Ode, y: &Tensor, slope: &Tensor, whole: &Tensor) -> Tensor {
    let scale = scale(options, &y.abs());
    let (size, speed) = (mean_square(&(y / &scale)).sqrt(), mean_square(&(slope / &scale)).sqrt());
    let known = size.gt(1e-5).logical_and(speed.gt(1e-5));
    let part = known.select(size * 0.01 / (speed * whole.abs()), 1e-3).clamp_max(0.1);
    whole * part
}

/// The error that is allowed for elements of these sizes.
fn scale(options: &Ode, size: &Tensor) -> Tensor {
    let (rtol, atol) = options.tolerances(size.dtype());
    // A tolerance of zero and a zero is no quotient.
    size * rtol + atol.max(1e-30)
}

/// The mean of squares; 0 of nothing.
fn mean_square(x: &Tensor) -> Tensor {
    x.square().sum() / x.len().max(1)
}

/// One try: either a step, or the same state with a shorter one to try.
fn step(options: &Ode, f: RightHandSide, s: &OdeState, end: &Tensor) -> OdeState {
    let left = end - &s.t;
    let is_last = left.detach().abs().le(s.h.abs() * 1.0001);
    let h = is_last.select(left, &s.h);
    let (mut k, mut y) = (vec![s.slope.clone()], s.y.clone());
    for (time, weights) in TIMES.iter().zip(STAGES) {
        y = &s.y + weighted(weights, &k) * &h;
        k.push(f(&(&s.t + &h * *time), &y));
    }
    let scale = scale(options, &s.y.detach().abs().maximum(y.detach().abs()));
    let off = mean_square(&((weighted(&ERROR, &k) * &h).detach() / scale)).sqrt();
    let accepted = off.le(1.0);
    // The error grows with the fifth power. NaN counts as an error without bound.
    let factor = off.is_nan().select_or(0.2, (off.powf(-0.2) * 0.9).clamp(0.2, 10.0));
    let next = h.detach() * factor;
    let tries = &s.tries + 1i64;
    let moved = |s: &OdeState| {
        let (whole, last) = (&y - &s.y, &k[6]);
        let bend = &k[0] * &h - &whole;
        let terms = vec![
            s.y.clone(),
            whole.clone(),
            bend.clone(),
            whole - last * &h - bend,
            weighted(&BETWEEN, &k) * &h,
        ];
        OdeState {
            t: is_last.select(end, &s.t + &h),
            y: y.clone(),
            slope: last.clone(),
            h: next.clone(),
            tries: tries.clone(),
            from: s.t.clone(),
            length: h.clone(),
            terms,
        }
    };
    let again = |s: &OdeState| OdeState { h: next.clone(), tries: tries.clone(), ..s.clone() };
    cond(&accepted, moved, again, s)
}

/// The solution at a time inside the last step.
fn between(s: &OdeState, t: &Tensor) -> Tensor {
    let [y, whole, bend, third, fourth] = &s.terms[..] else { unreachable!("five terms") };
    let part = (t - &s.from) / &s.length;
    let rest = 1.0 - &part;
    y + &part * (whole + &rest * (bend + &part * (third + &rest * fourth)))
}

/// Why the end was not reached.
fn failure(options: &Ode, f: RightHandSide, s: &OdeState, end: &Tensor) -> Error {
    let number = |x: &Tensor| known(x).unwrap_or(f64::NAN);
    let (t, end, h, tries) = (number(&s.t), number(end), number(&s.h), number(&s.tries));
    let finite = |x: &Tensor| x.is_finite().all().item::<bool>();
    if !finite(&s.y) || !finite(&f(&s.t, &s.y)) {
        let message = format!(
            "the solution or its slope is not finite at t = {t}, while integrating to t = {end}"
        );
        return Error::argument("ode", message);
    }
    if tries >= options.max_steps as f64 {
        let message = format!(
            "{tries} steps were not enough to reach t = {end}: it is at {t}, with steps of {h:e}"
        );
        return Error::argument("ode", message)
            .hint("the equation may be stiff; raise rtol(..) and atol(..), or max_steps(..)");
    }
    let message = format!(
        "at t = {t}, while integrating to t = {end}, steps of {h:e} are still too long for the tolerances"
    );
    let dtype =
        if s.y.dtype() == DType::F64 { "" } else { "f32 may be too narrow for these tolerances; " };
    Error::argument("ode", message)
        .hint(format!("{dtype}the solution may grow without bound there, or its slope jump"))
}
