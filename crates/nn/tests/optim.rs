//! Optimisers against PyTorch's trajectories (recorded by `data/optim.py`), compiled against eager, saved and restored, and refused.

#[path = "optim/problem.rs"]
mod problem;

use problem::{Problem, distance, numbers, recorded};
use pullback::DType;
use pullback_nn::optim::{Optimizer, named, names};
use serde_json::Value;

/// The optimiser of a recorded case on a problem.
fn optimizer(name: &str, case: &Value, problem: &Problem) -> Box<dyn Optimizer> {
    let group = |group: &Value| {
        let names = group["params"].as_array().unwrap().iter().map(|x| x.as_str().unwrap());
        (names.map(|x| problem.get(x).clone()).collect(), group["options"].clone())
    };
    named(name, case["groups"].as_array().unwrap().iter().map(group).collect()).unwrap()
}

/// Every recorded case: the optimiser's name, the case's, and what was recorded.
fn cases() -> Vec<(&'static str, String, Value)> {
    let of = |name| match recorded(name) {
        Value::Object(all) => all.into_iter().map(move |(case, value)| (name, case, value)),
        other => panic!("{other}"),
    };
    names().flat_map(of).collect()
}

/// How far parameters may be from PyTorch's after 100 steps in f64, relative to their size. All are the same formulas up to the order of
/// rounding; Muon's rounds to bf16, where sums in another order make other numbers.
fn bound(name: &str, case: &str) -> f64 {
    if (name, case) == ("muon", "bf16") { 2e-2 } else { 1e-10 }
}

#[test]
fn trajectories_are_those_of_pytorch() {
    let mut wrong = Vec::new();
    for (name, case, data) in cases() {
        for compiled in [false, true] {
            let problem = Problem::new(DType::F64);
            let opt = optimizer(name, &data, &problem);
            let mut seen = 0;
            let mut each = |t: usize| {
                let Some(point) = data["points"].get(t.to_string()) else { return };
                seen += 1;
                for (parameter, want) in point.as_object().unwrap() {
                    let far = distance(&problem.get(parameter).to_f64_vec(), &numbers(want));
                    if far > bound(name, &case) {
                        wrong.push(format!("{name} {case}, step {t}, {parameter}: {far:e}"));
                    }
                }
            };
            match compiled {
                true => problem.run_compiled(&*opt, 100, &mut each),
                false => problem.run(&*opt, 0, 100, &mut each),
            }
            assert_eq!(seen, 4);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
