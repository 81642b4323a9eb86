//! The switches of `with_tf32` and `with_deterministic` as a device sees them: those of the call
//! that runs an op or a program.

use super::device_second::{alone, numerics_of, second};
use super::sample;
use pullback::{Tensor, checkpoint, jit, memory_budget, with_deterministic, with_tf32};
use pullback_ir::Numerics;
use std::collections::HashSet;

const EXACT: Numerics = Numerics { tf32: false, deterministic: true };
const FAST: Numerics = Numerics { tf32: true, deterministic: false };

fn fast<R>(f: impl FnOnce() -> R) -> R {
    with_tf32(true, || with_deterministic(false, f))
}

fn only(numerics: Numerics) -> HashSet<Numerics> {
    HashSet::from([numerics])
}

fn operands() -> (Tensor, Tensor) {
    (sample(&[5, 4], 1).to(second()), sample(&[4, 4], 2).to(second()).requires_grad())
}

#[test]
fn ops_and_backward_passes_follow_the_scope_around_them() {
    let _alone = alone();
    let (x, w) = operands();
    assert_eq!(numerics_of(|| fast(|| x.matmul(&w))), only(FAST));
    let y = fast(|| x.matmul(&w).sum());
    assert_eq!(numerics_of(|| y.backward().unwrap()), only(EXACT));
    let y = x.matmul(&w).sum();
    assert_eq!(numerics_of(|| fast(|| y.backward().unwrap())), only(FAST));
}

#[test]
fn a_compiled_function_follows_the_scope_of_each_call() {
    let _alone = alone();
    let (x, w) = operands();
    let f = jit(|x: &(Tensor, Tensor)| x.0.matmul(&x.1).tanh());
    let (x, call) = ((x, w.detach()), |x| f.call(x).unwrap());
    fast(|| call(&x));
    assert_eq!(numerics_of(|| call(&x)), only(EXACT));
    assert_eq!(numerics_of(|| fast(|| call(&x))), only(FAST));
}

#[test]
fn what_is_recomputed_is_computed_as_it_was() {
    let _alone = alone();
    let (x, w) = operands();
    let held = w.clone();
    let y = fast(|| checkpoint(move |x: &Tensor| x.matmul(&held).tanh(), &x).sum());
    let both = HashSet::from([EXACT, FAST]);
    assert_eq!(numerics_of(|| y.backward().unwrap()), both);
    let x = sample(&[64, 4], 3).to(second()).requires_grad();
    memory_budget(3 * 64 * 4 * 4, || {
        let y = fast(|| (0..6).fold(x.clone(), |x, _| x.matmul(&w).tanh()).sum());
        assert_eq!(numerics_of(|| y.backward().unwrap()), both);
    });
}
