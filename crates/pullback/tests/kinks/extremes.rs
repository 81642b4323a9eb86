//! Ties, NaN and infinities.

use super::*;

/// The results and the gradient of their weighted sum (1, 10, 100, …): eager, compiled, and over
/// examples.
#[track_caller]
fn everywhere(f: impl Fn(&Tensor) -> Tensor, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let x = Tensor::from(x);
    let weighted = |x: &Tensor| {
        let y = f(x);
        let y = y.reshape([y.len()]);
        let weights: Vec<f64> = (0..y.len()).map(|i| 10f64.powi(i as i32)).collect();
        // A product would make NaN of every gradient: a selection keeps them apart.
        let parts: Vec<Tensor> =
            weights.iter().enumerate().map(|(i, w)| y.at(i as isize) * *w).collect();
        parts.into_iter().reduce(|a, b| a + b).unwrap()
    };
    let (y, g) = (f(&x).to_vec::<f64>(), grad(weighted)(&x).to_vec::<f64>());
    let same = |a: &[f64], b: &[f64]| {
        a.len() == b.len()
            && a.iter()
                .zip(b)
                .all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()))
    };
    let compiled = jit(&f).call(&x).unwrap().to_vec::<f64>();
    assert!(same(&y, &compiled), "{y:?} compiled {compiled:?}");
    let compiled = jit(grad(weighted)).call(&x).unwrap().to_vec::<f64>();
    assert!(same(&g, &compiled), "gradient {g:?} compiled {compiled:?}");
    let two = pullback::stack(&[&x.zeros_like(), &x], 0);
    let many = vmap(&f, 0, 0)(&two).at(1).to_vec::<f64>();
    assert!(same(&y, &many), "{y:?} in vmap {many:?}");
    let many = vmap(grad(weighted), 0, 0)(&two).at(1).to_vec::<f64>();
    assert!(same(&g, &many), "gradient {g:?} in vmap {many:?}");
    (y, g)
}

#[track_caller]
fn gives(f: impl Fn(&Tensor) -> Tensor, x: &[f64], y: &[f64], g: &[f64]) {
    let found = everywhere(f, x);
    let same = |a: &[f64], b: &[f64]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
    };
    assert!(same(&found.0, y), "{:?}, not {y:?}", found.0);
    assert!(same(&found.1, g), "gradient {:?}, not {g:?}", found.1);
}

#[test]
fn maxima_over_axes() {
    let nan3 = [NAN, NAN, NAN];
    gives(Tensor::max, &[1.0, 3.0, 3.0], &[3.0], &[0.0, 0.5, 0.5]);
    gives(Tensor::max, &[1.0, NAN, 3.0], &[NAN], &nan3);
    gives(Tensor::min, &[1.0, NAN, 3.0], &[NAN], &nan3);
    gives(Tensor::max, &[1.0, INF, 3.0], &[INF], &[0.0, 1.0, 0.0]);
    gives(Tensor::max, &[INF, INF, 3.0], &[INF], &[0.5, 0.5, 0.0]);
    gives(Tensor::max, &[-INF, -INF], &[-INF], &[0.5, 0.5]);
    gives(Tensor::min, &[-INF, NAN, INF], &[NAN], &nan3);
    gives(Tensor::min, &[-INF, 5.0, INF], &[-INF], &[1.0, 0.0, 0.0]);
    // The first NaN is the extreme one; among equals, the first.
    gives(|x| x.max_at(0).0, &[1.0, NAN, 3.0, NAN], &[NAN], &[0.0, 1.0, 0.0, 0.0]);
    gives(|x| x.min_at(0).0, &[1.0, NAN, -INF], &[NAN], &[0.0, 1.0, 0.0]);
    gives(|x| x.max_at(0).0, &[-INF, -INF], &[-INF], &[1.0, 0.0]);
    gives(|x| x.max_at(0).0, &[2.0, INF, INF], &[INF], &[0.0, 1.0, 0.0]);
    gives(|x| x.min_at(0).0, &[2.0, 1.0, 1.0], &[1.0], &[0.0, 1.0, 0.0]);
}

#[test]
fn maxima_of_pairs() {
    let pair = |f: fn(&Tensor, &Tensor) -> Tensor| move |x: &Tensor| f(&x.at(0), &x.at(1));
    let (max, min) = (pair(|a, b| a.maximum(b)), pair(|a, b| a.minimum(b)));
    gives(max, &[2.0, 2.0], &[2.0], &[0.5, 0.5]);
    gives(max, &[INF, INF], &[INF], &[0.5, 0.5]);
    gives(max, &[-INF, 1.0], &[1.0], &[0.0, 1.0]);
    gives(min, &[-INF, 1.0], &[-INF], &[1.0, 0.0]);
    gives(min, &[0.0, -0.0], &[0.0], &[0.5, 0.5]);
    // NaN on either side is the result, and the gradient passes to both.
    for x in [[NAN, 1.0], [1.0, NAN], [NAN, NAN], [NAN, INF]] {
        gives(max, &x, &[NAN], &[1.0, 1.0]);
        gives(min, &x, &[NAN], &[1.0, 1.0]);
    }
    // The ones that are asked to ignore NaN, and do.
    let (fmax, fmin) = (pair(Tensor::fmax), pair(Tensor::fmin));
    gives(fmax, &[2.0, 2.0], &[2.0], &[1.0, 0.0]);
    gives(fmax, &[NAN, 1.0], &[1.0], &[0.0, 1.0]);
    gives(fmin, &[1.0, NAN], &[1.0], &[1.0, 0.0]);
    gives(fmin, &[NAN, NAN], &[NAN], &[1.0, 0.0]);
    gives(fmax, &[-INF, NAN], &[-INF], &[1.0, 0.0]);
}

#[test]
fn sorts() {
    let up = |x: &Tensor| x.sort(0, false).0;
    let down = |x: &Tensor| x.sort(0, true).0;
    gives(
        up,
        &[NAN, 1.0, INF, -INF, NAN],
        &[-INF, 1.0, INF, NAN, NAN],
        &[1e3, 10.0, 100.0, 1.0, 1e4],
    );
    gives(
        down,
        &[NAN, 1.0, INF, -INF, NAN],
        &[NAN, NAN, INF, 1.0, -INF],
        &[1.0, 1e3, 100.0, 1e4, 10.0],
    );
    gives(up, &[2.0, 1.0, 2.0, 2.0], &[1.0, 2.0, 2.0, 2.0], &[10.0, 1.0, 100.0, 1e3]);
    gives(down, &[2.0, 3.0, 2.0], &[3.0, 2.0, 2.0], &[10.0, 1.0, 100.0]);
    gives(up, &[INF, -INF, INF], &[-INF, INF, INF], &[10.0, 1.0, 100.0]);
    let order = |x: &[f64], down| Tensor::from(x).argsort(0, down).to_vec::<i64>();
    assert_eq!(order(&[NAN, 1.0, NAN, 0.0], false), [3, 1, 0, 2]);
    assert_eq!(order(&[NAN, 1.0, NAN, 0.0], true), [0, 2, 1, 3]);
    // NaN counts as the largest.
    gives(|x| x.topk(2, 0, true).0, &[1.0, NAN, INF], &[NAN, INF], &[0.0, 1.0, 10.0]);
    gives(|x| x.topk(2, 0, false).0, &[1.0, NAN, -INF], &[-INF, 1.0], &[10.0, 0.0, 1.0]);
    gives(|x| x.topk(2, 0, true).0, &[5.0, 5.0, 5.0], &[5.0, 5.0], &[1.0, 10.0, 0.0]);
    gives(|x| x.kthvalue(3, 0).0, &[1.0, NAN, INF], &[NAN], &[0.0, 1.0, 0.0]);
    gives(|x| x.kthvalue(1, 0).0, &[2.0, 1.0, 1.0], &[1.0], &[0.0, 1.0, 0.0]);
    gives(|x| x.median(0).0, &[3.0, 1.0, 2.0, 2.0], &[2.0], &[0.0, 0.0, 1.0, 0.0]);
    gives(|x| x.median(0).0, &[3.0, NAN, 2.0, NAN], &[NAN], &[0.0, 1.0, 0.0, 0.0]);
    gives(|x| x.median(0).0, &[INF, -INF, 5.0], &[5.0], &[0.0, 0.0, 1.0]);
}

#[test]
fn running_maxima() {
    gives(|x| x.cummax(0), &[1.0, NAN, 3.0], &[1.0, NAN, NAN], &[1.0, 110.0, 0.0]);
    gives(|x| x.cummin(0), &[1.0, NAN, NAN], &[1.0, NAN, NAN], &[1.0, 10.0, 100.0]);
    gives(|x| x.cummax(0), &[2.0, 2.0, 1.0], &[2.0, 2.0, 2.0], &[1.0, 110.0, 0.0]);
    gives(|x| x.cummax(0), &[-INF, -INF, INF], &[-INF, -INF, INF], &[1.0, 10.0, 100.0]);
}

#[test]
fn pools() {
    let pool = |p: Pool| move |x: &Tensor| x.unsqueeze(0).max_pool1d(&p);
    gives(pool(Pool::new(2)), &[2.0, 2.0, 1.0, 3.0], &[2.0, 3.0], &[1.0, 0.0, 0.0, 10.0]);
    gives(pool(Pool::new(2)), &[NAN, 2.0, 1.0, NAN], &[NAN, NAN], &[1.0, 0.0, 0.0, 10.0]);
    gives(pool(Pool::new(2)), &[NAN, INF, NAN, NAN], &[NAN, NAN], &[1.0, 0.0, 0.0, 10.0]);
    gives(pool(Pool::new(2)), &[-INF, -INF, INF, INF], &[-INF, INF], &[1.0, 0.0, 10.0, 0.0]);
    // What is beyond the end never wins, not over −∞ either.
    let padded = || pool(Pool::new(3).stride(2).padding(1));
    gives(padded(), &[-INF, -INF, -INF], &[-INF, -INF], &[1.0, 10.0, 0.0]);
    gives(padded(), &[-5.0, NAN, -7.0], &[NAN, NAN], &[0.0, 11.0, 0.0]);
    let dilated = || pool(Pool::new(2).stride(1).dilation(2));
    gives(dilated(), &[4.0, 1.0, 4.0, 1.0], &[4.0, 1.0], &[1.0, 10.0, 0.0, 0.0]);
    gives(dilated(), &[4.0, INF, NAN, 1.0], &[NAN, INF], &[0.0, 10.0, 1.0, 0.0]);
    let square = |x: &Tensor| x.reshape([1, 2, 4]).max_pool2d(&Pool::new(2));
    let image = [1.0, 5.0, -INF, -INF, 5.0, 2.0, NAN, INF];
    gives(square, &image, &[5.0, NAN], &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 10.0, 0.0]);
    let framed = |x: &Tensor| x.reshape([1, 2, 2]).max_pool2d(&Pool::new(2).padding(1));
    gives(framed, &[NAN, -INF, 1.0, 2.0], &[NAN, -INF, 1.0, 2.0], &[1.0, 10.0, 100.0, 1e3]);
    let adaptive = |x: &Tensor| x.unsqueeze(0).adaptive_max_pool1d(2);
    gives(adaptive, &[1.0, 1.0, NAN], &[1.0, NAN], &[1.0, 0.0, 10.0]);
}

#[test]
fn bounds() {
    let x = [-INF, -1.0, 0.0, 1.0, INF, NAN];
    let plain = |x: &Tensor| x.clamp(-1.0, 1.0);
    gives(plain, &x, &[-1.0, -1.0, 0.0, 1.0, 1.0, NAN], &[0.0, 10.0, 100.0, 1e3, 0.0, 1e5]);
    // Bounds at infinity bound nothing, and infinities pass.
    let open = |x: &Tensor| x.clamp(-INF, INF);
    gives(open, &x, &x, &[1.0, 10.0, 100.0, 1e3, 1e4, 1e5]);
    gives(|x| x.clamp(INF, INF), &[1.0, INF, NAN], &[INF, INF, NAN], &[0.0, 10.0, 100.0]);
    // The upper bound has the last word.
    gives(|x| x.clamp(5.0, 3.0), &[1.0, 4.0, 9.0], &[3.0, 3.0, 3.0], &[0.0, 0.0, 0.0]);
    // A bound that is NaN is not hidden: not as a number, not as a tensor, on neither side.
    let none = [0.0, 0.0];
    gives(|x| x.clamp(NAN, 1.0), &[0.5, INF], &[NAN, NAN], &none);
    gives(|x| x.clamp(0.0, NAN), &[0.5, INF], &[NAN, NAN], &none);
    gives(|x| x.clamp_min(NAN), &[0.5, INF], &[NAN, NAN], &none);
    gives(|x| x.clamp_max(Tensor::from([NAN, 1.0])), &[0.5, INF], &[NAN, 1.0], &none);
    for at in [AtBound::Half, AtBound::Outside] {
        let nan = with_conventions(&Conventions::pullback().clamp(at), || {
            let x = Tensor::from([0.5, NAN]);
            [x.clamp(NAN, 1.0), x.clamp(0.0, NAN), x.clamp_min(Tensor::from([NAN, 0.0]))]
        });
        assert!(nan.iter().all(|y| y.to_vec::<f64>().iter().all(|y| y.is_nan())));
    }
    // The gradient goes to the bound that was taken.
    gives(
        |x| Tensor::from(7.0).clamp_max(x),
        &[3.0, 9.0, NAN],
        &[3.0, 7.0, NAN],
        &[1.0, 0.0, 100.0],
    );
    gives(
        |x| x.hardtanh(-1.0, 1.0),
        &x,
        &[-1.0, -1.0, 0.0, 1.0, 1.0, NAN],
        &[0.0, 0.0, 100.0, 0.0, 0.0, 1e5],
    );
}

/// Long rows run through other kernels than short ones, and each dtype has its own.
#[test]
fn a_nan_is_found_wherever_it_is() {
    let broken = |y: &Tensor| y.is_nan().any().item::<bool>();
    let all: [(&str, Function); 12] = [
        ("max", |x| x.max()),
        ("min", |x| x.min()),
        ("max over rows", |x| x.unsqueeze(0).max_over(0)),
        ("maximum", |x| x.maximum(0.5)),
        ("minimum", |x| x.zeros_like().minimum(x)),
        ("max_at", |x| x.max_at(0).0),
        ("cummax", |x| x.cummax(0).at(-1)),
        ("cummin", |x| x.cummin(0).at(-1)),
        ("sort", |x| x.sort(0, false).0.at(-1)),
        ("median", |x| x.median(0).0),
        ("max_pool1d", |x| {
            x.unsqueeze(0).max_pool1d(&Pool::new(3).stride(2).padding(1).ceil_mode(true))
        }),
        ("clamp", |x| x.clamp(-0.5, 0.5)),
    ];
    for (name, f) in all {
        let compiled = jit(f);
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
            for n in [1, 7, 33, 130] {
                for at in [0, n / 2, n - 1] {
                    let mut x: Vec<f64> = (0..n).map(|i| (i as f64 * 0.7).sin()).collect();
                    assert!(!broken(&f(&Tensor::from(&x[..]).cast(dtype))), "{name}");
                    x[at] = NAN;
                    let x = Tensor::from(&x[..]).cast(dtype);
                    let here = format!("{name} of {dtype}[{n}] with NaN at {at}");
                    assert!(broken(&f(&x)), "{here}");
                    assert!(broken(&compiled.call(&x).unwrap()), "compiled {here}");
                    let g = grad(|x: &Tensor| f(x).sum())(&x);
                    let passes = g.is_nan().logical_or(g.ne(0.0)).at(at as isize).item::<bool>();
                    assert!(passes, "the gradient of {here}");
                }
            }
        }
    }
}

/// A convex function lies above every line that a derivative at a kink gives: what is taken is a
/// slope of some side, or between them.
#[test]
fn what_is_taken_at_a_tie_is_a_subgradient() {
    let fs: [(&str, Function); 9] = [
        ("max", |x| x.max()),
        ("max_at", |x| x.max_at(0).0),
        ("cummax", |x| x.cummax(0).sum()),
        ("topk", |x| x.topk(2, 0, true).0.sum()),
        ("max_pool1d", |x| x.unsqueeze(0).max_pool1d(&Pool::new(3).stride(1)).sum()),
        ("abs", |x| (x - 2.0).abs().sum()),
        ("relu", |x| (x - 2.0).relu().sum()),
        ("norm", |x| (x - x.detach()).norm()),
        ("clamp_min", |x| x.clamp_min(2.0).sum()),
    ];
    let x = [2.0, 2.0, 1.0, 2.0, 1.0];
    let directions = [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [-1.0, 1.0, 0.0, 0.5, 0.0],
        [0.5, -2.0, 1.0, -1.0, 3.0],
        [-1.0, -1.0, -1.0, -1.0, -1.0],
        [0.0, 0.25, -1.0, 1.0, 0.0],
    ];
    let conventions = [
        Conventions::pullback(),
        Conventions::pullback().max(AtTies::First).relu(1.0).abs(-0.5).clamp(AtBound::Half),
        Conventions::pullback().relu(0.5).abs(1.0).clamp(AtBound::Outside),
    ];
    let start = Tensor::from(x);
    let h = 1.0 / 1024.0;
    for c in &conventions {
        for (name, f) in fs {
            let g = with_conventions(c, || grad(f)(&start)).to_vec::<f64>();
            for d in directions {
                let moved: Vec<f64> = x.iter().zip(&d).map(|(x, d)| x + h * d).collect();
                let line: f64 = g.iter().zip(&d).map(|(g, d)| g * d * h).sum();
                let at = |p: &Tensor| match name {
                    "norm" => (p - &start).norm().item::<f64>(),
                    _ => f(p).item::<f64>(),
                };
                let risen = at(&Tensor::from(&moved[..])) - at(&start);
                assert!(risen >= line - 1e-12, "{name} along {d:?}: {risen} below {line}");
            }
        }
    }
}
