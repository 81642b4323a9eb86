//! Pointwise functions and activations.

use super::given::Given;
use pullback::{DType, Tensor};

type G = Given;

fn v(g: &G) -> Tensor {
    g.f(&[4])
}

macro_rules! unary {
    ($($name:ident)*) => {
        pub fn unary() -> Vec<crate::given::Row> {
            use crate::given::call;
            vec![$((stringify!($name), vec![
                call(|g: &G| v(g).$name()),
                call(|g: &G| g.f(&[]).$name()),
                call(|g: &G| g.f(&[0]).$name()),
                call(|g: &G| g.i(&[3]).$name()),
            ])),*]
        }
    };
}

unary!(neg abs sign floor ceil round trunc square sqrt rsqrt recip exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos
    atan sinh cosh tanh asinh acosh atanh erf erfc erfcx erfinv log_ndtr ndtri lgamma digamma i0 i0e i1 i1e sigmoid relu gelu gelu_tanh silu
    is_nan is_inf is_finite selu log_sigmoid mish softsign tanhshrink relu6 hardsigmoid hardswish logit sinc entr ndtr frac deg2rad rad2deg
    sign_bit angle round_ste frexp deep_clone);

macro_rules! binary {
    ($($name:ident)*) => {
        pub fn binary() -> Vec<crate::given::Row> {
            use crate::given::call;
            vec![$((stringify!($name), vec![
                call(|g: &G| v(g).$name(&v(g))),
                call(|g: &G| g.f(&[]).$name(&g.f(&[]))),
                call(|g: &G| { let x = v(g); x.$name(&x) }),
                call(|g: &G| g.f(&[0]).$name(&g.f(&[1]))),
            ])),*]
        }
    };
}

binary!(eq ne lt le gt ge pow atan2 copysign maximum minimum remainder fmod floor_div
    betaln xlogy xlog1py fmax fmin hypot logaddexp logaddexp2 next_after is_in);

crate::rows! {
    "logical_not": |g| g.b(&[4]).logical_not(), |g| g.i(&[3]).logical_not();
    "logical_and": |g| g.b(&[4]).logical_and(g.b(&[4])), |g| g.i(&[3]).logical_and(g.i(&[3]));
    "logical_or": |g| g.b(&[4]).logical_or(g.b(&[4])), |g| g.i(&[3]).logical_or(g.i(&[3]));
    "logical_xor": |g| g.b(&[4]).logical_xor(g.b(&[4])), |g| g.i(&[3]).logical_xor(g.i(&[3]));
    "zeta": |g| v(g).detach().zeta(v(g)), |g| g.f(&[]).detach().zeta(g.f(&[]));
    "gammainc": |g| v(g).detach().gammainc(v(g)), |g| g.f(&[0]).detach().gammainc(g.f(&[0]));
    "gammaincc": |g| v(g).detach().gammaincc(v(g)), |g| g.f(&[0]).detach().gammaincc(g.f(&[0]));
    "leaky_relu": |g| v(g).leaky_relu(1.0), |g| v(g).leaky_relu(0.0);
    "prelu": |g| v(g).prelu(&g.f(&[1]));
    "elu": |g| v(g).elu(1.0);
    "celu": |g| v(g).celu(1.0);
    "softplus": |g| v(g).softplus(1.0, 20.0), |g| v(g).softplus(1.0, -9.0);
    "softshrink": |g| v(g).softshrink(0.0);
    "hardshrink": |g| v(g).hardshrink(0.0);
    "hardtanh": |g| v(g).hardtanh(-9.0, 9.0), |g| v(g).hardtanh(f64::NEG_INFINITY, f64::INFINITY);
    "threshold": |g| v(g).threshold(-1.0, 0.0);
    "glu": |g| v(g).glu(0);
    "powi": |g| v(g).powi(1), |g| v(g).powi(0), |g| v(g).powi(2), |g| v(g).powi(-1), |g| g.i(&[3]).powi(1), |g| g.f(&[]).powi(1);
    "powf": |g| v(g).powf(1.0), |g| v(g).powf(0.0), |g| v(g).powf(2.5);
    "clamp": |g| v(g).clamp(-1.0, 1.0), |g| v(g).clamp(f64::NEG_INFINITY, f64::INFINITY), |g| v(g).clamp(v(g), 3.0);
    "clamp_min": |g| v(g).clamp_min(-1.0), |g| g.i(&[2]).clamp_min(0);
    "clamp_max": |g| v(g).clamp_max(9.0);
    "lerp": |g| v(g).lerp(&v(g), 0.0), |g| v(g).lerp(&v(g), 1.0);
    "r#where": |g| v(g).r#where(&g.b(&[4]), v(g)), |g| g.f(&[]).r#where(&g.b(&[]), 0.0);
    "select": |g| g.b(&[4]).select(v(g), v(g)), |g| g.b(&[]).select(g.f(&[]), 0.0);
    "masked_fill": |g| v(g).masked_fill(&g.b(&[4]), 1.0), |g| v(g).masked_fill(&g.b(&[]).logical_not(), 1.0);
    "dropout": |g| v(g).dropout(0.5, Some(&g.key())), |g| v(g).dropout(1.0, Some(&g.key())), |g| v(g).dropout(0.5, None), |g| v(g).dropout(0.0, Some(&g.key()));
    "channel_dropout": |g| g.f(&[2, 2, 3]).channel_dropout(0.5, 1, Some(&g.key())), |g| g.f(&[2, 2, 3]).channel_dropout(0.5, 1, None);
    "alpha_dropout": |g| v(g).alpha_dropout(0.5, Some(&g.key())), |g| v(g).alpha_dropout(0.5, None), |g| v(g).alpha_dropout(0.0, Some(&g.key()));
    "feature_alpha_dropout": |g| g.f(&[2, 2]).feature_alpha_dropout(0.5, Some(&g.key())), |g| g.f(&[2, 2]).feature_alpha_dropout(0.5, None);
    "rrelu": |g| v(g).rrelu(0.1, 0.3, Some(&g.key())), |g| v(g).rrelu(1.0, 1.0, None);
    "gumbel_softmax": |g| v(g).gumbel_softmax(1.0, false, 0, &g.key()), |g| v(g).gumbel_softmax(1.0, true, 0, &g.key());
    "ldexp": |g| v(g).ldexp(0.0), |g| v(g).ldexp(g.ints(&[0, 0, 0, 0]));
    "float_power": |g| v(g).float_power(1.0);
    "is_close": |g| v(g).is_close(&v(g), 1e-5, 1e-8, false);
    "gcd": |g| g.i(&[3]).gcd(&g.i(&[3]));
    "lcm": |g| g.i(&[3]).lcm(&g.i(&[3]));
    "shift_left": |g| g.i(&[3]).shift_left(&g.ints(&[0, 0, 0]));
    "shift_right": |g| g.i(&[3]).shift_right(&g.ints(&[0, 0, 0]));
    "logit_within": |g| v(g).logit_within(1e-6);
    "polygamma": |g| v(g).polygamma(0), |g| v(g).polygamma(1);
    "multigammaln": |g| (v(g)).multigammaln(1), |g| (v(g) + 3.0).multigammaln(2);
    "nan_to_num": |g| v(g).nan_to_num(0.0, 1.0, -1.0), |g| g.i(&[3]).nan_to_num(0.0, 1.0, -1.0);
    "addcmul": |g| v(g).addcmul(&v(g), &v(g), 0.0), |g| v(g).addcmul(&v(g), &v(g), 1.0);
    "addcdiv": |g| v(g).addcdiv(&v(g), &v(g), 0.0), |g| v(g).addcdiv(&v(g), &v(g), 1.0);
    "heaviside": |g| v(g).heaviside(0.5);
    "trunc_div": |g| v(g).trunc_div(1.0), |g| g.i(&[3]).trunc_div(1);
    "round_to": |g| v(g).round_to(0), |g| v(g).round_to(2), |g| g.i(&[3]).round_to(0);
    "straight_through": |g| v(g).straight_through(|x| x.clone()), |g| v(g).straight_through(Tensor::round);
    "sign_ste": |g| v(g).sign_ste(None), |g| v(g).sign_ste(Some(1.0));
    "threshold_ste": |g| v(g).threshold_ste(0.5);
    "reverse_gradient": |g| v(g).reverse_gradient(1.0), |g| v(g).reverse_gradient(-1.0), |g| v(g).reverse_gradient(0.0);
    "scale_gradient": |g| v(g).scale_gradient(1.0), |g| v(g).scale_gradient(0.0);
    "clip_gradient": |g| v(g).clip_gradient(1.0), |g| g.f(&[0]).clip_gradient(1.0);
    "clip_gradient_value": |g| v(g).clip_gradient_value(1.0);
    "cast": |g| v(g).cast(DType::F32), |g| v(g).cast(DType::F64);
    "contiguous": |g| v(g).contiguous(), |g| g.f(&[2, 3]).t().contiguous();
}
