//! Histograms with buckets that grow by a tenth, so that small gradients are distinguished.

use super::message::Message;

/// The upper limits of all buckets: ±1e-12·1.1ⁱ up to 1e20, and 0.
fn limits() -> Vec<f64> {
    let grown = std::iter::successors(Some(1e-12), |limit| Some(limit * 1.1));
    let positive: Vec<f64> = grown.take_while(|&limit| limit < 1e20).collect();
    let negative = positive.iter().rev().map(|limit| -limit);
    negative.chain([0.0]).chain(positive.iter().copied()).chain([f64::MAX]).collect()
}

/// A `HistogramProto` of these values. Those that are not finite are in no bucket.
pub(super) fn message(values: &[f64]) -> Message {
    let limits = limits();
    let mut counts = vec![0.0; limits.len()];
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    for value in finite() {
        let bucket = limits.partition_point(|&limit| limit <= value);
        counts[bucket.min(limits.len() - 1)] += 1.0;
    }
    // Adjacent empty buckets are merged: the merged one ends where the next full one begins. After
    // the last full one there are none.
    let last = counts.iter().rposition(|&n| n > 0.0).unwrap_or(0);
    let kept = (0..=last).filter(|&i| counts[i] > 0.0 || i == last || counts[i + 1] > 0.0);
    let (limits, counts): (Vec<f64>, Vec<f64>) = kept.map(|i| (limits[i], counts[i])).unzip();
    let ends = if finite().next().is_none() {
        (0.0, 0.0)
    } else {
        (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max))
    };
    Message::new()
        .double(1, ends.0)
        .double(2, ends.1)
        .double(3, finite().count() as f64)
        .double(4, finite().sum())
        .double(5, finite().map(|value| value * value).sum())
        .doubles(6, &limits)
        .doubles(7, &counts)
}
