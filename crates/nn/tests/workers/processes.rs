//! The same training with workers that are processes.
//!
//! This program plays three parts: the tests start it as a launcher, which starts it as workers,
//! which write what they have trained to files.

use crate::compared::{mlp, normal};
use pullback::{DType, Key, Result, Tensor, catch, jit};
use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
use pullback_nn::parallel::{DataParallel, FullSharding, Sharded};
use pullback_nn::{Dropout, Layer, Linear, Module, Relu, Sequential};
use pullback_workers::{WorkerLaunch, init, launch};
use std::path::PathBuf;
use std::process::Command;

const PART: &str = "PULLBACK_TEST_PART";
const WORKERS: &str = "PULLBACK_TEST_WORKERS";
const OUT: &str = "PULLBACK_TEST_OUT";

/// What each of so many processes that play a part has trained.
fn run(part: &str, workers: usize) -> Vec<Vec<f64>> {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::as_a_launcher", "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .env(WORKERS, workers.to_string())
        .env(OUT, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{part} with {workers} workers: {said}");
    let read = |rank: usize| {
        let bytes = std::fs::read(folder.path().join(rank.to_string())).unwrap();
        let words = bytes.as_chunks::<8>().0;
        words.iter().map(|&word| f64::from_le_bytes(word)).collect::<Vec<f64>>()
    };
    (0..workers).map(read).collect()
}

/// Not a test of its own: see [`run`].
#[test]
fn as_a_launcher() {
    let Ok(workers) = std::env::var(WORKERS) else { return };
    if std::env::var_os("PULLBACK_SESSION").is_some() {
        return;
    }
    let words = ["--exact", "processes::as_a_worker", "--nocapture", "--test-threads=1"];
    let exe = std::env::current_exe().unwrap();
    let command = std::iter::once(exe.into()).chain(words.map(Into::into)).collect();
    let workers: usize = workers.parse().unwrap();
    let request = WorkerLaunch { command, workers, restarts: 0, min_workers: workers };
    std::process::exit(i32::from(launch(&request).unwrap()));
}

/// Not a test of its own: see [`run`].
#[test]
fn as_a_worker() {
    if std::env::var_os("PULLBACK_SESSION").is_none() {
        return;
    }
    let trained = match std::env::var(PART).as_deref() {
        Ok("eager") => data_parallel(false),
        Ok("compiled") => data_parallel(true),
        Ok("stage 1") => sharded(1),
        Ok("stage 2") => sharded(2),
        Ok("stage 3") => fully_sharded(),
        Ok("logical") => logical(),
        part => panic!("no part {part:?}"),
    };
    let bytes: Vec<u8> = trained.unwrap().into_iter().flat_map(f64::to_le_bytes).collect();
    let folder = PathBuf::from(std::env::var_os(OUT).unwrap());
    std::fs::write(folder.join(init().unwrap().rank().to_string()), bytes).unwrap();
}

fn rule() -> Sgd {
    Sgd { lr: 0.05, momentum: 0.9, ..Sgd::default() }
}

/// A worker's part of a batch of 12.
fn part(number: u64) -> Result<Tensor> {
    let group = init()?;
    let each = 12 / group.size();
    Ok(normal(number, &[12, 6]).narrow(0, (group.rank() * each) as isize, each))
}

fn values(parameters: Vec<Tensor>) -> Vec<f64> {
    parameters.iter().flat_map(Tensor::to_f64_vec).collect()
}

fn data_parallel(compiled: bool) -> Result<Vec<f64>> {
    let (group, model) = (init()?, mlp());
    let optimizer = rule().over(model.parameters())?;
    let parallel = DataParallel::new(&model, &group)?.bucket_bytes(256);
    let step = jit(|x: &Tensor| -> Result<Tensor> {
        optimizer.zero_grad();
        let loss = model.forward(x).square().mean();
        parallel.backward(&loss)?;
        optimizer.step()?;
        Ok(loss)
    });
    for number in 0..4 {
        let x = part(number)?;
        if compiled { step.call(&x) } else { catch(|| step.eager(&x)) }?;
    }
    Ok(values(model.parameters()))
}

fn sharded(stage: usize) -> Result<Vec<f64>> {
    let (group, model) = (init()?, mlp());
    let sharded = Sharded::new(&model, &group, stage)?.bucket_bytes(256);
    let optimizer = rule().over(sharded.parameters())?;
    for number in 0..4 {
        sharded.zero_grad();
        sharded.backward(&model.forward(&part(number)?).square().mean())?;
        sharded.step(&optimizer)?;
    }
    Ok(values(model.parameters()))
}

fn fully_sharded() -> Result<Vec<f64>> {
    let (group, model) = (init()?, mlp());
    let sharding = FullSharding::new(&group);
    let unit = sharding.shard(model)?;
    let optimizer = rule().over(unit.parameters())?;
    for number in 0..4 {
        optimizer.zero_grad();
        sharding.backward(&unit.forward(&part(number)?).square().mean())?;
        optimizer.step()?;
    }
    Ok(unit.call(|model| values(model.parameters())))
}

/// With dropout: what each part draws must not depend on the worker.
fn logical() -> Result<Vec<f64>> {
    let group = init()?;
    let model = Sequential::new()
        .then(Linear::new(6, 8))
        .then(Relu)
        .then(Dropout::new(0.3))
        .then(Linear::new(8, 3));
    let model = crate::compared::seeded(&model).to_dtype(DType::F32);
    pullback::manual_seed(11);
    let optimizer = rule().over(model.parameters())?;
    let parallel = DataParallel::new(&model, &group)?.logical_workers(4)?;
    let step = jit(|(x, y): &(Tensor, Tensor)| -> Result<Tensor> {
        optimizer.zero_grad();
        let loss = parallel.backward_parts(8, |examples| {
            let part = |x: &Tensor| x.narrow(0, examples.start as isize, examples.len());
            catch(|| pullback::cross_entropy(&model.forward(&part(x)), &part(y)))
        })?;
        optimizer.step()?;
        Ok(loss)
    });
    for number in 0..50 {
        let x = normal(number, &[8, 6]).cast(DType::F32);
        let y = Key::new(3).fold_in(number).randint([8], 0, 3);
        // Some steps eagerly and some compiled.
        let batch = (x, y);
        if number < 40 { step.call(&batch) } else { catch(|| step.eager(&batch)) }?;
    }
    Ok(values(model.parameters()))
}

#[test]
fn processes_train_as_one_does() {
    let wanted = run("eager", 1).remove(0);
    for part in ["eager", "compiled", "stage 1", "stage 2", "stage 3"] {
        for trained in run(part, 3) {
            assert_eq!(trained.len(), wanted.len());
            for (a, b) in trained.iter().zip(&wanted) {
                assert!((a - b).abs() < 1e-12, "{part}: {a} is not {b}");
            }
        }
    }
}

#[test]
fn any_number_of_processes_gives_the_same_bits_with_dropout() {
    let bits = |workers| {
        let all = run("logical", workers);
        assert!(all.iter().all(|values| values == &all[0]));
        all[0].iter().map(|x| x.to_bits()).collect::<Vec<u64>>()
    };
    let one = bits(1);
    assert!(bits(2) == one && bits(4) == one);
}
