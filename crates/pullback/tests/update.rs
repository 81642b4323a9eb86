//! Steps of optimisers against those of `torch.optim`, in place, on views, and refused where they
//! must be.

use pullback::update::{AdamOptions, Moments, SgdOptions, adam_, sgd_};
use pullback::{DType, ErrorKind, Tensor, catch, no_grad, with_threads};

fn start() -> Tensor {
    Tensor::from([1.0, -2.0, 0.5, 3.0])
}

/// Some gradient for each step.
fn gradient(t: usize) -> Tensor {
    let (a, b) = ([0.5, -1.0, 2.0, 0.25], [0.1, 0.2, -0.3, 0.05]);
    let t = t as f64;
    Tensor::from_vec((0..4).map(|i| a[i] * (1.0 + 0.5 * t) - t * b[i]).collect::<Vec<f64>>(), [4])
}

#[track_caller]
fn assert_near(x: &Tensor, want: [f64; 4]) {
    for (a, b) in x.to_f64_vec().into_iter().zip(want) {
        assert!((a - b).abs() <= 1e-13 * b.abs().max(1.0), "{x} instead of {want:?}");
    }
}

fn rate(value: f64) -> Tensor {
    Tensor::from(value)
}

fn descended(how: SgdOptions) -> Tensor {
    let (x, buffer, step) = (start(), Tensor::from([0.0; 4]), Tensor::from(0i64));
    for t in 0..4 {
        step.add_(1);
        sgd_(&how, &rate(0.1), &x, &gradient(t), (how.momentum != 0.0).then_some((&buffer, &step)));
    }
    x
}

fn adapted(how: AdamOptions, amsgrad: bool) -> Tensor {
    let x = start();
    let [mean, square, largest] = [(); 3].map(|()| x.zeros_like());
    let step = Tensor::from(0i64);
    let state = Moments { mean: &mean, square: &square, largest: amsgrad.then_some(&largest) };
    for t in 0..4 {
        step.add_(1);
        adam_(&how, &rate(0.1), &x, &gradient(t), state, &step);
    }
    x
}

/// Four steps of `torch.optim.SGD`, `AdamOptions` and `AdamW` (2.15, float64) from the same values
/// and gradients.
#[test]
fn four_steps_are_those_of_pytorch() {
    let sgd = SgdOptions::default();
    assert_near(&descended(sgd), [0.71, -1.18, -1.08, 2.855]);
    assert_near(
        &descended(SgdOptions { weight_decay: 0.2, maximize: true, ..sgd }),
        [1.20525376, -2.64732352, 2.00715448, 2.90854728],
    );
    assert_near(
        &descended(SgdOptions { momentum: 0.9, dampening: 0.3, weight_decay: 0.1, ..sgd }),
        [0.46379579008, -0.66244700816, -1.854034426685, 2.549908313615],
    );
    assert_near(
        &descended(SgdOptions { momentum: 0.8, nesterov: true, ..sgd }),
        [0.27384, -0.0183999999999997, -3.33088, 2.63692],
    );
    let adam = AdamOptions::default();
    assert_near(
        &adapted(AdamOptions { betas: (0.8, 0.95), eps: 1e-6, weight_decay: 0.1, ..adam }, false),
        [0.596933611267806, -1.59988493387592, 0.100551165376331, 2.59738135053114],
    );
    assert_near(
        &adapted(AdamOptions { maximize: true, ..adam }, true),
        [1.39972950725588, -2.39318255820141, 0.89403410969703, 3.39972950068086],
    );
    let decoupled = AdamOptions { weight_decay: 0.3, decoupled: true, ..adam };
    assert_near(
        &adapted(decoupled, false),
        [0.50319159011132, -1.39485894253747, 0.066092358796219, 2.27377721636466],
    );
    assert_near(
        &adapted(AdamOptions { betas: (0.5, 0.6), ..decoupled }, true),
        [0.500414920744548, -1.38814355114239, 0.0598389836872899, 2.27100054675303],
    );
}

/// Not dense, or sharing memory: the same values by another way.
#[test]
fn views_are_updated_too() {
    let how = AdamOptions { weight_decay: 0.1, ..AdamOptions::default() };
    let step = Tensor::from(1i64);
    let run = |x: &Tensor, grad: &Tensor, mean: &Tensor| {
        let square = Tensor::zeros_with([2, 3], DType::F64);
        adam_(&how, &rate(0.1), x, grad, Moments { mean, square: &square, largest: None }, &step);
        (x.to_vec::<f64>(), mean.to_vec::<f64>(), square.to_vec::<f64>())
    };
    let values = Tensor::from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let grad = values.sin();
    let expected = run(&values.deep_clone(), &grad, &values.zeros_like());
    let turned = values.t().deep_clone();
    assert_eq!(run(&turned.t(), &grad, &values.zeros_like()), expected);
    let dense_grad = grad.t().deep_clone();
    assert_eq!(run(&values.deep_clone(), &dense_grad.t(), &values.zeros_like()), expected);
    // The rows of one tensor as parameter and state.
    let both = Tensor::zeros_with([2, 2, 3], DType::F64);
    both.select_at(0, 0).copy_(&values);
    assert_eq!(run(&both.select_at(0, 0), &grad, &both.select_at(0, 1)), expected);
    assert_eq!(both.select_at(0, 0).to_vec::<f64>(), expected.0);
}

#[test]
fn low_precision_rounds_once_and_threads_do_not_matter() {
    let n = 100_003;
    let values =
        |f: fn(f64) -> f64| Tensor::from_vec((0..n).map(|i| f(i as f64)).collect::<Vec<_>>(), [n]);
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let run = |threads: usize, dtype: DType| {
            let x = values(f64::sin).cast(DType::BF16).cast(dtype);
            let grad = values(|i| (1.7 * i).cos()).cast(DType::BF16).cast(dtype);
            let (mean, square) = (x.zeros_like(), x.zeros_like());
            let state = Moments { mean: &mean, square: &square, largest: None };
            with_threads(threads, || {
                adam_(&AdamOptions::default(), &rate(1e-3), &x, &grad, state, &Tensor::from(1i64))
            });
            x
        };
        let one = run(1, dtype).to_f64_vec();
        assert_eq!(one, run(3, dtype).to_f64_vec());
        let exact = run(1, DType::F64).cast(dtype).to_f64_vec();
        let eps = if dtype == DType::F32 { 1e-6 } else { 0.02 };
        assert!(one.iter().zip(exact).all(|(a, b)| (a - b).abs() <= eps * b.abs().max(0.1)));
    }
}

/// A parameter that requires grad is written inside `no_grad`, and its graph notices.
#[test]
fn leaves_are_updated_where_nothing_is_recorded() {
    let how = SgdOptions::default();
    let x = Tensor::from([1.0, 2.0]).requires_grad();
    let loss = x.square().sum();
    loss.backward().unwrap();
    let grad = x.grad().unwrap();
    let refused = catch(|| sgd_(&how, &rate(0.5), &x, &grad, None)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InPlace);
    assert_eq!(x.to_vec::<f64>(), [1.0, 2.0]);
    let again = x.square().sum();
    no_grad(|| sgd_(&how, &rate(0.5), &x, &grad, None));
    assert_eq!(x.to_vec::<f64>(), [0.0, 0.0]);
    assert!(x.is_leaf() && again.backward().is_err(), "the saved value was overwritten");
}

#[test]
fn misfits_get_a_sentence() {
    let (x, step, one) = (start(), Tensor::from(1i64), rate(1.0));
    let other = Tensor::from([1.0, 2.0]);
    let narrow = x.cast(DType::F32);
    let (mean, square) = (x.zeros_like(), x.zeros_like());
    let state = Moments { mean: &mean, square: &square, largest: None };
    let momentum = SgdOptions { momentum: 0.9, ..SgdOptions::default() };
    let cases: [(&dyn Fn(), &str); 9] = [
        (
            &|| sgd_(&SgdOptions::default(), &other, &x, &mean, None),
            "the learning rate must be a float scalar",
        ),
        (
            &|| sgd_(&SgdOptions::default(), &step, &x, &mean, None),
            "the learning rate must be a float scalar",
        ),
        (&|| sgd_(&SgdOptions::default(), &one, &x, &other, None), "f64[2] does not match"),
        (&|| sgd_(&SgdOptions::default(), &one, &x, &narrow, None), "f32[4] does not match"),
        (&|| sgd_(&momentum, &one, &x, &x, None), "needs its state"),
        (&|| sgd_(&SgdOptions::default(), &one, &step, &step, None), "updates floats"),
        (&|| sgd_(&momentum, &one, &x, &mean, Some((&square, &other))), "the number of the step"),
        (
            &|| adam_(&AdamOptions::default(), &one, &x, &other, state, &step),
            "f64[2] does not match",
        ),
        (
            &|| adam_(&AdamOptions::default(), &one, &x, &square, state, &x),
            "the number of the step",
        ),
    ];
    for (run, sentence) in cases {
        let error = catch(run).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(sentence) && text.contains("tests/update.rs"), "{text}");
    }
    assert_eq!(x.to_vec::<f64>(), start().to_vec::<f64>());
}
