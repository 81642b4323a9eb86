//! Values kept for backward: the one door (`pack`, `unpack`) through which they pass.
//!
//! A saved value holds the memory, not the tensor: the history of a saved input is the node's own edge,
//! and a saved output belongs to the node itself, so nothing points in a circle. It remembers the
//! storage version it saw; if the memory was written to since, unpacking fails with a sentence.

use super::{History, Node};
use crate::storage::Storage;
use crate::tensor::Tangents;
use crate::transform::levels;
use crate::{Error, Result, Tensor, mode};
use pullback_ir::{DType, ErrorKind, Layout, Spec};
use std::sync::Arc;

pub(crate) struct Saved {
    from: From,
    dtype: DType,
    layout: Layout,
    storage: Arc<Storage>,
    version: u64,
    pub tangents: Tangents,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Input(u32),
    Output(u32),
}

impl Saved {
    /// Keeps a value.
    pub fn pack(from: From, value: &Tensor, tangents: &Tangents) -> Saved {
        let inner = &*value.0;
        Saved {
            from,
            dtype: inner.spec.dtype,
            layout: inner.layout.clone(),
            storage: inner.storage.clone(),
            version: inner.storage.version(),
            tangents: tangents.clone(),
        }
    }

    pub fn is_output(&self, k: u32) -> bool {
        self.from == From::Output(k)
    }

    /// Gives the value back; with its history if what backward does is being recorded.
    fn unpack(&self, node: &Arc<Node>) -> Result<Tensor> {
        if self.storage.version() != self.version {
            return Err(self.overwritten(node));
        }
        let out = Tensor::new(
            Spec::new(self.dtype, self.layout.shape.clone()),
            self.layout.clone(),
            self.storage.clone(),
        );
        if mode::is_grad_enabled() || !self.tangents.is_empty() {
            let mut state = out.lock();
            state.tangents = levels::alive(&self.tangents);
            if mode::is_grad_enabled() {
                state.history = match self.from {
                    From::Input(i) => node.inputs[i as usize].clone(),
                    From::Output(k) => History::Node(node.clone(), k),
                };
            }
        }
        Ok(out)
    }

    fn overwritten(&self, node: &Node) -> Error {
        let (name, version) = (node.op.name(), self.storage.version());
        let what = match self.from {
            From::Input(_) if node.inputs.len() == 1 => "its input".to_string(),
            From::Input(i) => format!("its operand {}", i + 1),
            From::Output(_) => "its output".to_string(),
        };
        let message = format!("backward of `{name}` needs {what}, but it was overwritten");
        let mut error = Error::new(ErrorKind::InPlace, "", message)
            .detail(format!("saved by     {name:<8} at {}   (version {})", node.at, self.version));
        if let Some(writer) = self.storage.writer() {
            error = error.detail(format!(
                "overwritten  {:<8} at {}   (version {version})",
                writer.op, writer.at
            ));
        }
        error.hint("use the out-of-place form, or clone the value first")
    }
}

impl Node {
    /// Calls `f` with each kept value.
    pub fn unpack(self: &Arc<Node>, mut f: impl FnMut(From, Tensor)) -> Result<()> {
        let saved = self.saved();
        let Some(values) = &*saved else {
            let message =
                format!("the graph through `{}` was freed by an earlier backward", self.op.name());
            return Err(Error::gradient("backward", message).at(self.at).hint(
                "use Backward::of(&y).retain_graph().run() to go through a graph more than once",
            ));
        };
        for value in values {
            f(value.from, value.unpack(self)?);
        }
        Ok(())
    }
}
