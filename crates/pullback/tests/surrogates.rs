//! Gradients that are not the derivative on purpose, and soft versions of hard choices.

use pullback::check::Check;
use pullback::{
    CrossEntropy, DType, JitOutput, Key, Reduction, Tensor, Tree, catch, cross_entropy, grad, jvp,
    unchecked_rules, vjp, vmap,
};

#[track_caller]
fn near(a: &Tensor, b: &[f64]) {
    let a = a.to_f64_vec();
    assert_eq!(a.len(), b.len(), "{a:?} is not {b:?}");
    for (x, y) in a.iter().zip(b) {
        assert!((x - y).abs() <= 1e-9 * y.abs().max(1.0), "{a:?} is not {b:?}");
    }
}

/// Compiled, and every pass and kernel compared with plain ops.
fn jit<T: Tree, Y: JitOutput<Value = Y>>(f: impl Fn(&T) -> Y) -> impl Fn(&T) -> Y {
    let f = pullback::jit(f);
    move |x| {
        f.check(x).unwrap();
        f.of(x)
    }
}

/// The gradient of Σ w·f(x): eager, compiled, of a `vmap` over rows, inside a `vmap`, with a leaf.
fn gradients(f: impl Fn(&Tensor) -> Tensor + Copy, x: &Tensor, w: &Tensor, expected: &[f64]) {
    let loss = |(x, w): &(Tensor, Tensor)| (f(x) * w).sum();
    let at = (x.clone(), w.clone());
    near(&grad(loss)(&at).0, expected);
    near(&jit(grad(loss))(&at).0, expected);
    let leaf = x.deep_clone().requires_grad();
    loss(&(leaf.clone(), w.clone())).backward().unwrap();
    near(&leaf.grad().unwrap(), expected);
}

#[test]
fn straight_through_estimators() {
    let x = Tensor::from([-2.4, -0.5, 0.3, 1.0]);
    let w = Tensor::from([1.0, -2.0, 3.0, 0.5]);
    let same = w.to_vec::<f64>();
    near(&x.round_ste(), &[-2.0, 0.0, 0.0, 1.0]);
    near(&x.sign_ste(None), &[-1.0, -1.0, 1.0, 1.0]);
    near(&x.threshold_ste(0.3), &[0.0, 0.0, 0.0, 1.0]);
    gradients(|x| x.round_ste(), &x, &w, &same);
    gradients(|x| x.sign_ste(None), &x, &w, &same);
    gradients(|x| x.threshold_ste(0.3), &x, &w, &same);
    gradients(|x| x.sign_ste(Some(1.0)), &x, &w, &[0.0, -2.0, 3.0, 0.5]);
    gradients(|x| x.straight_through(|x| x.floor()), &x, &w, &same);
    // Forward mode is the transpose.
    near(&jvp(|x: &Tensor| x.round_ste(), &x, &w).1, &same);
    near(&jvp(|x: &Tensor| x.sign_ste(Some(1.0)), &x, &w).1, &[0.0, -2.0, 3.0, 0.5]);
    // The second derivative: that of r(x)² is 2, of which r'' has no part.
    let twice = grad(|x: &Tensor| grad(|x: &Tensor| x.round_ste().square().sum())(x).sum());
    near(&twice(&x), &[2.0; 4]);
    near(&vmap(grad(|x: &Tensor| x.round_ste().square()), 0, 0)(&x), &[-4.0, 0.0, 0.0, 2.0]);
}

#[test]
fn reversed_and_scaled_gradients() {
    let x = Tensor::from([3.0, -1.0]);
    let w = Tensor::from([1.0, 2.0]);
    near(&x.reverse_gradient(0.5), &[3.0, -1.0]);
    gradients(|x| x.reverse_gradient(0.5), &x, &w, &[-0.5, -1.0]);
    gradients(|x| x.scale_gradient(0.1), &x, &w, &[0.1, 0.2]);
    near(&jvp(|x: &Tensor| x.reverse_gradient(0.5), &x, &w).1, &[-0.5, -1.0]);
    // d/dx of −λ·2r(x) is (−λ)²·2.
    let twice =
        grad(|x: &Tensor| grad(|x: &Tensor| x.reverse_gradient(0.5).square().sum())(x).sum());
    near(&twice(&x), &[0.5, 0.5]);
    // The value is a tensor of its own.
    let y = x.reverse_gradient(1.0);
    y.add_(1.0);
    near(&x, &[3.0, -1.0]);
}

#[test]
fn clipped_gradients() {
    let x = Tensor::from([3.0, 4.0]);
    gradients(|x| x.clip_gradient(1.0), &x, &Tensor::from([6.0, 8.0]), &[0.6, 0.8]);
    gradients(|x| x.clip_gradient(20.0), &x, &Tensor::from([6.0, 8.0]), &[6.0, 8.0]);
    gradients(|x| x.clip_gradient_value(7.0), &x, &Tensor::from([6.0, -8.0]), &[6.0, -7.0]);
    gradients(|x| x.clip_gradient(1.0), &x, &Tensor::from([0.0, 0.0]), &[0.0, 0.0]);
    // Tangents pass as they are.
    near(&jvp(|x: &Tensor| x.clip_gradient(1.0), &x, &Tensor::from([6.0, 8.0])).1, &[6.0, 8.0]);
    near(
        &jvp(|x: &Tensor| x.clip_gradient_value(1.0), &x, &Tensor::from([6.0, 8.0])).1,
        &[6.0, 8.0],
    );
    // Neither the squares of large gradients overflow nor those of small ones vanish.
    let pull =
        |x: &Tensor, dy: &Tensor, most: f64| vjp(|x: &Tensor| x.clip_gradient(most), x).1(dy);
    let large = Tensor::from([3e30f32, 4e30]);
    let clipped = pull(&large.zeros_like(), &large, 1.0).to_f64_vec();
    assert!((clipped[0] - 0.6).abs() < 1e-6 && (clipped[1] - 0.8).abs() < 1e-6, "{clipped:?}");
    near(&pull(&x, &Tensor::from([3e200, 4e200]), 1.0), &[0.6, 0.8]);
    let small = pull(&x, &Tensor::from([3e-200, 4e-200]), 1e-200).to_f64_vec();
    assert!((small[0] / 6e-201 - 1.0).abs() < 1e-9, "{small:?}");
    let half = pull(
        &Tensor::zeros_with([2], DType::F16),
        &Tensor::full([2], 1000.0).cast(DType::F16),
        1.0,
    );
    assert!((half.to_f64_vec()[0] - 0.5f64.sqrt()).abs() < 1e-3 && half.dtype() == DType::F16);
    // What is not finite is not hidden.
    assert!(pull(&x, &Tensor::from([f64::NAN, 1.0]), 1.0).to_f64_vec()[0].is_nan());
    assert!(pull(&x, &Tensor::from([f64::INFINITY, 1.0]), 1.0).to_f64_vec()[0].is_nan());
    assert!(
        vjp(|x: &Tensor| x.clip_gradient_value(1.0), &x).1(&Tensor::from([f64::NAN, 1.0]))
            .to_f64_vec()[0]
            .is_nan()
    );
    assert!(pull(&Tensor::zeros([0]), &Tensor::zeros([0]), 1.0).is_empty());
    // Each example its own norm.
    let rows = Tensor::from([[3.0, 4.0], [0.3, 0.4]]);
    let each = vmap(grad(|x: &Tensor| (x.clip_gradient(1.0).square() * 0.5).sum()), 0, 0)(&rows);
    near(&each, &[0.6, 0.8, 0.3, 0.4]);
}

#[test]
fn the_second_derivative_of_clipping_is_that_of_its_formula() {
    let formula = |g: &Tensor| g * (1.0 / g.square().sum().sqrt().clamp_min(1.0));
    for at in [[0.9, -1.7], [0.1, 0.2]] {
        let x = Tensor::from(at);
        let clipped = |x: &Tensor| grad(|x: &Tensor| x.clip_gradient(1.0).powi(3).sum())(x);
        let plain = |x: &Tensor| formula(&(x.square() * 3.0));
        let w = Tensor::from([1.0, -2.0]);
        let of = |f: &dyn Fn(&Tensor) -> Tensor| grad(|x: &Tensor| (f(x) * &w).sum())(&x);
        near(&clipped(&x), &plain(&x).to_f64_vec());
        // The second pass comes by here as well, and is clipped too.
        near(&of(&clipped), &formula(&of(&plain)).to_f64_vec());
    }
}

#[test]
fn unchecked_rules_name_the_line_that_uses_them() {
    let x = Tensor::from(0.4);
    for _ in 0..3 {
        let _ = x.reverse_gradient(2.5);
    }
    let line = line!() - 2;
    let here = format!("surrogates.rs:{line}:");
    let all = unchecked_rules();
    let found: Vec<_> = all.iter().filter(|r| r.line.contains(&here)).collect();
    assert_eq!(found.len(), 1, "{all:?}");
    assert_eq!((found[0].name, found[0].calls), ("reverse_gradient", 3));
    assert!(found[0].reason.contains("on purpose"));
    // What is a derivative is not listed.
    let _ = grad(|x: &Tensor| x.soft_rank(0, 1.0).square().sum())(&Tensor::from([1.0, 1.5]));
    assert!(unchecked_rules().iter().all(|r| r.name != "isotonic"));
}

#[test]
fn wrong_arguments_get_a_sentence_with_the_line() {
    let x = Tensor::from([1.0, 2.0]);
    let said = |f: &dyn Fn() -> Tensor, words: &str| {
        let error = catch(f).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("surrogates.rs"), "{error}");
    };
    said(&|| x.clip_gradient(0.0), "clip_gradient: the norm must be a positive number, not 0");
    said(
        &|| x.clip_gradient_value(f64::NAN),
        "clip_gradient_value: the limit must be a positive number, not NaN",
    );
    said(
        &|| x.reverse_gradient(f64::INFINITY),
        "reverse_gradient: the factor must be finite, not inf",
    );
    said(&|| x.sign_ste(Some(-1.0)), "sign_ste: the limit must be a positive number");
    said(&|| x.soft_sort(0, false, 0.0), "soft_sort: the strength must be a positive number");
    said(&|| x.soft_rank(0, -1.0), "soft_rank: the strength must be a positive number");
    said(&|| x.soft_rank(1, 1.0), "soft_rank");
    said(
        &|| x.gumbel_softmax(0.0, true, 0, &Key::new(0)),
        "gumbel_softmax: the temperature must be a positive number",
    );
    said(
        &|| Tensor::zeros([0]).gumbel_softmax(1.0, true, 0, &Key::new(0)),
        "gumbel_softmax: there is nothing to choose from",
    );
    said(&|| x.soft_argmax(0, 0.0), "soft_argmax: the temperature must be a positive number");
    said(&|| Tensor::zeros([2, 0]).soft_argmax(1, 1.0), "soft_argmax: the axis is empty");
    said(
        &|| x.straight_through(|x| x.sum()),
        "straight_through: gives f64[] for f64[2]: its gradient cannot be passed back",
    );
    // What would have a gradient is not silently constant.
    let t = Tensor::from(0.5).requires_grad();
    said(
        &|| {
            let t = t.clone();
            x.straight_through(move |x| (x - &t) * 2.0)
        },
        "not among its arguments",
    );
}

/// The projection by its definition, for three elements: the nearest point of the hull of all
/// orders of `w`, by a fine search.
fn nearest_in_hull(z: [f64; 3], w: [f64; 3]) -> [f64; 3] {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let corners: Vec<[f64; 3]> = orders.iter().map(|o| [w[o[0]], w[o[1]], w[o[2]]]).collect();
    // Frank–Wolfe with exact steps between pairs of corners (pairwise), which converges linearly
    // here.
    let mut weights = [1.0 / 6.0; 6];
    let point = |weights: &[f64; 6]| {
        let mut p = [0.0; 3];
        corners.iter().zip(weights).for_each(|(c, k)| (0..3).for_each(|i| p[i] += k * c[i]));
        p
    };
    for _ in 0..200_000 {
        let p = point(&weights);
        let slope = |c: &[f64; 3]| (0..3).map(|i| (p[i] - z[i]) * c[i]).sum::<f64>();
        let by = |a: &usize, b: &usize| slope(&corners[*a]).total_cmp(&slope(&corners[*b]));
        let best = (0..6).min_by(by).unwrap();
        let worst = (0..6).filter(|&k| weights[k] > 0.0).max_by(by).unwrap();
        let d: Vec<f64> = (0..3).map(|i| corners[best][i] - corners[worst][i]).collect();
        let gap: f64 = -(0..3).map(|i| (p[i] - z[i]) * d[i]).sum::<f64>();
        if gap < 1e-15 {
            break;
        }
        let step = (gap / d.iter().map(|d| d * d).sum::<f64>()).min(weights[worst]);
        weights[best] += step;
        weights[worst] -= step;
    }
    point(&weights)
}

#[test]
fn soft_ranks_and_soft_sorts_are_projections() {
    for (k, strength) in [0.05, 0.3, 1.0, 3.0, 50.0].into_iter().enumerate() {
        let x = Key::new(k as u64).normal([3], DType::F64, 0.0, 1.5);
        let v = x.to_vec::<f64>();
        let z = [v[0] / strength, v[1] / strength, v[2] / strength];
        let wanted = nearest_in_hull(z, [1.0, 2.0, 3.0]);
        let given = x.soft_rank(0, strength).to_vec::<f64>();
        (0..3).for_each(|i| assert!((given[i] - wanted[i]).abs() < 1e-5, "{given:?} {wanted:?}"));
        let z = [1.0 / strength, 2.0 / strength, 3.0 / strength];
        let wanted = nearest_in_hull(z, [v[0], v[1], v[2]]);
        let given = x.soft_sort(0, false, strength).to_vec::<f64>();
        (0..3).for_each(|i| assert!((given[i] - wanted[i]).abs() < 1e-5, "{given:?} {wanted:?}"));
        let down = x.soft_sort(0, true, strength).to_vec::<f64>();
        assert_eq!(down, given.into_iter().rev().collect::<Vec<_>>());
    }
}

#[test]
fn limits_of_the_strength() {
    let x = Key::new(3).normal([2, 5, 40], DType::F64, 0.0, 1.0);
    for axis in [0, 1, 2] {
        let n = x.shape()[axis] as f64;
        let axis = axis as isize;
        let (sorted, order) = x.sort(axis, false);
        assert_eq!(x.soft_sort(axis, false, 1e-9).to_vec::<f64>(), sorted.to_vec::<f64>());
        assert_eq!(
            x.soft_sort(axis, true, 1e-9).to_vec::<f64>(),
            x.sort(axis, true).0.to_vec::<f64>()
        );
        let ranks = order.argsort(axis, false).cast(DType::F64) + 1.0;
        assert_eq!(x.soft_rank(axis, 1e-9).to_vec::<f64>(), ranks.to_vec::<f64>());
        let flat = |y: Tensor, of: Tensor| assert!((y - of).abs().max().item::<f64>() < 1e-6);
        flat(x.soft_rank(axis, 1e9), Tensor::from((n + 1.0) / 2.0));
        flat(x.soft_sort(axis, false, 1e9), x.mean_keep(axis));
        // The sum stays, whatever the strength.
        flat(x.soft_sort(axis, false, 0.7).sum_over(axis), x.sum_over(axis));
        flat(x.soft_rank(axis, 0.7).sum_over(axis), Tensor::from(n * (n + 1.0) / 2.0));
    }
}

#[test]
fn ties_infinities_and_narrow_floats() {
    near(&Tensor::from([2.0, 1.0, 2.0]).soft_rank(0, 1e-6), &[2.5, 1.0, 2.5]);
    let far = Tensor::from([f64::INFINITY, 0.0, f64::NEG_INFINITY, 5.0]);
    near(&far.soft_rank(0, 0.1), &[4.0, 2.0, 1.0, 3.0]);
    let broken = Tensor::from([f64::NAN, 3.0, 1.0]).soft_rank(0, 0.1).to_vec::<f64>();
    assert!(broken[0].is_nan() && broken[1..] == [2.0, 1.0], "{broken:?}");
    let x = Tensor::from([0.5f32, -1.0, 2.0]);
    assert_eq!(x.soft_rank(0, 1e-3).to_vec::<f32>(), [2.0, 1.0, 3.0]);
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let y = x.cast(dtype).soft_sort(0, false, 0.01);
        assert_eq!((y.dtype(), y.to_f64_vec()), (dtype, vec![-1.0, 0.5, 2.0]));
    }
    // In f32 a strength that is tiny does not overflow.
    assert_eq!((x * 1e30).soft_rank(0, 1e-30).to_vec::<f32>(), [2.0, 1.0, 3.0]);
    assert_eq!(Tensor::from(4.0).soft_rank(0, 1.0).item::<f64>(), 1.0);
    assert_eq!(Tensor::from(4.0).soft_sort(-1, false, 1.0).item::<f64>(), 4.0);
    assert_eq!(Tensor::zeros([3, 0]).soft_rank(1, 1.0).shape(), [3, 0]);
    near(&Tensor::from([1i64, 3, 2]).soft_rank(0, 0.1), &[1.0, 3.0, 2.0]);
}

#[test]
fn derivatives_of_soft_sorts() {
    let x = Key::new(8).normal([2, 6], DType::F64, 0.0, 1.0);
    let check = |f: &dyn Fn(&Tensor) -> Tensor| {
        // Squared, so that there is a second derivative to be right.
        let report = Check::new()
            .order(2)
            .step(1e-5)
            .tolerance(1e-5, 1e-5)
            .run(|x: &Tensor| f(x).square(), &x);
        assert!(report.unwrap().compared >= 48);
    };
    for strength in [0.2, 1.0, 5.0] {
        check(&|x| x.soft_rank(1, strength));
        check(&|x| x.soft_sort(1, false, strength));
        check(&|x| x.soft_sort(0, true, strength));
    }
    check(&|x| x.isotonic(1));
    check(&|x| x.soft_argmax(1, 0.7));
    // Something is drawn together at each of these strengths, or the above says little.
    let moved =
        |s: f64| grad(|x: &Tensor| x.soft_rank(1, s).square().sum())(&x).abs().sum().item::<f64>();
    assert!([0.2, 1.0, 5.0].into_iter().all(|s| moved(s) > 1e-3));
}

#[test]
fn soft_sorts_are_traced_and_batched() {
    let x = Key::new(9).normal([3, 5], DType::F64, 0.0, 1.0);
    let f = |x: &Tensor| (x.soft_rank(0, 0.8) * x.soft_sort(0, false, 0.8)).square().sum();
    let rows =
        |x: &Tensor| (0..3).map(|i| f(&x.select_at(0, i))).fold(Tensor::from(0.0), |a, b| a + b);
    let expected = grad(rows)(&x).to_f64_vec();
    let each: Vec<f64> = (0..3).map(|i| f(&x.select_at(0, i)).item()).collect();
    near(&vmap(f, 0, 0)(&x), &each);
    near(&vmap(grad(f), 0, 0)(&x), &expected);
    near(&jit(grad(move |x: &Tensor| vmap(f, 0, 0)(x).sum()))(&x), &expected);
    near(&jit(vmap(grad(f), 0, 0))(&x), &expected);
    let whole = |x: &Tensor| x.isotonic(1);
    near(&jit(whole)(&x), &whole(&x).to_f64_vec());
    near(&vmap(|x: &Tensor| x.isotonic(0), 1, 1)(&x), &x.isotonic(0).to_f64_vec());
    let t = x.ones_like().cumsum(1);
    near(
        &jit(|(x, t): &(Tensor, Tensor)| jvp(|x: &Tensor| x.isotonic(1), x, t).1)(&(
            x.clone(),
            t.clone(),
        )),
        &jvp(whole, &x, &t).1.to_f64_vec(),
    );
}

#[test]
fn hard_gumbel_samples_are_one_hot_with_the_gradient_of_soft_ones() {
    let key = Key::new(4);
    let logits = Tensor::from([[0.3, -1.0, 2.0], [0.0, 0.1, 0.2]]);
    let w = Tensor::from([[1.0, 2.0, -1.0], [0.5, 3.0, 0.0]]);
    let hard = logits.gumbel_softmax(0.7, true, -1, &key).to_vec::<f64>();
    assert!(hard.iter().all(|&p| p == 0.0 || p == 1.0), "{hard:?}");
    let of = |hard: bool| {
        let (w, key) = (w.clone(), key.clone());
        move |x: &Tensor| (x.gumbel_softmax(0.7, hard, -1, &key) * &w).sum()
    };
    let expected = grad(of(false))(&logits).to_f64_vec();
    assert!(expected.iter().any(|g| g.abs() > 1e-3));
    near(&grad(of(true))(&logits), &expected);
    near(&jit(grad(of(true)))(&logits), &expected);
    near(&jvp(of(true), &logits, &w).1, &jvp(of(false), &logits, &w).1.to_f64_vec());
    // As the temperature falls, soft samples become hard ones.
    near(&logits.gumbel_softmax(1e-3, false, -1, &key), &hard);
    let first = logits.gumbel_softmax(0.7, true, 0, &key);
    near(&first.sum_over(0), &[1.0; 3]);
}

#[test]
fn cross_entropy_is_stable() {
    let target = Tensor::from([0i64]);
    let naive =
        |x: &Tensor| -(x.exp() / x.exp().sum_keep(1)).log().gather(1, &target.unsqueeze(1)).sum();
    for scale in [1.0f64, 700.0, 1e4, 1e300] {
        let x = Tensor::from([[-scale, 0.0, scale]]);
        let (loss, g) = pullback::value_and_grad(|x: &Tensor| cross_entropy(x, &target))(&x);
        let expected = 2.0 * scale + (1.0 + (-scale).exp() + (-2.0 * scale).exp()).ln();
        near(&(loss / expected), &[1.0]);
        let p = x.softmax(1).to_f64_vec();
        near(&g, &[p[0] - 1.0, p[1], p[2]]);
        assert_eq!(naive(&x).item::<f64>().is_finite(), scale < 2.0);
    }
    // A class that is impossible costs nothing unless it is the target; then the loss is infinite,
    // and not NaN.
    let none = Tensor::from([[1.0, f64::NEG_INFINITY, 2.0]]);
    let of = |x: &Tensor, class: i64| {
        CrossEntropy::new().reduction(Reduction::Sum).of(x, &Tensor::from([class]))
    };
    near(&of(&none, 0), &[(1.0 + 1f64.exp()).ln()]);
    assert_eq!(of(&none, 1).item::<f64>(), f64::INFINITY);
    let g = grad(|x: &Tensor| of(x, 0))(&none).to_f64_vec();
    let p = 1.0 / (1.0 + 1f64.exp());
    near(&Tensor::from(g), &[p - 1.0, 0.0, 1.0 - p]);
    let f32s = Tensor::from([[1e4f32, -1e4]]);
    assert_eq!(cross_entropy(&f32s, &Tensor::from([1i64])).item::<f32>(), 2e4);
}
