//! Every function that has native code, over numbers of all sizes, against the unfused op.

use super::{Dense, one_by_one, point, run_kernel, ways};
use crate::region::RegionKernel;
use pullback_ir::{DType, Device, Inst, Layout, Load, Op, Region, Shape, Spec, Unary};

/// All exponents and signs, with varied digits; then the neighbours of numbers at which formulas
/// change.
fn arguments() -> Vec<f64> {
    let every = (0..=u32::MAX).step_by(4099).map(|bits| f64::from(f32::from_bits(bits)));
    let edges = [
        0.0, 0.6, 0.92, 1.0, 2.0, 4.0, 4.05, 10.0, 10.2, 14.4, 30.0, 80.0, 87.0, 88.7, 89.5, 100.0,
        103.97, 105.0, 1000.0,
    ];
    let near = edges.into_iter().flat_map(|edge: f32| {
        (-3..=3).flat_map(move |by: i32| {
            let x = f32::from_bits(edge.to_bits().saturating_add_signed(by));
            [f64::from(x), -f64::from(x)]
        })
    });
    every.chain(near).collect()
}

#[test]
fn functions_have_the_bits_of_their_ops() {
    let numbers = arguments();
    let n = numbers.len();
    for dtype in [DType::F32, DType::F64] {
        let shape = Shape::from_slice(&[n]);
        let load =
            Load { spec: Spec::cpu(dtype, shape.clone()), layout: Layout::dense(shape.clone()) };
        let mut next = numbers.iter().cycle();
        let x = Dense::of(load.spec.clone(), || *next.next().unwrap_or(&0.0));
        let mut turned = numbers.iter().rev().cycle();
        let y = Dense::of(load.spec.clone(), || *turned.next().unwrap_or(&0.0));
        let inputs = [x, y];
        for &f in Unary::ALL {
            for op in [Op::Unary(f), Op::UnaryVjp(f)] {
                let of: &[usize] = if matches!(op, Op::Unary(_)) { &[0] } else { &[0, 1] };
                let region = Region {
                    device: Device::Cpu,
                    shape: shape.clone(),
                    inner: 0,
                    inputs: vec![load.clone(), load.clone()],
                    body: vec![Inst::Load(0), Inst::Load(1), point(op.clone(), of)],
                    outputs: vec![2],
                    columns: Vec::new(),
                };
                // What is slow has no native code.
                let slow = crate::region::calls::weight(&op) >= 100;
                if slow || region.values().is_err() {
                    continue;
                }
                let want = one_by_one(&region, &inputs)[0].bits();
                for how in ways() {
                    let kernel = RegionKernel::with(&region, how).expect("a kernel");
                    let got = run_kernel(&kernel, &region, &inputs, &[])[0].bits();
                    if let Some(i) = (0..n).find(|&i| got[i] != want[i]) {
                        panic!("{op} of {:e}, {how:?}: {:x} for {:x}", numbers[i], got[i], want[i]);
                    }
                }
            }
        }
    }
}
