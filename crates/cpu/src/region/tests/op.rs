//! Regions as the op that a program has, with sums over their rows.

use super::{Dense, Made, SHAPES, made, one_by_one};
use crate::Input;
use crate::par;
use crate::run::run_op;
use pullback_ir::{Layout, Op, Region};
use std::rc::Rc;
use std::sync::Arc;

fn run(region: &Region, inputs: &[Dense]) -> Vec<Dense> {
    let op = Op::Region(Arc::new(region.clone()));
    let layouts: Vec<Layout> = inputs.iter().map(|x| Layout::dense(x.spec.shape.clone())).collect();
    let operands: Vec<Input<'_>> = inputs
        .iter()
        .zip(&layouts)
        .map(|(x, layout)| Input { buffer: &x.buffer, layout, spec: &x.spec })
        .collect();
    let made = run_op(&op, &operands).expect("a run");
    made.into_iter().map(|x| Dense { spec: x.spec, buffer: Rc::new(x.buffer) }).collect()
}

fn compare(region: &Region, inputs: &[Dense], what: &str) {
    let (got, want) = (run(region, inputs), one_by_one(region, inputs));
    assert_eq!(got.len(), region.results());
    for (k, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(got.spec == want.spec, "{what}: {} for {}", got.spec, want.spec);
        assert!(got.bits() == want.bits(), "{what}: result {k}\n{region}");
    }
}

#[test]
fn the_op_itself_runs() {
    let Made { region, inputs } = made(3, &[9, 300], 1, true);
    compare(&region, &inputs, "a region");
}

#[test]
fn sums_over_rows_are_those_of_plain_ops() {
    let mut tried = 0;
    for seed in 0..150 {
        let (shape, inner) = SHAPES[seed as usize % SHAPES.len()];
        let Made { mut region, inputs } = made(seed, shape, inner, true);
        let values = region.values().expect("a region that fits");
        let floats = |&v: &usize| !values[v].row && values[v].dtype.is_float();
        region.columns = (0..values.len()).rev().filter(floats).take(3).collect();
        if region.columns.is_empty() || inner == shape.len() {
            continue;
        }
        tried += 1;
        if seed % 3 == 0 {
            region.outputs.clear();
        }
        for threads in [1, 3] {
            par::with_threads(threads, || compare(&region, &inputs, &format!("seed {seed}")));
        }
    }
    assert!(tried > 50, "only {tried} regions had such sums");
}
