//! Training under mpirun: what `workers/` compares with threads, compared with workers of MPI.
//!
//! This program plays two parts: the test starts it by mpirun as workers.

#[path = "workers/compared.rs"]
mod compared;
#[path = "workers/equality.rs"]
mod equality;
#[path = "workers/equality_sharded.rs"]
mod equality_sharded;

use compared::Crew;
use std::process::Command;

const WORKER: &str = "PULLBACK_TEST_WORKER";

/// Not a test of its own: see below.
#[test]
fn as_a_worker() {
    if std::env::var_os(WORKER).is_none() {
        return;
    }
    let group = pullback_workers::init().unwrap();
    assert_eq!(group.engine(), "mpi");
    let crew = Crew::Joined(group.clone());
    equality::of_mlp(std::slice::from_ref(&crew));
    equality::of_cnn(std::slice::from_ref(&crew));
    equality::of_gpt(std::slice::from_ref(&crew));
    equality_sharded::of_stages_1_and_2(&crew);
    equality_sharded::of_stage_3(&crew);
    println!("\nworker {} of {} trained as one process does", group.rank(), group.size());
    pullback_workers::finish();
}

#[test]
fn workers_of_mpi_train_as_one_process_does() {
    for workers in [2, 3] {
        let output = Command::new("mpirun")
            .args(["-n", &workers.to_string()])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "as_a_worker", "--nocapture", "--test-threads=1"])
            .env(WORKER, "")
            .env("PULLBACK_TIMEOUT", "60")
            .output()
            .unwrap();
        let [out, err] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(output.status.success(), "{out}{err}");
        for rank in 0..workers {
            let line = format!("worker {rank} of {workers} trained as one process does");
            assert!(out.contains(&line), "{out}{err}");
        }
    }
}
