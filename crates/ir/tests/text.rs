//! Ops as text: readable, exact, and parsed without a panic whatever the text.

use proptest::prelude::*;
use pullback_ir::*;
use smallvec::{SmallVec, smallvec};

/// The CPU or another device.
fn device(n: usize) -> Device {
    if n.is_multiple_of(2) { Device::Cpu } else { Device::Cuda(n as u16) }
}

/// Any op: a form, with arbitrary attributes.
fn ops() -> impl Strategy<Value = Op> {
    let forms: Vec<Op> = Op::forms().collect();
    let attributes =
        (number(), any_shape(), dtypes(), views(), scalars(), any::<bool>(), paddings());
    let more = (
        prop::sample::select(Combine::ALL),
        prop::collection::vec(views(), 0..4),
        reals(),
        windows(),
    );
    (prop::sample::select(forms), attributes, more).prop_map(
        |(
            form,
            (n, shape, dtype, view, value, flag, paddings),
            (combine, chain, real, windows),
        )| match form {
            Op::Literal { .. } => Op::Literal { value, shape, dtype, device: device(n) },
            Op::Iota { .. } => Op::Iota { len: n, dtype, device: device(n) },
            Op::To(_) => Op::To(device(n)),
            Op::Random { kind, .. } => Op::Random { kind, shape, dtype },
            Op::Cast(_) => Op::Cast(dtype),
            Op::View(_) => Op::View(view),
            Op::Put(_) => Op::Put(chain),
            Op::Pad(_) => Op::Pad(paddings),
            Op::Cat(_) => Op::Cat(n),
            Op::Gather(_) => Op::Gather(n),
            Op::Scatter(..) => Op::Scatter(n, combine),
            Op::Reduce(kind, _) => Op::Reduce(kind, shape),
            Op::ArgReduce(kind, _) => Op::ArgReduce(kind, n),
            Op::Cumulate { kind, .. } => Op::Cumulate { kind, axis: n, reverse: flag },
            Op::Sort { .. } => Op::Sort { axis: n, descending: flag },
            Op::Linalg(form) => Op::Linalg(match form {
                Linalg::TriangularSolve { .. } => {
                    Linalg::TriangularSolve { upper: flag, unit: n % 2 == 1 }
                }
                Linalg::Permutation(_) => Linalg::Permutation(n),
                Linalg::LuSolve { .. } => Linalg::LuSolve { transpose: flag },
                Linalg::Qr { .. } => Linalg::Qr { complete: flag },
                Linalg::Spectrum { .. } => Linalg::Spectrum { singular: flag },
                Linalg::Svd { .. } => Linalg::Svd { full: flag },
                Linalg::Cholesky | Linalg::Lu | Linalg::Eigh => form,
            }),
            Op::Fft(form) => Op::Fft(match form {
                Fft::Complex { .. } => Fft::Complex { axis: n, inverse: flag },
                Fft::Real(_) => Fft::Real(n),
                Fft::Hermitian { .. } => Fft::Hermitian { axis: n, len: n / 2 },
            }),
            Op::Ranks { .. } => Op::Ranks { axis: n, descending: flag, from: n, count: n / 2 },
            Op::Fused(form) => Op::Fused(match form {
                Fused::Softmax(_) => Fused::Softmax(n),
                Fused::SoftmaxVjp(_) => Fused::SoftmaxVjp(n),
                Fused::LogSoftmax(_) => Fused::LogSoftmax(n),
                Fused::LogSoftmaxVjp(_) => Fused::LogSoftmaxVjp(n),
                Fused::LogSumExp(_) => Fused::LogSumExp(n),
                Fused::LayerNorm(_) => Fused::LayerNorm(real),
                Fused::LayerNormVjp(_) => Fused::LayerNormVjp(real),
                Fused::BatchNorm(_) => Fused::BatchNorm(real),
                Fused::BatchNormVjp(_) => Fused::BatchNormVjp(real),
                Fused::CrossEntropy | Fused::CrossEntropyVjp => form,
                Fused::Distances { .. } => Fused::Distances { within: flag },
                Fused::DistancesVjp { .. } => Fused::DistancesVjp { within: flag },
                Fused::Ctc { .. } => Fused::Ctc { blank: n },
                Fused::CtcVjp { .. } => Fused::CtcVjp { blank: n },
                Fused::Sgd(_) => Fused::Sgd(Sgd {
                    momentum: real,
                    dampening: Real(n as f64),
                    decay: Real(0.1),
                    nesterov: flag,
                    maximize: !flag,
                }),
                Fused::Adam(_) => Fused::Adam(Adam {
                    beta1: real,
                    beta2: Real(0.1),
                    eps: real,
                    decay: Real(1e-300),
                    decoupled: flag,
                    amsgrad: !flag,
                    maximize: n % 2 == 0,
                }),
                Fused::Attention(_) => Fused::Attention(attention(n, flag, real)),
                Fused::AttentionVjp(_) => Fused::AttentionVjp(attention(n, flag, real)),
            }),
            Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) => form,
            Op::Select | Op::Copy | Op::After | Op::Dot => form,
            Op::Region(_) | Op::DotRegion(_) | Op::Flow(_) | Op::Custom(_) => {
                unreachable!("not among the forms")
            }
            Op::Collective(_) | Op::Wait | Op::Transfer(_) => unreachable!("not among the forms"),
            Op::Conv(mut conv) => {
                conv.groups = n;
                conv.windows = windows;
                if let Role::Input(lengths) = &mut conv.role {
                    *lengths = shape;
                }
                Op::Conv(conv)
            }
            Op::Pool(mut pool) => {
                pool.frames = windows.into_iter().map(Frame::Sliding).collect();
                pool.frames.push(Frame::Even(n));
                if let Pooling::Spread(lengths) | Pooling::Give(lengths) = &mut pool.kind {
                    *lengths = shape;
                }
                Op::Pool(pool)
            }
        },
    )
}

fn attention(n: usize, causal: bool, scale: Real) -> Attention {
    Attention { causal, masked: n % 2 == 1, scale, dropout: Real(n as f64 / 7.0) }
}

fn number() -> impl Strategy<Value = usize> {
    prop_oneof![9 => 0usize..20, 1 => any::<usize>()]
}

fn any_shape() -> impl Strategy<Value = Shape> {
    prop::collection::vec(number(), 0..7).prop_map(Shape::from)
}

fn windows() -> impl Strategy<Value = Vec<Window>> {
    let one = (number(), number(), number(), any::<isize>(), -3isize..9);
    let one = one.prop_map(|(size, stride, dilation, before, after)| Window {
        size,
        stride,
        dilation,
        before,
        after,
    });
    prop::collection::vec(one, 0..4)
}

const WINDOW: Window = Window { size: 3, stride: 2, dilation: 1, before: 1, after: 1 };

fn conv(name: &str) -> Op {
    let role = match name {
        "conv" => Role::Forward,
        _ => Role::Input([5].into()),
    };
    Op::Conv(Box::new(Conv { role, windows: vec![WINDOW], groups: 2, last: false }))
}

fn dtypes() -> impl Strategy<Value = DType> {
    prop::sample::select(&DType::ALL[..])
}

fn paddings() -> impl Strategy<Value = SmallVec<[Padding; 2]>> {
    let one = (number(), number(), number());
    let one = one.prop_map(|(before, after, between)| Padding { before, after, between });
    prop::collection::vec(one, 0..4).prop_map(Into::into)
}

fn spans() -> impl Strategy<Value = SmallVec<[Span; 2]>> {
    let one = (number(), number(), number());
    let one = one.prop_map(|(start, len, step)| Span { start, len, step });
    prop::collection::vec(one, 0..4).prop_map(Into::into)
}

fn views() -> impl Strategy<Value = View> {
    let forms: Vec<View> = View::forms().collect();
    let attributes = (any_shape(), spans(), any::<isize>(), number(), number(), number());
    (prop::sample::select(forms), attributes).prop_map(|(form, (list, spans, offset, a, b, c))| {
        match form {
            View::Reshape(_) => View::Reshape(list),
            View::Permute(_) => View::Permute(list),
            View::Broadcast(_) => View::Broadcast(list),
            View::Slice(_) => View::Slice(spans),
            View::Flip(_) => View::Flip(list),
            View::Diagonal { .. } => View::Diagonal { offset, a, b },
            View::Unfold { .. } => View::Unfold { axis: a, size: b, step: c },
        }
    })
}

/// Floats by their bits, so NaNs of every kind; and the ones with a name.
fn reals() -> impl Strategy<Value = Real> {
    let known = [
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1.0,
        1e-5,
        5e-324,
        f64::MAX,
    ];
    let nans = any::<u64>().prop_map(|bits| f64::from_bits(bits | 0x7ff0_0000_0000_0001));
    prop_oneof![prop::sample::select(known.to_vec()), any::<u64>().prop_map(f64::from_bits), nans]
        .prop_map(Real)
}

fn scalars() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        reals().prop_map(Scalar::Float),
        any::<i64>().prop_map(Scalar::Int),
        any::<bool>().prop_map(Scalar::Bool),
    ]
}

/// Parses, and where it parses, checks that printing gives the same op again.
fn parse_never_lies(text: &str) {
    match text.parse::<Op>() {
        Ok(op) => assert_eq!(op.to_string().parse(), Ok(op), "from `{text}`"),
        Err(error) => assert!(text.get(error.position..).is_some(), "{error} in `{text}`"),
    }
    let _ = text.parse::<View>();
    match text.parse::<Spec>() {
        Ok(spec) => assert_eq!(spec.to_string().parse(), Ok(spec), "from `{text}`"),
        Err(error) => assert!(text.get(error.position..).is_some(), "{error} in `{text}`"),
    }
}

/// Pieces that texts are made of, and some that they are not.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ":",
    ",",
    ";",
    "=",
    " ",
    "-",
    "+",
    ".",
    "e",
    "0",
    "1",
    "NaN",
    "nan",
    "inf",
    "0x",
    "true",
    "f32",
    "axis",
    "slice",
    "put",
    "literal",
    "99999999999999999999",
    "é",
    "\u{2003}",
    "\0",
    "",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn ops_round_trip(op in ops()) {
        prop_assert_eq!(op.to_string().parse(), Ok(op));
    }

    #[test]
    fn views_round_trip(view in views()) {
        prop_assert_eq!(view.to_string().parse(), Ok(view));
    }

    #[test]
    fn specs_round_trip(dtype in dtypes(), shape in any_shape()) {
        let spec = Spec::cpu(dtype, shape);
        prop_assert_eq!(spec.to_string().parse(), Ok(spec));
    }

    #[test]
    fn blanks_between_words_have_no_meaning(op in ops()) {
        let signs = "{}[](),;=";
        let spread = |c: char| if signs.contains(c) { format!(" {c}\n") } else { c.to_string() };
        let text: String = op.to_string().chars().map(spread).collect();
        prop_assert_eq!(text.parse(), Ok(op));
    }

    #[test]
    fn any_text_parses_or_errs(text in any::<String>()) {
        parse_never_lies(&text);
    }

    #[test]
    fn pieces_in_any_order_parse_or_err(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12),
        form in prop::sample::select(Op::forms().collect::<Vec<_>>()),
    ) {
        parse_never_lies(&pieces.concat());
        parse_never_lies(&format!("{}{}", form.name(), pieces.concat()));
    }

    #[test]
    fn mutated_texts_parse_or_err(
        op in ops(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..3, prop::sample::select(PIECES)), 1..4),
    ) {
        let mut text: Vec<char> = op.to_string().chars().collect();
        for (at, cut, piece) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + cut).min(text.len());
            text.splice(at..end, piece.chars());
        }
        parse_never_lies(&text.into_iter().collect::<String>());
    }
}

#[test]
fn every_form_round_trips() {
    for op in Op::forms() {
        assert_eq!(op.to_string().parse(), Ok(op));
    }
}

#[test]
#[rustfmt::skip]
fn texts_are_readable() {
    let nan = |bits| Scalar::Float(Real(f64::from_bits(bits)));
    let literal = |value: Scalar| Op::literal(value, Spec::cpu(DType::F64, []));
    let spans: SmallVec<[Span; 2]> = smallvec![Span { start: 0, len: 5, step: 1 }, Span { start: 2, len: 3, step: 2 }];
    let padding = Padding { before: 1, after: 2, between: 0 };
    let table = [
        (Op::Unary(Unary::Tanh),                                  "tanh"),
        (Op::UnaryVjp(Unary::Tanh),                               "vjp.tanh"),
        (Op::Unary(Unary::GeluTanh),                              "gelu_tanh"),
        (Op::Binary(Binary::Add),                                 "add"),
        (Op::Compare(Compare::Lt),                                "lt"),
        (Op::Select,                                              "select"),
        (Op::Cast(DType::F32),                                    "cast{f32}"),
        (Op::After,                                               "after"),
        (Op::View(View::Reshape([2, 3].into())),                "reshape{[2,3]}"),
        (Op::View(View::Broadcast([].into())),                  "broadcast{[]}"),
        (Op::View(View::Slice(spans.clone())),                    "slice{[0:5:1, 2:3:2]}"),
        (Op::View(View::Diagonal { offset: -1, a: 0, b: 1 }),     "diagonal{offset=-1,a=0,b=1}"),
        (Op::View(View::Unfold { axis: 0, size: 3, step: 1 }),    "unfold{axis=0,size=3,step=1}"),
        (Op::Put(vec![View::Slice(spans), View::Permute([1, 0].into())]),
                                                       "put{[slice{[0:5:1, 2:3:2]}; permute{[1,0]}]}"),
        (Op::Put(vec![]),                                         "put{[]}"),
        (Op::Pad(smallvec![padding, Padding::default()]),         "pad{[1:2:0, 0:0:0]}"),
        (Op::Cat(0),                                              "cat{0}"),
        (Op::Scatter(0, Combine::Add),                            "scatter{0,add}"),
        (Op::Reduce(Reduction::Sum, [0, 1].into()),             "sum{[0,1]}"),
        (Op::ArgReduce(Extreme::Max, 1),                          "argmax{1}"),
        (Op::Cumulate { kind: Cumulation::Sum, axis: 0, reverse: true }, "cumsum{axis=0,reverse=true}"),
        (Op::Sort { axis: 0, descending: false },                 "sort{axis=0,descending=false}"),
        (Op::Dot,                                                 "dot"),
        (conv("conv"),                                            "conv{[3:2:1:1:1],groups=2}"),
        (conv("conv_input"),                                      "conv_input{[3:2:1:1:1],groups=2,lengths=[5]}"),
        (Op::Pool(Box::new(Pool { kind: Pooling::Sum, frames: vec![Frame::Sliding(WINDOW), Frame::Even(4)] })), "pool_sum{[3:2:1:1:1, even:4]}"),
        (Op::Fused(Fused::Softmax(1)),                            "softmax{1}"),
        (Op::Fused(Fused::SoftmaxVjp(1)),                         "vjp.softmax{1}"),
        (Op::Fused(Fused::LayerNorm(Real(1e-5))),                 "layer_norm{1e-5}"),
        (Op::Fused(Fused::BatchNorm(Real(1e-5))),                 "batch_norm{1e-5}"),
        (Op::Fused(Fused::BatchNormVjp(Real(1e-5))),              "vjp.batch_norm{1e-5}"),
        (Op::Fused(Fused::CrossEntropy),                          "cross_entropy"),
        (Op::literal(0.5.into(), Spec::cpu(DType::F32, [2, 3])), "literal{0.5: f32[2,3]}"),
        (Op::literal(0.5.into(), Spec::on(Device::Cuda(0), DType::F32, [2])), "literal{0.5: f32[2]@cuda:0}"),
        (Op::Iota { len: 5, dtype: DType::I64, device: Device::Cuda(1) }, "iota{5: i64@cuda:1}"),
        (Op::To(Device::Cpu), "to{cpu}"),
        (Op::To(Device::Cuda(2)), "to{cuda:2}"),
        (literal(1i64.into()),                                    "literal{1: f64[]}"),
        (literal(1.0f64.into()),                                  "literal{1.0: f64[]}"),
        (literal((-0.0f64).into()),                               "literal{-0.0: f64[]}"),
        (literal(f64::NEG_INFINITY.into()),                       "literal{-inf: f64[]}"),
        (literal(true.into()),                                    "literal{true: f64[]}"),
        (literal(f64::NAN.into()),                                "literal{NaN: f64[]}"),
        (literal(nan(0xfff8_0000_0000_0000)),                     "literal{NaN(0xfff8000000000000): f64[]}"),
        (Op::Iota { len: 5, dtype: DType::I64, device: Device::Cpu },                  "iota{5: i64}"),
        (Op::Random { kind: Random::Normal, shape: [2, 3].into(), dtype: DType::F32 }, "random.normal{f32[2,3]}"),
    ];
    for (op, text) in table {
        assert_eq!(op.to_string(), text);
        assert_eq!(text.parse(), Ok(op));
    }
}

#[test]
#[rustfmt::skip]
fn errors_say_what_and_where() {
    let table = [
        ("matmul",                       "unknown op `matmul` at byte 0"),
        ("cast{float}",                  "unknown dtype `float`; known are f64, f32, bf16, f16, i64, i32, u8, bool at byte 5"),
        ("sum",                          "expected `{` at byte 3"),
        ("sum{[0,1}",                    "expected `,` at byte 8"),
        ("sum{[0,]}",                    "expected a non-negative integer, found `` at byte 7"),
        ("cat{-1}",                      "expected a non-negative integer, found `-1` at byte 4"),
        ("tanh{}",                       "expected the end of the text at byte 4"),
        ("sort{axis=0,reverse=true}",    "expected `descending=`, found `reverse` at byte 12"),
        ("put{[tanh]}",                  "unknown view `tanh` at byte 5"),
        ("scatter{0,sum}",               "unknown combination `sum` at byte 10"),
        ("literal{9223372036854775808: i64[]}", "expected a number, found `9223372036854775808` at byte 8"),
        ("literal{NaN(0x0): f64[]}",     "expected the bits of a NaN in hexadecimal, found `0x0` at byte 12"),
    ];
    for (text, message) in table {
        assert_eq!(text.parse::<Op>().map_err(|e| e.to_string()), Err(message.to_string()));
    }
}
