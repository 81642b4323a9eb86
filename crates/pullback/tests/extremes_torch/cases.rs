//! The functions of `data/extremes.py`, by the names they have there.

use pullback::{CrossEntropy, DType, Reduction, Tensor, losses};

/// A function of one element, of two, or of rows of three.
#[derive(Clone, Copy)]
pub enum Case {
    One(fn(&Tensor) -> Tensor),
    Two(fn(&Tensor, &Tensor) -> Tensor),
    Rows(fn(&Tensor) -> Tensor),
}

const EACH: Reduction = Reduction::None;

/// The function of this name, if it is known.
pub fn case(name: &str) -> Option<Case> {
    one(name).map(Case::One).or(two(name).map(Case::Two)).or(rows(name).map(Case::Rows))
}

#[rustfmt::skip]
fn one(name: &str) -> Option<fn(&Tensor) -> Tensor> {
    let f: fn(&Tensor) -> Tensor = match name {
        "neg" => Tensor::neg, "abs" => Tensor::abs, "sign" => Tensor::sign, "floor" => Tensor::floor, "ceil" => Tensor::ceil,
        "round" => Tensor::round, "trunc" => Tensor::trunc, "square" => Tensor::square, "sqrt" => Tensor::sqrt,
        "rsqrt" => Tensor::rsqrt, "recip" => Tensor::recip, "exp" => Tensor::exp, "exp2" => Tensor::exp2,
        "expm1" => Tensor::expm1, "log" => Tensor::log, "log2" => Tensor::log2, "log10" => Tensor::log10,
        "log1p" => Tensor::log1p, "sin" => Tensor::sin, "cos" => Tensor::cos, "tan" => Tensor::tan, "asin" => Tensor::asin,
        "acos" => Tensor::acos, "atan" => Tensor::atan, "sinh" => Tensor::sinh, "cosh" => Tensor::cosh, "tanh" => Tensor::tanh,
        "asinh" => Tensor::asinh, "acosh" => Tensor::acosh, "atanh" => Tensor::atanh, "erf" => Tensor::erf,
        "erfc" => Tensor::erfc, "erfcx" => Tensor::erfcx, "erfinv" => Tensor::erfinv, "log_ndtr" => Tensor::log_ndtr,
        "ndtri" => Tensor::ndtri, "ndtr" => Tensor::ndtr, "lgamma" => Tensor::lgamma, "digamma" => Tensor::digamma,
        "polygamma1" => |x| x.polygamma(1), "i0" => Tensor::i0, "i0e" => Tensor::i0e, "i1" => Tensor::i1, "i1e" => Tensor::i1e,
        "sigmoid" => Tensor::sigmoid, "relu" => Tensor::relu, "gelu" => Tensor::gelu, "gelu_tanh" => Tensor::gelu_tanh,
        "silu" => Tensor::silu, "leaky_relu" => |x| x.leaky_relu(0.25), "elu" => |x| x.elu(1.5), "celu" => |x| x.celu(2.0),
        "selu" => Tensor::selu, "softplus" => |x| x.softplus(2.0, 20.0), "log_sigmoid" => Tensor::log_sigmoid,
        "mish" => Tensor::mish, "softsign" => Tensor::softsign, "tanhshrink" => Tensor::tanhshrink,
        "softshrink" => |x| x.softshrink(0.5), "hardshrink" => |x| x.hardshrink(0.5), "hardtanh" => |x| x.hardtanh(-1.0, 1.0),
        "relu6" => Tensor::relu6, "hardsigmoid" => Tensor::hardsigmoid, "hardswish" => Tensor::hardswish,
        "threshold" => |x| x.threshold(0.5, -9.0), "logit" => Tensor::logit, "logit_within" => |x| x.logit_within(0.125),
        "sinc" => Tensor::sinc, "entr" => Tensor::entr, "frac" => Tensor::frac, "deg2rad" => Tensor::deg2rad,
        "rad2deg" => Tensor::rad2deg, "nan_to_num" => |x| x.nan_to_num(7.0, 8.0, -9.0), "angle" => Tensor::angle,
        "clamp" => |x| x.clamp(-1.0, 1.0), "clamp_min" => |x| x.clamp_min(0.0), "clamp_max" => |x| x.clamp_max(0.0),
        "round_to" => |x| x.round_to(1), "pow0" => |x| x.powf(0.0), "pow1" => |x| x.powf(1.0), "pow2" => |x| x.powf(2.0),
        "pow3" => |x| x.powf(3.0), "pow_half" => |x| x.powf(0.5), "pow_3_2" => |x| x.powf(1.5), "pow_-1" => |x| x.powf(-1.0),
        "pow_-2" => |x| x.powf(-2.0), "pow_-half" => |x| x.powf(-0.5),
        "two_pow" => |x| Tensor::full(x.shape(), 2.0).cast(x.dtype()).pow(x),
        "zero_pow" => |x| x.zeros_like().pow(x), "multigammaln" => |x| x.multigammaln(2),
        "remainder_3" => |x| x.remainder(3.0), "fmod_3" => |x| x.fmod(3.0),
        _ => return None,
    };
    Some(f)
}

#[rustfmt::skip]
fn two(name: &str) -> Option<fn(&Tensor, &Tensor) -> Tensor> {
    let f: fn(&Tensor, &Tensor) -> Tensor = match name {
        "add" => |a, b| a + b, "sub" => |a, b| a - b, "mul" => |a, b| a * b, "div" => |a, b| a / b, "pow" => |a, b| a.pow(b),
        "atan2" => |a, b| a.atan2(b), "copysign" => |a, b| a.copysign(b), "maximum" => |a, b| a.maximum(b),
        "minimum" => |a, b| a.minimum(b), "remainder" => |a, b| a.remainder(b), "fmod" => |a, b| a.fmod(b),
        "floor_div" => |a, b| a.floor_div(b), "trunc_div" => |a, b| a.trunc_div(b), "fmax" => Tensor::fmax,
        "fmin" => Tensor::fmin, "hypot" => Tensor::hypot, "logaddexp" => Tensor::logaddexp,
        "logaddexp2" => Tensor::logaddexp2, "xlogy" => Tensor::xlogy, "xlog1py" => Tensor::xlog1py,
        "lerp_half" => |a, b| a.lerp(b, 0.25), "heaviside" => |a, b| a.heaviside(b),
        "prelu" => |a, b| a.unsqueeze(0).prelu(b).squeeze_axis(0),
        "clamp_min_by" => |a, b| a.clamp_min(b), "clamp_max_by" => |a, b| a.clamp_max(b),
        "mse" => |x, y| losses::mse(x, y, EACH), "l1" => |x, y| losses::l1(x, y, EACH),
        "huber" => |x, y| losses::huber(x, y, 2.0, EACH), "smooth_l1" => |x, y| losses::smooth_l1(x, y, 2.0, EACH),
        "kl_div" => |x, y| losses::kl_div(x, y, false, EACH), "kl_div_log" => |x, y| losses::kl_div(x, y, true, EACH),
        "bce_with_logits" => |x, y| losses::binary_cross_entropy_with_logits(x, y, None, None, EACH),
        "poisson_log" => |x, y| losses::poisson_nll(x, y, true, false, 1e-8, EACH),
        "poisson" => |x, y| losses::poisson_nll(x, y, false, false, 1e-8, EACH),
        "poisson_full" => |x, y| losses::poisson_nll(x, y, true, true, 1e-8, EACH),
        "soft_margin" => |x, y| losses::soft_margin(x, &y.detach(), EACH),
        "gaussian" => |x, y| losses::gaussian_nll(x, y, &(Tensor::full(x.shape(), 0.25).cast(x.dtype())), false, 1e-6, EACH),
        "gaussian_variance" => |v, x| losses::gaussian_nll(x, &x.zeros_like(), v, false, 1e-6, EACH),
        "bce" => |x, y| losses::binary_cross_entropy(x, y, None, EACH),
        "hinge_embedding" => |x, y| losses::hinge_embedding(x, y, 1.0, EACH),
        "margin_ranking" => |x, y| losses::margin_ranking(x, &x.zeros_like(), y, 1.0, EACH),
        _ => return None,
    };
    Some(f)
}

#[rustfmt::skip]
fn rows(name: &str) -> Option<fn(&Tensor) -> Tensor> {
    let f: fn(&Tensor) -> Tensor = match name {
        "rows_softmax" => |x| x.softmax(1), "rows_log_softmax" => |x| x.log_softmax(1),
        "rows_logsumexp" => |x| x.logsumexp_keep(1), "rows_cumsum" => |x| x.cumsum(1), "rows_cumprod" => |x| x.cumprod(1),
        "rows_logcumsumexp" => |x| x.logcumsumexp(1), "rows_prod" => |x| x.prod_keep(1), "rows_norm" => |x| x.norm_keep(1),
        "rows_norm1" => |x| x.vector_norm_keep(1.0, 1), "rows_norm3" => |x| x.vector_norm_keep(3.0, 1),
        "rows_norm_inf" => |x| x.vector_norm_keep(f64::INFINITY, 1), "rows_mean" => |x| x.mean_keep(1),
        "rows_var" => |x| x.var_keep(1), "rows_std" => |x| x.std_keep(1), "rows_max" => |x| x.max_keep(1),
        "rows_layer_norm" => |x| x.layer_norm(&ones(x.dtype()), &(ones(x.dtype()) * 0.0), 1e-5),
        "rows_rms_norm" => |x| x.rms_norm(&ones(x.dtype()), 1e-5), "rows_normalize" => |x| x.normalize(2.0, 1, 1e-12),
        "rows_cross_entropy" => |x| {
            let classes = Tensor::zeros_with([x.shape()[0]], DType::I64);
            CrossEntropy::new().reduction(EACH).of(x, &classes).unsqueeze(1)
        },
        _ => return None,
    };
    Some(f)
}

fn ones(dtype: DType) -> Tensor {
    Tensor::ones_with([3], dtype)
}
