//! `particle` and `saddle` compared with the same algorithms with derivatives written out by hand.

mod common;

use common::{Tool, assert_close};
use serde_json::json;

/// Descent as the evals want it, on numbers, with a gradient that is given.
fn argmin<const N: usize>(
    f: impl Fn([f64; N]) -> f64,
    slope: impl Fn([f64; N]) -> [f64; N],
    start: [f64; N],
) -> [f64; N] {
    let length = |v: [f64; N]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
    let (mut x, mut value, mut here) = (start, f(start), slope(start));
    let (mut rate, mut downs) = (1e-5, 0);
    loop {
        if length(here) <= 1e-5 {
            return x;
        }
        if downs == 10 {
            (rate, downs) = (rate * 2.0, 0);
            continue;
        }
        let next: [f64; N] = std::array::from_fn(|i| x[i] - rate * here[i]);
        if length(std::array::from_fn(|i| x[i] - next[i])) <= 1e-5 {
            return x;
        }
        let there = f(next);
        if there < value {
            (x, value, here, downs) = (next, there, slope(next), downs + 1);
        } else {
            (rate, downs) = (rate / 2.0, 0);
        }
    }
}

/// Where a flight crosses the axis, squared, and its derivative by w: force and sensitivities
/// written out.
fn flight(w: f64) -> (f64, f64) {
    let charges = [([10.0, 10.0 - w], -1.0), ([10.0, 0.0], 0.0)];
    let (mut x, mut v) = ([0.0, 8.0], [0.75, 0.0]);
    let (mut dx, mut dv) = ([0.0; 2], [0.0; 2]);
    loop {
        // The force of a charge at c is (x − c)/|x − c|³, and moves with x and with c.
        let (mut a, mut da) = ([0.0; 2], [0.0; 2]);
        for (c, dc) in charges {
            let d = [x[0] - c[0], x[1] - c[1]];
            let dd = [dx[0], dx[1] - dc];
            let r2 = d[0] * d[0] + d[1] * d[1];
            let r3 = r2 * r2.sqrt();
            let along = (d[0] * dd[0] + d[1] * dd[1]) / r2;
            for i in 0..2 {
                a[i] += d[i] / r3;
                da[i] += dd[i] / r3 - 3.0 * d[i] / r3 * along;
            }
        }
        for i in 0..2 {
            x[i] += 0.1 * v[i];
            dx[i] += 0.1 * dv[i];
        }
        if x[1] <= 0.0 {
            let (t, dt) = (-x[1] / v[1], -dx[1] / v[1] + x[1] * dv[1] / (v[1] * v[1]));
            let (at, d_at) = (x[0] + t * v[0], dx[0] + dt * v[0] + t * dv[0]);
            return (at * at, 2.0 * at * d_at);
        }
        for i in 0..2 {
            v[i] += 0.1 * a[i];
            dv[i] += 0.1 * da[i];
        }
    }
}

#[test]
fn the_written_out_sensitivity_is_a_derivative() {
    let h = 1e-6;
    let (up, down) = (flight(0.1 + h).0, flight(0.1 - h).0);
    // Central differences: the error is of the order h², and rounding of 1e-16/h.
    assert!((flight(0.1).1 - (up - down) / (2.0 * h)).abs() < 1e-6);
}

#[test]
fn particle_flies_through_the_origin_in_all_four_modes() {
    let mut tool = Tool::start();
    for start in [0.0, 0.15, 0.3] {
        let [expected] = argmin(|[w]| flight(w).0, |[w]| [flight(w).1], [start]);
        for modes in ["ff", "fr", "rf", "rr"] {
            let found = tool.evaluate("particle", modes, json!({ "w": start }));
            // The same steps up to rounding, which hundreds of them enlarge.
            assert_close(&found, &[expected], 1e-9);
        }
    }
}

#[test]
fn saddle_is_found_in_all_four_modes() {
    let mut tool = Tool::start();
    for start in [[1.0, 1.0], [-0.4, 2.0], [0.0, 0.0]] {
        // f = |x|² − |y|²: both slopes are known, and the largest value for any x is at the same y.
        let square = |v: [f64; 2]| v[0] * v[0] + v[1] * v[1];
        let twice = |v: [f64; 2]| [2.0 * v[0], 2.0 * v[1]];
        let y = argmin(square, twice, start);
        let x = argmin(|x| square(x) - square(y), twice, start);
        for modes in ["ff", "fr", "rf", "rr"] {
            let found = tool.evaluate("saddle", modes, json!({ "start": start }));
            let expected = [x, y].concat();
            // Near zero, so an absolute tolerance: the largest number is the start's.
            common::numbers(&found).iter().zip(&expected).for_each(|(a, b)| {
                assert!((a - b).abs() < 1e-9, "{modes} from {start:?}: {found}, not {expected:?}");
            });
        }
    }
}
