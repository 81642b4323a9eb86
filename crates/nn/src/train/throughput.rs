//! How many examples a second a run goes through.

use std::time::Duration;

/// Examples and the time that they took to load and to train on: not that of evaluations, callbacks
/// and checkpoints. An interval ends with an evaluation or an epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Throughput {
    examples: u64,
    time: Duration,
    /// The interval is over: the next step begins another.
    over: bool,
}

impl Throughput {
    /// One more step.
    pub fn add(&mut self, examples: u64, time: Duration) {
        if std::mem::take(&mut self.over) {
            *self = Throughput::default();
        }
        (self.examples, self.time) = (self.examples + examples, self.time + time);
    }

    pub fn end_interval(&mut self) {
        self.over = true;
    }

    pub fn per_second(&self) -> f64 {
        self.examples as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_over_the_time_of_their_steps() {
        let mut rate = Throughput::default();
        rate.add(4311, Duration::from_millis(1030));
        assert_eq!(rate.per_second(), 4311.0 / 1.03);
        rate.add(1, Duration::from_millis(970));
        assert_eq!(rate.per_second(), 2156.0);
        rate.end_interval();
        // The ended interval is still reported; the next step starts another.
        assert_eq!(rate.per_second(), 2156.0);
        rate.add(10, Duration::from_millis(500));
        assert_eq!(rate.per_second(), 20.0);
    }
}
