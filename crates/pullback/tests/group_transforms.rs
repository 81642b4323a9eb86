//! Transforms, control flow and rules of the user's. Each file is a module; those that need a
//! process of their own are tests of their own.

mod autocast;
mod batching;
mod captured_writes;
mod checkpoint_nested;
mod control;
mod control_compiled;
mod control_tangents;
mod conventions;
mod conventions_peers;
mod custom;
mod custom_op;
mod custom_rule_check;
mod custom_rule_check_around;
mod custom_sizes;
mod custom_traced;
mod direction_gradients;
mod implicit;
mod surrogates_shared;
mod trace;
mod transform_forms;
mod transforms;
mod vmap;
