//! What passes do in cases that matter, and that random programs reach them.

use super::generate::Choices;
use super::interpret::run;
use super::meaning::same_bits;
use pullback_ir::pass::*;
use pullback_ir::*;

/// Which rewrites of passes were exercised.
#[test]
fn random_programs_reach_every_case() {
    let mut reached = std::collections::BTreeMap::<&str, usize>::new();
    let mut note = |what, when: bool| *reached.entry(what).or_default() += usize::from(when);
    for seed in 0..600u64 {
        let mix = |i: u64| (seed * 1000 + i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut choices = Choices((0..50).map(mix).collect(), 0);
        let program = dead_code(&choices.program(32, false));
        let fused = fuse(&program);
        for (i, e) in fused.equations.iter().enumerate() {
            let Op::Region(region) = &e.op else { continue };
            let values = region.values().unwrap();
            let row = |of: &[usize]| {
                of.iter().any(|&v| values[v].row && !matches!(region.body[v], Inst::Literal(..)))
            };
            note("region", true);
            note("several results", region.outputs.len() > 1);
            note("a reduction", region.body.iter().any(|inst| matches!(inst, Inst::Reduce(..))));
            note(
                "a row with elements",
                region.body.iter().zip(&values).any(
                    |(inst, value)| matches!(inst, Inst::Point(_, of) if !value.row && row(of)),
                ),
            );
            note(
                "an op of rows",
                region.body.iter().zip(&values).any(
                    |(inst, value)| matches!(inst, Inst::Point(_, of) if value.row && row(of)),
                ),
            );
            note("a counter", region.body.iter().any(|inst| matches!(inst, Inst::Index(..))));
            note("random numbers", region.body.iter().any(|inst| matches!(inst, Inst::Random(..))));
            note("a strided load", region.inputs.iter().any(|load| !load.layout.is_dense()));
            let reshape = |next: &Equation| {
                matches!(next.op, Op::View(View::Reshape(_))) && e.outputs.contains(&next.inputs[0])
            };
            note("a result reshaped", fused.equations.get(i + 1).is_some_and(reshape));
        }
        let epilogues = epilogue(&fused);
        note("an epilogue", epilogues.equations.iter().any(|e| matches!(e.op, Op::DotRegion(_))));
        let simple = dead_code(&simplify(&program));
        note("a rewrite", simple != program);
        let laid = dead_code(&layout(&simple));
        note("a larger product", laid != simple);
        let again = remat_where(&program, Remat { near: 1, worth: 0 });
        note("a value computed again", again.equations.len() > program.equations.len());
        let ordered = schedule(&program);
        note("a better order", peak_bytes(&ordered) < peak_bytes(&program));
        note("control flow", program.equations.iter().any(|e| matches!(e.op, Op::Flow(_))));
    }
    let rare: Vec<_> = reached.iter().filter(|(_, count)| **count < 5).collect();
    assert!(rare.is_empty(), "{rare:?} of {reached:?}");
}

/// A sum over a long row is known at the end only, so what uses it together with elements is
/// another region.
#[test]
fn long_rows_have_one_stage() {
    let text = |n: usize| {
        format!(
            "program (a: f32[{n}]) {{ let b: f32[{n}] = exp a; let c: f32[] = sum{{[0]}} b; let d: f32[] = neg c; let e: f32[{n}] = broadcast{{[{n}]}} d; let f: f32[{n}] = mul b e; return f }}"
        )
    };
    let regions = |n: usize| {
        let fused = fuse(&text(n).parse().unwrap());
        fused.verify().unwrap();
        fused.equations.len()
    };
    assert_eq!(regions(65536), 1);
    assert_eq!(regions(65537), 2);
}

#[test]
fn thousands_of_scalars_become_one_region() {
    let mut program = Program::default();
    let scalar = Spec::cpu(DType::F64, Shape::new());
    let mut state = [0, 1, 2].map(|_| program.input(scalar.clone()));
    for i in 0..3000 {
        let [a, b, c] = state;
        let half = Op::literal((f64::from(i) / 2.0).into(), Spec::cpu(DType::F64, []));
        let half = program.push(half, &[], None).unwrap()[0];
        let d = program.push(Op::Binary(Binary::Mul), &[a, half], None).unwrap()[0];
        let test = program.push(Op::Compare(Compare::Lt), &[d, b], None).unwrap()[0];
        state = [b, c, program.push(Op::Select, &[test, c, d], None).unwrap()[0]];
    }
    program.outputs = state.to_vec();
    let fused = fuse(&program);
    fused.verify().unwrap();
    assert_eq!(fused.equations.len(), 1);
    let inputs = vec![vec![0.5], vec![-0.25], vec![3.0]];
    assert!(same_bits(&run(&program, &inputs), &run(&fused, &inputs)));
}

#[test]
fn limits_are_kept() {
    let little = Limits { instructions: 10, inputs: 4, small: 2, ..Limits::default() };
    for (rows, limits) in
        [(4, Limits::default()), (4, little), (40, Limits::default()), (40, little)]
    {
        let mut program = Program::default();
        let spec = Spec::cpu(DType::F32, [rows, 4].as_slice());
        let mut sum = program.input(spec.clone());
        for _ in 0..300 {
            let next = program.input(spec.clone());
            sum = program.push(Op::Binary(Binary::Add), &[sum, next], None).unwrap()[0];
        }
        program.outputs = vec![sum];
        let fused = fuse_within(&program, limits);
        fused.verify().unwrap();
        let times = if rows == 4 { limits.small } else { 1 };
        let mut most = 0;
        for e in &fused.equations {
            if let Op::Region(region) = &e.op {
                assert!(region.body.len() <= limits.instructions * times);
                assert!(region.inputs.len() <= limits.inputs * times);
                most = most.max(region.inputs.len());
            }
        }
        // And used: every sum has one operand more than the one before.
        assert!(most > limits.inputs * times - 2, "{most} operands");
        assert!(fused.equations.len() < 150);
    }
}

#[test]
fn a_scan_of_one_turn_is_its_body() {
    // A carry that is only passed on, a result that is an operand, and nested scans of one
    // iteration.
    let single = "scan{length=1,reverse=true,shared=1,carry=2,kept=0,
        body=(s: f64[3], a: f64[3], b: f64[], x: f64[3]) {
          let c: f64[3] = mul s x
          let d: f64[3] = add c a
          return d, b, x, d
        }}";
    let text = format!(
        "program (s: f64[3], a: f64[3], b: f64[], x: f64[1,3]) {{
           let c: f64[3], d: f64[], e: f64[1,3], f: f64[1,3] = {single} s a b x
           let g: f64[3], h: f64[], i: f64[2,3] = scan{{length=2,reverse=false,shared=2,carry=2,kept=0,
             body=(s: f64[3], x: f64[1,3], a: f64[3], b: f64[]) {{
               let c: f64[3], d: f64[], e: f64[1,3], f: f64[1,3] = {single} s a b x
               let g: f64[3] = reshape{{[3]}} f
               return c, d, g
             }}
           }} s x c d
           return c, d, e, f, g, h, i
         }}"
    );
    let program: Program = text.parse().unwrap();
    let inlined = inline(&program);
    inlined.verify_deeply().unwrap();
    assert_eq!(inlined.to_string().matches("length=1").count(), 0, "{inlined}");
    assert_eq!(inlined.to_string().matches("length=2").count(), 1, "{inlined}");
    assert_eq!(inline(&inlined), inlined);
    let inputs = vec![vec![1.0, 2.0, 3.0], vec![0.5; 3], vec![7.0], vec![-1.0, 0.25, 3.0]];
    assert!(same_bits(&run(&program, &inputs), &run(&inlined, &inputs)));
}

#[test]
fn a_wrong_pass_is_named() {
    let program: Program = "program (a: f32[]) { let b: f32[] = neg a; return b }".parse().unwrap();
    let spoil =
        |p: &Program| Program { specs: vec![Spec::cpu(DType::F64, Shape::new()); 2], ..p.clone() };
    let spoil_later = move |p: &Program| {
        let mut p = spoil(p);
        p.inputs.clear();
        p
    };
    let error = Pipeline::new()
        .then("dead_code", dead_code)
        .then("spoil", spoil_later)
        .verified(true)
        .run(&program);
    assert!(error.unwrap_err().to_string().contains("after the pass `spoil`"));
}

/// Every rule has a unique name and a description.
#[test]
fn rewrites_are_named() {
    let names: std::collections::BTreeSet<&str> = REWRITES.iter().map(|r| r.name).collect();
    assert_eq!(names.len(), REWRITES.len());
    assert!(REWRITES.iter().all(|r| !r.says.is_empty()));
}

/// What `chunk` leaves of its gradient, in any order: one `cat`. Zeros keep their signs.
#[test]
fn parts_of_zeros_become_one_cat() {
    let text = |middle: &str, order: &str| {
        format!(
            "program (a: f32[2,3], b: f32[2,1], c: f32[2,2]) {{
               let z: f32[2,6] = literal{{0.0: f32[2,6]}};
               let p: f32[2,6] = put{{[slice{{[0:2:1, 0:3:1]}}]}} z a;
               let q: f32[2,6] = put{{[slice{{[0:2:1, {middle}]}}]}} z b;
               let r: f32[2,6] = put{{[slice{{[0:2:1, 4:2:1]}}]}} z c;
               {order}
               return e
             }}"
        )
    };
    let left = "let d: f32[2,6] = add p q; let e: f32[2,6] = add d r;";
    let right = "let d: f32[2,6] = add p r; let e: f32[2,6] = add q d;";
    let inputs =
        vec![vec![1.0, -0.0, 0.0, -3.0, f64::INFINITY, 2.0], vec![-0.0, 5.0], vec![-0.0; 4]];
    for (middle, order, joined) in [
        ("3:1:1", left, true),
        ("3:1:1", right, true),
        ("2:1:1", left, false),
        ("5:1:1", right, false),
    ] {
        let program: Program = text(middle, order).parse().unwrap();
        let simple = dead_code(&simplify(&program));
        simple.verify().unwrap();
        let count = |name: &str| simple.equations.iter().filter(|e| e.op.name() == name).count();
        assert_eq!((count("cat") == 1, count("put") == 0), (joined, joined), "{simple}");
        assert_eq!(simplify(&simple), simple);
        assert!(same_bits(&run(&program, &inputs), &run(&simple, &inputs)), "{simple}");
    }
}
