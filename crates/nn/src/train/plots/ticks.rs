//! Round numbers on an axis.

/// An axis from one value to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ChartAxis {
    pub low: f64,
    pub high: f64,
    pub log: bool,
}

impl ChartAxis {
    /// The axis of these values. Where there are none, it goes from 0 to 1.
    pub fn around(values: impl Iterator<Item = f64>, log: bool, margin: f64) -> ChartAxis {
        let usable = values.filter(|v| v.is_finite() && (!log || *v > 0.0));
        let ends = usable.fold(None, |ends: Option<(f64, f64)>, v| {
            Some(ends.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
        });
        let (low, high) = ends.unwrap_or(if log { (0.1, 1.0) } else { (0.0, 1.0) });
        let (low, high) = if log { (low.log10(), high.log10()) } else { (low, high) };
        let (span, size) = (high - low, low.abs().max(high.abs()));
        // A single value is in the middle of the axis.
        let pad = match log {
            _ if span > 1e-12 * size => span * margin,
            true => 0.5,
            false if size == 0.0 => 1.0,
            false => size * 0.5,
        };
        let (low, high) = (low - pad, high + pad);
        match log {
            true => ChartAxis { low: 10f64.powf(low), high: 10f64.powf(high), log },
            false => ChartAxis { low, high, log },
        }
    }

    /// Where a value is between the ends, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        match self.log {
            true => (value / self.low).log10() / (self.high / self.low).log10(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    /// Round values with their labels, about `count` of them.
    pub fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        if self.log { self.log_ticks(count) } else { linear(self.low, self.high, count) }
    }

    /// Powers of ten; with few of those, also twice and five times them; with none, as on a linear
    /// axis.
    fn log_ticks(&self, count: usize) -> Vec<(f64, String)> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let within = |v: &f64| *v >= self.low * (1.0 - 1e-9) && *v <= self.high * (1.0 + 1e-9);
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = if decades < 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = (decades / count as f64).ceil().max(1.0) as usize;
        let values: Vec<f64> = (first..=last)
            .step_by(every)
            .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
            .filter(within)
            .collect();
        if values.len() < 3 {
            return linear(self.low, self.high, count);
        }
        values.into_iter().map(|v| (v, label(v, v))).collect()
    }
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn linear(low: f64, high: f64, count: usize) -> Vec<(f64, String)> {
    let rough = (high - low) / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|&step| step >= rough * 0.999).unwrap_or(power * 10.0);
    let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    (first..=last).map(|i| (i as f64 * step, label(i as f64 * step, step))).collect()
}

/// A tick's value in as many digits as distinguish it from its neighbours.
fn label(value: f64, step: f64) -> String {
    let (size, power) = (value.abs(), step.log10().floor() as i32);
    if value == 0.0 {
        return "0".to_string();
    }
    let thousands =
        [(1e9, "G"), (1e6, "M"), (1e4, "k")].into_iter().find(|(least, _)| size >= *least);
    if let (Some((least, letter)), true) = (thousands, size < 1e13) {
        let unit = if letter == "k" { 1e3 } else { least };
        let digits = (unit.log10() as i32 - power).clamp(0, 6) as usize;
        return format!("{}{letter}", trimmed(&format!("{:.digits$}", value / unit)));
    }
    if !(1e-4..1e4).contains(&size) {
        let exponent = size.log10().floor() as i32;
        let digits = (exponent - power).clamp(0, 6) as usize;
        return format!(
            "{}e{exponent}",
            trimmed(&format!("{:.digits$}", value / 10f64.powi(exponent)))
        );
    }
    format!("{value:.*}", (-power).max(0) as usize)
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(low: f64, high: f64, log: bool) -> Vec<String> {
        ChartAxis { low, high, log }.ticks(5).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(0.0, 1.0, false), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(-3.0, 7.0, false), ["-2", "0", "2", "4", "6"]);
        assert_eq!(labels(0.0, 123_456.0, false), ["0", "50k", "100k"]);
        assert_eq!(labels(0.0, 20_000.0, false), ["0", "5000", "10k", "15k", "20k"]);
        assert_eq!(labels(2.301, 2.309, false), ["2.302", "2.304", "2.306", "2.308"]);
        assert_eq!(labels(0.0, 2e-6, false), ["0", "5e-7", "1e-6", "1.5e-6", "2e-6"]);
    }

    #[test]
    fn log_ticks_are_powers_of_ten() {
        assert_eq!(labels(1e-3, 10.0, true), ["0.001", "0.01", "0.1", "1", "10"]);
        assert_eq!(labels(0.09, 1.1, true), ["0.1", "0.2", "0.5", "1"]);
        assert_eq!(labels(1.1, 1.4, true), ["1.1", "1.2", "1.3", "1.4"]);
        assert_eq!(labels(1e-9, 1e3, true).len(), 5);
    }

    #[test]
    fn an_axis_holds_its_values() {
        let axis = ChartAxis::around([1.0, f64::NAN, 3.0].into_iter(), false, 0.05);
        assert_eq!((axis.low, axis.high), (0.9, 3.1));
        for (values, log) in [
            (vec![], false),
            (vec![], true),
            (vec![5.0], false),
            (vec![0.0], false),
            (vec![5.0, 5.0], true),
        ] {
            let axis = ChartAxis::around(values.iter().copied(), log, 0.0);
            assert!(
                axis.low < axis.high && axis.low.is_finite() && axis.high.is_finite(),
                "{values:?}"
            );
            assert!(
                values.iter().all(|&v| (axis.place(v) - 0.5).abs() < 1e-9),
                "{values:?} {axis:?}"
            );
        }
        let log = ChartAxis { low: 0.01, high: 1.0, log: true };
        assert!((log.place(0.1) - 0.5).abs() < 1e-12);
    }
}
