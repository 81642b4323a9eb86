//! `pullback grad`: recorded texts, carets, and numbers that are known.

mod run;

use run::{command, golden, ran, run};
use serde_json::Value;

#[test]
fn recorded_texts() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 8] = [
        ("grad.txt",           &["grad", "x*y + sin(x*y)", "x=2", "y=3"]),
        ("grad_both.txt",      &["grad", "x*y + sin(x*y)", "x=2", "y=3", "--mode", "both"]),
        ("grad.json",          &["grad", "x*y + sin(x*y)", "x=2", "y=3", "--json", "--mode", "both"]),
        ("grad.dot",           &["grad", "x*y + sin(x*y)", "x=2", "y=3", "--dot"]),
        ("grad_vectors.txt",   &["grad", "sum(relu(W @ x - 1)^2)", "W=[[1, 2], [3, 4]]", "x=[2, -0.5]"]),
        ("grad_cotangent.txt", &["grad", "x^2", "x=[1, 2, 3]", "--cotangent", "[10, 1, 0.1]"]),
        ("grad_jacobian.txt",  &["grad", "x^2/y", "x=[1, 2, 3]", "y=2", "--jacobian"]),
        ("grad_hessian.txt",   &["grad", "a = x*y; a + exp(a)", "x=1", "y=0.5", "--hessian"]),
    ];
    for (name, words) in cases {
        let ran = run(words);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}");
        golden(name, &ran.out);
    }
}

/// The environment may cap the instruction set; what it says is checked before anything runs.
#[test]
fn a_cap_of_the_instruction_set_holds_or_is_a_sentence() {
    let capped = |level: &str, words: &[&str]| {
        ran(command(words).env("PULLBACK_ISA", level).output().expect("the program starts"))
    };
    let baseline = capped("baseline", &["devices"]);
    assert_eq!(baseline.code, 0, "{}", baseline.err);
    assert!(
        baseline.out.starts_with("cpu: ") && baseline.out.contains(" baseline"),
        "{baseline:?}"
    );
    let wrong = capped("avx1024", &["grad", "x^2", "x=1"]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    let sentence =
        "PULLBACK_ISA: `avx1024` is not an instruction set: baseline, avx2 and avx512 are";
    assert!(wrong.err.contains(sentence), "{wrong:?}");
}

/// The gradient as JSON gives it.
fn gradient(words: &[&str]) -> Value {
    let ran = run(&[&["grad"], words, &["--json"]].concat());
    assert_eq!(ran.code, 0, "{words:?}: {}", ran.err);
    serde_json::from_str::<Value>(&ran.out).expect("JSON")["gradient"].clone()
}

#[test]
fn gradients_are_right() {
    #[rustfmt::skip]
    let cases: [(&[&str], &str, f64); 20] = [
        (&["x*y + sin(x*y)", "x=2", "y=3"], "x", 3.0 * (1.0 + 6f64.cos())),
        (&["x*y + sin(x*y)", "x=2", "y=3"], "y", 2.0 * (1.0 + 6f64.cos())),
        (&["-x^2", "x=3"],             "x", -6.0),
        (&["(-x)^2", "x=3"],           "x", 6.0),
        (&["2^-x", "x=1"],             "x", -0.5 * 2f64.ln()),
        (&["x^y", "x=2", "y=3"],       "y", 8.0 * 2f64.ln()),
        (&["2^x^2", "x=1"],            "x", 4.0 * 2f64.ln()),
        (&["x - 1 - 2*x", "x=5"],      "x", -1.0),
        (&["8 / x / 2", "x=2"],        "x", -1.0),
        (&["1e-3*x + .5*x + 2.*x", "x=1"], "x", 2.501),
        (&["ln(x) + e^x", "x=1"],      "x", 1.0 + 1f64.exp()),
        (&["pi * x", "x=1"],           "x", std::f64::consts::PI),
        (&["x·x × 2 − x ÷ 2", "x=3"],  "x", 11.5),
        (&["x ** 3", "x=2"],           "x", 12.0),
        (&["max([x, 2*x, 3])", "x=2"], "x", 2.0),
        (&["atan2(x, 1)", "x=1"],      "x", 0.5),
        (&["where(x >= 0, x^3, -x)", "x=2"], "x", 12.0),
        (&["stop_gradient(x) * x", "x=3"], "x", 3.0),
        (&["a = x; b = a*a; b*a; ", "x=2"], "x", 12.0),
        (&["dot([1, 2, 3], [x, x^2, x^3])", "x=2"], "x", 1.0 + 8.0 + 36.0),
    ];
    for (words, name, wanted) in cases {
        let found = gradient(words)[name].as_f64().expect("a number");
        assert!(
            (found - wanted).abs() < 1e-12 * wanted.abs().max(1.0),
            "{words:?}: {found} is not {wanted}"
        );
    }
    let list = |value: &Value| serde_json::from_value::<Vec<f64>>(value.clone()).expect("a list");
    assert_eq!(list(&gradient(&["sum(x^2)", "x=[1, 2, 3]"])["x"]), [2.0, 4.0, 6.0]);
    assert_eq!(list(&gradient(&["x[1]*x[-1]", "x=[1, 2, 3]"])["x"]), [0.0, 3.0, 2.0]);
    let w = gradient(&["sum(W @ [x, 1])", "x=2", "W=[[1, 2], [3, 4]]"]);
    assert_eq!((w["W"].to_string(), w["x"].as_f64()), ("[[2.0,1.0],[2.0,1.0]]".into(), Some(4.0)));
}

#[test]
fn the_adjoints_of_the_tape_are_there() {
    let ran = run(&["grad", "x*y + sin(x*y)", "x=2", "y=3", "--json"]);
    let found: Value = serde_json::from_str(&ran.out).expect("JSON");
    let steps = found["steps"].as_array().expect("a list");
    assert_eq!(steps.len(), 3, "x*y is computed once");
    let number = |value: &Value| value.as_f64().expect("a number");
    assert!((number(&steps[0]["adjoint"]) - (1.0 + 6f64.cos())).abs() < 1e-15);
    assert!((number(&steps[1]["operands"][0]["local"]) - 6f64.cos()).abs() < 1e-15);
}

#[test]
fn forward_mode_costs_a_pass_per_input() {
    let ran = run(&["grad", "x*y*z*w", "x=1", "y=2", "z=3", "w=4", "--mode", "both", "--json"]);
    let cost = serde_json::from_str::<Value>(&ran.out).expect("JSON")["cost"].clone();
    assert_eq!(cost["function"]["multiplications"], 3);
    assert_eq!(
        (cost["forward"]["passes"].as_u64(), cost["reverse"]["passes"].as_u64()),
        (Some(4), Some(1))
    );
    // Three products; with a cotangent, two more for each; with tangents, two more and a sum for
    // each, in every pass.
    let ops = ["function", "reverse", "forward"].map(|mode| cost[mode]["ops"].as_u64());
    assert_eq!(ops, [Some(3), Some(9), Some(4 * 12)], "{cost}");
    let of = |mode: &str| cost[mode]["multiplications"].as_u64().expect("a number");
    assert!(of("forward") > 2 * of("reverse"), "{cost}");
    assert!(cost["reverse"]["kept_bytes"].as_u64() > Some(0));
    assert_eq!(cost["forward"]["kept_bytes"], 0);
}

/// What is typed, the line with the carets, and what the message says. `code` is 2 for all of
/// them.
#[test]
fn bad_input_is_pointed_at() {
    #[rustfmt::skip]
    let cases: [(&[&str], &str, &str); 32] = [
        (&["x +"],                        "     ^",       "expected a number, a name, `(` or `[`, found the end"),
        (&["x +* y"],                     "     ^",       "found `*`"),
        (&[""],                           "  ^",          "found the end"),
        (&["(x"],                         "    ^",        "expected `)` to close the parenthesis, found the end"),
        (&["x)"],                         "   ^",         "expected an operator or the end, found `)`"),
        (&["2x", "x=1"],                  "   ^",         "expected an operator or the end, found `x`"),
        (&["x y", "x=1"],                 "    ^",        "expected an operator or the end, found `y`"),
        (&["x $ y"],                      "    ^",        "unexpected character `$`"),
        (&["[1, 2"],                      "       ^",     "expected `,` or `]` after an element, found the end"),
        (&["[]"],                         "   ^",         "found `]`"),
        (&["sin(x, y)", "x=1", "y=1"],    "  ^^^",        "`sin` takes 1 argument, not 2"),
        (&["sin()"],                      "  ^^^",        "`sin` takes 1 argument, not 0"),
        (&["sin(x", "x=1"],               "       ^",     "expected `,` or `)` after an argument, found the end"),
        (&["sum(x, 0, 1)", "x=[1]"],      "  ^^^",        "`sum` takes 1 to 2 arguments, not 3"),
        (&["snh(x)", "x=1"],              "  ^^^",        "there is no function `snh`; did you mean `sinh`"),
        (&["sin * x", "x=1"],             "  ^^^",        "`sin` is a function: write `sin(…)`"),
        (&["x + y", "x=1"],               "      ^",      "`y` has no value; add `y=…` after the expression"),
        (&["alpha + alhpa", "alpha=1"],   "          ^^^^^", "`alhpa` has no value; did you mean `alpha`?"),
        (&["x * [1, 2]", "x=[1, 2, 3]"],  "    ^",        "mul: shapes do not broadcast: f64[3] and f64[2]"),
        (&["x @ y", "x=[1, 2]", "y=[1, 2, 3]"], "    ^",  "matmul: inner dimensions differ"),
        (&["x + maximum([1, 2], [1, 2, 3])", "x=1"], "      ^^^^^^^", "maximum: shapes do not broadcast"),
        (&["x[2]", "x=[1, 2]"],           "   ^^^",       "index 2 is out of range"),
        (&["x[0.5]", "x=[1, 2]"],         "    ^^^",      "an index must be an integer"),
        (&["x[x]", "x=[1, 2]"],           "    ^",        "an index must be a plain number"),
        (&["sum(x, 7)", "x=[1, 2]"],      "  ^^^",        "axis 7 is out of range"),
        (&["[[1, 2], [3]] * x", "x=1"],   "  ^^^^^^^^^^^^^", "the elements of a list must have one shape, and these have f64[2] and f64[1]"),
        (&["a = x; a = 2; a", "x=1"],     "         ^",   "`a` is defined twice"),
        (&["e = 2; e*x", "x=1"],          "  ^",          "`e` is a constant"),
        (&["x < 1 < 2", "x=1"],           "        ^",    "comparisons cannot be chained"),
        (&["x", "x=1+"],                  "      ^",      "expected a number"),
        (&["x", "x=y"],                   "    ^",        "`y` has no value"),
        (&["x * 1e400", "x=1"],           "      ^^^^^",  "`1e400` is too large for f64; infinity is `inf`"),
    ];
    let mut wrong = String::new();
    for (words, carets, message) in cases {
        let ran = run(&[&["grad"], words].concat());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{words:?}");
        let lines: Vec<&str> = ran.err.lines().collect();
        let said = lines[0].starts_with("pullback: ") && lines[0].contains(message);
        if !said || lines.get(2) != Some(&carets) {
            wrong += &format!("{words:?}: {}", ran.err);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn what_makes_no_sense_is_said() {
    #[rustfmt::skip]
    let cases: [(&[&str], &str); 9] = [
        (&["1 + 2"],                          "no variables"),
        (&["x", "x=1", "x=2"],                "`x` is given twice"),
        (&["x", "x=1", "y=2"],                "`y` is given, but does not occur"),
        (&["x^2", "x=[1, 2]"],                "give --cotangent (such as '[1, 1]')"),
        (&["x^2", "x=[1, 2]", "--cotangent", "[1, 2, 3]"], "the cotangent is f64[3], but the result is f64[2]"),
        (&["x > 1", "x=2"],                   "a bool"),
        (&["x", "pi=3"],                      "`pi` is a constant"),
        (&["x", "1x=3"],                      "`1x` is not a name"),
        (&["x", "x"],                         "expected a variable and its value, such as `x=2`"),
    ];
    for (words, message) in cases {
        let ran = run(&[&["grad"], words].concat());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{words:?}");
        assert!(
            ran.err.starts_with("pullback: ") && ran.err.contains(message),
            "{words:?}: {}",
            ran.err
        );
    }
    // A derivative that the library refuses is a failure, not a mistake of the user.
    let ran = run(&["grad", "gammainc(x, 1)", "x=2"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("no closed form"), "{}", ran.err);
}

/// A variable may be called as steps are: then they have another letter.
#[test]
fn steps_and_variables_have_different_names() {
    let ran = run(&["grad", "v1*v2", "v1=3", "v2=4"]);
    assert!(ran.out.contains("  w1 = v1·v2  = 12  ∂w1/∂v1 = 4, ∂w1/∂v2 = 3"), "{}", ran.out);
    let json = run(&["grad", "v1*v2", "v1=3", "v2=4", "--json"]).out;
    assert_eq!(serde_json::from_str::<Value>(&json).expect("JSON")["steps"][0]["name"], "w1");
    assert!(run(&["grad", "v*x", "v=3", "x=4"]).out.contains("  v1 = v·x"));
}

/// Steps that change nothing, and slopes that are not finite, are no contradictions.
#[test]
fn odd_places_are_shown_too() {
    #[rustfmt::skip]
    let cases: [&[&str]; 5] = [
        &["sum(flatten(x)) + x[0]", "x=[1, 2]"],
        &["sum(transpose(x)) * x[1]", "x=[1, 2]"],
        &["sum(asin(x)) + y^2", "x=[2, 0.5]", "y=3"],
        &["sqrt(x) * y", "x=0", "y=2"],
        &["log(x) + 1/x", "x=0"],
    ];
    for words in cases {
        let ran = run(&[&["grad"], words, &["--mode", "both"]].concat());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}");
    }
}

#[test]
fn deep_and_long_expressions_end_well() {
    let deep = "(".repeat(100_000);
    let ran = run(&["grad", &deep, "x=1"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("inside each other"));
    let signs = format!("{}x", "-".repeat(5_000));
    assert_eq!(run(&["grad", &format!("0{signs}"), "x=1"]).code, 2);
    let long = vec!["x"; 2_000].join("+");
    let found = gradient(&[&long, "x=1"]);
    assert_eq!(found["x"].as_f64(), Some(2000.0));
}
