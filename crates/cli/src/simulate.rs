//! `pullback simulate`: the step time of many workers, from a recorded schedule.

use crate::failure::{CliResult, Failure};
use crate::output::{StandardOutput, columns};
use crate::simulate_training;
use clap::Args;
use pullback_workers::simulate::{
    Algorithm, Bucket, Link, Prediction, Sharding, SimulatedCluster, WorkerSchedule, all_reduce,
    predict, predict_reducing,
};
use pullback_workers::{Network, delayed, engine_times, replay};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `pullback simulate` takes.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  pullback simulate step.json                      8 to 4,096 workers with the network below
  pullback simulate step.json --workers 64,512 --bandwidth 12.5 --latency 20
  pullback simulate step.json --json               a JSON object a line
  pullback simulate step.json --check 2,4,8        beside measured runs of threads on this machine
  pullback simulate --train 2,4,8 --bandwidth 0.2  beside trainings of threads on this machine

A schedule is a JSON object with times in seconds: {\"forward\": 0.04, \"backward\": 0.08, \"update\": 0.005, \"buckets\": [{\"bytes\": 26214400, \"ready\": 0.0125}, …]}; \
`ready` counts from the start of backward, `update` may be part of `forward`. `DataParallel::schedule` records one.
The model: a message of n bytes takes latency + n / bandwidth; a bucket is sent when it is ready and the one before has arrived; the optimiser waits for the last. \
`efficiency` is the time of one worker alone divided by that of a step.
--check replays the schedule with threads: computing is a sleep of the recorded time, buckets are reduced by the engine and take the time of the network at least. What the engine needs by itself is measured before (`engine ms`, of all buckets): a bucket is predicted to take that, or the time of the network, whichever is longer.
--train trains a small GPT with so many threads, which share the cores: without a network, to record the schedule of as many workers, and with it, to measure what is predicted from that.")]
pub struct SimulateArgs {
    /// The recorded schedule, a JSON file
    #[arg(required_unless_present = "train")]
    schedule: Option<PathBuf>,
    /// How many workers
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_values_t = [8usize, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096])]
    workers: Vec<usize>,
    /// Microseconds of a message between machines
    #[arg(long, value_name = "US", default_value_t = 20.0)]
    latency: f64,
    /// Gigabytes that a machine sends in a second
    #[arg(long, value_name = "GB", default_value_t = 12.5)]
    bandwidth: f64,
    /// Microseconds of a message inside a machine
    #[arg(long, value_name = "US", default_value_t = 3.0)]
    latency_inside: f64,
    /// Gigabytes that a worker sends in a second inside its machine
    #[arg(long, value_name = "GB", default_value_t = 100.0)]
    bandwidth_inside: f64,
    /// Workers of a machine
    #[arg(long, value_name = "N", default_value_t = 8)]
    machine: usize,
    /// Measures runs of so many workers on this machine beside the predicted ones
    #[arg(long, value_name = "N,N,…", value_delimiter = ',')]
    check: Vec<usize>,
    /// Trains a small GPT with so many workers on this machine, and predicts that
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', conflicts_with = "schedule")]
    train: Vec<usize>,
    /// Prints JSON lines
    #[arg(long)]
    json: bool,
}

/// A step as `DataParallel` records it; times are in seconds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedStep {
    forward: f64,
    backward: f64,
    #[serde(default)]
    update: f64,
    buckets: Vec<RecordedBucket>,
    /// What the recorded run waited for the network says nothing about another one.
    #[serde(default, rename = "waited")]
    _waited: f64,
    #[serde(default, rename = "workers")]
    _workers: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedBucket {
    bytes: f64,
    ready: f64,
}

#[derive(Serialize)]
struct SimulationRow<'a> {
    workers: usize,
    algorithm: &'a str,
    sharding: &'a str,
    step_ms: f64,
    exposed_ms: f64,
    efficiency: f64,
}

const SHARDINGS: [(&str, Sharding); 3] =
    [("none", Sharding::None), ("zero1-2", Sharding::State), ("zero3", Sharding::Parameters)];

/// Predicts and prints.
///
/// # Errors
/// If the schedule cannot be read, or a number makes no sense.
pub fn run(arguments: &SimulateArgs, out: &mut StandardOutput) -> CliResult {
    let given = [&arguments.workers, &arguments.check, &arguments.train];
    if given.into_iter().flatten().any(|&workers| workers == 0) {
        return Err(Failure::usage("--workers: a group has one worker at least"));
    }
    let cluster = cluster(arguments)?;
    let Some(path) = &arguments.schedule else {
        return beside(arguments, &arguments.train, out, simulate_training::train);
    };
    let schedule = read(path)?;
    if !arguments.check.is_empty() {
        return beside(arguments, &arguments.check, out, |workers, network| {
            let times = pullback_workers::threads(workers, |group| {
                let engine = engine_times(&group, &schedule)?;
                Ok((replay(&delayed(&group, network), &schedule, 5)?, engine))
            })?;
            let (times, engine) = times.into_iter().next().unwrap_or_default();
            let mut measured: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
            measured.sort_by(f64::total_cmp);
            let measured = measured[measured.len() / 2];
            Ok(MeasuredRun { schedule: schedule.clone(), engine, measured })
        });
    }
    let mut rows = vec![];
    for &workers in &arguments.workers {
        let of = |algorithm, sharding| predict(&schedule, &cluster, algorithm, sharding, workers);
        for (name, algorithm) in Algorithm::ALL {
            rows.push((workers, name, "none", of(algorithm, Sharding::None)));
        }
        for (name, sharding) in &SHARDINGS[1..] {
            rows.push((workers, "hierarchical", name, of(Algorithm::Hierarchical, *sharding)));
        }
    }
    print(&rows, arguments.json, out)
}

fn print(
    rows: &[(usize, &str, &str, Prediction)],
    json: bool,
    out: &mut StandardOutput,
) -> CliResult {
    if json {
        for (workers, algorithm, sharding, predicted) in rows {
            let row = SimulationRow {
                workers: *workers,
                algorithm,
                sharding,
                step_ms: predicted.step * 1e3,
                exposed_ms: predicted.exposed * 1e3,
                efficiency: predicted.efficiency,
            };
            let text = serde_json::to_string(&row).map_err(|e| Failure::failed(e.to_string()))?;
            out.line(text)?;
        }
        return Ok(());
    }
    let heading = ["workers", "all-reduce", "sharding", "step ms", "exposed ms", "efficiency"];
    let mut table = vec![heading.map(String::from).to_vec()];
    for (workers, algorithm, sharding, predicted) in rows {
        table.push(vec![
            workers.to_string(),
            algorithm.to_string(),
            sharding.to_string(),
            format!("{:.2}", predicted.step * 1e3),
            format!("{:.2}", predicted.exposed * 1e3),
            format!("{:.1}%", predicted.efficiency * 100.0),
        ]);
    }
    Ok(columns(&table, &[0, 3, 4, 5]).iter().try_for_each(|line| out.line(line))?)
}

/// Steps that were measured.
pub struct MeasuredRun {
    /// What a worker does, without a network.
    pub schedule: WorkerSchedule,
    /// How long the engine takes for each bucket.
    pub engine: Vec<f64>,
    /// How long a step took with the network.
    pub measured: f64,
}

/// Predicted beside measured. The network is the one between machines, as all workers of this
/// machine would be in machines of their own.
fn beside(
    arguments: &SimulateArgs,
    workers: &[usize],
    out: &mut StandardOutput,
    measure: impl Fn(usize, Network) -> CliResult<MeasuredRun>,
) -> CliResult {
    let link = link(arguments.latency, arguments.bandwidth)?;
    let cluster = SimulatedCluster { between: link, inside: link, machine: 1 };
    let heading =
        ["workers", "computing ms", "engine ms", "predicted ms", "measured ms", "difference"];
    let mut table = vec![heading.map(String::from).to_vec()];
    for &workers in workers {
        // The formula of a ring, as latency and bandwidth of a call.
        let ring = |bytes: f64| all_reduce(&cluster, Algorithm::Ring, workers, bytes);
        let latency = ring(0.0);
        let bandwidth = 1.0 / (ring(1.0) - latency).max(f64::MIN_POSITIVE);
        let network = Network { latency: Duration::from_secs_f64(latency), bandwidth };
        let MeasuredRun { schedule, engine, measured } = measure(workers, network)?;
        let buckets = schedule.buckets.iter().zip(&engine);
        let times: Vec<f64> = buckets.map(|(bucket, own)| ring(bucket.bytes).max(*own)).collect();
        let predicted = predict_reducing(&schedule, &times).step;
        table.push(vec![
            workers.to_string(),
            format!("{:.2}", (schedule.forward + schedule.backward + schedule.update) * 1e3),
            format!("{:.2}", engine.iter().sum::<f64>() * 1e3),
            format!("{:.2}", predicted * 1e3),
            format!("{:.2}", measured * 1e3),
            format!("{:+.1}%", (predicted / measured - 1.0) * 100.0),
        ]);
    }
    Ok(columns(&table, &[0, 1, 2, 3, 4, 5]).iter().try_for_each(|line| out.line(line))?)
}

fn read(path: &Path) -> CliResult<WorkerSchedule> {
    let text = std::fs::read_to_string(path);
    let path = path.display();
    let text = text.map_err(|error| Failure::failed(format!("{path}: {error}")))?;
    let recorded: RecordedStep = serde_json::from_str(&text)
        .map_err(|error| Failure::failed(format!("{path} is not a schedule: {error}")))?;
    let times = [recorded.forward, recorded.backward, recorded.update];
    let of_buckets = recorded.buckets.iter().flat_map(|bucket| [bucket.bytes, bucket.ready]);
    if times.into_iter().chain(of_buckets).any(|number| !number.is_finite() || number < 0.0) {
        let message = format!("{path} is not a schedule: a time or a size is negative");
        return Err(Failure::failed(message));
    }
    let late = |bucket: &RecordedBucket| bucket.ready > recorded.backward;
    if let Some(bucket) = recorded.buckets.iter().find(|bucket| late(bucket)) {
        return Err(Failure::failed(format!(
            "{path} is not a schedule: a bucket is ready after {} s, but backward takes {}",
            bucket.ready, recorded.backward
        )));
    }
    let buckets = recorded.buckets.iter();
    Ok(WorkerSchedule {
        forward: recorded.forward,
        backward: recorded.backward,
        update: recorded.update,
        buckets: buckets.map(|b| Bucket { bytes: b.bytes, ready: b.ready }).collect(),
    })
}

fn link(latency: f64, bandwidth: f64) -> CliResult<Link> {
    if !(latency.is_finite() && latency >= 0.0 && bandwidth.is_finite() && bandwidth > 0.0) {
        let message = "a network has a latency, in microseconds, and a bandwidth above zero";
        return Err(Failure::usage(message));
    }
    Ok(Link { latency: latency * 1e-6, bandwidth: bandwidth * 1e9 })
}

fn cluster(arguments: &SimulateArgs) -> CliResult<SimulatedCluster> {
    if arguments.machine == 0 {
        return Err(Failure::usage("--machine: a machine has one worker at least"));
    }
    Ok(SimulatedCluster {
        between: link(arguments.latency, arguments.bandwidth)?,
        inside: link(arguments.latency_inside, arguments.bandwidth_inside)?,
        machine: arguments.machine,
    })
}
