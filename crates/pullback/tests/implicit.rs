//! Fixed points, roots, linear systems and differential equations: their values, and derivatives of
//! their solutions.

#[path = "implicit/equations.rs"]
mod equations;
#[path = "implicit/modes.rs"]
mod modes;

use equations::spiral;
use pullback::check::Check;
use pullback::{
    DType, FixedPoint, Key, LinearMethod, LinearSolve, Ode, Pack, Packed, Result, Root, SavedValue,
    Tensor, Tree, catch, fixed_point, grad, hessian, jacobian, jit, jvp, linalg, linear_solve,
    no_grad, ode, root, vjp, vmap, with_packing,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[track_caller]
fn near(a: &impl Tree, b: &impl Tree, tolerance: f64) {
    let all = |x: &dyn Fn() -> Vec<Tensor>| x().iter().flat_map(Tensor::to_f64_vec).collect();
    let (a, b): (Vec<f64>, Vec<f64>) = (all(&|| a.leaves()), all(&|| b.leaves()));
    assert_eq!(a.len(), b.len(), "{a:?} is not {b:?}");
    for (x, y) in a.iter().zip(&b) {
        assert!((x - y).abs() <= tolerance * y.abs().max(1.0), "{a:?} is not {b:?}");
    }
}

#[track_caller]
fn fails_with<R>(f: impl FnOnce() -> R, words: &[&str]) {
    let Err(error) = catch(f) else { panic!("{words:?} was not raised") };
    let text = error.to_string();
    for words in words.iter().chain(&["tests/implicit"]) {
        assert!(text.contains(words), "{words:?} is not in: {text}");
    }
}

/// A matrix that is neither symmetric nor near singular; symmetric and positive definite, if asked.
fn matrix(n: usize, symmetric: bool) -> Tensor {
    let a = Key::new(n as u64).normal([n, n], DType::F64, 0.0, 1.0) * (0.4 / (n as f64).sqrt());
    let eye = Tensor::eye_with(n, n, DType::F64);
    if symmetric { (&a + a.t()) * 0.5 + eye * 1.5 } else { a + eye * 1.2 }
}

const METHODS: [LinearMethod; 5] = [
    LinearMethod::Auto,
    LinearMethod::Dense,
    LinearMethod::Cg,
    LinearMethod::BiCgStab,
    LinearMethod::Gmres,
];

fn product(a: &Tensor, x: &Tensor) -> Tensor {
    a.matmul(x)
}

#[test]
fn linear_systems_by_every_method() {
    for method in METHODS {
        let a = matrix(5, method == LinearMethod::Cg);
        let b = Tensor::from([1.0, -2.0, 0.5, 3.0, 1.5]);
        let solver = LinearSolve::new().method(method).tolerance(1e-13);
        near(&solver.of(product, &a, &b), &linalg::solve(&a, &b), 1e-10);
        // The matrix of CG must stay symmetric, also where differences are taken.
        let sym = move |a: &Tensor| match method == LinearMethod::Cg {
            true => (a + a.t()) * 0.5,
            false => a.clone(),
        };
        let solve = move |(a, b): &(Tensor, Tensor)| solver.of(product, &sym(a), b);
        let report = Check::new().order(2).tolerance(1e-5, 1e-6).run(solve, &(a, b)).unwrap();
        assert!(report.compared > 100, "{report:?}");
    }
}

#[test]
fn large_and_narrow_linear_systems() {
    // 300 unknowns are more than the dense method takes.
    let (a, n) = (matrix(300, false), 300);
    let b = Key::new(1).normal([n], DType::F64, 0.0, 1.0);
    near(&linear_solve(product, &a, &b), &linalg::solve(&a, &b), 1e-8);
    let loss = |(a, b): &(Tensor, Tensor)| linear_solve(product, a, b).square().sum();
    let plain = |(a, b): &(Tensor, Tensor)| linalg::solve(a, b).square().sum();
    let at = (a.clone(), b.clone());
    near(&grad(loss)(&at), &grad(plain)(&at), 1e-6);
    for method in [LinearMethod::BiCgStab, LinearMethod::Gmres, LinearMethod::Dense] {
        let (a, b) = (a.cast(DType::F32), b.cast(DType::F32));
        let x = LinearSolve::new().method(method).of(product, &a, &b);
        assert_eq!(x.dtype(), DType::F32);
        near(&x, &linalg::solve(&a, &b), 1e-3);
    }
    // A right side of zero has the solution zero, by every method.
    for method in METHODS {
        let x = LinearSolve::new().method(method).of(
            product,
            &matrix(4, true),
            &Tensor::zeros_with([4], DType::F64),
        );
        near(&x, &vec![Tensor::zeros_with([4], DType::F64)], 0.0);
    }
    // An operator that needs restarts: a shift, for which one cycle of 30 is not enough.
    let shift = |k: &Tensor, x: &Tensor| x - k * x.pad([(1, 0)]).narrow(0, 0, 64);
    let b = Tensor::full([64], 1.0);
    let solver = LinearSolve::new().method(LinearMethod::Gmres);
    let x = solver.of(shift, &Tensor::from(0.9), &b);
    near(&shift(&Tensor::from(0.9), &x), &b, 1e-9);
}

#[test]
fn linear_systems_of_trees() {
    // Unknowns (u, v) with a·u + v = b₁, u − c·v = b₂, for each of three and a number.
    let apply = |(a, c): &(Tensor, Vec<Tensor>), (u, v): &(Tensor, Tensor)| {
        (a * u + v, u.mean() - &c[0] * v)
    };
    let theta = (Tensor::from([[2.0, 3.0], [4.0, 2.5]]), vec![Tensor::from(1.5)]);
    let b = (Tensor::from([[1.0, 2.0], [3.0, -1.0]]), Tensor::from(0.5));
    let x = linear_solve(apply, &theta, &b);
    assert_eq!(x.0.shape(), [2, 2]);
    near(&apply(&theta, &x), &b, 1e-12);
    let solve =
        |(theta, b): &((Tensor, Vec<Tensor>), (Tensor, Tensor))| linear_solve(apply, theta, b);
    Check::new().order(2).tolerance(1e-5, 1e-7).run(solve, &(theta, b)).unwrap();
}

#[test]
fn linear_systems_that_cannot_be_solved() {
    let b = Tensor::from([1.0, 1.0]);
    let singular = Tensor::from([[1.0, 2.0], [2.0, 4.0]]);
    fails_with(
        || linear_solve(product, &singular, &b),
        &["linear_solve", "singular", "2 unknowns"],
    );
    for method in [LinearMethod::Gmres, LinearMethod::BiCgStab] {
        let solver = LinearSolve::new().method(method).max_products(200);
        fails_with(
            || solver.of(product, &singular, &b),
            &["linear_solve", "did not solve", "residual"],
        );
    }
    let indefinite = Tensor::from([[1.0, 0.0], [0.0, -1.0]]);
    let cg = LinearSolve::new().method(LinearMethod::Cg);
    fails_with(|| cg.of(product, &indefinite, &b), &["conjugate gradients did not solve"]);
    fails_with(
        || linear_solve(|_: &(), x: &Tensor| x.sum(), &(), &b),
        &["linear_solve", "gives (f64[]) for unknowns (f64[2])"],
    );
    fails_with(
        || linear_solve(|_: &(), x: &Tensor| x.clone(), &(), &Tensor::from([1i64])),
        &["f32, or of f64"],
    );
    fails_with(
        || linear_solve(|_: &(), x: &Tensor| x * 2.0 + 1.0, &(), &b),
        &["linear_solve: the function is not linear"],
    );
    fails_with(
        || linear_solve(|_: &(), x: &Tensor| x.abs() * 2.0, &(), &b),
        &["linear_solve: the function is not linear"],
    );
    // A mistake inside the function is at its own line.
    let line = line!() + 1;
    let wrong = |_: &(), x: &Tensor| x + Tensor::zeros([7]);
    fails_with(|| linear_solve(wrong, &(), &b), &[&format!("implicit.rs:{line}:")]);
    fails_with(|| root(wrong, &(), &b), &[&format!("implicit.rs:{line}:")]);
    fails_with(
        || {
            ode(
                move |_: &Tensor, y: &Tensor, _: &()| wrong(&(), y),
                &b,
                &Tensor::from([0.0, 1.0]),
                &(),
            )
        },
        &[&format!("implicit.rs:{line}:")],
    );
    // Inside a program: NaN.
    let solve = jit(|(a, b): &(Tensor, Tensor)| linear_solve(product, a, b));
    assert!(solve.of(&(singular.clone(), b.clone())).to_f64_vec().iter().all(|x| x.is_nan()));
    let gmres = jit(|(a, b): &(Tensor, Tensor)| {
        LinearSolve::new().method(LinearMethod::Gmres).max_products(50).of(product, a, b)
    });
    assert!(gmres.of(&(singular, b.clone())).to_f64_vec().iter().all(|x| x.is_nan()));
    // A cotangent that overflowed gives gradients that show it, and no error.
    let (_, pullback) = vjp(|b: &Tensor| linear_solve(product, &matrix(2, false), b), &b);
    assert!(pullback(&Tensor::from([f64::INFINITY, 0.0])).to_f64_vec().iter().any(|x| x.is_nan()));
}

#[test]
fn tracked_tensors_from_outside_are_refused() {
    let w = Tensor::from(2.0).requires_grad();
    let words = &["not among its arguments"][..];
    let one = Tensor::from(1.0);
    let held = w.clone();
    fails_with(|| linear_solve(move |_: &(), x: &Tensor| x * &held, &(), &one), words);
    let held = w.clone();
    fails_with(|| fixed_point(move |_: &(), x: &Tensor| (x * &held).cos() * 0.1, &(), &one), words);
    // Also where the guess is the solution already, so that the tensor moved nothing.
    let held = w.clone();
    fails_with(|| root(move |_: &(), x: &Tensor| x - &held, &(), &Tensor::from(2.0)), words);
    let held = w.clone();
    fails_with(
        || {
            ode(
                move |_: &Tensor, y: &Tensor, _: &()| y * &held,
                &one,
                &Tensor::from([0.0, 1.0]),
                &(),
            )
        },
        words,
    );
    // In forward mode as well.
    let forward = |w: &Tensor| {
        let held = w.clone();
        root(move |_: &(), x: &Tensor| x - &held, &(), &Tensor::from(2.0))
    };
    fails_with(|| jvp(forward, &Tensor::from(2.0), &one), words);
    // And inside a program.
    let held = w.clone();
    let compiled = jit(move |x: &Tensor| {
        let held = held.clone();
        grad(|w: &Tensor| {
            let held = w * &held;
            root(move |_: &(), x: &Tensor| x - &held, &(), &Tensor::from(2.0))
        })(x)
    });
    fails_with(|| compiled.of(&one), words);
    // Constants are no trouble, and where nothing is differentiated nothing is.
    let held = w.detach();
    near(&root(move |_: &(), x: &Tensor| x - &held, &(), &one), &Tensor::from(2.0), 1e-12);
    let held = w.clone();
    near(
        &no_grad(|| root(move |_: &(), x: &Tensor| x - &held, &(), &one)),
        &Tensor::from(2.0),
        1e-12,
    );
}

/// tanh(W·x + b), a contraction.
fn layer((w, b): &(Tensor, Tensor), x: &Tensor) -> Tensor {
    (w.matmul(x) + b).tanh()
}

fn weights() -> (Tensor, Tensor) {
    (Key::new(2).normal([3, 3], DType::F64, 0.0, 0.3), Tensor::from([0.4, -0.3, 0.9]))
}

#[test]
fn fixed_points() {
    let (theta, zero) = (weights(), Tensor::zeros_with([3], DType::F64));
    let plain = fixed_point(layer, &theta, &zero);
    near(&layer(&theta, &plain), &plain, 1e-9);
    for options in [
        FixedPoint::new().damping(0.7),
        FixedPoint::new().anderson(3),
        FixedPoint::new().anderson(4).damping(0.5),
    ] {
        near(&options.of(layer, &theta, &zero), &plain, 1e-8);
    }
    let f32s = (theta.0.cast(DType::F32), theta.1.cast(DType::F32));
    near(&fixed_point(layer, &f32s, &zero.cast(DType::F32)), &plain, 1e-4);
    // Anderson's method finds what plain iteration runs away from.
    let away = |_: &(), x: &Tensor| 3.0 - 2.0 * x;
    near(
        &FixedPoint::new().anderson(2).of(away, &(), &Tensor::from([0.0, 5.0])),
        &Tensor::from([1.0, 1.0]),
        1e-8,
    );
}

#[test]
fn derivatives_of_fixed_points() {
    let (theta, zero) = (weights(), Tensor::zeros_with([3], DType::F64));
    let exact = FixedPoint::new().tolerance(1e-14);
    let tight = LinearSolve::new().tolerance(1e-13);
    for linear in [tight, tight.method(LinearMethod::Gmres), tight.method(LinearMethod::BiCgStab)] {
        let zero = zero.clone();
        let f = move |theta: &(Tensor, Tensor)| exact.linear(linear).of(layer, theta, &zero);
        let report = Check::new().order(2).tolerance(1e-5, 1e-7).run(f, &theta).unwrap();
        assert!(report.compared > 40);
    }
    // The gradient is that of a hundred unrolled steps; the guess has none.
    let unrolled = |theta: &(Tensor, Tensor)| {
        (0..100).fold(zero.clone(), |x, _| layer(theta, &x)).square().sum()
    };
    let own = |theta: &(Tensor, Tensor)| exact.of(layer, theta, &zero).square().sum();
    near(&grad(own)(&theta), &grad(unrolled)(&theta), 1e-10);
    let of_guess = grad(|x: &Tensor| exact.of(layer, &theta, x).sum())(&zero);
    near(&of_guess, &zero, 0.0);
    // With trees, integers among them: rows of a table.
    let f = |(table, rows): &(Tensor, Tensor), (x, y): &(Tensor, Tensor)| {
        let picked = table.index_select(0, rows);
        ((y * 0.5 + &picked).tanh(), (x * 0.3 * picked).sin())
    };
    let theta = (Tensor::from([0.5, -0.2, 0.8]), Tensor::from([2i64, 0]));
    let guess = (Tensor::zeros_with([2], DType::F64), Tensor::zeros_with([2], DType::F64));
    let solve = move |theta: &(Tensor, Tensor)| exact.of(f, theta, &guess);
    Check::new().order(2).tolerance(1e-5, 1e-7).run(solve, &theta).unwrap();
}

/// Counts what is saved for backward.
#[derive(Default)]
struct Count(AtomicUsize);

impl Pack for Count {
    fn pack(&self, _: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }
}

fn saved<R>(f: impl FnOnce() -> R) -> usize {
    let count = Arc::new(Count::default());
    with_packing(count.clone(), f);
    count.0.load(Ordering::Relaxed)
}

#[test]
fn no_step_is_kept() {
    let theta = (Tensor::zeros([4, 4]), Tensor::ones([4]).requires_grad());
    let slow = |(w, b): &(Tensor, Tensor), x: &Tensor| (x + w.matmul(x) + b) * 0.5;
    let solve = |tolerance: f64| {
        saved(|| FixedPoint::new().tolerance(tolerance).of(slow, &theta, &Tensor::zeros([4])))
    };
    // The parameters and the solution, after few iterations and after many.
    assert_eq!((solve(0.3), solve(1e-5)), (solve(0.3), solve(0.3)));
    assert!((1..=5).contains(&solve(1e-5)), "{}", solve(1e-5));
    let a = Tensor::from([[-0.3, 2.0], [-1.5, 0.1]]).requires_grad();
    let (y0, times) = (Tensor::from([1.0, 0.5]), Tensor::from([0.0, 3.0]));
    let solve = |options: Ode| saved(|| options.of(spiral, &y0, &times, &a));
    let (loose, exact) = (Ode::new().rtol(1e-3), Ode::new().rtol(1e-9));
    assert_eq!(solve(loose), solve(exact));
    assert!((1..=5).contains(&solve(exact)), "{}", solve(exact));
    // The steps are what the other way keeps.
    assert!(solve(exact.discrete()) > 2 * solve(loose.discrete()));
}

#[test]
fn fixed_points_that_do_not_exist() {
    let one = Tensor::from(1.0);
    let grows = |_: &(), x: &Tensor| x * 2.0 + 1.0;
    fails_with(
        || FixedPoint::new().max_iterations(20).of(grows, &(), &one),
        &["fixed_point: no fixed point was found: after 20 calls", "anderson"],
    );
    let endless = FixedPoint::new().max_iterations(2000);
    fails_with(|| endless.of(grows, &(), &one), &["no fixed point was found", "NaN"]);
    fails_with(
        || fixed_point(|_: &(), _: &Tensor| Tensor::from([1.0, 2.0]), &(), &one),
        &["fixed_point", "gives (f64[2]) for unknowns (f64[])"],
    );
    fails_with(|| FixedPoint::new().damping(0.0).of(grows, &(), &one), &["damping"]);
    let compiled = jit(|x: &Tensor| {
        FixedPoint::new().max_iterations(20).of(|_: &(), x: &Tensor| x * 2.0 + 1.0, &(), x)
    });
    assert!(compiled.of(&one).item::<f64>().is_nan());
}

#[test]
fn roots() {
    // A circle and a hyperbola.
    let f = |a: &Tensor, x: &Tensor| {
        let (u, v) = (x.at(0), x.at(1));
        pullback::stack(&[&(u.square() + v.square() - a.at(0)), &(&u * &v - a.at(1))], 0)
    };
    let (a, guess) = (Tensor::from([5.0, 2.0]), Tensor::from([2.5, 0.5]));
    near(&root(f, &a, &guess), &Tensor::from([2.0, 1.0]), 1e-12);
    for method in [LinearMethod::Auto, LinearMethod::Gmres, LinearMethod::BiCgStab] {
        let options = Root::new().linear(LinearSolve::new().method(method).tolerance(1e-13));
        let guess = guess.clone();
        let solve = move |a: &Tensor| options.of(f, a, &guess);
        near(&solve(&a), &Tensor::from([2.0, 1.0]), 1e-11);
        Check::new().order(2).tolerance(1e-5, 1e-7).run(solve, &a).unwrap();
    }
    // Steps are shortened where Newton's would run away: atan from 3.
    let arctangent = |a: &Tensor, x: &Tensor| x.atan() - a;
    near(&root(arctangent, &Tensor::from(0.0), &Tensor::from(3.0)), &Tensor::from(0.0), 1e-10);
    near(
        &root(arctangent, &Tensor::from(0.5f32), &Tensor::from(3.0f32)),
        &Tensor::from(0.5f64.tan()),
        1e-5,
    );
    // 300 unknowns, without their Jacobian.
    let b = Tensor::linspace(0.1, 2.0, 300);
    let many = |b: &Tensor, x: &Tensor| x + x.powi(3) * 0.2 + 0.1 * x.mean() - b;
    let x = root(many, &b, &b);
    near(&many(&b, &x), &b.zeros_like(), 1e-9);
    let g = grad(|b: &Tensor| root(many, b, &b.detach()).sum())(&b);
    // Jᵀ·g = 1, with J diagonal and a part of rank 1.
    let back = &g * (1.0 + 0.6 * x.square()) + 0.1 * g.mean();
    near(&back, &b.ones_like(), 1e-8);
}

#[test]
fn roots_that_are_not_found() {
    let never = |_: &(), x: &Tensor| x.square() + 1.0;
    fails_with(
        || root(never, &(), &Tensor::from(0.7)),
        &["root: no root was found: after 50 steps |f(x)| is"],
    );
    // At 0 the Jacobian is singular.
    fails_with(|| root(never, &(), &Tensor::from(0.0)), &["root: no root was found", "singular"]);
    fails_with(
        || root(|_: &(), x: &Tensor| x.sum(), &(), &Tensor::from([1.0, 2.0])),
        &["root", "gives (f64[]) for unknowns (f64[2])"],
    );
}

#[test]
fn solvers_inside_programs() {
    let (theta, zero) = (weights(), Tensor::zeros_with([3], DType::F64));
    let z = zero.clone();
    let fixed = move |theta: &(Tensor, Tensor)| fixed_point(layer, theta, &z).square().sum();
    near(&jit(fixed.clone()).of(&theta), &fixed(&theta), 1e-9);
    near(&jit(grad(fixed.clone())).of(&theta), &grad(&fixed)(&theta), 1e-8);
    let z = zero.clone();
    let faster = move |theta: &(Tensor, Tensor)| {
        FixedPoint::new()
            .anderson(3)
            .linear(LinearSolve::new().method(LinearMethod::Gmres))
            .of(layer, theta, &z)
            .square()
            .sum()
    };
    near(&jit(grad(faster)).of(&theta), &grad(&fixed)(&theta), 1e-7);
    let twice = |f: &dyn Fn(&(Tensor, Tensor)) -> Tensor, theta: &(Tensor, Tensor)| {
        grad(|t: &(Tensor, Tensor)| grad(|t: &(Tensor, Tensor)| f(t))(t).1.square().sum())(theta)
    };
    let f = fixed.clone();
    near(&jit(move |t: &(Tensor, Tensor)| twice(&f, t)).of(&theta), &twice(&fixed, &theta), 1e-7);
    // Many examples at once, each as long as it takes.
    let cube = |a: &Tensor| root(|a: &Tensor, x: &Tensor| x.powi(3) - a, a, &Tensor::from(1.0));
    let a = Tensor::from([8.0, 27.0, 0.125]);
    near(&vmap(cube, 0, 0)(&a), &Tensor::from([2.0, 3.0, 0.5]), 1e-12);
    near(&vmap(grad(cube), 0, 0)(&a), &Tensor::from([1.0 / 12.0, 1.0 / 27.0, 4.0 / 3.0]), 1e-10);
    near(
        &grad(|a: &Tensor| vmap(cube, 0, 0)(a).sum())(&a),
        &Tensor::from([1.0 / 12.0, 1.0 / 27.0, 4.0 / 3.0]),
        1e-10,
    );
    near(
        &jit(vmap(grad(cube), 0, 0)).of(&a),
        &Tensor::from([1.0 / 12.0, 1.0 / 27.0, 4.0 / 3.0]),
        1e-10,
    );
    let a = matrix(4, true);
    let rows = Key::new(7).normal([3, 4], DType::F64, 0.0, 1.0);
    let expected = linalg::solve(&a, &rows.t()).t();
    for method in METHODS {
        let held = a.clone();
        let solve = move |b: &Tensor| LinearSolve::new().method(method).of(product, &held, b);
        near(&vmap(solve, 0, 0)(&rows), &expected, 1e-8);
    }
    // Forward mode of a compiled function.
    let t = (theta.0.ones_like(), theta.1.ones_like());
    let expected = jvp(&fixed, &theta, &t).1;
    let f = fixed.clone();
    near(
        &jit(move |x: &((Tensor, Tensor), (Tensor, Tensor))| jvp(&f, &x.0, &x.1).1).of(&(theta, t)),
        &expected,
        1e-8,
    );
}
