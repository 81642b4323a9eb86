//! The training loop saves and resumes what is spread over workers.

use crate::compared::{mlp, normal};
use pullback::{Group, Result, Tensor};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::parallel::{FullSharding, Sharded};
use pullback_nn::state::{Checkpoints, MetricMode};
use pullback_nn::train::{EarlyStop, Every, Outcome, Trainer};
use pullback_nn::{Layer, Module, Sequential};
use pullback_workers::threads;
use std::path::Path;

fn rule() -> AdamW {
    AdamW { lr: 0.05, ..AdamW::default() }
}

/// The same examples on every worker, so that their number does not matter.
fn batches() -> Vec<Tensor> {
    (0..3).map(|number| normal(number, &[4, 6])).collect()
}

fn values(parameters: &[Tensor]) -> Vec<f64> {
    parameters.iter().flat_map(Tensor::to_f64_vec).collect()
}

/// Trains up to step `until` from the last checkpoint, and gives the outcome and all parameters.
/// Stage 0 is one process that spreads nothing.
fn train(
    stage: usize,
    group: &Group,
    folder: &Path,
    until: u64,
    stop: Option<EarlyStop>,
) -> Result<(Outcome, Vec<f64>)> {
    let model = mlp();
    let checkpoints = Checkpoints::new(folder);
    fn set<'a, M: Module>(
        trainer: Trainer<'a, M>,
        until: u64,
        checkpoints: Checkpoints,
        stop: Option<EarlyStop>,
    ) -> Trainer<'a, M> {
        let trainer = trainer.steps(until).handle_interrupt(false).resume(true);
        let trainer = trainer.checkpoints(Every::Steps(2), checkpoints);
        match stop {
            Some(stop) => trainer.early_stop(stop),
            None => trainer,
        }
    }
    let loss = |y: Tensor| y.square().mean();
    match stage {
        0 => {
            let optimizer = rule().over(model.parameters())?;
            let trainer = set(Trainer::new(&model, &optimizer), until, checkpoints, stop);
            let outcome = trainer.run(&batches(), |x| {
                optimizer.zero_grad();
                let loss = loss(model.forward(x));
                loss.backward()?;
                optimizer.step()?;
                Ok(loss)
            })?;
            Ok((outcome, values(&model.parameters())))
        }
        3 => {
            let sharding = FullSharding::new(group);
            let unit = sharding.shard(model)?;
            let optimizer = rule().over(unit.parameters())?;
            let trainer = Trainer::new(&unit, &optimizer).fully_sharded(&sharding);
            let outcome = set(trainer, until, checkpoints, stop).run(&batches(), |x| {
                optimizer.zero_grad();
                let loss = loss(unit.forward(x));
                sharding.backward(&loss)?;
                optimizer.step()?;
                Ok(loss)
            })?;
            Ok((outcome, unit.call(|model: &Sequential| values(&model.parameters()))))
        }
        stage => {
            let sharded = Sharded::new(&model, group, stage)?;
            // A list of optimisers, as the program has.
            let (first, rest) = (sharded.parameters()[..1].to_vec(), sharded.parameters());
            let optimizer = vec![rule().over(first)?, rule().over(rest[1..].to_vec())?];
            let optimizer_of_one = rule().over(sharded.parameters())?;
            let optimizer: &dyn Optimizer = if stage == 1 { &optimizer_of_one } else { &optimizer };
            let trainer = Trainer::new(&model, optimizer).sharded(&sharded);
            let outcome = set(trainer, until, checkpoints, stop).run(&batches(), |x| {
                sharded.zero_grad();
                let loss = loss(model.forward(x));
                sharded.backward(&loss)?;
                sharded.step(optimizer)?;
                Ok(loss)
            })?;
            Ok((outcome, values(&model.parameters())))
        }
    }
}

fn close(what: &str, got: &[f64], wanted: &[f64]) {
    assert_eq!(got.len(), wanted.len());
    for (a, b) in got.iter().zip(wanted) {
        assert!((a - b).abs() < 1e-12, "{what}: {a} is not {b}");
    }
}

#[test]
fn any_number_of_workers_resumes_what_was_spread() {
    let whole = tempfile::tempdir().unwrap();
    let wanted = train(0, &Group::alone(), whole.path(), 9, None).unwrap().1;
    for stage in [1, 2, 3] {
        let folder = tempfile::tempdir().unwrap();
        for (workers, until) in [(4, 3), (2, 5), (3, 7), (1, 9)] {
            let run = |group: Group| train(stage, &group, folder.path(), until, None);
            let all = threads(workers, run).unwrap_or_else(|e| panic!("stage {stage}: {e}"));
            assert!(all.iter().all(|(outcome, _)| outcome.step == until));
            if until == 9 {
                close(&format!("stage {stage}"), &all[0].1, &wanted);
            }
        }
    }
}

/// Checkpoints of one process are resumed with sharding, and those of sharding by one process
/// without.
#[test]
fn runs_resume_with_and_without_sharding() {
    let whole = tempfile::tempdir().unwrap();
    let wanted = train(0, &Group::alone(), whole.path(), 9, None).unwrap().1;
    for stage in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let alone = |until| train(0, &Group::alone(), folder.path(), until, None).unwrap();
        assert_eq!(alone(3).0.step, 3);
        threads(2, |group| train(stage, &group, folder.path(), 6, None)).unwrap();
        let parts = Checkpoints::new(folder.path()).list().unwrap().pop().unwrap();
        assert!(parts.join("part-00002-of-00002.safetensors").exists());
        close(&format!("stage {stage}"), &alone(9).1, &wanted);
    }
}

#[test]
fn a_damaged_part_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let run = |until| threads(2, |group| train(2, &group, folder.path(), until, None)).unwrap();
    run(4);
    let newest = Checkpoints::new(folder.path()).list().unwrap().pop().unwrap();
    let part = newest.join("part-00002-of-00002.safetensors");
    let mut bytes = std::fs::read(&part).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&part, bytes).unwrap();
    let all = run(6);
    for (outcome, _) in &all {
        let note = outcome.notes.iter().find(|note| note.contains("is corrupt"));
        assert!(note.is_some(), "{:?}", outcome.notes);
    }
    let plain = tempfile::tempdir().unwrap();
    close("damaged", &all[0].1, &train(0, &Group::alone(), plain.path(), 6, None).unwrap().1);
}

/// The weights of the best step are saved in parts too, and given back at the end.
#[test]
fn the_best_weights_are_resumed() {
    // The loss falls, so the first step has the highest, which `Max` takes for the best.
    let stop = || EarlyStop::new("loss", MetricMode::Max).patience(100).restore_best(true);
    let whole = tempfile::tempdir().unwrap();
    let wanted = train(0, &Group::alone(), whole.path(), 6, Some(stop())).unwrap();
    for stage in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let run = |workers, until| {
            threads(workers, |group| train(stage, &group, folder.path(), until, Some(stop())))
        };
        run(2, 4).unwrap();
        let (outcome, got) = run(3, 6).unwrap().remove(1);
        assert_eq!(outcome.best, wanted.0.best);
        close(&format!("stage {stage}"), &got, &wanted.1);
    }
}
