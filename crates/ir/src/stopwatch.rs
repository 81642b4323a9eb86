//! Durations, on targets with a clock.

use std::time::{Duration, Instant};

/// WebAssembly by itself has no clock, and the standard library panics where it is asked for one.
const CLOCK: bool = !cfg!(all(target_family = "wasm", target_os = "unknown"));

/// A running stopwatch; on targets without a clock all durations are zero.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Option<Instant>);

impl Stopwatch {
    /// Starts one.
    ///
    /// ```
    /// # use {pullback_ir::Stopwatch, std::time::Duration};
    /// assert!(Stopwatch::start().elapsed() < Duration::from_secs(3600));
    /// ```
    pub fn start() -> Stopwatch {
        Stopwatch(CLOCK.then(Instant::now))
    }

    /// How much later it was started than another; zero if it was not.
    ///
    /// ```
    /// # use pullback_ir::Stopwatch;
    /// let (first, second) = (Stopwatch::start(), Stopwatch::start());
    /// assert!(second.since(first) <= first.elapsed());
    /// ```
    pub fn since(self, earlier: Stopwatch) -> Duration {
        match (self.0, earlier.0) {
            (Some(start), Some(earlier)) => start.saturating_duration_since(earlier),
            (None, _) | (_, None) => Duration::ZERO,
        }
    }

    /// The time since it was started.
    ///
    /// ```
    /// # use {pullback_ir::Stopwatch, std::time::Duration};
    /// let start = Stopwatch::start();
    /// std::thread::sleep(Duration::from_millis(2));
    /// assert!(start.elapsed() >= Duration::from_millis(2));
    /// ```
    pub fn elapsed(self) -> Duration {
        Stopwatch::start().since(self)
    }
}
