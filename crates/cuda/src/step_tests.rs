//! Losses of long rows, steps of optimisers and added rows on a device: only with
//! `PULLBACK_DEVICE=cuda:0`.

use crate::device_tests::{Array, Report, bytes, device, rounding, values};
use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::ops;
use crate::tests::optimisers;
use crate::update::{OptimizerKind, Updates};
use pullback_cuda_sys::DevicePtr;
use pullback_ir::{Combine, DType, Fused, Op};

#[test]
fn losses_of_long_rows_are_those_of_the_cpu() {
    let Some(gpu) = device() else { return };
    let mut report = Report::default();
    for (dtype, of_losses) in
        [(DType::BF16, DType::F32), (DType::F32, DType::F32), (DType::F64, DType::F64)]
    {
        // By vectors of 16 bytes with both sizes of blocks, and one by one.
        for columns in [50304, 8192, 8000, 40, 50303, 7] {
            let mut logits = Array::noise(dtype, &[5, columns], columns);
            logits.values.iter_mut().for_each(|v| *v = (*v * 64.0).round() / 8.0);
            let class = |i: usize| [0, columns - 1, columns / 2, 1, 3][i] as f64;
            let classes = Array::new(DType::I64, &[5], (0..5).map(class).collect());
            let dy = Array::noise(of_losses, &[5], 3);
            let name = format!("cross-entropy {dtype} {columns}");
            let x = [logits.clone(), classes.clone()];
            let op = Op::Fused(Fused::CrossEntropy);
            report.close(&gpu, &name, &op, &x, rounding(of_losses, 10));
            let op = Op::Fused(Fused::CrossEntropyVjp);
            // Rounding to bf16 may go the other way.
            let tolerance = if dtype == DType::BF16 { 4e-3 } else { rounding(dtype, 10) };
            report.close(&gpu, &format!("{name}, back"), &op, &[logits, classes, dy], tolerance);
        }
    }
}

/// Bits of several steps: each alone, or those that follow one another as one kernel.
fn stepped(gpu: &Gpu, how: OptimizerKind, together: bool) -> Vec<Vec<u8>> {
    let (fused, states, counts) = match how {
        OptimizerKind::Sgd(how) => (Fused::Sgd(how), usize::from(how.remembers()), how.remembers()),
        OptimizerKind::Adam(how) => (Fused::Adam(how), 2 + usize::from(how.amsgrad), true),
    };
    let upload = |bytes: &[u8], more: usize| -> DevicePtr {
        let at = gpu.alloc(bytes.len() + more).expect("memory");
        let whole = [&vec![0; more], bytes].concat();
        gpu.upload(&whole, at).expect("upload");
        at + more as u64
    };
    let lengths = [768, 1, 8192, 8193, 100_003, 3, 16384, 2304];
    let rate = StridedOperand::dense(upload(&1e-2f64.to_le_bytes(), 0), DType::F64, &[]);
    let mut steps = Vec::new();
    // More than fit into one table; some are not aligned.
    for n in 0..120 {
        let length = [lengths[n % lengths.len()]];
        let memory = |k: usize| {
            let noise = Array::noise(DType::F32, &length, 7 * n + k);
            let positive: Vec<f64> = noise.values.iter().map(|v| v.abs()).collect();
            let at = upload(&bytes(DType::F32, &positive), if n % 5 == 0 { 4 } else { 0 });
            StridedOperand::dense(at, DType::F32, &length)
        };
        let mut x: Vec<StridedOperand> = (0..2 + states).map(memory).collect();
        if counts {
            let count = (1 + n as i64 % 3).to_le_bytes();
            x.push(StridedOperand::dense(upload(&count, 0), DType::I64, &[]));
        }
        x.push(rate.clone());
        steps.push(x);
    }
    // The first two step twice: not in the same kernel.
    for n in (0..120).chain([0, 1]) {
        let (x, out) = (&steps[n], &steps[n][..1 + states]);
        if !together || !gpu.defer_update(fused, x, out, None) {
            assert!(!together, "a dense step waits");
            ops::run(gpu, &Op::Fused(fused), x, out, None).expect("a step");
        }
    }
    let written = steps.iter().flat_map(|x| &x[..1 + states]);
    let download = |x: &StridedOperand| {
        let mut bytes = vec![0; x.bytes()];
        gpu.download(x.at, &mut bytes).expect("download");
        bytes
    };
    written.map(download).collect()
}

#[test]
fn steps_that_follow_one_another_have_the_bits_of_each_alone() {
    let Some(gpu) = device() else { return };
    for how in optimisers() {
        assert!(stepped(&gpu, how, true) == stepped(&gpu, how, false), "bits differ");
    }
}

/// More casts than fit into one table, of lengths that are multiples of nothing, and of memory that
/// is not aligned.
#[test]
fn casts_that_follow_one_another_have_the_bits_of_each_alone() {
    let Some(gpu) = device() else { return };
    let lengths = [768, 1, 8192, 8193, 100_003, 7, 16384, 2304];
    for narrow in [DType::BF16, DType::F16] {
        for [from, to] in [[DType::F32, narrow], [narrow, DType::F32]] {
            let memory = |dtype: DType, n: usize, written: bool| {
                let length = lengths[n % lengths.len()];
                let noise = Array::noise(dtype, &[length], n);
                let start = if n.is_multiple_of(3) { dtype.size() } else { 0 };
                let at = gpu.alloc(length * dtype.size() + start).expect("memory");
                let of = StridedOperand::dense(at + start as u64, dtype, &[length]);
                if written {
                    gpu.upload(&bytes(dtype, &noise.values), of.at).expect("upload");
                }
                of
            };
            let read: Vec<StridedOperand> = (0..300).map(|n| memory(from, n, true)).collect();
            let [together, alone] =
                [0, 1].map(|_| (0..300).map(|n| memory(to, n, false)).collect::<Vec<_>>());
            let mut waiting = Updates::default();
            for (x, out) in read.iter().zip(&together) {
                assert!(waiting.cast(&gpu, x, out, None).expect("a cast"), "a dense cast waits");
            }
            waiting.flush(&gpu).expect("casts");
            for (x, out) in read.iter().zip(&alone) {
                let (x, out) = (std::slice::from_ref(x), std::slice::from_ref(out));
                ops::run(&gpu, &Op::Cast(to), x, out, None).expect("a cast");
            }
            let download = |x: &StridedOperand| {
                let mut bytes = vec![0; x.bytes()];
                gpu.download(x.at, &mut bytes).expect("download");
                bytes
            };
            for (n, (together, alone)) in together.iter().zip(&alone).enumerate() {
                assert!(download(together) == download(alone), "cast {n}, {from} to {to}");
            }
        }
    }
}

/// Rows at indices that are shared by all columns: few and many equal ones, runs that are cut once
/// and often, with vectors and without.
#[test]
fn added_rows_are_the_sums_of_all() {
    let Some(gpu) = device() else { return };
    let upload = |x: &Array| {
        let at = gpu.alloc(8 * x.values.len()).expect("memory");
        gpu.upload(&bytes(x.dtype, &x.values), at).expect("upload");
        StridedOperand::dense(at, x.dtype, &x.shape)
    };
    let mut report = Report::default();
    for (count, columns, kinds) in
        [(16384, 768, 50304), (5000, 96, 7), (3000, 33, 1), (40, 8, 3), (600, 4, 2), (40000, 32, 3)]
    {
        let kinds = kinds.min(997);
        let table = Array::noise(DType::F32, &[kinds, columns], 1);
        let rows = Array::noise(DType::F32, &[count, columns], 2);
        let tokens: Vec<f64> = (0..count).map(|i| (i * i % 1009 % kinds) as f64).collect();
        let mut sums = table.values.clone();
        for (i, &token) in tokens.iter().enumerate() {
            for c in 0..columns {
                let value = f64::from(rows.values[i * columns + c] as f32);
                sums[token as usize * columns + c] += value;
            }
        }
        let index = upload(&Array::new(DType::I64, &[count], tokens));
        let index = index.as_strided(&[count, columns], &[1, 0]);
        let (x, source) = (upload(&table), upload(&rows));
        let mut runs = (0..2).map(|_| {
            let out = upload(&table);
            let op = Op::Scatter(0, Combine::Add);
            let operands = [x.clone(), index.clone(), source.clone()];
            ops::run(&gpu, &op, &operands, std::slice::from_ref(&out), None).expect("it runs");
            let mut bytes = vec![0; out.bytes()];
            gpu.download(out.at, &mut bytes).expect("download");
            bytes
        });
        let (first, again) = (runs.next().expect("one"), runs.next().expect("two"));
        assert!(first == again, "bits differ between runs");
        let found = values(DType::F32, &first);
        let most = sums.iter().fold(0f64, |m, v| m.max(v.abs()));
        let off = found.iter().zip(&sums).fold(0f64, |m, (a, b)| m.max((a - b).abs()));
        report.check(&format!("{count} rows of {columns}, {kinds} kinds"), off / most, 1e-5);
    }
}
