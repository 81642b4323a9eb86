//! What a pass changed is found whatever variables are called, and regions have machine code.

use pullback::{DType, Op, Program, Spec, Tensor, native_code, trace};
use pullback_explore::answer::program::{Compiled, as_json};
use pullback_ir::pass::{Pipeline, Target};
use serde_json::Value;

fn traced(f: impl Fn(&Tensor) -> Tensor) -> Program {
    trace(|x: &[Tensor]| f(&x[0]), &[Spec::cpu(DType::F32, [100])]).expect("a program")
}

/// The second of two programs, as a pass made it.
fn change(before: Program, after: Program) -> Value {
    let stages = vec![("trace".to_string(), before), ("pass".to_string(), after)];
    let shown =
        as_json(&Compiled { what: "two".into(), stages, specialisation: None }).expect("shown");
    shown["stages"][1].clone()
}

fn counts(stage: &Value) -> [u64; 6] {
    ["added", "rewired", "unused", "duplicate", "replaced", "fused"]
        .map(|name| stage[name].as_u64().expect("a count"))
}

/// The same function, whatever is left out of it.
fn function(x: &Tensor, unused: bool, twice: bool, other: bool) -> Tensor {
    if unused {
        let _ = x.exp();
    }
    let s = x.sin();
    let t = if twice { x.sin() } else { s.clone() };
    let u = if other { x.cos() } else { t };
    (s * u).tanh().sum()
}

#[test]
fn names_do_not_count() {
    let plain = || traced(|x| function(x, false, false, false));
    let same = change(plain(), plain());
    assert!(same["unchanged"] == true && counts(&same) == [0; 6], "{same}");
    // An equation less at the start renames everything after it.
    let unused = change(traced(|x| function(x, true, false, false)), plain());
    assert_eq!(counts(&unused), [0, 0, 1, 0, 0, 0], "{unused}");
    assert_eq!(unused["gone"][0]["how"], "unused");
    let duplicate = change(traced(|x| function(x, false, true, false)), plain());
    assert_eq!(counts(&duplicate)[3], 1, "{duplicate}");
    assert_eq!(counts(&duplicate)[0], 0, "{duplicate}");
}

/// What comes after a change is what it was: only the equation with another operand says so.
#[test]
fn a_change_does_not_make_everything_after_it_new() {
    let before = traced(|x| function(x, false, true, false));
    // A cosine stands in for a sine: the product of it is what it was.
    let stage = change(before, traced(|x| function(x, false, false, true)));
    let [added, rewired, ..] = counts(&stage);
    assert_eq!((added, rewired), (1, 0), "{stage}");
    // The sine, which was there, takes the place of the cosine: the product has another operand.
    let other = traced(|x| function(x, false, false, true));
    let stage = change(other, traced(|x| function(x, false, false, false)));
    let [added, rewired, ..] = counts(&stage);
    assert_eq!((added, rewired), (0, 1), "{stage}");
    let states: Vec<(&str, &str)> = stage["equations"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|e| (e["op"].as_str().expect("an op"), e["state"].as_str().expect("a state")))
        .collect();
    assert!(states.contains(&("mul", "rewired")), "{states:?}");
    assert!(states.contains(&("tanh", "kept")) && states.contains(&("sum", "kept")), "{states:?}");
}

#[test]
fn every_equation_is_accounted_for() {
    let program = traced(|x| ((x * 2.0).sin() + x.exp() * 1.0).square().sum());
    let passes = Pipeline::standard(Target::default(), |_, _| None);
    let (_, stages) = passes.run_in_stages(&program).expect("it compiles");
    let named = stages.into_iter().map(|s| (s.name.to_string(), s.program));
    let stages = std::iter::once(("trace".to_string(), program)).chain(named).collect();
    let answer =
        as_json(&Compiled { what: "f".into(), stages, specialisation: None }).expect("shown");
    let mut fused = 0;
    for stage in answer["stages"].as_array().expect("a list") {
        let n = |name: &str| stage[name].as_u64().expect("a count");
        assert_eq!(n("before") + n("added") - n("removed"), n("after"), "{stage}");
        let fates = n("unused") + n("duplicate") + n("replaced") + n("fused");
        assert_eq!(fates, n("removed"), "{stage}");
        if stage["name"] == "fuse" {
            fused = n("fused");
            assert!(n("into") >= 1, "{stage}");
        }
    }
    assert!(fused >= 3, "{answer}");
}

/// The order alone is a change too, and regions are known by their numbers in the last stage.
#[test]
fn what_moves_is_said_and_keeps_its_name() {
    let ordered = |first: bool| {
        traced(move |x| {
            let (a, b) = if first {
                let a = x.sin();
                (a, x.exp())
            } else {
                let b = x.exp();
                (x.sin(), b)
            };
            (a * b).sum()
        })
    };
    let stage = change(ordered(true), ordered(false));
    assert!(counts(&stage) == [0; 6] && stage["moved"] == 1, "{stage}");
    assert!(stage["unchanged"] == false && stage["equations"][0]["op"] == "exp", "{stage}");

    let specs = [Spec::cpu(DType::F32, [100]), Spec::cpu(DType::F32, [7])];
    let two = |x: &[Tensor]| pullback::cat(&[&(&x[0] * 3.0).sin(), &x[1].exp().tanh()], 0);
    let program = trace(two, &specs).expect("a program");
    let passes = Pipeline::standard(Target::default(), |_, _| None);
    let (_, mut stages) = passes.run_in_stages(&program).expect("it compiles");
    let fused = stages.pop().expect("a stage").program;
    let is_region = |i: &usize| matches!(fused.equations[*i].op, Op::Region(_));
    let at: Vec<usize> = (0..fused.equations.len()).filter(is_region).collect();
    assert_eq!(at.len(), 2, "{fused}");
    let mut moved = fused.clone();
    moved.equations.swap(at[0], at[1]);
    let stages = [("trace", program), ("fuse", fused), ("schedule", moved)];
    let stages = stages.map(|(name, program)| (name.to_string(), program)).to_vec();
    let answer =
        as_json(&Compiled { what: "f".into(), stages, specialisation: None }).expect("shown");
    let name_of = |stage: usize, equation: usize| {
        answer["stages"][stage]["equations"][equation]["region"].as_u64().expect("a region")
    };
    assert_eq!([name_of(1, at[0]), name_of(1, at[1])], [1, 0], "{answer}");
    assert_eq!([name_of(2, at[0]), name_of(2, at[1])], [0, 1], "{answer}");
    for region in answer["regions"].as_array().expect("a list") {
        let equation = region["equation"].as_u64().expect("a number") as usize;
        assert_eq!(name_of(2, equation), region["id"].as_u64().expect("a number"));
    }
    let sine = answer["stages"][1]["gone"].as_array().expect("a list").iter();
    let into: Vec<&Value> =
        sine.filter(|g| g["text"].as_str().unwrap_or("").contains("sin")).collect();
    assert!(!into.is_empty() && into.iter().all(|gone| gone["region"] == 1), "{answer}");
}

/// Regions that a matrix product takes along are found again by all of their ops.
#[test]
fn regions_that_grow_are_told_apart() {
    let specs = [[16, 16], [16, 16], [16, 16]].map(|shape| Spec::cpu(DType::F32, shape));
    let three = |x: &[Tensor]| {
        let a = (x[0].matmul(&x[1]) + &x[2] + &x[0]).relu();
        let b = (a.matmul(&x[1]) + &x[2]).tanh();
        (b.matmul(&x[1]) + &x[2]).exp()
    };
    let program = trace(three, &specs).expect("a program");
    let passes = Pipeline::standard(Target::default(), |_, _| None);
    let (_, stages) = passes.run_in_stages(&program).expect("it compiles");
    let named = stages.into_iter().map(|s| (s.name.to_string(), s.program));
    let stages = std::iter::once(("trace".to_string(), program)).chain(named).collect();
    let answer =
        as_json(&Compiled { what: "f".into(), stages, specialisation: None }).expect("shown");
    let of = |what: &str| {
        let has = |r: &&Value| r["ops"].as_array().expect("a list").iter().any(|op| op == what);
        answer["regions"].as_array().expect("a list").iter().find(has).expect("a region")["id"]
            .clone()
    };
    let [first, second, third] = ["relu", "tanh", "exp"].map(of);
    assert!(first != second && second != third && first != third, "{answer}");
    let stages = answer["stages"].as_array().expect("a list");
    for stage in stages {
        for (op, region) in [("relu", &first), ("tanh", &second), ("exp", &third)] {
            let gone = stage["gone"].as_array().expect("a list").iter();
            let mine = |g: &&Value| g["text"].as_str().unwrap_or("").contains(&format!("= {op} "));
            for gone in gone.filter(mine).filter(|g| g["how"] == "fused") {
                assert_eq!(&gone["region"], region, "{op} in {}", stage["name"]);
            }
        }
        // The regions of every stage are, in order, what they became.
        let listed = stage["equations"].as_array().expect("a list").iter();
        let regions: Vec<&Value> = listed.map(|e| &e["region"]).filter(|r| !r.is_null()).collect();
        if !regions.is_empty() {
            assert_eq!(regions, [&first, &second, &third], "{}", stage["name"]);
        }
    }
    let fused = stages.iter().filter(|s| s["fused"].as_u64() > Some(0)).count();
    assert!(fused >= 2, "the products take the regions along: {answer}");
}

#[test]
fn regions_have_the_code_of_this_machine() {
    let program = traced(|x| (x * 3.0 + 0.125).sqrt() * x);
    let passes = Pipeline::standard(Target::default(), |_, _| None);
    let (_, mut stages) = passes.run_in_stages(&program).expect("it compiles");
    let last = stages.pop().expect("a stage").program;
    assert!(last.equations.iter().any(|e| matches!(e.op, Op::Region(_))));
    let stages = vec![("all".to_string(), last.clone())];
    let answer =
        as_json(&Compiled { what: "f".into(), stages, specialisation: None }).expect("shown");
    let region = &answer["regions"][0];
    let native = std::env::var_os("PULLBACK_NATIVE").is_none_or(|v| v != "0");
    #[cfg(target_arch = "x86_64")]
    if native && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        let code = region["native"].as_str().expect("machine code");
        assert_eq!(code, native_code(&last).expect("it is prepared")[0].text);
        for part in ["f0:", "top:", "rest:", "done:", "jae top", "vsqrtps", "vmulps", "ret"] {
            assert!(code.contains(part), "{part} is missing in\n{code}");
        }
        // The body is there twice: for whole registers, and for the rest.
        assert_eq!(code.matches("vsqrtps").count(), 2, "{code}");
        return;
    }
    let _ = native;
    assert!(region["native"].is_null());
}
