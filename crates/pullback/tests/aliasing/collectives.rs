//! Collectives of a group of one worker. Sending and receiving need another worker: their calls are
//! refused, and share nothing.

use super::given::Given;
use pullback::*;

type G = Given;

fn m(g: &G) -> Tensor {
    g.f(&[2, 3])
}

fn alone() -> Group {
    Group::alone()
}

fn refused(call: impl FnOnce() -> Tensor) -> Vec<Tensor> {
    assert!(catch(call).is_err(), "a worker cannot send to itself");
    Vec::new()
}

crate::rows!(
    "all_reduce": |g: &G| m(g).all_reduce(&alone()), |g: &G| g.i(&[2]).all_reduce(&alone());
    "all_reduce_mean": |g: &G| m(g).all_reduce_mean(&alone());
    "all_reduce_max": |g: &G| m(g).all_reduce_max(&alone());
    "all_reduce_min": |g: &G| m(g).all_reduce_min(&alone());
    "all_gather": |g: &G| m(g).all_gather(&alone(), 0), |g: &G| m(g).all_gather(&alone(), 1);
    "reduce_scatter": |g: &G| m(g).reduce_scatter(&alone(), 0), |g: &G| m(g).reduce_scatter(&alone(), 1);
    "broadcast_from": |g: &G| m(g).broadcast_from(&alone(), 0);
    "all_to_all": |g: &G| m(g).all_to_all(&alone(), 0, 0), |g: &G| m(g).all_to_all(&alone(), 1, 0);
    "send": |g: &G| refused(|| m(g).send(&alone(), 0));
    "recv": |g: &G| refused(|| Tensor::recv(&alone(), 0, [2], m(g).dtype()));
    "recv_after": |g: &G| refused(|| g.f(&[0]).recv_after(&alone(), 0, [2]));
);
