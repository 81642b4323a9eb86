//! How many examples a second a run goes through, and what that means for the machine.

use super::Metrics;
use std::time::Duration;

/// Examples and the time that they took to load and to train on: not that of evaluations, callbacks
/// and checkpoints. An interval ends with an evaluation or an epoch; the first step, which may
/// compile, is one of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Throughput {
    /// The interval.
    now: MeasuredInterval,
    /// All steps but the first, if there are others.
    all: MeasuredInterval,
    steps: u64,
    /// The interval is over: the next step begins another.
    over: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct MeasuredInterval {
    examples: u64,
    time: Duration,
}

impl MeasuredInterval {
    fn add(&mut self, examples: u64, time: Duration) {
        (self.examples, self.time) = (self.examples + examples, self.time + time);
    }

    fn per_second(&self) -> f64 {
        self.examples as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

impl Throughput {
    /// One more step.
    pub fn add(&mut self, examples: u64, time: Duration) {
        self.steps += 1;
        if self.steps == 2 {
            *self = Throughput { steps: 2, ..Throughput::default() };
        }
        if std::mem::take(&mut self.over) {
            self.now = MeasuredInterval::default();
        }
        self.now.add(examples, time);
        self.all.add(examples, time);
    }

    pub fn end_interval(&mut self) {
        self.over = true;
    }

    /// In the interval.
    pub fn per_second(&self) -> f64 {
        self.now.per_second()
    }

    /// In the whole run.
    pub fn of_all(&self) -> f64 {
        self.all.per_second()
    }
}

/// What an example is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Content {
    pub tokens: Option<u64>,
    /// Floating-point operations, and how many of them the device does in a second.
    pub operations: Option<(f64, f64)>,
}

impl Content {
    /// The rates of so many examples a second, which so many devices train on.
    pub fn rates(&self, per_second: f64, devices: usize) -> Metrics {
        let mut rates = Metrics::new().with("examples_per_second", per_second);
        if let Some(tokens) = self.tokens {
            rates.set("tokens_per_second", tokens as f64 * per_second);
        }
        if let Some((operations, peak)) = self.operations {
            rates.set("mfu", operations * per_second / (peak * devices as f64));
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_over_the_time_of_their_steps() {
        let mut rate = Throughput::default();
        // The first step compiles.
        rate.add(7, Duration::from_secs(70));
        assert_eq!((rate.per_second(), rate.of_all()), (0.1, 0.1));
        rate.add(4311, Duration::from_millis(1030));
        assert_eq!(rate.per_second(), 4311.0 / 1.03);
        rate.add(1, Duration::from_millis(970));
        assert_eq!(rate.per_second(), 2156.0);
        rate.end_interval();
        // The ended interval is still reported; the next step starts another.
        assert_eq!(rate.per_second(), 2156.0);
        rate.add(10, Duration::from_millis(500));
        assert_eq!((rate.per_second(), rate.of_all()), (20.0, 4322.0 / 2.5));
    }

    #[test]
    fn rates_of_several_devices() {
        let content = Content { tokens: Some(64), operations: Some((1e9, 4e9)) };
        let rates = content.rates(6.0, 2);
        let of = |name| rates.get(name).unwrap();
        assert_eq!(["examples_per_second", "tokens_per_second", "mfu"].map(of), [6.0, 384.0, 0.75]);
        assert_eq!(Content::default().rates(6.0, 1).len(), 1);
    }
}
