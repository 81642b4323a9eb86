//! The collectives of the engines against naive ones, and what happens if workers disagree.

mod naive;

use naive::{Worker, check, check_order, here, run};
use pullback::{Group, Tensor, catch, jvp, kink_report, strict_kinks};
use pullback_ir::{Collective, Combination, DType, Result, Spec};
use pullback_workers::{threads as groups, threads_within};
use std::time::Duration;

fn threads<R: Send>(n: usize, f: impl Fn(Worker) -> Result<R> + Sync) -> Result<Vec<R>> {
    pullback_workers::threads(n, |group| f(group.communicator().clone()))
}

#[test]
fn every_collective_is_the_naive_one() {
    for size in [1, 2, 3, 4, 5, 8] {
        // Nothing, a few, more than is reduced at once, several slots and a rest.
        let lengths = [0, 1, 3, 1000, 50_001];
        threads(size, |worker| lengths.iter().try_for_each(|&len| check(&worker, len))).unwrap();
    }
}

#[test]
fn sums_are_balanced_trees_over_ranks_and_narrow_types_are_rounded_once() {
    for size in [2, 3, 5, 7, 8] {
        threads(size, |worker| check_order(&worker, 40_000)).unwrap();
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

/// The same value on several workers is a tie, which all workers report.
#[test]
fn ties_of_workers_are_kinks() {
    let reports = groups(3, |group| {
        let x = Tensor::from([[1.0, 2.0, 3.0], [5.0, 2.0, 3.0], [4.0, 1.0, 3.0]][group.rank()]);
        // One worker does not differentiate, and takes part.
        let x = if group.rank() == 2 { x } else { x.requires_grad() };
        let (y, report) = kink_report(|| x.all_reduce_max(&group));
        assert_eq!(y.to_vec::<f64>(), [5.0, 2.0, 3.0]);
        Ok(report.kinks)
    });
    let reports = reports.unwrap();
    for kinks in &reports[..2] {
        let kink = &kinks[0];
        assert_eq!((kink.op, kink.elements, kink.total), ("all_reduce_max", 2, 3));
        assert_eq!((kink.place, kink.convention.as_str()), ("ties of workers", "shared evenly"));
    }
    assert!(reports[2].is_empty());
    let strict = groups(2, |group| {
        let x = Tensor::from([1.0]).requires_grad();
        Ok(catch(|| strict_kinks(|| x.all_reduce_min(&group))).unwrap_err().to_string())
    });
    assert!(strict.unwrap()[0].contains("1 of 1 elements are at a kink (ties of workers)"));
}

/// A tangent that is sent to a worker which receives values alone is no value.
#[test]
fn a_tangent_that_nobody_expects_is_an_error() {
    let pushed = |group: &Group| {
        let x = Tensor::from([1.0, 2.0]);
        jvp(|x: &Tensor| x.send(group, 1), &x, &x.ones_like());
    };
    // Worker 1 takes it for the next message.
    let error = groups(2, |group| {
        match group.rank() {
            0 => {
                pushed(&group);
                Tensor::from([3.0, 4.0]).send(&group, 1);
            }
            _ => {
                let first = Tensor::recv(&group, 0, [2], DType::F64);
                assert_eq!(first.to_vec::<f64>(), [1.0, 2.0]);
                let _ = Tensor::recv(&group, 0, [2], DType::F64);
            }
        }
        Ok(())
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("recv from worker 0 of f64[2]"), "{error}");
    assert!(error.contains("worker 0 for send to worker 1 of f64[1,2]"), "{error}");
    // Worker 1 does not receive again.
    let error = groups(2, |group| {
        match group.rank() {
            0 => pushed(&group),
            _ => drop(Tensor::recv(&group, 0, [2], DType::F64)),
        }
        Ok(())
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("worker 1 has not received a message of worker 0"), "{error}");
    assert!(error.contains("collectives.rs"), "{error}");
}
