//! Passes preserve the meaning of programs: random programs before and after each one, by a
//! reference interpreter.

use super::generate::Choices;
use super::interpret::{Data, evaluate, run};
use proptest::prelude::*;
use pullback_ir::pass::*;
use pullback_ir::*;

fn choices() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 30..80)
}

pub fn same_bits(a: &[Data], b: &[Data]) -> bool {
    let same = |x: &f64, y: &f64| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same(x, y)))
}

/// A device whose programs may keep values on the host.
fn away() -> Target {
    let link = HostLink { out: 100, back: 100, memory: 4000, narrow: 4000, wide: 4000 };
    Target { host: Some(link), ..Target::default() }
}

/// Runs a pass on a random program and checks the guarantees of every pass.
fn check(seed: Vec<u64>, whole: bool, idempotent: bool, pass: impl Fn(&Program) -> Program) {
    let mut choices = Choices(seed, 0);
    let size = 4 + choices.below(28);
    let program = choices.program(size, whole);
    program.verify_deeply().unwrap();
    let after = pass(&program);
    let text = || format!("before\n{program}after\n{after}");
    after.verify_deeply().unwrap_or_else(|e| panic!("{e}\n{}", text()));
    assert_eq!(after.updates, program.updates);
    let specs =
        |p: &Program, vars: &[Var]| vars.iter().map(|&v| p.spec(v).clone()).collect::<Vec<_>>();
    assert_eq!(specs(&after, &after.inputs), specs(&program, &program.inputs));
    let odd = choices.below(2) == 0 && !whole;
    let inputs = choices.inputs(&program, odd);
    let (expected, found) = (run(&program, &inputs), run(&after, &inputs));
    // Beyond this integers are no longer exact.
    if whole && expected.iter().flatten().any(|x| x.abs() > 1e12) {
        return;
    }
    assert!(same_bits(&expected, &found), "{expected:?} became {found:?}\n{}", text());
    if idempotent {
        let again = pass(&after);
        assert_eq!(again, after, "\n{after}then\n{again}");
    }
    // Deterministic, though maps are used.
    assert_eq!(pass(&program), after);
    let read = after.to_string().parse::<Program>().map(|p| p.renumbered());
    assert_eq!(read.as_ref(), Ok(&after.renumbered()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn dead_code_keeps_results(seed in choices()) {
        check(seed, false, true, dead_code);
    }

    #[test]
    fn common_subexpressions_keep_results(seed in choices()) {
        check(seed, false, true, common_subexpressions);
    }

    #[test]
    fn fold_keeps_results(seed in choices()) {
        check(seed, false, true, |p| dead_code(&fold(p, &evaluate)));
    }

    #[test]
    fn fold_without_answers_keeps_results(seed in choices()) {
        check(seed, false, true, |p| dead_code(&fold(p, &|_, _| None)));
    }

    #[test]
    fn simplify_keeps_results(seed in choices()) {
        check(seed, false, true, |p| dead_code(&simplify(p)));
    }

    #[test]
    fn layout_keeps_results(seed in choices()) {
        check(seed, true, false, |p| dead_code(&layout(p)));
    }

    #[test]
    fn remat_keeps_results(seed in choices()) {
        check(seed.clone(), false, false, |p| remat_where(p, Remat { near: 1, worth: 0 }));
        check(seed, false, false, |p| fuse(&remat_where(p, Remat { near: 3, worth: 9 })));
    }

    #[test]
    fn fuse_keeps_results(seed in choices()) {
        check(seed, false, false, fuse);
    }

    #[test]
    fn fuse_within_little_keeps_results(seed in choices()) {
        check(seed, false, false, |p| fuse_within(p, Limits { instructions: 5, inputs: 2, small: 1, ..Limits::default() }));
    }

    #[test]
    fn fuse_with_sums_over_rows_keeps_results(seed in choices()) {
        for columns in [1, 4] {
            let limits = Limits { columns, column_row: [2, 64], ..Limits::default() };
            check(seed.clone(), false, false, |p| fuse_within(p, limits));
        }
    }

    #[test]
    fn epilogue_keeps_results(seed in choices()) {
        check(seed, false, true, epilogue);
    }

    #[test]
    fn fuse_then_epilogue_keep_results(seed in choices()) {
        check(seed, true, false, |p| epilogue(&fuse(&dead_code(&layout(p)))));
    }

    #[test]
    fn stores_keep_results(seed in choices()) {
        check(seed, false, false, |p| stores(&fuse(p)));
    }

    #[test]
    fn schedule_keeps_results_and_lowers_the_peak(seed in choices()) {
        check(seed, false, false, |p| {
            let after = schedule(p);
            assert!(peak_bytes(&after) <= peak_bytes(p));
            after
        });
    }

    #[test]
    fn offload_keeps_results_and_lowers_the_peak(seed in choices()) {
        for share in [0, 3] {
            check(seed.clone(), false, false, |p| {
                let whole = plan::plan(p, away()).peak();
                let after = offload(p, whole * share / 4, away());
                assert!(plan::plan(&after, away()).peak() <= whole);
                after
            });
        }
    }

    #[test]
    fn passes_keep_what_is_on_its_way(seed in choices()) {
        let away = |p: &Program| offload(p, 0, away());
        check(seed.clone(), false, false, |p| schedule(&common_subexpressions(&dead_code(&away(p)))));
        check(seed.clone(), false, false, |p| fuse(&remat_where(&away(p), Remat { near: 1, worth: 0 })));
        check(seed, true, false, |p| Pipeline::standard(Target::default(), evaluate).verified(true).run(&away(p)).unwrap());
    }

    #[test]
    fn the_whole_pipeline_keeps_results(seed in choices()) {
        check(seed, true, false, |p| Pipeline::standard(Target::default(), evaluate).verified(true).run(p).unwrap());
    }
}

/// The program, and then all that it made once more, backwards: the last thing first.
fn there_and_back(mut program: Program) -> Program {
    let made = program.equations.iter().flat_map(|e| e.outputs.clone());
    let made: Vec<Var> = made.filter(|&v| program.spec(v).dtype.is_float()).collect();
    let mut total = program.input(Spec::cpu(DType::F64, Shape::new()));
    for v in made.into_iter().rev() {
        let sum = Op::Reduce(Reduction::Sum, (0..program.spec(v).shape.len()).collect());
        let sum = program.push(sum, &[v], None).expect("a sum")[0];
        let wide = program.push(Op::Cast(DType::F64), &[sum], None).expect("a cast")[0];
        total = program.push(Op::Binary(Binary::Sub), &[wide, total], None).expect("numbers")[0];
    }
    program.outputs.push(total);
    program
}

/// What a refusal names as the least.
fn least(error: &Error) -> usize {
    let text = error.to_string();
    let (_, rest) = text.split_once("at least ").expect("a bound");
    rest.split(',').next().and_then(|n| n.parse().ok()).expect("a number")
}

proptest! {
    // Each case is planned some hundred times.
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn budget_keeps_results_and_its_word(seed in choices()) {
        let mut choices = Choices(seed, 0);
        let size = 4 + choices.below(28);
        let program = there_and_back(choices.program(size, false));
        let inputs = choices.inputs(&program, false);
        let expected = run(&program, &inputs);
        let rest = Pipeline::after_budget(Target::default()).verified(true);
        let peak = |p: &Program| plan::plan(&rest.run(p).expect("a program"), Target::default()).peak();
        // Without a budget cheap values are recomputed too, so that is the peak to compare with.
        let whole = budget(&program, usize::MAX, Target::default()).expect("no limit").report.peak_without;
        let least = least(&budget(&program, 0, Target::default()).unwrap_err());
        for bytes in [least, (least + whole) / 2] {
            let found = budget(&program, bytes, Target::default()).expect("the least is met");
            found.program.verify_deeply().unwrap();
            assert!(found.report.peak <= bytes && found.report.peak == peak(&found.program));
            assert_eq!(found.report.again > 0, bytes < whole, "{:?}", found.report);
            assert_eq!(found.program.updates, program.updates);
            let made = run(&found.program, &inputs);
            assert!(same_bits(&expected, &made), "{program}became\n{}", found.program);
        }
    }

    #[test]
    fn budget_keeps_its_word_where_values_may_wait_on_the_host(seed in choices()) {
        let mut choices = Choices(seed, 0);
        let size = 4 + choices.below(28);
        let program = there_and_back(choices.program(size, false));
        let inputs = choices.inputs(&program, false);
        let expected = run(&program, &inputs);
        let alone = least(&budget(&program, 0, Target::default()).unwrap_err());
        let least = least(&budget(&program, 0, away()).unwrap_err());
        assert!(least <= alone, "{least} with the host, {alone} without");
        for bytes in [least, (least + alone) / 2, alone] {
            let found = budget(&program, bytes, away()).expect("the least is met");
            let compiled = found.rest(away()).verified(true).run(&found.program).expect("a program");
            let plan = plan::plan(&compiled, away());
            assert!(plan.peak() <= bytes && plan.peak() == found.report.peak, "{:?}", found.report);
            assert_eq!(plan.host, found.report.host);
            assert_eq!(plan.host > 0, !found.offloaded.is_empty());
            let moved: usize = found.offloaded.iter().map(|value| value.bytes).sum();
            assert_eq!(moved, found.report.offloaded);
            assert_eq!(compiled.updates, program.updates);
            if bytes == least {
                // Fusion may group sums otherwise, so what is computed is compared before it.
                let made = run(&offload(&found.program, 0, away()), &inputs);
                assert!(same_bits(&expected, &made), "{program}became\n{}", found.program);
            }
        }
    }
}
