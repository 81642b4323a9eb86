//! The check of rules and what is around a call: threads, `autocast`, checkpoints, programs, many
//! examples, tensors from outside.

use pullback::{
    Checkpoint, CustomVjp, DType, Error, ErrorKind, Key, Tensor, autocast, catch, custom_vjp,
    detect_overflow, grad, jit, jvp, scan_times, unchecked_rules, vmap,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn refused(run: impl FnOnce() -> Tensor) -> Error {
    let error = catch(run).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Check, "{error}");
    error
}

#[test]
fn several_threads_at_once() {
    let right = Arc::new(custom_vjp(
        "shared",
        |x: &Tensor| (x.exp(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.exp(),
    ));
    let wrong = Arc::new(custom_vjp(
        "shared_wrong",
        |x: &Tensor| (x.exp(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x,
    ));
    let run = || {
        let (right, wrong) = (right.clone(), wrong.clone());
        std::thread::spawn(move || {
            let x = Tensor::from([0.1, 0.2, 0.3]);
            let g = grad(|x: &Tensor| right.call(x).sum())(&x);
            assert_eq!(g.to_vec::<f64>(), x.exp().to_vec::<f64>());
            refused(|| wrong.call(&x));
        })
    };
    let threads: Vec<_> = (0..4).map(|_| run()).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn nothing_around_a_check_has_a_part_in_it() {
    let make = |name: &'static str| {
        custom_vjp(
            name,
            |x: &Tensor| (x.matmul(x), x.clone()),
            |x: &Tensor, dy: &Tensor| dy.matmul(&x.t()) + x.t().matmul(dy),
        )
    };
    let x = Tensor::from([[0.5f32, 1.0], [0.25, -2.0]]);
    // In bf16 differences would say nothing.
    let f = make("cast");
    assert_eq!(autocast(DType::BF16, || f.call(&x)).dtype(), DType::BF16);
    // Values that the check computes are not counted as overflows.
    let steep = custom_vjp(
        "steep_exp",
        |x: &Tensor| (x.exp(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.exp(),
    );
    let (y, source) = detect_overflow(|| steep.call(&Tensor::from([709.78])));
    assert!(y.to_f64_vec()[0].is_finite() && source.is_none(), "{source:?}");
    // A checkpointed function whose first run has the check, and whose second has not.
    let f = make("kept");
    let x = x.requires_grad();
    let y = Checkpoint::new().verify(true).call(move |x: &Tensor| f.call(x).exp(), &x);
    y.sum().backward().unwrap();
}

#[test]
fn compiled_functions_are_checked_at_the_values_of_their_first_call() {
    // Right for positive numbers, which samples are.
    let make =
        || custom_vjp("half_right", |x: &Tensor| (x.abs(), ()), |_: &(), dy: &Tensor| dy.clone());
    let x = Tensor::from([-1.0, -2.0]);
    let f = make();
    let compiled = jit(|x: &Tensor| f.call(&(x * 3.0)) + 1.0);
    let error = compiled.call(&x).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Check
            && error.to_string().contains("its rule is not its derivative"),
        "{error}"
    );
    assert_eq!(compiled.of(&x.abs()).to_vec::<f64>(), [4.0, 7.0]);
    let f = make();
    refused(|| jit(grad(|x: &Tensor| f.call(x).sum())).of(&Tensor::from([-1.0, -2.0, -3.0])));
    // Batched: at the first example; also where the batch is inside a compiled function.
    let f = make();
    refused(|| vmap(|x: &Tensor| f.call(x).sum(), 0, 0)(&Tensor::from([[-1.0], [-2.0]])));
    let f = make();
    refused(|| {
        jit(|x: &Tensor| vmap(|x: &Tensor| f.call(x), 0, 0)(x))
            .of(&Tensor::from([[-1.0; 5], [-2.0; 5]]))
    });
    // And what passed at samples is still checked at the first values that come.
    let f = make();
    let spec = pullback::Spec::cpu(DType::F64, [6]);
    pullback::trace(|x: &[Tensor]| f.call(&x[0]), &[spec]).unwrap();
    refused(|| f.call(&Tensor::full([6], -1.0).cast(DType::F64)));
}

#[test]
fn compiled_calls_cost_nothing_more() {
    let (calls, pulls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (c, p) = (calls.clone(), pulls.clone());
    let f = custom_vjp(
        "quiet",
        move |x: &Tensor| {
            c.fetch_add(1, Ordering::Relaxed);
            (x.exp(), x.clone())
        },
        move |x: &Tensor, dy: &Tensor| {
            p.fetch_add(1, Ordering::Relaxed);
            dy * x.exp()
        },
    );
    let count = || (calls.load(Ordering::Relaxed), pulls.load(Ordering::Relaxed));
    let x = Tensor::from([1.0, 2.0]);
    let compiled = jit(grad(|x: &Tensor| f.call(x).sum()));
    compiled.of(&x);
    let first = count();
    (0..3).for_each(|_| drop(compiled.of(&x)));
    assert_eq!(count(), first);
    // Eagerly, each gradient is one run of each.
    (0..3).for_each(|_| drop(grad(|x: &Tensor| f.call(x).sum())(&x)));
    assert_eq!(count(), (first.0 + 3, first.1 + 3));
}

#[test]
fn explain_lists_what_is_not_checked() {
    let f = custom_vjp("rounded", |x: &Tensor| (x.round(), ()), |_: &(), dy: &Tensor| dy.clone())
        .unchecked("straight through");
    let f = Arc::new(f);
    let g = f.clone();
    let compiled = jit(grad(move |x: &Tensor| {
        vmap(|x: &Tensor| g.call(x), 0, 0)(x).sum()
            + scan_times(2, |x: &Tensor, _: &()| (g.call(x), ()), x).0.sum()
    }));
    compiled.of(&Tensor::from([0.3, 0.6]));
    let report = compiled.explain();
    let listed = &report.specialisations[0].unchecked;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert!(
        report.to_string().contains("unchecked rule: `rounded`, straight through ("),
        "{report}"
    );
    assert!(report.to_string().contains("custom_rule_check_around.rs:"), "{report}");
    let plain = jit(|x: &Tensor| x.exp());
    plain.of(&Tensor::from(1.0));
    assert!(!plain.explain().to_string().contains("unchecked"));
}

#[test]
fn inside_a_trace_the_check_is_at_sampled_values_first() {
    let x = Tensor::from([1.0, 2.0]);
    let wrong = || {
        custom_vjp(
            "traced_wrong",
            |x: &Tensor| (x.square(), x.clone()),
            |x: &Tensor, dy: &Tensor| x * dy,
        )
    };
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
    assert!(
        error.contains("cannot be checked")
            && error.contains("takes numbers from 2 on")
            && error.contains(".at(&example)"),
        "{error}"
    );
    let f = picky().at(&Tensor::from(5.0));
    assert_eq!(vmap(|x: &Tensor| f.call(x), 0, 0)(&x).to_vec::<f64>(), [9.0, 16.0]);
}

#[test]
fn what_is_not_checked_is_listed() {
    let before = unchecked_rules().len();
    let f = custom_vjp("listed", |x: &Tensor| (x.round(), ()), |_: &(), dy: &Tensor| dy.clone())
        .unchecked("a straight-through estimator");
    let listed = || unchecked_rules().into_iter().find(|r| r.name == "listed").unwrap();
    assert!(unchecked_rules().len() > before);
    assert_eq!((listed().calls, listed().reason), (0, "a straight-through estimator"));
    assert!(listed().line.contains("custom_rule_check_around.rs:"), "{}", listed().line);
    f.call(&Tensor::from(0.3));
    assert_eq!(grad(|x: &Tensor| f.call(x))(&Tensor::from(0.3)).item::<f64>(), 1.0);
    assert_eq!(listed().calls, 2);
}

fn softplus() -> CustomVjp<Tensor, Tensor, Tensor> {
    custom_vjp(
        "softplus",
        |x: &Tensor| (x.exp().log1p(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.sigmoid(),
    )
}

#[test]
fn rules_are_in_the_dtypes_that_autocast_gives() {
    // Inside, the argument is f16, and exp gives f32.
    let x = Key::new(1).normal([2, 3], DType::F32, 0.0, 1.0);
    let w = Key::new(2).normal([4, 3], DType::F32, 0.0, 1.0);
    let plain = grad(|w: &Tensor| x.linear(w, None).softplus(1.0, 20.0).sum())(&w).to_f64_vec();
    let close = |found: &Tensor| {
        assert_eq!(found.dtype(), DType::F32);
        for (a, b) in found.to_f64_vec().iter().zip(&plain) {
            assert!((a - b).abs() < 1e-2, "{found:?} is not {plain:?}");
        }
    };
    let (leaf, f) = (w.deep_clone().requires_grad(), softplus());
    let y = autocast(DType::F16, || f.call(&x.linear(&leaf, None)).sum());
    y.backward().unwrap();
    close(&leaf.grad().unwrap());
    let (f, at) = (softplus(), x.clone());
    let loss = move |w: &Tensor| autocast(DType::F16, || f.call(&at.linear(w, None)).sum());
    close(&jit(grad(loss)).of(&w));
    // A residual that is computed again for the second derivative is cast as it was.
    let f = custom_vjp(
        "squared",
        |(x, w): &(Tensor, Tensor)| {
            let h = x.linear(w, None);
            (h.cast(DType::F32).square(), (x.clone(), w.clone(), h))
        },
        |(x, w, h): &(Tensor, Tensor, Tensor), dy: &Tensor| {
            let dh = dy * h.cast(dy.dtype()) * 2.0;
            (dh.matmul(w), dh.t().matmul(x))
        },
    )
    .unchecked("computes in f32 whatever it is given");
    let loss = |w: &Tensor| autocast(DType::F16, || f.call(&(x.clone(), w.clone())).sum());
    let own = |w: &Tensor| x.linear(w, None).square().sum();
    let second = grad(|w: &Tensor| grad(loss)(w).square().sum())(&w).to_f64_vec();
    let wanted = grad(|w: &Tensor| grad(own)(w).square().sum())(&w).to_f64_vec();
    for (a, b) in second.iter().zip(&wanted) {
        assert!((a - b).abs() < 1e-2 * b.abs().max(1.0), "{second:?} is not {wanted:?}");
    }
}

#[test]
fn the_last_example_is_checked_as_well() {
    // Right for positive numbers.
    let make = || {
        custom_vjp(
            "positive",
            |x: &Tensor| (x.square(), x.clone()),
            |x: &Tensor, dy: &Tensor| x.gt(0.0).select(dy * x * 2.0, dy * x * 7.0),
        )
    };
    let x = Tensor::from([1.0, 2.0, -2.0]);
    let f = make();
    refused(|| vmap(grad(|x: &Tensor| f.call(x)), 0, 0)(&x));
    let f = make();
    refused(|| jit(vmap(move |x: &Tensor| f.call(x), 0, 0)).of(&x));
    // Of two axes the last of the last.
    let f = make();
    let two = Tensor::from([[1.0, 2.0], [3.0, -4.0]]);
    refused(|| vmap(|x: &Tensor| vmap(|x: &Tensor| f.call(x), 0, 0)(x), 0, 0)(&two));
    let f = make();
    assert_eq!(vmap(grad(|x: &Tensor| f.call(x)), 0, 0)(&x.abs()).to_vec::<f64>(), [2.0, 4.0, 4.0]);
}

#[test]
fn a_tensor_that_backward_alone_captured_is_refused() {
    let x = Tensor::from(3.0);
    let scaled = |inside: Tensor, outside: Tensor| {
        custom_vjp(
            "scaled",
            move |x: &Tensor| (x * &inside, x.clone()),
            move |_: &Tensor, dy: &Tensor| dy * &outside,
        )
        .unchecked("its factor is a constant")
    };
    // d/dw of the gradient w would be 1, and is not recorded.
    let slope = |w: &Tensor| {
        let f = scaled(w.detach(), w.clone());
        grad(|x: &Tensor| f.call(x))(&x)
    };
    let w = Tensor::from(2.0);
    let error = catch(|| grad(slope)(&w)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gradient, "{error}");
    let text = error.to_string();
    assert!(text.starts_with("scaled: its rule depends on a tensor that is being"), "{text}");
    // In forward mode it is seen.
    assert_eq!(jvp(slope, &w, &Tensor::from(1.0)).1.item::<f64>(), 1.0);
    // Detached, it is a constant.
    let f = scaled(w.clone(), w.clone());
    assert_eq!(grad(|x: &Tensor| f.call(x))(&x).item::<f64>(), 2.0);
}
