//! Modules with state inside transforms: what a forward pass writes to buffers is kept, and what
//! cannot be kept is refused at the user's line.

use pullback::{
    DType, Tensor, Tree, catch, grad, hessian, jacfwd, jacobian, jacrev, jit, jvp, no_grad,
    value_and_grad, vjp, vmap,
};
use pullback_nn::{
    BatchNorm1d, Dropout, InstanceNorm1d, Layer, Linear, Module, Relu, Sequential, SpectralNorm,
    functional_call,
};

/// The same numbers at every call: the global generator is everybody's, and tests run side by side.
fn net() -> Sequential {
    let net = Sequential::new()
        .then(Linear::new(3, 4))
        .then(BatchNorm1d::new(4))
        .then(Relu)
        .then(Linear::new(4, 1));
    for (k, p) in net.parameters().iter().enumerate() {
        let value = |i: usize| ((i + 7 * k) as f32 * 0.83).sin() * 0.5;
        let values: Vec<f32> = (0..p.len()).map(value).collect();
        no_grad(|| p.copy_(Tensor::from_vec(values, p.shape())));
    }
    net
}

fn data() -> Tensor {
    let values: Vec<f32> = (0..24).map(|i| (i as f32 * 0.37).sin()).collect();
    Tensor::from_vec(values, [8, 3])
}

fn close(a: &Tensor, b: &Tensor) -> bool {
    a.is_close(b, 1e-5, 1e-6, false).all().item::<bool>()
}

/// The gradients and buffers that backward leaves.
fn by_backward() -> (Vec<Tensor>, Vec<(String, Tensor)>) {
    let net = net();
    net.forward(&data()).square().mean().backward().unwrap();
    (net.parameters().iter().map(|p| p.grad().unwrap()).collect(), net.named_buffers())
}

fn loss(net: &Sequential) -> Tensor {
    net.forward(&data()).square().mean()
}

#[track_caller]
fn same_buffers(net: &Sequential, wanted: &[(String, Tensor)]) {
    for ((name, x), (_, y)) in net.named_buffers().iter().zip(wanted) {
        assert_eq!(x.to_f64_vec(), y.to_f64_vec(), "{name}");
    }
}

#[test]
fn grad_over_a_module_keeps_its_statistics() {
    let (wanted, buffers) = by_backward();
    let net = net();
    let (value, g) = value_and_grad(loss)(&net);
    assert!(value.item::<f32>() > 0.0);
    for (g, wanted) in g.parameters().iter().zip(&wanted) {
        assert!(close(g, wanted), "{g} {wanted}");
    }
    // Written to the module's own, and no gradient of theirs.
    same_buffers(&net, &buffers);
    assert!(g.named_buffers().iter().all(|(_, x)| x.to_f64_vec().iter().all(|v| *v == 0.0)));
    assert_eq!(net.named_buffers()[2].1.item::<i64>(), 1);
    // Nothing is left of the graph.
    assert!(net.named_buffers().iter().all(|(_, x)| !x.is_tracked()));
}

#[test]
fn every_transform_of_a_module_keeps_its_statistics() {
    let (_, buffers) = by_backward();
    type Run<'a> = (&'a str, &'a dyn Fn(&Sequential));
    let runs: [Run; 5] = [
        ("grad", &|net| drop(grad(loss)(net))),
        ("vjp", &|net| {
            let (y, pullback) = vjp(loss, net);
            drop(pullback(&y.ones_like()));
        }),
        ("jvp", &|net| {
            let direction = net.map(&mut |x| x.detach().ones_like());
            drop(jvp(loss, net, &direction));
        }),
        ("jit", &|net| {
            let step = jit(|x: &Tensor| {
                let loss = |net: &Sequential| net.forward(x).square().mean();
                grad(loss)(net).parameters()[0].sum()
            });
            drop(step.of(&data()));
        }),
        ("nested", &|net| {
            let inner = |net: &Sequential| grad(loss)(net).parameters()[0].square().sum();
            drop(grad(inner)(net));
        }),
    ];
    for (name, run) in runs {
        let net = net();
        run(&net);
        same_buffers(&net, &buffers);
        assert_eq!(net.named_buffers()[2].1.item::<i64>(), 1, "{name}");
    }
}

#[test]
fn forward_and_reverse_mode_agree_on_a_module() {
    let (net, other) = (net(), net());
    let direction = net.map(&mut |x| x.detach().ones_like());
    let (_, along) = jvp(loss, &net, &direction);
    let g = grad(loss)(&other);
    let sum: f64 = g.parameters().iter().map(|g| g.to_f64_vec().iter().sum::<f64>()).sum();
    assert!((along.item::<f32>() as f64 - sum).abs() < 1e-4 * sum.abs().max(1.0));
}

#[test]
fn other_layers_with_state() {
    let net = (
        InstanceNorm1d::new(2).track_running_stats(),
        SpectralNorm::new(Linear::new(3, 3)),
        Dropout::new(0.5),
    );
    let before = net.named_buffers().iter().map(|(_, x)| x.to_f64_vec()).collect::<Vec<_>>();
    let x = data().reshape([4, 2, 3]);
    let g =
        grad(|net: &(InstanceNorm1d, SpectralNorm<Linear>, Dropout)| net.forward(&x).sum())(&net);
    assert!(g.1.original.to_f64_vec().iter().any(|v| *v != 0.0));
    let after = net.named_buffers().iter().map(|(_, x)| x.to_f64_vec()).collect::<Vec<_>>();
    assert_ne!(before, after);
}

#[derive(Tree)]
struct Running {
    weight: Tensor,
    #[tree(buffer)]
    mean: Tensor,
    #[tree(buffer)]
    calls: Tensor,
}

fn running() -> Running {
    Running { weight: Tensor::from(2.0), mean: Tensor::from(0.0), calls: Tensor::from(0i64) }
}

impl Running {
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = x * &self.weight;
        no_grad(|| {
            self.mean.copy_(y.mean());
            self.calls.add_(1);
        });
        y
    }
}

#[test]
fn a_buffer_that_is_written_while_recording_is_a_constant_afterwards() {
    let model = running();
    let f = |m: &Running| {
        let y = &m.weight * 3.0;
        m.mean.copy_(&y);
        (y * &m.mean).sum()
    };
    // Inside, the write has its derivative: 9w² at 2.
    assert_eq!(grad(f)(&model).weight.item::<f64>(), 36.0);
    assert_eq!(model.mean.item::<f64>(), 6.0);
    assert!(!model.mean.is_tracked());
    assert_eq!(grad(f)(&model).weight.item::<f64>(), 36.0);
}

#[test]
fn a_buffer_that_is_the_result_keeps_its_derivative() {
    let f = |m: &Running| {
        m.mean.copy_(m.weight.square());
        m.mean.clone()
    };
    let model = running();
    let (value, g) = value_and_grad(f)(&model);
    assert_eq!((value.item::<f64>(), g.weight.item::<f64>()), (4.0, 4.0));
    let (y, pullback) = vjp(f, &model);
    assert_eq!(pullback(&y.ones_like()).weight.item::<f64>(), 4.0);
    let one = Tensor::from(1.0);
    let direction = Running { weight: one.clone(), mean: one, calls: Tensor::from(0i64) };
    let (_, along) = jvp(f, &model, &direction);
    assert_eq!(along.item::<f64>(), 4.0);
    assert!(!model.mean.is_tracked());
}

#[test]
fn mapped_buffers_are_what_each_example_wrote() {
    let f = |(m, x): &(Running, Tensor)| m.forward(x).sum();
    let x = Tensor::from([[1.0, 2.0], [3.0, 5.0]]);
    // A mean for each example, a count for all: that is the same for each.
    let model = Running { mean: Tensor::from([0.0, 0.0]), ..running() };
    let mapped = vmap(f, [None, Some(0), None, Some(0)], 0);
    let pair = (model, x);
    assert_eq!(mapped(&pair).to_vec::<f64>(), [6.0, 16.0]);
    assert_eq!(pair.0.mean.to_vec::<f64>(), [3.0, 8.0]);
    assert_eq!(pair.0.calls.item::<i64>(), 1);
    // The gradient of each example, with the same state.
    let each = |(m, x): &(Running, Tensor)| grad(|m: &Running| m.forward(x).sum())(m).weight;
    assert_eq!(vmap(each, [None, Some(0), None, Some(0)], 0)(&pair).to_vec::<f64>(), [3.0, 8.0]);
    assert_eq!(pair.0.calls.item::<i64>(), 2);
}

#[test]
fn a_shared_buffer_that_differs_between_examples_is_refused() {
    let f = |(m, x): &(Running, Tensor)| m.forward(x).sum();
    let pair = (running(), Tensor::from([[1.0, 2.0], [3.0, 5.0]]));
    let line = line!() + 1;
    let text = catch(|| vmap(f, [None, None, None, Some(0)], 0)(&pair)).unwrap_err().to_string();
    assert!(text.contains("the buffer f64[] is shared by all examples"), "{text}");
    assert!(text.contains(&format!("tests/transforms_of_modules.rs:{line}")), "{text}");
    assert!(text.contains("in_axes") && text.contains("eval"), "{text}");
    assert_eq!((pair.0.mean.item::<f64>(), pair.0.calls.item::<i64>()), (0.0, 0));
}

#[test]
fn errors_of_batch_norm_name_the_users_line() {
    let norm = BatchNorm1d::new(3);
    let x = Tensor::zeros([2, 4, 3]);
    // Captured by the mapped function, so it cannot be written there.
    let line = line!() + 1;
    let text = catch(|| vmap(|x: &Tensor| norm.forward(x), 0, 0)(&x)).unwrap_err().to_string();
    assert!(text.contains("written in place inside vmap"), "{text}");
    assert!(text.contains(&format!("tests/transforms_of_modules.rs:{line}")), "{text}");
    assert!(!text.contains("src/layers"), "{text}");
}

#[test]
fn a_functional_call_returns_the_new_buffers() {
    let net = net();
    let (_, buffers) = by_backward();
    let (_, new) = functional_call(&net, &[], |m| m.forward(&data())).unwrap();
    for ((name, x), (_, y)) in new.iter().zip(&buffers) {
        assert_eq!(x.to_f64_vec(), y.to_f64_vec(), "{name}");
    }
    assert_eq!(net.named_buffers()[2].1.item::<i64>(), 0);
    // Other parameters, and a gradient with respect to them.
    let weight = ("3.weight".to_string(), Tensor::zeros([1, 4]));
    let f = |w: &Tensor| {
        let state = [("3.weight".to_string(), w.clone())];
        functional_call(&net, &state, |m| m.forward(&data()).sum()).unwrap().0
    };
    assert_eq!(grad(f)(&weight.1).shape(), [1, 4]);
    // Statistics of each of two groups of examples: an argument and a result.
    let norm = BatchNorm1d::new(3);
    let groups = data().reshape([2, 4, 3]);
    let each = |(mean, x): &(Tensor, Tensor)| {
        let state = [("running_mean".to_string(), mean.clone())];
        let (y, new) = functional_call(&norm, &state, |m| m.forward(x)).unwrap();
        (y, new[0].1.clone())
    };
    let (y, means) = vmap(each, 0, 0)(&(Tensor::zeros([2, 3]), groups.clone()));
    assert_eq!((y.shape(), means.shape()), (&[2, 4, 3][..], &[2, 3][..]));
    assert!(close(&means, &(groups.mean_over(1) * 0.1)));
    let text = functional_call(&net, &[("3.wait".into(), weight.1.clone())], |_| ()).unwrap_err();
    assert!(text.to_string().contains("no `3.wait`; it has 0.weight"), "{text}");
    let text = functional_call(&net, &[("0.weight".into(), weight.1)], |_| ()).unwrap_err();
    assert!(text.to_string().contains("`0.weight` is f32[4,3], not f32[1,4]"), "{text}");
    assert_eq!(means.dtype(), DType::F32);
}

#[test]
fn a_functional_call_says_which_names_do_not_fit() {
    #[derive(Tree)]
    struct Tied {
        first: Linear,
        second: Linear,
    }
    let first = Linear::new(2, 2);
    let net = Tied { second: Linear { weight: first.weight.clone(), bias: None }, first };
    let called = |names: &[&str], x: Tensor| {
        let state: Vec<_> = names.iter().map(|name| (name.to_string(), x.clone())).collect();
        let line = line!() + 1;
        let error = functional_call(&net, &state, |_| ()).map(drop).expect_err("a sentence");
        assert_eq!(error.location().unwrap().line(), line, "{error}");
        error.to_string()
    };
    let x = || Tensor::zeros([2, 2]);
    let text = called(&["first.weight", "first.weight"], x());
    assert!(text.contains("`first.weight` is given twice"), "{text}");
    let text = called(&["second.weight"], x());
    assert!(text.contains("`second.weight` is tied to `first.weight`"), "{text}");
    let text = called(&["second.bias"], x());
    assert!(text.contains("has no `second.bias`; it has first.weight, first.bias"), "{text}");
    let text = called(&["first.weight"], x().cast(DType::F64));
    assert!(text.contains("`first.weight` is f32[2,2], not f64[2,2]"), "{text}");
}

/// Statistics after a whole derivative are those after one forward pass.
#[test]
fn jacobians_of_a_captured_module_update_statistics_once() {
    let x = data();
    let wanted = net();
    let _ = wanted.forward(&x);
    let wanted = wanted.named_buffers();
    let by_rows = jacrev(|x: &Tensor| net().forward(x))(&x);
    for compile in [false, true] {
        let run = |name: &str, f: &dyn Fn(&Sequential, &Tensor) -> Tensor| {
            let net = net();
            let found = match compile {
                true => jit(|x: &Tensor| f(&net, x)).of(&x),
                false => f(&net, &x),
            };
            for ((part, x), (_, y)) in net.named_buffers().iter().zip(&wanted) {
                let same =
                    x.to_f64_vec().iter().zip(y.to_f64_vec()).all(|(a, b)| (a - b).abs() < 1e-6);
                assert!(same, "{name}, compiled {compile}: {part} is {x}, not {y}");
            }
            found
        };
        let rows = run("jacrev", &|net, x| jacrev(|x: &Tensor| net.forward(x))(x));
        assert!(close(&rows, &by_rows));
        let columns = run("jacfwd", &|net, x| jacfwd(|x: &Tensor| net.forward(x))(x));
        assert!(close(&columns, &by_rows));
        let either = run("jacobian", &|net, x| jacobian(|x: &Tensor| net.forward(x))(x));
        assert!(close(&either, &by_rows));
        run("hessian", &|net, x| hessian(|x: &Tensor| net.forward(x).square().mean())(x));
    }
}
