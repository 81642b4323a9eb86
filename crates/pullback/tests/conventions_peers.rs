//! What the presets of conventions and their table in `docs/conventions.md` say of PyTorch and JAX
//! is what they gave when they ran: `data/conventions.py`.

use pullback::{Conventions, Tensor, grad, with_conventions};
use std::collections::BTreeMap;

const TORCH: &str = include_str!("data/conventions_torch.txt");
const JAX: &str = include_str!("data/conventions_jax.txt");

/// The derivatives that a framework gave, by the name of the kink.
fn ran(text: &'static str) -> BTreeMap<&'static str, Vec<f64>> {
    let line = |line: &'static str| {
        let (name, numbers) = line.split_once(' ').expect("a name and numbers");
        (name, numbers.split(' ').map(|v| v.parse().expect("a number")).collect())
    };
    text.lines().skip(1).map(line).collect()
}

/// The same derivatives here.
fn slopes(name: &str, preset: &Conventions) -> Vec<f64> {
    let one = |f: fn(&Tensor) -> Tensor, x: &[f64]| {
        grad(|x: &Tensor| f(x).sum())(&Tensor::from(x)).to_vec::<f64>()
    };
    let two = |f: fn(&Tensor, &Tensor) -> Tensor, x: f64| {
        let both = (Tensor::from([x]), Tensor::from([x]));
        let (a, b) = grad(|(a, b): &(Tensor, Tensor)| f(a, b).sum())(&both);
        vec![a.item::<f64>(), b.item::<f64>()]
    };
    with_conventions(preset, || match name {
        "relu" => one(Tensor::relu, &[0.0]),
        "abs" => one(Tensor::abs, &[0.0]),
        "leaky_relu" => one(|x| x.leaky_relu(0.25), &[0.0]),
        "prelu" => one(|x| x.prelu(&Tensor::from([0.25])), &[0.0]),
        "clamp" => one(|x| x.clamp(-1.0, 1.0), &[-1.0, 1.0]),
        "clamp_by" => two(|x, low| x.clamp_min(low), 1.0),
        "hardtanh" => one(|x| x.hardtanh(-1.0, 1.0), &[-1.0, 1.0]),
        "relu6" => one(Tensor::relu6, &[0.0, 6.0]),
        "hardsigmoid" => one(Tensor::hardsigmoid, &[-3.0, 3.0]),
        "hardswish" => one(Tensor::hardswish, &[-3.0, 3.0]),
        "maximum" => two(|a, b| a.maximum(b), 2.0),
        "minimum" => two(|a, b| a.minimum(b), 2.0),
        "max" => one(Tensor::max, &[1.0, 2.0, 2.0]),
        "min" => one(Tensor::min, &[1.0, 1.0, 2.0]),
        "norm" => one(Tensor::norm, &[0.0, 0.0]),
        "std" => one(Tensor::std, &[3.0, 3.0]),
        "hypot" => two(Tensor::hypot, 0.0),
        _ => panic!("{name} is not among the kinks"),
    })
}

#[test]
fn presets_do_what_the_frameworks_did() {
    for (text, preset) in [(TORCH, Conventions::torch()), (JAX, Conventions::jax())] {
        for (name, there) in ran(text) {
            // `lax.clamp` is not `jnp.clip`, and ½ to each has no counterpart here.
            if name == "lax_clamp" || (text == JAX && name == "hypot") {
                continue;
            }
            let here = slopes(name, &preset);
            let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
            let all = here.len() == there.len() && here.iter().zip(&there).all(same);
            assert!(all, "{name}: {here:?}, in the framework {there:?} ({preset:?})");
        }
    }
}

/// The derivatives at a kink in the words of the table.
fn word(name: &str, slopes: &[f64]) -> &'static str {
    let zero_or_one = |v: f64| if v == 0.0 { "0" } else { "1" };
    match (name, slopes) {
        ("relu" | "abs", &[v]) => zero_or_one(v),
        ("leaky_relu" | "prelu", &[v]) => {
            if v == 0.25 {
                "below"
            } else {
                "above"
            }
        }
        ("hardswish", &[0.0, 1.0]) => "outside",
        ("hardswish", _) => "something else",
        ("hardsigmoid", &[0.0, 0.0]) => "outside",
        ("hardsigmoid", _) => "something else",
        ("clamp_by", &[1.0, 0.0]) | ("clamp" | "hardtanh" | "relu6", &[1.0, 1.0]) => "inside",
        ("clamp" | "clamp_by" | "hardtanh" | "relu6", &[0.5, 0.5]) => "half",
        ("clamp_by", &[0.0, 1.0]) | ("clamp" | "hardtanh" | "relu6", &[0.0, 0.0]) => "outside",
        ("maximum" | "minimum", &[0.5, 0.5]) => "half",
        ("maximum" | "minimum", &[1.0, 0.0]) => "first",
        ("maximum" | "minimum", &[0.0, 1.0]) => "second",
        ("max" | "min", list) => {
            if list.contains(&0.5) {
                "even"
            } else {
                "first"
            }
        }
        ("norm" | "std" | "hypot", &[a, b]) if a.is_nan() && b.is_nan() => "NaN",
        ("norm" | "std" | "hypot", &[0.0, 0.0]) => "0",
        ("hypot", &[0.5, 0.5]) => "½ to each",
        _ => "something else",
    }
}

/// The kinks of the lines of the table, in its order.
const LINES: [&[&str]; 11] = [
    &["relu"],
    &["abs"],
    &["leaky_relu", "prelu"],
    &["clamp"],
    &["clamp_by"],
    &["hardtanh"],
    &["relu6", "hardsigmoid", "hardswish"],
    &["maximum", "minimum"],
    &["max", "min"],
    &["norm", "std"],
    &["hypot"],
];

#[test]
fn the_table_says_what_the_frameworks_did() {
    let text = include_str!("../../../docs/conventions.md");
    let section = text.split("## Conventions of other frameworks").nth(1).unwrap();
    let rows: Vec<Vec<&str>> = section
        .split("\n## ")
        .next()
        .unwrap()
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), LINES.len());
    let (torch, jax) = (ran(TORCH), ran(JAX));
    for (row, kinks) in rows.iter().zip(LINES) {
        for kink in kinks {
            let here = word(kink, &slopes(kink, &Conventions::pullback()));
            assert!(row[2].starts_with(here), "{kink}: {here}, but the table says {}", row[2]);
            for (ran, cell) in [(&torch, row[3]), (&jax, row[4])] {
                let Some(slopes) = ran.get(kink) else { continue };
                let word = word(kink, slopes);
                assert!(cell.starts_with(word), "{kink}: {word}, but the table says {cell}");
            }
        }
    }
    // And which versions they were.
    for (text, name) in [(TORCH, "PyTorch"), (JAX, "JAX")] {
        let version = text.lines().next().unwrap().trim_start_matches("# ");
        assert!(version.starts_with(name) && section.contains(version), "{version}");
    }
}
