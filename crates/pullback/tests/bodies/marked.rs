//! Tensors that a compiled function marks as requiring grad: the caller's stay marked, so such
//! calls run op by op.

use pullback::{Result, Tensor, catch, cond, enable_grad, jit, no_grad, scan, vmap};

type Step = fn(&Tensor) -> Result<Tensor>;

/// Three calls of the function on one tensor, as it is and compiled, and why the compiled one went
/// op by op.
fn three(f: Step) -> ([Vec<f64>; 3], [Vec<f64>; 3], Option<&'static str>) {
    let (x, y) = (Tensor::from([1.0, 2.0]), Tensor::from([1.0, 2.0]));
    let eager = [(); 3].map(|()| f(&x).unwrap().to_vec::<f64>());
    let compiled = jit(f);
    let by_jit = [(); 3].map(|()| compiled.call(&y).unwrap().to_vec::<f64>());
    assert_eq!(x.is_leaf(), y.is_leaf());
    (eager, by_jit, compiled.explain().uncompiled.1)
}

#[test]
fn a_marked_argument_accumulates() {
    let step: Step = |x| {
        let x = x.clone().requires_grad();
        x.square().sum().backward()?;
        Ok(x.grad().unwrap().deep_clone())
    };
    let (eager, compiled, why) = three(step);
    assert_eq!(eager, [vec![2.0, 4.0], vec![4.0, 8.0], vec![6.0, 12.0]]);
    assert_eq!(eager, compiled);
    assert!(why.is_some(), "{why:?}");

    // The first call says why, before the argument is tracked.
    let compiled = jit(step);
    compiled.call(&Tensor::from([1.0, 2.0])).unwrap();
    let text = compiled.explain().to_string();
    assert!(text.contains("it marks a tensor of its caller as requiring grad"), "{text}");
}

#[test]
fn so_does_one_that_is_marked_in_place_or_by_a_view_that_is_itself() {
    let switched: Step = |x| {
        x.set_requires_grad(true);
        x.square().sum().backward()?;
        Ok(x.grad().unwrap().deep_clone())
    };
    let same: Step = |x| {
        let x = x.reshape([2]).requires_grad();
        x.square().sum().backward()?;
        Ok(x.grad().unwrap().deep_clone())
    };
    for f in [switched, same] {
        let (eager, compiled, _) = three(f);
        assert_eq!(eager, compiled);
    }
}

#[test]
fn tensors_of_the_function_stay_compiled() {
    let detached: Step = |x| {
        let x = x.detach().requires_grad();
        x.square().sum().backward()?;
        Ok(x.grad().unwrap())
    };
    let part: Step = |x| {
        let x = x.narrow(0, 0, 1).requires_grad();
        x.square().sum().backward()?;
        Ok(x.grad().unwrap())
    };
    let own: Step = |x| {
        let w = Tensor::from([3.0, 5.0]).requires_grad();
        (&w * x).sum().backward()?;
        Ok(w.grad().unwrap())
    };
    for f in [detached, part, own] {
        let (eager, compiled, why) = three(f);
        assert_eq!(eager, compiled);
        assert_eq!(why, None);
    }
}

#[test]
fn captured_tensors_that_are_marked_inside() {
    let gradients = |compile: bool| {
        let w = Tensor::from([1.0, 3.0]);
        let f = |x: &Tensor| {
            let w = w.clone().requires_grad();
            (&w * x).sum().backward()?;
            Ok::<_, pullback::Error>(w.grad().unwrap().deep_clone())
        };
        let step = jit(f);
        let x = Tensor::from([1.0, 2.0]);
        let call = |()| if compile { step.call(&x).unwrap() } else { f(&x).unwrap() };
        let all = [(); 3].map(call).map(|g| g.to_vec::<f64>());
        assert!(w.is_leaf());
        (all, w.grad().unwrap().to_vec::<f64>())
    };
    assert_eq!(gradients(true), gradients(false));

    // And frozen ones.
    let frozen = |compile: bool| {
        let w = Tensor::from([1.0, 3.0]).requires_grad();
        let f = |x: &Tensor| {
            w.set_requires_grad(false);
            (&w * x).sum()
        };
        let step = jit(f);
        let x = Tensor::from([1.0, 2.0]);
        let y = if compile { step.of(&x) } else { f(&x) };
        (y.item::<f64>(), y.is_tracked(), w.is_leaf())
    };
    assert_eq!(frozen(true), frozen(false));
    assert_eq!(frozen(true), (7.0, false, false));
}

#[test]
fn inside_bodies() {
    let marked = |x: &Tensor| {
        let x = x.clone().requires_grad();
        x.square().sum().backward().unwrap();
        x.grad().unwrap().deep_clone()
    };
    // Each example is a tensor of its own, as each row of a loop is.
    let b = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    assert_eq!(vmap(marked, 0, 0)(&b).to_vec::<f64>(), [2.0, 4.0, 6.0, 8.0]);
    let rows = |b: &Tensor| {
        scan(|s: &Tensor, x: &Tensor| (s + marked(x), ()), &Tensor::zeros([2]).cast(b.dtype()), b).0
    };
    let compiled = jit(rows);
    assert_eq!(compiled.of(&b).to_vec::<f64>(), rows(&b).to_vec::<f64>());
    assert_eq!(compiled.explain().uncompiled.0, 0);

    // The operand of a branch, or the state of a loop, is the caller's tensor: compiled calls run
    // op by op, and where there is no way to, it is refused.
    let chosen = move |x: &Tensor| cond(&x.sum().gt(0.0), marked, |x| x * 2.0, x);
    let (x, y) = (Tensor::from([1.0, 2.0]), Tensor::from([1.0, 2.0]));
    let compiled = jit(chosen);
    for _ in 0..3 {
        assert_eq!(compiled.of(&x).to_vec::<f64>(), chosen(&y).to_vec::<f64>());
    }
    assert!(compiled.explain().uncompiled.1.is_some());
    let error = catch(|| vmap(chosen, 0, 0)(&b)).unwrap_err().to_string();
    assert!(error.contains("an argument of a body of cond is marked"), "{error}");
    let w = Tensor::from([1.0, 2.0]);
    let error = catch(|| vmap(|x: &Tensor| marked(&w) + x, 0, 0)(&b)).unwrap_err().to_string();
    assert!(error.contains("a tensor that a body of vmap captures is marked"), "{error}");
    assert!(!w.is_leaf());
}

#[test]
fn calls_inside_no_grad() {
    // A leaf that is passed inside no_grad is a plain argument, until the function asks for its
    // gradient or switches recording on.
    let run = |compile: bool, f: Step| {
        let x = Tensor::from([1.0, 2.0]).requires_grad();
        x.sum().backward().unwrap();
        let step = jit(f);
        let y = no_grad(|| if compile { step.call(&x).unwrap() } else { f(&x).unwrap() });
        (y.to_vec::<f64>(), x.grad().map(|g| g.to_vec::<f64>()), y.is_tracked())
    };
    let asks: Step = |x| Ok(x.grad().map_or_else(|| x * 0.0, |g| g + x));
    let clears: Step = |x| {
        x.zero_grad();
        Ok(x * 2.0)
    };
    let lifts: Step = |x| Ok(enable_grad(|| x * 2.0));
    let passes: Step = |x| {
        enable_grad(|| x.square().sum()).backward()?;
        Ok(x * 2.0)
    };
    for f in [asks, clears, lifts, passes] {
        assert_eq!(run(true, f), run(false, f));
    }
    let plain = jit(|x: &Tensor| x * 2.0);
    no_grad(|| plain.of(&Tensor::from([1.0]).requires_grad()));
    assert_eq!(plain.explain().uncompiled.0, 0);
}
