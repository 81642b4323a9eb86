//! Programs as text: exact both ways, readable, and read without a panic whatever the text. As JSON
//! and graphs.

use proptest::prelude::*;
use pullback_ir::*;
use smallvec::SmallVec;
use std::sync::Arc;

/// Choices from a list of numbers, so that one strategy makes whole programs.
struct Choices(Vec<u64>, usize);

impl Choices {
    fn next(&mut self) -> u64 {
        self.1 += 1;
        let at = self.0.get(self.1 % self.0.len()).copied().unwrap_or(0);
        at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(self.1 as u64).rotate_left(17)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn scalar(&mut self) -> Scalar {
        match self.below(4) {
            0 => Scalar::Int(self.next() as i64),
            1 => Scalar::Bool(self.below(2) == 0),
            2 => Scalar::Float(Real(f64::from_bits(self.next()))),
            _ => {
                let odd =
                    [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, 0.1];
                Scalar::Float(Real(odd[self.below(8)]))
            }
        }
    }

    fn shape(&mut self) -> Shape {
        (0..self.below(6)).map(|_| self.below(9)).collect()
    }

    fn dtype(&mut self) -> DType {
        DType::ALL[self.below(8)]
    }

    fn spec(&mut self) -> Spec {
        Spec::on(self.device(), self.dtype(), self.shape())
    }

    fn device(&mut self) -> Device {
        if self.below(3) > 0 { Device::Cpu } else { Device::Cuda(self.below(9) as u16) }
    }

    fn place(&mut self) -> Option<Line> {
        let files =
            ["src/a.rs", "C:\\x\\b.rs", " a b", "*/", "%", "", "a\nb", "ü:3:4", "\u{2028}//"];
        (self.below(2) == 0)
            .then(|| Line::named(files[self.below(9)], self.next() as u32, self.below(100) as u32))
    }

    fn region(&mut self) -> Arc<Region> {
        let shape = self.shape();
        let load = |c: &mut Choices| {
            let spec = c.spec();
            let layout = match c.below(3) {
                0 => Layout::dense(shape.clone()),
                1 => Layout::splat(shape.clone()),
                _ => {
                    let mut layout = Layout::dense(c.shape());
                    layout.strides.iter_mut().for_each(|s| *s *= c.below(7) as isize - 3);
                    Layout { offset: c.below(1000), ..layout }
                }
            };
            Load { spec, layout }
        };
        let inputs = (0..self.below(4)).map(|_| load(self)).collect();
        let body = (0..self.below(9))
            .map(|_| match self.below(6) {
                0 => Inst::Load(self.below(5)),
                1 => Inst::Literal(self.scalar(), self.dtype()),
                2 => Inst::Index(self.below(5), self.dtype()),
                3 => Inst::Random(Random::ALL[self.below(3)], self.below(4), self.dtype()),
                4 => Inst::Reduce(Reduction::ALL[self.below(4)], self.below(9)),
                _ => {
                    let point: Vec<Op> = Op::forms().filter(Op::is_pointwise).collect();
                    let of: SmallVec<[usize; 3]> =
                        (0..self.below(4)).map(|_| self.below(99)).collect();
                    Inst::Point(point[self.below(point.len())].clone(), of)
                }
            })
            .collect();
        let outputs = (0..self.below(3)).map(|_| self.below(9)).collect();
        let (device, inner) = (self.device(), self.below(4));
        let columns = (0..self.below(2)).map(|_| self.below(9)).collect();
        Arc::new(Region { device, shape, inner, inputs, body, outputs, columns })
    }

    fn op(&mut self, depth: usize) -> Op {
        match self.below(if depth > 0 { 12 } else { 9 }) {
            0 => Op::Region(self.region()),
            1 => Op::DotRegion(self.region()),
            2 => Op::literal(self.scalar(), self.spec()),
            3..9 => {
                let forms: Vec<Op> = Op::forms().collect();
                forms[self.below(forms.len())].clone()
            }
            9 => Op::Flow(Arc::new(Flow::Cond {
                yes: self.program(depth - 1),
                no: self.program(depth - 1),
            })),
            10 => Op::Flow(Arc::new(Flow::While {
                test: self.program(depth - 1),
                body: self.program(depth - 1),
                shared: self.below(4),
            })),
            _ => Op::Flow(Arc::new(Flow::Scan(Scan {
                body: self.program(depth - 1),
                length: self.below(9),
                reverse: self.below(2) == 0,
                shared: self.below(3),
                carry: self.below(3),
                kept: self.below(3),
            }))),
        }
    }

    /// A program whose variables are defined before they are read; the ops need not fit.
    fn program(&mut self, depth: usize) -> Program {
        let mut program = Program::default();
        for _ in 0..self.below(4) {
            let spec = self.spec();
            program.input(spec);
        }
        for _ in 0..self.below(6) {
            let known = program.specs.len();
            let inputs = match known {
                0 => Vars::new(),
                _ => (0..self.below(4)).map(|_| Var(self.below(known) as u32)).collect(),
            };
            let op = self.op(depth);
            let at = self.place();
            let outputs = (0..self.below(3))
                .map(|_| {
                    let spec = self.spec();
                    program.fresh(spec)
                })
                .collect();
            program.equations.push(Equation { op, inputs, outputs, at });
        }
        let known = program.specs.len();
        if known > 0 {
            program.outputs = (0..self.below(4)).map(|_| Var(self.below(known) as u32)).collect();
        }
        if !program.inputs.is_empty() {
            for k in 0..program.outputs.len() {
                if self.below(3) == 0 {
                    program.updates.push((k, self.below(program.inputs.len())));
                }
            }
        }
        program
    }
}

fn programs() -> impl Strategy<Value = Program> {
    prop::collection::vec(any::<u64>(), 20..60).prop_map(|c| Choices(c, 0).program(2))
}

/// Reads a text, and where it reads, checks that printing and reading again gives the same.
fn reading_never_lies(text: &str) {
    match text.parse::<Program>() {
        Ok(program) => {
            assert_eq!(program.to_string().parse().as_ref(), Ok(&program), "from\n{text}")
        }
        Err(error) => {
            assert!(text.get(error.position..).is_some(), "{error} in\n{text}");
            assert!(error.message.starts_with("line "), "{error}");
        }
    }
}

/// Pieces of programs, and some that are not.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "{", "}", "[", "]", "(", ")", ":", ",", ";", "=", " ", "\n", "-", "+", "@", "a", "b", "z", "zzzzzzzzz", "v0", "v9", "0", "1", "NaN",
    "99999999999999999999", "f32", "f32[]", "let", "return", "program", "into", "region{", "cond{yes=", "//", "/*", "*/", "%", "é", "\0", "load",
    "body=[", "18446744073709551615", "scan{length=",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn programs_round_trip(program in programs()) {
        let text = program.to_string();
        prop_assert_eq!(text.parse::<Program>().map_err(|e| format!("{e}\n{text}")), Ok(program));
    }

    #[test]
    fn ops_that_hold_programs_round_trip_on_one_line(choices in prop::collection::vec(any::<u64>(), 20..60)) {
        let op = Choices(choices, 0).op(3);
        let text = op.to_string();
        prop_assert!(!text.contains('\n'), "{text}");
        prop_assert_eq!(text.parse(), Ok(op.clone()), "{}", text);
        prop_assert_eq!(format!("{op:#}").parse(), Ok(op));
    }

    #[test]
    fn mutated_programs_are_read_or_refused(
        program in programs(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..9, prop::sample::select(PIECES)), 1..4),
    ) {
        let mut text: Vec<char> = program.to_string().chars().collect();
        for (at, cut, piece) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + cut).min(text.len());
            text.splice(at..end, piece.chars());
        }
        reading_never_lies(&text.into_iter().collect::<String>());
    }

    #[test]
    fn pieces_in_any_order_are_read_or_refused(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..20)) {
        reading_never_lies(&pieces.concat());
        reading_never_lies(&format!("program (a: f32[]) {{ {}", pieces.concat()));
    }

    #[test]
    fn json_is_json_and_has_every_equation(program in programs()) {
        let value: serde_json::Value = serde_json::from_str(&program.to_json()).unwrap();
        prop_assert_eq!(value["inputs"].as_array().map(Vec::len), Some(program.inputs.len()));
        let equations = value["equations"].as_array().unwrap();
        prop_assert_eq!(equations.len(), program.equations.len());
        for (json, e) in equations.iter().zip(&program.equations) {
            prop_assert_eq!(json["op"].as_str(), Some(e.op.name()));
            match &e.op {
                Op::Flow(flow) => {
                    for (name, inside) in flow.names().iter().zip(flow.programs()) {
                        let count = json["programs"][name]["equations"].as_array().map(Vec::len);
                        prop_assert_eq!(count, Some(inside.equations.len()));
                    }
                }
                op => prop_assert_eq!(json["text"].as_str().unwrap().parse::<Op>(), Ok(op.clone())),
            }
            let place = &json["place"];
            let found = place["file"].as_str().map(|file| {
                Line::named(file, place["line"].as_u64().unwrap() as u32, place["column"].as_u64().unwrap() as u32)
            });
            prop_assert_eq!(found, e.at);
        }
        prop_assert_eq!(value["updates"].as_array().map(Vec::len), Some(program.updates.len()));
    }

    #[test]
    fn graphs_have_every_equation_and_balance(program in programs()) {
        let graph = program.to_dot();
        // Quoted parts may hold anything.
        let mut depth = 0isize;
        let mut quoted = false;
        let mut escaped = false;
        for c in graph.chars() {
            match c {
                _ if std::mem::take(&mut escaped) => {}
                '\\' => escaped = true,
                '"' => quoted = !quoted,
                '{' if !quoted => depth += 1,
                '}' if !quoted => depth -= 1,
                _ => {}
            }
        }
        prop_assert_eq!((depth, quoted), (0, false));
        for i in 0..program.equations.len() {
            let node = format!("  p_e{i} [label=");
            prop_assert!(graph.contains(&node));
        }
    }
}

const SAMPLE: &str = "\
program (a: f32[4,8], b: f32[8], c: bool[]) {
  let d: f32[4] = region{shape=[4,8],inner=1,inputs=[f32[4,8], f32[8]@[0,1]+0],body=[
    v0 = load 0;
    v1 = load 1;
    v2 = literal -0.0: f32;
    v3 = add v0 v2;
    v4 = mul v3 v1;
    v5 = sum v4
  ],outputs=[v5]} a b  // src/main.rs:12:9
  let e: f32[4] = cond{
    yes=(a: f32[4]) {
      let b: f32[4] = neg a  // src/main.rs:13:5
      return b
    },
    no=(a: f32[4]) {
      return a
    }
  } c d
  let f: f32[4], g: i64[4] = sort{axis=0,descending=true} e
  return f, b into b, g
}
";

#[test]
fn programs_read_well() {
    let program: Program = SAMPLE.parse().unwrap();
    program.verify().unwrap();
    assert_eq!(program.to_string(), SAMPLE);
    assert_eq!(program.updates, [(1, 1)]);
    assert_eq!(program.equations[0].at, Some(Line::named("src/main.rs", 12, 9)));
    let cond = &program.equations[1].op;
    assert_eq!(
        cond.to_string(),
        "cond{yes=(a: f32[4]) { let b: f32[4] = neg a /* src/main.rs:13:5 */; return b },no=(a: f32[4]) { return a }}",
    );
}

/// Numbers that are left out are closed up; comments and blanks may be anywhere between equations.
#[test]
fn texts_written_by_hand_are_read() {
    let text = "// a program\nprogram ( a : f32 [ 2 ] ) {\n // one\n let zz : f32[2] = neg a ; /* two */ /* x.rs:1:2 */ let let: f32[2] = exp zz // x.rs:3:4\n return let /* three */ }\n";
    let program: Program = text.parse().unwrap();
    program.verify().unwrap();
    let expected = "program (a: f32[2]) {\n  let b: f32[2] = neg a  // x.rs:1:2\n  let c: f32[2] = exp b  // x.rs:3:4\n  return c\n}\n";
    assert_eq!(program.to_string(), expected);
}

#[test]
#[rustfmt::skip]
fn errors_say_what_and_where() {
    let table = [
        ("",                                          "line 1, column 1: expected `program`, found ``"),
        ("program (a: f32[]) {",                      "line 1, column 21: expected `let` or `return`, found ``"),
        ("program (a: f32[]) {\n  lat b = 3",         "line 2, column 3: expected `let` or `return`, found `lat`"),
        ("program (a: f32[]) {\n  return b }",        "line 2, column 10: the variable `b` is not defined"),
        ("program (a: f32[], a: f32[]) {",            "line 1, column 20: the variable `a` is defined twice"),
        ("program (a: f32[]) {\n  let b: f32[] = neg b\n  return b\n}", "line 2, column 22: the variable `b` is not defined"),
        ("program (a: f32[]) {\n  let b: f32[] = nag a\n  return b\n}", "line 2, column 18: unknown op `nag`"),
        ("program (a: f32[]) {\n  let b: f32[] = neg a +\n  return b\n}", "line 2, column 24: expected an operand or the end of the equation"),
        ("program (A: f32[]) {",                      "line 1, column 10: expected a variable, found `A`"),
        ("program (aa: f32[]) {",                     "line 1, column 10: expected a variable, found `aa`"),
        ("program () { return } }",                   "line 1, column 23: expected the end of the text"),
        ("program (a: f32[]) { let b: f32[] = neg a; return b into b }", "line 1, column 58: `b` is not an input, so nothing can replace it"),
        ("program () { /* ",                          "line 1, column 14: the comment has no end"),
        ("program () { let = region{shape=[2],inner=0,inputs=[f32[2]@[1,1]+0],body=[],outputs=[]}\nreturn }",
                                                      "line 1, column 65: 2 strides for 1 axes"),
        ("program () { let = region{shape=[2],inner=0,inputs=[],body=[v1 = load 0],outputs=[]}\nreturn }",
                                                      "line 1, column 61: expected `v0`, found `v1`"),
        ("program () { let = region{shape=[2],inner=0,inputs=[],body=[v0 = dot v0],outputs=[]}\nreturn }",
                                                      "line 1, column 66: `dot` is not an instruction of a region"),
    ];
    for (text, message) in table {
        assert_eq!(text.parse::<Program>().map_err(|e| e.message), Err(message.to_string()), "{text}");
    }
}

#[test]
fn nesting_has_a_bound() {
    let nested = |depth: usize| {
        let mut program: Program = "program (a: bool[]) { return a }".parse().unwrap();
        for _ in 0..depth {
            let flow =
                Flow::Cond { yes: program.clone(), no: "program () { return }".parse().unwrap() };
            let mut outer = Program::default();
            let a = outer.input(Spec::cpu(DType::Bool, Shape::new()));
            outer.equations.push(Equation {
                op: Op::Flow(Arc::new(flow)),
                inputs: Vars::from_slice(&[a]),
                outputs: Vars::new(),
                at: None,
            });
            program = outer;
        }
        program
    };
    let fine = nested(60);
    assert_eq!(fine.to_string().parse(), Ok(fine));
    let deep = "program () { let = cond{yes=".to_owned() + &"() { let = cond{yes=".repeat(100_000);
    let error = deep.parse::<Program>().unwrap_err();
    assert!(error.message.ends_with("nested deeper than 64"), "{error}");
    let regions = "program () { let = ".to_owned()
        + &"region{shape=[],inner=0,inputs=[],body=[v0 = ".repeat(100_000);
    let error = regions.parse::<Program>().unwrap_err();
    assert!(error.message.ends_with("nested deeper than 64"), "{error}");
}

/// Names go past `let` (number 7559), which is then a variable.
#[test]
fn long_programs_round_trip() {
    let mut program = Program::default();
    let mut v = program.input(Spec::cpu(DType::F32, Shape::new()));
    for i in 0..20_000 {
        v = program.push(Op::Unary(Unary::ALL[i % 7]), &[v], None).unwrap()[0];
    }
    program.outputs.push(v);
    assert_eq!(program.to_string().parse(), Ok(program));
}
