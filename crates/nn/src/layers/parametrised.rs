//! A layer whose weight is computed from other tensors at every call: what weight norm and spectral
//! norm share.
//!
//! The layer inside keeps all of its tensors but `weight`, which is replaced by a constant of the
//! same shape that takes no memory. A call rebuilds the tree with the computed weight instead of
//! it. PyTorch calls this a parametrisation, and the names are PyTorch's: those of the layer
//! without `weight`, and then `parametrizations.weight.…`.

use crate::refuse::refuse;
use pullback::{Error, Path, Tensor, Tree};

/// The layer without its weight.
#[derive(Clone)]
pub(super) struct Bare<L> {
    layer: L,
    /// Which of its tensors the weight is.
    place: usize,
}

impl<L: Tree> Bare<L> {
    /// Separates the layer and its weight.
    ///
    /// # Panics
    /// If it has none.
    #[track_caller]
    pub fn new(of: &'static str, layer: &L) -> (Bare<L>, Tensor) {
        let found = layer.named_leaves().into_iter().enumerate().find(|(_, (n, _))| n == "weight");
        let Some((place, (_, weight))) = found else {
            let kind = kind_of(layer);
            let names: Vec<String> = layer.named_leaves().into_iter().map(|(n, _)| n).collect();
            let message = format!("{kind} has no tensor `weight`; it has {names:?}");
            refuse(Error::argument(of, message))
        };
        if !weight.dtype().is_float() || weight.rank() == 0 {
            let message = format!("a weight {} cannot be normalised", weight.spec());
            refuse(Error::argument(of, message));
        }
        let nothing = weight.new_zeros([1]).expand(weight.shape());
        let layer = replaced(layer, place, &nothing);
        (Bare { layer, place }, weight)
    }

    /// The layer with this weight.
    pub fn with(&self, weight: &Tensor) -> L {
        replaced(&self.layer, self.place, weight)
    }

    pub fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        let mut i = 0;
        self.layer.visit(path, &mut |path, x| {
            if i != self.place {
                f(path, x);
            }
            i += 1;
        });
    }

    pub fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Bare<L> {
        let (mut i, place) = (0, self.place);
        let layer = self.layer.map(&mut |x| {
            i += 1;
            if i - 1 == place { x.clone() } else { f(x) }
        });
        Bare { layer, place }
    }

    /// The type of the layer.
    pub fn kind(&self) -> &'static str {
        kind_of(&self.layer)
    }
}

fn kind_of(layer: &impl Tree) -> &'static str {
    layer.tree_structure().kinds.first().map_or("the layer", |(_, kind)| kind)
}

fn replaced<L: Tree>(layer: &L, place: usize, weight: &Tensor) -> L {
    let mut i = 0;
    layer.map(&mut |x| {
        i += 1;
        if i - 1 == place { weight.clone() } else { x.clone() }
    })
}

/// Runs `f` at `parametrizations.weight`.
pub(super) fn under<R>(path: &mut Path, f: impl FnOnce(&mut Path) -> R) -> R {
    path.scope("parametrizations", |path| path.scope("weight", f))
}
