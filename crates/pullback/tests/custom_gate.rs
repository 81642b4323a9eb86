//! The gate: wrong rules are refused, right ones pass, once.

use pullback::{
    Error, ErrorKind, DType, Tensor, catch, custom_jvp, custom_vjp, grad, jit, no_grad, unchecked_rules, vmap,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn refused(run: impl FnOnce() -> Tensor) -> Error {
    let error = catch(run).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Check, "{error}");
    error
}

#[test]
fn a_wrong_rule_is_refused_with_the_worst_entry() {
    let f = custom_vjp(
        "square",
        |x: &Tensor| (x.square(), x.clone()),
        // Right but for one entry, where it is off by a tenth.
        |x: &Tensor, dy: &Tensor| 2.0 * x * dy * Tensor::from([[1.0, 1.0], [1.0, 1.1]]),
    );
    let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    let text = refused(|| f.call(&x)).to_string();
    assert!(text.starts_with("square: its rule is not its derivative: argument 0, element [1, 1]: expected "), "{text}");
    assert!(text.contains("custom_gate.rs:29:"), "{text}");
    let numbers: Vec<f64> = text.lines().next().unwrap().split(['d', 'n', ',', ' ']).filter_map(|w| w.parse().ok()).collect();
    let [.., expected, given] = numbers[..] else { panic!("{text}") };
    assert!((given / expected - 1.1).abs() < 1e-4, "{text}");
    // And again at the next call: it has not passed.
    refused(|| f.call(&x));
}

#[test]
fn a_wrong_entry_among_many_is_found() {
    let f = custom_vjp(
        "large",
        |x: &Tensor| (x.sin(), x.clone()),
        |x: &Tensor, dy: &Tensor| {
            let index = Tensor::arange(0, 3000).reshape([30, 100]);
            dy * x.cos() + index.eq(1234).cast(x.dtype()) * dy * 0.01
        },
    );
    let x = Tensor::linspace(-3.0, 3.0, 3000).cast(DType::F64).reshape([30, 100]);
    let text = refused(|| f.call(&x)).to_string();
    assert!(text.contains("argument 0, element [12, 34]"), "{text}");
}

#[test]
fn wrong_signs_transposes_arguments_and_modes() {
    let x = Tensor::from([[0.5, 1.0], [-0.7, 0.2]]);
    let sign = custom_vjp("sign", |x: &Tensor| (x.cos(), x.clone()), |x: &Tensor, dy: &Tensor| dy * x.sin());
    refused(|| sign.call(&x));
    let transposed = custom_jvp("turned", |x: &Tensor| x.matmul(&Tensor::from([[1.0, 2.0], [0.0, 1.0]])), |_: &Tensor, t: &Tensor| {
        t.matmul(&Tensor::from([[1.0, 0.0], [2.0, 1.0]]))
    });
    refused(|| transposed.call(&x));
    let swapped = custom_vjp(
        "swapped",
        |(a, b): &(Tensor, Tensor)| (a * b.square(), (a.clone(), b.clone())),
        |(a, b): &(Tensor, Tensor), dy: &Tensor| (dy * b.square(), dy * a * b),
    );
    let text = refused(|| swapped.call(&(x.clone(), x.clone()))).to_string();
    assert!(text.contains("argument 1"), "{text}");
    let forgotten = custom_vjp("forgotten", |x: &Tensor| (x.exp(), ()), |_: &(), dy: &Tensor| dy.clone());
    refused(|| forgotten.call(&x));
}

#[test]
fn a_rule_right_to_first_order_and_wrong_to_second() {
    let x = Tensor::from([0.5, 1.5]);
    let detached = custom_vjp("detached", |x: &Tensor| (x.powi(3), x.clone()), |x: &Tensor, dy: &Tensor| {
        dy * x.detach().square() * 3.0
    });
    let text = refused(|| detached.call(&x)).to_string();
    assert!(text.contains("right to first order, but the derivative of the rule is wrong"), "{text}");
    // A residual that was cut in the forward function.
    let cut = custom_vjp("cut", |x: &Tensor| (x.powi(3), x.detach().square()), |s: &Tensor, dy: &Tensor| dy * s * 3.0);
    refused(|| cut.call(&x));
    // The same in a rule for forward mode.
    let frozen = custom_jvp("frozen", |x: &Tensor| x.exp(), |x: &Tensor, t: &Tensor| t * x.exp().detach());
    refused(|| frozen.call(&x));
    // A cotangent that was cut: the gradient is right, what is made of it is not.
    let deaf = custom_vjp("deaf", |x: &Tensor| (x.exp(), x.clone()), |x: &Tensor, dy: &Tensor| dy.detach() * x.exp());
    let text = refused(|| deaf.call(&x)).to_string();
    assert!(text.contains("not a linear map"), "{text}");
    // A backward that is not linear.
    let clipped = custom_vjp("clipped", |x: &Tensor| (x.clone(), ()), |_: &(), dy: &Tensor| dy.clamp(-0.7, 0.7));
    refused(|| clipped.call(&x));
}

#[test]
fn kinks_are_no_false_alarms() {
    let relu = custom_vjp("own_relu", |x: &Tensor| (x.relu(), x.clone()), |x: &Tensor, dy: &Tensor| dy * x.gt(0.0).cast(dy.dtype()));
    let abs = custom_vjp("own_abs", |x: &Tensor| (x.abs(), x.clone()), |x: &Tensor, dy: &Tensor| dy * x.sign());
    let round = custom_vjp("own_round", |x: &Tensor| (x.round(), ()), |_: &(), dy: &Tensor| dy * 0.0);
    // On the kink, beside it, and far from it; small, and large enough for random directions.
    let near = Tensor::from([0.0, 1e-5, -1e-4, 2e-6, 1.0, -3.0, 0.5, -0.5]);
    let zeros = Tensor::zeros_with([500], DType::F64);
    let many = Tensor::linspace(-1.0, 1.0, 4001).cast(DType::F64);
    for x in [&near, &zeros, &many] {
        for f in [&relu, &abs] {
            f.call(x);
        }
        round.call(x);
        // A rule that is wrong beside the kink is still found.
        let wrong = custom_vjp("wrong_relu", |x: &Tensor| (x.relu(), x.clone()), |x: &Tensor, dy: &Tensor| dy * x.ge(-0.9).cast(dy.dtype()));
        if x.len() != 500 {
            refused(|| wrong.call(x));
        }
    }
    // The largest of equal ones, by any convention.
    let first = custom_vjp("first_max", |x: &Tensor| (x.max(), x.clone()), |x: &Tensor, dy: &Tensor| {
        Tensor::arange(0, 4).eq(x.argmax(0)).cast(dy.dtype()) * dy
    });
    first.call(&Tensor::from([1.0, 2.0, 2.0, 2.0]));
}

#[test]
fn what_is_not_finite_is_wrong_where_the_function_is_smooth() {
    let f = custom_vjp("divided", |x: &Tensor| (x.square(), x.clone()), |x: &Tensor, dy: &Tensor| dy * x.square() * 2.0 / x);
    let text = refused(|| f.call(&Tensor::from([1.0, 0.0]))).to_string();
    assert!(text.contains("element [1]") && text.contains("given NaN"), "{text}");
}

#[test]
fn narrow_floats_are_checked_in_f64_or_in_their_own_type() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let x = Tensor::from([0.5, 1.0, 2.0]).cast(dtype);
        // Slightly wrong: seen in f64 only.
        let f = custom_vjp("nearly", |x: &Tensor| (x.exp(), x.clone()), |x: &Tensor, dy: &Tensor| dy * x.exp() * 1.001);
        refused(|| f.call(&x));
        // Takes nothing but its own type: what is far off is still seen, and what is right passes.
        let own = move |x: &Tensor| {
            if x.dtype() != dtype {
                pullback::raise(Error::dtype("own", "takes its own type"));
            }
            (x.exp(), x.clone())
        };
        custom_vjp("own", own, |x: &Tensor, dy: &Tensor| dy * x.exp()).call(&x);
        let wrong = custom_vjp("own_wrong", own, |x: &Tensor, dy: &Tensor| dy * x.exp() * 2.0);
        refused(|| wrong.call(&x));
    }
}

#[test]
fn a_check_happens_once_for_each_spec() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = || calls.load(Ordering::Relaxed);
    let make = || {
        let calls = calls.clone();
        custom_vjp(
            "counted",
            move |x: &Tensor| {
                calls.fetch_add(1, Ordering::Relaxed);
                (x.exp(), x.exp())
            },
            |y: &Tensor, dy: &Tensor| y * dy,
        )
    };
    let f = make();
    let (two, three) = (Tensor::from([1.0, 2.0]), Tensor::from([1.0, 2.0, 3.0]));
    f.call(&two);
    assert!(count() > 1, "{}", count());
    let after = |run: &dyn Fn()| {
        let before = count();
        run();
        count() - before
    };
    assert_eq!(after(&|| drop(f.call(&two))), 1);
    assert_eq!(after(&|| drop(grad(|x: &Tensor| f.call(x).sum())(&two))), 1);
    // Another spec is another use; the same function made anew is not.
    assert!(after(&|| drop(f.call(&three))) > 1);
    assert_eq!(after(&|| drop(f.call(&three))), 1);
    assert_eq!(after(&|| drop(make().call(&two))), 1);
    assert!(after(&|| drop(f.call(&two.cast(DType::F32)))) > 1);
    // Where nothing can be differentiated, nothing is checked.
    let x = Tensor::zeros_with([7], DType::F64);
    assert_eq!(after(&|| drop(no_grad(|| f.call(&x)))), 1);
    assert!(after(&|| drop(f.call(&x))) > 1);
}

#[test]
fn inside_a_trace_the_check_is_at_sampled_values() {
    let x = Tensor::from([1.0, 2.0]);
    let wrong = || custom_vjp("traced_wrong", |x: &Tensor| (x.square(), x.clone()), |x: &Tensor, dy: &Tensor| x * dy);
    let f = wrong();
    let error = catch(|| vmap(|x: &Tensor| f.call(x), 0, 0)(&x)).unwrap_err();
    assert!(error.to_string().contains("its rule is not its derivative"), "{error}");
    let f = wrong();
    let error = catch(|| jit(|x: &Tensor| f.call(x)).of(&x)).unwrap_err();
    assert!(error.to_string().contains("its rule is not its derivative"), "{error}");
    // A function that the samples do not suit says so, and can be given better ones.
    let picky = || {
        custom_vjp(
            "picky",
            |x: &Tensor| {
                if pullback::catch(|| x.to_f64_vec()).is_ok_and(|v| v.iter().any(|x| *x < 2.0)) {
                    pullback::raise(Error::argument("picky", "takes numbers from 2 on"));
                }
                (x.square(), x.clone())
            },
            |x: &Tensor, dy: &Tensor| 2.0 * x * dy,
        )
    };
    let f = picky();
    let x = Tensor::from([3.0, 4.0]);
    let error = catch(|| vmap(|x: &Tensor| f.call(x), 0, 0)(&x)).unwrap_err().to_string();
    assert!(error.contains("cannot be checked") && error.contains("takes numbers from 2 on") && error.contains(".at(&example)"), "{error}");
    let f = picky().at(&Tensor::from(5.0));
    assert_eq!(vmap(|x: &Tensor| f.call(x), 0, 0)(&x).to_vec::<f64>(), [9.0, 16.0]);
}

#[test]
fn what_is_not_checked_is_listed() {
    let before = unchecked_rules().len();
    let f = custom_vjp("listed", |x: &Tensor| (x.round(), ()), |_: &(), dy: &Tensor| dy.clone()).unchecked("a straight-through estimator");
    let listed = || unchecked_rules().into_iter().find(|r| r.name == "listed").unwrap();
    assert!(unchecked_rules().len() > before);
    assert_eq!((listed().calls, listed().reason), (0, "a straight-through estimator"));
    assert!(listed().line.contains("custom_gate.rs:"), "{}", listed().line);
    f.call(&Tensor::from(0.3));
    assert_eq!(grad(|x: &Tensor| f.call(x))(&Tensor::from(0.3)).item::<f64>(), 1.0);
    assert_eq!(listed().calls, 2);
}

#[test]
fn a_tolerance_can_be_given() {
    let make = || custom_vjp("rough", |x: &Tensor| (x.exp(), x.clone()), |x: &Tensor, dy: &Tensor| dy * x.exp() * 1.001);
    refused(|| make().call(&Tensor::from([1.0])));
    make().tolerance(1e-2).call(&Tensor::from([1.0]));
}
