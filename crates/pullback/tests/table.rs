//! Every op of the table, through every property that holds for all ops. A new op gets all of these
//! tests by its arm in `table/samples.rs` and its arm in `table/naive.rs`.

#[path = "table/aliasing.rs"]
mod aliasing;
#[path = "table/attention.rs"]
mod attention;
#[path = "table/batch_norm.rs"]
mod batch_norm;
#[path = "table/batching.rs"]
mod batching;
#[path = "table/compiled.rs"]
mod compiled;
#[path = "table/ctc.rs"]
mod ctc;
#[path = "table/derivatives.rs"]
mod derivatives;
pub mod device_second;
#[path = "table/device_specs.rs"]
mod device_specs;
#[path = "table/devices.rs"]
mod devices;
#[path = "table/distances.rs"]
mod distances;
#[path = "table/failing.rs"]
mod failing;
#[path = "table/kernels.rs"]
mod kernels;
#[path = "table/layer_norm.rs"]
mod layer_norm;
#[path = "table/linalg.rs"]
mod linalg;
#[path = "table/naive.rs"]
mod naive;
#[path = "table/order.rs"]
mod order;
#[path = "table/places.rs"]
mod places;
#[path = "table/samples.rs"]
mod samples;
#[path = "../../cpu/src/special/reference.rs"]
mod special;
#[path = "table/threads.rs"]
mod threads;
#[path = "table/update.rs"]
mod update;
#[path = "table/windows.rs"]
mod windows;

use pullback::backend::synchronize;
use pullback::{DType, Device, Group, Op, Spec, Tensor, default_device, table, try_apply};
use pullback_ir::infer::infer;
use samples::Sample;
use std::collections::HashSet;

/// Every op of the table; collectives with a single worker.
fn forms() -> impl Iterator<Item = Op> {
    // Messages need two workers, and a barrier has neither operand nor result.
    let others = |op: &Op| !["send", "recv", "barrier"].contains(&op.name());
    Op::forms().chain(table::collectives(&Group::alone()).filter(others))
}

/// Every sample of every op, on the default device; on the second device a part of them.
fn all_samples() -> Vec<Sample> {
    let of = |form: Op| match is_full() {
        true => samples::samples(&form),
        false => first_of_each_kind(samples::samples(&form)),
    };
    let mut all: Vec<Sample> = forms().flat_map(of).collect();
    all.iter_mut().for_each(|sample| sample.op = device_specs::on(&sample.op, default_device()));
    all
}

/// Whether all samples are used. On the second device every kernel is the CPU's, and
/// `another_device_gives_the_bits_of_the_cpu` compares all samples: what these tests show there
/// (memory, queues, specs) does not depend on shapes, so one sample of each kind does it.
fn is_full() -> bool {
    on_host() || std::env::var_os("PULLBACK_ALL_SAMPLES").is_some()
}

/// The first sample for each op, dtypes of operands and results, whether something is empty, and
/// whether it is differentiated.
fn first_of_each_kind(samples: Vec<Sample>) -> Vec<Sample> {
    let mut seen = HashSet::new();
    let is_new = |sample: &Sample| {
        let specs: Vec<&Spec> = sample.inputs.iter().map(Tensor::spec).collect();
        let results = infer(&sample.op, &specs).unwrap_or_default();
        let all = specs.into_iter().chain(&results);
        let empty = all.clone().any(|spec| spec.is_empty());
        let dtypes: Vec<DType> = all.map(|spec| spec.dtype).collect();
        seen.insert((sample.op.name(), dtypes, empty, sample.check))
    };
    samples.into_iter().filter(is_new).collect()
}

/// How many comparisons are expected at least, given how many there are of all samples.
fn at_least(all: usize) -> usize {
    if is_full() { all } else { all / 8 }
}

/// Whether the default device is the CPU. These tests also run on a second device
/// (`second_device_table.rs`); what is about the CPU's kernels alone asks this.
fn on_host() -> bool {
    default_device() == Device::Cpu
}

/// Runs an op and waits for it: what fails on a device that is not the host is the error of the
/// next wait.
fn run(op: &Op, inputs: &[Tensor]) -> pullback::Result<Vec<Tensor>> {
    let made = try_apply(op.clone(), &inputs.iter().collect::<Vec<_>>())?;
    synchronize(default_device())?;
    Ok(made)
}

/// Collects what failed, so that one run tells all of it.
struct Failures(Vec<String>);

impl Failures {
    fn new() -> Failures {
        Failures(Vec::new())
    }

    fn note(&mut self, sample: &Sample, what: impl std::fmt::Display) {
        let specs: Vec<String> = sample.inputs.iter().map(|x| x.spec().to_string()).collect();
        self.0.push(format!("{} on {}: {what}", sample.op, specs.join(", ")));
    }

    #[track_caller]
    fn assert_none(self) {
        assert!(self.0.is_empty(), "{} failures:\n{}", self.0.len(), self.0.join("\n"));
    }
}

impl Sample {
    /// The sample with its `f64` operands in another dtype, and none if it has none to cast.
    /// Cotangents of losses are in its compute type.
    fn cast(&self, dtype: DType) -> Sample {
        let of_losses = matches!(self.op, Op::Fused(pullback_ir::Fused::CrossEntropyVjp));
        let cast = |(i, x): (usize, &Tensor)| match x.dtype() {
            DType::F64 if of_losses && i == 2 => x.cast(dtype.compute()),
            DType::F64 => x.cast(dtype),
            _ => x.clone(),
        };
        Sample {
            op: self.op.clone(),
            inputs: self.inputs.iter().enumerate().map(cast).collect(),
            check: self.check,
        }
    }

    fn run(&self) -> pullback::Result<Vec<Tensor>> {
        run(&self.op, &self.inputs)
    }
}

/// The values by their bits; widening to `f64` is exact. NaNs are alike.
fn bits(x: &Tensor) -> Vec<u64> {
    let one = |v: f64| if v.is_nan() { f64::NAN.to_bits() } else { v.to_bits() };
    match x.dtype() {
        DType::I64 => x.to_vec::<i64>().into_iter().map(|v| v as u64).collect(),
        _ => x.to_f64_vec().into_iter().map(one).collect(),
    }
}

#[test]
fn every_form_that_can_run_has_samples() {
    for form in forms() {
        let none = samples::samples(&form).is_empty();
        let unfused = matches!(form, Op::UnaryVjp(f) if f.fused_vjp().is_none());
        assert_eq!(none, unfused, "{form}");
    }
}

#[test]
fn ops_print_and_parse_back() {
    for sample in all_samples() {
        let text = sample.op.to_string();
        if sample.op.is_ordered() {
            let error = text.parse::<Op>().unwrap_err().to_string();
            assert!(error.contains("names a group of workers"), "{error}");
            continue;
        }
        assert_eq!(text.parse::<Op>().as_ref(), Ok(&sample.op), "{text}");
    }
}
