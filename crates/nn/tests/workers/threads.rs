//! Training by threads, compared with plain training.

use crate::compared::{Crew, assert_close, mlp};
use crate::equality::{of_cnn, of_gpt, of_mlp};
use crate::equality_sharded::{of_stage_3, of_stages_1_and_2, plain, rule, sharded};
use pullback::Tensor;
use pullback_nn::optim::UpdateRule;
use pullback_nn::parallel::Sharded;
use pullback_nn::precision::{GradScaler, GradScalerOptions};
use pullback_workers::threads;

const CREWS: [Crew; 3] = [Crew::Threads(2), Crew::Threads(3), Crew::Threads(4)];

#[test]
fn workers_train_an_mlp_as_one_process_does() {
    of_mlp(&CREWS);
}

#[test]
fn workers_train_a_cnn_with_synchronised_batch_norm_as_one_process_does() {
    of_cnn(&CREWS);
}

#[test]
fn workers_train_a_gpt_as_one_process_does() {
    of_gpt(&CREWS);
}

#[test]
fn stages_1_and_2_have_the_bits_of_plain_training() {
    CREWS[..2].iter().for_each(of_stages_1_and_2);
}

#[test]
fn stage_3_trains_as_plain_training_does() {
    CREWS[..2].iter().for_each(of_stage_3);
}

#[test]
fn spread_gradients_are_clipped_by_the_norm_of_all() {
    let start = mlp();
    let crew = Crew::Threads(2);
    let wanted = plain(&start, &crew, Some(0.01));
    for stage in [1, 2] {
        let got = sharded(&start, &crew, stage, false, Some(0.01));
        assert_close("clipped", &got[1], &wanted[1], 1e-12);
    }
}

/// A gradient that overflows in one worker's part alone is skipped by all.
#[test]
fn one_scaler_decides_for_all_parts() {
    let all = threads(2, |group| {
        let model = [Tensor::from([1f32, 1.0]).requires_grad()];
        let sharded = Sharded::new(&model, &group, 2)?;
        let optimizer = rule().over(sharded.parameters())?;
        let scaler = GradScaler::new(GradScalerOptions::default())?.workers(&group);
        let loss = (&model[0] * Tensor::from([1f32, f32::INFINITY])).sum();
        sharded.backward(&scaler.scale(&loss))?;
        scaler.step(&optimizer)?;
        scaler.update()?;
        sharded.gather()?;
        Ok((scaler.skipped()?, model[0].to_vec::<f32>()))
    });
    assert_eq!(all.unwrap(), [(1, vec![1.0, 1.0]), (1, vec![1.0, 1.0])]);
}
