//! Collectives that the devices of the workers make themselves.
//!
//! The workers of a group meet on the host: a [`Communicator`] numbers and compares their calls. A
//! backend whose device can exchange memory with those of the other workers (NCCL) brings a
//! [`DeviceJoin`]; the first collective of a tensor of the device calls [`GroupHandle::on_device`]:
//!
//! 1. The workers compare that call, so that all of them are here.
//! 2. Each says whether its device can, and what the others need to know (NCCL: the unique id that
//!    worker 0 has drawn).
//! 3. If all can, they join, and tell each other whether that worked: two workers on one GPU, for
//!    example, are found here.
//!
//! If anything is missing on any worker, all of them go through the host, from then on. A warning
//! of worker 0 says why.
//!
//! Later calls are compared on the group's own thread ([`Communicator::agree`]) and then given to
//! the device, in the order of their numbers. So a device never waits for a worker that was asked
//! for something else, and the thread that issues calls waits for other hosts at most.
//!
//! A worker has one device in a group. A second one would have to be joined by all at once.

use crate::{
    Collective, CollectiveCall, Communicator, DType, Device, Error, ErrorKind, GroupHandle, Result,
    Shape, Spec,
};
use std::any::Any;
use std::sync::Arc;

/// Bytes of what a worker tells the others: a word for its length, another for whether it can.
const RECORD: usize = 1024;
const HEAD: usize = 4;

/// How the devices of the workers of a group come to exchange memory.
pub trait DeviceJoin {
    /// What they exchange it by.
    type Engine: Any + Send + Sync;

    /// Its name, for warnings.
    fn name(&self) -> &'static str;

    /// What the others need to know of this worker.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    fn offer(&self, rank: usize) -> std::result::Result<Vec<u8>, String>;

    /// Joins, with what all workers offered, in the order of ranks. All workers call it. It ends
    /// after [`Communicator::timeout`], also if another worker does not come.
    ///
    /// # Errors
    /// A sentence that says what went wrong.
    fn join(
        &self,
        group: &Arc<dyn Communicator>,
        offers: &[Vec<u8>],
    ) -> std::result::Result<Self::Engine, String>;
}

/// What a group knows of the device of this worker.
pub(crate) struct JoinedDevice {
    device: Device,
    /// `None`: the workers go through the host.
    engine: Option<Arc<dyn Any + Send + Sync>>,
}

impl GroupHandle {
    /// What the devices of the workers exchange memory by; `None` if they go through the host. The
    /// first call joins them, and waits for all workers. `call` is what is to be done with it.
    ///
    /// # Errors
    /// If workers were asked for different things, one is gone or time ran out; or if this worker
    /// uses the group with another device already.
    pub fn on_device<J: DeviceJoin>(
        &self,
        call: &CollectiveCall<'_>,
        device: Device,
        join: &J,
    ) -> Result<Option<Arc<J::Engine>>> {
        let op = call.collective.name();
        let mut joined = self.joined();
        if joined.is_none() {
            let mut engine = None;
            self.run(op, |_, sequence| {
                let call = CollectiveCall { sequence, ..call.clone() };
                let made = meet(self.communicator(), &call, join)?;
                engine = made.map(|engine| Arc::new(engine) as Arc<dyn Any + Send + Sync>);
                Ok(())
            })?;
            *joined = Some(JoinedDevice { device, engine });
        }
        match &*joined {
            Some(joined) if joined.device != device => {
                let message = format!(
                    "a tensor is on {device}, but this worker's tensors of the group were on {} \
                     before: a worker uses one device in a group",
                    joined.device
                );
                self.communicator().fail(&message);
                Err(Error::new(ErrorKind::Workers, op, message).at(call.line))
            }
            Some(JoinedDevice { engine: Some(engine), .. }) => Ok(engine.clone().downcast().ok()),
            Some(JoinedDevice { engine: None, .. }) | None => Ok(None),
        }
    }
}

fn meet<J: DeviceJoin>(
    group: &Arc<dyn Communicator>,
    call: &CollectiveCall<'_>,
    join: &J,
) -> Result<Option<J::Engine>> {
    group.agree(call)?;
    let (offers, missing) = gather(&**group, call, join.offer(group.rank()))?;
    if let Some(missing) = missing {
        warn(&**group, join.name(), &missing);
        return Ok(None);
    }
    let made = join.join(group, &offers);
    let outcome = made.as_ref().map(|_| Vec::new()).map_err(String::clone);
    let (_, failed) = gather(&**group, call, outcome)?;
    match failed {
        Some(failed) => {
            warn(&**group, join.name(), &failed);
            Ok(None)
        }
        None => Ok(made.ok()),
    }
}

fn warn(group: &dyn Communicator, engine: &str, why: &str) {
    if group.rank() == 0 {
        eprintln!(
            "pullback: tensors of GPUs are exchanged through the host, not by {engine}: {why}"
        );
    }
}

/// What all workers say, or what the first says that cannot, with its rank.
fn gather(
    group: &dyn Communicator,
    call: &CollectiveCall<'_>,
    own: std::result::Result<Vec<u8>, String>,
) -> Result<(Vec<Vec<u8>>, Option<String>)> {
    let (able, text) = match own {
        Ok(bytes) => (1, bytes),
        Err(sentence) => (0, sentence.into_bytes()),
    };
    let text = &text[..text.len().min(RECORD - HEAD)];
    let mut record = vec![0; RECORD];
    record[..HEAD].copy_from_slice(&[able, 0, text.len() as u8, (text.len() >> 8) as u8]);
    record[HEAD..][..text.len()].copy_from_slice(text);
    let mut all = vec![0; RECORD * group.size()];
    let spec = Spec::cpu(DType::U8, Shape::from_slice(&[RECORD]));
    // One line for all: a broadcast has one for the root and another for the rest.
    let (sequence, line) = (call.sequence, crate::Line::caller());
    let collective = &Collective::AllGather;
    group.run(&CollectiveCall { collective, operand: &spec, sequence, line }, &record, &mut all)?;
    let records = all.chunks(RECORD).map(|record| {
        let len = usize::from(record[2]) + (usize::from(record[3]) << 8);
        (record[0] == 1, record[HEAD..][..len.min(RECORD - HEAD)].to_vec())
    });
    let (able, said): (Vec<bool>, Vec<Vec<u8>>) = records.unzip();
    let unable = able
        .iter()
        .position(|able| !able)
        .map(|rank| format!("on worker {rank}, {}", String::from_utf8_lossy(&said[rank])));
    Ok((said, unable))
}
