//! A recorded schedule, run again: computing is a sleep, communication is real.

use crate::simulate::WorkerSchedule;
use pullback::{DType, Group, Result, Tensor};
use std::time::{Duration, Instant};

/// How often each size is measured.
const REPETITIONS: usize = 5;

fn zeros(bytes: f64) -> Tensor {
    Tensor::zeros_with([bytes as usize / 4], DType::F32)
}

/// Runs steps of a schedule and returns how long each took. All workers of the group call it. A
/// step before them is not counted: it touches memory for the first time.
///
/// As in a training, a bucket is reduced in its own memory: nothing is copied.
///
/// ```
/// use pullback_workers::{replay, simulate::{Bucket, WorkerSchedule}, threads};
/// let buckets = vec![Bucket { bytes: 4096.0, ready: 0.001 }];
/// let schedule = WorkerSchedule { forward: 0.001, backward: 0.002, update: 0.0, buckets };
/// let times = threads(2, |group| replay(&group, &schedule, 3))?;
/// assert!(times[1].len() == 3 && times[1].iter().all(|time| time.as_secs_f64() > 0.003));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As a collective.
pub fn replay(group: &Group, schedule: &WorkerSchedule, steps: usize) -> Result<Vec<Duration>> {
    let seconds = Duration::from_secs_f64;
    let mut buckets: Vec<Tensor> = schedule.buckets.iter().map(|b| zeros(b.bytes)).collect();
    let mut times = vec![];
    for step in 0..=steps {
        group.barrier()?;
        let start = Instant::now();
        // Until moments, not for times: what is late once is not late twice.
        let until = |time: f64| std::thread::sleep(seconds(time).saturating_sub(start.elapsed()));
        until(schedule.forward);
        let mut pending = vec![];
        for (bucket, gradient) in schedule.buckets.iter().zip(buckets.drain(..)) {
            until(schedule.forward + bucket.ready);
            pending.push(group.all_reduce_later(gradient));
        }
        until(schedule.forward + schedule.backward);
        for sum in pending {
            buckets.push(sum.wait()?);
        }
        std::thread::sleep(seconds(schedule.update));
        if step > 0 {
            times.push(start.elapsed());
        }
    }
    Ok(times)
}

/// How long the engine takes to reduce each bucket of a schedule, with nothing computed meanwhile:
/// medians, in seconds. All workers of the group call it.
///
/// ```
/// use pullback_workers::{engine_times, simulate::{Bucket, WorkerSchedule}, threads};
/// let buckets = vec![Bucket { bytes: 4096.0, ready: 0.0 }; 2];
/// let schedule = WorkerSchedule { forward: 0.0, backward: 0.0, update: 0.0, buckets };
/// let times = threads(2, |group| engine_times(&group, &schedule))?;
/// assert!(times[0].len() == 2 && times[0][0] > 0.0 && times[0][0] == times[0][1]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As a collective.
pub fn engine_times(group: &Group, schedule: &WorkerSchedule) -> Result<Vec<f64>> {
    let mut sizes: Vec<(f64, f64)> = vec![];
    let mut all = vec![];
    for bucket in &schedule.buckets {
        if let Some(&(_, time)) = sizes.iter().find(|(bytes, _)| *bytes == bucket.bytes) {
            all.push(time);
            continue;
        }
        let (mut tensor, mut times) = (zeros(bucket.bytes), vec![]);
        for repetition in 0..=REPETITIONS {
            group.barrier()?;
            let start = Instant::now();
            tensor = group.all_reduce_later(tensor).wait()?;
            if repetition > 0 {
                times.push(start.elapsed().as_secs_f64());
            }
        }
        times.sort_by(f64::total_cmp);
        let time = times[times.len() / 2];
        sizes.push((bucket.bytes, time));
        all.push(time);
    }
    Ok(all)
}
