//! `vmap` beside a loop over the examples, alone and nested with every other transform.

use pullback::{
    DType, Key, Tensor, cond, fori_loop, grad, hessian, jacobian, jvp, no_grad, scan, stack, trace,
    vjp, vmap, while_loop,
};

fn close(a: &Tensor, b: &Tensor) {
    assert_eq!(a.spec(), b.spec());
    let (a, b) = (a.to_vec::<f64>(), b.to_vec::<f64>());
    for (x, y) in a.iter().zip(&b) {
        assert!((x - y).abs() <= 1e-12 * (1.0 + x.abs()), "{a:?} is not {b:?}");
    }
}

fn looped(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) -> Tensor {
    let parts: Vec<Tensor> = (0..x.shape()[0]).map(|i| f(&x.select_at(0, i as isize))).collect();
    stack(&parts.iter().collect::<Vec<_>>(), 0)
}

fn sample(shape: &[usize], seed: u64) -> Tensor {
    Key::new(seed).normal(shape, DType::F64, 0.0, 1.0)
}

#[test]
fn a_function_on_many_examples_is_the_loop() {
    let w = sample(&[3, 2], 1);
    let f = |x: &Tensor| (x.matmul(&w)).tanh().softmax(-1);
    let x = sample(&[5, 4, 3], 2);
    close(&vmap(f, 0, 0)(&x), &looped(f, &x));
    let turned = x.permute([1, 2, 0]);
    close(&vmap(f, 2, -1)(&turned), &looped(f, &x).permute([1, 2, 0]));
    let pair = |(a, b): &(Tensor, Tensor)| a * b;
    let shared = sample(&[4, 3], 3);
    close(
        &vmap(pair, [Some(0), None], 0)(&(x.clone(), shared.clone())),
        &looped(|x| x * &shared, &x),
    );
    let twice = vmap(vmap(|x: &Tensor| x.cumsum(0), 0, 0), 0, 0)(&x);
    close(&twice, &x.cumsum(2));
}

#[test]
fn derivatives_inside_and_outside() {
    let (w, x) = (sample(&[3], 4), sample(&[6, 3], 5));
    let loss = |w: &Tensor, x: &Tensor| ((w * x).sum().sin() + (w * w).sum()).exp();
    let each = |x: &Tensor| grad(|w: &Tensor| loss(w, x))(&w);
    close(&vmap(each, 0, 0)(&x), &looped(each, &x));
    // A gradient of per-example gradients, through the weights that all share.
    let outer = |w: &Tensor| {
        let each = vmap(|x: &Tensor| grad(|w: &Tensor| loss(w, x))(w), 0, 0)(&x);
        each.square().sum()
    };
    let outer_loop = |w: &Tensor| looped(|x| grad(|w: &Tensor| loss(w, x))(w), &x).square().sum();
    close(&grad(outer)(&w), &grad(outer_loop)(&w));
    let direction = sample(&[3], 6);
    close(&jvp(outer, &w, &direction).1, &jvp(outer_loop, &w, &direction).1);
    let push = |x: &Tensor| jvp(|w: &Tensor| loss(w, x), &w, &direction).1;
    close(&vmap(push, 0, 0)(&x), &looped(push, &x));
    let second = |x: &Tensor| hessian(|w: &Tensor| loss(w, x))(&w);
    close(&vmap(second, 0, 0)(&x), &looped(second, &x));
    close(&hessian(outer)(&w), &hessian(outer_loop)(&w));
    close(&jacobian(|w: &Tensor| vmap(|x: &Tensor| loss(w, x), 0, 0)(&x))(&w), &looped(each, &x));
    let (_, pullback) = vjp(|x: &Tensor| vmap(|x: &Tensor| loss(&w, x), 0, 0)(x), &x);
    close(
        &pullback(&Tensor::ones_with([6], DType::F64)),
        &looped(|x| grad(|x: &Tensor| loss(&w, x))(x), &x),
    );
}

#[test]
fn control_flow_of_many_examples() {
    let x = Tensor::from([0.5, 3.0, 10.0, -1.0]);
    let f = |x: &Tensor| cond(&x.gt(1.0), |x| x.sqrt(), |x| x * 3.0, x);
    close(&vmap(f, 0, 0)(&x), &looped(f, &x));
    let f = |x: &Tensor| while_loop(|x: &Tensor| x.lt(20.0), |x| x * 2.0 + 1.5, x);
    close(&vmap(f, 0, 0)(&x), &looped(f, &x));
    let f = |x: &Tensor| {
        fori_loop(0, 3, |i, s: &Tensor| s * x + i.cast(DType::F64), &Tensor::from(1.0))
    };
    close(&vmap(f, 0, 0)(&x), &looped(f, &x));
    let rows = sample(&[4, 5], 7);
    let f =
        |r: &Tensor| scan(|s: &Tensor, x: &Tensor| (s.sin() * x, s + x), &Tensor::from(1.0), r).1;
    close(&vmap(f, 0, 0)(&rows), &looped(f, &rows));
    let g = |r: &Tensor| grad(|r: &Tensor| f(r).square().sum())(r);
    close(&vmap(g, 0, 0)(&rows), &looped(g, &rows));
}

#[test]
fn random_numbers() {
    let key = Key::new(3);
    let x = Tensor::zeros_with([4], DType::F64);
    let same = vmap(|x: &Tensor| x + key.normal([2], DType::F64, 0.0, 1.0), 0, 0)(&x);
    close(&same.select_at(0, 0), &same.select_at(0, 3));
    let keys: Vec<Tensor> = key.split_n(4).iter().map(|k| k.tensor().clone()).collect();
    let keys = stack(&keys.iter().collect::<Vec<_>>(), 0);
    let draw = |k: &Tensor| Key::from_tensor(k).normal([2], DType::F64, 0.0, 1.0);
    close(&vmap(draw, 0, 0)(&keys), &looped(draw, &keys));
    let fresh = vmap(|x: &Tensor| x + Tensor::randn_with([2], DType::F64), 0, 0)(&x);
    assert_ne!(fresh.select_at(0, 0).to_vec::<f64>(), fresh.select_at(0, 1).to_vec::<f64>());
}

#[test]
fn what_cannot_be_is_refused() {
    let x = sample(&[3, 2], 8);
    let refused = |f: &dyn Fn() -> Tensor, word: &str| {
        let error = pullback::catch(f).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("tests/vmap.rs"), "{error}");
    };
    refused(&|| vmap(|x: &Tensor| x * x.sum().item::<f64>(), 0, 0)(&x), "cond");
    refused(&|| vmap(|x: &Tensor| x.exp(), 2, 0)(&x), "out of range");
    refused(&|| vmap(|x: &Tensor| x.exp(), 0, 2)(&x), "out of range");
    refused(
        &|| vmap(|(a, b): &(Tensor, Tensor)| a + b, 0, 0)(&(x.clone(), sample(&[4, 2], 9))),
        "3 and 4 examples",
    );
    let outside = Tensor::zeros_with([2], DType::F64);
    refused(&|| vmap(|x: &Tensor| no_grad(|| outside.add_(x)), 0, 0)(&x), "captured");
}

#[test]
fn inside_a_trace_it_is_recorded() {
    let program = trace(
        |x: &[Tensor]| vmap(|x: &Tensor| grad(|x: &Tensor| x.sin().sum())(x), 0, 0)(&x[0]),
        &[pullback::Spec::cpu(DType::F64, [3, 2])],
    );
    let program = program.unwrap();
    program.verify().unwrap();
    assert!(program.to_string().contains("f64[3,2]"), "{program}");
}
