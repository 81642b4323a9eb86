//! Accuracy of every function at every level, against the standard library in f64 where it has the
//! function, and against slow reference implementations where it has not.

use super::*;

/// Runs a loop at one level.
fn run1<K: Map1>(level: Level, x: &[K::X]) -> Vec<K::Y> {
    let mut y = vec![K::Y::default(); x.len()];
    // SAFETY: both have the same length and do not overlap.
    unsafe { kernel1::<K>(level).run(x.as_ptr(), y.as_mut_ptr(), x.len()) };
    y
}

/// erfc in f64 by its series and its continued fraction, to about 1e-15.
pub(crate) fn erfc_slow(x: f64) -> f64 {
    let a = x.abs();
    let y = if a > 40.0 {
        0.0
    } else if a < 2.5 {
        let (mut term, mut sum, mut k) = (a, a, 0.0);
        while term.abs() > 1e-22 && k < 200.0 {
            k += 1.0;
            term *= a * a / (k + 0.5);
            sum += term;
        }
        1.0 - std::f64::consts::FRAC_2_SQRT_PI * (-a * a).exp() * sum
    } else {
        let mut f = 0.0;
        for k in (1..=120).rev() {
            f = 0.5 * f64::from(k) / (a + f);
        }
        let hi = f64::from_bits(a.to_bits() & 0xffff_ffff_f800_0000);
        let e = (-hi * hi).exp() * (-(a - hi) * (a + hi)).exp();
        e / ((a + f) * std::f64::consts::PI.sqrt())
    };
    if x < 0.0 { 2.0 - y } else { y }
}

fn sigmoid_slow(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

/// Distance in units of the last place of `want`, as f32.
pub(crate) fn ulp32(got: f32, want: f64) -> f64 {
    let near = want as f32;
    if got == near || got.is_nan() && near.is_nan() {
        return 0.0;
    }
    if !got.is_finite() || !near.is_finite() {
        return f64::INFINITY;
    }
    let unit = f64::from(f32::from_bits(near.abs().to_bits().max(0x0080_0000) + 1))
        - f64::from(f32::from_bits(near.abs().to_bits().max(0x0080_0000)));
    (f64::from(got) - want).abs() / unit
}

fn ulp64(got: f64, want: f64) -> f64 {
    if got == want || got.is_nan() && want.is_nan() {
        return 0.0;
    }
    if !got.is_finite() || !want.is_finite() {
        return f64::INFINITY;
    }
    let low = want.abs().to_bits().max(0x0010_0000_0000_0000);
    (got - want).abs() / (f64::from_bits(low + 1) - f64::from_bits(low))
}

/// Checks one f32 function over the whole range at every level.
macro_rules! sweep32 {
    ($worst:ident, $stated:ident, $name:ident, $bound:expr, $in:expr, |$x:ident| $want:expr) => {{
        $stated.push((stringify!($name), $bound));
        struct K;
        impl Map1 for K {
            type X = f32;
            type Y = f32;
            #[inline(always)]
            fn map<I: Isa>(x: f32) -> f32 {
                math32::$name::<I>(x)
            }
        }
        let edges = [
            0.0,
            -0.0,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            1.0,
            -1.0,
            f32::MIN_POSITIVE,
            1e-45,
        ];
        let all = (0..=u32::MAX).step_by(1021).map(f32::from_bits).chain(edges);
        let range: std::ops::RangeInclusive<f32> = $in;
        let x: Vec<f32> = all.filter(|x| !x.is_finite() || range.contains(x)).collect();
        let wanted = |&x: &f32| {
            let $x = f64::from(x);
            $want
        };
        let wanted: Vec<f64> = x.iter().map(wanted).collect();
        for &level in Level::available() {
            let y = run1::<K>(level, &x);
            let (mut bad, mut at) = (0.0, 0.0);
            for ((&x, &y), &want) in x.iter().zip(&y).zip(&wanted) {
                // Infinite arguments of functions that need the standard library there.
                if x.is_infinite() && !range.contains(&x) {
                    continue;
                }
                if want == 0.0 && x == 0.0 {
                    assert_eq!(
                        y.to_bits(),
                        (want as f32).to_bits(),
                        "{} at {x}",
                        stringify!($name)
                    );
                }
                let u = ulp32(y, want);
                if u > bad {
                    (bad, at) = (u, x);
                }
            }
            println!("{:10} {level:?}: {bad:.2} ulp at {at:e}", stringify!($name));
            if bad > $bound {
                $worst.push(format!(
                    "{} {level:?}: {bad:.2} ulp at {at:e} > {}",
                    stringify!($name),
                    $bound
                ));
            }
        }
    }};
}

/// Every f32.
const ALL32: std::ops::RangeInclusive<f32> = f32::NEG_INFINITY..=f32::INFINITY;

#[test]
fn f32_functions_keep_their_stated_accuracy() {
    let mut worst: Vec<String> = Vec::new();
    let mut stated: Vec<(&str, f64)> = Vec::new();
    sweep32!(worst, stated, exp, 1.0, ALL32, |x| x.exp());
    sweep32!(worst, stated, exp2, 1.0, ALL32, |x| x.exp2());
    sweep32!(worst, stated, expm1, 2.0, ALL32, |x| x.exp_m1());
    sweep32!(worst, stated, log, 1.0, ALL32, |x| x.ln());
    sweep32!(worst, stated, log2, 1.0, ALL32, |x| x.log2());
    sweep32!(worst, stated, log10, 1.0, ALL32, |x| x.log10());
    sweep32!(worst, stated, log1p, 1.0, ALL32, |x| x.ln_1p());
    sweep32!(worst, stated, sin, 1.0, -1e6..=1e6, |x| x.sin());
    sweep32!(worst, stated, cos, 1.0, -1e6..=1e6, |x| x.cos());
    sweep32!(worst, stated, tan, 1.0, -1e6..=1e6, |x| x.tan());
    sweep32!(worst, stated, asin, 1.0, ALL32, |x| x.asin());
    sweep32!(worst, stated, acos, 1.0, ALL32, |x| x.acos());
    sweep32!(worst, stated, atan, 1.0, ALL32, |x| x.atan());
    sweep32!(worst, stated, sinh, 1.0, ALL32, |x| x.sinh());
    sweep32!(worst, stated, cosh, 1.0, ALL32, |x| x.cosh());
    sweep32!(worst, stated, tanh, 2.0, ALL32, |x| x.tanh());
    sweep32!(worst, stated, asinh, 1.0, ALL32, |x| x.asinh());
    sweep32!(worst, stated, acosh, 1.0, ALL32, |x| x.acosh());
    sweep32!(worst, stated, atanh, 1.0, ALL32, |x| x.atanh());
    sweep32!(worst, stated, erf, 2.0, ALL32, |x| if x.abs() < 0.5 {
        erf_small(x)
    } else {
        1.0 - erfc_slow(x)
    });
    sweep32!(worst, stated, erfc, 1.0, ALL32, |x| erfc_slow(x));
    sweep32!(worst, stated, sigmoid, 2.0, ALL32, |x| sigmoid_slow(x));
    sweep32!(worst, stated, silu, 2.0, -87.0..=f32::INFINITY, |x| x * sigmoid_slow(x));
    sweep32!(worst, stated, gelu, 2.0, ALL32, |x| gelu_slow(x));
    sweep32!(worst, stated, gelu_tanh, 2.0, ALL32, |x| gelu_tanh_slow(x));
    sweep_pow(&mut worst);
    stated.push(("pow", 1.0));
    assert!(worst.is_empty(), "{worst:#?}");
    docs_state(&stated);
}

/// Powers of every magnitude of base and exponent.
fn sweep_pow(worst: &mut Vec<String>) {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
        (state >> 32) as u32
    };
    for i in 0..300_000u32 {
        // Half of the pairs are any bits, half have a result that is neither 0 nor infinite.
        let (a, b) = match i % 2 {
            0 => (f32::from_bits(next()), f32::from_bits(next())),
            _ => {
                let a = f32::from_bits(next() & 0x7fff_ffff);
                let part = next() as f32 / u32::MAX as f32 * 2.0 - 1.0;
                (a, part * 126.0 / a.log2().abs().max(1e-6))
            }
        };
        let want = f64::from(a).powf(f64::from(b));
        for got in [math32::pow::<FusedMultiplyAdd>(a, b), math32::pow::<Baseline>(a, b)] {
            if ulp32(got, want) > 1.0 {
                worst.push(format!("pow({a:e}, {b:e}) = {got:e}, not {want:e}"));
            }
        }
    }
}

/// `docs/accuracy.md` states the bounds that are tested: every function with its bound.
fn docs_state(stated: &[(&str, f64)]) {
    let Ok(docs) =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/accuracy.md"))
    else {
        return; // a copy of this crate alone
    };
    for (name, bound) in stated {
        let row = format!("| `{name}` | {bound} |");
        assert!(docs.contains(&row), "docs/accuracy.md does not say `{row}`");
    }
    let rows = docs
        .lines()
        .skip_while(|l| !l.starts_with("## f32"))
        .filter(|l| l.starts_with("| `"))
        .count();
    assert_eq!(rows, stated.len(), "docs/accuracy.md states something that is not tested");
}

fn gelu_slow(x: f64) -> f64 {
    if x < -60.0 { -0.0 } else { 0.5 * x * erfc_slow(-x * std::f64::consts::FRAC_1_SQRT_2) }
}

fn gelu_tanh_slow(x: f64) -> f64 {
    let u = (8.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    if x < -60.0 { -0.0 } else { x * sigmoid_slow(u) }
}

fn erf_small(x: f64) -> f64 {
    let (mut term, mut sum, mut k) = (x, x, 0.0);
    while k < 60.0 {
        k += 1.0;
        term *= -x * x / k;
        sum += term / (2.0 * k + 1.0);
    }
    (std::f64::consts::FRAC_2_SQRT_PI * sum).copysign(x)
}

/// Arguments of every magnitude and sign, and the edge cases.
fn reals() -> Vec<f64> {
    let mut x: Vec<f64> =
        (0..200_000u64).map(|i| f64::from_bits(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    x.extend((0..100_000).map(|i| f64::from(i - 50_000) * 0.0007));
    x.extend((0..20_000).map(|i| f64::from(i - 10_000) * 0.0757));
    x.extend([
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
        5e-324,
        1.0,
        -1.0,
    ]);
    x
}

/// Checks one f64 function at every level.
macro_rules! sweep64 {
    ($worst:ident, $name:ident, $bound:expr, $keep:expr, |$x:ident| $want:expr) => {{
        struct K;
        impl Map1 for K {
            type X = f64;
            type Y = f64;
            #[inline(always)]
            fn map<I: Isa>(x: f64) -> f64 {
                math64::$name::<I>(x)
            }
        }
        let keep: fn(f64) -> bool = $keep;
        let x: Vec<f64> = reals().into_iter().filter(|&x| keep(x)).collect();
        for &level in Level::available() {
            let y = run1::<K>(level, &x);
            let (mut bad, mut at) = (0.0, 0.0);
            for (&$x, &y) in x.iter().zip(&y) {
                let want: f64 = $want;
                if want == 0.0 && $x == 0.0 {
                    assert_eq!(y.to_bits(), want.to_bits(), "{} at {}", stringify!($name), $x);
                }
                let u = ulp64(y, want);
                if u > bad {
                    (bad, at) = (u, $x);
                }
            }
            println!("{:10} {level:?}: {bad:.2} ulp at {at:e}", stringify!($name));
            if bad > $bound {
                $worst.push(format!(
                    "{} {level:?}: {bad:.2} ulp at {at:e} > {}",
                    stringify!($name),
                    $bound
                ));
            }
        }
    }};
}

#[test]
fn f64_functions_keep_their_stated_accuracy() {
    let mut worst: Vec<String> = Vec::new();
    let all = |_: f64| true;
    let angle = |x: f64| x.abs() <= 1e6;
    sweep64!(worst, exp, 1.5, all, |x| x.exp());
    sweep64!(worst, exp2, 1.5, all, |x| x.exp2());
    sweep64!(worst, expm1, 2.5, all, |x| x.exp_m1());
    sweep64!(worst, log, 1.5, all, |x| x.ln());
    sweep64!(worst, log2, 2.5, all, |x| x.log2());
    sweep64!(worst, log1p, 2.5, all, |x| x.ln_1p());
    sweep64!(worst, sin, 1.5, angle, |x| x.sin());
    sweep64!(worst, cos, 1.5, angle, |x| x.cos());
    sweep64!(worst, tan, 3.5, angle, |x| x.tan());
    sweep64!(worst, atan, 2.0, all, |x| x.atan());
    sweep64!(worst, tanh, 3.0, all, |x| x.tanh());
    sweep64!(worst, asinh, 5.0, all, |x| asinh_slow(x));
    sweep64!(worst, acosh, 5.0, all, |x| if x > 1e9 {
        x.ln() + std::f64::consts::LN_2
    } else if x < 1.0 {
        f64::NAN
    } else {
        let t = x - 1.0;
        (t + (t * t + 2.0 * t).sqrt()).ln_1p()
    });
    sweep64!(worst, atanh, 5.0, all, |x| x.abs().atanh().copysign(x));
    // The reference implementations are accurate to about 1e-15 themselves.
    sweep64!(worst, erf, 16.0, all, |x| if x.abs() < 0.7 {
        erf_small(x)
    } else {
        1.0 - erfc_slow(x)
    });
    sweep64!(worst, erfc, 24.0, |x| !(0.5..2.5).contains(&x), |x| if x.abs() < 0.7 {
        1.0 - erf_small(x)
    } else {
        erfc_slow(x)
    });
    sweep64!(worst, sigmoid, 3.0, all, |x| sigmoid_slow(x));
    sweep64!(worst, silu, 4.0, |x| x >= -708.0 || x.is_nan(), |x| x * sigmoid_slow(x));
    assert!(worst.is_empty(), "{worst:#?}");
}

fn asinh_slow(x: f64) -> f64 {
    let a = x.abs();
    let y = if a > 1e9 {
        a.ln() + std::f64::consts::LN_2
    } else {
        (a + a * a / (1.0 + (a * a + 1.0).sqrt())).ln_1p()
    };
    y.copysign(x)
}

#[test]
fn erf_family_at_known_points() {
    // Correctly rounded values.
    let known = [
        (0.5, 0.5204998778130465, 0.4795001221869535),
        (1.0, 0.8427007929497149, 0.15729920705028513),
        (1.5, 0.9661051464753108, 0.033894853524689274),
        (2.0, 0.9953222650189527, 0.004677734981047266),
        (3.0, 0.9999779095030014, 2.209049699858544e-5),
        (5.0, 0.9999999999984626, 1.537_459_794_428_035e-12),
        (10.0, 1.0, 2.088487583762545e-45),
        (26.0, 1.0, 5.663192408856143e-296),
    ];
    for (x, erf, erfc) in known {
        assert!(ulp64(math64::erf::<FusedMultiplyAdd>(x), erf) <= 1.0, "erf {x}");
        assert!(
            ulp64(math64::erfc::<FusedMultiplyAdd>(x), erfc) <= 4.0,
            "erfc {x}: {:e}",
            math64::erfc::<FusedMultiplyAdd>(x)
        );
        assert!(ulp64(math64::erf::<FusedMultiplyAdd>(-x), -erf) <= 1.0);
        assert!(ulp64(math64::erfc::<FusedMultiplyAdd>(-x), 2.0 - erfc) <= 1.0);
    }
}

#[test]
fn powers_and_angles_follow_c() {
    let special = [
        0.0f32,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -2.0,
        3.0,
        -3.0,
        2.5,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e-40,
        -1e-40,
        1e38,
        16777215.0,
        16777216.0,
        0.999,
        1.001,
    ];
    for a in special {
        for b in special {
            for (got, want, name) in [
                (math32::pow::<FusedMultiplyAdd>(a, b), f64::from(a).powf(f64::from(b)), "pow"),
                (math32::pow::<Baseline>(a, b), f64::from(a).powf(f64::from(b)), "pow"),
                (
                    math32::atan2::<FusedMultiplyAdd>(a, b),
                    f64::from(a).atan2(f64::from(b)),
                    "atan2",
                ),
            ] {
                assert!(ulp32(got, want) <= 1.0, "{name}({a}, {b}) = {got}, not {want}");
                assert_eq!(
                    got.is_sign_negative(),
                    want.is_sign_negative() && !want.is_nan()
                        || got.is_nan() && got.is_sign_negative(),
                    "{name}({a}, {b}) = {got}, not {want}"
                );
            }
        }
    }
}

#[test]
fn the_last_elements_equal_the_first() {
    // The same argument gives the same bits at every position, for every length.
    struct K;
    impl Map1 for K {
        type X = f32;
        type Y = f32;
        #[inline(always)]
        fn map<I: Isa>(x: f32) -> f32 {
            math32::gelu::<I>(x) + math32::exp::<I>(x) + math32::log::<I>(x.abs())
        }
    }
    for &level in Level::available() {
        let whole: Vec<f32> = (0..1025).map(|i| (i as f32 * 0.37).sin() * 9.0).collect();
        let want = run1::<K>(level, &whole);
        for n in [0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 1023, 1024, 1025] {
            for from in [0, 1, 3] {
                if from + n <= whole.len() {
                    let got = run1::<K>(level, &whole[from..from + n]);
                    assert!(
                        got.iter().zip(&want[from..]).all(|(a, b)| a.to_bits() == b.to_bits()),
                        "{level:?} {n}"
                    );
                }
            }
        }
    }
}
