//! A saved value: its memory as it was, or what a packer returned for it.

use super::packing::{self, Packed, SavedValue};
use crate::backend::Pooled;
use crate::rule::Val;
use crate::storage::Storage;
use crate::tape::{History, Node};
use crate::tangents::Tangents;
use crate::{Error, Result, Tensor, events, mode};
use pullback_ir::{DType, Device, ErrorKind, Layout, Line, Op, Spec};
use std::sync::Arc;

/// What a node holds of a saved value.
pub(crate) enum Held {
    /// Dense, from the first byte of a memory, at this version: the node knows the spec. Most
    /// values.
    Whole(Pooled<Storage>, u64),
    /// Anything else; boxed, so that a node stays small.
    Kept(Box<Kept>),
}

impl Held {
    /// Saves a value, through the active packers.
    pub fn pack(
        value: &Tensor,
        saver: (Option<&Op>, &str, Line),
        is_output: bool,
        history: &History,
    ) -> Held {
        let (layout, storage) = (&value.0.layout, &value.0.storage);
        if !packing::is_active() && layout.offset == 0 && layout.is_dense() {
            events::value_saved(storage);
            return Held::Whole(storage.clone(), storage.version());
        }
        Held::Kept(Box::new(Kept::pack(value, saver, is_output, history)))
    }
}

/// The value of a node that is all of a memory; an error if it was written to since.
pub(crate) fn whole(
    node: &Node,
    which: Val,
    storage: &Pooled<Storage>,
    version: u64,
) -> Result<Tensor> {
    let spec = match which {
        Val::In(i) => node.in_spec(i),
        Val::Out(k) => &node.out_specs[k],
    };
    let x = Tensor::filling(spec, storage.clone());
    if storage.version() == version {
        return Ok(x);
    }
    let mut view = SavedView::of(&x);
    view.version = version;
    Err(view.overwritten(node, which))
}

#[derive(Clone)]
pub(crate) enum Kept {
    Memory(SavedView),
    Packed(Spec, Arc<dyn Packed>),
}

/// A view of memory, with the version that the memory had when it was saved.
#[derive(Clone)]
pub(crate) struct SavedView {
    dtype: DType,
    device: Device,
    layout: Layout,
    pub storage: Pooled<Storage>,
    pub version: u64,
}

impl SavedView {
    pub fn of(value: &Tensor) -> SavedView {
        let inner = &*value.0;
        SavedView {
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
        Kept::Memory(SavedView::of(value))
    }
}
