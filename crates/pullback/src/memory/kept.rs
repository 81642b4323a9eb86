//! A saved value: its memory as it was, or what a packer returned for it.

use super::packing::{self, Packed, SavedValue};
use crate::backend::Pooled;
use crate::rule::Val;
use crate::storage::Storage;
use crate::tape::{History, Node};
use crate::tensor::Tangents;
use crate::{Error, Tensor, events, mode};
use pullback_ir::{DType, Device, ErrorKind, Layout, Line, Op, Spec};
use std::sync::Arc;

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
    pub storage: Pooled<Storage>,
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

    /// The error of a node that finds it written over, where it kept this value.
    pub fn overwritten(&self, node: &Node, which: Val) -> Error {
        let name = node.op.name();
        let what = match which {
            Val::In(_) if node.inputs.len() == 1 => "its input".to_string(),
            Val::In(i) => format!("its operand {}", i + 1),
            Val::Out(_) => "its output".to_string(),
        };
        let message = format!("backward of `{name}` needs {what}, but it was overwritten");
        let saved = format!("saved by     {name:<8} at {}   (version {})", node.at, self.version);
        let error = Error::new(ErrorKind::InPlace, "", message).detail(saved);
        self.storage.named_writer(error).hint("use the out-of-place form, or clone the value first")
    }
}

impl Kept {
    /// Saves a value, through the active packers.
    pub fn pack(
        value: &Tensor,
        saver: (Option<&Op>, &str, Line),
        is_output: bool,
        history: &History,
    ) -> Kept {
        if !packing::is_active() {
            return Kept::memory(value);
        }
        let (op, name, at) = saver;
        let is_parameter = matches!(history, History::Leaf(_));
        let offer = || {
            let plain = mode::set_recording(false, || value.alias(History::None, Tangents::new()));
            packing::pack(&SavedValue { tensor: plain, op, name, at, is_output, is_parameter })
        };
        match events::packing(&value.0.storage, offer) {
            Some(packed) => Kept::Packed(value.spec().clone(), packed),
            None => Kept::memory(value),
        }
    }

    fn memory(value: &Tensor) -> Kept {
        events::value_saved(&value.0.storage);
        Kept::Memory(Window::of(value))
    }
}
