//! Texts of kernels, compiled where NVRTC is found (no GPU is needed).
//!
//! `PULLBACK_CUDA_LIBRARIES` may name the folder of its Python package. Without NVRTC only the
//! texts are made.

use crate::compile::compile;
use crate::functions::PRELUDE;
use crate::text::{LoopForm, LoopText, RegisterRows, text};
use crate::update::{self, OptimizerKind};
use pullback_cuda_sys::nvrtc;
use pullback_ir::{
    Adam, Binary, Compare, CudaSource, DType, Inst, KernelUsage, Op, Random, Real, Reduction,
    Scalar, Sgd, Spec, Unary, Value,
};
use smallvec::{SmallVec, smallvec};

/// Compiles a text: what a thread of the kernel takes; `None` without NVRTC.
pub(crate) fn compiles(name: &str, source: &str) -> Option<KernelUsage> {
    let made = compile(nvrtc().ok()?, source, 90, false);
    let (_, usage) = made.unwrap_or_else(|log| panic!("{name}: {log}"));
    assert!(usage.is_some(), "{name}: the log does not say what it takes");
    usage
}

const DTYPES: [DType; 8] = [
    DType::F64,
    DType::F32,
    DType::BF16,
    DType::F16,
    DType::I64,
    DType::I32,
    DType::U8,
    DType::Bool,
];

/// All functions that take a dtype, as one loop.
fn every_function(dtype: DType) -> (Vec<Inst>, Vec<Value>) {
    let mut insts = vec![Inst::Load(0), Inst::Load(1)];
    let mut values = vec![Value { dtype, row: false }; 2];
    let mut add = |op: Op, of: &[usize], to: DType| {
        insts.push(Inst::Point(op, of.iter().copied().collect()));
        values.push(Value { dtype: to, row: false });
    };
    for &f in Unary::ALL.iter().filter(|f| f.takes().has(dtype)) {
        add(Op::Unary(f), &[0], dtype);
        if f.fused_vjp().is_some() && dtype.is_float() {
            add(Op::UnaryVjp(f), &[0, 1], dtype);
        }
    }
    for &f in Binary::ALL.iter().filter(|f| f.takes().has(dtype)) {
        add(Op::Binary(f), &[0, 1], dtype);
    }
    for &how in Compare::ALL {
        add(Op::Compare(how), &[0, 1], DType::Bool);
    }
    for to in DTYPES {
        add(Op::Cast(to), &[0], to);
    }
    (insts, values)
}

#[test]
fn every_function_compiles_in_every_dtype() {
    for dtype in DTYPES {
        let (mut insts, mut values) = every_function(dtype);
        let condition = insts.len() - 1;
        insts.push(Inst::Point(Op::Select, smallvec![condition, 0, 1]));
        values.push(Value { dtype, row: false });
        insts.push(Inst::Index(0, if dtype == DType::Bool { DType::I64 } else { dtype }));
        values.push(Value {
            dtype: if dtype == DType::Bool { DType::I64 } else { dtype },
            row: false,
        });
        let outputs = (2..insts.len()).collect();
        let strided = |vector, single| LoopForm::Strided { rank: 3, vector, single };
        let forms = [LoopForm::Flat { vector: 2, single: 2 }, strided(1, 0), strided(2, 2)];
        for form in forms {
            let of = LoopText {
                body: insts.iter().cloned().collect(),
                inputs: smallvec![dtype, dtype],
                outputs: std::clone::Clone::clone(&outputs),
                form,
                immediate: 0,
                wide: false,
            };
            compiles(&format!("{dtype}"), &text(&of, &values));
        }
    }
}

#[test]
fn rows_compile_in_every_dtype() {
    for dtype in DTYPES {
        for (threads, split) in [(1, false), (32, false), (256, true), (1024, false)] {
            let kinds = [Reduction::Max, Reduction::Min, Reduction::Sum, Reduction::Prod];
            let mut body = vec![Inst::Load(0)];
            let mut values = vec![Value { dtype, row: false }];
            for kind in kinds {
                let widens = matches!(kind, Reduction::Sum | Reduction::Prod) && !dtype.is_float();
                body.push(Inst::Reduce(kind, 0));
                values.push(Value { dtype: if widens { DType::I64 } else { dtype }, row: true });
            }
            let mut outputs: Vec<usize> = (1..5).collect();
            if !split {
                // An element value of the second pass.
                body.push(Inst::Point(Op::Compare(Compare::Eq), smallvec![0, 1]));
                values.push(Value { dtype: DType::Bool, row: false });
                outputs.push(5);
            }
            let of = LoopText {
                body: body.into(),
                inputs: smallvec![dtype],
                outputs: outputs.into(),
                form: LoopForm::Rows { outer: 2, inner: 1, threads, split },
                immediate: 0,
                wide: threads == 1,
            };
            compiles(&format!("rows of {dtype}, {threads}"), &text(&of, &values));
        }
    }
}

#[test]
fn rows_in_registers_compile() {
    for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
        let wide = dtype.compute();
        let body = smallvec![
            Inst::Load(0),
            Inst::Point(Op::Cast(wide), smallvec![0]),
            Inst::Load(1),
            Inst::Reduce(Reduction::Sum, 1),
            Inst::Point(Op::Binary(Binary::Sub), smallvec![1, 3]),
            Inst::Point(Op::Cast(dtype), smallvec![4]),
        ];
        let element = |dtype| Value { dtype, row: false };
        let row = Value { dtype: wide, row: true };
        let values = [element(dtype), element(wide), row, row, element(wide), element(dtype)];
        for threads in [32, 128, 1024] {
            for columns in [SmallVec::new(), smallvec![1, 4]] {
                let vector = 16 / dtype.size() as u32;
                let loops = !columns.is_empty();
                let block = if threads > 32 { threads } else { 128 };
                let held = RegisterRows {
                    outer: 2,
                    threads,
                    vector,
                    count: 2,
                    full: threads == 32,
                    single: 2,
                    still: 0,
                    ahead: threads < 1024,
                    columns,
                    block,
                    resident: u32::from(loops),
                };
                let of = LoopText {
                    body: SmallVec::clone(&body),
                    inputs: smallvec![dtype, wide],
                    outputs: smallvec![5, 3],
                    form: LoopForm::Held(held),
                    immediate: 0,
                    wide: false,
                };
                compiles(&format!("held rows of {dtype}, {threads}"), &text(&of, &values));
            }
        }
    }
}

#[test]
fn random_numbers_compile() {
    let draws = [
        (Random::Bits, DType::I64),
        (Random::Uniform, DType::F64),
        (Random::Uniform, DType::F32),
        (Random::Uniform, DType::BF16),
        (Random::Uniform, DType::F16),
        (Random::Normal, DType::F64),
        (Random::Normal, DType::F32),
        (Random::Normal, DType::F16),
    ];
    let body: Vec<Inst> = draws.iter().map(|&(kind, dtype)| Inst::Random(kind, 0, dtype)).collect();
    let values: Vec<Value> = draws.iter().map(|d| Value { dtype: d.1, row: false }).collect();
    let of = LoopText {
        body: body.into(),
        inputs: smallvec![DType::I64],
        outputs: (0..draws.len()).collect(),
        form: LoopForm::Flat { vector: 1, single: 1 },
        immediate: 0,
        wide: true,
    };
    compiles("random", &text(&of, &values));
}

#[test]
fn kernels_over_lines_compile() {
    let text = include_str!("kernels/lines.cu");
    let names = ["GATHER", "SCATTER", "KEYS", "EXCHANGE", "SORT", "TAKE", "ARG", "CUMULATE"];
    let more = "#define COMBINE b_add(x, y)\n#define BEATS(a, b) ((a) > (b))\n#define NONE 0\n\
                typedef Sum K;\ntypedef double W;\n#define VECTOR 4\n#define THREADS 256\n";
    for name in names.into_iter().chain(["CROSS_ENTROPY", "INTEGER_DOT"]) {
        let (e, c) = if name == "INTEGER_DOT" { ("I32", "i64") } else { ("F32", "float") };
        let head = format!("#define {name}\ntypedef {e} E;\ntypedef {c} C;\n");
        compiles(name, &format!("{PRELUDE}{head}{more}{text}"));
    }
    for (e, c, vector, threads) in [("BF16", "float", 8, 512), ("F64", "double", 1, 256)] {
        for vjp in ["", "#define VJP\n"] {
            let sizes = format!("#define VECTOR {vector}\n#define THREADS {threads}\n");
            let head = format!("#define CROSS_ENTROPY\ntypedef {e} E;\ntypedef {c} C;\n");
            compiles("cross-entropy", &format!("{PRELUDE}{head}{vjp}{sizes}{text}"));
        }
    }
    for name in ["RANKS", "ORDER"] {
        let head = format!("#define {name}\ntypedef I64 E;\ntypedef i64 C;\n");
        compiles(name, &format!("{PRELUDE}{head}{text}"));
    }
    for name in ["SCATTER_ROWS", "SCATTER_JOIN"] {
        for (e, c, vector) in [("F32", "float", 4), ("F64", "double", 1), ("U8", "i64", 16)] {
            let sizes = format!("#define VECTOR {vector}\n#define CUT 256\n");
            let head = format!("#define {name}\ntypedef {e} E;\ntypedef {c} C;\n{sizes}");
            let combine = "#define COMBINE b_add(x, y)\n";
            compiles(name, &format!("{PRELUDE}{head}{combine}{text}"));
        }
    }
    let head = "#define CUMULATE\n#define LOGSUMEXP\ntypedef BF16 E;\ntypedef float C;\n";
    compiles("logsumexp", &format!("{PRELUDE}{head}{more}{text}"));
}

/// One of each form of a kernel.
pub(crate) fn optimisers() -> Vec<OptimizerKind> {
    let zero = Real(0.0);
    let adam = Adam {
        beta1: Real(0.9),
        beta2: Real(0.999),
        eps: Real(1e-8),
        decay: Real(0.01),
        decoupled: true,
        amsgrad: false,
        maximize: false,
    };
    let sgd =
        Sgd { momentum: zero, dampening: zero, decay: zero, nesterov: false, maximize: false };
    vec![
        OptimizerKind::Adam(adam),
        OptimizerKind::Adam(Adam { amsgrad: true, decoupled: false, ..adam }),
        OptimizerKind::Sgd(sgd),
        OptimizerKind::Sgd(Sgd { momentum: Real(0.9), nesterov: true, maximize: true, ..sgd }),
    ]
}

#[test]
fn steps_of_optimisers_compile() {
    for how in optimisers() {
        for (dtype, rate) in [(DType::F32, DType::F64), (DType::BF16, DType::F32)] {
            compiles("step", &update::text(how, dtype, rate));
        }
    }
}

#[test]
fn casts_of_parameters_compile() {
    for narrow in [DType::BF16, DType::F16] {
        for dtypes in [[DType::F32, narrow], [narrow, DType::F32]] {
            compiles("casts", &update::cast_text(dtypes));
        }
    }
}

#[test]
fn sums_of_columns_compile() {
    for dtypes in [&[DType::F32, DType::BF16, DType::F32][..], &[DType::F64, DType::F64]] {
        compiles("columns", &crate::registers::columns_text(dtypes));
    }
}

#[test]
fn windows_compile() {
    let names = ["COLUMNS", "FOLD", "POOL", "SPREAD", "TAKE", "GIVE", "POOL_EACH", "GIVE_EACH"];
    for name in names {
        for dtype in [DType::F32, DType::BF16, DType::F64] {
            for wide in [false, true] {
                let more = "#define FILTER 0\n";
                compiles(name, &crate::window::text(name, dtype, more, wide, 16 / dtype.size()));
            }
        }
    }
    compiles("argmax", &crate::window::text("POOL", DType::I32, "#define ARGMAX", false, 1));
}

#[test]
fn cats_compile() {
    for bytes in [16, 8, 4, 2, 1] {
        compiles("cat", &crate::cat::text(bytes, bytes == 16));
    }
}

#[test]
fn ctc_compiles() {
    for dtype in [DType::F32, DType::F64] {
        for vjp in [false, true] {
            compiles("ctc", &crate::ctc::text(vjp, dtype));
        }
    }
}

#[test]
fn distances_compile() {
    for dtype in [DType::F32, DType::F64] {
        for (forward, within) in [(true, true), (true, false), (false, true), (false, false)] {
            compiles("distances", &crate::distances::text(forward, within, dtype));
        }
    }
}

#[test]
fn batch_norm_compiles() {
    use DType::{BF16, F16, F32, F64};
    let names = ["STATISTICS", "MERGE_STATISTICS", "NORMALISE", "SUMS", "MERGE_SUMS", "SLOPES"];
    let dtypes = [[BF16, F32, F32], [F32; 3], [F16; 3], [F64; 3]];
    for name in names {
        for of in dtypes {
            for flags in [[0, 1, 0], [0, 0, 1], [1, 1, 0]] {
                for vector in [1, 16 / of[0].size()] {
                    compiles(name, &crate::batch_norm::text(name, of, flags, vector));
                }
            }
        }
    }
}

#[test]
fn kernels_over_matrices_compile() {
    for dtype in [DType::F32, DType::F64] {
        for name in ["CHOLESKY", "LU", "QR"] {
            for sizes in [(64, 32), (4096, 256)] {
                compiles(name, &crate::linalg::text(name, dtype, sizes));
            }
        }
        let others = ["CHOLESKY_AFTER", "SOLVE", "ADDRESSES", "PERMUTATION", "ROWS", "UPPER"];
        for name in others.into_iter().chain(["IDENTITY", "BEFORE", "AFTER"]) {
            compiles(name, &crate::linalg::text(name, dtype, (0, 0)));
        }
    }
}

#[test]
fn transposes_compile() {
    for size in [2, 4, 8] {
        for (load, store) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            compiles("transpose", &crate::transpose::text(size, load, store));
        }
    }
}

#[test]
fn kernels_of_users_compile_for_every_dtype() {
    let body = r#"extern "C" __global__ void twice(const T0* x, R0* y, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + x[i];
}"#;
    for dtype in DTYPES {
        let source = crate::custom::text(&CudaSource::new("twice", body), &[dtype], &[dtype]);
        compiles(&format!("twice of {dtype}"), &source);
    }
    // What is wrong has the line of the user's text.
    let wrong = CudaSource::new("twice", body.replace("x[i] + x[i]", "z"));
    let source = crate::custom::text(&wrong, &[DType::F32], &[DType::F32]);
    assert!(source.contains("typedef float T0;\ntypedef float R0;\n#line 1 \"twice.cu\"\nextern"));
    if let Ok(rtc) = nvrtc() {
        let log = compile(rtc, &source, 90, true).expect_err("`z` is not declared");
        assert!(log.contains("twice.cu(3): error: identifier \"z\" is undefined"), "{log}");
    }
}

#[test]
fn an_elementwise_kernel_takes_operands_of_one_length() {
    // SAFETY: it is not launched.
    let kernel = unsafe { crate::CudaKernel::elementwise("k", "", 2, 1) };
    let [a, b] = [[2, 150], [300, 1]].map(|shape| Spec::cpu(DType::F32, shape));
    let launches = kernel.launches(&[&a, &b], &[&a]).expect("equal lengths");
    assert_eq!(launches.len(), 1);
    assert_eq!(
        (launches[0].geometry.grid, &launches[0].geometry.numbers[..]),
        ([2, 1, 1], &[300][..])
    );
    assert_eq!(launches[0].starts, [vec![0, 0], vec![0]]);
    assert!(kernel.launches(&[&a, &Spec::cpu(DType::F32, [3])], &[&a]).is_err());
    let error = kernel.launches(&[&a], &[&a]).expect_err("one operand").to_string();
    assert!(error.contains("takes 2 operands and 1 results, given 1 and 1"), "{error}");
}

#[test]
fn numbers_are_written_exactly() {
    let of = LoopText {
        body: smallvec![Inst::Literal(Scalar::from(0.1), DType::F32)],
        inputs: smallvec![],
        outputs: smallvec![0],
        form: LoopForm::Flat { vector: 4, single: 0 },
        immediate: 0,
        wide: false,
    };
    let source = text(&of, &[Value { dtype: DType::F32, row: true }]);
    assert!(
        source.contains("Cast<F32>::of(__longlong_as_double(0x3fb999999999999aLL))"),
        "{source}"
    );
}
