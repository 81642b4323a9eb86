//! Calls kernels of users: memory as slices of bytes, and a panic as an error.

use crate::operand::{Sink, Source};
use pullback_ir::{Bytes, BytesMut, Custom, Error, ErrorKind, Result, Spec, Work};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the kernel of a custom op on dense operands and results that overlap nothing.
pub(crate) fn call(custom: &Custom, x: &[Source], out: &[Sink]) -> Result<()> {
    let Work::Kernel { kernel, .. } = custom.work() else {
        return Err(Error::argument(custom.name(), "has no kernel"));
    };
    let spec = |dtype, shape: &[usize]| Spec::cpu(dtype, shape);
    let in_specs: Vec<Spec> = x.iter().map(|x| spec(x.dtype, x.shape)).collect();
    let out_specs: Vec<Spec> = out.iter().map(|y| spec(y.dtype, y.shape)).collect();
    let input = |(x, spec)| -> Bytes {
        let (x, spec): (&Source, &Spec) = (x, spec);
        let bytes: &[u8] = match x.is_empty() {
            true => &[],
            // SAFETY: the caller made the operand dense, so its elements are this many bytes from
            // its first on, all written before and not written while this runs.
            false => unsafe { std::slice::from_raw_parts(x.ptr, spec.bytes()) },
        };
        Bytes { spec, bytes }
    };
    let output = |(y, spec)| -> BytesMut {
        let (y, spec): (&Sink, &Spec) = (y, spec);
        let bytes: &mut [u8] = match y.is_empty() {
            true => &mut [],
            // SAFETY: a sink has as many bytes as its spec, which overlap no operand and no other
            // sink (a custom op shares memory with nothing: `pass::plan::share`). They are written
            // before a slice of them is made.
            false => unsafe {
                y.ptr.write_bytes(0, spec.bytes());
                std::slice::from_raw_parts_mut(y.ptr, spec.bytes())
            },
        };
        BytesMut { spec, bytes }
    };
    let inputs: Vec<Bytes> = x.iter().zip(&in_specs).map(input).collect();
    let mut outputs: Vec<BytesMut> = out.iter().zip(&out_specs).map(output).collect();
    // User code may panic: that must not leave a program half run without an error.
    let done = catch_unwind(AssertUnwindSafe(|| kernel.run(&inputs, &mut outputs)));
    match done {
        Ok(result) => result,
        Err(payload) => match payload.downcast::<Error>() {
            Ok(error) => Err(*error),
            Err(payload) => {
                let text = (payload.downcast_ref::<&str>().map(|s| (*s).to_string()))
                    .or_else(|| payload.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "no text".to_string());
                let message = format!("its kernel panicked: {text}");
                Err(Error::new(ErrorKind::Argument, custom.name(), message))
            }
        },
    }
}
