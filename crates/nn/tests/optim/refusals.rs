//! What is refused when an optimiser is made, and with which words.

use pullback::{DType, Tensor};
use pullback_nn::optim::{Adam, AdamW, Lion, Muon, Optimizer, Sgd, UpdateRule, named, names};
use serde_json::{Value, json};

fn leaf() -> Tensor {
    Tensor::from([[1.0, 2.0], [3.0, 4.0]]).requires_grad()
}

fn refused(name: &str, options: Value) -> String {
    match named(name, vec![(vec![leaf()], options.clone())]) {
        Ok(_) => panic!("{name} took {options}"),
        Err(error) => error.to_string(),
    }
}

/// Every option that is a number refuses the infinite and most the negative, and names itself.
#[test]
fn options_out_of_range_are_named() {
    let negative = json!(-1.0);
    let numbers: [(&str, &[&str]); 14] = [
        ("adadelta", &["rho", "eps", "weight_decay"]),
        ("adafactor", &["weight_decay", "d"]),
        ("adagrad", &["lr_decay", "weight_decay", "initial_accumulator_value", "eps"]),
        ("adam", &["eps", "weight_decay"]),
        ("adamax", &["eps", "weight_decay"]),
        ("adamw", &["eps", "weight_decay"]),
        ("asgd", &["lambd", "alpha", "t0", "weight_decay"]),
        ("lion", &["weight_decay"]),
        ("muon", &["momentum", "eps", "weight_decay"]),
        ("nadam", &["eps", "weight_decay", "momentum_decay"]),
        ("radam", &["eps", "weight_decay"]),
        ("rmsprop", &["alpha", "eps", "weight_decay", "momentum"]),
        ("rprop", &[]),
        ("sgd", &["momentum", "weight_decay"]),
    ];
    assert_eq!(numbers.map(|(name, _)| name).to_vec(), names().collect::<Vec<_>>());
    for (name, options) in numbers {
        for option in options.iter().chain(&["lr"]) {
            let error = refused(name, json!({ *option: negative }));
            assert!(error.contains(&format!("`{option}` must be")), "{name}: {error}");
            assert!(error.contains("not -1"), "{name}: {error}");
        }
    }
    for (name, options, sentence) in [
        (
            "adam",
            json!({ "betas": [1.0, 0.9] }),
            "Adam: `betas.0` must be a number from 0 to below 1, not 1",
        ),
        (
            "adamw",
            json!({ "betas": [0.9, -0.1] }),
            "AdamW: `betas.1` must be a number from 0 to below 1",
        ),
        ("lion", json!({ "betas": [0.9, 2.0] }), "Lion: `betas.1` must be"),
        (
            "adafactor",
            json!({ "beta2_decay": 0.5 }),
            "`beta2_decay` must be a number that is not positive",
        ),
        ("adafactor", json!({ "eps": [-1.0, 0.0] }), "`eps.0` must be"),
        ("rprop", json!({ "etas": [1.5, 1.2] }), "`etas.0` must be"),
        ("rprop", json!({ "etas": [0.5, 0.9] }), "`etas.1` must be a number that is at least 1"),
        ("rprop", json!({ "step_sizes": [2.0, 1.0] }), "`step_sizes` go from 2 down to 1"),
        ("sgd", json!({ "nesterov": true }), "`nesterov` needs a `momentum` and no `dampening`"),
        (
            "sgd",
            json!({ "nesterov": true, "momentum": 0.9, "dampening": 0.1 }),
            "`nesterov` needs a `momentum` and no `dampening`",
        ),
        ("muon", json!({ "ns_steps": 100 }), "`ns_steps` must be below 100, not 100"),
        ("sgd", json!({ "momentun": 0.9 }), "Sgd: options: unknown field `momentun`"),
        ("sgd", json!({ "lr": "fast" }), "Sgd: options: invalid type"),
        (
            "muon",
            json!({ "adjust_lr_fn": "none" }),
            "unknown variant `none`, expected one of `original`",
        ),
        ("adma", json!({}), "there is no `adma`; there are adadelta, adafactor"),
    ] {
        let error = refused(name, options);
        assert!(error.contains(sentence), "{error}\nshould say {sentence}");
    }
    for lr in [f64::NAN, f64::INFINITY, -1e-9] {
        let error = Sgd { lr, ..Sgd::default() }.over([leaf()]).unwrap_err().to_string();
        assert!(error.contains("Sgd: `lr` must be a number that is not negative"), "{error}");
        assert!(error.contains(&lr.to_string()), "{error}");
    }
    let error = Lion { betas: (f64::NAN, 0.9), ..Lion::default() }.over([leaf()]).unwrap_err();
    assert!(error.to_string().contains("`betas.0`"), "{error}");
}

#[test]
fn parameters_that_cannot_be_optimised_are_named() {
    let error = Adam::default().over([]).unwrap_err().to_string();
    assert!(error.contains("Adam: there are no parameters to optimise"), "{error}");
    assert!(named("sgd", vec![]).is_err());

    let x = leaf();
    let twice = "the parameter f64[2,2] is listed twice";
    let error = AdamW::default().over([x.clone(), x.clone()]).unwrap_err().to_string();
    assert!(error.contains(twice), "{error}");
    let first = AdamW::default().over([x.clone()]).unwrap();
    let error = first.and([leaf(), x.clone()], AdamW::default()).unwrap_err().to_string();
    assert!(error.contains(twice), "{error}");

    let error = Sgd::default().over([Tensor::zeros_with([3], DType::I64)]).unwrap_err().to_string();
    assert!(error.contains("optimises floats, not i64[3]"), "{error}");
    let error = Sgd::default().over([&x * 2.0]).unwrap_err().to_string();
    assert!(error.contains("the parameter f64[2,2] was computed from others"), "{error}");
    let error = Muon::default().over([Tensor::zeros([3]).requires_grad()]).unwrap_err().to_string();
    assert!(error.contains("Muon: optimises matrices, not f32[3]"), "{error}");
    assert!(error.contains("give other parameters to AdamW"), "{error}");
}

/// One element of memory seen at many places cannot be stepped.
#[test]
fn parameters_that_share_elements_are_refused() {
    let x = Tensor::from([[1.0]]).expand([2, 3]).requires_grad();
    let error = Sgd::default().over([x]).unwrap_err().to_string();
    assert!(error.contains("the parameter f64[2,3] shows an element several times"), "{error}");
    // A length of 1 has any stride.
    let x = Tensor::from([[1.0], [2.0]]).expand([2, 1]).requires_grad();
    assert!(Sgd::default().over([x]).is_ok());
}

/// Empty tensors are parameters too.
#[test]
fn empty_parameters_step() {
    for name in names().filter(|&name| name != "muon") {
        let x = Tensor::zeros([0, 3]).requires_grad();
        let opt = named(name, vec![(vec![x.clone()], json!({}))]).unwrap();
        x.square().sum().backward().unwrap();
        opt.step().unwrap();
        assert_eq!(opt.named_state()[1].1.item::<i64>(), 1, "{name}");
    }
}
