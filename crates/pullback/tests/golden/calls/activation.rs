//! Activations, normalisation and attention.

use super::one;
use crate::args::Args;
use pullback::{Attention, Tensor};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let short = name.strip_prefix("nn.functional.")?;
    let x = || a.x();
    one(match short {
        "relu" => x().relu(),
        "relu6" => x().relu6(),
        "elu" => x().elu(a.float_or(1, "alpha", 1.0)),
        "celu" => x().celu(a.float_or(1, "alpha", 1.0)),
        "selu" => x().selu(),
        "gelu" if a.text(1, "approximate") == Some("tanh") => x().gelu_tanh(),
        "gelu" => x().gelu(),
        "silu" => x().silu(),
        "mish" => x().mish(),
        "sigmoid" => x().sigmoid(),
        "tanh" => x().tanh(),
        "softsign" => x().softsign(),
        "logsigmoid" => x().log_sigmoid(),
        "tanhshrink" => x().tanhshrink(),
        "softshrink" => x().softshrink(a.float_or(1, "lambd", 0.5)),
        "hardshrink" => x().hardshrink(a.float_or(1, "lambd", 0.5)),
        "hardtanh" => x().hardtanh(a.float_or(1, "min_val", -1.0), a.float_or(2, "max_val", 1.0)),
        "hardsigmoid" => x().hardsigmoid(),
        "hardswish" => x().hardswish(),
        "leaky_relu" => x().leaky_relu(a.float_or(1, "negative_slope", 0.01)),
        "rrelu" if !a.flag(3, "training", false) => {
            x().rrelu(a.float_or(1, "lower", 1.0 / 8.0), a.float_or(2, "upper", 1.0 / 3.0), None)
        }
        "prelu" => x().prelu(&a.tensor(1, "weight")),
        "softplus" => x().softplus(a.float_or(1, "beta", 1.0), a.float_or(2, "threshold", 20.0)),
        "threshold" => x().threshold(a.float(1, "threshold"), a.float(2, "value")),
        "glu" => x().glu(a.int_or(1, "dim", -1)),
        "layer_norm" => {
            let (x, shape) = (x(), a.ints(1, "normalized_shape"));
            let filled = |w: Option<Tensor>, value: f64| {
                w.unwrap_or_else(|| Tensor::full(shape.clone(), value).cast(x.dtype()))
            };
            let (weight, bias) =
                (filled(a.maybe_tensor(2, "weight"), 1.0), filled(a.maybe_tensor(3, "bias"), 0.0));
            x.layer_norm(&weight, &bias, a.float_or(4, "eps", 1e-5))
        }
        "rms_norm" => {
            let ones = || Tensor::full(a.ints(1, "normalized_shape"), 1.0).cast(x().dtype());
            x().rms_norm(
                &a.maybe_tensor(2, "weight").unwrap_or_else(ones),
                a.float_or(3, "eps", f64::EPSILON),
            )
        }
        "group_norm" => {
            let (weight, bias) = (a.maybe_tensor(2, "weight"), a.maybe_tensor(3, "bias"));
            x().group_norm(
                a.int(1, "num_groups") as usize,
                weight.as_ref(),
                bias.as_ref(),
                a.float_or(4, "eps", 1e-5),
            )
        }
        "instance_norm" => {
            let (weight, bias) = (a.maybe_tensor(3, "weight"), a.maybe_tensor(4, "bias"));
            let (weight, bias, eps) = (weight.as_ref(), bias.as_ref(), a.float_or(7, "eps", 1e-5));
            match a.flag(5, "use_input_stats", true) {
                true => x().instance_norm(weight, bias, eps),
                false => {
                    let (mean, variance) =
                        (a.tensor(1, "running_mean"), a.tensor(2, "running_var"));
                    x().channel_norm(&mean, &variance, weight, bias, eps)
                }
            }
        }
        "local_response_norm" => x().local_response_norm(
            a.int(1, "size") as usize,
            a.float_or(2, "alpha", 1e-4),
            a.float_or(3, "beta", 0.75),
            a.float_or(4, "k", 1.0),
        ),
        // What is dropped is random; evaluation and the certain cases are not.
        "dropout"
        | "dropout1d"
        | "dropout2d"
        | "dropout3d"
        | "alpha_dropout"
        | "feature_alpha_dropout" => {
            let p = a.float_or(1, "p", 0.5);
            let training = a.flag(2, "training", !short.contains("alpha"));
            if training && p != 0.0 && p != 1.0 {
                return None;
            }
            let key = training.then(|| pullback::Key::new(0));
            match short {
                "dropout" => x().dropout(p, key.as_ref()),
                "alpha_dropout" => x().alpha_dropout(p, key.as_ref()),
                "feature_alpha_dropout" => x().feature_alpha_dropout(p, key.as_ref()),
                _ => {
                    let spatial = (short.as_bytes()[7] - b'0') as usize;
                    x().channel_dropout(p, spatial.min(x().rank() - 1), key.as_ref())
                }
            }
        }
        "batch_norm" => {
            let (weight, bias) = (a.maybe_tensor(3, "weight"), a.maybe_tensor(4, "bias"));
            let eps = a.float_or(7, "eps", 1e-5);
            match a.flag(5, "training", false) {
                true => x().batch_norm(weight.as_ref(), bias.as_ref(), eps),
                false => {
                    let (mean, variance) =
                        (a.tensor(1, "running_mean"), a.tensor(2, "running_var"));
                    x().channel_norm(&mean, &variance, weight.as_ref(), bias.as_ref(), eps)
                }
            }
        }
        "scaled_dot_product_attention" => {
            let (q, k, v) = (a.tensor(0, "query"), a.tensor(1, "key"), a.tensor(2, "value"));
            // Which weights are dropped is random, and the reference does not say which it dropped.
            if a.float_or(4, "dropout_p", 0.0) != 0.0 {
                return None;
            }
            let mask = a.maybe_tensor(3, "attn_mask");
            let mut how = Attention::new();
            if let Some(mask) = &mask {
                how = how.mask(mask);
            }
            if a.flag(5, "is_causal", false) {
                how = how.causal();
            }
            let scale = a.float_or(6, "scale", f64::NAN);
            if !scale.is_nan() {
                how = how.scale(scale);
            }
            if a.flag(7, "enable_gqa", false) {
                how = how.grouped();
            }
            q.attention(&k, &v, how)
        }
        _ => return None,
    })
}
