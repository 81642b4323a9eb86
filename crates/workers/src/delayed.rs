//! A network that this machine does not have: every call takes a stated time at least.

use pullback::Group;
use pullback_ir::{CollectiveCall, Communicator, Fresh, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a slower network would take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Of every call.
    pub latency: Duration,
    /// Bytes of the operand in a second.
    pub bandwidth: f64,
}

impl Network {
    /// How long a call with this many bytes takes.
    ///
    /// ```
    /// # use pullback_workers::Network;
    /// # use std::time::Duration;
    /// let network = Network { latency: Duration::from_millis(1), bandwidth: 1e6 };
    /// assert_eq!(network.time(2000), Duration::from_millis(3));
    /// ```
    pub fn time(self, bytes: usize) -> Duration {
        self.latency + Duration::from_secs_f64(bytes as f64 / self.bandwidth)
    }
}

struct Delayed {
    inner: Arc<dyn Communicator>,
    network: Network,
}

/// A group whose calls take as long as on a network, with nothing computed meanwhile: what is
/// missing to that time is slept.
///
/// ```
/// # use pullback_workers::{Network, delayed};
/// # use pullback::{Group, Tensor};
/// # use std::time::{Duration, Instant};
/// let network = Network { latency: Duration::from_millis(5), bandwidth: 1e9 };
/// let (group, start) = (delayed(&Group::alone(), network), Instant::now());
/// group.all_reduce_later(&Tensor::from(1.0)).wait()?;
/// assert!(start.elapsed() >= Duration::from_millis(5));
/// # Ok::<(), pullback::Error>(())
/// ```
pub fn delayed(group: &Group, network: Network) -> Group {
    Group::new(Arc::new(Delayed { inner: group.communicator().clone(), network }))
}

impl Communicator for Delayed {
    fn id(&self) -> u64 {
        self.inner.id()
    }

    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn engine(&self) -> &'static str {
        self.inner.engine()
    }

    fn run(&self, call: &CollectiveCall<'_>, input: &[u8], output: &mut [u8]) -> Result<()> {
        let start = Instant::now();
        self.inner.run(call, input, output)?;
        std::thread::sleep(self.network.time(input.len()).saturating_sub(start.elapsed()));
        Ok(())
    }

    fn run_fresh(
        &self,
        call: &CollectiveCall<'_>,
        input: &[u8],
        output: &mut Fresh<'_>,
    ) -> Result<()> {
        let start = Instant::now();
        self.inner.run_fresh(call, input, output)?;
        std::thread::sleep(self.network.time(input.len()).saturating_sub(start.elapsed()));
        Ok(())
    }

    fn run_in_place(&self, call: &CollectiveCall<'_>, memory: &mut [u8]) -> Result<()> {
        let start = Instant::now();
        self.inner.run_in_place(call, memory)?;
        std::thread::sleep(self.network.time(memory.len()).saturating_sub(start.elapsed()));
        Ok(())
    }

    fn agree(&self, call: &CollectiveCall<'_>) -> Result<()> {
        self.inner.agree(call)
    }

    fn broken(&self) -> Option<String> {
        self.inner.broken()
    }

    fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    fn subgroup(&self, ranks: &[usize]) -> Result<Option<Arc<dyn Communicator>>> {
        let network = self.network;
        let inner = self.inner.subgroup(ranks)?;
        Ok(inner.map(|inner| Arc::new(Delayed { inner, network }) as Arc<dyn Communicator>))
    }

    fn waited(&self) -> Vec<Duration> {
        self.inner.waited()
    }

    fn fail(&self, reason: &str) {
        self.inner.fail(reason);
    }
}
