//! The report of what a low dtype loses of the gradients.

use pullback::{DType, Tensor, Tree, random_state};
use pullback_nn::precision::PrecisionReport;
use pullback_nn::{BatchNorm, Dropout, Layer, Linear, Module};
use serde_json::Value;
use std::sync::{PoisonError, RwLock};

/// Tests draw from one generator; the one that compares its state runs alone.
static DRAWING: RwLock<()> = RwLock::new(());

#[derive(Tree)]
struct Two {
    first: Tensor,
    second: Tensor,
    unused: Tensor,
}

fn two() -> Two {
    let leaf = || Tensor::ones([1, 4]).requires_grad();
    Two { first: leaf(), second: leaf(), unused: leaf() }
}

/// The gradients are the elements of these rows, times a factor.
fn loss(m: &Two, factor: f64) -> Tensor {
    let a = Tensor::from([[1.0f32, 2f32.powi(-20), 2f32.powi(-40), 0.0]]);
    let b = Tensor::from([[1.0f32, 8192.0, 2f32.powi(-15), 2f32.powi(-10)]]);
    (a.linear(&m.first, None).sum() + b.linear(&m.second, None).sum()) * factor
}

#[test]
fn shares_are_counted_by_parameter() {
    let _draws = DRAWING.read().unwrap_or_else(PoisonError::into_inner);
    let model = two();
    let report = PrecisionReport::new(&model, DType::F16, 1.0, |m| Ok(loss(m, 1.0))).unwrap();
    assert_eq!(report.layers.len(), 2);
    let [first, second] = &report.layers[..] else { panic!("two have gradients") };
    assert_eq!((first.name.as_str(), first.elements), ("first", 4));
    // 2⁻⁴⁰ is flushed, 2⁻²⁰ subnormal; the zero is zero anyway.
    assert_eq!(
        (first.flushed, first.subnormal, first.near_overflow, first.not_finite),
        (0.25, 0.25, 0.0, 0.0)
    );
    assert_eq!((first.largest, first.smallest), (1.0, Some(2f64.powi(-40))));
    assert_eq!((second.flushed, second.subnormal, second.near_overflow), (0.0, 0.25, 0.25));
    // With a scale of 16 the largest is beyond 65504.
    let report = PrecisionReport::new(&model, DType::F16, 16.0, |m| Ok(loss(m, 1.0))).unwrap();
    assert_eq!((report.layers[1].not_finite, report.layers[1].subnormal), (0.25, 0.0));
    // The true magnitudes do not depend on the scale.
    assert_eq!(report.layers[1].largest, 8192.0);
    // bf16 has the range of f32.
    let report = PrecisionReport::new(&model, DType::BF16, 1.0, |m| Ok(loss(m, 1.0))).unwrap();
    assert!(
        report
            .layers
            .iter()
            .all(|l| l.flushed + l.subnormal + l.near_overflow + l.not_finite == 0.0)
    );
    assert_eq!(report.suggested, Some(1.0));
}

#[test]
fn the_suggested_scale_is_a_power_of_two_that_helps() {
    let _draws = DRAWING.read().unwrap_or_else(PoisonError::into_inner);
    let model = two();
    let suggested = |factor: f64| {
        let report =
            PrecisionReport::new(&model, DType::F16, 1.0, |m| Ok(loss(m, factor))).unwrap();
        let suggested = report.suggested.unwrap();
        assert_eq!(suggested.log2().fract(), 0.0);
        suggested
    };
    // The largest, 8192, may become 4094 at most.
    assert_eq!(suggested(1.0), 0.25);
    // The smallest, 2⁻⁹⁰, cannot be lifted above 2⁻¹⁴: the largest, 2⁻³⁷, may become 2¹¹ at most.
    assert_eq!(suggested(2f64.powi(-50)), 2f64.powi(48));
    let small = |m: &Two| {
        Ok(Tensor::from([[1.0f32, 0.5, 0.25, 0.125]]).linear(&m.first, None).sum() * 2f64.powi(-30))
    };
    let report = PrecisionReport::new(&model, DType::F16, 1.0, small).unwrap();
    assert_eq!(report.layers[0].flushed, 1.0);
    // As large as it must be, not as it may be: 2⁻³³ to 2⁻¹⁴.
    assert_eq!(report.suggested, Some(2f64.powi(19)));
    let again = PrecisionReport::new(&model, DType::F16, 2f64.powi(19), small).unwrap();
    assert_eq!((again.layers[0].flushed, again.layers[0].subnormal), (0.0, 0.0));
    assert_eq!(again.suggested, report.suggested);
}

#[test]
fn a_gradient_on_the_way_may_be_what_overflows() {
    let _draws = DRAWING.read().unwrap_or_else(PoisonError::into_inner);
    // The gradient of the parameter is 2⁻²⁰, which a scale of 2⁶ would lift. But it is 2¹⁰ times
    // the scale on its way, and 2¹⁶ is beyond f16.
    let model = two();
    let loss = |m: &Two| {
        let y = Tensor::from([[2f32.powi(-10); 4]]).linear(&m.first, None);
        Ok((y * 2f64.powi(-10) * 2f64.powi(-10) * 1024.0).sum())
    };
    let report = PrecisionReport::new(&model, DType::F16, 1.0, loss).unwrap();
    assert_eq!(report.layers[0].largest, 2f64.powi(-20));
    assert_eq!(report.suggested, Some(2f64.powi(5)));
    let beyond = PrecisionReport::new(&model, DType::F16, 2f64.powi(6), loss).unwrap();
    assert_eq!(beyond.layers[0].not_finite, 1.0);
}

#[test]
fn no_scale_is_suggested_where_none_helps() {
    let _draws = DRAWING.read().unwrap_or_else(PoisonError::into_inner);
    let model = two();
    // NaN in any dtype; and finite in f32 alone, as 10⁶ is beyond f16 on the way forward.
    let nan = |m: &Two| Ok(loss(m, f64::NAN));
    let forward = |m: &Two| {
        let y = Tensor::from([[1e3f32; 4]]).linear(&(&m.first * 1e3), None);
        Ok(y.linear(&Tensor::ones([1, 1]), None).square().mean())
    };
    let reports = [
        PrecisionReport::new(&model, DType::F16, 1.0, nan).unwrap(),
        PrecisionReport::new(&model, DType::F16, 1.0, forward).unwrap(),
    ];
    assert!(reports[0].layers[0].largest.is_nan());
    assert!(reports[1].layers[0].largest.is_finite());
    for report in reports {
        assert_eq!((report.suggested, report.layers[0].not_finite), (None, 1.0), "{report}");
        let text = report.to_string();
        assert!(text.contains("no scale helps: gradients are not finite"), "{text}");
        assert!(!text.contains("suggested"), "{text}");
        let json: Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
        assert!(json.as_object().unwrap().contains_key("suggested"));
        assert_eq!(json["suggested"], Value::Null);
    }
}

#[test]
fn text_and_json() {
    let _draws = DRAWING.read().unwrap_or_else(PoisonError::into_inner);
    let report = PrecisionReport::new(&two(), DType::F16, 1.0, |m| Ok(loss(m, 1.0))).unwrap();
    let text = report.to_string();
    assert!(text.starts_with("gradients in f16, of the loss times 1\n"), "{text}");
    assert!(
        text.contains("first              4     25.0%      25.0%      0.0%        0.0%"),
        "{text}"
    );
    assert!(text.ends_with("suggested scale: 0.25 (2^-2)"), "{text}");
    let json: Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    assert_eq!(json["layers"][1]["name"], "second");
    assert_eq!(json["layers"][0]["flushed"], 0.25);
    assert_eq!(json["suggested"], 0.25);
    assert_eq!(json["dtype"], "f16");
}

#[derive(Tree)]
struct Noisy {
    first: Linear,
    norm: BatchNorm<1>,
    dropout: Dropout,
}

#[test]
fn nothing_is_changed_and_both_runs_see_the_same_random_numbers() {
    let _alone = DRAWING.write().unwrap_or_else(PoisonError::into_inner);
    let model =
        Noisy { first: Linear::new(4, 8), norm: BatchNorm::new(8), dropout: Dropout::new(0.5) };
    let x = Tensor::randn([16, 4]);
    let loss =
        |m: &Noisy| Ok(m.dropout.forward(&m.norm.forward(&m.first.forward(&x))).square().mean());
    loss(&model).unwrap().backward().unwrap();
    let state = || {
        let named = model.named_state().into_iter().map(|(_, x)| x.to_f64_vec());
        let grads = model.parameters().into_iter().map(|x| x.grad().unwrap().to_f64_vec());
        named.chain(grads).chain([random_state().to_f64_vec()]).collect::<Vec<_>>()
    };
    let before = state();
    let report = PrecisionReport::new(&model, DType::F16, 1024.0, loss).unwrap();
    assert_eq!(state(), before);
    // Other dropped elements would show as flushed ones.
    assert!(report.layers.iter().all(|l| l.flushed < 0.01), "{report}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let _draws = DRAWING.read().unwrap_or_else(PoisonError::into_inner);
    let model = two();
    let of = |dtype, scale| {
        PrecisionReport::new(&model, dtype, scale, |m| Ok(loss(m, 1.0))).unwrap_err().to_string()
    };
    assert!(of(DType::F32, 1.0).contains("is on bf16 or f16, not on f32"));
    assert!(of(DType::F16, 0.0).contains("the scale must be a number above 0, not 0"));
    let none = PrecisionReport::new(&model, DType::F16, 1.0, |_| {
        Ok(Tensor::from(1.0f32).requires_grad() * 2.0)
    });
    assert!(none.unwrap_err().to_string().contains("no parameter of the model has a gradient"));
}
