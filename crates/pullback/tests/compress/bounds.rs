//! Gradients from approximate values are as near as it is promised, at inputs of every kind; and
//! those of ops that promise nothing are the same, bit for bit.

use crate::shared::exclusive;
use pullback::{
    Attention, Compress, Conv, DType, Key, Op, Pool, Tensor, cross_entropy, einsum, try_apply,
    with_packing,
};
use pullback_ir::{Binary, Unary};
use std::sync::Arc;

const N: usize = 1024;
const BLOCK: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Bf16,
    F16,
    Blocks,
}

const ALL: [How; 3] = [How::Bf16, How::F16, How::Blocks];

impl How {
    fn packer(self) -> Compress {
        match self {
            How::Bf16 => Compress::new().half(DType::BF16),
            How::F16 => Compress::new().half(DType::F16),
            How::Blocks => Compress::new().blocks8(),
        }
    }

    fn error(self) -> f64 {
        match self {
            How::Bf16 => 1.0 / 256.0,
            How::F16 => 1.0 / 2048.0,
            How::Blocks => 1.0 / 254.0,
        }
    }
}

/// Values that approximations stumble over.
fn inputs() -> Vec<(&'static str, Vec<f64>)> {
    let normal = |seed| Key::new(seed).normal([N], DType::F64, 0.0, 1.0).to_vec::<f64>();
    let each = |f: fn(f64) -> f64| (0..N).map(|i| f(i as f64 / N as f64)).collect::<Vec<f64>>();
    let edge = |i: usize| {
        let (sign, side) =
            (if i & 1 == 0 { 1.0 } else { -1.0 }, if i & 2 == 0 { 1.0 } else { -1.0 });
        sign * (1.0 - side * 2f64.powf(-1.0 - 20.0 * i as f64 / N as f64))
    };
    // Two of them are the same in half precision.
    let ties = [-1.0, 0.5, 0.5001, 2.0, 0.5, -0.25, 3.0, 3.001];
    let odd = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 2.0, 1e-9, -80.0];
    vec![
        ("wide", each(|t| 12.0 * t - 5.99)),
        ("edge", (0..N).map(edge).collect()),
        ("offset", normal(1).iter().map(|v| 300.0 + v).collect()),
        ("large", each(|t| 2000.0 * t - 999.7)),
        ("small", normal(2).iter().map(|v| v * 1e-6).collect()),
        ("spread", each(|t| 10f64.powf(12.0 * t - 6.0))),
        ("normal", normal(3)),
        ("ties", (0..N).map(|i| ties[i * i / 5 % 8]).collect()),
        (
            "odd",
            (0..N).map(|i| if i < 3 * BLOCK { odd[i % 10] } else { i as f64 / 300.0 }).collect(),
        ),
    ]
}

/// From ½ to 2 in magnitude, of both signs.
fn cotangent(shape: &[usize], dtype: DType) -> Tensor {
    let n = shape.iter().product::<usize>();
    let one = |i: usize| {
        (0.5 + (i * 37 % 101) as f64 / 67.0) * if i.is_multiple_of(3) { -1.0 } else { 1.0 }
    };
    Tensor::from_vec((0..n).map(one).collect::<Vec<f64>>(), shape).cast(dtype)
}

/// The gradients of a function, whose operands are no parameters.
fn gradients(
    f: &dyn Fn(&[Tensor]) -> Tensor,
    inputs: &[Tensor],
    packer: Option<Compress>,
) -> Vec<Vec<f64>> {
    let leaves: Vec<Tensor> = inputs.iter().map(|x| x.detach().requires_grad()).collect();
    let operands: Vec<Tensor> = leaves.iter().map(|x| x * 1.0).collect();
    let y = match packer {
        Some(packer) => with_packing(Arc::new(packer), || f(&operands)),
        None => f(&operands),
    };
    drop(operands);
    y.backward_with(&cotangent(y.shape(), y.dtype())).unwrap();
    leaves.iter().map(|x| x.grad().map_or(Vec::new(), |g| g.to_f64_vec())).collect()
}

fn bits(all: &[Vec<f64>]) -> Vec<Vec<u64>> {
    all.iter().map(|g| g.iter().map(|v| v.to_bits()).collect()).collect()
}

/// What the derivative of an op may be off by, in units of the approximation's error.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    Exact,
    /// Four of the slope itself: of each element or, in eight bits, of the largest of the block.
    Slope,
    /// Four of 1, or of the slope.
    One,
}

/// Asserts the bound of a pointwise op; says whether anything was approximate.
fn compare(what: &str, how: How, bound: Bound, plain: &[f64], found: &[f64], dtype: DType) -> bool {
    let w = cotangent(&[plain.len()], dtype).to_f64_vec();
    let slopes: Vec<f64> = plain.iter().zip(&w).map(|(g, w)| (g / w).abs()).collect();
    let most = |of: &[f64]| of.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(*v));
    let mut differs = false;
    for i in 0..plain.len() {
        let (a, b) = (plain[i], found[i]);
        assert_eq!(a.is_finite(), b.is_finite(), "{what}: {a} became {b} at {i}");
        if !a.is_finite() || a == b {
            continue;
        }
        differs = true;
        let start = i / BLOCK * BLOCK;
        let slope = match how {
            How::Bf16 => slopes[i],
            // Elements below its range are off by a part of the largest.
            How::F16 => most(&slopes).min(slopes[i] + most(&slopes) / 1024.0),
            How::Blocks => most(&slopes[start..(start + BLOCK).min(plain.len())]),
        };
        let beside = match bound {
            Bound::Exact => 0.0,
            Bound::Slope => slope,
            Bound::One => slope.max(1.0),
        };
        let may = 4.0 * how.error() * beside * w[i].abs() + 1e-5 * a.abs();
        assert!(
            (a - b).abs() <= may,
            "{what}: {a} became {b} at {i}, {} over",
            (a - b).abs() / may
        );
    }
    differs
}

fn unary_bound(f: Unary, how: How) -> Bound {
    use Unary::*;
    match f {
        Square | Exp | Exp2 | Recip | Rsqrt | Tan => Bound::Slope,
        Sqrt | Log | Log2 | Log10 if how != How::Blocks => Bound::Slope,
        Atan | Asinh if how != How::Blocks => Bound::Slope,
        Atan | Asinh | Sin | Cos | Expm1 | Tanh | Sigmoid => Bound::One,
        Erf | Erfc | LogNdtr | Gelu | GeluTanh | Silu => Bound::One,
        _ => Bound::Exact,
    }
}

/// Without a derivative.
fn is_flat(f: Unary) -> bool {
    use Unary::*;
    matches!(f, Sign | Floor | Ceil | Round | Trunc | Not | Stop)
}

#[test]
fn functions_of_one_element() {
    let _lock = exclusive();
    for dtype in [DType::F32, DType::F64] {
        for &f in Unary::ALL.iter().filter(|f| !is_flat(**f)) {
            let op = |x: &[Tensor]| try_apply(Op::Unary(f), &[&x[0]]).unwrap().remove(0);
            for how in ALL {
                let bound = unary_bound(f, how);
                let mut differs = false;
                for (name, values) in inputs() {
                    let x = [Tensor::from_vec(values, [N]).cast(dtype)];
                    let plain = gradients(&op, &x, None);
                    let found = gradients(&op, &x, Some(how.packer()));
                    let what = format!("{f:?} {how:?} {name} {dtype}");
                    match bound {
                        Bound::Exact => assert!(bits(&found) == bits(&plain), "{what}"),
                        _ => differs |= compare(&what, how, bound, &plain[0], &found[0], dtype),
                    }
                }
                assert_eq!(differs, bound != Bound::Exact, "{f:?} {how:?}: is it approximated?");
            }
        }
    }
}

#[test]
fn functions_of_two_elements() {
    let _lock = exclusive();
    let inputs = inputs();
    for dtype in [DType::F32, DType::F64] {
        let is_flat = |f: Binary| f == Binary::FloorDiv || !f.takes().has(dtype);
        for &f in Binary::ALL.iter().filter(|f| !is_flat(**f)) {
            // Their derivatives by the first operand are refused.
            let one = matches!(f, Binary::Zeta | Binary::Gammainc | Binary::Gammaincc);
            let op = |x: &[Tensor]| {
                let a = if one { x[0].detach() } else { x[0].clone() };
                try_apply(Op::Binary(f), &[&a, &x[1]]).unwrap().remove(0)
            };
            for how in ALL {
                let bound = match f {
                    Binary::Mul => Bound::Slope,
                    Binary::Div | Binary::Atan2 if how != How::Blocks => Bound::Slope,
                    _ => Bound::Exact,
                };
                let mut differs = false;
                for i in 0..inputs.len() {
                    let ((a_name, a), (b_name, b)) = (&inputs[i], &inputs[i * 4 % inputs.len()]);
                    let backwards: Vec<f64> = b.iter().rev().copied().collect();
                    let tensor = |v: &Vec<f64>| Tensor::from_vec(v, [N]).cast(dtype);
                    let x = [tensor(a), tensor(&backwards)];
                    let plain = gradients(&op, &x, None);
                    let found = gradients(&op, &x, Some(how.packer()));
                    let what = format!("{f:?} {how:?} {a_name} {b_name} {dtype}");
                    match bound {
                        Bound::Exact => assert!(bits(&found) == bits(&plain), "{what}"),
                        _ => {
                            for (plain, found) in plain.iter().zip(&found) {
                                differs |= compare(&what, how, bound, plain, found, dtype);
                            }
                        }
                    }
                }
                assert_eq!(differs, bound != Bound::Exact, "{f:?} {how:?}: is it approximated?");
            }
        }
    }
}

type Function = Box<dyn Fn(&Tensor) -> Tensor>;

/// Functions of a `[16, 64]` that compare or subtract what they save.
fn exact() -> Vec<(&'static str, Function)> {
    let ones = || Tensor::ones_with([64], DType::F64);
    let index = || Tensor::arange(0, 16 * 64).remainder(7).reshape([16, 64]);
    let of = |name, f: Function| (name, f);
    vec![
        of("max", Box::new(|x| x.max())),
        of("max_over", Box::new(|x| x.max_over(1))),
        of("min", Box::new(|x| x.min())),
        of("min_over", Box::new(|x| x.min_over(0))),
        of("cummax", Box::new(|x| x.cummax(1))),
        of("cummin", Box::new(|x| x.cummin(0))),
        of("logsumexp", Box::new(|x| x.logsumexp_over(1))),
        of("layer_norm", Box::new(move |x| x.layer_norm(&ones(), &ones(), 1e-5))),
        of("batch_norm", Box::new(|x| x.batch_norm(None, None, 1e-5))),
        of("cross_entropy", Box::new(|x| cross_entropy(x, &Tensor::arange(0, 16)))),
        of(
            "attention",
            Box::new(|x| {
                let x = x.reshape([1, 2, 8, 64]);
                x.attention(&x, &x, Attention::new())
            }),
        ),
        of("maximum", Box::new(|x| x.maximum(x.flip([1])))),
        of("minimum", Box::new(|x| x.minimum(x.flip([1])))),
        of("clamp", Box::new(|x| x.clamp(-0.5, 0.5))),
        of("sort", Box::new(|x| x.sort(1, false).0)),
        of("topk", Box::new(|x| x.topk(5, 1, true).0)),
        of("median", Box::new(|x| x.median(1).0)),
        of("cumsum", Box::new(|x| x.cumsum(1))),
        of("mean", Box::new(|x| x.mean_over(1))),
        of("scatter_max", Box::new(move |x| x.scatter_max(1, &index(), &x.flip([0])))),
        of("max_pool2d", Box::new(|x| x.reshape([1, 1, 16, 64]).max_pool2d(&Pool::new(2)))),
        of("avg_pool2d", Box::new(|x| x.reshape([1, 1, 16, 64]).avg_pool2d(&Pool::new(2)))),
        of("inv", Box::new(|x| (x.narrow(1, 0, 16) + Tensor::eye(16) * 40.0).inv())),
        of("pow", Box::new(|x| x.abs().pow(2.5))),
        of("leaky_relu", Box::new(|x| x.relu() - (-x).relu())),
    ]
}

/// Functions of a `[16, 64]` that may be off.
fn near() -> Vec<(&'static str, Function)> {
    let of = |name, f: Function| (name, f);
    let ones = || Tensor::ones_with([64], DType::F64);
    vec![
        of("softmax", Box::new(|x| x.softmax(1))),
        of("log_softmax", Box::new(|x| x.log_softmax(1))),
        of("matmul", Box::new(|x| x.matmul(&x.t()))),
        of("einsum", Box::new(|x| einsum("ij,kj->ik", &[x, &(x * 0.5)]))),
        of(
            "conv2d",
            Box::new(|x| {
                let kernel = x.narrow(0, 0, 9).narrow(1, 0, 4).reshape([4, 1, 3, 3]);
                x.reshape([1, 1, 16, 64]).conv2d(&kernel, None, &Conv::new())
            }),
        ),
        // A tree of products, with an error at each level.
        of("prod", Box::new(|x| ((x * 0.01).atan() + 2.0).prod_over(0))),
        of("var", Box::new(|x| x.var_with(1, 1.0))),
        of("std", Box::new(|x| x.std_with(1, 1.0))),
        of("norm", Box::new(|x| x.vector_norm(2.0, 1))),
        of("rms_norm", Box::new(move |x| x.rms_norm(&ones(), 1e-6))),
        of("normalize", Box::new(|x| x.normalize(2.0, 1, 1e-12))),
        // Of nearly parallel vectors, the two parts of its derivative cancel.
        of(
            "cosine",
            Box::new(|x| {
                let x = x - x.mean_keep(1);
                x.cosine_similarity(&x.flip([0]), 1, 1e-8)
            }),
        ),
        of("softplus", Box::new(|x| x.softplus(1.0, 20.0))),
        of("elu", Box::new(|x| x.elu(1.0))),
        of("mish", Box::new(|x| x.mish())),
        of("hypot", Box::new(|x| x.hypot(&x.flip([1])))),
        of("lerp", Box::new(|x| x.lerp(&x.flip([1]), 0.3))),
        of("squares", Box::new(|x| (x - x.flip([0])).square().mean_over(1))),
        of("gate", Box::new(|x| x.silu() * x.flip([1]).sigmoid())),
    ]
}

#[test]
fn reductions_norms_and_other_formulas() {
    let _lock = exclusive();
    let kinds = ["offset", "normal", "ties"];
    for (name, values) in inputs().into_iter().filter(|(name, _)| kinds.contains(name)) {
        let x = [Tensor::from_vec(values, [16, 64])];
        for how in ALL {
            for (f_name, f) in exact() {
                let f = |x: &[Tensor]| f(&x[0]);
                let plain = gradients(&f, &x, None);
                let found = gradients(&f, &x, Some(how.packer()));
                assert!(bits(&plain) == bits(&found), "{f_name} {how:?} {name}");
            }
            // What is small beside its block is lost in eight bits, and the derivative of a root is
            // large there.
            let whole = |name: &str| how == How::Blocks && name == "hypot";
            for (f_name, f) in near().into_iter().filter(|(name, _)| !whole(name)) {
                let f = |x: &[Tensor]| f(&x[0]);
                let plain = gradients(&f, &x, None).remove(0);
                let found = gradients(&f, &x, Some(how.packer())).remove(0);
                let most = plain.iter().fold(0f64, |m, v| m.max(v.abs()));
                for (a, b) in plain.iter().zip(&found) {
                    let off = (a - b).abs() / most;
                    let may = 5.0 * how.error();
                    assert!(off <= may, "{f_name} {how:?} {name}: {a} became {b} beside {most}");
                }
            }
        }
    }
}
