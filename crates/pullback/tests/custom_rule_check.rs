//! The check of rules: wrong ones are refused, right ones pass, once.

use pullback::{
    DType, Error, ErrorKind, Tensor, catch, custom_jvp, custom_vjp, grad, no_grad, unchecked_rules,
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
    let (line, text) = (line!(), refused(|| f.call(&x)).to_string());
    assert!(
        text.starts_with(
            "square: its rule is not its derivative: argument 0, element [1, 1]: expected "
        ),
        "{text}"
    );
    assert!(text.contains(&format!("custom_rule_check.rs:{line}:")), "{text}");
    let numbers: Vec<f64> = text
        .lines()
        .next()
        .unwrap()
        .split(['d', 'n', ',', ' '])
        .filter_map(|w| w.parse().ok())
        .collect();
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
    let sign = custom_vjp(
        "sign",
        |x: &Tensor| (x.cos(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.sin(),
    );
    refused(|| sign.call(&x));
    let transposed = custom_jvp(
        "turned",
        |x: &Tensor| x.matmul(&Tensor::from([[1.0, 2.0], [0.0, 1.0]])),
        |_: &Tensor, t: &Tensor| t.matmul(&Tensor::from([[1.0, 0.0], [2.0, 1.0]])),
    );
    refused(|| transposed.call(&x));
    let swapped = custom_vjp(
        "swapped",
        |(a, b): &(Tensor, Tensor)| (a * b.square(), (a.clone(), b.clone())),
        |(a, b): &(Tensor, Tensor), dy: &Tensor| (dy * b.square(), dy * a * b),
    );
    let text = refused(|| swapped.call(&(x.clone(), x.clone()))).to_string();
    assert!(text.contains("argument 1"), "{text}");
    let forgotten =
        custom_vjp("forgotten", |x: &Tensor| (x.exp(), ()), |_: &(), dy: &Tensor| dy.clone());
    refused(|| forgotten.call(&x));
}

#[test]
fn a_rule_right_to_first_order_and_wrong_to_second() {
    let x = Tensor::from([0.5, 1.5]);
    let detached = custom_vjp(
        "detached",
        |x: &Tensor| (x.powi(3), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.detach().square() * 3.0,
    );
    let text = refused(|| detached.call(&x)).to_string();
    assert!(
        text.contains("right to first order, but the derivative of the rule is wrong"),
        "{text}"
    );
    // A residual that was cut in the forward function.
    let cut = custom_vjp(
        "cut",
        |x: &Tensor| (x.powi(3), x.detach().square()),
        |s: &Tensor, dy: &Tensor| dy * s * 3.0,
    );
    refused(|| cut.call(&x));
    // The same in a rule for forward mode.
    let frozen =
        custom_jvp("frozen", |x: &Tensor| x.exp(), |x: &Tensor, t: &Tensor| t * x.exp().detach());
    refused(|| frozen.call(&x));
    // A cotangent that was cut: the gradient is right, what is made of it is not.
    let deaf = custom_vjp(
        "deaf",
        |x: &Tensor| (x.exp(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy.detach() * x.exp(),
    );
    let text = refused(|| deaf.call(&x)).to_string();
    assert!(text.contains("not a linear map"), "{text}");
    // A backward that is not linear.
    let clipped = custom_vjp(
        "clipped",
        |x: &Tensor| (x.clone(), ()),
        |_: &(), dy: &Tensor| dy.clamp(-0.7, 0.7),
    );
    refused(|| clipped.call(&x));
}

#[test]
fn kinks_are_no_false_alarms() {
    let relu = custom_vjp(
        "own_relu",
        |x: &Tensor| (x.relu(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.gt(0.0).cast(dy.dtype()),
    );
    let abs = custom_vjp(
        "own_abs",
        |x: &Tensor| (x.abs(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.sign(),
    );
    let round =
        custom_vjp("own_round", |x: &Tensor| (x.round(), ()), |_: &(), dy: &Tensor| dy * 0.0);
    // On the kink, next to it, and far from it; small, and large enough for random directions.
    let near = Tensor::from([0.0, 1e-5, -1e-4, 2e-6, 1.0, -3.0, 0.5, -0.5]);
    let zeros = Tensor::zeros_with([500], DType::F64);
    let many = Tensor::linspace(-1.0, 1.0, 4001).cast(DType::F64);
    for x in [&near, &zeros, &many] {
        for f in [&relu, &abs] {
            f.call(x);
        }
        round.call(x);
        // A rule that is wrong next to the kink is still found.
        let wrong = custom_vjp(
            "wrong_relu",
            |x: &Tensor| (x.relu(), x.clone()),
            |x: &Tensor, dy: &Tensor| dy * x.ge(-0.9).cast(dy.dtype()),
        );
        refused(|| wrong.call(x));
    }
    // The largest of equal ones, by any convention.
    let first = custom_vjp(
        "first_max",
        |x: &Tensor| (x.max(), x.clone()),
        |x: &Tensor, dy: &Tensor| Tensor::arange(0, 4).eq(x.argmax(0)).cast(dy.dtype()) * dy,
    );
    first.call(&Tensor::from([1.0, 2.0, 2.0, 2.0]));
}

#[test]
fn what_is_not_finite_is_wrong_where_the_function_is_smooth() {
    let f = custom_vjp(
        "divided",
        |x: &Tensor| (x.square(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.square() * 2.0 / x,
    );
    let text = refused(|| f.call(&Tensor::from([1.0, 0.0]))).to_string();
    assert!(text.contains("element [1]") && text.contains("given NaN"), "{text}");
}

#[test]
fn narrow_floats_are_checked_in_f64_or_in_their_own_type() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let x = Tensor::from([0.5, 1.0, 2.0]).cast(dtype);
        // Slightly wrong: seen in f64 only.
        let f = custom_vjp(
            "nearly",
            |x: &Tensor| (x.exp(), x.clone()),
            |x: &Tensor, dy: &Tensor| dy * x.exp() * 1.001,
        );
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
    // Another spec is another use.
    assert!(after(&|| drop(f.call(&three))) > 1);
    assert_eq!(after(&|| drop(f.call(&three))), 1);
    // The same line made anew may have captured something else: it is trusted after the fourth
    // time.
    let anew: Vec<bool> = (0..5).map(|_| after(&|| drop(make().call(&two))) > 1).collect();
    assert_eq!(anew, [true, true, true, false, false]);
    assert!(after(&|| drop(f.call(&two.cast(DType::F32)))) > 1);
    // Where nothing can be differentiated, nothing is checked.
    let x = Tensor::zeros_with([7], DType::F64);
    assert_eq!(after(&|| drop(no_grad(|| f.call(&x)))), 1);
    assert!(after(&|| drop(f.call(&x))) > 1);
}

#[test]
fn a_function_without_captures_is_one_rule_however_often_it_is_made() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let make = || {
        custom_vjp(
            "static",
            |x: &Tensor| {
                CALLS.fetch_add(1, Ordering::Relaxed);
                (x.exp(), x.clone())
            },
            |x: &Tensor, dy: &Tensor| dy * x.exp(),
        )
    };
    let x = Tensor::from([1.0, 2.0]);
    make().call(&x);
    let checked = CALLS.load(Ordering::Relaxed);
    assert!(checked > 1);
    (0..5).for_each(|_| drop(make().call(&x)));
    assert_eq!(CALLS.load(Ordering::Relaxed), checked + 5);
}

#[test]
fn a_rule_that_is_wrong_for_another_captured_value_is_found() {
    let scaled = |k: f64| {
        custom_vjp("scaled", move |x: &Tensor| (x * k, ()), |_: &(), dy: &Tensor| dy * 2.0)
    };
    let x = Tensor::from([1.0, 2.0]);
    scaled(2.0).call(&x);
    refused(|| scaled(3.0).call(&x));
}

#[test]
fn plain_values_in_the_argument_count() {
    // Wrong for one axis only.
    let f = custom_vjp(
        "summed",
        |(x, axis): &(Tensor, i64)| (x.sum_over(*axis as isize), (x.clone(), *axis)),
        |(x, axis): &(Tensor, i64), dy: &Tensor| match axis {
            0 => (dy.expand(x.shape()), 0),
            axis => (dy.expand(x.shape()), *axis),
        },
    );
    let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    f.call(&(x.clone(), 0));
    refused(|| f.call(&(x.clone(), 1)));
}

#[test]
fn a_wrong_operand_next_to_a_large_one_is_found() {
    // Slopes of millions, relative to which that of a scalar is wrong by a thousandth, or that of a
    // medium leaf by a tenth.
    let wrong = |off: f64, which: usize| {
        custom_vjp(
            "beside",
            |x: &Vec<Tensor>| (vec![(&x[0] * 1e3).square(), x[1].sin(), x[2].sin()], x.clone()),
            move |x: &Vec<Tensor>, dy: &Vec<Tensor>| {
                let factor = |k: usize| if k == which { 1.0 + off } else { 1.0 };
                let sine = |k: usize| x[k].cos() * &dy[k] * factor(k);
                vec![2e6 * &x[0] * &dy[0], sine(1), sine(2)]
            },
        )
    };
    let x = vec![
        Tensor::linspace(-1.0, 1.0, 20000).cast(DType::F64),
        Tensor::from(0.3),
        Tensor::linspace(0.0, 1.0, 300).cast(DType::F64),
    ];
    wrong(0.0, 1).call(&x);
    let text = refused(|| wrong(1e-3, 1).call(&x).swap_remove(0)).to_string();
    assert!(text.contains("argument 1, element []"), "{text}");
    let text = refused(|| wrong(1e-1, 2).call(&x).swap_remove(0)).to_string();
    assert!(text.contains("argument 2, element ["), "{text}");
}

#[test]
fn a_large_argument_costs_some_dozens_of_runs() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let f = custom_vjp(
        "huge",
        |x: &Tensor| {
            CALLS.fetch_add(1, Ordering::Relaxed);
            (x.sin(), x.clone())
        },
        |x: &Tensor, dy: &Tensor| dy * x.cos(),
    );
    f.call(&Tensor::linspace(-3.0, 3.0, 200_000));
    assert!(CALLS.load(Ordering::Relaxed) < 60, "{}", CALLS.load(Ordering::Relaxed));
}

#[test]
fn a_rule_that_is_wrong_in_f32_alone_is_found() {
    let x = Tensor::from([0.5f32, 1.0, 2.0]);
    let f = custom_vjp(
        "typed",
        |x: &Tensor| (x.exp(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.exp() * if x.dtype() == DType::F32 { 1.5 } else { 1.0 },
    );
    let text = refused(|| f.call(&x)).to_string();
    assert!(text.contains("right in f64, and not in f32: argument 0, element ["), "{text}");
    f.call(&x.cast(DType::F64));
    // Overflows in f32 where the function does not: log(1 + exp(x)) at 100.
    let f = custom_vjp(
        "steep",
        |x: &Tensor| (x.softplus(1.0, 20.0), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.exp() / (x.exp() + 1.0),
    );
    let text = refused(|| f.call(&Tensor::from([1.0f32, 100.0]))).to_string();
    assert!(
        text.contains("not in f32: argument 0, element [1]") && text.contains("given NaN"),
        "{text}"
    );
    f.call(&Tensor::from([1.0f32, 50.0]));
}

#[test]
fn a_cotangent_of_either_sign() {
    let f = custom_vjp(
        "lopsided",
        |x: &Tensor| (x.exp(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy.ge(0.0).select(dy, dy * 2.0) * x.exp(),
    );
    refused(|| f.call(&Tensor::linspace(0.0, 1.0, 6).cast(DType::F64)));
}

#[test]
fn integers_and_booleans_among_the_operands() {
    type Three = (Tensor, Tensor, Tensor);
    let f = |off: f64| {
        custom_vjp(
            "picked",
            |(x, index, mask): &Three| {
                let y = x.index_select(0, index) * mask.cast(x.dtype());
                (y, (x.clone(), index.clone(), mask.clone()))
            },
            move |(x, index, mask): &Three, dy: &Tensor| {
                let each = dy * mask.cast(x.dtype()) * off;
                (x.zeros_like().index_add(0, index, &each), index.zeros_like(), mask.zeros_like())
            },
        )
    };
    let x = (Tensor::from([1.0, 2.0, 3.0]), Tensor::from([2i64, 0]), Tensor::from([true, false]));
    f(1.0).call(&x);
    let text = refused(|| f(1.01).call(&x).clone()).to_string();
    assert!(text.contains("argument 0, element [2]"), "{text}");
}

#[test]
fn results_that_are_not_finite_hide_nothing() {
    // −∞ at 0, and a rule that is wrong elsewhere.
    let log = |off: f64| {
        custom_vjp(
            "own_log",
            |x: &Tensor| (x.log(), x.clone()),
            move |x: &Tensor, dy: &Tensor| dy / x * off,
        )
    };
    let x = Tensor::from([0.0, 1.0, 2.0]);
    log(1.0).call(&x);
    let text = refused(|| log(1.1).call(&x)).to_string();
    assert!(text.contains("element [1]") || text.contains("element [2]"), "{text}");
    // Nothing finite at all: it passes, and is listed.
    let f =
        custom_vjp("all_nan", |x: &Tensor| (x * f64::NAN, ()), |_: &(), dy: &Tensor| dy * f64::NAN);
    f.call(&x);
    assert!(unchecked_rules().iter().any(|r| r.name == "all_nan"
        && r.reason.contains("not finite")
        && r.line.contains("custom_rule_check.rs")));
}

#[test]
fn kinks_everywhere_are_said_and_not_refused() {
    // A saw with a tooth every 2·10⁻⁶, whatever step is taken.
    let f = custom_vjp(
        "saw",
        |x: &Tensor| (((x * 1e6).remainder(2.0) - 1.0).abs() * 1e-6, ()),
        |_: &(), dy: &Tensor| dy * 0.3,
    );
    f.call(&Tensor::from([0.3, 0.7]));
    let listed = unchecked_rules();
    assert!(listed.iter().any(|r| r.name == "saw" && r.reason.contains("kinks")), "{listed:?}");
}

#[test]
fn what_is_no_function_is_said_to_be_none() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let f = custom_vjp(
        "counter",
        |x: &Tensor| (x * CALLS.fetch_add(1, Ordering::Relaxed) as f64, ()),
        |_: &(), dy: &Tensor| dy.clone(),
    );
    let text = refused(|| f.call(&Tensor::from([1.0, 2.0]))).to_string();
    assert!(
        text.contains("is not deterministic") && text.contains("result 0, element [0]"),
        "{text}"
    );
}

#[test]
fn a_tolerance_can_be_given() {
    let make = || {
        custom_vjp(
            "rough",
            |x: &Tensor| (x.exp(), x.clone()),
            |x: &Tensor, dy: &Tensor| dy * x.exp() * 1.001,
        )
    };
    refused(|| make().call(&Tensor::from([1.0])));
    make().tolerance(1e-2).call(&Tensor::from([1.0]));
}

#[test]
fn docs_custom_md_has_the_text_of_a_refusal() {
    let cube = custom_vjp(
        "cube",
        |x: &Tensor| (x.powi(3), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.square() * 2.0,
    );
    let error = refused(|| cube.call(&Tensor::from([1.0, 2.0]))).to_string();
    let path = format!("{}/../../../docs/custom.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = error.lines().collect();
    for line in [lines[0], lines[2]] {
        // To six digits of the expected value: the last ones are those of a difference.
        let known = line
            .split_once("expected ")
            .map_or(line, |(start, rest)| &line[..start.len() + 9 + rest.len().min(7)]);
        assert!(text.contains(known), "docs/custom.md does not say:\n{line}");
    }
}
