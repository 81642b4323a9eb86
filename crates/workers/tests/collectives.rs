//! The collectives of the engines against naive ones, and what happens if workers disagree.

use pullback_ir::{
    Collective, CollectiveCall, Combination, Communicator, DType, Line, Result, Spec,
};
use pullback_workers::threads_within;
use std::time::Duration;

type Worker = std::sync::Arc<dyn Communicator>;

fn threads<R: Send>(n: usize, f: impl Fn(Worker) -> Result<R> + Sync) -> Result<Vec<R>> {
    pullback_workers::threads(n, |group| f(group.communicator().clone()))
}

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
fn run(worker: &Worker, collective: Collective, values: &[f64], line: Line) -> Result<Vec<f64>> {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let spec = Spec::cpu(DType::F64, [values.len()]);
    let call = CollectiveCall { collective: &collective, operand: &spec, sequence: 0, line };
    let mut out = vec![0; 8 * result_len(&collective, values.len(), worker.size())];
    worker.run(&call, &bytes, &mut out)?;
    Ok(out.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect())
}

fn here(line: u32) -> Line {
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

#[test]
fn every_collective_is_the_naive_one() {
    for size in [1, 2, 3, 4, 5, 8] {
        // Nothing, a few, more than is reduced at once, several slots and a rest.
        for per_worker in [0, 1, 3, 1000, 50_001] {
            let len = per_worker * size;
            let results = threads(size, |group| {
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
                        _ => operand(group.rank(), len),
                    };
                    let got = run(&group, collective.clone(), &values, here(1))?;
                    let want = expected(&collective, group.rank(), size, len);
                    // The values are multiples of 1/8, so every sum is exact.
                    assert!(got == want, "{collective:?} of {len} elements, {size} workers");
                }
                Ok(())
            });
            results.unwrap();
        }
    }
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

#[test]
fn sums_are_balanced_trees_over_ranks_and_narrow_types_are_rounded_once() {
    let len = 40_000;
    let value = |rank: usize, i: usize| 1.0 / (1.0 + (rank * 31 + i) as f32);
    for size in [2, 3, 5, 7, 8] {
        let sums: Vec<Vec<u8>> = threads(size, |group| {
            let mut results = vec![];
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let spec = Spec::cpu(dtype, [len]);
                let bytes: Vec<u8> =
                    (0..len).flat_map(|i| stored(dtype, value(group.rank(), i))).collect();
                let sum = Collective::AllReduce(Combination::Sum);
                let call =
                    CollectiveCall { collective: &sum, operand: &spec, sequence: 0, line: here(1) };
                let mut out = vec![0; bytes.len()];
                group.run(&call, &bytes, &mut out)?;
                results.extend(out);
            }
            Ok(results)
        })
        .unwrap();
        let mut want = vec![];
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            for i in 0..len {
                let operands: Vec<f32> =
                    (0..size).map(|rank| loaded(dtype, &stored(dtype, value(rank, i)))).collect();
                want.extend(stored(dtype, tree(&operands)));
            }
        }
        assert!(sums.iter().all(|got| *got == want), "{size} workers");
    }
}

fn stored(dtype: DType, x: f32) -> Vec<u8> {
    match dtype {
        DType::BF16 => half::bf16::from_f32(x).to_ne_bytes().to_vec(),
        DType::F16 => half::f16::from_f32(x).to_ne_bytes().to_vec(),
        _ => x.to_ne_bytes().to_vec(),
    }
}

fn loaded(dtype: DType, bytes: &[u8]) -> f32 {
    match dtype {
        DType::BF16 => half::bf16::from_ne_bytes(*bytes.first_chunk().unwrap()).to_f32(),
        DType::F16 => half::f16::from_ne_bytes(*bytes.first_chunk().unwrap()).to_f32(),
        _ => f32::from_ne_bytes(*bytes.first_chunk().unwrap()),
    }
}

#[test]
fn the_largest_is_nan_if_any_is() {
    for (combination, place) in [(Combination::Max, 0), (Combination::Min, 2)] {
        let results = threads(3, |group| {
            let x = if group.rank() == place { f64::NAN } else { 1.0 };
            run(&group, Collective::AllReduce(combination), &[x], here(1))
        });
        assert!(results.unwrap().iter().all(|x| x[0].is_nan()));
    }
}

/// The errors of all workers.
fn errors(size: usize, f: impl Fn(&Worker) -> Result<Vec<f64>> + Sync) -> Vec<String> {
    threads_within(Duration::from_millis(400), size, |group| {
        Ok(f(group.communicator()).unwrap_err().to_string())
    })
    .unwrap()
}

#[test]
fn a_mismatch_is_an_error_on_all_workers_that_names_ranks_ops_and_lines() {
    let sum = Collective::AllReduce(Combination::Sum);
    let cases: [(Collective, usize, u32, &str); 4] = [
        (Collective::AllGather, 4, 20, "all_gather of f64[4] (#0, at model.rs:20:1)"),
        (sum.clone(), 5, 20, "all_reduce of f64[5] (#0, at model.rs:20:1)"),
        (Collective::Broadcast { root: 1 }, 4, 20, "broadcast_from worker 1 of f64[4] (#0"),
        (sum.clone(), 4, 21, "all_reduce of f64[4] (#0, at model.rs:21:1)"),
    ];
    for (other, len, line, named) in cases {
        let all = errors(3, |worker| match worker.rank() {
            2 => run(worker, other.clone(), &vec![1.0; len], here(line)),
            _ => run(worker, sum.clone(), &[1.0; 4], here(10)),
        });
        for error in all {
            assert!(error.contains("worker 0 for all_reduce of f64[4] (#0, at model.rs:10:1)"));
            assert!(error.contains(&format!("worker 2 for {named}")), "{error}");
        }
    }
}

#[test]
fn a_group_that_failed_stays_failed() {
    let all = errors(2, |worker| {
        let op = if worker.rank() == 0 { Collective::Barrier } else { Collective::AllGather };
        let first = run(worker, op, &[], here(1)).unwrap_err();
        let second = run(worker, Collective::Barrier, &[], here(2)).unwrap_err();
        assert_eq!(first.message(), second.message());
        Err(second)
    });
    assert!(all[0].contains("worker 1 for all_gather"), "{}", all[0]);
}

#[test]
fn a_missing_worker_is_named_with_its_last_collective() {
    let outcome = threads(3, |group| {
        run(&group, Collective::Barrier, &[], here(5))?;
        if group.rank() == 1 {
            return Ok(String::new());
        }
        let sum = Collective::AllReduce(Combination::Sum);
        Ok(run(&group, sum, &[1.0], here(6)).unwrap_err().to_string())
    });
    for error in outcome.unwrap().iter().filter(|error| !error.is_empty()) {
        assert!(error.contains("worker 1 has ended; its last collective was barrier (#0, at"));
        assert!(error.contains("waits in all_reduce of f64[1] (#1, at model.rs:6:1)"));
    }
}

#[test]
fn a_worker_that_does_not_come_is_a_time_out() {
    let all = errors(2, |worker| {
        if worker.rank() == 1 {
            std::thread::sleep(Duration::from_millis(1200));
        }
        run(worker, Collective::Barrier, &[], here(7))
    });
    for error in all {
        assert!(error.contains("worker 1 did not come within 0.4 s (PULLBACK_TIMEOUT)"), "{error}");
        assert!(error.contains("worker 0 waits in barrier (#0, at model.rs:7:1)"), "{error}");
    }
}

#[test]
fn an_error_of_one_worker_reaches_all() {
    let outcome = threads(3, |group| {
        if group.rank() == 2 {
            return Err(pullback_ir::Error::argument("load", "the disk is full"));
        }
        let error = run(&group, Collective::Barrier, &[], here(7)).unwrap_err().to_string();
        assert!(error.contains("worker 2 failed: load: the disk is full"), "{error}");
        Err::<(), _>(pullback_ir::Error::argument("later", error))
    });
    assert_eq!(outcome.unwrap_err().to_string(), "load: the disk is full");
}

#[test]
fn messages_wait_and_come_in_order() {
    threads(3, |group| {
        let (rank, size) = (group.rank(), group.size());
        let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
        // All send before anyone receives, with a collective between.
        for i in 0..3 {
            let values = vec![rank as f64 + i as f64 / 4.0; 100_000 * i + 1];
            run(&group, Collective::Send { to }, &values, here(1))?;
        }
        run(&group, Collective::Barrier, &[], here(2))?;
        for i in 0..3 {
            let spec = Spec::cpu(DType::F64, [100_000 * i + 1]);
            let got = run(&group, Collective::Recv { from, spec }, &[], here(3))?;
            assert!(got == vec![from as f64 + i as f64 / 4.0; 100_000 * i + 1]);
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_message_of_another_shape_and_one_that_will_not_come_are_errors() {
    let spec = || Spec::cpu(DType::F64, [3]);
    let all = errors(2, |worker| match worker.rank() {
        0 => {
            run(worker, Collective::Send { to: 1 }, &[1.0; 2], here(1))?;
            run(worker, Collective::Barrier, &[], here(2))
        }
        _ => run(worker, Collective::Recv { from: 0, spec: spec() }, &[], here(3)),
    });
    for error in all {
        assert!(error.contains("worker 1 for recv from worker 0 of f64[3] (at model.rs:3:1)"));
        assert!(error.contains("worker 0 for send to worker 1 of f64[2] (#0, at model.rs:1:1)"));
    }
    let all = errors(2, |worker| match worker.rank() {
        0 => run(worker, Collective::Barrier, &[], here(2)),
        _ => run(worker, Collective::Recv { from: 0, spec: spec() }, &[], here(3)),
    });
    for error in all {
        assert!(error.contains("worker 1 for recv from worker 0 of f64[3] (at model.rs:3:1)"));
        assert!(error.contains("worker 0 for barrier (#0, at model.rs:2:1)"), "{error}");
    }
}

#[test]
fn sub_groups_are_groups() {
    threads(5, |group| {
        // Even and odd ranks at once, twice; and a group of a group.
        for _ in 0..2 {
            let mine: Vec<usize> = (0..5).filter(|rank| rank % 2 == group.rank() % 2).collect();
            let part = group.subgroup(&mine)?.unwrap();
            assert_eq!((part.size(), mine[part.rank()]), (mine.len(), group.rank()));
            let sum = Collective::AllReduce(Combination::Sum);
            let got = run(&part, sum, &[group.rank() as f64], here(1))?;
            assert_eq!(got, [mine.iter().sum::<usize>() as f64]);
            if let [_, second, third] = mine[..] {
                let pair = part.subgroup(&[1, 2])?;
                assert_eq!(pair.is_some(), group.rank() != 0);
                if let Some(pair) = pair {
                    let got = run(&pair, Collective::AllGather, &[group.rank() as f64], here(2))?;
                    assert_eq!(got, [second as f64, third as f64]);
                    assert!(pair.id() != part.id() && part.id() != group.id());
                }
            }
        }
        assert!(group.subgroup(&[9]).is_err() && group.subgroup(&[1, 0]).is_err());
        run(&group, Collective::Barrier, &[], here(3)).map(drop)
    })
    .unwrap();
}

#[test]
fn a_failure_in_a_sub_group_reaches_the_whole() {
    let all = errors(3, |worker| {
        if let Some(pair) = worker.subgroup(&[0, 1])? {
            let op = if pair.rank() == 0 { Collective::Barrier } else { Collective::AllGather };
            run(&pair, op, &[], here(1)).unwrap_err();
        }
        run(worker, Collective::Barrier, &[], here(2))
    });
    for error in all {
        assert!(error.contains("in a sub-group: workers were asked for different"), "{error}");
    }
}

#[test]
fn waiting_is_counted_for_the_one_that_comes_last() {
    let waited = threads(3, |group| {
        if group.rank() == 1 {
            std::thread::sleep(Duration::from_millis(60));
        }
        run(&group, Collective::Barrier, &[], here(1))?;
        Ok(group.waited())
    })
    .unwrap();
    for rank in [0, 2] {
        assert!(waited[rank][1] > Duration::from_millis(10), "{waited:?}");
        assert!(waited[rank][1] > waited[rank][0] + waited[rank][2]);
    }
}
