//! `lse`, `llsq`, `kmeans` and `gmm` on small inputs, beside plain loops.

mod common;

use common::{Tool, assert_close};
use serde_json::json;

#[test]
fn lse_is_the_formula_and_its_gradient_a_softmax() {
    let x = [0.3, -2.0, 700.0, 699.5, 0.0];
    let sum: f64 = x.iter().map(|x| (x - 700.0f64).exp()).sum();
    let softmax: Vec<f64> = x.iter().map(|x| (x - 700.0f64).exp() / sum).collect();
    let mut tool = Tool::start();
    let primal = tool.evaluate("lse", "primal", json!({ "x": x }));
    let gradient = tool.evaluate("lse", "gradient", json!({ "x": x }));
    // A few roundings of numbers of order one.
    assert_close(&primal, &[sum.ln() + 700.0], 1e-15);
    assert_close(&gradient, &softmax, 1e-14);
}
