//! Flags, buffers and the types of a tree; parameters that are frozen in place.

use pullback::{Flag, Tensor, Tree, grad, jit, scan_times};

#[derive(Tree)]
struct Scale {
    weight: Tensor,
    #[tree(buffer)]
    seen: Vec<Tensor>,
    training: Flag,
}

#[derive(Tree)]
struct Pair {
    first: Scale,
    rest: Vec<Scale>,
    rate: f64,
}

fn scale(value: f64) -> Scale {
    Scale {
        weight: Tensor::from(value).requires_grad(),
        seen: vec![Tensor::from(0i64)],
        training: Flag::new(true),
    }
}

impl Scale {
    fn of(&self, x: &Tensor) -> Tensor {
        if self.training.get() { x * &self.weight } else { x.clone() }
    }
}

#[test]
fn a_tree_tells_its_types_flags_and_buffers() {
    let pair = Pair { first: scale(1.0), rest: vec![scale(2.0), scale(3.0)], rate: 0.1 };
    let outline = pair.tree_structure();
    let kinds: Vec<_> = outline.kinds.iter().map(|(path, kind)| (path.as_str(), *kind)).collect();
    assert_eq!(kinds, [("", "Pair"), ("first", "Scale"), ("rest.0", "Scale"), ("rest.1", "Scale")]);
    let flags: Vec<_> = outline.flags.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(flags, ["first.training", "rest.0.training", "rest.1.training"]);
    let mut buffers = Vec::new();
    pair.visit(&mut pullback::Path::default(), &mut |path, _| {
        buffers.extend(path.is_buffer().then(|| path.to_string()));
    });
    assert_eq!(buffers, ["first.seen.0", "rest.0.seen.0", "rest.1.seen.0"]);
    // The flags are the tree's own.
    outline.flags[1].1.set(false);
    assert!(!pair.rest[0].training.get() && pair.first.training.get());
}

#[test]
fn a_mapped_tree_has_flags_of_its_own() {
    let one = scale(2.0);
    one.training.set(false);
    let two = one.map(&mut Tensor::deep_clone);
    assert!(!two.training.get());
    two.training.set(true);
    assert!(!one.training.get());
    let same = one.training.clone();
    same.set(true);
    assert!(one.training.get());
}

/// Compiled functions are compiled again where a flag has changed, wherever they looked at it.
#[test]
fn jit_sees_a_changed_flag() {
    let layer = scale(3.0);
    let x = Tensor::from(2.0);
    let direct = jit(|x: &Tensor| layer.of(x).detach());
    let derived = jit(|x: &Tensor| {
        let captured = |x: &Tensor| layer.of(x).detach() * x;
        grad(captured)(x)
    });
    let by_argument = jit(|x: &Tensor| grad(|layer: &Scale| layer.of(x))(&layer).weight);
    let in_a_body =
        jit(|x: &Tensor| scan_times(2, |x: &Tensor, _: &()| (layer.of(x).detach(), ()), x).0);
    let results = || {
        [direct.of(&x), derived.of(&x), by_argument.of(&x), in_a_body.of(&x)]
            .map(|y| y.item::<f64>())
    };
    assert_eq!(results(), [6.0, 6.0, 2.0, 18.0]);
    assert_eq!(results(), [6.0, 6.0, 2.0, 18.0]);
    layer.training.set(false);
    assert_eq!(results(), [2.0, 2.0, 0.0, 2.0]);
    layer.training.set(true);
    assert_eq!(results(), [6.0, 6.0, 2.0, 18.0]);
    let report = direct.explain();
    assert_eq!(report.specialisations.len(), 2, "each value is compiled for once");
    assert!(report.to_string().contains("a flag that it reads"), "{report}");
}

/// A flag in an argument is part of its structure, whichever object it is in.
#[test]
fn a_flag_of_an_argument_is_part_of_its_structure() {
    let f = jit(|layer: &Scale| layer.of(&Tensor::from(2.0)));
    let (one, two) = (scale(3.0), scale(5.0));
    let frozen = |layer: &Scale| layer.map(&mut Tensor::detach);
    assert_eq!(f.of(&frozen(&one)).item::<f64>(), 6.0);
    one.training.set(false);
    assert_eq!(f.of(&frozen(&two)).item::<f64>(), 10.0);
    assert_eq!(f.explain().specialisations.len(), 1);
    assert_eq!(f.of(&frozen(&one)).item::<f64>(), 2.0);
    assert_eq!(f.explain().specialisations.len(), 2);
}

#[test]
fn a_parameter_is_frozen_and_thawed_in_place() {
    let (w, b) = (Tensor::from(3.0).requires_grad(), Tensor::from(1.0).requires_grad());
    let twin = w.clone();
    let before = &w * 2.0;
    let step = jit(|x: &Tensor| {
        w.zero_grad();
        b.zero_grad();
        (x * &w + &b).backward()
    });
    step.of(&Tensor::from(2.0));
    assert_eq!((w.grad().unwrap().item::<f64>(), b.grad().unwrap().item::<f64>()), (2.0, 1.0));
    w.set_requires_grad(false);
    assert!(!twin.is_tracked() && twin.grad().is_none(), "a clone is the same tensor");
    step.of(&Tensor::from(2.0));
    assert!(w.grad().is_none() && b.grad().is_some());
    // What was recorded before is still differentiated, into nothing that is visible.
    before.backward().unwrap();
    assert!(w.grad().is_none());
    w.set_requires_grad(true);
    step.of(&Tensor::from(2.0));
    assert_eq!(w.grad().unwrap().item::<f64>(), 2.0);
    let refused = pullback::catch(|| (&w * 2.0).set_requires_grad(false)).unwrap_err();
    assert!(refused.to_string().contains("not a leaf"), "{refused}");
}
