//! Attention and convolutions by cuDNN against our own kernels in f64. They need a GPU and cuDNN,
//! and say so where there is none.

use crate::attention::{own, own_vjp};
use crate::dnn_attention::{attention, attention_vjp, vjp_within};
use crate::gpu::{DeviceScratch, Gpu};
use crate::loops::StridedOperand;
use crate::ops::copy;
use crate::{dnn_conv, window};
use pullback_ir::{Attention, Conv, DType, Real, Role, Shape, Window};
use std::sync::OnceLock;
use std::time::Instant;

fn device() -> Option<&'static Gpu> {
    static GPU: OnceLock<Option<Gpu>> = OnceLock::new();
    let gpu = GPU.get_or_init(|| Gpu::open(0).ok()).as_ref();
    let ready = gpu.filter(|gpu| gpu.dnn().is_some());
    if ready.is_none() {
        println!("skipped: there is no GPU with cuDNN");
    }
    ready
}

/// A tensor and its memory.
pub(crate) struct Owned<'a> {
    _memory: DeviceScratch<'a>,
    pub x: StridedOperand,
}

pub(crate) fn empty<'a>(gpu: &'a Gpu, dtype: DType, shape: &[usize]) -> Owned<'a> {
    let x = StridedOperand::dense(0, dtype, shape);
    let memory = gpu.scratch(x.bytes()).unwrap();
    // What is not written shows.
    gpu.fill(memory.at, 0xff, x.bytes()).unwrap();
    Owned { x: StridedOperand { at: memory.at, ..x }, _memory: memory }
}

pub(crate) fn cast<'a>(gpu: &'a Gpu, x: &StridedOperand, dtype: DType) -> Owned<'a> {
    let to = empty(gpu, dtype, &x.shape);
    copy(gpu, x, &to.x).unwrap();
    to
}

/// Numbers between −1 and 1.
pub(crate) fn noise<'a>(gpu: &'a Gpu, dtype: DType, shape: &[usize], seed: u64) -> Owned<'a> {
    let wide = empty(gpu, DType::F32, shape);
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(wide.x.bytes());
    for _ in 0..wide.x.len() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let value = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        bytes.extend(value.to_ne_bytes());
    }
    gpu.upload(&bytes, wide.x.at).unwrap();
    cast(gpu, &wide.x, dtype)
}

pub(crate) fn bytes(gpu: &Gpu, x: &StridedOperand) -> Vec<u8> {
    let mut bytes = vec![0; x.bytes()];
    gpu.download(x.at, &mut bytes).unwrap();
    bytes
}

pub(crate) fn values(gpu: &Gpu, x: &StridedOperand) -> Vec<f64> {
    let wide = cast(gpu, x, DType::F64);
    let bytes = bytes(gpu, &wide.x);
    bytes.chunks_exact(8).map(|b| f64::from_ne_bytes(b.try_into().unwrap())).collect()
}

/// The length of the difference over that of what is wanted.
pub(crate) fn error(gpu: &Gpu, got: &StridedOperand, want: &StridedOperand) -> f64 {
    let (got, want) = (values(gpu, got), values(gpu, want));
    let square = |sum: f64, x: f64| sum + x * x;
    let off = got.iter().zip(&want).map(|(a, b)| a - b).fold(0.0, square);
    (off / want.iter().copied().fold(1e-30, square)).sqrt()
}

pub(crate) fn how(causal: bool, width: usize) -> Attention {
    let scale = Real(1.0 / (width as f64).sqrt());
    Attention { causal, masked: false, scale, dropout: Real(0.0) }
}

pub(crate) struct Case {
    pub dtype: DType,
    pub heads: usize,
    pub groups: usize,
    pub queries: usize,
    pub keys: usize,
    pub width: usize,
    pub value: usize,
    pub causal: bool,
    pub packed: bool,
}

pub(crate) const BATCH: usize = 2;

/// Queries, keys and values: dense, or views of one buffer `[batch, steps, 3, heads, width]`.
pub(crate) fn operands<'a>(gpu: &'a Gpu, c: &Case) -> (Vec<Owned<'a>>, Vec<StridedOperand>) {
    if !c.packed {
        let k = [BATCH, c.groups, c.keys, c.width];
        let made = vec![
            noise(gpu, c.dtype, &[BATCH, c.heads, c.queries, c.width], 1),
            noise(gpu, c.dtype, &k, 2),
            noise(gpu, c.dtype, &[BATCH, c.groups, c.keys, c.value], 3),
        ];
        let x = made.iter().map(|m| m.x.clone()).collect();
        return (made, x);
    }
    let whole = noise(gpu, c.dtype, &[BATCH, c.queries, 3, c.heads, c.width], 4);
    let row = (c.heads * c.width) as isize;
    let strides = [3 * row * c.queries as isize, c.width as isize, 3 * row, 1];
    let shape = [BATCH, c.heads, c.queries, c.width];
    let x = (0..3).map(|k| whole.x.from(k * row).as_strided(&shape, &strides)).collect();
    (vec![whole], x)
}

fn check_attention(gpu: &Gpu, c: &Case) {
    let name = format!(
        "{} heads {}/{} queries {} keys {} widths {}/{} causal {} packed {}",
        c.dtype, c.heads, c.groups, c.queries, c.keys, c.width, c.value, c.causal, c.packed
    );
    let how = how(c.causal, c.width);
    let (_held, x) = operands(gpu, c);
    let out = [BATCH, c.heads, c.queries, c.value];
    let (y, lse) = (empty(gpu, c.dtype, &out), empty(gpu, DType::F32, &out[..3]));
    let clock = Instant::now();
    assert!(attention(gpu, how, &x, &[y.x.clone(), lse.x.clone()]).unwrap(), "{name}: refused");
    // The gradient as it comes from a projection: heads after steps.
    let dy = noise(gpu, c.dtype, &[BATCH, c.queries, c.heads, c.value], 5);
    let dy = dy.x.permuted(&[0, 2, 1, 3]);
    let mut of = x.clone();
    of.extend([y.x.clone(), lse.x.clone(), dy.clone()]);
    let made: Vec<Owned<'_>> = x.iter().map(|x| empty(gpu, c.dtype, &x.shape)).collect();
    let to: Vec<StridedOperand> = made.iter().map(|m| m.x.clone()).collect();
    assert!(attention_vjp(gpu, how, &of, &to).unwrap(), "{name}: refused backward");
    let took = clock.elapsed().as_millis();
    // The same in f64 by our own kernels.
    let wide: Vec<Owned<'_>> = x.iter().map(|x| cast(gpu, x, DType::F64)).collect();
    let mut wide: Vec<StridedOperand> = wide.iter().map(|w| w.x.clone()).collect();
    let (y64, lse64) = (empty(gpu, DType::F64, &out), empty(gpu, DType::F64, &out[..3]));
    own(gpu, how, &wide, &[y64.x.clone(), lse64.x.clone()]).unwrap();
    let dy64 = cast(gpu, &dy, DType::F64);
    wide.extend([y64.x.clone(), lse64.x.clone(), dy64.x.clone()]);
    let wanted: Vec<Owned<'_>> = x.iter().map(|x| empty(gpu, DType::F64, &x.shape)).collect();
    let wanted_at: Vec<StridedOperand> = wanted.iter().map(|m| m.x.clone()).collect();
    own_vjp(gpu, how, &wide, &wanted_at).unwrap();
    let bound = if c.dtype == DType::BF16 { 8e-3 } else { 2e-3 };
    let off = [error(gpu, &y.x, &y64.x), error(gpu, &lse.x, &lse64.x)];
    let back: Vec<f64> = to.iter().zip(&wanted_at).map(|(a, b)| error(gpu, a, b)).collect();
    println!("{name}: {took} ms, y {:.1e} lse {:.1e} gradients {back:.5?}", off[0], off[1]);
    assert!(off[0] < bound && off[1] < 1e-3, "{name}: {off:?}");
    // One key has all the weight: dq and dk are zero, up to rounding.
    let exact = c.queries > 1;
    assert!(!exact || back.iter().all(|e| *e < 2.0 * bound), "{name}: {back:?}");
    assert!(back[2] < bound, "{name}: {back:?}");
    // The same bits again, also in parts.
    let first: Vec<Vec<u8>> = to.iter().map(|to| bytes(gpu, to)).collect();
    let forward = (bytes(gpu, &y.x), bytes(gpu, &lse.x));
    for scratch in [usize::MAX, usize::MAX, 1] {
        attention(gpu, how, &x, &[y.x.clone(), lse.x.clone()]).unwrap();
        assert!(forward == (bytes(gpu, &y.x), bytes(gpu, &lse.x)), "{name}: other bits");
        to.iter().for_each(|to| gpu.fill(to.at, 0xff, to.bytes()).unwrap());
        assert!(vjp_within(gpu, how, &of, &to, scratch).unwrap(), "{name}: refused in parts");
        if scratch > 1 {
            let again: Vec<Vec<u8>> = to.iter().map(|to| bytes(gpu, to)).collect();
            assert!(first == again, "{name}: other bits in a second run");
        } else {
            let back: Vec<f64> = to.iter().zip(&wanted_at).map(|(a, b)| error(gpu, a, b)).collect();
            assert!(!exact || back.iter().all(|e| *e < 2.0 * bound), "{name}: in parts {back:?}");
        }
    }
}

#[test]
fn attention_by_cudnn_is_attention() {
    let Some(gpu) = device() else { return };
    let (bf16, f16) = (DType::BF16, DType::F16);
    let square = |dtype, steps, width, causal, packed| Case {
        dtype,
        heads: 3,
        groups: 3,
        queries: steps,
        keys: steps,
        width,
        value: width,
        causal,
        packed,
    };
    let cases = [
        square(bf16, 1, 64, true, true),
        square(f16, 16, 40, true, false),
        square(bf16, 77, 80, true, true),
        square(bf16, 130, 128, false, false),
        square(f16, 1000, 64, true, true),
        square(bf16, 1000, 128, true, true),
        square(f16, 77, 64, false, true),
        square(bf16, 256, 256, true, false),
        Case { keys: 130, ..square(bf16, 36, 64, true, false) },
        Case { keys: 33, ..square(bf16, 130, 64, true, false) },
        Case { keys: 130, value: 32, ..square(bf16, 36, 64, false, false) },
        Case { heads: 4, groups: 2, ..square(bf16, 128, 64, true, false) },
        Case { heads: 4, groups: 1, ..square(f16, 77, 128, false, false) },
    ];
    let mut failed = Vec::new();
    for case in &cases {
        let check = std::panic::AssertUnwindSafe(|| check_attention(gpu, case));
        if let Err(why) = std::panic::catch_unwind(check) {
            failed.push(why.downcast::<String>().map_or("?".to_string(), |why| *why));
        }
    }
    gpu.dnn().into_iter().flat_map(|dnn| dnn.refusals()).for_each(|why| println!("{why}"));
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Sizes at which sums by atomics do give other bits.
#[test]
fn attention_repeats_its_bits() {
    let Some(gpu) = device() else { return };
    for shape in [[16, 12, 1024, 64], [4, 16, 4096, 128]] {
        let x: Vec<Owned<'_>> = (0..4).map(|k| noise(gpu, DType::BF16, &shape, k)).collect();
        let made = [empty(gpu, DType::BF16, &shape), empty(gpu, DType::F32, &shape[..3])];
        let to: Vec<Owned<'_>> = (0..3).map(|_| empty(gpu, DType::BF16, &shape)).collect();
        let [x, made, to] = [&x[..], &made, &to].map(|all| all.iter().map(|m| m.x.clone()));
        let (x, made, to): (Vec<_>, Vec<_>, Vec<_>) = (x.collect(), made.collect(), to.collect());
        let of = [&x[..3], &made, &x[3..]].concat();
        let run = || {
            assert!(attention(gpu, how(true, shape[3]), &x[..3], &made).unwrap());
            assert!(attention_vjp(gpu, how(true, shape[3]), &of, &to).unwrap());
            made.iter().chain(&to).map(|x| bytes(gpu, x)).collect::<Vec<_>>()
        };
        let first = run();
        for n in 0..5 {
            let same: Vec<bool> = first.iter().zip(run()).map(|(a, b)| *a == b).collect();
            assert!(same.iter().all(|same| *same), "{shape:?}, run {n}: {same:?}");
        }
    }
}

/// What cuDNN is not asked for, or what it refuses, is left to our own kernels.
#[test]
fn other_attention_is_left_alone() {
    let Some(gpu) = device() else { return };
    let shape = [1, 2, 8, 20];
    let x: Vec<Owned<'_>> = (0..3).map(|k| noise(gpu, DType::BF16, &shape, k)).collect();
    let x: Vec<StridedOperand> = x.iter().map(|x| x.x.clone()).collect();
    let (y, lse) = (empty(gpu, DType::BF16, &shape), empty(gpu, DType::F32, &shape[..3]));
    let out = [y.x.clone(), lse.x.clone()];
    assert!(!attention(gpu, how(true, 20), &x, &out).unwrap());
    crate::attention::attention(gpu, how(true, 20), &x, &out).unwrap();
    assert!(values(gpu, &y.x).iter().all(|y| y.abs() <= 1.0));
}

struct ConvCase {
    n: usize,
    groups: usize,
    /// Channels of a group: in, out.
    channels: [usize; 2],
    lengths: &'static [usize],
    windows: &'static [Window],
}

const fn sliding(
    size: usize,
    stride: usize,
    dilation: usize,
    before: isize,
    after: isize,
) -> Window {
    Window { size, stride, dilation, before, after }
}

const CONVS: &[ConvCase] = &[
    ConvCase {
        n: 3,
        groups: 1,
        channels: [8, 16],
        lengths: &[19],
        windows: &[sliding(3, 1, 1, 1, 1)],
    },
    ConvCase {
        n: 4,
        groups: 1,
        channels: [16, 24],
        lengths: &[14, 14],
        windows: &[sliding(3, 1, 1, 1, 1), sliding(3, 1, 1, 1, 1)],
    },
    ConvCase {
        n: 2,
        groups: 1,
        channels: [3, 64],
        lengths: &[33, 32],
        windows: &[sliding(7, 2, 1, 3, 3), sliding(7, 2, 1, 3, 3)],
    },
    ConvCase {
        n: 5,
        groups: 1,
        channels: [64, 32],
        lengths: &[7, 9],
        windows: &[sliding(1, 2, 1, 0, 0), sliding(1, 2, 1, 0, 0)],
    },
    ConvCase {
        n: 2,
        groups: 4,
        channels: [8, 8],
        lengths: &[12, 11],
        windows: &[sliding(3, 1, 2, 2, 2), sliding(3, 1, 2, 2, 2)],
    },
    ConvCase {
        n: 2,
        groups: 16,
        channels: [1, 1],
        lengths: &[12, 12],
        windows: &[sliding(3, 1, 1, 1, 1), sliding(3, 1, 1, 1, 1)],
    },
    ConvCase {
        n: 2,
        groups: 1,
        channels: [7, 5],
        lengths: &[10, 13],
        windows: &[sliding(2, 1, 1, 0, 1), sliding(3, 2, 1, 1, 0)],
    },
    ConvCase {
        n: 2,
        groups: 1,
        channels: [8, 8],
        lengths: &[10, 10],
        windows: &[sliding(3, 1, 1, -1, 1), sliding(3, 1, 1, 1, -1)],
    },
    ConvCase {
        n: 2,
        groups: 1,
        channels: [16, 8],
        lengths: &[6, 7, 8],
        windows: &[sliding(3, 1, 1, 1, 1), sliding(3, 2, 1, 1, 1), sliding(3, 1, 1, 1, 1)],
    },
];

/// Checks one member of the family; whether it was cuDNN that ran.
fn check_conv(gpu: &Gpu, c: &ConvCase, role: usize, dtype: DType, permuted: bool) -> bool {
    let [i, o] = c.channels;
    let counts = c.windows.iter().zip(c.lengths).map(|(w, &len)| w.count(len).unwrap());
    let shape = |first: [usize; 2], rest: Vec<usize>| [&first[..], &rest].concat();
    let shapes = [
        shape([c.n, c.groups * i], c.lengths.to_vec()),
        shape([c.groups * o, i], c.windows.iter().map(|w| w.size).collect()),
        shape([c.n, c.groups * o], counts.collect()),
    ];
    let how = Conv {
        role: match role {
            0 => Role::Forward,
            1 => Role::Input(Shape::from_slice(c.lengths)),
            _ => Role::Filter,
        },
        windows: c.windows.to_vec(),
        groups: c.groups,
        last: false,
    };
    let out = [2, 0, 1][role];
    let made: Vec<Owned<'_>> = shapes
        .iter()
        .enumerate()
        .map(|(k, shape)| match k == out {
            true => empty(gpu, dtype, shape),
            false => noise(gpu, dtype, shape, 7 + k as u64),
        })
        .collect();
    let mut x: Vec<StridedOperand> = made.iter().map(|m| m.x.clone()).collect();
    // The same operands with the channels last in memory.
    let rank = x[0].shape.len();
    let order: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let back: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let mut held = Vec::new();
    for (k, x) in x.iter_mut().enumerate().filter(|(k, _)| permuted && *k != out) {
        let moved = cast(gpu, &made[k].x.permuted(&order), dtype);
        *x = moved.x.permuted(&back);
        held.push(moved);
    }
    let by_dnn = dnn_conv::conv(gpu, &how, [&x[0], &x[1], &x[2]], out).unwrap();
    let pair = [[0, 1], [2, 1], [0, 2]][role];
    if !by_dnn {
        window::own_conv(gpu, &how, &x[pair[0]], &x[pair[1]], &x[out]).unwrap();
    }
    let wide: Vec<Owned<'_>> = x.iter().map(|x| cast(gpu, x, DType::F64)).collect();
    window::own_conv(gpu, &how, &wide[pair[0]].x, &wide[pair[1]].x, &wide[out].x).unwrap();
    let off = error(gpu, &x[out], &wide[out].x);
    let bound = match dtype {
        DType::BF16 => 4e-3,
        DType::F16 => 6e-4,
        DType::F32 => 3e-6,
        _ => 1e-14,
    };
    assert!(off < bound, "{how:?} {dtype} {shapes:?}, by cuDNN {by_dnn}: {off:.1e}");
    let first = bytes(gpu, &x[out]);
    gpu.fill(x[out].at, 0xff, first.len()).unwrap();
    window::conv(gpu, &how, &x[pair[0]], &x[pair[1]], &x[out]).unwrap();
    assert!(first == bytes(gpu, &x[out]), "{how:?} {dtype}: other bits in a second run");
    by_dnn
}

#[test]
fn convolution_by_cudnn_is_convolution() {
    let Some(gpu) = device() else { return };
    let (mut failed, mut count) = (Vec::new(), [0, 0]);
    for (number, case) in CONVS.iter().enumerate() {
        for dtype in [DType::BF16, DType::F16, DType::F32, DType::F64] {
            for role in 0..3 {
                let check = || check_conv(gpu, case, role, dtype, (number + role) % 2 == 1);
                match std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
                    Ok(by_dnn) => {
                        count[usize::from(by_dnn)] += 1;
                        if !by_dnn {
                            println!("own kernels: case {number}, {dtype}, role {role}");
                        }
                    }
                    Err(why) => {
                        failed.push(why.downcast::<String>().map_or("?".to_string(), |why| *why));
                    }
                }
            }
        }
    }
    println!("{} convolutions by cuDNN, {} by our own kernels", count[1], count[0]);
    gpu.dnn().into_iter().flat_map(|dnn| dnn.refusals()).for_each(|why| println!("{why}"));
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Milliseconds of one call, of many in a row.
pub(crate) fn time(gpu: &Gpu, mut f: impl FnMut()) -> f64 {
    (0..5).for_each(|_| f());
    gpu.synchronize().unwrap();
    let mut all: Vec<f64> = (0..5)
        .map(|_| {
            let clock = Instant::now();
            (0..20).for_each(|_| f());
            gpu.synchronize().unwrap();
            clock.elapsed().as_secs_f64() * 50.0
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all[2]
}

/// Run by hand: `cargo test -p pullback-cuda --release times -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn times_of_attention() {
    let Some(gpu) = device() else { return };
    for [b, h, t, d] in [[16, 12, 1024, 64], [4, 16, 4096, 128]] {
        let x: Vec<Owned<'_>> = (0..4).map(|k| noise(gpu, DType::BF16, &[b, h, t, d], k)).collect();
        let (y, lse) = (empty(gpu, DType::BF16, &[b, h, t, d]), empty(gpu, DType::F32, &[b, h, t]));
        let to: Vec<Owned<'_>> = (0..3).map(|_| empty(gpu, DType::BF16, &[b, h, t, d])).collect();
        let to: Vec<StridedOperand> = to.iter().map(|x| x.x.clone()).collect();
        let x: Vec<StridedOperand> = x.iter().map(|x| x.x.clone()).collect();
        let made = [y.x.clone(), lse.x.clone()];
        let of = [&x[..3], &made, &x[3..]].concat();
        let how = how(true, d);
        let clock = Instant::now();
        let forward = || assert!(attention(gpu, how, &x[..3], &made).unwrap());
        let backward = || assert!(attention_vjp(gpu, how, &of, &to).unwrap());
        forward();
        gpu.synchronize().unwrap();
        let plans = clock.elapsed().as_secs_f64() * 1e3;
        let clock = Instant::now();
        backward();
        gpu.synchronize().unwrap();
        let plans = [plans, clock.elapsed().as_secs_f64() * 1e3];
        let one = time(gpu, forward);
        let both = time(gpu, || {
            forward();
            backward();
        });
        println!(
            "attention {b} {h} {t} {d}: forward {one:.4} ms, both {both:.4} ms; first calls \
             {plans:.0?} ms"
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn times_of_convolutions() {
    let Some(gpu) = device() else { return };
    // Channels, length, filters, size, stride.
    let layers = [
        [3, 224, 64, 7, 2],
        [64, 56, 64, 1, 1],
        [64, 56, 64, 3, 1],
        [256, 56, 64, 1, 1],
        [128, 56, 128, 3, 2],
        [512, 28, 128, 1, 1],
        [256, 14, 256, 3, 1],
        [1024, 14, 256, 1, 1],
        [512, 7, 512, 3, 1],
        [2048, 7, 512, 1, 1],
    ];
    for [c, len, o, k, stride] in layers {
        let slide = sliding(k, stride, 1, (k / 2) as isize, (k / 2) as isize);
        let count = slide.count(len).unwrap();
        let shapes = [[128, c, len, len], [o, c, k, k], [128, o, count, count]];
        let x: Vec<Owned<'_>> =
            shapes.iter().map(|shape| noise(gpu, DType::BF16, shape, 3)).collect();
        let dense: Vec<StridedOperand> = x.iter().map(|x| x.x.clone()).collect();
        let last: Vec<StridedOperand> = x
            .iter()
            .map(|x| {
                let [n, c, h, w] = [0, 1, 2, 3].map(|d| x.x.shape[d]);
                StridedOperand::dense(x.x.at, x.x.dtype, &[n, h, w, c]).permuted(&[0, 3, 1, 2])
            })
            .collect();
        let mut line = format!("conv {c} {len} {o} {k} {stride}:");
        for role in 0..3 {
            let how = Conv {
                role: match role {
                    0 => Role::Forward,
                    1 => Role::Input(Shape::from_slice(&[len, len])),
                    _ => Role::Filter,
                },
                windows: vec![slide; 2],
                groups: 1,
                last: false,
            };
            let out = [2, 0, 1][role];
            let all = |x: &[StridedOperand]| {
                dnn_conv::conv(gpu, &how, [&x[0], &x[1], &x[2]], out).unwrap()
            };
            let as_is = |last| {
                let of = [&dense[0], &dense[1], &dense[2]];
                dnn_conv::in_layout(gpu, &how, of, out, last).unwrap()
            };
            let channels = if all(&last) { time(gpu, || _ = all(&last)) } else { f64::NAN };
            let around = if as_is(true) { time(gpu, || _ = as_is(true)) } else { f64::NAN };
            let first = if as_is(false) { time(gpu, || _ = as_is(false)) } else { f64::NAN };
            line += &format!(" [last {channels:.4} transposed {around:.4} first {first:.4}]");
        }
        println!("{line}");
    }
}
