//! What a budget cost.

use std::fmt;

/// What a budget cost. Prints as a few lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetReport {
    /// The bytes that were allowed.
    pub budget: usize,
    /// The planned peak without it.
    pub peak_without: usize,
    /// The planned peak.
    pub peak: usize,
    /// Bytes of intermediate values that live across the moment when most are alive.
    pub kept: usize,
    /// Bytes of recomputed values; what is recomputed several times counts each time.
    pub recomputed: usize,
    /// The work of the program without a budget, in operations: see [`work`](super::work).
    pub work: u64,
    /// The recomputed work.
    pub again: u64,
    /// How often the program was cut: more than once if recomputed values are recomputed again.
    pub cuts: usize,
    /// Bytes of values that are copied to the host and back, on targets that can.
    pub offloaded: usize,
    /// The most bytes of them that are there at a time.
    pub host: usize,
    /// How long the program waits for these copies, in nanoseconds, as an estimate.
    pub waits: u64,
}

impl BudgetReport {
    /// The extra work relative to the work without a budget.
    ///
    /// ```
    /// # use pullback_ir::pass::BudgetReport;
    /// let report = BudgetReport {
    ///     budget: 1000, peak_without: 2000, peak: 900, kept: 500, recomputed: 600,
    ///     work: 400, again: 100, cuts: 1, offloaded: 0, host: 0, waits: 0,
    /// };
    /// assert_eq!(report.extra(), 0.25);
    /// ```
    pub fn extra(&self) -> f64 {
        self.again as f64 / self.work.max(1) as f64
    }
}

impl fmt::Display for BudgetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory budget: {} bytes", self.budget)?;
        writeln!(f, "  predicted peak: {} bytes, {} without it", self.peak, self.peak_without)?;
        writeln!(f, "  kept: {} bytes, recomputed: {} bytes", self.kept, self.recomputed)?;
        write!(f, "  extra compute: {:.1}%", 100.0 * self.extra())?;
        if self.offloaded > 0 {
            let Self { offloaded, host, waits, .. } = self;
            let ms = *waits as f64 / 1e6;
            write!(f, "\n  on the host for a time: {offloaded} bytes, at most {host} at once; ")?;
            write!(f, "{ms:.3} ms of waiting for copies")?;
        }
        Ok(())
    }
}
