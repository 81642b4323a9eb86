//! `pullback bench workers`: how fast the engines reduce.
//!
//! Started alone it starts workers: threads, and processes by `pullback launch`. Started as a
//! worker (by `launch`, mpirun or slurm) it measures the group it belongs to, and worker 0 prints.

use crate::failure::{CliResult, Failure};
use crate::output::{StandardOutput, columns};
use pullback::Group;
use serde::{Deserialize, Serialize};
use std::process::Command;

/// A measured size.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct MessageSizeRow {
    engine: String,
    workers: usize,
    bytes: usize,
    /// The median of all repetitions, and the least, which other load of the machine changes less.
    ms: f64,
    least_ms: f64,
    /// Billions of bytes of the operand in a second.
    gb_per_s: f64,
}

/// Groups that are measured on this machine.
const SIZES: [usize; 2] = [2, 4];

/// Measures and prints. Operands have up to `largest` MiB.
///
/// # Errors
/// If a group cannot be started, or fails.
pub fn run(largest: usize, json: bool, out: &mut StandardOutput) -> CliResult {
    let group = pullback_workers::init()?;
    let rows = if group.size() > 1 {
        measure(&group, largest)?
    } else {
        let mut rows = vec![];
        for workers in SIZES {
            let threads = pullback_workers::threads(workers, |group| measure(&group, largest))?;
            rows.extend(threads.into_iter().next().unwrap_or_default());
            rows.extend(launched(workers, largest)?);
        }
        rows
    };
    if group.rank() > 0 {
        return Ok(());
    }
    if json {
        for row in &rows {
            let text = serde_json::to_string(row).map_err(|e| Failure::failed(e.to_string()))?;
            out.line(text)?;
        }
        return Ok(());
    }
    let heading = ["engine", "workers", "bytes", "ms", "least ms", "GB/s"];
    let mut table = vec![heading.map(String::from).to_vec()];
    table.extend(rows.iter().map(|row| {
        let [ms, least] = [row.ms, row.least_ms].map(|ms| format!("{ms:.3}"));
        let speed = format!("{:.2}", row.gb_per_s);
        vec![row.engine.clone(), row.workers.to_string(), row.bytes.to_string(), ms, least, speed]
    }));
    Ok(columns(&table, &[1, 2, 3, 4, 5]).iter().try_for_each(|line| out.line(line))?)
}

/// Measures an all-reduce of f32 of each size.
fn measure(group: &Group, largest: usize) -> pullback::Result<Vec<MessageSizeRow>> {
    let sizes = (10..).step_by(2).map(|power| 1usize << power);
    let mut sizes: Vec<usize> = sizes.take_while(|&bytes| bytes <= largest << 20).collect();
    // The usual size of a bucket.
    if largest >= 25 {
        sizes.push(25 << 20);
        sizes.sort_unstable();
    }
    let mut rows = vec![];
    for bytes in sizes {
        // As many on every worker.
        let repetitions = ((256 << 20) / bytes).clamp(5, 300);
        let mut times = pullback_workers::all_reduce_times(group, bytes, repetitions)?;
        times.sort();
        let median = times[times.len() / 2].as_secs_f64();
        rows.push(MessageSizeRow {
            engine: group.engine().to_string(),
            workers: group.size(),
            bytes,
            ms: median * 1e3,
            least_ms: times[0].as_secs_f64() * 1e3,
            gb_per_s: bytes as f64 / median / 1e9,
        });
    }
    Ok(rows)
}

/// Processes that measure.
fn launched(workers: usize, largest: usize) -> CliResult<Vec<MessageSizeRow>> {
    let program = std::env::current_exe()?;
    let output = Command::new(&program)
        .args(["launch", "-n", &workers.to_string(), "--"])
        .arg(&program)
        .args(["bench", "workers", "--json", "--largest", &largest.to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::failed(format!("{workers} workers failed:\n{errors}")));
    }
    let lines = text.lines().filter_map(|line| line.strip_prefix("[0] "));
    let rows = lines.map(serde_json::from_str);
    rows.collect::<Result<_, _>>().map_err(|error| Failure::failed(error.to_string()))
}
