//! Every example in its quick mode, with what it must reach. Each threshold is far from what wrong
//! gradients would give.
//!
//! `cargo test --release --workspace --test examples -- --nocapture` prints the figures.

use std::sync::{Mutex, PoisonError};

/// One at a time: they seed the global generator, and so give the same figures in every run.
fn alone<R>(run: impl FnOnce(bool) -> pullback::Result<R>) -> R {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    let _lock = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
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
    // It reaches 99.4%; untrained it would be right by chance, at 10%.
    assert!(figures.accuracy >= 0.97);
}

#[path = "../../../examples/cnn_digits.rs"]
#[allow(dead_code)]
mod cnn_digits;

#[test]
fn cnn_recognises_digits() {
    let figures = alone(cnn_digits::run);
    println!("cnn_digits: accuracy {}, batches {}", figures.accuracy, figures.batches);
    // It reaches 99.4%.
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
    // Going on by itself it is off by 0.19, and a flat line by 0.71. As the next value, the last
    // one would have a loss of 0.06.
    assert!(figures.error < 0.4 && figures.loss < 0.001);
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
    // Untrained, both have 44 nats. They reach 16.4 and 21.2, with 3.2 for the code: it must cost
    // something (else the variational one gives all images one code), and not more than what it
    // saves.
    assert!(f.plain < 18.0 && f.variational + f.kl < 26.0);
    assert!(f.kl > 1.0 && f.plain > f.perfect);
}

#[path = "../../../examples/gan.rs"]
#[allow(dead_code)]
mod gan;

#[test]
fn gan_covers_the_ring() {
    let f = alone(gan::run);
    println!("gan: on ring {}, rarest {}", f.on_ring, f.rarest);
    // It reaches 96%, with 11% in the rarest. An untrained generator puts everything into the
    // middle: 0%.
    assert!(f.on_ring > 0.75 && f.rarest > 0.04);
}

#[path = "../../../examples/distillation.rs"]
#[allow(dead_code)]
mod distillation;

#[test]
fn student_learns_from_teacher() {
    let f = alone(distillation::run);
    println!("distillation: teacher {}, alone {}, taught {}", f.teacher, f.alone, f.taught);
    // They reach 99%, 89% and 96%.
    assert!(f.teacher > 0.97 && f.taught > 0.94 && f.taught > f.alone + 0.03);
}

#[path = "../../../examples/neural_ode.rs"]
#[allow(dead_code)]
mod neural_ode;

#[test]
fn neural_ode_follows_the_spiral() {
    let f = alone(neural_ode::run);
    println!("neural_ode: before {}, after {}", f.before, f.after);
    // It reaches 0.11, from 5.4.
    assert!(f.before > 2.0 && f.after < 0.4);
}

#[path = "../../../examples/pinn.rs"]
#[allow(dead_code)]
mod pinn;

#[test]
fn pinn_solves_the_heat_equation() {
    let f = alone(pinn::run);
    println!("pinn: residual {}, error {}", f.residual, f.error);
    // It reaches 0.002; without diffusion, u = sin(πx) for all times, it would be 0.86.
    assert!(f.error < 0.01);
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
    // It reaches 5 mm, from 2.4 m, by way of the floor. The gradient is that of differences to
    // 5e-9.
    assert!(f.before > 1.0 && f.after < 0.05 && f.bounces == 1 && f.gradient_error < 1e-6);
}

#[path = "../../../examples/maml.rs"]
#[allow(dead_code)]
mod maml;

#[test]
fn maml_adapts_in_one_step() {
    let f = alone(maml::run);
    let maml::Figures { before, after, plain, gradient_error } = f;
    println!("maml: before {before}, after {after}, plain {plain}, gradient {gradient_error}");
    // They reach 2.8, 0.8 and 2.3. The gradient through the update is that of differences to 6e-11.
    assert!(after < 0.5 * before && after < 0.6 * plain && gradient_error < 1e-4);
}

#[path = "../../../examples/dqn.rs"]
#[allow(dead_code)]
mod dqn;

#[test]
fn dqn_balances_the_pole() {
    let f = alone(dqn::run);
    println!("dqn: before {}, after {}", f.before, f.after);
    // It reaches 131 from 9 before training, and from other seeds 108 to 199.
    assert!(f.before < 30.0 && f.after > 60.0);
}

#[path = "../../../examples/char_gpt.rs"]
#[allow(dead_code)]
mod char_gpt;

#[test]
fn char_gpt_learns_more_than_frequencies() {
    let f = alone(char_gpt::run);
    println!("char_gpt: loss {}, by frequency {}\n{}", f.loss, f.by_frequency, f.sample);
    // It reaches 2.35, from 3.1.
    assert!(f.loss < f.by_frequency - 0.5 && f.sample.chars().count() == 16 + 100);
}
