//! Writes near tensors that a body captures: what is made of one is its own, what is a view of one
//! may not be written to, and what a branch or a loop gave may be.

use pullback::{ErrorKind, Result, Tensor, catch, cond, grad, jit, linalg, scan, vmap, while_loop};

type Call = (&'static str, fn(&Tensor) -> Tensor);

/// A function of one example in every kind of body, and what it gives for 1 and 2.
fn in_bodies(f: impl Fn(&Tensor) -> Tensor) -> Vec<(&'static str, Result<Vec<f64>>)> {
    let x = Tensor::from([1.0, 2.0]);
    let one = |i: isize, g: &dyn Fn(&Tensor) -> Tensor| g(&x.select_at(0, i)).to_f64_vec();
    let branch = |x: &Tensor| cond(&x.sum().gt(0.0), &f, |x: &Tensor| f(x) * 2.0, x);
    let iteration = |s: &Tensor, x: &Tensor| (s + 1.0, f(x));
    let both = |g: &dyn Fn(&Tensor) -> Tensor| [one(0, g), one(1, g)].concat();
    vec![
        ("vmap", catch(|| vmap(&f, 0, 0)(&x).to_f64_vec())),
        ("jit of cond", catch(|| both(&|x: &Tensor| jit(branch).of(x)))),
        (
            "jit of scan",
            catch(|| {
                jit(|x: &Tensor| scan(iteration, &Tensor::from(0.0), x).1).of(&x).to_f64_vec()
            }),
        ),
    ]
}

/// What shares no memory with its operand (DESIGN.md) does not do so either where the operand is
/// from outside of a body: `repeat`, `repeat_each` and `tile` gave the variable that stands for it,
/// and a write changed what later lines saw of it.
#[test]
fn what_is_made_of_a_captured_tensor_is_its_own() {
    let calls: [Call; 12] = [
        ("repeat", |w| w.repeat([1])),
        ("repeat, twice", |w| w.repeat([2])),
        ("repeat_each", |w| w.repeat_each(1, 0)),
        ("tile", |w| w.tile([1])),
        ("roll", |w| w.roll(1, 0)),
        ("diff", |w| w.diff(0, 0)),
        ("powi", |w| w.powi(1)),
        ("prod", |w| w.prod_over(0)),
        ("cumprod", |w| w.cumprod(0)),
        ("sum_to_shape", |w| w.sum_to_shape([1])),
        ("logsumexp", |w| w.logsumexp_over(0)),
        ("einsum", |w| pullback::einsum("i->i", &[w])),
    ];
    for (name, call) in calls {
        let w = Tensor::from([3.0]);
        let f = |x: &Tensor| {
            let y = call(&w);
            y.mul_(2.0);
            (y * x.sum() + &w).sum()
        };
        let x = Tensor::from([1.0, 2.0]);
        let wanted = [f(&x.select_at(0, 0)), f(&x.select_at(0, 1))].map(|y| y.item::<f64>());
        for (way, got) in in_bodies(f) {
            assert_eq!(
                got.unwrap_or_else(|e| panic!("{name}, {way}: {e}")),
                wanted,
                "{name}, {way}"
            );
        }
        assert_eq!(w.to_vec::<f64>(), [3.0], "{name}");
    }
}

/// A view of a tensor from outside is refused as the tensor itself is: the write went to the body's
/// variable, and the tensor outside stayed as it was.
#[test]
fn a_view_of_a_captured_tensor_is_not_written_to_in_a_body() {
    let views: [Call; 5] = [
        ("itself", |w| w.clone()),
        ("reshape", |w| w.reshape([1, 1])),
        ("narrow", |w| w.narrow(0, 0, 1)),
        ("flip", |w| w.flip(0)),
        ("a view of a view", |w| w.unsqueeze(0).t()),
    ];
    for (name, view) in views {
        let w = Tensor::from([3.0]);
        let f = |x: &Tensor| {
            let y = view(&w);
            y.mul_(2.0);
            (y * x.sum() + &w).sum()
        };
        for (way, got) in in_bodies(f) {
            let error = got.expect_err(&format!("{name}, {way}"));
            assert_eq!(error.kind(), ErrorKind::InPlace, "{name}, {way}: {error}");
            let text = error.to_string();
            assert!(
                text.contains("a captured tensor is written in place"),
                "{name}, {way}: {text}"
            );
        }
        assert_eq!(w.to_vec::<f64>(), [3.0], "{name}");
    }
}

/// Backward runs a branch and a loop again from their operands, so their results may be written
/// over; `det` has a branch inside.
#[test]
fn what_a_branch_or_a_loop_gave_is_written_over() {
    let branch = |x: &Tensor| {
        let y = cond(&x.sum().gt(0.0), |x: &Tensor| x.sin(), |x: &Tensor| x.cos(), x);
        y.mul_(x);
        y.sum()
    };
    let loops = |x: &Tensor| {
        let start = (Tensor::from(0i64), x.clone());
        let y = while_loop(|s| s.0.lt(3), |s| (&s.0 + 1, s.1.sin()), &start).1;
        y.mul_(x);
        y.sum()
    };
    let determinant = |x: &Tensor| {
        let y = linalg::det(&(x.reshape([1, 1]) * Tensor::from([[1.0, 0.5], [0.25, 1.0]])));
        y.add_(&y);
        y
    };
    let x = Tensor::from([0.5]);
    for (name, f) in [
        ("cond", &branch as &dyn Fn(&Tensor) -> Tensor),
        ("while_loop", &loops),
        ("det", &determinant),
    ] {
        let wanted = grad(f)(&x).item::<f64>();
        let (up, down) = (f(&(&x + 1e-6)).item::<f64>(), f(&(&x - 1e-6)).item::<f64>());
        assert!((wanted - (up - down) / 2e-6).abs() < 1e-6, "{name}: {wanted}");
        assert!((jit(grad(f)).of(&x).item::<f64>() - wanted).abs() < 1e-12, "{name}");
        let batch = vmap(grad(f), 0, 0)(&x.reshape([1, 1]));
        assert!((batch.item::<f64>() - wanted).abs() < 1e-12, "{name}");
    }
}
