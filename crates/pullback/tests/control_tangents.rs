//! Forward mode through loops and branches: what does not move has no tangent, as outside of them.

use pullback::{Tensor, cond, fori_loop, hessian, jit, jvp, scan, stack, vmap, while_loop};

fn near(a: &Tensor, b: &Tensor) {
    let (a, b) = (a.to_vec::<f64>(), b.to_vec::<f64>());
    let same = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12 * (1.0 + b.abs());
    assert!(a.len() == b.len() && a.iter().zip(&b).all(same), "{a:?} instead of {b:?}");
}

/// Compares the derivatives of a function with what they are op by op. The slope of a power by its
/// exponent is NaN where the base is negative: no harm is done as long as the exponent does not
/// move, and a tangent of zeros would move it.
fn check(f: impl Fn(&Tensor) -> Tensor, plain: impl Fn(&Tensor) -> Tensor) {
    let (x, along) = (Tensor::from([-0.7, 0.4, -0.2]), Tensor::from([1.0, -2.0, 0.5]));
    let first = jvp(&plain, &x, &along).1;
    assert!(first.to_vec::<f64>().iter().all(|t| t.is_finite() && *t != 0.0));
    near(&jvp(&f, &x, &along).1, &first);
    near(&jit(|x: &Tensor| jvp(&f, x, &along).1).of(&x), &first);
    let both = stack(&[&x, &(&x * 0.5)], 0);
    let each = vmap(|x: &Tensor| jvp(&f, x, &along).1, 0, 0)(&both);
    near(&each.at(0), &first);
    let second = hessian(|x: &Tensor| plain(x).sin().sum())(&x);
    assert!(second.to_vec::<f64>().iter().all(|t| t.is_finite()));
    near(&hessian(|x: &Tensor| f(x).sin().sum())(&x), &second);
    near(&jit(hessian(|x: &Tensor| f(x).sin().sum())).of(&x), &second);
}

#[test]
fn an_exponent_from_outside() {
    let e = Tensor::from(3.0);
    let plain = |x: &Tensor| (x.pow(&e) + x).pow(&e) + x;
    check(|x| fori_loop(0, 2, |_: &Tensor, s: &Tensor| s.pow(&e) + x, x), plain);
    // Computed in the iteration from what does not move.
    check(|x| fori_loop(0, 2, |_: &Tensor, s: &Tensor| s.pow(&e * 1.0) + x, x), plain);
    let iteration = |x: &Tensor, (i, s): &(Tensor, Tensor)| (i + 1i64, s.pow(&e) + x);
    let more = |s: &(Tensor, Tensor)| s.0.lt(2i64);
    let start = |x: &Tensor| (Tensor::from(0i64), x.clone());
    check(|x| while_loop(more, |s: &(Tensor, Tensor)| iteration(x, s), &start(x)).1, plain);
    let branch = |x: &Tensor| {
        let (yes, no) = (|x: &Tensor| x.pow(&e) + x, |x: &Tensor| x.sin());
        cond(&x.sum().lt(10.0), yes, no, x)
    };
    check(branch, |x| x.pow(&e) + x);
}

#[test]
fn an_exponent_for_each_turn() {
    let rows = Tensor::from([3.0, 2.0]);
    let iteration = |x: &Tensor, s: &Tensor, e: &Tensor| (s.pow(e) + x, e * 2.0);
    let whole = |x: &Tensor| scan(|s: &Tensor, e: &Tensor| iteration(x, s, e), x, &rows).0;
    check(whole, |x| (x.powi(3) + x).square() + x);
}

/// A state that does not move at first, and moves after a iteration; one that never does; one that
/// stops.
#[test]
fn states_that_begin_to_move() {
    let e = Tensor::from(3.0);
    let iteration = |x: &Tensor, (a, b, c, d): &(Tensor, Tensor, Tensor, Tensor)| {
        (a.pow(d) + b, c * 2.0, x * 1.5, d * 1.0)
    };
    let start = |x: &Tensor| (x.clone(), Tensor::zeros_like(x), Tensor::zeros_like(x), e.clone());
    let plain = |x: &Tensor| {
        let mut state = start(x);
        for _ in 0..4 {
            state = iteration(x, &state);
        }
        state.0 + state.1
    };
    let whole = |x: &Tensor| {
        let state = fori_loop(
            0,
            4,
            |_: &Tensor, s: &(Tensor, Tensor, Tensor, Tensor)| iteration(x, s),
            &start(x),
        );
        state.0 + state.1
    };
    check(whole, plain);
}

/// Branches of which only one moves.
#[test]
fn branches_that_do_not_move() {
    let fixed = Tensor::from([1.0, 2.0, 3.0]);
    for limit in [10.0, -10.0] {
        let whole = |x: &Tensor| {
            let (yes, no) = (|x: &Tensor| (x.sin(), x * 1.0), |x: &Tensor| (&fixed * 1.0, x * 1.0));
            let (a, b) = cond(&x.sum().lt(limit), yes, no, x);
            a * x + b
        };
        let plain = |x: &Tensor| if limit > 0.0 { x.sin() * x + x } else { &fixed * x + x };
        check(whole, plain);
    }
}
