//! A recorded schedule, run again: computing is a sleep, communication is real.

use crate::simulate::Schedule;
use pullback::{DType, Group, Result, Tensor};
use std::time::{Duration, Instant};

/// Runs steps of a schedule and returns how long each took. All workers of the group call it.
///
/// ```
/// use pullback_workers::{replay, simulate::{Bucket, Schedule}, threads};
/// let buckets = vec![Bucket { bytes: 4096.0, ready: 0.001 }];
/// let schedule = Schedule { forward: 0.001, backward: 0.002, update: 0.0, buckets };
/// let times = threads(2, |group| replay(&group, &schedule, 3))?;
/// assert!(times[1].iter().all(|time| time.as_secs_f64() > 0.003));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As a collective.
pub fn replay(group: &Group, schedule: &Schedule, steps: usize) -> Result<Vec<Duration>> {
    let seconds = Duration::from_secs_f64;
    let buckets: Vec<Tensor> = schedule
        .buckets
        .iter()
        .map(|bucket| Tensor::zeros_with([bucket.bytes as usize / 4], DType::F32))
        .collect();
    let mut times = vec![];
    for _ in 0..steps {
        group.barrier()?;
        let start = Instant::now();
        // Until moments, not for times: what is late once is not late twice.
        let until = |time: f64| std::thread::sleep(seconds(time).saturating_sub(start.elapsed()));
        until(schedule.forward);
        let mut pending = vec![];
        for (bucket, gradient) in schedule.buckets.iter().zip(&buckets) {
            until(schedule.forward + bucket.ready);
            pending.push(group.all_reduce_later(gradient));
        }
        until(schedule.forward + schedule.backward);
        for sum in pending {
            sum.wait()?;
        }
        std::thread::sleep(seconds(schedule.update));
        times.push(start.elapsed());
    }
    Ok(times)
}
