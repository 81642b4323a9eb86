//! The options of optimisers and schedules have PyTorch's names.

use pullback_nn::optim::*;
use pullback_nn::schedule::*;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// Options of PyTorch's optimisers that select an implementation, not a result.
const IMPLEMENTATION: [&str; 4] = ["foreach", "fused", "capturable", "differentiable"];

fn words(list: &str) -> BTreeSet<String> {
    list.split_whitespace().map(str::to_string).collect()
}

/// The names of a struct's fields, as a file has them.
fn fields(options: &impl Serialize) -> BTreeSet<String> {
    let value = serde_json::to_value(options).unwrap();
    value.as_object().unwrap().keys().cloned().collect()
}

/// The names of a struct's fields in its `Debug` text.
fn debug_fields(options: &impl Debug) -> BTreeSet<String> {
    let text = format!("{options:#?}");
    let field = |line: &str| Some(line.strip_prefix("    ")?.split_once(": ")?.0.to_string());
    text.lines().filter_map(field).filter(|name| !name.starts_with(' ')).collect()
}

/// Ours compared with PyTorch's: `only_ours` and `only_theirs` are all the differences.
#[track_caller]
fn compare(name: &str, ours: BTreeSet<String>, torch: &str, only_ours: &str, only_theirs: &str) {
    let torch = words(torch);
    let difference = |a: &BTreeSet<String>, b: &BTreeSet<String>| -> BTreeSet<String> {
        a.difference(b).cloned().collect()
    };
    assert_eq!(difference(&ours, &torch), words(only_ours), "{name} has options PyTorch has not");
    assert_eq!(difference(&torch, &ours), words(only_theirs), "{name} lacks options of PyTorch's");
}

#[rustfmt::skip]
#[test]
fn options_of_optimizers_have_pytorchs_names() {
    let mut rows: Vec<(&str, BTreeSet<String>, &str, &str, &str)> = vec![
        ("sgd",       fields(&Sgd::default()),       "lr momentum dampening weight_decay nesterov maximize foreach differentiable fused", "", ""),
        ("adam",      fields(&Adam::default()),      "lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused decoupled_weight_decay", "", "decoupled_weight_decay"),
        ("adamw",     fields(&AdamW::default()),     "lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused", "", ""),
        ("nadam",     fields(&NAdam::default()),     "lr betas eps weight_decay momentum_decay decoupled_weight_decay maximize foreach capturable differentiable", "", ""),
        ("radam",     fields(&RAdam::default()),     "lr betas eps weight_decay decoupled_weight_decay maximize foreach capturable differentiable", "", ""),
        ("adamax",    fields(&Adamax::default()),    "lr betas eps weight_decay maximize foreach capturable differentiable", "", ""),
        ("rmsprop",   fields(&RmsProp::default()),   "lr alpha eps weight_decay momentum centered maximize foreach capturable differentiable", "", ""),
        ("adagrad",   fields(&Adagrad::default()),   "lr lr_decay weight_decay initial_accumulator_value eps maximize foreach differentiable fused", "", ""),
        ("adadelta",  fields(&Adadelta::default()),  "lr rho eps weight_decay maximize foreach capturable differentiable", "", ""),
        ("adafactor", fields(&Adafactor::default()), "lr beta2_decay eps d weight_decay maximize foreach", "", ""),
        ("muon",      fields(&Muon::default()),      "lr weight_decay momentum nesterov ns_coefficients eps ns_steps adjust_lr_fn", "precise", ""),
        ("rprop",     fields(&Rprop::default()),     "lr etas step_sizes maximize foreach capturable differentiable", "", ""),
        ("asgd",      fields(&Asgd::default()),      "lr lambd alpha t0 weight_decay maximize foreach capturable differentiable", "", ""),
        // Not in PyTorch: the names are those of AdamW.
        ("lion",      fields(&Lion::default()),      "lr betas weight_decay maximize", "", ""),
    ];
    let mut listed: Vec<&str> = rows.iter().map(|row| row.0).collect();
    listed.sort_unstable();
    assert_eq!(listed, names().collect::<Vec<_>>(), "every optimiser has a row");
    rows.push(("lbfgs", fields(&Lbfgs::default()), "lr max_iter max_eval tolerance_grad tolerance_change history_size line_search_fn", "maximize", ""));
    for (name, ours, torch, only_ours, only_theirs) in rows {
        let chosen = torch.split_whitespace().filter(|option| !IMPLEMENTATION.contains(option));
        compare(name, ours, &chosen.collect::<Vec<_>>().join(" "), only_ours, only_theirs);
    }
}

/// The optimiser and `last_epoch` are the scheduler's, not the schedule's.
#[rustfmt::skip]
#[test]
fn options_of_schedules_have_pytorchs_names() {
    let lr = 0.1;
    let rows: [(&str, BTreeSet<String>, &str, &str, &str); 11] = [
        ("ConstantLR",    debug_fields(&ConstantLr { factor: lr, total_iters: 1 }),                       "factor total_iters", "", ""),
        ("StepLR",        debug_fields(&StepLr { step_size: 1, gamma: lr }),                              "step_size gamma", "", ""),
        ("MultiStepLR",   debug_fields(&MultiStepLr { milestones: Vec::new(), gamma: lr }),               "milestones gamma", "", ""),
        ("ExponentialLR", debug_fields(&ExponentialLr { gamma: lr }),                                     "gamma", "", ""),
        ("LinearLR",      debug_fields(&LinearLr { start_factor: lr, end_factor: lr, total_iters: 1 }),   "start_factor end_factor total_iters", "", ""),
        ("PolynomialLR",  debug_fields(&PolynomialLr { total_iters: 1, power: lr }),                      "total_iters power", "", ""),
        // PyTorch's T_max, T_0 and T_mult, in Rust's case.
        ("CosineAnnealingLR", debug_fields(&CosineAnnealingLr { t_max: 1, eta_min: lr }),                 "t_max eta_min", "", ""),
        ("CosineAnnealingWarmRestarts", debug_fields(&CosineAnnealingWarmRestarts { t_0: 1, t_mult: 1, eta_min: lr }), "t_0 t_mult eta_min", "", ""),
        // The base learning rate of a group is `max_lr` of the one and `base_lr` of the other;
        // `gamma` is part of `CyclicMode::ExpRange`.
        ("OneCycleLR",    debug_fields(&OneCycleLr::new(1)),
            "max_lr total_steps epochs steps_per_epoch pct_start anneal_strategy cycle_momentum base_momentum max_momentum div_factor final_div_factor three_phase",
            "", "max_lr epochs steps_per_epoch cycle_momentum base_momentum max_momentum"),
        ("CyclicLR",      debug_fields(&CyclicLr { max_factor: lr, step_size_up: 1, step_size_down: 1, mode: CyclicMode::Triangular }),
            "base_lr max_lr step_size_up step_size_down mode gamma scale_fn scale_mode cycle_momentum base_momentum max_momentum",
            "max_factor", "base_lr max_lr gamma scale_fn scale_mode cycle_momentum base_momentum max_momentum"),
        ("ReduceLROnPlateau", debug_fields(&ReduceLrOnPlateau::default()),                                "mode factor patience threshold threshold_mode cooldown min_lr eps", "", ""),
    ];
    for (name, ours, torch, only_ours, only_theirs) in rows {
        compare(name, ours, torch, only_ours, only_theirs);
    }
}
