//! What a user of PyTorch or NumPy types: the forms of arguments that are taken.

use pullback::{DType, PadFill, PadMode, Tensor, catch};

// Borrowed lists are taken too.
#[allow(clippy::needless_borrows_for_generic_args)]
#[test]
fn shapes_are_lists_of_any_integers() {
    let (n, list) = (2usize, vec![2usize, 3]);
    assert_eq!(Tensor::zeros([]).shape(), [0usize; 0]);
    assert_eq!(Tensor::ones([]).item::<f32>(), 1.0);
    assert_eq!(Tensor::zeros(3).shape(), [3]);
    assert_eq!(Tensor::zeros([n, 3]).shape(), [2, 3]);
    assert_eq!(Tensor::zeros(&[2, 3]).shape(), [2, 3]);
    assert_eq!(Tensor::zeros(&list).shape(), [2, 3]);
    assert_eq!(Tensor::zeros(&list[..]).shape(), [2, 3]);
    assert_eq!(Tensor::zeros(list).reshape([3i64, -1]).shape(), [3, 2]);
    assert_eq!(Tensor::zeros([1; 16]).rank(), 16);
    assert_eq!(Tensor::from([7.0]).reshape([]).rank(), 0);
    assert_eq!(of_every_length([4usize, 5]).shape(), [4, 5]);
    let x = Tensor::ones([2, 3]);
    assert_eq!(x.sum_over([]).shape(), [2, 3]);
    assert_eq!((x.sum_over(n - 1).shape(), x.sum_over(&[0, 1]).rank()), (&[2][..], 0));
}

fn of_every_length<const N: usize>(shape: [usize; N]) -> Tensor {
    Tensor::zeros(shape)
}

#[test]
fn ranges_take_any_integers() {
    let n = 4usize;
    let expected = [0i64, 1, 2, 3];
    assert_eq!(Tensor::arange(0, n).to_vec::<i64>(), expected);
    assert_eq!(Tensor::arange(0usize, 4i64).to_vec::<i64>(), expected);
    assert_eq!(Tensor::arange(0i32, 4isize).to_vec::<i64>(), expected);
    assert_eq!(Tensor::ones(1).new_arange(2, n).to_vec::<i64>(), [2, 3]);
    assert!(catch(|| Tensor::arange(0, usize::MAX)).is_err());
}

#[test]
fn numbers_on_the_left_are_inferred() {
    let x = Tensor::from([4.0f32]);
    // The type of the literal is known where a method is called on the result.
    assert_eq!((4.0 * &x).sqrt().item::<f32>(), 4.0);
    assert_eq!((20 - &x).sqrt().item::<f32>(), 4.0);
    assert_eq!((2.0f64 / &x).item::<f32>(), 0.5);
    assert_eq!((3i64 + x.clone()).dtype(), DType::F32);
    // On the right, any type of number.
    assert_eq!((&x * 2.0f32 + 1i32 - 1usize).item::<f32>(), 8.0);
}

#[test]
fn rows_become_matrices() {
    let rows = vec![[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]];
    let expected = "f32[3,2]";
    assert_eq!(Tensor::from(&rows[..]).spec().to_string(), expected);
    let lists = Tensor::from(rows.iter().map(|row| row.to_vec()).collect::<Vec<Vec<f32>>>());
    assert_eq!(lists.spec().to_string(), expected);
    let x = Tensor::from(rows);
    assert_eq!(x.spec().to_string(), expected);
    assert_eq!(x.to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(lists.to_vec::<f32>(), x.to_vec::<f32>());
    assert_eq!(Tensor::from(Vec::<[f32; 8]>::new()).shape(), [0, 8]);
    assert_eq!(Tensor::from(Vec::<Vec<f32>>::new()).shape(), [0, 0]);
    let error = catch(|| Tensor::from(vec![vec![1.0], vec![2.0, 3.0]])).unwrap_err().to_string();
    assert!(error.contains("row 0 has 1 elements, but row 1 has 2"), "{error}");
    assert!(error.contains("typed.rs"), "{error}");
}

// Borrowed lists are taken too.
#[allow(clippy::needless_borrows_for_generic_args)]
#[test]
fn amounts_are_lists() {
    let x = Tensor::from([[1, 2]]);
    let pairs = vec![(0, 1), (1, 0)];
    let expected = [0, 1, 2, 0, 0, 0];
    assert_eq!(x.pad([(0, 1), (1, 0)]).to_vec::<i32>(), expected);
    assert_eq!(x.pad(&[(0, 1), (1, 0)]).to_vec::<i32>(), expected);
    assert_eq!(x.pad(&pairs).to_vec::<i32>(), expected);
    assert_eq!(x.pad(pairs).to_vec::<i32>(), expected);
    assert_eq!(x.pad_with([(0, 0), (0, 1)], 7).to_vec::<i32>(), [1, 2, 7]);
    assert_eq!(x.pad_by([(0, 0), (1, 0)], PadMode::Replicate).to_vec::<i32>(), [1, 1, 2]);
    assert_eq!(x.pad_last([(1, -1)], PadFill::Constant(0.0)).to_vec::<i32>(), [0, 1]);
    assert_eq!(x.repeat([2, 1]).shape(), [2, 2]);
    assert_eq!(x.tile(vec![2]).shape(), [1, 4]);
}
