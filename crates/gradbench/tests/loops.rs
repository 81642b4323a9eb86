//! `det`, `lstm` and `ode` compared with plain loops over numbers.

mod common;

use common::{Tool, assert_close, numbers};
use serde_json::{Value, json};

/// Numbers between 0 and 1 that look random.
fn some(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..count).map(|_| next()).collect()
}

fn rows(numbers: &[f64], width: usize) -> Vec<&[f64]> {
    numbers.chunks(width).collect()
}

/// Central differences in every coordinate. With a step of 6e-6 they are off by about 1e-11 of the
/// function and of its third derivative.
fn differences(f: impl Fn(&[f64]) -> f64, x: &[f64]) -> Vec<f64> {
    let h = 6e-6;
    let at = |i: usize, by: f64| {
        let mut x = x.to_vec();
        x[i] += by;
        f(&x)
    };
    (0..x.len()).map(|i| (at(i, h) - at(i, -h)) / (2.0 * h)).collect()
}

/// By elimination with pivots, which has nothing in common with minors.
fn determinant(a: &[f64], n: usize) -> f64 {
    let mut a = a.to_vec();
    let mut det = 1.0;
    for k in 0..n {
        let pivot = (k..n).max_by(|&i, &j| a[i * n + k].abs().total_cmp(&a[j * n + k].abs()));
        let pivot = pivot.unwrap_or(k);
        if pivot != k {
            (0..n).for_each(|j| a.swap(k * n + j, pivot * n + j));
            det = -det;
        }
        det *= a[k * n + k];
        for i in k + 1..n {
            let factor = a[i * n + k] / a[k * n + k];
            (k..n).for_each(|j| a[i * n + j] -= factor * a[k * n + j]);
        }
    }
    det
}

/// What an element is multiplied with in the determinant: that of the matrix without its row and
/// column, with a sign.
fn cofactors(a: &[f64], n: usize) -> Vec<f64> {
    let cofactor = |row: usize, column: usize| {
        let kept = |&p: &usize| p / n != row && p % n != column;
        let minor: Vec<f64> = (0..n * n).filter(kept).map(|p| a[p]).collect();
        let sign = if (row + column).is_multiple_of(2) { 1.0 } else { -1.0 };
        sign * determinant(&minor, n - 1)
    };
    (0..n * n).map(|p| cofactor(p / n, p % n)).collect()
}

#[test]
fn determinants_are_those_of_elimination() {
    let mut tool = Tool::start();
    // From nine on, minors of eight are taken one by one.
    for n in 1..=9 {
        let a = some(n * n, n as u64);
        let input = json!({ "A": a, "ell": n });
        // Sums of n! products, each rounded, of which many cancel: at 9, three digits of sixteen.
        let tolerance = 1e-12;
        assert_close(
            &tool.evaluate("det", "primal", input.clone()),
            &[determinant(&a, n)],
            tolerance,
        );
        assert_close(&tool.evaluate("det", "gradient", input), &cofactors(&a, n), tolerance);
    }
}

#[test]
fn a_singular_matrix_has_a_gradient() {
    let mut tool = Tool::start();
    let a = [1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 1.0, 0.0, 1.0];
    let input = json!({ "A": a, "ell": 3 });
    assert_eq!(numbers(&tool.evaluate("det", "primal", input.clone())), [0.0]);
    // Whole numbers: exact.
    let by_hand = [4.0, 4.0, -4.0, -2.0, -2.0, 2.0, 0.0, 0.0, 0.0];
    assert_eq!(numbers(&tool.evaluate("det", "gradient", input)), by_hand);
}

/// A number with its derivatives in all directions.
#[derive(Clone)]
struct Dual(f64, Vec<f64>);

impl Dual {
    fn plus(&self, factor: f64, other: &Dual) -> Dual {
        let slopes = self.1.iter().zip(&other.1).map(|(a, b)| a + factor * b).collect();
        Dual(self.0 + factor * other.0, slopes)
    }

    fn times(&self, other: &Dual) -> Dual {
        let slopes = self.1.iter().zip(&other.1).map(|(a, b)| a * other.0 + self.0 * b).collect();
        Dual(self.0 * other.0, slopes)
    }
}

/// Runge–Kutta of order four, element by element.
fn integrated(x: &[f64], steps: usize) -> Vec<Dual> {
    let n = x.len();
    let unit = |i: usize| (0..n).map(|j| f64::from(u8::from(i == j))).collect();
    let x: Vec<Dual> = x.iter().enumerate().map(|(i, &x)| Dual(x, unit(i))).collect();
    let slope = |y: &[Dual]| -> Vec<Dual> {
        (0..n).map(|i| if i == 0 { x[0].clone() } else { x[i].times(&y[i - 1]) }).collect()
    };
    let moved = |y: &[Dual], by: f64, k: &[Dual]| -> Vec<Dual> {
        y.iter().zip(k).map(|(y, k)| y.plus(by, k)).collect()
    };
    let h = 2.0 / steps as f64;
    let mut y = vec![Dual(0.0, vec![0.0; n]); n];
    for _ in 0..steps {
        let k1 = slope(&y);
        let k2 = slope(&moved(&y, h / 2.0, &k1));
        let k3 = slope(&moved(&y, h / 2.0, &k2));
        let k4 = slope(&moved(&y, h, &k3));
        for (factor, k) in [(1.0, k1), (2.0, k2), (2.0, k3), (1.0, k4)] {
            y = moved(&y, factor * h / 6.0, &k);
        }
    }
    y
}

#[test]
fn integration_is_that_of_plain_loops() {
    let mut tool = Tool::start();
    // More elements than the four that a step reaches; a loop of one iteration, of many, and of so
    // many that steps are taken again; one equation.
    for (n, steps) in [(1, 1), (1, 3), (2, 1), (5, 1), (5, 10), (12, 7), (40, 25), (30, 9000)] {
        let x = some(n, 100 + n as u64);
        let y = integrated(&x, steps);
        let input = json!({ "x": x, "s": steps });
        // The same sums in another order: a dozen roundings a step, and nothing cancels.
        let tolerance = 3e-15 * (steps as f64).max(5.0);
        let values: Vec<f64> = y.iter().map(|y| y.0).collect();
        assert_close(&tool.evaluate("ode", "primal", input.clone()), &values, tolerance);
        let gradient = tool.evaluate("ode", "gradient", input);
        assert_close(&gradient, &y[n - 1].1, tolerance);
    }
}

#[test]
fn integration_meets_the_closed_form() {
    // yᵢ(2) = x₀·…·xᵢ·2ⁱ⁺¹/(i + 1)!, a polynomial in t of degree i + 1: up to the fourth,
    // Runge–Kutta is exact.
    let mut tool = Tool::start();
    let x = [0.5, 1.5, 2.0, 3.0];
    let input = json!({ "x": x, "s": 2 });
    let product: f64 = x.iter().product::<f64>() * 16.0 / 24.0;
    assert_close(&tool.evaluate("ode", "primal", input.clone()), &[1.0, 1.5, 2.0, product], 1e-15);
    let gradient: Vec<f64> = x.iter().map(|x| product / x).collect();
    assert_close(&tool.evaluate("ode", "gradient", input), &gradient, 1e-15);
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The objective of `lstm`, number by number.
fn foretold(parameters: &[f64], layers: usize, bits: usize, state: &[f64], text: &[f64]) -> f64 {
    let (main, extra) = parameters.split_at(8 * layers * bits);
    let (mut state, mut total) = (state.to_vec(), 0.0);
    let text = rows(text, bits);
    for pair in text.windows(2) {
        let mut x: Vec<f64> = (0..bits).map(|i| pair[0][i] * extra[i]).collect();
        for layer in 0..layers {
            let main = &main[8 * bits * layer..][..8 * bits];
            let (hidden, cell) = state[2 * bits * layer..][..2 * bits].split_at_mut(bits);
            for i in 0..bits {
                let gate = |g: usize, x: f64| x * main[g * bits + i] + main[(4 + g) * bits + i];
                let (forget, taken) = (sigmoid(gate(0, x[i])), sigmoid(gate(1, hidden[i])));
                let (shown, change) = (sigmoid(gate(2, x[i])), gate(3, hidden[i]).tanh());
                cell[i] = cell[i] * forget + taken * change;
                hidden[i] = shown * cell[i].tanh();
                x[i] = hidden[i];
            }
        }
        let said: Vec<f64> =
            (0..bits).map(|i| x[i] * extra[bits + i] + extra[2 * bits + i]).collect();
        let norm = (said.iter().map(|y| y.exp()).sum::<f64>() + 2.0).ln();
        total += (0..bits).map(|i| pair[1][i] * (said[i] - norm)).sum::<f64>();
    }
    -total / ((text.len() - 1) * bits) as f64
}

fn lstm_input(layers: usize, bits: usize, text: &str) -> (Value, Vec<f64>, Vec<f64>, Vec<f64>) {
    let parameters = some((8 * layers + 3) * bits, 7);
    let state = some(2 * layers * bits, 8);
    let bit = |c: u8, i: usize| f64::from((c >> (bits - 1 - i)) & 1);
    let text: Vec<f64> = text.bytes().flat_map(|c| (0..bits).map(move |i| bit(c, i))).collect();
    let (main, extra) = parameters.split_at(8 * layers * bits);
    let input = json!({
        "main_params": rows(main, 4 * bits), "extra_params": rows(extra, bits),
        "state": rows(&state, bits), "sequence": rows(&text, bits),
    });
    (input, parameters, state, text)
}

#[test]
fn what_is_foretold_is_that_of_plain_loops() {
    let mut tool = Tool::start();
    for (layers, bits, text) in
        [(1, 7, "ab"), (2, 7, "the same again"), (6, 5, "many layers, one region")]
    {
        let (input, parameters, state, text) = lstm_input(layers, bits, text);
        let f = |p: &[f64]| foretold(p, layers, bits, &state, &text);
        // Functions within a few units in the last place of those of the standard library.
        assert_close(&tool.evaluate("lstm", "objective", input.clone()), &[f(&parameters)], 1e-13);
        let gradient = tool.evaluate("lstm", "jacobian", input);
        // That of the differences.
        assert_close(&gradient, &differences(f, &parameters), 1e-8);
    }
}

#[test]
fn wrong_inputs_get_a_sentence() {
    let mut tool = Tool::start();
    let expect_error = |tool: &mut Tool, module: &str, function: &str, input: Value, part: &str| {
        let sentence = tool.refusal(module, function, input);
        assert!(sentence.contains(part), "{sentence}");
    };
    expect_error(
        &mut tool,
        "det",
        "gradient",
        json!({ "A": [1.0, 2.0, 3.0], "ell": 2 }),
        "A has 3 numbers",
    );
    expect_error(&mut tool, "det", "primal", json!({ "A": [], "ell": 0 }), "A has 0 numbers");
    let large = json!({ "A": vec![1.0; 400], "ell": 20 });
    expect_error(&mut tool, "det", "primal", large, "20! products are too many");
    expect_error(&mut tool, "ode", "gradient", json!({ "x": [], "s": 1 }), "0 equations");
    expect_error(&mut tool, "ode", "primal", json!({ "x": [1.0], "s": 0 }), "in 0 steps");
    let (good, ..) = lstm_input(2, 7, "text");
    let with = |key: &str, value: Value| {
        let mut input = good.clone();
        input[key] = value;
        input
    };
    let ragged = with("state", json!([[1.0, 2.0], [1.0]]));
    expect_error(&mut tool, "lstm", "objective", ragged, "row 1 has 1 numbers");
    let odd = with("state", json!([[1.0, 2.0]]));
    expect_error(&mut tool, "lstm", "objective", odd, "not two rows for each layer");
    let narrow = with("extra_params", json!([[1.0], [1.0], [1.0]]));
    expect_error(&mut tool, "lstm", "jacobian", narrow, "extra_params is 3×1, not 3×7");
    let short = with("sequence", json!([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]));
    expect_error(&mut tool, "lstm", "jacobian", short, "no second character");
    // And it continues.
    let answer = tool.evaluate("det", "primal", json!({ "A": [3.0], "ell": 1 }));
    assert_eq!(answer, json!(3.0));
}
