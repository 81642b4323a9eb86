//! Regions of compiled programs on a device, against the CPU's kernels of them: only with
//! `PULLBACK_DEVICE=cuda:0`.

use crate::device_tests::{Array, Report, device, error, on_host, rounding};
use pullback_ir::pass::{Limits, fuse_within, norms};
use pullback_ir::{DType, Load, Op, Program, Region, Var};
use std::sync::Arc;

/// A program as it is fused for a device, with shorter and longer rows as well.
pub(crate) fn fused_of(program: &str) -> Program {
    let program: Program = program.parse().expect("a program");
    let limits = Limits { column_row: [2, 1 << 20], ..crate::backend::LIMITS };
    fuse_within(&norms(&program, limits), limits)
}

/// The only region that a program becomes on a device.
pub(crate) fn region_of(program: &str) -> Arc<Region> {
    let fused = fused_of(program);
    let mut regions = fused.equations.iter().filter_map(|e| match &e.op {
        Op::Region(region) => Some(region.clone()),
        _ => None,
    });
    match (regions.next(), regions.next()) {
        (Some(region), None) => region,
        _ => panic!("not one region:\n{fused}"),
    }
}

/// A residual and the norm that follows.
fn forward(rows: usize, width: usize, low: DType, high: DType) -> String {
    format!(
        "program (y: {low}[{rows},{width}], c: {low}[{width}], r: {high}[{rows},{width}],
  w: {high}[{width}], b: {high}[{width}]) {{
  let d: {low}[{rows},{width}] = broadcast{{[{rows},{width}]}} c
  let e: {low}[{rows},{width}] = add y d
  let f: {high}[{rows},{width}] = cast{{{high}}} e
  let g: {high}[{rows},{width}] = add r f
  let h: {high}[{rows},{width}] = layer_norm{{1e-5}} g w b
  let i: {low}[{rows},{width}] = cast{{{low}}} h
  return g, i
}}"
    )
}

/// The backward of a norm, the gradient that is added to it, and three sums over the rows.
fn backward(rows: usize, width: usize, low: DType, high: DType) -> String {
    format!(
        "program (dy: {low}[{rows},{width}], x: {high}[{rows},{width}], w: {high}[{width}],
  r: {high}[{rows},{width}]) {{
  let b: {high}[{rows},{width}] = cast{{{high}}} dy
  let c: {high}[{rows},{width}], d: {high}[{width}], e: {high}[{width}] =
    vjp.layer_norm{{1e-5}} x w b
  let f: {high}[{rows},{width}] = add r c
  let g: {low}[{rows},{width}] = cast{{{low}}} f
  let h: {low}[{width}] = sum{{[0]}} g
  return f, g, d, e, h
}}"
    )
}

/// A slope and the gradient of a bias; no reduction along rows.
fn bias(rows: usize, width: usize, low: DType, _: DType) -> String {
    format!(
        "program (dy: {low}[{rows},{width}], x: {low}[{rows},{width}]) {{
  let a: {low}[{rows},{width}] = vjp.tanh x dy
  let b: {low}[{width}] = sum{{[0]}} a
  return a, b
}}"
    )
}

/// Softmax and its backward.
fn softmax(rows: usize, width: usize, low: DType, _: DType) -> String {
    format!(
        "program (x: {low}[{rows},{width}], dy: {low}[{rows},{width}]) {{
  let y: {low}[{rows},{width}] = softmax{{1}} x
  let dx: {low}[{rows},{width}] = vjp.softmax{{1}} y dy
  let z: {low}[{rows},{width}] = log_softmax{{1}} x
  let dz: {low}[{rows},{width}] = vjp.log_softmax{{1}} z dy
  return y, dx, z, dz
}}"
    )
}

pub(crate) type Written = fn(usize, usize, DType, DType) -> String;

pub(crate) const REGIONS: [(&str, Written); 4] =
    [("forward", forward), ("backward", backward), ("bias", bias), ("softmax", softmax)];

/// Rows of a warp and of a block, with idle threads and without, of no whole vectors, and too long
/// for registers; few rows and many.
const SHAPES: [(usize, usize); 12] = [
    (1000, 768),
    (3, 768),
    (531, 4096),
    (200, 96),
    (77, 1000),
    (4097, 256),
    (300, 257),
    (1, 512),
    (40, 3072),
    (9, 8192),
    (5, 20480),
    (2000, 36),
];

#[test]
fn a_program_of_each_kind_is_one_region() {
    for (name, written) in REGIONS {
        let region = region_of(&written(12, 64, DType::BF16, DType::F32));
        let columns = [("backward", 3), ("bias", 1)].iter().find(|c| c.0 == name);
        assert_eq!(region.columns.len(), columns.map_or(0, |c| c.1), "{name}");
    }
}

#[test]
fn regions_with_sums_over_rows_are_those_of_the_cpu() {
    let Some(gpu) = device() else { return };
    let mut report = Report::default();
    let dtypes = [(DType::BF16, DType::F32), (DType::F32, DType::F32), (DType::F64, DType::F64)];
    for (low, high) in dtypes {
        for (rows, width) in SHAPES {
            for (name, written) in REGIONS {
                // The backward of a norm of one row stays an op.
                if rows == 1 && matches!(name, "backward" | "bias") {
                    continue;
                }
                let region = region_of(&written(rows, width, low, high));
                let of = |(k, load): (usize, &Load)| {
                    let mut x = Array::noise(load.spec.dtype, &load.spec.shape, k + 1);
                    // Numbers that bf16 has.
                    x.values.iter_mut().for_each(|v| *v = (*v * 64.0).round() / 64.0);
                    x
                };
                let x: Vec<Array> = region.inputs.iter().enumerate().map(of).collect();
                let tolerance = match low {
                    DType::BF16 => 0.02,
                    low => rounding(low, 64 + rows / 16),
                };
                let name = format!("{name} of {low}[{rows},{width}]");
                report.close(&gpu, &name, &Op::Region(region), &x, tolerance);
            }
        }
    }
}

/// The results of a program, op by op on the CPU.
fn one_by_one(program: &Program, x: &[Array]) -> Vec<Vec<f64>> {
    let mut known: Vec<Option<Array>> = vec![None; program.specs.len()];
    for (v, x) in program.inputs.iter().zip(x) {
        known[v.index()] = Some(x.clone());
    }
    for e in &program.equations {
        let of = |v: &Var| known[v.index()].clone().expect("made before");
        let made = on_host(&e.op, &e.inputs.iter().map(of).collect::<Vec<_>>());
        for (v, values) in e.outputs.iter().zip(made) {
            let spec = program.spec(*v);
            known[v.index()] = Some(Array::new(spec.dtype, &spec.shape, values));
        }
    }
    program.outputs.iter().map(|v| known[v.index()].clone().expect("made").values).collect()
}

/// Norms that are written out, and sums over rows, on the CPU: what devices are compared with.
#[test]
fn regions_on_the_cpu_are_the_ops_that_they_are_made_of() {
    let mut report = Report::default();
    for (low, high) in [(DType::BF16, DType::F32), (DType::F64, DType::F64)] {
        for (rows, width) in [(40, 96), (3, 33), (130, 12)] {
            for (name, written) in [REGIONS[1], REGIONS[2], REGIONS[3]] {
                let text = written(rows, width, low, high);
                let program: Program = text.parse().expect("a program");
                let region = region_of(&text);
                let x: Vec<Array> = program
                    .inputs
                    .iter()
                    .enumerate()
                    .map(|(k, v)| {
                        let spec = program.spec(*v);
                        let mut x = Array::noise(spec.dtype, &spec.shape, k + 1);
                        x.values.iter_mut().for_each(|v| *v = (*v * 64.0).round() / 64.0);
                        x
                    })
                    .collect();
                // A region has its operands in the order in which it reads them, once each.
                let fused = fused_of(&text);
                let e = fused.equations.iter().find(|e| matches!(e.op, Op::Region(_)));
                let e = e.expect("a region");
                let place = |v: &Var| fused.inputs.iter().position(|w| w == v).expect("an input");
                let given: Vec<Array> = e.inputs.iter().map(|v| x[place(v)].clone()).collect();
                let found = on_host(&Op::Region(region), &given);
                let expected = one_by_one(&program, &x);
                for (v, values) in fused.outputs.iter().zip(&expected) {
                    let k = e.outputs.iter().position(|w| w == v).expect("a result");
                    let tolerance = if low == DType::BF16 { 0.02 } else { 1e-12 };
                    let what = format!("{name} of {low}[{rows},{width}]: {v}");
                    report.check(&what, error(&found[k], values), tolerance);
                }
            }
        }
    }
}
