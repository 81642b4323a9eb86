//! What cannot be is refused with a sentence that names the user's line.

use crate::seeded;
use pullback::{Tensor, catch};
use pullback_nn::models::{Gpt, GptConfig};
use pullback_nn::*;

/// Runs `f`, which must fail, and checks that the sentence holds every part and names a line of
/// this file.
#[track_caller]
fn fails<R>(f: impl FnOnce() -> R, parts: &[&str]) {
    let Err(error) = catch(f) else { panic!("did not fail: {parts:?}") };
    let text = error.to_string();
    for part in parts.iter().chain(&["layers/errors.rs:"]) {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

fn x(shape: &[usize]) -> Tensor {
    Tensor::ones(shape)
}

#[test]
fn impossible_layers() {
    let _alone = seeded(0);
    fails(|| Linear::new(0, 3), &["Linear", "not 0 and 3"]);
    fails(|| Bilinear::new(1, 0, 2), &["Bilinear", "1, 0 and 2"]);
    fails(|| Conv2d::new(3, 4, 0), &["Conv2d", "by [0, 0]"]);
    fails(|| Conv1d::new(3, 4, 2).stride(0), &["Conv1d", "a stride must be at least 1, not [0]"]);
    fails(|| Conv3d::new(3, 4, 2).groups(2), &["Conv3d", "3 inputs and 4 outputs", "2 groups"]);
    fails(|| Conv3d::new(4, 4, 2).groups(0), &["0 groups"]);
    fails(|| ConvTranspose2d::new(4, 3, 2).groups(2), &["ConvTranspose2d", "2 groups"]);
    fails(|| Embedding::new(3, 2).padding_idx(3), &["Embedding", "3 is not one of the 3 rows"]);
    fails(|| EmbeddingBag::new(0, 2, pullback::BagMode::Sum), &["EmbeddingBag", "0 and 2"]);
    fails(|| GroupNorm::new(3, 4), &["GroupNorm", "4 channels are not divisible by 3 groups"]);
    fails(|| BatchNorm2d::new(0), &["BatchNorm2d", "at least one channel"]);
    fails(|| InstanceNorm1d::new(0), &["InstanceNorm1d", "at least one channel"]);
    fails(|| LayerNorm::new([]), &["LayerNorm", "at least one axis"]);
    fails(|| Dropout::new(1.5), &["Dropout", "between 0 and 1, not 1.5"]);
    fails(|| Dropout3d::new(f64::NAN), &["Dropout3d", "not NaN"]);
}

#[test]
fn inputs_that_do_not_fit() {
    let _alone = seeded(0);
    fails(|| Linear::new(3, 4).forward(&x(&[2, 5])), &["matmul", "f32[2,5]", "5 ≠ 3"]);
    fails(|| Conv2d::new(3, 4, 3).forward(&x(&[2, 5])), &["conv2d", "takes [n, c, h, w]"]);
    fails(|| Conv2d::new(3, 4, 3).forward(&x(&[1, 2, 5, 5])), &["conv", "f32[1,2,5,5]"]);
    fails(|| Conv1d::new(1, 1, 3).same().stride(2).forward(&x(&[1, 1, 5])), &["stride 1"]);
    fails(|| MaxPool2d::new(3).forward(&x(&[1, 1, 2, 2])), &["pool", "length 2", "f32[1,1,2,2]"]);
    fails(|| Embedding::new(3, 2).forward(&x(&[2])), &["embedding", "integers"]);
    fails(|| Embedding::new(3, 2).forward(&Tensor::from([3i64])), &["embedding", "3 is not one"]);
    fails(|| LayerNorm::new([4]).forward(&x(&[2, 3])), &["layer_norm", "f32[2,3]"]);
    fails(|| RmsNorm::new([4]).forward(&x(&[2, 1])), &["RmsNorm", "f32[2,1] are not [4]"]);
    fails(|| GroupNorm::new(2, 4).forward(&x(&[2, 6])), &["GroupNorm", "[n, 4, …]", "f32[2,6]"]);
    fails(|| BatchNorm2d::new(4).forward(&x(&[2, 4])), &["BatchNorm2d", "[n, c, h, w] with c = 4"]);
    fails(|| BatchNorm1d::new(4).forward(&x(&[2, 3])), &["BatchNorm1d", "c = 4", "f32[2,3]"]);
    fails(|| BatchNorm1d::new(4).forward(&x(&[1, 4])), &["more than one value per channel"]);
    fails(|| BatchNorm1d::new(4).forward(&x(&[0, 4])), &["per channel, and f32[0,4] has 0"]);
    fails(|| InstanceNorm1d::new(4).forward(&x(&[2, 4, 1])), &["more than one value per channel"]);
    fails(|| InstanceNorm2d::new(4).forward(&x(&[4, 2])), &["InstanceNorm2d", "f32[4,2]"]);
    fails(|| Flatten::over(1, 5).forward(&x(&[2, 3])), &["flatten", "axis 5"]);
    fails(|| PixelShuffle::new(2).forward(&x(&[1, 3, 2, 2])), &["PixelShuffle", "f32[1,3,2,2]"]);
    fails(|| PixelShuffle::new(0).forward(&x(&[1, 4, 2, 2])), &["PixelShuffle", "multiple of 0"]);
    fails(|| PixelUnshuffle::new(2).forward(&x(&[1, 3, 2])), &["PixelUnshuffle", "f32[1,3,2]"]);
    fails(|| Glu::default().forward(&x(&[2, 3])), &["glu"]);
}

#[test]
fn recurrent_layers_and_attention_that_cannot_be() {
    let _alone = seeded(0);
    fails(|| Lstm::new(3, 0), &["Lstm: takes at least one number in its state"]);
    fails(|| RecurrentConfig::new(3, 4).proj_size(0).lstm(), &["and in its projection"]);
    fails(|| RecurrentConfig::new(3, 4).num_layers(0).gru(), &["Gru: takes at least one layer"]);
    let no_probability = ["a probability must be between 0 and 1, not -1"];
    fails(|| RecurrentConfig::new(3, 4).dropout(-1.0).rnn(), &no_probability);
    fails(|| AttentionConfig::new(8, 2).dropout(-1.0).build(), &no_probability);
    fails(|| TransformerConfig::new(8, 2).dropout(-1.0).encoder_layer(), &no_probability);
    let sizes = GptConfig { vocabulary: 5, length: 2, width: 8, heads: 2, layers: 1, dropout: 0.0 };
    let gpt = Gpt::new(&sizes);
    let ids = Tensor::from([[1i64, 2, 3]]);
    fails(|| gpt.forward(&ids), &["Gpt: reads at most 2 positions, not i64[1,3]"]);
}

#[test]
fn inside_of_others() {
    let _alone = seeded(0);
    let net = (Linear::new(3, 4), vec![Linear::new(4, 4), Linear::new(5, 4)]);
    fails(|| net.forward(&x(&[2, 3])), &["matmul", "4 ≠ 5"]);
    fails(|| Residual::new(Linear::new(3, 4)).forward(&x(&[2, 3])), &["add", "do not broadcast"]);
    let net = Sequential::new().then(Relu).then(Linear::new(3, 4));
    fails(|| net.forward(&x(&[2, 5])), &["matmul", "5 ≠ 3", "in layer 1 of the sequence"]);
    let net = Sequential::new().then(net).then(Relu);
    let nested = ["5 ≠ 3", "in layer 1 of the sequence", "in layer 0 of the sequence"];
    fails(|| net.forward(&x(&[2, 5])), &nested);
    fails(|| net.summary_of(&x(&[2, 5])), &nested);
}

#[test]
fn a_line_in_a_function_of_the_users() {
    let _alone = seeded(0);
    let bad = Lambda::new(|x: &Tensor| x.reshape([7]));
    let line = line!() - 1;
    let net = Sequential::new().then(bad);
    let parts = ["reshape", &format!("errors.rs:{line}:"), "in layer 0 of the sequence"];
    fails(|| net.forward(&x(&[2])), &parts);
}

#[test]
fn without_catch_it_is_a_panic_with_the_sentence() {
    let _alone = seeded(0);
    let panic = std::panic::catch_unwind(|| GroupNorm::new(3, 4)).err().unwrap();
    let text = panic.downcast::<String>().unwrap();
    assert!(
        text.starts_with("GroupNorm: 4 channels are not divisible by 3 groups\n  at "),
        "{text}"
    );
}
