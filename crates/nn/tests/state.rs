//! Weights and checkpoints in files.

#[path = "state/checkpoints.rs"]
mod checkpoints;
#[path = "state/disasters.rs"]
mod disasters;
#[path = "state/model.rs"]
mod model;
#[path = "state/weights.rs"]
mod weights;
