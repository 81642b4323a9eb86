//! Losses.

use super::one;
use crate::args::{Arg, Args};
use pullback::{CrossEntropy, DType, Reduction, Tensor, losses};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let short = name.strip_prefix("nn.functional.")?;
    // Before `reduction` stand two arguments that PyTorch no longer uses.
    let named = || a.reduction(usize::MAX);
    let (x, y) = (|| a.tensor(0, "input"), || a.tensor(1, "target"));
    one(match short {
        "cross_entropy" => cross_entropy(a, 2, 4).of(&x(), &y()),
        "nll_loss" => {
            let ignored = a.int_or(4, "ignore_index", -100) as i64;
            losses::nll(&x(), &y(), a.maybe_tensor(2, "weight").as_ref(), Some(ignored), named())
        }
        "mse_loss" => weighted(a, losses::mse(&x(), &y(), each(a)), named()),
        "l1_loss" => weighted(a, losses::l1(&x(), &y(), each(a)), named()),
        "smooth_l1_loss" => losses::smooth_l1(&x(), &y(), a.float_or(5, "beta", 1.0), named()),
        "huber_loss" => {
            let reduction = if a.get(usize::MAX, "weight").is_some() {
                Reduction::None
            } else {
                a.reduction(2)
            };
            let losses = losses::huber(&x(), &y(), a.float_or(3, "delta", 1.0), reduction);
            weighted(a, losses, a.reduction(2))
        }
        "kl_div" => {
            let log_target = a.flag(5, "log_target", false);
            let reduction = match a.text(usize::MAX, "reduction") {
                Some("batchmean") => Reduction::BatchMean,
                _ => named(),
            };
            losses::kl_div(&x(), &y(), log_target, reduction)
        }
        "binary_cross_entropy" => {
            losses::binary_cross_entropy(&x(), &y(), a.maybe_tensor(2, "weight").as_ref(), named())
        }
        "binary_cross_entropy_with_logits" => {
            let (weight, positive) = (a.maybe_tensor(2, "weight"), a.maybe_tensor(6, "pos_weight"));
            losses::binary_cross_entropy_with_logits(
                &x(),
                &y(),
                weight.as_ref(),
                positive.as_ref(),
                named(),
            )
        }
        "gaussian_nll_loss" => {
            let (x, variance) = (x(), a.tensor(2, "var"));
            // PyTorch's samples also broadcast a target with fewer axes, which its documentation
            // does not: here that is refused with an error.
            let y = y().expand(x.shape());
            losses::gaussian_nll(
                &x,
                &y,
                &variance,
                a.flag(3, "full", false),
                a.float_or(4, "eps", 1e-6),
                a.reduction(5),
            )
        }
        "multilabel_soft_margin_loss" => losses::multilabel_soft_margin(
            &x(),
            &y(),
            a.maybe_tensor(2, "weight").as_ref(),
            named(),
        ),
        "multilabel_margin_loss" => losses::multilabel_margin(&x(), &y(), named()),
        "multi_margin_loss" => losses::multi_margin(
            &x(),
            &y(),
            a.int_or(2, "p", 1) as u32,
            a.float_or(3, "margin", 1.0),
            a.maybe_tensor(4, "weight").as_ref(),
            named(),
        ),
        "triplet_margin_with_distance_loss" => {
            let (p, q, r) =
                (a.tensor(0, "anchor"), a.tensor(1, "positive"), a.tensor(2, "negative"));
            // A distance given as a function cannot be listed in the reference: this is the
            // default.
            let distance = |p: &Tensor, q: &Tensor| p.pairwise_distance(q, 2.0, 1e-6);
            let (margin, swap) =
                (a.float_or(usize::MAX, "margin", 1.0), a.flag(usize::MAX, "swap", false));
            losses::triplet_margin_with(&p, &q, &r, distance, margin, swap, named())
        }
        "ctc_loss" => {
            let lengths = |i, name: &str| -> Vec<usize> {
                let list = match a.get(i, name) {
                    Some(Arg::Tensor(x)) => x.cast(DType::I64).to_vec::<i64>(),
                    Some(list) => list.ints().into_iter().map(|n| n as i64).collect(),
                    None => Vec::new(),
                };
                list.into_iter().map(|n| n as usize).collect()
            };
            let how = losses::Ctc {
                blank: a.int_or(4, "blank", 0) as usize,
                zero_infinity: a.flag(6, "zero_infinity", false),
                reduction: a.reduction(5),
            };
            let (times, counts) = (lengths(2, "input_lengths"), lengths(3, "target_lengths"));
            losses::ctc(&a.tensor(0, "log_probs"), &a.tensor(1, "targets"), &times, &counts, how)
        }
        "linear_cross_entropy" => {
            let (x, w) = (x(), a.tensor(1, "linear_weight"));
            let features = w.shape()[w.rank() - 1];
            let bias = a.maybe_tensor(usize::MAX, "linear_bias").map(|b| b.reshape([b.len()]));
            let logits = x.linear(&w.reshape([-1, features as isize]), bias.as_ref());
            let shape = [&x.shape()[..x.rank() - 1], &w.shape()[..w.rank() - 1]].concat();
            cross_entropy(a, usize::MAX, usize::MAX)
                .of(&logits.reshape(shape), &a.tensor(2, "target"))
        }
        "poisson_nll_loss" => {
            let (log_input, full) = (a.flag(2, "log_input", true), a.flag(3, "full", false));
            losses::poisson_nll(&x(), &y(), log_input, full, a.float_or(5, "eps", 1e-8), named())
        }
        "hinge_embedding_loss" => {
            losses::hinge_embedding(&x(), &y(), a.float_or(2, "margin", 1.0), named())
        }
        "margin_ranking_loss" => {
            let (p, q, y) = (a.tensor(0, "input1"), a.tensor(1, "input2"), a.tensor(2, "target"));
            losses::margin_ranking(&p, &q, &y, a.float_or(3, "margin", 0.0), named())
        }
        "soft_margin_loss" => losses::soft_margin(&x(), &y(), named()),
        "cosine_embedding_loss" => {
            let (p, q, y) = (a.tensor(0, "input1"), a.tensor(1, "input2"), a.tensor(2, "target"));
            losses::cosine_embedding(&p, &q, &y, a.float_or(3, "margin", 0.0), named())
        }
        "triplet_margin_loss" => {
            let (p, q, r) =
                (a.tensor(0, "anchor"), a.tensor(1, "positive"), a.tensor(2, "negative"));
            let how =
                (a.float_or(3, "margin", 1.0), a.float_or(4, "p", 2.0), a.float_or(5, "eps", 1e-6));
            losses::triplet_margin(&p, &q, &r, how, a.flag(6, "swap", false), named())
        }
        _ => return None,
    })
}

/// Weighted losses are reduced afterwards.
fn each(a: &Args) -> Reduction {
    match a.get(usize::MAX, "weight") {
        Some(_) => Reduction::None,
        None => a.reduction(usize::MAX),
    }
}

fn weighted(a: &Args, losses: Tensor, reduction: Reduction) -> Tensor {
    match a.maybe_tensor(usize::MAX, "weight") {
        Some(weight) => losses::weighted_by(&losses, &weight, reduction),
        None => losses,
    }
}

/// The options of cross-entropy; `weight` and `ignored` are their places.
fn cross_entropy(a: &Args, weight: usize, ignored: usize) -> CrossEntropy {
    let smoothing = a.float_or(usize::MAX, "label_smoothing", 0.0);
    let mut loss =
        CrossEntropy::new().reduction(a.reduction(usize::MAX)).label_smoothing(smoothing);
    if let Some(weight) = a.maybe_tensor(weight, "weight") {
        loss = loss.weight(&weight);
    }
    // PyTorch ignores the class −100 unless told otherwise.
    loss.ignore_index(a.int_or(ignored, "ignore_index", -100) as i64)
}
