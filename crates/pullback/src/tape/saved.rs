//! Values kept for backward: the one door (`pack`, `unpack`) through which they pass.
//!
//! A saved value holds the memory, not the tensor: the history of a saved input is the node's own edge,
//! and a saved output belongs to the node itself, so nothing points in a circle. It remembers the
//! storage version it saw; if the memory was written to since, unpacking fails with a sentence.
//!
//! Where somebody packs what is saved (`memory/door.rs`), what is kept is what they gave for it.

use super::{History, Node};
use crate::memory::door::{self, Packed, SavedValue};
use crate::memory::report::ledger;
use crate::storage::Storage;
use crate::tensor::Tangents;
use crate::transform::levels;
use crate::{Error, Result, Tensor, mode, trace};
use pullback_ir::{DType, Device, ErrorKind, Layout, Line, Op, Spec};
use smallvec::SmallVec;
use std::sync::Arc;

pub(crate) struct Saved {
    from: From,
    kept: Kept,
    pub tangents: Tangents,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Input(u32),
    Output(u32),
}

#[derive(Clone)]
pub(crate) enum Kept {
    Memory(Window),
    Packed(Spec, Arc<dyn Packed>),
}

/// A piece of memory as it was at a moment.
#[derive(Clone)]
pub(crate) struct Window {
    dtype: DType,
    device: Device,
    layout: Layout,
    pub storage: Arc<Storage>,
    pub version: u64,
}

impl Window {
    pub fn of(value: &Tensor) -> Window {
        let inner = &*value.0;
        Window {
            dtype: inner.spec.dtype,
            device: inner.spec.device,
            layout: inner.layout.clone(),
            storage: inner.storage.clone(),
            version: inner.storage.version(),
        }
    }

    /// What it shows, without history; `None` if it was written to since.
    pub fn tensor(&self) -> Option<Tensor> {
        let spec = Spec::on(self.device, self.dtype, self.layout.shape.clone());
        (self.storage.version() == self.version)
            .then(|| Tensor::new(spec, self.layout.clone(), self.storage.clone()))
    }
}

impl Kept {
    /// Keeps a value, by way of those who pack what is saved.
    pub fn pack(
        value: &Tensor,
        saver: (Option<&Op>, &str, Line),
        is_output: bool,
        history: &History,
    ) -> Kept {
        if !door::is_attended() {
            return Kept::memory(value);
        }
        let (op, name, at) = saver;
        let is_parameter = matches!(history, History::Leaf(_));
        let offer = || {
            let plain = mode::set_recording(false, || value.alias(History::None, Tangents::new()));
            door::pack(&SavedValue { tensor: plain, op, name, at, is_output, is_parameter })
        };
        match ledger::packing(&value.0.storage, offer) {
            Some(packed) => Kept::Packed(value.spec().clone(), packed),
            None => Kept::memory(value),
        }
    }

    fn memory(value: &Tensor) -> Kept {
        if ledger::is_on() {
            ledger::saves(&value.0.storage);
        }
        Kept::Memory(Window::of(value))
    }
}

impl Saved {
    /// Keeps a value of an op.
    pub fn pack(
        from: From,
        value: &Tensor,
        tangents: &Tangents,
        (op, at): (&Op, Line),
        history: &History,
    ) -> Saved {
        let is_output = matches!(from, From::Output(_));
        let kept = Kept::pack(value, (Some(op), op.name(), at), is_output, history);
        Saved { from, kept, tangents: tangents.clone() }
    }

    pub fn is_output(&self, k: u32) -> bool {
        self.from == From::Output(k)
    }
}

impl Node {
    /// Calls `f` with each kept value.
    pub fn unpack(self: &Arc<Node>, mut f: impl FnMut(From, Tensor)) -> Result<()> {
        // What was packed is unpacked after the lock is released: that may run anything.
        type Waiting = (From, Spec, Arc<dyn Packed>, Tangents);
        let mut packed: SmallVec<[Waiting; 2]> = SmallVec::new();
        {
            let saved = self.saved();
            let Some(values) = &*saved else {
                let name = self.op.name();
                let message =
                    format!("the graph through `{name}` was freed by an earlier backward");
                return Err(Error::gradient("backward", message).at(self.at).hint(
                    "use Backward::of(&y).retain_graph().run() to go through a graph more than once",
                ));
            };
            for value in values {
                match &value.kept {
                    Kept::Memory(window) => {
                        let Some(x) = window.tensor() else {
                            return Err(self.overwritten(value.from, window));
                        };
                        f(value.from, self.given_back(value.from, x, &value.tangents));
                    }
                    Kept::Packed(spec, what) => {
                        let tangents = value.tangents.clone();
                        packed.push((value.from, spec.clone(), what.clone(), tangents));
                    }
                }
            }
        }
        for (from, spec, what, tangents) in packed {
            if ledger::is_on() {
                ledger::unpacks(&self.op, self.at);
            }
            // A value from outside a body comes back outside it, as one that was never packed is met there: the body sees a constant, and
            // derivatives around the body see its history.
            let unpack = || door::unpack(&*what, &spec);
            let x = trace::where_made(self.seq, unpack).map_err(|e| e.at(self.at))?;
            // It may be somebody's tensor: the history is given to another handle.
            let x = Tensor::new(spec, x.0.layout.clone(), x.0.storage.clone());
            f(from, self.given_back(from, x, &tangents));
        }
        Ok(())
    }

    /// A kept value; with its history if what backward does is being recorded.
    fn given_back(self: &Arc<Node>, from: From, x: Tensor, tangents: &Tangents) -> Tensor {
        if mode::is_grad_enabled() || !tangents.is_empty() {
            let mut state = x.lock();
            state.tangents = levels::alive(tangents);
            if mode::is_grad_enabled() {
                state.history = match from {
                    From::Input(i) => self.inputs[i as usize].clone(),
                    From::Output(k) => History::Node(self.clone(), k),
                };
            }
        }
        x
    }

    fn overwritten(&self, from: From, window: &Window) -> Error {
        let name = self.op.name();
        let what = match from {
            From::Input(_) if self.inputs.len() == 1 => "its input".to_string(),
            From::Input(i) => format!("its operand {}", i + 1),
            From::Output(_) => "its output".to_string(),
        };
        let message = format!("backward of `{name}` needs {what}, but it was overwritten");
        let saved = format!("saved by     {name:<8} at {}   (version {})", self.at, window.version);
        let error = Error::new(ErrorKind::InPlace, "", message).detail(saved);
        window
            .storage
            .named_writer(error)
            .hint("use the out-of-place form, or clone the value first")
    }
}
