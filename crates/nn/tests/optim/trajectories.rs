//! A hundred steps as PyTorch takes them, eager and compiled.

use crate::problem::{Problem, cases, distance, numbers, optimizer};
use pullback::DType;
use pullback_nn::optim::Optimizer;
use pullback_nn::schedule::{LinearLr, Scheduler};
use serde_json::Value;

/// How far parameters may be from PyTorch's after 100 steps in f64, relative to their size. All are
/// the same formulas up to the order of rounding. Muon rounds to bf16 on the way, where a sum in
/// another order could make another number; those of matrices as small as these do not.
const BOUND: f64 = 1e-10;

/// The schedule of a case, if it has one.
fn scheduled(opt: &dyn Optimizer, data: &Value) -> Option<Scheduler<LinearLr>> {
    let linear = data["linear"].as_object()?;
    let number = |name: &str| linear[name].as_f64().unwrap();
    let (start_factor, end_factor) = (number("start_factor"), number("end_factor"));
    let total_iters = number("total_iters") as u64;
    Some(Scheduler::new(opt, LinearLr { start_factor, end_factor, total_iters }))
}

#[test]
fn trajectories_and_states_are_those_of_pytorch() {
    let mut wrong = Vec::new();
    for (name, case, data) in cases() {
        for compiled in [false, true] {
            let problem = Problem::new(DType::F64);
            let opt = optimizer(name, &data, &problem);
            let mut compare = |what: String, got: &[f64], want: &[f64]| {
                let far = distance(got, want);
                if far > BOUND {
                    wrong.push(format!("{name} {case}, compiled {compiled}, {what}: {far:e}"));
                }
            };
            let mut scheduler = scheduled(&*opt, &data);
            let mut seen = 0;
            let mut each = |t: usize| {
                scheduler.iter_mut().for_each(Scheduler::step);
                let Some(point) = data["points"].get(t.to_string()) else { return };
                seen += 1;
                for (parameter, want) in point.as_object().unwrap() {
                    let got = problem.get(parameter).to_f64_vec();
                    compare(format!("step {t}, {parameter}"), &got, &numbers(want));
                }
            };
            match compiled {
                true => problem.run_compiled(&*opt, 100, &mut each),
                false => problem.run(&*opt, 0, 100, &mut each),
            }
            assert_eq!(seen, 4);

            // The states have PyTorch's names and values.
            let states = opt.named_state();
            for (g, group) in data["groups"].as_array().unwrap().iter().enumerate() {
                for (i, parameter) in group["params"].as_array().unwrap().iter().enumerate() {
                    let parameter = parameter.as_str().unwrap();
                    for (state, want) in data["state"][parameter].as_object().unwrap() {
                        let full = format!("{g}.{i}.{state}");
                        let found = states.iter().find(|(known, _)| *known == full);
                        let (_, got) =
                            found.unwrap_or_else(|| panic!("{name} has no state {full}"));
                        let what = format!("state {state} of {parameter}");
                        compare(what, &got.to_f64_vec(), &numbers(want));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn compiled_steps_are_the_eager_ones() {
    let mut different = Vec::new();
    for dtype in [DType::F64, DType::F32] {
        for (name, case, data) in cases() {
            let run = |compiled: bool| {
                let problem = Problem::new(dtype);
                let opt = optimizer(name, &data, &problem);
                let mut scheduler = scheduled(&*opt, &data);
                let mut each = |_| scheduler.iter_mut().for_each(Scheduler::step);
                match compiled {
                    true => problem.run_compiled(&*opt, 100, &mut each),
                    false => problem.run(&*opt, 0, 100, &mut each),
                }
                let states = opt.named_state().into_iter().flat_map(|(_, x)| x.to_f64_vec());
                problem.values().into_iter().chain(states).collect::<Vec<f64>>()
            };
            let (eager, compiled) = (run(false), run(true));
            assert!(eager.iter().all(|x| x.is_finite()), "{name} {case} in {dtype}");
            // To the bit.
            if eager != compiled {
                different.push(format!("{name} {case} {dtype}: {:e}", distance(&compiled, &eager)));
            }
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}
