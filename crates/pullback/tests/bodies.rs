//! What functions do inside bodies and compiled programs is what they do eagerly: writes in place,
//! `no_grad`, marked tensors, backward passes.

#[path = "bodies/arguments.rs"]
mod arguments;
#[path = "bodies/backward.rs"]
mod backward;
#[path = "bodies/inplace.rs"]
mod inplace;
#[path = "bodies/marked.rs"]
mod marked;
#[path = "bodies/no_grad.rs"]
mod no_grad;
#[path = "bodies/random.rs"]
mod random;
