use super::{Pass, RandomSampler, Sampler, SequentialSampler};
use pullback::{Error, Result};

/// What happens to the items that do not go evenly into the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The first items come again, so that every process has as many.
    Pad,
    /// They are left out in this epoch.
    Drop,
}

/// One process's share of the items: process `rank` of `world` takes every `world`-th index of an order that is the same in all.
///
/// ```
/// use pullback_nn::data::{DistributedSampler, Pass, Sampler, Tail};
/// let pass = Pass { seed: 0, epoch: 3 };
/// let mut all: Vec<usize> = (0..3)
///     .flat_map(|rank| DistributedSampler::new(rank, 3, Tail::Drop).unwrap().indices(9, pass).unwrap())
///     .collect();
/// all.sort();
/// assert_eq!(all, Vec::from_iter(0..9));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DistributedSampler {
    rank: usize,
    world: usize,
    tail: Tail,
    shuffle: bool,
}

impl DistributedSampler {
    /// The share of process `rank` of `world`, shuffled.
    ///
    /// # Errors
    /// If the rank is not below the number of processes.
    pub fn new(rank: usize, world: usize, tail: Tail) -> Result<DistributedSampler> {
        if rank >= world {
            let message = format!("there is no process {rank} of {world}");
            return Err(Error::argument("DistributedSampler", message));
        }
        Ok(DistributedSampler { rank, world, tail, shuffle: true })
    }

    /// Takes the items as they stand.
    #[must_use]
    pub fn in_order(self) -> DistributedSampler {
        DistributedSampler { shuffle: false, ..self }
    }
}

impl Sampler for DistributedSampler {
    fn indices(&self, len: usize, pass: Pass) -> Result<Vec<usize>> {
        let order = match self.shuffle {
            true => RandomSampler.indices(len, pass)?,
            false => SequentialSampler.indices(len, pass)?,
        };
        let mine = order.iter().cycle().skip(self.rank).step_by(self.world);
        Ok(mine.take(self.count(len)).copied().collect())
    }

    fn count(&self, len: usize) -> usize {
        match self.tail {
            Tail::Pad => len.div_ceil(self.world),
            Tail::Drop => len / self.world,
        }
    }

    /// Without the rank: a position saved by one process is that of all.
    fn describe(&self) -> String {
        let order = if self.shuffle { "shuffled" } else { "sequential" };
        format!("{order}, one of {} shares, tail {:?}", self.world, self.tail).to_lowercase()
    }
}
