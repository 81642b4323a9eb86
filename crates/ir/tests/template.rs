//! Programs with open lengths.

use pullback_ir::template::{Lifted, Template, lift_literals, sample_points, varying_literals};
use pullback_ir::{DType, Program, Scalar, Spec};

fn program(text: String) -> Program {
    text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Scores of every position against every other, flattened, less the first row.
fn scores(n: usize) -> Program {
    let (square, rest) = (n * n, n * n - n);
    program(format!(
        "program (a: f32[{n},8]) {{
           let t: f32[8,{n}] = permute{{[1,0]}} a
           let s: f32[{n},{n}] = dot a t
           let f: f32[{square}] = reshape{{[{square}]}} s
           let r: f32[{rest}] = slice{{[{n}:{rest}:1]}} f
           return r
         }}"
    ))
}

fn fitted(lengths: &[usize], make: impl Fn(usize) -> Program) -> Result<Template, String> {
    let samples: Vec<_> = lengths.iter().map(|&n| (vec![n], make(n))).collect();
    Template::fit(&samples)
}

#[test]
fn squares_and_differences_are_found() {
    let template = fitted(&[37, 31, 29, 23], scores).unwrap();
    for n in 2..200 {
        let at = template.at(&[n]).unwrap();
        assert_eq!(at, scores(n));
        assert!(template.is(&at, &[n]) && !template.is(&at, &[n + 1]));
        at.verify().unwrap();
    }
}

#[test]
fn what_has_no_polynomial_is_refused() {
    let padded = |n: usize| {
        let m = n.next_multiple_of(8);
        let after = m - n;
        program(format!(
            "program (a: f32[{n}]) {{ let b: f32[{m}] = pad{{[0:{after}:0]}} a; return b }}"
        ))
    };
    let error = fitted(&[37, 31, 29, 23], padded).err().unwrap();
    assert!(error.contains("not a polynomial"), "{error}");
    // Too few samples say nothing.
    assert!(fitted(&[37, 31, 29], scores).is_err());
    // Other equations.
    let branching = |n: usize| match n > 30 {
        true => program(format!("program (a: f32[{n}]) {{ let b: f32[{n}] = exp a; return b }}")),
        false => program(format!("program (a: f32[{n}]) {{ let b: f32[{n}] = sin a; return b }}")),
    };
    let error = fitted(&[37, 31, 29, 23], branching).err().unwrap();
    assert!(error.contains("`exp` differs from `sin`"), "{error}");
}

#[test]
fn a_size_that_would_be_negative_is_none() {
    let shorter = |n: usize| {
        let m = n - 10;
        program(format!(
            "program (a: f32[{n}]) {{ let b: f32[{m}] = slice{{[10:{m}:1]}} a; return b }}"
        ))
    };
    let template = fitted(&[37, 31, 29, 23], shorter).unwrap();
    assert_eq!(template.at(&[12]).unwrap(), shorter(12));
    assert!(template.at(&[9]).is_none());
    // An axis of length 1 or 0 is a special case of the passes.
    assert!(template.at(&[11]).is_none() && template.at(&[10]).is_none());
}

#[test]
fn two_lengths() {
    let make = |b: usize, n: usize| {
        let (rows, all) = (b * n, b * n * n);
        program(format!(
            "program (a: f32[{b},{n},4], w: f32[4,{n}]) {{
               let r: f32[{rows},4] = reshape{{[{rows},4]}} a
               let s: f32[{rows},{n}] = dot r w
               let f: f32[{all}] = reshape{{[{all}]}} s
               return f
             }}"
        ))
    };
    let points = sample_points(&[vec![13, 11, 7, 5], vec![31, 29, 23, 19]]).unwrap();
    let samples: Vec<_> = points.iter().map(|p| (p.clone(), make(p[0], p[1]))).collect();
    let template = Template::fit(&samples).unwrap();
    for b in 2..20 {
        for n in [2, 3, 10, 64, 511] {
            assert_eq!(template.at(&[b, n]).unwrap(), make(b, n), "{b} {n}");
        }
    }
    assert!(sample_points(&[vec![5, 3, 2]]).is_none());
}

#[test]
fn literals_that_depend_on_a_length_become_inputs() {
    let mean = |n: usize| {
        let share = 1.0 / n as f64;
        program(format!(
            "program (a: f64[{n}]) {{
               let s: f64[] = sum{{[0]}} a
               let two: f64[] = literal{{2.0: f64[]}}
               let l: f64[] = literal{{{share:?}: f64[]}}
               let m: f64[] = mul s l
               let d: f64[] = mul m two
               return d
             }}"
        ))
    };
    let lengths = [37, 31, 29, 23];
    let programs = lengths.map(mean);
    let varying = varying_literals(&programs.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(varying, [2]);
    let samples: Vec<_> = lengths
        .iter()
        .zip(programs)
        .map(|(&n, p)| (vec![n], lift_literals(p, &varying).unwrap().0))
        .collect();
    let template = Template::fit(&samples).unwrap();
    let (lifted, values) = lift_literals(mean(5), &varying).unwrap();
    assert!(template.is(&lifted, &[5]));
    assert_eq!(values, [Lifted { value: Scalar::from(0.2), spec: Spec::cpu(DType::F64, []) }]);
    lifted.verify().unwrap();
    assert!(lift_literals(mean(5), &[0]).is_err());
}
