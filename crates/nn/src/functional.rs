//! Calling a module with other tensors than its own.

use crate::Module;
use pullback::{Error, Line, Path, Result, Tensor, user_line};
use std::collections::{HashMap, HashSet};

/// Calls a module with other tensors instead of its own, and gives the result with the buffers
/// as the call left them. The module itself is not changed: what the call writes to its buffers, it
/// writes to copies. PyTorch's `torch.func.functional_call`.
///
/// `state` names parameters and buffers as [`Module::named_state`] does; those it does not name are
/// the module's. A tied tensor has one name, its first.
///
/// Where a transform maps or differentiates, state that the function changes is an argument and a
/// result:
///
/// ```
/// use pullback::{Tensor, grad};
/// use pullback_nn::{BatchNorm1d, Layer, Module, functional_call};
///
/// let norm = BatchNorm1d::new(3);
/// let (y, buffers) = functional_call(&norm, &[], |m| m.forward(&Tensor::randn([8, 3])))?;
/// assert_eq!(y.shape(), [8, 3]);
/// assert_eq!(buffers[2].0, "num_batches_tracked");
/// assert_eq!(buffers[2].1.item::<i64>(), 1);
/// // The module's own are as they were.
/// assert_eq!(norm.num_batches_tracked.as_ref().unwrap().item::<i64>(), 0);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If a name is not one of the module's or is given twice, or a tensor is of another shape or
/// dtype.
#[track_caller]
pub fn functional_call<M: Module, R>(
    module: &M,
    state: &[(String, Tensor)],
    call: impl FnOnce(&M) -> R,
) -> Result<(R, Vec<(String, Tensor)>)> {
    let op = "functional_call";
    let own = module.named_state();
    let by_name: HashMap<&str, &Tensor> = own.iter().map(|(name, x)| (&name[..], x)).collect();
    let mut given: HashMap<&str, &Tensor> = HashMap::new();
    for (name, x) in state {
        if given.insert(name, x).is_some() {
            let message = format!("`{name}` is given twice");
            return Err(Error::argument(op, message).at(user_line(Line::caller())));
        }
        let error = match by_name.get(&name[..]) {
            Some(old) if old.spec() == x.spec() => continue,
            Some(old) => {
                let message = format!("`{name}` is {}, not {}", old.spec(), x.spec());
                let kind = if old.shape() == x.shape() { Error::dtype } else { Error::shape };
                kind(op, message).on([old.spec(), x.spec()])
            }
            None => Error::argument(op, unknown(module, &own, name)),
        };
        return Err(error.at(user_line(Line::caller())));
    }
    let buffers: HashSet<usize> = module.named_buffers().iter().map(|(_, b)| b.id()).collect();
    // One new tensor for each of the module's, so that what is tied stays tied.
    let renewed = |(name, old): &(String, Tensor)| {
        let x = given.get(&name[..]).copied().unwrap_or(old);
        // Buffers are constants, as they are in transforms.
        let constant = buffers.contains(&old.id());
        (old.id(), if constant { x.detach().deep_clone() } else { x.clone() })
    };
    let new: HashMap<usize, Tensor> = own.iter().map(renewed).collect();
    let called = module.map(&mut |x| new.get(&x.id()).unwrap_or(x).clone());
    let result = call(&called);
    Ok((result, called.named_buffers()))
}

/// The message for an unknown name: a tied tensor has other names besides its first.
fn unknown(module: &impl Module, own: &[(String, Tensor)], name: &str) -> String {
    let mut tied = None;
    module.visit(&mut Path::default(), &mut |path, x| {
        if path.to_string() == name {
            tied = own.iter().find(|(_, known)| known.is_same(x)).map(|(first, _)| first.clone());
        }
    });
    if let Some(first) = tied {
        return format!("`{name}` is tied to `{first}`, and is listed under that name");
    }
    let known: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
    format!("the module has no `{name}`; it has {}", known.join(", "))
}
