//! History and tangents of a tensor, updated after writes through other tensors.

use super::{note_change, record_as};
use crate::apply;
use crate::tangents::Tangents;
use crate::tape::{History, Node};
use crate::tensor::TensorState;
use crate::transform::levels;
use crate::{Error, Result, Tensor, events, fail, mode, trace};
use pullback_ir::{ErrorKind, Line, Op};

impl Tensor {
    /// History and tangents, updated after writes through other tensors.
    pub(crate) fn state(&self, at: Line) -> Result<apply::OperandState> {
        let mut operand = apply::OperandState::NONE;
        match self.plain_history(&mut operand.history) {
            true => Ok(operand),
            false => self.whole_state(at),
        }
    }

    /// Sets a state, which is none yet, to [`Tensor::state`].
    #[inline]
    pub(crate) fn set_state(&self, at: Line, operand: &mut apply::OperandState) -> Result<()> {
        if !self.plain_history(&mut operand.history) {
            *operand = self.whole_state(at)?;
        }
        Ok(())
    }

    /// Sets a history, which is none yet, if there is nothing else to the state: nearly always.
    #[inline]
    fn plain_history(&self, history: &mut History) -> bool {
        // A constant stays one, whatever is written to its memory, unless it is a view.
        if self.is_constant() && !trace::active() {
            return true;
        }
        let state = self.lock();
        let current = state.version == self.0.storage.version();
        let plain = current && state.tangents.is_empty() && !trace::active();
        if plain {
            *history = state.history.clone();
        }
        plain
    }

    /// Takes the history out of a tensor that is not used again, if it is the node of an op and all
    /// there is to the state, and no subscriber observes ops. (Counting a reference up for the next
    /// node, and down with this tensor, would be two atomic exchanges, the lock a third.)
    #[inline]
    pub(crate) fn take_history(&mut self) -> History {
        if events::mask() != 0 || trace::active() {
            return History::None;
        }
        let version = self.0.storage.version();
        let Some(state) = self.sole_state() else { return History::None };
        let plain = state.version == version && state.tangents.is_empty();
        match &mut state.history {
            history @ History::Node(..) if plain => std::mem::take(history),
            _ => History::None,
        }
    }

    fn whole_state(&self, at: Line) -> Result<apply::OperandState> {
        let mut operand = self.own_state(at)?;
        if trace::active() {
            trace::strip(self, &mut operand, at)?;
        }
        if !operand.tangents.is_empty() {
            operand.cut = mode::cut_tangents(&mut operand.tangents);
        }
        Ok(operand)
    }

    /// [`Tensor::state`] whatever is being traced.
    pub(crate) fn own_state(&self, at: Line) -> Result<apply::OperandState> {
        let now = |state: &TensorState| apply::OperandState {
            history: state.history.clone(),
            tangents: state.tangents.clone(),
            cut: false,
        };
        let state = self.lock();
        if state.version == self.0.storage.version() {
            return Ok(now(&state));
        }
        drop(state);
        // A view follows from its parent, which may be out of date itself: from the root down, in a
        // loop.
        let mut line = vec![self.clone()];
        while let Some(parent) = line[line.len() - 1].0.parent.as_ref().map(|p| p.0.clone()) {
            if parent.lock().version == self.0.storage.version() {
                break;
            }
            line.push(parent);
        }
        line.iter().rev().try_for_each(|tensor| tensor.refresh(at))?;
        Ok(now(&self.lock()))
    }

    /// Brings history and tangents up to date, given that the parent's are.
    fn refresh(&self, at: Line) -> Result<()> {
        let current = self.0.storage.version();
        let (history, severed, dual) = {
            let state = self.lock();
            let dual = !levels::alive(&state.tangents).is_empty();
            (state.history.clone(), state.severed, dual)
        };
        if dual && self.0.parent.is_none() {
            return Err(self.overwritten_elsewhere(None, at));
        }
        let (history, tangents) = match (&self.0.parent, history) {
            // A constant or a leaf stays one, whatever its value.
            (_, history) if severed => (history, Tangents::new()),
            (_, history @ History::Leaf(_)) => (history, Tangents::new()),
            (None, history @ (History::None | History::Cut(_))) => (history, Tangents::new()),
            (Some(parent), _) => {
                let fresh = self.plain();
                // The view was made outside of a `no_grad` that is active now, or it would be cut.
                let record = || record_as(Op::View(parent.1.clone()), &[&parent.0], &fresh, at);
                mode::lifted(record)?;
                let state = fresh.lock();
                (state.history.clone(), state.tangents.clone())
            }
            (None, History::Node(node, _)) => {
                return Err(self.overwritten_elsewhere(Some(&node), at));
            }
        };
        note_change(self);
        self.replace_state(Some(history), Some(tangents), Some(current));
        Ok(())
    }

    /// The history alone; where it is out of date beyond repair, none.
    #[track_caller]
    pub(crate) fn history(&self) -> History {
        fail::or_raise(self.state(mode::user_line(Line::caller()))).history
    }

    fn overwritten_elsewhere(&self, made_by: Option<&Node>, at: Line) -> Error {
        let message = "this value was overwritten through another tensor that shares its memory, so its history no longer holds";
        let mut error = Error::new(ErrorKind::InPlace, "in-place", message).on([self.spec()]);
        if let Some(node) = made_by {
            error = error.detail(format!("made by      {:<8} at {}", node.op.name(), node.at));
        }
        if let Some(writer) = self.0.storage.writer() {
            error = error.detail(format!("overwritten  {:<8} at {}", writer.op, writer.at));
        }
        error.at(at).hint("write to a deep_clone() of the detached value")
    }
}
