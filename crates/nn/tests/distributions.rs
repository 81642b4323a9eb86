//! Densities, entropies, moments and divergences of distributions: the numbers of scipy, refusals,
//! shapes.

use pullback::check::check_grads;
use pullback::{DType, Key, Tensor, catch};
use pullback_nn::distributions::{
    Bernoulli, Beta, Binomial, Categorical, Dirichlet, Distribution, Exponential, Gamma,
    Independent, Laplace, LogNormal, MultivariateNormal, Normal, OneHotCategorical, Poisson,
    StudentT, Uniform, kl_divergence,
};
use serde_json::Value;

fn recorded() -> Value {
    serde_json::from_str(include_str!("data/distributions.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    serde_json::from_value(value.clone()).unwrap()
}

fn tensor(value: &Value) -> Tensor {
    Tensor::from(numbers(value))
}

fn number(x: f64) -> Tensor {
    Tensor::from(x)
}

fn made(name: &str, a: &[f64]) -> Box<dyn Distribution> {
    let n = |i: usize| number(a[i]);
    match name {
        "Normal" => Box::new(Normal::new(n(0), n(1))),
        "LogNormal" => Box::new(LogNormal::new(n(0), n(1))),
        "Uniform" => Box::new(Uniform::new(n(0), n(1))),
        "Exponential" => Box::new(Exponential::new(n(0))),
        "Laplace" => Box::new(Laplace::new(n(0), n(1))),
        "Gamma" => Box::new(Gamma::new(n(0), n(1))),
        "Beta" => Box::new(Beta::new(n(0), n(1))),
        "StudentT" => Box::new(StudentT::new(n(0), n(1), n(2))),
        "Bernoulli" => Box::new(Bernoulli::new(n(0))),
        "Binomial" => Box::new(Binomial::new(a[0] as u64, n(1))),
        "Poisson" => Box::new(Poisson::new(n(0))),
        _ => panic!("{name} is not in the table"),
    }
}

#[track_caller]
fn near(given: &Tensor, expected: &[f64], what: &str) {
    let given = given.to_vec::<f64>();
    assert_eq!(given.len(), expected.len(), "{what}");
    for (g, e) in given.iter().zip(expected) {
        assert!((g - e).abs() <= 1e-9 * e.abs().max(1.0), "{what}: {g} is not {e}");
    }
}

#[test]
fn the_numbers_are_those_of_scipy() {
    for row in recorded()["rows"].as_array().unwrap() {
        let (name, arguments) = (row["name"].as_str().unwrap(), numbers(&row["arguments"]));
        let (d, what) = (made(name, &arguments), format!("{name} {arguments:?}"));
        assert_eq!(d.name(), name);
        let value = tensor(&row["values"]);
        near(&d.log_prob(&value), &numbers(&row["log_prob"]), &format!("{what}: log_prob"));
        near(&d.mean(), &[row["mean"].as_f64().unwrap()], &format!("{what}: mean"));
        let variance = row["variance"].as_f64().unwrap();
        near(&d.variance(), &[variance], &format!("{what}: variance"));
        near(&d.stddev(), &[variance.sqrt()], &format!("{what}: stddev"));
        if name == "Poisson" {
            let text = catch(|| d.entropy()).unwrap_err().to_string();
            assert!(text.contains("no closed form"), "{text}");
        } else {
            near(&d.entropy(), &[row["entropy"].as_f64().unwrap()], &format!("{what}: entropy"));
        }
        match catch(|| d.cdf(&value)) {
            Ok(cdf) => near(&cdf, &numbers(&row["cdf"]), &format!("{what}: cdf")),
            Err(why) => {
                assert!(["Beta", "StudentT", "Bernoulli", "Binomial"].contains(&name), "{why}");
            }
        }
        match catch(|| d.icdf(&tensor(&row["levels"]))) {
            Ok(icdf) => near(&icdf, &numbers(&row["icdf"]), &format!("{what}: icdf")),
            Err(why) => {
                let without = ["Beta", "StudentT", "Bernoulli", "Binomial", "Poisson"];
                assert!(without.contains(&name), "{why}");
            }
        }
    }
}

#[test]
fn vectors_have_the_numbers_of_scipy() {
    let all = recorded();
    let row = &all["multivariate_normal"];
    let rows: Vec<Vec<f64>> = serde_json::from_value(row["covariance"].clone()).unwrap();
    let covariance = Tensor::from_vec(rows.concat(), [3, 3]);
    let (mean, value) = (tensor(&row["mean"]), tensor(&row["value"]));
    let d = MultivariateNormal::new(&mean, &covariance);
    for d in [
        MultivariateNormal::with_scale_tril(&mean, &d.scale_tril),
        MultivariateNormal::with_precision_matrix(&mean, covariance.inv()),
        d,
    ] {
        near(&d.log_prob(&value), &[row["log_prob"].as_f64().unwrap()], "log_prob");
        near(&d.entropy(), &[row["entropy"].as_f64().unwrap()], "entropy");
        near(&d.covariance_matrix(), &covariance.to_vec::<f64>(), "covariance");
        near(&d.precision_matrix(), &covariance.inv().to_vec::<f64>(), "precision");
        near(&d.variance(), &[2.0, 1.5, 0.8], "variance");
    }
    let row = &all["dirichlet"];
    let d = Dirichlet::new(tensor(&row["concentration"]));
    near(&d.log_prob(&tensor(&row["value"])), &[row["log_prob"].as_f64().unwrap()], "log_prob");
    near(&d.entropy(), &[row["entropy"].as_f64().unwrap()], "entropy");
    near(&d.mean(), &numbers(&row["mean"]), "mean");
    near(&d.variance(), &numbers(&row["variance"]), "variance");
    // Two numbers that sum to 1 are a beta variate.
    let (pair, beta) = (Dirichlet::new(Tensor::from([2.0, 5.0])), Beta::new(number(2.0), 5.0));
    let x = 0.3;
    near(
        &pair.log_prob(&Tensor::from([x, 1.0 - x])),
        &beta.log_prob(&number(x)).to_vec::<f64>(),
        "beta",
    );
}

#[test]
fn divergences_are_those_of_integrals() {
    for row in recorded()["kl"].as_array().unwrap() {
        let (p, a) = (row["p"][0].as_str().unwrap(), numbers(&row["p"][1]));
        let (q, b) = (row["q"][0].as_str().unwrap(), numbers(&row["q"][1]));
        let pair = |x: &[f64]| (number(x[0]), number(*x.get(1).unwrap_or(&0.0)));
        let ((a0, a1), (b0, b1)) = (pair(&a), pair(&b));
        let kl = match (p, q) {
            ("Normal", "Normal") => kl_divergence(&Normal::new(a0, a1), &Normal::new(b0, b1)),
            ("LogNormal", "LogNormal") => {
                kl_divergence(&LogNormal::new(a0, a1), &LogNormal::new(b0, b1))
            }
            ("Uniform", "Uniform") => kl_divergence(&Uniform::new(a0, a1), &Uniform::new(b0, b1)),
            ("Uniform", "Normal") => kl_divergence(&Uniform::new(a0, a1), &Normal::new(b0, b1)),
            ("Exponential", "Exponential") => {
                kl_divergence(&Exponential::new(a0), &Exponential::new(b0))
            }
            ("Exponential", "Gamma") => kl_divergence(&Exponential::new(a0), &Gamma::new(b0, b1)),
            ("Gamma", "Exponential") => kl_divergence(&Gamma::new(a0, a1), &Exponential::new(b0)),
            ("Gamma", "Gamma") => kl_divergence(&Gamma::new(a0, a1), &Gamma::new(b0, b1)),
            ("Laplace", "Laplace") => kl_divergence(&Laplace::new(a0, a1), &Laplace::new(b0, b1)),
            ("Laplace", "Normal") => kl_divergence(&Laplace::new(a0, a1), &Normal::new(b0, b1)),
            ("Beta", "Beta") => kl_divergence(&Beta::new(a0, a1), &Beta::new(b0, b1)),
            ("Bernoulli", "Bernoulli") => kl_divergence(&Bernoulli::new(a0), &Bernoulli::new(b0)),
            ("Binomial", "Binomial") => {
                kl_divergence(&Binomial::new(a[0] as u64, a1), &Binomial::new(b[0] as u64, b1))
            }
            ("Poisson", "Poisson") => kl_divergence(&Poisson::new(a0), &Poisson::new(b0)),
            _ => panic!("{p} and {q} are not in the table"),
        };
        let expected = row["kl"].as_f64().unwrap();
        let given = kl.item::<f64>();
        assert!((given - expected).abs() < 1e-8 * expected, "{p} {q}: {given}, not {expected}");
    }
}

#[test]
fn divergences_of_vectors_and_classes() {
    // By sums, and by the formula of independent normals.
    let (p, q) = (Tensor::from([0.2, 0.5, 0.3]), Tensor::from([0.1, 0.1, 0.8]));
    let expected: f64 = [(0.2, 0.1), (0.5, 0.1), (0.3, 0.8)]
        .iter()
        .map(|(p, q): &(f64, f64)| p * (p / q).ln())
        .sum();
    near(&kl_divergence(&Categorical::new(&p), &Categorical::new(&q)), &[expected], "classes");
    let logits = Categorical::with_logits(p.log() + 3.0);
    near(&kl_divergence(&logits, &Categorical::new(&q)), &[expected], "logits");
    let (one, other) = (OneHotCategorical::new(&p), OneHotCategorical::new(&q));
    near(&kl_divergence(&one, &other), &[expected], "one-hot");

    let (loc, scale) = (Tensor::from([0.5, -1.0]), Tensor::from([2.0, 0.5]));
    let p = MultivariateNormal::with_scale_tril(&loc, scale.diag(0));
    let q =
        MultivariateNormal::new(Tensor::from([0.0, 0.0]), Tensor::from([[1.5, 0.0], [0.0, 3.0]]));
    let parts = |d: &Normal, e: &Normal| kl_divergence(d, e).sum().to_vec::<f64>();
    let (a, b) = (Normal::new(&loc, &scale), Normal::new(0.0, Tensor::from([1.5, 3.0]).sqrt()));
    near(&kl_divergence(&p, &q), &parts(&a, &b), "vectors");
    let whole = kl_divergence(&Independent::new(a, 1), &Independent::new(b, 1));
    near(&whole, &kl_divergence(&p, &q).to_vec::<f64>(), "independent");
    let p = MultivariateNormal::new(&loc, Tensor::from([[2.0, 0.7], [0.7, 1.0]]));
    near(&kl_divergence(&p, &p), &[0.0], "itself");

    let (p, q) =
        (Dirichlet::new(Tensor::from([2.0, 5.0])), Dirichlet::new(Tensor::from([1.5, 0.7])));
    let of =
        |d: &Dirichlet| Beta::new(d.concentration.select_at(0, 0), d.concentration.select_at(0, 1));
    near(&kl_divergence(&p, &q), &kl_divergence(&of(&p), &of(&q)).to_vec::<f64>(), "Dirichlet");

    // Mass where there is none is infinitely far; the reverse is not.
    let inf = f64::INFINITY;
    let (narrow, wide) = (Uniform::new(number(0.0), 1.0), Uniform::new(number(0.0), 2.0));
    assert_eq!(kl_divergence(&wide, &narrow).item::<f64>(), inf);
    let (sure, fair) = (Bernoulli::new(number(1.0)), Bernoulli::new(number(0.5)));
    assert_eq!(kl_divergence(&fair, &sure).item::<f64>(), inf);
    near(&kl_divergence(&sure, &fair), &[2f64.ln()], "sure");
    let one = |p: [f64; 2]| Categorical::new(Tensor::from(p));
    assert_eq!(kl_divergence(&one([0.5, 0.5]), &one([1.0, 0.0])).item::<f64>(), inf);
    near(&kl_divergence(&one([1.0, 0.0]), &one([0.5, 0.5])), &[2f64.ln()], "one class");
    let (never, some) = (Poisson::new(number(0.0)), Poisson::new(number(1.5)));
    assert_eq!(kl_divergence(&some, &never).item::<f64>(), inf);
    near(&kl_divergence(&never, &some), &[1.5], "never");
    let text = catch(|| kl_divergence(&Binomial::new(3, 0.5), &Binomial::new(4, 0.5)));
    assert!(text.unwrap_err().to_string().contains("3 and 4 trials"));
}

#[test]
fn outside_the_support_nothing_is_likely() {
    let least = f64::NEG_INFINITY;
    let (half, bad) = (number(0.5), number(-0.5));
    let with = |d: &dyn Distribution, value: &Tensor| d.log_prob(value).item::<f64>();
    for name in ["LogNormal", "Exponential", "Gamma", "Beta", "Poisson", "Binomial", "Bernoulli"] {
        let arguments = if name == "Binomial" { [3.0, 0.5] } else { [0.5, 2.0] };
        let d = made(name, &arguments);
        assert_eq!(with(&*d, &bad), least, "{name}");
    }
    assert_eq!(with(&Poisson::new(number(2.0)), &half), least);
    assert_eq!(with(&Binomial::new(3, number(0.5)), &number(4.0)), least);
    assert_eq!(with(&Uniform::new(number(0.0), 1.0), &number(1.0)), least);
    assert_eq!(with(&Beta::new(number(2.0), 2.0), &number(1.5)), least);
    let d = OneHotCategorical::new(Tensor::from([0.5, 0.5]));
    assert_eq!(with(&d, &Tensor::from([1.0, 1.0])), least);
    assert_eq!(with(&d, &Tensor::from([0.0, 0.5])), least);
    assert_eq!(with(&d, &Tensor::from([0.0, 1.0])), 0.5f64.ln());
    let d = Dirichlet::new(Tensor::from([1.0, 1.0]));
    assert_eq!(with(&d, &Tensor::from([-0.5, 1.5])), least);
    // With a finite gradient.
    let slope = |x: &Tensor| Gamma::new(number(2.0), 1.0).log_prob(x).sum();
    let g = pullback::grad(slope)(&Tensor::from([-1.0, 1.0]));
    assert_eq!(g.to_vec::<f64>(), [0.0, 0.0]);
    // Outside of the probabilities there are no quantiles.
    for name in ["Normal", "Uniform", "Exponential", "Laplace", "Gamma", "LogNormal"] {
        let d = made(name, &[0.5, 2.0]);
        let ends = d.icdf(&Tensor::from([-0.1, 1.1]));
        assert!(ends.is_nan().all().item::<bool>(), "{name}");
    }
    assert_eq!(Gamma::new(2.0, 1.0).icdf(&number(1.0)).item::<f64>(), f64::INFINITY);
    assert_eq!(Gamma::new(2.0, 1.0).cdf(&number(-1.0)).item::<f64>(), 0.0);
}

#[test]
fn arguments_are_refused_with_a_sentence() {
    let t = |x: [f64; 2]| Tensor::from(x);
    #[track_caller]
    fn refused<D>(f: impl FnOnce() -> D, parts: &[&str]) {
        let text = catch(f).err().expect("it was accepted").to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert!(text.contains("distributions.rs"), "the caller's line: {text}");
    }
    refused(|| Normal::new(0.0, t([1.0, -2.0])), &["Normal", "scale must be positive", "-2"]);
    refused(|| Normal::new(f64::NAN, 1.0), &["loc must be finite"]);
    refused(|| Normal::new(Tensor::zeros([3]), Tensor::ones([2])), &["f32[3]", "f32[2]"]);
    refused(|| LogNormal::new(0.0, 0.0), &["scale"]);
    refused(|| Uniform::new(1.0, t([2.0, 0.5])), &["low must be below high"]);
    refused(|| Bernoulli::new(1.5), &["probs must be from 0 to 1", "1.5"]);
    refused(|| Binomial::new(u64::MAX, 0.5), &["2⁵³"]);
    refused(|| Categorical::new(0.5), &["probs must be [.., k]"]);
    refused(|| Categorical::new(t([0.0, 0.0])), &["positive for some class"]);
    refused(|| Categorical::new(t([0.5, -0.1])), &["at least 0", "-0.1"]);
    refused(|| Categorical::with_logits(t([0.0, f64::NAN])), &["logits"]);
    refused(|| Beta::new(0.0, 1.0), &["concentration1"]);
    refused(|| Gamma::new(1.0, -1.0), &["rate"]);
    refused(|| Dirichlet::new(t([1.0, 0.0])), &["concentration", "one is 0"]);
    refused(|| Exponential::new(f64::INFINITY), &["rate"]);
    refused(|| Laplace::new(0.0, -1.0), &["scale"]);
    refused(|| Poisson::new(-1.0), &["rate must be at least 0"]);
    refused(|| StudentT::new(0.0, 0.0, 1.0), &["df"]);
    let singular = Tensor::from([[1.0, 1.0], [1.0, 1.0]]);
    refused(|| MultivariateNormal::new(t([0.0, 0.0]), -singular), &["positive definite"]);
    refused(
        || MultivariateNormal::new(Tensor::zeros([3]), Tensor::eye(2)),
        &["covariance_matrix f32[2,2] does not fit loc f32[3]"],
    );
    refused(|| Independent::new(Normal::new(0.0, 1.0), 1), &["1 axes"]);
    refused(|| Bernoulli::new(0.5).rsample(&[]), &["no reparametrised samples"]);
    refused(|| Beta::new(1.0, 1.0).cdf(&number(0.5)), &["Beta", "no closed form"]);
    refused(|| Normal::new(t([0.0, 1.0]), 1.0).log_prob(&Tensor::zeros([3])), &["f32[3]"]);
    let d = Categorical::new(t([0.5, 0.5]));
    refused(|| d.log_prob(&number(1.0)), &["index of a class"]);
    assert!(catch(|| d.log_prob(&Tensor::from(2i64))).is_err());
}

#[test]
fn shapes_and_dtypes_are_those_of_the_arguments() {
    let loc = Tensor::zeros([4, 1]);
    let d = Normal::new(&loc, Tensor::ones([3]));
    assert_eq!((d.batch_shape(), d.event_shape()), (&[4, 3][..], &[][..]));
    assert_eq!(d.sample(&[2, 5]).shape(), [2, 5, 4, 3]);
    assert_eq!(d.log_prob(&Tensor::zeros([7, 1, 1])).shape(), [7, 4, 3]);
    // A number takes the dtype of what is beside it; numbers alone the default.
    for dtype in [DType::F64, DType::F32, DType::BF16] {
        let d = Gamma::new(Tensor::ones_with([2], dtype), 3.0);
        assert_eq!((d.sample(&[]).dtype(), d.mean().dtype()), (dtype, dtype));
        let d = Beta::new(Tensor::ones_with([2], dtype), 3);
        assert_eq!(d.sample(&[]).dtype(), dtype);
    }
    assert_eq!(Poisson::new(2).sample(&[]).dtype(), DType::F32);
    assert_eq!(Exponential::new(Tensor::from([1i64, 2])).mean().to_vec::<f32>(), [1.0, 0.5]);
    let d = Categorical::with_logits(Tensor::zeros([2, 3, 5]));
    assert_eq!((d.batch_shape(), d.num_classes()), (&[2, 3][..], 5));
    let x = d.sample(&[7]);
    assert_eq!((x.shape(), x.dtype()), (&[7, 2, 3][..], DType::I64));
    assert_eq!(d.log_prob(&x).shape(), [7, 2, 3]);
    assert_eq!(d.entropy().shape(), [2, 3]);
    let d = MultivariateNormal::new(Tensor::zeros([5, 1, 2]), Tensor::eye(2).expand([4, 2, 2]));
    assert_eq!((d.batch_shape(), d.event_shape()), (&[5, 4][..], &[2][..]));
    assert_eq!(d.sample(&[3]).shape(), [3, 5, 4, 2]);
    assert_eq!(d.log_prob(&d.sample(&[3])).shape(), [3, 5, 4]);
    assert_eq!(d.variance().shape(), [5, 4, 2]);
    let d = Independent::new(Bernoulli::new(Tensor::full([4, 3, 2], 0.5f32)), 2);
    assert_eq!((d.batch_shape(), d.event_shape()), (&[4][..], &[3, 2][..]));
    assert_eq!((d.entropy().shape(), d.has_rsample()), (&[4][..], false));
    assert_eq!(Normal::default().sample_with(&Key::new(1), &[]).rank(), 0);
}

#[test]
fn classes_that_are_impossible_do_no_harm() {
    let d = Categorical::new(Tensor::from([0.5, 0.0, 0.5]));
    near(&d.entropy(), &[2f64.ln()], "entropy");
    assert_eq!(d.log_prob(&Tensor::from(1i64)).item::<f64>(), f64::NEG_INFINITY);
    assert!(d.mean().is_nan().item::<bool>());
    let logits = Tensor::from([0.0, f64::NEG_INFINITY, 0.0]);
    let entropy = |x: &Tensor| Categorical::with_logits(x).entropy();
    near(&entropy(&logits), &[2f64.ln()], "entropy");
    assert!(pullback::grad(entropy)(&logits).is_finite().all().item::<bool>());
    // Odds that overflow probabilities.
    let d = Bernoulli::with_logits(Tensor::from([-800.0, 800.0]));
    near(&d.log_prob(&Tensor::from([1.0, 0.0])), &[-800.0, -800.0], "log_prob");
    near(&d.entropy(), &[0.0, 0.0], "entropy");
    near(&Bernoulli::new(Tensor::from([0.0, 1.0])).entropy(), &[0.0, 0.0], "entropy");
}

#[test]
fn gradients_of_densities_and_divergences_are_the_derivatives() {
    type Pair = (Tensor, Tensor);
    let pair = |a: [f64; 2], b: [f64; 2]| (Tensor::from(a), Tensor::from(b));
    let at = Tensor::from([0.3, 0.8]);
    macro_rules! two {
        ($name:ident, $a:expr, $b:expr) => {
            let x = (pair($a, $b), at.clone());
            let f = |((a, b), v): &(Pair, Tensor)| {
                let d = $name::new(a, b);
                vec![d.log_prob(v), d.entropy(), d.mean(), d.variance()]
            };
            check_grads(f, &x, 2).unwrap();
            let x = (pair($a, $b), pair($b, $a));
            let kl = |((a, b), (c, d)): &(Pair, Pair)| {
                kl_divergence(&$name::new(a, b), &$name::new(c, d))
            };
            check_grads(kl, &x, 1).unwrap();
        };
    }
    two!(Normal, [0.5, 0.9], [1.2, 0.7]);
    two!(LogNormal, [0.5, 0.9], [1.2, 0.7]);
    two!(Laplace, [0.5, 0.95], [1.2, 0.7]);
    two!(Gamma, [0.5, 2.9], [1.2, 0.7]);
    two!(Beta, [0.5, 2.9], [1.2, 0.7]);
    let x = (pair([-0.5, -0.9], [1.2, 1.7]), at.clone());
    let f = |((a, b), v): &(Pair, Tensor)| {
        let d = Uniform::new(a, b);
        vec![d.log_prob(v), d.entropy(), d.cdf(v), d.icdf(v), d.variance()]
    };
    check_grads(f, &x, 2).unwrap();
    let f = |((a, b), v): &(Pair, Tensor)| {
        let d = StudentT::new(a, b, 1.5);
        vec![d.log_prob(v), d.entropy(), d.variance()]
    };
    check_grads(f, &(pair([2.5, 7.0], [0.1, 1.7]), at.clone()), 2).unwrap();
    let f = |(a, v): &Pair| {
        let (e, p) = (Exponential::new(a), Poisson::new(a));
        let (b, l) = (Bernoulli::new(v), Bernoulli::with_logits(a));
        let count = Tensor::from([0.0, 3.0]);
        let coin = Tensor::from([0.0, 1.0]);
        let binomial = Binomial::new(5, v);
        vec![
            e.log_prob(v),
            e.cdf(v),
            e.icdf(v),
            e.entropy(),
            p.log_prob(&count),
            b.log_prob(&coin),
            b.entropy(),
            l.log_prob(&coin),
            l.entropy(),
            binomial.log_prob(&count),
            binomial.entropy(),
            kl_divergence(&b, &l),
            kl_divergence(&p, &Poisson::new(v)),
            kl_divergence(&e, &Gamma::new(v, a)),
        ]
    };
    check_grads(f, &pair([0.5, 1.9], [0.3, 0.8]), 1).unwrap();
    let f = |(a, v): &Pair| {
        let (p, q) = (Categorical::with_logits(a), Categorical::new(v));
        let d = Dirichlet::new(v);
        let classes = Tensor::from([1i64, 0, 1]);
        vec![
            p.log_prob(&classes),
            q.log_prob(&classes),
            p.entropy(),
            q.entropy(),
            kl_divergence(&p, &q),
            d.log_prob(&Tensor::from([0.25, 0.75])),
            d.entropy(),
            kl_divergence(&d, &Dirichlet::new(a)),
        ]
    };
    check_grads(f, &pair([0.5, 1.9], [0.3, 0.8]), 1).unwrap();
    let f = |(a, v): &Pair| {
        let covariance = a.unsqueeze(-1).matmul(&a.unsqueeze(0)) + Tensor::from([1.0, 2.0]).diag(0);
        let p = MultivariateNormal::new(v, &covariance);
        let q = MultivariateNormal::with_precision_matrix(a, &covariance);
        let y = Tensor::from([0.25, 0.75]);
        vec![p.log_prob(&y), p.entropy(), q.log_prob(&y), kl_divergence(&p, &q), q.variance()]
    };
    check_grads(f, &pair([0.5, 1.9], [0.3, 0.8]), 1).unwrap();
    // The distribution function of gamma variates, by the concentration too.
    let f = |((a, b), v): &(Pair, Tensor)| {
        let d = Gamma::new(a, b);
        vec![d.cdf(v), d.icdf(v)]
    };
    check_grads(f, &(pair([0.5, 2.9], [1.2, 3.7]), at.clone()), 2).unwrap();
    let f =
        |((a, b), v): &(Pair, Tensor)| vec![Normal::new(a, b).cdf(v), Laplace::new(a, b).icdf(v)];
    check_grads(f, &(pair([0.5, 0.9], [1.2, 0.7]), at), 2).unwrap();
}
