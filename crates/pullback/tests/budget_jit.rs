//! Compiled functions within a byte budget: the results of plain ones, the memory that was
//! promised, and no more work than it takes.
//!
//! Memory is measured by the pool's own counters, which all threads share: so every test here waits
//! for its turn.

use pullback::{
    CustomBatching, CustomOp, DType, Derivative, Device, ErrorKind, HostInput, HostOutput, Jit,
    JitOutput, Key, Program, Result, Spec, Tensor, Tree, autocast, checkpoint,
    checkpoint_sequential, custom_op, default_device, grad, jit, manual_seed, memory_stats,
    next_key, no_grad, random_state, reset_peak, scan, vmap,
};
use pullback_ir::pass::{Target, budget, plan::plan, work};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether new tensors are on the CPU: these tests run on another device too
/// (`second_device_jit.rs`), where the host's memory tells nothing.
fn on_host() -> bool {
    default_device() == Device::Cpu
}

/// The measured peak of the last call, on the device that it ran on.
fn measured(of: &pullback::Specialised) -> usize {
    of.measured.unwrap()
}

static EXCLUSIVE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What kernels may take beyond the plan while they run: packed panels of products, for each
/// thread.
const SCRATCH: usize = 1 << 20;

const ROWS: usize = 512;
const WIDTH: usize = 64;
/// Bytes of one activation, and of one matrix.
const ONE: usize = ROWS * WIDTH * 4;
const MATRIX: usize = WIDTH * WIDTH * 4;

fn normal(seed: u64, shape: &[usize], deviation: f64) -> Tensor {
    Key::new(seed).normal(shape, DType::F32, 0.0, deviation)
}

/// Residual blocks `x + gelu(x·a)·b`.
struct Chain {
    weights: Vec<[Tensor; 2]>,
}

impl Chain {
    fn new(blocks: usize) -> Chain {
        let weight = |seed| normal(seed, &[WIDTH, WIDTH], 0.05).requires_grad();
        Chain { weights: (0..blocks as u64).map(|i| [weight(2 * i), weight(2 * i + 1)]).collect() }
    }

    fn layers(&self) -> Vec<impl Fn(&Tensor) -> Tensor + Clone + Send + Sync + use<>> {
        let layer = |[a, b]: &[Tensor; 2]| {
            let (a, b) = (a.clone(), b.clone());
            move |x: &Tensor| x + x.matmul(&a).gelu().matmul(&b)
        };
        self.weights.iter().map(layer).collect()
    }

    /// Forward, backward and descent; the gradients stay.
    fn step(&self, x: &Tensor, segments: Option<usize>) -> Result<Tensor> {
        let layers = self.layers();
        self.weights.iter().flatten().for_each(Tensor::zero_grad);
        let y = match segments {
            None => layers.iter().fold(x.clone(), |x, layer| layer(&x)),
            Some(_) => checkpoint_sequential(&layers, segments, x),
        };
        let loss = y.square().mean();
        loss.backward()?;
        no_grad(|| {
            for w in self.weights.iter().flatten() {
                w.sub_(w.grad().unwrap() * 0.1);
            }
        });
        Ok(loss.detach())
    }

    fn bits(&self) -> Vec<Vec<u32>> {
        let all = self.weights.iter().flatten();
        all.flat_map(|w| [bits(w), bits(&w.grad().unwrap())]).collect()
    }
}

fn bits(x: &Tensor) -> Vec<u32> {
    x.to_vec::<f32>().iter().map(|x| x.to_bits()).collect()
}

fn only<T: Tree, Y: JitOutput, F: Fn(&T) -> Y>(f: &Jit<T, Y, F>) -> pullback::Specialised {
    let mut all = f.explain().specialisations;
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The bound that an error names.
fn bound(error: &pullback::Error) -> usize {
    let text = error.to_string();
    let (_, rest) = text.split_once("it takes at least ").expect("a bound");
    rest.split(',').next().and_then(|n| n.parse().ok()).expect("a number")
}

/// The planned peak of a function, the compiled program, and the work that it is.
fn planned<F: Fn(&Tensor) -> Result<Tensor>>(
    f: &Jit<Tensor, Result<Tensor>, F>,
    x: &Tensor,
) -> (usize, u64) {
    let compiled = f.stages(x).unwrap().pop().unwrap().1;
    (plan(&compiled, Target::default()).peak(), work(&compiled))
}

#[test]
fn a_training_step_of_64_blocks_stays_within_its_budget() {
    let _alone = alone();
    let x = normal(999, &[ROWS, WIDTH], 1.0);
    let (plain, tight) = (Chain::new(64), Chain::new(64));
    let whole = jit(|x: &Tensor| plain.step(x, None));
    let (peak, _) = planned(&whole, &x);
    // Everything that is kept is three activations a block.
    assert!(peak > 2 * 64 * ONE, "{peak}");
    // Room is left for scratch memory, so that also what is measured stays within what there is.
    let there_is = 48 * ONE;
    let allowed = there_is - SCRATCH;
    let step = jit(|x: &Tensor| tight.step(x, None)).memory_budget(allowed);
    for iteration in 0..3 {
        let expected = whole.call(&x).unwrap();
        let before = memory_stats().live_bytes;
        reset_peak();
        let found = step.call(&x).unwrap();
        // By the counters outside too: the arena is lent to each call.
        let rise = (memory_stats().peak_bytes - before) as usize;
        assert!(rise <= there_is || !on_host(), "{iteration}: {rise} of {there_is}");
        assert_eq!(bits(&found), bits(&expected), "iteration {iteration}");
        // Equations are repeated as they are, and no reduction was grouped otherwise: every bit is
        // the same.
        assert!(plain.bits() == tight.bits(), "iteration {iteration}");
    }
    let said = only(&step);
    let report = said.budget.unwrap();
    assert_eq!((report.budget, report.peak_without), (allowed, peak));
    assert!(report.peak <= allowed && report.peak == said.peak, "{report:?}");
    assert!(report.again > 0 && report.extra() < 0.34 && report.recomputed > 0, "{report:?}");
    assert!(report.kept > 0 && report.kept <= report.peak, "{report:?}");
    let measured = measured(&said);
    assert!(measured >= report.peak && measured <= there_is, "{measured} {report:?}");
    let text = step.explain().to_string();
    for line in [
        format!("memory budget: {allowed} bytes"),
        format!("predicted peak: {} bytes, {peak} without it", report.peak),
        format!("kept: {} bytes, recomputed: {} bytes", report.kept, report.recomputed),
        format!("extra compute: {:.1}%", 100.0 * report.extra()),
        format!("measured peak of the last call: {measured} bytes"),
    ] {
        assert!(text.contains(&line), "{line}\n{text}");
    }
    // A plain function has neither.
    let said = only(&whole);
    assert!(said.budget.is_none() && said.measured.is_none());
    step.check(&x).unwrap();
}

/// The program that a budget is looked at in.
fn before_budget(stages: &[(&'static str, Program)]) -> Program {
    let at = stages.iter().position(|stage| stage.0 == "remat").unwrap();
    stages[at - 1].1.clone()
}

#[test]
fn memory_grows_as_the_root_of_the_length() {
    // About plans alone, which are the same for every device.
    if !on_host() {
        return;
    }
    let _alone = alone();
    let x = normal(999, &[ROWS, WIDTH], 1.0);
    let smallest = |blocks: usize| {
        let chain = Chain::new(blocks);
        let program = before_budget(&jit(|x: &Tensor| chain.step(x, None)).stages(&x).unwrap());
        // Gradients are returned, and as many as there are blocks.
        let fixed = 2 * blocks * MATRIX;
        let root = (blocks as f64).sqrt() as usize * ONE;
        let (mut low, mut high) = (fixed + root, fixed + 4 * root);
        let cheap = |bytes: usize| {
            let found = budget(&program, bytes, Target::default());
            found.is_ok_and(|found| found.report.extra() <= 0.35)
        };
        assert!(cheap(high) && !cheap(low));
        while high - low > root / 16 {
            let middle = low + (high - low) / 2;
            *(if cheap(middle) { &mut high } else { &mut low }) = middle;
        }
        high - fixed
    };
    let found = [16, 64, 256].map(smallest);
    for pair in found.windows(2) {
        let growth = pair[1] as f64 / pair[0] as f64;
        let about_two = (1.6..2.2).contains(&growth);
        assert!(about_two, "four times the blocks, {growth} times the memory: {found:?}");
    }
}

#[test]
fn it_is_no_worse_than_uniform_segments() {
    let _alone = alone();
    let x = normal(999, &[ROWS, WIDTH], 1.0);
    let chain = Chain::new(64);
    for segments in [2, 4, 8, 16, 32] {
        let uniform = jit(|x: &Tensor| chain.step(x, Some(segments)));
        let (bytes, uniform) = planned(&uniform, &x);
        let within = jit(|x: &Tensor| chain.step(x, None)).memory_budget(bytes);
        let (peak, found) = planned(&within, &x);
        assert!(peak <= bytes && found <= uniform, "{segments}: {peak} {bytes}, {found} {uniform}");
    }
}

#[test]
fn dropout_and_noise_repeat() {
    let _alone = alone();
    let weights: Vec<Tensor> = (0..12).map(|i| normal(i, &[32, 32], 0.2).requires_grad()).collect();
    let x = normal(99, &[256, 32], 1.0);
    let f = |x: &Tensor| {
        weights.iter().for_each(Tensor::zero_grad);
        let y = weights.iter().fold(x.clone(), |x, w| {
            let noise = next_key().normal(x.shape(), DType::F32, 0.0, 0.1);
            x.matmul(w).tanh().dropout(0.3, Some(&next_key())) * 1.5 + noise * &x
        });
        let loss = y.square().mean();
        loss.backward()?;
        Ok(loss.detach())
    };
    let run = |f: &dyn Fn(&Tensor) -> Result<Tensor>| {
        manual_seed(7);
        let losses: Vec<_> = (0..3).map(|_| bits(&f(&x).unwrap())).collect();
        let gradients: Vec<_> = weights.iter().map(|w| bits(&w.grad().unwrap())).collect();
        (losses, gradients, random_state().to_vec::<i64>())
    };
    let plain = jit(f);
    let expected = run(&|x| plain.call(x));
    assert_ne!(expected.0[0], expected.0[1], "each call draws anew");
    let least = bound(&jit(f).memory_budget(0).call(&x).unwrap_err());
    for share in [0.0, 0.2, 0.5] {
        let bytes = least + ((only(&plain).peak - least) as f64 * share) as usize;
        let tight = jit(f).memory_budget(bytes);
        assert!(run(&|x| tight.call(x)) == expected, "{share}");
        assert!(only(&tight).budget.unwrap().again > 0);
        tight.check(&x).unwrap();
    }
}

#[test]
fn what_cannot_be_done_is_refused_with_a_bound_that_can() {
    let _alone = alone();
    let chain = Chain::new(12);
    let x = normal(999, &[ROWS, WIDTH], 1.0);
    manual_seed(3);
    let f = |x: &Tensor| {
        let noise = next_key().normal(x.shape(), DType::F32, 0.0, 0.1);
        chain.step(&(x + noise), None)
    };
    let line = line!() + 1;
    let step = jit(f).memory_budget(0);
    // Nothing at all, and something that is not enough.
    let before = (
        chain.weights.iter().flatten().map(bits).collect::<Vec<_>>(),
        random_state().to_vec::<i64>(),
    );
    let live = memory_stats().live_bytes;
    let error = step.call(&x).unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::Memory, "memory_budget"));
    let least = bound(&error);
    let step = step.memory_budget(least - 1);
    let error = step.call(&x).unwrap_err();
    let text = error.to_string();
    assert_eq!(bound(&error), least);
    assert!(text.contains(&format!("{} bytes are not enough", least - 1)), "{text}");
    assert!(text.contains(&format!("budget_jit.rs:{line}:")), "{text}");
    // What is alive, by line: activations are made by the layer.
    assert!(
        text.contains("these values are live at the peak")
            && text.matches("budget_jit.rs").count() > 1,
        "{text}"
    );
    // Nothing has changed, and nothing was kept.
    let after = (
        chain.weights.iter().flatten().map(bits).collect::<Vec<_>>(),
        random_state().to_vec::<i64>(),
    );
    assert!(before == after && chain.weights[0][0].grad().is_none());
    assert!(memory_stats().live_bytes == live || !on_host());
    assert_eq!(step.explain().specialisations.len(), 0);
    assert_eq!(step.check(&x).unwrap_err().kind(), ErrorKind::Memory);
    assert_eq!(step.stages(&x).unwrap_err().kind(), ErrorKind::Memory);
    // The same function goes on with what the error says.
    let step = step.memory_budget(least);
    step.call(&x).unwrap();
    let said = only(&step);
    assert!(said.peak <= least && measured(&said) <= least + SCRATCH, "{}", said.peak);
    step.check(&x).unwrap();
}

#[test]
fn what_goes_op_by_op_knows_of_no_budget() {
    let _alone = alone();
    let w = Tensor::from([2.0, 3.0]).requires_grad();
    let f = jit(|x: &Tensor| (x * &w).exp().sum()).memory_budget(1);
    f.call(&Tensor::from([0.5, 0.25])).unwrap().backward().unwrap();
    assert!(w.grad().is_some());
    let said = only(&f);
    assert!(said.differentiated && said.budget.is_none() && said.measured.is_none());
    // Without recording it is compiled, and what the call returns does not fit.
    let error = no_grad(|| f.call(&Tensor::from([0.5, 0.25]))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Memory);
}

#[test]
fn later_calls_and_other_shapes() {
    let _alone = alone();
    let chain = Chain::new(16);
    let x = normal(999, &[ROWS, WIDTH], 1.0);
    let half = normal(998, &[ROWS / 2, WIDTH], 1.0);
    let allowed = 20 * ONE;
    let step = jit(|x: &Tensor| chain.step(x, None)).memory_budget(allowed);
    step.call(&x).unwrap();
    step.call(&x).unwrap();
    assert_eq!(only(&step).calls.0, 2);
    // Half of the batch, the same budget: it needs less done again.
    step.call(&half).unwrap();
    let said = step.explain().specialisations;
    assert_eq!(said.len(), 2);
    let [first, second] = [0, 1].map(|i| said[i].budget.unwrap());
    assert_eq!((first.budget, second.budget), (allowed, allowed));
    assert!(first.again > 0 && second.extra() < first.extra());
    for s in &said {
        let (peak, measured) = (s.peak, measured(s));
        assert!(
            peak <= allowed && (peak..=peak + SCRATCH).contains(&measured),
            "{peak} {measured}"
        );
    }
    // Another budget is another program, and the first is still there.
    let step = step.memory_budget(2 * allowed);
    step.call(&half).unwrap();
    let why = &step.explain().specialisations[2].why;
    assert_eq!(
        *why,
        format!("the memory budget is {} bytes, and was {allowed} bytes", 2 * allowed)
    );
    let step = step.memory_budget(allowed);
    step.call(&x).unwrap();
    assert_eq!(step.explain().specialisations.len(), 3);
    assert_eq!(step.explain().specialisations[0].calls.0, 3);
    // A measurement of the user's own is not disturbed by the calls in it.
    reset_peak();
    let start = memory_stats().live_bytes;
    drop(Tensor::full([8 << 20], 1f32));
    step.call(&x).unwrap();
    assert!(!on_host() || memory_stats().peak_bytes >= start + (32 << 20));
    // Stages have the budget among them.
    let stages = step.stages(&x).unwrap();
    let names: Vec<&str> = stages.iter().map(|stage| stage.0).collect();
    let at = names.iter().position(|&name| name == "budget").unwrap();
    assert_eq!(names[at + 1], "remat");
    assert!(stages[at].1.equations.len() > stages[at - 1].1.equations.len());
}

/// Compares gradients with and without a budget, at the least and in the middle, and replays the
/// compiled programs.
fn same_within_budgets(name: &str, f: impl Fn(&Tensor) -> Tensor + Copy, x: &Tensor, near: f64) {
    let plain = jit(grad(f));
    let expected = plain.of(x).to_f64_vec();
    let whole = only(&plain).peak;
    let least = bound(&jit(grad(f)).memory_budget(0).call(x).unwrap_err());
    assert!(least < whole * 9 / 10, "{name}: {least} of {whole}");
    for bytes in [least, (least + whole) / 2, whole] {
        let tight = jit(grad(f)).memory_budget(bytes);
        let found = tight.of(x).to_f64_vec();
        let largest = expected.iter().fold(0f64, |m, x| m.max(x.abs()));
        let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0f64, f64::max);
        assert!(apart <= near * largest && largest > 0.0, "{name}: {apart} of {largest}");
        let said = only(&tight);
        assert!(said.peak <= bytes && measured(&said) <= bytes + SCRATCH, "{name}");
        assert_eq!(said.budget.unwrap().again > 0, bytes < whole, "{name}");
        tight.check(x).unwrap();
    }
}

#[test]
fn loops_casts_checkpoints_and_examples() {
    let _alone = alone();
    let weights: Vec<Tensor> = (0..15).map(|i| normal(i, &[32, 32], 0.2)).collect();
    let x = normal(99, &[256, 32], 1.0);
    let layers = |x: &Tensor| weights.iter().fold(x.clone(), |x, w| &x + x.matmul(w).tanh());
    let chain = |x: &Tensor| layers(x).square().sum();
    same_within_budgets("a chain", chain, &x, 0.0);
    let looped = |x: &Tensor| {
        let y = weights.iter().fold(x.clone(), |x, w| {
            let iteration = |s: &Tensor, x: &Tensor| {
                let s = (s * 0.5 + x).tanh();
                (s.clone(), s)
            };
            scan(iteration, &Tensor::zeros([32]), &x.matmul(w)).1
        });
        y.square().sum()
    };
    same_within_budgets("loops", looped, &x, 0.0);
    let low = |x: &Tensor| autocast(DType::BF16, || layers(x)).cast(DType::F32).square().sum();
    same_within_budgets("autocast", low, &x, 0.0);
    let inside = |x: &Tensor| {
        let parts: Vec<Vec<Tensor>> = weights.chunks(5).map(<[Tensor]>::to_vec).collect();
        let y = parts.into_iter().fold(x.clone(), |x, part| {
            let f = move |x: &Tensor| part.iter().fold(x.clone(), |x, w| &x + x.matmul(w).tanh());
            checkpoint(f, &x)
        });
        y.square().sum()
    };
    same_within_budgets("checkpoints", inside, &x, 0.0);
    let batched =
        |x: &Tensor| vmap(|row: &Tensor| layers(&row.unsqueeze(0)).square().sum(), 0, 0)(x).sum();
    same_within_budgets("many examples", batched, &x, 0.0);
}

/// `x³` by code that counts its calls.
struct Cube(Arc<AtomicUsize>);

impl CustomOp for Cube {
    fn name(&self) -> &'static str {
        "cube"
    }

    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(inputs.to_vec())
    }

    fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let (x, y) = (inputs[0].as_slice::<f32>()?, outputs[0].as_mut_slice::<f32>()?);
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x * x * x);
        Ok(())
    }

    fn derivative(&self) -> Derivative {
        Derivative::Vjp
    }

    fn vjp(&self, x: &[Tensor], _: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
        vec![3.0 * x[0].square() * &dy[0]]
    }

    fn batching(&self) -> CustomBatching {
        CustomBatching::LeadingAxes
    }
}

#[test]
fn code_of_the_users_runs_again() {
    if !on_host() {
        return;
    }
    let _alone = alone();
    let calls = Arc::new(AtomicUsize::new(0));
    let cube = custom_op(Cube(calls.clone())).unchecked("the derivative is 3x²");
    let weights: Vec<Tensor> = (0..12).map(|i| normal(i, &[32, 32], 0.1)).collect();
    let x = normal(99, &[256, 32], 0.5);
    let f = |x: &Tensor| {
        let y = weights.iter().fold(x.clone(), |x, w| &x + cube.one(&[&x.matmul(w)]).matmul(w));
        y.square().sum()
    };
    same_within_budgets("code", f, &x, 0.0);
    let least = bound(&jit(grad(f)).memory_budget(0).call(&x).unwrap_err());
    let tight = jit(grad(f)).memory_budget(least);
    tight.of(&x);
    let before = calls.swap(0, Ordering::Relaxed);
    assert!(before > 0);
    tight.of(&x);
    assert!(calls.load(Ordering::Relaxed) > 12);
}

#[test]
fn state_is_written_once_and_not_before_what_may_fail() {
    let _alone = alone();
    struct Net {
        weights: Vec<Tensor>,
        table: Tensor,
        mean: Tensor,
        turns: Tensor,
    }
    let net = || Net {
        weights: (0..10).map(|i| normal(i, &[32, 32], 0.2).requires_grad()).collect(),
        table: normal(77, &[50, 32], 1.0).requires_grad(),
        mean: Tensor::zeros([32]),
        turns: Tensor::zeros(()),
    };
    // Every layer reads the statistics that the one before it wrote, in part, and a row of a table.
    let step = |net: &Net, ids: &Tensor| -> Result<Tensor> {
        let all = || net.weights.iter().chain([&net.table]);
        all().for_each(Tensor::zero_grad);
        let mut x = net.table.index_select(0, ids);
        for (i, w) in (0..).zip(&net.weights) {
            x = &x + (x.matmul(w) - &net.mean).tanh() * net.table.index_select(0, ids);
            no_grad(|| {
                net.mean.narrow(0, i, 4).add_(x.detach().mean_over(0).narrow(0, i, 4));
                net.turns.add_(Tensor::ones(()));
            });
        }
        let loss = x.square().mean();
        loss.backward()?;
        no_grad(|| all().for_each(|w| drop(w.sub_(w.grad().unwrap() * 0.05))));
        Ok(loss.detach())
    };
    let ids = Key::new(5).randint([256], 0, 50);
    let (plain, tight) = (net(), net());
    let whole = jit(|ids: &Tensor| step(&plain, ids));
    let state = |net: &Net| {
        let all = net.weights.iter().chain([&net.table, &net.mean, &net.turns]);
        all.map(bits).collect::<Vec<_>>()
    };
    whole.call(&ids).unwrap();
    let least =
        bound(&jit(|ids: &Tensor| step(&tight, ids)).memory_budget(0).call(&ids).unwrap_err());
    let within = jit(|ids: &Tensor| step(&tight, ids)).memory_budget(least);
    within.call(&ids).unwrap();
    for _ in 0..2 {
        assert_eq!(bits(&whole.call(&ids).unwrap()), bits(&within.call(&ids).unwrap()));
    }
    assert!(state(&plain) == state(&tight));
    assert_eq!(tight.turns.item::<f32>(), 30.0);
    let said = only(&within);
    assert!(said.budget.unwrap().again > 0 && said.peak <= least);
    within.check(&ids).unwrap();
    assert!(state(&plain) == state(&tight), "a check changes nothing");
    // A row that is not there: an error, and everything as it was.
    let wrong = pullback::cat(&[&ids.narrow(0, 0, 255), &Tensor::from([50i64])], 0);
    // On a device that is not the host a failure is the error of the next wait.
    let failed = within.call(&wrong).and_then(|_| pullback::backend::synchronize(default_device()));
    assert!(failed.is_err());
    assert!(state(&plain) == state(&tight));
    assert_eq!(only(&within).measured, said.measured, "of calls that came to an end");
}
