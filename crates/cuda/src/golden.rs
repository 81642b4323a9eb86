//! The texts of a dozen loops, as files in `golden/`, so that a change of the generator shows what
//! it does to them. Each also compiles where NVRTC is found.
//!
//! `PULLBACK_WRITE_GOLDEN=1 cargo test -p pullback-cuda golden` writes them anew. They begin after
//! the prelude, which all kernels share, and the code of random numbers.

use crate::functions::PRELUDE;
use crate::loops::{Loop, StridedOperand};
use crate::region_tests::{fused_of, region_of};
use crate::tests::compiles;
use crate::text::{LoopForm, LoopText, RegisterRows, text};
use pullback_ir::pass::plan::Planned;
use pullback_ir::{
    Binary, DType, Device, Inst, Load, Op, Program, Random, Reduction, Scalar, Unary, Value,
};
use smallvec::smallvec;
use std::path::Path;

/// Instructions, each with what is known of its value.
#[derive(Default)]
struct LoopBody(Vec<Inst>, Vec<Value>);

impl LoopBody {
    fn add(&mut self, inst: Inst, dtype: DType, row: bool) -> usize {
        self.0.push(inst);
        self.1.push(Value { dtype, row });
        self.0.len() - 1
    }

    /// An operand, the same along each row if `row`.
    fn load(&mut self, operand: usize, dtype: DType, row: bool) -> usize {
        self.add(Inst::Load(operand), dtype, row)
    }

    /// A pointwise op of the dtype of its last operand.
    fn point(&mut self, op: Op, of: &[usize]) -> usize {
        let dtype = of.last().map_or(DType::F32, |&v| self.1[v].dtype);
        let row = of.iter().all(|&v| self.1[v].row);
        self.add(Inst::Point(op, of.iter().copied().collect()), dtype, row)
    }

    fn binary(&mut self, f: Binary, a: usize, b: usize) -> usize {
        self.point(Op::Binary(f), &[a, b])
    }

    fn unary(&mut self, f: Unary, x: usize) -> usize {
        self.point(Op::Unary(f), &[x])
    }

    fn number(&mut self, value: f64, dtype: DType) -> usize {
        self.add(Inst::Literal(Scalar::from(value), dtype), dtype, true)
    }

    fn reduce(&mut self, kind: Reduction, of: usize) -> usize {
        let dtype = self.1[of].dtype;
        self.add(Inst::Reduce(kind, of), dtype, true)
    }

    /// The text of a loop over these instructions.
    fn text(&self, inputs: &[DType], outputs: &[usize], form: LoopForm) -> String {
        let of = LoopText {
            body: self.0.iter().cloned().collect(),
            inputs: inputs.iter().copied().collect(),
            outputs: outputs.iter().copied().collect(),
            form,
            immediate: 0,
            wide: false,
        };
        text(&of, &self.1)
    }
}

/// tanh(a · b) + 0.1, with `b` one element for all if the form says so.
fn pointwise(dtype: DType, form: LoopForm) -> String {
    let mut body = LoopBody::default();
    let (a, b) = (body.load(0, dtype, false), body.load(1, dtype, false));
    let product = body.binary(Binary::Mul, a, b);
    let tanh = body.unary(Unary::Tanh, product);
    let tenth = body.number(0.1, dtype);
    let sum = body.binary(Binary::Add, tanh, tenth);
    body.text(&[dtype, dtype], &[sum], form)
}

/// The sum and the maximum of the squares of rows.
fn reductions(dtype: DType, threads: u32, split: bool) -> String {
    let mut body = LoopBody::default();
    let x = body.load(0, dtype, false);
    let square = body.unary(Unary::Square, x);
    let outputs = [Reduction::Sum, Reduction::Max].map(|kind| body.reduce(kind, square));
    body.text(&[dtype], &outputs, LoopForm::Rows { outer: 1, inner: 1, threads, split })
}

fn softmax(dtype: DType) -> String {
    let mut body = LoopBody::default();
    let x = body.load(0, dtype, false);
    let most = body.reduce(Reduction::Max, x);
    let below = body.binary(Binary::Sub, x, most);
    let exp = body.unary(Unary::Exp, below);
    let sum = body.reduce(Reduction::Sum, exp);
    let y = body.binary(Binary::Div, exp, sum);
    body.text(&[dtype], &[y], LoopForm::Rows { outer: 1, inner: 1, threads: 32, split: false })
}

fn layer_norm(dtype: DType) -> String {
    let mut body = LoopBody::default();
    let x = body.load(0, dtype, false);
    let (weight, bias) = (body.load(1, dtype, false), body.load(2, dtype, false));
    let one = body.number(1.0 / 768.0, dtype);
    let sum = body.reduce(Reduction::Sum, x);
    let mean = body.binary(Binary::Mul, sum, one);
    let centred = body.binary(Binary::Sub, x, mean);
    let square = body.unary(Unary::Square, centred);
    let squares = body.reduce(Reduction::Sum, square);
    let variance = body.binary(Binary::Mul, squares, one);
    let epsilon = body.number(1e-5, dtype);
    let shifted = body.binary(Binary::Add, variance, epsilon);
    let scale = body.unary(Unary::Rsqrt, shifted);
    let normal = body.binary(Binary::Mul, centred, scale);
    let scaled = body.binary(Binary::Mul, normal, weight);
    let y = body.binary(Binary::Add, scaled, bias);
    let form = LoopForm::Rows { outer: 1, inner: 1, threads: 256, split: false };
    body.text(&[dtype; 3], &[y, mean, scale], form)
}

/// x where a uniform number is below 0.9, and 0 elsewhere.
fn dropout() -> String {
    let mut body = LoopBody::default();
    let x = body.load(0, DType::F32, false);
    let random = body.add(Inst::Random(Random::Uniform, 1, DType::F32), DType::F32, false);
    let keep = body.number(0.9, DType::F32);
    let less = Op::Compare(pullback_ir::Compare::Lt);
    let kept = body.add(Inst::Point(less, smallvec![random, keep]), DType::Bool, false);
    let zero = body.number(0.0, DType::F32);
    let y = body.point(Op::Select, &[kept, x, zero]);
    body.text(&[DType::F32, DType::I64], &[y], LoopForm::Flat { vector: 4, single: 2 })
}

fn cast(from: DType, to: DType) -> String {
    let mut body = LoopBody::default();
    let x = body.load(0, from, false);
    let y = body.add(Inst::Point(Op::Cast(to), smallvec![x]), to, false);
    body.text(&[from], &[y], LoopForm::Flat { vector: 4, single: 0 })
}

/// w · (x - Σx) with rows in registers, and the sums of it and of x over the rows.
fn held(dtype: DType, held: RegisterRows) -> String {
    let mut body = LoopBody::default();
    let (x, weight) = (body.load(0, dtype, false), body.load(1, DType::F32, false));
    let wide = body.add(Inst::Point(Op::Cast(DType::F32), smallvec![x]), DType::F32, false);
    let sum = body.reduce(Reduction::Sum, wide);
    let off = body.binary(Binary::Sub, wide, sum);
    let scaled = body.binary(Binary::Mul, off, weight);
    let y = body.add(Inst::Point(Op::Cast(dtype), smallvec![scaled]), dtype, false);
    let columns = if held.resident > 0 { smallvec![scaled, wide] } else { smallvec![] };
    body.text(&[dtype, DType::F32], &[y], LoopForm::Held(RegisterRows { columns, ..held }))
}

/// The kernel of the only region that a program becomes on a device.
fn of_program(program: &str) -> String {
    let region = region_of(program);
    let seen = |load: &Load| match load.layout.shape == region.shape {
        true => StridedOperand::new(256, load.spec.dtype, &load.layout.shape, &load.layout.strides),
        // The key of random numbers.
        false => {
            let none = vec![0; region.shape.len()];
            StridedOperand::new(256, load.spec.dtype, &region.shape, &none)
        }
    };
    let inputs: Vec<StridedOperand> = region.inputs.iter().map(seen).collect();
    let values = region.values().expect("valid");
    let specs = region.inputs.iter().map(|load| &load.spec).collect::<Vec<_>>();
    let specs = region.infer(&specs).expect("valid");
    let stored = region.outputs.iter().zip(&specs);
    let outputs: Vec<(usize, StridedOperand)> =
        stored.map(|(&v, spec)| (v, StridedOperand::dense(256, spec.dtype, &spec.shape))).collect();
    let of = Loop {
        shape: &region.shape,
        inner: region.inner,
        body: &region.body,
        values: &values,
        inputs: &inputs,
        outputs: &outputs,
        immediate: 0,
    };
    let held = of.fits_registers(&of.in_rows(), &region.columns).expect("rows fit into registers");
    text(&of.text(LoopForm::Held(held), false), &values)
}

/// A residual and its norm, as GPT-2 has them.
const RESIDUAL_AND_NORM: &str = "program (y: bf16[16384,768], bias: bf16[768], \
  r: f32[16,1024,768], w: f32[768], b: f32[768]) {
  let c: bf16[16384,768] = broadcast{[16384,768]} bias
  let d: bf16[16384,768] = add y c
  let e: bf16[16,1024,768] = reshape{[16,1024,768]} d
  let f: f32[16,1024,768] = cast{f32} e
  let g: f32[16,1024,768] = add r f
  let h: f32[16,1024,768] = layer_norm{1e-5} g w b
  let i: bf16[16,1024,768] = cast{bf16} h
  return g, i
}";

/// The backward of the norm, the gradient that is added to it, and that of the bias before.
const BACKWARD_OF_A_NORM: &str = "program (dy: bf16[16384,768], x: f32[16,1024,768], \
  w: f32[768], r: f32[16,1024,768]) {
  let a: f32[16384,768] = cast{f32} dy
  let b: f32[16,1024,768] = reshape{[16,1024,768]} a
  let c: f32[16,1024,768], d: f32[768], e: f32[768] = vjp.layer_norm{1e-5} x w b
  let f: f32[16,1024,768] = add r c
  let g: bf16[16,1024,768] = cast{bf16} f
  let h: bf16[768] = sum{[0,1]} g
  return f, g, d, e, h
}";

/// The same for rows of 4096 in bf16 alone.
const LONGER_ROWS: &str = "program (dy: bf16[16384,4096], x: bf16[16384,4096], w: f32[4096]) {
  let a: f32[16384,4096] = cast{f32} dy
  let b: f32[16384,4096] = cast{f32} x
  let c: f32[16384,4096], d: f32[4096], e: f32[4096] = vjp.layer_norm{1e-5} b w a
  let f: bf16[16384,4096] = cast{bf16} c
  return f, d, e
}";

/// The slope of a function, and the gradient of a bias.
const GRADIENT_OF_A_BIAS: &str = "program (dy: bf16[16384,3072], x: bf16[16384,3072]) {
  let a: bf16[16384,3072] = vjp.gelu_tanh x dy
  let b: bf16[3072] = sum{[0]} a
  return a, b
}";

/// Random numbers in rows that are normalised.
const DROPOUT_AND_NORM: &str = "program (x: f32[512,256], r: f32[512,256], b: i64[2], \
  w: f32[256], c: f32[256]) {
  let d: f32[512,256] = random.uniform{f32[512,256]} b
  let e: f32[512,256] = literal{0.1: f32[512,256]}
  let f: bool[512,256] = ge d e
  let g: f32[512,256] = cast{f32} f
  let h: f32[512,256] = mul x g
  let i: f32[512,256] = add r h
  let j: f32[512,256] = layer_norm{1e-5} i w c
  return i, j
}";

/// Sums over the rows and nothing else.
const SUM: &str = "program (x: bf16[16384,768]) {
  let a: f32[16384,768] = cast{f32} x
  let b: f32[768] = sum{[0]} a
  return b
}";

#[test]
fn regions_compile() {
    compiles("random numbers and a norm", &of_program(DROPOUT_AND_NORM));
    let sum = of_program(SUM);
    assert!(sum.contains("#pragma unroll 4\n  for (Ix t = 0; t < turns; t++) {"), "{sum}");
    compiles("a sum over rows", &sum);
}

/// Of programs, without a device: the texts are those of the files, and what a thread takes is
/// known where NVRTC is.
#[test]
fn kernels_of_programs_are_known_without_a_device() {
    for (name, program) in
        [("region_forward", RESIDUAL_AND_NORM), ("dropout_and_norm", DROPOUT_AND_NORM)]
    {
        let fused = fused_of(program).on_device(Device::Cuda(0));
        let planned = Planned::new(&fused, crate::TARGET).expect("a plan");
        let kernels = crate::kernels_of(&planned, 90).expect("valid");
        let [kernel] = &kernels[..] else { panic!("not one kernel: {kernels:?}") };
        let text = kernel.text.as_deref().expect("a region has a text");
        assert!(of_program(program).ends_with(text), "{name}:\n{text}");
        assert_eq!(kernel.kernel, "region");
        if pullback_cuda_sys::nvrtc().is_ok() {
            let usage = kernel.usage.expect("NVRTC says what it takes");
            assert!((16..=255).contains(&usage.registers) && usage.spilled == 0, "{usage:?}");
        }
    }
    // Equal calls are one row, and a product has no text.
    let text = "program (x: f32[64,64], y: f32[64,64]) {
  let a: f32[64,64] = dot x y
  let b: f32[64,64] = dot a y
  return b
}";
    let program = text.parse::<Program>().expect("a program").on_device(Device::Cuda(0));
    let planned = Planned::new(&program, crate::TARGET).expect("a plan");
    let kernels = crate::kernels_of(&planned, 90).expect("valid");
    let [kernel] = &kernels[..] else { panic!("not one kernel: {kernels:?}") };
    assert_eq!((&kernel.equations[..], kernel.text.is_some()), (&[0, 1][..], false));
    assert_eq!((kernel.bytes, kernel.operations), (3 * 64 * 64 * 4, 2 * 64 * 64 * 64));
}

#[test]
fn generated_kernels_are_these_texts() {
    let flat = |vector, single| LoopForm::Flat { vector, single };
    let block = RegisterRows {
        outer: 1,
        threads: 192,
        vector: 4,
        count: 1,
        full: true,
        single: 0,
        still: 0,
        ahead: false,
        columns: smallvec![],
        block: 192,
        resident: 0,
    };
    let warp =
        RegisterRows { threads: 32, vector: 8, count: 3, full: false, block: 256, ..block.clone() };
    let columns = |ahead, of: &RegisterRows| RegisterRows {
        still: 2,
        ahead,
        resident: if ahead { 4 } else { 2 },
        ..of.clone()
    };
    let texts = [
        ("flat_f32", pointwise(DType::F32, flat(4, 0))),
        ("flat_bf16", pointwise(DType::BF16, flat(8, 0b10))),
        ("flat_unaligned", pointwise(DType::F32, flat(1, 0))),
        ("strided", pointwise(DType::F32, LoopForm::Strided { rank: 3, vector: 1, single: 0 })),
        (
            "broadcast",
            pointwise(DType::BF16, LoopForm::Strided { rank: 2, vector: 8, single: 0b10 }),
        ),
        ("held", held(DType::BF16, block.clone())),
        ("held_warp", held(DType::BF16, warp.clone())),
        ("held_columns", held(DType::BF16, columns(true, &block))),
        ("held_columns_warp", held(DType::F16, columns(false, &warp))),
        ("region_forward", of_program(RESIDUAL_AND_NORM)),
        ("region_backward", of_program(BACKWARD_OF_A_NORM)),
        ("region_longer", of_program(LONGER_ROWS)),
        ("region_bias", of_program(GRADIENT_OF_A_BIAS)),
        ("rows_1", reductions(DType::F32, 1, false)),
        ("rows_32", reductions(DType::BF16, 32, false)),
        ("rows_256", reductions(DType::F64, 256, false)),
        ("rows_1024", reductions(DType::F32, 1024, false)),
        ("rows_split", reductions(DType::BF16, 1024, true)),
        ("softmax", softmax(DType::F32)),
        ("layer_norm", layer_norm(DType::BF16)),
        ("dropout", dropout()),
        ("cast_f16", cast(DType::F32, DType::F16)),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/golden");
    let mut differ = Vec::new();
    for (name, source) in &texts {
        let usage = compiles(name, source);
        assert_eq!(usage.map_or(0, |usage| usage.spilled), 0, "{name} spills: {usage:?}");
        let own = [PRELUDE.to_string().as_str(), include_str!("kernels/random.cu")]
            .iter()
            .fold(source.as_str(), |text, shared| text.strip_prefix(shared).unwrap_or(text));
        let file = folder.join(format!("{name}.cu"));
        if std::env::var_os("PULLBACK_WRITE_GOLDEN").is_some() {
            std::fs::write(&file, own).expect("a golden text can be written");
        }
        if std::fs::read_to_string(&file).is_ok_and(|wanted| wanted == own) {
            continue;
        }
        differ.push(format!("{name}, which is now\n{own}"));
    }
    assert!(
        differ.is_empty(),
        "PULLBACK_WRITE_GOLDEN=1 cargo test -p pullback-cuda golden writes these anew: {}",
        differ.join("\n")
    );
}
