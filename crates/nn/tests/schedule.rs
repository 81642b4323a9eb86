//! Schedules against those of PyTorch (recorded by `data/schedule.py`), saved and restored, and
//! seen by compiled steps.

use pullback::{Tensor, jit};
use pullback_nn::optim::{Adam, Optimizer, Sgd, Stepper, UpdateRule};
use pullback_nn::schedule::{
    AnnealStrategy, ConstantLr, CosineAnnealingLr, CosineAnnealingWarmRestarts, CyclicLr,
    CyclicMode, ExponentialLr, LinearLr, LinearWarmup, MultiStepLr, OneCycleLr, PlateauScheduler,
    PolynomialLr, ReduceLrOnPlateau, Schedule, Scheduler, SequentialLr, StepLr, ThresholdMode,
};
use pullback_nn::state::MetricMode;
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
    let [first, second] = BASES.map(|lr| Sgd { lr, ..Sgd::default() });
    let leaf = || [Tensor::from(1.0).requires_grad()];
    first.over(leaf()).unwrap().and(leaf(), second).unwrap()
}

fn lrs(opt: &impl Optimizer) -> Vec<f64> {
    opt.lrs().iter().map(Tensor::item::<f64>).collect()
}

/// PyTorch computes most rates from the last ones, so its rounding adds up; these are computed
/// anew. Where a rate is nearly zero, that error is of the size of the rates before.
#[track_caller]
fn assert_near(got: &[f64], want: &[f64], what: &str) {
    for ((a, b), base) in got.iter().zip(want).zip(BASES) {
        assert!((a - b).abs() <= 1e-12 * base, "{what}: {got:?} instead of {want:?}");
    }
}

fn schedules() -> Vec<(&'static str, Box<dyn Schedule>)> {
    let cycle = OneCycleLr::new(130);
    let power = CyclicMode::ExpRange(0.98);
    let ramp = LinearLr { start_factor: 0.2, end_factor: 1.0, total_iters: 15 };
    let steps = StepLr { step_size: 20, gamma: 0.5 };
    let sequential = SequentialLr::new(ramp)
        .then(15, steps)
        .then(90, CosineAnnealingLr { t_max: 40, eta_min: 1e-4 });
    let cosine = CosineAnnealingLr { t_max: 100, eta_min: 1e-3 };
    vec![
        ("constant", Box::new(ConstantLr { factor: 0.4, total_iters: 25 })),
        ("linear", Box::new(LinearLr { start_factor: 0.25, end_factor: 0.9, total_iters: 80 })),
        ("step", Box::new(StepLr { step_size: 30, gamma: 0.3 })),
        ("milestones", Box::new(MultiStepLr { milestones: vec![50, 10, 100, 50], gamma: 0.4 })),
        ("exponential", Box::new(ExponentialLr { gamma: 0.97 })),
        ("cosine", Box::new(CosineAnnealingLr { t_max: 130, eta_min: 2e-3 })),
        (
            "cosine_restarts",
            Box::new(CosineAnnealingWarmRestarts { t_0: 10, t_mult: 2, eta_min: 1e-3 }),
        ),
        (
            "cosine_restarts_same",
            Box::new(CosineAnnealingWarmRestarts { t_0: 17, t_mult: 1, eta_min: 1e-3 }),
        ),
        ("polynomial", Box::new(PolynomialLr { total_iters: 110, power: 2.5 })),
        ("one_cycle", Box::new(cycle)),
        (
            "one_cycle_linear",
            Box::new(OneCycleLr {
                pct_start: 0.37,
                anneal_strategy: AnnealStrategy::Linear,
                div_factor: 10.0,
                final_div_factor: 100.0,
                ..cycle
            }),
        ),
        ("one_cycle_three", Box::new(OneCycleLr { pct_start: 0.25, three_phase: true, ..cycle })),
        (
            "cyclic",
            Box::new(CyclicLr {
                max_factor: 5.0,
                step_size_up: 12,
                step_size_down: 7,
                mode: CyclicMode::Triangular,
            }),
        ),
        (
            "cyclic_halved",
            Box::new(CyclicLr {
                max_factor: 4.0,
                step_size_up: 15,
                step_size_down: 15,
                mode: CyclicMode::Triangular2,
            }),
        ),
        (
            "cyclic_power",
            Box::new(CyclicLr {
                max_factor: 4.0,
                step_size_up: 15,
                step_size_down: 15,
                mode: power,
            }),
        ),
        ("sequential", Box::new(sequential)),
        ("warmup", Box::new(LinearWarmup { total_iters: 30, start_factor: 0.1, then: cosine })),
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
            assert_near(&lrs(&opt), &numbers(row), &format!("{name}, step {t}"));
            assert_eq!(lrs(&opt), scheduler.lrs());
            scheduler.step();
        }
    }
}

fn plateaus() -> Vec<(&'static str, ReduceLrOnPlateau)> {
    let plain = ReduceLrOnPlateau { patience: 3, factor: 0.5, ..ReduceLrOnPlateau::default() };
    let high = ReduceLrOnPlateau { mode: MetricMode::Max, factor: 0.7, ..plain };
    let threshold_mode = ThresholdMode::Abs;
    vec![
        ("plateau", plain),
        (
            "plateau_absolute",
            ReduceLrOnPlateau {
                patience: 2,
                factor: 0.3,
                threshold: 0.05,
                threshold_mode,
                cooldown: 4,
                min_lr: 1e-3,
                ..plain
            },
        ),
        ("plateau_max", ReduceLrOnPlateau { patience: 4, threshold: 0.01, cooldown: 2, ..high }),
        (
            "plateau_max_absolute",
            ReduceLrOnPlateau { patience: 1, threshold: 0.02, threshold_mode, eps: 1e-3, ..high },
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
            assert_near(&lrs(&opt), &numbers(row), &format!("{name}, step {t}"));
            scheduler.step(metrics[t]);
        }
        assert!(lrs(&opt)[0] < BASES[0], "{name} never reduced a learning rate");
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
        other.lrs().iter().for_each(|lr| drop(lr.fill_(7.0)));
        let mut resumed = Scheduler::new(&other, &schedule);
        resumed.restore(&saved).unwrap();
        assert_eq!(resumed.steps(), 47);
        (0..50).for_each(|_| resumed.step());
        assert_eq!(lrs(&other), lrs(&opt), "{name}");
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
            assert_eq!(lrs(&other), lrs(&opt), "{name}");
        }
    }
}

/// States that earlier versions saved have other names.
#[test]
fn states_of_earlier_versions_are_restored() {
    let opt = optimizer();
    let mut scheduler = Scheduler::new(&opt, ExponentialLr { gamma: 0.5 });
    scheduler.restore(&json!({ "step": 2, "bases": [0.4, 0.8] })).unwrap();
    assert_eq!(lrs(&opt), [0.1, 0.2]);
    let mut plateau = PlateauScheduler::new(&opt, ReduceLrOnPlateau::default()).unwrap();
    let saved = json!({ "rates": [0.3, 0.6], "best": 1.5, "bad": 4, "cooling": 2 });
    plateau.restore(&saved).unwrap();
    assert_eq!(lrs(&opt), [0.3, 0.6]);
    let state = plateau.state();
    assert_eq!((&state["num_bad_epochs"], &state["cooldown_counter"]), (&json!(4), &json!(2)));
}

#[test]
fn states_that_do_not_fit_are_refused_and_change_nothing() {
    let opt = optimizer();
    let mut scheduler = Scheduler::new(&opt, ExponentialLr { gamma: 0.5 });
    let mut plateau = PlateauScheduler::new(&opt, ReduceLrOnPlateau::default()).unwrap();
    let before = (scheduler.state(), plateau.state());
    for (state, sentence) in [
        (json!({ "step": -1, "base_lrs": [1.0, 1.0] }), "`step` is not a count: -1"),
        (
            json!({ "step": 1, "base_lrs": [1.0, "a"] }),
            "`base_lrs` are not learning rates: [1.0,\"a\"]",
        ),
        (json!({ "step": 1, "base_lrs": [1.0] }), "the state is of 1 groups, the optimiser has 2"),
        (json!(null), "`step` is not a count: null"),
    ] {
        let error = scheduler.restore(&state).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
    for (state, sentence) in [
        (json!({}), "`lrs` are not learning rates: null"),
        (
            json!({ "lrs": [1.0, 1.0], "num_bad_epochs": 1, "cooldown_counter": "x" }),
            "`cooldown_counter` is not a count",
        ),
        (
            json!({ "lrs": [1.0, 1.0], "best": [], "num_bad_epochs": 1 }),
            "`best` is not a metric: []",
        ),
    ] {
        let error = plateau.restore(&state).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
    assert_eq!((scheduler.state(), plateau.state()), before);
    let error = PlateauScheduler::new(
        &opt,
        ReduceLrOnPlateau { factor: 1.0, ..ReduceLrOnPlateau::default() },
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("`factor` must be a number from 0 to below 1, not 1")
    );
}

/// Lengths of zero, and steps far beyond the end.
#[test]
fn every_step_has_a_finite_learning_rate() {
    let cosine = CosineAnnealingLr { t_max: 0, eta_min: 0.25 };
    let edges: Vec<Box<dyn Schedule>> = vec![
        Box::new(ConstantLr { factor: 2.0, total_iters: 0 }),
        Box::new(cosine),
        Box::new(CosineAnnealingWarmRestarts { t_0: 0, t_mult: 0, eta_min: 0.0 }),
        Box::new(CosineAnnealingWarmRestarts { t_0: 1, t_mult: 2, eta_min: 0.0 }),
        Box::new(CyclicLr {
            max_factor: 2.0,
            step_size_up: 0,
            step_size_down: 0,
            mode: CyclicMode::Triangular,
        }),
        Box::new(CyclicLr {
            max_factor: 2.0,
            step_size_up: 0,
            step_size_down: 3,
            mode: CyclicMode::Triangular2,
        }),
        Box::new(LinearLr { start_factor: 0.5, end_factor: 1.0, total_iters: 0 }),
        Box::new(OneCycleLr::new(0)),
        Box::new(OneCycleLr::new(1)),
        Box::new(OneCycleLr { pct_start: 0.0, ..OneCycleLr::new(5) }),
        Box::new(OneCycleLr { pct_start: 1.0, three_phase: true, ..OneCycleLr::new(5) }),
        Box::new(PolynomialLr { total_iters: 0, power: 0.5 }),
        Box::new(StepLr { step_size: 0, gamma: 0.5 }),
        Box::new(LinearWarmup { total_iters: 0, start_factor: 0.0, then: cosine }),
    ];
    for (i, schedule) in edges.iter().enumerate() {
        for step in [0, 1, 2, 3, 4, 5, 6, 1000, 1 << 40] {
            let lr = schedule.lr(0.5, step);
            assert!(lr.is_finite() && (0.0..=1.0).contains(&lr), "{i}, step {step}: {lr}");
        }
    }
    assert_eq!(cosine.lr(0.5, 0), 0.25);
}

/// Learning rates are tensors that a compiled step reads at each call.
#[test]
fn a_compiled_step_sees_every_learning_rate() {
    let run = |compiled: bool| {
        let x = Tensor::from([1.0, -2.0, 3.0]).requires_grad();
        let opt = Adam { lr: 0.1, ..Adam::default() }.over([x.clone()]).unwrap();
        let mut scheduler = Scheduler::new(
            &opt,
            LinearWarmup {
                total_iters: 5,
                start_factor: 0.1,
                then: CosineAnnealingLr { t_max: 40, eta_min: 0.0 },
            },
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
                false => step.eager(&scale),
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
