//! Budgets on programs that are known: the quality of the choices, and the guarantees.

use super::*;
use crate::{Binary, DType, Flow, Op, Reduction, Scan, Spec, Unary, Var, View};
use std::sync::Arc;

/// A program under construction.
struct Draft(Program);

impl Draft {
    fn new() -> Draft {
        Draft(Program::default())
    }

    fn input(&mut self, shape: &[usize]) -> Var {
        self.0.input(Spec::cpu(DType::F32, shape))
    }

    fn op(&mut self, op: Op, of: &[Var]) -> Var {
        self.0.push(op, of, None).expect("operands that fit")[0]
    }

    fn dot(&mut self, a: Var, b: Var) -> Var {
        self.op(Op::Dot, &[a, b])
    }

    fn turned(&mut self, x: Var) -> Var {
        self.op(Op::View(View::Permute([1, 0].into())), &[x])
    }

    fn add(&mut self, a: Var, b: Var) -> Var {
        self.op(Op::Binary(Binary::Add), &[a, b])
    }

    /// The gradients of `x·w` with respect to both.
    fn dot_back(&mut self, x: Var, w: Var, d: Var) -> [Var; 2] {
        let turned = self.turned(w);
        let dx = self.dot(d, turned);
        let turned = self.turned(x);
        [dx, self.dot(turned, d)]
    }

    fn gelu(&mut self, x: Var) -> Var {
        self.op(Op::Unary(Unary::Gelu), &[x])
    }

    fn gelu_back(&mut self, x: Var, d: Var) -> Var {
        self.op(Op::UnaryVjp(Unary::Gelu), &[x, d])
    }
}

const ROWS: usize = 4096;
const WIDTH: usize = 32;
/// Bytes of one activation.
const ONE: usize = ROWS * WIDTH * 4;

/// So many residual blocks `x + gelu(x·a)·b`, the sum of squares, and the gradients of all
/// matrices.
fn chain(blocks: usize) -> Program {
    let mut p = Draft::new();
    let mut x = p.input(&[ROWS, WIDTH]);
    let weights: Vec<[Var; 2]> =
        (0..blocks).map(|_| [0, 1].map(|_| p.input(&[WIDTH, WIDTH]))).collect();
    let mut saved = Vec::new();
    for &[a, b] in &weights {
        let h = p.dot(x, a);
        let g = p.gelu(h);
        let y = p.dot(g, b);
        saved.push((x, h, g));
        x = p.add(x, y);
    }
    let squares = p.op(Op::Unary(Unary::Square), &[x]);
    let loss = p.op(Op::Reduce(Reduction::Sum, [0, 1].into()), &[squares]);
    let mut d = p.add(x, x);
    let mut gradients = vec![loss];
    for (&[a, b], &(x, h, g)) in weights.iter().zip(&saved).rev() {
        let [dg, db] = p.dot_back(g, b, d);
        let dh = p.gelu_back(h, dg);
        let [dx, da] = p.dot_back(x, a, dh);
        gradients.extend([db, da]);
        d = p.add(d, dx);
    }
    p.0.outputs = gradients;
    p.0
}

/// A U-Net: a path down and up, with the results of the way down added on the way up.
fn long_skips(depth: usize) -> Program {
    let mut p = Draft::new();
    let x = p.input(&[ROWS, WIDTH]);
    let weights: Vec<Var> = (0..2 * depth).map(|_| p.input(&[WIDTH, WIDTH])).collect();
    let (mut down, mut saved, mut x) = (Vec::new(), Vec::new(), x);
    for (i, &w) in weights.iter().enumerate() {
        let h = p.dot(x, w);
        saved.push((x, h));
        x = p.gelu(h);
        match i < depth {
            true => down.push(x),
            false => x = p.add(x, down[2 * depth - 1 - i]),
        }
    }
    let mut d = p.add(x, x);
    let (mut gradients, mut skipped) = (Vec::new(), Vec::new());
    for (i, (&w, &(x, h))) in weights.iter().zip(&saved).enumerate().rev() {
        match i < depth {
            true => d = p.add(d, skipped[i]),
            false => skipped.push(d),
        }
        let dh = p.gelu_back(h, d);
        let [dx, dw] = p.dot_back(x, w, dh);
        gradients.push(dw);
        d = dx;
    }
    p.0.outputs = gradients;
    p.0
}

/// A sum that grows by an activation at each layer: backward reads the activations, and of the sums
/// only the last.
fn growing_sum(layers: usize) -> Program {
    let mut p = Draft::new();
    let mut x = p.input(&[ROWS, WIDTH]);
    let weights: Vec<Var> = (0..layers).map(|_| p.input(&[WIDTH, WIDTH])).collect();
    let mut saved = Vec::new();
    for &w in &weights {
        let h = p.dot(x, w);
        let y = p.op(Op::Unary(Unary::Tanh), &[h]);
        saved.push(y);
        x = p.add(x, y);
    }
    let mut d = p.add(x, x);
    for (&w, &y) in weights.iter().zip(&saved).rev() {
        let dh = p.op(Op::Binary(Binary::Mul), &[d, y]);
        let turned = p.turned(w);
        let dx = p.dot(dh, turned);
        d = p.add(d, dx);
    }
    p.0.outputs = vec![d];
    p.0
}

/// A scan that saves its rows for a reverse scan, between layers.
fn with_a_scan(layers: usize) -> Program {
    let mut p = Draft::new();
    let mut x = p.input(&[ROWS, WIDTH]);
    let weights: Vec<Var> = (0..layers).map(|_| p.input(&[WIDTH, WIDTH])).collect();
    let row = Spec::cpu(DType::F32, [WIDTH].as_slice());
    let body = |back: bool| {
        let mut body = Draft(Program::default());
        let (state, x) = (body.0.input(row.clone()), body.0.input(row.clone()));
        let sum = body.add(state, x);
        let next = body.op(Op::Unary(Unary::Tanh), &[sum]);
        body.0.outputs = if back { vec![next, sum] } else { vec![next, next] };
        let scan = Scan { body: body.0, length: ROWS, reverse: back, shared: 0, carry: 1, kept: 0 };
        Op::Flow(Arc::new(Flow::Scan(scan)))
    };
    let start = p.input(&[WIDTH]);
    let mut saved = Vec::new();
    for &w in &weights {
        let h = p.dot(x, w);
        let ys = p.0.push(body(false), &[start, h], None).expect("a scan")[1];
        saved.push((x, ys));
        x = ys;
    }
    let (mut d, mut gradients) = (p.add(x, x), Vec::new());
    for (&w, &(x, ys)) in weights.iter().zip(&saved).rev() {
        let mixed = p.op(Op::Binary(Binary::Mul), &[d, ys]);
        let dh = p.0.push(body(true), &[start, mixed], None).expect("a scan")[1];
        let [dx, dw] = p.dot_back(x, w, dh);
        gradients.push(dw);
        d = dx;
    }
    p.0.outputs = gradients;
    p.0
}

fn peak(program: &Program) -> usize {
    plan(
        &Pipeline::after_budget(Target::default()).run(program).expect("a program"),
        Target::default(),
    )
    .peak()
}

/// The least that is named when nothing is allowed.
fn least(program: &Program) -> usize {
    let error =
        budget(program, 0, Target::default()).expect_err("nothing is never enough").to_string();
    let (_, rest) = error.split_once("at least ").expect("a bound");
    rest.split(',').next().and_then(|n| n.parse().ok()).expect("a number")
}

/// The chain in segments of as many blocks each: its peak, and the recomputed work.
fn evenly(blocks: usize, segments: usize) -> (usize, u64) {
    let program = chain(blocks);
    let base = dead_code(&remat_where(&program, Target::default().recompute));
    let liveness = Liveness::of(&base);
    // A block is four equations; the last of them makes what the next block takes.
    let (forward, each) = (4 * blocks, 4 * blocks / segments);
    let kept: Vec<bool> = (0..base.specs.len())
        .map(|v| {
            let made = liveness.made[v].filter(|&e| e < forward);
            made.is_some_and(|e| (e + 1).is_multiple_of(each) || e >= forward - each)
        })
        .collect();
    let again = recompute(&liveness, forward, &kept);
    (peak(&dead_code(&again.program)), again.work)
}

#[test]
fn it_is_no_worse_than_even_segments() {
    let program = chain(64);
    for segments in [2, 4, 8, 16, 32] {
        let (even, work) = evenly(64, segments);
        let found = budget(&program, even, Target::default()).expect("even segments fit").report;
        println!(
            "{segments} segments: {} and {:.3}, planned: {} and {:.3}",
            even as f64 / ONE as f64,
            work as f64 / found.work as f64,
            found.peak as f64 / ONE as f64,
            found.extra()
        );
        assert!(found.peak <= even && found.again <= work, "{segments}: {found:?} {even} {work}");
    }
}

/// The least peak with nothing computed more than twice.
fn least_once(program: &Program) -> usize {
    let rest = Pipeline::after_budget(Target::default());
    let search = BudgetSearch::new(program, 0, Target::default(), &rest).expect("a program");
    let base = search.base.clone();
    let liveness = Liveness::of(&base);
    let cuts = Cuts::new(&liveness, worst(&liveness), true);
    let least = cuts.least();
    let peak = |limit: usize| {
        let kept = cuts.choose(limit).expect("not below the least");
        search.tried(&liveness, cuts.moment, &kept).expect("a program").plan.peak()
    };
    [least, least * 17 / 16, least * 9 / 8].map(peak).into_iter().min().unwrap_or(0)
}

#[test]
fn memory_grows_as_the_root_of_the_length() {
    // Gradients are results, and as many as there are blocks.
    let gradients = |n: usize| 8 * n * WIDTH * WIDTH;
    let peaks = [16, 64, 256].map(|n| least_once(&chain(n)) - gradients(n));
    for pair in peaks.windows(2) {
        assert!(pair[1] as f64 <= 2.2 * pair[0] as f64, "{peaks:?}");
    }
    for (n, root) in [(16, 4), (64, 8), (256, 16)] {
        // As much as even segments take, for no more than the forward pass, which is a third.
        let bytes = (4 * root + 4) * ONE + gradients(n);
        let found = budget(&chain(n), bytes, Target::default())
            .expect("as much as even segments take")
            .report;
        assert!(found.cuts == 1 && found.extra() < 0.34, "{n}: {found:?}");
        // Computed more than twice, it needs much less.
        let least = least(&chain(n)) - gradients(n);
        assert!(least <= (root + 4) * ONE, "{n}: {least}");
    }
}

#[test]
fn cheap_values_go_first() {
    // Keeping all but the results of activations takes two thirds.
    let program = chain(64);
    let found =
        budget(&program, peak(&program) * 7 / 10, Target::default()).expect("it fits").report;
    assert!(found.extra() < 0.04, "{found:?}");
}

#[test]
fn what_is_promised_is_planned() {
    for (name, program) in [
        ("chain", chain(24)),
        ("long skips", long_skips(12)),
        ("a scan", with_a_scan(12)),
        ("a growing sum", growing_sum(16)),
    ] {
        program.verify_deeply().expect("a program");
        let (whole, least) = (peak(&program), least(&program));
        assert!(2 * least < whole, "{name}: {least} of {whole}");
        for share in 0..8 {
            let bytes = least + (whole - least) * share / 7;
            let found = budget(&program, bytes, Target::default()).expect("not below the least");
            found.program.verify_deeply().expect("a program");
            let taken = peak(&found.program);
            assert_eq!(taken, found.report.peak, "{name}");
            assert!(taken <= bytes, "{name}: {taken} of {bytes}");
            assert_eq!(found.report.again == 0, share == 7, "{name}: {:?}", found.report);
        }
        let error = budget(&program, least - 1, Target::default())
            .expect_err("below the least")
            .to_string();
        assert!(error.contains(&format!("at least {least},")), "{error}");
    }
}

#[test]
fn sums_are_not_made_again_from_their_beginning() {
    // The last sum is cheap for a byte, additions only, but takes all activations at once:
    // recomputing it would need more memory than keeping it.
    let program = growing_sum(24);
    let (whole, least) = (peak(&program), least(&program));
    assert!(2 * least < whole, "{least} of {whole}");
    for (share, extra) in [(2, 0.12), (5, 0.25), (8, 0.45)] {
        let bytes = whole - (whole - least) * share / 10;
        let found = budget(&program, bytes, Target::default()).expect("not below the least").report;
        assert!(found.extra() < extra, "{share}: {found:?}");
    }
    // Cutting ends when it does not help, long before the work grows without bound.
    let found = budget(&program, least, Target::default()).expect("not below the least").report;
    assert!(found.again <= MAX_RECOMPUTED * found.work && found.cuts < 40, "{found:?}");
}

#[test]
fn a_product_counts_once_however_many_results_follow_it() {
    let mut p = Draft::new();
    let (x, w) = (p.input(&[ROWS, WIDTH]), p.input(&[WIDTH, WIDTH]));
    let h = p.dot(x, w);
    let y = p.gelu(h);
    let z = p.add(h, y);
    p.0.outputs = vec![y, z];
    let compiled = Pipeline::after_budget(Target::default()).run(&p.0).expect("a program");
    assert!(compiled.equations.iter().any(|e| matches!(e.op, Op::DotRegion(_))), "{compiled}");
    assert!(work(&compiled) <= work(&p.0), "{} {}", work(&compiled), work(&p.0));
}

#[test]
fn small_programs_are_refused_with_a_sentence() {
    let mut p = Draft::new();
    let x = p.input(&[64, 64]);
    let y = p.op(Op::Unary(Unary::Exp), &[x]);
    p.0.outputs = vec![y];
    assert_eq!(least(&p.0), 64 * 64 * 4);
    assert_eq!(budget(&p.0, 64 * 64 * 4, Target::default()).expect("it fits").report.again, 0);
    assert!(budget(&Program::default(), 0, Target::default()).is_ok());
}

#[test]
fn programs_that_fit_stay_as_they_are() {
    let program = chain(4);
    let found = budget(&program, usize::MAX, Target::default()).expect("it fits");
    assert_eq!(
        (found.program, found.report.again),
        (dead_code(&remat_where(&program, Target::default().recompute)), 0)
    );
}
