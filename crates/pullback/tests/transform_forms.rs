//! Transforms with auxiliary results, over borrowed trees, of several results, at a
//! point, and prefixes of associative functions.

use pullback::{
    Borrowed, Tensor, Tree, associative_scan, associative_scan_reverse, borrowed, catch,
    checkpoint, cond, grad, grad_aux, hessian, hessian_tree, jacfwd, jacobian, jacobian_tree,
    jacrev, jit, jvp, jvp_aux, linear_transpose, linearize, no_grad, scan, stack, value_and_grad,
    value_and_grad_aux, vjp, vjp_aux, vmap,
};
use std::cell::Cell;
use std::collections::BTreeMap;

fn list(x: &Tensor) -> Vec<f64> {
    x.to_vec()
}

#[track_caller]
fn near(a: &Tensor, b: &Tensor) {
    assert_eq!(a.spec(), b.spec());
    for (a, b) in a.to_f64_vec().into_iter().zip(b.to_f64_vec()) {
        assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{a} is not {b}");
    }
}

#[derive(Tree)]
struct Line {
    slope: Tensor,
    offset: Tensor,
}

fn line() -> Line {
    Line { slope: Tensor::from([2.0, -1.0]), offset: Tensor::from([1.0, 0.5]) }
}

// ---- auxiliary results

#[test]
fn auxiliary_results_are_returned_and_not_differentiated() {
    let x = Tensor::from([1.0, 2.0]);
    let f = |x: &Tensor| (x.square().sum(), (x.exp(), x.gt(1.5), 7usize, vec![x * 3.0]));
    let ((loss, (exp, large, seven, more)), g) = value_and_grad_aux(f)(&x);
    assert_eq!((loss.item::<f64>(), list(&g)), (5.0, vec![2.0, 4.0]));
    assert_eq!(list(&exp), list(&x.exp()));
    assert_eq!((large.to_vec::<bool>(), seven), (vec![false, true], 7));
    assert_eq!(list(&more[0]), [3.0, 6.0]);
    for t in [&loss, &exp, &more[0], &g] {
        assert!(!t.is_tracked(), "{t:?}");
    }
    let (g, (exp, ..)) = grad_aux(f)(&x);
    assert_eq!((list(&g), exp.is_tracked()), (vec![2.0, 4.0], false));
    // The argument itself, and memory that was written since.
    let (g, (same, written)) = grad_aux(|x: &Tensor| {
        let y = x * 1.0;
        y.mul_(x);
        (y.sum(), (x.clone(), y))
    })(&x);
    assert_eq!((list(&g), list(&same), list(&written)), (vec![2., 4.], vec![1., 2.], vec![1., 4.]));
    assert!(!same.is_tracked() && !written.is_tracked());
}

#[test]
fn an_outer_derivative_sees_auxiliary_results() {
    let x = Tensor::from([1.0, 2.0]);
    let inner = |x: &Tensor| (x.powi(3).sum(), x.square());
    // Σ (3x² + x²)·x by x: 12x².
    let outer = |x: &Tensor| {
        let (g, aux) = grad_aux(inner)(x);
        ((g + aux) * x).sum()
    };
    assert_eq!(list(&grad(outer)(&x)), [12.0, 48.0]);
    assert_eq!(list(&jvp(grad(outer), &x, &Tensor::from([1.0, 1.0])).1), [24.0, 48.0]);
    assert_eq!(list(&jvp(outer, &x, &Tensor::from([1.0, 0.0])).1.unsqueeze(0)), [12.0]);
    // It depends on a leaf outside that the loss does not depend on.
    let w = Tensor::from(3.0).requires_grad();
    let ((loss, aux), _) = value_and_grad_aux(|x: &Tensor| (x.sum(), x.sum() * &w))(&x);
    assert!(!loss.is_tracked() && aux.is_tracked());
    aux.backward().unwrap();
    assert_eq!(w.grad().unwrap().item::<f64>(), 3.0);
    // And inside no_grad on nothing.
    let ((_, aux), _) = no_grad(|| value_and_grad_aux(|x: &Tensor| (x.sum(), x * &w))(&x));
    assert!(!aux.is_tracked());
}

#[test]
fn aux_under_the_other_transforms() {
    let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    let f = |x: &Tensor| (x.square().sum(), x.sum());
    let (g, sums) = vmap(grad_aux(f), 0, 0)(&x);
    assert_eq!((list(&g), list(&sums)), (vec![2.0, 4.0, 6.0, 8.0], vec![3.0, 7.0]));
    let compiled = jit(value_and_grad_aux(f));
    let ((loss, sum), g) = compiled.of(&x);
    assert_eq!((loss.item::<f64>(), sum.item::<f64>()), (30.0, 10.0));
    assert_eq!(list(&g), [2.0, 4.0, 6.0, 8.0]);
    let g = grad(|x: &Tensor| checkpoint(move |x: &Tensor| grad_aux(f)(x).0, x).square().sum())(&x);
    assert_eq!(list(&g), [8.0, 16.0, 24.0, 32.0]);
}

#[test]
fn vjp_and_jvp_with_auxiliary_results() {
    let x = Tensor::from([1.0, 2.0]);
    let (y, pullback, aux) = vjp_aux(|x: &Tensor| (x.square(), (x.sum(), 3i64)), &x);
    assert_eq!((list(&y), aux.0.item::<f64>(), aux.1), (vec![1.0, 4.0], 3.0, 3));
    assert!(!aux.0.is_tracked());
    assert_eq!(list(&pullback(&Tensor::from([1.0, 1.0]))), [2.0, 4.0]);
    let (_, ty, aux) = jvp_aux(|x: &Tensor| (x.square(), x.exp()), &x, &Tensor::from([1.0, 0.0]));
    assert_eq!((list(&ty), list(&aux)), (vec![2.0, 0.0], list(&x.exp())));
    // Through the derivative inside, and only that one.
    let d = jvp(
        |x: &Tensor| jvp_aux(|x: &Tensor| (x.powi(2), x.powi(3)), x, &Tensor::from(1.0)).2,
        &Tensor::from(2.0),
        &Tensor::from(1.0),
    );
    assert_eq!(d.1.item::<f64>(), 12.0);
}

#[test]
fn a_loss_that_is_no_number_is_refused_by_the_users_line() {
    let e = catch(|| value_and_grad_aux(|x: &Tensor| (x.square(), ()))(&Tensor::from([1.0, 2.0])));
    let text = e.unwrap_err().to_string();
    assert!(text.contains("one float") && text.contains("tests/transform_forms.rs"), "{text}");
    let e = catch(|| value_and_grad(|x: &Tensor| x.square())(&Tensor::from([1.0, 2.0])));
    assert!(e.unwrap_err().to_string().contains("tests/transform_forms.rs"));
}

// ---- borrowed trees

#[test]
fn a_borrowed_model_is_an_argument() {
    let (model, x) = (line(), Tensor::from([3.0, 4.0]));
    let f =
        |(m, x): &(Borrowed<Line>, Borrowed<Tensor>)| (&m.slope * &**x + &m.offset).square().sum();
    let expected = 7.0 * 7.0 + 3.5 * 3.5;
    let step = jit(f);
    for _ in 0..2 {
        assert_eq!(step.of(&(borrowed(&model), borrowed(&x))).item::<f64>(), expected);
    }
    assert_eq!(step.explain().specialisations.len(), 1);
    assert_eq!(step.explain().uncompiled.0, 0);
    let (gm, gx) = grad(f)(&(borrowed(&model), borrowed(&x)));
    assert_eq!((list(&gm.slope), list(&gm.offset)), (vec![42.0, -28.0], vec![14.0, -7.0]));
    assert_eq!(list(&gx), [28.0, 7.0]);
    // The one that was lent is as it was.
    assert_eq!((list(&model.slope), model.slope.is_tracked()), (vec![2.0, -1.0], false));
    let compiled = jit(grad(f));
    assert_eq!(list(&compiled.of(&(borrowed(&model), borrowed(&x))).0.slope), [42.0, -28.0]);
}

#[test]
fn a_model_is_lent_once_and_batches_come_and_go() {
    let model = line();
    let step = jit(|(m, x): &(Borrowed<Line>, Tensor)| (&m.slope * x).sum());
    let mut sums = Vec::new();
    for i in 0..3 {
        let x = Tensor::from([f64::from(i), 1.0]);
        sums.push(step.of(&(borrowed(&model), x)).item::<f64>());
    }
    assert_eq!((sums, step.explain().specialisations.len()), (vec![-1.0, 1.0, 3.0], 1));
}

#[test]
fn borrowed_trees_under_vmap_jacobian_jvp_and_in_structs() {
    let model = line();
    let rows = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    let f = |(m, x): &(Borrowed<Line>, Tensor)| (&m.slope * x + &m.offset).sum();
    let each = vmap(f, [None, None, Some(0)], 0)(&(borrowed(&model), rows.clone()));
    assert_eq!(list(&each), [1.5, 3.5]);
    let (jm, _) = jacobian(|(m, x): &(Borrowed<Line>, Tensor)| &m.slope * x)(&(
        borrowed(&model),
        Tensor::from([5.0, 6.0]),
    ));
    assert_eq!(list(&jm.slope), [5.0, 0.0, 0.0, 6.0]);
    let (_, ty) = jvp(f, &(borrowed(&model), rows.clone()), &(borrowed(&line()), rows.clone()));
    assert!(ty.item::<f64>().is_finite());
    #[derive(Tree)]
    struct Batch<'a> {
        model: Borrowed<'a, Line>,
        x: Tensor,
    }
    let batch = Batch { model: borrowed(&model), x: Tensor::from([1.0, 1.0]) };
    let names: Vec<String> = batch.named_leaves().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["model.slope", "model.offset", "x"]);
    let g = grad(|b: &Batch| (&b.model.slope * &b.x).square().sum())(&batch);
    assert_eq!((list(&g.model.slope), list(&g.x)), (vec![4.0, -2.0], vec![8.0, 2.0]));
}

// ---- several results

#[test]
fn several_results_have_a_jacobian_each() {
    let (x, y) = (Tensor::from([1.0, 2.0]), Tensor::from([[3.0], [4.0], [5.0]]));
    let f = |(x, y): &(Tensor, Tensor)| (x * y, x.square().sum(), vec![y.exp(), x.sin()]);
    let at = (x.clone(), y.clone());
    for j in [jacrev(f)(&at), jacfwd(f)(&at), jacobian(f)(&at)] {
        let ((product_x, product_y), (square_x, square_y), rest) = j;
        // One at a time, as a function of one result.
        let alone = jacobian(|(x, y): &(Tensor, Tensor)| x * y)(&at);
        near(&product_x, &alone.0);
        near(&product_y, &alone.1);
        assert_eq!((product_x.shape(), product_y.shape()), (&[3, 2, 2][..], &[3, 2, 3, 1][..]));
        assert_eq!((list(&square_x), list(&square_y)), (vec![2.0, 4.0], vec![0.0; 3]));
        assert_eq!(rest.len(), 2);
        near(&rest[0].1.reshape([3, 3]), &diagonal(&y.exp().reshape([3])));
        near(&rest[1].0, &diagonal(&x.cos()));
        assert_eq!(rest[1].1.shape(), [2, 3, 1]);
    }
}

fn diagonal(x: &Tensor) -> Tensor {
    x.unsqueeze(0) * Tensor::eye_with(x.len(), x.len(), x.dtype())
}

#[test]
fn maps_options_and_structs_as_results() {
    let x = Tensor::from([1.0, 2.0]);
    let f = |x: &Tensor| BTreeMap::from([("a", x.square()), ("b", x.sum())]);
    let j = jacobian(f)(&x);
    assert_eq!((list(&j["a"]), list(&j["b"])), (vec![2.0, 0.0, 0.0, 4.0], vec![1.0, 1.0]));
    let j = jacrev(|x: &Tensor| [Some(x.sum()), None])(&x);
    assert!(j[0].is_some() && j[1].is_none());
    let f = |x: &Tensor| Line { slope: x.square(), offset: x.sum() };
    let j = jacobian_tree(f)(&x);
    assert_eq!((list(&j[0]), list(&j[1])), (vec![2.0, 0.0, 0.0, 4.0], vec![1.0, 1.0]));
    // Results that depend on nothing, that are integers, and none at all.
    let (zeros, counts) = jacobian(|x: &Tensor| (Tensor::from([1.0]), x.gt(1.0)))(&x);
    assert_eq!((list(&zeros), counts.shape()), (vec![0.0, 0.0], &[2, 2][..]));
    assert!(jacobian(|_: &Tensor| Vec::<Tensor>::new())(&x).is_empty());
}

#[test]
fn a_hessian_of_several_arguments_has_their_structure() {
    let f = |(x, y): &(Tensor, Tensor)| (x.square() * y).sum();
    let at = (Tensor::from([1.0, 2.0]), Tensor::from([3.0, 4.0]));
    let ((xx, xy), (yx, yy)) = hessian(f)(&at);
    assert_eq!((list(&xx), list(&xy)), (vec![6.0, 0.0, 0.0, 8.0], vec![2.0, 0.0, 0.0, 4.0]));
    assert_eq!((list(&yx), list(&yy)), (list(&xy), vec![0.0; 4]));
    assert_eq!(list(&hessian_tree(f)(&at)[0].0), list(&xx));
    let compiled = jit(hessian(f));
    assert_eq!(list(&compiled.of(&at).0.0), list(&xx));
}

#[test]
fn jacobians_of_several_results_nest_batch_and_compile() {
    let x = Tensor::from([1.0, 2.0]);
    let f = |x: &Tensor| (x.powi(3), x.sum());
    // The sum of the first Jacobian is Σ 3x².
    let g = grad(|x: &Tensor| jacobian(f)(x).0.sum())(&x);
    assert_eq!(list(&g), [6.0, 12.0]);
    assert_eq!(list(&jit(jacfwd(f)).of(&x).0), [3.0, 0.0, 0.0, 12.0]);
    let rows = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    assert_eq!(list(&vmap(jacrev(f), 0, 0)(&rows).0), [3., 0., 0., 12., 27., 0., 0., 48.]);
    // A function that looks at values is called once for each direction.
    let looks = |x: &Tensor| match x.sum().item::<f64>() > 0.0 {
        true => (x.square(), x.sum()),
        false => (x.clone(), x.sum()),
    };
    assert_eq!(list(&jacfwd(looks)(&x).0), [2.0, 0.0, 0.0, 4.0]);
    assert_eq!(list(&jacrev(looks)(&x).0), [2.0, 0.0, 0.0, 4.0]);
}

// ---- linear maps

#[test]
fn a_linearised_function_is_its_jvp_and_does_not_run_again() {
    let calls = Cell::new(0);
    let f = |(x, w): &(Tensor, Tensor)| {
        calls.set(calls.get() + 1);
        let y = x.matmul(w).tanh();
        (y.softmax(1), y.square().sum())
    };
    let at = (
        Tensor::from([[0.1, 0.2], [0.3, -0.4]]),
        Tensor::from([[0.5, -0.6, 0.1], [0.7, 0.8, 0.9]]),
    );
    let (y, along) = linearize(f, &at);
    near(&y.0, &f(&at).0);
    calls.set(0);
    for i in 0..3 {
        let t = (&at.0 * f64::from(i) + 1.0, at.1.sin());
        let got = along(&t);
        assert_eq!(calls.get(), 0);
        let (_, want) = jvp(f, &at, &t);
        near(&got.0, &want.0);
        near(&got.1, &want.1);
        assert!(!got.0.is_tracked());
        calls.set(0);
    }
    let wrong = catch(|| along(&(at.0.clone(), at.0.clone())));
    assert!(wrong.unwrap_err().to_string().contains("tests/transform_forms.rs"));
}

#[test]
fn linearise_nests_and_is_differentiable() {
    let x = Tensor::from([0.5, 1.5]);
    let (w, t) = (Tensor::from([2.0, 3.0]), Tensor::from([1.0, -1.0]));
    // Of w·x³ along t: 3w·x²·t. By x, by w and by t.
    let map = |x: &Tensor, w: &Tensor, t: &Tensor| linearize(|x: &Tensor| x.powi(3) * w, x).1(t);
    near(&map(&x, &w, &t), &(x.square() * &w * &t * 3.0));
    near(&grad(|x: &Tensor| map(x, &w, &t).sum())(&x), &(&x * &w * &t * 6.0));
    near(&grad(|w: &Tensor| map(&x, w, &t).sum())(&w), &(x.square() * &t * 3.0));
    near(&grad(|t: &Tensor| map(&x, &w, t).sum())(&t), &(x.square() * &w * 3.0));
    near(&jvp(|x: &Tensor| map(x, &w, &t), &x, &t).1, &(&x * &w * &t * &t * 6.0));
    near(&jvp(|t: &Tensor| map(&x, &w, t), &t, &x).1, &(x.square() * &w * &x * 3.0));
    let second = grad(grad_sum(|x: &Tensor| map(x, &w, &t)))(&x);
    near(&second, &(&w * &t * 6.0));
    near(&jit(|x: &Tensor| map(x, &w, &t)).of(&x), &map(&x, &w, &t));
    let rows = Tensor::from([[0.5, 1.5], [2.5, 3.5]]);
    let each = vmap(|x: &Tensor| map(x, &w, &t), 0, 0)(&rows);
    near(&each.select_at(0, 0), &map(&x, &w, &t));
    // The map for many directions at once.
    let (_, along) = linearize(|x: &Tensor| x.powi(3) * &w, &x);
    let all = vmap(|t: &Tensor| along(t), 0, 0)(&Tensor::from([[1.0, 0.0], [0.0, 1.0]]));
    near(
        &all,
        &((x.square() * &w * 3.0).unsqueeze(0) * Tensor::eye_with(2, 2, pullback::DType::F64)),
    );
    // A leaf outside.
    let leaf = Tensor::from([2.0, 3.0]).requires_grad();
    let (_, along) = linearize(|x: &Tensor| x.square() * &leaf, &x);
    along(&t).sum().backward().unwrap();
    near(&leaf.grad().unwrap(), &(&x * &t * 2.0));
}

fn grad_sum(f: impl Fn(&Tensor) -> Tensor) -> impl Fn(&Tensor) -> Tensor {
    let g = grad(move |x: &Tensor| f(x).sum());
    move |x: &Tensor| g(x).sum()
}

#[test]
fn linearise_through_loops_choices_and_constants() {
    let x = Tensor::from([0.5, 1.5]);
    let t = Tensor::from([1.0, 2.0]);
    let f = |x: &Tensor| {
        let (last, all) = scan(|s: &Tensor, x: &Tensor| (s * x, s + x), &Tensor::from(1.0), x);
        let chosen = cond(&x.sum().gt(0.0), |x: &Tensor| x.sin(), |x: &Tensor| x.cos(), x);
        (last, all, chosen, Tensor::from([3.0]), x.gt(1.0))
    };
    let (_, along) = linearize(f, &x);
    let (got, want) = (along(&t), jvp(f, &x, &t).1);
    near(&got.0, &want.0);
    near(&got.1, &want.1);
    near(&got.2, &want.2);
    assert_eq!((list(&got.3), got.4.to_vec::<bool>()), (vec![0.0], vec![false; 2]));
}

#[test]
fn a_transposed_map_is_its_pullback() {
    let a = Tensor::from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let turned = linear_transpose(|x: &Tensor| a.matmul(x), &Tensor::from([0.0; 3]));
    let y = Tensor::from([1.0, -1.0]);
    near(&turned(&y), &a.t().matmul(&y));
    // Twice is the function itself.
    let again = linear_transpose(|y: &Tensor| turned(y), &y);
    let x = Tensor::from([1.0, 2.0, 3.0]);
    near(&again(&x), &a.matmul(&x));
    let (_, pullback) = vjp(|x: &Tensor| a.matmul(x), &x);
    near(&turned(&y), &pullback(&y));
}

// ---- prefixes

/// The prefixes one after the other.
fn in_order<T: Tree>(f: impl Fn(&T, &T) -> T, xs: &T) -> T {
    let row = |i: isize| xs.map(&mut |x| x.select_at(0, i));
    let n = xs.leaves()[0].shape()[0] as isize;
    let first = row(0);
    let mut all = vec![first];
    for i in 1..n {
        let next = f(&all[all.len() - 1], &row(i));
        all.push(next);
    }
    let parts: Vec<Vec<Tensor>> = all.iter().map(Tree::leaves).collect();
    let mut k = 0;
    xs.map(&mut |_| {
        k += 1;
        let column: Vec<&Tensor> = parts.iter().map(|row| &row[k - 1]).collect();
        pullback::stack(&column, 0)
    })
}

fn angles(n: usize) -> Tensor {
    (Tensor::linspace(0.1, 2.0, n) * 3.0).sin()
}

/// Matrices do not commute: order shows.
fn matrices(n: usize) -> Tensor {
    (Tensor::linspace(0.0, 5.0, n * 4).reshape([n, 2, 2])).cos()
}

#[test]
fn prefixes_of_any_length_equal_a_sequential_scan() {
    let product = |a: &Tensor, b: &Tensor| a.matmul(b);
    for n in 1..=19 {
        let xs = matrices(n);
        near(&associative_scan(product, &xs, 0), &in_order(product, &xs));
        let flipped = in_order(product, &xs.flip(0)).flip(0);
        near(&associative_scan_reverse(product, &xs, 0), &flipped);
        let along = xs.permute([1, 0, 2]);
        near(&associative_scan(product, &along, 1), &in_order(product, &xs).permute([1, 0, 2]));
        near(&associative_scan(product, &along, -2), &in_order(product, &xs).permute([1, 0, 2]));
        let (_, sums) =
            scan(|s: &Tensor, x: &Tensor| (s + x, s + x), &Tensor::from(0.0), &angles(n));
        near(&associative_scan(|a: &Tensor, b: &Tensor| a + b, &angles(n), 0), &sums);
    }
    let none = Tensor::zeros([0, 3]);
    assert_eq!(associative_scan(|a: &Tensor, b: &Tensor| a + b, &none, 0).shape(), [0, 3]);
    // The result of one element is memory of its own.
    let one = Tensor::from([1.0]);
    associative_scan(|a: &Tensor, b: &Tensor| a + b, &one, 0).add_(1.0);
    assert_eq!(list(&one), [1.0]);
}

type Map = (Tensor, Tensor);

fn then((a, b): &Map, (c, d): &Map) -> Map {
    (a * c, b * c + d)
}

#[test]
fn prefixes_of_trees_have_derivatives_in_both_modes() {
    let xs = (angles(7), angles(7).cos());
    let fast = |xs: &Map| associative_scan(then, xs, 0);
    let slow = |xs: &Map| in_order(then, xs);
    let loss = |f: &dyn Fn(&Map) -> Map, xs: &Map| {
        let (a, h) = f(xs);
        (a.exp() + h.square()).sum()
    };
    let (g, want) = (grad(|x: &Map| loss(&fast, x))(&xs), grad(|x: &Map| loss(&slow, x))(&xs));
    near(&g.0, &want.0);
    near(&g.1, &want.1);
    let t = (angles(7).square(), angles(7) + 1.0);
    let (got, want) = (jvp(fast, &xs, &t).1, jvp(slow, &xs, &t).1);
    near(&got.0, &want.0);
    near(&got.1, &want.1);
    let (h, want) =
        (hessian(|x: &Map| loss(&fast, x))(&xs), hessian(|x: &Map| loss(&slow, x))(&xs));
    near(&h.0.1, &want.0.1);
    near(&h.1.1, &want.1.1);
    near(&jit(fast).of(&xs).1, &slow(&xs).1);
    near(&jit(grad(|x: &Map| loss(&fast, x))).of(&xs).0, &g.0);
    // Batched: along another axis it is the same.
    let rows = (pullback::stack(&[&xs.0, &xs.1], 0), pullback::stack(&[&xs.1, &xs.0], 0));
    let each = vmap(fast, 0, 0)(&rows);
    near(&each.1.select_at(0, 0), &slow(&xs).1);
    near(&each.1, &associative_scan(then, &rows, 1).1);
}

#[test]
fn the_function_runs_logarithmically_often() {
    let calls = Cell::new(0);
    let counted = |a: &Tensor, b: &Tensor| {
        calls.set(calls.get() + 1);
        a + b
    };
    let xs = Tensor::ones([1000]);
    let sums = associative_scan(counted, &xs, 0);
    assert_eq!(sums.select_at(0, -1).item::<f32>(), 1000.0);
    assert!(calls.get() <= 2 * 10, "{} calls", calls.get());
}

#[test]
fn what_is_no_scan_is_refused() {
    let fails = |f: &dyn Fn() -> Tensor, part: &str| {
        let text = catch(f).unwrap_err().to_string();
        assert!(text.contains("associative_scan") && text.contains(part), "{text}");
        assert!(text.contains("tests/transform_forms.rs"), "{text}");
    };
    let add = |a: &Tensor, b: &Tensor| a + b;
    fails(&|| associative_scan(add, &Tensor::from(1.0), 0), "no axis 0");
    fails(&|| associative_scan(|a: &Tensor, _: &Tensor| a.sum(), &matrices(3), 0), "gives the");
    fails(&|| associative_scan(then, &(angles(3), angles(4)), 0).0, "equally long");
}

/// A function that writes to state outside of it does so once, as in one call, and computes every
/// direction with the same state.
#[test]
fn state_is_written_once_for_a_whole_derivative() {
    let x = Tensor::from([1.0, 2.0]);
    type Whole<'a> = (&'static str, Box<dyn Fn(&Tensor) -> Tensor + 'a>);
    let (count, mean) = (Tensor::from(0.0), Tensor::from([0.0, 0.0]));
    // The state is part of the value, and follows the argument.
    let noted = |x: &Tensor| {
        let scale = no_grad(|| {
            count.add_(1.0);
            mean.narrow(0, 0, 1).copy_(x.detach().sum().reshape([1]));
            mean.mul_(2.0);
            &count * 1.0
        });
        scale * x
    };
    let wide = |x: &Tensor| stack(&[&noted(x), &x.square(), &x.sin()], 0);
    let narrow = |x: &Tensor| noted(x).square().sum();
    let all: Vec<Whole> = vec![
        ("jacrev", Box::new(jacrev(wide))),
        ("jacfwd", Box::new(jacfwd(wide))),
        ("jacobian, forward", Box::new(jacobian(wide))),
        ("jacobian, reverse", Box::new(jacobian(narrow))),
        ("hessian", Box::new(hessian(narrow))),
        ("jacfwd of jacrev", Box::new(jacfwd(jacrev(narrow)))),
        ("jacfwd of jacfwd", Box::new(jacfwd(jacfwd(narrow)))),
        ("hvp", Box::new(|x| pullback::hvp(narrow, x, &x.ones_like()))),
    ];
    for (name, whole) in &all {
        for compile in [false, true] {
            no_grad(|| (count.copy_(0.0), mean.copy_(Tensor::from([0.0, 4.0]))));
            let found = if compile { jit(whole).of(&x) } else { whole(&x) };
            assert_eq!(count.item::<f64>(), 1.0, "{name}, compiled {compile}");
            assert_eq!(list(&mean), [6.0, 8.0], "{name}, compiled {compile}");
            // Both directions had the first state: the derivative of x is 1.
            no_grad(|| count.copy_(0.0));
            let again = if compile { jit(whole).of(&x) } else { whole(&x) };
            assert_eq!(list(&found), list(&again), "{name}, compiled {compile}");
        }
    }
    no_grad(|| count.copy_(0.0));
    assert_eq!(list(&jacfwd(noted)(&x)), [1.0, 0.0, 0.0, 1.0]);
    no_grad(|| count.copy_(0.0));
    assert_eq!(list(&hessian(narrow)(&x)), [2.0, 0.0, 0.0, 2.0]);
    assert_eq!(count.item::<f64>(), 1.0);
}
