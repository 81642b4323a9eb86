//! What else holds where a solver is called: conventions and counts of kinks, autocast, and tensors
//! that its function only reaches on the way.

use super::*;
use pullback::{
    Conventions, autocast, checkpoint, custom_jvp, custom_vjp, kink_report, strict_kinks,
    with_conventions,
};

fn one_at_zero() -> Conventions {
    Conventions::pullback().relu(1.0)
}

/// a + relu(x)/2, whose fixed point for a = 0 sits on the kink.
fn bent(a: &Tensor, x: &Tensor) -> Tensor {
    a + x.relu() * 0.5
}

fn bent_point(a: &Tensor) -> Tensor {
    fixed_point(bent, a, &Tensor::from(-1.0))
}

fn bent_root(a: &Tensor) -> Tensor {
    root(|a: &Tensor, x: &Tensor| x + x.relu() - a, a, &Tensor::from(-1.0))
}

#[test]
fn conventions_reach_the_function() {
    let (zero, one) = (Tensor::from(0.0), one_at_zero());
    type Function = fn(&Tensor) -> Tensor;
    for (f, agreed) in [(bent_point as Function, 2.0), (bent_root, 0.5)] {
        near(&grad(f)(&zero), &Tensor::from(1.0), 1e-12);
        let agreed = Tensor::from(agreed);
        near(&with_conventions(&one, || grad(f)(&zero)), &agreed, 1e-12);
        near(&with_conventions(&one, || jit(grad(f)).of(&zero)), &agreed, 1e-12);
        let row = zero.unsqueeze(0);
        near(&with_conventions(&one, || vmap(grad(f), 0, 0)(&row)), &agreed.unsqueeze(0), 1e-12);
        near(&with_conventions(&one, || jvp(f, &zero, &Tensor::from(1.0)).1), &agreed, 1e-12);
        // Also where backward comes after the scope.
        let a = Tensor::from(0.0).requires_grad();
        with_conventions(&one, || f(&a)).backward().unwrap();
        near(&a.grad().unwrap(), &agreed, 1e-12);
    }
    // dy/dt = relu(y) + a from y = 0 stays there for a = 0, and moves with a as e − 1, or as 1.
    let flow = |a: &Tensor| {
        let f = |_: &Tensor, y: &Tensor, a: &Tensor| y.relu() + a;
        ode(f, &Tensor::from(0.0), &Tensor::from([0.0, 1.0]), a).at(1)
    };
    near(&grad(flow)(&zero), &Tensor::from(1.0), 1e-6);
    let agreed = with_conventions(&one, || grad(flow)(&zero));
    near(&agreed, &Tensor::from(1f64.exp() - 1.0), 1e-6);
}

#[test]
fn conventions_reach_custom_rules() {
    let (x, one) = (Tensor::from([0.0, 1.0]), one_at_zero());
    // A residual that is computed, and differentiated at second order.
    let residual = || {
        let forward = |x: &Tensor| {
            let r = x.relu();
            ((&r * x).sum(), r)
        };
        custom_vjp("kept", forward, |r: &Tensor, dy: &Tensor| r * 2.0 * dy).unchecked("a kink")
    };
    // A rule that has a kink itself.
    let reverse = || {
        let backward = |x: &Tensor, dy: &Tensor| x.relu() * 2.0 * dy;
        custom_vjp("own", |x: &Tensor| ((x.relu() * x).sum(), x.clone()), backward)
            .unchecked("a kink")
    };
    let forward = || {
        let jvp = |x: &Tensor, t: &Tensor| (x.relu() * 2.0 * t).sum();
        custom_jvp("along", |x: &Tensor| (x.relu() * x).sum(), jvp).unchecked("a kink")
    };
    type Function = Arc<dyn Fn(&Tensor) -> Tensor + Send + Sync>;
    let made: [Function; 3] = [
        Arc::new({
            let c = residual();
            move |x| c.call(x)
        }),
        Arc::new({
            let c = reverse();
            move |x| c.call(x)
        }),
        Arc::new({
            let c = forward();
            move |x| c.call(x)
        }),
    ];
    for f in made {
        let twice = move |x: &Tensor| grad(|x: &Tensor| grad(|x: &Tensor| f(x))(x).sum())(x);
        near(&twice(&x), &Tensor::from([0.0, 2.0]), 0.0);
        near(&with_conventions(&one, || twice(&x)), &Tensor::from([2.0, 2.0]), 0.0);
        near(&with_conventions(&one, || jit(twice).of(&x)), &Tensor::from([2.0, 2.0]), 0.0);
    }
}

#[test]
fn kinks_count_at_the_solution() {
    let zero = Tensor::from(0.0);
    type Function = fn(&Tensor) -> Tensor;
    for f in [bent_point as Function, bent_root] {
        let (_, report) = kink_report(|| grad(f)(&zero));
        assert_eq!((report.kinks[0].op, report.elements()), ("relu", 1), "{report}");
        assert_eq!(kink_report(|| jit(grad(f)).of(&zero)).1.elements(), 1);
        let (_, report) = kink_report(|| vmap(grad(f), 0, 0)(&Tensor::from([0.0, 1.0])));
        assert_eq!(report.elements(), 1, "{report}");
        fails_with(|| strict_kinks(|| grad(f)(&zero)), &["relu: 1 of 1 elements are at a kink"]);
        // Inside a checkpoint as well, which runs again as it ran before.
        let a = Tensor::from(0.0).requires_grad();
        let (y, report) = kink_report(|| checkpoint(f, &a));
        assert_eq!(report.elements(), 1, "{report}");
        y.backward().unwrap();
        near(&a.grad().unwrap(), &Tensor::from(1.0), 1e-12);
        // Where nothing is differentiated, or the solution is beside the kink, there is none.
        assert_eq!(kink_report(|| f(&zero)).1.elements(), 0);
        assert_eq!(kink_report(|| grad(f)(&Tensor::from(1.0))).1.elements(), 0);
    }
    // The way leads over the kink, to a solution beside it.
    let f = |a: &Tensor| root(|a: &Tensor, x: &Tensor| x + x.relu() - a, a, &Tensor::from(0.0));
    strict_kinks(|| near(&grad(f)(&Tensor::from(1.0)), &Tensor::from(0.5), 1e-12));
    // Of an equation at the times that are given.
    let flow = |a: &Tensor| {
        let f = |_: &Tensor, y: &Tensor, a: &Tensor| a * y.relu();
        ode(f, &Tensor::from(0.0), &Tensor::from([0.0, 1.0]), a).at(1)
    };
    assert_eq!(kink_report(|| grad(flow)(&Tensor::from(0.5))).1.elements(), 2);
    // The solver has kinks of its own, which are not counted.
    let smooth = |_: &Tensor, y: &Tensor, a: &Tensor| a * y;
    for options in [Ode::new(), Ode::new().discrete()] {
        let flow = move |a: &Tensor| {
            options.of(smooth, &Tensor::from(0.0), &Tensor::from([0.0, 1.0]), a).at(1)
        };
        near(&strict_kinks(|| grad(flow)(&Tensor::from(0.5))), &zero, 0.0);
    }
}

#[test]
fn tensors_that_are_reached_on_the_way_are_refused() {
    let w = Tensor::from(0.5).requires_grad();
    let words = &["not among its arguments"][..];
    let held = w.clone();
    let late = move |_: &(), x: &Tensor| match x.item::<f64>() > 0.3 {
        true => (x * &held).cos(),
        false => x.cos(),
    };
    fails_with(|| fixed_point(late.clone(), &(), &Tensor::from(0.0)), words);
    let difference = move |_: &(), x: &Tensor| late(&(), x) - x;
    fails_with(|| root(difference.clone(), &(), &Tensor::from(0.0)), words);
    // Between the times as well as at them.
    for (from, to) in [(0.5, 2.0), (0.2, 0.5)] {
        let held = w.clone();
        let f = move |t: &Tensor, y: &Tensor, _: &()| match (from..to).contains(&t.item::<f64>()) {
            true => y * &held,
            false => y * 0.1,
        };
        let times = Tensor::from([0.0, 1.0]);
        fails_with(|| ode(f.clone(), &Tensor::from(1.0), &times, &()), words);
        no_grad(|| ode(f.clone(), &Tensor::from(1.0), &times, &()));
    }
}

#[test]
fn solvers_inside_autocast() {
    let w = Key::new(2).normal([3, 3], DType::F32, 0.0, 0.3);
    let (zeros, ones) = (Tensor::zeros([3]), Tensor::ones([3]));
    type Loss = Arc<dyn Fn(&Tensor) -> Tensor + Send + Sync>;
    let (b, y0) = (ones.clone(), ones.clone());
    let guess = zeros.clone();
    let step = |w: &Tensor, x: &Tensor| w.matmul(x).tanh() + 0.1;
    let losses: [Loss; 4] = [
        Arc::new(move |w| FixedPoint::new().anderson(2).of(step, w, &guess).sum()),
        Arc::new(move |w| root(move |w: &Tensor, x: &Tensor| step(w, x) - x, w, &zeros).sum()),
        Arc::new(move |w| {
            let gmres = LinearSolve::new().method(LinearMethod::Gmres);
            gmres.of(|w: &Tensor, x: &Tensor| w.matmul(x) + x * 2.0, w, &b).sum()
        }),
        Arc::new(move |w| ode(spiral, &y0, &Tensor::from([0f32, 1.0]), w).sum()),
    ];
    for loss in losses {
        let plain = grad(|w: &Tensor| loss(w))(&w);
        let cast = autocast(DType::BF16, || grad(|w: &Tensor| loss(w))(&w));
        assert_eq!(cast.dtype(), DType::F32);
        near(&cast, &plain, 1e-6);
        let held = loss.clone();
        let compiled =
            jit(move |w: &Tensor| autocast(DType::BF16, || grad(|w: &Tensor| held(w))(w)));
        near(&compiled.of(&w), &plain, 1e-4);
    }
}

#[test]
fn a_residual_keeps_the_dtype_of_its_call() {
    let x = Key::new(1).normal([2, 3], DType::F32, 0.0, 1.0);
    let w = Key::new(2).normal([4, 3], DType::F32, 0.0, 1.0);
    let square = custom_vjp(
        "square of a product",
        |(x, w): &(Tensor, Tensor)| {
            let h = x.linear(w, None);
            (h.cast(DType::F32).square(), (x.clone(), w.clone(), h))
        },
        |(x, w, h): &(Tensor, Tensor, Tensor), dy: &Tensor| {
            let dh = dy * h.cast(dy.dtype()) * 2.0;
            (dh.matmul(w), dh.t().matmul(x))
        },
    )
    .unchecked("f16 is too narrow for differences");
    let square = move |w: &Tensor| square.call(&(x.clone(), w.clone())).sum();
    let penalty = |w: &Tensor| grad(&square)(w).square().sum();
    let wide = grad(penalty)(&w);
    let narrow = grad(|w: &Tensor| autocast(DType::F16, || penalty(w)))(&w);
    let size = wide.abs().max().item::<f32>();
    near(&(narrow / size), &(wide / size), 1e-2);
}

#[test]
fn functions_that_are_not_linear_give_nan_inside_programs() {
    let affine = |c: &Tensor, b: &Tensor| linear_solve(|c: &Tensor, x: &Tensor| x * 2.0 + c, c, b);
    let (c, b) = (Tensor::from([1.0, 1.0]), Tensor::from([4.0, 4.0]));
    let compiled = jit(move |(c, b): &(Tensor, Tensor)| affine(c, b));
    assert!(compiled.of(&(c.clone(), b.clone())).to_f64_vec().iter().all(|x| x.is_nan()));
    // A constant of zero leaves it linear.
    near(&compiled.of(&(c.zeros_like(), b.clone())), &Tensor::from([2.0, 2.0]), 1e-12);
    let each = vmap(|c: &Tensor| affine(c, &b), 0, 0)(&Tensor::from([[1.0, 1.0], [0.0, 0.0]]));
    assert!(each.at(0).to_f64_vec().iter().all(|x| x.is_nan()));
    near(&each.at(1), &Tensor::from([2.0, 2.0]), 1e-12);
}
