//! `no_grad` cuts what is differentiated outside of it, in both modes and wherever it is.

use pullback::{
    Tensor, catch, checkpoint, cond, enable_grad, grad, jit, jvp, no_grad, scan, trace, vjp, vmap,
    while_loop,
};

pub(crate) type F = fn(&Tensor) -> Tensor;
pub(crate) type Construct = (&'static str, Box<dyn Fn(&Tensor) -> Tensor>);

pub(crate) fn x() -> Tensor {
    Tensor::from([1.0, 2.0, 3.0])
}

/// r² held, times r: the derivative is r², and 3r² without the cut.
fn held(r: &Tensor) -> Tensor {
    no_grad(|| r.square()) * r
}

/// The function elementwise, by every construct there is.
pub(crate) fn everywhere(f: F) -> Vec<Construct> {
    vec![
        ("eager", Box::new(f)),
        ("vmap", Box::new(move |x| vmap(f, 0, 0)(x))),
        (
            "scan",
            Box::new(move |x| {
                scan(|s: &Tensor, x: &Tensor| (s.clone(), f(x)), &Tensor::from(0.0), x).1
            }),
        ),
        (
            "vmap of scan",
            Box::new(move |x| {
                let rows = x.reshape([3, 1]);
                let one = |x: &Tensor| {
                    scan(|s: &Tensor, x: &Tensor| (s.clone(), f(x)), &Tensor::from(0.0), x).1
                };
                vmap(one, 0, 0)(&rows).reshape([3])
            }),
        ),
        (
            "cond",
            Box::new(move |x| vmap(|x: &Tensor| cond(&x.gt(-100.0), f, |x| x * 0.0, x), 0, 0)(x)),
        ),
        (
            "while",
            Box::new(move |x| {
                let iteration = |(i, x): &(Tensor, Tensor)| (i + 1, f(x));
                let one = |x: &Tensor| {
                    while_loop(
                        |(i, _): &(Tensor, Tensor)| i.lt(1),
                        iteration,
                        &(Tensor::from(0i64), x.clone()),
                    )
                    .1
                };
                vmap(one, 0, 0)(x)
            }),
        ),
        ("checkpoint", Box::new(move |x| checkpoint(f, x))),
        ("jit", Box::new(move |x| jit(f).of(x))),
    ]
}

pub(crate) fn all(name: &str, found: &Tensor, wanted: &[f64]) {
    let found = found.to_vec::<f64>();
    let near = found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(near && found.len() == wanted.len(), "{name}: {found:?} instead of {wanted:?}");
}

/// Each derivative of the function, eager and compiled, everywhere.
pub(crate) fn check(f: F, first: [f64; 3], second: [f64; 3]) {
    for (name, g) in everywhere(f) {
        let (g, ones) = (&g, x().ones_like());
        let along = |x: &Tensor| jvp(|x: &Tensor| g(x), x, &x.ones_like()).1;
        let back = |x: &Tensor| grad(|x: &Tensor| g(x).sum())(x);
        type Case<'a> = (&'static str, &'a dyn Fn() -> Tensor, &'a [f64; 3]);
        let cases: [Case; 9] = [
            ("jvp", &|| along(&x()), &first),
            ("grad", &|| back(&x()), &first),
            ("vjp", &|| vjp(|x: &Tensor| g(x), &x()).1(&ones), &first),
            ("grad of jvp", &|| grad(|x: &Tensor| along(x).sum())(&x()), &second),
            ("jvp of grad", &|| jvp(back, &x(), &ones).1, &second),
            ("jvp of jvp", &|| jvp(along, &x(), &ones).1, &second),
            ("jit of jvp", &|| jit(along).of(&x()), &first),
            ("jit of grad", &|| jit(back).of(&x()), &first),
            (
                "jit of jvp of grad",
                &|| jit(|x: &Tensor| jvp(back, x, &x.ones_like()).1).of(&x()),
                &second,
            ),
        ];
        for (order, derivative, wanted) in cases {
            all(&format!("{order} of {name}"), &derivative(), wanted);
        }
    }
}

#[test]
fn both_modes_are_cut_alike() {
    let (_, along) = jvp(|x: &Tensor| held(x).sum(), &x(), &x().ones_like());
    assert_eq!(along.item::<f64>(), 14.0);
    check(held, [1.0, 4.0, 9.0], [0.0, 0.0, 0.0]);
}

#[test]
fn a_derivative_inside_works_and_is_held() {
    // 3r², held, times r².
    let inner: F = |r| no_grad(|| grad(|r: &Tensor| r.powi(3).sum())(r)) * r.square();
    check(inner, [6.0, 48.0, 162.0], [6.0, 24.0, 54.0]);
    let inner: F = |r| no_grad(|| jvp(|r: &Tensor| r.powi(3), r, &r.ones_like()).1) * r.square();
    check(inner, [6.0, 48.0, 162.0], [6.0, 24.0, 54.0]);
    // A cut inside the derivative that is inside the cut.
    let inner: F = |r| no_grad(|| grad(|r: &Tensor| held(r).sum())(r)) * r;
    check(inner, [1.0, 4.0, 9.0], [0.0, 0.0, 0.0]);
    let inner: F = |r| no_grad(|| jvp(held, r, &r.ones_like()).1) * r;
    check(inner, [1.0, 4.0, 9.0], [0.0, 0.0, 0.0]);
    let inner: F = |r| {
        let f = |r: &Tensor| vmap(held, 0, 0)(&r.reshape([1])).sum();
        no_grad(|| grad(f)(r)) * r
    };
    for (name, g) in everywhere(|r| r * 1.0) {
        let found = grad(|x: &Tensor| vmap(inner, 0, 0)(&g(x)).sum())(&x());
        all(name, &found, &[1.0, 4.0, 9.0]);
    }
}

#[test]
fn enable_grad_lifts_the_cut() {
    check(|r| no_grad(|| enable_grad(|| r.square())) * r, [3.0, 12.0, 27.0], [6.0, 12.0, 18.0]);
    check(|r| enable_grad(|| no_grad(|| r.square())) * r, [1.0, 4.0, 9.0], [0.0, 0.0, 0.0]);
    check(|r| no_grad(|| enable_grad(|| held(r))) * r, [2.0, 16.0, 54.0], [2.0, 8.0, 18.0]);
    // Not from inside a body that is replayed in there.
    let f = |x: &Tensor| vmap(|r: &Tensor| enable_grad(|| r.square()), 0, 0)(x);
    let error = catch(|| no_grad(|| f(&x()))).unwrap_err().to_string();
    assert!(error.contains("inside the body of vmap, which was called inside no_grad"), "{error}");
    assert!(error.contains("bodies/no_grad.rs"), "{error}");
}

#[test]
fn views_and_what_passes_as_it_is() {
    check(
        |r| {
            no_grad(|| r.reshape([r.len(), 1]).expand([r.len(), 2])).sum_over(1).reshape(r.shape())
                * r
        },
        [2.0, 4.0, 6.0],
        [0.0; 3],
    );
    // No operation, nothing to cut.
    check(|r| no_grad(|| r.clone()) * r, [2.0, 4.0, 6.0], [2.0; 3]);
    // The view stays a constant when its root is written.
    let f = |x: &Tensor| {
        let y = x * 2.0;
        let v = no_grad(|| y.narrow(0, 0, 2));
        y.mul_(3.0);
        (&v * &v).sum() + y.sum()
    };
    let (value, along) = jvp(f, &x(), &x().ones_like());
    assert_eq!((value.item::<f64>(), along.item::<f64>()), (216.0, 18.0));
    assert_eq!(grad(f)(&x()).to_vec::<f64>(), [6.0; 3]);
}

#[test]
fn a_dual_value_is_not_written_inside() {
    let f = |x: &Tensor| {
        let y = x * 2.0;
        no_grad(|| y.mul_(3.0));
        y
    };
    let error = catch(|| jvp(f, &x(), &x().ones_like())).unwrap_err().to_string();
    assert!(error.contains("forward mode is differentiating is written in place"), "{error}");
    let f = |x: &Tensor| {
        let y = x * 2.0;
        let v = no_grad(|| y.narrow(0, 0, 1));
        v.mul_(3.0);
        y
    };
    let error = catch(|| jvp(f, &x(), &x().ones_like())).unwrap_err().to_string();
    assert!(error.contains("made inside no_grad"), "{error}");
    // Nothing is differentiated here, and there it is only read.
    no_grad(|| f(&x()));
    let state = Tensor::from([0.0; 3]);
    let f = |x: &Tensor| {
        no_grad(|| state.add_(x));
        &state * x
    };
    assert_eq!(jvp(f, &x(), &x().ones_like()).1.to_vec::<f64>(), [1.0, 2.0, 3.0]);
}

#[test]
fn levels_inside_and_outside() {
    // The outer level is cut, the inner one is not.
    let f = |x: &Tensor| no_grad(|| jvp(|r: &Tensor| r.powi(3), x, &x.ones_like()).1) + x;
    assert_eq!(jvp(f, &x(), &x().ones_like()).1.to_vec::<f64>(), [1.0; 3]);
    // What is cut may be captured by a trace, which could not follow its derivative.
    let f = |x: &Tensor| {
        let captured = |y: &[Tensor]| &y[0] * x;
        no_grad(|| trace(captured, &[x.spec().clone()]).unwrap());
        assert!(trace(captured, &[x.spec().clone()]).is_err());
        x.clone()
    };
    jvp(f, &x(), &x().ones_like());
    // A pullback that is called inside.
    let f = |x: &Tensor| {
        let (_, pull) = vjp(|r: &Tensor| r.powi(3), x);
        no_grad(|| pull(&x.ones_like())) * x
    };
    all("pullback, jvp", &jvp(f, &x(), &x().ones_like()).1, &[3.0, 12.0, 27.0]);
    all("pullback, grad", &grad(|x: &Tensor| f(x).sum())(&x()), &[3.0, 12.0, 27.0]);
    // The library's own backward passes without recording cut nothing.
    let g = |x: &Tensor| grad(|r: &Tensor| r.powi(3).sum())(x);
    all("jvp of grad", &jvp(g, &x(), &x().ones_like()).1, &[6.0, 12.0, 18.0]);
}
