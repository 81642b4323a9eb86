//! Scans that are one op in eager code too: values, derivatives of all kinds, what is kept.

use pullback::{
    DType, Tensor, autocast, catch, checkpoint, grad, hvp, jit, jvp, kink_report, memory_budget,
    memory_report, no_grad, scan, scan_compiled, scan_reverse, scan_reverse_compiled,
    value_and_grad, vmap,
};
use std::cell::Cell;

type Weights = (Tensor, Tensor, Tensor);

/// A recurrence with a matrix product, two states, a broadcast row and a result of two tensors.
fn step((h, c): &(Tensor, Tensor), x: &Tensor, (w, u, b): &Weights) -> ((Tensor, Tensor), Tensor) {
    let gates = x.matmul(u) + h.matmul(w) + b;
    let parts = gates.chunk(2, -1);
    let c = c * parts[0].sigmoid() + parts[1].tanh();
    let h = c.tanh() * parts[1].sigmoid();
    ((h.clone(), c), h)
}

fn weights(dtype: DType) -> Weights {
    let draw = |shape: [usize; 2], seed: f64| {
        let n = shape[0] * shape[1];
        ((Tensor::linspace(seed, seed + 9.0, n) * 3.7).sin() * 0.4).cast(dtype).reshape(shape)
    };
    (draw([6, 12], 0.1), draw([5, 12], 0.7), draw([1, 12], 1.3))
}

fn rows(dtype: DType) -> Tensor {
    (Tensor::linspace(0.0, 20.0, 7 * 4 * 5) * 1.9).cos().cast(dtype).reshape([7, 4, 5])
}

/// The loss of a sequence in one or the other way, from the first or the last row on.
type LossFn<'a> = &'a dyn Fn(&(Weights, Tensor)) -> Tensor;

fn loss(of: &(Weights, Tensor), compiled: bool, reverse: bool) -> Tensor {
    let ((w, xs), dtype) = (of, of.1.dtype());
    let zeros = || Tensor::zeros_with([4, 6], dtype);
    let init = (zeros(), zeros() + 0.1);
    let body = |s: &(Tensor, Tensor), x: &Tensor| step(s, x, w);
    let ((_, c), ys) = match (compiled, reverse) {
        (true, true) => scan_reverse_compiled(body, &init, xs),
        (true, false) => scan_compiled(body, &init, xs),
        (false, true) => scan_reverse(body, &init, xs),
        (false, false) => scan(body, &init, xs),
    };
    ys.square().mean() + (c * 0.3).sum()
}

#[track_caller]
fn close(a: &Tensor, b: &Tensor, tolerance: f64) {
    assert_eq!(a.spec(), b.spec());
    let error = (a - b).abs().max().cast(DType::F64).item::<f64>();
    assert!(error <= tolerance, "{error}\n{a}\n{b}");
}

fn leaves(of: &(Weights, Tensor)) -> Vec<Tensor> {
    vec![of.0.0.clone(), of.0.1.clone(), of.0.2.clone(), of.1.clone()]
}

#[test]
fn values_and_gradients_are_those_of_a_scan() {
    for (dtype, tolerance) in [(DType::F64, 1e-13), (DType::F32, 2e-5)] {
        let at = (weights(dtype), rows(dtype));
        for reverse in [false, true] {
            let of = |compiled: bool| {
                value_and_grad(move |of: &(Weights, Tensor)| loss(of, compiled, reverse))(&at)
            };
            // Twice: the second call finds what the first one kept.
            let (want, wanted) = of(false);
            for _ in 0..2 {
                let (y, dy) = of(true);
                close(&y, &want, tolerance);
                for (a, b) in leaves(&dy).iter().zip(leaves(&wanted)) {
                    close(a, &b, tolerance);
                }
            }
        }
    }
}

#[test]
fn all_transforms_follow() {
    let at = (weights(DType::F64), rows(DType::F64));
    let along = (weights(DType::F64), rows(DType::F64) * 0.5);
    let second = |compiled: bool| {
        let f = move |of: &(Weights, Tensor)| loss(of, compiled, false);
        let twice = grad(move |of: &(Weights, Tensor)| {
            leaves(&grad(f)(of))
                .iter()
                .map(|g| g.square().sum())
                .fold(Tensor::from(0.0), |a, b| a + b)
        });
        let mut all = vec![jvp(f, &at, &along).1];
        all.extend(leaves(&hvp(f, &at, &along)));
        all.extend(leaves(&twice(&at)));
        let many = at.1.unsqueeze(0) * Tensor::from([1.0, 0.5, -1.0]).reshape([3, 1, 1, 1]);
        let w = at.0.clone();
        all.push(vmap(move |x: &Tensor| grad(|x: &Tensor| f(&(w.clone(), x.clone())))(x), 0, 0)(
            &many,
        ));
        all.extend(leaves(&jit(grad(f)).of(&at)));
        all
    };
    for (a, b) in second(true).iter().zip(second(false)) {
        close(a, &b, 1e-11);
    }
}

#[test]
fn leaves_collect_gradients_and_the_body_is_called_once() {
    let w = Tensor::from([0.5, -0.25]).requires_grad();
    let xs = Tensor::from([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    let calls = Cell::new(0);
    let run = |xs: &Tensor| {
        let body = |s: &Tensor, x: &Tensor| {
            calls.set(calls.get() + 1);
            ((s * &w + x).tanh(), ())
        };
        scan_compiled(body, &Tensor::from([0.0, 0.0]), xs).0.sum()
    };
    let expected = |w: &Tensor| {
        let body = |s: &Tensor, x: &Tensor| ((s * w + x).tanh(), ());
        grad(|w: &Tensor| {
            let body = |s: &Tensor, x: &Tensor| ((s * w + x).tanh(), ());
            scan(body, &Tensor::from([0.0, 0.0]), &xs).0.sum()
        })(w)
        .sum()
            + scan(body, &Tensor::from([0.0, 0.0]), &xs).0.sum() * 0.0
    };
    run(&xs).backward().unwrap();
    assert_eq!(calls.get(), 1);
    close(&w.grad().unwrap().sum(), &expected(&w.detach()), 1e-14);
    // What is captured may change between calls.
    no_grad(|| w.mul_(-2.0));
    w.zero_grad();
    run(&xs).backward().unwrap();
    close(&w.grad().unwrap().sum(), &expected(&w.detach()), 1e-14);
    // Rows of other layouts, among them one row for all.
    for xs in [xs.transpose(0, 1).contiguous().transpose(0, 1), xs.narrow(0, 0, 1).expand([3, 2])] {
        let dense = xs.deep_clone();
        assert_eq!(run(&xs).item::<f64>(), run(&dense).item::<f64>());
    }
    // Where single ops are observed, iteration by iteration.
    calls.set(0);
    kink_report(|| run(&xs));
    assert_eq!(calls.get(), 3);
}

#[test]
fn saved_values_may_be_recomputed_counted_or_narrow() {
    let (w, xs) = (weights(DType::F64), rows(DType::F64));
    let gradients = |f: LossFn| {
        let tracked = |x: &Tensor| x.deep_clone().requires_grad();
        let at = ((tracked(&w.0), tracked(&w.1), tracked(&w.2)), tracked(&xs));
        f(&at).backward().unwrap();
        leaves(&at).iter().map(|x| x.grad().unwrap()).collect::<Vec<_>>()
    };
    let plain = gradients(&|at| loss(at, true, false));
    let other: [LossFn; 3] = [
        &|at| checkpoint(|at: &(Weights, Tensor)| loss(at, true, false), at),
        &|at| memory_budget(1 << 20, || loss(at, true, false)),
        &|at| memory_report(|| Ok(loss(at, true, false))).unwrap().0,
    ];
    for f in other {
        for (a, b) in gradients(f).iter().zip(&plain) {
            assert_eq!(a.to_vec::<f64>(), b.to_vec::<f64>());
        }
    }
    let narrow = |compiled: bool| {
        let at = (weights(DType::F32), rows(DType::F32));
        autocast(DType::BF16, || value_and_grad(|at: &_| loss(at, compiled, false))(&at))
    };
    let ((y, dy), (want, wanted)) = (narrow(true), narrow(false));
    close(&y, &want, 2e-2);
    for (a, b) in leaves(&dy).iter().zip(leaves(&wanted)) {
        close(a, &b, 2e-2);
    }
}

#[test]
fn wrong_bodies_are_named() {
    let xs = Tensor::from([1.0, 2.0]);
    let reads = |s: &Tensor, x: &Tensor| {
        let y = if x.item::<f64>() > 0.0 { s + x } else { s - x };
        (y, ())
    };
    let error = catch(|| scan_compiled(reads, &Tensor::from(0.0), &xs).0).unwrap_err().to_string();
    assert!(error.contains("control_compiled.rs"), "{error}");
    let grows = |s: &Tensor, x: &Tensor| (s + x.reshape([1]), ());
    let error = catch(|| scan_compiled(grows, &Tensor::from(0.0), &xs).0).unwrap_err().to_string();
    assert!(error.contains("scan") && error.contains("control_compiled.rs"), "{error}");
}

#[test]
fn rows_that_were_overwritten_are_noticed() {
    let w = Tensor::from(0.5).requires_grad();
    let xs = Tensor::from([1.0, 2.0, 3.0]);
    let body = |s: &Tensor, x: &Tensor| ((s * &w * x).tanh(), ());
    let y = scan_compiled(body, &Tensor::from(1.0), &xs).0;
    xs.mul_(2.0);
    let error = y.backward().unwrap_err().to_string();
    assert!(error.contains("overwritten") || error.contains("modified"), "{error}");
}
