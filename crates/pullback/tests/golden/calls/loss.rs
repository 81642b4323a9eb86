//! Losses.

use super::one;
use crate::args::Args;
use pullback::{CrossEntropy, Reduction, Tensor, losses};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let short = name.strip_prefix("nn.functional.")?;
    // Before `reduction` stand two arguments that PyTorch no longer uses.
    let named = || a.reduction(usize::MAX);
    let (x, y) = (|| a.tensor(0, "input"), || a.tensor(1, "target"));
    one(match short {
        "cross_entropy" => {
            let mut loss = CrossEntropy::new().reduction(named()).label_smoothing(a.float_or(
                usize::MAX,
                "label_smoothing",
                0.0,
            ));
            if let Some(weight) = a.maybe_tensor(2, "weight") {
                loss = loss.weight(&weight);
            }
            if let Some(class) = a.get(4, "ignore_index") {
                loss = loss.ignore_index(class.int() as i64);
            }
            loss.of(&x(), &y())
        }
        "nll_loss" => {
            let ignored = a.int_or(4, "ignore_index", -100) as i64;
            losses::nll(&x(), &y(), a.maybe_tensor(2, "weight").as_ref(), Some(ignored), named())
        }
        "mse_loss" => losses::mse(&x(), &y(), named()),
        "l1_loss" => losses::l1(&x(), &y(), named()),
        "smooth_l1_loss" => losses::smooth_l1(&x(), &y(), a.float_or(5, "beta", 1.0), named()),
        "huber_loss" => losses::huber(&x(), &y(), a.float_or(3, "delta", 1.0), a.reduction(2)),
        "kl_div" => {
            let log_target = a.flag(5, "log_target", false);
            match a.text(usize::MAX, "reduction") {
                Some("batchmean") => {
                    let batch = x().shape().first().copied().unwrap_or(1);
                    losses::kl_div(&x(), &y(), log_target, Reduction::Sum) / batch as f64
                }
                _ => losses::kl_div(&x(), &y(), log_target, named()),
            }
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
            let (x, mut variance) = (x(), a.tensor(2, "var"));
            if variance.rank() + 1 == x.rank() {
                variance = variance.unsqueeze(-1);
            }
            losses::gaussian_nll(
                &x,
                &y(),
                &variance,
                a.flag(3, "full", false),
                a.float_or(4, "eps", 1e-6),
                a.reduction(5),
            )
        }
        "multilabel_soft_margin_loss" => {
            let (x, y) = (x(), y());
            let mut each = -(&y * x.log_sigmoid() + (1.0 - &y) * (-x).log_sigmoid());
            if let Some(weight) = a.maybe_tensor(2, "weight") {
                each *= weight;
            }
            let each = each.mean_over(-1);
            match named() {
                Reduction::Mean => each.mean(),
                Reduction::Sum => each.sum(),
                Reduction::None => each,
            }
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
