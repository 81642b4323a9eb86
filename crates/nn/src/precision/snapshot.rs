//! Copies of state, to run something again as if it had not run.

use pullback::{Tensor, no_grad, random_states, set_random_state};

/// A snapshot of tensors, gradients and the random generators.
pub(super) struct Snapshot {
    random: Vec<Tensor>,
    tensors: Vec<(Tensor, Tensor)>,
    gradients: Vec<(Tensor, Option<Tensor>)>,
}

impl Snapshot {
    /// Copies tensors. Gradients are held, not copied: code that runs in between clears them first.
    pub fn of(tensors: impl IntoIterator<Item = Tensor>, leaves: &[Tensor]) -> Snapshot {
        let copy = |x: Tensor| {
            let values = no_grad(|| x.detach().deep_clone());
            (x, values)
        };
        let leaves = leaves.iter().filter(|x| x.is_leaf());
        Snapshot {
            random: random_states(),
            tensors: tensors.into_iter().map(copy).collect(),
            gradients: leaves.map(|x| (x.clone(), x.grad())).collect(),
        }
    }

    /// Restores everything.
    pub fn put_back(&self) {
        self.random.iter().for_each(set_random_state);
        no_grad(|| self.tensors.iter().for_each(|(x, values)| drop(x.copy_(values))));
        self.gradients.iter().for_each(|(x, grad)| x.set_grad(grad.clone()));
    }

    /// Runs `f` and restores everything, also if `f` panics.
    pub fn around<R>(&self, f: impl FnOnce() -> R) -> R {
        struct RestoreSnapshot<'a>(&'a Snapshot);
        impl Drop for RestoreSnapshot<'_> {
            fn drop(&mut self) {
                self.0.put_back();
            }
        }
        let _return = RestoreSnapshot(self);
        f()
    }
}
