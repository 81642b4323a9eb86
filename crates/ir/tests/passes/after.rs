//! `after` keeps a recomputation separate from the first computation, and costs nothing.

use super::interpret::evaluate;
use pullback_ir::pass::plan::plan;
use pullback_ir::pass::*;
use pullback_ir::*;

const TWICE: &str = "program (x: f32[1024,8], w: f32[8,8]) {
  let a: f32[1024,8] = dot x w
  let b: f32[1024,8] = tanh a
  let c: f32[8,1024] = permute{[1,0]} b
  let d: f32[8,8] = dot c x
  let e: f32[1024,8] = after x d
  let f: f32[1024,8] = dot e w
  let g: f32[1024,8] = tanh f
  let h: f32[1024,8] = dot g d
  return h
}";

fn names(program: &Program) -> Vec<&str> {
    program.equations.iter().map(|e| e.op.name()).collect()
}

#[test]
fn nothing_merges_what_waits_with_what_does_not() {
    let program: Program = TWICE.parse().unwrap();
    assert_eq!(common_subexpressions(&program), program);
    let compiled =
        Pipeline::standard(Target::default(), evaluate).verified(true).run(&program).unwrap();
    let order = names(&compiled);
    let waits = order.iter().position(|&name| name == "after").expect("it stays");
    let products = |part: &[&str]| part.iter().filter(|n| n.starts_with("dot")).count();
    assert_eq!((products(&order[..waits]), products(&order[waits..])), (2, 2), "{compiled}");
}

/// Without it the second computation is the first one, which is kept instead.
#[test]
fn it_is_what_keeps_them_apart() {
    let text = TWICE.replace("after x d", "reshape{[1024,8]} x");
    let compiled =
        Pipeline::standard(Target::default(), evaluate).run(&text.parse().unwrap()).unwrap();
    assert_eq!(names(&compiled).iter().filter(|n| n.starts_with("dot")).count(), 3);
}

#[test]
fn it_is_its_first_operand_in_memory() {
    let program: Program = TWICE.parse().unwrap();
    let plan = plan(&program, Target::default());
    assert_eq!(plan.locations[4 + 2], plan.locations[0]);
    let text = "program (x: f32[256]) {
  let a: f32[256] = exp x
  let b: f32[] = sum{[0]} a
  let c: f32[256] = after a b
  let d: f32[256] = sin c
  return d
}";
    let program: Program = text.parse().unwrap();
    // All of it runs in the memory of the result, but for the sum.
    let plan = pullback_ir::pass::plan::plan(&program, Target::default());
    assert_eq!((plan.outputs, plan.arena), (1024, 64));
    // Its first operand is alive until its last reader, its tokens are not.
    assert_eq!(peak_bytes(&program), 1024 + 1024);
}

#[test]
fn numbers_are_not_known_before_their_time() {
    let text = "program (x: f32[4]) { let a: f32[4] = literal{2.0: f32[4]}; let b: f32[4] = after a x; let c: f32[4] = exp b; return c }";
    let program: Program = text.parse().unwrap();
    let folded = simplify(&fold(&program, &evaluate));
    assert_eq!(names(&folded), ["literal", "after", "exp"]);
}

#[test]
fn it_takes_something_to_wait_for() {
    let spec = Spec::cpu(DType::F32, [2].as_slice());
    let flag = Spec::cpu(DType::Bool, [].as_slice());
    let error = infer::infer(&Op::After, &[&spec]).unwrap_err().to_string();
    assert!(error.contains("after") && error.contains("2 operands or more, not 1"), "{error}");
    assert_eq!(infer::infer(&Op::After, &[&spec, &flag, &flag]).unwrap()[0], spec);
}
