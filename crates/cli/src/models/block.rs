//! A block of a network: whole, or spread over workers.

use pullback::{Path, Result, Tensor, Tree};
use pullback_nn::parallel::{FullSharding, FullySharded};
use pullback_nn::{Layer, Module};

/// A block. Its parameters have the same names either way, so that checkpoints are read by both.
pub enum ModelBlock<M> {
    Whole(M),
    /// Each worker has its part of the parameters; a call gathers them.
    Spread(FullySharded<M>),
}

/// A network made of blocks.
pub trait BlockNetwork: Module {
    /// The same network with its blocks spread over workers, in the order in which they are used.
    ///
    /// # Errors
    /// Of the workers.
    fn spread(self, sharding: &FullSharding) -> Result<Self>;
}

impl<M: Module> ModelBlock<M> {
    /// Runs a method of the block.
    #[track_caller]
    pub fn call<R>(&self, f: impl FnOnce(&M) -> R) -> R {
        match self {
            ModelBlock::Whole(module) => f(module),
            ModelBlock::Spread(unit) => unit.call(f),
        }
    }
}

impl<M: Module> BlockNetwork for ModelBlock<M> {
    fn spread(self, sharding: &FullSharding) -> Result<ModelBlock<M>> {
        match self {
            ModelBlock::Whole(module) => sharding.shard(module).map(ModelBlock::Spread),
            spread @ ModelBlock::Spread(_) => Ok(spread),
        }
    }
}

impl<B: BlockNetwork> BlockNetwork for Vec<B> {
    fn spread(self, sharding: &FullSharding) -> Result<Vec<B>> {
        self.into_iter().map(|block| block.spread(sharding)).collect()
    }
}

impl<M: Layer + Module> Layer for ModelBlock<M> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            ModelBlock::Whole(module) => module.forward(x),
            ModelBlock::Spread(unit) => unit.forward(x),
        }
    }
}

/// Transparent: a block adds nothing to the names of its parameters.
impl<M: Module> Tree for ModelBlock<M> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        match self {
            ModelBlock::Whole(module) => module.visit(path, f),
            ModelBlock::Spread(unit) => unit.visit(path, f),
        }
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Self {
        match self {
            ModelBlock::Whole(module) => ModelBlock::Whole(module.map(f)),
            ModelBlock::Spread(unit) => ModelBlock::Spread(unit.map(f)),
        }
    }
}
