//! Functions of the user's that return their argument: the construct around them returns a copy, in
//! eager code as in a program.

use pullback::*;

fn x() -> Tensor {
    Tensor::from([1.0, 2.0])
}

/// Writes into the result, and looks at what the function was given or has captured.
#[track_caller]
fn apart(y: &Tensor, others: &[&Tensor]) {
    let before: Vec<Vec<f64>> = others.iter().map(|x| x.to_f64_vec()).collect();
    for other in others {
        assert!(!y.shares_memory(other), "it shares memory");
    }
    let _ = catch(|| y.zero_());
    let after: Vec<Vec<f64>> = others.iter().map(|x| x.to_f64_vec()).collect();
    assert_eq!(before, after);
}

#[test]
fn branches() {
    for tracked in [false, true] {
        let x = if tracked { x().requires_grad() * 1.0 } else { x() };
        let captured = Tensor::from([5.0, 6.0]);
        for test in [true, false] {
            let test = Tensor::from(test);
            apart(&cond(&test, |x: &Tensor| x.clone(), |x| x.clone(), &x), &[&x]);
            apart(&cond(&test, |x: &Tensor| x.flip(0), |x| x.at(..), &x), &[&x]);
            apart(
                &cond(&test, |_: &Tensor| captured.clone(), |_| captured.clone(), &x),
                &[&captured],
            );
            let (a, b) =
                cond(&test, |x: &Tensor| (x * 2.0, x.clone()), |x| (x + 1.0, x.clone()), &x);
            apart(&a, &[&b, &x]);
            let (a, b) = cond(&test, |x: &Tensor| twice(x * 2.0), |x| twice(x * 3.0), &x);
            apart(&a, &[&b]);
        }
    }
}

fn twice(x: Tensor) -> (Tensor, Tensor) {
    (x.clone(), x)
}

#[test]
fn a_branch_is_the_same_compiled() {
    let f = |x: &Tensor| {
        let x = x * 1.0;
        let y = cond(&x.sum().gt(0.0), |x: &Tensor| x.clone(), |x| x * 2.0, &x);
        y.mul_(10.0);
        (x, y)
    };
    let (eager, compiled) = (f(&x()), jit(f).of(&x()));
    assert_eq!(eager.0.to_vec::<f64>(), [1.0, 2.0]);
    assert_eq!(eager.0.to_vec::<f64>(), compiled.0.to_vec::<f64>());
    assert_eq!(eager.1.to_vec::<f64>(), compiled.1.to_vec::<f64>());
}

#[test]
fn loops() {
    let (x, rows) = (x(), Tensor::from([[3.0, 4.0], [5.0, 6.0]]));
    let never = |_: &Tensor| Tensor::from(false);
    apart(&while_loop(never, |x| x.clone(), &x), &[&x]);
    apart(&while_loop_bounded(0, |_: &Tensor| Tensor::from(true), |x| x.clone(), &x), &[&x]);
    apart(&fori_loop(0, 0, |_, x: &Tensor| x.clone(), &x), &[&x]);
    apart(&fori_loop(0, 3, |_, x: &Tensor| x.clone(), &x), &[&x]);
    let (last, all) = scan(|s: &Tensor, r: &Tensor| (r.clone(), s.clone()), &x, &rows);
    apart(&last, &[&x, &rows, &all]);
    apart(&all, &[&x, &rows]);
    let (last, all) = scan(|s: &Tensor, _: &Tensor| (s.clone(), s.clone()), &x, &rows.at(0..0));
    apart(&last, &[&x, &rows, &all]);
    let (last, _) = scan_times(2, |s: &Tensor, _: &()| (s.clone(), ()), &x);
    apart(&last, &[&x]);
    let (last, _) = scan_reverse(|_: &Tensor, r: &Tensor| (r.clone(), ()), &x, &rows);
    apart(&last, &[&x, &rows]);
}

#[test]
fn transforms() {
    let (x, t) = (x(), Tensor::from([7.0, 8.0]));
    let captured = Tensor::from([5.0, 6.0]);
    let m = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    apart(&vmap(|x: &Tensor| x.clone(), 0, 0)(&m), &[&m]);
    apart(&vmap(|x: &Tensor| x.clone(), 0, 1)(&m), &[&m]);
    apart(&vmap(|_: &Tensor| captured.clone(), 0, None::<isize>)(&m), &[&captured]);
    apart(&vmap(|_: &Tensor| captured.clone(), 0, 0)(&m), &[&captured]);
    let (y, ty) = jvp(|x: &Tensor| x.clone(), &x, &t);
    apart(&y, &[&x, &t, &ty]);
    apart(&ty, &[&x, &t]);
    let (y, back) = vjp(|x: &Tensor| x.clone(), &x);
    apart(&y, &[&x]);
    let (first, second) = (back(&t), back(&t));
    apart(&first, &[&t, &second]);
    let (y, back) = vjp(|(a, b): &(Tensor, Tensor)| a + b, &(x.clone(), m.at(0)));
    let (da, db) = back(&t);
    apart(&da, &[&t, &db, &y]);
    let one = Tensor::from([3.0]);
    let (y, dy) = value_and_grad(|x: &Tensor| x.clone())(&one);
    apart(&y, &[&one, &dy]);
    let (y, dy) = value_and_grad(|x: &Tensor| x.exp())(&one);
    apart(&dy, &[&one, &y]);
    // The gradient of a product is the other factor.
    let w = Tensor::from([3.0, 4.0]);
    apart(&grad(|x: &Tensor| (x * &w).sum())(&x), &[&w, &x]);
    apart(&grad(|x: &Tensor| x.dot(&w))(&x), &[&w, &x]);
}

#[test]
fn gradients_of_a_graph() {
    let (a, b) = (x().requires_grad(), x().requires_grad());
    let y = &a + &b;
    let dy = Tensor::from([1.0, 10.0]);
    let grads = Backward::of(&y).cotangent(&dy).retain_graph().wrt(&[&a, &b]).unwrap();
    apart(&grads[0], &[&grads[1], &dy]);
    y.backward_with(&dy).unwrap();
    let (da, db) = (a.grad().unwrap(), b.grad().unwrap());
    apart(&da, &[&db, &dy]);
}

#[test]
fn checkpoints_and_custom_rules() {
    let captured = Tensor::from([5.0, 6.0]);
    for tracked in [false, true] {
        let x = if tracked { x().requires_grad() * 1.0 } else { x() };
        apart(&checkpoint(|x: &Tensor| x.clone(), &x), &[&x]);
        let inside = captured.clone();
        apart(&checkpoint(move |_: &Tensor| inside.clone(), &x), &[&captured]);
        apart(&no_grad(|| checkpoint(|x: &Tensor| x.flip(0), &x)), &[&x]);
        let same =
            custom_vjp("same", |x: &Tensor| (x.clone(), ()), |_: &(), dy: &Tensor| dy.clone());
        apart(&same.call(&x), &[&x]);
        let inside = captured.clone();
        let other =
            custom_jvp("other", move |_: &Tensor| inside.clone(), |_: &Tensor, t: &Tensor| t * 0.0);
        apart(&other.call(&x), &[&captured, &x]);
    }
}

#[test]
fn a_call_that_is_not_compiled() {
    let captured = Tensor::from([5.0, 6.0]);
    let f = jit(|x: &Tensor| (x.clone(), captured.clone()));
    for x in [x(), x().requires_grad() * 1.0] {
        let (y, z) = f.of(&x);
        apart(&y, &[&x]);
        apart(&z, &[&captured]);
    }
}

#[test]
fn solvers() {
    let (theta, x) = (Tensor::from(1.0), x());
    apart(&fixed_point(|_: &Tensor, x: &Tensor| x.clone(), &theta, &x), &[&x]);
    let start = Tensor::from([1.0, 1.0]);
    apart(&root(|one: &Tensor, x: &Tensor| x - one, &theta, &start), &[&start]);
    apart(&linear_solve(|_: &Tensor, x: &Tensor| x.clone(), &theta, &x), &[&x]);
}
