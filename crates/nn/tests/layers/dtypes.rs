//! Layers of `f32` parameters take `f32`: an `f64` that comes in is refused by every layer that has
//! parameters, and passes unchanged through those that have none.

use crate::build::{Built, Case};
use crate::pytorch::{CASES, inputs};
use crate::seeded;
use pullback::{DType, ErrorKind, Tensor, autocast, catch, grad, with_default_dtype};
use pullback_nn::losses::{Loss, MseLoss};
use pullback_nn::*;
use serde_json::Value;

fn as_dtype(xs: &[Tensor], dtype: DType) -> Vec<Tensor> {
    xs.iter().map(|x| if x.dtype().is_float() { x.cast(dtype) } else { x.clone() }).collect()
}

#[test]
fn every_layer_keeps_to_the_dtype_of_its_parameters() {
    let _alone = seeded(0);
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let mut refusals = 0;
    for case in cases.iter().map(Case::new) {
        let built: Built = case.build().to_dtype(DType::F32);
        if case.more.get("mode").is_some_and(|mode| mode == "eval") {
            built.eval();
        }
        let name = &case.layer;
        let xs = inputs(&case, 1);
        let y = built.forward(&as_dtype(&xs, DType::F32));
        assert_eq!(y.dtype(), DType::F32, "{name} of f32");
        if !xs[0].dtype().is_float() {
            continue;
        }
        let has_floats = built.named_state().iter().any(|(_, x)| x.dtype().is_float());
        for dtype in [DType::F64, DType::BF16] {
            match catch(|| built.forward(&as_dtype(&xs, dtype))) {
                Ok(y) => {
                    assert!(!has_floats, "{name} of f32 parameters took {dtype}");
                    assert_eq!(y.dtype(), dtype, "{name} of {dtype}");
                }
                Err(error) => {
                    assert!(has_floats, "{name} has no parameters and refuses {dtype}: {error}");
                    assert_eq!(error.kind(), ErrorKind::DType, "{name}: {error}");
                    let text = error.to_string();
                    assert!(text.contains("floats of different dtypes"), "{name}: {text}");
                    assert!(text.contains("hint") && text.contains("cast("), "{name}: {text}");
                    refusals += 1;
                }
            }
        }
        // Inside autocast the table decides, and everything fits.
        let low = catch(|| autocast(DType::BF16, || built.forward(&as_dtype(&xs, DType::BF16))));
        assert!(low.is_ok(), "{name} inside autocast: {}", low.unwrap_err());
    }
    assert!(refusals > 40, "{refusals} refusals");
}

#[test]
fn the_layer_of_the_readme_says_what_to_write() {
    let _alone = seeded(0);
    let layer = Linear::new(3, 2);
    let x = Tensor::from([[1., 2., 3.]]);
    let text = catch(|| layer.forward(&x)).unwrap_err().to_string();
    assert!(text.starts_with("linear: f64[1,3] and f32[2,3] are floats of different"), "{text}");
    assert!(text.contains("x.cast(DType::F32)") && text.contains("to_dtype"), "{text}");
    assert_eq!(layer.forward(&x.cast(DType::F32)).dtype(), DType::F32);
    assert_eq!(layer.to_dtype(DType::F64).forward(&x).dtype(), DType::F64);
    let y = MseLoss::new(pullback::Reduction::Mean)
        .forward(&layer.forward(&x.cast(DType::F32)), &Tensor::ones([1, 2]));
    // A log reads it as it likes.
    assert_eq!(y.item::<f32>(), y.item::<f64>() as f32);
}

#[test]
fn layers_with_states_and_several_inputs_refuse_too() {
    let _alone = seeded(0);
    let wide = |shape: &[usize]| Tensor::full(shape, 0.5);
    let single = |shape: &[usize]| Tensor::full(shape, 0.5f32);
    let refused = |what: &str, f: &dyn Fn() -> Tensor| {
        let error = catch(f).err().unwrap_or_else(|| panic!("{what} took f64"));
        assert_eq!(error.kind(), ErrorKind::DType, "{what}: {error}");
    };
    let lstm = Lstm::new(3, 4);
    refused("Lstm", &|| lstm.forward(&wide(&[5, 2, 3])).0);
    let state = (wide(&[1, 2, 4]), single(&[1, 2, 4]));
    refused("a state", &|| lstm.forward_from(&single(&[5, 2, 3]), &state).0);
    refused("Gru", &|| Gru::new(3, 4).forward(&wide(&[5, 2, 3])).0);
    refused("Rnn", &|| Rnn::new(3, 4).forward(&wide(&[5, 2, 3])).0);
    refused("GruCell", &|| GruCell::new(3, 4).forward(&wide(&[2, 3]), None));
    let cell = GruCell::new(3, 4);
    refused("a state", &|| cell.forward(&single(&[2, 3]), Some(&wide(&[2, 4]))));
    let attention = MultiHeadAttention::new(8, 2);
    let attend = |x: Tensor, masks| attention.forward(&x, &x, &x, masks);
    refused("MultiHeadAttention", &|| attend(wide(&[1, 3, 8]), AttentionMasks::new()));
    let mask = wide(&[3, 3]);
    let masked = AttentionMasks::new().attn_mask(&mask);
    refused("a mask", &|| attend(single(&[1, 3, 8]), masked));
    let encoder = TransformerConfig::new(8, 2).encoder_layer();
    refused("an encoder", &|| encoder.forward(&wide(&[1, 3, 8])));
    let bilinear = Bilinear::new(3, 4, 2);
    refused("Bilinear", &|| bilinear.forward(&single(&[2, 3]), &wide(&[2, 4])));
}

#[test]
fn layers_are_made_in_the_default_dtype() {
    let _alone = seeded(0);
    let (x, h) = (Tensor::full([2, 3], 0.5), Tensor::full([5, 2, 3], 0.5));
    with_default_dtype(DType::F64, || {
        let net = Sequential::new()
            .then(Linear::new(3, 4))
            .then(BatchNorm1d::new(4))
            .then(PRelu::new())
            .then(LayerNorm::new([4]));
        assert_eq!(net.forward(&x).dtype(), DType::F64);
        assert_eq!(Lstm::new(3, 4).forward(&h).0.dtype(), DType::F64);
        let g = grad(|x: &Tensor| net.forward(x).square().sum());
        net.eval();
        assert_eq!(g(&x).dtype(), DType::F64);
    });
    assert_eq!(Linear::new(3, 4).weight.dtype(), DType::F32);
}
