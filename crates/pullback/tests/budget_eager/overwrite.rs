//! Memory that is overwritten.

use super::{exclusive, taken};
use pullback::{ErrorKind, MemoryBudget, Tensor, jit, memory_budget, no_grad};

#[test]
fn an_overwritten_value_is_the_classic_error() {
    let _lock = exclusive();
    let x = Tensor::from([0.5; 32]).requires_grad();
    for values in [1000, 2] {
        let loss = memory_budget(values * 256, || {
            let y = &x * 1.5;
            let z = y.sin();
            y.add_(1.0);
            (y.sum() + z.sum(), y)
        });
        let error = loss.0.backward().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InPlace);
        let text = error.to_string();
        assert!(
            text.contains("backward of `sin` needs its operand, but it was overwritten"),
            "{text}"
        );
        assert!(text.contains("overwritten  add_") && text.contains("overwrite.rs"), "{text}");
        assert!(x.grad().is_none());
    }
}

#[test]
fn memory_overwritten_after_the_scope_is_an_error_and_never_a_wrong_gradient() {
    let _lock = exclusive();
    let x = Tensor::from([0.5; 32]).requires_grad();
    let shift = Tensor::from([1.0; 32]);
    let run = |budget: &MemoryBudget| {
        budget.run(|| (0..16).fold(x.clone(), |x, _| (x + &shift).sin().exp() * 0.3).sum())
    };
    let small = MemoryBudget::new(4 * 256);
    let loss = run(&small);
    shift.add_(1.0);
    let error = loss.backward().unwrap_err().to_string();
    assert!(error.contains("memory that this needs was overwritten"), "{error}");
    assert!(error.contains("add_") && error.contains("overwrite.rs"), "{error}");
    assert!(x.grad().is_none());
}

#[test]
fn memory_overwritten_in_the_scope_is_kept_for_what_was_dropped() {
    let _lock = exclusive();
    let x = Tensor::from([0.5; 32]).requires_grad();
    // Memory from before the scope, and memory that is made of data in it: neither is saved, and
    // neither can be made again.
    let run = |outside: &Tensor| {
        let inside = Tensor::from([0.25; 32]);
        let turns =
            |y: Tensor, n: i32| (0..n).fold(y, |y, _| ((y + outside) * 0.9 + &inside).sin());
        let y = turns(x.clone(), 8);
        outside.add_(1.0);
        inside.mul_(3.0);
        let y = turns(y, 8);
        outside.add_(1.0);
        turns(y, 2).sum()
    };
    run(&Tensor::from([1.0; 32])).backward().unwrap();
    let expected = taken(&[&x]);
    for values in [20, 8, 6] {
        let (budget, outside) = (MemoryBudget::new(values * 256), Tensor::from([1.0; 32]));
        budget.run(|| run(&outside)).backward().unwrap();
        assert_eq!(taken(&[&x]), expected);
        let used = budget.used();
        assert!(values == 20 || used.dropped > 8, "{used}");
        // The copies count.
        assert!(used.kept <= values * 256 && (values == 20 || used.least >= 4 * 256), "{used}");
    }
}

#[test]
fn memory_that_a_compiled_function_overwrites_is_kept_for_what_was_dropped() {
    let _lock = exclusive();
    let x = Tensor::from([0.5; 32]).requires_grad();
    // The state is read by what is dropped, and written by the call: whole, and in a part of it.
    let run = |state: &Tensor, part: bool| {
        let at = state.clone();
        let step = jit(move |by: &Tensor| {
            no_grad(|| match part {
                true => at.at(4..20).mul_(by),
                false => at.mul_(by),
            });
        });
        let by = Tensor::from(1.5);
        let turns = |y: Tensor, n: i32| (0..n).fold(y, |y, _| (y + state).sin().exp() * 0.3);
        let y = turns(x.clone(), 8);
        step.call(&by).unwrap();
        let y = turns(y, 8);
        step.call(&by).unwrap();
        turns(y, 2).sum()
    };
    for part in [false, true] {
        run(&Tensor::from([1.0; 32]), part).backward().unwrap();
        let expected = taken(&[&x]);
        for values in [64, 8, 6] {
            let (budget, state) = (MemoryBudget::new(values * 256), Tensor::from([1.0; 32]));
            budget.run(|| run(&state, part)).backward().unwrap();
            assert_eq!(taken(&[&x]), expected, "{values} values");
            let used = budget.used();
            assert!(values == 64 || used.dropped > 8, "{used}");
            assert!(values == 64 || used.least >= 2 * 256, "the copies count: {used}");
            assert_eq!(state.to_vec::<f64>()[10], 2.25);
        }
    }
}
