//! The explorer on hostile inputs: files of recordings, and bodies of requests. Whatever comes in,
//! the answer is one, or a sentence.

use crate::hostile::{damaged, feed};
use crate::rng::Rng;
use pullback::{DType, Recorder, Spec, Tensor, checkpoint, jit, record_program, trace};
use pullback_explore::answer::recording::OpenedRecording;
use pullback_explore::answer::start::EXAMPLES;
use pullback_explore::server::parse;
use pullback_explore::{Explorer, Subject};

/// Feeds this many inputs: six of seven are recordings, the others bodies of requests.
///
/// # Panics
/// If one of them makes a reader panic, hang, or take memory out of proportion.
pub fn feed_explorer(count: usize) {
    feed_recordings(count - count / 7);
    feed_bodies(count / 7);
}

/// Feeds damaged recordings. One that is read after all must also be shown without a panic.
fn feed_recordings(count: usize) {
    let valid = recordings();
    feed(
        "recording",
        count,
        |rng| damaged(rng, &valid),
        |bytes| {
            let Ok(opened) = OpenedRecording::bytes("x".into(), bytes) else { return };
            let last = opened.nodes().saturating_sub(1);
            let paths = [
                ("/api/recording", String::new()),
                ("/api/recording/tape", format!("from={}&count=4", last / 2)),
                ("/api/recording/sweep", "from=0&count=4".into()),
                ("/api/recording/node", format!("id={last}")),
                ("/api/recording/op", format!("id={last}")),
                ("/api/recording/memory", String::new()),
                ("/api/recording/program", String::new()),
            ];
            for (path, query) in paths {
                // What the engine raises is caught where requests are served.
                let _ = pullback::catch(|| opened.answer(path, &query));
            }
        },
    );
}

/// Some valid recordings: eager, checkpointed, with a compiled call, of a program.
fn recordings() -> Vec<Vec<u8>> {
    let x = Tensor::from([0.5, -1.0]).requires_grad();
    let w = Tensor::ones_with([2, 40], DType::F64).requires_grad();
    let run = |f: &dyn Fn() -> Tensor| {
        let step = || f().backward();
        let made = Recorder::new().name("x", &x).name("layer.w", &w).capture(step);
        made.map_or_else(|_| Vec::new(), |(_, recording)| recording.to_bytes())
    };
    let place = std::env::temp_dir().join(format!("pullback-fuzz-{}", std::process::id()));
    let program =
        trace(|x: &[Tensor]| (x[0].sin() * x[0].exp()).sum(), &[Spec::cpu(DType::F32, [8])]);
    let written = program.and_then(|program| record_program(&place, &program));
    let of_program = written.ok().and_then(|()| std::fs::read(&place).ok());
    let _ = std::fs::remove_file(&place);
    let mut all = vec![
        run(&|| (&x * &x).sum()),
        run(&|| x.reshape([1, 2]).matmul(&w).tanh().mean()),
        run(&|| checkpoint(|x: &Tensor| x.sin().exp(), &x).sum()),
        run(&|| (jit(|x: &Tensor| x.sin() * x.exp()).of(&x.detach()) * &x).sum()),
    ];
    all.extend(of_program);
    all
}

/// Feeds damaged bodies to the views of an expression.
fn feed_bodies(count: usize) {
    let explorer = Explorer::new(Subject::Expression {
        text: EXAMPLES[0].expression.into(),
        values: serde_json::Map::new(),
    });
    let body = |e: &pullback_explore::answer::start::Example, more: &str| {
        format!(r#"{{"expression":"{}","values":{}{more}}}"#, e.expression, e.values).into_bytes()
    };
    let small = [&EXAMPLES[0], &EXAMPLES[6], &EXAMPLES[7]];
    let mut valid: Vec<Vec<u8>> = small.iter().map(|e| body(e, "")).collect();
    valid.extend(small.iter().map(|e| body(e, r#","node":2,"tangents":[1,2],"cotangent":3"#)));
    valid
        .extend(small.iter().map(|e| body(e, r#","direction":{"x":1,"y":[2]},"cotangent":"NaN""#)));
    valid.push(
        br#"{"expression":"sum(outer(v, v) * [[1, 2], [3, 4]])","values":{"v":[1,2]}}"#.to_vec(),
    );
    valid.push(br#"{"points":[[99999,1]],"layers":1e9,"id":"x","model":7}"#.to_vec());
    let make = |rng: &mut Rng| damaged(rng, &valid);
    feed("body", count, make, |bytes| {
        let Ok(body) = parse(bytes) else { return };
        for path in ["/api/expression", "/api/op"] {
            let _ = pullback::catch(|| explorer.answer("POST", path, "", &body));
        }
        // Those that measure take time where the body is valid.
        if body.get("points").is_none_or(|points| !points.is_array()) {
            let _ = pullback::catch(|| explorer.answer("POST", "/api/cost", "", &body));
        }
        for (field, path) in
            [("layers", "/api/memory"), ("id", "/api/preset"), ("model", "/api/program")]
        {
            if body.get(field).is_some() {
                let _ = pullback::catch(|| explorer.answer("POST", path, "", &body));
            }
        }
        let _ = pullback::catch(|| explorer.answer("POST", "/api/nothing", "", &body));
    });
}
