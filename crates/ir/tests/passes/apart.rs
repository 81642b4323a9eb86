//! What is not fused, and why, as sentences.

use super::golden::SUMS;
use pullback_ir::Program;
use pullback_ir::pass::{Limits, apart};

fn found(text: &str, limits: Limits) -> Vec<String> {
    let program: Program = text.parse().unwrap_or_else(|e| panic!("{e}:\n{text}"));
    program.verify_deeply().unwrap_or_else(|e| panic!("{e}"));
    apart(&program, limits, 256).iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_one_region_is_not_named() {
    let text = "program (x: f32[16,64]) {
  let a: f32[16,64] = exp x
  let b: f32[16] = sum{[1]} a
  let c: f32[16,1] = reshape{[16,1]} b
  let d: f32[16,64] = broadcast{[16,64]} c
  let e: f32[16,64] = div a d
  return e
}";
    assert_eq!(found(text, Limits::default()), [""; 0]);
}

#[test]
fn a_reduction_has_to_finish() {
    let text = "program (x: f32[131072]) {
  let a: f32[131072] = exp x
  let b: f32[] = sum{[0]} a
  let c: f32[131072] = broadcast{[131072]} b
  let d: f32[131072] = div a c
  return d
}";
    let long = "`exp` and `div` stay apart: a reduction has to finish first; \
                524288 bytes written and read again";
    assert_eq!(found(text, Limits::default()), [long]);
}

#[test]
fn lengths_and_rows_differ() {
    let text = "program (x: f32[16,64]) {
  let a: f32[16,64] = exp x
  let b: f32[16] = sum{[1]} a
  let c: f32[16,4,16] = reshape{[16,4,16]} a
  let d: f32[16,4] = max{[2]} c
  let e: f32[8,64] = slice{[0:8:1, 0:64:1]} a
  let f: f32[8,64] = tanh e
  return b, d, f
}";
    let same = "4096 bytes written and read again";
    let rows = format!("`exp` and `max` stay apart: their rows have 64 and 16 elements; {same}");
    let lengths =
        format!("`exp` and `tanh` stay apart: they run over 1024 and 512 elements; {same}");
    assert_eq!(found(text, Limits::default()), [rows, lengths]);
}

#[test]
fn limits_and_kernels_are_named() {
    let text = "program (x: f32[16,64], y: f32[16,64]) {
  let a: f32[16,64] = exp x
  let b: f32[16,64] = tanh a
  let c: f32[16,64] = mul b y
  let d: f32[16,64], e: i64[16,64] = sort{axis=1,descending=false} c
  let f: f32[16,64] = neg d
  return f, e
}";
    let few = Limits { instructions: 3, ..Limits::default() };
    let same = "4096 bytes written and read again";
    let kernel = format!("stay apart: `sort` is a kernel of its own; {same}");
    let wanted = [
        format!("`tanh` and `mul` stay apart: together more than 3 instructions; {same}"),
        format!("`mul` and `sort` {kernel}"),
        format!("`sort` and `neg` {kernel}"),
    ];
    assert_eq!(found(text, few), wanted);
    assert_eq!(found(text, Limits::default()), wanted[1..]);
    let few = Limits { inputs: 1, ..Limits::default() };
    let operands = format!("`tanh` and `mul` stay apart: together more than 1 operands; {same}");
    assert_eq!(found(text, few)[0], operands);
}

#[test]
fn sums_over_rows_are_read_by_another_region() {
    let text = "program (x: f32[16,64]) {
  let a: f32[16,64] = exp x
  let b: f32[64] = sum{[0]} a
  let c: f32[16,64] = broadcast{[16,64]} b
  let d: f32[16,64] = mul a c
  return d
}";
    let why = "a reduction has to finish first";
    let wanted = [
        format!("`exp` and `mul` stay apart: {why}; 4096 bytes written and read again"),
        format!("`sum` and `mul` stay apart: {why}; 256 bytes written and read again"),
    ];
    assert_eq!(found(text, SUMS), wanted);
}

#[test]
fn both_may_read_a_value() {
    let text = "program (x: f32[16,64], y: f32[16,64]) {
  let a: f32[16] = sum{[1]} x
  let b: f32[16,4,16] = reshape{[16,4,16]} x
  let c: f32[16,4] = sum{[2]} b
  return a, c
}";
    let why = "their rows have 64 and 16 elements; 4096 bytes read again";
    assert_eq!(found(text, Limits::default()), [format!("`sum` and `sum` stay apart: {why}")]);
}

#[test]
fn a_sum_with_a_bias_comes_with_its_product() {
    let text = "program (x: f32[16,64], w: f32[64,32], b: f32[32]) {
  let a: f32[16,32] = dot x w
  let c: f32[16,32] = broadcast{[16,32]} b
  let d: f32[16,32] = add a c
  let e: f32[16,32] = tanh d
  let f: f32[16,32] = exp d
  return d, e, f
}";
    let why = "stay apart: a sum with a bias comes with its product; \
               2048 bytes written and read again";
    let of = |name: &str| format!("`add` and `{name}` {why}");
    assert_eq!(found(text, SUMS), [of("tanh"), of("exp")]);
}
