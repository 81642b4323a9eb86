//! Attention without stored scores against products and loops in f64. They need a GPU, and say so
//! where there is none; the texts of the kernels compile wherever NVRTC is.

use crate::attention::{own, own_vjp};
use crate::dnn_tests::{
    BATCH, Case, Owned, bytes, cast, empty, how, noise, operands, time, values,
};
use crate::flash::{FlashForm, FlashKernel, FlashTiling, attention, attention_vjp, prepared, tile};
use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::tests::compiles;
use pullback_ir::{Attention, DType, dense_strides, with_tf32};
use std::sync::OnceLock;

const KERNELS: [FlashKernel; 5] = [
    FlashKernel::Forward,
    FlashKernel::Few,
    FlashKernel::Rows,
    FlashKernel::Queries,
    FlashKernel::Keys,
];

fn device() -> Option<&'static Gpu> {
    static GPU: OnceLock<Option<Gpu>> = OnceLock::new();
    let gpu = GPU.get_or_init(|| Gpu::open(0).ok()).as_ref();
    if gpu.is_none() {
        println!("skipped: there is no GPU");
    }
    gpu
}

#[test]
fn kernels_of_attention_compile() {
    let of = |dtype, width, value, exact, mask| FlashForm {
        dtype,
        width,
        value,
        exact,
        causal: mask != 1,
        mask,
    };
    let forms = [
        of(DType::F32, 64, 64, false, 0),
        of(DType::F32, 40, 24, true, 2),
        of(DType::BF16, 128, 128, false, 1),
        of(DType::F16, 24, 80, false, 0),
    ];
    for form in forms {
        for kernel in KERNELS {
            let tile = form.tiles(kernel)[0];
            compiles(&format!("{kernel:?} {form:?} {tile:?}"), &form.text(kernel, tile));
        }
    }
}

/// The last tile of each form fits the shared memory of every chip from sm_80 on, the first that
/// of an H200.
#[test]
fn tiles_of_attention_fit() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        for width in [8, 64, 72, 128] {
            for exact in [false, true] {
                let form = FlashForm { dtype, width, value: width, exact, causal: true, mask: 0 };
                for kernel in KERNELS {
                    let tiles = form.tiles(kernel);
                    let (first, last) = (tiles[0], tiles[tiles.len() - 1]);
                    assert!(form.shared(kernel, first) <= 227 << 10, "{kernel:?} {form:?}");
                    assert!(form.shared(kernel, last) <= 99 << 10, "{kernel:?} {form:?}");
                }
            }
        }
    }
}

/// The length of the difference over that of what is wanted; what is not finite must be equal.
fn error(gpu: &Gpu, got: &StridedOperand, want: &StridedOperand) -> f64 {
    let (got, want) = (values(gpu, got), values(gpu, want));
    let (mut off, mut all) = (0.0, 1e-30);
    for (&a, &b) in got.iter().zip(&want) {
        if a != b {
            off += (a - b) * (a - b);
        }
        all += if b.is_finite() { b * b } else { 0.0 };
    }
    f64::sqrt(off / all)
}

/// A mask over keys, of which some queries see nothing.
fn mask<'a>(gpu: &'a Gpu, c: &Case, kind: DType) -> Owned<'a> {
    let shape = [BATCH, c.heads, c.queries, c.keys];
    let hidden = |i: usize| i / c.keys % 7 == 3 || (i * 7919) % 11 < 3;
    let of = empty(gpu, if kind == DType::Bool { kind } else { DType::F32 }, &shape);
    let all = 0..of.x.len();
    let host: Vec<u8> = match kind {
        DType::Bool => all.map(|i| u8::from(!hidden(i))).collect(),
        _ => all
            .map(|i| if hidden(i) { f32::NEG_INFINITY } else { (i % 13) as f32 / 8.0 })
            .flat_map(f32::to_ne_bytes)
            .collect(),
    };
    gpu.upload(&host, of.x.at).unwrap();
    if kind == DType::Bool { of } else { cast(gpu, &of.x, kind) }
}

/// How wrong results and gradients may be.
fn bounds(dtype: DType, exact: bool) -> (f64, f64) {
    match dtype {
        DType::F32 if exact => (1e-6, 3e-6),
        DType::F32 => (1e-3, 2e-3),
        DType::F16 => (1e-3, 2e-3),
        _ => (8e-3, 1.6e-2),
    }
}

fn check(gpu: &Gpu, c: &Case, kind: Option<DType>, exact: bool) {
    let name = format!(
        "{} exact {exact} heads {}/{} queries {} keys {} widths {}/{} causal {} packed {} mask {:?}",
        c.dtype, c.heads, c.groups, c.queries, c.keys, c.width, c.value, c.causal, c.packed, kind
    );
    let how = Attention { masked: kind.is_some(), ..how(c.causal, c.width) };
    let (_held, mut x) = operands(gpu, c);
    let mask = kind.map(|kind| mask(gpu, c, kind));
    x.extend(mask.iter().map(|mask| mask.x.clone()));
    let out = [BATCH, c.heads, c.queries, c.value];
    let (y, lse) = (empty(gpu, c.dtype, &out), empty(gpu, DType::F32, &out[..3]));
    let made = [y.x.clone(), lse.x.clone()];
    assert!(attention(gpu, how, &x, &made).unwrap(), "{name}: refused");
    // The gradient as it comes from a projection: heads after steps.
    let dy = noise(gpu, c.dtype, &[BATCH, c.queries, c.heads, c.value], 5);
    let dy = dy.x.permuted(&[0, 2, 1, 3]);
    let of = [&x[..], &made, std::slice::from_ref(&dy)].concat();
    let to: Vec<Owned<'_>> = x[..3].iter().map(|x| empty(gpu, c.dtype, &x.shape)).collect();
    let to: Vec<StridedOperand> = to.iter().map(|to| to.x.clone()).collect();
    assert!(attention_vjp(gpu, how, &of, &to).unwrap(), "{name}: refused backward");
    // The same in f64 by products and loops.
    let wide: Vec<Owned<'_>> = x[..3].iter().map(|x| cast(gpu, x, DType::F64)).collect();
    let mut wide: Vec<StridedOperand> = wide.iter().map(|x| x.x.clone()).collect();
    let added = mask.as_ref().filter(|mask| mask.x.dtype != DType::Bool);
    let added = added.map(|mask| cast(gpu, &mask.x, DType::F64));
    wide.extend(added.as_ref().or(mask.as_ref()).map(|mask| mask.x.clone()));
    let (y64, lse64) = (empty(gpu, DType::F64, &out), empty(gpu, DType::F64, &out[..3]));
    own(gpu, how, &wide, &[y64.x.clone(), lse64.x.clone()]).unwrap();
    let dy64 = cast(gpu, &dy, DType::F64);
    wide.extend([y64.x.clone(), lse64.x.clone(), dy64.x.clone()]);
    let wanted: Vec<Owned<'_>> = x[..3].iter().map(|x| empty(gpu, DType::F64, &x.shape)).collect();
    let wanted: Vec<StridedOperand> = wanted.iter().map(|to| to.x.clone()).collect();
    own_vjp(gpu, how, &wide, &wanted).unwrap();
    let (bound, back_bound) = bounds(c.dtype, exact);
    let off = [error(gpu, &y.x, &y64.x), error(gpu, &lse.x, &lse64.x)];
    let back: Vec<f64> = to.iter().zip(&wanted).map(|(a, b)| error(gpu, a, b)).collect();
    println!("{name}: y {:.1e} lse {:.1e} gradients {back:.8?}", off[0], off[1]);
    assert!(off.iter().all(|off| *off < bound), "{name}: {off:?}");
    // One key has all the weight: dq and dk are zero, up to rounding.
    let several = c.queries > 1 && c.keys > 1;
    assert!(!several || back.iter().all(|off| *off < back_bound), "{name}: {back:?}");
    assert!(back[2] < back_bound, "{name}: {back:?}");
    let all = || made.iter().chain(&to).map(|x| bytes(gpu, x)).collect::<Vec<_>>();
    let first = all();
    attention(gpu, how, &x, &made).unwrap();
    attention_vjp(gpu, how, &of, &to).unwrap();
    assert!(first == all(), "{name}: other bits in a second run");
}

#[test]
fn attention_without_scores_is_attention() {
    let Some(gpu) = device() else { return };
    let mut failed = Vec::new();
    for (dtype, exact) in
        [(DType::F32, false), (DType::F32, true), (DType::BF16, false), (DType::F16, false)]
    {
        let square = |steps, width, causal, packed| Case {
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
            (square(1, 64, true, true), None),
            (Case { keys: 512, ..square(1, 64, false, false) }, Some(DType::Bool)),
            (Case { heads: 6, keys: 700, ..square(4, 128, true, false) }, Some(dtype)),
            (Case { keys: 33, value: 8, ..square(3, 24, false, false) }, None),
            (square(16, 40, true, false), None),
            (square(77, 80, true, true), None),
            (square(130, 128, false, false), None),
            (square(1000, 64, true, true), None),
            (square(1000, 128, true, true), None),
            (square(1000, 16, false, false), None),
            (Case { keys: 130, ..square(36, 64, true, false) }, None),
            (Case { keys: 33, ..square(130, 64, true, false) }, Some(DType::Bool)),
            (Case { keys: 130, value: 24, ..square(36, 72, false, false) }, Some(dtype)),
            (Case { heads: 4, groups: 2, ..square(128, 64, true, false) }, Some(DType::Bool)),
            (Case { heads: 4, groups: 1, ..square(77, 128, false, false) }, Some(dtype)),
            (Case { heads: 4, groups: 1, keys: 1, ..square(200, 8, true, false) }, None),
        ];
        for (case, kind) in &cases {
            let check = || with_tf32(!exact, || check(gpu, case, *kind, exact));
            if let Err(why) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
                failed.push(why.downcast::<String>().map_or("?".to_string(), |why| *why));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Operands whose rows cannot be moved by 16 bytes are copied, and heads that are broadcast are
/// read where they are.
#[test]
fn attention_takes_any_layout() {
    let Some(gpu) = device() else { return };
    let whole = noise(gpu, DType::F32, &[4, 2, 50, 24], 1);
    let plain = [2, 3, 4, 40, 16];
    let mut layouts = vec![dense_strides(&plain).to_vec()];
    layouts.push(vec![0, 0, 1200, 24, 1]);
    layouts.push(vec![2400, 1, 1200, 24, 1]);
    layouts.push(vec![2400, 0, 0, 24, 1]);
    layouts.push(vec![1200, 0, 1200, 1, 40]);
    for (n, strides) in layouts.iter().enumerate() {
        let source = if n == 0 {
            noise(gpu, DType::F32, &plain, 9)
        } else {
            cast(gpu, &whole.x, DType::F32)
        };
        let x = source.x.as_strided(&plain, strides);
        let dense = cast(gpu, &x, DType::F32);
        let made = |x: &StridedOperand| {
            let (y, lse) = (empty(gpu, DType::F32, &plain), empty(gpu, DType::F32, &plain[..4]));
            let all = [x.clone(), x.clone(), x.clone()];
            let out = [y.x.clone(), lse.x.clone()];
            assert!(attention(gpu, how(true, 16), &all, &out).unwrap(), "{strides:?}");
            [bytes(gpu, &y.x), bytes(gpu, &lse.x)]
        };
        assert!(made(&x) == made(&dense.x), "{strides:?}");
    }
}

#[test]
fn other_attention_stores_scores() {
    let Some(gpu) = device() else { return };
    for (dtype, width) in [(DType::F32, 20), (DType::F32, 136), (DType::F64, 16)] {
        let shape = [1, 2, 8, width];
        let x: Vec<Owned<'_>> = (0..3).map(|k| noise(gpu, dtype, &shape, k)).collect();
        let x: Vec<StridedOperand> = x.iter().map(|x| x.x.clone()).collect();
        let (y, lse) = (empty(gpu, dtype, &shape), empty(gpu, dtype, &shape[..3]));
        let out = [y.x.clone(), lse.x.clone()];
        assert!(!attention(gpu, how(true, width), &x, &out).unwrap());
        crate::attention::attention(gpu, how(true, width), &x, &out).unwrap();
        assert!(values(gpu, &y.x).iter().all(|y| y.abs() <= 1.0));
    }
}

/// Run by hand: `cargo test -p pullback-cuda --release times -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn times_of_attention_without_scores() {
    times_of_all(false);
}

#[test]
#[ignore = "a measurement of a minute"]
fn times_of_other_tiles_of_attention() {
    times_of_all(true);
}

fn times_of_all(other_tiles: bool) {
    let Some(gpu) = device() else { return };
    for keys in [512, 8192] {
        let (one, all) = ([1, 12, 1, 64], [1, 12, keys, 64]);
        let x = [one, all, all].map(|shape| noise(gpu, DType::BF16, &shape, 1));
        let x: Vec<StridedOperand> = x.iter().map(|x| x.x.clone()).collect();
        let (y, lse) = (empty(gpu, DType::BF16, &one), empty(gpu, DType::F32, &one[..3]));
        let out = [y.x.clone(), lse.x.clone()];
        let ms = time(gpu, || assert!(attention(gpu, how(false, 64), &x, &out).unwrap()));
        println!("one query, {keys} keys, bf16: {ms:.4} ms");
    }
    for shape in [[16, 12, 1024, 64], [4, 16, 4096, 128]] {
        for (dtype, tf32) in [(DType::F32, true), (DType::F32, false), (DType::BF16, false)] {
            with_tf32(tf32, || times(gpu, dtype, shape, tf32, other_tiles));
        }
    }
}

fn times(gpu: &Gpu, dtype: DType, shape: [usize; 4], tf32: bool, other_tiles: bool) {
    let [b, h, t, d] = shape;
    let x: Vec<Owned<'_>> = (0..4).map(|k| noise(gpu, dtype, &shape, k)).collect();
    let (y, lse) = (empty(gpu, dtype, &shape), empty(gpu, DType::F32, &[b, h, t]));
    let to: Vec<Owned<'_>> = (0..3).map(|_| empty(gpu, dtype, &shape)).collect();
    let to: Vec<StridedOperand> = to.iter().map(|x| x.x.clone()).collect();
    let x: Vec<StridedOperand> = x.iter().map(|x| x.x.clone()).collect();
    let made = [y.x.clone(), lse.x.clone()];
    let of = [&x[..3], &made, &x[3..]].concat();
    let how = how(true, d);
    let forward = time(gpu, || assert!(attention(gpu, how, &x[..3], &made).unwrap()));
    let backward = time(gpu, || assert!(attention_vjp(gpu, how, &of, &to).unwrap()));
    // Four products of half a matrix of scores forward, ten backward.
    let work = (b * h * t * t * d) as f64 * 1e-9;
    println!(
        "{dtype} TF32 {tf32} {shape:?}: forward {forward:.4} ms, {:.0} TFLOP/s; backward \
         {backward:.4} ms, {:.0} TFLOP/s",
        2.0 * work / forward,
        5.0 * work / backward
    );
    let one = prepared(gpu, how, &of, &to).unwrap().unwrap();
    let forms = [FlashKernel::Forward, FlashKernel::Rows, FlashKernel::Queries, FlashKernel::Keys]
        .map(|kernel| (kernel, one.job.form.tiles(kernel)[0]));
    for (kernel, tile) in forms {
        let ms = time(gpu, || one.job.launch(gpu, kernel, tile).unwrap());
        println!("  {kernel:?} {tile:?}: {ms:.4} ms");
    }
    if !other_tiles {
        return;
    }
    // The same kernels, divided in other ways.
    let others = [(4, 1, 32, 2), (4, 1, 32, 3), (4, 1, 32, 4), (4, 1, 64, 2), (4, 2, 32, 2)];
    let others = others.into_iter().chain([(4, 2, 64, 2), (4, 2, 16, 2), (8, 1, 32, 1)]);
    let others: Vec<(FlashKernel, FlashTiling)> =
        [FlashKernel::Forward, FlashKernel::Queries, FlashKernel::Keys]
            .into_iter()
            .flat_map(|kernel| others.clone().map(move |(a, b, c, d)| (kernel, tile(a, b, c, d))))
            .filter(|&(kernel, tile)| one.job.form.shared(kernel, tile) <= gpu.shared)
            .filter(|both| !forms.contains(both))
            .collect();
    // Compiled side by side.
    std::thread::scope(|scope| {
        for &(kernel, tile) in &others {
            let job = &one.job;
            scope.spawn(move || job.launch(gpu, kernel, tile).unwrap());
        }
    });
    for (kernel, tile) in others {
        let ms = time(gpu, || one.job.launch(gpu, kernel, tile).unwrap());
        println!("  also {kernel:?} {tile:?}: {ms:.4} ms");
    }
}
