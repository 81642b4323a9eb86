//! Derivatives of what all workers compute together: the sum of the outputs of all workers as a
//! function of the inputs of all workers. Each case has the same function on one worker.

use super::threads::workers;
use pullback::{DType, Group, Tensor, cat, checkpoint, cond, grad, jit, jvp, scan, stack, vmap};

/// A function of all workers, and of one worker that has the inputs of all.
struct Case {
    name: &'static str,
    many: fn(&Group, &Tensor) -> Tensor,
    one: fn(&[Tensor]) -> Vec<Tensor>,
    /// It takes two workers at least.
    pairs: bool,
}

fn sum(xs: &[Tensor]) -> Tensor {
    xs.iter().cloned().reduce(|a, b| a + b).unwrap()
}

fn join(xs: &[Tensor], axis: isize) -> Tensor {
    cat(&xs.iter().collect::<Vec<_>>(), axis)
}

/// Part `r` of `n` of the first axis.
fn part(x: &Tensor, r: usize, n: usize, axis: isize) -> Tensor {
    let each = x.shape()[axis as usize] / n;
    x.narrow(axis, (r * each) as isize, each)
}

fn each(xs: &[Tensor], f: impl Fn(usize) -> Tensor) -> Vec<Tensor> {
    (0..xs.len()).map(f).collect()
}

/// Inputs are `[12, 2]`: twelve can be cut into 1, 2, 3 and 4 parts.
const SHAPE: [isize; 2] = [12, 2];

fn cases() -> Vec<Case> {
    let case = |name, many, one| Case { name, many, one, pairs: false };
    let mut all = vec![
        case("sum", |g, x| x.all_reduce(g), |xs| each(xs, |_| sum(xs))),
        case("mean", |g, x| x.all_reduce_mean(g), |xs| each(xs, |_| sum(xs) / xs.len() as f64)),
        case(
            "max",
            |g, x| x.all_reduce_max(g),
            |xs| each(xs, |_| stack(&xs.iter().collect::<Vec<_>>(), 0).max_over(0)),
        ),
        case(
            "min",
            |g, x| x.all_reduce_min(g),
            |xs| each(xs, |_| stack(&xs.iter().collect::<Vec<_>>(), 0).min_over(0)),
        ),
        case("gather", |g, x| x.all_gather(g, 0), |xs| each(xs, |_| join(xs, 0))),
        case("gather 1", |g, x| x.all_gather(g, 1), |xs| each(xs, |_| join(xs, 1))),
        case(
            "scatter",
            |g, x| x.reduce_scatter(g, 0),
            |xs| each(xs, |r| part(&sum(xs), r, xs.len(), 0)),
        ),
        case(
            "scatter 1",
            |g, x| x.t().reduce_scatter(g, 1),
            |xs| each(xs, |r| part(&sum(xs).t(), r, xs.len(), 1)),
        ),
        case(
            "broadcast",
            |g, x| x.broadcast_from(g, g.size() - 1),
            |xs| each(xs, |_| xs[xs.len() - 1].clone()),
        ),
        case(
            "exchange",
            |g, x| x.all_to_all(g, 0, 1),
            |xs| {
                each(xs, |r| {
                    join(&xs.iter().map(|x| part(x, r, xs.len(), 0)).collect::<Vec<_>>(), 1)
                })
            },
        ),
        case(
            "normalised",
            // As a synchronised batch norm: a mean of all workers, used by all of them.
            |g, x| {
                let mean = x.mean_over(0).all_reduce_mean(g);
                let centred = x - &mean;
                let variance = centred.square().mean_over(0).all_reduce_mean(g);
                centred / (variance + 0.1).sqrt()
            },
            |xs| {
                let all = join(xs, 0);
                let centred = &all - all.mean_over(0);
                let y = &centred / (centred.square().mean_over(0) + 0.1).sqrt();
                each(xs, |r| part(&y, r, xs.len(), 0))
            },
        ),
    ];
    all.push(Case {
        name: "ring",
        many: |g, x| {
            let (rank, n) = (g.rank(), g.size());
            x.send(g, (rank + 1) % n).recv_after(g, (rank + n - 1) % n, SHAPE)
        },
        one: |xs| each(xs, |r| xs[(r + xs.len() - 1) % xs.len()].clone()),
        pairs: true,
    });
    all
}

/// Different for each worker; whole numbers of a small range, so that extremes have ties.
fn input(rank: usize, ties: bool) -> Tensor {
    let x = Tensor::arange(0, 24).cast(DType::F64).reshape(SHAPE);
    match ties {
        true => ((x * (rank as f64 + 2.0) + 1.0) % 3.0) - 1.0,
        false => (x * (rank as f64 + 1.3) + rank as f64).sin(),
    }
}

/// What each worker multiplies its output by before all are added.
fn weights(rank: usize, like: &Tensor) -> Tensor {
    let n = like.len() as i64;
    let w = Tensor::arange(0, n).cast(DType::F64) * 0.7 + rank as f64;
    w.cos().reshape(like.shape().iter().map(|&n| n as isize).collect::<Vec<_>>())
}

fn scalar(rank: usize, y: &Tensor) -> Tensor {
    // Not linear in the output, so that second derivatives are not zero.
    (weights(rank, y) * (y + y.square() * 0.3)).sum()
}

fn many(case: &Case, group: &Group, x: &Tensor) -> Tensor {
    scalar(group.rank(), &(case.many)(group, &(x + x.square() * 0.2)))
}

fn one(case: &Case, xs: &[Tensor]) -> Tensor {
    let inner: Vec<Tensor> = xs.iter().map(|x| x + x.square() * 0.2).collect();
    let ys = (case.one)(&inner);
    ys.iter().enumerate().map(|(rank, y)| scalar(rank, y)).reduce(|a, b| a + b).unwrap()
}

fn near(name: &str, a: &[f64], b: &[f64], by: f64) {
    assert_eq!(a.len(), b.len(), "{name}");
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= by * b.abs().max(1.0), "{name}: {a} is not {b}");
    }
}

fn for_all(f: impl Fn(&Case, usize, bool)) {
    for case in cases() {
        for n in 1..=4 {
            for ties in [false, true] {
                if n > 1 || !case.pairs {
                    f(&case, n, ties);
                }
            }
        }
    }
}

#[test]
fn gradients_and_tangents_are_those_of_one_worker() {
    for_all(|case, n, ties| {
        let name = format!("{} of {n}, ties {ties}", case.name);
        let xs: Vec<Tensor> = (0..n).map(|r| input(r, ties)).collect();
        let wanted = grad(|xs: &Vec<Tensor>| one(case, xs))(&xs);
        let second = |xs: &Vec<Tensor>| {
            let g = grad(|xs: &Vec<Tensor>| one(case, xs))(xs);
            g.iter().enumerate().map(|(r, g)| scalar(r, g)).reduce(|a, b| a + b).unwrap()
        };
        let twice = grad(second)(&xs);
        let got = workers(n, |group| {
            let x = input(group.rank(), ties);
            let first = grad(|x: &Tensor| many(case, group, x))(&x);
            let tangent = weights(group.rank() + 5, &x);
            let pushed = jvp(|x: &Tensor| many(case, group, x), &x, &tangent).1.item::<f64>();
            let second =
                |x: &Tensor| scalar(group.rank(), &grad(|x: &Tensor| many(case, group, x))(x));
            let twice = grad(second)(&x);
            // Forward over reverse: the same numbers in another way.
            let along = jvp(grad(|x: &Tensor| many(case, group, x)), &x, &tangent).1;
            let across = (&tangent * &first).sum().item::<f64>();
            (first.to_vec::<f64>(), twice.to_vec::<f64>(), [pushed, across], along.to_vec::<f64>())
        });
        let tangents: Vec<Tensor> = xs.iter().enumerate().map(|(r, x)| weights(r + 5, x)).collect();
        let along = jvp(grad(|xs: &Vec<Tensor>| one(case, xs)), &xs, &tangents).1;
        for (rank, (first, second, _, forward)) in got.iter().enumerate() {
            near(&name, first, &wanted[rank].to_vec::<f64>(), 1e-12);
            near(&name, second, &twice[rank].to_vec::<f64>(), 1e-11);
            near(&name, forward, &along[rank].to_vec::<f64>(), 1e-11);
        }
        let total = |k: usize| got.iter().map(|g| g.2[k]).sum::<f64>();
        near(&name, &[total(0)], &[total(1)], 1e-11);
    });
}

#[test]
fn gradients_are_those_of_numeric_differences() {
    const STEP: f64 = 1e-5;
    for case in cases() {
        for n in [2, 3] {
            let got = workers(n, |group| {
                let rank = group.rank();
                let x = input(rank, false);
                let exact = grad(|x: &Tensor| many(&case, group, x))(&x).to_vec::<f64>();
                // All workers evaluate, one of them with one element moved.
                let mut values = Vec::new();
                for moved in 0..n {
                    for element in [0, 5, 23] {
                        for step in [STEP, -STEP] {
                            let mut of = x.to_vec::<f64>();
                            if moved == rank {
                                of[element] += step;
                            }
                            let x = Tensor::from_vec(of, SHAPE);
                            values.push(many(&case, group, &x).item::<f64>());
                        }
                    }
                }
                (exact, values)
            });
            for moved in 0..n {
                for (k, element) in [0, 5, 23].into_iter().enumerate() {
                    let at = (moved * 3 + k) * 2;
                    let of = |i: usize| got.iter().map(|g| g.1[i]).sum::<f64>();
                    let numeric = (of(at) - of(at + 1)) / (2.0 * STEP);
                    near(case.name, &[got[moved].0[element]], &[numeric], 1e-7);
                }
            }
        }
    }
}

#[test]
fn gradients_under_transforms_are_the_plain_ones() {
    for case in cases() {
        let got = workers(2, |group| {
            let x = input(group.rank(), false);
            let f = |x: &Tensor| many(&case, group, x);
            let plain = grad(f)(&x);
            let same = |what: &str, y: &Tensor| {
                near(
                    &format!("{}, {what}", case.name),
                    &y.to_vec::<f64>(),
                    &plain.to_vec::<f64>(),
                    1e-12,
                );
            };
            let (run, again) = (case.many, group.clone());
            let inside =
                move |x: &Tensor| scalar(again.rank(), &run(&again, &(x + x.square() * 0.2)));
            let kept = inside.clone();
            same("checkpoint", &grad(move |x: &Tensor| checkpoint(kept.clone(), x))(&x));
            let compiled = jit(grad(f));
            same("jit", &compiled.call(&x).unwrap());
            same("jit again", &compiled.call(&x).unwrap());
            let twice = stack(&[&x, &(&x * 0.5)], 0);
            let mapped = vmap(grad(f), 0, 0)(&twice);
            same("vmap", &mapped.select_at(0, 0));
            let half = grad(f)(&(&x * 0.5));
            near(case.name, &mapped.select_at(0, 1).to_vec::<f64>(), &half.to_vec::<f64>(), 1e-12);
            let chosen = grad(|x: &Tensor| {
                cond(&x.sum().gt(-1e9), |x: &Tensor| f(x), |x: &Tensor| x.sum(), x)
            });
            same("cond", &chosen(&x));
            same("jit of cond", &jit(chosen).call(&x).unwrap());
            // The sum of two iterations, each with half the weight.
            let looped = grad(|x: &Tensor| {
                let body = |s: &Tensor, w: &Tensor| (s + f(x) * w, ());
                scan(body, &Tensor::from(0.0), &Tensor::from([0.5, 0.5])).0
            });
            same("scan", &looped(&x));
            same("jit of scan", &jit(looped).call(&x).unwrap());
        });
        assert_eq!(got.len(), 2);
    }
}
