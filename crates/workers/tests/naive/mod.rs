//! The collectives in the obvious way, for tests of any engine.

use half::{bf16, f16};
use pullback_ir::{
    Collective, CollectiveCall, Combination, Communicator, DType, Fresh, Line, Result, Spec,
};
use std::sync::Arc;

pub type Worker = Arc<dyn Communicator>;

/// The length of axis 0 of a result.
fn result_len(collective: &Collective, len: usize, size: usize) -> usize {
    match collective {
        Collective::AllGather => len * size,
        Collective::ReduceScatter => len / size,
        Collective::AllReduce(_) | Collective::Broadcast { .. } | Collective::AllToAll => len,
        Collective::Recv { spec, .. } => spec.len(),
        Collective::Send { .. } | Collective::Barrier => 0,
    }
}

/// Runs a collective on f64 values at this line.
pub fn run(
    worker: &Worker,
    collective: Collective,
    values: &[f64],
    line: Line,
) -> Result<Vec<f64>> {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let spec = Spec::cpu(DType::F64, [values.len()]);
    let call = CollectiveCall { collective: &collective, operand: &spec, sequence: 0, line };
    let mut out = vec![0; 8 * result_len(&collective, values.len(), worker.size())];
    worker.run(&call, &bytes, &mut out)?;
    Ok(out.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect())
}

/// The same into memory that nobody has written.
fn run_fresh(
    worker: &Worker,
    collective: Collective,
    values: &[f64],
    line: Line,
) -> Result<Vec<f64>> {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let spec = Spec::cpu(DType::F64, [values.len()]);
    let call = CollectiveCall { collective: &collective, operand: &spec, sequence: 0, line };
    let len = 8 * result_len(&collective, values.len(), worker.size());
    let mut out: Vec<u8> = Vec::with_capacity(len);
    let mut fresh = Fresh::new(&mut out.spare_capacity_mut()[..len]);
    worker.run_fresh(&call, &bytes, &mut fresh)?;
    fresh.check("test")?;
    // SAFETY: all of these bytes were written.
    unsafe { out.set_len(len) };
    Ok(out.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect())
}

/// The same where the result replaces the operand.
fn run_in_place(
    worker: &Worker,
    collective: Collective,
    values: &[f64],
    line: Line,
) -> Result<Vec<f64>> {
    let mut bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let spec = Spec::cpu(DType::F64, [values.len()]);
    let call = CollectiveCall { collective: &collective, operand: &spec, sequence: 0, line };
    worker.run_in_place(&call, &mut bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect())
}

pub fn here(line: u32) -> Line {
    Line::named("model.rs", line, 1)
}

/// Different values for each worker and element.
fn operand(rank: usize, len: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * 7 + rank * 13) % 101) as f64 / 8.0 - 3.0).collect()
}

/// What worker `rank` gets, computed in the obvious way.
fn expected(collective: &Collective, rank: usize, size: usize, len: usize) -> Vec<f64> {
    let all: Vec<Vec<f64>> = (0..size).map(|r| operand(r, len)).collect();
    let part = len / size;
    let fold = |f: fn(f64, f64) -> f64| -> Vec<f64> {
        (0..len).map(|i| all.iter().map(|x| x[i]).reduce(f).unwrap()).collect()
    };
    match collective {
        Collective::AllReduce(Combination::Sum) => fold(|a, b| a + b),
        Collective::AllReduce(Combination::Max) => fold(f64::max),
        Collective::AllReduce(Combination::Min) => fold(f64::min),
        Collective::AllGather => all.concat(),
        Collective::ReduceScatter => fold(|a, b| a + b)[rank * part..(rank + 1) * part].to_vec(),
        Collective::Broadcast { root } => all[*root].clone(),
        Collective::AllToAll => {
            all.iter().flat_map(|x| x[rank * part..(rank + 1) * part].to_vec()).collect()
        }
        Collective::Send { .. } | Collective::Recv { .. } | Collective::Barrier => vec![],
    }
}

/// All collectives of this many elements for each worker, compared with the naive ones.
pub fn check(worker: &Worker, per_worker: usize) -> Result<()> {
    let (size, len) = (worker.size(), per_worker * worker.size());
    let mut all = vec![
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AllToAll,
        Collective::Barrier,
    ];
    all.extend(Combination::ALL.iter().map(|&c| Collective::AllReduce(c)));
    all.extend((0..size).map(|root| Collective::Broadcast { root }));
    for collective in all {
        let values = match collective {
            Collective::Barrier => vec![],
            _ => operand(worker.rank(), len),
        };
        let got = run(worker, collective.clone(), &values, here(1))?;
        let want = expected(&collective, worker.rank(), size, len);
        // The values are multiples of 1/8, so every sum is exact.
        assert!(got == want, "{collective:?} of {len} elements, {size} workers");
        let got = run_fresh(worker, collective.clone(), &values, here(1))?;
        assert!(got == want, "{collective:?} of {len} elements to new memory, {size} workers");
        if let Collective::AllReduce(_) | Collective::Broadcast { .. } = collective {
            let got = run_in_place(worker, collective.clone(), &values, here(1))?;
            assert!(got == want, "{collective:?} of {len} elements in place, {size} workers");
        }
    }
    Ok(())
}

/// The balanced tree, written as the contract says it.
fn tree(values: &[f32]) -> f32 {
    match values {
        [x] => *x,
        _ => {
            let left = values.len().next_power_of_two() / 2;
            tree(&values[..left]) + tree(&values[left..])
        }
    }
}

/// Sums of floats that are not exact: bit for bit those of the balanced tree, rounded once.
pub fn check_order(worker: &Worker, len: usize) -> Result<()> {
    let value = |rank: usize, i: usize| 1.0 / (1.0 + (rank * 31 + i) as f32);
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let spec = Spec::cpu(dtype, [len]);
        let mine = |i| stored(dtype, value(worker.rank(), i));
        let bytes: Vec<u8> = (0..len).flat_map(mine).collect();
        let sum = Collective::AllReduce(Combination::Sum);
        let line = here(2);
        let call = CollectiveCall { collective: &sum, operand: &spec, sequence: 0, line };
        let mut got = vec![0; bytes.len()];
        worker.run(&call, &bytes, &mut got)?;
        let want: Vec<u8> = (0..len)
            .flat_map(|i| {
                let of = |rank| loaded(dtype, &stored(dtype, value(rank, i)));
                let operands: Vec<f32> = (0..worker.size()).map(of).collect();
                stored(dtype, tree(&operands))
            })
            .collect();
        assert!(got == want, "{dtype}, {} workers", worker.size());
    }
    Ok(())
}

fn stored(dtype: DType, x: f32) -> Vec<u8> {
    match dtype {
        DType::BF16 => bf16::from_f32(x).to_ne_bytes().to_vec(),
        DType::F16 => f16::from_f32(x).to_ne_bytes().to_vec(),
        _ => x.to_ne_bytes().to_vec(),
    }
}

fn loaded(dtype: DType, bytes: &[u8]) -> f32 {
    match dtype {
        DType::BF16 => bf16::from_ne_bytes(*bytes.first_chunk().unwrap()).to_f32(),
        DType::F16 => f16::from_ne_bytes(*bytes.first_chunk().unwrap()).to_f32(),
        _ => f32::from_ne_bytes(*bytes.first_chunk().unwrap()),
    }
}
