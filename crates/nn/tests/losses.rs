//! Every loss compared with PyTorch's, with every reduction: values and the gradients of all float
//! inputs.

use crate::recorded::{Inputs, Recording, near};
use pullback::{Tensor, catch, jit};
use pullback_nn::losses::*;

const WITHIN: f64 = 1e-9;

type Run = fn(&Inputs, &Tensor, Reduction) -> Tensor;

/// The losses in the table of `data/losses.py`, under the same names. The second argument is a
/// weight for each of three classes.
#[rustfmt::skip]
const TABLE: &[(&str, Run)] = &[
    ("mse",                 |i, _, r| of(MseLoss::new(r), i)),
    ("l1",                  |i, _, r| of(L1Loss::new(r), i)),
    ("huber",               |i, _, r| of(HuberLoss::new(r), i)),
    ("huber_delta",         |i, _, r| of(HuberLoss::new(r).delta(0.3), i)),
    ("smooth_l1",           |i, _, r| of(SmoothL1Loss::new(r), i)),
    ("smooth_l1_beta",      |i, _, r| of(SmoothL1Loss::new(r).beta(0.3), i)),
    ("cross_entropy",       |i, _, r| of(CrossEntropyLoss::new(r), i)),
    ("cross_entropy_single",            |i, _, r| of(CrossEntropyLoss::new(r), i)),
    ("cross_entropy_ignored",           |i, _, r| of(CrossEntropyLoss::new(r).ignore_index(1), i)),
    ("cross_entropy_default_ignored",   |i, _, r| of(CrossEntropyLoss::new(r), i)),
    ("cross_entropy_weight",            |i, w, r| of(CrossEntropyLoss::new(r).weight(w), i)),
    ("cross_entropy_smoothed",          |i, _, r| of(CrossEntropyLoss::new(r).label_smoothing(0.2), i)),
    ("cross_entropy_all",               |i, w, r| of(CrossEntropyLoss::new(r).weight(w).ignore_index(0).label_smoothing(0.2), i)),
    ("cross_entropy_probabilities",     |i, _, r| of(CrossEntropyLoss::new(r), i)),
    ("cross_entropy_probabilities_all", |i, w, r| of(CrossEntropyLoss::new(r).weight(w).label_smoothing(0.2), i)),
    ("cross_entropy_image",             |i, w, r| of(CrossEntropyLoss::new(r).weight(w).ignore_index(2), i)),
    ("cross_entropy_image_probabilities", |i, _, r| of(CrossEntropyLoss::new(r), i)),
    ("nll",                 |i, _, r| of(NllLoss::new(r), i)),
    ("nll_all",             |i, w, r| of(NllLoss::new(r).weight(w).ignore_index(1), i)),
    ("bce",                 |i, _, r| of(BceLoss::new(r), i)),
    ("bce_weight",          |i, w, r| of(BceLoss::new(r).weight(w), i)),
    ("bce_with_logits",     |i, _, r| of(BceWithLogitsLoss::new(r), i)),
    ("bce_with_logits_all", |i, w, r| of(BceWithLogitsLoss::new(r).weight(w).pos_weight(&(w * 2.0)), i)),
    ("kl_div",              |i, _, r| of(KlDivLoss::new(r), i)),
    ("kl_div_log",          |i, _, r| of(KlDivLoss::new(r).log_target(), i)),
    ("poisson_nll",         |i, _, r| of(PoissonNllLoss::new(r), i)),
    ("poisson_nll_all",     |i, _, r| of(PoissonNllLoss::new(r).raw_input().full().eps(1e-3), i)),
    ("hinge_embedding",     |i, _, r| of(HingeEmbeddingLoss::new(r), i)),
    ("hinge_embedding_margin", |i, _, r| of(HingeEmbeddingLoss::new(r).margin(0.3), i)),
    ("soft_margin",         |i, _, r| of(SoftMarginLoss::new(r), i)),
    ("multi_margin",        |i, _, r| of(MultiMarginLoss::new(r), i)),
    ("multi_margin_all",    |i, w, r| of(MultiMarginLoss::new(r).p(2).margin(0.5).weight(w), i)),
    ("multilabel_margin",   |i, _, r| of(MultilabelMarginLoss::new(r), i)),
    ("multilabel_soft_margin", |i, w, r| of(MultilabelSoftMarginLoss::new(r).weight(w), i)),
    ("gaussian_nll",        |i, _, r| GaussianNllLoss::new(r).forward(i.get("x"), i.get("y"), i.get("v"))),
    ("gaussian_nll_all",    |i, _, r| GaussianNllLoss::new(r).full().eps(0.3).forward(i.get("x"), i.get("y"), i.get("v"))),
    ("margin_ranking",      |i, _, r| MarginRankingLoss::new(r).margin(0.2).forward(i.get("a"), i.get("b"), i.get("y"))),
    ("cosine_embedding",    |i, _, r| CosineEmbeddingLoss::new(r).margin(0.1).forward(i.get("a"), i.get("b"), i.get("y"))),
    ("triplet_margin",      |i, _, r| TripletMarginLoss::new(r).forward(i.get("a"), i.get("n"), i.get("f"))),
    ("triplet_margin_all",  |i, _, r| TripletMarginLoss::new(r).margin(0.5).p(3.0).eps(1e-4).swap().forward(i.get("a"), i.get("n"), i.get("f"))),
    ("ctc",                 |i, _, r| ctc_of(CtcLoss::new(r), i)),
    ("ctc_all",             |i, _, r| ctc_of(CtcLoss::new(r).blank(3).zero_infinity(), i)),
];

fn of(loss: impl Loss, inputs: &Inputs) -> Tensor {
    loss.forward(inputs.get("x"), inputs.get("y"))
}

fn ctc_of(loss: CtcLoss, inputs: &Inputs) -> Tensor {
    loss.forward(&inputs.get("x").log_softmax(2), inputs.get("y"), &[6, 5, 4], &[3, 2, 1])
}

#[test]
fn losses_are_pytorchs() {
    let file = Recording::read(include_bytes!("data/losses.safetensors"));
    let mut left = file.cases();
    for (name, run) in TABLE {
        let reductions = [
            ("mean", Reduction::Mean),
            ("sum", Reduction::Sum),
            ("none", Reduction::None),
            ("batchmean", Reduction::BatchMean),
        ];
        for (suffix, reduction) in reductions {
            let case = format!("{name}.{suffix}");
            let Some(at) = left.iter().position(|known| *known == case) else {
                // Only the divergence has this one in PyTorch.
                assert!(reduction == Reduction::BatchMean, "{case} is not recorded");
                continue;
            };
            left.swap_remove(at);
            let inputs = file.inputs(&case);
            let y = run(&inputs, file.get("weight"), reduction);
            file.compare(&case, &(), &inputs, &[y], WITHIN);
        }
    }
    assert!(left.is_empty(), "recorded, but not tested: {left:?}");
}

#[test]
fn a_compiled_loss_is_the_eager_one() {
    let file = Recording::read(include_bytes!("data/losses.safetensors"));
    let inputs = file.inputs("cross_entropy_all.mean");
    let loss = CrossEntropyLoss::new(Reduction::Mean)
        .weight(file.get("weight"))
        .ignore_index(0)
        .label_smoothing(0.2);
    let value = |(x, y): &(Tensor, Tensor)| loss.forward(x, y);
    let pair = (inputs.get("x").detach(), inputs.get("y").clone());
    near("compiled", &jit(value).call(&pair).unwrap(), &value(&pair), 1e-15);
}

#[test]
fn bad_shapes_name_the_line() {
    let fails = |f: &dyn Fn() -> Tensor, parts: &[&str]| {
        let text = catch(f).expect_err("it must fail").to_string();
        for part in parts.iter().chain(&["tests/losses.rs:"]) {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    };
    let x = Tensor::zeros([4, 3]);
    let mean = Reduction::Mean;
    fails(&|| MseLoss::new(mean).forward(&x, &Tensor::zeros([2])), &["f32[4,3]", "f32[2]"]);
    fails(
        &|| CrossEntropyLoss::new(mean).forward(&x, &Tensor::from([0i64, 1])),
        &["cross_entropy", "f32[4,3]", "i64[2]"],
    );
    fails(
        &|| NllLoss::new(mean).forward(&x, &Tensor::from([0i64, 1, 2, 3])),
        &["nll", "3 is not one of the 3 classes"],
    );
    let far = Tensor::zeros([4, 2]);
    fails(&|| TripletMarginLoss::new(mean).forward(&x, &x, &far), &["f32[4,3]", "f32[4,2]"]);
    let labels = Tensor::from([[1i64], [5], [1], [1]]);
    let log_p = Tensor::zeros([6, 4, 3]);
    fails(
        &|| CtcLoss::new(mean).forward(&log_p, &labels, &[6; 4], &[1; 4]),
        &["ctc", "label 5 is not one of the 3 classes"],
    );
}

#[test]
fn defaults_are_those_of_pytorch() {
    macro_rules! same {
        ($($loss:ident)*) => {$(
            let (default, mean) = ($loss::default(), $loss::new(Reduction::Mean));
            assert_eq!(format!("{default:?}"), format!("{mean:?}"));
        )*};
    }
    same!(BceLoss BceWithLogitsLoss CosineEmbeddingLoss CrossEntropyLoss CtcLoss GaussianNllLoss);
    same!(HingeEmbeddingLoss HuberLoss KlDivLoss L1Loss MarginRankingLoss MultiMarginLoss MseLoss);
    same!(MultilabelMarginLoss MultilabelSoftMarginLoss NllLoss PoissonNllLoss SmoothL1Loss);
    same!(SoftMarginLoss TripletMarginLoss);
    let (x, y) = (Tensor::from([1.0, 2.0]), Tensor::from([0.0, 4.0]));
    assert_eq!(MseLoss::default().forward(&x, &y).item::<f64>(), 2.5);
}
