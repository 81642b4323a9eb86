//! Which GPU a worker uses.

use super::agreement::{gather_texts, together};
use crate::refuse::called;
use pullback::{Device, Error, Group, Result};
use std::env::var;
use std::fs::read_to_string;

const OP: &str = "gpu_of_worker";

/// The GPU of this worker: the workers of a machine take its GPUs in the order of their ranks. If
/// there are more workers than GPUs, they take turns, and the first of them prints that: workers
/// that share a GPU exchange tensors through the host. Every worker calls it.
///
/// ```
/// use pullback::{Group, set_default_device};
/// use pullback_nn::parallel::gpu_of_worker;
/// # fn train(group: &Group) -> pullback::Result<()> {
/// set_default_device(gpu_of_worker(group)?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// On all workers, if one of them has no GPU; or of the group.
#[doc(alias = "local_rank")]
#[track_caller]
pub fn gpu_of_worker(group: &Group) -> Result<Device> {
    let _line = called();
    let gpus = Device::available().into_iter().filter(|device| *device != Device::Cpu);
    let gpus: Vec<Device> = gpus.collect();
    let any = match gpus.is_empty() {
        true => Err(Error::argument(OP, "there is no GPU here")
            .hint("`pullback devices` says what was looked for")),
        false => Ok(()),
    };
    together(group, OP, any)?;
    let place = LocalRank::of(&gather_texts(group, &machine())?, group.rank());
    if let (0, Some(warning)) = (place.rank, place.warning(gpus.len())) {
        eprintln!("pullback: {warning}");
    }
    Ok(gpus[place.rank % gpus.len()])
}

/// What workers have in common that see the same GPUs: the machine, and what the environment leaves
/// of its GPUs (slurm may give each worker its own). Empty where the system does not tell.
fn machine() -> String {
    let file = |path: &str| read_to_string(path).unwrap_or_default();
    let host = file("/proc/sys/kernel/hostname");
    let visible = var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    format!("{} {} {visible}", host.trim(), file("/proc/sys/kernel/random/boot_id").trim())
}

/// A worker among those of its machine.
#[derive(Debug, PartialEq)]
struct LocalRank {
    rank: usize,
    workers: usize,
}

impl LocalRank {
    fn of(machines: &[String], rank: usize) -> LocalRank {
        let same =
            |ranks: &[String]| ranks.iter().filter(|other| **other == machines[rank]).count();
        LocalRank { rank: same(&machines[..rank]), workers: same(machines) }
    }

    fn warning(&self, gpus: usize) -> Option<String> {
        let workers = self.workers;
        (workers > gpus).then(|| {
            let gpus = if gpus == 1 { "1 GPU".to_string() } else { format!("{gpus} GPUs") };
            format!("{workers} workers of this machine share {gpus}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_counted_by_machine() {
        let machines = ["a", "b", "a", "b", "b"].map(String::from);
        let places = (0..5).map(|rank| LocalRank::of(&machines, rank));
        let places: Vec<(usize, usize)> = places.map(|p| (p.rank, p.workers)).collect();
        assert_eq!(places, [(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
        let place = LocalRank { rank: 0, workers: 3 };
        assert_eq!(place.warning(3), None);
        let warning = place.warning(2).unwrap();
        assert_eq!(warning, "3 workers of this machine share 2 GPUs");
        assert!(place.warning(1).unwrap().ends_with("share 1 GPU"));
    }
}
