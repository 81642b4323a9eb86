//! The forms of operators that PyTorch's own backward and compiler use, and tensors made of numbers
//! alone.

use super::one;
use super::view::lengths;
use crate::args::{Arg, Args};
use pullback::{CrossEntropy, DType, GridPaddingMode, GridSampleMode, ScatterReduction, Tensor};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let x = || a.x();
    match name {
        "native_layer_norm" => {
            let (x, shape, eps) = (x(), a.ints(1, "normalized_shape"), a.float(4, "eps"));
            let last: Vec<isize> = (1..=shape.len() as isize).map(|i| -i).collect();
            let (y, mean, scale) = normed(&x, &last, eps);
            let y = a.maybe_tensor(2, "weight").map_or(y.clone(), |w| y * w);
            let y = a.maybe_tensor(3, "bias").map_or(y.clone(), |b| y + b);
            Some(vec![y, mean, scale])
        }
        "native_group_norm" => {
            let (x, groups) = (x(), a.int(6, "group"));
            let each = a.int(4, "C") * a.int(5, "HxW") / groups;
            let flat = x.reshape([x.shape()[0] as isize, groups, each]);
            let (y, mean, scale) = normed(&flat, &[-1], a.float(7, "eps"));
            let y = per_channel(&y.reshape(x.shape()), a, 1);
            Some(vec![y, mean.squeeze_axis(-1), scale.squeeze_axis(-1)])
        }
        "native_batch_norm" | "_native_batch_norm_legit" | "_batch_norm_with_update" => {
            // The running statistics may be left out altogether.
            let stats = !matches!(a.positional.get(3), Some(Arg::Bool(_)));
            let updates = name == "_batch_norm_with_update";
            let at = if updates { 5 } else { 6 } - if stats { 0 } else { 2 };
            let training = updates || a.flag(at - 1, "training", true);
            let (x, eps) = (x(), a.float(at + 1, "eps"));
            let others: Vec<isize> = (0..x.rank() as isize).filter(|&i| i != 1).collect();
            let mut out = if training {
                let (y, mean, scale) = normed(&x, &others, eps);
                let flat = |t: Tensor| t.reshape([x.shape()[1]]);
                vec![per_channel(&y, a, 1), flat(mean), flat(scale)]
            } else {
                let (mean, variance) = (a.tensor(3, "running_mean"), a.tensor(4, "running_var"));
                let y = x.channel_norm(&mean, &variance, None, None, eps);
                let none = Tensor::zeros_with([0], x.dtype());
                vec![per_channel(&y, a, 1), none.clone(), none]
            };
            if updates {
                out.push(Tensor::zeros_with([0], DType::U8));
            }
            Some(out)
        }
        "_softmax_backward_data" => {
            let (dy, y, axis) = (x(), a.tensor(1, "output"), a.int(2, "dim"));
            one(&y * (&dy - (&dy * &y).sum_keep(axis)))
        }
        // Where everything is masked, 0 instead of NaN.
        "torch.ops.aten._safe_softmax" | "_safe_softmax" => {
            let (x, axis) = (x(), a.int(1, "dim"));
            let none = x.eq(f64::NEG_INFINITY).all_keep(axis);
            one(x.masked_fill(&none, 0.0).softmax(axis).masked_fill(&none, 0.0))
        }
        "native_dropout_backward" => {
            one(x() * a.tensor(1, "mask").cast(x().dtype()) * a.float(2, "scale"))
        }
        "_unsafe_masked_index" => {
            let (x, mask) = (x(), a.tensor(1, "mask"));
            let places = within(&x, &a.tensors(2, "indices"));
            let y = x.index_get(&places.iter().collect::<Vec<_>>());
            one(y.masked_fill(&mask.logical_not(), a.float(3, "fill")))
        }
        "_unsafe_masked_index_put_accumulate" => {
            let (x, mask) = (x(), a.tensor(1, "mask"));
            let places = within(&x, &a.tensors(2, "indices"));
            let values = a.tensor(3, "values").masked_fill(&mask.logical_not(), 0.0);
            one(x.index_put(&places.iter().collect::<Vec<_>>(), &values, true))
        }
        "_segment_reduce" | "segment_reduce" => {
            let how = match a.text(1, "reduce")? {
                "sum" => ScatterReduction::Sum,
                "mean" => ScatterReduction::Mean,
                "prod" => ScatterReduction::Prod,
                "max" => ScatterReduction::Max,
                "min" => ScatterReduction::Min,
                _ => return None,
            };
            let lengths = match a.maybe_tensor(usize::MAX, "lengths") {
                Some(lengths) => lengths,
                None => a.tensor(usize::MAX, "offsets").diff(1, -1),
            };
            let first = a.get(usize::MAX, "initial").map(Arg::float);
            one(x().segment_reduce(how, &lengths, a.int_or(usize::MAX, "axis", 0), first))
        }
        "nn.functional.linear_cross_entropy" => {
            let (weight, target) = (a.tensor(1, "linear_weight"), a.tensor(2, "target"));
            let (inner, outer) = weight.shape().split_last()?;
            let flat = |t: &Tensor| t.reshape([t.len()]);
            let bias = a.maybe_tensor(usize::MAX, "linear_bias").as_ref().map(flat);
            let scores = x().linear(&weight.reshape([weight.len() / inner, *inner]), bias.as_ref());
            let lead = &x().shape()[..x().rank() - 1].to_vec();
            let scores = scores.reshape([&lead[..], outer].concat());
            let mut loss = CrossEntropy::new().reduction(a.reduction(usize::MAX));
            if let Some(w) = a.maybe_tensor(usize::MAX, "weight") {
                loss = loss.weight(&w);
            }
            if let Some(class) = a.get(usize::MAX, "ignore_index") {
                loss = loss.ignore_index(class.int() as i64);
            }
            one(loss
                .label_smoothing(a.float_or(usize::MAX, "label_smoothing", 0.0))
                .of(&scores, &target))
        }
        "grid_sampler_2d" | "grid_sampler_3d" => {
            let how = match a.int(2, "interpolation_mode") {
                0 => GridSampleMode::Linear,
                1 => GridSampleMode::Nearest,
                _ => GridSampleMode::Cubic,
            };
            let outside = match a.int(3, "padding_mode") {
                0 => GridPaddingMode::Zeros,
                1 => GridPaddingMode::Border,
                _ => GridPaddingMode::Reflection,
            };
            one(x().grid_sample(
                &a.tensor(1, "grid"),
                how,
                outside,
                a.flag(4, "align_corners", false),
            ))
        }
        "tril_indices" | "triu_indices" => {
            let (rows, columns) = (a.int(0, "row") as usize, a.int(1, "col") as usize);
            let offset = a.int_or(2, "offset", 0);
            one(match name {
                "tril_indices" => Tensor::tril_indices(rows, columns, offset),
                _ => Tensor::triu_indices(rows, columns, offset),
            })
        }
        "full" => {
            let value = a.tensor(1, "fill_value").cast(DType::F64);
            one(value.expand(lengths(&a.ints(0, "size"))))
        }
        "new_full" => one(a.tensor(2, "fill_value").cast(x().dtype()).expand(a.ints(1, "size"))),
        "new_ones" => one(Tensor::ones_with(a.rest(1, "size"), x().dtype())),
        "new_zeros" => one(Tensor::zeros_with(a.rest(1, "size"), x().dtype())),
        "scalar_tensor" => one(Tensor::from(a.float(0, "s"))),
        _ => None,
    }
}

/// Mean 0 and variance 1 over some axes, with the mean and 1/√(variance + eps).
fn normed(x: &Tensor, axes: &[isize], eps: f64) -> (Tensor, Tensor, Tensor) {
    let mean = x.mean_keep(axes.to_vec());
    let centred = x - &mean;
    let scale = (centred.square().mean_keep(axes.to_vec()) + eps).rsqrt();
    (centred * &scale, mean, scale)
}

/// Times the weight and plus the bias, which follow the argument before `at`.
fn per_channel(y: &Tensor, a: &Args, at: usize) -> Tensor {
    let wide = |w: Tensor| {
        let mut shape = vec![1; y.rank()];
        shape[1] = w.len();
        w.reshape(shape)
    };
    let y = a.maybe_tensor(at, "weight").map_or(y.clone(), |w| y * wide(w));
    a.maybe_tensor(at + 1, "bias").map_or(y.clone(), |b| y + wide(b))
}

/// Indices held inside their axes: those outside are masked anyway.
fn within(x: &Tensor, indices: &[Tensor]) -> Vec<Tensor> {
    let held = |(index, &n): (&Tensor, &usize)| index.clamp(-(n as i64), n as i64 - 1);
    indices.iter().zip(x.shape()).map(held).collect()
}
