//! `ht`, hand tracking: the distance of measured points from a hand in a pose, and its dense
//! Jacobian.
//!
//! Many distances depend on 26 angles and shifts, so the Jacobian is by forward mode, all
//! directions at once. Where a measured point belongs to a place inside a triangle (`us` is not
//! empty), that place is two further numbers of each point. No two points share theirs, so two
//! directions give the derivatives with respect to all of them.

use super::Module;
use crate::job::{Job, matrix, read, vector};
use pullback::{Tensor, Tree, cat, jit, jvp, stack, vmap};
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const MODULE: Module = Module {
    name: "ht",
    functions: &[
        ("objective", |input| {
            let x = read::<HtInput>(input)?.tensors()?;
            let f = jit(|(hand, pose): &(Hand, Pose)| hand.distances(pose));
            Ok(Job::compiled(f, x, |y: &Tensor| json!(y.t().to_vec::<f64>())))
        }),
        ("jacobian", |input| {
            let (x, f) = (read::<HtInput>(input)?.tensors()?, jit(jacobian));
            Ok(Job::compiled(f, x, show_jacobian))
        }),
    ],
};

#[derive(Deserialize)]
struct HtInput {
    theta: Vec<f64>,
    data: HandData,
    us: Vec<[f64; 2]>,
}

#[derive(Deserialize)]
struct HandData {
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

/// The numbers of a pose: global rotation (3), global translation (3), and four angles of each
/// finger.
const THETA: usize = 6 + 4 * FINGERS;
const FINGERS: usize = 5;

impl HtInput {
    fn check(&self) -> Result<(), String> {
        let HtInput { theta, data: HandData { model, correspondences, points }, us } = self;
        let (bones, vertices) = (model.bone_names.len(), model.base_positions.len());
        let least = 1 + 4 * FINGERS;
        if theta.len() != THETA {
            return Err(format!("theta has {} numbers, and a pose has {THETA}", theta.len()));
        }
        if bones < least {
            return Err(format!("a hand of {bones} bones: a wrist and its fingers have {least}"));
        }
        if vertices == 0 || points.is_empty() {
            return Err("there are no base_positions, or no points to compare them with".into());
        }
        for (name, count, what, expected) in [
            ("parents", model.parents.len(), "bones", bones),
            ("base_relatives", model.base_relatives.len(), "bones", bones),
            ("inverse_base_absolutes", model.inverse_base_absolutes.len(), "bones", bones),
            ("weights", model.weights.len(), "vertices", vertices),
            ("correspondences", correspondences.len(), "points", points.len()),
            ("us", if us.is_empty() { points.len() } else { us.len() }, "points", points.len()),
        ] {
            if count != expected {
                return Err(format!("{name} has {count} entries, and there are {expected} {what}"));
            }
        }
        if let Some(i) = model.weights.iter().position(|row| row.len() != bones) {
            let count = model.weights[i].len();
            return Err(format!("vertex {i} has {count} weights, and there are {bones} bones"));
        }
        if let Some(i) = (0..bones).find(|&i| !(-1..i as i64).contains(&model.parents[i])) {
            let parent = model.parents[i];
            return Err(format!(
                "the parent of bone {i} is {parent}: neither -1 nor a bone before"
            ));
        }
        if let Some(i) = model.triangles.iter().position(|t| t.iter().any(|&at| at >= vertices)) {
            let corners = model.triangles[i];
            return Err(format!("triangle {i} is {corners:?}, and there are {vertices} vertices"));
        }
        let (what, count) = match us.is_empty() {
            true => ("vertex", vertices),
            false => ("triangle", model.triangles.len()),
        };
        match correspondences.iter().position(|&at| at >= count) {
            Some(i) => {
                let at = correspondences[i];
                Err(format!("correspondence {i} is {what} {at}, and there are {count}"))
            }
            None => Ok(()),
        }
    }

    fn tensors(&self) -> Result<(Hand, Pose), String> {
        self.check()?;
        let HandData { model, correspondences, points } = &self.data;
        let indices = |all: &[usize], shape: &[usize]| {
            Tensor::from_vec(all.iter().map(|&i| i as i64).collect::<Vec<_>>(), shape)
        };
        let hand = Hand {
            parents: model.parents.clone(),
            relatives: matrices(&model.base_relatives),
            inverse_absolutes: matrices(&model.inverse_base_absolutes),
            positions: columns(&model.base_positions),
            weights: matrix("weights", &model.weights)?.t().contiguous(),
            triangles: indices(model.triangles.as_flattened(), &[model.triangles.len(), 3]),
            mirrored: model.is_mirrored,
            correspondences: indices(correspondences, &[correspondences.len()]),
            points: columns(points),
        };
        let us = (!self.us.is_empty()).then(|| columns(&self.us));
        Ok((hand, Pose { theta: vector(&self.theta), us }))
    }
}

/// What is known of the hand and measured, vertices and points along the last axis.
#[derive(Tree)]
struct Hand {
    parents: Vec<i64>,
    relatives: Tensor,
    inverse_absolutes: Tensor,
    positions: Tensor,
    weights: Tensor,
    triangles: Tensor,
    mirrored: bool,
    correspondences: Tensor,
    points: Tensor,
}

/// The angles and shifts, and where in its triangle each point is.
#[derive(Tree)]
struct Pose {
    theta: Tensor,
    us: Option<Tensor>,
}

fn matrices(all: &[[[f64; 4]; 4]]) -> Tensor {
    Tensor::from_vec(all.as_flattened().as_flattened(), [all.len(), 4, 4])
}

/// Points as the columns of a matrix.
fn columns<const N: usize>(points: &[[f64; N]]) -> Tensor {
    Tensor::from_vec(points.as_flattened(), [points.len(), N]).t().contiguous()
}

impl Hand {
    /// From each point to the place on the hand that it belongs to, 3 × points.
    fn distances(&self, pose: &Pose) -> Tensor {
        let skin = self.skin(&pose.theta);
        let Some(us) = &pose.us else {
            return &self.points - skin.index_select(1, &self.correspondences);
        };
        let corners = self.triangles.index_select(0, &self.correspondences);
        let [a, b, c] = [0, 1, 2].map(|k| skin.index_select(1, &corners.at((.., k))));
        let (u, v) = (us.at(0), us.at(1));
        &self.points - (&u * a + &v * b + (1.0 - &u - &v) * c)
    }

    /// Where the vertices are, 3 × vertices.
    fn skin(&self, theta: &Tensor) -> Tensor {
        let bones = self.parents.len();
        let transforms = self.absolutes(theta).matmul(&self.inverse_absolutes);
        // Σ over bones of weight · transform · position is one product, of transforms side by side
        // and weighted positions.
        let weighted = self.positions.unsqueeze(0) * self.weights.unsqueeze(1);
        let side_by_side = transforms.at((.., 0..3)).permute([1, 0, 2]).reshape([3, 4 * bones]);
        let local = side_by_side.matmul(&weighted.flatten(0, 1));
        let local = match self.mirrored {
            true => local * Tensor::from([[-1.0], [1.0], [1.0]]),
            false => local,
        };
        rotation(&theta.at(0..3)).matmul(&local) + theta.at(3..6).unsqueeze(1)
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

/// How each bone is turned about x and then about z. Of the four bones of a finger the first is
/// fixed, the second turns about both, the others about x.
fn bends(theta: &Tensor, bones: usize) -> Tensor {
    let fingers = theta.at(6..).reshape([FINGERS, 4]);
    let column = |i: usize| fingers.at((.., i));
    let fixed = Tensor::zeros_with([FINGERS], theta.dtype());
    let all =
        |four: [&Tensor; 4]| stack(&four, 1).reshape([-1]).pad([(1, bones - 4 * FINGERS - 1)]);
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

/// The derivatives of the distances by the places in the triangles, if there are any, and by theta:
/// columns × 3 × points.
fn jacobian((hand, pose): &(Hand, Pose)) -> Tensor {
    let by_theta = |direction: &Tensor| {
        let f =
            |theta: &Tensor| hand.distances(&Pose { theta: theta.clone(), us: pose.us.clone() });
        jvp(f, &pose.theta, direction).1
    };
    let theta = vmap(by_theta, 0, 0)(&Tensor::eye_with(THETA, THETA, pose.theta.dtype()));
    let Some(us) = &pose.us else { return theta };
    let by_us = |direction: &Tensor| {
        let f =
            |us: &Tensor| hand.distances(&Pose { theta: pose.theta.clone(), us: Some(us.clone()) });
        jvp(f, us, &direction.unsqueeze(1).expand(us.shape())).1
    };
    let us = vmap(by_us, 0, 0)(&Tensor::eye_with(2, 2, us.dtype()));
    cat(&[&us, &theta], 0)
}

/// A row for each coordinate of each point.
fn show_jacobian(columns: &Tensor) -> Value {
    let rows = columns.permute([2, 1, 0]).to_vec::<f64>();
    rows.chunks(columns.shape()[0]).map(|row| json!(row)).collect()
}
