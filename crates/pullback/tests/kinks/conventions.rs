//! Derivatives at kinks, as agreed.

use super::*;

/// The derivative of `f` at `x`: the same in reverse mode, in forward mode and compiled.
#[track_caller]
fn slope(f: &dyn Fn(&Tensor) -> Tensor, x: f64) -> f64 {
    let x = Tensor::from(x);
    let reverse = grad(f)(&x).item::<f64>();
    let forward = jvp(f, &x, &Tensor::from(1.0)).1.item::<f64>();
    let compiled = jit(grad(f)).call(&x).unwrap().item::<f64>();
    let many = vmap(grad(f), 0, 0)(&x.unsqueeze(0)).to_vec::<f64>()[0];
    let same = |y: f64| y == reverse || (y.is_nan() && reverse.is_nan());
    assert!(
        [forward, compiled, many].into_iter().all(same),
        "{reverse} {forward} {compiled} {many}"
    );
    reverse
}

/// `f` is flat, or a straight line, on both sides of `x`. Its derivative there must be `part` of
/// the way from the slope on the left to that on the right, and the second derivative of its square
/// must be made of it.
#[track_caller]
fn is_between(name: &str, c: Conventions, f: &dyn Fn(&Tensor) -> Tensor, x: f64, part: f64) {
    let at = |x: f64| f(&Tensor::from(x)).item::<f64>();
    let h = 1.0 / 1024.0;
    let (left, right) = ((at(x) - at(x - h)) / h, (at(x + h) - at(x)) / h);
    assert!((left - right).abs() > 0.1, "{name} has no kink at {x}");
    with_conventions(&c, || {
        assert_eq!(at(x), f(&Tensor::from(x)).item::<f64>());
        let found = slope(f, x);
        let wanted = left + part * (right - left);
        assert!((found - wanted).abs() < 2e-3, "{name} at {x}: {found}, not {wanted}");
        let second = hessian(|x: &Tensor| f(x).square().sum())(&Tensor::from([x])).item::<f64>();
        let straight = 2.0 * found * found;
        assert!(name == "hardswish" || (second - straight).abs() < 1e-9, "{name}: {second}");
    });
}

#[test]
fn every_convention_is_a_slope_between_the_sides() {
    let c = Conventions::pullback;
    for s in [0.0, 0.25, 0.5, 1.0] {
        is_between("relu", c().relu(s), &Tensor::relu, 0.0, s);
        is_between("abs", c().abs(2.0 * s - 1.0), &Tensor::abs, 0.0, s);
    }
    for (at, part) in [(AtZero::Below, 0.0), (AtZero::Above, 1.0)] {
        is_between("leaky_relu", c().leaky_relu(at), &|x| x.leaky_relu(0.25), 0.0, part);
        let weight = Tensor::from(0.25);
        is_between("prelu", c().leaky_relu(at), &move |x| x.prelu(&weight), 0.0, part);
    }
    for (at, inside) in [(AtBound::Inside, 1.0), (AtBound::Half, 0.5), (AtBound::Outside, 0.0)] {
        let outside = 1.0 - inside;
        is_between("clamp", c().clamp(at), &|x| x.clamp(1.0, 2.0), 1.0, inside);
        is_between("clamp", c().clamp(at), &|x| x.clamp(1.0, 2.0), 2.0, outside);
        is_between("clamp_min", c().clamp(at), &|x| x.clamp_min(Tensor::from(1.0)), 1.0, inside);
        is_between("clamp_max", c().clamp(at), &|x| x.clamp_max(Tensor::from(1.0)), 1.0, outside);
        is_between("hardtanh", c().hardtanh(at), &|x| x.hardtanh(1.0, 2.0), 1.0, inside);
        is_between("hardtanh", c().hardtanh(at), &|x| x.hardtanh(1.0, 2.0), 2.0, outside);
        is_between("relu6", c().relu6(at), &Tensor::relu6, 0.0, inside);
        is_between("relu6", c().relu6(at), &Tensor::relu6, 6.0, outside);
        is_between("hardsigmoid", c().relu6(at), &Tensor::hardsigmoid, -3.0, inside);
        is_between("hardsigmoid", c().relu6(at), &Tensor::hardsigmoid, 3.0, outside);
        is_between("hardswish", c().relu6(at), &Tensor::hardswish, -3.0, inside);
        is_between("hardswish", c().relu6(at), &Tensor::hardswish, 3.0, outside);
    }
    let two = Tensor::from(2.0);
    for (at, first) in [(AtTie::Half, 0.5), (AtTie::First, 1.0), (AtTie::Second, 0.0)] {
        let second = 1.0 - first;
        is_between("maximum", c().maximum(at), &|x| x.maximum(&two), 2.0, first);
        is_between("maximum", c().maximum(at), &|x| two.maximum(x), 2.0, second);
        is_between("minimum", c().maximum(at), &|x| x.minimum(&two), 2.0, second);
        is_between("minimum", c().maximum(at), &|x| two.minimum(x), 2.0, first);
    }
}

#[test]
fn bounds_that_are_tensors_get_the_rest() {
    for (at, to_bound) in [(AtBound::Inside, 0.0), (AtBound::Half, 0.5), (AtBound::Outside, 1.0)] {
        let (x, low) = (Tensor::from(1.0), leaf(&[1.0]));
        let c = Conventions::pullback().clamp(at);
        with_conventions(&c, || x.clamp_min(&low)).sum().backward().unwrap();
        assert_eq!(low.grad().unwrap().to_vec::<f64>(), [to_bound]);
    }
}

#[test]
fn ties_over_axes_go_to_all_or_to_the_first() {
    let first = Conventions::pullback().max(AtTies::First);
    let x = Tensor::from([[1.0, 3.0, 3.0], [3.0, 2.0, 2.0]]);
    let slopes = |f: &dyn Fn(&Tensor) -> Tensor| {
        let f = |x: &Tensor| f(x).sum();
        let g = grad(f)(&x).to_vec::<f64>();
        assert_eq!(jit(grad(f)).call(&x).unwrap().to_vec::<f64>(), g);
        let basis = |i: usize| {
            let one: Vec<f64> = (0..6).map(|j| f64::from(u8::from(i == j))).collect();
            jvp(f, &x, &Tensor::from_vec(one, [2, 3])).1.item::<f64>()
        };
        assert_eq!((0..6).map(basis).collect::<Vec<_>>(), g);
        g
    };
    let third = 1.0 / 3.0;
    assert_eq!(slopes(&|x| x.max_over(1)), [0.0, 0.5, 0.5, 1.0, 0.0, 0.0]);
    assert_eq!(slopes(&Tensor::max), [0.0, third, third, third, 0.0, 0.0]);
    with_conventions(&first, || {
        assert_eq!(slopes(&|x| x.max_over(1)), [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(slopes(&|x| x.max_over(0)), [0.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
        assert_eq!(slopes(&|x| x.min_over(1)), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!(slopes(&Tensor::max), [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(x.max_keep([0, 1]).shape(), [1, 1]);
        assert_eq!(Tensor::from([1, 5, 5]).max().item::<i32>(), 5);
        let error = catch(|| Tensor::zeros([0]).max()).unwrap_err().to_string();
        assert!(error.starts_with("max"), "{error}");
    });
}

#[test]
fn norms_at_the_origin_have_a_derivative_or_none() {
    let zeros = Tensor::from([0.0, 0.0]);
    let slopes = |f: fn(&Tensor) -> Tensor| grad(f)(&zeros).to_vec::<f64>();
    let hypot: fn(&Tensor) -> Tensor = |x| x.at(0).hypot(&x.at(1));
    assert_eq!(slopes(Tensor::norm), [0.0, 0.0]);
    assert_eq!(slopes(hypot), [0.0, 0.0]);
    with_conventions(&Conventions::pullback().norm(AtOrigin::Nan), || {
        assert!(slopes(Tensor::norm).iter().all(|g| g.is_nan()));
        assert!(slopes(Tensor::std).iter().all(|g| g.is_nan()));
        assert!(slopes(|x| x.vector_norm(2.0, 0)).iter().all(|g| g.is_nan()));
        assert_eq!(slopes(hypot), [0.0, 0.0]);
        assert_eq!(grad(Tensor::norm)(&Tensor::from([0.0, -4.0])).to_vec::<f64>(), [0.0, -1.0]);
    });
    with_conventions(&Conventions::pullback().hypot(AtOrigin::Nan), || {
        assert!(slopes(hypot).iter().all(|g| g.is_nan()));
        assert_eq!(slopes(Tensor::norm), [0.0, 0.0]);
    });
}

#[test]
fn conventions_change_no_value() {
    let values = [-INF, -6.0, -3.0, -1.0, -0.0, 0.0, 5e-324, 0.3, 1.0, 3.0, 6.0, 1.7e308, INF, NAN];
    let x = Tensor::from(values);
    let swapped = x.flip(0);
    let all: [&dyn Fn() -> Tensor; 14] = [
        &|| x.relu(),
        &|| x.abs(),
        &|| x.abs().recip(),
        &|| x.leaky_relu(0.1),
        &|| x.clamp(-3.0, 1.0),
        &|| x.clamp(-INF, INF),
        &|| x.hardtanh(-1.0, 1.0),
        &|| x.hardtanh(-INF, INF),
        &|| x.relu6(),
        &|| x.hardsigmoid(),
        &|| x.hardswish(),
        &|| x.maximum(&swapped),
        &|| x.minimum(&x),
        &|| x.narrow(0, 0, 13).max_keep(0),
    ];
    let extreme = Conventions::pullback()
        .relu(1.0)
        .abs(-1.0)
        .leaky_relu(AtZero::Above)
        .clamp(AtBound::Outside)
        .hardtanh(AtBound::Inside)
        .relu6(AtBound::Inside)
        .maximum(AtTie::Second)
        .max(AtTies::First)
        .norm(AtOrigin::Nan);
    for (i, f) in all.iter().enumerate() {
        let plain = f().to_vec::<f64>();
        let conventions =
            [extreme, extreme.abs(1.0), Conventions::jax(), Conventions::tensorflow()];
        for c in conventions {
            let other = with_conventions(&c, f).to_vec::<f64>();
            let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
            assert!(plain.iter().zip(&other).all(same), "{i}: {plain:?} {other:?}");
        }
    }
}

#[test]
fn the_conventions_of_the_forward_pass_hold_wherever_backward_runs() {
    let one = Conventions::pullback().relu(1.0);
    let x = leaf(&[0.0, 2.0]);
    with_conventions(&one, || x.relu().sum()).backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [1.0, 1.0]);
    x.zero_grad();
    let y = x.relu().sum();
    with_conventions(&one, || y.backward().unwrap());
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [0.0, 1.0]);
    // In place, and inside a scope that goes back to the default.
    x.zero_grad();
    let y = with_conventions(&one, || {
        let y = &x * 1.0;
        y.relu_();
        y.sum() + with_conventions(&Conventions::default(), || x.relu().sum())
    });
    y.backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [1.0, 2.0]);
    // What a checkpointed function computes again is what it computed.
    x.zero_grad();
    let y = with_conventions(&one, || checkpoint(|x: &Tensor| x.relu().exp().sum(), &x));
    y.backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [1.0, 2.0f64.exp()]);
}

#[test]
fn compiled_functions_are_compiled_for_their_conventions() {
    let one = Conventions::pullback().relu(1.0);
    let f = jit(grad(|x: &Tensor| x.relu().sum()));
    let x = Tensor::from([0.0, 2.0]);
    let call = || f.call(&x).unwrap().to_vec::<f64>();
    assert_eq!(call(), [0.0, 1.0]);
    assert_eq!(with_conventions(&one, call), [1.0, 1.0]);
    assert_eq!(call(), [0.0, 1.0]);
    let specialisations = f.explain().specialisations;
    assert_eq!(specialisations.len(), 2);
    assert!(specialisations[1].why.contains("conventions"), "{}", specialisations[1].why);
    // Loops and branches inside, where the derivative is that of a body.
    let sum =
        |x: &Tensor| scan(|s: &Tensor, x: &Tensor| (s + x.relu(), ()), &Tensor::from(0.0), x).0;
    let either = |x: &Tensor| cond(&x.sum().gt(0.0), |x| x.relu().sum(), |x| x.sum(), x);
    let fs: [(&str, Formula); 2] = [("scan", &sum), ("cond", &either)];
    for (name, f) in fs {
        let slopes = || jit(grad(f)).call(&x).unwrap().to_vec::<f64>();
        assert_eq!(slopes(), [0.0, 1.0], "{name}");
        assert_eq!(with_conventions(&one, slopes), [1.0, 1.0], "{name}");
        let many = || vmap(grad(f), 0, 0)(&x.unsqueeze(0)).to_vec::<f64>();
        assert_eq!(many(), [0.0, 1.0], "{name}");
        assert_eq!(with_conventions(&one, many), [1.0, 1.0], "{name}");
    }
}

#[test]
fn presets_are_what_frameworks_do() {
    let of = |c: Conventions, f: &dyn Fn(&Tensor) -> Tensor, x: f64| {
        with_conventions(&c, || slope(f, x))
    };
    let one = Tensor::from(1.0);
    let probes: [(Formula, f64, [f64; 4]); 9] = [
        (&Tensor::relu, 0.0, [0.0, 0.0, 0.0, 0.0]),
        (&Tensor::abs, 0.0, [0.0, 0.0, 1.0, 0.0]),
        (&|x| x.leaky_relu(0.25), 0.0, [0.25, 0.25, 1.0, 0.25]),
        (&|x| x.clamp(0.0, 1.0), 1.0, [1.0, 0.0, 0.5, 1.0]),
        (&|x| x.hardtanh(-1.0, 1.0), 1.0, [0.0, 0.0, 1.0, 0.0]),
        (&Tensor::relu6, 6.0, [0.0, 0.0, 0.0, 0.0]),
        (&|x| x.maximum(&one), 1.0, [0.5, 0.5, 0.5, 1.0]),
        (&|x| x.unsqueeze(0).norm(), 0.0, [0.0, 0.0, NAN, NAN]),
        (&|x| x.hypot(&Tensor::from(0.0)), 0.0, [0.0, NAN, 0.0, 0.0]),
    ];
    let presets = [
        Conventions::pullback(),
        Conventions::torch(),
        Conventions::jax(),
        Conventions::tensorflow(),
    ];
    for (i, (f, x, wanted)) in probes.into_iter().enumerate() {
        let found = presets.map(|c| of(c, f, x));
        let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
        assert!(found.iter().zip(&wanted).all(same), "{i}: {found:?}");
    }
    // The report names what was taken.
    let x = leaf(&[0.0]);
    let (_, report) = with_conventions(&Conventions::jax(), || kink_report(|| x.clamp_min(0.0)));
    assert_eq!(only(&report), ("clamp_min", 1, 1));
    assert_eq!(report.kinks[0].convention, "½, and ½ to the bound");
    let c = Conventions::pullback().relu(0.5);
    let (_, report) = with_conventions(&c, || kink_report(|| x.relu()));
    assert_eq!(only(&report), ("relu", 1, 1));
    assert_eq!(report.kinks[0].convention, "0.5");
    let error = catch(|| Conventions::pullback().relu(2.0)).unwrap_err().to_string();
    assert!(
        error.contains("2 is not a slope of `relu` at 0: it must be between 0 and 1"),
        "{error}"
    );
    assert!(catch(|| Conventions::pullback().abs(NAN)).is_err());
}
