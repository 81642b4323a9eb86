//! Losses take operands of equal shapes, or what PyTorch documents: a prediction `[3, 1]` with a
//! target `[3]` is a mistake, not nine comparisons.

use pullback::{Reduction, Tensor, catch, losses, vmap};
use pullback_nn::losses::*;

const MEAN: Reduction = Reduction::Mean;

type Of<const N: usize> = fn([&Tensor; N]) -> Tensor;

/// Losses of a prediction and a target of the same shape, as layers and as functions.
#[rustfmt::skip]
const PAIRS: &[(&str, Of<2>)] = &[
    ("mse",                              |[x, y]| MseLoss::new(MEAN).forward(x, y)),
    ("l1",                               |[x, y]| L1Loss::new(MEAN).forward(x, y)),
    ("huber",                            |[x, y]| HuberLoss::new(MEAN).forward(x, y)),
    ("smooth_l1",                        |[x, y]| SmoothL1Loss::new(MEAN).forward(x, y)),
    ("l1",                               |[x, y]| SmoothL1Loss::new(MEAN).beta(0.0).forward(x, y)),
    ("binary_cross_entropy",             |[x, y]| BceLoss::new(MEAN).forward(x, y)),
    ("binary_cross_entropy_with_logits", |[x, y]| BceWithLogitsLoss::new(MEAN).forward(x, y)),
    ("kl_div",                           |[x, y]| KlDivLoss::new(MEAN).forward(x, y)),
    ("kl_div",                           |[x, y]| KlDivLoss::new(MEAN).log_target().forward(x, y)),
    ("poisson_nll",                      |[x, y]| PoissonNllLoss::new(MEAN).forward(x, y)),
    ("hinge_embedding",                  |[x, y]| HingeEmbeddingLoss::new(MEAN).forward(x, y)),
    ("soft_margin",                      |[x, y]| SoftMarginLoss::new(MEAN).forward(x, y)),
    ("multilabel_soft_margin",           |[x, y]| MultilabelSoftMarginLoss::new(MEAN).forward(x, y)),
    ("mse",                              |[x, y]| losses::mse(x, y, MEAN)),
    ("l1",                               |[x, y]| losses::l1(x, y, MEAN)),
    ("huber",                            |[x, y]| losses::huber(x, y, 1.0, MEAN)),
    ("smooth_l1",                        |[x, y]| losses::smooth_l1(x, y, 1.0, MEAN)),
    ("kl_div",                           |[x, y]| losses::kl_div(x, y, false, MEAN)),
    ("binary_cross_entropy",             |[x, y]| losses::binary_cross_entropy(x, y, None, MEAN)),
    ("binary_cross_entropy_with_logits", |[x, y]| losses::binary_cross_entropy_with_logits(x, y, None, None, MEAN)),
    ("poisson_nll",                      |[x, y]| losses::poisson_nll(x, y, true, false, 1e-8, MEAN)),
    ("hinge_embedding",                  |[x, y]| losses::hinge_embedding(x, y, 1.0, MEAN)),
    ("soft_margin",                      |[x, y]| losses::soft_margin(x, y, MEAN)),
    ("multilabel_soft_margin",           |[x, y]| losses::multilabel_soft_margin(x, y, None, MEAN)),
];

/// Losses of three tensors of the same shape.
#[rustfmt::skip]
const TRIPLES: &[(&str, Of<3>)] = &[
    ("margin_ranking",      |[a, b, y]| MarginRankingLoss::new(MEAN).forward(a, b, y)),
    ("margin_ranking",      |[a, b, y]| losses::margin_ranking(a, b, y, 0.0, MEAN)),
    ("triplet_margin",      |[a, n, f]| TripletMarginLoss::new(MEAN).forward(a, n, f)),
    ("triplet_margin",      |[a, n, f]| losses::triplet_margin(a, n, f, (1.0, 2.0, 1e-6), false, MEAN)),
    ("triplet_margin_with", |[a, n, f]| losses::triplet_margin_with(a, n, f, |x, y| (x - y).square().sum_over(-1), 1.0, false, MEAN)),
];

/// Shapes that broadcast with each other, and so would give a number.
const BROADCAST: &[(&[usize], &[usize])] = &[
    (&[3, 1], &[3]),
    (&[3], &[3, 1]),
    (&[3, 1], &[3, 3]),
    (&[3], &[1]),
    (&[3], &[]),
    (&[1], &[]),
    (&[2, 3], &[3]),
    (&[1, 3], &[3]),
];

fn halves(shape: &[usize]) -> Tensor {
    Tensor::full(shape, 0.5f32)
}

#[track_caller]
fn refused(name: &str, f: &dyn Fn() -> Tensor, parts: &[String]) {
    let text = match catch(f) {
        Ok(y) => panic!("{name} gave {y} instead of an error"),
        Err(error) => error.to_string(),
    };
    let always = [format!("{name}: "), "tests/loss_shapes.rs:".into(), "hint: ".into()];
    for part in always.iter().chain(parts) {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

#[test]
fn losses_of_two_tensors_want_equal_shapes() {
    for (name, f) in PAIRS {
        for (a, b) in BROADCAST {
            let (x, y) = (halves(a), halves(b));
            let specs = [x.spec().to_string(), y.spec().to_string(), "reshape".into()];
            refused(name, &|| f([&x, &y]), &specs);
        }
        for shape in [&[3][..], &[3, 1], &[2, 3], &[2, 1, 3]] {
            let x = halves(shape);
            assert!(f([&x, &x]).item::<f32>().is_finite(), "{name} of {shape:?}");
        }
    }
}

#[test]
fn losses_of_three_tensors_want_equal_shapes() {
    for (name, f) in TRIPLES {
        for (a, b) in BROADCAST {
            let (x, y) = (halves(a), halves(b));
            let specs = [x.spec().to_string(), y.spec().to_string(), "reshape".into()];
            refused(name, &|| f([&x, &y, &x]), &specs);
            refused(name, &|| f([&x, &x, &y]), &specs);
        }
        let x = halves(&[2, 3]);
        assert!(f([&x, &x, &x]).item::<f32>().is_finite(), "{name}");
    }
}

#[test]
fn perfect_predictions_of_another_shape_are_no_loss_of_four_thirds() {
    let x = Tensor::from([[1.0], [2.0], [3.0]]);
    let y = Tensor::from([1.0, 2.0, 3.0]);
    let text = catch(|| MseLoss::new(MEAN).forward(&x, &y)).unwrap_err().to_string();
    assert!(
        text.contains("prediction f64[3,1] and target f64[3] must have the same shape"),
        "{text}"
    );
    assert_eq!(MseLoss::new(MEAN).forward(&x.squeeze_axis(1), &y).item::<f64>(), 0.0);
    // The hint is right.
    assert!(text.contains(".reshape([3, 1])"), "{text}");
    assert_eq!(MseLoss::new(MEAN).forward(&x, &y.reshape([3, 1])).item::<f64>(), 0.0);
}

#[test]
fn weights_repeat_to_the_prediction_and_never_enlarge_it() {
    let x = halves(&[3]);
    let wide = halves(&[3, 1]);
    let spec = [wide.spec().to_string(), x.spec().to_string()];
    let bce = "binary_cross_entropy";
    refused(bce, &|| BceLoss::new(MEAN).weight(&wide).forward(&x, &x), &spec);
    let logits = "binary_cross_entropy_with_logits";
    refused(logits, &|| BceWithLogitsLoss::new(MEAN).weight(&wide).forward(&x, &x), &spec);
    refused(logits, &|| BceWithLogitsLoss::new(MEAN).pos_weight(&wide).forward(&x, &x), &spec);
    let soft = "multilabel_soft_margin";
    refused(soft, &|| MultilabelSoftMarginLoss::new(MEAN).weight(&wide).forward(&x, &x), &spec);
    refused("weighted_by", &|| losses::weighted_by(&x, &wide, MEAN), &spec);
    // A weight for each class, or for each row.
    let rows = halves(&[4, 3]);
    for weight in [&[3][..], &[4, 1], &[1, 3], &[4, 3], &[]] {
        let y = BceLoss::new(Reduction::None).weight(&halves(weight)).forward(&rows, &rows);
        assert_eq!(y.shape(), [4, 3]);
    }
}

#[test]
fn a_variance_takes_the_shapes_that_pytorch_documents() {
    let loss = GaussianNllLoss::new(Reduction::None);
    let x = Tensor::from_vec((0..12).map(f64::from).collect::<Vec<_>>(), [4, 3]);
    let y = x.zeros_like();
    let rows = Tensor::from([1.0, 2.0, 3.0, 4.0]);
    let each = loss.forward(&x, &y, &rows.reshape([4, 1]).expand([4, 3]));
    for variance in [rows.clone(), rows.reshape([4, 1])] {
        assert_eq!(loss.forward(&x, &y, &variance).to_vec::<f64>(), each.to_vec::<f64>());
    }
    assert_eq!(loss.forward(&x, &y, &Tensor::from(2.0)).shape(), [4, 3]);
    assert_eq!(loss.forward(&x, &y.narrow(1, 0, 1), &x.ones_like()).shape(), [4, 3]);
    // In a square, one number for each row, never for each column.
    let x = Tensor::zeros_with([3, 3], pullback::DType::F64);
    let variance = Tensor::from([1.0, 2.0, 4.0]);
    let rows = loss.forward(&x, &x, &variance).select_at(1, 0).to_vec::<f64>();
    assert_eq!(rows, [0.0, 0.5 * 2f64.ln(), 0.5 * 4f64.ln()]);
    let (x, v) = (halves(&[4, 3]), halves(&[3]));
    let specs = [x.spec().to_string(), v.spec().to_string(), "reshape".into()];
    refused("gaussian_nll", &|| loss.forward(&x, &x, &v), &specs);
    for bad in [&[1, 1][..], &[4, 3, 1], &[1]] {
        refused("gaussian_nll", &|| loss.forward(&x, &x, &halves(bad)), &specs[..1]);
        refused("gaussian_nll", &|| loss.forward(&x, &halves(bad), &x), &specs[..1]);
    }
    refused("gaussian_nll", &|| loss.forward(&x, &halves(&[]), &x), &specs[..1]);
}

#[test]
fn cosine_embedding_wants_a_label_for_each_row() {
    let loss = CosineEmbeddingLoss::new(MEAN);
    let x = halves(&[4, 3]);
    assert!(loss.forward(&x, &x, &halves(&[4])).item::<f32>().is_finite());
    assert!(loss.forward(&halves(&[3]), &halves(&[3]), &halves(&[])).item::<f32>().is_finite());
    for bad in [&[4, 1][..], &[1], &[], &[4, 3], &[3]] {
        let y = halves(bad);
        let specs = [x.spec().to_string(), y.spec().to_string(), "[4]".into()];
        refused("cosine_embedding", &|| loss.forward(&x, &x, &y), &specs);
    }
    refused("cosine_embedding", &|| loss.forward(&x, &halves(&[3]), &halves(&[4])), &[]);
}

#[test]
fn losses_of_classes_want_one_class_for_each_row() {
    let x = Tensor::zeros([4, 3]);
    let column = Tensor::from([[0i64], [1], [2], [0]]);
    let refuse: [(&str, &dyn Fn() -> Tensor); 4] = [
        ("cross_entropy", &|| CrossEntropyLoss::new(MEAN).forward(&x, &column)),
        ("cross_entropy", &|| CrossEntropyLoss::new(MEAN).forward(&x, &halves(&[3]))),
        ("nll", &|| NllLoss::new(MEAN).forward(&x, &column)),
        ("multi_margin", &|| MultiMarginLoss::new(MEAN).forward(&x, &column)),
    ];
    for (name, f) in refuse {
        refused(name, f, &[]);
    }
    refused("multilabel_margin", &|| MultilabelMarginLoss::new(MEAN).forward(&x, &column), &[]);
}

#[test]
fn examples_of_a_map_are_compared_by_their_own_shapes() {
    let (x, y) = (halves(&[5, 3]), halves(&[5, 3]));
    let each = vmap(|(x, y): &(Tensor, Tensor)| losses::mse(x, y, MEAN), 0, 0)(&(x, y));
    assert_eq!(each.to_vec::<f32>(), [0.0; 5]);
}
