//! Writes in place inside bodies, differentiated outside: right, or refused.

use pullback::{Tensor, catch, grad, jit, jvp, no_grad, scan, vmap};

fn near(a: &Tensor, b: &Tensor) {
    let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
    assert_eq!(a.len(), b.len());
    for (x, y) in a.iter().zip(&b) {
        assert!((x - y).abs() <= 1e-10 * (1.0 + y.abs()), "{a:?} instead of {b:?}");
    }
}

fn rows() -> Tensor {
    Tensor::from([[0.3, -0.7, 1.1], [0.9, 0.4, -1.3]])
}

/// x·sin x, in place and not.
fn written(x: &Tensor) -> Tensor {
    let y = x * 1.0;
    y.mul_(x.sin());
    y.sum()
}

fn plain(x: &Tensor) -> Tensor {
    (x * x.sin()).sum()
}

#[test]
fn a_gradient_inside_a_body_is_differentiated_outside() {
    let b = rows();
    let second =
        |f: fn(&Tensor) -> Tensor| grad(move |b: &Tensor| vmap(grad(f), 0, 0)(b).sum())(&b);
    near(&second(written), &second(plain));
    let along = |f: fn(&Tensor) -> Tensor| jvp(vmap(grad(f), 0, 0), &b, &b.ones_like()).1;
    near(&along(written), &along(plain));
    let looped = |f: fn(&Tensor) -> Tensor| {
        let loss = move |b: &Tensor| {
            let iteration = |s: &Tensor, x: &Tensor| (s + grad(f)(x), ());
            scan(iteration, &b.select_at(0, 0).zeros_like(), b).0.square().sum()
        };
        jit(grad(loss)).of(&b)
    };
    near(&looped(written), &looped(plain));
}

#[test]
fn a_value_written_with_itself() {
    type F = fn(&Tensor) -> Tensor;
    let pairs: [(F, F); 3] = [
        (
            |x| {
                let y = x * 2.0;
                y.maximum_(&y).sum()
            },
            |x| (x * 2.0).sum(),
        ),
        (
            |x| {
                let y = x * 2.0;
                y.minimum_(&y).sum()
            },
            |x| (x * 2.0).sum(),
        ),
        (
            |x| {
                let y = x * 2.0;
                y.mul_(&y).sum()
            },
            |x| (x * 2.0).square().sum(),
        ),
    ];
    for (written, plain) in pairs {
        let outside = |f: F| grad(move |b: &Tensor| vmap(f, 0, 0)(b).sum())(&rows());
        near(&outside(written), &outside(plain));
    }
}

#[test]
fn a_value_of_a_body_is_not_written_inside_no_grad() {
    let f = |x: &Tensor| {
        let y = x * 2.0;
        no_grad(|| y.mul_(3.0));
        (&y * x).sum()
    };
    // Eagerly refused where x is differentiated, and a body cannot know that.
    let eager = catch(|| grad(f)(&rows())).unwrap_err().to_string();
    assert!(eager.contains("a tracked value is written in place inside no_grad"), "{eager}");
    let body = catch(|| vmap(f, 0, 0)(&rows())).unwrap_err().to_string();
    assert!(body.contains("a value of the body") && body.contains("bodies/inplace.rs"), "{body}");
    // What cannot be differentiated may be written: constants, and what was cut.
    let g = |x: &Tensor| {
        let (count, seen) = (Tensor::from([1.0, 2.0, 3.0]).deep_clone(), x.detach().deep_clone());
        no_grad(|| (count.add_(1.0), seen.mul_(&count)));
        (&seen * x).sum()
    };
    let each = grad(|b: &Tensor| vmap(g, 0, 0)(b).sum())(&rows());
    near(&each, &(rows() * Tensor::from([2.0, 3.0, 4.0])));
}

/// A view whose value was cut by something else than `no_grad` follows what becomes of its root.
#[test]
fn views_of_constants_follow_their_root() {
    let w = Tensor::from([1.5, 2.5]).requires_grad();
    let y = w.floor();
    let v = y.narrow(0, 0, 1);
    y.mul_(&w);
    v.sum().backward().unwrap();
    assert_eq!(w.grad().unwrap().to_vec::<f64>(), [1.0, 0.0]);
    // The same in forward mode, where the root was dual from the start.
    let (c, x) = (Tensor::from([1.5, 2.5]).requires_grad(), Tensor::from([3.0, 4.0]));
    let f = |x: &Tensor| {
        let y = c.floor() * x;
        let v = y.narrow(0, 0, 1);
        y.mul_(2.0);
        v.sum()
    };
    assert_eq!(jvp(f, &x, &x.ones_like()).1.item::<f64>(), 2.0);
}

/// A view that is out of date is brought up to date as it was made, wherever that happens.
#[test]
fn a_view_looked_at_inside_no_grad_stays_tracked() {
    let x = Tensor::from([1.0, 2.0]).requires_grad();
    let y = &x * 1.0;
    let v = y.narrow(0, 0, 1);
    y.mul_(3.0);
    assert_eq!(no_grad(|| v.sum()).item::<f64>(), 3.0);
    v.sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [3.0, 0.0]);
}

#[test]
fn put_inside_no_grad_in_a_body() {
    let f = |x: &Tensor| no_grad(|| x.put(|x| x.narrow(0, 0, 1), &Tensor::from([5.0]))) * x;
    let eager =
        grad(|x: &Tensor| f(&x.select_at(0, 0)).sum() + f(&x.select_at(0, 1)).sum())(&rows());
    near(&grad(|b: &Tensor| vmap(f, 0, 0)(b).sum())(&rows()), &eager);
}

/// What was cut off a value shares its memory, so it shows what is written to it: in a body, where
/// it is a variable of its own, too.
#[test]
fn what_is_cut_off_a_value_follows_it() {
    type F = fn(&Tensor) -> Tensor;
    let all: [F; 4] = [
        |x| {
            let y = x * 1.0;
            let d = y.detach();
            y.mul_(2.0);
            (&d * &y).sum()
        },
        |x| {
            let y = x * 1.0;
            let v = no_grad(|| y.narrow(0, 1, 2));
            y.mul_(3.0);
            (&v * &v + y.narrow(0, 0, 2)).sum()
        },
        |x| {
            let y = x * 1.0;
            let part = y.detach().narrow(0, 0, 1).detach();
            let before = &part * 1.0;
            y.narrow(0, 0, 2).add_(x.narrow(0, 1, 2));
            (&part * &before * x).sum()
        },
        |x| {
            let y = x * 1.0;
            let d = y.stop_gradient();
            grad(|p: &Tensor| (p * &d).sum())(&y) * y.add_(1.0) + &d
        },
    ];
    let row = |i: isize| rows().select_at(0, i);
    for f in all {
        let values = vmap(f, 0, 0)(&rows());
        near(&values.select_at(0, 0), &f(&row(0)));
        near(&values.select_at(0, 1), &f(&row(1)));
        let slopes = grad(|b: &Tensor| vmap(f, 0, 0)(b).sum())(&rows());
        near(&slopes.select_at(0, 0), &grad(|x: &Tensor| f(x).sum())(&row(0)));
        let along = |i| jvp(f, &row(i), &row(i).ones_like()).1;
        let all = jvp(vmap(f, 0, 0), &rows(), &rows().ones_like()).1;
        near(&all.select_at(0, 1), &along(1));
    }
}
