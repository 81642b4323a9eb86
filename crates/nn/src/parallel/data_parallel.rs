//! Data-parallel training: every worker has the whole model and a part of each batch.

use super::agreement::{agree, described};
use super::parts::{Division, TreeSum};
use super::recording::StepSchedule;
use super::reducer::{MicroBatch, OP, Reducer};
use crate::Module;
use crate::refuse::called;
use pullback::{
    DType, Error, Group, HookHandle, Key, Result, Tensor, autocast_off, catch, no_grad,
    random_state, set_random_state,
};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The size of buckets unless it is set: as PyTorch's.
const BUCKET_BYTES: usize = 25 << 20;

/// Trains one model on many workers, each of which computes the gradients of its part of the batch:
/// `torch.nn.parallel.DistributedDataParallel`.
///
/// [`DataParallel::new`] gives every worker the parameters and buffers of worker 0.
/// [`DataParallel::backward`] runs backward and leaves the mean of the workers' gradients in
/// `.grad()`: gradients are reduced in buckets while backward computes the rest. What follows
/// (clipping, loss scaling, the optimiser) is what one process does, with the same result on every
/// worker. It compiles: inside [`jit`](pullback::jit) the reductions are part of the program.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
/// use pullback_nn::parallel::DataParallel;
/// use pullback_nn::{Layer, Linear, Module};
///
/// let weights = pullback_workers::threads(2, |group| {
///     let model = Linear::new(1, 1).without_bias();
///     let optimizer = Sgd { lr: 0.1, ..Sgd::default() }.over(model.parameters())?;
///     let parallel = DataParallel::new(&model, &group)?;
///     // Of the batch [1, 2], each worker has one example of y = 3x.
///     let x = Tensor::from([[1.0f32 + group.rank() as f32]]);
///     for _ in 0..50 {
///         optimizer.zero_grad();
///         let loss = (model.forward(&x) - &x * 3.0).square().mean();
///         parallel.backward(&loss)?;
///         optimizer.step()?;
///     }
///     Ok(model.weight.item::<f32>())
/// })?;
/// assert!(weights[0] == weights[1] && (weights[0] - 3.0).abs() < 1e-3);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// Dropping it removes its hooks from the parameters.
pub struct DataParallel<'a, M> {
    model: &'a M,
    group: Group,
    hooks: Vec<HookHandle>,
    reducer: Arc<Mutex<Reducer>>,
    division: Option<Division>,
}

fn lock(reducer: &Mutex<Reducer>) -> MutexGuard<'_, Reducer> {
    reducer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a, M: Module> DataParallel<'a, M> {
    /// Checks that all workers have the same model, and gives them the parameters and buffers of
    /// worker 0. Every worker calls it. Parameters that are frozen later count as unused, and those
    /// that are unfrozen later are not reduced: make another one then.
    ///
    /// ```
    /// # use pullback_nn::parallel::DataParallel;
    /// # use pullback_nn::Linear;
    /// let refused = pullback_workers::threads(2, |group| {
    ///     let model = Linear::new(2, 3 + group.rank());
    ///     Ok(DataParallel::new(&model, &group).err().unwrap().to_string())
    /// })?;
    /// assert!(refused.iter().all(|text| text.contains("weight f32[3,2]")));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If models differ in a name, a shape or a dtype: the same sentence on all workers.
    #[track_caller]
    pub fn new(model: &'a M, group: &Group) -> Result<DataParallel<'a, M>> {
        let _line = called();
        let state = model.named_state();
        let line = |(name, x): &(String, Tensor)| {
            described(name, x) + if x.is_leaf() { "" } else { ", not trained" }
        };
        agree(group, OP, "models", state.iter().map(line))?;
        broadcast(&state, group)?;
        let parameters: Vec<(String, Tensor)> =
            model.named_parameters().into_iter().filter(|(_, x)| x.is_leaf()).collect();
        if parameters.is_empty() {
            return Err(Error::argument(OP, "the model has no parameters that are trained"));
        }
        let tensors: Vec<Tensor> = parameters.iter().map(|(_, x)| x.clone()).collect();
        let reducer = Reducer::new(group.clone(), parameters, BUCKET_BYTES);
        let reducer = Arc::new(Mutex::new(reducer));
        let hook = |(i, x): (usize, &Tensor)| {
            let reducer = reducer.clone();
            x.on_grad_ready(move |grad| lock(&reducer).on_ready(i, grad))
        };
        let hooks = tensors.iter().enumerate().map(hook).collect();
        Ok(DataParallel { model, group: group.clone(), hooks, reducer, division: None })
    }

    /// The size of a bucket in bytes; 25 MiB by default. Small ones begin earlier, large ones waste
    /// less. The first one of a pass is an eighth of that.
    ///
    /// ```
    /// # use pullback_nn::parallel::DataParallel;
    /// # use pullback_nn::{Linear, Module};
    /// pullback_workers::threads(2, |group| {
    ///     let model = Linear::new(8, 8);
    ///     let parallel = DataParallel::new(&model, &group)?.bucket_bytes(1);
    ///     assert_eq!(parallel.buckets(), [["bias"], ["weight"]]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "bucket_cap_mb")]
    pub fn bucket_bytes(self, bytes: usize) -> Self {
        lock(&self.reducer).set_bucket_bytes(bytes);
        self
    }

    /// Sends buckets in this dtype, `bf16` or `f16`: half the bytes of `f32`. Sums are taken in
    /// `f32` and rounded once; in `f16` a gradient above 65504 becomes infinite.
    ///
    /// ```
    /// # use pullback::{DType, Tensor};
    /// # use pullback_nn::parallel::DataParallel;
    /// let grads = pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from([0f32]).requires_grad()];
    ///     let parallel = DataParallel::new(&model, &group)?.compress(DType::BF16)?;
    ///     parallel.backward(&(&model[0] * (1.0 + group.rank() as f64)).sum())?;
    ///     Ok(model[0].grad().unwrap().item::<f32>())
    /// })?;
    /// assert_eq!(grads, [1.5, 1.5]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is not a float dtype of 16 bits.
    pub fn compress(self, dtype: DType) -> Result<Self> {
        if !matches!(dtype, DType::BF16 | DType::F16) {
            let message = format!("buckets are compressed to bf16 or f16, not to {dtype}");
            return Err(Error::argument(OP, message));
        }
        lock(&self.reducer).compression = Some(dtype);
        Ok(self)
    }

    /// Whether a parameter may get no gradient in a pass: then workers that have none count as
    /// zero, and where no worker has one it stays `None`. By default it is an error that names the
    /// parameters, as it usually is a mistake.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::DataParallel;
    /// let grads = pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from(1.0).requires_grad(), Tensor::from(1.0).requires_grad()];
    ///     let parallel = DataParallel::new(&model, &group)?.allow_unused(true);
    ///     // Each worker uses one of the two.
    ///     parallel.backward(&(&model[group.rank()] * 4.0))?;
    ///     Ok(model.each_ref().map(|x| x.grad().unwrap().item::<f64>()))
    /// })?;
    /// assert_eq!(grads, [[2.0, 2.0], [2.0, 2.0]]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "find_unused_parameters")]
    pub fn allow_unused(self, allow: bool) -> Self {
        lock(&self.reducer).allow_unused = allow;
        self
    }

    /// Cuts every batch into this many parts, a power of two, which
    /// [`DataParallel::backward_parts`] computes one after the other and sums in a fixed order: the
    /// same bits for any number of workers that is a smaller power of two, or one.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::DataParallel;
    /// let trained = |workers| {
    ///     pullback_workers::threads(workers, |group| {
    ///         let model = [Tensor::from(0.1f32).requires_grad()];
    ///         let parallel = DataParallel::new(&model, &group)?.logical_workers(4)?;
    ///         let batch = Tensor::from([0.1f32, 0.2, 0.3, 0.4]);
    ///         parallel.backward_parts(4, |examples| {
    ///             let x = batch.narrow(0, examples.start as isize, examples.len());
    ///             Ok((x * &model[0]).exp().mean())
    ///         })?;
    ///         Ok(model[0].grad().unwrap().item::<f32>().to_bits())
    ///     })
    /// };
    /// assert_eq!(trained(1)?[0], trained(4)?[3]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is not a power of two, or the number of workers is not a smaller one.
    pub fn logical_workers(mut self, parts: usize) -> Result<Self> {
        self.division = Some(Division::new(OP, parts, self.group.size(), self.group.rank())?);
        // Also where the workers' devices would add in another order.
        self.group = self.group.fixed_order();
        lock(&self.reducer).group = self.group.clone();
        Ok(self)
    }

    /// The group.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// # use pullback_nn::parallel::DataParallel;
    /// let sizes = pullback_workers::threads(2, |group| {
    ///     Ok(DataParallel::new(&Linear::new(1, 1), &group)?.group().size())
    /// })?;
    /// assert_eq!(sizes, [2, 2]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The names of the parameters in each bucket, in the order in which buckets are sent.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// # use pullback_nn::parallel::DataParallel;
    /// pullback_workers::threads(2, |group| {
    ///     let model = Linear::new(1, 1);
    ///     assert_eq!(DataParallel::new(&model, &group)?.buckets(), [["bias", "weight"]]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn buckets(&self) -> Vec<Vec<String>> {
        let reducer = lock(&self.reducer);
        let names =
            |bucket: &Vec<usize>| bucket.iter().map(|&i| reducer.parameters[i].0.clone()).collect();
        reducer.layout().iter().map(names).collect()
    }

    /// Runs backward from this worker's loss, and leaves the mean of all workers' gradients in
    /// `.grad()`. Every worker calls it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::DataParallel;
    /// let grads = pullback_workers::threads(4, |group| {
    ///     let model = [Tensor::from(1.0).requires_grad()];
    ///     let parallel = DataParallel::new(&model, &group)?;
    ///     parallel.backward(&(&model[0] * group.rank() as f64))?;
    ///     Ok(model[0].grad().unwrap().item::<f64>())
    /// })?;
    /// assert_eq!(grads, [1.5; 4]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of the backward pass; of the group; or if a parameter got no gradient, see
    /// [`DataParallel::allow_unused`].
    #[track_caller]
    pub fn backward(&self, loss: &Tensor) -> Result<()> {
        let _line = called();
        lock(&self.reducer).begin(None, None);
        if let Err(error) = loss.backward() {
            lock(&self.reducer).give_up(&error);
            return Err(error);
        }
        let synchronise = lock(&self.reducer).synchronise;
        if synchronise { self.finish() } else { Ok(()) }
    }

    /// [`DataParallel::backward`] where workers have different numbers of examples, as in the last
    /// batch of an epoch: losses are weighted by them. The loss is the mean over this worker's
    /// examples; the result is the gradient of the mean over all. The workers exchange their
    /// numbers of examples first, also inside [`DataParallel::no_sync`].
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::DataParallel;
    /// let grads = pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from(0.0).requires_grad()];
    ///     let parallel = DataParallel::new(&model, &group)?;
    ///     // Worker 0 has the examples 1 and 2, worker 1 the example 6.
    ///     let x = [Tensor::from([1.0, 2.0]), Tensor::from([6.0])][group.rank()].clone();
    ///     parallel.backward_weighted(&(&x * &model[0]).mean(), x.len())?;
    ///     Ok(model[0].grad().unwrap().item::<f64>())
    /// })?;
    /// assert_eq!(grads, [3.0, 3.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`DataParallel::backward`].
    #[track_caller]
    pub fn backward_weighted(&self, loss: &Tensor, examples: usize) -> Result<()> {
        let _line = called();
        self.backward(&weighted(loss, examples, &self.group)?)
    }

    /// Waits until all gradients are those of all workers. [`DataParallel::backward`] calls it; a
    /// program that calls [`Tensor::backward`] itself calls this afterwards, on every worker.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::DataParallel;
    /// let grads = pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from(1.0).requires_grad()];
    ///     let parallel = DataParallel::new(&model, &group)?;
    ///     (&model[0] * group.rank() as f64).backward()?;
    ///     parallel.finish()?;
    ///     Ok(model[0].grad().unwrap().item::<f64>())
    /// })?;
    /// assert_eq!(grads, [0.5, 0.5]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`DataParallel::backward`].
    #[track_caller]
    pub fn finish(&self) -> Result<()> {
        let _line = called();
        lock(&self.reducer).finish()
    }

    /// Runs `f` without communication: gradients accumulate on each worker. The first
    /// [`DataParallel::backward`] afterwards reduces what has accumulated, its own included.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::DataParallel;
    /// let grads = pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from(1.0).requires_grad()];
    ///     let parallel = DataParallel::new(&model, &group)?;
    ///     let rank = group.rank() as f64;
    ///     parallel.no_sync(|| parallel.backward(&(&model[0] * rank)))?;
    ///     assert_eq!(model[0].grad().unwrap().item::<f64>(), rank);
    ///     parallel.backward(&(&model[0] * rank))?;
    ///     Ok(model[0].grad().unwrap().item::<f64>())
    /// })?;
    /// assert_eq!(grads, [1.0, 1.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn no_sync<R>(&self, f: impl FnOnce() -> R) -> R {
        struct RestoreReducer<'r>(&'r Mutex<Reducer>, bool);
        impl Drop for RestoreReducer<'_> {
            fn drop(&mut self) {
                lock(self.0).synchronise = self.1;
            }
        }
        let before = std::mem::replace(&mut lock(&self.reducer).synchronise, false);
        let _restore = RestoreReducer(&self.reducer, before);
        f()
    }

    /// The examples of the global batch that this worker has, of `total`.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// # use pullback_nn::parallel::DataParallel;
    /// let shares = pullback_workers::threads(2, |group| {
    ///     Ok(DataParallel::new(&Linear::new(1, 1), &group)?.share(5))
    /// })?;
    /// assert_eq!(shares, [0..2, 2..5]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn share(&self, total: usize) -> Range<usize> {
        super::parts::share(self.group.rank(), self.group.size(), total)
    }

    /// Computes the gradient of the mean loss over the global batch part by part, as
    /// [`DataParallel::logical_workers`] says, and gives that loss. `loss` gets the examples of a
    /// part as a range of the global batch of `total` examples, and gives the mean loss over them.
    ///
    /// Every part draws random numbers of its own, which depend on the state of the global
    /// generator and the number of the part, not on the worker (workers that are threads share a
    /// generator, and draw from it as they come). Buffers of floats (running
    /// statistics) become the mean of what the parts would have made of them.
    ///
    /// See [`DataParallel::logical_workers`] for an example.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::DataParallel;
    /// let losses = pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from(2.0).requires_grad()];
    ///     let parallel = DataParallel::new(&model, &group)?.logical_workers(2)?;
    ///     let loss = parallel.backward_parts(6, |examples| {
    ///         Ok(&model[0] * (examples.start + examples.end) as f64)
    ///     })?;
    ///     Ok(loss.item::<f64>())
    /// })?;
    /// assert_eq!(losses, [12.0, 12.0]); // the mean of 2·(0 + 3) and 2·(3 + 6)
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of `loss` and the backward pass; of the group; inside [`DataParallel::no_sync`]; or without
    /// [`DataParallel::logical_workers`].
    #[track_caller]
    pub fn backward_parts(
        &self,
        total: usize,
        mut loss: impl FnMut(Range<usize>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let _line = called();
        let Some(division) = self.division else {
            return Err(Error::argument(OP, "`backward_parts` without `logical_workers`"));
        };
        if !lock(&self.reducer).synchronise || total == 0 {
            let message = "`backward_parts` takes a batch with examples, outside of `no_sync`";
            return Err(Error::argument(OP, message));
        }
        let buffers: Vec<Tensor> = self.model.named_buffers().into_iter().map(|(_, x)| x).collect();
        let copies = || no_grad(|| buffers.iter().map(|x| x.detach().deep_clone()).collect());
        let before: Vec<Tensor> = catch(copies)?;
        // Threads of one process share a generator: setting it would disturb the others.
        let state = (self.group.engine() != "threads").then(random_state);
        let done = self.run_parts(&division, total, (&buffers, &before), state.as_ref(), &mut loss);
        if let Err(error) = &done {
            lock(&self.reducer).give_up(error);
            catch(|| no_grad(|| put_back(&buffers, &before)))?;
            state.iter().for_each(set_random_state);
        }
        done
    }

    #[track_caller]
    fn run_parts(
        &self,
        division: &Division,
        total: usize,
        (buffers, before): (&[Tensor], &[Tensor]),
        state: Option<&Tensor>,
        loss: &mut impl FnMut(Range<usize>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let mut after: Vec<TreeSum> = buffers.iter().map(|_| TreeSum::default()).collect();
        let (mut losses, mut dtype) = (TreeSum::default(), DType::F32);
        let own = division.own();
        let last = own.end - 1;
        for part in own {
            let examples = division.examples(part, total);
            let (count, place) =
                (examples.len(), MicroBatch { examples: examples.len(), last: part == last });
            lock(&self.reducer).begin(Some(total as f64), Some(place));
            let mut value = Tensor::from(0.0);
            if count > 0 {
                if let Some(state) = state {
                    set_random_state(Key::from_tensor(state).fold_in(part as u64).tensor());
                }
                catch(|| no_grad(|| put_back(buffers, before)))?;
                let loss = loss(examples)?;
                loss.backward()?;
                dtype = loss.dtype();
                value = catch(|| no_grad(|| loss.detach().cast(DType::F64) * count as f64))?;
            }
            lock(&self.reducer).end_part()?;
            catch(|| {
                no_grad(|| {
                    losses.add(value);
                    for ((sum, x), before) in after.iter_mut().zip(buffers).zip(before) {
                        let x = if count > 0 { x.detach() } else { before.clone() };
                        sum.add(x.deep_clone());
                    }
                })
            })?;
        }
        if let Some(state) = state {
            catch(|| set_random_state(&(state + state.new_tensor([0i64, 1]))))?;
        }
        self.finish()?;
        catch(|| {
            no_grad(|| {
                autocast_off(|| {
                    for (sum, x) in after.iter_mut().zip(buffers) {
                        let Some(sum) = sum.take() else { continue };
                        match x.dtype().is_float() {
                            true => {
                                let parts = division.parts() as f64;
                                x.copy_(sum.all_reduce(&self.group) / parts);
                            }
                            false => drop(x.copy_(x.all_reduce_max(&self.group))),
                        }
                    }
                    let sum = losses.take().unwrap_or_else(|| Tensor::from(0.0));
                    (sum.all_reduce(&self.group) / total as f64).cast(dtype)
                })
            })
        })
    }

    /// Gives every worker the buffers of worker 0: running statistics differ between workers, as
    /// each sees its own examples (synchronised batch normalisation keeps them equal). Before an
    /// evaluation or a checkpoint. Every worker calls it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::DataParallel;
    /// # use pullback_nn::{BatchNorm1d, Layer};
    /// let means = pullback_workers::threads(2, |group| {
    ///     let model = BatchNorm1d::new(1);
    ///     let parallel = DataParallel::new(&model, &group)?;
    ///     model.forward(&Tensor::full([4, 1], 10.0f32 * (1.0 + group.rank() as f32)));
    ///     parallel.broadcast_buffers()?;
    ///     Ok(model.running_mean.as_ref().unwrap().item::<f32>())
    /// })?;
    /// assert_eq!(means, [1.0, 1.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of the group.
    #[track_caller]
    pub fn broadcast_buffers(&self) -> Result<()> {
        let _line = called();
        broadcast(&self.model.named_buffers(), &self.group)
    }

    /// What the last step that was not compiled did and when, for `pullback simulate`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::DataParallel;
    /// pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from([1f32; 4]).requires_grad()];
    ///     let parallel = DataParallel::new(&model, &group)?;
    ///     parallel.backward(&model[0].sum())?;
    ///     // Four numbers, and one that counts gradients that are missing.
    ///     assert_eq!(parallel.schedule().unwrap().buckets[0].bytes, 20);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn schedule(&self) -> Option<StepSchedule> {
        lock(&self.reducer).schedule()
    }
}

impl<M> Drop for DataParallel<'_, M> {
    fn drop(&mut self) {
        self.hooks.drain(..).for_each(HookHandle::remove);
    }
}

fn put_back(to: &[Tensor], from: &[Tensor]) {
    to.iter().zip(from).for_each(|(x, from)| drop(x.copy_(from)));
}

/// Gives every worker the tensors of worker 0.
pub(crate) fn broadcast(state: &[(String, Tensor)], group: &Group) -> Result<()> {
    if group.size() == 1 {
        return Ok(());
    }
    catch(|| {
        no_grad(|| {
            for (_, x) in state {
                x.copy_(x.detach().broadcast_from(group, 0));
            }
        });
    })
}

/// A worker's loss, so that the mean over workers is the mean over all examples.
#[track_caller]
pub(super) fn weighted(loss: &Tensor, examples: usize, group: &Group) -> Result<Tensor> {
    let share = catch(|| {
        no_grad(|| {
            let own = loss.new_tensor(examples as f64);
            let all = own.all_reduce(group);
            (own * group.size() as f64 / all).cast(loss.dtype())
        })
    })?;
    catch(|| loss * share)
}
