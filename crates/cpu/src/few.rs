//! Ops on a few numbers: what a tape of small tensors is made of.
//!
//! For these, taking an op apart costs ten times what its kernel does: lists of operands, layouts
//! that are walked twice, tiles. So functions of one or two elements on fewer than a block of dense
//! floats come this way: one look at each layout, and the loop that all others run, so the same
//! bits. Anything else, errors too, is left to [`crate::compute`].

use crate::Buffer;
use crate::pointwise::float;
use crate::run::Input;
use crate::simd::{BLOCK, level};
use pullback_ir::infer::Checked;
use pullback_ir::{DType, Device, Op, Spec};

/// An op on fewer than a block of floats on the host: each element of the result is a function of
/// those at the same place in the operands, which have the spec of the result.
pub struct FewFloats<'a> {
    op: &'a Op,
    operands: &'a [&'a Spec],
    spec: &'a Spec,
    len: usize,
}

impl<'a> FewFloats<'a> {
    /// The op as one of these, if it is.
    #[inline]
    pub fn of(call: &'a Checked) -> Option<FewFloats<'a>> {
        let op = call.op();
        if !matches!(op, Op::Binary(_) | Op::Unary(_) | Op::UnaryVjp(_)) {
            return None;
        }
        let [spec] = call.results() else { return None };
        let floats = matches!(spec.dtype, DType::F32 | DType::F64) && spec.device == Device::Cpu;
        let len = spec.len();
        let few = floats && (1..BLOCK).contains(&len);
        few.then(|| FewFloats { op, operands: call.operands(), spec, len })
    }

    /// The spec of the result.
    #[inline]
    pub fn spec(&self) -> &'a Spec {
        self.spec
    }

    /// The memory of the result; `None`, with nothing done, where an operand is not dense or
    /// anything is wrong, which [`crate::compute`] reports.
    pub fn compute(&self, inputs: &[Input]) -> Option<Buffer> {
        match self.operands {
            [x] => self.of_one(self.first(inputs, 0, x)?),
            [a, b] => self.of_two(self.first(inputs, 0, a)?, self.first(inputs, 1, b)?),
            _ => None,
        }
    }

    /// The first element of an operand, if that is as the op was checked for, dense, and inside its
    /// buffer.
    #[inline(always)]
    fn first(&self, inputs: &[Input], i: usize, checked: &Spec) -> Option<*const u8> {
        let Input { buffer, layout, spec } = inputs.get(i)?;
        if !std::ptr::eq(*spec, checked) && *spec != checked {
            return None;
        }
        let dense = match (&spec.shape[..], &layout.strides[..]) {
            ([_], [stride]) => *stride == 1,
            (shape, strides) => {
                let (mut dense, mut expected) = (shape.len() == strides.len(), 1);
                for (&n, &s) in shape.iter().zip(strides).rev() {
                    dense &= s == expected;
                    expected *= n as isize;
                }
                dense
            }
        };
        let size = spec.dtype.size();
        let end = layout.offset.checked_add(self.len)?.checked_mul(size)?;
        (dense && end <= buffer.len()).then(|| buffer.as_ptr().wrapping_add(layout.offset * size))
    }

    #[inline(always)]
    fn of_one(&self, x: *const u8) -> Option<Buffer> {
        let (Op::Unary(f), n) = (self.op, self.len) else { return None };
        let mut buffer = Buffer::alloc(n * self.spec.dtype.size()).ok()?;
        let y = buffer.as_mut_ptr();
        // SAFETY: the operand has `n` elements of the dtype of the result (the op was checked), as
        // has the new buffer.
        unsafe {
            match self.spec.dtype == DType::F32 {
                true => float::unary32(*f, level()).run(x.cast(), y.cast(), n),
                false => float::unary64(*f, level()).run(x.cast(), y.cast(), n),
            }
        }
        Some(buffer)
    }

    #[inline(always)]
    fn of_two(&self, a: *const u8, b: *const u8) -> Option<Buffer> {
        let (n, l, single) = (self.len, level(), self.spec.dtype == DType::F32);
        let mut buffer = Buffer::alloc(n * self.spec.dtype.size()).ok()?;
        let y = buffer.as_mut_ptr();
        // SAFETY: as for one operand.
        unsafe {
            match (self.op, single) {
                (Op::Binary(f), true) => {
                    float::binary32(*f, l).run(a.cast(), b.cast(), y.cast(), n);
                }
                (Op::Binary(f), false) => {
                    float::binary64(*f, l).run(a.cast(), b.cast(), y.cast(), n);
                }
                (Op::UnaryVjp(f), true) => {
                    float::vjp32(*f, l).run(a.cast(), b.cast(), y.cast(), n);
                }
                (Op::UnaryVjp(f), false) => {
                    float::vjp64(*f, l).run(a.cast(), b.cast(), y.cast(), n);
                }
                _ => return None,
            }
        }
        Some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffers;
    use pullback_ir::infer::check;
    use pullback_ir::{Binary, Few, Layout, Shape, Unary};

    /// What [`FewFloats`] gives, if anything, as it is in memory.
    fn few(op: &Op, inputs: &[Input]) -> Option<Vec<u8>> {
        let specs: Vec<&Spec> = inputs.iter().map(|x| x.spec).collect();
        let call = check(op, &specs).expect("the op fits its operands");
        let buffer = FewFloats::of(&call)?.compute(inputs)?;
        buffer.to_vec::<u8>(DType::U8, 0, buffer.len())
    }

    #[test]
    fn the_bits_are_those_of_every_other_way() {
        let ops = [
            (Op::Binary(Binary::Mul), 2),
            (Op::Binary(Binary::Pow), 2),
            (Op::Unary(Unary::Exp), 1),
            (Op::UnaryVjp(Unary::Tanh), 2),
        ];
        let values: Vec<f64> = (0..40).map(|i| 0.3 + f64::from(i) * 0.17).collect();
        let single: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        for (dtype, shape) in [DType::F32, DType::F64].into_iter().flat_map(|dtype| {
            [&[][..], &[1], &[8], &[15], &[3, 5], &[2, 1, 7]].map(|shape| (dtype, shape))
        }) {
            let spec = Spec::cpu(dtype, shape);
            let buffer = match dtype {
                DType::F32 => Buffer::from_slice(&single).expect("memory"),
                _ => Buffer::from_slice(&values).expect("memory"),
            };
            let layouts =
                [2, 20].map(|offset| Layout { offset, ..Layout::dense(Shape::from_slice(shape)) });
            let inputs =
                layouts.each_ref().map(|layout| Input { buffer: &buffer, layout, spec: &spec });
            for (op, count) in &ops {
                let (inputs, specs) = (&inputs[..*count], &[&spec, &spec][..*count]);
                let call = check(op, specs).expect("the op fits its operands");
                let mut buffers = Buffers::new();
                crate::compute(&call, inputs, &mut buffers).expect("it runs");
                let wanted = buffers[0].to_vec::<u8>(DType::U8, 0, spec.bytes());
                assert!(wanted.is_some() && few(op, inputs) == wanted, "{op} of {spec}");
            }
        }
    }

    #[test]
    fn anything_else_is_left_to_others() {
        let numbers = [0.5f32; 40];
        let buffer = Buffer::from_slice(&numbers).expect("memory");
        let taken = |dtype, shape: &[usize], strides: &[isize], offset| {
            let layout = Layout {
                shape: Shape::from_slice(shape),
                strides: Few::from_slice(strides),
                offset,
            };
            let spec = Spec::cpu(dtype, shape);
            let input = Input { buffer: &buffer, layout: &layout, spec: &spec };
            few(&Op::Unary(Unary::Neg), &[input]).is_some()
        };
        assert!(taken(DType::F32, &[8], &[1], 32) && taken(DType::F32, &[2, 3], &[3, 1], 0));
        // Too many, none, strided, outside, and not floats of a compute type.
        assert!(!taken(DType::F32, &[16], &[1], 0) && !taken(DType::F32, &[0], &[1], 0));
        assert!(!taken(DType::F32, &[8], &[2], 0) && !taken(DType::F32, &[2, 3], &[1, 2], 0));
        assert!(!taken(DType::F32, &[8], &[isize::MAX], 0) && !taken(DType::F32, &[8], &[], 0));
        assert!(!taken(DType::F32, &[8], &[1], 33) && !taken(DType::F32, &[8], &[1], usize::MAX));
        assert!(!taken(DType::I32, &[8], &[1], 0) && !taken(DType::F16, &[8], &[1], 0));
        // An operand that is not what the op was checked for.
        let (spec, other) = (Spec::cpu(DType::F32, [8]), Spec::cpu(DType::F64, [8]));
        let (layout, op) = (Layout::dense(spec.shape.clone()), Op::Unary(Unary::Neg));
        let (operands, input) = ([&spec], Input { buffer: &buffer, layout: &layout, spec: &other });
        let call = check(&op, &operands).expect("the op fits its operand");
        assert!(FewFloats::of(&call).is_some_and(|few| few.compute(&[input]).is_none()));
    }
}
