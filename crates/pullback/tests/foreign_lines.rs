//! Lines that the Rust compiler does not know: of another language, or of a recorded program.

use pullback::{Line, Program, Tensor, catch, detect_anomaly, memory_report, trace, with_line};

fn script(line: u32) -> Line {
    Line::named("model.py", line, 0)
}

#[test]
fn a_handle_is_small_and_the_same_for_the_same_line() {
    assert_eq!((size_of::<Line>(), size_of::<Option<Line>>()), (8, 8));
    assert_eq!(script(3), script(3));
    assert_ne!(script(3), script(4));
    assert_ne!(script(3), Line::named("model.py", 3, 1));
    let here = || Line::caller();
    assert_eq!(here(), here());
    // The same place is the same line however it was found, on any thread.
    let (one, line) = (Line::caller(), line!());
    assert_eq!(one, Line::named(file!(), line, one.column()));
    assert_eq!(std::thread::spawn(here).join().unwrap(), here());
    // More lines than a thread keeps at hand.
    let many: Vec<Line> = (1..2000).map(script).collect();
    assert!(many.iter().zip(1..).all(|(at, n)| at.line() == n && *at == script(n)));
}

#[test]
fn errors_name_the_line_of_a_script() {
    let x = Tensor::ones([2, 3]);
    let error = with_line(script(12), || catch(|| x.matmul(&x))).unwrap_err();
    assert!(error.to_string().ends_with("at model.py:12"), "{error}");
    let outside = catch(|| x.matmul(&x)).unwrap_err();
    assert_eq!(outside.location().unwrap().file(), file!());
    // A rule that fails in backward names the line of the forward op.
    let zero = Tensor::from(0.0).requires_grad();
    let y = with_line(script(13), || zero.sqrt());
    let error = detect_anomaly(|| y.backward()).unwrap_err();
    assert!(error.to_string().contains("model.py:13"), "{error}");
}

#[test]
fn programs_carry_the_line_through_their_text() {
    let x = Tensor::ones([3]);
    let f = |x: &[Tensor]| with_line(script(21), || x[0].sin()) * 2.0;
    let program = trace(f, &[x.spec().clone()]).unwrap();
    let found = |p: &Program| p.equations.iter().any(|e| e.at == Some(script(21)));
    assert!(found(&program), "{program}");
    let again: Program = program.to_string().parse().unwrap();
    assert!(found(&again), "{program}\n{again}");
}

#[test]
fn memory_reports_name_the_line_of_a_script() {
    let x = Tensor::ones([64, 64]).requires_grad();
    let ((), report) =
        memory_report(|| with_line(script(30), || x.exp()).sum().backward()).unwrap();
    assert!(report.to_string().contains("model.py:30"), "{report}");
}
