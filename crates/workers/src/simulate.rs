//! Past this machine: the step time of many workers, from a schedule that was recorded on one.
//!
//! The α–β model: a message of `n` bytes takes `α + n β`. An all-reduce is then a formula, and a
//! step is a queue: computing goes on, a bucket of gradients is sent when it is ready and the
//! network has finished the one before, and the optimiser waits for the last.
//!
//! | all-reduce | time for `n` bytes and `W` workers |
//! |---|---|
//! | ring | `2 (W - 1) α + 2 n β (W - 1) / W` |
//! | tree (two binary trees, pipelined) | `2 ⌈log₂ W⌉ α + 2 n β` |
//! | hierarchical, `g` workers in a machine | a ring of `g` inside, then a ring of machines |
//!
//! Half of a ring is a reduce-scatter or an all-gather, of which ZeRO is made.

/// What one worker does in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerSchedule {
    /// Seconds of the forward pass.
    pub forward: f64,
    /// Seconds of the backward pass.
    pub backward: f64,
    /// Seconds of the optimiser.
    pub update: f64,
    /// The buckets of gradients, in the order in which they become ready.
    pub buckets: Vec<Bucket>,
}

/// A bucket of gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Its size.
    pub bytes: f64,
    /// When it is ready: seconds after the start of backward.
    pub ready: f64,
}

/// Latency and time for each byte of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Seconds for a message.
    pub latency: f64,
    /// Bytes in a second.
    pub bandwidth: f64,
}

/// Workers in machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedCluster {
    /// Between machines: what one machine sends and receives.
    pub between: Link,
    /// Inside a machine.
    pub inside: Link,
    /// Workers of a machine.
    pub machine: usize,
}

/// How an all-reduce is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A ring of all workers.
    Ring,
    /// Two binary trees of all workers.
    Tree,
    /// Rings inside machines and between them.
    Hierarchical,
}

impl Algorithm {
    /// All, with their names.
    pub const ALL: [(&str, Algorithm); 3] = [
        ("ring", Algorithm::Ring),
        ("tree", Algorithm::Tree),
        ("hierarchical", Algorithm::Hierarchical),
    ];
}

/// What is spread over the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// Nothing: every worker has everything.
    None,
    /// The state of the optimiser (and, which takes the same messages, gradients): ZeRO 1 and 2.
    State,
    /// Parameters too: ZeRO 3.
    Parameters,
}

/// Seconds of half a ring: a reduce-scatter or an all-gather of `bytes` in all.
fn half_ring(link: Link, workers: usize, bytes: f64) -> f64 {
    let (w, steps) = (workers as f64, workers as f64 - 1.0);
    steps * link.latency + bytes / link.bandwidth * steps / w
}

/// The ring of all workers: its slowest link is the one between machines, if there is one.
fn slowest(cluster: &SimulatedCluster, workers: usize) -> Link {
    if workers > cluster.machine { cluster.between } else { cluster.inside }
}

/// Machines, and workers in each.
fn machines(cluster: &SimulatedCluster, workers: usize) -> (usize, usize) {
    let inside = cluster.machine.clamp(1, workers);
    (workers.div_ceil(inside), inside)
}

/// Seconds of a reduce-scatter or an all-gather.
fn half(cluster: &SimulatedCluster, algorithm: Algorithm, workers: usize, bytes: f64) -> f64 {
    match algorithm {
        Algorithm::Ring => half_ring(slowest(cluster, workers), workers, bytes),
        Algorithm::Tree => all_reduce(cluster, algorithm, workers, bytes) / 2.0,
        Algorithm::Hierarchical => {
            let (machines, inside) = machines(cluster, workers);
            // Each worker of a machine sends its part; together they use the machine's link.
            half_ring(cluster.inside, inside, bytes) + half_ring(cluster.between, machines, bytes)
        }
    }
}

/// Seconds of an all-reduce.
///
/// ```
/// use pullback_workers::simulate::{Algorithm, SimulatedCluster, Link, all_reduce};
/// let link = Link { latency: 1e-5, bandwidth: 1e9 };
/// let cluster = SimulatedCluster { between: link, inside: link, machine: 1 };
/// // Three steps there and three back, each with a quarter of the bytes.
/// let time = all_reduce(&cluster, Algorithm::Ring, 4, 4e6);
/// assert!((time - 6.0 * (1e-5 + 1e-3)).abs() < 1e-12);
/// assert_eq!(all_reduce(&cluster, Algorithm::Ring, 1, 4e6), 0.0);
/// ```
pub fn all_reduce(
    cluster: &SimulatedCluster,
    algorithm: Algorithm,
    workers: usize,
    bytes: f64,
) -> f64 {
    match algorithm {
        Algorithm::Ring | Algorithm::Hierarchical => 2.0 * half(cluster, algorithm, workers, bytes),
        Algorithm::Tree => {
            let link = slowest(cluster, workers);
            let depth = workers.next_power_of_two().trailing_zeros() as f64;
            match workers {
                0 | 1 => 0.0,
                _ => 2.0 * depth * link.latency + 2.0 * bytes / link.bandwidth,
            }
        }
    }
}

/// A predicted step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Seconds of a step.
    pub step: f64,
    /// Seconds of it in which the worker waits for the network alone.
    pub exposed: f64,
    /// What one worker takes alone, divided by the step.
    pub efficiency: f64,
}

/// The end of a queue of messages, each of which is ready at a time and takes a time.
fn queue(start: f64, messages: impl Iterator<Item = (f64, f64)>) -> f64 {
    messages.fold(start, |end, (ready, time)| end.max(ready) + time)
}

/// The step of `workers` workers, each of which computes what the schedule says.
///
/// ```
/// use pullback_workers::simulate::*;
/// let bucket = |ready| Bucket { bytes: 1e6, ready };
/// let schedule = WorkerSchedule {
///     forward: 0.1, backward: 0.2, update: 0.01, buckets: vec![bucket(0.1), bucket(0.2)],
/// };
/// let link = Link { latency: 0.0, bandwidth: 1e8 };
/// let cluster = SimulatedCluster { between: link, inside: link, machine: 1 };
/// // The first bucket takes 10 ms behind the rest of backward, the second 10 ms after it.
/// let two = predict(&schedule, &cluster, Algorithm::Ring, Sharding::None, 2);
/// assert!((two.exposed - 0.01).abs() < 1e-12 && (two.step - 0.32).abs() < 1e-12);
/// ```
pub fn predict(
    schedule: &WorkerSchedule,
    cluster: &SimulatedCluster,
    algorithm: Algorithm,
    sharding: Sharding,
    workers: usize,
) -> Prediction {
    let WorkerSchedule { forward, backward, update, buckets } = schedule;
    let half = |bytes: f64| half(cluster, algorithm, workers, bytes);
    let all = |bytes: f64| all_reduce(cluster, algorithm, workers, bytes);
    let of_buckets = |time: &dyn Fn(f64) -> f64| -> Vec<f64> {
        buckets.iter().map(|bucket| time(bucket.bytes)).collect()
    };
    let step = match sharding {
        Sharding::None => return predict_reducing(schedule, &of_buckets(&all)),
        // Gradients go to their owners while backward computes; each updates its part and sends it.
        Sharding::State => {
            let times = of_buckets(&half);
            let gather: f64 = times.iter().sum();
            forward + reduced(schedule, &times) + update / workers as f64 + gather
        }
        Sharding::Parameters => {
            let backward = gathered_backward(buckets, *backward, &half);
            gathered_forward(schedule, &half) + backward + update / workers as f64
        }
    };
    prediction(schedule, step)
}

/// The step of a worker that reduces each bucket in a given time, and has everything: what
/// [`predict`] says without sharding, for any way of reducing.
///
/// ```
/// use pullback_workers::simulate::*;
/// let buckets = vec![Bucket { bytes: 1e6, ready: 0.1 }, Bucket { bytes: 1e6, ready: 0.2 }];
/// let schedule = WorkerSchedule { forward: 0.1, backward: 0.2, update: 0.01, buckets };
/// assert!((predict_reducing(&schedule, &[0.05, 0.03]).exposed - 0.03).abs() < 1e-12);
/// ```
pub fn predict_reducing(schedule: &WorkerSchedule, times: &[f64]) -> Prediction {
    prediction(schedule, schedule.forward + reduced(schedule, times) + schedule.update)
}

fn prediction(schedule: &WorkerSchedule, step: f64) -> Prediction {
    let alone = schedule.forward + schedule.backward + schedule.update;
    Prediction { step, exposed: step - alone.min(step), efficiency: alone / step }
}

/// When backward has ended and all buckets are reduced, each in its time.
fn reduced(schedule: &WorkerSchedule, times: &[f64]) -> f64 {
    let messages = schedule.buckets.iter().map(|bucket| bucket.ready).zip(times.iter().copied());
    queue(0.0, messages).max(schedule.backward)
}

/// Seconds that each bucket's part of the network takes in backward, in order.
fn parts(buckets: &[Bucket], backward: f64) -> Vec<f64> {
    let mut before = 0.0;
    let mut parts: Vec<f64> = buckets
        .iter()
        .map(|bucket| {
            let part = (bucket.ready - before).max(0.0);
            before = bucket.ready.max(before);
            part
        })
        .collect();
    if let Some(last) = parts.last_mut() {
        *last += (backward - before).max(0.0);
    }
    parts
}

/// The forward pass when parameters are gathered one part ahead of their use. Parts run in the
/// opposite order of backward, and take time in the same proportions.
fn gathered_forward(schedule: &WorkerSchedule, half: &dyn Fn(f64) -> f64) -> f64 {
    let parts = parts(&schedule.buckets, schedule.backward);
    let scale = if schedule.backward > 0.0 { schedule.forward / schedule.backward } else { 0.0 };
    let in_order = schedule.buckets.iter().zip(parts).rev();
    pipelined(in_order.map(|(bucket, part)| (half(bucket.bytes), part * scale)), |_| 0.0)
}

/// The same in backward, where the gradients of a part are reduced after it.
fn gathered_backward(buckets: &[Bucket], backward: f64, half: &dyn Fn(f64) -> f64) -> f64 {
    let parts = parts(buckets, backward);
    pipelined(buckets.iter().zip(parts).map(|(bucket, part)| (half(bucket.bytes), part)), |i| {
        half(buckets[i].bytes)
    })
}

/// Parts that are gathered (a time each) before they compute (a time each), one ahead, over one
/// network that also reduces what part `i` gives (`reduce(i)`).
fn pipelined(parts: impl Iterator<Item = (f64, f64)>, reduce: impl Fn(usize) -> f64) -> f64 {
    let parts: Vec<(f64, f64)> = parts.collect();
    let (mut network, mut computed) = (0.0f64, 0.0f64);
    let mut gathered = vec![0.0; parts.len()];
    let mut begun = vec![0.0; parts.len()];
    for i in 0..parts.len() {
        if i == 0 {
            network += parts[0].0;
            gathered[0] = network;
        }
        begun[i] = computed.max(gathered[i]);
        // The next part is gathered while this one computes, before this one's gradients.
        if let Some(next) = parts.get(i + 1) {
            network = network.max(begun[i]) + next.0;
            gathered[i + 1] = network;
        }
        computed = begun[i] + parts[i].1;
        network = match reduce(i) {
            0.0 => network,
            time => network.max(computed) + time,
        };
    }
    computed.max(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule() -> WorkerSchedule {
        let buckets = (1..=4).map(|i| Bucket { bytes: 1e6, ready: 0.05 * f64::from(i) }).collect();
        WorkerSchedule { forward: 0.1, backward: 0.2, update: 0.02, buckets }
    }

    fn cluster(bandwidth: f64) -> SimulatedCluster {
        let link = Link { latency: 0.0, bandwidth };
        SimulatedCluster { between: link, inside: link, machine: 4 }
    }

    #[test]
    fn one_worker_waits_for_nobody() {
        for (_, algorithm) in Algorithm::ALL {
            for sharding in [Sharding::None, Sharding::State, Sharding::Parameters] {
                let one = predict(&schedule(), &cluster(1e6), algorithm, sharding, 1);
                assert!((one.step - 0.32).abs() < 1e-12, "{algorithm:?} {sharding:?}: {one:?}");
            }
        }
    }

    #[test]
    fn only_what_comes_after_backward_is_exposed() {
        // A ring of 2 moves each byte once: 1 ms for a bucket, of which three are hidden.
        let fast = predict(&schedule(), &cluster(1e9), Algorithm::Ring, Sharding::None, 2);
        assert!((fast.exposed - 0.001).abs() < 1e-12, "{fast:?}");
        // 100 ms for a bucket: the first begins after 50 ms, and the network never rests.
        let slow = predict(&schedule(), &cluster(1e7), Algorithm::Ring, Sharding::None, 2);
        assert!((slow.step - (0.1 + 0.05 + 0.4 + 0.02)).abs() < 1e-12, "{slow:?}");
    }

    #[test]
    fn sharded_steps_send_half_as_much_in_backward() {
        // A half ring of 2 takes half a bucket's bytes: 50 ms, as long as a part of backward.
        let state = predict(&schedule(), &cluster(1e7), Algorithm::Ring, Sharding::State, 2);
        assert!((state.step - (0.1 + 0.25 + 0.01 + 0.2)).abs() < 1e-12, "{state:?}");
        // Parts of 25 ms forward and gathers of 50 ms: the network rests never, computing waits.
        let all = predict(&schedule(), &cluster(1e7), Algorithm::Ring, Sharding::Parameters, 2);
        // Forward: 4 gathers and the last part. Backward: gather, gather, (reduce, gather) twice,
        // reduce, and the last reduce.
        let forward = 4.0 * 0.05 + 0.025;
        let backward = 8.0 * 0.05;
        assert!((all.step - (forward + backward + 0.01)).abs() < 1e-12, "{all:?}");
    }

    #[test]
    fn a_hierarchy_pays_for_machines_not_for_workers() {
        let inside = Link { latency: 1e-6, bandwidth: 1e11 };
        let between = Link { latency: 1e-5, bandwidth: 1e10 };
        let cluster = SimulatedCluster { between, inside, machine: 8 };
        let ring = all_reduce(&cluster, Algorithm::Ring, 4096, 1e6);
        let deep = all_reduce(&cluster, Algorithm::Hierarchical, 4096, 1e6);
        let tree = all_reduce(&cluster, Algorithm::Tree, 4096, 1e6);
        assert!((ring - (8190.0 * 1e-5 + 2e-4 * 4095.0 / 4096.0)).abs() < 1e-9);
        let expected = 14.0 * 1e-6 + 2e-5 * 7.0 / 8.0 + 1022.0 * 1e-5 + 2e-4 * 511.0 / 512.0;
        assert!((deep - expected).abs() < 1e-9);
        assert!((tree - (24.0 * 1e-5 + 2e-4)).abs() < 1e-9);
    }
}
