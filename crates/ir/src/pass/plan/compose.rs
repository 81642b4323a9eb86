//! Composes a region's load with the layout of an operand that is not dense, into one layout of the
//! memory, if there is one.

use crate::{Layout, Strides, dense_strides};

/// `load` is the layout of the domain in a dense operand; `lies` is the layout of the operand in
/// memory. Returns the layout of the domain in memory, if there is one.
///
/// A step along an axis of the domain is a step along axes of the operand as long as no index
/// passes the end of its axis. So every step is decomposed into steps along axes, which is valid if
/// the first and the last index stay in bounds.
pub(super) fn compose(load: &Layout, lies: &Layout) -> Option<Layout> {
    let dense = dense_strides(&lies.shape);
    if load.is_empty() {
        return Some(Layout {
            strides: load.strides.clone(),
            shape: load.shape.clone(),
            offset: 0,
        });
    }
    if lies.strides.iter().all(|&stride| stride == 0) {
        return Some(Layout { offset: lies.offset, ..Layout::splat(load.shape.clone()) });
    }
    let first = along(load.offset as isize, &lies.shape, &dense)?;
    let (mut low, mut high) = (first.clone(), first.clone());
    let position = |steps: &[isize]| -> isize {
        steps.iter().zip(&lies.strides).map(|(step, stride)| step * stride).sum()
    };
    let mut strides = Strides::new();
    for (&n, &stride) in load.shape.iter().zip(&load.strides) {
        let steps = match n {
            1 => Strides::from_elem(0, dense.len()),
            _ => along(stride, &lies.shape, &dense)?,
        };
        for (a, step) in steps.iter().enumerate() {
            let reach = step * (n as isize - 1);
            low[a] += reach.min(0);
            high[a] += reach.max(0);
        }
        strides.push(position(&steps));
    }
    let inside = (low.iter().zip(&high).zip(&lies.shape))
        .all(|((&low, &high), &n)| low >= 0 && high < n as isize);
    let offset = lies.offset as isize + position(&first);
    let down: isize = (load.shape.iter().zip(&strides))
        .map(|(&n, &stride)| (stride * (n as isize - 1)).min(0))
        .sum();
    (inside && offset + down >= 0).then(|| Layout {
        shape: load.shape.clone(),
        strides,
        offset: offset as usize,
    })
}

/// A distance in a dense array as steps along its axes, the outermost first.
fn along(distance: isize, shape: &[usize], dense: &[isize]) -> Option<Strides> {
    let (mut rest, mut steps) = (distance, Strides::new());
    for (&n, &stride) in shape.iter().zip(dense) {
        let step = if n == 1 { 0 } else { rest / stride };
        rest -= step * stride;
        steps.push(step);
    }
    (rest == 0).then_some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Few, Shape, View};

    fn layout(shape: &[usize], strides: &[isize], offset: usize) -> Layout {
        Layout { shape: Shape::from_slice(shape), strides: Few::from_slice(strides), offset }
    }

    fn positions(layout: &Layout) -> Vec<isize> {
        let position = |i: usize| {
            let (mut rest, mut at) = (i, layout.offset as isize);
            for (&n, &s) in layout.shape.iter().zip(&layout.strides).rev() {
                at += (rest % n) as isize * s;
                rest /= n;
            }
            at
        };
        (0..layout.len()).map(position).collect()
    }

    #[test]
    fn composed_layouts_point_where_two_lookups_do() {
        let turned =
            Layout::dense([4, 6].into()).view(&View::Permute([1, 0].into())).expect("a view");
        let flipped = turned.view(&View::Flip([0, 1].into())).expect("a view");
        let splat = Layout::splat([6, 4].into());
        let loads = [
            layout(&[6, 4], &[4, 1], 0),
            layout(&[4, 6], &[1, 4], 0),
            layout(&[3, 4], &[8, -1], 3),
            layout(&[2, 6, 4], &[0, 4, 1], 0),
            layout(&[3], &[5], 0),
            layout(&[1, 4], &[77, 1], 8),
        ];
        for location in [&turned, &flipped, &splat] {
            let lies = positions(location);
            for load in &loads {
                let want: Vec<isize> = positions(load).iter().map(|&p| lies[p as usize]).collect();
                let got = compose(load, location).expect("a layout");
                assert_eq!(
                    (positions(&got), &got.shape),
                    (want, &load.shape),
                    "{load:?} {location:?}"
                );
            }
        }
        // A flat axis crosses the ends of rows, unless there is only one element.
        let flat = layout(&[24], &[1], 0);
        assert_eq!(compose(&flat, &turned), None);
        assert_eq!(compose(&flat, &splat), Some(Layout::splat([24].into())));
        // Positions before the start cannot be expressed.
        let back = layout(&[6, 4], &[-4, -1], 0);
        assert_eq!(compose(&loads[0], &back), None);
    }
}
