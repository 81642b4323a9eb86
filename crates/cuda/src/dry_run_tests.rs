//! What a program needs is found and made before it runs: here without a device, where NVRTC is
//! found; on a device (`PULLBACK_DEVICE=cuda:0`) nothing is left to make for the first call.

use crate::backend::LIMITS;
use crate::compile::KernelKey;
use crate::device_tests::device;
use crate::dry_run::{DryRunReport, placeholder, run_dry, with_dry_run};
use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::program::{CudaProgram, StepCode, region_loop};
use crate::region_tests::{REGIONS, region_of};
use pullback_cuda_sys::nvrtc;
use pullback_ir::pass::plan::Planned;
use pullback_ir::pass::{Epilogue, Pipeline, Target};
use pullback_ir::{Bases, DType, DeviceProgram, Program};
use std::sync::Arc;

/// Two layers of a product, a row that is added, an activation and a norm; sums over rows; a sorted
/// row; a loop; a step of an optimiser.
const STEP: &str = "program (x: bf16[64,96], w: bf16[96,96], b: bf16[96], g: f32[96], s: f32[96],
  m: f32[96], n: i64[], rate: f32[]) {
  let c: bf16[64,96] = broadcast{[64,96]} b
  let a: bf16[64,96] = dot x w
  let d: bf16[64,96] = add a c
  let e: bf16[64,96] = tanh d
  let f: f32[64,96] = cast{f32} e
  let h: f32[64,96] = layer_norm{1e-5} f g s
  let i: bf16[64,96] = cast{bf16} h
  let j: bf16[64,96] = dot i w
  let k: bf16[64,96] = add j c
  let l: bf16[64,96] = tanh k
  let o: f32[64,96] = cast{f32} l
  let p: f32[64,96] = layer_norm{1e-5} o g s
  let q: f32[64,96] = softmax{1} p
  let r: f32[96] = sum{[0]} q
  let t: f32[64,96], u: i64[64,96] =
    sort{axis=1, descending=false} p
  let v: f32[96] = scan{length=64,reverse=false,shared=0,carry=1,kept=0,
    body=(a: f32[96], b: f32[96]) {
      let c: f32[96] = add a b
      let d: f32[96] = sin c
      return d
    }
  } g q
  let y: f32[96], z: f32[96] =
    sgd{momentum=0.9,dampening=0.0,decay=0.0,nesterov=false,maximize=false} s m r n rate
  return q, r, t, u, v, y, z
}";

pub(crate) fn planned(text: &str) -> Arc<Planned> {
    let target = Target {
        align: 256,
        regions: LIMITS,
        norms: true,
        epilogue: Epilogue::Library,
        stores_twice: true,
        scratch: true,
        ..Target::default()
    };
    let program: Program = text.parse().expect("a program");
    let program = Pipeline::standard(target, |_, _| None).run(&program).expect("passes");
    Arc::new(Planned::new(&program, target).expect("a plan"))
}

/// The keys of its kernels, each once, in no order.
fn keys(gpu: &Gpu) -> Vec<KernelKey> {
    gpu.kernels.keys()
}

fn same(a: &[KernelKey], b: &[KernelKey]) -> bool {
    a.len() == b.len() && a.iter().all(|key| b.contains(key))
}

/// Makes what a program needs, on a device that is none.
pub(crate) fn prepare(gpu: &Arc<Gpu>, planned: &Planned) -> DryRunReport {
    let code =
        with_dry_run(|| StepCode::new(gpu, planned.program(), planned.plan())).expect("steps");
    let report = run_dry(gpu, code.dry_steps());
    with_dry_run(|| drop(code));
    report
}

#[test]
fn the_kernels_of_regions_are_found_before_they_run() {
    if nvrtc().is_err() {
        return;
    }
    for (name, written) in REGIONS {
        let text = written(1000, 768, DType::BF16, DType::F32);
        let gpu = Arc::new(Gpu::fake(90));
        let report = prepare(&gpu, &planned(&text));
        // The region alone, on memory of its own.
        let alone = Gpu::fake(90);
        let region = region_of(&text);
        let specs: Vec<_> = region.inputs.iter().map(|load| &load.spec).collect();
        let made = region.infer(&specs).expect("valid");
        with_dry_run(|| {
            let seen = |spec: &pullback_ir::Spec| {
                StridedOperand::dense(placeholder(spec.bytes()), spec.dtype, &spec.shape)
            };
            let x: Vec<StridedOperand> = specs.iter().map(|spec| seen(spec)).collect();
            let out: Vec<StridedOperand> = made.iter().map(seen).collect();
            let values = region.values().expect("valid");
            region_loop(&alone, &region, &values, &x, &out).expect("it runs dry");
        });
        assert!(!keys(&alone).is_empty(), "{name}");
        assert!(same(&keys(&gpu), &keys(&alone)), "{name}");
        let [compiled, read, ..] = report.made;
        assert_eq!(compiled + read, keys(&gpu).len(), "{name}");
        let words = report.words().expect("something was made");
        assert!(words.contains("kernels") || words.contains("files"), "{words}");
    }
}

#[test]
fn threads_share_what_they_make() {
    if nvrtc().is_err() {
        return;
    }
    let (gpu, planned) = (Arc::new(Gpu::fake(90)), planned(STEP));
    let reports: Vec<DryRunReport> = std::thread::scope(|s| {
        let all: Vec<_> = (0..4).map(|_| s.spawn(|| prepare(&gpu, &planned))).collect();
        all.into_iter().map(|one| one.join().expect("it ends")).collect()
    });
    let found = keys(&gpu);
    let sorts =
        |key: &KernelKey| matches!(key, KernelKey::Named(name, ..) if name.contains("SORT"));
    assert!(found.iter().any(sorts));
    let updates = |key: &KernelKey| matches!(key, KernelKey::Named("sgd", ..));
    assert!(found.iter().any(updates));
    assert!(found.iter().filter(|key| matches!(key, KernelKey::Loop(_))).count() >= 3);
    // Each was made once.
    let made: usize = reports.iter().map(|report| report.made[0] + report.made[1]).sum();
    assert_eq!(made, found.len());
    // Now everything is there.
    assert_eq!(prepare(&gpu, &planned).words(), None);
}

#[test]
fn nothing_is_left_to_make_for_the_first_call() {
    let Some(gpu) = device() else { return };
    let (gpu, planned) = (Arc::new(gpu), planned(STEP));
    let mut ready = CudaProgram::new(&gpu, &planned).expect("it is prepared");
    let made = ready.made().expect("something was made");
    println!("made: {made}");
    let before = keys(&gpu);
    let memory = |bytes: usize| {
        let at = gpu.alloc(bytes).expect("memory");
        gpu.fill(at, 0, bytes).expect("a fill");
        at
    };
    let inputs: Vec<(u64, usize)> =
        (0..planned.inputs()).map(|i| (memory(planned.input(i).bytes()), 0)).collect();
    let outputs: Vec<u64> = planned.fresh().iter().map(|&(_, bytes)| memory(bytes)).collect();
    let arena = memory(planned.plan().arena.max(1));
    let bases = Bases { arena, inputs: &inputs, outputs: &outputs };
    for _ in 0..3 {
        ready.run(&bases, None).expect("it runs");
        gpu.synchronize().expect("it has run");
        assert!(same(&keys(&gpu), &before), "kernels were made in a call");
    }
}
