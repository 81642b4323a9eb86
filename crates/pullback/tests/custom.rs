//! Functions with derivatives of their own, in eager code.

use pullback::{
    CustomVjp, DType, Tensor, catch, custom_jvp, custom_vjp, grad, hessian, jvp, no_grad, vjp,
};
use std::sync::Arc;

/// sin, whose residual is neither argument nor result.
fn sine() -> CustomVjp<Tensor, Tensor, Tensor> {
    custom_vjp("sine", |x: &Tensor| (x.sin(), x.cos()), |c: &Tensor, dy: &Tensor| dy * c)
}

fn near(a: &Tensor, b: &[f64]) {
    let a = a.to_f64_vec();
    assert_eq!(a.len(), b.len());
    for (x, y) in a.iter().zip(b) {
        assert!((x - y).abs() <= 1e-10 * y.abs().max(1.0), "{a:?} is not {b:?}");
    }
}

#[test]
fn gradients_of_every_order() {
    let f = sine();
    let f = |x: &Tensor| f.call(x);
    let x = Tensor::from(0.7);
    near(&f(&x), &[0.7f64.sin()]);
    near(&grad(f)(&x), &[0.7f64.cos()]);
    near(&grad(grad(f))(&x), &[-(0.7f64.sin())]);
    near(&grad(grad(grad(f)))(&x), &[-(0.7f64.cos())]);
}

#[test]
fn backward_of_a_leaf() {
    let f = sine();
    let x = Tensor::from([0.1, 0.2]).requires_grad();
    (f.call(&x) * Tensor::from([1.0, 3.0])).sum().backward().unwrap();
    near(&x.grad().unwrap(), &[0.1f64.cos(), 3.0 * 0.2f64.cos()]);
}

#[test]
fn the_modes_nest() {
    let f = sine();
    let f = |x: &Tensor| f.call(x);
    let (x, one) = (Tensor::from(0.7), Tensor::from(1.0));
    let along = |g: &dyn Fn(&Tensor) -> Tensor| jvp(|x: &Tensor| g(x), &x, &one).1;
    near(&along(&f), &[0.7f64.cos()]);
    near(&along(&grad(f)), &[-(0.7f64.sin())]);
    near(&grad(|x: &Tensor| jvp(f, x, &one).1)(&x), &[-(0.7f64.sin())]);
    near(&along(&|x| jvp(f, x, &one).1), &[-(0.7f64.sin())]);
}

#[test]
fn a_linear_map_gives_both_modes() {
    // y = A(x)·x, with A not symmetric, so that a transpose shows.
    let a = Tensor::from([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]]);
    let (b, c) = (a.clone(), a.clone());
    let f = custom_jvp(
        "product",
        move |x: &Tensor| b.matmul(x).square(),
        move |x: &Tensor, t: &Tensor| 2.0 * c.matmul(x) * c.matmul(t),
    );
    let plain = |x: &Tensor| a.matmul(x).square();
    let (x, t, dy) =
        (Tensor::from([0.3, -0.4]), Tensor::from([1.0, 2.0]), Tensor::from([1.0, -1.0, 0.5]));
    let own = |x: &Tensor| f.call(x);
    near(&jvp(own, &x, &t).1, &jvp(plain, &x, &t).1.to_f64_vec());
    near(&vjp(own, &x).1(&dy), &vjp(plain, &x).1(&dy).to_f64_vec());
    let weighted = |g: &dyn Fn(&Tensor) -> Tensor, x: &Tensor| (g(x) * &dy).sum();
    let expected = hessian(|x: &Tensor| weighted(&plain, x))(&x);
    near(&hessian(|x: &Tensor| weighted(&own, x))(&x), &expected.to_f64_vec());
}

#[test]
fn several_arguments_and_results_some_of_them_integers() {
    // Takes rows of a table, and their sum.
    let f = custom_vjp(
        "rows",
        |(table, index): &(Tensor, Tensor)| {
            let rows = table.index_select(0, index);
            ((rows.clone(), rows.sum()), (table.shape()[0], index.clone(), rows))
        },
        |(n, index, rows): &(usize, Tensor, Tensor), (dy, ds): &(Tensor, Tensor)| {
            let each = dy + ds.expand(rows.shape());
            let zeros = Tensor::zeros_with([*n, rows.shape()[1]], rows.dtype());
            (zeros.index_add(0, index, &each), index.zeros_like())
        },
    );
    let plain = |(table, index): &(Tensor, Tensor)| {
        let rows = table.index_select(0, index);
        (rows.square() * rows.sum()).sum()
    };
    let own = |x: &(Tensor, Tensor)| {
        let (rows, sum) = f.call(x);
        (rows.square() * sum).sum()
    };
    let x = (Tensor::from([[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]]), Tensor::from([2i64, 0, 2]));
    near(&grad(own)(&x).0, &grad(plain)(&x).0.to_f64_vec());
    assert_eq!(grad(own)(&x).1.dtype(), DType::I64);
    let over = |g: &dyn Fn(&(Tensor, Tensor)) -> Tensor| {
        grad(|t: &Tensor| {
            grad(|x: &(Tensor, Tensor)| g(x))(&(t.clone(), x.1.clone())).0.square().sum()
        })(&x.0)
    };
    near(&over(&own), &over(&plain).to_f64_vec());
    let t = (Tensor::from([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), x.1.zeros_like());
    near(&jvp(own, &x, &t).1, &jvp(plain, &x, &t).1.to_f64_vec());
}

#[test]
fn scalars_empty_tensors_and_narrow_floats() {
    let f = sine();
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64] {
        for shape in [&[][..], &[0][..], &[2, 0][..], &[3][..]] {
            let x = Tensor::full(shape, 0.5).cast(dtype);
            let g = grad(|x: &Tensor| f.call(x).sum())(&x);
            assert_eq!(g.spec(), x.spec());
            assert!(g.to_f64_vec().iter().all(|g| (g - 0.5f64.cos()).abs() < 1e-2));
        }
    }
}

#[test]
fn one_inside_another() {
    let (inner, deeper) = (Arc::new(sine()), Arc::new(sine()));
    let (i, d) = (inner.clone(), deeper.clone());
    // sin(x)², its derivative written with a custom function again.
    let f = custom_vjp(
        "sine_squared",
        move |x: &Tensor| (i.call(x).square(), x.clone()),
        move |x: &Tensor, dy: &Tensor| dy * d.call(&(x * 2.0)),
    );
    let f = |x: &Tensor| f.call(x);
    let x = Tensor::from(0.3);
    near(&grad(f)(&x), &[0.6f64.sin()]);
    near(&grad(grad(f))(&x), &[2.0 * 0.6f64.cos()]);
    near(&grad(grad(grad(f)))(&x), &[-4.0 * 0.6f64.sin()]);
}

#[test]
fn a_captured_tensor_that_is_tracked_is_refused() {
    let w = Tensor::from(2.0).requires_grad();
    let v = w.clone();
    let f = custom_vjp("scaled", move |x: &Tensor| (x * &v, ()), |_: &(), dy: &Tensor| dy * 2.0);
    let error = catch(|| f.call(&Tensor::from(3.0))).unwrap_err().to_string();
    assert!(
        error.contains("not among its arguments") && error.contains("pass it as an argument"),
        "{error}"
    );
    assert!(error.contains("scaled") && error.contains("custom.rs"), "{error}");
    // Not where nothing is differentiated, nor where it is meant to be a constant.
    assert_eq!(no_grad(|| f.call(&Tensor::from(3.0))).item::<f64>(), 6.0);
    let v = w.clone();
    let f = custom_vjp(
        "scaled",
        move |x: &Tensor| (x * v.detach(), ()),
        |_: &(), dy: &Tensor| dy * 2.0,
    );
    assert_eq!(grad(|x: &Tensor| f.call(x))(&Tensor::from(3.0)).item::<f64>(), 2.0);
    // Forward mode sees through the same hole.
    let error = catch(|| {
        jvp(
            |w: &Tensor| {
                let w = w.clone();
                let f = custom_vjp(
                    "held",
                    move |x: &Tensor| (x * &w, ()),
                    |_: &(), dy: &Tensor| dy * 2.0,
                )
                .unchecked("refused before that matters");
                f.call(&Tensor::from(3.0))
            },
            &Tensor::from(2.0),
            &Tensor::from(1.0),
        )
    });
    assert!(error.unwrap_err().to_string().contains("not among its arguments"));
}

#[test]
fn a_backward_of_wrong_specs_is_refused() {
    let f = custom_vjp("summed", |x: &Tensor| (x.sum(), ()), |_: &(), dy: &Tensor| dy.clone());
    let error = catch(|| f.call(&Tensor::from([1.0, 2.0]))).unwrap_err().to_string();
    assert!(
        error.contains("summed: its backward gave f64[] for argument 0, which is f64[2]"),
        "{error}"
    );
    let f = custom_vjp(
        "halves",
        |x: &Vec<Tensor>| (&x[0] + &x[1], ()),
        |_: &(), dy: &Tensor| vec![dy.clone()],
    );
    let error = catch(|| f.call(&vec![Tensor::from(1.0), Tensor::from(2.0)])).unwrap_err();
    assert!(error.to_string().contains("gave 1 tensors for 2 arguments"), "{error}");
    let f = custom_jvp("wide", |x: &Tensor| x.clone(), |_: &Tensor, t: &Tensor| t.sum());
    let error = catch(|| f.call(&Tensor::from([1.0, 2.0]))).unwrap_err().to_string();
    assert!(error.contains("its jvp gave f64[] for result 0, which is f64[2]"), "{error}");
}

#[test]
fn results_do_not_share_memory_with_arguments() {
    let f = custom_vjp("same", |x: &Tensor| (x.clone(), ()), |_: &(), dy: &Tensor| dy.clone());
    let x = Tensor::from([1.0, 2.0]);
    let y = f.call(&x);
    y.add_(1.0);
    assert_eq!((x.to_vec::<f64>(), y.to_vec::<f64>()), (vec![1.0, 2.0], vec![2.0, 3.0]));
    // Nor is what the function returned given a history that is not its own.
    let held = Tensor::from([5.0, 5.0]);
    let v = held.clone();
    let f = custom_vjp(
        "other",
        move |x: &Tensor| (v.clone() + x * 0.0, v.clone()),
        |_: &Tensor, dy: &Tensor| dy * 0.0,
    );
    let x = x.requires_grad();
    assert!(f.call(&x).is_tracked());
    assert!(!held.is_tracked());
}

#[test]
fn a_residual_that_was_overwritten_is_noticed() {
    let f = custom_vjp(
        "squared",
        |x: &Tensor| (x.square(), x.clone()),
        |x: &Tensor, dy: &Tensor| 2.0 * x * dy,
    );
    let leaf = Tensor::from([1.0, 2.0]).requires_grad();
    let x = &leaf * 1.0;
    let y = f.call(&x);
    no_grad(|| x.detach().add_(1.0));
    let error = y.sum().backward().unwrap_err().to_string();
    assert!(
        error.contains("backward of `squared` needs its input, but it was overwritten"),
        "{error}"
    );
}
