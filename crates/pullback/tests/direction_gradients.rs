//! Derivatives by the direction of a `jvp`, with reverse mode inside of it: the direction is the
//! only thing that is tracked.

use pullback::*;

type Function = fn(&Tensor) -> Tensor;

fn point() -> (Tensor, Tensor) {
    (Tensor::from([1.5, 2.0]), Tensor::from([0.5, -1.0]))
}

fn close(found: &Tensor, wanted: &[f64]) {
    let found = found.to_vec::<f64>();
    let near = found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(near && found.len() == wanted.len(), "{found:?} is not {wanted:?}");
}

/// x⁴, by a product, by a loop, inside a checkpoint and by way of a pullback.
fn fourth_powers() -> Vec<(&'static str, Function)> {
    vec![
        ("power", |x| x.powi(4).sum()),
        ("loop", |x| fori_loop(0, 3, |_, s: &Tensor| s * x, x).sum()),
        ("checkpoint", |x| checkpoint(|x: &Tensor| x.powi(4), x).sum()),
        ("pullback", |x| vjp(|x: &Tensor| x.powi(5) / 5.0, x).1(&x.ones_like()).sum()),
    ]
}

#[test]
fn a_product_with_the_hessian_is_linear_in_its_direction() {
    let (a, v) = point();
    // H = diag(12 a²)
    let wanted = [12.0 * 1.5 * 1.5, 12.0 * 4.0];
    for (name, f) in fourth_powers() {
        println!("{name}");
        let by_direction = |v: &Tensor| jvp(grad(f), &a, v).1.sum();
        close(&grad(by_direction)(&v), &wanted);
        close(&grad(|v: &Tensor| hvp(f, &a, v).sum())(&v), &wanted);
        close(&jvp(|v: &Tensor| hvp(f, &a, v), &v, &v.ones_like()).1, &wanted);
        close(&jit(grad(by_direction)).of(&v), &wanted);
        let rows = stack(&[&v, &v], 0);
        let each = vmap(grad(by_direction), 0, 0)(&rows);
        close(&each.select_at(0, 1), &wanted);
    }
}

#[test]
fn values_beside_the_gradient_keep_their_directions() {
    let (a, v) = point();
    let f = |x: &Tensor| x.powi(4).sum();
    // d/dv of 4 a³·v and of 12 a² v, in one.
    let both = |v: &Tensor| {
        let ((_, _), (value, gradient)) = jvp(value_and_grad(f), &a, v);
        value + gradient.sum()
    };
    let wanted: Vec<f64> = [1.5f64, 2.0].iter().map(|a| 4.0 * a.powi(3) + 12.0 * a * a).collect();
    close(&grad(both)(&v), &wanted);
    // vᵀHv by v and by a at once.
    let quadratic = |(a, v): &(Tensor, Tensor)| (hvp(f, a, v) * v).sum();
    let (by_a, by_v) = grad(quadratic)(&(a.clone(), v.clone()));
    close(&by_a, &[24.0 * 1.5 * 0.25, 24.0 * 2.0]);
    close(&by_v, &[24.0 * 2.25 * 0.5, -(24.0 * 4.0)]);
}

#[test]
fn a_cotangent_that_moves_is_differentiated_by_its_direction() {
    let (a, v) = point();
    let (_, pullback) = vjp(|x: &Tensor| x.powi(3), &a);
    let along = |t: &Tensor| jvp(&pullback, &a.ones_like(), t).1.sum();
    close(&grad(along)(&v), &[3.0 * 2.25, 12.0]);
    // Directions of directions: d/du of the second derivative along (v, u).
    let f = |x: &Tensor| x.powi(4).sum();
    let twice = |u: &Tensor| jvp(|x: &Tensor| jvp(grad(f), x, &v).1, &a, u).1.sum();
    close(&grad(twice)(&v), &[24.0 * 1.5 * 0.5, -(24.0 * 2.0)]);
}

#[test]
fn the_transpose_of_a_custom_rule_by_forward_over_reverse_is_its_own() {
    let (a, v) = point();
    // y = x², whose pullback is written as a product with the Hessian of x³/3.
    let square = custom_vjp(
        "square",
        |x: &Tensor| (x.square(), x.clone()),
        |x: &Tensor, dy: &Tensor| jvp(grad(|x: &Tensor| (x.powi(3) / 3.0).sum()), x, dy).1,
    );
    close(&grad(|x: &Tensor| (square.call(x) * &v).sum())(&a), &[2.0 * 1.5 * 0.5, -(2.0 * 2.0)]);
    close(&jvp(|x: &Tensor| square.call(x), &a, &v).1, &[2.0 * 1.5 * 0.5, -(2.0 * 2.0)]);
}

#[test]
fn a_rule_that_differentiates_inside_may_be_differentiated_in_any_order() {
    let x = Tensor::from([0.3, 0.8]);
    // y = sin(0.3 a + 0.5 y), and a rule with a pullback in it.
    let solved = |x: &Tensor| {
        fixed_point(|a: &Tensor, y: &Tensor| (a * 0.3 + y * 0.5).sin(), x, &x.zeros_like()).sum()
    };
    let ruled = custom_vjp(
        "exp_sin",
        |a: &Tensor| {
            let y = a.sin().exp();
            (y.clone(), (a.clone(), y))
        },
        |(a, y): &(Tensor, Tensor), dy: &Tensor| vjp(|a: &Tensor| a.sin() * y, a).1(dy),
    );
    let ruled = |x: &Tensor| ruled.call(x).sum();
    for f in [&solved as &dyn Fn(&Tensor) -> Tensor, &ruled] {
        let wanted = jacrev(grad(f))(&x);
        for found in [hessian(f)(&x), jacfwd(grad(f))(&x), jacfwd(jacfwd(f))(&x)] {
            assert!((&found - &wanted).abs().max().item::<f64>() < 1e-9, "{found} {wanted}");
        }
        let v = Tensor::from([1.0, -2.0]);
        let along = hvp(f, &x, &v);
        assert!((along - wanted.matmul(&v)).abs().max().item::<f64>() < 1e-9);
    }
}

#[test]
fn what_a_jvp_wrote_is_a_plain_value_once_it_has_returned() {
    let (x, k) = (Tensor::from([1.0, 2.0]), Tensor::zeros_with([2], DType::F64));
    let wrote = |x: &Tensor| {
        k.add_(x);
        x.square().sum()
    };
    let _ = jvp(wrote, &x, &x);
    close(&jit(|x: &Tensor| x * &k).of(&x), &[1.0, 4.0]);
}
