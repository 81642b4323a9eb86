//! `Op::may_fail` against what kernels do: compiled programs write over their state only after the
//! last op that may fail, so an op that fails without saying so would leave it half written.

use super::{Failures, all_samples, run, samples::Sample};
use pullback::{Op, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// The operands with one of them full of a value that may be wrong there.
fn spoiled(sample: &Sample) -> impl Iterator<Item = Vec<Tensor>> + '_ {
    let values = |x: &Tensor| -> Vec<Tensor> {
        match x.dtype() {
            dtype if dtype.is_float() => {
                let wrong = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, f64::MAX];
                wrong.into_iter().map(|v| x.full_like(v)).collect()
            }
            pullback::DType::Bool => vec![x.logical_not()],
            _ => [-1, 0, 1, 100, i64::from(i32::MAX), i64::from(i32::MIN)]
                .into_iter()
                .map(|v| x.full_like(v))
                .collect(),
        }
    };
    (0..sample.inputs.len()).flat_map(move |i| {
        values(&sample.inputs[i]).into_iter().map(move |wrong| {
            let mut inputs = sample.inputs.clone();
            inputs[i] = wrong;
            inputs
        })
    })
}

#[test]
fn kernels_fail_where_may_fail_says_and_nowhere_else() {
    let mut failures = Failures::new();
    let mut promised: BTreeMap<&'static str, bool> = BTreeMap::new();
    for sample in all_samples() {
        let refusal = spoiled(&sample).find_map(|inputs| run(&sample.op, &inputs).err());
        // Other workers make a collective fail, not values.
        if sample.op.may_fail() && !sample.op.is_ordered() {
            *promised.entry(sample.op.name()).or_default() |= refusal.is_some();
        } else if let Some(refusal) = refusal {
            failures.note(&sample, format!("may_fail says no, the kernel says: {refusal}"));
        }
    }
    failures.assert_none();
    // And it is no promise for nothing.
    let never: BTreeSet<_> = promised.iter().filter(|(_, failed)| !**failed).collect();
    assert!(never.is_empty(), "no value made these fail: {never:?}");
    assert!(promised.contains_key("gather") && promised.contains_key("cross_entropy"));
}

#[test]
fn results_are_as_many_as_are_counted() {
    for sample in all_samples() {
        let results = sample.run().map(|ys| ys.len());
        assert_eq!(results.as_ref().ok(), Some(&sample.op.results()), "{}", sample.op);
    }
    assert!(all_samples().iter().any(|s| matches!(s.op, Op::Sort { .. })));
}
