//! Every example in its quick mode, with what it must reach. Each threshold is far from what wrong gradients would give.
//!
//! `cargo test --release -p pullback-nn -p pullback-cli --test examples -- --nocapture` prints the figures.

use std::sync::{Mutex, PoisonError};

/// One at a time: they seed the global generator, and so give the same figures in every run.
fn alone<R>(run: impl FnOnce(bool) -> pullback::Result<R>) -> R {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let start = std::time::Instant::now();
    let figures = run(true).unwrap_or_else(|error| panic!("{error}"));
    println!("took {:.1} s", start.elapsed().as_secs_f64());
    figures
}

#[path = "../../../examples/linear_regression.rs"]
#[allow(dead_code)]
mod linear_regression;

#[test]
fn linear_regression_recovers_the_plane() {
    let figures = alone(linear_regression::run);
    println!("linear_regression: loss {}, error {}", figures.loss, figures.error);
    // The noise has a standard deviation of 0.01, so that of a learned number is 0.0003.
    assert!(figures.error < 0.005 && figures.loss < 0.00015);
}

#[path = "../../../examples/mlp_digits.rs"]
#[allow(dead_code)]
mod mlp_digits;

#[test]
fn mlp_recognises_digits() {
    let figures = alone(mlp_digits::run);
    println!("mlp_digits: loss {}, accuracy {}", figures.loss, figures.accuracy);
    assert!(figures.accuracy >= 0.97);
}

#[path = "../../../examples/cnn_digits.rs"]
#[allow(dead_code)]
mod cnn_digits;

#[test]
fn cnn_recognises_digits() {
    let figures = alone(cnn_digits::run);
    println!("cnn_digits: accuracy {}, batches {}", figures.accuracy, figures.batches);
    assert!(figures.accuracy >= 0.98);
    // The compiled step writes the running statistics.
    assert_eq!(figures.batches, 8 * 22);
}

#[path = "../../../examples/lstm.rs"]
#[allow(dead_code)]
mod lstm;

#[test]
fn lstm_continues_waves() {
    let figures = alone(lstm::run);
    println!("lstm: loss {}, error {}", figures.loss, figures.error);
    // A flat line is off by 0.71.
    assert!(figures.error < 0.3);
}

#[path = "../../../examples/vae.rs"]
#[allow(dead_code)]
mod vae;

#[test]
fn autoencoders_reconstruct() {
    let f = alone(vae::run);
    println!(
        "vae: plain {}, variational {}, kl {}, perfect {}",
        f.plain, f.variational, f.kl, f.perfect
    );
    assert!(f.plain < 30.0);
}

#[path = "../../../examples/gan.rs"]
#[allow(dead_code)]
mod gan;

#[test]
fn gan_covers_the_ring() {
    let f = alone(gan::run);
    println!("gan: on ring {}, rarest {}", f.on_ring, f.rarest);
    assert!(f.on_ring > 0.7 && f.rarest > 0.02);
}

#[path = "../../../examples/distillation.rs"]
#[allow(dead_code)]
mod distillation;

#[test]
fn student_learns_from_teacher() {
    let f = alone(distillation::run);
    println!("distillation: teacher {}, alone {}, taught {}", f.teacher, f.alone, f.taught);
    assert!(f.taught > f.alone + 0.03);
}

#[path = "../../../examples/neural_ode.rs"]
#[allow(dead_code)]
mod neural_ode;

#[test]
fn neural_ode_follows_the_spiral() {
    let f = alone(neural_ode::run);
    println!("neural_ode: before {}, after {}", f.before, f.after);
    assert!(f.after < 0.3);
}

#[path = "../../../examples/pinn.rs"]
#[allow(dead_code)]
mod pinn;

#[test]
fn pinn_solves_the_heat_equation() {
    let f = alone(pinn::run);
    println!("pinn: residual {}, error {}", f.residual, f.error);
    assert!(f.error < 0.02);
}

#[path = "../../../examples/physics.rs"]
#[allow(dead_code)]
mod physics;

#[test]
fn physics_learns_the_throw() {
    let f = alone(physics::run);
    println!(
        "physics: before {}, after {}, velocity {:?}, bounces {}, gradient {}",
        f.before, f.after, f.velocity, f.bounces, f.gradient_error
    );
    assert!(f.after < 0.05 && f.bounces > 0 && f.gradient_error < 1e-5);
}

#[path = "../../../examples/maml.rs"]
#[allow(dead_code)]
mod maml;

#[test]
fn maml_adapts_in_one_step() {
    let f = alone(maml::run);
    println!("maml: before {}, after {}, plain {}", f.before, f.after, f.plain);
    assert!(f.after < f.before && f.after < f.plain);
}

#[path = "../../../examples/dqn.rs"]
#[allow(dead_code)]
mod dqn;

#[test]
fn dqn_balances_the_pole() {
    let f = alone(dqn::run);
    println!("dqn: before {}, after {}", f.before, f.after);
    assert!(f.after > 100.0);
}

#[path = "../../../examples/char_gpt.rs"]
#[allow(dead_code)]
mod char_gpt;

#[test]
fn char_gpt_learns_more_than_frequencies() {
    let f = alone(char_gpt::run);
    println!("char_gpt: loss {}, by frequency {}\n{}", f.loss, f.by_frequency, f.sample);
    assert!(f.loss < f.by_frequency - 0.6);
}
