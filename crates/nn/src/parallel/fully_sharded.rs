//! Training in which parameters, gradients and optimiser state are all spread over the workers
//! (ZeRO stage 3).
//!
//! A block of the model is a *unit*. Between its uses a worker has its part of the unit's
//! parameters alone; the module itself holds tensors of the right shapes that take no memory. A
//! call gathers the whole parameters, runs the module with them, and drops them. Two things keep
//! that cheap:
//!
//! * **Prefetching.** Units are numbered in the order in which they were made. A call of unit k
//!   starts gathering unit k + 1, and backward through unit k starts gathering unit k − 1, on the
//!   group's own thread.
//! * **Nothing is kept for backward.** Operations save their operands, and a weight is one. A
//!   packer ([`with_packing`]) takes saved values that are a gathered parameter and keeps its
//!   number instead; the first one that backward asks for gathers the unit again, and when all
//!   gradients of the unit are there, it is dropped again. Activations are saved as usual.
//!
//! Gathered parameters are leaves of their own. When the last of a unit's gradients is complete,
//! they are summed over workers, and each worker keeps its part: [`FullSharding::finish`] waits for
//! that and writes `.grad()` of the parts.
//!
//! While a function is traced, parameters are gathered and gradients scattered by ops of the
//! program, one for each unit. The compiler starts a gather one unit ahead (`pass/overlap.rs` of
//! `pullback-ir`), and decides what is kept.

use super::agreement::{agree, described};
use super::clip::clip_parts;
use super::data_parallel::weighted;
use super::shard::ShardLayout;
use super::unit::{ByNumber, OP, Unit, lock};
use crate::Module;
use crate::refuse::{called, refuse};
use pullback::{
    Error, Group, Path, Result, Tensor, Tree, catch, is_tracing, no_grad, with_packing,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The units of a model whose parameters are spread over the workers of a group.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
/// use pullback_nn::parallel::{FullSharding, FullySharded};
/// use pullback_nn::{Layer, Linear, Module};
///
/// pullback_workers::threads(2, |group| {
///     let sharding = FullSharding::new(&group);
///     let blocks = [sharding.shard(Linear::new(8, 8))?, sharding.shard(Linear::new(8, 8))?];
///     let optimizer = AdamW::default().over(blocks.parameters())?;
///     assert_eq!(blocks.parameter_count(), 72); // of 144
///     let x = Tensor::ones([4, 8]);
///     optimizer.zero_grad();
///     let y = blocks[1].forward(&blocks[0].forward(&x).relu());
///     sharding.backward(&y.square().mean())?;
///     optimizer.step()
/// })?;
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone)]
pub struct FullSharding {
    group: Group,
    units: Arc<Mutex<Vec<Arc<Unit>>>>,
}

/// A module whose parameters are spread over workers: made by [`FullSharding::shard`].
///
/// Its parameters are this worker's parts, under the names that they have in the module. It is a
/// [`Layer`](crate::Layer) if the module is one; [`FullySharded::call`] runs any method of it.
///
/// ```
/// # use pullback_nn::parallel::FullSharding;
/// # use pullback_nn::{Linear, Module};
/// pullback_workers::threads(2, |group| {
///     let unit = FullSharding::new(&group).shard(Linear::new(4, 2))?;
///     let (name, part) = unit.named_parameters().remove(0);
///     assert_eq!((name.as_str(), part.shape()), ("weight", &[4][..]));
///     Ok(())
/// })?;
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone)]
pub struct FullySharded<M> {
    /// The module, with parameters that take no memory.
    hollow: M,
    parts: Vec<Tensor>,
    unit: Arc<Unit>,
}

impl FullSharding {
    /// No units yet. [`FullSharding::shard`] makes them.
    ///
    /// ```
    /// # use pullback_nn::parallel::FullSharding;
    /// pullback_workers::threads(2, |group| {
    ///     assert_eq!(FullSharding::new(&group).group().size(), 2);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(group: &Group) -> FullSharding {
        FullSharding { group: group.clone(), units: Arc::default() }
    }

    /// The group.
    ///
    /// ```
    /// # use pullback_nn::parallel::FullSharding;
    /// let ranks =
    ///     pullback_workers::threads(2, |group| Ok(FullSharding::new(&group).group().rank()))?;
    /// assert_eq!(ranks, [0, 1]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Spreads the parameters of a module; buffers stay whole. All workers have the values of
    /// worker 0. Modules are prefetched in the order of these calls, so make them in the order in
    /// which the model uses them. Every worker calls it.
    ///
    /// Parameters that are not trained are spread like the others, and the optimiser must not be
    /// given them.
    ///
    /// ```
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::{Linear, Module};
    /// pullback_workers::threads(4, |group| {
    ///     let unit = FullSharding::new(&group).shard(Linear::new(4, 4).without_bias())?;
    ///     assert_eq!(unit.parameter_count(), 4);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If workers have different modules, or parameters of several dtypes.
    #[track_caller]
    pub fn shard<M: Module>(&self, module: M) -> Result<FullySharded<M>> {
        let _line = called();
        let state = module.named_state();
        let lines = state.iter().map(|(name, x)| described(name, x));
        agree(&self.group, OP, "modules", lines)?;
        super::data_parallel::broadcast(&state, &self.group)?;
        let named = module.named_parameters();
        if named.windows(2).any(|pair| pair[0].1.dtype() != pair[1].1.dtype()) || named.is_empty() {
            let message = "a unit has parameters, all of one dtype";
            return Err(Error::argument(OP, message));
        }
        let cuts: Vec<ShardLayout> =
            named.iter().map(|(_, x)| ShardLayout::new(x.shape(), self.group.size())).collect();
        let own = named.iter().zip(&cuts).map(|((_, x), cut)| cut.own(x, &self.group));
        let trained = |(part, (_, x)): (Tensor, &(String, Tensor))| {
            if x.is_leaf() { part.requires_grad() } else { part }
        };
        let parts: Vec<Tensor> = own.zip(&named).map(trained).collect();
        // One number, shown everywhere; what is tied stays tied.
        let hollow = |x: &Tensor| no_grad(|| x.new_zeros([1]).cast(x.dtype()).expand(x.shape()));
        let hollows: HashMap<usize, Tensor> =
            named.iter().map(|(_, x)| (x.id(), hollow(&x.detach()))).collect();
        let hollow = module.map(&mut |x| hollows.get(&x.id()).unwrap_or(x).clone());
        let names = named.into_iter().map(|(name, _)| name).collect();
        let unit = Unit::add(&self.units, &self.group, names, cuts, parts.clone());
        Ok(FullySharded { hollow, parts, unit })
    }

    /// Runs backward from this worker's loss, and leaves the mean of all workers' gradients in
    /// `.grad()` of this worker's parts. Every worker calls it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::{Layer, Linear, Module};
    /// pullback_workers::threads(2, |group| {
    ///     let sharding = FullSharding::new(&group);
    ///     let unit = sharding.shard(Linear::new(2, 2))?;
    ///     sharding.backward(&unit.forward(&Tensor::ones([1, 2])).sum())?;
    ///     assert_eq!(unit.parameters()[0].grad().unwrap().to_vec::<f32>(), [1.0, 1.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of the backward pass or the group.
    #[track_caller]
    pub fn backward(&self, loss: &Tensor) -> Result<()> {
        let _line = called();
        if is_tracing() {
            // Gathering is an op of the program, and its transpose sums over workers.
            return catch(|| loss / self.group.size() as f64)?.backward();
        }
        let ran = loss.backward();
        let finished = self.finish();
        ran.and(finished)
    }

    /// [`FullSharding::backward`] where workers have different numbers of examples: the gradient is
    /// that of the mean over all of them, if `loss` is the mean over this worker's. Every worker
    /// calls it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::{Layer, Linear, Module};
    /// pullback_workers::threads(2, |group| {
    ///     let sharding = FullSharding::new(&group);
    ///     let unit = sharding.shard(Linear::new(2, 1).without_bias())?;
    ///     // One example of worker 0, three of worker 1: the mean of 0, 4, 4 and 4 is 3.
    ///     let (examples, x) = [(1, 0.0), (3, 4.0)][group.rank()];
    ///     let x = Tensor::full([examples, 2], x).cast(pullback::DType::F32);
    ///     sharding.backward_weighted(&unit.forward(&x).mean(), examples)?;
    ///     assert_eq!(unit.parameters()[0].grad().unwrap().to_vec::<f32>(), [3.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`FullSharding::backward`].
    #[track_caller]
    pub fn backward_weighted(&self, loss: &Tensor, examples: usize) -> Result<()> {
        let _line = called();
        self.backward(&weighted(loss, examples, &self.group)?)
    }

    /// Waits until the gradients of the parts are complete. [`FullSharding::backward`] calls it; a
    /// program that calls [`Tensor::backward`] itself calls this afterwards, on every worker.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::{Layer, Linear, Module};
    /// pullback_workers::threads(2, |group| {
    ///     let sharding = FullSharding::new(&group);
    ///     let unit = sharding.shard(Linear::new(2, 2))?;
    ///     unit.forward(&Tensor::ones([1, 2])).sum().backward()?;
    ///     sharding.finish()?;
    ///     assert!(unit.parameters()[0].grad().is_some());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of the group.
    #[track_caller]
    pub fn finish(&self) -> Result<()> {
        let _line = called();
        let units = lock(&self.units).clone();
        // In the order in which backward sends, from the last.
        units.iter().rev().try_for_each(|unit| unit.finish())
    }

    /// Clips the gradients of the parts by the norm of all gradients together, and gives that norm.
    /// Every worker calls it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::{Layer, Linear};
    /// let norms = pullback_workers::threads(2, |group| {
    ///     let sharding = FullSharding::new(&group);
    ///     let unit = sharding.shard(Linear::new(2, 2).without_bias())?;
    ///     sharding.backward(&unit.forward(&Tensor::ones([1, 2])).sum())?;
    ///     Ok(sharding.clip_grad_norm_(1.0)?.item::<f32>())
    /// })?;
    /// assert_eq!(norms, [2.0, 2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `max_norm` is negative or NaN, or of the group.
    #[track_caller]
    pub fn clip_grad_norm_(&self, max_norm: f64) -> Result<Tensor> {
        let _line = called();
        let parts: Vec<Tensor> =
            lock(&self.units).iter().flat_map(|unit| unit.parts.clone()).collect();
        clip_parts(&parts, max_norm, &self.group)
    }

    /// The parts of all units with how they are cut; unit `k`'s parameter `p` is named `k.p`.
    pub(crate) fn cuts(&self) -> Vec<(String, Tensor, ShardLayout)> {
        let units = lock(&self.units).clone();
        let of_unit = |unit: &Arc<Unit>| {
            let named = unit.names.iter().zip(&unit.parts).zip(&unit.cuts);
            let number = unit.number;
            named
                .map(|((name, part), cut)| (format!("{number}.{name}"), part.clone(), cut.clone()))
                .collect::<Vec<_>>()
        };
        units.iter().flat_map(of_unit).collect()
    }
}

impl<M: Module> FullySharded<M> {
    /// Runs a method of the module with its whole parameters.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::{Bilinear, Module};
    /// pullback_workers::threads(2, |group| {
    ///     let unit = FullSharding::new(&group).shard(Bilinear::new(3, 4, 2))?;
    ///     let (a, b) = (Tensor::ones([5, 3]), Tensor::ones([5, 4]));
    ///     assert_eq!(unit.call(|module| module.forward(&a, &b)).shape(), [5, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// As `f`; or if a collective fails.
    #[track_caller]
    pub fn call<R>(&self, f: impl FnOnce(&M) -> R) -> R {
        let _line = called();
        let unit = &self.unit;
        if is_tracing() {
            return f(&self.filled(&unit.traced(&self.parts)));
        }
        let whole = unit.gather().unwrap_or_else(|error| refuse(error));
        if let Some(next) = unit.neighbour(Some(unit.number + 1)) {
            next.prefetch();
        }
        let trained =
            |(x, part): (Tensor, &Tensor)| if part.is_leaf() { x.requires_grad() } else { x };
        let whole: Vec<Tensor> = whole.into_iter().zip(&self.parts).map(trained).collect();
        for (i, x) in whole.iter().enumerate().filter(|(_, x)| x.is_leaf()) {
            let unit = unit.clone();
            x.on_grad_ready(move |grad| unit.on_ready(i, grad));
        }
        let module = self.filled(&whole);
        let packer = Arc::new(ByNumber::new(unit, &whole));
        with_packing(packer, || f(&module))
    }

    /// The module with these parameters.
    fn filled(&self, whole: &[Tensor]) -> M {
        let ids: Vec<usize> = self.hollow.named_parameters().iter().map(|(_, x)| x.id()).collect();
        self.hollow.map(&mut |x| match ids.iter().position(|&id| id == x.id()) {
            Some(i) => whole[i].clone(),
            None => x.clone(),
        })
    }
}

impl<M: crate::Layer + Module> crate::Layer for FullySharded<M> {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.call(|module| module.forward(x))
    }
}

impl<M: Module> Tree for FullySharded<M> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        let ids: Vec<usize> = self.hollow.named_parameters().iter().map(|(_, x)| x.id()).collect();
        self.hollow.visit(path, &mut |path, x| match ids.iter().position(|&id| id == x.id()) {
            Some(i) => f(path, &self.parts[i]),
            None => f(path, x),
        });
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Self {
        let ids: Vec<usize> = self.hollow.named_parameters().iter().map(|(_, x)| x.id()).collect();
        let mut parts = self.parts.clone();
        let hollow = self.hollow.map(&mut |x| match ids.iter().position(|&id| id == x.id()) {
            Some(i) => {
                parts[i] = f(&self.parts[i]);
                x.clone()
            }
            None => f(x),
        });
        let same = parts.iter().zip(&self.parts).all(|(new, old)| new.is_same(old));
        // A copy has its own parts to gather; inside a trace those of the module are used.
        let unit = match same || is_tracing() {
            true => self.unit.clone(),
            false => {
                let Unit { units, group, names, cuts, .. } = &*self.unit;
                let units = units.upgrade().unwrap_or_default();
                Unit::add(&units, group, names.clone(), cuts.clone(), parts.clone())
            }
        };
        FullySharded { hollow, parts, unit }
    }
}
