//! Optimisers against PyTorch's trajectories (recorded by `data/optim.py`), compiled against eager,
//! saved and restored, and refused.

#[path = "optim/accumulated.rs"]
mod accumulated;
#[path = "optim/around.rs"]
mod around;
#[path = "optim/lbfgs.rs"]
mod lbfgs;
#[path = "optim/problem.rs"]
mod problem;
#[path = "optim/pytorch_names.rs"]
mod pytorch_names;
#[path = "optim/refusals.rs"]
mod refusals;
#[path = "optim/state.rs"]
mod state;
#[path = "optim/trajectories.rs"]
mod trajectories;
