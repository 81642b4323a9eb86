//! What a Jacobian costs in each mode, measured.
//!
//! y = W₂·tanh(W₁·x) from Rⁿ to Rᵐ. Forward mode needs a pass for each of the n inputs, reverse
//! mode one for each of the m results: all of them run here, and are timed.

use super::value::number;
use super::versioned;
use crate::count;
use crate::error::{Answer, ExplorerError};
use pullback::{DType, Key, Spec, Tensor, jvp, trace, vjp};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Features between input and result.
const HIDDEN: usize = 64;
/// The largest n and m.
pub const LARGEST: usize = 1024;
/// Points of a request.
pub const POINTS: usize = 32;
/// Time for one point.
const BUDGET: Duration = Duration::from_millis(350);

/// The points that the page begins with.
pub const DEFAULT: [[usize; 2]; 12] = [
    [1, 1],
    [4, 1],
    [16, 1],
    [64, 1],
    [256, 1],
    [1024, 1],
    [1, 64],
    [4, 64],
    [16, 64],
    [64, 64],
    [256, 64],
    [1024, 64],
];

/// `POST /api/cost`.
///
/// # Errors
/// If the points are not pairs of numbers within the limits.
pub fn answer(body: &Value) -> Answer<Value> {
    let wrong = || {
        let message = format!(
            "`points` must be a list of up to {POINTS} pairs [n, m], each from 1 to {LARGEST}"
        );
        ExplorerError::request(message).about("points")
    };
    let points = body.get("points").and_then(Value::as_array).ok_or_else(wrong)?;
    if points.is_empty() || points.len() > POINTS {
        return Err(wrong());
    }
    let mut measured = Vec::new();
    for point in points {
        let pair: Option<Vec<u64>> =
            point.as_array().and_then(|pair| pair.iter().map(Value::as_u64).collect());
        let Some(&[n, m]) = pair.as_deref() else { return Err(wrong()) };
        let fits = |x: u64| (1..=LARGEST as u64).contains(&x);
        if !fits(n) || !fits(m) {
            return Err(wrong());
        }
        measured.push(measure(n as usize, m as usize)?);
    }
    Ok(versioned(json!({ "hidden": HIDDEN, "points": measured })))
}

fn measure(n: usize, m: usize) -> Answer<Value> {
    let (key, other) = Key::new(1).split();
    let first = key.uniform([HIDDEN, n], DType::F64, -1.0, 1.0) / (n as f64).sqrt();
    let second = other.uniform([m, HIDDEN], DType::F64, -1.0, 1.0) / 8.0;
    let f = |x: &Tensor| second.matmul(&first.matmul(x).tanh());
    let x = Tensor::full([n, 1], 0.5);
    let (direction, cotangent) = (x.ones_like(), Tensor::full([m, 1], 1.0));
    let function = least(BUDGET / 8, || drop(black_box(f(&x))));
    let push = least(BUDGET / 8, || drop(black_box(jvp(f, &x, &direction))));
    let pull = least(BUDGET / 8, || drop(black_box(vjp(f, &x).1(&cotangent))));
    let forward = least(BUDGET / 4, || {
        for i in 0..n {
            let mut basis = vec![0.0; n];
            basis[i] = 1.0;
            drop(black_box(jvp(f, &x, &Tensor::from_vec(basis, [n, 1]))));
        }
    });
    let reverse = least(BUDGET / 4, || {
        let (_, back) = vjp(f, &x);
        for i in 0..m {
            let mut basis = vec![0.0; m];
            basis[i] = 1.0;
            drop(black_box(back(&Tensor::from_vec(basis, [m, 1]))));
        }
    });
    let (xs, ys) = (Spec::cpu(DType::F64, [n, 1]), Spec::cpu(DType::F64, [m, 1]));
    let plain = count::multiplications(&trace(|x| f(&x[0]), std::slice::from_ref(&xs))?);
    let once = count::multiplications(&trace(|x| jvp(f, &x[0], &x[1]), &[xs.clone(), xs.clone()])?);
    let both = trace(
        |x| {
            let (y, back) = vjp(f, &x[0]);
            (y, back(&x[1]))
        },
        &[xs, ys],
    )?;
    let back = count::multiplications(&both);
    Ok(json!({
        "n": n, "m": m, "function": function.0, "runs": function.1,
        "forward": { "pass": push.0, "passes": n, "seconds": forward.0 },
        "reverse": { "pass": pull.0, "passes": m, "seconds": reverse.0 },
        "ratio": number(pull.0 / function.0),
        "counted": { "function": plain, "forward": once * n, "reverse": plain + (back - plain) * m },
        "counted_ratio": number(back as f64 / plain as f64),
    }))
}

/// The least time of several runs in seconds, and how many there were.
pub(super) fn least(budget: Duration, mut f: impl FnMut()) -> (f64, usize) {
    // The first run warms caches and counts too where it is the only one that fits.
    let (start, mut best, mut runs) = (Instant::now(), f64::INFINITY, 0);
    while runs == 0 || (runs < 200 && start.elapsed() < budget) {
        let begun = Instant::now();
        f();
        best = best.min(begun.elapsed().as_secs_f64());
        runs += 1;
    }
    (best, runs)
}
