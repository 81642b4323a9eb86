//! Whatever layer runs, and inside whatever other: errors, programs, reports on memory and
//! anomalies name the line that called the outermost one.

use crate::build::{Built, Case};
use crate::pytorch::{CASES, inputs};
use crate::seeded;
use pullback::{DType, Result, Tensor, Tree, catch, detect_anomaly, no_grad};
use pullback_nn::optim::Optimizer;
use pullback_nn::*;
use serde_json::Value;

fn ours(file: &str) -> bool {
    file.ends_with("tests/layers/lines.rs")
}

/// Everything that a step makes is made on a line of this file.
#[track_caller]
fn lines_of<M: Tree>(what: &str, model: &M, step: impl Fn() -> Result<Tensor>) {
    let wrong = strangers(what, model, step);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a step makes on other lines.
fn strangers<M: Tree>(what: &str, model: &M, step: impl Fn() -> Result<Tensor>) -> Vec<String> {
    let none = Vec::<Box<dyn Optimizer>>::new();
    let (y, report) = memory_report(model, &none, || {
        let y = step()?;
        if y.is_tracked() {
            y.sum().backward()?;
        }
        Ok(y)
    })
    .unwrap_or_else(|error| panic!("{what}: {error}"));
    drop(y);
    let lines = report.activations_by_line.iter().chain(&report.peak_by_line);
    let lines = lines.filter_map(|line| Some((line.op, line.at?)));
    let moments = report.timeline.iter().filter_map(|moment| Some((moment.op, moment.at?)));
    let all = lines.chain(moments).filter(|(_, at)| !ours(at.file()));
    let mut wrong: Vec<String> = all.map(|(op, at)| format!("{what}: {op} at {at}")).collect();
    wrong.sort_unstable();
    wrong.dedup();
    wrong
}

/// An input that does not fit is an error at a line of this file.
#[track_caller]
fn refused<R>(what: &str, f: impl FnOnce() -> R) -> bool {
    let Err(error) = catch(f) else { return false };
    assert!(error.location().is_some_and(|at| ours(at.file())), "{what}: {error}");
    let text = error.to_string();
    assert!(!text.contains("/src/"), "{what}: {error}");
    true
}

fn x(shape: &[usize]) -> Tensor {
    Tensor::ones(shape)
}

#[test]
fn every_layer_with_its_input() {
    let _alone = seeded(0);
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let mut wrong = Vec::new();
    for (number, case) in cases.iter().map(Case::new).enumerate() {
        let what = format!("case {number}, {}", case.layer);
        let (built, xs) = (case.build(), inputs(&case, 1));
        if case.more.get("mode").is_some_and(|mode| mode == "eval") {
            built.eval();
        }
        // `Built` is not the library's: its own `forward` would be a line of another file.
        wrong.extend(match &built {
            Built::One(layer) => strangers(&what, &built, || Ok(layer.forward(&xs[0]))),
            Built::Two(layer) => strangers(&what, &built, || Ok(layer.forward(&xs[0], &xs[1]))),
        });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_layer_with_inputs_that_do_not_fit() {
    let _alone = seeded(0);
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let wrong = [
        x(&[]).cast(DType::F64),
        x(&[7, 1, 1, 1, 1, 1, 1]).cast(DType::F64),
        x(&[0]).cast(DType::F64),
        x(&[3, 5]),
        Tensor::from([[-1i64, 9999]]),
        Tensor::from([true]),
    ];
    let mut refusals = 0;
    for (number, case) in cases.iter().map(Case::new).enumerate() {
        for wrong in &wrong {
            let what = format!("case {number}, {} of {}", case.layer, wrong.spec());
            refusals += usize::from(match case.build() {
                Built::One(layer) => refused(&what, || layer.forward(wrong)),
                Built::Two(layer) => refused(&what, || layer.forward(wrong, wrong)),
            });
        }
    }
    // Pointwise layers take nearly anything.
    assert!(refusals > 2 * cases.len(), "{refusals} of {}", cases.len());
}

/// Wrappers around a layer of [3] → [3], each in a sequence, a tuple and a list, two deep.
fn wrapped() -> Vec<(&'static str, Sequential)> {
    let linear = || Linear::new(3, 3);
    let one = Sequential::new;
    vec![
        ("Sequential", one().then(one().then(linear()))),
        ("WeightNorm", one().then(WeightNorm::new(linear()))),
        ("SpectralNorm", one().then(SpectralNorm::new(linear()))),
        ("Hooked", one().then(Hooked::new(linear()))),
        ("Checkpointed", one().then(Checkpointed::new(linear()))),
        ("Residual", one().then(Residual::new(linear()))),
        ("tuple", one().then((linear(), Relu))),
        ("Vec", one().then(vec![linear(), linear()])),
        ("array", one().then([linear(), linear()])),
        ("Option", one().then(Some(linear()))),
        ("Box", one().then(Box::new(linear()))),
        ("Hooked Sequential", one().then(Hooked::new(one().then(linear())))),
        ("Checkpointed Sequential", one().then(Checkpointed::new(one().then(linear())))),
        ("Hooked SpectralNorm", one().then(Hooked::new(SpectralNorm::new(linear())))),
        ("Checkpointed WeightNorm", one().then(Checkpointed::new(WeightNorm::new(linear())))),
        ("Residual of Hooked", one().then(Residual::new(Hooked::new(WeightNorm::new(linear()))))),
        (
            "Residual of Checkpointed",
            one().then(Residual::new(Checkpointed::new((one().then(linear()), Relu)))),
        ),
    ]
}

#[test]
fn wrappers_inside_wrappers() {
    let _alone = seeded(0);
    for (what, net) in wrapped() {
        lines_of(what, &net, || Ok(net.forward(&x(&[2, 3]))));
        assert!(refused(what, || net.forward(&x(&[2, 4]))), "{what}");
        assert!(refused(what, || net.summary_of(&x(&[2, 4]))), "{what}");
        assert!(refused(what, || net.forward_in_segments(Some(1), &x(&[2, 4]))), "{what}");
        lines_of(what, &net, || Ok(net.forward_in_segments(Some(1), &x(&[2, 3]))));
        // The line is that of the call, not only of the file.
        let line = line!() + 1;
        let error = catch(|| net.forward(&x(&[2, 4]))).unwrap_err();
        assert_eq!(error.location().unwrap().line(), line, "{what}: {error}");
    }
}

#[test]
fn anomalies_inside_wrappers() {
    let _alone = seeded(0);
    // A root at zero has an infinite slope.
    #[derive(Clone, Tree)]
    struct Root;
    impl Layer for Root {
        fn forward(&self, x: &Tensor) -> Tensor {
            x.sqrt()
        }
    }
    let nets = [
        ("Sequential", Sequential::new().then(Root)),
        ("Hooked", Sequential::new().then(Hooked::new(Root))),
        ("Checkpointed", Sequential::new().then(Checkpointed::new(Root))),
        ("Residual", Sequential::new().then(Residual::new((Root, Relu)))),
        ("LogSigmoid", Sequential::new().then(Lambda::new(|x: &Tensor| x.sqrt()))),
    ];
    for (what, net) in nets {
        let x = Tensor::zeros([2]).requires_grad();
        let error = detect_anomaly(|| {
            let y = net.forward(&x);
            y.sum().backward()
        });
        let text = error.expect_err(what).to_string();
        assert!(text.contains("backward of `sqrt`"), "{what}: {text}");
        assert!(
            text.contains("tests/layers/lines.rs") && !text.contains("/src/"),
            "{what}: {text}"
        );
    }
    let norm = WeightNorm::new(Linear::new(2, 2));
    no_grad(|| norm.original1.zero_());
    let line = line!() + 1;
    let error = detect_anomaly(|| norm.forward(&x(&[1, 2])).sum().backward()).unwrap_err();
    assert!(error.to_string().contains(&format!("lines.rs:{line}")), "{error}");
}

#[test]
fn layers_of_sequences() {
    let _alone = seeded(0);
    let lstm = RecurrentConfig::new(3, 4).num_layers(2).bidirectional().batch_first().lstm();
    let (gru, rnn) = (RecurrentConfig::new(3, 4).gru(), RecurrentConfig::new(3, 4).rnn());
    let sequence = x(&[2, 5, 3]);
    lines_of("Lstm", &lstm, || Ok(lstm.forward(&sequence).0));
    lines_of("Gru", &gru, || Ok(gru.forward(&sequence).0));
    lines_of("Rnn", &rnn, || Ok(rnn.forward(&sequence).0));
    let lengths = Tensor::from([2i64, 5]);
    lines_of("Lstm", &lstm, || Ok(lstm.forward_with(&sequence, None, Some(&lengths)).0));
    let (cell, gru_cell) = (LstmCell::new(3, 4), GruCell::new(3, 4));
    lines_of("LstmCell", &cell, || Ok(cell.forward(&x(&[2, 3]), None).0));
    lines_of("GruCell", &gru_cell, || Ok(gru_cell.forward(&x(&[2, 3]), None)));

    let none = AttentionMasks::new();
    let attention = AttentionConfig::new(8, 2).dropout(0.5).build();
    let z = x(&[2, 5, 8]);
    lines_of("attention", &attention, || Ok(attention.forward(&z, &z, &z, none)));
    let weights = || attention.forward_with_weights(&z, &z, &z, none, true).0;
    lines_of("attention", &attention, || Ok(weights()));
    let cache = attention.cache(2, 9);
    lines_of("decode", &attention, || Ok(attention.decode(&z, &cache)));
    let config = TransformerConfig::new(8, 2).dim_feedforward(16).dropout(0.5);
    let encoder = config.encoder(2);
    lines_of("encoder", &encoder, || Ok(encoder.forward(&z)));
    let decoder = config.decoder(2);
    lines_of("decoder", &decoder, || Ok(decoder.forward(&z, &z, none, none)));
    let rotary = Rotary::new(8);
    lines_of("Rotary", &attention, || Ok(rotary.rotate(&z, 0)));

    let gpt =
        models::GptConfig { vocabulary: 7, length: 6, width: 8, heads: 2, layers: 2, dropout: 0.1 };
    let gpt = models::Gpt::new(&gpt);
    let tokens = Tensor::from([[1i64, 2, 3]]);
    lines_of("Gpt", &gpt, || Ok(gpt.forward(&tokens)));
    assert!(refused("Gpt", || gpt.forward(&Tensor::from([[1i64, 7]]))));
    let mlp = models::Mlp::new(&[3, 4, 2]);
    lines_of("Mlp", &mlp, || Ok(mlp.forward(&x(&[2, 3]))));
    assert!(refused("Mlp", || mlp.forward(&x(&[2, 4]))));
}

/// What a layer, a hook or a function of the user's does inside names the user's own lines.
#[test]
fn functions_of_the_user_inside() {
    let _alone = seeded(0);
    let hooked = Hooked::new(Linear::new(3, 3));
    let line = line!() + 1;
    let _hook = hooked.register_forward_hook(|_, _, y| Some(y.reshape([7])));
    let net = Sequential::new().then(Residual::new(hooked));
    let error = catch(|| net.forward(&x(&[2, 3]))).unwrap_err();
    assert_eq!(error.location().unwrap().line(), line, "{error}");
    let line = line!() + 1;
    let net = Sequential::new().then(Lambda::new(|x: &Tensor| x.reshape([7])));
    let error = catch(|| net.forward(&x(&[2, 3]))).unwrap_err();
    assert_eq!(error.location().unwrap().line(), line, "{error}");
    assert!(error.to_string().contains("in layer 0 of the sequence"), "{error}");
}
