//! Sums gradients over workers while backward computes the rest.
//!
//! A hook on every parameter says when its gradient is complete. Gradients are copied into buckets
//! of some megabytes, and a full bucket is reduced at once, on the group's own thread, while
//! backward goes on; [`Reducer::finish`] waits and writes the results back.
//!
//! **All workers must send the same buckets in the same order**, whatever order their gradients
//! happen to come in. So buckets are fixed before a pass, and bucket k is sent after bucket k − 1.
//! Before the first pass nothing is known about the order, and that of declaration, reversed, is
//! taken; after it, the order that worker 0 saw. Inside a trace gradients come in the order of the
//! program, which is the same on all workers, so there buckets are filled as they come.
//!
//! **A parameter without a gradient** would block its bucket. At the end of the pass
//! what is missing is sent as zeros, and one more element of each bucket counts what was missing;
//! where that sum is not zero, all workers exchange names, and all give the same error.

use super::agreement::gather_texts;
use super::buckets::{BucketFiller, layout};
use super::parts::TreeSum;
use super::recording::{StepSchedule, StepTimer};
use pullback::{
    DType, Device, Error, Group, Pending, Result, Tensor, autocast_off, cat, catch, is_tracing,
    no_grad, with_default_device,
};

/// The name in errors.
pub(super) const OP: &str = "DataParallel";

/// One part of a batch that is cut into parts.
#[derive(Clone, Copy)]
pub(super) struct MicroBatch {
    /// The number of its examples.
    pub examples: usize,
    /// Whether it is the worker's last.
    pub last: bool,
}

/// What happened since the last [`Reducer::finish`].
struct ReducerPass {
    /// What sums are divided by; the number of workers if it is not said.
    divisor: Option<f64>,
    part: Option<MicroBatch>,
    /// Whether the gradient of each parameter is complete.
    ready: Vec<bool>,
    /// Whether it was so in any part of the pass.
    ever_ready: Vec<bool>,
    /// Parameters in the order in which they became so.
    order: Vec<usize>,
    launched: Vec<(Vec<usize>, Pending)>,
    filling: BucketFiller,
    traced: bool,
    error: Option<Error>,
}

pub(super) struct Reducer {
    pub group: Group,
    pub parameters: Vec<(String, Tensor)>,
    pub bucket_bytes: usize,
    pub compression: Option<DType>,
    pub allow_unused: bool,
    /// False while gradients accumulate on each worker alone.
    pub synchronise: bool,
    layout: Vec<Vec<usize>>,
    is_layout_final: bool,
    sums: Vec<TreeSum>,
    pass: ReducerPass,
    pub recorder: StepTimer,
}

impl Reducer {
    pub fn new(group: Group, parameters: Vec<(String, Tensor)>, bucket_bytes: usize) -> Reducer {
        let count = parameters.len();
        let mut reducer = Reducer {
            group,
            bucket_bytes,
            compression: None,
            allow_unused: false,
            synchronise: true,
            layout: Vec::new(),
            is_layout_final: false,
            sums: (0..count).map(|_| TreeSum::default()).collect(),
            pass: ReducerPass::new(count, bucket_bytes),
            recorder: StepTimer::default(),
            parameters,
        };
        reducer.set_bucket_bytes(bucket_bytes);
        reducer
    }

    pub fn set_bucket_bytes(&mut self, bytes: usize) {
        self.bucket_bytes = bytes.max(1);
        // Backward reaches the last layers first.
        self.layout = layout((0..self.parameters.len()).rev(), &self.parameters, self.bucket_bytes);
        self.is_layout_final = false;
        self.pass = ReducerPass::new(self.parameters.len(), self.bucket_bytes);
    }

    pub fn layout(&self) -> &[Vec<usize>] {
        &self.layout
    }

    /// A new pass, or part of one.
    pub fn begin(&mut self, divisor: Option<f64>, part: Option<MicroBatch>) {
        self.pass.divisor = divisor;
        self.pass.part = part;
        self.pass.traced = is_tracing();
        self.recorder.begin(self.pass.traced || !self.synchronise);
    }

    /// Called by backward when the gradient of parameter `i` is complete.
    pub fn on_ready(&mut self, i: usize, grad: &Tensor) {
        if !self.synchronise || self.pass.error.is_some() {
            return;
        }
        if let Err(error) = catch(|| no_grad(|| autocast_off(|| self.take(i, grad)))).flatten() {
            self.pass.error = Some(error);
        }
    }

    fn take(&mut self, i: usize, grad: &Tensor) -> Result<()> {
        if std::mem::replace(&mut self.pass.ready[i], true) {
            let message = format!(
                "`{}` got a gradient twice: backward ran again before `finish`",
                self.parameters[i].0
            );
            return Err(Error::argument(OP, message)
                .hint("accumulate gradients inside `no_sync`, and end each pass with `finish`"));
        }
        self.pass.traced = is_tracing();
        self.pass.ever_ready[i] = true;
        if let Some(part) = self.pass.part {
            self.sums[i].add(grad * part.examples as f64);
            let total = if part.last { self.sums[i].take() } else { None };
            self.parameters[i].1.set_grad(total);
            if !part.last {
                return Ok(());
            }
        }
        self.pass.order.push(i);
        if self.pass.traced {
            let full = self.pass.filling.add(i, grad);
            return full.map_or(Ok(()), |members| self.launch(members));
        }
        self.launch_complete(false)
    }

    /// Sends the buckets that are complete, in their order; with `all`, the others too.
    fn launch_complete(&mut self, all: bool) -> Result<()> {
        while let Some(members) = self.layout.get(self.pass.launched.len()) {
            if !all && !members.iter().all(|&i| self.pass.ready[i]) {
                break;
            }
            self.launch(members.clone())?;
        }
        Ok(())
    }

    fn launch(&mut self, members: Vec<usize>) -> Result<()> {
        let traced = self.pass.traced;
        let mut missing = 0u32;
        let mut pieces: Vec<Tensor> = Vec::with_capacity(members.len() + 1);
        for &i in &members {
            let x = &self.parameters[i].1;
            // What accumulated before counts too; of a batch in parts, sums are made here.
            let whole = self.pass.part.is_none() || self.pass.ready[i];
            let grad = if whole { x.grad() } else { None };
            missing += u32::from(grad.is_none() && x.is_leaf());
            let grad = grad.unwrap_or_else(|| x.detach().zeros_like());
            pieces.push(grad.detach().reshape([x.len()]));
        }
        let kind = &self.parameters[members[0]].1;
        pieces.push(kind.new_tensor([f64::from(missing)]).cast(kind.dtype()));
        let mut flat = cat(&pieces.iter().collect::<Vec<_>>(), 0);
        drop(pieces);
        if let Some(dtype) = self.compression {
            flat = flat.cast(dtype);
        }
        self.recorder.bucket(flat.spec().bytes(), traced);
        let sum = self.group.all_reduce_later(flat);
        self.pass.launched.push((members, sum));
        Ok(())
    }

    /// What part of a pass leaves out: zeros, so that every part is a leaf of the tree.
    pub fn end_part(&mut self) -> Result<()> {
        if let Some(error) = self.pass.error.take() {
            self.forget();
            return Err(error);
        }
        let Some(part) = self.pass.part else { return Ok(()) };
        if part.examples == 0 {
            // There was nothing that a parameter could have been used for.
            self.pass.ever_ready.fill(true);
        }
        let ready = std::mem::replace(&mut self.pass.ready, vec![false; self.parameters.len()]);
        let late: Vec<usize> = (0..ready.len()).filter(|&i| !ready[i]).collect();
        for &i in &late {
            let x = &self.parameters[i].1;
            self.sums[i].add(no_grad(|| x.detach().zeros_like()));
            let total = if part.last { self.sums[i].take() } else { None };
            if part.last && self.pass.ever_ready[i] {
                x.set_grad(total);
            }
        }
        if part.last {
            self.pass.ready = self.pass.ever_ready.clone();
            for i in late.into_iter().filter(|&i| self.pass.ever_ready[i]).collect::<Vec<_>>() {
                self.pass.order.push(i);
                if self.pass.traced
                    && let Some(members) = self.pass.filling.add(i, &self.parameters[i].1)
                {
                    self.launch(members)?;
                }
            }
        }
        Ok(())
    }

    /// Waits for the sums and writes them to the gradients. Every worker calls it.
    pub fn finish(&mut self) -> Result<()> {
        let done = catch(|| no_grad(|| autocast_off(|| self.finished()))).flatten();
        self.forget();
        done
    }

    /// Ends a pass that failed.
    pub fn forget(&mut self) {
        self.pass = ReducerPass::new(self.parameters.len(), self.bucket_bytes);
        self.sums.iter_mut().for_each(|sum| *sum = TreeSum::default());
        self.recorder.forget();
    }

    /// Ends a pass that failed on this worker: others may wait for what it will not send, so all of
    /// them fail.
    pub fn give_up(&mut self, error: &Error) {
        let alone = self.group.size() == 1 || is_tracing();
        self.forget();
        if !alone {
            self.group.communicator().fail(&error.to_string());
        }
    }

    fn finished(&mut self) -> Result<()> {
        if !self.synchronise {
            return Err(Error::argument(OP, "`finish` inside `no_sync`: nothing was sent"));
        }
        if let Some(error) = self.pass.error.take() {
            return Err(error);
        }
        if self.pass.traced {
            let unused = self.unused();
            if !unused.is_empty() && !self.allow_unused {
                return Err(unused_error(&[unused]));
            }
            if self.pass.part.is_none() {
                // What accumulated before, and got nothing in this pass.
                for i in
                    (0..self.parameters.len()).filter(|&i| !self.pass.ready[i]).collect::<Vec<_>>()
                {
                    let Some(grad) = self.parameters[i].1.grad() else { continue };
                    if let Some(members) = self.pass.filling.add(i, &grad) {
                        self.launch(members)?;
                    }
                }
            }
            let rest: Vec<Vec<usize>> = self.pass.filling.remaining().collect();
            rest.into_iter().try_for_each(|members| self.launch(members))?;
        } else {
            self.launch_complete(true)?;
        }
        let divisor = self.pass.divisor.unwrap_or(self.group.size() as f64);
        self.recorder.computed(self.pass.traced);
        let mut arrived = Vec::new();
        for (members, sum) in std::mem::take(&mut self.pass.launched) {
            arrived.push((members, sum.wait()?));
        }
        self.recorder.waited(self.pass.traced);
        let somewhere = self.used_somewhere(&arrived)?;
        for (members, flat) in arrived {
            let dtype = self.parameters[members[0]].1.dtype();
            let flat = flat.cast(dtype) / divisor;
            let mut from = 0;
            for i in members {
                let x = &self.parameters[i].1;
                let mean = flat.narrow(0, from, x.len()).reshape(x.shape());
                from += x.len() as isize;
                match x.grad() {
                    Some(grad) => drop(grad.copy_(&mean)),
                    None if somewhere[i] && x.is_leaf() => x.set_grad(Some(mean.deep_clone())),
                    None => {}
                }
            }
        }
        if !self.pass.traced && !self.is_layout_final {
            self.fix_layout()?;
        }
        Ok(())
    }

    /// The parameters that should have a gradient and have none.
    fn unused(&self) -> Vec<&str> {
        let named = self.parameters.iter().zip(&self.pass.ready);
        let in_parts = self.pass.part.is_some();
        let unused = named
            .filter(|((_, x), ready)| x.is_leaf() && !**ready && (in_parts || x.grad().is_none()));
        unused.map(|((name, _), _)| name.as_str()).collect()
    }

    /// Which parameters have a gradient on at least one worker. The last element of each bucket
    /// says whether it is worth asking.
    fn used_somewhere(&self, arrived: &[(Vec<usize>, Tensor)]) -> Result<Vec<bool>> {
        let all = vec![true; self.parameters.len()];
        if self.pass.traced {
            return Ok(all);
        }
        let unused = self.unused();
        let mut missing = false;
        if arrived.iter().any(|(_, flat)| flat.device() != Device::Cpu) {
            // A number of the host: reading the device's would wait for it, in every step.
            let count = with_default_device(Device::Cpu, || Tensor::from([unused.len() as i64]));
            missing = count.all_reduce(&self.group).try_item::<i64>()? > 0;
        } else {
            for (_, flat) in arrived {
                missing |= flat.at(-1).cast(DType::F64).try_item::<f64>()? > 0.0;
            }
        }
        if !missing {
            return Ok(all);
        }
        let texts = gather_texts(&self.group, &unused.join("\n"))?;
        let by_rank: Vec<Vec<&str>> = texts.iter().map(|text| text.lines().collect()).collect();
        if !self.allow_unused {
            return Err(unused_error(&by_rank));
        }
        let used = |(name, _): &(String, Tensor)| {
            by_rank.iter().any(|unused| !unused.contains(&name.as_str()))
        };
        Ok(self.parameters.iter().map(used).collect())
    }

    /// From now on buckets hold gradients in the order in which worker 0 had them.
    fn fix_layout(&mut self) -> Result<()> {
        let mut order = std::mem::take(&mut self.pass.order);
        let late = (0..self.parameters.len()).filter(|i| !order.contains(i)).collect::<Vec<_>>();
        order.extend(late);
        let order: Vec<i64> = order.into_iter().map(|i| i as i64).collect();
        let count = order.len();
        let order = with_default_device(Device::Cpu, || Tensor::from_vec(order, [count]));
        let order = order.broadcast_from(&self.group, 0);
        let order = order.try_to_vec::<i64>()?.into_iter().map(|i| i as usize);
        self.layout = layout(order, &self.parameters, self.bucket_bytes);
        self.is_layout_final = true;
        Ok(())
    }

    pub fn schedule(&self) -> Option<StepSchedule> {
        self.recorder.schedule(self.group.size())
    }
}

impl ReducerPass {
    fn new(count: usize, limit: usize) -> ReducerPass {
        ReducerPass {
            divisor: None,
            part: None,
            ready: vec![false; count],
            ever_ready: vec![false; count],
            order: Vec::new(),
            launched: Vec::new(),
            filling: BucketFiller::new(limit),
            traced: false,
            error: None,
        }
    }
}

fn unused_error(by_rank: &[Vec<&str>]) -> Error {
    let listed = |names: &[&str]| {
        names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let same = by_rank.iter().all(|names| names == &by_rank[0]);
    let whom = match same {
        true => format!("{} on every worker", listed(&by_rank[0])),
        false => {
            let some = by_rank.iter().enumerate().filter(|(_, names)| !names.is_empty());
            let some = some.map(|(rank, names)| format!("{} on worker {rank}", listed(names)));
            some.collect::<Vec<_>>().join("; ")
        }
    };
    Error::argument(OP, format!("parameters got no gradient: {whom}"))
        .hint("freeze what is not trained, or call `allow_unused(true)`")
}
