//! Samples of distributions: their moments, their gradients, and that compiled ones are the same.

use pullback::check::{Check, check_grads};
use pullback::{DType, Key, Tensor, jit, vmap};
use pullback_nn::distributions::{
    Bernoulli, Beta, Binomial, Categorical, Dirichlet, Distribution, Exponential, Gamma,
    Independent, Laplace, LogNormal, MultivariateNormal, Normal, OneHotCategorical, Poisson,
    StudentT, Uniform, kl_divergence,
};

const DRAWS: usize = 20_000;

fn pair(a: f64, b: f64) -> Tensor {
    Tensor::from([a, b])
}

/// Compares mean and variance of samples with the closed forms, within some deviations.
#[track_caller]
fn right_moments(d: &dyn Distribution, key: u64) {
    let x = d.sample_with(&Key::new(key), &[DRAWS]).cast(DType::F64);
    let shape = [&[DRAWS][..], d.batch_shape(), d.event_shape()].concat();
    assert_eq!(x.shape(), shape, "{}", d.name());
    let (mean, variance) = (d.mean().cast(DType::F64), d.variance().cast(DType::F64));
    let centred = &x - &mean;
    let off = centred.mean_over(0).abs() / (&variance / DRAWS as f64).sqrt();
    assert!(off.max().item::<f64>() < 4.5, "{}: mean off by {off}", d.name());
    // The deviation of the estimated variance comes from the fourth moment of the sample.
    let squares = centred.square();
    let spread = (squares.var_with(0, 1.0) / DRAWS as f64).sqrt();
    let off = (squares.mean_over(0) - variance).abs() / spread;
    assert!(off.max().item::<f64>() < 4.5, "{}: variance off by {off}", d.name());
}

#[test]
fn samples_have_the_moments() {
    right_moments(&Normal::new(pair(0.5, -2.0), pair(1.0, 3.0)), 1);
    right_moments(&LogNormal::new(pair(0.5, -2.0), pair(0.2, 0.4)), 2);
    right_moments(&Uniform::new(pair(0.5, -2.0), pair(1.0, 3.0)), 3);
    right_moments(&Exponential::new(pair(0.5, 20.0)), 4);
    right_moments(&Laplace::new(pair(0.5, -2.0), pair(1.0, 3.0)), 5);
    right_moments(&Gamma::new(Tensor::from([0.05, 0.5, 2.0, 900.0]), 3.0), 6);
    right_moments(&Beta::new(pair(0.4, 5.0), pair(2.0, 3.0)), 7);
    right_moments(&StudentT::new(pair(9.0, 30.0), 1.0, 2.0), 8);
    right_moments(&Bernoulli::new(pair(0.1, 0.8)), 9);
    right_moments(&Poisson::new(Tensor::from([0.02, 1.0, 7.5, 1e3, 1e6])), 10);
    right_moments(&Binomial::new(7, pair(0.1, 0.8)), 11);
    right_moments(&Dirichlet::new(Tensor::from([[0.3, 2.0, 1.0], [5.0, 5.0, 0.1]])), 12);
    right_moments(&OneHotCategorical::new(Tensor::from([0.2, 0.01, 0.49, 0.3])), 13);
    let covariance = Tensor::from([[2.0, 0.9], [0.9, 1.0]]);
    let d = MultivariateNormal::new(pair(1.0, -1.0), &covariance);
    right_moments(&d, 14);
    let x = d.sample_with(&Key::new(14), &[DRAWS]) - &d.loc;
    let product = x.t().matmul(&x) / DRAWS as f64;
    assert!((product - covariance).abs().max().item::<f64>() < 0.06);
    right_moments(&Independent::new(Normal::new(pair(0.5, -2.0), 1.0), 1), 15);
    // In single precision too.
    right_moments(&Gamma::new(Tensor::from([0.2f32, 3.0]), 2.0), 16);
    right_moments(&Beta::new(Tensor::from([0.2f32, 3.0]), 2.0), 17);
}

#[test]
fn many_trials_are_halved_exactly() {
    for (n, key) in [(33u64, 1), (100, 2), (1000, 3), (1_000_000, 4)] {
        let d = Binomial::new(n, Tensor::from([0.003, 0.4, 0.97]));
        let x = d.sample_with(&Key::new(key), &[2000]);
        let inside = x.ge(0.0).logical_and(x.le(n as f64)).logical_and(x.floor().eq(&x));
        assert!(inside.all().item::<bool>());
        let off = (x.mean_over(0) - d.mean()).abs() / (d.variance() / 2000.0).sqrt();
        assert!(off.max().item::<f64>() < 4.5, "{n}: {off}");
        let ratio = x.var_with(0, 1.0) / d.variance();
        assert!((ratio - 1.0).abs().max().item::<f64>() < 0.2, "{n}");
    }
    let sure = Binomial::new(50, pair(0.0, 1.0)).sample_with(&Key::new(0), &[3]);
    assert_eq!(sure.to_vec::<f64>(), [0.0, 50.0, 0.0, 50.0, 0.0, 50.0]);
    assert_eq!(Binomial::new(0, 0.5).sample(&[]).item::<f32>(), 0.0);
}

/// The greatest distance of an empirical distribution function from the one it should be.
fn distance(d: &dyn Distribution, n: usize) -> f64 {
    let x = d.sample_with(&Key::new(3), &[n]).sort(0, false).0;
    let at = (Tensor::arange(0, n as i64).cast(DType::F64) + 0.5) / n as f64;
    (d.cdf(&x) - at).abs().max().item::<f64>()
}

#[test]
fn samples_have_the_distribution() {
    let one = |x: f64| Tensor::from(x);
    let all: [Box<dyn Distribution>; 8] = [
        Box::new(Normal::new(one(1.0), 2.0)),
        Box::new(LogNormal::new(one(0.1), 2.0)),
        Box::new(Uniform::new(one(1.0), 2.0)),
        Box::new(Exponential::new(one(3.0))),
        Box::new(Laplace::new(one(1.0), 2.0)),
        Box::new(Gamma::new(one(0.3), 2.0)),
        Box::new(Gamma::new(one(4.0), 2.0)),
        Box::new(Gamma::new(one(4e4), 2.0)),
    ];
    // A distance of 1.95/√n is exceeded once in a thousand times.
    for d in all {
        let off = distance(&*d, DRAWS);
        assert!(off < 1.95 / (DRAWS as f64).sqrt(), "{}: {off}", d.name());
    }
    // Classes and counts by their frequencies.
    let d = Poisson::new(Tensor::from(2.5));
    let x = d.sample_with(&Key::new(5), &[DRAWS]);
    for k in 0..6 {
        let p = d.log_prob(&Tensor::from(f64::from(k))).exp().item::<f64>();
        let seen = x.eq(k).cast(DType::F64).mean().item::<f64>();
        assert!((seen - p).abs() < 4.5 * (p / DRAWS as f64).sqrt(), "{k}: {seen} {p}");
    }
}

#[test]
fn keys_repeat_draws_and_samples_have_no_gradient() {
    let a = Tensor::from(2.0).requires_grad();
    let d = Gamma::new(&a, 1.0);
    let x = d.sample_with(&Key::new(1), &[5]);
    assert_eq!(x.to_vec::<f64>(), d.sample_with(&Key::new(1), &[5]).to_vec::<f64>());
    assert_ne!(x.to_vec::<f64>(), d.sample_with(&Key::new(2), &[5]).to_vec::<f64>());
    assert_ne!(d.sample(&[5]).to_vec::<f64>(), d.sample(&[5]).to_vec::<f64>());
    assert!(!x.is_tracked() && d.rsample(&[5]).is_tracked());
}

#[test]
fn the_gradients_of_samples_are_their_derivatives() {
    type Pair = (Tensor, Tensor);
    macro_rules! smooth {
        ($order:literal, $a:expr, $b:expr, $name:ident) => {
            for seed in 0..3 {
                let f = |(a, b): &Pair| $name::new(a, b).rsample_with(&Key::new(seed), &[3]);
                let check = Check::new().order($order).tolerance(1e-5, 1e-7);
                check.run(f, &(Tensor::from($a), Tensor::from($b))).unwrap();
            }
        };
    }
    smooth!(2, [0.5, -2.0], [1.0, 3.0], Normal);
    smooth!(2, [0.5, -2.0], [0.2, 0.5], LogNormal);
    smooth!(2, [0.5, -2.0], [1.0, 3.0], Uniform);
    smooth!(2, [0.5, -2.0], [1.0, 3.0], Laplace);
    smooth!(2, [0.7, 3.0], [1.0, 3.0], Gamma);
    smooth!(2, [0.7, 3.0], [1.5, 0.8], Beta);
    smooth!(1, [30.0, 900.0], [1.0, 3.0], Gamma);
    let key = Key::new(9);
    let f = |x: &Tensor| Exponential::new(x).rsample_with(&key, &[3]);
    check_grads(f, &pair(0.4, 2.0), 2).unwrap();
    let f = |x: &Tensor| Dirichlet::new(x).rsample_with(&key, &[3]);
    Check::new().order(2).tolerance(1e-5, 1e-7).run(f, &Tensor::from([0.8, 2.0, 5.0])).unwrap();
    let f = |(a, b): &Pair| StudentT::new(a, b, 0.5).rsample_with(&key, &[3]);
    Check::new().order(2).tolerance(1e-5, 1e-7).run(f, &(pair(1.5, 7.0), pair(0.0, 1.0))).unwrap();
    let f = |(loc, l): &Pair| MultivariateNormal::with_scale_tril(loc, l).rsample_with(&key, &[3]);
    let l = Tensor::from([[1.5, 0.0], [0.4, 0.8]]);
    check_grads(f, &(pair(1.0, 2.0), l), 1).unwrap();
    let f = |a: &Tensor| {
        let covariance = a.unsqueeze(-1).matmul(&a.unsqueeze(0)) + Tensor::from([1.0, 2.0]).diag(0);
        Independent::new(MultivariateNormal::new(a, covariance), 0).rsample_with(&key, &[3])
    };
    check_grads(f, &pair(1.0, 2.0), 1).unwrap();
}

#[test]
fn expectations_have_the_gradients_of_closed_forms() {
    // d/da of the mean and of the mean logarithm, ψ'(a), and of the mean of a beta variate.
    for a in [0.3, 2.0, 20.0] {
        let mean = |a: &Tensor| Gamma::new(a, 2.0).rsample_with(&Key::new(4), &[DRAWS]).mean();
        let slope = pullback::grad(mean)(&Tensor::from(a)).item::<f64>();
        assert!((slope - 0.5).abs() < 0.03, "{a}: {slope}");
        let log = |a: &Tensor| Gamma::new(a, 2.0).rsample_with(&Key::new(4), &[DRAWS]).log().mean();
        let slope = pullback::grad(log)(&Tensor::from(a)).item::<f64>();
        let expected = Tensor::from(a).polygamma(1).item::<f64>();
        assert!((slope / expected - 1.0).abs() < 0.03, "{a}: {slope} {expected}");
        let mean = |a: &Tensor| Beta::new(a, 1.5).rsample_with(&Key::new(4), &[DRAWS]).mean();
        let slope = pullback::grad(mean)(&Tensor::from(a)).item::<f64>();
        let expected = 1.5 / (a + 1.5f64).powi(2);
        assert!((slope / expected - 1.0).abs() < 0.05, "{a}: {slope} {expected}");
    }
    // Tiny concentrations: finite draws and gradients.
    let x = Tensor::from([1e-3, 1e-2]);
    let f = |a: &Tensor| Dirichlet::new(a).rsample_with(&Key::new(0), &[50]).square().sum();
    assert!(pullback::grad(f)(&x).is_finite().all().item::<bool>());
    let d = Gamma::new(x.cast(DType::F32), 1.0).sample_with(&Key::new(0), &[100]);
    assert!(d.gt(0.0).all().item::<bool>());
}

#[test]
fn compiled_is_eager() {
    #[track_caller]
    fn same(a: &Tensor, b: &Tensor, what: &str) {
        assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()), "{what}");
        for (a, b) in a.to_f64_vec().into_iter().zip(b.to_f64_vec()) {
            let equal = a == b || (a.is_nan() && b.is_nan());
            assert!(equal || (a - b).abs() <= 1e-12 * b.abs().max(1e-3), "{what}: {a} {b}");
        }
    }
    type Args = (Tensor, Tensor);
    type Make = fn(&Tensor, &Tensor) -> Box<dyn Distribution>;
    let table: [(Make, &str); 14] = [
        (|a, b| Box::new(Normal::new(a, b)), "Normal"),
        (|a, b| Box::new(LogNormal::new(a, b)), "LogNormal"),
        (|a, b| Box::new(Uniform::new(a, a + b)), "Uniform"),
        (|a, _| Box::new(Exponential::new(a)), "Exponential"),
        (|a, b| Box::new(Laplace::new(a, b)), "Laplace"),
        (|a, b| Box::new(Gamma::new(a, b)), "Gamma"),
        (|a, b| Box::new(Beta::new(a, b)), "Beta"),
        (|a, b| Box::new(StudentT::new(a, b, 2.0)), "StudentT"),
        (|a, _| Box::new(Bernoulli::with_logits(a)), "Bernoulli"),
        (|a, _| Box::new(Binomial::with_logits(70, a)), "Binomial"),
        (|a, _| Box::new(Poisson::new(a)), "Poisson"),
        (|a, _| Box::new(OneHotCategorical::with_logits(a)), "OneHotCategorical"),
        (|a, _| Box::new(Dirichlet::new(a)), "Dirichlet"),
        (
            |a, b| {
                let l = Tensor::from([[1.0, 0.0], [0.5, 1.0]]) * b;
                Box::new(MultivariateNormal::with_scale_tril(a, l))
            },
            "MultivariateNormal",
        ),
    ];
    let args = (pair(0.6, 2.5), pair(1.5, 0.7));
    for (make, name) in table {
        let f = move |(a, b): &Args| {
            let d = make(a, b);
            let x = d.sample_with(&Key::new(3), &[4]);
            let mut out = vec![d.log_prob(&x), d.mean(), d.variance(), x];
            if name != "Poisson" {
                out.push(d.entropy());
            }
            out
        };
        let compiled = jit(move |x: &Args| Ok(f(x)));
        for (a, b) in compiled.call(&args).unwrap().iter().zip(f(&args)) {
            same(a, &b, name);
        }
        if make(&args.0, &args.1).has_rsample() {
            let loss =
                move |(a, b): &Args| make(a, b).rsample_with(&Key::new(3), &[4]).square().sum();
            let eager = pullback::grad(loss)(&args);
            let compiled = jit(move |x: &Args| Ok(pullback::grad(loss)(x))).call(&args).unwrap();
            same(&compiled.0, &eager.0, name);
            same(&compiled.1, &eager.1, name);
        }
    }
    // Divergences, distribution functions, and classes.
    let f = |(a, b): &Args| {
        let (p, q) = (Gamma::new(a, b), Gamma::new(b, a));
        let (c, d) = (Categorical::with_logits(a), Categorical::with_logits(b));
        let class = c.sample_with(&Key::new(0), &[6]);
        vec![
            kl_divergence(&p, &q),
            p.cdf(b),
            p.icdf(&(b * 0.1)),
            kl_divergence(&c, &d),
            c.log_prob(&class),
        ]
    };
    for (a, b) in jit(move |x: &Args| Ok(f(x))).call(&args).unwrap().iter().zip(f(&args)) {
        same(a, &b, "more");
    }
}

#[test]
fn a_compiled_step_draws_new_numbers_and_vmap_draws_for_each() {
    let step = jit(|a: &Tensor| Ok(Gamma::new(a, 1.0).rsample(&[])));
    let a = Tensor::from([2.0, 3.0]);
    assert_ne!(step.call(&a).unwrap().to_vec::<f64>(), step.call(&a).unwrap().to_vec::<f64>());
    let slope = |a: &Tensor| {
        pullback::grad(|a: &Tensor| Gamma::new(a, 1.0).rsample_with(&Key::new(0), &[]).sum())(a)
    };
    let each = vmap(slope, 0, 0)(&a);
    let one = slope(&Tensor::from(3.0)).item::<f64>();
    assert!((each.to_vec::<f64>()[1] - one).abs() < 1e-12);
}
