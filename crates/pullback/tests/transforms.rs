//! Functions that differentiate functions: modes, nesting, trees, control flow.

use pullback::{
    Backward, Tensor, Tree, catch, grad, hessian, hessian_tree, hvp, jacfwd, jacobian, jacrev, jvp,
    no_grad, value_and_grad, vjp,
};

fn t(value: f64) -> Tensor {
    Tensor::from(value)
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-10 * (1.0 + a.abs().max(b.abs())), "{a} is not {b}");
}

#[test]
fn grad_leaves_no_trace_outside() {
    let x = t(3.0);
    let (y, g) = value_and_grad(|x: &Tensor| x.square())(&x);
    assert!(!x.is_tracked() && !y.is_tracked() && !g.is_tracked());
    close(g.item(), 6.0);
    let w = t(5.0).requires_grad();
    let g = grad(|x: &Tensor| x.square() * &w)(&x);
    assert!(w.grad().is_none(), "grad touches no .grad()");
    assert!(g.is_tracked(), "but what it captured can be differentiated further");
    g.backward().unwrap();
    close(w.grad().unwrap().item(), 6.0);
}

#[test]
fn transforms_nest_in_every_order() {
    let f = |x: &Tensor| x.sin() * x.exp();
    // f'' = 2 cos(x) eˣ, f''' = 2 eˣ (cos x − sin x)
    let x = t(0.7);
    let (second, third) =
        (2.0 * 0.7f64.cos() * 0.7f64.exp(), 2.0 * 0.7f64.exp() * (0.7f64.cos() - 0.7f64.sin()));
    let one = t(1.0);
    close(grad(grad(f))(&x).item(), second);
    close(jvp(grad(f), &x, &one).1.item(), second);
    close(grad(|x: &Tensor| jvp(f, x, &t(1.0)).1)(&x).item(), second);
    close(jvp(|x: &Tensor| jvp(f, x, &t(1.0)).1, &x, &one).1.item(), second);
    close(grad(grad(grad(f)))(&x).item(), third);
    close(jvp(grad(grad(f)), &x, &one).1.item(), third);
    close(grad(|x: &Tensor| jvp(grad(f), x, &t(1.0)).1)(&x).item(), third);
    close(jvp(|x: &Tensor| grad(|x: &Tensor| jvp(f, x, &t(1.0)).1)(x), &x, &one).1.item(), third);
    close(
        grad(|x: &Tensor| jvp(|x: &Tensor| jvp(f, x, &t(1.0)).1, x, &t(1.0)).1)(&x).item(),
        third,
    );
    close(jvp(|x: &Tensor| jvp(grad(f), x, &t(1.0)).1, &x, &one).1.item(), third);
}

#[test]
fn perturbations_are_not_confused() {
    // d/dx (x · d/dy (x + y)) = 1: a system that mixes up the two directions says 2.
    let inner = |x: &Tensor| jvp(|y: &Tensor| x + y, &t(1.0), &t(1.0)).1;
    let (_, forward) = jvp(|x: &Tensor| x * inner(x), &t(1.0), &t(1.0));
    close(forward.item(), 1.0);
    let inner = |x: &Tensor| grad(|y: &Tensor| x + y)(&t(1.0));
    close(grad(|x: &Tensor| x * inner(x))(&t(1.0)).item(), 1.0);
    close(jvp(|x: &Tensor| x * inner(x), &t(1.0), &t(1.0)).1.item(), 1.0);
    let inner = |x: &Tensor| jvp(|y: &Tensor| x * y, &t(2.0), &t(1.0)).1;
    close(grad(|x: &Tensor| x * inner(x))(&t(3.0)).item(), 6.0);
}

#[test]
fn an_inner_gradient_may_depend_on_the_outer_argument_through_a_capture() {
    // g(w) = d/dx (w·x²) at 3 = 6w, so g' = 6.
    let g = |w: &Tensor| grad(|x: &Tensor| w * x.square())(&t(3.0));
    close(grad(g)(&t(5.0)).item(), 6.0);
    close(jvp(g, &t(5.0), &t(1.0)).1.item(), 6.0);
}

#[test]
fn a_gradient_step_can_be_differentiated_through() {
    // One step of descent on (w·x − 1)², then the loss as a function of the rate.
    let loss = |w: &Tensor| (w * 2.0 - 1.0).square();
    let after = |rate: &Tensor| {
        let w = t(3.0);
        loss(&(&w - rate * grad(loss)(&w)))
    };
    let (h, at) = (1e-5, 0.05);
    let numeric = (after(&t(at + h)).item::<f64>() - after(&t(at - h)).item::<f64>()) / (2.0 * h);
    assert!((grad(after)(&t(at)).item::<f64>() - numeric).abs() < 1e-5);
}

#[test]
fn the_pullback_can_be_called_again_and_on_several_results() {
    let f = |(x, y): &(Tensor, Tensor)| vec![x * y, x + y, t(7.0)];
    let (values, pullback) = vjp(f, &(t(2.0), t(3.0)));
    close(values[0].item(), 6.0);
    for (c, want) in [
        ([1.0, 0.0, 0.0], (3.0, 2.0)),
        ([0.0, 1.0, 9.0], (1.0, 1.0)),
        ([2.0, 1.0, 0.0], (7.0, 5.0)),
    ] {
        let (dx, dy) = pullback(&c.iter().map(|&c| t(c)).collect());
        close(dx.item(), want.0);
        close(dy.item(), want.1);
    }
    let text = catch(|| pullback(&vec![t(1.0)])).err().unwrap().to_string();
    assert!(text.contains("1 cotangents for 3 results"), "{text}");
    let text =
        catch(|| pullback(&vec![Tensor::ones([2]), t(1.0), t(1.0)])).err().unwrap().to_string();
    assert!(text.contains("the cotangent is f32[2], but the value is f64[]"), "{text}");
}

#[test]
fn a_pullback_is_itself_differentiable() {
    // vjp is linear in the cotangent: its derivative by the cotangent is the Jacobian.
    let x = Tensor::from([0.5, 2.0]);
    let pulled = |dy: &Tensor| vjp(|x: &Tensor| x.square(), &x).1(dy).sum();
    let g = grad(pulled)(&Tensor::from([1.0, 1.0]));
    assert_eq!(g.to_vec::<f64>(), [1.0, 4.0]);
}

#[derive(Tree, Clone)]
struct Layer {
    weight: Tensor,
    bias: Option<Tensor>,
    rate: f64,
    #[tree(skip)]
    name: &'static str,
}

#[derive(Tree)]
struct Model {
    layers: Vec<Layer>,
    head: (Tensor, [Tensor; 2]),
}

fn model() -> Model {
    let layer = |w: f64, bias: bool| Layer {
        weight: Tensor::full([2, 2], w),
        bias: bias.then(|| Tensor::full([2], 0.1)),
        rate: 0.5,
        name: "linear",
    };
    Model { layers: vec![layer(0.3, true), layer(-0.2, false)], head: (t(2.0), [t(1.0), t(4.0)]) }
}

fn forward(m: &Model) -> Tensor {
    let mut x = Tensor::from([[1.0, -2.0]]);
    for layer in &m.layers {
        x = x.matmul(&layer.weight);
        if let Some(bias) = &layer.bias {
            x += bias;
        }
        x = (x * layer.rate).tanh();
    }
    (x * &m.head.0 + &m.head.1[0] * &m.head.1[1]).sum()
}

#[test]
fn trees_are_differentiated_leaf_by_leaf_under_their_names() {
    let m = model();
    let names: Vec<String> = m.named_leaves().into_iter().map(|l| l.0).collect();
    assert_eq!(
        names,
        ["layers.0.weight", "layers.0.bias", "layers.1.weight", "head.0", "head.1.0", "head.1.1"]
    );
    let g = grad(forward)(&m);
    assert_eq!((g.layers[0].rate, g.layers[0].name), (0.5, "linear"));
    assert!(g.layers[1].bias.is_none());
    close(g.head.1[0].item(), 8.0);
    // Every leaf against the eager tape.
    let eager = m.map(&mut |x| x.deep_clone().requires_grad());
    forward(&eager).backward().unwrap();
    for (want, given) in eager.leaves().iter().zip(g.leaves()) {
        assert_eq!(want.grad().unwrap().to_vec::<f64>(), given.to_vec::<f64>());
    }
}

#[test]
fn unused_and_integer_leaves_get_zeros() {
    let f = |(x, _, i): &(Tensor, Tensor, Tensor)| x.index_select(0, i).sum();
    let x = (Tensor::from([1.0, 2.0]), Tensor::from([5.0]), Tensor::from([1i64]));
    let (a, b, c) = grad(f)(&x);
    assert_eq!(
        (a.to_vec::<f64>(), b.to_vec::<f64>(), c.to_vec::<i64>()),
        (vec![0.0, 1.0], vec![0.0], vec![0])
    );
}

#[test]
fn jacobians_agree_in_both_modes() {
    let f = |x: &Tensor| {
        let y = x.matmul(&Tensor::from([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]]));
        y.sin() * y.sum()
    };
    let x = Tensor::from([0.3, -0.7]);
    let (r, w, j) = (jacrev(f)(&x), jacfwd(f)(&x), jacobian(f)(&x));
    assert_eq!(r.shape(), [3, 2]);
    for ((a, b), c) in r.to_vec::<f64>().into_iter().zip(w.to_vec::<f64>()).zip(j.to_vec::<f64>()) {
        close(a, b);
        close(a, c);
    }
    // Over a tree, with matrices in and out.
    let f = |(a, b): &(Tensor, Tensor)| a.matmul(b);
    let at = (Tensor::from([[1.0, 2.0], [3.0, 4.0]]), Tensor::from([[5.0], [6.0]]));
    let (rev, fwd) = (jacrev(f)(&at), jacfwd(f)(&at));
    assert_eq!((rev.0.shape(), rev.1.shape()), (&[2, 1, 2, 2][..], &[2, 1, 2, 1][..]));
    assert_eq!(rev.0.to_vec::<f64>(), fwd.0.to_vec::<f64>());
    assert_eq!(rev.1.to_vec::<f64>(), fwd.1.to_vec::<f64>());
    // Nothing in, nothing out.
    assert_eq!(jacrev(|x: &Tensor| x * 2.0)(&Tensor::zeros([0])).shape(), [0, 0]);
    assert_eq!(jacfwd(|x: &Tensor| x * 2.0)(&Tensor::zeros([0])).shape(), [0, 0]);
}

#[test]
fn hessians_are_symmetric_and_agree_with_products() {
    let f = |x: &Tensor| (x.at(0) * x.at(1)).exp() + x.powi(3).sum();
    let x = Tensor::from([0.4, -0.9, 1.5]);
    let h = hessian(f)(&x);
    assert_eq!(h.shape(), [3, 3]);
    let (a, b) = (h.to_vec::<f64>(), h.t().to_vec::<f64>());
    a.iter().zip(&b).for_each(|(a, b)| close(*a, *b));
    let v = Tensor::from([1.0, 2.0, -1.0]);
    let (product, want) = (hvp(f, &x, &v).to_vec::<f64>(), h.matmul(&v).to_vec::<f64>());
    product.iter().zip(&want).for_each(|(a, b)| close(*a, *b));
    // The same by reverse over reverse.
    let leaf = x.deep_clone().requires_grad();
    let g = Backward::of(&f(&leaf)).create_graph().wrt(&[&leaf]).unwrap().remove(0);
    let again = Backward::of(&g).cotangent(&v).wrt(&[&leaf]).unwrap().remove(0);
    again.to_vec::<f64>().iter().zip(&want).for_each(|(a, b)| close(*a, *b));
    let blocks =
        hessian_tree(|(x, y): &(Tensor, Tensor)| (x * y).sum() * x.sum())(&(x.clone(), x.clone()));
    assert_eq!((blocks.len(), blocks[0].1.shape()), (2, &[3, 3][..]));
}

#[test]
fn control_flow_that_looks_at_values_is_differentiated_as_it_ran() {
    let f = |x: &Tensor| {
        let mut y = x.clone();
        let mut steps = 0;
        while y.item::<f64>() < 100.0 {
            y = if steps % 2 == 0 { &y * &y } else { &y + x };
            steps += 1;
        }
        y
    };
    // 3 → 9 → 12 → 144: y = (x² + x)², y' = 2(x² + x)(2x + 1)
    let x = t(3.0);
    close(f(&x).item(), 144.0);
    close(grad(f)(&x).item(), 168.0);
    close(jvp(f, &x, &t(1.0)).1.item(), 168.0);
    close(grad(grad(f))(&x).item(), 2.0 * 49.0 + 48.0);
}

#[test]
fn transforms_work_inside_no_grad() {
    let g = no_grad(|| grad(|x: &Tensor| x.square())(&t(3.0)));
    close(g.item(), 6.0);
    assert!(!g.is_tracked());
}

#[test]
fn a_wrong_function_or_direction_gets_a_sentence() {
    let text = catch(|| grad(|x: &Tensor| x * 2.0)(&Tensor::ones([3]))).unwrap_err().to_string();
    assert!(text.contains("the function must give one float, not f32[3]"), "{text}");
    assert!(text.contains("tests/transforms.rs"), "{text}");
    let text =
        catch(|| grad(|x: &Tensor| x.argmax(0))(&Tensor::ones([3]))).unwrap_err().to_string();
    assert!(text.contains("not i64[]"), "{text}");
    let text = catch(|| jvp(|x: &Tensor| x * 2.0, &Tensor::ones([3]), &Tensor::ones([2])).1)
        .unwrap_err()
        .to_string();
    assert!(text.contains("the direction for f32[3] is f32[2]"), "{text}");
}
