//! What is drawn: lines with names.

use super::{layout, png, svg};
use crate::state::replace_file;
use pullback::{Error, Result};
use std::path::Path;

/// A chart of lines over a common axis.
///
/// ```
/// use pullback_nn::train::plots::Chart;
/// let points = vec![(1.0, 2.0), (2.0, 1.0), (3.0, 0.7)];
/// let chart = Chart::new("Loss").x_label("step").line("train", points);
/// assert!(chart.svg().starts_with("<svg "));
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Chart {
    pub(super) title: String,
    pub(super) x_label: String,
    pub(super) y_label: String,
    pub(super) log_y: bool,
    pub(super) series: Vec<Series>,
}

/// A line.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// What the legend calls it; nothing where it is not in the legend.
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Which of the colours.
    pub colour: usize,
    /// Drawn behind the others, pale.
    pub pale: bool,
}

impl Chart {
    /// A chart with this title and no lines yet.
    ///
    /// ```
    /// use pullback_nn::train::plots::Chart;
    /// assert!(Chart::new("Loss").svg().contains("Loss"));
    /// ```
    pub fn new(title: &str) -> Chart {
        Chart { title: title.to_string(), ..Chart::default() }
    }

    /// The label of the horizontal axis.
    ///
    /// ```
    /// use pullback_nn::train::plots::Chart;
    /// let chart = Chart::new("Loss").x_label("step").line("train", vec![(1.0, 2.0), (2.0, 1.0)]);
    /// assert!(chart.svg().contains("step"));
    /// ```
    pub fn x_label(self, label: &str) -> Chart {
        Chart { x_label: label.to_string(), ..self }
    }

    /// The label of the vertical axis.
    ///
    /// ```
    /// use pullback_nn::train::plots::Chart;
    /// let chart = Chart::new("Loss").y_label("nats").line("train", vec![(1.0, 2.0), (2.0, 1.0)]);
    /// assert!(chart.svg().contains("nats"));
    /// ```
    pub fn y_label(self, label: &str) -> Chart {
        Chart { y_label: label.to_string(), ..self }
    }

    /// Whether the vertical axis is logarithmic; `false` by default. Values that are not positive
    /// are left out then.
    ///
    /// ```
    /// use pullback_nn::train::plots::Chart;
    /// let chart = Chart::new("Loss").line("train", vec![(1.0, 2.0), (2.0, 0.01), (3.0, 0.5)]);
    /// assert_ne!(chart.svg(), chart.clone().log_y(true).svg());
    /// ```
    pub fn log_y(self, log: bool) -> Chart {
        Chart { log_y: log, ..self }
    }

    /// Adds a line. It has a gap where a point is not finite.
    ///
    /// ```
    /// use pullback_nn::train::plots::Chart;
    /// let chart = Chart::new("Loss")
    ///     .line("train", vec![(1.0, 2.0), (2.0, 1.0)])
    ///     .line("val", vec![(1.0, 2.5), (2.0, 1.5)]);
    /// assert!(chart.svg().contains("train") && chart.svg().contains("val"));
    /// ```
    pub fn line(mut self, name: &str, points: Vec<(f64, f64)>) -> Chart {
        let colour = self.colours();
        self.series.push(Series { name: name.to_string(), points, colour, pale: false });
        self
    }

    /// Adds a line of noisy values, drawn pale behind their running mean over about `reach` points
    /// to each side.
    ///
    /// ```
    /// use pullback_nn::train::plots::Chart;
    /// let points = Vec::from_iter((0..100).map(|i| (i as f64, 1.0 / (1 + i % 7) as f64)));
    /// let plain = Chart::new("Loss").line("train", points.clone());
    /// let smooth = Chart::new("Loss").noisy_line("train", points, 10);
    /// assert!(smooth.svg().len() > plain.svg().len()); // the values and their mean
    /// ```
    pub fn noisy_line(mut self, name: &str, points: Vec<(f64, f64)>, reach: usize) -> Chart {
        let colour = self.colours();
        let smooth = smoothed(&points, reach);
        self.series.push(Series { name: String::new(), points, colour, pale: true });
        self.series.push(Series { name: name.to_string(), points: smooth, colour, pale: false });
        self
    }

    /// How many colours are in use.
    fn colours(&self) -> usize {
        self.series.iter().map(|series| series.colour + 1).max().unwrap_or(0)
    }

    /// The chart as SVG.
    ///
    /// ```
    /// use pullback_nn::train::plots::Chart;
    /// let chart = Chart::new("Loss").line("train", vec![(1.0, 2.0), (2.0, 1.0)]);
    /// assert!(chart.svg().starts_with("<svg "));
    /// ```
    #[must_use]
    pub fn svg(&self) -> String {
        svg::text(&layout::shapes(self))
    }

    /// The chart as the bytes of a PNG file of 1440 × 880 pixels.
    ///
    /// ```
    /// use pullback_nn::train::plots::Chart;
    /// let chart = Chart::new("Loss").line("train", vec![(1.0, 2.0), (2.0, 1.0)]);
    /// assert!(chart.png()?.starts_with(b"\x89PNG"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn png(&self) -> Result<Vec<u8>> {
        self.png_scaled(2.0)
    }

    /// The chart as the bytes of a PNG file of 720 × 440 pixels, times `scale`.
    ///
    /// ```
    /// use pullback_nn::train::plots::Chart;
    /// let chart = Chart::new("Loss").line("train", vec![(1.0, 2.0), (2.0, 1.0)]);
    /// let bytes = chart.png_scaled(0.5)?;
    /// assert_eq!(bytes[16..24], [0, 0, 1, 104, 0, 0, 0, 220]); // 360 × 220
    /// assert!(chart.png_scaled(100.0).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the scale is not between 0.25 and 16, or it cannot be encoded.
    pub fn png_scaled(&self, scale: f64) -> Result<Vec<u8>> {
        png::bytes(&layout::shapes(self), scale)
    }

    /// Writes the chart to a file whose name ends in `.svg` or `.png`.
    ///
    /// ```
    /// use pullback_nn::train::plots::Chart;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let chart = Chart::new("Loss").line("train", vec![(1.0, 2.0), (2.0, 1.0)]);
    /// chart.save(folder.join("loss.svg"))?;
    /// assert!(folder.join("loss.svg").is_file());
    /// assert!(chart.save(folder.join("loss.jpg")).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the name has another ending, or the file cannot be written.
    #[doc(alias = "savefig")]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("svg") => replace_file("plot", path, self.svg().as_bytes()),
            Some("png") => replace_file("plot", path, &self.png()?),
            _ => {
                let message = format!("{} ends neither in .svg nor in .png", path.display());
                Err(Error::argument("plot", message))
            }
        }
    }
}

/// The mean of each point and its neighbours. It reaches as far to one side as to the other, so
/// that it does not lag behind; towards the ends that is less far, but not nothing.
fn smoothed(points: &[(f64, f64)], reach: usize) -> Vec<(f64, f64)> {
    // The sums and counts of all finite values before each point: those of a range are differences.
    let mut sums = vec![(0.0, 0.0)];
    for &(_, y) in points {
        let (sum, count) = sums[sums.len() - 1];
        sums.push(if y.is_finite() { (sum + y, count + 1.0) } else { (sum, count) });
    }
    let mean = |(i, &(x, y)): (usize, &(f64, f64))| {
        let near = reach.min(i).min(points.len() - 1 - i).max(reach / 4);
        let (from, to) = (i.saturating_sub(near), (i + near + 1).min(points.len()));
        let (sum, count) = (sums[to].0 - sums[from].0, sums[to].1 - sums[from].1);
        // A gap in the values is a gap in their mean.
        (x, if y.is_finite() { sum / count } else { y })
    };
    points.iter().enumerate().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_stays_where_it_is_and_gaps_stay_gaps() {
        let line: Vec<(f64, f64)> = (0..40).map(|i| (f64::from(i), f64::from(i) * 2.0)).collect();
        let smooth = smoothed(&line, 3);
        assert!(line.iter().zip(&smooth).all(|(a, b)| (a.1 - b.1).abs() < 1e-9));
        let mut gap = line;
        gap[20].1 = f64::NAN;
        let smooth = smoothed(&gap, 8);
        assert!(smooth[20].1.is_nan() && smooth.iter().filter(|p| p.1.is_nan()).count() == 1);
        let zigzag: Vec<(f64, f64)> = (0..40).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        assert!(smoothed(&zigzag, 8)[8..32].iter().all(|p| (p.1 - 0.5).abs() < 0.05));
        assert!(smoothed(&[], 8).is_empty());
    }
}
