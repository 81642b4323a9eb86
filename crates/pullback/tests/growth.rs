//! Costs that grow as the work does: eight times as much of it takes about eight times as long, not
//! sixty-four.

use pullback::{
    DType, Flag, Spec, Tensor, Tree, cat, checkpoint, grad, jvp, no_grad, stack, trace,
    value_and_grad, vjp,
};
use std::time::Instant;

/// A size at which what grows with the square of it has long outgrown the rest.
const SMALL_SIZE: usize = 5_000;
const LARGE_SIZE: usize = 8 * SMALL_SIZE;

/// Whether the time for `LARGE_SIZE` is less than that of something quadratic, of several attempts
/// on a busy machine.
#[track_caller]
fn grows_with_the_work(what: &str, f: impl Fn(usize)) {
    let time = |n: usize| {
        let start = Instant::now();
        f(n);
        start.elapsed().as_secs_f64()
    };
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (few, many) = (time(SMALL_SIZE), time(LARGE_SIZE));
        if many < 15.0 * few {
            return;
        }
        seen.push(format!("{:.0} → {:.0} ms", few * 1e3, many * 1e3));
    }
    panic!("{what}: {}", seen.join(", "));
}

fn scalars(x: &Tensor, n: usize) -> Vec<Tensor> {
    (0..n).map(|i| x * (i as f64 / n as f64)).collect()
}

fn stacked(x: &Tensor, n: usize) -> Tensor {
    stack(&scalars(x, n).iter().collect::<Vec<_>>(), 0)
}

#[test]
fn many_scalars_stacked() {
    let x = Tensor::from(2.0).requires_grad();
    grows_with_the_work("forward", |n| assert_eq!(no_grad(|| stacked(&x, n)).len(), n));
    grows_with_the_work("backward", |n| stacked(&x, n).sum().backward().unwrap());
    grows_with_the_work("grad", |n| drop(grad(|x: &Tensor| stacked(x, n).sum())(&x.detach())));
    grows_with_the_work("jvp", |n| {
        drop(jvp(|x: &Tensor| stacked(x, n), &x.detach(), &Tensor::from(1.0)));
    });
    grows_with_the_work("grad of grad", |n| {
        let first = |x: &Tensor| grad(|x: &Tensor| stacked(x, n).square().sum())(x);
        assert!(grad(first)(&x.detach()).item::<f64>() > 0.0);
    });
}

#[test]
fn a_tree_of_many_leaves() {
    let leaves = |n: usize| vec![Tensor::from(0.5); n];
    let loss = |xs: &Vec<Tensor>| stack(&xs.iter().collect::<Vec<_>>(), 0).square().sum();
    grows_with_the_work("grad", |n| assert_eq!(grad(loss)(&leaves(n)).len(), n));
    grows_with_the_work("value_and_grad", |n| drop(value_and_grad(loss)(&leaves(n))));
    grows_with_the_work("vjp", |n| drop(vjp(loss, &leaves(n)).1(&Tensor::from(1.0))));
    grows_with_the_work("jvp", |n| drop(jvp(loss, &leaves(n), &leaves(n))));
    grows_with_the_work("grad of checkpoint", |n| {
        drop(grad(|xs: &Vec<Tensor>| checkpoint(loss, xs))(&leaves(n)));
    });
}

#[test]
fn many_parts_of_one_tensor() {
    let x = |n: usize| Tensor::full([n], 0.5f64).requires_grad();
    grows_with_the_work("elements", |n| {
        let x = x(n);
        let parts: Vec<Tensor> = (0..n as isize).map(|i| x.at(i)).collect();
        stack(&parts.iter().collect::<Vec<_>>(), 0).square().sum().backward().unwrap();
    });
    grows_with_the_work("split", |n| {
        let x = x(n);
        let parts = x.split(1, 0);
        cat(&parts.iter().rev().collect::<Vec<_>>(), 0).square().sum().backward().unwrap();
    });
    grows_with_the_work("elements added up", |n| {
        let x = x(n);
        let first = x.at(0);
        (1..n as isize).fold(first, |sum, i| sum + x.at(i)).backward().unwrap();
    });
    grows_with_the_work("elements, by grad", |n| {
        let f = |x: &Tensor| {
            let parts: Vec<Tensor> = (0..n as isize).map(|i| x.at(i)).collect();
            stack(&parts.iter().collect::<Vec<_>>(), 0).square().sum()
        };
        drop(grad(f)(&x(n).detach()));
    });
}

#[test]
fn one_value_used_often_and_long_chains() {
    let x = Tensor::from(0.5).requires_grad();
    grows_with_the_work("used often", |n| {
        let y = x.sin();
        (0..n).fold(x.clone(), |sum, _| sum + &y).backward().unwrap();
    });
    grows_with_the_work("a chain", |n| {
        (0..n).fold(x.clone(), |x, _| x.sin()).backward().unwrap();
    });
    grows_with_the_work("a chain of cuts", |n| {
        let y = (0..n).fold(x.clone(), |y, _| (y + &x).detach());
        assert!(!y.is_tracked());
    });
    grows_with_the_work("a chain with hooks", |n| {
        let handle = x.on_grad_ready(|_| {});
        (0..n).fold(x.clone(), |x, _| x.sin() + &x).backward().unwrap();
        handle.remove();
    });
    grows_with_the_work("jvp of a chain", |n| {
        let f = |x: &Tensor| (0..n).fold(x.clone(), |x, _| x.sin());
        drop(jvp(f, &Tensor::from(0.5), &Tensor::from(1.0)));
    });
    grows_with_the_work("grad of jvp of a chain", |n| {
        let f = |x: &Tensor| (0..n).fold(x.clone(), |x, _| x.sin());
        drop(grad(|x: &Tensor| jvp(f, x, &Tensor::from(1.0)).1)(&Tensor::from(0.5)));
    });
}

#[test]
fn a_checkpointed_function_that_reads_much() {
    grows_with_the_work("reads", |n| {
        let ws: Vec<Tensor> = (0..n).map(|i| Tensor::from(i as f64).requires_grad()).collect();
        let all = ws.clone();
        let f = move |x: &Tensor| all.iter().fold(x.clone(), |x, w| x + w * 0.5);
        checkpoint(f, &Tensor::from(1.0)).sin().backward().unwrap();
        assert!(ws.leaves()[0].grad().is_some());
    });
    grows_with_the_work("flags", |n| {
        let flags: Vec<Flag> = (0..n).map(|_| Flag::new(true)).collect();
        let turn = |x: Tensor, flag: &Flag| if flag.get() { x.sin() } else { x };
        let f = move |x: &Tensor| flags.iter().fold(x.clone(), turn);
        checkpoint(f, &Tensor::from(1.0).requires_grad()).backward().unwrap();
    });
}

#[test]
fn traces() {
    let one = [Spec::cpu(DType::F64, [])];
    let chain = |n: usize| move |x: &[Tensor]| (0..n).fold(x[0].clone(), |x, _| x.sin());
    grows_with_the_work("a chain", |n| drop(trace(chain(n), &one).unwrap()));
    grows_with_the_work("a gradient", |n| {
        let f = |x: &[Tensor]| grad(|y: &Tensor| chain(n)(std::slice::from_ref(y)))(&x[0]);
        drop(trace(f, &one).unwrap());
    });
    grows_with_the_work("many leaves", |n| {
        let ws: Vec<Tensor> = (0..n).map(|i| Tensor::from(i as f64).requires_grad()).collect();
        let f = |x: &[Tensor]| {
            let loss = ws.iter().fold(x[0].clone(), |x, w| x + w * 0.5);
            loss.backward().unwrap();
            no_grad(|| ws.iter().for_each(|w| drop(w.sub_(w.grad().unwrap()))));
            ws.iter().for_each(Tensor::zero_grad);
            loss
        };
        drop(trace(f, &one).unwrap());
    });
}
