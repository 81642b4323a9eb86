//! Regions after a product: bit-equal to the product and then the ops, however the product is
//! split.

use super::{Dense, Dice, Seen, one_by_one, point, ways};
use crate::operand::{Sink, Source};
use crate::par;
use crate::region::RegionKernel;
use crate::{Buffer, Input};
use pullback_ir::{
    Binary, DType, Device, Inst, Layout, Load, Op, Reduction, Region, Shape, Spec, Unary,
    dense_strides,
};
use std::rc::Rc;

/// relu(product + bias)·x, and where it is positive.
fn epilogue(shape: &[usize], dtype: DType) -> Region {
    let shape = Shape::from_slice(shape);
    let dense =
        Load { spec: Spec::cpu(dtype, shape.clone()), layout: Layout::dense(shape.clone()) };
    let mut bias = dense.clone();
    let columns = shape[shape.len() - 1];
    bias.spec = Spec::cpu(dtype, [columns].as_slice());
    for d in 0..shape.len() - 1 {
        bias.layout.strides[d] = 0;
    }
    Region {
        device: Device::Cpu,
        inner: 0,
        inputs: vec![dense.clone(), bias, dense],
        shape,
        body: vec![
            Inst::Load(0),
            Inst::Load(1),
            point(Op::Binary(Binary::Add), &[0, 1]),
            point(Op::Unary(Unary::Relu), &[2]),
            Inst::Load(2),
            point(Op::Binary(Binary::Mul), &[3, 4]),
            point(Op::Cast(DType::Bool), &[5]),
        ],
        outputs: vec![5, 6],
        columns: Vec::new(),
    }
}

/// A small integer, so that sums are exact in any order.
fn whole(dice: &mut Dice) -> f64 {
    dice.below(7) as f64 - 3.0
}

fn source<'a>(x: &'a Dense, strides: &'a [isize]) -> Source<'a> {
    Source { ptr: x.buffer.as_ptr(), shape: &x.spec.shape, strides, dtype: x.spec.dtype }
}

#[test]
fn a_region_after_any_product() {
    let mut dice = Dice::new(3);
    // Vectors, tiles on unpacked operands, panels of one operand, panels of both, several blocks of
    // k, batches.
    let shapes: &[(&[usize], usize, usize, usize)] = &[
        (&[], 1, 50, 30),
        (&[], 50, 1, 30),
        (&[], 8, 40, 16),
        (&[], 200, 300, 64),
        (&[], 300, 400, 700),
        (&[], 3, 5, 0),
        (&[3], 20, 30, 10),
        (&[2, 2], 64, 200, 130),
    ];
    for &(batch, m, n, k) in shapes {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::I32] {
            let shape = |rest: [usize; 2]| [batch, &rest].concat();
            let a = Dense::of(Spec::cpu(dtype, shape([m, k]).as_slice()), || whole(&mut dice));
            let b = Dense::of(Spec::cpu(dtype, shape([k, n]).as_slice()), || whole(&mut dice));
            let region = epilogue(&shape([m, n]), dtype);
            let seen = |x: &Dense| Seen {
                buffer: x.buffer.clone(),
                layout: Layout::dense(x.spec.shape.clone()),
                dtype,
                row: false,
            };
            let product = Seen::apply(&Op::Dot, &[seen(&a), seen(&b)], false);
            let mut inputs =
                vec![Dense { buffer: product.buffer, spec: region.inputs[0].spec.clone() }];
            for load in &region.inputs[1..] {
                inputs.push(Dense::of(load.spec.clone(), || whole(&mut dice)));
            }
            let want: Vec<_> = one_by_one(&region, &inputs).iter().map(Dense::bits).collect();
            let operands: Vec<&Dense> = [&a, &b].into_iter().chain(&inputs[1..]).collect();
            let strides: Vec<_> = operands.iter().map(|x| dense_strides(&x.spec.shape)).collect();
            let sources: Vec<Source> =
                operands.iter().zip(&strides).map(|(x, strides)| source(x, strides)).collect();
            for how in ways() {
                let kernel = RegionKernel::with(&region, how).expect("a kernel");
                for threads in [1, 2, 8] {
                    let specs: Vec<&Spec> = inputs.iter().map(|x| &x.spec).collect();
                    let results = region.infer(&specs).expect("a region that fits");
                    let mut buffers: Vec<Buffer> =
                        results.iter().map(|s| Buffer::alloc(s.bytes()).expect("memory")).collect();
                    let sinks: Vec<Sink> = (buffers.iter_mut().zip(&results))
                        .map(|(b, s)| Sink { ptr: b.as_mut_ptr(), shape: &s.shape, dtype: s.dtype })
                        .collect();
                    par::with_threads(threads, || {
                        kernel.run_after_dot(
                            &region,
                            sources[0],
                            sources[1].into(),
                            &sources[2..],
                            &sinks,
                        );
                    });
                    for ((buffer, spec), want) in buffers.into_iter().zip(results).zip(&want) {
                        let got = Dense { buffer: Rc::new(buffer), spec }.bits();
                        assert!(got == *want, "{batch:?} {m}×{n}×{k} {dtype} {how:?} {threads}");
                    }
                }
            }
            let op = Op::DotRegion(std::sync::Arc::new(region));
            let layouts: Vec<_> =
                operands.iter().map(|x| Layout::dense(x.spec.shape.clone())).collect();
            let operands: Vec<Input> = operands
                .iter()
                .zip(&layouts)
                .map(|(x, layout)| Input { buffer: &x.buffer, layout, spec: &x.spec })
                .collect();
            for (got, want) in
                crate::run::run_op(&op, &operands).expect("a run").into_iter().zip(&want)
            {
                let got = Dense { spec: got.spec, buffer: Rc::new(got.buffer) };
                assert!(got.bits() == *want, "{batch:?} {m}×{n}×{k} {dtype}");
            }
        }
    }
}

/// C += A·B, where the sum overwrites C; and a region with reductions, which needs whole rows.
#[test]
fn products_added_in_place_and_reduced() {
    let mut dice = Dice::new(4);
    let (m, n, k) = (70, 90, 40);
    let spec = |shape: [usize; 2]| Spec::cpu(DType::F32, shape.as_slice());
    let a = Dense::of(spec([m, k]), || whole(&mut dice));
    let b = Dense::of(spec([k, n]), || whole(&mut dice));
    let c = Dense::of(spec([m, n]), || whole(&mut dice));
    let load = Load { spec: c.spec.clone(), layout: Layout::dense(c.spec.shape.clone()) };
    let sum = Region {
        device: Device::Cpu,
        shape: c.spec.shape.clone(),
        inner: 1,
        inputs: vec![load.clone(), load],
        body: vec![Inst::Load(0), Inst::Load(1), point(Op::Binary(Binary::Add), &[1, 0])],
        outputs: vec![2],
        columns: Vec::new(),
    };
    let mut with_sums = sum.clone();
    with_sums.body.push(Inst::Reduce(Reduction::Sum, 2));
    with_sums.outputs.push(3);
    let (x, y, z) = (a.elements(), b.elements(), c.elements());
    let want = |i: usize, j: usize| {
        z[i * n + j].0 + (0..k).map(|p| x[i * k + p].0 * y[p * n + j].0).sum::<f64>()
    };
    let strides = [[k as isize, 1], [n as isize, 1]];
    for region in [sum, with_sums] {
        for how in ways() {
            let kernel = RegionKernel::with(&region, how).expect("a kernel");
            let mut out = Buffer::alloc(c.spec.bytes()).expect("memory");
            let mut sums = Buffer::alloc(4 * m).expect("memory");
            // SAFETY: both have the bytes of C.
            unsafe {
                std::ptr::copy_nonoverlapping(c.buffer.as_ptr(), out.as_mut_ptr(), c.spec.bytes());
            }
            let over = Source {
                ptr: out.as_ptr(),
                shape: &c.spec.shape,
                strides: &strides[1],
                dtype: DType::F32,
            };
            let sinks = [
                Sink { ptr: out.as_mut_ptr(), shape: &c.spec.shape, dtype: DType::F32 },
                Sink { ptr: sums.as_mut_ptr(), shape: &c.spec.shape[..1], dtype: DType::F32 },
            ];
            let (a, b) = (source(&a, &strides[0]), source(&b, &strides[1]));
            kernel.run_after_dot(&region, a, b.into(), &[over], &sinks[..region.outputs.len()]);
            let out = Dense { buffer: Rc::new(out), spec: c.spec.clone() }.elements();
            for i in 0..m {
                for j in 0..n {
                    assert_eq!(out[i * n + j].0, want(i, j), "{how:?}");
                }
            }
            if region.outputs.len() == 2 {
                let spec = Spec::cpu(DType::F32, [m].as_slice());
                let sums = Dense { buffer: Rc::new(sums), spec }.elements();
                for (i, sum) in sums.iter().enumerate() {
                    assert_eq!(sum.0, (0..n).map(|j| want(i, j)).sum::<f64>());
                }
            }
        }
    }
}
