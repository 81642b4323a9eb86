//! Weight norm and spectral norm compared with PyTorch's (recorded by `data/norms.py`), eagerly and
//! compiled.

use pullback::{DType, Tensor, catch, jit, no_grad};
use pullback_nn::{Conv2d, ConvTranspose1d, Layer, Linear, Module, Relu, SpectralNorm, WeightNorm};
use serde_json::Value;
use std::collections::BTreeMap;

/// As in `norms.py`.
fn numbers(seed: i64, shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let k = (0..count as i64).map(|i| (i * 7919 + seed * 104_729) % 2003);
    let values: Vec<f64> = k.map(|k| (k as f64 + 0.5) / 1000.0 - 1.0).collect();
    Tensor::from_vec(values, shape)
}

fn filled<L: Layer>(layer: L) -> L {
    let layer = layer.to_dtype(DType::F64);
    no_grad(|| {
        for (name, x) in layer.named_parameters() {
            x.copy_(numbers(if name == "weight" { 1 } else { 2 }, x.shape()));
        }
    });
    layer
}

fn cases() -> BTreeMap<String, Value> {
    let file: Value = serde_json::from_str(include_str!("data/norms.json")).unwrap();
    file["cases"].as_object().unwrap().clone().into_iter().collect()
}

#[track_caller]
fn near(what: &str, x: &Tensor, wanted: &Value) {
    let wanted: Vec<f64> = wanted.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let x = x.to_f64_vec();
    assert_eq!(x.len(), wanted.len(), "{what}");
    for (a, b) in x.iter().zip(&wanted) {
        assert!((a - b).abs() < 1e-12 * b.abs().max(1.0), "{what}: {a}, PyTorch has {b}");
    }
}

fn compare<L: Layer>(case: &str, layer: &L, x: &Tensor, calls: usize, wanted: &Value) {
    let names: Vec<String> = layer.named_state().into_iter().map(|(name, _)| name).collect();
    let theirs: Vec<&str> =
        wanted["names"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    assert_eq!(names, theirs, "{case}");
    let run = |compiled: bool| {
        let layer = layer.deep_copy();
        let call = jit(|x: &Tensor| {
            layer.zero_grad();
            let y = layer.forward(x);
            y.square().sum().backward()?;
            Ok(y.detach())
        });
        let mut y = None;
        for _ in 0..calls {
            y = Some(if compiled { call.call(x).unwrap() } else { call.eager(x) });
        }
        near(case, &y.unwrap(), &wanted["y"]);
        for (name, p) in layer.named_parameters() {
            near(&format!("{case} {name}"), &p.grad().unwrap(), &wanted["grads"][&name]);
        }
        for (name, b) in layer.named_buffers() {
            near(&format!("{case} {name}"), &b, &wanted["buffers"][&name]);
        }
    };
    run(false);
    run(true);
}

fn weight_norm<L: Layer>(case: &str, dim: &str, layer: L, x: &Tensor, wanted: &Value) {
    let layer = WeightNorm::over(filled(layer), dim.parse().ok());
    no_grad(|| layer.original0.mul_(1.5));
    compare(case, &layer, x, 1, wanted);
}

fn spectral_norm<L: Layer>(case: &str, how: &[&str], layer: L, x: &Tensor, wanted: &Value) {
    let layer = SpectralNorm::new(filled(layer)).n_power_iterations(how[1].parse().unwrap());
    no_grad(|| {
        for (seed, vector) in [(4, &layer.u), (5, &layer.v)] {
            let vector = vector.as_ref().unwrap();
            let new = numbers(seed, vector.shape());
            vector.copy_(&new / new.square().sum().sqrt());
        }
    });
    if how[2] == "False" {
        layer.eval();
    }
    compare(case, &layer, x, how[0].parse().unwrap(), wanted);
}

#[test]
fn both_norms_are_pytorchs() {
    let cases = cases();
    assert_eq!(cases.len(), 18);
    for (case, wanted) in &cases {
        let parts: Vec<&str> = case.split('.').collect();
        match (parts[0], parts[1]) {
            ("weight_norm", "linear") => {
                weight_norm(case, parts[2], Linear::new(4, 3), &numbers(3, &[2, 4]), wanted);
            }
            ("weight_norm", "conv") => {
                weight_norm(
                    case,
                    parts[2],
                    Conv2d::new(2, 3, 3),
                    &numbers(3, &[2, 2, 5, 5]),
                    wanted,
                );
            }
            ("weight_norm", _) => {
                let layer = ConvTranspose1d::new(2, 3, 2);
                weight_norm(case, parts[2], layer, &numbers(3, &[2, 2, 4]), wanted);
            }
            (_, "linear") => {
                spectral_norm(case, &parts[2..], Linear::new(4, 3), &numbers(3, &[2, 4]), wanted);
            }
            (_, "conv") => {
                let x = numbers(3, &[2, 2, 5, 5]);
                spectral_norm(case, &parts[2..], Conv2d::new(2, 3, 3), &x, wanted);
            }
            _ => {
                let layer = ConvTranspose1d::new(2, 3, 2);
                spectral_norm(case, &parts[2..], layer, &numbers(3, &[2, 2, 4]), wanted);
            }
        }
    }
}

#[test]
fn vectors_begin_near_the_largest_singular_value() {
    pullback::manual_seed(1);
    let layer = SpectralNorm::new(Linear::new(6, 5).to_dtype(DType::F64)).n_power_iterations(30);
    layer.forward(&Tensor::zeros_with([1, 6], DType::F64));
    let largest = pullback::linalg::svdvals(&layer.weight().detach()).max().item::<f64>();
    assert!((largest - 1.0).abs() < 1e-3, "{largest}");
    let plain = layer.remove();
    assert_eq!(plain.weight.to_vec::<f64>(), layer.weight().to_vec::<f64>());
    assert_eq!(plain.named_parameters().len(), 2);
}

#[test]
fn a_layer_without_a_weight_is_refused() {
    let text = catch(|| WeightNorm::new(Relu)).err().unwrap().to_string();
    assert!(text.contains("Relu has no tensor `weight`"), "{text}");
    assert!(text.contains("tests/parametrised.rs:"), "{text}");
    let text = catch(|| WeightNorm::over(Linear::new(2, 2), Some(2))).err().unwrap().to_string();
    assert!(text.contains("has no axis 2"), "{text}");
    let norm = WeightNorm::new(Linear::new(2, 2));
    let text = catch(|| norm.forward(&Tensor::zeros([1, 3]))).unwrap_err().to_string();
    assert!(text.contains("tests/parametrised.rs:"), "{text}");
}
