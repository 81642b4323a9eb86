//! What is counted, where, and what is not.

use super::*;

#[test]
fn a_report_says_what_where_and_how_many() {
    let x = leaf(&[-1.0, 0.0, 0.0, 2.0]);
    let (y, report) = kink_report(|| {
        let mut y = x.abs();
        for _ in 0..3 {
            y = x.relu() + y;
        }
        y
    });
    assert_eq!(report.kinks.len(), 2);
    let (relu, abs) = (&report.kinks[0], &report.kinks[1]);
    assert_eq!((relu.op, relu.elements, relu.total, relu.calls), ("relu", 6, 12, 3));
    assert_eq!((abs.op, abs.elements, abs.total, abs.calls), ("abs", 2, 4, 1));
    assert_eq!((relu.place, relu.convention.as_str()), ("0", "0"));
    assert!(abs.at.file().ends_with("counted.rs"));
    assert_eq!(relu.at.line(), abs.at.line() + 2);
    assert_eq!(report.elements(), 8);
    let text = report.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("elements  of  calls  op"), "{text}");
    assert!(lines[1].trim_start().starts_with("6  12      3  relu"), "{text}");
    assert!(lines[1].contains("counted.rs:"), "{text}");
    // Outside nothing is counted, and the result is as ever.
    y.sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [-1.0, 0.0, 0.0, 4.0]);
    assert!(kink_report(|| ()).1.is_empty());
}

#[test]
fn functions_of_one_element_count_theirs() {
    let at_zero = [-1.5, -0.0, 0.0, 2.5];
    for (f, name) in [
        (Tensor::relu as fn(&Tensor) -> Tensor, "relu"),
        (Tensor::abs, "abs"),
        (Tensor::sign, "sign"),
        (Tensor::sqrt, "sqrt"),
        (Tensor::log, "log"),
        (Tensor::log2, "log2"),
        (Tensor::log10, "log10"),
        (Tensor::recip, "recip"),
        (Tensor::rsqrt, "rsqrt"),
        (Tensor::i0e, "i0e"),
        (|x| x.leaky_relu(0.1), "leaky_relu"),
        (|x| x.elu(2.0), "elu"),
        (Tensor::selu, "elu"),
        (|x| x.heaviside(0.5), "heaviside"),
        (|x| losses::l1(x, &x.zeros_like(), Reduction::Sum), "abs"),
    ] {
        assert_eq!(counts(f, &at_zero), (name, 2, 4));
    }
    assert_eq!(counts(Tensor::floor, &[-1.0, 0.0, 0.5, INF, NAN]), ("floor", 2, 5));
    assert_eq!(counts(Tensor::ceil, &[-1.0, 0.0, 0.5, INF, NAN]), ("ceil", 2, 5));
    assert_eq!(counts(Tensor::trunc, &[-1.0, 0.0, 0.5, 3.0]), ("trunc", 2, 4));
    assert_eq!(counts(Tensor::frac, &[-1.0, 0.0, 0.5, 3.0]), ("trunc", 2, 4));
    assert_eq!(counts(Tensor::round, &[-1.5, 0.5, 1.0, 0.25]), ("round", 2, 4));
    assert_eq!(counts(Tensor::log1p, &[-1.0, 0.0]), ("log1p", 1, 2));
    assert_eq!(counts(Tensor::asin, &[-1.0, 0.0, 1.0]), ("asin", 2, 3));
    assert_eq!(counts(Tensor::acosh, &[1.0, 2.0]), ("acosh", 1, 2));
    assert_eq!(counts(Tensor::erfinv, &[-1.0, 0.0, 1.0]), ("erfinv", 2, 3));
    assert_eq!(counts(Tensor::ndtri, &[0.0, 0.5, 1.0]), ("ndtri", 2, 3));
    assert_eq!(counts(Tensor::lgamma, &[0.0, -2.0, -2.5, 3.0]), ("lgamma", 2, 4));
    assert_eq!(counts(|x| x.prelu(&Tensor::from(0.5)), &at_zero), ("prelu", 2, 4));
    assert_eq!(counts(|x| x.softshrink(1.0), &[-1.0, 0.0, 1.0]), ("softshrink", 2, 3));
    assert_eq!(counts(|x| x.hardshrink(1.0), &[-1.0, 0.0, 1.0]), ("hardshrink", 2, 3));
    assert_eq!(counts(|x| x.threshold(1.0, 5.0), &[-1.0, 0.0, 1.0]), ("threshold", 1, 3));
    assert_eq!(counts(|x| x.hardtanh(-1.0, 2.0), &[-1.0, 0.0, 2.0]), ("hardtanh", 2, 3));
    assert_eq!(counts(Tensor::relu6, &[0.0, 1.0, 6.0]), ("relu6", 2, 3));
    assert_eq!(counts(Tensor::hardsigmoid, &[-3.0, 1.0, 3.0]), ("hardsigmoid", 2, 3));
    assert_eq!(counts(Tensor::hardswish, &[-3.0, 1.0, 3.0]), ("hardswish", 2, 3));
    assert_eq!(counts(|x| x.clamp(-1.0, 1.0), &[-1.0, 0.0, -1.0, 5.0]).0, "clamp");
    assert_eq!(counts(|x| x.clamp_min(-1.0), &[-1.0, 0.0, 1.0]), ("clamp_min", 1, 3));
    assert_eq!(counts(|x| x.clamp_max(1.0), &[-1.0, 0.0, 1.0]), ("clamp_max", 1, 3));
    assert_eq!(counts(|x| x.powf(0.5), &at_zero), ("pow", 2, 4));
    assert_eq!(counts(|x| x.pow(Tensor::from([0.5, 2.0])), &[0.0, 0.0]), ("pow", 1, 2));
}

#[test]
fn functions_of_two_elements_count_theirs() {
    let other = Tensor::from([1.0, 2.0, NAN]);
    let x = [1.0, 3.0, NAN];
    assert_eq!(counts(|x| x.maximum(&other), &x), ("maximum", 1, 3));
    assert_eq!(counts(|x| other.minimum(x), &x), ("minimum", 1, 3));
    assert_eq!(counts(|x| x.fmax(&other), &x), ("fmax", 1, 3));
    assert_eq!(counts(|x| x.fmin(&other), &x), ("fmin", 1, 3));
    assert_eq!(counts(|x| x.remainder(2.0), &[4.0, 0.0, 3.0, -2.0]), ("remainder", 3, 4));
    assert_eq!(counts(|x| x.fmod(2.0), &[4.0, 0.0, 3.0, -2.0]), ("fmod", 2, 4));
    assert_eq!(counts(|x| x.floor_div(2.0), &[4.0, 0.0, 3.0, -2.0]), ("floor_div", 3, 4));
    assert_eq!(counts(|x| x / Tensor::from([0.0, 1.0]), &[1.0, 1.0]), ("div", 1, 2));
    assert_eq!(counts(|x| x.atan2(Tensor::from([0.0, 1.0, -1.0])), &[0.0; 3]), ("atan2", 2, 3));
    assert_eq!(counts(|x| x.copysign(Tensor::from([1.0, 0.0])), &[0.0, 2.0]), ("copysign", 2, 2));
    assert_eq!(counts(|x| x.hypot(&Tensor::from([0.0, 1.0])), &[0.0, 0.0]), ("hypot", 1, 2));
}

#[test]
fn ties_are_counted_by_results() {
    let x = [1.0, 3.0, 3.0, 2.0, 2.0, 1.0];
    let rows = |x: &Tensor| x.reshape([2, 3]);
    assert_eq!(counts(|x| rows(x).max_over(1), &x), ("max", 2, 2));
    assert_eq!(
        counts(|x| rows(x).min_over(1).sum(), &[1.0, 3.0, 3.0, 1.0, 1.0, 2.0]),
        ("min", 1, 2)
    );
    assert_eq!(counts(Tensor::max, &x), ("max", 1, 1));
    assert_eq!(counts(|x| rows(x).max_at(1).0, &x), ("argmax", 2, 2));
    assert_eq!(counts(|x| x.min_at(0).0, &x), ("argmin", 1, 1));
    assert_eq!(counts(|x| x.sort(0, false).0, &[1.0, 3.0, 3.0, 5.0]), ("sort", 2, 4));
    assert_eq!(counts(|x| x.sort(0, true).0, &[3.0, 3.0, 3.0, NAN, NAN]), ("sort", 3, 5));
    assert_eq!(counts(|x| x.topk(2, 0, true).0, &[1.0, 2.0, 2.0, 5.0]), ("topk", 1, 2));
    assert_eq!(counts(|x| x.kthvalue(2, 0).0, &[1.0, 2.0, 2.0, 5.0]), ("kthvalue", 1, 1));
    assert_eq!(counts(|x| x.median(0).0, &[1.0, 2.0, 2.0, 5.0]), ("median", 1, 1));
    // Smooth where the elements are equal.
    let (_, report) = kink_report(|| leaf(&[2.0, 2.0, 5.0]).soft_rank(0, 1.0));
    assert!(report.is_empty(), "{report}");
    // 2 again, then 3 for the first time, then again.
    assert_eq!(counts(|x| x.cummax(0), &[2.0, 2.0, 1.0, 3.0, 1.0, 3.0]), ("cummax", 3, 6));
    assert_eq!(counts(|x| x.cummin(0), &[2.0, 3.0, 2.0, 1.0]), ("cummin", 1, 4));
    let index = Tensor::from([0i64, 0, 1]);
    let base = Tensor::from([7.0, 1.0]);
    assert_eq!(counts(|x| base.scatter_max(0, &index, x), &[7.0, 2.0, 5.0]), ("scatter", 1, 2));
    assert_eq!(counts(Tensor::norm, &[0.0, 0.0]), ("norm", 1, 1));
    assert_eq!(counts(|x| rows(x).std_over(1), &[1.0, 1.0, 1.0, 1.0, 2.0, 3.0]), ("std", 1, 2));
    assert_eq!(counts(|x| x.vector_norm(3.0, 0), &[0.0, 0.0]), ("vector_norm", 1, 1));
    let identity = |x: &Tensor| x.reshape([2, 2]);
    assert_eq!(
        counts(|x| linalg::eigh(&identity(x), false).0, &[1.0, 0.0, 0.0, 1.0]),
        ("eigh", 2, 2)
    );
    let (table, rows) = (leaf(&[1.0, 1.0, 0.0]).reshape([3, 1]), Tensor::from([[0i64, 1], [1, 2]]));
    let bag = || EmbeddingBag::new(BagMode::Max).of(&table, &rows);
    assert_eq!(only(&kink_report(bag).1), ("embedding_bag", 1, 2));
}

#[test]
fn pools_count_windows_with_ties_whatever_their_shape() {
    let row = |x: &Tensor| x.unsqueeze(0);
    let pool = |p: Pool| move |x: &Tensor| row(x).max_pool1d(&p);
    let x = [2.0, 2.0, 1.0, 3.0, 3.0, 3.0, 0.0];
    assert_eq!(counts(pool(Pool::new(2)), &x), ("pool_argmax", 2, 3));
    // [∅ 2 2] [1 3 3]… with a step of 2: [∅ 2 2], [2 1 3], [3 3 3], [3 0 ∅].
    assert_eq!(counts(pool(Pool::new(3).stride(2).padding(1)), &x), ("pool_argmax", 2, 4));
    // [2 1 3], [2 3 3], [1 3 0].
    assert_eq!(counts(pool(Pool::new(3).stride(1).dilation(2)), &x), ("pool_argmax", 1, 3));
    assert_eq!(counts(pool(Pool::new(3).ceil_mode(true)), &x), ("pool_argmax", 2, 3));
    assert_eq!(counts(|x| row(x).adaptive_max_pool1d(3), &x), ("pool_argmax", 3, 3));
    // NaN is no tie; −∞ beside −∞ is.
    assert_eq!(counts(pool(Pool::new(2)), &[NAN, NAN, -INF, -INF]), ("pool_argmax", 1, 2));
    let image = [1.0, 4.0, 2.0, 4.0, 0.0, 1.0, 2.0, 2.0, 2.0, 3.0, 1.0, 1.0];
    let square = |x: &Tensor| x.reshape([1, 3, 4]).max_pool2d(&Pool::new(2).stride(1));
    // 1 4 2 4 / 0 1 2 2 / 2 3 1 1
    assert_eq!(counts(square, &image), ("pool_argmax", 1, 6));
}

#[test]
fn smooth_functions_count_nothing() {
    let x = leaf(&[-1.0, 0.0, 1.0]);
    let zeros = Tensor::zeros_with([3], DType::F64);
    let (_, report) = kink_report(|| {
        let smooth = [
            x.softsign(),
            x.elu(1.0),
            x.celu(2.0),
            x.leaky_relu(1.0),
            x.gelu(),
            x.silu(),
            x.mish(),
            x.softplus(1.0, 20.0),
            x.log_sigmoid(),
            x.logaddexp(&x),
            x.sinc(),
            x.square().square(),
            x.powi(3),
            x.cumprod(0),
            x.softmax(0),
            x.prod(),
            losses::huber(&x, &zeros, 1.0, Reduction::Sum),
            losses::smooth_l1(&x, &zeros, 0.5, Reduction::Sum),
            x.vector_norm(3.0, 0),
            x.is_finite().select(&x, 0.0),
            x.i1e(),
        ];
        assert!(smooth.iter().all(Tensor::is_tracked));
    });
    assert!(report.is_empty() && report.unseen.is_empty(), "{report}");
}

#[test]
fn only_what_is_differentiated_counts() {
    let x = Tensor::from([0.0, 1.0]);
    assert!(kink_report(|| x.relu()).1.is_empty());
    let tracked = x.requires_grad();
    assert!(kink_report(|| no_grad(|| tracked.relu())).1.is_empty());
    assert!(kink_report(|| tracked.detach().relu()).1.is_empty());
    // A gradient counts the forward pass once and nothing of its own; neither does a second
    // derivative.
    let x = Tensor::from([0.0, 1.0]);
    let f = |x: &Tensor| (x.abs() * x.relu()).sum();
    let (_, report) = kink_report(|| grad(f)(&x));
    assert_eq!(report.kinks.iter().map(|k| (k.elements, k.calls)).collect::<Vec<_>>(), [(1, 1); 2]);
    let (_, report) = kink_report(|| grad(|x: &Tensor| grad(f)(x).sum())(&x));
    assert_eq!(report.kinks.iter().map(|k| (k.elements, k.calls)).collect::<Vec<_>>(), [(1, 1); 2]);
    let (_, report) = kink_report(|| jvp(f, &x, &Tensor::from([1.0, 1.0])));
    assert_eq!(report.kinks.iter().map(|k| (k.elements, k.calls)).collect::<Vec<_>>(), [(1, 1); 2]);
    // In place, too.
    let (_, report) = kink_report(|| (leaf(&[0.0, 1.0]) * 1.0).relu_());
    assert_eq!(only(&report), ("relu", 1, 2));
}

#[test]
fn reports_nest_and_end_with_their_scope() {
    let x = leaf(&[0.0]);
    let ((_, inner), outer) = kink_report(|| {
        let _ = x.abs();
        kink_report(|| x.relu())
    });
    assert_eq!(only(&inner), ("relu", 1, 1));
    assert_eq!(outer.elements(), 2);
    let error = catch(|| kink_report(|| x.relu().reshape([7]))).unwrap_err();
    assert!(error.to_string().contains("reshape"));
    assert!(kink_report(|| ()).1.is_empty());
}

#[test]
fn a_checkpointed_function_counts_once() {
    let x = leaf(&[0.0, 1.0, 0.0]);
    let (_, report) = kink_report(|| {
        let y = checkpoint(|x: &Tensor| (x.relu() * x.relu()).exp(), &x);
        y.sum().backward().unwrap();
    });
    assert_eq!(only(&report), ("relu", 4, 6));
}

#[test]
fn strict_mode_refuses_and_says_where() {
    let x = Tensor::from([[1.0, 2.0], [0.0, 0.0]]).requires_grad();
    let error = catch(|| strict_kinks(|| x.sqrt().sum())).unwrap_err();
    let (text, line) = (error.to_string(), line!() - 1);
    assert!(
        text.starts_with(
            "sqrt: 2 of 4 elements are at a kink (0), the first at [1, 0]; the derivative taken there is ∞"
        ),
        "{text}"
    );
    assert!(text.contains(&format!("counted.rs:{line}")), "{text}");
    assert!(text.contains("f64[2,2]"), "{text}");
    assert_eq!(error.op(), "sqrt");
    // Off the kinks, and where nothing is differentiated, all is well.
    assert_eq!(strict_kinks(|| (x.detach().sqrt().sum() + (&x + 1.0).sqrt().sum()).len()), 1);
    // Afterwards it is over.
    assert_eq!(x.relu().len(), 4);
    // A report inside does not soften it.
    assert!(catch(|| strict_kinks(|| kink_report(|| x.relu()))).is_err());
    let clamp = catch(|| strict_kinks(|| x.clamp(1.0, 9.0))).unwrap_err().to_string();
    assert!(
        clamp.starts_with("clamp: 1 of 4 elements are at a kink (at a bound), the first at [0, 0]"),
        "{clamp}"
    );
}

#[test]
fn examples_of_vmap_are_counted() {
    let x = Tensor::from([[0.0, 1.0], [0.0, 0.0], [2.0, 3.0]]);
    // Differentiated outside.
    let tracked = x.requires_grad();
    let (_, report) = kink_report(|| vmap(|x: &Tensor| x.relu().sum(), 0, 0)(&tracked));
    assert_eq!(only(&report), ("relu", 3, 6));
    // Not differentiated.
    let x = Tensor::from([[0.0, 1.0], [0.0, 0.0], [2.0, 3.0]]);
    assert!(kink_report(|| vmap(|x: &Tensor| x.relu().sum(), 0, 0)(&x)).1.is_empty());
    // Differentiated inside; a function without an op of its own; one vmap in another.
    let f = |x: &Tensor| x.clamp_min(0.0).sum();
    let (_, report) = kink_report(|| vmap(grad(f), 0, 0)(&x));
    assert_eq!(only(&report), ("clamp_min", 3, 6));
    let one = |x: &Tensor| grad(|x: &Tensor| x.hardtanh(0.0, 3.0))(x);
    let (_, report) = kink_report(|| vmap(vmap(one, 0, 0), 0, 0)(&x));
    assert_eq!(only(&report), ("hardtanh", 4, 6));
    // Jacobians are made of vmaps: each element counts once, not once a column.
    let row = Tensor::from([0.0, 1.0, 0.0]);
    for jacobian in
        [kink_report(|| jacfwd(Tensor::relu)(&row)), kink_report(|| jacrev(Tensor::relu)(&row))]
    {
        assert_eq!(only(&jacobian.1), ("relu", 2, 3));
    }
    let (_, report) = kink_report(|| hessian(|x: &Tensor| (x.relu() * x).sum())(&row));
    assert_eq!(only(&report), ("relu", 2, 3));
    let error = catch(|| strict_kinks(|| vmap(grad(f), 0, 0)(&x))).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("3 of 6 elements are at a kink (at a bound), the first at [0, 0]")
    );
    // What vmap gives is what it gives.
    let (y, _) = kink_report(|| vmap(grad(f), 0, 1)(&x));
    assert_eq!(y.to_vec::<f64>(), vmap(grad(f), 0, 1)(&x).to_vec::<f64>());
}

#[test]
fn loops_are_counted_turn_by_turn() {
    let xs = leaf(&[0.0, 1.0, 0.0]);
    let sum =
        |xs: &Tensor| scan(|s: &Tensor, x: &Tensor| (s + x.relu(), ()), &Tensor::from(0.0), xs).0;
    let (_, report) = kink_report(|| sum(&xs));
    assert_eq!(only(&report), ("relu", 2, 3));
    let rows = Tensor::from([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]);
    let (g, report) = kink_report(|| vmap(grad(sum), 0, 0)(&rows));
    assert_eq!(only(&report), ("relu", 3, 6));
    assert_eq!(g.to_vec::<f64>(), [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
    // A checkpointed body is looked into.
    let kept = |x: &Tensor| checkpoint(|x: &Tensor| x.relu().sum(), x);
    let (_, report) = kink_report(|| vmap(grad(kept), 0, 0)(&rows));
    assert_eq!(only(&report), ("relu", 3, 6));
    // A branch that depends on the example is not.
    let branch = |x: &Tensor| cond(&x.sum().gt(1.0), |x| x.relu().sum(), |x| x.sum(), x);
    let (_, report) = kink_report(|| vmap(grad(branch), 0, 0)(&rows));
    assert!(report.is_empty());
    assert_eq!(report.unseen.len(), 1);
    assert_eq!(report.unseen[0].0, "relu");
    assert!(report.to_string().contains("not seen: `relu` at"), "{report}");
    // Neither is a body by a report that begins inside it.
    let inner = std::cell::RefCell::new(KinkReport::default());
    let reported = |x: &Tensor| {
        let (y, report) = kink_report(|| grad(|x: &Tensor| x.relu().sum())(x));
        inner.replace(report);
        y
    };
    let (_, outer) = kink_report(|| vmap(reported, 0, 0)(&rows));
    assert!(inner.borrow().is_empty() && inner.borrow().unseen.len() == 1);
    assert_eq!(outer.unseen, inner.borrow().unseen);
    let strict = |x: &Tensor| strict_kinks(|| grad(|x: &Tensor| x.relu().sum())(x));
    assert!(catch(|| kink_report(|| vmap(strict, 0, 0)(&rows))).is_err());
    let error = catch(|| strict_kinks(|| vmap(grad(branch), 0, 0)(&rows))).unwrap_err();
    assert!(error.to_string().starts_with("relu: whether elements are at its kinks is not known"));
}

#[test]
fn compiled_functions_run_op_by_op_to_be_counted() {
    let f = jit(grad(|x: &Tensor| x.abs().sum()));
    let x = Tensor::from([0.0, -2.0, 0.0]);
    let outside = f.call(&x).unwrap().to_vec::<f64>();
    let (inside, report) = kink_report(|| f.call(&x).unwrap());
    assert_eq!(only(&report), ("abs", 2, 3));
    assert_eq!(inside.to_vec::<f64>(), outside);
    assert_eq!(f.explain().uncompiled, (1, Some("elements on kinks are being counted")));
    let (_, report) = kink_report(|| {
        let abs = |x: &Tensor| x.abs().sum();
        trace(|x: &[Tensor]| grad(abs)(&x[0]), &[x.spec().clone()]).unwrap()
    });
    assert!(report.is_empty() && report.unseen.len() == 1, "{report}");
    let plain = || trace(|x: &[Tensor]| x[0].abs(), &[x.spec().clone()]).unwrap();
    assert_eq!(kink_report(plain).1, KinkReport::default());
}

#[test]
fn custom_functions_have_no_kinks_but_their_users() {
    let f = custom_vjp(
        "upper",
        |x: &Tensor| (x.relu(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.ge(0.0).cast(DType::F64),
    );
    let x = leaf(&[0.0, 1.0]);
    assert!(kink_report(|| f.call(&x)).1.is_empty());
}

#[test]
fn parts_of_smooth_functions_are_not_theirs() {
    let zeros = leaf(&[0.0, 0.0]);
    let (_, report) = kink_report(|| {
        let y = zeros.normalize(2.0, 0, 1e-12).sum();
        y + zeros.cosine_similarity(&Tensor::from([1.0, 2.0]), 0, 1e-8)
    });
    assert!(report.is_empty(), "{report}");
    // 1 and −1 are bounds of a correlation that nothing reaches beyond.
    let x = leaf(&[1.0, 2.0, 3.0, 6.0, 4.0, 2.0]);
    assert!(kink_report(|| x.reshape([2, 3]).corrcoef()).1.is_empty());
    // A normalisation is smooth at the origin, whatever the norm is agreed to be.
    let jax = || grad(|x: &Tensor| x.normalize(2.0, 0, 0.5).sum())(&zeros.detach()).to_vec::<f64>();
    assert_eq!(with_conventions(&Conventions::jax(), jax), [2.0, 2.0]);
}

#[test]
fn images_bend_where_their_elements_are() {
    let image = Tensor::from_vec([1.0, 2.0, 4.0, 8.0], [1, 1, 1, 4]);
    let read = |how, outside| {
        let image = image.clone();
        move |x: &Tensor| {
            let grid = pullback::stack(&[x, &x.zeros_like()], -1).reshape([1, 1, x.len(), 2]);
            image.grid_sample(&grid, how, outside, true)
        }
    };
    // Four elements span −1 to 1: −1, −⅓, ⅓ and 1 are their centres. A second axis of one element
    // is at its centre always.
    let at = |how, outside, x: &[f64]| {
        let (_, report) = kink_report(|| read(how, outside)(&leaf(x)));
        let k = &report.kinks[0];
        assert_eq!((k.op, k.calls), ("grid_sample", 2));
        k.elements - x.len()
    };
    assert_eq!(at(GridSampleMode::Linear, GridPaddingMode::Border, &[-1.0, -2.0, 0.0, 1.0]), 2);
    assert_eq!(at(GridSampleMode::Linear, GridPaddingMode::Zeros, &[-1.0, -9.0, 0.25]), 1);
    let slope = |x: f64| {
        grad(|x: &Tensor| read(GridSampleMode::Linear, GridPaddingMode::Border)(x).sum())(
            &Tensor::from([x]),
        )
        .item::<f64>()
    };
    assert_eq!((slope(-1.0), slope(1.0)), (0.0, 0.0));
    let (_, report) =
        kink_report(|| read(GridSampleMode::Cubic, GridPaddingMode::Zeros)(&leaf(&[-1.0, 0.0])));
    assert!(report.is_empty(), "{report}");
    // The convention for hardtanh does not apply here.
    let inside = Conventions::pullback().hardtanh(AtBound::Inside);
    assert_eq!(with_conventions(&inside, || slope(-1.0)), 0.0);
}
