//! `lse`, `llsq`, `kmeans` and `gmm` on small inputs, compared with plain loops.
//!
//! Sums of a few dozen numbers of order one, in another order than the loops here: a hundred
//! roundings at most, so 1e-13 of the largest.

mod common;

use common::{Tool, assert_close};
use serde_json::{Value, json};
use std::f64::consts::PI;

const TOLERANCE: f64 = 1e-13;

/// Numbers between −1 and 1 that look random and are the same every time.
fn scattered(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) as f64 * 0.618_034).sin()).collect()
}

fn rows(numbers: &[f64], width: usize) -> Vec<Vec<f64>> {
    numbers.chunks(width).map(<[f64]>::to_vec).collect()
}

/// The derivative of `f` along each number, from four values around it: exact up to h⁴ ≈ 1e-12 and
/// rounding of 1e-16 / h ≈ 1e-13, each times the size of `f`.
fn slopes(f: impl Fn(&[f64]) -> f64, at: &[f64]) -> Vec<f64> {
    let h = 1e-3;
    let moved = |i: usize, by: f64| {
        let mut x = at.to_vec();
        x[i] += by;
        f(&x)
    };
    let slope = |i| {
        (8.0 * (moved(i, h) - moved(i, -h)) - moved(i, 2.0 * h) + moved(i, -2.0 * h)) / (12.0 * h)
    };
    (0..at.len()).map(slope).collect()
}

#[test]
fn lse_is_the_formula_and_its_gradient_a_softmax() {
    let x = [0.3, -2.0, 700.0, 699.5, 0.0];
    let sum: f64 = x.iter().map(|x| (x - 700.0f64).exp()).sum();
    let softmax: Vec<f64> = x.iter().map(|x| (x - 700.0f64).exp() / sum).collect();
    let mut tool = Tool::start();
    let primal = tool.evaluate("lse", "primal", json!({ "x": x }));
    let gradient = tool.evaluate("lse", "gradient", json!({ "x": x }));
    assert_close(&primal, &[sum.ln() + 700.0], TOLERANCE);
    assert_close(&gradient, &softmax, TOLERANCE);
}

#[test]
fn lse_of_equal_numbers_goes_evenly_to_all() {
    let mut tool = Tool::start();
    let gradient = tool.evaluate("lse", "gradient", json!({ "x": [3.0, 3.0, 3.0, 3.0] }));
    assert_close(&gradient, &[0.25; 4], TOLERANCE);
}

#[test]
fn llsq_is_its_sum_and_the_gradient_that_of_the_sum() {
    let mut tool = Tool::start();
    for (n, m) in [(2, 1), (5, 3), (16, 40), (301, 17), (2500, 33)] {
        let x = scattered(m, n);
        let (mut sum, mut gradient) = (0.0, vec![0.0; m]);
        for i in 0..n {
            let t = -1.0 + i as f64 * 2.0 / (n - 1) as f64;
            // The middle of an odd number of points is 0, where the sign is 0 and Rust's `signum`
            // is not.
            let s = if t == 0.0 { 0.0 } else { t.signum() };
            let rest = s - (0..m).map(|j| x[j] * t.powi(j as i32)).sum::<f64>();
            sum += rest * rest / 2.0;
            for (j, g) in gradient.iter_mut().enumerate() {
                *g -= rest * t.powi(j as i32);
            }
        }
        let input = json!({ "x": x, "n": n });
        // Powers by repeated multiplication are off by as many roundings as their exponent, and
        // there are n terms.
        assert_close(&tool.evaluate("llsq", "primal", input.clone()), &[sum], 10.0 * TOLERANCE);
        assert_close(&tool.evaluate("llsq", "gradient", input), &gradient, 10.0 * TOLERANCE);
    }
}

/// The cost, and how far each centroid is from the mean of its points: Newton's step for a sum of
/// squares.
fn kmeans(points: &[Vec<f64>], centroids: &[Vec<f64>]) -> (f64, Vec<f64>) {
    let d = centroids[0].len();
    let (mut cost, mut counts) = (0.0, vec![0.0; centroids.len()]);
    let mut sums = vec![vec![0.0; d]; centroids.len()];
    for p in points {
        let distance = |c: &Vec<f64>| p.iter().zip(c).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
        let (j, nearest) = centroids
            .iter()
            .map(distance)
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .expect("there are centroids");
        cost += nearest;
        counts[j] += 1.0;
        sums[j].iter_mut().zip(p).for_each(|(s, x)| *s += x);
    }
    let step = |j: usize, l: usize| centroids[j][l] - sums[j][l] / counts[j];
    (cost, (0..centroids.len()).flat_map(|j| (0..d).map(move |l| step(j, l))).collect())
}

#[test]
fn kmeans_steps_to_the_mean_of_the_nearest_points() {
    let mut tool = Tool::start();
    for (n, k, d) in [(7, 1, 1), (40, 3, 2), (300, 20, 8), (1500, 5, 3), (2500, 500, 2)] {
        let points = rows(&scattered(n * d, 1), d);
        // Centroids at points, so that each has one at least.
        let centroids = points[n - k..].to_vec();
        let (cost, direction) = kmeans(&points, &centroids);
        let input = json!({ "points": points, "centroids": centroids });
        assert_close(&tool.evaluate("kmeans", "cost", input.clone()), &[cost], TOLERANCE);
        assert_close(&tool.evaluate("kmeans", "dir", input), &direction, TOLERANCE);
    }
}

struct Gmm {
    d: usize,
    k: usize,
    n: usize,
    m: f64,
    gamma: f64,
    x: Vec<f64>,
}

impl Gmm {
    /// The log posterior, by its definition. `theta` is alpha, mu, q and l, one after the other.
    fn log_posterior(&self, theta: &[f64]) -> f64 {
        let &Gmm { d, k, n, m, gamma, .. } = self;
        let (alpha, rest) = theta.split_at(k);
        let (mu, rest) = rest.split_at(k * d);
        let (q, l) = rest.split_at(k * d);
        let weights: f64 = alpha.iter().map(|a| a.exp()).sum();
        let mut total = 0.0;
        for i in 0..n {
            let density = |c: usize| {
                let centred: Vec<f64> = (0..d).map(|j| self.x[i * d + j] - mu[c * d + j]).collect();
                let mut image: Vec<f64> = (0..d).map(|j| q[c * d + j].exp() * centred[j]).collect();
                let mut entry = l[c * d * (d - 1) / 2..].iter();
                for (column, x) in centred.iter().enumerate() {
                    for y in &mut image[column + 1..] {
                        *y += entry.next().expect("an entry") * x;
                    }
                }
                let log_det: f64 = q[c * d..][..d].iter().sum();
                let norm: f64 = image.iter().map(|y| y * y).sum();
                (alpha[c] + log_det - norm / 2.0).exp()
            };
            let mixed = (0..k).map(density).sum::<f64>() / weights;
            total += mixed.ln() - d as f64 / 2.0 * (2.0 * PI).ln();
        }
        // Γ at halves, by Γ(z + 1) = z·Γ(z) from Γ(1) and Γ(½).
        let log_gamma = |twice: usize| -> f64 {
            let start = if twice.is_multiple_of(2) { 0.0 } else { PI.sqrt().ln() };
            start
                + (1..)
                    .map(|i| twice as f64 / 2.0 - i as f64)
                    .take_while(|z| *z > 0.0)
                    .map(f64::ln)
                    .sum::<f64>()
        };
        let freedom = d + m as usize + 1;
        let log_multigamma = (d * (d - 1)) as f64 / 4.0 * PI.ln()
            + (0..d).map(|j| log_gamma(freedom - j)).sum::<f64>();
        let squares: f64 =
            q.iter().map(|q| (2.0 * q).exp()).sum::<f64>() + l.iter().map(|l| l * l).sum::<f64>();
        let constant = (freedom * d) as f64 * (gamma / 2f64.sqrt()).ln() - log_multigamma;
        total + k as f64 * constant - gamma * gamma / 2.0 * squares + m * q.iter().sum::<f64>()
    }

    fn input(&self, theta: &[f64]) -> Value {
        let &Gmm { d, k, n, m, gamma, .. } = self;
        let (alpha, rest) = theta.split_at(k);
        let (mu, rest) = rest.split_at(k * d);
        let (q, l) = rest.split_at(k * d);
        let l = if d == 1 { vec![vec![]; k] } else { rows(l, d * (d - 1) / 2) };
        json!({
            "d": d, "k": k, "n": n, "m": m as i64, "gamma": gamma, "alpha": alpha,
            "mu": rows(mu, d), "q": rows(q, d), "l": l, "x": rows(&self.x, d),
        })
    }
}

#[test]
fn gmm_is_the_log_posterior_and_its_gradient() {
    let mut tool = Tool::start();
    for (d, k, n, m, gamma) in
        [(1, 1, 3, 0.0, 1.0), (2, 3, 20, 0.0, 1.0), (3, 2, 11, 2.0, 0.7), (5, 4, 30, 1.0, 1.3)]
    {
        let problem = Gmm { d, k, n, m, gamma, x: scattered(n * d, 5) };
        let theta = scattered(k + 2 * k * d + k * d * (d - 1) / 2, 6);
        let value = tool.evaluate("gmm", "objective", problem.input(&theta));
        assert_close(&value, &[problem.log_posterior(&theta)], TOLERANCE);
        let mut gradient = tool.evaluate("gmm", "jacobian", problem.input(&theta));
        let parts = ["alpha", "mu", "q", "l"].map(|name| gradient[name].take());
        // The differences are the less exact side.
        let slopes = slopes(|theta| problem.log_posterior(theta), &theta);
        assert_close(&json!(parts), &slopes, 1e-9);
    }
}

#[test]
fn input_that_makes_no_sense_is_refused_with_a_sentence() {
    let mut tool = Tool::start();
    let mut refused = |module: &str, function: &str, input: Value, words: &str| {
        let sentence = tool.refusal(module, function, input);
        assert!(sentence.contains(words), "{sentence}");
    };
    refused("lse", "gradient", json!({ "x": [] }), "no largest one");
    refused("lse", "primal", json!({ "x": "1" }), "does not fit");
    refused("llsq", "gradient", json!({ "x": [1.0], "n": 1 }), "n is 1");
    refused("llsq", "gradient", json!({ "x": [], "n": 4 }), "no coefficients");
    refused("llsq", "gradient", json!({ "x": [1.0], "n": -4 }), "does not fit");
    let points = json!([[1.0, 2.0], [3.0, 4.0]]);
    refused("kmeans", "cost", json!({ "points": points, "centroids": [] }), "no centroids");
    refused("kmeans", "cost", json!({ "points": [], "centroids": points }), "no points");
    refused("kmeans", "dir", json!({ "points": points, "centroids": [[1.0]] }), "1 coordinates");
    refused(
        "kmeans",
        "dir",
        json!({ "points": [[1.0], [1.0, 2.0]], "centroids": [[1.0]] }),
        "row 1",
    );
    let problem = Gmm { d: 2, k: 1, n: 1, m: 0.0, gamma: 1.0, x: vec![1.0, 2.0] };
    let theta = [0.0; 6];
    for (name, value, words) in [
        ("d", json!(3), "mu has the shape [1, 2]"),
        ("k", json!(2), "alpha has 1 numbers"),
        ("k", json!(0), "at least 1"),
        ("n", json!(2), "x has the shape [1, 2]"),
        ("l", json!([[]]), "l has the shape [1, 0]"),
    ] {
        let mut input = problem.input(&theta);
        input[name] = value;
        refused("gmm", "jacobian", input, words);
    }
    // And it continues to serve.
    assert_close(&tool.evaluate("lse", "primal", json!({ "x": [2.0] })), &[2.0], TOLERANCE);
}

/// Far from the origin a difference of squares has no digits left: points and centroids are
/// compared from their middle.
#[test]
fn kmeans_far_from_the_origin() {
    let mut tool = Tool::start();
    for far in [0.0, 1e6, 1e8] {
        let at = |x: f64| json!([far + x, far - 2.0 * x]);
        let points: Vec<_> = (0..8).map(|i| at(f64::from(i))).collect();
        let input = json!({ "points": points, "centroids": [at(1.0), at(6.0)] });
        // Points 0 to 3 belong to the first, 4 to 7 to the second; at both the squares are 5·(1 + 0
        // + 1 + 4).
        let cost = tool.evaluate("kmeans", "cost", input.clone());
        // Coordinates near 1e8 are rounded to 1.5e-8.
        assert_close(&cost, &[60.0], 1e-7);
        // The direction leads from the centroids to the means of their points, 1.5 and 5.5.
        let direction = tool.evaluate("kmeans", "dir", input);
        assert_close(&direction, &[-0.5, 1.0, 0.5, -1.0], 1e-7);
    }
}

/// Points and means moved together: the same density, also where coordinates have eight digits
/// before the point.
#[test]
fn gmm_far_from_the_origin() {
    let mut tool = Tool::start();
    let mut both = |far: f64| {
        // Sixteenths, so that moving them rounds nothing.
        let at = |rows: [[f64; 2]; 3]| rows.map(|row| row.map(|x| far + x / 16.0));
        let input = json!({
            "d": 2, "k": 3, "n": 3, "m": 0, "gamma": 1.0, "alpha": [0.1, -0.3, 0.2],
            "mu": at([[1.0, -9.0], [17.0, 4.0], [-5.0, 30.0]]),
            "x": at([[3.0, 2.0], [-20.0, 11.0], [8.0, -8.0]]),
            "q": [[0.1, 0.2], [-0.4, 0.3], [0.5, -0.1]], "l": [[0.3], [-0.2], [0.6]],
        });
        let value = tool.evaluate("gmm", "objective", input.clone());
        let gradient = tool.evaluate("gmm", "jacobian", input);
        let parts = ["alpha", "mu", "q", "l"].map(|part| common::numbers(&gradient[part]));
        (value, parts.concat())
    };
    let ((near, slopes), (far, far_slopes)) = (both(0.0), both(1e8));
    assert_close(&far, &common::numbers(&near), 1e-12);
    assert_close(&json!(far_slopes), &slopes, 1e-12);
}
