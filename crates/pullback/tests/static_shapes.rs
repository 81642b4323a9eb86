//! Functions whose result has a shape that follows from the shapes of their operands compile and
//! batch, and give what they give eagerly.

use pullback::{
    BagMode, DType, Embedding, EmbeddingBag, Key, Tensor, catch, fft, grad, hessian, jit, jvp,
    linalg, root, scan, stack, vmap,
};

/// The function on every example: eagerly, compiled, and batched (eagerly and compiled).
fn agrees(name: &str, f: impl Fn(&Tensor) -> Tensor, examples: &[Tensor]) {
    let same = |a: &Tensor, b: &Tensor, how: &str| {
        assert_eq!(a.spec(), b.spec(), "{name} {how}");
        let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
        for (x, y) in a.iter().zip(&b) {
            let near =
                (x - y).abs() <= 1e-12 * (1.0 + x.abs()) || x == y || x.is_nan() && y.is_nan();
            assert!(near, "{name} {how}: {a:?} and {b:?}");
        }
    };
    let each: Vec<Tensor> = examples.iter().map(&f).collect();
    let compiled = jit(&f);
    for (x, y) in examples.iter().zip(&each) {
        same(y, &compiled.of(x), "compiled");
    }
    let all = stack(&examples.iter().collect::<Vec<_>>(), 0);
    let each = stack(&each.iter().collect::<Vec<_>>(), 0);
    same(&each, &vmap(&f, 0, 0)(&all), "batched");
    same(&each, &jit(vmap(&f, 0, 0)).of(&all), "batched and compiled");
}

fn floats() -> Vec<Tensor> {
    vec![
        Tensor::from([0.3, -1.5, 2.0, 2.0, f64::NAN, 0.0]),
        Tensor::from([1e-310, 2.0, -0.25, 7.5, f64::INFINITY, -0.0]),
        Tensor::from([2.0, 1.0, 1.0, 2.0, 1.0, 3.9999999999]),
    ]
}

fn finite() -> Vec<Tensor> {
    vec![
        Tensor::from([0.3, -1.5, 2.0, 2.0, 0.5, 0.0]),
        Tensor::from([1.0, 4.0, 0.1, 7.5, -2.0, 3.0]),
    ]
}

#[test]
fn searching() {
    let sorted = Tensor::from([-1.0, 0.0, 2.0, 2.0, 5.0]);
    for right in [false, true] {
        agrees("bucketize", |x| x.bucketize(&sorted, right), &floats());
        agrees("searchsorted", |x| sorted.searchsorted(x, right), &floats());
        let lines = |x: &Tensor| x.sort(0, false).0.searchsorted(&Tensor::from([0.1, 2.0]), right);
        agrees("searchsorted in a line each", lines, &finite());
        let none = Tensor::zeros_with([0], DType::F64);
        agrees("searchsorted in nothing", |x| none.searchsorted(x, right), &finite());
    }
    agrees("is_in", |x| x.is_in(&Tensor::from([2.0, 0.0, 7.0])), &floats());
    let integers = [Tensor::from([1i64, 5, 3]), Tensor::from([0i64, 1 << 60, -2])];
    agrees("is_in of integers", |x| x.is_in(&Tensor::from([5i64, (1 << 60) + 1])), &integers);
    // Every length against counting.
    for n in 0..20 {
        let sorted: Vec<i64> = (0..n).map(|i| i / 2).collect();
        let found = Tensor::from(sorted.clone()).searchsorted(&Tensor::arange(-1i64, 12), false);
        let counted = |v: i64| sorted.iter().filter(|&&s| s < v).count() as i64;
        assert_eq!(found.to_vec::<i64>(), (-1..12).map(counted).collect::<Vec<i64>>());
    }
}

#[test]
fn counting() {
    agrees("histc", |x| x.histc(4, Some((-1.0, 3.0))), &floats());
    agrees("mode", |x| x.mode(0).0, &finite());
    agrees("mode's place", |x| x.mode(0).1, &floats());
    let classes = [Tensor::from([0i64, 2, 1]), Tensor::from([2i64, 2, 0])];
    agrees("one_hot", |x| x.one_hot(3, DType::F64), &classes);
    for wrong in [[0i64, 3, 1], [0, -1, 1]] {
        let error =
            jit(|x: &Tensor| x.one_hot(3, DType::F64)).call(&Tensor::from(wrong)).unwrap_err();
        assert!(error.to_string().contains("out of range"), "{error}");
    }
    let eager = Tensor::from([3, 1, 3, 1, 2]).mode(0);
    assert_eq!((eager.0.item::<i32>(), eager.1.item::<i64>()), (1, 3));
    // Differentiated outside of the batch.
    let f = |x: &Tensor| vmap(|x: &Tensor| x.mode(0).0.square(), 0, 0)(x).sum();
    let x = Tensor::from([[1.0, 3.0, 3.0], [2.0, 2.0, 5.0]]);
    assert_eq!(grad(f)(&x).to_vec::<f64>(), [0.0, 0.0, 6.0, 0.0, 4.0, 0.0]);
}

#[test]
fn how_numbers_are_written() {
    agrees("frexp's mantissa", |x| x.frexp().0, &floats());
    agrees("frexp's exponent", |x| x.frexp().1, &floats());
    let up = Tensor::from(f64::INFINITY);
    for to in [f64::INFINITY, f64::NEG_INFINITY, 2.0] {
        agrees("next_after", |x| x.next_after(&Tensor::from(to)), &floats());
    }
    // Every exponent, in addition to the bits.
    let mut all = vec![0.0, f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::EPSILON];
    for e in -1074..1024 {
        let x = 2f64.powi(e / 2) * 2f64.powi(e - e / 2);
        all.extend([x, x * 1.5, x.next_up(), x.next_down(), -x, -x * 1.3]);
    }
    let x = Tensor::from(all.clone());
    let (mantissa, exponent) = x.frexp();
    let (mantissa, exponent) = (mantissa.to_vec::<f64>(), exponent.to_vec::<i32>());
    let (above, below) = (x.next_after(&up), x.next_after(&-&up));
    let (above, below) = (above.to_vec::<f64>(), below.to_vec::<f64>());
    for (i, &x) in all.iter().enumerate() {
        assert_eq!((above[i], below[i]), (x.next_up(), x.next_down()), "neighbours of {x:e}");
        let (m, e) = (mantissa[i], exponent[i]);
        assert_eq!(m * 2f64.powi(e / 2) * 2f64.powi(e - e / 2), x, "{x:e}");
        assert!(x == 0.0 && e == 0 || (0.5..1.0).contains(&m.abs()), "{x:e}: {m} {e}");
    }
    let x: Vec<f32> = (0..3000u32).map(|i| f32::from_bits(i * 1_431_655)).collect();
    let x: Vec<f32> = x.into_iter().filter(|x| !x.is_nan()).collect();
    let above = Tensor::from(x.clone()).next_after(&Tensor::from(f32::INFINITY)).to_vec::<f32>();
    let below =
        Tensor::from(x.clone()).next_after(&Tensor::from(f32::NEG_INFINITY)).to_vec::<f32>();
    for (i, &x) in x.iter().enumerate() {
        assert_eq!((above[i], below[i]), (x.next_up(), x.next_down()), "neighbours of {x:e}");
    }
    let integers = [Tensor::from([12i64, -7, 0]), Tensor::from([1i64 << 40, 9, 5])];
    agrees("gcd", |x| x.gcd(&Tensor::from([18i64, 0, 0])), &integers);
    agrees("lcm", |x| x.lcm(&Tensor::from([18i64, 0, 3])), &integers);
    agrees("shift_left", |x| x.shift_left(&Tensor::from([2i64, 62, 70])), &integers);
    agrees("shift_right", |x| x.shift_right(&Tensor::from([2i64, 63, -1])), &integers);
    let x = Tensor::from([i64::MIN, -1, 5, i64::MAX]);
    assert_eq!(x.shift_right(&Tensor::from(63i64)).to_vec::<i64>(), [-1, -1, 0, 0]);
    assert_eq!(x.shift_right(&Tensor::from(62i64)).to_vec::<i64>(), [-2, -1, 0, 1]);
    assert_eq!(
        x.shift_left(&Tensor::from(63i64)).to_vec::<i64>(),
        [0, i64::MIN, i64::MIN, i64::MIN]
    );
    assert_eq!(Tensor::from([200u8]).shift_left(&Tensor::from([1u8])).to_vec::<u8>(), [144]);
    assert_eq!(Tensor::from([200u8]).shift_right(&Tensor::from([7u8])).to_vec::<u8>(), [1]);
}

#[test]
fn distances_and_matrices() {
    let rows = [
        Tensor::from([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]),
        Tensor::from([[1.0, 0.5], [3.0, -4.0], [2.0, 1.0]]),
    ];
    agrees("pdist", |x| x.pdist(2.0), &rows);
    agrees("gradient of pdist", grad(|x: &Tensor| x.pdist(2.0).square().sum()), &rows);
    let squares = [
        Tensor::from([[0.0, 1.0], [-1.0, 0.2]]),
        Tensor::from([[30.0, 4.0], [1.0, -20.0]]),
        Tensor::from([[1e-3, 0.0], [0.5, 2.0]]),
    ];
    let exp = |x: &Tensor| linalg::matrix_exp(x);
    agrees("matrix_exp", exp, &squares);
    let small = [squares[0].clone(), squares[2].clone() * 4.0];
    let f = |x: &Tensor| (exp(x) * Tensor::from([[1.0, 2.0], [3.0, 4.0]])).sum();
    agrees("gradient of matrix_exp", grad(f), &small);
    let e = Tensor::from([[0.3, 1.0], [0.2, 0.1]]);
    agrees("tangent of matrix_exp", |x| jvp(f, x, &e).1, &small);
    let tall = [
        Tensor::from([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]),
        Tensor::from([[1.0, 0.3], [-1.0, 1.0], [0.5, 2.0]]),
    ];
    let b = Tensor::from([[1.0], [3.0], [4.0]]);
    agrees("lstsq", |a| linalg::lstsq(a, &b, None).solution, &tall);
    agrees("lstsq's residuals", |a| linalg::lstsq(a, &b, None).residuals, &tall);
    let poor = Tensor::from([[1.0, 2.0], [1.0, 2.0], [2.0, 4.0]]);
    assert_eq!(linalg::lstsq(&poor, &b, None).residuals.shape(), [0]);
    let residuals = jit(|a: &Tensor| linalg::lstsq(a, &b, None).residuals).of(&poor);
    assert!(residuals.item::<f64>().is_nan());
}

#[test]
fn masks_and_bags() {
    let masks = [
        Tensor::from([true, false, true, false]),
        Tensor::from([false, false, false, false]),
        Tensor::from([true, true, false, true]),
    ];
    let (x, source) = (Tensor::from([1.0, 2.0, 3.0, 4.0]), Tensor::from([7.0, 8.0, 9.0]));
    agrees("masked_scatter", |mask| x.masked_scatter(mask, &source), &masks);
    let by_source = |mask: &Tensor| {
        let f = |s: &Tensor| (x.masked_scatter(mask, s) * &x).sum();
        grad(f)(&source)
    };
    agrees("gradient of masked_scatter", by_source, &masks);
    let few = Tensor::from([7.0]);
    let short = jit(|mask: &Tensor| x.masked_scatter(mask, &few));
    assert!(short.call(&masks[0]).is_err());
    assert_eq!(short.of(&masks[1]).to_vec::<f64>(), x.to_vec::<f64>());
    let none = Tensor::zeros_with([0], DType::F64);
    let empty = jit(|mask: &Tensor| x.masked_scatter(mask, &none));
    assert!(empty.call(&masks[0]).is_err());
    assert_eq!(empty.of(&masks[1]).to_vec::<f64>(), x.to_vec::<f64>());
    assert!(catch(|| x.masked_scatter(&masks[0], &few)).is_err());

    let table = Tensor::from([[1.0, 2.0], [3.0, -4.0], [0.5, 0.25]]);
    let rows = [Tensor::from([1i64, 0, 1, 2, 2]), Tensor::from([2i64, 2, 2, 0, 1])];
    let offsets = Tensor::from([0i64, 2, 2, 4]);
    for mode in [BagMode::Sum, BagMode::Mean, BagMode::Max] {
        for end in [false, true] {
            let bag = EmbeddingBag::new(mode).offsets(&offsets).include_last_offset(end);
            let bag = bag.rows(Embedding::new().padding(2));
            agrees("embedding_bag", |rows| bag.of(&table, rows), &rows);
            let gradient =
                |rows: &Tensor| grad(|t: &Tensor| bag.of(t, rows).square().sum())(&table);
            agrees("gradient of embedding_bag", gradient, &rows);
        }
        let by_offsets = |o: &Tensor| EmbeddingBag::new(mode).offsets(o).of(&table, &rows[0]);
        agrees(
            "embedding_bag by offsets",
            by_offsets,
            &[offsets.clone(), Tensor::from([0i64, 0, 1, 5])],
        );
        let compiled = jit(by_offsets);
        for wrong in [[1i64, 2, 2, 4], [0, 3, 2, 4], [0, 2, 3, 9]] {
            let y = compiled.of(&Tensor::from(wrong));
            assert!(y.is_nan().all().item::<bool>());
            assert!(catch(|| by_offsets(&Tensor::from(wrong))).is_err());
        }
    }
}

#[test]
fn drawing() {
    let weights = [Tensor::from([0.0, 3.0, 0.0, 1.0]), Tensor::from([5.0, 0.5, 1.0, 0.0])];
    for replacement in [false, true] {
        let draw = |w: &Tensor| Key::new(3).multinomial(w, 2, replacement);
        agrees("multinomial", draw, &weights);
        let compiled = jit(draw);
        for wrong in [[0.0; 4], [1.0, -1.0, 1.0, 1.0], [f64::NAN, 1.0, 1.0, 1.0]] {
            assert_eq!(compiled.of(&Tensor::from(wrong)).to_vec::<i64>(), [4, 4]);
            assert!(catch(|| draw(&Tensor::from(wrong))).is_err());
        }
    }
}

#[test]
fn transforms_and_roots_in_loops() {
    let x = Tensor::from([[1.0, 2.0, 3.0, 5.0], [0.5, 0.1, 0.2, 0.3]]);
    let f = |x: &Tensor| {
        let iteration = |s: &Tensor, row: &Tensor| {
            let y = fft::rfft(&(s + row), None, -1, fft::Norm::Backward);
            let z = fft::irfft(&(&y * &y), Some(4), -1, fft::Norm::Ortho);
            (z.sin(), ())
        };
        scan(iteration, &Tensor::from([0.0; 4]), x).0.sum()
    };
    agrees("gradient of Fourier transforms in a scan", grad(f), &[x.clone(), &x * 0.5]);
    agrees("Hessian of Fourier transforms in a scan", hessian(f), std::slice::from_ref(&x));

    // A captured constant, and one of the library's own, are not differentiated.
    let two = Tensor::from(2.0);
    let g = move |x: &Tensor| {
        let two = two.clone();
        let iteration = move |s: &Tensor, x: &Tensor| {
            let two = two.clone();
            let residual = move |t: &Tensor, z: &Tensor| z * z * &two - t;
            (root(residual, &(s.square() + x), &Tensor::from(1.0)), ())
        };
        scan(iteration, &Tensor::from(0.5), x).0
    };
    let x = Tensor::from([1.0, 2.0, 3.0]);
    agrees("gradient of roots in a scan", grad(&g), &[x.clone(), &x * 0.5]);
    agrees("Hessian of roots in a scan", hessian(&g), std::slice::from_ref(&x));
    agrees(
        "tangent of roots in a scan",
        |x| jvp(&g, x, &Tensor::from([1.0, 0.5, 0.0])).1,
        std::slice::from_ref(&x),
    );

    // A captured value that is differentiated is refused, in a loop as outside of one.
    let h = |c: &Tensor| {
        let iteration = |s: &Tensor, x: &Tensor| {
            let c = c.clone();
            let residual = move |t: &Tensor, z: &Tensor| z * z * &c - t;
            (root(residual, &(s.square() + x), &Tensor::from(1.0)), ())
        };
        scan(iteration, &Tensor::from(0.5), &x).0
    };
    for error in [
        catch(|| grad(h)(&Tensor::from(2.0))).unwrap_err(),
        jit(grad(h)).call(&Tensor::from(2.0)).unwrap_err(),
        catch(|| jit(|c: &Tensor| jvp(h, c, c).1).of(&Tensor::from(2.0))).unwrap_err(),
    ] {
        assert!(error.to_string().contains("is not among its arguments"), "{error}");
    }
}

#[test]
fn numbers_of_values() {
    let numbers = [Tensor::from([1i64, 3, 1]), Tensor::from([0i64, 0, 4])];
    let weights = Tensor::from([0.5, 2.0, 0.25]);
    agrees("bincount", |x| x.bincount(None, 5), &numbers);
    agrees("bincount with weights", |x| x.bincount(Some(&weights), 6), &numbers);
    let by_weights = |w: &Tensor| (numbers[0].bincount(Some(w), 5) * w.sum()).square().sum();
    let g = grad(by_weights)(&weights);
    assert_eq!(jit(grad(by_weights)).of(&weights).to_vec::<f64>(), g.to_vec::<f64>());
    // Without a length, or with one that is too small, it is refused.
    let error = jit(|x: &Tensor| x.bincount(None, 0)).call(&numbers[0]).unwrap_err().to_string();
    assert!(error.contains("the number of bins") && error.contains("min_length"), "{error}");
    assert!(jit(|x: &Tensor| x.bincount(None, 2)).call(&numbers[0]).is_err());
    let error =
        jit(|n: &Tensor| weights.repeat_by(n, 0)).call(&numbers[0]).unwrap_err().to_string();
    assert!(error.contains("the length of the result"), "{error}");
    // As the hint says.
    let places = |n: &Tensor| n.cumsum(0).searchsorted(&Tensor::arange(0, 5), true);
    agrees("repeat_by", |n| weights.index_select(0, &places(n)), &numbers[..1]);
    let found = weights.index_select(0, &places(&numbers[0]));
    assert_eq!(found.to_vec::<f64>(), weights.repeat_by(&numbers[0], 0).to_vec::<f64>());
}

#[test]
fn alignments() {
    use pullback::losses::{Ctc, ctc, ctc_by};
    use pullback::{Reduction, value_and_grad};
    type Batch = (Tensor, Tensor, Tensor, Tensor);
    let log_p = |t: usize, n: usize| {
        let values: Vec<f64> = (0..t * n * 4).map(|i| ((i * i) as f64 * 0.37).sin()).collect();
        Tensor::from_vec(values, [t, n, 4]).log_softmax(2)
    };
    let batches: [(Tensor, Vec<usize>, Vec<usize>); 3] = [
        (Tensor::from([[1i64, 2, 2], [3, 1, 0]]), vec![6, 4], vec![3, 2]),
        (Tensor::from([[1i64, 1, 1], [2, 9, -7]]), vec![3, 6], vec![3, 1]),
        (Tensor::from([[1i64, 2, 3], [2, 2, 2]]), vec![0, 5], vec![0, 3]),
    ];
    for zero_infinity in [false, true] {
        for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
            let how = Ctc { zero_infinity, reduction, ..Ctc::default() };
            let sum = |y: Tensor| y.sum();
            let by = move |(x, y, t, n): &Batch| sum(ctc_by(x, y, t, n, how));
            // One program for all lengths.
            let compiled = jit(value_and_grad(by));
            for (labels, times, counts) in &batches {
                let x = log_p(6, 2);
                let list =
                    |k: &[usize]| Tensor::from(k.iter().map(|&k| k as i64).collect::<Vec<_>>());
                let batch = (x.clone(), labels.clone(), list(times), list(counts));
                let fixed = |x: &Tensor| sum(ctc(x, labels, times, counts, how));
                let (wanted, slope) = value_and_grad(fixed)(&x);
                let same = |a: &Tensor, b: &Tensor| {
                    let close = |(a, b): (&f64, &f64)| {
                        a == b || (a - b).abs() < 1e-12 || a.is_nan() && b.is_nan()
                    };
                    let (a, b) = (a.to_vec::<f64>(), b.to_vec::<f64>());
                    assert!(a.iter().zip(&b).all(close), "{a:?} {b:?}");
                };
                for (value, (g, ..)) in [value_and_grad(by)(&batch), compiled.of(&batch)] {
                    same(&value, &wanted);
                    same(&g, &slope);
                }
                // Labels as an argument, and the lengths as numbers.
                let of_labels = |y: &Tensor| ctc(&x, y, times, counts, how).sum();
                same(&jit(of_labels).of(labels), &wanted);
            }
            assert_eq!(compiled.explain().specialisations.len(), 1);
        }
    }
    // A sample at a time, for many at once.
    let how = Ctc { reduction: Reduction::Sum, ..Ctc::default() };
    let (x, (labels, times, counts)) = (log_p(6, 2), &batches[0]);
    let one = |(x, y, t, n): &Batch| ctc_by(x, y, t, n, how);
    let list = |k: &[usize]| Tensor::from(k.iter().map(|&k| k as i64).collect::<Vec<_>>());
    let each = vmap(one, 0, 0)(&(x.transpose(0, 1), labels.clone(), list(times), list(counts)));
    let none = Ctc { reduction: Reduction::None, ..how };
    let wanted = ctc(&x, labels, times, counts, none).to_vec::<f64>();
    assert!(each.to_vec::<f64>().iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-12));
    let error = catch(|| ctc_by(&x, &labels.narrow(0, 0, 1), &list(times), &list(counts), how));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("expected labels [2, max_length]"), "{error}");
    assert!(error.contains("static_shapes.rs"), "{error}");
}
