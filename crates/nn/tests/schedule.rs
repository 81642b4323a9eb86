//! Schedules against those of PyTorch (recorded by `data/schedule.py`), saved and restored, and seen by compiled steps.

use pullback::{Tensor, jit};
use pullback_nn::optim::{Adam, Optimizer, Rule, Sgd, Stepper};
use pullback_nn::schedule::{
    Constant, Cosine, CosineRestarts, Cyclic, Exponential, Height, Held, Linear, Milestones,
    OneCycle, Plateau, PlateauScheduler, Polynomial, Schedule, Scheduler, Sequential, Steps,
    Threshold, WarmUp,
};
use serde_json::{Value, json};

const BASES: [f64; 2] = [0.1, 0.02];

fn recorded() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/schedule.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn optimizer() -> Stepper<Sgd> {
    let [first, second] = BASES.map(|rate| Sgd { rate, ..Sgd::default() });
    let leaf = || [Tensor::from(1.0).requires_grad()];
    first.over(leaf()).unwrap().and(leaf(), second).unwrap()
}

fn rates(opt: &impl Optimizer) -> Vec<f64> {
    opt.rates().iter().map(Tensor::item::<f64>).collect()
}

/// PyTorch computes most rates from the last ones, so its rounding adds up; these are computed anew. Where a rate is nearly zero, that
/// error is of the size of the rates before.
#[track_caller]
fn assert_near(got: &[f64], want: &[f64], what: &str) {
    for ((a, b), base) in got.iter().zip(want).zip(BASES) {
        assert!((a - b).abs() <= 1e-12 * base, "{what}: {got:?} instead of {want:?}");
    }
}

fn schedules() -> Vec<(&'static str, Box<dyn Schedule>)> {
    let cycle = OneCycle::new(130);
    let power = Height::Power(0.98);
    let ramp = Linear { from: 0.2, to: 1.0, steps: 15 };
    let steps = Steps { every: 20, gamma: 0.5 };
    let sequential =
        Sequential::new(ramp).then(15, steps).then(90, Cosine { steps: 40, lowest: 1e-4 });
    let cosine = Cosine { steps: 100, lowest: 1e-3 };
    vec![
        ("constant", Box::new(Held { factor: 0.4, steps: 25 })),
        ("linear", Box::new(Linear { from: 0.25, to: 0.9, steps: 80 })),
        ("step", Box::new(Steps { every: 30, gamma: 0.3 })),
        ("milestones", Box::new(Milestones { at: vec![50, 10, 100, 50], gamma: 0.4 })),
        ("exponential", Box::new(Exponential { gamma: 0.97 })),
        ("cosine", Box::new(Cosine { steps: 130, lowest: 2e-3 })),
        ("cosine_restarts", Box::new(CosineRestarts { first: 10, times: 2, lowest: 1e-3 })),
        ("cosine_restarts_same", Box::new(CosineRestarts { first: 17, times: 1, lowest: 1e-3 })),
        ("polynomial", Box::new(Polynomial { steps: 110, power: 2.5 })),
        ("one_cycle", Box::new(cycle)),
        (
            "one_cycle_linear",
            Box::new(OneCycle {
                rising: 0.37,
                linear: true,
                start_divisor: 10.0,
                end_divisor: 100.0,
                ..cycle
            }),
        ),
        ("one_cycle_three", Box::new(OneCycle { rising: 0.25, three_phases: true, ..cycle })),
        ("cyclic", Box::new(Cyclic { times: 5.0, up: 12, down: 7, height: Height::Same })),
        (
            "cyclic_halved",
            Box::new(Cyclic { times: 4.0, up: 15, down: 15, height: Height::Halved }),
        ),
        ("cyclic_power", Box::new(Cyclic { times: 4.0, up: 15, down: 15, height: power })),
        ("sequential", Box::new(sequential)),
        ("warm_up", Box::new(WarmUp { steps: 30, from: 0.1, then: cosine })),
    ]
}

#[test]
fn rates_are_those_of_pytorch() {
    let data = recorded();
    for (name, schedule) in schedules() {
        let opt = optimizer();
        let mut scheduler = Scheduler::new(&opt, schedule);
        let rows = data[name].as_array().unwrap();
        assert_eq!(rows.len(), 130);
        for (t, row) in rows.iter().enumerate() {
            assert_near(&rates(&opt), &numbers(row), &format!("{name}, step {t}"));
            assert_eq!(rates(&opt), scheduler.rates());
            scheduler.step();
        }
    }
}

fn plateaus() -> Vec<(&'static str, Plateau)> {
    let plain = Plateau { patience: 3, factor: 0.5, ..Plateau::default() };
    let high = Plateau { higher_is_better: true, factor: 0.7, ..plain };
    let absolute = Threshold::Absolute(0.05);
    vec![
        ("plateau", plain),
        (
            "plateau_absolute",
            Plateau {
                patience: 2,
                factor: 0.3,
                threshold: absolute,
                cooldown: 4,
                lowest: 1e-3,
                ..plain
            },
        ),
        (
            "plateau_max",
            Plateau { patience: 4, threshold: Threshold::Relative(0.01), cooldown: 2, ..high },
        ),
        (
            "plateau_max_absolute",
            Plateau { patience: 1, threshold: Threshold::Absolute(0.02), eps: 1e-3, ..high },
        ),
    ]
}

#[test]
fn plateaus_are_those_of_pytorch() {
    let data = recorded();
    let metrics = numbers(&data["metrics"]);
    for (name, how) in plateaus() {
        let opt = optimizer();
        let mut scheduler = PlateauScheduler::new(&opt, how).unwrap();
        for (t, row) in data[name].as_array().unwrap().iter().enumerate() {
            assert_near(&rates(&opt), &numbers(row), &format!("{name}, step {t}"));
            scheduler.step(metrics[t]);
        }
        assert!(rates(&opt)[0] < BASES[0], "{name} never lowered a rate");
    }
}

/// What is saved goes through text, as in a checkpoint.
fn through_text(state: &Value) -> Value {
    serde_json::from_str(&state.to_string()).unwrap()
}

#[test]
fn restored_schedules_go_on_as_if_nothing_had_happened() {
    for (name, schedule) in schedules() {
        let opt = optimizer();
        let mut whole = Scheduler::new(&opt, &schedule);
        (0..47).for_each(|_| whole.step());
        let saved = through_text(&whole.state());
        (0..50).for_each(|_| whole.step());

        let other = optimizer();
        // Rates that were restored before are not the base ones.
        other.rates().iter().for_each(|rate| drop(rate.fill_(7.0)));
        let mut resumed = Scheduler::new(&other, &schedule);
        resumed.restore(&saved).unwrap();
        assert_eq!(resumed.steps(), 47);
        (0..50).for_each(|_| resumed.step());
        assert_eq!(rates(&other), rates(&opt), "{name}");
    }
    let metrics = numbers(&recorded()["metrics"]);
    for (name, how) in plateaus() {
        let (opt, other) = (optimizer(), optimizer());
        let mut whole = PlateauScheduler::new(&opt, how).unwrap();
        let mut resumed = PlateauScheduler::new(&other, how).unwrap();
        resumed.restore(&through_text(&whole.state())).unwrap();
        metrics[..60].iter().for_each(|&metric| whole.step(metric));
        resumed.restore(&through_text(&whole.state())).unwrap();
        for &metric in &metrics[60..] {
            whole.step(metric);
            resumed.step(metric);
            assert_eq!(rates(&other), rates(&opt), "{name}");
        }
    }
}

#[test]
fn states_that_do_not_fit_are_refused_and_change_nothing() {
    let opt = optimizer();
    let mut scheduler = Scheduler::new(&opt, Exponential { gamma: 0.5 });
    let mut plateau = PlateauScheduler::new(&opt, Plateau::default()).unwrap();
    let before = (scheduler.state(), plateau.state());
    for (state, sentence) in [
        (json!({ "step": -1, "bases": [1.0, 1.0] }), "`step` is no count: -1"),
        (json!({ "step": 1, "bases": [1.0, "a"] }), "`bases` are no rates: [1.0,\"a\"]"),
        (json!({ "step": 1, "bases": [1.0] }), "the state is of 1 groups, the optimiser has 2"),
        (json!(null), "`step` is no count: null"),
    ] {
        let error = scheduler.restore(&state).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
    for (state, sentence) in [
        (json!({}), "`rates` are no rates: null"),
        (json!({ "rates": [1.0, 1.0], "bad": 1, "cooling": "x" }), "`cooling` is no count"),
        (json!({ "rates": [1.0, 1.0], "best": [], "bad": 1 }), "`best` is no metric: []"),
    ] {
        let error = plateau.restore(&state).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
    assert_eq!((scheduler.state(), plateau.state()), before);
    let error = PlateauScheduler::new(&opt, Plateau { factor: 1.0, ..Plateau::default() });
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("`factor` must be a number from 0 to below 1, not 1")
    );
}

/// Lengths of zero, and steps far beyond the end.
#[test]
fn every_step_has_a_finite_rate() {
    let cosine = Cosine { steps: 0, lowest: 0.25 };
    let edges: Vec<Box<dyn Schedule>> = vec![
        Box::new(Constant),
        Box::new(cosine),
        Box::new(CosineRestarts { first: 0, times: 0, lowest: 0.0 }),
        Box::new(CosineRestarts { first: 1, times: 2, lowest: 0.0 }),
        Box::new(Cyclic { times: 2.0, up: 0, down: 0, height: Height::Same }),
        Box::new(Cyclic { times: 2.0, up: 0, down: 3, height: Height::Halved }),
        Box::new(Linear { from: 0.5, to: 1.0, steps: 0 }),
        Box::new(OneCycle::new(0)),
        Box::new(OneCycle::new(1)),
        Box::new(OneCycle { rising: 0.0, ..OneCycle::new(5) }),
        Box::new(OneCycle { rising: 1.0, three_phases: true, ..OneCycle::new(5) }),
        Box::new(Polynomial { steps: 0, power: 0.5 }),
        Box::new(Steps { every: 0, gamma: 0.5 }),
        Box::new(WarmUp { steps: 0, from: 0.0, then: cosine }),
    ];
    for (i, schedule) in edges.iter().enumerate() {
        for step in [0, 1, 2, 3, 4, 5, 6, 1000, 1 << 40] {
            let rate = schedule.rate(0.5, step);
            assert!(rate.is_finite() && (0.0..=1.0).contains(&rate), "{i}, step {step}: {rate}");
        }
    }
    assert_eq!(cosine.rate(0.5, 0), 0.25);
}

/// Rates are tensors that a compiled step reads anew.
#[test]
fn a_compiled_step_sees_every_rate() {
    let run = |compiled: bool| {
        let x = Tensor::from([1.0, -2.0, 3.0]).requires_grad();
        let opt = Adam { rate: 0.1, ..Adam::default() }.over([x.clone()]).unwrap();
        let mut scheduler = Scheduler::new(
            &opt,
            WarmUp { steps: 5, from: 0.1, then: Cosine { steps: 40, lowest: 0.0 } },
        );
        let step = jit(|scale: &Tensor| {
            opt.zero_grad();
            let loss = ((&x * scale).cos() + x.square() * 0.1).sum();
            loss.backward()?;
            opt.step()?;
            Ok(loss.detach())
        });
        for t in 0..60 {
            let scale = Tensor::from(1.0 + 0.01 * f64::from(t));
            match compiled {
                true => step.call(&scale).unwrap(),
                false => step.as_it_is(&scale),
            };
            scheduler.step();
        }
        if compiled {
            assert_eq!(step.explain().specialisations.len(), 1);
        }
        x.to_vec::<f64>()
    };
    let (eager, compiled) = (run(false), run(true));
    assert_eq!(eager, compiled);
}
