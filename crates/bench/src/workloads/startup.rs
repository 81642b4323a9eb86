//! How long a fresh process takes to its first gradient.

use super::{backward, grad};
use crate::measure::{Measurement, median, milliseconds, rounded};
use crate::request::this_program;
use pullback::Tensor;
use std::time::Instant;

pub fn fresh() -> Vec<Measurement> {
    let run = || {
        let start = Instant::now();
        let status =
            this_program().and_then(|mut command| command.arg("--first-gradient").status());
        assert!(status.is_ok_and(|s| s.success()), "a fresh process failed");
        milliseconds(start.elapsed())
    };
    let mut times = [(); 5].map(|()| run());
    times.sort_by(f64::total_cmp);
    vec![
        Measurement::default()
            .with("ms", rounded(median(&times), 3))
            .with("min_ms", rounded(times[0], 3)),
    ]
}

/// What the fresh process does.
pub fn first_gradient() {
    let x = Tensor::ones([8]).requires_grad();
    backward(&(&x * &x).sum());
    drop(grad(&x));
}
