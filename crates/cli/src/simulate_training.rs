//! `pullback simulate --train`: trainings on this machine beside what the model predicts for them.
//!
//! Workers are threads that train a small GPT with `DataParallel`. They share the cores, so how
//! long computing takes depends on how many they are: it is recorded with as many workers and no
//! network.
//! From that the model predicts the step with a network, and the same training is measured with an
//! engine that takes at least as long as the network would. So what is checked is the part of the
//! model that is about communication; nothing is predicted about computing.

use crate::bench_overlap::{SMALL, tokens};
use crate::failure::CliResult;
use crate::simulate::MeasuredRun;
use pullback::Group;
use pullback_nn::Module;
use pullback_nn::models::{Gpt, GptConfig};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::parallel::{BucketTime, DataParallel, StepSchedule};
use pullback_workers::simulate::{Bucket, WorkerSchedule};
use pullback_workers::{Network, delayed, engine_times};
use std::time::{Duration, Instant};

/// Tokens of a worker's batch.
const LENGTH: usize = 64;
const BUCKET: usize = 1 << 20;
/// Steps at a time; the first of them settles the buckets.
const STEPS: usize = 5;
/// Both trainings are measured in turn, so that they see the same machine.
const ROUNDS: usize = 4;

/// What one worker saw.
#[derive(Default)]
struct WorkerMeasurement {
    engine: Vec<f64>,
    schedules: Vec<StepSchedule>,
    with_network: Vec<Duration>,
}

/// Trains, without a network and with it.
///
/// # Errors
/// If a step fails.
pub fn train(workers: usize, network: Network) -> CliResult<MeasuredRun> {
    let threads = pullback::threads();
    pullback::set_threads(1);
    let seen = pullback_workers::threads(workers, |group| {
        let free = Network { latency: Duration::ZERO, bandwidth: f64::INFINITY };
        let groups = [delayed(&group, free), delayed(&group, network)];
        let mut seen = WorkerMeasurement::default();
        for _ in 0..ROUNDS {
            for (number, group) in groups.iter().enumerate() {
                let (schedules, times) = steps(group)?;
                match number {
                    0 => seen.schedules.extend(schedules),
                    _ => seen.with_network.extend(times),
                }
            }
        }
        if let Some(step) = seen.schedules.last() {
            seen.engine = engine_times(&group, &of_step(step))?;
        }
        Ok(seen)
    });
    pullback::set_threads(threads);
    let seen = seen?;
    let measured = quartile(seen[0].with_network.iter().map(Duration::as_secs_f64));
    Ok(MeasuredRun { schedule: slowest(&seen), engine: seen[0].engine.clone(), measured })
}

/// One step, as it was seen.
fn of_step(step: &StepSchedule) -> WorkerSchedule {
    let bucket = |b: &BucketTime| Bucket { bytes: b.bytes as f64, ready: b.ready };
    let buckets = step.buckets.iter().map(bucket).collect();
    WorkerSchedule { forward: step.forward, backward: step.backward, update: 0.0, buckets }
}

fn steps(group: &Group) -> pullback::Result<(Vec<StepSchedule>, Vec<Duration>)> {
    let config = GptConfig { length: LENGTH, ..SMALL };
    let model = Gpt::new(&config);
    let parallel = DataParallel::new(&model, group)?.bucket_bytes(BUCKET);
    let optimizer = AdamW { lr: 3e-4, ..AdamW::default() }.over(model.parameters())?;
    let (ids, next) = tokens(&config, 1, LENGTH);
    let (mut schedules, mut times) = (vec![], vec![]);
    group.barrier()?;
    for step in 0..STEPS + 2 {
        let start = Instant::now();
        optimizer.zero_grad();
        parallel.backward(&model.loss(&ids, &next))?;
        optimizer.step()?;
        if step >= 2 {
            times.push(start.elapsed());
            schedules.extend(parallel.schedule());
        }
    }
    Ok((schedules, times))
}

/// The lower quartile: what else runs on the machine only adds time.
fn quartile(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 4).copied().unwrap_or(0.0)
}

/// A bucket is reduced when the last worker has it, so of each moment the latest counts: of the
/// workers in a step, and the lower quartile of the steps.
fn slowest(seen: &[WorkerMeasurement]) -> WorkerSchedule {
    let steps = seen.iter().map(|seen| seen.schedules.len()).min().unwrap_or(0);
    let latest = |moment: &dyn Fn(&StepSchedule) -> f64| {
        let of_step =
            |step: usize| seen.iter().map(|seen| moment(&seen.schedules[step])).fold(0.0, f64::max);
        quartile((0..steps).map(of_step))
    };
    let forward = latest(&|step| step.forward);
    let buckets = seen[0].schedules.last().map(|step| step.buckets.clone()).unwrap_or_default();
    let buckets = buckets.iter().enumerate().map(|(i, bucket)| {
        let ready = latest(&|step| step.forward + step.buckets.get(i).map_or(0.0, |b| b.ready));
        Bucket { bytes: bucket.bytes as f64, ready: (ready - forward).max(0.0) }
    });
    let buckets: Vec<Bucket> = buckets.collect();
    let backward = (latest(&|step| step.forward + step.backward) - forward).max(0.0);
    WorkerSchedule { forward, backward, update: 0.0, buckets }
}
