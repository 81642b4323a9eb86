//! Pointwise functions, comparison and selection.

use super::one;
use crate::args::Args;
use pullback::{DType, Tensor};

#[rustfmt::skip]
pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let unary = |f: fn(&Tensor) -> Tensor| one(f(&a.x()));
    let other = || a.tensor(1, "other|y|exponent");
    match name {
        "abs"              => unary(Tensor::abs),
        "acos"             => unary(Tensor::acos),
        "acosh"            => unary(Tensor::acosh),
        "asin"             => unary(Tensor::asin),
        "asinh"            => unary(Tensor::asinh),
        "atan"             => unary(Tensor::atan),
        "atanh"            => unary(Tensor::atanh),
        "ceil"             => unary(Tensor::ceil),
        "cos"              => unary(Tensor::cos),
        "cosh"             => unary(Tensor::cosh),
        "deg2rad"          => unary(Tensor::deg2rad),
        "erf" | "special.erf"   => unary(Tensor::erf),
        "erfc" | "special.erfc" => unary(Tensor::erfc),
        "exp"              => unary(Tensor::exp),
        "exp2" | "special.exp2" => unary(Tensor::exp2),
        "expm1" | "special.expm1" => unary(Tensor::expm1),
        "floor"            => unary(Tensor::floor),
        "frac"             => unary(Tensor::frac),
        "log"              => unary(Tensor::log),
        "log10"            => unary(Tensor::log10),
        "log1p" | "special.log1p" => unary(Tensor::log1p),
        "log2"             => unary(Tensor::log2),
        "neg"              => unary(Tensor::neg),
        "positive" | "clone" | "contiguous" | "double" | "alias_copy" => unary(Tensor::deep_clone),
        "rad2deg"          => unary(Tensor::rad2deg),
        "reciprocal"       => unary(Tensor::recip),
        "rsqrt"            => unary(Tensor::rsqrt),
        "sigmoid" | "special.expit" => unary(Tensor::sigmoid),
        "sign" | "sgn"     => unary(Tensor::sign),
        "signbit"          => unary(Tensor::sign_bit),
        "angle"            => unary(Tensor::angle),
        "frexp"            => { let (mantissa, exponent) = a.x().frexp(); Some(vec![mantissa, exponent]) }
        "nextafter"        => one(a.x().next_after(&other())),
        "sin"              => unary(Tensor::sin),
        "sinc" | "special.sinc" => unary(Tensor::sinc),
        "sinh"             => unary(Tensor::sinh),
        "sqrt"             => unary(Tensor::sqrt),
        "square"           => unary(Tensor::square),
        "tan"              => unary(Tensor::tan),
        "tanh"             => unary(Tensor::tanh),
        "trunc" | "fix"    => unary(Tensor::trunc),
        "special.entr"     => unary(Tensor::entr),
        "special.ndtr"     => unary(Tensor::ndtr),
        "special.log_ndtr" => unary(Tensor::log_ndtr),
        "special.ndtri"    => unary(Tensor::ndtri),
        "erfinv" | "special.erfinv" => unary(Tensor::erfinv),
        "special.erfcx"    => unary(Tensor::erfcx),
        "lgamma" | "special.gammaln" => unary(Tensor::lgamma),
        "digamma" | "special.digamma" | "special.psi" => unary(Tensor::digamma),
        "i0" | "special.i0" | "special.modified_bessel_i0" => unary(Tensor::i0),
        "special.i0e"      => unary(Tensor::i0e),
        "special.i1" | "special.modified_bessel_i1" => unary(Tensor::i1),
        "special.i1e"      => unary(Tensor::i1e),
        "special.zeta"     => one(a.x().zeta(other())),
        "igamma" | "special.gammainc" => one(a.x().gammainc(other())),
        "igammac" | "special.gammaincc" => one(a.x().gammaincc(other())),
        // The samples name the order second; the call itself has it first.
        "polygamma" | "special.polygamma" => match a.positional.first() {
            Some(crate::args::Arg::Int(n)) => one(a.tensor(1, "input|other").polygamma(*n as usize)),
            _ => one(a.x().polygamma(a.int(1, "n") as usize)),
        },
        "mvlgamma" | "special.multigammaln" => one(a.x().multigammaln(a.int(1, "p") as usize)),
        "zeros_like"       => unary(Tensor::zeros_like),
        "ones_like"        => unary(Tensor::ones_like),
        "full_like" | "fill" => one(a.tensor(1, "fill_value|value").cast(a.x().dtype()).expand(a.x().shape())),
        "conj" | "conj_physical" | "resolve_conj" | "resolve_neg" | "real" => unary(Tensor::clone),
        "isreal"           => unary(|x| x.eq(x).logical_or(x.ne(x))),
        "isnan"            => unary(Tensor::is_nan),
        "isinf"            => unary(Tensor::is_inf),
        "isfinite"         => unary(Tensor::is_finite),
        "isposinf"         => unary(|x| x.eq(f64::INFINITY)),
        "isneginf"         => unary(|x| x.eq(f64::NEG_INFINITY)),
        "logical_not"      => unary(|x| x.eq(0)),
        "round"            => match a.get(1, "decimals") {
            Some(n) => one(a.x().round_to(n.int() as i32)),
            None => unary(Tensor::round),
        },
        "logit" | "special.logit" => match a.get(1, "eps") {
            Some(eps) => one(a.x().logit_within(eps.float())),
            None => unary(Tensor::logit),
        },
        "nan_to_num" => {
            let (high, low) = (a.float_or(2, "posinf", f64::MAX), a.float_or(3, "neginf", f64::MIN));
            one(a.x().nan_to_num(a.float_or(1, "nan", 0.0), high, low))
        }

        "add" | "__radd__" => one(a.x() + scaled(other(), a)),
        "sub"              => one(a.x() - scaled(other(), a)),
        "rsub"             => one(other() - scaled(a.x(), a)),
        "__rsub__"         => one(other() - a.x()),
        "mul" | "__rmul__" => one(a.x() * other()),
        "__rdiv__"         => one(other() / a.x()),
        "__rpow__"         => one(other().pow(a.x())),
        "__rmod__"         => one(other().remainder(a.x())),
        "div" | "true_divide" => one(match a.text(2, "rounding_mode") {
            Some("floor") => a.x().floor_div(other()),
            Some(_) => a.x().trunc_div(other()),
            None => a.x() / other(),
        }),
        "floor_divide"     => one(a.x().floor_div(other())),
        "remainder"        => one(a.x().remainder(other())),
        "fmod"             => one(a.x().fmod(other())),
        "pow"              => one(a.x().pow(other())),
        "float_power"      => one(a.x().float_power(other())),
        "atan2" | "arctan2" => one(a.x().atan2(other())),
        "copysign"         => one(a.x().copysign(other())),
        "hypot"            => one(a.x().hypot(&other())),
        "ldexp"            => one(a.x().ldexp(other())),
        "heaviside"        => one(a.x().heaviside(a.tensor(1, "values"))),
        "logaddexp"        => one(a.x().logaddexp(&other())),
        "logaddexp2"       => one(a.x().logaddexp2(&other())),
        "xlogy" | "special.xlogy" => one(a.x().xlogy(&other())),
        "special.xlog1py"  => one(a.x().xlog1py(&other())),
        "maximum" | "max.binary" => one(a.x().maximum(other())),
        "minimum" | "min.binary" => one(a.x().minimum(other())),
        "fmax"             => one(a.x().fmax(&other())),
        "fmin"             => one(a.x().fmin(&other())),
        "lerp"             => one(a.x().lerp(&a.tensor(1, "end"), a.tensor(2, "weight"))),
        "addcmul"          => one(a.x().addcmul(&a.tensor(1, "tensor1"), &a.tensor(2, "tensor2"), a.float_or(3, "value", 1.0))),
        "addcdiv"          => one(a.x().addcdiv(&a.tensor(1, "tensor1"), &a.tensor(2, "tensor2"), a.float_or(3, "value", 1.0))),
        "clamp" | "clip"   => one({
            let x = a.x();
            let x = a.maybe_tensor(1, "min").map_or(x.clone(), |low| x.clamp_min(&low));
            a.maybe_tensor(2, "max").map_or(x.clone(), |high| x.clamp_max(&high))
        }),
        "clamp_min"        => one(a.x().clamp_min(a.tensor(1, "min"))),
        "clamp_max"        => one(a.x().clamp_max(a.tensor(1, "max"))),

        "eq"               => one(a.x().eq(other())),
        "ne" | "not_equal" => one(a.x().ne(other())),
        "lt" | "less"      => one(a.x().lt(other())),
        "le" | "less_equal" => one(a.x().le(other())),
        "gt" | "greater"   => one(a.x().gt(other())),
        "ge" | "greater_equal" => one(a.x().ge(other())),
        "logical_and"      => one(a.x().ne(0).logical_and(other().ne(0))),
        "logical_or"       => one(a.x().ne(0).logical_or(other().ne(0))),
        "logical_xor"      => one(a.x().ne(0).logical_xor(other().ne(0))),
        "isclose" | "allclose" => {
            let near = a.x().is_close(&other(), a.float_or(2, "rtol", 1e-5), a.float_or(3, "atol", 1e-8), a.flag(4, "equal_nan", false));
            one(if name == "isclose" { near } else { near.all() })
        }
        "equal"            => one(if a.x().shape() == other().shape() { a.x().eq(other()).all() } else { Tensor::from(false) }),
        "gcd"              => one(a.x().gcd(&other())),
        "lcm"              => one(a.x().lcm(&other())),
        "bitwise_and" | "__rand__" => one(a.x().logical_and(other())),
        "bitwise_or" | "__ror__" => one(a.x().logical_or(other())),
        "bitwise_xor" | "__rxor__" => one(a.x().logical_xor(other())),
        "bitwise_not"      => unary(Tensor::logical_not),
        "bitwise_left_shift" => one(a.x().shift_left(&other())),
        "bitwise_right_shift" => one(a.x().shift_right(&other())),
        "float"            => one(a.x().cast(DType::F32)),
        "half"             => one(a.x().cast(DType::F16)),
        "bfloat16"         => one(a.x().cast(DType::BF16)),
        "bool"             => one(a.x().ne(0)),
        "byte"             => one(a.x().cast(DType::U8)),
        "int"              => one(a.x().cast(DType::I32)),
        "long"             => one(a.x().cast(DType::I64)),
        "item"             => one(a.x().reshape(())),
        "zero_"            => unary(Tensor::zeros_like),
        // The samples name the condition second.
        "where"            => one(a.tensor(1, "condition").select(a.x(), a.tensor(2, "other"))),
        "masked_fill"      => one(a.x().masked_fill(&a.tensor(1, "mask"), a.tensor(2, "value"))),
        _ => None,
    }
}

/// Times `alpha`, if there is one.
fn scaled(x: Tensor, a: &Args) -> Tensor {
    match a.get(2, "alpha") {
        Some(alpha) => x * alpha.tensor(),
        None => x,
    }
}
