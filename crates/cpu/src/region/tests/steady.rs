//! A kernel that has run once allocates nothing.

use super::rows::{layer_norm, softmax};
use super::{CodegenMode, Dense, Dice, RegionKernel, made};
use crate::operand::{Sink, Source};
use crate::{Buffer, par};
use pullback_ir::{DType, Region, Spec, dense_strides};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting calls.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations_of_a_second_run(region: &Region, how: CodegenMode) -> usize {
    let mut dice = Dice::new(1);
    let inputs: Vec<Dense> =
        region.inputs.iter().map(|x| Dense::of(x.spec.clone(), || dice.number())).collect();
    let kernel = RegionKernel::with(region, how).expect("a kernel");
    let specs: Vec<&Spec> = inputs.iter().map(|x| &x.spec).collect();
    let results = region.infer(&specs).expect("a region that fits");
    let mut buffers: Vec<Buffer> =
        results.iter().map(|spec| Buffer::alloc(spec.bytes()).expect("memory")).collect();
    let strides: Vec<_> = inputs.iter().map(|x| dense_strides(&x.spec.shape)).collect();
    let sources: Vec<Source> = (inputs.iter().zip(&strides))
        .map(|(x, strides)| Source {
            ptr: x.buffer.as_ptr(),
            shape: &x.spec.shape,
            strides,
            dtype: x.spec.dtype,
        })
        .collect();
    let sinks: Vec<Sink> = (buffers.iter_mut().zip(&results))
        .map(|(b, spec)| Sink { ptr: b.as_mut_ptr(), shape: &spec.shape, dtype: spec.dtype })
        .collect();
    par::with_threads(1, || {
        kernel.run(&sources, &sinks);
        let before = COUNT.get();
        kernel.run(&sources, &sinks);
        COUNT.get() - before
    })
}

#[test]
fn a_second_run_allocates_nothing() {
    for how in [CodegenMode::Best, CodegenMode::Slices] {
        let mut regions = vec![
            softmax(40, 30, DType::F32),
            softmax(5, 5000, DType::BF16),
            softmax(2, 150_000, DType::F32),
            layer_norm(20, 1024, DType::F64),
        ];
        for seed in 0..20 {
            regions.push(made(seed, &[3, 4, 50], 1, seed % 2 == 0).region);
            regions.push(made(seed, &[], 0, seed % 2 == 0).region);
        }
        for region in &regions {
            assert_eq!(allocations_of_a_second_run(region, how), 0, "{how:?} {region}");
        }
    }
}
