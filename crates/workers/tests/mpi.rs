//! The engine `mpi`, under mpirun: `.ci/mpi` starts this. All workers do the same, in order.

mod naive;

use naive::{Worker, check, check_order, here, run};
use pullback::{Group, Result, Tensor};
use pullback_ir::{Collective, Combination, DType, Spec};
use pullback_workers::{finish, init};

fn main() -> Result<()> {
    let group = init()?;
    let worker = group.communicator();
    assert_eq!(group.engine(), "mpi");
    let wanted = std::env::var("PULLBACK_TEST_WORKERS").expect("a number of workers");
    assert_eq!(group.size().to_string(), wanted);
    // Nothing, a few, more than is reduced at once, several rounds.
    [0, 1, 3, 1000, 100_001, 400_000].iter().try_for_each(|&len| check(worker, len))?;
    check_order(worker, 20_000)?;
    messages(worker)?;
    parts(&group)?;
    gradients(&group)?;
    // What remains ends the group.
    differences(worker);
    if group.rank() == 0 {
        println!("mpi: {} workers computed what one would", group.size());
    }
    finish();
    Ok(())
}

/// All send before anyone receives, also what MPI does not buffer.
fn messages(worker: &Worker) -> Result<()> {
    let (rank, size) = (worker.rank(), worker.size());
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    for i in 0..3 {
        let values = vec![rank as f64 + i as f64 / 4.0; 100_000 * i + 1];
        run(worker, Collective::Send { to }, &values, here(1))?;
    }
    run(worker, Collective::Barrier, &[], here(2))?;
    for i in 0..3 {
        let spec = Spec::cpu(DType::F64, [100_000 * i + 1]);
        let got = run(worker, Collective::Recv { from, spec }, &[], here(3))?;
        assert!(got == vec![from as f64 + i as f64 / 4.0; 100_000 * i + 1]);
    }
    Ok(())
}

/// Sub-groups of even and odd ranks at once.
fn parts(group: &Group) -> Result<()> {
    let mine: Vec<usize> = (0..group.size()).filter(|r| r % 2 == group.rank() % 2).collect();
    let part = group.subgroup(&mine)?.expect("a member");
    let ranks = Tensor::from(vec![group.rank() as f64]).all_gather(&part, 0);
    assert_eq!(ranks.to_vec::<f64>(), mine.iter().map(|&r| r as f64).collect::<Vec<_>>());
    check(part.communicator(), 1000)
}

/// The gradient of a mean over all workers' examples is that of one process.
fn gradients(group: &Group) -> Result<()> {
    let n = group.size();
    let x = Tensor::arange(0, 6 * n as i64).cast(DType::F64).reshape([2 * n, 3]) * 0.1;
    let loss = |w: &Tensor, x: &Tensor| x.matmul(w).tanh().square().sum();
    let whole = Tensor::full([3, 2], 0.3).requires_grad();
    loss(&whole, &x).backward()?;
    let w = Tensor::full([3, 2], 0.3).requires_grad();
    loss(&w, &x.narrow(0, 2 * group.rank() as isize, 2)).backward()?;
    let (got, want) = (w.grad().unwrap().all_reduce(group), whole.grad().unwrap());
    let difference = (got - want).abs().max().item::<f64>();
    assert!(difference < 1e-12, "{difference}");
    Ok(())
}

/// All workers get the same error.
fn differences(worker: &Worker) {
    if worker.size() == 1 {
        return;
    }
    let line = if worker.rank() == worker.size() - 1 { 6 } else { 5 };
    let sum = Collective::AllReduce(Combination::Sum);
    let error = run(worker, sum, &[1.0; 3], here(line)).unwrap_err().to_string();
    assert!(error.contains("worker 0 for all_reduce of f64[3] (#"), "{error}");
    let last = format!("worker {} for all_reduce of f64[3]", worker.size() - 1);
    assert!(error.contains(&last) && error.contains("at model.rs:6:1"), "{error}");
    let again = run(worker, Collective::Barrier, &[], here(7)).unwrap_err().to_string();
    assert!(again.contains("workers were asked for different things"), "{again}");
}
