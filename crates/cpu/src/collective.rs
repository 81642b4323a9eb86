//! Collectives: memory of operands and results as bytes for an engine.

use crate::operand::{Sink, Source};
use pullback_ir::{CollectiveCall, CollectiveOp, Result, Shape, Spec};

/// Runs a collective with dense operands, and returns when its result is complete.
pub(crate) fn call(op: &CollectiveOp, x: &[Source], out: Sink) -> Result<()> {
    let bytes = ByteRanges::new(x, out);
    // SAFETY: operand and result are dense, overlap nowhere and are used by nobody else until this
    // returns.
    op.group.run(op.collective.name(), |group, sequence| unsafe {
        let (spec, input, output) = bytes.slices();
        let line = op.line;
        let call = CollectiveCall { collective: &op.collective, operand: spec, sequence, line };
        group.run(&call, input, output)
    })
}

/// The memory of one call.
struct ByteRanges {
    spec: Spec,
    input: (*const u8, usize),
    output: (*mut u8, usize),
}

impl ByteRanges {
    fn new(x: &[Source], out: Sink) -> ByteRanges {
        let spec = |dtype, shape: &[usize]| Spec::cpu(dtype, Shape::from_slice(shape));
        // A barrier has no operand: what is compared is its empty result.
        let given = x.first().map_or(spec(out.dtype, out.shape), |x| spec(x.dtype, x.shape));
        let input = x.first().map_or((std::ptr::null(), 0), |x| (x.ptr, given.bytes()));
        let output = (out.ptr, spec(out.dtype, out.shape).bytes());
        ByteRanges { spec: given, input, output }
    }

    /// # Safety
    /// The memory is there, the operand is written, the two do not overlap, and nobody else uses
    /// the result, or writes the operand, while the slices exist.
    unsafe fn slices(&self) -> (&Spec, &[u8], &mut [u8]) {
        let input: &[u8] = match self.input.1 {
            0 => &[],
            // SAFETY: as the caller promises.
            n => unsafe { std::slice::from_raw_parts(self.input.0, n) },
        };
        let output: &mut [u8] = match self.output.1 {
            0 => &mut [],
            // SAFETY: as the caller promises. It is written before a slice of it is made.
            n => unsafe {
                self.output.0.write_bytes(0, n);
                std::slice::from_raw_parts_mut(self.output.0, n)
            },
        };
        (&self.spec, input, output)
    }
}
