//! Elements on kinks: counted, refused, and differentiated as agreed. Then what ties, NaN and infinities do in maxima, sorts, pools and
//! bounds: values and derivatives, eager, compiled and over many examples alike.

use pullback::*;

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

fn leaf(x: &[f64]) -> Tensor {
    Tensor::from(x).requires_grad()
}

/// The op, the elements on kinks and all elements of a report with one entry.
#[track_caller]
fn only(report: &KinkReport) -> (&'static str, usize, usize) {
    assert_eq!(report.kinks.len(), 1, "{report}");
    assert!(report.unseen.is_empty(), "{report}");
    let k = &report.kinks[0];
    (k.op, k.elements, k.total)
}

/// What a function of a tracked tensor counts.
#[track_caller]
fn counted(f: impl Fn(&Tensor) -> Tensor, x: &[f64]) -> (&'static str, usize, usize) {
    only(&kink_report(|| f(&leaf(x))).1)
}

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
    assert!(abs.at.file().ends_with("kinks.rs"));
    assert_eq!(relu.at.line(), abs.at.line() + 2);
    assert_eq!(report.elements(), 8);
    let text = report.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("elements  of  calls  op"), "{text}");
    assert!(lines[1].trim_start().starts_with("6  12      3  relu"), "{text}");
    assert!(lines[1].contains("kinks.rs:"), "{text}");
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
        (|x| losses::l1(x, &Tensor::zeros([4]), Reduction::Sum), "abs"),
    ] {
        assert_eq!(counted(f, &at_zero), (name, 2, 4));
    }
    assert_eq!(counted(Tensor::floor, &[-1.0, 0.0, 0.5, INF, NAN]), ("floor", 2, 5));
    assert_eq!(counted(Tensor::ceil, &[-1.0, 0.0, 0.5, INF, NAN]), ("ceil", 2, 5));
    assert_eq!(counted(Tensor::trunc, &[-1.0, 0.0, 0.5, 3.0]), ("trunc", 2, 4));
    assert_eq!(counted(Tensor::frac, &[-1.0, 0.0, 0.5, 3.0]), ("trunc", 2, 4));
    assert_eq!(counted(Tensor::round, &[-1.5, 0.5, 1.0, 0.25]), ("round", 2, 4));
    assert_eq!(counted(Tensor::log1p, &[-1.0, 0.0]), ("log1p", 1, 2));
    assert_eq!(counted(Tensor::asin, &[-1.0, 0.0, 1.0]), ("asin", 2, 3));
    assert_eq!(counted(Tensor::acosh, &[1.0, 2.0]), ("acosh", 1, 2));
    assert_eq!(counted(Tensor::erfinv, &[-1.0, 0.0, 1.0]), ("erfinv", 2, 3));
    assert_eq!(counted(Tensor::ndtri, &[0.0, 0.5, 1.0]), ("ndtri", 2, 3));
    assert_eq!(counted(Tensor::lgamma, &[0.0, -2.0, -2.5, 3.0]), ("lgamma", 2, 4));
    assert_eq!(counted(|x| x.prelu(&Tensor::from(0.5)), &at_zero), ("prelu", 2, 4));
    assert_eq!(counted(|x| x.softshrink(1.0), &[-1.0, 0.0, 1.0]), ("softshrink", 2, 3));
    assert_eq!(counted(|x| x.hardshrink(1.0), &[-1.0, 0.0, 1.0]), ("hardshrink", 2, 3));
    assert_eq!(counted(|x| x.threshold(1.0, 5.0), &[-1.0, 0.0, 1.0]), ("threshold", 1, 3));
    assert_eq!(counted(|x| x.hardtanh(-1.0, 2.0), &[-1.0, 0.0, 2.0]), ("hardtanh", 2, 3));
    assert_eq!(counted(Tensor::relu6, &[0.0, 1.0, 6.0]), ("relu6", 2, 3));
    assert_eq!(counted(Tensor::hardsigmoid, &[-3.0, 1.0, 3.0]), ("hardsigmoid", 2, 3));
    assert_eq!(counted(Tensor::hardswish, &[-3.0, 1.0, 3.0]), ("hardswish", 2, 3));
    assert_eq!(counted(|x| x.clamp(-1.0, 1.0), &[-1.0, 0.0, -1.0, 5.0]).0, "clamp");
    assert_eq!(counted(|x| x.clamp_min(-1.0), &[-1.0, 0.0, 1.0]), ("clamp_min", 1, 3));
    assert_eq!(counted(|x| x.clamp_max(1.0), &[-1.0, 0.0, 1.0]), ("clamp_max", 1, 3));
    assert_eq!(counted(|x| x.powf(0.5), &at_zero), ("pow", 2, 4));
    assert_eq!(counted(|x| x.pow(Tensor::from([0.5, 2.0])), &[0.0, 0.0]), ("pow", 1, 2));
}

#[test]
fn functions_of_two_elements_count_theirs() {
    let other = Tensor::from([1.0, 2.0, NAN]);
    let x = [1.0, 3.0, NAN];
    assert_eq!(counted(|x| x.maximum(&other), &x), ("maximum", 1, 3));
    assert_eq!(counted(|x| other.minimum(x), &x), ("minimum", 1, 3));
    assert_eq!(counted(|x| x.fmax(&other), &x), ("fmax", 1, 3));
    assert_eq!(counted(|x| x.fmin(&other), &x), ("fmin", 1, 3));
    assert_eq!(counted(|x| x.remainder(2.0), &[4.0, 0.0, 3.0, -2.0]), ("remainder", 3, 4));
    assert_eq!(counted(|x| x.fmod(2.0), &[4.0, 0.0, 3.0, -2.0]), ("fmod", 2, 4));
    assert_eq!(counted(|x| x.floor_div(2.0), &[4.0, 0.0, 3.0, -2.0]), ("floor_div", 3, 4));
    assert_eq!(counted(|x| x / Tensor::from([0.0, 1.0]), &[1.0, 1.0]), ("div", 1, 2));
    assert_eq!(counted(|x| x.atan2(Tensor::from([0.0, 1.0, -1.0])), &[0.0; 3]), ("atan2", 2, 3));
    assert_eq!(counted(|x| x.copysign(Tensor::from([1.0, 0.0])), &[0.0, 2.0]), ("copysign", 2, 2));
    assert_eq!(counted(|x| x.hypot(&Tensor::from([0.0, 1.0])), &[0.0, 0.0]), ("hypot", 1, 2));
}

#[test]
fn ties_are_counted_by_results() {
    let x = [1.0, 3.0, 3.0, 2.0, 2.0, 1.0];
    let rows = |x: &Tensor| x.reshape([2, 3]);
    assert_eq!(counted(|x| rows(x).max_over(1), &x), ("max", 2, 2));
    assert_eq!(
        counted(|x| rows(x).min_over(1).sum(), &[1.0, 3.0, 3.0, 1.0, 1.0, 2.0]),
        ("min", 1, 2)
    );
    assert_eq!(counted(Tensor::max, &x), ("max", 1, 1));
    assert_eq!(counted(|x| rows(x).max_at(1).0, &x), ("argmax", 2, 2));
    assert_eq!(counted(|x| x.min_at(0).0, &x), ("argmin", 1, 1));
    assert_eq!(counted(|x| x.sort(0, false).0, &[1.0, 3.0, 3.0, 5.0]), ("sort", 2, 4));
    assert_eq!(counted(|x| x.sort(0, true).0, &[3.0, 3.0, 3.0, NAN, NAN]), ("sort", 3, 5));
    assert_eq!(counted(|x| x.topk(2, 0, true).0, &[1.0, 2.0, 2.0, 5.0]), ("ranks", 1, 2));
    assert_eq!(counted(|x| x.kthvalue(2, 0).0, &[1.0, 2.0, 2.0, 5.0]), ("ranks", 1, 1));
    assert_eq!(counted(|x| x.median(0).0, &[1.0, 2.0, 2.0, 5.0]), ("ranks", 1, 1));
    // 2 again, then 3 for the first time, then again.
    assert_eq!(counted(|x| x.cummax(0), &[2.0, 2.0, 1.0, 3.0, 1.0, 3.0]), ("cummax", 3, 6));
    assert_eq!(counted(|x| x.cummin(0), &[2.0, 3.0, 2.0, 1.0]), ("cummin", 1, 4));
    let index = Tensor::from([0i64, 0, 1]);
    let base = Tensor::from([7.0, 1.0]);
    assert_eq!(counted(|x| base.scatter_max(0, &index, x), &[7.0, 2.0, 5.0]), ("scatter", 1, 2));
    assert_eq!(counted(Tensor::norm, &[0.0, 0.0]), ("norm", 1, 1));
    assert_eq!(counted(|x| rows(x).std_over(1), &[1.0, 1.0, 1.0, 1.0, 2.0, 3.0]), ("std", 1, 2));
    assert_eq!(counted(|x| x.vector_norm(3.0, 0), &[0.0, 0.0]), ("vector_norm", 1, 1));
    let identity = |x: &Tensor| x.reshape([2, 2]);
    assert_eq!(
        counted(|x| linalg::eigh(&identity(x), false).0, &[1.0, 0.0, 0.0, 1.0]),
        ("eigh", 2, 2)
    );
    let (table, rows) = (leaf(&[1.0, 1.0, 0.0]).reshape([3, 1]), Tensor::from([[0i64, 1], [1, 2]]));
    let bag = || EmbeddingBag::new(Bag::Max).of(&table, &rows);
    assert_eq!(only(&kink_report(bag).1), ("embedding_bag", 1, 2));
}

#[test]
fn pools_count_windows_with_ties_whatever_their_shape() {
    let row = |x: &Tensor| x.unsqueeze(0);
    let pool = |p: Pool| move |x: &Tensor| row(x).max_pool1d(&p);
    let x = [2.0, 2.0, 1.0, 3.0, 3.0, 3.0, 0.0];
    assert_eq!(counted(pool(Pool::new(2)), &x), ("pool_argmax", 2, 3));
    // [∅ 2 2] [1 3 3]… with a step of 2: [∅ 2 2], [2 1 3], [3 3 3], [3 0 ∅].
    assert_eq!(counted(pool(Pool::new(3).stride(2).padding(1)), &x), ("pool_argmax", 2, 4));
    // [2 1 3], [2 3 3], [1 3 0].
    assert_eq!(counted(pool(Pool::new(3).stride(1).dilation(2)), &x), ("pool_argmax", 1, 3));
    assert_eq!(counted(pool(Pool::new(3).ceil_mode(true)), &x), ("pool_argmax", 2, 3));
    assert_eq!(counted(|x| row(x).adaptive_max_pool1d(3), &x), ("pool_argmax", 3, 3));
    // NaN is no tie; −∞ beside −∞ is.
    assert_eq!(counted(pool(Pool::new(2)), &[NAN, NAN, -INF, -INF]), ("pool_argmax", 1, 2));
    let image = [1.0, 4.0, 2.0, 4.0, 0.0, 1.0, 2.0, 2.0, 2.0, 3.0, 1.0, 1.0];
    let square = |x: &Tensor| x.reshape([1, 3, 4]).max_pool2d(&Pool::new(2).stride(1));
    // 1 4 2 4 / 0 1 2 2 / 2 3 1 1
    assert_eq!(counted(square, &image), ("pool_argmax", 1, 6));
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
    // A gradient counts the forward pass once and nothing of its own; neither does a second derivative.
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
            "sqrt: 2 of 4 elements sit on a kink (0), the first at [1, 0]; the derivative taken there is ∞"
        ),
        "{text}"
    );
    assert!(text.contains(&format!("kinks.rs:{line}")), "{text}");
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
        clamp.starts_with("clamp: 1 of 4 elements sit on a kink (at a bound), the first at [0, 0]"),
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
            .contains("3 of 6 elements sit on a kink (at a bound), the first at [0, 0]")
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
    let error = catch(|| strict_kinks(|| vmap(grad(branch), 0, 0)(&rows))).unwrap_err();
    assert!(error.to_string().starts_with("relu: whether elements sit on its kinks is not known"));
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

// Conventions.

/// The derivative of `f` at `x`: the same in reverse mode, in forward mode and compiled.
#[track_caller]
fn slope(f: &dyn Fn(&Tensor) -> Tensor, x: f64) -> f64 {
    let x = Tensor::from(x);
    let reverse = grad(f)(&x).item::<f64>();
    let forward = jvp(f, &x, &Tensor::from(1.0)).1.item::<f64>();
    let compiled = jit(grad(f)).call(&x).unwrap().item::<f64>();
    let many = vmap(grad(f), 0, 0)(&x.unsqueeze(0)).to_vec::<f64>()[0];
    let same = |y: f64| y == reverse || (y.is_nan() && reverse.is_nan());
    assert!(
        [forward, compiled, many].into_iter().all(same),
        "{reverse} {forward} {compiled} {many}"
    );
    reverse
}

/// `f` is flat, or a straight line, on both sides of `x`. Its derivative there must be `part` of the way from the slope on the left to that on the right,
/// and the second derivative of its square must be made of it.
#[track_caller]
fn is_between(name: &str, c: Conventions, f: &dyn Fn(&Tensor) -> Tensor, x: f64, part: f64) {
    let at = |x: f64| f(&Tensor::from(x)).item::<f64>();
    let h = 1.0 / 1024.0;
    let (left, right) = ((at(x) - at(x - h)) / h, (at(x + h) - at(x)) / h);
    assert!((left - right).abs() > 0.1, "{name} has no kink at {x}");
    with_conventions(&c, || {
        assert_eq!(at(x), f(&Tensor::from(x)).item::<f64>());
        let found = slope(f, x);
        let wanted = left + part * (right - left);
        assert!((found - wanted).abs() < 2e-3, "{name} at {x}: {found}, not {wanted}");
        let second = hessian(|x: &Tensor| f(x).square().sum())(&Tensor::from([x])).item::<f64>();
        let straight = 2.0 * found * found;
        assert!(name == "hardswish" || (second - straight).abs() < 1e-9, "{name}: {second}");
    });
}

#[test]
fn every_convention_is_a_slope_between_the_sides() {
    let c = Conventions::pullback;
    for s in [0.0, 0.25, 0.5, 1.0] {
        is_between("relu", c().relu(s), &Tensor::relu, 0.0, s);
        is_between("abs", c().abs(2.0 * s - 1.0), &Tensor::abs, 0.0, s);
    }
    for (at, part) in [(AtZero::Below, 0.0), (AtZero::Above, 1.0)] {
        is_between("leaky_relu", c().leaky_relu(at), &|x| x.leaky_relu(0.25), 0.0, part);
        let weight = Tensor::from(0.25);
        is_between("prelu", c().leaky_relu(at), &move |x| x.prelu(&weight), 0.0, part);
    }
    for (at, inside) in [(AtBound::Inside, 1.0), (AtBound::Half, 0.5), (AtBound::Outside, 0.0)] {
        let outside = 1.0 - inside;
        is_between("clamp", c().clamp(at), &|x| x.clamp(1.0, 2.0), 1.0, inside);
        is_between("clamp", c().clamp(at), &|x| x.clamp(1.0, 2.0), 2.0, outside);
        is_between("clamp_min", c().clamp(at), &|x| x.clamp_min(Tensor::from(1.0)), 1.0, inside);
        is_between("clamp_max", c().clamp(at), &|x| x.clamp_max(Tensor::from(1.0)), 1.0, outside);
        is_between("hardtanh", c().hardtanh(at), &|x| x.hardtanh(1.0, 2.0), 1.0, inside);
        is_between("hardtanh", c().hardtanh(at), &|x| x.hardtanh(1.0, 2.0), 2.0, outside);
        is_between("relu6", c().relu6(at), &Tensor::relu6, 0.0, inside);
        is_between("relu6", c().relu6(at), &Tensor::relu6, 6.0, outside);
        is_between("hardsigmoid", c().relu6(at), &Tensor::hardsigmoid, -3.0, inside);
        is_between("hardsigmoid", c().relu6(at), &Tensor::hardsigmoid, 3.0, outside);
        is_between("hardswish", c().relu6(at), &Tensor::hardswish, -3.0, inside);
        is_between("hardswish", c().relu6(at), &Tensor::hardswish, 3.0, outside);
    }
    let two = Tensor::from(2.0);
    for (at, first) in [(AtTie::Half, 0.5), (AtTie::First, 1.0), (AtTie::Second, 0.0)] {
        let second = 1.0 - first;
        is_between("maximum", c().maximum(at), &|x| x.maximum(&two), 2.0, first);
        is_between("maximum", c().maximum(at), &|x| two.maximum(x), 2.0, second);
        is_between("minimum", c().maximum(at), &|x| x.minimum(&two), 2.0, second);
        is_between("minimum", c().maximum(at), &|x| two.minimum(x), 2.0, first);
    }
}

#[test]
fn bounds_that_are_tensors_get_the_rest() {
    for (at, to_bound) in [(AtBound::Inside, 0.0), (AtBound::Half, 0.5), (AtBound::Outside, 1.0)] {
        let (x, low) = (Tensor::from(1.0), leaf(&[1.0]));
        let c = Conventions::pullback().clamp(at);
        with_conventions(&c, || x.clamp_min(&low)).sum().backward().unwrap();
        assert_eq!(low.grad().unwrap().to_vec::<f64>(), [to_bound]);
    }
}

#[test]
fn ties_over_axes_go_to_all_or_to_the_first() {
    let first = Conventions::pullback().max(AtTies::First);
    let x = Tensor::from([[1.0, 3.0, 3.0], [3.0, 2.0, 2.0]]);
    let slopes = |f: &dyn Fn(&Tensor) -> Tensor| {
        let f = |x: &Tensor| f(x).sum();
        let g = grad(f)(&x).to_vec::<f64>();
        assert_eq!(jit(grad(f)).call(&x).unwrap().to_vec::<f64>(), g);
        let basis = |i: usize| {
            let one: Vec<f64> = (0..6).map(|j| f64::from(u8::from(i == j))).collect();
            jvp(f, &x, &Tensor::from_vec(one, [2, 3])).1.item::<f64>()
        };
        assert_eq!((0..6).map(basis).collect::<Vec<_>>(), g);
        g
    };
    let third = 1.0 / 3.0;
    assert_eq!(slopes(&|x| x.max_over(1)), [0.0, 0.5, 0.5, 1.0, 0.0, 0.0]);
    assert_eq!(slopes(&Tensor::max), [0.0, third, third, third, 0.0, 0.0]);
    with_conventions(&first, || {
        assert_eq!(slopes(&|x| x.max_over(1)), [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(slopes(&|x| x.max_over(0)), [0.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
        assert_eq!(slopes(&|x| x.min_over(1)), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!(slopes(&Tensor::max), [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(x.max_keep([0, 1]).shape(), [1, 1]);
        assert_eq!(Tensor::from([1, 5, 5]).max().item::<i32>(), 5);
        let error = catch(|| Tensor::zeros([0]).max()).unwrap_err().to_string();
        assert!(error.starts_with("max"), "{error}");
    });
}

#[test]
fn norms_at_the_origin_have_a_derivative_or_none() {
    let zeros = Tensor::from([0.0, 0.0]);
    let slopes = |f: fn(&Tensor) -> Tensor| grad(f)(&zeros).to_vec::<f64>();
    let hypot: fn(&Tensor) -> Tensor = |x| x.at(0).hypot(&x.at(1));
    assert_eq!(slopes(Tensor::norm), [0.0, 0.0]);
    assert_eq!(slopes(hypot), [0.0, 0.0]);
    with_conventions(&Conventions::pullback().norm(AtOrigin::Nan), || {
        assert!(slopes(Tensor::norm).iter().all(|g| g.is_nan()));
        assert!(slopes(Tensor::std).iter().all(|g| g.is_nan()));
        assert!(slopes(|x| x.vector_norm(2.0, 0)).iter().all(|g| g.is_nan()));
        assert_eq!(slopes(hypot), [0.0, 0.0]);
        assert_eq!(grad(Tensor::norm)(&Tensor::from([0.0, -4.0])).to_vec::<f64>(), [0.0, -1.0]);
    });
    with_conventions(&Conventions::pullback().hypot(AtOrigin::Nan), || {
        assert!(slopes(hypot).iter().all(|g| g.is_nan()));
        assert_eq!(slopes(Tensor::norm), [0.0, 0.0]);
    });
}

#[test]
fn conventions_change_no_value() {
    let values = [-INF, -6.0, -3.0, -1.0, -0.0, 0.0, 5e-324, 0.3, 1.0, 3.0, 6.0, 1.7e308, INF, NAN];
    let x = Tensor::from(values);
    let swapped = x.flip(0);
    let all: [&dyn Fn() -> Tensor; 14] = [
        &|| x.relu(),
        &|| x.abs(),
        &|| x.abs().recip(),
        &|| x.leaky_relu(0.1),
        &|| x.clamp(-3.0, 1.0),
        &|| x.clamp(-INF, INF),
        &|| x.hardtanh(-1.0, 1.0),
        &|| x.hardtanh(-INF, INF),
        &|| x.relu6(),
        &|| x.hardsigmoid(),
        &|| x.hardswish(),
        &|| x.maximum(&swapped),
        &|| x.minimum(&x),
        &|| x.narrow(0, 0, 13).max_keep(0),
    ];
    let extreme = Conventions::pullback()
        .relu(1.0)
        .abs(-1.0)
        .leaky_relu(AtZero::Above)
        .clamp(AtBound::Outside)
        .hardtanh(AtBound::Inside)
        .relu6(AtBound::Inside)
        .maximum(AtTie::Second)
        .max(AtTies::First)
        .norm(AtOrigin::Nan);
    for (i, f) in all.iter().enumerate() {
        let plain = f().to_vec::<f64>();
        let conventions =
            [extreme, extreme.abs(1.0), Conventions::jax(), Conventions::tensorflow()];
        for c in conventions {
            let other = with_conventions(&c, f).to_vec::<f64>();
            let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
            assert!(plain.iter().zip(&other).all(same), "{i}: {plain:?} {other:?}");
        }
    }
}

#[test]
fn the_conventions_of_the_forward_pass_hold_wherever_backward_runs() {
    let one = Conventions::pullback().relu(1.0);
    let x = leaf(&[0.0, 2.0]);
    with_conventions(&one, || x.relu().sum()).backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [1.0, 1.0]);
    x.zero_grad();
    let y = x.relu().sum();
    with_conventions(&one, || y.backward().unwrap());
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [0.0, 1.0]);
    // In place, and inside a scope that goes back to the default.
    x.zero_grad();
    let y = with_conventions(&one, || {
        let y = &x * 1.0;
        y.relu_();
        y.sum() + with_conventions(&Conventions::default(), || x.relu().sum())
    });
    y.backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [1.0, 2.0]);
    // What a checkpointed function computes again is what it computed.
    x.zero_grad();
    let y = with_conventions(&one, || checkpoint(|x: &Tensor| x.relu().exp().sum(), &x));
    y.backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [1.0, 2.0f64.exp()]);
}

#[test]
fn compiled_functions_are_compiled_for_their_conventions() {
    let one = Conventions::pullback().relu(1.0);
    let f = jit(grad(|x: &Tensor| x.relu().sum()));
    let x = Tensor::from([0.0, 2.0]);
    let call = || f.call(&x).unwrap().to_vec::<f64>();
    assert_eq!(call(), [0.0, 1.0]);
    assert_eq!(with_conventions(&one, call), [1.0, 1.0]);
    assert_eq!(call(), [0.0, 1.0]);
    let specialisations = f.explain().specialisations;
    assert_eq!(specialisations.len(), 2);
    assert!(specialisations[1].why.contains("conventions"), "{}", specialisations[1].why);
    // Loops and branches inside, where the derivative is that of a body.
    let sum =
        |x: &Tensor| scan(|s: &Tensor, x: &Tensor| (s + x.relu(), ()), &Tensor::from(0.0), x).0;
    let either = |x: &Tensor| cond(&x.sum().gt(0.0), |x| x.relu().sum(), |x| x.sum(), x);
    let fs: [(&str, &dyn Fn(&Tensor) -> Tensor); 2] = [("scan", &sum), ("cond", &either)];
    for (name, f) in fs {
        let slopes = || jit(grad(f)).call(&x).unwrap().to_vec::<f64>();
        assert_eq!(slopes(), [0.0, 1.0], "{name}");
        assert_eq!(with_conventions(&one, slopes), [1.0, 1.0], "{name}");
        let many = || vmap(grad(f), 0, 0)(&x.unsqueeze(0)).to_vec::<f64>();
        assert_eq!(many(), [0.0, 1.0], "{name}");
        assert_eq!(with_conventions(&one, many), [1.0, 1.0], "{name}");
    }
}

#[test]
fn presets_are_what_frameworks_do() {
    let of = |c: Conventions, f: &dyn Fn(&Tensor) -> Tensor, x: f64| {
        with_conventions(&c, || slope(f, x))
    };
    let one = Tensor::from(1.0);
    let probes: [(&dyn Fn(&Tensor) -> Tensor, f64, [f64; 4]); 9] = [
        (&Tensor::relu, 0.0, [0.0, 0.0, 0.0, 0.0]),
        (&Tensor::abs, 0.0, [0.0, 0.0, 0.0, 0.0]),
        (&|x| x.leaky_relu(0.25), 0.0, [0.25, 0.25, 1.0, 0.25]),
        (&|x| x.clamp(0.0, 1.0), 1.0, [1.0, 1.0, 0.5, 1.0]),
        (&|x| x.hardtanh(-1.0, 1.0), 1.0, [0.0, 0.0, 1.0, 0.0]),
        (&Tensor::relu6, 6.0, [0.0, 0.0, 0.5, 0.0]),
        (&|x| x.maximum(&one), 1.0, [0.5, 0.5, 0.5, 1.0]),
        (&|x| x.unsqueeze(0).norm(), 0.0, [0.0, 0.0, NAN, NAN]),
        (&|x| x.hypot(&Tensor::from(0.0)), 0.0, [0.0, NAN, 0.0, 0.0]),
    ];
    let presets = [
        Conventions::pullback(),
        Conventions::torch(),
        Conventions::jax(),
        Conventions::tensorflow(),
    ];
    for (i, (f, x, wanted)) in probes.into_iter().enumerate() {
        let found = presets.map(|c| of(c, f, x));
        let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
        assert!(found.iter().zip(&wanted).all(same), "{i}: {found:?}");
    }
    // The report names what was taken.
    let x = leaf(&[0.0]);
    let (_, report) = with_conventions(&Conventions::jax(), || kink_report(|| x.clamp_min(0.0)));
    assert_eq!(only(&report), ("clamp_min", 1, 1));
    assert_eq!(report.kinks[0].convention, "½, and ½ to the bound");
    let c = Conventions::pullback().relu(0.5);
    let (_, report) = with_conventions(&c, || kink_report(|| x.relu()));
    assert_eq!(only(&report), ("relu", 1, 1));
    assert_eq!(report.kinks[0].convention, "0.5");
    let error = catch(|| Conventions::pullback().relu(2.0)).unwrap_err().to_string();
    assert!(
        error.contains("2 is not a slope of `relu` at 0, which lie between 0 and 1"),
        "{error}"
    );
    assert!(catch(|| Conventions::pullback().abs(NAN)).is_err());
}

// Ties, NaN and infinities.

/// The results and the gradient of their weighted sum (1, 10, 100, …): eager, compiled, and over examples.
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
            [x.clamp(NAN, 1.0), x.clamp(0.0, NAN), x.clamp_min(&Tensor::from([NAN, 0.0]))]
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
    let all: [(&str, fn(&Tensor) -> Tensor); 12] = [
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
