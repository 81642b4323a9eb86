//! Checkpoints of which each worker writes its part.

use crate::compared::{mlp, normal};
use pullback::{Group, Result, Tensor};
use pullback_nn::optim::{AdamW, UpdateRule};
use pullback_nn::parallel::{FullSharding, FullySharded, Sharded};
use pullback_nn::state::{ShardedCheckpoint, ShardedCheckpoints};
use pullback_nn::{Layer, Linear, Module};
use pullback_workers::threads;
use std::path::Path;

/// Trains from the last checkpoint up to step `until`, and saves; gives all parameters.
fn train(folder: &Path, group: &Group, until: u64) -> Result<Vec<Vec<f64>>> {
    let model = mlp();
    let sharded = Sharded::new(&model, group, 2)?;
    let optimizer = AdamW { lr: 0.05, ..AdamW::default() }.over(sharded.parameters())?;
    let state = ShardedCheckpoint::of(&sharded).optimizer(&optimizer)?;
    let checkpoints = ShardedCheckpoints::new(folder);
    let mut step = 0;
    if let Some(saved) = checkpoints.latest()? {
        saved.restore(&state, group)?;
        sharded.gather()?;
        step = saved.record.step;
    }
    for number in step..until {
        sharded.zero_grad();
        // The same examples on every worker, so that their number does not matter.
        sharded.backward(&model.forward(&normal(number, &[4, 6])).square().mean())?;
        sharded.step(&optimizer)?;
    }
    checkpoints.save(&state.at(until, 0), group)?;
    Ok(model.parameters().iter().map(Tensor::to_f64_vec).collect())
}

#[test]
fn any_number_of_workers_goes_on() {
    let (folder, whole) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let wanted = train(whole.path(), &Group::alone(), 6).unwrap();
    threads(4, |group| train(folder.path(), &group, 2)).unwrap();
    threads(3, |group| train(folder.path(), &group, 4)).unwrap();
    let values = train(folder.path(), &Group::alone(), 6).unwrap();
    for (a, b) in values.concat().iter().zip(&wanted.concat()) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }
    // The whole tensors, with the names of the model.
    let saved = ShardedCheckpoints::new(folder.path()).latest().unwrap().unwrap();
    let saved = saved.whole().unwrap();
    let weight = saved.iter().find(|(name, _)| name == "model.0.weight").unwrap();
    assert_eq!((weight.1.shape(), weight.1.to_f64_vec()), (&[16, 6][..], values[0].clone()));
    assert!(saved.iter().any(|(name, _)| name == "optimizer.0.0.exp_avg_sq"));
}

#[test]
fn units_of_full_sharding_are_saved_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let run = |workers: usize, load: bool| {
        threads(workers, |group| {
            let sharding = FullSharding::new(&group);
            let unit: FullySharded<Linear> = sharding.shard(Linear::new(3, 5))?;
            let state = ShardedCheckpoint::of_units(&sharding);
            let checkpoints = ShardedCheckpoints::new(folder.path());
            match load {
                true => checkpoints.latest()?.unwrap().restore(&state, &group)?,
                false => drop(checkpoints.save(&state, &group)?),
            }
            Ok(unit.call(|linear| linear.weight.to_vec::<f32>()))
        })
    };
    let saved = run(2, false).unwrap();
    assert_eq!(run(3, true).unwrap()[2], saved[0]);
}

/// A worker that cannot write its part: all get the error, no checkpoint appears, and the last one
/// is still there.
#[test]
fn a_part_that_cannot_be_written_leaves_the_last_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    threads(2, |group| train(folder.path(), &group, 1)).unwrap();
    let errors = threads(2, |group| {
        let model = mlp();
        let sharded = Sharded::new(&model, &group, 1)?;
        let state = ShardedCheckpoint::of(&sharded).at(9, 0);
        // Worker 1 looks for the folder elsewhere, where there is none.
        let place = match group.rank() {
            0 => folder.path().to_path_buf(),
            _ => folder.path().join("missing"),
        };
        Ok(ShardedCheckpoints::new(place).save(&state, &group).unwrap_err().to_string())
    });
    let errors = errors.unwrap();
    assert!(errors.iter().all(|text| text.contains("cannot be written")), "{errors:?}");
    assert!(errors[0].contains("worker 1 failed"), "{errors:?}");
    let names = std::fs::read_dir(folder.path()).unwrap();
    let names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names, ["00001-step-1"]);
}

#[test]
fn a_changed_part_is_an_error_of_all_workers_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    threads(2, |group| train(folder.path(), &group, 1)).unwrap();
    let part = folder.path().join("00001-step-1/part-00002-of-00002.safetensors");
    let mut bytes = std::fs::read(&part).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&part, bytes).unwrap();
    let errors = threads(3, |group| {
        let model = mlp();
        let sharded = Sharded::new(&model, &group, 1)?;
        let before = sharded.parameters()[0].to_f64_vec();
        let state = ShardedCheckpoint::of(&sharded);
        let saved = ShardedCheckpoints::new(folder.path()).latest()?.unwrap();
        let error = saved.restore(&state, &group).unwrap_err().to_string();
        assert_eq!(sharded.parameters()[0].to_f64_vec(), before);
        Ok(error)
    });
    let errors = errors.unwrap();
    assert!(errors.iter().all(|text| text.contains("is corrupt")), "{errors:?}");
}
