//! Training whose optimiser state, or whose gradients too, are spread over the workers.

use super::agreement::{agree, described};
use super::buckets::layout;
use super::data_parallel::{DataParallel, broadcast, weighted};
use super::shard::{ShardLayout, columns, side_by_side};
use crate::Module;
use crate::optim::Optimizer;
use crate::refuse::called;
use pullback::{Error, Group, HookHandle, Pending, Result, Tensor, autocast_off, catch, no_grad};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const OP: &str = "Sharded";

/// The size of what is sent at once.
const BUCKET_BYTES: usize = 25 << 20;

/// Data-parallel training in which each worker updates its part of every parameter, and so has its
/// part of the optimiser's state alone (ZeRO stage 1), and its part of the gradients alone (stage
/// 2). [`FullySharded`](super::FullySharded) spreads the parameters as well (stage 3).
///
/// The optimiser is made over [`Sharded::parameters`], this worker's parts. Its rule must treat
/// elements one by one, as those of SGD, Adam, AdamW, Lion and RMSprop do. Parts have one axis, so
/// Muon, which is for matrices, refuses them; Adafactor, which uses the mean square of a whole
/// parameter, would see that of a part.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
/// use pullback_nn::parallel::Sharded;
/// use pullback_nn::{Layer, Linear, Module};
///
/// pullback_workers::threads(2, |group| {
///     let model = Linear::new(8, 4);
///     let sharded = Sharded::new(&model, &group, 2)?;
///     let optimizer = AdamW::default().over(sharded.parameters())?;
///     assert_eq!(sharded.parameters()[0].shape(), [16]); // of 32
///     let x = Tensor::ones([3, 8]);
///     sharded.zero_grad();
///     sharded.backward(&model.forward(&x).square().mean())?;
///     sharded.step(&optimizer)?;
///     Ok(())
/// })?;
/// # Ok::<(), pullback::Error>(())
/// ```
pub struct Sharded<'a, M: Module> {
    state: Arc<Mutex<ShardedState>>,
    shards: Vec<Tensor>,
    hooks: Vec<HookHandle>,
    /// Reduces whole gradients, in stage 1.
    whole: Option<DataParallel<'a, M>>,
}

struct ShardedState {
    group: Group,
    parameters: Vec<(String, Tensor)>,
    cuts: Vec<ShardLayout>,
    buckets: Vec<Vec<usize>>,
    ready: Vec<bool>,
    launched: Vec<(Vec<usize>, Pending)>,
    error: Option<Error>,
}

fn lock(state: &Mutex<ShardedState>) -> MutexGuard<'_, ShardedState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ShardedState {
    fn on_ready(&mut self, i: usize) {
        if self.error.is_some() {
            return;
        }
        self.ready[i] = true;
        let sent = catch(|| no_grad(|| autocast_off(|| self.launch_complete(false))));
        self.error = sent.flatten().err();
    }

    fn launch_complete(&mut self, all: bool) -> Result<()> {
        while let Some(members) = self.buckets.get(self.launched.len()) {
            if !all && !members.iter().all(|&i| self.ready[i]) {
                break;
            }
            let members = members.clone();
            self.launch(members);
        }
        Ok(())
    }

    /// Sends the gradients of a bucket and frees them.
    fn launch(&mut self, members: Vec<usize>) {
        let workers = self.group.size();
        let grads: Vec<(&ShardLayout, Tensor)> = members
            .iter()
            .map(|&i| {
                let x = &self.parameters[i].1;
                let grad = x.grad().unwrap_or_else(|| x.detach().zeros_like());
                (&self.cuts[i], grad.detach())
            })
            .collect();
        let matrix = side_by_side(&grads, workers);
        drop(grads);
        members.iter().for_each(|&i| self.parameters[i].1.set_grad(None));
        self.launched.push((members, self.group.reduce_scatter_later(matrix)));
    }
}

impl<'a, M: Module> Sharded<'a, M> {
    /// Checks that all workers have the same model, gives them the parameters and buffers of worker
    /// 0, and cuts the parameters. `stage` is 1 or 2. Every worker calls it.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// # use pullback_nn::parallel::Sharded;
    /// pullback_workers::threads(2, |group| {
    ///     let model = Linear::new(3, 3);
    ///     // Nine numbers in two parts: the last is padded.
    ///     assert_eq!(Sharded::new(&model, &group, 1)?.parameters()[0].shape(), [5]);
    ///     assert!(Sharded::new(&model, &group, 3).is_err());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If models differ, or the stage is another.
    #[track_caller]
    pub fn new(model: &'a M, group: &Group, stage: usize) -> Result<Sharded<'a, M>> {
        let _line = called();
        if !matches!(stage, 1 | 2) {
            let message = format!("stages are 1 and 2, not {stage}");
            return Err(Error::argument(OP, message).hint("stage 3 is `FullySharded`"));
        }
        let state = model.named_state();
        let lines = state.iter().map(|(name, x)| described(name, x));
        agree(group, OP, "models", lines)?;
        broadcast(&state, group)?;
        let parameters: Vec<(String, Tensor)> =
            model.named_parameters().into_iter().filter(|(_, x)| x.is_leaf()).collect();
        let cuts: Vec<ShardLayout> =
            parameters.iter().map(|(_, x)| ShardLayout::new(x.shape(), group.size())).collect();
        let own = parameters.iter().zip(&cuts);
        let shards = own.map(|((_, x), cut)| cut.own(x, group).requires_grad()).collect();
        let whole = match stage {
            1 => Some(DataParallel::new(model, group)?),
            _ => None,
        };
        let state = Arc::new(Mutex::new(ShardedState {
            group: group.clone(),
            buckets: layout((0..parameters.len()).rev(), &parameters, BUCKET_BYTES),
            ready: vec![false; parameters.len()],
            launched: Vec::new(),
            error: None,
            cuts,
            parameters,
        }));
        let mut sharded = Sharded { state, shards, hooks: Vec::new(), whole };
        if stage == 2 {
            sharded.hook();
        }
        Ok(sharded)
    }

    fn hook(&mut self) {
        let parameters = lock(&self.state).parameters.clone();
        for (i, (_, x)) in parameters.iter().enumerate() {
            let state = self.state.clone();
            self.hooks.push(x.on_grad_ready(move |_| lock(&state).on_ready(i)));
        }
    }

    /// The size of a bucket of gradients in bytes; 25 MiB by default.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// # use pullback_nn::parallel::Sharded;
    /// pullback_workers::threads(2, |group| {
    ///     let model = Linear::new(3, 3);
    ///     let _ = Sharded::new(&model, &group, 2)?.bucket_bytes(1 << 20);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn bucket_bytes(mut self, bytes: usize) -> Self {
        {
            let mut state = lock(&self.state);
            let count = state.parameters.len();
            state.buckets = layout((0..count).rev(), &state.parameters, bytes.max(1));
        }
        self.whole = self.whole.take().map(|whole| whole.bucket_bytes(bytes));
        self
    }

    /// This worker's part of each parameter, in the order of
    /// [`Module::parameters`](crate::Module::parameters): what the optimiser is made over.
    ///
    /// ```
    /// # use pullback_nn::{Linear, Module};
    /// # use pullback_nn::parallel::Sharded;
    /// let parts = pullback_workers::threads(2, |group| {
    ///     let model = Linear::new(2, 2);
    ///     let sharded = Sharded::new(&model, &group, 1)?;
    ///     Ok((sharded.parameters()[0].to_vec::<f32>(), model.weight.to_vec::<f32>()))
    /// })?;
    /// assert_eq!([&parts[0].0[..], &parts[1].0[..]].concat(), parts[0].1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn parameters(&self) -> Vec<Tensor> {
        self.shards.clone()
    }

    /// The parts with the names of their parameters and how they are cut.
    pub(crate) fn cuts(&self) -> Vec<(String, Tensor, ShardLayout)> {
        let state = lock(&self.state);
        let named = state.parameters.iter().zip(&self.shards).zip(&state.cuts);
        named.map(|(((name, _), shard), cut)| (name.clone(), shard.clone(), cut.clone())).collect()
    }

    /// The group.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// # use pullback_nn::parallel::Sharded;
    /// let ranks = pullback_workers::threads(2, |group| {
    ///     Ok(Sharded::new(&Linear::new(1, 1), &group, 1)?.group().rank())
    /// })?;
    /// assert_eq!(ranks, [0, 1]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn group(&self) -> Group {
        lock(&self.state).group.clone()
    }

    /// Clears the gradients of the parameters and of the parts.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// # use pullback_nn::parallel::Sharded;
    /// pullback_workers::threads(2, |group| {
    ///     let model = Linear::new(2, 2);
    ///     let sharded = Sharded::new(&model, &group, 2)?;
    ///     sharded.zero_grad();
    ///     assert!(sharded.parameters().iter().all(|x| x.grad().is_none()));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn zero_grad(&self) {
        lock(&self.state).parameters.iter().for_each(|(_, x)| x.zero_grad());
        self.shards.iter().for_each(Tensor::zero_grad);
    }

    /// Runs backward from this worker's loss, and leaves the mean of all workers' gradients in
    /// `.grad()` of this worker's parts; in stage 1 also, whole, in that of the parameters. A
    /// parameter without a gradient is an error in stage 1, and has a gradient of zero in stage 2.
    /// Every worker calls it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::Sharded;
    /// let parts = pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from([1.0, 2.0]).requires_grad()];
    ///     let sharded = Sharded::new(&model, &group, 2)?;
    ///     sharded.backward(&(model[0].square().sum() * group.rank() as f64))?;
    ///     assert!(model[0].grad().is_none());
    ///     Ok(sharded.parameters()[0].grad().unwrap().item::<f64>())
    /// })?;
    /// assert_eq!(parts, [1.0, 2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of the backward pass, of the group, or if a parameter gets no gradient in stage 1.
    #[track_caller]
    pub fn backward(&self, loss: &Tensor) -> Result<()> {
        let _line = called();
        if let Some(whole) = &self.whole {
            // An optimiser, which has the parts, clears their gradients alone.
            if self.shards.iter().all(|shard| shard.grad().is_none()) {
                lock(&self.state).parameters.iter().for_each(|(_, x)| x.zero_grad());
            }
            whole.backward(loss)?;
            let state = lock(&self.state);
            return catch(|| {
                no_grad(|| {
                    for ((shard, cut), (_, x)) in
                        self.shards.iter().zip(&state.cuts).zip(&state.parameters)
                    {
                        shard.set_grad(x.grad().map(|grad| cut.own(&grad, &state.group)));
                    }
                });
            });
        }
        let done = loss
            .backward()
            .and_then(|()| catch(|| no_grad(|| autocast_off(|| self.finished()))).flatten());
        let mut state = lock(&self.state);
        state.ready.fill(false);
        state.launched.clear();
        state.error = None;
        done
    }

    /// [`Sharded::backward`] of the mean loss over this many examples, where workers have different
    /// numbers of them: the gradient is that of the mean over all examples. Every worker calls it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::Sharded;
    /// let parts = pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from([1.0, 1.0]).requires_grad()];
    ///     let sharded = Sharded::new(&model, &group, 2)?;
    ///     let x = [Tensor::from([2.0]), Tensor::from([2.0, 5.0, 5.0])][group.rank()].clone();
    ///     sharded.backward_weighted(&(model[0].sum() * x.mean()), x.len())?;
    ///     Ok(sharded.parameters()[0].grad().unwrap().item::<f64>())
    /// })?;
    /// assert_eq!(parts, [3.5, 3.5]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Sharded::backward`].
    #[track_caller]
    pub fn backward_weighted(&self, loss: &Tensor, examples: usize) -> Result<()> {
        let _line = called();
        self.backward(&weighted(loss, examples, &self.group())?)
    }

    fn finished(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        state.launch_complete(true)?;
        let workers = state.group.size() as f64;
        for (members, moved) in std::mem::take(&mut state.launched) {
            let row = moved.wait()? / workers;
            let row = row.reshape([1, row.len()]);
            let cuts = members.iter().map(|&i| &state.cuts[i]);
            for (&i, part) in members.iter().zip(columns(&row, cuts)) {
                let shard = &self.shards[i];
                let part = part.reshape([shard.len()]);
                let sum = match shard.grad() {
                    Some(grad) => grad + part,
                    None => part.deep_clone(),
                };
                shard.set_grad(Some(sum));
            }
        }
        Ok(())
    }

    /// Scales the gradients of the parts so that all gradients together, of all workers' parts,
    /// have at most this norm, and gives the norm they had. Every worker calls it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::Sharded;
    /// let norms = pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from([3.0, 4.0]).requires_grad()];
    ///     let sharded = Sharded::new(&model, &group, 2)?;
    ///     sharded.backward(&(model[0].square().sum() * 0.5))?;
    ///     Ok(sharded.clip_grad_norm_(1.0)?.item::<f64>())
    /// })?;
    /// assert_eq!(norms, [5.0, 5.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `max_norm` is negative or NaN, or of the group.
    #[track_caller]
    pub fn clip_grad_norm_(&self, max_norm: f64) -> Result<Tensor> {
        let _line = called();
        super::clip::clip_parts(&self.shards, max_norm, &self.group())
    }

    /// Steps the optimiser, and gives every worker the new parameters. Every worker calls it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// # use pullback_nn::parallel::Sharded;
    /// let trained = pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from([1.0, 2.0]).requires_grad()];
    ///     let sharded = Sharded::new(&model, &group, 1)?;
    ///     let optimizer = Sgd { lr: 0.5, ..Sgd::default() }.over(sharded.parameters())?;
    ///     sharded.backward(&model[0].square().sum())?;
    ///     sharded.step(&optimizer)?;
    ///     Ok(model[0].to_vec::<f64>())
    /// })?;
    /// assert_eq!(trained, [[0.0, 0.0], [0.0, 0.0]]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of the optimiser or the group.
    #[track_caller]
    pub fn step(&self, optimizer: &(impl Optimizer + ?Sized)) -> Result<()> {
        let _line = called();
        optimizer.step()?;
        self.gather()
    }

    /// Writes all workers' parts to the parameters: after the parts were changed by something else
    /// than [`Sharded::step`]. Every worker calls it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::Sharded;
    /// let whole = pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from([1.0, 2.0]).requires_grad()];
    ///     let sharded = Sharded::new(&model, &group, 1)?;
    ///     pullback::no_grad(|| sharded.parameters()[0].mul_(10.0));
    ///     sharded.gather()?;
    ///     Ok(model[0].to_vec::<f64>())
    /// })?;
    /// assert_eq!(whole[1], [10.0, 20.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of the group.
    #[track_caller]
    pub fn gather(&self) -> Result<()> {
        let _line = called();
        let state = lock(&self.state);
        let gathered = || -> Result<()> {
            // All are on their way before the first is used.
            let mut moved = Vec::new();
            for members in &state.buckets {
                let rows: Vec<Tensor> = members
                    .iter()
                    .map(|&i| self.shards[i].detach().reshape([1, state.cuts[i].shard_len]))
                    .collect();
                let row = pullback::cat(&rows.iter().collect::<Vec<_>>(), 1);
                moved.push(state.group.all_gather_later(row));
            }
            for (members, moved) in state.buckets.iter().zip(moved) {
                let matrix = moved.wait()?;
                let cuts = members.iter().map(|&i| &state.cuts[i]);
                for (&i, rows) in members.iter().zip(columns(&matrix, cuts)) {
                    state.parameters[i].1.copy_(state.cuts[i].whole(&rows));
                }
            }
            Ok(())
        };
        catch(|| no_grad(|| autocast_off(gathered))).flatten()
    }
}

impl<M: Module> Drop for Sharded<'_, M> {
    fn drop(&mut self) {
        self.hooks.drain(..).for_each(HookHandle::remove);
    }
}
