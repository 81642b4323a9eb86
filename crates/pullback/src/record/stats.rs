//! Statistics of the elements of a tensor: what a recording keeps of a large value.

/// How many bins a histogram has.
pub const BINS: usize = 24;

/// What is known about the elements of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// How many elements there are.
    pub count: u64,
    /// How many are not a number, infinite, and zero.
    pub nan: u64,
    /// How many are infinite.
    pub inf: u64,
    /// How many are zero.
    pub zero: u64,
    /// The least and the greatest finite element.
    pub low: f64,
    /// The greatest finite element.
    pub high: f64,
    /// The mean of the finite elements.
    pub mean: f64,
    /// Their standard deviation (of the whole population).
    pub std: f64,
    /// The root of the mean square of the finite elements.
    pub rms: f64,
    /// How many finite elements are in each of the equal bins from `low` to `high`.
    pub histogram: Vec<u32>,
}

impl Stats {
    /// The statistics of these elements. Where none is finite, the moments are NaN and there is no
    /// histogram.
    ///
    /// ```
    /// use pullback::record_file::Stats;
    /// assert_eq!(Stats::of(&[1.0, 3.0]).mean, 2.0);
    /// ```
    pub fn of(values: &[f64]) -> Stats {
        let count = |f: &dyn Fn(&f64) -> bool| values.iter().filter(|x| f(x)).count() as u64;
        let finite = || values.iter().copied().filter(|x| x.is_finite());
        let (mut n, mut low, mut high) = (0u64, f64::INFINITY, f64::NEG_INFINITY);
        finite().for_each(|x| (n, low, high) = (n + 1, low.min(x), high.max(x)));
        // Scaled, so that squares do not overflow.
        let scale = low.abs().max(high.abs());
        let scale = if n == 0 || scale == 0.0 { 1.0 } else { scale };
        let total = n as f64;
        let mean = finite().map(|x| x / scale).sum::<f64>() / total;
        let spread = finite().map(|x| (x / scale - mean).powi(2)).sum::<f64>() / total;
        let square = finite().map(|x| (x / scale).powi(2)).sum::<f64>() / total;
        let mut histogram = vec![0u32; if n == 0 { 0 } else { BINS }];
        // Halved, as the difference of two finite numbers may be infinite.
        let width = high / 2.0 - low / 2.0;
        finite().take(if n == 0 { 0 } else { usize::MAX }).for_each(|x| {
            let place = if width > 0.0 { (x / 2.0 - low / 2.0) / width } else { 0.0 };
            let bin = ((place * BINS as f64) as usize).min(BINS - 1);
            histogram[bin] = histogram[bin].saturating_add(1);
        });
        let none = n == 0;
        let known = |x: f64| if none { f64::NAN } else { x };
        Stats {
            count: values.len() as u64,
            nan: count(&|x| x.is_nan()),
            inf: count(&|x| x.is_infinite()),
            zero: count(&|x| *x == 0.0),
            low: known(low),
            high: known(high),
            mean: known(mean * scale),
            std: known(spread.sqrt() * scale),
            rms: known(square.sqrt() * scale),
            histogram,
        }
    }
}
