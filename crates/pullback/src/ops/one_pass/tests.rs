use super::*;
use crate::{Reduction, cat, losses as l, no_grad};

type Composite = (&'static str, fn(&Tensor, &Tensor) -> Tensor);

#[rustfmt::skip]
const COMPOSITES: &[Composite] = &[
    ("leaky_relu", |x, _| x.leaky_relu(0.1)),     ("elu", |x, _| x.elu(0.7)),
    ("celu", |x, _| x.celu(0.7)),                 ("selu", |x, _| x.selu()),
    ("softplus", |x, _| x.softplus(1.5, 2.0)),    ("log_sigmoid", |x, _| x.log_sigmoid()),
    ("mish", |x, _| x.mish()),                    ("softsign", |x, _| x.softsign()),
    ("tanhshrink", |x, _| x.tanhshrink()),        ("softshrink", |x, _| x.softshrink(0.5)),
    ("hardshrink", |x, _| x.hardshrink(0.5)),     ("hardtanh", |x, _| x.hardtanh(-1.0, 2.0)),
    ("relu6", |x, _| x.relu6()),                  ("hardsigmoid", |x, _| x.hardsigmoid()),
    ("hardswish", |x, _| x.hardswish()),          ("threshold", |x, _| x.threshold(0.1, 0.5)),
    ("clamp", |x, _| x.clamp(-1.0, 1.0)),         ("clamp_min", |x, _| x.clamp_min(0.1)),
    ("clamp_max", |x, _| x.clamp_max(0.1)),       ("lerp", |x, y| x.lerp(y, 0.3)),
    ("cube", |x, _| x.powi(3)),                   ("fourth", |x, _| x.powi(4)),
    ("sinc", |x, _| x.sinc()),                    ("ndtr", |x, _| x.ndtr()),
    ("frac", |x, _| x.frac()),                    ("round_to", |x, _| x.round_to(1)),
    ("nan_to_num", |x, _| x.nan_to_num(0.0, 1.0, -1.0)),
    ("logit_within", |x, _| x.logit_within(0.1)), ("xlogy", |x, y| x.xlogy(&y.square())),
    ("addcmul", |x, y| x.addcmul(x, y, 0.5)),     ("addcdiv", |x, y| x.addcdiv(y, x, 0.5)),
    ("fmax", |x, y| x.fmax(y)),                   ("fmin", |x, y| x.fmin(y)),
    ("angle", |x, _| x.angle()),                  ("next_after", |x, y| x.next_after(y)),
    ("hypot", |x, y| x.hypot(y)),                 ("logaddexp", |x, y| x.logaddexp(y)),
    ("logaddexp2", |x, y| x.logaddexp2(y)),       ("mse", |x, y| l::mse(x, y, Reduction::None)),
    ("huber", |x, y| l::huber(x, y, 0.7, Reduction::None)),
    ("smooth_l1", |x, y| l::smooth_l1(x, y, 0.7, Reduction::None)),
    ("gaussian", |x, y| l::gaussian_nll(x, y, &y.square(), false, 0.5, Reduction::None)),
    ("hinge", |x, y| l::hinge_embedding(x, y, 0.7, Reduction::None)),
    ("soft_margin", |x, y| l::soft_margin(x, y, Reduction::None)),
    ("logits", |x, y| l::binary_cross_entropy_with_logits(x, y, None, None, Reduction::None)),
];

fn bits(x: &Tensor) -> Vec<u64> {
    let bits = |v: f64| if v.is_nan() { u64::MAX } else { v.to_bits() };
    x.cast(DType::F64).to_vec::<f64>().into_iter().map(bits).collect()
}

/// Value and gradients, of the whole or of parts that are too small for one pass.
fn computed(f: Composite, x: &Tensor, y: &Tensor, parts: usize) -> [Vec<u64>; 3] {
    let mut found: [Vec<Tensor>; 3] = Default::default();
    let n = x.len() / parts;
    for part in 0..parts {
        let piece = |x: &Tensor| {
            no_grad(|| x.narrow(0, (part * n) as isize, n).deep_clone()).requires_grad()
        };
        let (x, y) = (piece(x), piece(y));
        let z = f.1(&x, &y);
        let dz = z.cos().detach();
        if z.is_tracked() {
            z.backward_with(&dz).unwrap();
        }
        let gradient = |x: &Tensor| x.grad().unwrap_or_else(|| x.detach() * 0.0);
        for (list, one) in found.iter_mut().zip([z.detach(), gradient(&x), gradient(&y)]) {
            list.push(one);
        }
    }
    found.map(|list| bits(&cat(&list.iter().collect::<Vec<_>>(), 0)))
}

#[test]
fn one_pass_has_the_bits_of_the_formula() {
    let n = 2 * LEAST_TRACKED;
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let x = Tensor::linspace(-3.5, 3.5, n).cast(dtype);
        let y = (Tensor::linspace(2.0, -3.0, n) + 0.01).cast(dtype);
        for &f in COMPOSITES {
            let (whole, parts) = (computed(f, &x, &y, 1), computed(f, &x, &y, 4));
            for (what, (a, b)) in ["value", "dx", "dy"].iter().zip(whole.iter().zip(&parts)) {
                let wrong = a.iter().zip(b).filter(|(a, b)| a != b).count();
                assert_eq!(wrong, 0, "{} of {dtype}: {what} has other bits", f.0);
            }
        }
    }
}

/// Composites that reduce rows or repeat operands.
#[rustfmt::skip]
const OF_ROWS: &[Composite] = &[
    ("norm", |x, _| x.norm_over(1)),               ("nan_sum", |x, _| x.nan_sum(-1)),
    ("vector_norm", |x, _| x.vector_norm(3.0, 1)),
    ("pairwise_distance", |x, y| x.pairwise_distance(y, 2.0, 1e-6)),
    ("normalize", |x, _| x.normalize(2.0, 1, 1e-12)),
    ("rms_norm", |x, y| x.rms_norm(&y.select_at(0, 0).contiguous(), 1e-5)),
    ("renorm", |x, _| x.renorm(2.0, 0, 1.0)),
    ("prelu", |x, y| x.prelu(&y.select_at(0, 0).contiguous())),
];

#[test]
fn rows_and_repeated_operands_have_the_bits_of_the_formula() {
    let (rows, row) = (8, 256);
    let numbers = |low, high| Tensor::linspace(low, high, rows * row).reshape([rows, row]);
    for dtype in [DType::F32, DType::F64] {
        let x = numbers(-3.5, 3.5).cast(dtype);
        // Equal rows, as one of them may stand for all.
        let y = numbers(2.0, -3.0).cast(dtype).narrow(0, 0, 1).expand([rows, row]).contiguous();
        for f in OF_ROWS {
            let of = |x: &Tensor, y: &Tensor| {
                let (x, y) = (x.deep_clone().requires_grad(), y.deep_clone());
                let z = f.1(&x, &y);
                z.backward_with(&z.detach().cos()).unwrap();
                [z.detach().reshape([z.len()]), x.grad().unwrap().reshape([x.len()])]
            };
            let whole = of(&x, &y);
            for i in 0..rows as isize {
                let part = |x: &Tensor| x.narrow(0, i, 1);
                for (what, (all, one)) in whole.iter().zip(of(&part(&x), &part(&y))).enumerate() {
                    let n = one.len();
                    let here = all.narrow(0, i * n as isize, n);
                    assert_eq!(bits(&here), bits(&one), "{} of {dtype}, {what}", f.0);
                }
            }
            let found = TEMPLATES.with_borrow(|all| {
                let of = |(key, made): (&FormulaKey, &Option<Rc<FormulaTemplate>>)| match key {
                    FormulaKey::Formula(name, ..) => *name == f.0 && made.is_some(),
                    FormulaKey::Pullback(..) => false,
                };
                all.iter().any(of)
            });
            assert!(found, "{} is no region", f.0);
        }
    }
    TEMPLATES.with_borrow(|all| {
        for (key, made) in all {
            if let (FormulaKey::Pullback(body, ..), None) = (key, made) {
                panic!("a derivative that is no region: of {body:?}");
            }
        }
    });
}

#[test]
fn composites_become_regions() {
    let x = Tensor::linspace(-3.5, 3.5, LEAST_TRACKED).cast(DType::F32).requires_grad();
    x.hardswish().sum().backward().unwrap();
    let found = TEMPLATES.with_borrow(|all| {
        let of = |key: &FormulaKey| {
            matches!(key, FormulaKey::Formula("hardswish", ..) | FormulaKey::Pullback(..))
        };
        all.iter().filter(|(key, made)| of(key) && made.is_some()).count()
    });
    assert_eq!(found, 2, "the composite and its derivative are one region each");
}

#[test]
fn derivatives_of_every_order_go_through_a_region() {
    let n = LEAST_TRACKED;
    let x = Tensor::linspace(0.5, 1.5, n);
    // The third derivative of Σ x⁴ is 24·x.
    let once = |x: &Tensor| crate::grad(|x: &Tensor| x.powi(4).sum())(x);
    let twice = |x: &Tensor| crate::grad(|x: &Tensor| once(x).sum())(x);
    let third = crate::grad(|x: &Tensor| twice(x).sum())(&x);
    let wrong = (third - &x * 24.0).abs().max().item::<f64>();
    assert!(wrong < 1e-12, "off by {wrong}");
    let (_, tangent) = crate::jvp(|x: &Tensor| x.powi(4), &x, &x.ones_like());
    let wrong = (tangent - x.powi(3) * 4.0).abs().max().item::<f64>();
    assert!(wrong < 1e-12, "off by {wrong}");
}
