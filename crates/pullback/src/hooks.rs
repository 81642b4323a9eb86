//! Hooks: functions that run when a gradient has been computed.

use crate::backend::{Pooled, WeakPooled};
use crate::leaf::Leaf;
use crate::read_only::ReadOnly;
use crate::tape::{History, Node};
use crate::{Error, Tensor, fail};
use pullback_ir::Line;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

type GradHook = Arc<dyn Fn(&Tensor) -> Option<Tensor> + Send + Sync>;
type ReadyHook = Arc<dyn Fn(&Tensor) + Send + Sync>;

/// The hooks of a leaf or a node; nearly always none, and then one word that is never locked.
#[derive(Default)]
pub(crate) struct Hooks(OnceLock<Box<Mutex<Lists>>>);

#[derive(Default)]
struct Lists {
    /// On the gradient of output `k`; may replace it.
    grad: Vec<(u64, u32, GradHook)>,
    /// After a leaf's gradient is complete.
    ready: Vec<(u64, ReadyHook)>,
}

impl Hooks {
    pub fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    pub fn has_ready(&self) -> bool {
        !self.is_empty() && !self.lists().ready.is_empty()
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.0.get_or_init(Box::default).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a gradient through the hooks. They run without the lock, so that they may register or
    /// remove hooks themselves.
    pub fn pass(&self, output: u32, mut grad: Tensor) -> Tensor {
        if self.is_empty() {
            return grad;
        }
        let list: Vec<_> =
            self.lists().grad.iter().filter(|h| h.1 == output).map(|h| h.2.clone()).collect();
        for hook in list {
            let held = ReadOnly::of([&grad]);
            let other = hook(&grad);
            drop(held);
            grad = other.unwrap_or(grad);
        }
        grad
    }

    pub fn call_ready(&self, grad: &Tensor) {
        if self.is_empty() {
            return;
        }
        let list: Vec<_> = self.lists().ready.iter().map(|h| h.1.clone()).collect();
        for hook in list {
            hook(grad);
        }
    }

    fn remove(&self, id: u64) {
        let mut lists = self.lists();
        let grad: Vec<_> = lists.grad.extract_if(.., |h| h.0 == id).collect();
        let ready: Vec<_> = lists.ready.extract_if(.., |h| h.0 == id).collect();
        drop(lists);
        READY_HOOKS.fetch_sub(ready.len(), Ordering::AcqRel);
        // Closures of users: their destructors may look at these lists.
        drop((grad, ready));
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// How many ready hooks exist: without any, backward need not find out when a leaf is complete.
static READY_HOOKS: AtomicUsize = AtomicUsize::new(0);

fn any_ready_hook() -> bool {
    READY_HOOKS.load(Ordering::Acquire) > 0
}

impl Drop for Lists {
    fn drop(&mut self) {
        READY_HOOKS.fetch_sub(self.ready.len(), Ordering::AcqRel);
    }
}

/// Removes its hook when [`HookHandle::remove`] is called; dropping it leaves the hook in place.
#[derive(Debug)]
pub struct HookHandle {
    id: u64,
    owner: HookOwner,
}

#[derive(Debug)]
enum HookOwner {
    Leaf(Weak<Leaf>),
    Node(WeakPooled<Node>),
}

impl HookHandle {
    /// Removes the hook.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from(3.0).requires_grad();
    /// let hook = x.register_hook(|g| Some(g * 10.0));
    /// x.square().backward()?;
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 60.0);
    /// hook.remove();
    /// x.zero_grad();
    /// x.square().backward()?;
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 6.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn remove(self) {
        match &self.owner {
            HookOwner::Leaf(leaf) => leaf.upgrade().iter().for_each(|l| l.hooks.remove(self.id)),
            HookOwner::Node(node) => node.upgrade().iter().for_each(|n| n.hooks.remove(self.id)),
        }
    }
}

impl Tensor {
    /// Runs `hook` on the gradient of this tensor whenever backward has computed it. What the hook
    /// returns, if anything, takes the gradient's place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from(3.0).requires_grad();
    /// let y = &x * &x;
    /// y.register_hook(|dy| Some(dy * 10.0));
    /// y.backward().unwrap();
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 60.0);
    /// ```
    ///
    /// # Panics
    /// If the tensor is not tracked: no gradient will ever reach it.
    #[track_caller]
    pub fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Option<Tensor> + Send + Sync + 'static,
    ) -> HookHandle {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let hook: GradHook = Arc::new(hook);
        match self.history() {
            History::Leaf(leaf) => {
                leaf.hooks.lists().grad.push((id, 0, hook));
                HookHandle { id, owner: HookOwner::Leaf(Arc::downgrade(&leaf)) }
            }
            History::Node(node, k) => {
                node.hooks.lists().grad.push((id, k, hook));
                HookHandle { id, owner: HookOwner::Node(Pooled::downgrade(&node)) }
            }
            History::None | History::Cut(_) => fail::raise(untracked("register_hook", self)),
        }
    }

    /// Runs `hook` on `.grad()` of this leaf as soon as a backward pass has added its last
    /// contribution, while the rest of the pass continues: for overlapping communication with
    /// computation.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
    /// let w = Tensor::from(3.0).requires_grad();
    /// let seen = Arc::new(AtomicBool::new(false));
    /// let flag = seen.clone();
    /// w.on_grad_ready(move |grad| flag.store(grad.item::<f64>() == 7.0, Ordering::Relaxed));
    /// (&w * &w + &w).backward().unwrap();
    /// assert!(seen.load(Ordering::Relaxed));
    /// ```
    ///
    /// # Panics
    /// If the tensor is not a leaf that requires grad.
    #[doc(alias = "register_post_accumulate_grad_hook")]
    #[track_caller]
    pub fn on_grad_ready(&self, hook: impl Fn(&Tensor) + Send + Sync + 'static) -> HookHandle {
        let Some(leaf) = self.leaf() else { fail::raise(untracked("on_grad_ready", self)) };
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        leaf.hooks.lists().ready.push((id, Arc::new(hook)));
        READY_HOOKS.fetch_add(1, Ordering::AcqRel);
        HookHandle { id, owner: HookOwner::Leaf(Arc::downgrade(&leaf)) }
    }
}

#[track_caller]
fn untracked(op: &'static str, x: &Tensor) -> Error {
    if let History::Node(node, _) = x.history() {
        let message = "the tensor is the result of an operation, not a leaf that requires grad";
        return Error::gradient(op, message)
            .on([x.spec()])
            .detail(format!("made by {} at {}", node.op.name(), node.at))
            .at(Line::caller())
            .hint("use register_hook, which takes any tracked tensor");
    }
    Error::gradient(op, "no gradient will reach this tensor: it does not require grad")
        .on([x.spec()])
        .at(Line::caller())
        .hint("call requires_grad() on it, or on what it is computed from, first")
}

/// How many contributions each leaf will get, where a ready hook waits for the last.
pub(crate) fn contributions(roots: &[(History, Tensor)]) -> Option<FxHashMap<u64, usize>> {
    if !any_ready_hook() {
        return None;
    }
    let mut counts = FxHashMap::default();
    let mut seen = FxHashSet::default();
    let mut stack: Vec<History> = roots.iter().map(|r| r.0.clone()).collect();
    while let Some(history) = stack.pop() {
        match history {
            History::None | History::Cut(_) => {}
            History::Leaf(leaf) => *counts.entry(leaf.seq).or_insert(0) += 1,
            History::Node(node, _) => {
                if seen.insert(node.seq) {
                    stack.extend(node.inputs.iter().cloned());
                }
            }
        }
    }
    Some(counts)
}
