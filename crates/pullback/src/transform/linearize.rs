//! The linearisation of a function at a point, and transposes of linear maps.

use super::modes::vjp;
use crate::{Error, Spec, Tensor, Tree, fail, mode};
use pullback_ir::Line;

/// The value of a function at `x` and its linearisation there: a map from tangents of the argument
/// to tangents of the result that can be applied any number of times, each a [`jvp`](crate::jvp)
/// that does not run the function again.
///
/// ```
/// use pullback::{Tensor, linearize};
/// let (y, along) = linearize(|x: &Tensor| x * x * x, &Tensor::from([1.0, 2.0]));
/// assert_eq!(y.to_vec::<f64>(), [1.0, 8.0]);
/// assert_eq!(along(&Tensor::from([1.0, 0.0])).to_vec::<f64>(), [3.0, 0.0]);
/// assert_eq!(along(&Tensor::from([0.0, 0.5])).to_vec::<f64>(), [0.0, 6.0]);
/// ```
///
/// The pullback of the function is linear in its cotangent, and *its* pullback is the derivative of
/// the function: so the map is exact, nests with every transform, and can itself be differentiated,
/// by the direction and by what the function captured. It keeps what the pullback keeps, the values
/// that backward needs, as long as it lives. For one direction `jvp` is cheaper.
///
/// # Panics
/// The map, if the direction has other specs than the argument.
#[track_caller]
pub fn linearize<T: Tree, Y: Tree, F: FnOnce(&T) -> Y>(
    f: F,
    x: &T,
) -> (Y, impl Fn(&T) -> Y + use<T, Y, F>) {
    let at = mode::user_line(Line::caller());
    let specs: Vec<Spec> = x.leaves().iter().map(|x| x.spec().clone()).collect();
    mode::with_line(at, || {
        // Errors in the user's code name its own lines.
        let (y, pullback) = vjp(|x: &T| mode::with_own_lines(|| f(x)), x);
        let zeros = y.map(&mut |y| mode::set_recording(false, || y.detach().zeros_like()));
        let (_, push) = vjp(move |dy: &Y| pullback(dy), &zeros);
        // The map comes from the tape of the pullback. It is not tracked outside, unless the value
        // or a direction is.
        let followed = y.leaves().iter().any(Tensor::is_tracked);
        let map = move |direction: &T| {
            let given = direction.leaves();
            let found: Vec<&Spec> = given.iter().map(Tensor::spec).collect();
            if !specs.iter().eq(found.iter().copied()) {
                let message = format!(
                    "the direction is {}, but the argument is {}",
                    list(&found),
                    list(&specs.iter().collect::<Vec<_>>())
                );
                fail::raise(Error::gradient("linearize", message).at(at));
            }
            match followed || given.iter().any(Tensor::is_tracked) {
                true => push(direction),
                false => mode::set_recording(false, || push(direction)),
            }
        };
        (y, map)
    })
}

fn list(specs: &[&Spec]) -> String {
    specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The transpose of a linear function with an argument like `x`: the map with ⟨f(x), y⟩ = ⟨x,
/// transpose(y)⟩.
///
/// ```
/// use pullback::{Tensor, linear_transpose};
/// let turned = linear_transpose(|x: &Tensor| x.cumsum(0), &Tensor::from([0.0, 0.0, 0.0]));
/// assert_eq!(turned(&Tensor::from([1.0, 1.0, 1.0])).to_vec::<f64>(), [3.0, 2.0, 1.0]);
/// ```
///
/// That the function is linear is not checked: of another one it is the pullback at `x`,
/// [`vjp`](crate::vjp).
///
/// # Panics
/// The map, if its argument has other specs than the function's result.
#[track_caller]
pub fn linear_transpose<T: Tree, Y: Tree, F: FnOnce(&T) -> Y>(
    f: F,
    x: &T,
) -> impl Fn(&Y) -> T + use<T, Y, F> {
    vjp(f, x).1
}
