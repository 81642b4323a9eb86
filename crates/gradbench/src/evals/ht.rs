//! `ht`, hand tracking: the distance of measured points from a hand in a pose, and its dense Jacobian.
//!
//! Many distances depend on 26 angles and shifts, so the Jacobian is by forward mode, all directions at once. Where a measured point
//! belongs to a place inside a triangle (`us` is not empty), that place is two further numbers of each point. No two points
//! share theirs, so two directions give the derivatives with respect to all of them.

use super::Module;
use crate::job::{Job, matrix, read, vector};
use pullback::{Tensor, Tree, cat, jit, jvp, stack, vmap};
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const MODULE: Module = Module {
    name: "ht",
    functions: &[
        ("objective", |input| {
            let (hand, pose) = hand(read(input)?)?;
            let f = jit(|(hand, pose): &(Hand, Pose)| hand.distances(pose));
            let x = (hand, pose);
            Ok(Job::new(move || f.of(&x), |y: &Tensor| json!(y.t().to_vec::<f64>())))
        }),
        ("jacobian", |input| {
            let (x, f) = (hand(read(input)?)?, jit(jacobian));
            Ok(Job::new(move || f.of(&x), show_jacobian))
        }),
    ],
};

#[derive(Deserialize)]
struct Input {
    theta: Vec<f64>,
    data: Data,
    us: Vec<[f64; 2]>,
}

#[derive(Deserialize)]
struct Data {
    model: Model,
    correspondences: Vec<usize>,
    points: Vec<[f64; 3]>,
}

#[derive(Deserialize)]
struct Model {
    bone_names: Vec<String>,
    parents: Vec<i64>,
    base_relatives: Vec<[[f64; 4]; 4]>,
    inverse_base_absolutes: Vec<[[f64; 4]; 4]>,
    base_positions: Vec<[f64; 4]>,
    weights: Vec<Vec<f64>>,
    triangles: Vec<[usize; 3]>,
    is_mirrored: bool,
}

/// Global rotation (3), global translation (3), and four angles of each of five fingers.
const THETA: usize = 6 + 4 * FINGERS;
const FINGERS: usize = 5;

/// What is known of the hand. Axes: bones, then 4 × 4; vertices and measured points last.
#[derive(Tree)]
struct Hand {
    parents: Vec<i64>,
    relatives: Tensor,
    inverse_absolutes: Tensor,
    positions: Tensor,
    weights: Tensor,
    mirrored: bool,
    measured: Tensor,
    /// The vertex of each measured point, or the three vertices of its triangle.
    vertices: Vec<Tensor>,
}

#[derive(Tree)]
struct Pose {
    theta: Tensor,
    /// Where each measured point is in its triangle.
    us: Option<[Tensor; 2]>,
}

fn hand(input: Input) -> Result<(Hand, Pose), String> {
    let Input { theta, data: Data { model, correspondences, points }, us } = input;
    let bones = model.bone_names.len();
    let vertices = model.base_positions.len();
    if theta.len() != THETA {
        return Err(format!("theta has {} numbers, and a pose has {THETA}", theta.len()));
    }
    if bones <= 4 * FINGERS {
        return Err(format!("{bones} bones are no hand: a wrist and four a finger are {}", 4 * FINGERS + 1));
    }
    for (name, count) in [
        ("parents", model.parents.len()),
        ("base_relatives", model.base_relatives.len()),
        ("inverse_base_absolutes", model.inverse_base_absolutes.len()),
    ] {
        if count != bones {
            return Err(format!("{name} has {count} entries, and there are {bones} bones"));
        }
    }
    if let Some(i) = (0..bones).find(|&i| !(-1..i as i64).contains(&model.parents[i])) {
        let parent = model.parents[i];
        return Err(format!("the parent of bone {i} is {parent}, neither -1 nor a bone before it"));
    }
    if vertices == 0 {
        return Err("base_positions is empty: the hand has no vertices".into());
    }
    let weights = matrix("weights", &model.weights)?;
    if weights.shape() != [vertices, bones] {
        let [rows, columns] = weights.shape() else { unreachable!("weights are a matrix") };
        return Err(format!("weights are {rows}×{columns}, and there are {vertices} vertices and {bones} bones"));
    }
    if points.len() != correspondences.len() {
        return Err(format!("{} points have {} correspondences", points.len(), correspondences.len()));
    }
    if points.is_empty() {
        return Err("points is empty: there is nothing to compare the hand with".into());
    }
    let in_triangles = !us.is_empty();
    if in_triangles && us.len() != points.len() {
        return Err(format!("{} points have {} entries of us", points.len(), us.len()));
    }
    let (what, count) = match in_triangles {
        true => ("triangle", model.triangles.len()),
        false => ("vertex", vertices),
    };
    if let Some(i) = correspondences.iter().position(|&at| at >= count) {
        return Err(format!("correspondence {i} is {what} {}, and there are {count}", correspondences[i]));
    }
    if let Some(i) = model.triangles.iter().position(|t| t.iter().any(|&at| at >= vertices)) {
        return Err(format!("triangle {i} is {:?}, and there are {vertices} vertices", model.triangles[i]));
    }
    let corner = |k: usize| match in_triangles {
        true => indices(correspondences.iter().map(|&at| model.triangles[at][k])),
        false => indices(correspondences.iter().copied()),
    };
    let hand = Hand {
        parents: model.parents,
        relatives: Tensor::from_vec(model.base_relatives.as_flattened().as_flattened(), [bones, 4, 4]),
        inverse_absolutes: Tensor::from_vec(model.inverse_base_absolutes.as_flattened().as_flattened(), [bones, 4, 4]),
        positions: columns(&model.base_positions),
        weights: weights.t() + 0.0,
        mirrored: model.is_mirrored,
        measured: columns(&points),
        vertices: (0..if in_triangles { 3 } else { 1 }).map(corner).collect(),
    };
    let [u, v] = [0, 1].map(|k| vector(&us.iter().map(|u| u[k]).collect::<Vec<_>>()));
    Ok((hand, Pose { theta: vector(&theta), us: in_triangles.then_some([u, v]) }))
}

fn indices(all: impl Iterator<Item = usize>) -> Tensor {
    let all: Vec<i64> = all.map(|i| i as i64).collect();
    Tensor::from_vec(&all, [all.len()])
}

/// Points as the columns of a matrix.
fn columns<const N: usize>(points: &[[f64; N]]) -> Tensor {
    Tensor::from_vec(points.as_flattened(), [points.len(), N]).t() + 0.0
}

impl Hand {
    /// From each measured point to its place on the hand, 3 × points.
    fn distances(&self, pose: &Pose) -> Tensor {
        let skin = self.skin(&pose.theta);
        let corners: Vec<Tensor> = self.vertices.iter().map(|at| skin.index_select(1, at)).collect();
        match &pose.us {
            None => &self.measured - &corners[0],
            Some([u, v]) => {
                &self.measured - (u * &corners[0] + v * &corners[1] + (1.0 - u - v) * &corners[2])
            }
        }
    }

    /// Where the vertices are, 3 × vertices.
    fn skin(&self, theta: &Tensor) -> Tensor {
        let bones = self.parents.len();
        let transforms = self.absolutes(theta).matmul(&self.inverse_absolutes);
        // Σ over bones of weight · transform · position is one product, of transforms side by side and weighted positions.
        let weighted = self.positions.unsqueeze(0) * self.weights.unsqueeze(1);
        let side_by_side = transforms.at((.., 0..3)).permute([1, 0, 2]).reshape([3, 4 * bones]);
        let local = side_by_side.matmul(&weighted.flatten(0, 1));
        let local = match self.mirrored {
            true => local * Tensor::from([[-1.0], [1.0], [1.0]]),
            false => local,
        };
        rotation(&theta.at(0..3)).matmul(&local) + theta.at((3..6, pullback::Index::NewAxis))
    }

    /// The bones' transforms in the pose, each that of its parent times its own.
    fn absolutes(&self, theta: &Tensor) -> Tensor {
        let relatives = self.relatives.matmul(&bends(theta, self.parents.len())).unbind(0);
        let mut absolutes: Vec<Tensor> = Vec::new();
        for (relative, &parent) in relatives.iter().zip(&self.parents) {
            absolutes.push(match usize::try_from(parent) {
                Ok(parent) => absolutes[parent].matmul(relative),
                Err(_) => relative.clone(),
            });
        }
        stack(&absolutes.iter().collect::<Vec<_>>(), 0)
    }
}

/// How each bone is turned about x and then about z. Of the four bones of a finger the first is fixed, the second
/// turns about both, the others about x.
fn bends(theta: &Tensor, bones: usize) -> Tensor {
    let fingers = theta.at(6..).reshape([FINGERS, 4]);
    let column = |i: usize| fingers.at((.., i));
    let fixed = Tensor::zeros_with([FINGERS], theta.dtype());
    let all = |four: [&Tensor; 4]| {
        stack(&four, 1).reshape([-1]).pad(&[(1, bones - 4 * FINGERS - 1)])
    };
    let x = all([&fixed, &column(0), &column(2), &column(3)]);
    let z = all([&fixed, &column(1), &fixed, &fixed]);
    let (sx, cx, sz, cz) = (x.sin(), x.cos(), z.sin(), z.cos());
    let (zero, one) = (x.zeros_like(), x.ones_like());
    #[rustfmt::skip]
    let entries = [
        &cz,   &(-&sz * &cx), &(&sz * &sx),  &zero,
        &sz,   &(&cz * &cx),  &(-&cz * &sx), &zero,
        &zero, &sx,           &cx,           &zero,
        &zero, &zero,         &zero,         &one,
    ];
    stack(&entries, 1).reshape([bones, 4, 4])
}

/// The rotation about an axis by its length as the angle; none where that is tiny.
fn rotation(axis: &Tensor) -> Tensor {
    let square = axis.square().sum();
    let turns = square.sqrt().ge(1e-4);
    // Another angle goes into what is not taken, or its derivative would be NaN.
    let angle = turns.select(&square, 1.0).sqrt();
    let (sin, cos) = (angle.sin(), angle.cos());
    let unit = axis / &angle;
    let [x, y, z] = [0, 1, 2].map(|i| unit.at(i) * &sin);
    let zero = x.zeros_like();
    let across = stack(&[&zero, &-&z, &y, &z, &zero, &-&x, &-&y, &x, &zero], 0).reshape([3, 3]);
    let none = Tensor::eye_with(3, 3, axis.dtype());
    let turned = &none * &cos + across + unit.outer(&unit) * (1.0 - &cos);
    turns.select(turned, none)
}

/// The derivatives of the distances by the places in the triangles, if there are any, and by theta: directions × 3 × points.
fn jacobian((hand, pose): &(Hand, Pose)) -> Tensor {
    let theta = vmap(
        |direction: &Tensor| {
            let f = |theta: &Tensor| hand.distances(&Pose { theta: theta.clone(), us: pose.us.clone() });
            jvp(f, &pose.theta, direction).1
        },
        0,
        0,
    )(&Tensor::eye_with(THETA, THETA, pose.theta.dtype()));
    let Some(us) = &pose.us else { return theta };
    let f = |us: &[Tensor; 2]| hand.distances(&Pose { theta: pose.theta.clone(), us: Some(us.clone()) });
    let (zero, one) = (us[0].zeros_like(), us[0].ones_like());
    let u = jvp(f, us, &[one.clone(), zero.clone()]).1;
    let v = jvp(f, us, &[zero, one]).1;
    cat(&[&stack(&[&u, &v], 0), &theta], 0)
}

/// A row for each coordinate of each point.
fn show_jacobian(y: &Tensor) -> Value {
    let columns = y.shape()[0];
    let rows = y.permute([2, 1, 0]).to_vec::<f64>();
    rows.chunks(columns).map(|row| json!(row)).collect()
}
