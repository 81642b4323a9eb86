//! Regions compared with loops written by hand for the same instruction set.
//!
//! `cargo test --profile bench --workspace --test kernels region::tests::measure -- --ignored --nocapture`

use super::rows::{layer_norm, softmax};
use super::{Dense, Dice, point};
use crate::operand::{Sink, Source};
use crate::region::{CodegenMode, RegionKernel};
#[cfg(target_arch = "x86_64")]
use crate::simd::{FusedMultiplyAdd, Level, level, math32};
use crate::{Buffer, par};
use pullback_ir::{
    Binary, DType, Device, Inst, Layout, Load, Op, Region, Scalar, Shape, Spec, Unary,
    dense_strides,
};
use std::time::Instant;

fn dense(dtype: DType, shape: &[usize]) -> Load {
    let shape = Shape::from_slice(shape);
    Load { spec: Spec::cpu(dtype, shape.clone()), layout: Layout::dense(shape) }
}

/// gelu(x·a + b) · sigmoid(c)
fn chain(n: usize) -> Region {
    Region {
        device: Device::Cpu,
        shape: Shape::from_slice(&[n]),
        inner: 0,
        inputs: vec![dense(DType::F32, &[n]); 4],
        body: vec![
            Inst::Load(0),
            Inst::Load(1),
            point(Op::Binary(Binary::Mul), &[0, 1]),
            Inst::Load(2),
            point(Op::Binary(Binary::Add), &[2, 3]),
            point(Op::Unary(Unary::Gelu), &[4]),
            Inst::Load(3),
            point(Op::Unary(Unary::Sigmoid), &[6]),
            point(Op::Binary(Binary::Mul), &[5, 7]),
        ],
        outputs: vec![8],
        columns: Vec::new(),
    }
}

/// One step of Adam: parameter, gradient, two moments, and two numbers that correct them.
fn adam(n: usize) -> Region {
    let one = Load {
        spec: Spec::cpu(DType::F32, Shape::new()),
        layout: Layout::splat([n].as_slice().into()),
    };
    let number = |x: f64| Inst::Literal(Scalar::from(x), DType::F32);
    let of = |f: Binary, a: usize, b: usize| point(Op::Binary(f), &[a, b]);
    let mut inputs = vec![dense(DType::F32, &[n]); 4];
    inputs.extend([one.clone(), one]);
    Region {
        device: Device::Cpu,
        shape: Shape::from_slice(&[n]),
        inner: 0,
        inputs,
        body: vec![
            Inst::Load(0), // p
            Inst::Load(1), // g
            Inst::Load(2), // m
            Inst::Load(3), // v
            Inst::Load(4), // 1 / (1 − β₁ᵗ)
            Inst::Load(5), // 1 / (1 − β₂ᵗ)
            number(0.9),
            number(0.1),
            number(0.999),
            number(0.001),
            number(1e-3),
            number(1e-8),
            of(Binary::Mul, 2, 6),
            of(Binary::Mul, 1, 7),
            of(Binary::Add, 12, 13), // m
            of(Binary::Mul, 3, 8),
            point(Op::Unary(Unary::Square), &[1]),
            of(Binary::Mul, 16, 9),
            of(Binary::Add, 15, 17), // v
            of(Binary::Mul, 14, 4),
            of(Binary::Mul, 18, 5),
            point(Op::Unary(Unary::Sqrt), &[20]),
            of(Binary::Add, 21, 11),
            of(Binary::Div, 19, 22),
            of(Binary::Mul, 23, 10),
            of(Binary::Sub, 0, 24), // p
        ],
        outputs: vec![25, 14, 18],
        columns: Vec::new(),
    }
}

const STEPS: usize = 333;

/// Lorenz's equations, step by step: 12 equations each, all of one f64.
fn lorenz() -> Region {
    let number = |x: f64| Inst::Literal(Scalar::from(x), DType::F64);
    let mut body = vec![
        Inst::Load(0),
        Inst::Load(1),
        Inst::Load(2),
        number(10.0),
        number(28.0),
        number(8.0 / 3.0),
        number(0.005),
    ];
    let [mut x, mut y, mut z] = [0, 1, 2];
    for _ in 0..STEPS {
        let mut of = |f: Binary, a: usize, b: usize| {
            body.push(point(Op::Binary(f), &[a, b]));
            body.len() - 1
        };
        use Binary::*;
        let (d, s) = (of(Sub, y, x), 3);
        let dx = of(Mul, d, s);
        let r = of(Sub, 4, z);
        let xr = of(Mul, x, r);
        let dy = of(Sub, xr, y);
        let xy = of(Mul, x, y);
        let bz = of(Mul, z, 5);
        let dz = of(Sub, xy, bz);
        let (hx, hy, hz) = (of(Mul, dx, 6), of(Mul, dy, 6), of(Mul, dz, 6));
        (x, y, z) = (of(Add, x, hx), of(Add, y, hy), of(Add, z, hz));
    }
    Region {
        device: Device::Cpu,
        shape: Shape::new(),
        inner: 0,
        inputs: vec![dense(DType::F64, &[]); 3],
        body,
        outputs: vec![x, y, z],
        columns: Vec::new(),
    }
}

fn lorenz_by_hand(state: &mut [f64; 3]) {
    let [mut x, mut y, mut z] = *state;
    for _ in 0..STEPS {
        let dx = (y - x) * 10.0;
        let dy = x * (28.0 - z) - y;
        let dz = x * y - z * (8.0 / 3.0);
        (x, y, z) = (x + dx * 0.005, y + dy * 0.005, z + dz * 0.005);
    }
    *state = [x, y, z];
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn chain_by_hand(x: &[f32], a: &[f32], b: &[f32], c: &[f32], y: &mut [f32]) {
    let n = y.len() & !15;
    let (x, a, b, c, y) = (&x[..n], &a[..n], &b[..n], &c[..n], &mut y[..n]);
    for i in 0..n {
        y[i] = math32::gelu::<FusedMultiplyAdd>(x[i] * a[i] + b[i])
            * math32::sigmoid::<FusedMultiplyAdd>(c[i]);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn softmax_by_hand(x: &[f32], y: &mut [f32]) {
    const L: usize = 64;
    let n = x.len() & !(L - 1);
    let mut most = [f32::NEG_INFINITY; L];
    for x in x[..n].chunks_exact(L) {
        for l in 0..L {
            most[l] = if x[l] > most[l] { x[l] } else { most[l] };
        }
    }
    let most = most.iter().fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
    let mut sums = [0f32; L];
    for (x, y) in x[..n].chunks_exact(L).zip(y[..n].chunks_exact_mut(L)) {
        for l in 0..L {
            y[l] = math32::exp::<FusedMultiplyAdd>(x[l] - most);
            sums[l] += y[l];
        }
    }
    let sum: f32 = sums.iter().sum();
    for y in &mut y[..n] {
        *y /= sum;
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn adam_by_hand(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], c: [f32; 2]) {
    let n = p.len() & !15;
    let (p, g, m, v) = (&mut p[..n], &g[..n], &mut m[..n], &mut v[..n]);
    for i in 0..n {
        m[i] = m[i] * 0.9 + g[i] * 0.1;
        v[i] = v[i] * 0.999 + g[i] * g[i] * 0.001;
        p[i] -= m[i] * c[0] / ((v[i] * c[1]).sqrt() + 1e-8) * 1e-3;
    }
}

/// Runs two functions alternately and returns the shortest time of each, in seconds.
fn race(rounds: usize, mut a: impl FnMut(), mut b: impl FnMut()) -> [f64; 2] {
    let mut best = [f64::INFINITY; 2];
    let time = |f: &mut dyn FnMut(), best: &mut f64| {
        let start = Instant::now();
        f();
        *best = best.min(start.elapsed().as_secs_f64());
    };
    for _ in 0..rounds {
        let [first, second] = &mut best;
        time(&mut a, first);
        time(&mut b, second);
    }
    best
}

/// Operands and results, and the kernel in each way.
struct Setup {
    region: Region,
    inputs: Vec<Dense>,
    /// Which result overwrites which operand.
    over: Vec<(usize, usize)>,
}

impl Setup {
    fn run(&self, how: CodegenMode, f: impl FnOnce(&mut dyn FnMut())) {
        let kernel = RegionKernel::with(&self.region, how).expect("a kernel");
        let specs: Vec<&Spec> = self.inputs.iter().map(|x| &x.spec).collect();
        let results = self.region.infer(&specs).expect("a region that fits");
        let mut buffers: Vec<Buffer> =
            results.iter().map(|spec| Buffer::alloc(spec.bytes()).expect("memory")).collect();
        let strides: Vec<_> = self.inputs.iter().map(|x| dense_strides(&x.spec.shape)).collect();
        let sources: Vec<Source> = (self.inputs.iter().zip(&strides).enumerate())
            .map(|(k, (x, strides))| Source {
                ptr: match self.over.iter().find(|o| o.1 == k) {
                    Some(&(o, _)) => buffers[o].as_ptr(),
                    None => x.buffer.as_ptr(),
                },
                shape: &x.spec.shape,
                strides,
                dtype: x.spec.dtype,
            })
            .collect();
        for &(o, k) in &self.over {
            let bytes = self.inputs[k].spec.bytes();
            // SAFETY: both have this many bytes.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.inputs[k].buffer.as_ptr(),
                    buffers[o].as_mut_ptr(),
                    bytes,
                );
            }
        }
        let sinks: Vec<Sink> = buffers
            .iter_mut()
            .zip(&results)
            .map(|(b, spec)| Sink { ptr: b.as_mut_ptr(), shape: &spec.shape, dtype: spec.dtype })
            .collect();
        f(&mut || kernel.run(&sources, &sinks));
    }
}

fn numbers(n: usize, dice: &mut Dice) -> Vec<f32> {
    (0..n).map(|_| (dice.below(4_000_001) as f32) / 1e6 - 2.0).collect()
}

fn of(x: &[f32]) -> Dense {
    let mut next = x.iter();
    Dense::of(Spec::cpu(DType::F32, [x.len()].as_slice()), || {
        next.next().copied().unwrap_or(0.0).into()
    })
}

/// Splits work over slices as the pool splits it.
fn shared(n: usize, size: usize, f: impl Fn(usize, usize) + Sync) {
    par::for_each(n.div_ceil(size), |t| f(t * size, n.min((t + 1) * size)));
}

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "a measurement"]
fn ratios() {
    if level() < Level::Avx512 {
        return println!("the loops by hand are for AVX-512");
    }
    let mut dice = Dice::new(1);
    for threads in [1, 2] {
        par::with_threads(threads, || {
            for n in [1 << 22, 1 << 16] {
                let data: Vec<Vec<f32>> = (0..4).map(|_| numbers(n, &mut dice)).collect();
                let inputs = data.iter().map(|x| of(x)).collect();
                let setup = Setup { region: chain(n), inputs, over: vec![] };
                let mut y = vec![0f32; n];
                let to = crate::par::Shared(y.as_mut_ptr());
                let rounds = (1 << 28) / n;
                for how in [CodegenMode::Best, CodegenMode::Avx2, CodegenMode::Slices] {
                    setup.run(how, |run| {
                        let [ours, hand] = race(rounds, run, || {
                            shared(n, 1 << 15, |i, j| {
                                // SAFETY: tasks have disjoint parts.
                                unsafe {
                                    let y = std::slice::from_raw_parts_mut(to.at(i), j - i);
                                    let part = |k: usize| &data[k][i..j];
                                    chain_by_hand(part(0), part(1), part(2), part(3), y);
                                }
                            });
                        });
                        println!(
                            "chain {n}, {threads} threads, {how:?}: {:.2}  ({:.0} µs)",
                            ours / hand,
                            ours * 1e6
                        );
                    });
                }
            }
            let (rows, row) = (4096, 1024);
            let data = numbers(rows * row, &mut dice);
            let mut x = of(&data);
            x.spec = Spec::cpu(DType::F32, [rows, row].as_slice());
            let setup =
                Setup { region: softmax(rows, row, DType::F32), inputs: vec![x], over: vec![] };
            let mut y = vec![0f32; rows * row];
            let to = crate::par::Shared(y.as_mut_ptr());
            for how in [CodegenMode::Best, CodegenMode::Avx2, CodegenMode::Slices] {
                setup.run(how, |run| {
                    let [ours, hand] = race(60, run, || {
                        shared(rows, 32, |i, j| {
                            for r in i..j {
                                // SAFETY: each row belongs to one task.
                                unsafe {
                                    let y = std::slice::from_raw_parts_mut(to.at(r * row), row);
                                    softmax_by_hand(&data[r * row..][..row], y);
                                }
                            }
                        });
                    });
                    println!(
                        "softmax {rows}×{row}, {threads} threads, {how:?}: {:.2}  ({:.0} µs)",
                        ours / hand,
                        ours * 1e6
                    );
                });
            }
            let n = 1 << 20;
            let mut data: Vec<Vec<f32>> = (0..4).map(|_| numbers(n, &mut dice)).collect();
            data[3].iter_mut().for_each(|v| *v = v.abs());
            let mut inputs: Vec<Dense> = data.iter().map(|x| of(x)).collect();
            for _ in 0..2 {
                inputs.push(Dense::of(Spec::cpu(DType::F32, Shape::new()), || 1.5));
            }
            let setup = Setup { region: adam(n), inputs, over: vec![(0, 0), (1, 2), (2, 3)] };
            let [p, g, m, v] = [0, 1, 2, 3].map(|k| crate::par::Shared(data[k].as_mut_ptr()));
            for how in [CodegenMode::Best, CodegenMode::Avx2, CodegenMode::Slices] {
                setup.run(how, |run| {
                    let [ours, hand] = race(200, run, || {
                        shared(n, 1 << 15, |i, j| {
                            // SAFETY: tasks have disjoint parts.
                            unsafe {
                                let part = |x: crate::par::Shared<f32>| {
                                    std::slice::from_raw_parts_mut(x.at(i), j - i)
                                };
                                adam_by_hand(part(p), part(g), part(m), part(v), [1.5, 1.5]);
                            }
                        });
                    });
                    println!(
                        "adam {n}, {threads} threads, {how:?}: {:.2}  ({:.0} µs)",
                        ours / hand,
                        ours * 1e6
                    );
                });
            }
        });
    }
    let start = Instant::now();
    let region = lorenz();
    let equations = 14 * STEPS;
    let inputs = (0..3).map(|_| Dense::of(Spec::cpu(DType::F64, Shape::new()), || 1.0)).collect();
    let setup = Setup { region, inputs, over: vec![] };
    let written = start.elapsed();
    for how in [CodegenMode::Best, CodegenMode::Avx2, CodegenMode::Slices] {
        let start = Instant::now();
        RegionKernel::with(&setup.region, how).expect("a kernel");
        let compiled = start.elapsed();
        setup.run(how, |run| {
            let mut state = [1.0, 1.0, 1.0];
            let [ours, hand] = race(2000, run, || {
                state = [1.0, 1.0, 1.0];
                lorenz_by_hand(std::hint::black_box(&mut state));
            });
            println!(
                "scalar program of {equations} equations, {how:?}: {:.2}  ({:.2} ns an equation, compiled in {compiled:?}, written in {written:?})",
                ours / hand,
                ours * 1e9 / equations as f64
            );
        });
    }
}

/// How long planning and compiling take.
#[test]
#[ignore = "a measurement"]
fn compiling() {
    let regions = [
        ("chain", chain(1 << 16)),
        ("softmax", softmax(4096, 1024, DType::F32)),
        ("layer norm", layer_norm(4096, 1024, DType::F32)),
        ("adam", adam(1 << 20)),
        ("scalar program", lorenz()),
    ];
    for (name, region) in regions {
        for how in [CodegenMode::Best, CodegenMode::Slices] {
            let make =
                || drop(std::hint::black_box(RegionKernel::with(&region, how).expect("a kernel")));
            let [time, checked] =
                race(100, make, || drop(std::hint::black_box(region.values().expect("values"))));
            println!(
                "{name}, {} instructions, {how:?}: {:.0} µs, of which checking them {:.0}",
                region.body.len(),
                time * 1e6,
                checked * 1e6
            );
        }
    }
}

/// Rows of several lengths compared with the kernels that are written for them.
#[test]
#[ignore = "a measurement"]
fn rows_beside_fused_kernels() {
    let mut dice = Dice::new(2);
    for (rows, row) in [(1 << 16, 16), (1 << 16, 64), (1 << 14, 300), (4096, 1024), (512, 8000)] {
        let mut x = of(&numbers(rows * row, &mut dice));
        x.spec = Spec::cpu(DType::F32, [rows, row].as_slice());
        let mut y = Buffer::alloc(x.spec.bytes()).expect("memory");
        let (shape, strides) = (x.spec.shape.clone(), dense_strides(&x.spec.shape));
        let source =
            Source { ptr: x.buffer.as_ptr(), shape: &shape, strides: &strides, dtype: DType::F32 };
        let sink = Sink { ptr: y.as_mut_ptr(), shape: &shape, dtype: DType::F32 };
        let setup =
            Setup { region: softmax(rows, row, DType::F32), inputs: vec![x.clone()], over: vec![] };
        par::with_threads(1, || {
            setup.run(CodegenMode::Best, |run| {
                let [ours, fused] = race(30, run, || crate::norm::softmax(1, source, sink));
                println!("softmax {rows}×{row}: {:.2}  ({:.0} µs)", ours / fused, ours * 1e6);
            });
        });
    }
}

/// Large results with streaming stores, compared with the same kernel without.
#[test]
#[ignore = "a measurement"]
fn streaming() {
    let n = 1 << 23;
    let mut dice = Dice::new(3);
    let light = Region {
        body: vec![
            Inst::Load(0),
            Inst::Load(1),
            point(Op::Binary(Binary::Mul), &[0, 1]),
            Inst::Load(2),
            point(Op::Binary(Binary::Add), &[2, 3]),
        ],
        outputs: vec![4],
        columns: Vec::new(),
        ..chain(n)
    };
    for (name, region) in [("x·a + b", light), ("the chain", chain(n))] {
        let inputs: Vec<Dense> = (0..4).map(|_| of(&numbers(n, &mut dice))).collect();
        let strides = dense_strides(&[n]);
        let shape = [n];
        let sources: Vec<Source> = inputs
            .iter()
            .map(|x| Source {
                ptr: x.buffer.as_ptr(),
                shape: &shape,
                strides: &strides,
                dtype: DType::F32,
            })
            .collect();
        let mut y = Buffer::alloc(4 * n).expect("memory");
        let sinks = [Sink { ptr: y.as_mut_ptr(), shape: &shape, dtype: DType::F32 }];
        let kernel = RegionKernel::with(&region, CodegenMode::Best).expect("a kernel");
        assert!(kernel.streaming.is_some());
        for threads in [1, 2] {
            par::with_threads(threads, || {
                let [stream, plain] =
                    race(30, || kernel.run(&sources, &sinks), || kernel.execute(&sources, &sinks));
                println!("{name} over {n}, {threads} threads: {:.2}", stream / plain);
            });
        }
    }
}
