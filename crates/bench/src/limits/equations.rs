//! How long each equation of a compiled program takes, and its rates.

use super::count::operations;
use crate::measure::median;
use pullback::{DType, Program, Result};
use pullback_cpu::{BoundInput, Buffer, Prepared, TARGET};
use pullback_ir::pass::plan::Planned;
use pullback_ir::{Spec, Step};
use std::time::{Duration, Instant};

/// How long a program is repeated.
const TIME: Duration = Duration::from_secs(1);

/// A line for each kind of step, those that take longest first: calls, milliseconds, the share of
/// all, and the rates of arithmetic and of operands and results.
///
/// # Errors
/// If there is no memory.
pub fn table(program: &Program) -> Result<Vec<String>> {
    let mut prepared = Prepared::new(Planned::new(program, TARGET)?.into())?;
    let steps = prepared.steps();
    let times = times(&mut prepared, program, steps.len())?;
    let all: f64 = times.iter().sum();
    let mut rows: Vec<(String, usize, f64, f64, f64)> = Vec::new();
    for (step, ms) in steps.iter().zip(times) {
        let equation = program.equations.get(step.equation);
        let of_product = step.kernel != "copy" && step.kernel != "region";
        let work = match equation {
            Some(equation) if of_product => operations(program, equation),
            _ => 0.0,
        };
        let bytes: usize = step.operands.iter().flatten().map(Spec::bytes).sum();
        let name = described(step);
        match rows.iter_mut().find(|row| row.0 == name) {
            Some(row) => *row = (name, row.1 + 1, row.2 + ms, row.3 + work, row.4 + bytes as f64),
            None => rows.push((name, 1, ms, work, bytes as f64)),
        }
    }
    rows.sort_by(|a, b| b.2.total_cmp(&a.2));
    let head =
        format!("{:>5} {:>9} {:>6} {:>8} {:>7}  kernel", "calls", "ms", "%", "GFLOP/s", "GB/s");
    let line = |(name, calls, ms, work, bytes): (String, usize, f64, f64, f64)| {
        let share = 100.0 * ms / all;
        let (work, bytes) = (work / ms / 1e6, bytes / ms / 1e6);
        format!("{calls:>5} {ms:>9.4} {share:>6.1} {work:>8.0} {bytes:>7.1}  {name}")
    };
    let last = format!("{:>5} {all:>9.4} in all", steps.len());
    Ok([head].into_iter().chain(rows.into_iter().map(line)).chain([last]).collect())
}

/// The kernel and its operands.
fn described(step: &Step) -> String {
    let list = |specs: &[Spec]| {
        let some: Vec<String> = specs.iter().take(4).map(Spec::to_string).collect();
        let rest = if specs.len() > 4 { format!(" … {}", specs.len()) } else { String::new() };
        format!("{}{rest}", some.join(" "))
    };
    let at = step.at.map_or(String::new(), |at| format!("  at {at}"));
    format!("{} {} → {}{at}", step.kernel, list(&step.operands[0]), list(&step.operands[1]))
}

/// Milliseconds of each step, the median of runs in the order of the program.
fn times(prepared: &mut Prepared, program: &Program, steps: usize) -> Result<Vec<f64>> {
    let plan = prepared.planned().plan().arena;
    let fresh: Vec<usize> = prepared.planned().fresh().iter().map(|&(_, bytes)| bytes).collect();
    let memory = |bytes: usize| Buffer::from_slice(&vec![0u8; bytes]).map_err(|_| no_memory(bytes));
    let mut arena = memory(plan)?;
    let mut outputs = fresh.into_iter().map(memory).collect::<Result<Vec<Buffer>>>()?;
    let mut inputs =
        program.inputs.iter().map(|&v| filled(program.spec(v))).collect::<Result<Vec<Buffer>>>()?;
    let written: Vec<bool> = (0..inputs.len()).map(|i| prepared.planned().is_written(i)).collect();
    let mut bound: Vec<BoundInput<'_>> = Vec::new();
    for (buffer, written) in inputs.iter_mut().zip(written) {
        bound.push(match written {
            true => BoundInput::Write(buffer, 0),
            false => BoundInput::Read(buffer, 0),
        });
    }
    let mut samples = vec![Vec::new(); steps];
    let start = Instant::now();
    while start.elapsed() < TIME || samples.first().is_some_and(|s| s.len() < 3) {
        for (i, samples) in samples.iter_mut().enumerate() {
            let begun = Instant::now();
            prepared.run_over(&mut arena, &mut bound, &mut outputs, Some(i))?;
            samples.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    let middle = |mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        median(&samples)
    };
    Ok(samples.into_iter().map(middle).collect())
}

/// Memory of an input: small positive floats, zeros of other types.
fn filled(spec: &Spec) -> Result<Buffer> {
    let made = match spec.dtype {
        DType::F32 => {
            let values: Vec<f32> = (0..spec.len()).map(|i| (i % 97) as f32 * 1e-3).collect();
            Buffer::from_slice(&values)
        }
        _ => Buffer::from_slice(&vec![0u8; spec.bytes()]),
    };
    made.map_err(|_| no_memory(spec.bytes()))
}

fn no_memory(bytes: usize) -> pullback::Error {
    pullback::Error::argument("limits", format!("cannot allocate {bytes} bytes"))
}
