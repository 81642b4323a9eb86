//! Control flow: eager, traced, differentiated.

use pullback::{
    DType, Program, Spec, Tensor, cat, catch, cond, fori_loop, grad, jit, jvp, scan, scan_reverse,
    scan_times, trace, while_loop, while_loop_bounded,
};
use std::cell::RefCell;

fn f64s(values: &[f64]) -> Tensor {
    Tensor::from(values)
}

fn spec(shape: &[usize]) -> Spec {
    Spec::cpu(DType::F64, shape)
}

fn names(program: &Program) -> Vec<&'static str> {
    program.equations.iter().map(|e| e.op.name()).collect()
}

#[test]
fn eager_constructs_are_the_rust_ones() {
    let x = Tensor::from(2.0);
    let f = |x: &Tensor| cond(&x.gt(1.0), |x| x.powi(3), |x| x * 5.0, x);
    assert_eq!((f(&x).item::<f64>(), grad(f)(&x).item::<f64>()), (8.0, 12.0));
    let doubled = while_loop(|x: &Tensor| x.lt(50.0), |x| x * 2.0, &x);
    assert_eq!(doubled.item::<f64>(), 64.0);
    let g = grad(|x: &Tensor| while_loop(|x: &Tensor| x.lt(50.0), |x| x * 2.0, x))(&x);
    assert_eq!(g.item::<f64>(), 32.0);
    let (last, all) =
        scan_reverse(|s: &Tensor, x: &Tensor| (s * x, s + 0.0), &x, &f64s(&[1.0, 2.0, 3.0]));
    assert_eq!((last.item::<f64>(), all.to_vec::<f64>()), (12.0, vec![12.0, 6.0, 2.0]));
    let n = fori_loop(0, 4, |i, s: &Tensor| s * 2.0 + i.cast(DType::F64), &x);
    assert_eq!(n.item::<f64>(), 43.0);
    let (_, empty) =
        scan(|s: &Tensor, x: &Tensor| (s + x, x.exp()), &x, &Tensor::zeros_with([0], DType::F64));
    assert_eq!(empty.shape(), [0]);
}

#[test]
fn traced_constructs_are_one_equation_each() {
    let w = f64s(&[0.5, 2.0]);
    let program = trace(
        |x: &[Tensor]| {
            let (last, ys) =
                scan(|s: &Tensor, x: &Tensor| ((s * &w + x).sin(), s.sum()), &x[0], &x[1]);
            let c = cond(&last.sum().gt(0.0), |y: &Tensor| y * &w, |y| -y, &last);
            let l = while_loop(|s: &Tensor| s.sum().lt(10.0), |s| s + 1.0, &c);
            (l, ys)
        },
        &[spec(&[2]), spec(&[5, 2])],
    )
    .unwrap();
    program.verify().unwrap();
    let found: Vec<_> =
        names(&program).into_iter().filter(|n| ["scan", "cond", "while"].contains(n)).collect();
    assert_eq!(found, ["scan", "cond", "while"], "{program}");
}

#[test]
fn derivatives_of_traced_constructs_are_constructs() {
    let f = |x: &Tensor| scan_times(3, |s: &Tensor, _: &()| (s.sin(), ()), x).0.sum();
    let program = trace(|x: &[Tensor]| grad(f)(&x[0]), &[spec(&[2])]).unwrap();
    program.verify().unwrap();
    assert_eq!(names(&program).iter().filter(|n| **n == "scan").count(), 2, "{program}");
    let program = trace(|x: &[Tensor]| jvp(f, &x[0], &x[1]), &[spec(&[2]), spec(&[2])]).unwrap();
    program.verify().unwrap();
    let bounded = |x: &Tensor| while_loop_bounded(5, |x: &Tensor| x.lt(50.0), |x| x * 2.0, x);
    trace(|x: &[Tensor]| grad(bounded)(&x[0]), &[spec(&[])]).unwrap().verify().unwrap();
    let endless = |x: &Tensor| while_loop(|x: &Tensor| x.lt(50.0), |x| x * 2.0, x);
    trace(|x: &[Tensor]| grad(endless)(&x[0]), &[spec(&[])]).unwrap().verify().unwrap();
    trace(|x: &[Tensor]| jvp(endless, &x[0], &x[1]), &[spec(&[]), spec(&[])])
        .unwrap()
        .verify()
        .unwrap();
    let second =
        trace(|x: &[Tensor]| grad(|x: &Tensor| grad(f)(x).sum())(&x[0]), &[spec(&[2])]).unwrap();
    second.verify().unwrap();
}

/// Loops whose iterations are straight-line code: values change places, are overwritten, and have
/// every kind of number.
#[test]
fn compiled_loops_over_a_few_numbers_give_the_bits_of_the_eager_ones() {
    type State = (Tensor, Tensor, Tensor, Tensor);
    let fibonacci = |(n, a, b): &(Tensor, Tensor, Tensor)| {
        while_loop(
            |(n, _, _): &(Tensor, Tensor, Tensor)| n.gt(0),
            |(n, a, b)| (n - 1, b.clone(), a + b),
            &(n.clone(), a.clone(), b.clone()),
        )
    };
    let start = (Tensor::from(80i64), Tensor::from(0i64), Tensor::from(1i64));
    let (_, a, b) = jit(fibonacci).of(&start);
    assert_eq!((a.item::<i64>(), b.item::<i64>()), (23416728348467685, 37889062373143906));

    let mixed = |(count, x, flag, y): &State| {
        let iteration = |(count, x, flag, y): &State| {
            // Elements move one place on, and one of them is computed from all.
            let turned = cat(&[&x.narrow(0, 1, 2), &x.narrow(0, 0, 1)], 0);
            let total = x.sum() + x.max() * 0.25 - x.square().prod();
            let x = flag.select(&turned + 0.125, &turned * 0.75 - y);
            let small = x.abs().lt(1.0).logical_or(flag.logical_not());
            let steps = small.cast(DType::I64).sum().minimum(2);
            (count - steps.maximum(1), x, small, (y - total.sqrt().maximum(0.5)).clamp(-3.0, 3.0))
        };
        let going = |(count, x, ..): &State| count.gt(0).logical_and(x.sum().is_finite());
        while_loop(going, iteration, &(count.clone(), x.clone(), flag.clone(), y.clone()))
    };
    let compiled = jit(mixed);
    for seed in 0..40 {
        let part = |k: i32| f64::from((seed * 37 + k * 11) % 29) / 7.0 - 2.0;
        let state = (
            Tensor::from(i64::from(seed)),
            f64s(&[part(0), part(1), part(2)]),
            Tensor::from([seed % 2 == 0, seed % 3 == 0, true]),
            Tensor::from(part(3)),
        );
        let (want, got) = (mixed(&state), compiled.of(&state));
        assert_eq!(want.0.item::<i64>(), got.0.item::<i64>());
        assert_eq!(want.2.to_vec::<bool>(), got.2.to_vec::<bool>());
        let bits = |x: &Tensor| x.to_vec::<f64>().into_iter().map(f64::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(&want.1), bits(&got.1), "{want:?}\n{got:?}");
        assert_eq!(bits(&want.3), bits(&got.3), "{want:?}\n{got:?}");
    }
}

/// What straight code could get wrong: the smaller float, numbers turned round, written into a
/// part, not numbers at all, whole numbers that wrap, tensors without elements, and more values
/// than there are registers.
#[test]
fn compiled_loops_over_odd_numbers_give_the_bits_of_the_eager_ones() {
    type State = (Tensor, Tensor, Tensor, Tensor);
    let f = |(count, x, whole, none): &State| {
        let iteration = |(count, x, whole, none): &State| {
            let turned = x.flip(0);
            let part = pullback::stack(&[&turned.max(), &turned.min()], 0) + x.narrow(0, 1, 2);
            let written = cat(&[&x.narrow(0, 0, 1), &part, &turned.narrow(0, 3, 1)], 0);
            // Many values at once, all of them wanted at the end.
            let many: Vec<Tensor> = (1..12).map(|k| &written * (k as f32) + &turned).collect();
            let sum = many.iter().rev().fold(x.clone(), |sum, y| sum * 0.0625f32 - y.abs().sqrt());
            let whole = whole * 6364136223846793005i64 + 1442695040888963407i64;
            (count - 1, sum.maximum(&written * -0.5f32), whole, none.clone())
        };
        while_loop(
            |(count, ..): &State| count.gt(0),
            iteration,
            &(count.clone(), x.clone(), whole.clone(), none.clone()),
        )
    };
    let compiled = jit(f);
    let bits = |x: &Tensor| x.to_vec::<f32>().into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for start in [
        [1.0f32, -2.0, 0.5, 3.0],
        [0.0, -0.0, 1e-40, -1e38],
        [f32::NAN, 1.0, 2.0, 3.0],
        [f32::INFINITY, 1.0, f32::NEG_INFINITY, -0.0],
    ] {
        let none = Tensor::zeros([0, 3]);
        let state = (Tensor::from(7i64), Tensor::from(start), Tensor::from(i64::MAX - 5), none);
        let (want, got) = (f(&state), compiled.of(&state));
        // Of NaN only that it is one: which of two is returned is unspecified.
        let same = |(&a, &b): (&u32, &u32)| {
            a == b || (f32::from_bits(a).is_nan() && f32::from_bits(b).is_nan())
        };
        let (a, b) = (bits(&want.1), bits(&got.1));
        assert!(a.iter().zip(&b).all(same), "{start:?}: {want:?}\n{got:?}");
        assert_eq!(want.2.item::<i64>(), got.2.item::<i64>());
        assert_eq!(got.3.shape(), [0, 3]);
    }
}

#[test]
fn what_an_iteration_gives_stays_as_it_was() {
    let xs = Tensor::from([1.0, 2.0]);
    // The state is an argument, which nothing writes to, as in a loop that is traced.
    let kept = |c: &Tensor, x: &Tensor| {
        c.add_(x);
        (c.clone(), c.clone())
    };
    let start = Tensor::from([0.0, 0.0]);
    for error in [
        catch(|| scan(kept, &start, &xs)),
        catch(|| jit(|s: &Tensor| scan(kept, s, &xs)).of(&start)),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("or of a loop, a branch"), "{error}");
    }
    assert_eq!(start.to_vec::<f64>(), [0.0, 0.0]);
    let buffer = Tensor::from(0.5);
    let ys = scan(|c: &Tensor, x: &Tensor| (c.clone(), buffer.add_(x)), &Tensor::from(0.0), &xs).1;
    assert_eq!(ys.to_vec::<f64>(), [1.5, 3.5]);
    // What an iteration gave is kept elsewhere, and overwritten by the next one.
    let last: RefCell<Option<Tensor>> = RefCell::default();
    let both = |c: &Tensor, x: &Tensor| {
        let y = c + x;
        if let Some(before) = last.replace(Some(y.clone())) {
            before.add_(x);
        }
        (c.clone(), y)
    };
    let error = catch(|| scan(both, &Tensor::from(0.0), &xs)).unwrap_err().to_string();
    assert!(error.contains("overwritten in place by a later iteration"), "{error}");
    let error = catch(|| scan_times(1 << 60, |c: &Tensor, _: &()| (c.clone(), c.clone()), &xs));
    assert!(error.unwrap_err().to_string().contains("larger than memory"));
}
