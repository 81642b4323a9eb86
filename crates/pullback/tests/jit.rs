//! Compiled functions beside the functions themselves.

use pullback::backend::synchronize;
use pullback::{
    DType, Key, Tensor, cond, cross_entropy, default_device, grad, hessian, jit, jvp, manual_seed,
    no_grad, scan, update, vmap, while_loop, while_loop_bounded,
};

fn sample(shape: &[usize], seed: u64) -> Tensor {
    Key::new(seed).normal(shape, DType::F64, 0.0, 1.0)
}

fn same(a: &Tensor, b: &Tensor) {
    assert_eq!(a.spec(), b.spec());
    let bits = |x: &Tensor| x.to_vec::<f64>().into_iter().map(f64::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(a), bits(b), "{a} is not {b}");
}

fn close(a: &Tensor, b: &Tensor) {
    assert_eq!(a.spec(), b.spec());
    let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
    let largest = b.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    for (x, y) in a.iter().zip(&b) {
        assert!((x - y).abs() <= 1e-12 * largest, "{a:?} is not {b:?}");
    }
}

#[test]
fn pointwise_chains_are_bit_equal() {
    let f = |(x, a): &(Tensor, Tensor)| ((x * a + 0.5).gelu() * a.sigmoid()).tanh() - x.exp() / 3.0;
    let x = (sample(&[7, 33], 1), sample(&[33], 2));
    let compiled = jit(f);
    same(&compiled.call(&x).unwrap(), &f(&x));
    compiled.check(&x).unwrap();
}

#[test]
fn gradients_of_pure_functions() {
    let w = sample(&[5, 3], 3);
    let loss = |x: &Tensor| x.matmul(&w).softmax(-1).log().square().mean();
    let x = sample(&[4, 5], 4);
    close(&jit(grad(loss)).call(&x).unwrap(), &grad(loss)(&x));
    let f = |x: &Tensor| hessian(|x: &Tensor| x.powi(3).sum() * x.sin().sum())(x);
    let x = sample(&[6], 5);
    close(&jit(f).call(&x).unwrap(), &f(&x));
    let f = |(x, t): &(Tensor, Tensor)| jvp(|x: &Tensor| x.sin().cumsum(0), x, t);
    let arg = (x.clone(), sample(&[6], 6));
    let (a, b) = (jit(f).call(&arg).unwrap(), f(&arg));
    close(&a.0, &b.0);
    close(&a.1, &b.1);
    let each = |x: &Tensor| vmap(|x: &Tensor| grad(|x: &Tensor| x.tanh().prod())(x), 0, 0)(x);
    let x = sample(&[3, 4], 7);
    close(&jit(each).call(&x).unwrap(), &each(&x));
}

#[test]
fn grad_of_jit_is_not_cut() {
    let f = jit(|x: &Tensor| x.sin().sum());
    let x = sample(&[4], 8);
    same(&grad(|x: &Tensor| f.of(x))(&x), &x.cos());
    let w = sample(&[4], 9).requires_grad();
    let g = jit(|x: &Tensor| (x * &w).sum());
    g.of(&x).backward().unwrap();
    same(&w.grad().unwrap(), &x);
    assert!(g.explain().to_string().contains("op by op"), "{}", g.explain());
    let nested = jit(|x: &Tensor| f.of(&(x * 2.0)));
    close(&nested.of(&x), &(&x * 2.0).sin().sum());
}

/// Two layers, cross entropy, Adam: the parameters after some steps.
fn train(compiled: bool, steps: usize) -> (Vec<Tensor>, Vec<f64>) {
    manual_seed(5);
    let w1 = (sample(&[8, 16], 10) * 0.3).requires_grad();
    let w2 = (sample(&[16, 3], 11) * 0.3).requires_grad();
    let b1 = Tensor::zeros_with([16], DType::F64).requires_grad();
    let params = [&w1, &b1, &w2];
    let moments = params.map(|p| [p.detach().zeros_like(), p.detach().zeros_like()]);
    let count = Tensor::from([0i64]).reshape(&[] as &[usize]).deep_clone();
    let (adam, rate) = (update::Adam::default(), Tensor::from(0.01));
    let step = |(x, y): &(Tensor, Tensor)| {
        params.iter().for_each(|p| p.zero_grad());
        let hidden = (x.matmul(&w1) + &b1).relu();
        let hidden = hidden.dropout(0.1, Some(&pullback::next_key()));
        let loss = cross_entropy(&hidden.matmul(&w2), y);
        loss.backward()?;
        no_grad(|| count.add_(1));
        for (p, [mean, square]) in params.iter().zip(&moments) {
            let state = update::Moments { mean, square, largest: None };
            no_grad(|| update::adam_(&adam, &rate, p, &p.grad().unwrap(), state, &count));
        }
        Ok(loss)
    };
    let fast = jit(step);
    let mut losses = Vec::new();
    for i in 0..steps {
        let x = sample(&[12, 8], 20 + i as u64);
        let y = Tensor::from((0..12).map(|k| (k * 7 + i as i64) % 3).collect::<Vec<i64>>());
        let loss: pullback::Result<Tensor> =
            if compiled { fast.call(&(x, y)) } else { step(&(x, y)) };
        losses.push(loss.unwrap().item::<f64>());
    }
    if compiled {
        assert_eq!(fast.explain().specialisations.len(), 1, "{}", fast.explain());
    }
    let grads = params.iter().map(|p| p.grad().expect("a gradient after the step"));
    (params.iter().map(|p| p.detach()).chain(grads).collect(), losses)
}

#[test]
fn a_whole_training_step_is_what_it_is_eagerly() {
    let ((fast, fast_losses), (slow, slow_losses)) = (train(true, 6), train(false, 6));
    for (a, b) in fast_losses.iter().zip(&slow_losses) {
        assert!((a - b).abs() < 1e-12, "{fast_losses:?} is not {slow_losses:?}");
    }
    for (a, b) in fast.iter().zip(&slow) {
        close(a, b);
    }
}

#[test]
fn gradients_accumulate_as_they_do_eagerly() {
    let w = sample(&[3], 12).requires_grad();
    let step = jit(|x: &Tensor| -> pullback::Result<()> { (x * &w).sum().backward() });
    let x = sample(&[3], 13);
    for turn in 1..=4 {
        step.call(&x).unwrap();
        close(&w.grad().unwrap(), &(&x * turn as f64));
    }
    let told = step.explain();
    assert_eq!(told.specialisations.len(), 2, "{told}");
    assert!(told.to_string().contains("a leaf has a gradient now"), "{told}");
    w.zero_grad();
    step.call(&x).unwrap();
    close(&w.grad().unwrap(), &x);
}

#[test]
fn specialisations_are_cached_by_specs_and_explained() {
    let f = jit(|x: &Tensor| x.exp().sum());
    for n in [3, 3, 5, 3, 5] {
        f.call(&sample(&[n], 14)).unwrap();
    }
    let told = f.explain();
    assert_eq!(told.specialisations.len(), 2);
    assert_eq!(told.specialisations[0].calls.0, 3);
    let text = told.to_string().replace("@cuda:0", "");
    for word in [
        "the first call",
        "tensor 0 of the argument is f64[5], f64[3] before",
        "fuse",
        "kernels",
        "peak memory",
    ] {
        assert!(text.contains(word), "no `{word}` in\n{text}");
    }
}

#[test]
fn state_is_written_in_its_own_memory() {
    let state = sample(&[4], 15);
    let part = state.narrow(0, 1, 2);
    let before = state.to_vec::<f64>();
    let step = jit(|x: &Tensor| {
        part.add_(x);
        state.sum()
    });
    let x = Tensor::from([1.0, 2.0]);
    let total = step.of(&x).item::<f64>();
    let now = state.to_vec::<f64>();
    assert_eq!(now, [before[0], before[1] + 1.0, before[2] + 2.0, before[3]]);
    assert!((total - now.iter().sum::<f64>()).abs() < 1e-12);
    // The argument may be the state itself.
    let twice = jit(|x: &Tensor| {
        state.add_(x.flip([0]));
        x.sum()
    });
    let expected: Vec<f64> = (0..4).map(|i| now[i] + now[3 - i]).collect();
    twice.of(&state);
    assert_eq!(state.to_vec::<f64>(), expected);
}

#[test]
fn control_flow() {
    let x = sample(&[5, 3], 16);
    let w = sample(&[3], 17);
    let f = |x: &Tensor| {
        let (last, ys) =
            scan(|s: &Tensor, x: &Tensor| ((s * &w + x).tanh(), s.sum()), &x.select_at(0, 0), x);
        let y = cond(&last.sum().gt(0.0), |y: &Tensor| y * 2.0, |y| y - 1.0, &last);
        let z = while_loop(|s: &Tensor| s.abs().sum().lt(10.0), |s| s * 1.5 + 0.1, &y);
        (z, ys)
    };
    let (a, b) = (jit(f).call(&x).unwrap(), f(&x));
    close(&a.0, &b.0);
    close(&a.1, &b.1);
    let loss = |x: &Tensor| {
        let (s, ys) =
            scan(|s: &Tensor, x: &Tensor| ((s * &w + x).tanh(), s * x), &x.select_at(0, 0), x);
        let s = while_loop_bounded(6, |s: &Tensor| s.abs().sum().lt(4.0), |s| s * 1.5, &s);
        s.square().sum()
            + ys.sum()
            + cond(&s.sum().gt(0.0), |s: &Tensor| s.exp().sum(), |s| s.cos().sum(), &s)
    };
    close(&jit(grad(loss)).call(&x).unwrap(), &grad(loss)(&x));
    let second = |x: &Tensor| grad(|x: &Tensor| grad(loss)(x).square().sum())(x);
    close(&jit(second).call(&x).unwrap(), &second(&x));
    let push = |x: &Tensor| jvp(loss, x, x);
    close(&jit(push).call(&x).unwrap().1, &push(&x).1);
    let over_w = |w: &Tensor| {
        scan(
            |s: &Tensor, x: &Tensor| ((s * w + x).tanh(), ()),
            &Tensor::zeros_with([3], DType::F64),
            &x,
        )
        .0
        .sum()
    };
    close(&jit(grad(over_w)).call(&w).unwrap(), &grad(over_w)(&w));
    let each = |x: &Tensor| {
        vmap(
            |r: &Tensor| while_loop(|s: &Tensor| s.sum().lt(3.0), |s| s.abs() * 2.0 + 0.1, r),
            0,
            0,
        )(x)
    };
    close(&jit(each).call(&x).unwrap(), &each(&x));
}

#[test]
fn errors_point_to_the_users_line_and_leave_state_alone() {
    let state = sample(&[3], 18);
    let before = state.to_vec::<f64>();
    let line = line!() + 3;
    let f = jit(|i: &Tensor| {
        let table = &state * 2.0;
        let picked = table.index_select(0, i);
        state.add_(1.0);
        picked
    });
    // On a device that is not the host a failure is the error of the next wait.
    let failed = f.call(&Tensor::from([0i64, 7])).and_then(|_| synchronize(default_device()));
    let text = failed.unwrap_err().to_string();
    assert!(
        text.contains(&format!("tests/jit.rs:{line}:")) && text.contains("out of range"),
        "{text}"
    );
    assert_eq!(state.to_vec::<f64>(), before);
    assert!(f.call(&Tensor::from([0i64, 2])).is_ok());
    let error = jit(|x: &Tensor| x.matmul(&sample(&[7, 2], 0))).call(&sample(&[3], 1)).unwrap_err();
    assert!(error.to_string().contains("tests/jit.rs"), "{error}");
    let error = jit(|x: &Tensor| if x.sum().item::<f64>() > 0.0 { x.exp() } else { x.sin() })
        .call(&sample(&[3], 1));
    assert!(error.unwrap_err().to_string().contains("cond"));
}
