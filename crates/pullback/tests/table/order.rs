//! Sorting, and some ranks of it.

use super::naive::Array;
use super::places::lines;
use super::samples::{Dice, WIDE, special};
use pullback::{DType, Op, Tensor};
use std::collections::HashMap;

/// An op of this form, its operand, and whether it is differentiated.
pub fn samples(form: &Op, dice: &mut Dice) -> Vec<(Op, Tensor, bool)> {
    let whole = matches!(form, Op::Sort { .. });
    let mut out = Vec::new();
    let op = |axis: usize, descending: bool, from: usize, count: usize| match whole {
        true => Op::Sort { axis, descending },
        false => Op::Ranks { axis, descending, from, count },
    };
    for (shape, axis) in lines() {
        let n = shape[axis];
        let parts = [(0, n), (n / 2, n - n / 2), (n / 3, usize::from(n > 0)), (0, 0)];
        for (i, (from, count)) in parts.into_iter().enumerate().take(if whole { 2 } else { 4 }) {
            out.push((op(axis, i % 2 == 1, from, count), dice.tensor(shape, WIDE), true));
        }
    }
    for descending in [false, true] {
        out.push((op(0, descending, 1, 7), special(), false));
        out.push((op(1, descending, 3, 9), dice.index(&[3, 40], 5), true));
        // Long enough to be sorted by radix; to be counted first.
        let n = if whole { 1201 } else { 17_001 };
        out.push((op(1, descending, n / 3, 20), dice.tensor(&[1, n], WIDE), false));
    }
    out
}

/// Some ranks of each line, and where they were.
pub fn ranks(x: &Array, axis: usize, descending: bool, from: usize, count: usize) -> Vec<Array> {
    let mut shape = x.shape.clone();
    shape[axis] = count;
    let order_of = |line: &[f64]| {
        let mut order: Vec<usize> = (0..line.len()).collect();
        // NaN counts as largest.
        let rank = |k: usize| if line[k].is_nan() { (1, 0.0) } else { (0, line[k]) };
        order.sort_by(|&a, &b| {
            let order = rank(a).partial_cmp(&rank(b)).unwrap();
            if descending { order.reverse() } else { order }
        });
        order
    };
    let mut lines: HashMap<Vec<usize>, (Vec<f64>, Vec<usize>)> = HashMap::new();
    let mut sorted = |i: &[usize]| {
        let mut start = i.to_vec();
        start[axis] = 0;
        let (line, order) = lines.entry(start).or_insert_with_key(|start| {
            let line = x.line(start, axis);
            let order = order_of(&line);
            (line, order)
        });
        let k = order[from + i[axis]];
        (line[k], k as f64)
    };
    let values = Array::make(&shape, x.dtype, |i| sorted(i).0);
    vec![values, Array::make(&shape, DType::I64, |i| sorted(i).1)]
}
