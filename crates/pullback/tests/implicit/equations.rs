//! Differential equations.

use super::*;

fn tight() -> Ode {
    Ode::new().rtol(1e-11).atol(1e-12)
}

pub fn spiral(_: &Tensor, y: &Tensor, a: &Tensor) -> Tensor {
    a.matmul(y)
}

#[test]
fn linear_equations_have_exponential_solutions() {
    let a = Tensor::from([[-0.3, 2.0], [-1.5, 0.1]]);
    let y0 = Tensor::from([1.0, 0.5]);
    // Times that lie inside steps, and at their ends; forwards and backwards.
    for times in [vec![0.0, 0.013, 0.5, 0.51, 2.0], vec![1.0, 0.9, -1.0], vec![3.0], vec![5.0, 5.5]]
    {
        let expected = |a: &Tensor| {
            let at = |t: &f64| linalg::matrix_exp(&(a * (t - times[0]))).matmul(&y0);
            let rows: Vec<Tensor> = times.iter().map(at).collect();
            pullback::stack(&rows.iter().collect::<Vec<_>>(), 0)
        };
        let list = Tensor::from(times.clone());
        near(&ode(spiral, &y0, &list, &a), &expected(&a), 1e-5);
        near(&tight().of(spiral, &y0, &list, &a), &expected(&a), 1e-8);
        let w = Key::new(1).normal([times.len(), 2], DType::F64, 0.0, 1.0);
        let own = |a: &Tensor| (tight().of(spiral, &y0, &list, a) * &w).sum();
        let exact = |a: &Tensor| (expected(a) * &w).sum();
        near(&grad(own)(&a), &grad(exact)(&a), 1e-7);
        let discrete = |a: &Tensor| (tight().discrete().of(spiral, &y0, &list, a) * &w).sum();
        near(&grad(discrete)(&a), &grad(exact)(&a), 1e-7);
        let t = Tensor::from([[1.0, 0.5], [-1.0, 2.0]]);
        near(&jvp(own, &a, &t).1, &jvp(exact, &a, &t).1, 1e-7);
        near(&jvp(discrete, &a, &t).1, &jvp(exact, &a, &t).1, 1e-7);
    }
}

#[test]
fn tolerances_are_kept() {
    // A harmonic oscillator for five turns: the error follows the tolerance.
    let f = |_: &Tensor, (q, p): &(Tensor, Tensor), k: &Tensor| (p.clone(), -(k * q));
    let y0 = (Tensor::from(1.0), Tensor::from(0.0));
    let end = 10.0 * std::f64::consts::PI;
    let error = |tolerance: f64| {
        let (q, p) = Ode::new().rtol(tolerance).atol(tolerance).of(
            f,
            &y0,
            &Tensor::from([0.0, end]),
            &Tensor::from(1.0),
        );
        (q.at(1).item::<f64>() - 1.0).abs() + p.at(1).item::<f64>().abs()
    };
    let errors = [1e-4, 1e-6, 1e-8, 1e-10].map(error);
    for (error, bound) in errors.iter().zip([1e-1, 1e-3, 1e-5, 1e-7]) {
        assert!(*error < bound, "{errors:?}");
    }
    assert!(errors[3] < errors[0] / 1e3, "{errors:?}");
    // In f32, with tolerances that it has.
    let narrow = (Tensor::from(1f32), Tensor::from(0f32));
    let (q, _) = Ode::new().rtol(1e-5).atol(1e-6).of(
        f,
        &narrow,
        &Tensor::from([0f32, 3.0]),
        &Tensor::from(1f32),
    );
    assert!((q.at(1).item::<f32>() - 3f32.cos()).abs() < 1e-3);
}

#[test]
fn gradients_of_everything() {
    // A pendulum that is driven: t, θ and the state all matter, and nothing is linear.
    let f = |t: &Tensor, (q, p): &(Tensor, Tensor), (k, c): &(Tensor, Tensor)| {
        (p.clone(), -(k * q.sin()) - c * p + (2.0 * t).cos())
    };
    let y0 = (Tensor::from([0.5, -0.2]), Tensor::from([0.0, 1.0]));
    let theta = (Tensor::from([1.5, 0.7]), Tensor::from(0.2));
    let at = (y0, Tensor::from([0.2, 0.9, 1.5]), theta);
    type Point = ((Tensor, Tensor), Tensor, (Tensor, Tensor));
    let run = move |(y0, times, theta): &Point| tight().of(f, y0, times, theta);
    // To the tolerance of the solver, divided by the step of the differences.
    let report = Check::new().step(1e-3).tolerance(1e-6, 1e-6).run(run, &at).unwrap();
    assert_eq!(report.compared, 20);
    let steps = move |(y0, times, theta): &Point| tight().discrete().of(f, y0, times, theta);
    Check::new().step(1e-3).tolerance(1e-6, 1e-6).run(steps, &at).unwrap();
    // Small cotangents are as exact as large ones: plain tolerances would swallow them.
    let (_, pullback) = vjp(run, &at);
    let y = run(&at);
    let scaled = |s: f64| pullback(&(y.0.ones_like() * s, y.1.ones_like() * s)).2.0 / s;
    near(&scaled(1e-12), &scaled(1.0), 1e-9);
    // One that overflowed is seen in the gradients, and is no error.
    let broken = pullback(&(y.0.ones_like() * f64::INFINITY, y.1.zeros_like()));
    assert!(broken.2.1.item::<f64>().is_nan());
}

#[test]
fn second_derivatives_of_solutions() {
    let growth = |_: &Tensor, y: &Tensor, r: &Tensor| r.at(0) * y * (1.0 - y / r.at(1));
    let times = Tensor::from([0.0, 1.3]);
    let own = |x: &Tensor| tight().of(growth, &x.at(2), &times, &x.narrow(0, 0, 2)).at(1);
    let exact = |x: &Tensor| {
        let (r, k, y) = (x.at(0), x.at(1), x.at(2));
        &k / (1.0 + (&k / &y - 1.0) * (-(r * 1.3)).exp())
    };
    let x = Tensor::from([1.2, 2.0, 0.3]);
    near(&own(&x), &exact(&x), 1e-9);
    near(&grad(own)(&x), &grad(exact)(&x), 1e-8);
    near(&hessian(own)(&x), &hessian(exact)(&x), 1e-6);
    let over = |f: &dyn Fn(&Tensor) -> Tensor| jacobian(grad(|x: &Tensor| f(x)))(&x);
    near(&over(&own), &over(&exact), 1e-6);
}

#[test]
fn equations_inside_programs() {
    let a = Tensor::from([[-0.3, 2.0], [-1.5, 0.1]]);
    let (y0, times) = (Tensor::from([1.0, 0.5]), Tensor::from([0.0, 0.4, 1.0]));
    let loss = |(a, y0, times): &(Tensor, Tensor, Tensor)| ode(spiral, y0, times, a).square().sum();
    let at = (a.clone(), y0.clone(), times.clone());
    near(&jit(loss).of(&at), &loss(&at), 1e-9);
    near(&jit(grad(loss)).of(&at), &grad(loss)(&at), 1e-6);
    let many = Tensor::from([[1.0, 0.5], [-2.0, 3.0], [0.0, 0.1]]);
    let one = |y0: &Tensor| loss(&(a.clone(), y0.clone(), times.clone()));
    let each: Vec<Tensor> = (0..3).map(|i| one(&many.select_at(0, i))).collect();
    near(&vmap(one, 0, 0)(&many), &each, 1e-9);
    let each: Vec<Tensor> = (0..3).map(|i| grad(one)(&many.select_at(0, i))).collect();
    near(&vmap(grad(one), 0, 0)(&many), &each, 1e-6);
    // The steps themselves: how many there are is known only when the program runs.
    let steps = |a: &Tensor| {
        Ode::new()
            .discrete()
            .of(spiral, &Tensor::from([1.0, 0.5]), &Tensor::from([0.0, 1.0]), a)
            .sum()
    };
    near(&jit(grad(steps)).of(&a), &grad(steps)(&a), 1e-9);
    // Times that are out of order cannot be noticed there: the result is NaN.
    let wrong = jit(loss).of(&(a.clone(), y0, Tensor::from([0.0, 1.0, 0.4])));
    assert!(wrong.item::<f64>().is_nan());
}

#[test]
fn solutions_that_cannot_be_followed() {
    let one = Tensor::from(1.0);
    let until = |t: f64| Tensor::from([0.0, t]);
    // y' = y² from 1 is infinite at t = 1.
    let explodes = |_: &Tensor, y: &Tensor, _: &()| y.square();
    fails_with(
        || ode(explodes, &one, &until(2.0), &()),
        &["ode: ", "while integrating to t = 2, steps of", "without bound"],
    );
    let breaks = |t: &Tensor, y: &Tensor, _: &()| y * 0.0 + (0.5 - t).sqrt();
    fails_with(|| ode(breaks, &one, &until(1.0), &()), &["ode: ", "while integrating to t = 1"]);
    // Numbers whose squares overflow are no solutions, and have some.
    let huge = Tensor::from([1e200, -2e200]);
    for method in METHODS {
        let x = LinearSolve::new().method(method).of(|_: &(), x: &Tensor| x * 2.0, &(), &huge);
        near(&(x / 1e200), &Tensor::from([0.5, -1.0]), 1e-9);
    }
    near(
        &(root(|b: &Tensor, x: &Tensor| x * 2.0 - b, &huge, &huge) / 1e200),
        &Tensor::from([0.5, -1.0]),
        1e-9,
    );
    fails_with(
        || ode(|_: &Tensor, y: &Tensor, _: &()| y * f64::NAN, &one, &until(1.0), &()),
        &["not finite at t = 0, while integrating to t = 1"],
    );
    let stiff = |_: &Tensor, y: &Tensor, _: &()| y * -1e6;
    fails_with(
        || Ode::new().max_steps(100).of(stiff, &one, &until(1.0), &()),
        &["100 steps were not enough to reach t = 1", "stiff"],
    );
    fails_with(
        || ode(stiff, &one, &Tensor::from([0.0, 1.0, 0.5]), &()),
        &["must ascend or descend: 1 is followed by 0.5"],
    );
    fails_with(|| ode(stiff, &one, &Tensor::from([0.0, 0.0]), &()), &["must ascend or descend"]);
    fails_with(|| ode(stiff, &one, &Tensor::from([0.0, f64::INFINITY]), &()), &["must be finite"]);
    fails_with(|| ode(stiff, &one, &Tensor::from(0.0), &()), &["a list of at least one"]);
    fails_with(
        || Ode::new().rtol(-1.0).of(stiff, &one, &until(1.0), &()),
        &["tolerances must be positive"],
    );
    fails_with(
        || ode(|_: &Tensor, _: &Tensor, _: &()| Tensor::from([1.0, 2.0]), &one, &until(1.0), &()),
        &["gives (f64[2]) for unknowns (f64[])"],
    );
    // Inside a program: NaN.
    let compiled = jit(move |y: &Tensor| Ode::new().max_steps(100).of(stiff, y, &until(1.0), &()));
    assert!(compiled.of(&one).to_f64_vec().iter().all(|y| y.is_nan()));
}
