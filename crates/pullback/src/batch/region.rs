//! Regions: the examples are one more axis of the domain.

use super::{BatchedValue, BatchedValues, all, batch, with};
use crate::apply::{apply, apply_all};
use crate::{Op, Spec, Tensor};
use pullback_ir::{Axes, Inst, Layout, Load, Reduction, Region, Strides};
use smallvec::SmallVec;
use std::sync::Arc;

/// The same instructions over `[n, shape…]`. Random numbers are functions of an index in the domain
/// of one example, so they are drawn beforehand, and loaded.
pub(super) fn region(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let Op::Region(region) = op else { unreachable!("called for Region") };
    let mut operands: SmallVec<[BatchedValue; 4]> = examples.iter().cloned().collect();
    let mut inputs: Vec<Load> =
        region.inputs.iter().zip(examples).map(|(load, x)| over_examples(load, x, n)).collect();
    let mut body = Vec::with_capacity(region.body.len());
    for inst in &region.body {
        body.push(match inst {
            Inst::Index(axis, dtype) => Inst::Index(axis + 1, *dtype),
            Inst::Random(kind, key, dtype) => {
                let shape = region.shape.clone();
                let spec = Spec::on(region.device, *dtype, shape.clone());
                let draw = Op::Random { kind: *kind, shape: shape.clone(), dtype: *dtype };
                let drawn = batch(&draw, std::slice::from_ref(&examples[*key]), n).swap_remove(0);
                let load = Load { spec, layout: Layout::dense(shape) };
                inputs.push(over_examples(&load, &drawn, n));
                operands.push(drawn);
                Inst::Load(inputs.len() - 1)
            }
            Inst::Load(_) | Inst::Literal(..) | Inst::Point(..) | Inst::Reduce(..) => inst.clone(),
        });
    }
    let over_all = Region {
        device: region.device,
        shape: with(n, &region.shape),
        inner: region.inner,
        inputs,
        body,
        outputs: [&region.outputs[..], &region.columns].concat(),
        columns: Vec::new(),
    };
    let values: SmallVec<[&Tensor; 4]> = operands.iter().map(|x| &x.value).collect();
    let mut results = apply_all(Op::Region(Arc::new(over_all)), &values);
    // Sums over the rows of one example: those of others are among the rows now.
    let rows: Axes = (1..=region.outer().len()).collect();
    for result in &mut results[region.outputs.len()..] {
        *result = apply(Op::Reduce(Reduction::Sum, rows.clone()), &[&*result]);
    }
    all(results)
}

/// An operand seen from the domain of all examples.
fn over_examples(load: &Load, x: &BatchedValue, n: usize) -> Load {
    let (spec, stride) = match x.batched {
        true => (load.spec.with_shape(with(n, &load.spec.shape)), load.spec.len() as isize),
        false => (load.spec.clone(), 0),
    };
    let strides: Strides =
        std::iter::once(stride).chain(load.layout.strides.iter().copied()).collect();
    let shape = with(n, &load.layout.shape);
    Load { spec, layout: Layout { shape, strides, offset: load.layout.offset } }
}

/// The product, and the region over it.
pub(super) fn dot_region(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let Op::DotRegion(after) = op else { unreachable!("called for DotRegion") };
    let (factors, rest) = examples.split_at(2);
    let mut operands = batch(&Op::Dot, factors, n);
    operands.extend(rest.iter().cloned());
    batch(&Op::Region(after.clone()), &operands, n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Device, Key, stack};
    use pullback_ir::{Binary, Random, Reduction, Unary};
    use smallvec::smallvec;

    /// exp(x[i, j] − max of row i) · bias[j] + j + noise, and the sum of each row.
    fn sample(shape: [usize; 2]) -> Region {
        let [rows, columns] = shape;
        let dense = |shape: &[usize]| Layout::dense(shape.into());
        let load =
            |shape: &[usize], layout: Layout| Load { spec: Spec::cpu(DType::F64, shape), layout };
        let repeated = Layout { strides: [0, 1].into(), ..dense(&shape) };
        let point = |f: Binary, a: usize, b: usize| Inst::Point(Op::Binary(f), smallvec![a, b]);
        Region {
            device: Device::Cpu,
            shape: shape.into(),
            inner: 1,
            inputs: vec![
                load(&[rows, columns], dense(&shape)),
                load(&[columns], repeated),
                Load { spec: Spec::cpu(DType::I64, [2].as_slice()), layout: dense(&[2]) },
            ],
            body: vec![
                Inst::Load(0),
                Inst::Reduce(Reduction::Max, 0),
                point(Binary::Sub, 0, 1),
                Inst::Point(Op::Unary(Unary::Exp), smallvec![2]),
                Inst::Load(1),
                point(Binary::Mul, 3, 4),
                Inst::Index(1, DType::F64),
                point(Binary::Add, 5, 6),
                Inst::Random(Random::Normal, 2, DType::F64),
                point(Binary::Add, 7, 8),
                Inst::Reduce(Reduction::Sum, 9),
            ],
            outputs: vec![9, 10],
            columns: Vec::new(),
        }
    }

    fn normal(seed: u64, shape: &[usize]) -> Tensor {
        // Tracked, so that regions run instruction by instruction.
        Key::new(seed).normal(shape, DType::F64, 0.0, 1.0).requires_grad()
    }

    fn compare(op: &Op, each: &[Vec<Tensor>]) {
        let (n, count) = (each.len(), each[0].len());
        for chosen in 1..1u32 << count {
            let batched = |i: usize| chosen & 1 << i != 0;
            let example = |i: usize| match batched(i) {
                true => {
                    BatchedValue::batched(stack(&each.iter().map(|x| &x[i]).collect::<Vec<_>>(), 0))
                }
                false => BatchedValue::shared(each[0][i].clone()),
            };
            let examples: Vec<BatchedValue> = (0..count).map(example).collect();
            let given = batch(op, &examples, n);
            for (j, x) in each.iter().enumerate() {
                let x: Vec<&Tensor> =
                    (0..count).map(|i| if batched(i) { &x[i] } else { &each[0][i] }).collect();
                for (given, expected) in given.iter().zip(apply_all(op.clone(), &x)) {
                    let given = given.value.select_at(0, j as isize);
                    assert_eq!(given.shape(), expected.shape());
                    let far = (given - expected).abs().to_vec::<f64>();
                    // The row's sum and the product may be blocked in another way.
                    assert!(far.iter().all(|&d| d < 1e-13), "{chosen:b} {far:?}");
                }
            }
        }
    }

    #[test]
    fn a_region_over_many_examples_is_each_alone() {
        let example =
            |j: u64| vec![normal(j, &[2, 3]), normal(j + 10, &[3]), Key::new(j).tensor().clone()];
        let each: Vec<Vec<Tensor>> = (0..3).map(example).collect();
        compare(&Op::Region(Arc::new(sample([2, 3]))), &each);
    }

    #[test]
    fn a_region_behind_a_product_too() {
        let example = |j: u64| {
            vec![
                normal(j, &[2, 4]),
                normal(j + 20, &[4, 3]),
                normal(j + 10, &[3]),
                Key::new(j).tensor().clone(),
            ]
        };
        let each: Vec<Vec<Tensor>> = (0..3).map(example).collect();
        compare(&Op::DotRegion(Arc::new(sample([2, 3]))), &each);
    }
}
