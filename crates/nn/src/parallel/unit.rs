//! The parameters of one block, of which this worker has its part: see `fully_sharded.rs`.

use super::shard::{ShardLayout, columns, side_by_side};
use pullback::{
    Error, Group, Pack, Packed, Pending, Result, SavedValue, Tensor, autocast_off, cat, catch,
    no_grad,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub(super) const OP: &str = "FullySharded";

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the calls of one block share.
pub(super) struct Unit {
    pub number: usize,
    /// Those of the `FullSharding`, which holds this one too.
    pub units: Weak<Mutex<Vec<Arc<Unit>>>>,
    pub group: Group,
    pub names: Vec<String>,
    pub cuts: Vec<ShardLayout>,
    pub parts: Vec<Tensor>,
    state: Mutex<UnitState>,
}

#[derive(Default)]
struct UnitState {
    /// Whole parameters on their way, and the versions of the parts that were sent.
    coming: Option<(Pending, Vec<u64>)>,
    /// Whole parameters that backward is using.
    whole: Option<Vec<Tensor>>,
    /// The gradients of whole parameters that came so far in this backward pass.
    grads: HashMap<usize, Tensor>,
    /// Sums on their way to the parts.
    sums: Vec<Pending>,
    error: Option<Error>,
}

impl Unit {
    /// One more unit.
    pub fn add(
        units: &Arc<Mutex<Vec<Arc<Unit>>>>,
        group: &Group,
        names: Vec<String>,
        cuts: Vec<ShardLayout>,
        parts: Vec<Tensor>,
    ) -> Arc<Unit> {
        let mut all = lock(units);
        let (number, units, group) = (all.len(), Arc::downgrade(units), group.clone());
        let state = Mutex::default();
        let unit = Arc::new(Unit { number, units, group, names, cuts, parts, state });
        all.push(unit.clone());
        unit
    }

    /// Starts gathering, unless it was.
    pub fn prefetch(&self) {
        let mut state = lock(&self.state);
        if state.coming.is_none() && state.whole.is_none() {
            state.coming = Some((self.start(), self.versions()));
        }
    }

    /// Of the parts: a write changes them.
    fn versions(&self) -> Vec<u64> {
        self.parts.iter().map(Tensor::version).collect()
    }

    fn start(&self) -> Pending {
        no_grad(|| {
            let rows = self.parts.iter().map(|x| x.detach().reshape([1, x.len()]));
            let rows: Vec<Tensor> = rows.collect();
            self.group.all_gather_later(cat(&rows.iter().collect::<Vec<_>>(), 1))
        })
    }

    /// The whole parameters. What was sent before the parts were written (by an optimiser's step
    /// that no `finish` came before, for example) is sent again.
    pub fn gather(&self) -> Result<Vec<Tensor>> {
        let coming = lock(&self.state).coming.take();
        let fresh = coming.filter(|(_, versions)| *versions == self.versions());
        let matrix = fresh.map_or_else(|| self.start(), |(coming, _)| coming).wait()?;
        // Each in memory of its own, so that the matrix goes.
        let own = |whole: Vec<Tensor>| whole.iter().map(Tensor::deep_clone).collect();
        catch(|| no_grad(|| own(self.wholes(&matrix))))
    }

    /// Each parameter in a matrix with a row for each worker.
    fn wholes(&self, matrix: &Tensor) -> Vec<Tensor> {
        let rows = columns(matrix, &self.cuts);
        rows.iter().zip(&self.cuts).map(|(rows, cut)| cut.whole(rows)).collect()
    }

    /// The whole parameters in a program, of these parts.
    #[track_caller]
    pub fn traced(&self, parts: &[Tensor]) -> Vec<Tensor> {
        let rows: Vec<Tensor> = parts.iter().map(|x| x.reshape([1, x.len()])).collect();
        let row = cat(&rows.iter().collect::<Vec<_>>(), 1);
        self.wholes(&row.all_gather(&self.group, 0))
    }

    pub fn neighbour(&self, number: Option<usize>) -> Option<Arc<Unit>> {
        lock(&*self.units.upgrade()?).get(number?).cloned()
    }

    /// Parameter `i` whole, for backward: all of the unit are gathered at the first request.
    /// `versions` are those of the forward pass, whose values backward needs.
    fn for_backward(&self, i: usize, versions: &[u64]) -> Result<Tensor> {
        if let Some(whole) = &lock(&self.state).whole {
            return Ok(whole[i].clone());
        }
        let now = self.versions();
        if let Some(i) = (0..now.len()).find(|&i| now[i] != versions[i]) {
            let message = format!(
                "this worker's part of `{}` in unit {} was written after the forward pass used it",
                self.names[i], self.number
            );
            return Err(Error::gradient(OP, message)
                .hint("run backward before the optimiser's step, or forward again after it"));
        }
        let whole = self.gather()?;
        if let Some(before) = self.neighbour(self.number.checked_sub(1)) {
            before.prefetch();
        }
        let x = whole[i].clone();
        lock(&self.state).whole = Some(whole);
        Ok(x)
    }

    /// The gradient of parameter `i` is complete.
    pub fn on_ready(&self, i: usize, grad: &Tensor) {
        let mut state = lock(&self.state);
        // A unit that is called several times gets several gradients.
        let sum = match state.grads.remove(&i) {
            Some(before) => no_grad(|| before + grad.detach()),
            None => grad.detach(),
        };
        state.grads.insert(i, sum);
        if state.grads.len() == self.parts.iter().filter(|part| part.is_leaf()).count() {
            self.scatter(&mut state);
        }
    }

    /// Sends the gradients, and drops them and the whole parameters.
    fn scatter(&self, state: &mut UnitState) {
        let grads = std::mem::take(&mut state.grads);
        state.whole = None;
        let sent = catch(|| {
            no_grad(|| {
                autocast_off(|| {
                    let grad = |(i, cut): (usize, &ShardLayout)| match grads.get(&i) {
                        Some(grad) => grad.clone(),
                        None => self.parts[i].new_zeros(&cut.shape).cast(self.parts[i].dtype()),
                    };
                    let grads: Vec<(&ShardLayout, Tensor)> =
                        self.cuts.iter().enumerate().map(|at| (at.1, grad(at))).collect();
                    let matrix = side_by_side(&grads, self.group.size());
                    self.group.reduce_scatter_later(matrix)
                })
            })
        });
        match sent {
            Ok(sum) => state.sums.push(sum),
            Err(error) => state.error = Some(error),
        }
    }

    /// Adds the sums that were sent to the gradients of the parts.
    pub fn finish(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if !state.grads.is_empty() {
            // Some parameters of the unit got no gradient.
            self.scatter(&mut state);
        }
        (state.coming, state.whole) = (None, None);
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        for sum in std::mem::take(&mut state.sums) {
            let row = sum.wait()?;
            catch(|| {
                no_grad(|| {
                    let row = row.reshape([1, row.len()]) / self.group.size() as f64;
                    for (part, new) in self.parts.iter().zip(columns(&row, &self.cuts)) {
                        let new = new.reshape([part.len()]);
                        part.set_grad(Some(match part.grad() {
                            Some(grad) => grad + new,
                            None => new.deep_clone(),
                        }));
                    }
                });
            })?;
        }
        Ok(())
    }
}

/// Keeps the number of a gathered parameter instead of its values.
pub(super) struct ByNumber {
    unit: Arc<Unit>,
    whole: Vec<Tensor>,
    versions: Vec<u64>,
}

impl ByNumber {
    /// Keeps the numbers of these parameters of a unit.
    pub fn new(unit: &Arc<Unit>, whole: &[Tensor]) -> ByNumber {
        let whole = whole.iter().map(Tensor::detach).collect();
        ByNumber { unit: unit.clone(), whole, versions: unit.versions() }
    }
}

/// A view of a gathered parameter.
struct Numbered {
    unit: Arc<Unit>,
    parameter: usize,
    axes: Vec<isize>,
    versions: Vec<u64>,
}

impl Pack for ByNumber {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        let x = value.tensor();
        let Some(parameter) = self.whole.iter().position(|whole| whole.shares_memory(x)) else {
            return Ok(None);
        };
        // Where it is another view than with axes in another order, it is kept as it is.
        let axes = axes_of(x, &self.whole[parameter]);
        Ok(axes.map(|axes| {
            let (unit, versions) = (self.unit.clone(), self.versions.clone());
            Arc::new(Numbered { unit, parameter, axes, versions }) as Arc<dyn Packed>
        }))
    }
}

/// The order of axes in which `view` shows `whole`, if that is all it does.
fn axes_of(view: &Tensor, whole: &Tensor) -> Option<Vec<isize>> {
    if view.len() != whole.len() || view.rank() != whole.rank() {
        return None;
    }
    let mut left: Vec<usize> = (0..whole.rank()).collect();
    let mut axes = Vec::new();
    for (length, stride) in view.shape().iter().zip(view.strides()) {
        let same =
            |&axis: &usize| whole.shape()[axis] == *length && whole.strides()[axis] == *stride;
        let at = left.iter().position(same)?;
        axes.push(left.remove(at) as isize);
    }
    Some(axes)
}

impl Packed for Numbered {
    fn unpack(&self) -> Result<Tensor> {
        let whole = self.unit.for_backward(self.parameter, &self.versions)?;
        catch(|| no_grad(|| whole.permute(&self.axes)))
    }

    fn bytes(&self) -> usize {
        0
    }
}
