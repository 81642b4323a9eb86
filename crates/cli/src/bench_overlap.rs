//! `pullback bench workers --plot` and `--record`: a data-parallel step of a GPT, on a network that
//! takes a stated time.
//!
//! There is one worker, so that nothing competes for the cores with its backward; its group
//! takes for every collective as long as the network would. Without overlap there is one bucket,
//! which is complete when backward is.

use crate::failure::{CliResult, Failure};
use crate::output::{StandardOutput, columns};
use pullback::{Group, Tensor};
use pullback_nn::Module;
use pullback_nn::models::{Gpt, GptConfig};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::parallel::DataParallel;
use pullback_nn::train::plots::Chart;
use pullback_workers::{Network, delayed};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// The GPT of the workload `gpt_step`.
pub const SMALL: GptConfig =
    GptConfig { vocabulary: 512, length: 256, width: 256, heads: 8, layers: 4, dropout: 0.0 };
/// GPT-2 with 124 million parameters.
const GPT2: GptConfig =
    GptConfig { vocabulary: 50257, length: 1024, width: 768, heads: 12, layers: 12, dropout: 0.0 };
const BATCH: usize = 4;
const LATENCY: Duration = Duration::from_micros(50);
/// Of the network, in megabytes a second.
const BANDWIDTHS: [f64; 7] = [25.0, 50.0, 75.0, 100.0, 150.0, 250.0, 500.0];
/// Buckets of the small GPT: about a dozen.
const BUCKET: usize = 1 << 20;
const STEPS: usize = 5;

/// A bandwidth.
#[derive(Serialize)]
struct BandwidthRow {
    bandwidth_mb_per_s: f64,
    /// Of all buckets, one after the other.
    communication_ms: f64,
    overlapped_ms: f64,
    sequential_ms: f64,
    computing_ms: f64,
    /// The part of the communication that a step does not wait for.
    hidden: f64,
    /// The most that could be: all of backward, after the first gradients, is used for sending.
    possible: f64,
}

/// What steps of a model took: medians.
struct Steps {
    time: f64,
    /// How long a step waited for the network after backward.
    waited: f64,
    /// How long backward took, and how much of it was before the first bucket.
    backward: f64,
    first: f64,
    /// The bytes of its buckets.
    buckets: Vec<usize>,
}

fn steps(config: &GptConfig, network: Network, bucket: usize) -> CliResult<Steps> {
    let model = Gpt::new(config);
    let group = delayed(&Group::alone(), network);
    let parallel = DataParallel::new(&model, &group)?.bucket_bytes(bucket);
    let optimizer = AdamW { lr: 3e-4, ..AdamW::default() }.over(model.parameters())?;
    let (ids, next) = tokens(config, BATCH, config.length);
    let (mut times, mut waits, mut buckets) = (vec![], vec![], vec![]);
    let (mut backwards, mut firsts) = (vec![], vec![]);
    for _ in 0..STEPS + 2 {
        let start = Instant::now();
        optimizer.zero_grad();
        parallel.backward(&model.loss(&ids, &next))?;
        optimizer.step()?;
        times.push(start.elapsed().as_secs_f64());
        let step = parallel.schedule().ok_or_else(|| Failure::failed("no step was recorded"))?;
        waits.push(step.waited);
        backwards.push(step.backward);
        firsts.push(step.buckets.first().map_or(0.0, |bucket| bucket.ready));
        buckets = step.buckets.iter().map(|bucket| bucket.bytes).collect();
    }
    // The first fills the buckets in the order of gradients, the second has them in that order.
    let median = |values: &mut [f64]| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Ok(Steps {
        time: median(&mut times[2..]),
        waited: median(&mut waits[2..]),
        backward: median(&mut backwards[2..]),
        first: median(&mut firsts[2..]),
        buckets,
    })
}

/// Any tokens will do for a step.
pub fn tokens(config: &GptConfig, batch: usize, length: usize) -> (Tensor, Tensor) {
    let token = |i: usize| (i * 7919 % config.vocabulary) as i64;
    let ids: Vec<i64> = (0..batch * length + 1).map(token).collect();
    let shaped = |ids: &[i64]| Tensor::from_vec(ids, [batch, length]);
    (shaped(&ids[..batch * length]), shaped(&ids[1..]))
}

/// Measures the step with and without overlap, prints a table and draws a plot.
///
/// # Errors
/// If a step fails, or the plot cannot be written.
pub fn plot(path: &Path, json: bool, out: &mut StandardOutput) -> CliResult {
    let free = Network { latency: Duration::ZERO, bandwidth: f64::INFINITY };
    let mut rows = vec![];
    for megabytes in BANDWIDTHS {
        let network = Network { latency: LATENCY, bandwidth: megabytes * 1e6 };
        // One after the other, so that all three see the same machine.
        let computing = steps(&SMALL, free, BUCKET)?.time;
        let overlapped = steps(&SMALL, network, BUCKET)?;
        let sequential = steps(&SMALL, network, usize::MAX)?.time;
        let times = overlapped.buckets.iter().map(|&bytes| network.time(bytes).as_secs_f64());
        let communication: f64 = times.sum();
        let hidden = 1.0 - (overlapped.waited / communication).clamp(0.0, 1.0);
        let possible = ((overlapped.backward - overlapped.first) / communication).min(1.0);
        rows.push(BandwidthRow {
            bandwidth_mb_per_s: megabytes,
            communication_ms: communication * 1e3,
            overlapped_ms: overlapped.time * 1e3,
            sequential_ms: sequential * 1e3,
            computing_ms: computing * 1e3,
            hidden,
            possible,
        });
    }
    let points =
        |of: fn(&BandwidthRow) -> f64| rows.iter().map(|r| (r.bandwidth_mb_per_s, of(r))).collect();
    Chart::new("A step of a GPT: time against bandwidth")
        .x_label("bandwidth, MB/s")
        .y_label("ms")
        .line("communication after backward", points(|row| row.sequential_ms))
        .line("communication during backward", points(|row| row.overlapped_ms))
        .line("computing alone", points(|row| row.computing_ms))
        .save(path)?;
    if json {
        for row in &rows {
            let text = serde_json::to_string(row).map_err(|e| Failure::failed(e.to_string()))?;
            out.line(text)?;
        }
        return Ok(());
    }
    let heading = [
        "MB/s",
        "communication ms",
        "computing ms",
        "overlapped ms",
        "sequential ms",
        "hidden",
        "possible",
    ];
    let mut table = vec![heading.map(String::from).to_vec()];
    table.extend(rows.iter().map(|row| {
        vec![
            format!("{:.0}", row.bandwidth_mb_per_s),
            format!("{:.1}", row.communication_ms),
            format!("{:.1}", row.computing_ms),
            format!("{:.1}", row.overlapped_ms),
            format!("{:.1}", row.sequential_ms),
            format!("{:.0}%", row.hidden * 100.0),
            format!("{:.0}%", row.possible * 100.0),
        ]
    }));
    columns(&table, &[0, 1, 2, 3, 4, 5, 6]).iter().try_for_each(|line| out.line(line))?;
    Ok(out.line(format!("the plot is {}", path.display()))?)
}

/// Records the schedule of a step of GPT-2 on this machine: a batch of one text of `length` tokens.
///
/// # Errors
/// If a step fails, or the file cannot be written.
pub fn record(path: &Path, length: usize, out: &mut StandardOutput) -> CliResult {
    if !(1..=GPT2.length).contains(&length) {
        let message = format!("--tokens {length} is not between 1 and {}", GPT2.length);
        return Err(Failure::usage(message));
    }
    let model = Gpt::new(&GPT2);
    let free = Network { latency: Duration::ZERO, bandwidth: f64::INFINITY };
    let group = delayed(&Group::alone(), free);
    let parallel = DataParallel::new(&model, &group)?;
    let optimizer = AdamW { lr: 3e-4, ..AdamW::default() }.over(model.parameters())?;
    let (ids, next) = tokens(&GPT2, 1, length);
    for _ in 0..3 {
        optimizer.zero_grad();
        parallel.backward(&model.loss(&ids, &next))?;
        optimizer.step()?;
    }
    let schedule = parallel.schedule().ok_or_else(|| Failure::failed("no step was recorded"))?;
    schedule.save(path)?;
    Ok(out.line(format!(
        "{}: forward and update {:.0} ms, backward {:.0} ms, {} buckets",
        path.display(),
        schedule.forward * 1e3,
        schedule.backward * 1e3,
        schedule.buckets.len()
    ))?)
}
