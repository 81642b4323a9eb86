//! What a compiled, mapped or looped function must not get wrong: structure and plain values of
//! arguments, gradients and state of every provenance, examples that go different ways, loops with
//! nothing to keep.

use pullback::{
    CustomOp, DType, Derivative, HostInput, HostOutput, Result, Spec, Tensor, Tree, catch, cond,
    custom_op, fori_loop, grad, hessian, jit, jvp, no_grad, scan, vmap, while_loop,
};
use std::sync::OnceLock;

fn values(x: &Tensor) -> Vec<f64> {
    x.to_vec::<f64>()
}

#[test]
fn loops_that_keep_nothing_have_gradients() {
    let f = |a: &Tensor| fori_loop(0, 3, |_, s: &Tensor| s * 2.0, a);
    assert_eq!(jit(grad(f)).of(&Tensor::from(1.0)).item::<f64>(), 8.0);
    assert_eq!(values(&vmap(grad(f), 0, 0)(&Tensor::from([1.0, 2.0]))), [8.0, 8.0]);
    let xs = Tensor::from([1.0, 2.0, 3.0]);
    let sum = |a: &Tensor| scan(|s: &Tensor, x: &Tensor| (s + x, s * 3.0), a, &xs).0;
    assert_eq!(jit(grad(sum)).of(&Tensor::from(1.0)).item::<f64>(), 1.0);
    let none = Tensor::zeros_with([0], DType::F64);
    let empty = |b: &Tensor| scan(|s: &Tensor, x: &Tensor| (s + x, ()), b, &none).0.sum();
    assert_eq!(grad(empty)(&Tensor::from(1.0)).item::<f64>(), 1.0);
}

#[derive(Tree)]
enum Choice {
    Twice(Tensor),
    Thrice(Tensor),
}

#[test]
fn plain_values_and_structure_are_part_of_what_is_compiled() {
    let x = Tensor::from([1.0, 2.0]);
    let scaled = jit(|(x, rate): &(Tensor, f64)| x * *rate);
    assert_eq!(values(&scaled.of(&(x.clone(), 10.0))), [10.0, 20.0]);
    assert_eq!(values(&scaled.of(&(x.clone(), 3.0))), [3.0, 6.0]);
    assert!(scaled.explain().to_string().contains("plain values"), "{}", scaled.explain());
    let all = |xs: &Vec<Tensor>| xs.iter().fold(Tensor::from(0.0), |sum, x| sum + x.sum());
    let parted = jit(move |(a, b): &(Vec<Tensor>, Vec<Tensor>)| all(a) - all(b));
    let [p, q, r] = [1.0, 10.0, 100.0].map(Tensor::from);
    assert_eq!(parted.of(&(vec![p.clone()], vec![q.clone(), r.clone()])).item::<f64>(), -109.0);
    assert_eq!(parted.of(&(vec![p, q], vec![r])).item::<f64>(), -89.0);
    let chosen = jit(|c: &Choice| match c {
        Choice::Twice(x) => x * 2.0,
        Choice::Thrice(x) => x * 3.0,
    });
    assert_eq!(values(&chosen.of(&Choice::Twice(x.clone()))), [2.0, 4.0]);
    assert_eq!(values(&chosen.of(&Choice::Thrice(x))), [3.0, 6.0]);
}

#[test]
fn a_write_to_an_argument_is_refused() {
    let x = Tensor::from([1.0]);
    let error = jit(|x: &Tensor| x.add_(1.0)).call(&x).unwrap_err();
    assert!(error.to_string().contains("argument"), "{error}");
    assert!(catch(|| vmap(|x: &Tensor| x.add_(1.0), 0, 0)(&x)).is_err());
    assert_eq!(values(&x), [1.0]);
}

#[test]
fn examples_that_go_different_ways_do_not_disturb_each_other() {
    let x = Tensor::from([4.0, -1.0, 0.0]);
    let f = |x: &Tensor| cond(&x.gt(0.0), |x| x.sqrt(), |x| x * 3.0, x);
    assert_eq!(values(&grad(|x: &Tensor| vmap(f, 0, 0)(x).sum())(&x)), [0.25, 3.0, 3.0]);
    assert_eq!(values(&vmap(grad(f), 0, 0)(&x)), [0.25, 3.0, 3.0]);
    let table = Tensor::from([10.0, 20.0, 30.0]);
    let at = |i: &Tensor| table.index_select(0, &i.reshape([1])).sum();
    let guarded = |i: &Tensor| cond(&i.lt(3), at, |_| Tensor::from(0.0), i);
    assert_eq!(values(&vmap(guarded, 0, 0)(&Tensor::from([0i64, 2, 5]))), [10.0, 30.0, 0.0]);
    assert_eq!(values(&vmap(guarded, 0, 0)(&Tensor::from([7i64, 8]))), [0.0, 0.0]);
    let walk = |k: &Tensor| {
        let state = (Tensor::from(0i64), Tensor::from(0.0));
        let step = |(i, s): &(Tensor, Tensor)| (i + k, s + at(i));
        while_loop(|(i, _): &(Tensor, Tensor)| i.lt(3), step, &state).1
    };
    assert_eq!(values(&vmap(walk, 0, 0)(&Tensor::from([1i64, 2, 4]))), [60.0, 40.0, 10.0]);
}

#[test]
fn gradients_may_lie_anywhere() {
    let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    let start = Tensor::from([[10.0, 20.0], [30.0, 40.0]]);
    let w = Tensor::zeros_with([2, 2], DType::F64).requires_grad();
    let step = jit(|x: &Tensor| -> Result<()> { (x * &w).sum().backward() });
    w.set_grad(Some(start.t()));
    step.call(&x).unwrap();
    assert_eq!(values(&w.grad().unwrap()), [11.0, 32.0, 23.0, 44.0]);
    let clip = jit(|c: &Tensor| {
        let g = w.grad().unwrap();
        no_grad(|| g.mul_(c));
    });
    let held = start.deep_clone();
    w.set_grad(Some(held.t()));
    clip.call(&Tensor::from(0.5)).unwrap();
    assert_eq!(values(&w.grad().unwrap()), [5.0, 15.0, 10.0, 20.0]);
    assert_eq!(values(&held), [5.0, 10.0, 15.0, 20.0]);

    let [a, b] = [(); 2].map(|()| Tensor::from([1.0, 1.0]).requires_grad());
    let shared = Tensor::from([0.0, 0.0]);
    a.set_grad(Some(shared.clone()));
    b.set_grad(Some(shared.clone()));
    let both = jit(|x: &Tensor| -> Result<()> { (x * &a + x * &b * 2.0).sum().backward() });
    for _ in 0..3 {
        both.call(&Tensor::from([1.0, 10.0])).unwrap();
    }
    assert_eq!(
        (values(&a.grad().unwrap()), values(&b.grad().unwrap())),
        (vec![3.0, 30.0], vec![6.0, 60.0])
    );

    let flat = Tensor::from([0.0, 0.0, 0.0, 7.0, 8.0, 9.0]);
    let v = Tensor::from([1.0, 1.0, 1.0]).requires_grad();
    v.set_grad(Some(flat.narrow(0, 3, 3)));
    jit(|x: &Tensor| -> Result<()> { (x * &v).sum().backward() })
        .call(&Tensor::from([1.0, 1.0, 1.0]))
        .unwrap();
    assert_eq!(values(&v.grad().unwrap()), [8.0, 9.0, 10.0]);
}

#[test]
fn a_gradient_that_is_state_too_is_read_before_it_is_written() {
    let (w, k, m) = (
        Tensor::from([1.0, 2.0]).requires_grad(),
        Tensor::from([3.0, 4.0]),
        Tensor::from([5.0, 6.0]),
    );
    w.set_grad(Some(Tensor::from([0.0, 0.0])));
    let step = jit(|x: &Tensor| -> Result<()> {
        (&w * x * &k).sum().backward()?;
        no_grad(|| m.mul_(0.5));
        Ok(())
    });
    let x = Tensor::from([1.0, 1.0]);
    step.call(&x).unwrap();
    w.set_grad(Some(m.clone()));
    step.call(&x).unwrap();
    assert_eq!(values(&w.grad().unwrap()), [2.5 + 3.0, 3.0 + 4.0]);
    assert_eq!(values(&m), [1.25, 1.5]);
}

#[test]
fn what_becomes_tracked_is_not_cut() {
    let (w, u, x) = (Tensor::from([2.0]).requires_grad(), Tensor::from([5.0]), Tensor::from([3.0]));
    let h = Tensor::from([0.0]);
    let write = jit(|x: &Tensor| {
        h.copy_(&w * x);
    });
    write.call(&x).unwrap();
    (&h * &u).sum().backward().unwrap();
    assert_eq!(values(&w.grad().unwrap()), [15.0]);
    w.zero_grad();
    let c = Tensor::from([1.0]);
    let times = jit(|x: &Tensor| x * &c);
    times.of(&x);
    c.mul_(&w);
    times.of(&x).sum().backward().unwrap();
    assert_eq!(values(&w.grad().unwrap()), [3.0]);
}

#[test]
fn effects_in_bodies_are_refused() {
    let w = Tensor::from([1.0]).requires_grad();
    w.set_grad(Some(Tensor::from([1.0])));
    let clear = |x: &Tensor| {
        w.zero_grad();
        x * 1.0
    };
    let error = jit(|x: &Tensor| cond(&x.sum().gt(0.0), clear, |x| x * 2.0, x))
        .call(&Tensor::from([1.0]))
        .unwrap_err();
    assert!(error.to_string().contains("captured"), "{error}");
    assert_eq!(values(&w.grad().unwrap()), [1.0]);
    let loss = |x: &Tensor| {
        (x * &w).sum().backward().unwrap();
        x.clone()
    };
    let error = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        vmap(loss, 0, 0)(&Tensor::from([[1.0]]))
    }));
    assert!(error.is_err());
}

#[test]
fn functions_that_call_themselves_or_are_differentiated_forwards() {
    let inner = jit(|x: &Tensor| x * 2.0);
    let outer = jit(|x: &Tensor| inner.of(&inner.of(x)));
    assert_eq!(outer.of(&Tensor::from(1.0)).item::<f64>(), 4.0);
    let c = Tensor::from(5.0);
    let f = |x: &Tensor| jit(|y: &Tensor| y * x).of(&c);
    assert_eq!(jvp(f, &Tensor::from(2.0), &Tensor::from(1.0)).1.item::<f64>(), 5.0);
    let count = Tensor::from(0.0);
    let counted = |x: &Tensor| {
        no_grad(|| count.add_(1.0));
        x.powi(3).sum()
    };
    assert_eq!(values(&hessian(counted)(&Tensor::from([1.0, 2.0]))), [6.0, 0.0, 0.0, 12.0]);
}

/// The derivative by `w`, at 2, of a function of it, eagerly and compiled.
fn by_two(f: impl Fn(&Tensor) -> Tensor) -> [f64; 2] {
    let w = Tensor::from(2.0);
    let compiled = jit(|w: &Tensor| grad(&f)(w));
    [grad(&f)(&w).item(), compiled.of(&w).item()]
}

/// Bodies are recorded, and differentiated where they are replayed: what was cut in them stays cut.
/// Each derivative is 12, and 24 without the cut.
#[test]
fn gradients_stop_inside_bodies_too() {
    let xs = Tensor::from([1.0, 2.0, 3.0]);
    let zero = Tensor::from(0.0);
    type Cut = fn(&Tensor, &Tensor) -> Tensor;
    let cuts: [(&str, Cut); 6] = [
        ("stop_gradient", |w, x| (w * x).stop_gradient()),
        ("detach", |w, x| (w * x).detach()),
        ("detach of a capture", |w, x| w.detach() * x),
        ("no_grad", |w, x| no_grad(|| w * x)),
        ("no_grad, a view", |w, x| no_grad(|| w.unsqueeze(0)).squeeze() * x),
        ("no_grad, written in place", |w, x| {
            no_grad(|| {
                let y = w * x * 0.5;
                y.mul_(2.0);
                y
            })
        }),
    ];
    for (name, cut) in cuts {
        let mapped = |w: &Tensor| vmap(|x: &Tensor| cut(w, x) * w, 0, 0)(&xs).sum();
        assert_eq!(by_two(mapped), [12.0; 2], "{name} in vmap");
        let iteration = |w: &Tensor, s: &Tensor, x: &Tensor| (s + cut(w, x) * w, ());
        let scanned = |w: &Tensor| scan(|s, x| iteration(w, s, x), &zero, &xs).0;
        assert_eq!(by_two(scanned), [12.0; 2], "{name} in scan");
        let six = Tensor::from(6.0);
        let chosen = |w: &Tensor| cond(&w.gt(0.0), |w: &Tensor| cut(w, &six) * w, Tensor::clone, w);
        assert_eq!(by_two(chosen), [12.0; 2], "{name} in cond");
        let nested = |w: &Tensor| {
            vmap(|x: &Tensor| scan(|s, x| iteration(w, s, x), &zero, &x.unsqueeze(0)).0, 0, 0)(&xs)
                .sum()
        };
        assert_eq!(by_two(nested), [12.0; 2], "{name} in scan in vmap");
        // Forward mode sees the same cut.
        let along = jvp(mapped, &Tensor::from(2.0), &Tensor::from(1.0)).1;
        assert_eq!(along.item::<f64>(), 12.0, "{name} forward");
    }
    // The library's own passes without recording cut nothing: a gradient inside a body can be
    // differentiated again.
    let inner =
        |w: &Tensor| vmap(|x: &Tensor| grad(|x: &Tensor| w * x.powi(3))(x), 0, 0)(&xs).sum();
    assert_eq!(by_two(inner), [3.0 * 14.0; 2]);
    // All of it inside no_grad: nothing is left.
    let outside = |w: &Tensor| no_grad(|| vmap(|x: &Tensor| w * x, 0, 0)(&xs).sum()) * w;
    assert_eq!(by_two(outside), [12.0; 2]);
}

/// Outside a body a detached tensor shares memory with what it was made of; inside it cannot, so a
/// write is refused rather than lost.
#[test]
fn a_write_through_a_cut_inside_a_body_is_refused() {
    let xs = Tensor::from([1.0, 2.0]);
    let write = |x: &Tensor| {
        let y = x * 2.0;
        y.detach().add_(1.0);
        y
    };
    let error = catch(|| vmap(write, 0, 0)(&xs)).unwrap_err();
    assert!(error.to_string().contains("a detached tensor"), "{error}");
    assert!(error.to_string().contains("compiled_traps.rs"), "{error}");
}

/// An op of the host that calls the compiled function which it is part of, on one element less.
struct Shorter;

type Compiled = Box<dyn Fn(&Tensor) -> Tensor + Send + Sync>;

static WHOLE: OnceLock<Compiled> = OnceLock::new();

impl CustomOp for Shorter {
    fn name(&self) -> &'static str {
        "shorter"
    }

    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(inputs.to_vec())
    }

    fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
        let x = inputs[0].as_slice::<f64>()?;
        let first = match (x.len(), WHOLE.get()) {
            (2.., Some(whole)) => values(&whole(&Tensor::from(x[1..].to_vec())))[0],
            _ => 0.0,
        };
        let y = outputs[0].as_mut_slice::<f64>()?;
        y.copy_from_slice(x);
        y[0] += first;
        Ok(())
    }

    fn derivative(&self) -> Derivative {
        Derivative::Refused("it has none")
    }
}

#[test]
fn a_compiled_function_may_be_called_from_inside_itself() {
    // The second device runs the op's code on its own thread, which cannot wait for itself.
    if pullback::default_device() != pullback::Device::Cpu {
        return;
    }
    let op = custom_op(Shorter);
    let whole = jit(move |x: &Tensor| op.call(&[&(x * 2.0)])[0].clone());
    assert!(WHOLE.set(Box::new(move |x| whole.of(x))).is_ok());
    // The inner call doubles what is doubled already: 2·1 + (2·4 + 2·12).
    let y = (WHOLE.get().unwrap())(&Tensor::from([1.0, 2.0, 3.0]));
    assert_eq!(values(&y), [2.0 + 8.0 + 24.0, 4.0, 6.0]);
}

#[test]
fn a_dynamic_length_without_a_limit_is_tried_at_lengths_that_can_be() {
    let f = jit(|x: &Tensor| x.square().sum()).dynamic(0, usize::MAX);
    for n in 2..6 {
        assert_eq!(f.of(&Tensor::full([n], 2.0)).item::<f64>(), 4.0 * n as f64);
    }
}

#[test]
fn kinds_of_arguments_are_as_limited_as_programs() {
    let f = jit(|(x, k): &(Tensor, i64)| x * *k as f64).cache_limit(8).dynamic(0, 64);
    for k in 0..100 {
        let _ = f.of(&(Tensor::full([3], 1.0), k));
    }
    assert!(f.explain().dynamic.len() <= 8);
}

#[test]
fn integers_and_buffers_have_no_second_derivatives() {
    let x = (Tensor::from([1.0, 2.0]), Tensor::from([3i64, 4]));
    let f = |(x, k): &(Tensor, Tensor)| (x.square() * k.cast(DType::F64)).sum();
    let ((xx, xk), (kx, kk)) = hessian(f)(&x);
    assert_eq!(values(&xx), [6.0, 0.0, 0.0, 8.0]);
    for zeros in [xk, kx, kk] {
        assert!(zeros.to_f64_vec() == [0.0; 4] && zeros.shape() == [2, 2], "{zeros}");
    }
}
