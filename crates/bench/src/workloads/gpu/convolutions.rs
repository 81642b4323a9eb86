//! Convolutions as ResNet-50 has them, in bf16, without and with gradients.

use super::super::grad;
use super::{compared, difference, with_tflops};
use crate::measure::{Measurement, Protocol};
use crate::{compiled, quick};
use pullback::{Conv, DType, Tensor, manual_seed, no_grad};

struct Form {
    name: &'static str,
    inputs: usize,
    outputs: usize,
    pixels: usize,
    kernel: usize,
    stride: usize,
}

#[rustfmt::skip]
const FORMS: [Form; 4] = [
    Form { name: "_3x3_64_56", inputs: 64, outputs: 64, pixels: 56, kernel: 3, stride: 1 },
    Form { name: "_1x1_256_64_56", inputs: 256, outputs: 64, pixels: 56, kernel: 1, stride: 1 },
    Form { name: "_3x3_256_14", inputs: 256, outputs: 256, pixels: 14, kernel: 3, stride: 1 },
    Form { name: "_3x3_128_56_stride2", inputs: 128, outputs: 128, pixels: 56, kernel: 3, stride: 2 },
];

pub fn layers() -> Vec<Measurement> {
    manual_seed(0);
    let both = |form| [false, true].map(|last| layer(form, last));
    FORMS.iter().flat_map(both).collect()
}

/// Noise, with the channels after the pixels in memory or not.
fn image([n, c, h, w]: [usize; 4], last: bool) -> Tensor {
    match last {
        false => Tensor::randn_with([n, c, h, w], DType::BF16),
        true => Tensor::randn_with([n, h, w, c], DType::BF16).permute([0, 3, 1, 2]),
    }
}

fn layer(form: &Form, last: bool) -> Measurement {
    let Form { name, kernel, stride, .. } = *form;
    let [batch, inputs, outputs, pixels] = quick::size(
        [128, form.inputs, form.outputs, form.pixels],
        [2, form.inputs / 16, form.outputs / 16, form.pixels / 4],
    );
    let x = image([batch, inputs, pixels, pixels], last).requires_grad();
    let fan_in = (inputs * kernel * kernel) as f64;
    let weight = Tensor::randn([outputs, inputs, kernel, kernel]) / fan_in.sqrt();
    let weight = weight.cast(DType::BF16).detach().requires_grad();
    let options = Conv::new().stride(stride).padding(kernel / 2);
    let convolution = || x.conv2d(&weight, None, &options);
    let value = compiled::step(|| no_grad(convolution));
    let y = value();
    let g = image([0, 1, 2, 3].map(|axis| y.shape()[axis]), last);
    let forward = Protocol::counted(5, 20).measure(|| drop(value()));
    let row = Protocol::counted(5, 20).measure(compiled::step(|| {
        x.zero_grad();
        weight.zero_grad();
        convolution().backward_with(&g).expect("the cotangent has the shape of the result");
    }));

    // The first image in f32; the gradient of the weight is a sum over all images.
    let first = |x: &Tensor| x.detach().narrow(0, 0, 1).cast(DType::F32);
    let exact = first(&x).requires_grad();
    let want = exact.conv2d(&weight.detach().cast(DType::F32), None, &options);
    want.backward_with(&first(&g)).expect("the cotangent has the shape of the result");
    let whole = weight.detach().cast(DType::F32).requires_grad();
    x.detach()
        .cast(DType::F32)
        .conv2d(&whole, None, &options)
        .backward_with(&g.cast(DType::F32))
        .expect("the cotangent has the shape of the result");
    let wrong = [
        difference(&first(&y), &want),
        difference(&first(&grad(&x)), &grad(&exact)),
        difference(&grad(&weight), &grad(&whole)),
    ];
    let operations = 2.0 * y.len() as f64 * fan_in;
    let row = compared(row, &wrong, 1e-2).with("fwd_ms", forward.ms());
    let layout = if last { "_channels_last" } else { "" };
    with_tflops(row, 3.0 * operations).named(format!("{name}{layout}"))
}
