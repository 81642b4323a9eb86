//! Shapes and places for samples: lines along an axis, indices, views of every kind.

use pullback_ir::{Shape, Span, View};
use smallvec::{SmallVec, smallvec};

/// Lines along an axis, of length 1 and 0 too.
pub fn lines() -> impl Iterator<Item = (&'static [usize], usize)> {
    let list: [(&[usize], usize); 8] = [
        (&[1], 0),
        (&[6], 0),
        (&[2, 4], 0),
        (&[2, 4], 1),
        (&[2, 3, 2], 1),
        (&[3, 1, 2], 1),
        (&[2, 0], 1),
        (&[0, 3], 1),
    ];
    list.into_iter()
}

/// Axis, shape and shape of the index, for gather and scatter.
pub fn indexed() -> Vec<(usize, Vec<usize>, Vec<usize>)> {
    vec![
        (0, vec![4], vec![6]),
        (0, vec![3, 2], vec![4, 2]),
        (1, vec![2, 3], vec![2, 5]),
        (1, vec![3, 2], vec![2, 3]),
        (1, vec![2, 3, 2], vec![2, 2, 1]),
        (0, vec![3, 2], vec![0, 2]),
        (0, vec![3, 0], vec![2, 0]),
    ]
}

pub fn span(start: usize, len: usize, step: usize) -> Span {
    Span { start, len, step }
}

/// Views of one kind, with the shape that they are applied to.
pub fn views(form: &View) -> Vec<(View, Vec<usize>)> {
    let shape = Shape::from_slice;
    match form {
        View::Reshape(_) => vec![
            (View::Reshape(shape(&[3, 2])), vec![2, 3]),
            (View::Reshape(shape(&[6])), vec![2, 3]),
            (View::Reshape(shape(&[1, 2, 1, 3])), vec![6]),
            (View::Reshape(shape(&[])), vec![1, 1]),
            (View::Reshape(shape(&[5, 0])), vec![0, 2]),
        ],
        View::Permute(_) => vec![
            (View::Permute([].into()), vec![]),
            (View::Permute([1, 0].into()), vec![2, 3]),
            (View::Permute([2, 0, 1].into()), vec![2, 3, 2]),
            (View::Permute([0, 2, 1].into()), vec![2, 0, 3]),
        ],
        View::Broadcast(_) => vec![
            (View::Broadcast(shape(&[2, 3])), vec![]),
            (View::Broadcast(shape(&[2, 3])), vec![3]),
            (View::Broadcast(shape(&[2, 3])), vec![2, 1]),
            (View::Broadcast(shape(&[2, 2, 3, 2])), vec![3, 1]),
            (View::Broadcast(shape(&[0, 3])), vec![1, 3]),
        ],
        View::Slice(_) => vec![
            (View::Slice(smallvec![]), vec![]),
            (View::Slice(smallvec![span(1, 2, 2)]), vec![5]),
            (View::Slice(smallvec![span(1, 1, 1), span(0, 2, 2)]), vec![3, 4]),
            (View::Slice(smallvec![span(0, 2, 1)]), vec![3, 2]),
            (View::Slice(smallvec![span(2, 0, 1)]), vec![3, 2]),
        ],
        View::Flip(_) => vec![
            (View::Flip([].into()), vec![2]),
            (View::Flip([0].into()), vec![4]),
            (View::Flip([0, 2].into()), vec![2, 2, 3]),
            (View::Flip([1].into()), vec![2, 0]),
        ],
        View::Diagonal { .. } => vec![
            (View::Diagonal { offset: 0, a: 0, b: 1 }, vec![3, 3]),
            (View::Diagonal { offset: 1, a: 0, b: 1 }, vec![2, 4]),
            (View::Diagonal { offset: -1, a: 2, b: 0 }, vec![2, 2, 3]),
            (View::Diagonal { offset: 5, a: 0, b: 1 }, vec![2, 3]),
        ],
        View::Unfold { .. } => vec![
            (View::Unfold { axis: 0, size: 2, step: 1 }, vec![5]),
            (View::Unfold { axis: 1, size: 3, step: 2 }, vec![2, 5]),
            (View::Unfold { axis: 0, size: 1, step: 3 }, vec![4, 2]),
            (View::Unfold { axis: 0, size: 3, step: 1 }, vec![3, 2]),
        ],
    }
}

/// Chains of views, with the shapes of base and part.
pub fn puts() -> Vec<(Vec<View>, Vec<usize>, Vec<usize>)> {
    let slice = |spans: &[Span]| View::Slice(SmallVec::from_slice(spans));
    vec![
        (vec![], vec![2, 2], vec![2, 2]),
        (vec![slice(&[span(1, 2, 2)])], vec![5], vec![2]),
        (vec![slice(&[span(0, 2, 1), span(1, 2, 1)])], vec![3, 3], vec![2, 2]),
        (vec![View::Permute([1, 0].into()), slice(&[span(1, 2, 1)])], vec![2, 3], vec![2, 2]),
        (vec![View::Diagonal { offset: 1, a: 0, b: 1 }], vec![3, 3], vec![2]),
        (vec![View::Flip([0].into()), slice(&[span(0, 1, 1)])], vec![3, 2], vec![1, 2]),
        (vec![View::Reshape([4].into()), slice(&[span(1, 2, 1)])], vec![2, 2], vec![2]),
        (vec![slice(&[span(0, 0, 1)])], vec![3], vec![0]),
    ]
}
