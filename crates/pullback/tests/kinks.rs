//! Elements on kinks: counted, refused, and differentiated as agreed. Then what ties, NaN and
//! infinities do in maxima, sorts, pools and bounds: values and derivatives, eager, compiled and
//! over many examples alike.

#[path = "kinks/conventions.rs"]
mod conventions;
#[path = "kinks/counted.rs"]
mod counted;
#[path = "kinks/extremes.rs"]
mod extremes;

use pullback::*;

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

type Function = fn(&Tensor) -> Tensor;
type Formula<'a> = &'a dyn Fn(&Tensor) -> Tensor;

fn leaf(x: &[f64]) -> Tensor {
    Tensor::from(x).requires_grad()
}

/// The op, the elements on kinks and all elements of a report with one entry.
#[track_caller]
fn only(report: &KinkReport) -> (&'static str, usize, usize) {
    assert_eq!(report.kinks.len(), 1, "{report}");
    assert!(report.unseen.is_empty(), "{report}");
    let k = &report.kinks[0];
    (k.op, k.elements, k.total)
}

/// What a function of a tracked tensor counts.
#[track_caller]
fn counts(f: impl Fn(&Tensor) -> Tensor, x: &[f64]) -> (&'static str, usize, usize) {
    only(&kink_report(|| f(&leaf(x))).1)
}
