//! Timing, by the protocol of the peers' scripts, and what the operating system says about this
//! process.

use crate::{limits, profiled, quick};
use std::fs;
use std::time::{Duration, Instant};

/// Ticks per second in `/proc`, on every Linux this runs on.
const TICKS: f64 = 100.0;
/// A run this often is not repeated more.
const MOST_RUNS: usize = 2000;

/// One line of results: a workload's suffix and its figures, in the order of printing.
#[derive(Clone, Default)]
pub struct Measurement {
    /// What follows the workload's name.
    pub suffix: String,
    /// Names and values.
    pub fields: Vec<(&'static str, f64)>,
}

impl Measurement {
    /// The row under the workload's name and this suffix.
    pub fn named(mut self, suffix: impl Into<String>) -> Measurement {
        self.suffix = suffix.into();
        self
    }

    /// The row with one more figure.
    pub fn with(mut self, name: &'static str, value: f64) -> Measurement {
        self.fields.push((name, value));
        self
    }

    /// A figure, if the row has it.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.fields.iter().find(|f| f.0 == name).map(|f| f.1)
    }

    /// The median time in milliseconds.
    pub fn ms(&self) -> f64 {
        self.get("ms").unwrap_or(f64::NAN)
    }
}

/// Times `step` for two seconds.
pub fn measure(step: impl FnMut()) -> Measurement {
    Protocol::default().measure(step)
}

/// How long to warm up and to time, and how often at least.
pub struct Protocol {
    /// Runs before timing starts, at least.
    pub warm_runs: usize,
    /// Seconds of warm-up.
    pub warm: f64,
    /// Timed runs, at least.
    pub runs: usize,
    /// Seconds of timed runs.
    pub budget: f64,
    /// Whether as many runs are also timed together, with one wait for the device at their end.
    pub sustained: bool,
}

impl Default for Protocol {
    fn default() -> Protocol {
        match quick::on() {
            true => Protocol { warm: 0.0, runs: 3, budget: 0.0, ..Protocol::SECONDS },
            false => Protocol::SECONDS,
        }
    }
}

impl Protocol {
    /// Two seconds after half a second.
    const SECONDS: Protocol =
        Protocol { warm_runs: 3, warm: 0.5, runs: 10, budget: 2.0, sustained: false };

    /// So many runs after so many to warm up, as the peers' scripts for GPUs count them. The host
    /// needs some microseconds to start a run and to see its end; `sustained_ms` is free of them.
    pub fn counted(warm_runs: usize, runs: usize) -> Protocol {
        let (warm_runs, runs) = quick::size((warm_runs, runs), (2, 2));
        Protocol { warm_runs, warm: 0.0, runs, budget: 0.0, sustained: true }
    }

    /// Times `step`: the first run separately, a warm-up, then until the time is used up.
    pub fn measure(&self, mut step: impl FnMut()) -> Measurement {
        let mut mean_of = |runs: usize| {
            let start = Instant::now();
            (0..runs).for_each(|_| step());
            // A device other than the host may still be at work.
            let waited = pullback::backend::synchronize(pullback::default_device());
            waited.unwrap_or_else(|error| panic!("{error}"));
            milliseconds(start.elapsed()) / runs as f64
        };
        let mut time = || mean_of(1);
        limits::forget();
        let first = time();
        let (start, mut n) = (Instant::now(), 1);
        while n < self.warm_runs || (start.elapsed().as_secs_f64() < self.warm && n < MOST_RUNS) {
            time();
            n += 1;
        }
        let mut times = Vec::new();
        let (others, start) = (others_seconds(), Instant::now());
        while times.len() < self.runs
            || (start.elapsed().as_secs_f64() < self.budget && times.len() < MOST_RUNS)
        {
            times.push(time());
        }
        let wall = start.elapsed().as_secs_f64();
        let load = (others_seconds() - others) / wall;
        times.sort_by(f64::total_cmp);
        let row = Measurement::default()
            .with("ms", rounded(median(&times), 5))
            .with("min_ms", rounded(times[0], 5))
            .with("runs", times.len() as f64)
            .with("first_ms", rounded(first, 2))
            .with("other_cpu", rounded(load.max(0.0), 3));
        let row = match self.sustained {
            true => row.with("sustained_ms", rounded(mean_of(times.len()), 5)),
            false => row,
        };
        let row = limits::counted(row);
        match (profiled::on(), limits::on()) {
            (true, true) => limits::print_equations(),
            (true, false) => profiled::print(&mut step),
            (false, _) => {}
        }
        row
    }
}

/// How much faster two threads compute than one, just now: arithmetic in registers, 30 ms each way.
/// Near 2 on two cores; near 1 while the two are one core's two threads, which on a rented machine
/// changes from second to second.
pub fn scaling() -> f64 {
    const TIME: Duration = Duration::from_millis(30);
    let work = || {
        let (start, mut rounds) = (Instant::now(), 0u32);
        let mut lanes = [1.0f32; 32];
        while start.elapsed() < TIME {
            for _ in 0..1000 {
                lanes.iter_mut().for_each(|x| *x = *x * 0.999 + 0.001);
            }
            lanes = std::hint::black_box(lanes);
            rounds += 1;
        }
        f64::from(rounds)
    };
    let alone = work();
    let both = std::thread::scope(|s| {
        let other = s.spawn(work);
        work() + other.join().unwrap_or(0.0)
    });
    rounded(both / alone.max(1.0), 2)
}

/// The middle of sorted values, or the mean of the two in the middle.
pub fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[half],
        _ => (sorted[half - 1] + sorted[half]) / 2.0,
    }
}

/// To this many digits after the point.
pub fn rounded(value: f64, digits: i32) -> f64 {
    let unit = 10f64.powi(digits);
    (value * unit).round() / unit
}

/// A duration in milliseconds.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// CPU seconds that everything but this process has used: user, nice, system, irq, softirq and
/// steal of the machine, less user and system of our own.
fn others_seconds() -> f64 {
    let machine = fs::read_to_string("/proc/stat").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may hold spaces.
    let after_name = own.rsplit_once(')').map_or("", |parts| parts.1);
    let ticks = |line: &str, fields: &[usize]| -> f64 {
        let words: Vec<&str> = line.split_whitespace().collect();
        fields.iter().filter_map(|&i| words.get(i)?.parse::<f64>().ok()).sum()
    };
    let all = ticks(machine.lines().next().unwrap_or_default(), &[1, 2, 3, 6, 7, 8]);
    (all - ticks(after_name, &[11, 12])) / TICKS
}

/// A line of `/proc/self/status` in MiB: `VmRSS` is what is resident now, `VmHWM` the most there
/// was.
pub fn resident_mib(key: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(key));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    rounded(kib.unwrap_or(0.0) / 1024.0, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }

    #[test]
    fn a_row_counts_its_runs() {
        let mut calls = 0;
        let row = Protocol::counted(2, 5).measure(|| calls += 1);
        assert_eq!((calls, row.get("runs")), (2 + 5 + 5, Some(5.0)));
    }
}
